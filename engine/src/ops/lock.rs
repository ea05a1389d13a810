//! Locking a row without changing it: `for update`, `for share`, `for key share`.

use std::sync::Arc;

use thermocline_base::ids::{IndexId, Timestamp};
use thermocline_base::sync::Ordering;

use crate::catalog::table::TableEntry;
use crate::error::{Error, Result};
use crate::ops::write::holder;
use crate::ops::{Step, step};
use crate::row::KeyBuf;
use crate::txn::locks::{LockKey, LockMode};
use crate::txn::session::Session;
use crate::txn::visibility::{Resolved, resolve};

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
        let index = Self::index_of(form, index)?;
        let db = self.db();
        let guard = db.epochs.pin();
        let Some(target) = step!(self.find_target(form_ref, index, key, &guard)?) else {
            return Ok(Step::Done(false));
        };
        let me = self.identify();
        let primary = form.primary();
        let mut primary_key = KeyBuf::new();
        primary.key_of(form, target.base, &mut primary_key);
        let lock = LockKey { table: form.id, key: (&*primary_key).into() };
        form.counters.locks.fetch_add(1, Ordering::SeqCst);
        let fresh = match self.db.locks.acquire(me, &lock, mode) {
            Ok(fresh) => fresh,
            Err(other) => {
                form.counters.locks.fetch_sub(1, Ordering::SeqCst);
                return Ok(Step::Wait(holder(other, form, primary, &primary_key)));
            }
        };
        if fresh {
            self.locks.push((lock.clone(), form_ref));
        } else {
            form.counters.locks.fetch_sub(1, Ordering::SeqCst);
        }
        // The lock is entered; now look for a writer (see `txn/locks.rs`).
        thermocline_base::sync::fence(Ordering::SeqCst);
        let newest = form.store.directory.newest(target.row, &guard);
        if newest == Some(target.base) {
            return Ok(Step::Done(true));
        }
        // Somebody has written between the two looks, or the version was relocated: give the lock back and see.
        if fresh {
            self.locks.pop();
            self.db.locks.release(me, &lock);
            form.counters.locks.fetch_sub(1, Ordering::SeqCst);
        }
        if let Some(newest) = newest
            && let Resolved::Later(id) | Resolved::Undecided(id) =
                resolve(newest, &self.db.registry, Timestamp(u64::MAX >> 2), self.id)
        {
            return Ok(Step::Wait(holder(id, form, primary, &primary_key)));
        }
        drop(guard);
        self.try_lock(entry, index.id, key, mode)
    }
}
