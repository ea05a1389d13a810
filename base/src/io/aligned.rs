//! Bytes that a direct read or write may use: their address and length are multiples of [`DIRECT_ALIGNMENT`].

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::vm;

/// An alignment that every device and file system that we know of is content with.
pub const DIRECT_ALIGNMENT: usize = 4096;

/// Buffers from this length on are taken from the system, and go back to it. An allocator would keep free memory in
/// parts that fit no later buffer: with buffers that live for milliseconds it kept more than all of them together.
const MAPPED_FROM: usize = 64 << 10;

/// A fixed number of bytes at an aligned address, zero at first.
pub struct AlignedBytes {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to the value alone, like a `Vec<u8>`'s.
unsafe impl Send for AlignedBytes {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBytes {}

impl AlignedBytes {
    /// At least `len` zeros: as many as the next multiple of the alignment, and never none.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let len = len.max(1).next_multiple_of(DIRECT_ALIGNMENT);
        let layout = Self::layout(len);
        if len >= MAPPED_FROM && vm::MAPS_PAGES {
            let start = vm::map_pages(len).unwrap_or_else(|| handle_alloc_error(layout));
            return Self { start, len };
        }
        // SAFETY: the layout has a size.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        Self { start, len }
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, DIRECT_ALIGNMENT).expect("a buffer fits into memory")
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes, owned by the value.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBytes {
    fn drop(&mut self) {
        if self.len >= MAPPED_FROM && vm::MAPS_PAGES {
            // SAFETY: mapped in `zeroed` with this length, and no reference to it is left.
            return unsafe { vm::unmap_pages(self.start, self.len) };
        }
        // SAFETY: allocated in `zeroed` with this layout.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len)) };
    }
}

impl fmt::Debug for AlignedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBytes({})", self.len)
    }
}

/// Panics unless an operation keeps to the rule of a direct file.
pub(super) fn assert_aligned(offset: u64, bytes: &[u8]) {
    let rule = DIRECT_ALIGNMENT as u64;
    assert!(
        offset.is_multiple_of(rule)
            && (bytes.len() as u64).is_multiple_of(rule)
            && (bytes.as_ptr() as u64).is_multiple_of(rule),
        "a direct operation at {offset} of {} bytes keeps to the alignment",
        bytes.len()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_aligned_and_zero() {
        for len in [0, 1, 4096, 4097, MAPPED_FROM - 1, MAPPED_FROM, MAPPED_FROM + 1, 1 << 20] {
            let mut bytes = AlignedBytes::zeroed(len);
            assert!(bytes.len() >= len && !bytes.is_empty());
            assert_aligned(8192, &bytes);
            assert!(bytes.iter().all(|byte| *byte == 0));
            bytes[len / 2] = 1;
            assert_eq!(bytes.iter().filter(|byte| **byte == 1).count(), 1);
        }
    }

    #[test]
    #[should_panic(expected = "keeps to the alignment")]
    fn an_unaligned_operation_is_refused() {
        assert_aligned(0, &AlignedBytes::zeroed(4096)[1..]);
    }
}
