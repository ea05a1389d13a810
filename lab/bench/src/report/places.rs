//! The places where rows are, in the words of a result.

use serde::Serialize;
use thermocline_engine::{ColdStatistics, FrozenStatistics, PagedStatistics, SsdStats};

/// Rows outside of memory: counts of the measured time, and what there was at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cold {
    /// Reads of the cold store by transactions.
    pub reads: u64,
    /// Reads of its device.
    pub device_reads: u64,
    /// Bytes written to its device.
    pub device_write_bytes: u64,
    /// Reads of its device that an access filter could not prevent, and that found nothing.
    pub filter_false_positives: u64,
    /// Rows that have moved to the cold store.
    pub migrated_rows: u64,
    /// Rows that have come back.
    pub promoted_rows: u64,
    /// Notices in the update memo, at the end.
    pub memo_rows: u64,
    /// Rows in the cold store, at the end.
    pub rows_cold: u64,
    /// Bytes of memory that each of them takes.
    pub bytes_per_cold_row: f64,
    /// Processor time of the governor for each row that has moved, the load's included.
    pub cpu_us_per_migrated_row: f64,
    /// Snapshots that were cancelled because they kept memory that others needed.
    pub cancelled_snapshots: u64,
    /// Times that an operation, or a transaction that was to begin, has waited for memory.
    pub memory_waits: u64,
    /// The longest of these waits, in microseconds, the load's included.
    pub memory_wait_us_max: u64,
    /// Copies of its pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies: Option<Copies>,
}

/// Copies of pages on an SSD, or on memory of other machines: counts of the measured time, and what there was at its end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Copies {
    /// `file` of an SSD, or `remote`.
    pub medium: &'static str,
    /// Pages, at the end.
    pub pages: u64,
    /// Pages that fit.
    pub pages_max: u64,
    /// Pages that readers asked for.
    pub reads: u64,
    /// Those of them that were there.
    pub hits: u64,
    /// Reads that were late, or of a server that is silent.
    pub late: u64,
    /// Reads that were not answered rightly, pages lost with a server among them.
    pub faults: u64,
    /// Pages that came in too fast to be kept.
    pub dropped: u64,
    /// Bytes written.
    pub write_bytes: u64,
}

impl Copies {
    /// The statistics of a level, in the words of a result.
    pub(crate) fn of(level: &SsdStats) -> Self {
        let counts = &level.counts;
        Self {
            medium: level.medium,
            pages: level.cached,
            pages_max: level.slots,
            reads: counts.reads,
            hits: counts.hits,
            late: counts.late,
            faults: counts.faults,
            dropped: counts.dropped,
            write_bytes: counts.bytes_written,
        }
    }

    /// Counts since another moment.
    pub(crate) fn since(self, before: Option<&Self>) -> Self {
        let Some(before) = before else { return self };
        Self {
            reads: self.reads - before.reads,
            hits: self.hits - before.hits,
            late: self.late - before.late,
            faults: self.faults - before.faults,
            dropped: self.dropped - before.dropped,
            write_bytes: self.write_bytes - before.write_bytes,
            ..self
        }
    }
}

impl Cold {
    /// The statistics of a database, in the words of a result.
    pub(crate) fn of(cold: &ColdStatistics) -> Self {
        Self {
            reads: cold.reads,
            device_reads: cold.device_reads,
            device_write_bytes: cold.device_write_bytes,
            filter_false_positives: cold.filter_false_positives,
            migrated_rows: cold.migrated_rows,
            promoted_rows: cold.promoted_rows,
            memo_rows: cold.memo_rows,
            rows_cold: cold.rows_cold,
            bytes_per_cold_row: cold.bytes_per_cold_row,
            cpu_us_per_migrated_row: cold.cpu_us_per_migrated_row,
            cancelled_snapshots: cold.cancelled_snapshots,
            memory_waits: cold.memory_waits,
            memory_wait_us_max: cold.memory_wait_us_max,
            copies: cold.ssd.as_ref().map(Copies::of),
        }
    }
}

