//! The budget of a database's memory, charged in whole blocks by everything that holds some.
//!
//! Rules:
//! - `used` = the sum over all kinds = what is charged and not released. Whoever charges releases the same amount of
//!   the same kind.
//! - A charge succeeds only if `used` stays within the limit afterwards. Lowering the limit below `used` takes nothing
//!   away; it makes charges fail until enough was released.
//! - Work that makes memory free (pruning, undoing an abort, migrating) may need some first. It charges through
//!   [`Budget::charge_reserve`], to which [`Budget::reserve_bytes`] more are open than to everybody else. Under a
//!   governor these are the last bytes below the limit, so that the limit holds; without one, the first beyond it.
//! - What others allocate and tell of afterwards (the cold store, the log's ring) is [noted](Budget::note): it counts,
//!   but is not refused. The governor sees to it that there is room: what of it comes and goes faster than it can tell
//!   has room [kept](Budget::keep) for it, below the limit.
//!
//! Charges are rare (one in hundreds of allocations), so one counter for the sum and one for each kind suffice. The
//! counter of a kind follows the sum a moment later.

use std::fmt;

use thermocline_base::sync::{AtomicBool, AtomicU64, CachePadded, Ordering};

pub(crate) use self::charge::Charge;

mod charge;

/// What a piece of memory is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum MemoryKind {
    /// Versions of rows.
    Versions,
    /// Hash indexes.
    Hash,
    /// Ordered indexes.
    Tree,
    /// Chunks' slots.
    Slots,
    /// Blocks of frozen chunks.
    Frozen,
    /// The paged side: its frames, and the tables that lead to its pages.
    Paged,
    /// The update memo: its versions, slots and indexes.
    Memo,
    /// Access filters of the cold store.
    ColdFilters,
    /// Fences of the cold store, and the like.
    ColdFences,
    /// What is on its way to the cold store's device.
    ColdBuffers,
    /// Cached pages of the cold store.
    ColdFrames,
    /// What is known of temperatures.
    Temperature,
    /// The log's ring and buffers.
    Log,
    /// What transactions remember of what they read and write.
    Transactions,
    /// What queries keep: sorted rows, hash tables, answers.
    Queries,
    /// What the process takes for the database apart from all that.
    Process,
    /// Everything else: lists of an index that is being built.
    Other,
}

impl MemoryKind {
    /// All of them, for statistics.
    pub(crate) const ALL: [Self; 17] = [
        Self::Versions,
        Self::Hash,
        Self::Tree,
        Self::Slots,
        Self::Frozen,
        Self::Paged,
        Self::Memo,
        Self::ColdFilters,
        Self::ColdFences,
        Self::ColdBuffers,
        Self::ColdFrames,
        Self::Temperature,
        Self::Log,
        Self::Transactions,
        Self::Queries,
        Self::Process,
        Self::Other,
    ];

    /// Its name in statistics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Versions => "versions",
            Self::Hash => "hash indexes",
            Self::Tree => "ordered indexes",
            Self::Slots => "slots",
            Self::Frozen => "frozen chunks",
            Self::Paged => "paged side",
            Self::Memo => "the update memo",
            Self::ColdFilters => "access filters",
            Self::ColdFences => "fences of the cold store",
            Self::ColdBuffers => "buffers of the cold store",
            Self::ColdFrames => "frames",
            Self::Temperature => "temperatures",
            Self::Log => "the log's buffers",
            Self::Transactions => "what transactions remember",
            Self::Queries => "what queries keep",
            Self::Process => "the process",
            Self::Other => "building an index",
        }
    }
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Memory was asked for that may not, or cannot, be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfMemory {
    /// What it was for.
    pub kind: MemoryKind,
    /// How much was asked for.
    pub asked_bytes: u64,
    /// How much was in use, out of what `cause` names.
    pub used_bytes: u64,
    /// How much there may be, out of what `cause` names.
    pub limit_bytes: u64,
    /// What is at its end.
    pub cause: OutOfMemoryCause,
}

