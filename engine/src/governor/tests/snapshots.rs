//! Snapshots that see what has to leave memory: rows go beside them, or they give way, the oldest first.

use std::collections::VecDeque;
use std::time::Duration;

use thermocline_base::clock::{Clock, SystemClock};
use thermocline_base::depth;
use thermocline_base::multiplex::give_way;
use thermocline_base::rng::Rng;
use thermocline_base::sync::{AtomicBool, AtomicU64, Ordering};

use super::{MIB, fill, options, read, row, schema, text, wait_until, within};
use crate::row::{KeyBuf, RowEditor};
use crate::{Database, Error, Isolation, Table, TransactionOptions, block_on, run_tasks};

/// In a deep run, which has the machine for itself: `what` has taken less than what the engine gives up after.
fn soon(what: &str, took: Duration) {
    assert!(!depth::is_deep() || took < Duration::from_secs(8), "{what} took {took:?}");
}

/// What a held snapshot does not see leaves memory beside it.
#[test]
fn new_rows_come_and_go_under_a_snapshot_that_stays_open() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Database::open(dir.path(), options(48 * MIB)).expect("it opens");
    let table = db.create_table(schema("t")).expect("a table");
    fill(&db, &table, 0..50_000, 1000).expect("it fits");
    let mut old = db.begin(TransactionOptions::new().isolation(Isolation::Snapshot)).expect("it begins");
    let longest = fill_and_time(&db, &table, 50_000..250_000);
    soon("a writer's transaction", longest);
    within(&db);
    let (index, layout) = (table.primary(), table.layout());
    let mut look = |id: i64| {
        block_on(old.read(&index, &KeyBuf::new().i64(id), |row| layout.decode(row).expect("a row").len()))
            .map(|found| found.is_some())
    };
    assert!(look(10).expect("its snapshot stands"), "it sees what was there");
    assert!(!look(200_000).expect("its snapshot stands"), "and nothing of what came later");
    assert_eq!(db.statistics().cold.cancelled_snapshots, 0);
}

/// A snapshot that keeps nearly all memory does not make everybody else wait for as long as it stays open.
#[test]
#[ignore = "watches the clock or the memory of the process: .ci/deep governor"]
fn a_snapshot_that_keeps_nearly_everything_is_cancelled_soon() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Database::open(dir.path(), options(48 * MIB)).expect("it opens");
    let table = db.create_table(schema("t")).expect("a table");
    fill(&db, &table, 0..150_000, 1000).expect("there is room");
    let mut old = db.begin(TransactionOptions::new().isolation(Isolation::Snapshot)).expect("it begins");
    let index = table.primary();
    // 64 writers of 25,600 rows, most of which wait for their turn.
    let write = async |writer: i64| {
        let mut rng = Rng::new(writer as u64);
        for _ in 0..40 {
            let ids: Vec<i64> = (0..10).map(|_| rng.below(150_000).cast_signed()).collect();
            db.transaction(TransactionOptions::new(), async |tx| {
                for id in &ids {
                    let edit =
                        |row: &mut RowEditor<'_>| row.set_i64(1, 1).map_err(|error| table.error(error));
                    tx.update(&index, &KeyBuf::new().i64(*id), edit).await?;
                }
                Ok(())
            })
            .await?;
        }
        Ok::<(), Error>(())
    };
    let started = SystemClock.now_ns();
    run_tasks((0..64).map(async |writer| write(writer).await.expect("there is room in the end")).collect());
    let took = Duration::from_nanos(SystemClock.now_ns() - started);
    eprintln!("it took {took:?}, {} snapshots were cancelled", db.statistics().cold.cancelled_snapshots);
    assert_eq!(db.statistics().cold.cancelled_snapshots, 1);
    soon("all of it", took);
    let ended = block_on(old.read(&index, &KeyBuf::new().i64(10), |_| ()));
    assert!(matches!(ended, Err(Error::SnapshotTooOld { .. })), "{ended:?}");
    within(&db);
}

/// Inserts rows, some in each transaction; the longest time that one took.
fn fill_and_time(db: &Database, table: &Table, ids: std::ops::Range<i64>) -> Duration {
    let mut longest = Duration::ZERO;
    for ids in ids.collect::<Vec<_>>().chunks(200) {
        let started = SystemClock.now_ns();
        db.run(TransactionOptions::new(), async |tx| {
            for &id in ids {
                tx.insert_values(table, &row(id, 0)).await?;
            }
            Ok(())
        })
        .expect("there is always room");
        longest = longest.max(Duration::from_nanos(SystemClock.now_ns() - started));
    }
    longest
}

