//! Keys: bytes whose order is the order of SQL.
//!
//! Comparing two keys of one [`KeySpec`] byte by byte gives the order of their columns, and equal keys are values that
//! SQL calls equal. A key is the concatenation of its columns; no column's bytes are a proper prefix of another value's
//! bytes, so that a prefix of columns is a prefix of bytes.
//!
//! | column | bytes |
//! |---|---|
//! | integers, date, time, timestamps | big-endian, sign bit flipped |
//! | decimal | the number times 10^scale in 8 or 16 bytes, as integers |
//! | floats | big-endian; negative ones inverted, others with the sign bit set; -0 as 0, every NaN as the greatest |
//! | boolean | 0 or 1 |
//! | text, varchar, char, bytea | the bytes, `00` as `00 FF`, then `00 00`; char without trailing blanks |
//! | interval | its span in microseconds (30-day months, 24 h days), 16 bytes as integers |
//! | uuid | its bytes |
//! | nullable | a byte before: 1 for a value, 2 for null with nothing behind it: nulls last |
//! | descending | all bytes of the column, marker included, inverted: nulls first |
//!
//! A key has at most [`MAX_KEY_BYTES`]; [`KeySpec::encode_row`] refuses longer ones. A [`KeyBuf`] that a program builds
//! for a search may be longer; no key equals it then.

use std::fmt;
use std::ops::Deref;

use super::decimal::Decimal;
use super::editor::ColumnSet;
use super::error::{Flaw, RowError};
use super::layout::{Layout, Place, fit_decimal, scaled_at};
use super::temporal::{Date, Interval, Time, Timestamp, TimestampTz, Uuid};
use super::types::{MAX_PRECISION_8, Type};
use super::value::{Value, interval_from};

/// Most bytes of a key in an index.
pub const MAX_KEY_BYTES: usize = 2048;
/// Bytes of a key that need no allocation.
pub const INLINE_KEY_BYTES: usize = 64;

const VALUE: u8 = 1;
const NULL: u8 = 2;

/// A key under construction, or ready. Up to [`INLINE_KEY_BYTES`] it allocates nothing.
///
/// The methods named after a type append a column of that type that takes no null and ascends. For a nullable column
/// write `.nullable(value, |key, value| key.i32(value))` or `.null()`, for a descending one
/// `.descending(|key| key.i32(7))`, for both `.descending(|key| key.null())`.
#[derive(Clone)]
pub struct KeyBuf {
    len: usize,
    inline: [u8; INLINE_KEY_BYTES],
    /// The whole key once it is longer than `inline`; then `len` is its length too.
    heap: Vec<u8>,
}

impl KeyBuf {
    /// The empty key: the prefix of all.
    #[inline]
    #[must_use]
    pub const fn new() -> Self {
        Self { len: 0, inline: [0; INLINE_KEY_BYTES], heap: Vec::new() }
    }

