//! Tables for tests: columns of every type, filled in the ways that encodings are made for.

use proptest::prelude::*;
use thermocline_base::rng::Rng;
use thermocline_row::{
    Column, Date, Decimal, Interval, Layout, Time, Timestamp, TimestampTz, Type, Uuid, Value,
};

use crate::{BlockMeta, Builder, Choice};

/// The pattern in which the values of a column follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    Random,
    Extremes,
    Few(u8),
    Runs(u8),
    Rising,
    Constant,
}

/// Which positions have a row, or which values are null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holes {
    None,
    All,
    Some,
    First,
    Last,
}

#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) layout: Layout,
    /// Position and values, ascending.
    pub(crate) rows: Vec<(u16, Vec<Value>)>,
    pub(crate) choice: Choice,
}

pub(crate) fn types() -> Vec<Type> {
    vec![
        Type::Boolean,
        Type::Int2,
        Type::Int4,
        Type::Int8,
        Type::Float4,
        Type::Float8,
        Type::Decimal { precision: 9, scale: 2 },
        Type::Decimal { precision: 18, scale: 0 },
        Type::Decimal { precision: 38, scale: 10 },
        Type::Text,
        Type::Varchar(12),
        Type::Char(9),
        Type::Bytes,
        Type::Date,
        Type::Time,
        Type::Timestamp,
        Type::TimestampTz,
        Type::Interval,
        Type::Uuid,
    ]
}

pub(crate) fn any_column() -> impl Strategy<Value = (Type, Pattern, Holes)> {
    let pattern = prop_oneof![
        Just(Pattern::Random),
        Just(Pattern::Extremes),
        (1u8..40).prop_map(Pattern::Few),
        (2u8..90).prop_map(Pattern::Runs),
        Just(Pattern::Rising),
        Just(Pattern::Constant),
    ];
    (prop::sample::select(types()), pattern, any_holes())
}

fn any_holes() -> impl Strategy<Value = Holes> {
    let some = [Holes::None, Holes::None, Holes::All, Holes::Some, Holes::First, Holes::Last];
    prop::sample::select(some.to_vec())
}

/// Tables of up to `columns` columns and about `span` positions.
pub(crate) fn any_table(columns: usize, span: usize) -> impl Strategy<Value = Table> {
    let choice = prop::sample::select(vec![Choice::PointReads, Choice::Smallest]);
    let absent = prop::sample::select(vec![Holes::None, Holes::Some, Holes::First, Holes::Last]);
    (prop::collection::vec(any_column(), 0..=columns), 1..=span, absent, any::<u64>(), choice)
        .prop_map(|(columns, span, absent, seed, choice)| table(&columns, span, absent, seed, choice))
}

fn is_hole(holes: Holes, i: usize, span: usize, random: &mut Rng) -> bool {
    match holes {
        Holes::None => false,
        Holes::All => true,
        Holes::Some => random.below(3) == 0,
        Holes::First => i < span / 2,
        Holes::Last => i > span / 3,
    }
}

pub(crate) fn table(
    columns: &[(Type, Pattern, Holes)],
    span: usize,
    absent: Holes,
    seed: u64,
    choice: Choice,
) -> Table {
    let mut random = Rng::new(seed);
    let schema: Vec<Column> = (0..)
        .zip(columns)
        .map(|(i, (ty, _, nulls))| {
            let column = Column::new(format!("c{i}"), *ty);
            if *nulls == Holes::None { column } else { column.nullable() }
        })
        .collect();
    let layout = Layout::new(&schema).expect("a layout");
    let mut last: Vec<u64> = columns.iter().map(|_| random.next_u64()).collect();
    let mut rows = Vec::new();
    for i in 0..span {
        let values = columns.iter().zip(&mut last).map(|((ty, pattern, nulls), last)| {
            let number = match pattern {
                Pattern::Random => random.next_u64(),
                Pattern::Extremes => [0, 1, u64::MAX, 1 << 63, (1 << 63) - 1][random.below(5) as usize],
                Pattern::Few(n) => random.below(u64::from(*n)).wrapping_mul(0x9E37_79B9_7F4A_7C15),
                Pattern::Runs(n) if random.below(u64::from(*n)) > 0 => *last,
                Pattern::Runs(_) => random.below(1000),
                Pattern::Rising => last.wrapping_add(random.below(5)),
                Pattern::Constant => *last,
            };
            *last = number;
            if is_hole(*nulls, i, span, &mut random) { Value::Null } else { value(*ty, number) }
        });
        let values = values.collect();
        if !is_hole(absent, i, span, &mut random) || (i + 1 == span && rows.is_empty()) {
            rows.push((i as u16, values));
        }
    }
    Table { layout, rows, choice }
}

