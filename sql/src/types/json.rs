//! JSON: what `json` and `jsonb` hold, opened level by level.
//!
//! Both are texts here. A `json` stands as it was written; a `jsonb` stands in the form that PostgreSQL prints: one blank behind
//! commas and colons, keys by length and then by bytes, each once (the last one counts), numbers as `numeric` prints them. So
//! equal values of `jsonb` have equal texts, but for zeros at the end of a number, which [`compare_equal`] looks through.
//!
//! serde_json parses; a value is opened ([`open`]) one level at a time, its parts staying texts until something asks for them, so
//! that taking a field out of a document reads over the rest once and copies nothing. Limit: [`LEVELS`] levels.

use std::cmp::Ordering;
use std::fmt::Write;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{Numeric, order_bytes};
use crate::error::{Error, Result};

/// A value whose parts are still texts.
pub(crate) enum Json<'t> {
    Null,
    Bool(bool),
    /// As it was written.
    Number(&'t str),
    Text(String),
    Array(Vec<&'t str>),
    /// Keys and values in their order, repeated ones too.
    Object(Vec<(String, &'t str)>),
}

/// The fields of an object as they stand there.
struct Fields<'t>(Vec<(String, &'t str)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct Seen;
        impl<'de> Visitor<'de> for Seen {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Fields<'de>, A::Error> {
                let mut all = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, &'de RawValue>()? {
                    all.push((key, value.get()));
                }
                Ok(Fields(all))
            }
        }
        from.deserialize_map(Seen)
    }
}

/// Levels of nesting, since what goes through a value calls itself for each.
const LEVELS: usize = 500;

fn invalid(error: &serde_json::Error) -> Error {
    Error::new("22P02", "invalid input syntax for type json").detail(format!("JSON parser: {error}."))
}

/// Refuses a text with more than [`LEVELS`] levels.
pub(crate) fn check_depth(text: &str) -> Result<()> {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'[' | b'{' if !quoted => depth += 1,
            b']' | b'}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > LEVELS {
            let hint = format!("JSON is nested in {LEVELS} levels at most.");
            return Err(Error::new("54001", "stack depth limit exceeded").hint(hint));
        }
    }
    Ok(())
}

/// Is the text JSON?
pub(crate) fn check(text: &str) -> Result<()> {
    check_depth(text)?;
    serde_json::from_str::<IgnoredAny>(text).map(drop).map_err(|error| invalid(&error))
}

/// Reads the outermost level of a value.
pub(crate) fn open(text: &str) -> Result<Json<'_>> {
    let text = text.trim_matches([' ', '\t', '\n', '\r']);
    fn read<'t, T: Deserialize<'t>>(text: &'t str) -> Result<T> {
        serde_json::from_str(text).map_err(|error| invalid(&error))
    }
    Ok(match text.as_bytes().first() {
        Some(b'{') => Json::Object(read::<Fields<'_>>(text)?.0),
        Some(b'[') => Json::Array(read::<Vec<&RawValue>>(text)?.into_iter().map(RawValue::get).collect()),
        Some(b'"') => Json::Text(read(text)?),
        _ => match read::<&RawValue>(text)?.get() {
            "null" => Json::Null,
            "true" => Json::Bool(true),
            "false" => Json::Bool(false),
            number => Json::Number(number),
        },
    })
}

/// The text of a timestamp as ISO 8601 writes it: a `T` between date and time, and minutes in each offset.
pub(crate) fn moment(shown: &str) -> String {
    let (body, era) = match shown.strip_suffix(" BC") {
        Some(body) => (body, " BC"),
        None => (shown, ""),
    };
    let offset = body.split_once(':').and_then(|(_, rest)| rest.split_once(['+', '-']));
    let minutes = if offset.is_some_and(|(_, digits)| digits.len() == 2) { ":00" } else { "" };
    format!("{}{minutes}{era}", body.replacen(' ', "T", 1))
}

/// Writes a string with its quotes and escapes.
pub(crate) fn quote(text: &str, out: &mut String) {
    out.push('"');
    for sign in text.chars() {
        match sign {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            sign if sign < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(sign));
            }
            sign => out.push(sign),
        }
    }
    out.push('"');
}

/// A number as `numeric` has it.
pub(crate) fn number(text: &str) -> Result<Numeric> {
    let out = || Error::new("22003", "value overflows numeric format");
    let value = Numeric::parse(text).ok_or_else(out)?;
    Ok(if text.starts_with('-') && value.signum() == 0 { value.abs() } else { value })
}

/// The fields of an object as `jsonb` has them: each key once, by length and then by bytes.
pub(crate) fn sorted_fields<V>(fields: Vec<(String, V)>) -> Vec<(String, V)> {
    let mut numbered: Vec<(usize, (String, V))> = fields.into_iter().enumerate().collect();
    numbered.sort_by(|(m, (a, _)), (n, (b, _))| {
        // The last of equal keys comes first, and stays.
        a.len().cmp(&b.len()).then_with(|| a.cmp(b)).then_with(|| n.cmp(m))
    });
    numbered.dedup_by(|(_, (a, _)), (_, (b, _))| a == b);
    numbered.into_iter().map(|(_, field)| field).collect()
}

