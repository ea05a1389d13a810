//! Files that answer as another device would, in real time: a disk, a network volume, an object store
//! ([`crate::device_model`]).
//!
//! ```text
//!   submit ─► the model: when is it over? ─┐
//!          └► the files below ─ answered ──┴─► waits until then ─► answer
//! ```
//!
//! Rules:
//! - Operations below happen at once; only their answers wait. So what is durable when is as below, and a device that is slower
//!   than its model answers when it can.
//! - All files of the directory are one device: they share its arm, its operations and its bytes a second.
//! - A sync is an operation without bytes, and is over no earlier than the writes before it.
//! - Files outside of the directory, and whatever is no read, write or sync, are as below.
//!
//! Limits: each file has a gibibyte of the device to itself where places matter, and then the next one begins; operations start
//! in the order in which they come (a real disk chooses the nearest). An answer is late by what the system takes to wake a
//! thread, some tens of microseconds.

use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::completion::Completer;
use super::{Completion, Driven, File, Io, Job, LockGuard, OpenMode, Operation, Outcome, Result};
use crate::clock::{Clock, SystemClock};
use crate::device_model::{self, Device, DeviceModel};

/// Bytes between the beginnings of two files.
const FILE_STRIDE_BYTES: u64 = 1 << 30;

/// Another file system, one directory of which answers as a device would.
#[derive(Clone, Debug)]
pub struct ProfileIo {
    inner: Arc<dyn Io>,
    dir: PathBuf,
    timer: Arc<Timer>,
}

impl ProfileIo {
    /// The files of `inner` under `dir` are on such a device.
    #[must_use]
    pub fn new(inner: Arc<dyn Io>, dir: &Path, model: DeviceModel) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                device: Device::new(model),
                files: 0,
                written_ns: 0,
                answers: BinaryHeap::new(),
                numbers: 0,
                closed: false,
            }),
            news: Condvar::new(),
        });
        let thread = std::thread::Builder::new().name("thermocline-profile".to_string()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.run()
        });
        let thread = thread.expect("who emulates a device has a thread to spare");
        Self { inner, dir: dir.to_path_buf(), timer: Arc::new(Timer { shared, thread: Some(thread) }) }
    }

    fn wrap(&self, path: &Path, inner: Arc<dyn File>) -> Arc<dyn File> {
        if !path.starts_with(&self.dir) {
            return inner;
        }
        let mut state = self.timer.shared.lock();
        let begins = state.files * FILE_STRIDE_BYTES;
        state.files += 1;
        drop(state);
        Arc::new(ProfileFile { inner, begins, timer: Arc::clone(&self.timer) })
    }
}

/// An answer whose time has not come.
#[derive(Debug)]
struct Due {
    at_ns: u64,
    number: u64,
    completer: Completer,
    outcome: Outcome,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    /// The earliest is the greatest.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.at_ns, other.number).cmp(&(self.at_ns, self.number))
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Debug)]
struct State {
    device: Device,
    files: u64,
    /// When the last write will be over.
    written_ns: u64,
    answers: BinaryHeap<Due>,
    numbers: u64,
    closed: bool,
}

