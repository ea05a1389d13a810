//! A file system in memory: directories, files, locks, and a capacity that can run out.
//!
//! It has no notion of durability: what is written is there. [`super::RecordingIo`] adds crashes.
//!
//! Space is counted as a file system does that has no holes but those that were [punched](File::punch).
//!
//! Lock order: a file's bytes, then the tree.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{
    Action, Buffer, Completion, DIRECT_ALIGNMENT, File, Io, IoError, LockGuard, OpenMode, Operation, Result,
};

/// A file system in memory. Clones are the same file system.
#[derive(Clone, Debug, Default)]
pub struct MemoryIo(Arc<Mutex<Tree>>);

#[derive(Debug, Default)]
struct Tree {
    directories: BTreeSet<PathBuf>,
    names: BTreeMap<PathBuf, Arc<Contents>>,
    /// Number of holders together; 0: one holds it alone.
    locks: BTreeMap<PathBuf, usize>,
    capacity: Option<u64>,
    used: u64,
    next_number: u64,
}

/// A file without its name.
#[derive(Debug)]
struct Contents {
    number: u64,
    bytes: Mutex<Bytes>,
    tree: std::sync::Weak<Mutex<Tree>>,
}

/// The bytes of a file, and its holes.
#[derive(Debug, Default)]
struct Bytes {
    all: Vec<u8>,
    /// Numbers of the blocks that take no space.
    holes: BTreeSet<u64>,
}

/// A hole has whole ones of these only.
const BLOCK_BYTES: u64 = DIRECT_ALIGNMENT as u64;

impl Bytes {
    fn len(&self) -> u64 {
        self.all.len() as u64
    }

    /// Bytes of space that it takes.
    fn space(&self) -> u64 {
        self.len() - self.holes.len() as u64 * BLOCK_BYTES
    }

    /// The holes in a stretch.
    fn holes_in(&self, offset: u64, len: u64) -> Vec<u64> {
        self.holes.range(offset / BLOCK_BYTES..(offset + len).div_ceil(BLOCK_BYTES)).copied().collect()
    }
}

