//! Conditions on columns, and what becomes of them in a block: ranges of integers.
//!
//! A condition is turned into ranges of what the column stores (values or codes) once a block; a group then compares integers. For
//! that each bound is searched in the order of the column: among the integers that its type has, or in its dictionary. So a decimal
//! of another scale, a float and a string need no rules of their own here: the one rule is [`Value::compare`]. Columns that stand
//! as 16 bytes or as bytes are compared value by value; their zones are narrowed by order keys.
//!
//! A function of a column is asked once a dictionary value, and what it says is kept as a bit a code.
//!
//! SQL's three values: a comparison with null holds of nothing. NaN equals NaN and is greater than every number; in a block it
//! stands at both ends of the order of `total_cmp`, so floats have ranges of NaN of their own.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use thermocline_row::{Time, Type, Value};

use super::block::{Block, BlockColumn};
use super::dictionary::{self, Strings, partition};
use super::error::Error;
use super::format::Stored;
use super::physical::{Field, Physical, bytes_key, turned32, turned64};

/// A condition on a value.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Condition {
    /// It equals this.
    Equal(Value),
    /// It is less than this.
    Less(Value),
    /// It is at most this.
    LessOrEqual(Value),
    /// It is greater than this.
    Greater(Value),
    /// It is at least this.
    GreaterOrEqual(Value),
    /// It is at least the first and at most the second.
    Between(Value, Value),
    /// It equals one of these.
    In(Vec<Value>),
    /// It begins with these bytes; of text and bytea only.
    Prefix(Vec<u8>),
    /// It is null.
    IsNull,
    /// It is not null.
    IsNotNull,
    /// This function says so, of a null as well.
    Holds(Function),
}

/// A function of one value that says yes or no. It says the same of the same value, in any order and however often it is asked.
#[derive(Clone)]
pub struct Function(Arc<dyn Fn(&Value) -> bool + Send + Sync>);

impl Function {
    /// A function that is asked of nulls, too.
    pub fn new(function: impl Fn(&Value) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(function))
    }

    pub(crate) fn holds(&self, value: &Value) -> bool {
        (self.0)(value)
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Function")
    }
}

/// Functions are equal if they are one and the same.
impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A condition on a column.
#[derive(Clone, Debug, PartialEq)]
pub struct Predicate {
    /// The column's number.
    pub column: usize,
    /// The condition on its value.
    pub condition: Condition,
}

/// Both ends are included.
pub(crate) type Range = (i64, i64);

/// The way in which a group finds the rows of which a predicate holds.
#[derive(Debug)]
pub(crate) enum Test {
    /// The stored integer, of a value that is not null, is in one of these.
    Ranges(Vec<Range>),
    /// The code, of a value that is not null, has a bit here.
    Codes(Vec<u64>),
    /// The value is asked.
    Values(Condition),
    Null,
    NotNull,
}

/// A predicate, made ready for one block.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) column: usize,
    pub(crate) test: Test,
    /// Order keys outside of which no value holds.
    pub(crate) keys: Vec<Range>,
    /// True if it holds of nulls, beside what the test says of values.
    pub(crate) nulls: bool,
}

impl Condition {
    fn values(&self) -> &[Value] {
        match self {
            Condition::Equal(v)
            | Condition::Less(v)
            | Condition::LessOrEqual(v)
            | Condition::Greater(v)
            | Condition::GreaterOrEqual(v) => std::slice::from_ref(v),
            Condition::In(values) => values,
            _ => &[],
        }
    }

    /// True if it holds of nulls.
    pub(crate) fn holds_null(&self) -> bool {
        match self {
            Condition::IsNull => true,
            Condition::Holds(function) => function.holds(&Value::Null),
            _ => false,
        }
    }

