//! Batches: rows of a scan as typed columns, each with a bit a row that says whether there is a value.
//!
//! | type | values |
//! |---|---|
//! | boolean | a bit each |
//! | int2, int4, int8; date; time, timestamps | 16, 32 or 64 bits: the number, days, microseconds |
//! | float4, float8 | 32 or 64 bits |
//! | decimal of up to 18 digits, of more | the number times 10^scale in 64 or 128 bits |
//! | interval, uuid | as they are |
//! | text, varchar, char, bytea | bytes with offsets, or codes with a dictionary of such |
//!
//! The layouts are Arrow's: words of bits the least significant first, values side by side, `len + 1` offsets of 32 bits. Where a
//! value is null there is some value, of no meaning.
//!
//! A batch owns its values; a dictionary is shared by the batches of one block.

use std::sync::Arc;

use thermocline_row::{Date, Decimal, Interval, Time, Timestamp, TimestampTz, Type, Uuid, Value};

/// Bits, 64 a word, the least significant first. Bits behind the last are zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bitmap {
    words: Vec<u64>,
    len: usize,
}

/// Byte strings side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strings {
    offsets: Vec<i32>,
    bytes: Vec<u8>,
}

/// The values of a column.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Values {
    /// Booleans.
    Boolean(Bitmap),
    /// 16-bit integers.
    Int2(Vec<i16>),
    /// 32-bit integers, and dates: days since 1970-01-01.
    Int4(Vec<i32>),
    /// 64-bit integers; times, timestamps: microseconds; decimals of up to 18 digits: times 10^scale.
    Int8(Vec<i64>),
    /// 32-bit floats.
    Float4(Vec<f32>),
    /// 64-bit floats.
    Float8(Vec<f64>),
    /// Decimals of more than 18 digits: times 10^scale.
    Decimal(Vec<i128>),
    /// Intervals.
    Interval(Vec<Interval>),
    /// Uuids.
    Uuid(Vec<Uuid>),
    /// Strings of characters or bytes.
    Strings(Strings),
    /// Places in a dictionary, whose strings differ and ascend.
    Codes(Vec<i32>, Arc<Strings>),
}

/// A column of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    pub(crate) ty: Type,
    pub(crate) values: Values,
    pub(crate) validity: Option<Bitmap>,
}

/// Rows as columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    pub(crate) columns: Vec<Array>,
    pub(crate) rows: usize,
}

impl Bitmap {
    /// Number of bits.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are no bits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The words.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// A bit; panics where there is none.
    #[must_use]
    pub fn get(&self, index: usize) -> bool {
        assert!(index < self.len, "bit {index} of {}", self.len);
        self.words[index / 64] >> (index % 64) & 1 != 0
    }

    pub(crate) fn push(&mut self, bit: bool) {
        if self.len.is_multiple_of(64) {
            self.words.push(0);
        }
        *self.words.last_mut().expect("just seen to") |= u64::from(bit) << (self.len % 64);
        self.len += 1;
    }

    /// Appends so many bits that are set.
    pub(crate) fn push_ones(&mut self, mut count: usize) {
        while count > 0 && !self.len.is_multiple_of(64) {
            self.push(true);
            count -= 1;
        }
        self.words.extend(std::iter::repeat_n(u64::MAX, count / 64));
        self.len += count / 64 * 64;
        (0..count % 64).for_each(|_| self.push(true));
    }

    /// Bits that are not set.
    #[must_use]
    pub fn zeros(&self) -> usize {
        self.len - self.words.iter().map(|word| word.count_ones() as usize).sum::<usize>()
    }
}

impl Default for Strings {
    fn default() -> Self {
        Self { offsets: vec![0], bytes: Vec::new() }
    }
}

impl Strings {
    /// The number of handles.
    #[must_use]
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where each begins in the bytes, and where the last ends.
    #[must_use]
    pub fn offsets(&self) -> &[i32] {
        &self.offsets
    }

    /// All bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// One of them; panics where there is none.
    #[must_use]
    pub fn get(&self, index: usize) -> &[u8] {
        &self.bytes[self.offsets[index] as usize..self.offsets[index + 1] as usize]
    }

    pub(crate) fn push(&mut self, parts: (&[u8], &[u8])) {
        self.bytes.extend_from_slice(parts.0);
        self.bytes.extend_from_slice(parts.1);
        // Rows have a MiB at most and batches 2^13 rows, so they come near 2^31 only where a caller goes on and on
        // with long rows: one that fills a batch looks at `bytes_len` (see `Gather`).
        self.offsets.push(i32::try_from(self.bytes.len()).expect("the bytes of a batch are bounded"));
    }

    fn memory(&self) -> usize {
        self.bytes.capacity() + self.offsets.capacity() * size_of::<i32>()
    }
}

