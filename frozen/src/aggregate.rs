//! Aggregates over rows of blocks and encoded rows: count, sum, average, least and greatest, by groups of equal values.
//!
//! ```text
//! block, group, selected bits ──► push_group ─┐
//! encoded row ──────────────────► push_row ───┴─► a line of accumulators a group of rows ──finish──► Groups
//! ```
//!
//! Rules:
//! - Sums are exact: 128 bits, and [`Error::Sum`] beyond the 38 digits of a decimal. An average is the exact sum divided once.
//! - Nulls are one group; of measured values they are left out. As in SQL, sum, average and extremes of no value are null.
//! - Values that are equal are one group, whatever their bits: zeros of either sign, all NaN, intervals of one length.
//!
//! How blocks are read: `aggregate_block` of the module above.

use std::collections::HashMap;

use thermocline_row::{Decimal, Layout, Type, Value};

use super::error::Error;
use super::physical::{Field, Physical, fields, interval, interval_micros, turned32, turned64};
use super::rows::{no_column, value_in, variable};

/// A value to be computed of a column, given by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Measure {
    /// Rows.
    Rows,
    /// Values that are not null.
    Count(usize),
    /// The sum, of integers and decimals.
    Sum(usize),
    /// The average, of integers and decimals.
    Average(usize),
    /// The least value.
    Min(usize),
    /// The greatest value.
    Max(usize),
}

/// Digits after the point that an average has at least, if they are to be had.
const AVERAGE_SCALE: u8 = 16;

/// A column that is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) index: usize,
    pub(crate) field: Field,
    pub(crate) sums: bool,
    pub(crate) extremes: bool,
}

/// The running values of a measured column in a group of rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accumulator {
    pub(crate) values: u64,
    pub(crate) sum: i128,
    pub(crate) overflows: bool,
    pub(crate) min: Option<Value>,
    pub(crate) max: Option<Value>,
}

/// See the module.
#[derive(Debug)]
pub struct Aggregator {
    pub(crate) keys: Vec<(usize, Field)>,
    pub(crate) measured: Vec<Measured>,
    measures: Vec<Measure>,
    /// Groups of rows by the bytes of their keys.
    by_key: HashMap<Box<[u8]>, u32>,
    key_values: Vec<Vec<Value>>,
    pub(crate) rows: Vec<u64>,
    /// `measured.len()` for each group of rows.
    accumulators: Vec<Accumulator>,
    memory: usize,
    scratch: Vec<u8>,
    pub(crate) block: super::aggregate_block::Scratch,
}

/// A group of rows with equal values, and what was computed of it.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupRow {
    /// The values that its rows have in common, in the order of the columns that were grouped by.
    pub key: Vec<Value>,
    /// The values that were computed, in the order in which they were asked for: counts are bigints, sums and
    /// averages decimals.
    pub values: Vec<Value>,
}

impl Accumulator {
    pub(crate) fn add(&mut self, values: u64, sum: i128) {
        self.values += values;
        match self.sum.checked_add(sum) {
            Some(sum) => self.sum = sum,
            None => self.overflows = true,
        }
    }

    pub(crate) fn meet(&mut self, value: Value) {
        let lower = |a: &Value, b: &Value| a.compare(b).is_some_and(std::cmp::Ordering::is_lt);
        if self.min.as_ref().is_none_or(|min| lower(&value, min)) {
            self.min = Some(value.clone());
        }
        if self.max.as_ref().is_none_or(|max| lower(max, &value)) {
            self.max = Some(value);
        }
    }

    fn merge(&mut self, other: Self) {
        self.add(other.values, other.sum);
        self.overflows |= other.overflows;
        other.min.into_iter().chain(other.max).for_each(|value| self.meet(value));
    }
}

fn scale_of(ty: Type) -> u8 {
    if let Type::Decimal { scale, .. } = ty { scale } else { 0 }
}

