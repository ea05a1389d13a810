//! Chunks that leave memory whole: what each step does, by hand.

use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use thermocline_base::io::{Io, MemoryIo};
use thermocline_base::multiplex::block_on;

use crate::tests::freeze::{ROWS, check, frozen, in_blocks, insert, key, memory, open, read, row, set};
use crate::{Database, Isolation, LockMode, Table, Transaction, TransactionOptions};

/// Nothing of it is in memory any more.
fn let_go(db: &Database) {
    let mut steps = db.maintenance_steps();
    (0..4).for_each(|_| steps.step());
}

fn leave(db: &Database, table: &Table) -> usize {
    let_go(db);
    db.cold_steps().leave(table).expect("the store works")
}

/// Chunks of the table.
fn chunks(db: &Database) -> usize {
    let entry = db.table("t").expect("it is there").entry;
    let guard = db.inner().epochs.pin();
    let directory = &entry.form_pinned(&guard).store.directory;
    (0..directory.len()).filter(|number| directory.get(*number, &guard).is_some()).count()
}

async fn count(tx: &mut Transaction, table: &Table) -> i64 {
    let mut count = 0;
    let see = |_: &[u8]| {
        count += 1;
        ControlFlow::Continue(())
    };
    tx.scan_table(table, see).await.expect("it scans");
    count
}

#[test]
fn a_chunk_leaves_whole_and_its_rows_are_found() {
    let db = open(&memory());
    let table = frozen(&db);
    // A thread of the database may let go at any time from when it has left.
    let before = db.statistics();
    assert!(before.memory.frozen > 0);
    assert_eq!(leave(&db, &table), ROWS as usize);
    check(&db, &table, ROWS, &[]);
    let_go(&db);
    let after = db.statistics();
    assert_eq!((in_blocks(&db), after.memory.frozen), (0, 0));
    assert!(after.index_entries < before.index_entries, "{} entries", after.index_entries);
    assert_eq!(db.table("t").expect("it is there").statistics().rows_hot, 0);
    check(&db, &table, ROWS, &[]);
    // Its keys are taken.
    let taken = db.run(TransactionOptions::new(), async |tx| tx.insert_values(&table, &row(9, 9)).await);
    assert!(taken.is_err());
    insert(&db, &table, ROWS..ROWS + 20);
    let_go(&db);
    assert_eq!(chunks(&db), 1, "the next one, which is being filled");
    check(&db, &table, ROWS + 20, &[]);
}

#[test]
fn rows_that_have_left_are_changed_and_deleted() {
    let db = open(&memory());
    let table = frozen(&db);
    for is_let_go in [false, true] {
        let mut changed = Vec::new();
        if is_let_go {
            let_go(&db);
            changed.extend([(7, Some(1)), (8, None)]);
        } else {
            assert_eq!(leave(&db, &table), ROWS as usize);
        }
        let (one, other) = if is_let_go { (17, 18) } else { (7, 8) };
        set(&db, &table, one, 1 + i64::from(is_let_go));
        let gone =
            db.run(TransactionOptions::new(), async |tx| tx.delete(&table.primary(), &key(other)).await);
        assert!(gone.expect("it deletes"));
        changed.extend([(one, Some(1 + i64::from(is_let_go))), (other, None)]);
        check(&db, &table, ROWS, &changed);
    }
    block_on(crate::ops::clean::clean(db.inner())).expect("the store works");
    let_go(&db);
    check(&db, &table, ROWS, &[(7, Some(1)), (8, None), (17, Some(2)), (18, None)]);
}

/// Who has an older snapshot sees the rows in memory, whatever has been let go; and may change one where it has gone.
#[test]
fn an_older_snapshot_sees_what_has_left() {
    let db = open(&memory());
    let table = frozen(&db);
    let_go(&db);
    let begin = || db.begin(TransactionOptions::new().isolation(Isolation::Serializable)).expect("it begins");
    let (mut old, mut writer) = (begin(), begin());
    assert_eq!(block_on(count(&mut old, &table)), ROWS);
    assert!(block_on(writer.read(&table.primary(), &key(3), |_| ())).expect("it reads").is_some());
    assert_eq!(db.cold_steps().leave(&table).expect("the store works"), ROWS as usize);
    let_go(&db);
    assert_eq!(in_blocks(&db), 0, "they have left");
    assert!(db.statistics().memory.frozen > 0, "and can be seen");
    assert_eq!(block_on(count(&mut old, &table)), ROWS);
    block_on(
        writer.update(&table.primary(), &key(3), |row| Ok(row.set_value(2, &crate::row::Value::Int8(5))?)),
    )
    .expect("nothing about the row has changed");
    block_on(writer.commit()).expect("a move fails nobody");
    assert_eq!(block_on(count(&mut old, &table)), ROWS);
    block_on(old.commit()).expect("a move fails nobody");
    let_go(&db);
    assert_eq!((db.statistics().memory.frozen, chunks(&db)), (0, 1), "the row that was changed");
    check(&db, &table, ROWS, &[(3, Some(5))]);
}

/// Runs a future until it waits for the first time; then `meanwhile`; then to its end.
fn interrupted<T>(db: &Database, future: impl Future<Output = T>, meanwhile: impl FnOnce()) -> T {
    let mut future = std::pin::pin!(future);
    let mut meanwhile = Some(meanwhile);
    for _ in 0..1_000_000 {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
        // N is logged; then the store writes: somebody comes between as soon as the rows were copied.
        if db.inner().cold.get().is_some_and(|cold| !cold.progress.lock().running.is_empty())
            && let Some(meanwhile) = meanwhile.take()
        {
            meanwhile();
        }
        std::thread::yield_now();
    }
    panic!("it does not come to an end");
}

