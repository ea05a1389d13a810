//! `to_char` of numbers: PostgreSQL's template patterns, filled as `NUM_processor` of its `formatting.c` fills them.
//!
//! A pattern is read into parts. The digits before and behind its point are counted, the number is written with that many, and the
//! parts are filled from left to right. Parts that depend on a locale are those of the locale "C": `D` is a point, `G` a comma, `L` a
//! blank. A number with fewer digits than the pattern ends the text where they end, as the zero byte does in C.
//!
//! One answer differs on purpose: `V` with an integer whose product has no room is an error (22003), where PostgreSQL's overflows.

use crate::error::{Error, Result};
use crate::expr::Made;
use crate::types::{Datum, Numeric};

use super::casts::{float, int, numeric, str};

/// Parts of a pattern, each before those that are its beginning.
const PARTS: &[(&str, Part)] = &[
    (",", Part::Comma),
    (".", Part::Point),
    ("0", Part::Zero),
    ("9", Part::Nine),
    ("B", Part::Blank),
    ("D", Part::Point),
    ("EEEE", Part::Exponent),
    ("FM", Part::Fill),
    ("G", Part::Comma),
    ("L", Part::Currency),
    ("MI", Part::Minus),
    ("PL", Part::Plus),
    ("PR", Part::Brackets),
    ("RN", Part::Roman { lower: false }),
    ("SG", Part::PlusMinus),
    ("SP", Part::Spelled),
    ("S", Part::Sign),
    ("TH", Part::Ordinal { lower: false }),
    ("V", Part::Shift),
    ("b", Part::Blank),
    ("d", Part::Point),
    ("eeee", Part::Exponent),
    ("fm", Part::Fill),
    ("g", Part::Comma),
    ("l", Part::Currency),
    ("mi", Part::Minus),
    ("pl", Part::Plus),
    ("pr", Part::Brackets),
    ("rn", Part::Roman { lower: true }),
    ("sg", Part::PlusMinus),
    ("sp", Part::Spelled),
    ("s", Part::Sign),
    ("th", Part::Ordinal { lower: true }),
    ("v", Part::Shift),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Nine,
    Zero,
    Point,
    Comma,
    Blank,
    Exponent,
    Fill,
    Currency,
    Minus,
    Plus,
    PlusMinus,
    Brackets,
    Roman { lower: bool },
    Spelled,
    Sign,
    Ordinal { lower: bool },
    Shift,
    Literal(char),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SignPlace {
    Before,
    Behind,
}

/// The meaning of a pattern as a whole (`NUMDesc`).
#[derive(Debug, Default)]
struct Template {
    parts: Vec<Part>,
    /// Digits before the point, behind it, and behind `V`.
    before: usize,
    behind: usize,
    shift: usize,
    sign: Option<SignPlace>,
    /// Digits before the sign that stands before the point.
    before_sign: usize,
    zero_start: usize,
    zero_end: usize,
    point: bool,
    zero: bool,
    blank: bool,
    fill: bool,
    minus: bool,
    plus: bool,
    brackets: bool,
    shifts: bool,
    exponent: bool,
    roman: bool,
}

fn wrong(message: &str) -> Error {
    Error::new("42601", message)
}

impl Template {
    fn read(pattern: &str) -> Result<Self> {
        let mut template = Self::default();
        let mut rest = pattern;
        while let Some(sign) = rest.chars().next() {
            if let Some((word, part)) = PARTS.iter().find(|(word, _)| rest.starts_with(word)) {
                rest = &rest[word.len()..];
                template.add(*part)?;
            } else if sign == '"' {
                rest = &rest[1..];
                while let Some(sign) = rest.chars().next() {
                    rest = &rest[sign.len_utf8()..];
                    let sign = match (sign, rest.chars().next()) {
                        ('"', _) => break,
                        ('\\', Some(next)) => {
                            rest = &rest[next.len_utf8()..];
                            next
                        }
                        _ => sign,
                    };
                    template.parts.push(Part::Literal(sign));
                }
            } else {
                // A backslash means something before a quote only.
                let skipped = if rest.starts_with("\\\"") { 1 } else { 0 };
                let sign = if skipped == 1 { '"' } else { sign };
                rest = &rest[skipped + sign.len_utf8()..];
                template.parts.push(Part::Literal(sign));
            }
        }
        Ok(template)
    }

    /// Counts a part in (`NUMDesc_prepare`).
    fn add(&mut self, part: Part) -> Result<()> {
        if self.exponent && part != Part::Exponent {
            return Err(wrong("\"EEEE\" must be the last pattern used"));
        }
        let signed = self.sign.is_some();
        match part {
            Part::Nine | Part::Zero if self.brackets => {
                let digit = if part == Part::Nine { 9 } else { 0 };
                return Err(wrong(&format!("\"{digit}\" must be ahead of \"PR\"")));
            }
            Part::Nine if self.shifts => self.shift += 1,
            Part::Nine if self.point => self.behind += 1,
            Part::Nine => self.before += 1,
            Part::Zero => {
                if !self.zero && !self.point {
                    self.zero = true;
                    self.zero_start = self.before + 1;
                }
                if self.point {
                    self.behind += 1;
                } else {
                    self.before += 1;
                }
                self.zero_end = self.before + self.behind;
            }
            Part::Blank => self.blank |= self.before == 0 && self.behind == 0 && !self.zero,
            Part::Point => {
                if self.point {
                    return Err(wrong("multiple decimal points"));
                }
                if self.shifts {
                    return Err(wrong("cannot use \"V\" and decimal point together"));
                }
                self.point = true;
            }
            Part::Fill => self.fill = true,
            Part::Sign => {
                if signed {
                    return Err(wrong("cannot use \"S\" twice"));
                }
                if self.plus || self.minus || self.brackets {
                    return Err(wrong("cannot use \"S\" and \"PL\"/\"MI\"/\"SG\"/\"PR\" together"));
                }
                if self.point {
                    self.sign = Some(SignPlace::Behind);
                } else {
                    self.sign = Some(SignPlace::Before);
                    self.before_sign = self.before;
                }
            }
            Part::Minus | Part::Plus | Part::PlusMinus => {
                if signed {
                    let name = match part {
                        Part::Minus => "MI",
                        Part::Plus => "PL",
                        _ => "SG",
                    };
                    return Err(wrong(&format!("cannot use \"S\" and \"{name}\" together")));
                }
                self.minus |= part != Part::Plus;
                self.plus |= part != Part::Minus;
            }
            Part::Brackets => {
                if signed || self.plus || self.minus {
                    return Err(wrong("cannot use \"PR\" and \"S\"/\"PL\"/\"MI\"/\"SG\" together"));
                }
                self.brackets = true;
            }
            Part::Roman { .. } => self.roman = true,
            Part::Shift => {
                if self.point {
                    return Err(wrong("cannot use \"V\" and decimal point together"));
                }
                self.shifts = true;
            }
            Part::Exponent => {
                if self.exponent {
                    return Err(wrong("cannot use \"EEEE\" twice"));
                }
                let others =
                    [self.blank, self.fill, signed, self.brackets, self.minus, self.plus, self.roman];
                if self.shifts || others.contains(&true) {
                    return Err(wrong("\"EEEE\" is incompatible with other formats").detail(
                        "\"EEEE\" may only be used together with digit and decimal point patterns.",
                    ));
                }
                self.exponent = true;
            }
            Part::Comma | Part::Currency | Part::Spelled | Part::Ordinal { .. } | Part::Literal(_) => {}
        }
        self.parts.push(part);
        Ok(())
    }
}

/// A number, written with as many digits as a template has, without its sign.
struct Written {
    negative: bool,
    digits: String,
    /// Places before the point that it leaves free.
    free: usize,
}

impl Written {
    /// Digits of a number behind its sign, in a template's places: too many before the point leave nothing but `#`.
    fn of(before: usize, behind: usize, text: &str) -> Self {
        let (negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text),
        };
        let own = digits.find('.').unwrap_or(digits.len());
        if own > before {
            let mut filled = "#".repeat(before + behind + 1);
            filled.replace_range(before..=before, ".");
            return Self { negative, digits: filled, free: 0 };
        }
        Self { negative, digits: digits.to_owned(), free: before - own }
    }
}

