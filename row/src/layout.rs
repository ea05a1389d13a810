//! How a row stands in memory, in the log and in a checkpoint.
//!
//! ```text
//! ┌─────────────┬──────────────────────────────────────────────┬───────────────────────────┐
//! │ null bitmap │ fixed part: one place a column, packed,      │ bytes of text, varchar,   │
//! │ 1 bit a     │ in the order of declaration; a column of     │ char, bytea, one after    │
//! │ nullable    │ variable width has a u32 there: where its    │ another in the order of   │
//! │ column      │ bytes end, counted from the row's start      │ declaration               │
//! └─────────────┴──────────────────────────────────────────────┴───────────────────────────┘
//! ```
//!
//! Every place is at a constant offset; all numbers are little-endian. Widths: boolean 1, int2 2, int4, float4 and date
//! 4, int8, float8, time and timestamps 8, decimal 8 up to 18 digits and else 16 (the number times 10^scale), interval
//! 16 (months i32, days i32, microseconds i64), uuid 16. A column of variable width begins where the one before it ends,
//! the first one behind the fixed part.
//!
//! A row has one form: unused bits of the bitmap, the place of a null and its variable bytes are zero or empty, and
//! `char(n)` has no trailing blanks. So rows that are equal byte for byte are equal, and an unchanged column has
//! unchanged bytes.
//!
//! The accessors trust their row: the engine stores only what [`Layout::encode`], the row editor or the `row!` macro
//! wrote, and checks what comes from a disk with [`Layout::check`] once. On bytes that are no row of the layout they
//! panic, or return some value; they are safe code and touch nothing else.
//!
//! Limits: [`MAX_COLUMNS`] columns, [`MAX_ROW_BYTES`] bytes.

use std::collections::HashSet;

use super::decimal::{Decimal, POW10};
use super::error::{Flaw, RowError};
use super::temporal::{Date, Interval, Time, Timestamp, TimestampTz, Uuid};
use super::types::{Column, Type};
use super::value::{Value, interval_bytes, interval_from};

/// Most bytes of a row.
pub const MAX_ROW_BYTES: usize = 1 << 20;
/// Most columns of a row.
pub const MAX_COLUMNS: usize = 1600;

/// What the place of a column depends on.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes in the fixed part; `None` for a variable width.
    pub width: Option<usize>,
    /// Whether it has a bit in the bitmap.
    pub nullable: bool,
}

impl Shape {
    /// The shape of a column.
    #[must_use]
    pub const fn new(ty: Type, nullable: bool) -> Self {
        Self { width: ty.width(), nullable }
    }
}

/// Where the bytes of a column of variable width begin.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At this offset: it is the first such column.
    At(u32),
    /// At the end of the column before it, which stands at this offset.
    Behind(u32),
}

/// Where a column stands in its row.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its bit in the bitmap, or [`Place::NOT_NULL`].
    pub null: u16,
    /// Offset of its fixed bytes, or of the end of its variable bytes.
    pub offset: u32,
    /// Where its variable bytes begin; of no use for a fixed width.
    pub start: Start,
}

impl Place {
    /// The bit of a column that takes no null.
    pub const NOT_NULL: u16 = u16::MAX;

    /// Whether the column is null in `row`.
    #[inline(always)]
    #[must_use]
    pub fn is_null(self, row: &[u8]) -> bool {
        self.null != Self::NOT_NULL && row[usize::from(self.null / 8)] & 1 << (self.null % 8) != 0
    }

    /// The fixed bytes.
    #[inline(always)]
    #[must_use]
    pub fn fixed<const N: usize>(self, row: &[u8]) -> [u8; N] {
        let offset = self.offset as usize;
        row[offset..offset + N].try_into().expect("a slice of N bytes has N bytes")
    }

    /// Where the variable bytes begin and end.
    #[inline(always)]
    #[must_use]
    pub fn range(self, row: &[u8]) -> std::ops::Range<usize> {
        let start = match self.start {
            Start::At(offset) => offset,
            Start::Behind(offset) => end_at(row, offset),
        };
        start as usize..end_at(row, self.offset) as usize
    }

    /// The variable bytes.
    #[inline(always)]
    #[must_use]
    pub fn variable(self, row: &[u8]) -> &[u8] {
        &row[self.range(row)]
    }