#[test]
fn a_row_that_is_thawed_meanwhile_stays() {
    let db = open(&memory());
    let table = frozen(&db);
    let_go(&db);
    let steps = db.cold_steps();
    let left = interrupted(&db, steps.leave_chunk(&table, 0), || {
        set(&db, &table, 11, 1);
        let gone = db.run(TransactionOptions::new(), async |tx| tx.delete(&table.primary(), &key(12)).await);
        assert!(gone.expect("it deletes"));
        let mut rolled_back = db.begin(TransactionOptions::new()).expect("it begins");
        block_on(rolled_back.delete(&table.primary(), &key(13))).expect("it deletes");
        rolled_back.rollback();
    });
    assert_eq!(left.expect("the store works"), Some(ROWS as usize - 3));
    let expected = [(11, Some(1)), (12, None)];
    check(&db, &table, ROWS, &expected);
    let_go(&db);
    check(&db, &table, ROWS, &expected);
    block_on(crate::ops::clean::clean(db.inner())).expect("the store works");
    let_go(&db);
    check(&db, &table, ROWS, &expected);
    assert_eq!(db.table("t").expect("it is there").statistics().rows_hot, 2);
}

/// Beyond 256 rows that stay all of them do, and the store forgets the block.
#[test]
fn a_move_that_too_many_have_thawed_is_given_up() {
    let db = open(&memory());
    let table = frozen(&db);
    let_go(&db);
    let steps = db.cold_steps();
    let left = interrupted(&db, steps.leave_chunk(&table, 0), || {
        (0..300).for_each(|id| set(&db, &table, id, -id));
    });
    assert_eq!(left.expect("the store works"), None);
    assert_eq!(in_blocks(&db), ROWS as u64 - 300);
    let expected: Vec<_> = (0..300).map(|id| (id, Some(-id))).collect();
    check(&db, &table, ROWS, &expected);
    block_on(crate::ops::clean::clean(db.inner())).expect("the store works");
    assert!(db.inner().cold.get().expect("it is open").store.unconfirmed().is_empty());
    check(&db, &table, ROWS, &expected);
    // What is left of the chunk leaves later.
    assert_eq!(leave(&db, &table), ROWS as usize - 300);
    let_go(&db);
    check(&db, &table, ROWS, &expected);
}

#[test]
fn a_locked_row_stays() {
    let db = open(&memory());
    let table = frozen(&db);
    let_go(&db);
    let mut locker = db.begin(TransactionOptions::new()).expect("it begins");
    assert!(block_on(locker.lock(&table.primary(), &key(5), LockMode::Share)).expect("it locks"));
    assert_eq!(db.cold_steps().leave(&table).expect("the store works"), ROWS as usize - 1);
    let mut writer = db.begin(TransactionOptions::new().no_wait()).expect("it begins");
    assert!(block_on(writer.delete(&table.primary(), &key(5))).is_err());
    drop(writer);
    block_on(locker.commit()).expect("it commits");
    let_go(&db);
    check(&db, &table, ROWS, &[]);
}

/// Begins that somebody could tell apart keep a chunk in memory.
#[test]
fn a_chunk_with_begins_stays() {
    let db = open(&memory());
    let mut old = db.begin(TransactionOptions::new().isolation(Isolation::Snapshot)).expect("it begins");
    let other = db.create_table(crate::tests::freeze::schema_of("other")).expect("the definition is fine");
    assert_eq!(block_on(count(&mut old, &other)), 0);
    let table = frozen(&db);
    let_go(&db);
    assert_eq!(db.cold_steps().leave(&table).expect("the store works"), 0);
    drop(old);
    assert_eq!(leave(&db, &table), ROWS as usize);
    check(&db, &table, ROWS, &[]);
}

#[test]
fn what_has_left_is_found_after_a_restart() {
    for (checkpoints, is_let_go) in [(0, false), (1, false), (1, true), (2, true)] {
        let io: Arc<MemoryIo> = Arc::new(MemoryIo::new());
        let as_io = || Arc::clone(&io) as Arc<dyn Io>;
        {
            let db = open(&as_io());
            let table = frozen(&db);
            if checkpoints > 0 {
                db.checkpoint().expect("there is room");
            }
            set(&db, &table, 1, 1);
            assert_eq!(leave(&db, &table), ROWS as usize - 1);
            set(&db, &table, 2, 2);
            if is_let_go {
                let_go(&db);
            }
            if checkpoints > 1 {
                db.checkpoint().expect("there is room");
            }
            insert(&db, &table, ROWS..ROWS + 5);
            db.close().expect("it closes");
        }
        for _ in 0..2 {
            let db = open(&as_io());
            let table = db.table("t").expect("it is there");
            check(&db, &table, ROWS + 5, &[(1, Some(1)), (2, Some(2))]);
            assert_eq!(in_blocks(&db), 0, "{checkpoints} {is_let_go}");
            assert_eq!(
                db.table("t").expect("it is there").statistics().rows_hot,
                7,
                "{checkpoints} {is_let_go}"
            );
            db.close().expect("it closes");
        }
    }
}

/// A change of the table's columns while its chunk has left, and somebody could still see that.
#[test]
fn columns_change_over_a_chunk_that_has_left() {
    let db = open(&memory());
    let table = frozen(&db);
    assert_eq!(leave(&db, &table), ROWS as usize);
    db.add_column("t", crate::row::Column::new("more", crate::row::Type::Int4).nullable())
        .expect("it is added");
    let table = db.table("t").expect("it is there");
    let_go(&db);
    assert_eq!(db.table("t").expect("it is there").statistics().rows_hot, 0, "the marks have gone");
    for id in 0..ROWS {
        let row = read(&db, &table, id).expect("it is there");
        assert_eq!((row.len(), &row[0]), (4, &crate::row::Value::Int8(id)));
    }
}
