//! `numeric` of any length: a number times a power of ten, with NaN and the infinities, and PostgreSQL's scales.
//!
//! What has at most 18 digits or so stands in 64 bits and allocates nothing; the rest is a big integer. Scales (digits after
//! the point) of results are those of PostgreSQL's `numeric.c`: the greater one for sums, the sum of both for products, and for
//! quotients at least 16 significant digits ([`Numeric::div`]).

mod logarithms;

use std::cmp::Ordering;
use std::fmt;

use num_bigint::{BigInt, Sign};

use crate::error::{Error, Result};

/// Most digits after the point that a result of a division has.
const MAX_DIVISION_SCALE: i64 = 1000;
/// Most digits after the point, and before it, that a number has.
pub(crate) const MAX_SCALE: u32 = 16383;
const MAX_DIGITS: u64 = 131_072;

/// A number.
#[derive(Clone, Debug)]
pub enum Numeric {
    /// Not a number: equal to itself, greater than everything.
    NaN,
    /// Greater than every number but NaN (`true`), or less.
    Infinity(bool),
    /// A multiple of 10^-scale.
    Small(i64, u16),
    /// The same, where 64 bits do not do.
    Big(Box<(BigInt, u16)>),
}

fn ten_to(exponent: u32) -> BigInt {
    BigInt::from(10).pow(exponent)
}

/// 10^exponent, if 128 bits hold it.
fn small_power(exponent: u32) -> Option<i128> {
    10i128.checked_pow(exponent)
}

fn overflow() -> Error {
    Error::new("22003", "value overflows numeric format")
}

impl Numeric {
    pub(crate) const ZERO: Self = Self::Small(0, 0);

    pub(crate) fn from_i128(mantissa: i128, scale: u16) -> Self {
        match i64::try_from(mantissa) {
            Ok(small) => Self::Small(small, scale),
            Err(_) => Self::Big(Box::new((BigInt::from(mantissa), scale))),
        }
    }

    fn from_big(mantissa: BigInt, scale: u16) -> Self {
        match i64::try_from(&mantissa) {
            Ok(small) => Self::Small(small, scale),
            Err(_) => Self::Big(Box::new((mantissa, scale))),
        }
    }

    /// The bytes of the mantissa, and the scale, of a finite number.
    pub(crate) fn mantissa_bytes(&self) -> (Vec<u8>, u16) {
        (self.mantissa().to_signed_bytes_le(), self.scale())
    }

    /// The number with these bytes of its mantissa.
    pub(crate) fn from_mantissa_bytes(bytes: &[u8], scale: u16) -> Self {
        Self::from_big(BigInt::from_signed_bytes_le(bytes), scale)
    }

    pub(crate) fn scale(&self) -> u16 {
        match self {
            Self::Small(_, scale) => *scale,
            Self::Big(big) => big.1,
            _ => 0,
        }
    }

    pub(crate) fn is_finite(&self) -> bool {
        matches!(self, Self::Small(..) | Self::Big(_))
    }

    pub(crate) fn is_nan(&self) -> bool {
        matches!(self, Self::NaN)
    }

    pub(crate) fn is_zero(&self) -> bool {
        matches!(self, Self::Small(0, _))
    }

    /// -1, 0 or 1; NaN has none.
    pub(crate) fn signum(&self) -> i64 {
        match self {
            Self::NaN => 0,
            Self::Infinity(positive) => {
                if *positive {
                    1
                } else {
                    -1
                }
            }
            Self::Small(mantissa, _) => mantissa.signum(),
            Self::Big(big) => {
                if big.0.sign() == Sign::Minus {
                    -1
                } else {
                    1
                }
            }
        }
    }

    fn mantissa(&self) -> BigInt {
        match self {
            Self::Small(mantissa, _) => BigInt::from(*mantissa),
            Self::Big(big) => big.0.clone(),
            _ => BigInt::ZERO,
        }
    }

    /// The mantissa and scale, where 128 bits hold the mantissa.
    pub(crate) fn to_i128(&self) -> Option<(i128, u16)> {
        match self {
            Self::Small(mantissa, scale) => Some((i128::from(*mantissa), *scale)),
            Self::Big(big) => i128::try_from(&big.0).ok().map(|mantissa| (mantissa, big.1)),
            _ => None,
        }
    }

