//! Changes to a row: a copy that is edited in place.
//!
//! An update sees the old row and sets columns. The first setter that changes something copies the old row into the
//! scratch buffer, which the caller keeps from update to update; after a few of them it has the room of the longest row,
//! and nothing allocates any more. A value of the same width is patched in place; another length of a variable column
//! moves what follows it and corrects the ends.
//!
//! - The old row is never written: others may read it.
//! - A setter that returns an error has changed nothing.
//! - A setter that sets what is there already changes nothing: no copy, no mark. `changed_columns` are those whose bytes
//!   were changed by some setter, even if a later one changed them back.
//! - After every step `row()` is a row of the layout, only its length is checked no sooner than in `finish`.

use super::decimal::Decimal;
use super::error::{Flaw, RowError};
use super::layout::{Layout, MAX_ROW_BYTES, Place, Slot, fit_decimal, fit_scaled, fit_text};
use super::temporal::{Date, Interval, Time, Timestamp, TimestampTz, Uuid};
use super::types::Type;
use super::value::{Value, interval_bytes};

/// A set of column numbers; allocates only for columns from the 65th on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnSet {
    low: u64,
    high: Vec<u64>,
}

impl ColumnSet {
    /// The set of no columns.
    #[must_use]
    pub const fn new() -> Self {
        Self { low: 0, high: Vec::new() }
    }

    /// Adds a column.
    #[inline]
    pub fn insert(&mut self, column: usize) {
        if column < 64 {
            self.low |= 1 << column;
        } else {
            self.insert_high(column - 64);
        }
    }

    #[cold]
    fn insert_high(&mut self, column: usize) {
        let word = column / 64;
        if self.high.len() <= word {
            self.high.resize(word + 1, 0);
        }
        self.high[word] |= 1 << (column % 64);
    }

    /// Whether the column is in the set.
    #[inline]
    #[must_use]
    pub fn contains(&self, column: usize) -> bool {
        let word = if column < 64 { self.low } else { self.high.get(column / 64 - 1).copied().unwrap_or(0) };
        word >> (column % 64) & 1 != 0
    }

    /// Whether the two have a column in common.
    #[inline]
    #[must_use]
    pub fn intersects(&self, other: &Self) -> bool {
        self.low & other.low != 0 || self.high.iter().zip(&other.high).any(|(a, b)| a & b != 0)
    }

    /// Whether there is no column in it.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.low == 0 && self.high.iter().all(|word| *word == 0)
    }

    /// The columns, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..64 * (1 + self.high.len())).filter(|column| self.contains(*column))
    }
}

impl FromIterator<usize> for ColumnSet {
    fn from_iter<I: IntoIterator<Item = usize>>(columns: I) -> Self {
        let mut set = Self::new();
        columns.into_iter().for_each(|column| set.insert(column));
        set
    }
}

/// The row that an update makes of an old one.
#[derive(Debug)]
pub struct RowEditor<'a> {
    layout: &'a Layout,
    old: &'a [u8],
    scratch: &'a mut Vec<u8>,
    copied: bool,
    changed: ColumnSet,
}

impl<'a> RowEditor<'a> {
    /// An editor of `old`, a row of `layout`. What `scratch` contains goes as soon as a column changes.
    #[inline]
    pub fn new(layout: &'a Layout, old: &'a [u8], scratch: &'a mut Vec<u8>) -> Self {
        Self { layout, old, scratch, copied: false, changed: ColumnSet::new() }
    }

    /// The row as it is now.
    #[inline]
    #[must_use]
    pub fn row(&self) -> &[u8] {
        if self.copied { self.scratch } else { self.old }
    }

