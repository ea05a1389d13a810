//! Tests of the row editor.

use proptest::prelude::*;

use super::super::testing::{bits, table};
use super::super::types::Column;
use super::*;

proptest! {
    /// Any sequence of setters gives the bytes that a new row of the same values has.
    #[test]
    fn edits_equal_a_new_row(
        (columns, rows) in table(10, 6),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 1usize..6), 0..12),
    ) {
        let layout = Layout::new(&columns).unwrap();
        let (mut old, mut new, mut scratch) = (Vec::new(), Vec::new(), vec![0xaa; 7]);
        layout.encode(&rows[0], &mut old).unwrap();
        let before = old.clone();
        let mut values = rows[0].clone();
        let mut editor = RowEditor::new(&layout, &old, &mut scratch);
        for (column, from) in edits {
            if columns.is_empty() {
                break;
            }
            let column = column.index(columns.len());
            values[column] = rows[from][column].clone();
            editor.set_value(column, &values[column]).unwrap();
            layout.encode(&values, &mut new).unwrap();
            prop_assert_eq!(editor.row(), &new[..]);
        }
        for (i, value) in values.iter().enumerate() {
            if bits(value) != bits(&rows[0][i]) {
                prop_assert!(editor.changed_columns().contains(i));
            }
        }
        prop_assert_eq!(editor.changed_columns().is_empty(), std::ptr::eq(editor.row(), editor.old_row()));
        layout.check(editor.finish().unwrap()).unwrap();
        prop_assert_eq!(old, before);
    }
}

fn layout() -> Layout {
    Layout::new(&[
        Column::new("n", Type::Int4),
        Column::new("v", Type::Varchar(3)).nullable(),
        Column::new("d", Type::Decimal { precision: 4, scale: 2 }),
        Column::new("t", Type::Text),
        Column::new("b", Type::Bytes),
    ])
    .unwrap()
}

#[test]
fn errors_change_nothing() {
    let layout = layout();
    let (mut old, mut scratch) = (Vec::new(), Vec::new());
    let d = |text: &str| text.parse::<Decimal>().unwrap();
    layout
        .encode(&[1i32.into(), Value::Null, d("1").into(), "t".into(), vec![0u8].into()], &mut old)
        .unwrap();
    let mut editor = RowEditor::new(&layout, &old, &mut scratch);
    for error in [
        editor.set_i64(0, 1),
        editor.set_null(0),
        editor.set_str(0, "x"),
        editor.set_str(1, "abcd"),
        editor.set_bytes(1, b"abc"),
        editor.set_decimal(2, d("100")),
        editor.set_decimal(2, d("0.001")),
        editor.set_scaled(2, 10_000),
        editor.set_str(4, "x"),
        editor.set_i32(5, 1),
    ] {
        assert!(error.is_err());
    }
    let limit = editor.set_str(3, &"x".repeat(MAX_ROW_BYTES + 1));
    assert_eq!(limit, Err(RowError::RowTooLong { bytes: MAX_ROW_BYTES + 1 }));
    assert!(editor.changed_columns().is_empty());
    // What is there already is no change, nor is a null of a null.
    editor.set_i32(0, 1).unwrap();
    editor.set_null(1).unwrap();
    editor.set_scaled(2, 100).unwrap();
    editor.set_bytes(4, &[0]).unwrap();
    assert!(std::ptr::eq(editor.finish().unwrap(), &old[..]));
}

#[test]
fn a_row_may_be_too_long_on_the_way() {
    let layout = layout();
    let (mut old, mut scratch) = (Vec::new(), Vec::new());
    layout
        .encode(&[1i32.into(), Value::Null, Decimal::ZERO.into(), "t".into(), vec![0u8].into()], &mut old)
        .unwrap();
    let mut editor = RowEditor::new(&layout, &old, &mut scratch);
    editor.set_str(3, &"x".repeat(MAX_ROW_BYTES)).unwrap();
    assert!(matches!(editor.finish(), Err(RowError::RowTooLong { .. })));
    editor.set_str(3, "back").unwrap();
    layout.check(editor.finish().unwrap()).unwrap();
}

#[test]
fn scratch_is_reused() {
    let layout = layout();
    let (mut old, mut scratch) = (Vec::new(), Vec::with_capacity(256));
    layout
        .encode(&[1i32.into(), "abc".into(), Decimal::ZERO.into(), "t".into(), vec![0u8].into()], &mut old)
        .unwrap();
    let room = scratch.as_ptr();
    for n in 0..10 {
        let mut editor = RowEditor::new(&layout, &old, &mut scratch);
        editor.set_i32(0, 5 + n).unwrap();
        editor.set_str(1, "é").unwrap();
        editor.set_str(3, "longer than before").unwrap();
        assert_eq!(layout.str(editor.finish().unwrap(), 3), Some("longer than before"));
    }
    assert_eq!(scratch.as_ptr(), room);
}

#[test]
fn column_sets() {
    let set: ColumnSet = [3, 64, 200, 63].into_iter().collect();
    assert_eq!(set.iter().collect::<Vec<_>>(), [3, 63, 64, 200]);
    assert!(!set.contains(4) && !set.contains(65) && !set.contains(1599));
    let other: ColumnSet = [200].into_iter().collect();
    assert!(
        set.intersects(&other)
            && other.intersects(&set)
            && !other.intersects(&[3, 199].into_iter().collect())
    );
    assert!(ColumnSet::new().is_empty() && !other.is_empty());
}
