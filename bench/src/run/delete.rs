//! Deletes most rows of a table, spread evenly over it (the hard case: no chunk and no memory page becomes empty on
//! its own), and waits for the memory to go back to the operating system.

use std::time::Duration;

use thermocline_engine::{Database, Index, Result as EngineResult, TransactionOptions, block_on};

use super::{Numbers, RunError, Session, engine, plain};
use crate::machine;
use crate::report::{Deleted, size};
use crate::time;

/// How long memory may take to come back.
const PATIENCE: Duration = Duration::from_secs(60);
/// Nothing came back for so long: nothing more will.
const STANDSTILL: Duration = Duration::from_secs(10);

pub(super) fn run(session: &mut Session<'_>, records: u64, percent: u32) -> Result<Deleted, RunError> {
    let database = session.open()?;
    let threads = session.settings.threads;
    let rss_bytes_empty = resident_bytes()?;
    let (table, _) = session.load(|count| plain::load(&database, records, threads, count))?;
    let rss_bytes_full = resident_bytes()?;
    let index = table.primary();
    let goes = |id: u64| id % 100 < u64::from(percent);

    let began = time::now();
    session
        .with_progress("deleting", |count| {
            plain::in_batches(records, threads, count, |first, end| {
                block_on(delete(&database, &index, (first..end).filter(|id| goes(*id))))
            })
        })
        .map_err(engine("delete the rows"))?;
    let seconds = began.elapsed().as_secs_f64();

    let (rss_bytes_after, given_back_seconds) = wait_for_memory(session)?;
    let wrong =
        block_on(first_wrong(&database, &index, records, goes)).map_err(engine("read the rows again"))?;
    if let Some(id) = wrong {
        return Err(RunError::Wrong(format!("row {id} is there and should not be, or the other way round")));
    }
    let taken = rss_bytes_full.saturating_sub(rss_bytes_empty);
    let given_back = rss_bytes_full.saturating_sub(rss_bytes_after);
    let memory_bytes = Numbers::of(&database).memory_bytes;
    session.close(database)?;
    Ok(Deleted {
        rows_deleted: records / 100 * u64::from(percent) + (records % 100).min(u64::from(percent)),
        seconds,
        rss_bytes_empty,
        rss_bytes_full,
        rss_bytes_after,
        given_back_percent: 100.0 * given_back as f64 / taken.max(1) as f64,
        given_back_seconds,
        memory_bytes,
    })
}

async fn delete(database: &Database, index: &Index, ids: impl Iterator<Item = u64>) -> EngineResult<()> {
    let mut transaction = database.begin(TransactionOptions::default())?;
    for id in ids {
        transaction.delete(index, &plain::key(id)).await?;
    }
    transaction.commit().await
}

/// The first of some rows that is there and should not be, or the other way round.
async fn first_wrong(
    database: &Database,
    index: &Index,
    records: u64,
    goes: impl Fn(u64) -> bool,
) -> EngineResult<Option<u64>> {
    let mut transaction = database.begin(TransactionOptions::default().read_only())?;
    // A prime stride meets every remainder of 100.
    for id in (0..records).step_by(997) {
        let there = transaction.read(index, &plain::key(id), |_| ()).await?.is_some();
        if there == goes(id) {
            return Ok(Some(id));
        }
    }
    transaction.commit().await?;
    Ok(None)
}

/// Waits until resident memory falls no further. Returns it, and after how many seconds it stood there.
fn wait_for_memory(session: &mut Session<'_>) -> Result<(u64, f64), RunError> {
    let began = time::now();
    let mut lowest = resident_bytes()?;
    let mut fell = began;
    while began.elapsed() < PATIENCE && fell.elapsed() < STANDSTILL {
        std::thread::sleep(Duration::from_millis(100));
        let now = resident_bytes()?;
        // Less than 1 % is noise.
        if now < lowest - lowest / 100 {
            lowest = now;
            fell = time::now();
        }
        session.progress.show(|| format!("waiting for memory to go back: resident {}", size(now)));
    }
    Ok((resident_bytes()?, (fell - began).as_secs_f64()))
}

fn resident_bytes() -> Result<u64, RunError> {
    machine::rss_bytes().ok_or_else(|| {
        RunError::Setting(
            "this system does not tell the resident memory of a process, which `delete` measures".into(),
        )
    })
}
