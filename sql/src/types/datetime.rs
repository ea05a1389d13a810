//! Dates, times and timestamps: their text form (ISO, as `DateStyle = ISO, MDY`), fields, and the calendar.
//!
//! Days count from 1970-01-01 and microseconds from its midnight, as the engine's rows do; the calendar is the Gregorian
//! one in both directions, as PostgreSQL's. The ends of the integers are the infinities. Zones are in `zone`.

use super::interval::fraction_text;
use super::zone::{Local, Zone};
use crate::error::{Error, Result};

pub(crate) const DAY: i64 = 86_400_000_000;
const HOUR: i64 = 3_600_000_000;
const MINUTE: i64 = 60_000_000;
const SECOND: i64 = 1_000_000;
/// The first day that PostgreSQL has, 4714-11-24 BC, and the day behind its last, 5874898-01-01.
const FIRST_DAY: i64 = -2_440_588;
const END_DAY: i64 = 2_145_031_949;
/// The day behind the last one of timestamps, 294277-01-01.
const END_TIMESTAMP_DAY: i64 = 106_751_983;

/// Days from 1970-01-01 to a day of the calendar (Howard Hinnant, "chrono-compatible low-level date algorithms").
pub(crate) fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year - era * 400;
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year (0 is 1 BC), month, day.
pub(crate) fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days - era * 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year + era * 400 + i64::from(month <= 2), month, of_year - (153 * shifted + 2) / 5 + 1)
}

pub(crate) fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

pub(crate) fn out_of_range(what: &str) -> Error {
    Error::new("22008", format!("{what} out of range"))
}

/// A date within what PostgreSQL has.
pub(crate) fn checked_date(days: i64) -> Result<i32> {
    if (FIRST_DAY..END_DAY).contains(&days) { Ok(days as i32) } else { Err(out_of_range("date")) }
}

/// A timestamp within what PostgreSQL has.
pub(crate) fn checked_timestamp(micros: Option<i64>) -> Result<i64> {
    let range = FIRST_DAY * DAY..END_TIMESTAMP_DAY * DAY;
    micros.filter(|micros| range.contains(micros)).ok_or_else(|| out_of_range("timestamp"))
}

/// Midnight of a date.
pub(crate) fn timestamp_of_date(days: i32) -> Result<i64> {
    match days {
        i32::MAX => Ok(i64::MAX),
        i32::MIN => Ok(i64::MIN),
        _ => checked_timestamp(i64::from(days).checked_mul(DAY))
            .map_err(|_| Error::new("22008", "date out of range for timestamp")),
    }
}

/// The day of a timestamp.
pub(crate) fn date_of_timestamp(micros: i64) -> i32 {
    match micros {
        i64::MAX => i32::MAX,
        i64::MIN => i32::MIN,
        _ => micros.div_euclid(DAY) as i32,
    }
}

/// What a text of a date or time says.
#[derive(Default, Debug)]
struct Fields {
    date: Option<(i64, i64, i64)>,
    time: Option<i64>,
    /// Microseconds east of Greenwich.
    offset: Option<i64>,
    /// A zone by its name.
    zone: Option<Zone>,
    infinite: Option<bool>,
    bc: bool,
    /// The year was written with two digits.
    is_short: bool,
    /// `now`, and `today` with days from it.
    now: Option<Option<i64>>,
}

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
const DAYS: [&str; 7] = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];

/// The Julian day of 1970-01-01.
const UNIX_EPOCH_JULIAN: i64 = 2_440_588;

fn month_named(word: &str) -> Option<i64> {
    let index =
        MONTHS.iter().position(|month| word == *month || (word.len() == 3 && month.starts_with(word)))?;
    Some(index as i64 + 1)
}

fn invalid(ty: &str, text: &str) -> Error {
    Error::new("22007", format!("invalid input syntax for type {ty}: \"{text}\""))
}

fn field_out(text: &str) -> Error {
    Error::new("22008", format!("date/time field value out of range: \"{text}\""))
}

fn zone_out(text: &str) -> Error {
    Error::new("22009", format!("time zone displacement out of range: \"{text}\""))
}

