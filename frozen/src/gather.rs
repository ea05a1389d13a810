//! Rows of blocks and encoded rows, gathered into batches.
//!
//! ```text
//! block, group, selected bits ──► push_group ─┐
//! encoded row ──────────────────► push_row ───┴─► columns ──finish──► Batch
//! ```
//!
//! A column of strings stands as codes while all its rows come from one block whose dictionary is small (`MOST_CODES`); a row of
//! another origin turns the codes of this batch into strings. A dictionary is unpacked once a block, and shared by its batches.

use std::sync::Arc;

use thermocline_row::{Layout, Type, Uuid};

use super::block::{Block, Segment};
use super::bytes::{u16_at, u32_at, u64_at};
use super::error::Error;
use super::format::{Marked, Stored};
use super::physical::{Field, fields, interval, turned32, turned64};

use super::rows::{no_column, variable};
use super::scan::{Bits, count, ones};

use super::batch::{Array, Batch, Bitmap, Strings, Values};

/// Rows of a batch at most, but for the rest of a group.
pub const BATCH_ROWS: usize = 8192;
/// Entries of a dictionary that batches have as such.
const MOST_CODES: usize = 4096;
/// Bytes of a dictionary that batches have as such.
const MOST_CODES_BYTES: usize = 16 << 20;
/// Bytes of strings from which on a batch is full.
const FULL_BYTES: usize = 256 << 10;
/// With fewer rows of a group each value is read by itself, and the group is not unpacked.
const FEW_ROWS: usize = 48;

/// A column that is being gathered.
#[derive(Debug)]
struct Column {
    index: usize,
    field: Field,
    array: Array,
    /// The dictionary of the block with this number, as it was unpacked last.
    dictionary: Option<(u64, Arc<Strings>)>,
}

/// See the module.
#[derive(Debug)]
pub struct Gather {
    columns: Vec<Column>,
    rows: usize,
    scratch: Vec<i64>,
}

/// Rows of a group: all of so many, or those with a bit.
#[derive(Clone, Copy)]
enum Rows<'a> {
    All(usize),
    Some(&'a Bits),
}

impl Rows<'_> {
    #[inline]
    fn each(self, mut see: impl FnMut(usize)) {
        match self {
            Rows::All(n) => (0..n).for_each(see),
            Rows::Some(bits) => {
                for place in ones(bits) {
                    see(place);
                }
            }
        }
    }

    fn map<T>(self, out: &mut Vec<T>, of: impl Fn(usize) -> T) {
        match self {
            Rows::All(n) => out.extend((0..n).map(of)),
            Rows::Some(bits) => out.extend(ones(bits).map(of)),
        }
    }
}

impl Gather {
    /// Of these columns of rows of a layout.
    ///
    /// # Errors
    /// A column that the layout does not have.
    pub fn new(layout: &Layout, columns: &[usize]) -> Result<Self, Error> {
        let fields = fields(layout);
        let column = |index: &usize| {
            let field = *fields.get(*index).ok_or_else(|| no_column(layout, *index))?;
            Ok(Column { index: *index, field, array: nothing(field.ty), dictionary: None })
        };
        let columns = columns.iter().map(column).collect::<Result<_, Error>>()?;
        Ok(Self { columns, rows: 0, scratch: Vec::new() })
    }

    /// Rows so far.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// True if there is no room for another group of rows.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let bytes = |column: &Column| match &column.array.values {
            Values::Strings(strings) => strings.bytes().len(),
            _ => 0,
        };
        self.rows >= BATCH_ROWS || self.columns.iter().any(|column| bytes(column) >= FULL_BYTES)
    }

    /// Appends the rows of a group that have a bit. The block has the columns of the layout.
    pub fn push_group(&mut self, block: &Block<'_>, group: usize, selected: &Bits) {
        let n = count(selected);
        for column in &mut self.columns {
            let segment = block.segment(group, column.index);
            let rows = if n == segment.n { Rows::All(n) } else { Rows::Some(selected) };
            column.note_nulls(&segment, rows, self.rows, n);
            column.push(block, &segment, rows, (self.rows, n), &mut self.scratch);
        }
        self.rows += n;
    }

    /// Appends an encoded row of the layout.
    pub fn push_row(&mut self, row: &[u8]) {
        for column in &mut self.columns {
            column.push_row(row, self.rows);
        }
        self.rows += 1;
    }

    /// Appends encoded rows of the layout, a column at a time.
    pub fn push_rows(&mut self, rows: &[&[u8]]) {
        for column in &mut self.columns {
            column.push_rows(rows, self.rows);
        }
        self.rows += rows.len();
    }

    /// The rows so far; the next begin anew.
    pub fn finish(&mut self) -> Batch {
        let rows = std::mem::take(&mut self.rows);
        let take = |column: &mut Column| std::mem::replace(&mut column.array, nothing(column.field.ty));
        Batch { columns: self.columns.iter_mut().map(take).collect(), rows }
    }
}

