//! What the pool has done, and where its memory is.

use thermocline_base::sync::Ordering;

use super::shared::{Shared, Use};

/// Counts since the start of the pool, and bytes now.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct PoolStats {
    /// Optimistic reads that succeeded.
    pub hits_optimistic: u64,
    /// Pins of pages that were in memory.
    pub hits_pinned: u64,
    /// Pins that had to read.
    pub misses: u64,
    /// Pins that found their page being read.
    pub joined: u64,
    /// Pages that read-ahead has asked for.
    pub read_ahead: u64,
    /// Read operations that a device has answered.
    pub reads: u64,
    /// Pages that could not be read: the device failed, or gave something else.
    pub read_errors: u64,
    /// Pages that left their frame for another one, or because of a smaller budget.
    pub evictions: u64,
    /// Write operations that went well.
    pub writes: u64,
    /// Pages in them.
    pub pages_written: u64,
    /// Write operations that failed.
    pub write_errors: u64,
    /// The budget.
    pub budget_bytes: u64,
    /// Frames with a page in them, or reserved for one.
    pub used_bytes: u64,
    /// Frames with pages that are to be written.
    pub dirty_bytes: u64,
    /// Frames behind the budget that could not be emptied yet; part of `used_bytes`.
    pub over_budget_bytes: u64,
    /// Buffers of reads and writes that are under way, and those kept for the next ones.
    pub buffer_bytes: u64,
    /// The map, if pages have come everywhere in it.
    pub map_bytes: u64,
    /// What pool and policy know of the frames.
    pub bookkeeping_bytes: u64,
    /// The policy.
    pub policy: &'static str,
}

impl Shared {
    pub(super) fn stats(&self) -> PoolStats {
        let page_bytes = self.page_size.bytes() as u64;
        let sum = |count: fn(&super::shared::Hits) -> u64| self.hits.iter().map(|hits| count(hits)).sum();
        let spare = self.spare_buffer_bytes() as u64;
        self.with(|core| {
            let in_use = core.frames.iter().filter(|frame| !matches!(frame.usage, Use::Nothing | Use::Free));
            let counts = &core.counts;
            PoolStats {
                hits_optimistic: sum(|hits| hits.optimistic.load(Ordering::Relaxed)),
                hits_pinned: sum(|hits| hits.pinned.load(Ordering::Relaxed)),
                misses: counts.misses,
                joined: counts.joined,
                read_ahead: counts.read_ahead,
                reads: counts.reads,
                read_errors: counts.read_errors,
                evictions: counts.evictions,
                writes: counts.writes,
                pages_written: counts.pages_written,
                write_errors: counts.write_errors,
                budget_bytes: core.budget_bytes,
                used_bytes: in_use.count() as u64 * page_bytes,
                dirty_bytes: core.dirty.len() as u64 * page_bytes,
                over_budget_bytes: u64::from(core.overhang) * page_bytes,
                buffer_bytes: spare + self.in_flight_bytes.load(Ordering::Relaxed),
                map_bytes: self.map.bytes() as u64,
                bookkeeping_bytes: (core.frames.capacity() * size_of::<super::shared::Frame>()
                    + core.free.capacity() * size_of::<u32>()
                    + core.policy.bytes()) as u64,
                policy: core.policy.name(),
            }
        })
    }
}
