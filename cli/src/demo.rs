//! `thermocline demo`: TPC-C in memory, and under a memory limit that it does not fit into.

use std::path::PathBuf;

use clap::Args;
use thermocline_bench::demo::demonstrate;
use thermocline_bench::machine;
use thermocline_bench::run::{Lend, RunOptions};
use thermocline_bench::settings::{Benchmark, Mix, Settings};

use thermocline_bench::command_line::Failure;
use thermocline_bench::command_line::data_dir::DataDir;
use thermocline_bench::command_line::paging::PagingArguments;
use thermocline_bench::command_line::values;

/// Options of `demo`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Warehouses; each takes about 100 MB and grows
    #[arg(long, default_value = "2", value_parser = values::few)]
    warehouses: u32,
    /// How many times the database is larger than its memory limit
    #[arg(long, default_value = "4", value_parser = values::times, allow_negative_numbers = true)]
    times: f64,
    /// Seconds of each of the two runs, after as many seconds of warm-up, but 5 at the most
    #[arg(long, default_value = "15", value_parser = values::seconds, allow_negative_numbers = true)]
    seconds: f64,
    /// Threads that run transactions [default: one a core]
    #[arg(long, value_parser = values::threads)]
    threads: Option<usize>,
    /// Transactions in flight on each thread
    #[arg(long, default_value = "8", value_parser = values::in_flight)]
    in_flight: usize,
    /// Plot the throughput of both runs over time to this SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Write the result to this file as one JSON object
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// An empty or new directory for the databases, kept afterwards [default: a temporary one, removed afterwards]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// One seed gives one sequence of requests
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    paging: PagingArguments,
}

/// Runs both and prints them side by side.
pub(crate) fn run(arguments: &Arguments, quiet: bool) -> Result<(), Failure> {
    for file in [&arguments.plot, &arguments.json].into_iter().flatten() {
        thermocline_bench::command_line::can_be_written(file)?;
    }
    let data_dir = DataDir::prepare(arguments.data_dir.as_deref())?;
    let settings = Settings {
        benchmark: Benchmark::Tpcc {
            warehouses: arguments.warehouses,
            skewed_growth: false,
            deck: Mix::Standard,
        },
        threads: arguments.threads.unwrap_or_else(machine::cores),
        in_flight: arguments.in_flight,
        warm_up_seconds: arguments.seconds.min(5.0),
        seconds: arguments.seconds,
        isolation: "snapshot".to_owned(),
        durability: "group".to_owned(),
        memory_limit_bytes: None,
        access_log: None,
        data_dir: data_dir.path().to_owned(),
        seed: arguments.seed,
        hold_snapshot: false,
        grow_rows: None,
        until_bytes: None,
        freeze_threads: None,
        checkpoint_interval_seconds: None,
        storage: Default::default(),
        paging: arguments.paging.settings(),
    };
    let servers = arguments.paging.servers()?;
    let lend = |options| servers.as_ref().expect("there are some").lend(options);
    let lend = servers.is_some().then_some(&lend as &Lend<'_>);
    let options = RunOptions { calibrate: false, check: true, quiet, lend };
    let demo =
        demonstrate(&settings, arguments.times, &options).map_err(|error| match error.is_setting() {
            true => Failure::Usage(error.to_string()),
            false => Failure::Failed(error.to_string()),
        })?;
    print!("{}", demo.to_table());
    if let Some(file) = &arguments.json {
        thermocline_bench::command_line::write(file, std::fs::write(file, demo.to_json()))?;
    }
    if let Some(file) = &arguments.plot {
        thermocline_bench::command_line::write(file, demo.plot(file))?;
    }
    if demo.is_consistent() { Ok(()) } else { Err(Failure::Found) }
}
