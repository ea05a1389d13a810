//! Statements on rows: the transaction that one runs in, how often it is tried, where its rows go.

use thermocline_engine::{Isolation, Transaction, TransactionOptions};

use super::{EngineCatalog, Open};
use crate::error::{Error, Result};
use crate::exec::Executor;
use crate::exec::change::{Outcome, STALE};
use crate::exec::foreign::{self, Pending};
use crate::exec::source::{EngineSource, REDEFINED};
use crate::expr::Context;
use crate::expr::memory::size_of_row;
use crate::plan::Bound;
use crate::types::Datum;

/// How often a statement runs again that others were in the way of.
const TRIES: u32 = 100;

/// Where the rows of a statement go.
pub trait Rows {
    /// Takes the next row; the bytes that it keeps of it, which are charged to the memory limit.
    fn row(&mut self, row: &[Datum]) -> usize;
    /// Forgets the rows of this statement: it is run again.
    fn restart(&mut self);
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

/// The command tag, and the rows that it counts.
pub(super) fn tag_of(bound: &Bound, count: u64) -> String {
    match bound {
        Bound::Query(_) => format!("SELECT {count}"),
        Bound::Insert(_) => format!("INSERT 0 {count}"),
        Bound::Update(_) => format!("UPDATE {count}"),
        Bound::Delete(_) => format!("DELETE {count}"),
    }
}

async fn run_bound<'e, 't>(
    source: &'e mut EngineSource<'t>,
    bound: &Bound,
    context: &'e Context,
    rows: &mut dyn Rows,
    pending: &mut Vec<Pending>,
) -> Result<u64> {
    let mut executor = Executor::new(source, context);
    let mut kept = context.memory.kept();
    let outcome: Outcome<'_> = match bound {
        Bound::Query(query) => {
            let mut count = 0;
            let mut see = |row: &mut crate::exec::Row| {
                count += 1;
                kept.add(rows.row(row))?;
                Ok(std::ops::ControlFlow::Continue(()))
            };
            executor.run(&query.plan, &[], &mut see).await?;
            kept.leave();
            return Ok(count);
        }
        Bound::Insert(insert) => {
            let ran = executor.insert(insert).await;
            ran.map_err(|error| error.row(executor.passed))?
        }
        Bound::Update(update) => executor.update(update).await?,
        Bound::Delete(delete) => executor.delete(delete).await?,
    };
    for row in &outcome.rows {
        kept.add(rows.row(row))?;
        if context.is_due() {
            context.pause().await?;
        }
    }
    kept.leave();
    *pending = outcome.pending;
    Ok(outcome.count)
}

/// A statement in a transaction of its own. If others were in its way, it runs again: nobody has seen it yet.
pub(super) async fn run_alone(
    catalog: EngineCatalog<'_>,
    bound: &Bound,
    context: &Context,
    (isolation, read_only): (Isolation, bool),
    rows: &mut dyn Rows,
) -> Result<u64> {
    let options = TransactionOptions::new().isolation(isolation);
    let only_reads = matches!(bound, Bound::Query(query) if !query.locks);
    let options = if read_only || only_reads { options.read_only() } else { options };
    let mut tries = 0;
    loop {
        let mut transaction = catalog.db.begin(options)?;
        let done = match run_statement(catalog, &mut transaction, isolation, bound, context, rows, &|_| false)
            .await
        {
            Ok((count, _)) => {
                let committed = transaction.commit_with(|| context.interrupt.decide()).await;
                committed.map(|()| count).map_err(Error::from)
            }
            Err(error) => Err(error),
        };
        tries += 1;
        match done {
            Err(error) if error.message == REDEFINED => return Err(error),
            Err(error) if ["40001", "40P01"].contains(&error.code) && tries < TRIES => rows.restart(),
            done => return done,
        }
    }
}

/// A statement in an open transaction. At read committed it is taken back and runs again when a row was lost to it.
pub(super) async fn run_open(
    catalog: EngineCatalog<'_>,
    open: &mut Open,
    bound: &Bound,
    context: &Context,
    rows: &mut dyn Rows,
) -> Result<u64> {
    let modes = &open.constraints;
    let waits = |one: &Pending| one.may_wait() && modes.deferred(&one.key().name, one.key().deferred);
    let ran =
        run_statement(catalog, &mut open.transaction, open.isolation, bound, context, rows, &waits).await;
    let (count, later) = ran?;
    open.deferred.extend(later);
    Ok(count)
}

/// The rows that a statement counts, and what foreign keys ask for when the transaction commits: what `waits` says.
async fn run_statement(
    catalog: EngineCatalog<'_>,
    transaction: &mut Transaction,
    isolation: Isolation,
    bound: &Bound,
    context: &Context,
    rows: &mut dyn Rows,
    waits: &dyn Fn(&Pending) -> bool,
) -> Result<(u64, Vec<Pending>)> {
    let again = |error: &Error| error.message == STALE && isolation == Isolation::ReadCommitted;
    for _ in 1..TRIES {
        // Foreign keys are looked at when the statement has ended, and cannot be undone alone.
        let before = if isolation == Isolation::ReadCommitted && bound.has_foreign_keys() {
            Some(transaction.savepoint()?)
        } else {
            None
        };
        let mut pending = Vec::new();
        let mut source = EngineSource::new((catalog.db, catalog.tables), transaction)?
            .waiting_at_most(context.lock_timeout)
            .within(context);
        let count = match run_bound(&mut source, bound, context, rows, &mut pending).await {
            // What has to wait for an advisory lock runs again when that is there.
            Err(error) if error.message == crate::shared::facts::must_wait().message => {
                source.undo();
                return Err(error);
            }
            // So does what is to be bound anew.
            Err(error) if error.message == REDEFINED => {
                source.undo();
                return Err(error);
            }
            Err(error) if again(&error) => {
                source.undo();
                rows.restart();
                continue;
            }
            ran => ran?,
        };
        drop(source);
        let (later, now): (Vec<Pending>, Vec<Pending>) = pending.into_iter().partition(waits);
        match foreign::settle(catalog, transaction, isolation, context, now).await {
            Ok(()) => return Ok((count, later)),
            Err(error) if again(&error) && before.is_some() => {
                transaction.rollback_to(&before.expect("there is one"))?;
                rows.restart();
            }
            Err(error) => return Err(error),
        }
    }
    Err(Error::new("40001", STALE))
}