impl State {
    /// When an operation is over that comes now.
    fn due_ns(&mut self, now_ns: u64, begins: u64, operation: &Operation) -> u64 {
        let (offset, bytes, write) = match operation {
            Operation::Read { offset, buffer } => (*offset, buffer.as_slice().len() as u64, false),
            Operation::Write { offset, buffer } => (*offset, buffer.as_slice().len() as u64, true),
            Operation::SyncData => (0, 0, true),
        };
        let place = (begins + offset) % self.device.model().capacity_bytes.max(1);
        let asked = device_model::Operation { offset: place, bytes, write };
        let due_ns = self.device.serve(now_ns as f64, &asked) as u64;
        if write {
            self.written_ns = self.written_ns.max(due_ns);
            return if bytes == 0 { self.written_ns } else { due_ns };
        }
        due_ns
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        wake_sharply();
        let mut state = self.lock();
        loop {
            let now_ns = SystemClock.now_ns();
            match state.answers.peek() {
                Some(due) if due.at_ns <= now_ns => {
                    let Due { completer, outcome, .. } = state.answers.pop().expect("seen above");
                    drop(state);
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

/// Has the system wake this thread when it is time and not some tens of microseconds later.
fn wake_sharply() {
    #[cfg(all(target_os = "linux", not(miri), not(feature = "portable")))]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

/// The thread that answers.
#[derive(Debug)]
struct Timer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.news.notify_all();
        // It may be this one, if the last file went with an answer.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// An operation below.
struct Below {
    shared: Arc<Shared>,
    at_ns: u64,
    completer: Mutex<Option<Completer>>,
}

impl Job for Below {
    fn answered(&self, outcome: Outcome) -> Option<Completion> {
        let completer = self.completer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let completer = completer.expect("an operation is answered once");
        let mut state = self.shared.lock();
        state.numbers += 1;
        let number = state.numbers;
        state.answers.push(Due { at_ns: self.at_ns, number, completer, outcome });
        let is_next = state.answers.peek().is_some_and(|due| due.number == number);
        drop(state);
        if is_next {
            self.shared.news.notify_one();
        }
        None
    }
}

#[derive(Debug)]
struct ProfileFile {
    inner: Arc<dyn File>,
    /// Where the file begins on the device.
    begins: u64,
    timer: Arc<Timer>,
}

impl File for ProfileFile {
    fn submit(&self, operation: Operation) -> Completion {
        let (completer, completion) = Completion::pending_with(operation.buffer());
        let shared = Arc::clone(&self.timer.shared);
        let at_ns = shared.lock().due_ns(SystemClock.now_ns(), self.begins, &operation);
        let below = Driven::new(Below { shared, at_ns, completer: Mutex::new(Some(completer)) });
        below.start(self.inner.submit(operation));
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

impl Io for ProfileIo {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        Ok(self.wrap(path, self.inner.open(path, mode)?))
    }

    fn open_direct(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        Ok(self.wrap(path, self.inner.open_direct(path, mode)?))
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
    use crate::rng::Rng;

    const PAGE: usize = 4096;

    fn device(name: &str) -> DeviceModel {
        DeviceModel::named(name).expect("it has a name")
    }

    fn state(name: &str) -> State {
        let answers = BinaryHeap::new();
        State {
            device: Device::new(device(name)),
            files: 0,
            written_ns: 0,
            answers,
            numbers: 0,
            closed: false,
        }
    }

    fn read(offset: u64) -> Operation {
        Operation::Read { offset, buffer: Buffer::from(vec![0; PAGE]) }
    }

    #[test]
    fn answers_are_due_when_the_model_says() {
        let mut state = state("network-volume");
        // 3,000 operations a second, each of which takes 0.7 ms at least.
        let due: Vec<u64> = (0..3000).map(|at| state.due_ns(0, 0, &read(at * PAGE as u64))).collect();
        assert_eq!(due[0], 700_000);
        let last_ms = due[2999] as f64 / 1e6;
        assert!((last_ms - 1000.4).abs() < 1.0, "{last_ms}");
        let write = Operation::Write { offset: 0, buffer: Buffer::from(vec![0; 125 << 20]) };
        let written = state.due_ns(2_000_000_000, 0, &write);
        assert!((written as f64 / 3e9 - 1.0).abs() < 0.01, "125 MiB take a second: {written}");
        assert!(state.due_ns(2_000_000_100, 0, &Operation::SyncData) >= written);
    }

    #[test]
    fn a_disk_seeks_and_turns() {
        let mut state = state("hdd-7200");
        let mut rng = Rng::new(5);
        let (mut now_ns, reads) = (0, 20_000);
        for _ in 0..reads {
            let offset = rng.below(999_000_000_000 / PAGE as u64) * PAGE as u64;
            now_ns = state.due_ns(now_ns, 0, &read(offset));
        }
        let mean_ms = now_ns as f64 / f64::from(reads) / 1e6;
        assert!((mean_ms / (8.2 + 4.17 + 0.03) - 1.0).abs() < 0.01, "{mean_ms} ms");
    }

    #[test]
    fn other_directories_are_as_below_and_bytes_are_the_same() {
        let memory = MemoryIo::new();
        for dir in ["/slow", "/fast"] {
            memory.create_dir_all(Path::new(dir)).expect("memory");
        }
        let io = ProfileIo::new(Arc::new(memory.clone()), Path::new("/slow"), device("fusion-io"));
        for path in ["/slow/a", "/fast/a"] {
            let file = io.open(Path::new(path), OpenMode::CreateNew).expect("created");
            file.write_at(3, b"bytes").expect("written");
            file.sync_data().expect("synced");
            let mut bytes = [0; 5];
            assert_eq!(file.read_full_at(3, &mut bytes).expect("read"), 5);
            assert_eq!(&bytes, b"bytes");
        }
        let waits = |path: &str| format!("{:?}", io.open(Path::new(path), OpenMode::Read).expect("there"));
        assert!(waits("/slow/a").contains("ProfileFile") && !waits("/fast/a").contains("ProfileFile"));
        drop(io.open(Path::new("/slow/a"), OpenMode::Read).expect("there").submit(read(0)));
    }

    /// Real time against simulated time.
    #[test]
    #[ignore = "measures times: .ci/deep governor"]
    fn real_time_is_about_simulated_time() {
        for (name, readers, each) in
            [("network-volume", 1, 1500), ("network-volume", 32, 200), ("hdd-7200", 4, 50)]
        {
            let io = ProfileIo::new(Arc::new(MemoryIo::new()), Path::new("/"), device(name));
            let file = io.open(Path::new("/a"), OpenMode::CreateNew).expect("created");
            file.set_len(1 << 29).expect("memory");
            let began_ns = SystemClock.now_ns();
            run_tasks(
                (0..readers)
                    .map(async |reader| {
                        let mut rng = Rng::new(reader);
                        for _ in 0..each {
                            let offset = rng.below((1 << 29) / PAGE as u64) * PAGE as u64;
                            assert_eq!(file.submit(read(offset)).await.result.expect("read"), PAGE);
                        }
                    })
                    .collect(),
            );
            let took = (SystemClock.now_ns() - began_ns) as f64;
            // Each reader asks for its next page when it has the one before.
            let mut simulated = state(name);
            let mut next: Vec<(u64, u64, Rng, u32)> =
                (0..readers).map(|reader| (0, reader, Rng::new(reader), 0)).collect();
            let mut last = 0;
            while let Some(at) = (0..next.len()).filter(|at| next[*at].3 < each).min_by_key(|at| next[*at].0)
            {
                let (now_ns, _, rng, done) = &mut next[at];
                let offset = rng.below((1 << 29) / PAGE as u64) * PAGE as u64;
                *now_ns = simulated.due_ns(*now_ns, 0, &read(offset));
                *done += 1;
                last = last.max(*now_ns);
            }
            let ratio = took / last as f64;
            println!("{name}, {readers} readers: real time is {ratio:.3} of simulated time");
            assert!((ratio - 1.0).abs() < 0.05, "{name}, {readers} readers: {ratio}");
        }
    }
}