    /// The variable bytes as text.
    #[inline(always)]
    #[must_use]
    pub fn text(self, row: &[u8]) -> &str {
        str::from_utf8(self.variable(row)).expect("text in a row is UTF-8: it was checked when it was stored")
    }
}

#[inline(always)]
fn end_at(row: &[u8], offset: u32) -> u32 {
    let offset = offset as usize;
    u32::from_le_bytes(row[offset..offset + 4].try_into().expect("a slice of 4 bytes has 4 bytes"))
}

/// Hands out places in the order of declaration: the one definition of the layout, for [`Layout::new`] at run time and
/// for `row!` at compile time.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Placer {
    nulls: u16,
    offset: u32,
    start: Start,
}

impl Placer {
    /// A placer for a row of which the length of bitmap and fixed part are known.
    #[must_use]
    pub const fn new(lengths: Lengths) -> Self {
        Self { nulls: 0, offset: lengths.bitmap as u32, start: Start::At(lengths.fixed as u32) }
    }

    /// The place of the next column.
    pub const fn place(&mut self, shape: Shape) -> Place {
        let null = if shape.nullable {
            self.nulls += 1;
            self.nulls - 1
        } else {
            Place::NOT_NULL
        };
        let place = Place { null, offset: self.offset, start: self.start };
        match shape.width {
            Some(width) => self.offset += width as u32,
            None => {
                self.start = Start::Behind(self.offset);
                self.offset += 4;
            }
        }
        place
    }
}

/// How long the parts of a row are.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lengths {
    /// Columns that take null.
    pub nullable: usize,
    /// Bytes of the bitmap.
    pub bitmap: usize,
    /// Bytes of bitmap and fixed part: the length of a row without variable bytes.
    pub fixed: usize,
}

impl Lengths {
    /// The lengths for columns of these shapes.
    #[must_use]
    pub const fn new(shapes: &[Shape]) -> Self {
        let (mut nullable, mut bytes, mut i) = (0, 0, 0);
        while i < shapes.len() {
            nullable += shapes[i].nullable as usize;
            bytes += match shapes[i].width {
                Some(width) => width,
                None => 4,
            };
            i += 1;
        }
        let bitmap = nullable.div_ceil(8);
        Self { nullable, bitmap, fixed: bitmap + bytes }
    }
}

/// The places of columns of these shapes.
#[doc(hidden)]
#[must_use]
pub const fn places<const N: usize>(shapes: &[Shape; N]) -> [Place; N] {
    assert!(N <= MAX_COLUMNS, "a row has at most 1600 columns");
    let mut placer = Placer::new(Lengths::new(shapes));
    let mut places = [Place { null: 0, offset: 0, start: Start::At(0) }; N];
    let mut i = 0;
    while i < N {
        places[i] = placer.place(shapes[i]);
        i += 1;
    }
    places
}

/// Writes a row, column after column in the order of declaration.
#[doc(hidden)]
pub struct RowWriter<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> RowWriter<'a> {
    /// Begins a row in `out`, whose content goes.
    #[inline]
    pub fn new(out: &'a mut Vec<u8>, lengths: Lengths) -> Self {
        out.clear();
        out.resize(lengths.fixed, 0);
        Self { out }
    }

    /// Writes the bytes of a column of fixed width.
    #[inline(always)]
    pub fn fixed<const N: usize>(&mut self, place: Place, bytes: [u8; N]) {
        let offset = place.offset as usize;
        self.out[offset..offset + N].copy_from_slice(&bytes);
    }

    /// Writes the bytes of a column of variable width.
    #[inline]
    pub fn variable(&mut self, place: Place, bytes: &[u8]) -> Result<(), Flaw> {
        let end = self.out.len() + bytes.len();
        if end > MAX_ROW_BYTES {
            return Err(Flaw::TooLong { found: end, limit: MAX_ROW_BYTES });
        }
        self.out.extend_from_slice(bytes);
        self.fixed(place, (end as u32).to_le_bytes());
        Ok(())
    }

    /// Writes a null.
    #[inline]
    pub fn null(&mut self, place: Place, variable: bool) -> Result<(), Flaw> {
        if place.null == Place::NOT_NULL {
            return Err(Flaw::Null);
        }
        self.out[usize::from(place.null / 8)] |= 1 << (place.null % 8);
        if variable { self.variable(place, &[]) } else { Ok(()) }
    }
}

