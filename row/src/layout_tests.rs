//! Tests of row layouts.

use proptest::prelude::*;

use super::super::testing::{bits, columns, table};
use super::*;

fn all_bits(values: &[Value]) -> Vec<Vec<u8>> {
    values.iter().map(bits).collect()
}

proptest! {
    #[test]
    fn rows_round_trip((columns, rows) in table(12, 2)) {
        let layout = Layout::new(&columns).unwrap();
        let mut row = Vec::new();
        for values in &rows {
            layout.encode(values, &mut row).unwrap();
            layout.check(&row).unwrap();
            prop_assert_eq!(all_bits(&layout.decode(&row).unwrap()), all_bits(values));
            for (i, value) in values.iter().enumerate() {
                prop_assert_eq!(layout.is_null(&row, i), value.is_null());
            }
        }
    }

    #[test]
    fn bytes_that_pass_the_check_are_the_form_of_their_values(
        columns in columns(6),
        bytes in prop::collection::vec(prop_oneof![Just(0u8), 0u8..40, any::<u8>()], 0..80),
    ) {
        let layout = Layout::new(&columns).unwrap();
        if let Ok(values) = layout.decode(&bytes) {
            let mut again = Vec::new();
            layout.encode(&values, &mut again).unwrap();
            prop_assert_eq!(again, bytes);
        }
    }

    #[test]
    fn damage_is_found_or_makes_another_row(
        (columns, rows) in table(6, 1),
        at in any::<prop::sample::Index>(),
        flip in 1u8..,
        cut in any::<prop::sample::Index>(),
    ) {
        let layout = Layout::new(&columns).unwrap();
        let mut row = Vec::new();
        layout.encode(&rows[0], &mut row).unwrap();
        if row.is_empty() {
            return Ok(());
        }
        prop_assert!(layout.check(&row[..cut.index(row.len())]).is_err());
        let position = at.index(row.len());
        row[position] ^= flip;
        if let Ok(values) = layout.decode(&row) {
            let mut again = Vec::new();
            layout.encode(&values, &mut again).unwrap();
            prop_assert_eq!(again, row);
        }
    }
}

fn layout(columns: &[Column]) -> Layout {
    Layout::new(columns).unwrap()
}

