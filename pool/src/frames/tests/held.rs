//! A device that answers when it is told to.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thermocline_base::io::{
    Completer, Completion, File, Io, LockGuard, MemoryIo, OpenMode, Operation, Result,
};

/// A file system whose files keep their operations until they are let go, once that was asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldIo {
    memory: MemoryIo,
    held: Arc<Held>,
}

#[derive(Debug, Default)]
pub(crate) struct Held {
    holding: AtomicBool,
    short_reads: AtomicBool,
    queue: Mutex<VecDeque<Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    file: Arc<dyn File>,
    operation: Operation,
    completer: Completer,
}

impl HeldIo {
    pub(crate) fn held(&self) -> Arc<Held> {
        Arc::clone(&self.held)
    }
}

impl Held {
    fn queue(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Operations are kept from now on.
    pub(crate) fn hold(&self) {
        self.holding.store(true, Ordering::SeqCst);
    }

    /// From now on reads give half of what there is.
    pub(crate) fn short_reads(&self, short: bool) {
        self.short_reads.store(short, Ordering::SeqCst);
    }

    /// Operations are done at once from now on, and those that were kept are done.
    pub(crate) fn let_go(&self) {
        self.holding.store(false, Ordering::SeqCst);
        while self.answer(0) {}
    }

    /// Are operations kept?
    #[cfg(feature = "model")]
    pub(crate) fn holds(&self) -> bool {
        self.holding.load(Ordering::SeqCst)
    }

    /// Writes a page past everything that is kept.
    #[cfg(feature = "model")]
    pub(crate) fn write_now(&self, file: &crate::device::PageDevice, number: u64, version: u64, value: u64) {
        let held = self.holding.swap(false, Ordering::SeqCst);
        super::write_page(file, number, version, value);
        self.holding.store(held, Ordering::SeqCst);
    }

    /// How many operations are kept.
    pub(crate) fn waiting(&self) -> usize {
        self.queue().len()
    }

    /// Does one of the kept operations, counted from the oldest, and answers it. `false` if there is none.
    pub(crate) fn answer(&self, index: usize) -> bool {
        let Some(waiting) = self.queue().remove(index) else { return false };
        let outcome = waiting.file.submit(waiting.operation).wait();
        waiting.completer.complete(outcome.result, outcome.buffer);
        true
    }
}

#[derive(Debug)]
struct HeldFile {
    inner: Arc<dyn File>,
    held: Arc<Held>,
}

impl File for HeldFile {
    fn submit(&self, operation: Operation) -> Completion {
        if self.held.short_reads.load(Ordering::SeqCst) && matches!(operation, Operation::Read { .. }) {
            let outcome = self.inner.submit(operation).wait();
            return Completion::ready(outcome.result.map(|bytes| bytes / 2), outcome.buffer);
        }
        if !self.held.holding.load(Ordering::SeqCst) {
            return self.inner.submit(operation);
        }
        let (completer, completion) = Completion::pending();
        self.held.queue().push_back(Waiting { file: Arc::clone(&self.inner), operation, completer });
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
}

impl Io for HeldIo {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        Ok(Arc::new(HeldFile { inner: self.memory.open(path, mode)?, held: self.held() }))
    }

    fn open_direct(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        Ok(Arc::new(HeldFile { inner: self.memory.open_direct(path, mode)?, held: self.held() }))
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.memory.create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.memory.list(dir)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.memory.exists(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.memory.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.memory.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.memory.sync_dir(dir)
    }

    fn lock_exclusive(&self, path: &Path) -> Result<LockGuard> {
        self.memory.lock_exclusive(path)
    }
}
