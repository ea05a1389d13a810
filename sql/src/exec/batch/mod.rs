//! Operators over a table that is read by batches of columns.
//!
//! ```text
//! engine ──batches──► conditions ──► projections ──┬──► keys, arguments ──► groups, aggregates ──► rows
//!        (conditions that cannot fail are          └──► keys ──► rows before the last of the first so many
//!         asked in the engine)
//! ```
//!
//! A plan runs so if it groups the rows of one table, or wants them, or the first of them, in an order; if no index leads to the table, and there
//! are conditions and projections alone between; if no aggregate wants an order or distinct values; and if at most one expression
//! answers otherwise from call to call. All other plans run row by row. Both have one meaning: an expression without a kernel is
//! evaluated by the same code.
//!
//! | file | has |
//! |---|---|
//! | `vector` | values of an expression for many rows |
//! | `eval` | expressions over them |
//! | `group` | GROUP BY and aggregates |
//! | `groups` | numbers of rows with equal keys |
//! | `accumulate` | aggregates of groups |
//! | `first` | LIMIT over ORDER BY |
//! | `sorted` | ORDER BY |
//! | `pushed` | conditions that the engine asks |

mod accumulate;
mod eval;
mod first;
mod group;
mod groups;
mod pushed;
mod sorted;
mod vector;

use std::rc::Rc;
use std::sync::Arc;

use self::eval::{Evaluator, Failure, is_steady};
use self::pushed::condition_of;
use self::vector::{Lot, Vector};
use super::source::Seen;
use super::{Executor, Flow, Source};
use crate::catalog::Table;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::expr::meter::{Measured, place};
use crate::plan::{Access, AggregateCall, Plan, SortKey, Used};

/// An operator over the table.
#[derive(Clone, Copy)]
enum Layer<'p> {
    Filter(&'p [Expr]),
    Project(&'p [Expr]),
}

/// The demand of what stands over a pipeline.
enum Above<'a> {
    /// These expressions over its rows.
    Exprs(Vec<&'a Expr>),
    /// Whole rows, and these expressions over them.
    Rows(Vec<&'a Expr>),
}

impl<'a> Above<'a> {
    fn exprs(&self) -> &[&'a Expr] {
        match self {
            Self::Exprs(exprs) | Self::Rows(exprs) => exprs,
        }
    }
}

/// A table, and the operators over it, the lowest first.
pub(super) struct Pipeline<'p> {
    scan: &'p Plan,
    table: &'p Arc<Table>,
    used: &'p Used,
    filter: &'p [Expr],
    layers: Vec<(&'p Plan, Layer<'p>)>,
    above: Above<'p>,
}

impl<'p> Pipeline<'p> {
    /// The pipeline that these groups are made of, if it is one that runs by batches.
    pub(super) fn of_groups(input: &'p Plan, keys: &'p [Expr], calls: &'p [AggregateCall]) -> Option<Self> {
        let plain = calls.iter().all(|call| call.order.is_empty() && !call.distinct);
        if plain { Self::of(input, Above::Exprs(group::over_rows(keys, calls).collect())) } else { None }
    }

    /// The pipeline whose rows, or the first of them, are wanted in an order, if it is one that runs by batches.
    pub(super) fn of_ordered(input: &'p Plan, keys: &'p [SortKey]) -> Option<Self> {
        Self::of(input, Above::Rows(keys.iter().map(|key| &key.expr).collect()))
    }

    fn of(input: &'p Plan, above: Above<'p>) -> Option<Self> {
        let mut layers = Vec::new();
        let mut plan = input;
        let (table, used, filter) = loop {
            plan = match plan {
                Plan::Filter(input, conditions) => {
                    layers.push((plan, Layer::Filter(conditions)));
                    input
                }
                Plan::Project(input, exprs) => {
                    layers.push((plan, Layer::Project(exprs)));
                    input
                }
                Plan::Scan { table, used, access: Access::Table, filter, named: None } => {
                    break (table, used, filter);
                }
                _ => return None,
            };
        };
        layers.reverse();
        let pipeline = Self { scan: plan, table, used, filter, layers, above };
        let unsteady = pipeline.exprs().filter(|expr| !is_steady(expr)).count();
        (unsteady <= 1).then_some(pipeline)
    }

    fn exprs(&self) -> impl Iterator<Item = &Expr> {
        let layers = self.layers.iter().flat_map(|(_, layer)| match layer {
            Layer::Filter(exprs) | Layer::Project(exprs) => exprs.iter(),
        });
        self.filter.iter().chain(layers).chain(self.above.exprs().iter().copied())
    }

    /// The columns of the table that are read: not those that only conditions of the engine ask for.
    fn columns(&self, asked: &[&Expr]) -> Vec<usize> {
        let mut columns: Vec<usize> = asked.iter().flat_map(|expr| expr.columns()).collect();
        let mut projected = false;
        for (_, layer) in &self.layers {
            let (Layer::Filter(exprs) | Layer::Project(exprs)) = layer;
            columns.extend(exprs.iter().flat_map(Expr::columns));
            projected = matches!(layer, Layer::Project(_));
            if projected {
                break;
            }
        }
        match &self.above {
            _ if projected => {}
            Above::Exprs(exprs) => columns.extend(exprs.iter().flat_map(|expr| expr.columns())),
            Above::Rows(_) => {
                let used = self.used.borrow();
                columns.extend((0..self.table.columns.len()).filter(|column| used[*column]));
            }
        }
        columns.sort_unstable();
        columns.dedup();
        columns
    }
}

/// Looks at the rows of a lot before those that have failed, until none fails any more: the failure of the first row counts.
fn attempted<'b, T>(
    lot: &mut Lot<'b>,
    failure: &mut Option<Failure>,
    mut attempt: impl FnMut(&Lot<'b>) -> std::result::Result<T, Failure>,
) -> Option<T> {
    while lot.rows > 0 {
        match attempt(lot) {
            Ok(made) => return Some(made),
            Err(earlier) => {
                *lot = lot.first(earlier.row);
                *failure = Some(earlier);
            }
        }
    }
    None
}

impl Evaluator<'_> {
    /// Rows of a lot that the conditions hold of. A row that has failed ends the lot.
    fn filtered<'x, 'b>(
        &self,
        conditions: impl IntoIterator<Item = &'x Expr>,
        mut lot: Lot<'b>,
        failure: &mut Option<Failure>,
    ) -> Lot<'b> {
        for condition in conditions {
            let Some(holding) = attempted(&mut lot, failure, |lot| self.holding(condition, lot)) else {
                break;
            };
            if holding.len() < lot.rows {
                lot = lot.at(&holding);
            }
        }
        lot
    }

    /// The values of expressions. A row that has failed ends the lot; none is left without a row.
    fn evaluated<'b>(
        &self,
        exprs: &[&Expr],
        lot: &mut Lot<'b>,
        failure: &mut Option<Failure>,
    ) -> Option<Vec<Rc<Vector<'b>>>> {
        attempted(lot, failure, |lot| self.all(exprs.iter().copied(), lot))
    }
}

