//! Casts: `pg_cast`, and by way of text where nothing stands there.

use super::json;
use crate::error::Error;
use crate::expr::kernel::Kernel;
use crate::expr::{Call, Env, Made};
use crate::types::{Category, Datum, Numeric, Type, datetime, text, without_blanks};

/// Who asks for the cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Context {
    /// Nobody: an argument of a function.
    Implicit,
    /// A column that the value is stored in.
    Assignment,
    /// `CAST`.
    Explicit,
}

/// How to make the value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CastHow {
    /// It is one already.
    Nothing,
    /// Its form is the same.
    Relabel,
    By(Call),
    /// Through text.
    Input,
    Output,
    /// Of arrays: that of their elements.
    Elements,
}

/// A row of `pg_cast`: from, to, who may ask, how; none: the values have one form.
pub(super) type Row = (Type, Type, Context, Option<Call>);

use Context::{Assignment as A, Explicit as E, Implicit as I};
use Type::{
    Bool, BpChar, Char, Date, Float4, Float8, Int2, Int4, Int8, Interval, Json, Jsonb, Name, Numeric as Num,
    Oid, Regclass, Regnamespace, Regproc, Regtype, Text, Time, Timestamp, TimestampTz, Varchar,
};

const SAME: Option<Call> = None;

pub(super) const CASTS: &[Row] = &[
    (Int2, Int4, I, SAME),
    (Int2, Int8, I, SAME),
    (Int4, Int8, I, SAME),
    (Int2, Float4, I, Some(Call::One(int_to_float))),
    (Int2, Float8, I, Some(Call::One(int_to_float))),
    (Int4, Float4, I, Some(Call::One(int_to_float4))),
    (Int4, Float8, I, Some(Call::One(int_to_float))),
    (Int8, Float4, I, Some(Call::One(int_to_float4))),
    (Int8, Float8, I, Some(Call::One(int_to_float))),
    (Int2, Num, I, Some(Call::Kernel(Kernel::IntToNumeric))),
    (Int4, Num, I, Some(Call::Kernel(Kernel::IntToNumeric))),
    (Int8, Num, I, Some(Call::Kernel(Kernel::IntToNumeric))),
    (Int4, Int2, A, Some(Call::One(to_int2))),
    (Int8, Int2, A, Some(Call::One(to_int2))),
    (Int8, Int4, A, Some(Call::One(to_int4))),
    (Float4, Float8, I, SAME),
    (Float8, Float4, A, Some(Call::One(float8_to_float4))),
    (Float4, Int2, A, Some(Call::One(float_to_int2))),
    (Float4, Int4, A, Some(Call::One(float_to_int4))),
    (Float4, Int8, A, Some(Call::One(float_to_int8))),
    (Float8, Int2, A, Some(Call::One(float_to_int2))),
    (Float8, Int4, A, Some(Call::One(float_to_int4))),
    (Float8, Int8, A, Some(Call::One(float_to_int8))),
    (Float4, Num, A, Some(Call::One(float4_to_numeric))),
    (Float8, Num, A, Some(Call::One(float8_to_numeric))),
    (Num, Int2, A, Some(Call::One(numeric_to_int2))),
    (Num, Int4, A, Some(Call::One(numeric_to_int4))),
    (Num, Int8, A, Some(Call::One(numeric_to_int8))),
    (Num, Float4, I, Some(Call::One(numeric_to_float4))),
    (Num, Float8, I, Some(Call::One(numeric_to_float8))),
    (Bool, Int4, E, Some(Call::One(bool_to_int))),
    (Int4, Bool, E, Some(Call::One(int_to_bool))),
    (Bool, Text, A, Some(Call::One(bool_to_text))),
    (Bool, Varchar, A, Some(Call::One(bool_to_text))),
    (Bool, BpChar, A, Some(Call::One(|value| text_to_char(&bool_to_text(value)?)))),
    (Varchar, Text, I, SAME),
    (Text, Varchar, I, SAME),
    (BpChar, Text, I, Some(Call::One(char_to_text))),
    (BpChar, Varchar, I, Some(Call::One(char_to_text))),
    (Text, BpChar, I, Some(Call::One(text_to_char))),
    (Varchar, BpChar, I, Some(Call::One(text_to_char))),
    (Int2, Oid, I, SAME),
    (Int4, Oid, I, SAME),
    (Int8, Oid, I, Some(Call::One(to_oid))),
    (Oid, Int8, A, SAME),
    (Oid, Int4, A, Some(Call::One(oid_to_int4))),
    (Char, Text, I, SAME),
    (Char, Varchar, A, SAME),
    (Text, Char, A, Some(Call::One(text_to_letter))),
    (Name, Text, I, SAME),
    (Name, Varchar, A, SAME),
    (Name, BpChar, A, Some(Call::One(text_to_char))),
    (Text, Name, I, Some(Call::One(text_to_name))),
    (Varchar, Name, I, Some(Call::One(text_to_name))),
    (BpChar, Name, I, Some(Call::One(|value| text_to_name(&char_to_text(value)?)))),
    (Date, Timestamp, I, Some(Call::One(date_to_timestamp))),
    (Date, TimestampTz, I, Some(Call::OneIn(date_to_moment))),
    (Timestamp, Date, A, Some(Call::One(timestamp_to_date))),
    (
        TimestampTz,
        Date,
        A,
        Some(Call::OneIn(|value, env| timestamp_to_date(&super::dates::local(value, env)))),
    ),
    (Timestamp, TimestampTz, I, Some(Call::OneIn(timestamp_to_moment))),
    (TimestampTz, Timestamp, A, Some(Call::OneIn(|value, env| Ok(super::dates::local(value, env))))),
    (Timestamp, Time, A, Some(Call::One(timestamp_to_time))),
    (
        TimestampTz,
        Time,
        A,
        Some(Call::OneIn(|value, env| timestamp_to_time(&super::dates::local(value, env)))),
    ),
    (Time, Interval, I, Some(Call::One(time_to_interval))),
    (Interval, Time, A, Some(Call::One(interval_to_time))),
    (Json, Jsonb, A, Some(Call::One(json::to_jsonb))),
    (Jsonb, Json, A, Some(Call::One(|value| Ok(Datum::text(str(value)))))),
    (Jsonb, Bool, E, Some(Call::One(json::to_bool))),
    (Jsonb, Num, E, Some(Call::One(|value| json::to_number(value, Num).map(Datum::Numeric)))),
    (
        Jsonb,
        Int2,
        E,
        Some(Call::One(|value| numeric_to_int2(&Datum::Numeric(json::to_number(value, Int2)?)))),
    ),
    (
        Jsonb,
        Int4,
        E,
        Some(Call::One(|value| numeric_to_int4(&Datum::Numeric(json::to_number(value, Int4)?)))),
    ),
    (
        Jsonb,
        Int8,
        E,
        Some(Call::One(|value| numeric_to_int8(&Datum::Numeric(json::to_number(value, Int8)?)))),
    ),
    (
        Jsonb,
        Float4,
        E,
        Some(Call::One(|value| numeric_to_float4(&Datum::Numeric(json::to_number(value, Float4)?)))),
    ),
    (
        Jsonb,
        Float8,
        E,
        Some(Call::One(|value| numeric_to_float8(&Datum::Numeric(json::to_number(value, Float8)?)))),
    ),
    (Oid, Regclass, I, SAME),
    (Regclass, Oid, I, SAME),
    (Int2, Regclass, I, SAME),
    (Int4, Regclass, I, SAME),
    (Int8, Regclass, I, Some(Call::One(to_oid))),
    (Regclass, Int8, A, SAME),
    (Regclass, Int4, A, Some(Call::One(oid_to_int4))),
    (Oid, Regtype, I, SAME),
    (Regtype, Oid, I, SAME),
    (Int2, Regtype, I, SAME),
    (Int4, Regtype, I, SAME),
    (Int8, Regtype, I, Some(Call::One(to_oid))),
    (Regtype, Int8, A, SAME),
    (Regtype, Int4, A, Some(Call::One(oid_to_int4))),
    (Oid, Regnamespace, I, SAME),
    (Regnamespace, Oid, I, SAME),
    (Int4, Regnamespace, I, SAME),
    (Regnamespace, Int8, A, SAME),
    (Oid, Regproc, I, SAME),
    (Regproc, Oid, I, SAME),
];

