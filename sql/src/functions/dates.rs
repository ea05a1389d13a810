//! Arithmetic and functions of dates, times, timestamps and intervals.

use thermocline_row::Interval;

use super::casts::{float, int, str};
use crate::error::{Error, Result};
use crate::expr::{Env, Made};
use crate::types::datetime::{
    DAY, checked_date, checked_timestamp, civil_from_days, days_from_civil, days_in_month, out_of_range,
    timestamp_of_date,
};
use crate::types::{Datum, Numeric, Zone, interval};

const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

pub(super) fn timestamp(value: &Datum) -> i64 {
    match value {
        Datum::Timestamp(micros) | Datum::Time(micros) => *micros,
        other => unreachable!("a timestamp is expected: {other:?}"),
    }
}

fn date(value: &Datum) -> i32 {
    match value {
        Datum::Date(days) => *days,
        other => unreachable!("a date is expected: {other:?}"),
    }
}

fn span(value: &Datum) -> Interval {
    match value {
        Datum::Interval(interval) => *interval,
        other => unreachable!("an interval is expected: {other:?}"),
    }
}

fn infinite_date(days: i32) -> bool {
    days == i32::MAX || days == i32::MIN
}

fn infinite(micros: i64) -> bool {
    micros == i64::MAX || micros == i64::MIN
}

pub(super) fn date_plus(a: &Datum, b: &Datum, sign: i64) -> Made {
    let days = date(a);
    if infinite_date(days) {
        return Ok(a.clone());
    }
    checked_date(i64::from(days) + sign * int(b)).map(Datum::Date)
}

pub(super) fn date_minus_date(a: &Datum, b: &Datum) -> Made {
    let (a, b) = (date(a), date(b));
    if infinite_date(a) || infinite_date(b) {
        return Err(Error::new("22008", "cannot subtract infinite dates"));
    }
    Ok(Datum::Int(i64::from(a) - i64::from(b)))
}

pub(super) fn date_plus_time(a: &Datum, b: &Datum) -> Made {
    let midnight = timestamp_of_date(date(a))?;
    if infinite(midnight) {
        return Ok(Datum::Timestamp(midnight));
    }
    checked_timestamp(midnight.checked_add(timestamp(b))).map(Datum::Timestamp)
}

pub(super) fn date_shift(a: &Datum, b: &Datum, back: bool) -> Made {
    shift(&Datum::Timestamp(timestamp_of_date(date(a))?), b, back)
}

/// The zone of the session.
pub(super) fn zone<'e>(env: &Env<'e>) -> &'e Zone {
    &env.context.local.zone
}

/// The moment at which the clock of a zone shows a time.
pub(super) fn moment(shown: i64, zone: &Zone) -> Made {
    match shown {
        i64::MIN | i64::MAX => Ok(Datum::Timestamp(shown)),
        shown => checked_timestamp(zone.to_utc(shown)).map(Datum::Timestamp),
    }
}

/// A moment as the clock of the session's zone shows it.
pub(super) fn local(value: &Datum, env: &Env<'_>) -> Datum {
    Datum::Timestamp(zone(env).to_local(timestamp(value)))
}

/// The same as `shift` on the clock of a zone: months and days go by its calendar, the rest by time that passes.
pub(super) fn shift_in(a: &Datum, b: &Datum, back: bool, zone: &Zone) -> Made {
    let micros = timestamp(a);
    if zone.is_utc() || infinite(micros) {
        return shift(a, b, back);
    }
    let by = if back { interval::neg(span(b))? } else { span(b) };
    let mut at = micros;
    for step in [Interval::new(by.months, 0, 0), Interval::new(0, by.days, 0)] {
        if (step.months, step.days) != (0, 0) {
            let shown = Datum::Timestamp(zone.to_local(at));
            let moved = timestamp(&shift(&shown, &Datum::Interval(step), false)?);
            at = timestamp(&moment(moved, zone)?);
        }
    }
    checked_timestamp(at.checked_add(by.micros)).map(Datum::Timestamp)
}

