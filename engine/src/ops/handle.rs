//! Row handles: what names a row that a read has shown, whatever its key, for as long as the snapshot lives that showed it.
//!
//! A row that a snapshot sees stays where the snapshot sees it: in its slot of memory, or as a record of the cold store. So a
//! handle is the slot's RowId, or the record's name with its primary key. Wherever the row goes on after that, moved,
//! promoted, changed or under another key, it is found from there: the slot has its newer versions and the mark of a move, the
//! record's end names the row in memory.

use std::sync::Arc;

use thermocline_base::epoch::Guard;
use thermocline_base::ids::RowId;

use crate::catalog::table::{FormRef, TableEntry, TableForm};
use crate::cold::memo::RecordName;
use crate::cold::store::primary_of;
use crate::error::{Error, Result, SerializationCause};
use crate::hot::version::{Begin, Version};
use crate::ops::cold::{ColdRow, Seen};
use crate::ops::target::{ColdTarget, Purpose, Sought, Wanted};
use crate::ops::{Step, Wait, step};
use crate::row::KeyBuf;
use crate::session::Session;
pub use crate::session::handle::RowHandle;
use crate::session::handle::{HandlePlace, Stamp};
use crate::txn::in_the_way::InTheWay;
use crate::txn::visibility::{Sees, visible_to_view};

impl Stamp {
    /// A row that is shown.
    #[inline]
    pub(crate) fn seen_row<'r>(self, bytes: &'r [u8], place: SeenPlace<'r>) -> SeenRow<'r> {
        SeenRow { bytes, place, stamp: self }
    }
}

/// Where a row stands that is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SeenPlace<'r> {
    Memory(RowId),
    Cold(RecordName, &'r [u8]),
}

/// A row that a read or scan shows: its encoded bytes, and a handle for whoever wants to come back to it.
#[derive(Clone, Copy, Debug)]
pub struct SeenRow<'r> {
    bytes: &'r [u8],
    pub(super) place: SeenPlace<'r>,
    pub(super) stamp: Stamp,
}

impl<'r> SeenRow<'r> {
    /// The encoded row.
    #[inline]
    #[must_use]
    pub fn bytes(self) -> &'r [u8] {
        self.bytes
    }

    /// A handle of the row. One of a row in memory is a few words; one of a cold row takes a copy of its primary key.
    #[must_use]
    pub fn handle(self) -> RowHandle {
        let place = match self.place {
            SeenPlace::Memory(row) => HandlePlace::Memory(row),
            SeenPlace::Cold(name, key) => HandlePlace::Cold(name, key.into()),
        };
        RowHandle { stamp: self.stamp, place }
    }
}

impl std::ops::Deref for SeenRow<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

/// A row that a handle names, as the view sees it.
pub(crate) enum Found {
    Memory(RowId, Version),
    Cold(ColdRow, Box<[u8]>),
    /// The view does not see it.
    Nowhere,
}

impl Session {
    /// What handles of this moment are good for.
    #[inline]
    pub(crate) fn stamp(&self, form: &TableForm) -> Stamp {
        Stamp { table: form.id, storage: form.storage, turn: self.turn(), snapshot: self.snapshots }
    }

