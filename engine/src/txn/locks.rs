//! Row locks: `for update`, `for no key update`, `for share`, `for key share`.
//!
//! A lock belongs to (table, key) wherever the row is. Locks are volatile and held until the transaction ends (or
//! rolls back to a savepoint before them). Writers do not take locks: an uncommitted version is one. So the two sides
//! check each other crosswise:
//!
//! - a locker counts its lock, then, under the shard's mutex, enters it and looks whether the row's newest version is
//!   being written; if so it takes the lock out again before it lets the mutex go;
//! - a writer installs its version, then looks whether the table has locks, and if so, under the mutex, whether
//!   somebody else holds one that forbids it, and takes the version back then.
//!
//! Each does its own part before it looks at the other's, with full fences between, so at least one sees the other. And
//! only one gives way: a lock that was given up is never seen by the writer, since both look under the mutex. (If both
//! gave way, each would wait for the other.) A table without locks costs its writers one load of a line that nobody
//! writes.
//!
//! A key share may stand over a version that is being written, if all its unique keys are those that the locker has seen. So
//! its writer, who removes the row or changes such a key next, looks for locks after that, too.
//!
//! | held ↓ wanted →    | key share | share | no key update | update | delete, change of a unique key | update of other columns |
//! |---|---|---|---|---|---|---|
//! | key share          | yes | yes | yes | no | no | yes |
//! | share              | yes | yes | no | no | no | no |
//! | no key update      | yes | no | no | no | no | no |
//! | update             | no  | no  | no | no | no | no |

use std::collections::HashMap;

use thermocline_base::ids::TableId;
use thermocline_base::sync::{CachePadded, Mutex, Ordering};

use crate::hot::version::TxnId;
use crate::mutation::{self, Rule};

/// How a row is locked, or what a writer wants of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LockMode {
    /// The unique keys stay: no delete, no change of one (`for key share`; what a foreign key needs). It neither waits for
    /// changes of other columns nor fails on them.
    KeyShare,
    /// The row stays as it is (`for share`).
    Share,
    /// The row is about to be changed in columns of no unique key (`for no key update`).
    NoKeyUpdate,
    /// The row is about to be changed or deleted (`for update`).
    Update,
}

/// What a writer is about to do with a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Intent {
    /// Change columns outside of all unique keys.
    Change,
    /// Delete it or change such a key.
    Remove,
}

