//! The redo log: what makes a commit last.
//!
//! ```text
//!  workers ── try_reserve ── fill ── complete ──► ring ── flusher: write, sync ──► segments
//!                                                           │
//!                           wait_durable ◄── wake ──────────┘
//! ```
//!
//! Rules:
//! * A reservation is granted only if the ring *and* preallocated files have the space: a commit that was published
//!   always finds its place on disk. A full disk refuses the next reservation instead, until there is space again.
//! * The flusher writes only the prefix that every appender has filled ([`ring`]).
//! * The first sync or write that fails is final: no later success can tell what became of the bytes before it
//!   (`SyncFailureIsFinal`). All who wait get the error, reservations are refused.
//! * A record checks out only at its own position, in its own generation (`ChecksumBindsPosition`, [`segment`]).
//! * A reservation that is dropped leaves a void record.
//!
//! # Durability modes
//! *Sync* and *group* acknowledge when [`Log::durable`] has passed the commit. While one sync runs, those who commit
//! gather in the ring, and the next sync covers them all: groups form by themselves, and a lone committer waits for
//! nobody. *Sync* leaves it at that. *Group* may wait up to 1 ms for company, and does so only when company is likely:
//! if the last sync acknowledged several at once, it waits until two thirds of those who waited at the last
//! acknowledgement wait again (with everybody waiting there is nobody to wait for), but no longer than twice as
//! long as the last sync took. *Async* acknowledges at once and syncs every 10 ms, or when a quarter of the ring is
//! filled; if a sync hangs for 40 ms, acknowledging waits for it, so that never more than 50 ms of acknowledged work
//! can be lost.
//!
//! Lock order: the flusher's state, then a list of waiters. Appenders take neither.

pub(crate) mod error;
mod flush;
pub(crate) mod reader;
pub(crate) mod record;
mod ring;
pub(crate) mod segment;
mod wait;

#[cfg(test)]
mod tests;

use std::fmt;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use thermocline_base::checksum::Seed;
use thermocline_base::clock::Clock;
use thermocline_base::ids::{Lsn, RowId, TableId, Timestamp};
use thermocline_base::io::{Io, IoError};
use thermocline_base::sync::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, CachePadded, Mutex, Ordering};
use thermocline_pool::store::StoreEnd;

pub(crate) use error::LogError;
pub(crate) use reader::{LogEnd, LogReader};
use record::{Header, Kind, Op, PartGroup};
use ring::{NoPlace, Place, Ring};
use wait::Until;
pub(crate) use wait::{WaitDurable, WaitSpace};

/// How long the flusher sleeps when nobody wakes it.
const TICK: Duration = Duration::from_millis(10);
/// How long *group* may wait for company.
const COMPANY_MAX_NS: u64 = 1_000_000;
/// How long a sync may run before *async* stops acknowledging.
const HANGING_NS: u64 = 40_000_000;

/// When a commit is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum FlushMode {
    /// When it is durable; forced at once.
    Sync,
    /// When it is durable; may wait a moment for company.
    #[default]
    Group,
    /// Before it is durable, by at most 50 ms.
    Async,
}

/// How a log is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogOptions {
    /// When a commit is acknowledged.
    pub(crate) mode: FlushMode,
    /// Size of the ring; a power of two.
    pub(crate) ring_bytes: u64,
    /// Bytes of the log in one segment; a multiple of 8.
    pub(crate) segment_bytes: u64,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { mode: FlushMode::default(), ring_bytes: 32 << 20, segment_bytes: (64 << 20) - 4096 }
    }
}

/// What the log has done since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LogStatistics {
    /// Bytes written.
    pub(crate) bytes: u64,
    /// Successful syncs of segments.
    pub(crate) syncs: u64,
    /// Segments that were made, and how many of them from old ones.
    pub(crate) segments: u64,
    /// How many of them from files of truncated ones.
    pub(crate) recycled: u64,
}