/// Parts of a text: runs of letters, of digits with their signs, and the rest.
fn scan(ty: &str, text: &str) -> Result<Fields> {
    let bad = || invalid(ty, text);
    let mut fields = Fields::default();
    let mut numbers: Vec<String> = Vec::new();
    let mut month = None;
    let lower = text.trim().to_lowercase();
    if lower.is_empty() {
        return Err(bad());
    }
    // `2001-01-01T10:00` is two words, too.
    let mut words: Vec<String> = Vec::new();
    for word in lower.split([' ', ',', '\t', '\n']).filter(|word| !word.is_empty()) {
        match word.split_once('t') {
            Some((date, time))
                if date.ends_with(|c: char| c.is_ascii_digit())
                    && time.starts_with(|c: char| c.is_ascii_digit()) =>
            {
                words.extend([date.to_owned(), time.to_owned()]);
            }
            _ => words.push(word.to_owned()),
        }
    }
    for word in &words {
        read_word(word, &mut fields, &mut numbers, &mut month, text)
            .map_err(|error| error.unwrap_or_else(bad))?;
    }
    if let Some(month) = month {
        // A number of three digits is a year; of two others the first one is the day.
        let (day, year) = match &numbers[..] {
            [year, day] if year.len() > 2 => (day, year),
            [day, year] => (day, year),
            _ => return Err(bad()),
        };
        let read = |digits: std::result::Result<i64, Option<Error>>| {
            digits.map_err(|error| error.unwrap_or_else(bad))
        };
        fields.date = Some((read(full_year(year, &mut fields))?, month, read(number(day))?));
    } else if let Some(first) = numbers.first() {
        // A month, or, of three digits and more, a year, with too little behind it.
        let can_be = match first.len() {
            ..=2 => (1..=12).contains(&number(first).unwrap_or(0)),
            _ => number(first) != Ok(0),
        };
        return Err(if can_be || ty == "time" { bad() } else { field_out(text) });
    }
    Ok(fields)
}

/// `None` as the error: the text as a whole is none of the type's.
fn read_word(
    word: &str,
    fields: &mut Fields,
    numbers: &mut Vec<String>,
    month: &mut Option<i64>,
    text: &str,
) -> std::result::Result<(), Option<Error>> {
    let first = word.chars().next().ok_or(None)?;
    if first.is_ascii_digit() && word.contains(':') {
        let (time, rest) = read_time(word, text)?;
        fields.time = Some(time);
        if rest.starts_with(['+', '-']) {
            fields.offset = Some(read_offset(rest, text)?);
        } else if !rest.is_empty() {
            fields.zone = Some(Zone::in_text(rest).ok_or(None)?);
        }
        return Ok(());
    }
    let is_month = |part: &str| month_named(part).is_some();
    if first.is_ascii_digit() || word.split_once(['-', '/', '.']).is_some_and(|(front, _)| is_month(front)) {
        return read_date(word, fields, numbers, month, text);
    }
    // A Julian day.
    if let Some(days) = word.strip_prefix('j').and_then(|days| days.parse::<i64>().ok()) {
        if !(0..=1 << 31).contains(&days) {
            return Err(Some(field_out(text)));
        }
        fields.date = Some(civil_from_days(days - UNIX_EPOCH_JULIAN));
        return Ok(());
    }
    if first == '+' || first == '-' {
        if fields.time.is_none() && fields.date.is_none() {
            return Err(None);
        }
        fields.offset = Some(read_offset(word, text)?);
        return Ok(());
    }
    match word {
        "infinity" | "+infinity" => fields.infinite = Some(true),
        "epoch" => (fields.date, fields.time, fields.offset) = (Some((1970, 1, 1)), Some(0), Some(0)),
        "now" => fields.now = Some(None),
        "today" => fields.now = Some(Some(0)),
        "tomorrow" => fields.now = Some(Some(1)),
        "yesterday" => fields.now = Some(Some(-1)),
        "allballs" => (fields.time, fields.offset) = (Some(0), Some(0)),
        "bc" => fields.bc = true,
        "ad" => {}
        "am" | "pm" => {
            let time = fields.time.ok_or(None)?;
            let hour = time / HOUR;
            if hour > 12 || hour == 0 {
                return Err(Some(field_out(text)));
            }
            let half = if word == "pm" { 12 } else { 0 };
            fields.time = Some(time + (half - if hour == 12 { 12 } else { 0 }) * HOUR);
        }
        _ if DAYS.iter().any(|day| word == *day || (word.len() == 3 && day.starts_with(word))) => {}
        _ => match month_named(word) {
            Some(named) => *month = Some(named),
            None => fields.zone = Some(Zone::in_text(word).ok_or(None)?),
        },
    }
    Ok(())
}

