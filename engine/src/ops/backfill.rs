//! A new index over rows in the cold store: their records get the entries that they would have, had the index been there
//! when they left memory. Each entry is of its record's batch; so it is seen, ended and removed with the record, and
//! nobody can tell it from one that migration has written.
//!
//! | step | a crash right after it leaves |
//! |---|---|
//! | 1 a manifest says that the index's number is used up | the old definition |
//! | 2 the entries are written, a portion at a time, confirmed | the old definition; opening the store drops the entries |
//! | 3 the manifest with the index is written | the new definition |
//!
//! Without step 1 a start after a crash could give the number again, to an index of which old entries are there.
//!
//! The table is held meanwhile: nobody changes its rows, and none moves. What is in batches whose move has not been decided
//! never will be there: such a batch is of another form of the table, and is discarded. Nothing is cleaned: no record goes
//! between the look at it and the entry. Maintenance and checkpoints go on.
//!
//! Records that have ended get entries, too: older snapshots see them. The notices of their ends do not know of the new
//! index, so the cleaner looks what its entry is ([`crate::ops::clean`]).

use std::time::Duration;

use thermocline_base::epoch::Guard;
use thermocline_base::ids::TableId;
use thermocline_base::sync::{Backoff, Ordering};
use thermocline_pool::store::{Batch, BatchId, Direction, IndexId as StoreIndex, StoreError};

use crate::catalog::table::{IndexForm, TableForm};
use crate::cold::memo::{BatchState, Memo, NoticeKind, RecordName};
use crate::cold::store::{StoreMemory, primary_of, push_secondary, secondary_of, split_secondary};
use crate::cold::{CleaningRound, Cold};
use crate::error::{Error, Result};
use crate::hot::budget::{Charge, MemoryKind};
use crate::ops::backup_rows::write_all;
use crate::ops::clean::REMOVES;
use crate::ops::cold::{EndNow, PRESENT};
use crate::ops::progress::Advance;
use crate::options::ColdStoreKind;
use crate::row::{KeyBuf, MAX_KEY_BYTES, RowError};
use crate::session::db::Inner;

/// A share of the memory limit, 1 in so many, that the entries of a portion take, within bounds.
const PORTION: u64 = 128;
const PORTION_BYTES_MIN: u64 = 128 << 10;
const PORTION_BYTES_MAX: u64 = 4 << 20;
/// What the store takes in memory for an entry, in filters and fences, while it has old and new ones.
const ENTRY_BYTES: u64 = 4;

/// Entries on their way into the store: their keys, and of which batch and where each is.
#[derive(Debug, Default)]
struct Portion {
    keys: Vec<u8>,
    entries: Vec<(u64, u32, u32)>,
}

impl Portion {
    fn add(&mut self, batch: u64, key: &[u8]) {
        self.entries.push((batch, self.keys.len() as u32, key.len() as u32));
        self.keys.extend_from_slice(key);
    }

    fn bytes(&self) -> u64 {
        (self.keys.len() + self.entries.len() * size_of::<(u64, u32, u32)>()) as u64
    }

    /// Writes them, those of one batch together, and is empty then.
    fn write(&mut self, cold: &Cold, index: StoreIndex) -> std::result::Result<(), StoreError> {
        self.entries.sort_unstable();
        let batches = self.entries.chunk_by(|one, other| one.0 == other.0);
        for of_batch in batches.clone() {
            // A confirmation may have been seen before the store was through with it.
            cold.finish(cold.store.quiescent(BatchId(of_batch[0].0)))?;
        }
        let keys = &self.keys;
        let batches = batches.map(|of_batch| {
            let mut batch = Batch::confirmed(BatchId(of_batch[0].0));
            for &(_, at, len) in of_batch {
                let key = &keys[at as usize..(at + len) as usize];
                batch.put(index, key, &[]).expect("the key's length was looked at, and a portion is short");
            }
            batch
        });
        write_all(cold, batches)?;
        self.keys.clear();
        self.entries.clear();
        Ok(())
    }
}