    /// True if it holds of a value that is not null.
    pub(crate) fn holds(&self, value: &Value) -> bool {
        let is = |other: &Value, fits: fn(Ordering) -> bool| value.compare(other).is_some_and(fits);
        match self {
            Condition::Equal(v) => is(v, Ordering::is_eq),
            Condition::Less(v) => is(v, Ordering::is_lt),
            Condition::LessOrEqual(v) => is(v, Ordering::is_le),
            Condition::Greater(v) => is(v, Ordering::is_gt),
            Condition::GreaterOrEqual(v) => is(v, Ordering::is_ge),
            Condition::Between(low, high) => is(low, Ordering::is_ge) && is(high, Ordering::is_le),
            Condition::In(values) => values.iter().any(|v| is(v, Ordering::is_eq)),
            Condition::Prefix(prefix) => match value {
                Value::Text(text) => text.as_bytes().starts_with(prefix),
                Value::Bytes(bytes) => bytes.starts_with(prefix),
                _ => false,
            },
            Condition::IsNull => false,
            Condition::IsNotNull => true,
            Condition::Holds(function) => function.holds(value),
        }
    }

    /// The condition as the column has its values: a char without blanks at its end.
    pub(crate) fn fitted(&self, field: &Field) -> Self {
        let fit = |v: &Value| match (v, field.ty) {
            (Value::Text(text), Type::Char(_)) => Value::Text(text.trim_end_matches(' ').to_owned()),
            _ => v.clone(),
        };
        match self {
            Condition::Equal(v) => Condition::Equal(fit(v)),
            Condition::Less(v) => Condition::Less(fit(v)),
            Condition::LessOrEqual(v) => Condition::LessOrEqual(fit(v)),
            Condition::Greater(v) => Condition::Greater(fit(v)),
            Condition::GreaterOrEqual(v) => Condition::GreaterOrEqual(fit(v)),
            Condition::Between(a, b) => Condition::Between(fit(a), fit(b)),
            Condition::In(values) => Condition::In(values.iter().map(fit).collect()),
            other => other.clone(),
        }
    }

    /// The ranges `from..to` of places in an order; `below` and `up_to` give how many places a value leaves below it.
    fn places<T: Copy + Ord>(
        &self,
        first: T,
        end: T,
        below: impl Fn(&Value) -> T,
        up_to: impl Fn(&Value) -> T,
    ) -> Vec<(T, T)> {
        let null = |v: &&Value| !v.is_null();
        let one = |v: &Value, from: Option<T>, to: Option<T>| {
            if v.is_null() { Vec::new() } else { vec![(from.unwrap_or(first), to.unwrap_or(end))] }
        };
        match self {
            Condition::Equal(v) => one(v, Some(below(v)), Some(up_to(v))),
            Condition::Less(v) => one(v, None, Some(below(v))),
            Condition::LessOrEqual(v) => one(v, None, Some(up_to(v))),
            Condition::Greater(v) => one(v, Some(up_to(v)), None),
            Condition::GreaterOrEqual(v) => one(v, Some(below(v)), None),
            Condition::Between(low, high) if low.is_null() || high.is_null() => Vec::new(),
            Condition::Between(low, high) => vec![(below(low), up_to(high))],
            Condition::In(values) => values.iter().filter(null).map(|v| (below(v), up_to(v))).collect(),
            Condition::Prefix(_) | Condition::IsNull => Vec::new(),
            // What a function says is not known from the ends of a range.
            Condition::IsNotNull | Condition::Holds(_) => vec![(first, end)],
        }
    }
}

