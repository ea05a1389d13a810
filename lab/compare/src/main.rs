//! Other embedded stores and indexes beside ours, measured in one run.
//!
//! `ycsb` compares whole stores, `index` the indexes alone. Both interleave the contenders over several rounds and
//! report ratios with their spread (see [`rounds`]).
//!
//! Invariant: nothing in here is part of the product, and no figure leaves without its settings and machine.

mod index;
mod rounds;
mod store;
mod stores;
mod ycsb;

use clap::{Args, Parser, Subcommand};
use serde_json::{Value, json};
use std::process::ExitCode;

/// Measures other stores and indexes beside Thermocline's.
#[derive(Parser, Debug)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// YCSB's point workloads on embedded stores, one operation a transaction, without syncs.
    Ycsb(ycsb::Arguments),
    /// Inserts, lookups and scans on concurrent indexes with integer keys.
    Index(index::Arguments),
}

/// What both have.
#[derive(Args, Clone, Copy, Debug)]
struct Common {
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Rounds.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds that a contender is measured in each round.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Prints the figures as JSON too.
    #[arg(long)]
    json: bool,
}

/// The machine that the figures were taken on.
fn machine() -> Value {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let after = |text: &str, name: &str| -> String {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':'))
            .map(|(_, value)| value.trim().to_owned())
            .unwrap_or_default()
    };
    json!({
        "processor": after(&read("/proc/cpuinfo"), "model name"),
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "memory": after(&read("/proc/meminfo"), "MemTotal"),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
    })
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().what {
        What::Ycsb(arguments) => ycsb::run(&arguments),
        What::Index(arguments) => index::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
