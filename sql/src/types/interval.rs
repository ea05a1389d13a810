//! Intervals: their text form (`IntervalStyle = postgres`), fields cut to those that the type names, arithmetic.

use thermocline_row::Interval;

use super::datetime::{DAY, fraction_micros};
use crate::error::{Error, Result};

const HOUR: i64 = 3_600_000_000;
const MINUTE: i64 = 60_000_000;
const SECOND: i64 = 1_000_000;

pub(crate) fn out_of_range() -> Error {
    Error::new("22008", "interval out of range")
}

fn invalid(text: &str) -> Error {
    Error::new("22007", format!("invalid input syntax for type interval: \"{text}\""))
}

fn field_out(text: &str) -> Error {
    Error::new("22015", format!("interval field value out of range: \"{text}\""))
}

/// The number of the last field (0 year … 5 second) in the modifier of a type, and digits of the second.
#[derive(Clone, Copy, Default)]
pub(crate) struct Limits {
    pub(crate) first: Option<i64>,
    pub(crate) last: Option<i64>,
}

#[derive(Default)]
struct Sum {
    months: i64,
    days: i64,
    micros: i64,
}

impl Sum {
    /// Adds `whole` and `fraction` of a unit, spilling fractions as PostgreSQL does: of months to days, of days to time.
    fn add(&mut self, unit: &str, whole: i64, fraction: f64, text: &str) -> Result<()> {
        let add = |to: &mut i64, count: i64, each: i64| {
            let more = count.checked_mul(each).ok_or_else(|| field_out(text))?;
            grow(to, more, text)
        };
        let unit = unit.strip_suffix('s').filter(|it| it.len() > 1).unwrap_or(unit);
        match unit {
            "microsecond" | "usec" | "us" | "microsec" => {
                add(&mut self.micros, whole, 1)?;
                grow(&mut self.micros, rounded(fraction), text)?;
            }
            "millisecond" | "msec" | "ms" | "millisec" => self.time(whole, fraction, 1000, text)?,
            "second" | "sec" | "s" => self.time(whole, fraction, SECOND, text)?,
            "minute" | "min" | "m" => self.time(whole, fraction, MINUTE, text)?,
            "hour" | "hr" | "h" => self.time(whole, fraction, HOUR, text)?,
            "day" | "d" => {
                add(&mut self.days, whole, 1)?;
                grow(&mut self.micros, rounded(fraction * DAY as f64), text)?;
            }
            "week" | "w" => {
                add(&mut self.days, whole, 7)?;
                self.some_days(fraction * 7.0, text)?;
            }
            "month" | "mon" => {
                add(&mut self.months, whole, 1)?;
                self.some_days(fraction * 30.0, text)?;
            }
            "year" | "yr" | "y" => self.years(whole, fraction, 1, text)?,
            "decade" | "dec" => self.years(whole, fraction, 10, text)?,
            "century" | "centurie" | "cent" | "c" => self.years(whole, fraction, 100, text)?,
            "millennium" | "millennia" | "mil" => self.years(whole, fraction, 1000, text)?,
            _ => return Err(invalid(text)),
        }
        Ok(())
    }

    fn time(&mut self, whole: i64, fraction: f64, unit: i64, text: &str) -> Result<()> {
        let more = whole.checked_mul(unit).ok_or_else(|| field_out(text))?;
        grow(&mut self.micros, more, text)?;
        grow(&mut self.micros, rounded(fraction * unit as f64), text)
    }

    fn years(&mut self, whole: i64, fraction: f64, unit: i64, text: &str) -> Result<()> {
        let more = whole.checked_mul(unit * 12).ok_or_else(|| field_out(text))?;
        grow(&mut self.months, more, text)?;
        grow(&mut self.months, rounded(fraction * (unit * 12) as f64), text)
    }

    fn some_days(&mut self, days: f64, text: &str) -> Result<()> {
        let whole = days.trunc();
        grow(&mut self.days, whole as i64, text)?;
        grow(&mut self.micros, rounded((days - whole) * DAY as f64), text)
    }

    fn finish(self, text: &str) -> Result<Interval> {
        let months = i32::try_from(self.months).map_err(|_| field_out(text))?;
        let days = i32::try_from(self.days).map_err(|_| field_out(text))?;
        Ok(Interval::new(months, days, self.micros))
    }
}

fn grow(sum: &mut i64, more: i64, text: &str) -> Result<()> {
    *sum = sum.checked_add(more).ok_or_else(|| field_out(text))?;
    Ok(())
}

