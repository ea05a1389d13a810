//! Columns as integers: which integer stands for the value of a row, and back.
//!
//! | type | physical | integer |
//! |---|---|---|
//! | boolean, int2/4/8, date, time, timestamps, decimal of up to 18 digits | `Int` | the number itself |
//! | float4, float8 | `Float` | the bits, those below the sign turned over where it is set: in the order of `total_cmp`, none lost |
//! | decimal of more digits, interval, uuid | `Wide` | 128 bits; in the order of the values, but for intervals |
//! | text, varchar, char, bytea | `Bytes` | – |
//!
//! The *order key* of a value is 64 bits that never fall as values rise; zone maps hold them. Different values may share one.

use thermocline_row::layout::{Lengths, Place, Placer, Shape};
use thermocline_row::{Date, Decimal, Time, Timestamp, TimestampTz, Uuid};
use thermocline_row::{Interval, Layout, LayoutId, Type, Value};

use super::bytes::{array_at, u16_at, u32_at, u64_at, u128_at};

/// The physical type of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Physical {
    Int(u8),
    Float(u8),
    Wide,
    Bytes,
}

/// A column of the layout, as this crate needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) ty: Type,
    pub(crate) place: Place,
    pub(crate) physical: Physical,
}

/// The columns of a layout.
pub(crate) fn fields(layout: &Layout) -> Vec<Field> {
    let shapes: Vec<Shape> = layout.columns().iter().map(|c| Shape::new(c.ty, c.nullable)).collect();
    let mut placer = Placer::new(Lengths::new(&shapes));
    let field = |(column, shape): (&thermocline_row::Column, Shape)| Field {
        ty: column.ty,
        place: placer.place(shape),
        physical: physical(column.ty),
    };
    layout.columns().iter().zip(shapes).map(field).collect()
}

/// The number that tells layouts apart whose rows have other bytes: types and nullability of the columns in their
/// order. Names may change under a block.
pub(crate) fn shape_of(layout: &Layout) -> u64 {
    let columns = layout.columns().iter();
    columns.fold(LayoutId::begin(), |id, column| id.and("", column.ty, column.nullable)).to_bits()
}

fn physical(ty: Type) -> Physical {
    match (ty, ty.width()) {
        (Type::Float4 | Type::Float8, Some(width)) => Physical::Float(width as u8),
        (_, Some(16)) => Physical::Wide,
        (_, Some(width)) => Physical::Int(width as u8),
        (_, None) => Physical::Bytes,
    }
}

impl Field {
    pub(crate) fn nullable(&self) -> bool {
        self.place.null != Place::NOT_NULL
    }

    /// The integer of a row's value, of `Int` and `Float`.
    #[inline(always)]
    pub(crate) fn integer(&self, row: &[u8]) -> i64 {
        let at = self.place.offset as usize;
        match self.physical {
            Physical::Int(8) => u64_at(row, at) as i64,
            Physical::Int(4) => (u32_at(row, at) as i32).into(),
            Physical::Int(2) => (u16_at(row, at) as i16).into(),
            Physical::Int(_) => array_at::<1>(row, at)[0].into(),
            Physical::Float(4) => turned32(u32_at(row, at) as i32).into(),
            Physical::Float(_) => turned64(u64_at(row, at) as i64),
            Physical::Wide | Physical::Bytes => 0,
        }
    }

    /// Writes the value of an integer into a row.
    #[inline(always)]
    pub(crate) fn put_integer(&self, integer: i64, row: &mut [u8]) {
        let at = self.place.offset as usize;
        match self.physical {
            Physical::Int(8) => put(row, at, integer.to_le_bytes()),
            Physical::Int(4) => put(row, at, (integer as i32).to_le_bytes()),
            Physical::Int(2) => put(row, at, (integer as i16).to_le_bytes()),
            Physical::Int(_) => put(row, at, [integer as u8]),
            Physical::Float(4) => put(row, at, turned32(integer as i32).to_le_bytes()),
            Physical::Float(_) => put(row, at, turned64(integer).to_le_bytes()),
            Physical::Wide => put(row, at, self.wide_bytes(integer.into())),
            Physical::Bytes => {}
        }
    }

    /// The 128 bits of a row's value, of `Wide`.
    #[inline(always)]
    pub(crate) fn wide(&self, row: &[u8]) -> i128 {
        let at = self.place.offset as usize;
        match self.ty {
            Type::Uuid => (u128::from_be_bytes(array_at(row, at)) ^ 1 << 127) as i128,
            _ => u128_at(row, at) as i128,
        }
    }

