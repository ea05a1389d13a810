//! Changes of definitions among a transaction's other operations. They are seen by it at once, by others when it commits, and
//! undone when it rolls back, to a savepoint too. The argument is in [`crate::ops::define`].

use std::sync::Arc;

use super::Transaction;
use crate::api::{Index, Table, Tables};
use crate::error::{Error, Result};
use crate::ops::Step;
use crate::ops::commit::PartsState;
use crate::ops::define::{ColumnChange, Looked};
use crate::ops::progress::{Advance, silent};
use crate::row::Column;
use crate::schema::{IndexSchema, TableSchema, Tiering};
use crate::session::Session;

/// # Definitions
///
/// What changes a table waits for the transactions that use it, and keeps others from it until the transaction ends: for
/// [`Options::definition_wait`](crate::Options::definition_wait) at most, then it is refused
/// ([`Error::SchemaChangeTimeout`]); or for as long as [`Transaction::limit_waits`] says ([`Error::LockTimeout`]). Circles of such waits are found ([`Error::Deadlock`]). A table cannot be changed while a cursor
/// of the transaction is open on it ([`Error::InUse`]).
///
/// ```
/// use thermocline_engine::row::{Column, Type, Value};
/// use thermocline_engine::{Database, IndexSchema, Options, TableSchema, TransactionOptions};
///
/// # fn main() -> thermocline_engine::Result<()> {
/// let db = Database::open_in_memory(Options::default())?;
/// db.run(TransactionOptions::new(), async |tx| {
///     let schema = TableSchema::new("jobs").column(Column::new("id", Type::Int8));
///     let jobs = tx.create_table(schema.primary_key(IndexSchema::hash("jobs_key", &["id"]))).await?;
///     tx.insert_values(&jobs, &[Value::Int8(1)]).await?;
///     tx.add_column("jobs", Column::new("state", Type::Text).default("new")).await?;
///     let (jobs_key, layout) = (jobs.primary(), jobs.layout());
///     let state = tx.read(&jobs_key, &jobs_key.key_of_values(&[Value::Int8(1)])?, |row| layout.value(row, 1)).await?;
///     assert_eq!(state, Some(Value::from("new")));
///     assert!(db.table("jobs").is_err(), "no other transaction sees it");
///     Ok(())
/// })?;
/// assert!(db.table("jobs").is_ok());
/// # Ok(())
/// # }
/// ```
impl Transaction {
    /// The tables as the transaction has them.
    ///
    /// # Errors
    /// The transaction was aborted for idleness.
    pub fn tables(&mut self) -> Result<Tables> {
        let _busy = self.driver.enter()?;
        Ok(Tables::of_session(self.driver.session()))
    }

    /// The table with this name, as the transaction has it.
    ///
    /// # Errors
    /// There is none; the transaction was aborted for idleness.
    pub fn table(&mut self, name: &str) -> Result<Table> {
        let _busy = self.driver.enter()?;
        let session = self.driver.session();
        session.entry(name).map(|entry| Table::of_session(session, entry))
    }

    /// Creates a table.
    ///
    /// # Errors
    /// The definition is not acceptable, or a table has the name.
    pub async fn create_table(&mut self, schema: TableSchema) -> Result<Table> {
        let _busy = self.begin_definition()?;
        self.claim(&schema.name).await?;
        let entry = self.with_room(|session| session.create_table(schema.clone())).await?;
        Ok(Table::of_session(self.driver.session(), entry))
    }

    /// Drops a table with all its rows.
    ///
    /// # Errors
    /// There is none with this name, or transactions use it for too long.
    pub async fn drop_table(&mut self, name: &str) -> Result<()> {
        let _busy = self.begin_definition()?;
        self.claim(name).await?;
        let entry = self.get(name, || Ok(())).await?;
        self.driver.session().drop_table(&entry);
        Ok(())
    }

