//! The settings that drivers and tools ask for: their names, their defaults, and which values each takes.

mod hints;

use std::borrow::Cow;
use std::time::Duration;

use thermocline_engine::Isolation;

use crate::error::{Error, Result, nearest};
use crate::types::zone;
use hints::{HINTS, Hint, Unit};

/// The kind of values that a setting takes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Its default only.
    Fixed,
    Any,
    Level,
    Switch,
    /// A time in milliseconds, or with its unit.
    Time,
    /// It is checked and told again, and changes no answer.
    Hint(Hint),
    /// None, or the one role that there is.
    Role,
    /// A time zone.
    Zone,
    /// Tells something and cannot be set.
    Told,
}

/// Settings with their defaults.
const KNOWN: &[(&str, &str, Kind)] = &[
    ("application_name", "", Kind::Any),
    ("bytea_output", "hex", Kind::Fixed),
    ("client_encoding", "UTF8", Kind::Fixed),
    ("client_min_messages", "notice", Kind::Any),
    ("datestyle", "ISO, MDY", Kind::Fixed),
    ("default_table_access_method", "heap", Kind::Fixed),
    ("default_tablespace", "", Kind::Fixed),
    ("default_transaction_deferrable", "off", Kind::Fixed),
    ("default_transaction_isolation", "read committed", Kind::Level),
    ("default_transaction_read_only", "off", Kind::Switch),
    ("escape_string_warning", "on", Kind::Any),
    ("extra_float_digits", "1", Kind::Any),
    ("idle_in_transaction_session_timeout", "0", Kind::Time),
    ("idle_session_timeout", "0", Kind::Time),
    ("integer_datetimes", "on", Kind::Told),
    ("intervalstyle", "postgres", Kind::Fixed),
    ("jit", "off", Kind::Any),
    ("lc_collate", "C", Kind::Told),
    ("lc_ctype", "C.UTF-8", Kind::Told),
    ("lc_messages", "C", Kind::Fixed),
    ("lc_monetary", "C", Kind::Fixed),
    ("lc_numeric", "C", Kind::Fixed),
    ("lc_time", "C", Kind::Fixed),
    ("lock_timeout", "0", Kind::Time),
    ("max_identifier_length", "63", Kind::Told),
    ("max_index_keys", "32", Kind::Told),
    ("role", "none", Kind::Role),
    ("row_security", "on", Kind::Any),
    ("search_path", "\"$user\", public", Kind::Any),
    ("server_encoding", "UTF8", Kind::Told),
    ("server_version", "15.0", Kind::Told),
    ("server_version_num", "150000", Kind::Told),
    ("session_authorization", "postgres", Kind::Fixed),
    ("standard_conforming_strings", "on", Kind::Fixed),
    ("statement_timeout", "0", Kind::Time),
    ("synchronous_commit", "on", Kind::Fixed),
    ("timezone", "UTC", Kind::Zone),
    ("transaction_isolation", "", Kind::Told),
    ("transaction_read_only", "off", Kind::Told),
    ("array_nulls", "on", Kind::Fixed),
    ("backslash_quote", "safe_encoding", Kind::Fixed),
    ("client_connection_check_interval", "0", Kind::Fixed),
    ("exit_on_error", "off", Kind::Fixed),
    ("lo_compat_privileges", "off", Kind::Fixed),
    ("password_encryption", "scram-sha-256", Kind::Fixed),
    ("quote_all_identifiers", "off", Kind::Fixed),
    ("session_replication_role", "origin", Kind::Fixed),
    ("transform_null_equals", "off", Kind::Fixed),
    ("xmlbinary", "base64", Kind::Fixed),
    ("xmloption", "content", Kind::Fixed),
];

/// All settings: their names, defaults and kinds.
fn all() -> impl Iterator<Item = (&'static str, &'static str, Kind)> {
    let hints = HINTS.iter().map(|(name, default, hint)| (*name, *default, Kind::Hint(*hint)));
    KNOWN.iter().copied().chain(hints)
}

/// Names of settings, and their defaults.
pub(crate) fn defaults() -> impl Iterator<Item = (&'static str, &'static str)> {
    all().map(|(name, default, _)| (name, default))
}

/// Names of settings, their defaults, and what values they take.
#[cfg(test)]
pub(crate) fn described() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    all().map(|(name, default, kind)| {
        let takes = match kind {
            Kind::Fixed => "its default only",
            Kind::Any => "any text",
            Kind::Level => "a level of isolation",
            Kind::Switch => "on, off",
            Kind::Time => "milliseconds, or a number with us, ms, s, min, h or d",
            Kind::Hint(hint) => hints::takes(name, hint),
            Kind::Role => "none, postgres",
            Kind::Zone => "a time zone: its name, or hours east of UTC",
            Kind::Told => "nothing: it is told",
        };
        (name, default, takes)
    })
}

/// Values that are not the defaults.
pub(crate) type Values = Vec<(Cow<'static, str>, String)>;

fn unknown(name: &str) -> Error {
    let error = Error::new("42704", format!("unrecognized configuration parameter \"{name}\""));
    match nearest(name, KNOWN.iter().map(|(known, _, _)| *known)) {
        Some(near) => error.hint(format!("Perhaps you meant \"{near}\".")),
        None => error,
    }
}

fn known(name: &str) -> Result<(&'static str, &'static str, Kind)> {
    all().find(|(known, _, _)| known.eq_ignore_ascii_case(name)).ok_or_else(|| unknown(name))
}

/// The level of isolation with this name.
pub(crate) fn level(name: &str) -> Option<Isolation> {
    Some(match name {
        "serializable" => Isolation::Serializable,
        "repeatable read" => Isolation::Snapshot,
        "read committed" | "read uncommitted" => Isolation::ReadCommitted,
        _ => return None,
    })
}

fn switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "on" | "1" => Some(true),
        "off" | "of" | "0" => Some(false),
        // A beginning will do, if it is no other's.
        word if !word.is_empty() && ("true".starts_with(word) || "yes".starts_with(word)) => Some(true),
        word if !word.is_empty() && ("false".starts_with(word) || "no".starts_with(word)) => Some(false),
        _ => None,
    }
}

