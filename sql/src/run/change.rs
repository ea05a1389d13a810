//! INSERT, UPDATE, DELETE: all rows are found before the first one changes, so that no statement meets its own writes.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::operators::Range;
use super::source::{Changed, Inserted};
use super::{Executor, Row, Source};
use crate::catalog::Table;
use crate::error::{Error, Result};
use crate::plan::{BoundConflict, BoundDelete, BoundInsert, BoundUpdate, Returning};
use crate::types::{Datum, text};

/// Rows that were changed, and what RETURNING makes of them.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) count: u64,
    pub(crate) rows: Vec<Row>,
}

/// A row that was read is another one by now: the statement has to be run again.
pub(crate) const STALE: &str = "a row has changed since the statement read it";

fn stale() -> Error {
    Error::new("40001", STALE)
}

impl<S: Source> Executor<'_, S> {
    fn returned(&self, returning: Option<&Returning>, row: &[Datum], outcome: &mut Outcome) -> Result<()> {
        outcome.count += 1;
        if let Some(returning) = returning {
            let env = self.env(row, &[]);
            outcome.rows.push(returning.exprs.iter().map(|expr| expr.eval(&env)).collect::<Result<Row>>()?);
        }
        Ok(())
    }

    pub(crate) async fn insert(&mut self, insert: &BoundInsert) -> Result<Outcome> {
        let rows = self.rows(&insert.plan, &[]).await?;
        let mut outcome = Outcome::default();
        let table = &insert.table;
        let mut touched: HashSet<Row> = HashSet::new();
        let numbers = table
            .columns
            .iter()
            .zip(&insert.given)
            .any(|(column, given)| column.numbered && !column.hidden && !given);
        for mut row in rows {
            let own = row
                .iter()
                .zip(&table.columns)
                .any(|(value, column)| column.numbered && !column.hidden && value.is_null());
            check_nulls(table, &row)?;
            let result = self.source.insert(table, &mut row, numbers && own).await?;
            let (index, error) = match (result, &insert.conflict) {
                (Inserted::Done, _) => {
                    if insert.conflict.as_ref().is_some_and(|conflict| conflict.update.is_some()) {
                        touched.insert(key_of(table, insert.conflict.as_ref().and_then(|it| it.index), &row));
                    }
                    self.returned(insert.returning.as_ref(), &row, &mut outcome)?;
                    continue;
                }
                (Inserted::Duplicate { error, .. }, None) => return Err(error),
                (Inserted::Duplicate { index, error }, Some(_)) => (index, error),
            };
            let conflict = insert.conflict.as_ref().expect("there is one");
            if conflict.index.is_some_and(|wanted| wanted != index) {
                return Err(error);
            }
            let Some(_) = &conflict.update else { continue };
            if !touched.insert(key_of(table, Some(index), &row)) {
                return Err(Error::new("21000", "ON CONFLICT DO UPDATE command cannot affect row a second time").hint(
                    "Ensure that no rows proposed for insertion within the same command have duplicate constrained values.",
                ));
            }
            if let Some(row) = self.update_instead(table, conflict, index, row).await? {
                self.returned(insert.returning.as_ref(), &row, &mut outcome)?;
            }
        }
        Ok(outcome)
    }

    /// `DO UPDATE`: changes the row in whose way the new one stands.
    async fn update_instead(
        &mut self,
        table: &Arc<Table>,
        conflict: &BoundConflict,
        index: usize,
        new: Row,
    ) -> Result<Option<Row>> {
        let (set, condition) = conflict.update.as_ref().expect("there is one");
        let columns: Vec<usize> = (0..table.columns.len()).collect();
        let equal = key_of(table, Some(index), &new);
        let range = Range { index, equal, low: std::ops::Bound::Unbounded, high: std::ops::Bound::Unbounded };
        let mut found = None;
        let mut see = |row: &mut Row| {
            found = Some(std::mem::take(row));
            ControlFlow::Break(())
        };
        self.source.scan(table, &columns, Some(range), &mut see).await?;
        // It is younger than the snapshot.
        let Some(old) = found else { return Err(stale()) };
        let mut both = old.clone();
        both.extend(new);
        let changes = {
            let env = self.env(&both, &[]);
            if let Some(condition) = condition
                && !condition.holds(&env)?
            {
                return Ok(None);
            }
            set.iter().map(|(column, expr)| Ok((*column, expr.eval(&env)?))).collect::<Result<Vec<_>>>()?
        };
        self.change(table, &old, &changes).await.map(Some)
    }

    /// Changes columns of a row; the row as it is then.
    async fn change(&mut self, table: &Arc<Table>, old: &[Datum], changes: &[(usize, Datum)]) -> Result<Row> {
        let mut row = old.to_vec();
        changes.iter().for_each(|(column, value)| row[*column] = value.clone());
        check_nulls(table, &row)?;
        match self.source.update(table, old, changes).await? {
            Changed::Done => Ok(row),
            Changed::Stale => Err(stale()),
        }
    }

    pub(crate) async fn update(&mut self, update: &BoundUpdate) -> Result<Outcome> {
        let rows = self.rows(&update.plan, &[]).await?;
        let mut outcome = Outcome::default();
        let own = update.table.columns.len();
        let mut seen: HashSet<Row> = HashSet::new();
        for mut row in rows {
            let values = row.split_off(update.width);
            // A row that several rows of FROM match changes once.
            if !seen.insert(key_of(&update.table, update.table.primary, &row)) {
                continue;
            }
            let changes: Vec<(usize, Datum)> = update.columns.iter().copied().zip(values).collect();
            let changed = self.change(&update.table, &row[..own], &changes).await?;
            row.splice(..own, changed);
            self.returned(update.returning.as_ref(), &row, &mut outcome)?;
        }
        Ok(outcome)
    }

    pub(crate) async fn delete(&mut self, delete: &BoundDelete) -> Result<Outcome> {
        let rows = self.rows(&delete.plan, &[]).await?;
        let mut outcome = Outcome::default();
        let own = delete.table.columns.len();
        let mut seen: HashSet<Row> = HashSet::new();
        for row in rows {
            if !seen.insert(key_of(&delete.table, delete.table.primary, &row)) {
                continue;
            }
            if self.source.delete(&delete.table, &row[..own]).await? == Changed::Stale {
                return Err(stale());
            }
            self.returned(delete.returning.as_ref(), &row, &mut outcome)?;
        }
        Ok(outcome)
    }
}

/// The values of an index's columns; of all columns, without an index.
fn key_of(table: &Table, index: Option<usize>, row: &[Datum]) -> Row {
    match index {
        Some(index) => table.indexes[index].columns.iter().map(|(column, _)| row[*column].clone()).collect(),
        None => row[..table.columns.len()].to_vec(),
    }
}

fn check_nulls(table: &Table, row: &[Datum]) -> Result<()> {
    let missing = table
        .columns
        .iter()
        .zip(row)
        .find(|(column, value)| !column.nullable && !column.numbered && value.is_null());
    let Some((column, _)) = missing else { return Ok(()) };
    let shown: Vec<String> = table
        .columns
        .iter()
        .zip(row)
        .filter(|(column, _)| !column.hidden)
        .map(|(column, value)| if value.is_null() { "null".to_owned() } else { text::show(value, column.ty) })
        .collect();
    let (name, table) = (&column.name, &table.name);
    let message =
        format!("null value in column \"{name}\" of relation \"{table}\" violates not-null constraint");
    let detail = format!("Failing row contains ({}).", shown.join(", "));
    Err(Error::new("23502", message).detail(detail).table(table).column(name))
}
