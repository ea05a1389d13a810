//! Running futures without a runtime: one to its end ([`block_on`]), or many in flight on one thread ([`run_tasks`]).
//!
//! Nothing here implies an async runtime. Under tokio or any other one its futures run as they are; an embedder that
//! has none, the benchmarks and the tests use these two functions. A worker that keeps many transactions in flight
//! goes on with another one while one waits for the log, for a lock or for a cold record.
//!
//! ```text
//!   waker of task i ── sets bit i ──► ready words ◄── takes whole words, polls their bits ── worker
//!        └── worker asleep? ──► unpark                            └── no bit: asleep, look again, park
//! ```
//!
//! Rules:
//! - A task is polled only after its waker was called (and once at the start).
//! - Fair: the worker takes a word of ready bits at once and polls each of its tasks once before it looks again, so a
//!   task that is always ready is polled once a round, like every other.
//! - No allocation, no lock and no system call for a poll. Slots, wakers and bits are made when the tasks start.
//!
//! # Why no wake-up is lost
//! The worker announces that it will sleep (`asleep`), *then* looks at the words once more, then parks; a waker sets
//! the bit, *then* looks at `asleep`. Both pairs are sequentially consistent, so at least one side sees the other: the
//! worker finds the bit, or the waker unparks the worker. `park` may return early (its token is shared by everything
//! on the thread), so the worker parks until a waker has taken `asleep` back. The opposite case, a token that other
//! code on this thread consumes, is harmless as well: no code that parks here trusts the token alone.
//!
//! # Sleeping where operations complete
//! Where operations under way need a thread to drive them (`io_uring`), the thread that started them does. A worker
//! with nothing to poll does not park but sleeps in its driver, which ends when something completes, and answers
//! that. So a wait for the device costs no other thread. Now and then a worker that always has something to poll
//! takes a turn there as well.
//!
//! Wakers of other threads must find it in either place. The sleeper sets `in_driver`, *then* looks whether it was
//! woken, then sleeps; a waker does what wakes (a bit and `asleep`, or `woken`), *then* looks at `in_driver`, and
//! interrupts the driver or unparks. Sequentially consistent again, so one of them sees the other. Whoever finds
//! `in_driver` takes it back, so one interruption is made and not one for each waker; that the first may be late does
//! no harm, since an interruption that misses its sleep ends the next one for nothing. The sleeper takes `in_driver`
//! back before it answers, so it does not interrupt itself, and looks again before it sleeps again.
//!
//! # Giving way
//! [`give_way`] is for moments, not for waits: a task that has asked the processor for a cache line lets the others run
//! until the line is there. It tells the worker through thread-local variables instead of its waker (no atomic
//! operation), which is right only if the worker polls the task itself, not through some combinator; so it compares the
//! wakers, and wakes properly if they differ. Without company on the thread it does nothing.
//!
//! Nested use works: each [`block_on`] and [`run_tasks`] has signals of its own, so an inner one never swallows what
//! was meant for the outer one (which does not run meanwhile: the thread is busy with the inner one).

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};

use crate::sync::{AtomicBool, AtomicU64, CachePadded, Ordering};

use lookout::{LastLooks, POLLS_A_LOOK};
pub use lookout::{Lookout, look_out};

/// Operations that make no progress, or are not answered, unless a thread drives them: an `io_uring`. A thread has at
/// most one, for good, and hands it in with [`attach`]; [`block_on`] and [`run_tasks`] then drive it.
pub(crate) trait Driver: Sync {
    /// Is any operation under way?
    fn is_busy(&self) -> bool;

    /// Starts what is queued and answers some of what has completed. Does not sleep.
    fn turn(&self);

    /// Starts what is queued, and sleeps until there is something to answer or [`Driver::interrupt`] was called since the
    /// last sleep ended. Answers nothing: that is what [`Driver::turn`] is for.
    fn sleep(&self);

    /// Ends the sleep of the thread that it is attached to, or its next one. From any thread.
    fn interrupt(&self);

    /// An executor begins (or the last one ends) on the thread that it is attached to: the thread promises to drive
    /// it, or stops doing so.
    fn attend(&self, attended: bool);

    /// A thread waits that does not drive it: one beside the thread that it is attached to, or one without executor.
    fn expect(&self);
}

/// A thread that can be parked.
enum Thread {
    Real(std::thread::Thread),
    #[cfg(feature = "model")]
    Modelled(shuttle::thread::Thread),
}

