//! Deletes most rows of a table, or migrates them, spread evenly over it (the hard case: no chunk and no memory page
//! becomes empty on its own), and waits for the memory to go back to the operating system.
//!
//! What a cold row takes is measured strictly: all memory of the table, its indexes, the filters, fences and the memo,
//! less the part of what the table and its indexes took before that falls to the rows that stay. So slots and nodes that
//! stay though their rows have gone count, too. Buffers and frames of the store do not: they follow the limit, not the rows.

use std::collections::BTreeMap;
use std::time::Duration;

use thermocline_engine::{Database, Index, Result as EngineResult, Table, TransactionOptions, block_on};

use super::{Numbers, RunError, Session, engine, plain};
use crate::machine;
use crate::report::{Deleted, size};
use crate::time;

/// Time that memory may take to come back.
const PATIENCE: Duration = Duration::from_secs(60);
/// Nothing came back for so long: nothing more will.
const STANDSTILL: Duration = Duration::from_secs(10);

/// Rows of a batch that migrates.
const BATCH_ROWS: usize = 1_000;
/// The memory of a table, by the names in [`Numbers::memory_bytes`].
const OF_ROWS: [&str; 4] = ["versions", "slots", "hash_indexes", "ordered_indexes"];
/// The memory of cold rows beside that.
const OF_COLD_ROWS: [&str; 3] = ["memo", "cold_filters", "cold_fences"];

pub(super) fn run(
    session: &mut Session<'_>,
    records: u64,
    percent: u32,
    migrate: bool,
) -> Result<Deleted, RunError> {
    let database = session.open()?;
    let threads = session.settings.threads;
    let rss_bytes_empty = resident_bytes()?;
    let (table, _) =
        session.load(&database, |count| plain::load(&database, records, migrate, threads, count))?;
    let rss_bytes_full = resident_bytes()?;
    let index = table.primary();
    let goes = |id: u64| id % 100 < u64::from(percent);

    let (before, began) = (Numbers::of(&database), time::now());
    let what = if migrate { "migrating" } else { "deleting" };
    let rows = records / 100 * u64::from(percent) + (records % 100).min(u64::from(percent));
    session
        .with_progress(what, |count| {
            if migrate {
                return migrate_rows(&database, &table, goes, |done| count(done, rows));
            }
            plain::in_batches(records, threads, count, |first, end| {
                block_on(delete(&database, &index, (first..end).filter(|id| goes(*id))))
            })
        })
        .map_err(engine(if migrate { "migrate the rows" } else { "delete the rows" }))?;
    let seconds = began.elapsed().as_secs_f64();
    let cpu_us = (Numbers::of(&database).cpu_ns - before.cpu_ns) as f64 / 1e3;

    let (rss_bytes_after, given_back_seconds) = wait_for_memory(session)?;
    let Numbers { memory_bytes, cold, .. } = Numbers::of(&database);
    let is_there = |id: u64| migrate || !goes(id);
    let wrong =
        block_on(first_wrong(&database, &index, records, is_there)).map_err(engine("read the rows again"))?;
    if let Some(id) = wrong {
        return Err(RunError::Wrong(format!("row {id} is there and should not be, or the other way round")));
    }
    let taken = rss_bytes_full.saturating_sub(rss_bytes_empty).max(1) as f64;
    let given_back = rss_bytes_full.saturating_sub(rss_bytes_after) as f64;
    session.close(database)?;
    let each = |sum: f64| (migrate && rows > 0).then(|| sum / rows as f64);
    let stays = 1.0 - rows as f64 / records as f64;
    let store = sum(&memory_bytes, &OF_COLD_ROWS);
    Ok(Deleted {
        rows_deleted: if migrate { 0 } else { rows },
        rows_migrated: if migrate { rows } else { 0 },
        seconds,
        rss_bytes_empty,
        rss_bytes_full,
        rss_bytes_after,
        given_back_percent: 100.0 * given_back / taken,
        given_back_of_theirs_percent: 100.0 * given_back / (taken * (1.0 - stays)),
        resident_bytes_per_cold_row: each(
            sum(&memory_bytes, &OF_ROWS) - stays * sum(&before.memory_bytes, &OF_ROWS) + store,
        ),
        store_bytes_per_cold_row: each(store),
        cpu_us_per_migrated_row: each(cpu_us),
        given_back_seconds,
        memory_bytes,
        cold,
    })
}

fn sum(memory_bytes: &BTreeMap<String, u64>, kinds: &[&str]) -> f64 {
    kinds
        .iter()
        .map(|kind| *memory_bytes.get(*kind).expect("a kind of memory that the engine counts"))
        .sum::<u64>() as f64
}

/// Migrates all rows whose ids `goes` accepts, batch by batch.
fn migrate_rows(
    database: &Database,
    table: &Table,
    goes: impl Fn(u64) -> bool,
    count: impl Fn(u64),
) -> EngineResult<()> {
    let (steps, mut moved) = (database.cold_steps(), 0);
    let batches = steps.batches(table, |row| goes(plain::PlainRow(row).id().cast_unsigned()), BATCH_ROWS);
    for batch in batches {
        moved += steps.migrate_listed(table, &batch)? as u64;
        count(moved);
    }
    Ok(())
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
    is_there: impl Fn(u64) -> bool,
) -> EngineResult<Option<u64>> {
    let mut transaction = database.begin(TransactionOptions::default().read_only())?;
    // A prime stride meets every remainder of 100.
    for id in (0..records).step_by(997) {
        let there = transaction.read(index, &plain::key(id), |_| ()).await?.is_some();
        if there != is_there(id) {
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