    /// The bytes.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        if self.len <= INLINE_KEY_BYTES { &self.inline[..self.len] } else { &self.heap }
    }

    /// Empties it; what was allocated stays for the next key.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
        self.heap.clear();
    }

    /// Appends raw bytes.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        if end <= INLINE_KEY_BYTES {
            self.inline[self.len..end].copy_from_slice(bytes);
        } else {
            self.push_heap(bytes);
        }
        self.len = end;
    }

    #[cold]
    fn push_heap(&mut self, bytes: &[u8]) {
        if self.len <= INLINE_KEY_BYTES {
            self.heap.extend_from_slice(&self.inline[..self.len]);
        }
        self.heap.extend_from_slice(bytes);
    }

    fn invert_from(&mut self, start: usize) {
        let bytes =
            if self.len <= INLINE_KEY_BYTES { &mut self.inline[..self.len] } else { &mut self.heap[..] };
        bytes[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }

    /// An error if it is longer than a key in an index can be.
    pub fn check_len(&self) -> Result<(), RowError> {
        if self.len > MAX_KEY_BYTES { Err(RowError::KeyTooLong { bytes: self.len }) } else { Ok(()) }
    }

    /// Appends a null.
    #[inline]
    #[must_use]
    pub fn null(mut self) -> Self {
        self.push(&[NULL]);
        self
    }

    /// Appends a value of a nullable column: a null, or what `append` appends.
    #[inline]
    #[must_use]
    pub fn nullable<T>(mut self, value: Option<T>, append: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            None => self.null(),
            Some(value) => {
                self.push(&[VALUE]);
                append(self, value)
            }
        }
    }

    /// Appends descending columns: what `append` appends, inverted.
    #[inline]
    #[must_use]
    pub fn descending(self, append: impl FnOnce(Self) -> Self) -> Self {
        let start = self.len;
        let mut key = append(self);
        key.invert_from(start);
        key
    }

    /// Appends a decimal column of `precision` digits; `value` must have the column's scale (see
    /// [`Decimal::rescale`]).
    #[inline]
    #[must_use]
    pub fn dec(self, value: Decimal, precision: u8) -> Self {
        self.scaled(value.mantissa(), precision)
    }

    /// Appends a decimal column of `precision` digits, from the number times 10^scale. A number that a column of that
    /// precision cannot have is put at the end of its range, where it equals no key.
    #[inline]
    #[must_use]
    pub fn scaled(mut self, scaled: i128, precision: u8) -> Self {
        if precision <= MAX_PRECISION_8 {
            let cut = scaled.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
            put(&mut Writer { out: &mut self }, flip_i64(cut));
        } else {
            put(&mut Writer { out: &mut self }, flip_i128(scaled));
        }
        self
    }

    /// Appends a text or varchar column.
    #[inline]
    #[must_use]
    pub fn str(self, value: &str) -> Self {
        self.bytes(value.as_bytes())
    }

    /// Appends a char column: trailing blanks are ignored.
    #[inline]
    #[must_use]
    pub fn char(self, value: &str) -> Self {
        self.bytes(value.trim_end_matches(' ').as_bytes())
    }

    /// Appends a bytea column.
    #[inline]
    #[must_use]
    pub fn bytes(mut self, value: &[u8]) -> Self {
        put_escaped(&mut Writer { out: &mut self }, value);
        self
    }
}

