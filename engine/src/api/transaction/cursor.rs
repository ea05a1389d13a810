//! Cursors as users see them: scans that are read a batch at a time, several open at once.

use std::ops::ControlFlow;

use thermocline_base::multiplex::{give_way, has_company};

use super::Transaction;
use super::statement::Statement;
use crate::api::{Index, Table};
use crate::counters::WaitKind;
use crate::error::Result;
use crate::index::tree::Direction;
use crate::ops::cursor::CursorView;
use crate::ops::handle::SeenRow;
use crate::ops::scan::{KeyRange, ScanState, TableScanState, advance, fetch_ahead_of};
use crate::ops::{Step, Wait};
use crate::session::Session;

/// A scan that goes on from batch to batch: see [`Transaction::open_cursor`].
///
/// It sees what the transaction saw when it was opened, whatever the transaction writes meanwhile, and whatever snapshots it
/// takes after that. Dropping the cursor ends it. It is of use to its own transaction only; one that outlives its transaction
/// at read committed keeps its snapshot until it is dropped.
#[derive(Debug)]
pub struct Cursor {
    /// Before `view`: what it has read ahead goes before the snapshot does.
    scan: CursorScan,
    view: CursorView,
}

#[derive(Debug)]
enum CursorScan {
    Range(Index, Box<ScanState>),
    Table(Table, Box<TableScanState>),
}

impl Cursor {
    /// Has it shown its last row? It may only find out by the fetch after that one.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match &self.scan {
            CursorScan::Range(_, state) => state.finished,
            CursorScan::Table(_, state) => state.finished,
        }
    }
}

impl Transaction {
    /// Opens a cursor over a range of an ordered index, in one direction, which stays. Several may be open at once, and the
    /// transaction may do whatever else it wants between two fetches. At read committed the cursor takes a snapshot, which it
    /// keeps; else it has the transaction's.
    ///
    /// ```
    /// # use thermocline_engine::row::{Column, Type, Value};
    /// # use thermocline_engine::{Database, Direction, IndexSchema, KeyRange, Options, TableSchema, TransactionOptions};
    /// # fn main() -> thermocline_engine::Result<()> {
    /// # let db = Database::open_in_memory(Options::default())?;
    /// # let numbers = db.create_table(
    /// #     TableSchema::new("numbers")
    /// #         .column(Column::new("number", Type::Int8))
    /// #         .primary_key(IndexSchema::ordered("numbers_key", &["number"])),
    /// # )?;
    /// db.run(TransactionOptions::new(), async |tx| {
    ///     for number in 0..10 {
    ///         tx.insert_values(&numbers, &[Value::Int8(number)]).await?;
    ///     }
    ///     let mut cursor = tx.open_cursor(&numbers.primary(), KeyRange::all(), Direction::Forward)?;
    ///     let mut batches = Vec::new();
    ///     while !cursor.is_finished() {
    ///         batches.push(tx.fetch(&mut cursor, 4, |_| ()).await?);
    ///         tx.insert_values(&numbers, &[Value::Int8(100 + batches.len() as i64)]).await?;
    ///     }
    ///     assert_eq!(batches, [4, 4, 2]);
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The transaction was aborted for idleness, or its snapshot was cancelled; there are no places for more snapshots.
    pub fn open_cursor(
        &mut self,
        index: &Index,
        range: KeyRange<'_>,
        direction: Direction,
    ) -> Result<Cursor> {
        let mut state = Box::new(ScanState::new(range, direction));
        state.pauses = true;
        let view = self.driver.with_session(|session| {
            session.check_handle(&index.entry)?;
            session.open_cursor_view(index.entry.id)
        })?;
        Ok(Cursor { scan: CursorScan::Range(index.clone(), state), view })
    }

