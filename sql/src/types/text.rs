//! Values as text, and text as values: PostgreSQL's input and output functions.

use std::fmt::Write;

use super::datetime;
use super::interval::{self, Limits};
use super::{Datum, Local, NO_MOD, Numeric, Type, Zone, numeric_parts};
use crate::error::{Error, Result};

fn invalid(ty: Type, text: &str) -> Error {
    Error::new("22P02", format!("invalid input syntax for type {}: \"{text}\"", ty.sql_name()))
}

fn trimmed(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c'])
}

/// Reads a value.
pub(crate) fn input(text: &str, ty: Type, modifier: i32, local: &Local) -> Result<Datum> {
    let value = match ty {
        Type::Bool => Datum::Bool(boolean(text).ok_or_else(|| invalid(ty, text))?),
        Type::Int2 | Type::Int4 | Type::Int8 => Datum::Int(integer(text, ty)?),
        Type::Float4 | Type::Float8 => Datum::Float(float(text, ty)?),
        Type::Numeric => Datum::Numeric(Numeric::parse(text).ok_or_else(|| invalid(ty, text))?),
        Type::Text | Type::Varchar | Type::Unknown => Datum::text(text),
        Type::Name => Datum::text(crate::names::fitting(text)),
        Type::BpChar => Datum::Char(text.into()),
        Type::Json => {
            super::json::check(text)?;
            Datum::text(text)
        }
        Type::Jsonb => Datum::Jsonb(super::json::normal(text)?.into()),
        Type::Oid | Type::Regclass | Type::Regtype | Type::Regnamespace | Type::Regproc => {
            let number = trimmed(text).parse::<i64>().map_err(|_| invalid(ty, text))?;
            Datum::Int(
                u32::try_from(number)
                    .or(i32::try_from(number).map(i32::cast_unsigned))
                    .map_err(|_| {
                        Error::new("22003", format!("value \"{text}\" is out of range for type oid"))
                    })?
                    .into(),
            )
        }
        Type::Char => Datum::text(text.chars().next().map_or(String::new(), String::from)),
        Type::Bytea => Datum::Bytes(bytes(text)?.into()),
        Type::Date => Datum::Date(datetime::parse_date(text, local)?),
        Type::Time => Datum::Time(datetime::parse_time(text, local)?),
        Type::Timestamp => Datum::Timestamp(datetime::parse_timestamp(text, false, local)?),
        Type::TimestampTz => Datum::Timestamp(datetime::parse_timestamp(text, true, local)?),
        Type::Interval => {
            let limits = if modifier >= 0 {
                let fields = i64::from(modifier & 0xff);
                Limits { first: Some(fields / 10), last: Some(fields % 10) }
            } else {
                Limits::default()
            };
            Datum::Interval(interval::parse(text, limits)?)
        }
        Type::Uuid => Datum::Uuid(uuid(text).ok_or_else(|| invalid(ty, text))?),
        ty if ty.element().is_some() => super::array::input(text, ty, modifier, local)?,
        Type::Record => {
            return Err(Error::new("0A000", "input of anonymous composite types is not implemented"));
        }
        _ => Datum::Null,
    };
    if modifier == NO_MOD { Ok(value) } else { fit(value, ty, modifier, false) }
}

