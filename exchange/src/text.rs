//! A value as text, and back. The forms stand in the crate's header.

use std::fmt::{Display, Write};
use std::str::FromStr;

use serde_json::Value as Json;
use thermocline_engine::row::{Type, Value};

/// Null in CSV.
pub(crate) const NULL: &str = r"\N";

/// A field of CSV.
pub(crate) fn to_field(value: &Value) -> String {
    match value {
        Value::Null => NULL.to_owned(),
        Value::Text(text) if text.starts_with('\\') => format!("\\{text}"),
        value => plain(value),
    }
}

/// The value of a field of CSV.
pub(crate) fn from_field(field: &str, ty: Type) -> Result<Value, String> {
    if field == NULL {
        return Ok(Value::Null);
    }
    let text = if ty.is_text() { field.strip_prefix('\\').unwrap_or(field) } else { field };
    parse(text, ty)
}

/// A value of a JSON object.
pub(crate) fn to_json(value: &Value) -> Json {
    let number = |number: f64| serde_json::Number::from_f64(number).map(Json::Number);
    let json = match value {
        Value::Null => Some(Json::Null),
        Value::Boolean(value) => Some(Json::Bool(*value)),
        Value::Int2(value) => Some(Json::from(*value)),
        Value::Int4(value) => Some(Json::from(*value)),
        Value::Int8(value) => Some(Json::from(*value)),
        Value::Float4(value) => number(f64::from(*value)),
        Value::Float8(value) => number(*value),
        _ => None,
    };
    // What JSON has no form for.
    json.unwrap_or_else(|| Json::String(plain(value)))
}

/// The value that a JSON object has.
pub(crate) fn from_json(json: &Json, ty: Type) -> Result<Value, String> {
    let wrong = || Err(format!("{json} is no {ty}"));
    match (json, ty) {
        (Json::Null, _) => Ok(Value::Null),
        (Json::Bool(value), Type::Boolean) => Ok(Value::Boolean(*value)),
        (Json::Number(number), Type::Float4) => match number.as_f64() {
            Some(value) => Ok(Value::Float4(value as f32)),
            None => wrong(),
        },
        (Json::Number(number), Type::Float8) => {
            number.as_f64().map_or_else(wrong, |value| Ok(Value::Float8(value)))
        }
        (Json::Number(number), Type::Int2 | Type::Int4 | Type::Int8 | Type::Decimal { .. }) => {
            parse(&number.to_string(), ty)
        }
        (Json::String(text), _) => parse(text, ty),
        _ => wrong(),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Boolean(value) => value.to_string(),
        Value::Int2(value) => value.to_string(),
        Value::Int4(value) => value.to_string(),
        Value::Int8(value) => value.to_string(),
        Value::Float4(value) => value.to_string(),
        Value::Float8(value) => value.to_string(),
        Value::Decimal(value) => value.to_string(),
        Value::Text(value) => value.clone(),
        Value::Bytes(bytes) => bytes.iter().fold(r"\x".to_owned(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        }),
        Value::Date(value) => value.to_string(),
        Value::Time(value) => value.to_string(),
        Value::Timestamp(value) => value.to_string(),
        Value::TimestampTz(value) => value.to_string(),
        Value::Interval(value) => value.to_string(),
        Value::Uuid(value) => value.to_string(),
    }
}

fn parse(text: &str, ty: Type) -> Result<Value, String> {
    fn read<T: FromStr<Err: Display>>(text: &str, ty: Type, wrap: fn(T) -> Value) -> Result<Value, String> {
        text.parse().map(wrap).map_err(|error: T::Err| {
            let shown: String = text.chars().take(40).collect();
            format!("{shown:?} is no {ty}: {error}")
        })
    }
    match ty {
        Type::Boolean => read(text, ty, Value::Boolean),
        Type::Int2 => read(text, ty, Value::Int2),
        Type::Int4 => read(text, ty, Value::Int4),
        Type::Int8 => read(text, ty, Value::Int8),
        Type::Float4 => read(text, ty, Value::Float4),
        Type::Float8 => read(text, ty, Value::Float8),
        Type::Decimal { .. } => read(text, ty, Value::Decimal),
        Type::Text | Type::Varchar(_) | Type::Char(_) => Ok(Value::Text(text.to_owned())),
        Type::Bytes => bytes(text).map(Value::Bytes),
        Type::Date => read(text, ty, Value::Date),
        Type::Time => read(text, ty, Value::Time),
        Type::Timestamp => read(text, ty, Value::Timestamp),
        Type::TimestampTz => read(text, ty, Value::TimestampTz),
        Type::Interval => read(text, ty, Value::Interval),
        Type::Uuid => read(text, ty, Value::Uuid),
    }
}

fn bytes(text: &str) -> Result<Vec<u8>, String> {
    let digits = text.strip_prefix(r"\x").ok_or(r"bytes begin with \x")?;
    let digit = |digit: u8| char::from(digit).to_digit(16).ok_or("bytes have two hexadecimal digits each");
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return Err("bytes have two hexadecimal digits each".to_owned());
    }
    let byte = |[high, low]: &[u8; 2]| Ok((digit(*high)? * 16 + digit(*low)?) as u8);
    pairs.iter().map(byte).collect::<Result<_, &str>>().map_err(str::to_owned)
}
