//! Tests of keys: their order is that of the values.

use std::cmp::Ordering;

use proptest::prelude::*;

use super::super::testing::{any_type, table, value_of};
use super::super::types::Column;
use super::*;

/// Nulls last, or first if descending.
fn sql_order(a: &[Value], b: &[Value], parts: &[(usize, bool)]) -> Ordering {
    for (column, descending) in parts {
        let (a, b) = (&a[*column], &b[*column]);
        let order = match (a.is_null(), b.is_null()) {
            (false, false) => a.compare(b).unwrap(),
            (a, b) => a.cmp(&b),
        };
        if order != Ordering::Equal {
            return if *descending { order.reverse() } else { order };
        }
    }
    Ordering::Equal
}

fn spec_of(columns: &[Column], parts: &[(usize, bool)]) -> (Layout, KeySpec) {
    let layout = Layout::new(columns).unwrap();
    let spec = KeySpec::new(&layout, parts).unwrap();
    (layout, spec)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn order_of_one_column((ty, a, b) in any_type().prop_flat_map(|ty| (Just(ty), value_of(ty), value_of(ty))), descending: bool) {
        let (_, spec) = spec_of(&[Column::new("c", ty)], &[(0, descending)]);
        let (a, b) = ([a], [b]);
        let (ka, kb) = (spec.encode_values(&a).unwrap(), spec.encode_values(&b).unwrap());
        prop_assert_eq!(ka.cmp(&kb), sql_order(&a, &b, &[(0, descending)]));
    }
}

