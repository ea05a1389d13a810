//! The pool of sessions that are between two transactions.

use thermocline_base::sync::{CachePadded, Mutex, thread_index};

use super::Session;

const SHARDS: usize = 64;
/// Sessions that a shard keeps.
const KEEP: usize = 256;

type Shard = Mutex<Vec<Box<Session>>>;

/// See the module. A thread has a shard, which it shares with others.
pub(crate) struct Pool(Box<[CachePadded<Shard>]>);

impl Default for Pool {
    fn default() -> Self {
        Self((0..SHARDS).map(|_| CachePadded::default()).collect())
    }
}

impl Pool {
    fn shard(&self) -> &Shard {
        &self.0[thread_index() % SHARDS]
    }

    /// Takes a session out of the thread's own shard.
    pub(crate) fn take(&self) -> Option<Box<Session>> {
        self.shard().lock().pop()
    }

    /// Takes a session out of any shard.
    pub(crate) fn take_any(&self) -> Option<Box<Session>> {
        self.0.iter().find_map(|shard| shard.lock().pop())
    }

    /// Takes a session back, unless there are enough, or the database `is_closed`: asked under the lock that [`Pool::clear`] takes
    /// after that.
    pub(crate) fn give(
        &self,
        session: Box<Session>,
        is_closed: impl FnOnce() -> bool,
    ) -> Option<Box<Session>> {
        let mut shard = self.shard().lock();
        if shard.len() < KEEP && !is_closed() {
            shard.push(session);
            return None;
        }
        Some(session)
    }

    /// Drops all sessions.
    pub(crate) fn clear(&self) {
        self.0.iter().for_each(|shard| shard.lock().clear());
    }
}
