//! A value whose type is known only at run time.
//!
//! Two values are equal if SQL says so, with two exceptions that a program needs: null equals null, and NaN equals NaN
//! (in PostgreSQL too). Values of different types are never equal; -0.0 equals 0.0; decimals and intervals compare by
//! their value and not by how it is written.

use std::cmp::Ordering;
use std::fmt;

use super::codec::{self, Reader};
use super::decimal::Decimal;
use super::error::{Flaw, RowError};
use super::temporal::{Date, Interval, Time, Timestamp, TimestampTz, Uuid};
use super::types::Type;

/// A value of any type, or null.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// No value.
    #[default]
    Null,
    /// Of [`Type::Boolean`].
    Boolean(bool),
    /// Of [`Type::Int2`].
    Int2(i16),
    /// Of [`Type::Int4`].
    Int4(i32),
    /// Of [`Type::Int8`].
    Int8(i64),
    /// Of [`Type::Float4`].
    Float4(f32),
    /// Of [`Type::Float8`].
    Float8(f64),
    /// Of [`Type::Decimal`].
    Decimal(Decimal),
    /// Of [`Type::Text`], [`Type::Varchar`] or [`Type::Char`].
    Text(String),
    /// Of [`Type::Bytes`].
    Bytes(Vec<u8>),
    /// Of [`Type::Date`].
    Date(Date),
    /// Of [`Type::Time`].
    Time(Time),
    /// Of [`Type::Timestamp`].
    Timestamp(Timestamp),
    /// Of [`Type::TimestampTz`].
    TimestampTz(TimestampTz),
    /// Of [`Type::Interval`].
    Interval(Interval),
    /// Of [`Type::Uuid`].
    Uuid(Uuid),
}

impl Value {
    /// Whether it is null.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// What it is, for messages.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Boolean(_) => "boolean",
            Value::Int2(_) => "smallint",
            Value::Int4(_) => "integer",
            Value::Int8(_) => "bigint",
            Value::Float4(_) => "real",
            Value::Float8(_) => "double precision",
            Value::Decimal(_) => "decimal",
            Value::Text(_) => "text",
            Value::Bytes(_) => "bytea",
            Value::Date(_) => "date",
            Value::Time(_) => "time",
            Value::Timestamp(_) => "timestamp",
            Value::TimestampTz(_) => "timestamptz",
            Value::Interval(_) => "interval",
            Value::Uuid(_) => "uuid",
        }
    }

    /// The order of two values of one type, as keys have it; `None` for values of different types and for null.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        Some(match (self, other) {
            (Value::Boolean(a), Value::Boolean(b)) => a.cmp(b),
            (Value::Int2(a), Value::Int2(b)) => a.cmp(b),
            (Value::Int4(a), Value::Int4(b)) => a.cmp(b),
            (Value::Int8(a), Value::Int8(b)) => a.cmp(b),
            (Value::Float4(a), Value::Float4(b)) => compare_floats(f64::from(*a), f64::from(*b)),
            (Value::Float8(a), Value::Float8(b)) => compare_floats(*a, *b),
            (Value::Decimal(a), Value::Decimal(b)) => a.cmp(b),
            (Value::Text(a), Value::Text(b)) => a.cmp(b),
            (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
            (Value::Date(a), Value::Date(b)) => a.cmp(b),
            (Value::Time(a), Value::Time(b)) => a.cmp(b),
            (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
            (Value::TimestampTz(a), Value::TimestampTz(b)) => a.cmp(b),
            (Value::Interval(a), Value::Interval(b)) => a.cmp(b),
            (Value::Uuid(a), Value::Uuid(b)) => a.cmp(b),
            _ => return None,
        })
    }

    /// The value of type `ty` that `text` spells.
    pub(crate) fn parse(text: &str, ty: Type) -> Result<Self, Flaw> {
        fn read<T: std::str::FromStr<Err: fmt::Display>>(
            text: &str,
            wrap: fn(T) -> Value,
        ) -> Result<Value, Flaw> {
            text.parse().map(wrap).map_err(|e: T::Err| Flaw::Syntax {
                found: text.chars().take(40).collect(),
                reason: e.to_string().into(),
            })
        }
        match ty {
            Type::Boolean => read(text, Value::Boolean),
            Type::Int2 => read(text, Value::Int2),
            Type::Int4 => read(text, Value::Int4),
            Type::Int8 => read(text, Value::Int8),
            Type::Float4 => read(text, Value::Float4),
            Type::Float8 => read(text, Value::Float8),
            Type::Decimal { .. } => read(text, Value::Decimal),
            Type::Text | Type::Varchar(_) | Type::Char(_) => Ok(Value::Text(text.to_owned())),
            Type::Bytes => Ok(Value::Bytes(text.as_bytes().to_vec())),
            Type::Date => read(text, Value::Date),
            Type::Time => read(text, Value::Time),
            Type::Timestamp => read(text, Value::Timestamp),
            Type::TimestampTz => read(text, Value::TimestampTz),
            Type::Interval => read(text, Value::Interval),
            Type::Uuid => read(text, Value::Uuid),
        }
    }

    /// Appends the value's binary form: a tag and its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        fn put<const N: usize>(out: &mut Vec<u8>, tag: u8, bytes: [u8; N]) {
            out.push(tag);
            out.extend(bytes);
        }
        match self {
            Value::Null => out.push(0),
            Value::Boolean(v) => put(out, 1, [u8::from(*v)]),
            Value::Int2(v) => put(out, 2, v.to_le_bytes()),
            Value::Int4(v) => put(out, 3, v.to_le_bytes()),
            Value::Int8(v) => put(out, 4, v.to_le_bytes()),
            Value::Float4(v) => put(out, 5, v.to_le_bytes()),
            Value::Float8(v) => put(out, 6, v.to_le_bytes()),
            Value::Decimal(v) => {
                put(out, 7, v.mantissa().to_le_bytes());
                out.push(v.scale());
            }
            Value::Text(v) => {
                out.push(8);
                codec::put_bytes(out, v.as_bytes());
            }
            Value::Bytes(v) => {
                out.push(9);
                codec::put_bytes(out, v);
            }
            Value::Date(v) => put(out, 10, v.0.to_le_bytes()),
            Value::Time(v) => put(out, 11, v.micros().to_le_bytes()),
            Value::Timestamp(v) => put(out, 12, v.0.to_le_bytes()),
            Value::TimestampTz(v) => put(out, 13, v.0.to_le_bytes()),
            Value::Interval(v) => put(out, 14, interval_bytes(*v)),
            Value::Uuid(v) => put(out, 15, v.0),
        }
    }

    /// Reads a value from the front of `bytes` and moves them on.
    pub fn decode(bytes: &mut &[u8]) -> Result<Self, RowError> {
        let mut reader = Reader::new(bytes);
        let value = Self::read(&mut reader)?;
        *bytes = reader.rest();
        Ok(value)
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, RowError> {
        Ok(match reader.u8("value")? {
            0 => Value::Null,
            1 => match reader.u8("boolean")? {
                0 => Value::Boolean(false),
                1 => Value::Boolean(true),
                byte => return Err(RowError::damaged_bytes(format!("{byte} is no boolean"))),
            },
            2 => Value::Int2(i16::from_le_bytes(reader.array("smallint")?)),
            3 => Value::Int4(i32::from_le_bytes(reader.array("integer")?)),
            4 => Value::Int8(i64::from_le_bytes(reader.array("bigint")?)),
            5 => Value::Float4(f32::from_le_bytes(reader.array("real")?)),
            6 => Value::Float8(f64::from_le_bytes(reader.array("double precision")?)),
            7 => {
                let mantissa = i128::from_le_bytes(reader.array("decimal")?);
                match Decimal::new(mantissa, reader.u8("scale of a decimal")?) {
                    Ok(v) => Value::Decimal(v),
                    Err(e) => return Err(RowError::damaged_bytes(e.to_string())),
                }
            }
            8 => Value::Text(reader.string("text")?),
            9 => Value::Bytes(reader.bytes("bytea")?.to_vec()),
            10 => Value::Date(Date(i32::from_le_bytes(reader.array("date")?))),
            11 => match Time::from_micros(i64::from_le_bytes(reader.array("time")?)) {
                Some(v) => Value::Time(v),
                None => return Err(RowError::damaged_bytes("a time of more than a day")),
            },
            12 => Value::Timestamp(Timestamp(i64::from_le_bytes(reader.array("timestamp")?))),
            13 => Value::TimestampTz(TimestampTz(i64::from_le_bytes(reader.array("timestamptz")?))),
            14 => Value::Interval(interval_from(reader.array("interval")?)),
            15 => Value::Uuid(Uuid(reader.array("uuid")?)),
            tag => return Err(RowError::damaged_bytes(format!("{tag} is no value"))),
        })
    }
}

