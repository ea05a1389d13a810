//! The answer to a submitted operation: a future that can also be waited for by a thread.
//!
//! An implementation that finishes at once returns [`Completion::ready`], which allocates nothing. One with a queue
//! keeps a [`Completer`] and answers later, from any thread. The two share one allocation without a lock:
//!
//! ```text
//!             poll: put the waker            complete: put the outcome, swap
//!   EMPTY ───────────────────────► WAITING ─────────────────────────────────► ANSWERED
//!     │ ◄─────────────────────────                                               ▲
//!     │      poll, drop: take it back                                            │
//!     └──────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! | cell | belongs to |
//! |---|---|
//! | waker | the completion in EMPTY; the completer from the swap that found WAITING on |
//! | outcome | the completer before ANSWERED, the completion after |
//!
//! Each arrow is one atomic operation that publishes what was written before it (release) and takes over what the
//! other side wrote (acquire), so a cell never has two owners. Only one completion and one completer exist, and each
//! is used through `&mut` or by value, so each side is one thread at a time.
//!
//! # Dropping
//! A completion whose buffer is borrowed waits when it is dropped: the memory belongs to the lender. One whose buffer
//! is owned does not: the buffer belongs to the operation and is freed when that has happened. Neither cancels.

use std::cell::UnsafeCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::{Buffer, IoError};
use crate::multiplex::{self, Driver};
use crate::sync::{AtomicU32, Ordering};

/// The result of an operation, and its buffer.
#[derive(Debug)]
pub struct Outcome {
    /// Bytes read or written (0 for a sync). A read may be short; 0 bytes are the end of the file.
    pub result: Result<usize, IoError>,
    /// The operation's buffer (empty for a sync).
    pub buffer: Buffer,
}

/// An operation under way. Dropping it does not cancel the operation; see the module for what it does.
#[must_use = "an operation has happened only when its completion says so"]
pub struct Completion(State);

enum State {
    Ready(Outcome),
    Pending(Arc<Shared>),
    Made(Pin<Box<dyn Future<Output = Outcome> + Send + Sync>>),
    Taken,
}

const EMPTY: u32 = 0;
const WAITING: u32 = 1;
const ANSWERED: u32 = 2;

struct Shared {
    state: AtomicU32,
    /// The buffer is the operation's own.
    owned: bool,
    driver: Option<&'static dyn Driver>,
    waker: UnsafeCell<Option<Waker>>,
    outcome: UnsafeCell<Option<Outcome>>,
}