impl Drop for Contents {
    fn drop(&mut self) {
        // The tree drops its names under no lock of its own (it is owned then) or outside of it (see `forget`).
        if let Some(tree) = self.tree.upgrade() {
            let space = self.bytes.get_mut().unwrap_or_else(PoisonError::into_inner).space();
            lock(&tree).used -= space;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

fn is_root(path: &Path) -> bool {
    path.as_os_str().is_empty() || path == Path::new("/")
}

impl MemoryIo {
    /// An empty file system of unlimited capacity.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A file system with these directories and files.
    #[must_use]
    pub fn with_files(
        directories: impl IntoIterator<Item = PathBuf>,
        files: impl IntoIterator<Item = (PathBuf, Vec<u8>)>,
    ) -> Self {
        let io = Self::new();
        {
            let mut tree = lock(&io.0);
            for directory in directories {
                tree.directories.extend(directory.ancestors().map(Path::to_path_buf));
            }
            for (path, bytes) in files {
                tree.directories.extend(parent(&path).ancestors().map(Path::to_path_buf));
                tree.used += bytes.len() as u64;
                let contents = io.contents(&mut tree, bytes);
                tree.names.insert(path, contents);
            }
        }
        io
    }

    fn contents(&self, tree: &mut Tree, bytes: Vec<u8>) -> Arc<Contents> {
        tree.next_number += 1;
        Arc::new(Contents {
            number: tree.next_number,
            bytes: Mutex::new(Bytes { all: bytes, holes: BTreeSet::new() }),
            tree: Arc::downgrade(&self.0),
        })
    }

    /// Sets how much space all files together may take; those that are there stay.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        lock(&self.0).capacity = bytes;
    }

    /// Space that all files together take, in bytes.
    #[must_use]
    pub fn used(&self) -> u64 {
        lock(&self.0).used
    }

    /// Space that the files in a directory take, in bytes.
    #[must_use]
    pub fn used_in(&self, dir: &Path) -> u64 {
        let names = lock(&self.0).names.clone();
        let inside = names.into_iter().filter(|(path, _)| parent(path) == dir);
        inside.map(|(_, file)| lock(&file.bytes).space()).sum()
    }

    /// Every file with its bytes, all of one moment: as a process that dies would leave them.
    #[must_use]
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        loop {
            // The bytes of a file are locked before the tree, never after it.
            let names = lock(&self.0).names.clone();
            let held: Vec<(&PathBuf, MutexGuard<'_, Bytes>)> =
                names.iter().map(|(path, file)| (path, lock(&file.bytes))).collect();
            let now = lock(&self.0);
            let is_same = now.names.len() == names.len()
                && now.names.iter().zip(&names).all(|(one, two)| one.0 == two.0 && Arc::ptr_eq(one.1, two.1));
            drop(now);
            if is_same {
                return held.into_iter().map(|(path, bytes)| (path.clone(), bytes.all.clone())).collect();
            }
        }
    }

    /// Every directory.
    #[must_use]
    pub fn directories(&self) -> Vec<PathBuf> {
        lock(&self.0).directories.iter().cloned().collect()
    }

    /// An independent file system with the same directories and files.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self::with_files(self.directories(), self.files())
    }

    /// Changes one byte of a file by exclusive or: damage, for tests.
    ///
    /// # Panics
    /// When there is no such byte.
    pub fn flip(&self, path: &Path, offset: u64, mask: u8) {
        let file = lock(&self.0).names.get(path).cloned().expect("there is such a file");
        lock(&file.bytes).all[offset as usize] ^= mask;
    }

    /// A number that tells the file behind a name from every other one, whatever its names.
    pub(super) fn number_of(&self, path: &Path) -> Option<u64> {
        lock(&self.0).names.get(path).map(|file| file.number)
    }
}

impl MemoryIo {
    fn open_file(&self, path: &Path, mode: OpenMode, direct: bool) -> Result<Arc<dyn File>> {
        let failed = |kind: ErrorKind| IoError::new(Action::Open, path, None, kind.into());
        let mut tree = lock(&self.0);
        let found = tree.names.get(path).cloned();
        let contents = match (found, mode) {
            (Some(_), OpenMode::CreateNew) => return Err(failed(ErrorKind::AlreadyExists)),
            (Some(contents), _) => contents,
            (None, OpenMode::Read | OpenMode::Write) => return Err(failed(ErrorKind::NotFound)),
            (None, OpenMode::Create | OpenMode::CreateNew) => {
                if tree.directories.contains(path) {
                    return Err(failed(ErrorKind::IsADirectory));
                }
                if !is_root(parent(path)) && !tree.directories.contains(parent(path)) {
                    return Err(failed(ErrorKind::NotFound));
                }
                let contents = self.contents(&mut tree, Vec::new());
                tree.names.insert(path.to_path_buf(), Arc::clone(&contents));
                contents
            }
        };
        Ok(Arc::new(MemoryFile {
            io: self.clone(),
            contents,
            path: path.to_path_buf(),
            writable: mode != OpenMode::Read,
            direct,
        }))
    }
}

impl Io for MemoryIo {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        self.open_file(path, mode, false)
    }

    /// There is no cache to pass by; the file holds its users to the rule of those that have one.
    fn open_direct(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        self.open_file(path, mode, true)
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        let mut tree = lock(&self.0);
        if path.ancestors().any(|above| tree.names.contains_key(above)) {
            return Err(IoError::new(Action::CreateDir, path, None, ErrorKind::NotADirectory.into()));
        }
        tree.directories.extend(path.ancestors().map(Path::to_path_buf));
        Ok(())
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let tree = lock(&self.0);
        if !is_root(dir) && !tree.directories.contains(dir) {
            return Err(IoError::new(Action::List, dir, None, ErrorKind::NotFound.into()));
        }
        let names = tree.names.keys().filter(|path| parent(path) == dir);
        let mut names: Vec<String> =
            names.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect();
        names.sort_unstable();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        let tree = lock(&self.0);
        Ok(tree.names.contains_key(path) || tree.directories.contains(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let replaced = {
            let mut tree = lock(&self.0);
            let missing = || IoError::new(Action::Rename, from, None, ErrorKind::NotFound.into());
            if !is_root(parent(to)) && !tree.directories.contains(parent(to)) {
                return Err(missing());
            }
            let contents = tree.names.remove(from).ok_or_else(missing)?;
            tree.names.insert(to.to_path_buf(), contents)
        };
        // Outside of the lock: dropping the last owner gives its bytes back under it.
        drop(replaced);
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let removed = lock(&self.0).names.remove(path);
        match removed {
            Some(_) => Ok(()),
            None => Err(IoError::new(Action::Remove, path, None, ErrorKind::NotFound.into())),
        }
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        if !is_root(dir) && !lock(&self.0).directories.contains(dir) {
            return Err(IoError::new(Action::SyncDir, dir, None, ErrorKind::NotFound.into()));
        }
        Ok(())
    }

    fn lock_exclusive(&self, path: &Path) -> Result<LockGuard> {
        drop(self.open(path, OpenMode::Create)?);
        let mut tree = lock(&self.0);
        if tree.locks.contains_key(path) {
            return Err(IoError::locked(path, true));
        }
        tree.locks.insert(path.to_path_buf(), 0);
        Ok(LockGuard::new(Held { io: self.clone(), path: path.to_path_buf() }))
    }

    fn lock_shared(&self, path: &Path) -> Result<Option<LockGuard>> {
        let mut tree = lock(&self.0);
        if !tree.names.contains_key(path) {
            return Ok(None);
        }
        match tree.locks.get_mut(path) {
            Some(0) => return Err(IoError::locked(path, true)),
            Some(holders) => *holders += 1,
            None => drop(tree.locks.insert(path.to_path_buf(), 1)),
        }
        Ok(Some(LockGuard::new(Held { io: self.clone(), path: path.to_path_buf() })))
    }
}

struct Held {
    io: MemoryIo,
    path: PathBuf,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut tree = lock(&self.io.0);
        match tree.locks.get_mut(&self.path) {
            Some(holders) if *holders > 1 => *holders -= 1,
            _ => drop(tree.locks.remove(&self.path)),
        }
    }
}

#[derive(Debug)]
struct MemoryFile {
    io: MemoryIo,
    contents: Arc<Contents>,
    path: PathBuf,
    writable: bool,
    direct: bool,
}

impl MemoryFile {
    fn error(&self, action: Action, offset: Option<u64>, kind: ErrorKind) -> IoError {
        IoError::new(action, &self.path, offset, kind.into())
    }

