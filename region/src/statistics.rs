//! The counts of a pager, and what it holds.

/// The counts of a pager so far, and what it holds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Statistics {
    /// Bytes of pinned parts.
    pub pinned_bytes: u64,
    /// Bytes of paged parts.
    pub paged_bytes: u64,
    /// Bytes of pages of paged parts that are in memory.
    pub resident_bytes: u64,
    /// Bytes of parts that are locked as they are touched.
    pub locked_bytes: u64,
    /// Bytes of tables.
    pub table_bytes: u64,
    /// Bytes that were written to the file.
    pub write_bytes: u64,
    /// Faults for which the system read, in the whole process: it does not tell those of a region.
    pub major_faults: u64,
    /// Parts that the trimmer had taken away.
    pub parts_trimmed: u64,
}