fn rounded(number: f64) -> i64 {
    number.round_ties_even() as i64
}

/// A number at the front: sign, digits before the point, fraction, rest.
fn number<'w>(word: &'w str, text: &str) -> Result<(i64, f64, &'w str)> {
    let negative = word.starts_with('-');
    let body = word.strip_prefix(['+', '-']).unwrap_or(word);
    let end = body.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(body.len());
    let (digits, rest) = body.split_at(end);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return Err(invalid(text));
    }
    let whole = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| field_out(text))? };
    let part: f64 =
        if fraction.is_empty() { 0.0 } else { format!("0.{fraction}").parse().map_err(|_| invalid(text))? };
    Ok((if negative { -whole } else { whole }, if negative { -part } else { part }, rest))
}

/// Parts of an interval's text: units, and numbers or times with their signs (`ParseDateTime`).
fn parts_of<'t>(lower: &'t str, text: &str) -> Result<Vec<&'t str>> {
    let mut parts = Vec::new();
    let mut rest = lower;
    while let Some(first) = rest.chars().next() {
        let body = rest.strip_prefix(['+', '-']).unwrap_or(rest);
        let is_number = body.starts_with(|c: char| c.is_ascii_digit() || c == '.');
        let end = if is_number {
            let signed = rest.len() - body.len();
            let end = body.find(|c: char| !(c.is_ascii_digit() || ":.-".contains(c)));
            signed + end.unwrap_or(body.len())
        } else if first.is_ascii_alphabetic() {
            rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len())
        } else {
            // Blanks and most signs say nothing.
            if !(first.is_ascii_whitespace() || first.is_ascii_punctuation() && !"+-".contains(first)) {
                return Err(invalid(text));
            }
            rest = &rest[1..];
            continue;
        };
        parts.push(&rest[..end]);
        rest = &rest[end..];
    }
    Ok(parts)
}

/// The unit's place among those that may stand once each.
fn mask(unit: &str, fraction: f64) -> u32 {
    const UNITS: [&[&str]; 12] = [
        &["microsecond", "usec", "us", "microsec"],
        &["millisecond", "msec", "ms", "millisec"],
        &["second", "sec", "s"],
        &["minute", "min", "m"],
        &["hour", "hr", "h"],
        &["day", "d"],
        &["week", "w"],
        &["month", "mon"],
        &["year", "yr", "y"],
        &["decade", "dec"],
        &["century", "centurie", "cent", "c"],
        &["millennium", "millennia", "mil"],
    ];
    let unit = unit.strip_suffix('s').filter(|it| it.len() > 1).unwrap_or(unit);
    match UNITS.iter().position(|names| names.contains(&unit)) {
        // A fraction of a second is of smaller units, too.
        Some(2) if fraction != 0.0 => 0b111,
        Some(place) => 1 << place,
        None => 0,
    }
}

/// The fields of a time: hours, minutes, seconds.
const TIME_MASK: u32 = 0b11111;

/// Reads an interval: its parts from the last one to the first, each unit once (`DecodeInterval`).
pub(crate) fn parse(text: &str, limits: Limits) -> Result<Interval> {
    let lower = text.trim().to_lowercase();
    if lower.starts_with('p') {
        return parse_iso(&lower, text);
    }
    const FIELDS: [&str; 6] = ["year", "month", "day", "hour", "minute", "second"];
    let mut sum = Sum::default();
    let (mut ago, mut seen, mut unit) = (false, 0, "");
    for part in parts_of(&lower, text)?.into_iter().rev() {
        let body = part.strip_prefix(['+', '-']).unwrap_or(part);
        let fields = if body.contains(':') {
            sum.micros = sum.micros.checked_add(clock(part, limits, text)?).ok_or_else(|| field_out(text))?;
            // A number before a time counts days.
            unit = "day";
            TIME_MASK
        } else if !body.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            if part == "ago" {
                ago = true;
            } else if mask(part, 0.0) == 0 {
                return Err(invalid(text));
            } else {
                unit = part;
            }
            continue;
        } else if let Some((years, months)) = body.split_once('-') {
            // `1-2`: years and months.
            unit = "month";
            let (years, months): (i64, i64) =
                (years.parse().map_err(|_| invalid(text))?, months.parse().map_err(|_| invalid(text))?);
            if months > 11 {
                return Err(field_out(text));
            }
            let total = years.checked_mul(12).and_then(|all| all.checked_add(months));
            let total = total.ok_or_else(|| field_out(text))?;
            sum.add(unit, if part.starts_with('-') { -total } else { total }, 0.0, text)?;
            mask(unit, 0.0)
        } else {
            if unit.is_empty() {
                unit = FIELDS[limits.last.unwrap_or(5) as usize];
            }
            let (whole, fraction, rest) = number(part, text)?;
            if !rest.is_empty() {
                return Err(invalid(text));
            }
            sum.add(unit, whole, fraction, text)?;
            let fields = mask(unit, fraction);
            if fields == mask("hour", 0.0) {
                unit = "day";
            }
            fields
        };
        if seen & fields != 0 {
            return Err(invalid(text));
        }
        seen |= fields;
    }
    if seen == 0 {
        return Err(invalid(text));
    }
    let interval = sum.finish(text)?;
    if ago { neg(interval) } else { Ok(interval) }
}