    /// Removes all rows of a table. Once it is committed this is seen by older snapshots, too.
    ///
    /// # Errors
    /// There is none with this name, or transactions use it for too long.
    pub async fn truncate_table(&mut self, name: &str) -> Result<()> {
        let _busy = self.begin_definition()?;
        let entry = self.get(name, || Ok(())).await?;
        self.with_room(|session| session.truncate_table(&entry)).await
    }

    /// Gives a table another name.
    ///
    /// # Errors
    /// There is no such table, or the new name is taken or no name.
    pub async fn rename_table(&mut self, from: &str, to: &str) -> Result<()> {
        let _busy = self.begin_definition()?;
        self.claim(from).await?;
        self.claim(to).await?;
        let entry = self.get(from, || Ok(())).await?;
        self.with_room(|session| session.rename_table(&entry, to)).await
    }

    /// Says anew where the rows of a table may go. Rows that are in the cold store already come back only as they are
    /// read or changed.
    ///
    /// # Errors
    /// There is no such table, or the tiering does not exist yet.
    pub async fn alter_tiering(&mut self, table: &str, tiering: Tiering) -> Result<()> {
        let _busy = self.begin_definition()?;
        let entry = self.get(table, || Ok(())).await?;
        self.with_room(|session| session.alter_tiering(&entry, tiering)).await
    }

    /// Gives a column another name.
    ///
    /// # Errors
    /// There is no such table or column, or the new name is taken or no name.
    pub async fn rename_column(&mut self, table: &str, from: &str, to: &str) -> Result<()> {
        let _busy = self.begin_definition()?;
        let entry = self.get(table, || Ok(())).await?;
        self.with_room(|session| session.rename_column(&entry, from, to)).await
    }

    /// Adds a column at the end; the rows that are there get its default, or null. Writes all rows in memory anew, and blocks the
    /// thread meanwhile.
    ///
    /// # Errors
    /// There is no such table; the name is taken; the column is neither nullable nor has a default.
    pub async fn add_column(&mut self, table: &str, column: Column) -> Result<()> {
        let change = ColumnChange::added(table, &column)?;
        self.change_columns(table, &change).await
    }

    /// Drops a column. Writes all rows in memory anew, and blocks the thread meanwhile.
    ///
    /// # Errors
    /// There is no such table or column, the column is part of an index, or it is the last one.
    pub async fn drop_column(&mut self, table: &str, column: &str) -> Result<()> {
        self.change_columns(table, &ColumnChange::Dropped(column.to_owned())).await
    }

    async fn change_columns(&mut self, table: &str, change: &ColumnChange) -> Result<()> {
        let _busy = self.begin_definition()?;
        let looked = self.look(table, change, &mut Advance::new(&mut silent))?;
        let entry = self.get(table, || Ok(())).await?;
        self.with_room(|session| {
            session.change_columns(&entry, change, looked, &mut Advance::new(&mut silent))
        })
        .await
    }

    /// The same, which tells how far it is, and does not wait for memory.
    pub(crate) async fn change_columns_telling(
        &mut self,
        table: &str,
        change: &ColumnChange,
        advance: &mut Advance<'_>,
    ) -> Result<()> {
        let _busy = self.begin_definition()?;
        let looked = self.look(table, change, advance)?;
        let entry = self.get(table, || advance.tell()).await?;
        self.driver.session().change_columns(&entry, change, looked, advance)
    }

    /// Goes over a table before it is held: its form stays what it is from then on, its rows do not.
    fn look(&mut self, table: &str, change: &ColumnChange, advance: &mut Advance<'_>) -> Result<Looked> {
        let session = self.driver.session();
        let handle = Table::of_session(session, session.entry(table)?);
        // Nothing that takes long may be pinned.
        let form = handle.with_form(crate::catalog::table::TableForm::share);
        change.look(session.db(), &form, advance)
    }