fn number(digits: &str) -> std::result::Result<i64, Option<Error>> {
    if digits.is_empty() || digits.len() > 9 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(None);
    }
    digits.parse().map_err(|_| None)
}

/// A year; one of two digits is one of 1970 to 2069, unless it is one before Christ.
fn full_year(digits: &str, fields: &mut Fields) -> std::result::Result<i64, Option<Error>> {
    fields.is_short = digits.len() <= 2;
    number(digits)
}

fn read_date(
    word: &str,
    fields: &mut Fields,
    numbers: &mut Vec<String>,
    month: &mut Option<i64>,
    text: &str,
) -> std::result::Result<(), Option<Error>> {
    let parts: Vec<&str> = word.split(['-', '/', '.']).collect();
    fields.date = Some(match parts[..] {
        [year, month, day] if year.len() >= 3 && month.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            (number(year)?, month_named(month).ok_or(None)?, number(day)?)
        }
        [day, month, year] if month.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            (full_year(year, fields)?, month_named(month).ok_or(None)?, number(day)?)
        }
        [month, day, year] if month.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            (full_year(year, fields)?, month_named(month).ok_or(None)?, number(day)?)
        }
        [year, month, day] if year.len() >= 3 && word.contains('-') => {
            (number(year)?, number(month)?, number(day)?)
        }
        [year, month, day] if year.len() >= 3 => (number(year)?, number(month)?, number(day)?),
        // MDY.
        [month, day, year] => (full_year(year, fields)?, number(month)?, number(day)?),
        [digits]
            if (7..=13).contains(&digits.len())
                && month.is_none()
                && digits.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            let (year, day) = digits.split_at(digits.len() - 4);
            (number(year)?, number(&day[..2])?, number(&day[2..])?)
        }
        [digits]
            if digits.len() == 6
                && digits.bytes().all(|byte| byte.is_ascii_digit())
                && fields.date.is_none()
                && month.is_none() =>
        {
            (full_year(&digits[..2], fields)?, number(&digits[2..4])?, number(&digits[4..])?)
        }
        // A year and the number of a day in it.
        [year, day] if year.len() == 4 && day.len() == 3 && word.contains('.') => {
            let (year, day) = (number(year)?, number(day)?);
            if !(1..=366).contains(&day) {
                return Err(Some(field_out(text)));
            }
            civil_from_days(days_from_civil(year, 1, 1) + day - 1)
        }
        [digits]
            if digits.len() == 6 && digits.is_ascii() && fields.date.is_some() && fields.time.is_none() =>
        {
            let (hour, minute, second) =
                (number(&digits[..2])?, number(&digits[2..4])?, number(&digits[4..])?);
            if hour > 24 || minute > 59 || second > 60 {
                return Err(Some(field_out(text)));
            }
            fields.time = Some(hour * HOUR + minute * MINUTE + second * SECOND);
            return Ok(());
        }
        [digits] => {
            number(digits)?;
            numbers.push(digits.to_owned());
            return Ok(());
        }
        _ => return Err(None),
    });
    Ok(())
}

