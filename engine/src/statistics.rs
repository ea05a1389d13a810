//! What a database can tell about itself.

use thermocline_base::sync::Ordering;

use crate::catalog::table::Structure;
use crate::counters::AbortCounts;
use crate::db::Database;
use crate::hot::budget::MemoryKind;

/// Bytes of memory by what they are for. Whole blocks as they were taken from the system, so that the sum is what the
/// memory limit counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUse {
    /// Versions of rows.
    pub versions: u64,
    /// Slots of chunks.
    pub slots: u64,
    /// Hash indexes.
    pub hash_indexes: u64,
    /// Ordered indexes.
    pub ordered_indexes: u64,
    /// Everything else that the memory limit counts.
    pub other: u64,
    /// The log's ring (outside of the limit).
    pub log_buffer: u64,
}

/// Counters and sizes of a database since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// Memory by use.
    pub memory: MemoryUse,
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
    /// What was lost when the database was opened: it had been written with `durability = off` and was not closed.
    pub lost_volatile_session: bool,
}

impl Database {
    /// Counters and sizes of the database.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let inner = self.inner();
        let sums = inner.counters.sums();
        let guard = inner.epochs.pin();
        let (mut version_bytes_used, mut index_entries) = (0, 0);
        for entry in inner.catalog.all() {
            let form = entry.form_pinned(&guard);
            version_bytes_used += form.store.memory.used_bytes();
            for index in &form.indexes {
                index_entries += match &index.structure {
                    Structure::Hash(hash) => hash.len(),
                    Structure::Tree(tree) => tree.len(),
                };
            }
        }
        let log = inner.log().map(crate::log::Log::statistics).unwrap_or_default();
        let used = |kind| inner.budget.used_by(kind);
        let checkpoints = &inner.checkpoints;
        Statistics {
            commits: sums.commits,
            read_only_commits: sums.read_only_commits,
            rollbacks: sums.rollbacks,
            aborts: sums.aborts,
            memory: MemoryUse {
                versions: used(MemoryKind::Versions),
                slots: used(MemoryKind::Slots),
                hash_indexes: used(MemoryKind::Hash),
                ordered_indexes: used(MemoryKind::Tree),
                other: used(MemoryKind::Other),
                log_buffer: if inner.log().is_some() { inner.options.log_buffer_bytes } else { 0 },
            },
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
        }
    }

    /// Changes the memory limit while the database runs. Writers are refused while more is in use.
    pub fn set_memory_limit(&self, limit: Option<u64>) {
        self.inner().budget.set_limit(limit);
    }
}