/// What is at its end when memory cannot be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutOfMemoryCause {
    /// The database's memory limit.
    Limit,
    /// The address range that was reserved for one table or index.
    Range,
    /// The system's readiness to reserve an address range.
    System,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, asked_bytes, used_bytes, limit_bytes, cause } = self;
        match cause {
            OutOfMemoryCause::Limit => {
                write!(
                    f,
                    "out of memory: {asked_bytes} bytes for {kind} do not fit, as {used_bytes} bytes of the memory limit \
                     of {limit_bytes} are in use"
                )?;
                if used_bytes + asked_bytes <= *limit_bytes {
                    f.write_str(", and the rest is kept free for what brings rows out of memory")?;
                }
                f.write_str(
                    "; end transactions that have been open for long, change fewer rows in each, or raise memory_limit",
                )
            }
            OutOfMemoryCause::Range => write!(
                f,
                "out of memory: {asked_bytes} bytes for {kind} do not fit, as {used_bytes} bytes of the {limit_bytes} \
                 that one table or index may occupy are in use; delete rows, or split the table"
            ),
            OutOfMemoryCause::System => write!(
                f,
                "out of memory: the system refused an address range of {asked_bytes} bytes for {kind}; raise the \
                 process's limit on address space (ulimit -v), and see that vm.overcommit_memory is not 2"
            ),
        }
    }
}

impl std::error::Error for OutOfMemory {}

const NO_LIMIT: u64 = u64::MAX;
const MIN_RESERVE_BYTES: u64 = 1 << 20;
const MAX_RESERVE_BYTES: u64 = 64 << 20;

/// How much memory a database uses and may use.
#[derive(Debug)]
pub(crate) struct Budget {
    used: CachePadded<AtomicU64>,
    used_by: [AtomicU64; MemoryKind::ALL.len()],
    limit: AtomicU64,
    /// Below the limit, and not to be charged: for what is noted only when it is there.
    kept: AtomicU64,
    /// Somebody sees to it that there is room: the reserve lies below the limit.
    governed: AtomicBool,
    /// What was used when the limit was set below that; what frees memory may go on from there.
    overdrawn: AtomicU64,
}

impl Budget {
    /// A budget of `limit` bytes, or without a limit.
    pub(crate) fn new(limit: Option<u64>) -> Self {
        Self {
            used: CachePadded::default(),
            used_by: Default::default(),
            limit: AtomicU64::new(limit.unwrap_or(NO_LIMIT)),
            kept: AtomicU64::new(0),
            governed: AtomicBool::new(false),
            overdrawn: AtomicU64::new(0),
        }
    }

    /// Takes `bytes` for `kind`.
    ///
    /// # Errors
    /// When the hard mark would be passed; nothing is charged then.
    pub(crate) fn charge(&self, kind: MemoryKind, bytes: u64) -> Result<(), OutOfMemory> {
        self.charge_within(kind, bytes, self.hard_mark())
    }

    /// Could `bytes` be charged for `kind` by who must not use the reserve? Nothing is.
    ///
    /// # Errors
    /// As [`Budget::charge`].
    pub(crate) fn ask(&self, kind: MemoryKind, bytes: u64) -> Result<(), OutOfMemory> {
        self.charge(kind, bytes)?;
        self.release(kind, bytes);
        Ok(())
    }

    /// Takes `bytes` for work that frees memory: may pass the hard mark by [`reserve_bytes`](Self::reserve_bytes).
    ///
    /// # Errors
    /// When even the reserve would be passed; nothing is charged then.
    pub(crate) fn charge_reserve(&self, kind: MemoryKind, bytes: u64) -> Result<(), OutOfMemory> {
        let reserve = self.reserve_bytes();
        // Under a governor the reserve lies below the limit, where what others have allocated may fill it, and what is
        // kept free for them besides. It is worse not to be able to free anything any more than to pass the limit for a
        // moment: so once more as much.
        let bound = self.limit.load(Ordering::Relaxed).saturating_add(reserve);
        // Migrating takes buffers, frames and filters first, which are noted.
        let lead = reserve.saturating_add(self.limit.load(Ordering::Relaxed) / 8);
        let bound = match self.overdrawn.load(Ordering::Relaxed) {
            0 => bound,
            overdrawn => bound.max(overdrawn.saturating_add(lead)),
        };
        self.charge_within(kind, bytes, bound)
    }

