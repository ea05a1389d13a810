//! `thermocline-lab bench ssd`.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::{Args, ValueEnum};
use thermocline_bench::run::{
    ReplaySettings, RunError, SsdExtras, SsdSize, Told, bench_ssd, drive_until_killed, replay_trace,
};
use thermocline_bench::settings::{Benchmark, Mix, Settings};
use thermocline_bench::simulate::SimulateError;

use super::child::{end_with_parent, tell_parent};
use super::{DatabaseArguments, Job, LoadArguments};
use thermocline_bench::command_line::Failure;
use thermocline_bench::command_line::servers::KillOnDrop;
use thermocline_bench::command_line::values;

/// The workload on cold rows.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Workload {
    /// 50 % reads, 50 % updates
    YcsbA,
    /// Reads only
    YcsbC,
    /// TPC-C
    Tpcc,
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
    /// Warehouses of TPC-C
    #[arg(long, default_value = "4", value_parser = values::few)]
    warehouses: u32,
    /// Afterwards open the database again with its SSD, and tell how much of its first 100,000 reads comes from there
    #[arg(long)]
    restart: bool,
    /// Afterwards kill a process that uses the database with its SSD, so many times, and tell how much of the first 100,000 reads
    /// of the next one comes from there
    #[arg(long, value_name = "TIMES", default_value = "0")]
    kills: u64,
    /// Be the process that is killed: this part of the clients
    #[arg(long, hide = true, value_name = "PART", requires = "data_dir")]
    until_killed: Option<u64>,
    /// Replay this trace over the devices instead, without a database
    #[arg(long, value_name = "FILE", conflicts_with_all = ["workload", "records", "restart", "kills"])]
    trace: Option<PathBuf>,
    /// Bytes of a page of the trace
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = values::size, requires = "trace")]
    page: u64,
    #[command(flatten)]
    load: LoadArguments,
    #[command(flatten)]
    database: DatabaseArguments,
}

