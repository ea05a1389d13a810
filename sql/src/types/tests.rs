//! Text to values and back.

use proptest::prelude::*;

use super::{Datum, Local, NO_MOD, Numeric, Type, Zone, text};

fn there_and_back(value: &Datum, ty: Type) {
    let shown = text::show(value, ty, &Zone::UTC);
    let read =
        text::input(&shown, ty, NO_MOD, &Local::default()).unwrap_or_else(|error| panic!("{shown}: {error}"));
    assert_eq!(&read, value, "{shown}");
    assert_eq!(text::show(&read, ty, &Zone::UTC), shown);
}

/// Pieces of texts of values, in any order: signs, words and digits, among them characters of more than a byte.
fn words() -> impl Strategy<Value = String> {
    let words = [
        "P",
        "p",
        "T",
        "t",
        "Y",
        "m",
        "d",
        "h",
        "s",
        "w",
        "-",
        "+",
        ":",
        ".",
        ",",
        " ",
        "\t",
        "/",
        "\\",
        "\"",
        "'",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        "NULL",
        "null",
        "true",
        "e",
        "E",
        "0",
        "1",
        "9",
        "12",
        "2024",
        "99999999999",
        "0x",
        "x",
        "NaN",
        "infinity",
        "now",
        "today",
        "BC",
        "AD",
        "epoch",
        "Z",
        "UTC",
        "Europe/Paris",
        "interval",
        "month",
        "mons",
        "January",
        "Mon",
        "day",
        "AM",
        "PM",
        "ago",
        "@",
        "é",
        "౩",
        "٣",
        "\u{1f600}",
        "ß",
        "İ",
        "\u{0}",
        "\u{a0}",
        "\u{7f}",
        "::",
        "\\x",
        "\\u",
        "$",
        "%",
        "=",
        "=>",
        "<",
        "|",
    ];
    prop::collection::vec(prop::sample::select(words.to_vec()), 0..10).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn integers_and_floats(int: i64, float: f64, single: f32) {
        there_and_back(&Datum::Int(int), Type::Int8);
        there_and_back(&Datum::Float(float), Type::Float8);
        there_and_back(&Datum::Float(f64::from(single)), Type::Float4);
    }

    #[test]
    fn numerics(mantissa: i128, scale in 0u16..40) {
        there_and_back(&Datum::Numeric(Numeric::from_i128(mantissa, scale)), Type::Numeric);
    }

    #[test]
    fn dates_and_times(days in -2_440_588i32..2_145_031_949, micros in 0i64..=86_400_000_000, at in -200_000_000_000_000_000i64..9_000_000_000_000_000_000) {
        there_and_back(&Datum::Date(days), Type::Date);
        there_and_back(&Datum::Time(micros), Type::Time);
        there_and_back(&Datum::Timestamp(at), Type::Timestamp);
        there_and_back(&Datum::Timestamp(at), Type::TimestampTz);
    }

    #[test]
    fn intervals(months in -120_000i32..120_000, days in -100_000i32..100_000, micros in -900_000_000_000_000i64..900_000_000_000_000) {
        let value = Datum::Interval(thermocline_row::Interval::new(months, days, micros));
        let shown = text::show(&value, Type::Interval, &Zone::UTC);
        let Datum::Interval(read) = text::input(&shown, Type::Interval, NO_MOD, &Local::default()).expect("it reads") else {
            panic!("an interval")
        };
        prop_assert_eq!((read.months, read.days, read.micros), (months, days, micros), "{}", shown);
    }

    #[test]
    fn bytes_and_uuids(bytes: Vec<u8>, uuid: [u8; 16]) {
        there_and_back(&Datum::Bytes(bytes.into()), Type::Bytea);
        there_and_back(&Datum::Uuid(uuid), Type::Uuid);
    }

    /// Sums, differences, products and rests against integers of 128 bits.
    #[test]
    fn arithmetic_of_numerics(a: i64, b: i64, sa in 0u16..6, sb in 0u16..6) {
        let (x, y) = (Numeric::Small(a, sa), Numeric::Small(b, sb));
        let product = x.mul(&y).expect("it fits");
        prop_assert_eq!(product.to_i128(), Some((i128::from(a) * i128::from(b), sa + sb)));
        let scale = sa.max(sb);
        let at = |value: i64, from: u16| i128::from(value) * 10i128.pow(u32::from(scale - from));
        let sum = x.add(&y).expect("it fits");
        prop_assert_eq!(sum.to_i128(), Some((at(a, sa) + at(b, sb), scale)));
        if b != 0 {
            prop_assert_eq!(x.rem(&y).expect("it fits").to_i128(), Some((at(a, sa) % at(b, sb), scale)));
            // The quotient times the divisor is off by less than half a unit of the quotient's last digit times it.
            let quotient = x.div(&y).expect("it fits");
            let off = x.sub(&quotient.mul(&y).expect("it fits")).expect("it fits").abs();
            let unit = Numeric::Small(5, quotient.scale() + 1).mul(&y.abs()).expect("it fits");
            prop_assert!(off.compare(&unit).is_le(), "{} / {} = {}", x, y, quotient);
        }
        prop_assert_eq!(x.compare(&y), at(a, sa).cmp(&at(b, sb)));
    }

    /// No text ends the process, whatever type it is read as.
    #[test]
    fn any_text(text in prop_oneof!["\\PC{0,24}", "[-+0-9:./ eT]{0,24}", words()]) {
        for oid in 1..4000 {
            if let Some(ty) = Type::from_oid(oid) {
                let _ = text::input(&text, ty, NO_MOD, &Local::default());
            }
        }
    }
}
