//! Statistics of a database.

use thermocline_base::epoch::Guard;
use thermocline_base::ids::TableId;
use thermocline_base::sync::{AtomicU64, Ordering};
use thermocline_pool::ssd::SsdStats;

use crate::api::{Database, Table};
use crate::catalog::table::TableForm;
use crate::counters::{AbortCounts, MemoNotices, Waits};
use crate::error::Result;
use crate::hot::budget::MemoryKind;
use crate::schema::Tiering;
use crate::session::db::Inner;
use crate::temperature::Temperatures;

/// Bytes of memory by what they are for. Whole blocks as they were taken from the system, so that the sum is what the
/// memory limit counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUse {
    /// Versions of rows.
    pub versions: u64,
    /// Slots of chunks.
    pub slots: u64,
    /// Blocks of frozen chunks.
    pub frozen: u64,
    /// The paged side: its frames, and the tables that lead to its pages.
    pub paged: u64,
    /// Hash indexes.
    pub hash_indexes: u64,
    /// Ordered indexes.
    pub ordered_indexes: u64,
    /// The update memo.
    pub memo: u64,
    /// Access filters of the cold store.
    pub cold_filters: u64,
    /// Fences of the cold store, and the like.
    pub cold_fences: u64,
    /// Bytes on their way to the cold store's device.
    pub cold_buffers: u64,
    /// Cached pages of the cold store.
    pub cold_frames: u64,
    /// The knowledge of temperatures.
    pub temperature: u64,
    /// The log's ring and buffers.
    pub log_buffer: u64,
    /// The memory of transactions for their reads and writes, where that is much: a serializable one that reads millions of
    /// rows. Short lists are part of `process`.
    pub transactions: u64,
    /// Rows that queries keep ([`Reservation`](crate::Reservation)).
    pub queries: u64,
    /// Memory of the process for the database apart from all that: stacks of its threads, tables of fixed size, what the
    /// allocator keeps. An estimate.
    pub process: u64,
    /// Everything else that the memory limit counts.
    pub other: u64,
}

/// Checkpoints since a database was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct CheckpointCounts {
    /// That have begun.
    pub begun: u64,
    /// That have ended well.
    pub completed: u64,
}

impl MemoryUse {
    /// All of it: what the memory limit counts.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.parts().map(|(_, bytes)| bytes).sum()
    }

    /// Each part, with its name.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        // Named one by one, so that a part that is missing below is noticed.
        let Self {
            versions,
            slots,
            frozen,
            paged,
            hash_indexes,
            ordered_indexes,
            memo,
            cold_filters,
            cold_fences,
            cold_buffers,
            cold_frames,
            temperature,
            log_buffer,
            transactions,
            queries,
            process,
            other,
        } = *self;
        [
            ("versions", versions),
            ("slots", slots),
            ("frozen", frozen),
            ("paged", paged),
            ("hash_indexes", hash_indexes),
            ("ordered_indexes", ordered_indexes),
            ("memo", memo),
            ("cold_filters", cold_filters),
            ("cold_fences", cold_fences),
            ("cold_buffers", cold_buffers),
            ("cold_frames", cold_frames),
            ("temperature", temperature),
            ("log_buffer", log_buffer),
            ("transactions", transactions),
            ("queries", queries),
            ("process", process),
            ("other", other),
        ]
        .into_iter()
    }
}

/// Rows in the cold store, and moves between it and memory. Counters count since the database was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ColdStatistics {
    /// Reads of the cold store by transactions.
    pub reads: u64,
    /// Reads of its device for them.
    pub device_reads: u64,
    /// Bytes written to its device.
    pub device_write_bytes: u64,
    /// Reads of its device that found nothing, because an access filter said "maybe".
    pub filter_false_positives: u64,
    /// Rows that have moved to the cold store, alone or with their chunk.
    pub migrated_rows: u64,
    /// Rows that have come back because they were read often.
    pub promoted_rows: u64,
    /// Notices in the update memo.
    pub memo_rows: u64,
    /// Rows in the cold store, as far as that is known: ended ones are among them until they are removed.
    pub rows_cold: u64,
    /// Bytes of their records.
    pub bytes_cold: u64,
    /// Bytes of memory that a row in the cold store takes: filters, fences and notices.
    pub bytes_per_cold_row: f64,
    /// Processor time of the governor for each row that has moved alone, in microseconds.
    pub cpu_us_per_migrated_row: f64,
    /// Snapshots that were cancelled because they kept memory that others needed.
    pub cancelled_snapshots: u64,
    /// Times that an operation, or a transaction that was to begin, has waited for memory.
    pub memory_waits: u64,
    /// The longest of these waits, in microseconds.
    pub memory_wait_us_max: u64,
    /// Bytes on the cold store's device.
    pub disk_bytes: u64,
    /// The SSD that keeps copies of its pages, if there is one.
    pub ssd: Option<SsdStats>,
}

