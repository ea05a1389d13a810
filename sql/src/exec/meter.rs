//! What EXPLAIN ANALYZE counts while a plan runs: for each operator its loops, rows and time, and the rows that conditions took.
//!
//! Rows are pushed, so an operator's call contains the work of those above it: its own time is that of the call without the
//! time that passes in its sink. With the operators below it, that is, as PostgreSQL counts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thermocline_base::clock::Clock;

use super::{Executor, Row, Sink, Source};
use crate::error::Result;
use crate::expr::Expr;
use crate::plan::Plan;
use crate::types::Datum;

/// What an operator has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Measured {
    pub(crate) loops: u64,
    pub(crate) rows: u64,
    /// Nanoseconds until the first row, and in all.
    pub(crate) first_ns: u64,
    pub(crate) total_ns: u64,
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

fn place<T>(of: *const T) -> usize {
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

    /// What an operator has done; none if it never ran.
    pub(crate) fn of(&self, plan: &Plan) -> Option<Measured> {
        self.counts().operators.get(&place(plan)).copied()
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

    fn now_ns(&self) -> u64 {
        if self.timing { self.clock.now_ns() } else { 0 }
    }
}

impl<S: Source> Executor<'_, S> {
    /// Runs a plan and counts.
    pub(super) async fn metered(
        &mut self,
        meter: &Meter,
        plan: &Plan,
        outer: &[Datum],
        sink: Sink<'_>,
    ) -> Result<()> {
        let begun = meter.now_ns();
        let (mut rows, mut above_ns, mut first_ns) = (0, 0, None);
        let mut counted = |row: &mut Row| {
            rows += 1;
            let at = meter.now_ns();
            first_ns.get_or_insert(at - begun);
            let flow = sink(row);
            above_ns += meter.now_ns() - at;
            flow
        };
        self.run_plain(plan, outer, &mut counted).await?;
        let total_ns = (meter.now_ns() - begun).saturating_sub(above_ns);
        let mut counts = meter.counts();
        let mine = counts.operators.entry(place(plan)).or_default();
        mine.loops += 1;
        mine.rows += rows;
        mine.total_ns += total_ns;
        mine.first_ns += first_ns.unwrap_or(total_ns).min(total_ns);
        Ok(())
    }
}
