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
//! on the thread), so the worker parks until a waker has taken `asleep` back. The opposite case, a token that
//! somebody else on this thread consumes, is harmless as well: nobody who parks here trusts the token alone.
//!
//! # Sleeping where operations complete
//! Where operations under way need somebody who drives them (`io_uring`), that is the thread that started them: a
//! worker with nothing to poll does not park but sleeps in its driver, which ends when something completes, and answers
//! that. So a wait for the device costs no other thread. Now and then a worker that always has something to poll takes a
//! turn there as well.
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

/// Operations that make no progress, or are not answered, unless a thread drives them: an `io_uring`. A thread has at
/// most one, for good, and hands it in with [`attach`]; [`block_on`] and [`run_tasks`] then drive it.
pub(crate) trait Driver: Sync {
    /// Is any operation under way?
    fn is_busy(&self) -> bool;

    /// Starts what is queued and answers what has completed. Does not sleep.
    fn turn(&self);

    /// Starts what is queued, and sleeps until something has completed or [`Driver::interrupt`] was called since the
    /// last sleep ended. Answers nothing: that is what [`Driver::turn`] is for.
    fn sleep(&self);

    /// Ends the sleep of the thread that it is attached to, or its next one. From any thread.
    fn interrupt(&self);

    /// An executor begins (or the last one ends) on the thread that it is attached to: the thread promises to drive
    /// it, or stops doing so.
    fn attend(&self, attended: bool);

    /// Somebody waits who does not drive it: a thread beside the one that it is attached to, or one without executor.
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
    /// It sleeps, or is about to sleep, in its driver, and nobody has interrupted that yet.
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

    /// Sleeps until somebody unparks, something has completed, or for no reason; returns at once if `woken`. Only the
    /// thread itself calls this.
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
    /// How many executors run on this thread, nested.
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

    /// What an executor does now and then while it has something to poll.
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
        if outer == 0
            && let Some(driver) = DRIVER.get()
        {
            driver.attend(false);
        }
    }
}

/// What [`block_on`] waits for.
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

