//! Values as bytes: PostgreSQL's send and receive functions, for clients that ask for the binary format.
//!
//! Numbers are big-endian; dates and timestamps count from 2000-01-01; a numeric is digits of base 10,000 with weight, sign and
//! scale (`numeric_send`). Text is its UTF-8.

use thermocline_row::Interval;

use super::{Datum, Numeric, Type};
use crate::error::{Error, Result};

/// Days from 1970-01-01, where ours count from, to 2000-01-01.
const EPOCH_DAYS: i32 = 10_957;
const EPOCH_MICROS: i64 = EPOCH_DAYS as i64 * 86_400_000_000;

/// The first byte of a jsonb, whose text follows.
const JSONB_VERSION: u8 = 1;

const POSITIVE: u16 = 0x0000;
const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xC000;
const PLUS_INFINITY: u16 = 0xD000;
const MINUS_INFINITY: u16 = 0xF000;

impl Datum {
    /// Writes a value that is not null in the binary format of its type.
    pub fn write_binary(&self, ty: Type, out: &mut Vec<u8>) {
        match (self, ty) {
            (Datum::Null, _) => {}
            (Datum::Bool(value), _) => out.push(u8::from(*value)),
            (Datum::Int(value), Type::Int2) => out.extend((*value as i16).to_be_bytes()),
            (Datum::Int(value), ty) if ty == Type::Oid || ty.is_registered() => {
                out.extend((*value as u32).to_be_bytes());
            }
            (Datum::Text(value) | Datum::Jsonb(value), Type::Jsonb) => {
                out.push(JSONB_VERSION);
                out.extend(value.as_bytes());
            }
            (Datum::Int(value), Type::Int4) => out.extend((*value as i32).to_be_bytes()),
            (Datum::Int(value), _) => out.extend(value.to_be_bytes()),
            (Datum::Float(value), Type::Float4) => out.extend((*value as f32).to_be_bytes()),
            (Datum::Float(value), _) => out.extend(value.to_be_bytes()),
            (Datum::Numeric(value), _) => write_numeric(value, out),
            (Datum::Text(value) | Datum::Char(value) | Datum::Jsonb(value), _) => {
                out.extend(value.as_bytes());
            }
            (Datum::Bytes(value), _) => out.extend(&value[..]),
            (Datum::Date(days), _) => out.extend(match *days {
                i32::MIN | i32::MAX => days.to_be_bytes(),
                days => days.wrapping_sub(EPOCH_DAYS).to_be_bytes(),
            }),
            (Datum::Time(micros), _) => out.extend(micros.to_be_bytes()),
            (Datum::Timestamp(micros), _) => out.extend(match *micros {
                i64::MIN | i64::MAX => micros.to_be_bytes(),
                micros => micros.wrapping_sub(EPOCH_MICROS).to_be_bytes(),
            }),
            (Datum::Interval(value), _) => {
                out.extend(value.micros.to_be_bytes());
                out.extend(value.days.to_be_bytes());
                out.extend(value.months.to_be_bytes());
            }
            (Datum::Uuid(value), _) => out.extend(value),
            (Datum::Array(all), ty) => super::array::write_binary(all, ty, out),
            (Datum::Record(row), _) => row.write_binary(out),
        }
    }