impl Thread {
    fn unpark(&self) {
        match self {
            Self::Real(thread) => thread.unpark(),
            #[cfg(feature = "model")]
            Self::Modelled(thread) => thread.unpark(),
        }
    }

    /// Parks the calling thread, which must be the one that this names.
    fn park(&self) {
        match self {
            Self::Real(_) => std::thread::park(),
            #[cfg(feature = "model")]
            Self::Modelled(_) => shuttle::thread::park(),
        }
    }
}

/// The thread that runs futures, as wakers see it, and where it sleeps.
struct Berth {
    thread: Thread,
    driver: OnceLock<&'static dyn Driver>,
    /// It sleeps, or is about to sleep, in its driver, and no waker has interrupted that yet.
    in_driver: AtomicBool,
}

impl fmt::Debug for Berth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Berth").field("in_driver", &self.in_driver).finish_non_exhaustive()
    }
}

impl Berth {
    fn new(thread: Thread) -> Arc<Self> {
        Arc::new(Self { thread, driver: OnceLock::new(), in_driver: AtomicBool::new(false) })
    }

    /// The calling thread's.
    fn current() -> Arc<Self> {
        #[cfg(feature = "model")]
        if crate::sync::model::active() {
            // Modelled threads share the thread-local variables of one operating-system thread.
            let berth = Self::new(Thread::Modelled(shuttle::thread::current()));
            if let Some(driver) = DRIVER.get() {
                berth.driver.get_or_init(|| driver);
            }
            return berth;
        }
        BERTH.with(Arc::clone)
    }

    /// Sleeps until a waker unparks it, something has completed, or for no reason; returns at once if `woken`. Only
    /// the thread itself calls this.
    fn park(&self, woken: impl Fn() -> bool) {
        let Some(driver) = self.driver.get().filter(|driver| driver.is_busy()) else {
            self.thread.park();
            return;
        };
        self.in_driver.store(true, Ordering::SeqCst);
        if !woken() {
            driver.sleep();
        }
        self.in_driver.store(false, Ordering::SeqCst);
        driver.turn();
    }

    /// Ends [`Berth::park`], or the next one. What the thread waits for must have been set before, sequentially
    /// consistently.
    fn unpark(&self) {
        if !self.in_driver.load(Ordering::SeqCst) {
            self.thread.unpark();
        } else if self.in_driver.swap(false, Ordering::SeqCst)
            && let Some(driver) = self.driver.get()
        {
            driver.interrupt();
        }
    }
}

thread_local! {
    static BERTH: Arc<Berth> = Berth::new(Thread::Real(std::thread::current()));
    /// The driver of the berth, at hand.
    static DRIVER: Cell<Option<&'static dyn Driver>> = const { Cell::new(None) };
    /// Number of executors that run on this thread, nested.
    static EXECUTORS: Cell<u32> = const { Cell::new(0) };
}

/// Makes `driver` the calling thread's, if it has none. Gives whether an executor runs on the thread, which will drive
/// it.
#[cfg_attr(
    any(not(target_os = "linux"), feature = "portable"),
    allow(dead_code, reason = "only `io_uring` needs somebody who drives it")
)]
pub(crate) fn attach(driver: &'static dyn Driver) -> bool {
    let executed = EXECUTORS.get() > 0;
    if DRIVER.get().is_none() {
        BERTH.with(|berth| {
            berth.driver.get_or_init(|| driver);
        });
        DRIVER.set(Some(driver));
        driver.attend(executed);
    }
    executed
}

/// Does an executor of the calling thread drive `driver`?
pub(crate) fn drives(driver: &'static dyn Driver) -> bool {
    EXECUTORS.get() > 0 && DRIVER.get().is_some_and(|own| std::ptr::addr_eq(own, driver))
}

/// While it lives an executor runs on the thread.
struct Executing;

impl Executing {
    fn begin() -> Self {
        let outer = EXECUTORS.replace(EXECUTORS.get() + 1);
        if outer == 0
            && let Some(driver) = DRIVER.get()
        {
            driver.attend(true);
        }
        Self
    }

    /// Takes a turn in the driver; an executor does so now and then while it has something to poll.
    fn turn() {
        if let Some(driver) = DRIVER.get()
            && driver.is_busy()
        {
            driver.turn();
        }
    }
}

