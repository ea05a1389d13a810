//! `thermocline-lab bench classify`.

use clap::Args;
use thermocline_bench::classify_bench::{self, ClassifyError, ClassifySettings};
use thermocline_bench::machine;

use super::RunArguments;
use thermocline_bench::command_line::Failure;
use thermocline_bench::command_line::values;

/// Options of `bench classify`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Accesses in the log
    #[arg(long, default_value = "100M", value_parser = values::count)]
    accesses: u64,
    /// Rows that they spread over
    #[arg(long, default_value = "1M", value_parser = values::count)]
    rows: u64,
    /// Skew of the accesses
    #[arg(long, default_value = "0.99", value_parser = values::theta, allow_negative_numbers = true)]
    theta: f64,
    /// Accesses of a quantum
    #[arg(long, default_value = "10k", value_parser = values::count)]
    quantum_accesses: u64,
    /// How many rows are to be found hot [default: a tenth]
    #[arg(long, value_parser = values::count)]
    hot_rows: Option<u64>,
    /// The share of the last quantum in an estimate
    #[arg(long, default_value = "0.05", value_parser = values::share, allow_negative_numbers = true)]
    alpha: f64,
    /// Threads that classify [default: one a core]
    #[arg(long, value_parser = values::threads)]
    threads: Option<usize>,
    /// How often each algorithm runs
    #[arg(long, default_value = "3", value_parser = values::few)]
    rounds: u32,
    #[command(flatten)]
    run: RunArguments,
}

impl Arguments {
    pub(super) fn run(&self, quiet: bool) -> Result<(), Failure> {
        let data_dir = self.run.prepare(quiet)?;
        let settings = ClassifySettings {
            benchmark: "classify",
            accesses: self.accesses,
            rows: self.rows,
            theta: self.theta,
            quantum_accesses: self.quantum_accesses,
            hot_rows: self.hot_rows.unwrap_or((self.rows / 10).max(1)),
            alpha: self.alpha,
            threads: self.threads.unwrap_or_else(machine::cores),
            rounds: self.rounds,
            data_dir: data_dir.path().to_owned(),
            seed: self.run.seed,
        };
        let report = classify_bench::run(&settings, quiet).map_err(|error| match error {
            ClassifyError::Setting(said) => Failure::Usage(said),
            other => Failure::Failed(other.to_string()),
        })?;
        print!("{}", report.to_table());
        self.run.save(|| report.to_json())
    }
}