/// A value brought to the modifier of its type: lengths, scales, digits of a second. An `explicit` cast cuts text in silence.
pub(crate) fn fit(value: Datum, ty: Type, modifier: i32, explicit: bool) -> Result<Datum> {
    Ok(match (value, ty) {
        (Datum::Array(all), ty) => {
            let element = ty.element().expect("an array has elements");
            let fitted = all.iter().map(|value| fit(value.clone(), element, modifier, explicit));
            Datum::Array(fitted.collect::<Result<_>>()?)
        }
        (Datum::Numeric(number), Type::Numeric) => match numeric_parts(modifier) {
            Some((precision, scale)) => Datum::Numeric(number.fit(precision, scale)?),
            None => Datum::Numeric(number),
        },
        (Datum::Text(text), Type::Varchar) if modifier >= 4 => {
            let most = (modifier - 4) as usize;
            match text.char_indices().nth(most) {
                None => Datum::Text(text),
                Some((at, _)) if explicit || text[at..].bytes().all(|byte| byte == b' ') => {
                    Datum::text(&text[..at])
                }
                Some(_) => return Err(too_long(ty, most)),
            }
        }
        (Datum::Text(text) | Datum::Char(text), Type::BpChar) if modifier >= 4 => {
            let wanted = (modifier - 4) as usize;
            match text.char_indices().nth(wanted) {
                None => Datum::Char(padded(&text, wanted)),
                Some((at, _)) if explicit || text[at..].bytes().all(|byte| byte == b' ') => {
                    Datum::Char(text[..at].into())
                }
                Some(_) => return Err(too_long(ty, wanted)),
            }
        }
        (Datum::Timestamp(micros), _) => Datum::Timestamp(datetime::round_micros(micros, modifier)),
        (Datum::Time(micros), _) => Datum::Time(datetime::round_micros(micros, modifier)),
        (Datum::Interval(value), Type::Interval) if modifier >= 0 => {
            let digits = (modifier >> 8) & 0xff;
            let digits = if digits == 0 { None } else { Some(digits - 1) };
            Datum::Interval(interval::adjust(value, i64::from(modifier & 0xff) % 10, digits))
        }
        (value, _) => value,
    })
}

/// A text with blanks behind it, so that it has so many characters.
pub(crate) fn padded(text: &str, characters: usize) -> std::sync::Arc<str> {
    // Most texts are ASCII: bytes are characters.
    let has = if text.is_ascii() { text.len() } else { text.chars().count() };
    if has >= characters {
        return text.into();
    }
    let mut whole = String::with_capacity(text.len() + characters - has);
    whole.push_str(text);
    whole.extend(std::iter::repeat_n(' ', characters - has));
    whole.into()
}

fn too_long(ty: Type, most: usize) -> Error {
    Error::new("22001", format!("value too long for type {}({most})", ty.sql_name()))
}

fn boolean(text: &str) -> Option<bool> {
    let word = trimmed(text).to_ascii_lowercase();
    if word.is_empty() {
        return None;
    }
    let is = |whole: &str, least: usize| word.len() >= least && whole.starts_with(&word);
    if is("true", 1) || is("yes", 1) || is("on", 2) || word == "1" {
        Some(true)
    } else if is("false", 1) || is("no", 1) || is("off", 2) || word == "0" {
        Some(false)
    } else {
        None
    }
}

/// A whole number of the type's width.
fn integer(text: &str, ty: Type) -> Result<i64> {
    let digits = trimmed(text);
    let bare = digits.strip_prefix(['+', '-']).unwrap_or(digits);
    if bare.is_empty() || !bare.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(invalid(ty, text));
    }
    let number = digits.parse::<i64>().ok().filter(|number| fits(*number, ty));
    number.ok_or_else(|| {
        Error::new("22003", format!("value \"{text}\" is out of range for type {}", ty.sql_name()))
    })
}

/// Is the number one of the integer type?
pub(crate) fn fits(number: i64, ty: Type) -> bool {
    match ty {
        Type::Int2 => i16::try_from(number).is_ok(),
        Type::Int4 => i32::try_from(number).is_ok(),
        _ => true,
    }
}

fn float(text: &str, ty: Type) -> Result<f64> {
    let word = trimmed(text);
    let lower = word.to_ascii_lowercase();
    let bare = lower.strip_prefix(['+', '-']).unwrap_or(&lower);
    if !bare.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && !["nan", "inf", "infinity"].contains(&bare)
    {
        return Err(invalid(ty, text));
    }
    let out = || Error::new("22003", format!("\"{text}\" is out of range for type {}", ty.sql_name()));
    let special = !bare.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let nonzero = bare.split('e').next().unwrap_or("").bytes().any(|byte| (b'1'..=b'9').contains(&byte));
    let value = if ty == Type::Float4 {
        f64::from(lower.parse::<f32>().map_err(|_| invalid(ty, text))?)
    } else {
        lower.parse::<f64>().map_err(|_| invalid(ty, text))?
    };
    if !special && (value.is_infinite() || (value == 0.0 && nonzero)) {
        return Err(out());
    }
    Ok(value)
}

