//! Finding the row that is to be changed or locked: by its key, or from what a statement has seen of it.
//!
//! A row is looked for at the snapshot. What is changed is its newest version, which may be another one: finished by another
//! transaction (a conflict, or at read committed what the change is made to), not finished (a wait), moved (followed), or
//! the transaction's own.

use std::borrow::Cow;

use thermocline_base::epoch::Guard;
use thermocline_base::ids::RowId;

use crate::catalog::table::{FormRef, IndexForm, TableForm};
use crate::cold::memo::{Memo, RecordName};
use crate::error::{Error, Result, SerializationCause};
use crate::hot::chunk::Found;
use crate::hot::version::{Begin, TxnId, Version};
use crate::mutation::{self, Rule};
use crate::ops::cold::{EndNow, PRESENT};
use crate::ops::read::Lookup;
use crate::ops::{Step, Wait, step};
use crate::options::Isolation;
use crate::row::KeyBuf;
use crate::session::Session;
use crate::txn::in_the_way::InTheWay;
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
    /// To be locked against changes of its unique keys: other changes are passed over.
    KeyShare,
}

/// Where a row stands that is to be changed.
pub(crate) enum Place {
    Hot(Target),
    Cold(ColdTarget),
}

/// What looking for a row to change or lock came to.
pub(crate) enum Sought {
    /// It stands there.
    At(Place),
    /// There is none, or none any more.
    Gone,
    /// The statement that is open has written it.
    ByStatement,
    /// Another transaction has changed it, and where it went is not known any more (`LostIsNotGone`).
    Lost,
}

impl Sought {
    /// Outside of statements there are no other answers.
    pub(crate) fn must_be_gone(&self) {
        assert!(
            matches!(self, Self::Gone),
            "only statements keep their snapshot and pass over their own writes"
        );
    }
}

/// How the row that is sought was named.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// The index of its key; for a handle, the primary one.
    pub(crate) index: &'a IndexForm,
    /// The key that it must have; none for a handle.
    pub(crate) key: Option<&'a [u8]>,
}

impl Wanted<'_> {
    /// Is a version of a row what was named?
    fn accepts(self, form: &TableForm, version: Version) -> bool {
        self.key.is_none_or(|key| self.index.matches(form, version, key))
    }

    /// The key for messages, of a row of which this version is known.
    fn described(&self, form: &TableForm, version: Version) -> Cow<'_, [u8]> {
        self.key.map_or_else(
            || {
                let mut key = KeyBuf::new();
                form.primary().key_of(form, version, &mut key);
                Cow::Owned(key.to_vec())
            },
            Cow::Borrowed,
        )
    }
}

/// The unique keys that a locker has seen.
pub(crate) enum Keys<'a> {
    /// Of a version; the versions above it count.
    Of(Version),
    /// Of a record's bytes; all versions of the row that it has become count.
    In(&'a [u8]),
}

