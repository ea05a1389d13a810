//! The row executor: plans to rows.
//!
//! Rows are pushed: each operator hands its rows, one after the other, to a function of the operator above, which says whether
//! it wants more. A scan so runs through filter, projection and aggregation without keeping anything. Operators that read tables
//! for each of their rows (index joins, sub-queries) keep their input first, since the engine calls back while it holds pins.
//! Reading is asynchronous, expressions are not. What takes long for a single row (a join without equalities, a function that makes
//! rows) is put off until the input has been read, since a sink cannot give way.
//!
//! | file | does |
//! |---|---|
//! | `source` | the one trait by which rows come from and go to the engine, and values change their form |
//! | `batch` | groups, orders, and first rows of an order, over a table that is read by batches of columns |
//! | `operators` | the operators that only pass rows on or sort them |
//! | `group` | GROUP BY and aggregates |
//! | `distinct` | DISTINCT and set operations |
//! | `join` | joins |
//! | `inner` | scans that run once for each row of another plan |
//! | `recursive` | WITH RECURSIVE, and functions that make rows in a select list |
//! | `window` | window functions |
//! | `sub` | sub-queries, whose answers are remembered by what they depend on |
//! | `change` | INSERT, UPDATE, DELETE |
//! | `foreign` | foreign keys: what a statement's changes ask of other tables |
//! | `meter` | what EXPLAIN ANALYZE counts |
//! | `spool` | rows that a change keeps until all of them are known |
//! | `coded` | values as bytes |
//! | `sorter` | ORDER BY |
//! | `sort` | orders of rows that are kept, and the first rows of an order |
//! | `spill` | rows beyond memory |
//! | `lock` | SELECT … FOR UPDATE and its like |
//! | `reel` | rows that are kept until they are fetched |
//! | `supply` | the rows of an answer that is fetched a number at a time |
//! | `suspended` | plans that make their rows when they are fetched |
//! | `stretch` | ranges of an index as keys |
//! | `statement` | one run of a statement: its rows, its changes, its foreign keys |

mod batch;
mod change;
mod coded;
mod distinct;
mod foreign;
mod group;
mod inner;
mod join;
mod lock;
mod meter;
mod operators;
mod recursive;
mod reel;
mod series;
mod sort;
mod sorter;
mod source;
mod spill;
mod spool;
mod statement;
mod stretch;
mod sub;
mod supply;
mod suspended;
mod window;

use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;

pub(crate) use foreign::{Pending, settle, shown};
use inner::Inner;
pub(crate) use meter::measured;
use source::Source;
use spool::Spool;
pub use statement::Rows;
pub(crate) use statement::{Given, Terms, run};
pub use supply::Supply;

use crate::depth;
use crate::error::Result;
use crate::expr::memory::Kept;
use crate::expr::{Context, Env};
use crate::plan::{Extension, Plan, Shared};
use crate::types::Datum;

/// A row.
pub(crate) type Row = Vec<Datum>;
/// The sink's answer: more rows, or no more.
pub(crate) type Flow = Result<ControlFlow<()>>;
/// Where rows go. The row may be taken; what stands in it afterwards does not matter.
pub(crate) type Sink<'s> = &'s mut dyn FnMut(&mut Row) -> Flow;
/// A run of a plan.
type Run<'r> = Pin<Box<dyn Future<Output = Result<()>> + 'r>>;

/// A run of a plan, and all that it keeps.
pub(crate) struct Executor<'e, S> {
    pub(crate) source: &'e mut S,
    pub(crate) context: &'e Context,
    /// The plan runs once more for these rows alone: the newest versions of rows that are changed or locked, by the scans that
    /// have found them.
    pub(crate) again: Vec<(usize, Row)>,
    /// The rows that recursive queries have made last, the innermost behind.
    pub(crate) working: Vec<(usize, std::rc::Rc<Vec<Row>>)>,
    /// Rows that an insert has passed.
    pub(crate) passed: usize,
    /// Operators that run within each other.
    pub(crate) levels: usize,
    /// Rows of WITH queries that are named several times, by their numbers.
    pub(crate) shared: std::collections::HashMap<usize, std::rc::Rc<KeptRows<'e>>>,
    /// Scans that have run, by where they stand in memory: the plan does not move meanwhile.
    inner: std::collections::HashMap<usize, Inner<'e>>,
}

/// Rows, and the memory that they take.
pub(crate) struct KeptRows<'e> {
    pub(crate) rows: Vec<Row>,
    pub(crate) kept: Kept<'e>,
}

impl<'e> KeptRows<'e> {
    pub(crate) fn none(context: &'e Context) -> Self {
        Self { rows: Vec::new(), kept: context.memory.kept() }
    }

