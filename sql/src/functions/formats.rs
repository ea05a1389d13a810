//! `to_char` of times, and `to_date` and `to_timestamp` by a pattern: PostgreSQL's template patterns.
//!
//! A pattern is read into fields and what stands between them. Fields are known in the cases that PostgreSQL lists (`MON`, `Mon`,
//! `mon`); `FM` before one drops its padding, `TH` behind one adds an ordinal's ending. Refused by name: `FX`, `TM`, `SP`.

use super::casts::str;
use super::dates::day_field;
use crate::error::{Error, Result};
use crate::expr::{Env, Made};
use crate::types::{Datum, Zone, datetime};

/// Fields, each before those that are its beginning.
const FIELDS: &[&str] = &[
    "HH24", "HH12", "HH", "MI", "SSSSS", "SSSS", "SS", "MS", "US", "FF1", "FF2", "FF3", "FF4", "FF5", "FF6",
    "A.M.", "P.M.", "AM", "PM", "Y,YYY", "YYYY", "YYY", "YY", "Y", "IYYY", "IYY", "IY", "IDDD", "ID", "IW",
    "I", "B.C.", "A.D.", "BC", "AD", "MONTH", "MON", "MM", "DAY", "DY", "DDD", "DD", "D", "WW", "W", "CC",
    "J", "Q", "RM", "TZH", "TZM", "TZ", "OF",
];

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const ROMAN: [&str; 12] = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Upper,
    Lower,
    /// The first letter is a capital.
    Capital,
}

#[derive(Debug)]
enum Node {
    Field { name: &'static str, case: Case, bare: bool, ordinal: Option<Case> },
    Sign(char),
}

/// The field that the text begins with, and how it is written.
fn field_at(text: &str) -> Option<(&'static str, Case)> {
    for name in FIELDS {
        let Some(found) = text.get(..name.len()) else { continue };
        if found == *name {
            return Some((name, Case::Upper));
        }
        if found == name.to_ascii_lowercase() {
            return Some((name, Case::Lower));
        }
        let words = ["MONTH", "MON", "DAY", "DY"];
        let is_word = words.contains(name) && found.is_ascii();
        if is_word && found[1..] == name[1..].to_ascii_lowercase() && found[..1] == name[..1] {
            return Some((name, Case::Capital));
        }
    }
    None
}

fn nodes(pattern: &str) -> Result<Vec<Node>> {
    let (mut all, mut rest, mut bare) = (Vec::new(), pattern, false);
    while let Some(sign) = rest.chars().next() {
        let marks = |mark: &str| rest.starts_with(mark) || rest.starts_with(&mark.to_ascii_lowercase());
        if marks("FM") {
            (bare, rest) = (true, &rest[2..]);
        } else if marks("FX") || marks("TM") {
            return Err(Error::unsupported(format!("\"{}\" in a pattern", &rest[..2])));
        } else if let Some((name, case)) = field_at(rest) {
            rest = &rest[name.len()..];
            let ordinal = if rest.starts_with("TH") {
                Some(Case::Upper)
            } else {
                rest.starts_with("th").then_some(Case::Lower)
            };
            rest = if ordinal.is_some() { &rest[2..] } else { rest };
            if rest.starts_with("SP") {
                return Err(Error::unsupported("\"SP\" in a pattern"));
            }
            all.push(Node::Field { name, case, bare: std::mem::take(&mut bare), ordinal });
        } else if sign == '"' {
            rest = &rest[1..];
            loop {
                let mut signs = rest.chars();
                let sign = match signs.next() {
                    None => break,
                    Some('"') => {
                        rest = signs.as_str();
                        break;
                    }
                    Some('\\') => signs.next(),
                    sign => sign,
                };
                all.extend(sign.map(Node::Sign));
                rest = signs.as_str();
            }
        } else {
            let mut signs = rest.chars();
            signs.next();
            // A backslash takes the sign behind it as it is, where that is a quotation mark.
            if sign == '\\' && signs.as_str().starts_with('"') {
                signs.next();
                all.push(Node::Sign('"'));
            } else {
                all.push(Node::Sign(sign));
            }
            rest = signs.as_str();
        }
    }
    Ok(all)
}

fn cased(word: &str, case: Case) -> String {
    match case {
        Case::Upper => word.to_ascii_uppercase(),
        Case::Lower => word.to_ascii_lowercase(),
        Case::Capital => word.to_owned(),
    }
}

/// The ending of an ordinal.
fn ending(number: i64, case: Case) -> &'static str {
    let (tens, ones) = (number.abs() % 100, number.abs() % 10);
    let at = if (11..=13).contains(&tens) || !(1..=3).contains(&ones) { 0 } else { ones as usize };
    match case {
        Case::Lower => ["th", "st", "nd", "rd"][at],
        _ => ["TH", "ST", "ND", "RD"][at],
    }
}

