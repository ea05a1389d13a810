//! `thermocline check DIR`: is everything in a database directory whole, and consistent where we know what that means?

use std::path::PathBuf;

use clap::Args;
use thermocline_bench::progress::Progress;
use thermocline_bench::report::{conditions_text, grouped};
use thermocline_bench::run::{Checked, check};
use thermocline_engine::Error;

use thermocline_bench::command_line::Failure;

/// Options of `check`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The directory of a database that no process has open
    dir: PathBuf,
    /// The database comes from `bench tpcc --skewed-growth`: its deliveries kept the rows of NEW-ORDER
    #[arg(long)]
    skewed_growth: bool,
}

/// Checks a database and prints what it finds.
pub(crate) fn run(arguments: &Arguments, quiet: bool) -> Result<(), Failure> {
    let dir = &arguments.dir;
    if !dir.is_dir() {
        return Err(Failure::Usage(format!(
            "{} is no directory; name the directory of a database",
            dir.display()
        )));
    }
    let mut progress = Progress::new(quiet);
    progress.begin("checking");
    let outcome = check(dir, arguments.skewed_growth);
    progress.end();
    let checked = outcome.map_err(|error| match error {
        Error::NotADatabase { .. } | Error::Locked { .. } | Error::NewerFormat { .. } => {
            Failure::Usage(error.to_string())
        }
        error => Failure::Failed(format!("cannot check {}: {error}", dir.display())),
    })?;
    print!("{}", text(&checked));
    if checked.is_clean() { Ok(()) } else { Err(Failure::Found) }
}

fn text(checked: &Checked) -> String {
    let Checked { tables, chunk_images, rows, log_records, findings, conditions } = checked;
    let count = |number: &u64| grouped(*number as f64);
    let mut text = format!(
        "{} tables, {} chunk images with {} rows, {} log records\n",
        count(tables),
        count(chunk_images),
        count(rows),
        count(log_records)
    );
    for finding in findings {
        text += &format!("DAMAGED: {finding}\n");
    }
    if findings.is_empty() {
        text += "every checksum is right\n";
    }
    if let Some(conditions) = conditions {
        let broken = conditions.iter().filter(|condition| condition.violated > 0).count();
        text += &match broken {
            0 => format!("all {} conditions hold\n", conditions.len()),
            broken => format!("{broken} of {} conditions are VIOLATED\n", conditions.len()),
        };
        text += &conditions_text(conditions);
    }
    text
}
