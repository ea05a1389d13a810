//! Tests of scans, zones and aggregates against the rows, one by one.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use proptest::prelude::*;
use thermocline_base::depth;
use thermocline_base::rng::Rng;
use thermocline_row::{Column, Decimal, Layout, Type, Value};

use super::*;
use crate::testing::{Holes, Pattern, Table, any_table, bits, table, types, value};
use crate::{BlockMeta, Builder, Choice, Condition, Function};

/// The condition as SQL has it, written once more.
fn naive(condition: &Condition, v: &Value) -> bool {
    if let Condition::Holds(function) = condition {
        return function.holds(v);
    }
    if v.is_null() {
        return *condition == Condition::IsNull;
    }
    let order = |other: &Value| match (v, other) {
        (Value::Text(a), Value::Text(b)) => Some(a.as_bytes().cmp(b.as_bytes())),
        _ => v.compare(other),
    };
    match condition {
        Condition::Equal(x) => order(x) == Some(Ordering::Equal),
        Condition::Less(x) => order(x) == Some(Ordering::Less),
        Condition::LessOrEqual(x) => matches!(order(x), Some(Ordering::Less | Ordering::Equal)),
        Condition::Greater(x) => order(x) == Some(Ordering::Greater),
        Condition::GreaterOrEqual(x) => matches!(order(x), Some(Ordering::Greater | Ordering::Equal)),
        Condition::Between(a, b) => {
            matches!(order(a), Some(Ordering::Greater | Ordering::Equal))
                && matches!(order(b), Some(Ordering::Less | Ordering::Equal))
        }
        Condition::In(values) => values.iter().any(|x| order(x) == Some(Ordering::Equal)),
        Condition::Prefix(prefix) => match v {
            Value::Text(text) => text.as_bytes().starts_with(prefix),
            Value::Bytes(bytes) => bytes.starts_with(prefix),
            _ => false,
        },
        Condition::IsNull | Condition::Holds(_) => false,
        Condition::IsNotNull => true,
    }
}

/// A condition on a column, with values that are there as often as others.
pub(crate) fn condition(table: &Table, column: usize, random: &mut Rng) -> Condition {
    let ty = table.layout.columns()[column].ty;
    let one = |random: &mut Rng| match random.below(5) {
        0 => value(ty, random.next_u64()),
        1 if random.below(4) == 0 => Value::Null,
        _ => table.rows[random.below(table.rows.len() as u64) as usize].1[column].clone(),
    };
    match random.below(12) {
        0 | 1 => Condition::Equal(one(random)),
        2 => Condition::Less(one(random)),
        3 => Condition::LessOrEqual(one(random)),
        4 => Condition::Greater(one(random)),
        5 => Condition::GreaterOrEqual(one(random)),
        6 => Condition::Between(one(random), one(random)),
        7 => Condition::In((0..random.below(9)).map(|_| one(random)).collect()),
        10 => {
            let salt = random.next_u64();
            Condition::Holds(Function::new(move |v| {
                let hash =
                    bits(v).iter().fold(salt, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01B3));
                hash >> 40 & 3 == 0
            }))
        }
        8 => match one(random) {
            Value::Text(text) => Condition::Prefix(text.as_bytes()[..text.len().min(9)].to_vec()),
            Value::Bytes(bytes) => Condition::Prefix(bytes[..bytes.len() / 2].to_vec()),
            _ => Condition::IsNotNull,
        },
        _ => Condition::IsNull,
    }
}

