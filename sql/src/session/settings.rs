//! SET and SHOW: the settings that drivers and tools ask for.

use thermocline_engine::Isolation;

use super::Answer;
use crate::error::{Error, Result, nearest};

/// Settings with their defaults; those that have one value only are marked.
const KNOWN: &[(&str, &str, bool)] = &[
    ("application_name", "", false),
    ("bytea_output", "hex", true),
    ("client_encoding", "UTF8", true),
    ("client_min_messages", "notice", false),
    ("datestyle", "ISO, MDY", true),
    ("default_transaction_isolation", "read committed", false),
    ("default_transaction_read_only", "off", true),
    ("extra_float_digits", "1", false),
    ("idle_in_transaction_session_timeout", "0", true),
    ("integer_datetimes", "on", true),
    ("intervalstyle", "postgres", true),
    ("lc_collate", "C", true),
    ("lc_ctype", "C.UTF-8", true),
    ("lock_timeout", "0", true),
    ("search_path", "\"$user\", public", false),
    ("server_encoding", "UTF8", true),
    ("server_version", "15.0", true),
    ("server_version_num", "150000", true),
    ("standard_conforming_strings", "on", true),
    ("statement_timeout", "0", true),
    ("timezone", "UTC", true),
    ("transaction_isolation", "", false),
    ("transaction_read_only", "off", true),
];

pub(super) struct Settings {
    values: Vec<(&'static str, String)>,
    pub(super) isolation: Isolation,
    /// Changes with each setting that does.
    pub(super) version: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { values: Vec::new(), isolation: Isolation::ReadCommitted, version: 0 }
    }
}

fn unknown(name: &str) -> Error {
    let error = Error::new("42704", format!("unrecognized configuration parameter \"{name}\""));
    match nearest(name, KNOWN.iter().map(|(known, _, _)| *known)) {
        Some(near) => error.hint(format!("Perhaps you meant \"{near}\".")),
        None => error,
    }
}

fn level(name: &str) -> Option<Isolation> {
    Some(match name {
        "serializable" => Isolation::Serializable,
        "repeatable read" => Isolation::Snapshot,
        "read committed" | "read uncommitted" => Isolation::ReadCommitted,
        _ => return None,
    })
}

impl Settings {
    pub(super) fn set(&mut self, name: &str, value: Option<&[String]>) -> Result<Answer> {
        let lower = name.to_ascii_lowercase();
        let (known, default, fixed) =
            KNOWN.iter().find(|(known, _, _)| *known == lower).ok_or_else(|| unknown(name))?;
        let wanted = value.map_or_else(|| (*default).to_owned(), |value| value.join(", "));
        if lower == "default_transaction_isolation" {
            self.isolation = level(&wanted).ok_or_else(|| {
                Error::new("22023", format!("invalid value for parameter \"{name}\": \"{wanted}\""))
            })?;
        }
        let same = |a: &str, b: &str| {
            let plain = |text: &str| text.to_ascii_lowercase().replace(['-', ' ', '\''], "");
            plain(a) == plain(b) || (plain(b).starts_with(&plain(a)) && !a.is_empty())
        };
        if *fixed && !same(&wanted, default) {
            return Err(Error::unsupported(format!("setting \"{name}\" to \"{wanted}\""))
                .hint(format!("Its only value is \"{default}\".")));
        }
        self.values.retain(|(other, _)| other != known);
        self.values.push((known, wanted));
        self.version += 1;
        Ok(Answer { tag: "SET".to_owned(), ..Answer::default() })
    }

    pub(super) fn reset(&mut self, name: Option<&str>) -> Answer {
        self.version += 1;
        match name {
            Some(name) => self.values.retain(|(other, _)| !other.eq_ignore_ascii_case(name)),
            None => self.values.clear(),
        }
        if name.is_none_or(|name| name.eq_ignore_ascii_case("default_transaction_isolation")) {
            self.isolation = Isolation::ReadCommitted;
        }
        Answer { tag: "RESET".to_owned(), ..Answer::default() }
    }

    /// The name of a setting, in lower case.
    pub(super) fn name(&self, name: &str) -> Result<&'static str> {
        let lower = name.to_ascii_lowercase();
        KNOWN.iter().find(|(known, _, _)| *known == lower).map(|it| it.0).ok_or_else(|| unknown(name))
    }

    pub(super) fn show(&self, name: &str, isolation: Isolation) -> Result<String> {
        let lower = name.to_ascii_lowercase();
        let (known, default, _) =
            KNOWN.iter().find(|(known, _, _)| *known == lower).ok_or_else(|| unknown(name))?;
        if *known == "transaction_isolation" {
            return Ok(match isolation {
                Isolation::Serializable => "serializable",
                Isolation::ReadCommitted => "read committed",
                _ => "repeatable read",
            }
            .to_owned());
        }
        let set = self.values.iter().find(|(other, _)| other == known);
        Ok(set.map_or_else(|| (*default).to_owned(), |(_, value)| value.clone()))
    }
}
