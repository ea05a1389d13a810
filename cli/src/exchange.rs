//! `thermocline tables DIR`, `dump DIR --table T` and `load DIR --table T FILE`: tables as text.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use clap::Args;
use thermocline_bench::progress::Progress;
use thermocline_bench::report::grouped;
use thermocline_engine::Error;
use thermocline_exchange::{ExchangeError, Format, describe, dump, load};

use crate::opened;
use thermocline_bench::command_line::Failure;
use thermocline_bench::command_line::values;

/// Options of `tables`.
#[derive(Debug, Args)]
pub(crate) struct Tables {
    /// The directory of a database that no process has open for writing
    dir: PathBuf,
}

#[derive(Debug, Args)]
#[group(multiple = false)]
struct As {
    /// Comma-separated values, with the names of the columns in the first line (the usual form)
    #[arg(long)]
    csv: bool,
    /// A JSON object a line
    #[arg(long)]
    json: bool,
}

impl As {
    fn format(&self) -> Format {
        if self.json { Format::Json } else { Format::Csv }
    }
}

/// Options of `dump`.
#[derive(Debug, Args)]
pub(crate) struct Dump {
    /// The directory of a database that no process has open for writing
    dir: PathBuf,
    /// The table whose rows are written to standard output
    #[arg(long, value_name = "NAME")]
    table: String,
    #[command(flatten)]
    form: As,
}

/// Options of `load`.
#[derive(Debug, Args)]
pub(crate) struct Load {
    /// The directory of a database that no process has open
    dir: PathBuf,
    /// The table, which is there already
    #[arg(long, value_name = "NAME")]
    table: String,
    #[command(flatten)]
    form: As,
    /// Open it with this memory limit, for instance 1GiB [default: 80 % of the machine's memory]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    memory_limit: Option<u64>,
    /// The file with the rows; -: standard input
    file: PathBuf,
}

/// Says which tables there are.
pub(crate) fn tables(arguments: &Tables) -> Result<(), Failure> {
    let database = opened::to_read(&arguments.dir)?;
    print!("{}", describe(&database).map_err(|error| failed(&error))?);
    Ok(())
}

/// Writes the rows of a table.
pub(crate) fn write(arguments: &Dump) -> Result<(), Failure> {
    let database = opened::to_read(&arguments.dir)?;
    let out = std::io::stdout().lock();
    dump(&database, &arguments.table, arguments.form.format(), out).map_err(|error| failed(&error))?;
    Ok(())
}

/// Reads rows into a table.
pub(crate) fn read(arguments: &Load, quiet: bool) -> Result<(), Failure> {
    let file = &arguments.file;
    let input: Box<dyn Read> = if file.as_os_str() == "-" {
        Box::new(std::io::stdin())
    } else {
        let opened = File::open(file);
        Box::new(opened.map_err(|error| Failure::Usage(format!("cannot read {}: {error}", file.display())))?)
    };
    let database = opened::to_write(&arguments.dir, arguments.memory_limit)?;
    let (mut progress, mut loaded) = (Progress::new(quiet), 0);
    let outcome = load(&database, &arguments.table, arguments.form.format(), input, &mut |rows| {
        loaded = rows;
        progress.show(|| format!("{} rows loaded", grouped(rows as f64)));
    });
    progress.end();
    // What was loaded stays, whatever comes then.
    let closed = database.close();
    outcome.map_err(|error| match failed(&error) {
        Failure::Failed(text) => {
            Failure::Failed(format!("{text}; {} rows before it were loaded", grouped(loaded as f64)))
        }
        other => other,
    })?;
    closed.map_err(|error| Failure::Failed(error.to_string()))?;
    println!("{} rows loaded", grouped(loaded as f64));
    Ok(())
}

fn failed(error: &ExchangeError) -> Failure {
    match error {
        ExchangeError::Engine(error @ Error::UnknownTable { .. }) => {
            Failure::Usage(format!("{error}; `thermocline tables DIR` names those that there are"))
        }
        error => Failure::Failed(error.to_string()),
    }
}
