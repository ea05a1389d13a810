//! A file system that remembers the order of everything done to it, fails on demand, and tells what a crash leaves.
//!
//! # Crash model
//! [`RecordingIo::crash`] replays the first operations into what a device holds for certain, and lets chance decide
//! on the rest:
//!
//! | operation | for certain after | before that |
//! |---|---|---|
//! | write, change of length | a good sync of the file | each 512-byte sector of each write is there or not, alone |
//! | create, rename, remove | a sync of the directory of the (new) name | each is there or not, alone; none is half there |
//! | make a directory | at once | |
//! | what a failed sync should have covered | a new write and a good sync | chance decides, for ever |
//!
//! So writes are reordered and torn, and a file may have its name but not its bytes. Seed 0 keeps nothing that is not
//! certain, seed 1 keeps everything, every other one is a draw.
//!
//! # Operations under way
//! After [`RecordingIo::defer`] operations of files do not happen inside of `submit` but one by one, when the test
//! [releases](RecordingIo::release) them, in an order that a seed chooses. A write under way is like one without a
//! sync: a crash may leave any part of it. A sync covers the writes that were answered before it was submitted, and
//! no others, even if they are answered before the sync is. Reads see what was released before. After
//! [`RecordingIo::stop`], the end of the machine, operations under way fail and so do all that come later, so that
//! their waiters can be dropped.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::completion::Completer;
use super::{
    Action, Buffer, Completion, File, Io, IoError, LockGuard, MemoryIo, OpenMode, Operation, Outcome, Result,
};
use crate::rng::Rng;

/// Bytes that a device writes whole or not at all.
pub const SECTOR_BYTES: u64 = 512;

/// A [`MemoryIo`] under observation. Clones are the same file system.
#[derive(Clone, Debug)]
pub struct RecordingIo(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    memory: MemoryIo,
    /// The files that were there, for certain, before the first operation.
    base: MemoryIo,
    /// The files of `base` under the numbers that they have in `memory`.
    base_numbers: BTreeMap<PathBuf, u64>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    events: Vec<Event>,
    faults: Vec<Fault>,
    short_reads: bool,
    /// Chooses what is released next; operations happen at once if there is none.
    order: Option<Rng>,
    waiting: Vec<Waiting>,
    /// Reads happen at once, but their answers are kept back.
    holds_reads: bool,
    held: Vec<(Completer, Outcome)>,
    /// The machine has stopped.
    stopped: bool,
}

/// An operation under way.
#[derive(Debug)]
struct Waiting {
    file: Target,
    operation: Operation,
    completer: Completer,
    /// Number of events when it was submitted; a write's own event has this number.
    submitted: usize,
}

#[derive(Clone, Debug)]
enum Event {
    MakeDir(PathBuf),
    Create {
        path: PathBuf,
        file: u64,
    },
    /// A write is submitted. Answered at once, or by a later event.
    Write {
        file: u64,
        offset: u64,
        bytes: Vec<u8>,
        answered: bool,
    },
    /// The write that is event `write` is answered.
    Written {
        file: u64,
        write: usize,
        well: bool,
    },
    Length {
        file: u64,
        len: u64,
    },
    /// A sync of what was answered before event `submitted`.
    Sync {
        file: u64,
        submitted: usize,
    },
    SyncFailed {
        file: u64,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
        file: u64,
    },
    Remove {
        path: PathBuf,
    },
    SyncDir(PathBuf),
}

/// The kind of an injected fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// The device fails.
    Broken,
    /// There is no space.
    Full,
    /// There is no answer in time.
    Silent,
}

/// A fault to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Which operations fail.
    pub on: Action,
    /// Number of them that go well before.
    pub skip: u64,
    /// Number of them that fail then.
    pub times: u64,
    /// The kind of their failure.
    pub kind: FaultKind,
}

impl RecordingIo {
    /// Records what is done to `memory`; what it holds now is for certain.
    #[must_use]
    pub fn new(memory: &MemoryIo) -> Self {
        let base_numbers = memory
            .files()
            .into_keys()
            .filter_map(|path| Some((path.clone(), memory.number_of(&path)?)))
            .collect();
        let base = memory.copy();
        Self(Arc::new(Shared { memory: memory.clone(), base, base_numbers, state: Mutex::default() }))
    }

