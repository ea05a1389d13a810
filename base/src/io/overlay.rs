//! An [`Io`] over another one that it never changes: what is written stays in memory and is gone with it.
//!
//! For looking at what is on a medium that cannot be written, or must not be. A reader that repairs what a crash has left
//! opens over this one as a writer would, and what it repairs is there for it alone.
//!
//! ```text
//!   names   path → contents, or gone           what is not named here is as it is below
//!   blocks  4 KiB each, those that were written; a block of zeros takes no memory
//!   below   opened for reading only
//! ```
//!
//! Rules:
//! * Below it happen reads, lists and shared locks only.
//! * A read of blocks that were never written goes below as it is, and is answered when that is. One that meets a
//!   written block is answered at once: the thread waits for what is below.
//! * Locks are its own; a caller that must not meet a writer takes [`Io::lock_shared`] below it first.
//!
//! Limits: memory is that of all blocks written.
//!
//! Lock order: names, then a file's state.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{
    Action, AlignedBytes, Buffer, Completion, DIRECT_ALIGNMENT, File, Io, IoError, LockGuard, OpenMode,
    Operation, Result,
};

const BLOCK: u64 = DIRECT_ALIGNMENT as u64;

/// A file system whose changes stay in memory. Clones are the same one.
#[derive(Clone, Debug)]
pub struct OverlayIo(Arc<Overlay>);

#[derive(Debug)]
struct Overlay {
    below: Arc<dyn Io>,
    names: Mutex<Names>,
}

#[derive(Debug, Default)]
struct Names {
    /// `None`: it is gone.
    files: BTreeMap<PathBuf, Option<Arc<Contents>>>,
    directories: BTreeSet<PathBuf>,
    locks: BTreeSet<PathBuf>,
}

/// A file, whatever it is called.
#[derive(Debug)]
struct Contents {
    /// Its name below, if it is there.
    below: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    len: u64,
    /// Bytes behind this are not those of the file below.
    below_len: u64,
    /// By number; `None`: zeros.
    blocks: BTreeMap<u64, Option<Box<[u8]>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OverlayIo {
    /// The files of `below`, and what will be written over them.
    #[must_use]
    pub fn new(below: Arc<dyn Io>) -> Self {
        Self(Arc::new(Overlay { below, names: Mutex::default() }))
    }

    /// Bytes of memory that written blocks take.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let names = lock(&self.0.names);
        let bytes = |contents: &Arc<Contents>| {
            lock(&contents.state).blocks.values().flatten().map(|block| block.len() as u64).sum::<u64>()
        };
        names.files.values().flatten().map(bytes).sum()
    }

    /// The file of a name, if there is one.
    fn find(&self, names: &mut Names, path: &Path) -> Result<Option<Arc<Contents>>> {
        if let Some(known) = names.files.get(path) {
            return Ok(known.clone());
        }
        if !self.0.below.exists(path)? {
            return Ok(None);
        }
        let len = self.0.below.open(path, OpenMode::Read)?.len()?;
        let state = State { len, below_len: len, blocks: BTreeMap::new() };
        let contents = Arc::new(Contents { below: Some(path.to_path_buf()), state: Mutex::new(state) });
        names.files.insert(path.to_path_buf(), Some(Arc::clone(&contents)));
        Ok(Some(contents))
    }

    fn open_as(&self, path: &Path, mode: OpenMode, direct: bool) -> Result<Arc<dyn File>> {
        let failed = |kind: ErrorKind| Err(IoError::new(Action::Open, path, None, kind.into()));
        let mut names = lock(&self.0.names);
        let contents = match (self.find(&mut names, path)?, mode) {
            (Some(_), OpenMode::CreateNew) => return failed(ErrorKind::AlreadyExists),
            (Some(found), _) => found,
            (None, OpenMode::Read | OpenMode::Write) => return failed(ErrorKind::NotFound),
            (None, OpenMode::Create | OpenMode::CreateNew) => {
                let state = State { len: 0, below_len: 0, blocks: BTreeMap::new() };
                let contents = Arc::new(Contents { below: None, state: Mutex::new(state) });
                names.files.insert(path.to_path_buf(), Some(Arc::clone(&contents)));
                contents
            }
        };
        let io = &self.0.below;
        let below = match &contents.below {
            Some(path) if direct => Some(io.open_direct(path, OpenMode::Read)?),
            Some(path) => Some(io.open(path, OpenMode::Read)?),
            None => None,
        };
        let writable = mode != OpenMode::Read;
        Ok(Arc::new(OverlayFile { contents, below, path: path.to_path_buf(), direct, writable }))
    }
}

