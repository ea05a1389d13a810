//! The operating system's files, for threads that must not block: operations of files that were opened with
//! [`Io::open_direct`] are under way while the thread does something else. Other files are as [`StdIo`]'s, since what
//! they read and write is mostly in the system's cache.
//!
//! | backend | where | how |
//! |---|---|---|
//! | [`threads`](super::threads) | everywhere | one thread an operation |

use std::path::Path;
use std::sync::Arc;

use super::system::StdFile;
use super::threads::Threads;
use super::{Completion, File, Io, LockGuard, OpenMode, Operation, Result, StdIo};

/// As many blocking operations as a good device does at once.
const THREADS: usize = 64;

/// The file system of the machine, with direct files that are asynchronous. Clones share their threads.
#[derive(Clone, Debug)]
pub struct SystemIo(Backend);

#[derive(Clone, Debug)]
enum Backend {
    Threads(Arc<Threads>),
}

impl SystemIo {
    /// By threads.
    #[must_use]
    pub fn new() -> Self {
        Self::with_threads(THREADS)
    }

    /// By at most `count` threads (one at least), which are started when there is something to do.
    #[must_use]
    pub fn with_threads(count: usize) -> Self {
        Self(Backend::Threads(Arc::new(Threads::new(count))))
    }

    /// How: `threads`.
    #[must_use]
    pub fn method(&self) -> &'static str {
        match &self.0 {
            Backend::Threads(_) => "threads",
        }
    }
}

impl Default for SystemIo {
    fn default() -> Self {
        Self::new()
    }
}

impl Io for SystemIo {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        StdIo.open(path, mode)
    }

    fn open_direct(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        let file = Arc::new(StdIo::open_file_direct(path, mode)?);
        Ok(Arc::new(AsynchronousFile { file, backend: self.0.clone() }))
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        StdIo.create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        StdIo.list(dir)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        StdIo.exists(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        StdIo.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        StdIo.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        StdIo.sync_dir(dir)
    }

    fn lock_exclusive(&self, path: &Path) -> Result<LockGuard> {
        StdIo.lock_exclusive(path)
    }
}

#[derive(Debug)]
struct AsynchronousFile {
    /// Operations under way have it as well, so that it is closed after the last one.
    file: Arc<StdFile>,
    backend: Backend,
}

impl File for AsynchronousFile {
    fn submit(&self, operation: Operation) -> Completion {
        if self.alignment() > 1 {
            operation.assert_aligned();
        }
        match &self.backend {
            Backend::Threads(threads) => threads.submit(&self.file, operation),
        }
    }

    fn alignment(&self) -> usize {
        self.file.alignment()
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.file.allocate(len)
    }

    fn forget(&self, end: u64) {
        self.file.forget(end);
    }
}

#[cfg(test)]
mod tests;
