//! Statements as users see them: several operations under one snapshot, which do not see what they write.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::{Stop, Transaction};
use crate::api::{Index, Table};
use crate::catalog::table::TableEntry;
use crate::error::{Error, Result};
use crate::index::tree::Direction;
use crate::ops::change::{BothRows, Change, Changed, Named};
use crate::ops::handle::{RowHandle, SeenRow};
use crate::ops::lock::Locked;
use crate::ops::scan::KeyRange;
use crate::ops::{Step, Wait};
use crate::options::Isolation;
use crate::row::{RowEditor, RowRef};
use crate::txn::locks::LockMode;
use thermocline_base::ids::RowId;
use thermocline_base::sync::Ordering;

/// The behaviour of a lock that another transaction is in the way of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockWait {
    /// It waits for the other one's end, as long as the transaction waits ([`Transaction::limit_waits`]).
    Wait,
    /// It fails (`nowait`).
    NoWait,
    /// It leaves the row alone (`skip locked`).
    Skip,
}

/// A statement of a transaction: several operations that read at one snapshot, at every level, and pass over what they
/// write themselves.
///
/// A scan that is read while its rows are changed meets no row twice, and none that it has made; `insert … select` from a
/// table into itself ends. What earlier statements of the transaction have written, and its single operations, is seen. At
/// read committed a change is made to the newest version of its row, beside the snapshot.
///
/// Dropping it ends it: what it has written stays, and is seen from then on. A failed operation leaves what the ones before
/// it have written: [`Statement::undo`] takes the statement back as a whole.
///
/// ```
/// use std::ops::ControlFlow;
/// use thermocline_engine::row::{Column, Type, Value};
/// use thermocline_engine::{Change, Database, IndexSchema, Options, TableSchema, TransactionOptions};
///
/// # fn main() -> thermocline_engine::Result<()> {
/// let db = Database::open_in_memory(Options::default())?;
/// let numbers = db.create_table(
///     TableSchema::new("numbers")
///         .column(Column::new("number", Type::Int8))
///         .primary_key(IndexSchema::ordered("numbers_key", &["number"])),
/// )?;
/// let layout = numbers.layout();
/// db.run(TransactionOptions::new(), async |tx| {
///     for number in 0..10 {
///         tx.insert_values(&numbers, &[Value::Int8(number)]).await?;
///     }
///     // update numbers set number = number + 100: the scan does not meet what it has changed.
///     let mut statement = tx.statement()?;
///     let mut rows = Vec::new();
///     statement.scan_table(&numbers, |row| {
///         rows.push(row.handle());
///         ControlFlow::Continue(())
///     }).await?;
///     for handle in &rows {
///         let _ = statement.change_row(&numbers, handle, |row| {
///             let number = layout.i64(row.row(), 0).unwrap_or(0);
///             row.set_i64(0, number + 100)?;
///             Ok((Change::Update, ()))
///         }).await?;
///     }
///     assert_eq!(rows.len(), 10);
///     Ok(())
/// })?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Statement<'t> {
    transaction: &'t mut Transaction,
    /// The rows of the last change: not the session's, which an idle limit may take away, and not the transaction's, which
    /// is two words long and goes from hand to hand in registers.
    rows: BothRows,
    /// It keeps the transaction from being idle.
    attended: bool,
}

impl Transaction {
    /// Begins a statement: see [`Statement`]. It costs next to nothing, and ends when it is dropped.
    ///
    /// # Errors
    /// The transaction was aborted for idleness, or its snapshot was cancelled.
    pub fn statement(&mut self) -> Result<Statement<'_>> {
        let busy = self.driver.enter()?;
        let session = self.driver.session();
        session.note_hint();
        session.open_statement();
        drop(busy);
        Ok(Statement { transaction: self, rows: BothRows::default(), attended: false })
    }
}

impl Drop for Statement<'_> {
    fn drop(&mut self) {
        if self.attended {
            self.transaction.driver.place().attended.store(false, Ordering::Relaxed);
        }
        self.transaction.driver.end_statement(|session| session.close_statement());
    }
}

