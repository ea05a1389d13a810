//! `thermocline check DIR`: is everything in a database directory whole, and consistent where we know what that means?

use std::path::PathBuf;

use clap::Args;

use crate::failure::Failure;

/// Options of `check`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The directory of a database that no process has open
    dir: PathBuf,
}

/// Checks a database and prints what it finds.
pub(crate) fn run(arguments: &Arguments, _quiet: bool) -> Result<(), Failure> {
    if !arguments.dir.is_dir() {
        return Err(Failure::Usage(format!(
            "{} is no directory; name the directory of a database",
            arguments.dir.display()
        )));
    }
    Err(Failure::Found)
}
