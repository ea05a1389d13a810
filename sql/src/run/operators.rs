//! Scans, filters, projections, grouping, sorting, DISTINCT, LIMIT, set operations.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use super::source::Seen;
use super::{Executor, Flow, Row, Sink, Source, emit};
use crate::catalog::Table;
use crate::error::{Error, Result};
use crate::expr::{Call, Comparison, Env, Expr};
use crate::parser::ast::SetOp;
use crate::plan::{Access, AggregateCall, KeyPart, Plan, SortKey, Used};
use crate::registry::aggregates::State;
use crate::types::Datum;

/// A limit up to which the first rows are picked out while the others go by.
const MOST_KEPT: usize = 10_000;

const MORE: Flow = Ok(ControlFlow::Continue(()));

/// A range of an index: values of its first columns, and bounds of the next one.
pub(crate) struct Range {
    pub(crate) index: usize,
    pub(crate) equal: Vec<Datum>,
    pub(crate) low: Bound<Datum>,
    pub(crate) high: Bound<Datum>,
    /// From its end to its beginning.
    pub(crate) backward: bool,
}

/// The conditions that an access leaves to be asked: not the equalities that led into its index, of types whose equal values
/// are stored alike.
fn left_over<'f>(table: &Table, access: &Access, filter: &'f [Expr]) -> Vec<&'f Expr> {
    use crate::types::Type::{Bool, Date, Int2, Int4, Int8, Text, Timestamp, TimestampTz, Uuid, Varchar};
    let Access::Index { index, equal, .. } = access else { return filter.iter().collect() };
    let is_plain = |column: &usize| {
        let ty = table.columns[*column].ty;
        matches!(ty, Bool | Date | Int2 | Int4 | Int8 | Text | Timestamp | TimestampTz | Uuid | Varchar)
    };
    let led = table.indexes[*index].columns[..equal.len()].iter().map(|(column, _)| *column);
    let mut led: Vec<usize> = led.filter(is_plain).collect();
    let mut is_left = |condition: &&Expr| {
        let Expr::Call(Call::Compare(Comparison::Equal), sides) = condition else { return true };
        let column = match (&sides[0], &sides[1]) {
            (Expr::Column(column), other) | (other, Expr::Column(column)) if other.columns().is_empty() => {
                column
            }
            _ => return true,
        };
        // The first equality of a column is the one that was taken.
        led.iter().position(|it| it == column).map(|place| led.swap_remove(place)).is_none()
    };
    filter.iter().filter(&mut is_left).collect()
}

/// The values that columns have to equal; none if one of them is null.
fn key_of(exprs: &[Expr], env: &Env<'_>) -> Result<Option<Row>> {
    let mut values = Row::with_capacity(exprs.len());
    for expr in exprs {
        let value = expr.eval(env)?;
        if value.is_null() {
            return Ok(None);
        }
        values.push(value);
    }
    Ok(Some(values))
}

