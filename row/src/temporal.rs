//! Dates, times, timestamps and intervals.
//!
//! All of them count from the Unix epoch, in the proleptic Gregorian calendar without leap seconds: a [`Date`] in days
//! (i32), a [`Timestamp`] or [`TimestampTz`] in microseconds (i64), a [`Time`] in microseconds since midnight, 24:00
//! included. Display and `FromStr` are ISO 8601; years outside of 0000 to 9999 carry a sign. A `TimestampTz` is shown in
//! UTC and read with any offset. An [`Interval`] compares as in PostgreSQL: a month is 30 days, a day 24 hours, so that
//! `P1M` equals `P30D`.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

/// Microseconds of a day.
pub const MICROS_PER_DAY: i64 = 86_400_000_000;
const MICROS_PER_SECOND: i64 = 1_000_000;
const DAYS_PER_MONTH: i64 = 30;

/// A day: days since 1970-01-01.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date(pub i32);

/// A time of day: microseconds since midnight, 24:00 included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(i64);

/// A day and time without a time zone: microseconds since 1970-01-01 00:00.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

/// A point in time: microseconds since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimestampTz(pub i64);

/// A span of months, days and microseconds, each of its own sign.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interval {
    /// Months; 12 of them are a year.
    pub months: i32,
    /// Days.
    pub days: i32,
    /// Microseconds.
    pub micros: i64,
}

/// 16 bytes that identify something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

/// Why a text is no date, time, interval or UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TemporalError {
    /// The text is not of the form that is wanted; the form is given.
    Syntax(&'static str),
    /// There is no such day, or no such time of day.
    NoSuch(&'static str),
    /// The type does not reach that far.
    OutOfRange,
}

impl fmt::Display for TemporalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TemporalError::Syntax(form) => write!(f, "write it as {form}"),
            TemporalError::NoSuch(what) => write!(f, "there is no such {what}"),
            TemporalError::OutOfRange => f.write_str("out of range for the type"),
        }
    }
}

impl std::error::Error for TemporalError {}

const DATE_FORM: &str = "YYYY-MM-DD";
const TIME_FORM: &str = "HH:MM[:SS[.ffffff]]";
const TIMESTAMP_FORM: &str = "YYYY-MM-DDTHH:MM:SS[.ffffff]";
const TIMESTAMPTZ_FORM: &str = "YYYY-MM-DDTHH:MM:SS[.ffffff](Z|±HH:MM)";
const INTERVAL_FORM: &str = "P[nY][nM][nW][nD][T[nH][nM][n[.n]S]]";
const UUID_FORM: &str = "32 hexadecimal digits, optionally grouped 8-4-4-4-12";

/// Days since the epoch of a civil date; the algorithm is Howard Hinnant's "days_from_civil".
const fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year, month and day of a count of days since the epoch ("civil_from_days").
const fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400;
    (if month <= 2 { year + 1 } else { year }, month, day)
}

const fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl Date {
    /// The day of a civil date, if there is one and the type reaches that far.
    #[must_use]
    pub const fn from_ymd(year: i64, month: u8, day: u8) -> Option<Self> {
        let (m, d) = (month as i64, day as i64);
        if m < 1 || m > 12 || d < 1 || d > days_of_month(year, m) || year.abs() > 6_000_000 {
            return None;
        }
        let days = days_from_civil(year, m, d);
        if days < i32::MIN as i64 || days > i32::MAX as i64 { None } else { Some(Self(days as i32)) }
    }

    /// Year (0 is 1 BC), month and day.
    #[must_use]
    pub const fn ymd(self) -> (i64, u8, u8) {
        let (year, month, day) = civil_from_days(self.0 as i64);
        (year, month as u8, day as u8)
    }
}

impl Time {
    /// The last time of day, 24:00.
    pub const MAX: Self = Self(MICROS_PER_DAY);

    /// The time so many microseconds after midnight, if the day has as many.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Option<Self> {
        if micros >= 0 && micros <= MICROS_PER_DAY { Some(Self(micros)) } else { None }
    }

    /// Hour, minute, second and microsecond, if there is such a time.
    #[must_use]
    pub const fn from_hms(hour: u8, minute: u8, second: u8, micro: u32) -> Option<Self> {
        if hour > 24 || minute > 59 || second > 59 || micro > 999_999 {
            return None;
        }
        let seconds = (hour as i64 * 60 + minute as i64) * 60 + second as i64;
        Self::from_micros(seconds * MICROS_PER_SECOND + micro as i64)
    }

    /// Microseconds since midnight.
    #[must_use]
    pub const fn micros(self) -> i64 {
        self.0
    }
}

