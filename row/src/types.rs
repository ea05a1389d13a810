//! Column types and columns.
//!
//! A column's type decides how its value stands in a row (see [`layout`](super::layout)) and in a key (see
//! [`key`](super::key)). `varchar(n)` and `char(n)` count characters (Unicode scalar values). `char(n)` is padded with
//! blanks in its SQL meaning; rows store it *without* the padding, and so without any trailing blank: that is the
//! shorter form, the form in which two equal values have equal bytes, and the form that comparison needs, which ignores
//! trailing blanks. Whoever shows a `char(n)` pads it. Text is compared by its UTF-8 bytes, that is by code points.
//!
//! The binary form of a column in the durable catalog (all integers little-endian):
//!
//! ```text
//! version u8 = 1 | length u32 | body: name, type, flags, default | crc32c of version..body u32
//! ```

use std::fmt;

use super::codec::{self, Reader};
use super::error::RowError;
use super::value::Value;

/// Most digits of a decimal.
pub const MAX_PRECISION: u8 = 38;
/// Most digits of a decimal that is stored in 8 bytes.
pub const MAX_PRECISION_8: u8 = 18;
/// Most characters that `varchar(n)` and `char(n)` can be declared with.
pub const MAX_CHARACTERS: u32 = 1 << 20;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// `boolean`; false before true.
    Boolean,
    /// 16-bit integer.
    Int2,
    /// 32-bit integer.
    Int4,
    /// 64-bit integer.
    Int8,
    /// 32-bit IEEE 754 number; NaN equals NaN and is greater than everything else.
    Float4,
    /// 64-bit IEEE 754 number, ordered as [`Type::Float4`].
    Float8,
    /// Exact number with `precision` digits, `scale` of them after the point.
    Decimal {
        /// Digits in all, 1 to 38.
        precision: u8,
        /// Digits after the point, at most `precision`.
        scale: u8,
    },
    /// Text of any length.
    Text,
    /// Text of at most so many characters.
    Varchar(u32),
    /// Text of so many characters, padded with blanks; stored without the padding.
    Char(u32),
    /// Bytes of any length.
    Bytes,
    /// A day.
    Date,
    /// A time of day, in microseconds.
    Time,
    /// A day and time without a time zone, in microseconds.
    Timestamp,
    /// A point in time, in microseconds.
    TimestampTz,
    /// Months, days and microseconds.
    Interval,
    /// 16 bytes.
    Uuid,
}

impl Type {
    /// Bytes in the fixed part of a row, or `None` for a type of variable width.
    #[must_use]
    pub const fn width(self) -> Option<usize> {
        Some(match self {
            Type::Boolean => 1,
            Type::Int2 => 2,
            Type::Int4 | Type::Float4 | Type::Date => 4,
            Type::Int8 | Type::Float8 | Type::Time | Type::Timestamp | Type::TimestampTz => 8,
            Type::Decimal { precision, .. } => {
                if precision <= MAX_PRECISION_8 {
                    8
                } else {
                    16
                }
            }
            Type::Interval | Type::Uuid => 16,
            Type::Text | Type::Varchar(_) | Type::Char(_) | Type::Bytes => return None,
        })
    }

    /// Whether values are strings of characters.
    #[must_use]
    pub const fn is_text(self) -> bool {
        matches!(self, Type::Text | Type::Varchar(_) | Type::Char(_))
    }

    /// Why there is no such type, if its parameters are out of range.
    pub(crate) fn flaw(self) -> Option<String> {
        match self {
            Type::Decimal { precision, .. } if precision == 0 || precision > MAX_PRECISION => {
                Some(format!("the precision of {self} is not between 1 and {MAX_PRECISION}"))
            }
            Type::Decimal { precision, scale } if scale > precision => {
                Some(format!("the scale of {self} is greater than its precision"))
            }
            Type::Varchar(n) | Type::Char(n) if n == 0 || n > MAX_CHARACTERS => {
                Some(format!("the length of {self} is not between 1 and {MAX_CHARACTERS}"))
            }
            _ => None,
        }
    }

    /// Appends the type's binary form: a tag and its parameters.
    pub fn encode(self, out: &mut Vec<u8>) {
        let tag = |out: &mut Vec<u8>, tag: u8| out.push(tag);
        match self {
            Type::Boolean => tag(out, 1),
            Type::Int2 => tag(out, 2),
            Type::Int4 => tag(out, 3),
            Type::Int8 => tag(out, 4),
            Type::Float4 => tag(out, 5),
            Type::Float8 => tag(out, 6),
            Type::Decimal { precision, scale } => out.extend([7, precision, scale]),
            Type::Text => tag(out, 8),
            Type::Varchar(n) => {
                tag(out, 9);
                out.extend(n.to_le_bytes());
            }
            Type::Char(n) => {
                tag(out, 10);
                out.extend(n.to_le_bytes());
            }
            Type::Bytes => tag(out, 11),
            Type::Date => tag(out, 12),
            Type::Time => tag(out, 13),
            Type::Timestamp => tag(out, 14),
            Type::TimestampTz => tag(out, 15),
            Type::Interval => tag(out, 16),
            Type::Uuid => tag(out, 17),
        }
    }

