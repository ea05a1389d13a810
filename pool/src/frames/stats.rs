//! Counts of the pool, and where its memory is.

use thermocline_base::sync::Ordering;
use thermocline_base::vm::HUGE_PAGE_BYTES;

use super::shared::{Shared, Use};
use super::{DeviceId, PageId};

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
    /// Frames that have memory: those, and empty ones that were used before.
    pub frame_bytes: u64,
    /// Frames with pages that are to be written.
    pub dirty_bytes: u64,
    /// Frames behind the budget that could not be emptied yet; part of `used_bytes`.
    pub over_budget_bytes: u64,
    /// Buffers of reads and writes that are under way, and those kept for the next ones.
    pub buffer_bytes: u64,
    /// The map, if pages have come everywhere in it.
    pub map_bytes: u64,
    /// The books of pool and policy about the frames.
    pub bookkeeping_bytes: u64,
    /// The policy.
    pub policy: &'static str,
}

/// The counts of one device, since it was added.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct DeviceStats {
    /// Pins that had to read.
    pub misses: u64,
    /// Pins that found their page being read.
    pub joined: u64,
    /// Read operations that it has answered, read-ahead included.
    pub reads: u64,
    /// Bytes that it was asked for in them.
    pub bytes_read: u64,
    /// Frames with its pages, now.
    pub used_bytes: u64,
}

impl PoolStats {
    /// All memory of the pool, as a limit counts it. Huge pages may make up to 2 MiB more of the frames resident, but
    /// never more than the budget.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.frame_bytes + self.buffer_bytes + self.map_bytes + self.bookkeeping_bytes
    }
}

impl Shared {
    pub(super) fn device_stats(&self, device: DeviceId) -> DeviceStats {
        self.with(|core| {
            let resident = core.frames.iter().filter(|frame| {
                frame.usage == Use::Resident && PageId::of_packed(frame.page).device() == device
            });
            let used_bytes = resident.count() as u64 * self.page_size.bytes() as u64;
            core.counts_of(device, |counts| DeviceStats { used_bytes, ..*counts })
        })
    }

    pub(super) fn memory_bytes_used(&self) -> u64 {
        let stats = self.stats();
        let huge = HUGE_PAGE_BYTES as u64;
        // What is advised to be huge pages becomes resident as such.
        let frames = stats.used_bytes.next_multiple_of(huge).min(stats.frame_bytes.max(stats.used_bytes));
        stats.memory_bytes() - stats.frame_bytes + frames
    }

    pub(super) fn stats(&self) -> PoolStats {
        let page_bytes = self.page_size.bytes() as u64;
        let sum = |count: fn(&super::shared::Hits) -> u64| self.hits.iter().map(|hits| count(hits)).sum();
        let spare = self.spare_buffer_bytes() as u64;
        self.with(|core| {
            let with_memory = core.frames_with_memory();
            let in_use = with_memory - core.free.len() as u64;
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
                frame_bytes: with_memory * page_bytes,
                used_bytes: in_use * page_bytes,
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