impl Drop for Executing {
    fn drop(&mut self) {
        let outer = EXECUTORS.get() - 1;
        EXECUTORS.set(outer);
        if outer == 0 {
            lookout::end();
        }
        if outer == 0
            && let Some(driver) = DRIVER.get()
        {
            driver.attend(false);
        }
    }
}

/// The signal that [`block_on`] waits for.
#[derive(Debug)]
struct Signal {
    woken: AtomicBool,
    sleeper: Arc<Berth>,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Only the first wake since the last poll has news for the sleeper.
        if !self.woken.swap(true, Ordering::SeqCst) {
            self.sleeper.unpark();
        }
    }
}

/// A signal with its waker, made once a thread.
type Prepared = (Arc<Signal>, Waker);

thread_local! {
    /// Empty while a [`block_on`] of this thread uses it: a nested one then makes its own.
    static PREPARED: Cell<Option<Prepared>> = const { Cell::new(None) };
}

/// The worker that runs on this thread.
#[derive(Clone, Copy)]
struct Crew {
    /// Tasks that are in flight on the worker; 0: none runs.
    tasks: usize,
    /// Data of the waker that the task being polled was given.
    waker: *const (),
}

const ALONE: Crew = Crew { tasks: 0, waker: std::ptr::null() };

thread_local! {
    static CREW: Cell<Crew> = const { Cell::new(ALONE) };
    /// The task being polled gives way.
    static ASIDE: Cell<bool> = const { Cell::new(false) };
}

/// Puts another crew on the thread until it is dropped.
struct OnDuty(Crew);

impl OnDuty {
    fn begin(crew: Crew) -> Self {
        Self(CREW.replace(crew))
    }
}

impl Drop for OnDuty {
    fn drop(&mut self) {
        CREW.set(self.0);
    }
}

/// Are there other tasks in flight on the calling thread's worker?
#[inline]
pub fn has_company() -> bool {
    #[cfg(feature = "model")]
    if crate::sync::model::active() {
        return false;
    }
    CREW.get().tasks > 1
}

/// Lets the other tasks of the worker run for a moment, if there are any.
#[must_use]
pub const fn give_way() -> GiveWay {
    GiveWay { given: false }
}

/// The future of [`give_way`].
#[derive(Debug)]
pub struct GiveWay {
    given: bool,
}

impl Future for GiveWay {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.given || !has_company() {
            return Poll::Ready(());
        }
        self.given = true;
        if std::ptr::eq(CREW.get().waker, context.waker().data()) {
            ASIDE.set(true);
        } else {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

fn prepare() -> Prepared {
    let signal = Arc::new(Signal { woken: AtomicBool::new(false), sleeper: Berth::current() });
    let waker = Waker::from(Arc::clone(&signal));
    (signal, waker)
}

/// Runs `future` to its end on the calling thread, which sleeps whenever the future waits.
///
/// May be used inside of a future that another `block_on` or [`run_tasks`] runs; the tasks beside that future then
/// wait, so what the inner future waits for must not depend on them.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let _alone = OnDuty::begin(ALONE);
    let _executing = Executing::begin();
    // The threads of a modelled execution share the thread-local variables of one operating-system thread.
    #[cfg(feature = "model")]
    let cached = if crate::sync::model::active() { None } else { PREPARED.take() };
    #[cfg(not(feature = "model"))]
    let cached = PREPARED.take();
    let prepared = cached.unwrap_or_else(prepare);
    let (signal, waker) = &prepared;
    let mut context = Context::from_waker(waker);
    let output = loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            break output;
        }
        let (mut slept, mut looks) = (false, LastLooks::default());
        while !signal.woken.swap(false, Ordering::SeqCst) {
            if looks.again() {
                continue;
            }
            signal.sleeper.park(|| signal.woken.load(Ordering::SeqCst));
            slept = true;
        }
        if !slept {
            // It may be woken at once every time, and what is under way has to go on.
            Executing::turn();
        }
    };
    // A waker that outlives this call wakes the next one for nothing; it polls once more and parks again.
    #[cfg(feature = "model")]
    if matches!(signal.sleeper.thread, Thread::Modelled(_)) {
        return output;
    }
    PREPARED.set(Some(prepared));
    output
}

/// Which tasks of a worker are ready, and whether the worker sleeps.
#[derive(Debug)]
struct Board {
    asleep: CachePadded<AtomicBool>,
    ready: CachePadded<Box<[AtomicU64]>>,
    sleeper: Arc<Berth>,
}

