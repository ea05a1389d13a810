//! Tests of blocks: what is read is what was pushed, whatever the columns; damage is found and harmless.

use proptest::prelude::*;
use thermocline_base::depth;
use thermocline_base::rng::Rng;
use thermocline_row::{Column, Layout, Type};

use super::*;
use crate::testing::{Holes, Pattern, Table, any_table, bits, table, types};
use crate::{Builder, Choice};

/// All reads of a block against its rows.
fn compare(table: &Table) {
    let (meta, bytes) = table.freeze(7);
    let block = meta.block(&bytes);
    block.verify().unwrap();
    let encoded = table.encoded();
    let front = &bytes[..meta.front_len(&bytes)];
    let apart = BlockMeta::parse_front(front, &table.layout).unwrap();
    let alone = |position, out: &mut Vec<u8>| {
        let range = apart.group_range(front, position);
        range.is_some_and(|range| apart.group(front, &bytes[range], position).row_into(position, out))
    };
    assert_eq!((block.len() as usize, block.number(), block.bytes_len()), (encoded.len(), 7, bytes.len()));
    assert_eq!(block.positions().collect::<Vec<_>>(), encoded.iter().map(|row| row.0).collect::<Vec<_>>());
    let (mut out, mut rows) = (Vec::new(), encoded.iter().zip(&table.rows).peekable());
    for position in 0..=u16::MAX {
        if u32::from(position) > block.span() + 2 {
            break;
        }
        let Some(((_, row), (_, values))) = rows.next_if(|((at, _), _)| *at == position) else {
            assert!(!block.is_present(position) && !block.row_into(position, &mut out) && out.is_empty());
            assert!(!alone(position, &mut out), "position {position}");
            continue;
        };
        assert!(block.is_present(position) && block.row_into(position, &mut out));
        assert_eq!(&out, row, "position {position}");
        assert!(alone(position, &mut out) && &out == row, "position {position}");
        for (column, value) in values.iter().enumerate() {
            let read = block.value(column, position).unwrap();
            assert_eq!(bits(&read), bits(value), "column {column}, position {position}");
            assert_eq!(block.is_null(column, position), value.is_null());
            if let Some(bytes) =
                table.layout.columns()[column].ty.width().is_none().then(|| table.layout.bytes(row, column))
            {
                assert_eq!(block.bytes_into(column, position, &mut out), bytes.is_some());
                assert_eq!(out, bytes.unwrap_or_default());
            }
            if let Some(v) = block.int(column, position) {
                assert_eq!(bits(&meta.columns[column].field.integer_value(v)), bits(value));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(depth::either(48, 1000)))]

    #[test]
    fn rows_come_back_byte_for_byte(table in any_table(8, 40)) {
        compare(&table);
    }

    #[test]
    fn rows_of_several_groups_come_back(table in any_table(4, 2500)) {
        compare(&table);
    }

    #[test]
    fn a_flipped_byte_is_found_and_harmless(table in any_table(6, 60), at in any::<prop::sample::Index>(), flip in 1u8..) {
        let (meta, mut bytes) = table.freeze(3);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        let parsed = BlockMeta::parse(&bytes, &table.layout);
        prop_assert!(parsed.as_ref().map_or(true, |meta| meta.block(&bytes).verify().is_err()));
        prop_assert_eq!(parsed.is_err(), at < meta.header.front());
        // A reader that has parsed it before meets the damage in its bytes.
        read_all(&meta, &bytes);
    }

    #[test]
    fn arbitrary_groups_are_harmless(table in any_table(6, 60), seed in any::<u64>()) {
        let (meta, mut bytes) = table.freeze(3);
        let mut random = Rng::new(seed);
        let front = meta.header.front();
        for byte in &mut bytes[front..] {
            if random.below(3) == 0 {
                *byte = random.next_u64() as u8;
            }
        }
        read_all(&meta, &bytes);
        read_all(&meta, &bytes[..front + (bytes.len() - front) / 2]);
    }

    #[test]
    fn arbitrary_bytes_are_no_block(bytes in prop::collection::vec(any::<u8>(), 0..300), magic in any::<bool>()) {
        let mut bytes = bytes;
        if magic && bytes.len() > 10 {
            bytes[..8].copy_from_slice(&MAGIC);
            bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        }
        let layout = Layout::new(&[Column::new("a", Type::Int4)]).unwrap();
        prop_assert!(BlockMeta::parse(&bytes, &layout).is_err());
    }
}

/// Reads whatever there is; the values are of no interest.
fn read_all(meta: &BlockMeta, bytes: &[u8]) {
    let block = meta.block(bytes);
    let mut out = Vec::new();
    for position in 0..meta.span().min(200) as u16 {
        block.row_into(position, &mut out);
        for column in 0..meta.columns.len() {
            let _ = (block.value(column, position), block.int(column, position));
        }
    }
    assert!(block.positions().count() <= meta.span() as usize);
}

#[test]
fn each_type_in_each_pattern() {
    let patterns = [
        Pattern::Random,
        Pattern::Extremes,
        Pattern::Few(3),
        Pattern::Runs(20),
        Pattern::Rising,
        Pattern::Constant,
    ];
    for ty in types() {
        let columns: Vec<_> = [Holes::None, Holes::Some]
            .into_iter()
            .flat_map(|holes| patterns.map(|pattern| (ty, pattern, holes)))
            .collect();
        for (span, choice) in [(1, Choice::Smallest), (8, Choice::PointReads), (1100, Choice::Smallest)] {
            compare(&table(&columns, span, Holes::None, 5, choice));
        }
    }
}

#[test]
fn a_full_block() {
    let columns = [
        (Type::Int4, Pattern::Rising, Holes::None),
        (Type::Varchar(12), Pattern::Few(30), Holes::None),
        (Type::Int8, Pattern::Random, Holes::Some),
    ];
    let table = table(&columns, MAX_ROWS, Holes::None, 1, Choice::PointReads);
    let (meta, bytes) = table.freeze(1);
    let block = meta.block(&bytes);
    assert_eq!((block.len(), block.span()), (1 << 16, 1 << 16));
    block.verify().unwrap();
    let mut out = Vec::new();
    for (position, row) in table.encoded().iter().step_by(37) {
        assert!(block.row_into(*position, &mut out));
        assert_eq!(&out, row);
    }
}

#[test]
fn a_block_is_opened_with_its_own_layout_only() {
    let (meta, mut bytes) =
        table(&[(Type::Int4, Pattern::Random, Holes::None)], 9, Holes::None, 1, Choice::Smallest).freeze(12);
    assert_eq!(identify(&bytes).unwrap(), (12, 9, meta.header.layout));
    let other = Layout::new(&[Column::new("c0", Type::Date)]).unwrap();
    assert_eq!(BlockMeta::parse(&bytes, &other).unwrap_err(), Error::OtherLayout { number: 12 });
    let renamed = Layout::new(&[Column::new("renamed", Type::Int4)]).unwrap();
    assert!(BlockMeta::parse(&bytes, &renamed).is_ok(), "names may change under a block");
    bytes[8] = 2;
    let error = BlockMeta::parse(&bytes, &other).unwrap_err();
    assert_eq!((error.sqlstate(), error), ("0A000", Error::Version { found: 2, known: 1 }));
}

#[test]
fn a_builder_refuses_what_is_no_row_and_goes_on() {
    let layout = Layout::new(&[Column::new("a", Type::Int4), Column::new("b", Type::Text)]).unwrap();
    let mut builder = Builder::new(&layout);
    assert_eq!(builder.finish(1, Choice::Smallest).unwrap_err(), Error::Empty);
    let mut row = Vec::new();
    layout.encode(&[Value::Int4(5), Value::Text("abc".to_owned())], &mut row).unwrap();
    builder.push(3, &row).unwrap();
    assert_eq!(builder.push(3, &row).unwrap_err(), Error::Position { position: 3, least: 4 });
    for bad in [&row[..6], &row[..10], &[&row[..], b"x"].concat()[..]] {
        let error = builder.push(4, bad).unwrap_err();
        assert!(matches!(error, Error::Row { position: 4, .. }), "{error}");
    }
    builder.push(u16::MAX, &row).unwrap();
    let bytes = builder.finish(1, Choice::Smallest).unwrap();
    let meta = BlockMeta::parse(&bytes, &layout).unwrap();
    assert_eq!(meta.block(&bytes).positions().collect::<Vec<_>>(), [3, u16::MAX]);
    assert!(builder.is_empty());
    builder.push(0, &row).unwrap();
    assert_eq!(builder.len(), 1);
}
