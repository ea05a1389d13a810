//! Operators: rows of `pg_operator`.

use std::sync::LazyLock;

use super::casts::{float, int, numeric};
use super::index::ByName;
use super::{dates, maths, patterns, strings};
use crate::expr::kernel::{Arithmetic, Kernel};
use crate::expr::{Call, Comparison};
use crate::types::{Datum, Type};
use Type::{
    Bool, BpChar, Bytea, Char, Date, Float4, Float8, Int2, Int4, Int8, Interval, Name, Numeric, Oid, Text,
    Time, Timestamp, TimestampTz, Uuid,
};

/// An operator with one argument (before it) or two.
pub(crate) struct Operator {
    pub(crate) name: &'static str,
    pub(crate) args: &'static [Type],
    pub(crate) returns: Type,
    pub(crate) call: Call,
}

const fn row(name: &'static str, args: &'static [Type], returns: Type, call: Call) -> Operator {
    Operator { name, args, returns, call }
}

/// The operators with this name.
pub(crate) fn operators_named(name: &str) -> &'static [&'static Operator] {
    static BY_NAME: LazyLock<ByName<Operator>> =
        LazyLock::new(|| ByName::new(OPERATORS.iter().copied().flatten(), |operator| operator.name));
    BY_NAME.named(name)
}

#[cfg(test)]
pub(crate) fn all() -> impl Iterator<Item = &'static Operator> {
    OPERATORS.iter().flat_map(|table| table.iter())
}

const OPERATORS: &[&[Operator]] = &[COMPARE, INTEGERS, NUMBERS, STRINGS, DATES, super::json::OPERATORS];

macro_rules! comparisons {
    ($(($left:ident, $right:ident)),* $(,)?) => {
        &[$(
            row("=", &[$left, $right], Bool, Call::Compare(Comparison::Equal)),
            row("<>", &[$left, $right], Bool, Call::Compare(Comparison::NotEqual)),
            row("<", &[$left, $right], Bool, Call::Compare(Comparison::Less)),
            row("<=", &[$left, $right], Bool, Call::Compare(Comparison::LessEqual)),
            row(">", &[$left, $right], Bool, Call::Compare(Comparison::Greater)),
            row(">=", &[$left, $right], Bool, Call::Compare(Comparison::GreaterEqual)),
        )*]
    };
}

const COMPARE: &[Operator] = comparisons![
    (Bool, Bool),
    (Int2, Int2),
    (Int2, Int4),
    (Int2, Int8),
    (Int4, Int2),
    (Int4, Int4),
    (Int4, Int8),
    (Int8, Int2),
    (Int8, Int4),
    (Int8, Int8),
    (Float4, Float4),
    (Float4, Float8),
    (Float8, Float4),
    (Float8, Float8),
    (Numeric, Numeric),
    (Text, Text),
    (BpChar, BpChar),
    (Name, Name),
    (Bytea, Bytea),
    (Date, Date),
    (Time, Time),
    (Timestamp, Timestamp),
    (TimestampTz, TimestampTz),
    (Interval, Interval),
    (Uuid, Uuid),
    (Oid, Oid),
    (Char, Char),
];

macro_rules! integers {
    ($(($left:ident, $right:ident, $out:ident, $width:literal)),* $(,)?) => {
        &[$(
            row("+", &[$left, $right], $out, Call::Kernel(Kernel::Int(Arithmetic::Add, $width))),
            row("-", &[$left, $right], $out, Call::Kernel(Kernel::Int(Arithmetic::Subtract, $width))),
            row("*", &[$left, $right], $out, Call::Kernel(Kernel::Int(Arithmetic::Multiply, $width))),
            row("/", &[$left, $right], $out, Call::Two(maths::div::<$width>)),
        )*]
    };
}

const INTEGERS: &[Operator] = integers![
    (Int2, Int2, Int2, 2),
    (Int2, Int4, Int4, 4),
    (Int4, Int2, Int4, 4),
    (Int4, Int4, Int4, 4),
    (Int2, Int8, Int8, 8),
    (Int8, Int2, Int8, 8),
    (Int4, Int8, Int8, 8),
    (Int8, Int4, Int8, 8),
    (Int8, Int8, Int8, 8),
];

