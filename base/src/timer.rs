//! Waits for a time, as futures: one thread for all sleepers of a [`Timer`].
//!
//! ```text
//!   Sleep::poll ──enters (time, number) → waker──► sleepers, by time ◄──takes those that are due, wakes them── thread
//!        └──────── drop takes it out ────────────────┘
//! ```
//!
//! The rules:
//! - A sleeper is ready when the clock has reached its time, or the timer is gone; never before.
//! - A sleeper that is dropped leaves nothing behind: a limit of an hour on a wait that took a millisecond costs no memory.
//! - The thread is started with the first sleeper that has to wait. It sleeps until the earliest time, and ends with the timer.
//! - No waker is called under the lock, since it may poll, enter or drop a sleeper.
//! - Under the model checker no time passes: a sleeper gives way once and is ready then, so that whoever looks again "in a
//!   while" does, and a limit may be reached before or after whatever it is a limit of.
//!
//! A timer [by hand](Timer::by_hand) has no thread: whoever moves its clock calls [`Timer::fire`].

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::clock::Clock;

/// Wakes futures at their times.
#[derive(Debug)]
pub struct Timer {
    shared: Arc<Shared>,
    by_hand: bool,
}

#[derive(Debug)]
struct Shared {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// There is an earlier first sleeper, or the timer is gone.
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// By time; the number tells those of one time apart.
    sleepers: BTreeMap<(u64, u64), Waker>,
    next_number: u64,
    has_thread: bool,
    is_gone: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the sleepers that are due.
    fn take_due(state: &mut State, now_ns: u64) -> Vec<Waker> {
        let mut due = Vec::new();
        while let Some(first) = state.sleepers.first_entry()
            && first.key().0 <= now_ns
        {
            due.push(first.remove());
        }
        due
    }