/// A moment as fields show it.
struct Moment {
    days: i64,
    /// Microseconds since midnight.
    time: i64,
    /// The zone whose clock shows it: its abbreviation and offset; none for a timestamp without a zone.
    zone: Option<(String, i64)>,
}

impl Moment {
    /// A number, the digits that it is padded to; none: the field is no number.
    fn number(&self, name: &str) -> Option<(i64, usize)> {
        let (year, month, day) = datetime::civil_from_days(self.days);
        let shown = if year > 0 { year } else { 1 - year };
        let of = |unit| day_field(unit, self.days).expect("a day has this field");
        let hour = self.time / 3_600_000_000;
        let seconds = self.time / 1_000_000;
        let micros = self.time % 1_000_000;
        let iso = of("isoyear");
        let fraction = |digits: u32| (micros / 10_i64.pow(6 - digits), digits as usize);
        Some(match name {
            "HH24" => (hour, 2),
            "HH12" | "HH" => (if hour % 12 == 0 { 12 } else { hour % 12 }, 2),
            "MI" => (seconds / 60 % 60, 2),
            "SS" => (seconds % 60, 2),
            "SSSS" | "SSSSS" => (seconds, 1),
            "MS" => (micros / 1000, 3),
            "US" => (micros, 6),
            "FF1" => fraction(1),
            "FF2" => fraction(2),
            "FF3" => fraction(3),
            "FF4" => fraction(4),
            "FF5" => fraction(5),
            "FF6" => fraction(6),
            "YYYY" => (shown, 4),
            "YYY" => (shown % 1000, 3),
            "YY" => (shown % 100, 2),
            "Y" => (shown % 10, 1),
            "IYYY" => (iso.abs(), 4),
            "IYY" => (iso.abs() % 1000, 3),
            "IY" => (iso.abs() % 100, 2),
            "I" => (iso.abs() % 10, 1),
            "MM" => (month, 2),
            "DDD" => (of("doy"), 3),
            "DD" => (day, 2),
            "D" => (of("dow") + 1, 1),
            "IDDD" => ((of("week") - 1) * 7 + of("isodow"), 3),
            "ID" => (of("isodow"), 1),
            "W" => ((day - 1) / 7 + 1, 1),
            "WW" => ((of("doy") - 1) / 7 + 1, 2),
            "IW" => (of("week"), 2),
            "CC" if year > 0 => ((year + 99) / 100, 2),
            "CC" => (year / 100 - 1, 3),
            "J" => (self.days + 2_440_588, 1),
            "Q" => ((month - 1) / 3 + 1, 1),
            _ => return None,
        })
    }

    /// The sign of its offset, and how many minutes that has.
    fn offset(&self) -> (char, i64) {
        let offset = self.zone.as_ref().map_or(0, |(_, offset)| *offset);
        (if offset < 0 { '-' } else { '+' }, offset.abs() / 60_000_000)
    }

    fn write(&self, name: &str, case: Case, bare: bool, out: &mut String) {
        let padded = |word: &str, width: usize| {
            let word = cased(word, case);
            if bare { word } else { format!("{word:width$}") }
        };
        let (year, month, _) = datetime::civil_from_days(self.days);
        let month = month as usize - 1;
        let day = (self.days + 4).rem_euclid(7) as usize;
        let half = if self.time < datetime::DAY / 2 { "AM" } else { "PM" };
        let era = if year > 0 { "AD" } else { "BC" };
        let dotted = |word: &str| format!("{}.{}.", &word[..1], &word[1..]);
        out.push_str(&match name {
            "MONTH" => padded(MONTHS[month], 9),
            "MON" => cased(&MONTHS[month][..3], case),
            "DAY" => padded(DAYS[day], 9),
            "DY" => cased(&DAYS[day][..3], case),
            "RM" => padded(ROMAN[month], 4),
            "AM" | "PM" => cased(half, case),
            "A.M." | "P.M." => cased(&dotted(half), case),
            "AD" | "BC" => cased(era, case),
            "A.D." | "B.C." => cased(&dotted(era), case),
            "Y,YYY" => {
                let shown = if year > 0 { year } else { 1 - year };
                format!("{},{:03}", shown / 1000, shown % 1000)
            }
            "TZ" => self.zone.as_ref().map_or_else(String::new, |(name, _)| cased(name, case)),
            "OF" => {
                let (sign, minutes) = self.offset();
                let rest = if minutes % 60 == 0 { String::new() } else { format!(":{:02}", minutes % 60) };
                format!("{sign}{:02}{rest}", minutes / 60)
            }
            "TZH" => {
                let (sign, minutes) = self.offset();
                format!("{sign}{:02}", minutes / 60)
            }
            "TZM" => format!("{:02}", self.offset().1 % 60),
            _ => String::new(),
        });
    }
}

