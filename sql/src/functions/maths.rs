//! Arithmetic: integers that overflow with an error, floats with PostgreSQL's errors, numeric.

use super::casts::{float, int, numeric};
use crate::error::{Error, Result};
use crate::expr::Made;
use crate::expr::kernel::out_of_range;
use crate::types::numeric::division_by_zero;
use crate::types::{Datum, Numeric};

/// Units of sizes: their names, the least size that is shown in the next one, and the bits of the unit.
const SIZES: [(&str, i64, u32); 6] = [
    ("bytes", 10 * 1024, 0),
    ("kB", 20 * 1024 - 1, 10),
    ("MB", 20 * 1024 - 1, 20),
    ("GB", 20 * 1024 - 1, 30),
    ("TB", 20 * 1024 - 1, 40),
    ("PB", 20 * 1024 - 1, 50),
];

/// A number of bytes as a person reads it. It is halved once less than its unit says, and rounded in the end.
pub(super) fn size_pretty(a: &Datum) -> Made {
    let mut size = int(a);
    let mut bits = 0;
    for (place, (name, limit, unit)) in SIZES.iter().enumerate() {
        if place > 0 {
            let more = unit - 1 - bits;
            size /= 1 << more;
            bits += more;
        }
        if place + 1 == SIZES.len() || size.unsigned_abs() < limit.unsigned_abs() {
            let shown = if place == 0 { size } else { (size + if size < 0 { -1 } else { 1 }) / 2 };
            return Ok(Datum::text(format!("{shown} {name}")));
        }
    }
    unreachable!("the last unit takes all sizes")
}

pub(super) fn size_pretty_numeric(a: &Datum) -> Made {
    let size = numeric(a);
    if !size.is_finite() {
        return Ok(Datum::text(format!("{size} {}", SIZES[SIZES.len() - 1].0)));
    }
    if size.abs().compare(&Numeric::Small(SIZES[0].1, 0)).is_lt() {
        return Ok(Datum::text(format!("{size} bytes")));
    }
    let mut size = size.trunc(0);
    let mut bits = 0;
    for (place, (name, limit, unit)) in SIZES.iter().enumerate().skip(1) {
        let more = unit - 1 - bits;
        size = size.div_whole(&Numeric::Small(1 << more, 0))?;
        bits += more;
        if place + 1 == SIZES.len() || size.abs().compare(&Numeric::Small(*limit, 0)).is_lt() {
            let one = Numeric::Small(if size.signum() < 0 { -1 } else { 1 }, 0);
            let shown = size.add(&one)?.div_whole(&Numeric::Small(2, 0))?;
            return Ok(Datum::text(format!("{shown} {name}")));
        }
    }
    unreachable!("the last unit takes all sizes")
}

/// An integer of `WIDTH` bytes, or the error of one that does not fit.
#[inline]
fn fit<const WIDTH: u8>(value: Option<i64>) -> Made {
    match value {
        Some(value) => {
            let fits = match WIDTH {
                2 => i16::try_from(value).is_ok(),
                4 => i32::try_from(value).is_ok(),
                _ => true,
            };
            if fits { Ok(Datum::Int(value)) } else { Err(out_of_range(WIDTH)) }
        }
        None => Err(out_of_range(WIDTH)),
    }
}

pub(super) fn div<const WIDTH: u8>(a: &Datum, b: &Datum) -> Made {
    if int(b) == 0 {
        return Err(division_by_zero());
    }
    fit::<WIDTH>(int(a).checked_div(int(b)))
}

pub(super) fn rem(a: &Datum, b: &Datum) -> Made {
    if int(b) == 0 {
        return Err(division_by_zero());
    }
    Ok(Datum::Int(int(a).checked_rem(int(b)).unwrap_or(0)))
}

pub(super) fn neg<const WIDTH: u8>(a: &Datum) -> Made {
    fit::<WIDTH>(int(a).checked_neg())
}

pub(super) fn abs<const WIDTH: u8>(a: &Datum) -> Made {
    fit::<WIDTH>(int(a).checked_abs())
}

#[cold]
fn overflow() -> Error {
    Error::new("22003", "value out of range: overflow")
}

#[cold]
fn underflow() -> Error {
    Error::new("22003", "value out of range: underflow")
}

/// A result that is infinite though its arguments were not has overflowed.
pub(super) fn double(value: f64, a: &Datum, b: &Datum) -> Made {
    if value.is_infinite() && float(a).is_finite() && float(b).is_finite() {
        return Err(overflow());
    }
    Ok(Datum::Float(value))
}

pub(super) fn single(a: &Datum, b: &Datum, combine: fn(f32, f32) -> f32) -> Made {
    let value = f64::from(combine(float(a) as f32, float(b) as f32));
    double(value, a, b)
}

pub(super) fn mul_float(a: &Datum, b: &Datum) -> Made {
    let value = float(a) * float(b);
    if value == 0.0 && float(a) != 0.0 && float(b) != 0.0 {
        return Err(underflow());
    }
    double(value, a, b)
}

pub(super) fn mul_float4(a: &Datum, b: &Datum) -> Made {
    let value = float(a) as f32 * float(b) as f32;
    if value == 0.0 && float(a) != 0.0 && float(b) != 0.0 {
        return Err(underflow());
    }
    double(f64::from(value), a, b)
}

