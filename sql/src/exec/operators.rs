//! Scans, filters, projections, sorting, LIMIT.

use std::collections::HashSet;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use super::batch::Pipeline;
use super::inner::{Inner, KeptScan, is_outer};
use super::sort::First;
use super::sorter::Sorter;
use super::source::Seen;
use super::{Executor, Flow, KeptRows, Row, Sink, Source, emit};
use crate::catalog::Table;
use crate::error::{Again, Error, Result};
use crate::expr::{Call, Comparison, Env, Expr};
use crate::plan::{Access, KeyPart, Plan, SortKey, Used};
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
pub(super) fn left_over<'f>(table: &Table, access: &Access, filter: &'f [Expr]) -> Vec<&'f Expr> {
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

/// The rows that OFFSET passes over, and the rows that LIMIT lets through.
pub(super) fn limit_of(limit: Option<&Expr>, offset: Option<&Expr>, env: &Env<'_>) -> Result<(i64, i64)> {
    let count = |expr: Option<&Expr>, what: &str, code: &'static str| -> Result<Option<i64>> {
        match expr.map(|expr| expr.eval(env)).transpose()? {
            Some(Datum::Int(count)) if count < 0 => {
                Err(Error::new(code, format!("{what} must not be negative")))
            }
            Some(Datum::Int(count)) => Ok(Some(count)),
            _ => Ok(None),
        }
    };
    let left = count(limit, "LIMIT", "2201W")?.unwrap_or(i64::MAX);
    Ok((count(offset, "OFFSET", "2201X")?.unwrap_or(0), left))
}