/// Stands where a number has no more digits: the text ends there.
const END: char = '\0';

/// Fills a template's parts from left to right (`NUM_processor`).
struct Filling<'t> {
    template: &'t Template,
    digits: &'t [u8],
    next: usize,
    negative: bool,
    brackets: bool,
    sign: Option<SignPlace>,
    sign_written: bool,
    free: usize,
    zero_start: usize,
    /// The place of the last digit behind the point that FM keeps.
    last: Option<usize>,
    current: usize,
    /// The place behind which a sign at the end stands.
    last_place: Option<usize>,
    in_number: bool,
    /// Digits behind the point.
    behind: usize,
    out: String,
}

impl<'t> Filling<'t> {
    fn new(template: &'t Template, (before, behind): (usize, usize), written: &'t Written) -> Self {
        let digits = written.digits.as_bytes();
        let mut brackets = template.brackets;
        let mut sign = template.sign;
        let sign_written;
        if template.plus || template.minus {
            sign_written = !template.plus || template.minus;
        } else {
            brackets &= written.negative || !template.fill;
            sign_written = !written.negative && template.fill && sign.is_none();
            if sign == Some(SignPlace::Before) && before == template.before_sign {
                sign = Some(SignPlace::Behind);
            }
        }
        let mut last = None;
        if template.fill
            && template.point
            && let Some(point) = written.digits.find('.')
        {
            let kept = digits[point..].iter().rposition(|digit| *digit != b'0').expect("the point is none");
            let mut kept = point + kept;
            if template.zero_end > written.free {
                kept = kept.max((digits.len() - 1).min(template.zero_end - written.free));
            }
            last = Some(kept);
        }
        let ends = [!sign_written && written.free == 0, written.free > 0, template.point];
        let end = before + behind + ends.into_iter().filter(|more| *more).count();
        Self {
            template,
            digits,
            next: 0,
            negative: written.negative,
            brackets,
            sign,
            sign_written,
            free: written.free,
            zero_start: template.zero_start.saturating_sub(1),
            last,
            current: 0,
            last_place: end.checked_sub(2),
            in_number: false,
            behind,
            out: String::new(),
        }
    }

