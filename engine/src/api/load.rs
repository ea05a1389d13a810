//! Bulk load, as users see it: one transaction that inserts many rows, and nothing else.
//!
//! All of it is one transaction, so either every row is there afterwards, for everybody at once, or none is; the same
//! after a crash. What it costs beside the rows: 32 bytes of memory a row until it ends, counted against the memory
//! limit, and the log of its rows, which no checkpoint can shorten before it ends. A load that fails or is dropped
//! takes all its rows back; its log is shortened by the next checkpoint.
//!
//! Rows leave memory only when they are committed, so one load cannot be larger than the memory limit: then it fails with
//! SQLSTATE 53200. What is larger, or is not to be all or nothing, is loaded in portions, each a transaction
//! ([`Database::bulk_load_in_portions`], [`BulkLoad::commit_portion`]): while one is loaded, those before it leave memory.
//! Whoever loads says which of the two it is; it does not depend on how much memory there happens to be.

use std::sync::Arc;

use serde::Serialize;

use crate::api::transaction::Transaction;
use crate::api::{Database, Table};
use crate::counters::WaitKind;
use crate::error::{Error, Result};
use crate::ops::load::{Batch, LoadState};
use crate::options::{Isolation, TransactionOptions};
use crate::pressure::take_turn;
use crate::row::{EncodedRow, RowRef, Value};
use crate::session::db::Inner;

/// Of the memory limit, 1 in so many bytes makes a portion, within bounds: many writers load at a time, and what is
/// loaded takes more than its rows.
const PORTION_SHARE: u64 = 64;
const PORTION_BYTES_MIN: u64 = 256 << 10;
const PORTION_BYTES_MAX: u64 = 16 << 20;

/// A row that can be loaded: an encoded row, one value for each column, or what makes one and may fail.
pub trait LoadRow {
    /// Adds the row to a load.
    ///
    /// # Errors
    /// What the source says, or a row that does not fit the table.
    fn load(self, load: &mut BulkLoad) -> impl Future<Output = Result<()>>;
}

impl LoadRow for RowRef<'_> {
    async fn load(self, load: &mut BulkLoad) -> Result<()> {
        load.push(self).await
    }
}

impl LoadRow for EncodedRow {
    async fn load(self, load: &mut BulkLoad) -> Result<()> {
        load.push(&self).await
    }
}

impl LoadRow for &EncodedRow {
    async fn load(self, load: &mut BulkLoad) -> Result<()> {
        load.push(self).await
    }
}

impl LoadRow for &[Value] {
    async fn load(self, load: &mut BulkLoad) -> Result<()> {
        load.push_values(self).await.map(drop)
    }
}

impl LoadRow for Vec<Value> {
    async fn load(self, load: &mut BulkLoad) -> Result<()> {
        load.push_values(&self).await.map(drop)
    }
}

impl<const N: usize> LoadRow for [Value; N] {
    async fn load(self, load: &mut BulkLoad) -> Result<()> {
        load.push_values(&self).await.map(drop)
    }
}

impl<R: LoadRow> LoadRow for Result<R> {
    async fn load(self, load: &mut BulkLoad) -> Result<()> {
        self?.load(load).await
    }
}

