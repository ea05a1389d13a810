//! Rows from and to types that serde knows.
//!
//! A row is a struct, or a map with strings as keys; fields are columns by name. `Option` is a column that may be null.
//! On the way in, a column that the struct does not have gets its default, or null; a field that is no column is an
//! error. On the way out, a column that the struct does not have is left to serde (`deny_unknown_fields`).
//!
//! | column | in | out |
//! |---|---|---|
//! | integers | any integer in range | integer |
//! | decimal | integer, float (its shortest form), string | string; a float where the struct has one |
//! | floats | any number | float |
//! | text | string, char, unit variant | string |
//! | bytea | bytes, sequence of u8, string (its UTF-8) | bytes, sequence of u8 |
//! | date, time, timestamps, interval, uuid | string as ISO 8601 | string |
//!
//! [`Decimal`], [`Dec`] and the types of [`temporal`](super::temporal) are strings in every format, so that no format
//! loses a digit.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::str::FromStr;

use ::serde::de::value::{SeqDeserializer, StrDeserializer};
use ::serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, Visitor};
use ::serde::ser::{self, Impossible, Serialize, Serializer};
use ::serde::{Deserialize, forward_to_deserialize_any};

use super::decimal::Decimal;
use super::error::{Flaw, RowError};
use super::layout::Layout;
use super::temporal::{Date, Interval, Time, Timestamp, TimestampTz, Uuid};
use super::typed::Dec;
use super::types::{Column, Type};
use super::value::Value;

/// Writes `value` as a row of the layout into `out`, whose content goes.
pub fn to_row<T: Serialize + ?Sized>(layout: &Layout, value: &T, out: &mut Vec<u8>) -> Result<(), RowError> {
    layout.encode(&to_values(layout, value)?, out)
}

/// The values of a row of the layout, one a column.
pub fn to_values<T: Serialize + ?Sized>(layout: &Layout, value: &T) -> Result<Vec<Value>, RowError> {
    let given = value.serialize(RowSerializer { layout })?;
    Ok(given
        .into_iter()
        .zip(layout.columns())
        .map(|(value, column)| value.or_else(|| column.default.clone()).unwrap_or(Value::Null))
        .collect())
}

/// The `T` that a row of the layout contains. The row is checked first, so it may be of any origin.
pub fn from_row<T: DeserializeOwned>(layout: &Layout, row: &[u8]) -> Result<T, RowError> {
    layout.check(row)?;
    T::deserialize(RowDeserializer { layout, row })
}

impl ser::Error for RowError {
    fn custom<T: Display>(message: T) -> Self {
        RowError::Serde { reason: message.to_string().into() }
    }
}

impl de::Error for RowError {
    fn custom<T: Display>(message: T) -> Self {
        RowError::Serde { reason: message.to_string().into() }
    }
}

/// Makes an [`Impossible`] of each method named: shapes that are no row, or no value.
macro_rules! refuse {
    ($error:ident: $($name:ident($($arg:ty),*) $(-> $ok:ident)?;)*) => {
        $(refuse!(@one $error $name($($arg),*) $($ok)?);)*
    };
    (@one $error:ident $name:ident($($arg:ty),*)) => {
        fn $name(self, $(_: $arg),*) -> Result<Self::Ok, RowError> {
            Err(self.$error())
        }
    };
    (@one $error:ident $name:ident($($arg:ty),*) $ok:ident) => {
        fn $name(self, $(_: $arg),*) -> Result<Self::$ok, RowError> {
            Err(self.$error())
        }
    };
}

/// Takes a struct or a map and collects a value for each column that it names.
#[derive(Clone, Copy)]
struct RowSerializer<'l> {
    layout: &'l Layout,
}

impl RowSerializer<'_> {
    fn no_row(self) -> RowError {
        let reason = "a row is made of a struct, or of a map with column names as keys, and of nothing else";
        RowError::Serde { reason: reason.into() }
    }
}

