//! `thermocline bench pool`.

use std::path::PathBuf;

use clap::Args;
use thermocline_bench::machine;
use thermocline_bench::pool_bench::{self, PoolBenchError, PoolSettings};

use super::{can_be_written, write};
use crate::data_dir::DataDir;
use crate::failure::Failure;
use crate::values;

/// Options of `bench pool`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Seconds of each measure
    #[arg(long, default_value = "5", value_parser = values::seconds, allow_negative_numbers = true)]
    seconds: f64,
    /// Threads that read
    #[arg(long, default_value = "1", value_parser = values::threads)]
    threads: usize,
    /// Reads in flight on each thread, when pages are not in memory
    #[arg(long, default_value = "64", value_parser = values::depth)]
    depth: usize,
    /// Length of a page, from 4KiB to 64KiB
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = values::size)]
    page_size: u64,
    /// Frames, when pages are in memory
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = values::size)]
    frames: u64,
    /// Length of the file that is read, many times the memory of the device
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = values::size)]
    file: u64,
    /// An empty or new directory for the file, kept afterwards [default: a temporary one, removed afterwards]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Write the result to this file as one JSON object
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// One seed gives one sequence of pages
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
        let data_dir = DataDir::prepare(self.data_dir.as_deref())?;
        if machine::lies_in_memory(data_dir.path()) && !quiet {
            eprintln!(
                "note: {} lies in memory, so what is said of misses means nothing; --data-dir names another directory",
                data_dir.path().display()
            );
        }
        let settings = PoolSettings {
            seconds: self.seconds,
            threads: self.threads,
            depth: self.depth,
            // What does not fit is no power of two that is allowed either.
            page_bytes: u32::try_from(self.page_size).unwrap_or(u32::MAX),
            frame_bytes: self.frames,
            file_bytes: self.file,
            data_dir: data_dir.path().to_owned(),
            seed: self.seed,
        };
        let report =
            pool_bench::run(&settings, !self.no_calibration, quiet).map_err(|error| match error {
                PoolBenchError::Setting(said) => Failure::Usage(said),
                other => Failure::Failed(other.to_string()),
            })?;
        print!("{}", report.to_table());
        match &self.json {
            Some(file) => write(file, std::fs::write(file, report.to_json())),
            None => Ok(()),
        }
    }
}