/// `to_char` of a timestamp, or of a moment on the clock of a zone.
pub(super) fn to_char(value: &Datum, pattern: &Datum, zone: Option<&Zone>) -> Made {
    let Datum::Timestamp(micros) = value else { unreachable!("a timestamp is expected: {value:?}") };
    let pattern = str(pattern);
    if pattern.is_empty() || matches!(*micros, i64::MIN | i64::MAX) {
        return Ok(Datum::Null);
    }
    let shown = zone.map_or(*micros, |zone| zone.to_local(*micros));
    let zone = zone.map(|zone| (zone.abbreviation(*micros).0, zone.offset(*micros)));
    let moment =
        Moment { days: shown.div_euclid(datetime::DAY), time: shown.rem_euclid(datetime::DAY), zone };
    let mut out = String::new();
    for node in nodes(pattern)? {
        match node {
            Node::Sign(sign) => out.push(sign),
            Node::Field { name, case, bare, ordinal } => match moment.number(name) {
                Some((number, digits)) => {
                    // A fraction keeps its zeros.
                    let digits = if bare && !name.starts_with("FF") { 1 } else { digits };
                    out.push_str(&format!("{number:0digits$}"));
                    out.push_str(ordinal.map_or("", |case| ending(number, case)));
                }
                None => moment.write(name, case, bare, &mut out),
            },
        }
    }
    Ok(Datum::text(out))
}

/// What a text says by a pattern.
#[derive(Default)]
struct Read {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    julian: Option<i64>,
    hour: i64,
    minute: i64,
    second: i64,
    micros: i64,
    /// Hours are counted to 12, and it is the afternoon.
    twelve: bool,
    afternoon: Option<bool>,
    before_christ: bool,
    /// Its hours of the zone have a minus.
    west: bool,
    /// Minutes east of Greenwich, if it says so.
    offset_minutes: Option<i64>,
}

fn invalid(name: &str, found: &str) -> Error {
    Error::new("22007", format!("invalid value \"{found}\" for \"{name}\""))
}

/// Takes a whole number of at most so many digits off the text.
fn digits<'t>(rest: &mut &'t str, name: &str, most: usize) -> Result<(i64, &'t str)> {
    let text = rest.trim_start();
    let signed = text.starts_with(['+', '-']);
    let count = text[usize::from(signed)..].chars().take(most).take_while(char::is_ascii_digit).count();
    if count == 0 {
        let shown: String = text.chars().take(most).collect();
        return Err(invalid(name, &shown).detail("Value must be an integer."));
    }
    let (found, after) = text.split_at(count + usize::from(signed));
    *rest = after;
    Ok((found.parse().map_err(|_| invalid(name, found))?, found))
}

/// Takes one of these words off the text, in any case; its place.
fn word(rest: &mut &str, name: &str, words: &[&str]) -> Result<usize> {
    let text = rest.trim_start();
    // The longest that fits: `May` is whole, `Jun` the beginning of `June`.
    let fits = |word: &&str| text.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word));
    let found = words.iter().enumerate().filter(|(_, word)| fits(word)).max_by_key(|(_, word)| word.len());
    let Some((place, word)) = found else {
        let shown: String = text.chars().take_while(|sign| !sign.is_whitespace()).collect();
        return Err(invalid(name, &shown)
            .detail("The given value did not match any of the allowed values for this field."));
    };
    *rest = &text[word.len()..];
    Ok(place)
}

