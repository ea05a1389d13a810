//! Tests of aggregates against the values, one by one.

use std::collections::BTreeMap;

use proptest::prelude::*;
use thermocline_base::depth;
use thermocline_base::rng::Rng;
use thermocline_row::{Column, Layout, Type, Value};

use super::*;
use crate::scan::ones;
use crate::testing::{Holes, Pattern, Table, any_table, bits, table, types};
use crate::{BlockMeta, Builder, Choice};

/// A representative of a value: equal values have equal bytes.
fn canonical(value: &Value) -> Vec<u8> {
    match value {
        Value::Float4(v) if v.is_nan() => bits(&Value::Float4(f32::NAN)),
        Value::Float4(v) => bits(&Value::Float4(v + 0.0)),
        Value::Float8(v) if v.is_nan() => bits(&Value::Float8(f64::NAN)),
        Value::Float8(v) => bits(&Value::Float8(v + 0.0)),
        Value::Interval(v) => {
            let micros =
                (i128::from(v.months) * 30 + i128::from(v.days)) * 86_400_000_000 + i128::from(v.micros);
            micros.to_le_bytes().to_vec()
        }
        other => bits(other),
    }
}

/// A measure, computed once more from the values.
fn naive(layout: &Layout, measure: &Measure, rows: &[&Vec<Value>]) -> Value {
    let Some(column) = measure.column() else { return Value::Int8(rows.len() as i64) };
    let values: Vec<&Value> = rows.iter().map(|row| &row[column]).filter(|v| !v.is_null()).collect();
    let less = |a: &&&Value, b: &&&Value| a.compare(b).expect("of one type");
    let scale = scale_of(layout.columns()[column].ty);
    let number = |v: &&Value| match v {
        Value::Int2(v) => i128::from(*v),
        Value::Int4(v) => i128::from(*v),
        Value::Int8(v) => i128::from(*v),
        Value::Decimal(v) => v.rescale(scale).expect("its own scale").mantissa(),
        other => panic!("{other:?} is not summed"),
    };
    match measure {
        Measure::Rows => unreachable!("of no column"),
        Measure::Count(_) => Value::Int8(values.len() as i64),
        Measure::Min(_) => values.iter().min_by(less).map_or(Value::Null, |v| (**v).clone()),
        Measure::Max(_) => values.iter().max_by(less).map_or(Value::Null, |v| (**v).clone()),
        _ if values.is_empty() => Value::Null,
        Measure::Sum(_) => {
            Value::Decimal(Decimal::new(values.iter().map(number).sum(), scale).expect("in range"))
        }
        Measure::Average(_) => {
            average(values.iter().map(number).sum(), values.len() as u64, scale).expect("in range")
        }
    }
}

