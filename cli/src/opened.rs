//! A database that a command opens, with the kind of cold store that it has.

use std::path::Path;

use thermocline_bench::run::open_to_look;
use thermocline_engine::{Database, Error, Options};

use thermocline_bench::command_line::Failure;

/// Opens an existing database to look at it; nothing of it changes.
pub(crate) fn to_read(dir: &Path) -> Result<Database, Failure> {
    is_there(dir)?;
    open_to_look(dir, Options::default(), None).map_err(|error| refused(dir, &error))
}

/// Opens an existing database.
pub(crate) fn to_write(dir: &Path, memory_limit: Option<u64>) -> Result<Database, Failure> {
    with(dir, Options::default().with_memory_limit(memory_limit))
}

/// The same, with these options.
pub(crate) fn with(dir: &Path, options: Options) -> Result<Database, Failure> {
    is_there(dir)?;
    let opened = Database::cold_store_in(dir).and_then(|kind| {
        Database::open(dir, options.clone().with_cold_store(kind.unwrap_or(options.cold_store)))
    });
    opened.map_err(|error| refused(dir, &error))
}

/// A name that was mistyped makes no database.
pub(crate) fn is_there(dir: &Path) -> Result<(), Failure> {
    let there = dir.is_dir() && std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some());
    if there {
        return Ok(());
    }
    Err(Failure::Usage(format!("no database is in {}; name the directory of one", dir.display())))
}

fn refused(dir: &Path, error: &Error) -> Failure {
    match error {
        Error::NotADatabase { .. }
        | Error::Locked { .. }
        | Error::NewerFormat { .. }
        | Error::InvalidOption { .. } => Failure::Usage(error.to_string()),
        error => Failure::Failed(format!("cannot open {}: {error}", dir.display())),
    }
}