impl Timestamp {
    /// The time `time` of the day `date`, if the type reaches that far.
    #[must_use]
    pub const fn new(date: Date, time: Time) -> Option<Self> {
        // In 128 bits, since the type's first day begins before the type does.
        let micros = date.0 as i128 * MICROS_PER_DAY as i128 + time.0 as i128;
        if micros < i64::MIN as i128 || micros > i64::MAX as i128 { None } else { Some(Self(micros as i64)) }
    }

    /// Its day.
    #[must_use]
    pub const fn date(self) -> Date {
        // 2^63 microseconds are 1.1 * 10^8 days.
        Date(self.0.div_euclid(MICROS_PER_DAY) as i32)
    }

    /// Its time of day.
    #[must_use]
    pub const fn time(self) -> Time {
        Time(self.0.rem_euclid(MICROS_PER_DAY))
    }
}

impl Interval {
    /// A span of months, days and microseconds.
    #[must_use]
    pub const fn new(months: i32, days: i32, micros: i64) -> Self {
        Self { months, days, micros }
    }

    /// The span in microseconds, with months of 30 days and days of 24 hours: what comparison compares.
    #[must_use]
    pub const fn span_micros(self) -> i128 {
        let days = self.months as i64 * DAYS_PER_MONTH + self.days as i64;
        days as i128 * MICROS_PER_DAY as i128 + self.micros as i128
    }

    /// The interval of such a span that has less than 30 days and less than 24 hours, if the type reaches that far.
    #[must_use]
    pub const fn from_span_micros(span: i128) -> Option<Self> {
        let days = span / MICROS_PER_DAY as i128;
        let micros = (span % MICROS_PER_DAY as i128) as i64;
        let (months, days) = (days / DAYS_PER_MONTH as i128, (days % DAYS_PER_MONTH as i128) as i32);
        if months >= i32::MIN as i128 && months <= i32::MAX as i128 {
            return Some(Self { months: months as i32, days, micros });
        }
        // The most months with more days or microseconds on top: only days can carry the rest.
        let edge = if months > 0 { i32::MAX } else { i32::MIN };
        let days = (months - edge as i128) * DAYS_PER_MONTH as i128 + days as i128;
        if days >= i32::MIN as i128 && days <= i32::MAX as i128 {
            return Some(Self { months: edge, days: days as i32, micros });
        }
        let day_edge = if months > 0 { i32::MAX } else { i32::MIN };
        let micros = (days - day_edge as i128) * MICROS_PER_DAY as i128 + micros as i128;
        if micros < i64::MIN as i128 || micros > i64::MAX as i128 {
            return None;
        }
        Some(Self { months: edge, days: day_edge, micros: micros as i64 })
    }
}

impl PartialEq for Interval {
    fn eq(&self, other: &Self) -> bool {
        self.span_micros() == other.span_micros()
    }
}

impl Eq for Interval {}

impl PartialOrd for Interval {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Interval {
    fn cmp(&self, other: &Self) -> Ordering {
        self.span_micros().cmp(&other.span_micros())
    }
}

impl Hash for Interval {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.span_micros().hash(state);
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.ymd();
        if (0..=9999).contains(&year) {
            write!(f, "{year:04}-{month:02}-{day:02}")
        } else {
            write!(f, "{year:+05}-{month:02}-{day:02}")
        }
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.0 / MICROS_PER_SECOND, self.0 % MICROS_PER_SECOND);
        write!(f, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)?;
        write_fraction(f, micros)
    }
}

/// A point and the digits of `micros` without zeros at the end; nothing for 0.
fn write_fraction(f: &mut fmt::Formatter<'_>, micros: i64) -> fmt::Result {
    if micros == 0 {
        return Ok(());
    }
    write!(f, ".{}", format!("{micros:06}").trim_end_matches('0'))
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}T{}", self.date(), self.time())
    }
}

impl fmt::Display for TimestampTz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}Z", Timestamp(self.0))
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("P")?;
        let mut part = |value: i64, unit: &str| if value == 0 { Ok(()) } else { write!(f, "{value}{unit}") };
        part(i64::from(self.months / 12), "Y")?;
        part(i64::from(self.months % 12), "M")?;
        part(i64::from(self.days), "D")?;
        if self.micros != 0 {
            f.write_str("T")?;
            let mut part =
                |value: i64, unit: &str| if value == 0 { Ok(()) } else { write!(f, "{value}{unit}") };
            let seconds = self.micros / MICROS_PER_SECOND;
            part(seconds / 3600, "H")?;
            part(seconds / 60 % 60, "M")?;
            let rest = self.micros % (60 * MICROS_PER_SECOND);
            if rest != 0 {
                let sign = if rest < 0 { "-" } else { "" };
                write!(f, "{sign}{}", rest.unsigned_abs() / MICROS_PER_SECOND.unsigned_abs())?;
                write_fraction(f, (rest % MICROS_PER_SECOND).abs())?;
                f.write_str("S")?;
            }
        } else if self.months == 0 && self.days == 0 {
            f.write_str("T0S")?;
        }
        Ok(())
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// A number of `min` to `max` ASCII digits and nothing else.
fn digits(text: &str, min: usize, max: usize) -> Option<u32> {
    let fits = (min..=max).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if fits { text.parse().ok() } else { None }
}

