//! Transactions in the bodies of others: they do not wait for what the outer one holds, since it cannot let go.

use thermocline_engine::row::{Column, KeyBuf, Type, Value};
use thermocline_engine::{
    Database, Error, IndexSchema, LockMode, Options, Result, Table, TableSchema, Transaction,
    TransactionOptions, block_on,
};

fn table(db: &Database) -> Table {
    let schema = TableSchema::new("t")
        .column(Column::new("id", Type::Int8))
        .column(Column::new("code", Type::Int8))
        .primary_key(IndexSchema::hash("t_key", &["id"]))
        .index(IndexSchema::hash("by_code", &["code"]).unique());
    let table = db.create_table(schema).expect("a table");
    let rows = (0..10).map(|id| [Value::Int8(id), Value::Int8(id)]);
    db.bulk_load(&table, rows).expect("rows");
    table
}

async fn set(tx: &mut Transaction, table: &Table, id: i64, code: i64) -> Result<()> {
    tx.update(&table.primary(), &KeyBuf::new().i64(id), |row| Ok(row.set_i64(1, code)?)).await.map(drop)
}

fn is_told(outcome: Result<()>) {
    let error = outcome.expect_err("it would wait for itself");
    assert!(matches!(&error, Error::WaitsForItself { table, .. } if table == "t"), "{error}");
    assert_eq!(error.sqlstate(), "40P01");
    assert!(!error.is_retryable() && error.to_string().contains("itself"), "{error}");
}

#[test]
fn an_inner_transaction_is_told_that_the_outer_one_holds_what_it_wants() {
    let db = Database::open_in_memory(Options::default()).expect("it opens");
    let table = table(&db);
    let key = KeyBuf::new().i64(1);
    type Step = (&'static str, fn(&Database, &Table) -> Result<()>);
    let inner: [Step; 4] = [
        ("row", |db, table| db.run(TransactionOptions::new(), async |tx| set(tx, table, 1, 101).await)),
        ("row after a write", |db, table| {
            db.run(TransactionOptions::new(), async |tx| {
                set(tx, table, 5, 105).await?;
                set(tx, table, 1, 101).await
            })
        }),
        ("delete, awaited", |db, table| {
            block_on(db.transaction(TransactionOptions::new(), async |tx| {
                tx.delete(&table.primary(), &KeyBuf::new().i64(1)).await.map(drop)
            }))
        }),
        ("lock, in a transaction of its own", |db, table| {
            let mut tx = db.begin(TransactionOptions::new())?;
            block_on(tx.lock(&table.primary(), &KeyBuf::new().i64(1), LockMode::Share)).map(drop)
        }),
    ];
    for (name, inner) in inner {
        db.run(TransactionOptions::new(), async |tx| {
            set(tx, &table, 1, 201).await?;
            is_told(inner(&db, &table));
            // Others are not in the way, and the outer one can go on.
            db.run(TransactionOptions::new(), async |tx| set(tx, &table, 2, 202).await)?;
            set(tx, &table, 1, 1).await
        })
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    // A lock, and a unique key that only the outer one has claimed.
    db.run(TransactionOptions::new(), async |tx| {
        assert!(tx.lock(&table.primary(), &key, LockMode::Share).await?);
        is_told(db.run(TransactionOptions::new(), async |tx| set(tx, &table, 1, 7_000).await));
        tx.insert_values(&table, &[Value::Int8(100), Value::Int8(100)]).await?;
        for row in [[100, 77], [101, 100]] {
            let row = row.map(Value::Int8);
            is_told(
                db.run(TransactionOptions::new(), async |tx| tx.insert_values(&table, &row).await.map(drop)),
            );
        }
        Ok(())
    })
    .expect("the outer one commits");
}

/// The inner one waits for a third transaction, which waits for the outer one.
#[test]
fn a_circle_through_another_thread_is_found() {
    let db = Database::open_in_memory(Options::default()).expect("it opens");
    let table = table(&db);
    let (told, done) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let outcome = db.run(TransactionOptions::new(), async |tx| {
            set(tx, &table, 1, 101).await?;
            let (table, db_of_third, told) = (&table, &db, told.clone());
            scope.spawn(move || {
                db_of_third.run(TransactionOptions::new(), async |tx| {
                    set(tx, table, 2, 102).await?;
                    told.send(()).expect("it is waited for");
                    set(tx, table, 1, 103).await
                })
            });
            done.recv().expect("the third one has its row");
            // The third one may be about to wait: then the circle closes with it, and it is run again.
            db.run(TransactionOptions::new(), async |tx| set(tx, table, 2, 104).await)
        });
        if let Err(error) = outcome {
            assert_eq!(error.sqlstate(), "40P01", "{error}");
        }
    });
}

/// What the outer one keeps in memory is no reason to wait for ever either: the inner one is refused.
#[test]
fn an_inner_transaction_is_refused_memory_that_the_outer_one_holds() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options::default().with_memory_limit(Some(28 << 20));
    let db = Database::open(dir.path(), options).expect("it opens");
    let schema = TableSchema::new("t")
        .column(Column::new("id", Type::Int8))
        .column(Column::new("bytes", Type::Bytes))
        .primary_key(IndexSchema::hash("t_key", &["id"]));
    let table = db.create_table(schema).expect("a table");
    let row = |id: i64| [Value::Int8(id), Value::Bytes(vec![1; 4096])];
    let outcome = db.run(TransactionOptions::new(), async |tx| {
        let refused = async |tx: &mut Transaction, from: i64| {
            for id in from.. {
                if let Err(error) = tx.insert_values(&table, &row(id)).await {
                    return error;
                }
            }
            unreachable!("memory has an end")
        };
        let error = refused(tx, 0).await;
        assert_eq!(error.sqlstate(), "53200", "{error}");
        let inner = db.run(TransactionOptions::new(), async |tx| Err::<(), _>(refused(tx, 1 << 40).await));
        let error = inner.expect_err("there is no room");
        assert!(["53200", "72000"].contains(&error.sqlstate()), "{error}");
        Err::<(), _>(error)
    });
    assert!(outcome.is_err());
    // All of it has been given back.
    db.run(TransactionOptions::new(), async |tx| tx.insert_values(&table, &row(1)).await)
        .expect("there is room");
}
