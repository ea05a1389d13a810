//! ORDER BY over batches: keys and rows are written as bytes from the columns, and sorted as rows of other plans are.

use std::ops::ControlFlow;

use super::Pipeline;
use super::eval::{Evaluator, Failure};
use super::vector::Lot;
use crate::error::Result;
use crate::exec::sorter::{Sorter, write_key};
use crate::exec::{Executor, Source};
use crate::expr::Expr;
use crate::plan::SortKey;

/// Takes the rows of a lot.
fn take(
    evaluator: Evaluator<'_>,
    keys: &[SortKey],
    sorter: &mut Sorter<'_>,
    mut lot: Lot<'_>,
    mut failure: Option<Failure>,
) -> Result<()> {
    let exprs: Vec<&Expr> = keys.iter().map(|key| &key.expr).collect();
    if let Some(vectors) = evaluator.evaluated(&exprs, &mut lot, &mut failure) {
        let columns: Vec<_> = (0..lot.width()).map(|column| lot.column(column)).collect();
        for row in 0..lot.rows {
            sorter.push_by(
                columns.len(),
                |place, key, to| {
                    let vector = &vectors[place];
                    write_key(key, vector.is_null(row), to, |to| vector.write_order(row, to));
                },
                |coder, to| columns.iter().for_each(|column| column.write(row, coder, to)),
            )?;
        }
    }
    failure.map_or(Ok(()), |failure| Err(*failure.error))
}

impl<S: Source> Executor<'_, S> {
    /// Takes the rows of a pipeline, to sort them.
    pub(in crate::exec) async fn sort_batches(
        &mut self,
        pipeline: &Pipeline<'_>,
        keys: &[SortKey],
        sorter: &mut Sorter<'_>,
    ) -> Result<()> {
        let evaluator = Evaluator { context: self.context, outer: &[] };
        let mut see = |lot: Lot<'_>, failure| {
            take(evaluator, keys, sorter, lot, failure).map(|()| ControlFlow::Continue(()))
        };
        self.run_pipeline(pipeline, &mut see).await
    }
}
