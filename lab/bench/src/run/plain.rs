//! The table of the benchmarks `point` and `delete`: an 8-byte key and 100 bytes, and an ordered index if that is asked for.

use thermocline_base::sync::{AtomicU64, Mutex, Ordering};
use thermocline_engine::row::{Char, EncodedRow, KeyBuf};
use thermocline_engine::{
    Database, Error, IndexSchema, Result, Table, TableSchema, TransactionOptions, block_on, row,
};

/// Bytes of the payload.
pub(super) const PAYLOAD: usize = 100;

/// Rows of one transaction while loading and deleting.
const BATCH: u64 = 1_000;

row! {
    /// A row.
    pub(super) struct Plain as PlainRow {
        id: i64,
        payload: Char<100>,
    }
}

/// The key of row `id`.
#[inline]
pub(super) fn key(id: u64) -> KeyBuf {
    KeyBuf::new().i64(id as i64)
}

/// Creates the table and fills it with the rows `0..records`.
pub(super) fn load(
    database: &Database,
    records: u64,
    second_index: bool,
    threads: usize,
    count: &(dyn Fn(u64, u64) + Sync),
) -> Result<Table> {
    let mut schema = TableSchema::new("plain")
        .columns(Plain::schema_columns())
        .primary_key(IndexSchema::hash("plain_pkey", &["id"]));
    if second_index {
        schema = schema.index(IndexSchema::ordered("plain_ordered", &["id"]));
    }
    let table = database.create_table(schema)?;
    let insert = async |first: u64, end: u64| {
        let mut transaction = database.begin(TransactionOptions::default())?;
        let mut bytes = EncodedRow::new();
        for id in first..end {
            let payload = format!("{id:0PAYLOAD$}");
            Plain { id: id as i64, payload }.encode(&mut bytes).map_err(|error| table.error(error))?;
            transaction.insert(&table, &bytes).await?;
        }
        transaction.commit().await
    };
    in_batches(records, threads, count, |first, end| block_on(insert(first, end)))?;
    Ok(table)
}

/// Runs `body` over the ranges that `0..records` is cut into, on several threads. Stops at the first error.
pub(super) fn in_batches(
    records: u64,
    threads: usize,
    count: &(dyn Fn(u64, u64) + Sync),
    body: impl Fn(u64, u64) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    let failure: Mutex<Option<Error>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while failure.lock().is_none() {
                    let first = next.fetch_add(BATCH, Ordering::Relaxed);
                    if first >= records {
                        return;
                    }
                    let end = records.min(first + BATCH);
                    if let Err(error) = body(first, end) {
                        failure.lock().get_or_insert(error);
                        return;
                    }
                    count(done.fetch_add(end - first, Ordering::Relaxed) + end - first, records);
                }
            });
        }
    });
    failure.into_inner().map_or(Ok(()), Err)
}
