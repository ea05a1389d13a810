//! Values between their two forms: those of SQL, and those that the engine stores.

use std::sync::Arc;

use thermocline_row::{
    Date, Decimal, Interval, Layout, Time, Timestamp, TimestampTz, Type as Stored, Uuid, Value,
};

use super::{Datum, Numeric};

/// A stored column's value.
#[inline]
pub(crate) fn datum_at(layout: &Layout, bytes: &[u8], column: usize) -> Datum {
    let found = match layout.columns()[column].ty {
        Stored::Boolean => layout.bool(bytes, column).map(Datum::Bool),
        Stored::Int2 => layout.i16(bytes, column).map(|value| Datum::Int(i64::from(value))),
        Stored::Int4 => layout.i32(bytes, column).map(|value| Datum::Int(i64::from(value))),
        Stored::Int8 => layout.i64(bytes, column).map(Datum::Int),
        Stored::Float4 => layout.f32(bytes, column).map(|value| Datum::Float(f64::from(value))),
        Stored::Float8 => layout.f64(bytes, column).map(Datum::Float),
        Stored::Char(characters) => {
            layout.str(bytes, column).map(|text| Datum::Char(super::text::padded(text, characters as usize)))
        }
        Stored::Text | Stored::Varchar(_) => {
            layout.str(bytes, column).map(|text| Datum::Text(Arc::from(text)))
        }
        Stored::Bytes => layout.bytes(bytes, column).map(|bytes| Datum::Bytes(Arc::from(bytes))),
        Stored::Decimal { .. } => {
            layout.decimal(bytes, column).map(|value| Datum::Numeric(from_decimal(value)))
        }
        _ => return datum_of(&layout.value(bytes, column)),
    };
    found.unwrap_or(Datum::Null)
}

fn from_decimal(value: Decimal) -> Numeric {
    Numeric::from_i128(value.mantissa(), u16::from(value.scale()))
}

/// A value of the engine as one of SQL.
pub(crate) fn datum_of(value: &Value) -> Datum {
    match value {
        Value::Null => Datum::Null,
        Value::Boolean(value) => Datum::Bool(*value),
        Value::Int2(value) => Datum::Int(i64::from(*value)),
        Value::Int4(value) => Datum::Int(i64::from(*value)),
        Value::Int8(value) => Datum::Int(*value),
        Value::Float4(value) => Datum::Float(f64::from(*value)),
        Value::Float8(value) => Datum::Float(*value),
        Value::Decimal(value) => Datum::Numeric(from_decimal(*value)),
        Value::Text(value) => Datum::text(value),
        Value::Bytes(value) => Datum::Bytes(Arc::from(value.as_slice())),
        Value::Date(value) => Datum::Date(value.0),
        Value::Time(value) => Datum::Time(value.micros()),
        Value::Timestamp(value) => Datum::Timestamp(value.0),
        Value::TimestampTz(value) => Datum::Timestamp(value.0),
        Value::Interval(value) => Datum::Interval(*value),
        Value::Uuid(value) => Datum::Uuid(value.0),
    }
}

/// The value in the form of a stored type; none if the type does not have it.
pub(crate) fn stored_value(datum: &Datum, stored: Stored) -> Option<Value> {
    Some(match (datum, stored) {
        (Datum::Null, _) => Value::Null,
        (Datum::Bool(value), Stored::Boolean) => Value::Boolean(*value),
        (Datum::Int(value), Stored::Int2) => Value::Int2(i16::try_from(*value).ok()?),
        (Datum::Int(value), Stored::Int4) => Value::Int4(i32::try_from(*value).ok()?),
        (Datum::Int(value), Stored::Int8) => Value::Int8(*value),
        (Datum::Float(value), Stored::Float4) => {
            let single = *value as f32;
            if f64::from(single) != *value && !value.is_nan() {
                return None;
            }
            Value::Float4(single)
        }
        (Datum::Float(value), Stored::Float8) => Value::Float8(*value),
        (Datum::Numeric(value), Stored::Decimal { precision, scale }) => {
            let (mantissa, from) = value.canonical().to_i128()?;
            let decimal = Decimal::new(mantissa, u8::try_from(from).ok()?).ok()?;
            let fitted = decimal.rescale_exact(scale).ok()??;
            if fitted.mantissa().unsigned_abs()
                >= 10u128.checked_pow(u32::from(precision)).unwrap_or(u128::MAX)
            {
                return None;
            }
            Value::Decimal(fitted)
        }
        (value, Stored::Char(_)) => Value::Text(super::without_blanks(value.as_text()?).to_owned()),
        (value, Stored::Text | Stored::Varchar(_)) => Value::Text(value.as_text()?.to_string()),
        (Datum::Bytes(value), Stored::Bytes) => Value::Bytes(value.to_vec()),
        (Datum::Date(value), Stored::Date) => Value::Date(Date(*value)),
        (Datum::Time(value), Stored::Time) => Value::Time(Time::from_micros(*value)?),
        (Datum::Timestamp(value), Stored::Timestamp) => Value::Timestamp(Timestamp(*value)),
        (Datum::Timestamp(value), Stored::TimestampTz) => Value::TimestampTz(TimestampTz(*value)),
        (Datum::Interval(value), Stored::Interval) => {
            Value::Interval(Interval::new(value.months, value.days, value.micros))
        }
        (Datum::Uuid(value), Stored::Uuid) => Value::Uuid(Uuid(*value)),
        _ => return None,
    })
}
