//! `thermocline-lab bench freeze`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use thermocline_bench::freeze_bench::{self, FreezeSettings};
use thermocline_workloads::tpcc::lines::Strings;

use thermocline_bench::command_line::Failure;
use thermocline_bench::command_line::values;
use thermocline_bench::command_line::{can_be_written, write};

/// The strings of `ol_dist_info`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum StringsArgument {
    /// 24 random letters and digits
    Tpcc,
    /// Surnames with the skew of a census; 88,800 generated ones stand in for it
    Ch,
    /// Remarks of 6 to 20 words
    Long,
}

/// Options of `bench freeze`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Order lines, in blocks of 65,536
    #[arg(long, default_value = "2000000", value_parser = values::count)]
    rows: u64,
    /// What stands in ol_dist_info
    #[arg(long, value_enum, default_value = "ch")]
    strings: StringsArgument,
    /// Warehouses that the lines are of
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    warehouses: u16,
    /// The smallest encodings, instead of those that give a value by its position at once
    #[arg(long)]
    smallest: bool,
    /// Write the blocks to this file, one after another
    #[arg(long, value_name = "FILE")]
    blocks: Option<PathBuf>,
    /// Write the rows as CSV to this file, for other programs
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the result to this file as one JSON object
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// One seed gives one sequence of rows
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Arguments {
    pub(super) fn run(&self, _quiet: bool) -> Result<(), Failure> {
        [&self.json, &self.blocks, &self.csv]
            .into_iter()
            .flatten()
            .try_for_each(|file| can_be_written(file))?;
        let settings = FreezeSettings {
            rows: self.rows,
            strings: match self.strings {
                StringsArgument::Tpcc => Strings::Tpcc,
                StringsArgument::Ch => Strings::Ch,
                StringsArgument::Long => Strings::Long,
            },
            warehouses: self.warehouses,
            smallest: self.smallest,
            seed: self.seed,
        };
        let mut outputs = freeze_bench::Outputs {
            csv: self.csv.as_ref().map(|_| Vec::new()),
            blocks: self.blocks.as_ref().map(|_| Vec::new()),
        };
        let report =
            freeze_bench::run(&settings, &mut outputs).map_err(|error| Failure::Failed(error.to_string()))?;
        for (file, bytes) in [(&self.csv, &outputs.csv), (&self.blocks, &outputs.blocks)] {
            if let (Some(file), Some(bytes)) = (file, bytes) {
                write(file, std::fs::write(file, bytes))?;
            }
        }
        print!("{}", report.to_table());
        match &self.json {
            Some(file) => write(file, std::fs::write(file, report.to_json())),
            None => Ok(()),
        }
    }
}
