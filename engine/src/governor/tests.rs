//! One memory limit that holds. What watches the memory of the whole process runs in a process of its own.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::OnceLock;
use std::time::Duration;

use thermocline_base::clock::{Clock, SystemClock};
use thermocline_base::rng::Rng;
use thermocline_base::sync::{AtomicBool, Ordering};

use super::hand::{Choice, Hands, Portion, Rules};
use crate::hot::budget::MemoryKind;
use crate::hot::reuse::{CLASSES, Census, EXPLORED, Leaving};
use crate::row::{Column, KeyBuf, RowEditor, Type, Value};
use crate::{
    ColdStoreKind, Database, Durability, Error, IndexSchema, Isolation, Options, Statistics, Table,
    TableSchema, Tiering, Transaction, TransactionOptions, block_on, run_tasks,
};

mod snapshots;

const MIB: u64 = 1 << 20;

fn options(limit: u64) -> Options {
    Options::default().with_memory_limit(Some(limit)).with_durability(Durability::Group)
}

fn schema(name: &str) -> TableSchema {
    TableSchema::new(name)
        .column(Column::new("id", Type::Int8))
        .column(Column::new("count", Type::Int8))
        .column(Column::new("text", Type::Text))
        .primary_key(IndexSchema::hash("key", &["id"]))
}

fn text(id: i64) -> String {
    format!("{id:0>200}")
}

fn row(id: i64, count: i64) -> [Value; 3] {
    [Value::Int8(id), Value::Int8(count), Value::Text(text(id))]
}

/// Tries until it is done. On a busy machine it may take longer than an operation waits; as long as rows leave, that is no fault.
fn patiently(db: &Database, mut attempt: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
    let mut left = 0;
    loop {
        let tried = attempt();
        let before = std::mem::replace(&mut left, db.statistics().cold.migrated_rows);
        match tried {
            Err(Error::OutOfMemory(_)) if left > before => {}
            tried => return tried,
        }
    }
}

/// Inserts rows, `a_transaction` of them at a time.
fn fill(db: &Database, table: &Table, ids: std::ops::Range<i64>, a_transaction: usize) -> Result<(), Error> {
    for first in ids.clone().step_by(a_transaction) {
        let last = ids.end.min(first + a_transaction as i64);
        patiently(db, || {
            db.run(TransactionOptions::new(), async |tx| {
                for id in first..last {
                    tx.insert_values(table, &row(id, 0)).await?;
                }
                Ok(())
            })
        })?;
    }
    Ok(())
}

fn read(db: &Database, table: &Table, id: i64) -> Option<(i64, String)> {
    let (index, layout) = (table.primary(), table.layout());
    db.run(TransactionOptions::new().read_only(), async |tx| {
        tx.read(&index, &KeyBuf::new().i64(id), |row| match &layout.decode(row).expect("a row")[..] {
            [_, Value::Int8(count), Value::Text(text)] => (*count, text.clone()),
            other => panic!("{other:?}"),
        })
        .await
    })
    .expect("it can be read")
}

/// Memory stays within the limit. What frees memory may pass it for a moment, by the reserve at most
/// ([`Budget::charge_reserve`](crate::hot::budget::Budget::charge_reserve)), and sees to it that this ends.
fn within(db: &Database) {
    let reserve = |limit| crate::hot::budget::reserve_bytes(limit);
    let found = db.statistics();
    let limit = found.memory_limit.expect("there is a limit");
    let total = found.memory.total();
    assert!(total <= limit + reserve(limit), "{total} of {limit}: {:?}", found.memory);
    wait_until("memory to come within the limit", || db.statistics().memory.total() <= limit);
}

/// What the process has in anonymous memory.
fn anonymous_bytes() -> u64 {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").expect("the system tells");
    let line = rollup.lines().find(|line| line.starts_with("Anonymous:")).expect("a line");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number");
    kib << 10
}