impl Io for OverlayIo {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        self.open_as(path, mode, false)
    }

    fn open_direct(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        self.open_as(path, mode, true)
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        lock(&self.0.names).directories.extend(path.ancestors().map(Path::to_path_buf));
        Ok(())
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let names = lock(&self.0.names);
        let below = match self.0.below.list(dir) {
            Err(error) if error.is_not_found() && names.directories.contains(dir) => Vec::new(),
            listed => listed?,
        };
        let mut found: BTreeSet<String> = below.into_iter().collect();
        for (path, contents) in names.files.iter().filter(|(path, _)| path.parent() == Some(dir)) {
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            match contents {
                Some(_) => found.insert(name.to_owned()),
                None => found.remove(name),
            };
        }
        Ok(found.into_iter().collect())
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        let names = lock(&self.0.names);
        match names.files.get(path) {
            Some(contents) => Ok(contents.is_some()),
            None => Ok(names.directories.contains(path) || self.0.below.exists(path)?),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut names = lock(&self.0.names);
        let Some(contents) = self.find(&mut names, from)? else {
            return Err(IoError::new(Action::Rename, from, None, ErrorKind::NotFound.into()));
        };
        names.files.insert(from.to_path_buf(), None);
        names.files.insert(to.to_path_buf(), Some(contents));
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let mut names = lock(&self.0.names);
        if self.find(&mut names, path)?.is_none() {
            return Err(IoError::new(Action::Remove, path, None, ErrorKind::NotFound.into()));
        }
        names.files.insert(path.to_path_buf(), None);
        Ok(())
    }

    fn sync_dir(&self, _dir: &Path) -> Result<()> {
        Ok(())
    }

    fn lock_exclusive(&self, path: &Path) -> Result<LockGuard> {
        if !lock(&self.0.names).locks.insert(path.to_path_buf()) {
            return Err(IoError::locked(path, true));
        }
        Ok(LockGuard::new(Held { io: self.clone(), path: path.to_path_buf() }))
    }

    fn lock_shared(&self, path: &Path) -> Result<Option<LockGuard>> {
        self.0.below.lock_shared(path)
    }
}

struct Held {
    io: OverlayIo,
    path: PathBuf,
}

impl Drop for Held {
    fn drop(&mut self) {
        lock(&self.io.0.names).locks.remove(&self.path);
    }
}

#[derive(Debug)]
struct OverlayFile {
    contents: Arc<Contents>,
    below: Option<Arc<dyn File>>,
    path: PathBuf,
    direct: bool,
    writable: bool,
}

impl OverlayFile {
    /// Reads `bytes.len()` bytes below, at an aligned place; what is not there is zeros.
    fn read_below(&self, state: &State, offset: u64, bytes: &mut [u8]) -> Result<()> {
        bytes.fill(0);
        let Some(below) = &self.below else { return Ok(()) };
        let there = state.below_len.saturating_sub(offset).min(bytes.len() as u64) as usize;
        let mut done = 0;
        while done < there {
            match below.read_at(offset + done as u64, &mut bytes[done..])? {
                0 => break,
                count => done += count,
            }
            // The end of the file: a direct one is not asked from there on.
            if !done.is_multiple_of(below.alignment()) {
                break;
            }
        }
        bytes[there..].fill(0);
        Ok(())
    }