/// The text in the form of `jsonb`.
pub(crate) fn normal(text: &str) -> Result<String> {
    check_depth(text)?;
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    write_normal(text, &mut out)?;
    Ok(out)
}

fn write_normal(text: &str, out: &mut String) -> Result<()> {
    match open(text)? {
        Json::Null => out.push_str("null"),
        Json::Bool(value) => out.push_str(if value { "true" } else { "false" }),
        Json::Number(digits) => {
            let _ = write!(out, "{}", number(digits)?);
        }
        Json::Text(text) => quote(&storable(text)?, out),
        Json::Array(items) => {
            out.push('[');
            for (place, item) in items.into_iter().enumerate() {
                if place > 0 {
                    out.push_str(", ");
                }
                write_normal(item, out)?;
            }
            out.push(']');
        }
        Json::Object(fields) => {
            out.push('{');
            for (place, (key, value)) in sorted_fields(fields).into_iter().enumerate() {
                if place > 0 {
                    out.push_str(", ");
                }
                quote(&storable(key)?, out);
                out.push_str(": ");
                write_normal(value, out)?;
            }
            out.push('}');
        }
    }
    Ok(())
}

/// A string that a text can hold.
pub(crate) fn storable(text: String) -> Result<String> {
    if text.contains('\0') {
        return Err(Error::new("22P05", "unsupported Unicode escape sequence")
            .detail("\\u0000 cannot be converted to text."));
    }
    Ok(text)
}

/// What kind of value it is, as `json_typeof` says.
pub(crate) fn kind(text: &str) -> &'static str {
    match text.trim_start_matches([' ', '\t', '\n', '\r']).as_bytes().first() {
        Some(b'{') => "object",
        Some(b'[') => "array",
        Some(b'"') => "string",
        Some(b't' | b'f') => "boolean",
        Some(b'n') => "null",
        _ => "number",
    }
}

/// A value as `->>` gives it: a string without its quotes; none is null.
pub(crate) fn bare(text: &str) -> Result<Option<String>> {
    Ok(match open(text)? {
        Json::Null => None,
        Json::Text(text) => Some(storable(text)?),
        _ => Some(text.to_owned()),
    })
}

/// The field of an object; the last one of that name.
pub(crate) fn field<'t>(text: &'t str, key: &str) -> Result<Option<&'t str>> {
    Ok(match open(text)? {
        Json::Object(fields) => {
            fields.into_iter().rev().find(|(known, _)| known == key).map(|(_, value)| value)
        }
        _ => None,
    })
}

/// The element of an array; from its end where the place is negative.
pub(crate) fn element(text: &str, place: i64) -> Result<Option<&str>> {
    Ok(match open(text)? {
        Json::Array(items) => at(place, items.len()).map(|place| items[place]),
        _ => None,
    })
}

/// A place among so many; negative ones count from the end.
pub(crate) fn at(place: i64, count: usize) -> Option<usize> {
    let place = if place < 0 { place.checked_add(i64::try_from(count).ok()?)? } else { place };
    usize::try_from(place).ok().filter(|place| *place < count)
}

/// Are two values of `jsonb` the same? Numbers are by their value.
pub(crate) fn compare_equal(a: &str, b: &str) -> Result<bool> {
    Ok(a == b || compare(a, b)?.is_eq())
}

/// The order of two values of `jsonb`; of texts that are none, that of texts.
pub(crate) fn order(a: &str, b: &str) -> Ordering {
    if a == b { Ordering::Equal } else { compare(a, b).unwrap_or_else(|_| a.cmp(b)) }
}

/// Hashes a value of `jsonb`: equal values alike, numbers by their values.
pub(crate) fn hash<H: std::hash::Hasher>(text: &str, state: &mut H) {
    match open(text) {
        Ok(Json::Number(digits)) => match number(digits) {
            Ok(number) => super::datum::hash_numeric(&number, state),
            Err(_) => state.write(digits.as_bytes()),
        },
        Ok(Json::Array(items)) => {
            state.write_usize(items.len());
            items.into_iter().for_each(|item| hash(item, state));
        }
        Ok(Json::Object(fields)) => {
            state.write_usize(fields.len());
            for (key, value) in fields {
                state.write(key.as_bytes());
                hash(value, state);
            }
        }
        Ok(Json::Null | Json::Bool(_) | Json::Text(_)) | Err(_) => state.write(text.as_bytes()),
    }
}

/// Appends bytes of a value of `jsonb` whose order is [`order`].
pub(super) fn write_order(text: &str, to: &mut Vec<u8>) {
    let begin = to.len();
    if text == "[]" {
        to.push(0);
    } else if write_order_within(text, to).is_err() {
        to.truncate(begin);
        to.push(u8::MAX);
        order_bytes::write_bytes(text.as_bytes(), to);
    }
}