impl FromStr for Date {
    type Err = TemporalError;

    fn from_str(text: &str) -> Result<Self, TemporalError> {
        let wrong = TemporalError::Syntax(DATE_FORM);
        let (sign, rest) = match text.as_bytes() {
            [b'-', ..] => (-1, &text[1..]),
            [b'+', ..] => (1, &text[1..]),
            _ => (1, text),
        };
        let mut parts = rest.split('-');
        let (year, month, day) = match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(y), Some(m), Some(d), None) => (digits(y, 4, 7), digits(m, 2, 2), digits(d, 2, 2)),
            _ => return Err(wrong),
        };
        let (Some(year), Some(month), Some(day)) = (year, month, day) else { return Err(wrong) };
        let year = sign * i64::from(year);
        if year.abs() > 5_900_000 {
            return Err(TemporalError::OutOfRange);
        }
        let (m, d) = (i64::from(month), i64::from(day));
        if !(1..=12).contains(&m) || d < 1 || d > days_of_month(year, m) {
            return Err(TemporalError::NoSuch("day"));
        }
        i32::try_from(days_from_civil(year, m, d)).map(Date).map_err(|_| TemporalError::OutOfRange)
    }
}

impl FromStr for Time {
    type Err = TemporalError;

    fn from_str(text: &str) -> Result<Self, TemporalError> {
        let wrong = TemporalError::Syntax(TIME_FORM);
        let (clock, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let mut parts = clock.split(':');
        let (hour, minute) = match (parts.next(), parts.next()) {
            (Some(h), Some(m)) => (digits(h, 2, 2), digits(m, 2, 2)),
            _ => return Err(wrong),
        };
        let second = match parts.next() {
            Some(s) => digits(s, 2, 2),
            None if clock.len() == text.len() => Some(0),
            None => None,
        };
        let micro = digits(fraction, 1, 6).map(|m| m * 10u32.pow(6 - fraction.len() as u32));
        let (Some(h), Some(m), Some(s), Some(micro), None) = (hour, minute, second, micro, parts.next())
        else {
            return Err(wrong);
        };
        Time::from_hms(h as u8, m as u8, s as u8, micro).ok_or(TemporalError::NoSuch("time of day"))
    }
}

impl FromStr for Timestamp {
    type Err = TemporalError;

    /// Date and time with a `T` or a blank between them; a date alone is its midnight.
    fn from_str(text: &str) -> Result<Self, TemporalError> {
        let (date, time) = match text.split_once(['T', 't', ' ']) {
            Some((date, time)) => (date.parse(), time.parse()),
            None => (text.parse(), Ok(Time(0))),
        };
        let form =
            |e| if matches!(e, TemporalError::Syntax(_)) { TemporalError::Syntax(TIMESTAMP_FORM) } else { e };
        Timestamp::new(date.map_err(form)?, time.map_err(form)?).ok_or(TemporalError::OutOfRange)
    }
}

impl FromStr for TimestampTz {
    type Err = TemporalError;

    /// A timestamp with `Z` or an offset (`+02`, `+02:00`, `+0200`) behind it.
    fn from_str(text: &str) -> Result<Self, TemporalError> {
        let wrong = TemporalError::Syntax(TIMESTAMPTZ_FORM);
        let form = |e| if matches!(e, TemporalError::Syntax(_)) { wrong } else { e };
        if let Some(local) = text.strip_suffix(['Z', 'z']) {
            return Ok(Self(local.parse::<Timestamp>().map_err(form)?.0));
        }
        let clock = text.find(['T', 't', ' ']).ok_or(wrong)?;
        let sign = clock + text[clock..].find(['+', '-']).ok_or(wrong)?;
        let local: Timestamp = text[..sign].parse().map_err(form)?;
        let offset = text[sign + 1..].replace(':', "");
        let (hours, minutes) = match offset.len() {
            2 => (digits(&offset, 2, 2), Some(0)),
            4 if offset.is_ascii() => (digits(&offset[..2], 2, 2), digits(&offset[2..], 2, 2)),
            _ => return Err(wrong),
        };
        let (Some(hours), Some(minutes)) = (hours, minutes) else { return Err(wrong) };
        if hours > 23 || minutes > 59 {
            return Err(TemporalError::NoSuch("offset"));
        }
        let offset = i64::from(hours * 60 + minutes) * 60 * MICROS_PER_SECOND;
        let utc = if text.as_bytes()[sign] == b'+' {
            local.0.checked_sub(offset)
        } else {
            local.0.checked_add(offset)
        };
        utc.map(Self).ok_or(TemporalError::OutOfRange)
    }
}

impl FromStr for Interval {
    type Err = TemporalError;