/// The text as a column of type `ty` stores it, or why it does not.
#[doc(hidden)]
#[inline]
pub fn fit_text(text: &str, ty: Type) -> Result<&str, Flaw> {
    let (text, limit) = match ty {
        Type::Varchar(n) => (text, n as usize),
        Type::Char(n) => (text.trim_end_matches(' '), n as usize),
        _ => return Ok(text),
    };
    // No more bytes means no more characters; only longer ones are counted.
    if text.len() > limit {
        let found = text.chars().count();
        if found > limit {
            return Err(Flaw::TooLong { found, limit });
        }
    }
    Ok(text)
}

/// The number as a multiple of 10^-scale, or why the column does not take it.
pub(crate) fn fit_decimal(value: Decimal, precision: u8, scale: u8) -> Result<i128, Flaw> {
    let scaled = if value.scale() == scale {
        value.mantissa()
    } else {
        match value.rescale_exact(scale) {
            Ok(Some(exact)) => exact.mantissa(),
            Ok(None) => return Err(Flaw::Inexact { found: value.to_string().into() }),
            Err(_) => return Err(Flaw::OutOfRange { found: value.to_string().into() }),
        }
    };
    fit_scaled(scaled, precision, scale)
}

/// The same for a number that is a multiple of 10^-scale already.
#[doc(hidden)]
#[inline]
pub fn fit_scaled(scaled: i128, precision: u8, scale: u8) -> Result<i128, Flaw> {
    if scaled.unsigned_abs() < POW10[usize::from(precision)].unsigned_abs() {
        return Ok(scaled);
    }
    let found = Decimal::new(scaled, scale)
        .map_or_else(|_| format!("{scaled} times 10^-{scale}"), |decimal| decimal.to_string());
    Err(Flaw::OutOfRange { found: found.into() })
}

/// A column with its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) place: Place,
    pub(crate) ty: Type,
}

/// The columns of a table and where they stand in its rows.
#[derive(Clone, Debug)]
pub struct Layout {
    columns: Box<[Column]>,
    slots: Box<[Slot]>,
    lengths: Lengths,
}

impl Layout {
    /// The layout of rows with these columns.
    pub fn new(columns: &[Column]) -> Result<Self, RowError> {
        let mut names = HashSet::new();
        for column in columns {
            if columns.len() > MAX_COLUMNS {
                let reason = format!("a table has at most {MAX_COLUMNS} columns, this one {}", columns.len());
                return Err(RowError::schema(&column.name, reason));
            }
            if let Some(reason) = column.ty.flaw() {
                return Err(RowError::schema(&column.name, reason));
            }
            if !names.insert(column.name.as_str()) {
                return Err(RowError::schema(&column.name, "the name is given to two columns; rename one"));
            }
            if column.auto_increment && !matches!(column.ty, Type::Int2 | Type::Int4 | Type::Int8) {
                let reason = format!("only integers count up by themselves, not {}", column.ty);
                return Err(RowError::schema(&column.name, reason));
            }
        }
        let shapes: Vec<Shape> = columns.iter().map(|c| Shape::new(c.ty, c.nullable)).collect();
        let lengths = Lengths::new(&shapes);
        let mut placer = Placer::new(lengths);
        let slots =
            columns.iter().zip(shapes).map(|(c, shape)| Slot { place: placer.place(shape), ty: c.ty });
        let layout = Self { slots: slots.collect(), columns: columns.into(), lengths };
        for (index, column) in columns.iter().enumerate() {
            let Some(value) = &column.default else { continue };
            let mut row = vec![0; lengths.fixed];
            layout.put(&mut RowWriter { out: &mut row }, index, value)?;
        }
        Ok(layout)
    }

    /// The columns.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The number of the column of that name.
    pub fn column_index(&self, name: &str) -> Result<usize, RowError> {
        let found = self.columns.iter().position(|column| column.name == name);
        found.ok_or_else(|| RowError::UnknownColumn { column: name.into() })
    }

    /// Bytes of a row without those of its variable columns.
    #[must_use]
    pub fn fixed_len(&self) -> usize {
        self.lengths.fixed
    }

    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    #[cold]
    pub(crate) fn error(&self, column: usize, flaw: Flaw) -> RowError {
        let column = &self.columns[column];
        RowError::value(&column.name, column.ty, flaw)
    }