/// Runs a test of this module in a process of its own, where it finds `child` true.
fn in_a_child(test: &str, body: impl FnOnce()) {
    const CHILD: &str = "THERMOCLINE_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return body();
    }
    let program = std::env::current_exe().expect("the tests' own program");
    let name = format!("governor::tests::{test}");
    let output = std::process::Command::new(program)
        .args([&name, "--exact", "--include-ignored", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    eprintln!("{said}");
    assert!(output.status.success(), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{name} was run");
}

/// What the process had in anonymous memory while a database was open.
#[derive(Debug, Default)]
struct Watched {
    most: u64,
    /// What the engine attributed to itself, as a share of that, whenever more than half of the limit was used.
    attributed: Vec<f64>,
    /// What it was attributed to when there was most of it.
    parts: String,
}

impl Watched {
    fn check(mut self, what: &str, limit: u64, least_attributed: f64) {
        self.attributed.sort_by(f64::total_cmp);
        let share = |part: usize| self.attributed[(self.attributed.len() - 1) * part / 100];
        let [least, median, most] = [0, 50, 100].map(share);
        eprintln!(
            "{what} took {:.1} MiB of {}, of which {least:.2} to {most:.2}, {median:.2} in the middle, were attributed",
            self.most as f64 / MIB as f64,
            limit / MIB
        );
        assert!(
            self.most <= limit / 20 * 21,
            "{} bytes of anonymous memory under a limit of {limit}, attributed {}",
            self.most,
            self.parts
        );
        // What is attributed and what there is are looked at one after the other, by threads that wait for a processor.
        assert!((least_attributed..=1.1).contains(&median), "{median} of the memory is attributed");
    }
}

/// Opens a database and watches the memory of the process, every 10 ms, while it is open and `body` runs.
fn watched(dir: &std::path::Path, limit: u64, body: impl FnOnce(&Database)) -> Watched {
    let (done, opened) = (AtomicBool::new(false), OnceLock::new());
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut seen = Watched::default();
            while !done.load(Ordering::SeqCst) {
                let now = anonymous_bytes();
                let is_most = now > seen.most;
                seen.most = seen.most.max(now);
                if let Some(db) = opened.get().filter(|_| now > limit / 2) {
                    let memory = Database::statistics(db).memory;
                    seen.attributed.push(memory.total() as f64 / now as f64);
                    if is_most {
                        seen.parts = format!("{memory:?}");
                    }
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            seen
        });
        // The watcher ends, whatever happens here.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let db = opened.get_or_init(|| Database::open(dir, options(limit)).expect("it opens"));
            body(db);
        }));
        done.store(true, Ordering::SeqCst);
        let seen = watcher.join().expect("it watches");
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        seen
    })
}

