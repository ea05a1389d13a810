//! The counts of EXPLAIN ANALYZE: for each operator of a plan its loops, rows and time, and the rows that conditions took.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thermocline_base::clock::Clock;

use super::Expr;

/// What an operator has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Measured {
    pub(crate) loops: u64,
    pub(crate) rows: u64,
    /// Nanoseconds until the first row, and in all.
    pub(crate) first_ns: u64,
    pub(crate) total_ns: u64,
}

impl Measured {
    /// Rows of a loop, on average.
    pub(crate) fn rows_each(self) -> u64 {
        let loops = self.loops.max(1);
        (self.rows + loops / 2) / loops
    }

    /// Milliseconds of a loop until its first row, on average.
    pub(crate) fn first_ms(self) -> f64 {
        self.first_ns as f64 / 1e6 / self.loops.max(1) as f64
    }

    /// Milliseconds of a loop, on average.
    pub(crate) fn total_ms(self) -> f64 {
        self.total_ns as f64 / 1e6 / self.loops.max(1) as f64
    }
}

/// Counts of the operators of one plan, which are told apart by where they stand in memory: the plan does not move meanwhile.
#[derive(Debug)]
pub(crate) struct Meter {
    clock: Arc<dyn Clock>,
    timing: bool,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    operators: HashMap<usize, Measured>,
    removed: HashMap<usize, u64>,
}

/// The number by which a part of a plan is known.
pub(crate) fn place<T>(of: *const T) -> usize {
    of as usize
}

impl Meter {
    pub(crate) fn new(clock: Arc<dyn Clock>, timing: bool) -> Self {
        Self { clock, timing, counts: Mutex::default() }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets everything: the statement runs from its beginning.
    pub(crate) fn clear(&self) {
        *self.counts() = Counts::default();
    }

    pub(crate) fn timing(&self) -> bool {
        self.timing
    }

    /// The counts of the operator at this place; none if it never ran.
    pub(crate) fn of(&self, place: usize) -> Option<Measured> {
        self.counts().operators.get(&place).copied()
    }

    /// Adds a run of the operator at this place.
    pub(crate) fn note_run(&self, place: usize, run: Measured) {
        let mut counts = self.counts();
        let mine = counts.operators.entry(place).or_default();
        mine.loops += run.loops;
        mine.rows += run.rows;
        mine.total_ns += run.total_ns;
        mine.first_ns += run.first_ns;
    }

    /// Rows for which these conditions did not hold.
    pub(crate) fn removed_by(&self, conditions: &[Expr]) -> u64 {
        if conditions.is_empty() {
            return 0;
        }
        self.counts().removed.get(&place(conditions.as_ptr())).copied().unwrap_or(0)
    }

    pub(crate) fn note_removed(&self, conditions: &[Expr], rows: u64) {
        if rows > 0 {
            *self.counts().removed.entry(place(conditions.as_ptr())).or_default() += rows;
        }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        if self.timing { self.clock.now_ns() } else { 0 }
    }
}