    fn check_writable(&self, action: Action) -> Result<()> {
        if self.writable { Ok(()) } else { Err(self.error(action, None, ErrorKind::PermissionDenied)) }
    }

    /// Counts the space that a file takes more, or less, if the capacity allows it.
    fn account(&self, before: u64, after: u64, action: Action) -> Result<()> {
        let mut tree = lock(&self.io.0);
        let used = tree.used - before + after;
        if after > before && tree.capacity.is_some_and(|capacity| used > capacity) {
            return Err(self.error(action, None, ErrorKind::StorageFull));
        }
        tree.used = used;
        Ok(())
    }

    /// Sets the length, if the capacity allows it. The caller holds the bytes.
    fn resize(&self, bytes: &mut Bytes, len: u64, action: Action) -> Result<()> {
        let gone = if len < bytes.len() { bytes.holes_in(len, bytes.len() - len).len() } else { 0 };
        let after = len - (bytes.holes.len() - gone) as u64 * BLOCK_BYTES;
        self.account(bytes.space(), after, action)?;
        bytes.holes.split_off(&(len / BLOCK_BYTES));
        if bytes.all.is_empty() {
            // Zeros straight from the system take no memory until they are touched.
            bytes.all = vec![0; len as usize];
        } else {
            bytes.all.resize(len as usize, 0);
        }
        Ok(())
    }