/// Waits for what the governor does by itself. How fast it is, a benchmark says; a busy machine is no failure.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    const PATIENCE: Duration = Duration::from_secs(120);
    let started = SystemClock.now_ns();
    while !is_so() {
        assert!(Duration::from_nanos(SystemClock.now_ns() - started) < PATIENCE, "{what} took too long");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
#[ignore = "watches the clock or the memory of the process: .ci/deep governor"]
fn the_memory_of_the_process_stays_within_the_limit() {
    in_a_child("the_memory_of_the_process_stays_within_the_limit", || {
        let dir = tempfile::tempdir().expect("a directory");
        let (limit, rows) = (40 * MIB, 400_000);
        let filling = watched(dir.path(), limit, |db| {
            let table = db.create_table(schema("t")).expect("a table");
            std::thread::scope(|scope| {
                for part in 0..2 {
                    let (db, table) = (&db, &table);
                    let ids = rows / 2 * part..rows / 2 * (part + 1);
                    scope.spawn(move || fill(db, table, ids, 200).expect("there is always room"));
                }
            });
            within(db);
            let statistics = db.statistics();
            assert!(
                statistics.cold.bytes_cold + statistics.memory.versions > 2 * limit,
                "much more than the limit: {statistics:?}"
            );
        });
        filling.check("filling", limit, 0.9);
        let changing = watched(dir.path(), limit, |db| {
            let table = db.table("t").expect("the table");
            change_and_check(db, &table, rows);
            within(db);
        });
        changing.check("reading and changing", limit, 0.9);
        let copy = tempfile::tempdir().expect("a directory");
        let copying = watched(dir.path(), limit, |db| {
            db.backup(copy.path()).expect("it is copied");
            within(db);
        });
        // A second store's threads have heaps of their own, and what is free in those nobody has counted.
        copying.check("a backup", limit, 0.85);
        let found = Database::verify(copy.path()).expect("it is a database");
        assert!(found.findings.is_empty() && found.cold_entries > 300_000, "{found:?}");
    });
}

/// Reads all rows, updates one in ten, deletes one in a hundred, and reads all again.
fn change_and_check(db: &Database, table: &Table, rows: i64) {
    let (index, primary) = (table.primary(), |id| KeyBuf::new().i64(id));
    let count_all = |expected: &dyn Fn(i64) -> Option<i64>| {
        let tasks = (0..32).map(|task| {
            let (index, layout) = (&index, table.layout());
            async move {
                for id in (task..rows).step_by(32 * 7) {
                    let mut tx = db.begin(TransactionOptions::new().read_only()).expect("it begins");
                    let found = tx
                        .read(index, &primary(id), |row| match &layout.decode(row).expect("a row")[..] {
                            [_, Value::Int8(count), Value::Text(found)] => {
                                assert_eq!(*found, text(id));
                                *count
                            }
                            other => panic!("{other:?}"),
                        })
                        .await
                        .expect("it can be read");
                    assert_eq!(found, expected(id), "row {id}");
                    tx.commit().await.expect("it has only read");
                }
            }
        });
        run_tasks(tasks.collect());
    };
    count_all(&|_| Some(0));
    let changes: Vec<i64> = (0..rows).step_by(70).collect();
    for ids in changes.chunks(50) {
        db.run(TransactionOptions::new(), async |tx| {
            for &id in ids {
                if id % 700 == 0 {
                    assert!(tx.delete(&index, &primary(id)).await?, "row {id} is there");
                } else {
                    let edit =
                        |row: &mut RowEditor<'_>| row.set_i64(1, id).map_err(|error| table.error(error));
                    assert!(tx.update(&index, &primary(id), edit).await?.is_some(), "row {id} is there");
                }
            }
            Ok(())
        })
        .expect("there is always room");
    }
    count_all(&|id| match id {
        id if id % 700 == 0 => None,
        id if id % 70 == 0 => Some(id),
        _ => Some(0),
    });
}

#[test]
fn the_limit_can_be_lowered_and_raised_while_the_database_runs() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Database::open(dir.path(), options(256 * MIB)).expect("it opens");
    let table = db.create_table(schema("t")).expect("a table");
    fill(&db, &table, 0..500_000, 1000).expect("it fits");
    let before = db.statistics();
    assert_eq!(before.cold.migrated_rows, 0, "there was room");
    db.set_memory_limit(Some(56 * MIB)).expect("there is room for it");
    wait_until("leaving memory", || db.statistics().memory.total() <= 56 * MIB);
    let after = db.statistics();
    assert!(after.cold.migrated_rows > 300_000, "{after:?}");
    // What is known of temperatures takes 3 %, and what sessions note down comes on top.
    wait_until("a smaller classifier", || db.statistics().memory.temperature <= 56 * MIB / 100 * 4);
    let gone = after.cold.migrated_rows as f64 / 500_000.0;
    let kept = after.memory.versions as f64 / before.memory.versions as f64;
    assert!(kept < 1.0 - 0.8 * gone, "memory of {gone} of the rows is given back, but {kept} is left");
    assert_eq!(read(&db, &table, 1), Some((0, text(1))));
    fill(&db, &table, 500_000..600_000, 100).expect("there is always room");
    within(&db);
    db.set_memory_limit(Some(256 * MIB)).expect("there is room for it");
    let migrated = db.statistics().cold.migrated_rows;
    fill(&db, &table, 600_000..700_000, 100).expect("it fits");
    assert!(db.statistics().cold.migrated_rows < migrated + 20_000, "there is room again");
    for id in (0..700_000).step_by(9973) {
        assert_eq!(read(&db, &table, id), Some((0, text(id))), "row {id}");
    }
}

#[test]
#[ignore = "watches the clock or the memory of the process: .ci/deep governor"]
fn memory_of_rows_that_have_left_goes_back_to_the_system() {
    in_a_child("memory_of_rows_that_have_left_goes_back_to_the_system", || {
        let dir = tempfile::tempdir().expect("a directory");
        let db = Database::open(dir.path(), options(512 * MIB)).expect("it opens");
        let table = db.create_table(schema("t")).expect("a table");
        let rows = 300_000;
        let empty = anonymous_bytes();
        fill(&db, &table, 0..rows, 1000).expect("it fits");
        let full = anonymous_bytes();
        // Spread evenly, so that nothing becomes empty on its own.
        let mut rng = Rng::new(5);
        let moved = db.cold_steps().migrate(&table, |_| rng.below(10) != 0, 512).expect("they move");
        assert!(moved > 260_000, "{moved}");
        let theirs = (full - empty) / rows as u64 * moved as u64;
        let started = SystemClock.now_ns();
        let mut back = 0;
        wait_until("memory to go back", || {
            // What the store has taken for them meanwhile is another matter, and does not grow with them.
            let stores = db.statistics().memory.cold_buffers;
            back = full.saturating_sub(anonymous_bytes().saturating_sub(stores));
            back >= theirs / 10 * 8
        });
        eprintln!(
            "{} of {} MiB of the rows that left went back within {} ms",
            back / MIB,
            theirs / MIB,
            (SystemClock.now_ns() - started) / 1_000_000
        );
        assert!(read(&db, &table, 5).is_some() && read(&db, &table, rows - 1).is_some());
    });
}