    /// Writes the row of these values, one a column, into `out`, whose content goes.
    pub fn encode(&self, values: &[Value], out: &mut Vec<u8>) -> Result<(), RowError> {
        if values.len() != self.columns.len() {
            return Err(RowError::ColumnCount { expected: self.columns.len(), found: values.len() });
        }
        let mut writer = RowWriter::new(out, self.lengths);
        for (index, value) in values.iter().enumerate() {
            self.put(&mut writer, index, value)?;
        }
        if out.len() > MAX_ROW_BYTES {
            return Err(RowError::RowTooLong { bytes: out.len() });
        }
        Ok(())
    }

    fn put(&self, writer: &mut RowWriter<'_>, index: usize, value: &Value) -> Result<(), RowError> {
        let Slot { place, ty } = self.slots[index];
        let mut put = || -> Result<(), Flaw> {
            match (ty, value) {
                (_, Value::Null) => writer.null(place, ty.width().is_none())?,
                (Type::Boolean, Value::Boolean(v)) => writer.fixed(place, [u8::from(*v)]),
                (Type::Int2, Value::Int2(v)) => writer.fixed(place, v.to_le_bytes()),
                (Type::Int4, Value::Int4(v)) => writer.fixed(place, v.to_le_bytes()),
                (Type::Int8, Value::Int8(v)) => writer.fixed(place, v.to_le_bytes()),
                (Type::Float4, Value::Float4(v)) => writer.fixed(place, v.to_le_bytes()),
                (Type::Float8, Value::Float8(v)) => writer.fixed(place, v.to_le_bytes()),
                (Type::Decimal { precision, scale }, Value::Decimal(v)) => {
                    let scaled = fit_decimal(*v, precision, scale)?;
                    if ty.width() == Some(8) {
                        writer.fixed(place, (scaled as i64).to_le_bytes());
                    } else {
                        writer.fixed(place, scaled.to_le_bytes());
                    }
                }
                (Type::Text | Type::Varchar(_) | Type::Char(_), Value::Text(v)) => {
                    writer.variable(place, fit_text(v, ty)?.as_bytes())?;
                }
                (Type::Bytes, Value::Bytes(v)) => writer.variable(place, v)?,
                (Type::Date, Value::Date(v)) => writer.fixed(place, v.0.to_le_bytes()),
                (Type::Time, Value::Time(v)) => writer.fixed(place, v.micros().to_le_bytes()),
                (Type::Timestamp, Value::Timestamp(v)) => writer.fixed(place, v.0.to_le_bytes()),
                (Type::TimestampTz, Value::TimestampTz(v)) => writer.fixed(place, v.0.to_le_bytes()),
                (Type::Interval, Value::Interval(v)) => writer.fixed(place, interval_bytes(*v)),
                (Type::Uuid, Value::Uuid(v)) => writer.fixed(place, v.0),
                _ => return Err(Flaw::WrongType { found: value.kind() }),
            }
            Ok(())
        };
        put().map_err(|flaw| self.error(index, flaw))
    }

    /// The values of a row of any origin: checked first.
    pub fn decode(&self, row: &[u8]) -> Result<Vec<Value>, RowError> {
        self.check(row)?;
        Ok((0..self.columns.len()).map(|column| self.value(row, column)).collect())
    }

    /// Whether the bytes are a row of this layout, in the one form that a row has.
    pub fn check(&self, row: &[u8]) -> Result<(), RowError> {
        if row.len() < self.lengths.fixed || row.len() > MAX_ROW_BYTES {
            return Err(RowError::damaged_bytes(format!(
                "a row of {} bytes, where one has {} to {MAX_ROW_BYTES}",
                row.len(),
                self.lengths.fixed
            )));
        }
        let used = self.lengths.nullable % 8;
        if used != 0 && row[self.lengths.bitmap - 1] >> used != 0 {
            return Err(RowError::damaged_bytes("unused bits of the null bitmap are set"));
        }
        let mut end = self.lengths.fixed;
        for (slot, column) in self.slots.iter().zip(&self.columns) {
            let bytes = if let Some(width) = slot.ty.width() {
                &row[slot.place.offset as usize..slot.place.offset as usize + width]
            } else {
                let start = end;
                end = end_at(row, slot.place.offset) as usize;
                row.get(start..end).ok_or_else(|| {
                    let reason = format!("bytes {start} to {end} of a row of {}", row.len());
                    RowError::damaged(&column.name, reason)
                })?
            };
            if slot.place.is_null(row) {
                if bytes.iter().any(|byte| *byte != 0) || (slot.ty.width().is_none() && !bytes.is_empty()) {
                    return Err(RowError::damaged(&column.name, "null, but its place is not empty"));
                }
            } else if let Some(reason) = flaw_of_bytes(bytes, slot.ty) {
                return Err(RowError::damaged(&column.name, reason));
            }
        }
        if end != row.len() {
            return Err(RowError::damaged_bytes(format!(
                "a row of {} bytes whose last column ends at {end}",
                row.len()
            )));
        }
        Ok(())
    }

