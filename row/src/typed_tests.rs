//! Tests of the macro `row!` and its types.

use super::super::layout::{Layout, Place, Shape, places};
use super::super::types::Column;
use super::super::value::Value;
use super::*;

crate::row! {
    /// One column of each type.
    struct Every as EveryRow {
        flag: bool,
        small: i16,
        middle: i32,
        large: i64,
        single: f32,
        double: f64,
        short_decimal: Dec<18, 4>,
        long_decimal: Dec<38, 10>,
        text: String,
        limited: Varchar<5>,
        padded: Char<4>,
        raw: Bytes,
        day: Date,
        clock: Time,
        local: Timestamp,
        point: TimestampTz,
        span: Interval,
        id: Uuid,
        maybe_flag: Option<bool>,
        maybe_middle: Option<i32>,
        maybe_decimal: Option<Dec<6, 2>>,
        maybe_text: Option<Varchar<8>>,
        maybe_raw: Option<Vec<u8>>,
        maybe_day: Option<Date>,
        maybe_span: Option<Interval>,
    }
}

fn sample() -> Every {
    Every {
        flag: true,
        small: -2,
        middle: 3,
        large: -4,
        single: 1.5,
        double: -2.5,
        short_decimal: Dec(123_456),
        long_decimal: Dec(-1),
        text: "text".into(),
        limited: "äöüßé".into(),
        padded: "ab".into(),
        raw: vec![0, 255],
        day: Date(19_000),
        clock: Time::from_hms(12, 34, 56, 789).unwrap(),
        local: Timestamp(-1),
        point: TimestampTz(1),
        span: Interval::new(1, -2, 3),
        id: Uuid([7; 16]),
        maybe_flag: None,
        maybe_middle: Some(9),
        maybe_decimal: Some(Dec(-999_999)),
        maybe_text: None,
        maybe_raw: Some(vec![1, 2, 3]),
        maybe_day: None,
        maybe_span: Some(Interval::new(0, 0, 1)),
    }
}

#[test]
fn places_are_those_of_the_layout() {
    let columns = Every::schema_columns();
    let layout = Layout::new(&columns).unwrap();
    let shapes: [Shape; 25] = std::array::from_fn(|i| Shape::new(columns[i].ty, columns[i].nullable));
    let at_run_time: Vec<Place> = layout.slots().iter().map(|slot| slot.place).collect();
    assert_eq!(places(&shapes).as_slice(), at_run_time);
    assert_eq!(columns[Every::MAYBE_TEXT], Column::new("maybe_text", Type::Varchar(8)).nullable());
    assert_eq!(Every::MAYBE_SPAN, 24);
}

#[test]
fn both_encoders_agree() {
    let every = sample();
    let mut typed = Vec::new();
    every.encode(&mut typed).unwrap();
    let layout = Every::layout();
    let values = layout.decode(&typed).unwrap();
    let mut dynamic = Vec::new();
    layout.encode(&values, &mut dynamic).unwrap();
    assert_eq!(typed, dynamic);
    assert_eq!(Every::decode(&typed), every);
    let row = EveryRow(&typed);
    assert_eq!(values[Every::LIMITED], Value::from(row.limited()));
    assert_eq!(values[Every::SHORT_DECIMAL], Value::from(row.short_decimal().to_decimal().unwrap()));
    assert_eq!((row.short_decimal().scaled64(), row.maybe_decimal()), (123_456, Some(Dec(-999_999))));
    assert_eq!((row.maybe_text(), row.maybe_raw()), (None, Some(&[1u8, 2, 3][..])));
}

#[test]
fn errors_name_the_column() {
    let mut out = Vec::new();
    let long = Every { limited: "123456".into(), ..sample() };
    let error = long.encode(&mut out).unwrap_err();
    assert_eq!(
        error.to_string(),
        "column \"limited\" (varchar(5)) takes at most 5 characters, the value has 6; shorten it"
    );
    let huge = Every { maybe_decimal: Some(Dec(1_000_000)), ..sample() };
    assert_eq!(huge.encode(&mut out).unwrap_err().sqlstate(), "22003");
    let endless = Every { text: "x".repeat(1 << 20), ..sample() };
    assert!(matches!(endless.encode(&mut out), Err(RowError::RowTooLong { .. })));
}

#[test]
fn setters_equal_a_new_row() {
    let (old, new) = (
        sample(),
        Every {
            flag: false,
            text: "longer text".into(),
            padded: "x".into(),
            short_decimal: Dec(-5),
            long_decimal: Dec(POW10[38] - 1),
            maybe_flag: Some(true),
            maybe_text: Some("now".into()),
            maybe_raw: None,
            maybe_middle: None,
            ..sample()
        },
    );
    let (mut before, mut after, mut scratch) = (Vec::new(), Vec::new(), Vec::new());
    old.encode(&mut before).unwrap();
    new.encode(&mut after).unwrap();
    let mut editor = RowEditor::new(Every::layout(), &before, &mut scratch);
    EveryRow::set_flag(&mut editor, new.flag).unwrap();
    EveryRow::set_text(&mut editor, &new.text).unwrap();
    EveryRow::set_padded(&mut editor, "x   ").unwrap();
    EveryRow::set_short_decimal(&mut editor, new.short_decimal).unwrap();
    EveryRow::set_long_decimal(&mut editor, new.long_decimal).unwrap();
    EveryRow::set_maybe_flag(&mut editor, new.maybe_flag).unwrap();
    EveryRow::set_maybe_text(&mut editor, new.maybe_text.as_deref()).unwrap();
    EveryRow::set_maybe_raw(&mut editor, None).unwrap();
    EveryRow::set_maybe_middle(&mut editor, None).unwrap();
    // What is the same is not a change.
    EveryRow::set_large(&mut editor, new.large).unwrap();
    assert!(EveryRow::set_limited(&mut editor, "123456").is_err());
    assert_eq!(editor.finish().unwrap(), after);
    let mut changed: Vec<usize> = editor.changed_columns().iter().collect();
    changed.sort_unstable();
    use Every as E;
    assert_eq!(
        changed,
        [
            E::FLAG,
            E::SHORT_DECIMAL,
            E::LONG_DECIMAL,
            E::TEXT,
            E::PADDED,
            E::MAYBE_FLAG,
            E::MAYBE_MIDDLE,
            E::MAYBE_TEXT,
            E::MAYBE_RAW,
        ]
    );
}