/// A timestamp and an interval: months first (the day cut to the month's length), then days, then time.
pub(super) fn shift(a: &Datum, b: &Datum, back: bool) -> Made {
    let micros = timestamp(a);
    if infinite(micros) {
        return Ok(a.clone());
    }
    let by = if back { interval::neg(span(b))? } else { span(b) };
    let mut days = micros.div_euclid(DAY);
    if by.months != 0 {
        let (year, month, day) = civil_from_days(days);
        let months = year * 12 + month - 1 + i64::from(by.months);
        let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
        days = days_from_civil(year, month, day.min(days_in_month(year, month)));
    }
    let moved =
        (days + i64::from(by.days)).checked_mul(DAY).and_then(|it| it.checked_add(micros.rem_euclid(DAY)));
    checked_timestamp(moved.and_then(|it| it.checked_add(by.micros))).map(Datum::Timestamp)
}

pub(super) fn difference(a: &Datum, b: &Datum) -> Made {
    let (a, b) = (timestamp(a), timestamp(b));
    if infinite(a) || infinite(b) {
        return Err(Error::new("22008", "cannot subtract infinite timestamps"));
    }
    let micros = a.checked_sub(b).ok_or_else(|| out_of_range("interval"))?;
    Ok(Datum::Interval(interval::justify(Interval::new(0, 0, micros), true, false)))
}

pub(super) fn time_shift(a: &Datum, b: &Datum, back: bool) -> Made {
    let by = span(b).micros;
    let moved = if back { timestamp(a) - by % DAY } else { timestamp(a) + by % DAY };
    Ok(Datum::Time(moved.rem_euclid(DAY)))
}

pub(super) fn time_minus_time(a: &Datum, b: &Datum) -> Made {
    Ok(Datum::Interval(Interval::new(0, 0, timestamp(a) - timestamp(b))))
}

pub(super) fn interval_plus(a: &Datum, b: &Datum) -> Made {
    interval::add(span(a), span(b)).map(Datum::Interval)
}

pub(super) fn interval_minus(a: &Datum, b: &Datum) -> Made {
    let (a, b) = (span(a), span(b));
    match (a.months.checked_sub(b.months), a.days.checked_sub(b.days), a.micros.checked_sub(b.micros)) {
        (Some(months), Some(days), Some(micros)) => Ok(Datum::Interval(Interval::new(months, days, micros))),
        _ => Err(interval::out_of_range()),
    }
}

pub(super) fn interval_neg(a: &Datum) -> Made {
    interval::neg(span(a)).map(Datum::Interval)
}

pub(super) fn interval_times(a: &Datum, factor: f64) -> Made {
    interval::scale(span(a), factor).map(Datum::Interval)
}

pub(super) fn interval_divided(a: &Datum, b: &Datum) -> Made {
    if float(b) == 0.0 {
        return Err(Error::new("22012", "division by zero"));
    }
    let (whole, by) = (span(a), float(b));
    let months = f64::from(whole.months) / by;
    let days = f64::from(whole.days) / by;
    let round = |seconds: f64| (seconds * 1e6).round_ties_even() / 1e6;
    let month_days = round((months - months.trunc()) * 30.0);
    let mut seconds = round((days - days.trunc() + month_days - month_days.trunc()) * 86400.0);
    let mut all_days = days.trunc() + month_days.trunc();
    if seconds.abs() >= 86400.0 {
        all_days += (seconds / 86400.0).trunc();
        seconds -= (seconds / 86400.0).trunc() * 86400.0;
    }
    let micros = (whole.micros as f64 / by + seconds * 1e6).round_ties_even();
    if months.abs() > 2e9 || all_days.abs() > 2e9 || micros.abs() > 9.2e18 {
        return Err(interval::out_of_range());
    }
    Ok(Datum::Interval(Interval::new(months as i32, all_days as i32, micros as i64)))
}

