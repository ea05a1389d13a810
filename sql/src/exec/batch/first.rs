//! The first rows in an order, of batches: rows that come behind the last one known are passed over by their first key.

use std::ops::ControlFlow;

use super::Pipeline;
use super::eval::{Evaluator, Failure, compared};
use super::vector::{Lot, Vector};
use crate::error::Result;
use crate::exec::sort::First;
use crate::exec::{Executor, Row, Source};
use crate::expr::{Comparison, Expr};
use crate::plan::SortKey;
use crate::types::Datum;

/// The rows that may be among the first ones, by their first key; none: all of them.
fn candidates(first: &First<'_, '_>, keys: &[SortKey], vector: &Vector<'_>, rows: usize) -> Option<Vec<u32>> {
    let (key, bound) = (keys.first()?, first.last_key()?.first()?);
    if bound.is_null() {
        return None;
    }
    // What is equal by its only key and comes later is behind.
    let comparison = match (key.descending, keys.len() == 1) {
        (false, true) => Comparison::Less,
        (false, false) => Comparison::LessEqual,
        (true, true) => Comparison::Greater,
        (true, false) => Comparison::GreaterEqual,
    };
    let before = compared(comparison, vector, &Vector::one(bound.clone()), rows)?;
    let rows = 0..u32::try_from(rows).expect("a batch has some thousand rows");
    Some(rows.filter(|row| before.truth(*row as usize).unwrap_or(key.nulls_first)).collect())
}

/// Takes the rows of a lot.
fn take(
    evaluator: Evaluator<'_>,
    keys: &[SortKey],
    first: &mut First<'_, '_>,
    mut lot: Lot<'_>,
    mut failure: Option<Failure>,
) -> Result<()> {
    let exprs: Vec<&Expr> = keys.iter().map(|key| &key.expr).collect();
    if let Some(vectors) = evaluator.evaluated(&exprs, &mut lot, &mut failure)
        && lot.rows > 0
    {
        if let Some(rows) = vectors.first().and_then(|vector| candidates(first, keys, vector, lot.rows)) {
            lot = lot.at(&rows);
        }
        let columns: Vec<_> = (0..lot.width()).map(|column| lot.column(column)).collect();
        for at in 0..lot.rows {
            let mut row: Row = columns.iter().map(|column| column.datum(at)).collect::<Vec<Datum>>();
            first.take(&mut row, evaluator.outer, evaluator.context)?;
        }
    }
    failure.map_or(Ok(()), |failure| Err(*failure.error))
}

impl<S: Source> Executor<'_, S> {
    /// Takes the rows of a pipeline, of which the first ones are wanted.
    pub(in crate::exec) async fn first_of_batches(
        &mut self,
        pipeline: &Pipeline<'_>,
        keys: &[SortKey],
        first: &mut First<'_, '_>,
    ) -> Result<()> {
        let evaluator = Evaluator { context: self.context, outer: &[] };
        let mut see = |lot: Lot<'_>, failure| {
            take(evaluator, keys, first, lot, failure).map(|()| ControlFlow::Continue(()))
        };
        self.run_pipeline(pipeline, &mut see).await
    }
}