    /// Creates a secondary index on the rows that are there; blocks the thread meanwhile.
    ///
    /// # Errors
    /// The definition is not acceptable; the index is unique and two rows have one key; transactions use the table for
    /// too long.
    pub async fn create_index(&mut self, table: &str, index: IndexSchema) -> Result<Index> {
        let _busy = self.begin_definition()?;
        let entry = self.get(table, || Ok(())).await?;
        let made =
            |session: &mut Session| session.create_index(&entry, &index, &mut Advance::new(&mut silent));
        let id = self.with_room(made).await?;
        Ok(Index::of(Table::of_session(self.driver.session(), entry), id))
    }

    /// The same, which tells how far it is, and does not wait for memory.
    pub(crate) async fn create_index_telling(
        &mut self,
        table: &str,
        index: &IndexSchema,
        advance: &mut Advance<'_>,
    ) -> Result<Index> {
        let _busy = self.begin_definition()?;
        let entry = self.get(table, || advance.tell()).await?;
        let id = self.driver.session().create_index(&entry, index, advance)?;
        Ok(Index::of(Table::of_session(self.driver.session(), entry), id))
    }

    /// Drops a secondary index.
    ///
    /// # Errors
    /// There is no such index, or it is the primary key.
    pub async fn drop_index(&mut self, table: &str, index: &str) -> Result<()> {
        let _busy = self.begin_definition()?;
        let entry = self.get(table, || Ok(())).await?;
        self.with_room(|session| session.drop_index(&entry, index)).await
    }

    /// Keeps others from using a table until the transaction ends, and waits for its users to end: for a check of
    /// all of its rows, and has to stay so. [`Table::definition`] is another number from then on.
    ///
    /// # Errors
    /// There is none with this name, or transactions use it for too long.
    pub async fn lock_table(&mut self, name: &str) -> Result<()> {
        let _busy = self.begin_definition()?;
        self.get(name, || Ok(())).await.map(drop)
    }

    fn begin_definition(&mut self) -> Result<crate::ops::drive::Busy> {
        let busy = self.driver.enter()?;
        self.driver.session().may_define()?;
        Ok(busy)
    }

    async fn claim(&mut self, name: &str) -> Result<()> {
        self.driver.claim_name(name).await.map_err(|error| self.driver.failed(error))
    }

    async fn get(
        &mut self,
        table: &str,
        told: impl FnMut() -> Result<()>,
    ) -> Result<Arc<crate::catalog::table::TableEntry>> {
        self.driver.hold_table(table, told).await.map_err(|error| self.driver.failed(error))
    }

    /// Makes a change, and again when there is room, if memory was short.
    async fn with_room<T>(&mut self, mut change: impl FnMut(&mut Session) -> Result<T>) -> Result<T> {
        let (writes, mut since) = (self.driver.session().writes.len(), None);
        loop {
            match change(self.driver.session()) {
                Err(error @ Error::OutOfMemory(_)) => {
                    self.driver.make_room(error, writes, &mut since).await?;
                }
                outcome => return outcome,
            }
        }
    }

    /// Commits, and sees to it that the log is durable then, whatever the setting, with its own thread or without one.
    pub(crate) async fn commit_now(mut self) -> Result<()> {
        let (db, ticket) = {
            let _busy = self.driver.enter()?;
            let mut parts = PartsState::default();
            let ticket = loop {
                match self.driver.session().try_commit(&mut parts) {
                    Ok(Step::Done(ticket)) => break ticket,
                    Ok(Step::Wait(wait)) => self.driver.wait(wait).await?,
                    Err(error) => return Err(self.driver.failed(error)),
                }
            };
            (self.driver.session().db(), ticket)
        };
        if let Some(log) = db.log().filter(|_| ticket.wrote) {
            crate::ops::checkpoint::make_durable(db, log, ticket.lsn)?;
        }
        crate::ops::define::free_replaced(db);
        Ok(())
    }
}
