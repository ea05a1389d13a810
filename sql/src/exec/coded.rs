//! Values as bytes, for rows that a statement keeps.
//!
//! ```text
//! row: its values    value: a tag of one byte │ what the tag says
//!                    integers and what counts like them │ LEB128 of the zigzag
//!                    text, bytes                        │ length as LEB128 │ the bytes
//!                    arrays, row values                 │ length as LEB128 │ the values; before that of a row value its shape's number
//!                    numbers of more than 64 bits       │ scale │ length │ the bytes of the mantissa
//!                    char(n), without blanks            │ n │ length │ the bytes
//! ```
//!
//! *Flat* values are those that have no others within them and fit into few bytes or are strings; a [`Coder`] writes all.

use std::sync::Arc;

use thermocline_row::Interval;

use crate::types::{Datum, Numeric, Record, Shape, text};

/// Kinds of values.
mod tag {
    pub(super) const NULL: u8 = 0;
    pub(super) const FALSE: u8 = 1;
    pub(super) const TRUE: u8 = 2;
    pub(super) const INT: u8 = 3;
    pub(super) const FLOAT: u8 = 4;
    pub(super) const NUMERIC: u8 = 5;
    pub(super) const TEXT: u8 = 6;
    pub(super) const BYTES: u8 = 7;
    pub(super) const DATE: u8 = 8;
    pub(super) const TIME: u8 = 9;
    pub(super) const TIMESTAMP: u8 = 10;
    pub(super) const INTERVAL: u8 = 11;
    pub(super) const UUID: u8 = 12;
    pub(super) const BESIDE: u8 = 13;
    pub(super) const CHAR: u8 = 14;
    pub(super) const JSONB: u8 = 15;
    pub(super) const NAN: u8 = 16;
    pub(super) const INFINITY: u8 = 17;
    pub(super) const BIG: u8 = 18;
    pub(super) const ARRAY: u8 = 19;
    pub(super) const RECORD: u8 = 20;
    pub(super) const CHARS: u8 = 21;
}

pub(super) fn write_unsigned(mut value: u64, to: &mut Vec<u8>) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

pub(super) fn read_unsigned(from: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = take(from, 1)[0];
        value |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return value;
        }
        shift += 7;
    }
}

fn write_signed(value: i64, to: &mut Vec<u8>) {
    write_unsigned((value << 1 ^ value >> 63) as u64, to);
}

fn read_signed(from: &mut &[u8]) -> i64 {
    let value = read_unsigned(from);
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

fn take<'b>(from: &mut &'b [u8], count: usize) -> &'b [u8] {
    let (taken, rest) = from.split_at(count);
    *from = rest;
    taken
}

fn take_array<const N: usize>(from: &mut &[u8]) -> [u8; N] {
    take(from, N).try_into().expect("as many were taken")
}

/// Writes a value; `false`: only that it is none of the flat ones, and stands elsewhere.
pub(super) fn write_flat(value: &Datum, to: &mut Vec<u8>) -> bool {
    let mut tagged = |tag: u8, value: i64| {
        to.push(tag);
        write_signed(value, to);
    };
    match value {
        Datum::Null => to.push(tag::NULL),
        Datum::Bool(value) => to.push(if *value { tag::TRUE } else { tag::FALSE }),
        Datum::Int(value) => tagged(tag::INT, *value),
        Datum::Date(value) => tagged(tag::DATE, i64::from(*value)),
        Datum::Time(value) => tagged(tag::TIME, *value),
        Datum::Timestamp(value) => tagged(tag::TIMESTAMP, *value),
        Datum::Numeric(Numeric::Small(value, scale)) => {
            tagged(tag::NUMERIC, *value);
            write_unsigned(u64::from(*scale), to);
        }
        Datum::Float(value) => {
            to.push(tag::FLOAT);
            to.extend_from_slice(&value.to_bits().to_le_bytes());
        }
        Datum::Text(text) | Datum::Char(text) | Datum::Jsonb(text) => {
            to.push(match value {
                Datum::Char(_) => tag::CHAR,
                Datum::Jsonb(_) => tag::JSONB,
                _ => tag::TEXT,
            });
            write_unsigned(text.len() as u64, to);
            to.extend_from_slice(text.as_bytes());
        }
        Datum::Bytes(bytes) => {
            to.push(tag::BYTES);
            write_unsigned(bytes.len() as u64, to);
            to.extend_from_slice(bytes);
        }
        Datum::Interval(value) => {
            to.push(tag::INTERVAL);
            write_signed(i64::from(value.months), to);
            write_signed(i64::from(value.days), to);
            write_signed(value.micros, to);
        }
        Datum::Uuid(bytes) => {
            to.push(tag::UUID);
            to.extend_from_slice(bytes);
        }
        Datum::Numeric(_) | Datum::Record(_) | Datum::Array(_) => {
            to.push(tag::BESIDE);
            return false;
        }
    }
    true
}

