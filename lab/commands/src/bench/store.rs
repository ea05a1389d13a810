//! `thermocline-lab bench store`.

use clap::Args;
use thermocline_bench::store_bench::{self, StoreSettings};

use super::RunArguments;
use thermocline_bench::command_line::Failure;
use thermocline_bench::command_line::values;

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
    /// Give blocks and frames the memory that they have in a database under this limit
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    memory_limit: Option<u64>,
    /// No secondary index
    #[arg(long)]
    primary_only: bool,
    #[command(flatten)]
    run: RunArguments,
}

impl Arguments {
    pub(super) fn run(&self, quiet: bool) -> Result<(), Failure> {
        if !self.rounds.is_finite() || self.rounds < 0.0 {
            return Err(Failure::Usage("--rounds is a number from 0 on, for instance 2".into()));
        }
        let data_dir = self.run.prepare(quiet)?;
        let settings = StoreSettings {
            records: self.records,
            record_bytes: usize::try_from(self.record_bytes).unwrap_or(usize::MAX),
            rounds: self.rounds,
            seconds: self.seconds,
            threads: self.threads,
            depth: self.depth,
            secondary: !self.primary_only,
            memory_limit_bytes: self.memory_limit,
            data_dir: data_dir.path().to_owned(),
            seed: self.run.seed,
        };
        let report = store_bench::run(&settings, !self.run.no_calibration, quiet)
            .map_err(|error| Failure::Failed(error.to_string()))?;
        print!("{}", report.to_table());
        self.run.save(|| report.to_json())
    }
}
