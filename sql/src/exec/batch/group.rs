//! GROUP BY and aggregates over batches.

use std::ops::ControlFlow;
use std::rc::Rc;

use super::accumulate::Accumulator;
use super::eval::{Evaluator, Failure};
use super::groups::{BEYOND, Groups};
use super::vector::{Lot, Vector};
use super::{Pipeline, attempted};
use crate::exec::group::group_parts;
use crate::exec::spill::Beyond;
use crate::exec::{Executor, Row, Sink, Source};
use crate::expr::Expr;
use crate::expr::memory::Kept;
use crate::plan::AggregateCall;
use crate::types::Datum;

/// Expressions over the rows that are grouped: the keys, then of each call its arguments and its filter.
pub(super) fn over_rows<'a>(keys: &'a [Expr], calls: &'a [AggregateCall]) -> impl Iterator<Item = &'a Expr> {
    keys.iter().chain(calls.iter().flat_map(|call| call.args.iter().chain(&call.filter)))
}

/// The arguments of a call.
struct Arguments<'b> {
    vectors: Vec<Rc<Vector<'b>>>,
    /// The rows that they are of; none: all of the lot.
    rows: Option<Vec<u32>>,
}

/// The groups of a run, as batches come.
struct Grouping<'g, 'e> {
    evaluator: Evaluator<'e>,
    keys: &'g [Expr],
    calls: &'g [AggregateCall],
    groups: Groups,
    accumulators: Vec<Accumulator>,
    /// The numbers of the groups of a batch's rows.
    numbers: Vec<u32>,
    kept: Kept<'e>,
    /// Rows of groups beyond the grant, with these columns.
    beyond: Beyond,
    columns: Vec<usize>,
}

impl Arguments<'_> {
    /// Leaves out the rows whose groups are beyond those that are there.
    fn keep_known(&mut self, numbers: &[u32]) {
        let all = || (0..).take(numbers.len()).collect();
        let rows: Vec<u32> = self.rows.take().unwrap_or_else(all);
        let known = rows.iter().zip(0..).filter(|(row, _)| numbers[**row as usize] != BEYOND);
        let (rows, places): (Vec<u32>, Vec<u32>) = known.unzip();
        self.vectors.iter_mut().for_each(|vector| *vector = Rc::new(vector.at(&places)));
        self.rows = Some(rows);
    }
}

impl Grouping<'_, '_> {
    /// Has the rows of a lot whose groups are beyond those that are there kept in a file.
    fn leave(&mut self, keys: &[&Vector<'_>], lot: &Lot<'_>) {
        let columns: Vec<_> = self.columns.iter().map(|column| (*column, lot.column(*column))).collect();
        let mut row = vec![Datum::Null; lot.width()];
        for (at, number) in self.numbers.iter().enumerate() {
            if *number == BEYOND {
                columns.iter().for_each(|(column, vector)| row[*column] = vector.datum(at));
                let key: Row = keys.iter().map(|key| key.datum(at)).collect();
                self.beyond.push(&key, &row, self.evaluator.context);
            }
        }
    }

    /// The values of the keys and arguments of a lot. A row that its call's filter leaves out has no arguments.
    fn evaluated<'b>(&self, lot: &Lot<'b>) -> Result<(Vec<Rc<Vector<'b>>>, Vec<Arguments<'b>>), Failure> {
        let all = |exprs: &[Expr], lot: &Lot<'b>| self.evaluator.all(exprs.iter(), lot);
        let arguments = |call: &AggregateCall| {
            let Some(filter) = &call.filter else {
                return Ok(Arguments { vectors: all(&call.args, lot)?, rows: None });
            };
            let rows = self.evaluator.holding(filter, lot)?;
            let of_part = |failure: Failure| Failure { row: rows[failure.row] as usize, ..failure };
            // There is no row to evaluate anything for.
            let vectors = match rows.is_empty() {
                true => call.args.iter().map(|_| Rc::new(Vector::one(Datum::Null))).collect(),
                false => all(&call.args, &lot.at(&rows)).map_err(of_part)?,
            };
            Ok(Arguments { vectors, rows: Some(rows) })
        };
        Ok((all(self.keys, lot)?, self.calls.iter().map(arguments).collect::<Result<_, Failure>>()?))
    }

