//! Tests of batches and of predicates on encoded rows against the values, one by one.

use proptest::prelude::*;
use thermocline_base::depth;
use thermocline_base::rng::Rng;
use thermocline_row::{Column, Layout, Type, Value};

use super::*;
use crate::testing::{Holes, Pattern, Table, any_table, bits, table, types};
use crate::{BlockMeta, Builder, Choice, Condition, Function, Predicate, RowFilter};

/// The rows of batches, value by value.
fn rows_of(batches: &[Batch]) -> Vec<Vec<Vec<u8>>> {
    let row = |batch: &Batch, row| batch.columns().iter().map(|column| bits(&column.value(row))).collect();
    batches.iter().flat_map(|batch| (0..batch.rows()).map(move |at| row(batch, at))).collect()
}

/// Checks the promises of arrays.
fn check_shape(batch: &Batch) {
    for column in batch.columns() {
        let len = match column.values() {
            Values::Boolean(bits) => bits.len(),
            Values::Int2(values) => values.len(),
            Values::Int4(values) => values.len(),
            Values::Int8(values) => values.len(),
            Values::Float4(values) => values.len(),
            Values::Float8(values) => values.len(),
            Values::Decimal(values) => values.len(),
            Values::Interval(values) => values.len(),
            Values::Uuid(values) => values.len(),
            Values::Strings(strings) => {
                assert_eq!(strings.offsets().last().copied(), i32::try_from(strings.bytes().len()).ok());
                strings.len()
            }
            Values::Codes(codes, dictionary) => {
                assert!(codes.iter().all(|code| (0..dictionary.len() as i32).contains(code)));
                assert!((1..dictionary.len()).all(|i| dictionary.get(i - 1) < dictionary.get(i)));
                codes.len()
            }
        };
        assert_eq!(len, batch.rows());
        assert!(column.validity().is_none_or(|bits| bits.len() == len));
        assert_eq!(column.nulls(), (0..len).filter(|row| column.value(*row).is_null()).count());
    }
}

/// Gathers some rows of the table's block, some as encoded rows, in batches that end anywhere.
fn gathers(table: &Table, seed: u64) {
    let mut random = Rng::new(seed);
    let (meta, bytes) = table.freeze(seed);
    let block = meta.block(&bytes);
    let encoded = table.encoded();
    let width = table.layout.columns().len();
    let columns: Vec<usize> = (0..width).chain((0..width).rev()).collect();
    let mut gather = Gather::new(&table.layout, &columns).unwrap();
    let (mut wanted, mut batches) = (Vec::new(), Vec::new());
    let wanted_of = |at: u16| -> Vec<Vec<u8>> {
        let (_, values) = table.rows.iter().find(|(position, _)| *position == at).unwrap();
        columns.iter().map(|column| bits(&values[*column])).collect()
    };
    for _ in 0..3 {
        for group in 0..block.groups() {
            let present = block.presence(group);
            let few = random.chance(0.5);
            let selected = present.map(|word| match random.below(3) {
                0 if few => word & random.next_u64() & random.next_u64() & random.next_u64(),
                0 => word & random.next_u64(),
                _ => word,
            });
            gather.push_group(&block, group, &selected);
            wanted.extend(ones(&selected).map(|i| wanted_of((group * crate::GROUP_ROWS + i) as u16)));
            if random.chance(0.3) {
                let (at, row) = &encoded[random.below(encoded.len() as u64) as usize];
                gather.push_row(row);
                wanted.push(wanted_of(*at));
            }
            if random.chance(0.3) {
                let from = random.below(encoded.len() as u64) as usize;
                let few = &encoded[from..(from + random.below(9) as usize).min(encoded.len())];
                gather.push_rows(&few.iter().map(|(_, row)| row.as_slice()).collect::<Vec<_>>());
                wanted.extend(few.iter().map(|(at, _)| wanted_of(*at)));
            }
            if random.chance(0.3) {
                batches.push(gather.finish());
            }
        }
    }
    batches.push(gather.finish());
    batches.iter().for_each(check_shape);
    assert_eq!(rows_of(&batches), wanted);
}

