//! `thermocline backup DIR TO` and `restore FROM DIR`: a database as bytes, to another place.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::Args;
use thermocline_bench::progress::Progress;
use thermocline_bench::report::size;
use thermocline_engine::{BackupProgress, Database, Error};

use crate::opened;
use thermocline_bench::command_line::Failure;
use thermocline_bench::command_line::values;

/// Options of `backup`.
#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// The directory of a database that no process has open; a program backs up its own with `Database::backup`
    dir: PathBuf,
    /// A new or empty directory
    to: PathBuf,
    /// Open it with this memory limit, for instance 1GiB [default: 80 % of the machine's memory]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    memory_limit: Option<u64>,
}

/// Options of `restore`.
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The directory of a backup, which stays as it is
    from: PathBuf,
    /// A new or empty directory
    dir: PathBuf,
}

/// Opens a database and backs it up.
pub(crate) fn backup(arguments: &Backup, quiet: bool) -> Result<(), Failure> {
    let Backup { dir, to, memory_limit } = arguments;
    let mut progress = Progress::new(quiet);
    progress.begin("opening");
    let database = opened::to_write(dir, *memory_limit)?;
    let mut bytes = 0;
    let outcome = database.backup_with(to, |told| tell(&mut progress, &mut bytes, "backed up", told));
    progress.end();
    outcome.map_err(|error| failed("back up", dir, &error))?;
    database.close().map_err(|error| failed("close", dir, &error))?;
    println!("{} backed up to {}", size(bytes), to.display());
    Ok(())
}

/// Copies a backup to where a database is to be, and checks it.
pub(crate) fn restore(arguments: &Restore, quiet: bool) -> Result<(), Failure> {
    let Restore { from, dir } = arguments;
    let mut progress = Progress::new(quiet);
    let mut bytes = 0;
    let outcome = Database::restore(from, dir, |told| tell(&mut progress, &mut bytes, "restored", told));
    progress.end();
    outcome.map_err(|error| failed("restore", from, &error))?;
    println!("{} restored to {}; every checksum is right", size(bytes), dir.display());
    Ok(())
}

fn tell(progress: &mut Progress, bytes: &mut u64, done: &str, told: BackupProgress) -> ControlFlow<()> {
    *bytes = told.bytes;
    progress.show(|| format!("{} of {} {done}", size(told.bytes_done), size(told.bytes)));
    ControlFlow::Continue(())
}

fn failed(what: &str, dir: &Path, error: &Error) -> Failure {
    match error {
        Error::NotADatabase { .. } | Error::Locked { .. } | Error::NewerFormat { .. } => {
            Failure::Usage(error.to_string())
        }
        error => Failure::Failed(format!("cannot {what} {}: {error}", dir.display())),
    }
}