macro_rules! pushes {
    ($($(#[$meta:meta])* $name:ident($ty:ty) |$value:ident| $bytes:expr;)*) => {
        impl KeyBuf {
            $(
                $(#[$meta])*
                #[inline]
                #[must_use]
                pub fn $name(mut self, $value: $ty) -> Self {
                    self.push(&$bytes);
                    self
                }
            )*
        }
    };
}

pushes! {
    /// Appends a boolean column.
    bool(bool) |v| [u8::from(v)];
    /// Appends an int2 column.
    i16(i16) |v| flip_i16(v);
    /// Appends an int4 column.
    i32(i32) |v| flip_i32(v);
    /// Appends an int8 column.
    i64(i64) |v| flip_i64(v);
    /// Appends a float4 column.
    f32(f32) |v| order_f32(v);
    /// Appends a float8 column.
    f64(f64) |v| order_f64(v);
    /// Appends a date column.
    date(Date) |v| flip_i32(v.0);
    /// Appends a time column.
    time(Time) |v| flip_i64(v.micros());
    /// Appends a timestamp column.
    timestamp(Timestamp) |v| flip_i64(v.0);
    /// Appends a timestamptz column.
    timestamptz(TimestampTz) |v| flip_i64(v.0);
    /// Appends an interval column.
    interval(Interval) |v| flip_i128(v.span_micros());
    /// Appends a uuid column.
    uuid(Uuid) |v| v.0;
}

impl Default for KeyBuf {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for KeyBuf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl AsRef<[u8]> for KeyBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for KeyBuf {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for KeyBuf {}

impl PartialOrd for KeyBuf {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for KeyBuf {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}

impl std::hash::Hash for KeyBuf {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

impl fmt::Debug for KeyBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[inline(always)]
fn flip_i16(v: i16) -> [u8; 2] {
    (v as u16 ^ 1 << 15).to_be_bytes()
}

#[inline(always)]
fn flip_i32(v: i32) -> [u8; 4] {
    (v as u32 ^ 1 << 31).to_be_bytes()
}

#[inline(always)]
fn flip_i64(v: i64) -> [u8; 8] {
    (v as u64 ^ 1 << 63).to_be_bytes()
}

#[inline(always)]
fn flip_i128(v: i128) -> [u8; 16] {
    (v as u128 ^ 1 << 127).to_be_bytes()
}

#[inline(always)]
fn order_f32(v: f32) -> [u8; 4] {
    if v.is_nan() {
        return [0xff; 4];
    }
    // -0 + 0 is 0.
    let bits = (v + 0.0).to_bits();
    let flipped = if bits >> 31 == 0 { bits | 1 << 31 } else { !bits };
    flipped.to_be_bytes()
}

#[inline(always)]
fn order_f64(v: f64) -> [u8; 8] {
    if v.is_nan() {
        return [0xff; 8];
    }
    let bits = (v + 0.0).to_bits();
    let flipped = if bits >> 63 == 0 { bits | 1 << 63 } else { !bits };
    flipped.to_be_bytes()
}

/// Where the bytes of a key go: into a buffer, or against a key that exists. `false` ends the walk.
trait Sink {
    fn slice(&mut self, bytes: &[u8]) -> bool;
}

/// Appends.
struct Writer<'a> {
    out: &'a mut KeyBuf,
}

impl Sink for Writer<'_> {
    #[inline(always)]
    fn slice(&mut self, bytes: &[u8]) -> bool {
        self.out.push(bytes);
        true
    }
}

/// Compares.
struct Matcher<'a> {
    rest: &'a [u8],
}

impl Sink for Matcher<'_> {
    #[inline(always)]
    fn slice(&mut self, bytes: &[u8]) -> bool {
        match self.rest.split_at_checked(bytes.len()) {
            Some((head, rest)) => {
                self.rest = rest;
                head == bytes
            }
            None => false,
        }
    }
}

/// Inverts on the way to another sink: a descending column.
struct Inverted<'a, S>(&'a mut S);

impl<S: Sink> Sink for Inverted<'_, S> {
    #[inline]
    fn slice(&mut self, bytes: &[u8]) -> bool {
        let mut buffer = [0; 32];
        bytes.chunks(32).all(|chunk| {
            buffer.iter_mut().zip(chunk).for_each(|(to, from)| *to = !from);
            self.0.slice(&buffer[..chunk.len()])
        })
    }
}

#[inline(always)]
fn put<const N: usize>(sink: &mut impl Sink, bytes: [u8; N]) -> bool {
    sink.slice(&bytes)
}

#[inline]
fn put_escaped(sink: &mut impl Sink, bytes: &[u8]) -> bool {
    if bytes.contains(&0) {
        let mut rest = bytes;
        while let Some(zero) = rest.iter().position(|byte| *byte == 0) {
            if !(sink.slice(&rest[..zero]) && put(sink, [0, 0xff])) {
                return false;
            }
            rest = &rest[zero + 1..];
        }
        return sink.slice(rest) && put(sink, [0, 0]);
    }
    sink.slice(bytes) && put(sink, [0, 0])
}

/// A column of a key.
#[derive(Clone, Debug)]
struct KeyColumn {
    place: Place,
    ty: Type,
    descending: bool,
    column: usize,
    name: Box<str>,
}

impl KeyColumn {
    fn nullable(&self) -> bool {
        self.place.null != Place::NOT_NULL
    }

    /// Sends the column's bytes to the sink.
    #[inline(always)]
    fn walk(&self, row: &[u8], sink: &mut impl Sink) -> bool {
        if self.descending { self.walk_inverted(row, sink) } else { self.walk_ascending(row, sink) }
    }

    #[inline(never)]
    fn walk_inverted(&self, row: &[u8], sink: &mut impl Sink) -> bool {
        self.walk_ascending(row, &mut Inverted(sink))
    }

    #[inline(always)]
    fn walk_ascending(&self, row: &[u8], sink: &mut impl Sink) -> bool {
        let place = self.place;
        if place.null != Place::NOT_NULL {
            let null = place.is_null(row);
            if !put(sink, [if null { NULL } else { VALUE }]) {
                return false;
            }
            if null {
                return true;
            }
        }
        match self.ty {
            Type::Boolean => put(sink, place.fixed::<1>(row)),
            Type::Int2 => put(sink, flip_i16(i16::from_le_bytes(place.fixed(row)))),
            Type::Int4 | Type::Date => put(sink, flip_i32(i32::from_le_bytes(place.fixed(row)))),
            Type::Int8 | Type::Time | Type::Timestamp | Type::TimestampTz => {
                put(sink, flip_i64(i64::from_le_bytes(place.fixed(row))))
            }
            Type::Decimal { precision, .. } if precision <= MAX_PRECISION_8 => {
                put(sink, flip_i64(i64::from_le_bytes(place.fixed(row))))
            }
            Type::Decimal { .. } => put(sink, flip_i128(scaled_at(place, self.ty, row))),
            Type::Float4 => put(sink, order_f32(f32::from_le_bytes(place.fixed(row)))),
            Type::Float8 => put(sink, order_f64(f64::from_le_bytes(place.fixed(row)))),
            // A char in a row has no trailing blanks.
            Type::Text | Type::Varchar(_) | Type::Char(_) | Type::Bytes => {
                put_escaped(sink, place.variable(row))
            }
            Type::Interval => put(sink, flip_i128(interval_from(place.fixed(row)).span_micros())),
            Type::Uuid => put(sink, place.fixed::<16>(row)),
        }
    }

    /// Sends the bytes of a value to the sink.
    fn walk_value(&self, value: &Value, sink: &mut impl Sink) -> Result<(), Flaw> {
        if self.nullable() {
            put(sink, [if value.is_null() { NULL } else { VALUE }]);
        }
        match (self.ty, value) {
            (_, Value::Null) if self.nullable() => true,
            (_, Value::Null) => return Err(Flaw::Null),
            (Type::Boolean, Value::Boolean(v)) => put(sink, [u8::from(*v)]),
            (Type::Int2, Value::Int2(v)) => put(sink, flip_i16(*v)),
            (Type::Int4, Value::Int4(v)) => put(sink, flip_i32(*v)),
            (Type::Int8, Value::Int8(v)) => put(sink, flip_i64(*v)),
            (Type::Float4, Value::Float4(v)) => put(sink, order_f32(*v)),
            (Type::Float8, Value::Float8(v)) => put(sink, order_f64(*v)),
            (Type::Decimal { precision, scale }, Value::Decimal(v)) => {
                let scaled = fit_decimal(*v, precision, scale)?;
                if precision <= MAX_PRECISION_8 {
                    put(sink, flip_i64(scaled as i64))
                } else {
                    put(sink, flip_i128(scaled))
                }
            }
            (Type::Text | Type::Varchar(_), Value::Text(v)) => put_escaped(sink, v.as_bytes()),
            (Type::Char(_), Value::Text(v)) => put_escaped(sink, v.trim_end_matches(' ').as_bytes()),
            (Type::Bytes, Value::Bytes(v)) => put_escaped(sink, v),
            (Type::Date, Value::Date(v)) => put(sink, flip_i32(v.0)),
            (Type::Time, Value::Time(v)) => put(sink, flip_i64(v.micros())),
            (Type::Timestamp, Value::Timestamp(v)) => put(sink, flip_i64(v.0)),
            (Type::TimestampTz, Value::TimestampTz(v)) => put(sink, flip_i64(v.0)),
            (Type::Interval, Value::Interval(v)) => put(sink, flip_i128(v.span_micros())),
            (Type::Uuid, Value::Uuid(v)) => put(sink, v.0),
            _ => return Err(Flaw::WrongType { found: value.kind() }),
        };
        Ok(())
    }

    /// Takes the column's bytes from the front of a key, looking at markers and widths alone. `None`: they end early.
    fn skip(&self, rest: &mut &[u8]) -> Result<Option<()>, &'static str> {
        let mask = if self.descending { 0xff } else { 0 };
        if self.nullable() {
            let Some((marker, tail)) = rest.split_first() else { return Ok(None) };
            *rest = tail;
            match marker ^ mask {
                VALUE => {}
                NULL => return Ok(Some(())),
                _ => return Err("neither a null nor a value begins there"),
            }
        }
        let width = match self.ty {
            Type::Text | Type::Varchar(_) | Type::Char(_) | Type::Bytes => return skip_escaped(rest, mask),
            Type::Interval => size_of::<i128>(),
            ty => ty.width().expect("all other types have a width, and as many bytes in a key"),
        };
        let Some((_, tail)) = rest.split_at_checked(width) else { return Ok(None) };
        *rest = tail;
        Ok(Some(()))
    }

    /// Takes the column's value from the front of a key.
    fn take(&self, rest: &mut &[u8]) -> Result<Value, RowError> {
        let mask = if self.descending { 0xff } else { 0 };
        let damaged = |reason: &str| RowError::damaged(&self.name, reason);
        let short = || damaged("the key ends in the middle of a value");
        if self.nullable() {
            let (marker, tail) = rest.split_first().ok_or_else(short)?;
            *rest = tail;
            match marker ^ mask {
                VALUE => {}
                NULL => return Ok(Value::Null),
                _ => return Err(damaged("the key has neither a null nor a value where one begins")),
            }
        }
        fn array<const N: usize>(rest: &mut &[u8], mask: u8) -> Option<[u8; N]> {
            let (head, tail) = rest.split_first_chunk::<N>()?;
            *rest = tail;
            Some(head.map(|byte| byte ^ mask))
        }
        let i16 = |bytes| (u16::from_be_bytes(bytes) ^ 1 << 15) as i16;
        let i32 = |bytes| (u32::from_be_bytes(bytes) ^ 1 << 31) as i32;
        let i64 = |bytes| (u64::from_be_bytes(bytes) ^ 1 << 63) as i64;
        let i128 = |bytes| (u128::from_be_bytes(bytes) ^ 1 << 127) as i128;
        Ok(match self.ty {
            Type::Boolean => Value::Boolean(array::<1>(rest, mask).ok_or_else(short)?[0] != 0),
            Type::Int2 => Value::Int2(i16(array(rest, mask).ok_or_else(short)?)),
            Type::Int4 => Value::Int4(i32(array(rest, mask).ok_or_else(short)?)),
            Type::Int8 => Value::Int8(i64(array(rest, mask).ok_or_else(short)?)),
            Type::Float4 => {
                let bits = u32::from_be_bytes(array(rest, mask).ok_or_else(short)?);
                Value::Float4(f32::from_bits(if bits >> 31 == 0 { !bits } else { bits & !(1 << 31) }))
            }
            Type::Float8 => {
                let bits = u64::from_be_bytes(array(rest, mask).ok_or_else(short)?);
                Value::Float8(f64::from_bits(if bits >> 63 == 0 { !bits } else { bits & !(1 << 63) }))
            }
            Type::Decimal { precision, scale } => {
                let scaled = if precision <= MAX_PRECISION_8 {
                    i64(array(rest, mask).ok_or_else(short)?).into()
                } else {
                    i128(array(rest, mask).ok_or_else(short)?)
                };
                Value::Decimal(Decimal::new(scaled, scale).map_err(|_| damaged("a decimal out of range"))?)
            }
            Type::Text | Type::Varchar(_) | Type::Char(_) => {
                let bytes = take_escaped(rest, mask).ok_or_else(short)?;
                Value::Text(String::from_utf8(bytes).map_err(|e| damaged(&e.to_string()))?)
            }
            Type::Bytes => Value::Bytes(take_escaped(rest, mask).ok_or_else(short)?),
            Type::Date => Value::Date(Date(i32(array(rest, mask).ok_or_else(short)?))),
            Type::Time => {
                let time = Time::from_micros(i64(array(rest, mask).ok_or_else(short)?));
                Value::Time(time.ok_or_else(|| damaged("a time of more than a day"))?)
            }
            Type::Timestamp => Value::Timestamp(Timestamp(i64(array(rest, mask).ok_or_else(short)?))),
            Type::TimestampTz => Value::TimestampTz(TimestampTz(i64(array(rest, mask).ok_or_else(short)?))),
            Type::Interval => {
                let span = Interval::from_span_micros(i128(array(rest, mask).ok_or_else(short)?));
                Value::Interval(span.ok_or_else(|| damaged("an interval out of range"))?)
            }
            Type::Uuid => Value::Uuid(Uuid(array(rest, mask).ok_or_else(short)?)),
        })
    }
}