/// `justify_interval`: days of 24 hours, months of 30 days, one sign.
pub(super) fn justify_all(a: &Datum) -> Made {
    let Interval { months, days, micros } = span(a);
    let (mut months, mut days, mut micros) = (i64::from(months), i64::from(days), micros);
    days += micros / DAY;
    micros %= DAY;
    months += days / 30;
    days %= 30;
    if months > 0 && (days < 0 || (days == 0 && micros < 0)) {
        days += 30;
        months -= 1;
    } else if months < 0 && (days > 0 || (days == 0 && micros > 0)) {
        days -= 30;
        months += 1;
    }
    if days > 0 && micros < 0 {
        micros += DAY;
        days -= 1;
    } else if days < 0 && micros > 0 {
        micros -= DAY;
        days += 1;
    }
    let months = i32::try_from(months).map_err(|_| interval::out_of_range())?;
    Ok(Datum::Interval(Interval::new(months, days as i32, micros)))
}

pub(super) fn justify(a: &Datum, hours: bool, days: bool) -> Made {
    Ok(Datum::Interval(interval::justify(span(a), hours, days)))
}

/// A unit of time by one of its names; `None` is none.
fn unit(name: &str) -> Option<&'static str> {
    const UNITS: &[(&str, &[&str])] = &[
        ("microseconds", &["microsecond", "us", "usec", "usecs"]),
        ("milliseconds", &["millisecond", "ms", "msec", "msecs"]),
        ("second", &["seconds", "s", "sec", "secs"]),
        ("minute", &["minutes", "m", "min", "mins"]),
        ("hour", &["hours", "h", "hr", "hrs"]),
        ("day", &["days", "d"]),
        ("week", &["weeks", "w"]),
        ("month", &["months", "mon", "mons"]),
        ("quarter", &["qtr"]),
        ("year", &["years", "y", "yr", "yrs"]),
        ("decade", &["decades", "dec", "decs"]),
        ("century", &["centuries", "cent", "c"]),
        ("millennium", &["millennia", "mil", "mils"]),
        ("dow", &[]),
        ("isodow", &[]),
        ("doy", &[]),
        ("isoyear", &[]),
        ("epoch", &[]),
        ("julian", &[]),
        ("timezone", &[]),
        ("timezone_hour", &[]),
        ("timezone_minute", &[]),
    ];
    let lower = name.to_ascii_lowercase();
    UNITS.iter().find(|(known, others)| *known == lower || others.contains(&&*lower)).map(|(known, _)| *known)
}

fn unknown_unit(name: &str, ty: &str) -> Error {
    Error::new("22023", format!("unit \"{name}\" not recognized for type {ty}"))
}

fn unsupported_unit(name: &str, ty: &str) -> Error {
    Error::new("0A000", format!("unit \"{name}\" not supported for type {ty}"))
}

/// The week of ISO 8601 and its year.
fn iso_week(days: i64) -> (i64, i64) {
    let weekday = (days + 3).rem_euclid(7);
    let thursday = days - weekday + 3;
    let (year, _, _) = civil_from_days(thursday);
    ((thursday - days_from_civil(year, 1, 1)) / 7 + 1, year)
}

fn seconds(micros: i64) -> Numeric {
    Numeric::Small(micros, 6)
}

fn whole(value: i64) -> Numeric {
    Numeric::Small(value, 0)
}

/// A field of a day. Years before 1 are counted without a year 0.
pub(super) fn day_field(unit: &str, days: i64) -> Option<i64> {
    let (year, month, day) = civil_from_days(days);
    let shown = if year > 0 { year } else { year - 1 };
    Some(match unit {
        "day" => day,
        "month" => month,
        "quarter" => (month - 1) / 3 + 1,
        "year" => shown,
        "decade" => year.div_euclid(10),
        "century" => {
            if year > 0 {
                (year + 99) / 100
            } else {
                -((99 - (year - 1)) / 100)
            }
        }
        "millennium" => {
            if year > 0 {
                (year + 999) / 1000
            } else {
                -((999 - (year - 1)) / 1000)
            }
        }
        "dow" => (days + 4).rem_euclid(7),
        "isodow" => (days + 3).rem_euclid(7) + 1,
        "doy" => days - days_from_civil(year, 1, 1) + 1,
        "week" => iso_week(days).0,
        "isoyear" => {
            let year = iso_week(days).1;
            if year > 0 { year } else { year - 1 }
        }
        _ => return None,
    })
}

