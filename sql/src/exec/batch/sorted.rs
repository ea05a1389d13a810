//! ORDER BY over batches: keys and rows are written as bytes from the columns, and sorted as rows of other plans are.

use std::ops::ControlFlow;
use std::rc::Rc;

use super::Pipeline;
use super::eval::{Evaluator, Failure};
use super::vector::{Lot, Vector};
use crate::error::Result;
use crate::exec::coded::Coder;
use crate::exec::sorter::{Coming, KeyForm, Sorter};
use crate::exec::{Executor, Source};
use crate::expr::Expr;
use crate::plan::SortKey;

/// A row of a lot, and its key.
struct LotRow<'l, 'b> {
    columns: &'l [Rc<Vector<'b>>],
    key: &'l [Rc<Vector<'b>>],
    row: usize,
}

impl Coming for LotRow<'_, '_> {
    fn form(&self, place: usize) -> Option<KeyForm> {
        self.key[place].key_form(self.row)
    }

    fn write_order(&self, place: usize, to: &mut Vec<u8>) {
        self.key[place].write_order(self.row, to);
    }

    fn write(&self, column: usize, coder: &mut Coder, to: &mut Vec<u8>) {
        self.columns[column].write(self.row, coder, to);
    }
}

/// Takes the rows of a lot.
fn take(
    evaluator: Evaluator<'_>,
    keys: &[SortKey],
    sorter: &mut Sorter<'_>,
    mut lot: Lot<'_>,
    mut failure: Option<Failure>,
) -> Result<()> {
    let exprs: Vec<&Expr> = keys.iter().map(|key| &key.expr).collect();
    if let Some(key) = evaluator.evaluated(&exprs, &mut lot, &mut failure) {
        let columns: Vec<_> = (0..lot.width()).map(|column| lot.column(column)).collect();
        for row in 0..lot.rows {
            sorter.push_by(columns.len(), &LotRow { columns: &columns, key: &key, row })?;
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
