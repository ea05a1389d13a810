//! The driver: threads × transactions in flight, a warm-up, measured seconds, and a clock that stops when everything
//! that was counted is on disk.
//!
//! ```text
//!   thread 0 ─ run_tasks ─ client 0.0 │ 0.1 │ … in flight      each: transaction, record, again
//!   thread 1 ─ run_tasks ─ client 1.0 │ 1.1 │ …
//!   caller   ─ sleeps; reads the counters once a second; calls the watcher; changes the phase
//!
//!   warm-up ────► measuring ────────────────► stopping ── clients end ── settle() ── clock stops
//!             counted from here                           (their last commits count)   (the log is on disk)
//! ```
//!
//! Rules:
//! - No cache line that one thread writes for each transaction is read or written by another one for each
//!   transaction: counters are per thread, with plain loads and stores, and the reporting thread reads them once a
//!   second. The phase is written three times a run.
//! - What is counted was acknowledged after the warm-up, and every transaction that began is waited for, so that
//!   `commits / seconds` neither forgets work nor counts work that was not done yet.
//! - Reading the clock twice costs about 50 ns, a fifth of a point transaction: short transactions are timed one in
//!   [`Load::time_one_in`] (the counts stay exact).

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::time::Duration;

use serde::Serialize;
use thermocline_base::sync::{AtomicU32, AtomicU64, CachePadded, Mutex, Ordering};
use thermocline_engine::{run_tasks, yield_now};

use crate::latency::Latencies;
use crate::time::{self, Moment};

/// The most kinds of transactions that one workload has.
pub const KINDS_MAX: usize = 8;

/// A failure of a run: the engine's errors, or the driver's own.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The shape of a run.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Threads that run transactions.
    pub threads: usize,
    /// Transactions in flight on each of them.
    pub in_flight: usize,
    /// Not counted.
    pub warm_up: Duration,
    /// Counted.
    pub measured: Duration,
    /// One transaction in so many is timed; at least 1.
    pub time_one_in: u32,
}

/// Where a client stands.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The thread, from 0.
    pub thread: usize,
    /// The client among all clients, from 0.
    pub client: usize,
    /// Number of clients.
    pub clients: usize,
}

/// The end of a transaction.
#[derive(Debug)]
pub enum End {
    /// Committed and acknowledged.
    Committed,
    /// Rolled back because the workload wants it so.
    RolledBack,
    /// Given up after as many retries as the engine makes.
    GaveUp,
    /// Anything else: the run stops.
    Failed(Failure),
}

/// A transaction that ended.
#[derive(Debug)]
pub struct Ended {
    /// Its kind: an index into [`Workload::kinds`].
    pub kind: usize,
    /// Its end.
    pub end: End,
}

/// Something to run transactions of.
pub trait Workload: Sync {
    /// Runs one transaction after the other.
    type Client<'a>: Client
    where
        Self: 'a;

    /// The names of the kinds of transactions, at most [`KINDS_MAX`].
    fn kinds(&self) -> &[&'static str];

    /// The client at `place`. Called on the thread that will run it.
    fn client(&self, place: Place) -> Self::Client<'_>;
}

/// One transaction at a time, for as long as the run goes on.
pub trait Client {
    /// Runs one transaction to its end, retries included.
    fn transaction(&mut self) -> impl Future<Output = Ended>;
}

/// The part of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Phase {
    /// Not counted yet.
    WarmUp = 0,
    /// Counted.
    Measuring = 1,
    /// Clients end; what they still commit is counted.
    Stopping = 2,
}

/// One look at a run that goes on.
#[derive(Clone, Copy, Debug)]
pub struct Glance {
    /// Seconds since measuring began; negative while warming up.
    pub at_seconds: f64,
    /// The part of the run.
    pub phase: Phase,
    /// Commits a second since the last look.
    pub throughput_tps: f64,
}

/// The caller's calls while a run goes on.
pub trait Watcher {
    /// Measuring begins now: remember the counters that the result is to be relative to.
    fn measuring(&mut self) {}

    /// Called about ten times a second.
    fn look(&mut self, _at_seconds: f64) {}

