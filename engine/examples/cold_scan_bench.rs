//! A full scan of a secondary index over rows that have left memory, beside single reads of the same rows with 64 in flight:
//! `cargo run --release -p thermocline-engine --example cold_scan_bench -- DIRECTORY [rows, default 400000]`.
//!
//! The directory is best one on the device that is to be measured; the database in it is made anew. Rows have 400 bytes, the limit
//! is 64 MiB, and the order of the index has nothing to do with that of the rows. Prints rows a second, how many reads of the
//! device a second that took, and which share that is of what the device does alone: random reads of 4 KiB in the file that the
//! rows are in, as many at a time, past the system's cache, in the same run.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use thermocline_base::io::{AlignedBytes, Buffer, DIRECT_ALIGNMENT, Io, OpenMode, Operation, SystemIo};
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

/// Reads that are under way at a time: as many as a scan has.
const IN_FLIGHT: u64 = 64;
/// How long the device is measured alone.
const ALONE: Duration = Duration::from_secs(2);

#[allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn now() -> Instant {
    Instant::now()
}

/// How many random reads of 4 KiB the device that a file is on does in a second.
fn device_alone(file: &Path) -> Result<f64> {
    let io = SystemIo::new();
    let file = io.open_direct(file, OpenMode::Read)?;
    let blocks = file.len()? / DIRECT_ALIGNMENT as u64;
    let (start, reads) = (now(), AtomicU64::new(0));
    let tasks = (0..IN_FLIGHT).map(|_| async {
        while start.elapsed() < ALONE {
            let number = reads.fetch_add(1, Ordering::Relaxed);
            let offset = mix(number).cast_unsigned() % blocks * DIRECT_ALIGNMENT as u64;
            let buffer = Buffer::from(AlignedBytes::zeroed(DIRECT_ALIGNMENT));
            file.submit(Operation::Read { offset, buffer }).await.result.expect("a read of the device");
        }
    });
    run_tasks(tasks.collect());
    let a_second = reads.into_inner() as f64 / start.elapsed().as_secs_f64();
    println!("the device alone: {a_second:.0} random reads of 4 KiB/s, {IN_FLIGHT} in flight");
    Ok(a_second)
}

/// Runs it, and prints what it did a second, and which share of the device's reads that is; `run` says how many rows it has seen.
fn measure(what: &str, db: &Database, alone: f64, run: impl FnOnce() -> Result<u64>) -> Result<()> {
    let before = db.statistics().cold.device_reads;
    let start = now();
    let rows = run()?;
    let seconds = start.elapsed().as_secs_f64();
    let reads = (db.statistics().cold.device_reads - before) as f64 / seconds;
    println!(
        "{what}: {rows} rows in {seconds:.2} s, {:.0} rows/s, {reads:.0} reads of the device/s, {:.0} % of what it does alone",
        rows as f64 / seconds,
        100.0 * reads / alone
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
        let alone = device_alone(&Path::new(&directory).join("cold").join("store.pages"))?;
        measure("scan of the secondary index", &db, alone, || {
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
        measure("single reads, 64 in flight", &db, alone, || {
            let next = AtomicU64::new(0);
            let tasks = (0..IN_FLIGHT).map(|_| async {
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