/// Frozen chunks: how many there are, and what has become of rows since the database was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Frozen {
    /// Chunks without a block, and with one.
    pub chunks_hot: u64,
    /// See there.
    pub chunks_frozen: u64,
    /// Rows in blocks.
    pub rows_frozen: u64,
    /// Bytes of blocks.
    pub bytes_blocks: u64,
    /// Rows that froze, each time, and thawed.
    pub frozen_rows: u64,
    /// See there.
    pub thawed_rows: u64,
    /// Chunks that have left memory whole, and their rows.
    pub left_chunks: u64,
    /// See there.
    pub left_rows: u64,
    /// Processor time of a row that froze.
    pub cpu_us_per_frozen_row: f64,
    /// Processor time of a row that left with its chunk.
    pub cpu_us_per_left_row: f64,
}

impl Frozen {
    /// The statistics of a database, in the words of a result.
    pub(crate) fn of(frozen: &FrozenStatistics) -> Self {
        Self {
            chunks_hot: frozen.chunks_hot,
            chunks_frozen: frozen.chunks_frozen,
            rows_frozen: frozen.rows_frozen,
            bytes_blocks: frozen.bytes_blocks,
            frozen_rows: frozen.frozen_rows,
            thawed_rows: frozen.thawed_rows,
            left_chunks: frozen.left_chunks,
            left_rows: frozen.left_rows,
            cpu_us_per_frozen_row: frozen.cpu_us_per_frozen_row(),
            cpu_us_per_left_row: frozen.cpu_us_per_left_row(),
        }
    }
}

/// Rows that are paged: counts of the measured time, and what there was at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Paged {
    /// `own` or `os`.
    pub pager: &'static str,
    /// The medium that its pages are read from.
    pub medium: &'static str,
    /// Rows on pages at the end, those that came back or were changed since among them.
    pub rows: u64,
    /// Their bytes.
    pub row_bytes: u64,
    /// Bytes of the pages that hold them.
    pub paged_bytes: u64,
    /// Bytes of pages in memory, at the end.
    pub resident_bytes: u64,
    /// Pages that came in.
    pub page_ins: u64,
    /// Pages that went out.
    pub page_outs: u64,
    /// Bytes written to the medium.
    pub write_bytes: u64,
    /// Waits for pages.
    pub waits: u64,
    /// Pages that each of them had read.
    pub page_reads_per_wait: f64,
    /// Pages that were read past the frames.
    pub past_reads: u64,
    /// Faults for which the system read, in the whole process.
    pub major_faults: u64,
    /// Rows that went over.
    pub rows_over: u64,
    /// Rows that came back for their readers.
    pub came_back: u64,
    /// Processor time of a row that went over, the load's included.
    pub cpu_us_per_row_over: f64,
    /// Bytes written for each byte of a row that went over, the load's included.
    pub write_bytes_per_row_byte: f64,
    /// Copies of its pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies: Option<Copies>,
}

impl Paged {
    /// The statistics of a database, in the words of a result.
    pub(crate) fn of(paged: &PagedStatistics) -> Self {
        Self {
            pager: paged.pager,
            medium: paged.medium,
            rows: paged.rows,
            row_bytes: paged.row_bytes,
            paged_bytes: paged.page_bytes,
            resident_bytes: paged.resident_bytes,
            page_ins: paged.page_ins,
            page_outs: paged.page_outs,
            write_bytes: paged.write_bytes,
            waits: paged.waits,
            page_reads_per_wait: paged.reads_of_waits as f64 / paged.waits.max(1) as f64,
            past_reads: paged.past_reads,
            major_faults: paged.major_faults,
            rows_over: paged.rows_over,
            came_back: paged.came_back,
            cpu_us_per_row_over: paged.over_cpu_ns as f64 / 1e3 / paged.rows_over.max(1) as f64,
            write_bytes_per_row_byte: paged.write_bytes as f64 / paged.row_bytes_over.max(1) as f64,
            copies: paged.level.as_ref().map(Copies::of),
        }
    }

    /// Counts since another moment.
    pub(crate) fn since(self, before: Option<&Self>) -> Self {
        let Some(before) = before else { return self };
        Self {
            page_ins: self.page_ins - before.page_ins,
            page_outs: self.page_outs - before.page_outs,
            write_bytes: self.write_bytes - before.write_bytes,
            waits: self.waits - before.waits,
            past_reads: self.past_reads - before.past_reads,
            major_faults: self.major_faults - before.major_faults,
            rows_over: self.rows_over - before.rows_over,
            came_back: self.came_back - before.came_back,
            copies: self.copies.map(|copies| copies.since(before.copies.as_ref())),
            ..self
        }
    }
}
