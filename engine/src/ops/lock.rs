//! Locking a row without changing it: `for update`, `for no key update`, `for share`, `for key share`.

use std::sync::Arc;

use thermocline_base::sync::Ordering;

use crate::catalog::table::TableEntry;
use crate::error::{Error, Result};
use crate::ops::change::Named;
use crate::ops::cold::EndNow;
use crate::ops::handle::{SeenPlace, SeenRow};
use crate::ops::target::{Keys, Place, Purpose, Sought, keys_stay};
use crate::ops::{Step, step};
use crate::row::KeyBuf;
use crate::session::Session;
use crate::txn::in_the_way::InTheWay;
use crate::txn::locks::{Acquired, LockKey, LockMode};

/// What asking for the lock of a row came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the row may not be locked"]
pub enum Locked<R> {
    /// It is locked until the transaction ends, or goes back to a savepoint before this.
    Locked(R),
    /// There is no such row, or not any more.
    Gone,
    /// The statement has written the row itself.
    ByStatement,
    /// Another transaction has locked or changed it, and the caller skips such rows.
    Skipped,
    /// Its trail is lost: see [`Changed::Lost`](crate::Changed::Lost).
    Lost,
}

impl Session {
    /// Locks the row that is named until the transaction ends, and shows its newest version, under the lock.
    pub(crate) fn try_lock<R, F: FnOnce(SeenRow<'_>) -> R>(
        &mut self,
        entry: &Arc<TableEntry>,
        named: Named<'_>,
        mode: LockMode,
        see: &mut Option<F>,
    ) -> Result<Step<Locked<R>>> {
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        let form_ref = step!(self.touch(entry)?);
        self.begin_statement();
        let form = form_ref.get();
        let db = self.db();
        let guard = db.epochs.pin();
        let purpose = if mode == LockMode::KeyShare { Purpose::KeyShare } else { Purpose::Lock };
        loop {
            let (reads, cold_reads) = (self.reads.len(), self.cold_reads.len());
            let sought = step!(self.find_named(form_ref, named, purpose, &guard)?);
            let place = match sought {
                Sought::At(place) => place,
                Sought::Gone => {
                    form.must_be_whole()?;
                    return Ok(Step::Done(Locked::Gone));
                }
                Sought::ByStatement => return Ok(Step::Done(Locked::ByStatement)),
                Sought::Lost => return Ok(Step::Done(Locked::Lost)),
            };
            // What the lock forbids cannot change; what it admits (other columns, under key share) is no concern of who
            // holds it. So the row is not validated as one that was read.
            self.reads.truncate(reads);
            self.cold_reads.truncate(cold_reads);
            let me = self.identify();
            let primary = form.primary();
            let mut primary_key = KeyBuf::new();
            match &place {
                Place::Hot(target) => primary.key_of(form, target.base, &mut primary_key),
                Place::Cold(target) => primary_key.push(&target.key),
            }
            let lock = LockKey { table: form.id, key: (&*primary_key).into() };
            form.counters.locks.fetch_add(1, Ordering::SeqCst);
            let unchanged = || match &place {
                Place::Hot(target) => {
                    // No page is looked at under the lock's mutex: a version that has gone over since is looked for again.
                    let newest = form.store.directory.newest(target.row, &guard);
                    newest.is_some_and(|newest| newest.is_same_as(target.base))
                        || purpose == Purpose::KeyShare && keys_stay(form, newest, Keys::Of(target.base))
                }
                Place::Cold(target) => {
                    let memo = db.cold.memo().expect("where a record is, there is a memo");
                    crate::ops::cold::end_now(db, memo, target.name, Some(me), &guard) == EndNow::Open
                }
            };
            let mut in_the_way = InTheWay::default();
            let mut since = 0;
            let acquired = loop {
                let acquired = self.db.locks.acquire(me, &lock, mode, unchanged);
                let Acquired::Held(other) = acquired else { break acquired };
                if let Some(known) = in_the_way.since(other, &db.registry) {
                    since = known;
                    break acquired;
                }
            };
            if let Acquired::Now { before } = acquired {
                self.locks.push((lock, form_ref, before));
            }
            if !matches!(acquired, Acquired::Now { before: None }) {
                form.counters.locks.fetch_sub(1, Ordering::SeqCst);
            }
            match acquired {
                Acquired::Now { .. } | Acquired::Already => {
                    let (bytes, seen) = match &place {
                        Place::Hot(target) => (form.row(target.base), SeenPlace::Memory(target.row)),
                        Place::Cold(target) => {
                            (form.row_in(&target.bytes), SeenPlace::Cold(target.name, &target.key))
                        }
                    };
                    let see = see.take().expect("a row is locked once");
                    return Ok(Step::Done(Locked::Locked(see(self.seen_row(form, bytes, seen)))));
                }
                Acquired::Held(other) => {
                    return Ok(Step::Wait(Self::holder(other, since, form, primary, &primary_key)));
                }
                // Somebody has written between the two looks, or the version was relocated.
                Acquired::Changed => {}
            }
        }
    }
}