impl Arguments {
    pub(super) fn run(&self, quiet: bool) -> Result<(), Failure> {
        let ycsb = |workload: &str| Benchmark::Ycsb {
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
        let benchmark = match self.workload {
            Workload::YcsbA => ycsb("a"),
            Workload::YcsbC => ycsb("c"),
            Workload::Tpcc => {
                Benchmark::Tpcc { warehouses: self.warehouses, skewed_growth: false, deck: Mix::Standard }
            }
        };
        let size = match self.database.storage.ssd_size {
            None => SsdSize::Share(0.25),
            Some(values::SizeOrShare::Bytes(bytes)) => SsdSize::Bytes(bytes),
            Some(values::SizeOrShare::Share(share)) => SsdSize::Share(share),
        };
        let job = Job { benchmark, database: &self.database, load: Some(&self.load), check: false, quiet };
        if let (Some(part), Some(dir)) = (self.until_killed, &self.database.run.data_dir) {
            return be_killed(&job.settings(dir)?, part, quiet);
        }
        let data_dir = self.database.run.prepare(quiet)?;
        let settings = job.settings(data_dir.path())?;
        if let Some(trace) = &self.trace {
            return self.replay(trace, size, &settings, quiet);
        }
        let report = {
            let killer = |settings: &Settings, part| self.kill(settings, part);
            let extras = SsdExtras { restart: self.restart, kills: self.kills, killer: &killer };
            bench_ssd(&settings, size, &extras, quiet).map_err(failure)?
        };
        print!("{}", report.to_table());
        self.database.run.save(|| report.to_json())
    }

    /// Runs a process on the database of `settings`, for the time that is measured and until its first reads are done, and kills it.
    fn kill(&self, settings: &Settings, part: u64) -> Result<Told, String> {
        let program =
            std::env::current_exe().map_err(|error| format!("this program cannot be found: {error}"))?;
        let workload = self.workload.to_possible_value().ok_or("the workload has no name")?;
        let storage = &settings.storage;
        let mut command = Command::new(program);
        command
            .args(["bench", "ssd", "--no-calibration", "--quiet"])
            .arg(format!("--until-killed={part}"))
            .arg(format!("--workload={}", workload.get_name()))
            .arg(format!("--records={}", self.records))
            .arg(format!("--fields={}", self.fields))
            .arg(format!("--field-bytes={}", self.field_bytes))
            .arg(format!("--theta={}", self.theta))
            .arg(format!("--warehouses={}", self.warehouses))
            .arg(format!("--threads={}", settings.threads))
            .arg(format!("--in-flight={}", settings.in_flight))
            .arg(format!("--isolation={}", settings.isolation))
            .arg(format!("--durability={}", settings.durability))
            .arg(format!("--seed={}", settings.seed))
            .arg("--data-dir")
            .arg(&settings.data_dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut with = |name: &str, value: Option<&OsStr>| {
            if let Some(value) = value {
                command.arg(name).arg(value);
            }
        };
        let numbers = (
            storage.ssd_bytes.map(|bytes| bytes.to_string()),
            settings.memory_limit_bytes.map(|bytes| bytes.to_string()),
            settings.checkpoint_interval_seconds.map(|seconds| seconds.to_string()),
        );
        with("--cold-dir", storage.cold_dir.as_deref().map(Path::as_os_str));
        with("--ssd", storage.ssd.as_deref().map(Path::as_os_str));
        with("--ssd-size", numbers.0.as_deref().map(OsStr::new));
        with("--ssd-policy", storage.ssd_policy.as_deref().map(OsStr::new));
        with("--profile", storage.profile.as_deref().map(OsStr::new));
        with("--memory-limit", numbers.1.as_deref().map(OsStr::new));
        with("--checkpoint-interval", numbers.2.as_deref().map(OsStr::new));
        let child = command.spawn().map_err(|error| format!("it does not start: {error}"))?;
        let mut child = KillOnDrop(child);
        let stdout = child.0.stdout.take().ok_or("it cannot be heard")?;
        let mut told = Told::default();
        for line in BufReader::new(stdout).lines() {
            let line = line.map_err(|error| format!("it cannot be heard: {error}"))?;
            told = serde_json::from_str(&line)
                .map_err(|error| format!("it said {line:?}, which makes no sense: {error}"))?;
            let ran = told.at_seconds;
            // Whatever it has not read by then it will not read soon.
            let is_long = ran >= PATIENCE * settings.seconds;
            if ran >= settings.seconds && (told.first.is_some() || is_long) {
                return Ok(told);
            }
        }
        let status = child.0.wait().map_err(|error| error.to_string())?;
        Err(format!("it ended too early, with {status}, and said {told:?}; what it said stands above"))
    }

    /// Replays a trace.
    fn replay(&self, trace: &Path, size: SsdSize, settings: &Settings, quiet: bool) -> Result<(), Failure> {
        let policy = match &settings.storage.ssd_policy {
            Some(name) => name.parse().map_err(|error| Failure::Usage(format!("--ssd-policy: {error}")))?,
            None => thermocline_bench::simulate::DEFAULT_POLICY,
        };
        let mut source =
            thermocline_bench::simulate::open_as(trace, self.page).map_err(|error| match error {
                SimulateError::Setting(said) => Failure::Usage(said),
                error => Failure::Failed(error.to_string()),
            })?;
        let replay = ReplaySettings {
            trace: trace.to_path_buf(),
            dir: settings.data_dir.clone(),
            ssd_size: size,
            policy,
            profile: settings.storage.profile.clone().unwrap_or_else(|| "network-volume".to_owned()),
            page_bytes: u32::try_from(self.page).unwrap_or(u32::MAX),
            threads: settings.threads,
            in_flight: settings.in_flight,
        };
        let report = replay_trace(&replay, source.as_mut(), quiet).map_err(failure)?;
        print!("{}", report.to_table());
        self.database.run.save(|| report.to_json())
    }
}

fn failure(error: RunError) -> Failure {
    match error.is_setting() {
        true => Failure::Usage(error.to_string()),
        false => Failure::Failed(error.to_string()),
    }
}

/// A process that is killed has so many times as long as is measured for its first reads.
const PATIENCE: f64 = 4.0;

/// Runs until killed. Tells on standard output what reads find.
fn be_killed(settings: &Settings, part: u64, quiet: bool) -> Result<(), Failure> {
    end_with_parent();
    let mut tell = |told: Told| tell_parent(&serde_json::to_string(&told).expect("two numbers are JSON"));
    match drive_until_killed(settings, part, quiet, &mut tell) {
        Ok(never) => match never {},
        Err(error) => Err(failure(error)),
    }
}
