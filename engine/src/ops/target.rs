//! Finding the row that is to be changed or locked: by its key, or from what a statement has seen of it.
//!
//! A row is looked for at the snapshot. What is changed is its newest version, which may be another one: finished by another
//! transaction (a conflict, or at read committed what the change is made to), not finished (a wait), moved (followed), or
//! the transaction's own.

use thermocline_base::epoch::Guard;
use thermocline_base::ids::RowId;

use crate::catalog::table::{FormRef, IndexForm, TableForm};
use crate::cold::memo::RecordName;
use crate::error::{Error, Result, SerializationCause};
use crate::hot::chunk::Found;
use crate::hot::version::{Begin, TxnId, Version};
use crate::mutation::{self, Rule};
use crate::ops::cold::{EndNow, PRESENT};
use crate::ops::read::Lookup;
use crate::ops::{Step, Wait, step};
use crate::row::KeyBuf;
use crate::txn::in_the_way::InTheWay;
use crate::txn::session::Session;
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

impl Session {
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

    /// The wait for another transaction that holds a key. `since`: see [`InTheWay`].
    pub(crate) fn holder(id: TxnId, since: u32, form: &TableForm, index: &IndexForm, key: &[u8]) -> Wait {
        Wait::Holder { id, since, table: form.schema.name.clone(), key: index.describe(key) }
    }
}