/// Passes over escaped bytes with their end. `None`: there is no end.
fn skip_escaped(rest: &mut &[u8], mask: u8) -> Result<Option<()>, &'static str> {
    loop {
        let Some(at) = rest.iter().position(|byte| byte ^ mask == 0) else {
            *rest = &[];
            return Ok(None);
        };
        let (next, tail) = (rest.get(at + 1), rest.get(at + 2..).unwrap_or_default());
        *rest = tail;
        match next.map(|next| next ^ mask) {
            Some(0) => return Ok(Some(())),
            Some(0xff) => {}
            Some(_) => return Err("a zero byte in a text is followed by neither 00 nor FF"),
            None => return Ok(None),
        }
    }
}

/// Takes escaped bytes with their end from the front of a key.
fn take_escaped(rest: &mut &[u8], mask: u8) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let (byte, tail) = rest.split_first()?;
        *rest = tail;
        if byte ^ mask != 0 {
            bytes.push(byte ^ mask);
            continue;
        }
        let (next, tail) = rest.split_first()?;
        *rest = tail;
        match next ^ mask {
            0 => return Some(bytes),
            0xff => bytes.push(0),
            _ => return None,
        }
    }
}

/// Most columns of a key that [`Integers`] takes.
const INTEGER_COLUMNS: usize = 6;

