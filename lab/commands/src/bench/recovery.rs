//! `thermocline-lab bench recovery`, and the process that builds the database for it and is killed.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use clap::Args;
use thermocline_bench::run::{Built, build_for_recovery};
use thermocline_bench::settings::{Benchmark, Settings};

use super::child::{end_with_parent, tell_parent};
use super::{DatabaseArguments, Job};
use thermocline_bench::command_line::Failure;
use thermocline_bench::command_line::servers::KillOnDrop;
use thermocline_bench::command_line::values;

/// Options of `bench recovery`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Warehouses of TPC-C that are loaded
    #[arg(long, default_value = "4", value_parser = values::few)]
    warehouses: u32,
    /// Log that is written after the load, in MiB
    #[arg(long, value_name = "MIB", default_value = "256", value_parser = values::mebibytes)]
    log_mb: u64,
    /// Do not check the consistency conditions afterwards
    #[arg(long)]
    no_check: bool,
    /// Be the process that builds the database and is killed
    #[arg(long, hide = true, requires = "data_dir")]
    build: bool,
    #[command(flatten)]
    database: DatabaseArguments,
}

impl Arguments {
    pub(super) fn run(&self, quiet: bool) -> Result<(), Failure> {
        let benchmark = Benchmark::Recovery { warehouses: self.warehouses, log_mib: self.log_mb };
        let job = Job { benchmark, database: &self.database, load: None, check: !self.no_check, quiet };
        match &self.database.run.data_dir {
            Some(dir) if self.build => build(&job.settings(dir)?, quiet),
            _ => job.run(),
        }
    }
}

/// Builds until killed. Tells on standard output when enough log is written.
fn build(settings: &Settings, quiet: bool) -> Result<(), Failure> {
    end_with_parent();
    let mut ready = |built: Built| tell_parent(&serde_json::to_string(&built).expect("two numbers are JSON"));
    match build_for_recovery(settings, quiet, &mut ready) {
        Ok(never) => match never {},
        Err(error) => Err(Failure::Failed(error.to_string())),
    }
}

/// Starts the process that builds, waits until enough log is written, and kills it.
pub(super) fn builder(settings: &Settings, quiet: bool) -> Result<Built, String> {
    let Benchmark::Recovery { warehouses, log_mib } = settings.benchmark else {
        return Err("only `recovery` has one".to_owned());
    };
    let program =
        std::env::current_exe().map_err(|error| format!("this program cannot be found: {error}"))?;
    let mut command = Command::new(program);
    command
        .args(["bench", "recovery", "--build", "--no-calibration"])
        .arg(format!("--warehouses={warehouses}"))
        .arg(format!("--log-mb={log_mib}"))
        .arg(format!("--threads={}", settings.threads))
        .arg(format!("--isolation={}", settings.isolation))
        .arg(format!("--durability={}", settings.durability))
        .arg(format!("--seed={}", settings.seed))
        .arg("--data-dir")
        .arg(&settings.data_dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    if let Some(bytes) = settings.memory_limit_bytes {
        command.arg(format!("--memory-limit={bytes}"));
    }
    if let Some(seconds) = settings.checkpoint_interval_seconds {
        command.arg(format!("--checkpoint-interval={seconds}"));
    }
    let paging = &settings.paging;
    if let Some(tiering) = &paging.tiering {
        command.arg(format!("--tiering={tiering}"));
    }
    // What is on memory servers is not durable: the process that is killed needs none.
    if let Some(pager) = paging.pager.as_ref().filter(|pager| *pager != "remote") {
        command.arg(format!("--pager={pager}"));
    }
    if let Some(dir) = &paging.paged_dir {
        command.arg("--paged-dir").arg(dir);
    }
    if let Some(bytes) = paging.paged_bytes {
        command.arg(format!("--paged-bytes={bytes}"));
    }
    if quiet {
        command.arg("--quiet");
    }
    let child = command.spawn().map_err(|error| format!("it does not start: {error}"))?;
    let mut child = KillOnDrop(child);
    let stdout = child.0.stdout.take().expect("it was asked to be piped");
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).map_err(|error| format!("it cannot be heard: {error}"))?;
    if line.is_empty() {
        let status = child.0.wait().map_err(|error| error.to_string())?;
        return Err(format!("it ended too early, with {status}; what it said stands above"));
    }
    serde_json::from_str(&line).map_err(|error| format!("it said {line:?}, which makes no sense: {error}"))
}