    /// The bytes of 128 bits as rows have them.
    #[inline(always)]
    pub(crate) fn wide_bytes(&self, wide: i128) -> [u8; 16] {
        match self.ty {
            Type::Uuid => (wide as u128 ^ 1 << 127).to_be_bytes(),
            _ => wide.to_le_bytes(),
        }
    }

    /// Writes 128 bits into a row.
    #[inline(always)]
    pub(crate) fn put_wide(&self, wide: i128, row: &mut [u8]) {
        put(row, self.place.offset as usize, self.wide_bytes(wide));
    }

    /// The order key of 128 bits.
    pub(crate) fn wide_key(&self, wide: i128) -> i64 {
        match self.ty {
            Type::Uuid => (wide >> 64) as i64,
            Type::Interval => clamped(interval_micros(interval(wide))),
            _ => clamped(wide),
        }
    }

    /// True if sums are kept of it.
    pub(crate) fn is_summed(&self) -> bool {
        matches!(self.ty, Type::Int2 | Type::Int4 | Type::Int8 | Type::Decimal { .. })
    }

    /// The value of an integer, of `Int` and `Float`.
    pub(crate) fn integer_value(&self, v: i64) -> Value {
        match self.ty {
            Type::Boolean => Value::Boolean(v != 0),
            Type::Int2 => Value::Int2(v as i16),
            Type::Int4 => Value::Int4(v as i32),
            Type::Int8 => Value::Int8(v),
            Type::Float4 => Value::Float4(f32::from_bits(turned32(v as i32) as u32)),
            Type::Float8 => Value::Float8(f64::from_bits(turned64(v) as u64)),
            Type::Date => Value::Date(Date(v as i32)),
            Type::Time => Value::Time(Time::from_micros(v).unwrap_or_default()),
            Type::Timestamp => Value::Timestamp(Timestamp(v)),
            Type::TimestampTz => Value::TimestampTz(TimestampTz(v)),
            _ => self.wide_value(v.into()),
        }
    }

    /// The value of 128 bits.
    pub(crate) fn wide_value(&self, v: i128) -> Value {
        match self.ty {
            Type::Decimal { scale, .. } => Value::Decimal(Decimal::new(v, scale).unwrap_or_default()),
            Type::Interval => Value::Interval(interval(v)),
            Type::Uuid => Value::Uuid(Uuid(self.wide_bytes(v))),
            _ => Value::Null,
        }
    }

    /// The value of bytes, of `Bytes`. What is no UTF-8 in damaged bytes is replaced.
    pub(crate) fn bytes_value(&self, bytes: &[u8]) -> Value {
        if self.ty == Type::Bytes {
            Value::Bytes(bytes.to_vec())
        } else {
            Value::Text(String::from_utf8_lossy(bytes).into_owned())
        }
    }
}

/// The first eight bytes as an order key.
pub(crate) fn bytes_key(bytes: &[u8]) -> i64 {
    let mut prefix = [0; 8];
    let len = bytes.len().min(8);
    prefix[..len].copy_from_slice(&bytes[..len]);
    (u64::from_be_bytes(prefix) ^ 1 << 63) as i64
}

/// Months, days and microseconds as rows have them.
pub(crate) fn interval(wide: i128) -> Interval {
    let bits = wide as u128;
    Interval::new(bits as i32, (bits >> 32) as i32, (bits >> 64) as i64)
}

/// The length by which SQL compares intervals: a month has 30 days, a day 24 hours.
pub(crate) fn interval_micros(v: Interval) -> i128 {
    (i128::from(v.months) * 30 + i128::from(v.days)) * 86_400_000_000 + i128::from(v.micros)
}

pub(crate) fn clamped(v: i128) -> i64 {
    v.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// Bits of a float to an integer in the order of `total_cmp`, and back.
#[inline(always)]
pub(crate) fn turned64(bits: i64) -> i64 {
    bits ^ ((bits >> 63) as u64 >> 1) as i64
}

/// The same of 32 bits.
#[inline(always)]
pub(crate) fn turned32(bits: i32) -> i32 {
    bits ^ ((bits >> 31) as u32 >> 1) as i32
}

#[inline(always)]
fn put<const N: usize>(row: &mut [u8], at: usize, bytes: [u8; N]) {
    if let Some(place) = row.get_mut(at..at + N) {
        place.copy_from_slice(&bytes);
    }
}