/// Entries of rows that have left are spread over all of an index's memory. What is left moves together.
#[test]
#[ignore = "many rows: .ci/deep governor"]
fn indexes_of_rows_that_have_left_shrink() {
    // So many that what is left is worth the walk.
    const ROWS: i64 = 1_200_000;
    let dir = tempfile::tempdir().expect("a directory");
    let db =
        Database::open(dir.path(), Options::default().with_durability(Durability::Async)).expect("it opens");
    let wanted = TableSchema::new("t")
        .column(Column::new("id", Type::Int8))
        .column(Column::new("other", Type::Int8))
        .primary_key(IndexSchema::hash("key", &["id"]))
        .index(IndexSchema::ordered("by_other", &["other"]));
    let table = db.create_table(wanted).expect("a table");
    let other = |id: i64| id.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64.cast_signed());
    db.bulk_load(&table, (0..ROWS).map(|id| vec![Value::Int8(id), Value::Int8(other(id))]))
        .expect("it is loaded");
    let full = db.statistics().memory;
    let layout = table.layout();
    let steps = db.cold_steps();
    let goes = |row: &[u8]| layout.i64(row, 1).is_some_and(|other| other % 10 != 0);
    let moved = steps.migrate(&table, goes, 500).expect("they move") as i64;
    assert!(moved > ROWS * 8 / 10, "{moved}");
    // A tenth is left, in nodes and buckets that may be half empty.
    let shrunk = |full: u64, left: u64| left < full / 3;
    wait_until("indexes shrink", || {
        let memory = db.statistics().memory;
        shrunk(full.hash_indexes, memory.hash_indexes) && shrunk(full.ordered_indexes, memory.ordered_indexes)
    });
    let index = table.index("by_other").expect("the index");
    for id in (0..ROWS).step_by(1777) {
        let found = db.run(TransactionOptions::new().read_only(), async |tx| {
            tx.read(&index, &KeyBuf::new().i64(other(id)), |row| layout.i64(row, 0)).await
        });
        assert_eq!(found.expect("it can be read"), Some(Some(id)));
    }
}

/// A day in miniature: each hour other rows are popular. Memory stays flat, the memo bounded, and the store's space on disk
/// what its rows need; when most of them are deleted, the disk gets it back.
#[test]
#[ignore = "watches the clock or the memory of the process: .ci/deep governor"]
fn a_day_of_shifting_work_leaves_nothing_behind() {
    const ROWS: i64 = 200_000;
    const POPULAR: i64 = 8_000;
    let dir = tempfile::tempdir().expect("a directory");
    let db = Database::open(dir.path(), options(32 * MIB)).expect("it opens");
    let table = db.create_table(schema("t")).expect("a table");
    fill(&db, &table, 0..ROWS, 1000).expect("there is always room");
    let index = table.primary();
    let mut hours = Vec::new();
    for hour in 0..24_i64 {
        let tasks = (0..32).map(|task| {
            let (db, index, table) = (&db, &index, &table);
            async move {
                let mut rng = Rng::new((hour * 32 + task) as u64);
                for _ in 0..200 {
                    let id = (hour * ROWS / 24 + rng.below(POPULAR as u64) as i64) % ROWS;
                    let key = KeyBuf::new().i64(id);
                    let change = rng.below(4) == 0;
                    let done = db.transaction(TransactionOptions::new(), async |tx| {
                        if !change {
                            return tx.read(index, &key, |_| ()).await;
                        }
                        let edit = |row: &mut RowEditor<'_>| {
                            row.set_i64(1, hour).map_err(|error| table.error(error))
                        };
                        Ok(tx.update(index, &key, edit).await?.map(drop))
                    });
                    assert!(done.await.expect("there is always room").is_some(), "row {id}");
                }
            }
        });
        run_tasks(tasks.collect());
        within(&db);
        let found = db.statistics();
        hours.push([found.memory.total(), found.cold.memo_rows, found.cold.disk_bytes]);
    }
    let cold = db.statistics().cold;
    assert!(cold.rows_cold > ROWS as u64 / 2 && cold.reads > 10_000, "{cold:?}");
    let most = |of: usize| hours[12..].iter().map(|hour| hour[of]).max().expect("it has hours");
    // Of an hour's work a notice may be left for each row, until cleaning comes by.
    assert!(most(1) < POPULAR as u64, "{hours:?}");
    let needed = cold.bytes_cold * 3 / 2 + 24 * MIB;
    assert!(most(2) < needed, "{needed} bytes are needed: {hours:?}");

    let full = cold.disk_bytes;
    let gone: Vec<i64> = (0..ROWS / 10 * 9).collect();
    let deleters = gone.chunks(gone.len().div_ceil(32)).map(|ids| {
        let (db, index) = (&db, &index);
        async move {
            for ids in ids.chunks(50) {
                let deleted = db.transaction(TransactionOptions::new(), async |tx| {
                    for id in ids {
                        assert!(tx.delete(index, &KeyBuf::new().i64(*id)).await?, "row {id} is there");
                    }
                    Ok(())
                });
                deleted.await.expect("there is always room");
            }
        }
    });
    run_tasks(deleters.collect());
    let mut last = full;
    wait_until("the disk to get its space back", || {
        last = db.statistics().cold.disk_bytes;
        last < full / 2
    });
    assert_eq!(read(&db, &table, ROWS - 1).expect("it is there").1, text(ROWS - 1));
}