    /// The block, to be written.
    fn block<'a>(&self, state: &'a mut State, number: u64) -> Result<&'a mut Box<[u8]>> {
        if !state.blocks.contains_key(&number) {
            let mut bytes = AlignedBytes::zeroed(BLOCK as usize);
            self.read_below(state, number * BLOCK, &mut bytes)?;
            state.blocks.insert(number, Some(Box::from(&bytes[..])));
        }
        let block = state.blocks.get_mut(&number).expect("it was just put there");
        Ok(block.get_or_insert_with(|| vec![0; BLOCK as usize].into()))
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<usize> {
        if !self.writable {
            return Err(IoError::new(
                Action::Write,
                &self.path,
                Some(offset),
                ErrorKind::PermissionDenied.into(),
            ));
        }
        let mut state = lock(&self.contents.state);
        let end = offset + bytes.len() as u64;
        let mut at = offset;
        while at < end {
            let (number, inside) = (at / BLOCK, (at % BLOCK) as usize);
            let count = (end - at).min(BLOCK - inside as u64) as usize;
            let from = (at - offset) as usize;
            let piece = &bytes[from..from + count];
            if count as u64 == BLOCK && piece.iter().all(|byte| *byte == 0) {
                state.blocks.insert(number, None);
            } else {
                self.block(&mut state, number)?[inside..inside + count].copy_from_slice(piece);
            }
            at += count as u64;
        }
        state.len = state.len.max(end);
        Ok(bytes.len())
    }

    fn read(&self, state: &State, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        let count = state.len.saturating_sub(offset).min(bytes.len() as u64) as usize;
        if count == 0 {
            return Ok(0);
        }
        self.read_below(state, offset, bytes)?;
        for (&number, block) in state.blocks.range(offset / BLOCK..(offset + count as u64).div_ceil(BLOCK)) {
            let start = number * BLOCK;
            let (from, to) = (start.max(offset), (start + BLOCK).min(offset + count as u64));
            let target = &mut bytes[(from - offset) as usize..(to - offset) as usize];
            match block {
                Some(block) => target.copy_from_slice(&block[(from - start) as usize..(to - start) as usize]),
                None => target.fill(0),
            }
        }
        Ok(count)
    }

    /// Is a stretch as it is below?
    fn is_untouched(&self, state: &State, offset: u64, len: u64) -> bool {
        let written = state.blocks.range(offset / BLOCK..(offset + len).div_ceil(BLOCK)).next().is_some();
        self.below.is_some() && !written && offset + len <= state.below_len
    }
}

impl File for OverlayFile {
    fn submit(&self, operation: Operation) -> Completion {
        match operation {
            Operation::Write { offset, buffer } => {
                let result = self.write(offset, buffer.as_slice());
                Completion::ready(result, buffer)
            }
            Operation::SyncData => Completion::ready(Ok(0), Buffer::empty()),
            Operation::Read { offset, mut buffer } => {
                let state = lock(&self.contents.state);
                let len = buffer.as_slice().len() as u64;
                if self.is_untouched(&state, offset, len)
                    && let Some(below) = &self.below
                {
                    drop(state);
                    return below.submit(Operation::Read { offset, buffer });
                }
                let result = self.read(&state, offset, buffer.as_mut_slice());
                drop(state);
                Completion::ready(result, buffer)
            }
        }
    }