impl<'l> Serializer for RowSerializer<'l> {
    type Ok = Vec<Option<Value>>;
    type Error = RowError;
    type SerializeSeq = Impossible<Self::Ok, RowError>;
    type SerializeTuple = Impossible<Self::Ok, RowError>;
    type SerializeTupleStruct = Impossible<Self::Ok, RowError>;
    type SerializeTupleVariant = Impossible<Self::Ok, RowError>;
    type SerializeMap = RowFields<'l>;
    type SerializeStruct = RowFields<'l>;
    type SerializeStructVariant = Impossible<Self::Ok, RowError>;

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Self::Ok, RowError> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<Self::Ok, RowError> {
        value.serialize(self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<RowFields<'l>, RowError> {
        Ok(RowFields { layout: self.layout, values: vec![None; self.layout.columns().len()], column: None })
    }

    fn serialize_struct(self, _: &'static str, len: usize) -> Result<RowFields<'l>, RowError> {
        self.serialize_map(Some(len))
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<Self::Ok, RowError> {
        Err(self.no_row())
    }

    refuse! { no_row:
        serialize_bool(bool);
        serialize_i8(i8);
        serialize_i16(i16);
        serialize_i32(i32);
        serialize_i64(i64);
        serialize_u8(u8);
        serialize_u16(u16);
        serialize_u32(u32);
        serialize_u64(u64);
        serialize_f32(f32);
        serialize_f64(f64);
        serialize_char(char);
        serialize_str(&str);
        serialize_bytes(&[u8]);
        serialize_none();
        serialize_unit();
        serialize_unit_struct(&'static str);
        serialize_unit_variant(&'static str, u32, &'static str);
        serialize_seq(Option<usize>) -> SerializeSeq;
        serialize_tuple(usize) -> SerializeTuple;
        serialize_tuple_struct(&'static str, usize) -> SerializeTupleStruct;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> SerializeTupleVariant;
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> SerializeStructVariant;
    }
}

/// The columns that a struct or a map has named so far.
struct RowFields<'l> {
    layout: &'l Layout,
    values: Vec<Option<Value>>,
    /// The column whose name a map gave last.
    column: Option<usize>,
}

impl RowFields<'_> {
    fn put<T: Serialize + ?Sized>(&mut self, index: usize, value: &T) -> Result<(), RowError> {
        let column = &self.layout.columns()[index];
        self.values[index] = Some(value.serialize(ValueSerializer { column, ty: column.ty })?);
        Ok(())
    }
}

impl ser::SerializeStruct for RowFields<'_> {
    type Ok = Vec<Option<Value>>;
    type Error = RowError;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), RowError> {
        let index = self.layout.column_index(name)?;
        self.put(index, value)
    }

    fn end(self) -> Result<Self::Ok, RowError> {
        Ok(self.values)
    }
}

impl ser::SerializeMap for RowFields<'_> {
    type Ok = Vec<Option<Value>>;
    type Error = RowError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), RowError> {
        let name = Column::new("name of a column", Type::Text);
        match key.serialize(ValueSerializer { column: &name, ty: Type::Text })? {
            Value::Text(name) => {
                self.column = Some(self.layout.column_index(&name)?);
                Ok(())
            }
            _ => Err(RowSerializer { layout: self.layout }.no_row()),
        }
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), RowError> {
        match self.column.take() {
            Some(index) => self.put(index, value),
            None => Err(ser::Error::custom("the map gave a value before its key")),
        }
    }

    fn end(self) -> Result<Self::Ok, RowError> {
        Ok(self.values)
    }
}

/// Takes what a column can be made of.
#[derive(Clone, Copy)]
struct ValueSerializer<'l> {
    column: &'l Column,
    ty: Type,
}

impl ValueSerializer<'_> {
    fn wrong(self, found: &'static str) -> RowError {
        self.flaw(Flaw::WrongType { found })
    }

    fn nested(self) -> RowError {
        self.wrong("a nested structure")
    }

    fn flaw(self, flaw: Flaw) -> RowError {
        RowError::value(&self.column.name, self.ty, flaw)
    }

    fn integer(self, value: i128) -> Result<Value, RowError> {
        let out_of_range = || self.flaw(Flaw::OutOfRange { found: value.to_string().into() });
        match self.ty {
            Type::Int2 => i16::try_from(value).map(Value::Int2).map_err(|_| out_of_range()),
            Type::Int4 => i32::try_from(value).map(Value::Int4).map_err(|_| out_of_range()),
            Type::Int8 => i64::try_from(value).map(Value::Int8).map_err(|_| out_of_range()),
            Type::Decimal { .. } => Decimal::new(value, 0).map(Value::Decimal).map_err(|_| out_of_range()),
            Type::Float4 => Ok(Value::Float4(value as f32)),
            Type::Float8 => Ok(Value::Float8(value as f64)),
            _ => Err(self.wrong("an integer")),
        }
    }
}

