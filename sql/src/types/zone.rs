//! Time zones: their rules, and the two ways between UTC and a zone's clock.
//!
//! The rules are IANA's, built into the program (crate `jiff`): nothing of the system is read. A zone has a name of that
//! database, or is written as POSIX has it (`EST5EDT`, `<+02>-02`), where an offset counts west of Greenwich.
//!
//! A clock that is set forward leaves out an hour, and one that is set back shows an hour twice. As in PostgreSQL, a time that was
//! left out is read with the offset before, and a time that was there twice with the offset behind (`DetermineTimeZoneOffset`).
//!
//! Units: microseconds since 1970-01-01 00:00, offsets in microseconds east of Greenwich.

use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneDatabase};

use super::abbreviations::{CHANGING, FIXED};
use super::datetime::DAY;
use crate::error::{Error, Result};

const SECOND: i64 = 1_000_000;
/// The calendar repeats after 400 years, and with it what the rules of a zone say of years to come.
const CYCLE: i64 = 146_097 * DAY;
/// The first moment for which a zone's rules are asked a cycle before (year 9000), within what `jiff` has.
const FAR: i64 = 2_567_655 * DAY;
/// The largest offset of a zone that is a number of hours (`MAX_TZDISP_HOUR`), in seconds.
const MOST_SECONDS: i64 = 25 * 3600 + 3599;
/// The rules of daylight saving for a zone that names it and has none (`TZDEFRULESTRING`).
const DEFAULT_RULES: &str = ",M3.2.0,M11.1.0";

static DATABASE: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// A time zone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Zone(Option<TimeZone>);

/// The time and the zone in which texts of times are read.
#[derive(Clone, Debug, Default)]
pub struct Local {
    /// The transaction's time: microseconds since 1970.
    pub now_us: i64,
    /// The session's zone.
    pub zone: Zone,
}

impl Zone {
    /// Coordinated universal time.
    pub const UTC: Self = Self(None);

    fn of(zone: TimeZone) -> Self {
        Self(if zone == TimeZone::UTC { None } else { Some(zone) })
    }

    /// The zone so many seconds east of Greenwich; none if that is too far.
    fn fixed(seconds: i64) -> Option<Self> {
        let seconds = i32::try_from(seconds).ok().filter(|it| i64::from(*it).abs() <= MOST_SECONDS)?;
        Some(Self::of(TimeZone::fixed(Offset::from_seconds(seconds).ok()?)))
    }

    /// The zone with a name of IANA's database, or one that is written as POSIX has it; and the name as it is shown.
    pub(crate) fn named(name: &str) -> Option<(Self, String)> {
        let Ok(zone) = DATABASE.get(name) else {
            return posix(name).map(|zone| (Self::of(zone), name.to_ascii_uppercase()));
        };
        let shown = zone.iana_name().unwrap_or(name).to_owned();
        Some((Self::of(zone), shown))
    }

    /// The zone so many seconds east of Greenwich, and the name that PostgreSQL gives it (`pg_tzset_offset`).
    pub(crate) fn with_offset(seconds: i64) -> Option<(Self, String)> {
        let zone = Self::fixed(seconds)?;
        let (hours, rest) = (seconds.abs() / 3600, seconds.abs() % 3600);
        let mut shown = format!("{hours:02}");
        if rest != 0 {
            shown += &format!(":{:02}", rest / 60);
        }
        if rest % 60 != 0 {
            shown += &format!(":{:02}", rest % 60);
        }
        let (here, there) = if seconds < 0 { ('-', '+') } else { ('+', '-') };
        Some((zone, format!("<{here}{shown}>{there}{shown}")))
    }

    /// The zone that a word of a time's text means: an abbreviation, or a name.
    pub(super) fn in_text(word: &str) -> Option<Self> {
        let lower = word.to_ascii_lowercase();
        if let Some((_, minutes)) = FIXED.iter().find(|(known, _)| *known == lower) {
            return Self::fixed(i64::from(*minutes) * 60);
        }
        let changing = CHANGING.iter().find(|(known, _)| *known == lower);
        Self::named(changing.map_or(word, |(_, zone)| zone)).map(|(zone, _)| zone)
    }