fn time_field(unit: &str, micros: i64) -> Option<Numeric> {
    Some(match unit {
        "microseconds" => whole(micros % MINUTE),
        "milliseconds" => Numeric::Small(micros % MINUTE, 3),
        "second" => seconds(micros % MINUTE),
        "minute" => whole(micros / MINUTE % 60),
        "hour" => whole(micros / HOUR),
        _ => return None,
    })
}

fn infinite_field(unit: &str, positive: bool) -> Option<Numeric> {
    matches!(unit, "year" | "decade" | "century" | "millennium" | "isoyear" | "epoch" | "julian")
        .then_some(Numeric::Infinity(positive))
}

const WITH_ZONE: &str = "timestamp with time zone";

/// `extract(field from …)` of a moment, as the clock of the session's zone shows it.
pub(super) fn extract_in(field: &Datum, value: &Datum, env: &Env<'_>) -> Made {
    let name = str(field);
    let micros = timestamp(value);
    if infinite(micros) {
        return extract(field, value, WITH_ZONE);
    }
    let seconds = zone(env).offset(micros) / SECOND;
    let number = match unit(name).ok_or_else(|| unknown_unit(name, WITH_ZONE))? {
        "epoch" => return extract(field, value, WITH_ZONE),
        "timezone" => seconds,
        "timezone_hour" => seconds / 3600,
        "timezone_minute" => seconds % 3600 / 60,
        _ => return extract(field, &local(value, env), WITH_ZONE),
    };
    Ok(Datum::Numeric(whole(number)))
}

/// The same as a float (`date_part`).
pub(super) fn date_part_in(field: &Datum, value: &Datum, env: &Env<'_>) -> Made {
    as_float(extract_in(field, value, env)?)
}

fn as_float(number: Datum) -> Made {
    match number {
        Datum::Numeric(number) => number.to_f64().map(Datum::Float),
        other => Ok(other),
    }
}

/// `extract(field from …)` for all types; null for fields that an infinity does not have.
pub(super) fn extract(field: &Datum, value: &Datum, ty: &'static str) -> Made {
    let name = str(field);
    let unit = unit(name).ok_or_else(|| unknown_unit(name, ty))?;
    let bad = || unsupported_unit(name, ty);
    let number = match value {
        Datum::Date(days) => {
            if infinite_date(*days) {
                return Ok(infinite_field(unit, *days > 0).map_or(Datum::Null, Datum::Numeric));
            }
            match unit {
                "epoch" => whole(i64::from(*days) * 86400),
                "julian" => whole(i64::from(*days) + 2_440_588),
                _ => whole(day_field(unit, i64::from(*days)).ok_or_else(bad)?),
            }
        }
        Datum::Timestamp(micros) => {
            if infinite(*micros) {
                return Ok(infinite_field(unit, *micros > 0).map_or(Datum::Null, Datum::Numeric));
            }
            let (days, time) = (micros.div_euclid(DAY), micros.rem_euclid(DAY));
            match unit {
                "epoch" => seconds(*micros),
                "julian" => {
                    let day = Numeric::Small(time, 0).div(&Numeric::Small(DAY, 0))?;
                    whole(days + 2_440_588).add(&day)?
                }
                _ => match day_field(unit, days) {
                    Some(number) => whole(number),
                    None => time_field(unit, time).ok_or_else(bad)?,
                },
            }
        }
        Datum::Time(micros) => match unit {
            "epoch" => seconds(*micros),
            _ => time_field(unit, *micros).ok_or_else(bad)?,
        },
        Datum::Interval(interval) => interval_field(unit, *interval).ok_or_else(bad)?,
        other => unreachable!("a time is expected: {other:?}"),
    };
    Ok(Datum::Numeric(number))
}

