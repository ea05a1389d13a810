//! A value while a statement runs: 24 bytes, its type known from the expression that makes it.
//!
//! Types that differ only in what they accept share a form: the integers, both floats, the kinds of text, both timestamps.
//! The order of two values of one type is PostgreSQL's: NaN above all numbers and equal to itself, text by code points,
//! intervals by their length with months of 30 days. A null has no order; what sorts asks for nulls itself.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use thermocline_row::Interval;

use super::numeric::Numeric;
use super::record::Record;
use super::{Type, json};

/// A value or null.
#[derive(Clone, Debug)]
pub enum Datum {
    /// No value.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer of any width.
    Int(i64),
    /// A float of either width.
    Float(f64),
    /// A `numeric`.
    Numeric(Numeric),
    /// A text or varchar.
    Text(Arc<str>),
    /// A `char(n)` with its blanks, which count for nothing in comparisons.
    Char(Arc<str>),
    /// A `jsonb`, in the form that PostgreSQL prints; compared by its own order.
    Jsonb(Arc<str>),
    /// A `bytea`.
    Bytes(Arc<[u8]>),
    /// Days since 1970-01-01.
    Date(i32),
    /// Microseconds since midnight.
    Time(i64),
    /// Microseconds since 1970-01-01 00:00, in UTC for `timestamptz`.
    Timestamp(i64),
    /// Months, days, microseconds.
    Interval(Interval),
    /// 16 bytes.
    Uuid([u8; 16]),
    /// A row value.
    Record(Arc<Record>),
    /// An array of one dimension, whose elements count from 1.
    Array(Arc<[Datum]>),
}

const _: () = assert!(size_of::<Datum>() == 24);

impl Datum {
    /// Is it null?
    #[must_use]
    #[inline]
    pub fn is_null(&self) -> bool {
        matches!(self, Datum::Null)
    }

    pub(crate) fn text(text: impl AsRef<str>) -> Self {
        Datum::Text(Arc::from(text.as_ref()))
    }

    /// The text of a value that is stored as one.
    pub(crate) fn as_text(&self) -> Option<&Arc<str>> {
        match self {
            Datum::Text(text) | Datum::Char(text) | Datum::Jsonb(text) => Some(text),
            _ => None,
        }
    }

    /// A text in the form that a type's values have; arrays and other values stay as they are.
    pub(crate) fn in_form_of(self, ty: Type) -> Self {
        match (self, ty) {
            (Datum::Text(text) | Datum::Jsonb(text), Type::BpChar) => Datum::Char(text),
            (Datum::Text(text) | Datum::Char(text), Type::Jsonb) => Datum::Jsonb(text),
            (value @ (Datum::Char(_) | Datum::Jsonb(_)), Type::BpChar | Type::Jsonb) => value,
            (Datum::Char(text) | Datum::Jsonb(text), _) => Datum::Text(text),
            (Datum::Array(all), ty)
                if matches!(ty, Type::BpCharArray | Type::JsonbArray)
                    && all.iter().any(|item| matches!(item, Datum::Text(_))) =>
            {
                let element = ty.element().expect("it is one of arrays");
                Datum::Array(all.iter().map(|item| item.clone().in_form_of(element)).collect())
            }
            (value, _) => value,
        }
    }

    /// The order of two values of one type, neither of them null.
    #[inline]
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Datum::Int(a), Datum::Int(b)) => a.cmp(b),
            (Datum::Text(a), Datum::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
            _ => self.compare_rest(other),
        }
    }

    fn compare_rest(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Datum::Bool(a), Datum::Bool(b)) => a.cmp(b),
            (Datum::Float(a), Datum::Float(b)) => compare_floats(*a, *b),
            (Datum::Numeric(a), Datum::Numeric(b)) => a.compare(b),
            (Datum::Bytes(a), Datum::Bytes(b)) => a.cmp(b),
            (Datum::Date(a), Datum::Date(b)) => a.cmp(b),
            (Datum::Time(a), Datum::Time(b)) | (Datum::Timestamp(a), Datum::Timestamp(b)) => a.cmp(b),
            (Datum::Interval(a), Datum::Interval(b)) => span(*a).cmp(&span(*b)),
            (Datum::Uuid(a), Datum::Uuid(b)) => a.cmp(b),
            (Datum::Jsonb(a), Datum::Jsonb(b)) => json::order(a, b),
            (Datum::Record(a), Datum::Record(b)) => compare_all(a, b),
            (Datum::Array(a), Datum::Array(b)) => compare_all(a, b),
            (a, b) => match (a.as_text(), b.as_text()) {
                (Some(a), Some(b)) => without_blanks(a).as_bytes().cmp(without_blanks(b).as_bytes()),
                _ => unreachable!("values of two types are compared: {a:?}, {b:?}"),
            },
        }
    }

    /// The same with nulls equal to each other and greater than everything.
    pub(crate) fn compare_nulls_last(&self, other: &Self) -> Ordering {
        match (self.is_null(), other.is_null()) {
            (false, false) => self.compare(other),
            (a, b) => a.cmp(&b),
        }
    }
}

/// The text of a `char(n)` without the blanks at its end.
pub(crate) fn without_blanks(text: &str) -> &str {
    text.trim_end_matches(' ')
}

fn compare_all(a: &[Datum], b: &[Datum]) -> Ordering {
    let mut pairs = a.iter().zip(b).map(|(a, b)| a.compare_nulls_last(b));
    pairs.find(|order| order.is_ne()).unwrap_or_else(|| a.len().cmp(&b.len()))
}

/// Microseconds with months of 30 days and days of 24 hours.
pub(crate) fn span(interval: Interval) -> i128 {
    (i128::from(interval.months) * 30 + i128::from(interval.days)) * 86_400_000_000
        + i128::from(interval.micros)
}

pub(crate) fn compare_floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Equal numbers have one hash, whatever their scales.
pub(super) fn hash_numeric<H: Hasher>(value: &Numeric, state: &mut H) {
    match value.canonical() {
        Numeric::NaN => state.write_u8(1),
        Numeric::Infinity(positive) => positive.hash(state),
        Numeric::Small(mantissa, scale) => {
            state.write_i64(mantissa);
            // Zero has one form.
            state.write_u16(if mantissa == 0 { 0 } else { scale });
        }
        Numeric::Big(big) => big.hash(state),
    }
}

/// For grouping and distinct: null equals null.
impl PartialEq for Datum {
    fn eq(&self, other: &Self) -> bool {
        self.compare_nulls_last(other) == Ordering::Equal
    }
}

impl Eq for Datum {}

impl Hash for Datum {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Datum::Null => state.write_u8(0),
            Datum::Bool(value) => value.hash(state),
            Datum::Int(value) | Datum::Time(value) | Datum::Timestamp(value) => state.write_i64(*value),
            Datum::Float(value) => {
                let value = if *value == 0.0 { 0.0 } else { *value };
                state.write_u64(if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() });
            }
            Datum::Numeric(value) => hash_numeric(value, state),
            Datum::Text(value) => state.write(value.as_bytes()),
            Datum::Char(value) => state.write(without_blanks(value).as_bytes()),
            Datum::Jsonb(value) => json::hash(value, state),
            Datum::Bytes(value) => state.write(value),
            Datum::Date(value) => state.write_i32(*value),
            Datum::Interval(value) => span(*value).hash(state),
            Datum::Uuid(value) => state.write(value),
            Datum::Record(values) => values.iter().for_each(|value| value.hash(state)),
            Datum::Array(values) => values.iter().for_each(|value| value.hash(state)),
        }
    }
}