/// Rows that are compressed in their chunks. What has been frozen and thawed counts since the database was opened, or the
/// columns of the table have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FrozenStatistics {
    /// Chunks without a block.
    pub chunks_hot: u64,
    /// Chunks with one.
    pub chunks_frozen: u64,
    /// Rows that stand in blocks.
    pub rows_frozen: u64,
    /// Bytes of the blocks.
    pub bytes_blocks: u64,
    /// Bytes of what is kept beside them while snapshots could tell the begins of their rows apart.
    pub bytes_begins: u64,
    /// Rows that were frozen so far, each time.
    pub frozen_rows: u64,
    /// Rows that were thawed so far, because they were about to change or were asked to.
    pub thawed_rows: u64,
    /// Chunks that have left memory whole since the database was opened, and the rows that left with them.
    pub left_chunks: u64,
    /// See there.
    pub left_rows: u64,
    /// Rows that the threads that freeze have frozen, and the processor time that took, in nanoseconds; what is asked for by hand
    /// does not count.
    pub freezing_rows: u64,
    /// See there.
    pub freezing_cpu_ns: u64,
    /// Processor time that their leaving took, in nanoseconds, letting go in memory included.
    pub leaving_cpu_ns: u64,
}

impl FrozenStatistics {
    /// Processor time of a row that froze, in microseconds.
    #[must_use]
    pub fn cpu_us_per_frozen_row(&self) -> f64 {
        self.freezing_cpu_ns as f64 / 1e3 / self.freezing_rows.max(1) as f64
    }

    /// Processor time of a row that left with its chunk, in microseconds.
    #[must_use]
    pub fn cpu_us_per_left_row(&self) -> f64 {
        self.leaving_cpu_ns as f64 / 1e3 / self.left_rows.max(1) as f64
    }

    fn add_done(&mut self, inner: &Inner) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let done = &inner.governor.freezer;
        self.freezing_rows = get(&done.frozen_rows);
        self.freezing_cpu_ns = get(&done.freezing_cpu_ns);
        self.leaving_cpu_ns = get(&done.leaving_cpu_ns);
        if let Some(cold) = inner.cold.get() {
            self.left_chunks = get(&cold.counters.left_chunks);
            self.left_rows = get(&cold.counters.left_chunk_rows);
        }
    }

    fn add(&mut self, form: &TableForm, guard: &Guard<'_>) {
        let store = &form.store;
        self.frozen_rows += store.frozen_rows.load(Ordering::Relaxed);
        self.thawed_rows += store.thawed_rows.load(Ordering::Relaxed);
        for number in 0..store.directory.len() {
            let Some(chunk) = store.directory.get(number, guard) else { continue };
            let is_frozen = chunk.blocks(guard).any(|block| block.run().is_none());
            *(if is_frozen { &mut self.chunks_frozen } else { &mut self.chunks_hot }) += 1;
            for block in chunk.blocks(guard).filter(|block| block.run().is_none()) {
                self.rows_frozen += u64::from(block.live().saturating_sub(block.left()));
                self.bytes_blocks += block.rows().bytes_len() as u64;
                self.bytes_begins += block.begins_bytes(guard);
            }
        }
    }
}

