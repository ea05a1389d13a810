//! `thermocline-lab bench`: what all benchmarks have in common on the command line, and what is done with their results.

mod backup;
mod child;
mod classify;
mod delete;
mod freeze;
mod page_in;
mod paged;
mod point;
mod pool;
mod recovery;
mod remote;
mod siberia;
mod ssd;
mod store;
mod tpcc;
mod ycsb;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use thermocline_bench::command_line::data_dir::DataDir;
use thermocline_bench::command_line::paging::PagingArguments;
use thermocline_bench::command_line::{Failure, can_be_written, values, write};
use thermocline_bench::machine;
use thermocline_bench::plot;
use thermocline_bench::report::{Outcome, Report};
use thermocline_bench::run::{self, RunOptions};
use thermocline_bench::settings::{Benchmark, Settings, Storage};

/// The benchmarks.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// YCSB: reads, updates, inserts and scans of single rows with a skewed distribution
    Ycsb(ycsb::Arguments),
    /// TPC-C: order entry, checked for consistency afterwards
    Tpcc(tpcc::Arguments),
    /// Read-only point transactions: begin, read 100 bytes by key, commit
    Point(point::Arguments),
    /// The page pool: reads of pages in memory, and of pages that are not, beside the bare device
    Pool(pool::Arguments),
    /// Delete most rows, or migrate them, and see how much memory goes back to the operating system within 60 s
    Delete(delete::Arguments),
    /// The store of cold records: writing, space, filters, reads
    Store(store::Arguments),
    /// Blocks of frozen rows: how fast they are made, how small they are, how fast they are read
    Freeze(freeze::Arguments),
    /// Cold rows: what their machinery costs, beside the bare device
    Siberia(siberia::Arguments),
    /// Cold rows on a slow device (emulated) alone, below an SSD, and on the local disk
    Ssd(ssd::Arguments),
    /// Tables larger than memory under each pager: ours, the system's, memory servers; and in the cold store
    Paged(paged::Arguments),
    /// A page that is not in memory: the pool's miss beside a bare read, of a file and of memory servers
    PageIn(page_in::Arguments),
    /// Remote memory: pages out and in, beside the bare transport, and slots
    Remote(remote::Arguments),
    /// Classification of an access log, from both ends
    Classify(classify::Arguments),
    /// Back up many cold rows, with writers beside it and without, beside `cp` of the same bytes
    Backup(backup::Arguments),
    /// End without closing, and see how long opening takes
    Recovery(recovery::Arguments),
}

/// When a commit is acknowledged.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum DurabilityArgument {
    /// On disk, forced at once
    Sync,
    /// On disk, after waiting up to 1 ms for company
    Group,
    /// Before it is on disk; the lag is at most 50 ms
    Async,
    /// No log at all
    Off,
}

/// The isolation levels.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum IsolationArgument {
    ReadCommitted,
    Snapshot,
    RepeatableRead,
    Serializable,
}

/// Options of every benchmark: where it runs, and where its result goes.
#[derive(Debug, Args)]
struct RunArguments {
    /// An empty or new directory for the files, kept afterwards [default: a temporary one, removed afterwards]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Write the result to this file as one JSON object
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// One seed gives one sequence of requests
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Do not measure the machine first (that takes about 3 s)
    #[arg(long)]
    no_calibration: bool,
}

impl RunArguments {
    /// The directory to run in. Also finds out, better now than after the run, whether the result can be written.
    fn prepare(&self, quiet: bool) -> Result<DataDir, Failure> {
        if let Some(file) = &self.json {
            can_be_written(file)?;
        }
        let data_dir = DataDir::prepare(self.data_dir.as_deref())?;
        if machine::lies_in_memory(data_dir.path()) && !quiet {
            eprintln!(
                "note: {} lies in memory, so figures that depend on the disk mean nothing; --data-dir names another \
                 directory",
                data_dir.path().display()
            );
        }
        Ok(data_dir)
    }

    /// Writes the result, if the user wants it.
    fn save(&self, report: impl FnOnce() -> String) -> Result<(), Failure> {
        match &self.json {
            Some(file) => write(file, std::fs::write(file, report())),
            None => Ok(()),
        }
    }
}

