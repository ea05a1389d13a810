//! The cold rows of a backup, record by record: for stores that cannot keep one moment of themselves as bytes.
//!
//! No record is removed from before the cut until the store has been copied (32). The copy is a store of its own: without
//! batches that were begun after the cut (their rows are in the images or the log of the copy), batches whose migration had
//! failed, and what was in tables before they were emptied or dropped.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use thermocline_base::ids::Timestamp;
use thermocline_base::sync::Ordering;
use thermocline_pool::store::{Batch, BatchId, Direction, IndexId as StoreIndex, StoreEnd, StoreError};

use super::backup::{RowsCut, Teller};
use crate::cold::Cold;
use crate::cold::memo::NoticeKind;
use crate::cold::store::{ColdStore, StoreMemory, StoreTies, primary_of, secondary_of};
use crate::error::{Error, Result};
use crate::mutation::{self, Rule};
use crate::pressure::Trimmer;
use crate::schema::is_internal;
use crate::session::db::Inner;

/// What a batch takes without its entries, from here until it is durable.
const BATCH_OVERHEAD_BYTES: usize = 768;

/// Of the time that copying takes, one part in so many goes to giving back what batches leave in the heap.
const TRIMMING_SHARE: u64 = 20;

/// The store that a backup writes to counts under the memory limit until this is dropped.
struct Counted<'a> {
    inner: &'a Inner,
    store: &'a Arc<dyn ColdStore>,
}

impl<'a> Counted<'a> {
    fn new(inner: &'a Inner, store: &'a Arc<dyn ColdStore>) -> Self {
        inner.cold.copies().lock().push(Arc::clone(store));
        Self { inner, store }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.inner.cold.copies().lock().retain(|store| !Arc::ptr_eq(store, self.store));
    }
}

/// Batches whose migration has failed. None is running.
pub(super) fn failed_batches(db: &Inner) -> HashSet<u64> {
    let mut failed = HashSet::new();
    if let Some(memo) = db.cold.memo() {
        crate::ops::clean::each_notice(db, memo.batches_form(), &mut |_, version, _| {
            let (batch, kind, _) = memo.read_batch(version);
            if kind == NoticeKind::None {
                failed.insert(batch);
            }
        });
    }
    failed
}

/// The tables that may have cold rows.
pub(super) fn cold_tables(db: &Inner) -> Vec<(String, Timestamp, Vec<StoreIndex>)> {
    let guard = db.epochs.pin();
    let tables = db.catalog.all();
    let forms = tables.iter().filter(|entry| !is_internal(entry.id)).map(|entry| entry.form_pinned(&guard));
    forms
        .filter(|form| form.counters.cold.load(Ordering::SeqCst))
        .map(|form| {
            let secondary = form.indexes[1..].iter().map(|index| secondary_of(form.id, index.id));
            let indexes = std::iter::once(primary_of(form.id)).chain(secondary).collect();
            (form.schema.name.clone(), form.emptied.get(), indexes)
        })
        .collect()
}

/// Copies the records that belong to a cut into a store in `directory`.
pub(super) fn copy_cold_rows(
    db: &Inner,
    cut: &RowsCut<'_>,
    directory: &Path,
    teller: &mut Teller<'_>,
) -> Result<StoreEnd> {
    let dir = crate::cold::store::dir_of(directory);
    let failed = |table: &str| {
        let table = table.to_owned();
        move |source: StoreError| Error::ColdStore { table: table.clone(), rows: None, source }
    };
    let ties = StoreTies::default();
    // Nobody reads from it.
    let memory = StoreMemory { frame_bytes: 0, ..StoreMemory::within(db.memory_limit()) };
    let store = crate::cold::open_store(&db.options, db.cold.io(), &dir, db.files.id(), memory, None, ties)
        .map_err(failed("(backup)"))?;
    let copy = Cold::new(store, db.options.cold_threads == 0);
    let _counted = Counted::new(db, &copy.store);
    let cold = cut.cold;
    // A block's bytes of them at once, which the governor counts.
    let mut batches: BTreeMap<u64, Batch> = BTreeMap::new();
    let mut bytes = 0;
    let mut trimmer = Trimmer::default();
    for (table, since, indexes) in &cut.tables {
        for &index in indexes {
            let mut scan = cold.store.scan(index, &[], None, Direction::Forward);
            while let Some(found) = cold.finish(scan.next()).map_err(failed(table))? {
                for entry in found.entries {
                    let id = entry.batch.0;
                    let later = id > cut.clock.0 && mutation::on(Rule::BackupPausesMoves);
                    if id <= since.0 || later || cut.failed.contains(&id) {
                        continue;
                    }
                    let batch = batches.entry(id).or_insert_with(|| {
                        bytes += BATCH_OVERHEAD_BYTES;
                        Batch::confirmed(BatchId(id))
                    });
                    let before = batch.memory_bytes();
                    batch.put(index, &found.key, &entry.record).map_err(failed(table))?;
                    bytes += batch.memory_bytes() - before;
                }
                if bytes >= memory.block_bytes {
                    write_all(&copy, std::mem::take(&mut batches).into_values())
                        .map_err(failed("(backup)"))?;
                    teller.more(bytes as u64)?;
                    bytes = 0;
                    if db.budget.limit().is_some() {
                        trimmer.trim(&*db.clock, 0, TRIMMING_SHARE);
                    }
                }
            }
        }
    }
    write_all(&copy, batches.into_values()).map_err(failed("(backup)"))?;
    copy.store.close();
    db.files.io().sync_dir(&dir)?;
    Ok(copy.store.end())
}

/// Writes batches, all at once.
pub(crate) fn write_all(
    cold: &Cold,
    batches: impl Iterator<Item = Batch>,
) -> std::result::Result<(), StoreError> {
    let mut context = Context::from_waker(Waker::noop());
    let mut outcome = Ok(());
    let mut writes = Vec::new();
    // All of them are on their way before the first is waited for; what is done must not be polled again.
    for batch in batches {
        let mut write = cold.store.write(batch);
        match write.as_mut().poll(&mut context) {
            Poll::Ready(written) => outcome = outcome.and(written),
            Poll::Pending => writes.push(write),
        }
    }
    for write in writes {
        outcome = outcome.and(cold.finish(write));
    }
    outcome
}