/// Reads a value; none: it stands elsewhere.
pub(super) fn read_flat(from: &mut &[u8]) -> Option<Datum> {
    Some(match take(from, 1)[0] {
        tag::NULL => Datum::Null,
        tag::FALSE => Datum::Bool(false),
        tag::TRUE => Datum::Bool(true),
        tag::INT => Datum::Int(read_signed(from)),
        tag::DATE => Datum::Date(read_signed(from) as i32),
        tag::TIME => Datum::Time(read_signed(from)),
        tag::TIMESTAMP => Datum::Timestamp(read_signed(from)),
        tag::NUMERIC => Datum::Numeric(Numeric::Small(read_signed(from), read_unsigned(from) as u16)),
        tag::FLOAT => Datum::Float(f64::from_bits(u64::from_le_bytes(take_array(from)))),
        kind @ (tag::TEXT | tag::CHAR | tag::JSONB) => {
            let length = read_unsigned(from) as usize;
            let text = Arc::from(std::str::from_utf8(take(from, length)).expect("a text was written"));
            match kind {
                tag::CHAR => Datum::Char(text),
                tag::JSONB => Datum::Jsonb(text),
                _ => Datum::Text(text),
            }
        }
        tag::BYTES => {
            let length = read_unsigned(from) as usize;
            Datum::Bytes(Arc::from(take(from, length)))
        }
        tag::INTERVAL => Datum::Interval(Interval::new(
            read_signed(from) as i32,
            read_signed(from) as i32,
            read_signed(from),
        )),
        tag::UUID => Datum::Uuid(take_array(from)),
        tag::BESIDE => return None,
        other => panic!("no value was written with the tag {other}"),
    })
}