/// The bytes that a text of a `bytea` means: of `\x` and hexadecimal digits, or with escapes.
pub(crate) fn bytes(text: &str) -> Result<Vec<u8>> {
    if let Some(digits) = text.strip_prefix("\\x") {
        let mut all = Vec::with_capacity(digits.len() / 2);
        let mut high = None;
        for sign in digits.chars() {
            let Some(digit) = sign.to_digit(16) else {
                if sign.is_ascii_whitespace() && high.is_none() {
                    continue;
                }
                return Err(Error::new("22023", format!("invalid hexadecimal digit: \"{sign}\"")));
            };
            match high.take() {
                None => high = Some(digit),
                Some(high) => all.push((high * 16 + digit) as u8),
            }
        }
        if high.is_some() {
            return Err(Error::new("22023", "invalid hexadecimal data: odd number of digits"));
        }
        return Ok(all);
    }
    escaped_bytes(text)
}

/// Bytes of a text in which `\\nnn` is an octal number, and `\\\\` a backslash.
pub(crate) fn escaped_bytes(text: &str) -> Result<Vec<u8>> {
    let mut all = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = match (first, after) {
            (b'\\', [b'\\', after @ ..]) => {
                all.push(b'\\');
                after
            }
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                all.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
                after
            }
            (b'\\', _) => return Err(Error::new("22P02", "invalid input syntax for type bytea")),
            (byte, after) => {
                all.push(*byte);
                after
            }
        };
    }
    Ok(all)
}

fn uuid(text: &str) -> Option<[u8; 16]> {
    let body = match text.strip_prefix('{') {
        Some(inner) => inner.strip_suffix('}')?,
        None => text,
    };
    let mut out = [0; 16];
    let mut count = 0;
    let mut bytes = body.bytes();
    while let Some(mut byte) = bytes.next() {
        // A hyphen may stand behind each group of four digits.
        if byte == b'-' && count > 0 && count % 4 == 0 && count < 32 {
            byte = bytes.next()?;
        }
        let digit = char::from(byte).to_digit(16)? as u8;
        *out.get_mut(count / 2)? |= if count % 2 == 0 { digit << 4 } else { digit };
        count += 1;
    }
    (count == 32).then_some(out)
}

/// Writes a value that is not null; times with a zone as `zone` shows them.
pub(crate) fn output(value: &Datum, ty: Type, zone: &Zone, out: &mut String) {
    match value {
        Datum::Null => {}
        Datum::Bool(value) => out.push(if *value { 't' } else { 'f' }),
        Datum::Int(value) => {
            let _ = write!(out, "{value}");
        }
        Datum::Float(value) => show_float(*value, ty == Type::Float4, out),
        Datum::Numeric(value) => {
            let _ = write!(out, "{value}");
        }
        Datum::Text(value) | Datum::Char(value) | Datum::Jsonb(value) => out.push_str(value),
        Datum::Bytes(value) => {
            out.push_str("\\x");
            for byte in value.iter() {
                let _ = write!(out, "{byte:02x}");
            }
        }
        Datum::Date(value) => out.push_str(&datetime::show_date(*value)),
        Datum::Time(value) => out.push_str(&datetime::show_time(*value)),
        Datum::Timestamp(value) => {
            out.push_str(&datetime::show_timestamp(*value, (ty == Type::TimestampTz).then_some(zone)));
        }
        Datum::Interval(value) => out.push_str(&interval::show(*value)),
        Datum::Uuid(value) => {
            for (index, byte) in value.iter().enumerate() {
                if [4, 6, 8, 10].contains(&index) {
                    out.push('-');
                }
                let _ = write!(out, "{byte:02x}");
            }
        }
        Datum::Record(row) => row.output(zone, out),
        Datum::Array(all) => super::array::output(all, ty, zone, out),
    }
}

