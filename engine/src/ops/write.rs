//! Writing rows: insert, update, delete.
//!
//! The first writer of a row wins. A write installs a version that carries the transaction's id, by one swing of the
//! row's slot, and only over a committed newest version that the snapshot sees (or its own). Every other transaction that
//! wants the row meets the id.
//!
//! An example, at snapshot isolation; the row is K, its newest version began at 40:
//!
//! | time | U | W | K's chain, newest first |
//! |---|---|---|---|
//! | 50 | takes its snapshot | takes its snapshot | `[40, ∞)` |
//! | | swings the slot | | `[U, ∞)` → `[40, U)` |
//! | | | meets U's id, waits for U | |
//! | 60 | commits | | `[60, ∞)` → `[40, 60)` |
//! | | | the newest version began after 50: a serialization error; at read committed W looks again at 60, and goes on | |
//!
//! Order inside a write:
//! 1. The write is entered into the session's list as soon as its version can be reached. So a rollback undoes whatever
//!    part was done.
//! 2. A changed key: latch the slot, enter the new key into the indexes, swing, unlatch. The pruner takes entries out under
//!    the latch, so it never takes one that the new version needs.
//! 3. Unique keys: the claim (the entry) comes first, the check of all other rows with that key second. Of two writers that
//!    claim one key at least one sees the other. That one takes its own claim back, looks again without it, and waits for
//!    the other's end, or claims anew if the other has gone. So a waiter for a key is in no one's way, least of all in that
//!    of the holder that comes back to the key. A claim that is taken back is told to the writers that may have met it
//!    ([`crate::txn::registry::Place::note_undone`]): a wait for it is no wait, and closes no circle. A writer reads how
//!    often that has happened before the look that finds another writer in the way ([`InTheWay`]).
//! 4. Row locks of others are looked at after the version is installed (see [`crate::txn::locks`]); and before, too. A writer
//!    that waits for a lock has installed nothing by then, and so undoes nothing: two writers that each share a lock on the other's
//!    row would take each other's wait for one that is over, and look again for ever.
//!
//! A row in the cold store is changed by ending its record in the update memo and inserting the new version, if there is
//! one, as a fresh row in memory. The first transaction that ends a record wins: ends have a unique key. A row that has
//! moved since the snapshot is followed, in either direction. A row that is being moved is waited for, which takes a moment.

use std::ops::ControlFlow;
use std::sync::Arc;

use thermocline_base::epoch::Guard;
use thermocline_base::ids::{IndexId, RowId, TableId, Timestamp};
use thermocline_base::sync::{Backoff, Ordering};

use crate::catalog::table::{FormRef, Structure, TableEntry, TableForm};
use crate::cold::memo::{Heir, RecordName, pack_keys};
use crate::error::{Error, Result};
use crate::hot::budget::MemoryKind;
use crate::hot::version::{Begin, Version};
use crate::index::hash_of;
use crate::mutation::{self, Rule};
use crate::ops::claim::{Claim, Claimant};
use crate::ops::target::{ColdTarget, Place, Purpose, Sought, Target};
use crate::ops::{Step, Wait, step};
use crate::row::{ColumnSet, KeyBuf, MAX_ROW_BYTES, RowEditor, RowError, RowRef};
use crate::session::{Followed, Session, Write};
use crate::txn::in_the_way::InTheWay;
use crate::txn::locks::Intent;

/// What an insert remembers while it waits.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct InsertState {
    /// It has claimed its keys, met somebody else's claim, and taken its own back.
    contested: bool,
    /// It has not taken them back: the mutation of [`Rule::WaitWithoutClaim`].
    kept: bool,
}