/// What is emptied or dropped needs no memory for that, and the disk gets its space back.
#[test]
fn emptied_and_dropped_tables_and_indexes_give_their_space_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Database::open(dir.path(), options(32 * MIB)).expect("it opens");
    let tables: Vec<Table> =
        ["a", "b"].iter().map(|name| db.create_table(schema(name)).expect("a table")).collect();
    let rows = 100_000;
    tables.iter().for_each(|table| fill(&db, table, 0..rows, 1000).expect("there is always room"));
    db.create_index("b", IndexSchema::ordered("b_text", &["text"])).expect("there is always room");
    let disk = || {
        within(&db);
        let found = db.statistics();
        found.cold.disk_bytes
    };
    wait_until("rows to leave", || db.statistics().cold.rows_cold > rows as u64);
    let full = disk();
    db.drop_index("b", "b_text").expect("nobody uses it");
    let mut last = full;
    wait_until("an index to go", || {
        last = disk();
        last < full / 10 * 9
    });
    let full = last;
    db.truncate_table("a").expect("nobody uses it");
    wait_until("the emptied table to go", || {
        last = disk();
        last < full / 10 * 6
    });
    assert!(read(&db, &tables[0], 7).is_none());
    fill(&db, &tables[0], 0..1000, 100).expect("there is always room");
    assert_eq!(read(&db, &tables[0], 7), Some((0, text(7))));
    assert_eq!(read(&db, &tables[1], rows - 1), Some((0, text(rows - 1))));
    db.drop_table("b").expect("nobody uses it");
    // The journal stays.
    wait_until("the dropped table to go", || disk() < full / 4);
}

/// Reads a whole table, and says how many rows it has.
async fn count(tx: &mut Transaction, table: &Table) -> Result<u64, Error> {
    let mut rows = 0;
    let add = |_: &[u8]| {
        rows += 1;
        ControlFlow::Continue(())
    };
    tx.scan_table(table, add).await.map(|()| rows)
}

/// Levels that validate remember every row that they read, wherever it was; the others nothing of it.
#[test]
fn what_transactions_remember_counts() {
    const ROWS: u64 = 200_000;
    let dir = tempfile::tempdir().expect("a directory");
    let db = Database::open(dir.path(), options(64 * MIB)).expect("it opens");
    let table = db.create_table(schema("t")).expect("a table");
    fill(&db, &table, 0..ROWS as i64, 500).expect("there is always room");
    assert!(db.statistics().cold.rows_cold > ROWS / 10, "{:?}", db.statistics());
    let remembered = || db.statistics().memory.transactions;
    // Room for what is remembered is made by rows that leave, and those stay for the snapshot: it may be cancelled for that,
    // and finds them gone when it tries again.
    let scan = |isolation| {
        for _ in 0..10 {
            let mut tx = db.begin(TransactionOptions::new().isolation(isolation)).expect("it begins");
            match block_on(count(&mut tx, &table)) {
                Ok(rows) => {
                    assert_eq!(rows, ROWS, "{isolation}");
                    return tx;
                }
                Err(error) => assert_eq!(error.sqlstate(), "72000", "{error}"),
            }
        }
        panic!("cancelled again and again at {isolation}");
    };
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot] {
        let tx = scan(isolation);
        assert_eq!(remembered(), 0, "{isolation}");
        drop(tx);
    }
    for isolation in [Isolation::RepeatableRead, Isolation::Serializable] {
        let tx = scan(isolation);
        assert!(remembered() > 16 * ROWS, "{} bytes at {isolation}", remembered());
        within(&db);
        block_on(tx.commit()).expect("nobody else writes");
        assert_eq!(remembered(), 0, "{isolation}");
    }
    // One that reads more than it may remember is refused, or its snapshot is cancelled; it takes nothing with it.
    let mut tx = scan(Isolation::Serializable);
    let error = loop {
        if let Err(error) = block_on(count(&mut tx, &table)) {
            break error;
        }
        within(&db);
    };
    match error.sqlstate() {
        "53200" => assert!(error.to_string().contains("what transactions remember"), "{error}"),
        other => assert_eq!(other, "72000", "{error}"),
    }
    drop(tx);
    assert_eq!(remembered(), 0);
    drop(scan(Isolation::Serializable));
}