const NUMBERS: &[Operator] = &[
    row("%", &[Int2, Int2], Int2, Call::Two(maths::rem)),
    row("%", &[Int4, Int4], Int4, Call::Two(maths::rem)),
    row("%", &[Int8, Int8], Int8, Call::Two(maths::rem)),
    row("-", &[Int2], Int2, Call::One(maths::neg::<2>)),
    row("-", &[Int4], Int4, Call::One(maths::neg::<4>)),
    row("-", &[Int8], Int8, Call::One(maths::neg::<8>)),
    row("-", &[Float4], Float4, Call::One(|a| Ok(Datum::Float(-float(a))))),
    row("-", &[Float8], Float8, Call::One(|a| Ok(Datum::Float(-float(a))))),
    row("-", &[Numeric], Numeric, Call::One(|a| Ok(Datum::Numeric(numeric(a).neg())))),
    row("+", &[Int2], Int2, Call::One(|a| Ok(a.clone()))),
    row("+", &[Int4], Int4, Call::One(|a| Ok(a.clone()))),
    row("+", &[Int8], Int8, Call::One(|a| Ok(a.clone()))),
    row("+", &[Float4], Float4, Call::One(|a| Ok(a.clone()))),
    row("+", &[Float8], Float8, Call::One(|a| Ok(a.clone()))),
    row("+", &[Numeric], Numeric, Call::One(|a| Ok(a.clone()))),
    row("@", &[Int2], Int2, Call::One(maths::abs::<2>)),
    row("@", &[Int4], Int4, Call::One(maths::abs::<4>)),
    row("@", &[Int8], Int8, Call::One(maths::abs::<8>)),
    row("@", &[Float4], Float4, Call::One(|a| Ok(Datum::Float(float(a).abs())))),
    row("@", &[Float8], Float8, Call::One(|a| Ok(Datum::Float(float(a).abs())))),
    row("@", &[Numeric], Numeric, Call::One(|a| Ok(Datum::Numeric(numeric(a).abs())))),
    row("&", &[Int2, Int2], Int2, Call::Two(|a, b| Ok(Datum::Int(int(a) & int(b))))),
    row("&", &[Int4, Int4], Int4, Call::Two(|a, b| Ok(Datum::Int(int(a) & int(b))))),
    row("&", &[Int8, Int8], Int8, Call::Two(|a, b| Ok(Datum::Int(int(a) & int(b))))),
    row("|", &[Int2, Int2], Int2, Call::Two(|a, b| Ok(Datum::Int(int(a) | int(b))))),
    row("|", &[Int4, Int4], Int4, Call::Two(|a, b| Ok(Datum::Int(int(a) | int(b))))),
    row("|", &[Int8, Int8], Int8, Call::Two(|a, b| Ok(Datum::Int(int(a) | int(b))))),
    row("#", &[Int2, Int2], Int2, Call::Two(|a, b| Ok(Datum::Int(int(a) ^ int(b))))),
    row("#", &[Int4, Int4], Int4, Call::Two(|a, b| Ok(Datum::Int(int(a) ^ int(b))))),
    row("#", &[Int8, Int8], Int8, Call::Two(|a, b| Ok(Datum::Int(int(a) ^ int(b))))),
    row("~", &[Int2], Int2, Call::One(|a| Ok(Datum::Int(!int(a))))),
    row("~", &[Int4], Int4, Call::One(|a| Ok(Datum::Int(!int(a))))),
    row("~", &[Int8], Int8, Call::One(|a| Ok(Datum::Int(!int(a))))),
    row(
        "<<",
        &[Int4, Int4],
        Int4,
        Call::Two(|a, b| Ok(Datum::Int(i64::from((int(a) as i32).wrapping_shl(int(b) as u32))))),
    ),
    row("<<", &[Int8, Int4], Int8, Call::Two(|a, b| Ok(Datum::Int(int(a).wrapping_shl(int(b) as u32))))),
    row(
        ">>",
        &[Int4, Int4],
        Int4,
        Call::Two(|a, b| Ok(Datum::Int(i64::from((int(a) as i32).wrapping_shr(int(b) as u32))))),
    ),
    row(">>", &[Int8, Int4], Int8, Call::Two(|a, b| Ok(Datum::Int(int(a).wrapping_shr(int(b) as u32))))),
    row("+", &[Float4, Float4], Float4, Call::Two(|a, b| maths::single(a, b, |a, b| a + b))),
    row("-", &[Float4, Float4], Float4, Call::Two(|a, b| maths::single(a, b, |a, b| a - b))),
    row("*", &[Float4, Float4], Float4, Call::Two(maths::mul_float4)),
    row("/", &[Float4, Float4], Float4, Call::Two(maths::div_float4)),
    row("+", &[Float8, Float8], Float8, Call::Two(|a, b| maths::double(float(a) + float(b), a, b))),
    row("+", &[Float4, Float8], Float8, Call::Two(|a, b| maths::double(float(a) + float(b), a, b))),
    row("+", &[Float8, Float4], Float8, Call::Two(|a, b| maths::double(float(a) + float(b), a, b))),
    row("-", &[Float8, Float8], Float8, Call::Two(|a, b| maths::double(float(a) - float(b), a, b))),
    row("-", &[Float4, Float8], Float8, Call::Two(|a, b| maths::double(float(a) - float(b), a, b))),
    row("-", &[Float8, Float4], Float8, Call::Two(|a, b| maths::double(float(a) - float(b), a, b))),
    row("*", &[Float8, Float8], Float8, Call::Two(maths::mul_float)),
    row("*", &[Float4, Float8], Float8, Call::Two(maths::mul_float)),
    row("*", &[Float8, Float4], Float8, Call::Two(maths::mul_float)),
    row("/", &[Float8, Float8], Float8, Call::Two(maths::div_float)),
    row("/", &[Float4, Float8], Float8, Call::Two(maths::div_float)),
    row("/", &[Float8, Float4], Float8, Call::Two(maths::div_float)),
    row("^", &[Float8, Float8], Float8, Call::Two(maths::power)),
    row(
        "^",
        &[Numeric, Numeric],
        Numeric,
        Call::Two(|a, b| numeric(a).power(numeric(b)).map(Datum::Numeric)),
    ),
    row("|/", &[Float8], Float8, Call::One(maths::sqrt)),
    row("||/", &[Float8], Float8, Call::One(|a| Ok(Datum::Float(float(a).cbrt())))),
    row("+", &[Numeric, Numeric], Numeric, Call::Kernel(Kernel::Numeric(Arithmetic::Add))),
    row("-", &[Numeric, Numeric], Numeric, Call::Kernel(Kernel::Numeric(Arithmetic::Subtract))),
    row("*", &[Numeric, Numeric], Numeric, Call::Kernel(Kernel::Numeric(Arithmetic::Multiply))),
    row("/", &[Numeric, Numeric], Numeric, Call::Two(|a, b| numeric(a).div(numeric(b)).map(Datum::Numeric))),
    row("%", &[Numeric, Numeric], Numeric, Call::Two(|a, b| numeric(a).rem(numeric(b)).map(Datum::Numeric))),
];

