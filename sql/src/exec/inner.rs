//! The inner side of what runs once for each row of another plan: a scan that was read often, and many rows each time, is kept.
//!
//! | condition | candidates |
//! |---|---|
//! | a column equals something of the outer row | by hash |
//! | a column lies beyond or between values of the outer row | by binary search in the column's order |
//! | none of that | all |
//!
//! All conditions are asked of the candidates again, so nothing depends on what was recognized. A scan that does not fit into what
//! queries may keep is read from its table as before.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::sort::sorted_places;
use super::{KeptRows, Row};
use crate::error::Result;
use crate::expr::{Call, Comparison, Context, Env, Expr};
use crate::types::Datum;

/// Runs of a scan after which it is decided whether its rows are kept.
const RUNS: u64 = 8;
/// Rows a run, at the least, for that.
const ROWS: u64 = 24;

/// What is known of a scan that runs more than once.
#[derive(Default)]
pub(super) enum Inner<'e> {
    #[default]
    New,
    Counted {
        runs: u64,
        rows: u64,
    },
    Kept(std::rc::Rc<KeptScan<'e>>),
    /// Its rows do not fit.
    Refused,
}

impl Inner<'_> {
    /// Counts a run that has looked at so many rows.
    pub(super) fn count(&mut self, more: u64) {
        match self {
            Self::New => *self = Self::Counted { runs: 1, rows: more },
            Self::Counted { runs, rows } => (*runs, *rows) = (*runs + 1, *rows + more),
            Self::Kept(_) | Self::Refused => {}
        }
    }

    /// Is it worth keeping?
    pub(super) fn is_worth(&self) -> bool {
        matches!(self, Self::Counted { runs, rows } if *runs >= RUNS && *rows >= *runs * ROWS)
    }
}

/// Rows of a scan, by a column that conditions compare with the outer row.
pub(super) struct KeptScan<'e> {
    all: KeptRows<'e>,
    by: By,
}

enum By {
    Nothing,
    Hash { value: Expr, places: HashMap<Datum, Vec<u32>> },
    Order(Bounds, Vec<u32>),
}

/// A column, and values that it lies between, each with whether it is included.
pub(super) struct Bounds {
    pub(super) column: usize,
    low: Option<(Expr, bool)>,
    high: Option<(Expr, bool)>,
}

/// Which rows come into question.
pub(super) enum Candidates<'k> {
    All(usize),
    Some(&'k [u32]),
}

impl Candidates<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::All(count) => *count,
            Self::Some(places) => places.len(),
        }
    }

    pub(super) fn at(&self, number: usize) -> usize {
        match self {
            Self::All(_) => number,
            Self::Some(places) => places[number] as usize,
        }
    }
}

/// A column on one side of a comparison, and the expression on the other, where `is_key` and `is_value` hold of them.
fn compared<'c>(
    condition: &'c Expr,
    is_key: &impl Fn(usize) -> bool,
    is_value: &impl Fn(&Expr) -> bool,
) -> Option<(usize, Comparison, &'c Expr)> {
    let Expr::Call(Call::Compare(comparison), sides) = condition else { return None };
    match &sides[..] {
        [Expr::Column(column), value] if is_key(*column) && is_value(value) => {
            Some((*column, *comparison, value))
        }
        [value, Expr::Column(column)] if is_key(*column) && is_value(value) => {
            Some((*column, comparison.flipped(), value))
        }
        _ => None,
    }
}

impl Bounds {
    /// The bounds of the first column that has any.
    pub(super) fn of(
        conditions: &[Expr],
        is_key: impl Fn(usize) -> bool,
        is_value: impl Fn(&Expr) -> bool,
    ) -> Option<Self> {
        let all = conditions.iter().flat_map(|condition| match condition {
            Expr::And(terms) => terms.as_slice(),
            other => std::slice::from_ref(other),
        });
        let mut found: Option<Self> = None;
        for (column, comparison, value) in all.filter_map(|term| compared(term, &is_key, &is_value)) {
            let included = matches!(comparison, Comparison::LessEqual | Comparison::GreaterEqual);
            let is_low = match comparison {
                Comparison::Greater | Comparison::GreaterEqual => true,
                Comparison::Less | Comparison::LessEqual => false,
                Comparison::Equal | Comparison::NotEqual => continue,
            };
            let bounds = found.get_or_insert(Self { column, low: None, high: None });
            if bounds.column == column {
                let bound = if is_low { &mut bounds.low } else { &mut bounds.high };
                bound.get_or_insert((value.clone(), included));
            }
        }
        found
    }