    fn ends_at_point(&self) -> bool {
        self.last.is_some_and(|last| self.digits[last] == b'.')
    }

    /// A zero before the point that a template of nines does not show.
    fn is_silent_zero(&self) -> bool {
        !self.template.zero && self.next == 0 && self.digits.first() == Some(&b'0') && self.behind != 0
    }

    /// `9`, `0` or the point (`NUM_numpart_to_char`).
    fn digit(&mut self, part: Part) {
        self.in_number = false;
        let (zero, fill) = (self.template.zero, self.template.fill);
        if !self.sign_written
            && (self.current >= self.free || zero && self.zero_start == self.current)
            && (!self.is_silent_zero() || self.ends_at_point())
        {
            if self.sign.is_some() {
                if self.sign == Some(SignPlace::Before) {
                    self.out.push(if self.negative { '-' } else { '+' });
                    self.sign_written = true;
                }
            } else if self.brackets {
                self.out.push(if self.negative { '<' } else { ' ' });
                self.sign_written = true;
            } else {
                if self.negative {
                    self.out.push('-');
                } else if !fill {
                    self.out.push(' ');
                }
                self.sign_written = true;
            }
        }
        let has_begun = zero && self.zero_start <= self.current;
        if self.current < self.free {
            if has_begun {
                self.out.push('0');
                self.in_number = true;
            } else if !fill {
                self.out.push(' ');
            }
        } else {
            let is_left_out = self.last.is_some_and(|last| self.next > last) && part != Part::Zero;
            match self.digits.get(self.next) {
                Some(b'.') => self.out.push('.'),
                _ if is_left_out => {}
                _ if self.is_silent_zero() && !fill => self.out.push(' '),
                _ if self.is_silent_zero() => self.out.push_str(if self.ends_at_point() { "0" } else { "" }),
                digit => {
                    self.out.push(digit.map_or(END, |digit| char::from(*digit)));
                    self.in_number = true;
                }
            }
            self.next = self.digits.len().min(self.next + 1);
        }
        let is_last_shown = self.last == Some(self.next);
        if self.last_place == Some(self.current) && !is_last_shown {
            if self.sign_written && self.brackets {
                self.out.push(if self.negative { '>' } else { ' ' });
            } else if self.sign == Some(SignPlace::Behind) {
                self.out.push(if self.negative { '-' } else { '+' });
            }
        }
        self.current += 1;
    }

