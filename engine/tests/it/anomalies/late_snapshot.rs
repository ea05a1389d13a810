//! A transaction of [`Database::transaction`] takes its snapshot with its first operation, and as long as it has seen
//! nothing it takes a newer one rather than fail.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use thermocline_base::io::MemoryIo;
use thermocline_engine::row::{Column, KeyBuf, Type, Value};
use thermocline_engine::{
    Database, Durability, IndexSchema, Isolation, Options, Result, Table, TableSchema, Transaction,
    TransactionOptions, block_on,
};

fn open() -> (Database, Table) {
    let options = Options::default().with_durability(Durability::Off).with_retries(0);
    let db = Database::open_with(Path::new("/memory"), options, Arc::new(MemoryIo::new()), false)
        .expect("the options are fine");
    let table = db
        .create_table(
            TableSchema::new("t")
                .column(Column::new("id", Type::Int8))
                .column(Column::new("value", Type::Int8))
                .primary_key(IndexSchema::hash("t_key", &["id"])),
        )
        .expect("the definition is fine");
    db.run(TransactionOptions::new(), async |tx| {
        for id in 1..3 {
            tx.insert_values(&table, &[Value::Int8(id), Value::Int8(0)]).await?;
        }
        Ok(())
    })
    .expect("fresh rows");
    (db, table)
}

async fn add(table: &Table, tx: &mut Transaction, id: i64) -> Result<Option<i64>> {
    let layout = table.layout();
    tx.update(&table.primary(), &KeyBuf::new().i64(id), |row| {
        let value = layout.i64(row.row(), 1).unwrap_or(0) + 1;
        row.set_i64(1, value).map(|()| value).map_err(|error| table.error(error))
    })
    .await
}

/// What a transaction that waits for another one's row comes to when that one commits. `reads`: it has read before.
fn outcome(isolation: Isolation, reads: bool) -> Result<Option<i64>> {
    let (db, table) = open();
    let mut first = db.begin(TransactionOptions::new()).expect("it begins");
    block_on(add(&table, &mut first, 1)).expect("nobody competes");
    let options = TransactionOptions::new().isolation(isolation);
    let mut second = pin!(db.transaction(options, async |tx| {
        if reads {
            tx.read(&table.primary(), &KeyBuf::new().i64(2), |_| ()).await?;
        }
        add(&table, tx, 1).await
    }));
    let mut context = Context::from_waker(Waker::noop());
    assert!(second.as_mut().poll(&mut context).is_pending(), "the row is being written");
    block_on(first.commit()).expect("a commit");
    match second.poll(&mut context) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("the first one is over"),
    }
}

#[test]
fn a_transaction_that_has_seen_nothing_goes_on() {
    for isolation in [Isolation::Snapshot, Isolation::RepeatableRead, Isolation::Serializable] {
        assert_eq!(outcome(isolation, false).expect("it has seen nothing"), Some(2), "{isolation}");
        let error = outcome(isolation, true).expect_err("it has read at an older snapshot");
        assert!(error.is_retryable(), "{isolation}: {error}");
    }
}
