//! Rows a second of the ways to load a table: a transaction a row, batches, one bulk load.
//!
//! `cargo run --release -p thermocline-engine --example bulk_bench -- [rows] [way] [directory]`. `way`: a part of
//! the name of the only way to take, or `all`. Without a directory the database lives in memory only; with one it runs
//! at `durability = async`, and is measured twice: until the call returns, and until the log is on disk.

use std::path::PathBuf;

use thermocline_base::clock::{Clock, SystemClock};
use thermocline_engine::row::{Column, EncodedRow, Type, Value};
use thermocline_engine::{
    Database, Durability, IndexSchema, Options, Result, Table, TableSchema, TransactionOptions,
};

const PAYLOAD: usize = 92;

fn open(directory: Option<&PathBuf>) -> Result<(Database, Table)> {
    let db = match directory {
        Some(directory) => {
            std::fs::remove_dir_all(directory).ok();
            Database::open(directory, Options::default().with_durability(Durability::Async))?
        }
        None => Database::open_in_memory(Options::default())?,
    };
    let table = db.create_table(
        TableSchema::new("rows")
            .column(Column::new("id", Type::Int8))
            .column(Column::new("data", Type::Bytes))
            .primary_key(IndexSchema::hash("rows_key", &["id"])),
    )?;
    Ok((db, table))
}

fn encoded(table: &Table, count: u64) -> Result<Vec<EncodedRow>> {
    (0..count)
        .map(|id| {
            let mut row = EncodedRow::new();
            // Keys in an order that tells neither index nor memory anything.
            let id = id.wrapping_mul(0x9E37_79B9_7F4A_7C15).cast_signed();
            table.encode_values(&[Value::Int8(id), Value::Bytes(vec![7; PAYLOAD])], &mut row)?;
            Ok(row)
        })
        .collect()
}

fn in_batches(db: &Database, table: &Table, rows: &[EncodedRow], batch: usize) -> Result<()> {
    for batch in rows.chunks(batch) {
        db.run(TransactionOptions::new(), async |tx| {
            for row in batch {
                tx.insert(table, row).await?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let count = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    let only = arguments.next().filter(|only| only != "all").unwrap_or_default();
    let directory = arguments.next().map(PathBuf::from);
    type Way = (&'static str, fn(&Database, &Table, &[EncodedRow]) -> Result<()>);
    let ways: [Way; 3] = [
        ("a transaction a row", |db, table, rows| in_batches(db, table, rows, 1)),
        ("batches of 1000", |db, table, rows| in_batches(db, table, rows, 1_000)),
        ("bulk load", |db, table, rows| db.bulk_load(table, rows).map(drop)),
    ];
    for round in 0..3 {
        for (name, load) in ways.into_iter().filter(|(name, _)| name.contains(&only)) {
            let (db, table) = open(directory.as_ref())?;
            let rows = encoded(&table, count)?;
            let begin = SystemClock.now_ns();
            load(&db, &table, &rows)?;
            let loaded = SystemClock.now_ns() - begin;
            db.flush()?;
            let all = SystemClock.now_ns() - begin;
            println!(
                "round {round}, {name}: {:.2} M rows/s ({:.2} until all is on disk)",
                count as f64 * 1e3 / loaded as f64,
                count as f64 * 1e3 / all as f64
            );
            db.close()?;
        }
    }
    if let Some(directory) = directory {
        std::fs::remove_dir_all(directory).ok();
    }
    Ok(())
}