fn compare(table: &Table, seed: u64) {
    let mut random = Rng::new(seed);
    let (meta, bytes) = table.freeze(1);
    let block = meta.block(&bytes);
    let width = table.layout.columns().len();
    let all: Vec<usize> = (0..width).collect();
    for column in 0..width {
        zone_holds(table, &block, column);
    }
    for round in 0..12 {
        let predicates: Vec<Predicate> = (0..if width == 0 { 0 } else { random.below(3) })
            .map(|_| {
                let column = random.below(width as u64) as usize;
                Predicate { column, condition: condition(table, column, &mut random) }
            })
            .collect();
        let skip: Vec<u64> =
            (0..random.below(20)).map(|_| if round % 2 == 0 { 0 } else { random.next_u64() }).collect();
        let skipped = |at: u16| skip.get(usize::from(at / 64)).is_some_and(|word| word >> (at % 64) & 1 != 0);
        let wanted: Vec<&(u16, Vec<Value>)> = table
            .rows
            .iter()
            .filter(|(at, values)| {
                !skipped(*at) && predicates.iter().all(|p| naive(&p.condition, &values[p.column]))
            })
            .collect();
        let mut found = Vec::new();
        let scanned = block
            .scan(&all, &predicates, &skip, |vector| {
                assert_eq!(vector.len(), vector.places().count());
                for place in vector.places() {
                    let values: Vec<Value> = all.iter().map(|c| vector.value(*c, place)).collect();
                    for (c, value) in values.iter().enumerate() {
                        assert_eq!(vector.is_null(c, place), value.is_null());
                        assert!(!vector.has_no_nulls(c) || !value.is_null());
                        if let (Value::Int4(v), [_, ..]) = (value, vector.ints(c)) {
                            assert_eq!(vector.ints(c)[place], i64::from(*v));
                        }
                        if let (Value::Text(text), Some((a, b))) = (value, vector.bytes(c, place)) {
                            assert_eq!([a, b].concat(), text.as_bytes());
                        }
                    }
                    found.push((vector.first_position() + place as u16, values));
                }
                ControlFlow::Continue(())
            })
            .unwrap();
        let of = |(at, values): &(u16, Vec<Value>)| (*at, values.iter().map(bits).collect::<Vec<_>>());
        let wanted: Vec<_> = wanted.into_iter().map(of).collect();
        assert_eq!(found.iter().map(of).collect::<Vec<_>>(), wanted, "{predicates:?}");
        assert_eq!(scanned.rows, wanted.len() as u64);
        assert_eq!(block.count(&predicates, &skip).unwrap(), scanned.rows);
        for column in 0..width {
            let aggregate = block.aggregate(column, &predicates, &skip).unwrap();
            let values = found.iter().map(|(_, values)| &values[column]);
            same(table, column, &aggregate, values.cloned());
        }
    }
}

/// An aggregate against the values that it is of.
fn same(table: &Table, column: usize, aggregate: &crate::Aggregate, values: impl Iterator<Item = Value>) {
    let values: Vec<Value> = values.collect();
    assert_eq!(aggregate.rows, values.len() as u64);
    let values: Vec<Value> = values.into_iter().filter(|v| !v.is_null()).collect();
    assert_eq!(aggregate.values, values.len() as u64);
    let less = |a: &Value, b: &Value| a.compare(b).expect("of one type");
    assert_eq!(aggregate.min, values.iter().min_by(|a, b| less(a, b)).cloned());
    assert_eq!(aggregate.max, values.iter().max_by(|a, b| less(a, b)).cloned());
    let scale = if let Type::Decimal { scale, .. } = table.layout.columns()[column].ty { scale } else { 0 };
    let sum = values.iter().try_fold(0i128, |sum, v| match v {
        Value::Int2(v) => sum.checked_add(i128::from(*v)),
        Value::Int4(v) => sum.checked_add(i128::from(*v)),
        Value::Int8(v) => sum.checked_add(i128::from(*v)),
        Value::Decimal(v) => sum.checked_add(v.rescale(scale).unwrap().mantissa()),
        _ => Some(sum),
    });
    assert_eq!(aggregate.sum, sum);
}

