//! Counters of what transactions come to, kept apart by thread so that counting shares no cache line.

use thermocline_base::clock::Clock;
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

/// Notices that the update memo holds of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoNotices {
    /// Of batches: moves that some reader may not see yet.
    pub batches: u64,
    /// Of ends: records that are to be removed from the cold store, or wait for readers.
    pub ends: u64,
}

/// A reason for operations to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitKind {
    /// Another transaction to let go of a row.
    Rows,
    /// Another transaction's commit, which is under way.
    Decisions,
    /// A change of a definition.
    Definitions,
    /// Room in the log.
    LogSpace,
    /// The log to be durable.
    LogSync,
    /// Pages of the paged side.
    Pages,
    /// A read of the cold store.
    ColdReads,
    /// The next entry of a scan of the cold store.
    ColdScans,
    /// Reads ahead of what is cold.
    ReadsAhead,
    /// Memory.
    Memory,
}

/// Waits for one kind of thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitTotal {
    /// Their number.
    pub count: u64,
    /// Their time together, in nanoseconds.
    pub ns: u64,
}

/// The waits of operations, by kind. Sums over all transactions, so many of them at one time make many seconds of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waits {
    /// Another transaction to let go of a row.
    pub rows: WaitTotal,
    /// Another transaction's commit, which is under way.
    pub decisions: WaitTotal,
    /// A change of a definition.
    pub definitions: WaitTotal,
    /// Room in the log.
    pub log_space: WaitTotal,
    /// The log to be durable, by commits.
    pub log_sync: WaitTotal,
    /// Pages of the paged side.
    pub pages: WaitTotal,
    /// A read of a row in the cold store.
    pub cold_reads: WaitTotal,
    /// The next entry of a scan of the cold store.
    pub cold_scans: WaitTotal,
    /// Reads ahead of what is cold ([`crate::Transaction::prefetch_cold`]).
    pub reads_ahead: WaitTotal,
    /// Memory.
    pub memory: WaitTotal,
}

impl Waits {
    /// Each of them, with its name.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, WaitTotal)> {
        [
            ("rows", self.rows),
            ("decisions", self.decisions),
            ("definitions", self.definitions),
            ("log_space", self.log_space),
            ("log_sync", self.log_sync),
            ("pages", self.pages),
            ("cold_reads", self.cold_reads),
            ("cold_scans", self.cold_scans),
            ("reads_ahead", self.reads_ahead),
            ("memory", self.memory),
        ]
        .into_iter()
    }

    fn of(&mut self, kind: WaitKind) -> &mut WaitTotal {
        match kind {
            WaitKind::Rows => &mut self.rows,
            WaitKind::Decisions => &mut self.decisions,
            WaitKind::Definitions => &mut self.definitions,
            WaitKind::LogSpace => &mut self.log_space,
            WaitKind::LogSync => &mut self.log_sync,
            WaitKind::Pages => &mut self.pages,
            WaitKind::ColdReads => &mut self.cold_reads,
            WaitKind::ColdScans => &mut self.cold_scans,
            WaitKind::ReadsAhead => &mut self.reads_ahead,
            WaitKind::Memory => &mut self.memory,
        }
    }
}

impl WaitKind {
    const ALL: [Self; 10] = [
        Self::Rows,
        Self::Decisions,
        Self::Definitions,
        Self::LogSpace,
        Self::LogSync,
        Self::Pages,
        Self::ColdReads,
        Self::ColdScans,
        Self::ReadsAhead,
        Self::Memory,
    ];
}

/// A wait, which counts when it is over, also when it is given up.
#[derive(Debug)]
pub(crate) struct Waited<'a> {
    counters: &'a Counters,
    clock: &'a dyn Clock,
    kind: WaitKind,
    since_ns: u64,
}

impl Drop for Waited<'_> {
    fn drop(&mut self) {
        let ns = self.clock.now_ns().saturating_sub(self.since_ns);
        let [count, sum] = &self.counters.shard().waits[self.kind as usize];
        count.fetch_add(1, Ordering::Relaxed);
        sum.fetch_add(ns, Ordering::Relaxed);
    }
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
    /// By kind: how many, and nanoseconds.
    waits: [[AtomicU64; 2]; WaitKind::ALL.len()],
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
    pub(crate) waits: Waits,
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
            Error::Deadlock { .. } | Error::WaitsForItself { .. } => &shard.deadlock,
            Error::DuplicateKey { .. } => &shard.duplicate_key,
            Error::OutOfMemory(_) => &shard.out_of_memory,
            Error::IdleTimeout { .. } => &shard.idle,
            _ => &shard.other,
        }
        .fetch_add(1, Ordering::Relaxed);
    }

    /// A wait begins. It is over when this is dropped.
    pub(crate) fn waiting<'a>(&'a self, clock: &'a dyn Clock, kind: WaitKind) -> Waited<'a> {
        Waited { counters: self, clock, kind, since_ns: clock.now_ns() }
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
            for kind in WaitKind::ALL {
                let [count, ns] = &shard.waits[kind as usize];
                let total = sums.waits.of(kind);
                (total.count, total.ns) = (total.count + get(count), total.ns + get(ns));
            }
        }
        sums
    }
}
