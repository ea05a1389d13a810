//! Bulk load: all rows or none, whatever comes between.

use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use thermocline_engine::row::{Column, EncodedRow, KeyBuf, Type, Value};
use thermocline_engine::{
    Database, Error, IndexSchema, Options, Result, Table, TableSchema, TransactionOptions, block_on,
};

fn open() -> Database {
    Database::open_in_memory(Options::default()).expect("it opens")
}

/// A unique key of each kind, and an index that is not unique.
fn goods(db: &Database) -> Table {
    db.create_table(
        TableSchema::new("goods")
            .column(Column::new("id", Type::Int8).auto_increment())
            .column(Column::new("name", Type::Text))
            .column(Column::new("shelf", Type::Int4).default(7))
            .primary_key(IndexSchema::hash("goods_key", &["id"]))
            .index(IndexSchema::ordered("by_name", &["name"]).unique())
            .index(IndexSchema::hash("by_shelf", &["shelf"])),
    )
    .expect("the definition is fine")
}

fn good(id: i64) -> [Value; 3] {
    [Value::Int8(id), Value::Text(format!("name {id}")), Value::Int4((id / 8) as i32)]
}

fn count(db: &Database, table: &Table) -> u64 {
    db.run(TransactionOptions::new().read_only(), async |tx| {
        let mut rows = 0;
        tx.scan_table(table, |_| {
            rows += 1;
            ControlFlow::Continue(())
        })
        .await?;
        Ok(rows)
    })
    .expect("a scan")
}

/// As many rows, and as many entries as their three indexes need.
fn assert_whole(db: &Database, table: &Table, rows: u64) {
    assert_eq!(count(db, table), rows);
    assert_eq!(db.statistics().index_entries, 3 * rows);
}

#[test]
fn rows_of_all_kinds_are_loaded_and_found_by_all_keys() {
    let db = open();
    let table = goods(&db);
    assert_eq!(db.bulk_load(&table, (1..=1_000).map(good)).expect("they are new"), 1_000);
    let mut encoded = EncodedRow::new();
    table.encode_values(&good(1_001), &mut encoded).expect("it fits");
    assert_eq!(db.bulk_load(&table, [&encoded]).expect("it is new"), 1);
    let unnamed = [Value::Null, Value::from("numbered"), Value::Null];
    assert_eq!(db.bulk_load(&table, [unnamed.to_vec()]).expect("it is new"), 1);
    assert_eq!(db.bulk_load(&table, std::iter::empty::<EncodedRow>()).expect("nothing is no error"), 0);
    assert_whole(&db, &table, 1_002);
    let (layout, by_name) = (table.layout(), table.index("by_name").expect("it is there"));
    for (id, name, shelf) in [(1, "name 1", 0), (777, "name 777", 97), (1_002, "numbered", 7)] {
        let found = db.run(TransactionOptions::new(), async |tx| {
            let key = by_name.key_of_values(&[Value::from(name)])?;
            tx.read(&by_name, &key, |row| (layout.i64(row, 0), layout.i32(row, 2))).await
        });
        assert_eq!(found.expect("a read"), Some((Some(id), Some(shelf))));
    }
}

#[test]
fn a_table_without_a_key_can_be_loaded() {
    let db = open();
    let table = db
        .create_table(TableSchema::new("lines").column(Column::new("line", Type::Text)))
        .expect("the definition is fine");
    let lines = (0..5_000).map(|line| [Value::Text(format!("line {}", line % 10))]);
    assert_eq!(db.bulk_load(&table, lines).expect("nothing is unique"), 5_000);
    assert_eq!((count(&db, &table), db.statistics().index_entries), (5_000, 5_000));
}

#[test]
fn a_duplicate_in_the_middle_leaves_nothing() {
    let db = open();
    let table = goods(&db);
    db.bulk_load(&table, (0..10).map(good)).expect("they are new");
    // Of a row that is there, in either unique key; of a row of the same load, near and far.
    let named = |name: &str| [Value::Int8(700), Value::from(name), Value::Null];
    for (twin, index) in [
        (good(3), "goods_key"),
        (named("name 3"), "by_name"),
        (good(699), "goods_key"),
        (named("name 15"), "by_name"),
    ] {
        let rows = (10..700).map(good).chain([twin]).chain((800..1_000).map(good));
        match db.bulk_load(&table, rows).expect_err("a duplicate") {
            Error::DuplicateKey { table, index: found, .. } => {
                assert_eq!((&*table, &*found), ("goods", index));
            }
            error => panic!("{error}"),
        }
        assert_whole(&db, &table, 10);
    }
    db.bulk_load(&table, (10..1_000).map(good)).expect("nothing of them was left");
    assert_whole(&db, &table, 1_000);
}

#[test]
fn rows_and_sources_that_fail_leave_nothing() {
    let db = open();
    let table = goods(&db);
    let failing = (0..500).map(|id| match id {
        400 => Err(Error::Refused("the file ends here".to_owned())),
        id => Ok(good(id)),
    });
    assert!(matches!(db.bulk_load(&table, failing), Err(Error::Refused(_))));
    let unfit = (0..500).map(|id| match id {
        400 => [Value::Int8(id), Value::Null, Value::Null],
        id => good(id),
    });
    let error = db.bulk_load(&table, unfit).expect_err("a null").to_string();
    assert!(error.contains("goods") && error.contains("name"), "{error}");
    let unfit = [EncodedRow::new()];
    assert!(matches!(db.bulk_load(&table, unfit), Err(Error::Row { .. })));
    assert_whole(&db, &table, 0);
}