    /// Reads a value in the binary format of a type.
    ///
    /// # Errors
    /// Bytes that are none of the type (22P03, 22021).
    pub fn read_binary(bytes: &[u8], ty: Type) -> Result<Self> {
        let wrong = || {
            let message = format!("incorrect binary data format for type {}", ty.sql_name());
            Error::new("22P03", message).detail(format!("The value has {} bytes.", bytes.len()))
        };
        Ok(match ty {
            Type::Bool => Datum::Bool(fixed::<1>(bytes).ok_or_else(wrong)?[0] != 0),
            Type::Int2 => Datum::Int(i16::from_be_bytes(fixed(bytes).ok_or_else(wrong)?).into()),
            Type::Int4 => Datum::Int(i32::from_be_bytes(fixed(bytes).ok_or_else(wrong)?).into()),
            Type::Oid | Type::Regclass | Type::Regtype | Type::Regnamespace | Type::Regproc => {
                Datum::Int(u32::from_be_bytes(fixed(bytes).ok_or_else(wrong)?).into())
            }
            Type::Int8 => Datum::Int(i64::from_be_bytes(fixed(bytes).ok_or_else(wrong)?)),
            Type::Float4 => Datum::Float(f32::from_be_bytes(fixed(bytes).ok_or_else(wrong)?).into()),
            Type::Float8 => Datum::Float(f64::from_be_bytes(fixed(bytes).ok_or_else(wrong)?)),
            Type::Numeric => Datum::Numeric(read_numeric(bytes).ok_or_else(wrong)?),
            Type::Text | Type::Varchar | Type::BpChar | Type::Name | Type::Char | Type::Unknown => {
                let text = std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
                let text = text.ok_or_else(|| {
                    Error::new("22021", "invalid byte sequence for encoding \"UTF8\" in a parameter")
                })?;
                Datum::text(text).in_form_of(ty)
            }
            Type::Json | Type::Jsonb => {
                let text = match (ty, bytes) {
                    (Type::Jsonb, [JSONB_VERSION, text @ ..]) => text,
                    (Type::Jsonb, _) => return Err(Error::new("XX000", "unsupported jsonb version number")),
                    _ => bytes,
                };
                let text = std::str::from_utf8(text).map_err(|_| {
                    Error::new("22021", "invalid byte sequence for encoding \"UTF8\" in a parameter")
                })?;
                super::text::input(text, ty, super::NO_MOD, &super::Local::default())?
            }
            Type::Bytea => Datum::Bytes(bytes.into()),
            Type::Date => {
                let days = i32::from_be_bytes(fixed(bytes).ok_or_else(wrong)?);
                match days {
                    i32::MIN | i32::MAX => Datum::Date(days),
                    days => {
                        Datum::Date(super::datetime::checked_date(i64::from(days) + i64::from(EPOCH_DAYS))?)
                    }
                }
            }
            Type::Time => {
                let micros = i64::from_be_bytes(fixed(bytes).ok_or_else(wrong)?);
                if !(0..=86_400_000_000).contains(&micros) {
                    return Err(Error::new("22008", "time out of range"));
                }
                Datum::Time(micros)
            }
            Type::Timestamp | Type::TimestampTz => {
                let micros = i64::from_be_bytes(fixed(bytes).ok_or_else(wrong)?);
                match micros {
                    i64::MIN | i64::MAX => Datum::Timestamp(micros),
                    micros => {
                        let micros = micros.checked_add(EPOCH_MICROS);
                        Datum::Timestamp(super::datetime::checked_timestamp(micros)?)
                    }
                }
            }
            Type::Interval => {
                let all: [u8; 16] = fixed(bytes).ok_or_else(wrong)?;
                let (micros, rest) = all.split_at(8);
                let (days, months) = rest.split_at(4);
                let int = |bytes| i32::from_be_bytes(fixed(bytes).expect("four bytes were split off"));
                let micros = i64::from_be_bytes(fixed(micros).expect("eight bytes were split off"));
                Datum::Interval(Interval::new(int(months), int(days), micros))
            }
            Type::Uuid => Datum::Uuid(fixed(bytes).ok_or_else(wrong)?),
            ty if ty.element().is_some() => super::array::read_binary(bytes, ty)?,
            _ => {
                return Err(Error::unsupported(format!("a parameter of type {}", ty.sql_name())));
            }
        })
    }
}

fn fixed<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.try_into().ok()
}

fn write_numeric(value: &Numeric, out: &mut Vec<u8>) {
    let header = |digits: usize, weight: i16, sign: u16, scale: u16, out: &mut Vec<u8>| {
        out.extend((digits as i16).to_be_bytes());
        out.extend(weight.to_be_bytes());
        out.extend(sign.to_be_bytes());
        out.extend(scale.to_be_bytes());
    };
    match value {
        Numeric::NaN => return header(0, 0, NAN, 0, out),
        Numeric::Infinity(true) => return header(0, 0, PLUS_INFINITY, 0, out),
        Numeric::Infinity(false) => return header(0, 0, MINUS_INFINITY, 0, out),
        _ => {}
    }
    let text = value.to_string();
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => (NEGATIVE, rest),
        None => (POSITIVE, &text[..]),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    // Whole groups of four digits on both sides of the point.
    let padded = format!(
        "{}{whole}{fraction}{}",
        "0".repeat((4 - whole.len() % 4) % 4),
        "0".repeat((4 - fraction.len() % 4) % 4)
    );
    let groups: Vec<u16> = padded
        .as_bytes()
        .chunks(4)
        .map(|group| group.iter().fold(0, |number, digit| number * 10 + u16::from(digit - b'0')))
        .collect();
    let mut weight = whole.len().div_ceil(4) as i16 - 1;
    let leading = groups.iter().take_while(|group| **group == 0).count();
    let trailing = groups.iter().rev().take_while(|group| **group == 0).count();
    let groups = if leading == groups.len() { &[][..] } else { &groups[leading..groups.len() - trailing] };
    weight = if groups.is_empty() { 0 } else { weight - leading as i16 };
    header(groups.len(), weight, sign, value.scale(), out);
    groups.iter().for_each(|group| out.extend(group.to_be_bytes()));
}