impl<S: Source> Executor<'_, S> {
    /// Hands the rows of a pipeline to `take`, a lot at a time, until it wants no more; and the failure of the row behind them.
    async fn run_pipeline(
        &mut self,
        pipeline: &Pipeline<'_>,
        take: &mut dyn FnMut(Lot<'_>, Option<Failure>) -> Flow,
    ) -> Result<()> {
        let context = self.context;
        let evaluator = Evaluator { context, outer: &[] };
        let table = pipeline.table;
        // What EXPLAIN ANALYZE shows of a filter are the rows that it takes; and no call of a function that has an effect is left out.
        let may_push = context.meter.is_none() && pipeline.exprs().all(is_steady);
        let (mut pushed, mut asked) = (Vec::new(), Vec::new());
        for expr in pipeline.filter {
            match condition_of(expr, table, context).filter(|_| may_push) {
                Some(condition) => pushed.push(condition),
                None => asked.push(expr),
            }
        }
        let columns = pipeline.columns(&asked);
        let begun = context.meter.as_ref().map_or(0, |meter| meter.now_ns());
        // Rows that each operator has made, from the scan on.
        let mut rows = vec![0_u64; 1 + pipeline.layers.len()];
        let (mut removed, mut failed): (u64, Option<Error>) = (0, None);
        let mut see = |batch: &thermocline_engine::columns::Batch| {
            let mut work = || {
                context.check()?;
                let mut failure = None;
                let lot = Lot::of_batch(batch, &table.columns, &columns);
                let mut lot = evaluator.filtered(asked.iter().copied(), lot, &mut failure);
                removed += (batch.rows() - lot.rows) as u64;
                rows[0] += lot.rows as u64;
                for ((_, layer), rows) in pipeline.layers.iter().zip(&mut rows[1..]) {
                    lot = match layer {
                        Layer::Filter(conditions) => evaluator.filtered(*conditions, lot, &mut failure),
                        Layer::Project(exprs) => {
                            let exprs: Vec<&Expr> = exprs.iter().collect();
                            let made = evaluator.evaluated(&exprs, &mut lot, &mut failure);
                            lot.with_columns(made.unwrap_or_default())
                        }
                    };
                    *rows += lot.rows as u64;
                }
                take(lot, failure)
            };
            match work() {
                Ok(std::ops::ControlFlow::Continue(())) => Seen::Taken,
                Ok(std::ops::ControlFlow::Break(())) => Seen::Enough,
                Err(error) => {
                    failed = Some(error);
                    Seen::Enough
                }
            }
        };
        self.source.batches(table, &columns, pushed, &mut see).await?;
        if let Some(error) = failed {
            return Err(error);
        }
        if let Some(meter) = &context.meter {
            let total_ns = meter.now_ns() - begun;
            let plans = std::iter::once(pipeline.scan).chain(pipeline.layers.iter().map(|(plan, _)| *plan));
            for (plan, rows) in plans.zip(rows) {
                meter
                    .note_run(place::<Plan>(plan), Measured { loops: 1, rows, first_ns: total_ns, total_ns });
            }
            meter.note_removed(pipeline.filter, removed);
        }
        Ok(())
    }
}