const STRINGS: &[Operator] = &[
    row("||", &[Text, Text], Text, Call::Two(strings::join)),
    row("||", &[Bytea, Bytea], Bytea, Call::Two(strings::join_bytes)),
    row("~~", &[Text, Text], Bool, Call::Two(|a, b| patterns::like(a, b, false, false))),
    row("!~~", &[Text, Text], Bool, Call::Two(|a, b| patterns::like(a, b, false, true))),
    row("~~*", &[Text, Text], Bool, Call::Two(|a, b| patterns::like(a, b, true, false))),
    row("!~~*", &[Text, Text], Bool, Call::Two(|a, b| patterns::like(a, b, true, true))),
    row("~~", &[BpChar, Text], Bool, Call::Two(|a, b| patterns::like(a, b, false, false))),
    row("!~~", &[BpChar, Text], Bool, Call::Two(|a, b| patterns::like(a, b, false, true))),
    row("~~*", &[BpChar, Text], Bool, Call::Two(|a, b| patterns::like(a, b, true, false))),
    row("!~~*", &[BpChar, Text], Bool, Call::Two(|a, b| patterns::like(a, b, true, true))),
    row("~", &[BpChar, Text], Bool, Call::Two(|a, b| patterns::matches(a, b, false, false))),
    row("!~", &[BpChar, Text], Bool, Call::Two(|a, b| patterns::matches(a, b, false, true))),
    row("~*", &[BpChar, Text], Bool, Call::Two(|a, b| patterns::matches(a, b, true, false))),
    row("!~*", &[BpChar, Text], Bool, Call::Two(|a, b| patterns::matches(a, b, true, true))),
    row("~", &[Text, Text], Bool, Call::Two(|a, b| patterns::matches(a, b, false, false))),
    row("!~", &[Text, Text], Bool, Call::Two(|a, b| patterns::matches(a, b, false, true))),
    row("~*", &[Text, Text], Bool, Call::Two(|a, b| patterns::matches(a, b, true, false))),
    row("!~*", &[Text, Text], Bool, Call::Two(|a, b| patterns::matches(a, b, true, true))),
    row("^@", &[Text, Text], Bool, Call::Two(strings::starts_with)),
];