    fn fill(mut self) -> Result<String> {
        let fill = self.template.fill;
        for part in &self.template.parts {
            match part {
                Part::Nine | Part::Zero | Part::Point => self.digit(*part),
                Part::Comma if self.in_number => self.out.push(','),
                Part::Currency => self.out.push(' '),
                Part::Minus if self.negative => self.out.push('-'),
                Part::Plus if !self.negative => self.out.push('+'),
                Part::Comma | Part::Minus | Part::Plus if !fill => self.out.push(' '),
                Part::PlusMinus => self.out.push(if self.negative { '-' } else { '+' }),
                Part::Ordinal { lower } if !self.negative && !self.template.point => {
                    self.out += &ordinal(self.digits, *lower)?;
                }
                Part::Literal(sign) => self.out.push(*sign),
                _ => {}
            }
        }
        self.out.truncate(self.out.find(END).unwrap_or(self.out.len()));
        Ok(self.out)
    }
}

/// The ending of an ordinal number; places that are too few for it have none.
fn ordinal(digits: &[u8], lower: bool) -> Result<String> {
    let ending = match digits {
        [b'#', ..] => "",
        [.., last] if !last.is_ascii_digit() => {
            let shown = String::from_utf8_lossy(digits);
            return Err(Error::new("22P02", format!("\"{shown}\" is not a number")));
        }
        [.., b'1', _] => "th",
        [.., b'1'] => "st",
        [.., b'2'] => "nd",
        [.., b'3'] => "rd",
        _ => "th",
    };
    Ok(if lower { ending.to_owned() } else { ending.to_uppercase() })
}

const UNITS: [&str; 9] = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX"];
const TENS: [&str; 9] = ["X", "XX", concat!("XX", "X"), "XL", "L", "LX", "LXX", "LXXX", "XC"];
const HUNDREDS: [&str; 9] = ["C", "CC", "CCC", "CD", "D", "DC", "DCC", "DCCC", "CM"];

/// A Roman number; signs `#` where there is none.
fn roman(number: i32) -> String {
    if !(1..=3999).contains(&number) {
        return "#".repeat(15);
    }
    let mut out = "M".repeat(number as usize / 1000);
    for (names, digit) in [(HUNDREDS, number / 100 % 10), (TENS, number / 10 % 10), (UNITS, number % 10)] {
        out += if digit > 0 { names[digit as usize - 1] } else { "" };
    }
    out
}

/// A Roman number, in place of its part; digits are not shown, and no sign is known.
fn with_roman(template: &Template, number: i32) -> Made {
    let mut out = String::new();
    for part in &template.parts {
        match part {
            Part::Roman { lower } => {
                let shown = roman(number);
                let shown = if *lower { shown.to_lowercase() } else { shown };
                out += &if template.fill { shown } else { format!("{shown:>15}") };
            }
            Part::Currency => out.push(' '),
            Part::Comma | Part::Minus | Part::Plus if !template.fill => out.push(' '),
            Part::PlusMinus => break,
            Part::Literal(sign) => out.push(*sign),
            _ => {}
        }
    }
    Ok(Datum::text(out))
}

/// `to_char` of an integer.
pub(super) fn int4_to_char(value: &Datum, pattern: &Datum) -> Made {
    let number = int(value);
    let template = Template::read(str(pattern))?;
    if template.exponent {
        return Ok(Datum::text(scientific_float(number as f64, &template)));
    }
    integer_to_char(number, &template, |number| i32::try_from(number).is_ok(), "integer")
}

/// `to_char` of a bigint.
pub(super) fn int8_to_char(value: &Datum, pattern: &Datum) -> Made {
    let number = int(value);
    let template = Template::read(str(pattern))?;
    if template.exponent {
        return Ok(Datum::text(scientific(&Numeric::from_i128(number.into(), 0), &template)?));
    }
    integer_to_char(number, &template, |_| true, "bigint")
}

fn integer_to_char(number: i64, template: &Template, fits: fn(i64) -> bool, what: &str) -> Made {
    if template.roman {
        return with_roman(template, i32::try_from(number).map_err(|_| out_of_range("integer"))?);
    }
    let power = 10_i64.checked_pow(template.shift as u32).filter(|power| fits(*power));
    let shown = power.and_then(|power| number.checked_mul(power)).filter(|shown| fits(*shown));
    let mut text = shown.ok_or_else(|| out_of_range(what))?.to_string();
    if template.behind > 0 {
        text.push('.');
        text.extend(std::iter::repeat_n('0', template.behind));
    }
    filled(template, template.behind, &text)
}

