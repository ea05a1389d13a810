//! The operating system's files, for threads that must not block: operations of files that were opened with
//! [`Io::open_direct`] are under way while the thread does something else. Other files are as [`StdIo`]'s, since what
//! they read and write is mostly in the system's cache.
//!
//! | backend | where | how |
//! |---|---|---|
//! | `uring` | Linux | the kernel; no thread is involved |
//! | `threads` | elsewhere, and where `io_uring` is refused (containers, hardened systems) | one thread an operation |

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::system::StdFile;
use super::threads::Threads;
#[cfg(all(target_os = "linux", not(feature = "portable")))]
use super::uring;
use super::{Completion, File, Io, LockGuard, OpenMode, Operation, Result, StdIo};

/// As many blocking operations as a good device does at once.
const THREADS: usize = 64;

/// The file system of the machine, with direct files that are asynchronous. Clones share their threads.
#[derive(Clone, Debug)]
pub struct SystemIo(Backend);

#[derive(Clone, Debug)]
enum Backend {
    Threads(Arc<Threads>),
    #[cfg(all(target_os = "linux", not(feature = "portable")))]
    Uring,
}

impl SystemIo {
    /// By `io_uring` if the system has it and lets us, by threads otherwise.
    #[must_use]
    pub fn new() -> Self {
        Self::with_uring().unwrap_or_else(|_| Self::with_threads(THREADS))
    }

    /// By `io_uring`.
    ///
    /// # Errors
    /// The system has none, or does not let us.
    pub fn with_uring() -> io::Result<Self> {
        #[cfg(all(target_os = "linux", not(feature = "portable")))]
        {
            uring::probe()?;
            Ok(Self(Backend::Uring))
        }
        #[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
        Err(io::ErrorKind::Unsupported.into())
    }

    /// By at most `count` threads (one at least), which are started when there is something to do.
    #[must_use]
    pub fn with_threads(count: usize) -> Self {
        Self(Backend::Threads(Arc::new(Threads::new(count))))
    }

    /// Its method: `io_uring` or `threads`.
    #[must_use]
    pub fn method(&self) -> &'static str {
        match &self.0 {
            Backend::Threads(_) => "threads",
            #[cfg(all(target_os = "linux", not(feature = "portable")))]
            Backend::Uring => "io_uring",
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

    fn lock_shared(&self, path: &Path) -> Result<Option<LockGuard>> {
        StdIo.lock_shared(path)
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
            #[cfg(all(target_os = "linux", not(feature = "portable")))]
            Backend::Uring => uring::submit(&self.file, operation),
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

    fn punch(&self, offset: u64, len: u64) -> Result<bool> {
        self.file.punch(offset, len)
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        self.file.reserve(offset, len)
    }
}

#[cfg(test)]
mod tests;
