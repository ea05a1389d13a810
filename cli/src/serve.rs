//! `thermocline serve` and `thermocline passwd`: they become the binary `thermocline-server` that stands beside this one.
//!
//! The server is a binary of its own, so that who builds this one does not build tokio, pgwire and ring with it.

use clap::Args;

use crate::failure::Failure;

/// Options of `serve`: those of `thermocline-server`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Serve {
    /// Options of the server; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    options: Vec<std::ffi::OsString>,
}

/// Options of `passwd`.
#[derive(Debug, Args)]
pub(crate) struct Passwd {
    /// The password file; what it says is replaced
    file: std::path::PathBuf,
}

/// Writes a password file.
pub(crate) fn passwd(arguments: &Passwd) -> Result<(), Failure> {
    become_server(&["--write-password-file".into(), arguments.file.clone().into()])
}

/// Serves a database.
pub(crate) fn run(arguments: &Serve) -> Result<(), Failure> {
    become_server(&arguments.options)
}

/// Runs the server in place of this process, where the system can do that.
fn become_server(options: &[std::ffi::OsString]) -> Result<(), Failure> {
    let own = std::env::current_exe()
        .map_err(|error| Failure::Failed(format!("cannot say where this program stands: {error}")))?;
    let server = own.with_file_name(format!("thermocline-server{}", std::env::consts::EXE_SUFFIX));
    if !server.is_file() {
        return Err(Failure::Usage(format!(
            "{} is not there; build it with `cargo build --release -p thermocline-server`",
            server.display()
        )));
    }
    let mut command = std::process::Command::new(&server);
    command.args(options);
    replace(command).map_err(|error| Failure::Failed(format!("cannot run {}: {error}", server.display())))
}

#[cfg(unix)]
fn replace(mut command: std::process::Command) -> std::io::Result<()> {
    use std::os::unix::process::CommandExt;
    Err(command.exec())
}

#[cfg(not(unix))]
fn replace(mut command: std::process::Command) -> std::io::Result<()> {
    std::process::exit(command.status()?.code().unwrap_or(1));
}
