//! Blocks of frozen chunks: `cargo +nightly fuzz run block`.
#![no_main]

use std::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;
use thermocline_frozen::{Block, BlockMeta, Builder, Choice, Condition, Predicate};
use thermocline_row::{Column, Layout, Type, Value};

/// A layout of a few columns, and rows for it, out of the bytes.
fn rows(bytes: &[u8]) -> Option<(Layout, Vec<Vec<u8>>)> {
    const TYPES: [Type; 8] = [
        Type::Int2,
        Type::Int8,
        Type::Float8,
        Type::Decimal { precision: 30, scale: 2 },
        Type::Bytes,
        Type::Boolean,
        Type::Interval,
        Type::Date,
    ];
    let (head, rest) = bytes.split_first()?;
    let columns: Vec<Column> = (0..1 + head % 4)
        .map(|i| Column::new(format!("c{i}"), TYPES[usize::from(head.wrapping_mul(31).wrapping_add(i * 5) % 8)]))
        .map(|column| if head & 64 != 0 { column.nullable() } else { column })
        .collect();
    let layout = Layout::new(&columns).ok()?;
    // Whatever the layout takes as a row of this length is one.
    let length = layout.fixed_len().max(1) + usize::from(head >> 5);
    let rows = rest.chunks(length).filter(|row| layout.check(row).is_ok()).map(<[u8]>::to_vec).collect();
    Some((layout, rows))
}

fn read(block: &Block<'_>, columns: usize) {
    let mut out = Vec::new();
    for position in 0..block.span().min(3000) as u16 {
        block.row_into(position, &mut out);
        for column in 0..columns {
            let _ = block.value(column, position);
        }
    }
    for column in 0..columns {
        for condition in [Condition::IsNull, Condition::IsNotNull, Condition::In(vec![Value::Null])] {
            let predicate = Predicate { column, condition };
            let scanned = block.scan(&[column], &[predicate.clone()], &[], |vector| {
                vector.places().for_each(|place| drop(vector.value(0, place)));
                ControlFlow::Continue(())
            });
            assert!(scanned.is_ok());
            let _ = block.aggregate(column, &[predicate], &[]);
        }
        let _ = block.zone(column);
    }
    assert_eq!(block.columns().count(), columns);
}

fuzz_target!(|bytes: &[u8]| {
    let Some((layout, rows)) = rows(bytes) else { return };
    let columns = layout.columns().len();
    if let Ok(meta) = BlockMeta::parse(bytes, &layout) {
        read(&meta.block(bytes), columns);
    }
    let mut builder = Builder::new(&layout);
    for (position, row) in (0..).zip(&rows) {
        assert!(builder.push(position, row).is_ok());
    }
    let choice = if bytes.len() % 2 == 0 { Choice::Smallest } else { Choice::PointReads };
    let Ok(mut block) = builder.finish(7, choice) else { return };
    let Ok(meta) = BlockMeta::parse(&block, &layout) else { panic!("a block that was just made is none") };
    let mut out = Vec::new();
    for (position, row) in (0..).zip(&rows) {
        assert!(meta.block(&block).row_into(position, &mut out) && out == *row);
    }
    assert!(meta.block(&block).verify().is_ok());
    // A changed byte is found, and the reader that met it goes on.
    let (at, mask) = (usize::from(bytes[0]) * bytes.len() % block.len(), bytes[bytes.len() / 2]);
    block[at] ^= mask;
    let found = BlockMeta::parse(&block, &layout).map_or(true, |meta| meta.block(&block).verify().is_err());
    assert_eq!(found, mask != 0);
    read(&meta.block(&block), columns);
});
