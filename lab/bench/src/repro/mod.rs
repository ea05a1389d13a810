//! The experiments of "Trekking Through Siberia" (Eldawy, Levandoski and Larson, VLDB 2014), section 6, scaled to the machine, beside
//! what the paper says.
//!
//! ```text
//!   figure ─► set-up of the paper × scale ─► measure (rounds, in turns) ─► panels: series of points ─► table, JSON, plots
//! ```
//!
//! | figure | what varies | file |
//! |---|---|---|
//! | 8 | accesses that find their row hot, store in memory, against a database without cold rows | `overhead.rs` |
//! | table 1 | the update memo: empty, without a hit, with one | `overhead.rs` |
//! | 9 | time, while rows migrate and while none do | `migration.rs` |
//! | 11, 12 | accesses that find their row hot; stores in memory and in a direct-mapped file; 32 and 64 clients | `hit_rates.rs` |
//! | 13, 14, 15 | skew of YCSB and how many times the database is larger than memory | `ycsb.rs` |
//! | classify | from which end an access log is classified ([`crate::classify_bench`]) | `classify.rs` |
//! | tac-… | policies of an SSD between memory and disk, of another paper, in simulated time | `tac/` |
//! | remote-fig4 | the search for a slot of remote memory, of a third paper | `remote.rs` |
//! | growth | size of a TPC-C database that outgrows memory, of a fourth paper | `growth.rs` |
//!
//! A point of the paper is given only where its text states it: its plots are not read off.
//!
//! Limits: clients are tasks on the threads of this machine, not threads of their own; think time is spent asking for the
//! time, so it takes processor time of a thread.

mod classify;
mod clients;
mod growth;
mod hit_rates;
mod migration;
mod overhead;
mod remote;
mod report;
mod table;
mod tac;
mod ycsb;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::Serialize;
use thermocline_engine::Error;

use crate::classify_bench::ClassifyError;
use crate::progress::Progress;
use crate::run::RunError;
pub use report::{FigureReport, Panel, Point, Series, Spread};

/// An experiment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// The cost of the machinery in memory.
    SiberiaFig8,
    /// The cost of migration for transactions that run beside it.
    Fig9,
    /// The cost of the update memo.
    Table1,
    /// Read-only transactions, more and more of them cold.
    Fig11,
    /// Update-only ones.
    Fig12,
    /// YCSB, half updates.
    Fig13,
    /// YCSB, a tenth updates.
    Fig14,
    /// YCSB, reads only.
    Fig15,
    /// Classification of an access log.
    Classify,
    /// The SSD that is emulated.
    TacTable1,
    /// Where TPC-C's misses go over time.
    TacFig1,
    /// I/O time of cache policies, ODS mix.
    TacFig3,
    /// The same, recent data more popular.
    TacFig4,
    /// Hits of an SSD, TPC-C.
    TacFig5,
    /// TPC-C's writes, buffered and sorted.
    TacFig6,
    /// The ERP star by streams, with and without an SSD.
    TacFig7,
    /// Its writes to the SSD over time.
    TacFig8,
    /// Its reads from disk and SSD.
    TacFig9,
    /// Its time by size of the SSD.
    TacFig10,
    /// Its gain by size of the SSD.
    TacFig11,
    /// TPC-C in a closed loop, by size of the SSD.
    TacFig12,
    /// Loops of the search for a slot of remote memory.
    RemoteFig4,
    /// TPC-C as its database outgrows memory.
    Growth,
}