/// Options of every benchmark of a database.
#[derive(Debug, Args)]
struct DatabaseArguments {
    /// Threads that run transactions [default: one a core]
    #[arg(long, value_parser = values::threads)]
    threads: Option<usize>,
    /// The isolation level
    #[arg(long, value_enum, default_value = "snapshot")]
    isolation: IsolationArgument,
    /// When a commit is acknowledged
    #[arg(long, value_enum, default_value = "group")]
    durability: DurabilityArgument,
    /// The engine's memory limit, for instance 1GiB [default: the engine's own, 80 % of the machine's memory]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    memory_limit: Option<u64>,
    /// Write which rows are accessed to this file, or to HOST:PORT where `thermocline-lab classify --listen` waits
    #[arg(long, value_name = "FILE|HOST:PORT", hide_short_help = true)]
    access_log: Option<String>,
    #[command(flatten)]
    run: RunArguments,
    /// Seconds between checkpoints [default: the engine's own]
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds, allow_negative_numbers = true, hide_short_help = true)]
    checkpoint_interval: Option<f64>,
    /// Threads that freeze rows that have settled while memory is short; 0: rows leave one by one [default: the engine's own]
    #[arg(long, value_name = "N", hide_short_help = true)]
    freeze_threads: Option<usize>,
    #[command(flatten)]
    storage: StorageArguments,
    #[command(flatten)]
    paging: PagingArguments,
}

/// Devices of cold rows.
#[derive(Debug, Args)]
struct StorageArguments {
    /// Keep cold rows in this directory [default: in the database's]
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    cold_dir: Option<PathBuf>,
    /// Keep copies of their pages in this file, on a device that is faster
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    ssd: Option<PathBuf>,
    /// How long that file is, for instance 1GiB; in `bench ssd` also a share of the cold rows, for instance 25%
    #[arg(long, value_name = "SIZE", value_parser = values::size_or_share, hide_short_help = true)]
    ssd_size: Option<values::SizeOrShare>,
    /// Which pages are kept there [default: the engine's own]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    ssd_policy: Option<String>,
    /// Have the files of cold rows answer as another device would: network-volume, hdd-7200, object-store, …
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    profile: Option<String>,
    /// Write a trace of what the page file of cold rows is asked for to this file, for `thermocline-lab simulate`
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    capture: Option<PathBuf>,
}

impl StorageArguments {
    fn settings(&self) -> Result<Storage, Failure> {
        let absolute = |path: &Option<PathBuf>| {
            path.as_ref().map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone()))
        };
        let ssd_bytes = match self.ssd_size {
            Some(values::SizeOrShare::Bytes(bytes)) => Some(bytes),
            Some(values::SizeOrShare::Share(_)) | None => None,
        };
        if self.ssd.is_some() && self.ssd_size.is_none() {
            return Err(Failure::Usage("--ssd needs --ssd-size, for instance 1GiB".to_owned()));
        }
        Ok(Storage {
            cold_dir: absolute(&self.cold_dir),
            ssd: absolute(&self.ssd),
            ssd_bytes,
            ssd_policy: self.ssd_policy.clone(),
            ssd_forgets_heat: false,
            profile: self.profile.clone(),
            capture: absolute(&self.capture),
        })
    }
}

/// Options of the benchmarks that run for a while.
#[derive(Debug, Args)]
struct LoadArguments {
    /// Transactions in flight on each thread
    #[arg(long, default_value = "32", value_parser = values::in_flight)]
    in_flight: usize,
    /// Seconds that are not counted
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = values::seconds_or_zero, allow_negative_numbers = true)]
    warm_up: f64,
    /// Seconds that are counted
    #[arg(long, default_value = "20", value_parser = values::seconds, allow_negative_numbers = true)]
    seconds: f64,
    /// Plot the throughput over time to this SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Keep one snapshot open during the run, so that old versions pile up
    #[arg(long, hide_short_help = true)]
    hold_snapshot: bool,
    /// End the run when the database has so many rows more than at its beginning, if that is before --seconds are over
    #[arg(long, value_name = "N", hide_short_help = true)]
    grow_rows: Option<u64>,
    /// End the run when the database takes so many bytes, memory and cold store together, if that is before --seconds are over
    #[arg(long, value_name = "SIZE", value_parser = values::size, hide_short_help = true)]
    until_bytes: Option<u64>,
}

