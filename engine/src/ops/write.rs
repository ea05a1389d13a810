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
//! 4. Row locks of others are looked at after the version is installed (see [`crate::txn::locks`]).
//!
//! A row in the cold store is changed by ending its record in the update memo and inserting the new version, if there is
//! one, as a fresh row in memory. The first transaction that ends a record wins: ends have a unique key. A row that has
//! moved since the snapshot is followed, in either direction. A row that is being moved is waited for, which takes a moment.

use std::ops::ControlFlow;
use std::sync::Arc;

use thermocline_base::epoch::Guard;
use thermocline_base::ids::{IndexId, RowId, TableId, Timestamp};
use thermocline_base::sync::{Backoff, Ordering};

use crate::catalog::table::{FormRef, IndexForm, Structure, TableEntry, TableForm};
use crate::cold::memo::{RecordName, pack_keys};
use crate::error::{Error, Result, SerializationCause};
use crate::hot::budget::MemoryKind;
use crate::hot::chunk::Found;
use crate::hot::version::{Begin, TxnId, Version};
use crate::index::hash_of;
use crate::mutation::{self, Rule};
use crate::ops::cold::{ColdClaim, EndNow, PRESENT};
use crate::ops::read::Lookup;
use crate::ops::{Step, Wait, step};
use crate::row::{ColumnSet, KeyBuf, MAX_ROW_BYTES, RowEditor, RowError, RowRef};
use crate::txn::in_the_way::InTheWay;
use crate::txn::locks::Intent;
use crate::txn::session::{Followed, Session, Write};
use crate::txn::visibility::{Resolved, resolve};

/// Where a row stands in memory that is to be changed.
pub(crate) struct Target {
    pub(crate) row: RowId,
    pub(crate) base: Version,
}

/// A row in the cold store that is to be changed.
pub(crate) struct ColdTarget {
    pub(crate) name: RecordName,
    /// Its primary key.
    pub(crate) key: Box<[u8]>,
    /// The row with its hidden key.
    pub(crate) bytes: Vec<u8>,
    /// Where the snapshot sees it in memory, if it has moved since.
    pub(crate) from: Option<RowId>,
}

/// Why a row is looked for that is not only read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// To be changed: a frozen row is thawed first.
    Change,
    /// To be locked, which leaves it as it is.
    Lock,
}

