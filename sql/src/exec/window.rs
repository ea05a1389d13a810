//! Window functions: all rows are kept, and each call sorts their places by its partition and order and then goes over them.
//!
//! An aggregate whose frame begins with its partition goes on from row to row; any other frame is gone over anew for each row.
//! Rows leave in the order of the last call, as PostgreSQL's do.

use std::cmp::Ordering;
use std::ops::Range;

use super::sort::{order, sorted_places};
use super::{Executor, Row, Sink, Source, emit};
use crate::error::{Error, Result};
use crate::expr::memory::{Kept, size_behind, size_of_row};
use crate::expr::{Context, Env, Expr};
use crate::functions::aggregates::Aggregate;
use crate::plan::{FrameEnd, Plan, WindowCall, WindowFunction};
use crate::types::Datum;

impl<S: Source> Executor<'_, S> {
    pub(super) async fn windows(
        &mut self,
        input: &Plan,
        calls: &[WindowCall],
        outer: &[Datum],
        sink: Sink<'_>,
    ) -> Result<()> {
        let context = self.context;
        let all = self.rows(input, outer).await?;
        let rows = &all.rows;
        let mut kept = context.memory.kept();
        kept.add(rows.len() * 2 * size_of::<usize>())?;
        let mut places: Vec<usize> = (0..rows.len()).collect();
        let mut columns = Vec::with_capacity(calls.len());
        for call in calls {
            let mut over = Window { call, context, rows, outer, kept: &mut kept };
            let (sorted, values) = over.values().await?;
            places = sorted;
            columns.push(values);
        }
        let mut rows: Vec<Option<Row>> = all.rows.into_iter().map(Some).collect();
        let extended = places.into_iter().map(|place| {
            let mut row = rows[place].take().expect("each place is there once");
            row.extend(columns.iter_mut().map(|values| std::mem::replace(&mut values[place], Datum::Null)));
            row
        });
        emit(context, extended, sink).await
    }
}

/// One call over all rows.
struct Window<'w, 'e> {
    call: &'w WindowCall,
    context: &'e Context,
    rows: &'w [Row],
    outer: &'w [Datum],
    kept: &'w mut Kept<'e>,
}

/// A partition: places of its rows in order, and for each the range of its equals.
struct Partition<'p> {
    places: &'p [usize],
    peers: Vec<Range<usize>>,
}