impl Read {
    /// Reads a field, which the pattern has `written` so.
    fn field(&mut self, rest: &mut &str, name: &str, written: &str, more_digits: bool) -> Result<()> {
        let short: Vec<&str> = MONTHS.iter().map(|month| &month[..3]).collect();
        // A year takes all its digits where what follows is no number.
        let open = |most: usize| if more_digits { most } else { 9 };
        match name {
            "HH24" => self.hour = digits(rest, written, 2)?.0,
            "HH12" | "HH" => {
                self.hour = digits(rest, written, 2)?.0;
                self.twelve = true;
            }
            "MI" => self.minute = digits(rest, written, 2)?.0,
            "SS" => self.second = digits(rest, written, 2)?.0,
            "SSSS" | "SSSSS" => {
                let (number, _) = digits(rest, written, 5)?;
                (self.hour, self.minute, self.second) = (number / 3600, number / 60 % 60, number % 60);
            }
            "MS" | "US" => {
                let (number, shown) = digits(rest, written, if name == "MS" { 3 } else { 6 })?;
                self.micros = number * 10_i64.pow(6 - shown.len().min(6) as u32);
            }
            // All of its digits are read, and rounded to as many as there are to be.
            "FF1" | "FF2" | "FF3" | "FF4" | "FF5" | "FF6" => {
                let (number, shown) = digits(rest, written, 6)?;
                let unit = 10_i64.pow(6 - u32::from(name.as_bytes()[2] - b'0'));
                let micros = number * 10_i64.pow(6 - shown.len().min(6) as u32);
                self.micros = (micros + unit / 2) / unit * unit;
            }
            "AM" | "PM" | "A.M." | "P.M." => {
                let place = word(rest, written, &["am", "pm", "a.m.", "p.m."])?;
                (self.afternoon, self.twelve) = (Some(place % 2 == 1), true);
            }
            "BC" | "AD" | "B.C." | "A.D." => {
                self.before_christ = word(rest, written, &["ad", "bc", "a.d.", "b.c."])? % 2 == 1;
            }
            "YYYY" => self.year = Some(digits(rest, written, open(4))?.0),
            "Y,YYY" => {
                let (thousands, _) = digits(rest, written, 3)?;
                *rest = rest.strip_prefix(',').ok_or_else(|| invalid(written, rest))?;
                self.year = Some(thousands * 1000 + digits(rest, written, 3)?.0);
            }
            "YYY" | "YY" | "Y" => {
                let (number, shown) = digits(rest, written, open(name.len()))?;
                // Two digits are the nearest year to 2020.
                self.year = Some(match shown.len() {
                    1 | 2 if number < 70 => number + 2000,
                    1 | 2 => number + 1900,
                    3 if number < 100 => number + 2000,
                    3 if number < 520 => number + 2000,
                    3 => number + 1000,
                    _ => number,
                });
            }
            "MM" => self.month = Some(digits(rest, written, 2)?.0),
            "MONTH" => self.month = Some(word(rest, written, &MONTHS)? as i64 + 1),
            "MON" => self.month = Some(word(rest, written, &short)? as i64 + 1),
            "RM" => self.month = Some(word(rest, written, &ROMAN)? as i64 + 1),
            "DD" => self.day = Some(digits(rest, written, 2)?.0),
            "DDD" => self.day_of_year = Some(digits(rest, written, 3)?.0),
            "J" => self.julian = Some(digits(rest, written, 9)?.0),
            // The name of a day says nothing that the date does not.
            "DAY" => drop(word(rest, written, &DAYS)?),
            "DY" => drop(word(rest, written, &DAYS.map(|day| &day[..3]))?),
            "D" | "ID" | "Q" => drop(digits(rest, written, 1)?),
            "TZH" => {
                self.west = rest.starts_with('-');
                let hours = digits(rest, written, 2)?.0.abs();
                self.offset_minutes = Some(if self.west { -60 } else { 60 } * hours);
            }
            "TZM" => {
                let (minutes, _) = digits(rest, written, 2)?;
                let hours = self.offset_minutes.unwrap_or(0);
                self.offset_minutes = Some(hours + if self.west { -minutes } else { minutes });
            }
            other => return Err(Error::unsupported(format!("\"{other}\" in a pattern that is read"))),
        }
        Ok(())
    }

