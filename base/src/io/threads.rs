//! Operations that happen on other threads: what is asynchronous where the system itself is not.
//!
//! Threads are started when there is more to do than idle threads to do it, up to a limit, and end when the last file
//! and the last handle are gone. What is queued then still happens: its files stay open until they are done.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::completion::Completer;
use super::system::StdFile;
use super::{Completion, Operation};

struct Job {
    file: Arc<StdFile>,
    operation: Operation,
    completer: Completer,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    news: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                drop(state);
                let Job { file, operation, completer } = job;
                let (result, buffer) = file.perform(operation);
                // Closed before the answer, if this was its last operation.
                drop(file);
                completer.complete(result, buffer);
                state = self.lock();
            } else if state.closed {
                return;
            } else {
                state.idle += 1;
                state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

/// A handle of the threads.
pub(super) struct Threads {
    shared: Arc<Shared>,
    limit: usize,
}

impl Threads {
    /// At most `limit` threads, of which none runs yet.
    pub(super) fn new(limit: usize) -> Self {
        Self { shared: Arc::default(), limit: limit.max(1) }
    }

    pub(super) fn submit(&self, file: &Arc<StdFile>, operation: Operation) -> Completion {
        let (completer, completion) = Completion::pending_with(operation.buffer());
        let mut state = self.shared.lock();
        if state.idle <= state.queue.len() && state.threads < self.limit {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name("thermocline-io".to_string());
            match thread.spawn(move || shared.work()) {
                Ok(_) => state.threads += 1,
                // No more threads to be had; those that there are do it, later.
                Err(_) if state.threads > 0 => {}
                Err(_) => {
                    drop(state);
                    let (result, buffer) = file.perform(operation);
                    completer.complete(result, buffer);
                    return completion;
                }
            }
        }
        state.queue.push_back(Job { file: Arc::clone(file), operation, completer });
        drop(state);
        self.shared.news.notify_one();
        completion
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.news.notify_all();
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Threads({})", self.limit)
    }
}