/// The time that a setting says; none if it is none.
pub(crate) fn time(text: &str) -> Option<Duration> {
    let (_, millis) = hints::whole("", text, TIME).ok()?;
    u64::try_from(millis).ok().map(Duration::from_millis)
}

/// Times are whole milliseconds.
const TIME: (Unit, i64, i64) = (Unit::Time(1), 0, i32::MAX as i64);

/// The bytes of an amount of memory; none if there is no bound.
pub(crate) fn memory(text: &str) -> Option<u64> {
    hints::kilobytes(text).and_then(|amount| u64::try_from(amount).ok()).map(|amount| amount << 10)
}

/// Are the values the same but for their writing?
fn same(wanted: &str, default: &str) -> bool {
    let plain = |text: &str| text.to_ascii_lowercase().replace(['-', ' ', '\'', '_'], "");
    let (wanted, default) = (plain(wanted), plain(default));
    wanted == default
        || (!wanted.is_empty() && default.starts_with(&wanted))
        || (default == "utf8" && wanted == "unicode")
        || (default == "c" && ["c.utf8", "posix", "enus.utf8"].contains(&wanted.as_str()))
        || (switch(&wanted).is_some() && switch(&wanted) == switch(&default))
}

/// The name of a setting, the value that it would have, and whether that is the default.
pub(crate) fn checked(name: &str, value: Option<&[String]>) -> Result<(Cow<'static, str>, String, bool)> {
    if let Some(name) = custom(name) {
        let is_default = value.is_none();
        return Ok((Cow::Owned(name), value.map_or_else(String::new, |value| value.join(", ")), is_default));
    }
    let (known, default, kind) = known(name)?;
    let mut wanted = value.map_or_else(|| default.to_owned(), |value| value.join(", "));
    let invalid = || {
        Error::new(
            "22023",
            format!(
                "invalid value for parameter \"{known}\": \"{}\"",
                value.map_or_else(String::new, |it| it.join(", "))
            ),
        )
    };
    match kind {
        Kind::Any => {}
        Kind::Told => {
            return Err(Error::new("55P02", format!("parameter \"{known}\" cannot be changed")));
        }
        Kind::Level => drop(level(&wanted).ok_or_else(invalid)?),
        Kind::Switch => {
            wanted = if switch(&wanted).ok_or_else(invalid)? { "on" } else { "off" }.to_owned();
        }
        Kind::Time => wanted = hints::whole(known, &wanted, TIME)?.0,
        Kind::Hint(hint) => wanted = hints::checked(known, &wanted, hint)?,
        Kind::Zone => wanted = zone::setting(&wanted)?.1,
        Kind::Role if ["none", "postgres"].contains(&&*wanted) => {}
        Kind::Role => {
            return Err(Error::new("22023", format!("role \"{wanted}\" does not exist")));
        }
        Kind::Fixed if same(&wanted, default) => default.clone_into(&mut wanted),
        Kind::Fixed => {
            return Err(Error::unsupported(format!("setting \"{known}\" to \"{wanted}\""))
                .hint(format!("Its only value is \"{default}\".")));
        }
    }
    let is_default = wanted == default;
    Ok((Cow::Borrowed(known), wanted, is_default))
}

/// The name of a setting of the application's own: it has a dot.
fn custom(name: &str) -> Option<String> {
    let plain = |part: &str| {
        part.starts_with(|sign: char| sign.is_ascii_alphabetic() || sign == '_')
            && part.chars().all(|sign| sign.is_ascii_alphanumeric() || sign == '_' || sign == '$')
    };
    let (class, rest) = name.split_once('.')?;
    (plain(class) && rest.split('.').all(plain)).then(|| name.to_ascii_lowercase())
}

/// The value of a setting among these values.
pub(crate) fn show(values: &Values, name: &str, isolation: Isolation, read_only: bool) -> Result<String> {
    if let Some(name) = custom(name) {
        let found = values.iter().find(|(other, _)| *other == name);
        return found.map(|(_, value)| value.clone()).ok_or_else(|| unknown(&name));
    }
    let (known, default, _) = known(name)?;
    if known == "transaction_isolation" {
        return Ok(match isolation {
            Isolation::Serializable => "serializable",
            Isolation::ReadCommitted => "read committed",
            _ => "repeatable read",
        }
        .to_owned());
    }
    if known == "transaction_read_only" {
        return Ok(if read_only { "on" } else { "off" }.to_owned());
    }
    let set = values.iter().find(|(other, _)| *other == known);
    Ok(set.map_or_else(|| default.to_owned(), |(_, value)| value.clone()))
}

/// The name of a setting, as it is written.
pub(crate) fn written(name: &str) -> Result<String> {
    if let Some(name) = custom(name) {
        return Ok(name);
    }
    let (known, ..) = known(name)?;
    Ok(match known {
        "datestyle" => "DateStyle",
        "intervalstyle" => "IntervalStyle",
        "timezone" => "TimeZone",
        known => known,
    }
    .to_owned())
}
