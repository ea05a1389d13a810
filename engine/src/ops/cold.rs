//! Looking for rows in the cold store, and what the update memo says of them at a time.
//!
//! A lookup in memory comes first, at the snapshot. Where it finds nothing, the store is asked what it knows without
//! waiting: its access filters deny the key, or the record is in memory, or it may be on the device. Only then the step
//! hands up a [`Wait::Cold`], the transaction reads the store without holding anything, and the step is tried again with
//! what was found in the transaction's private cache. Both looks are at the same time, so it does not matter that rows
//! move meanwhile (`BothLooksAtOneTime`): at every timestamp a row is in one place.
//!
//! A look that does not wait is one step with the look in memory before it: nothing lies between them that the next try
//! after a wait would not see, too.
//!
//! Checks of unique keys look at the present, which needs more care ([`Session::cold_claim`]).

use std::ops::ControlFlow;
use std::sync::Arc;

use thermocline_base::epoch::Guard;
use thermocline_base::ids::{RowId, TableId, Timestamp};
use thermocline_base::sync::Ordering;
use thermocline_pool::store::{Found, FoundKey, IndexId as StoreIndex, StoreError};

use crate::catalog::table::{FormRef, IndexForm, TableEntry, TableForm};
use crate::cold::cache::Fetched;
use crate::cold::memo::{BatchState, EndState, Memo, RecordName};
use crate::cold::store::{Look, Record, primary_of, secondary_of};
use crate::error::{Error, Result};
use crate::hot::version::{Begin, HEADER_BYTES, TxnId, Version};
use crate::index::hash_of;
use crate::mutation::{self, Rule};
use crate::ops::{Step, Wait, step};
use crate::session::db::Inner;
use crate::session::{ColdRead, Followed, Session};
use crate::txn::visibility::{Resolved, resolve};

/// A time after all that were ever drawn.
pub(crate) const PRESENT: Timestamp = Timestamp(u64::MAX >> 2);

/// What a transaction waits to read.
#[derive(Clone, Debug)]
pub(crate) struct ColdWait {
    pub(crate) index: StoreIndex,
    pub(crate) key: Box<[u8]>,
    /// All entries that begin with the key.
    pub(crate) group: bool,
    /// Moves of the table that had begun before the read.
    pub(crate) moves: u64,
}

/// A record that the snapshot sees.
#[derive(Clone, Debug)]
pub(crate) struct ColdRow {
    fetched: Arc<Fetched>,
    at: usize,
    name: RecordName,
}

impl ColdRow {
    pub(crate) fn record(&self) -> Record<'_> {
        self.fetched.record(self.at)
    }

    pub(crate) fn name(&self) -> RecordName {
        self.name
    }
}

/// What a record is to a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// It is the row.
    Live,
    /// It is not, or not any more, or not yet.
    No,
    /// That is being decided.
    Undecided(TxnId),
}

/// What is known at present of a record's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EndNow {
    /// It has none.
    Open,
    /// This transaction has ended it.
    Own,
    /// Somebody is about to; it may be a promotion.
    Unfinished(TxnId, Option<RowId>),
    /// It ended then; it may have been promoted.
    At(Timestamp, Option<RowId>),
}

/// What the cold store says of a unique key.
pub(crate) enum ColdClaim {
    /// Nobody there holds it.
    Free,
    /// This record's row does, which has this primary key.
    Taken(RecordName, Box<[u8]>),
    /// Possibly, if this user's transaction is rolled back.
    Contested(TxnId),
    /// The row moved or changed meanwhile: look again, in memory first.
    Again,
}

/// The error that cold rows of a table cannot be reached, and which.
pub(crate) fn cold_error(db: &Inner, entry: &TableEntry, source: StoreError) -> Error {
    entry.form_pinned(&db.epochs.pin()).cold_error(source)
}

/// The record's end at present.
pub(crate) fn end_now(
    db: &Inner,
    memo: &Memo,
    name: RecordName,
    me: Option<TxnId>,
    guard: &Guard<'_>,
) -> EndNow {
    let mut end = EndNow::Open;
    memo.each_end(name, guard, &mut |newest| {
        // A notice that is being dropped is of a record that has gone.
        let target = || if newest.is_tombstone() { None } else { memo.target(newest) };
        match resolve(newest, &db.registry, PRESENT, me) {
            Resolved::Own => end = EndNow::Own,
            Resolved::At(at) => end = EndNow::At(at, target()),
            Resolved::Later(id) | Resolved::Undecided(id) => {
                // Of those who want to end it any one will do: who waits for him looks again.
                end = EndNow::Unfinished(id, target());
                return ControlFlow::Continue(());
            }
            Resolved::Gone => {
                end = EndNow::Open;
                return ControlFlow::Break(true);
            }
        }
        ControlFlow::Break(false)
    });
    end
}