fn interval_field(unit: &str, interval: Interval) -> Option<Numeric> {
    let (years, months) = (i64::from(interval.months) / 12, i64::from(interval.months) % 12);
    Some(match unit {
        "year" => whole(years),
        "decade" => whole(years / 10),
        "century" => whole(years / 100),
        "millennium" => whole(years / 1000),
        "month" => whole(months),
        "quarter" => whole(months / 3 + 1),
        "day" => whole(i64::from(interval.days)),
        "epoch" => {
            let days = i128::from(years) * 1461 * 86400 / 4
                + (i128::from(months) * 30 + i128::from(interval.days)) * 86400;
            Numeric::from_i128(days * i128::from(SECOND) + i128::from(interval.micros), 6)
        }
        _ => return time_field(unit, interval.micros),
    })
}

/// The same as a float (`date_part`).
pub(super) fn date_part(field: &Datum, value: &Datum, ty: &'static str) -> Made {
    as_float(extract(field, value, ty)?)
}

/// A timestamp cut to a unit.
pub(super) fn truncate(field: &Datum, value: &Datum, ty: &'static str) -> Made {
    let name = str(field);
    let unit = unit(name).ok_or_else(|| unknown_unit(name, ty))?;
    let micros = timestamp(value);
    if infinite(micros) {
        return Ok(value.clone());
    }
    let (days, time) = (micros.div_euclid(DAY), micros.rem_euclid(DAY));
    let (year, month, _) = civil_from_days(days);
    let first = |year: i64, month: i64| days_from_civil(year, month, 1) * DAY;
    let cut = match unit {
        "microseconds" => micros,
        "milliseconds" => days * DAY + time / 1000 * 1000,
        "second" => days * DAY + time / SECOND * SECOND,
        "minute" => days * DAY + time / MINUTE * MINUTE,
        "hour" => days * DAY + time / HOUR * HOUR,
        "day" => days * DAY,
        "week" => (days - (days + 3).rem_euclid(7)) * DAY,
        "month" => first(year, month),
        "quarter" => first(year, (month - 1) / 3 * 3 + 1),
        "year" => first(year, 1),
        "decade" => first(year.div_euclid(10) * 10, 1),
        "century" => first((year - 1).div_euclid(100) * 100 + 1, 1),
        "millennium" => first((year - 1).div_euclid(1000) * 1000 + 1, 1),
        _ => return Err(unsupported_unit(name, ty)),
    };
    Ok(Datum::Timestamp(cut))
}

/// A moment cut to a unit on the clock of a zone.
pub(super) fn truncate_in(field: &Datum, value: &Datum, zone: &Zone) -> Made {
    let micros = timestamp(value);
    if infinite(micros) {
        return truncate(field, value, WITH_ZONE);
    }
    let offset = zone.offset(micros);
    let cut = timestamp(&truncate(field, &Datum::Timestamp(micros + offset), WITH_ZONE)?);
    // Within an hour the offset stays, also where the clock shows that hour twice.
    let keeps =
        matches!(unit(str(field)), Some("microseconds" | "milliseconds" | "second" | "minute" | "hour"));
    if keeps { checked_timestamp(Some(cut - offset)).map(Datum::Timestamp) } else { moment(cut, zone) }
}

/// `date_trunc(field, moment, zone)`
pub(super) fn truncate_at(args: &[Datum]) -> Made {
    truncate_in(&args[0], &args[1], &Zone::at(str(&args[2]))?)
}