/// Rows on the paged side, and the work of its pager.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PagedStatistics {
    /// `own` or `os`.
    pub pager: &'static str,
    /// The medium of its pages: `file`, or that of [`crate::Options::paged_file`].
    pub medium: &'static str,
    /// Rows that were written there and whose pages are kept, those that came back or were changed since among them, and their bytes.
    pub rows: u64,
    /// Their bytes.
    pub row_bytes: u64,
    /// Bytes of the pages that hold them.
    pub page_bytes: u64,
    /// Rows that have gone over since the database was opened, each time.
    pub rows_over: u64,
    /// Bytes that their versions took in memory.
    pub row_bytes_over: u64,
    /// Processor time of that.
    pub over_cpu_ns: u64,
    /// Rows that came back since their readers wanted them in memory.
    pub came_back: u64,
    /// Pages that were read past the frames.
    pub past_reads: u64,
    /// Bytes of pages in memory.
    pub resident_bytes: u64,
    /// Pages that came in.
    pub page_ins: u64,
    /// Pages that went out.
    pub page_outs: u64,
    /// Bytes that were written.
    pub write_bytes: u64,
    /// Pages that readers waited for.
    pub waits: u64,
    /// Reads of pages that waiters began.
    pub reads_of_waits: u64,
    /// Faults for which the system read, in the whole process: of the pager `os`, which cannot tell its own.
    pub major_faults: u64,
    /// Copies of its pages in memory that is lent.
    pub level: Option<SsdStats>,
}

impl PagedStatistics {
    fn of(inner: &Inner, paged: &crate::hot::paged::Paged) -> Self {
        let usage = paged.usage();
        Self {
            pager: usage.pager,
            medium: inner.options.paged_file.as_ref().map_or("file", |file| file.medium()),
            rows: usage.rows,
            row_bytes: usage.row_bytes,
            page_bytes: usage.pages * crate::hot::paged::PAGE_BYTES as u64,
            rows_over: paged.over.rows.load(Ordering::Relaxed),
            row_bytes_over: paged.over.row_bytes.load(Ordering::Relaxed),
            over_cpu_ns: paged.over.cpu_ns.load(Ordering::Relaxed),
            came_back: inner.paged.came_back(),
            past_reads: usage.past_reads,
            resident_bytes: usage.resident_bytes,
            page_ins: usage.page_ins,
            page_outs: usage.page_outs,
            write_bytes: usage.write_bytes,
            waits: usage.waits,
            reads_of_waits: usage.reads_of_waits,
            major_faults: usage.major_faults,
            level: paged.level(),
        }
    }
}

/// Where the rows of a table are.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct TableStatistics {
    /// May its rows leave memory?
    pub tiering: Tiering,
    /// Rows in memory, with versions of them that are not pruned yet.
    pub rows_hot: u64,
    /// Bytes of their versions.
    pub bytes_hot: u64,
    /// Those of the rows in memory that are frozen.
    pub rows_frozen: u64,
    /// Bytes of their blocks.
    pub bytes_frozen: u64,
    /// Rows in the cold store, as far as that is known: ended ones count until they are removed.
    pub rows_cold: u64,
    /// Bytes of their keys and records; in a store with slots of a fixed length, of the slots.
    pub bytes_cold: u64,
    /// Bytes of memory that the access filters of the table's indexes take.
    pub filter_bytes: u64,
    /// Reads of the device that a look for an absent primary key costs on average, because filters are wrong.
    pub filter_error_rate: f64,
    /// Since the database was opened, or the table's columns were changed: rows that froze, each time, and rows that thawed.
    pub frozen_rows: u64,
    /// See [`TableStatistics::frozen_rows`].
    pub thawed_rows: u64,
    /// Since the database was opened: rows that moved to the cold store one by one.
    pub moved_rows: u64,
    /// Rows that left memory with their chunk.
    pub left_rows: u64,
    /// Rows that came back from the cold store because they were read often.
    pub promoted_rows: u64,
}

/// Counters and sizes of a database since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Statistics {
    /// Transactions that committed writes.
    pub commits: u64,
    /// Transactions that committed without having written.
    pub read_only_commits: u64,
    /// Transactions that were rolled back by their owner.
    pub rollbacks: u64,
    /// Failed operations by cause.
    pub aborts: AbortCounts,
    /// The waits of operations, by kind.
    pub waits: Waits,
    /// Memory by use.
    pub memory: MemoryUse,
    /// Rows that are compressed in memory.
    pub frozen: FrozenStatistics,
    /// The paged side; none: no row has gone over to it since the database was opened.
    pub paged: Option<PagedStatistics>,
    /// Rows outside of memory.
    pub cold: ColdStatistics,
    /// The memory limit.
    pub memory_limit: Option<u64>,
    /// Bytes that versions occupy, free cells aside.
    pub version_bytes_used: u64,
    /// Entries in all indexes.
    pub index_entries: u64,
    /// Rows with versions that wait to be pruned.
    pub garbage_items: u64,
    /// Bytes written to the log.
    pub log_bytes: u64,
    /// Syncs of the log.
    pub log_syncs: u64,
    /// Checkpoints that were completed.
    pub checkpoints: u64,
    /// Bytes of images that checkpoints wrote.
    pub checkpoint_bytes: u64,
    /// Checkpoints that have begun, the completed ones included.
    pub checkpoints_begun: u64,
    /// Writes that were lost when the database was opened: it had been written with `durability = off` and was not closed.
    pub lost_volatile_session: bool,
    /// Bytes of the log that opening the database has read.
    pub replayed_bytes: u64,
}