    /// Takes a row.
    #[inline]
    pub(crate) fn push(&mut self, row: &mut Row) -> Result<()> {
        self.kept.row(row)?;
        self.rows.push(std::mem::take(row));
        Ok(())
    }
}

impl<'e, S: Source> Executor<'e, S> {
    pub(crate) fn new(source: &'e mut S, context: &'e Context) -> Self {
        let (again, working) = (Vec::new(), Vec::new());
        let (shared, inner) = (std::collections::HashMap::new(), std::collections::HashMap::new());
        Self { source, context, again, working, passed: 0, levels: 0, shared, inner }
    }

    fn env<'v>(&'v self, row: &'v [Datum], outer: &'v [Datum]) -> Env<'v> {
        Env { row, outer, context: self.context }
    }

    /// All rows of a plan.
    pub(crate) async fn rows(&mut self, plan: &Plan, outer: &[Datum]) -> Result<KeptRows<'e>> {
        let mut all = KeptRows::none(self.context);
        self.run(plan, outer, &mut |row| {
            all.push(row)?;
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        Ok(all)
    }

    /// All rows of a plan, for a change, which begins when all are known: so it meets none of its own rows.
    async fn spooled(&mut self, plan: &Plan) -> Result<Spool<'e>> {
        let mut all = Spool::none(self.context);
        self.run(plan, &[], &mut |row| {
            all.push(row)?;
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        Ok(all)
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
            self.levels += 1;
            let ran = match depth::has_stack_under(self.levels) {
                Ok(()) => self.run_operator(plan, outer, sink).await,
                Err(error) => Err(error),
            };
            self.levels -= 1;
            ran
        })
    }

    async fn run_operator(&mut self, plan: &Plan, outer: &[Datum], sink: Sink<'_>) -> Result<()> {
        match plan {
            Plan::Unit => sink(&mut Vec::new()).map(drop),
            Plan::Values(rows) => self.values(rows, outer, sink).await,
            Plan::Made(rows) => Box::pin(emit(self.context, rows.iter().cloned(), sink)).await,
            Plan::Scan { table, used, access, filter, named } => {
                self.scan((table, used, access, filter, *named), outer, sink).await
            }
            Plan::Filter(input, conditions) => self.filter(input, conditions, outer, sink).await,
            Plan::Project(input, exprs) => self.project(input, exprs, outer, sink).await,
            // In boxes, so that the futures of what all statements have stay small.
            Plan::Join(join) => Box::pin(self.join(join, outer, sink)).await,
            Plan::Apply(input, subs) => Box::pin(self.apply(input, subs, outer, sink)).await,
            Plan::Aggregate { input, keys, calls } => {
                Box::pin(self.aggregate(input, keys, calls, outer, sink)).await
            }
            Plan::Sort(input, keys) => Box::pin(self.sort((input, keys), 0, outer, sink)).await,
            Plan::Distinct(input, keys) => Box::pin(self.distinct(input, keys.as_deref(), outer, sink)).await,
            Plan::Limit { input, limit, offset } => {
                Box::pin(self.limit(input, limit.as_ref(), offset.as_ref(), outer, sink)).await
            }
            Plan::SetOp { op, all, left, right } => {
                Box::pin(self.set_op((*op, *all), (left, right), outer, sink)).await
            }
            Plan::Extend(input, Extension::Sets(sets)) => Box::pin(self.sets(input, sets, outer, sink)).await,
            Plan::Extend(input, Extension::Windows(calls)) => {
                Box::pin(self.windows(input, calls, outer, sink)).await
            }
            Plan::Recursive(query) => Box::pin(self.recursive(query, outer, sink)).await,
            Plan::Working(number) => Box::pin(self.working_rows(*number, sink)).await,
            Plan::Shared(shared) => Box::pin(self.shared(shared, sink)).await,
            Plan::Set(set) => Box::pin(self.set(set, outer, sink)).await,
            Plan::Lock { input, targets, few } => {
                Box::pin(self.lock(input, targets, *few, outer, sink)).await
            }
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
    }

    /// The rows of a WITH query that is named several times: it runs the first time that they are asked for.
    async fn shared(&mut self, shared: &Shared, sink: Sink<'_>) -> Result<()> {
        let known = self.shared.get(&shared.number).cloned();
        let all = match known {
            Some(all) => all,
            None => {
                let all = std::rc::Rc::new(self.rows(&shared.plan, &[]).await?);
                self.shared.insert(shared.number, all.clone());
                all
            }
        };
        emit(self.context, all.rows.iter().cloned(), sink).await
    }
}

/// Hands rows that are kept to a sink.
async fn emit(context: &Context, rows: impl IntoIterator<Item = Row>, sink: Sink<'_>) -> Result<()> {
    for mut row in rows {
        if sink(&mut row)?.is_break() {
            break;
        }
        if context.is_due() {
            context.pause().await?;
        }
    }
    Ok(())
}
