//! Unique keys: the check of all other rows, in memory and in the cold store, once a writer has claimed a key (see
//! [`crate::ops::write`] for the order of the two).

use std::ops::ControlFlow;
use std::sync::Arc;

use thermocline_base::epoch::Guard;
use thermocline_base::ids::{IndexId, RowId, Timestamp};
use thermocline_base::sync::Ordering;

use crate::catalog::table::{FormRef, IndexForm, Structure, TableEntry, TableForm};
use crate::cold::memo::RecordName;
use crate::error::Result;
use crate::hot::version::{TxnId, Version};
use crate::index::hash_of;
use crate::mutation::{self, Rule};
use crate::ops::cold::{ColdClaim, PRESENT};
use crate::ops::handle::RowHandle;
use crate::ops::{Step, Wait, step};
use crate::row::ColumnSet;
use crate::session::Session;
use crate::txn::in_the_way::InTheWay;
use crate::txn::visibility::{Resolved, resolve};

/// What the check of a unique key came to.
pub(crate) enum Claim {
    Held,
    /// By this version of a row.
    Taken(RowId, Version),
    /// By a row that an unfinished transaction changes, but not its key: for a look.
    Kept(RowId),
    /// By a row in the cold store.
    TakenCold(RecordName, Box<[u8]>),
    /// By a transaction that had undone something so often before the claim was seen.
    Contested(TxnId, u32),
    /// By a row that is being moved this moment.
    Moving(TxnId),
    /// It takes a look into the cold store to know, or a page.
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
    /// It wants to know of the key only, not to have it.
    pub(crate) looks: bool,
}

impl Session {
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
            let claim = self.check_claim_to_stay(form, index, &key, claimant, guard);
            match claim {
                Claim::Held => {}
                Claim::Kept(_) => unreachable!("a writer waits for who changes the row"),
                Claim::Moving(id) => {
                    outcome = Ok(Step::Wait(Wait::Decision(id)));
                    break;
                }
                Claim::Waits(wait) => {
                    outcome = Ok(Step::Wait(wait));
                    break;
                }
                Claim::Taken(..) | Claim::TakenCold(..) => {
                    self.refused_by = Some(self.note_refusal(form_ref, &claim));
                    outcome = Err(index.refused(form, &key));
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

    /// Looks, at present, for any row with this key, whatever the snapshot: for referential checks. A row that is found is one
    /// that was read; a look that finds none has read nothing.
    ///
    /// A change of an unfinished transaction counts by what may become of the key:
    ///
    /// | committed | unfinished | answer |
    /// |---|---|---|
    /// | has the key | has it, too | there; it was not read, since the change does not concern a lock of its key |
    /// | has the key | deleted, or has another key | waits |
    /// | has not | has the key | not there |
    ///
    /// A record of the cold store that is being changed is waited for.
    pub(crate) fn try_look_at_present(
        &mut self,
        entry: &Arc<TableEntry>,
        index: IndexId,
        key: &[u8],
    ) -> Result<Step<Option<RowHandle>>> {
        let form_ref = step!(self.touch(entry)?);
        self.begin_statement();
        let form = form_ref.get();
        let index = Self::index_for(form, index, key)?;
        let guard = self.db().epochs.pin();
        let nobody = Claimant { row: &[], suffix: &[], id: None, record: None, looks: true };
        Ok(match self.check_claim_to_stay(form, index, key, nobody, &guard) {
            Claim::Held => Step::Done(None),
            Claim::Kept(row) => Step::Done(Some(self.refusing_handle(form, row))),
            Claim::Moving(id) => Step::Wait(Wait::Decision(id)),
            Claim::Waits(wait) => Step::Wait(wait),
            Claim::Contested(id, since) => Step::Wait(Self::holder(id, since, form, index, key)),
            taken @ (Claim::Taken(..) | Claim::TakenCold(..)) => {
                Step::Done(Some(self.note_refusal(form_ref, &taken)))
            }
        })
    }

    /// Notes that a row has refused a key, as one that was read.
    fn note_refusal(&mut self, form_ref: FormRef, claim: &Claim) -> RowHandle {
        let form = form_ref.get();
        let is_read = mutation::on(Rule::RefusalIsRead);
        match claim {
            Claim::Taken(row, version) => {
                if is_read {
                    self.note_read(form_ref, *row, *version);
                }
                self.refusing_handle(form, *row)
            }
            Claim::TakenCold(name, primary) => {
                if is_read {
                    self.note_cold_read(form_ref, *name);
                }
                self.refusing_record(form, *name, primary)
            }
            _ => unreachable!("the key is taken"),
        }
    }

    /// Has any other row this key? One that has stays where it can be found again.
    fn check_claim_to_stay(
        &mut self,
        form: &TableForm,
        index: &IndexForm,
        key: &[u8],
        claimant: Claimant<'_>,
        guard: &Guard<'_>,
    ) -> Claim {
        let claim = self.check_claim(form, index, key, claimant, guard);
        match claim {
            Claim::Taken(_, version) if self.keeps_in_memory(version) => {
                self.check_claim(form, index, key, claimant, guard)
            }
            claim => claim,
        }
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
                match self.claim_on(form, index, key, row, claimant.looks, guard) {
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
                Step::Done(ColdClaim::Taken(name, primary)) => Claim::TakenCold(name, primary),
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
    pub(crate) fn claim_of(
        &self,
        form: &TableForm,
        index: &IndexForm,
        key: &[u8],
        row: RowId,
        guard: &Guard<'_>,
    ) -> Claim {
        self.claim_on(form, index, key, row, false, guard)
    }

    /// The same; for a look, see [`Session::try_look_at_present`].
    fn claim_on(
        &self,
        form: &TableForm,
        index: &IndexForm,
        key: &[u8],
        row: RowId,
        looks: bool,
        guard: &Guard<'_>,
    ) -> Claim {
        let now = PRESENT;
        let mut in_the_way = InTheWay::default();
        'again: loop {
            let mut next = match self.newest_of(form, row, guard) {
                Ok(newest) => newest,
                Err(wait) => return Claim::Waits(Wait::Page(wait)),
            };
            let (mut contested, mut changes) = (None, false);
            let claim = loop {
                let Some(version) = next else { break Claim::Held };
                let has_key = !version.is_tombstone() && index.matches(form, version, key);
                let begin = resolve(version, &self.db.registry, now, self.id);
                match begin {
                    Resolved::Gone => continue 'again,
                    Resolved::Own if has_key => break Claim::Taken(row, version),
                    Resolved::Own => break Claim::Held,
                    Resolved::At(_) => {
                        break match contested {
                            // It may come back, or the newer version may take the key.
                            Some(id) if has_key => Claim::Contested(id, 0),
                            None if has_key && changes => Claim::Kept(row),
                            None if has_key => Claim::Taken(row, version),
                            _ => Claim::Held,
                        };
                    }
                    Resolved::Later(id) | Resolved::Undecided(id) => {
                        if version.moved().is_some() || version.is_promoted() && has_key {
                            break Claim::Moving(id);
                        }
                        if has_key && looks && matches!(begin, Resolved::Later(_)) {
                            changes = true;
                            next = version.older(&form.store.memory);
                            continue;
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
}
