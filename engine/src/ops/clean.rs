//! Cleaning: records that nobody can see are removed from the cold store, and notices that say nothing any more are
//! dropped (Eldawy et al., VLDB 2014, §5.6). It runs beside migration.
//!
//! | notice | when | what |
//! |---|---|---|
//! | E | no snapshot is older than it, and the log is durable past it | the record goes |
//! | N | its migration does not run any more | nothing of its batch is in flight, then the batch is discarded |
//! | E, N | the record or batch has gone, and no snapshot is older than that | the notice is dropped |
//! | B | no snapshot is older than it, and the store knows that the batch stays | the notice is dropped |
//!
//! A notice is dropped by a transaction of its own, later than the removal (`NoticeAfterRecord`). Whoever holds a copy of a record has a
//! snapshot from before he read it, so from before its removal, and still finds the notice (`NoticeOutlivesReaders`).

use std::collections::HashSet;
use std::sync::Arc;

use thermocline_base::epoch::Guard;
use thermocline_base::ids::{RowId, TableId, Timestamp};
use thermocline_pool::store::{Batch, BatchId, IndexId as StoreIndex, Removal, StoreError};

use crate::catalog::table::{FormRef, TableForm};
use crate::cold::memo::{Memo, NoticeKind, pack_keys, unpack_keys};
use crate::cold::store::{primary_of, secondary_of};
use crate::cold::{Cold, ColdCounters, NoticeTable, Removed};
use crate::error::{Error, Result};
use crate::hot::version::{Begin, Version};
use crate::mutation::{self, Rule};
use crate::ops::commit::PartsState;
use crate::ops::drive::Driver;
use crate::session::db::Inner;
use crate::session::{Session, Write};

/// Records that are removed in one batch.
const RECORDS_AT_ONCE: usize = 1024;
/// Notices that are dropped in one transaction.
const NOTICES_AT_ONCE: usize = 256;
/// Marks the ids of batches that only remove. They are drawn from the clock like others, and are confirmed when they are
/// durable.
pub(crate) const REMOVES: u64 = 1 << 63;

/// What a round of cleaning has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cleaning {
    /// Records that were removed.
    pub(crate) removed: usize,
    /// Batches that were discarded.
    pub(crate) discarded: usize,
    /// Notices that were dropped.
    pub(crate) dropped: usize,
}