    fn alignment(&self) -> usize {
        match &self.below {
            Some(below) => below.alignment(),
            None if self.direct => DIRECT_ALIGNMENT,
            None => 1,
        }
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> Result<u64> {
        Ok(lock(&self.contents.state).len)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let mut state = lock(&self.contents.state);
        if len < state.len {
            if !len.is_multiple_of(BLOCK) {
                // Should it get longer again, what is behind the cut is zeros.
                self.block(&mut state, len / BLOCK)?[(len % BLOCK) as usize..].fill(0);
            }
            drop(state.blocks.split_off(&len.div_ceil(BLOCK)));
            state.below_len = state.below_len.min(len);
        }
        state.len = len;
        Ok(())
    }

    fn allocate(&self, len: u64) -> Result<()> {
        let mut state = lock(&self.contents.state);
        state.len = state.len.max(len);
        Ok(())
    }

    fn punch(&self, offset: u64, len: u64) -> Result<bool> {
        let mut state = lock(&self.contents.state);
        for number in offset / BLOCK..(offset + len) / BLOCK {
            state.blocks.insert(number, None);
        }
        Ok(true)
    }

    fn reserve(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::MemoryIo;
    use crate::rng::Rng;

    fn path() -> &'static Path {
        Path::new("/d/a")
    }

    /// Random operations leave over an overlay what they leave on a file system of one's own, and nothing below.
    #[test]
    fn it_reads_as_if_it_had_been_written_and_changes_nothing_below() {
        for seed in 0..40 {
            let mut rng = Rng::new(seed);
            let first: Vec<u8> = (0..rng.below(30_000)).map(|_| rng.next_u64() as u8).collect();
            let below = MemoryIo::with_files([], [(path().to_path_buf(), first)]);
            let before = below.files();
            let (own, over) = (below.copy(), OverlayIo::new(Arc::new(below.clone())));
            let files: [Arc<dyn File>; 2] = [
                own.open(path(), OpenMode::Write).expect("it is there"),
                over.open(path(), OpenMode::Write).expect("it is there"),
            ];
            for _ in 0..60 {
                let (step, offset, len) = (rng.below(6), rng.below(40_000), rng.below(9_000));
                let byte = if rng.below(3) == 0 { 0 } else { rng.next_u64() as u8 };
                for file in &files {
                    match step {
                        0..=2 => file.write_at(offset, &vec![byte; len as usize]).expect("memory"),
                        3 => file.set_len(offset).expect("memory"),
                        4 => file.allocate(offset).expect("memory"),
                        _ => {
                            let from = offset.min(file.len().expect("memory")) / BLOCK * BLOCK;
                            let to = (from + len).min(file.len().expect("memory")) / BLOCK * BLOCK;
                            if from < to {
                                file.punch(from, to - from).expect("memory");
                            }
                        }
                    }
                }
                let read = |file: &Arc<dyn File>| {
                    let mut bytes = vec![7; len as usize];
                    let count = file.read_full_at(offset, &mut bytes).expect("memory");
                    bytes.truncate(count);
                    (file.len().expect("memory"), bytes)
                };
                assert_eq!(read(&files[0]), read(&files[1]), "seed {seed}");
            }
            assert_eq!(below.files(), before);
        }
    }

    #[test]
    fn names_come_and_go_in_memory_only() {
        let below = MemoryIo::with_files([], [(path().to_path_buf(), b"old".to_vec())]);
        let before = below.files();
        let io = OverlayIo::new(Arc::new(below.clone()));
        let (dir, other) = (Path::new("/d"), Path::new("/d/b"));
        io.open(path(), OpenMode::CreateNew).expect_err("it is there");
        io.rename(path(), other).expect("it is there");
        assert_eq!(io.list(dir).expect("a directory"), ["b"]);
        io.open(path(), OpenMode::Read).expect_err("it is called otherwise now");
        let mut bytes = [0; 3];
        io.open(other, OpenMode::Read).expect("renamed").read_full_at(0, &mut bytes).expect("memory");
        assert_eq!(&bytes, b"old");
        io.open(path(), OpenMode::Create).expect("a new one").write_at(0, b"new").expect("memory");
        io.remove(other).expect("it is there");
        assert!(!io.exists(other).expect("memory") && io.exists(path()).expect("memory"));
        io.create_dir_all(Path::new("/e/f")).expect("in memory");
        assert_eq!(io.list(Path::new("/e/f")).expect("it was made"), [""; 0]);
        let held = io.lock_exclusive(path()).expect("free");
        assert!(io.lock_exclusive(path()).expect_err("held").is_locked());
        drop(held);
        assert!(io.memory_bytes() <= BLOCK);
        assert_eq!(below.files(), before);
        assert!(!below.exists(Path::new("/e")).expect("memory"));
    }

    #[test]
    fn readers_together_keep_out_one_who_wants_it_alone() {
        let below = MemoryIo::with_files([], [(path().to_path_buf(), Vec::new())]);
        let io = OverlayIo::new(Arc::new(below.clone()));
        assert!(io.lock_shared(Path::new("/d/b")).expect("nobody has it").is_none());
        let (first, second) = (io.lock_shared(path()).expect("free"), io.lock_shared(path()).expect("free"));
        assert!(first.is_some() && second.is_some());
        drop(first);
        assert!(below.lock_exclusive(path()).expect_err("one is left").is_locked());
        drop(second);
        let alone = below.lock_exclusive(path()).expect("free");
        assert!(io.lock_shared(path()).expect_err("one has it alone").is_locked());
        drop(alone);
    }
}