fn nothing(ty: Type) -> Array {
    Array { ty, values: Values::none(ty), validity: None }
}

impl Column {
    /// The bits of the rows, of which there are so many already.
    fn validity(&mut self, before: usize) -> &mut Bitmap {
        self.array.validity.get_or_insert_with(|| {
            let mut bits = Bitmap::default();
            bits.push_ones(before);
            bits
        })
    }

    fn note_nulls(&mut self, segment: &Segment<'_>, rows: Rows<'_>, before: usize, n: usize) {
        if segment.entry.nulls != Marked::None {
            let bits = self.validity(before);
            rows.each(|place| bits.push(!segment.is_null(place)));
        } else if let Some(bits) = &mut self.array.validity {
            bits.push_ones(n);
        }
    }

    fn push(
        &mut self,
        block: &Block<'_>,
        segment: &Segment<'_>,
        rows: Rows<'_>,
        (before, n): (usize, usize),
        scratch: &mut Vec<i64>,
    ) {
        if let Values::Strings(_) | Values::Codes(..) = self.array.values {
            return self.push_strings(block, segment, rows, before, scratch);
        }
        let field = self.field;
        let is_few = n < FEW_ROWS;
        if !is_few && !matches!(self.array.values, Values::Decimal(_) | Values::Interval(_) | Values::Uuid(_))
        {
            segment.numbers(scratch);
        }
        let unpacked: &[i64] = scratch;
        let number = |place: usize| if is_few { segment.number(place) } else { unpacked[place] };
        match &mut self.array.values {
            Values::Boolean(bits) => rows.each(|place| bits.push(number(place) != 0)),
            Values::Int2(out) => rows.map(out, |place| number(place) as i16),
            Values::Int4(out) => rows.map(out, |place| number(place) as i32),
            Values::Int8(out) if is_few => rows.map(out, number),
            Values::Int8(out) => match rows {
                Rows::All(n) => out.extend_from_slice(&unpacked[..n]),
                Rows::Some(_) => rows.map(out, |place| unpacked[place]),
            },
            Values::Float4(out) => {
                rows.map(out, |place| f32::from_bits(turned32(number(place) as i32) as u32));
            }
            Values::Float8(out) => rows.map(out, |place| f64::from_bits(turned64(number(place)) as u64)),
            Values::Decimal(out) => rows.map(out, |place| segment.wide(place)),
            Values::Interval(out) => rows.map(out, |place| interval(segment.wide(place))),
            Values::Uuid(out) => rows.map(out, |place| Uuid(field.wide_bytes(segment.wide(place)))),
            Values::Strings(_) | Values::Codes(..) => unreachable!("strings were seen to"),
        }
    }

    fn push_strings(
        &mut self,
        block: &Block<'_>,
        segment: &Segment<'_>,
        rows: Rows<'_>,
        before: usize,
        scratch: &mut Vec<i64>,
    ) {
        let column = segment.column;
        let is_coded = column.stored == Stored::Codes
            && column.count <= MOST_CODES
            && column.dictionary_len <= MOST_CODES_BYTES;
        if is_coded {
            let dictionary = self.dictionary_of(block, segment);
            let goes_on = match &self.array.values {
                Values::Codes(_, before) => Arc::ptr_eq(before, &dictionary),
                _ => false,
            };
            if before == 0 && !goes_on {
                self.array.values = Values::Codes(Vec::new(), Arc::clone(&dictionary));
            }
            if before == 0 || goes_on {
                let Values::Codes(codes, _) = &mut self.array.values else { unreachable!("just seen to") };
                let last = column.count.saturating_sub(1) as i64;
                segment.integers(scratch);
                return rows.map(codes, |place| scratch[place].clamp(0, last) as i32);
            }
        }
        let strings = self.as_strings();
        rows.each(|place| {
            let is_null = segment.entry.nulls != Marked::None && segment.is_null(place);
            strings.push(if is_null { (&[], &[]) } else { segment.string(place) });
        });
    }

