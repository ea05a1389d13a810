//! Transactions as users see them: each operation is `async`, ready at once as long as nothing has to be waited for.
//!
//! A [`Transaction`] is `Send`, needs no runtime, and aborts when it is dropped. One that does nothing for longer than
//! the idle limit is aborted by the maintenance thread; its owner learns that from the next operation. The two agree
//! over the word `activity` of the transaction's place: the owner holds it as *busy* while an operation runs, the
//! other side takes it from *rest* only.

use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use thermocline_base::ids::RowId;
use thermocline_base::multiplex::{give_way, has_company};

use crate::api::{Index, Table};
use crate::counters::WaitKind;
use crate::error::{Error, Result};
use crate::index::tree::Direction;
use crate::ops::ahead::{Ahead, read_ahead};
use crate::ops::change::Named;
use crate::ops::commit::PartsState;
use crate::ops::drive::Driver;
use crate::ops::load::{Batch, LoadState};
use crate::ops::lock::Locked;
use crate::ops::read::Approach;
use crate::ops::rollback::Savepoint;
use crate::ops::scan::KeyRange;
use crate::ops::write::InsertState;
use crate::ops::{Step, Wait};
use crate::options::TransactionOptions;
use crate::row::{EncodedRow, KeyBuf, RowEditor, RowRef, TypedRow, Value};
use crate::session::db::Inner;
use crate::session::{NO_SNAPSHOT, Session, WaitLimit};
use crate::txn::locks::LockMode;

mod columns;
mod cursor;
mod define;
mod define_alone;
mod reads;
mod statement;

pub use columns::{Aggregate, ColumnScan, ColumnScanBuilder};
pub use cursor::Cursor;
pub use reads::Stop;
pub use statement::{LockWait, Statement};

/// An open transaction. Dropping it aborts it.
///
/// Rows that go in are encoded with their layout ([`EncodedRow`]), rows that are read are bytes (see [`mod@crate::row`]); keys are order-preserving encoded bytes ([`KeyBuf`]).
#[derive(Debug)]
pub struct Transaction {
    pub(crate) driver: Driver,
}

impl Transaction {
    /// Begins a transaction. Its snapshot is that of its first read if that may be `late`.
    pub(crate) fn begin(db: &Arc<Inner>, options: TransactionOptions, late: bool) -> Result<Self> {
        Ok(Self { driver: Driver::begin(db, options, late)? })
    }

    /// Begins a transaction of the engine's own.
    pub(crate) fn internal(db: &Arc<Inner>) -> Result<Self> {
        Ok(Self { driver: Driver::internal(db)? })
    }

    /// Brings what a lookup will need into the processor's caches while other tasks of the worker run.
    #[inline]
    async fn approach(&mut self, index: &Index, key: &[u8]) {
        if has_company() && self.driver.session().may_give_way() {
            let mut state = Approach::default();
            while self.driver.session().approach(&index.entry, index.id, key, &mut state) {
                give_way().await;
            }
        }
    }

