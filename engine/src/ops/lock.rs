//! Locking a row without changing it: `for update`, `for share`, `for key share`.

use std::sync::Arc;

use thermocline_base::ids::IndexId;
use thermocline_base::sync::Ordering;

use crate::catalog::table::TableEntry;
use crate::error::{Error, Result};
use crate::ops::cold::EndNow;
use crate::ops::target::{Place, Purpose, Sought};
use crate::ops::{Step, step};
use crate::row::KeyBuf;
use crate::txn::in_the_way::InTheWay;
use crate::txn::locks::{Acquired, LockKey, LockMode};
use crate::txn::session::Session;

impl Session {
    /// Locks the row with this key until the transaction ends. `false`: there is no such row.
    pub(crate) fn try_lock(
        &mut self,
        entry: &Arc<TableEntry>,
        index: IndexId,
        key: &[u8],
        mode: LockMode,
    ) -> Result<Step<bool>> {
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        let form_ref = step!(self.touch(entry)?);
        self.begin_statement();
        let form = form_ref.get();
        let index = Self::index_for(form, index, key)?;
        let db = self.db();
        let guard = db.epochs.pin();
        let reads = self.reads.len();
        let cold_reads = self.cold_reads.len();
        let sought = step!(self.find_target(form_ref, index, key, Purpose::Lock, &guard)?);
        let Sought::At(place) = sought else {
            sought.must_be_gone();
            return Ok(Step::Done(false));
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
                let newest = form.store.directory.newest(target.row, &guard);
                newest.is_some_and(|newest| newest.is_same_as(target.base))
            }
            Place::Cold(target) => {
                let memo = db.memo.get().expect("where a record is, there is a memo");
                db.end_now(memo, target.name, Some(me), &guard) == EndNow::Open
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
            Acquired::Now { .. } | Acquired::Already => Ok(Step::Done(true)),
            Acquired::Held(other) => Ok(Step::Wait(Self::holder(other, since, form, primary, &primary_key))),
            Acquired::Changed => {
                // Somebody has written between the two looks, or the version was relocated.
                drop(guard);
                self.try_lock(entry, index.id, key, mode)
            }
        }
    }
}
