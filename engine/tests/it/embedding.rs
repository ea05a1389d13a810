//! The engine inside of other programs: under a runtime, in plain threads, at its limits, with bad input.

use std::sync::Arc;

use thermocline_engine::row::{Column, Decimal, EncodedRow, KeyBuf, RowError, RowRef, Type, Value};
use thermocline_engine::{
    Database, Error, IndexSchema, Isolation, Options, SchemaError, Table, TableSchema, TransactionOptions,
};

fn counters(db: &Database, rows: i64) -> Table {
    let table = db
        .create_table(
            TableSchema::new("counters")
                .column(Column::new("id", Type::Int8))
                .column(Column::new("value", Type::Int8))
                .primary_key(IndexSchema::hash("counters_key", &["id"])),
        )
        .expect("the definition is fine");
    db.run(TransactionOptions::new(), async |tx| {
        for id in 0..rows {
            tx.insert_values(&table, &[Value::Int8(id), Value::Int8(0)]).await?;
        }
        Ok(())
    })
    .expect("the rows are new");
    table
}

async fn count_up(db: &Database, table: &Table, id: i64) -> Result<(), Error> {
    db.transaction(TransactionOptions::new(), async |tx| {
        let changed = tx
            .update(&table.primary(), &KeyBuf::new().i64(id), |row| {
                let value = table.layout().i64(row.row(), 1).expect("not null");
                Ok(row.set_i64(1, value + 1)?)
            })
            .await?;
        assert!(changed.is_some());
        Ok(())
    })
    .await
}

fn total(db: &Database, table: &Table) -> i64 {
    let layout = table.layout();
    db.run(TransactionOptions::new().read_only(), async |tx| {
        let mut total = 0;
        tx.scan_table(table, |row| {
            total += layout.i64(row, 1).expect("not null");
            std::ops::ControlFlow::Continue(())
        })
        .await?;
        Ok(total)
    })
    .expect("a scan")
}

