//! Where the buckets of a hash index stand: segments of buckets under a radix tree of three levels.
//!
//! ```text
//! bucket number   31…24 root (inline)   23…15 middle   14…6 leaf   5…0 line in the segment
//! ```
//!
//! Growing by a segment fills one empty pointer and, now and then, adds a block; nothing is ever copied or moved.
//! Only the holder of the index's resize lock changes the directory. Readers take each pointer with `Acquire`, so they
//! see what it points to initialized; a block or segment goes only after its pointer was cleared, through the epochs.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use thermocline_base::sync::AtomicPtr;

use super::line::{Head, Line};
use crate::index::node_memory::{NodeMemory, OutOfMemory};

// Tests reach all levels with few entries.
const LINE_BITS: u32 = if cfg!(test) { 3 } else { 6 };
const BLOCK_BITS: u32 = if cfg!(test) { 3 } else { 9 };
const ROOT_BITS: u32 = 8;

/// Buckets in a segment.
pub(super) const SEGMENT: u64 = 1 << LINE_BITS;
/// Buckets that a directory can lead to.
pub(super) const BUCKETS_MAX: u64 = 1 << (ROOT_BITS + 2 * BLOCK_BITS + LINE_BITS);
const _: () = assert!(BUCKETS_MAX <= 1 << 32, "a tag has 32 bits to find a bucket with");

const SEGMENT_BYTES: usize = size_of::<Line>() << LINE_BITS;
const BLOCK_BYTES: usize = 8 << BLOCK_BITS;

type Block<T> = [AtomicPtr<T>; 1 << BLOCK_BITS];
type Leaf = Block<Line>;
type Middle = Block<Leaf>;

/// See the module.
pub(super) struct Directory {
    root: Box<[AtomicPtr<Middle>; 1 << ROOT_BITS]>,
}

fn place(bucket: u64) -> (usize, usize, usize, usize) {
    let below = |bits: u32, shift: u32| (bucket >> shift) as usize & ((1 << bits) - 1);
    (
        below(ROOT_BITS, LINE_BITS + 2 * BLOCK_BITS),
        below(BLOCK_BITS, LINE_BITS + BLOCK_BITS),
        below(BLOCK_BITS, LINE_BITS),
        below(LINE_BITS, 0),
    )
}

/// A zeroed cell: pointers are null, lines empty and not latched.
fn zeroed<M: NodeMemory, T>(memory: &M, bytes: usize) -> Result<*mut T, OutOfMemory> {
    let cell = memory.alloc(bytes)?;
    // SAFETY: the cell has that many bytes and is ours alone.
    unsafe { cell.write_bytes(0, bytes) };
    Ok(cell.as_ptr().cast())
}

impl Directory {
    pub(super) fn new() -> Self {
        Self { root: Box::new([const { AtomicPtr::new(std::ptr::null_mut()) }; 1 << ROOT_BITS]) }
    }

    /// The first line of a bucket, if its segment is there. The caller is pinned for as long as it uses the line.
    #[inline(always)]
    pub(super) fn line(&self, bucket: u64) -> Option<&Line> {
        let (root, middle, leaf, line) = place(bucket);
        // SAFETY: a pointer that is not null leads to an initialized block or segment (published with `Release`),
        // which is retired only after it was unlinked, so it outlives the caller's pin.
        unsafe {
            let middle = self.root[root].load(Ordering::Acquire).as_ref()?[middle].load(Ordering::Acquire);
            let leaf = middle.as_ref()?[leaf].load(Ordering::Acquire);
            if leaf.is_null() { None } else { Some(&*leaf.add(line)) }
        }
    }