    /// Days since 1970.
    fn days(&self, whole: &str) -> Result<i64> {
        let out = || Error::new("22008", format!("date/time field value out of range: \"{whole}\""));
        if let Some(julian) = self.julian {
            return Ok(julian - 2_440_588);
        }
        // Without a year it is the first one before Christ.
        let year = self.year.unwrap_or(i64::from(self.before_christ));
        let year = if self.before_christ { -year } else { year };
        // There is no year 0: the one before the first is -1.
        let year = if year < 0 { year + 1 } else { year };
        let (month, day) = (self.month.unwrap_or(1), self.day.unwrap_or(1));
        if let Some(number) = self.day_of_year.filter(|_| self.month.is_none()) {
            let length = if datetime::days_in_month(year, 2) == 29 { 366 } else { 365 };
            if !(1..=length).contains(&number) {
                return Err(out());
            }
            return Ok(datetime::days_from_civil(year, 1, 1) + number - 1);
        }
        if !(1..=12).contains(&month) || !(1..=datetime::days_in_month(year, month)).contains(&day) {
            return Err(out());
        }
        Ok(datetime::days_from_civil(year, month, day))
    }

    /// Microseconds since midnight.
    fn time(&self, whole: &str) -> Result<i64> {
        let out = || Error::new("22008", format!("date/time field value out of range: \"{whole}\""));
        let mut hour = self.hour;
        if self.twelve {
            if !(1..=12).contains(&hour) && self.afternoon.is_some() || hour > 12 {
                return Err(Error::new("22007", format!("hour \"{hour}\" is invalid for the 12-hour clock"))
                    .hint("Use the 24-hour clock, or give an hour between 1 and 12."));
            }
            hour = match self.afternoon {
                Some(afternoon) => hour % 12 + if afternoon { 12 } else { 0 },
                None => hour,
            };
        }
        if !(0..24).contains(&hour) || !(0..60).contains(&self.minute) || !(0..60).contains(&self.second) {
            return Err(out());
        }
        Ok(((hour * 60 + self.minute) * 60 + self.second) * 1_000_000 + self.micros)
    }
}

fn read(text: &str, pattern: &str) -> Result<Read> {
    let (mut found, mut rest) = (Read::default(), text);
    let all = nodes(pattern)?;
    // Blanks and separators of the text that no sign of the pattern stands for.
    let mut skipped = 0;
    for (place, node) in all.iter().enumerate() {
        if place == 0 || matches!(node, Node::Field { .. }) {
            let blanks = rest.len() - rest.trim_start().len();
            rest = &rest[blanks..];
            skipped += blanks;
        }
        if rest.is_empty() {
            break;
        }
        match node {
            Node::Field { name, case, ordinal, .. } => {
                let number_follows = matches!(all.get(place + 1), Some(Node::Field { name, .. })
                    if !["AM", "PM", "A.M.", "P.M.", "MONTH", "MON", "BC", "AD"].contains(name));
                let written = match case {
                    Case::Capital => format!("{}{}", &name[..1], name[1..].to_ascii_lowercase()),
                    case => cased(name, *case),
                };
                found.field(&mut rest, name, &written, number_follows)?;
                if ordinal.is_some() {
                    rest = rest.get(2..).unwrap_or("");
                }
            }
            // Another sign stands for one of any kind, which may have been passed over already.
            Node::Sign(sign) if sign.is_alphanumeric() || !sign.is_ascii() => {
                if skipped > 0 {
                    skipped -= 1;
                } else {
                    let mut signs = rest.chars();
                    signs.next();
                    rest = signs.as_str();
                }
            }
            // A blank or separator stands for one of them, or for nothing; a second minus is the sign of the number behind it.
            Node::Sign(_) => {
                let separator = |sign: char| sign.is_ascii_punctuation() || sign.is_ascii_whitespace();
                match rest.strip_prefix(separator) {
                    Some(behind) => rest = behind,
                    None => skipped = skipped.saturating_sub(1),
                }
            }
        }
    }
    Ok(found)
}

pub(super) fn to_date(text: &Datum, pattern: &Datum) -> Made {
    let days = read(str(text), str(pattern))?.days(str(text))?;
    datetime::checked_date(days).map(Datum::Date)
}

pub(super) fn to_timestamp(args: &[Datum], env: &Env<'_>) -> Made {
    let text = str(&args[0]);
    let found = read(text, str(&args[1]))?;
    let (days, time) = (found.days(text)?, found.time(text)?);
    let micros = days.checked_mul(datetime::DAY).and_then(|days| days.checked_add(time));
    let zone = super::dates::zone(env);
    let micros = micros.and_then(|micros| match found.offset_minutes {
        Some(minutes) => micros.checked_sub(minutes * 60_000_000),
        None => zone.to_utc(micros),
    });
    datetime::checked_timestamp(micros).map(Datum::Timestamp)
}
