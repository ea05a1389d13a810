//! Exponentials, logarithms and powers of `numeric`, with PostgreSQL's scales (`numeric.c`).
//!
//! The scale of a result comes from an estimate of its weight, so that at least 16 digits are significant. The value is computed
//! with whole numbers that stand for multiples of 2^-bits, with enough bits that the last digit of the result is right: the
//! exponential by its series of a halved argument, which is then squared; the logarithm by that of the inverse hyperbolic
//! tangent.

use num_bigint::{BigInt, Sign};

use super::{Numeric, divide_rounded, overflow, ten_to};
use crate::error::{Error, Result};

/// Significant digits of a result, at least (`NUMERIC_MIN_SIG_DIGITS`).
const SIGNIFICANT: i64 = 16;
/// Most digits behind the point of a result (`NUMERIC_MAX_DISPLAY_SCALE`).
const MOST_SCALE: i64 = 1000;
/// Most digits that a result has on either side of the point (`NUMERIC_MAX_RESULT_SCALE`).
const MOST_RESULT: f64 = 2000.0;
/// Most digits before the point of a number, and a few.
const MOST_WEIGHT: f64 = 131_072.0;
const LOG10_E: f64 = std::f64::consts::LOG10_E;
/// Bits that are computed beyond those of the result.
const GUARD_BITS: u64 = 64;

/// The scale of a result of this decimal weight, which is not less than the arguments' scales.
fn scale_of(weight: i64, arguments: &[&Numeric]) -> u16 {
    let least = arguments.iter().map(|number| i64::from(number.scale())).max().unwrap_or(0);
    (SIGNIFICANT - weight).max(least).clamp(0, MOST_SCALE) as u16
}

fn bits_of(digits: i64) -> u64 {
    (digits.max(0) as u64) * 3322 / 1000 + GUARD_BITS
}

/// A number as a multiple of 2^-bits.
fn fixed(number: &Numeric, bits: u64) -> BigInt {
    divide_rounded(&(number.mantissa() << bits), &ten_to(u32::from(number.scale())))
}

/// A multiple of 2^-bits, rounded to so many digits behind the point.
fn rounded(value: &BigInt, bits: u64, scale: u16) -> Numeric {
    let raised = value * ten_to(u32::from(scale));
    Numeric::from_big(divide_rounded(&raised, &(BigInt::from(1) << bits)), scale)
}

/// `e^x`, of multiples of 2^-bits; `x` is not negative.
fn exp_fixed(x: &BigInt, bits: u64) -> BigInt {
    // Halved until it is small, and a series then: as many of one as of the other.
    let whole = (x >> bits).bits();
    let halvings = whole + (bits as f64).sqrt() as u64 + 1;
    let inner = bits + 2 * halvings + GUARD_BITS;
    let x = (x << (inner - bits)) >> halvings;
    let one = BigInt::from(1) << inner;
    let (mut sum, mut term, mut place) = (one.clone(), one, 1u32);
    loop {
        term = ((&term * &x) >> inner) / place;
        if term == BigInt::ZERO {
            break;
        }
        sum += &term;
        place += 1;
    }
    for _ in 0..halvings {
        sum = (&sum * &sum) >> inner;
    }
    sum >> (inner - bits)
}

/// `2 artanh(above / below)`, as a multiple of 2^-bits.
fn log_ratio(above: &BigInt, below: &BigInt, bits: u64) -> BigInt {
    // Shifts round down: a negative power would never come to zero.
    if above.sign() == Sign::Minus {
        return -log_ratio(&-above, below, bits);
    }
    let z = (above << bits) / below;
    let square = (&z * &z) >> bits;
    let (mut sum, mut power, mut place) = (BigInt::ZERO, z, 1u32);
    while power != BigInt::ZERO {
        sum += &power / place;
        power = (&power * &square) >> bits;
        place += 2;
    }
    sum * 2
}