/// NaN is equal to itself and greater than every number; -0 equals 0.
fn compare_floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Months, days and microseconds, as rows have them.
pub(crate) fn interval_bytes(v: Interval) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&v.months.to_le_bytes());
    bytes[4..8].copy_from_slice(&v.days.to_le_bytes());
    bytes[8..].copy_from_slice(&v.micros.to_le_bytes());
    bytes
}

/// The inverse of [`interval_bytes`].
pub(crate) fn interval_from(bytes: [u8; 16]) -> Interval {
    let bits = u128::from_le_bytes(bytes);
    Interval::new(bits as i32, (bits >> 32) as i32, (bits >> 64) as i64)
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Value::Null, Value::Null) => true,
            _ => self.compare(other) == Some(Ordering::Equal),
        }
    }
}

impl Eq for Value {}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.pad("null"),
            Value::Boolean(v) => v.fmt(f),
            Value::Int2(v) => v.fmt(f),
            Value::Int4(v) => v.fmt(f),
            Value::Int8(v) => v.fmt(f),
            Value::Float4(v) => v.fmt(f),
            Value::Float8(v) => v.fmt(f),
            Value::Decimal(v) => v.fmt(f),
            Value::Text(v) => f.pad(v),
            Value::Bytes(v) => {
                f.write_str("\\x")?;
                v.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Value::Date(v) => v.fmt(f),
            Value::Time(v) => v.fmt(f),
            Value::Timestamp(v) => v.fmt(f),
            Value::TimestampTz(v) => v.fmt(f),
            Value::Interval(v) => v.fmt(f),
            Value::Uuid(v) => v.fmt(f),
        }
    }
}

macro_rules! from {
    ($($from:ty => $variant:ident),* $(,)?) => {
        $(
            impl From<$from> for Value {
                fn from(value: $from) -> Self {
                    Value::$variant(value.into())
                }
            }
        )*
    };
}

from! {
    bool => Boolean, i16 => Int2, i32 => Int4, i64 => Int8, f32 => Float4, f64 => Float8, Decimal => Decimal,
    String => Text, &str => Text, Vec<u8> => Bytes, &[u8] => Bytes, Date => Date, Time => Time,
    Timestamp => Timestamp, TimestampTz => TimestampTz, Interval => Interval, Uuid => Uuid,
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}