    /// Whether the column is null.
    #[inline]
    #[must_use]
    pub fn is_null(&self, row: &[u8], column: usize) -> bool {
        self.slots[column].place.is_null(row)
    }

    /// The column's value.
    #[must_use]
    pub fn value(&self, row: &[u8], column: usize) -> Value {
        let Slot { place, ty } = self.slots[column];
        if place.is_null(row) {
            return Value::Null;
        }
        match ty {
            Type::Boolean => Value::Boolean(place.fixed::<1>(row)[0] != 0),
            Type::Int2 => Value::Int2(i16::from_le_bytes(place.fixed(row))),
            Type::Int4 => Value::Int4(i32::from_le_bytes(place.fixed(row))),
            Type::Int8 => Value::Int8(i64::from_le_bytes(place.fixed(row))),
            Type::Float4 => Value::Float4(f32::from_le_bytes(place.fixed(row))),
            Type::Float8 => Value::Float8(f64::from_le_bytes(place.fixed(row))),
            Type::Decimal { scale, .. } => Value::Decimal(decimal_at(place, ty, scale, row)),
            Type::Text | Type::Varchar(_) | Type::Char(_) => Value::Text(place.text(row).to_owned()),
            Type::Bytes => Value::Bytes(place.variable(row).to_vec()),
            Type::Date => Value::Date(Date(i32::from_le_bytes(place.fixed(row)))),
            Type::Time => Value::Time(time_at(place, row)),
            Type::Timestamp => Value::Timestamp(Timestamp(i64::from_le_bytes(place.fixed(row)))),
            Type::TimestampTz => Value::TimestampTz(TimestampTz(i64::from_le_bytes(place.fixed(row)))),
            Type::Interval => Value::Interval(interval_from(place.fixed(row))),
            Type::Uuid => Value::Uuid(Uuid(place.fixed(row))),
        }
    }

    /// The place of a column that is of one of some types, unless the column is null.
    #[inline]
    fn find(
        &self,
        row: &[u8],
        column: usize,
        fits: impl FnOnce(Type) -> bool,
        wanted: &str,
    ) -> Option<Place> {
        let Slot { place, ty } = self.slots[column];
        if !fits(ty) {
            self.wrong_accessor(column, wanted);
        }
        if place.is_null(row) { None } else { Some(place) }
    }

    #[cold]
    fn wrong_accessor(&self, column: usize, wanted: &str) -> ! {
        let Column { name, ty, .. } = &self.columns[column];
        panic!("column \"{name}\" is of type {ty} and was read as {wanted}");
    }

    /// The bytes of a text or bytea column; `None` is null.
    #[inline]
    #[must_use]
    pub fn bytes<'r>(&self, row: &'r [u8], column: usize) -> Option<&'r [u8]> {
        self.find(row, column, |ty| ty.width().is_none(), "bytes").map(|place| place.variable(row))
    }

    /// The text of a text column, `char(n)` without trailing blanks; `None` is null.
    #[inline]
    #[must_use]
    pub fn str<'r>(&self, row: &'r [u8], column: usize) -> Option<&'r str> {
        self.find(row, column, Type::is_text, "text").map(|place| place.text(row))
    }

    /// The number of a decimal column; `None` is null.
    #[inline]
    #[must_use]
    pub fn decimal(&self, row: &[u8], column: usize) -> Option<Decimal> {
        let ty = self.slots[column].ty;
        let place = self.find(row, column, |ty| matches!(ty, Type::Decimal { .. }), "decimal")?;
        let Type::Decimal { scale, .. } = ty else { unreachable!("find returns places of decimals only") };
        Some(decimal_at(place, ty, scale, row))
    }
}