impl Database {
    /// Loads rows into a table, blocking the calling thread: all of them, or none if there is an error. Returns how
    /// many. When it returns they are as durable as the database's setting says.
    ///
    /// What one load brings stays in memory until it ends: [`Database::bulk_load_in_portions`] loads what is larger than
    /// the memory limit.
    ///
    /// Much faster than a transaction for each row, and somewhat faster than transactions of many. Other transactions
    /// go on meanwhile, and see nothing of the rows until all are there. Rows are encoded ones, values for each column
    /// (nulls become defaults and auto-increment numbers), or a [`Result`] of one of these: a source that fails ends
    /// the load. For sources that are asynchronous or lend their rows there is [`Database::begin_bulk_load`].
    ///
    /// A row that waits for another transaction's key goes on when that one has ended. Nothing is retried.
    ///
    /// ```
    /// use thermocline_engine::row::{Column, Type, Value};
    /// use thermocline_engine::{Database, Error, IndexSchema, Options, TableSchema};
    ///
    /// # fn main() -> thermocline_engine::Result<()> {
    /// let db = Database::open_in_memory(Options::default())?;
    /// let words = db.create_table(
    ///     TableSchema::new("words")
    ///         .column(Column::new("id", Type::Int8))
    ///         .column(Column::new("word", Type::Text))
    ///         .primary_key(IndexSchema::hash("words_key", &["id"])),
    /// )?;
    /// let text = "the quick brown fox jumps over the lazy dog";
    /// let rows = text.split(' ').zip(1..).map(|(word, id)| [Value::Int8(id), Value::from(word)]);
    /// assert_eq!(db.bulk_load(&words, rows)?, 9);
    ///
    /// // The last row is there already, so none of them is loaded.
    /// let again = (1..=9).rev().map(|id| [Value::Int8(id * 9), Value::from("again")]);
    /// assert!(matches!(db.bulk_load(&words, again), Err(Error::DuplicateKey { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A row that does not fit the table, a duplicate key, the memory limit, a full disk, a deadlock, or what the source
    /// says. Nothing is loaded then.
    pub fn bulk_load<R: LoadRow>(&self, table: &Table, rows: impl IntoIterator<Item = R>) -> Result<u64> {
        thermocline_base::multiplex::block_on(async {
            let mut load = self.begin_bulk_load(table)?;
            for row in rows {
                row.load(&mut load).await?;
            }
            load.commit().await
        })
    }

    /// Loads any number of rows into a table, blocking the calling thread, in portions: each is a transaction, and what is
    /// there may be many times larger than the memory limit. After each portion `progress` is told how many rows are
    /// loaded for good; they stay when a later one fails. Returns how many there are in all.
    ///
    /// ```
    /// # use thermocline_engine::row::{Column, Type, Value};
    /// # use thermocline_engine::{Database, Options, TableSchema};
    /// # fn main() -> thermocline_engine::Result<()> {
    /// # let db = Database::open_in_memory(Options::default())?;
    /// let numbers = db.create_table(TableSchema::new("numbers").column(Column::new("number", Type::Int8)))?;
    /// let mut loaded = 0;
    /// let rows = (0..1_000_000).map(|number| [Value::Int8(number)]);
    /// db.bulk_load_in_portions(&numbers, rows, |rows| loaded = rows)?;
    /// assert_eq!(loaded, 1_000_000);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Database::bulk_load`]: what `progress` was told of stays, nothing else does.
    pub fn bulk_load_in_portions<R: LoadRow>(
        &self,
        table: &Table,
        rows: impl IntoIterator<Item = R>,
        mut progress: impl FnMut(u64),
    ) -> Result<u64> {
        thermocline_base::multiplex::block_on(async {
            let mut load = self.begin_bulk_load(table)?;
            for row in rows {
                row.load(&mut load).await?;
                if load.is_portion() {
                    progress(load.commit_portion().await?);
                }
            }
            let rows = load.commit().await?;
            progress(rows);
            Ok(rows)
        })
    }

    /// Begins to load rows into a table: the asynchronous form of [`Database::bulk_load`].
    ///
    /// ```
    /// # use thermocline_engine::{Database, Result, Table};
    /// async fn copy(db: &Database, table: &Table, lines: impl Iterator<Item = String>) -> Result<u64> {
    ///     let mut load = db.begin_bulk_load(table)?;
    ///     for (id, line) in lines.enumerate() {
    ///         load.push_from(&serde_json::json!({ "id": id, "line": line })).await?;
    ///     }
    ///     load.commit().await
    /// }
    /// ```
    ///
    /// # Errors
    /// Too many transactions are open, or the database is closed; the table was dropped, or is of another database.
    pub fn begin_bulk_load(&self, table: &Table) -> Result<BulkLoad> {
        let inner = self.inner();
        if !table.entry.is_of(&inner.epochs) {
            return Err(table.entry.refusal(false));
        }
        if table.entry.is_dropped() {
            return Err(table.entry.refusal(true));
        }
        Ok(BulkLoad {
            transaction: begin(inner)?,
            state: LoadState::default(),
            table: table.clone(),
            batch: Batch::default(),
            row: EncodedRow::new(),
            rows: 0,
            portion_bytes: 0,
            failed: false,
        })
    }
}