fn write_order_within(text: &str, to: &mut Vec<u8>) -> Result<()> {
    let write_count = |count: usize, to: &mut Vec<u8>| to.extend((count as u64).to_be_bytes());
    match open(text)? {
        Json::Null => to.push(1),
        Json::Text(text) => {
            to.push(2);
            order_bytes::write_bytes(text.as_bytes(), to);
        }
        Json::Number(digits) => {
            to.push(3);
            order_bytes::write_numeric(&number(digits)?, to);
        }
        Json::Bool(value) => to.extend([4, u8::from(value)]),
        Json::Array(items) => {
            to.push(5);
            write_count(items.len(), to);
            items.into_iter().try_for_each(|item| write_order_within(item, to))?;
        }
        Json::Object(fields) => {
            to.push(6);
            write_count(fields.len(), to);
            for (key, value) in fields {
                order_bytes::write_bytes(key.as_bytes(), to);
                write_order_within(value, to)?;
            }
        }
    }
    Ok(())
}

/// The order of two values of `jsonb`: null, strings, numbers, booleans, arrays, objects; of two containers the one with more
/// elements is greater, then the first elements that differ decide. As in PostgreSQL, an empty array that is the whole value is
/// below everything.
pub(crate) fn compare(a: &str, b: &str) -> Result<Ordering> {
    match (a, b) {
        ("[]", "[]") => Ok(Ordering::Equal),
        ("[]", _) if kind(b) != "array" => Ok(Ordering::Less),
        (_, "[]") if kind(a) != "array" => Ok(Ordering::Greater),
        _ => compare_within(a, b),
    }
}

fn compare_within(a: &str, b: &str) -> Result<Ordering> {
    fn rank(value: &Json<'_>) -> u8 {
        match value {
            Json::Null => 0,
            Json::Text(_) => 1,
            Json::Number(_) => 2,
            Json::Bool(_) => 3,
            Json::Array(_) => 4,
            Json::Object(_) => 5,
        }
    }
    fn first(mut orders: impl Iterator<Item = Result<Ordering>>) -> Result<Ordering> {
        orders.find(|order| !matches!(order, Ok(Ordering::Equal))).unwrap_or(Ok(Ordering::Equal))
    }
    match (open(a)?, open(b)?) {
        (Json::Array(a), Json::Array(b)) => match a.len().cmp(&b.len()) {
            Ordering::Equal => first(a.iter().zip(&b).map(|(a, b)| compare_within(a, b))),
            other => Ok(other),
        },
        (Json::Object(a), Json::Object(b)) => match a.len().cmp(&b.len()) {
            Ordering::Equal => first(a.iter().zip(&b).map(|((m, a), (n, b))| {
                let keys = m.cmp(n);
                if keys.is_eq() { compare_within(a, b) } else { Ok(keys) }
            })),
            other => Ok(other),
        },
        (Json::Text(a), Json::Text(b)) => Ok(a.cmp(&b)),
        (Json::Number(a), Json::Number(b)) => Ok(number(a)?.compare(&number(b)?)),
        (Json::Bool(a), Json::Bool(b)) => Ok(a.cmp(&b)),
        (a, b) => Ok(rank(&a).cmp(&rank(&b))),
    }
}

/// Does a value of `jsonb` contain another one (`@>`)?
pub(crate) fn contains(whole: &str, part: &str) -> Result<bool> {
    contains_inside(whole, part, true)
}

fn contains_inside(whole: &str, part: &str, outermost: bool) -> Result<bool> {
    match (open(whole)?, open(part)?) {
        (Json::Object(all), Json::Object(wanted)) => {
            for (key, value) in &wanted {
                let found = all.iter().find(|(known, _)| known == key);
                match found {
                    Some((_, found)) if contains_inside(found, value, false)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
        (Json::Array(all), Json::Array(wanted)) => {
            for value in &wanted {
                let mut found = false;
                for item in &all {
                    // An element is found as a whole, or as a container of what is wanted.
                    found = found || contains_inside(item, value, false)?;
                }
                if !found {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Json::Array(all), Json::Null | Json::Bool(_) | Json::Number(_) | Json::Text(_)) if outermost => {
            all.iter().try_fold(false, |found, item| Ok(found || compare_equal(item, part)?))
        }
        (Json::Null | Json::Bool(_) | Json::Number(_) | Json::Text(_), _) => compare_equal(whole, part),
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_jsonb() {
        let form = |text: &str| normal(text).expect("it is JSON");
        assert_eq!(
            form(r#" {"bb":1,"a":[1,2.50,1e2,-0] , "a":null,"c":"\u0041\n"} "#),
            r#"{"a": null, "c": "A\n", "bb": 1}"#
        );
        assert_eq!(form("[1,2.50,1e2,-0]"), "[1, 2.50, 100, 0]");
        assert_eq!(normal(r#"{"a":}"#).expect_err("it is none").code, "22P02");
        assert_eq!(normal(r#""\u0000""#).expect_err("no text holds it").code, "22P05");
        assert_eq!(normal(&"[".repeat(100_000)).expect_err("it is too deep").code, "54001");
    }

    #[test]
    fn equal_numbers_are_equal() {
        assert_eq!(compare_equal(r#"{"a": [1.0]}"#, r#"{"a": [1]}"#), Ok(true));
        assert_eq!(compare_equal("[1]", "[1, 1]"), Ok(false));
    }
}