/// A key of nothing but integers (also dates, timestamps, decimals of up to 18 digits) that ascend and take no null:
/// the usual primary key. It is compared and written without looking at the types again.
#[derive(Clone, Copy, Debug, Default)]
struct Integers {
    parts: [IntegerPart; INTEGER_COLUMNS],
    count: usize,
    /// Bytes of the key; 0 if the key is not of this kind.
    len: usize,
    /// The lengths of what keys can begin with, a bit each: none, or one and more whole columns.
    beginnings: u64,
}

// Each length of a key of this kind has its bit.
const _: () = assert!(INTEGER_COLUMNS * 8 < u64::BITS as usize);

#[derive(Clone, Copy, Debug, Default)]
struct IntegerPart {
    row: u32,
    key: u16,
    width: u16,
}

impl Integers {
    fn new(columns: &[KeyColumn]) -> Self {
        let mut integers = Self { count: columns.len(), beginnings: 1, ..Self::default() };
        if columns.len() > INTEGER_COLUMNS {
            return Self::default();
        }
        for (part, column) in integers.parts.iter_mut().zip(columns) {
            let width = match column.ty {
                Type::Int2 => 2,
                Type::Int4 | Type::Date => 4,
                Type::Int8 | Type::Time | Type::Timestamp | Type::TimestampTz => 8,
                Type::Decimal { precision, .. } if precision <= MAX_PRECISION_8 => 8,
                _ => return Self::default(),
            };
            if column.descending || column.nullable() {
                return Self::default();
            }
            *part = IntegerPart { row: column.place.offset, key: integers.len as u16, width };
            integers.len += usize::from(width);
            integers.beginnings |= 1 << integers.len;
        }
        integers
    }

