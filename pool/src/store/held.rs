//! Counts the memory that work holds for a while: buffers of merges, what it takes to build a piece.

use std::sync::Arc;
// Not the façade's: counting decides nothing, and its scheduling points would drown the others.
use std::sync::atomic::AtomicU64;

use thermocline_base::sync::Ordering;

/// Bytes that are held in all.
pub(super) type Sum = Arc<AtomicU64>;

/// Memory that is held. It is counted as long as this is there.
#[derive(Debug)]
pub(super) struct Held {
    sum: Sum,
    bytes: u64,
}

impl Held {
    /// Nothing yet, of what `sum` counts.
    pub(super) fn new(sum: &Sum) -> Self {
        Self { sum: Arc::clone(sum), bytes: 0 }
    }

    /// It is so much from now on.
    pub(super) fn set(&mut self, bytes: usize) {
        let bytes = bytes as u64;
        if bytes >= self.bytes {
            self.sum.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else {
            self.sum.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.sum.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