impl Cleaning {
    /// Was there nothing to do?
    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// What a round has found in the memo.
#[derive(Debug, Default)]
struct Found {
    /// Ends whose records can go: row of the notice, table, batch, keys.
    ended: Vec<(RowId, TableId, u64, Vec<u8>)>,
    /// Batches whose migration has failed.
    failed: Vec<(RowId, u64)>,
    /// Batches that have moved, of which the store does not know it.
    unconfirmed: Vec<u64>,
    /// Notices that can be dropped.
    superfluous: Vec<RowId>,
}

/// One round of cleaning. Nothing if somebody else is at one.
///
/// # Errors
/// The log or the cold store has failed or is full. The next round tries again.
pub(crate) async fn clean(db: &Arc<Inner>) -> Result<Cleaning> {
    let (Some(memo), Some(cold)) = (db.cold.memo(), db.cold.get()) else {
        return Ok(Cleaning::default());
    };
    let Some(_round) = cold.begin_cleaning() else { return Ok(Cleaning::default()) };
    let mut cleaning = Cleaning { dropped: drop_removed(db, memo, cold).await?, ..Cleaning::default() };
    let found = find_notices(db, memo, cold);
    let failed =
        |source: StoreError| Error::ColdStore { table: "(update memo)".to_owned(), rows: None, source };
    // The store may forget what it knows of notices only when the log is sure to remember.
    if !found.unconfirmed.is_empty() {
        crate::ops::migrate::log_durable(db, Rule::ConfirmAfterLog).await?;
    }
    for batch in found.unconfirmed {
        cold.store.confirm(BatchId(batch)).await.map_err(failed)?;
    }
    for (row, batch) in found.failed {
        if mutation::on(Rule::DiscardAfterWrite) {
            cold.store.quiescent(BatchId(batch)).await.map_err(failed)?;
        }
        cold.store.discard(BatchId(batch)).await.map_err(failed)?;
        note_removed(db, cold, NoticeTable::Batches, &[row]);
        cleaning.discarded += 1;
    }
    if !found.ended.is_empty() {
        crate::ops::migrate::log_durable(db, Rule::RemovalAfterLog).await?;
    }
    for ended in found.ended.chunks(RECORDS_AT_ONCE) {
        let mut batch = Batch::confirmed(BatchId(REMOVES | db.registry.clock.tick().0));
        for (_, table, of, keys) in ended {
            for (index, key) in unpack_keys(keys) {
                let index = StoreIndex { table: table.0, index };
                batch.remove(index, key, BatchId(*of), Removal::Only).map_err(failed)?;
            }
            remove_younger(db, cold, &mut batch, *table, *of, keys).await.map_err(failed)?;
        }
        let rows: Vec<RowId> = ended.iter().map(|(row, ..)| *row).collect();
        if mutation::off(Rule::NoticeAfterRecord) {
            drop_notices(db, memo.ends_form(), &rows).await?;
        }
        cold.store.write(batch).await.map_err(failed)?;
        note_removed(db, cold, NoticeTable::Ends, &rows);
        ColdCounters::add(&cold.counters.removed_records, rows.len());
        cleaning.removed += rows.len();
    }
    for rows in found.superfluous.chunks(NOTICES_AT_ONCE) {
        cleaning.dropped += drop_notices(db, memo.batches_form(), rows).await?;
    }
    ColdCounters::add(&cold.counters.dropped_notices, cleaning.dropped);
    Ok(cleaning)
}

/// What stands in the memo that something can be done about.
fn find_notices(db: &Inner, memo: &Memo, cold: &Cold) -> Found {
    let oldest = db.registry.active_snapshots().oldest();
    let (running, removing) = {
        let progress = cold.progress.lock();
        (progress.running.clone(), progress.removing.clone())
    };
    let unconfirmed: HashSet<u64> = cold.store.unconfirmed().into_iter().map(|batch| batch.0).collect();
    let is_past = |begin: Timestamp| {
        begin <= oldest
            || mutation::off(Rule::RecordOutlivesReaders)
            || mutation::off(Rule::EndOutlivesFollowers)
    };
    let mut found = Found::default();
    each_notice(db, memo.batches_form(), &mut |row, version, begin| {
        let (batch, kind, _) = memo.read_batch(version);
        if running.contains(&batch) || removing.contains(&(NoticeTable::Batches, row)) {
            return;
        }
        match kind {
            NoticeKind::None if has_failed(db, memo, cold, batch) => found.failed.push((row, batch)),
            NoticeKind::None => {}
            NoticeKind::Begin if unconfirmed.contains(&batch) => {
                if !cold.progress.lock().running.contains(&batch) {
                    found.unconfirmed.push(batch);
                }
            }
            NoticeKind::Begin if is_past(begin) => found.superfluous.push(row),
            NoticeKind::Begin => {}
        }
    });
    each_notice(db, memo.ends_form(), &mut |row, version, begin| {
        let (name, table, keys) = memo.read_end(version);
        let ready = is_past(begin)
            && !running.contains(&name.batch)
            && !unconfirmed.contains(&name.batch)
            && !removing.contains(&(NoticeTable::Ends, row));
        if ready && found.ended.len() < 8 * RECORDS_AT_ONCE {
            found.ended.push((row, table, name.batch, keys));
        }
    });
    found
}

/// Has the migration of a batch failed, whose notice was seen to say N? It may have begun since the running ones
/// were read, and it may have moved and ended since its notice was: first it does not run, then it still says N.
fn has_failed(db: &Inner, memo: &Memo, cold: &Cold, batch: u64) -> bool {
    if mutation::off(Rule::FailedRunsNoMore) {
        return true;
    }
    if cold.progress.lock().running.contains(&batch) {
        return false;
    }
    let guard = db.epochs.pin();
    memo.batch_notice(batch, &guard).is_some_and(|(_, newest)| {
        matches!(newest.begin(), Begin::At(_))
            && !newest.is_tombstone()
            && memo.read_batch(newest).1 == NoticeKind::None
    })
}

/// Calls `see` with every notice whose newest version is committed.
pub(crate) fn each_notice(db: &Inner, form: FormRef, see: &mut dyn FnMut(RowId, Version, Timestamp)) {
    const SLOTS_A_PIN: u32 = 512;
    let store = &form.get().store;
    for number in 0..store.directory.len() {
        let mut slot = 0;
        loop {
            let guard = db.epochs.pin();
            let Some(chunk) = store.directory.get(number, &guard) else { break };
            let end = chunk.used().min(slot + SLOTS_A_PIN);
            for slot in (slot..end).filter_map(|slot| u16::try_from(slot).ok()) {
                let row = RowId::new(number, slot);
                if let Some(version) = store.directory.newest(row, &guard)
                    && !version.is_tombstone()
                    && let Begin::At(begin) = version.begin()
                {
                    see(row, version, begin);
                }
            }
            if end == slot || end == chunk.used() {
                break;
            }
            slot = end;
        }
    }
}

/// What the notices are about has gone.
fn note_removed(db: &Inner, cold: &Cold, table: NoticeTable, rows: &[RowId]) {
    // Greater than any snapshot that was taken before.
    let at = db.registry.clock.tick();
    let mut progress = cold.progress.lock();
    for &row in rows {
        progress.removing.insert((table, row));
        progress.removed.push_back(Removed { table, row, at });
    }
}

/// Drops notices whose records have gone so long ago that nobody holds a copy.
async fn drop_removed(db: &Arc<Inner>, memo: &Memo, cold: &Cold) -> Result<usize> {
    let oldest = db.registry.active_snapshots().oldest();
    let mut dropped = 0;
    loop {
        let due: Vec<Removed> = {
            let progress = cold.progress.lock();
            let is_due = |removed: &&Removed| {
                removed.at <= oldest
                    || mutation::off(Rule::NoticeOutlivesReaders)
                    || mutation::off(Rule::EndOutlivesFollowers)
            };
            progress.removed.iter().take_while(is_due).take(NOTICES_AT_ONCE).copied().collect()
        };
        if due.is_empty() {
            return Ok(dropped);
        }
        crate::ops::migrate::mark_store(db, cold);
        for (table, form) in
            [(NoticeTable::Batches, memo.batches_form()), (NoticeTable::Ends, memo.ends_form())]
        {
            let rows: Vec<RowId> =
                due.iter().filter(|removed| removed.table == table).map(|removed| removed.row).collect();
            if !rows.is_empty() {
                dropped += drop_notices(db, form, &rows).await?;
            }
        }
        let mut progress = cold.progress.lock();
        progress.removed.drain(..due.len());
        for removed in &due {
            progress.removing.remove(&(removed.table, removed.row));
        }
    }
}

/// Drops notices, in a transaction.
async fn drop_notices(db: &Arc<Inner>, form: FormRef, rows: &[RowId]) -> Result<usize> {
    let mut tx = Driver::internal(db)?;
    let dropped = tx.with_session(|session| {
        let guard = session.db().epochs.pin();
        let mut dropped = 0;
        for &row in rows {
            dropped += usize::from(session.drop_notice(form, row, &guard)?);
        }
        Ok(dropped)
    })?;
    tx.commit(&mut PartsState::default(), || ()).await?;
    Ok(dropped)
}

impl Session {
    /// Deletes the row of a notice. `false`: somebody else is changing it.
    fn drop_notice(&mut self, form_ref: FormRef, row: RowId, guard: &Guard<'_>) -> Result<bool> {
        let form = form_ref.get();
        let me = self.identify();
        loop {
            let Some(base) = form.store.directory.newest(row, guard) else { return Ok(false) };
            let Begin::At(_) = base.begin() else { return Ok(false) };
            if base.is_tombstone() {
                return Ok(false);
            }
            let version = form.store.create(Begin::By(me), Some(base), row, true, &[], &[])?;
            if form.store.directory.slot(row, guard).is_some_and(|slot| slot.swing(base, version)) {
                self.writes.push(Write { form: form_ref, row, version, replaced: Some(base) });
                return Ok(true);
            }
            form.store.discard(version);
        }
    }
}

/// Removes the entries of an ended record in indexes that are younger than its end: the notice, with its `keys`, does
/// not know of them.
async fn remove_younger(
    db: &Inner,
    cold: &Cold,
    removals: &mut Batch,
    table: TableId,
    of: u64,
    keys: &[u8],
) -> std::result::Result<(), StoreError> {
    let Some(entry) = db.catalog.by_id(table) else { return Ok(()) };
    let is_known = |index: u32| unpack_keys(keys).any(|(known, _)| known == index);
    // The form that everybody has, and the one that a transaction is making, which may have an index more.
    let knows_all = |form: &TableForm| {
        of <= form.emptied.get().0
            || form.indexes[1..].iter().all(|index| is_known(secondary_of(table, index.id).index))
    };
    let knows_all = {
        let guard = db.epochs.pin();
        knows_all(entry.form_pinned(&guard)) && entry.pending(&guard).is_none_or(knows_all)
    };
    let Some((_, primary)) = unpack_keys(keys).next().filter(|_| !knows_all) else { return Ok(()) };
    let found = cold.store.get(primary_of(table), primary).await?;
    let Some(record) = found.into_iter().find(|record| record.batch.0 == of) else { return Ok(()) };
    let guard = db.epochs.pin();
    let forms = std::iter::once(entry.form_pinned(&guard)).chain(entry.pending(&guard));
    let mut removed = Vec::new();
    for form in forms.filter(|form| of > form.emptied.get().0) {
        let mut all = Vec::new();
        let renewed = form.renew(of, &record.record);
        let record = renewed.as_deref().unwrap_or(&record.record);
        pack_keys(form, form.row_in(record), form.suffix_in(record), &mut all);
        for (index, key) in unpack_keys(&all).filter(|(index, _)| !is_known(*index)) {
            if !removed.contains(&index) {
                removals.remove(StoreIndex { table: table.0, index }, key, BatchId(of), Removal::Only)?;
                removed.push(index);
            }
        }
    }
    Ok(())
}