/// A time at the front of the word, and what follows it.
fn read_time<'w>(word: &'w str, text: &str) -> std::result::Result<(i64, &'w str), Option<Error>> {
    let end = word.find(|c: char| !(c.is_ascii_digit() || c == ':' || c == '.')).unwrap_or(word.len());
    let (time, mut rest) = word.split_at(end);
    let parts: Vec<&str> = time.split(':').collect();
    let (seconds, fraction) = match parts.get(2) {
        Some(seconds) => seconds.split_once('.').unwrap_or((seconds, "")),
        None => ("0", ""),
    };
    if parts.len() > 3 || parts.len() < 2 || parts.iter().take(2).any(|part| part.contains('.')) {
        return Err(None);
    }
    let (mut hour, minute, second) = (number(parts[0])?, number(parts[1])?, number(seconds)?);
    let micros = fraction_micros(fraction).ok_or(None)?;
    if let Some(after) = rest.strip_prefix("am").or_else(|| rest.strip_prefix("pm")) {
        if hour > 12 || hour == 0 {
            return Err(Some(field_out(text)));
        }
        hour = hour % 12 + if rest.starts_with("pm") { 12 } else { 0 };
        rest = after;
    }
    let total = hour * HOUR + minute * MINUTE + second * SECOND + micros;
    if hour > 24 || minute > 59 || second > 60 || total > DAY {
        return Err(Some(field_out(text)));
    }
    Ok((total, rest))
}

/// Microseconds of the digits behind a point, rounded.
pub(crate) fn fraction_micros(digits: &str) -> Option<i64> {
    if digits.is_empty() {
        return Some(0);
    }
    let fraction: f64 = format!("0.{digits}").parse().ok()?;
    Some((fraction * 1e6).round_ties_even() as i64)
}

/// The offset that `+02`, `-02:30` or `+0230` says, in microseconds to the east. No error: it says none.
pub(crate) fn read_offset(word: &str, text: &str) -> std::result::Result<i64, Option<Error>> {
    let east = word.starts_with('+');
    let digits = word.strip_prefix(['+', '-']).ok_or(None)?;
    let parts: Vec<&str> = digits.split(':').collect();
    let (hours, minutes, seconds) = match parts[..] {
        [digits] if digits.len() == 4 && digits.is_ascii() => {
            (number(&digits[..2])?, number(&digits[2..])?, 0)
        }
        [hours] => (number(hours)?, 0, 0),
        [hours, minutes] => (number(hours)?, number(minutes)?, 0),
        [hours, minutes, seconds] => (number(hours)?, number(minutes)?, number(seconds)?),
        _ => return Err(None),
    };
    if hours > 15 || minutes > 59 || seconds > 59 {
        return Err(Some(zone_out(text)));
    }
    let total = hours * HOUR + minutes * MINUTE + seconds * SECOND;
    Ok(if east { total } else { -total })
}

impl Fields {
    /// The moment at which a clock shows this time: that of the zone which the text names, or else of the session.
    fn moment(&self, shown: i64, local: &Local) -> Option<i64> {
        match (self.offset, &self.zone) {
            (Some(offset), _) => shown.checked_sub(offset),
            (None, zone) => zone.as_ref().unwrap_or(&local.zone).to_utc(shown),
        }
    }

    fn days(&self, text: &str) -> Result<Option<i64>> {
        let Some((mut year, month, day)) = self.date else { return Ok(None) };
        if self.bc {
            if year == 0 {
                return Err(field_out(text));
            }
            year = 1 - year;
        } else if self.is_short {
            year += if year < 70 { 2000 } else { 1900 };
        } else if year == 0 {
            return Err(field_out(text));
        }
        if !(1..=12).contains(&month) || day < 1 || day > days_in_month(year, month) {
            return Err(field_out(text));
        }
        Ok(Some(days_from_civil(year, month, day)))
    }
}

fn infinity(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "infinity" | "+infinity" => Some(true),
        "-infinity" => Some(false),
        _ => None,
    }
}

/// Reads a date.
pub(crate) fn parse_date(text: &str, local: &Local) -> Result<i32> {
    if let Some(positive) = infinity(text) {
        return Ok(if positive { i32::MAX } else { i32::MIN });
    }
    let fields = scan("date", text)?;
    if let Some(special) = fields.now {
        let now = local.zone.to_local(local.now_us);
        return Ok((now.div_euclid(DAY) + special.unwrap_or(0)) as i32);
    }
    let days = fields.days(text)?.ok_or_else(|| invalid("date", text))?;
    checked_date(days).map_err(|_| Error::new("22008", format!("date out of range: \"{text}\"")))
}

