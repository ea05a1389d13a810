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

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{
    Action, Buffer, Completion, File, Io, IoError, LockGuard, MemoryIo, OpenMode, Operation, Result,
};
use crate::rng::Rng;

/// What a device writes whole or not at all.
pub const SECTOR_BYTES: u64 = 512;

/// A [`MemoryIo`] under observation. Clones are the same file system.
#[derive(Clone, Debug)]
pub struct RecordingIo(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    memory: MemoryIo,
    /// What was there, for certain, before the first operation.
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
}

#[derive(Clone, Debug)]
enum Event {
    MakeDir(PathBuf),
    Create { path: PathBuf, file: u64 },
    Write { file: u64, offset: u64, bytes: Vec<u8> },
    Length { file: u64, len: u64 },
    Sync { file: u64 },
    SyncFailed { file: u64 },
    Rename { from: PathBuf, to: PathBuf, file: u64 },
    Remove { path: PathBuf },
    SyncDir(PathBuf),
}

/// What an injected fault looks like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// The device fails.
    Broken,
    /// There is no space.
    Full,
}

/// A fault to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Which operations fail.
    pub on: Action,
    /// How many of them go well before.
    pub skip: u64,
    /// How many of them fail then.
    pub times: u64,
    /// How.
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

    /// How many operations there were.
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

    /// From now on reads give at most half of what was asked for, but a byte.
    pub fn short_reads(&self, short: bool) {
        self.lock().short_reads = short;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a crash right after the first `operations` operations may leave; `seed` chooses among the possibilities.
    #[must_use]
    pub fn crash(&self, operations: usize, seed: u64) -> MemoryIo {
        let events = self.lock().events[..operations].to_vec();
        let mut disk = Disk::new(&self.0, seed);
        for event in events {
            disk.replay(event);
        }
        disk.crash()
    }
}

impl State {
    /// Fails if a fault is due on `action`.
    fn check(&mut self, action: Action, path: &Path, offset: Option<u64>) -> Result<()> {
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
            };
            return Err(IoError::new(action, path, offset, error));
        }
        Ok(())
    }
}

/// What a device holds: for certain, and perhaps.
struct Disk {
    rng: Rng,
    /// How likely an uncertain thing is there.
    luck: f64,
    directories: Vec<PathBuf>,
    names: BTreeMap<PathBuf, u64>,
    pending_names: Vec<Event>,
    files: BTreeMap<u64, DiskFile>,
}

#[derive(Default)]
struct DiskFile {
    bytes: Vec<u8>,
    pending: Vec<Event>,
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

    fn replay(&mut self, event: Event) {
        match event {
            Event::MakeDir(path) => self.directories.push(path),
            Event::Create { .. } | Event::Rename { .. } | Event::Remove { .. } => {
                self.pending_names.push(event);
            }
            Event::Write { file, .. } | Event::Length { file, .. } => {
                self.files.entry(file).or_default().pending.push(event);
            }
            Event::Sync { file } => {
                let file = self.files.entry(file).or_default();
                for event in std::mem::take(&mut file.pending) {
                    file.apply(&event, |_| true);
                }
            }
            Event::SyncFailed { file } => self.settle(file),
            Event::SyncDir(dir) => {
                let due = self.pending_names.extract_if(.., |event| name_of(event).parent() == Some(&dir));
                for event in due.collect::<Vec<_>>() {
                    self.apply_name(event);
                }
            }
        }
    }