/// The log of an open database. Dropping it stops the flusher; what was not flushed by then is lost as in a crash.
pub(crate) struct Log {
    core: Arc<Core>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What workers and the flusher share.
pub(super) struct Core {
    ring: Ring,
    options: LogOptions,
    seed: Seed,
    clock: Arc<dyn Clock>,
    thread: OnceLock<Thread>,
    failure: OnceLock<LogError>,
    /// Has `failure` been set, or the log been closed? Read by every reservation, so among what hardly ever changes.
    down: AtomicBool,
    /// Is there no space for another segment?
    full: AtomicBool,
    stop: AtomicBool,
    full_error: Mutex<Option<IoError>>,
    /// Up to where a refused reservation would have needed files.
    wanted_end: AtomicU64,
    pulse: CachePadded<Pulse>,
    durable_waiters: CachePadded<wait::Waiters>,
    space_waiters: CachePadded<wait::Waiters>,
    flusher: CachePadded<Mutex<flush::Flusher>>,
}

/// What the flusher tells about itself.
struct Pulse {
    /// 0: the flusher runs; 1: it is about to sleep or sleeps.
    parked: AtomicU32,
    /// The flusher sleeps until so many wait; 0: it does not.
    company: AtomicUsize,
    /// When the flush began that is running; 0: none is.
    flush_since_ns: AtomicU64,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log")
            .field("durable", &self.ring.durable())
            .field("written", &self.ring.written())
            .field("head", &self.ring.head())
            .field("failure", &self.failure.get())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}

/// Who remembers the end of the log elsewhere.
pub(crate) trait LogOwner: fmt::Debug + Send + Sync {
    /// The log is durable up to here; nobody has been told yet. Must not wait.
    fn note_durable(&self, end: Lsn);

    /// Another segment was made. What was noted so far should be durable.
    fn note_segment(&self);
}

/// Why a reservation was refused.
#[derive(Debug)]
pub(crate) enum ReserveError<'a> {
    /// The flusher is behind: await this, then try again.
    Full(WaitSpace<'a>),
    /// The record is larger than any: write parts.
    TooLarge,
    /// There is no disk space, or the log has failed or been closed.
    Refused(LogError),
}

impl Log {
    /// Opens the log for appending where recovery ended: makes the first segment of a new generation there, and removes
    /// what nobody needs any more. Without a flusher so far. Where the disk is full there is no such segment yet, and
    /// reservations are refused.
    pub(crate) fn open(
        io: Arc<dyn Io>,
        dir: &Path,
        database: [u8; 16],
        end: &LogEnd,
        options: LogOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, LogError> {
        let flusher = flush::Flusher::open(io, dir.to_path_buf(), database, end, &options)?;
        let ring = Ring::new(options.ring_bytes, end.lsn.0);
        let core = Core {
            seed: segment::record_seed(&database, flusher.generation()),
            failure: OnceLock::new(),
            down: AtomicBool::new(false),
            full: AtomicBool::new(false),
            full_error: Mutex::new(None),
            wanted_end: AtomicU64::new(0),
            durable_waiters: CachePadded::default(),
            space_waiters: CachePadded::default(),
            pulse: CachePadded(Pulse {
                parked: AtomicU32::new(0),
                company: AtomicUsize::new(0),
                flush_since_ns: AtomicU64::new(0),
            }),
            thread: OnceLock::new(),
            stop: AtomicBool::new(false),
            flusher: CachePadded(Mutex::new(flusher)),
            ring,
            options,
            clock,
        };
        core.flusher.lock().ensure_space(&core).map_err(|error| match error {
            // Nothing was acknowledged yet.
            LogError::Failed(error) => LogError::Io(error),
            error => error,
        })?;
        Ok(Self { core: Arc::new(core), thread: Mutex::new(None) })
    }

    /// Who hears of the log's end from now on.
    pub(crate) fn set_owner(&self, owner: Arc<dyn LogOwner>) {
        self.core.flusher.lock().owner = Some(owner);
    }

    /// Marks in the log that the cold store is durable up to an end. What is appended later may depend on it.
    pub(crate) fn mark_store(&self, end: StoreEnd) {
        // Without space there is no mark, and one thing less is noticed.
        if let Ok(mut reservation) = self.core.try_reserve(Kind::Mark, record::STORE_MARK_BYTES as u64) {
            reservation.put(&record::store_mark(end));
            reservation.complete();
        }
    }

    /// Starts the thread that flushes.
    pub(crate) fn start_flusher(&self) -> std::io::Result<()> {
        let mut thread = self.thread.lock();
        assert!(thread.is_none(), "a log has one flusher");
        let core = Arc::clone(&self.core);
        let handle =
            std::thread::Builder::new().name("thermocline-log".to_owned()).spawn(move || core.run())?;
        // Before anybody can wait for it to be woken; a kick in between is made up for by the flusher's tick.
        let _ = self.core.thread.set(handle.thread().clone());
        *thread = Some(handle);
        Ok(())
    }

    /// Stops the thread, after one more flush.
    fn stop_flusher(&self) {
        let handle = self.thread.lock().take();
        if let Some(handle) = handle {
            self.core.stop.store(true, Ordering::SeqCst);
            handle.thread().unpark();
            // A panic of the flusher has been reported, and stands in the log's state.
            let _ = handle.join();
        }
    }

    /// Takes space for a record with up to `payload` bytes. Never waits.
    #[inline]
    pub(crate) fn try_reserve(&self, kind: Kind, payload: u64) -> Result<Reservation<'_>, ReserveError<'_>> {
        self.core.try_reserve(kind, payload)
    }

    /// Everything before this is on the device.
    #[inline]
    pub(crate) fn durable(&self) -> Lsn {
        Lsn(self.core.ring.durable())
    }

    /// The end of all reservations so far: whoever is acknowledged only when the log is durable up to here tells
    /// nobody what might not last.
    pub(crate) fn tail(&self) -> Lsn {
        Lsn(self.core.ring.head())
    }

    /// Every reservation before this is completed; those that are not start here or later. The replay position for an
    /// image whose timestamp is drawn after this call.
    pub(crate) fn filled(&self) -> Lsn {
        Lsn(self.core.ring.filled())
    }

    /// Waits until the log is durable up to `lsn`, usually the end of a record. Ready at once if it is.
    #[inline]
    pub(crate) fn wait_durable(&self, lsn: Lsn) -> WaitDurable<'_> {
        WaitDurable { core: &self.core, at: lsn.0, number: None }
    }