/// An interval cut to a unit.
pub(super) fn truncate_interval(field: &Datum, value: &Datum) -> Made {
    let name = str(field);
    let unit = unit(name).ok_or_else(|| unknown_unit(name, "interval"))?;
    let Interval { months, days, micros } = span(value);
    let years = |count: i32| Interval::new(months / 12 / count * count * 12, 0, 0);
    Ok(Datum::Interval(match unit {
        "microseconds" => Interval::new(months, days, micros),
        "milliseconds" => Interval::new(months, days, micros / 1000 * 1000),
        "second" => Interval::new(months, days, micros / SECOND * SECOND),
        "minute" => Interval::new(months, days, micros / MINUTE * MINUTE),
        "hour" => Interval::new(months, days, micros / HOUR * HOUR),
        "day" => Interval::new(months, days, 0),
        "month" => Interval::new(months, 0, 0),
        "quarter" => Interval::new(months / 3 * 3, 0, 0),
        "year" => years(1),
        "decade" => years(10),
        "century" => years(100),
        "millennium" => years(1000),
        _ => return Err(unsupported_unit(name, "interval")),
    }))
}

/// Years, months, days and time between two timestamps (`timestamp_age`).
pub(super) fn age(a: &Datum, b: &Datum) -> Made {
    let (a, b) = (timestamp(a), timestamp(b));
    if infinite(a) || infinite(b) {
        return Err(Error::new("22008", "timestamp out of range"));
    }
    let (late, early) = if a >= b { (a, b) } else { (b, a) };
    let (year, month, day) = civil_from_days(late.div_euclid(DAY));
    let (early_year, early_month, early_day) = civil_from_days(early.div_euclid(DAY));
    let mut micros = late.rem_euclid(DAY) - early.rem_euclid(DAY);
    let mut days = day - early_day;
    let mut months = (year - early_year) * 12 + month - early_month;
    if micros < 0 {
        micros += DAY;
        days -= 1;
    }
    while days < 0 {
        // Days of the month of the earlier one, whichever comes first.
        days += days_in_month(early_year, early_month);
        months -= 1;
    }
    let span = Interval::new(months as i32, days as i32, micros);
    if a >= b { Ok(Datum::Interval(span)) } else { interval::neg(span).map(Datum::Interval) }
}

/// `age` of two moments: of what the clock of the session's zone shows then.
pub(super) fn age_in(a: &Datum, b: &Datum, env: &Env<'_>) -> Made {
    age(&local(a, env), &local(b, env))
}

/// `age` of a timestamp at the midnight with which the day began.
pub(super) fn age_today(value: &Datum, env: &Env<'_>) -> Made {
    age(&Datum::Timestamp(today(env) * DAY), value)
}

/// Days since 1970, as the clock of the session's zone shows them.
fn today(env: &Env<'_>) -> i64 {
    zone(env).to_local(env.context.local.now_us).div_euclid(DAY)
}

/// The time that the clock of the session's zone shows: a timestamp, a date or a time of day.
pub(super) fn now_shown(env: &Env<'_>) -> i64 {
    zone(env).to_local(env.context.local.now_us)
}

/// `timestamp AT TIME ZONE zone`: the moment at which the clock there shows it.
pub(super) fn at_zone(name: &Datum, value: &Datum) -> Made {
    moment(timestamp(value), &Zone::at(str(name))?)
}

/// `timestamptz AT TIME ZONE zone`: what the clock there shows.
pub(super) fn shown_at_zone(name: &Datum, value: &Datum) -> Made {
    Ok(Datum::Timestamp(Zone::at(str(name))?.to_local(timestamp(value))))
}

/// A zone that is an interval east of Greenwich.
fn zone_of_interval(value: &Datum) -> Result<Zone> {
    let by = span(value);
    if by.months != 0 || by.days != 0 {
        let shown = interval::show(by);
        let message = format!("interval time zone \"{shown}\" must not include months or days");
        return Err(Error::new("22023", message));
    }
    Zone::with_offset(by.micros / SECOND).map(|(zone, _)| zone).ok_or_else(|| {
        Error::new("22023", "the time zone is too far from UTC")
            .hint("Take an interval of less than 26 hours.")
    })
}

pub(super) fn at_interval(by: &Datum, value: &Datum) -> Made {
    moment(timestamp(value), &zone_of_interval(by)?)
}