/// Can a column be asked this?
pub(crate) fn check(field: &Field, name: &str, condition: &Condition) -> Result<(), Error> {
    let ty = field.ty;
    let flaw = |what: &str| Error::Predicate {
        column: name.into(),
        reason: format!("{ty} compared with {what}").into(),
    };
    let fits = |v: &Value| {
        matches!(
            (ty, v),
            (_, Value::Null)
                | (Type::Boolean, Value::Boolean(_))
                | (Type::Int2, Value::Int2(_))
                | (Type::Int4, Value::Int4(_))
                | (Type::Int8, Value::Int8(_))
                | (Type::Float4, Value::Float4(_))
                | (Type::Float8, Value::Float8(_))
                | (Type::Decimal { .. }, Value::Decimal(_))
                | (Type::Text | Type::Varchar(_) | Type::Char(_), Value::Text(_))
                | (Type::Bytes, Value::Bytes(_))
                | (Type::Date, Value::Date(_))
                | (Type::Time, Value::Time(_))
                | (Type::Timestamp, Value::Timestamp(_))
                | (Type::TimestampTz, Value::TimestampTz(_))
                | (Type::Interval, Value::Interval(_))
                | (Type::Uuid, Value::Uuid(_))
        )
    };
    match condition {
        Condition::Between(a, b) if !fits(a) || !fits(b) => {
            Err(flaw(if fits(a) { b.kind() } else { a.kind() }))
        }
        Condition::Prefix(_) if field.physical != Physical::Bytes => Err(flaw("a prefix")),
        _ => match condition.values().iter().find(|v| !fits(v)) {
            Some(v) => Err(flaw(v.kind())),
            None => Ok(()),
        },
    }
}

/// The least and the greatest integer that a value of the type has; of floats, of a number.
fn domain(ty: Type) -> Range {
    match ty {
        Type::Boolean => (0, 1),
        Type::Int2 => (i16::MIN.into(), i16::MAX.into()),
        Type::Int4 | Type::Date => (i32::MIN.into(), i32::MAX.into()),
        Type::Time => (0, Time::MAX.micros()),
        Type::Float4 => {
            let of = |v: f32| i64::from(turned32(v.to_bits() as i32));
            (of(f32::NEG_INFINITY), of(f32::INFINITY))
        }
        Type::Float8 => {
            let of = |v: f64| turned64(v.to_bits() as i64);
            (of(f64::NEG_INFINITY), of(f64::INFINITY))
        }
        _ => (i64::MIN, i64::MAX),
    }
}

/// The first integer from `first` on of which `before` does not hold; it holds of none behind that.
fn search(first: i128, end: i128, before: impl Fn(i64) -> bool) -> i128 {
    let (mut low, mut high) = (first, end);
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle as i64) { low = middle + 1 } else { high = middle }
    }
    low
}

/// The integers of which the condition holds; of a function, all.
pub(crate) fn integer_ranges(field: &Field, condition: &Condition) -> Vec<Range> {
    let (first, last) = domain(field.ty);
    let (from, end) = (i128::from(first), i128::from(last) + 1);
    let below = |v: &Value| search(from, end, |x| field.integer_value(x).compare(v) == Some(Ordering::Less));
    let up_to =
        |v: &Value| search(from, end, |x| field.integer_value(x).compare(v) != Some(Ordering::Greater));
    let places = condition.places(from, end, below, up_to);
    let mut ranges: Vec<Range> =
        places.into_iter().filter(|(a, b)| a < b).map(|(a, b)| (a as i64, (b - 1) as i64)).collect();
    let nan = match field.ty {
        Type::Float4 => Value::Float4(f32::NAN),
        Type::Float8 => Value::Float8(f64::NAN),
        _ => return ranges,
    };
    if condition.holds(&nan) {
        ranges.extend([(i64::MIN, first - 1), (last + 1, i64::MAX)]);
    }
    ranges
}

/// Places `from..to` as ranges of codes.
fn codes(places: Vec<(usize, usize)>) -> Vec<Range> {
    places.into_iter().filter(|(from, to)| from < to).map(|(from, to)| (from as i64, to as i64 - 1)).collect()
}

/// Ranges of codes that are more than this are looked up as bits.
const FEW_RANGES: usize = 4;

/// The codes of a column's dictionary of which a test of its values holds.
fn codes_of(block: &Block<'_>, column: &BlockColumn, condition: &Condition) -> Test {
    let mut bits = vec![0; column.count.div_ceil(64)];
    let mut set = |code: usize| bits[code / 64] |= 1 << (code % 64);
    if matches!(condition, Condition::Holds(_)) {
        let value = |code| dictionary_value(block, column, code);
        (0..column.count).filter(|code| condition.holds(&value(*code))).for_each(set);
    } else {
        let ranges = code_ranges(block, column, condition);
        if ranges.len() <= FEW_RANGES {
            return Test::Ranges(ranges);
        }
        ranges.iter().flat_map(|(from, to)| *from as usize..=*to as usize).for_each(&mut set);
    }
    Test::Codes(bits)
}