/// An index that is being filled with the entries of cold rows. Nothing is cleaned until it is dropped; unless it was
/// kept by then, the entries go.
pub(crate) struct ColdFill<'a> {
    cold: &'a Cold,
    index: StoreIndex,
    kept: bool,
    _no_cleaning: CleaningRound<'a>,
}

impl ColdFill<'_> {
    /// The index is part of the definition.
    pub(crate) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for ColdFill<'_> {
    fn drop(&mut self) {
        if !self.kept && self.cold.may_drop() {
            self.cold.store.drop_index(self.index);
        }
    }
}

/// Writes the entries of the table's cold rows in a new index, whose number a manifest has used up. The table is held.
/// `None`: it has none, and had none.
///
/// # Errors
/// Two rows have one key of a unique index; a key is too long; the cold store has failed or is full.
pub(crate) fn fill_cold_index<'a>(
    db: &'a Inner,
    form: &TableForm,
    index: &IndexForm,
    advance: &mut Advance<'_>,
) -> Result<Option<ColdFill<'a>>> {
    let (Some(memo), Some(cold)) = (db.cold.memo(), db.cold.get()) else { return Ok(None) };
    if !form.counters.cold.load(Ordering::SeqCst) {
        return Ok(None);
    }
    let table = || form.schema.name.clone();
    if db.options.cold_store == ColdStoreKind::Direct {
        return Err(Error::Unsupported {
            operation: "create_index",
            reason: format!(
                "some rows of table {:?} are in the cold store, where cold_store = direct has no room for entries of \
                 another index; load them into a new table instead",
                table()
            ),
        });
    }
    let failed = |source| form.cold_error(source);
    let fill = ColdFill {
        cold,
        index: secondary_of(form.id, index.id),
        kept: false,
        _no_cleaning: stop_cleaning(db, form, cold)?,
    };
    // What was sent before this, by a round of cleaning that did not wait for it, has been done when this is.
    let barrier = Batch::confirmed(BatchId(REMOVES | db.registry.clock.tick().0));
    cold.finish(cold.store.write(barrier)).map_err(failed)?;
    confirm_moved(db, form, memo, cold)?;
    let portion_bytes =
        (db.memory_limit().unwrap_or(u64::MAX) / PORTION).clamp(PORTION_BYTES_MIN, PORTION_BYTES_MAX);
    // As batches they take about as much again.
    let mut charged = Charge::none(&db.budget, MemoryKind::Other);
    charged.add(2 * portion_bytes)?;
    let buffer_bytes = StoreMemory::within(db.memory_limit()).buffer_bytes();
    // What the store will tell of as its own has room: the governor could not make any while the table is held.
    let records = cold.store.tables().get(&form.id.0).map_or(0, |of| of.records);
    let mut room = Charge::none(&db.budget, MemoryKind::Other);
    room.add(records * ENTRY_BYTES)?;
    let mut portion = Portion::default();
    let (mut key, mut entry_key) = (KeyBuf::new(), Vec::new());
    let mut scan = cold.store.scan(primary_of(form.id), &[], None, Direction::Forward);
    while let Some(found) = cold.finish(scan.next()).map_err(failed)? {
        for entry in &found.entries {
            advance.row()?;
            let guard = db.epochs.pin();
            let name = RecordName::new(entry.batch.0, &found.key);
            if !is_of_table(db, form, memo, name, &guard) {
                continue;
            }
            let renewed = form.renew(entry.batch.0, &entry.record);
            let record = renewed.as_deref().unwrap_or(&entry.record);
            let row = form.row_in(record);
            index.key_of_row(row, form.suffix_in(record), &mut key);
            entry_key.clear();
            push_secondary(&mut entry_key, &key, &found.key);
            if entry_key.len() > MAX_KEY_BYTES {
                let source = RowError::KeyTooLong { bytes: entry_key.len() };
                return Err(Error::Row { table: table(), source });
            }
            if index.is_unique()
                && !index.is_exempt(row)
                && is_live(db, form, memo, name, &guard)
                && has_in_memory(form, index, &key, &guard)?
            {
                return Err(index.refused(form, &key));
            }
            portion.add(entry.batch.0, &entry_key);
        }
        if portion.bytes() >= portion_bytes {
            room.give_back(portion.entries.len() as u64 * ENTRY_BYTES);
            cold.let_catch_up(buffer_bytes);
            portion.write(cold, fill.index).map_err(failed)?;
        }
    }
    portion.write(cold, fill.index).map_err(failed)?;
    if index.is_unique() {
        check_unique_cold(db, form, index, memo, cold, advance)?;
    }
    Ok(Some(fill))
}