impl Database {
    /// Counters and sizes of the database.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let inner = self.inner();
        if !inner.governor.is_there() {
            crate::ops::memory::note_memory(inner);
        }
        let sums = inner.counters.sums();
        let guard = inner.epochs.pin();
        let (mut version_bytes_used, mut index_entries) = (0, 0);
        let mut frozen = FrozenStatistics::default();
        for entry in inner.catalog.all() {
            let form = entry.form_pinned(&guard);
            version_bytes_used += form.store.memory.used_bytes();
            frozen.add(form, &guard);
            for index in &form.indexes {
                index_entries += index.len();
            }
        }
        frozen.add_done(inner);
        let log = inner.log().map(crate::log::Log::statistics).unwrap_or_default();
        let used = |kind| inner.budget.used_by(kind);
        let checkpoints = &inner.checkpoints;
        Statistics {
            commits: sums.commits,
            read_only_commits: sums.read_only_commits,
            rollbacks: sums.rollbacks,
            aborts: sums.aborts,
            waits: sums.waits,
            memory: MemoryUse {
                versions: used(MemoryKind::Versions),
                slots: used(MemoryKind::Slots),
                frozen: used(MemoryKind::Frozen),
                paged: used(MemoryKind::Paged),
                hash_indexes: used(MemoryKind::Hash),
                ordered_indexes: used(MemoryKind::Tree),
                memo: used(MemoryKind::Memo),
                cold_filters: used(MemoryKind::ColdFilters),
                cold_fences: used(MemoryKind::ColdFences),
                cold_buffers: used(MemoryKind::ColdBuffers),
                cold_frames: used(MemoryKind::ColdFrames),
                temperature: used(MemoryKind::Temperature),
                log_buffer: used(MemoryKind::Log),
                transactions: used(MemoryKind::Transactions),
                queries: used(MemoryKind::Queries),
                process: used(MemoryKind::Process),
                other: used(MemoryKind::Other),
            },
            frozen,
            paged: inner.paged.get().map(|paged| PagedStatistics::of(inner, paged)),
            cold: cold_statistics(inner, &guard),
            memory_limit: inner.budget.limit(),
            version_bytes_used,
            index_entries,
            garbage_items: inner.garbage.len() as u64,
            log_bytes: log.bytes,
            log_syncs: log.syncs,
            checkpoints: checkpoints.completed.load(Ordering::Relaxed),
            checkpoint_bytes: checkpoints.bytes.load(Ordering::Relaxed),
            checkpoints_begun: checkpoints.begun.load(Ordering::Relaxed),
            lost_volatile_session: checkpoints.lost_volatile_session,
            replayed_bytes: checkpoints.replayed_bytes,
        }
    }

    /// Counts the checkpoints that have begun and have ended since the database was opened. Costs next to nothing, unlike
    /// [`Database::statistics`].
    #[must_use]
    pub fn checkpoints(&self) -> CheckpointCounts {
        let found = &self.inner().checkpoints;
        // In this order: none has ended that has not begun.
        let completed = found.completed.load(Ordering::SeqCst);
        CheckpointCounts { begun: found.begun.load(Ordering::SeqCst), completed }
    }

    /// The temperatures of rows, by table, as far as they are known; those that were known when the database was closed last, while this
    /// session has not begun to measure (it does when half of the memory limit is used). Units are accesses a second.
    /// `None`: nothing is known.
    #[must_use]
    pub fn temperatures(&self) -> Option<Temperatures> {
        crate::ops::temperatures::temperatures(self.inner())
    }

    /// Changes the memory limit while the database runs. While more is in use rows leave memory, and writers wait.
    ///
    /// # Errors
    /// [`InvalidOption`](crate::Error::InvalidOption): the limit has no room for what the database needs however few of its rows are
    /// in memory. The former limit stays.
    pub fn set_memory_limit(&self, limit: Option<u64>) -> Result<()> {
        let inner = self.inner();
        crate::ops::minimum::check(inner, limit, u64::MAX)?;
        inner.budget.set_limit(limit);
        inner.governor.wake();
        Ok(())
    }
}

