//! Exact decimal numbers of up to 38 digits.
//!
//! A [`Decimal`] is `mantissa / 10^scale`, with |mantissa| < 10^38 and scale ≤ 38. There is no NaN and no infinity: an
//! operation that has no result of 38 digits returns an error. Rounding is half away from zero, as in SQL. Numbers of
//! different scale compare by value (1.0 = 1.00), and so do `Eq`, `Ord` and `Hash`.
//!
//! Products and aligned operands need up to 253 bits; `Wide` holds them. Its division works bit by bit, and serves
//! only operands that do not fit 128 bits.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use super::types::{MAX_PRECISION, MAX_PRECISION_8};

/// Powers of ten up to 10^38.
pub(crate) const POW10: [i128; 39] = {
    let mut table = [1i128; 39];
    let mut i = 1;
    while i < 39 {
        table[i] = table[i - 1] * 10;
        i += 1;
    }
    table
};

const MAX_SCALE: u8 = MAX_PRECISION;
const LIMIT: u128 = POW10[MAX_PRECISION as usize] as u128;

/// An exact number: a mantissa and the count of its digits after the point.
#[derive(Clone, Copy, Default)]
pub struct Decimal {
    mantissa: i128,
    scale: u8,
}

/// Why there is no decimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecimalError {
    /// The result needs more than 38 digits.
    Overflow,
    /// Division by zero.
    DivisionByZero,
    /// The text is no number.
    Syntax,
}

impl fmt::Display for DecimalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DecimalError::Overflow => {
                "the number needs more than 38 digits; use a smaller scale or smaller numbers"
            }
            DecimalError::DivisionByZero => "division by zero",
            DecimalError::Syntax => {
                "not a number: write digits, optionally with a sign, a point and an exponent"
            }
        })
    }
}

impl std::error::Error for DecimalError {}

impl Decimal {
    /// Zero, with no digits after the point.
    pub const ZERO: Self = Self { mantissa: 0, scale: 0 };

    /// `mantissa / 10^scale`.
    #[inline]
    pub const fn new(mantissa: i128, scale: u8) -> Result<Self, DecimalError> {
        if scale > MAX_SCALE || mantissa.unsigned_abs() >= LIMIT {
            return Err(DecimalError::Overflow);
        }
        Ok(Self { mantissa, scale })
    }

    /// The number times 10^scale.
    #[must_use]
    pub const fn mantissa(self) -> i128 {
        self.mantissa
    }

    /// Digits after the point.
    #[must_use]
    pub const fn scale(self) -> u8 {
        self.scale
    }

    /// Whether it is less than zero.
    #[must_use]
    pub const fn is_negative(self) -> bool {
        self.mantissa < 0
    }

