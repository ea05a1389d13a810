//! `thermocline-lab bench siberia`.

use clap::Args;
use thermocline_bench::machine;
use thermocline_bench::siberia_bench::{self, SiberiaError, SiberiaSettings};

use super::RunArguments;
use thermocline_bench::command_line::Failure;
use thermocline_bench::command_line::values;

/// Options of `bench siberia`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Rows of the table, 56 bytes each with their header
    #[arg(long, default_value = "1M", value_parser = values::count)]
    rows: u64,
    /// The part of them that is placed in the cold store
    #[arg(long, default_value = "0.7", value_parser = values::share, allow_negative_numbers = true)]
    cold_share: f64,
    /// Parts of the accesses that go to cold rows, each compared with none
    #[arg(long, default_value = "0.05,0.1", value_delimiter = ',', allow_negative_numbers = true)]
    cold_access: Vec<f64>,
    /// The part of the transactions that update their rows
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    updates: f64,
    /// Microseconds that a client waits before each transaction
    #[arg(long, default_value_t = 0)]
    think_us: u64,
    /// Clients, on all threads together
    #[arg(long, default_value = "32", value_parser = values::in_flight)]
    clients: usize,
    /// Threads [default: one a core]
    #[arg(long, value_parser = values::threads)]
    threads: Option<usize>,
    /// The cold store: pages, direct or memory (which measures the machinery alone, too)
    #[arg(long, default_value = "pages")]
    store: String,
    /// Leave the notices of moves and ends in the memo
    #[arg(long)]
    no_clean: bool,
    /// Bring no rows back that are only read, however hot they are
    #[arg(long)]
    no_promote: bool,
    /// Measure latencies, too: at half the rate, while rows move to and fro
    #[arg(long)]
    paced: bool,
    /// Measure what throughput is lost while rows migrate, too, a tenth of all in 60 s: six slices of --seconds, in turn
    /// with six in which none do
    #[arg(long)]
    moving: bool,
    /// Bytes of pages that the store pages may cache
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = values::size)]
    frames: u64,
    /// Rows of 100 bytes whose migration is measured
    #[arg(long, default_value = "250k", value_parser = values::count)]
    migrate_rows: u64,
    /// Memory limit of the databases; rows leave memory by the governor's choice, too, where it is short
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    memory_limit: Option<u64>,
    /// Seconds of each measure
    #[arg(long, default_value = "4", value_parser = values::seconds, allow_negative_numbers = true)]
    seconds: f64,
    #[command(flatten)]
    run: RunArguments,
}

impl Arguments {
    pub(super) fn run(&self, quiet: bool) -> Result<(), Failure> {
        let data_dir = self.run.prepare(quiet)?;
        let settings = SiberiaSettings {
            rows: self.rows,
            cold_share: self.cold_share,
            cold_access: self.cold_access.clone(),
            updates: self.updates,
            think_us: self.think_us,
            clients: self.clients,
            threads: self.threads.unwrap_or_else(machine::cores),
            store: self.store.clone(),
            clean: !self.no_clean,
            promote: !self.no_promote,
            frame_bytes: self.frames,
            paced: self.paced,
            moving: self.moving,
            migrate_rows: self.migrate_rows,
            memory_limit_bytes: self.memory_limit,
            seconds: self.seconds,
            data_dir: data_dir.path().to_owned(),
            seed: self.run.seed,
        };
        let report =
            siberia_bench::run(&settings, !self.run.no_calibration, quiet).map_err(|error| match error {
                SiberiaError::Setting(said) => Failure::Usage(said),
                other => Failure::Failed(other.to_string()),
            })?;
        print!("{}", report.to_table());
        self.run.save(|| report.to_json())
    }
}