/// The value of a code.
pub(crate) fn dictionary_value(block: &Block<'_>, column: &BlockColumn, code: usize) -> Value {
    let (bytes, at, field) = (block.bytes, column.dictionary_at, &column.field);
    match field.physical {
        Physical::Int(_) | Physical::Float(_) => field.integer_value(dictionary::integer(bytes, at, code)),
        Physical::Wide => field.wide_value(dictionary::wide(bytes, at, code)),
        Physical::Bytes => {
            let (a, b) = Strings { bytes, at, count: column.count }.parts(code);
            field.bytes_value(&[a, b].concat())
        }
    }
}

/// From the first to the last bit.
fn span_of(bits: &[u64]) -> Option<Range> {
    let first = bits.iter().position(|word| *word != 0)?;
    let last = bits.iter().rposition(|word| *word != 0)?;
    let from = 64 * first + bits[first].trailing_zeros() as usize;
    let to = 64 * last + 63 - bits[last].leading_zeros() as usize;
    Some((from as i64, to as i64))
}

fn code_ranges(block: &Block<'_>, column: &BlockColumn, condition: &Condition) -> Vec<Range> {
    let (bytes, at, count, field) = (block.bytes, column.dictionary_at, column.count, &column.field);
    match field.physical {
        Physical::Int(_) | Physical::Float(_) => {
            let code = |before: &dyn Fn(i64) -> bool| {
                partition(count, |c| before(dictionary::integer(bytes, at, c)))
            };
            let ranges = integer_ranges(field, condition).into_iter();
            codes(ranges.map(|(low, high)| (code(&|v| v < low), code(&|v| v <= high))).collect())
        }
        Physical::Wide => {
            let value = |code: usize| field.wide_value(dictionary::wide(bytes, at, code));
            if field.ty == Type::Interval {
                // Equal intervals may have different bits: each entry is asked.
                return codes(
                    (0..count).filter(|c| condition.holds(&value(*c))).map(|c| (c, c + 1)).collect(),
                );
            }
            let below = |v: &Value| partition(count, |c| value(c).compare(v) == Some(Ordering::Less));
            let up_to = |v: &Value| partition(count, |c| value(c).compare(v) != Some(Ordering::Greater));
            codes(condition.places(0, count, below, up_to))
        }
        Physical::Bytes => {
            let strings = Strings { bytes, at, count };
            if let Condition::Prefix(prefix) = condition {
                return codes(vec![(strings.below(prefix), strings.up_to_prefix(prefix))]);
            }
            codes(condition.places(0, count, |v| strings.below(bytes_of(v)), |v| strings.up_to(bytes_of(v))))
        }
    }
}

/// The bytes of a text or bytea.
pub(crate) fn bytes_of(value: &Value) -> &[u8] {
    match value {
        Value::Text(text) => text.as_bytes(),
        Value::Bytes(bytes) => bytes,
        _ => &[],
    }
}