    /// Asks the processor for what reads or updates of these keys will need, all at the same time. A hint: it changes
    /// nothing but the time that the following operations take. Worth it from two keys on.
    ///
    /// # Errors
    /// The transaction was aborted for idleness; a dropped table, or one of another database.
    pub fn prefetch<'k>(&mut self, index: &Index, keys: impl IntoIterator<Item = &'k [u8]>) -> Result<()> {
        let _busy = self.driver.enter()?;
        self.driver.session().check_handle(&index.entry)?;
        self.driver.session().note_hint();
        self.driver.session().prefetch(&index.entry, index.id, keys.into_iter());
        Ok(())
    }

    /// As [`Transaction::prefetch`], and reads what is cold or on the paged side: waits for all of these rows (32 at most) at the same
    /// time, so that the following operations do not wait for one after the other. Best before anything else, while the
    /// transaction has neither a snapshot nor locks.
    ///
    /// # Errors
    /// The transaction was aborted for idleness.
    pub async fn prefetch_cold<'k>(
        &mut self,
        index: &Index,
        keys: impl IntoIterator<Item = &'k [u8], IntoIter: Clone>,
    ) -> Result<()> {
        let _busy = self.driver.enter()?;
        let session = self.driver.session();
        session.check_handle(&index.entry)?;
        session.note_hint();
        let keys = keys.into_iter();
        session.prefetch(&index.entry, index.id, keys.clone());
        let what = session.keys_to_read(&index.entry, index.id, keys);
        self.read_ahead(what).await;
        Ok(())
    }

    async fn read_ahead(&mut self, what: Vec<Ahead>) {
        if what.is_empty() {
            return;
        }
        let db = self.driver.session().db();
        let rows = db.counted(WaitKind::ReadsAhead, read_ahead(db, &what)).await;
        let session = self.driver.session();
        rows.into_iter().for_each(|row| session.hand.take(row));
    }

    /// The same for the rows whose keys in an index begin with `prefix`, as far as they are cold (a secondary index) or on the paged side
    /// (an ordered one): the first 32.
    ///
    /// # Errors
    /// The transaction was aborted for idleness.
    pub async fn prefetch_cold_prefix(&mut self, index: &Index, prefix: &[u8]) -> Result<()> {
        let _busy = self.driver.enter()?;
        let session = self.driver.session();
        session.check_handle(&index.entry)?;
        session.note_hint();
        let what = session.prefix_to_read(&index.entry, index.id, prefix);
        self.read_ahead(what).await;
        Ok(())
    }

    /// Reads the row with this key: `see` looks at the encoded row in place. In a non-unique index, one of the rows.
    ///
    /// `see` runs under an epoch pin: it must not block.
    ///
    /// # Errors
    /// A failed, idle-aborted or outdated transaction, or a dropped table or index.
    pub fn read<R>(
        &mut self,
        index: &Index,
        key: &[u8],
        see: impl FnOnce(&[u8]) -> R,
    ) -> impl Future<Output = Result<Option<R>>> {
        self.read_row(index, key, move |row| see(row.bytes()))
    }

    /// Reads the row with this key as a view of a [`row!`](crate::row!): `tx.read_view::<Stock, _>(&index, &key, |stock| stock.s_ytd())`.
    /// Unlike a view made of the bare bytes, this one is right whatever columns the table has got or lost since the program
    /// was written: a row of another layout is brought into that of the view, or refused.
    ///
    /// # Errors
    /// As [`Transaction::read`], and [`RowError::OtherLayout`](crate::row::RowError::OtherLayout) (42804): the table lacks a column of the view.
    pub async fn read_view<S: TypedRow, R>(
        &mut self,
        index: &Index,
        key: &[u8],
        see: impl for<'r> FnOnce(S::View<'r>) -> R,
    ) -> Result<Option<R>> {
        let seen = self
            .read(index, key, |row| {
                let row = S::fit(&index.form_in_use().layout, row)?;
                Ok(see(S::view(&row)))
            })
            .await?;
        seen.transpose().map_err(|source| Error::Row { table: index.table().name(), source })
    }

    /// As [`Transaction::scan`], with views as [`Transaction::read_view`] gives them.
    ///
    /// # Errors
    /// As [`Transaction::scan`], and [`RowError::OtherLayout`](crate::row::RowError::OtherLayout) (42804): the table lacks a column of the view.
    pub async fn scan_view<S: TypedRow>(
        &mut self,
        index: &Index,
        range: KeyRange<'_>,
        direction: Direction,
        mut see: impl for<'r> FnMut(S::View<'r>) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut refused = None;
        self.scan(index, range, direction, |row| match S::fit(&index.form_in_use().layout, row) {
            Ok(row) => see(S::view(&row)),
            Err(error) => {
                refused = Some(error);
                ControlFlow::Break(())
            }
        })
        .await?;
        let table = || index.table().name();
        refused.map_or(Ok(()), |source| Err(Error::Row { table: table(), source }))
    }

    /// Reads all rows with this key, in any order, until `see` breaks.
    ///
    /// # Errors
    /// As [`Transaction::read`].
    pub fn read_all(
        &mut self,
        index: &Index,
        key: &[u8],
        mut see: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> impl Future<Output = Result<()>> {
        self.read_rows(index, key, move |row| see(row.bytes()))
    }

    /// Reads the rows of a range of an ordered index in key order, until `see` breaks.
    ///
    /// # Errors
    /// As [`Transaction::read`], and [`Error::Unsupported`] for a hash index.
    pub fn scan(
        &mut self,
        index: &Index,
        range: KeyRange<'_>,
        direction: Direction,
        mut see: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> impl Future<Output = Result<()>> {
        self.scan_rows(index, range, direction, move |row| see(row.bytes()))
    }

    /// Reads all rows of a table, in no particular order, until `see` breaks.
    ///
    /// # Errors
    /// As [`Transaction::read`].
    pub fn scan_table(
        &mut self,
        table: &Table,
        mut see: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> impl Future<Output = Result<()>> {
        self.scan_table_rows(table, move |row| see(row.bytes()))
    }

    /// Inserts an encoded row: an [`EncodedRow`], or a [`RowRef`] of bytes of other origin. A row of columns that the table had
    /// before is converted: columns that were added get their defaults, columns that were dropped are left out.
    ///
    /// # Errors
    /// [`Error::DuplicateKey`] leaves the transaction as it was before; a row of columns that the table neither has nor had
    /// (SQLSTATE 42804); the memory limit.
    pub async fn insert(&mut self, table: &Table, row: impl Into<RowRef<'_>>) -> Result<RowId> {
        let row = row.into();
        let _busy = self.driver.enter()?;
        self.driver.before_write().await;
        let mut state = InsertState::default();
        let (writes, mut since) = (self.driver.session().writes.len(), None);
        loop {
            match self.driver.session().try_insert(&table.entry, row, &mut state) {
                Ok(Step::Done(row_id)) => return Ok(row_id),
                Ok(Step::Wait(wait)) => self.driver.wait(wait).await?,
                Err(error) => self.driver.make_room(error, writes, &mut since).await?,
            }
        }
    }

    /// Begins to use a table, which the transaction's operations do by themselves.
    async fn touch(&mut self, table: &Table) -> Result<()> {
        let _busy = self.driver.enter()?;
        self.driver.session().note_hint();
        loop {
            match self.driver.session().touch(&table.entry) {
                Ok(Step::Done(_)) => return Ok(()),
                Ok(Step::Wait(wait)) => self.driver.wait(wait).await?,
                Err(error) => return Err(self.driver.failed(error)),
            }
        }
    }

    /// Is the handle of this database, and its table still there? Asked before a row is encoded: that may draw an
    /// auto-increment number.
    fn check_handle(&mut self, table: &Table) -> Result<()> {
        let _busy = self.driver.enter()?;
        let session = self.driver.session();
        session.note_hint();
        session.check_handle(&table.entry)
    }

    /// Inserts a row given by values; missing defaults and auto-increment numbers are filled in for nulls. Returns the
    /// auto-increment number, if the table has such a column.
    ///
    /// # Errors
    /// As [`Transaction::insert`].
    pub async fn insert_values(&mut self, table: &Table, values: &[Value]) -> Result<Option<i64>> {
        self.check_handle(table)?;
        let mut row = EncodedRow::new();
        let number = table.encode_values(values, &mut row)?;
        self.insert(table, &row).await?;
        Ok(number)
    }

    /// Inserts a row given by anything that serde can serialize as a struct or map of columns.
    ///
    /// # Errors
    /// As [`Transaction::insert`].
    pub async fn insert_from<T: Serialize + ?Sized>(&mut self, table: &Table, row: &T) -> Result<RowId> {
        self.check_handle(table)?;
        let mut bytes = EncodedRow::new();
        table.encode_from(row, &mut bytes)?;
        self.insert(table, &bytes).await
    }

    /// Reads the row with this key as anything that serde can make of a map of columns.
    ///
    /// # Errors
    /// As [`Transaction::read`], and a row that does not fit the type.
    pub async fn read_as<T: DeserializeOwned>(&mut self, index: &Index, key: &[u8]) -> Result<Option<T>> {
        let Some(row) = self.read(index, key, <[u8]>::to_vec).await? else { return Ok(None) };
        // Asked for now: since the read the table's columns stay as they are until the transaction ends.
        let found = crate::row::from_row(&index.table().layout(), &row);
        found.map(Some).map_err(|source| Error::Row { table: index.table().name(), source })
    }

    /// Inserts the rows of a batch of a bulk load.
    pub(crate) async fn load(
        &mut self,
        table: &Table,
        batch: &mut Batch,
        state: &mut LoadState,
    ) -> Result<()> {
        let _busy = self.driver.enter()?;
        self.driver.before_write().await;
        let mut since = None;
        loop {
            let (writes, done) = (self.driver.session().writes.len(), batch.done());
            match self.driver.session().try_load(&table.entry, batch, state) {
                Ok(Step::Done(())) => break,
                Ok(Step::Wait(wait)) => {
                    // What is read of the cold store needs the notices that a snapshot keeps.
                    if matches!(wait, Wait::Cold(_)) && self.driver.session().snapshot == NO_SNAPSHOT {
                        self.driver.session().take_snapshot();
                    }
                    self.driver.wait(wait).await?;
                }
                // Each row that is done is a write.
                Err(error) => self.driver.make_room(error, writes + batch.done() - done, &mut since).await?,
            }
        }
        self.driver.session().let_snapshot_go();
        Ok(())
    }

    /// Changes the row with this key through `edit`, which may run more than once. `None`: there is no such row.
    ///
    /// # Errors
    /// What `edit` returns; a serialization failure or a deadlock; a row that no longer fits.
    pub async fn update<R>(
        &mut self,
        index: &Index,
        key: &[u8],
        mut edit: impl FnMut(&mut RowEditor<'_>) -> Result<R>,
    ) -> Result<Option<R>> {
        let _busy = self.driver.enter()?;
        self.driver.before_write().await;
        self.approach(index, key).await;
        let mut contested = false;
        let (writes, mut since) = (self.driver.session().writes.len(), None);
        loop {
            match self.driver.session().try_update(&index.entry, index.id, key, &mut edit, &mut contested) {
                Ok(Step::Done(result)) => return Ok(result),
                Ok(Step::Wait(wait)) => self.driver.wait(wait).await?,
                Err(error) => self.driver.make_room(error, writes, &mut since).await?,
            }
        }
    }

    /// Deletes the row with this key. `false`: there is no such row.
    ///
    /// # Errors
    /// A serialization failure or a deadlock.
    pub async fn delete(&mut self, index: &Index, key: &[u8]) -> Result<bool> {
        let _busy = self.driver.enter()?;
        self.driver.before_write().await;
        self.approach(index, key).await;
        let (writes, mut since) = (self.driver.session().writes.len(), None);
        loop {
            match self.driver.session().try_delete(&index.entry, index.id, key) {
                Ok(Step::Done(found)) => return Ok(found),
                Ok(Step::Wait(wait)) => self.driver.wait(wait).await?,
                Err(error) => self.driver.make_room(error, writes, &mut since).await?,
            }
        }
    }

    /// Inserts the row, or replaces the one with the same primary key. `true`: it was inserted.
    ///
    /// # Errors
    /// As [`Transaction::insert`] and [`Transaction::update`].
    pub async fn upsert(&mut self, table: &Table, row: impl Into<RowRef<'_>>) -> Result<bool> {
        let given = row.into();
        self.touch(table).await?;
        // In use by this transaction: its columns stay as they are.
        let index = table.primary();
        let layout = table.layout();
        let accepted =
            table.with_form(|form| form.accept(given).map_err(|source| Session::row_error(form, source)))?;
        let row = RowRef::known(layout.id(), &accepted);
        let mut key = KeyBuf::new();
        table.primary_key_of(&row, &mut key)?;
        loop {
            let replaced = self
                .update(&index, &key, |editor| {
                    for column in 0..layout.columns().len() {
                        editor
                            .set_value(column, &layout.value(&row, column))
                            .map_err(|source| Error::Row { table: table.name(), source })?;
                    }
                    Ok(())
                })
                .await?;
            if replaced.is_some() {
                return Ok(false);
            }
            match self.insert(table, row).await {
                Ok(_) => return Ok(true),
                // Another transaction inserted it since this transaction's snapshot.
                Err(Error::DuplicateKey { index: name, key, .. }) if name == index.name() => {
                    if self.driver.isolation() == crate::Isolation::ReadCommitted {
                        continue;
                    }
                    let cause = crate::error::SerializationCause::ConcurrentUpdate;
                    let _busy = self.driver.enter()?;
                    let (table, key) = (table.name(), key.to_string());
                    return Err(self.driver.failed(Error::SerializationFailure { table, key, cause }));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Locks the row with this key until the transaction ends. `false`: there is no such row.
    ///
    /// # Errors
    /// A serialization failure or a deadlock; [`Error::WouldWait`] if the transaction does not wait; [`Error::LockTimeout`].
    pub async fn lock(&mut self, index: &Index, key: &[u8], mode: LockMode) -> Result<bool> {
        let wait = if self.driver.waits() { LockWait::Wait } else { LockWait::NoWait };
        let named = Named::Key(index.id, key);
        Ok(matches!(self.lock_named(&index.entry, named, mode, wait, |_| ()).await?, Locked::Locked(())))
    }

    /// Bounds the waits for other transactions from now on (`lock_timeout`): for rows and keys that they have changed or locked, for
    /// tables whose definitions they change, and, for a change of a definition, for tables that they use and names that they give
    /// away, in place of [`Options::definition_wait`](crate::Options::definition_wait). All waits of one operation together are as
    /// long at most; then it fails ([`Error::LockTimeout`]), and the transaction may go on. None: without a limit again.
    ///
    /// ```
    /// use std::time::Duration;
    /// use thermocline_engine::row::{Column, Type};
    /// use thermocline_engine::{Database, Error, Options, TableSchema, TransactionOptions, block_on};
    ///
    /// # fn main() -> thermocline_engine::Result<()> {
    /// let db = Database::open_in_memory(Options::default())?;
    /// let numbers = db.create_table(TableSchema::new("numbers").column(Column::new("number", Type::Int8)))?;
    /// let mut user = db.begin(TransactionOptions::new())?;
    /// block_on(user.scan_table(&numbers, |_| std::ops::ControlFlow::Continue(())))?;
    /// let mut changer = db.begin(TransactionOptions::new())?;
    /// changer.limit_waits(Some(Duration::from_millis(1)))?;
    /// let refused = block_on(changer.drop_table("numbers"));
    /// assert!(matches!(refused, Err(Error::LockTimeout { .. })));
    /// user.rollback();
    /// block_on(changer.drop_table("numbers"))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The transaction was aborted for idleness.
    pub fn limit_waits(&mut self, limit: Option<Duration>) -> Result<()> {
        let _busy = self.driver.enter()?;
        let nanoseconds = |limit: Duration| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let session = self.driver.session();
        session.note_hint();
        session.wait_limit = WaitLimit::new(limit.map(nanoseconds));
        Ok(())
    }

    /// Marks a point that [`Transaction::rollback_to`] goes back to.
    ///
    /// # Errors
    /// The transaction was aborted for idleness.
    pub fn savepoint(&mut self) -> Result<Savepoint> {
        let _busy = self.driver.enter()?;
        Ok(self.driver.session().savepoint())
    }

    /// Undoes all writes and locks since the savepoint, which stays valid; later savepoints go. Also heals a
    /// transaction that has failed since.
    ///
    /// # Errors
    /// The transaction was aborted for idleness, or the savepoint belongs to another one or is gone.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        let _busy = self.driver.enter()?;
        let session = self.driver.session();
        if savepoint.transaction != session.turn() {
            return Err(Error::ForeignHandle {
                what: "savepoint",
                name: format!("number {}", savepoint.number),
            });
        }
        if !session.rollback_to(savepoint) {
            return Err(Error::Unsupported {
                operation: "rollback_to",
                reason: "an earlier rollback has removed this savepoint; go back to an earlier one"
                    .to_owned(),
            });
        }
        Ok(())
    }

    /// Commits. When this returns, the transaction is as durable as the database's setting says.
    ///
    /// # Errors
    /// A serialization failure, a full disk: the transaction was rolled back. [`Error::LogFailed`]: it is not known
    /// whether the transaction will be there after a restart; or, if it has written nothing, whether what it has seen
    /// will be.
    pub async fn commit(self) -> Result<()> {
        self.driver.commit(&mut PartsState::default(), || ()).await
    }

    /// Commits, and calls `decided` as soon as nothing can take the commit back any more: from then on it only waits for the disk,
    /// and dropping the future undoes nothing. So a caller that may stop waiting knows what to tell. Not called for a transaction that has
    /// written nothing, nor for one that fails.
    ///
    /// # Errors
    /// As [`Transaction::commit`]. After `decided` only the log's: whether the commit lasts is not known then.
    pub async fn commit_with(self, decided: impl FnOnce()) -> Result<()> {
        self.driver.commit(&mut PartsState::default(), decided).await
    }

    /// Rolls back; the same as dropping the transaction.
    pub fn rollback(self) {}

    /// Rolls back now, and keeps the handle: its locks, and whatever else others wait for, are gone when this returns. All further
    /// operations fail as after a serialization failure. For whoever still has to tell that the transaction has failed.
    pub fn abort(&mut self) {
        self.driver.abort();
    }
}