/// `1:02`, `1:02:03.5`
fn clock(word: &str, limits: Limits, text: &str) -> Result<i64> {
    let negative = word.starts_with('-');
    let body = word.strip_prefix(['+', '-']).unwrap_or(word);
    let parts: Vec<&str> = body.split(':').collect();
    let whole = |part: &str| part.parse::<i64>().map_err(|_| invalid(text));
    let (hours, minutes, seconds) = match parts[..] {
        [minutes, seconds]
            if seconds.contains('.') || (limits.first == Some(4) && limits.last == Some(5)) =>
        {
            ("0", minutes, seconds)
        }
        [hours, minutes] => (hours, minutes, "0"),
        [hours, minutes, seconds] => (hours, minutes, seconds),
        _ => return Err(invalid(text)),
    };
    let (seconds, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
    let (hours, minutes, seconds) = (whole(hours)?, whole(minutes)?, whole(seconds)?);
    if minutes > 59 || seconds > 59 {
        return Err(field_out(text));
    }
    let fraction = fraction_micros(fraction).ok_or_else(|| invalid(text))?;
    let hours = hours.checked_mul(HOUR).ok_or_else(|| field_out(text))?;
    let total =
        hours.checked_add(minutes * MINUTE + seconds * SECOND + fraction).ok_or_else(|| field_out(text))?;
    Ok(if negative { -total } else { total })
}

/// `P1Y2M3DT4H5M6S`, or `P0001-02-03T04:05:06`
fn parse_iso(lower: &str, text: &str) -> Result<Interval> {
    let mut sum = Sum::default();
    let (date, time) = lower[1..].split_once('t').unwrap_or((&lower[1..], ""));
    if date.is_empty() && time.is_empty() {
        return Err(invalid(text));
    }
    const DATE: [(&str, &str); 4] = [("y", "year"), ("m", "month"), ("w", "week"), ("d", "day")];
    const TIME: [(&str, &str); 3] = [("h", "hour"), ("m", "minute"), ("s", "second")];
    for (part, letters, sign, units) in [
        (date, &DATE[..], '-', ["year", "month", "day"]),
        (time, &TIME[..], ':', ["hour", "minute", "second"]),
    ] {
        let is_alternative = !part.contains(char::is_alphabetic) && part.chars().skip(1).any(|c| c == sign);
        if is_alternative {
            let pieces: Vec<&str> = part.split(sign).collect();
            if pieces.len() > units.len() {
                return Err(invalid(text));
            }
            for (piece, unit) in pieces.into_iter().zip(units) {
                let (whole, fraction, rest) = number(piece, text)?;
                if !rest.is_empty() {
                    return Err(invalid(text));
                }
                sum.add(unit, whole, fraction, text)?;
            }
            continue;
        }
        let mut rest = part;
        while !rest.is_empty() {
            let (whole, fraction, after) = number(rest, text)?;
            let unit = letters.iter().find(|(letter, _)| after.starts_with(letter));
            let (_, unit) = unit.ok_or_else(|| invalid(text))?;
            sum.add(unit, whole, fraction, text)?;
            rest = &after[1..];
        }
    }
    sum.finish(text)
}

/// Cuts an interval to the fields of its type (`interval day to minute`), and rounds its seconds.
pub(crate) fn adjust(interval: Interval, last: i64, digits: Option<i32>) -> Interval {
    let Interval { months, days, micros } = interval;
    match last {
        0 => Interval::new(months / 12 * 12, 0, 0),
        1 => Interval::new(months, 0, 0),
        2 => Interval::new(months, days, 0),
        3 => Interval::new(months, days, micros / HOUR * HOUR),
        4 => Interval::new(months, days, micros / MINUTE * MINUTE),
        _ => Interval::new(months, days, super::datetime::round_micros(micros, digits.unwrap_or(6))),
    }
}

/// Seconds with their fraction: `05`, `05.25`; without zeros in front if not `padded`.
pub(crate) fn fraction_text(micros: i64, padded: bool) -> String {
    let (whole, part) = (micros / SECOND, micros % SECOND);
    let mut text = if padded { format!("{whole:02}") } else { whole.to_string() };
    if part != 0 {
        let digits = format!("{part:06}");
        text.push('.');
        text.push_str(digits.trim_end_matches('0'));
    }
    text
}

pub(crate) fn show(interval: Interval) -> String {
    let mut parts = Vec::new();
    let mut negative_before = false;
    let (years, months) = (interval.months / 12, interval.months % 12);
    for (count, unit) in [(years, "year"), (months, "mon"), (interval.days, "day")] {
        if count != 0 {
            let plus = if negative_before && count > 0 { "+" } else { "" };
            parts.push(format!("{plus}{count} {unit}{}", if count == 1 { "" } else { "s" }));
            negative_before = count < 0;
        }
    }
    if interval.micros != 0 || parts.is_empty() {
        let sign = match interval.micros {
            micros if micros < 0 => "-",
            _ if negative_before => "+",
            _ => "",
        };
        let micros = interval.micros.unsigned_abs();
        let (hours, minutes) = (micros / HOUR as u64, micros / MINUTE as u64 % 60);
        let seconds = fraction_text((micros % MINUTE as u64) as i64, true);
        parts.push(format!("{sign}{hours:02}:{minutes:02}:{seconds}"));
    }
    parts.join(" ")
}

pub(crate) fn neg(interval: Interval) -> Result<Interval> {
    match (interval.months.checked_neg(), interval.days.checked_neg(), interval.micros.checked_neg()) {
        (Some(months), Some(days), Some(micros)) => Ok(Interval::new(months, days, micros)),
        _ => Err(out_of_range()),
    }
}

pub(crate) fn add(a: Interval, b: Interval) -> Result<Interval> {
    match (a.months.checked_add(b.months), a.days.checked_add(b.days), a.micros.checked_add(b.micros)) {
        (Some(months), Some(days), Some(micros)) => Ok(Interval::new(months, days, micros)),
        _ => Err(out_of_range()),
    }
}

/// Times a factor, with fractions of months going to days and of days to time (`interval_mul`).
pub(crate) fn scale(interval: Interval, factor: f64) -> Result<Interval> {
    let whole = |number: f64| {
        if number.is_nan() || number > f64::from(i32::MAX) || number < f64::from(i32::MIN) {
            return Err(out_of_range());
        }
        Ok(number as i32)
    };
    let months = f64::from(interval.months) * factor;
    let days = f64::from(interval.days) * factor;
    let (whole_months, whole_days) = (whole(months)?, whole(days)?);
    let round = |seconds: f64| (seconds * 1e6).round_ties_even() / 1e6;
    let month_days = round((months - f64::from(whole_months)) * 30.0);
    let mut seconds = round((days - f64::from(whole_days) + month_days - month_days.trunc()) * 86400.0);
    let mut all_days = f64::from(whole_days);
    if seconds.abs() >= 86400.0 {
        all_days += (seconds / 86400.0).trunc();
        seconds -= (seconds / 86400.0).trunc() * 86400.0;
    }
    let all_days = whole(all_days + month_days.trunc())?;
    let micros = (interval.micros as f64 * factor + seconds * 1e6).round_ties_even();
    if !(-9.2e18..=9.2e18).contains(&micros) {
        return Err(out_of_range());
    }
    Ok(Interval::new(whole_months, all_days, micros as i64))
}

/// Whole days of hours become days (`justify_hours`), whole months of days months (`justify_days`).
pub(crate) fn justify(interval: Interval, hours: bool, days: bool) -> Interval {
    let (mut months, mut all_days, mut micros) = (interval.months, i64::from(interval.days), interval.micros);
    if hours {
        all_days += micros / DAY;
        micros %= DAY;
        if all_days > 0 && micros < 0 {
            micros += DAY;
            all_days -= 1;
        } else if all_days < 0 && micros > 0 {
            micros -= DAY;
            all_days += 1;
        }
    }
    if days {
        months += (all_days / 30) as i32;
        all_days %= 30;
        if months > 0 && all_days < 0 {
            all_days += 30;
            months -= 1;
        } else if months < 0 && all_days > 0 {
            all_days -= 30;
            months += 1;
        }
    }
    Interval::new(months, all_days as i32, micros)
}
