//! GROUP BY and aggregates over batches; what memory does not hold goes to a file.
//!
//! Rows of groups beyond the grant are left as their keys and arguments, in partitions by the hash of the keys, each of which is grouped
//! in the same way, one level down.

use std::hash::Hasher;
use std::ops::ControlFlow;
use std::rc::Rc;

use super::accumulate::Accumulator;
use super::eval::{Evaluator, Failure};
use super::groups::{BEYOND, Groups};
use super::vector::{Builder, Lot, Vector};
use super::{Pipeline, attempted};
use crate::exec::coded::Coder;
use crate::exec::spill::Beyond;
use crate::exec::{Executor, Flow, Row, Sink, Source};
use crate::expr::memory::Kept;
use crate::expr::{Context, Expr};
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
    /// Rows of groups beyond the grant.
    beyond: Beyond,
}

/// The keys and calls of rows that were left: the columns where they stand.
fn of_left(keys: &[Expr], calls: &[AggregateCall]) -> (Vec<Expr>, Vec<AggregateCall>) {
    let mut columns = (0..).map(Expr::Column);
    let keys = columns.by_ref().take(keys.len()).collect();
    let call = |call: &AggregateCall| AggregateCall {
        args: columns.by_ref().take(call.args.len()).collect(),
        filter: call.filter.as_ref().and_then(|_| columns.next()),
        ..call.clone()
    };
    (keys, calls.iter().map(call).collect())
}

impl Arguments<'_> {
    /// Values of a row that is left: the arguments, and what the filter says.
    fn width(&self) -> usize {
        self.vectors.len() + usize::from(self.rows.is_some())
    }

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

impl<'g, 'e> Grouping<'g, 'e> {
    fn new(context: &'e Context, (keys, calls): (&'g [Expr], &'g [AggregateCall]), beyond: Beyond) -> Self {
        Self {
            evaluator: Evaluator { context, outer: &[] },
            keys,
            calls,
            groups: Groups::new(keys.len()),
            accumulators: calls.iter().map(|call| Accumulator::new(call.aggregate)).collect(),
            numbers: Vec::new(),
            kept: context.memory.kept(),
            beyond,
        }
    }

    /// Has the rows of a lot whose groups are beyond those that are there kept in a file: their keys, and of each call its arguments and
    /// what its filter says.
    fn leave(&mut self, keys: &[&Vector<'_>], arguments: &[Arguments<'_>]) {
        let width = keys.len() + arguments.iter().map(Arguments::width).sum::<usize>();
        // Of each call, the place among its rows where the next one stands.
        let mut next = vec![0; arguments.len()];
        for (row, number) in self.numbers.iter().enumerate() {
            let place = |(arguments, next): (&Arguments<'_>, &mut usize)| {
                let Some(rows) = &arguments.rows else { return Some(row) };
                let is_taken = rows.get(*next).is_some_and(|taken| *taken as usize == row);
                *next += usize::from(is_taken);
                is_taken.then(|| *next - 1)
            };
            let places: Vec<Option<usize>> = arguments.iter().zip(&mut next).map(place).collect();
            if *number != BEYOND {
                continue;
            }
            let mut hasher = self.beyond.hasher();
            keys.iter().for_each(|key| key.hash(row, &mut hasher));
            let write = |coder: &mut Coder, block: &mut Vec<u8>| {
                keys.iter().for_each(|key| key.write(row, coder, block));
                for (arguments, place) in arguments.iter().zip(&places) {
                    for vector in &arguments.vectors {
                        match place {
                            Some(place) => vector.write(*place, coder, block),
                            None => coder.write(&Datum::Null, block),
                        }
                    }
                    if arguments.rows.is_some() {
                        coder.write(&Datum::Bool(place.is_some()), block);
                    }
                }
            };
            self.beyond.push_by((hasher.finish(), width), write, self.evaluator.context);
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
                self.leave(&keys, &arguments);
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

    /// Hands the groups over, and those of the rows that were left; the calls are those of what is left.
    async fn finish(self, left: (&[Expr], &[AggregateCall]), sink: &mut dyn FnMut(&mut Row) -> Flow) -> Flow {
        let Self { evaluator: Evaluator { context, .. }, calls, groups, accumulators, kept, beyond, .. } =
            self;
        let count = groups.count;
        let states = accumulators.into_iter().map(|accumulator| accumulator.finish(count).into_iter());
        let mut states: Vec<_> = states.collect();
        for group in 0..count {
            let mut row: Row = groups.row(group);
            for (call, states) in calls.iter().zip(&mut states) {
                row.push(call.aggregate.finish(states.next().expect("a state a group"))?);
            }
            if sink(&mut row)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            if context.is_due() {
                context.pause().await?;
            }
        }
        drop((groups, states, kept));
        let below = beyond.below();
        for mut part in beyond.parts(context).await? {
            let mut grouping = Grouping::new(context, left, below.twin(context)?);
            loop {
                let mut columns: Vec<Builder> = Vec::new();
                columns.resize_with(part.width(), Builder::default);
                let rows = part.next_some(&mut |column, value| columns[column].push(value)).await?;
                if rows == 0 {
                    break;
                }
                let columns = columns.into_iter().map(|column| Rc::new(column.finish())).collect();
                grouping.take(Lot::of_columns(columns, rows), None)?;
                if context.is_due_after(rows) {
                    context.pause().await?;
                }
            }
            if Box::pin(grouping.finish(left, sink)).await?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
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
        let mut grouping = Grouping::new(self.context, (keys, calls), Beyond::new());
        let mut take =
            |lot: Lot<'_>, failure| grouping.take(lot, failure).map(|()| ControlFlow::Continue(()));
        self.run_pipeline(pipeline, &mut take).await?;
        let left = of_left(keys, calls);
        grouping.finish((&left.0, &left.1), sink).await.map(drop)
    }
}