impl Table {
    /// Its number, by which [`Temperatures`] name it. It stays the same as long as the table is there.
    #[must_use]
    pub fn id(&self) -> TableId {
        self.entry.id
    }

    /// The notices about it in the update memo. Goes through all notices, of other tables too: not for every second.
    #[must_use]
    pub fn memo_notices(&self) -> MemoNotices {
        let memo = self.db.cold.memo();
        memo.map(|memo| memo.notices_of(self.entry.id, &self.db.epochs.pin())).unwrap_or_default()
    }

    /// The number of its rows, about: deleted ones count until they are pruned, and in the cold store until they are cleaned away.
    /// Costs a few loads, and a look at the cold store's list of tables if some of the rows are there.
    #[must_use]
    pub fn rows_about(&self) -> u64 {
        let (hot, may_be_cold) =
            self.with_form(|form| (form.primary().len(), form.counters.cold.load(Ordering::Relaxed)));
        if may_be_cold { hot + crate::ops::backfill::cold_records(&self.db, self.entry.id) } else { hot }
    }

    /// Where its rows are.
    #[must_use]
    pub fn statistics(&self) -> TableStatistics {
        let mut found = TableStatistics::default();
        self.with_form(|form| {
            found.tiering = form.schema.row_tiering();
            found.rows_hot = form.primary().len();
            found.bytes_hot = form.store.memory.used_bytes();
            let mut frozen = FrozenStatistics::default();
            frozen.add(form, &self.db.epochs.pin());
            (found.rows_frozen, found.bytes_frozen) = (frozen.rows_frozen, frozen.bytes_blocks);
            let (get, counters) = (|counter: &AtomicU64| counter.load(Ordering::Relaxed), &form.counters);
            found.frozen_rows = get(&form.store.frozen_rows);
            found.thawed_rows = get(&form.store.thawed_rows);
            found.moved_rows = get(&counters.moved_rows);
            found.left_rows = get(&counters.left_rows);
            found.promoted_rows = get(&counters.promoted_rows);
        });
        if let Some(cold) = self.db.cold.get() {
            let usage = cold.store.tables().remove(&self.entry.id.0).unwrap_or_default();
            (found.rows_cold, found.bytes_cold) = (usage.records, usage.bytes);
            (found.filter_bytes, found.filter_error_rate) = (usage.filter_bytes, usage.filter_error_rate);
        }
        found
    }
}

fn cold_statistics(inner: &Inner, guard: &Guard<'_>) -> ColdStatistics {
    let (Some(cold), Some(memo)) = (inner.cold.get(), inner.cold.memo()) else {
        return ColdStatistics::default();
    };
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (usage, counters) = (cold.store.usage(), &cold.counters);
    let memo_rows =
        [&memo.batches, &memo.ends].map(|entry| entry.form_pinned(guard).primary().len()).iter().sum();
    let migrated_rows = get(&counters.migrated_rows);
    let tables = cold.store.tables();
    // A store that cannot tell tables apart knows them all together.
    let rows_cold = tables.values().map(|of| of.records).sum::<u64>().max(usage.records);
    let each = |sum: f64, count: u64| if count == 0 { 0.0 } else { sum / count as f64 };
    let resident = usage.filter_bytes + usage.fence_bytes + inner.budget.used_by(MemoryKind::Memo);
    ColdStatistics {
        reads: get(&counters.reads),
        device_reads: usage.device_reads,
        device_write_bytes: usage.device_write_bytes,
        filter_false_positives: usage.false_positives,
        migrated_rows: migrated_rows + get(&counters.left_chunk_rows),
        promoted_rows: get(&counters.promoted_rows),
        memo_rows,
        rows_cold,
        bytes_cold: tables.values().map(|of| of.bytes).sum(),
        bytes_per_cold_row: each(resident as f64, rows_cold),
        cpu_us_per_migrated_row: each(get(&inner.governor.counters.cpu_ns) as f64 / 1e3, migrated_rows),
        cancelled_snapshots: get(&inner.governor.counters.cancelled),
        memory_waits: get(&inner.governor.counters.waits),
        memory_wait_us_max: get(&inner.governor.counters.longest_wait_ns) / 1000,
        disk_bytes: usage.disk_bytes,
        ssd: cold.store.ssd(),
    }
}