    /// Is there nothing more to measure, although the time is not over? Asked about ten times a second.
    fn is_enough(&self) -> bool {
        false
    }

    /// Called once a second.
    fn second(&mut self, _glance: Glance) {}

    /// Clients have ended. Returns when all that was acknowledged is on disk; the clock stops then.
    ///
    /// # Errors
    /// When it cannot get there.
    fn settle(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

/// Throughput of one second.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sample {
    /// The end of that second, in seconds since measuring began; negative while warming up.
    pub at_seconds: f64,
    /// Commits a second.
    pub throughput_tps: f64,
}

/// The results of a kind of transactions in the measured time.
#[derive(Clone, Debug)]
pub struct KindMeasured {
    /// Its name.
    pub name: &'static str,
    /// Commits.
    pub commits: u64,
    /// Latencies of those that were timed.
    pub latencies: Latencies,
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct Measured {
    /// From the end of the warm-up until everything counted was on disk.
    pub seconds: f64,
    /// By kind of transaction.
    pub kinds: Vec<KindMeasured>,
    /// Rolled back as the workload wants it.
    pub rolled_back: u64,
    /// Given up after retries.
    pub gave_up: u64,
    /// Second by second, the warm-up included.
    pub samples: Vec<Sample>,
}

impl Measured {
    /// Commits after the warm-up.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.commits).sum()
    }

    /// Commits after the warm-up, a second.
    #[must_use]
    pub fn throughput_tps(&self) -> f64 {
        self.commits() as f64 / self.seconds
    }

    /// The latencies of all kinds together.
    #[must_use]
    pub fn latencies(&self) -> Latencies {
        let mut all = Latencies::default();
        for kind in &self.kinds {
            all.merge(&kind.latencies);
        }
        all
    }
}

/// Why there is no result.
#[derive(Debug)]
pub enum DriveError {
    /// A transaction failed with something that is neither a conflict nor wanted.
    Transaction {
        /// The kind of transaction.
        kind: &'static str,
        /// The transaction's error.
        source: Failure,
    },
    /// The clients ended, but not everything reached the disk.
    Settle(Failure),
    /// Nothing was committed in the measured time.
    NoCommits {
        /// Number of transactions that were given up.
        gave_up: u64,
    },
}

impl fmt::Display for DriveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transaction { kind, source } => write!(f, "a transaction of kind {kind} failed: {source}"),
            Self::Settle(source) => write!(f, "the run ended, but its log did not reach the disk: {source}"),
            Self::NoCommits { gave_up } => write!(
                f,
                "nothing was committed in the measured time ({gave_up} transactions were given up); run longer \
                 (--seconds) or with fewer transactions in flight (--in-flight)"
            ),
        }
    }
}

impl std::error::Error for DriveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Transaction { source, .. } | Self::Settle(source) => Some(source.as_ref()),
            Self::NoCommits { .. } => None,
        }
    }
}

/// The state that all threads of a run share.
struct Control {
    phase: CachePadded<AtomicU32>,
    /// Threads whose clients stand ready.
    ready: AtomicU32,
    failure: Mutex<Option<DriveError>>,
    caller: std::thread::Thread,
}

impl Control {
    #[inline]
    fn phase(&self) -> u32 {
        self.phase.load(Ordering::Relaxed)
    }

    fn enter(&self, phase: Phase) {
        self.phase.store(phase as u32, Ordering::Release);
    }

    fn fail(&self, error: DriveError) {
        let mut failure = self.failure.lock();
        // The first failure is the one that explains the others.
        failure.get_or_insert(error);
        drop(failure);
        self.enter(Phase::Stopping);
        self.caller.unpark();
    }
}

/// Number of commits of one thread so far, written by it alone.
type Progress = CachePadded<AtomicU64>;

/// The recorder of one thread.
struct Recorder<'a> {
    control: &'a Control,
    progress: &'a Progress,
    kinds: &'a [&'static str],
    time_one_in: u32,
    until_timed: Cell<u32>,
    commits: [Cell<u64>; KINDS_MAX],
    rolled_back: Cell<u64>,
    gave_up: Cell<u64>,
    latencies: RefCell<Vec<Latencies>>,
}

