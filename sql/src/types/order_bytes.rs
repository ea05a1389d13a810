//! Values as bytes that compare as the values do.
//!
//! | value | bytes |
//! |---|---|
//! | boolean; integer, date, time, timestamp; uuid | a byte; 8 bytes, the sign bit flipped; its bytes |
//! | float | 8 bytes: negative ones inverted, others with the sign bit set; -0 as 0, NaN as the greatest |
//! | numeric | a class (−∞, negative, 0, positive, ∞, NaN); of finite ones the number of digits before the point, 19 digits as an integer, further digits a byte each, an end; inverted where it is negative |
//! | text, bytea, `char(n)` without blanks at its end | the bytes, `00` as `00 FF`; then `00 00` |
//! | interval | its span in microseconds, 16 bytes as an integer |
//! | array, row value | each value behind a 1, or a 2 for null; then 0 |
//! | jsonb | the rank of its kind, then what compares within the kind; of arrays and objects their number of elements first |
//!
//! No value's bytes are the beginning of another's of the same type, so values may stand one behind the other. Equal values have equal
//! bytes, whatever their scale or blanks. Of booleans, what counts like integers, uuids, texts and byte strings they give the value back.

use std::borrow::Cow;

use super::datum::{span, without_blanks};
use super::{Datum, Numeric, json};

/// Digits of a number that stand in one integer.
const DIGITS: u32 = 19;

/// Appends a value that is not null.
pub(crate) fn write(value: &Datum, to: &mut Vec<u8>) {
    match value {
        Datum::Null => unreachable!("a null has a mark of its own"),
        Datum::Bool(value) => to.push(u8::from(*value)),
        Datum::Int(value) | Datum::Time(value) | Datum::Timestamp(value) => write_int(*value, to),
        Datum::Date(value) => write_int(i64::from(*value), to),
        Datum::Float(value) => write_float(*value, to),
        Datum::Numeric(value) => write_numeric(value, to),
        Datum::Text(text) => write_bytes(text.as_bytes(), to),
        Datum::Char(text) => write_bytes(without_blanks(text).as_bytes(), to),
        Datum::Bytes(bytes) => write_bytes(bytes, to),
        Datum::Interval(value) => to.extend(((span(*value) as u128) ^ (1 << 127)).to_be_bytes()),
        Datum::Uuid(value) => to.extend(value),
        Datum::Jsonb(text) => json::write_order(text, to),
        Datum::Record(values) => write_all(values, to),
        Datum::Array(values) => write_all(values, to),
    }
}

fn write_all(values: &[Datum], to: &mut Vec<u8>) {
    for value in values {
        // Nulls are last.
        to.push(if value.is_null() { 2 } else { 1 });
        if !value.is_null() {
            write(value, to);
        }
    }
    to.push(0);
}

/// Appends what stands in 64 bits.
#[inline]
pub(crate) fn write_int(value: i64, to: &mut Vec<u8>) {
    to.extend_from_slice(&(value as u64 ^ 1 << 63).to_be_bytes());
}

fn write_float(value: f64, to: &mut Vec<u8>) {
    let bits = match value {
        nan if nan.is_nan() => u64::MAX,
        0.0 => 1 << 63,
        value if value.is_sign_negative() => !value.to_bits(),
        value => value.to_bits() | 1 << 63,
    };
    to.extend_from_slice(&bits.to_be_bytes());
}

/// Appends a string.
pub(crate) fn write_bytes(bytes: &[u8], to: &mut Vec<u8>) {
    if bytes.contains(&0) {
        for byte in bytes {
            to.push(*byte);
            if *byte == 0 {
                to.push(0xFF);
            }
        }
    } else {
        to.extend_from_slice(bytes);
    }
    to.extend_from_slice(&[0, 0]);
}

