//! A bulk load that a crash interrupts: all its rows are there afterwards, or none.

use thermocline_base::io::{Action, Fault, FaultKind, MemoryIo, RecordingIo};
use thermocline_engine::row::{Column, Type, Value};
use thermocline_engine::{Database, Durability, Error, IndexSchema, Result, Table, TableSchema};

use super::{drive, open, recover, tiny};

/// Some twenty parts of the log, more than its ring holds.
const ROWS: i64 = 1_000;

fn table(db: &Database) -> Table {
    let schema = TableSchema::new("t")
        .column(Column::new("id", Type::Int8))
        .column(Column::new("v", Type::Text))
        .primary_key(IndexSchema::hash("key", &["id"]));
    db.create_table(schema).expect("a table")
}

fn row(id: i64) -> [Value; 2] {
    [Value::Int8(id), Value::Text(format!("{id:0>100}"))]
}

/// Loads, with a checkpoint and a small transaction in the middle if there are to be any.
async fn load(db: &Database, table: &Table, between: bool) -> Result<u64> {
    let mut load = db.begin_bulk_load(table)?;
    for id in 0..ROWS {
        load.push_values(&row(id)).await?;
        if between && id == ROWS / 2 {
            db.transaction(thermocline_engine::TransactionOptions::new(), async |tx| {
                tx.insert_values(table, &row(-1)).await
            })
            .await?;
            db.checkpoint()?;
        }
    }
    load.commit().await
}

/// Crashes after every operation of a load; what may be there: the rows without the load, and all with it once its
/// commit is in the log.
fn crash_everywhere(durability: Durability, between: bool, stride: usize) {
    let options = tiny(durability);
    let io = RecordingIo::new(&MemoryIo::new());
    let db = open(&io, &options).expect("a new database");
    let table = table(&db);
    let begun = io.operations();
    let loaded = drive_long(&db, load(&db, &table, between));
    assert_eq!(loaded.expect("nothing fails"), ROWS as u64);
    db.flush_all();
    let acknowledged = io.operations();
    let mut seen = [0, 0];
    for operations in (begun..=acknowledged).step_by(stride).chain([acknowledged]) {
        for seed in [0, 1, 5] {
            let (state, ..) = recover(&io.crash(operations, seed), &options)
                .unwrap_or_else(|error| panic!("after operation {operations} (choice {seed}): {error}"));
            let rows = state.0["t"].rows.keys().filter(|id| **id >= 0).count();
            assert!(
                rows == 0 || rows == ROWS as usize,
                "{rows} rows of the load after operation {operations}"
            );
            assert!(operations < acknowledged || rows > 0, "an acknowledged load is gone");
            seen[usize::from(rows > 0)] += 1;
        }
    }
    assert!(seen[0] > 2 && seen[1] > 0, "crashes before and after the commit: {seen:?}");
}

/// As [`drive`], for work that waits for the log many times.
fn drive_long<F: Future>(db: &Database, future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    for _ in 0..10_000 {
        if let std::task::Poll::Ready(output) = super::poll(future.as_mut()) {
            return output;
        }
        db.step_flush().expect("nothing fails");
    }
    panic!("flushing the log does not help");
}

trait FlushAll {
    fn flush_all(&self);
}

impl FlushAll for Database {
    fn flush_all(&self) {
        for _ in 0..10 {
            self.step_flush().expect("nothing fails");
        }
    }
}

#[test]
fn a_crash_leaves_all_of_a_load_or_nothing() {
    crash_everywhere(Durability::Group, false, 1);
    crash_everywhere(Durability::Async, false, 3);
}

#[test]
fn a_checkpoint_in_the_middle_of_a_load_takes_nothing_of_it_along() {
    crash_everywhere(Durability::Group, true, 1);
}

/// A disk that fills up while parts are written.
#[test]
fn a_full_disk_ends_a_load_and_leaves_nothing() {
    let options = tiny(Durability::Group);
    let io = RecordingIo::new(&MemoryIo::new());
    let db = open(&io, &options).expect("a new database");
    let table = table(&db);
    io.inject(Fault { on: Action::Allocate, skip: 1, times: u64::MAX, kind: FaultKind::Full });
    let outcome = super::try_drive(&db, load(&db, &table, false)).expect("it is told");
    assert!(matches!(outcome, Err(Error::DiskFull { .. })), "{outcome:?}");
    io.heal();
    let (state, ..) = recover(&io.crash(io.operations(), 0), &options).expect("it recovers");
    assert!(state.0["t"].rows.is_empty());
    db.flush_all();
    let loaded = drive_long(&db, load(&db, &table, false));
    assert_eq!(loaded.expect("space has returned"), ROWS as u64);
    drive(&db, async { db.begin(thermocline_engine::TransactionOptions::new())?.commit().await })
        .expect("nothing is left over");
}