impl Recorder<'_> {
    /// The time, if the transaction that begins now is to be timed.
    #[inline]
    fn begin(&self) -> Option<Moment> {
        let left = self.until_timed.get();
        if left > 1 {
            self.until_timed.set(left - 1);
            return None;
        }
        self.until_timed.set(self.time_one_in);
        Some(time::now())
    }

    #[inline]
    fn end(&self, ended: Ended, began: Option<Moment>) {
        let counts = self.control.phase() != Phase::WarmUp as u32;
        let one_more = |cell: &Cell<u64>| cell.set(cell.get() + u64::from(counts));
        match ended.end {
            End::Committed => {
                self.progress.store(self.progress.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                one_more(&self.commits[ended.kind]);
                if let (true, Some(began)) = (counts, began) {
                    self.latencies.borrow_mut()[ended.kind].record(began.elapsed_ns());
                }
            }
            End::RolledBack => one_more(&self.rolled_back),
            End::GaveUp => one_more(&self.gave_up),
            End::Failed(source) => {
                self.control.fail(DriveError::Transaction { kind: self.kinds[ended.kind], source });
            }
        }
    }
}

/// A client gives way after so many transactions even if none of them had to wait. (Giving way costs 20 ns; where
/// commits wait for the log, clients take turns anyway.)
const TURN: u32 = 8;

async fn client_loop<C: Client>(mut client: C, recorder: &Recorder<'_>) {
    loop {
        for _ in 0..TURN {
            if recorder.control.phase() == Phase::Stopping as u32 {
                return;
            }
            let began = recorder.begin();
            let ended = client.transaction().await;
            recorder.end(ended, began);
        }
        yield_now().await;
    }
}

/// The results of one thread.
struct ThreadMeasured {
    commits: [u64; KINDS_MAX],
    rolled_back: u64,
    gave_up: u64,
    latencies: Vec<Latencies>,
}

fn run_thread<W: Workload>(
    workload: &W,
    load: &Load,
    thread: usize,
    control: &Control,
    progress: &Progress,
) -> ThreadMeasured {
    let kinds = workload.kinds();
    let recorder = Recorder {
        control,
        progress,
        kinds,
        time_one_in: load.time_one_in,
        // Threads do not time in step.
        until_timed: Cell::new(1 + thread as u32 % load.time_one_in),
        commits: Default::default(),
        rolled_back: Cell::new(0),
        gave_up: Cell::new(0),
        latencies: RefCell::new(vec![Latencies::default(); kinds.len()]),
    };
    let clients = (0..load.in_flight)
        .map(|index| {
            let place = Place {
                thread,
                client: thread * load.in_flight + index,
                clients: load.threads * load.in_flight,
            };
            client_loop(workload.client(place), &recorder)
        })
        .collect();
    control.ready.fetch_add(1, Ordering::AcqRel);
    control.caller.unpark();
    run_tasks(clients);
    ThreadMeasured {
        commits: recorder.commits.map(Cell::into_inner),
        rolled_back: recorder.rolled_back.get(),
        gave_up: recorder.gave_up.get(),
        latencies: recorder.latencies.into_inner(),
    }
}