    /// Reads a type from the front of `bytes` and moves them on.
    pub fn decode(bytes: &mut &[u8]) -> Result<Self, RowError> {
        let mut reader = Reader::new(bytes);
        let ty = Self::read(&mut reader)?;
        *bytes = reader.rest();
        Ok(ty)
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, RowError> {
        let ty = match reader.u8("type")? {
            1 => Type::Boolean,
            2 => Type::Int2,
            3 => Type::Int4,
            4 => Type::Int8,
            5 => Type::Float4,
            6 => Type::Float8,
            7 => Type::Decimal { precision: reader.u8("precision")?, scale: reader.u8("scale")? },
            8 => Type::Text,
            9 => Type::Varchar(reader.u32("length of varchar")?),
            10 => Type::Char(reader.u32("length of char")?),
            11 => Type::Bytes,
            12 => Type::Date,
            13 => Type::Time,
            14 => Type::Timestamp,
            15 => Type::TimestampTz,
            16 => Type::Interval,
            17 => Type::Uuid,
            tag => return Err(RowError::damaged_bytes(format!("{tag} is no type"))),
        };
        match ty.flaw() {
            None => Ok(ty),
            Some(reason) => Err(RowError::damaged_bytes(reason)),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Boolean => f.write_str("boolean"),
            Type::Int2 => f.write_str("smallint"),
            Type::Int4 => f.write_str("integer"),
            Type::Int8 => f.write_str("bigint"),
            Type::Float4 => f.write_str("real"),
            Type::Float8 => f.write_str("double precision"),
            Type::Decimal { precision, scale } => write!(f, "decimal({precision},{scale})"),
            Type::Text => f.write_str("text"),
            Type::Varchar(n) => write!(f, "varchar({n})"),
            Type::Char(n) => write!(f, "char({n})"),
            Type::Bytes => f.write_str("bytea"),
            Type::Date => f.write_str("date"),
            Type::Time => f.write_str("time"),
            Type::Timestamp => f.write_str("timestamp"),
            Type::TimestampTz => f.write_str("timestamptz"),
            Type::Interval => f.write_str("interval"),
            Type::Uuid => f.write_str("uuid"),
        }
    }
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Its name, unique in its table.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// Whether it takes null.
    pub nullable: bool,
    /// What it gets when an insert does not name it; without a default that is null.
    pub default: Option<Value>,
    /// Whether it gets the table's next number when an insert does not name it.
    pub auto_increment: bool,
}

impl Column {
    const VERSION: u8 = 1;
    const NULLABLE: u8 = 1;
    const DEFAULT: u8 = 2;
    const AUTO_INCREMENT: u8 = 4;

    /// A column that takes no null and has no default.
    #[must_use]
    pub fn new(name: impl Into<String>, ty: Type) -> Self {
        Self { name: name.into(), ty, nullable: false, default: None, auto_increment: false }
    }

    /// Takes null.
    #[must_use]
    pub fn nullable(mut self) -> Self {
        self.nullable = true;
        self
    }

    /// Gets `value` when an insert does not name it.
    #[must_use]
    pub fn default(mut self, value: impl Into<Value>) -> Self {
        self.default = Some(value.into());
        self
    }

    /// Gets the table's next number when an insert does not name it.
    #[must_use]
    pub fn auto_increment(mut self) -> Self {
        self.auto_increment = true;
        self
    }

    /// Appends the column's binary form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.push(Self::VERSION);
        out.extend([0; 4]);
        let body = out.len();
        codec::put_bytes(out, self.name.as_bytes());
        self.ty.encode(out);
        let mut flags = 0;
        for (set, flag) in [
            (self.nullable, Self::NULLABLE),
            (self.default.is_some(), Self::DEFAULT),
            (self.auto_increment, Self::AUTO_INCREMENT),
        ] {
            flags |= if set { flag } else { 0 };
        }
        out.push(flags);
        if let Some(value) = &self.default {
            value.encode(out);
        }
        let len = u32::try_from(out.len() - body).expect("a column's name and default have less than 4 GiB");
        out[start + 1..body].copy_from_slice(&len.to_le_bytes());
        let sum = crc32c::crc32c(&out[start..]);
        out.extend(sum.to_le_bytes());
    }

    /// Reads a column from the front of `bytes` and moves them on.
    pub fn decode(bytes: &mut &[u8]) -> Result<Self, RowError> {
        let all = *bytes;
        let mut reader = Reader::new(all);
        let version = reader.u8("version of a column")?;
        if version != Self::VERSION {
            return Err(RowError::damaged_bytes(format!(
                "a column of version {version}, this program reads version {}",
                Self::VERSION
            )));
        }
        let body = reader.bytes("column")?;
        let covered = all.len() - reader.rest().len();
        let sum = reader.u32("checksum of a column")?;
        if sum != crc32c::crc32c(&all[..covered]) {
            return Err(RowError::damaged_bytes("the checksum of a column does not match"));
        }
        let rest = reader.rest();
        let mut reader = Reader::new(body);
        let name = reader.string("name of a column")?;
        let column = Self::read_body(&mut reader, name)?;
        if !reader.rest().is_empty() {
            return Err(RowError::damaged(&column.name, "bytes after the column's end"));
        }
        *bytes = rest;
        Ok(column)
    }

    fn read_body(reader: &mut Reader<'_>, name: String) -> Result<Self, RowError> {
        let ty = Type::read(reader)?;
        let flags = reader.u8("flags of a column")?;
        if flags & !(Self::NULLABLE | Self::DEFAULT | Self::AUTO_INCREMENT) != 0 {
            return Err(RowError::damaged(&name, format!("unknown flags {flags:#x}")));
        }
        let default = if flags & Self::DEFAULT != 0 { Some(Value::read(reader)?) } else { None };
        Ok(Self {
            name,
            ty,
            nullable: flags & Self::NULLABLE != 0,
            default,
            auto_increment: flags & Self::AUTO_INCREMENT != 0,
        })
    }
}
