//! Plans that stand still between two fetches: a scan of one table, or of a range of an ordered index, with what passes its rows on.
//!
//! ```text
//! the engine's cursor ─► filter, projection, OFFSET and LIMIT, in the order of the plan ─► as many rows as are wanted
//! ```
//!
//! Rules:
//! - The engine's cursor sees what the transaction saw when the plan was suspended, its own changes until then among it, whatever it
//!   changes or sees after that. At read committed the cursor has a snapshot of its own: if memory is short that is cancelled, and the
//!   next fetch fails (72000), not the transaction's rest.
//! - The table is in use from then on: its definition stays what it is. The engine refuses the transaction's own changes of it (55006)
//!   while the cursor is open.
//! - A plan borrows the transaction in a fetch alone. It ends with its last row: then its snapshot goes.
//! - Plans with other operators, those that lock rows, and those that ask the session run at once; and so do all while the transaction
//!   has suspended many, or no place is left for a snapshot.

use std::ops::ControlFlow;
use std::sync::Arc;

use thermocline_engine as engine;
use thermocline_row::Layout;

use super::operators::{left_over, limit_of};
use super::source::{EngineSource, decode, is_formed, with_forms};
use super::stretch::{Begin, Stretch};
use super::{Executor, Row};
use crate::catalog::{Identity, Table};
use crate::error::Result;
use crate::expr::{Context, Env, Expr};
use crate::pg_catalog::EngineCatalog;
use crate::plan::{Access, Plan};
use crate::types::Datum;

/// An operator that passes rows on.
enum Step {
    Filter(Vec<Expr>),
    Project(Vec<Expr>),
    Cut(usize),
    /// Rows that are passed over, and rows that are let through.
    Limit(i64, i64),
}

/// A plan that is suspended. See the module.
pub(super) struct Suspended {
    /// None: it has ended.
    cursor: Option<engine::Cursor>,
    stretch: Option<Stretch>,
    table: Arc<Table>,
    layout: Arc<Layout>,
    columns: Vec<usize>,
    is_formed: bool,
    steps: Vec<Step>,
    parameters: Vec<Datum>,
    /// The row that is made, and room for the next one.
    row: Row,
    other: Row,
}

/// The scan under a plan that may be suspended, and the operators over it, the lowest first.
fn parts(plan: &Plan) -> Option<(&Plan, Vec<&Plan>)> {
    let (mut plan, mut over) = (plan, Vec::new());
    loop {
        match plan {
            Plan::Scan { named: None, access: Access::Table | Access::Index { .. }, .. } => {
                over.reverse();
                return Some((plan, over));
            }
            Plan::Filter(input, _)
            | Plan::Project(input, _)
            | Plan::Cut(input, _)
            | Plan::Limit { input, .. } => {
                over.push(plan);
                plan = input;
            }
            _ => return None,
        }
    }
}

impl Suspended {
    /// Suspends a plan before its first row. None: it is none of those that can be.
    ///
    /// `tables`: those that it reads.
    pub(super) async fn of(
        catalog: EngineCatalog<'_>,
        transaction: &mut engine::Transaction,
        (plan, tables): (&Plan, &[(String, Identity)]),
        context: &Context,
    ) -> Result<Option<Self>> {
        let Some((Plan::Scan { table, used, access, filter, .. }, over)) = parts(plan) else {
            return Ok(None);
        };
        let mut source = EngineSource::new((catalog.db, catalog.tables), transaction)?.within(context);
        source.open(tables).await?;
        let (found, layout) = source.table(table).await?;
        let env = Env { row: &[], outer: &[], context };
        let mut steps = vec![Step::Filter(left_over(table, access, filter).into_iter().cloned().collect())];
        for plan in over {
            steps.push(match plan {
                Plan::Filter(_, conditions) => Step::Filter(conditions.clone()),
                Plan::Project(_, exprs) => Step::Project(exprs.clone()),
                Plan::Cut(_, width) => Step::Cut(*width),
                Plan::Limit { limit, offset, .. } => {
                    let (skip, left) = limit_of(limit.as_ref(), offset.as_ref(), &env)?;
                    if left == 0 {
                        return Ok(None);
                    }
                    Step::Limit(skip, left)
                }
                _ => unreachable!("it is one of those that pass rows on"),
            });
        }
        let mut begin = None;
        if let Access::Index { index: number, .. } = access {
            let definition = &table.indexes[*number];
            let range = Executor::new(&mut source, context).range(access, &[])?;
            let Some(range) = range.filter(|_| definition.ordered) else { return Ok(None) };
            let index = EngineSource::index(&found, table, *number)?;
            let stretch = match Begin::of(&index, table, range)? {
                Begin::Stretch(stretch) => stretch,
                Begin::Point(key, range) if !definition.unique => Stretch::of_point(table, key, range),
                Begin::Point(..) | Begin::Nowhere => return Ok(None),
            };
            begin = Some((index, stretch));
        }
        drop(source);
        let opened = match &begin {
            None => transaction.open_table_cursor(&found),
            Some((index, stretch)) => transaction.open_cursor(index, stretch.keys(), stretch.direction()),
        };
        let cursor = match opened {
            // There are no places for its snapshot.
            Err(engine::Error::TooManyTransactions { .. }) => return Ok(None),
            opened => opened?,
        };
        let columns: Vec<usize> = (0..table.columns.len()).filter(|column| used.borrow()[*column]).collect();
        Ok(Some(Self {
            cursor: Some(cursor),
            stretch: begin.map(|(_, stretch)| stretch),
            is_formed: columns.iter().any(|column| is_formed(&table.columns[*column])),
            table: Arc::clone(table),
            layout,
            columns,
            steps,
            parameters: context.parameters.clone(),
            row: Row::new(),
            other: Row::new(),
        }))
    }

