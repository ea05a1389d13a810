//! WITH RECURSIVE, and functions that make rows beside the columns of a row.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::rc::Rc;

use super::{Executor, Row, Sink, Source};
use crate::error::Result;
use crate::expr::Expr;
use crate::plan::{Plan, Recursive};
use crate::types::Datum;

impl<S: Source> Executor<'_, S> {
    /// Each step sees the rows that the one before it has made, and no others.
    pub(super) async fn recursive(
        &mut self,
        query: &Recursive,
        outer: &[Datum],
        sink: Sink<'_>,
    ) -> Result<()> {
        let mut seen: HashSet<Row> = HashSet::new();
        let mut rows = self.rows(&query.base, outer).await?;
        loop {
            if !query.all {
                rows.retain(|row| seen.insert(row.clone()));
            }
            if rows.is_empty() {
                return Ok(());
            }
            for row in &rows {
                self.context.check()?;
                if sink(&mut row.clone())?.is_break() {
                    return Ok(());
                }
            }
            self.working.push((query.number, Rc::new(rows)));
            let made = self.rows(&query.step, outer).await;
            self.working.pop();
            rows = made?;
        }
    }

    pub(super) fn working_rows(&mut self, number: usize, sink: Sink<'_>) -> Result<()> {
        let found = self.working.iter().rev().find(|(known, _)| *known == number);
        let rows = found.expect("a recursive query has put its rows there").1.clone();
        for row in rows.iter() {
            self.context.check()?;
            if sink(&mut row.clone())?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// The row once for each element of the arrays, which stand side by side behind it.
    pub(super) async fn sets(
        &mut self,
        input: &Plan,
        sets: &[Expr],
        outer: &[Datum],
        sink: Sink<'_>,
    ) -> Result<()> {
        let context = self.context;
        let mut see = |row: &mut Row| {
            let env = crate::expr::Env { row, outer, context };
            let arrays = sets.iter().map(|set| set.eval(&env)).collect::<Result<Row>>()?;
            let items = |array: &Datum| match array {
                Datum::Array(all) => all.clone(),
                _ => [].into(),
            };
            let arrays: Vec<_> = arrays.iter().map(items).collect();
            for place in 0..arrays.iter().map(|array| array.len()).max().unwrap_or(0) {
                context.check()?;
                let mut one = row.clone();
                one.extend(arrays.iter().map(|array| array.get(place).cloned().unwrap_or(Datum::Null)));
                if sink(&mut one)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        };
        self.run(input, outer, &mut see).await
    }
}