impl Statement<'_> {
    /// From now to its end the statement is no idleness, however long its owner does nothing for it: it waits for a client that reads
    /// its rows slowly. The limit of idleness ([`Options::idle_limit`](crate::Options::idle_limit)) counts from its end again.
    ///
    /// # Errors
    /// The transaction was aborted for idleness, or its snapshot was cancelled.
    pub fn attend(&mut self) -> Result<()> {
        // Amid an operation, which a reaper that has found the transaction idle before sees.
        let driver = &mut self.transaction.driver;
        let _busy = driver.enter()?;
        driver.session().note_hint();
        driver.place().attended.store(true, Ordering::Relaxed);
        self.attended = true;
        Ok(())
    }

    /// Reads the row with this key, as [`Transaction::read`].
    ///
    /// # Errors
    /// As [`Transaction::read`].
    pub async fn read<R>(
        &mut self,
        index: &Index,
        key: &[u8],
        see: impl FnOnce(SeenRow<'_>) -> R,
    ) -> Result<Option<R>> {
        self.transaction.read_row(index, key, see).await
    }

    /// Reads the row of a handle: what the snapshot sees of it, or what earlier statements have made of it. `None`: one of
    /// them has deleted it.
    ///
    /// # Errors
    /// As [`Transaction::read`]; a handle that is not good any more, or never was for this table (0A000).
    pub async fn read_row<R>(
        &mut self,
        table: &Table,
        handle: &RowHandle,
        see: impl FnOnce(SeenRow<'_>) -> R,
    ) -> Result<Option<R>> {
        self.transaction.read_named(table, handle, see).await
    }

    /// Reads all rows with this key, as [`Transaction::read_all`].
    ///
    /// # Errors
    /// As [`Transaction::read`].
    pub async fn read_all(
        &mut self,
        index: &Index,
        key: &[u8],
        see: impl FnMut(SeenRow<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.transaction.read_rows(index, key, see).await
    }

    /// Reads the rows of a range of an ordered index in key order, as [`Transaction::scan`].
    ///
    /// # Errors
    /// As [`Transaction::scan`].
    pub async fn scan(
        &mut self,
        index: &Index,
        range: KeyRange<'_>,
        direction: Direction,
        see: impl FnMut(SeenRow<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.transaction.scan_rows(index, range, direction, see).await
    }

    /// Reads all rows of a table in no particular order, as [`Transaction::scan_table`].
    ///
    /// # Errors
    /// As [`Transaction::read`].
    pub async fn scan_table(
        &mut self,
        table: &Table,
        see: impl FnMut(SeenRow<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.transaction.scan_table_rows(table, see).await
    }

    /// As [`Statement::scan`], with pauses: where `see` asks for one ([`Stop::Pause`]), `pause` runs, in which other tasks may
    /// have a turn. The scan holds nothing meanwhile but its snapshot, and goes on behind the row.
    ///
    /// # Errors
    /// As [`Transaction::scan`].
    pub async fn scan_pausing(
        &mut self,
        index: &Index,
        range: KeyRange<'_>,
        direction: Direction,
        see: impl FnMut(SeenRow<'_>) -> ControlFlow<Stop>,
        pause: impl AsyncFnMut(),
    ) -> Result<()> {
        self.transaction.scan_rows_pausing(index, range, direction, see, pause).await
    }

    /// As [`Statement::scan_table`], with pauses: see [`Statement::scan_pausing`].
    ///
    /// # Errors
    /// As [`Transaction::read`].
    pub async fn scan_table_pausing(
        &mut self,
        table: &Table,
        see: impl FnMut(SeenRow<'_>) -> ControlFlow<Stop>,
        pause: impl AsyncFnMut(),
    ) -> Result<()> {
        self.transaction.scan_table_rows_pausing(table, see, pause).await
    }

    /// Inserts a row, as [`Transaction::insert`]. Its key may have been refused by a row: see
    /// [`Statement::take_refusing_row`].
    ///
    /// # Errors
    /// As [`Transaction::insert`].
    pub async fn insert(&mut self, table: &Table, row: impl Into<RowRef<'_>>) -> Result<RowId> {
        self.transaction.insert(table, row).await
    }

    /// True if the transaction keeps its snapshot from one statement to the next: at all levels but read committed.
    #[must_use]
    pub fn keeps_snapshot(&mut self) -> bool {
        self.transaction.driver.session().isolation != Isolation::ReadCommitted
    }

    /// A handle of the row that has refused a key, after an error of a duplicate key: for `on conflict do update`. A change
    /// by it is made to the row's newest version at read committed, whether the snapshot sees the row or not; it answers
    /// [`Changed::ByStatement`] if this statement has inserted the row.
    ///
    /// # Errors
    /// The transaction was aborted for idleness, or its snapshot was cancelled.
    pub fn take_refusing_row(&mut self) -> Result<Option<RowHandle>> {
        self.transaction.driver.with_session(|session| Ok(session.refused_by.take()))
    }

    /// Looks, at present, for a row with this key of an index, unique or not, whatever the snapshot: what a referential check
    /// asks for above read committed. A row of a transaction that is not over is waited for. What is found is one of the
    /// rows that the transaction has read; a look that finds none has read nothing.
    ///
    /// Whoever deletes a parent deletes it first and looks for children then: no child can come any more that has locked the
    /// parent's key ([`LockMode::KeyShare`]).
    ///
    /// # Errors
    /// As [`Transaction::read`]; a deadlock.
    pub async fn look_at_present(&mut self, index: &Index, key: &[u8]) -> Result<Option<RowHandle>> {
        let transaction = &mut *self.transaction;
        let _busy = transaction.driver.enter()?;
        loop {
            match transaction.driver.session().try_look_at_present(&index.entry, index.id, key) {
                Ok(Step::Done(found)) => return Ok(found),
                Ok(Step::Wait(wait)) => transaction.driver.wait(wait).await?,
                Err(error) => return Err(transaction.driver.failed(error)),
            }
        }
    }

    /// Changes the row with this key as `decide` says, which sees its newest version and may run more than once. In a
    /// non-unique index, one of the rows.
    ///
    /// # Errors
    /// What `decide` returns; a serialization failure or a deadlock; a duplicate key; a row that no longer fits.
    pub async fn change<R>(
        &mut self,
        index: &Index,
        key: &[u8],
        decide: impl FnMut(&mut RowEditor<'_>) -> Result<(Change, R)>,
    ) -> Result<Changed<R>> {
        let table = index.table();
        self.transaction.change_named(&table, Named::Key(index.id, key), decide, &mut self.rows).await
    }

    /// Changes the row of a handle: see [`Statement::change`].
    ///
    /// # Errors
    /// As [`Statement::change`]; a handle that is not good any more, or never was for this table (0A000).
    pub async fn change_row<R>(
        &mut self,
        table: &Table,
        handle: &RowHandle,
        decide: impl FnMut(&mut RowEditor<'_>) -> Result<(Change, R)>,
    ) -> Result<Changed<R>> {
        self.transaction.change_named(table, Named::Handle(handle), decide, &mut self.rows).await
    }

    /// Locks the row with this key until the transaction ends, and shows its newest version to `see`, under the lock: what
    /// was asked of the row has to be asked again, of that version. In a non-unique index, one of the rows.
    ///
    /// # Errors
    /// A serialization failure or a deadlock; [`Error::WouldWait`] with [`LockWait::NoWait`];
    /// [`Error::LockTimeout`].
    pub async fn lock<R>(
        &mut self,
        index: &Index,
        key: &[u8],
        mode: LockMode,
        wait: LockWait,
        see: impl FnOnce(SeenRow<'_>) -> R,
    ) -> Result<Locked<R>> {
        self.transaction.lock_named(&index.entry, Named::Key(index.id, key), mode, wait, see).await
    }

    /// Locks the row of a handle: see [`Statement::lock`].
    ///
    /// # Errors
    /// As [`Statement::lock`]; a handle that is not good any more, or never was for this table (0A000).
    pub async fn lock_row<R>(
        &mut self,
        table: &Table,
        handle: &RowHandle,
        mode: LockMode,
        wait: LockWait,
        see: impl FnOnce(SeenRow<'_>) -> R,
    ) -> Result<Locked<R>> {
        self.transaction.lock_named(&table.entry, Named::Handle(handle), mode, wait, see).await
    }

    /// Begins to use a table, which the statement's operations do by themselves: from now on its definition stays what it is
    /// ([`Table::definition`]).
    ///
    /// # Errors
    /// As [`Transaction::read`].
    pub async fn use_table(&mut self, table: &Table) -> Result<()> {
        self.transaction.touch(table).await
    }

    /// Is the table the transaction's alone, since its definition is being changed?
    ///
    /// # Errors
    /// The transaction was aborted for idleness.
    pub fn holds(&mut self, table: &Table) -> Result<bool> {
        self.transaction.driver.with_session(|session| Ok(session.holds(&table.entry)))
    }

    /// The row of the last change that was made, as it was before.
    #[must_use]
    pub fn old_row(&self) -> &[u8] {
        &self.rows.old
    }

    /// The row of the last change that was made, as it is now; empty if it was deleted.
    #[must_use]
    pub fn new_row(&self) -> &[u8] {
        &self.rows.new
    }

    /// Takes back what the statement has written, and ends it. What it has read stays part of the transaction, and so do
    /// locks.
    pub fn undo(self) {
        self.transaction.driver.end_statement(|session| session.undo_statement());
    }
}

impl Transaction {
    /// Locks the row that is named.
    pub(super) async fn lock_named<R>(
        &mut self,
        entry: &Arc<TableEntry>,
        named: Named<'_>,
        mode: LockMode,
        how: LockWait,
        see: impl FnOnce(SeenRow<'_>) -> R,
    ) -> Result<Locked<R>> {
        let _busy = self.driver.enter()?;
        let mut see = Some(see);
        let (writes, mut since) = (self.driver.session().writes.len(), None);
        loop {
            match self.driver.session().try_lock(entry, named, mode, &mut see) {
                Ok(Step::Done(locked)) => return Ok(locked),
                // Only users' locks and versions: a move is waited out, by whoever skips, too.
                Ok(Step::Wait(Wait::Holder { table, key, id, since })) => match how {
                    LockWait::Wait => {
                        self.driver.wait_for(Wait::Holder { id, since, table, key }, true).await?;
                    }
                    LockWait::NoWait => return Err(self.driver.failed(Error::WouldWait { table, key })),
                    LockWait::Skip => return Ok(Locked::Skipped),
                },
                Ok(Step::Wait(wait)) => self.driver.wait_for(wait, true).await?,
                Err(error) => self.driver.make_room(error, writes, &mut since).await?,
            }
        }
    }

    /// Changes the row that is named.
    async fn change_named<R>(
        &mut self,
        table: &Table,
        named: Named<'_>,
        mut decide: impl FnMut(&mut RowEditor<'_>) -> Result<(Change, R)>,
        rows: &mut BothRows,
    ) -> Result<Changed<R>> {
        let _busy = self.driver.enter()?;
        self.driver.before_write().await;
        let mut contested = false;
        let (writes, mut since) = (self.driver.session().writes.len(), None);
        loop {
            match self.driver.session().try_change(&table.entry, named, &mut decide, &mut contested, rows) {
                Ok(Step::Done(changed)) => return Ok(changed),
                Ok(Step::Wait(wait)) => self.driver.wait(wait).await?,
                Err(error) => self.driver.make_room(error, writes, &mut since).await?,
            }
        }
    }
}