    /// Whether it is zero.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.mantissa == 0
    }

    /// The number without its sign.
    #[must_use]
    pub const fn abs(self) -> Self {
        Self { mantissa: self.mantissa.abs(), scale: self.scale }
    }

    /// The same number with `scale` digits after the point, if none is lost.
    pub fn rescale_exact(self, scale: u8) -> Result<Option<Self>, DecimalError> {
        let rounded = self.rescale(scale)?;
        Ok((rounded == self).then_some(rounded))
    }

    /// The number with `scale` digits after the point, rounded half away from zero.
    pub fn rescale(self, scale: u8) -> Result<Self, DecimalError> {
        if scale > MAX_SCALE {
            return Err(DecimalError::Overflow);
        }
        match scale.cmp(&self.scale) {
            Ordering::Equal => Ok(self),
            Ordering::Greater => {
                let factor = POW10[usize::from(scale - self.scale)];
                match self.mantissa.checked_mul(factor) {
                    Some(mantissa) => Self::new(mantissa, scale),
                    None => Err(DecimalError::Overflow),
                }
            }
            Ordering::Less => {
                let divisor = POW10[usize::from(self.scale - scale)];
                let (quotient, rest) = (self.mantissa / divisor, self.mantissa % divisor);
                let away = rest.unsigned_abs() >= divisor.unsigned_abs() - rest.unsigned_abs();
                Self::new(quotient + i128::from(away) * self.mantissa.signum(), scale)
            }
        }
    }

    /// Rounds to `digits` digits after the point, half away from zero; a negative count rounds before the point. The
    /// scale of the result is `digits`, or 0.
    pub fn round(self, digits: i8) -> Result<Self, DecimalError> {
        if digits >= 0 {
            return self.rescale(digits.unsigned_abs());
        }
        let before = digits.unsigned_abs();
        if before > MAX_PRECISION {
            return Ok(Self::ZERO);
        }
        let unit = Wide::product(
            POW10[usize::from(before)].unsigned_abs(),
            POW10[usize::from(self.scale)].unsigned_abs(),
        );
        let (quotient, rest) = Wide::from(self.mantissa.unsigned_abs()).div_rem(unit);
        let quotient = quotient.low + u128::from(rest.doubled() >= unit);
        let magnitude = quotient.checked_mul(POW10[usize::from(before)].unsigned_abs());
        signed(magnitude, self.mantissa < 0, 0)
    }

    /// The sum, with the greater scale of the two.
    #[inline]
    pub fn checked_add(self, other: Self) -> Result<Self, DecimalError> {
        if self.scale == other.scale {
            // Two mantissas below 10^38 add up to less than 2^127 = 1.7 * 10^38 only if they are checked.
            return match self.mantissa.checked_add(other.mantissa) {
                Some(sum) => Self::new(sum, self.scale),
                None => Err(DecimalError::Overflow),
            };
        }
        let scale = self.scale.max(other.scale);
        if let (Some(a), Some(b)) = (self.aligned_small(scale), other.aligned_small(scale)) {
            return Ok(Self { mantissa: a + b, scale });
        }
        self.add_wide(other, scale)
    }

    #[cold]
    fn add_wide(self, other: Self, scale: u8) -> Result<Self, DecimalError> {
        let (a, b) = (self.aligned(scale), other.aligned(scale));
        let (negative, sum) = if self.is_negative() == other.is_negative() {
            (self.is_negative(), a.plus(b))
        } else if a >= b {
            (self.is_negative(), a.minus(b))
        } else {
            (other.is_negative(), b.minus(a))
        };
        signed(sum.narrow(), negative, scale)
    }

    /// The difference, with the greater scale of the two.
    #[inline]
    pub fn checked_sub(self, other: Self) -> Result<Self, DecimalError> {
        self.checked_add(-other)
    }

    /// The product with the sum of the scales; if that is more than 38, rounded to 38 digits after the point.
    #[inline]
    pub fn checked_mul(self, other: Self) -> Result<Self, DecimalError> {
        let scale = self.scale + other.scale;
        if let (Ok(a), Ok(b)) = (i64::try_from(self.mantissa), i64::try_from(other.mantissa))
            && scale <= MAX_SCALE
        {
            // At most 2^126, which is below 10^38.
            return Ok(Self { mantissa: i128::from(a) * i128::from(b), scale });
        }
        self.checked_mul_to(other, scale.min(MAX_SCALE))
    }

    /// The product rounded to `scale` digits after the point.
    pub fn checked_mul_to(self, other: Self, scale: u8) -> Result<Self, DecimalError> {
        if scale > MAX_SCALE {
            return Err(DecimalError::Overflow);
        }
        let negative = self.is_negative() != other.is_negative();
        let product = Wide::product(self.mantissa.unsigned_abs(), other.mantissa.unsigned_abs());
        let natural = self.scale + other.scale;
        let magnitude = if scale >= natural {
            product.narrow().and_then(|m| m.checked_mul(POW10[usize::from(scale - natural)].unsigned_abs()))
        } else {
            product.div_round(power(natural - scale)).narrow()
        };
        signed(magnitude, negative, scale)
    }

    /// The quotient rounded to `scale` digits after the point.
    pub fn checked_div(self, other: Self, scale: u8) -> Result<Self, DecimalError> {
        if other.is_zero() {
            return Err(DecimalError::DivisionByZero);
        }
        if scale > MAX_SCALE {
            return Err(DecimalError::Overflow);
        }
        let negative = self.is_negative() != other.is_negative();
        let (mut dividend, mut divisor) =
            (Wide::from(self.mantissa.unsigned_abs()), Wide::from(other.mantissa.unsigned_abs()));
        let shift = i16::from(scale) + i16::from(other.scale) - i16::from(self.scale);
        if shift >= 0 {
            // A dividend of more than 256 bits divided by less than 10^38 has more than 38 digits.
            let Some(scaled) = dividend.times_power(shift.unsigned_abs()) else {
                return Err(DecimalError::Overflow);
            };
            dividend = scaled;
        } else {
            divisor = divisor.times_power(shift.unsigned_abs()).expect("10^38 times 10^38 fits 256 bits");
        }
        signed(dividend.div_round(divisor).narrow(), negative, scale)
    }

    /// The rest of the division towards zero; it has the sign of `self` and the greater scale of the two.
    pub fn checked_rem(self, other: Self) -> Result<Self, DecimalError> {
        if other.is_zero() {
            return Err(DecimalError::DivisionByZero);
        }
        let scale = self.scale.max(other.scale);
        let (_, rest) = self.aligned(scale).div_rem(other.aligned(scale));
        signed(rest.narrow(), self.is_negative(), scale)
    }

    /// The nearest 64-bit float.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        // Through text: a division of floats would round twice.
        self.to_string().parse().expect("a decimal is written as a float is")
    }

    /// The shortest decimal that reads as this float; what is smaller than 10^-38 is cut off.
    pub fn from_f64(value: f64) -> Result<Self, DecimalError> {
        if !value.is_finite() {
            return Err(DecimalError::Overflow);
        }
        let text = value.to_string();
        let digits =
            text.find('.').map_or(text.len(), |point| text.len().min(point + 1 + usize::from(MAX_SCALE)));
        text[..digits].parse()
    }

    /// The number without its zeros at the end of the fraction: the one form of each value.
    #[must_use]
    pub fn normalized(mut self) -> Self {
        while self.scale > 0 && self.mantissa % 10 == 0 {
            self.mantissa /= 10;
            self.scale -= 1;
        }
        self
    }

    /// The mantissa at a greater scale, if both factors fit 64 bits: then it is below 2^123, and two of them can be added
    /// without leaving 38 digits.
    #[inline]
    fn aligned_small(self, scale: u8) -> Option<i128> {
        let mantissa = i64::try_from(self.mantissa).ok()?;
        let shift = scale - self.scale;
        if shift > MAX_PRECISION_8 { None } else { Some(i128::from(mantissa) * POW10[usize::from(shift)]) }
    }

    fn aligned(self, scale: u8) -> Wide {
        Wide::product(self.mantissa.unsigned_abs(), POW10[usize::from(scale - self.scale)].unsigned_abs())
    }
}

