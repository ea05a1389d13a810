//! The binary `thermocline`.
//!
//! Exit codes: 0 all went well; 1 the command ran and failed, or found something wrong; 2 it was asked for something
//! that cannot be; 130 interrupted.

mod bench;
mod check;
mod classify;
mod copies;
mod data_dir;
mod demo;
mod exchange;
mod failure;
mod inspect;
mod memory_server;
mod opened;
mod paging;
mod repro;
mod serve;
mod simulate;
mod sql;
mod values;

use std::process::ExitCode;

use clap::{ArgAction, Parser, Subcommand};
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
    /// Measure the engine on this machine
    #[command(subcommand)]
    Bench(Box<bench::Command>),
    /// Verify every checksum of a database, and its consistency where its schema is known
    Check(check::Arguments),
    /// Say where the rows of a database are, and how warm they are
    Inspect(inspect::Arguments),
    /// Say which tables a database has, and how they are defined
    Tables(exchange::Tables),
    /// Write the rows of a table as text to standard output
    Dump(exchange::Dump),
    /// Read rows from text into a table
    Load(exchange::Load),
    /// Run statements of SQL, and print their answers
    Sql(sql::Sql),
    /// Serve a database to clients of PostgreSQL: psql, drivers
    Serve(serve::Serve),
    /// Write the password file of a server; the password is read from standard input, and does not stand in the file
    Passwd(serve::Passwd),
    /// Copy a database that no process has open to another directory, as one moment has it
    Backup(copies::Backup),
    /// Copy a backup to where a database is to be, and check it
    Restore(copies::Restore),
    /// Export memory of this machine to databases on others
    MemoryServer(memory_server::Arguments),
    /// Repeat the experiments of the paper on cold rows, scaled to this machine, beside what it says
    Repro(repro::Arguments),
    /// Say what an SSD between memory and a slow disk would do to a sequence of page requests
    Simulate(simulate::Arguments),
    /// Find the rows of an access log that belong into memory
    Classify(classify::Arguments),
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
    let outcome = match arguments.command {
        Command::Bench(command) => bench::run(*command, arguments.quiet),
        Command::Demo(demo) => demo::run(&demo, arguments.quiet),
        Command::Check(check) => check::run(&check, arguments.quiet),
        Command::Inspect(inspect) => inspect::run(&inspect, arguments.quiet),
        Command::Tables(tables) => exchange::tables(&tables),
        Command::Dump(dump) => exchange::write(&dump),
        Command::Load(load) => exchange::read(&load, arguments.quiet),
        Command::Sql(sql) => sql::run(&sql),
        Command::Serve(serve) => serve::run(&serve),
        Command::Passwd(passwd) => serve::passwd(&passwd),
        Command::Backup(backup) => copies::backup(&backup, arguments.quiet),
        Command::Restore(restore) => copies::restore(&restore, arguments.quiet),
        Command::MemoryServer(server) => memory_server::run(&server, arguments.quiet),
        Command::Repro(repro) => repro::run(&repro, arguments.quiet),
        Command::Simulate(simulate) => simulate::run(&simulate, arguments.quiet),
        Command::Classify(classify) => classify::run(&classify, arguments.quiet),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print();
            failure.code()
        }
    }
}