/// Runs a benchmark.
pub(crate) fn run(command: Command, quiet: bool) -> Result<(), Failure> {
    match command {
        Command::Ycsb(arguments) => arguments.run(quiet),
        Command::Tpcc(arguments) => arguments.run(quiet),
        Command::Point(arguments) => arguments.run(quiet),
        Command::Pool(arguments) => arguments.run(quiet),
        Command::Delete(arguments) => arguments.run(quiet),
        Command::Store(arguments) => arguments.run(quiet),
        Command::Freeze(arguments) => arguments.run(quiet),
        Command::Paged(arguments) => arguments.run(quiet),
        Command::PageIn(arguments) => arguments.run(quiet),
        Command::Remote(arguments) => arguments.run(quiet),
        Command::Siberia(arguments) => arguments.run(quiet),
        Command::Ssd(arguments) => arguments.run(quiet),
        Command::Classify(arguments) => arguments.run(quiet),
        Command::Backup(arguments) => arguments.run(quiet),
        Command::Recovery(arguments) => arguments.run(quiet),
    }
}

/// A benchmark as the command line asks for it.
struct Job<'a> {
    benchmark: Benchmark,
    database: &'a DatabaseArguments,
    load: Option<&'a LoadArguments>,
    check: bool,
    quiet: bool,
}

impl Job<'_> {
    fn run(self) -> Result<(), Failure> {
        let database = self.database;
        let plot_to = self.load.and_then(|load| load.plot.as_deref());
        // Better now than after the run.
        if let Some(file) = plot_to {
            can_be_written(file)?;
        }
        let data_dir = database.run.prepare(self.quiet)?;
        let servers = database.paging.servers()?;
        let lend = |options| servers.as_ref().expect("there are some").lend(options);
        let options = RunOptions {
            calibrate: !database.run.no_calibration,
            check: self.check,
            quiet: self.quiet,
            lend: servers.is_some().then_some(&lend),
        };
        let report = run::run(&self.settings(data_dir.path())?, &options, &|settings| {
            recovery::builder(settings, self.quiet)
        })
        .map_err(|error| match error.is_setting() {
            true => Failure::Usage(error.to_string()),
            false => Failure::Failed(error.to_string()),
        })?;
        print!("{}", report.to_table());
        database.run.save(|| report.to_json())?;
        if let (Some(file), Outcome::Throughput(found)) = (plot_to, &report.outcome) {
            write(file, plot::write(file, &title(&report), found))?;
        }
        if report.is_consistent() { Ok(()) } else { Err(Failure::Found) }
    }

    fn settings(&self, data_dir: &Path) -> Result<Settings, Failure> {
        let database = self.database;
        Ok(Settings {
            benchmark: self.benchmark.clone(),
            threads: database.threads.unwrap_or_else(machine::cores),
            in_flight: self.load.map_or(32, |load| load.in_flight),
            warm_up_seconds: self.load.map_or(0.0, |load| load.warm_up),
            seconds: self.load.map_or(0.0, |load| load.seconds),
            isolation: name(&database.isolation),
            durability: name(&database.durability),
            memory_limit_bytes: database.memory_limit,
            access_log: database.access_log.clone(),
            data_dir: data_dir.to_owned(),
            seed: database.run.seed,
            hold_snapshot: self.load.is_some_and(|load| load.hold_snapshot),
            grow_rows: self.load.and_then(|load| load.grow_rows),
            until_bytes: self.load.and_then(|load| load.until_bytes),
            freeze_threads: database.freeze_threads,
            checkpoint_interval_seconds: database.checkpoint_interval,
            storage: database.storage.settings()?,
            paging: database.paging.settings(),
        })
    }
}

fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().expect("no value is hidden").get_name().to_owned()
}

fn title(report: &Report) -> String {
    let settings = &report.settings;
    format!(
        "{}, {} threads × {} in flight, {}, durability {}",
        settings.benchmark.name(),
        settings.threads,
        settings.in_flight,
        settings.isolation,
        settings.durability
    )
}
