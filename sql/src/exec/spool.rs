//! Rows that a change keeps until all of them are known, one behind the other in bytes.
//!
//! A short row takes some bytes here, where a vector of values takes some hundred. Rows come out in the order in which they went
//! in, once; what has come out is given back, a piece at a time. The first [`FEW`] rows stay as they are, so that short statements
//! write nothing.

use super::Row;
use super::coded::{read_flat, write_flat};
use crate::error::Result;
use crate::expr::Context;
use crate::expr::memory::{Kept, size_behind, size_of_row};
use crate::types::Datum;
use std::collections::VecDeque;

/// Rows that stay as they are.
const FEW: usize = 8;
/// Bytes of the first piece, and of all further ones at the most.
const PIECE: (usize, usize) = (1 << 10, 64 << 10);

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
            if !write_flat(value, piece) {
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
            row.push(read_flat(&mut rest).unwrap_or_else(|| {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use thermocline_row::Interval;

    use super::*;
    use crate::types::Numeric;

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
