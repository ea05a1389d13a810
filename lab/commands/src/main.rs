//! The binary `thermocline-lab`: what measures Thermocline, and repeats the figures of papers.
//!
//! Exit codes: 0 all went well; 1 the command ran and failed, or found something wrong; 2 it was asked for something
//! that cannot be; 130 interrupted.

mod bench;
mod classify;
mod repro;
mod simulate;

use std::process::ExitCode;

use clap::{ArgAction, Parser, Subcommand};
use thermocline_bench::command_line::memory_server;
use tracing_subscriber::filter::LevelFilter;

/// Measurements of Thermocline on this machine.
#[derive(Debug, Parser)]
#[command(name = "thermocline-lab", version, arg_required_else_help = true)]
struct Arguments {
    /// Print results only: no progress
    #[arg(long, short, global = true)]
    quiet: bool,
    /// Say on standard error what the engine does; twice: in more detail
    #[arg(long, short, global = true, action = ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure the engine on this machine
    #[command(subcommand)]
    Bench(Box<bench::Command>),
    /// Repeat the experiments of papers, scaled to this machine, beside what they say
    Repro(repro::Arguments),
    /// Simulate an SSD between memory and a slow disk for a sequence of page requests
    Simulate(simulate::Arguments),
    /// Find the rows of an access log that belong into memory
    Classify(classify::Arguments),
    /// Memory servers that benchmarks start; `thermocline memory-server` is the one for users
    #[command(hide = true)]
    MemoryServer(memory_server::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.verbose > 0 {
        let level = match arguments.verbose {
            1 => LevelFilter::INFO,
            2 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        };
        tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_ansi(false).init();
    }
    let quiet = arguments.quiet;
    let outcome = match arguments.command {
        Command::Bench(command) => bench::run(*command, quiet),
        Command::Repro(repro) => repro::run(&repro, quiet),
        Command::Simulate(simulate) => simulate::run(&simulate, quiet),
        Command::Classify(classify) => classify::run(&classify, quiet),
        Command::MemoryServer(server) => memory_server::run(&server, quiet),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print();
            failure.code()
        }
    }
}