    /// Takes the rows of a lot.
    fn take(&mut self, mut lot: Lot<'_>, mut failure: Option<Failure>) -> crate::error::Result<()> {
        if let Some((keys, mut arguments)) = attempted(&mut lot, &mut failure, |lot| self.evaluated(lot)) {
            let keys: Vec<&Vector<'_>> = keys.iter().map(|vector| &**vector).collect();
            let before = self.groups.count;
            let context = self.evaluator.context;
            let is_full = self.beyond.begins(self.kept.bytes(), context)?;
            self.groups.of_rows(&keys, lot.rows, &mut self.numbers, (&mut self.kept, !is_full))?;
            if is_full && self.numbers.contains(&BEYOND) {
                self.leave(&keys, &lot);
                arguments.iter_mut().for_each(|arguments| arguments.keep_known(&self.numbers));
            }
            let new = self.groups.count - before;
            self.kept.add(new * self.calls.len() * Accumulator::GROUP_BYTES)?;
            let count = self.groups.count;
            for (arguments, accumulator) in arguments.iter().zip(&mut self.accumulators) {
                let Arguments { vectors, rows } = arguments;
                let taken = match rows {
                    None => accumulator.take(vectors, (&self.numbers, count), &mut self.kept),
                    Some(rows) if rows.is_empty() => Ok(()),
                    Some(rows) => {
                        let numbers: Vec<u32> = rows.iter().map(|row| self.numbers[*row as usize]).collect();
                        let of_part =
                            |failure: Failure| Failure { row: rows[failure.row] as usize, ..failure };
                        accumulator.take(vectors, (&numbers, count), &mut self.kept).map_err(of_part)
                    }
                };
                if let Err(later) = taken
                    && failure.as_ref().is_none_or(|known| later.row < known.row)
                {
                    failure = Some(later);
                }
            }
        }
        failure.map_or(Ok(()), |failure| Err(*failure.error))
    }
}

impl<S: Source> Executor<'_, S> {
    /// Groups the rows of a pipeline.
    pub(in crate::exec) async fn group_batches(
        &mut self,
        pipeline: &Pipeline<'_>,
        keys: &[Expr],
        calls: &[AggregateCall],
        sink: Sink<'_>,
    ) -> crate::error::Result<()> {
        let context = self.context;
        let mut columns: Vec<usize> = over_rows(keys, calls).flat_map(Expr::columns).collect();
        columns.sort_unstable();
        columns.dedup();
        let mut grouping = Grouping {
            evaluator: Evaluator { context, outer: &[] },
            keys,
            calls,
            groups: Groups::new(keys.len()),
            accumulators: calls.iter().map(|call| Accumulator::new(call.aggregate)).collect(),
            numbers: Vec::new(),
            kept: context.memory.kept(),
            beyond: Beyond::new(),
            columns,
        };
        let mut take =
            |lot: Lot<'_>, failure| grouping.take(lot, failure).map(|()| ControlFlow::Continue(()));
        self.run_pipeline(pipeline, &mut take).await?;
        let Grouping { groups, accumulators, kept, beyond, .. } = grouping;
        let count = groups.count;
        let states = accumulators.into_iter().map(|accumulator| accumulator.finish(count).into_iter());
        let mut states: Vec<_> = states.collect();
        for group in 0..count {
            let mut row: Row = groups.row(group);
            for (call, states) in calls.iter().zip(&mut states) {
                row.push(call.aggregate.finish(states.next().expect("a state a group"))?);
            }
            if sink(&mut row)?.is_break() {
                return Ok(());
            }
            if context.is_due() {
                context.pause().await?;
            }
        }
        drop((groups, states, kept));
        group_parts(beyond, context, &[], (keys, calls), sink).await.map(drop)
    }
}