fn signed(magnitude: Option<u128>, negative: bool, scale: u8) -> Result<Decimal, DecimalError> {
    match magnitude {
        Some(m) if m < LIMIT => {
            // Below 10^38 and so below 2^127.
            let m = m as i128;
            Ok(Decimal { mantissa: if negative { -m } else { m }, scale })
        }
        _ => Err(DecimalError::Overflow),
    }
}

/// 10^exponent for an exponent of at most 76.
fn power(exponent: u8) -> Wide {
    let low = exponent.min(MAX_PRECISION);
    Wide::product(POW10[usize::from(low)].unsigned_abs(), POW10[usize::from(exponent - low)].unsigned_abs())
}

impl std::ops::Neg for Decimal {
    type Output = Self;

    fn neg(self) -> Self {
        Self { mantissa: -self.mantissa, scale: self.scale }
    }
}

impl PartialEq for Decimal {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Decimal {}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Decimal {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        if self.scale == other.scale {
            return self.mantissa.cmp(&other.mantissa);
        }
        let signs = self.mantissa.signum().cmp(&other.mantissa.signum());
        if signs != Ordering::Equal {
            return signs;
        }
        let scale = self.scale.max(other.scale);
        if let (Some(a), Some(b)) = (self.aligned_small(scale), other.aligned_small(scale)) {
            return a.cmp(&b);
        }
        let magnitudes = self.aligned(scale).cmp(&other.aligned(scale));
        if self.is_negative() { magnitudes.reverse() } else { magnitudes }
    }
}

impl Hash for Decimal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let normal = self.normalized();
        normal.mantissa.hash(state);
        normal.scale.hash(state);
    }
}

impl From<i64> for Decimal {
    fn from(value: i64) -> Self {
        Self { mantissa: value.into(), scale: 0 }
    }
}

impl From<i32> for Decimal {
    fn from(value: i32) -> Self {
        i64::from(value).into()
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let magnitude = self.mantissa.unsigned_abs();
        let text = if self.scale == 0 {
            magnitude.to_string()
        } else {
            let unit = POW10[usize::from(self.scale)].unsigned_abs();
            format!("{}.{:0width$}", magnitude / unit, magnitude % unit, width = usize::from(self.scale))
        };
        f.pad_integral(self.mantissa >= 0, "", &text)
    }
}

impl fmt::Debug for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Decimal {
    type Err = DecimalError;

