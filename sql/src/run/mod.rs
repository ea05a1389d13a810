//! The row executor: plans to rows.
//!
//! Rows are pushed: each operator hands its rows, one after the other, to a function of the operator above, which says whether
//! it wants more. A scan so runs through filter, projection and aggregation without keeping anything. Operators that read tables
//! for each of their rows (index joins, sub-queries) keep their input first, since the engine calls back while it holds pins.
//! Reading is asynchronous, expressions are not.
//!
//! | file | does |
//! |---|---|
//! | `source` | the one trait by which rows come from and go to the engine, and values change their form |
//! | `operators` | the operators that only pass rows on, sort or group them |
//! | `join` | joins |
//! | `recursive` | WITH RECURSIVE, and functions that make rows in a select list |
//! | `window` | window functions |
//! | `sub` | sub-queries, whose answers are remembered by what they depend on |
//! | `change` | INSERT, UPDATE, DELETE |
//! | `foreign` | foreign keys: what a statement's changes ask of other tables |
//! | `meter` | what EXPLAIN ANALYZE counts |
//! | `lock` | SELECT … FOR UPDATE and its like |

pub(crate) mod change;
pub(crate) mod foreign;
mod join;
mod lock;
pub(crate) mod meter;
mod operators;
mod recursive;
pub(crate) mod source;
mod sub;
mod window;

use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;

pub(crate) use source::{Source, datum_of};

use crate::error::Result;
use crate::expr::{Context, Env};
use crate::plan::{Extension, Plan};
use crate::types::Datum;

/// A row.
pub(crate) type Row = Vec<Datum>;
/// Whether more rows are wanted.
pub(crate) type Flow = Result<ControlFlow<()>>;
/// Where rows go. The row may be taken; what stands in it afterwards does not matter.
pub(crate) type Sink<'s> = &'s mut dyn FnMut(&mut Row) -> Flow;
/// A run of a plan.
type Run<'r> = Pin<Box<dyn Future<Output = Result<()>> + 'r>>;

/// What a plan runs with.
pub(crate) struct Executor<'e, S> {
    pub(crate) source: &'e mut S,
    pub(crate) context: &'e Context,
    /// The plan runs once more for these rows alone: the newest versions of rows that are changed or locked, by the scans that
    /// have found them.
    pub(crate) again: Vec<(usize, Row)>,
    /// What recursive queries have made last, the innermost behind.
    pub(crate) working: Vec<(usize, std::rc::Rc<Vec<Row>>)>,
    /// How many rows an insert has passed.
    pub(crate) passed: usize,
}

impl<S: Source> Executor<'_, S> {
    fn env<'v>(&'v self, row: &'v [Datum], outer: &'v [Datum]) -> Env<'v> {
        Env { row, outer, context: self.context }
    }

    /// All rows of a plan.
    pub(crate) async fn rows(&mut self, plan: &Plan, outer: &[Datum]) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        self.run(plan, outer, &mut |row| {
            rows.push(std::mem::take(row));
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        Ok(rows)
    }

    /// Hands the rows of a plan to `sink`, until it wants no more.
    pub(crate) fn run<'r>(&'r mut self, plan: &'r Plan, outer: &'r [Datum], sink: Sink<'r>) -> Run<'r> {
        match &self.context.meter {
            None => self.run_plain(plan, outer, sink),
            Some(meter) => Box::pin(self.metered(meter, plan, outer, sink)),
        }
    }

    fn run_plain<'r>(&'r mut self, plan: &'r Plan, outer: &'r [Datum], sink: Sink<'r>) -> Run<'r> {
        Box::pin(async move {
            match plan {
                Plan::Unit => sink(&mut Vec::new()).map(drop),
                Plan::Values(rows) => self.values(rows, outer, sink),
                Plan::Made(rows) => emit(rows.iter().cloned(), sink),
                Plan::Scan { table, used, access, filter, named } => {
                    self.scan((table, used, access, filter, *named), outer, sink).await
                }
                Plan::Filter(input, conditions) => self.filter(input, conditions, outer, sink).await,
                Plan::Project(input, exprs) => self.project(input, exprs, outer, sink).await,
                Plan::Join(join) => self.join(join, outer, sink).await,
                Plan::Apply(input, subs) => self.apply(input, subs, outer, sink).await,
                Plan::Aggregate { input, keys, calls } => {
                    self.aggregate(input, keys, calls, outer, sink).await
                }
                Plan::Sort(input, keys) => self.sort(input, keys, outer, sink).await,
                Plan::Distinct(input, keys) => self.distinct(input, keys.as_deref(), outer, sink).await,
                Plan::Limit { input, limit, offset } => {
                    self.limit(input, limit.as_ref(), offset.as_ref(), outer, sink).await
                }
                Plan::SetOp { op, all, left, right } => {
                    self.set_op(*op, *all, left, right, outer, sink).await
                }
                Plan::Extend(input, Extension::Sets(sets)) => self.sets(input, sets, outer, sink).await,
                Plan::Extend(input, Extension::Windows(calls)) => {
                    self.windows(input, calls, outer, sink).await
                }
                Plan::Recursive(query) => self.recursive(query, outer, sink).await,
                Plan::Working(number) => self.working_rows(*number, sink),
                Plan::Series { from, to, step } => self.series(from, to, step, outer, sink),
                Plan::Unnest(array) => self.unnest(array, outer, sink),
                Plan::Lock { input, targets, few } => self.lock(input, targets, *few, outer, sink).await,
                Plan::Numbered(input) => {
                    let mut number = 0;
                    let mut counted = |row: &mut Row| {
                        number += 1;
                        row.push(Datum::Int(number));
                        sink(row)
                    };
                    self.run(input, outer, &mut counted).await
                }
                Plan::Cut(input, width) => {
                    let mut cut = |row: &mut Row| {
                        row.truncate(*width);
                        sink(row)
                    };
                    self.run(input, outer, &mut cut).await
                }
            }
        })
    }
}

/// Hands rows that are kept to a sink.
fn emit(rows: impl IntoIterator<Item = Row>, sink: Sink<'_>) -> Result<()> {
    for mut row in rows {
        if sink(&mut row)?.is_break() {
            break;
        }
    }
    Ok(())
}