    /// The file system as the running program sees it.
    #[must_use]
    pub fn memory(&self) -> &MemoryIo {
        &self.0.memory
    }

    /// Number of operations so far.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.lock().events.len()
    }

    /// Injects a fault.
    pub fn inject(&self, fault: Fault) {
        self.lock().faults.push(fault);
    }

    /// Forgets the faults that have not happened.
    pub fn heal(&self) {
        self.lock().faults.clear();
    }

    /// From now on reads give about half of what was asked for, but a byte; those of direct files a block.
    pub fn short_reads(&self, short: bool) {
        self.lock().short_reads = short;
    }

    /// From now on operations of files are under way until they are released; `seed` chooses their order. The thread
    /// that releases must not wait for one.
    pub fn defer(&self, seed: u64) {
        self.lock().order = Some(Rng::new(seed));
    }

    /// Number of operations under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Lets one of the operations under way happen. Gives whether there was one.
    pub fn release(&self) -> bool {
        let mut state = self.lock();
        let count = state.waiting.len() as u64;
        if count == 0 {
            return false;
        }
        let chosen = state.order.as_mut().map_or(0, |order| order.below(count)) as usize;
        let Waiting { file, operation, completer, submitted } = state.waiting.swap_remove(chosen);
        let (result, buffer) = file.perform(&mut state, operation, submitted, true);
        drop(state);
        completer.complete(result, buffer);
        true
    }

    /// Lets everything under way happen, and operations happen at once again.
    pub fn release_all(&self) {
        while self.release() {}
        self.lock().order = None;
        while self.release() {}
    }

    /// From now on reads happen at once, but their answers are kept back (`false`: no more of them), until
    /// [`RecordingIo::answer_reads`].
    pub fn hold_reads(&self, hold: bool) {
        self.lock().holds_reads = hold;
    }

    /// Gives the answers that were kept back, and how many there were.
    pub fn answer_reads(&self) -> usize {
        let held = std::mem::take(&mut self.lock().held);
        let count = held.len();
        held.into_iter().for_each(|(completer, outcome)| completer.complete(outcome.result, outcome.buffer));
        count
    }

    /// The machine stops: what is under way fails, without a trace or with one, and so does everything from now on.
    pub fn stop(&self) {
        let waiting = {
            let mut state = self.lock();
            state.stopped = true;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waiting::fail);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The files that a crash right after the first `operations` operations may leave; `seed` chooses among the
    /// possibilities.
    #[must_use]
    pub fn crash(&self, operations: usize, seed: u64) -> MemoryIo {
        let events = self.lock().events[..operations].to_vec();
        let mut disk = Disk::new(&self.0, seed);
        for (number, event) in events.into_iter().enumerate() {
            disk.replay(number, event);
        }
        disk.crash()
    }
}

impl Waiting {
    /// Answers that it did not happen.
    fn fail(self) {
        let (action, offset) = self.operation.kind();
        let error = stopped(action, self.file.inner.path(), offset);
        self.completer.complete(Err(error), self.operation.into_buffer());
    }
}

impl Drop for State {
    fn drop(&mut self) {
        std::mem::take(&mut self.waiting).into_iter().for_each(Waiting::fail);
        let held = std::mem::take(&mut self.held);
        held.into_iter().for_each(|(completer, outcome)| completer.complete(outcome.result, outcome.buffer));
    }
}

fn stopped(action: Action, path: &Path, offset: Option<u64>) -> IoError {
    IoError::new(action, path, offset, io::Error::other("the machine has stopped (simulated)"))
}

impl State {
    /// Fails if a fault is due on `action`.
    fn check(&mut self, action: Action, path: &Path, offset: Option<u64>) -> Result<()> {
        if self.stopped {
            return Err(stopped(action, path, offset));
        }
        for fault in &mut self.faults {
            if fault.on != action || fault.times == 0 {
                continue;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
                continue;
            }
            fault.times -= 1;
            let error = match fault.kind {
                FaultKind::Broken => io::Error::other("the device is broken (injected)"),
                FaultKind::Full => io::ErrorKind::StorageFull.into(),
                FaultKind::Silent => io::ErrorKind::TimedOut.into(),
            };
            return Err(IoError::new(action, path, offset, error));
        }
        Ok(())
    }
}