/// The transaction of a load. It reads nothing, so it needs no snapshot, and holds no pruning up however long it takes.
fn begin(inner: &Arc<Inner>) -> Result<Transaction> {
    Transaction::begin(inner, TransactionOptions::new().isolation(Isolation::ReadCommitted), true)
}

/// A load on its way; see [`Database::begin_bulk_load`]. Dropping it takes all its rows back.
#[derive(Debug)]
pub struct BulkLoad {
    /// Before `state`: the list of writes is given back before its charge is.
    transaction: Transaction,
    state: LoadState,
    table: Table,
    batch: Batch,
    /// A row that is being encoded.
    row: EncodedRow,
    rows: u64,
    /// Bytes of the rows that were added since the last portion.
    portion_bytes: u64,
    failed: bool,
}

impl BulkLoad {
    /// Adds an encoded row. Rows are inserted a batch at a time: an error may be about one of the rows before.
    ///
    /// # Errors
    /// As [`Database::bulk_load`]. The load has failed then: nothing of it stays.
    pub async fn push(&mut self, row: impl Into<RowRef<'_>>) -> Result<()> {
        let row = row.into();
        if !self.batch.takes(row.layout()) {
            self.insert_batch().await?;
        }
        self.batch.push(row);
        self.rows += 1;
        self.portion_bytes += row.len() as u64;
        if self.batch.is_full() { self.insert_batch().await } else { Ok(()) }
    }

    /// Adds a row given by values; nulls become defaults and auto-increment numbers where the column has them. Returns
    /// the auto-increment number.
    ///
    /// # Errors
    /// As [`BulkLoad::push`].
    pub async fn push_values(&mut self, values: &[Value]) -> Result<Option<i64>> {
        let mut row = std::mem::take(&mut self.row);
        let outcome = self.table.encode_values(values, &mut row);
        self.push_encoded(row, outcome).await
    }

    /// Adds a row given by anything that serde can serialize as a struct or map of columns. Returns the auto-increment
    /// number.
    ///
    /// # Errors
    /// As [`BulkLoad::push`].
    pub async fn push_from<T: Serialize + ?Sized>(&mut self, row: &T) -> Result<Option<i64>> {
        let mut encoded = std::mem::take(&mut self.row);
        let outcome = self.table.encode_from(row, &mut encoded);
        self.push_encoded(encoded, outcome).await
    }

    async fn push_encoded(&mut self, row: EncodedRow, outcome: Result<Option<i64>>) -> Result<Option<i64>> {
        let outcome = match outcome {
            Ok(number) => self.push(&row).await.map(|()| number),
            Err(error) => {
                self.failed = true;
                Err(error)
            }
        };
        self.row = row;
        outcome
    }

