//! Tests of decimals, against arbitrary-precision integers.

use std::hash::{BuildHasher, RandomState};

use num_bigint::{BigInt, Sign};
use proptest::prelude::*;

use super::super::testing::mantissa;
use super::*;

fn any_decimal() -> impl Strategy<Value = Decimal> {
    // Short ones, of which many are halfway between two others, and those around the edges of 64 bits.
    let any = (mantissa(38), 0..=MAX_SCALE);
    let short = (mantissa(2), 0..=3u8);
    let edge = (
        (-2i128..3, prop::sample::select(vec![1i128 << 63, -(1 << 63)])).prop_map(|(d, e)| d + e),
        0..=MAX_SCALE,
    );
    prop_oneof![2 => any, 2 => short, 1 => edge].prop_map(|(m, scale)| Decimal::new(m, scale).unwrap())
}

fn ten(exponent: u32) -> BigInt {
    BigInt::from(10).pow(exponent)
}

/// The mantissa of `d` at a greater scale.
fn big(d: Decimal, scale: u8) -> BigInt {
    BigInt::from(d.mantissa()) * ten(u32::from(scale - d.scale()))
}

fn round_div(dividend: &BigInt, divisor: &BigInt) -> BigInt {
    let negative = (dividend.sign() == Sign::Minus) != (divisor.sign() == Sign::Minus);
    let (a, b) = (BigInt::from(dividend.magnitude().clone()), BigInt::from(divisor.magnitude().clone()));
    let rounded: BigInt = (&a * 2 + &b) / (&b * 2);
    if negative { -rounded } else { rounded }
}

/// What an operation must return whose exact result is `mantissa / 10^scale`.
fn expected(mantissa: &BigInt, scale: u8) -> Result<(String, u8), DecimalError> {
    if mantissa.magnitude() >= ten(38).magnitude() {
        return Err(DecimalError::Overflow);
    }
    Ok((mantissa.to_string(), scale))
}

fn shown(result: Result<Decimal, DecimalError>) -> Result<(String, u8), DecimalError> {
    result.map(|d| (d.mantissa().to_string(), d.scale()))
}

proptest! {
    #[test]
    fn sums_are_exact(a in any_decimal(), b in any_decimal()) {
        let scale = a.scale().max(b.scale());
        prop_assert_eq!(shown(a.checked_add(b)), expected(&(big(a, scale) + big(b, scale)), scale));
        prop_assert_eq!(shown(a.checked_sub(b)), expected(&(big(a, scale) - big(b, scale)), scale));
    }

    #[test]
    fn products_are_rounded_once(a in any_decimal(), b in any_decimal(), scale in prop_oneof![0..=MAX_SCALE, 0..=2u8]) {
        let natural = a.scale() + b.scale();
        let product = BigInt::from(a.mantissa()) * BigInt::from(b.mantissa());
        let at = |scale: u8| {
            if scale >= natural {
                product.clone() * ten(u32::from(scale - natural))
            } else {
                round_div(&product, &ten(u32::from(natural - scale)))
            }
        };
        prop_assert_eq!(shown(a.checked_mul_to(b, scale)), expected(&at(scale), scale));
        let most = natural.min(MAX_SCALE);
        prop_assert_eq!(shown(a.checked_mul(b)), expected(&at(most), most));
    }

    #[test]
    fn quotients_are_rounded_once(a in any_decimal(), b in any_decimal(), scale in prop_oneof![0..=MAX_SCALE, 0..=2u8]) {
        if b.is_zero() {
            prop_assert_eq!(a.checked_div(b, scale), Err(DecimalError::DivisionByZero));
            prop_assert_eq!(a.checked_rem(b), Err(DecimalError::DivisionByZero));
            return Ok(());
        }
        let dividend = BigInt::from(a.mantissa()) * ten(u32::from(scale + b.scale()));
        let divisor = BigInt::from(b.mantissa()) * ten(u32::from(a.scale()));
        prop_assert_eq!(shown(a.checked_div(b, scale)), expected(&round_div(&dividend, &divisor), scale));
        let common = a.scale().max(b.scale());
        prop_assert_eq!(shown(a.checked_rem(b)), expected(&(big(a, common) % big(b, common)), common));
    }

    #[test]
    fn rescaling_rounds_half_away_from_zero(a in any_decimal(), scale in prop_oneof![0..=MAX_SCALE, 0..=2u8], before in 0u8..=40) {
        let exact = if scale >= a.scale() {
            big(a, scale)
        } else {
            round_div(&a.mantissa().into(), &ten(u32::from(a.scale() - scale)))
        };
        prop_assert_eq!(shown(a.rescale(scale)), expected(&exact, scale));
        let unit = ten(u32::from(before));
        let rounded = round_div(&a.mantissa().into(), &(ten(u32::from(a.scale())) * &unit)) * unit;
        prop_assert_eq!(shown(a.round(-(before as i8))), expected(&rounded, if before == 0 { a.rescale(0).unwrap().scale() } else { 0 }));
    }

    #[test]
    fn order_is_that_of_the_values(a in any_decimal(), b in any_decimal(), zeros in 0u8..4) {
        prop_assert_eq!(a.cmp(&b), big(a, 38).cmp(&big(b, 38)));
        let hasher = RandomState::new();
        if let Ok(longer) = a.rescale((a.scale() + zeros).min(MAX_SCALE)) {
            prop_assert_eq!(longer, a);
            prop_assert_eq!(hasher.hash_one(longer), hasher.hash_one(a));
        }
    }

    #[test]
    fn text_round_trips(a in any_decimal()) {
        let read: Decimal = a.to_string().parse().unwrap();
        prop_assert_eq!((read.mantissa(), read.scale()), (a.mantissa(), a.scale()));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[-+]?[0-9]{0,45}[.]?[0-9]{0,45}(e[-+]?[0-9]{1,3})?") {
        if let Ok(read) = text.parse::<Decimal>() {
            let float: f64 = text.parse().unwrap();
            prop_assert!((read.to_f64() - float).abs() <= float.abs() * 1e-15);
        }
    }

    #[test]
    fn floats_keep_their_digits(v in any::<i32>(), exponent in -20i32..20) {
        let float: f64 = format!("{v}e{exponent}").parse().unwrap();
        prop_assert_eq!(Decimal::from_f64(float).unwrap().to_f64(), float);
    }
}

