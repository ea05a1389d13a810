//! Counters of what transactions come to, kept apart by thread so that counting shares no cache line.

use thermocline_base::sync::{AtomicU64, CachePadded, Ordering, thread_index};

use crate::error::Error;

const SHARDS: usize = 64;

/// Why transactions were aborted or operations refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AbortCounts {
    /// Serialization failures.
    pub serialization: u64,
    /// Deadlocks.
    pub deadlock: u64,
    /// Duplicate keys (the transaction may have gone on).
    pub duplicate_key: u64,
    /// The memory limit.
    pub out_of_memory: u64,
    /// Idle transactions that were aborted.
    pub idle: u64,
    /// Anything else.
    pub other: u64,
}

#[derive(Debug, Default)]
struct Shard {
    commits: AtomicU64,
    read_only_commits: AtomicU64,
    rollbacks: AtomicU64,
    serialization: AtomicU64,
    deadlock: AtomicU64,
    duplicate_key: AtomicU64,
    out_of_memory: AtomicU64,
    idle: AtomicU64,
    other: AtomicU64,
}

/// All counters.
#[derive(Debug)]
pub(crate) struct Counters {
    shards: Box<[CachePadded<Shard>]>,
}

/// Sums of the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) commits: u64,
    pub(crate) read_only_commits: u64,
    pub(crate) rollbacks: u64,
    pub(crate) aborts: AbortCounts,
}

impl Counters {
    /// All zero.
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| CachePadded::default()).collect() }
    }

    fn shard(&self) -> &Shard {
        &self.shards[thread_index() % SHARDS]
    }

    /// A transaction has committed.
    #[inline]
    pub(crate) fn committed(&self, wrote: bool) {
        let shard = self.shard();
        if wrote { &shard.commits } else { &shard.read_only_commits }.fetch_add(1, Ordering::Relaxed);
    }

    /// A transaction was rolled back.
    pub(crate) fn rolled_back(&self) {
        self.shard().rollbacks.fetch_add(1, Ordering::Relaxed);
    }

    /// An operation has failed.
    pub(crate) fn failed(&self, error: &Error) {
        let shard = self.shard();
        match error {
            Error::SerializationFailure { .. } => &shard.serialization,
            Error::Deadlock { .. } => &shard.deadlock,
            Error::DuplicateKey { .. } => &shard.duplicate_key,
            Error::OutOfMemory(_) => &shard.out_of_memory,
            Error::IdleTimeout { .. } => &shard.idle,
            _ => &shard.other,
        }
        .fetch_add(1, Ordering::Relaxed);
    }

    /// The sums.
    pub(crate) fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        for shard in &self.shards {
            let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            sums.commits += get(&shard.commits);
            sums.read_only_commits += get(&shard.read_only_commits);
            sums.rollbacks += get(&shard.rollbacks);
            sums.aborts.serialization += get(&shard.serialization);
            sums.aborts.deadlock += get(&shard.deadlock);
            sums.aborts.duplicate_key += get(&shard.duplicate_key);
            sums.aborts.out_of_memory += get(&shard.out_of_memory);
            sums.aborts.idle += get(&shard.idle);
            sums.aborts.other += get(&shard.other);
        }
        sums
    }
}