    /// The number of rows that were added.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    async fn insert_batch(&mut self) -> Result<()> {
        if self.failed {
            return Err(Error::TransactionFailed);
        }
        let outcome = self.transaction.load(&self.table, &mut self.batch, &mut self.state).await;
        self.failed = outcome.is_err();
        self.batch.clear();
        outcome
    }

    /// Is it time to commit a portion, so that memory has room for the load whatever the limit is?
    #[must_use]
    pub fn is_portion(&self) -> bool {
        let limit = self.table.db.memory_limit().unwrap_or(u64::MAX);
        self.portion_bytes >= (limit / PORTION_SHARE).clamp(PORTION_BYTES_MIN, PORTION_BYTES_MAX)
    }

    /// Commits what was added so far, and lets the load go on with another transaction: from here on everybody sees
    /// these rows, and they stay whatever becomes of the rest. Returns how many there are, those of earlier portions
    /// included. Waits for a moment if memory is short.
    ///
    /// # Errors
    /// As [`BulkLoad::commit`]. The load has failed then; earlier portions stay.
    pub async fn commit_portion(&mut self) -> Result<u64> {
        self.insert_batch().await?;
        let db = Arc::clone(&self.table.db);
        // The new transaction has neither a snapshot nor a row, so it is in no other's way meanwhile.
        let transaction = std::mem::replace(&mut self.transaction, begin(&db)?);
        let mut state = std::mem::take(&mut self.state);
        let outcome = transaction.driver.commit(&mut state.parts, || ()).await;
        self.failed = outcome.is_err();
        self.portion_bytes = 0;
        outcome?;
        if db.governor.is_pressing(&db.budget) {
            db.counted(WaitKind::Memory, take_turn(&db.governor, &db.budget, &*db.clock, None)).await;
        }
        Ok(self.rows)
    }

    /// Ends the load: from here on everybody sees all its rows. Returns how many there are.
    ///
    /// # Errors
    /// As [`BulkLoad::push`], and [`Error::LogFailed`]: it is not known whether the rows will be there after a restart.
    pub async fn commit(mut self) -> Result<u64> {
        self.insert_batch().await?;
        let Self { transaction, mut state, rows, .. } = self;
        transaction.driver.commit(&mut state.parts, || ()).await?;
        Ok(rows)
    }

    /// Takes all rows back; the same as dropping the load.
    pub fn rollback(self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows that are many times larger than memory are loaded in portions, and those before an error stay.
    #[test]
    fn what_is_larger_than_memory_is_loaded_in_portions() {
        let dir = tempfile::tempdir().expect("a directory");
        let options = crate::Options::default().with_memory_limit(Some(28 << 20));
        let db = Database::open(dir.path(), options).expect("it opens");
        let schema = crate::TableSchema::new("t")
            .column(crate::row::Column::new("id", crate::row::Type::Int8))
            .column(crate::row::Column::new("text", crate::row::Type::Text))
            .primary_key(crate::IndexSchema::hash("t_key", &["id"]));
        let table = db.create_table(schema).expect("a table");
        let row = |id: i64| [Value::Int8(id), Value::from("x".repeat(100).as_str())];
        let many = 500_000;
        let mut told = Vec::new();
        let loaded = db.bulk_load_in_portions(&table, (0..many).map(row), |rows| told.push(rows));
        assert_eq!(loaded.expect("there is always room"), 500_000);
        assert!(told.len() > 50 && told.is_sorted() && told.last() == Some(&500_000), "{told:?}");
        let statistics = db.statistics();
        assert!(statistics.cold.migrated_rows > 300_000, "{statistics:?}");
        assert!(statistics.memory.total() <= 28 << 20, "{statistics:?}");
        // The row before the last one is there already: the portions before it stay, and nothing of the last one.
        told.clear();
        let again = (many..many + 20_000).chain([5, many + 20_000]).map(row);
        let error = db.bulk_load_in_portions(&table, again, |rows| told.push(rows)).expect_err("a duplicate");
        assert!(matches!(error, Error::DuplicateKey { .. }), "{error}");
        let stayed = i64::try_from(*told.last().expect("portions")).expect("few");
        let (index, mut there) = (table.primary(), 0);
        for id in many..=many + 20_000 {
            let key = crate::row::KeyBuf::new().i64(id);
            let found =
                db.run(TransactionOptions::new().read_only(), async |tx| tx.read(&index, &key, |_| ()).await);
            there += i64::from(found.expect("it reads").is_some());
        }
        assert!(stayed > 0 && there == stayed, "{there} rows are there, {stayed} were committed");
    }

    /// A load goes wherever its task goes.
    #[test]
    fn a_load_is_send() {
        fn is_send<T: Send>(_: &T) {}
        let db = Database::open_in_memory(crate::Options::default()).expect("it opens");
        let schema =
            crate::TableSchema::new("t").column(crate::row::Column::new("id", crate::row::Type::Int8));
        let table = db.create_table(schema).expect("a table");
        let work = async move {
            let mut load = db.begin_bulk_load(&table)?;
            load.push_values(&[Value::Int8(1)]).await?;
            load.commit().await
        };
        is_send(&work);
        assert_eq!(thermocline_base::multiplex::block_on(work).expect("one row"), 1);
    }
}