    #[inline(always)]
    fn walk(&self, row: &[u8], sink: &mut impl PartSink) -> bool {
        self.parts[..self.count].iter().all(|part| {
            let (offset, at) = (part.row as usize, usize::from(part.key));
            match part.width {
                2 => sink.part(at, flip_i16(i16::from_le_bytes(bytes_at(row, offset)))),
                4 => sink.part(at, flip_i32(i32::from_le_bytes(bytes_at(row, offset)))),
                _ => sink.part(at, flip_i64(i64::from_le_bytes(bytes_at(row, offset)))),
            }
        })
    }
}

#[inline(always)]
fn bytes_at<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    bytes[offset..offset + N].try_into().expect("a slice of N bytes has N bytes")
}

/// What is done with each column of a key of [`Integers`], at its place in the key. An array, not a slice, so that it is
/// one load and one comparison.
trait PartSink {
    fn part<const N: usize>(&mut self, at: usize, bytes: [u8; N]) -> bool;
}

/// Compares with a key of the right length.
impl PartSink for &[u8] {
    #[inline(always)]
    fn part<const N: usize>(&mut self, at: usize, bytes: [u8; N]) -> bool {
        bytes_at::<N>(self, at) == bytes
    }
}

/// Writes.
impl PartSink for [u8; INLINE_KEY_BYTES] {
    #[inline(always)]
    fn part<const N: usize>(&mut self, at: usize, bytes: [u8; N]) -> bool {
        self[at..at + N].copy_from_slice(&bytes);
        true
    }
}

