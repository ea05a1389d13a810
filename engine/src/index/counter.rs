//! A number of entries that many threads change and few read.
//!
//! Each change goes to a shard of the thread's own; a shard that has gathered [`FLUSH`] is added to the common total,
//! and the change that did so learns the total, to decide whether the index should grow or shrink. The sum is exact
//! when nobody changes it.

use std::sync::atomic::Ordering;

use thermocline_base::sync::{AtomicU64, CachePadded, thread_index};

const SHARDS: usize = 16;
/// Changes that a shard gathers before it tells the total.
const FLUSH: i64 = 16;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Counter {
    total: CachePadded<AtomicU64>,
    shards: Box<[CachePadded<AtomicU64>; SHARDS]>,
}

impl Counter {
    /// Adds `delta` (one or minus one). Now and then returns the approximate total.
    #[inline]
    pub(super) fn add(&self, delta: i64) -> Option<u64> {
        let shard = &self.shards[thread_index() % SHARDS];
        let gathered = (shard.fetch_add(delta as u64, Ordering::Relaxed) as i64).wrapping_add(delta);
        if gathered.abs() < FLUSH {
            return None;
        }
        shard.fetch_sub(gathered as u64, Ordering::Relaxed);
        let total = (self.total.fetch_add(gathered as u64, Ordering::Relaxed) as i64).wrapping_add(gathered);
        Some(total.max(0) as u64)
    }

    /// The sum.
    pub(super) fn get(&self) -> u64 {
        let mut sum = self.total.load(Ordering::Relaxed);
        for shard in self.shards.iter() {
            sum = sum.wrapping_add(shard.load(Ordering::Relaxed));
        }
        (sum as i64).max(0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_add_up() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let counter = &counter;
                scope.spawn(move || {
                    for step in 0..1000 {
                        counter.add(if (step + thread) % 4 == 0 { -1 } else { 1 });
                    }
                });
            }
        });
        assert_eq!(counter.get(), 3 * 500);
        assert!((0..2 * FLUSH).any(|_| counter.add(1).is_some()));
    }
}