/// Runs `workload` under `load`.
///
/// # Errors
/// The first failure of a transaction that is no conflict, a log that does not reach the disk, or no commit at all.
///
/// # Panics
/// When the load has no thread or no transaction in flight, or when a transaction panics.
pub fn drive<W: Workload>(
    workload: &W,
    load: &Load,
    watcher: &mut dyn Watcher,
) -> Result<Measured, DriveError> {
    assert!(load.threads > 0 && load.in_flight > 0 && load.time_one_in > 0, "an empty load measures nothing");
    let kinds = workload.kinds();
    assert!(kinds.len() <= KINDS_MAX, "a workload has at most {KINDS_MAX} kinds of transactions");
    let control = Control {
        phase: CachePadded(AtomicU32::new(Phase::WarmUp as u32)),
        ready: AtomicU32::new(0),
        failure: Mutex::new(None),
        caller: std::thread::current(),
    };
    let progress: Vec<Progress> = (0..load.threads).map(|_| Progress::default()).collect();
    let (control, progress) = (&control, &progress);
    let (threads, measuring_began, samples) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..load.threads)
            .map(|thread| {
                std::thread::Builder::new()
                    .name(format!("client-{thread}"))
                    .spawn_scoped(scope, move || {
                        // A panic here must not leave the caller waiting for the end of the run.
                        let stop = StopOnPanic(control);
                        let measured = run_thread(workload, load, thread, control, &progress[thread]);
                        drop(stop);
                        measured
                    })
                    .expect("the system has room for one more thread")
            })
            .collect();
        let (measuring_began, samples) = report(load, control, progress, watcher);
        let threads: Vec<ThreadMeasured> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        (threads, measuring_began, samples)
    });
    if let Some(failure) = control.failure.lock().take() {
        return Err(failure);
    }
    watcher.settle().map_err(DriveError::Settle)?;
    let seconds = (time::now() - measuring_began).as_secs_f64();
    let mut measured = Measured {
        seconds,
        kinds: kinds
            .iter()
            .map(|name| KindMeasured { name, commits: 0, latencies: Latencies::default() })
            .collect(),
        rolled_back: 0,
        gave_up: 0,
        samples,
    };
    for thread in &threads {
        for (kind, (commits, latencies)) in thread.commits.iter().zip(&thread.latencies).enumerate() {
            measured.kinds[kind].commits += commits;
            measured.kinds[kind].latencies.merge(latencies);
        }
        measured.rolled_back += thread.rolled_back;
        measured.gave_up += thread.gave_up;
    }
    if measured.commits() == 0 {
        return Err(DriveError::NoCommits { gave_up: measured.gave_up });
    }
    Ok(measured)
}

struct StopOnPanic<'a>(&'a Control);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.enter(Phase::Stopping);
            self.0.caller.unpark();
        }
    }
}