    /// Both mantissas at the greater scale, if that is cheap.
    fn aligned(&self, other: &Self) -> Option<(i128, i128, u16)> {
        let (Self::Small(a, sa), Self::Small(b, sb)) = (self, other) else { return None };
        let scale = *sa.max(sb);
        let raise = |mantissa: i64, from: u16| {
            small_power(u32::from(scale - from))?.checked_mul(i128::from(mantissa))
        };
        Some((raise(*a, *sa)?, raise(*b, *sb)?, scale))
    }

    fn aligned_big(&self, other: &Self) -> (BigInt, BigInt, u16) {
        let scale = self.scale().max(other.scale());
        let raise = |number: &Self| number.mantissa() * ten_to(u32::from(scale - number.scale()));
        (raise(self), raise(other), scale)
    }

    pub(crate) fn neg(&self) -> Self {
        match self {
            Self::NaN => Self::NaN,
            Self::Infinity(positive) => Self::Infinity(!positive),
            Self::Small(mantissa, scale) => Self::from_i128(-i128::from(*mantissa), *scale),
            Self::Big(big) => Self::from_big(-big.0.clone(), big.1),
        }
    }

    pub(crate) fn abs(&self) -> Self {
        if self.signum() < 0 { self.neg() } else { self.clone() }
    }

    pub(crate) fn add(&self, other: &Self) -> Result<Self> {
        match (self, other) {
            (Self::NaN, _) | (_, Self::NaN) => Ok(Self::NaN),
            (Self::Infinity(a), Self::Infinity(b)) => Ok(if a == b { Self::Infinity(*a) } else { Self::NaN }),
            (Self::Infinity(a), _) | (_, Self::Infinity(a)) => Ok(Self::Infinity(*a)),
            _ => {
                if let Some((a, b, scale)) = self.aligned(other)
                    && let Some(sum) = a.checked_add(b)
                {
                    return Ok(Self::from_i128(sum, scale));
                }
                let (a, b, scale) = self.aligned_big(other);
                Self::from_big(a + b, scale).checked()
            }
        }
    }

    pub(crate) fn sub(&self, other: &Self) -> Result<Self> {
        self.add(&other.neg())
    }

    pub(crate) fn mul(&self, other: &Self) -> Result<Self> {
        match (self, other) {
            (Self::NaN, _) | (_, Self::NaN) => Ok(Self::NaN),
            (Self::Infinity(_), x) | (x, Self::Infinity(_)) if x.is_zero() => Ok(Self::NaN),
            (Self::Infinity(_), _) | (_, Self::Infinity(_)) => {
                Ok(Self::Infinity(self.signum() * other.signum() > 0))
            }
            (Self::Small(a, sa), Self::Small(b, sb)) if u32::from(*sa) + u32::from(*sb) <= MAX_SCALE => {
                Ok(Self::from_i128(i128::from(*a) * i128::from(*b), sa + sb))
            }
            _ => {
                let scale = u32::from(self.scale()) + u32::from(other.scale());
                let product = self.mantissa() * other.mantissa();
                if scale > MAX_SCALE {
                    let less = divide_rounded(&product, &ten_to(scale - MAX_SCALE));
                    return Self::from_big(less, MAX_SCALE as u16).checked();
                }
                Self::from_big(product, scale as u16).checked()
            }
        }
    }

    /// Refuses what PostgreSQL's format does not hold.
    fn checked(self) -> Result<Self> {
        if let Self::Big(big) = &self
            && big.0.bits() * 30103 / 100_000 > MAX_DIGITS + u64::from(big.1)
        {
            return Err(overflow());
        }
        Ok(self)
    }

    /// Weight and first digit of the number in base 10,000, as `numeric.c` has it.
    fn weight(&self) -> (i64, i64) {
        let digits = self.mantissa().magnitude().to_string();
        if digits == "0" {
            return (0, 0);
        }
        let before = digits.len() as i64 - i64::from(self.scale());
        let weight = (before - 1).div_euclid(4);
        let first = (before - weight * 4) as usize;
        let head: String = digits.chars().chain(std::iter::repeat('0')).take(first).collect();
        (weight, head.parse().unwrap_or(0))
    }