#[test]
fn texts() {
    for (text, mantissa, scale) in [
        ("0", 0, 0),
        ("-0.00", 0, 2),
        ("+12.50", 1250, 2),
        (".5", 5, 1),
        ("5.", 5, 0),
        ("1.5e3", 1500, 0),
        ("1.5E-3", 15, 4),
        ("000000000000000000000000000000000000000000001", 1, 0),
        ("0e99", 0, 0),
    ] {
        let read: Decimal = text.parse().unwrap();
        assert_eq!((read.mantissa(), read.scale()), (mantissa, scale), "{text}");
    }
    for text in ["", "-", ".", "e5", "1e", "1.2.3", "0x1", "NaN", "Infinity", " 1", "1 ", "--1", "1_000"] {
        assert_eq!(text.parse::<Decimal>(), Err(DecimalError::Syntax), "{text}");
    }
    let nines = "9".repeat(38);
    assert_eq!(nines.parse::<Decimal>().unwrap().mantissa(), POW10[38] - 1);
    assert_eq!(format!("0.{nines}").parse::<Decimal>().unwrap().to_string(), format!("0.{nines}"));
    for text in
        [format!("{nines}0"), format!("0.{nines}1"), "1e38".into(), "1e-39".into(), format!("1{nines}")]
    {
        assert_eq!(text.parse::<Decimal>(), Err(DecimalError::Overflow), "{text}");
    }
    assert_eq!(format!("{:>8}|{:<6}|{:08.3}", d("-1.5"), d("2.50"), d("-3.25")), "    -1.5|2.50  |-0003.25");
}

fn d(text: &str) -> Decimal {
    text.parse().unwrap()
}

#[test]
fn rounding() {
    assert_eq!(d("2.5").round(0).unwrap().to_string(), "3");
    assert_eq!(d("-2.5").round(0).unwrap().to_string(), "-3");
    assert_eq!(d("-0.5").checked_mul_to(d("0.5"), 1).unwrap().to_string(), "-0.3");
    assert_eq!(d("1").checked_div(d("-8"), 2).unwrap().to_string(), "-0.13");
    assert_eq!(d("1250").round(-2).unwrap().to_string(), "1300");
    assert_eq!(d("-49.9").round(-2).unwrap().to_string(), "0");
    assert_eq!(d("1").checked_div(d("3"), 5).unwrap().to_string(), "0.33333");
    assert_eq!(d("7.5").checked_rem(d("-2")).unwrap().to_string(), "1.5");
    assert_eq!(d("1.10").rescale_exact(1), Ok(Some(d("1.1"))));
    assert_eq!(d("1.11").rescale_exact(1), Ok(None));
    assert_eq!(Decimal::from_f64(0.1).unwrap().to_string(), "0.1");
    assert_eq!(Decimal::from_f64(f64::NAN), Err(DecimalError::Overflow));
}