    /// The zone that AT TIME ZONE names.
    ///
    /// # Errors
    /// No such zone (22023).
    pub(crate) fn at(name: &str) -> Result<Self> {
        Self::in_text(name).ok_or_else(|| {
            Error::new("22023", format!("time zone \"{name}\" not recognized"))
                .hint("Take a name of pg_timezone_names, such as \"Europe/Paris\", or an offset, such as \"<+02>-02\".")
        })
    }

    /// May its offset change?
    pub(super) fn changes(&self) -> bool {
        self.0.as_ref().is_some_and(|zone| zone.to_fixed_offset().is_err())
    }

    /// Is its clock that of UTC?
    pub(crate) fn is_utc(&self) -> bool {
        self.0.is_none()
    }

    /// Its offset at a moment.
    pub(crate) fn offset(&self, micros: i64) -> i64 {
        let Some(zone) = &self.0 else { return 0 };
        let Some(at) = near(micros) else { return 0 };
        i64::from(zone.to_offset(at).seconds()) * SECOND
    }

    /// The offset at the time that its clock shows.
    pub(crate) fn offset_of_local(&self, micros: i64) -> i64 {
        let Some(zone) = &self.0 else { return 0 };
        let Some(at) = near(micros) else { return 0 };
        let offset = match zone.to_ambiguous_timestamp(Offset::UTC.to_datetime(at)).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset,
            AmbiguousOffset::Gap { before, .. } => before,
            AmbiguousOffset::Fold { after, .. } => after,
        };
        i64::from(offset.seconds()) * SECOND
    }

    /// The time that its clock shows at a moment; infinities stay.
    pub(crate) fn to_local(&self, micros: i64) -> i64 {
        match micros {
            i64::MIN | i64::MAX => micros,
            micros => micros + self.offset(micros),
        }
    }

    /// The moment at which its clock shows a time; infinities stay. None: it is not within 64 bits.
    pub(crate) fn to_utc(&self, micros: i64) -> Option<i64> {
        match micros {
            i64::MIN | i64::MAX => Some(micros),
            micros => micros.checked_sub(self.offset_of_local(micros)),
        }
    }

    /// Its abbreviation at a moment, and whether daylight is saved then.
    pub(crate) fn abbreviation(&self, micros: i64) -> (String, bool) {
        match (&self.0, near(micros)) {
            (Some(zone), Some(at)) => {
                let info = zone.to_offset_info(at);
                (info.abbreviation().to_owned(), info.dst().is_dst())
            }
            _ => ("UTC".to_owned(), false),
        }
    }

    /// The names of IANA's database.
    pub(crate) fn names() -> impl Iterator<Item = String> {
        DATABASE.available().map(|name| name.as_str().to_owned())
    }
}

/// The moment for which the rules of a zone are asked.
fn near(micros: i64) -> Option<Timestamp> {
    let cycles = if micros >= FAR { (micros - FAR) / CYCLE + 1 } else { 0 };
    Timestamp::from_microsecond(micros - cycles * CYCLE).ok()
}

/// A zone as POSIX writes it. Its offsets count west of Greenwich; its abbreviation may be left out.
fn posix(text: &str) -> Option<TimeZone> {
    let digit = |sign: char| sign.is_ascii_digit();
    if !text.is_ascii() || !text.contains(digit) {
        return None;
    }
    if text.starts_with(['+', '-']) || text.starts_with(digit) {
        let named = if text.starts_with(digit) { format!("<LMT>+{text}") } else { format!("<LMT>{text}") };
        return TimeZone::posix(&named).ok();
    }
    // An abbreviation between brackets has no colons there.
    let text = match text.split_once('>') {
        Some((name, rest)) => format!("{}>{rest}", name.replace(':', "")),
        None => text.to_owned(),
    };
    TimeZone::posix(&text).or_else(|_| TimeZone::posix(&format!("{text}{DEFAULT_RULES}"))).ok()
}

