//! Where the indexes get their memory.
//!
//! An index is generic over [`NodeMemory`], so that the engine gives it the region of its table, and a test or a
//! benchmark the ordinary heap ([`HeapMemory`]). Calls are dispatched statically.
//!
//! Rules that both sides keep:
//! - `bytes` of `free` and `retire` is what was asked of `alloc`.
//! - A cell whose size is a multiple of 64 is aligned to 64, one of 4096 to 4096; every cell at least to 8.
//! - The first eight bytes of a live cell, read as a little-endian number, never have their two top bits both set: the
//!   memory may mark free cells with them.
//! - An address has at most 48 significant bits, all that x86-64 and ARM64 give a process unless it asks for more.

use std::alloc::Layout;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use thermocline_base::epoch::Epochs;
use thermocline_base::sync::{AtomicUsize, Mutex};

/// The memory of an index is used up: nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfMemory;

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no memory is left for the index: raise memory_limit or delete rows")
    }
}

impl std::error::Error for OutOfMemory {}

/// Cells of memory for nodes, buckets and long keys.
pub trait NodeMemory: Send + Sync + 'static {
    /// A cell of `bytes` bytes, uninitialized.
    ///
    /// # Errors
    /// [`OutOfMemory`] when there is none.
    fn alloc(&self, bytes: usize) -> Result<NonNull<u8>, OutOfMemory>;

    /// Takes a cell back at once.
    ///
    /// # Safety
    /// `p` came from `alloc(bytes)` of the same memory, was not given back before, and nobody can reach it.
    unsafe fn free(&self, p: NonNull<u8>, bytes: usize);

    /// Takes a cell back once no epoch pin is left that could reach it.
    ///
    /// # Safety
    /// `p` came from `alloc(bytes)` of the same memory and was not given back before; it has been unlinked, so that
    /// only who was pinned before the call can reach it.
    unsafe fn retire(&self, p: NonNull<u8>, bytes: usize);

    /// Is the memory around this cell being emptied, so that it can go back to the system? Then the index moves what is
    /// in it into another cell, when it is told to.
    ///
    /// # Safety
    /// `p` came from `alloc` of the same memory with at most a page, and a latch or a pin keeps it from being free.
    unsafe fn is_leaving(&self, p: NonNull<u8>) -> bool;
}

/// Node memory from the global allocator, for an index that stands alone.
#[derive(Debug)]
pub struct HeapMemory {
    epochs: Arc<Epochs>,
    bytes: AtomicUsize,
    bytes_max: usize,
    retired: Mutex<Vec<Retired>>,
    /// Every cell is leaving.
    #[cfg(test)]
    pub(crate) leaving: std::sync::atomic::AtomicBool,
}

#[derive(Debug)]
struct Retired {
    stamp: u64,
    address: usize,
    bytes: usize,
}

/// Retired cells that are gathered before a collection is tried.
const RETIRED_BEFORE_COLLECT: usize = 64;

impl HeapMemory {
    /// Memory whose retired cells wait for the pins of `epochs`.
    #[must_use]
    pub fn new(epochs: Arc<Epochs>) -> Self {
        Self::with_limit(epochs, usize::MAX)
    }

    /// The same, which refuses to hand out more than `bytes_max`.
    #[must_use]
    pub fn with_limit(epochs: Arc<Epochs>, bytes_max: usize) -> Self {
        Self {
            epochs,
            bytes: AtomicUsize::new(0),
            bytes_max,
            retired: Mutex::new(Vec::new()),
            #[cfg(test)]
            leaving: std::sync::atomic::AtomicBool::new(false),
        }
    }

    /// The epochs to pin before an index over this memory is used.
    #[must_use]
    pub fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    /// Bytes that are handed out or retired and not yet free.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Frees what was retired and can be reached by nobody any more.
    pub fn collect(&self) {
        let due: Vec<Retired> = {
            let mut retired = self.retired.lock();
            if retired.is_empty() {
                return;
            }
            let safe = self.epochs.safe();
            retired.extract_if(.., |cell| cell.stamp < safe).collect()
        };
        for cell in due {
            self.release(cell.address, cell.bytes);
        }
    }

    fn layout(bytes: usize) -> Layout {
        let align = match bytes {
            _ if bytes.is_multiple_of(4096) => 4096,
            _ if bytes.is_multiple_of(64) => 64,
            _ => 8,
        };
        Layout::from_size_align(bytes, align).expect("index cells are small")
    }

    fn release(&self, address: usize, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        let p = std::ptr::with_exposed_provenance_mut(address);
        // SAFETY: the address came from `alloc(bytes)` and is given back once, by the contract of `free` and `retire`.
        unsafe { std::alloc::dealloc(p, Self::layout(bytes)) }
    }
}

impl NodeMemory for HeapMemory {
    fn alloc(&self, bytes: usize) -> Result<NonNull<u8>, OutOfMemory> {
        assert!(bytes > 0, "an index asked for an empty cell");
        if self.bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > self.bytes_max {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(OutOfMemory);
        }
        // SAFETY: the layout has a size above zero.
        let p = unsafe { std::alloc::alloc(Self::layout(bytes)) };
        NonNull::new(p).ok_or_else(|| {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            OutOfMemory
        })
    }

    unsafe fn free(&self, p: NonNull<u8>, bytes: usize) {
        self.release(p.as_ptr().expose_provenance(), bytes);
    }

    unsafe fn retire(&self, p: NonNull<u8>, bytes: usize) {
        let stamp = self.epochs.stamp();
        let gathered = {
            let mut retired = self.retired.lock();
            retired.push(Retired { stamp, address: p.as_ptr().expose_provenance(), bytes });
            retired.len()
        };
        if gathered.is_multiple_of(RETIRED_BEFORE_COLLECT) {
            self.collect();
        }
    }

    /// The global allocator empties nothing.
    unsafe fn is_leaving(&self, _p: NonNull<u8>) -> bool {
        #[cfg(test)]
        return self.leaving.load(Ordering::Relaxed);
        #[cfg(not(test))]
        false
    }
}

impl Drop for HeapMemory {
    fn drop(&mut self) {
        for cell in std::mem::take(self.retired.get_mut()) {
            self.release(cell.address, cell.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retired_cells_wait_for_pins_and_limits_hold() {
        let epochs = Arc::new(Epochs::new());
        let memory = HeapMemory::with_limit(Arc::clone(&epochs), 8192);
        let page = memory.alloc(4096).unwrap();
        assert_eq!(page.as_ptr().addr() % 4096, 0);
        let line = memory.alloc(64).unwrap();
        assert_eq!(line.as_ptr().addr() % 64, 0);
        assert_eq!(memory.alloc(4096), Err(OutOfMemory));
        let guard = epochs.pin();
        // SAFETY: nobody else knows the cells.
        unsafe {
            memory.retire(page, 4096);
            memory.free(line, 64);
        }
        memory.collect();
        assert_eq!(memory.bytes(), 4096);
        drop(guard);
        memory.collect();
        assert_eq!(memory.bytes(), 0);
    }
}