impl Values {
    /// No values of a type.
    pub(crate) fn none(ty: Type) -> Self {
        match ty {
            Type::Boolean => Values::Boolean(Bitmap::default()),
            Type::Int2 => Values::Int2(Vec::new()),
            Type::Int4 | Type::Date => Values::Int4(Vec::new()),
            Type::Float4 => Values::Float4(Vec::new()),
            Type::Float8 => Values::Float8(Vec::new()),
            Type::Decimal { .. } if ty.width() == Some(16) => Values::Decimal(Vec::new()),
            Type::Int8 | Type::Time | Type::Timestamp | Type::TimestampTz | Type::Decimal { .. } => {
                Values::Int8(Vec::new())
            }
            Type::Interval => Values::Interval(Vec::new()),
            Type::Uuid => Values::Uuid(Vec::new()),
            Type::Text | Type::Varchar(_) | Type::Char(_) | Type::Bytes => {
                Values::Strings(Strings::default())
            }
        }
    }

    /// Bytes of memory beside a dictionary's.
    fn memory(&self) -> usize {
        match self {
            Values::Boolean(bits) => bits.words.capacity() * 8,
            Values::Int2(values) => values.capacity() * 2,
            Values::Int4(values) | Values::Codes(values, _) => values.capacity() * 4,
            Values::Int8(values) => values.capacity() * 8,
            Values::Float4(values) => values.capacity() * 4,
            Values::Float8(values) => values.capacity() * 8,
            Values::Decimal(values) => values.capacity() * 16,
            Values::Interval(values) => values.capacity() * size_of::<Interval>(),
            Values::Uuid(values) => values.capacity() * 16,
            Values::Strings(strings) => strings.memory(),
        }
    }
}

impl Array {
    /// The type of the column.
    #[must_use]
    pub fn ty(&self) -> Type {
        self.ty
    }

    /// The values.
    #[must_use]
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// A bit a row: whether there is a value. `None`: there is one in every row.
    #[must_use]
    pub fn validity(&self) -> Option<&Bitmap> {
        self.validity.as_ref()
    }

    /// True if a row has no value.
    #[must_use]
    pub fn is_null(&self, row: usize) -> bool {
        self.validity.as_ref().is_some_and(|bits| !bits.get(row))
    }

    /// Rows that have no value.
    #[must_use]
    pub fn nulls(&self) -> usize {
        self.validity.as_ref().map_or(0, Bitmap::zeros)
    }

    /// The bytes of a text or bytea, if that is what it is and it is not null.
    #[must_use]
    pub fn bytes(&self, row: usize) -> Option<&[u8]> {
        match &self.values {
            _ if self.is_null(row) => None,
            Values::Strings(strings) => Some(strings.get(row)),
            Values::Codes(codes, dictionary) => Some(dictionary.get(codes[row] as usize)),
            _ => None,
        }
    }

    /// A row's value. Panics where there is no such row.
    #[must_use]
    pub fn value(&self, row: usize) -> Value {
        if self.is_null(row) {
            return Value::Null;
        }
        match &self.values {
            Values::Boolean(bits) => Value::Boolean(bits.get(row)),
            Values::Int2(values) => Value::Int2(values[row]),
            Values::Int4(values) if self.ty == Type::Date => Value::Date(Date(values[row])),
            Values::Int4(values) => Value::Int4(values[row]),
            Values::Int8(values) => {
                let v = values[row];
                match self.ty {
                    Type::Time => Value::Time(Time::from_micros(v).unwrap_or_default()),
                    Type::Timestamp => Value::Timestamp(Timestamp(v)),
                    Type::TimestampTz => Value::TimestampTz(TimestampTz(v)),
                    Type::Decimal { scale, .. } => {
                        Value::Decimal(Decimal::new(v.into(), scale).unwrap_or_default())
                    }
                    _ => Value::Int8(v),
                }
            }
            Values::Float4(values) => Value::Float4(values[row]),
            Values::Float8(values) => Value::Float8(values[row]),
            Values::Decimal(values) => {
                let scale = if let Type::Decimal { scale, .. } = self.ty { scale } else { 0 };
                Value::Decimal(Decimal::new(values[row], scale).unwrap_or_default())
            }
            Values::Interval(values) => Value::Interval(values[row]),
            Values::Uuid(values) => Value::Uuid(values[row]),
            Values::Strings(_) | Values::Codes(..) => {
                let bytes = self.bytes(row).unwrap_or(&[]);
                if self.ty == Type::Bytes {
                    Value::Bytes(bytes.to_vec())
                } else {
                    Value::Text(String::from_utf8_lossy(bytes).into_owned())
                }
            }
        }
    }

    /// Bytes of memory that it takes, those of its dictionary included.
    #[must_use]
    pub fn memory(&self) -> usize {
        let dictionary = if let Values::Codes(_, strings) = &self.values { strings.memory() } else { 0 };
        let validity = self.validity.as_ref().map_or(0, |bits| bits.words.capacity() * 8);
        self.values.memory() + dictionary + validity
    }
}

impl Batch {
    /// Rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The columns, in the order in which they were asked for.
    #[must_use]
    pub fn columns(&self) -> &[Array] {
        &self.columns
    }

    /// Bytes of memory that it takes. A dictionary that it shares with others counts as its own.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.columns.iter().map(|column| size_of::<Array>() + column.memory()).sum()
    }
}