fn zone_holds(table: &Table, block: &Block<'_>, column: usize) {
    let zone = block.zone(column);
    let nulls = table.rows.iter().filter(|(_, values)| values[column].is_null()).count();
    assert_eq!((zone.nulls as usize, zone.values as usize), (nulls, table.rows.len() - nulls));
    for (_, values) in table.rows.iter().filter(|(_, values)| !values[column].is_null()) {
        let v = &values[column];
        assert!(
            zone.min.as_ref().is_none_or(|min| min.compare(v).is_some_and(Ordering::is_le)),
            "{zone:?} {v:?}"
        );
        assert!(
            zone.max.as_ref().is_none_or(|max| max.compare(v).is_some_and(Ordering::is_ge)),
            "{zone:?} {v:?}"
        );
    }
    if let Some(sum) = zone.sum {
        let aggregate = crate::Aggregate { sum: Some(sum), ..block.aggregate(column, &[], &[]).unwrap() };
        same(table, column, &aggregate, table.rows.iter().map(|(_, values)| values[column].clone()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(depth::either(48, 1000)))]

    #[test]
    fn scans_find_what_rows_say(table in any_table(5, 60), seed in any::<u64>()) {
        compare(&table, seed);
    }

    #[test]
    fn scans_of_damaged_blocks_are_harmless(table in any_table(5, 60), seed in any::<u64>()) {
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
        for column in 0..width {
            let predicate = Predicate { column, condition: condition(&table, column, &mut random) };
            let scanned = block.scan(&[column], std::slice::from_ref(&predicate), &[], |vector| {
                vector.places().for_each(|place| drop(vector.value(0, place)));
                ControlFlow::Continue(())
            });
            prop_assert!(scanned.is_ok());
            prop_assert!(block.aggregate(column, &[predicate], &[]).is_ok());
        }
        prop_assert_eq!(block.columns().count(), width);
    }
}

#[test]
fn scans_of_each_type_over_groups() {
    for (i, ty) in types().into_iter().enumerate() {
        let columns = [
            (ty, Pattern::Random, Holes::Some),
            (ty, Pattern::Few(20), Holes::None),
            (ty, Pattern::Runs(30), Holes::First),
            (ty, Pattern::Extremes, Holes::None),
        ];
        compare(&table(&columns, 1500, Holes::Some, 7, Choice::Smallest), i as u64);
    }
}

fn numbers(count: i32) -> (BlockMeta, Vec<u8>) {
    let price = Type::Decimal { precision: 9, scale: 2 };
    let layout = Layout::new(&[Column::new("id", Type::Int4), Column::new("price", price)]).unwrap();
    let mut builder = Builder::new(&layout);
    let mut row = Vec::new();
    for i in 0..count {
        let values = [Value::Int4(i), Value::Decimal(Decimal::new(i128::from(i % 100), 2).unwrap())];
        layout.encode(&values, &mut row).unwrap();
        builder.push(i as u16, &row).unwrap();
    }
    let bytes = builder.finish(1, Choice::PointReads).unwrap();
    (BlockMeta::parse(&bytes, &layout).unwrap(), bytes)
}

#[test]
fn zones_leave_out_groups() {
    let (meta, bytes) = numbers(10_000);
    let block = meta.block(&bytes);
    let predicate = |column, condition| Predicate { column, condition };
    let between = predicate(0, Condition::Between(Value::Int4(3000), Value::Int4(3099)));
    let scanned = block.scan(&[1], &[between], &[], |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(scanned, Scanned { rows: 100, groups_skipped: 8, groups_read: 2 });
    // A bound of another scale lies between two values of the column.
    let cent = |mantissa| Value::Decimal(Decimal::new(mantissa, 3).unwrap());
    assert_eq!(block.count(&[predicate(1, Condition::Less(cent(15)))], &[]).unwrap(), 200);
    assert_eq!(block.count(&[predicate(1, Condition::Equal(cent(15)))], &[]).unwrap(), 0);
    assert_eq!(block.count(&[predicate(1, Condition::GreaterOrEqual(cent(15)))], &[]).unwrap(), 9800);
    let total = block.aggregate(1, &[], &[]).unwrap();
    assert_eq!((total.sum, total.values), (Some(4950 * 100), 10_000));
    // The visitor ends the scan.
    let mut visits = 0;
    let stop = |_: &Vector<'_>| {
        visits += 1;
        ControlFlow::Break(())
    };
    block.scan(&[], &[], &[], stop).unwrap();
    assert_eq!(visits, 1);
}

#[test]
fn a_zone_does_not_leave_out_values_that_share_the_key_of_a_bound() {
    let layout = Layout::new(&[Column::new("name", Type::Text), Column::new("id", Type::Uuid)]).unwrap();
    let mut builder = Builder::new(&layout);
    let mut row = Vec::new();
    let values = |i: u32| {
        // Longer than a key, and so different that no dictionary is worth it.
        let tail: String =
            (0..40).map(|k| char::from(b'a' + ((i * 7919 + k * k * 31 + k) % 26) as u8)).collect();
        let id = thermocline_row::Uuid(u128::from(i).to_be_bytes());
        [Value::Text(format!("same key {i:04}{tail}")), Value::Uuid(id)]
    };
    for i in 0..500 {
        layout.encode(&values(i), &mut row).unwrap();
        builder.push(i as u16, &row).unwrap();
    }
    let bytes = builder.finish(1, Choice::PointReads).unwrap();
    let meta = BlockMeta::parse(&bytes, &layout).unwrap();
    assert!(meta.block(&bytes).columns().all(|column| column.encoding == "plain"));
    for (column, bound) in values(200).into_iter().enumerate() {
        let count = |condition| meta.block(&bytes).count(&[Predicate { column, condition }], &[]).unwrap();
        assert_eq!(count(Condition::Less(bound.clone())), 200);
        assert_eq!(count(Condition::LessOrEqual(bound.clone())), 201);
        assert_eq!(count(Condition::Greater(bound.clone())), 299);
        assert_eq!(count(Condition::GreaterOrEqual(bound)), 300);
    }
}

#[test]
fn a_scan_says_what_it_cannot_compare() {
    let (meta, bytes) = numbers(10);
    let block = meta.block(&bytes);
    let error =
        |column, condition| block.count(&[Predicate { column, condition }], &[]).unwrap_err().to_string();
    assert!(
        error(0, Condition::Equal(Value::Int8(1))).contains("column \"id\": integer compared with bigint")
    );
    assert!(error(1, Condition::Prefix(vec![1])).contains("compared with a prefix"));
    assert!(error(1, Condition::Between(Value::Null, Value::Int2(1))).contains("smallint"));
    assert!(error(2, Condition::IsNull).contains("number 2"));
    assert!(block.scan(&[2], &[], &[], |_| ControlFlow::Continue(())).is_err());
    assert!(block.aggregate(2, &[], &[]).is_err());
}
