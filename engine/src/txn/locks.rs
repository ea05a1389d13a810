//! Row locks: `for update`, `for share`, `for key share`.
//!
//! A lock belongs to (table, key) wherever the row is. Locks are volatile and held until the transaction ends (or
//! rolls back to a savepoint before them). Writers do not take locks: an uncommitted version is one. So the two sides
//! check each other crosswise:
//!
//! - a locker enters its lock, then looks whether the row's newest version is being written;
//! - a writer installs its version, then looks whether somebody else holds a lock that forbids it, and takes the
//!   version back if so.
//!
//! Each does its own part before it looks at the other's, with full fences between (the shard's mutex, the slot's
//! compare-and-swap), so at least one sees the other. A table without locks costs its writers one load of a line that
//! nobody writes.
//!
//! | held ↓ wanted →    | key share | share | update, delete, key change | update of other columns |
//! |---|---|---|---|---|
//! | key share          | yes | yes | no | yes |
//! | share              | yes | yes | no | no |
//! | update             | no  | no  | no | no |

use std::collections::HashMap;

use thermocline_base::ids::TableId;
use thermocline_base::sync::{CachePadded, Mutex};

use crate::hot::version::TxnId;

/// How a row is locked, or what a writer wants of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LockMode {
    /// The key stays: no delete, no change of the key (`for key share`; what a foreign key needs).
    KeyShare,
    /// The row stays as it is (`for share`).
    Share,
    /// The row is about to be changed or deleted (`for update`).
    Update,
}

/// What a writer is about to do with a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Intent {
    /// Change columns outside of the primary key.
    Change,
    /// Delete it or change its key.
    Remove,
}

impl LockMode {
    fn admits(self, other: Self) -> bool {
        self != Self::Update && other != Self::Update
    }

    fn admits_writer(self, intent: Intent) -> bool {
        self == Self::KeyShare && intent == Intent::Change
    }
}

/// What a lock is on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct LockKey {
    pub(crate) table: TableId,
    pub(crate) key: Box<[u8]>,
}

const SHARDS: usize = 64;

type Shard = HashMap<LockKey, Vec<(TxnId, LockMode)>>;

/// All locks of a database.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    shards: Box<[CachePadded<Mutex<Shard>>]>,
}

impl Locks {
    /// No locks.
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| CachePadded::default()).collect() }
    }

    fn shard(&self, key: &[u8]) -> &Mutex<Shard> {
        &self.shards[crate::index::hash_of(key) as usize % SHARDS]
    }

    /// Takes a lock, or tells who is in the way. `Ok(true)`: the transaction did not hold it before.
    pub(crate) fn acquire(&self, me: TxnId, key: &LockKey, mode: LockMode) -> Result<bool, TxnId> {
        let mut shard = self.shard(&key.key).lock();
        let holders = shard.entry(key.clone()).or_default();
        if let Some(&(other, _)) = holders.iter().find(|&&(holder, held)| holder != me && !held.admits(mode))
        {
            return Err(other);
        }
        if let Some(mine) = holders.iter_mut().find(|(holder, _)| *holder == me) {
            mine.1 = mine.1.max(mode);
            return Ok(false);
        }
        holders.push((me, mode));
        Ok(true)
    }

    /// Gives a lock back.
    pub(crate) fn release(&self, me: TxnId, key: &LockKey) {
        let mut shard = self.shard(&key.key).lock();
        if let Some(holders) = shard.get_mut(key) {
            holders.retain(|(holder, _)| *holder != me);
            if holders.is_empty() {
                shard.remove(key);
            }
        }
    }

    /// Who forbids `me` this write?
    pub(crate) fn forbids(&self, me: TxnId, table: TableId, key: &[u8], intent: Intent) -> Option<TxnId> {
        let key = LockKey { table, key: key.into() };
        let shard = self.shard(&key.key).lock();
        let holders = shard.get(&key)?;
        holders
            .iter()
            .find(|&&(holder, held)| holder != me && !held.admits_writer(intent))
            .map(|&(holder, _)| holder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_modes_holds() {
        let key = LockKey { table: TableId(1), key: Box::from(*b"k") };
        let (a, b) = (TxnId(1), TxnId(2));
        let allowed = |held, wanted| {
            let locks = Locks::new();
            locks.acquire(a, &key, held).expect("the first lock");
            locks.acquire(b, &key, wanted).is_ok()
        };
        let writes = |held, intent| {
            let locks = Locks::new();
            locks.acquire(a, &key, held).expect("the first lock");
            locks.forbids(b, key.table, &key.key, intent).is_none()
        };
        use LockMode::{KeyShare, Share, Update};
        assert!(allowed(KeyShare, KeyShare) && allowed(KeyShare, Share) && allowed(Share, Share));
        assert!(!allowed(KeyShare, Update) && !allowed(Share, Update) && !allowed(Update, KeyShare));
        assert!(writes(KeyShare, Intent::Change) && !writes(KeyShare, Intent::Remove));
        assert!(!writes(Share, Intent::Change) && !writes(Update, Intent::Change));
    }

    #[test]
    fn own_locks_are_no_obstacle_and_go_when_released() {
        let locks = Locks::new();
        let key = LockKey { table: TableId(1), key: Box::from(*b"k") };
        assert_eq!(locks.acquire(TxnId(1), &key, LockMode::Share), Ok(true));
        assert_eq!(locks.acquire(TxnId(1), &key, LockMode::Update), Ok(false));
        assert_eq!(locks.acquire(TxnId(2), &key, LockMode::KeyShare), Err(TxnId(1)));
        locks.release(TxnId(1), &key);
        assert_eq!(locks.acquire(TxnId(2), &key, LockMode::KeyShare), Ok(true));
    }
}
