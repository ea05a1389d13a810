//! SET and SHOW.
//!
//! A setting that is set in a transaction is what it was before when that is rolled back; one that is set with LOCAL also when it
//! is committed. RESET goes back to what the session was opened with.

use std::time::Duration;

use thermocline_engine::Isolation;

use super::{Answer, Session};
use crate::error::Result;
use crate::settings::{Values, checked, defaults, level, memory, show, time};
use crate::types::Zone;

pub(super) struct Settings {
    values: Values,
    /// The values that the session was opened with, where they are not the defaults.
    initial: Values,
    /// The zone of times, and the name that is set.
    pub(super) zone: Zone,
    zone_name: String,
    pub(super) isolation: Isolation,
    pub(super) read_only: bool,
    pub(super) statement_timeout: Option<Duration>,
    pub(super) lock_timeout: Option<Duration>,
    pub(super) idle_session_timeout: Option<Duration>,
    pub(super) idle_in_transaction_timeout: Option<Duration>,
    /// Bytes that an operator keeps in memory, and a statement in files, where that is set.
    pub(super) work_mem: Option<u64>,
    pub(super) temp_file_limit: Option<u64>,
    /// Changes with each setting that does.
    pub(super) version: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            values: Values::new(),
            initial: Values::new(),
            zone: Zone::UTC,
            zone_name: String::new(),
            isolation: Isolation::ReadCommitted,
            read_only: false,
            statement_timeout: None,
            lock_timeout: None,
            idle_session_timeout: None,
            idle_in_transaction_timeout: None,
            work_mem: None,
            temp_file_limit: None,
            version: 0,
        }
    }
}

impl Settings {
    /// The values that are set now.
    pub(super) fn values(&self) -> &Values {
        &self.values
    }

    /// Sets a setting for the whole session: RESET goes back to this value.
    pub(super) fn open_with(&mut self, name: &str, value: &str) -> Result<()> {
        self.set(name, Some(&[value.to_owned()]))?;
        self.initial.clone_from(&self.values);
        Ok(())
    }

    /// Goes back to values that were set before.
    pub(super) fn restore(&mut self, values: Values) {
        if self.values != values {
            self.values = values;
            self.changed();
        }
    }

    pub(super) fn set(&mut self, name: &str, value: Option<&[String]>) -> Result<Answer> {
        if value.is_none() {
            self.reset(Some(name))?;
            return Ok(Answer { tag: "SET".to_owned(), ..Answer::default() });
        }
        let (known, wanted, is_default) = checked(name, value)?;
        self.values.retain(|(other, _)| *other != known);
        if !is_default {
            self.values.push((known, wanted));
        }
        self.changed();
        Ok(Answer { tag: "SET".to_owned(), ..Answer::default() })
    }

    pub(super) fn reset(&mut self, name: Option<&str>) -> Result<Answer> {
        match name {
            Some(name) => {
                let (known, ..) = checked(name, None)?;
                self.values.retain(|(other, _)| *other != known);
                self.values.extend(self.initial.iter().find(|(other, _)| *other == known).cloned());
            }
            None => self.values.clone_from(&self.initial),
        }
        self.changed();
        Ok(Answer { tag: "RESET".to_owned(), ..Answer::default() })
    }

    /// Reads what the session itself looks at.
    fn changed(&mut self) {
        self.version += 1;
        let value =
            |name: &str| self.values.iter().find(|(other, _)| *other == name).map(|(_, value)| &value[..]);
        self.isolation =
            value("default_transaction_isolation").and_then(level).unwrap_or(Isolation::ReadCommitted);
        self.read_only = value("default_transaction_read_only") == Some("on");
        let zone = value("timezone").unwrap_or("");
        if zone != self.zone_name {
            self.zone = Zone::named(zone).map_or(Zone::UTC, |(zone, _)| zone);
            self.zone_name = zone.to_owned();
        }
        let limit = |name: &str| value(name).and_then(time).filter(|time| !time.is_zero());
        self.statement_timeout = limit("statement_timeout");
        self.lock_timeout = limit("lock_timeout");
        self.idle_session_timeout = limit("idle_session_timeout");
        self.idle_in_transaction_timeout = limit("idle_in_transaction_session_timeout");
        self.work_mem = value("work_mem").and_then(memory);
        self.temp_file_limit = value("temp_file_limit").and_then(memory);
    }

    /// Names and values of all settings.
    pub(super) fn all(&self, isolation: Isolation, read_only: bool) -> Vec<(&'static str, String)> {
        let value = |(name, _)| (name, self.show(name, isolation, read_only).unwrap_or_default());
        defaults().map(value).collect()
    }

    pub(super) fn show(&self, name: &str, isolation: Isolation, read_only: bool) -> Result<String> {
        show(&self.values, name, isolation, read_only)
    }
}

impl Session {
    /// Names and values of all settings.
    pub(crate) fn settings(&self) -> Vec<(&'static str, String)> {
        match &self.open {
            Some(open) => self.settings.all(open.isolation, open.read_only),
            None => self.settings.all(self.settings.isolation, self.settings.read_only),
        }
    }

    pub(super) fn set_setting(
        &mut self,
        local: bool,
        name: &str,
        value: Option<&[String]>,
    ) -> Result<Answer> {
        let before = self.settings.values().clone();
        let mut answer = self.settings.set(name, value)?;
        match &mut self.open {
            Some(open) if !open.implicit => {
                open.settings.get_or_insert(before);
                if local {
                    open.local_settings = true;
                }
            }
            _ if local => {
                self.settings.restore(before);
                answer.warn("25P01", "SET LOCAL can only be used in transaction blocks");
            }
            _ => {}
        }
        Ok(answer)
    }
}

impl Session {
    /// RESET: it is undone with its transaction, as SET is.
    pub(super) fn reset_setting(&mut self, name: Option<&str>) -> Result<Answer> {
        let before = self.settings.values().clone();
        let answer = self.settings.reset(name)?;
        if let Some(open) = self.open.as_mut().filter(|open| !open.implicit) {
            open.settings.get_or_insert(before);
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked() {
        let mut settings = Settings::default();
        let mut set = |name: &str, value: &str| settings.set(name, Some(&[value.to_owned()])).map(drop);
        assert_eq!(set("TimeZone", "Etc/UTC"), Ok(()));
        assert_eq!(set("timezone", "europe/paris"), Ok(()));
        assert_eq!(set("timezone", "Europe/Nowhere").expect_err("no such zone").code, "22023");
        assert_eq!(set("client_encoding", "utf-8"), Ok(()));
        assert_eq!(set("client_encoding", "latin1").expect_err("one encoding").code, "0A000");
        assert_eq!(set("statement_timeout", "2 s"), Ok(()));
        assert_eq!(set("statement_timeout", "soon").expect_err("no time").code, "22023");
        assert_eq!(set("server_version", "16").expect_err("it is told").code, "55P02");
        let error = set("statement_timeot", "1").expect_err("no such setting");
        assert_eq!(
            (error.code, error.hint.as_deref()),
            ("42704", Some("Perhaps you meant \"statement_timeout\"."))
        );
        assert_eq!(settings.statement_timeout, Some(Duration::from_secs(2)));
    }
}