pub(super) fn shown_at_interval(by: &Datum, value: &Datum) -> Made {
    Ok(Datum::Timestamp(zone_of_interval(by)?.to_local(timestamp(value))))
}

pub(super) fn is_finite(value: &Datum) -> Made {
    Ok(Datum::Bool(match value {
        Datum::Date(days) => !infinite_date(*days),
        Datum::Timestamp(micros) => !infinite(*micros),
        _ => true,
    }))
}

pub(super) fn make_date(args: &[Datum]) -> Made {
    let (year, month, day) = (int(&args[0]), int(&args[1]), int(&args[2]));
    let real = if year < 0 { year + 1 } else { year };
    if year == 0 || !(1..=12).contains(&month) || day < 1 || day > days_in_month(real, month) {
        return Err(Error::new(
            "22008",
            format!("date field value out of range: {year}-{month:02}-{day:02}"),
        ));
    }
    checked_date(days_from_civil(real, month, day)).map(Datum::Date)
}

fn clock(hour: i64, minute: i64, second: f64) -> Result<i64> {
    let micros = (second * 1e6).round_ties_even();
    let valid = (0..=24).contains(&hour) && (0..60).contains(&minute) && (0.0..=60e6).contains(&micros);
    let total = if valid { hour * HOUR + minute * MINUTE + micros as i64 } else { -1 };
    if (0..=DAY).contains(&total) {
        return Ok(total);
    }
    Err(Error::new("22008", format!("time field value out of range: {hour}:{minute:02}:{second:02}")))
}

pub(super) fn make_time(args: &[Datum]) -> Made {
    clock(int(&args[0]), int(&args[1]), float(&args[2])).map(Datum::Time)
}

pub(super) fn make_timestamp(args: &[Datum]) -> Made {
    let Datum::Date(days) = make_date(&args[..3])? else { unreachable!("make_date makes dates") };
    let time = clock(int(&args[3]), int(&args[4]), float(&args[5]))?;
    checked_timestamp(timestamp_of_date(days)?.checked_add(time)).map(Datum::Timestamp)
}

/// `make_timestamptz`: with the clock of the session's zone, or of one that is named.
pub(super) fn make_timestamptz(args: &[Datum], env: &Env<'_>) -> Made {
    let shown = timestamp(&make_timestamp(args)?);
    match args.get(6).map(str) {
        // A number is hours east of Greenwich, as in a text of a moment, not as in a zone of POSIX.
        Some(number) if number.starts_with(['+', '-']) => {
            let offset =
                crate::types::datetime::read_offset(number, number).map_err(|error| match error {
                    Some(_) => Error::new("22023", format!("numeric time zone \"{number}\" out of range")),
                    None => {
                        let message =
                            format!("invalid input syntax for type numeric time zone: \"{number}\"");
                        Error::new("22023", message)
                    }
                })?;
            checked_timestamp(shown.checked_sub(offset)).map(Datum::Timestamp)
        }
        Some(number) if number.starts_with(|sign: char| sign.is_ascii_digit()) => {
            let message = format!("invalid input syntax for type numeric time zone: \"{number}\"");
            Err(Error::new("22023", message)
                .hint("Numeric time zones must have \"-\" or \"+\" as first character."))
        }
        Some(name) => moment(shown, &Zone::at(name)?),
        None => moment(shown, zone(env)),
    }
}

/// `to_timestamp(seconds since 1970)`
pub(super) fn to_timestamp(value: &Datum) -> Made {
    let seconds = float(value);
    if seconds.is_nan() {
        return Err(Error::new("22008", "timestamp cannot be NaN"));
    }
    if seconds.is_infinite() {
        return Ok(Datum::Timestamp(if seconds > 0.0 { i64::MAX } else { i64::MIN }));
    }
    let micros = (seconds * 1e6).round_ties_even();
    if micros.abs() > 9.2e18 {
        return Err(Error::new("22008", format!("timestamp out of range: \"{seconds}\"")));
    }
    checked_timestamp(Some(micros as i64)).map(Datum::Timestamp)
}