    /// The places of rows in the order of the column; nulls lie between no bounds.
    pub(super) async fn order(&self, context: &Context, rows: &[Row], shift: usize) -> Result<Vec<u32>> {
        let column = self.column - shift;
        let places: Vec<u32> =
            sorted_places(context, rows.len(), |a, b| rows[a][column].compare_nulls_last(&rows[b][column]))
                .await?;
        let nulls = places.partition_point(|place| !rows[*place as usize][column].is_null());
        Ok(places[..nulls].to_vec())
    }

    /// Those of the places whose rows lie between the bounds of this row.
    pub(super) fn within<'k>(
        &self,
        places: &'k [u32],
        rows: &[Row],
        shift: usize,
        env: &Env<'_>,
    ) -> Result<&'k [u32]> {
        let column = self.column - shift;
        let (mut from, mut to) = (0, places.len());
        let before = |value: &Datum, included: bool| {
            places.partition_point(|place| {
                let order = rows[*place as usize][column].compare(value);
                order == Ordering::Less || included && order == Ordering::Equal
            })
        };
        if let Some((low, included)) = &self.low {
            let value = low.eval(env)?;
            if value.is_null() {
                return Ok(&[]);
            }
            from = before(&value, !included);
        }
        if let Some((high, included)) = &self.high {
            let value = high.eval(env)?;
            if value.is_null() {
                return Ok(&[]);
            }
            to = before(&value, *included);
        }
        Ok(places.get(from..to).unwrap_or(&[]))
    }
}

/// Does an expression look at the outer row?
pub(super) fn is_outer(expr: &Expr) -> bool {
    let mut outer = false;
    expr.walk(&mut |node| outer |= matches!(node, Expr::Outer(_)));
    outer
}

/// Has it the same value for all rows of the scan?
fn is_value(expr: &Expr) -> bool {
    expr.columns().is_empty()
}

impl<'e> KeptScan<'e> {
    pub(super) async fn new(context: &'e Context, all: KeptRows<'e>, conditions: &[Expr]) -> Result<Self> {
        let mut all = all;
        let equal = conditions.iter().find_map(|condition| {
            let (column, comparison, value) = compared(condition, &|_| true, &is_value)?;
            (comparison == Comparison::Equal && is_outer(value)).then(|| (column, value.clone()))
        });
        if let Some((column, value)) = equal {
            let mut places: HashMap<Datum, Vec<u32>> = HashMap::new();
            for (place, row) in all.rows.iter().enumerate() {
                if !row[column].is_null() {
                    all.kept.add(96)?;
                    places.entry(row[column].clone()).or_default().push(place as u32);
                }
                if context.is_due() {
                    context.pause().await?;
                }
            }
            return Ok(Self { all, by: By::Hash { value, places } });
        }
        let by = match Bounds::of(conditions, |_| true, |value| is_value(value) && is_outer(value)) {
            Some(bounds) => {
                all.kept.add(all.rows.len() * size_of::<u32>())?;
                let places = bounds.order(context, &all.rows, 0).await?;
                By::Order(bounds, places)
            }
            None => By::Nothing,
        };
        Ok(Self { all, by })
    }

    pub(super) fn row(&self, place: usize) -> &Row {
        &self.all.rows[place]
    }

    pub(super) fn candidates(&self, env: &Env<'_>) -> Result<Candidates<'_>> {
        Ok(match &self.by {
            By::Nothing => Candidates::All(self.all.rows.len()),
            By::Hash { value, places } => {
                Candidates::Some(places.get(&value.eval(env)?).map_or(&[], Vec::as_slice))
            }
            By::Order(bounds, places) => Candidates::Some(bounds.within(places, &self.all.rows, 0, env)?),
        })
    }
}
