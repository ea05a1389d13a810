//! The workloads against the engine, in memory and in a directory, at a small scale.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail their test by panicking")]

mod check;
mod tpcc;
mod ycsb;

use thermocline_engine::{Database, Options};
use thermocline_workloads::tpcc::Scale;
use thermocline_workloads::tpcc::generate::Population;
use thermocline_workloads::tpcc::load::{LoadOptions, load};
use thermocline_workloads::tpcc::schema::Tables;

/// The time at which a database is said to have been loaded: 2023-11-14.
const LOADED_AT_US: i64 = 1_700_000_000_000_000;

fn population(warehouses: i32) -> Population {
    Population { scale: Scale::new(warehouses, 10, 100), seed: 7, at_us: LOADED_AT_US }
}

/// A database in memory with a small population.
fn loaded(warehouses: i32) -> (Database, Tables) {
    let database = Database::open_in_memory(Options::default()).unwrap();
    let options = LoadOptions { threads: 2, batch_rows: 100 };
    let tables = load(&database, &population(warehouses), options, &|_| {}).unwrap();
    (database, tables)
}
