//! Eight times as many bytes of rows as the memory limit admits, beside the books of the kill loop ([`super::kill9`]): the
//! governor is at work all the time, and most of what a transaction changes is cold.
//!
//! Each thread has its share of the rows. Its transaction `n` sets the stamp of one of them, which follows from `n`, to
//! `n`; so the counters say what all stamps are.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use thermocline_base::rng::Rng;
use thermocline_engine::row::{Column, KeyBuf, Type, Value};
use thermocline_engine::{Database, IndexSchema, Result, TableSchema, Transaction, TransactionOptions};

/// Of a database with ballast.
pub(super) const MEMORY_LIMIT: u64 = 24 << 20;
const TEXT_BYTES: usize = 1000;
/// Rows of each thread.
const SHARE: i64 = 8 * MEMORY_LIMIT as i64 / TEXT_BYTES as i64 / super::kill9::THREADS;
const ROWS: i64 = SHARE * super::kill9::THREADS;
const NAME: &str = "ballast";

fn key(id: i64) -> KeyBuf {
    KeyBuf::new().i64(id)
}

/// Makes the table, and what is missing of its rows.
pub(super) fn prepare(db: &Database) -> Result<()> {
    if db.table(NAME).is_err() {
        let schema = TableSchema::new(NAME)
            .column(Column::new("id", Type::Int8))
            .column(Column::new("stamp", Type::Int8))
            .column(Column::new("text", Type::Text))
            .primary_key(IndexSchema::hash("ballast key", &["id"]));
        db.create_table(schema)?;
    }
    let table = db.table(NAME)?;
    let text = "x".repeat(TEXT_BYTES);
    for first in (0..ROWS).step_by(500) {
        db.run(TransactionOptions::new(), async |tx| {
            if tx.read(&table.primary(), &key(first), |_| ()).await?.is_some() {
                return Ok(());
            }
            for id in first..ROWS.min(first + 500) {
                let row = [Value::Int8(id), Value::Int8(0), Value::from(text.as_str())];
                tx.insert_values(&table, &row).await?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// The row that a thread's transaction stamps.
fn row_of(thread: i64, number: i64) -> i64 {
    let place = Rng::new((number << 8 | thread).cast_unsigned()).below(SHARE.cast_unsigned());
    place.cast_signed() * super::kill9::THREADS + thread
}

/// What a thread's transaction does here.
pub(super) async fn stamp(db: &Database, tx: &mut Transaction, thread: i64, number: i64) -> Result<()> {
    let table = db.table(NAME)?;
    let set = |row: &mut thermocline_engine::row::RowEditor<'_>| Ok(row.set_i64(1, number)?);
    let found = tx.update(&table.primary(), &key(row_of(thread, number)), set).await?;
    assert!(found.is_some(), "row {} is lost", row_of(thread, number));
    Ok(())
}

/// All rows are there once, with the stamps that follow from the counters.
pub(super) async fn check(db: &Database, tx: &mut Transaction, counters: &BTreeMap<i64, i64>) -> Result<()> {
    let mut expected = vec![0; ROWS as usize];
    for (&thread, &count) in counters.iter().filter(|(thread, _)| **thread >= 0) {
        for number in 1..=count {
            expected[row_of(thread, number) as usize] = number;
        }
    }
    let table = db.table(NAME)?;
    let layout = table.layout();
    let (mut rows, mut wrong) = (0, Vec::new());
    tx.scan_table(&table, |row| {
        let column = |column| layout.i64(row, column).expect("no column is nullable");
        let id = column(0) as usize;
        rows += 1;
        // A row that comes twice is wrong the second time.
        if std::mem::replace(&mut expected[id], -1) != column(1) {
            wrong.push((id, column(1)));
        }
        ControlFlow::Continue(())
    })
    .await?;
    assert_eq!((rows, wrong), (ROWS, Vec::new()), "rows, and those with wrong stamps");
    Ok(())
}
