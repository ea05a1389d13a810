//! Changes of definitions for callers without a transaction for them: each is one, and durable when it returns, whatever
//! the durability of the database's transactions.
//!
//! A change that is refused memory is rolled back, so that it holds nothing; then it waits for the governor, and is tried again.

use std::sync::Arc;

use thermocline_base::ids::RowId;
use thermocline_base::multiplex::block_on;

use super::Transaction;
use crate::api::{Database, Index, Table};
use crate::cold::store::StoreMemory;
use crate::counters::WaitKind;
use crate::error::{Error, Result};
use crate::hot::budget::OutOfMemoryCause;
use crate::ops::define::ColumnChange;
use crate::ops::freeze::Settled;
use crate::ops::progress::{Advance, silent};
use crate::pressure::Verdict;
use crate::row::Column;
use crate::schema::{IndexSchema, TableSchema, Tiering};
use crate::session::db::Inner;

/// Runs a change in a transaction of its own; `make_room` is called before each wait for memory. Blocks.
fn define<T>(
    db: &Arc<Inner>,
    mut change: impl AsyncFnMut(&mut Transaction) -> Result<T>,
    mut make_room: impl FnMut(),
) -> Result<T> {
    let mut since = None;
    loop {
        crate::ops::define::may_define(db)?;
        let outcome = block_on(async {
            let mut transaction = Transaction::internal(db)?;
            let made = change(&mut transaction).await?;
            transaction.commit_now().await?;
            Ok(made)
        });
        let error = match outcome {
            Err(Error::OutOfMemory(wanted))
                if wanted.cause == OutOfMemoryCause::Limit && db.governor.is_there() =>
            {
                Error::OutOfMemory(wanted)
            }
            outcome => return outcome,
        };
        db.epochs.collect();
        make_room();
        let since = *since.get_or_insert_with(|| db.clock.now_ns());
        let room = db.governor.wait_for_room(None, 0, since);
        let verdict = block_on(db.counted(WaitKind::Memory, room));
        db.governor.counters.note_wait(db.clock.now_ns().saturating_sub(since));
        if verdict == Verdict::Refused {
            return Err(error);
        }
    }
}

/// There is no room for the rows of a table beside themselves: half of those in memory leave it, whatever their
/// temperature, as far as they may. Blocks.
fn move_half(db: &Arc<Inner>, table: &str, advance: &mut Advance<'_>) -> Result<()> {
    const ROWS: usize = 512;
    let entry = db.catalog.by_name(table).ok_or_else(|| Error::UnknownTable { name: table.to_owned() })?;
    let (count, chunks) = {
        let guard = db.epochs.pin();
        let form = entry.form_pinned(&guard);
        if form.schema.row_tiering() == Tiering::Hot {
            return Ok(());
        }
        if form.schema.row_tiering() == Tiering::Paged {
            drop(guard);
            return crate::ops::page::page_table(db, &entry, Settled::MOST).map(drop);
        }
        let mut count = 0_usize;
        form.store.for_each_row(&guard, |_, newest| {
            count += usize::from(!newest.is_tombstone());
            Ok::<(), Error>(())
        })?;
        (count, form.store.directory.len())
    };
    let mut moved = 0;
    for number in 0..chunks {
        let rows: Vec<RowId> = {
            let guard = db.epochs.pin();
            let store = &entry.form_pinned(&guard).store;
            let slots = store.directory.get(number, &guard).map_or(0, crate::hot::chunk::Chunk::used);
            let rows = (0..slots).filter_map(|slot| u16::try_from(slot).ok());
            let is_there = |row: &RowId| {
                store.directory.newest(*row, &guard).is_some_and(|newest| !newest.is_tombstone())
            };
            rows.map(|slot| RowId::new(number, slot)).filter(is_there).collect()
        };
        for rows in rows.chunks(ROWS) {
            if moved * 2 >= count {
                return Ok(());
            }
            advance.tell()?;
            moved += block_on(crate::ops::migrate::migrate(db, &entry, rows))?.rows;
            if let Some(cold) = db.cold.get() {
                // What is on its way takes memory, too.
                cold.let_catch_up(StoreMemory::within(db.memory_limit()).buffer_bytes());
            }
        }
    }
    Ok(())
}

