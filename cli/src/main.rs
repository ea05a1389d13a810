//! The binary `thermocline`.
//!
//! Exit codes: 0 all went well; 1 the command ran and failed, or found something wrong; 2 it was asked for something
//! that cannot be; 130 interrupted.

mod check;
mod copies;
mod demo;
mod exchange;
mod inspect;
mod opened;
mod serve;
mod sql;

use std::process::ExitCode;

use clap::{ArgAction, Parser, Subcommand};
use thermocline_bench::command_line::{Failure, memory_server};
use tracing_subscriber::filter::LevelFilter;

/// A main-memory database whose data may grow far beyond memory.
#[derive(Debug, Parser)]
#[command(name = "thermocline", version, arg_required_else_help = true)]
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
    /// TPC-C in memory, and under a memory limit that it does not fit into, side by side
    Demo(demo::Arguments),
    /// Run statements of SQL, and print their answers
    Sql(sql::Sql),
    /// Serve a database to clients of PostgreSQL: psql, drivers
    Serve(serve::Serve),
    /// Write the password file of a server; the password is read from standard input, and does not stand in the file
    Passwd(serve::Passwd),
    /// List the tables of a database, and how they are defined
    Tables(exchange::Tables),
    /// Write the rows of a table as text to standard output
    Dump(exchange::Dump),
    /// Read rows from text into a table
    Load(exchange::Load),
    /// Copy a database that no process has open to another directory, as one moment has it
    Backup(copies::Backup),
    /// Copy a backup to where a database is to be, and check it
    Restore(copies::Restore),
    /// Verify every checksum of a database, and its consistency where its schema is known
    Check(check::Arguments),
    /// Show where the rows of a database are, and how warm they are
    Inspect(inspect::Arguments),
    /// Export memory of this machine to databases on others
    MemoryServer(memory_server::Arguments),
    #[command(flatten)]
    Moved(Moved),
}

/// Commands that `thermocline-lab` has now.
#[derive(Debug, Subcommand)]
enum Moved {
    #[command(hide = true)]
    Bench(Any),
    #[command(hide = true)]
    Repro(Any),
    #[command(hide = true)]
    Simulate(Any),
    #[command(hide = true)]
    Classify(Any),
}

impl Moved {
    fn refuse(&self) -> Failure {
        let (name, Any { arguments }) = match self {
            Self::Bench(any) => ("bench", any),
            Self::Repro(any) => ("repro", any),
            Self::Simulate(any) => ("simulate", any),
            Self::Classify(any) => ("classify", any),
        };
        let words = arguments.iter().fold(name.to_owned(), |words, word| format!("{words} {word}"));
        Failure::Usage(format!(
            "{name} is a command of thermocline-lab: cargo run --release -p thermocline-lab -- {words}"
        ))
    }
}

/// Arguments that are not looked at.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
struct Any {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // A server tells what it does without being asked.
    let level = match (arguments.verbose, &arguments.command) {
        (0, Command::Serve(_)) | (1, _) => Some(LevelFilter::INFO),
        (0, _) => None,
        (2, _) => Some(LevelFilter::DEBUG),
        _ => Some(LevelFilter::TRACE),
    };
    if let Some(level) = level {
        tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_ansi(false).init();
    }
    let outcome = match arguments.command {
        Command::Demo(demo) => demo::run(&demo, arguments.quiet),
        Command::Check(check) => check::run(&check, arguments.quiet),
        Command::Inspect(inspect) => inspect::run(&inspect, arguments.quiet),
        Command::Tables(tables) => exchange::tables(&tables),
        Command::Dump(dump) => exchange::write(&dump),
        Command::Load(load) => exchange::read(&load, arguments.quiet),
        Command::Sql(sql) => sql::run(&sql),
        Command::Serve(serve) => serve::run(serve),
        Command::Passwd(passwd) => serve::passwd(&passwd),
        Command::Backup(backup) => copies::backup(&backup, arguments.quiet),
        Command::Restore(restore) => copies::restore(&restore, arguments.quiet),
        Command::MemoryServer(server) => memory_server::run(&server, arguments.quiet),
        Command::Moved(moved) => Err(moved.refuse()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print();
            failure.code()
        }
    }
}