/// A load that only reads moves few rows in the end, though most of what it reads is cold.
#[test]
#[ignore = "watches the clock or the memory of the process: .ci/deep governor"]
fn a_load_that_only_reads_comes_to_rest() {
    const ROWS: u64 = 200_000;
    let dir = tempfile::tempdir().expect("a directory");
    let db = Database::open(dir.path(), options(32 * MIB)).expect("it opens");
    let table = db.create_table(schema("t")).expect("a table");
    fill(&db, &table, 0..ROWS as i64, 500).expect("there is always room");
    let index = table.primary();
    let mut rng = Rng::new(3);
    // The smaller a row's number, the more often it is read, down to about once in two million reads.
    let mut read_many = || {
        let ids: Vec<i64> =
            (0..10_000).map(|_| (ROWS as f64 * rng.unit().powi(4)) as i64 * 7 % ROWS as i64).collect();
        let (db, index) = (&db, &index);
        let tasks = ids.chunks(250).map(|ids| async move {
            for &id in ids {
                let mut tx = db.begin(TransactionOptions::new().read_only()).expect("it begins");
                let found = tx.read(index, &KeyBuf::new().i64(id), |_| ()).await.expect("it can be read");
                assert!(found.is_some(), "row {id}");
                tx.commit().await.expect("it has only read");
            }
        });
        run_tasks(tasks.collect());
    };
    let mut rounds = VecDeque::new();
    wait_until("coming to rest", || {
        let before = db.statistics().cold;
        read_many();
        let after = db.statistics().cold;
        rounds.push_back((after.reads - before.reads, after.promoted_rows - before.promoted_rows));
        if rounds.len() > 20 {
            rounds.pop_front();
        }
        let (reads, promoted) = rounds.iter().fold((0, 0), |sum, round| (sum.0 + round.0, sum.1 + round.1));
        // Not before many have come back.
        after.promoted_rows > 1000 && rounds.len() == 20 && promoted * 20 <= reads
    });
    assert!(rounds.iter().all(|round| round.0 > 500), "most is cold (cold reads, promotions): {rounds:?}");
}

/// Rows that were frozen by hand leave memory when nothing else can, in a table whose rows may leave.
#[test]
fn frozen_rows_leave_when_nothing_else_can() {
    const ROWS: i64 = 100_000;
    // No encoding makes it smaller.
    let noise = |id: i64| {
        let mut rng = Rng::new(id as u64);
        (0..12).map(|_| format!("{:016x}", rng.next_u64())).collect::<String>()
    };
    let insert = |db: &Database, table: &Table, ids: std::ops::Range<i64>| {
        for first in ids.clone().step_by(500) {
            patiently(db, || {
                db.run(TransactionOptions::new(), async |tx| {
                    for id in first..ids.end.min(first + 500) {
                        tx.insert_values(table, &[Value::Int8(id), Value::Int8(0), Value::Text(noise(id))])
                            .await?;
                    }
                    Ok(())
                })
            })?;
        }
        Ok::<_, Error>(())
    };
    let dir = tempfile::tempdir().expect("a directory");
    let db = Database::open(dir.path(), options(160 * MIB)).expect("it opens");
    let table = db.create_table(schema("t")).expect("a table");
    insert(&db, &table, 0..ROWS).expect("there is room");
    assert_eq!(db.freeze("t").expect("there is room").rows, ROWS as u64);
    let blocks = db.statistics().memory.frozen;
    db.set_memory_limit(Some(32 * MIB)).expect("it is enough for working");
    insert(&db, &table, ROWS..ROWS + 20_000).expect("frozen rows make room for rows");
    let statistics = db.statistics();
    assert!(statistics.memory.frozen < blocks, "{statistics:?}");
    for id in (0..ROWS + 20_000).step_by(997) {
        assert_eq!(read(&db, &table, id), Some((0, noise(id))));
    }
}