fn read_numeric(bytes: &[u8]) -> Option<Numeric> {
    let mut words = bytes.chunks(2).map(|pair| Some(u16::from_be_bytes(fixed(pair)?)));
    let mut next = || words.next().flatten();
    let (count, weight, sign, scale) = (next()?, next()? as i16, next()?, next()?);
    match sign {
        NAN => return Some(Numeric::NaN),
        PLUS_INFINITY => return Some(Numeric::Infinity(true)),
        MINUS_INFINITY => return Some(Numeric::Infinity(false)),
        POSITIVE | NEGATIVE => {}
        _ => return None,
    }
    let groups: Vec<u16> =
        (0..count).map(|_| next().filter(|group| *group < 10_000)).collect::<Option<_>>()?;
    let mut text = String::new();
    let group = |place: i32| {
        let at = i32::from(weight) - place;
        usize::try_from(at).ok().and_then(|at| groups.get(at)).copied().unwrap_or(0)
    };
    (0..=i32::from(weight.max(0))).rev().for_each(|place| text += &format!("{:04}", group(place)));
    let mut fraction = String::new();
    (1..=i32::from(scale.div_ceil(4))).for_each(|place| fraction += &format!("{:04}", group(-place)));
    fraction.truncate(scale.into());
    let minus = if sign == NEGATIVE { "-" } else { "" };
    let point = if fraction.is_empty() { "" } else { "." };
    Numeric::parse(&format!("{minus}{text}{point}{fraction}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(value: &Datum, ty: Type) -> String {
        let mut out = Vec::new();
        value.write_binary(ty, &mut out);
        out.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Bytes as PostgreSQL 15 sends them (`select numeric_send(…)`, `timestamp_send(…)`, …).
    #[test]
    fn bytes_are_those_of_postgresql() {
        let known = [
            (Type::Numeric, "0", "0000000000000000"),
            (Type::Numeric, "0.00", "0000000000000002"),
            (Type::Numeric, "1.50", "000200000000000200011388"),
            (Type::Numeric, "-12345.678", "0003000140000003000109291a7c"),
            (Type::Numeric, "0.00001", "0001fffe0000000503e8"),
            (Type::Numeric, "100000000", "00010002000000000001"),
            (Type::Numeric, "NaN", "00000000c0000000"),
            (Type::Date, "2000-01-02", "00000001"),
            (Type::Timestamp, "2000-01-01 00:00:01", "00000000000f4240"),
            (Type::Interval, "1 mon 2 days 00:00:03", "00000000002dc6c00000000200000001"),
            (Type::Int2, "-2", "fffe"),
            (Type::Bool, "t", "01"),
        ];
        for (ty, text, bytes) in known {
            let value =
                Datum::read(text, ty, &crate::types::Local::default()).expect("the text is one of the type");
            let written = hex(&value, ty);
            assert!(written.starts_with(bytes), "{text}: {written}, not {bytes}");
            let mut out = Vec::new();
            value.write_binary(ty, &mut out);
            assert_eq!(Datum::read_binary(&out, ty).expect("it is its own form"), value, "{text}");
        }
    }

    #[test]
    fn bytes_of_another_length_are_refused() {
        let error = Datum::read_binary(&[1, 2, 3], Type::Int4).expect_err("an integer has four bytes");
        assert_eq!(error.code, "22P03");
        let error =
            Datum::read_binary(&[0, 9, 0, 0, 0, 0, 0, 0], Type::Numeric).expect_err("digits are missing");
        assert_eq!(error.code, "22P03");
        assert_eq!(Datum::read_binary(&[0xff], Type::Text).expect_err("no UTF-8").code, "22021");
    }
}
