//! `thermocline-lab bench tpcc`.

use clap::{Args, ValueEnum};
use thermocline_bench::settings::{Benchmark, Mix};

use super::{DatabaseArguments, Job, LoadArguments};
use thermocline_bench::command_line::Failure;
use thermocline_bench::command_line::values;

/// The mixes.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum DeckArgument {
    /// 45 % new-order, 43 % payment, 4 % of each other
    Standard,
    /// 10, 10, 1, 1, 1 of 23: deliveries keep up with new orders
    Balanced,
}

/// Options of `bench tpcc`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Warehouses; each takes about 100 MB and grows
    #[arg(long, default_value = "4", value_parser = values::few)]
    warehouses: u32,
    /// Let delivery keep the rows of NEW-ORDER: one more table grows, and only its young end is hot
    #[arg(long)]
    skewed_growth: bool,
    /// The mix of transactions
    #[arg(long, value_enum, default_value = "standard")]
    deck: DeckArgument,
    /// Do not check the consistency conditions after the run
    #[arg(long)]
    no_check: bool,
    #[command(flatten)]
    load: LoadArguments,
    #[command(flatten)]
    database: DatabaseArguments,
}

impl Arguments {
    pub(super) fn run(&self, quiet: bool) -> Result<(), Failure> {
        let deck = match self.deck {
            DeckArgument::Standard => Mix::Standard,
            DeckArgument::Balanced => Mix::Balanced,
        };
        let (warehouses, skewed_growth) = (self.warehouses, self.skewed_growth);
        let benchmark = Benchmark::Tpcc { warehouses, skewed_growth, deck };
        Job { benchmark, database: &self.database, load: Some(&self.load), check: !self.no_check, quiet }
            .run()
    }
}