#[test]
fn tables_that_stay_hot_stay() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Database::open(dir.path(), options(32 * MIB)).expect("it opens");
    assert!("paged".parse::<Tiering>().is_ok() && "warm".parse::<Tiering>().is_err());
    let table = db.create_table(schema("t").tiering(Tiering::Hot)).expect("a table");
    let error = fill(&db, &table, 0..1_000_000, 100).expect_err("nothing can leave");
    assert_eq!(error.sqlstate(), "53200", "{error}");
    let rows = table.statistics().rows_hot;
    assert!(rows > 50_000 && db.statistics().cold.migrated_rows == 0, "{rows}");
    db.alter_tiering("t", Tiering::Cold).expect("it is altered");
    let rows = i64::try_from(rows).expect("few") + 100;
    fill(&db, &table, rows..rows + 100_000, 100).expect("there is always room");
    assert!(db.statistics().cold.migrated_rows > 50_000);
    drop(table);
    db.close().expect("it closes");
    let db = Database::open(dir.path(), options(32 * MIB)).expect("it opens again");
    assert_eq!(db.table("t").expect("the table").schema().row_tiering(), Tiering::Cold);
}

#[test]
fn a_database_in_memory_refuses_unless_it_has_a_cold_store() {
    let limit = Options::default().with_memory_limit(Some(32 * MIB));
    let db = Database::open_in_memory(limit.clone()).expect("it opens");
    let table = db.create_table(schema("t")).expect("a table");
    let error = fill(&db, &table, 0..1_000_000, 100).expect_err("it is full");
    assert_eq!(error.sqlstate(), "53200", "{error}");
    let db = Database::open_in_memory(limit.with_cold_store(ColdStoreKind::Memory)).expect("it opens");
    let table = db.create_table(schema("t")).expect("a table");
    fill(&db, &table, 0..200_000, 100).expect("there is always room");
    assert_eq!(read(&db, &table, 5), Some((0, text(5))));
    let statistics = db.statistics();
    assert!(statistics.cold.migrated_rows > 50_000, "{statistics:?}");
}

/// Reads a hot set all the time, and the rest seldom; the share of the reads of the second half that found their row in
/// memory.
fn hit_ratio(sampling: f64) -> (f64, Statistics) {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Database::open(dir.path(), options(32 * MIB).with_sampling(sampling)).expect("it opens");
    let table = db.create_table(schema("t")).expect("a table");
    let rows = 200_000;
    fill(&db, &table, 0..rows, 500).expect("there is always room");
    let index = table.primary();
    let mut rng = Rng::new(7);
    let (mut before, mut reads) = (Statistics::default(), 0);
    for round in 0..60 {
        if round == 40 {
            (before, reads) = (db.statistics(), 0);
        }
        let ids: Vec<i64> = (0..4000)
            .map(|_| match rng.below(20) {
                0 => rng.below(rows as u64) as i64,
                _ => rng.below(20_000) as i64 * 19 % rows,
            })
            .collect();
        reads += ids.len();
        let (db, index, table) = (&db, &index, &table);
        let tasks = ids.chunks(250).map(|ids| async move {
            for &id in ids {
                let mut tx = db.begin(TransactionOptions::new()).expect("it begins");
                let found = tx.read(index, &KeyBuf::new().i64(id), |_| ()).await.expect("it can be read");
                assert!(found.is_some(), "row {id}");
                tx.commit().await.expect("it has only read");
            }
        });
        run_tasks(tasks.collect());
        let last = rows + i64::from(round) * 500;
        fill(db, table, last..last + 500, 100).expect("there is always room");
        std::thread::sleep(Duration::from_millis(60));
    }
    let after = db.statistics();
    (1.0 - (after.cold.reads - before.cold.reads) as f64 / reads as f64, after)
}

#[test]
#[ignore = "watches the clock or the memory of the process: .ci/deep governor"]
fn hot_rows_stay_in_memory_or_come_back_because_they_are_known() {
    let (with, statistics) = hit_ratio(0.1);
    let (without, _) = hit_ratio(0.0);
    let cold = statistics.cold;
    eprintln!("hit ratio {with} with temperatures, {without} without; {cold:?}");
    assert!(with > without + 0.05, "{with} with temperatures, {without} without");
    assert!(cold.promoted_rows > 1000, "{cold:?}");
}