/// There is always a snapshot that has been open for a while, but never the same one for long. What is in use stays all the
/// same, and what nobody uses leaves, although each of those snapshots sees it.
#[test]
#[ignore = "watches the clock or the memory of the process: .ci/deep governor"]
fn what_is_in_use_stays_while_snapshots_overlap() {
    const HOT: i64 = 2_000;
    const STEPS: i64 = 300;
    const ROWS_A_STEP: i64 = 200;
    let dir = tempfile::tempdir().expect("a directory");
    let db = Database::open(dir.path(), options(32 * MIB)).expect("it opens");
    let table = db.create_table(schema("t")).expect("a table");
    let index = table.primary();
    fill(&db, &table, 0..100_000, 500).expect("there is always room");
    let done = AtomicBool::new(false);
    let begin = || {
        let mut tx = db.begin(TransactionOptions::new().isolation(Isolation::Snapshot)).expect("it begins");
        block_on(tx.read(&index, &KeyBuf::new().i64(1), |_| ())).expect("it can be read");
        tx
    };
    let cold_reads = || db.statistics().cold.reads;
    let (mut of_updates, mut updates) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut open = VecDeque::from([begin()]);
            while !done.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(350));
                open.push_back(begin());
                open.drain(..open.len() - 2);
            }
        });
        for step in 0..STEPS {
            let before = cold_reads();
            // Each once in twenty steps.
            let hot: Vec<i64> = (step % 20..HOT).step_by(20).collect();
            db.run(TransactionOptions::new(), async |tx| {
                for id in &hot {
                    let edit =
                        |row: &mut RowEditor<'_>| row.set_i64(1, step).map_err(|error| table.error(error));
                    assert!(tx.update(&index, &KeyBuf::new().i64(*id), edit).await?.is_some(), "row {id}");
                }
                Ok(())
            })
            .expect("there is always room");
            if step >= STEPS / 3 {
                of_updates += cold_reads() - before;
                updates += hot.len() as u64;
            }
            let first = 100_000 + step * ROWS_A_STEP;
            fill(&db, &table, first..first + ROWS_A_STEP, 50).expect("there is always room");
            std::thread::sleep(Duration::from_millis(15));
        }
        done.store(true, Ordering::SeqCst);
    });
    let cold = db.statistics().cold;
    eprintln!("{of_updates} of {updates} updates found a cold row; {cold:?}");
    assert!(of_updates * 20 < updates, "{of_updates} of {updates} updates found a cold row; {cold:?}");
}

/// What the snapshot sees does not fit beside what is to come.
#[test]
fn the_oldest_snapshot_is_cancelled_when_nothing_else_is_left() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Database::open(dir.path(), options(48 * MIB)).expect("it opens");
    let table = db.create_table(schema("t")).expect("a table");
    // Not to leave memory at once, but nearly.
    db.set_memory_limit(None).expect("there is room for it");
    fill(&db, &table, 0..300_000, 1000).expect("it fits");
    let mut old = db.begin(TransactionOptions::new().isolation(Isolation::Snapshot)).expect("it begins");
    let key = KeyBuf::new().i64(10);
    assert!(block_on(old.read(&table.primary(), &key, |_| ())).expect("it reads").is_some());
    db.set_memory_limit(Some(40 * MIB)).expect("there is room for it");
    let longest = fill_and_time(&db, &table, 300_000..320_000);
    soon("a writer's transaction", longest);
    assert_eq!(db.statistics().cold.cancelled_snapshots, 1);
    let error = block_on(old.read(&table.primary(), &key, |_| ())).expect_err("its snapshot has gone");
    assert_eq!(error.sqlstate(), "72000", "{error}");
    let Error::SnapshotTooOld { age_ms, pinned_bytes } = error else { panic!("{error}") };
    assert!(age_ms >= 250 && pinned_bytes > MIB, "{age_ms} ms, {pinned_bytes} bytes");
    wait_until("leaving memory", || db.statistics().memory.total() <= 40 * MIB);
}

/// Many transactions see what has to leave, and wait for each other's memory: none of them is the one to blame.
#[test]
#[ignore = "watches the clock or the memory of the process: .ci/deep governor"]
fn snapshots_that_wait_for_each_other_are_cancelled_together() {
    const CLIENTS: i64 = 64;
    let dir = tempfile::tempdir().expect("a directory");
    let db = Database::open(dir.path(), options(48 * MIB)).expect("it opens");
    let table = db.create_table(schema("t")).expect("a table");
    db.set_memory_limit(None).expect("there is room for it");
    fill(&db, &table, 0..300_000, 1000).expect("it fits");
    let begun = AtomicU64::new(0);
    let lowered_ns = AtomicU64::new(0);
    // All have a snapshot before one of them writes.
    let together = async || {
        if begun.fetch_add(1, Ordering::SeqCst) + 1 == CLIENTS.unsigned_abs() {
            db.set_memory_limit(Some(40 * MIB)).expect("there is room for it");
            lowered_ns.store(SystemClock.now_ns(), Ordering::SeqCst);
        }
        while lowered_ns.load(Ordering::SeqCst) == 0 {
            give_way().await;
        }
    };
    let attempt = async |client: i64| {
        let mut tx = db.begin(TransactionOptions::new().isolation(Isolation::Snapshot))?;
        tx.read(&table.primary(), &KeyBuf::new().i64(client), |_| ()).await?;
        together().await;
        for id in 0..400 {
            tx.insert_values(&table, &row(1_000_000 + client * 1_000 + id, 0)).await?;
        }
        tx.commit().await
    };
    let client = async |client: i64| loop {
        match attempt(client).await {
            Err(error) if error.sqlstate() == "72000" => {}
            outcome => return outcome.expect("there is room for one after the other"),
        }
    };
    run_tasks((0..CLIENTS).map(client).collect());
    let took = Duration::from_nanos(SystemClock.now_ns() - lowered_ns.load(Ordering::SeqCst));
    let cancelled = db.statistics().cold.cancelled_snapshots;
    eprintln!("{cancelled} snapshots were cancelled");
    soon("all of it", took);
}

/// A writer that waits for memory which it keeps itself is refused.
#[test]
fn who_pins_the_memory_that_is_waited_for_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Database::open(dir.path(), options(32 * MIB)).expect("it opens");
    let table = db.create_table(schema("t")).expect("a table");
    let rows = (0..1_000_000).map(|id| row(id, 0));
    let began_ns = SystemClock.now_ns();
    let error = db.bulk_load(&table, rows).expect_err("one transaction cannot be larger than memory");
    let took = Duration::from_nanos(SystemClock.now_ns() - began_ns);
    soon("a refusal", took);
    assert_eq!(error.sqlstate(), "53200", "{error}");
    within(&db);
    fill(&db, &table, 0..100_000, 100).expect("its memory is free again");
    assert_eq!(read(&db, &table, 99_999), Some((0, text(99_999))));
}
