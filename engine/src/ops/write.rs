//! Writing rows: insert, update, delete.
//!
//! The first writer of a row wins. A write installs a version that carries the transaction's id, by one swing of the
//! row's slot, and only over a committed newest version that the snapshot sees (or its own). Everybody else who wants
//! the row meets the id.
//!
//! Order inside a write:
//! 1. the write is entered into the session's list as soon as its version can be reached, so that a rollback undoes
//!    whatever part was done;
//! 2. a changed key: latch the slot, enter the new key into the indexes, swing, unlatch; so the pruner, who takes
//!    entries out under the latch, never takes one that the new version needs;
//! 3. unique keys: the claim (the entry) comes first, the check of all other rows with that key second. Of two who
//!    claim the same key at least one sees the other. It takes its own claim back, looks again without it, and waits for
//!    the other's end, or claims anew if nobody is there any more. So who waits for a key is in nobody's way, least of
//!    all in that of the holder who comes back to the key. Claims that are taken back are told to who may have met them
//!    ([`crate::txn::registry::Place::note_undone`]): a wait for one of them is no wait, and closes no circle;
//! 4. row locks of others are looked at after the version is installed (see [`crate::txn::locks`]).

use std::ops::ControlFlow;
use std::sync::Arc;

use thermocline_base::epoch::Guard;
use thermocline_base::ids::{IndexId, RowId, Timestamp};
use thermocline_base::mutation::{self, Rule};
use thermocline_base::sync::{Backoff, Ordering};

use crate::catalog::table::{FormRef, IndexForm, Structure, TableEntry, TableForm};
use crate::error::{Error, Result, SerializationCause};
use crate::hot::version::{Begin, TxnId, Version};
use crate::index::hash_of;
use crate::ops::read::Lookup;
use crate::ops::{Step, Wait, step};
use crate::row::{ColumnSet, KeyBuf, MAX_ROW_BYTES, RowEditor, RowError};
use crate::txn::locks::Intent;
use crate::txn::session::{Session, Write};
use crate::txn::visibility::{Resolved, resolve};

/// Where a row stands that is to be changed.
pub(crate) struct Target {
    pub(crate) row: RowId,
    pub(crate) base: Version,
}

/// What an insert remembers while it waits.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct InsertState {
    /// It has claimed its keys, met somebody else's claim, and taken its own back.
    contested: bool,
    /// It has not taken them back: the mutation of [`Rule::WaitWithoutClaim`].
    kept: bool,
}

/// What the check of a unique key came to.
enum Claim {
    Held,
    /// By this version of a row.
    Taken(RowId, Version),
    /// By a transaction that had undone something so often before the claim was seen.
    Contested(TxnId, u32),
}

/// A row whose claims are checked.
#[derive(Clone, Copy)]
pub(crate) struct Claimant<'r> {
    pub(crate) row: &'r [u8],
    pub(crate) suffix: &'r [u8],
    /// Its RowId; none: it has claimed nothing yet.
    pub(crate) id: Option<RowId>,
}

impl Session {
    pub(crate) fn row_error(form: &TableForm, source: RowError) -> Error {
        Error::Row { table: form.schema.name.clone(), source }
    }