/// Takes the run through its phases and looks at it meanwhile. Returns when measuring began, and the samples.
fn report(
    load: &Load,
    control: &Control,
    progress: &[Progress],
    watcher: &mut dyn Watcher,
) -> (Moment, Vec<Sample>) {
    const LOOK: Duration = Duration::from_millis(100);
    const SECOND: Duration = Duration::from_secs(1);
    // The warm-up begins when all threads are there (or one has failed already).
    while control.ready.load(Ordering::Acquire) < load.threads as u32
        && control.phase() != Phase::Stopping as u32
    {
        std::thread::park_timeout(LOOK);
    }
    let commits = || progress.iter().map(|thread| thread.load(Ordering::Relaxed)).sum::<u64>();
    let began = time::now();
    let measuring_begins = began + load.warm_up;
    // Moves on if measuring begins late, on a busy machine.
    let mut stopping_begins = measuring_begins + load.measured;
    // Samples end at whole seconds of the measured time, so the first one of the warm-up may be shorter.
    let first = load.warm_up.as_secs_f64().fract();
    let mut next_sample = began + if first > 0.0 { Duration::from_secs_f64(first) } else { SECOND };
    let mut last = (began, 0);
    let mut samples = Vec::new();
    let mut measuring_began = None;
    loop {
        let now = time::now();
        let stopped = control.phase() == Phase::Stopping as u32;
        if now >= next_sample || stopped || now >= stopping_begins {
            let count = commits();
            let elapsed = (now - last.0).as_secs_f64();
            if elapsed > 0.0 {
                let at_seconds = now.seconds_after(measuring_begins);
                let throughput_tps = (count - last.1) as f64 / elapsed;
                let phase = if measuring_began.is_some() { Phase::Measuring } else { Phase::WarmUp };
                samples.push(Sample { at_seconds, throughput_tps });
                watcher.second(Glance { at_seconds, phase, throughput_tps });
            }
            last = (now, count);
            while next_sample <= now {
                next_sample += SECOND;
            }
        }
        if stopped {
            break;
        }
        if measuring_began.is_none() && now >= measuring_begins {
            watcher.measuring();
            let begins = time::now();
            measuring_began = Some(begins);
            stopping_begins = begins + load.measured;
            // Not a plain store: a client that has failed meanwhile must not be brought back to life.
            let _ = control.phase.compare_exchange(
                Phase::WarmUp as u32,
                Phase::Measuring as u32,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
        }
        if measuring_began.is_some() && (now >= stopping_begins || watcher.is_enough()) {
            control.enter(Phase::Stopping);
            break;
        }
        watcher.look(now.seconds_after(measuring_begins));
        let phase_change = if measuring_began.is_some() { stopping_begins } else { measuring_begins };
        let wake = phase_change.min(next_sample).min(now + LOOK);
        std::thread::park_timeout(time::now().until(wake));
    }
    (measuring_began.unwrap_or(began), samples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::task::{Poll, Waker};

    /// Counts its transactions; some roll back, some give up, one may fail.
    struct Counting {
        executed: AtomicU64,
        fail_at: u64,
        panic_at: u64,
    }

    impl Counting {
        fn new() -> Self {
            Self { executed: AtomicU64::new(0), fail_at: u64::MAX, panic_at: u64::MAX }
        }
    }

    struct CountingClient<'a>(&'a Counting);

    impl Workload for Counting {
        type Client<'a> = CountingClient<'a>;

        fn kinds(&self) -> &[&'static str] {
            &["even", "odd"]
        }

        fn client(&self, place: Place) -> CountingClient<'_> {
            assert!(place.client < place.clients && place.thread < 2);
            CountingClient(self)
        }
    }

    impl Client for CountingClient<'_> {
        async fn transaction(&mut self) -> Ended {
            let number = self.0.executed.fetch_add(1, Ordering::Relaxed);
            assert!(number != self.0.panic_at, "as the test wants it");
            let end = match number {
                n if n >= self.0.fail_at => End::Failed("the disk is on fire".into()),
                n if n % 100 == 3 => End::RolledBack,
                n if n % 100 == 5 => End::GaveUp,
                _ => End::Committed,
            };
            Ended { kind: (number % 2) as usize, end }
        }
    }

    fn load() -> Load {
        Load {
            threads: 2,
            in_flight: 3,
            warm_up: Duration::from_millis(20),
            measured: Duration::from_millis(200),
            time_one_in: 2,
        }
    }

    #[derive(Default)]
    struct Noting {
        calls: Vec<&'static str>,
        executed_at_measuring: u64,
    }

    struct NotingWatcher<'a>(Noting, &'a Counting);

    impl Watcher for NotingWatcher<'_> {
        fn measuring(&mut self) {
            self.0.calls.push("measuring");
            self.0.executed_at_measuring = self.1.executed.load(Ordering::Relaxed);
        }

        fn settle(&mut self) -> Result<(), Failure> {
            self.0.calls.push("settle");
            Ok(())
        }
    }

    #[test]
    fn counts_what_ended_after_the_warm_up() {
        let workload = Counting::new();
        let mut watcher = NotingWatcher(Noting::default(), &workload);
        let measured = drive(&workload, &load(), &mut watcher).expect("nothing fails");
        assert_eq!(watcher.0.calls, ["measuring", "settle"]);
        let all = workload.executed.load(Ordering::Relaxed);
        let counted = measured.commits() + measured.rolled_back + measured.gave_up;
        assert!(counted <= all - watcher.0.executed_at_measuring + 6, "the warm-up was counted");
        assert!(counted > 0 && measured.rolled_back > 0 && measured.gave_up > 0);
        assert!(measured.seconds >= 0.2, "{}", measured.seconds);
        let timed = measured.latencies().count();
        assert!(timed > 0 && timed <= counted / 2 + 8, "{timed} of {counted}");
        assert!(measured.kinds.iter().all(|kind| kind.commits > 0));
    }

    #[test]
    fn samples_add_up_to_what_was_committed() {
        let workload = Counting::new();
        let mut load = load();
        load.warm_up = Duration::from_millis(100);
        load.measured = Duration::from_millis(1100);
        let mut watcher = NotingWatcher(Noting::default(), &workload);
        let measured = drive(&workload, &load, &mut watcher).expect("nothing fails");
        assert!(measured.samples.len() >= 3, "{:?}", measured.samples);
        assert!(measured.samples[0].at_seconds.abs() < 0.5, "{:?}", measured.samples);
        let mut at = -0.1;
        let mut sum = 0.0;
        for sample in &measured.samples {
            sum += sample.throughput_tps * (sample.at_seconds - at);
            at = sample.at_seconds;
        }
        let committed = workload.executed.load(Ordering::Relaxed) as f64 * 0.98;
        assert!((sum / committed - 1.0).abs() < 0.05, "{sum} is not about {committed}");
    }

    #[test]
    fn a_failure_stops_the_run_at_once() {
        let workload = Counting { fail_at: 1000, ..Counting::new() };
        let mut load = load();
        load.measured = Duration::from_secs(3600);
        let mut watcher = NotingWatcher(Noting::default(), &workload);
        let error = drive(&workload, &load, &mut watcher).expect_err("it fails");
        assert!(error.to_string().contains("on fire"), "{error}");
        assert!(!watcher.0.calls.contains(&"settle"));
    }

    #[test]
    fn a_panic_stops_the_run_at_once() {
        let outcome = std::panic::catch_unwind(|| {
            let workload = Counting { panic_at: 1000, ..Counting::new() };
            let mut load = load();
            load.measured = Duration::from_secs(3600);
            let mut watcher = NotingWatcher(Noting::default(), &workload);
            drive(&workload, &load, &mut watcher)
        });
        assert!(outcome.is_err());
    }

    #[test]
    fn no_commits_are_an_error() {
        struct Nothing;
        struct NothingClient;
        impl Workload for Nothing {
            type Client<'a> = NothingClient;
            fn kinds(&self) -> &[&'static str] {
                &["nothing"]
            }
            fn client(&self, _: Place) -> NothingClient {
                NothingClient
            }
        }
        impl Client for NothingClient {
            async fn transaction(&mut self) -> Ended {
                Ended { kind: 0, end: End::GaveUp }
            }
        }
        struct Watching;
        impl Watcher for Watching {}
        let mut load = load();
        load.measured = Duration::from_millis(5);
        let error = drive(&Nothing, &load, &mut Watching).expect_err("nothing was committed");
        assert!(matches!(error, DriveError::NoCommits { .. }), "{error}");
    }

    /// Transactions that were in flight when the run stopped are waited for, and counted.
    #[test]
    fn transactions_in_flight_at_the_end_are_waited_for() {
        #[derive(Default)]
        struct Gate(Mutex<(bool, Vec<Waker>)>);
        struct Waiting(Arc<Gate>);
        struct WaitingClient<'a>(&'a Waiting);
        impl Workload for Waiting {
            type Client<'a> = WaitingClient<'a>;
            fn kinds(&self) -> &[&'static str] {
                &["waiting"]
            }
            fn client(&self, _: Place) -> WaitingClient<'_> {
                WaitingClient(self)
            }
        }
        impl Client for WaitingClient<'_> {
            async fn transaction(&mut self) -> Ended {
                std::future::poll_fn(|context| {
                    let mut gate = self.0.0.0.lock();
                    if gate.0 {
                        return Poll::Ready(());
                    }
                    gate.1.push(context.waker().clone());
                    Poll::Pending
                })
                .await;
                Ended { kind: 0, end: End::Committed }
            }
        }
        /// Opens the gate when the measured time is over.
        struct Opening(Arc<Gate>);
        impl Watcher for Opening {
            fn second(&mut self, glance: Glance) {
                if glance.at_seconds >= 0.03 {
                    let gate = Arc::clone(&self.0);
                    std::thread::spawn(move || {
                        std::thread::sleep(Duration::from_millis(20));
                        let wakers = {
                            let mut state = gate.0.lock();
                            state.0 = true;
                            std::mem::take(&mut state.1)
                        };
                        wakers.into_iter().for_each(Waker::wake);
                    });
                }
            }
        }
        let gate = Arc::new(Gate::default());
        let mut load = load();
        load.warm_up = Duration::ZERO;
        load.measured = Duration::from_millis(30);
        let workload = Waiting(Arc::clone(&gate));
        let measured = drive(&workload, &load, &mut Opening(gate)).expect("all commit in the end");
        assert_eq!(measured.commits(), 6);
        assert!(measured.seconds >= 0.045, "{}", measured.seconds);
    }
}
