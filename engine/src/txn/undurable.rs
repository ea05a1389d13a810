//! Which commits are not on disk: what remains to be known when the log has failed.
//!
//! A commit is published before it is durable, so a log that fails leaves some that everybody sees and no restart will
//! find. Reading goes on, but who has built on such a commit must not be told that all is well. Each commit that waits
//! for the disk enters itself here before it is published; entries that are durable meanwhile go when the next one comes.
//!
//! A transaction that begins after the failure watches what it reads: a row by the timestamp of its version, exactly;
//! that a row is not there by its table, since a commit that has taken it away may have left no trace.

use std::collections::VecDeque;

use thermocline_base::ids::{Lsn, Timestamp};
use thermocline_base::sync::{CachePadded, Mutex, thread_index};

const SHARDS: usize = 64;

#[derive(Debug, Clone, Copy)]
struct Commit {
    end: Timestamp,
    lsn: Lsn,
    /// Marks of the tables that it used.
    tables: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Undurable([CachePadded<Mutex<VecDeque<Commit>>>; SHARDS]);

impl Undurable {
    pub(crate) fn new() -> Self {
        Self(std::array::from_fn(|_| CachePadded::default()))
    }

    /// Enters a commit; before it is published.
    pub(crate) fn note(&self, end: Timestamp, lsn: Lsn, tables: u64, durable: Lsn) {
        let mut shard = self.0[thread_index() % SHARDS].lock();
        while shard.front().is_some_and(|commit| commit.lsn <= durable) {
            shard.pop_front();
        }
        shard.push_back(Commit { end, lsn, tables });
    }

    /// Is one of the commits that are not durable like this?
    fn any(&self, durable: Lsn, is_it: impl Fn(&Commit) -> bool) -> bool {
        self.0.iter().any(|shard| shard.lock().iter().any(|commit| commit.lsn > durable && is_it(commit)))
    }

    /// Was this the timestamp of a commit that is not durable?
    pub(crate) fn holds(&self, end: Timestamp, durable: Lsn) -> bool {
        self.any(durable, |commit| commit.end == end)
    }

    /// Did a commit that is not durable use this table?
    pub(crate) fn touches(&self, mark: u64, durable: Lsn) -> bool {
        self.any(durable, |commit| commit.tables & mark != 0)
    }
}