impl Aggregator {
    /// Measures of rows of a layout, by groups of equal values of these columns. Without columns all rows are one group, which is there
    /// even if there are no rows.
    ///
    /// # Errors
    /// A column that the layout does not have, a sum of what has none.
    pub fn new(layout: &Layout, group_by: &[usize], measures: &[Measure]) -> Result<Self, Error> {
        let fields = fields(layout);
        let field = |index: usize| fields.get(index).copied().ok_or_else(|| no_column(layout, index));
        let keys = group_by.iter().map(|index| Ok((*index, field(*index)?))).collect::<Result<_, Error>>()?;
        let mut measured: Vec<Measured> = Vec::new();
        for measure in measures {
            let Some(index) = measure.column() else { continue };
            let field = field(index)?;
            let sums = matches!(measure, Measure::Sum(_) | Measure::Average(_));
            if sums && !field.is_summed() {
                let column = layout.columns()[index].name.as_str().into();
                let reason = format!("{} has no sum, only integers and decimals have", field.ty);
                return Err(Error::Predicate { column, reason: reason.into() });
            }
            let extremes = matches!(measure, Measure::Min(_) | Measure::Max(_));
            match measured.iter_mut().find(|measured| measured.index == index) {
                Some(known) => (known.sums, known.extremes) = (known.sums | sums, known.extremes | extremes),
                None => measured.push(Measured { index, field, sums, extremes }),
            }
        }
        let mut aggregator = Self {
            keys,
            measured,
            measures: measures.to_vec(),
            by_key: HashMap::new(),
            key_values: Vec::new(),
            rows: Vec::new(),
            accumulators: Vec::new(),
            memory: 0,
            scratch: Vec::new(),
            block: Default::default(),
        };
        if group_by.is_empty() {
            aggregator.group_of(&[], Vec::new);
        }
        Ok(aggregator)
    }

    /// Bytes of memory that it takes, about.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// The number of a group of rows by the bytes of its key; `values` are asked for if it is new.
    pub(crate) fn group_of(&mut self, key: &[u8], values: impl FnOnce() -> Vec<Value>) -> usize {
        if let Some(group) = self.by_key.get(key) {
            return *group as usize;
        }
        let group = self.rows.len();
        self.by_key.insert(key.into(), u32::try_from(group).expect("memory ends before groups of rows do"));
        self.key_values.push(values());
        self.rows.push(0);
        self.accumulators.resize(self.accumulators.len() + self.measured.len(), Accumulator::default());
        self.memory += 2 * key.len()
            + 64
            + self.keys.len() * 2 * size_of::<Value>()
            + self.measured.len() * size_of::<Accumulator>();
        group
    }

    pub(crate) fn accumulator(&mut self, group: usize, measured: usize) -> &mut Accumulator {
        &mut self.accumulators[group * self.measured.len() + measured]
    }

    /// Takes an encoded row of the layout.
    pub fn push_row(&mut self, row: &[u8]) {
        let mut key = std::mem::take(&mut self.scratch);
        key.clear();
        for (_, field) in &self.keys {
            key_of_row(field, row, &mut key);
        }
        let keys = self.keys.clone();
        let group = self.group_of(&key, || keys.iter().map(|(_, field)| value_in(field, row)).collect());
        self.scratch = key;
        self.rows[group] += 1;
        for number in 0..self.measured.len() {
            let Measured { field, sums, extremes, .. } = self.measured[number];
            if field.place.is_null(row) {
                continue;
            }
            let accumulator = self.accumulator(group, number);
            let sum = match field.physical {
                _ if !sums => 0,
                Physical::Wide => field.wide(row),
                _ => field.integer(row).into(),
            };
            accumulator.add(1, sum);
            if extremes {
                accumulator.meet(value_in(&field, row));
            }
        }
    }

    /// Takes over what another aggregator of the same columns and measures has come to.
    pub fn merge(&mut self, other: Self) {
        let width = self.measured.len();
        let mut keys: Vec<Option<Box<[u8]>>> = vec![None; other.rows.len()];
        for (key, group) in other.by_key {
            keys[group as usize] = Some(key);
        }
        let mut accumulators = other.accumulators.into_iter();
        for ((key, values), rows) in keys.into_iter().zip(other.key_values).zip(other.rows) {
            let group = self.group_of(&key.expect("each group of rows has a key"), || values);
            self.rows[group] += rows;
            for (number, accumulator) in accumulators.by_ref().take(width).enumerate() {
                self.accumulator(group, number).merge(accumulator);
            }
        }
    }