/// Where a row stands that is to be changed.
pub(crate) enum Place {
    Hot(Target),
    Cold(ColdTarget),
}

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
    /// It replaces a record of the cold store, whose hidden key it keeps.
    Old(&'r [u8]),
    /// It comes back from the cold store as it was, with its hidden key.
    Promoted(&'r [u8]),
}

/// What the check of a unique key came to.
enum Claim {
    Held,
    /// By this version of a row.
    Taken(RowId, Version),
    /// By a row in the cold store.
    TakenCold(RecordName),
    /// By a transaction that had undone something so often before the claim was seen.
    Contested(TxnId, u32),
    /// By a row that is being moved this moment.
    Moving(TxnId),
    /// It takes a look into the cold store to know.
    Waits(Wait),
}

/// A row whose claims are checked.
#[derive(Clone, Copy)]
pub(crate) struct Claimant<'r> {
    pub(crate) row: &'r [u8],
    pub(crate) suffix: &'r [u8],
    /// Its RowId; none: it has claimed nothing yet.
    pub(crate) id: Option<RowId>,
    /// The record that it replaces.
    pub(crate) record: Option<RecordName>,
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
        purpose: Purpose,
        guard: &Guard<'_>,
    ) -> Result<Step<Option<Place>>> {
        let form = form_ref.get();
        let mut in_the_way = InTheWay::default();
        loop {
            let (row, mut base) = match self.look_up(form, index, key, guard) {
                Lookup::Row(row, version) => (row, version),
                Lookup::Absent => {
                    let found = step!(self.look_up_cold(form, index, key, guard)?);
                    if found.is_none() || !index.is_unique() {
                        self.note_key(form_ref, index, key);
                    }
                    let Some(found) = found else { return Ok(Step::Done(None)) };
                    let record = found.record();
                    let target = ColdTarget {
                        name: found.name(),
                        key: record.key.into(),
                        bytes: record.bytes.to_vec(),
                        from: None,
                    };
                    match step!(self.follow_record(form_ref, index, key, target, &mut in_the_way, guard)?) {
                        Some(place) => return Ok(Step::Done(Some(place))),
                        None => continue,
                    }
                }
                Lookup::Undecided(id) => return Ok(Step::Wait(Wait::Decision(id))),
                Lookup::Changed => continue,
            };
            let may_thaw = base.is_image() && purpose == Purpose::Change;
            if may_thaw && !matches!(form.store.directory.look(row, guard), Found::Left(_)) {
                let Some(thawed) = form.store.thaw_image(base, false, guard)? else { continue };
                form.store.note_change_of_frozen(thawed.begin(), self.db.registry.clock.now());
                base = thawed;
            }
            let Some(newest) = form.store.directory.newest(row, guard) else { continue };
            if newest.is_same_as(base) {
                if base.is_image() && purpose == Purpose::Change {
                    // It was about to leave, and stays after all.
                    continue;
                }
                if !index.is_unique() {
                    self.note_key(form_ref, index, key);
                }
                self.note_read(form_ref, row, base);
                return Ok(Step::Done(Some(Place::Hot(Target { row, base }))));
            }
            if mutation::off(Rule::FirstUpdaterWins)
                && matches!(newest.begin(), Begin::At(_))
                && newest.moved().is_none()
            {
                return Ok(Step::Done(Some(Place::Hot(Target { row, base: newest }))));
            }
            match resolve(newest, &self.db.registry, PRESENT, self.id) {
                // It became visible between the two looks, or was taken away.
                Resolved::Gone | Resolved::Own => {}
                Resolved::At(begin) if begin <= self.snapshot => {}
                Resolved::At(_)
                    if let Some(moved) = newest.moved()
                        && (moved.begin <= self.snapshot || mutation::off(Rule::MarkKeepsBegin)) =>
                {
                    // What the snapshot sees is what has moved: nothing about the row has changed.
                    let mut key_of_row = KeyBuf::new();
                    form.primary().key_of(form, base, &mut key_of_row);
                    let name = RecordName::new(moved.batch, &key_of_row);
                    let target = ColdTarget {
                        name,
                        key: (&*key_of_row).into(),
                        bytes: base.row().to_vec(),
                        from: Some(row),
                    };
                    if !index.is_unique() {
                        self.note_key(form_ref, index, key);
                    }
                    match step!(self.follow_record(form_ref, index, key, target, &mut in_the_way, guard)?) {
                        Some(place) => return Ok(Step::Done(Some(place))),
                        None => continue,
                    }
                }
                Resolved::At(_) => {
                    if !self.may_renew_snapshot() {
                        return Err(self.conflict(form, index, key, SerializationCause::ConcurrentUpdate));
                    }
                    self.take_snapshot();
                }
                Resolved::Later(_) | Resolved::Undecided(_)
                    if newest.moved().is_some() && mutation::off(Rule::MarksAreNotStolen) =>
                {
                    if let Some(mut latched) = form.store.directory.latch(row, guard)
                        && latched.newest() == Some(newest)
                    {
                        latched.set(Some(base));
                    }
                }
                Resolved::Later(id) | Resolved::Undecided(id)
                    if newest.moved().is_some() && !mutation::off(Rule::MovesAreWaitedOut) =>
                {
                    return Ok(Step::Wait(Wait::Decision(id)));
                }
                Resolved::Later(id) | Resolved::Undecided(id) => {
                    if let Some(since) = in_the_way.since(id, &self.db.registry) {
                        return Ok(Step::Wait(Self::holder(id, since, form, index, key)));
                    }
                }
            }
        }
    }

    /// Makes sure that a record that the snapshot sees can be changed: nobody else has ended it, or is about to. A
    /// promoted one is followed to its row in memory. `None`: look the row up again.
    fn follow_record(
        &mut self,
        form_ref: FormRef,
        index: &IndexForm,
        key: &[u8],
        target: ColdTarget,
        in_the_way: &mut InTheWay,
        guard: &Guard<'_>,
    ) -> Result<Step<Option<Place>>> {
        let form = form_ref.get();
        let db = self.db();
        let Some(memo) = db.memo.get() else { unreachable!("where a record is, there is a memo") };
        match db.end_now(memo, target.name, self.id, guard) {
            EndNow::Open => {
                self.note_cold_read(form_ref, target.name);
                return Ok(Step::Done(Some(Place::Cold(target))));
            }
            EndNow::Own => return Ok(Step::Done(None)),
            EndNow::Unfinished(id, Some(_)) => return Ok(Step::Wait(Wait::Decision(id))),
            EndNow::Unfinished(id, None) => {
                let since = in_the_way.since(id, &db.registry);
                return Ok(since.map_or(Step::Done(None), |since| {
                    Step::Wait(Self::holder(id, since, form, index, key))
                }));
            }
            // The memo says meanwhile that the snapshot does not see it.
            EndNow::At(end, _) if end <= self.snapshot => return Ok(Step::Done(None)),
            EndNow::At(end, Some(row)) => {
                let newest = form.store.directory.newest(row, guard);
                match newest.map(|newest| (newest, resolve(newest, &db.registry, PRESENT, self.id))) {
                    Some((base, Resolved::At(begin))) if begin == end => {
                        self.note_cold_read(form_ref, target.name);
                        return Ok(Step::Done(Some(Place::Hot(Target { row, base }))));
                    }
                    Some((_, Resolved::Later(id) | Resolved::Undecided(id))) => {
                        let since = in_the_way.since(id, &db.registry);
                        return Ok(since.map_or(Step::Done(None), |since| {
                            Step::Wait(Self::holder(id, since, form, index, key))
                        }));
                    }
                    Some((_, Resolved::Gone | Resolved::Own)) => return Ok(Step::Done(None)),
                    Some((_, Resolved::At(_))) | None => {}
                }
            }
            EndNow::At(_, None) => {}
        }
        if !self.may_renew_snapshot() {
            return Err(self.conflict(form, index, key, SerializationCause::ConcurrentUpdate));
        }
        self.take_snapshot();
        Ok(Step::Done(None))
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
        row: RowRef<'_>,
        state: &mut InsertState,
    ) -> Result<Step<RowId>> {
        self.must_write()?;
        let form_ref = step!(self.touch(entry)?);
        self.begin_insert();
        let form = form_ref.get();
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
                let claimant = Claimant { row, suffix: &[], id: None, record: None };
                step!(self.check_claims(form_ref, claimant, None, &guard)?);
            }
            let row_id = self.claim_row(form_ref, row, Origin::Fresh, &guard)?;
            if mutation::off(Rule::ClaimBeforeCheck) {
                return Ok(Step::Done(row_id));
            }
            let suffix = form.suffix(self.last_written());
            let claimant = Claimant { row, suffix, id: Some(row_id), record: None };
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
            Origin::Old(suffix) | Origin::Promoted(suffix) => suffix,
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
        let row_id = form.store.take_slot(guard)?;
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
            let mut claim = self.check_claim(form, index, &key, claimant, guard);
            if let Claim::Taken(_, version) = claim
                && self.keeps_in_memory(version)
            {
                claim = self.check_claim(form, index, &key, claimant, guard);
            }
            match claim {
                Claim::Held => {}
                Claim::Moving(id) => {
                    outcome = Ok(Step::Wait(Wait::Decision(id)));
                    break;
                }
                Claim::Waits(wait) => {
                    outcome = Ok(Step::Wait(wait));
                    break;
                }
                Claim::Taken(..) | Claim::TakenCold(_) => {
                    match claim {
                        _ if mutation::off(Rule::RefusalIsRead) => {}
                        Claim::Taken(row, version) => self.note_read(form_ref, row, version),
                        Claim::TakenCold(name) => self.note_cold_read(form_ref, name),
                        _ => unreachable!("the key is taken"),
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

    /// A row refuses a key to this transaction. Who validates reads finds it again by its place in memory, which it would
    /// leave without a trace if it moved: no snapshot needs a mark that is over a row younger than itself. So from now on
    /// nothing younger than the snapshot moves. `true`: that is new, and the row may be moving; look again.
    fn keeps_in_memory(&self, version: Version) -> bool {
        if !self.validates_reads() || mutation::off(Rule::RefusersStay) {
            return false;
        }
        match resolve(version, &self.db.registry, PRESENT, self.id) {
            Resolved::At(begin) if begin > self.snapshot => self.place().keep_young(self.snapshot),
            _ => false,
        }
    }

    /// Has any other row this key, now or possibly after an unfinished transaction ends?
    fn check_claim(
        &mut self,
        form: &TableForm,
        index: &IndexForm,
        key: &[u8],
        claimant: Claimant<'_>,
        guard: &Guard<'_>,
    ) -> Claim {
        let mut in_the_way = InTheWay::default();
        loop {
            // Before the look in memory: see [`Session::cold_claim`]. A table of which nothing was ever cold costs its
            // writers no look at the clock, which all of them share.
            let may_be_cold = form.counters.cold.load(Ordering::SeqCst);
            let since = if may_be_cold { self.db.registry.clock.now() } else { Timestamp(0) };
            let examine = |row: RowId| {
                if Some(row) == claimant.id {
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
            if let Some(claim) = found {
                return claim;
            }
            if !may_be_cold {
                // Its first rows may have begun to move meanwhile.
                if form.counters.cold.load(Ordering::SeqCst) {
                    continue;
                }
                return Claim::Held;
            }
            return match self.cold_claim(form, index, key, since, claimant.record, guard) {
                Step::Done(ColdClaim::Free) => Claim::Held,
                Step::Done(ColdClaim::Taken(name)) => Claim::TakenCold(name),
                Step::Done(ColdClaim::Contested(id)) => match in_the_way.since(id, &self.db.registry) {
                    Some(since) => Claim::Contested(id, since),
                    None => continue,
                },
                Step::Done(ColdClaim::Again) => continue,
                Step::Wait(wait) => Claim::Waits(wait),
            };
        }
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
        let now = PRESENT;
        let mut in_the_way = InTheWay::default();
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
                        if version.moved().is_some() || version.is_promoted() && has_key {
                            break Claim::Moving(id);
                        }
                        if has_key {
                            break Claim::Contested(id, 0);
                        }
                        contested = Some(id);
                    }
                }
                next = version.older(&form.store.memory);
            };
            let Claim::Contested(id, _) = claim else { return claim };
            if let Some(since) = in_the_way.since(id, &self.db.registry) {
                return Claim::Contested(id, since);
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
        let index = Self::index_for(form, index, key)?;
        let guard = self.db().epochs.pin();
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut backoff = Backoff::new();
        let outcome = loop {
            let place = match self.find_target(form_ref, index, key, Purpose::Change, &guard) {
                Ok(Step::Done(Some(place))) => place,
                Ok(Step::Done(None)) => break Ok(Step::Done(None)),
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
        let index = Self::index_for(form, index, key)?;
        let db = self.db();
        let guard = db.epochs.pin();
        let mut backoff = Backoff::new();
        loop {
            let Some(place) = step!(self.find_target(form_ref, index, key, Purpose::Change, &guard)?) else {
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
            let claimant = Claimant { row, suffix, id: Some(target.row), record: None };
            if let Step::Wait(wait) = self.check_claims(form_ref, claimant, Some(changed), guard)? {
                return Ok(Some(Step::Wait(wait)));
            }
            *contested = false;
        }
        // Under an own version nobody can enter a lock any more, so the look at those that are there can come first.
        if own
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
            && let Some(wait) = self.forbidden_target(form, target, new.map(|(_, changed)| changed))
        {
            self.step_back(guard);
            return Ok(Some(Step::Wait(wait)));
        }
        let Some((row, changed)) = new.filter(|_| keys_changed) else { return Ok(Some(Step::Done(()))) };
        let claimant = Claimant { row, suffix, id: Some(target.row), record: None };
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
    fn install_cold(
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
                let claimant = Claimant { row, suffix, id: None, record: Some(target.name) };
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
        let mut keys = Vec::new();
        pack_keys(form, form.row_in(&target.bytes), form.suffix_in(&target.bytes), &mut keys);
        if !self.end_record(form.id, target.name, keys, None, guard)? {
            return Ok(None);
        }
        if form.counters.locks.load(Ordering::SeqCst) != 0
            && !mutation::off(Rule::EndLooksForLocks)
            && let Some(wait) = self.forbidden(form, &target.key, new.map(|(_, changed)| changed))
        {
            return Ok(Some(Step::Wait(wait)));
        }
        let Some((row, changed)) = new else { return Ok(Some(Step::Done(()))) };
        let suffix = form.suffix_in(&target.bytes);
        let row_id = self.claim_row(form_ref, row, Origin::Old(suffix), guard)?;
        if !keys_changed {
            return Ok(Some(Step::Done(())));
        }
        let claimant = Claimant { row, suffix, id: Some(row_id), record: Some(target.name) };
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
        promoted_to: Option<RowId>,
        guard: &Guard<'_>,
    ) -> Result<bool> {
        let Some(memo) = self.db().memo.get() else { unreachable!("where a record is, there is a memo") };
        let end = memo.end_row(name, table, promoted_to, keys);
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
        let removes = changed.is_none_or(|changed| changed.intersects(&primary.columns));
        let intent = if removes { Intent::Remove } else { Intent::Change };
        let mut in_the_way = InTheWay::default();
        loop {
            let other = self.db.locks.forbids(me, form.id, key, intent)?;
            if let Some(since) = in_the_way.since(other, &self.db.registry) {
                return Some(Self::holder(other, since, form, primary, key));
            }
        }
    }

    /// The wait for another transaction that holds a key. `since`: see [`InTheWay`].
    pub(crate) fn holder(id: TxnId, since: u32, form: &TableForm, index: &IndexForm, key: &[u8]) -> Wait {
        Wait::Holder { id, since, table: form.schema.name.clone(), key: index.describe(key) }
    }
}