/// How a value of one type becomes one of another, if it does in this context.
pub(crate) fn cast(from: Type, to: Type, context: Context) -> Option<CastHow> {
    if from == to {
        return Some(CastHow::Nothing);
    }
    if from == Type::Unknown {
        return Some(CastHow::Input);
    }
    if let (Some(one), Some(other)) = (from.element(), to.element()) {
        return match cast(one, other, context)? {
            CastHow::Nothing | CastHow::Relabel => Some(CastHow::Relabel),
            _ => Some(CastHow::Elements),
        };
    }
    if let Some(row) = CASTS.iter().find(|row| row.0 == from && row.1 == to) {
        return (row.2 <= context).then_some(row.3.map_or(CastHow::Relabel, CastHow::By));
    }
    if from == Type::Record && to.category() == Category::String && context >= A {
        return Some(CastHow::Output);
    }
    if from == Type::Record
        || to == Type::Record
        || from == Type::Void
        || to == Type::Void
        || to == Type::Unknown
    {
        return None;
    }
    if to.category() == Category::String && context >= A {
        return Some(CastHow::Output);
    }
    (from.category() == Category::String && context == E).then_some(CastHow::Input)
}

pub(crate) fn is_coercible(from: Type, to: Type) -> bool {
    cast(from, to, I).is_some()
}