impl Session {
    /// Is a record the row, for who reads at `at`?
    pub(crate) fn record_at(
        &self,
        form: &TableForm,
        name: RecordName,
        at: Timestamp,
        guard: &Guard<'_>,
    ) -> Seen {
        // What was in a table before it was emptied.
        if name.batch <= form.emptied.get().0 && mutation::on(Rule::EmptiedForGood) {
            return Seen::No;
        }
        let db = self.db();
        let at = if mutation::off(Rule::BothLooksAtOneTime) { db.registry.clock.now() } else { at };
        let Some(memo) = db.cold.memo() else { return Seen::Live };
        memo.prefetch_end(name, guard);
        match memo.batch_at(name.batch, &db.registry, at, self.id, guard) {
            BatchState::Hidden => return Seen::No,
            BatchState::Undecided(id) => return Seen::Undecided(id),
            BatchState::There(_) => {}
        }
        match memo.end_at(name, &db.registry, at, self.id, &|own| self.hides(own), guard) {
            // Promoted since, and then changed by this transaction itself.
            EndState::Open(Some(row)) if self.has_written(form, row, guard) => Seen::No,
            EndState::Open(_) => Seen::Live,
            EndState::Ended(..) => Seen::No,
            EndState::Undecided(id) => Seen::Undecided(id),
        }
    }

    /// The records under a key, from the private cache, or from the store if that does not have to wait; `Wait`: it has
    /// to. `None`: there are none.
    pub(crate) fn records(
        &mut self,
        form: &TableForm,
        index: StoreIndex,
        key: &[u8],
        group: bool,
        moves: Option<u64>,
    ) -> Step<Option<Arc<Fetched>>> {
        let Some(cold) = self.db().cold.get() else { return Step::Done(None) };
        if let Some(fetched) = self.cold_cache.get(index, key, moves) {
            return Step::Done(Some(fetched));
        }
        // Counted before the look: it is complete for who sees the same count after it.
        let moves = form.counters.moves.load(Ordering::SeqCst);
        let (outcome, fetched) = self.cold_cache.look(index, key, moves, |entries| match group {
            true => cold.store.look_group(index, key, entries),
            false => {
                let look = cold.store.look(index, key, entries);
                if look == Look::Here && form.has_past() {
                    entries.renew(form);
                }
                look
            }
        });
        let fetched = fetched.map(Arc::clone);
        match outcome {
            Look::Absent => Step::Done(None),
            Look::Here => {
                cold.counters.reads.fetch_add(1, Ordering::Relaxed);
                form.counters.reuse.note_cold();
                if !group && let Some(record) = fetched.iter().flat_map(|found| found.records()).next_back() {
                    self.note_cold_access(TableId(index.table), record);
                }
                Step::Done(fetched)
            }
            Look::Away => {
                form.counters.reuse.note_device();
                Step::Wait(Wait::Cold(ColdWait { index, key: key.into(), group, moves }))
            }
        }
    }

    /// Remembers what a read has found for which a step has waited.
    pub(crate) fn note_cold_answer(&mut self, wait: &ColdWait, answer: Answer) {
        // A step has waited for it, which keeps the table's form in place.
        let mut touched = self.tables.iter().map(|touched| touched.form.get());
        let past = touched.find(|form| form.id.0 == wait.index.table && form.has_past());
        let fetched = self.cold_cache.put(wait.index, &wait.key, wait.moves, |entries| match &answer {
            Answer::Key(found) => {
                found.iter().for_each(|found| entries.push(found.batch, &wait.key, &found.record));
                if let Some(form) = past {
                    entries.renew(form);
                }
            }
            Answer::Group(found) => {
                for of_key in found {
                    entries.push_group(&of_key.key, of_key.entries.iter().map(|found| found.batch));
                }
            }
        });
        let bytes = fetched.records().next_back().map(|record| record.bytes.len());
        if let (false, Some(bytes)) = (wait.group, bytes) {
            self.note_cold_size(TableId(wait.index.table), &wait.key, bytes);
        }
        self.resumed = true;
    }