    /// Waits until a commit that ends at `lsn` may be acknowledged, as the mode says.
    #[inline]
    pub(crate) fn wait_acknowledged(&self, lsn: Lsn) -> WaitDurable<'_> {
        let core = &*self.core;
        let at = match core.options.mode {
            FlushMode::Sync | FlushMode::Group => lsn.0,
            FlushMode::Async if core.failed() || core.hangs() => lsn.0,
            FlushMode::Async => 0,
        };
        WaitDurable { core, at, number: None }
    }

    /// Writes and syncs what is filled, on the calling thread; makes space ahead. For tests without a flusher, for
    /// closing and for checkpoints that want the log out of their way.
    pub(crate) fn flush_once(&self) -> Result<Lsn, LogError> {
        self.core.flush_once()
    }

    /// Nothing before `lsn` is needed any more: the checkpoint that says so is durable. Segments wholly before it are
    /// kept for use or removed.
    pub(crate) fn truncate_before(&self, lsn: Lsn) -> Result<(), LogError> {
        self.core.flusher.lock().truncate_before(lsn)
    }

    /// Takes the log down for good: a file that its next records would build on is in doubt.
    pub(crate) fn fail(&self, error: &IoError) {
        self.core.fail(error);
    }

    /// The files that hold the log from `from` to `to`, which is durable, and how many bytes of each that takes.
    pub(crate) fn segments(&self, from: Lsn, to: Lsn) -> Vec<(PathBuf, u64)> {
        self.core.flusher.lock().segments(from, to)
    }

    /// Has the log failed for good? Says why.
    pub(crate) fn failure(&self) -> Option<LogError> {
        self.core.failed().then(|| self.core.failure())
    }

    /// Memory of its ring and of the buffers for its file.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.core.ring.capacity() + flush::BUFFER_BYTES
    }

    /// What it has done.
    pub(crate) fn statistics(&self) -> LogStatistics {
        self.core.flusher.lock().statistics()
    }

    /// Flushes everything, adds the mark that proves it to have been durable, and takes no more.
    pub(crate) fn close(&self) -> Result<(), LogError> {
        if self.core.down.load(Ordering::SeqCst) {
            return self.core.failure.get().cloned().map_or(Ok(()), Err);
        }
        self.stop_flusher();
        self.core.flush_once()?;
        // The mark is a courtesy to recovery; a full disk or ring does without it.
        if let Ok(reservation) = self.core.try_reserve(Kind::Mark, 0) {
            reservation.complete();
            self.core.flush_once()?;
        }
        self.core.down.store(true, Ordering::SeqCst);
        self.core.wake_all();
        Ok(())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.stop_flusher();
    }
}

impl Core {
    #[inline]
    fn try_reserve(&self, kind: Kind, payload: u64) -> Result<Reservation<'_>, ReserveError<'_>> {
        if self.failed() {
            return Err(ReserveError::Refused(self.failure()));
        }
        let span = record::span_of(payload);
        if span > self.ring.capacity() / 4 || span > u64::from(u32::MAX) {
            return Err(ReserveError::TooLarge);
        }
        match self.ring.reserve(span) {
            Ok(place) => {
                if place.start + span - self.ring.written() > self.ring.capacity() / 4 {
                    self.kick();
                }
                Ok(Reservation { core: self, place, kind, used: 0, done: false, not_send: PhantomData })
            }
            Err(refusal) => Err(self.refuse(refusal, span)),
        }
    }