pub(super) fn write_numeric(value: &Numeric, to: &mut Vec<u8>) {
    let begin = to.len();
    let is_negative = match value {
        Numeric::Infinity(false) => return to.push(0),
        Numeric::Infinity(true) => return to.push(4),
        Numeric::NaN => return to.push(5),
        Numeric::Small(0, _) => return to.push(2),
        Numeric::Small(mantissa, scale) => {
            let digits = mantissa.unsigned_abs();
            let count = digits.ilog10() + 1;
            to.push(if *mantissa < 0 { 1 } else { 3 });
            write_point(i64::from(count) - i64::from(*scale), to);
            // An i64 has 19 digits at the most.
            to.extend_from_slice(&(digits * 10_u64.pow(DIGITS - count)).to_be_bytes());
            *mantissa < 0
        }
        Numeric::Big(big) => {
            let (mantissa, scale) = &**big;
            let shown = mantissa.magnitude().to_string();
            let digits = shown.trim_end_matches('0');
            if digits.is_empty() {
                return to.push(2);
            }
            let is_negative = mantissa.sign() == num_bigint::Sign::Minus;
            to.push(if is_negative { 1 } else { 3 });
            write_point(shown.len() as i64 - i64::from(*scale), to);
            let first: u64 = digits
                .bytes()
                .chain(std::iter::repeat(b'0'))
                .take(DIGITS as usize)
                .fold(0, |first, digit| first * 10 + u64::from(digit - b'0'));
            to.extend_from_slice(&first.to_be_bytes());
            to.extend(digits.bytes().skip(DIGITS as usize));
            is_negative
        }
    };
    to.push(0);
    if is_negative {
        to[begin + 1..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// The number of digits before the point, negative where zeros follow it.
fn write_point(digits: i64, to: &mut Vec<u8>) {
    // A number has some hundred thousand digits at the most.
    to.extend_from_slice(&(digits as i32 as u32 ^ 1 << 31).to_be_bytes());
}

/// Takes the bytes of a value of so many, which were inverted if it descends.
pub(crate) fn read_array<const N: usize>(from: &mut &[u8], descending: bool) -> [u8; N] {
    let (bytes, rest) = from.split_first_chunk().expect("the value was written");
    *from = rest;
    if descending { bytes.map(|byte| !byte) } else { *bytes }
}

/// Reads what [`write_int`] has written.
pub(crate) fn read_int(from: &mut &[u8], descending: bool) -> i64 {
    (u64::from_be_bytes(read_array(from, descending)) ^ 1 << 63) as i64
}

/// Reads what [`write_bytes`] has written.
pub(crate) fn read_bytes<'b>(from: &mut &'b [u8], descending: bool) -> Cow<'b, [u8]> {
    let (bytes, zero) = (*from, if descending { 0xFF } else { 0 });
    // Zeros that are no end, and the end.
    let (mut escaped, mut end) = (false, 0);
    loop {
        end += bytes[end..].iter().position(|byte| *byte == zero).expect("the value has an end");
        if bytes[end + 1] == zero {
            break;
        }
        escaped = true;
        end += 2;
    }
    *from = &bytes[end + 2..];
    if !escaped && !descending {
        return Cow::Borrowed(&bytes[..end]);
    }
    let (mut read, mut rest) = (Vec::with_capacity(end), &bytes[..end]);
    while let Some((byte, behind)) = rest.split_first() {
        read.push(if descending { !*byte } else { *byte });
        rest = if *byte == zero { &behind[1..] } else { behind };
    }
    Cow::Owned(read)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use thermocline_row::Interval;

    use super::*;
    use crate::types::Record;

    fn bytes(value: &Datum) -> Vec<u8> {
        let mut to = Vec::new();
        write(value, &mut to);
        to
    }

    fn numeric() -> impl Strategy<Value = Numeric> {
        prop_oneof![
            3 => (any::<i64>(), 0..25_u16).prop_map(|(mantissa, scale)| Numeric::Small(mantissa, scale)),
            3 => (-50..50_i64, 0..4_u16).prop_map(|(mantissa, scale)| Numeric::Small(mantissa, scale)),
            2 => (any::<i128>(), 0..45_u16).prop_map(|(mantissa, scale)| Numeric::from_i128(mantissa, scale)),
            1 => (-9..9_i64, 0..9_u32).prop_map(|(digit, zeros)| {
                // The same numbers with more and less zeros at their ends.
                Numeric::from_i128(i128::from(digit) * 10_i128.pow(zeros + 15), 15 + zeros as u16 / 2)
            }),
            1 => "[1-9][0-9]{40,60}(\\.[0-9]{0,9})?".prop_map(|text| Numeric::parse(&text).expect("a number")),
            1 => prop::sample::select(vec![Numeric::NaN, Numeric::Infinity(true), Numeric::Infinity(false)]),
        ]
    }

    fn json() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            Just("true".to_owned()),
            Just("false".to_owned()),
            (-30..30_i32).prop_map(|number| number.to_string()),
            prop::sample::select(vec!["1.0", "1.00", "1e2", "100", "0.5", "-0"]).prop_map(str::to_owned),
            "[a-c]{0,3}".prop_map(|text| format!("\"{text}\"")),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3)
                    .prop_map(|items| format!("[{}]", items.join(", "))),
                prop::collection::btree_map("[a-c]{1,2}", inner, 0..3).prop_map(|fields| {
                    let fields: Vec<String> =
                        fields.iter().map(|(key, value)| format!("\"{key}\": {value}")).collect();
                    format!("{{{}}}", fields.join(", "))
                }),
            ]
        })
    }

    /// Values of one type, drawn close to each other.
    fn values() -> impl Strategy<Value = Vec<Datum>> {
        fn some<T: std::fmt::Debug + 'static>(
            one: impl Strategy<Value = T> + 'static,
            make: fn(T) -> Datum,
        ) -> BoxedStrategy<Vec<Datum>> {
            prop::collection::vec(one.prop_map(make).boxed(), 2..6).boxed()
        }
        let floats = prop::sample::select(vec![
            0.0,
            -0.0,
            f64::NAN,
            -f64::NAN,
            f64::INFINITY,
            -1.5,
            1.5,
            f64::MIN_POSITIVE,
        ]);
        let texts = || "[\\x00ab ]{0,4}";
        prop_oneof![
            some(any::<bool>(), Datum::Bool),
            some(any::<i64>(), Datum::Int),
            some(-3..3_i64, Datum::Int),
            some(any::<i32>(), Datum::Date),
            some(prop_oneof![floats, any::<f64>()], Datum::Float),
            some(numeric(), Datum::Numeric),
            some(texts(), |text| Datum::Text(text.into())),
            some(texts(), |text| Datum::Char(text.into())),
            some(prop::collection::vec(0..3_u8, 0..5), |bytes| Datum::Bytes(bytes.into())),
            some((-2..2_i32, -60..60_i32, any::<i32>()), |(months, days, micros)| {
                Datum::Interval(Interval::new(months, days, i64::from(micros) * 1_000_000))
            }),
            some(any::<[u8; 16]>(), Datum::Uuid),
            some(json(), |text| Datum::Jsonb(text.into())),
            some(prop::collection::vec(prop::option::of(-2..2_i64), 0..4), |items| {
                Datum::Array(items.into_iter().map(|item| item.map_or(Datum::Null, Datum::Int)).collect())
            }),
            some((prop::option::of(texts()), numeric()), |(text, number)| {
                let text = text.map_or(Datum::Null, |text| Datum::Text(text.into()));
                Datum::Record(Record::bare(vec![text, Datum::Numeric(number)]))
            }),
        ]
    }

    proptest! {
        #[test]
        fn bytes_give_values_back(
            int in any::<i64>(),
            bytes in prop::collection::vec(prop::sample::select(vec![0, 1, 0xFE, 0xFF]), 0..6),
            descending in any::<bool>(),
        ) {
            let mut written = Vec::new();
            write_int(int, &mut written);
            write_bytes(&bytes, &mut written);
            if descending {
                written.iter_mut().for_each(|byte| *byte = !*byte);
            }
            written.push(7);
            let mut from = &written[..];
            prop_assert_eq!(read_int(&mut from, descending), int);
            let read = read_bytes(&mut from, descending);
            prop_assert_eq!(&read[..], &bytes[..]);
            prop_assert_eq!(from, [7]);
        }

        #[test]
        fn bytes_compare_as_values_do(values in values(), more in any::<bool>()) {
            for a in &values {
                for b in &values {
                    prop_assert_eq!(bytes(a).cmp(&bytes(b)), a.compare(b), "{:?} and {:?}", a, b);
                    // Another value may stand behind.
                    let (mut left, mut right) = (bytes(a), bytes(b));
                    left.push(u8::from(more));
                    right.push(u8::from(!more));
                    let then = a.compare(b).then(more.cmp(&!more));
                    prop_assert_eq!(left.cmp(&right), then, "{:?} and {:?}, and more", a, b);
                }
            }
        }
    }
}
