//! `thermocline bench ssd`.

use clap::{Args, ValueEnum};
use thermocline_bench::run::{SsdSize, bench_ssd};
use thermocline_bench::settings::Benchmark;

use super::{DatabaseArguments, Job, LoadArguments};
use crate::failure::Failure;
use crate::values;

/// What is run on cold rows.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Workload {
    /// 50 % reads, 50 % updates
    YcsbA,
    /// Reads only
    YcsbC,
}

/// Options of `bench ssd`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// What is run
    #[arg(long, value_enum, default_value = "ycsb-c")]
    workload: Workload,
    /// Rows before the run
    #[arg(long, default_value = "1000000", value_parser = values::count)]
    records: u64,
    /// Columns beside the key
    #[arg(long, default_value = "10", value_parser = values::few)]
    fields: u32,
    /// Bytes of each of them
    #[arg(long, value_name = "BYTES", default_value = "20", value_parser = values::few)]
    field_bytes: u32,
    /// Skew of the Zipf distribution; 0 is uniform
    #[arg(long, default_value = "0.99", value_parser = values::theta, allow_negative_numbers = true)]
    theta: f64,
    /// Afterwards open the database again with its SSD, and tell how much of its first second comes from there
    #[arg(long)]
    restart: bool,
    #[command(flatten)]
    load: LoadArguments,
    #[command(flatten)]
    database: DatabaseArguments,
}

impl Arguments {
    pub(super) fn run(&self, quiet: bool) -> Result<(), Failure> {
        let workload = match self.workload {
            Workload::YcsbA => "a",
            Workload::YcsbC => "c",
        };
        let benchmark = Benchmark::Ycsb {
            workload: workload.to_owned(),
            read_percent: None,
            records: self.records,
            fields: self.fields,
            field_bytes: self.field_bytes,
            theta: self.theta,
            shift_seconds: None,
            shift_every_seconds: None,
            restart: false,
        };
        let size = match self.database.storage.ssd_size {
            None => SsdSize::Share(0.25),
            Some(values::SizeOrShare::Bytes(bytes)) => SsdSize::Bytes(bytes),
            Some(values::SizeOrShare::Share(share)) => SsdSize::Share(share),
        };
        let job = Job { benchmark, database: &self.database, load: Some(&self.load), check: false, quiet };
        let data_dir = self.database.run.prepare(quiet)?;
        let settings = job.settings(data_dir.path())?;
        let report =
            bench_ssd(&settings, size, self.restart, quiet).map_err(|error| match error.is_setting() {
                true => Failure::Usage(error.to_string()),
                false => Failure::Failed(error.to_string()),
            })?;
        print!("{}", report.to_table());
        self.database.run.save(|| report.to_json())
    }
}