// SAFETY: the cells hold values that may move between threads (`Waker` and `Outcome` are `Send`), and the protocol of
// the module lets only one side touch a cell at a time.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    /// The completion's side: the outcome, if there is one.
    fn take(&self) -> Option<Outcome> {
        if self.state.load(Ordering::Acquire) != ANSWERED {
            return None;
        }
        // SAFETY: in ANSWERED the cell is the completion's.
        let outcome = unsafe { (*self.outcome.get()).take() };
        Some(outcome.expect("an answered operation has an outcome until it is taken, once"))
    }

    /// The completion's side: back to EMPTY, with no waker left. Not if it is answered: then `false`.
    fn disarm(&self) -> bool {
        match self.state.compare_exchange(WAITING, EMPTY, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) | Err(EMPTY) => true,
            Err(_) => false,
        }
    }

    /// The completion's side: leaves a waker. Not if it is answered: then `false`.
    fn arm(&self, waker: &Waker) -> bool {
        if !self.disarm() {
            return false;
        }
        // SAFETY: in EMPTY the cell is the completion's, and only the completion leaves EMPTY but for ANSWERED, whose
        // completer does not touch this cell unless it found WAITING.
        let cell = unsafe { &mut *self.waker.get() };
        match cell {
            Some(old) => old.clone_from(waker),
            None => *cell = Some(waker.clone()),
        }
        self.state.compare_exchange(EMPTY, WAITING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// The other end of a pending [`Completion`]. Must be answered: its loss is a broken invariant.
pub struct Completer(Option<Arc<Shared>>);

impl Completion {
    /// The completion of an operation that has happened already.
    pub fn ready(result: Result<usize, IoError>, buffer: Buffer) -> Self {
        Self(State::Ready(Outcome { result, buffer }))
    }

    /// An operation that consists of others, one after the other or together. It goes on only while a task or a
    /// thread polls it. Dropping it drops the future, and with that the completions in it.
    pub fn made_of(future: impl Future<Output = Outcome> + Send + Sync + 'static) -> Self {
        Self(State::Made(Box::pin(future)))
    }

    /// The two ends of an operation that happens later, of whose buffer nothing is known: dropping the completion
    /// waits.
    pub fn pending() -> (Completer, Self) {
        Self::new(false, None)
    }

    /// The two ends of an operation that happens later, whose buffer is its own: dropping the completion does not wait.
    pub fn pending_owned() -> (Completer, Self) {
        Self::new(true, None)
    }

    /// The two ends of an operation with this buffer that happens later.
    pub fn pending_with(buffer: &Buffer) -> (Completer, Self) {
        Self::new(buffer.is_owned(), None)
    }

    /// As [`Completion::pending_with`], for an operation that `driver` answers.
    #[cfg_attr(
        any(not(target_os = "linux"), feature = "portable"),
        allow(dead_code, reason = "only `io_uring` needs somebody who drives it")
    )]
    pub(super) fn driven(buffer: &Buffer, driver: &'static dyn Driver) -> (Completer, Self) {
        Self::new(buffer.is_owned(), Some(driver))
    }

    fn new(owned: bool, driver: Option<&'static dyn Driver>) -> (Completer, Self) {
        let shared = Arc::new(Shared {
            state: AtomicU32::new(EMPTY),
            owned,
            driver,
            waker: UnsafeCell::new(None),
            outcome: UnsafeCell::new(None),
        });
        (Completer(Some(Arc::clone(&shared))), Self(State::Pending(shared)))
    }

    /// Blocks the thread until the operation has happened. For threads whose work this is (the log's flusher, the
    /// checkpointer); workers await. What is under way on this thread is driven by it meanwhile.
    ///
    /// # Panics
    /// When the future has already returned its outcome.
    #[must_use]
    pub fn wait(mut self) -> Outcome {
        match std::mem::replace(&mut self.0, State::Taken) {
            State::Ready(outcome) => outcome,
            state @ (State::Pending(_) | State::Made(_)) => multiplex::block_on(Self(state)),
            State::Taken => panic!("a completion is taken once"),
        }
    }
}

impl Future for Completion {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let outcome = match &mut self.0 {
            State::Pending(shared) => match shared.take() {
                Some(outcome) => outcome,
                None if shared.arm(cx.waker()) => {
                    if let Some(driver) = shared.driver
                        && !multiplex::drives(driver)
                    {
                        driver.expect();
                    }
                    return Poll::Pending;
                }
                None => shared.take().expect("what refuses a waker is answered"),
            },
            State::Made(future) => match future.as_mut().poll(cx) {
                Poll::Ready(outcome) => outcome,
                Poll::Pending => return Poll::Pending,
            },
            State::Ready(_) | State::Taken => match std::mem::replace(&mut self.0, State::Taken) {
                State::Ready(outcome) => outcome,
                _ => panic!("a completion is taken once"),
            },
        };
        self.0 = State::Taken;
        Poll::Ready(outcome)
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.0, State::Taken) {
            State::Pending(shared) if shared.owned => {
                if shared.disarm() {
                    // SAFETY: in EMPTY the cell is the completion's; the completer wakes no task for nothing.
                    drop(unsafe { (*shared.waker.get()).take() });
                }
            }
            state @ State::Pending(_) => drop(multiplex::block_on(Self(state))),
            State::Ready(_) | State::Made(_) | State::Taken => {}
        }
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            State::Ready(_) => "Completion(ready)",
            State::Pending(_) | State::Made(_) => "Completion(pending)",
            State::Taken => "Completion(taken)",
        })
    }
}

impl Completer {
    /// The operation has happened.
    ///
    /// # Panics
    /// Never: the shared state is there until the one answer.
    pub fn complete(mut self, result: Result<usize, IoError>, buffer: Buffer) {
        let shared = self.0.take().expect("a completer answers once");
        // SAFETY: before ANSWERED the cell is the completer's.
        unsafe { *shared.outcome.get() = Some(Outcome { result, buffer }) };
        if shared.state.swap(ANSWERED, Ordering::AcqRel) == WAITING {
            // SAFETY: the swap found WAITING, so the cell is the completer's.
            let waker = unsafe { (*shared.waker.get()).take() };
            waker.expect("who waits has left a waker").wake();
        }
    }
}