    /// The strings of the column's dictionary.
    fn dictionary_of(&mut self, block: &Block<'_>, segment: &Segment<'_>) -> Arc<Strings> {
        if let Some((number, dictionary)) = &self.dictionary
            && *number == block.number()
        {
            return Arc::clone(dictionary);
        }
        let (packed, mut strings) = (segment.strings(), Strings::default());
        (0..packed.count.max(1)).for_each(|code| strings.push(packed.parts(code)));
        let dictionary = Arc::new(strings);
        self.dictionary = Some((block.number(), Arc::clone(&dictionary)));
        dictionary
    }

    /// The strings of this batch, codes turned into such.
    fn as_strings(&mut self) -> &mut Strings {
        if let Values::Codes(codes, dictionary) = &self.array.values {
            let mut strings = Strings::default();
            codes.iter().for_each(|code| strings.push((dictionary.get(*code as usize), &[])));
            self.array.values = Values::Strings(strings);
        }
        let Values::Strings(strings) = &mut self.array.values else { unreachable!("a column of strings") };
        strings
    }

    fn push_rows(&mut self, rows: &[&[u8]], before: usize) {
        let field = self.field;
        if field.nullable() {
            let nulls = rows.iter().filter(|row| field.place.is_null(row)).count();
            if nulls > 0 || self.array.validity.is_some() {
                let bits = self.validity(before);
                rows.iter().for_each(|row| bits.push(!field.place.is_null(row)));
            }
        }
        let at = field.place.offset as usize;
        match &mut self.array.values {
            Values::Int2(out) => out.extend(rows.iter().map(|row| u16_at(row, at) as i16)),
            Values::Int4(out) => out.extend(rows.iter().map(|row| u32_at(row, at) as i32)),
            Values::Int8(out) => out.extend(rows.iter().map(|row| u64_at(row, at) as i64)),
            Values::Float4(out) => out.extend(rows.iter().map(|row| f32::from_bits(u32_at(row, at)))),
            Values::Float8(out) => out.extend(rows.iter().map(|row| f64::from_bits(u64_at(row, at)))),
            Values::Boolean(bits) => rows.iter().for_each(|row| bits.push(field.integer(row) != 0)),
            Values::Decimal(out) => out.extend(rows.iter().map(|row| field.wide(row))),
            Values::Interval(out) => out.extend(rows.iter().map(|row| interval(field.wide(row)))),
            Values::Uuid(out) => {
                out.extend(rows.iter().map(|row| Uuid(field.wide_bytes(field.wide(row)))));
            }
            Values::Strings(_) | Values::Codes(..) => {
                let strings = self.as_strings();
                // The place of a null is empty.
                rows.iter().for_each(|row| strings.push((variable(&field, row), &[])));
            }
        }
    }

    fn push_row(&mut self, row: &[u8], before: usize) {
        let field = self.field;
        let is_null = field.place.is_null(row);
        if is_null {
            self.validity(before).push(false);
        } else if let Some(bits) = &mut self.array.validity {
            bits.push(true);
        }
        match &mut self.array.values {
            Values::Boolean(bits) => bits.push(field.integer(row) != 0),
            Values::Int2(out) => out.push(field.integer(row) as i16),
            Values::Int4(out) => out.push(field.integer(row) as i32),
            Values::Int8(out) => out.push(field.integer(row)),
            Values::Float4(out) => out.push(f32::from_bits(turned32(field.integer(row) as i32) as u32)),
            Values::Float8(out) => out.push(f64::from_bits(turned64(field.integer(row)) as u64)),
            Values::Decimal(out) => out.push(field.wide(row)),
            Values::Interval(out) => out.push(interval(field.wide(row))),
            Values::Uuid(out) => out.push(Uuid(field.wide_bytes(field.wide(row)))),
            Values::Strings(_) | Values::Codes(..) => {
                let bytes = if is_null { &[][..] } else { variable(&field, row) };
                self.as_strings().push((bytes, &[]));
            }
        }
    }
}

#[cfg(test)]
#[path = "gather_tests.rs"]
mod tests;
