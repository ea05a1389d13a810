//! The answer to a submitted operation: a future that can also be waited for by a thread.
//!
//! An implementation that finishes at once returns [`Completion::ready`], which allocates nothing. One with a queue
//! keeps a [`Completer`] and answers later, from any thread.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::{Buffer, IoError};

/// What became of an operation.
#[derive(Debug)]
pub struct Outcome {
    /// Bytes read or written (0 for a sync). A read may be short; 0 bytes are the end of the file.
    pub result: Result<usize, IoError>,
    /// The operation's buffer (empty for a sync).
    pub buffer: Buffer,
}

/// An operation under way. Dropping it does not cancel the operation, but waits for it, because the buffer may be
/// borrowed.
#[must_use = "an operation has happened only when its completion says so"]
pub struct Completion(State);

enum State {
    Ready(Outcome),
    Pending(Arc<Shared>),
    Taken,
}

#[derive(Default)]
struct Shared {
    inner: Mutex<Inner>,
    answered: Condvar,
}

#[derive(Default)]
struct Inner {
    outcome: Option<Outcome>,
    waker: Option<Waker>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self) -> Outcome {
        let mut inner = self.lock();
        loop {
            if let Some(outcome) = inner.outcome.take() {
                return outcome;
            }
            inner = self.answered.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The other end of a pending [`Completion`]. Must be answered: its loss is a broken invariant.
pub struct Completer(Option<Arc<Shared>>);

impl Completion {
    /// The completion of an operation that has happened already.
    pub fn ready(result: Result<usize, IoError>, buffer: Buffer) -> Self {
        Self(State::Ready(Outcome { result, buffer }))
    }

    /// The two ends of an operation that happens later.
    pub fn pending() -> (Completer, Self) {
        let shared = Arc::new(Shared::default());
        (Completer(Some(Arc::clone(&shared))), Self(State::Pending(shared)))
    }

    /// Blocks the thread until the operation has happened. For threads whose work this is (the log's flusher, the
    /// checkpointer); workers await.
    ///
    /// # Panics
    /// When the future has already returned its outcome.
    #[must_use]
    pub fn wait(mut self) -> Outcome {
        match std::mem::replace(&mut self.0, State::Taken) {
            State::Ready(outcome) => outcome,
            State::Pending(shared) => shared.wait(),
            State::Taken => panic!("a completion is taken once"),
        }
    }
}

impl Future for Completion {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        match std::mem::replace(&mut self.0, State::Taken) {
            State::Ready(outcome) => Poll::Ready(outcome),
            State::Pending(shared) => {
                let mut inner = shared.lock();
                if let Some(outcome) = inner.outcome.take() {
                    return Poll::Ready(outcome);
                }
                inner.waker = Some(cx.waker().clone());
                drop(inner);
                self.0 = State::Pending(shared);
                Poll::Pending
            }
            State::Taken => panic!("a completion is taken once"),
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if let State::Pending(shared) = &self.0 {
            let _ = shared.wait();
        }
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            State::Ready(_) => "Completion(ready)",
            State::Pending(_) => "Completion(pending)",
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
        let waker = {
            let mut inner = shared.lock();
            inner.outcome = Some(Outcome { result, buffer });
            inner.waker.take()
        };
        shared.answered.notify_all();
        if let Some(waker) = waker {
            waker.wake();
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
    use std::task::Wake;

    struct Flag(std::sync::atomic::AtomicBool);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, std::sync::atomic::Ordering::SeqCst);
        }
    }

    #[test]
    fn a_pending_operation_wakes_its_future() {
        let (completer, mut completion) = Completion::pending();
        let flag = Arc::new(Flag(false.into()));
        let waker = Waker::from(Arc::clone(&flag));
        let mut context = Context::from_waker(&waker);
        assert!(Pin::new(&mut completion).poll(&mut context).is_pending());
        completer.complete(Ok(3), Buffer::from(vec![1, 2, 3]));
        assert!(flag.0.load(std::sync::atomic::Ordering::SeqCst));
        let Poll::Ready(outcome) = Pin::new(&mut completion).poll(&mut context) else { panic!("not ready") };
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
}
