//! `thermocline-lab bench backup`.

use clap::Args;
use thermocline_bench::backup_bench::{self, BackupSettings};

use super::RunArguments;
use thermocline_bench::command_line::Failure;
use thermocline_bench::command_line::values;

/// Options of `bench backup`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Rows that are loaded
    #[arg(long, default_value = "3700000", value_parser = values::count)]
    rows: u64,
    /// Length of the text in each row
    #[arg(long, default_value = "100B", value_parser = values::size)]
    row_bytes: u64,
    /// The memory limit, which the rows do not fit into
    #[arg(long, value_name = "SIZE", default_value = "80MiB", value_parser = values::size)]
    memory_limit: u64,
    /// Threads that write
    #[arg(long, default_value = "2", value_parser = values::threads)]
    threads: usize,
    /// Transactions that they begin in a second, all together; 0: as many as they can
    #[arg(long, default_value_t = 0)]
    rate: u64,
    /// Seconds of writers alone
    #[arg(long, default_value = "5", value_parser = values::seconds, allow_negative_numbers = true)]
    seconds: f64,
    #[command(flatten)]
    run: RunArguments,
}

impl Arguments {
    pub(super) fn run(&self, quiet: bool) -> Result<(), Failure> {
        let data_dir = self.run.prepare(quiet)?;
        let settings = BackupSettings {
            rows: self.rows,
            row_bytes: usize::try_from(self.row_bytes).unwrap_or(usize::MAX),
            memory_limit_bytes: self.memory_limit,
            threads: self.threads,
            rate: self.rate,
            seconds: self.seconds,
            data_dir: data_dir.path().to_owned(),
        };
        let report =
            backup_bench::run(&settings, quiet).map_err(|error| Failure::Failed(error.to_string()))?;
        print!("{}", report.to_table());
        self.run.save(|| report.to_json())
    }
}
