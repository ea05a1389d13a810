//! EXPLAIN: the plan of a statement, and, with ANALYZE, what it does when it runs.

use std::sync::Arc;

use super::{Prepared, Session};
use crate::error::{Error, Result};
use crate::exec::Rows;
use crate::explain::{self, Times};
use crate::expr::meter::{Measured, Meter};
use crate::parser::Parsed;
use crate::parser::ast::{ExplainOptions, Statement};
use crate::plan::Bound;
use crate::types::{Datum, Type};

/// Takes rows and shows them to no client.
struct Unseen<'m>(&'m Meter);

impl Rows for Unseen<'_> {
    fn row(&mut self, _: &[Datum]) -> usize {
        0
    }

    fn restart(&mut self) {
        self.0.clear();
    }
}

impl Session {
    /// The answer of EXPLAIN: lines, or one text of JSON.
    pub(super) async fn explain(
        &mut self,
        statement: &Statement,
        options: ExplainOptions,
        types: &[Type],
        parameters: Vec<Datum>,
    ) -> Result<Vec<String>> {
        let begun = self.clock.now_ns();
        let mut inner = Prepared::unbound(
            Parsed { statement: statement.clone(), parameters: types.len() as u32 },
            Arc::from(""),
        );
        self.describe_inner(&mut inner, types)?;
        if inner.bound.is_none() {
            return Err(Error::unsupported("EXPLAIN of a statement that reads no rows"));
        }
        let planned = self.clock.now_ns();
        let mut times = Times { planning_ns: planned - begun, execution_ns: None };
        let mut meter = None;
        let mut changed = None;
        if options.analyze {
            let counts = Arc::new(Meter::new(self.clock.clone(), options.timing));
            self.meter = Some(counts.clone());
            let mut unseen = Unseen(&counts);
            let ran = Box::pin(self.rows_statement(&mut inner, parameters, &mut unseen, false)).await;
            self.meter = None;
            let answer = ran?;
            let total_ns = self.clock.now_ns() - planned;
            times.execution_ns = Some(total_ns);
            let returns = inner.returns_rows();
            let rows = if returns { answer.count } else { 0 };
            let total_ns = if options.timing { total_ns } else { 0 };
            changed = Some(Measured { loops: 1, rows, first_ns: total_ns, total_ns });
            meter = Some(counts);
        }
        let bound: &Bound = inner.bound.as_ref().expect("it was bound");
        let tree = explain::tree(bound, meter.as_deref(), changed);
        let times = options.summary.unwrap_or(options.analyze).then_some(times);
        let timing = meter.is_some_and(|meter| meter.timing());
        Ok(match options.json {
            true => vec![explain::json(&tree, timing, times)],
            false => explain::text(&tree, timing, times),
        })
    }
}