/// What was read lately stays, however long ago it was written; what a scan of the whole table has passed goes.
#[test]
fn hands_take_what_was_not_read_lately() {
    const ROWS: i64 = 3_000;
    let dir = tempfile::tempdir().expect("a directory");
    let db = Database::open(dir.path(), options(64 * MIB).with_freeze_threads(0)).expect("it opens");
    let table = db.create_table(schema("t")).expect("a table");
    fill(&db, &table, 0..ROWS, 500).expect("there is room");
    let inner = db.inner();
    // More than half of the limit, and less than lets rows leave.
    inner.budget.charge(MemoryKind::Other, 36 * MIB).expect("there is room");
    wait_until("measuring temperatures", || inner.warm.get().is_some());
    let scan = async {
        let mut tx = db.begin(TransactionOptions::new().read_only())?;
        tx.scan_table(&table, |_| ControlFlow::Continue(())).await?;
        tx.commit().await
    };
    block_on(scan).expect("a scan");
    for id in (0..ROWS).step_by(3) {
        assert_eq!(read(&db, &table, id), Some((0, text(id))));
    }
    let chosen = |class: usize| {
        let begins = [inner.registry.clock.now(); CLASSES];
        let (now_ns, leaving) = (inner.clock.now_ns(), Some(Leaving::from(class)));
        let rules = Rules { now_ns, young: begins[0], begins, leaving, held: None, hot: None };
        let mut ids = Vec::new();
        let portion = Portion { batches: 100, rows: 512, bytes: u64::MAX };
        for Choice { entry, rows, .. } in Hands::default().choose(inner, &rules, portion) {
            let guard = inner.epochs.pin();
            let form = entry.form_pinned(&guard);
            let id = |row| form.layout.i64(form.row(form.store.directory.newest(row, &guard)?), 0);
            ids.extend(rows.into_iter().filter_map(id));
        }
        // It may be so little that the hands come round more than once.
        ids.sort_unstable();
        ids.dedup();
        ids
    };
    // As if all had been written long ago; some are taken for younger than they are.
    assert_eq!(chosen(CLASSES - 1 - EXPLORED), (0..ROWS).filter(|id| id % 3 != 0).collect::<Vec<_>>());
    assert_eq!(chosen(0), (0..ROWS).collect::<Vec<_>>());
    inner.budget.release(MemoryKind::Other, 36 * MIB);
}

/// A cold row costs little where its store answers at once, and much where it has to read a device.
#[test]
fn cold_rows_cost_what_their_reads_do() {
    const ROWS: i64 = 20_000;
    let cost = |store: ColdStoreKind| {
        let dir = tempfile::tempdir().expect("a directory");
        let mut options = Options::default().with_durability(Durability::Group);
        options.cold_store = store;
        let db = Database::open(dir.path(), options.clone()).expect("it opens");
        let table = db.create_table(schema("t")).expect("a table");
        fill(&db, &table, 0..ROWS, 500).expect("there is room");
        let moved = db.cold_steps().migrate(&table, |_| true, 500).expect("they move");
        assert_eq!(moved, ROWS as usize);
        let (db, table) = match store {
            ColdStoreKind::Pages => {
                // What has only been written is in memory still, until the store is opened again.
                drop(table);
                db.close().expect("it closes");
                let db = Database::open(dir.path(), options).expect("it opens again");
                let table = db.table("t").expect("the table");
                (db, table)
            }
            _ => (db, table),
        };
        db.cold_steps().set_frame_bytes(0).expect("no frames");
        let inner = db.inner();
        let guard = inner.epochs.pin();
        let reuse = &table.entry.form_pinned(&guard).counters.reuse;
        let mut census = Census::new(reuse);
        let expected = census.cost();
        for id in (0..ROWS).step_by(16) {
            assert_eq!(read(&db, &table, id), Some((0, text(id))));
        }
        census.count(reuse, 1.0);
        (expected, census.cost())
    };
    let (before, in_memory) = cost(ColdStoreKind::Memory);
    let (_, on_device) = cost(ColdStoreKind::Pages);
    eprintln!("{before} before, {in_memory} in memory, {on_device} on a device");
    assert!(in_memory < 1.3, "{in_memory}");
    assert!(on_device > before / 2.0, "{on_device}, while {before} is what is expected");
}

/// A database that was filled without a limit comes down to one that it is opened with.
#[test]
fn a_database_is_opened_far_beyond_its_limit() {
    let dir = tempfile::tempdir().expect("a directory");
    let rows = 400_000;
    let db = Database::open(dir.path(), options(1 << 40)).expect("it opens");
    let table = db.create_table(schema("t")).expect("a table");
    db.bulk_load(&table, (0..rows).map(|id| row(id, 0).to_vec())).expect("there is room");
    let before = db.statistics().memory.total();
    db.close().expect("it closes");
    let db = Database::open(dir.path(), options(28 * MIB)).expect("it opens");
    assert!(before > 4 * 24 * MIB, "{before} bytes are no more than some times the limit");
    wait_until("leaving memory", || db.statistics().memory.total() <= 28 * MIB);
    let table = db.table("t").expect("it is there");
    fill(&db, &table, rows..rows + 2_000, 100).expect("there is room again");
    for id in (0..rows + 2_000).step_by(9973) {
        assert_eq!(read(&db, &table, id), Some((0, text(id))), "row {id}");
    }
}