    pub(crate) fn must_write(&self) -> Result<()> {
        if self.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// The row with this key, ready to be changed: its newest version is visible and not somebody else's.
    pub(crate) fn find_target(
        &mut self,
        form_ref: FormRef,
        index: &IndexForm,
        key: &[u8],
        guard: &Guard<'_>,
    ) -> Result<Step<Option<Target>>> {
        let form = form_ref.get();
        loop {
            let (row, base) = match self.look_up(form, index, key, guard) {
                Lookup::Row(row, version) => (row, version),
                Lookup::Absent => {
                    self.note_key(form_ref, index, key);
                    return Ok(Step::Done(None));
                }
                Lookup::Undecided(id) => return Ok(Step::Wait(Wait::Decision(id))),
                Lookup::Changed => continue,
            };
            let Some(newest) = form.store.directory.newest(row, guard) else { continue };
            if newest == base {
                if !index.is_unique() {
                    self.note_key(form_ref, index, key);
                }
                self.note_read(form_ref, row, base);
                return Ok(Step::Done(Some(Target { row, base })));
            }
            if mutation::off(Rule::FirstUpdaterWins) && matches!(newest.begin(), Begin::At(_)) {
                return Ok(Step::Done(Some(Target { row, base: newest })));
            }
            match resolve(newest, &self.db.registry, Timestamp(u64::MAX >> 2), self.id) {
                // It became visible between the two looks, or was taken away.
                Resolved::Gone | Resolved::Own => {}
                Resolved::At(begin) if begin <= self.snapshot => {}
                Resolved::At(_) => {
                    if !self.may_renew_snapshot() {
                        return Err(self.conflict(form, index, key, SerializationCause::ConcurrentUpdate));
                    }
                    self.take_snapshot();
                }
                Resolved::Later(id) | Resolved::Undecided(id) => {
                    return Ok(Step::Wait(self.holder(id, form, index, key)));
                }
            }
        }
    }

    /// A serialization failure about this key.
    pub(crate) fn conflict(
        &self,
        form: &TableForm,
        index: &IndexForm,
        key: &[u8],
        cause: SerializationCause,
    ) -> Error {
        Error::SerializationFailure { table: form.schema.name.clone(), key: index.describe(key), cause }
    }

    /// Inserts an encoded row.
    pub(crate) fn try_insert(
        &mut self,
        entry: &Arc<TableEntry>,
        row: &[u8],
        state: &mut InsertState,
    ) -> Result<Step<RowId>> {
        self.must_write()?;
        let form_ref = step!(self.touch(entry)?);
        self.begin_statement();
        let form = form_ref.get();
        let db = self.db();
        let guard = db.epochs.pin();
        form.layout.check(row).map_err(|error| Self::row_error(form, error))?;
        if std::mem::take(&mut state.kept) {
            self.undo_last(&guard);
        }
        let mut backoff = Backoff::new();
        loop {
            if state.contested || mutation::off(Rule::ClaimBeforeCheck) {
                let claimant = Claimant { row, suffix: &[], id: None };
                step!(self.check_claims(form_ref, claimant, None, &guard)?);
            }
            let row_id = self.claim_row(form_ref, row, &guard)?;
            if mutation::off(Rule::ClaimBeforeCheck) {
                return Ok(Step::Done(row_id));
            }
            let suffix = form.suffix(self.last_written());
            let claimant = Claimant { row, suffix, id: Some(row_id) };
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
    pub(crate) fn claim_row(&mut self, form_ref: FormRef, row: &[u8], guard: &Guard<'_>) -> Result<RowId> {
        let form = form_ref.get();
        let me = self.identify();
        let hidden =
            if form.hidden_key() { form.counters.hidden.fetch_add(1, Ordering::Relaxed) + 1 } else { 0 };
        let suffix = &hidden.to_le_bytes()[..form.suffix_bytes];
        let mut key = std::mem::take(&mut self.key);
        for index in &form.indexes {
            index.key_of_row(row, suffix, &mut key);
            if let Err(error) = key.check_len() {
                self.key = key;
                return Err(Self::row_error(form, error));
            }
        }
        let row_id = form.store.take_slot(guard)?;
        let version = form.store.create(Begin::By(me), None, row_id, false, row, suffix)?;
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

    /// Checks the unique keys of a row; `changed` limits it to indexes on these columns.
    ///
    /// Who is refused has learnt of the row that refuses it: that is a read.
    pub(crate) fn check_claims(
        &mut self,
        form_ref: FormRef,
        claimant: Claimant<'_>,
        changed: Option<&ColumnSet>,
        guard: &Guard<'_>,
    ) -> Result<Step<()>> {
        let form = form_ref.get();
        let mut key = std::mem::take(&mut self.key);
        let mut outcome = Ok(Step::Done(()));
        for index in form.indexes.iter().filter(|index| index.is_unique()) {
            if matches!(index.key, crate::catalog::table::KeySource::Hidden)
                || changed.is_some_and(|changed| !changed.intersects(&index.columns))
                || index.is_exempt(claimant.row)
            {
                continue;
            }
            index.key_of_row(claimant.row, claimant.suffix, &mut key);
            match self.check_claim(form, index, &key, claimant.id, guard) {
                Claim::Held => {}
                Claim::Taken(row, version) => {
                    if !mutation::off(Rule::RefusalIsRead) {
                        self.note_read(form_ref, row, version);
                    }
                    outcome = Err(Error::DuplicateKey {
                        table: form.schema.name.clone(),
                        index: index.schema.name.clone(),
                        key: index.describe(&key),
                    });
                    break;
                }
                Claim::Contested(id, since) => {
                    outcome = Ok(Step::Wait(Wait::Holder {
                        id,
                        since,
                        table: form.schema.name.clone(),
                        key: index.describe(&key),
                    }));
                    break;
                }
            }
        }
        self.key = key;
        outcome
    }

    /// Has any other row this key, now or possibly after an unfinished transaction ends?
    fn check_claim(
        &self,
        form: &TableForm,
        index: &IndexForm,
        key: &[u8],
        mine: Option<RowId>,
        guard: &Guard<'_>,
    ) -> Claim {
        let examine = |row: RowId| {
            if Some(row) == mine {
                return ControlFlow::Continue(());
            }
            match self.claim_of(form, index, key, row, guard) {
                Claim::Held => ControlFlow::Continue(()),
                other => ControlFlow::Break(other),
            }
        };
        let found = match &index.structure {
            Structure::Hash(hash) => hash.lookup(guard, hash_of(key), examine),
            Structure::Tree(tree) => tree.lookup(guard, key, examine),
        };
        found.unwrap_or(Claim::Held)
    }

    /// Does this row hold the key? Looks at the present, whatever the snapshot.
    fn claim_of(
        &self,
        form: &TableForm,
        index: &IndexForm,
        key: &[u8],
        row: RowId,
        guard: &Guard<'_>,
    ) -> Claim {
        let now = Timestamp(u64::MAX >> 2);
        // How often the one who contests the claim had undone something before the chain was looked at.
        let mut known: Option<(TxnId, u32)> = None;
        'again: loop {
            let mut next = form.store.directory.newest(row, guard);
            let mut contested = None;
            let claim = loop {
                let Some(version) = next else { break Claim::Held };
                let has_key = !version.is_tombstone() && index.matches(form, version, key);
                match resolve(version, &self.db.registry, now, self.id) {
                    Resolved::Gone => continue 'again,
                    Resolved::Own if has_key => break Claim::Taken(row, version),
                    Resolved::Own => break Claim::Held,
                    Resolved::At(_) => {
                        break match contested {
                            // It may come back, or the newer version may take the key.
                            Some(id) if has_key => Claim::Contested(id, 0),
                            None if has_key => Claim::Taken(row, version),
                            _ => Claim::Held,
                        };
                    }
                    Resolved::Later(id) | Resolved::Undecided(id) => {
                        if has_key {
                            break Claim::Contested(id, 0);
                        }
                        contested = Some(id);
                    }
                }
                next = version.older(&form.store.memory);
            };
            match (claim, known) {
                (Claim::Contested(id, _), Some((before, since))) if id == before => {
                    return Claim::Contested(id, since);
                }
                (Claim::Contested(id, _), _) => known = Some((id, self.db.registry.undone(id))),
                (claim, _) => return claim,
            }
        }
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
        let index = Self::index_of(form, index)?;
        let guard = self.db().epochs.pin();
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut backoff = Backoff::new();
        let outcome = loop {
            let target = match self.find_target(form_ref, index, key, &guard) {
                Ok(Step::Done(Some(target))) => target,
                Ok(Step::Done(None)) => break Ok(Step::Done(None)),
                Ok(Step::Wait(wait)) => break Ok(Step::Wait(wait)),
                Err(error) => break Err(error),
            };
            let mut editor = RowEditor::new(&form.layout, form.row(target.base), &mut scratch);
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
            match self.install(form_ref, &target, Some((row, &changed)), contested, &guard) {
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
        let index = Self::index_of(form, index)?;
        let db = self.db();
        let guard = db.epochs.pin();
        let mut backoff = Backoff::new();
        loop {
            let Some(target) = step!(self.find_target(form_ref, index, key, &guard)?) else {
                return Ok(Step::Done(false));
            };
            match self.install(form_ref, &target, None, &mut false, &guard)? {
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
            let claimant = Claimant { row, suffix, id: Some(target.row) };
            if let Step::Wait(wait) = self.check_claims(form_ref, claimant, Some(changed), guard)? {
                return Ok(Some(Step::Wait(wait)));
            }
            *contested = false;
        }
        // Under an own version nobody can enter a lock any more, so the look at those that are there can come first.
        if own
            && form.counters.locks.load(Ordering::SeqCst) != 0
            && let Some(wait) = self.forbidden(form, target, new.map(|(_, changed)| changed))
        {
            return Ok(Some(Step::Wait(wait)));
        }
        let version =
            form.store.create(Begin::By(me), Some(target.base), target.row, new.is_none(), row, suffix)?;
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
            self.rewrite(place, version);
            if new.is_none() {
                self.remove_replaced_entries(form, target, guard);
            }
            form.store.retire(target.base);
        } else {
            if own {
                target.base.supersede();
            }
            self.writes.push(Write { form: form_ref, row: target.row, version, replaced: Some(target.base) });
        }
        // What can only be looked at once the version stands: others' locks and claims.
        if form.counters.locks.load(Ordering::SeqCst) != 0
            && !own
            && let Some(wait) = self.forbidden(form, target, new.map(|(_, changed)| changed))
        {
            self.step_back(guard);
            return Ok(Some(Step::Wait(wait)));
        }
        let Some((row, changed)) = new.filter(|_| keys_changed) else { return Ok(Some(Step::Done(()))) };
        let claimant = Claimant { row, suffix, id: Some(target.row) };
        let outcome = self.check_claims(form_ref, claimant, Some(changed), guard);
        if matches!(outcome, Ok(Step::Done(()))) {
            return outcome.map(Some);
        }
        self.step_back(guard);
        *contested = true;
        outcome.map(|_| None)
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

    /// Takes out the entries of the own version that was replaced.
    fn remove_replaced_entries(&self, form: &TableForm, target: &Target, guard: &Guard<'_>) {
        if let Some(latched) = form.store.directory.latch(target.row, guard) {
            crate::txn::prune::remove_entries(form, latched.newest(), target.base, guard);
        }
    }

    /// Does somebody hold a lock that forbids a change of these columns of the target, or its deletion (`None`)?
    fn forbidden(&mut self, form: &TableForm, target: &Target, changed: Option<&ColumnSet>) -> Option<Wait> {
        let me = self.identify();
        let primary = form.primary();
        let removes = changed.is_none_or(|changed| changed.intersects(&primary.columns));
        let intent = if removes { Intent::Remove } else { Intent::Change };
        let mut key = KeyBuf::new();
        primary.key_of(form, target.base, &mut key);
        let other = self.db.locks.forbids(me, form.id, &key, intent)?;
        Some(self.holder(other, form, primary, &key))
    }

    /// The wait for another transaction that holds a key.
    pub(crate) fn holder(&self, id: TxnId, form: &TableForm, index: &IndexForm, key: &[u8]) -> Wait {
        let since = self.db.registry.undone(id);
        Wait::Holder { id, since, table: form.schema.name.clone(), key: index.describe(key) }
    }
}