/// The fate of an uncertain change.
enum Fate {
    There,
    Chance,
    Open,
}

/// The contents of a device: for certain, and perhaps.
struct Disk {
    rng: Rng,
    /// Probability that an uncertain thing is there.
    luck: f64,
    directories: Vec<PathBuf>,
    names: BTreeMap<PathBuf, u64>,
    pending_names: Vec<Event>,
    files: BTreeMap<u64, DiskFile>,
}

#[derive(Default)]
struct DiskFile {
    bytes: Vec<u8>,
    pending: Vec<Change>,
}

/// A change of a file that is not certain.
struct Change {
    /// The number of `event`.
    number: usize,
    event: Event,
    /// By which event it was answered, and whether it went well.
    answered: Option<(usize, bool)>,
}

impl Disk {
    fn new(shared: &Shared, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let luck = match seed {
            0 => 0.0,
            1 => 1.0,
            _ => [0.15, 0.5, 0.85][rng.below(3) as usize],
        };
        let bytes = shared.base.files();
        let files = shared
            .base_numbers
            .iter()
            .map(|(path, number)| (*number, DiskFile { bytes: bytes[path].clone(), pending: Vec::new() }));
        Self {
            rng,
            luck,
            directories: shared.base.directories(),
            names: shared.base_numbers.clone(),
            pending_names: Vec::new(),
            files: files.collect(),
        }
    }

    fn replay(&mut self, number: usize, event: Event) {
        match event {
            Event::MakeDir(path) => self.directories.push(path),
            Event::Create { .. } | Event::Rename { .. } | Event::Remove { .. } => {
                self.pending_names.push(event);
            }
            Event::Write { file, answered, .. } => {
                let answered = answered.then_some((number, true));
                self.files.entry(file).or_default().pending.push(Change { number, event, answered });
            }
            Event::Written { file, write, well } => {
                let pending = &mut self.files.entry(file).or_default().pending;
                let change = pending.iter_mut().find(|change| change.number == write);
                change.expect("a write is uncertain until it is answered").answered = Some((number, well));
            }
            Event::Length { file, .. } => {
                let answered = Some((number, true));
                self.files.entry(file).or_default().pending.push(Change { number, event, answered });
            }
            Event::Sync { file, submitted } => {
                self.settle(file, |change| match change.answered {
                    Some((at, true)) if at < submitted => Fate::There,
                    // What failed and was synced is what it is.
                    Some((at, false)) if at < submitted => Fate::Chance,
                    _ => Fate::Open,
                });
            }
            Event::SyncFailed { file } => {
                self.settle(file, |change| if change.answered.is_some() { Fate::Chance } else { Fate::Open });
            }
            Event::SyncDir(dir) => {
                let due = self.pending_names.extract_if(.., |event| name_of(event).parent() == Some(&dir));
                for event in due.collect::<Vec<_>>() {
                    self.apply_name(event);
                }
            }
        }
    }

    /// Decides what pending changes of a file have left.
    fn settle(&mut self, number: u64, fate: impl Fn(&Change) -> Fate) {
        let (rng, luck) = (&mut self.rng, self.luck);
        let file = self.files.entry(number).or_default();
        for change in std::mem::take(&mut file.pending) {
            let event = &change.event;
            match fate(&change) {
                Fate::Open => file.pending.push(change),
                Fate::There => file.apply(event, |_| true),
                Fate::Chance if luck == 0.0 || luck == 1.0 => file.apply(event, |_| luck == 1.0),
                Fate::Chance if rng.chance(0.3) => file.apply(event, |_| rng.chance(luck)),
                Fate::Chance => {
                    let all = rng.chance(luck);
                    file.apply(event, |_| all);
                }
            }
        }
    }

    fn apply_name(&mut self, event: Event) {
        match event {
            Event::Create { path, file } => {
                self.names.insert(path, file);
            }
            Event::Rename { from, to, file } => {
                if self.names.get(&from) == Some(&file) {
                    self.names.remove(&from);
                }
                self.names.insert(to, file);
            }
            Event::Remove { path } => {
                self.names.remove(&path);
            }
            _ => unreachable!("only changes of names are kept here"),
        }
    }