pub(crate) fn parse_time(text: &str, local: &Local) -> Result<i64> {
    let fields = scan("time", text)?;
    if let Some(special) = fields.now {
        let now = local.zone.to_local(local.now_us);
        return Ok(if special.is_some() { 0 } else { now.rem_euclid(DAY) });
    }
    // The offset of such a zone is that of a day, which a time does not have.
    if fields.date.is_none() && fields.zone.as_ref().is_some_and(Zone::changes) {
        return Err(invalid("time", text));
    }
    fields.time.ok_or_else(|| invalid("time", text))
}

/// Reads a timestamp; with `zone`, one in UTC, else an offset is read and ignored.
pub(crate) fn parse_timestamp(text: &str, zone: bool, local: &Local) -> Result<i64> {
    let ty = if zone { "timestamp with time zone" } else { "timestamp" };
    if let Some(positive) = infinity(text) {
        return Ok(if positive { i64::MAX } else { i64::MIN });
    }
    let fields = scan(ty, text)?;
    let out = || Error::new("22008", format!("timestamp out of range: \"{text}\""));
    if let Some(special) = fields.now {
        let now = local.zone.to_local(local.now_us);
        let shown = match special {
            None if zone => return Ok(local.now_us),
            None => now,
            Some(days) => (now.div_euclid(DAY) + days) * DAY + fields.time.unwrap_or(0),
        };
        return if zone { fields.moment(shown, local).ok_or_else(out) } else { Ok(shown) };
    }
    let days = fields.days(text)?.ok_or_else(|| invalid(ty, text))?;
    let shown = days.checked_mul(DAY).and_then(|it| it.checked_add(fields.time.unwrap_or(0)));
    let micros = if zone { shown.and_then(|shown| fields.moment(shown, local)) } else { shown };
    checked_timestamp(micros).map_err(|_| out())
}

pub(crate) fn show_date(days: i32) -> String {
    match days {
        i32::MAX => return "infinity".to_owned(),
        i32::MIN => return "-infinity".to_owned(),
        _ => {}
    }
    let (year, month, day) = civil_from_days(i64::from(days));
    if year > 0 {
        format!("{year:04}-{month:02}-{day:02}")
    } else {
        format!("{:04}-{month:02}-{day:02} BC", 1 - year)
    }
}

pub(crate) fn show_time(micros: i64) -> String {
    let (hour, minute) = (micros / HOUR, micros / MINUTE % 60);
    format!("{hour:02}:{minute:02}:{}", fraction_text(micros % MINUTE, true))
}

/// A timestamp as text; one with a zone: as its clock shows it, with its offset.
pub(crate) fn show_timestamp(micros: i64, zone: Option<&Zone>) -> String {
    match micros {
        i64::MAX => return "infinity".to_owned(),
        i64::MIN => return "-infinity".to_owned(),
        _ => {}
    }
    let offset = zone.map(|zone| zone.offset(micros));
    let micros = micros + offset.unwrap_or(0);
    let date = show_date(micros.div_euclid(DAY) as i32);
    let time = show_time(micros.rem_euclid(DAY));
    let zone = offset.map_or_else(String::new, show_offset);
    match date.strip_suffix(" BC") {
        Some(date) => format!("{date} {time}{zone} BC"),
        None => format!("{date} {time}{zone}"),
    }
}

/// An offset as timestamps show it: hours, and minutes and seconds where there are any.
pub(crate) fn show_offset(offset: i64) -> String {
    let (sign, seconds) = (if offset < 0 { '-' } else { '+' }, offset.abs() / SECOND);
    let mut shown = format!("{sign}{:02}", seconds / 3600);
    if seconds % 3600 != 0 {
        shown += &format!(":{:02}", seconds / 60 % 60);
    }
    if seconds % 60 != 0 {
        shown += &format!(":{:02}", seconds % 60);
    }
    shown
}

/// Microseconds rounded to `digits` digits of the second.
pub(crate) fn round_micros(micros: i64, digits: i32) -> i64 {
    if !(0..6).contains(&digits) || micros == i64::MAX || micros == i64::MIN {
        return micros;
    }
    let unit = 10i64.pow(6 - digits as u32);
    let half = unit / 2;
    if micros >= 0 { (micros + half) / unit * unit } else { -((-micros + half) / unit * unit) }
}
