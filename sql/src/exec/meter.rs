//! Runs of operators that EXPLAIN ANALYZE counts.
//!
//! Rows are pushed, so an operator's call contains the work of those above it: its own time is that of the call without the
//! time that passes in its sink. With the operators below it, that is, as PostgreSQL counts.

use super::{Executor, Row, Sink, Source};
use crate::error::Result;
use crate::expr::meter::{Measured, Meter, place};
use crate::plan::Plan;
use crate::types::Datum;

/// The counts of an operator; none if it never ran.
pub(crate) fn measured(meter: &Meter, plan: &Plan) -> Option<Measured> {
    meter.of(place::<Plan>(plan))
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
        let first_ns = first_ns.unwrap_or(total_ns).min(total_ns);
        meter.note_run(place::<Plan>(plan), Measured { loops: 1, rows, first_ns, total_ns });
        Ok(())
    }
}
