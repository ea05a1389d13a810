//! Indexes alone: random inserts, random lookups and short scans of integer keys.
//!
//! Every contender maps a `u64` to a `u64`. Ours maps keys to RowIds and leaves the proof that a row has the key to its
//! caller, so it pays for a look at the row (an array of keys here) where others compare the key they hold.
//!
//! A round makes each index anew: it is filled by all threads with disjoint, scattered keys, then read. Every lookup
//! must find its value, so nothing is measured that does not work.

mod contenders;

use crate::rounds::Rounds;
use crate::store::Failure;
use crate::{Common, machine};
use contenders::{Index, NAMES};
use serde_json::json;
use std::time::{Duration, Instant};
use thermocline_workloads::random::{Random, mix64};

/// Lookups between two looks at the clock.
const BATCH: u64 = 256;
/// Keys that a scan asks for.
const SCANNED: usize = 100;

#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Keys.
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Indexes to compare, ours first.
    #[arg(long, value_delimiter = ',', default_values_t = NAMES.map(str::to_owned))]
    indexes: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// The key of the row numbered `row`: scattered, and another one for each row.
pub fn key(row: u64) -> u64 {
    mix64(row)
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.keys == 0 || arguments.indexes.is_empty() {
        return Err("at least one key and one index are needed".into());
    }
    let names = &arguments.indexes;
    let ordered: Vec<String> = names.iter().filter(|name| contenders::is_ordered(name)).cloned().collect();
    let mut inserts = Rounds::new(names.clone());
    let mut lookups = Rounds::new(names.clone());
    let mut scans = Rounds::new(ordered.clone());
    // One after the other, so that one index is in memory at a time and rounds interleave all the same.
    let make = |name: &str| contenders::make(name, arguments.keys);
    inserts.run(arguments.common.rounds, |at| insert(&*make(&names[at])?, arguments))?;
    lookups.run(arguments.common.rounds, |at| {
        let index = make(&names[at])?;
        insert(&*index, arguments)?;
        lookup(&*index, arguments)
    })?;
    if !ordered.is_empty() {
        scans.run(arguments.common.rounds, |at| {
            let index = make(&ordered[at])?;
            insert(&*index, arguments)?;
            scan(&*index, arguments)
        })?;
    }
    println!("inserts\n{}\n\nlookups\n{}", inserts.table("M keys/s"), lookups.table("M keys/s"));
    if !ordered.is_empty() {
        println!("\nscans of {SCANNED}\n{}", scans.table("M keys/s"));
    }
    if arguments.common.json {
        println!(
            "{}",
            json!({
                "compare": "index", "machine": machine(), "keys": arguments.keys, "scanned": SCANNED,
                "threads": arguments.common.threads, "seconds": arguments.common.seconds,
                "inserts": inserts.json(), "lookups": lookups.json(),
                "scans": if ordered.is_empty() { json!([]) } else { scans.json() },
            })
        );
    }
    Ok(())
}

/// Inserts all keys; millions a second.
fn insert(index: &dyn Index, arguments: &Arguments) -> Result<f64, Failure> {
    let threads = arguments.common.threads as u64;
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let rows = arguments.keys * thread / threads..arguments.keys * (thread + 1) / threads;
                index.insert(rows);
            });
        }
    });
    Ok(arguments.keys as f64 / begin.elapsed().as_secs_f64() / 1e6)
}

/// Looks random keys up for some seconds; millions a second.
fn lookup(index: &dyn Index, arguments: &Arguments) -> Result<f64, Failure> {
    for_seconds(arguments, |random| {
        let rows: [u64; BATCH as usize] = std::array::from_fn(|_| random.below(arguments.keys));
        let found = index.lookup(&rows);
        if found == BATCH { Ok(BATCH) } else { Err(format!("{found} of {BATCH} keys found").into()) }
    })
}

/// Scans from random keys for some seconds; millions of keys a second.
fn scan(index: &dyn Index, arguments: &Arguments) -> Result<f64, Failure> {
    for_seconds(arguments, |random| {
        // Low enough that there are enough keys behind it.
        let from = random.next_u64() / 2;
        let expected = SCANNED.min(arguments.keys as usize / 4);
        match index.scan(from, SCANNED) {
            found if found >= expected => Ok(found as u64),
            found => Err(format!("{found} of {expected} keys scanned").into()),
        }
    })
}

/// Lets all threads do `batch` for the time of a round; millions of what it counts a second.
fn for_seconds(
    arguments: &Arguments,
    batch: impl Fn(&mut Random) -> Result<u64, Failure> + Sync,
) -> Result<f64, Failure> {
    let time = Duration::from_secs_f64(arguments.common.seconds);
    let work = |thread: u64| -> Result<f64, Failure> {
        let mut random = Random::stream(1, &[thread]);
        let (begin, mut done) = (Instant::now(), 0);
        while begin.elapsed() < time {
            done += batch(&mut random)?;
        }
        Ok(done as f64 / begin.elapsed().as_secs_f64() / 1e6)
    };
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            (0..arguments.common.threads as u64).map(|it| scope.spawn(move || work(it))).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?).sum()
    })
}