/// Which columns of a table make a key, and how.
#[derive(Clone, Debug)]
pub struct KeySpec {
    integers: Integers,
    nullable: bool,
    columns: Box<[KeyColumn]>,
    set: ColumnSet,
}

impl KeySpec {
    /// The key of these columns of the layout; `true` for a descending one.
    pub fn new(layout: &Layout, columns: &[(usize, bool)]) -> Result<Self, RowError> {
        let columns = columns.iter().map(|(column, descending)| {
            let Some(slot) = layout.slots().get(*column) else {
                return Err(RowError::UnknownColumn { column: format!("number {column}").into() });
            };
            Ok(KeyColumn {
                place: slot.place,
                ty: slot.ty,
                descending: *descending,
                column: *column,
                name: layout.columns()[*column].name.as_str().into(),
            })
        });
        let columns: Box<[KeyColumn]> = columns.collect::<Result<_, RowError>>()?;
        let set = columns.iter().map(|column| column.column).collect();
        let nullable = columns.iter().any(KeyColumn::nullable);
        Ok(Self { integers: Integers::new(&columns), nullable, columns, set })
    }

    /// The columns it depends on: if an update changed none of them, the key is the same.
    #[inline]
    #[must_use]
    pub fn columns(&self) -> &ColumnSet {
        &self.set
    }

