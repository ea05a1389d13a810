//! Strategies for property tests: types, values of a type, tables of columns with rows.

use proptest::prelude::*;

use super::decimal::{Decimal, POW10};
use super::temporal::{Date, Interval, Time, Timestamp, TimestampTz, Uuid};
use super::types::{Column, Type};
use super::value::Value;

pub(crate) fn any_type() -> impl Strategy<Value = Type> {
    prop_oneof![
        Just(Type::Boolean),
        Just(Type::Int2),
        Just(Type::Int4),
        Just(Type::Int8),
        Just(Type::Float4),
        Just(Type::Float8),
        (1u8..=38)
            .prop_flat_map(|p| (Just(p), 0..=p))
            .prop_map(|(precision, scale)| Type::Decimal { precision, scale }),
        Just(Type::Text),
        (1u32..12).prop_map(Type::Varchar),
        (1u32..12).prop_map(Type::Char),
        Just(Type::Bytes),
        Just(Type::Date),
        Just(Type::Time),
        Just(Type::Timestamp),
        Just(Type::TimestampTz),
        Just(Type::Interval),
        Just(Type::Uuid),
    ]
}

/// A number of `digits` digits at most, small ones as likely as large ones.
pub(crate) fn mantissa(digits: u8) -> impl Strategy<Value = i128> {
    (0..=digits, any::<u128>(), any::<bool>()).prop_map(|(digits, bits, negative)| {
        let magnitude = (bits % POW10[usize::from(digits)].unsigned_abs()) as i128;
        if negative { -magnitude } else { magnitude }
    })
}

/// Texts in which the characters that matter to keys and to `char(n)` are frequent.
fn text(characters: usize) -> impl Strategy<Value = String> {
    let character = prop_oneof![
        4 => prop::sample::select(vec!['a', 'b', ' ', '\0', '\u{1}', '\u{ff}', 'ß', '€', '😀']),
        1 => any::<char>(),
    ];
    prop::collection::vec(character, 0..=characters).prop_map(String::from_iter)
}

/// A value of the type, as its column stores it: a char has no trailing blanks.
pub(crate) fn value_of(ty: Type) -> BoxedStrategy<Value> {
    match ty {
        Type::Boolean => any::<bool>().prop_map(Value::Boolean).boxed(),
        Type::Int2 => any::<i16>().prop_map(Value::Int2).boxed(),
        Type::Int4 => any::<i32>().prop_map(Value::Int4).boxed(),
        Type::Int8 => prop_oneof![any::<i64>(), -2i64..3].prop_map(Value::Int8).boxed(),
        Type::Float4 => prop_oneof![
            any::<u32>().prop_map(f32::from_bits),
            special(f32::NAN, 1.5),
            special(f32::INFINITY, 0.0)
        ]
        .prop_map(Value::Float4)
        .boxed(),
        Type::Float8 => prop_oneof![
            any::<u64>().prop_map(f64::from_bits),
            special(f64::NAN, 1.5),
            special(f64::INFINITY, 0.0)
        ]
        .prop_map(Value::Float8)
        .boxed(),
        Type::Decimal { precision, scale } => {
            let decimal = move |scaled| Value::Decimal(Decimal::new(scaled, scale).unwrap());
            mantissa(precision).prop_map(decimal).boxed()
        }
        Type::Text => text(20).prop_map(Value::Text).boxed(),
        Type::Varchar(n) => text(n as usize).prop_map(Value::Text).boxed(),
        Type::Char(n) => {
            text(n as usize).prop_map(|t| Value::Text(t.trim_end_matches(' ').to_owned())).boxed()
        }
        Type::Bytes => {
            let byte = prop_oneof![Just(0u8), Just(1), Just(255), any::<u8>()];
            prop::collection::vec(byte, 0..20).prop_map(Value::Bytes).boxed()
        }
        Type::Date => any::<i32>().prop_map(|v| Value::Date(Date(v))).boxed(),
        Type::Time => {
            (0..=Time::MAX.micros()).prop_map(|v| Value::Time(Time::from_micros(v).unwrap())).boxed()
        }
        Type::Timestamp => any::<i64>().prop_map(|v| Value::Timestamp(Timestamp(v))).boxed(),
        Type::TimestampTz => any::<i64>().prop_map(|v| Value::TimestampTz(TimestampTz(v))).boxed(),
        Type::Interval => interval().prop_map(Value::Interval).boxed(),
        Type::Uuid => prop_oneof![any::<[u8; 16]>(), any::<u8>().prop_map(|b| [b; 16])]
            .prop_map(|v| Value::Uuid(Uuid(v)))
            .boxed(),
    }
}

fn special<T: Copy + std::ops::Neg<Output = T> + std::fmt::Debug + 'static>(
    a: T,
    b: T,
) -> impl Strategy<Value = T> {
    prop::sample::select(vec![a, -a, b, -b])
}

/// Intervals of which many are equal and written differently.
pub(crate) fn interval() -> impl Strategy<Value = Interval> {
    let few = (-3i32..3, -60i32..60, -3i64..3).prop_map(|(months, days, halves)| {
        Interval::new(months, days, halves * (super::temporal::MICROS_PER_DAY / 2))
    });
    let any = any::<(i32, i32, i64)>().prop_map(|(months, days, micros)| Interval::new(months, days, micros));
    prop_oneof![few, any]
}

/// A value of a column, null included if it takes null.
pub(crate) fn value_for(column: &Column) -> BoxedStrategy<Value> {
    let value = value_of(column.ty);
    if column.nullable { prop_oneof![1 => Just(Value::Null), 3 => value].boxed() } else { value }
}

pub(crate) fn columns(max: usize) -> impl Strategy<Value = Vec<Column>> {
    prop::collection::vec((any_type(), any::<bool>()), 0..=max).prop_map(|types| {
        let column = |(i, (ty, nullable)): (usize, (Type, bool))| {
            let column = Column::new(format!("c{i}"), ty);
            if nullable { column.nullable() } else { column }
        };
        types.into_iter().enumerate().map(column).collect()
    })
}

/// Columns and `rows` rows of values for them.
pub(crate) fn table(max: usize, rows: usize) -> impl Strategy<Value = (Vec<Column>, Vec<Vec<Value>>)> {
    columns(max).prop_flat_map(move |columns| {
        let row: Vec<_> = columns.iter().map(value_for).collect();
        (Just(columns), prop::collection::vec(row, rows))
    })
}

/// The bits of a value, where `Value`'s own equality follows SQL (NaN, -0, intervals, scales).
pub(crate) fn bits(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode(&mut bytes);
    bytes
}