/// Who runs on this thread.
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
        // It may be woken at once every time, and what is under way has to go on.
        Executing::turn();
        while !signal.woken.swap(false, Ordering::SeqCst) {
            signal.sleeper.park(|| signal.woken.load(Ordering::SeqCst));
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
const POLLS_A_TURN: usize = 64;

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
    let mut polls = 0;
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
            polls = 0;
            board.wait();
        } else if polls >= POLLS_A_TURN {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{AtomicUsize, Mutex};
    use std::cell::RefCell;
    use std::future::poll_fn;
    use std::rc::Rc;
    use std::sync::mpsc;

    /// A value that somebody else will set.
    #[derive(Default)]
    pub(super) struct Later(Mutex<(bool, Option<Waker>)>);

    impl Later {
        pub(super) fn set(&self) {
            let waker = {
                let mut state = self.0.lock();
                state.0 = true;
                state.1.take()
            };
            if let Some(waker) = waker {
                waker.wake();
            }
        }

        pub(super) async fn wait(&self) {
            poll_fn(|context| {
                let mut state = self.0.lock();
                if state.0 {
                    return Poll::Ready(());
                }
                state.1 = Some(context.waker().clone());
                Poll::Pending
            })
            .await;
        }
    }

    #[test]
    fn giving_way_lets_the_others_run_and_comes_back() {
        let order = Rc::new(RefCell::new(Vec::new()));
        let task = |name: usize| {
            let order = Rc::clone(&order);
            async move {
                for round in 0..3 {
                    order.borrow_mut().push((round, name));
                    give_way().await;
                }
            }
        };
        run_tasks((0..4).map(task).collect());
        let rounds: Vec<usize> = order.borrow().iter().map(|(round, _)| *round).collect();
        assert_eq!(rounds, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]);
    }

    #[test]
    fn giving_way_alone_or_nested_does_not_hang() {
        block_on(give_way());
        run_tasks(vec![give_way()]);
        let nested = || async {
            block_on(async {
                give_way().await;
                give_way().await;
            });
            give_way().await;
        };
        run_tasks(vec![nested(), nested()]);
    }

    #[test]
    fn giving_way_inside_of_a_combinator_wakes_properly() {
        /// A combinator that polls its future only when its own waker was called.
        struct Own(AtomicBool);
        impl Wake for Own {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let picky = || async {
            let own = Arc::new(Own(AtomicBool::new(true)));
            let waker = Waker::from(Arc::clone(&own));
            let mut inner = pin!(give_way());
            poll_fn(|context| {
                if own.0.swap(false, Ordering::SeqCst)
                    && inner.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
                {
                    return Poll::Ready(());
                }
                context.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
        };
        run_tasks(vec![picky(), picky()]);
    }

    #[test]
    fn a_ready_future_ends_at_once() {
        assert_eq!(block_on(async { 7 }), 7);
    }

    #[test]
    fn another_thread_wakes_the_one_that_blocks() {
        for _ in 0..200 {
            let later = Arc::new(Later::default());
            let other = Arc::clone(&later);
            let thread = std::thread::spawn(move || other.set());
            block_on(later.wait());
            thread.join().expect("the setter");
        }
    }

    #[test]
    fn a_nested_block_on_does_not_swallow_the_outer_wake() {
        let outer = Arc::new(Later::default());
        let inner = Arc::new(Later::default());
        let (begin, begun) = mpsc::channel();
        let thread = std::thread::spawn({
            let (outer, inner) = (Arc::clone(&outer), Arc::clone(&inner));
            move || {
                begun.recv().expect("the outer future has left its waker");
                // The outer wake comes while the thread waits for the inner one.
                outer.set();
                inner.set();
            }
        });
        let mut nested = false;
        block_on(async {
            let mut wait = pin!(outer.wait());
            poll_fn(|context| {
                let state = wait.as_mut().poll(context);
                if !nested {
                    assert!(state.is_pending());
                    nested = true;
                    begin.send(()).expect("the other thread waits for it");
                    block_on(inner.wait());
                }
                state
            })
            .await;
        });
        thread.join().expect("the setter");
    }

    #[test]
    fn a_waker_left_behind_disturbs_nobody() {
        let left = RefCell::new(None);
        block_on(poll_fn(|context| {
            left.replace(Some(context.waker().clone()));
            Poll::Ready(())
        }));
        left.take().expect("left above").wake();
        let mut polls = 0;
        let later = Arc::new(Later::default());
        let other = Arc::clone(&later);
        let thread = std::thread::spawn(move || other.set());
        block_on(async {
            let mut wait = pin!(later.wait());
            poll_fn(|context| {
                polls += 1;
                wait.as_mut().poll(context)
            })
            .await;
        });
        thread.join().expect("the setter");
        assert!((1..=3).contains(&polls), "{polls} polls");
    }

    #[test]
    fn no_tasks_end_at_once() {
        run_tasks(Vec::<std::future::Ready<()>>::new());
    }

    #[test]
    fn tasks_take_turns() {
        // More than one word of tasks, and not a multiple of it.
        for count in [1_usize, 2, 63, 64, 65, 130] {
            let turns = Rc::new(RefCell::new(Vec::new()));
            let tasks = (0..count)
                .map(|index| {
                    let turns = Rc::clone(&turns);
                    async move {
                        for _ in 0..3 {
                            turns.borrow_mut().push(index);
                            yield_now().await;
                        }
                    }
                })
                .collect();
            run_tasks(tasks);
            let expected: Vec<usize> = (0..3).flat_map(|_| 0..count).collect();
            assert_eq!(*turns.borrow(), expected);
        }
    }

    #[test]
    fn a_task_that_waits_is_not_polled() {
        let polls = Cell::new(0);
        let later = Later::default();
        let waiting = async {
            let mut wait = pin!(later.wait());
            poll_fn(|context| {
                polls.set(polls.get() + 1);
                wait.as_mut().poll(context)
            })
            .await;
        };
        let busy = async {
            for _ in 0..100 {
                yield_now().await;
            }
            later.set();
        };
        let tasks: Vec<Pin<Box<dyn Future<Output = ()>>>> = vec![Box::pin(waiting), Box::pin(busy)];
        run_tasks(tasks);
        assert_eq!(polls.get(), 2);
    }

    #[test]
    fn other_threads_wake_tasks() {
        const TASKS: usize = 100;
        const ROUNDS: usize = 50;
        let gates: Arc<Vec<Vec<Later>>> =
            Arc::new((0..TASKS).map(|_| (0..ROUNDS).map(|_| Later::default()).collect()).collect());
        let threads: Vec<_> = (0..2)
            .map(|thread| {
                let gates = Arc::clone(&gates);
                std::thread::spawn(move || {
                    for round in 0..ROUNDS {
                        for gate in gates.iter().skip(thread).step_by(2) {
                            gate[round].set();
                        }
                        if round % 8 == 0 {
                            std::thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        let passed = AtomicUsize::new(0);
        let tasks = gates
            .iter()
            .map(async |gate| {
                for later in gate {
                    later.wait().await;
                    passed.fetch_add(1, Ordering::Relaxed);
                }
            })
            .collect();
        run_tasks(tasks);
        for thread in threads {
            thread.join().expect("the setter");
        }
        assert_eq!(passed.load(Ordering::Relaxed), TASKS * ROUNDS);
    }

    #[test]
    fn a_task_may_block_on_another_future() {
        let later = Arc::new(Later::default());
        let other = Arc::clone(&later);
        let thread = std::thread::spawn(move || other.set());
        let done = Cell::new(0);
        let tasks = (0..3)
            .map(|_| async {
                yield_now().await;
                block_on(later.wait());
                done.set(done.get() + 1);
            })
            .collect();
        run_tasks(tasks);
        thread.join().expect("the setter");
        assert_eq!(done.get(), 3);
    }

    #[test]
    fn a_task_that_ended_may_still_be_woken() {
        let left = RefCell::new(None);
        let first = poll_fn(|context| {
            left.replace(Some(context.waker().clone()));
            Poll::Ready(())
        });
        let second = async {
            yield_now().await;
            if let Some(waker) = left.take() {
                waker.wake();
            }
            yield_now().await;
        };
        let tasks: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> = vec![Box::pin(first), Box::pin(second)];
        run_tasks(tasks);
    }

    #[test]
    fn a_panic_of_a_task_reaches_the_caller() {
        let outcome = std::panic::catch_unwind(|| {
            run_tasks(vec![async { panic!("a task gave up") }]);
        });
        assert!(outcome.is_err());
    }
}

#[cfg(all(test, feature = "model"))]
mod model_tests {
    use super::tests::Later;
    use super::*;
    use crate::sync::model;

    /// Shuttle reports a worker that sleeps for ever as a deadlock, so a lost wake-up fails the test.
    #[test]
    fn no_wake_is_lost_before_the_worker_parks() {
        model::run(4000, || {
            let gates: Arc<[Later; 2]> = Arc::default();
            let setters: Vec<_> = (0..2)
                .map(|index| {
                    let gates = Arc::clone(&gates);
                    shuttle::thread::spawn(move || gates[index].set())
                })
                .collect();
            run_tasks(gates.iter().map(Later::wait).collect());
            for setter in setters {
                setter.join().expect("the setter");
            }
        });
    }

    #[test]
    fn no_wake_is_lost_before_block_on_parks() {
        model::run(2000, || {
            let gates: Arc<[Later; 2]> = Arc::default();
            let setter = {
                let gates = Arc::clone(&gates);
                shuttle::thread::spawn(move || {
                    gates[0].set();
                    gates[1].set();
                })
            };
            // The second wait is nested in a task, the first one is not.
            block_on(gates[0].wait());
            run_tasks(vec![async { block_on(gates[1].wait()) }]);
            setter.join().expect("the setter");
        });
    }

    /// A device whose one operation completes at any time, for whoever drives it.
    #[derive(Default)]
    struct Device {
        busy: AtomicBool,
        answer: Later,
        state: shuttle::sync::Mutex<DeviceState>,
        news: shuttle::sync::Condvar,
    }

    #[derive(Default)]
    struct DeviceState {
        completed: bool,
        interrupted: bool,
    }

    impl Device {
        fn lock(&self) -> shuttle::sync::MutexGuard<'_, DeviceState> {
            self.state.lock().expect("nobody panics with it")
        }

        fn complete(&self) {
            self.lock().completed = true;
            self.news.notify_all();
        }
    }

    impl Driver for Device {
        fn is_busy(&self) -> bool {
            self.busy.load(Ordering::SeqCst)
        }

        fn turn(&self) {
            let completed = std::mem::take(&mut self.lock().completed);
            if completed {
                self.answer.set();
                self.busy.store(false, Ordering::SeqCst);
            }
        }

        fn sleep(&self) {
            let mut state = self.lock();
            while !state.completed && !state.interrupted {
                state = self.news.wait(state).expect("nobody panics with it");
            }
            state.interrupted = false;
        }

        fn interrupt(&self) {
            self.lock().interrupted = true;
            self.news.notify_all();
        }

        fn attend(&self, _attended: bool) {}

        fn expect(&self) {}
    }

    /// A worker waits for another thread while it sleeps in a device that only it drives.
    #[test]
    fn no_wake_is_lost_while_the_worker_sleeps_in_its_driver() {
        model::run(6000, || {
            let device: &'static Device = Box::leak(Box::default());
            device.busy.store(true, Ordering::SeqCst);
            let gates: Arc<[Later; 2]> = Arc::default();
            DRIVER.set(Some(device));
            // The device takes longer than everybody else, so its completion makes good for no lost wake.
            let (passed, both_passed) = shuttle::sync::mpsc::channel();
            let completer = shuttle::thread::spawn(move || {
                both_passed.recv().expect("the worker passes the gates");
                device.complete();
            });
            let setter = {
                let gates = Arc::clone(&gates);
                shuttle::thread::spawn(move || {
                    gates[0].set();
                    gates[1].set();
                })
            };
            block_on(gates[0].wait());
            let second = async {
                gates[1].wait().await;
                passed.send(()).expect("the completer waits");
            };
            let tasks: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> =
                vec![Box::pin(device.answer.wait()), Box::pin(second)];
            run_tasks(tasks);
            DRIVER.set(None);
            completer.join().expect("the completer");
            setter.join().expect("the setter");
        });
    }
}