    fn crash(mut self) -> MemoryIo {
        for number in self.files.keys().copied().collect::<Vec<_>>() {
            self.settle(number, |_| Fate::Chance);
        }
        for event in std::mem::take(&mut self.pending_names) {
            if self.rng.chance(self.luck) {
                self.apply_name(event);
            }
        }
        let (files, names) = (self.files, self.names);
        let files = names.into_iter().map(|(path, number)| {
            let bytes = files.get(&number).map_or_else(Vec::new, |file| file.bytes.clone());
            (path, bytes)
        });
        MemoryIo::with_files(self.directories, files)
    }
}

fn name_of(event: &Event) -> &Path {
    match event {
        Event::Create { path, .. } | Event::Remove { path } => path,
        Event::Rename { to, .. } => to,
        _ => unreachable!("only changes of names are kept here"),
    }
}

impl DiskFile {
    /// Applies a change of the bytes, sector by sector as `keep` says.
    fn apply(&mut self, event: &Event, mut keep: impl FnMut(u64) -> bool) {
        match event {
            Event::Write { offset, bytes, .. } => {
                let end = offset + bytes.len() as u64;
                let mut at = *offset;
                while at < end {
                    let sector = at / SECTOR_BYTES;
                    let until = end.min((sector + 1) * SECTOR_BYTES);
                    if keep(sector) {
                        if self.bytes.len() < until as usize {
                            self.bytes.resize(until as usize, 0);
                        }
                        self.bytes[at as usize..until as usize]
                            .copy_from_slice(&bytes[(at - offset) as usize..(until - offset) as usize]);
                    }
                    at = until;
                }
            }
            Event::Length { len, .. } => {
                if keep(0) {
                    self.bytes.resize(*len as usize, 0);
                }
            }
            _ => unreachable!("only changes of bytes are kept here"),
        }
    }
}

impl RecordingIo {
    fn open_file(&self, path: &Path, mode: OpenMode, direct: bool) -> Result<Arc<dyn File>> {
        let mut state = self.lock();
        let new = self.0.memory.number_of(path).is_none();
        if new {
            state.check(Action::Open, path, None)?;
        }
        let memory = &self.0.memory;
        let inner = if direct { memory.open_direct(path, mode)? } else { memory.open(path, mode)? };
        let number = memory.number_of(path).expect("an open file has a number");
        if new {
            state.events.push(Event::Create { path: path.to_path_buf(), file: number });
        }
        Ok(Arc::new(RecordedFile { io: self.clone(), target: Target { inner, number } }))
    }
}

impl Io for RecordingIo {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        self.open_file(path, mode, false)
    }

    fn open_direct(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        self.open_file(path, mode, true)
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        let mut state = self.lock();
        state.check(Action::CreateDir, path, None)?;
        self.0.memory.create_dir_all(path)?;
        state.events.push(Event::MakeDir(path.to_path_buf()));
        Ok(())
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.lock().check(Action::List, dir, None)?;
        self.0.memory.list(dir)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.0.memory.exists(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut state = self.lock();
        state.check(Action::Rename, from, None)?;
        let file = self.0.memory.number_of(from);
        self.0.memory.rename(from, to)?;
        let file = file.expect("a file that was renamed has a number");
        state.events.push(Event::Rename { from: from.to_path_buf(), to: to.to_path_buf(), file });
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let mut state = self.lock();
        state.check(Action::Remove, path, None)?;
        self.0.memory.remove(path)?;
        state.events.push(Event::Remove { path: path.to_path_buf() });
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let mut state = self.lock();
        state.check(Action::SyncDir, dir, None)?;
        self.0.memory.sync_dir(dir)?;
        state.events.push(Event::SyncDir(dir.to_path_buf()));
        Ok(())
    }

    fn lock_exclusive(&self, path: &Path) -> Result<LockGuard> {
        drop(self.open(path, OpenMode::Create)?);
        self.0.memory.lock_exclusive(path)
    }

    fn lock_shared(&self, path: &Path) -> Result<Option<LockGuard>> {
        self.0.memory.lock_shared(path)
    }
}

#[derive(Debug)]
struct RecordedFile {
    io: RecordingIo,
    target: Target,
}

/// A file without its file system, which keeps operations under way and must not be kept by them.
#[derive(Clone, Debug)]
struct Target {
    inner: Arc<dyn File>,
    number: u64,
}