#[test]
fn it_runs_under_tokio_and_in_plain_threads_at_once() {
    let db = Database::open_in_memory(Options::default()).expect("it opens");
    let table = Arc::new(counters(&db, 4));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    let plain = std::thread::spawn({
        let (db, table) = (db.clone(), Arc::clone(&table));
        move || {
            for round in 0..200 {
                thermocline_engine::block_on(count_up(&db, &table, round % 4)).expect("it is retried");
            }
        }
    });
    runtime.block_on(async {
        let tasks: Vec<_> = (0..8)
            .map(|task| {
                let (db, table) = (db.clone(), Arc::clone(&table));
                tokio::spawn(async move {
                    for _ in 0..50 {
                        let table = Arc::clone(&table);
                        db.transaction_boxed(TransactionOptions::new(), move |tx| {
                            let table = Arc::clone(&table);
                            Box::pin(async move {
                                tx.update(&table.primary(), &KeyBuf::new().i64(task % 4), |row| {
                                    let value = table.layout().i64(row.row(), 1).expect("not null");
                                    Ok(row.set_i64(1, value + 1)?)
                                })
                                .await?;
                                Ok(())
                            })
                        })
                        .await
                        .expect("it is retried");
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("the task ran");
        }
    });
    plain.join().expect("the thread ran");
    assert_eq!(total(&db, &table), 8 * 50 + 200);
}

#[test]
fn a_dropped_transaction_and_a_dropped_operation_leave_nothing() {
    let db = Database::open_in_memory(Options::default()).expect("it opens");
    let table = counters(&db, 1);
    let edit = |row: &mut thermocline_engine::row::RowEditor<'_>| Ok(row.set_i64(1, 99)?);
    let key = KeyBuf::new().i64(0);
    let mut first = db.begin(TransactionOptions::new()).expect("it begins");
    thermocline_engine::block_on(first.update(&table.primary(), &key, edit)).expect("an update");
    let mut second = db.begin(TransactionOptions::new()).expect("it begins");
    {
        // It waits for the first; whoever drops the future takes the wait back.
        let index = table.primary();
        let mut waits = std::pin::pin!(second.update(&index, &key, edit));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(waits.as_mut().poll(&mut context).is_pending());
    }
    drop(first);
    drop(second);
    assert_eq!(total(&db, &table), 0);
}

#[test]
fn what_is_waited_for_is_counted_and_nothing_else() {
    let db = Database::open_in_memory(Options::default()).expect("it opens");
    let table = counters(&db, 1);
    let (index, key) = (table.primary(), KeyBuf::new().i64(0));
    let edit = |row: &mut thermocline_engine::row::RowEditor<'_>| Ok(row.set_i64(1, 99)?);
    let all = || db.statistics().waits.parts().map(|(_, wait)| wait.count).sum::<u64>();
    assert_eq!(all(), 0);
    for given_up in [false, true] {
        let before = db.statistics().waits.rows;
        let mut first = db.begin(TransactionOptions::new()).expect("it begins");
        thermocline_engine::block_on(first.update(&index, &key, edit)).expect("an update");
        let mut second = db.begin(TransactionOptions::new()).expect("it begins");
        {
            let mut waits = std::pin::pin!(second.update(&index, &key, edit));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(waits.as_mut().poll(&mut context).is_pending());
            std::thread::sleep(std::time::Duration::from_millis(3));
            if !given_up {
                first.rollback();
                thermocline_engine::block_on(waits).expect("its turn has come");
            }
        }
        let rows = db.statistics().waits.rows;
        assert_eq!(rows.count, before.count + 1, "given up: {given_up}");
        assert!(rows.ns >= before.ns + 3_000_000, "{rows:?} after {before:?}");
        assert_eq!(all(), rows.count);
    }
}

#[test]
fn writers_meet_the_memory_limit_and_readers_do_not() {
    let options = Options::default().with_memory_limit(Some(32 << 20));
    let db = Database::open_in_memory(options).expect("it opens");
    let table = db
        .create_table(
            TableSchema::new("blobs")
                .column(Column::new("id", Type::Int8))
                .column(Column::new("data", Type::Bytes))
                .primary_key(IndexSchema::hash("blobs_key", &["id"])),
        )
        .expect("the definition is fine");
    let data = vec![7; 10_000];
    let insert = |id: i64| {
        db.run(TransactionOptions::new(), async |tx| {
            tx.insert_values(&table, &[Value::Int8(id), Value::Bytes(data.clone())]).await
        })
    };
    let mut rows = 0;
    let error = loop {
        match insert(rows) {
            Ok(_) => rows += 1,
            Err(error) => break error,
        }
        assert!(rows < 10_000, "32 MiB cannot hold 100 MB");
    };
    assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
    assert_eq!(error.sqlstate(), "53200");
    assert!(error.to_string().contains("memory_limit"), "{error}");
    assert!(rows > 1_500, "only {rows} rows of 10 kB in 32 MiB");
    let there = db.run(TransactionOptions::new(), async |tx| {
        tx.read(&table.primary(), &KeyBuf::new().i64(rows - 1), <[u8]>::len).await
    });
    assert!(there.expect("a read").is_some());
    for id in 0..rows / 2 {
        db.run(TransactionOptions::new(), async |tx| {
            tx.delete(&table.primary(), &KeyBuf::new().i64(id)).await
        })
        .expect("deletes are let through");
    }
    // Pruning runs beside this.
    let mut outcome = insert(-1);
    for _ in 0..10_000 {
        if outcome.is_ok() {
            break;
        }
        std::thread::yield_now();
        outcome = insert(-1);
    }
    outcome.expect("what was deleted has made room");
}

#[test]
fn bad_input_is_refused_by_name() {
    let db = Database::open_in_memory(Options::default()).expect("it opens");
    let table = db
        .create_table(
            TableSchema::new("goods")
                .column(Column::new("id", Type::Int4))
                .column(Column::new("name", Type::Varchar(5)))
                .column(Column::new("price", Type::Decimal { precision: 5, scale: 2 }).nullable())
                .primary_key(IndexSchema::ordered("goods_key", &["id"])),
        )
        .expect("the definition is fine");
    let insert = |values: &[Value]| {
        db.run(TransactionOptions::new(), async |tx| tx.insert_values(&table, values).await)
            .expect_err("it does not fit")
            .to_string()
    };
    let price = |text: &str| Value::Decimal(text.parse::<Decimal>().expect("a number"));
    let wrong_type = insert(&[Value::from("one"), Value::from("x"), Value::Null]);
    assert!(wrong_type.contains("goods") && wrong_type.contains("id"), "{wrong_type}");
    let null = insert(&[Value::Int4(1), Value::Null, Value::Null]);
    assert!(null.contains("name") && null.contains("null"), "{null}");
    let long = insert(&[Value::Int4(1), Value::from("sixsix"), Value::Null]);
    assert!(long.contains("name") && long.contains('5'), "{long}");
    let overflow = insert(&[Value::Int4(1), Value::from("x"), price("1000.00")]);
    assert!(overflow.contains("price"), "{overflow}");
    let count = insert(&[Value::Int4(1)]);
    assert!(count.contains('3'), "{count}");
    // Bytes that are no text.
    let mut row = EncodedRow::new();
    table.encode_values(&[Value::Int4(1), Value::from("abc"), Value::Null], &mut row).expect("it fits");
    let text = row.windows(3).position(|bytes| bytes == b"abc").expect("the text stands there");
    let mut bytes = row.to_vec();
    bytes[text] = 0xff;
    let error = RowRef::checked(&table.layout(), &bytes).expect_err("not UTF-8");
    assert!(matches!(&error, RowError::Unfit { .. }), "{error}");
    // Nothing was encoded.
    let error = db
        .run(TransactionOptions::new(), async |tx| tx.insert(&table, &EncodedRow::new()).await)
        .expect_err("no row");
    assert!(matches!(&error, Error::Row { source: RowError::OtherLayout, .. }), "{error}");
    assert!(matches!(db.table("nothing"), Err(Error::UnknownTable { .. })));
    assert!(matches!(table.index("nothing"), Err(Error::UnknownIndex { .. })));
    let unknown =
        db.create_index("goods", IndexSchema::hash("by_color", &["color"])).expect_err("no such column");
    assert!(matches!(&unknown, Error::Schema(SchemaError::UnknownColumn { .. })), "{unknown}");
    let twice = db.create_table(TableSchema::new("goods").column(Column::new("id", Type::Int4)));
    assert!(matches!(twice, Err(Error::Schema(SchemaError::DuplicateTable { .. }))));
    let key = TableSchema::new("keys")
        .column(Column::new("id", Type::Int4).nullable())
        .primary_key(IndexSchema::hash("keys_key", &["id"]));
    assert!(matches!(db.create_table(key), Err(Error::Schema(SchemaError::NullableKey { .. }))));
    let options = Options::default().with_memory_limit(Some(1));
    assert!(matches!(Database::open_in_memory(options), Err(Error::InvalidOption { .. })));
}

#[test]
fn upsert_inserts_then_replaces_then_meets_others() {
    let db = Database::open_in_memory(Options::default()).expect("it opens");
    let table = counters(&db, 0);
    let upsert = |value: i64| {
        let mut row = EncodedRow::new();
        table.encode_values(&[Value::Int8(1), Value::Int8(value)], &mut row).expect("it fits");
        db.run(TransactionOptions::new(), async |tx| tx.upsert(&table, &row).await).expect("an upsert")
    };
    assert!(upsert(5));
    assert!(!upsert(6));
    assert_eq!(total(&db, &table), 6);
    // Somebody inserts the row after the snapshot: the upsert cannot see it, and must not insert a second one.
    let mut late = db.begin(TransactionOptions::new().isolation(Isolation::Snapshot)).expect("it begins");
    let mut row = EncodedRow::new();
    table.encode_values(&[Value::Int8(2), Value::Int8(1)], &mut row).expect("it fits");
    db.run(TransactionOptions::new(), async |tx| tx.insert(&table, &row).await).expect("an insert");
    let refused = thermocline_engine::block_on(late.upsert(&table, &row)).expect_err("it was first");
    assert!(refused.is_retryable(), "{refused}");
}

#[derive(serde::Serialize, serde::Deserialize, PartialEq, Debug)]
struct Reading {
    id: Option<i64>,
    sensor: String,
    value: f64,
}

#[test]
fn rows_come_from_and_go_to_users_types() {
    let db = Database::open_in_memory(Options::default()).expect("it opens");
    let table = db
        .create_table(
            TableSchema::new("readings")
                .column(Column::new("id", Type::Int8).auto_increment())
                .column(Column::new("sensor", Type::Text))
                .column(Column::new("value", Type::Float8))
                .primary_key(IndexSchema::hash("readings_key", &["id"])),
        )
        .expect("the definition is fine");
    let reading = Reading { id: None, sensor: "roof".to_owned(), value: 21.5 };
    let back: Option<Reading> = db
        .run(TransactionOptions::new(), async |tx| {
            tx.insert_from(&table, &reading).await?;
            tx.read_as(&table.primary(), &KeyBuf::new().i64(1)).await
        })
        .expect("a transaction");
    assert_eq!(back, Some(Reading { id: Some(1), ..reading }));
}

#[test]
fn closing_while_a_transaction_is_open_is_defined() {
    let db = Database::open_in_memory(Options::default()).expect("it opens");
    let table = counters(&db, 1);
    let open = db.begin(TransactionOptions::new()).expect("it begins");
    let other = db.clone();
    db.close().expect("it closes");
    assert!(matches!(other.begin(TransactionOptions::new()), Err(Error::Closed)));
    drop(open);
    drop(table);
    drop(other);
}