pub(super) fn div_float(a: &Datum, b: &Datum) -> Made {
    if float(b) == 0.0 && !float(a).is_nan() {
        return Err(division_by_zero());
    }
    let value = float(a) / float(b);
    if value == 0.0 && float(a) != 0.0 && float(b).is_finite() {
        return Err(underflow());
    }
    double(value, a, b)
}

pub(super) fn div_float4(a: &Datum, b: &Datum) -> Made {
    if float(b) == 0.0 && !float(a).is_nan() {
        return Err(division_by_zero());
    }
    let value = float(a) as f32 / float(b) as f32;
    if value == 0.0 && float(a) != 0.0 && float(b).is_finite() {
        return Err(underflow());
    }
    double(f64::from(value), a, b)
}

pub(super) fn power(a: &Datum, b: &Datum) -> Made {
    let (base, exponent) = (float(a), float(b));
    if base == 0.0 && exponent < 0.0 {
        return Err(Error::new("2201F", "zero raised to a negative power is undefined"));
    }
    if base < 0.0 && exponent.is_finite() && exponent.fract() != 0.0 {
        return Err(Error::new(
            "2201F",
            "a negative number raised to a non-integer power yields a complex result",
        ));
    }
    let value = base.powf(exponent);
    if value == 0.0 && base != 0.0 && base.is_finite() && exponent.is_finite() {
        return Err(underflow());
    }
    double(value, a, b)
}

pub(super) fn log10_numeric(a: &Datum) -> Made {
    Numeric::log(&Numeric::Small(10, 0), numeric(a)).map(Datum::Numeric)
}

pub(super) fn sqrt(a: &Datum) -> Made {
    if float(a) < 0.0 {
        return Err(Error::new("2201F", "cannot take square root of a negative number"));
    }
    Ok(Datum::Float(float(a).sqrt()))
}

pub(super) fn exp(a: &Datum) -> Made {
    let value = float(a).exp();
    if value.is_infinite() && float(a).is_finite() {
        return Err(overflow());
    }
    if value == 0.0 && float(a).is_finite() {
        return Err(underflow());
    }
    Ok(Datum::Float(value))
}

/// The logarithm by `log`, refused for what has none.
pub(super) fn logarithm(a: &Datum, log: fn(f64) -> f64) -> Made {
    let value = float(a);
    if value == 0.0 {
        return Err(Error::new("2201E", "cannot take logarithm of zero"));
    }
    if value < 0.0 {
        return Err(Error::new("2201E", "cannot take logarithm of a negative number"));
    }
    Ok(Datum::Float(log(value)))
}

/// A function that has a value only in a part of the line.
pub(super) fn bounded(a: &Datum, inside: fn(f64) -> bool, function: fn(f64) -> f64) -> Made {
    let value = float(a);
    if !value.is_nan() && !inside(value) {
        return Err(Error::new("22003", "input is out of range"));
    }
    Ok(Datum::Float(function(value)))
}

fn greatest_divisor(a: i64, b: i64) -> u64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

pub(super) fn gcd<const WIDTH: u8>(a: &Datum, b: &Datum) -> Made {
    fit::<WIDTH>(i64::try_from(greatest_divisor(int(a), int(b))).ok())
}

pub(super) fn lcm<const WIDTH: u8>(a: &Datum, b: &Datum) -> Made {
    let (a, b) = (int(a), int(b));
    if a == 0 || b == 0 {
        return Ok(Datum::Int(0));
    }
    let product = i128::from(a) / i128::from(greatest_divisor(a, b)) * i128::from(b);
    fit::<WIDTH>(i64::try_from(product.abs()).ok())
}

/// Digits as an `int4` argument has them.
fn digits(b: &Datum) -> i32 {
    i32::try_from(int(b)).unwrap_or(0)
}

pub(super) fn round_to(a: &Datum, b: &Datum) -> Made {
    Ok(Datum::Numeric(numeric(a).round(digits(b).clamp(-2000, 2000))))
}

pub(super) fn trunc_to(a: &Datum, b: &Datum) -> Made {
    Ok(Datum::Numeric(numeric(a).trunc(digits(b).clamp(-2000, 2000))))
}

pub(super) fn sign(a: &Datum) -> Made {
    let number = numeric(a);
    Ok(Datum::Numeric(if number.is_nan() { Numeric::NaN } else { Numeric::Small(number.signum(), 0) }))
}

/// `width_bucket(value, low, high, count)`
pub(super) fn width_bucket(args: &[Datum]) -> Result<Datum> {
    let (value, low, high, count) = (float(&args[0]), float(&args[1]), float(&args[2]), int(&args[3]));
    let bad = |message: &str| Err(Error::new("2201G", message));
    if count <= 0 {
        return bad("count must be greater than zero");
    }
    if value.is_nan() || low.is_nan() || high.is_nan() {
        return bad("operand, lower bound, and upper bound cannot be NaN");
    }
    if low == high {
        return bad("lower bound cannot equal upper bound");
    }
    let (from, to, at) = if low < high { (low, high, value) } else { (-low, -high, -value) };
    Ok(Datum::Int(if at < from {
        0
    } else if at >= to {
        count + 1
    } else {
        ((count as f64 * (at - from) / (to - from)) as i64).min(count - 1) + 1
    }))
}
