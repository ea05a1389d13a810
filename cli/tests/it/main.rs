//! The binary as people and scripts use it.

mod arguments;

use std::process::{Command, Output};

/// The binary, in a directory of its own for temporary files.
fn thermocline(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_thermocline")).args(arguments).output().expect("the binary starts")
}

/// What a command printed to standard error.
fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