/// The natural logarithm of a positive number, as a multiple of 2^-bits.
fn ln_fixed(number: &Numeric, bits: u64) -> BigInt {
    let inner = bits + GUARD_BITS;
    let (mut above, mut below) = (number.mantissa(), ten_to(u32::from(number.scale())));
    // A power of two is taken out, so that the rest is near one.
    let twos = above.bits() as i64 - below.bits() as i64;
    if twos >= 0 {
        below <<= twos as u64;
    } else {
        above <<= twos.unsigned_abs();
    }
    let rest = log_ratio(&(&above - &below), &(&above + &below), inner);
    let two = log_ratio(&BigInt::from(1), &BigInt::from(3), inner);
    (rest + two * twos) >> GUARD_BITS
}

impl Numeric {
    /// The first digits in base 10,000 and the decimal weight of the last of them.
    fn leading(&self, most: usize) -> (f64, i64) {
        let digits = self.mantissa().magnitude().to_string();
        let (weight, _) = self.weight();
        let before = digits.len() as i64 - i64::from(self.scale());
        let first = (before - weight * 4) as usize;
        let significant = digits.trim_end_matches('0').len().max(1);
        // Whole groups of four, as many as the number has.
        let groups = significant.saturating_sub(first).div_ceil(4).min(most - 1);
        let head: String = digits.chars().chain(std::iter::repeat('0')).take(first + 4 * groups).collect();
        (head.parse().unwrap_or(0.0), (weight - groups as i64) * 4)
    }

    /// The decimal weight of the logarithm (`estimate_ln_dweight`).
    fn ln_weight(&self) -> i64 {
        if self.signum() <= 0 {
            return 0;
        }
        let tenth = Self::Small(1, 1);
        let one = Self::Small(1, 0);
        let Ok(from_one) = self.sub(&one) else { return 0 };
        if from_one.abs().compare(&tenth).is_le() {
            if from_one.is_zero() {
                return 0;
            }
            let (weight, first) = from_one.weight();
            return weight * 4 + (first as f64).log10() as i64;
        }
        let (head, weight) = self.leading(2);
        let ln = head.ln() + weight as f64 * std::f64::consts::LN_10;
        ln.abs().log10() as i64
    }

    /// `e` to this power.
    pub(crate) fn exp(&self) -> Result<Self> {
        match self {
            Self::NaN | Self::Infinity(true) => return Ok(self.clone()),
            Self::Infinity(false) => return Ok(Self::ZERO),
            _ => {}
        }
        let value = self.to_f64().unwrap_or(if self.signum() < 0 { f64::MIN } else { f64::MAX });
        let weight = (value * LOG10_E).clamp(-MOST_RESULT, MOST_RESULT);
        self.exp_to(scale_of(weight as i64, &[self]))
    }

    /// The same with this scale.
    fn exp_to(&self, scale: u16) -> Result<Self> {
        let value = self.to_f64().unwrap_or(if self.signum() < 0 { f64::MIN } else { f64::MAX });
        if value.abs() >= MOST_RESULT * 3.0 {
            return if value > 0.0 { Err(overflow()) } else { Ok(Self::Small(0, scale)) };
        }
        let bits = bits_of(i64::from(scale) + (value.abs() * LOG10_E) as i64 + 8);
        let raised = exp_fixed(&fixed(&self.abs(), bits), bits);
        if self.signum() < 0 {
            let inverse = (BigInt::from(1) << (2 * bits)) / raised;
            return Ok(rounded(&inverse, bits, scale));
        }
        Ok(rounded(&raised, bits, scale))
    }

    fn has_logarithm(&self) -> Result<()> {
        let refused = |of: &str| Err(Error::new("2201E", format!("cannot take logarithm of {of}")));
        match self.signum() {
            _ if self.is_nan() => Ok(()),
            0 => refused("zero"),
            -1 => refused("a negative number"),
            _ => Ok(()),
        }
    }

    /// The natural logarithm.
    pub(crate) fn ln(&self) -> Result<Self> {
        self.has_logarithm()?;
        if !self.is_finite() {
            return Ok(self.clone());
        }
        let scale = scale_of(self.ln_weight(), &[self]);
        let bits = bits_of(i64::from(scale) + 8);
        Ok(rounded(&ln_fixed(self, bits), bits, scale))
    }