proptest! {
    #[test]
    fn order_of_composite_keys(
        (columns, rows) in table(5, 2),
        picks in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 1..5),
        copy in 0usize..5,
    ) {
        if columns.is_empty() {
            return Ok(());
        }
        let parts: Vec<(usize, bool)> = picks.iter().map(|(i, desc)| (i.index(columns.len()), *desc)).collect();
        let (layout, spec) = spec_of(&columns, &parts);
        let (a, mut b) = (rows[0].clone(), rows[1].clone());
        // Equal columns in front, so that later ones decide.
        for (column, _) in parts.iter().take(copy) {
            b[*column] = a[*column].clone();
        }
        let (mut ra, mut rb, mut ka, mut kb) = (Vec::new(), Vec::new(), KeyBuf::new(), KeyBuf::new());
        layout.encode(&a, &mut ra).unwrap();
        layout.encode(&b, &mut rb).unwrap();
        spec.encode_row(&ra, &mut ka).unwrap();
        spec.encode_row(&rb, &mut kb).unwrap();
        prop_assert_eq!(ka.cmp(&kb), sql_order(&a, &b, &parts));
        prop_assert_eq!(spec.matches(&ra, &kb), ka == kb);
        prop_assert!(spec.matches(&ra, &ka) && spec.matches(&rb, &kb));
        prop_assert!(!spec.matches(&ra, &ka[..ka.len() - 1]));
        let longer = [&ka[..], &[0]].concat();
        prop_assert!(!spec.matches(&ra, &longer));

        let values: Vec<Value> = parts.iter().map(|(column, _)| a[*column].clone()).collect();
        prop_assert_eq!(&spec.encode_values(&values).unwrap(), &ka);
        prop_assert_eq!(spec.decode(&ka).unwrap(), values.clone());
        prop_assert_eq!(spec.contains_null(&ra), values.iter().any(Value::is_null));
        for count in 0..values.len() {
            let prefix = spec.encode_values(&values[..count]).unwrap();
            prop_assert!(ka.starts_with(&prefix));
            prop_assert_eq!(spec.decode(&prefix).unwrap(), &values[..count]);
        }
        prop_assert_eq!(spec.columns(), &parts.iter().map(|(column, _)| *column).collect::<ColumnSet>());
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(
        (columns, _) in table(4, 1),
        bytes in prop::collection::vec(prop_oneof![0u8..3, 253u8.., any::<u8>()], 0..40),
        descending: bool,
    ) {
        let parts: Vec<(usize, bool)> = (0..columns.len()).map(|i| (i, descending)).collect();
        let (_, spec) = spec_of(&columns, &parts);
        let _ = spec.decode(&bytes).is_ok();
        prop_assert!(spec.display_key(&bytes).contains(['=', '\\']));
    }

    /// The builder of a program and the specification of an index write the same bytes.
    #[test]
    fn builder_agrees(
        v in any::<(bool, i16, i32, i64, f32, f64)>(),
        text in "[a\\x00é ]{0,40}",
        raw in prop::collection::vec(0u8..2, 0..40),
        scaled in -999_999i64..=999_999,
        wide in super::super::testing::mantissa(38),
        (date, micros, clock, id) in any::<(i32, i64, u32, [u8; 16])>(),
        span in super::super::testing::interval(),
        maybe in any::<Option<i32>>(),
        descending: bool,
    ) {
        let short = Type::Decimal { precision: 6, scale: 2 };
        let long = Type::Decimal { precision: 38, scale: 9 };
        let types = [
            Type::Boolean, Type::Int2, Type::Int4, Type::Int8, Type::Float4, Type::Float8, Type::Text, Type::Char(50),
            Type::Bytes, short, long, Type::Date, Type::Time, Type::Timestamp, Type::TimestampTz, Type::Interval,
            Type::Uuid,
        ];
        let mut columns: Vec<Column> = types.iter().enumerate().map(|(i, ty)| Column::new(format!("c{i}"), *ty)).collect();
        columns.push(Column::new("maybe", Type::Int4).nullable());
        let parts: Vec<(usize, bool)> = (0..columns.len()).map(|i| (i, descending)).collect();
        let (layout, spec) = spec_of(&columns, &parts);
        let (short, long) = (Decimal::new(scaled.into(), 2).unwrap(), Decimal::new(wide, 9).unwrap());
        let time = Time::from_micros(clock.into()).unwrap();
        let values: Vec<Value> = vec![
            v.0.into(), v.1.into(), v.2.into(), v.3.into(), v.4.into(), v.5.into(), text.as_str().into(),
            text.as_str().into(), raw.as_slice().into(), short.into(), long.into(), Date(date).into(), time.into(),
            Timestamp(micros).into(), TimestampTz(micros).into(), span.into(), Uuid(id).into(), maybe.into(),
        ];
        let build = |key: KeyBuf| key
            .bool(v.0).i16(v.1).i32(v.2).i64(v.3).f32(v.4).f64(v.5).str(&text).char(&text).bytes(&raw).dec(short, 6)
            .dec(long, 38).date(Date(date)).time(time).timestamp(Timestamp(micros)).timestamptz(TimestampTz(micros))
            .interval(span).uuid(Uuid(id)).nullable(maybe, KeyBuf::i32);
        let built = if descending { KeyBuf::new().descending(build) } else { build(KeyBuf::new()) };
        let (mut row, mut key) = (Vec::new(), KeyBuf::new().str("something else"));
        layout.encode(&values, &mut row).unwrap();
        spec.encode_row(&row, &mut key).unwrap();
        prop_assert_eq!(&built, &key);
        prop_assert_eq!(&built, &spec.encode_values(&values).unwrap());
        prop_assert_eq!(built.to_vec(), key.clone().to_vec());
    }
}

#[test]
fn floats_in_order() {
    let ascending =
        [f64::NEG_INFINITY, -1e300, -1.0, -f64::MIN_POSITIVE, 0.0, 5e-324, 1.0, f64::INFINITY, f64::NAN];
    for pair in ascending.windows(2) {
        assert!(KeyBuf::new().f64(pair[0]) < KeyBuf::new().f64(pair[1]), "{pair:?}");
        if pair.iter().all(|v| (*v as f32).abs() != 0.0) {
            assert!(KeyBuf::new().f32(pair[0] as f32) <= KeyBuf::new().f32(pair[1] as f32), "{pair:?}");
        }
    }
    assert_eq!(KeyBuf::new().f64(-0.0), KeyBuf::new().f64(0.0));
    assert_eq!(KeyBuf::new().f32(-f32::NAN), KeyBuf::new().f32(f32::NAN));
}