impl Database {
    /// Creates a table. Durable when this returns.
    ///
    /// # Errors
    /// The definition is not acceptable, or a table has the name.
    pub fn create_table(&self, schema: TableSchema) -> Result<Table> {
        let created = define(self.inner(), async |tx| tx.create_table(schema.clone()).await, || {});
        created.map(Table::everybodys)
    }

    /// Drops a table with all its rows.
    ///
    /// # Errors
    /// There is none with this name, or transactions use it for too long.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        define(self.inner(), async |tx| tx.drop_table(name).await, || {})
    }

    /// Removes all rows of a table. Like a change of its definition, this is seen by older snapshots, too.
    ///
    /// # Errors
    /// There is none with this name, or transactions use it for too long.
    pub fn truncate_table(&self, name: &str) -> Result<()> {
        define(self.inner(), async |tx| tx.truncate_table(name).await, || {})
    }

    /// Creates a secondary index on the rows that are there.
    ///
    /// # Errors
    /// The definition is not acceptable; the index is unique and two rows have one key; transactions use the table for
    /// too long.
    pub fn create_index(&self, table: &str, index: IndexSchema) -> Result<Index> {
        self.create_index_with(table, index, silent)
    }

    pub(crate) fn create_index_telling(
        &self,
        table: &str,
        index: &IndexSchema,
        advance: &mut Advance<'_>,
    ) -> Result<Index> {
        let created =
            define(self.inner(), async |tx| tx.create_index_telling(table, index, advance).await, || {});
        created.map(Index::everybodys)
    }

    /// Drops a secondary index.
    ///
    /// # Errors
    /// There is no such index, or it is the primary key.
    pub fn drop_index(&self, table: &str, index: &str) -> Result<()> {
        define(self.inner(), async |tx| tx.drop_index(table, index).await, || {})
    }

    /// Gives a table another name.
    ///
    /// # Errors
    /// There is no such table, or the new name is taken or no name.
    pub fn rename_table(&self, from: &str, to: &str) -> Result<()> {
        define(self.inner(), async |tx| tx.rename_table(from, to).await, || {})
    }

    /// Says anew where the rows of a table may go. Rows that are in the cold store already come back only as they are
    /// read or changed.
    ///
    /// # Errors
    /// There is no such table, or the tiering does not exist yet.
    pub fn alter_tiering(&self, table: &str, tiering: Tiering) -> Result<()> {
        define(self.inner(), async |tx| tx.alter_tiering(table, tiering).await, || {})
    }

    /// Gives a column another name.
    ///
    /// # Errors
    /// There is no such table or column, or the new name is taken or no name.
    pub fn rename_column(&self, table: &str, from: &str, to: &str) -> Result<()> {
        define(self.inner(), async |tx| tx.rename_column(table, from, to).await, || {})
    }

    /// Adds a column at the end; the rows that are there get its default, or null.
    ///
    /// # Errors
    /// There is no such table; the name is taken; the column is neither nullable nor has a default.
    pub fn add_column(&self, table: &str, column: Column) -> Result<()> {
        self.add_column_with(table, column, silent)
    }

    /// Drops a column.
    ///
    /// # Errors
    /// There is no such table or column, the column is part of an index, or it is the last one.
    pub fn drop_column(&self, table: &str, column: &str) -> Result<()> {
        self.drop_column_with(table, column, silent)
    }

    pub(crate) fn change_columns_telling(
        &self,
        table: &str,
        change: &ColumnChange,
        advance: Advance<'_>,
    ) -> Result<()> {
        let advance = std::cell::RefCell::new(advance);
        let make_room = || {
            if let Err(error) = move_half(self.inner(), table, &mut advance.borrow_mut()) {
                tracing::debug!(%error, "rows stay in memory beside which their columns are to change");
            }
        };
        // It is borrowed only here while a change is under way.
        #[expect(clippy::await_holding_refcell_ref, reason = "the change runs on this thread alone")]
        define(
            self.inner(),
            async |tx| tx.change_columns_telling(table, change, &mut advance.borrow_mut()).await,
            make_room,
        )
    }
}