impl LockMode {
    fn admits(self, other: Self) -> bool {
        match (self, other) {
            (Self::Update, _) | (_, Self::Update) => false,
            (Self::KeyShare, _) | (_, Self::KeyShare) => true,
            (Self::NoKeyUpdate, _) | (_, Self::NoKeyUpdate) => false,
            (Self::Share, Self::Share) => true,
        }
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

/// What taking a lock came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Acquired {
    /// The transaction holds it now, and held it in this weaker mode before, or not at all.
    Now { before: Option<LockMode> },
    /// The transaction held it before, as strong.
    Already,
    /// Another transaction is in the way.
    Held(TxnId),
    /// The row has changed.
    Changed,
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

    /// Is the row locked by anybody?
    pub(crate) fn is_locked(&self, table: TableId, key: &[u8]) -> bool {
        let key = LockKey { table, key: key.into() };
        self.shard(&key.key).lock().contains_key(&key)
    }

    /// Takes a lock, or makes one that is held stronger, if `unchanged` says so of the row once the lock is entered.
    pub(crate) fn acquire(
        &self,
        me: TxnId,
        key: &LockKey,
        mode: LockMode,
        unchanged: impl FnOnce() -> bool,
    ) -> Acquired {
        let mut unchanged = Some(unchanged);
        let early = mutation::off(Rule::LockBeforeLook).then(|| unchanged.take().is_some_and(|look| look()));
        let mut shard = self.shard(&key.key).lock();
        let holders = shard.entry(key.clone()).or_default();
        if let Some(&(other, _)) = holders.iter().find(|&&(holder, held)| holder != me && !held.admits(mode))
        {
            return Acquired::Held(other);
        }
        let mine = holders.iter_mut().find(|(holder, _)| *holder == me);
        let before = mine.as_ref().map(|mine| mine.1);
        match mine {
            Some(mine) => mine.1 = mine.1.max(mode),
            None => holders.push((me, mode)),
        }
        // The lock is entered; now look for a writer.
        thermocline_base::sync::fence(Ordering::SeqCst);
        if !early.unwrap_or_else(|| unchanged.is_some_and(|look| look())) {
            Self::set_back(&mut shard, me, key, before);
            return Acquired::Changed;
        }
        match before {
            Some(before) if before >= mode => Acquired::Already,
            before => Acquired::Now { before },
        }
    }

    fn set_back(shard: &mut Shard, me: TxnId, key: &LockKey, before: Option<LockMode>) {
        let Some(holders) = shard.get_mut(key) else { return };
        match before {
            Some(before) => {
                if let Some(mine) = holders.iter_mut().find(|(holder, _)| *holder == me) {
                    mine.1 = before;
                }
            }
            None => holders.retain(|(holder, _)| *holder != me),
        }
        if holders.is_empty() {
            shard.remove(key);
        }
    }

    /// Gives a lock back, or the strength that it had gained over `before`.
    pub(crate) fn release(&self, me: TxnId, key: &LockKey, before: Option<LockMode>) {
        Self::set_back(&mut self.shard(&key.key).lock(), me, key, before);
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
            assert_eq!(locks.acquire(a, &key, held, || true), Acquired::Now { before: None });
            locks.acquire(b, &key, wanted, || true) == Acquired::Now { before: None }
        };
        let writes = |held, intent| {
            let locks = Locks::new();
            assert_eq!(locks.acquire(a, &key, held, || true), Acquired::Now { before: None });
            locks.forbids(b, key.table, &key.key, intent).is_none()
        };
        use LockMode::{KeyShare, NoKeyUpdate, Share, Update};
        assert!(allowed(KeyShare, NoKeyUpdate) && allowed(NoKeyUpdate, KeyShare));
        assert!(!allowed(NoKeyUpdate, Share) && !allowed(Share, NoKeyUpdate));
        assert!(!allowed(NoKeyUpdate, NoKeyUpdate) && !allowed(NoKeyUpdate, Update));
        assert!(!writes(NoKeyUpdate, Intent::Change) && !writes(NoKeyUpdate, Intent::Remove));
        assert!(allowed(KeyShare, KeyShare) && allowed(KeyShare, Share) && allowed(Share, Share));
        assert!(!allowed(KeyShare, Update) && !allowed(Share, Update) && !allowed(Update, KeyShare));
        assert!(writes(KeyShare, Intent::Change) && !writes(KeyShare, Intent::Remove));
        assert!(!writes(Share, Intent::Change) && !writes(Update, Intent::Change));
    }

    #[test]
    fn own_locks_are_no_obstacle_and_go_when_released() {
        let locks = Locks::new();
        let key = LockKey { table: TableId(1), key: Box::from(*b"k") };
        let (one, two) = (TxnId(1), TxnId(2));
        let acquire = |id, mode| locks.acquire(id, &key, mode, || true);
        assert_eq!(acquire(one, LockMode::Share), Acquired::Now { before: None });
        assert_eq!(acquire(one, LockMode::KeyShare), Acquired::Already);
        assert_eq!(acquire(one, LockMode::Update), Acquired::Now { before: Some(LockMode::Share) });
        assert_eq!(acquire(two, LockMode::KeyShare), Acquired::Held(one));
        locks.release(one, &key, Some(LockMode::Share));
        assert_eq!(acquire(two, LockMode::KeyShare), Acquired::Now { before: None });
        assert_eq!(acquire(two, LockMode::Update), Acquired::Held(one));
        locks.release(one, &key, None);
        assert_eq!(locks.acquire(two, &key, LockMode::Update, || false), Acquired::Changed);
        assert_eq!(acquire(one, LockMode::Share), Acquired::Now { before: None });
        locks.release(one, &key, None);
        locks.release(two, &key, None);
        assert!(locks.shards.iter().all(|shard| shard.lock().is_empty()), "nothing is left");
    }
}