/// Records of a table in the cold store, about.
pub(crate) fn cold_records(db: &Inner, table: TableId) -> u64 {
    db.cold.get().and_then(|cold| cold.store.tables().get(&table.0).map(|of| of.records)).unwrap_or(0)
}

/// The longest row of a table in the cold store, as `form` has it, in bytes. Nobody holds the table: a row that moves meanwhile may be
/// missed, which [`TableCounters::longest_moved`](crate::catalog::table::TableCounters) knows of.
///
/// # Errors
/// The cold store has failed; the change is to end.
pub(crate) fn longest_cold_row(db: &Inner, form: &TableForm, advance: &mut Advance<'_>) -> Result<u64> {
    let Some(cold) = db.cold.get() else { return Ok(0) };
    let mut longest = 0;
    let mut scan = cold.store.scan(primary_of(form.id), &[], None, Direction::Forward);
    while let Some(found) = cold.finish(scan.next()).map_err(|source| form.cold_error(source))? {
        for entry in &found.entries {
            advance.row()?;
            // What is no row of the table any more says nothing of its length.
            let renewed = form.try_renew(entry.batch.0, &entry.record).ok().flatten();
            longest = longest.max(renewed.as_deref().unwrap_or(&entry.record).len());
        }
    }
    Ok(longest as u64)
}

/// Does each row in the cold store fit the layout of a new form of its table, which is held?
///
/// # Errors
/// One does not; the cold store has failed.
pub(crate) fn check_cold_lengths(db: &Inner, form: &TableForm, advance: &mut Advance<'_>) -> Result<()> {
    let (Some(memo), Some(cold)) = (db.cold.memo(), db.cold.get()) else { return Ok(()) };
    let table = || form.schema.name.clone();
    let mut scan = cold.store.scan(primary_of(form.id), &[], None, Direction::Forward);
    loop {
        let found = cold.finish(scan.next());
        let found = found.map_err(|source| form.cold_error(source))?;
        let Some(found) = found else { return Ok(()) };
        for entry in &found.entries {
            advance.row()?;
            let guard = db.epochs.pin();
            if is_of_table(db, form, memo, RecordName::new(entry.batch.0, &found.key), &guard) {
                form.try_renew(entry.batch.0, &entry.record)
                    .map_err(|source| Error::Row { table: table(), source })?;
            }
        }
    }
}

/// Has no key of a filled index two rows in the cold store?
fn check_unique_cold(
    db: &Inner,
    form: &TableForm,
    index: &IndexForm,
    memo: &Memo,
    cold: &Cold,
    advance: &mut Advance<'_>,
) -> Result<()> {
    let failed = |source| form.cold_error(source);
    let mut last: Option<Vec<u8>> = None;
    let mut scan = cold.store.scan(secondary_of(form.id, index.id), &[], None, Direction::Forward);
    while let Some(found) = cold.finish(scan.next()).map_err(failed)? {
        let Some((key, primary)) = split_secondary(&found.key) else { continue };
        advance.row()?;
        let guard = db.epochs.pin();
        for entry in &found.entries {
            if !is_live(db, form, memo, RecordName::new(entry.batch.0, primary), &guard) {
                continue;
            }
            if last.as_deref() == Some(key) && !index.is_exempt_key(key) {
                return Err(index.refused(form, key));
            }
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(key);
        }
    }
    Ok(())
}

