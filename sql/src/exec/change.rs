//! INSERT, UPDATE, DELETE.
//!
//! The rows to change are found under the statement's snapshot, each with a number by which the source finds it again. A change
//! is shown the row's newest version. If that is another one than was read (at read committed only; the other levels fail), the
//! plan runs once more with this version as the only row of the table that is changed: so conditions, joins and new values are
//! what they are for the row as it is now.
//!
//! A new row keeps NOT NULL and CHECK at once; what foreign keys ask for is noted ([`Pending`]) and looked at when the statement
//! has made all of its changes.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::foreign::{Pending, note_changed, note_deleted, note_inserted};
use super::source::{Changed, Decision, Inserted, Which};
use super::{Executor, Row, Source};
use crate::catalog::Table;
use crate::error::{Again, Error, Result};
use crate::expr::memory::Kept;
use crate::expr::{Context, Env, Expr};
use crate::parser::ast::Strength;
use crate::plan::{BoundConflict, BoundDelete, BoundInsert, BoundUpdate, Plan, Returning};
use crate::types::{Datum, text};

/// Rows that were changed, and what RETURNING makes of them.
pub(crate) struct Outcome<'e> {
    pub(crate) count: u64,
    pub(crate) rows: Vec<Row>,
    /// What foreign keys ask for.
    pub(crate) pending: Vec<Pending>,
    kept: Kept<'e>,
}

impl<'e> Outcome<'e> {
    fn none(context: &'e Context) -> Self {
        Self { count: 0, rows: Vec::new(), pending: Vec::new(), kept: context.memory.kept() }
    }

    /// Counts what a row has added to what foreign keys ask for.
    fn note(&mut self, before: usize) -> Result<()> {
        let more = &self.pending[before..];
        self.kept.add(more.iter().map(Pending::size).sum())
    }
}

/// A row that was read is another one by now: the statement has to be run again.
pub(super) fn stale() -> Error {
    Error::new("40001", "a row has changed since the statement read it").again_as(Again::Stale)
}

impl<'e, S: Source> Executor<'e, S> {
    fn returned(
        &self,
        returning: Option<&Returning>,
        row: &[Datum],
        outcome: &mut Outcome<'_>,
    ) -> Result<()> {
        outcome.count += 1;
        if let Some(returning) = returning {
            let env = self.env(row, &[]);
            let made = returning.exprs.iter().map(|expr| expr.eval(&env)).collect::<Result<Row>>()?;
            outcome.kept.row(&made)?;
            outcome.rows.push(made);
        }
        Ok(())
    }