macro_rules! accessors {
    ($($(#[$meta:meta])* $name:ident -> $out:ty : $ty:ident, |$place:ident, $row:ident| $read:expr;)*) => {
        impl Layout {
            $(
                $(#[$meta])*
                #[inline]
                #[must_use]
                pub fn $name(&self, row: &[u8], column: usize) -> Option<$out> {
                    let $row = row;
                    self.find(row, column, |ty| matches!(ty, Type::$ty), stringify!($name)).map(|$place| $read)
                }
            )*
        }
    };
}

accessors! {
    /// The value of a boolean column; `None` is null.
    bool -> bool: Boolean, |place, row| place.fixed::<1>(row)[0] != 0;
    /// The value of an int2 column; `None` is null.
    i16 -> i16: Int2, |place, row| i16::from_le_bytes(place.fixed(row));
    /// The value of an int4 column; `None` is null.
    i32 -> i32: Int4, |place, row| i32::from_le_bytes(place.fixed(row));
    /// The value of an int8 column; `None` is null.
    i64 -> i64: Int8, |place, row| i64::from_le_bytes(place.fixed(row));
    /// The value of a float4 column; `None` is null.
    f32 -> f32: Float4, |place, row| f32::from_le_bytes(place.fixed(row));
    /// The value of a float8 column; `None` is null.
    f64 -> f64: Float8, |place, row| f64::from_le_bytes(place.fixed(row));
    /// The value of a date column; `None` is null.
    date -> Date: Date, |place, row| Date(i32::from_le_bytes(place.fixed(row)));
    /// The value of a time column; `None` is null.
    time -> Time: Time, |place, row| time_at(place, row);
    /// The value of a timestamp column; `None` is null.
    timestamp -> Timestamp: Timestamp, |place, row| Timestamp(i64::from_le_bytes(place.fixed(row)));
    /// The value of a timestamptz column; `None` is null.
    timestamptz -> TimestampTz: TimestampTz, |place, row| TimestampTz(i64::from_le_bytes(place.fixed(row)));
    /// The value of an interval column; `None` is null.
    interval -> Interval: Interval, |place, row| interval_from(place.fixed(row));
    /// The value of a uuid column; `None` is null.
    uuid -> Uuid: Uuid, |place, row| Uuid(place.fixed(row));
}

/// A decimal as the multiple of 10^-scale that the row has.
#[inline]
pub(crate) fn scaled_at(place: Place, ty: Type, row: &[u8]) -> i128 {
    if ty.width() == Some(8) {
        i64::from_le_bytes(place.fixed(row)).into()
    } else {
        i128::from_le_bytes(place.fixed(row))
    }
}

#[inline]
fn decimal_at(place: Place, ty: Type, scale: u8, row: &[u8]) -> Decimal {
    Decimal::new(scaled_at(place, ty, row), scale)
        .expect("a decimal in a row is in its range: it was checked")
}

#[doc(hidden)]
#[inline]
pub fn time_at(place: Place, row: &[u8]) -> Time {
    Time::from_micros(i64::from_le_bytes(place.fixed(row)))
        .expect("a time in a row is in its range: it was checked")
}

/// Why the bytes of a column are no value of its type, if so.
fn flaw_of_bytes(bytes: &[u8], ty: Type) -> Option<String> {
    match ty {
        Type::Boolean => (bytes[0] > 1).then(|| format!("{} is no boolean", bytes[0])),
        Type::Decimal { precision, scale } => {
            let place = Place { null: Place::NOT_NULL, offset: 0, start: Start::At(0) };
            let scaled = scaled_at(place, ty, bytes);
            fit_scaled(scaled, precision, scale).err().map(|_| format!("{scaled} is out of range for {ty}"))
        }
        Type::Time => {
            let micros = i64::from_le_bytes(bytes.try_into().expect("a time has 8 bytes"));
            Time::from_micros(micros).is_none().then(|| format!("{micros} is no time of day"))
        }
        Type::Text | Type::Varchar(_) | Type::Char(_) => match str::from_utf8(bytes) {
            Err(e) => Some(e.to_string()),
            Ok(text) => match fit_text(text, ty) {
                Err(_) => Some(format!("{} characters in a {ty}", text.chars().count())),
                Ok(fit) => (fit.len() != text.len()).then(|| "blanks at the end of a char".to_owned()),
            },
        },
        _ => None,
    }
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
