//! Prepared statements: a statement, what it was bound to, and the definitions that this stands on.

use crate::catalog::Identity;
use crate::parser::Parsed;
use crate::parser::ast::Statement;
use crate::plan::Bound;
use crate::types::{Column, Type};

/// A statement that was parsed and bound, to be run any number of times.
#[derive(Debug)]
pub struct Prepared {
    pub(super) statement: Parsed,
    /// The text that it stands in, for the positions of errors.
    pub(super) text: std::sync::Arc<str>,
    pub(super) bound: Option<Bound>,
    pub(super) parameters: Vec<Type>,
    /// It looks at definitions: it is bound anew each time.
    pub(super) volatile: bool,
    /// Its expressions ask the session.
    pub(super) asks: bool,
    /// Columns that rows of a COPY FROM have.
    pub(super) copied_columns: usize,
    /// The columns of statements such as SHOW, which are not bound.
    pub(super) shown: Vec<Column>,
    /// The tables that it was bound with, by the names by which it has found them.
    pub(super) definitions: Vec<(String, Identity)>,
    /// The state of the system tables that it was bound with.
    pub(super) objects: u64,
    /// The number of the search path that it was bound with.
    pub(super) path: u64,
    /// Tables that it would mean, were they there: full names.
    pub(super) absent: Vec<String>,
    /// The memory that a long text takes.
    pub(super) _held: Option<std::sync::Arc<crate::expr::memory::Held>>,
}

impl Prepared {
    /// A statement before it is described.
    pub(super) fn unbound(statement: Parsed, text: std::sync::Arc<str>) -> Self {
        Self {
            statement,
            text,
            bound: None,
            parameters: Vec::new(),
            copied_columns: 0,
            volatile: false,
            asks: false,
            shown: Vec::new(),
            definitions: Vec::new(),
            objects: 0,
            path: 0,
            absent: Vec::new(),
            _held: None,
        }
    }

    /// Types of `$1`, `$2`, ….
    #[must_use]
    pub fn parameters(&self) -> &[Type] {
        &self.parameters
    }

    /// Columns of the rows that it returns.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        match &self.bound {
            Some(_) if matches!(self.statement.statement, Statement::Declare { .. }) => &[],
            Some(bound) => bound.columns(),
            None => &self.shown,
        }
    }

    /// Does it return rows, if only rows without columns?
    #[must_use]
    pub fn returns_rows(&self) -> bool {
        match &self.bound {
            Some(Bound::Query(_)) => matches!(self.statement.statement, Statement::Query(_)),
            Some(Bound::Insert(it)) => it.returning.is_some(),
            Some(Bound::Update(it)) => it.returning.is_some(),
            Some(Bound::Delete(it)) => it.returning.is_some(),
            None => !self.shown.is_empty(),
        }
    }

    /// Are its columns those of another statement or a cursor, which it names?
    #[must_use]
    pub fn names_another(&self) -> bool {
        matches!(self.statement.statement, Statement::Fetch { .. } | Statement::Execute { .. })
    }

    /// Is a prepared statement to be forgotten, by its name, or all?
    #[must_use]
    pub fn deallocates(&self) -> Option<Option<&str>> {
        match &self.statement.statement {
            Statement::Deallocate(name) => Some(name.as_deref()),
            Statement::Discard => Some(None),
            _ => None,
        }
    }

    /// Does it begin or end a transaction, so that none has to be opened for it?
    #[must_use]
    pub fn is_boundary(&self) -> bool {
        use Statement::{Begin, Commit, Rollback};
        matches!(self.statement.statement, Begin(_) | Commit | Rollback)
    }

    /// Does it end a transaction, so that it runs in a failed one as well?
    #[must_use]
    pub fn is_end(&self) -> bool {
        matches!(self.statement.statement, Statement::Commit | Statement::Rollback | Statement::RollbackTo(_))
    }
}
