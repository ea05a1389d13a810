//! Rows that a change keeps until all of them are known, one behind the other in bytes.
//!
//! A short row takes some bytes here, where a vector of values takes some hundred. Rows come out in the order in which they went
//! in, once; what has come out is given back, a piece at a time. The first [`FEW`] rows stay as they are, so that short statements
//! write nothing.
//!
//! ```text
//! row: its values    value: a tag of one byte │ what the tag says
//!                    integers and what counts like them │ LEB128 of the zigzag
//!                    text, bytes                        │ length as LEB128 │ the bytes
//!                    values of values                   │ nothing: they stand beside, in their order
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use thermocline_row::Interval;

use super::Row;
use crate::error::Result;
use crate::expr::Context;
use crate::expr::memory::{Kept, size_behind, size_of_row};
use crate::types::{Datum, Numeric};

/// Rows that stay as they are.
const FEW: usize = 8;
/// Bytes of the first piece, and of all further ones at the most.
const PIECE: (usize, usize) = (1 << 10, 64 << 10);

/// What a value is.
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
}

/// Rows of one width.
pub(crate) struct Spool<'e> {
    kept: Kept<'e>,
    few: VecDeque<Row>,
    /// How many values a row has.
    width: usize,
    /// How many rows are written in pieces.
    rows: usize,
    pieces: VecDeque<Vec<u8>>,
    /// How far the first piece has been read.
    read: usize,
    /// Values that are not written as bytes.
    beside: VecDeque<Datum>,
}

impl<'e> Spool<'e> {
    pub(crate) fn none(context: &'e Context) -> Self {
        let (few, pieces, beside) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        Self { kept: context.memory.kept(), few, width: 0, rows: 0, pieces, read: 0, beside }
    }

    /// Takes a row, as wide as those before it.
    pub(crate) fn push(&mut self, row: &mut Row) -> Result<()> {
        if self.rows == 0 && self.few.len() < FEW {
            self.kept.row(row)?;
            self.few.push_back(std::mem::take(row));
            return Ok(());
        }
        debug_assert!(self.rows == 0 || self.width == row.len(), "rows of one width");
        self.width = row.len();
        let most: usize = row.iter().map(bytes_at_most).sum();
        let is_full = self.pieces.back().is_none_or(|piece| piece.capacity() - piece.len() < most);
        if is_full {
            let wanted = self.pieces.back().map_or(PIECE.0, |last| (last.capacity() * 2).min(PIECE.1));
            let size = wanted.max(most);
            self.kept.add(size)?;
            self.pieces.push_back(Vec::with_capacity(size));
        }
        let piece = self.pieces.back_mut().expect("there is one with room");
        for value in row.iter() {
            if !write(value, piece) {
                self.kept.add(size_of::<Datum>() + size_behind(value))?;
                self.beside.push_back(value.clone());
            }
        }
        self.rows += 1;
        Ok(())
    }

    /// The next row, which is given up here.
    pub(crate) fn pop(&mut self) -> Option<Row> {
        if let Some(row) = self.few.pop_front() {
            self.kept.remove(size_of_row(&row));
            return Some(row);
        }
        self.rows = self.rows.checked_sub(1)?;
        while self.pieces.front().is_some_and(|piece| self.read == piece.len() && self.pieces.len() > 1) {
            let piece = self.pieces.pop_front().expect("there is one");
            self.kept.remove(piece.capacity());
            self.read = 0;
        }
        let mut row = Row::with_capacity(self.width);
        // Rows without columns have no piece.
        let piece = self.pieces.front().map_or(&[][..], |piece| &piece[self.read..]);
        let mut rest = piece;
        for _ in 0..self.width {
            row.push(read(&mut rest).unwrap_or_else(|| {
                let value = self.beside.pop_front().expect("each value beside was pushed");
                self.kept.remove(size_of::<Datum>() + size_behind(&value));
                value
            }));
        }
        self.read += piece.len() - rest.len();
        Some(row)
    }
}

/// Bytes of a value, at the most.
fn bytes_at_most(value: &Datum) -> usize {
    match value {
        Datum::Text(text) | Datum::Char(text) | Datum::Jsonb(text) => 11 + text.len(),
        Datum::Bytes(bytes) => 11 + bytes.len(),
        Datum::Interval(_) => 21,
        Datum::Uuid(_) => 17,
        _ => 14,
    }
}

fn write_unsigned(mut value: u64, to: &mut Vec<u8>) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

fn read_unsigned(from: &mut &[u8]) -> u64 {
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

/// Writes a value; `false`: it goes beside.
fn write(value: &Datum, to: &mut Vec<u8>) -> bool {
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

/// Reads a value; none: it stands beside.
fn read(from: &mut &[u8]) -> Option<Datum> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_out_as_they_went_in() {
        let values = [
            Datum::Null,
            Datum::Bool(true),
            Datum::Bool(false),
            Datum::Int(i64::MIN),
            Datum::Int(i64::MAX),
            Datum::Int(-1),
            Datum::Float(-0.0),
            Datum::Float(1e-300),
            Datum::Numeric(Numeric::Small(-12_345, 16_000)),
            Datum::Numeric(Numeric::NaN),
            Datum::Numeric(Numeric::Infinity(false)),
            Datum::text(""),
            Datum::text("ü".repeat(100)),
            Datum::Bytes(Arc::from([0, 255].repeat(40_000))),
            Datum::Date(i32::MIN),
            Datum::Time(86_400_000_000),
            Datum::Timestamp(i64::MIN),
            Datum::Interval(Interval::new(i32::MIN, i32::MAX, i64::MIN)),
            Datum::Uuid([255; 16]),
            Datum::Array(Arc::from([Datum::Int(1), Datum::text("two")])),
            Datum::Char("a ".into()),
            Datum::Jsonb("[1.0]".into()),
            Datum::Record(crate::types::Record::bare([])),
        ];
        let context = Context::default();
        for (width, rows) in [(0, FEW + 3), (1, 500), (values.len(), 40)] {
            let row =
                |number: usize| -> Row { values.iter().cycle().skip(number).take(width).cloned().collect() };
            let mut spool = Spool::none(&context);
            for number in 0..rows {
                spool.push(&mut row(number)).expect("nothing is charged");
            }
            for number in 0..rows {
                let found = spool.pop().expect("a row is left");
                // Signs of zeros and scales are part of a value, though they compare alike.
                assert_eq!(format!("{found:?}"), format!("{:?}", row(number)), "row {number}");
            }
            assert!(spool.pop().is_none());
        }
    }
}
