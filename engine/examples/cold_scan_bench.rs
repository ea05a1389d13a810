//! A full scan of a secondary index over rows that have left memory, beside single reads of the same rows with 64 in flight:
//! `cargo run --release -p thermocline-engine --example cold_scan_bench -- DIRECTORY [rows, default 400000]`.
//!
//! The directory is best one on the device that is to be measured; the database in it is made anew. Rows have 400 bytes, the limit
//! is 64 MiB, and the order of the index has nothing to do with that of the rows. Prints rows a second, and how many reads of the
//! device a second that took.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use thermocline_engine::row::{Column, KeyBuf, Type, Value};
use thermocline_engine::{
    Database, Direction, Durability, IndexSchema, KeyRange, Options, Result, TableSchema, TransactionOptions,
    run_tasks,
};

/// Scatters numbers.
fn mix(number: u64) -> i64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9).cast_signed()
}

/// Runs it, and prints what it did a second; `run` says how many rows it has seen.
fn measure(what: &str, db: &Database, run: impl FnOnce() -> Result<u64>) -> Result<()> {
    let before = db.statistics().cold.device_reads;
    #[allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    let start = std::time::Instant::now();
    let rows = run()?;
    let seconds = start.elapsed().as_secs_f64();
    let reads = db.statistics().cold.device_reads - before;
    println!(
        "{what}: {rows} rows in {seconds:.2} s, {:.0} rows/s, {:.0} reads of the device/s",
        rows as f64 / seconds,
        reads as f64 / seconds
    );
    Ok(())
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().expect("a directory: `cold_scan_bench -- DIRECTORY [rows]`");
    let rows: u64 = arguments.next().map_or(400_000, |rows| rows.parse().expect("a number of rows"));
    let options = Options::default().with_memory_limit(Some(64 << 20)).with_durability(Durability::Async);
    let db = Database::open(&directory, options)?;
    let table = db.create_table(
        TableSchema::new("t")
            .column(Column::new("id", Type::Int8))
            .column(Column::new("other", Type::Int8))
            .column(Column::new("payload", Type::Bytes))
            .primary_key(IndexSchema::hash("t_key", &["id"]))
            .index(IndexSchema::ordered("by_other", &["other"])),
    )?;
    let row = |id: u64| [Value::Int8(id.cast_signed()), Value::Int8(mix(id)), Value::Bytes(vec![7; 380])];
    db.bulk_load_in_portions(&table, (0..rows).map(row), |_| ())?;
    let statistics = db.statistics();
    println!("{} of {rows} rows are cold", statistics.cold.migrated_rows);
    let (primary, by_other) = (table.primary(), table.index("by_other")?);
    for _ in 0..2 {
        measure("scan of the secondary index", &db, || {
            db.run(TransactionOptions::new().read_only(), async |tx| {
                let mut seen = 0;
                tx.scan(&by_other, KeyRange::all(), Direction::Forward, |_| {
                    seen += 1;
                    ControlFlow::Continue(())
                })
                .await?;
                Ok(seen)
            })
        })?;
        measure("single reads, 64 in flight", &db, || {
            let next = AtomicU64::new(0);
            let tasks = (0..64).map(|_| async {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= rows / 4 {
                        return;
                    }
                    let key = KeyBuf::new().i64((mix(number).cast_unsigned() % rows).cast_signed());
                    let read = async |tx: &mut thermocline_engine::Transaction| {
                        tx.read(&primary, &key, |_| ()).await
                    };
                    let found = db.transaction(TransactionOptions::new().read_only(), read).await;
                    assert!(found.expect("a read").is_some(), "a row is missing");
                }
            });
            run_tasks(tasks.collect());
            Ok(rows / 4)
        })?;
    }
    db.close()
}