/// Is a record one of the table's rows, now or for who has an older snapshot? The table is held.
fn is_of_table(db: &Inner, form: &TableForm, memo: &Memo, name: RecordName, guard: &Guard<'_>) -> bool {
    name.batch > form.emptied.get().0
        && matches!(memo.batch_at(name.batch, &db.registry, PRESENT, None, guard), BatchState::There(_))
}

/// Is a record a row now? The table is held.
fn is_live(db: &Inner, form: &TableForm, memo: &Memo, name: RecordName, guard: &Guard<'_>) -> bool {
    is_of_table(db, form, memo, name, guard)
        && crate::ops::cold::end_now(db, memo, name, None, guard) == EndNow::Open
}

/// Has a row in memory, or on the paged side, this key? The table is held.
fn has_in_memory(form: &TableForm, index: &IndexForm, key: &[u8], guard: &Guard<'_>) -> Result<bool> {
    let mut lost = None;
    let found = index.find(guard, key, |row| match form.store.directory.newest_now(row, guard) {
        Ok(newest) => newest.is_some_and(|newest| !newest.is_tombstone() && index.matches(form, newest, key)),
        Err(absent) => {
            lost = Some(absent);
            true
        }
    });
    lost.map_or(Ok(found), |absent| Err(absent.into()))
}

/// Waits for the round of cleaning that is under way, and lets none begin.
fn stop_cleaning<'a>(db: &Inner, form: &TableForm, cold: &'a Cold) -> Result<CleaningRound<'a>> {
    let begun = db.clock.now_ns();
    let mut backoff = Backoff::new();
    loop {
        if let Some(round) = cold.instead_of_cleaning() {
            return Ok(round);
        }
        check_patience(db, form, begun)?;
        backoff.sleep(Duration::from_micros(200));
    }
}

/// Sees to it that the store knows of all batches that have moved that they stay: more can be written under their
/// names then. The log is durable past their moves.
fn confirm_moved(db: &Inner, form: &TableForm, memo: &Memo, cold: &Cold) -> Result<()> {
    let failed = |source| form.cold_error(source);
    let begun = db.clock.now_ns();
    let mut backoff = Backoff::new();
    loop {
        let has_moved = |batch: BatchId| {
            let guard = db.epochs.pin();
            let notice = memo.batch_notice(batch.0, &guard).filter(|(_, newest)| !newest.is_tombstone());
            notice.is_some_and(|(_, newest)| {
                let (_, kind, table) = memo.read_batch(newest);
                kind == NoticeKind::Begin && table == form.id
            })
        };
        let moved: Vec<_> = cold.store.unconfirmed().into_iter().filter(|batch| has_moved(*batch)).collect();
        if moved.is_empty() {
            return Ok(());
        }
        for batch in moved {
            // Who has moved it is about to say so himself; unless he has failed.
            if !cold.progress.lock().running.contains(&batch.0) {
                match cold.finish(cold.store.confirm(batch)) {
                    Ok(()) | Err(StoreError::UnknownBatch(_)) => {}
                    Err(error) => return Err(failed(error)),
                }
            }
        }
        check_patience(db, form, begun)?;
        backoff.sleep(Duration::from_micros(200));
    }
}

/// An error when a change of definitions has waited for too long.
fn check_patience(db: &Inner, form: &TableForm, begun: u64) -> Result<()> {
    let waited = Duration::from_nanos(db.clock.now_ns().saturating_sub(begun));
    if waited <= db.options.definition_wait {
        return Ok(());
    }
    let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
    Err(Error::SchemaChangeTimeout {
        table: form.schema.name.clone(),
        waited_ms,
        in_the_way: vec!["a round of cleaning of the cold store".to_owned()],
    })
}