    /// Chance decides what the pending operations on a file have left.
    fn settle(&mut self, number: u64) {
        let (rng, luck) = (&mut self.rng, self.luck);
        let file = self.files.entry(number).or_default();
        for event in std::mem::take(&mut file.pending) {
            if luck == 0.0 || luck == 1.0 {
                file.apply(&event, |_| luck == 1.0);
            } else if rng.chance(0.3) {
                file.apply(&event, |_| rng.chance(luck));
            } else {
                let all = rng.chance(luck);
                file.apply(&event, |_| all);
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
            self.settle(number);
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
        Ok(Arc::new(RecordedFile { io: self.clone(), inner, number }))
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
}

#[derive(Debug)]
struct RecordedFile {
    io: RecordingIo,
    inner: Arc<dyn File>,
    number: u64,
}

impl RecordedFile {
    fn read(&self, state: &mut State, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        state.check(Action::Read, self.path(), Some(offset))?;
        let count = if state.short_reads { bytes.len().div_ceil(2) } else { bytes.len() };
        self.inner.read_at(offset, &mut bytes[..count])
    }

    fn write(&self, state: &mut State, offset: u64, bytes: &[u8]) -> Result<usize> {
        state.check(Action::Write, self.path(), Some(offset))?;
        self.inner.write_at(offset, bytes)?;
        state.events.push(Event::Write { file: self.number, offset, bytes: bytes.to_vec() });
        Ok(bytes.len())
    }
}

impl File for RecordedFile {
    fn submit(&self, operation: Operation) -> Completion {
        if self.inner.alignment() > 1 {
            operation.assert_aligned();
        }
        let mut state = self.io.lock();
        match operation {
            Operation::Read { offset, mut buffer } => {
                let result = self.read(&mut state, offset, buffer.as_mut_slice());
                Completion::ready(result, buffer)
            }
            Operation::Write { offset, buffer } => {
                let result = self.write(&mut state, offset, buffer.as_slice());
                Completion::ready(result, buffer)
            }
            Operation::SyncData => {
                let result = state.check(Action::Sync, self.path(), None);
                let file = self.number;
                state.events.push(if result.is_ok() {
                    Event::Sync { file }
                } else {
                    Event::SyncFailed { file }
                });
                Completion::ready(result.map(|()| 0), Buffer::empty())
            }
        }
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
        let mut state = self.io.lock();
        state.check(Action::Resize, self.path(), None)?;
        self.inner.set_len(len)?;
        state.events.push(Event::Length { file: self.number, len });
        Ok(())
    }

    fn forget(&self, end: u64) {
        self.inner.forget(end);
    }

    fn allocate(&self, len: u64) -> Result<()> {
        let mut state = self.io.lock();
        state.check(Action::Allocate, self.path(), None)?;
        if self.inner.len()? < len {
            self.inner.allocate(len)?;
            state.events.push(Event::Length { file: self.number, len });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded() -> (RecordingIo, Arc<dyn File>) {
        let io = RecordingIo::new(&MemoryIo::new());
        io.create_dir_all(Path::new("d")).expect("made");
        let file = io.open(Path::new("d/a"), OpenMode::CreateNew).expect("created");
        (io, file)
    }

    fn bytes_of(io: &MemoryIo, path: &str) -> Option<Vec<u8>> {
        io.files().remove(Path::new(path))
    }

    #[test]
    fn what_is_synced_is_there_in_every_image() {
        let (io, file) = recorded();
        file.write_at(0, &[1; 2000]).expect("written");
        file.sync_data().expect("synced");
        io.sync_dir(Path::new("d")).expect("synced");
        file.write_at(0, &[2; 2000]).expect("written");
        let (mut torn, mut lost, mut kept) = (false, false, false);
        for seed in 0..50 {
            let bytes = bytes_of(&io.crash(io.operations(), seed), "d/a").expect("its name is durable");
            assert_eq!(bytes.len(), 2000);
            let sectors: Vec<u8> = bytes.chunks(512).map(|sector| sector[0]).collect();
            assert!(bytes.iter().zip((0..).map(|at| sectors[at / 512])).all(|(byte, first)| *byte == first));
            lost |= sectors.iter().all(|sector| *sector == 1);
            kept |= sectors.iter().all(|sector| *sector == 2);
            torn |= sectors.contains(&1) && sectors.contains(&2);
        }
        assert!(torn && lost && kept, "the images miss a possibility");
    }

    #[test]
    fn names_need_a_sync_of_their_directory() {
        let (io, file) = recorded();
        file.write_at(0, b"x").expect("written");
        file.sync_data().expect("synced");
        assert_eq!(bytes_of(&io.crash(io.operations(), 0), "d/a"), None);
        io.rename(Path::new("d/a"), Path::new("d/b")).expect("renamed");
        io.sync_dir(Path::new("d")).expect("synced");
        let image = io.crash(io.operations(), 0);
        assert_eq!(bytes_of(&image, "d/a"), None);
        assert_eq!(bytes_of(&image, "d/b").as_deref(), Some(&b"x"[..]));
        io.remove(Path::new("d/b")).expect("removed");
        assert!(bytes_of(&io.crash(io.operations(), 0), "d/b").is_some());
        assert!(bytes_of(&io.crash(io.operations(), 1), "d/b").is_none());
    }

    #[test]
    fn a_failed_sync_loses_what_a_later_one_does_not_bring_back() {
        let (io, file) = recorded();
        io.sync_dir(Path::new("d")).expect("synced");
        file.write_at(0, b"x").expect("written");
        io.inject(Fault { on: Action::Sync, skip: 0, times: 1, kind: FaultKind::Broken });
        file.sync_data().expect_err("injected");
        file.sync_data().expect("the next one seems to go well");
        assert_eq!(bytes_of(&io.crash(io.operations(), 0), "d/a").as_deref(), Some(&b""[..]));
    }

    #[test]
    fn faults_come_when_they_are_due() {
        let (io, file) = recorded();
        io.inject(Fault { on: Action::Write, skip: 1, times: 2, kind: FaultKind::Full });
        file.write_at(0, b"x").expect("skipped");
        assert!(file.write_at(1, b"x").expect_err("due").is_full());
        assert!(file.write_at(1, b"x").expect_err("due").is_full());
        file.write_at(1, b"x").expect("over");
        io.short_reads(true);
        let mut bytes = [0; 2];
        assert_eq!(file.read_at(0, &mut bytes).expect("read"), 1);
        assert_eq!(file.read_full_at(0, &mut bytes).expect("read"), 2);
    }

    #[test]
    fn an_image_can_crash_again() {
        let (io, file) = recorded();
        file.write_at(0, b"one").expect("written");
        let image = io.crash(io.operations(), 1);
        let again = RecordingIo::new(&image);
        let file = again.open(Path::new("d/a"), OpenMode::Write).expect("it is there");
        file.write_at(0, b"two").expect("written");
        assert_eq!(bytes_of(&again.crash(0, 1), "d/a").as_deref(), Some(&b"one"[..]));
        assert_eq!(bytes_of(&again.crash(again.operations(), 0), "d/a").as_deref(), Some(&b"one"[..]));
        assert_eq!(bytes_of(&again.crash(again.operations(), 1), "d/a").as_deref(), Some(&b"two"[..]));
    }
}