impl Serializer for ValueSerializer<'_> {
    type Ok = Value;
    type Error = RowError;
    type SerializeSeq = Self::SerializeTuple;
    type SerializeTuple = ByteSequence<Self>;
    type SerializeTupleStruct = Impossible<Value, RowError>;
    type SerializeTupleVariant = Impossible<Value, RowError>;
    type SerializeMap = Impossible<Value, RowError>;
    type SerializeStruct = Impossible<Value, RowError>;
    type SerializeStructVariant = Impossible<Value, RowError>;

    fn serialize_bool(self, v: bool) -> Result<Value, RowError> {
        if self.ty == Type::Boolean { Ok(Value::Boolean(v)) } else { Err(self.wrong("boolean")) }
    }

    fn serialize_i8(self, v: i8) -> Result<Value, RowError> {
        self.integer(v.into())
    }

    fn serialize_i16(self, v: i16) -> Result<Value, RowError> {
        self.integer(v.into())
    }

    fn serialize_i32(self, v: i32) -> Result<Value, RowError> {
        self.integer(v.into())
    }

    fn serialize_i64(self, v: i64) -> Result<Value, RowError> {
        self.integer(v.into())
    }

    fn serialize_i128(self, v: i128) -> Result<Value, RowError> {
        self.integer(v)
    }

    fn serialize_u8(self, v: u8) -> Result<Value, RowError> {
        self.integer(v.into())
    }

    fn serialize_u16(self, v: u16) -> Result<Value, RowError> {
        self.integer(v.into())
    }

    fn serialize_u32(self, v: u32) -> Result<Value, RowError> {
        self.integer(v.into())
    }

    fn serialize_u64(self, v: u64) -> Result<Value, RowError> {
        self.integer(v.into())
    }

    fn serialize_f32(self, v: f32) -> Result<Value, RowError> {
        match self.ty {
            Type::Float4 => Ok(Value::Float4(v)),
            Type::Float8 => Ok(Value::Float8(v.into())),
            Type::Decimal { .. } => self.serialize_str(&v.to_string()),
            _ => Err(self.wrong("real")),
        }
    }

    fn serialize_f64(self, v: f64) -> Result<Value, RowError> {
        match self.ty {
            Type::Float4 => Ok(Value::Float4(v as f32)),
            Type::Float8 => Ok(Value::Float8(v)),
            Type::Decimal { .. } => self.serialize_str(&v.to_string()),
            _ => Err(self.wrong("double precision")),
        }
    }

    fn serialize_char(self, v: char) -> Result<Value, RowError> {
        self.serialize_str(v.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, v: &str) -> Result<Value, RowError> {
        Value::parse(v, self.ty).map_err(|flaw| self.flaw(flaw))
    }

    fn serialize_bytes(self, v: &[u8]) -> Result<Value, RowError> {
        match (self.ty, <[u8; 16]>::try_from(v)) {
            (Type::Bytes, _) => Ok(Value::Bytes(v.to_vec())),
            (Type::Uuid, Ok(bytes)) => Ok(Value::Uuid(Uuid(bytes))),
            _ => Err(self.wrong("bytea")),
        }
    }

    fn serialize_none(self) -> Result<Value, RowError> {
        Ok(Value::Null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Value, RowError> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<Value, RowError> {
        Ok(Value::Null)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<Value, RowError> {
        Ok(Value::Null)
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<Value, RowError> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<Value, RowError> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<Value, RowError> {
        Err(self.nested())
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Self::SerializeSeq, RowError> {
        if self.ty != Type::Bytes && self.ty != Type::Uuid {
            return Err(self.wrong("a sequence"));
        }
        Ok(ByteSequence { target: self, bytes: Vec::with_capacity(len.unwrap_or(0).min(1 << 16)) })
    }

    fn serialize_tuple(self, len: usize) -> Result<Self::SerializeTuple, RowError> {
        self.serialize_seq(Some(len))
    }

    refuse! { nested:
        serialize_tuple_struct(&'static str, usize) -> SerializeTupleStruct;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> SerializeTupleVariant;
        serialize_map(Option<usize>) -> SerializeMap;
        serialize_struct(&'static str, usize) -> SerializeStruct;
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> SerializeStructVariant;
    }
}

/// A sequence of u8 for a bytea or uuid column.
struct ByteSequence<S> {
    target: S,
    bytes: Vec<u8>,
}

impl ByteSequence<ValueSerializer<'_>> {
    fn put<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), RowError> {
        let element = value.serialize(ValueSerializer { column: self.target.column, ty: Type::Int2 });
        match element {
            Ok(Value::Int2(byte @ 0..=255)) => {
                self.bytes.push(byte as u8);
                Ok(())
            }
            _ => Err(self.target.wrong("a sequence of something else than bytes")),
        }
    }
}

impl ser::SerializeSeq for ByteSequence<ValueSerializer<'_>> {
    type Ok = Value;
    type Error = RowError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), RowError> {
        self.put(value)
    }

    fn end(self) -> Result<Value, RowError> {
        self.target.serialize_bytes(&self.bytes)
    }
}

impl ser::SerializeTuple for ByteSequence<ValueSerializer<'_>> {
    type Ok = Value;
    type Error = RowError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), RowError> {
        self.put(value)
    }

    fn end(self) -> Result<Value, RowError> {
        self.target.serialize_bytes(&self.bytes)
    }
}

/// A checked row as a map from column names to values, or as the sequence of its values.
struct RowDeserializer<'r> {
    layout: &'r Layout,
    row: &'r [u8],
}