    /// Takes the space of the holes in a stretch.
    fn fill(&self, bytes: &mut Bytes, offset: u64, len: u64, action: Action) -> Result<()> {
        let holes = bytes.holes_in(offset, len);
        let space = bytes.space();
        self.account(space, space + holes.len() as u64 * BLOCK_BYTES, action)?;
        for hole in holes {
            bytes.holes.remove(&hole);
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<usize> {
        self.check_writable(Action::Write)?;
        let mut bytes = lock(&self.contents.bytes);
        let end = offset + data.len() as u64;
        if end > bytes.len() {
            self.resize(&mut bytes, end, Action::Write)?;
        }
        self.fill(&mut bytes, offset, data.len() as u64, Action::Write)?;
        bytes.all[offset as usize..end as usize].copy_from_slice(data);
        Ok(data.len())
    }
}

impl File for MemoryFile {
    fn submit(&self, operation: Operation) -> Completion {
        if self.direct {
            operation.assert_aligned();
        }
        match operation {
            Operation::Read { offset, mut buffer } => {
                let bytes = lock(&self.contents.bytes);
                let rest = bytes.all.get(offset as usize..).unwrap_or_default();
                let into = buffer.as_mut_slice();
                let count = rest.len().min(into.len());
                into[..count].copy_from_slice(&rest[..count]);
                Completion::ready(Ok(count), buffer)
            }
            Operation::Write { offset, buffer } => {
                let result = self.write(offset, buffer.as_slice());
                Completion::ready(result, buffer)
            }
            Operation::SyncData => Completion::ready(Ok(0), Buffer::empty()),
        }
    }

    fn alignment(&self) -> usize {
        if self.direct { DIRECT_ALIGNMENT } else { 1 }
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> Result<u64> {
        Ok(lock(&self.contents.bytes).len())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.check_writable(Action::Resize)?;
        self.resize(&mut lock(&self.contents.bytes), len, Action::Resize)
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.check_writable(Action::Allocate)?;
        let mut bytes = lock(&self.contents.bytes);
        if len > bytes.len() { self.resize(&mut bytes, len, Action::Allocate) } else { Ok(()) }
    }

    fn punch(&self, offset: u64, len: u64) -> Result<bool> {
        self.check_writable(Action::Punch)?;
        let mut bytes = lock(&self.contents.bytes);
        let end = (offset + len).min(bytes.len());
        let space = bytes.space();
        let holes: Vec<u64> = (offset.div_ceil(BLOCK_BYTES)..end / BLOCK_BYTES).collect();
        bytes.all[offset as usize..end as usize].fill(0);
        bytes.holes.extend(holes);
        self.account(space, bytes.space(), Action::Punch)?;
        Ok(true)
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        self.check_writable(Action::Allocate)?;
        self.fill(&mut lock(&self.contents.bytes), offset, len, Action::Allocate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_names_and_lengths() {
        let io = MemoryIo::new();
        assert!(io.open(Path::new("d/a"), OpenMode::Create).expect_err("no directory").is_not_found());
        io.create_dir_all(Path::new("d")).expect("made");
        let file = io.open(Path::new("d/a"), OpenMode::CreateNew).expect("created");
        file.write_at(3, b"xyz").expect("written");
        let mut bytes = [9; 8];
        assert_eq!(file.read_full_at(0, &mut bytes).expect("read"), 6);
        assert_eq!(&bytes[..6], b"\0\0\0xyz");
        assert_eq!(file.read_at(6, &mut bytes).expect("read"), 0);
        io.rename(Path::new("d/a"), Path::new("d/b")).expect("renamed");
        assert_eq!(io.list(Path::new("d")).expect("listed"), ["b"]);
        assert!(io.open(Path::new("d/b"), OpenMode::CreateNew).is_err());
        drop(file);
        assert_eq!(io.used(), 6);
        io.remove(Path::new("d/b")).expect("removed");
        assert_eq!(io.used(), 0);
    }

    #[test]
    fn the_capacity_runs_out_and_comes_back() {
        let io = MemoryIo::new();
        io.set_capacity(Some(10));
        let file = io.open(Path::new("a"), OpenMode::Create).expect("created");
        file.allocate(8).expect("it fits");
        assert!(file.allocate(11).expect_err("it does not fit").is_full());
        file.write_at(0, &[1; 8]).expect("in place");
        assert!(file.write_at(8, &[1; 3]).expect_err("over the end").is_full());
        file.set_len(2).expect("cut");
        assert_eq!(io.used(), 2);
        file.write_at(2, &[1; 8]).expect("there is space again");
    }

    #[test]
    fn holes_take_no_space_until_they_are_written() {
        let io = MemoryIo::new();
        io.set_capacity(Some(5 * BLOCK_BYTES));
        let file = io.open(Path::new("a"), OpenMode::Create).expect("created");
        file.write_at(0, &[1; 4 * BLOCK_BYTES as usize]).expect("it fits");
        assert!(file.punch(BLOCK_BYTES, 2 * BLOCK_BYTES).expect("it can"));
        assert_eq!((io.used(), file.len().expect("known")), (2 * BLOCK_BYTES, 4 * BLOCK_BYTES));
        let mut bytes = [9; 3];
        file.read_at(BLOCK_BYTES, &mut bytes).expect("read");
        assert_eq!(bytes, [0; 3]);
        file.write_at(BLOCK_BYTES - 1, &[2; 2]).expect("there is space");
        assert_eq!(io.used(), 3 * BLOCK_BYTES);
        io.set_capacity(Some(3 * BLOCK_BYTES));
        assert!(file.reserve(0, 4 * BLOCK_BYTES).expect_err("a hole is left").is_full());
        assert!(file.write_at(2 * BLOCK_BYTES, &[3]).expect_err("it is the hole").is_full());
        file.set_len(2 * BLOCK_BYTES).expect("cut");
        assert_eq!(io.used(), 2 * BLOCK_BYTES);
        drop(file);
        io.remove(Path::new("a")).expect("removed");
        assert_eq!(io.used(), 0);
    }

    #[test]
    fn one_holder_of_a_lock() {
        let io = MemoryIo::new();
        let held = io.lock_exclusive(Path::new("lock")).expect("free");
        assert!(io.lock_exclusive(Path::new("lock")).expect_err("held").is_locked());
        drop(held);
        let _again = io.lock_exclusive(Path::new("lock")).expect("free again");
    }
}