    /// The row as it was.
    #[inline]
    #[must_use]
    pub fn old_row(&self) -> &'a [u8] {
        self.old
    }

    /// The layout of the row.
    #[inline]
    #[must_use]
    pub fn layout(&self) -> &'a Layout {
        self.layout
    }

    /// The columns whose bytes some setter has changed.
    #[inline]
    #[must_use]
    pub fn changed_columns(&self) -> &ColumnSet {
        &self.changed
    }

    /// The new row.
    #[inline]
    pub fn finish(&self) -> Result<&[u8], RowError> {
        let row = self.row();
        if row.len() > MAX_ROW_BYTES { Err(RowError::RowTooLong { bytes: row.len() }) } else { Ok(row) }
    }

    #[cold]
    fn wrong_type(&self, column: usize, found: &'static str) -> RowError {
        self.layout.error(column, Flaw::WrongType { found })
    }

    #[inline]
    fn slot(&self, column: usize) -> Result<Slot, RowError> {
        let slot = self.layout.slots().get(column).copied();
        slot.ok_or_else(|| RowError::UnknownColumn { column: format!("number {column}").into() })
    }

    /// The row to be written, a copy from now on.
    #[inline]
    fn touch(&mut self, column: usize) -> &mut Vec<u8> {
        if !self.copied {
            self.scratch.clear();
            self.scratch.extend_from_slice(self.old);
            self.copied = true;
        }
        self.changed.insert(column);
        self.scratch
    }

    #[inline]
    fn put_fixed<const N: usize>(&mut self, column: usize, place: Place, bytes: [u8; N]) {
        let row = self.row();
        let null = place.is_null(row);
        if !null && place.fixed::<N>(row) == bytes {
            return;
        }
        let row = self.touch(column);
        let offset = place.offset as usize;
        row[offset..offset + N].copy_from_slice(&bytes);
        if null {
            row[usize::from(place.null / 8)] &= !(1 << (place.null % 8));
        }
    }

    #[inline]
    fn put_variable(&mut self, column: usize, place: Place, bytes: &[u8]) -> Result<(), RowError> {
        let row = self.row();
        let null = place.is_null(row);
        let range = place.range(row);
        if !null && row[range.clone()] == *bytes {
            return Ok(());
        }
        if range.len() == bytes.len() {
            let row = self.touch(column);
            row[range].copy_from_slice(bytes);
        } else {
            if bytes.len() > MAX_ROW_BYTES {
                return Err(RowError::RowTooLong { bytes: bytes.len() });
            }
            self.touch(column);
            self.splice(column, range, bytes);
        }
        if null {
            self.scratch[usize::from(place.null / 8)] &= !(1 << (place.null % 8));
        }
        Ok(())
    }

    /// Replaces variable bytes by others of another length and corrects the ends of this column and of all behind it.
    fn splice(&mut self, column: usize, range: std::ops::Range<usize>, bytes: &[u8]) {
        let row = &mut *self.scratch;
        let (len, new_end) = (row.len(), range.start + bytes.len());
        let new_len = len - range.len() + bytes.len();
        if new_len > len {
            row.resize(new_len, 0);
        }
        row.copy_within(range.end..len, new_end);
        row.truncate(new_len);
        row[range.start..new_end].copy_from_slice(bytes);
        // A row and a value have at most 2^20 bytes each, and there are 1600 columns: the sums fit 32 bits.
        let delta = (new_end as u32).wrapping_sub(range.end as u32);
        for slot in &self.layout.slots()[column..] {
            if slot.ty.width().is_none() {
                let offset = slot.place.offset as usize;
                let end = u32::from_le_bytes(slot.place.fixed(row)).wrapping_add(delta);
                row[offset..offset + 4].copy_from_slice(&end.to_le_bytes());
            }
        }
    }

    /// Sets a column to null.
    pub fn set_null(&mut self, column: usize) -> Result<(), RowError> {
        let Slot { place, ty } = self.slot(column)?;
        if place.null == Place::NOT_NULL {
            return Err(self.layout.error(column, Flaw::Null));
        }
        if place.is_null(self.row()) {
            return Ok(());
        }
        if let Some(width) = ty.width() {
            let row = self.touch(column);
            row[place.offset as usize..place.offset as usize + width].fill(0);
        } else {
            let range = place.range(self.row());
            self.touch(column);
            if !range.is_empty() {
                self.splice(column, range, &[]);
            }
        }
        self.scratch[usize::from(place.null / 8)] |= 1 << (place.null % 8);
        Ok(())
    }

    /// Sets a text column; `char(n)` loses its trailing blanks.
    #[inline]
    pub fn set_str(&mut self, column: usize, value: &str) -> Result<(), RowError> {
        let Slot { place, ty } = self.slot(column)?;
        if !ty.is_text() {
            return Err(self.wrong_type(column, "text"));
        }
        match fit_text(value, ty) {
            Ok(text) => self.put_variable(column, place, text.as_bytes()),
            Err(flaw) => Err(self.layout.error(column, flaw)),
        }
    }

    /// Sets a bytea column.
    #[inline]
    pub fn set_bytes(&mut self, column: usize, value: &[u8]) -> Result<(), RowError> {
        let Slot { place, ty } = self.slot(column)?;
        if ty != Type::Bytes {
            return Err(self.wrong_type(column, "bytea"));
        }
        self.put_variable(column, place, value)
    }

    /// Sets a decimal column; the value must not have more digits after the point than the column.
    #[inline]
    pub fn set_decimal(&mut self, column: usize, value: Decimal) -> Result<(), RowError> {
        let Slot { place, ty } = self.slot(column)?;
        let Type::Decimal { precision, scale } = ty else { return Err(self.wrong_type(column, "decimal")) };
        match fit_decimal(value, precision, scale) {
            Ok(scaled) => self.put_scaled(column, place, ty, scaled),
            Err(flaw) => return Err(self.layout.error(column, flaw)),
        }
        Ok(())
    }

    /// Sets a decimal column to `scaled / 10^scale`, where `scale` is the column's.
    #[inline]
    pub fn set_scaled(&mut self, column: usize, scaled: i128) -> Result<(), RowError> {
        let Slot { place, ty } = self.slot(column)?;
        let Type::Decimal { precision, scale } = ty else { return Err(self.wrong_type(column, "decimal")) };
        match fit_scaled(scaled, precision, scale) {
            Ok(scaled) => self.put_scaled(column, place, ty, scaled),
            Err(flaw) => return Err(self.layout.error(column, flaw)),
        }
        Ok(())
    }

    #[inline]
    fn put_scaled(&mut self, column: usize, place: Place, ty: Type, scaled: i128) {
        if ty.width() == Some(8) {
            // At most 18 digits fit 64 bits.
            self.put_fixed(column, place, (scaled as i64).to_le_bytes());
        } else {
            self.put_fixed(column, place, scaled.to_le_bytes());
        }
    }

    /// Sets a column of any type.
    pub fn set_value(&mut self, column: usize, value: &Value) -> Result<(), RowError> {
        match value {
            Value::Null => self.set_null(column),
            Value::Boolean(v) => self.set_bool(column, *v),
            Value::Int2(v) => self.set_i16(column, *v),
            Value::Int4(v) => self.set_i32(column, *v),
            Value::Int8(v) => self.set_i64(column, *v),
            Value::Float4(v) => self.set_f32(column, *v),
            Value::Float8(v) => self.set_f64(column, *v),
            Value::Decimal(v) => self.set_decimal(column, *v),
            Value::Text(v) => self.set_str(column, v),
            Value::Bytes(v) => self.set_bytes(column, v),
            Value::Date(v) => self.set_date(column, *v),
            Value::Time(v) => self.set_time(column, *v),
            Value::Timestamp(v) => self.set_timestamp(column, *v),
            Value::TimestampTz(v) => self.set_timestamptz(column, *v),
            Value::Interval(v) => self.set_interval(column, *v),
            Value::Uuid(v) => self.set_uuid(column, *v),
        }
    }
}