impl Window<'_, '_> {
    fn env(&self, place: usize) -> Env<'_> {
        Env { row: &self.rows[place], outer: self.outer, context: self.context }
    }

    fn eval(&self, expr: &Expr, place: usize) -> Result<Datum> {
        expr.eval(&self.env(place))
    }

    /// The places in the call's order, and its value for each row.
    async fn values(&mut self) -> Result<(Vec<usize>, Vec<Datum>)> {
        let context = self.context;
        let mut own = context.memory.kept();
        let mut keyed = Vec::with_capacity(self.rows.len());
        for place in 0..self.rows.len() {
            self.context.check()?;
            let part =
                self.call.partition.iter().map(|expr| self.eval(expr, place)).collect::<Result<Row>>()?;
            let key =
                self.call.order.iter().map(|key| self.eval(&key.expr, place)).collect::<Result<Row>>()?;
            own.add(size_of_row(&part) + size_of_row(&key) + size_of::<usize>())?;
            keyed.push((part, key, place));
            if context.is_due() {
                context.pause().await?;
            }
        }
        let parts = |a: &[Datum], b: &[Datum]| {
            a.iter().zip(b).map(|(a, b)| a.compare_nulls_last(b)).fold(Ordering::Equal, Ordering::then)
        };
        let compare = |a: usize, b: usize| {
            let ((a, m, _), (b, n, _)) = (&keyed[a], &keyed[b]);
            parts(a, b).then_with(|| order(&self.call.order, m, n))
        };
        let by_order = sorted_places(context, keyed.len(), compare).await?;
        let mut keyed: Vec<(Row, Row, usize)> =
            by_order.into_iter().map(|place| std::mem::take(&mut keyed[place as usize])).collect();
        keyed.shrink_to_fit();
        let places: Vec<usize> = keyed.iter().map(|(_, _, place)| *place).collect();
        self.kept.add(self.rows.len() * size_of::<Datum>())?;
        let mut values = vec![Datum::Null; self.rows.len()];
        let mut from = 0;
        for group in keyed.chunk_by(|(a, ..), (b, ..)| parts(a, b).is_eq()) {
            let mut peers = Vec::with_capacity(group.len());
            let mut first = 0;
            for equals in group.chunk_by(|(_, m, _), (_, n, _)| order(&self.call.order, m, n).is_eq()) {
                let range = first..first + equals.len();
                peers.extend(equals.iter().map(|_| range.clone()));
                first = range.end;
            }
            let partition = Partition { places: &places[from..from + group.len()], peers };
            self.partition(&partition, &mut values).await?;
            if context.is_due() {
                context.pause().await?;
            }
            from += group.len();
        }
        Ok((places, values))
    }

    async fn partition(&mut self, partition: &Partition<'_>, values: &mut [Datum]) -> Result<()> {
        let (places, count) = (partition.places, partition.places.len());
        let mut dense = 0;
        if let WindowFunction::Aggregate(aggregate) = self.call.function {
            return self.aggregate(aggregate, partition, values).await;
        }
        for (at, place) in places.iter().enumerate() {
            let peers = &partition.peers[at];
            dense += i64::from(peers.start == at);
            values[*place] = match self.call.function {
                WindowFunction::RowNumber => Datum::Int(at as i64 + 1),
                WindowFunction::Rank => Datum::Int(peers.start as i64 + 1),
                WindowFunction::DenseRank => Datum::Int(dense),
                WindowFunction::PercentRank if count == 1 => Datum::Float(0.0),
                WindowFunction::PercentRank => Datum::Float(peers.start as f64 / (count - 1) as f64),
                WindowFunction::CumeDist => Datum::Float(peers.end as f64 / count as f64),
                WindowFunction::Ntile => self.ntile(at, partition)?,
                WindowFunction::Lag => self.neighbour(at, partition, -1)?,
                WindowFunction::Lead => self.neighbour(at, partition, 1)?,
                WindowFunction::FirstValue | WindowFunction::LastValue | WindowFunction::NthValue => {
                    let frame = self.frame(at, partition)?;
                    let found = match self.call.function {
                        WindowFunction::FirstValue => frame.clone().next(),
                        WindowFunction::LastValue => frame.clone().next_back(),
                        _ => match self.eval(&self.call.args[1], *place)? {
                            Datum::Int(nth) if nth > 0 => frame.clone().nth(nth as usize - 1),
                            Datum::Int(_) => {
                                let message = "argument of nth_value must be greater than zero";
                                return Err(Error::new("22016", message));
                            }
                            _ => None,
                        },
                    };
                    match found {
                        Some(found) => self.eval(&self.call.args[0], places[found])?,
                        None => Datum::Null,
                    }
                }
                WindowFunction::Aggregate(_) => unreachable!("aggregates have their own loop"),
            };
            if self.context.is_due() {
                self.context.pause().await?;
            }
        }
        Ok(())
    }

    fn ntile(&self, at: usize, partition: &Partition<'_>) -> Result<Datum> {
        let Datum::Int(buckets) = self.eval(&self.call.args[0], partition.places[0])? else {
            return Ok(Datum::Null);
        };
        if buckets <= 0 {
            return Err(Error::new("22014", "argument of ntile must be greater than zero"));
        }
        let (count, buckets) = (partition.places.len() as i64, buckets);
        // The first buckets have one row more than the others.
        let (size, larger) = (count / buckets, count % buckets);
        let (at, edge) = (at as i64, larger * (size + 1));
        Ok(Datum::Int(if at < edge { at / (size + 1) } else { larger + (at - edge) / size.max(1) } + 1))
    }

    /// The value so many rows before or behind.
    fn neighbour(&self, at: usize, partition: &Partition<'_>, sign: i64) -> Result<Datum> {
        let place = partition.places[at];
        let Datum::Int(distance) = self.eval(&self.call.args[1], place)? else { return Ok(Datum::Null) };
        let there = (at as i64).checked_add(sign * distance).and_then(|there| usize::try_from(there).ok());
        match there.and_then(|there| partition.places.get(there)) {
            Some(there) => self.eval(&self.call.args[0], *there),
            None => match self.call.args.get(2) {
                Some(instead) => self.eval(instead, place),
                None => Ok(Datum::Null),
            },
        }
    }

    /// The frame of a row, as places in its partition.
    fn frame(&self, at: usize, partition: &Partition<'_>) -> Result<Range<usize>> {
        let count = partition.places.len();
        let frame = &self.call.frame;
        let distance = |expr: &Expr, what: &str| -> Result<usize> {
            match self.eval(expr, partition.places[at])? {
                Datum::Int(distance) if distance >= 0 => Ok(usize::try_from(distance).unwrap_or(usize::MAX)),
                Datum::Int(_) => {
                    Err(Error::new("22013", format!("frame {what} offset must not be negative")))
                }
                _ => Err(Error::new("22004", format!("frame {what} offset must not be null"))),
            }
        };
        let start = match &frame.start {
            FrameEnd::First => 0,
            FrameEnd::Before(by) => at.saturating_sub(distance(by, "starting")?),
            FrameEnd::Current if frame.rows => at,
            FrameEnd::Current => partition.peers[at].start,
            FrameEnd::Behind(by) => at.saturating_add(distance(by, "starting")?).min(count),
            FrameEnd::Last => count,
        };
        let end = match &frame.end {
            FrameEnd::First => 0,
            FrameEnd::Before(by) => (at + 1).saturating_sub(distance(by, "ending")?),
            FrameEnd::Current if frame.rows => at + 1,
            FrameEnd::Current => partition.peers[at].end,
            FrameEnd::Behind(by) => (at + 1).saturating_add(distance(by, "ending")?).min(count),
            FrameEnd::Last => count,
        };
        Ok(start..end.max(start))
    }

    async fn aggregate(
        &mut self,
        aggregate: Aggregate,
        partition: &Partition<'_>,
        values: &mut [Datum],
    ) -> Result<()> {
        let context = self.context;
        let grows = matches!(self.call.frame.start, FrameEnd::First);
        let (mut state, mut taken) = (aggregate.start(), 0);
        let mut args = Row::new();
        let mut known: Option<(Range<usize>, Datum)> = None;
        for (at, place) in partition.places.iter().enumerate() {
            self.context.check()?;
            let frame = self.frame(at, partition)?;
            if let Some((range, value)) = &known
                && *range == frame
            {
                values[*place] = value.clone();
                if context.is_due() {
                    context.pause().await?;
                }
                continue;
            }
            if !grows {
                (state, taken) = (aggregate.start(), frame.start);
            }
            for other in &partition.places[taken.min(frame.end)..frame.end] {
                let env = self.env(*other);
                if let Some(filter) = &self.call.filter
                    && !filter.holds(&env)?
                {
                    continue;
                }
                args.clear();
                for arg in &self.call.args {
                    args.push(arg.eval(&env)?);
                }
                aggregate.take(&mut state, &args)?;
                if context.is_due() {
                    context.pause().await?;
                }
            }
            taken = taken.max(frame.end);
            let value = aggregate.finish(state.clone())?;
            self.kept.add(size_behind(&value))?;
            values[*place] = value.clone();
            known = Some((frame, value));
        }
        Ok(())
    }
}