/// A zone as SET TIME ZONE takes it, and its name as it is shown.
///
/// # Errors
/// It is no zone, or too far from UTC (22023).
pub(crate) fn setting(wanted: &str) -> Result<(Zone, String)> {
    let invalid = || Error::new("22023", format!("invalid value for parameter \"TimeZone\": \"{wanted}\""));
    let far = || invalid().detail("UTC timezone offset is out of range.");
    let text = wanted.trim();
    if let Some(quoted) =
        text.get(..8).filter(|word| word.eq_ignore_ascii_case("interval")).map(|_| &text[8..])
    {
        let inner = quoted.trim().strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
        let limits = super::interval::Limits::default();
        let span = super::interval::parse(inner.ok_or_else(invalid)?, limits).map_err(|_| invalid())?;
        if span.months != 0 {
            return Err(invalid().detail("Cannot specify months in time zone interval."));
        }
        if span.days != 0 {
            return Err(invalid().detail("Cannot specify days in time zone interval."));
        }
        return Zone::with_offset(span.micros / SECOND).ok_or_else(far);
    }
    let is_number = text.starts_with(|sign: char| sign.is_ascii_digit() || "+-.".contains(sign));
    if let Some(hours) = text.parse::<f64>().ok().filter(|_| is_number) {
        return Zone::with_offset((hours * 3600.0) as i64).ok_or_else(far);
    }
    Zone::named(text).ok_or_else(|| {
        invalid().hint(
            "Take a name of pg_timezone_names, such as \"Europe/Paris\", or a number of hours east of UTC.",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str) -> Zone {
        Zone::named(name).expect("the zone is known").0
    }

    #[test]
    fn clocks_that_are_set_are_read_as_postgresql_reads_them() {
        let new_york = zone("America/New_York");
        // 2021-03-14 02:30 was left out, 2021-11-07 01:30 was there twice.
        let hours = |micros: i64| micros / 3_600_000_000;
        assert_eq!(hours(new_york.offset_of_local(1_615_689_000 * SECOND)), -5);
        assert_eq!(hours(new_york.offset_of_local(1_636_248_600 * SECOND)), -5);
        assert_eq!(hours(new_york.offset(1_636_248_600 * SECOND)), -4);
    }

    #[test]
    fn rules_hold_in_all_years_that_timestamps_have() {
        let berlin = zone("europe/BERLIN");
        for year in [2500, 9999, 10_000, 294_200] {
            let july = super::super::datetime::days_from_civil(year, 7, 1) * DAY;
            let january = super::super::datetime::days_from_civil(year, 1, 1) * DAY;
            assert_eq!(
                (berlin.offset(july), berlin.offset(january)),
                (7200 * SECOND, 3600 * SECOND),
                "{year}"
            );
        }
        let first = super::super::datetime::days_from_civil(-4712, 1, 1) * DAY;
        assert_eq!(berlin.offset(first), 3208 * SECOND);
    }

    #[test]
    fn names_are_shown_as_the_database_has_them() {
        let shown = |name: &str| Zone::named(name).map(|(_, shown)| shown);
        assert_eq!(shown("europe/berlin").as_deref(), Some("Europe/Berlin"));
        assert_eq!(shown("foo+2").as_deref(), Some("FOO+2"));
        assert_eq!(shown("Nowhere/Land"), None);
        assert_eq!(setting("-7").expect("it is a number").1, "<-07>+07");
        assert_eq!(setting("5.5").expect("it is a number").1, "<+05:30>-05:30");
        assert_eq!(setting("interval '-08:30'").expect("it is an interval").1, "<-08:30>+08:30");
        assert_eq!(setting("900").expect_err("it is too far").code, "22023");
        assert_eq!(setting("nan").expect_err("it is no number").code, "22023");
    }
}