impl<S: Source> Executor<'_, S> {
    pub(super) fn values(&mut self, rows: &[Vec<Expr>], outer: &[Datum], sink: Sink<'_>) -> Result<()> {
        for exprs in rows {
            let env = self.env(&[], outer);
            let mut row = exprs.iter().map(|expr| expr.eval(&env)).collect::<Result<Row>>()?;
            if sink(&mut row)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    pub(super) async fn scan(
        &mut self,
        (table, used, access, filter, named): (&Arc<Table>, &Used, &Access, &[Expr], Option<usize>),
        outer: &[Datum],
        sink: Sink<'_>,
    ) -> Result<()> {
        let mut ranges = match access {
            Access::Table => vec![None],
            Access::Index { .. } => match self.range(access, outer)? {
                Some(range) => vec![Some(range)],
                None => return Ok(()),
            },
            Access::Points { index, keys } => {
                self.points(*index, keys, outer)?.into_iter().map(Some).collect()
            }
        };
        // A column that only the filter looks at is in use as well: the binder has noted it.
        let columns: Vec<usize> = (0..table.columns.len()).filter(|column| used.borrow()[*column]).collect();
        let context = self.context;
        let again = named.and_then(|scan| self.again.iter().find(|(again, _)| *again == scan));
        // What the index has looked at holds; but not of another version of a row that it has found.
        let conditions: Vec<&Expr> = match again {
            Some(_) => filter.iter().collect(),
            None => left_over(table, access, filter),
        };
        let (mut failed, mut removed) = (None, 0);
        // No more rows are wanted, of the ranges that follow either.
        let ended = std::cell::Cell::new(false);
        let mut see = |row: &mut Row| -> Seen {
            if let Err(error) = context.check() {
                failed = Some(error);
                ended.set(true);
                return Seen::Enough;
            }
            let env = Env { row, outer, context };
            for condition in &conditions {
                match condition.holds(&env) {
                    Ok(true) => {}
                    Ok(false) => {
                        removed += 1;
                        return Seen::Passed;
                    }
                    Err(error) => {
                        failed = Some(error);
                        ended.set(true);
                        return Seen::Enough;
                    }
                }
            }
            match sink(row) {
                Ok(ControlFlow::Continue(())) => Seen::Taken,
                Ok(ControlFlow::Break(())) => {
                    ended.set(true);
                    Seen::Enough
                }
                Err(error) => {
                    failed = Some(error);
                    ended.set(true);
                    Seen::Enough
                }
            }
        };
        if let Some((_, row)) = again {
            see(&mut row.clone());
            return failed.map_or(Ok(()), Err);
        }
        for range in ranges.drain(..) {
            self.source.scan(table, &columns, (range, named.is_some()), &mut see).await?;
            if ended.get() {
                break;
            }
        }
        if let Some(meter) = &self.context.meter {
            meter.note_removed(filter, removed);
        }
        failed.map_or(Ok(()), Err)
    }

    /// The range of an index that an access means. `None`: no row is in it, since nothing equals null.
    fn range(&self, access: &Access, outer: &[Datum]) -> Result<Option<Range>> {
        let Access::Index { index, equal, low, high, backward } = access else {
            unreachable!("the caller has looked");
        };
        let env = self.env(&[], outer);
        let Some(equal) = key_of(equal, &env)? else { return Ok(None) };
        let bound = |bound: &Option<(Expr, bool)>| -> Result<Option<Bound<Datum>>> {
            let Some((expr, included)) = bound else { return Ok(Some(Bound::Unbounded)) };
            let value = expr.eval(&env)?;
            Ok(match (value.is_null(), *included) {
                (true, _) => None,
                (false, true) => Some(Bound::Included(value)),
                (false, false) => Some(Bound::Excluded(value)),
            })
        };
        let (Some(low), Some(high)) = (bound(low)?, bound(high)?) else { return Ok(None) };
        Ok(Some(Range { index: *index, equal, low, high, backward: *backward }))
    }

    /// The ranges of the points of an index, each once.
    fn points(&self, index: usize, keys: &[Vec<KeyPart>], outer: &[Datum]) -> Result<Vec<Range>> {
        let env = self.env(&[], outer);
        let (mut seen, mut ranges) = (HashSet::new(), Vec::with_capacity(keys.len()));
        for key in keys {
            // Nothing equals null: a part that is null, or an array of none, leaves no key.
            let mut all: Vec<Row> = vec![Row::new()];
            for part in key {
                let values = match part {
                    KeyPart::One(expr) => vec![expr.eval(&env)?],
                    KeyPart::Each(array) => match array.eval(&env)? {
                        Datum::Array(items) => items.iter().cloned().collect(),
                        _ => Vec::new(),
                    },
                };
                let with = |known: &Row| {
                    let known = known.clone();
                    let values = values.iter().filter(|value| !value.is_null());
                    values
                        .map(move |value| known.iter().chain([value]).cloned().collect::<Row>())
                        .collect::<Vec<_>>()
                };
                all = all.iter().flat_map(with).collect();
            }
            for equal in all {
                if seen.insert(equal.clone()) {
                    let (low, high) = (Bound::Unbounded, Bound::Unbounded);
                    ranges.push(Range { index, equal, low, high, backward: false });
                }
            }
        }
        Ok(ranges)
    }

    pub(super) async fn filter(
        &mut self,
        input: &Plan,
        conditions: &[Expr],
        outer: &[Datum],
        sink: Sink<'_>,
    ) -> Result<()> {
        let context = self.context;
        let mut removed = 0;
        let mut see = |row: &mut Row| {
            let env = Env { row, outer, context };
            for condition in conditions {
                if !condition.holds(&env)? {
                    removed += 1;
                    return MORE;
                }
            }
            sink(row)
        };
        self.run(input, outer, &mut see).await?;
        if let Some(meter) = &context.meter {
            meter.note_removed(conditions, removed);
        }
        Ok(())
    }

    pub(super) async fn project(
        &mut self,
        input: &Plan,
        exprs: &[Expr],
        outer: &[Datum],
        sink: Sink<'_>,
    ) -> Result<()> {
        let context = self.context;
        let mut out = Row::with_capacity(exprs.len());
        let mut see = |row: &mut Row| {
            let env = Env { row, outer, context };
            out.clear();
            for expr in exprs {
                out.push(expr.eval(&env)?);
            }
            sink(&mut out)
        };
        self.run(input, outer, &mut see).await
    }

    pub(super) async fn aggregate(
        &mut self,
        input: &Plan,
        keys: &[Expr],
        calls: &[AggregateCall],
        outer: &[Datum],
        sink: Sink<'_>,
    ) -> Result<()> {
        let context = self.context;
        let start = || calls.iter().map(Running::start).collect::<Vec<_>>();
        let mut groups: Vec<(Row, Vec<Running>)> = Vec::new();
        let mut places: HashMap<Row, usize> = HashMap::new();
        if keys.is_empty() {
            groups.push((Vec::new(), start()));
        }
        let (mut key, mut args) = (Row::new(), Row::new());
        let mut see = |row: &mut Row| {
            let env = Env { row, outer, context };
            let place = if keys.is_empty() {
                0
            } else {
                key.clear();
                for expr in keys {
                    key.push(expr.eval(&env)?);
                }
                match places.get(&key) {
                    Some(place) => *place,
                    None => {
                        groups.push((key.clone(), start()));
                        places.insert(key.clone(), groups.len() - 1);
                        groups.len() - 1
                    }
                }
            };
            for (call, running) in calls.iter().zip(&mut groups[place].1) {
                running.take(call, &env, &mut args)?;
            }
            MORE
        };
        self.run(input, outer, &mut see).await?;
        for (mut row, running) in groups {
            for (call, running) in calls.iter().zip(running) {
                row.push(running.finish(call)?);
            }
            if sink(&mut row)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    pub(super) async fn sort(
        &mut self,
        input: &Plan,
        keys: &[SortKey],
        outer: &[Datum],
        sink: Sink<'_>,
    ) -> Result<()> {
        let rows = self.rows(input, outer).await?;
        let rows = sorted(rows, keys, |expr, row| expr.eval(&self.env(row, outer)))?;
        emit(rows, sink)
    }

    /// The first rows in an order. No more than twice as many are kept.
    async fn first_sorted(
        &mut self,
        input: &Plan,
        keys: &[SortKey],
        count: usize,
        outer: &[Datum],
    ) -> Result<Vec<Row>> {
        let context = self.context;
        let first = |rows: Vec<Row>| -> Result<Vec<Row>> {
            let mut rows = sorted(rows, keys, |expr, row| expr.eval(&Env { row, outer, context }))?;
            rows.truncate(count);
            Ok(rows)
        };
        let mut rows = Vec::new();
        self.run(input, outer, &mut |row| {
            rows.push(std::mem::take(row));
            if rows.len() >= 2 * count + 64 {
                rows = first(std::mem::take(&mut rows))?;
            }
            MORE
        })
        .await?;
        first(rows)
    }

    pub(super) async fn distinct(
        &mut self,
        input: &Plan,
        keys: Option<&[Expr]>,
        outer: &[Datum],
        sink: Sink<'_>,
    ) -> Result<()> {
        let context = self.context;
        let mut seen: HashSet<Row> = HashSet::new();
        let mut see = |row: &mut Row| {
            let key = match keys {
                None => row.clone(),
                Some(keys) => {
                    let env = Env { row, outer, context };
                    keys.iter().map(|key| key.eval(&env)).collect::<Result<Row>>()?
                }
            };
            if seen.insert(key) { sink(row) } else { MORE }
        };
        self.run(input, outer, &mut see).await
    }

    pub(super) async fn limit(
        &mut self,
        input: &Plan,
        limit: Option<&Expr>,
        offset: Option<&Expr>,
        outer: &[Datum],
        sink: Sink<'_>,
    ) -> Result<()> {
        let count = |expr: Option<&Expr>, what: &str, code: &'static str| -> Result<Option<i64>> {
            match expr.map(|expr| expr.eval(&self.env(&[], outer))).transpose()? {
                Some(Datum::Int(count)) if count < 0 => {
                    Err(Error::new(code, format!("{what} must not be negative")))
                }
                Some(Datum::Int(count)) => Ok(Some(count)),
                _ => Ok(None),
            }
        };
        let mut left = count(limit, "LIMIT", "2201W")?.unwrap_or(i64::MAX);
        let mut skip = count(offset, "OFFSET", "2201X")?.unwrap_or(0);
        if left == 0 {
            return Ok(());
        }
        let (sorted, width) = match input {
            Plan::Cut(input, width) => (&**input, *width),
            other => (other, usize::MAX),
        };
        if let Plan::Sort(input, keys) = sorted
            && let Ok(count) = usize::try_from(left.saturating_add(skip))
            && count <= MOST_KEPT
        {
            let skip = usize::try_from(skip).expect("it is less than the sum");
            let mut rows = self.first_sorted(input, keys, count, outer).await?;
            rows.iter_mut().for_each(|row| row.truncate(width));
            return emit(rows.into_iter().skip(skip), sink);
        }
        let mut see = |row: &mut Row| {
            if skip > 0 {
                skip -= 1;
                return MORE;
            }
            left -= 1;
            let flow = sink(row)?;
            Ok(if left == 0 { ControlFlow::Break(()) } else { flow })
        };
        self.run(input, outer, &mut see).await
    }

    pub(super) async fn set_op(
        &mut self,
        op: SetOp,
        all: bool,
        left: &Plan,
        right: &Plan,
        outer: &[Datum],
        sink: Sink<'_>,
    ) -> Result<()> {
        if op == SetOp::Union {
            let mut seen: HashSet<Row> = HashSet::new();
            let mut stopped = false;
            let mut see = |row: &mut Row| {
                if !all && !seen.insert(row.clone()) {
                    return MORE;
                }
                let flow = sink(row)?;
                stopped |= flow.is_break();
                Ok(flow)
            };
            self.run(left, outer, &mut see).await?;
            if stopped {
                return Ok(());
            }
            let mut see = |row: &mut Row| if !all && !seen.insert(row.clone()) { MORE } else { sink(row) };
            return self.run(right, outer, &mut see).await;
        }
        let mut counts: HashMap<Row, usize> = HashMap::new();
        self.run(right, outer, &mut |row| {
            *counts.entry(std::mem::take(row)).or_insert(0) += 1;
            MORE
        })
        .await?;
        let mut seen: HashSet<Row> = HashSet::new();
        let mut see = |row: &mut Row| {
            let count = counts.get_mut(row);
            let keep = match (op, all, count) {
                (SetOp::Intersect, true, Some(count)) if *count > 0 => {
                    *count -= 1;
                    true
                }
                (SetOp::Intersect, false, Some(_)) | (SetOp::Except, false, None) => seen.insert(row.clone()),
                (SetOp::Except, true, Some(count)) if *count > 0 => {
                    *count -= 1;
                    false
                }
                (SetOp::Except, true, _) => true,
                _ => false,
            };
            if keep { sink(row) } else { MORE }
        };
        self.run(left, outer, &mut see).await
    }

    pub(super) fn unnest(&mut self, array: &Expr, outer: &[Datum], sink: Sink<'_>) -> Result<()> {
        let Datum::Array(items) = array.eval(&self.env(&[], outer))? else { return Ok(()) };
        let row = |item: &Datum| match item {
            Datum::Record(fields) => fields.to_vec(),
            item => vec![item.clone()],
        };
        emit(items.iter().map(row), sink)
    }

    pub(super) fn series(
        &mut self,
        from: &Expr,
        to: &Expr,
        step: &Expr,
        outer: &[Datum],
        sink: Sink<'_>,
    ) -> Result<()> {
        let env = self.env(&[], outer);
        let (Datum::Int(from), Datum::Int(to), Datum::Int(step)) =
            (from.eval(&env)?, to.eval(&env)?, step.eval(&env)?)
        else {
            return Ok(());
        };
        if step == 0 {
            return Err(Error::new("22023", "step size cannot equal zero"));
        }
        let mut at = Some(from);
        while let Some(value) = at.filter(|value| if step > 0 { *value <= to } else { *value >= to }) {
            self.context.check()?;
            if sink(&mut vec![Datum::Int(value)])?.is_break() {
                break;
            }
            at = value.checked_add(step);
        }
        Ok(())
    }
}

/// Rows in the order of their keys; equal ones stay as they were.
pub(super) fn sorted(
    rows: Vec<Row>,
    keys: &[SortKey],
    eval: impl Fn(&Expr, &[Datum]) -> Result<Datum>,
) -> Result<Vec<Row>> {
    let mut keyed = Vec::with_capacity(rows.len());
    for row in rows {
        let key = keys.iter().map(|key| eval(&key.expr, &row)).collect::<Result<Row>>()?;
        keyed.push((key, row));
    }
    keyed.sort_by(|(a, _), (b, _)| order(keys, a, b));
    Ok(keyed.into_iter().map(|(_, row)| row).collect())
}

pub(super) fn order(keys: &[SortKey], a: &[Datum], b: &[Datum]) -> Ordering {
    for ((key, a), b) in keys.iter().zip(a).zip(b) {
        let order = match (a.is_null(), b.is_null()) {
            (true, true) => Ordering::Equal,
            (true, false) => {
                if key.nulls_first {
                    Ordering::Less
                } else {
                    Ordering::Greater
                }
            }
            (false, true) => {
                if key.nulls_first {
                    Ordering::Greater
                } else {
                    Ordering::Less
                }
            }
            (false, false) => {
                let order = a.compare(b);
                if key.descending { order.reverse() } else { order }
            }
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    Ordering::Equal
}

/// An aggregate of a group while rows come.
struct Running {
    state: State,
    seen: HashSet<Row>,
    /// Arguments behind their sort keys, where the aggregate wants an order.
    kept: Vec<Row>,
}

impl Running {
    fn start(call: &AggregateCall) -> Self {
        Self { state: call.aggregate.start(), seen: HashSet::new(), kept: Vec::new() }
    }

    #[inline]
    fn take(&mut self, call: &AggregateCall, env: &Env<'_>, args: &mut Row) -> Result<()> {
        if let Some(filter) = &call.filter
            && !filter.holds(env)?
        {
            return Ok(());
        }
        args.clear();
        for arg in &call.args {
            args.push(arg.eval(env)?);
        }
        if call.distinct && (args[0].is_null() || !self.seen.insert(args.clone())) {
            return Ok(());
        }
        if call.order.is_empty() && !call.distinct {
            return call.aggregate.take(&mut self.state, args);
        }
        let mut kept = call.order.iter().map(|key| key.expr.eval(env)).collect::<Result<Row>>()?;
        kept.append(args);
        self.kept.push(kept);
        Ok(())
    }

    fn finish(mut self, call: &AggregateCall) -> Result<Datum> {
        let keys = call.order.len();
        if keys > 0 {
            self.kept.sort_by(|a, b| order(&call.order, a, b));
        } else if call.distinct {
            // PostgreSQL sorts what it makes distinct.
            self.kept.sort_by(|a, b| {
                a.iter().zip(b).map(|(a, b)| a.compare_nulls_last(b)).fold(Ordering::Equal, Ordering::then)
            });
        }
        for kept in &self.kept {
            call.aggregate.take(&mut self.state, &kept[keys..])?;
        }
        call.aggregate.finish(self.state)
    }
}