    /// Makes the segment that starts with `bucket`, all its buckets withdrawn, and adds what it took to `bytes`. Under the resize lock.
    ///
    /// # Errors
    /// When there is no memory for the segment or a block above it; a block that was made stays for the next try.
    pub(super) fn add<M: NodeMemory>(
        &self,
        memory: &M,
        bucket: u64,
        bytes: &mut usize,
    ) -> Result<(), OutOfMemory> {
        let (root, middle, leaf, _) = place(bucket);
        let root = &self.root[root];
        if root.load(Ordering::Relaxed).is_null() {
            root.store(zeroed(memory, BLOCK_BYTES)?, Ordering::Release);
            *bytes += BLOCK_BYTES;
        }
        // SAFETY: just made or made before; only the holder of the resize lock removes blocks.
        let middle = unsafe { &(&*root.load(Ordering::Relaxed))[middle] };
        if middle.load(Ordering::Relaxed).is_null() {
            middle.store(zeroed(memory, BLOCK_BYTES)?, Ordering::Release);
            *bytes += BLOCK_BYTES;
        }
        // SAFETY: as above.
        let leaf = unsafe { &(&*middle.load(Ordering::Relaxed))[leaf] };
        assert!(leaf.load(Ordering::Relaxed).is_null(), "a segment is made once");
        let segment: *mut Line = zeroed(memory, SEGMENT_BYTES)?;
        for line in 0..SEGMENT as usize {
            // SAFETY: the segment has that many lines, and nobody else knows it.
            unsafe { (*segment.add(line)).withdraw(Head::EMPTY) };
        }
        leaf.store(segment, Ordering::Release);
        *bytes += SEGMENT_BYTES;
        Ok(())
    }

    /// Unlinks and retires the segment that starts with `bucket`, whose lines have no overflow any more, and the
    /// blocks that it was the first in. Returns their bytes. Under the resize lock, after the bucket's number was
    /// withdrawn.
    pub(super) fn remove<M: NodeMemory>(&self, memory: &M, bucket: u64) -> usize {
        let (root_at, middle_at, leaf_at, _) = place(bucket);
        let mut bytes = SEGMENT_BYTES;
        let root = &self.root[root_at];
        // SAFETY: the segment exists, so the blocks above it do; only the holder of the resize lock removes them.
        // What is retired was unlinked just before, and came from `alloc` with that size.
        unsafe {
            let middle = &(&*root.load(Ordering::Relaxed))[middle_at];
            let leaf = &(&*middle.load(Ordering::Relaxed))[leaf_at];
            let unlink = |cell: *mut u8, bytes: usize| {
                memory.retire(NonNull::new(cell).expect("a segment that is removed was made"), bytes);
            };
            unlink(leaf.swap(std::ptr::null_mut(), Ordering::AcqRel).cast(), SEGMENT_BYTES);
            if leaf_at == 0 {
                unlink(middle.swap(std::ptr::null_mut(), Ordering::AcqRel).cast(), BLOCK_BYTES);
                bytes += BLOCK_BYTES;
                if middle_at == 0 {
                    unlink(root.swap(std::ptr::null_mut(), Ordering::AcqRel).cast(), BLOCK_BYTES);
                    bytes += BLOCK_BYTES;
                }
            }
        }
        bytes
    }

    /// Frees everything, after `line` has seen each line that exists.
    pub(super) fn clear<M: NodeMemory>(&mut self, memory: &M, mut line: impl FnMut(&Line)) {
        let free = |cell: *mut u8, bytes: usize| {
            let cell = NonNull::new(cell).expect("only cells that exist are freed");
            // SAFETY: the directory is borrowed mutably, so nobody else reads it; the cell came from `alloc(bytes)`.
            unsafe { memory.free(cell, bytes) };
        };
        for root in self.root.iter_mut() {
            let middle_block = std::mem::replace(root.get_mut(), std::ptr::null_mut());
            // SAFETY: as in `line`; nobody else is here.
            for middle in unsafe { middle_block.as_mut() }.into_iter().flatten() {
                let leaf_block = *middle.get_mut();
                // SAFETY: likewise.
                for leaf in unsafe { leaf_block.as_mut() }.into_iter().flatten() {
                    let segment = *leaf.get_mut();
                    if !segment.is_null() {
                        for at in 0..SEGMENT as usize {
                            // SAFETY: a segment has that many lines.
                            line(unsafe { &*segment.add(at) });
                        }
                        free(segment.cast(), SEGMENT_BYTES);
                    }
                }
                if !leaf_block.is_null() {
                    free(leaf_block.cast(), BLOCK_BYTES);
                }
            }
            if !middle_block.is_null() {
                free(middle_block.cast(), BLOCK_BYTES);
            }
        }
    }
}