    /// The row with this key in the cold store, as the snapshot sees it; of a non-unique index, the first one.
    pub(crate) fn look_up_cold(
        &mut self,
        form: &TableForm,
        index: &IndexForm,
        key: &[u8],
        guard: &Guard<'_>,
    ) -> Result<Step<Option<ColdRow>>> {
        let mut found = None;
        step!(self.each_cold(form, index, key, guard, &mut |row| {
            found = Some(row);
            false
        })?);
        Ok(Step::Done(found))
    }

    /// Calls `see` with each row of a key in the cold store that the snapshot sees, until it says no.
    fn each_cold(
        &mut self,
        form: &TableForm,
        index: &IndexForm,
        key: &[u8],
        guard: &Guard<'_>,
        see: &mut dyn FnMut(ColdRow) -> bool,
    ) -> Result<Step<()>> {
        if !form.counters.cold.load(Ordering::Acquire) {
            return Ok(Step::Done(()));
        }
        if index.id == form.primary().id {
            if let Some(row) = step!(self.cold_by_primary(form, key, None, guard)) {
                see(row);
            }
            return Ok(Step::Done(()));
        }
        let group = secondary_of(form.id, index.id);
        let Some(entries) = step!(self.records(form, group, key, true, None)) else {
            return Ok(Step::Done(()));
        };
        for entry in entries.records() {
            let name = RecordName::new(entry.batch, entry.key);
            match self.record_at(form, name, self.snapshot, guard) {
                Seen::No => continue,
                Seen::Undecided(id) => return Ok(Step::Wait(Wait::Decision(id))),
                Seen::Live => {}
            }
            let row = step!(self.cold_by_primary(form, entry.key, Some(entry.batch), guard));
            let Some(row) = row else {
                return Err(self.lost_record(form, index, key));
            };
            if !see(row) {
                break;
            }
        }
        Ok(Step::Done(()))
    }

    /// The row with this primary key (of this batch) in the cold store, as the snapshot sees it.
    pub(crate) fn cold_by_primary(
        &mut self,
        form: &TableForm,
        key: &[u8],
        batch: Option<u64>,
        guard: &Guard<'_>,
    ) -> Step<Option<ColdRow>> {
        let fetched = match self.records(form, primary_of(form.id), key, false, None) {
            Step::Done(Some(fetched)) => fetched,
            Step::Done(None) => return Step::Done(None),
            Step::Wait(wait) => return Step::Wait(wait),
        };
        let hash = hash_of(key);
        for at in 0..fetched.len() {
            let name = RecordName { batch: fetched.record(at).batch, hash };
            if batch.is_some_and(|batch| batch != name.batch) {
                continue;
            }
            match self.record_at(form, name, self.snapshot, guard) {
                Seen::Live => return Step::Done(Some(ColdRow { fetched, at, name })),
                Seen::No => {}
                Seen::Undecided(id) => return Step::Wait(Wait::Decision(id)),
            }
        }
        Step::Done(None)
    }

    /// An entry of a secondary index leads to no record.
    pub(crate) fn lost_record(&self, form: &TableForm, index: &IndexForm, key: &[u8]) -> Error {
        Error::Damaged {
            file: self.db().cold.dir().to_path_buf(),
            what: format!(
                "table {:?}: index {:?} leads from {} to a row that is not there",
                form.schema.name,
                index.schema.name,
                index.describe(key)
            ),
        }
    }

    /// Records that a row was read in the cold store.
    #[inline]
    pub(crate) fn note_cold_access(&mut self, table: TableId, record: Record<'_>) {
        if self.sampler.is_some() {
            self.note_cold_size(table, record.key, record.bytes.len());
        }
    }

    fn note_cold_size(&mut self, table: TableId, key: &[u8], record_bytes: usize) {
        let Some(sampler) = &mut self.sampler else { return };
        let (hash, bytes) = (hash_of(key), record_bytes + HEADER_BYTES);
        sampler.touch_cold(table, hash, u32::try_from(bytes).unwrap_or(u32::MAX));
        if let Some(warmth) = self.db.warm.get() {
            warmth.note_cold(table, key, hash, bytes);
        }
    }

    /// Remembers a record for validation.
    pub(crate) fn note_cold_read(&mut self, form: FormRef, name: RecordName) {
        if self.validates_reads() {
            self.cold_reads.push(ColdRead { form, name });
        }
    }

