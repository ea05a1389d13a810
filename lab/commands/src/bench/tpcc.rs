//! `thermocline-lab bench tpcc`.

use clap::Args;
use thermocline_bench::settings::Benchmark;

use super::{DatabaseArguments, Job, LoadArguments};
use thermocline_bench::command_line::Failure;
use thermocline_bench::command_line::values;

/// Options of `bench tpcc`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Warehouses; each takes about 100 MB and grows
    #[arg(long, default_value = "4", value_parser = values::few)]
    warehouses: u32,
    /// Let delivery keep the rows of NEW-ORDER: one more table grows, and only its young end is hot
    #[arg(long)]
    skewed_growth: bool,
    /// Do not check the consistency conditions after the run
    #[arg(long)]
    no_check: bool,
    #[command(flatten)]
    load: LoadArguments,
    #[command(flatten)]
    database: DatabaseArguments,
}

impl Arguments {
    pub(super) fn run(&self, quiet: bool) -> Result<(), Failure> {
        let benchmark = Benchmark::Tpcc { warehouses: self.warehouses, skewed_growth: self.skewed_growth };
        Job { benchmark, database: &self.database, load: Some(&self.load), check: !self.no_check, quiet }
            .run()
    }
}
