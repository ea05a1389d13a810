//! The settings of a run, as its result carries them.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;
use thermocline_engine::Options;

use crate::drive::Load;

/// Settings of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// The benchmark and what only it has.
    #[serde(flatten)]
    pub benchmark: Benchmark,
    /// Threads that run transactions.
    pub threads: usize,
    /// Transactions in flight on each thread.
    pub in_flight: usize,
    /// Seconds that are not counted.
    pub warm_up_seconds: f64,
    /// Seconds that are counted.
    pub seconds: f64,
    /// The isolation level.
    pub isolation: String,
    /// When a commit is acknowledged.
    pub durability: String,
    /// The memory limit; none given: the engine's default.
    pub memory_limit_bytes: Option<u64>,
    /// Where the database writes its access log: a file, or `HOST:PORT`.
    pub access_log: Option<String>,
    /// Where the database lies.
    pub data_dir: PathBuf,
    /// One seed gives one sequence of requests for each client.
    pub seed: u64,
    /// Is one snapshot kept open during the run?
    pub hold_snapshot: bool,
    /// The run ends when the database has so many rows more than before the measured time, if that is sooner.
    pub grow_rows: Option<u64>,
    /// The run ends when the database takes so many bytes, memory and cold store together, if that is sooner.
    pub until_bytes: Option<u64>,
    /// Threads that freeze; none given: the engine's default.
    pub freeze_threads: Option<usize>,
    /// Seconds between checkpoints; none given: the engine's default.
    pub checkpoint_interval_seconds: Option<f64>,
    /// Devices of cold rows.
    #[serde(flatten)]
    pub storage: Storage,
    /// The places where rows may go, and the pager of those that are paged.
    #[serde(flatten)]
    pub paging: Paging,
}

/// The places where rows may go, and the pager of those that are paged.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Paging {
    /// The tiering of all tables; none given: the engine's default.
    pub tiering: Option<String>,
    /// `own`, `os` or `remote`; none given: the engine's default.
    pub pager: Option<String>,
    /// Where the file of pages is made; none given: in the database's directory.
    pub paged_dir: Option<PathBuf>,
    /// Bytes of pages in memory; none given: the engine's default.
    pub paged_bytes: Option<u64>,
    /// Memory servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// Places that each page is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_copies: Option<String>,
    /// The network that servers answer as over: emulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_profile: Option<String>,
}

impl Paging {
    /// These options, with those that are said here; not the memory of servers.
    ///
    /// # Errors
    /// A name is none of the engine's.
    pub fn within(&self, options: Options) -> Result<Options, String> {
        let mut options =
            options.with_paged_dir(self.paged_dir.clone()).with_paged_bytes(self.paged_bytes.unwrap_or(0));
        if let Some(tiering) = &self.tiering {
            options = options.with_tiering(named("tiering", tiering)?);
        }
        // `remote` is the pager own, whose pages are on servers, too.
        if let Some(pager) = self.pager.as_deref().filter(|pager| *pager != "remote") {
            options = options.with_pager(named("pager", pager)?);
        }
        Ok(options)
    }
}

/// The thing that the value of an option names.
///
/// # Errors
/// Nothing, and why.
pub fn named<T: FromStr<Err: Display>>(option: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|error| format!("--{option} {value}: {error}"))
}

/// Which devices cold rows lie on.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Storage {
    /// Where the cold store lies; none given: in the database's directory.
    pub cold_dir: Option<PathBuf>,
    /// The SSD that keeps copies of its pages.
    pub ssd: Option<PathBuf>,
    /// Bytes of its file.
    pub ssd_bytes: Option<u64>,
    /// Which pages it keeps; none given: the engine's default.
    pub ssd_policy: Option<String>,
    /// Merges leave the warmth of its pages behind.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ssd_forgets_heat: bool,
    /// The device that the cold store's files answer as: emulated.
    pub profile: Option<String>,
    /// Where a trace of what its page file is asked for goes.
    pub capture: Option<PathBuf>,
}