#[test]
fn chars_ignore_trailing_blanks() {
    let (layout, spec) = spec_of(&[Column::new("c", Type::Char(8))], &[(0, false)]);
    let mut row = Vec::new();
    layout.encode(&["ab  ".into()], &mut row).unwrap();
    assert!(spec.matches(&row, &KeyBuf::new().char("ab")));
    assert!(spec.matches(&row, &spec.encode_values(&["ab      ".into()]).unwrap()));
    assert_eq!(layout.str(&row, 0), Some("ab"));
}

#[test]
fn keys_have_a_limit() {
    let (layout, spec) = spec_of(&[Column::new("t", Type::Text)], &[(0, false)]);
    let (mut row, mut key) = (Vec::new(), KeyBuf::new());
    layout.encode(&["x".repeat(MAX_KEY_BYTES - 2).into()], &mut row).unwrap();
    spec.encode_row(&row, &mut key).unwrap();
    assert!(spec.matches(&row, &key));
    let text = "x".repeat(MAX_KEY_BYTES - 1);
    layout.encode(&[text.as_str().into()], &mut row).unwrap();
    let too_long = RowError::KeyTooLong { bytes: MAX_KEY_BYTES + 1 };
    assert_eq!(spec.encode_row(&row, &mut key), Err(too_long.clone()));
    assert_eq!(spec.encode_values(&[text.as_str().into()]), Err(too_long.clone()));
    assert_eq!(KeyBuf::new().str(&text).check_len(), Err(too_long));
}

#[test]
fn messages() {
    let columns = [Column::new("w_id", Type::Int4), Column::new("name", Type::Text).nullable()];
    let (_, spec) = spec_of(&columns, &[(0, false), (1, true)]);
    let key = spec.encode_values(&[7i32.into(), "o'x".into()]).unwrap();
    assert_eq!(spec.display_key(&key), "(w_id, name)=(7, 'o''x')");
    assert_eq!(spec.display_key(&key[..4]), "(w_id)=(7)");
    assert_eq!(spec.display_key(&key[..3]), "\\x800000");
    assert_eq!(spec.display_beginning(&key[..3]), "(w_id)=(0)");
    assert_eq!(spec.display_beginning(&key[..4]), "(w_id)=(7)");
    assert_eq!(spec.display_beginning(&key[..6]), "(w_id)=(7)", "zeros do not end a text that descends");
    assert_eq!(spec.display_beginning(&[&key[..], &[1, 2]].concat()), "(w_id, name)=(7, 'o''x')");
    let (_, text) = spec_of(&[Column::new("t", Type::Text)], &[(0, false)]);
    assert_eq!(text.display_beginning(b"ab"), "(t)=('ab')");
    assert_eq!(text.display_beginning(&[0xff]), "\\xff", "no text begins like that");
    let null = KeyBuf::new().i32(7).descending(KeyBuf::null);
    assert_eq!(spec.display_key(&null), "(w_id, name)=(7, null)");
    let errors = [
        spec.encode_values(&[Value::Null]).unwrap_err().sqlstate(),
        spec.encode_values(&[1i64.into()]).unwrap_err().sqlstate(),
        spec.encode_values(&[1i32.into(), Value::Null, Value::Null]).unwrap_err().sqlstate(),
    ];
    assert_eq!(errors, ["23502", "42804", "42601"]);
    let layout = Layout::new(&columns).unwrap();
    assert!(KeySpec::new(&layout, &[(2, false)]).is_err());
}