/// A value as it stands in bytes, where a column of it needs no more.
pub(super) enum Raw<'b> {
    Null,
    Bool(bool),
    Int(i64),
    Date(i64),
    Time(i64),
    Timestamp(i64),
    /// A number times 10^scale.
    Scaled(i64, u16),
    Text(&'b [u8]),
    /// Of so many characters, blanks included, which do not stand here.
    Chars(usize, &'b [u8]),
    Bytes(&'b [u8]),
    Other(Datum),
}

/// Writes a text of `char(n)` that stands without its blanks.
pub(super) fn write_chars(characters: usize, text: &[u8], to: &mut Vec<u8>) {
    to.push(tag::CHARS);
    write_unsigned(characters as u64, to);
    write_unsigned(text.len() as u64, to);
    to.extend_from_slice(text);
}

/// Writes a text, or bytes.
pub(super) fn write_string(is_text: bool, bytes: &[u8], to: &mut Vec<u8>) {
    to.push(if is_text { tag::TEXT } else { tag::BYTES });
    write_unsigned(bytes.len() as u64, to);
    to.extend_from_slice(bytes);
}

/// Writes and reads values of all kinds. What one has written only it reads: it has the shapes of row values.
#[derive(Debug, Default)]
pub(super) struct Coder {
    shapes: Vec<Arc<Shape>>,
}

impl Coder {
    pub(super) fn write(&mut self, value: &Datum, to: &mut Vec<u8>) {
        let before = to.len();
        if write_flat(value, to) {
            return;
        }
        to.truncate(before);
        match value {
            Datum::Numeric(Numeric::NaN) => to.push(tag::NAN),
            Datum::Numeric(Numeric::Infinity(positive)) => to.extend([tag::INFINITY, u8::from(*positive)]),
            Datum::Numeric(number) => {
                let (mantissa, scale) = number.mantissa_bytes();
                to.push(tag::BIG);
                write_unsigned(u64::from(scale), to);
                write_unsigned(mantissa.len() as u64, to);
                to.extend_from_slice(&mantissa);
            }
            Datum::Array(values) => {
                to.push(tag::ARRAY);
                write_unsigned(values.len() as u64, to);
                values.iter().for_each(|value| self.write(value, to));
            }
            Datum::Record(record) => {
                to.push(tag::RECORD);
                let number = record.shape().map_or(0, |shape| self.number_of(shape) + 1);
                write_unsigned(number as u64, to);
                write_unsigned(record.len() as u64, to);
                record.iter().for_each(|value| self.write(value, to));
            }
            flat => unreachable!("{flat:?} is flat"),
        }
    }

    fn number_of(&mut self, shape: &Arc<Shape>) -> usize {
        let known = self.shapes.iter().position(|known| Arc::ptr_eq(known, shape) || known == shape);
        known.unwrap_or_else(|| {
            self.shapes.push(Arc::clone(shape));
            self.shapes.len() - 1
        })
    }

    /// Reads a value, and copies no more of it than it must.
    pub(super) fn read_raw<'b>(&self, from: &mut &'b [u8]) -> Raw<'b> {
        let kind = from[0];
        if !matches!(kind, tag::NULL..=tag::INT | tag::NUMERIC..=tag::TIMESTAMP | tag::CHARS) {
            return Raw::Other(self.read(from));
        }
        take(from, 1);
        match kind {
            tag::NULL => Raw::Null,
            tag::FALSE | tag::TRUE => Raw::Bool(kind == tag::TRUE),
            tag::INT => Raw::Int(read_signed(from)),
            tag::DATE => Raw::Date(read_signed(from)),
            tag::TIME => Raw::Time(read_signed(from)),
            tag::TIMESTAMP => Raw::Timestamp(read_signed(from)),
            tag::NUMERIC => Raw::Scaled(read_signed(from), read_unsigned(from) as u16),
            tag::CHARS => {
                let (characters, length) = (read_unsigned(from) as usize, read_unsigned(from) as usize);
                Raw::Chars(characters, take(from, length))
            }
            _ => {
                let length = read_unsigned(from) as usize;
                let bytes = take(from, length);
                if kind == tag::TEXT { Raw::Text(bytes) } else { Raw::Bytes(bytes) }
            }
        }
    }

    pub(super) fn read(&self, from: &mut &[u8]) -> Datum {
        match from[0] {
            tag::CHARS => {
                take(from, 1);
                let (characters, length) = (read_unsigned(from) as usize, read_unsigned(from) as usize);
                let shown = std::str::from_utf8(take(from, length)).expect("a text was written");
                return Datum::Char(text::padded(shown, characters));
            }
            tag::NAN..=tag::RECORD => {}
            _ => return read_flat(from).expect("what stands elsewhere is written otherwise here"),
        }
        match take(from, 1)[0] {
            tag::NAN => Datum::Numeric(Numeric::NaN),
            tag::INFINITY => Datum::Numeric(Numeric::Infinity(take(from, 1)[0] != 0)),
            tag::BIG => {
                let scale = read_unsigned(from) as u16;
                let length = read_unsigned(from) as usize;
                Datum::Numeric(Numeric::from_mantissa_bytes(take(from, length), scale))
            }
            tag::ARRAY => {
                let length = read_unsigned(from);
                Datum::Array((0..length).map(|_| self.read(from)).collect())
            }
            _ => {
                let (number, length) = (read_unsigned(from) as usize, read_unsigned(from));
                let values: Vec<Datum> = (0..length).map(|_| self.read(from)).collect();
                Datum::Record(match number.checked_sub(1) {
                    Some(shape) => Record::new(&self.shapes[shape], values),
                    None => Record::bare(values),
                })
            }
        }
    }
}