/// Have all versions of a row, finished or not, from the newest one down to what was seen, the unique keys that it had? Any
/// of them may turn out to be the row.
pub(crate) fn keys_stay(form: &TableForm, newest: Option<Version>, seen: Keys<'_>) -> bool {
    if mutation::off(Rule::KeyShareComparesKeys) {
        return newest.is_some_and(|newest| !newest.is_tombstone());
    }
    let (mut key, mut other) = (KeyBuf::new(), KeyBuf::new());
    let mut next = newest;
    while let Some(version) = next {
        if let Keys::Of(seen) = seen
            && version.is_same_as(seen)
        {
            return true;
        }
        if version.is_tombstone() || version.is_bare() {
            return false;
        }
        for index in form.indexes.iter().filter(|index| index.is_unique()) {
            index.key_of(form, version, &mut key);
            match seen {
                Keys::Of(seen) => index.key_of(form, seen, &mut other),
                Keys::In(bytes) => index.key_of_row(form.row_in(bytes), form.suffix_in(bytes), &mut other),
            }
            if *key != *other {
                return false;
            }
        }
        next = version.older(&form.store.memory);
    }
    matches!(seen, Keys::In(_))
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
    ) -> Result<Step<Sought>> {
        let form = form_ref.get();
        let wanted = Wanted { index, key: Some(key) };
        let mut in_the_way = InTheWay::default();
        loop {
            let sought = match self.look_up(form, index, key, guard) {
                Lookup::Row(row, version) if self.is_newest(form, row, version, guard) => {
                    // Most rows: told at once, not handed up through what the others may come to.
                    self.note_wanted(form_ref, wanted);
                    self.note_read(form_ref, row, version);
                    return Ok(Step::Done(Sought::At(Place::Hot(Target { row, base: version }))));
                }
                Lookup::Row(row, version) => {
                    self.settle(form_ref, wanted, row, version, purpose, &mut in_the_way, guard)?
                }
                Lookup::Absent => {
                    let found = step!(self.look_up_cold(form, index, key, guard)?);
                    if found.is_none() || !index.is_unique() {
                        self.note_key(form_ref, index, key);
                    }
                    let Some(found) = found else { return Ok(Step::Done(Sought::Gone)) };
                    let record = found.record();
                    let target = ColdTarget {
                        name: found.name(),
                        key: record.key.into(),
                        bytes: record.bytes.to_vec(),
                        from: None,
                    };
                    self.follow_record(form_ref, wanted, target, purpose, &mut in_the_way, guard)?
                }
                Lookup::Undecided(id) => return Ok(Step::Wait(Wait::Decision(id))),
                Lookup::Paged(wait) => return Ok(Step::Wait(Wait::Page(wait))),
                Lookup::Changed => continue,
            };
            if let Some(sought) = step!(sought) {
                return Ok(Step::Done(sought));
            }
        }
    }

    /// Can this version be changed as it stands?
    #[inline]
    fn is_newest(&self, form: &TableForm, row: RowId, version: Version, guard: &Guard<'_>) -> bool {
        !version.is_image() && form.store.directory.newest(row, guard) == Some(version)
    }

    /// A version that is to be changed; a frozen row is thawed first. `None`: look again.
    fn made_ready(
        &self,
        form: &TableForm,
        row: RowId,
        version: Version,
        purpose: Purpose,
        guard: &Guard<'_>,
    ) -> Result<Option<Version>> {
        let may_thaw = version.is_image() && purpose == Purpose::Change;
        if !may_thaw || matches!(form.store.directory.look(row, guard), Found::Left(_)) {
            return Ok(Some(version));
        }
        Ok(form.store.thaw_image(version, false, guard)?)
    }

    /// From a version that the view sees to what can be changed. `None`: look the row up again.
    #[expect(clippy::too_many_arguments, reason = "a row, how it was named, and what for")]
    pub(crate) fn settle(
        &mut self,
        form_ref: FormRef,
        wanted: Wanted<'_>,
        row: RowId,
        seen: Version,
        purpose: Purpose,
        in_the_way: &mut InTheWay,
        guard: &Guard<'_>,
    ) -> Result<Step<Option<Sought>>> {
        let form = form_ref.get();
        let Some(base) = self.made_ready(form, row, seen, purpose, guard)? else {
            return Ok(Step::Done(None));
        };
        let Some(newest) = form.store.directory.newest(row, guard) else { return Ok(Step::Done(None)) };
        // A second look at the page of the same row would not be sure to find it.
        let newest = if newest.is_bare() && !newest.is_same_as(base) {
            match self.newest_of(form, row, guard) {
                Ok(Some(newest)) => newest,
                Ok(None) => return Ok(Step::Done(None)),
                Err(wait) => return Ok(Step::Wait(Wait::Page(wait))),
            }
        } else {
            newest
        };
        if newest.is_same_as(base) {
            if base.is_image() && purpose == Purpose::Change {
                // It was about to leave, and stays after all.
                return Ok(Step::Done(None));
            }
            self.note_wanted(form_ref, wanted);
            self.note_read(form_ref, row, base);
            return Ok(Step::Done(Some(Sought::At(Place::Hot(Target { row, base })))));
        }
        if mutation::off(Rule::FirstUpdaterWins)
            && matches!(newest.begin(), Begin::At(_))
            && newest.moved().is_none()
        {
            return Ok(Step::Done(Some(Sought::At(Place::Hot(Target { row, base: newest })))));
        }
        if purpose == Purpose::KeyShare && keys_stay(form, Some(newest), Keys::Of(base)) {
            return Ok(Step::Done(Some(Sought::At(Place::Hot(Target { row, base: newest })))));
        }
        match resolve(newest, &self.db.registry, PRESENT, self.id) {
            Resolved::Own if self.hides(newest) => Ok(Step::Done(Some(Sought::ByStatement))),
            // It became visible between the two looks, or was taken away.
            Resolved::Gone | Resolved::Own => Ok(Step::Done(None)),
            Resolved::At(begin) if begin <= self.snapshot => Ok(Step::Done(None)),
            Resolved::At(_)
                if let Some(moved) = newest.moved()
                    && (moved.begin <= self.snapshot || mutation::off(Rule::MarkKeepsBegin)) =>
            {
                // What the snapshot sees is what has moved: nothing about the row has changed.
                self.note_wanted(form_ref, wanted);
                let target = self.moved_target(form, row, moved.batch, base);
                self.follow_record(form_ref, wanted, target, purpose, in_the_way, guard)
            }
            Resolved::At(_) if self.looks_beside() => {
                self.beside(form_ref, wanted, row, newest, purpose, in_the_way, guard)
            }
            Resolved::At(_) => {
                if !self.may_renew_snapshot() {
                    let key = wanted.described(form, base);
                    return Err(self.conflict(
                        form,
                        wanted.index,
                        &key,
                        SerializationCause::ConcurrentUpdate,
                    ));
                }
                self.take_snapshot();
                Ok(Step::Done(None))
            }
            Resolved::Later(_) | Resolved::Undecided(_)
                if newest.moved().is_some() && mutation::off(Rule::MarksAreNotStolen) =>
            {
                if let Some(mut latched) = form.store.directory.latch(row, guard)
                    && latched.newest() == Some(newest)
                {
                    latched.set(Some(base));
                }
                Ok(Step::Done(None))
            }
            Resolved::Later(id) | Resolved::Undecided(id) => {
                let key = wanted.described(form, base);
                Ok(self.await_writer(form, wanted.index, &key, newest, id, in_the_way))
            }
        }
    }

    /// The record that a version became, or the version right below a moved mark.
    fn moved_target(&self, form: &TableForm, row: RowId, batch: u64, version: Version) -> ColdTarget {
        let mut key = KeyBuf::new();
        form.primary().key_of(form, version, &mut key);
        let name = RecordName::new(batch, &key);
        ColdTarget { name, key: (&*key).into(), bytes: version.row().to_vec(), from: Some(row) }
    }

    /// Waits for whoever has written `newest`. `None`: look again.
    fn await_writer(
        &self,
        form: &TableForm,
        index: &IndexForm,
        key: &[u8],
        newest: Version,
        id: TxnId,
        in_the_way: &mut InTheWay,
    ) -> Step<Option<Sought>> {
        if newest.moved().is_some() && mutation::on(Rule::MovesAreWaitedOut) {
            return Step::Wait(Wait::Decision(id));
        }
        let since = in_the_way.since(id, &self.db.registry);
        since.map_or(Step::Done(None), |since| Step::Wait(Self::holder(id, since, form, index, key)))
    }

    /// Does a change go to the newest version of its row, beside the snapshot that the statement keeps?
    pub(crate) fn looks_beside(&self) -> bool {
        self.isolation == Isolation::ReadCommitted && self.view.has_begun()
    }

    /// A row was changed by a transaction that has committed since the statement's snapshot: what is changed is its newest
    /// version, if that is still what was named.
    #[expect(clippy::too_many_arguments, reason = "a row, how it was named, and what for")]
    fn beside(
        &mut self,
        form_ref: FormRef,
        wanted: Wanted<'_>,
        row: RowId,
        newest: Version,
        purpose: Purpose,
        in_the_way: &mut InTheWay,
        guard: &Guard<'_>,
    ) -> Result<Step<Option<Sought>>> {
        let form = form_ref.get();
        if let Some(moved) = newest.moved() {
            // The version below the mark is the record's, unless no snapshot has kept it.
            let below = newest.older(&form.store.memory);
            let Some(below) = below.filter(|below| below.begin() == Begin::At(moved.begin)) else {
                // Something had kept it when the statement changed the row where it went.
                if self.has_ended_what_moved(form, row, guard) {
                    return Ok(Step::Done(Some(Sought::ByStatement)));
                }
                let lost = if mutation::off(Rule::LostIsNotGone) { Sought::Gone } else { Sought::Lost };
                return Ok(Step::Done(Some(lost)));
            };
            if !wanted.accepts(form, below) {
                return Ok(Step::Done(Some(Sought::Gone)));
            }
            let target = self.moved_target(form, row, moved.batch, below);
            return self.follow_record(form_ref, wanted, target, purpose, in_the_way, guard);
        }
        if newest.is_tombstone() || !wanted.accepts(form, newest) {
            return Ok(Step::Done(Some(Sought::Gone)));
        }
        let Some(base) = self.made_ready(form, row, newest, purpose, guard)? else {
            return Ok(Step::Done(None));
        };
        if base.is_image() && purpose == Purpose::Change {
            return Ok(Step::Done(None));
        }
        Ok(Step::Done(Some(Sought::At(Place::Hot(Target { row, base })))))
    }

    /// A row goes on in this slot of memory, whatever the snapshot sees there.
    pub(crate) fn go_on_at(
        &mut self,
        form_ref: FormRef,
        wanted: Wanted<'_>,
        row: RowId,
        purpose: Purpose,
        in_the_way: &mut InTheWay,
        guard: &Guard<'_>,
    ) -> Result<Step<Option<Sought>>> {
        let form = form_ref.get();
        let newest = match self.newest_of(form, row, guard) {
            Ok(newest) => newest,
            Err(wait) => return Ok(Step::Wait(Wait::Page(wait))),
        };
        let Some(newest) = newest else {
            // Its mark has gone; the statement may have changed it where it moved, before that.
            let is_own = self.has_ended_what_moved(form, row, guard);
            return Ok(Step::Done(Some(if is_own { Sought::ByStatement } else { Sought::Lost })));
        };
        match resolve(newest, &self.db.registry, PRESENT, self.id) {
            Resolved::Gone => Ok(Step::Done(None)),
            Resolved::Own if self.hides(newest) => Ok(Step::Done(Some(Sought::ByStatement))),
            Resolved::Own if newest.is_tombstone() => Ok(Step::Done(Some(Sought::Gone))),
            Resolved::Own => Ok(Step::Done(Some(Sought::At(Place::Hot(Target { row, base: newest }))))),
            Resolved::Later(id) | Resolved::Undecided(id) => {
                let mut known = newest;
                while known.is_tombstone() {
                    let Some(older) = known.older(&form.store.memory) else { break };
                    known = older;
                }
                let key = wanted.described(form, known);
                Ok(self.await_writer(form, wanted.index, &key, newest, id, in_the_way))
            }
            Resolved::At(_) => self.beside(form_ref, wanted, row, newest, purpose, in_the_way, guard),
        }
    }

    /// Remembers the key that a row was looked for by, for validation.
    fn note_wanted(&mut self, form: FormRef, wanted: Wanted<'_>) {
        if let Some(key) = wanted.key
            && !wanted.index.is_unique()
        {
            self.note_key(form, wanted.index, key);
        }
    }

    /// Makes sure that a record that the snapshot sees can be changed: nobody else has ended it, or is about to. A
    /// promoted one is followed to its row in memory. `None`: look the row up again.
    pub(crate) fn follow_record(
        &mut self,
        form_ref: FormRef,
        wanted: Wanted<'_>,
        target: ColdTarget,
        purpose: Purpose,
        in_the_way: &mut InTheWay,
        guard: &Guard<'_>,
    ) -> Result<Step<Option<Sought>>> {
        let form = form_ref.get();
        let db = self.db();
        let Some(memo) = db.cold.memo() else { unreachable!("where a record is, there is a memo") };
        let index = wanted.index;
        let holder = |id, in_the_way: &mut InTheWay| {
            let since = in_the_way.since(id, &db.registry);
            let key = wanted.key.unwrap_or(&target.key);
            since.map_or(Step::Done(None), |since| Step::Wait(Self::holder(id, since, form, index, key)))
        };
        let heir = (purpose == Purpose::KeyShare).then(|| self.any_heir(memo, target.name, guard)).flatten();
        if let Some(row) = heir {
            let newest = match self.newest_of(form, row, guard) {
                Ok(newest) => newest,
                Err(wait) => return Ok(Step::Wait(Wait::Page(wait))),
            };
            if let Some(base) = newest
                && keys_stay(form, newest, Keys::In(&target.bytes))
            {
                return Ok(Step::Done(Some(Sought::At(Place::Hot(Target { row, base })))));
            }
        }
        match crate::ops::cold::end_now(db, memo, target.name, self.id, guard) {
            EndNow::Open => {
                self.note_cold_read(form_ref, target.name);
                return Ok(Step::Done(Some(Sought::At(Place::Cold(target)))));
            }
            EndNow::Own if self.view.is_open() => return Ok(Step::Done(Some(Sought::ByStatement))),
            EndNow::Own => return Ok(Step::Done(None)),
            EndNow::Unfinished(id, Some(_)) => return Ok(Step::Wait(Wait::Decision(id))),
            EndNow::Unfinished(id, None) => return Ok(holder(id, in_the_way)),
            // The memo says meanwhile that the snapshot does not see it.
            EndNow::At(end, _) if end <= self.snapshot => return Ok(Step::Done(None)),
            EndNow::At(end, Some(row)) => {
                let newest = match self.newest_of(form, row, guard) {
                    Ok(newest) => newest,
                    Err(wait) => return Ok(Step::Wait(Wait::Page(wait))),
                };
                match newest.map(|newest| (newest, resolve(newest, &db.registry, PRESENT, self.id))) {
                    Some((base, Resolved::At(begin))) if begin == end => {
                        self.note_cold_read(form_ref, target.name);
                        return Ok(Step::Done(Some(Sought::At(Place::Hot(Target { row, base })))));
                    }
                    Some((_, Resolved::Later(id) | Resolved::Undecided(id))) => {
                        return Ok(holder(id, in_the_way));
                    }
                    Some((newest, Resolved::Own)) if self.hides(newest) => {
                        return Ok(Step::Done(Some(Sought::ByStatement)));
                    }
                    Some((_, Resolved::Gone | Resolved::Own)) => return Ok(Step::Done(None)),
                    Some((_, Resolved::At(_))) | None => {}
                }
            }
            EndNow::At(_, None) => {}
        }
        if self.looks_beside() {
            return match self.heir_now(memo, target.name, guard) {
                Some(Some(row)) => self.go_on_at(form_ref, wanted, row, purpose, in_the_way, guard),
                Some(None) => Ok(Step::Done(Some(Sought::Gone))),
                None if mutation::off(Rule::LostIsNotGone) => Ok(Step::Done(Some(Sought::Gone))),
                None => Ok(Step::Done(Some(Sought::Lost))),
            };
        }
        if !self.may_renew_snapshot() {
            let key = wanted.key.unwrap_or(&target.key);
            return Err(self.conflict(form, index, key, SerializationCause::ConcurrentUpdate));
        }
        self.take_snapshot();
        Ok(Step::Done(None))
    }

    /// Where a row goes on in memory whose record somebody has ended, or is about to.
    fn any_heir(&self, memo: &Memo, name: RecordName, guard: &Guard<'_>) -> Option<RowId> {
        let mut heir = None;
        memo.each_end(name, guard, &mut |newest| {
            heir = memo.successor(newest).or(heir);
            std::ops::ControlFlow::Continue(())
        });
        heir
    }

    /// Where the row of a record that has ended goes on in memory (`None`: it was deleted), if a notice says so.
    fn heir_now(&self, memo: &Memo, name: RecordName, guard: &Guard<'_>) -> Option<Option<RowId>> {
        let mut heir = None;
        memo.each_end(name, guard, &mut |newest| {
            let committed = matches!(resolve(newest, &self.db.registry, PRESENT, self.id), Resolved::At(_));
            if committed && !newest.is_tombstone() {
                heir = Some(memo.successor(newest));
                return std::ops::ControlFlow::Break(false);
            }
            std::ops::ControlFlow::Continue(())
        });
        heir
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