    #[cold]
    fn refuse(&self, refusal: NoPlace, span: u64) -> ReserveError<'_> {
        self.wanted_end.fetch_max(self.ring.head() + span, Ordering::SeqCst);
        // A ring that is full because its bytes find no place on disk is refused, too: waiting would not end.
        if self.full.load(Ordering::SeqCst)
            && let Some(error) = self.full_error.lock().clone()
        {
            self.kick();
            return ReserveError::Refused(LogError::DiskFull(error));
        }
        let until = match refusal {
            NoPlace::Ring(written) => Until::Written(written),
            NoPlace::Space => Until::SpaceBeyond(self.ring.space_end()),
        };
        self.kick();
        ReserveError::Full(WaitSpace { core: self, until, number: None })
    }

    /// Is the log down, by failure or by closing?
    #[inline]
    fn failed(&self) -> bool {
        self.down.load(Ordering::SeqCst)
    }

    fn failure(&self) -> LogError {
        self.failure.get().cloned().unwrap_or(LogError::Closed)
    }

    fn is_full(&self) -> bool {
        self.full.load(Ordering::SeqCst)
    }

    /// Wakes the flusher if it sleeps.
    #[inline]
    fn kick(&self) {
        if self.pulse.parked.load(Ordering::SeqCst) != 0
            && self.pulse.parked.swap(0, Ordering::SeqCst) != 0
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Wakes the flusher if it sleeps, or if it waits for the company of as many as wait now.
    #[inline]
    fn kick_for(&self, waiting: usize) {
        let company = self.pulse.company.load(Ordering::SeqCst);
        if company != 0
            && waiting >= company
            && self.pulse.company.swap(0, Ordering::SeqCst) != 0
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
        self.kick();
    }

    /// Has a flush been running for so long that *async* must not acknowledge any more?
    fn hangs(&self) -> bool {
        let since = self.pulse.flush_since_ns.load(Ordering::Acquire);
        since != 0 && self.clock.now_ns().saturating_sub(since) > HANGING_NS
    }

    fn wake_all(&self) {
        self.durable_waiters.wake(u64::MAX);
        self.space_waiters.wake(u64::MAX);
    }
}

/// Space in the log for one record. Belongs to the thread that took it, and is completed or dropped in the same
/// synchronous stretch; dropped, it leaves a void record.
#[derive(Debug)]
#[must_use = "dropping it leaves a void record"]
pub(crate) struct Reservation<'a> {
    core: &'a Core,
    place: Place,
    kind: Kind,
    /// Payload bytes so far.
    used: u64,
    done: bool,
    not_send: PhantomData<*mut ()>,
}

impl Reservation<'_> {
    /// Where the record starts.
    pub(crate) fn lsn(&self) -> Lsn {
        Lsn(self.place.start)
    }

    /// Where it ends: durable up to here means that the record is.
    pub(crate) fn end(&self) -> Lsn {
        Lsn(self.place.start + self.place.span)
    }

    /// Adds bytes to the payload.
    ///
    /// # Panics
    /// When they are more than was reserved.
    #[inline]
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.core.ring.fill(&self.place, record::HEADER_BYTES + self.used, bytes);
        self.used += bytes.len() as u64;
    }

    /// Starts the payload of a commit.
    pub(crate) fn put_commit(&mut self, timestamp: Timestamp, group: Option<PartGroup>) {
        self.put(&record::commit_prefix(timestamp, group));
    }

    /// Starts the payload of a part; the first one of a group names itself ([`Reservation::lsn`]).
    pub(crate) fn put_part(&mut self, first: Lsn, number: u32) {
        self.put(&record::part_prefix(first, number));
    }

    /// Adds a write.
    #[inline]
    pub(crate) fn put_write(&mut self, op: Op, table: TableId, row: RowId, bytes: &[u8]) {
        let len = u32::try_from(bytes.len()).expect("a row is smaller than 4 GiB");
        self.put(&record::write_prefix(op, table, row, len));
        self.put(bytes);
    }

    /// The record is whole. Returns its end.
    pub(crate) fn complete(mut self) -> Lsn {
        self.seal(self.kind);
        self.end()
    }

    fn seal(&mut self, kind: Kind) {
        self.done = true;
        let (core, place) = (self.core, &self.place);
        let header = Header {
            kind,
            span: u32::try_from(place.span).expect("checked when reserved"),
            payload: u32::try_from(self.used).expect("less than the span"),
            durable_gap: Header::gap(Lsn(place.start), Lsn(place.durable)),
        };
        let pieces = core.ring.filled_with(place, record::HEADER_BYTES, self.used);
        let bytes = header.seal(core.seed, Lsn(place.start), pieces);
        core.ring.fill(place, 0, &bytes);
        core.ring.complete(place);
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.used = 0;
            self.seal(Kind::Void);
        }
    }
}

/// The directory of the log inside a database's.
pub(crate) fn dir_of(database: &Path) -> PathBuf {
    database.join("log")
}
