//! One run of a statement on rows: its rows are handed over, its changes made, and its foreign keys looked at.

use std::ops::ControlFlow;

use thermocline_engine::{Isolation, Transaction};

use super::change::Outcome;
use super::foreign::{self, Pending};
use super::source::EngineSource;
use super::supply::Supply;
use super::suspended::Suspended;
use super::{Executor, Row};
use crate::catalog::Identity;
use crate::error::{Again, Error, Result};
use crate::expr::Context;
use crate::expr::memory::{Kept, size_of_row};
use crate::expr::outlet::{Of, Outlet};
use crate::pg_catalog::EngineCatalog;
use crate::plan::Bound;
use crate::types::Datum;

/// Where the rows of a statement go.
pub trait Rows {
    /// Takes the next row; the bytes that it keeps of it, which are charged to the memory limit.
    fn row(&mut self, row: &[Datum]) -> usize;
    /// Forgets the rows of this statement: it is run again. Not called once rows have left through [`Rows::outlet`].
    fn restart(&mut self);
    /// The way of rows to a client while the statement runs. None: the rows stay until it has ended.
    fn outlet(&self) -> Option<&Outlet> {
        None
    }
    /// Where the rows are kept to be fetched a number at a time. None: they are taken one by one.
    #[doc(hidden)]
    fn supply(&mut self) -> Option<&mut Supply> {
        None
    }
}

/// The rows of a statement on their way to its user, and the memory that they take there.
pub(crate) struct Given<'g> {
    rows: &'g mut dyn Rows,
    kept: Kept<'g>,
}

impl<'g> Given<'g> {
    pub(crate) fn new(rows: &'g mut dyn Rows, context: &'g Context) -> Self {
        Self { rows, kept: context.memory.kept() }
    }

    /// Gives a row away.
    pub(crate) fn row(&mut self, row: &[Datum], context: &Context) -> Result<()> {
        if let Some(supply) = self.rows.supply() {
            return supply.push(row, context);
        }
        if let Some(outlet) = &context.outlet {
            self.kept.remove(outlet.take_left());
        }
        let bytes = self.rows.row(row);
        self.kept.add(bytes)?;
        context.gather(bytes);
        Ok(())
    }

    /// All of them have been given.
    pub(crate) async fn end(self, context: &Context) -> Result<()> {
        self.kept.leave();
        match self.rows.supply() {
            Some(supply) => Box::pin(supply.settle(context)).await,
            None => Ok(()),
        }
    }
}

impl Rows for Vec<Vec<Datum>> {
    fn row(&mut self, row: &[Datum]) -> usize {
        self.push(row.to_vec());
        size_of_row(row)
    }

    fn restart(&mut self) {
        self.clear();
    }
}

/// The transaction that a statement runs in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) isolation: Isolation,
    /// It holds this statement alone, and is dropped with it.
    pub(crate) alone: bool,
}

impl Terms {
    /// May a statement that has ended with this error run again in the same transaction?
    fn lets_run_again(self, error: &Error) -> bool {
        match error.again() {
            Again::No => false,
            Again::Stale => self.isolation == Isolation::ReadCommitted,
            Again::Rebind | Again::Lock => true,
        }
    }
}

/// Runs a statement once: the rows that it counts, and the questions of its foreign keys that wait for the commit, as `waits`
/// says.
///
/// `tables`: those that the statement reads. All are opened before its first row if rows may leave before it has ended.
///
/// If it ends with an error after which it may run again ([`Error::again`]), what it has done is taken back.
pub(crate) async fn run(
    catalog: EngineCatalog<'_>,
    transaction: &mut Transaction,
    terms: Terms,
    (bound, tables): (&Bound, &[(String, Identity)]),
    context: &Context,
    rows: &mut dyn Rows,
    waits: &dyn Fn(&Pending) -> bool,
) -> Result<(u64, Vec<Pending>)> {
    if let Bound::Query(query) = bound
        && !terms.alone
        && let Some(supply) = rows.supply()
        && supply.may_suspend()
        && cannot_run_again(bound, context)
    {
        let suspended = Suspended::of(catalog, transaction, (&query.plan, tables), context);
        if let Some(suspended) = Box::pin(suspended).await? {
            supply.suspend(suspended);
            return Ok((0, Vec::new()));
        }
    }
    // Foreign keys are looked at when the statement has ended, and cannot be undone alone.
    let before = if terms.isolation == Isolation::ReadCommitted && bound.has_foreign_keys() {
        Some(transaction.savepoint()?)
    } else {
        None
    };
    let mut pending = Vec::new();
    context.later.clear();
    let mut source = EngineSource::new((catalog.db, catalog.tables), transaction)?.within(context);
    if let Some(outlet) = &context.outlet
        && !has_one_row(bound)
        && cannot_run_again(bound, context)
    {
        source.open(tables).await?;
        source.attend()?;
        let own_snapshot = terms.isolation == Isolation::ReadCommitted;
        outlet.begin(if terms.alone { Of::Alone } else { Of::Open(own_snapshot) });
    }
    let count = match run_bound(&mut source, bound, context, rows, &mut pending).await {
        Err(error) if terms.lets_run_again(&error) => {
            source.undo();
            return Err(error);
        }
        ran => ran?,
    };
    drop(source);
    let (later, now): (Vec<Pending>, Vec<Pending>) = pending.into_iter().partition(waits);
    match foreign::settle(catalog, transaction, terms.isolation, context, now).await {
        Ok(()) => Ok((count, later)),
        Err(error) if terms.lets_run_again(&error) => match before {
            Some(before) => {
                transaction.rollback_to(&before)?;
                Err(error)
            }
            None if terms.alone => Err(error),
            None => Err(error.again_as(Again::No)),
        },
        Err(error) => Err(error),
    }
}

/// True if nothing that happens behind its first row lets a statement run again: others are in the way of changes and locks alone,
/// and the session's locks and wishes wait for the statement's end.
fn cannot_run_again(bound: &Bound, context: &Context) -> bool {
    matches!(bound, Bound::Query(query) if !query.locks) && context.facts.is_none() && context.meter.is_none()
}

/// True if no row can leave before the last one has come: a read of one row asks for nothing that this needs.
fn has_one_row(bound: &Bound) -> bool {
    matches!(bound, Bound::Query(query) if query.plan.is_of_one_row())
}

async fn run_bound<'e, 't>(
    source: &'e mut EngineSource<'t>,
    bound: &Bound,
    context: &'e Context,
    rows: &mut dyn Rows,
    pending: &mut Vec<Pending>,
) -> Result<u64> {
    let mut executor = Executor::new(source, context);
    let mut given = Given::new(rows, context);
    let outcome: Outcome<'_> = match bound {
        Bound::Query(query) => {
            let mut count = 0;
            let mut see = |row: &mut Row| {
                count += 1;
                given.row(row, context)?;
                Ok(ControlFlow::Continue(()))
            };
            executor.run(&query.plan, &[], &mut see).await?;
            context.slept().await?;
            given.end(context).await?;
            return Ok(count);
        }
        Bound::Insert(insert) => {
            let ran = executor.insert(insert).await;
            ran.map_err(|error| error.row(executor.passed))?
        }
        Bound::Update(update) => executor.update(update).await?,
        Bound::Delete(delete) => executor.delete(delete).await?,
    };
    context.slept().await?;
    for row in &outcome.rows {
        given.row(row, context)?;
        if context.is_due() {
            context.pause().await?;
        }
    }
    given.end(context).await?;
    *pending = outcome.pending;
    Ok(outcome.count)
}
