//! Definitions, which run in the open transaction, or in one of their own that stands round one of them.
//!
//! The engine's definitions and the rows of the hidden tables change in one transaction. The session finds tables through
//! [`Session::tables`]: those that everybody has, or, once the open transaction has changed definitions, those that it has.
//!
//! | file | makes, changes and drops |
//! |---|---|
//! | `tables` | tables and indexes |
//! | `alter` | columns, by ALTER TABLE |
//! | `identity`, `rewrite` | identity columns; tables that are written anew |
//! | `derived` | tables made of queries and of other tables |
//! | `constraints` | CHECK constraints, foreign keys; what depends on something |
//! | `keys`, `unique` | primary and unique keys, unique indexes |
//! | `sequences`, `views`, `schemas` | these, and the names of all by schema |
//! | `objects` | rows of the hidden tables |

mod alter;
mod constraints;
mod derived;
mod identity;
mod keys;
mod objects;
mod renames;
mod rewrite;
mod schemas;
mod sequences;
mod tables;
mod tiering;
mod unique;
mod views;

use thermocline_engine::{Error as EngineError, Isolation, Transaction};

use crate::error::Result;
use crate::parser::ast::{Alter, ObjectName, Statement};
use crate::session::attempt::{TRIES, is_in_the_way};
use crate::session::{Answer, Session};

impl Session {
    /// Runs a definition.
    pub(super) async fn definition(&mut self, statement: &Statement) -> Result<Answer> {
        if self.open.is_some() {
            // Statements that it needs may be definitions again.
            return Box::pin(self.define(statement)).await;
        }
        let mut transactions = 1;
        loop {
            self.begin_implicit()?;
            let outcome = match self.limit_waits() {
                Ok(()) => Box::pin(self.define(statement)).await,
                Err(error) => Err(error),
            };
            if outcome.is_err() {
                self.fail();
            }
            let ended = self.end_implicit().await;
            match outcome.and_then(|answer| ended.map(|()| answer)) {
                // Others were in its way; nothing of it is left.
                Err(error) if is_in_the_way(&error) && transactions < TRIES => transactions += 1,
                outcome => return outcome,
            }
        }
    }

    async fn define(&mut self, statement: &Statement) -> Result<Answer> {
        let statement = &self.settled(statement)?;
        for table in self.changed_by(statement) {
            self.hold(&table).await?;
        }
        match statement {
            Statement::CreateSchema { name, if_not_exists } => self.create_schema(name, *if_not_exists).await,
            Statement::DropSchema { names, if_exists, cascade } => {
                self.drop_schemas(names, *if_exists, *cascade).await
            }
            Statement::SetSchema { kind, name, if_exists, schema } => {
                self.set_schema(*kind, name, *if_exists, schema).await
            }
            Statement::CreateTable(create) => self.create_table(create).await,
            Statement::CreateTableAs(create) => self.create_table_as(create).await,
            Statement::CreateIndex(create) => self.create_index(create).await,
            Statement::DropTable { names, if_exists, cascade } => {
                self.drop_tables(names, *if_exists, *cascade).await
            }
            Statement::DropIndex { names, if_exists } => self.drop_indexes(names, *if_exists).await,
            Statement::AlterTable { name, if_exists, actions } => {
                self.alter_table(name, *if_exists, actions).await
            }
            Statement::Truncate { names, restart, cascade } => self.truncate(names, *restart, *cascade).await,
            Statement::CreateSequence { name, if_not_exists, options } => {
                self.create_sequence(name, *if_not_exists, options).await
            }
            Statement::AlterSequence { name, if_exists, rename, .. } => {
                self.rename_sequence(name, *if_exists, rename.as_deref()).await
            }
            Statement::DropSequence { names, if_exists, cascade } => {
                self.drop_sequences(names, *if_exists, *cascade).await
            }
            Statement::CreateView(view) => self.create_view(view).await,
            Statement::AlterView { name, if_exists, action } => {
                self.alter_view(name, *if_exists, action).await
            }
            Statement::DropView { names, if_exists, cascade } => {
                self.drop_views(names, *if_exists, *cascade).await
            }
            Statement::Comment { about, text } => self.comment(about, text.as_deref()).await,
            other => unreachable!("no definition: {other:?}"),
        }
    }

    /// The tables that a definition changes.
    fn changed_by(&self, statement: &Statement) -> Vec<String> {
        let full = |names: &[ObjectName]| names.iter().map(|name| name.name.clone()).collect();
        match statement {
            Statement::AlterTable { actions, .. } if matches!(actions[..], [Alter::Nothing]) => Vec::new(),
            Statement::AlterTable { name, .. } | Statement::SetSchema { name, .. } => vec![name.name.clone()],
            Statement::CreateIndex(create) => vec![create.table.name.clone()],
            Statement::DropTable { names, .. } | Statement::Truncate { names, .. } => full(names),
            Statement::DropIndex { names, .. } => {
                names.iter().filter_map(|name| self.owner_of(&name.name)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Keeps others from a table, if there is one with this name, before anything is decided about it. What they have defined
    /// meanwhile is known then.
    pub(super) async fn hold(&mut self, table: &str) -> Result<()> {
        let Ok(found) = self.tables.table(table) else { return Ok(()) };
        if self.transaction().statement()?.holds(&found)? {
            return Ok(());
        }
        match self.transaction().lock_table(table).await {
            // It is gone, or has another name now; the definition says so.
            Ok(()) | Err(EngineError::UnknownTable { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let open = self.open.as_ref().expect("definitions run in a transaction");
        if open.defines && open.isolation == Isolation::ReadCommitted {
            return self.reload_objects().await;
        }
        self.refresh_objects()
    }

    /// The transaction that a definition runs in.
    pub(super) fn transaction(&mut self) -> &mut Transaction {
        &mut self.open.as_mut().expect("definitions run in a transaction").transaction
    }

    /// The transaction has changed a definition: the session finds tables as it has them.
    pub(super) fn look_again(&mut self) -> Result<()> {
        self.tables = self.transaction().tables()?;
        self.own_tables = true;
        Ok(())
    }

    /// The transaction has ended: tables are as everybody has them.
    pub(super) fn end_definitions(&mut self) {
        if self.own_tables && self.open.is_none() {
            self.tables = self.db.tables();
            self.own_tables = false;
        }
    }
}
