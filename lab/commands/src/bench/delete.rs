//! `thermocline-lab bench delete`.

use clap::Args;
use thermocline_bench::settings::Benchmark;

use super::{DatabaseArguments, Job};
use thermocline_bench::command_line::Failure;
use thermocline_bench::command_line::values;

/// Options of `bench delete`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Rows before
    #[arg(long, default_value = "1000000", value_parser = values::count)]
    records: u64,
    /// How many of them are deleted
    #[arg(long, default_value = "90", value_parser = values::percent)]
    percent: u32,
    /// Move them into the cold store instead, from a table with a second, ordered index
    #[arg(long)]
    migrate: bool,
    #[command(flatten)]
    database: DatabaseArguments,
}

impl Arguments {
    pub(super) fn run(&self, quiet: bool) -> Result<(), Failure> {
        let benchmark =
            Benchmark::Delete { records: self.records, percent: self.percent, migrate: self.migrate };
        Job { benchmark, database: &self.database, load: None, check: false, quiet }.run()
    }
}