#[test]
fn bytes_are_where_the_diagram_says() {
    let layout = layout(&[
        Column::new("a", Type::Int2),
        Column::new("b", Type::Varchar(9)).nullable(),
        Column::new("c", Type::Decimal { precision: 19, scale: 0 }),
        Column::new("d", Type::Text),
        Column::new("e", Type::Date).nullable(),
    ]);
    let mut row = Vec::new();
    let values = [
        Value::Int2(258),
        Value::from("xy"),
        Value::Decimal(Decimal::from(-1)),
        Value::from("z"),
        Value::Null,
    ];
    layout.encode(&values, &mut row).unwrap();
    assert_eq!(layout.fixed_len(), 31);
    let mut expected = vec![0b10, 2, 1, 33, 0, 0, 0];
    expected.extend([255; 16]);
    expected.extend([34, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend(b"xyz");
    assert_eq!(row, expected);
    assert_eq!(layout.i16(&row, 0), Some(258));
    assert_eq!(layout.bytes(&row, 1), Some(&b"xy"[..]));
    assert_eq!(layout.decimal(&row, 2), Some(Decimal::from(-1)));
    assert_eq!(layout.str(&row, 3), Some("z"));
    assert_eq!(layout.date(&row, 4), None);
}

#[test]
fn values_that_do_not_fit() {
    let layout = layout(&[
        Column::new("v", Type::Varchar(3)),
        Column::new("c", Type::Char(2)),
        Column::new("d", Type::Decimal { precision: 4, scale: 2 }),
    ]);
    let d = |text: &str| Value::Decimal(text.parse().unwrap());
    let mut row = Vec::new();
    let mut flaw = |v: Value, c: Value, d: Value| match layout.encode(&[v, c, d], &mut row) {
        Ok(()) => None,
        Err(RowError::Value { column, flaw, .. }) => Some((column.to_string(), flaw)),
        Err(e) => panic!("{e}"),
    };
    assert_eq!(flaw("äöü".into(), "x     ".into(), d("-99.99")), None);
    assert_eq!(flaw("äöü".into(), "".into(), d("5.000")), None);
    assert_eq!(
        flaw("a   ".into(), "".into(), d("0")),
        Some(("v".into(), Flaw::TooLong { found: 4, limit: 3 }))
    );
    assert_eq!(
        flaw("".into(), "abc".into(), d("0")),
        Some(("c".into(), Flaw::TooLong { found: 3, limit: 2 }))
    );
    assert_eq!(
        flaw("".into(), "".into(), d("100")),
        Some(("d".into(), Flaw::OutOfRange { found: "100.00".into() }))
    );
    assert_eq!(
        flaw("".into(), "".into(), d("0.001")),
        Some(("d".into(), Flaw::Inexact { found: "0.001".into() }))
    );
    assert_eq!(flaw(Value::Null, "".into(), d("0")), Some(("v".into(), Flaw::Null)));
    assert_eq!(flaw("".into(), 1i64.into(), d("0")), Some(("c".into(), Flaw::WrongType { found: "bigint" })));
    assert_eq!(layout.encode(&[], &mut row), Err(RowError::ColumnCount { expected: 3, found: 0 }));
}

#[test]
fn schemas_that_cannot_be() {
    let reason = |columns: &[Column]| Layout::new(columns).unwrap_err().to_string();
    let d = |precision, scale| Column::new("d", Type::Decimal { precision, scale });
    assert!(reason(&[d(0, 0)]).contains("precision"));
    assert!(reason(&[d(39, 0)]).contains("precision"));
    assert!(reason(&[d(3, 4)]).contains("scale"));
    assert!(reason(&[Column::new("v", Type::Varchar(0))]).contains("length"));
    assert!(reason(&[Column::new("t", Type::Text).auto_increment()]).contains("integers"));
    assert!(reason(&[Column::new("a", Type::Int2), Column::new("a", Type::Int4)]).contains("two columns"));
    assert!(reason(&[Column::new("a", Type::Int2).default(1i64)]).contains("smallint"));
    assert!(reason(&[Column::new("a", Type::Varchar(1)).default("xy")]).contains("at most 1 characters"));
    let many: Vec<Column> = (0..=MAX_COLUMNS).map(|i| Column::new(i.to_string(), Type::Int8)).collect();
    assert!(reason(&many).contains("1600"));
    let widest = layout(&many[1..]);
    assert_eq!(widest.fixed_len(), MAX_COLUMNS * 8);
}

#[test]
fn rows_have_a_limit() {
    let layout = layout(&[Column::new("a", Type::Text), Column::new("b", Type::Bytes)]);
    let mut row = Vec::new();
    let most = MAX_ROW_BYTES - 8;
    layout.encode(&["x".repeat(most - 1).into(), vec![7u8].into()], &mut row).unwrap();
    layout.check(&row).unwrap();
    let error = layout.encode(&["x".repeat(most).into(), vec![7u8].into()], &mut row).unwrap_err();
    assert_eq!(error, RowError::RowTooLong { bytes: MAX_ROW_BYTES + 1 });
}

#[test]
#[should_panic(expected = "column \"a\" is of type integer and was read as i64")]
fn reading_as_another_type_is_a_mistake() {
    let layout = layout(&[Column::new("a", Type::Int4)]);
    let _ = layout.i64(&[0; 4], 0);
}

proptest! {
    #[test]
    fn catalog_form_round_trips((columns, rows) in table(4, 1), count in 0u8..3, at in any::<prop::sample::Index>(), flip in 1u8..) {
        for (mut column, value) in columns.into_iter().zip(&rows[0]) {
            column.auto_increment = count == 1;
            column.default = (count < 2).then(|| value.clone());
            let mut bytes = vec![];
            column.encode(&mut bytes);
            let len = bytes.len();
            bytes.extend([1, 2, 3]);
            let mut rest = &bytes[..];
            let read = Column::decode(&mut rest).unwrap();
            prop_assert_eq!(rest, &[1, 2, 3]);
            let mut again = vec![];
            read.encode(&mut again);
            prop_assert_eq!(&again, &bytes[..len]);
            prop_assert_eq!(read, column);
            // The checksum finds every damaged byte, the lengths every cut.
            bytes.truncate(len);
            prop_assert!(Column::decode(&mut &bytes[..at.index(len)]).is_err());
            bytes[at.index(len)] ^= flip;
            let damaged = matches!(Column::decode(&mut &bytes[..]), Err(RowError::Damaged { .. }));
            prop_assert!(damaged);
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(0u8..20, 0..40)) {
        if let Ok(value) = Value::decode(&mut &bytes[..]) {
            prop_assert!(bytes.starts_with(&bits(&value)));
        }
        if let Ok(ty) = Type::decode(&mut &bytes[..]) {
            let mut again = vec![];
            ty.encode(&mut again);
            prop_assert!(bytes.starts_with(&again));
        }
        prop_assert!(Column::decode(&mut &bytes[..]).is_err());
    }
}
