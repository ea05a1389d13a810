//! The rest of an SSD's warmth when the process is killed, again and again.
//!
//! ```text
//!   this process                 another one, round after round
//!   ─ starts it ───────────────► opens the database with its SSD, runs, tells what its first and its last reads found
//!   ─ kills it ────────────────► ✝ in the midst of transactions
//!   (in each third round the SSD's files are removed before the next one starts)
//! ```

use std::convert::Infallible;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thermocline_engine::Database;

use super::super::{RunError, engine, tpcc};
use super::watch::Moments;
use super::{Bench, CLIENTS_A_PART};
use crate::drive::{Load, Watcher, drive};
use crate::run::ycsb::Ycsb;
use crate::settings::Settings;
use thermocline_workloads::ycsb::generate::KeySpace;
use thermocline_workloads::ycsb::load::UserTable;

/// The report that a process which will be killed gives now and then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Told {
    /// Seconds that it has run.
    pub at_seconds: f64,
    /// Of its first 100,000 reads, when they are done.
    pub first: Option<f64>,
    /// Of the last 100,000 until now.
    pub last: Option<f64>,
}

/// Runs a process with these settings and clients of this part, kills it, and returns what it told last.
pub type Killer<'a> = dyn Fn(&Settings, u64) -> Result<Told, String> + 'a;

/// The hit ratios before a kill and after it, of the round in which they differ most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Kills {
    pub(super) before: f64,
    pub(super) after: f64,
}

/// Numbers of parts of processes that are killed: none of this process is so large.
const FIRST_PART: u64 = 1 << 10;
/// In one of so many rounds the SSD is gone.
const WIPED: u64 = 3;

/// Kills a process so many times.
pub(super) fn kills(
    settings: &Settings,
    rounds: u64,
    killer: &Killer<'_>,
) -> Result<Option<Kills>, RunError> {
    let mut before = None;
    let mut worst: Option<Kills> = None;
    for round in 0..=rounds {
        let told = killer(settings, FIRST_PART + round).map_err(RunError::Builder)?;
        if let (Some(before), Some(after)) = (before, told.first) {
            let now = Kills { before, after };
            let share = |kills: &Kills| kills.after / kills.before.max(f64::MIN_POSITIVE);
            worst = Some(worst.filter(|worst| share(worst) <= share(&now)).unwrap_or(now));
        }
        before = told.last;
        if round % WIPED == WIPED - 1 {
            wipe(settings);
            before = None;
        }
    }
    Ok(worst)
}

/// Removes what the SSD has.
fn wipe(settings: &Settings) {
    let Some(path) = &settings.storage.ssd else { return };
    for suffix in ["", ".map"] {
        // What is not there needs not go.
        let _ = std::fs::remove_file(super::with_suffix(path, suffix));
    }
}

/// Opens the database of `settings` and runs until the process is killed.
///
/// # Errors
/// When it cannot get that far.
pub fn drive_until_killed(
    settings: &Settings,
    part: u64,
    quiet: bool,
    tell: &mut dyn FnMut(Told),
) -> Result<Infallible, RunError> {
    let bench = Bench::new(settings, quiet)?;
    let database = bench.session(settings, None).open()?;
    let load = Load {
        threads: settings.threads,
        in_flight: settings.in_flight,
        warm_up: Duration::ZERO,
        measured: Duration::from_secs(86_400),
        time_one_in: 1,
    };
    let mut watcher = Telling { database: &database, moments: Moments::default(), tell };
    let first = part * CLIENTS_A_PART;
    match &bench.ycsb {
        Some(config) => {
            let table = UserTable::open(&database).map_err(engine("find the table"))?;
            let ycsb = Ycsb::new(&database, table, config, KeySpace::new(config.records), first);
            drive(&ycsb, &load, &mut watcher)?;
        }
        None => {
            drive(&tpcc::loaded(&database, bench.warehouses, settings.seed, first)?, &load, &mut watcher)?;
        }
    }
    Err(RunError::Builder("nobody killed it for a day".into()))
}

struct Telling<'a> {
    database: &'a Database,
    moments: Moments,
    tell: &'a mut dyn FnMut(Told),
}

impl Watcher for Telling<'_> {
    fn look(&mut self, at_seconds: f64) {
        self.moments.look(self.database);
        (self.tell)(Told { at_seconds, first: self.moments.first_when_done(), last: self.moments.last() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Storage;
    use std::cell::RefCell;

    fn settings(dir: &std::path::Path) -> Settings {
        let storage = Storage { ssd: Some(dir.join("ssd")), ..Storage::default() };
        Settings { storage, ..Settings::for_tests(dir) }
    }

    #[test]
    fn the_round_that_lost_most_is_told_and_a_wiped_ssd_is_none() {
        let dir = tempfile::tempdir().expect("a directory");
        let settings = settings(dir.path());
        let rounds = RefCell::new(Vec::new());
        let told = [(0.1, 0.8), (0.78, 0.8), (0.6, 0.8), (0.0, 0.8), (0.7, 0.8)];
        let killer = |of: &Settings, part: u64| {
            let round = (part - FIRST_PART) as usize;
            let ssd = of.storage.ssd.as_ref().expect("there is one");
            rounds.borrow_mut().push(ssd.exists());
            std::fs::write(ssd, b"pages").expect("writable");
            Ok(Told { at_seconds: 1.0, first: Some(told[round].0), last: Some(told[round].1) })
        };
        let found = kills(&settings, 4, &killer).expect("no process fails");
        assert_eq!(found, Some(Kills { before: 0.8, after: 0.6 }));
        assert_eq!(rounds.into_inner(), [false, true, true, false, true], "after three rounds it was gone");
    }
}