    fn charge_within(&self, kind: MemoryKind, bytes: u64, bound: u64) -> Result<(), OutOfMemory> {
        let mut used = self.used.load(Ordering::Relaxed);
        loop {
            let Some(after) = used.checked_add(bytes).filter(|after| *after <= bound) else {
                return Err(OutOfMemory {
                    kind,
                    asked_bytes: bytes,
                    used_bytes: used,
                    limit_bytes: self.limit.load(Ordering::Relaxed),
                    cause: OutOfMemoryCause::Limit,
                });
            };
            match self.used.compare_exchange_weak(used, after, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => used = now,
            }
        }
        self.used_by[kind as usize].fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Gives back `bytes` that were charged for `kind`.
    pub(crate) fn release(&self, kind: MemoryKind, bytes: u64) {
        let before = self.used_by[kind as usize].fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "what is released was charged: {bytes} of {before} bytes for {kind}");
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// What is charged.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// What is charged for `kind`.
    pub(crate) fn used_by(&self, kind: MemoryKind) -> u64 {
        self.used_by[kind as usize].load(Ordering::Relaxed)
    }

    /// What may be charged.
    pub(crate) fn limit(&self) -> Option<u64> {
        Some(self.limit.load(Ordering::Relaxed)).filter(|limit| *limit != NO_LIMIT)
    }

    /// Changes the limit.
    pub(crate) fn set_limit(&self, limit: Option<u64>) {
        let is_lower = limit.is_some_and(|limit| limit < self.used());
        self.overdrawn.store(if is_lower { self.used() } else { 0 }, Ordering::Relaxed);
        self.limit.store(limit.unwrap_or(NO_LIMIT), Ordering::Relaxed);
    }

    /// What is used now is there for good reasons, even if it is more than the limit: what frees memory may go on from
    /// there. For who opens a database.
    pub(crate) fn note_beginning(&self) {
        if self.used() > self.limit.load(Ordering::Relaxed) {
            self.overdrawn.fetch_max(self.used(), Ordering::Relaxed);
        }
    }

    /// What has been freed since the limit was lowered is not to be used again.
    pub(crate) fn note_progress(&self) {
        let (before, used) = (self.overdrawn.load(Ordering::Relaxed), self.used());
        if used < before {
            // Whoever sets the limit meanwhile knows better.
            let _ = self.overdrawn.compare_exchange(before, used, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Keeps so many bytes free for what is noted.
    pub(crate) fn keep(&self, bytes: u64) {
        self.kept.store(bytes, Ordering::Relaxed);
    }

    /// The limit without what is kept free.
    pub(crate) fn room(&self) -> Option<u64> {
        self.limit().map(|limit| limit.saturating_sub(self.kept.load(Ordering::Relaxed)))
    }

    /// Up to where everybody may charge.
    pub(crate) fn hard_mark(&self) -> u64 {
        match self.room() {
            Some(room) if self.governed.load(Ordering::Relaxed) => room.saturating_sub(self.reserve_bytes()),
            _ => self.limit.load(Ordering::Relaxed),
        }
    }

    /// Says whether there is a governor.
    pub(crate) fn set_governed(&self, governed: bool) {
        self.governed.store(governed, Ordering::Relaxed);
    }

    /// Lets `kind` stand at `bytes`, which were allocated already. One thread at a time for each kind, which is charged
    /// in no other way.
    pub(crate) fn note(&self, kind: MemoryKind, bytes: u64) {
        let before = self.used_by[kind as usize].swap(bytes, Ordering::Relaxed);
        if bytes >= before {
            self.used.fetch_add(bytes - before, Ordering::Relaxed);
        } else {
            self.used.fetch_sub(before - bytes, Ordering::Relaxed);
        }
    }

    /// By how much work that frees memory may pass the hard mark.
    pub(crate) fn reserve_bytes(&self) -> u64 {
        reserve_bytes(self.limit.load(Ordering::Relaxed))
    }
}

/// By how much work that frees memory may pass the hard mark under a limit.
pub(crate) fn reserve_bytes(limit: u64) -> u64 {
    (limit / 32).clamp(MIN_RESERVE_BYTES, MAX_RESERVE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use MemoryKind::{Hash, Versions};

    #[test]
    fn charges_stop_at_the_limit_and_are_attributed() {
        let budget = Budget::new(Some(100));
        budget.charge(Versions, 60).expect("within the limit");
        budget.charge(Hash, 40).expect("within the limit");
        let error = budget.charge(Hash, 1).expect_err("at the limit");
        assert_eq!((error.asked_bytes, error.used_bytes, error.limit_bytes), (1, 100, 100));
        assert!(error.to_string().contains("raise memory_limit"), "{error}");
        assert_eq!((budget.used(), budget.used_by(Versions), budget.used_by(Hash)), (100, 60, 40));
        budget.release(Versions, 60);
        budget.charge(Hash, 1).expect("there is room again");
        assert_eq!((budget.used(), budget.used_by(Versions), budget.used_by(Hash)), (41, 0, 41));
    }

    #[test]
    fn the_reserve_is_bounded() {
        let budget = Budget::new(Some(1000));
        budget.charge(Versions, 1000).expect("within the limit");
        budget.charge_reserve(Versions, budget.reserve_bytes()).expect("within the reserve");
        assert!(budget.charge_reserve(Versions, 1).is_err());
    }

    #[test]
    fn under_a_governor_the_reserve_lies_below_the_limit() {
        let limit = 64 << 20;
        let budget = Budget::new(Some(limit));
        budget.set_governed(true);
        let reserve = budget.reserve_bytes();
        budget.charge(Versions, limit - reserve).expect("up to the hard mark");
        assert!(budget.charge(Versions, 1).is_err());
        budget.charge_reserve(Versions, reserve).expect("up to the limit");
        budget.note(MemoryKind::ColdFilters, reserve + 1);
        budget.note(MemoryKind::ColdFilters, reserve);
        assert_eq!((budget.used(), budget.used_by(MemoryKind::ColdFilters)), (limit + reserve, reserve));
        assert!(
            budget.charge_reserve(Versions, 1).is_err(),
            "what frees memory stays within twice the reserve"
        );
        budget.note(MemoryKind::ColdFilters, reserve - 1);
        budget.charge_reserve(Versions, 1).expect("others use less");
    }

    #[test]
    fn what_is_kept_free_is_for_what_is_noted_and_for_what_frees_memory() {
        let limit = 64 << 20;
        let budget = Budget::new(Some(limit));
        budget.set_governed(true);
        let (reserve, kept) = (budget.reserve_bytes(), 6 << 20);
        budget.keep(kept);
        assert_eq!((budget.room(), budget.hard_mark()), (Some(limit - kept), limit - kept - reserve));
        budget.charge(Versions, limit - kept - reserve).expect("up to the hard mark");
        assert!(budget.charge(Versions, 1).is_err());
        budget.note(MemoryKind::ColdBuffers, kept);
        assert_eq!(budget.used(), limit - reserve);
        budget.charge_reserve(Versions, 2 * reserve).expect("as if nothing were kept");
        budget.set_limit(None);
        budget.charge(Versions, limit).expect("without a limit nothing is kept");
    }

    #[test]
    fn under_a_lowered_limit_there_is_a_reserve_for_what_frees_memory() {
        let budget = Budget::new(Some(100 << 20));
        budget.set_governed(true);
        budget.charge(Versions, 90 << 20).expect("within the limit");
        budget.set_limit(Some(32 << 20));
        let reserve = budget.reserve_bytes() + (32 << 20) / 8;
        budget.charge_reserve(Hash, reserve).expect("beside what was there");
        assert!(budget.charge_reserve(Hash, 1).is_err());
        budget.release(Versions, 40 << 20);
        budget.note_progress();
        budget.charge_reserve(Hash, reserve).expect("beside what is left");
        assert!(budget.charge_reserve(Hash, 1).is_err());
    }

    #[test]
    fn the_limit_can_change() {
        let budget = Budget::new(None);
        assert_eq!(budget.limit(), None);
        budget.charge(Versions, 1 << 50).expect("no limit");
        budget.set_limit(Some(10));
        assert!(budget.charge(Versions, 1).is_err());
        assert_eq!((budget.limit(), budget.used()), (Some(10), 1 << 50));
        budget.set_limit(None);
        budget.charge(Versions, 1).expect("no limit again");
        assert!(budget.charge(Versions, u64::MAX).is_err(), "sums do not wrap");
    }

    #[test]
    #[should_panic(expected = "what is released was charged")]
    fn releasing_what_was_not_charged_is_a_broken_invariant() {
        let budget = Budget::new(None);
        budget.charge(Versions, 10).expect("no limit");
        budget.release(Hash, 10);
    }

    #[test]
    fn threads_never_pass_the_limit() {
        let budget = Budget::new(Some(50));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        if budget.charge(Versions, 20).is_ok() {
                            assert!(budget.used() <= 50);
                            budget.release(Versions, 20);
                        }
                    }
                });
            }
        });
        assert_eq!(budget.used(), 0);
    }
}