    /// Digits after the point of a quotient: at least 16 significant ones (`select_div_scale` of `numeric.c`).
    fn division_scale(&self, other: &Self) -> u16 {
        let ((weight, first), (other_weight, other_first)) = (self.weight(), other.weight());
        let mut quotient = weight - other_weight;
        if first <= other_first {
            quotient -= 1;
        }
        let scale = (16 - quotient * 4).max(i64::from(self.scale())).max(i64::from(other.scale()));
        scale.clamp(0, MAX_DIVISION_SCALE) as u16
    }

    pub(crate) fn div(&self, other: &Self) -> Result<Self> {
        match (self, other) {
            (Self::NaN, _) | (_, Self::NaN) => return Ok(Self::NaN),
            (_, other) if other.is_zero() => return Err(division_by_zero()),
            (Self::Infinity(_), Self::Infinity(_)) => return Ok(Self::NaN),
            (Self::Infinity(_), _) => return Ok(Self::Infinity(self.signum() * other.signum() > 0)),
            (_, Self::Infinity(_)) => return Ok(Self::ZERO),
            _ => {}
        }
        self.div_to(other, self.division_scale(other))
    }

    /// The quotient rounded to this scale.
    pub(crate) fn div_to(&self, other: &Self, scale: u16) -> Result<Self> {
        let shift = i64::from(scale) + i64::from(other.scale()) - i64::from(self.scale());
        let (mut above, mut below) = (self.mantissa(), other.mantissa());
        if shift >= 0 {
            above *= ten_to(shift as u32);
        } else {
            below *= ten_to(-shift as u32);
        }
        Self::from_big(divide_rounded(&above, &below), scale).checked()
    }

    /// The rest of the division towards zero.
    pub(crate) fn rem(&self, other: &Self) -> Result<Self> {
        match (self, other) {
            (Self::NaN, _) | (_, Self::NaN) => Ok(Self::NaN),
            (_, other) if other.is_zero() => Err(division_by_zero()),
            (Self::Infinity(_), _) => Ok(Self::NaN),
            (_, Self::Infinity(_)) => Ok(self.clone()),
            _ => {
                let (a, b, scale) = self.aligned_big(other);
                Ok(Self::from_big(a % b, scale))
            }
        }
    }

    /// The quotient cut to a whole number.
    pub(crate) fn div_whole(&self, other: &Self) -> Result<Self> {
        if !self.is_finite() || !other.is_finite() {
            return self.div(other);
        }
        if other.is_zero() {
            return Err(division_by_zero());
        }
        let (a, b, _) = self.aligned_big(other);
        Ok(Self::from_big(a / b, 0))
    }

    /// Rounded half away from zero to this many digits after the point (before it, if negative).
    pub(crate) fn round(&self, digits: i32) -> Self {
        self.at_scale(digits, divide_rounded)
    }

    /// Cut to this many digits after the point.
    pub(crate) fn trunc(&self, digits: i32) -> Self {
        self.at_scale(digits, |above, below| above / below)
    }

    fn at_scale(&self, digits: i32, divide: impl Fn(&BigInt, &BigInt) -> BigInt) -> Self {
        if !self.is_finite() {
            return self.clone();
        }
        let digits = digits.clamp(-(MAX_SCALE as i32) * 8, MAX_SCALE as i32);
        let (scale, wanted) = (i32::from(self.scale()), digits.max(0) as u16);
        if digits >= scale {
            let more = (digits - scale) as u32;
            if let (Self::Small(mantissa, _), Some(power)) = (self, small_power(more))
                && let Some(raised) = power.checked_mul(i128::from(*mantissa))
            {
                return Self::from_i128(raised, wanted);
            }
            return Self::from_big(self.mantissa() * ten_to(more), wanted);
        }
        let less = divide(&self.mantissa(), &ten_to((scale - digits) as u32));
        Self::from_big(if digits < 0 { less * ten_to((-digits) as u32) } else { less }, wanted)
    }

    pub(crate) fn floor(&self) -> Self {
        let whole = self.trunc(0);
        if self.compare(&whole) == Ordering::Less {
            return whole.add(&Self::Small(-1, 0)).unwrap_or(whole);
        }
        whole
    }