/// The benchmarks.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "benchmark", rename_all = "kebab-case")]
pub enum Benchmark {
    /// The Yahoo! Cloud Serving Benchmark.
    Ycsb {
        /// `A` to `F`, or `custom` when the share of reads is given instead.
        workload: String,
        /// Reads among the operations, if they are all reads and updates.
        read_percent: Option<u32>,
        /// Rows before the run.
        records: u64,
        /// Columns beside the key.
        fields: u32,
        /// Bytes of each of them.
        field_bytes: u32,
        /// Skew of the Zipf distribution; 0: uniform.
        theta: f64,
        /// After so many of the measured seconds other rows are the popular ones.
        shift_seconds: Option<f64>,
        /// And again after so many more, and so many more, until the end.
        shift_every_seconds: Option<f64>,
        /// The database is closed after the run, opened again, and run as long again.
        restart: bool,
    },
    /// TPC-C, as far as a database can run it without its terminals: no keying and thinking times.
    Tpcc {
        /// Warehouses.
        warehouses: u32,
        /// Does delivery keep the rows of NEW-ORDER, so that one more table grows and only its young end is hot?
        skewed_growth: bool,
        /// The mix.
        deck: Mix,
    },
    /// Transactions that read 100 bytes by their key and commit.
    Point {
        /// Rows.
        records: u64,
    },
    /// Deletes rows, or migrates them, and waits for their memory to go back to the operating system.
    Delete {
        /// Rows before.
        records: u64,
        /// The part of them that goes, in per cent.
        percent: u32,
        /// Do they go into the cold store? Then the table has a second, ordered index.
        migrate: bool,
    },
    /// Ends without closing and opens again.
    Recovery {
        /// Warehouses of TPC-C that are loaded.
        warehouses: u32,
        /// Log that is written after the load, in MiB.
        log_mib: u64,
    },
}

/// A mix of TPC-C's transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mix {
    /// 45 % new-order, 43 % payment, 4 % of each other.
    #[default]
    Standard,
    /// 10, 10, 1, 1, 1 of 23: deliveries keep up with new orders.
    Balanced,
}

impl Benchmark {
    /// The name on the command line.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Ycsb { .. } => "ycsb",
            Self::Tpcc { .. } => "tpcc",
            Self::Point { .. } => "point",
            Self::Delete { .. } => "delete",
            Self::Recovery { .. } => "recovery",
        }
    }

    /// One transaction in so many is timed: all of those that take tens of microseconds, few of those that take a
    /// fraction of one.
    #[must_use]
    pub const fn time_one_in(&self) -> u32 {
        match self {
            Self::Tpcc { .. } | Self::Delete { .. } | Self::Recovery { .. } => 1,
            Self::Ycsb { .. } => 4,
            Self::Point { .. } => 16,
        }
    }
}

#[cfg(test)]
impl Settings {
    /// Some that nothing runs with.
    pub(crate) fn for_tests(dir: &std::path::Path) -> Self {
        Self {
            benchmark: Benchmark::Point { records: 1 },
            threads: 1,
            in_flight: 1,
            warm_up_seconds: 0.0,
            seconds: 1.0,
            isolation: "snapshot".to_owned(),
            durability: "group".to_owned(),
            memory_limit_bytes: None,
            access_log: None,
            data_dir: dir.to_path_buf(),
            seed: 1,
            hold_snapshot: false,
            checkpoint_interval_seconds: None,
            storage: Storage::default(),
            paging: Paging::default(),
            freeze_threads: None,
            grow_rows: None,
            until_bytes: None,
        }
    }
}

impl Settings {
    /// The shape of the run.
    #[must_use]
    pub fn load(&self) -> Load {
        Load {
            threads: self.threads,
            in_flight: self.in_flight,
            warm_up: Duration::from_secs_f64(self.warm_up_seconds),
            measured: Duration::from_secs_f64(self.seconds),
            time_one_in: self.benchmark.time_one_in(),
        }
    }
}
