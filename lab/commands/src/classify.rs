//! `thermocline-lab classify LOG`: which rows of an access log belong into memory?

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use thermocline_bench::classify_bench::{ClassifyError, receive, report};
use thermocline_bench::machine;
use thermocline_engine::temperature::LogError;
use thermocline_engine::temperature::classify::{Algorithm, Budget, ClassifyOptions};

use thermocline_bench::command_line::Failure;
use thermocline_bench::command_line::values;

/// From which end a log is read.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum AlgorithmArgument {
    /// From the beginning, all of it
    Forward,
    /// From the end, until the hottest rows are certain
    Backward,
}

/// Options of `classify`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The access log; with --listen, where to store what is received [default: a temporary file]
    #[arg(required_unless_present = "listen")]
    log: Option<PathBuf>,
    /// How many bytes of rows fit into memory
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = values::size, conflicts_with = "rows")]
    budget: u64,
    /// How many rows fit into memory, whatever their sizes
    #[arg(long, value_name = "N", value_parser = values::count)]
    rows: Option<u64>,
    /// From which end the log is read
    #[arg(long, value_enum, default_value = "backward")]
    algorithm: AlgorithmArgument,
    /// Threads that classify [default: one a core]
    #[arg(long, value_parser = values::threads)]
    threads: Option<usize>,
    /// The share of the last quantum in an estimate: the larger, the sooner the past is forgotten
    #[arg(long, default_value = "0.05", value_parser = values::share, allow_negative_numbers = true)]
    alpha: f64,
    /// Write the rows to this file as comma-separated values: which are hot, and which of those are cold now (come) or in
    /// memory (stay), then those in memory that are not hot (leave)
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write the result to this file as one JSON object
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Receive the log from another machine: wait on this address, for instance 0.0.0.0:7070, for one sender
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Receive for so long at most [default: until the sender ends]
    #[arg(long, value_name = "SECONDS", requires = "listen", value_parser = values::seconds, allow_negative_numbers = true)]
    receive_seconds: Option<f64>,
}

/// Classifies the rows of a log and prints what it finds.
pub(crate) fn run(arguments: &Arguments, quiet: bool) -> Result<(), Failure> {
    let options = ClassifyOptions {
        algorithm: match arguments.algorithm {
            AlgorithmArgument::Forward => Algorithm::Forward,
            AlgorithmArgument::Backward => Algorithm::Backward,
        },
        budget: arguments.rows.map_or(Budget::Bytes(arguments.budget), Budget::Rows),
        alpha: arguments.alpha,
        threads: arguments.threads.unwrap_or_else(machine::cores),
        ..ClassifyOptions::default()
    };
    apart(&[("the log", &arguments.log), ("--out", &arguments.out), ("--json", &arguments.json)])?;
    for file in [&arguments.json, &arguments.out].into_iter().flatten() {
        thermocline_bench::command_line::can_be_written(file)?;
    }
    match (&arguments.log, &arguments.listen) {
        (Some(log), None) => classify(log, arguments, &options),
        (Some(log), Some(address)) => {
            receive_into(address, log, arguments, quiet)?;
            classify(log, arguments, &options)
        }
        (None, address) => {
            let dir = tempfile::tempdir()
                .map_err(|error| Failure::Failed(format!("cannot make a temporary directory: {error}")))?;
            let log = dir.path().join("accesses.log");
            let address = address.as_deref().expect("clap asks for a log or an address");
            receive_into(address, &log, arguments, quiet)?;
            classify(&log, arguments, &options)
        }
    }
}

/// Are these different files? What is written must not be the log, nor one result the other.
fn apart(files: &[(&str, &Option<PathBuf>)]) -> Result<(), Failure> {
    let of = |path: &PathBuf| std::fs::canonicalize(path).or_else(|_| std::path::absolute(path)).ok();
    let named: Vec<_> =
        files.iter().filter_map(|(name, path)| path.as_ref().map(|path| (*name, path, of(path)))).collect();
    for (at, (name, path, file)) in named.iter().enumerate() {
        if let Some((other, ..)) = named[..at].iter().find(|(_, _, other)| other.is_some() && other == file) {
            let path = path.display();
            return Err(Failure::Usage(format!("{other} and {name} are one file, {path}; name another one")));
        }
    }
    Ok(())
}

fn receive_into(address: &str, log: &Path, arguments: &Arguments, quiet: bool) -> Result<(), Failure> {
    if log.exists() {
        return Err(Failure::Usage(format!("{} exists already; name a new file for the log", log.display())));
    }
    let bytes = receive(address, log, arguments.receive_seconds, |bound| {
        // A user that starts the sender by a script needs to know the port, quiet or not.
        eprintln!("listening on {bound}");
    })
    .map_err(failure)?;
    if !quiet {
        eprintln!("received {bytes} bytes");
    }
    Ok(())
}

fn classify(log: &Path, arguments: &Arguments, options: &ClassifyOptions) -> Result<(), Failure> {
    if !log.is_file() {
        return Err(Failure::Usage(format!("{} is no file; name an access log", log.display())));
    }
    let report = report(log, options, arguments.out.as_deref()).map_err(failure)?;
    print!("{}", report.to_table());
    if let Some(file) = &arguments.json {
        thermocline_bench::command_line::write(file, std::fs::write(file, report.to_json()))?;
    }
    if report.damage.is_empty() { Ok(()) } else { Err(Failure::Found) }
}

fn failure(error: ClassifyError) -> Failure {
    match error {
        ClassifyError::Setting(_)
        | ClassifyError::Receive { .. }
        | ClassifyError::Log(LogError::NotALog { .. } | LogError::OtherVersion { .. }) => {
            Failure::Usage(error.to_string())
        }
        error => Failure::Failed(error.to_string()),
    }
}
