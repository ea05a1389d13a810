//! Statements on rows: the transaction that one runs in, how often it is tried, where its rows go.

use thermocline_engine::{Database, Isolation, Transaction, TransactionOptions};

use super::Open;
use crate::error::{Error, Result};
use crate::expr::Context;
use crate::plan::Bound;
use crate::run::Executor;
use crate::run::change::{Outcome, STALE};
use crate::run::source::EngineSource;
use crate::types::Datum;

/// How often a statement runs again that others were in the way of.
const TRIES: u32 = 100;

/// Where the rows of a statement go.
pub trait Rows {
    /// Takes the next row.
    fn row(&mut self, row: &[Datum]);
    /// Forgets the rows of this statement: it is run again.
    fn restart(&mut self);
}

impl Rows for Vec<Vec<Datum>> {
    fn row(&mut self, row: &[Datum]) {
        self.push(row.to_vec());
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

async fn run_bound<'t>(
    source: &mut EngineSource<'t>,
    bound: &Bound,
    context: &Context,
    rows: &mut dyn Rows,
) -> Result<u64> {
    let mut executor = Executor { source, context, again: Vec::new() };
    let outcome: Outcome = match bound {
        Bound::Query(query) => {
            let mut count = 0;
            let mut see = |row: &mut crate::run::Row| {
                count += 1;
                rows.row(row);
                Ok(std::ops::ControlFlow::Continue(()))
            };
            executor.run(&query.plan, &[], &mut see).await?;
            return Ok(count);
        }
        Bound::Insert(insert) => executor.insert(insert).await?,
        Bound::Update(update) => executor.update(update).await?,
        Bound::Delete(delete) => executor.delete(delete).await?,
    };
    outcome.rows.iter().for_each(|row| rows.row(row));
    Ok(outcome.count)
}

/// A statement in a transaction of its own. If others were in its way, it runs again: nobody has seen it yet.
pub(super) async fn run_alone(
    db: &Database,
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
        let mut transaction = db.begin(options)?;
        let done = match run_statement(db, &mut transaction, isolation, bound, context, rows).await {
            Ok(count) => transaction.commit().await.map(|()| count).map_err(Error::from),
            Err(error) => Err(error),
        };
        tries += 1;
        match done {
            Err(error) if ["40001", "40P01"].contains(&error.code) && tries < TRIES => rows.restart(),
            done => return done,
        }
    }
}

/// A statement in an open transaction. At read committed it is taken back and runs again when a row was lost to it.
pub(super) async fn run_open(
    db: &Database,
    open: &mut Open,
    bound: &Bound,
    context: &Context,
    rows: &mut dyn Rows,
) -> Result<u64> {
    run_statement(db, &mut open.transaction, open.isolation, bound, context, rows).await
}

async fn run_statement(
    db: &Database,
    transaction: &mut Transaction,
    isolation: Isolation,
    bound: &Bound,
    context: &Context,
    rows: &mut dyn Rows,
) -> Result<u64> {
    for _ in 1..TRIES {
        let mut source = EngineSource::new(db, transaction)?;
        match run_bound(&mut source, bound, context, rows).await {
            Err(error) if error.message == STALE && isolation == Isolation::ReadCommitted => {
                source.undo();
                rows.restart();
            }
            ran => return ran,
        }
    }
    Err(Error::new("40001", STALE))
}
