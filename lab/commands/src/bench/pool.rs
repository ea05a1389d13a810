//! `thermocline-lab bench pool`.

use clap::Args;
use thermocline_bench::pool_bench::{self, PoolBenchError, PoolSettings};

use super::RunArguments;
use thermocline_bench::command_line::Failure;
use thermocline_bench::command_line::values;

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
    /// Length of the file; the larger, the less of it a cache below the system can hold
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = values::size)]
    file: u64,
    #[command(flatten)]
    run: RunArguments,
}

impl Arguments {
    pub(super) fn run(&self, quiet: bool) -> Result<(), Failure> {
        let data_dir = self.run.prepare(quiet)?;
        let settings = PoolSettings {
            seconds: self.seconds,
            threads: self.threads,
            depth: self.depth,
            // What does not fit is no power of two that is allowed either.
            page_bytes: u32::try_from(self.page_size).unwrap_or(u32::MAX),
            frame_bytes: self.frames,
            file_bytes: self.file,
            data_dir: data_dir.path().to_owned(),
            seed: self.run.seed,
        };
        let report =
            pool_bench::run(&settings, !self.run.no_calibration, quiet).map_err(|error| match error {
                PoolBenchError::Setting(said) => Failure::Usage(said),
                other => Failure::Failed(other.to_string()),
            })?;
        print!("{}", report.to_table());
        self.run.save(|| report.to_json())
    }
}