    pub(crate) async fn insert(&mut self, insert: &BoundInsert) -> Result<Outcome<'e>> {
        let mut all = self.spooled(&insert.plan).await?;
        let mut outcome = Outcome::none(self.context);
        let table = &insert.table;
        let numbers = table
            .columns
            .iter()
            .zip(&insert.given)
            .any(|(column, given)| column.numbered && !column.hidden && !given);
        while let Some(mut row) = all.pop() {
            if self.context.is_due() {
                self.context.pause().await?;
            }
            let before = outcome.pending.len();
            let own = row
                .iter()
                .zip(&table.columns)
                .any(|(value, column)| column.numbered && !column.hidden && value.is_null());
            check_row(table, &insert.checks, &row, self.context)?;
            let inserted = loop {
                let result = self.source.insert(table, &mut row, numbers && own).await?;
                let (index, error) = match (result, &insert.conflict) {
                    (Inserted::Done, _) => {
                        note_inserted(table, &row, &mut outcome.pending);
                        break Some(row);
                    }
                    (Inserted::Duplicate { error, .. }, None) => return Err(error),
                    (Inserted::Duplicate { index, error }, Some(_)) => (index, error),
                };
                let conflict = insert.conflict.as_ref().expect("there is one");
                let which = match conflict.index {
                    Some(wanted) if wanted != index => match self.in_the_way(table, wanted, &row).await? {
                        Some(number) => Which::Numbered(number),
                        None => return Err(error),
                    },
                    _ => Which::Refusing,
                };
                if conflict.update.is_none() {
                    match self.source.sees_refusing(table, which).await? {
                        Changed::Gone => continue,
                        Changed::Lost => return Err(stale()),
                        Changed::Done | Changed::Already => break None,
                    }
                }
                match self.update_instead((table, &insert.checks), conflict, which, row).await? {
                    Ok(Some((before, changed))) => {
                        note_changed(table, &before, &changed, &mut outcome.pending);
                        break Some(changed);
                    }
                    Ok(None) => break None,
                    Err(again) => row = again,
                }
            };
            if let Some(row) = inserted {
                self.returned(insert.returning.as_ref(), &row, &mut outcome)?;
            }
            outcome.note(before)?;
            self.passed += 1;
        }
        Ok(outcome)
    }

    /// The row that stands in the way of a new one in the index that ON CONFLICT names, where another index has refused it first:
    /// the one that is named decides.
    async fn in_the_way(&mut self, table: &Arc<Table>, index: usize, row: &[Datum]) -> Result<Option<i64>> {
        let values: Row =
            table.indexes[index].columns.iter().map(|(column, _)| row[*column].clone()).collect();
        if values.iter().any(Datum::is_null) {
            return Ok(None);
        }
        self.source.present(table, index, &values).await
    }

    /// `DO UPDATE`: changes the row in whose way the new one stands; the row as it was and as it is then, if it has changed.
    /// `Err(row)`: it has gone meanwhile, and the new one may be tried again.
    async fn update_instead(
        &mut self,
        (table, checks): (&Arc<Table>, &[(String, Expr)]),
        conflict: &BoundConflict,
        which: Which,
        new: Row,
    ) -> Result<std::result::Result<Option<(Row, Row)>, Row>> {
        let (set, condition) = conflict.update.as_ref().expect("there is one");
        let context = self.context;
        // The row is locked whatever the condition says, and by what may change, not by what does.
        let sets_key = set.iter().any(|(set, _)| {
            let unique = table.indexes.iter().filter(|index| index.unique);
            unique.flat_map(|index| &index.columns).any(|(column, _)| column == set)
        });
        let lock = match condition {
            _ if sets_key => Some(Strength::Update),
            Some(_) => Some(Strength::NoKeyUpdate),
            None => None,
        };
        let mut changed = None;
        let mut decide = |there: &[Datum]| {
            changed = None;
            let both: Row = there.iter().chain(&new).cloned().collect();
            let env = Env { row: &both, outer: &[], context };
            if let Some(condition) = condition
                && !condition.holds(&env)?
            {
                return Ok(Decision::Leave);
            }
            let changes = set.iter().map(|(column, expr)| Ok((*column, expr.eval(&env)?)));
            let changes = changes.collect::<Result<Vec<_>>>()?;
            changed = Some((there.to_vec(), with_changes((table, checks), there, &changes, context)?));
            Ok(Decision::Update(changes))
        };
        match self.source.change(table, which, lock, &mut decide).await? {
            Changed::Done => Ok(Ok(changed)),
            Changed::Gone => Ok(Err(new)),
            Changed::Already => Err(Error::new(
                "21000",
                "ON CONFLICT DO UPDATE command cannot affect row a second time",
            )
            .hint(
                "Ensure that no rows proposed for insertion within the same command have duplicate constrained values.",
            )),
            Changed::Lost => Err(stale()),
        }
    }

    pub(crate) async fn update(&mut self, update: &BoundUpdate) -> Result<Outcome<'e>> {
        let mut outcome = Outcome::none(self.context);
        let own = update.table.columns.len();
        let mut all = self.spooled(&update.plan).await?;
        while let Some(mut row) = all.pop() {
            if self.context.is_due() {
                self.context.pause().await?;
            }
            let before = outcome.pending.len();
            // At read committed the row may be another one by now: the plan says once more whether and how it changes.
            loop {
                let values = row.split_off(update.width);
                let changes: Vec<(usize, Datum)> = update.columns.iter().copied().zip(values).collect();
                let rules = (&*update.table, &*update.checks);
                let changed = with_changes(rules, &row[..own], &changes, self.context)?;
                let newest = match self.change(&update.table, &row, Decision::Update(changes)).await? {
                    Ended::Done => {
                        note_changed(&update.table, &row[..own], &changed, &mut outcome.pending);
                        row.splice(..own, changed);
                        self.returned(update.returning.as_ref(), &row, &mut outcome)?;
                        break;
                    }
                    Ended::NotThere => break,
                    Ended::Another(newest) => newest,
                };
                match self.once_more(&update.plan, &[], vec![(update.scan, newest)]).await? {
                    Some(again) => row = again,
                    None => break,
                }
            }
            outcome.note(before)?;
        }
        Ok(outcome)
    }

    pub(crate) async fn delete(&mut self, delete: &BoundDelete) -> Result<Outcome<'e>> {
        let mut outcome = Outcome::none(self.context);
        let mut all = self.spooled(&delete.plan).await?;
        while let Some(mut row) = all.pop() {
            if self.context.is_due() {
                self.context.pause().await?;
            }
            let before = outcome.pending.len();
            loop {
                let newest = match self.change(&delete.table, &row, Decision::Delete).await? {
                    Ended::Done => {
                        note_deleted(&delete.table, &row, &mut outcome.pending);
                        self.returned(delete.returning.as_ref(), &row, &mut outcome)?;
                        break;
                    }
                    Ended::NotThere => break,
                    Ended::Another(newest) => newest,
                };
                match self.once_more(&delete.plan, &[], vec![(delete.scan, newest)]).await? {
                    Some(again) => row = again,
                    None => break,
                }
            }
            outcome.note(before)?;
        }
        Ok(outcome)
    }

    /// Changes a row as decided, if it is still as it was read.
    async fn change(&mut self, table: &Arc<Table>, row: &[Datum], decision: Decision) -> Result<Ended> {
        let (own, number) = (table.columns.len(), &row[table.columns.len()]);
        let Datum::Int(number) = number else { panic!("behind the row stands its number, not {number:?}") };
        let mut newest = None;
        let mut decide = |there: &[Datum]| {
            newest = None;
            if there == &row[..own] {
                return Ok(decision.clone());
            }
            newest = Some(there.iter().chain([&row[own]]).cloned().collect());
            Ok(Decision::Leave)
        };
        Ok(match self.source.change(table, Which::Numbered(*number), None, &mut decide).await? {
            Changed::Done => newest.map_or(Ended::Done, Ended::Another),
            // A row that several rows of FROM match changes once.
            Changed::Gone | Changed::Already => Ended::NotThere,
            Changed::Lost => return Err(stale()),
        })
    }

    /// What the plan makes of these rows alone, by the scans that have found them: its first row, or none.
    pub(super) async fn once_more(
        &mut self,
        plan: &Plan,
        outer: &[Datum],
        newest: Vec<(usize, Row)>,
    ) -> Result<Option<Row>> {
        let before = std::mem::replace(&mut self.again, newest);
        let mut found = None;
        let mut first = |row: &mut Row| {
            found = Some(std::mem::take(row));
            Ok(ControlFlow::Break(()))
        };
        let ran = self.run(plan, outer, &mut first).await;
        self.again = before;
        ran.map(|()| found)
    }
}

