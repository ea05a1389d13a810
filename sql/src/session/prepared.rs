//! Prepared statements: a statement, what it was bound to, and the definitions that this stands on.

use std::collections::HashSet;

use crate::catalog::Identity;
use crate::parser::Parsed;
use crate::parser::ast::Statement;
use crate::plan::{Bound, Column};
use crate::types::Type;

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

impl Bound {
    /// Columns of the rows that it returns.
    pub(super) fn columns(&self) -> &[Column] {
        match self {
            Bound::Query(query) => &query.columns,
            Bound::Insert(it) => it.returning.as_ref().map_or(&[], |returning| &returning.columns),
            Bound::Update(it) => it.returning.as_ref().map_or(&[], |returning| &returning.columns),
            Bound::Delete(it) => it.returning.as_ref().map_or(&[], |returning| &returning.columns),
        }
    }

    /// Does it lock rows?
    pub(super) fn locks(&self) -> bool {
        matches!(self, Bound::Query(query) if query.locks)
    }

    /// Does it change a table that foreign keys are about?
    pub(super) fn has_foreign_keys(&self) -> bool {
        let table = match self {
            Bound::Query(_) => return false,
            Bound::Insert(it) => &it.table,
            Bound::Update(it) => &it.table,
            Bound::Delete(it) => &it.table,
        };
        !table.foreign.is_empty() || !table.referenced.is_empty()
    }

    /// The tables that it depends on, as it was bound with them.
    pub(super) fn tables(&self) -> Vec<(String, Identity)> {
        let (mut names, mut seen) = (Vec::new(), HashSet::new());
        match self {
            Bound::Query(query) => tables_of(&query.plan, &mut seen, &mut names),
            Bound::Insert(it) => {
                names.push((it.table.name.clone(), it.table.identity));
                tables_of(&it.plan, &mut seen, &mut names);
            }
            Bound::Update(it) => {
                names.push((it.table.name.clone(), it.table.identity));
                tables_of(&it.plan, &mut seen, &mut names);
            }
            Bound::Delete(it) => {
                names.push((it.table.name.clone(), it.table.identity));
                tables_of(&it.plan, &mut seen, &mut names);
            }
        }
        names.sort();
        names.dedup();
        names
    }
}

/// The tables that a plan reads, as it was bound with them.
fn tables_of(plan: &crate::plan::Plan, seen: &mut HashSet<usize>, names: &mut Vec<(String, Identity)>) {
    use crate::plan::Plan;
    match plan {
        Plan::Unit | Plan::Values(_) | Plan::Made(_) | Plan::Set(_) | Plan::Working(_) => {}
        // It is asked for as often as it is named, so its tables are looked for once.
        Plan::Shared(shared) => {
            if seen.insert(shared.number) {
                tables_of(&shared.plan, seen, names);
            }
        }
        Plan::Scan { table, .. } => names.push((table.name.clone(), table.identity)),
        Plan::Filter(input, _)
        | Plan::Project(input, _)
        | Plan::Sort(input, _)
        | Plan::Distinct(input, _)
        | Plan::Numbered(input)
        | Plan::Extend(input, _)
        | Plan::Cut(input, _)
        | Plan::Lock { input, .. }
        | Plan::Aggregate { input, .. }
        | Plan::Limit { input, .. } => tables_of(input, seen, names),
        Plan::Apply(input, subs) => {
            tables_of(input, seen, names);
            subs.iter().for_each(|sub| tables_of(&sub.plan, seen, names));
        }
        Plan::Recursive(query) => {
            tables_of(&query.base, seen, names);
            tables_of(&query.step, seen, names);
        }
        Plan::Join(join) => {
            tables_of(&join.left, seen, names);
            tables_of(&join.right, seen, names);
        }
        Plan::SetOp { left, right, .. } => {
            tables_of(left, seen, names);
            tables_of(right, seen, names);
        }
    }
}
