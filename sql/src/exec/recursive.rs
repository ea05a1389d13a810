//! WITH RECURSIVE.

use std::collections::HashSet;
use std::rc::Rc;

use super::{Executor, Row, Sink, Source};
use crate::error::Result;
use crate::expr::memory::size_of_row;
use crate::plan::Recursive;
use crate::types::Datum;

impl<S: Source> Executor<'_, S> {
    /// Each step sees the rows that the one before it has made, and no others.
    pub(super) async fn recursive(
        &mut self,
        query: &Recursive,
        outer: &[Datum],
        sink: Sink<'_>,
    ) -> Result<()> {
        let context = self.context;
        let mut seen: HashSet<Row> = HashSet::new();
        let mut seen_kept = context.memory.kept();
        let mut made = self.rows(&query.base, outer).await?;
        loop {
            if !query.all {
                let mut fresh = Vec::with_capacity(made.rows.len());
                for row in std::mem::take(&mut made.rows) {
                    if seen.contains(&row) {
                        made.kept.remove(size_of_row(&row));
                    } else {
                        seen_kept.add(2 * size_of_row(&row))?;
                        seen.insert(row.clone());
                        fresh.push(row);
                    }
                    if context.is_due() {
                        context.pause().await?;
                    }
                }
                made.rows = fresh;
            }
            if made.rows.is_empty() {
                return Ok(());
            }
            for row in &made.rows {
                context.check()?;
                if sink(&mut row.clone())?.is_break() {
                    return Ok(());
                }
                if context.is_due() {
                    context.pause().await?;
                }
            }
            // A step may make no row, and take no time: a round counts as one, too.
            context.check()?;
            if context.is_due() {
                context.pause().await?;
            }
            let (rows, kept) = (Rc::new(made.rows), made.kept);
            self.working.push((query.number, rows));
            let next = self.rows(&query.step, outer).await;
            self.working.pop();
            drop(kept);
            made = next?;
        }
    }

    pub(super) async fn working_rows(&mut self, number: usize, sink: Sink<'_>) -> Result<()> {
        let found = self.working.iter().rev().find(|(known, _)| *known == number);
        let rows = found.expect("a recursive query has put its rows there").1.clone();
        for row in rows.iter() {
            self.context.check()?;
            if sink(&mut row.clone())?.is_break() {
                break;
            }
            if self.context.is_due() {
                self.context.pause().await?;
            }
        }
        Ok(())
    }
}