    pub(crate) fn ceil(&self) -> Self {
        self.neg().floor().neg()
    }

    /// The square root, with PostgreSQL's scale.
    pub(crate) fn sqrt(&self) -> Result<Self> {
        match self {
            Self::NaN | Self::Infinity(true) => return Ok(self.clone()),
            _ if self.signum() < 0 => {
                return Err(Error::new("2201F", "cannot take square root of a negative number"));
            }
            _ => {}
        }
        // `numeric_sqrt`: the weight of the root, in decimal digits.
        let (weight, _) = self.weight();
        let root = if weight >= 0 { weight * 4 / 2 + 1 } else { 1 - (1 - weight * 4) / 2 };
        let scale = (16 - root).max(i64::from(self.scale())).clamp(0, MAX_DIVISION_SCALE) as u16;
        Ok(self.sqrt_to(scale))
    }

    /// The root of a number that is not negative, with so many digits behind the point (`sqrt_var`).
    pub(crate) fn sqrt_to(&self, scale: u16) -> Self {
        // One digit more than wanted, then rounded.
        let more = 2 * (u32::from(scale) + 1) - u32::from(self.scale()).min(2 * (u32::from(scale) + 1));
        let raised = self.mantissa() * ten_to(more);
        let doubled = (u32::from(self.scale()) + more) as u16;
        debug_assert_eq!(doubled % 2, 0, "twice the scale of the root");
        Self::from_big(raised.sqrt(), doubled / 2).round(i32::from(scale))
    }

    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let rank = |number: &Self| match number {
            Self::Infinity(false) => 0,
            Self::Infinity(true) => 2,
            Self::NaN => 3,
            _ => 1,
        };
        rank(self).cmp(&rank(other)).then_with(|| {
            if !self.is_finite() {
                return Ordering::Equal;
            }
            match self.aligned(other) {
                Some((a, b, _)) => a.cmp(&b),
                None => {
                    let (a, b, _) = self.aligned_big(other);
                    a.cmp(&b)
                }
            }
        })
    }

    /// The same number with no zeros at the end of its fraction, for hashing.
    pub(crate) fn canonical(&self) -> Self {
        let mut number = self.clone();
        while number.scale() > 0 {
            let shorter = number.trunc(i32::from(number.scale()) - 1);
            if shorter.compare(&number) != Ordering::Equal {
                break;
            }
            number = shorter;
        }
        number
    }

    /// Rounded to a whole number of 64 bits.
    pub(crate) fn to_i64(&self, what: &'static str) -> Result<i64> {
        let out = || Error::new("22003", format!("{what} out of range"));
        match self {
            Self::NaN => Err(Error::new("0A000", format!("cannot convert NaN to {what}"))),
            Self::Infinity(_) => Err(Error::new("0A000", format!("cannot convert infinity to {what}"))),
            Self::Small(mantissa, 0) => Ok(*mantissa),
            _ => match self.round(0) {
                Self::Small(mantissa, _) => Ok(mantissa),
                _ => Err(out()),
            },
        }
    }

    pub(crate) fn to_f64(&self) -> Result<f64> {
        match self {
            Self::NaN => Ok(f64::NAN),
            Self::Infinity(positive) => Ok(if *positive { f64::INFINITY } else { f64::NEG_INFINITY }),
            Self::Small(mantissa, 0) => Ok(*mantissa as f64),
            _ => {
                let text = self.to_string();
                let number: f64 = text.parse().unwrap_or(f64::INFINITY);
                if number.is_infinite() {
                    return Err(Error::new(
                        "22003",
                        format!("\"{text}\" is out of range for type double precision"),
                    ));
                }
                Ok(number)
            }
        }
    }

    /// The number with at most `digits` significant digits, as PostgreSQL converts floats.
    pub(crate) fn from_f64(value: f64, digits: usize) -> Self {
        if value.is_nan() {
            return Self::NaN;
        }
        if value.is_infinite() {
            return Self::Infinity(value > 0.0);
        }
        Self::parse(&format!("{value:.*e}", digits - 1)).map_or(Self::NaN, |number| {
            let short = number.canonical();
            // Zeros before the point stay.
            if short.scale() == 0 { short.round(0) } else { short }
        })
    }

    /// Reads a number; `None` is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
        let (negative, body) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        if body.eq_ignore_ascii_case("nan") {
            return (body.len() == text.len()).then_some(Self::NaN);
        }
        if body.eq_ignore_ascii_case("infinity") || body.eq_ignore_ascii_case("inf") {
            return Some(Self::Infinity(!negative));
        }
        let (digits, exponent) = match body.find(['e', 'E']) {
            Some(at) => {
                let exponent = &body[at + 1..];
                let bare = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
                if bare.is_empty() || !bare.bytes().all(|byte| byte.is_ascii_digit()) {
                    return None;
                }
                (&body[..at], exponent.parse::<i64>().ok()?)
            }
            None => (body, 0),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if whole.len() + fraction.len() == 0
            || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit())
        {
            return None;
        }
        if exponent.abs() > i64::from(MAX_SCALE) * 8 {
            return None;
        }
        let scale = fraction.len() as i64 - exponent;
        let small = if whole.len() + fraction.len() <= 18 {
            (whole.to_owned() + fraction).parse::<i64>().ok()
        } else {
            None
        };
        let mut mantissa = match small {
            Some(small) => BigInt::from(small),
            None => BigInt::parse_bytes((whole.to_owned() + fraction).as_bytes(), 10)?,
        };
        if negative {
            mantissa = -mantissa;
        }
        if scale < 0 {
            return Some(Self::from_big(mantissa * ten_to(-scale as u32), 0));
        }
        if scale > i64::from(MAX_SCALE) {
            let less = divide_rounded(&mantissa, &ten_to((scale - i64::from(MAX_SCALE)) as u32));
            return Some(Self::from_big(less, MAX_SCALE as u16));
        }
        Some(Self::from_big(mantissa, scale as u16))
    }

    /// Rounded to a column of `precision` digits, `scale` of them after the point, or refused.
    pub(crate) fn fit(&self, precision: i32, scale: i32) -> Result<Self> {
        let overflow = |detail: String| Err(Error::new("22003", "numeric field overflow").detail(detail));
        match self {
            Self::NaN => return Ok(Self::NaN),
            Self::Infinity(_) => {
                return overflow(format!(
                    "A field with precision {precision}, scale {scale} cannot hold an infinite value."
                ));
            }
            _ => {}
        }
        let rounded = self.round(scale);
        let digits = rounded.mantissa().magnitude().to_string().len() as i32;
        let before = if rounded.is_zero() { 0 } else { digits - i32::from(rounded.scale()) };
        if before > precision - scale && !rounded.is_zero() {
            let most = precision - scale;
            let limit = if most == 0 { "1".to_owned() } else { format!("10^{most}") };
            return overflow(format!(
                "A field with precision {precision}, scale {scale} must round to an absolute value less than {limit}."
            ));
        }
        Ok(rounded)
    }
}

