//! The binary as people and scripts use it.

mod arguments;
mod check;
mod demo;
mod exchange;
mod inspect;
mod paging;
mod serve;

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;
use thermocline_bench::run::{self, RunOptions};
use thermocline_bench::settings::{Benchmark, Settings};

/// The binary, with a directory of its own for temporary files.
fn command(temporary: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermocline"));
    command.args(arguments).env("TMPDIR", temporary);
    command
}

/// Runs the binary. Whatever it does, it leaves no temporary file behind.
fn thermocline(arguments: &[&str]) -> Output {
    let temporary = directory();
    let output = command(temporary.path(), arguments).output().expect("the binary starts");
    let left = std::fs::read_dir(temporary.path()).expect("the directory is there").count();
    assert_eq!(left, 0, "{arguments:?} left temporary files behind");
    output
}

fn directory() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// What a command printed to standard error.
fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What a command printed to standard output.
fn results(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a benchmark in a second or so, and leaves its database in the directory.
fn leave(benchmark: Benchmark, dir: &Path, seconds: f64, memory_limit: Option<u64>) {
    let settings = Settings {
        benchmark,
        threads: 2,
        in_flight: 32,
        warm_up_seconds: 0.0,
        seconds,
        isolation: "snapshot".to_owned(),
        durability: "group".to_owned(),
        memory_limit_bytes: memory_limit,
        access_log: None,
        data_dir: dir.to_owned(),
        seed: 1,
        hold_snapshot: false,
        grow_rows: None,
        until_bytes: None,
        freeze_threads: None,
        checkpoint_interval_seconds: None,
        storage: Default::default(),
        paging: Default::default(),
    };
    let options = RunOptions { calibrate: false, check: false, quiet: true, lend: None };
    let report = run::run(&settings, &options, &|_| Err("no other process is needed".to_owned()));
    assert!(report.expect("it runs").is_consistent());
}