    /// Does a row in the cold store hold a unique key? `since`: a reading of the clock from before the look in memory
    /// that found nobody, which itself came after the own claim had been entered.
    ///
    /// Nobody becomes an owner of the key in memory meanwhile: he would meet the claim. What was in memory and is now in
    /// the store was durable there before its move drew a timestamp, and the move was counted before that; so what was
    /// read before the last count is complete for the present. What was in the store and is now in memory has an end:
    /// if that was not after `since`, the look in memory has seen what became of the row; else it is looked again (`ColdClaimAtOneTime`).
    /// A record that ended with its own move has never been the row (`LeaversEnd`): both notices have one timestamp.
    pub(crate) fn cold_claim(
        &mut self,
        form: &TableForm,
        index: &IndexForm,
        key: &[u8],
        since: Timestamp,
        mine: Option<RecordName>,
        guard: &Guard<'_>,
    ) -> Step<ColdClaim> {
        let db = self.db();
        let (true, Some(memo)) = (form.counters.cold.load(Ordering::SeqCst), db.cold.memo()) else {
            return Step::Done(ColdClaim::Free);
        };
        let primary = index.id == form.primary().id;
        let store_index = if primary { primary_of(form.id) } else { secondary_of(form.id, index.id) };
        let moves = form.counters.moves.load(Ordering::SeqCst);
        let fetched = match self.records(form, store_index, key, !primary, Some(moves)) {
            Step::Done(Some(fetched)) => fetched,
            Step::Done(None) => return Step::Done(ColdClaim::Free),
            Step::Wait(wait) => return Step::Wait(wait),
        };
        for record in fetched.records() {
            let name = RecordName::new(record.batch, record.key);
            if name.batch <= form.emptied.get().0 || mine == Some(name) {
                continue;
            }
            let early = mutation::off(Rule::BeginBeforeEnd).then(|| end_now(db, memo, name, self.id, guard));
            let moved = match memo.batch_at(name.batch, &db.registry, PRESENT, self.id, guard) {
                BatchState::Hidden => continue,
                BatchState::Undecided(id) => return Step::Wait(Wait::Decision(id)),
                BatchState::There(moved) => moved,
            };
            match early.unwrap_or_else(|| end_now(db, memo, name, self.id, guard)) {
                EndNow::Own => {}
                EndNow::Open => return Step::Done(ColdClaim::Taken(name, record.key.into())),
                EndNow::Unfinished(id, Some(_)) => return Step::Wait(Wait::Decision(id)),
                EndNow::Unfinished(id, None) => return Step::Done(ColdClaim::Contested(id)),
                EndNow::At(end, _) if end <= since && mutation::on(Rule::ColdClaimAtOneTime) => {}
                EndNow::At(_, _) if mutation::off(Rule::ColdClaimAtOneTime) => {}
                EndNow::At(end, _) if moved == Some(end) => {}
                EndNow::At(..) => return Step::Done(ColdClaim::Again),
            }
        }
        Step::Done(ColdClaim::Free)
    }

    /// Validates a record that was read: it is still the row at `end`, or has only been promoted since.
    pub(crate) fn validate_cold_read(
        &self,
        form: FormRef,
        name: RecordName,
        end: Timestamp,
        guard: &Guard<'_>,
    ) -> Result<()> {
        let db = self.db();
        let Some(memo) = db.cold.memo() else { return Ok(()) };
        if mutation::off(Rule::ValidationProbesAgain) {
            return Ok(());
        }
        let mut backoff = thermocline_base::sync::Backoff::new();
        loop {
            match memo.end_at(name, &db.registry, end, self.id, &|_| false, guard) {
                // The own end stands on what was read: the first to end a record wins.
                EndState::Open(_) | EndState::Ended(None, _) => return Ok(()),
                EndState::Ended(Some(at), version) => {
                    let target = if version.is_tombstone() { None } else { memo.target(version) };
                    if let Some(row) = target {
                        let promoted = crate::session::Read { form, row, begin: at };
                        if self.validate_read(&promoted, end, guard).is_ok() {
                            return Ok(());
                        }
                    }
                    let key = memo.key_of_end(version);
                    let (form, cause) = (form.get(), crate::error::SerializationCause::ReadChanged);
                    return Err(self.conflict(form, form.primary(), &key, cause));
                }
                EndState::Undecided(_) => backoff.wait(),
            }
        }
    }

    /// Has this transaction changed a row, as far as its view goes?
    fn has_written(&self, form: &TableForm, row: RowId, guard: &Guard<'_>) -> bool {
        let Some(id) = self.id else { return false };
        let mut next =
            form.store.directory.newest(row, guard).filter(|newest| newest.begin() == Begin::By(id));
        while let Some(own) = next {
            if !self.hides(own) {
                return true;
            }
            next = own.older(&form.store.memory).filter(|older| older.begin() == Begin::By(id));
        }
        false
    }

