//! `thermocline-lab bench ycsb`.

use clap::{Args, ValueEnum};
use thermocline_bench::settings::Benchmark;

use super::{DatabaseArguments, Job, LoadArguments};
use thermocline_bench::command_line::Failure;
use thermocline_bench::command_line::values;

/// The core workloads.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Workload {
    /// 50 % reads, 50 % updates
    A,
    /// 95 % reads, 5 % updates
    B,
    /// Reads only
    C,
    /// 95 % reads of what was inserted last, 5 % inserts
    D,
    /// 95 % short scans, 5 % inserts
    E,
    /// 50 % reads, 50 % reads followed by an update of the same row
    F,
}

/// Options of `bench ycsb`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The core workload [default: a]
    #[arg(long, value_enum, ignore_case = true)]
    workload: Option<Workload>,
    /// Reads among the operations, in percent; the others are updates
    #[arg(long, value_name = "PERCENT", value_parser = values::percent, conflicts_with = "workload")]
    read_percent: Option<u32>,
    /// Rows before the run
    #[arg(long, default_value = "1000000", value_parser = values::count)]
    records: u64,
    /// Columns beside the key
    #[arg(long, default_value = "10", value_parser = values::few)]
    fields: u32,
    /// Bytes of each of them
    #[arg(long, value_name = "BYTES", default_value = "100", value_parser = values::few)]
    field_bytes: u32,
    /// Skew of the Zipf distribution; 0 is uniform
    #[arg(long, default_value = "0.99", value_parser = values::theta, allow_negative_numbers = true)]
    theta: f64,
    /// After so many of the counted seconds other rows become the popular ones; how long the throughput takes to come back is
    /// reported
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds)]
    shift: Option<f64>,
    /// And again every so many seconds after that
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds, requires = "shift")]
    shift_every: Option<f64>,
    /// Afterwards close the database, open it again, and run as long again; how long the throughput takes to come back is
    /// reported
    #[arg(long)]
    restart: bool,
    #[command(flatten)]
    load: LoadArguments,
    #[command(flatten)]
    database: DatabaseArguments,
}

impl Arguments {
    pub(super) fn run(&self, quiet: bool) -> Result<(), Failure> {
        let workload = match (self.workload, self.read_percent) {
            (Some(workload), _) => super::name(&workload),
            (None, Some(_)) => "custom".to_owned(),
            (None, None) => super::name(&Workload::A),
        };
        let benchmark = Benchmark::Ycsb {
            workload,
            read_percent: self.read_percent,
            records: self.records,
            fields: self.fields,
            field_bytes: self.field_bytes,
            theta: self.theta,
            shift_seconds: self.shift,
            shift_every_seconds: self.shift_every,
            restart: self.restart,
        };
        Job { benchmark, database: &self.database, load: Some(&self.load), check: false, quiet }.run()
    }
}
