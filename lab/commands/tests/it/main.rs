//! The binary as people and scripts use it.

mod arguments;
mod classify;
mod paged;
mod paging;
mod remote;
mod repro;
mod runs;
mod simulate;
mod ssd;

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// The binary, with a directory of its own for temporary files.
fn command(temporary: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermocline-lab"));
    command.args(arguments).env("TMPDIR", temporary);
    command
}

/// Runs the binary. Whatever it does, it leaves no temporary file behind.
fn lab(arguments: &[&str]) -> Output {
    let temporary = directory();
    let output = command(temporary.path(), arguments).output().expect("the binary starts");
    let left = std::fs::read_dir(temporary.path()).expect("the directory is there").count();
    assert_eq!(left, 0, "{arguments:?} left temporary files behind");
    output
}

fn directory() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// The text that a command printed to standard error.
fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The text that a command printed to standard output.
fn results(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}
