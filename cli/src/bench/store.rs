//! `thermocline bench store`.

use std::path::PathBuf;

use clap::Args;
use thermocline_bench::machine;
use thermocline_bench::store_bench::{self, StoreSettings};

use super::{can_be_written, write};
use crate::data_dir::DataDir;
use crate::failure::Failure;
use crate::values;

/// Options of `bench store`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Records
    #[arg(long, default_value = "10000000", value_parser = values::count)]
    records: u64,
    /// Length of a record, without its key of 8 bytes
    #[arg(long, default_value = "100B", value_parser = values::size)]
    record_bytes: u64,
    /// Replacements and deletes, as a multiple of the records
    #[arg(long, default_value_t = 2.0)]
    rounds: f64,
    /// Seconds of each measure of reads
    #[arg(long, default_value = "5", value_parser = values::seconds, allow_negative_numbers = true)]
    seconds: f64,
    /// Threads that write
    #[arg(long, default_value = "1", value_parser = values::threads)]
    threads: usize,
    /// Batches in flight on each thread, up to 8
    #[arg(long, default_value = "8", value_parser = values::depth)]
    depth: usize,
    /// No secondary index
    #[arg(long)]
    primary_only: bool,
    /// An empty or new directory for the store, kept afterwards [default: a temporary one, removed afterwards]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Write the result to this file as one JSON object
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// One seed gives one sequence of keys
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Do not measure the machine first (that takes about 3 s)
    #[arg(long)]
    no_calibration: bool,
}

impl Arguments {
    pub(super) fn run(&self, quiet: bool) -> Result<(), Failure> {
        // Better now than after the run.
        if let Some(file) = &self.json {
            can_be_written(file)?;
        }
        if !self.rounds.is_finite() || self.rounds < 0.0 {
            return Err(Failure::Usage("--rounds is a number from 0 on, for instance 2".into()));
        }
        let data_dir = DataDir::prepare(self.data_dir.as_deref())?;
        if machine::lies_in_memory(data_dir.path()) && !quiet {
            eprintln!(
                "note: {} lies in memory, so figures that depend on the disk mean nothing; --data-dir names another \
                 directory",
                data_dir.path().display()
            );
        }
        let settings = StoreSettings {
            records: self.records,
            record_bytes: usize::try_from(self.record_bytes).unwrap_or(usize::MAX),
            rounds: self.rounds,
            seconds: self.seconds,
            threads: self.threads,
            depth: self.depth,
            secondary: !self.primary_only,
            data_dir: data_dir.path().to_owned(),
            seed: self.seed,
        };
        let report = store_bench::run(&settings, !self.no_calibration, quiet)
            .map_err(|error| Failure::Failed(error.to_string()))?;
        print!("{}", report.to_table());
        match &self.json {
            Some(file) => write(file, std::fs::write(file, report.to_json())),
            None => Ok(()),
        }
    }
}