#[test]
fn a_load_that_was_dropped_or_has_failed_is_over() {
    let db = open();
    let table = goods(&db);
    block_on(async {
        let mut load = db.begin_bulk_load(&table).expect("it begins");
        for id in 0..300 {
            load.push_values(&good(id)).await.expect("it fits");
        }
        assert_eq!(load.rows(), 300);
        drop(load);
        assert_whole(&db, &table, 0);
        let mut load = db.begin_bulk_load(&table).expect("it begins");
        load.push_values(&[Value::Null]).await.expect_err("two columns are missing");
        // Who goes on in spite of an error cannot commit what is left.
        load.push_values(&good(1)).await.expect("it waits for its batch");
        load.commit().await.expect_err("a row was refused");
        assert_whole(&db, &table, 0);
        let mut load = db.begin_bulk_load(&table).expect("it begins");
        for id in 0..300 {
            let row = serde_json::json!({ "id": id, "name": id.to_string(), "shelf": 1 });
            assert_eq!(load.push_from(&row).await.expect("it fits"), None);
        }
        assert_eq!(load.commit().await.expect("they are new"), 300);
    });
    assert_whole(&db, &table, 300);
}

#[test]
fn the_memory_limit_is_an_error_and_gives_everything_back() {
    let limit = 32 << 20;
    let db = Database::open_in_memory(Options::default().with_memory_limit(Some(limit))).expect("it opens");
    let table = goods(&db);
    db.bulk_load(&table, (0..10).map(good)).expect("they fit");
    let other = db.statistics().memory.other;
    for _ in 0..3 {
        let rows =
            (10..).map(|id| [Value::Int8(id), Value::Text(format!("{id:0>100}")), Value::Int4(id as i32)]);
        match db.bulk_load(&table, rows).expect_err("it never ends") {
            error @ Error::OutOfMemory(_) => assert!(error.to_string().contains("memory_limit"), "{error}"),
            error => panic!("{error}"),
        }
        assert_whole(&db, &table, 10);
        assert_eq!(db.statistics().memory.other, other, "the list of writes is charged still");
    }
    // What was taken back is free again, as soon as nobody can be looking at it.
    for attempt in 0.. {
        match db.bulk_load(&table, (10..20_000).map(good)) {
            Ok(rows) => {
                assert_eq!(rows, 19_990);
                break;
            }
            Err(Error::OutOfMemory(_)) if attempt < 1_000 => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_whole(&db, &table, 20_000);
}

#[test]
fn others_go_on_and_see_all_or_nothing() {
    const ROWS: u64 = 60_000;
    let db = open();
    let table = goods(&db);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut looks = [0, 0];
            while looks[1] == 0 {
                match count(&db, &table) {
                    0 => looks[0] += 1,
                    ROWS => looks[1] += 1,
                    rows => panic!("{rows} rows of a load are to be seen"),
                }
                assert!(!done.load(Ordering::SeqCst) || looks[1] > 0 || count(&db, &table) == ROWS);
            }
            looks
        });
        // Rows that stay out of each other's way.
        let other = scope.spawn(|| {
            let other = db
                .create_table(
                    TableSchema::new("other")
                        .column(Column::new("id", Type::Int8))
                        .primary_key(IndexSchema::hash("other_key", &["id"])),
                )
                .expect("the definition is fine");
            for id in 0..200 {
                db.run(TransactionOptions::new(), async |tx| {
                    tx.insert_values(&other, &[Value::Int8(id)]).await
                })
                .expect("nobody is in the way");
            }
        });
        db.bulk_load(&table, (0..ROWS as i64).map(good)).expect("they are new");
        done.store(true, Ordering::SeqCst);
        other.join().expect("others go on");
        let looks = reader.join().expect("a reader");
        assert!(looks[0] > 0, "nobody looked meanwhile");
    });
}

/// Polls a load that has to wait for `holder`'s key, lets the holder go back to that key, and ends it.
fn meet_a_holder(commit: bool) -> (Database, Table, Result<u64>) {
    let db = open();
    let table = goods(&db);
    let outcome = {
        let mut holder = db.begin(TransactionOptions::new()).expect("it begins");
        block_on(holder.insert_values(&table, &good(500))).expect("an insert");
        let mut load = pin!(async {
            let mut load = db.begin_bulk_load(&table)?;
            for id in 0..1_000 {
                load.push_values(&good(id)).await?;
            }
            load.commit().await
        });
        let mut context = Context::from_waker(Waker::noop());
        assert!(load.as_mut().poll(&mut context).is_pending(), "it waits for the holder");
        let key = KeyBuf::new().i64(500);
        assert!(block_on(holder.delete(&table.primary(), &key)).expect("its own row"));
        block_on(holder.insert_values(&table, &good(500))).expect("its own key");
        assert!(load.as_mut().poll(&mut context).is_pending(), "it still waits");
        if commit {
            block_on(holder.commit()).expect("a commit");
        } else {
            drop(holder);
        }
        block_on(load)
    };
    (db, table, outcome)
}

#[test]
fn a_load_waits_for_who_holds_a_key() {
    let (db, table, outcome) = meet_a_holder(false);
    assert_eq!(outcome.expect("the key is free"), 1_000);
    assert_whole(&db, &table, 1_000);
    let (db, table, outcome) = meet_a_holder(true);
    assert!(matches!(outcome, Err(Error::DuplicateKey { .. })));
    assert_eq!(count(&db, &table), 1);
}