/// What a change of a row that was read came to.
enum Ended {
    Done,
    /// It is not there any more, or the statement has changed it before.
    NotThere,
    /// It is another one by now, and was left: its newest version, and its number.
    Another(Row),
}

/// The row with columns changed, which keeps the table's rules.
pub(super) fn with_changes(
    (table, checks): (&Table, &[(String, Expr)]),
    row: &[Datum],
    changes: &[(usize, Datum)],
    context: &Context,
) -> Result<Row> {
    let mut row = row.to_vec();
    changes.iter().for_each(|(column, value)| row[*column] = value.clone());
    check_row(table, checks, &row, context)?;
    Ok(row)
}

/// Does a row keep NOT NULL and the CHECK constraints? A condition that is null holds.
pub(crate) fn check_row(
    table: &Table,
    checks: &[(String, Expr)],
    row: &[Datum],
    context: &Context,
) -> Result<()> {
    check_nulls(table, row, context)?;
    let env = Env { row, outer: &[], context };
    for (name, condition) in checks {
        if matches!(condition.eval(&env)?, Datum::Bool(false)) {
            let table_name = &table.name;
            let message =
                format!("new row for relation \"{table_name}\" violates check constraint \"{name}\"");
            let error = Error::new("23514", message).detail(failing(table, row, context));
            return Err(error.table(table_name).constraint(name));
        }
    }
    Ok(())
}

fn failing(table: &Table, row: &[Datum], context: &Context) -> String {
    let zone = &context.local.zone;
    let shown: Vec<String> = table
        .columns
        .iter()
        .zip(row)
        .filter(|(column, _)| !column.hidden)
        .map(
            |(column, value)| {
                if value.is_null() { "null".to_owned() } else { text::show(value, column.ty, zone) }
            },
        )
        .collect();
    format!("Failing row contains ({}).", shown.join(", "))
}

fn check_nulls(table: &Table, row: &[Datum], context: &Context) -> Result<()> {
    let missing = table
        .columns
        .iter()
        .zip(row)
        .find(|(column, value)| !column.nullable && !column.numbered && value.is_null());
    let Some((column, _)) = missing else { return Ok(()) };
    let detail = failing(table, row, context);
    let (name, table) = (&column.name, &table.name);
    let message =
        format!("null value in column \"{name}\" of relation \"{table}\" violates not-null constraint");
    Err(Error::new("23502", message).detail(detail).table(table).column(name))
}