    /// The logarithm to a base.
    pub(crate) fn log(base: &Self, number: &Self) -> Result<Self> {
        if base.is_nan() || number.is_nan() {
            return Ok(Self::NaN);
        }
        base.has_logarithm()?;
        number.has_logarithm()?;
        match (base.is_finite(), number.is_finite()) {
            (false, false) => return Ok(Self::NaN),
            (false, true) => return Ok(Self::ZERO),
            (true, false) => return Ok(number.clone()),
            (true, true) => {}
        }
        let (base_weight, number_weight) = (base.ln_weight(), number.ln_weight());
        let scale = scale_of(number_weight - base_weight, &[base, number]);
        let bits = bits_of(i64::from(scale) + 2 * base_weight.abs() + number_weight.abs() + 16);
        let below = ln_fixed(base, bits);
        if below == BigInt::ZERO {
            return Err(super::division_by_zero());
        }
        let quotient = divide_rounded(&(ln_fixed(number, bits) << bits), &below);
        Ok(rounded(&quotient, bits, scale))
    }

    /// This number to a power.
    pub(crate) fn power(&self, exponent: &Self) -> Result<Self> {
        let one = Self::Small(1, 0);
        if self.is_nan() || exponent.is_nan() {
            let known = exponent.signum() == 0 && !exponent.is_nan() || self.compare(&one).is_eq();
            return Ok(if known { one } else { Self::NaN });
        }
        let is_whole = !exponent.is_finite() || exponent.compare(&exponent.trunc(0)).is_eq();
        if self.signum() == 0 && exponent.signum() < 0 {
            return Err(Error::new("2201F", "zero raised to a negative power is undefined"));
        }
        if self.signum() < 0 && !is_whole {
            let message = "a negative number raised to a non-integer power yields a complex result";
            return Err(Error::new("2201F", message));
        }
        if !self.is_finite() || !exponent.is_finite() {
            return Ok(self.power_of_infinity(exponent));
        }
        if is_whole && let Some(whole) = exponent.to_i64("integer").ok().and_then(|it| i32::try_from(it).ok())
        {
            return self.power_whole(whole);
        }
        if self.is_zero() {
            return Ok(Self::Small(0, SIGNIFICANT as u16));
        }
        let odd = is_whole && !exponent.rem(&Self::Small(2, 0))?.is_zero();
        let base = self.abs();
        let rough = {
            let bits = bits_of(24 + base.ln_weight().abs() + i64::from(exponent.scale()));
            rounded(&ln_fixed(&base, bits), bits, (24 - base.ln_weight()).clamp(0, MOST_SCALE) as u16)
        };
        let value = rough.mul(exponent)?.to_f64();
        let value = value.unwrap_or(if rough.signum() * exponent.signum() < 0 { f64::MIN } else { f64::MAX });
        if value.abs() > MOST_RESULT * 3.01 {
            return if value > 0.0 { Err(overflow()) } else { Ok(Self::Small(0, MOST_SCALE as u16)) };
        }
        let weight = (value * LOG10_E) as i64;
        let scale = scale_of(weight, &[&base, exponent]);
        // The exponent's digits are digits of the product, too.
        let digits = i64::from(scale) + weight.abs() + exponent.weight().0.abs() * 4 + 32;
        let bits = bits_of(digits);
        let logarithm = ln_fixed(&base, bits);
        let product =
            divide_rounded(&(logarithm * exponent.mantissa()), &ten_to(u32::from(exponent.scale())));
        let raised = exp_fixed(&BigInt::from(product.magnitude().clone()), bits);
        let raised =
            if product.sign() == Sign::Minus { (BigInt::from(1) << (2 * bits)) / raised } else { raised };
        let made = rounded(&raised, bits, scale);
        Ok(if odd && self.signum() < 0 { made.neg() } else { made })
    }

