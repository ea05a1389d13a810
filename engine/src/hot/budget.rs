//! The budget of a database's memory, charged in whole blocks by everything that holds some.
//!
//! Rules:
//! - `used` = the sum over all kinds = what is charged and not released. Whoever charges releases the same amount of
//!   the same kind.
//! - A charge succeeds only if `used` stays within the limit afterwards. Lowering the limit below `used` takes nothing
//!   away; it makes charges fail until enough was released.
//! - Work that makes memory free (pruning, undoing an abort) may need some first. It charges through
//!   [`Budget::charge_reserve`], which may overshoot the limit by [`Budget::reserve_bytes`] in total.
//!
//! Charges are rare (one in hundreds of allocations), so one counter for the sum and one for each kind suffice. The
//! counter of a kind follows the sum a moment later.

use std::fmt;

use thermocline_base::sync::{AtomicU64, CachePadded, Ordering};

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
    /// Everything else.
    Other,
}

impl MemoryKind {
    /// All of them, for statistics.
    pub(crate) const ALL: [Self; 5] = [Self::Versions, Self::Hash, Self::Tree, Self::Slots, Self::Other];

    /// Its name in statistics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Versions => "versions",
            Self::Hash => "hash indexes",
            Self::Tree => "ordered indexes",
            Self::Slots => "slots",
            Self::Other => "other",
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
            OutOfMemoryCause::Limit => write!(
                f,
                "out of memory: {asked_bytes} bytes for {kind} do not fit, as {used_bytes} bytes of the memory limit \
                 of {limit_bytes} are in use; delete rows, or raise memory_limit"
            ),
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
}

impl Budget {
    /// A budget of `limit` bytes, or without a limit.
    pub(crate) fn new(limit: Option<u64>) -> Self {
        Self {
            used: CachePadded::default(),
            used_by: Default::default(),
            limit: AtomicU64::new(limit.unwrap_or(NO_LIMIT)),
        }
    }

    /// Takes `bytes` for `kind`.
    ///
    /// # Errors
    /// When the limit would be passed; nothing is charged then.
    pub(crate) fn charge(&self, kind: MemoryKind, bytes: u64) -> Result<(), OutOfMemory> {
        self.charge_within(kind, bytes, self.limit.load(Ordering::Relaxed))
    }

    /// Takes `bytes` for work that frees memory: may pass the limit by [`reserve_bytes`](Self::reserve_bytes).
    ///
    /// # Errors
    /// When even the reserve would be passed; nothing is charged then.
    pub(crate) fn charge_reserve(&self, kind: MemoryKind, bytes: u64) -> Result<(), OutOfMemory> {
        let limit = self.limit.load(Ordering::Relaxed);
        self.charge_within(kind, bytes, limit.saturating_add(self.reserve_bytes()))
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
        self.limit.store(limit.unwrap_or(NO_LIMIT), Ordering::Relaxed);
    }

    /// By how much work that frees memory may pass the limit.
    pub(crate) fn reserve_bytes(&self) -> u64 {
        (self.limit.load(Ordering::Relaxed) / 32).clamp(MIN_RESERVE_BYTES, MAX_RESERVE_BYTES)
    }
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