    /// The results, a line a group of rows, in no particular order.
    ///
    /// # Errors
    /// A sum that a decimal does not hold.
    pub fn finish(self, layout: &Layout) -> Result<Vec<GroupRow>, Error> {
        let place = |column: usize| self.measured.iter().position(|measured| measured.index == column);
        let mut lines = Vec::with_capacity(self.rows.len());
        for (group, key) in self.key_values.into_iter().enumerate() {
            let of = |column: usize| {
                &self.accumulators[group * self.measured.len() + place(column).expect("it was measured")]
            };
            let value = |measure: &Measure| {
                let (Some(column), rows) = (measure.column(), self.rows[group]) else {
                    return Ok(Value::Int8(self.rows[group] as i64));
                };
                let (known, scale) = (of(column), scale_of(layout.columns()[column].ty));
                let too_great = || Error::Sum { column: layout.columns()[column].name.as_str().into() };
                let sum = || {
                    let sum = Decimal::new(known.sum, scale).ok();
                    sum.filter(|_| !known.overflows).ok_or_else(too_great)
                };
                Ok(match measure {
                    Measure::Rows => Value::Int8(rows as i64),
                    Measure::Count(_) => Value::Int8(known.values as i64),
                    Measure::Min(_) => known.min.clone().unwrap_or(Value::Null),
                    Measure::Max(_) => known.max.clone().unwrap_or(Value::Null),
                    Measure::Sum(_) | Measure::Average(_) if known.values == 0 => Value::Null,
                    Measure::Sum(_) => Value::Decimal(sum()?),
                    Measure::Average(_) => {
                        sum()?;
                        average(known.sum, known.values, scale).ok_or_else(too_great)?
                    }
                })
            };
            let values = self.measures.iter().map(value).collect::<Result<_, Error>>()?;
            lines.push(GroupRow { key, values });
        }
        Ok(lines)
    }
}

impl Measure {
    /// The column that it is of.
    fn column(&self) -> Option<usize> {
        match self {
            Measure::Rows => None,
            Measure::Count(column)
            | Measure::Sum(column)
            | Measure::Average(column)
            | Measure::Min(column)
            | Measure::Max(column) => Some(*column),
        }
    }
}

/// A sum of so many values, divided: rounded half away from zero at the last digit that there is room for.
fn average(sum: i128, values: u64, scale: u8) -> Option<Value> {
    let values = i128::from(values);
    for digits in (0..=AVERAGE_SCALE.saturating_sub(scale)).rev() {
        let Some(raised) = sum.checked_mul(10i128.pow(digits.into())) else { continue };
        let (quotient, rest) = (raised / values, raised % values);
        let up = if 2 * rest.abs() >= values { raised.signum() } else { 0 };
        if let Ok(decimal) = Decimal::new(quotient + up, scale + digits) {
            return Some(Value::Decimal(decimal));
        }
    }
    None
}

/// Null, as part of a key.
pub(crate) fn null_key(key: &mut Vec<u8>) {
    key.push(0);
}

/// An integer or the integer of a float, as part of a key: equal values have equal bytes.
pub(crate) fn integer_key(field: &Field, integer: i64, key: &mut Vec<u8>) {
    let integer = match field.ty {
        Type::Float4 => {
            let v = f32::from_bits(turned32(integer as i32) as u32);
            let v = if v.is_nan() { f32::NAN } else { v + 0.0 };
            i64::from(turned32(v.to_bits() as i32))
        }
        Type::Float8 => {
            let v = f64::from_bits(turned64(integer) as u64);
            let v = if v.is_nan() { f64::NAN } else { v + 0.0 };
            turned64(v.to_bits() as i64)
        }
        _ => integer,
    };
    key.push(1);
    key.extend(integer.to_le_bytes());
}

/// 128 bits, as part of a key.
pub(crate) fn wide_key(field: &Field, wide: i128, key: &mut Vec<u8>) {
    let wide = if field.ty == Type::Interval { interval_micros(interval(wide)) } else { wide };
    key.push(1);
    key.extend(wide.to_le_bytes());
}

/// A string, as part of a key.
pub(crate) fn string_key((a, b): (&[u8], &[u8]), key: &mut Vec<u8>) {
    key.push(1);
    key.extend(((a.len() + b.len()) as u32).to_le_bytes());
    key.extend_from_slice(a);
    key.extend_from_slice(b);
}

fn key_of_row(field: &Field, row: &[u8], key: &mut Vec<u8>) {
    if field.place.is_null(row) {
        return null_key(key);
    }
    match field.physical {
        Physical::Int(_) | Physical::Float(_) => integer_key(field, field.integer(row), key),
        Physical::Wide => wide_key(field, field.wide(row), key),
        Physical::Bytes => string_key((variable(field, row), &[]), key),
    }
}

#[cfg(test)]
#[path = "aggregate_tests.rs"]
mod tests;
