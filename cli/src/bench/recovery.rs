//! `thermocline bench recovery`.

use clap::Args;
use thermocline_bench::settings::Benchmark;

use super::{DatabaseArguments, Job};
use crate::failure::Failure;
use crate::values;

/// Options of `bench recovery`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Warehouses of TPC-C that are loaded
    #[arg(long, default_value = "4", value_parser = values::few)]
    warehouses: u32,
    /// Log that is written after the load, in MiB
    #[arg(long, value_name = "MIB", default_value = "256", value_parser = values::count)]
    log_mb: u64,
    /// Do not check the consistency conditions afterwards
    #[arg(long)]
    no_check: bool,
    #[command(flatten)]
    database: DatabaseArguments,
}

impl Arguments {
    pub(super) fn run(&self, quiet: bool) -> Result<(), Failure> {
        let benchmark = Benchmark::Recovery { warehouses: self.warehouses, log_mib: self.log_mb };
        Job { benchmark, database: &self.database, load: None, check: !self.no_check, quiet }.run()
    }
}