impl Drop for Completer {
    fn drop(&mut self) {
        assert!(
            self.0.is_none() || std::thread::panicking(),
            "an operation was dropped unanswered; its waiter would wait for ever"
        );
    }
}

impl fmt::Debug for Completer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Completer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    fn poll(completion: &mut Completion, count: &Arc<Count>) -> Poll<Outcome> {
        let waker = Waker::from(Arc::clone(count));
        Pin::new(completion).poll(&mut Context::from_waker(&waker))
    }

    #[test]
    fn a_pending_operation_wakes_its_future() {
        let (completer, mut completion) = Completion::pending();
        let (first, last) = (Arc::new(Count::default()), Arc::new(Count::default()));
        for count in [&first, &last, &last] {
            assert!(poll(&mut completion, count).is_pending());
        }
        completer.complete(Ok(3), Buffer::from(vec![1, 2, 3]));
        assert_eq!((first.0.load(SeqCst), last.0.load(SeqCst)), (0, 1));
        let Poll::Ready(outcome) = poll(&mut completion, &last) else { panic!("not ready") };
        assert_eq!(outcome.result.expect("it went well"), 3);
        assert_eq!(outcome.buffer.as_slice(), [1, 2, 3]);
    }

    #[test]
    fn a_thread_waits_for_a_pending_operation() {
        let (completer, completion) = Completion::pending();
        let other = std::thread::spawn(move || completer.complete(Ok(1), Buffer::from(vec![9])));
        assert_eq!(completion.wait().buffer.as_slice(), [9]);
        other.join().expect("the other thread");
    }

    #[test]
    fn dropping_waits_for_borrowed_buffers_only() {
        let owned = Buffer::from(vec![1]);
        let (completer, mut completion) = Completion::pending_with(&owned);
        let count = Arc::new(Count::default());
        assert!(poll(&mut completion, &count).is_pending());
        drop(completion);
        assert_eq!(Arc::strong_count(&count), 1, "the waker went with the completion");
        completer.complete(Ok(1), owned);
        assert_eq!(count.0.load(SeqCst), 0);

        let mut bytes = [0_u8; 4];
        // SAFETY: the completion waits when it is dropped, before `bytes` goes.
        let mut buffer = unsafe { Buffer::borrowed(bytes.as_mut_ptr(), bytes.len()) };
        let (completer, completion) = Completion::pending_with(&buffer);
        let other = std::thread::spawn(move || {
            std::thread::yield_now();
            buffer.as_mut_slice().fill(7);
            completer.complete(Ok(4), buffer);
        });
        drop(completion);
        assert_eq!(bytes, [7; 4]);
        other.join().expect("the other thread");
    }

    #[test]
    #[should_panic(expected = "dropped unanswered")]
    fn an_operation_is_answered() {
        let (completer, completion) = Completion::pending_with(&Buffer::empty());
        drop(completion);
        drop(completer);
    }
}

#[cfg(all(test, feature = "model"))]
mod model_tests {
    use super::*;
    use crate::multiplex::block_on;
    use crate::sync::model;
    use std::future::poll_fn;

    /// Shuttle reports a waiter that is never woken as a deadlock.
    #[test]
    fn an_answer_meets_every_state() {
        model::run(4000, || {
            let (completer, mut completion) = Completion::pending_with(&Buffer::empty());
            let answerer = shuttle::thread::spawn(move || completer.complete(Ok(5), Buffer::empty()));
            // Polled with another waker first, so that the waker changes while the answer comes.
            let mut polls = 0;
            let outcome = block_on(poll_fn(|context| {
                polls += 1;
                if polls == 1
                    && let Poll::Ready(outcome) =
                        Pin::new(&mut completion).poll(&mut Context::from_waker(Waker::noop()))
                {
                    return Poll::Ready(outcome);
                }
                Pin::new(&mut completion).poll(context)
            }));
            assert_eq!(outcome.result.expect("it went well"), 5);
            answerer.join().expect("the answerer");
        });
    }

    #[test]
    fn a_completion_may_go_while_it_is_answered() {
        model::run(2000, || {
            let (completer, mut completion) = Completion::pending_with(&Buffer::from(vec![1]));
            let answerer = shuttle::thread::spawn(move || completer.complete(Ok(1), Buffer::from(vec![1])));
            let _ = Pin::new(&mut completion).poll(&mut Context::from_waker(Waker::noop()));
            drop(completion);
            answerer.join().expect("the answerer");
        });
    }
}
