//! Where definitions run: in the open transaction, or in one of their own that stands round one of them.
//!
//! The engine's definitions and the rows of the system tables change in one transaction. The session finds tables through
//! [`Session::tables`]: those that everybody has, or, once the open transaction has changed definitions, those that it has.

mod alter;
mod constraints;
mod keys;
mod objects;
mod schemas;
mod sequences;
mod tables;
mod unique;
mod views;

use thermocline_engine::Transaction;

use crate::error::Result;
use crate::parser::ast::Statement;
use crate::session::{Answer, Session};

impl Session {
    /// Runs a definition.
    pub(super) async fn definition(&mut self, statement: &Statement) -> Result<Answer> {
        let alone = self.open.is_none();
        if alone {
            self.begin_implicit()?;
        }
        // Statements that it needs may be definitions again.
        let outcome = Box::pin(self.define(statement)).await;
        if !alone {
            return outcome;
        }
        if outcome.is_err() {
            self.fail();
        }
        let ended = self.end_implicit().await;
        let answer = outcome?;
        ended.map(|()| answer)
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