    /// A row that is shown.
    #[inline]
    pub(crate) fn seen_row<'r>(
        &self,
        form: &TableForm,
        bytes: &'r [u8],
        place: SeenPlace<'r>,
    ) -> SeenRow<'r> {
        self.stamp(form).seen_row(bytes, place)
    }

    /// The handle of a row in memory that has refused a key.
    pub(crate) fn refusing_handle(&self, form: &TableForm, row: RowId) -> RowHandle {
        RowHandle { stamp: self.stamp(form), place: HandlePlace::Refusing(row) }
    }

    /// The handle of a record that has refused a key.
    pub(crate) fn refusing_record(&self, form: &TableForm, name: RecordName, key: &[u8]) -> RowHandle {
        RowHandle { stamp: self.stamp(form), place: HandlePlace::RefusingCold(name, key.into()) }
    }

    /// Is the handle one of this table, by a snapshot that is still held?
    fn check_row_handle(&self, form: &TableForm, handle: &RowHandle) -> Result<()> {
        let (now, then) = (self.stamp(form), handle.stamp);
        let why = if then.turn != now.turn {
            "another transaction has read it"
        } else if then.table != now.table {
            "it is a row of another table"
        } else if then.storage != now.storage {
            "the table was emptied since"
        } else if then.snapshot != now.snapshot && self.cursor_snapshot(then.snapshot).is_none() {
            "the snapshot that showed the row has ended; at read committed that is with the statement"
        } else {
            return Ok(());
        };
        Err(Error::Unsupported {
            operation: "row handle",
            reason: format!("the handle is not good for table {:?}: {why}", form.schema.name),
        })
    }

    /// Finds the row of a handle as the view sees it: where the snapshot does, or where the transaction's own changes have
    /// brought it.
    pub(crate) fn find_handle(
        &mut self,
        form: &TableForm,
        handle: &RowHandle,
        guard: &Guard<'_>,
    ) -> Result<Step<Found>> {
        self.check_row_handle(form, handle)?;
        let db = self.db();
        let (name, key) = match &handle.place {
            HandlePlace::Memory(row) | HandlePlace::Refusing(row) => {
                return Ok(self.find_in_memory(form, *row, guard));
            }
            HandlePlace::Cold(name, key) | HandlePlace::RefusingCold(name, key) => (*name, key),
        };
        match self.record_at(form, name, self.snapshot, guard) {
            Seen::Undecided(id) => return Ok(Step::Wait(Wait::Decision(id))),
            Seen::Live => {
                let row = step!(self.cold_by_primary(form, key, Some(name.batch), guard));
                let row = row.ok_or_else(|| self.lost_record(form, form.primary(), key))?;
                return Ok(Step::Done(Found::Cold(row, key.clone())));
            }
            Seen::No => {}
        }
        // Only the transaction itself can have ended it for its own view, or changed it after it was promoted.
        let Some(memo) = db.cold.memo() else { return Ok(Step::Done(Found::Nowhere)) };
        let own = self.own_end(memo, name, guard).map(|end| memo.successor(end));
        let row = own.unwrap_or_else(|| self.promoted_and_changed(form, memo, name, guard));
        Ok(row.map_or(Step::Done(Found::Nowhere), |row| self.find_in_memory(form, row, guard)))
    }

    /// Reads the row of a handle through `see`.
    pub(crate) fn try_read_handle<R, F: FnOnce(SeenRow<'_>) -> R>(
        &mut self,
        entry: &Arc<TableEntry>,
        handle: &RowHandle,
        see: &mut Option<F>,
    ) -> Result<Step<Option<R>>> {
        let form_ref = step!(self.touch(entry)?);
        self.begin_statement();
        let form = form_ref.get();
        let guard = self.db().epochs.pin();
        let before = self.snapshot;
        self.snapshot = self.cursor_snapshot(handle.stamp.snapshot).unwrap_or(before);
        let found = self.find_handle(form, handle, &guard);
        self.snapshot = before;
        let found = step!(found?);
        let mut show = |row: SeenRow<'_>| see.take().expect("a read finds its row once")(row);
        Ok(Step::Done(match found {
            Found::Memory(row, version) => {
                self.note_use(form, version);
                self.note_read(form_ref, row, version);
                Some(show(self.seen_row(form, form.row(version), SeenPlace::Memory(row))))
            }
            Found::Cold(row, key) => {
                self.note_cold_read(form_ref, row.name());
                let place = SeenPlace::Cold(row.name(), &key);
                Some(show(self.seen_row(form, form.row_in(row.record().bytes), place)))
            }
            Found::Nowhere => None,
        }))
    }

    fn find_in_memory(&self, form: &TableForm, row: RowId, guard: &Guard<'_>) -> Step<Found> {
        let db = self.db();
        let mut row = row;
        loop {
            let newest = match self.newest_of(form, row, guard) {
                Ok(newest) => newest,
                Err(wait) => return Step::Wait(Wait::Page(wait)),
            };
            let hides = |own| self.hides(own);
            match visible_to_view(newest, &form.store.memory, &db.registry, self.snapshot, self.id, hides) {
                Sees::Row(version) => match self.heir_of_followed(form, row, guard) {
                    None => return Step::Done(Found::Memory(row, version)),
                    Some(None) => return Step::Done(Found::Nowhere),
                    Some(Some(heir)) => row = heir,
                },
                Sees::Nothing => return Step::Done(Found::Nowhere),
                Sees::Undecided(id) => return Step::Wait(Wait::Decision(id)),
                Sees::Changed => {}
            }
        }
    }

    /// The row of a handle, ready to be changed or locked: see [`Session::find_target`]. One that a cursor has shown is looked
    /// for where the cursor's snapshot sees it.
    pub(crate) fn find_handle_target(
        &mut self,
        form_ref: FormRef,
        handle: &RowHandle,
        purpose: Purpose,
        guard: &Guard<'_>,
    ) -> Result<Step<Sought>> {
        let before = self.snapshot;
        self.snapshot = self.cursor_snapshot(handle.stamp.snapshot).unwrap_or(before);
        let sought = self.find_handle_target_at(form_ref, handle, purpose, guard);
        self.snapshot = before;
        sought
    }

    fn find_handle_target_at(
        &mut self,
        form_ref: FormRef,
        handle: &RowHandle,
        purpose: Purpose,
        guard: &Guard<'_>,
    ) -> Result<Step<Sought>> {
        let form = form_ref.get();
        let wanted = Wanted { index: form.primary(), key: None };
        let mut in_the_way = InTheWay::default();
        loop {
            let sought = match step!(self.find_handle(form, handle, guard)?) {
                Found::Memory(row, version) => {
                    self.settle(form_ref, wanted, row, version, purpose, &mut in_the_way, guard)?
                }
                Found::Cold(row, key) => {
                    let bytes = row.record().bytes.to_vec();
                    let target = ColdTarget { name: row.name(), key, bytes, from: None };
                    self.follow_record(form_ref, wanted, target, purpose, &mut in_the_way, guard)?
                }
                Found::Nowhere => match &handle.place {
                    &HandlePlace::Refusing(row) if self.looks_beside() || self.is_own(form, row, guard) => {
                        self.go_on_at(form_ref, wanted, row, purpose, &mut in_the_way, guard)?
                    }
                    HandlePlace::Refusing(row) => {
                        // It may have been promoted since the snapshot, which sees the record.
                        let Some(key) = step!(self.key_in(form, *row, guard)) else {
                            return Ok(Step::Done(Sought::Gone));
                        };
                        match step!(self.find_target(form_ref, form.primary(), &key, purpose, guard)?) {
                            Sought::Gone => return self.refused_by_young(form),
                            other => return Ok(Step::Done(other)),
                        }
                    }
                    HandlePlace::RefusingCold(name, key) => {
                        self.find_refusing_record(form_ref, *name, key, purpose, &mut in_the_way, guard)?
                    }
                    HandlePlace::Memory(_) | HandlePlace::Cold(..) => return Ok(Step::Done(Sought::Gone)),
                },
            };
            if let Some(sought) = step!(sought) {
                return Ok(Step::Done(sought));
            }
        }
    }

    /// The row of a record that has refused a key, and that the view does not see: it has moved since the snapshot, or is
    /// younger.
    fn find_refusing_record(
        &mut self,
        form_ref: FormRef,
        name: RecordName,
        key: &[u8],
        purpose: Purpose,
        in_the_way: &mut InTheWay,
        guard: &Guard<'_>,
    ) -> Result<Step<Option<Sought>>> {
        let form = form_ref.get();
        let index = form.primary();
        let by_key = step!(self.find_target(form_ref, index, key, purpose, guard)?);
        if !matches!(by_key, Sought::Gone) {
            return Ok(Step::Done(Some(by_key)));
        }
        if !self.looks_beside() {
            return self.refused_by_young(form).map(|_: Step<Sought>| Step::Done(None));
        }
        let fetched = step!(self.records(form, primary_of(form.id), key, false, None));
        let record =
            fetched.iter().flat_map(|found| found.records()).find(|record| record.batch == name.batch);
        let Some(record) = record else { return Ok(Step::Done(Some(Sought::Lost))) };
        let target = ColdTarget { name, key: key.into(), bytes: record.bytes.to_vec(), from: None };
        self.follow_record(form_ref, Wanted { index, key: None }, target, purpose, in_the_way, guard)
    }

    /// The primary key of the newest version of a row.
    fn key_in(&self, form: &TableForm, row: RowId, guard: &Guard<'_>) -> Step<Option<KeyBuf>> {
        let newest = match self.newest_of(form, row, guard) {
            Ok(newest) => newest,
            Err(wait) => return Step::Wait(Wait::Page(wait)),
        };
        Step::Done(newest.filter(|newest| !newest.is_tombstone()).map(|newest| {
            let mut key = KeyBuf::new();
            form.primary().key_of(form, newest, &mut key);
            key
        }))
    }

    /// Is the newest version of a row this transaction's own?
    fn is_own(&self, form: &TableForm, row: RowId, guard: &Guard<'_>) -> bool {
        let newest = form.store.directory.newest(row, guard);
        newest.is_some_and(|newest| matches!(newest.begin(), Begin::By(id) if Some(id) == self.id))
    }

    /// The row that has refused a key is younger than the snapshot.
    fn refused_by_young(&self, form: &TableForm) -> Result<Step<Sought>> {
        Err(Error::SerializationFailure {
            table: form.schema.name.clone(),
            key: "a row that has refused a key".to_owned(),
            cause: SerializationCause::ConcurrentUpdate,
        })
    }
}