    /// The parameters of its statement.
    pub(super) fn parameters(&self) -> &[Datum] {
        &self.parameters
    }

    /// Makes rows, `most` of them at the most, and hands them to `see`. False: there are no more.
    pub(super) async fn make(
        &mut self,
        statement: &mut engine::Statement<'_>,
        context: &Context,
        most: u64,
        see: &mut dyn FnMut(&mut Row) -> Result<()>,
    ) -> Result<bool> {
        let mut made = 0;
        while made < most {
            let Self { cursor, stretch, table, layout, columns, is_formed, steps, row, other, .. } = self;
            let Some(open) = cursor else { break };
            let (mut is_over, mut is_due) = (false, false);
            let mut take = |seen: &[u8]| -> Result<ControlFlow<()>> {
                context.check()?;
                is_over = stretch.as_ref().is_some_and(|stretch| stretch.is_over(layout, seen));
                if is_over {
                    return Ok(ControlFlow::Break(()));
                }
                decode(layout, seen, columns, table.columns.len(), row);
                if *is_formed {
                    with_forms(table, columns, row);
                }
                let passes;
                (passes, is_over) = pass(steps, row, other, context)?;
                if passes {
                    see(row)?;
                    made += 1;
                }
                is_due = context.is_due();
                let stops = is_over || is_due || made == most;
                Ok(if stops { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            };
            let mut failed = None;
            let show = |seen: engine::SeenRow<'_>| {
                take(seen.bytes()).unwrap_or_else(|error| {
                    failed = Some(error);
                    ControlFlow::Break(())
                })
            };
            Box::pin(statement.fetch(open, show)).await?;
            if let Some(error) = failed {
                return Err(error);
            }
            if is_over || open.is_finished() {
                *cursor = None;
            }
            if is_due {
                context.pause().await?;
            }
        }
        Ok(self.cursor.is_some())
    }
}

/// Takes a row through the operators over its scan. True if it has passed; and if no row behind it does.
fn pass(steps: &mut [Step], row: &mut Row, other: &mut Row, context: &Context) -> Result<(bool, bool)> {
    let mut is_last = false;
    for step in steps {
        let env = Env { row, outer: &[], context };
        match step {
            Step::Filter(conditions) => {
                for condition in &*conditions {
                    if !condition.holds(&env)? {
                        return Ok((false, is_last));
                    }
                }
            }
            Step::Project(exprs) => {
                other.clear();
                for expr in &*exprs {
                    other.push(expr.eval(&env)?);
                }
                std::mem::swap(row, other);
            }
            Step::Cut(width) => row.truncate(*width),
            Step::Limit(skip, _) if *skip > 0 => {
                *skip -= 1;
                return Ok((false, is_last));
            }
            Step::Limit(_, left) => {
                *left -= 1;
                is_last |= *left == 0;
            }
        }
    }
    Ok((true, is_last))
}