    /// Reads `[+-]digits[.digits][e[+-]digits]`. Every digit of the fraction is kept; a number that needs more than 38
    /// digits is an error, not rounded.
    fn from_str(text: &str) -> Result<Self, DecimalError> {
        let (negative, rest) = match text.as_bytes() {
            [b'-', ..] => (true, &text[1..]),
            [b'+', ..] => (false, &text[1..]),
            _ => (false, text),
        };
        let (number, exponent) = match rest.split_once(['e', 'E']) {
            Some((number, exponent)) => (number, exponent.parse::<i16>().map_err(|_| DecimalError::Syntax)?),
            None => (rest, 0),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() {
            return Err(DecimalError::Syntax);
        }
        let mut magnitude: u128 = 0;
        let mut overflow = false;
        for byte in whole.bytes().chain(fraction.bytes()) {
            if !byte.is_ascii_digit() {
                return Err(DecimalError::Syntax);
            }
            if magnitude >= LIMIT / 10 {
                overflow = true;
            } else {
                magnitude = magnitude * 10 + u128::from(byte - b'0');
            }
        }
        let scale = i64::try_from(fraction.len()).map_err(|_| DecimalError::Overflow)? - i64::from(exponent);
        if overflow {
            return Err(DecimalError::Overflow);
        }
        if scale < 0 {
            if magnitude == 0 {
                return Ok(Self::ZERO);
            }
            let factor = usize::try_from(-scale).ok().and_then(|shift| POW10.get(shift));
            return signed(factor.and_then(|f| magnitude.checked_mul(f.unsigned_abs())), negative, 0);
        }
        match u8::try_from(scale) {
            Ok(scale) if scale <= MAX_SCALE => signed(Some(magnitude), negative, scale),
            _ => Err(DecimalError::Overflow),
        }
    }
}

/// An unsigned number of 256 bits, with just what the operations above need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wide {
    high: u128,
    low: u128,
}

impl From<u128> for Wide {
    fn from(low: u128) -> Self {
        Self { high: 0, low }
    }
}

impl Wide {
    fn product(a: u128, b: u128) -> Self {
        if let Some(low) = a.checked_mul(b) {
            return low.into();
        }
        const HALF: u128 = u64::MAX as u128;
        let (a1, a0, b1, b0) = (a >> 64, a & HALF, b >> 64, b & HALF);
        let low = a0 * b0;
        let middle = a1 * b0 + (low >> 64);
        let (middle_high, middle) = (middle >> 64, (middle & HALF) + a0 * b1);
        Self { high: a1 * b1 + middle_high + (middle >> 64), low: (middle << 64) | (low & HALF) }
    }

    /// The sum; both operands are below 2^255.
    fn plus(self, other: Self) -> Self {
        let (low, carry) = self.low.overflowing_add(other.low);
        Self { high: self.high + other.high + u128::from(carry), low }
    }

    /// The difference; `other` is not the greater one.
    fn minus(self, other: Self) -> Self {
        let (low, borrow) = self.low.overflowing_sub(other.low);
        Self { high: self.high - other.high - u128::from(borrow), low }
    }

    fn doubled(self) -> Self {
        Self { high: self.high << 1 | self.low >> 127, low: self.low << 1 }
    }

    /// Times 10^exponent, if that fits 256 bits.
    fn times_power(self, exponent: u16) -> Option<Self> {
        let mut result = self;
        let mut left = usize::from(exponent);
        while left > 0 {
            let step = left.min(usize::from(MAX_PRECISION));
            let factor = POW10[step].unsigned_abs();
            let low = Self::product(result.low, factor);
            let high = result.high.checked_mul(factor)?.checked_add(low.high)?;
            result = Self { high, low: low.low };
            left -= step;
        }
        Some(result)
    }

    fn narrow(self) -> Option<u128> {
        (self.high == 0).then_some(self.low)
    }

    fn bits(self) -> u32 {
        if self.high == 0 { 128 - self.low.leading_zeros() } else { 256 - self.high.leading_zeros() }
    }

    fn bit(self, index: u32) -> u128 {
        if index < 128 { self.low >> index & 1 } else { self.high >> (index - 128) & 1 }
    }

    /// Quotient and rest; the divisor is above 0 and below 2^255, so that the rest can be doubled.
    fn div_rem(self, divisor: Self) -> (Self, Self) {
        if self.high == 0 && divisor.high == 0 {
            return ((self.low / divisor.low).into(), (self.low % divisor.low).into());
        }
        let (mut quotient, mut rest) = (Self::from(0), Self::from(0));
        for index in (0..self.bits()).rev() {
            rest = rest.doubled();
            rest.low |= self.bit(index);
            quotient = quotient.doubled();
            if rest >= divisor {
                rest = rest.minus(divisor);
                quotient.low |= 1;
            }
        }
        (quotient, rest)
    }

    /// The quotient rounded half up.
    fn div_round(self, divisor: Self) -> Self {
        let (quotient, rest) = self.div_rem(divisor);
        if rest.doubled() >= divisor { quotient.plus(1.into()) } else { quotient }
    }
}

#[cfg(test)]
#[path = "decimal_tests.rs"]
mod tests;