impl Datum {
    /// Reads a value of a type from its text, as a parameter is read.
    ///
    /// # Errors
    /// Text that is none of the type (22P02, 22003, 22007, …).
    pub fn read(text: &str, ty: Type, local: &Local) -> Result<Self> {
        input(text, ty, NO_MOD, local)
    }
}

/// The value as a constant of SQL with its type, as PostgreSQL shows those of kept expressions (`get_const_expr`).
pub(crate) fn constant(value: &Datum, ty: Type) -> String {
    let shown = show(value, ty, &Zone::UTC);
    let plain = match ty {
        _ if value.is_null() => return format!("NULL::{}", ty.sql_name()),
        Type::Bool => return if shown == "t" { "true" } else { "false" }.to_owned(),
        Type::Int4 => !shown.starts_with('-'),
        Type::Numeric => shown.starts_with(|sign: char| sign.is_ascii_digit()) && shown.contains(['.', 'e']),
        _ => false,
    };
    let ty = if ty == Type::BpChar { "bpchar" } else { ty.sql_name() };
    if plain { shown } else { format!("'{}'::{ty}", shown.replace('\'', "''")) }
}

/// A text as a literal of SQL.
pub(crate) fn literal(text: &str) -> String {
    let body = text.replace('\'', "''");
    if text.contains('\\') { format!("E'{}'", body.replace('\\', "\\\\")) } else { format!("'{body}'") }
}

/// The text of a value that is not null.
pub(crate) fn show(value: &Datum, ty: Type, zone: &Zone) -> String {
    let mut out = String::new();
    output(value, ty, zone, &mut out);
    out
}

/// Do the digits stand exactly between the number and one of its neighbours? Possible for large whole numbers only.
fn is_halfway(scientific: &str, value: f64) -> bool {
    let bits = value.abs().to_bits();
    let exponent = (bits >> 52) as i32 - 1075;
    if !(1..64).contains(&exponent) {
        return false;
    }
    let (Some(digits), mantissa) = (Numeric::parse(scientific), i128::from(bits & ((1 << 52) - 1) | 1 << 52))
    else {
        return false;
    };
    let Some((whole, 0)) = digits.abs().to_i128() else { return false };
    let half = 1i128 << (exponent - 1);
    whole == (2 * mantissa + 1) * half || whole == (2 * mantissa - 1) * half
}

/// The shortest digits that read as the same number; with an exponent below 10^-4 and from 10^15 (`real`: 10^6) on.
fn show_float(value: f64, single: bool, out: &mut String) {
    if value.is_nan() {
        return out.push_str("NaN");
    }
    if value.is_infinite() {
        return out.push_str(if value > 0.0 { "Infinity" } else { "-Infinity" });
    }
    let mut scientific = if single { format!("{:e}", value as f32) } else { format!("{value:e}") };
    if !single && is_halfway(&scientific, value) {
        // PostgreSQL wants digits nearer to this number than to any other, whatever a reader makes of the middle.
        let longer = [15, 16].into_iter().map(|digits| format!("{value:.digits$e}"));
        scientific = longer.into_iter().find(|text| text.parse() == Ok(value)).unwrap_or(scientific);
    }
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(positive) => ("-", positive),
        None => ("", mantissa),
    };
    out.push_str(sign);
    let most = if single { 6 } else { 15 };
    if !(-4..most).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "{mantissa}e{sign}{:02}", exponent.abs());
        return;
    }
    let digits: String = mantissa.chars().filter(|c| *c != '.').collect();
    if exponent < 0 {
        let _ = write!(out, "0.{}{digits}", "0".repeat((-exponent - 1) as usize));
        return;
    }
    let whole = exponent as usize + 1;
    if digits.len() <= whole {
        let _ = write!(out, "{digits}{}", "0".repeat(whole - digits.len()));
    } else {
        let _ = write!(out, "{}.{}", &digits[..whole], &digits[whole..]);
    }
}