/// Division rounded half away from zero.
fn divide_rounded(above: &BigInt, below: &BigInt) -> BigInt {
    let quotient = above / below;
    let rest = above - &quotient * below;
    if rest.magnitude() * 2u32 >= *below.magnitude() {
        let away = if (above.sign() == Sign::Minus) == (below.sign() == Sign::Minus) { 1 } else { -1 };
        return quotient + away;
    }
    quotient
}

pub(crate) fn division_by_zero() -> Error {
    Error::new("22012", "division by zero")
}

impl fmt::Display for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (negative, digits, scale) = match self {
            Self::NaN => return f.write_str("NaN"),
            Self::Infinity(positive) => return f.write_str(if *positive { "Infinity" } else { "-Infinity" }),
            Self::Small(mantissa, scale) => (*mantissa < 0, mantissa.unsigned_abs().to_string(), *scale),
            Self::Big(big) => (big.0.sign() == Sign::Minus, big.0.magnitude().to_string(), big.1),
        };
        if negative {
            f.write_str("-")?;
        }
        let scale = usize::from(scale);
        if scale == 0 {
            return f.write_str(&digits);
        }
        if digits.len() > scale {
            let (whole, fraction) = digits.split_at(digits.len() - scale);
            return write!(f, "{whole}.{fraction}");
        }
        write!(f, "0.{digits:0>scale$}")
    }
}
