//! An operation on a device that goes on by itself: whoever wakes it drives it to its next step.
//!
//! A completion is a future, and a future rests until a thread polls it. Here the operation is its own waker: the
//! device's answer wakes it, and the waking thread does what follows (verify, publish, wake the waiters, start the
//! next operation). So no thread has to wait for a read in which all have lost interest, a dropped future leaves
//! nothing half done, and a device that never answers holds only those that wait for its answer.
//!
//! `signals` counts wake-ups that were not looked at yet; whoever raises it from zero drives, everybody else has only
//! said that there is more to do. So a wake-up from inside of `poll` (a device that answers while it is being asked) does
//! not lock itself out, and none is lost.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use super::{Completion, Outcome};
use crate::sync::{AtomicU32, Mutex, Ordering};

/// Work that follows each answer of the device.
pub trait Job: Send + Sync + Sized + 'static {
    /// The device has answered. Gives the next operation, if there is one.
    fn answered(&self, outcome: Outcome) -> Option<Completion>;
}

/// A job and the operation that it waits for.
#[derive(Debug)]
pub struct Driven<J> {
    signals: AtomicU32,
    completion: Mutex<Option<Completion>>,
    /// The work that follows each answer.
    pub job: J,
}

impl<J: Job> Driven<J> {
    /// It rests until it is started.
    pub fn new(job: J) -> Arc<Self> {
        Arc::new(Self { signals: AtomicU32::new(0), completion: Mutex::new(None), job })
    }

    /// Starts with its first operation. Called once.
    pub fn start(self: &Arc<Self>, completion: Completion) {
        *self.completion.lock() = Some(completion);
        self.drive();
    }

    fn drive(self: &Arc<Self>) {
        if self.signals.fetch_add(1, Ordering::AcqRel) > 0 {
            return;
        }
        let waker = Waker::from(Arc::clone(self));
        let mut context = Context::from_waker(&waker);
        loop {
            let seen = self.signals.load(Ordering::Acquire);
            // Only the driver takes it out, and no other thread touches it after the start.
            let taken = self.completion.lock().take();
            if let Some(mut completion) = taken {
                match Pin::new(&mut completion).poll(&mut context) {
                    Poll::Pending => *self.completion.lock() = Some(completion),
                    Poll::Ready(outcome) => {
                        if let Some(next) = self.job.answered(outcome) {
                            *self.completion.lock() = Some(next);
                            continue;
                        }
                    }
                }
            }
            if self.signals.fetch_sub(seen, Ordering::AcqRel) == seen {
                return;
            }
        }
    }
}

impl<J: Job> Wake for Driven<J> {
    fn wake(self: Arc<Self>) {
        self.drive();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.drive();
    }
}