fn out(what: Type) -> Error {
    Error::new("22003", format!("{} out of range", what.sql_name()))
}

fn to_oid(value: &Datum) -> Made {
    match int(value) {
        number if u32::try_from(number).is_ok() => Ok(Datum::Int(number)),
        _ => Err(Error::new("22003", "OID out of range")),
    }
}

fn oid_to_int4(value: &Datum) -> Made {
    Ok(Datum::Int((int(value) as u32).cast_signed().into()))
}

fn text_to_name(value: &Datum) -> Made {
    Ok(Datum::text(crate::names::fitting(str(value))))
}

fn text_to_letter(value: &Datum) -> Made {
    Ok(Datum::text(str(value).chars().next().map_or(String::new(), String::from)))
}

pub(super) fn int(value: &Datum) -> i64 {
    match value {
        Datum::Int(value) => *value,
        other => unreachable!("an integer is expected: {other:?}"),
    }
}

pub(super) fn float(value: &Datum) -> f64 {
    match value {
        Datum::Float(value) => *value,
        other => unreachable!("a float is expected: {other:?}"),
    }
}

pub(super) fn numeric(value: &Datum) -> &Numeric {
    match value {
        Datum::Numeric(value) => value,
        other => unreachable!("a numeric is expected: {other:?}"),
    }
}

pub(super) fn str(value: &Datum) -> &str {
    value.as_text().unwrap_or_else(|| unreachable!("a text is expected: {value:?}"))
}

fn int_to_float(value: &Datum) -> Made {
    Ok(Datum::Float(int(value) as f64))
}

fn int_to_float4(value: &Datum) -> Made {
    Ok(Datum::Float(f64::from(int(value) as f32)))
}

fn narrow(value: i64, ty: Type) -> Made {
    if text::fits(value, ty) { Ok(Datum::Int(value)) } else { Err(out(ty)) }
}

fn to_int2(value: &Datum) -> Made {
    narrow(int(value), Int2)
}

fn to_int4(value: &Datum) -> Made {
    narrow(int(value), Int4)
}

fn float8_to_float4(value: &Datum) -> Made {
    let value = float(value);
    let single = value as f32;
    if single.is_infinite() && value.is_finite() {
        return Err(Error::new("22003", "value out of range: overflow"));
    }
    if single == 0.0 && value != 0.0 {
        return Err(Error::new("22003", "value out of range: underflow"));
    }
    Ok(Datum::Float(f64::from(single)))
}