    fn run(&self) {
        let mut state = self.lock();
        while !state.is_gone {
            let now_ns = self.clock.now_ns();
            let due = Self::take_due(&mut state, now_ns);
            if !due.is_empty() {
                drop(state);
                due.into_iter().for_each(Waker::wake);
                state = self.lock();
                continue;
            }
            state = match state.sleepers.first_key_value() {
                Some((&(at_ns, _), _)) => {
                    let left = Duration::from_nanos(at_ns - now_ns);
                    self.news.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.news.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

impl Timer {
    /// A timer by this clock, with a thread as soon as one is needed. The clock has to go on by itself.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::over(clock, false)
    }

    /// A timer without a thread, by a clock that its user moves: see [`Timer::fire`].
    #[must_use]
    pub fn by_hand(clock: Arc<dyn Clock>) -> Self {
        Self::over(clock, true)
    }

    fn over(clock: Arc<dyn Clock>, by_hand: bool) -> Self {
        Self { shared: Arc::new(Shared { clock, state: Mutex::default(), news: Condvar::new() }), by_hand }
    }

    /// A future that is ready when the clock has reached `at_ns` ([`Clock::now_ns`]).
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn sleep_until(&self, at_ns: u64) -> io::Result<Sleep> {
        if !self.by_hand {
            self.start_thread()?;
        }
        Ok(Sleep {
            shared: Arc::clone(&self.shared),
            at_ns,
            number: None,
            #[cfg(feature = "model")]
            gave_way: false,
        })
    }

    /// Wakes the sleepers that are due; how many they were.
    pub fn fire(&self) -> usize {
        let now_ns = self.shared.clock.now_ns();
        let due = Shared::take_due(&mut self.shared.lock(), now_ns);
        let count = due.len();
        due.into_iter().for_each(Waker::wake);
        count
    }

    /// Number of sleepers that wait.
    #[must_use]
    pub fn sleepers(&self) -> usize {
        self.shared.lock().sleepers.len()
    }

    fn start_thread(&self) -> io::Result<()> {
        #[cfg(feature = "model")]
        if crate::sync::model::active() {
            return Ok(());
        }
        let mut state = self.shared.lock();
        if !state.has_thread {
            let shared = Arc::clone(&self.shared);
            std::thread::Builder::new().name("thermocline-timer".to_owned()).spawn(move || shared.run())?;
            state.has_thread = true;
        }
        Ok(())
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // The thread is not waited for: a waker that it calls may be what drops the timer.
        let sleepers = {
            let mut state = self.shared.lock();
            state.is_gone = true;
            std::mem::take(&mut state.sleepers)
        };
        self.shared.news.notify_all();
        sleepers.into_values().for_each(Waker::wake);
    }
}

/// Ready when its time has come.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub struct Sleep {
    shared: Arc<Shared>,
    at_ns: u64,
    /// Its number among the sleepers, once it waits.
    number: Option<u64>,
    #[cfg(feature = "model")]
    gave_way: bool,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        #[cfg(feature = "model")]
        if crate::sync::model::active() {
            if std::mem::replace(&mut self.gave_way, true) {
                return Poll::Ready(());
            }
            crate::sync::schedule_point();
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.shared.clock.now_ns() >= self.at_ns {
            return Poll::Ready(());
        }
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        if state.is_gone {
            return Poll::Ready(());
        }
        let number = *self.number.get_or_insert_with(|| {
            state.next_number += 1;
            state.next_number
        });
        let replaced = state.sleepers.insert((self.at_ns, number), context.waker().clone());
        let is_first =
            state.sleepers.first_key_value().is_some_and(|(first, _)| *first == (self.at_ns, number));
        drop(state);
        if is_first && replaced.is_none() {
            shared.news.notify_all();
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let waker = self.shared.lock().sleepers.remove(&(self.at_ns, number));
            drop(waker);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;
    use crate::clock::{ManualClock, SystemClock};
    use crate::multiplex::block_on;

    #[derive(Debug, Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn sleepers_wake_in_the_order_of_their_times_and_not_before() {
        let clock = Arc::new(ManualClock::new(0));
        let timer = Timer::by_hand(clock.clone());
        let counts: [Arc<Count>; 3] = Default::default();
        let mut sleeps: Vec<_> =
            [30, 10, 20].map(|at| Box::pin(timer.sleep_until(at).expect("no thread is needed"))).into();
        let poll = |sleeps: &mut [Pin<Box<Sleep>>], which: usize| {
            let waker = Waker::from(Arc::clone(&counts[which]));
            sleeps[which].as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
        };
        // A second poll replaces the waker of the first.
        for _ in 0..2 {
            assert!((0..3).all(|which| !poll(&mut sleeps, which)));
        }
        assert_eq!(timer.sleepers(), 3);
        let woken = || counts.each_ref().map(|count| count.0.load(Ordering::SeqCst));
        clock.advance(Duration::from_nanos(9));
        assert_eq!((timer.fire(), woken()), (0, [0, 0, 0]));
        clock.advance(Duration::from_nanos(11));
        assert_eq!((timer.fire(), woken()), (2, [0, 1, 1]));
        assert!(!poll(&mut sleeps, 0) && poll(&mut sleeps, 1) && poll(&mut sleeps, 2));
        // One that is dropped is not there any more.
        drop(sleeps);
        assert_eq!(timer.sleepers(), 0);
        clock.advance(Duration::from_nanos(100));
        assert_eq!((timer.fire(), woken()), (0, [0, 1, 1]));
    }

    #[test]
    fn a_time_that_has_come_is_not_waited_for() {
        let clock = Arc::new(ManualClock::new(0));
        clock.advance(Duration::from_nanos(5));
        let timer = Timer::by_hand(clock);
        block_on(timer.sleep_until(5).expect("no thread is needed"));
        assert_eq!(timer.sleepers(), 0);
    }

    #[test]
    fn a_timer_that_goes_wakes_all() {
        let count = Arc::<Count>::default();
        let waker = Waker::from(Arc::clone(&count));
        let timer = Timer::by_hand(Arc::new(ManualClock::new(0)));
        let mut sleep = pin!(timer.sleep_until(u64::MAX).expect("no thread is needed"));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop(timer);
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
    }

    #[test]
    fn a_thread_wakes_those_whose_time_comes() {
        let timer = Timer::new(Arc::new(SystemClock));
        // One that is far away stands behind an earlier one that comes later.
        let mut far = pin!(timer.sleep_until(u64::MAX).expect("a thread"));
        assert!(far.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        for _ in 0..3 {
            let at = SystemClock.now_ns() + 100_000;
            block_on(timer.sleep_until(at).expect("a thread"));
            assert!(SystemClock.now_ns() >= at);
        }
        assert_eq!(timer.sleepers(), 1);
    }
}