impl<'de> Deserializer<'de> for RowDeserializer<'_> {
    type Error = RowError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RowError> {
        visitor.visit_map(Columns { row: self, next: 0 })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RowError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, RowError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RowError> {
        visitor.visit_seq(Columns { row: self, next: 0 })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, RowError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, RowError> {
        self.deserialize_seq(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct map
        struct enum identifier ignored_any
    }
}

/// The columns of a row that are still to be given.
struct Columns<'r> {
    row: RowDeserializer<'r>,
    next: usize,
}

impl Columns<'_> {
    fn value(&mut self) -> ValueDeserializer {
        let value = self.row.layout.value(self.row.row, self.next);
        self.next += 1;
        ValueDeserializer { value }
    }
}

impl<'de> de::MapAccess<'de> for Columns<'_> {
    type Error = RowError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, RowError> {
        let Some(column) = self.row.layout.columns().get(self.next) else { return Ok(None) };
        let name: StrDeserializer<'_, RowError> = column.name.as_str().into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, RowError> {
        let name = &self.row.layout.columns()[self.next].name;
        seed.deserialize(self.value()).map_err(|e| match e {
            RowError::Serde { reason } => {
                RowError::Serde { reason: format!("column \"{name}\": {reason}").into() }
            }
            other => other,
        })
    }
}

impl<'de> de::SeqAccess<'de> for Columns<'_> {
    type Error = RowError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, RowError> {
        if self.next == self.row.layout.columns().len() {
            return Ok(None);
        }
        seed.deserialize(self.value()).map(Some)
    }
}

struct ValueDeserializer {
    value: Value,
}

impl<'de> Deserializer<'de> for ValueDeserializer {
    type Error = RowError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RowError> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Boolean(v) => visitor.visit_bool(v),
            Value::Int2(v) => visitor.visit_i16(v),
            Value::Int4(v) => visitor.visit_i32(v),
            Value::Int8(v) => visitor.visit_i64(v),
            Value::Float4(v) => visitor.visit_f32(v),
            Value::Float8(v) => visitor.visit_f64(v),
            Value::Text(v) => visitor.visit_string(v),
            // Not every visitor of any type takes bytes (JSON does not); those that want bytes ask for bytes.
            Value::Bytes(v) => visitor.visit_seq(SeqDeserializer::new(v.into_iter())),
            other => visitor.visit_string(other.to_string()),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RowError> {
        if self.value.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, RowError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RowError> {
        match self.value {
            Value::Decimal(v) => visitor.visit_f64(v.to_f64()),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RowError> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RowError> {
        match self.value {
            Value::Bytes(v) => visitor.visit_byte_buf(v),
            Value::Uuid(v) => visitor.visit_bytes(&v.0),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RowError> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, RowError> {
        match self.value {
            Value::Text(v) => {
                let variant: de::value::StringDeserializer<RowError> = v.into_deserializer();
                variant.deserialize_enum(name, variants, visitor)
            }
            _ => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 char str string unit unit_struct seq tuple tuple_struct map
        struct identifier ignored_any
    }
}

/// Reads a `T` from its text.
struct Text<T>(PhantomData<T>);

impl<T: FromStr<Err: Display>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text that spells the value")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

macro_rules! as_text {
    ($($ty:ty),*) => {
        $(
            impl Serialize for $ty {
                fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    serializer.collect_str(self)
                }
            }

            impl<'de> Deserialize<'de> for $ty {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    deserializer.deserialize_str(Text(PhantomData))
                }
            }
        )*
    };
}

as_text! { Decimal, Date, Time, Timestamp, TimestampTz, Interval, Uuid }

impl<const P: u8, const S: u8> Serialize for Dec<P, S> {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, const P: u8, const S: u8> Deserialize<'de> for Dec<P, S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text(PhantomData))
    }
}

#[cfg(test)]
#[path = "serde_tests.rs"]
mod tests;
