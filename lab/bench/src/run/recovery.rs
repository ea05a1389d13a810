//! Measures how long opening takes after an end without a close.
//!
//! ```text
//!   this process              builder (another process)
//!   ─ starts it ────────────► opens, loads TPC-C, checkpoints, runs the mix
//!                             ─ so much log is written: says so, goes on running ─┐
//!   ◄──────────────────────────────────────────────────────────────────────────────┘
//!   ─ kills it ─────────────► ✝ in the midst of transactions
//!   opens, times that, checks the consistency conditions
//! ```
//!
//! Invariant: the builder is killed while it runs transactions; nothing is flushed, closed or unlocked for us.

use std::convert::Infallible;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thermocline_engine::Database;

use super::files::on_disk;
use super::{Numbers, RunError, Session, engine, tpcc};
use crate::drive::{Load, Watcher, drive};
use crate::machine;
use crate::peak::Peak;
use crate::progress::Progress;
use crate::report::{Recovered, grouped, size};
use crate::settings::{Benchmark, Settings};
use crate::time;

/// Starts the process that builds, waits until it says [`Built`], kills it, and returns what it said.
pub type Builder<'a> = dyn Fn(&Settings) -> Result<Built, String> + 'a;

/// The builder's report when enough log is written.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Built {
    /// Transactions that had been acknowledged after the load.
    pub commits: u64,
    /// Log that had been written after it, and so after the checkpoint.
    pub log_bytes: u64,
}

pub(super) fn run(session: &mut Session<'_>, builder: &Builder<'_>) -> Result<Recovered, RunError> {
    let settings = session.settings;
    session.progress.end();
    let built = builder(settings).map_err(RunError::Builder)?;
    let disk_bytes = on_disk(&settings.data_dir).map_err(|error| {
        let dir = settings.data_dir.display();
        RunError::Builder(format!("what it built in {dir} cannot be read: {error}"))
    })?;
    // The builder's memory was its own; from here on it is ours.
    let _ = machine::forget_rss_max();
    session.progress.begin("opening");
    let began = time::now();
    let database = session.open()?;
    let open_seconds = began.elapsed().as_secs_f64();
    let rss_bytes_max = machine::rss_bytes_max();
    let conditions = if session.check { Some(tpcc::check(session, &database, false)?) } else { None };
    let cold = Numbers::of(&database).cold;
    session.close(database)?;
    Ok(Recovered {
        log_bytes: built.log_bytes,
        disk_bytes,
        commits: built.commits,
        open_seconds,
        replay_bytes_per_s: built.log_bytes as f64 / open_seconds,
        rss_bytes_max,
        cold,
        conditions,
    })
}

/// Builds the database of `settings`, calls `ready` once enough log is written, and goes on running transactions
/// until the process is killed.
///
/// # Errors
/// When it cannot get that far.
pub fn build_for_recovery(
    settings: &Settings,
    quiet: bool,
    ready: &mut dyn FnMut(Built),
) -> Result<Infallible, RunError> {
    let Benchmark::Recovery { warehouses, log_mib } = settings.benchmark else {
        unreachable!("the builder runs with the settings of `recovery`");
    };
    let (progress, peak) = (Progress::new(quiet), Peak::watch());
    let mut session = Session { settings, check: false, progress, peak, capture: None, lend: None };
    let database = session.open()?;
    let (workload, _) = tpcc::load(&mut session, &database, warehouses, false)?;
    database.checkpoint().map_err(engine("write a checkpoint"))?;
    let at_start = Numbers::of(&database);
    let mut watcher = UntilLog {
        database: &database,
        progress: &mut session.progress,
        log_bytes_wanted: log_mib << 20,
        ready: Some(ready),
        at_start,
    };
    let load = Load {
        threads: settings.threads,
        in_flight: settings.in_flight,
        warm_up: Duration::ZERO,
        measured: Duration::from_secs(86_400),
        time_one_in: 1,
    };
    drive(&workload, &load, &mut watcher)?;
    Err(RunError::Builder("nobody killed it for a day".into()))
}

struct UntilLog<'a> {
    database: &'a Database,
    progress: &'a mut Progress,
    log_bytes_wanted: u64,
    ready: Option<&'a mut dyn FnMut(Built)>,
    at_start: Numbers,
}

impl Watcher for UntilLog<'_> {
    fn look(&mut self, _: f64) {
        let now = Numbers::of(self.database);
        let written = now.log_bytes - self.at_start.log_bytes;
        let commits = now.commits - self.at_start.commits;
        self.progress
            .show(|| format!("running: {} of log, {} commits", size(written), grouped(commits as f64)));
        if written >= self.log_bytes_wanted
            && let Some(ready) = self.ready.take()
        {
            self.progress.end();
            ready(Built { commits, log_bytes: written });
        }
    }
}