impl Figure {
    /// All of them, in the order of the paper.
    pub const ALL: [Self; 23] = [
        Self::SiberiaFig8,
        Self::Fig9,
        Self::Table1,
        Self::Fig11,
        Self::Fig12,
        Self::Fig13,
        Self::Fig14,
        Self::Fig15,
        Self::Classify,
        Self::TacTable1,
        Self::TacFig1,
        Self::TacFig3,
        Self::TacFig4,
        Self::TacFig5,
        Self::TacFig6,
        Self::TacFig7,
        Self::TacFig8,
        Self::TacFig9,
        Self::TacFig10,
        Self::TacFig11,
        Self::TacFig12,
        Self::RemoteFig4,
        Self::Growth,
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SiberiaFig8 => "siberia-fig8",
            Self::Fig9 => "fig9",
            Self::Table1 => "table1",
            Self::Fig11 => "fig11",
            Self::Fig12 => "fig12",
            Self::Fig13 => "fig13",
            Self::Fig14 => "fig14",
            Self::Fig15 => "fig15",
            Self::Classify => "classify",
            Self::TacTable1 => "tac-table1",
            Self::TacFig1 => "tac-fig1",
            Self::TacFig3 => "tac-fig3",
            Self::TacFig4 => "tac-fig4",
            Self::TacFig5 => "tac-fig5",
            Self::TacFig6 => "tac-fig6",
            Self::TacFig7 => "tac-fig7",
            Self::TacFig8 => "tac-fig8",
            Self::TacFig9 => "tac-fig9",
            Self::TacFig10 => "tac-fig10",
            Self::TacFig11 => "tac-fig11",
            Self::TacFig12 => "tac-fig12",
            Self::RemoteFig4 => "remote-fig4",
            Self::Growth => "growth",
        }
    }

    /// Seconds of each of its measures, unless an option says otherwise.
    #[must_use]
    pub const fn usual_seconds(self) -> f64 {
        match self {
            // The paper's 60 seconds.
            Self::Fig9 => 60.0,
            // Of each run in memory.
            Self::Growth => 120.0,
            _ => 4.0,
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Figure {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        // The others are of the same paper: its name may stand before them, too.
        let plain = |name: &str| name.trim_start_matches("siberia-").to_owned();
        Self::ALL.into_iter().find(|figure| plain(figure.name()) == plain(name)).ok_or_else(|| {
            format!("{name:?} is no figure of ours; name one of {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}

/// Settings of the measurement.
#[derive(Clone, Debug, Serialize)]
pub struct ReproSettings {
    /// The part of the paper's rows that there is, from 0 (excluded) to 1.
    pub scale: f64,
    /// Seconds of each measure.
    pub seconds: f64,
    /// Threads that run clients.
    pub threads: usize,
    /// Where databases lie while they are measured.
    pub data_dir: PathBuf,
    /// One seed gives one sequence of accesses.
    pub seed: u64,
}

impl ReproSettings {
    /// The scaled number of the paper's rows, `least` at the least.
    fn scaled(&self, rows: u64, least: u64) -> u64 {
        ((rows as f64 * self.scale) as u64).max(least)
    }
}

/// Why there is no result.
#[derive(Debug)]
pub enum ReproError {
    /// A setting that cannot be.
    Setting(String),
    /// The engine refused.
    Engine(Error),
    /// Classification failed.
    Classify(ClassifyError),
    /// A run of a benchmark failed.
    Run(RunError),
    /// The data that were found are not those that were written.
    Wrong(String),
}

impl fmt::Display for ReproError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting(said) => f.write_str(said),
            Self::Engine(error) => error.fmt(f),
            Self::Classify(error) => error.fmt(f),
            Self::Run(error) => error.fmt(f),
            Self::Wrong(what) => write!(f, "the database is wrong: {what}; please report this as a bug"),
        }
    }
}

impl std::error::Error for ReproError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Engine(error) => Some(error),
            Self::Classify(error) => Some(error),
            Self::Run(error) => Some(error),
            Self::Setting(_) | Self::Wrong(_) => None,
        }
    }
}

impl From<RunError> for ReproError {
    fn from(error: RunError) -> Self {
        match error.is_setting() {
            true => Self::Setting(error.to_string()),
            false => Self::Run(error),
        }
    }
}

impl From<Error> for ReproError {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

type Result<T> = std::result::Result<T, ReproError>;

/// Measures a figure.
///
/// # Errors
/// When there is nothing to report.
pub fn run(figure: Figure, settings: &ReproSettings, quiet: bool) -> Result<FigureReport> {
    if !(settings.scale > 0.0 && settings.scale <= 1.0) {
        return Err(ReproError::Setting(
            "--scale is a number above 0, up to 1, for instance 0.01".to_owned(),
        ));
    }
    let mut progress = Progress::new(quiet);
    let report = match figure {
        Figure::SiberiaFig8 => overhead::fig8(settings, &mut progress),
        Figure::Table1 => overhead::table1(settings, &mut progress),
        Figure::Fig9 => migration::fig9(settings, &mut progress),
        Figure::Fig11 | Figure::Fig12 => hit_rates::run(figure, settings, &mut progress),
        Figure::Fig13 | Figure::Fig14 | Figure::Fig15 => ycsb::run(figure, settings, &mut progress),
        Figure::Classify => classify::run(settings, quiet),
        Figure::Growth => growth::run(settings, quiet),
        Figure::RemoteFig4 => remote::fig4(figure, settings),
        Figure::TacTable1
        | Figure::TacFig1
        | Figure::TacFig3
        | Figure::TacFig4
        | Figure::TacFig5
        | Figure::TacFig6
        | Figure::TacFig7
        | Figure::TacFig8
        | Figure::TacFig9
        | Figure::TacFig10
        | Figure::TacFig11
        | Figure::TacFig12 => tac::run(figure, settings, &mut progress),
    };
    progress.end();
    report
}

#[cfg(test)]
mod tests;
