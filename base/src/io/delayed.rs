//! A slow device: any other file system whose direct and other files answer reads only after a time, many of them
//! under way at once. For tests and experiments that need waits which are long and alike.
//!
//! A read is given to the inner file when its time has come, so it sees what was written until then. Writes and syncs
//! go to the inner file at once.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::completion::Completer;
use super::{Completion, File, Io, LockGuard, OpenMode, Operation, Result};
use crate::clock::{Clock, SystemClock};

/// Another file system with slow reads.
#[derive(Clone, Debug)]
pub struct DelayedIo {
    inner: Arc<dyn Io>,
    timer: Arc<Timer>,
}

impl DelayedIo {
    /// Reads of `inner` that take `delay` longer.
    #[must_use]
    pub fn new(inner: Arc<dyn Io>, delay: Duration) -> Self {
        let shared = Arc::<Shared>::default();
        let thread = std::thread::Builder::new().name("thermocline-delay".to_string()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.run()
        });
        let thread = thread.expect("a test has a thread to spare");
        Self { inner, timer: Arc::new(Timer { shared, delay, thread: Some(thread) }) }
    }

    fn wrap(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(DelayedFile { inner, timer: Arc::clone(&self.timer) })
    }
}

/// A read whose time has not come.
#[derive(Debug)]
struct Due {
    at_ns: u64,
    file: Arc<dyn File>,
    operation: Operation,
    completer: Completer,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// By time, since all are delayed alike.
    queue: VecDeque<Due>,
    closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.lock();
        loop {
            let now_ns = SystemClock.now_ns();
            match state.queue.front() {
                Some(due) if due.at_ns <= now_ns => {
                    let Due { file, operation, completer, .. } = state.queue.pop_front().expect("seen above");
                    drop(state);
                    let outcome = file.submit(operation).wait();
                    drop(file);
                    completer.complete(outcome.result, outcome.buffer);
                    state = self.lock();
                }
                Some(due) => {
                    let left = Duration::from_nanos(due.at_ns - now_ns);
                    state = self.news.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
                }
                None if state.closed => return,
                None => state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// The thread that answers.
#[derive(Debug)]
struct Timer {
    shared: Arc<Shared>,
    delay: Duration,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.news.notify_all();
        if let Some(thread) = self.thread.take() {
            // It ends after the last read that it owes.
            let _ = thread.join();
        }
    }
}

#[derive(Debug)]
struct DelayedFile {
    inner: Arc<dyn File>,
    timer: Arc<Timer>,
}

impl File for DelayedFile {
    fn submit(&self, operation: Operation) -> Completion {
        if !matches!(operation, Operation::Read { .. }) {
            return self.inner.submit(operation);
        }
        let (completer, completion) = Completion::pending_with(operation.buffer());
        let mut state = self.timer.shared.lock();
        // Under the lock, so that the queue is in order.
        let at_ns = SystemClock.now_ns() + self.timer.delay.as_nanos() as u64;
        state.queue.push_back(Due { at_ns, file: Arc::clone(&self.inner), operation, completer });
        drop(state);
        self.timer.shared.news.notify_one();
        completion
    }

    fn alignment(&self) -> usize {
        self.inner.alignment()
    }

    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.inner.set_len(len)
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.inner.allocate(len)
    }

    fn punch(&self, offset: u64, len: u64) -> Result<bool> {
        self.inner.punch(offset, len)
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.reserve(offset, len)
    }
}

impl Io for DelayedIo {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        Ok(self.wrap(self.inner.open(path, mode)?))
    }

    fn open_direct(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        Ok(self.wrap(self.inner.open_direct(path, mode)?))
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.inner.create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.inner.exists(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.inner.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.inner.sync_dir(dir)
    }

    fn lock_exclusive(&self, path: &Path) -> Result<LockGuard> {
        self.inner.lock_exclusive(path)
    }

    fn lock_shared(&self, path: &Path) -> Result<Option<LockGuard>> {
        self.inner.lock_shared(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{Buffer, MemoryIo};
    use crate::multiplex::run_tasks;

    #[test]
    fn one_thread_has_many_slow_reads_under_way() {
        const READERS: u64 = 64;
        const EACH: u64 = 5;
        let delay = Duration::from_millis(10);
        let io = DelayedIo::new(Arc::new(MemoryIo::new()), delay);
        let file = io.open(Path::new("a"), OpenMode::CreateNew).expect("created");
        for at in 0..READERS {
            file.write_at(at * 8, &at.to_le_bytes()).expect("written");
        }
        let began_ns = SystemClock.now_ns();
        run_tasks(
            (0..READERS)
                .map(async |at| {
                    for _ in 0..EACH {
                        let buffer = Buffer::from(vec![0; 8]);
                        let outcome = file.submit(Operation::Read { offset: at * 8, buffer }).await;
                        assert_eq!(outcome.result.expect("read"), 8);
                        assert_eq!(outcome.buffer.as_slice(), at.to_le_bytes());
                    }
                })
                .collect(),
        );
        let took = Duration::from_nanos(SystemClock.now_ns() - began_ns);
        // One after the other they would take 64 times as long as the lower bound.
        assert!(took >= delay * EACH as u32, "{took:?}");
        assert!(took < delay * (EACH * READERS) as u32 / 4, "{took:?}");
    }

    #[test]
    fn reads_that_nobody_waits_for_end_before_the_file_system() {
        let memory = MemoryIo::new();
        let io = DelayedIo::new(Arc::new(memory.clone()), Duration::from_millis(1));
        let file = io.open(Path::new("a"), OpenMode::CreateNew).expect("created");
        file.write_at(0, b"slow").expect("written");
        let mut bytes = [0; 6];
        assert_eq!(file.read_full_at(1, &mut bytes).expect("read"), 3);
        assert_eq!(&bytes[..3], b"low");
        drop(file.submit(Operation::Read { offset: 0, buffer: Buffer::from(vec![0; 4]) }));
        drop(file);
        drop(io);
        assert_eq!(memory.used(), 4);
    }
}