    /// Opens a cursor over all rows of a table, in no particular order: see [`Transaction::open_cursor`].
    ///
    /// # Errors
    /// As [`Transaction::open_cursor`].
    pub fn open_table_cursor(&mut self, table: &Table) -> Result<Cursor> {
        let state = Box::<TableScanState>::default();
        let view = self.driver.with_session(|session| {
            session.check_handle(&table.entry)?;
            session.open_cursor_view(table.entry.id)
        })?;
        Ok(Cursor { scan: CursorScan::Table(table.clone(), state), view })
    }

    /// Shows the next rows of a cursor to `see`, so many at most; how many there were. Handles of these rows are good for as
    /// long as the cursor is open. Gives way to other tasks of the worker before each batch.
    ///
    /// # Errors
    /// As [`Transaction::scan`]; a cursor of another transaction, or one that a rollback to a savepoint has ended (0A000);
    /// [`Error::SnapshotTooOld`](crate::Error::SnapshotTooOld) at read committed: the cursor has ended, the transaction goes on.
    pub async fn fetch(
        &mut self,
        cursor: &mut Cursor,
        rows: usize,
        mut see: impl FnMut(SeenRow<'_>),
    ) -> Result<usize> {
        if rows == 0 {
            return self.driver.with_session(|_| Ok(0));
        }
        let mut count = 0;
        let show = |row: SeenRow<'_>| {
            see(row);
            count += 1;
            if count == rows { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        self.fetch_until(cursor, show).await?;
        Ok(count)
    }

    /// Shows the next rows of a cursor, until `see` has enough.
    async fn fetch_until(
        &mut self,
        cursor: &mut Cursor,
        mut see: impl FnMut(SeenRow<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let _busy = self.driver.enter()?;
        if has_company() {
            give_way().await;
        }
        while !cursor.is_finished() {
            let Cursor { scan, view } = &mut *cursor;
            let session = self.driver.session();
            let before = session.enter_cursor(view)?;
            let step = match scan {
                CursorScan::Range(index, state) => session.try_scan(&index.entry, index.id, state, &mut see),
                CursorScan::Table(table, state) => session.try_scan_table(&table.entry, state, &mut see),
            };
            session.leave_cursor(view, before);
            match step {
                Ok(Step::Done(())) => break,
                Ok(Step::Wait(Wait::ColdScan)) => self.read_on(cursor).await?,
                Ok(Step::Wait(wait)) => self.driver.wait(wait).await?,
                Err(error) => return Err(self.driver.failed(error)),
            }
        }
        Ok(())
    }

    /// Reads on in the cold store.
    async fn read_on(&mut self, cursor: &mut Cursor) -> Result<()> {
        let Cursor { scan, view } = cursor;
        let db = self.driver.session().db();
        match scan {
            CursorScan::Table(table, state) => {
                let read = db.counted(WaitKind::ColdScans, advance(state.cold())).await;
                self.read_cold(&table.entry, read)
            }
            CursorScan::Range(index, state) => {
                let read = db.counted(WaitKind::ColdScans, advance(state.cold())).await;
                self.read_cold(&index.entry, read)?;
                let session = self.driver.session();
                let before = session.enter_cursor(view)?;
                let primary = session.look_ahead(&index.entry, state.cold());
                session.leave_cursor(view, before);
                if let Some(primary) = primary {
                    db.counted(WaitKind::ColdScans, fetch_ahead_of(db, state.cold(), primary)).await;
                    self.read_cold(&index.entry, Ok(()))?;
                }
                Ok(())
            }
        }
    }
}

impl Statement<'_> {
    /// Shows the next rows of a cursor of the transaction to `see`, until it has enough; the cursor goes on behind the last one. Rows
    /// are those that [`Transaction::fetch`] would show. At read committed the transaction's own snapshot is renewed, as by each first
    /// operation of a statement: it does not grow as old as the cursor's.
    ///
    /// # Errors
    /// As [`Transaction::fetch`].
    pub async fn fetch(
        &mut self,
        cursor: &mut Cursor,
        see: impl FnMut(SeenRow<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let begin = |session: &mut Session| {
            session.go_on_with_statement();
            Ok(())
        };
        self.transaction.driver.with_session(begin)?;
        self.transaction.fetch_until(cursor, see).await
    }
}