impl<S: Source> Executor<'_, S> {
    pub(super) async fn values(&mut self, rows: &[Vec<Expr>], outer: &[Datum], sink: Sink<'_>) -> Result<()> {
        for exprs in rows {
            let env = self.env(&[], outer);
            let mut row = exprs.iter().map(|expr| expr.eval(&env)).collect::<Result<Row>>()?;
            if sink(&mut row)?.is_break() {
                break;
            }
            if self.context.is_due() {
                self.context.pause().await?;
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
        // Only a scan that asks for the outer row runs more than once.
        let number = std::ptr::from_ref(access).addr();
        let has_order = matches!(access, Access::Index { in_order: true, .. });
        let may_keep = named.is_none() && !has_order && !outer.is_empty() && self.context.meter.is_none();
        if may_keep && Box::pin(self.kept_scan(number, (table, used, filter), outer)).await? {
            let Some(Inner::Kept(kept)) = self.inner.get(&number) else { unreachable!("it was just kept") };
            let kept = kept.clone();
            return Box::pin(self.scan_kept(&kept, filter, outer, sink)).await;
        }
        let mut looked_at = 0;
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
            looked_at += 1;
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
        let is_several = ranges.len() > 1;
        for range in ranges.drain(..) {
            self.source.scan(table, &columns, (range, named.is_some()), &mut see).await?;
            if ended.get() {
                break;
            }
            // The reads of points do not pause.
            if is_several && context.is_due() {
                context.pause().await?;
            }
        }
        if may_keep {
            self.inner.entry(number).or_default().count(looked_at);
        }
        if let Some(meter) = &self.context.meter {
            meter.note_removed(filter, removed);
        }
        failed.map_or(Ok(()), Err)
    }

    /// Keeps the rows of a scan, if that is worth it: whether they are kept.
    async fn kept_scan(
        &mut self,
        number: usize,
        (table, used, filter): (&Arc<Table>, &Used, &[Expr]),
        outer: &[Datum],
    ) -> Result<bool> {
        match self.inner.get(&number) {
            Some(Inner::Kept(_)) => return Ok(true),
            Some(inner) if inner.is_worth() => {}
            _ => return Ok(false),
        }
        let context = self.context;
        let columns: Vec<usize> = (0..table.columns.len()).filter(|column| used.borrow()[*column]).collect();
        // Conditions that every outer row asks alike, and that cannot fail.
        let alike: Vec<&Expr> = filter.iter().filter(|condition| !is_outer(condition)).collect();
        let mut all = KeptRows::none(context);
        let mut failed = None;
        let mut see = |row: &mut Row| -> Seen {
            let env = Env { row, outer, context };
            for condition in &alike {
                match condition.holds(&env) {
                    Ok(true) => {}
                    Ok(false) => return Seen::Passed,
                    Err(error) => {
                        failed = Some(error);
                        return Seen::Enough;
                    }
                }
            }
            match all.push(&mut row.clone()) {
                Ok(()) => Seen::Taken,
                Err(error) => {
                    failed = Some(error);
                    Seen::Enough
                }
            }
        };
        let scanned = self.source.scan(table, &columns, (None, false), &mut see).await;
        let kept = match (scanned, failed) {
            (Ok(()), None) => KeptScan::new(context, all, filter).await,
            (Err(error), _) | (Ok(()), Some(error)) => Err(error),
        };
        match kept {
            Ok(kept) => {
                self.inner.insert(number, Inner::Kept(std::rc::Rc::new(kept)));
                Ok(true)
            }
            // What a condition says of a row that nobody has asked for, or what does not fit, is no error.
            Err(error) if ["57014", "57P01"].contains(&error.code) || error.again() == Again::Rebind => {
                Err(error)
            }
            Err(_) => {
                self.inner.insert(number, Inner::Refused);
                Ok(false)
            }
        }
    }

    /// The rows of a scan that are kept.
    async fn scan_kept(
        &mut self,
        kept: &KeptScan<'_>,
        filter: &[Expr],
        outer: &[Datum],
        sink: Sink<'_>,
    ) -> Result<()> {
        let context = self.context;
        let candidates = kept.candidates(&Env { row: &[], outer, context })?;
        'rows: for number in 0..candidates.len() {
            context.check()?;
            if context.is_due() {
                context.pause().await?;
            }
            let row = kept.row(candidates.at(number));
            let env = Env { row, outer, context };
            for condition in filter {
                if !condition.holds(&env)? {
                    continue 'rows;
                }
            }
            if sink(&mut row.clone())?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// The range of an index that an access means. `None`: no row is in it, since nothing equals null.
    pub(super) fn range(&self, access: &Access, outer: &[Datum]) -> Result<Option<Range>> {
        let Access::Index { index, equal, low, high, backward, .. } = access else {
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

    /// The rows in an order, but for the first so many.
    pub(super) async fn sort(
        &mut self,
        (input, keys): (&Plan, &[SortKey]),
        skip: u64,
        outer: &[Datum],
        sink: Sink<'_>,
    ) -> Result<()> {
        let mut sorter = Sorter::new(self.context, keys);
        if let Some(pipeline) = Pipeline::of_ordered(input, keys).filter(|_| outer.is_empty()) {
            Box::pin(self.sort_batches(&pipeline, keys, &mut sorter)).await?;
            return sorter.finish(skip, sink).await;
        }
        let mut take = |row: &mut Row| {
            sorter.push(row, outer)?;
            MORE
        };
        self.run(input, outer, &mut take).await?;
        sorter.finish(skip, sink).await
    }

    pub(super) async fn limit(
        &mut self,
        input: &Plan,
        limit: Option<&Expr>,
        offset: Option<&Expr>,
        outer: &[Datum],
        sink: Sink<'_>,
    ) -> Result<()> {
        let (mut skip, mut left) = limit_of(limit, offset, &self.env(&[], outer))?;
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
            let context = self.context;
            let mut first = First::new(context, keys, count);
            match Pipeline::of_ordered(input, keys).filter(|_| outer.is_empty()) {
                Some(pipeline) => Box::pin(self.first_of_batches(&pipeline, keys, &mut first)).await?,
                None => {
                    let mut take = |row: &mut Row| {
                        first.take(row, outer, context)?;
                        MORE
                    };
                    self.run(input, outer, &mut take).await?;
                }
            }
            let mut all = first.finish();
            all.rows.iter_mut().for_each(|row| row.truncate(width));
            return emit(context, all.rows.into_iter().skip(skip), sink).await;
        }
        let sorts = match sorted {
            // Each operator is measured by itself.
            Plan::Sort(input, keys) if self.context.meter.is_none() => Some((&**input, &**keys)),
            _ => None,
        };
        // A sort makes none of the rows that are passed over.
        let passed_over = if sorts.is_some() { std::mem::take(&mut skip) } else { 0 };
        let mut see = |row: &mut Row| {
            if skip > 0 {
                skip -= 1;
                return MORE;
            }
            left -= 1;
            row.truncate(width);
            let flow = sink(row)?;
            Ok(if left == 0 { ControlFlow::Break(()) } else { flow })
        };
        match sorts {
            Some(sorts) => Box::pin(self.sort(sorts, passed_over as u64, outer, &mut see)).await,
            None => self.run(input, outer, &mut see).await,
        }
    }
}
