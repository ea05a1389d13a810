//! What statements and cursors cost, in memory: a point read by a statement against the operation alone, one row changed by
//! many statements of one transaction, and a cursor against a scan.
//!
//! `cargo run --release -p thermocline-engine --example statement_bench -- [rows, default 2000000]`

use std::hint::black_box;
use std::ops::ControlFlow;
use std::time::Duration;

use thermocline_engine::row::{Column, KeyBuf, Type, Value};
use thermocline_engine::{
    Change, Changed, Cursor, Database, Direction, IndexSchema, Isolation, KeyRange, Options, Result, Table,
    TableSchema, Transaction, TransactionOptions, block_on,
};

const READS: i64 = 1_000_000;
const UPDATES: i64 = 1_000_000;
const BATCH: usize = 1_000;

fn table(db: &Database, rows: i64) -> Result<Table> {
    let table = db.create_table(
        TableSchema::new("t")
            .column(Column::new("id", Type::Int8))
            .column(Column::new("value", Type::Int8))
            .primary_key(IndexSchema::hash("t_key", &["id"]))
            .index(IndexSchema::ordered("t_by_id", &["id"])),
    )?;
    db.bulk_load(&table, (0..rows).map(|id| [Value::Int8(id), Value::Int8(0)]))?;
    Ok(table)
}

/// Wall-clock time of a run.
fn timed(run: impl FnOnce() -> Result<()>) -> Result<Duration> {
    #[allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    let start = std::time::Instant::now();
    run()?;
    Ok(start.elapsed())
}

/// Nanoseconds of each of `count` rounds.
fn each(count: i64, mut round: impl FnMut(i64) -> Result<()>) -> Result<f64> {
    let time = timed(|| (0..count).try_for_each(&mut round))?;
    Ok(time.as_nanos() as f64 / count as f64)
}

fn point_reads(db: &Database, table: &Table, rows: i64, level: Isolation) -> Result<(f64, f64)> {
    let (index, layout) = (table.primary(), table.layout());
    let key = |number: i64| KeyBuf::new().i64(number.wrapping_mul(7_919) % rows.min(1_000));
    let begin = || db.begin(TransactionOptions::new().isolation(level));
    let alone = |tx: &mut Transaction| {
        each(READS, |number| {
            block_on(tx.read(&index, &key(number), |row| black_box(layout.i64(row, 1)))).map(drop)
        })
    };
    let stated = |tx: &mut Transaction| {
        each(READS, |number| {
            let mut statement = tx.statement()?;
            block_on(statement.read(&index, &key(number), |row| black_box(layout.i64(&row, 1)))).map(drop)
        })
    };
    let mut best = (f64::MAX, f64::MAX);
    for _ in 0..5 {
        best.0 = best.0.min(alone(&mut begin()?)?);
        best.1 = best.1.min(stated(&mut begin()?)?);
    }
    Ok(best)
}

fn one_row(db: &Database, table: &Table) -> Result<(f64, f64)> {
    let (index, key) = (table.primary(), KeyBuf::new().i64(1));
    let mut tx = db.begin(TransactionOptions::new())?;
    let mut update = |number: i64| {
        let mut statement = tx.statement()?;
        let changed = block_on(statement.change(&index, &key, |row| {
            row.set_i64(1, number)?;
            Ok((Change::Update, ()))
        }))?;
        assert_eq!(changed, Changed::Updated(()));
        Ok(())
    };
    let first = each(UPDATES / 10, &mut update)?;
    each(UPDATES - UPDATES / 5, &mut update)?;
    Ok((first, each(UPDATES / 10, &mut update)?))
}

fn main() -> Result<()> {
    let rows = std::env::args().nth(1).and_then(|rows| rows.parse().ok()).unwrap_or(2_000_000);
    let db = Database::open_in_memory(Options::default().with_memory_limit(Some(2 << 30)))?;
    let table = table(&db, rows)?;
    for level in [Isolation::ReadCommitted, Isolation::Snapshot] {
        let (alone, stated) = point_reads(&db, &table, rows, level)?;
        println!(
            "point read, {level}: alone {alone:.1} ns, in a statement {stated:.1} ns, {:+.1} ns",
            stated - alone
        );
    }
    let (first, last) = one_row(&db, &table)?;
    println!("one row, {UPDATES} statements: first tenth {first:.1} ns each, last tenth {last:.1} ns each");
    let index = table.index("t_by_id")?;
    let mut tx = db.begin(TransactionOptions::new())?;
    for _ in 0..3 {
        let look = |row: &[u8]| {
            black_box(row.len());
            ControlFlow::Continue(())
        };
        let scan = timed(|| block_on(tx.scan(&index, KeyRange::all(), Direction::Forward, look)))?;
        let whole = timed(|| block_on(tx.scan_table(&table, look)))?;
        let mut cursor = tx.open_cursor(&index, KeyRange::all(), Direction::Forward)?;
        let ordered = timed(|| drain(&mut tx, &mut cursor))?;
        let mut cursor = tx.open_table_cursor(&table)?;
        let by_table = timed(|| drain(&mut tx, &mut cursor))?;
        println!(
            "{rows} rows: scan {scan:.0?}, cursor {ordered:.0?}; whole table {whole:.0?}, cursor {by_table:.0?}"
        );
    }
    Ok(())
}

/// Fetches all that is left, in batches.
fn drain(tx: &mut Transaction, cursor: &mut Cursor) -> Result<()> {
    while !cursor.is_finished() {
        block_on(tx.fetch(cursor, BATCH, |row| _ = black_box(row.len())))?;
    }
    Ok(())
}