/// `to_char` of a numeric.
pub(super) fn numeric_to_char(value: &Datum, pattern: &Datum) -> Made {
    let number = numeric(value);
    let template = Template::read(str(pattern))?;
    if template.roman {
        let rounded = number.to_i64("integer")?;
        return with_roman(&template, i32::try_from(rounded).map_err(|_| out_of_range("integer"))?);
    }
    if template.exponent {
        return Ok(Datum::text(scientific(number, &template)?));
    }
    let text = number.mul(&power_of_ten(template.shift as i64)?)?.round(template.behind as i32).to_string();
    filled(&template, template.behind, &text)
}

/// `to_char` of a real.
pub(super) fn float4_to_char(value: &Datum, pattern: &Datum) -> Made {
    float_to_char(float(value), pattern, f32::DIGITS as usize, |value, power| {
        f64::from(value as f32 * power as f32)
    })
}

/// `to_char` of a double precision.
pub(super) fn float8_to_char(value: &Datum, pattern: &Datum) -> Made {
    float_to_char(float(value), pattern, f64::DIGITS as usize, |value, power| value * power)
}

/// A float whose type has `digits` decimal digits; no more are shown.
fn float_to_char(value: f64, pattern: &Datum, digits: usize, times: fn(f64, f64) -> f64) -> Made {
    let template = Template::read(str(pattern))?;
    if template.roman {
        // A number beyond the integers has no Roman number either.
        return with_roman(&template, value.round_ties_even() as i32);
    }
    if template.exponent {
        return Ok(Datum::text(scientific_float(value, &template)));
    }
    let shown = if template.shifts { times(value, 10_f64.powi(template.shift as i32)) } else { value };
    let whole = written(shown.abs(), 0).len();
    let behind = if whole >= digits { 0 } else { template.behind.min(digits - whole) };
    filled(&template, behind, &written(shown, behind))
}

/// A float with `behind` digits behind the point, as C prints it.
fn written(value: f64, behind: usize) -> String {
    match value {
        _ if value.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "Infinity".to_owned(),
        f64::NEG_INFINITY => "-Infinity".to_owned(),
        _ => format!("{value:.behind$}"),
    }
}

fn out_of_range(what: &str) -> Error {
    Error::new("22003", format!("{what} out of range"))
}

fn power_of_ten(exponent: i64) -> Result<Numeric> {
    let overflow = || Error::new("22003", "value overflows numeric format");
    Numeric::parse(&format!("1e{exponent}")).ok_or_else(overflow)
}

fn filled(template: &Template, behind: usize, text: &str) -> Made {
    let before = template.before + template.shift;
    let written = Written::of(before, behind, text);
    Filling::new(template, (before, behind), &written).fill().map(Datum::text)
}

/// A mantissa and its exponent, with a blank in place of a plus.
fn with_exponent(mantissa: &str, exponent: i64) -> String {
    let blank = if mantissa.starts_with('-') { "" } else { " " };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{blank}{mantissa}e{sign}{:02}", exponent.abs())
}

/// A number that is none, in a pattern with an exponent.
fn without_number(template: &Template) -> String {
    format!(" {}.{}", "#".repeat(template.before), "#".repeat(template.behind + 4))
}

fn scientific_float(value: f64, template: &Template) -> String {
    if !value.is_finite() {
        return without_number(template);
    }
    let shown = format!("{value:.*e}", template.behind);
    let (mantissa, exponent) = shown.split_once('e').expect("it has an exponent");
    with_exponent(mantissa, exponent.parse().expect("it is a number"))
}

/// The number divided by the power of ten of its first digit, which rounding may make 10 (`numeric_out_sci`).
fn scientific(number: &Numeric, template: &Template) -> Result<String> {
    if !number.is_finite() {
        return Ok(without_number(template));
    }
    let behind = template.behind;
    let shown = number.abs().to_string();
    let (whole, fraction) = shown.split_once('.').unwrap_or((&shown, ""));
    let exponent = match (whole, fraction.find(|digit| digit != '0')) {
        ("0", None) => 0,
        ("0", Some(zeros)) => -(zeros as i64) - 1,
        _ => whole.len() as i64 - 1,
    };
    let mantissa = number.mul(&power_of_ten(-exponent)?)?.round(behind as i32);
    Ok(with_exponent(&mantissa.to_string(), exponent))
}
