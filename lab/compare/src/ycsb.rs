//! YCSB's point workloads on every store, in interleaved rounds.
//!
//! Every store is loaded with the same rows, then proved to answer the same operations with the same bytes, then
//! measured. The operations of a thread are drawn before the clock starts and are the same for all stores of a round,
//! so that neither the generator's time nor its luck is part of a figure.

use crate::rounds::Rounds;
use crate::store::{Failure, Store};
use crate::stores::{self, Setup};
use crate::{Common, machine};
use serde_json::json;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use thermocline_workloads::ycsb::generate::{Config, Generator, KeySpace, Operation, Requests, Workload};

/// Operations that a thread draws; it starts over when it has done them all.
const DRAWN: usize = 1 << 18;
/// Operations between two looks at the clock.
const BATCH: usize = 256;
/// Operations that all stores must answer alike before anything is measured.
const PROVED: usize = 20_000;

#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// a, b, c or reads-N (N per cent of reads, the rest updates).
    #[arg(long, default_value = "a")]
    workload: Workload,
    /// Rows.
    #[arg(long, default_value_t = 1_000_000)]
    records: u64,
    /// Bytes of a value.
    #[arg(long, default_value_t = 100)]
    value_bytes: u32,
    /// Skew of the requests; 0 is uniform.
    #[arg(long, default_value_t = 0.99)]
    theta: f64,
    /// Memory for each store's caches, in MiB.
    #[arg(long, default_value_t = 2048)]
    cache_mib: usize,
    /// Where the stores put their files; a directory of its own is made there and removed.
    #[arg(long)]
    directory: Option<std::path::PathBuf>,
    /// Stores to compare, ours first.
    #[arg(long, value_delimiter = ',', default_values_t = stores::NAMES.map(str::to_owned))]
    stores: Vec<String>,
    #[command(flatten)]
    common: Common,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let config = config(arguments)?;
    let root = match &arguments.directory {
        Some(directory) => TempDir::new_in(directory)?,
        None => TempDir::new()?,
    };
    let mut opened = Vec::new();
    for name in &arguments.stores {
        let directory = root.path().join(name);
        std::fs::create_dir(&directory)?;
        let setup = Setup {
            directory: &directory,
            cache_bytes: arguments.cache_mib << 20,
            value_bytes: arguments.value_bytes as usize,
        };
        let store = stores::open(name, setup)?;
        let begin = Instant::now();
        store.load(&config).map_err(|error| format!("{name}: {error}"))?;
        eprintln!("{name}: loaded in {:.1} s; {}", begin.elapsed().as_secs_f64(), store.settings());
        opened.push(store);
    }
    prove(&opened, &config)?;
    let mut rounds = Rounds::new(arguments.stores.clone());
    let mut measured = 0;
    rounds.run(arguments.common.rounds, |contender| {
        let round = measured / opened.len();
        measured += 1;
        measure(&*opened[contender], &config, arguments, round as u64)
    })?;
    println!("{}", rounds.table("M op/s"));
    if arguments.common.json {
        let settings: Vec<_> = opened.iter().map(|store| json!([store.name(), store.settings()])).collect();
        println!(
            "{}",
            json!({
                "compare": "ycsb", "machine": machine(), "workload": arguments.workload.to_string(),
                "records": arguments.records, "value_bytes": arguments.value_bytes, "theta": arguments.theta,
                "threads": arguments.common.threads, "seconds": arguments.common.seconds,
                "cache_mib": arguments.cache_mib, "settings": settings, "stores": rounds.json(),
            })
        );
    }
    Ok(())
}

fn config(arguments: &Arguments) -> Result<Config, Failure> {
    if !matches!(arguments.workload, Workload::A | Workload::B | Workload::C | Workload::Reads(_)) {
        let why = "it is not one of reads and updates alone: use a, b, c or reads-N";
        return Err(format!("workload {} is not compared: {why}", arguments.workload).into());
    }
    if arguments.records == 0 || arguments.value_bytes < 8 || arguments.stores.is_empty() {
        return Err("at least one row, eight bytes a value and one store are needed".into());
    }
    let requests = if arguments.theta == 0.0 { Requests::Uniform } else { Requests::Zipf(arguments.theta) };
    let workload = Config::new(arguments.workload, arguments.records);
    Ok(Config { fields: 1, field_bytes: arguments.value_bytes, requests, ..workload })
}

fn operations(config: &Config, count: usize, stream: u64) -> Vec<Operation> {
    let mut generator = Generator::new(config, KeySpace::new(config.records), stream);
    (0..count).map(|_| generator.operation()).collect()
}

/// All stores give the same answers to the same operations.
fn prove(stores: &[Box<dyn Store>], config: &Config) -> Result<(), Failure> {
    // Updates and reads, whatever is measured then.
    let mixed = Config { workload: Workload::A, ..config.clone() };
    let operations = operations(&mixed, PROVED, u64::MAX);
    let mut expected = None;
    for store in stores {
        let sum = store.client()?.run(&operations).map_err(|error| format!("{}: {error}", store.name()))?;
        let (first, first_sum) = *expected.get_or_insert((store.name(), sum));
        if sum != first_sum {
            let who = format!("{} and {first}", store.name());
            return Err(
                format!("{who} answer the same operations differently: one of the two is wrong").into()
            );
        }
    }
    Ok(())
}

/// Millions of operations a second.
fn measure(store: &dyn Store, config: &Config, arguments: &Arguments, round: u64) -> Result<f64, Failure> {
    let threads = arguments.common.threads;
    let stop = AtomicBool::new(false);
    let ready = Barrier::new(threads + 1);
    let work = |thread: u64| -> Result<(u64, Duration), Failure> {
        let operations = operations(config, DRAWN, round << 32 | thread);
        let client = store.client();
        // All threads must arrive, or none begins.
        ready.wait();
        let mut client = client?;
        let begin = Instant::now();
        let mut done = 0;
        for batch in operations.chunks_exact(BATCH).cycle() {
            std::hint::black_box(client.run(batch)?);
            done += BATCH as u64;
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok((done, begin.elapsed()))
    };
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..threads as u64).map(|thread| scope.spawn(move || work(thread))).collect();
        ready.wait();
        std::thread::sleep(Duration::from_secs_f64(arguments.common.seconds));
        stop.store(true, Ordering::Relaxed);
        let mut figure = 0.0;
        for thread in threads {
            let (done, time) =
                thread.join().map_err(|_| format!("{}: a client panicked", store.name()))??;
            figure += done as f64 / time.as_secs_f64() / 1e6;
        }
        Ok(figure)
    })
}