fn whole(value: &Datum, ty: Type) -> Made {
    let rounded = float(value).round_ties_even();
    if !(-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&rounded) {
        return Err(out(ty));
    }
    narrow(rounded as i64, ty)
}

fn float_to_int2(value: &Datum) -> Made {
    whole(value, Int2)
}

fn float_to_int4(value: &Datum) -> Made {
    whole(value, Int4)
}

fn float_to_int8(value: &Datum) -> Made {
    whole(value, Int8)
}

fn float4_to_numeric(value: &Datum) -> Made {
    Ok(Datum::Numeric(Numeric::from_f64(float(value), 6)))
}

fn float8_to_numeric(value: &Datum) -> Made {
    Ok(Datum::Numeric(Numeric::from_f64(float(value), 15)))
}

fn numeric_to_int2(value: &Datum) -> Made {
    narrow(numeric(value).to_i64("smallint")?, Int2)
}

fn numeric_to_int4(value: &Datum) -> Made {
    narrow(numeric(value).to_i64("integer")?, Int4)
}

fn numeric_to_int8(value: &Datum) -> Made {
    numeric(value).to_i64("bigint").map(Datum::Int)
}

fn numeric_to_float8(value: &Datum) -> Made {
    numeric(value).to_f64().map(Datum::Float)
}

fn numeric_to_float4(value: &Datum) -> Made {
    let number = numeric(value);
    let single: f32 = if number.is_finite() {
        number.to_string().parse().unwrap_or(f32::INFINITY)
    } else {
        number.to_f64()? as f32
    };
    if single.is_infinite() && number.is_finite() {
        return Err(Error::new("22003", format!("\"{number}\" is out of range for type real")));
    }
    Ok(Datum::Float(f64::from(single)))
}

fn bool_to_int(value: &Datum) -> Made {
    Ok(Datum::Int(i64::from(matches!(value, Datum::Bool(true)))))
}

fn int_to_bool(value: &Datum) -> Made {
    Ok(Datum::Bool(int(value) != 0))
}

fn bool_to_text(value: &Datum) -> Made {
    Ok(Datum::text(if matches!(value, Datum::Bool(true)) { "true" } else { "false" }))
}

/// A char stands without its blanks at the end; what shows one adds those of its length.
fn text_to_char(value: &Datum) -> Made {
    Ok(Datum::Char(str(value).into()))
}

fn char_to_text(value: &Datum) -> Made {
    Ok(Datum::text(without_blanks(str(value))))
}

fn date_to_timestamp(value: &Datum) -> Made {
    match value {
        Datum::Date(days) => datetime::timestamp_of_date(*days).map(Datum::Timestamp),
        other => unreachable!("a date is expected: {other:?}"),
    }
}

fn timestamp_to_moment(value: &Datum, env: &Env<'_>) -> Made {
    super::dates::moment(super::dates::timestamp(value), super::dates::zone(env))
}

fn date_to_moment(value: &Datum, env: &Env<'_>) -> Made {
    timestamp_to_moment(&date_to_timestamp(value)?, env)
}

fn timestamp_to_date(value: &Datum) -> Made {
    Ok(Datum::Date(datetime::date_of_timestamp(super::dates::timestamp(value))))
}

fn timestamp_to_time(value: &Datum) -> Made {
    let micros = super::dates::timestamp(value);
    if micros == i64::MAX || micros == i64::MIN {
        return Ok(Datum::Null);
    }
    Ok(Datum::Time(micros.rem_euclid(datetime::DAY)))
}

fn time_to_interval(value: &Datum) -> Made {
    match value {
        Datum::Time(micros) => Ok(Datum::Interval(thermocline_row::Interval::new(0, 0, *micros))),
        other => unreachable!("a time is expected: {other:?}"),
    }
}

fn interval_to_time(value: &Datum) -> Made {
    match value {
        Datum::Interval(interval) => Ok(Datum::Time(interval.micros.rem_euclid(datetime::DAY))),
        other => unreachable!("an interval is expected: {other:?}"),
    }
}