    /// The transaction's own notice of a record's end, if its view has one.
    pub(crate) fn own_end(&self, memo: &Memo, name: RecordName, guard: &Guard<'_>) -> Option<Version> {
        let id = self.id?;
        let mut found = None;
        memo.each_end(name, guard, &mut |newest| {
            if newest.begin() == Begin::By(id) && !self.hides(newest) {
                found = Some(newest);
                return ControlFlow::Break(false);
            }
            ControlFlow::Continue(())
        });
        found
    }

    /// Has this transaction changed a row where it had moved to, so that what its snapshot sees in memory is not the row
    /// any more?
    #[inline]
    pub(crate) fn has_followed(&self, form: &TableForm, row: RowId, guard: &Guard<'_>) -> bool {
        !self.followed.is_empty() && self.is_among_followed(form, row, guard)
    }

    #[cold]
    fn is_among_followed(&self, form: &TableForm, row: RowId, guard: &Guard<'_>) -> bool {
        let db = self.db();
        let Some(memo) = db.cold.memo() else { return false };
        // The change may have been rolled back to a savepoint.
        self.followed.iter().any(|followed| {
            followed.row == row
                && followed.table == form.id
                && self.own_end(memo, followed.name, guard).is_some()
        })
    }

    /// Where a row goes on that this transaction has changed where it had moved to (`Some(None)`: it has deleted it). `None`:
    /// it has not.
    pub(crate) fn heir_of_followed(
        &self,
        form: &TableForm,
        row: RowId,
        guard: &Guard<'_>,
    ) -> Option<Option<RowId>> {
        let memo = self.db().cold.memo().filter(|_| !self.followed.is_empty())?;
        let of_row = |followed: &&Followed| followed.row == row && followed.table == form.id;
        let mut ends =
            self.followed.iter().filter(of_row).filter_map(|followed| {
                self.own_end(memo, followed.name, guard).map(|end| memo.successor(end))
            });
        ends.next()
    }

    /// Has this transaction ended the record that a row of memory became, seen by its view or not?
    pub(crate) fn has_ended_what_moved(&self, form: &TableForm, row: RowId, guard: &Guard<'_>) -> bool {
        let db = self.db();
        let Some(memo) = db.cold.memo() else { return false };
        self.followed.iter().any(|followed| {
            followed.row == row
                && followed.table == form.id
                && end_now(db, memo, followed.name, self.id, guard) == EndNow::Own
        })
    }

    /// The row in memory of a record that was promoted after the snapshot, if this transaction has changed it there.
    pub(crate) fn promoted_and_changed(
        &self,
        form: &TableForm,
        memo: &Memo,
        name: RecordName,
        guard: &Guard<'_>,
    ) -> Option<RowId> {
        let hides = |own: Version| self.hides(own);
        match memo.end_at(name, &self.db.registry, self.snapshot, self.id, &hides, guard) {
            EndState::Open(Some(row)) if self.has_written(form, row, guard) => Some(row),
            _ => None,
        }
    }

    /// The record that a moved version became.
    pub(crate) fn record_of(&self, form: &TableForm, batch: u64, version: Version) -> RecordName {
        let mut key = crate::row::KeyBuf::new();
        form.primary().key_of(form, version, &mut key);
        RecordName::new(batch, &key)
    }
}

/// What a read of the store has found.
#[derive(Debug)]
pub(crate) enum Answer {
    Key(Vec<Found>),
    Group(Vec<FoundKey>),
}

/// Reads what a transaction waits for.
pub(crate) async fn fetch(db: &Inner, wait: &ColdWait) -> Result<Answer> {
    let cold = db.cold.get().expect("a wait for the cold store comes from a database that has one");
    cold.counters.reads.fetch_add(1, Ordering::Relaxed);
    let answer = match wait.group {
        true => cold.store.get_group(wait.index, &wait.key).await.map(Answer::Group),
        false => cold.store.get(wait.index, &wait.key).await.map(Answer::Key),
    };
    answer.map_err(|source| {
        let table = TableId(wait.index.table);
        match db.catalog.by_id(table) {
            Some(entry) => cold_error(db, &entry, source),
            None => Error::ColdStore { table: format!("number {}", table.0), rows: None, source },
        }
    })
}