/// Encoded rows pass if and only if they pass in the block.
fn filters(table: &Table, seed: u64) {
    let mut random = Rng::new(seed);
    let (meta, bytes) = table.freeze(1);
    let block = meta.block(&bytes);
    let encoded = table.encoded();
    for _ in 0..12 {
        let width = table.layout.columns().len() as u64;
        let predicates: Vec<Predicate> = (0..random.below(3).min(width))
            .map(|_| {
                let column = random.below(width) as usize;
                Predicate { column, condition: crate::scan::tests::condition(table, column, &mut random) }
            })
            .collect();
        let filter = RowFilter::new(&table.layout, &predicates).unwrap();
        let by_row: Vec<u16> =
            encoded.iter().filter(|(_, row)| filter.holds(row)).map(|(at, _)| *at).collect();
        let plan = block.plan(&predicates).unwrap();
        let select = |group| block.select(&plan, group, &[u64::MAX; 16], &mut Vec::new());
        let by_block: Vec<u16> = (0..block.groups())
            .filter_map(|group| select(group).map(|bits| (group, bits)))
            .flat_map(|(group, bits)| ones(&bits).map(|i| (group * 1024 + i) as u16).collect::<Vec<_>>())
            .collect();
        assert_eq!(by_row, by_block, "{predicates:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(depth::either(48, 1000)))]

    #[test]
    fn batches_have_what_rows_have(table in any_table(5, 60), seed in any::<u64>()) {
        gathers(&table, seed);
        filters(&table, seed);
    }

    #[test]
    fn batches_of_damaged_blocks_are_harmless(table in any_table(5, 60), seed in any::<u64>()) {
        let (meta, mut bytes) = table.freeze(3);
        let mut random = Rng::new(seed);
        let zones = meta.header.zones_at();
        for byte in &mut bytes[zones..] {
            if random.below(3) == 0 {
                *byte = random.next_u64() as u8;
            }
        }
        let block = meta.block(&bytes);
        let columns: Vec<usize> = (0..table.layout.columns().len()).collect();
        let mut gather = Gather::new(&table.layout, &columns).unwrap();
        for group in 0..block.groups() {
            gather.push_group(&block, group, &block.presence(group));
        }
        let batch = gather.finish();
        for column in batch.columns() {
            (0..batch.rows()).for_each(|row| drop(column.value(row)));
        }
    }
}

#[test]
fn batches_of_each_type_over_groups() {
    for (i, ty) in types().into_iter().enumerate() {
        let columns = [
            (ty, Pattern::Random, Holes::Some),
            (ty, Pattern::Few(20), Holes::None),
            (ty, Pattern::Runs(30), Holes::First),
            (ty, Pattern::Extremes, Holes::None),
            (ty, Pattern::Few(3), Holes::All),
        ];
        let table = table(&columns, 2500, Holes::Some, 7, Choice::Smallest);
        gathers(&table, i as u64);
        filters(&table, i as u64);
    }
}

fn names(count: u16, name: impl Fn(u16) -> String) -> (Layout, BlockMeta, Vec<u8>) {
    let layout = Layout::new(&[Column::new("name", Type::Text)]).unwrap();
    let mut builder = Builder::new(&layout);
    for i in 0..count {
        let mut row = Vec::new();
        layout.encode(&[Value::Text(name(i))], &mut row).unwrap();
        builder.push(i, &row).unwrap();
    }
    let bytes = builder.finish(u64::from(count), Choice::PointReads).unwrap();
    let meta = BlockMeta::parse(&bytes, &layout).unwrap();
    (layout, meta, bytes)
}

#[test]
fn strings_of_one_block_are_codes_and_share_their_dictionary() {
    let (layout, meta, bytes) = names(2048, |i| format!("name {}", i % 10));
    let block = meta.block(&bytes);
    let mut gather = Gather::new(&layout, &[0]).unwrap();
    gather.push_group(&block, 0, &[u64::MAX; 16]);
    let first = gather.finish();
    gather.push_group(&block, 1, &[u64::MAX; 16]);
    let second = gather.finish();
    let dictionary = |batch: &Batch| match batch.columns()[0].values() {
        Values::Codes(_, dictionary) => Arc::clone(dictionary),
        other => panic!("no codes: {other:?}"),
    };
    assert!(Arc::ptr_eq(&dictionary(&first), &dictionary(&second)));
    assert_eq!((first.rows(), dictionary(&first).len()), (1024, 10));
    assert!(first.memory() > 4096);
    // A row that comes from elsewhere has no code.
    gather.push_group(&block, 1, &[u64::MAX; 16]);
    let mut row = Vec::new();
    layout.encode(&[Value::from("another")], &mut row).unwrap();
    gather.push_row(&row);
    let mixed = gather.finish();
    assert!(matches!(mixed.columns()[0].values(), Values::Strings(_)));
    assert_eq!(mixed.columns()[0].value(1024), Value::from("another"));
    assert_eq!(mixed.columns()[0].bytes(3), Some(&b"name 7"[..]));
}

#[test]
fn a_function_is_asked_once_a_dictionary_value() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let (_, meta, bytes) = names(2048, |i| format!("name {}", i % 10));
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let ends = Function::new(move |value| {
        counted.fetch_add(1, Ordering::Relaxed);
        matches!(value, Value::Text(text) if text.ends_with('7'))
    });
    let predicate = Predicate { column: 0, condition: Condition::Holds(ends.clone()) };
    assert_eq!(meta.block(&bytes).count(std::slice::from_ref(&predicate), &[]).unwrap(), 205);
    assert_eq!(asked.load(Ordering::Relaxed), 11, "ten values, and whether it holds of nulls");
    assert_eq!(predicate.condition, Condition::Holds(ends));
    assert_ne!(predicate.condition, Condition::Holds(Function::new(|_| true)));
}

#[test]
fn what_does_not_fit_is_refused() {
    let (layout, ..) = names(1, |_| String::new());
    assert!(Gather::new(&layout, &[1]).unwrap_err().to_string().contains("number 1"));
    let filter = |column, condition| RowFilter::new(&layout, &[Predicate { column, condition }]);
    assert!(filter(1, Condition::IsNull).unwrap_err().to_string().contains("there are 1 columns"));
    assert!(filter(0, Condition::Equal(Value::Int4(1))).unwrap_err().to_string().contains("integer"));
}