/// Where a row comes from that gets a fresh slot.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin<'r> {
    /// It is new.
    Fresh,
    /// It replaces a record of the cold store, whose hidden key it keeps, in a slot that was taken for it.
    Old(&'r [u8], RowId),
    /// It comes back from the cold store as it was, with its hidden key.
    Promoted(&'r [u8]),
}

impl Session {
    pub(crate) fn row_error(form: &TableForm, source: RowError) -> Error {
        Error::Row { table: form.schema.name.clone(), source }
    }

    pub(crate) fn must_write(&self) -> Result<()> {
        if self.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Inserts an encoded row.
    pub(crate) fn try_insert(
        &mut self,
        entry: &Arc<TableEntry>,
        row: RowRef<'_>,
        state: &mut InsertState,
    ) -> Result<Step<RowId>> {
        self.must_write()?;
        let form_ref = step!(self.touch(entry)?);
        self.begin_insert();
        let form = form_ref.get();
        form.must_be_whole()?;
        let db = self.db();
        let guard = db.epochs.pin();
        let accepted = form.accept(row).map_err(|error| Self::row_error(form, error))?;
        let row = &*accepted;
        if std::mem::take(&mut state.kept) {
            self.undo_last(&guard);
        }
        let mut backoff = Backoff::new();
        loop {
            if state.contested || mutation::off(Rule::ClaimBeforeCheck) {
                let claimant = Claimant { row, suffix: &[], id: None, record: None, looks: false };
                step!(self.check_claims(form_ref, claimant, None, &guard)?);
            }
            let row_id = self.claim_row(form_ref, row, Origin::Fresh, &guard)?;
            if mutation::off(Rule::ClaimBeforeCheck) {
                return Ok(Step::Done(row_id));
            }
            let suffix = form.suffix(self.last_written());
            let claimant = Claimant { row, suffix, id: Some(row_id), record: None, looks: false };
            match self.check_claims(form_ref, claimant, None, &guard) {
                Ok(Step::Done(())) => return Ok(Step::Done(row_id)),
                Ok(Step::Wait(wait)) if mutation::off(Rule::WaitWithoutClaim) => {
                    state.kept = true;
                    return Ok(Step::Wait(wait));
                }
                // Whom there is to wait for is looked for again without the claim.
                Ok(Step::Wait(_)) => {
                    self.step_back(&guard);
                    state.contested = true;
                    backoff.wait();
                }
                Err(error) => {
                    self.step_back(&guard);
                    return Err(error);
                }
            }
        }
    }

    /// Takes the last write back, which others may have met.
    pub(crate) fn step_back(&mut self, guard: &Guard<'_>) {
        self.undo_last(guard);
        self.place().note_undone();
    }

    /// The version of the last write.
    fn last_written(&self) -> Version {
        self.writes.last().expect("a row was just written").version
    }

    /// Puts the row into a fresh slot and enters its keys.
    pub(crate) fn claim_row(
        &mut self,
        form_ref: FormRef,
        row: &[u8],
        origin: Origin<'_>,
        guard: &Guard<'_>,
    ) -> Result<RowId> {
        let form = form_ref.get();
        let me = self.identify();
        let mut hidden = [0; size_of::<u64>()];
        let suffix = match origin {
            Origin::Old(suffix, _) | Origin::Promoted(suffix) => suffix,
            Origin::Fresh => {
                if form.hidden_key() {
                    hidden = (form.counters.hidden.fetch_add(1, Ordering::Relaxed) + 1).to_le_bytes();
                }
                &hidden[..form.suffix_bytes]
            }
        };
        let mut key = std::mem::take(&mut self.key);
        for index in &form.indexes {
            index.key_of_row(row, suffix, &mut key);
            if let Err(error) = key.check_len() {
                self.key = key;
                return Err(Self::row_error(form, error));
            }
            if !matches!(index.key, crate::catalog::table::KeySource::Hidden) {
                // Who checks the claim asks many filters, each somewhere else in memory; there is enough to do meanwhile.
                self.approach_cold(form, index, &key);
            }
        }
        let row_id = match origin {
            Origin::Old(_, slot) => slot,
            Origin::Fresh | Origin::Promoted(_) => form.store.take_slot(guard)?,
        };
        let version = form.store.create(Begin::By(me), None, row_id, false, row, suffix)?;
        if let Origin::Promoted(_) = origin {
            version.mark_promoted();
        }
        self.note_new(version);
        form.store.directory.slot(row_id, guard).expect("a fresh slot is there").fill(version);
        self.writes.push(Write { form: form_ref, row: row_id, version, replaced: None });
        for index in &form.indexes {
            index.key_of_row(row, suffix, &mut key);
            if let Err(error) = index.insert(guard, &key, row_id) {
                self.key = key;
                self.undo_last(guard);
                return Err(error.into());
            }
        }
        self.key = key;
        Ok(row_id)
    }

    /// Changes the row with this key through `edit`.
    pub(crate) fn try_update<R>(
        &mut self,
        entry: &Arc<TableEntry>,
        index: IndexId,
        key: &[u8],
        edit: &mut impl FnMut(&mut RowEditor<'_>) -> Result<R>,
        contested: &mut bool,
    ) -> Result<Step<Option<R>>> {
        self.must_write()?;
        let form_ref = step!(self.touch(entry)?);
        self.begin_statement();
        let form = form_ref.get();
        form.must_be_whole()?;
        let index = Self::index_for(form, index, key)?;
        let guard = self.db().epochs.pin();
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut backoff = Backoff::new();
        let outcome = loop {
            let place = match self.find_target(form_ref, index, key, Purpose::Change, &guard) {
                Ok(Step::Done(Sought::At(place))) => place,
                Ok(Step::Done(sought)) => {
                    sought.must_be_gone();
                    break Ok(Step::Done(None));
                }
                Ok(Step::Wait(wait)) => break Ok(Step::Wait(wait)),
                Err(error) => break Err(error),
            };
            let before = match &place {
                Place::Hot(target) => form.row(target.base),
                Place::Cold(target) => form.row_in(&target.bytes),
            };
            let mut editor = RowEditor::new(&form.layout, before, &mut scratch);
            let result = match edit(&mut editor) {
                Ok(result) => result,
                Err(Error::Row { source, .. }) => break Err(Self::row_error(form, source)),
                Err(error) => break Err(error),
            };
            // Nothing was changed: there is nothing to write, and nobody to collide with.
            if editor.changed_columns().is_empty() {
                break Ok(Step::Done(Some(result)));
            }
            let changed = editor.changed_columns().clone();
            let row = match editor.finish() {
                Ok(row) => row,
                Err(error) => break Err(Self::row_error(form, error)),
            };
            let new = Some((row, &changed));
            let installed = match &place {
                Place::Hot(target) => self.install(form_ref, target, new, contested, &guard),
                Place::Cold(target) => self.install_cold(form_ref, target, new, contested, &guard),
            };
            match installed {
                Ok(Some(Step::Done(()))) => break Ok(Step::Done(Some(result))),
                Ok(Some(Step::Wait(wait))) => break Ok(Step::Wait(wait)),
                Ok(None) => backoff.wait(),
                Err(error) => break Err(error),
            }
        };
        self.scratch = scratch;
        outcome
    }

    /// Deletes the row with this key.
    pub(crate) fn try_delete(
        &mut self,
        entry: &Arc<TableEntry>,
        index: IndexId,
        key: &[u8],
    ) -> Result<Step<bool>> {
        self.must_write()?;
        let form_ref = step!(self.touch(entry)?);
        self.begin_statement();
        let form = form_ref.get();
        form.must_be_whole()?;
        let index = Self::index_for(form, index, key)?;
        let db = self.db();
        let guard = db.epochs.pin();
        let mut backoff = Backoff::new();
        loop {
            let sought = step!(self.find_target(form_ref, index, key, Purpose::Change, &guard)?);
            let Sought::At(place) = sought else {
                sought.must_be_gone();
                return Ok(Step::Done(false));
            };
            let installed = match &place {
                Place::Hot(target) => self.install(form_ref, target, None, &mut false, &guard),
                Place::Cold(target) => self.install_cold(form_ref, target, None, &mut false, &guard),
            };
            match installed? {
                Some(Step::Done(())) => return Ok(Step::Done(true)),
                Some(Step::Wait(wait)) => return Ok(Step::Wait(wait)),
                None => backoff.wait(),
            }
        }
    }

    /// Installs a new version (or a tombstone) over the target. `None`: the row changed meanwhile, find it again; or a
    /// new key met somebody else's claim, and was taken back.
    ///
    /// A wait means that nothing is installed: the caller tries the whole step again.
    pub(crate) fn install(
        &mut self,
        form_ref: FormRef,
        target: &Target,
        new: Option<(&[u8], &ColumnSet)>,
        contested: &mut bool,
        guard: &Guard<'_>,
    ) -> Result<Option<Step<()>>> {
        let form = form_ref.get();
        let me = self.identify();
        let keys_changed = new
            .is_some_and(|(_, changed)| form.indexes.iter().any(|index| changed.intersects(&index.columns)));
        let own = target.base.begin() == Begin::By(me);
        // Its own version of before, in the same savepoint, is replaced rather than kept below; unless a key changes,
        // because a claim that is refused has to be taken back.
        let replaces = if own && !keys_changed { self.find_write(target.base) } else { None };
        debug_assert!(!own || !self.hides(target.base), "a statement does not change its own version again");
        let (row, suffix) = match new {
            Some((row, _)) => (row, form.suffix(target.base)),
            None => (&[][..], &[][..]),
        };
        if row.len() + suffix.len() > MAX_ROW_BYTES {
            return Err(Self::row_error(form, RowError::RowTooLong { bytes: row.len() }));
        }
        if keys_changed {
            self.check_keys(form, row, suffix)?;
        }
        if let Some((row, changed)) = new
            && *contested
        {
            // Whom there is to wait for is looked for without the claim.
            let claimant = Claimant { row, suffix, id: Some(target.row), record: None, looks: false };
            if let Step::Wait(wait) = self.check_claims(form_ref, claimant, Some(changed), guard)? {
                return Ok(Some(Step::Wait(wait)));
            }
            *contested = false;
        }
        // Under an own version nobody can enter a lock any more that forbids a change of other columns.
        let removes = own && new.is_none_or(|(_, changed)| Self::removes(form, changed));
        let looks_early = own && (!removes || mutation::off(Rule::OwnRemovalLooksForLocks));
        if (looks_early || !own)
            && form.counters.locks.load(Ordering::SeqCst) != 0
            && let Some(wait) = self.forbidden_target(form, target, new.map(|(_, changed)| changed))
        {
            return Ok(Some(Step::Wait(wait)));
        }
        let version =
            form.store.create(Begin::By(me), Some(target.base), target.row, new.is_none(), row, suffix)?;
        self.note_use(form, target.base);
        self.note_new(version);
        if replaces.is_some() {
            version.set_link(target.base.link());
        }
        if keys_changed || replaces.is_some() && target.base.keys_changed() {
            version.mark_keys_changed();
        }
        if !self.swing(form, target, version, keys_changed, guard)? {
            form.store.discard(version);
            return Ok(None);
        }
        if let Some(place) = replaces {
            if removes
                && !looks_early
                && form.counters.locks.load(Ordering::SeqCst) != 0
                && let Some(wait) = self.forbidden_target(form, target, new.map(|(_, changed)| changed))
            {
                self.put_back(form, target, version, guard);
                return Ok(Some(Step::Wait(wait)));
            }
            self.rewrite(place, version);
            if new.is_none() {
                self.remove_replaced_entries(form, target, guard);
            }
            form.store.retire(target.base);
        } else {
            if own {
                target.base.supersede();
                self.kept_own = true;
            } else if let Begin::At(begin) = target.base.begin() {
                self.note_change(form, target.base.row(), begin);
            }
            self.writes.push(Write { form: form_ref, row: target.row, version, replaced: Some(target.base) });
        }
        // What can only be looked at once the version stands: others' locks and claims.
        if form.counters.locks.load(Ordering::SeqCst) != 0
            && replaces.is_none()
            && !looks_early
            && let Some(wait) = self.forbidden_target(form, target, new.map(|(_, changed)| changed))
        {
            self.step_back(guard);
            return Ok(Some(Step::Wait(wait)));
        }
        let Some((row, changed)) = new.filter(|_| keys_changed) else { return Ok(Some(Step::Done(()))) };
        let claimant = Claimant { row, suffix, id: Some(target.row), record: None, looks: false };
        let outcome = self.check_claims(form_ref, claimant, Some(changed), guard);
        if matches!(outcome, Ok(Step::Done(()))) {
            return outcome.map(Some);
        }
        self.step_back(guard);
        *contested = true;
        outcome.map(|_| None)
    }

    /// Ends a record, and inserts the new version of its row unless it is deleted. `None`: find the row again.
    ///
    /// A wait means that nothing is installed: the caller tries the whole step again.
    pub(crate) fn install_cold(
        &mut self,
        form_ref: FormRef,
        target: &ColdTarget,
        new: Option<(&[u8], &ColumnSet)>,
        contested: &mut bool,
        guard: &Guard<'_>,
    ) -> Result<Option<Step<()>>> {
        let form = form_ref.get();
        let changes_keys =
            |changed: &ColumnSet| form.indexes.iter().any(|index| changed.intersects(&index.columns));
        let keys_changed = new.is_some_and(|(_, changed)| changes_keys(changed));
        let suffix = form.suffix_in(&target.bytes);
        if let Some((row, changed)) = new {
            if row.len() + suffix.len() > MAX_ROW_BYTES {
                return Err(Self::row_error(form, RowError::RowTooLong { bytes: row.len() }));
            }
            if keys_changed {
                self.check_keys(form, row, suffix)?;
            }
            if *contested {
                let claimant = Claimant { row, suffix, id: None, record: Some(target.name), looks: false };
                if let Step::Wait(wait) = self.check_claims(form_ref, claimant, Some(changed), guard)? {
                    return Ok(Some(Step::Wait(wait)));
                }
                *contested = false;
            }
        }
        // Notices may use the reserve, of which something has to be left for moves.
        self.db.budget.ask(MemoryKind::Memo, target.bytes.len() as u64)?;
        let before = self.writes.len();
        let outcome = self.try_install_cold(form_ref, target, new, keys_changed, contested, guard);
        if !matches!(outcome, Ok(Some(Step::Done(())))) && self.writes.len() > before {
            while self.writes.len() > before {
                self.undo_last(guard);
            }
            self.place().note_undone();
            // Whoever holds a key is looked for again without the claim. Whoever holds a lock is known.
            if *contested && matches!(outcome, Ok(Some(Step::Wait(_)))) {
                return Ok(None);
            }
        }
        if matches!(outcome, Ok(Some(Step::Done(())))) {
            // It is as old as its batch, at least.
            self.note_change(form, &target.bytes, Timestamp(target.name.batch));
        }
        if let (Some(row), Ok(Some(Step::Done(())))) = (target.from, &outcome) {
            self.followed.push(Followed { table: form.id, row, name: target.name });
        }
        outcome
    }

    fn try_install_cold(
        &mut self,
        form_ref: FormRef,
        target: &ColdTarget,
        new: Option<(&[u8], &ColumnSet)>,
        keys_changed: bool,
        contested: &mut bool,
        guard: &Guard<'_>,
    ) -> Result<Option<Step<()>>> {
        let form = form_ref.get();
        if form.counters.locks.load(Ordering::SeqCst) != 0
            && mutation::on(Rule::EndLooksForLocks)
            && let Some(wait) = self.forbidden(form, &target.key, new.map(|(_, changed)| changed))
        {
            return Ok(Some(Step::Wait(wait)));
        }
        let mut keys = Vec::new();
        pack_keys(form, form.row_in(&target.bytes), form.suffix_in(&target.bytes), &mut keys);
        // The notice names the row that goes on, so that whoever has the record in hand finds it.
        let slot = new.map(|_| form.store.take_slot(guard)).transpose()?;
        let heir = slot.map_or(Heir::None, Heir::Changed);
        let ended = self.end_record(form.id, target.name, keys, heir, guard);
        if !matches!(ended, Ok(true)) {
            slot.into_iter().for_each(|slot| form.store.directory.give_back(slot, guard));
            return ended.map(|_| None);
        }
        if form.counters.locks.load(Ordering::SeqCst) != 0
            && mutation::on(Rule::EndLooksForLocks)
            && let Some(wait) = self.forbidden(form, &target.key, new.map(|(_, changed)| changed))
        {
            slot.into_iter().for_each(|slot| form.store.directory.give_back(slot, guard));
            return Ok(Some(Step::Wait(wait)));
        }
        let (Some((row, changed)), Some(slot)) = (new, slot) else { return Ok(Some(Step::Done(()))) };
        let suffix = form.suffix_in(&target.bytes);
        let row_id = self.claim_row(form_ref, row, Origin::Old(suffix, slot), guard)?;
        if !keys_changed {
            return Ok(Some(Step::Done(())));
        }
        let claimant = Claimant { row, suffix, id: Some(row_id), record: Some(target.name), looks: false };
        let outcome = self.check_claims(form_ref, claimant, Some(changed), guard);
        *contested = matches!(outcome, Ok(Step::Wait(_)));
        outcome.map(Some)
    }

    /// Enters the end of a record into the memo. `false`: somebody else has or is about to; the caller takes the own
    /// notice back and looks again.
    pub(crate) fn end_record(
        &mut self,
        table: TableId,
        name: RecordName,
        keys: Vec<u8>,
        heir: Heir,
        guard: &Guard<'_>,
    ) -> Result<bool> {
        let Some(memo) = self.db().cold.memo() else { unreachable!("where a record is, there is a memo") };
        let end = memo.end_row(name, table, heir, keys);
        let ends = memo.ends_form();
        let mine = self.claim_row(ends, &end, Origin::Fresh, guard)?;
        let Structure::Hash(hash) = &ends.get().primary().structure else {
            unreachable!("the memo has hash indexes")
        };
        let key = name.key();
        let other = hash.lookup(guard, hash_of(&key), |row| {
            let theirs = row != mine
                && !matches!(self.claim_of(ends.get(), ends.get().primary(), &key, row, guard), Claim::Held);
            if theirs { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        Ok(other.is_none() || mutation::off(Rule::EndsCollide))
    }

    fn check_keys(&mut self, form: &TableForm, row: &[u8], suffix: &[u8]) -> Result<()> {
        let mut key = std::mem::take(&mut self.key);
        let outcome = form.indexes.iter().try_for_each(|index| {
            index.key_of_row(row, suffix, &mut key);
            key.check_len().map_err(|error| Self::row_error(form, error))
        });
        self.key = key;
        outcome
    }

    /// Swings the slot from the target's base to `version`, entering changed keys under the latch.
    fn swing(
        &mut self,
        form: &TableForm,
        target: &Target,
        version: Version,
        keys_changed: bool,
        guard: &Guard<'_>,
    ) -> Result<bool> {
        let directory = &form.store.directory;
        if !keys_changed {
            return Ok(directory
                .slot(target.row, guard)
                .is_some_and(|slot| slot.swing(target.base, version)));
        }
        let Some(mut latched) = directory.latch(target.row, guard) else { return Ok(false) };
        if latched.newest() != Some(target.base) {
            return Ok(false);
        }
        let mut key = std::mem::take(&mut self.key);
        let outcome = form.indexes.iter().try_for_each(|index| {
            index.key_of(form, version, &mut key);
            index.insert(guard, &key, target.row).map(drop)
        });
        self.key = key;
        match outcome {
            Ok(()) => {
                latched.set(Some(version));
                drop(latched);
                // Others' claims and locks are looked at from here on. A swing of the slot orders that by itself, the
                // plain store of a latch's holder does not.
                thermocline_base::sync::fence(Ordering::SeqCst);
                Ok(true)
            }
            Err(error) => {
                crate::txn::prune::remove_entries(form, latched.newest(), version, guard);
                drop(latched);
                form.store.discard(version);
                Err(error.into())
            }
        }
    }

    /// Puts the own version back that `version` has replaced in place, and that no key has changed in.
    fn put_back(&mut self, form: &TableForm, target: &Target, version: Version, guard: &Guard<'_>) {
        let latched = form.store.directory.latch(target.row, guard);
        let mut latched = latched.expect("the slot of an uncommitted write is there");
        assert_eq!(latched.newest(), Some(version), "an uncommitted version is the newest of its row");
        latched.set(Some(target.base));
        drop(latched);
        form.store.retire(version);
        self.place().note_undone();
    }

    /// Does a change of these columns change a unique key?
    fn removes(form: &TableForm, changed: &ColumnSet) -> bool {
        form.indexes.iter().any(|index| index.is_unique() && changed.intersects(&index.columns))
    }

    /// Takes out the entries of the own version that was replaced.
    fn remove_replaced_entries(&self, form: &TableForm, target: &Target, guard: &Guard<'_>) {
        if let Some(latched) = form.store.directory.latch(target.row, guard) {
            crate::txn::prune::remove_entries(form, latched.newest(), target.base, guard);
        }
    }

    /// Does somebody hold a lock that forbids a change of these columns of the target, or its deletion (`None`)?
    fn forbidden_target(
        &mut self,
        form: &TableForm,
        target: &Target,
        changed: Option<&ColumnSet>,
    ) -> Option<Wait> {
        let mut key = KeyBuf::new();
        form.primary().key_of(form, target.base, &mut key);
        self.forbidden(form, &key, changed)
    }

    /// The same of the row with this primary key, wherever it is.
    fn forbidden(&mut self, form: &TableForm, key: &[u8], changed: Option<&ColumnSet>) -> Option<Wait> {
        let me = self.identify();
        let primary = form.primary();
        let removes = changed.is_none_or(|changed| Self::removes(form, changed));
        let intent = if removes { Intent::Remove } else { Intent::Change };
        let mut in_the_way = InTheWay::default();
        loop {
            let other = self.db.locks.forbids(me, form.id, key, intent)?;
            if let Some(since) = in_the_way.since(other, &self.db.registry) {
                return Some(Self::holder(other, since, form, primary, key));
            }
        }
    }
}
