//! The counts of a pager, and what it holds.

use thermocline_base::sync::{AtomicU64, Ordering};

/// Counters of a pager.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) page_ins: AtomicU64,
    pub(crate) page_outs: AtomicU64,
    pub(crate) write_bytes: AtomicU64,
    pub(crate) waits: AtomicU64,
    pub(crate) reads_of_waits: AtomicU64,
    pub(crate) taken_back: AtomicU64,
    pub(crate) net_faults: AtomicU64,
    pub(crate) failed_reads: AtomicU64,
    pub(crate) prefetched: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

/// The counts of a pager so far, and what it holds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Statistics {
    /// Bytes of pinned parts.
    pub pinned_bytes: u64,
    /// Bytes of paged parts.
    pub paged_bytes: u64,
    /// Bytes of frames that hold a page.
    pub resident_bytes: u64,
    /// Bytes of parts that are locked as they are touched.
    pub locked_bytes: u64,
    /// Bytes of words, checksums and frames.
    pub table_bytes: u64,
    /// Pages that came in.
    pub page_ins: u64,
    /// Pages that went out.
    pub page_outs: u64,
    /// Bytes that were written to the backing.
    pub write_bytes: u64,
    /// Sets that were waited for.
    pub waits: u64,
    /// Reads that waiters began.
    pub reads_of_waits: u64,
    /// Pages that readers took back while they were leaving.
    pub taken_back: u64,
    /// Touches without asking that the net served.
    pub net_faults: u64,
    /// Reads that failed, or whose page was not what had been written.
    pub failed_reads: u64,
    /// Reads that were begun ahead of need.
    pub prefetched: u64,
    /// Faults for which the system read, in the whole process: of the pager `os`, which cannot tell its own.
    pub major_faults: u64,
    /// Parts that the trimmer of the pager `os` had taken away.
    pub parts_trimmed: u64,
}

impl Counters {
    pub(crate) fn fill(&self, into: &mut Statistics) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        into.page_ins = get(&self.page_ins);
        into.page_outs = get(&self.page_outs);
        into.write_bytes = get(&self.write_bytes);
        into.waits = get(&self.waits);
        into.reads_of_waits = get(&self.reads_of_waits);
        into.taken_back = get(&self.taken_back);
        into.net_faults = get(&self.net_faults);
        into.failed_reads = get(&self.failed_reads);
        into.prefetched = get(&self.prefetched);
    }
}