    /// Number and direction (`true`: descending) of each column, in the key's order.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = (usize, bool)> + '_ {
        self.columns.iter().map(|column| (column.column, column.descending))
    }

    /// Writes the key of a row of the layout into `out`, whose content goes.
    #[inline]
    pub fn encode_row(&self, row: &[u8], out: &mut KeyBuf) -> Result<(), RowError> {
        out.clear();
        if self.integers.len != 0 {
            self.integers.walk(row, &mut out.inline);
            out.len = self.integers.len;
            return Ok(());
        }
        self.encode_any(row, out)
    }

    fn encode_any(&self, row: &[u8], out: &mut KeyBuf) -> Result<(), RowError> {
        let mut writer = Writer { out };
        for column in &self.columns {
            column.walk(row, &mut writer);
        }
        out.check_len()
    }

    /// Whether `key` is the key of the row.
    #[inline]
    #[must_use]
    pub fn matches(&self, row: &[u8], key: &[u8]) -> bool {
        if self.integers.len != 0 {
            let mut key = key;
            return key.len() == self.integers.len && self.integers.walk(row, &mut key);
        }
        self.matches_any(row, key)
    }

    fn matches_any(&self, row: &[u8], key: &[u8]) -> bool {
        let mut matcher = Matcher { rest: key };
        self.columns.iter().all(|column| column.walk(row, &mut matcher)) && matcher.rest.is_empty()
    }

    /// Whether bytes can be a key of these columns: by widths, null markers and the ends of texts. Columns of the same width
    /// cannot be told apart.
    ///
    /// # Errors
    /// [`RowError::KeyMismatch`].
    #[inline]
    pub fn check_key(&self, key: &[u8]) -> Result<(), RowError> {
        if self.integers.len != 0 && key.len() == self.integers.len {
            return Ok(());
        }
        self.check_columns(key, true)
    }

    /// The same of the end of a range, or of what keys begin with: columns may be missing at the end, and a text may be cut.
    ///
    /// # Errors
    /// [`RowError::KeyMismatch`].
    #[inline]
    pub fn check_beginning(&self, key: &[u8]) -> Result<(), RowError> {
        if key.len() <= self.integers.len && self.integers.beginnings >> key.len() & 1 != 0 {
            return Ok(());
        }
        self.check_columns(key, false)
    }

    fn check_columns(&self, key: &[u8], whole: bool) -> Result<(), RowError> {
        let mut rest = key;
        for column in &self.columns {
            if rest.is_empty() && !whole {
                return Ok(());
            }
            let is_cut = match column.skip(&mut rest) {
                Ok(Some(())) => continue,
                // A text that goes on is one that others begin with.
                Ok(None) => whole || column.ty.width().is_some(),
                Err(what) => return Err(self.mismatch(key, &format!("in column \"{}\" {what}", column.name))),
            };
            if !is_cut {
                return Ok(());
            }
            return Err(self.mismatch(key, &format!("it ends within column \"{}\"", column.name)));
        }
        if rest.is_empty() {
            return Ok(());
        }
        Err(self.mismatch(key, &format!("{} of them follow the last column", rest.len())))
    }

    #[cold]
    fn mismatch(&self, key: &[u8], what: &str) -> RowError {
        let columns = self.columns.iter().map(|column| {
            let null = if column.nullable() { " null" } else { "" };
            let descending = if column.descending { " desc" } else { "" };
            format!("{} {}{null}{descending}", column.name, column.ty)
        });
        let columns = format!("({})", columns.collect::<Vec<_>>().join(", "));
        RowError::KeyMismatch {
            columns: columns.into(),
            reason: format!("of its {} bytes, {what}", key.len()).into(),
        }
    }

    /// The key of these values, one a column; fewer values give a prefix.
    pub fn encode_values(&self, values: &[Value]) -> Result<KeyBuf, RowError> {
        if values.len() > self.columns.len() {
            return Err(RowError::ColumnCount { expected: self.columns.len(), found: values.len() });
        }
        let mut key = KeyBuf::new();
        for (column, value) in self.columns.iter().zip(values) {
            let mut writer = Writer { out: &mut key };
            let result = if column.descending {
                column.walk_value(value, &mut Inverted(&mut writer))
            } else {
                column.walk_value(value, &mut writer)
            };
            result.map_err(|flaw| RowError::value(&column.name, column.ty, flaw))?;
        }
        key.check_len()?;
        Ok(key)
    }

    /// Whether a column of the key is null in the row: a unique index does not compare such keys.
    #[inline]
    #[must_use]
    pub fn contains_null(&self, row: &[u8]) -> bool {
        self.nullable && self.columns.iter().any(|column| column.place.is_null(row))
    }

    /// The values in a key or a prefix of one, as far as a key keeps them: -0 is 0, an interval has its days carried
    /// into months, a char has no trailing blanks.
    pub fn decode(&self, key: &[u8]) -> Result<Vec<Value>, RowError> {
        let mut rest = key;
        let mut values = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            if rest.is_empty() {
                break;
            }
            values.push(column.take(&mut rest)?);
        }
        if rest.is_empty() {
            Ok(values)
        } else {
            Err(RowError::damaged_bytes("bytes after the end of a key"))
        }
    }

    /// The key for messages: `(w_id, name)=(1, 'x')`; bytes that are no key in hexadecimal digits.
    #[must_use]
    pub fn display_key(&self, key: &[u8]) -> String {
        let Ok(values) = self.decode(key) else {
            return format!("\\x{}", key.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        };
        self.display_values(&values)
    }

    /// What is known of a key from its beginning, for messages like those of [`KeySpec::display_key`]: a value that ends
    /// early is completed with zeros if that makes one, and what follows the last column is left out.
    #[must_use]
    pub fn display_beginning(&self, key: &[u8]) -> String {
        const ZEROS: [u8; 16] = [0; 16];
        let mut values = Vec::new();
        let mut rest = key;
        for column in &self.columns {
            if rest.is_empty() {
                break;
            }
            let mut tail = rest;
            if let Ok(value) = column.take(&mut tail) {
                values.push(value);
                rest = tail;
                continue;
            }
            let completed = (1..=ZEROS.len()).find_map(|zeros| {
                let bytes = [rest, &ZEROS[..zeros]].concat();
                column.take(&mut &bytes[..]).ok()
            });
            values.extend(completed);
            break;
        }
        if values.is_empty() { self.display_key(key) } else { self.display_values(&values) }
    }

    fn display_values(&self, values: &[Value]) -> String {
        let names: Vec<&str> = self.columns.iter().take(values.len()).map(|column| &*column.name).collect();
        let values: Vec<String> = values
            .iter()
            .map(|value| match value {
                Value::Text(text) => format!("'{}'", text.replace('\'', "''")),
                other => other.to_string(),
            })
            .collect();
        format!("({})=({})", names.join(", "), values.join(", "))
    }
}

#[cfg(test)]
#[path = "key_tests.rs"]
mod tests;