    /// A power where one of both is infinite.
    fn power_of_infinity(&self, exponent: &Self) -> Self {
        let one = Self::Small(1, 0);
        if self.compare(&one).is_eq() || exponent.signum() == 0 {
            return one;
        }
        if self.signum() == 0 {
            return Self::ZERO;
        }
        if !exponent.is_finite() {
            let size = self.abs().compare(&one);
            return match size {
                _ if size.is_eq() => one,
                _ if size.is_gt() == (exponent.signum() > 0) => Self::Infinity(true),
                _ => Self::ZERO,
            };
        }
        if exponent.signum() < 0 {
            return Self::ZERO;
        }
        let odd = exponent.rem(&Self::Small(2, 0)).is_ok_and(|rest| !rest.is_zero());
        Self::Infinity(self.signum() > 0 || !odd)
    }

    /// A whole power (`power_var_int`).
    fn power_whole(&self, whole: i32) -> Result<Self> {
        let weight = if self.is_zero() {
            0.0
        } else {
            let (head, weight) = self.leading(4);
            f64::from(whole) * (head.log10() + weight as f64)
        };
        if weight > MOST_WEIGHT {
            return Err(overflow());
        }
        // Not an estimate of the weight decides here, but the base alone.
        let scale = scale_of(0, &[self]);
        if weight + 1.0 < -f64::from(scale) {
            return Ok(Self::Small(0, scale));
        }
        match whole {
            0 => return Ok(Self::Small(1, 0).round(i32::from(scale))),
            1 => return Ok(self.round(i32::from(scale))),
            _ if self.is_zero() => return Ok(Self::Small(0, scale)),
            _ => {}
        }
        let raised = if u64::from(whole.unsigned_abs()) * (self.mantissa().bits() + 1) < 1 << 16 {
            self.pow_exact(whole.unsigned_abs())
        } else {
            return self.power_by_squares(whole, weight, scale);
        };
        let (above, below) = if whole < 0 { (raised.1, raised.0) } else { raised };
        let quotient = divide_rounded(&(above * ten_to(u32::from(scale))), &below);
        Self::from_big(quotient, scale).checked()
    }

    /// A whole power as a fraction.
    fn pow_exact(&self, exponent: u32) -> (BigInt, BigInt) {
        (self.mantissa().pow(exponent), ten_to(u32::from(self.scale())).pow(exponent))
    }

    /// A large whole power, by squares of a mantissa with as many digits as the result and some more has.
    fn power_by_squares(&self, whole: i32, weight: f64, scale: u16) -> Result<Self> {
        let digits = i64::from(scale) + weight.abs() as i64 + 48;
        let bits = bits_of(digits);
        let mut sum = BigInt::from(1);
        // The sum is a multiple of a power of two, whose exponent stands beside it.
        let (mut exponent, mut left) = (0i64, whole.unsigned_abs());
        let mut base = fixed(&self.abs(), bits + u64::from(self.scale()) * 4);
        let mut base_exponent = -((bits + u64::from(self.scale()) * 4) as i64);
        let cut = |value: &mut BigInt, exponent: &mut i64| {
            let more = value.bits().saturating_sub(bits);
            *value >>= more;
            *exponent += more as i64;
        };
        while left > 0 {
            if left & 1 == 1 {
                sum *= &base;
                exponent += base_exponent;
                cut(&mut sum, &mut exponent);
            }
            left >>= 1;
            if left > 0 {
                base = &base * &base;
                base_exponent *= 2;
                cut(&mut base, &mut base_exponent);
            }
        }
        let (mut above, mut below) = (sum, BigInt::from(1));
        if exponent >= 0 {
            above <<= exponent as u64;
        } else {
            below <<= exponent.unsigned_abs();
        }
        if whole < 0 {
            std::mem::swap(&mut above, &mut below);
        }
        let made = Self::from_big(divide_rounded(&(above * ten_to(u32::from(scale))), &below), scale);
        let made = if self.signum() < 0 && whole % 2 != 0 { made.neg() } else { made };
        made.checked()
    }
}