/// A value of the type, the same for the same number.
pub(crate) fn value(ty: Type, number: u64) -> Value {
    let text = |most: usize| {
        let letters = ["a", "b", "ab", "ß", " ", "SMITH", "\0", "😀"];
        let mut rest = number;
        let mut text = String::new();
        for _ in 0..number % (most as u64 / 2 + 1) {
            let next = format!("{text}{}", letters[rest as usize % letters.len()]);
            if next.chars().count() > most {
                break;
            }
            text = next;
            rest = (rest / 8).rotate_left(7) ^ number;
        }
        text
    };
    match ty {
        Type::Boolean => Value::Boolean(number & 1 != 0),
        Type::Int2 => Value::Int2(number as i16),
        Type::Int4 => Value::Int4(number as i32),
        Type::Int8 => Value::Int8(number as i64),
        Type::Float4 => Value::Float4(f32::from_bits(number as u32)),
        Type::Float8 => Value::Float8(f64::from_bits(number)),
        Type::Decimal { precision, scale } => {
            let limit = 10i128.pow(u32::from(precision));
            // Those of many digits are sometimes beyond 64 bits.
            let wide = if number & 4 == 0 { i128::from(number as i64) } else { i128::from(number) << 50 };
            Value::Decimal(Decimal::new(wide % limit, scale).expect("in range"))
        }
        Type::Text => Value::Text(if number.is_multiple_of(97) { "long ".repeat(80) } else { text(30) }),
        Type::Varchar(n) => Value::Text(text(n as usize)),
        Type::Char(n) => Value::Text(text(n as usize).trim_end_matches(' ').to_owned()),
        Type::Bytes => Value::Bytes(number.to_le_bytes()[..(number % 9) as usize].to_vec()),
        Type::Date => Value::Date(Date(number as i32)),
        Type::Time => Value::Time(Time::from_micros((number % 86_400_000_000) as i64).expect("in a day")),
        Type::Timestamp => Value::Timestamp(Timestamp(number as i64)),
        Type::TimestampTz => Value::TimestampTz(TimestampTz(number as i64)),
        Type::Interval => Value::Interval(Interval::new(
            (number % 3) as i32,
            (number % 95) as i32 - 40,
            (number >> 20) as i64,
        )),
        Type::Uuid => Value::Uuid(Uuid((u128::from(number) << 64 | u128::from(number >> 3)).to_be_bytes())),
    }
}

impl Table {
    /// The rows as bytes.
    pub(crate) fn encoded(&self) -> Vec<(u16, Vec<u8>)> {
        let encode = |(position, values): &(u16, Vec<Value>)| {
            let mut row = Vec::new();
            self.layout.encode(values, &mut row).expect("values of the columns");
            (*position, row)
        };
        self.rows.iter().map(encode).collect()
    }

    /// The block of the rows.
    pub(crate) fn freeze(&self, number: u64) -> (BlockMeta, Vec<u8>) {
        let mut builder = Builder::new(&self.layout);
        for (position, row) in self.encoded() {
            builder.push(position, &row).expect("a row of the layout");
        }
        let bytes = builder.finish(number, self.choice).expect("there are rows");
        (BlockMeta::parse(&bytes, &self.layout).expect("it was just written"), bytes)
    }
}

/// The bits of a value, where its own equality follows SQL.
pub(crate) fn bits(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode(&mut bytes);
    bytes
}