/// Order keys that the values of which the condition holds may have.
fn key_ranges(field: &Field, condition: &Condition) -> Vec<Range> {
    let key = |v: &Value| match (field.physical, v) {
        (Physical::Bytes, v) => bytes_key(bytes_of(v)),
        (_, Value::Decimal(v)) => match (v.rescale(scale_of(field.ty)), v.is_negative()) {
            (Ok(v), _) => field.wide_key(v.mantissa()),
            (Err(_), true) => i64::MIN,
            (Err(_), false) => i64::MAX,
        },
        (_, Value::Uuid(v)) => field.wide_key((u128::from_be_bytes(v.0) ^ 1 << 127) as i128),
        (_, Value::Interval(v)) => {
            let bits = u128::from(v.months as u32)
                | u128::from(v.days as u32) << 32
                | u128::from(v.micros as u64) << 64;
            field.wide_key(bits as i128)
        }
        _ => i64::MIN,
    };
    // A decimal of another scale is rounded, which moves its key by one at most.
    let (lower, upper) = (|v: &Value| key(v).saturating_sub(1), |v: &Value| key(v).saturating_add(1));
    if let Condition::Prefix(prefix) = condition {
        let mut last = prefix.clone();
        last.resize(prefix.len().max(8), u8::MAX);
        return vec![(bytes_key(prefix), bytes_key(&last))];
    }
    // Values that differ may share a key, so an end that is not included has its key included.
    match condition {
        Condition::Less(v) => Condition::LessOrEqual(v.clone()).places(i64::MIN, i64::MAX, lower, upper),
        Condition::Greater(v) => {
            Condition::GreaterOrEqual(v.clone()).places(i64::MIN, i64::MAX, lower, upper)
        }
        _ => condition.places(i64::MIN, i64::MAX, lower, upper),
    }
}

fn scale_of(ty: Type) -> u8 {
    if let Type::Decimal { scale, .. } = ty { scale } else { 0 }
}

impl Predicate {
    /// The predicate, made ready for a block.
    pub(crate) fn ready(&self, block: &Block<'_>) -> Result<Ready, Error> {
        let Some(column) = block.meta.columns.get(self.column) else {
            let reason = format!("the block has {} columns", block.meta.columns.len());
            return Err(Error::Predicate {
                column: format!("number {}", self.column).into(),
                reason: reason.into(),
            });
        };
        check(&column.field, &block.meta.names[self.column], &self.condition)?;
        let (condition, field) = (self.condition.fitted(&column.field), &column.field);
        let is_function = matches!(condition, Condition::Holds(_));
        let nulls = condition.holds_null();
        let test = match (column.stored, field.physical) {
            _ if condition == Condition::IsNull => Test::Null,
            _ if condition == Condition::IsNotNull => Test::NotNull,
            (Stored::Codes, _) => codes_of(block, column, &condition),
            (Stored::Integers, Physical::Wide) if !is_function => {
                Test::Ranges(wide_ranges(field, &condition))
            }
            (Stored::Integers, _) if !is_function => Test::Ranges(integer_ranges(field, &condition)),
            _ => Test::Values(condition),
        };
        let keys = match &test {
            Test::Ranges(ranges) => ranges.clone(),
            Test::Codes(bits) => span_of(bits).into_iter().collect(),
            Test::Values(condition) => key_ranges(field, condition),
            Test::Null | Test::NotNull => Vec::new(),
        };
        Ok(Ready { column: self.column, test, keys, nulls })
    }
}

/// The integers of decimals of many digits that all fit 64 bits.
fn wide_ranges(field: &Field, condition: &Condition) -> Vec<Range> {
    let (from, end) = (i128::from(i64::MIN), i128::from(i64::MAX) + 1);
    let value = |x: i64| field.wide_value(x.into());
    let below = |v: &Value| search(from, end, |x| value(x).compare(v) == Some(Ordering::Less));
    let up_to = |v: &Value| search(from, end, |x| value(x).compare(v) != Some(Ordering::Greater));
    let places = condition.places(from, end, below, up_to);
    places.into_iter().filter(|(a, b)| a < b).map(|(a, b)| (a as i64, (b - 1) as i64)).collect()
}

impl Ready {
    /// True if no value with an order key from `low` to `high` holds.
    pub(crate) fn excludes(&self, low: i64, high: i64) -> bool {
        !self.keys.iter().any(|(from, to)| *from <= high && *to >= low)
    }

    /// True if every value with an order key from `low` to `high` holds.
    pub(crate) fn includes(&self, low: i64, high: i64) -> bool {
        matches!(self.test, Test::Ranges(_)) && self.keys.iter().any(|(from, to)| *from <= low && *to >= high)
    }
}