fn aggregates(table: &Table, seed: u64) {
    let mut random = Rng::new(seed);
    let (meta, bytes) = table.freeze(seed);
    let (block, encoded, width) = (meta.block(&bytes), table.encoded(), table.layout.columns().len());
    if width == 0 {
        return;
    }
    // Sums stay below 38 digits.
    let summed = |column: usize| match table.layout.columns()[column].ty {
        Type::Int2 | Type::Int4 | Type::Int8 => true,
        Type::Decimal { precision, .. } => precision < 38,
        _ => false,
    };
    for _ in 0..6 {
        let any = |random: &mut Rng| random.below(width as u64) as usize;
        let keys: Vec<usize> = (0..random.below(3)).map(|_| any(&mut random)).collect();
        let measures: Vec<Measure> = (0..random.below(5))
            .map(|_| {
                let column = any(&mut random);
                match random.below(6) {
                    0 => Measure::Rows,
                    1 if summed(column) => Measure::Sum(column),
                    2 if summed(column) => Measure::Average(column),
                    3 => Measure::Min(column),
                    4 => Measure::Max(column),
                    _ => Measure::Count(column),
                }
            })
            .collect();
        let new = || Aggregator::new(&table.layout, &keys, &measures).unwrap();
        let (mut one, mut other) = (new(), new());
        let mut taken: Vec<&Vec<Value>> = Vec::new();
        let at = |position: u16| table.rows.binary_search_by_key(&position, |(at, _)| *at).unwrap();
        for group in 0..block.groups() {
            let part = random.below(3);
            let selected =
                block.presence(group).map(|word| if part == 0 { word & random.next_u64() } else { word });
            let aggregator = if random.chance(0.5) { &mut one } else { &mut other };
            aggregator.push_group(&block, group, &selected);
            let position = |i: usize| (group * crate::GROUP_ROWS + i) as u16;
            taken.extend(ones(&selected).map(|i| &table.rows[at(position(i))].1));
            for _ in 0..random.below(30) {
                let row = random.below(encoded.len() as u64) as usize;
                let aggregator = if random.chance(0.5) { &mut one } else { &mut other };
                aggregator.push_row(&encoded[row].1);
                taken.push(&table.rows[row].1);
            }
        }
        one.merge(other);
        assert!(keys.is_empty() || taken.is_empty() || one.memory() > 0);
        let found = one.finish(&table.layout).unwrap();
        let key = |values: &[&Value]| values.iter().map(|value| canonical(value)).collect::<Vec<_>>();
        let mut wanted: BTreeMap<Vec<Vec<u8>>, Vec<&Vec<Value>>> = BTreeMap::new();
        if keys.is_empty() {
            wanted.insert(Vec::new(), Vec::new());
        }
        for row in taken {
            wanted.entry(key(&keys.iter().map(|k| &row[*k]).collect::<Vec<_>>())).or_default().push(row);
        }
        let found: BTreeMap<_, _> =
            found.iter().map(|line| (key(&line.key.iter().collect::<Vec<_>>()), &line.values)).collect();
        assert_eq!(found.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>(), "{keys:?}");
        for (key, rows) in wanted {
            let values: Vec<Value> = measures.iter().map(|m| naive(&table.layout, m, &rows)).collect();
            assert_eq!(*found[&key], values, "{measures:?} by {keys:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(depth::either(64, 1000)))]

    #[test]
    fn aggregates_are_those_of_the_values(table in any_table(4, 80), seed in any::<u64>()) {
        aggregates(&table, seed);
    }

    #[test]
    fn aggregates_of_damaged_blocks_are_harmless(table in any_table(4, 60), seed in any::<u64>()) {
        let (meta, mut bytes) = table.freeze(3);
        let mut random = Rng::new(seed);
        let zones = meta.header.zones_at();
        for byte in &mut bytes[zones..] {
            if random.below(3) == 0 {
                *byte = random.next_u64() as u8;
            }
        }
        let block = meta.block(&bytes);
        let width = table.layout.columns().len();
        let summed = |c: usize| matches!(table.layout.columns()[c].ty, Type::Int2 | Type::Int4 | Type::Int8);
        let more = |c| if summed(c) { Measure::Sum(c) } else { Measure::Max(c) };
        let measures: Vec<Measure> =
            (0..width).flat_map(|c| [Measure::Min(c), Measure::Count(c), more(c)]).collect();
        for key in 0..width {
            let mut aggregator = Aggregator::new(&table.layout, &[key], &measures).unwrap();
            for group in 0..block.groups() {
                aggregator.push_group(&block, group, &block.presence(group));
            }
            prop_assert!(aggregator.finish(&table.layout).is_ok());
        }
    }
}

#[test]
fn aggregates_of_each_type_over_groups() {
    for (i, ty) in types().into_iter().enumerate() {
        let columns = [
            (ty, Pattern::Random, Holes::Some),
            (ty, Pattern::Few(20), Holes::None),
            (ty, Pattern::Constant, Holes::None),
            (Type::Int4, Pattern::Few(5), Holes::Some),
            (ty, Pattern::Extremes, Holes::First),
        ];
        aggregates(&table(&columns, 2500, Holes::Some, 7, Choice::Smallest), i as u64);
        aggregates(&table(&columns, 2048, Holes::None, 8, Choice::PointReads), i as u64);
    }
}

#[test]
fn sums_are_exact_to_38_digits_and_refused_beyond() {
    let ty = Type::Decimal { precision: 38, scale: 0 };
    let layout = Layout::new(&[Column::new("n", ty), Column::new("id", Type::Int8)]).unwrap();
    let most = 10i128.pow(38) - 1;
    let sum = |numbers: &[i128], as_block: bool| {
        let mut aggregator =
            Aggregator::new(&layout, &[], &[Measure::Sum(0), Measure::Average(0), Measure::Sum(1)]).unwrap();
        let mut builder = Builder::new(&layout);
        for (i, number) in numbers.iter().enumerate() {
            let mut row = Vec::new();
            let values = [Value::Decimal(Decimal::new(*number, 0).unwrap()), Value::Int8(i64::MAX)];
            layout.encode(&values, &mut row).unwrap();
            builder.push(i as u16, &row).unwrap();
            if !as_block {
                aggregator.push_row(&row);
            }
        }
        if as_block {
            let bytes = builder.finish(1, Choice::PointReads).unwrap();
            let meta = BlockMeta::parse(&bytes, &layout).unwrap();
            let block = meta.block(&bytes);
            aggregator.push_group(&block, 0, &block.presence(0));
        }
        aggregator.finish(&layout).map(|mut lines| lines.remove(0).values)
    };
    for as_block in [false, true] {
        let decimal = |v| Value::Decimal(Decimal::new(v, 0).unwrap());
        let values = sum(&[most, -1, -most, 8], as_block).unwrap();
        assert_eq!(values[0], decimal(7));
        assert_eq!(values[1].to_string(), "1.7500000000000000");
        assert_eq!(values[2], decimal(4 * i128::from(i64::MAX)));
        let error = sum(&[most, 1], as_block).unwrap_err();
        assert_eq!((error.sqlstate(), error.to_string().contains("\"n\"")), ("22003", true));
        assert!(sum(&[most; 4], as_block).is_err());
    }
    let error =
        Aggregator::new(&Layout::new(&[Column::new("t", Type::Text)]).unwrap(), &[], &[Measure::Sum(0)]);
    assert!(error.unwrap_err().to_string().contains("text has no sum"));
}
