//! `thermocline inspect DIR`: where are the rows of a database, and how warm are they?

use std::path::PathBuf;

use clap::Args;
use thermocline_bench::inspect::inspect;
use thermocline_bench::progress::Progress;
use thermocline_engine::{ColdStoreKind, Error};

use thermocline_bench::command_line::Failure;
use thermocline_bench::command_line::values;

/// Options of `inspect`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The directory of a database that no process has open
    dir: PathBuf,
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// Open it with this memory limit, for instance 1GiB [default: 80 % of the machine's memory]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    memory_limit: Option<u64>,
    /// The file of the SSD that keeps copies of its pages: what lies there is told, too
    #[arg(long, value_name = "FILE")]
    ssd: Option<PathBuf>,
    /// The kind of its cold store: pages or direct [default: the one that is there]
    #[arg(long, value_name = "KIND")]
    cold_store: Option<String>,
}

/// Looks at a database and prints what is there.
pub(crate) fn run(arguments: &Arguments, quiet: bool) -> Result<(), Failure> {
    let dir = &arguments.dir;
    if !dir.is_dir() {
        return Err(Failure::Usage(format!(
            "{} is no directory; name the directory of a database",
            dir.display()
        )));
    }
    let kind = arguments.cold_store.as_deref().map(str::parse::<ColdStoreKind>).transpose();
    let kind = kind.map_err(|error| Failure::Usage(error.to_string()))?;
    let ssd = arguments.ssd.as_ref().map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone()));
    if let Some(path) = ssd.as_ref().filter(|path| !path.is_file()) {
        return Err(Failure::Usage(format!(
            "{} is no file; name the file that the database's SSD cache is kept in",
            path.display()
        )));
    }
    let mut progress = Progress::new(quiet);
    progress.begin("opening");
    let outcome = inspect(dir, arguments.memory_limit, kind, ssd.as_deref());
    progress.end();
    let inspected = outcome.map_err(|error| opening(dir, &error))?;
    if let Some(path) = ssd.filter(|_| inspected.ssd.is_none() && !quiet) {
        eprintln!(
            "note: nothing is known of {}: no SSD cache of this database was closed or saved there",
            path.display()
        );
    }
    print!("{}", if arguments.json { inspected.to_json() } else { inspected.to_table() });
    Ok(())
}

/// What a database that cannot be opened means for who asked.
fn opening(dir: &std::path::Path, error: &Error) -> Failure {
    match error {
        Error::NotADatabase { .. }
        | Error::Locked { .. }
        | Error::NewerFormat { .. }
        | Error::InvalidOption { .. } => Failure::Usage(error.to_string()),
        error => Failure::Failed(format!("cannot open {}: {error}", dir.display())),
    }
}
