//! Figures 13 to 15: YCSB with rows of 1 KB, under several skews and memory limits.
//!
//! ```text
//!   load without a limit ─► what rows and indexes take ─► for each ratio: open with that ÷ ratio, and 16 MiB, as limit
//!                                                       ─► for each skew, from the largest: warm up, measure
//! ```
//!
//! The engine itself decides what is cold: by the accesses that it samples. A ratio of 1:1 has no limit.

use std::sync::Arc;
use std::time::Duration;

use thermocline_base::rng::Rng;
use thermocline_engine::{Database, Durability, Options, TransactionOptions};
use thermocline_workloads::ycsb::generate::{Config, Generator, KeySpace, Operation, Requests, Workload};
use thermocline_workloads::ycsb::load::{LoadOptions, UserTable, load};
use thermocline_workloads::ycsb::operations::{Executor, Outcome};

use super::clients::{self, Load, slices};
use super::report::{FigureReport, Panel, Point, Series};
use super::table::THINK;
use super::{Figure, ReproError, ReproSettings, Result};
use crate::progress::Progress;
use crate::report::{grouped, size};
use crate::time;

/// Rows of 1 KB: 20 GB.
const ROWS: u64 = 20_000_000;
/// The least: an eighth of it has to leave room for the engine's own buffers.
const ROWS_MIN: u64 = 200_000;
/// Bytes that the log and the process take of a limit, however few rows there are.
const FIXED_BYTES: u64 = 16 << 20;
const CLIENTS: usize = 32;
const RATIOS: [u64; 4] = [1, 2, 4, 8];
const THETAS: [f64; 5] = [1.5, 1.25, 1.0, 0.75, 0.5];
const LOG_BUFFER_BYTES: u64 = 8 << 20;

fn options() -> Options {
    Options::default().with_durability(Durability::Async).with_log_buffer_bytes(LOG_BUFFER_BYTES)
}

pub(super) fn run(figure: Figure, settings: &ReproSettings, progress: &mut Progress) -> Result<FigureReport> {
    let reads = match figure {
        Figure::Fig13 => 50,
        Figure::Fig14 => 90,
        _ => 100,
    };
    let dir = settings.data_dir.join("ycsb");
    let mut config = Config::new(Workload::Reads(reads), settings.scaled(ROWS, rows_min(settings)));
    config.seed = settings.seed;
    progress.begin("loading");
    let db = Database::open(&dir, options())?;
    let threads = LoadOptions { threads: settings.threads, ..LoadOptions::default() };
    load(&db, &config, threads, &|_| ())?;
    let taken = {
        let memory = db.statistics().memory;
        memory.total() - memory.log_buffer - memory.process
    };
    db.close()?;
    let mut series = Vec::new();
    let mut cold_reads = Vec::new();
    for ratio in RATIOS {
        progress.show(|| format!("1:{ratio}: opening"));
        let limit = (ratio > 1).then_some(FIXED_BYTES + taken / ratio);
        let db = Database::open(&dir, options().with_memory_limit(limit))?;
        settle(&db, limit);
        let (mut points, mut shares) = (Vec::new(), Vec::new());
        for theta in THETAS {
            progress.show(|| format!("1:{ratio}: θ {theta}"));
            config.requests = Requests::Zipf(theta);
            let (per_s, share) = measure(&db, &config, settings)?;
            points.push(Point::new(theta, per_s, None));
            shares.push(Point::new(theta, vec![share], None));
        }
        points.reverse();
        shares.reverse();
        series.push(Series { name: format!("1:{ratio}"), points });
        cold_reads.push(Series { name: format!("1:{ratio}"), points: shares });
        db.close()?;
    }
    let title = |what: &str| format!("YCSB, {reads} % reads, {what}");
    let x = "skew θ";
    let panels = vec![
        Panel { name: "", title: title("throughput"), x, y: "transactions/s", series },
        Panel { name: "cold", title: title("cold reads"), x, y: "% of the operations", series: cold_reads },
    ];
    let setup = format!(
        "{} rows of 1 KB, {} in memory; limits of 16 MiB and a half, a quarter and an eighth of that; {CLIENTS} clients on {} \
         threads, 500 µs think time",
        grouped(config.records as f64),
        size(taken),
        settings.threads
    );
    let paper = "1:1 is nearly constant; all ratios are near it at high skew; the less the skew and the smaller the \
                 memory, the lower; 1:8 falls most (its plots state no numbers)";
    Ok(FigureReport::new(figure, settings, setup, paper, panels))
}

/// A test of seconds takes less, and proves less.
fn rows_min(settings: &ReproSettings) -> u64 {
    if settings.scale < 0.001 { ROWS_MIN / 2 } else { ROWS_MIN }
}

/// Waits until the governor has brought memory down, or gets no further.
fn settle(db: &Database, limit: Option<u64>) {
    const PATIENCE: Duration = Duration::from_secs(2);
    let Some(limit) = limit else { return };
    let (mut begin, mut moved) = (time::now(), 0);
    loop {
        let found = db.statistics();
        if found.memory.total() <= limit / 100 * 90 || begin.elapsed() > PATIENCE {
            return;
        }
        if found.cold.migrated_rows > moved {
            (begin, moved) = (time::now(), found.cold.migrated_rows);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Transactions a second, and percent of the operations that read the cold store.
fn measure(db: &Database, config: &Config, settings: &ReproSettings) -> Result<(Vec<f64>, f64)> {
    let table = UserTable::open(db)?;
    let keys = KeySpace::new(config.records);
    let (rounds, lasts) = slices(settings.seconds);
    let mut per_s = Vec::new();
    let (mut done, mut cold) = (0, 0);
    // As long again as is measured, for the hot rows to come and the cold ones to go.
    for round in 0..2 * rounds {
        let load = Load {
            clients: CLIENTS,
            threads: settings.threads,
            think: THINK,
            lasts,
            seed: settings.seed << 8 ^ u64::from(round),
        };
        let before = db.statistics().cold.reads;
        let slice = clients::run(&load, |client| {
            let number = u64::from(round) << 32 | client as u64;
            let mut generator = Generator::new(config, Arc::clone(&keys), number);
            let mut executor = Executor::new(&table, config);
            async move |_: &mut Rng| one(db, &mut generator, &mut executor).await
        })?;
        if round >= rounds {
            per_s.push(slice.per_s());
            done += slice.done;
            cold += db.statistics().cold.reads - before;
        }
    }
    Ok((per_s, 100.0 * cold as f64 / done.max(1) as f64))
}

async fn one(db: &Database, generator: &mut Generator, executor: &mut Executor) -> Result<()> {
    let operation = generator.operation();
    let options = TransactionOptions::default();
    let options = if matches!(operation, Operation::Read { .. }) { options.read_only() } else { options };
    let outcome = db
        .transaction(options, async |transaction| {
            let mut outcome = Outcome::default();
            executor.execute(transaction, &operation, &mut outcome).await?;
            Ok(outcome)
        })
        .await?;
    match outcome.missing {
        0 => Ok(()),
        _ => Err(ReproError::Wrong("a row that was loaded is not there".to_owned())),
    }
}