/// The waker of one task.
#[derive(Debug)]
struct Slot {
    board: Arc<Board>,
    index: usize,
}

impl Wake for Slot {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.board.ready[self.index / 64].fetch_or(1 << (self.index % 64), Ordering::SeqCst);
        // The plain load keeps wakers off each other's cache line while the worker is busy; the swap lets only one of
        // them make the system call.
        if self.board.asleep.load(Ordering::SeqCst) && self.board.asleep.swap(false, Ordering::SeqCst) {
            self.board.sleeper.unpark();
        }
    }
}

impl Board {
    fn new(tasks: usize) -> Self {
        let words = (0..tasks.div_ceil(64)).map(|word| {
            let bits = (tasks - word * 64).min(64);
            AtomicU64::new(u64::MAX >> (64 - bits))
        });
        Self {
            asleep: CachePadded(AtomicBool::new(false)),
            ready: CachePadded(words.collect()),
            sleeper: Berth::current(),
        }
    }

    /// Returns when some task is ready. Called by the worker only.
    fn wait(&self) {
        self.asleep.store(true, Ordering::SeqCst);
        if self.ready.iter().any(|word| word.load(Ordering::SeqCst) != 0) {
            self.asleep.store(false, Ordering::SeqCst);
            return;
        }
        while self.asleep.load(Ordering::SeqCst) {
            self.sleeper.park(|| !self.asleep.load(Ordering::SeqCst));
        }
    }
}

/// A worker that always has something to poll looks after its operations under way this often: a compromise between
/// few system calls and early answers.
const POLLS_A_TURN: usize = 32;

/// Runs all `tasks` to their ends on the calling thread, all of them in flight at the same time.
///
/// A task gives way only where it waits; one that never does should call [`yield_now`] now and then. When a task
/// panics the panic goes on to the caller, and the other tasks are dropped where they stand.
pub fn run_tasks<F: Future<Output = ()>>(tasks: Vec<F>) {
    let board = Arc::new(Board::new(tasks.len()));
    let mut slots: Vec<(Option<Pin<Box<F>>>, Waker)> = tasks
        .into_iter()
        .enumerate()
        .map(|(index, task)| {
            let slot = Slot { board: Arc::clone(&board), index };
            (Some(Box::pin(task)), Waker::from(Arc::new(slot)))
        })
        .collect();
    let mut running = slots.len();
    let _duty = OnDuty::begin(ALONE);
    let _executing = Executing::begin();
    let (mut polls, mut unlooked) = (0, 0);
    let mut looks = LastLooks::default();
    // Tasks that gave way, to be polled again in the next round.
    let mut aside = vec![0_u64; board.ready.len()];
    while running > 0 {
        let mut idle = true;
        for (word_index, word) in board.ready.iter().enumerate() {
            let mut bits = std::mem::take(&mut aside[word_index]);
            if word.load(Ordering::Relaxed) != 0 {
                bits |= word.swap(0, Ordering::AcqRel);
            }
            while bits != 0 {
                let index = word_index * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let (task, waker) = &mut slots[index];
                // A task that has ended may still be woken by a waker that it left somewhere.
                let Some(running_task) = task else { continue };
                idle = false;
                polls += 1;
                unlooked += 1;
                CREW.set(Crew { tasks: running, waker: waker.data() });
                if running_task.as_mut().poll(&mut Context::from_waker(waker)).is_ready() {
                    *task = None;
                    running -= 1;
                }
                if ASIDE.take() {
                    aside[word_index] |= 1 << (index % 64);
                }
            }
        }
        if idle && running > 0 {
            (polls, unlooked) = (0, 0);
            if !looks.again() {
                board.wait();
                looks = LastLooks::default();
            }
            continue;
        }
        looks = LastLooks::default();
        if unlooked >= POLLS_A_LOOK {
            unlooked = 0;
            lookout::look();
        }
        if polls >= POLLS_A_TURN {
            polls = 0;
            Executing::turn();
        }
    }
}

/// Lets the other tasks of the thread have a turn.
#[must_use = "it yields when it is awaited"]
pub const fn yield_now() -> YieldNow {
    YieldNow { yielded: false }
}

/// The future of [`yield_now`].
#[derive(Debug)]
pub struct YieldNow {
    yielded: bool,
}

impl Future for YieldNow {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

mod lookout;
#[cfg(all(test, feature = "model"))]
mod model_tests;
#[cfg(test)]
mod tests;
