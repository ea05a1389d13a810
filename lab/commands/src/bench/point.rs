//! `thermocline-lab bench point`.

use clap::Args;
use thermocline_bench::settings::Benchmark;

use super::{DatabaseArguments, Job, LoadArguments};
use thermocline_bench::command_line::Failure;
use thermocline_bench::command_line::values;

/// Options of `bench point`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Rows
    #[arg(long, default_value = "10000000", value_parser = values::count)]
    records: u64,
    #[command(flatten)]
    load: LoadArguments,
    #[command(flatten)]
    database: DatabaseArguments,
}

impl Arguments {
    pub(super) fn run(&self, quiet: bool) -> Result<(), Failure> {
        let benchmark = Benchmark::Point { records: self.records };
        Job { benchmark, database: &self.database, load: Some(&self.load), check: false, quiet }.run()
    }
}