macro_rules! setters {
    ($($(#[$meta:meta])* $name:ident($in:ty): $ty:ident, $found:literal, |$value:ident| $bytes:expr;)*) => {
        impl RowEditor<'_> {
            $(
                $(#[$meta])*
                #[inline]
                pub fn $name(&mut self, column: usize, $value: $in) -> Result<(), RowError> {
                    let Slot { place, ty } = self.slot(column)?;
                    if !matches!(ty, Type::$ty) {
                        return Err(self.wrong_type(column, $found));
                    }
                    self.put_fixed(column, place, $bytes);
                    Ok(())
                }
            )*
        }
    };
}

setters! {
    /// Sets a boolean column.
    set_bool(bool): Boolean, "boolean", |value| [u8::from(value)];
    /// Sets an int2 column.
    set_i16(i16): Int2, "smallint", |value| value.to_le_bytes();
    /// Sets an int4 column.
    set_i32(i32): Int4, "integer", |value| value.to_le_bytes();
    /// Sets an int8 column.
    set_i64(i64): Int8, "bigint", |value| value.to_le_bytes();
    /// Sets a float4 column.
    set_f32(f32): Float4, "real", |value| value.to_le_bytes();
    /// Sets a float8 column.
    set_f64(f64): Float8, "double precision", |value| value.to_le_bytes();
    /// Sets a date column.
    set_date(Date): Date, "date", |value| value.0.to_le_bytes();
    /// Sets a time column.
    set_time(Time): Time, "time", |value| value.micros().to_le_bytes();
    /// Sets a timestamp column.
    set_timestamp(Timestamp): Timestamp, "timestamp", |value| value.0.to_le_bytes();
    /// Sets a timestamptz column.
    set_timestamptz(TimestampTz): TimestampTz, "timestamptz", |value| value.0.to_le_bytes();
    /// Sets an interval column.
    set_interval(Interval): Interval, "interval", |value| interval_bytes(value);
    /// Sets a uuid column.
    set_uuid(Uuid): Uuid, "uuid", |value| value.0;
}

#[cfg(test)]
#[path = "editor_tests.rs"]
mod tests;
