//! A value that one side gives once and others await: futures that may be dropped at any time.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use thermocline_base::sync::Mutex;

use crate::mutation::{self, Rule};

#[derive(Debug)]
struct State<T> {
    value: Option<T>,
    wakers: Vec<Waker>,
}

/// The giving side. Clones are the same promise; the first value counts.
#[derive(Debug)]
pub(super) struct Promise<T>(Arc<Mutex<State<T>>>);

impl<T> Clone for Promise<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Clone> Promise<T> {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(State { value: None, wakers: Vec::new() })))
    }

    /// Gives the value.
    pub(super) fn keep(&self, value: T) {
        let wakers = {
            let mut state = self.0.lock();
            if state.value.is_none() {
                state.value = Some(value);
            }
            std::mem::take(&mut state.wakers)
        };
        for waker in wakers {
            waker.wake();
        }
    }

    /// The awaiting side.
    pub(super) fn wait(&self) -> Awaited<T> {
        Awaited(self.clone())
    }
}

/// Resolves when the promise is kept.
#[derive(Debug)]
pub(super) struct Awaited<T>(Promise<T>);

impl<T: Clone> Future for Awaited<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut state = self.0.0.lock();
        if let Some(value) = &state.value {
            return Poll::Ready(value.clone());
        }
        if mutation::off(Rule::PromiseEntersUnderLock) {
            drop(state);
            state = self.0.0.lock();
        }
        if !state.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}