    fn from_str(text: &str) -> Result<Self, TemporalError> {
        let wrong = TemporalError::Syntax(INTERVAL_FORM);
        let mut rest = text.strip_prefix('P').ok_or(wrong)?;
        let (mut months, mut days, mut micros) = (0i64, 0i64, 0i64);
        // Units come in this order, each at most once; `T` separates the two that are written M.
        const UNITS: [(char, i64); 4] = [('Y', 12), ('M', 1), ('W', 7), ('D', 1)];
        const CLOCK: [(char, i64); 3] =
            [('H', 3600 * MICROS_PER_SECOND), ('M', 60 * MICROS_PER_SECOND), ('S', MICROS_PER_SECOND)];
        if rest.is_empty() {
            return Err(wrong);
        }
        let (mut clock, mut next) = (false, 0);
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('T').filter(|after| !clock && !after.is_empty()) {
                (rest, clock, next) = (after, true, 0);
                continue;
            }
            let end = rest.find(|c: char| c.is_ascii_alphabetic()).ok_or(wrong)?;
            let (number, unit) = (&rest[..end], char::from(rest.as_bytes()[end]));
            rest = &rest[end + 1..];
            let units: &[(char, i64)] = if clock { &CLOCK } else { &UNITS };
            let position = units[next..].iter().position(|(u, _)| *u == unit).ok_or(wrong)? + next;
            next = position + 1;
            let scale = units[position].1;
            let value = if unit == 'S' {
                seconds(number).ok_or(wrong)?
            } else {
                let digits = number.strip_prefix(['+', '-']).unwrap_or(number);
                if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                    return Err(wrong);
                }
                number
                    .parse::<i64>()
                    .ok()
                    .and_then(|n| n.checked_mul(scale))
                    .ok_or(TemporalError::OutOfRange)?
            };
            let sum = match (clock, position) {
                (true, _) => &mut micros,
                (false, 0 | 1) => &mut months,
                (false, _) => &mut days,
            };
            *sum = sum.checked_add(value).ok_or(TemporalError::OutOfRange)?;
        }
        match (i32::try_from(months), i32::try_from(days)) {
            (Ok(months), Ok(days)) => Ok(Self { months, days, micros }),
            _ => Err(TemporalError::OutOfRange),
        }
    }
}

/// Microseconds of a number of seconds with a sign and up to 6 digits after the point.
fn seconds(number: &str) -> Option<i64> {
    let (negative, number) = match number.as_bytes().first()? {
        b'-' => (true, &number[1..]),
        b'+' => (false, &number[1..]),
        _ => (false, number),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || !whole.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let micros = i128::from(digits(fraction, 1, 6)? * 10u32.pow(6 - fraction.len() as u32));
    let sum = i128::from(whole.parse::<i64>().ok()?) * i128::from(MICROS_PER_SECOND) + micros;
    i64::try_from(if negative { -sum } else { sum }).ok()
}

impl FromStr for Uuid {
    type Err = TemporalError;

    fn from_str(text: &str) -> Result<Self, TemporalError> {
        let wrong = TemporalError::Syntax(UUID_FORM);
        let text = text.as_bytes();
        let grouped = text.len() == 36;
        if !grouped && text.len() != 32 {
            return Err(wrong);
        }
        let mut nibbles = [0u8; 32];
        let mut filled = 0;
        for (i, byte) in text.iter().enumerate() {
            if grouped && matches!(i, 8 | 13 | 18 | 23) {
                if *byte != b'-' {
                    return Err(wrong);
                }
                continue;
            }
            let nibble = char::from(*byte).to_digit(16).ok_or(wrong)?;
            nibbles[filled] = nibble as u8;
            filled += 1;
        }
        let mut bytes = [0; 16];
        for (byte, pair) in bytes.iter_mut().zip(nibbles.chunks_exact(2)) {
            *byte = pair[0] << 4 | pair[1];
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
#[path = "temporal_tests.rs"]
mod tests;