const DATES: &[Operator] = &[
    row("+", &[Date, Int4], Date, Call::Two(|a, b| dates::date_plus(a, b, 1))),
    row("+", &[Int4, Date], Date, Call::Two(|a, b| dates::date_plus(b, a, 1))),
    row("-", &[Date, Int4], Date, Call::Two(|a, b| dates::date_plus(a, b, -1))),
    row("-", &[Date, Date], Int4, Call::Two(dates::date_minus_date)),
    row("+", &[Date, Time], Timestamp, Call::Two(dates::date_plus_time)),
    row("+", &[Time, Date], Timestamp, Call::Two(|a, b| dates::date_plus_time(b, a))),
    row("+", &[Date, Interval], Timestamp, Call::Two(|a, b| dates::date_shift(a, b, false))),
    row("+", &[Interval, Date], Timestamp, Call::Two(|a, b| dates::date_shift(b, a, false))),
    row("-", &[Date, Interval], Timestamp, Call::Two(|a, b| dates::date_shift(a, b, true))),
    row("+", &[Timestamp, Interval], Timestamp, Call::Two(|a, b| dates::shift(a, b, false))),
    row("+", &[Interval, Timestamp], Timestamp, Call::Two(|a, b| dates::shift(b, a, false))),
    row("-", &[Timestamp, Interval], Timestamp, Call::Two(|a, b| dates::shift(a, b, true))),
    row(
        "+",
        &[TimestampTz, Interval],
        TimestampTz,
        Call::TwoIn(|a, b, env| dates::shift_in(a, b, false, dates::zone(env))),
    ),
    row(
        "+",
        &[Interval, TimestampTz],
        TimestampTz,
        Call::TwoIn(|a, b, env| dates::shift_in(b, a, false, dates::zone(env))),
    ),
    row(
        "-",
        &[TimestampTz, Interval],
        TimestampTz,
        Call::TwoIn(|a, b, env| dates::shift_in(a, b, true, dates::zone(env))),
    ),
    row("-", &[Timestamp, Timestamp], Interval, Call::Two(dates::difference)),
    row("-", &[TimestampTz, TimestampTz], Interval, Call::Two(dates::difference)),
    row("+", &[Time, Interval], Time, Call::Two(|a, b| dates::time_shift(a, b, false))),
    row("+", &[Interval, Time], Time, Call::Two(|a, b| dates::time_shift(b, a, false))),
    row("-", &[Time, Interval], Time, Call::Two(|a, b| dates::time_shift(a, b, true))),
    row("-", &[Time, Time], Interval, Call::Two(dates::time_minus_time)),
    row("+", &[Interval, Interval], Interval, Call::Two(dates::interval_plus)),
    row("-", &[Interval, Interval], Interval, Call::Two(dates::interval_minus)),
    row("-", &[Interval], Interval, Call::One(dates::interval_neg)),
    row("*", &[Interval, Float8], Interval, Call::Two(|a, b| dates::interval_times(a, float(b)))),
    row("*", &[Float8, Interval], Interval, Call::Two(|a, b| dates::interval_times(b, float(a)))),
    row("/", &[Interval, Float8], Interval, Call::Two(dates::interval_divided)),
];