impl Target {
    fn read(&self, state: &mut State, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        state.check(Action::Read, self.inner.path(), Some(offset))?;
        let half = bytes.len().div_ceil(2).next_multiple_of(self.inner.alignment());
        let count = if state.short_reads { half } else { bytes.len() };
        self.inner.read_at(offset, &mut bytes[..count])
    }

    fn write(&self, state: &mut State, offset: u64, bytes: &[u8]) -> Result<usize> {
        state.check(Action::Write, self.inner.path(), Some(offset))?;
        self.inner.write_at(offset, bytes)?;
        Ok(bytes.len())
    }

    fn write_event(&self, offset: u64, buffer: &Buffer, answered: bool) -> Event {
        Event::Write { file: self.number, offset, bytes: buffer.as_slice().to_vec(), answered }
    }

    /// Lets the operation happen that was submitted at event `submitted`: at once, or after it was `deferred`.
    fn perform(
        &self,
        state: &mut State,
        operation: Operation,
        submitted: usize,
        deferred: bool,
    ) -> (Result<usize>, Buffer) {
        let file = self.number;
        match operation {
            Operation::Read { offset, mut buffer } => {
                let result = self.read(state, offset, buffer.as_mut_slice());
                (result, buffer)
            }
            Operation::Write { offset, buffer } => {
                let result = self.write(state, offset, buffer.as_slice());
                if deferred {
                    state.events.push(Event::Written { file, write: submitted, well: result.is_ok() });
                } else if result.is_ok() {
                    state.events.push(self.write_event(offset, &buffer, true));
                }
                (result, buffer)
            }
            Operation::SyncData => {
                let result = state.check(Action::Sync, self.inner.path(), None);
                state.events.push(match result {
                    Ok(()) => Event::Sync { file, submitted },
                    Err(_) => Event::SyncFailed { file },
                });
                (result.map(|()| 0), Buffer::empty())
            }
        }
    }
}

impl File for RecordedFile {
    fn submit(&self, operation: Operation) -> Completion {
        if self.target.inner.alignment() > 1 {
            operation.assert_aligned();
        }
        let mut state = self.io.lock();
        let submitted = state.events.len();
        if state.order.is_none() || state.stopped {
            let is_read = matches!(operation, Operation::Read { .. });
            let (result, buffer) = self.target.perform(&mut state, operation, submitted, false);
            if !is_read || !state.holds_reads {
                return Completion::ready(result, buffer);
            }
            let (completer, completion) = Completion::pending_with(&buffer);
            state.held.push((completer, Outcome { result, buffer }));
            return completion;
        }
        if let Operation::Write { offset, buffer } = &operation {
            let event = self.target.write_event(*offset, buffer, false);
            state.events.push(event);
        }
        let (completer, completion) = Completion::pending_with(operation.buffer());
        let file = self.target.clone();
        state.waiting.push(Waiting { file, operation, completer, submitted });
        completion
    }

    fn alignment(&self) -> usize {
        self.target.inner.alignment()
    }

    fn path(&self) -> &Path {
        self.target.inner.path()
    }

    fn len(&self) -> Result<u64> {
        self.target.inner.len()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let mut state = self.io.lock();
        state.check(Action::Resize, self.path(), None)?;
        self.target.inner.set_len(len)?;
        state.events.push(Event::Length { file: self.target.number, len });
        Ok(())
    }

    fn allocate(&self, len: u64) -> Result<()> {
        let mut state = self.io.lock();
        state.check(Action::Allocate, self.path(), None)?;
        if self.target.inner.len()? < len {
            self.target.inner.allocate(len)?;
            state.events.push(Event::Length { file: self.target.number, len });
        }
        Ok(())
    }

    /// Like writing zeros: a crash before the next sync may leave any part of what was there.
    fn punch(&self, offset: u64, len: u64) -> Result<bool> {
        let mut state = self.io.lock();
        state.check(Action::Punch, self.path(), Some(offset))?;
        let done = self.target.inner.punch(offset, len)?;
        if done {
            let (file, bytes) = (self.target.number, vec![0; len as usize]);
            state.events.push(Event::Write { file, offset, bytes, answered: true });
        }
        Ok(done)
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        self.io.lock().check(Action::Allocate, self.path(), Some(offset))?;
        self.target.inner.reserve(offset, len)
    }
}

#[cfg(test)]
mod tests;
