//! Figure 8 and table 1: what the machinery costs when the cold store is in memory.

use std::time::Duration;

use thermocline_base::rng::Rng;
use thermocline_engine::{ColdStoreKind, TransactionOptions};

use super::clients::{self, Load, slices};
use super::report::{FigureReport, Panel, Point, Series};
use super::table::{COLD, Reach, THINK, Work, World};
use super::{Figure, ReproSettings, Result};
use crate::progress::Progress;
use crate::report::grouped;

const CLIENTS: usize = 32;
/// Percent of the accesses that find their row hot.
const HIT_RATES: [u32; 9] = [100, 95, 90, 85, 80, 75, 70, 60, 50];
/// One cold row in so many has its end noted, where the memo is to hold other records' ends.
const ENDED_SHARE: u64 = 10;

/// The numbers of the paper's text for figure 8: percent of throughput lost at a hit rate.
fn fig8_of_paper(think: Duration, hits: u32) -> Option<f64> {
    match (think.is_zero(), hits) {
        (true, 95) => Some(7.0),
        (true, 50) => Some(37.0),
        (false, 85) => Some(1.0),
        (false, 50) => Some(3.0),
        _ => None,
    }
}

pub(super) fn fig8(settings: &ReproSettings, progress: &mut Progress) -> Result<FigureReport> {
    progress.begin("loading");
    let bare = World::new(settings, "bare", ColdStoreKind::Memory, 0.0)?;
    let siberia = World::new(settings, "siberia", ColdStoreKind::Memory, COLD)?;
    let (rounds, lasts) = slices(settings.seconds);
    let mut series = Vec::new();
    for (name, think) in [("no think time", Duration::ZERO), ("500 µs think time", THINK)] {
        let mut lost: Vec<Vec<f64>> = vec![Vec::new(); HIT_RATES.len()];
        // The first round is not counted: it starts threads and fills caches.
        for round in 0..=rounds {
            progress.show(|| format!("{name}: round {round} of {rounds}"));
            let seed = settings.seed << 8 ^ u64::from(round);
            let load = Load { clients: CLIENTS, threads: settings.threads, think, lasts, seed };
            for (hits, lost) in HIT_RATES.iter().zip(&mut lost) {
                // Side by side, so that what else the machine does meets both.
                let without = bare.slice(&load, Work { reach: Reach::All, updates: false })?;
                let reach = Reach::Cold(1.0 - f64::from(*hits) / 100.0);
                let with = siberia.slice(&load, Work { reach, updates: false })?;
                if round > 0 {
                    lost.push(100.0 * (1.0 - with.per_s() / without.per_s()));
                }
            }
        }
        let points = HIT_RATES.iter().zip(lost);
        let points =
            points.map(|(hits, lost)| Point::new(f64::from(*hits), lost, fig8_of_paper(think, *hits)));
        series.push(Series { name: name.to_owned(), points: points.collect() });
    }
    let panel = Panel {
        name: "",
        title: "in-memory overhead".to_owned(),
        x: "hot hits %",
        y: "throughput lost against a database without cold rows, %",
        series,
    };
    let setup = format!(
        "{} rows of 56 B, {:.0} % cold in a store in memory, {CLIENTS} clients on {} threads, reads",
        grouped(siberia.rows as f64),
        100.0 * COLD,
        settings.threads
    );
    let paper = "no think time: 7 % lost at 5 % cold accesses, 37 % at 50 %; 500 µs: about 1 % up to 15 %, 3 % at most";
    Ok(FigureReport::new(Figure::SiberiaFig8, settings, setup, paper, vec![panel]))
}

pub(super) fn table1(settings: &ReproSettings, progress: &mut Progress) -> Result<FigureReport> {
    progress.begin("loading");
    let empty = World::new(settings, "empty", ColdStoreKind::Memory, COLD)?;
    // A snapshot that is held keeps the notices of its time.
    let others = World::new(settings, "others", ColdStoreKind::Memory, COLD)?;
    let first = others.cold / ENDED_SHARE;
    let others_held = others.db.begin(TransactionOptions::new())?;
    others.update_below(first)?;
    let mut own = World::new(settings, "own", ColdStoreKind::Memory, 0.0)?;
    let own_held = own.db.begin(TransactionOptions::new())?;
    own.cold = empty.cold;
    own.place()?;
    let worlds = [&empty, &others, &own];
    let mut latencies: [Vec<f64>; 3] = Default::default();
    let (rounds, lasts) = slices(settings.seconds);
    for round in 0..=rounds {
        progress.show(|| format!("round {round} of {rounds}"));
        let seed = settings.seed << 8 ^ u64::from(round);
        let load = Load { clients: 1, threads: 1, think: Duration::ZERO, lasts, seed };
        for (world, latencies) in worlds.into_iter().zip(&mut latencies) {
            let slice = clients::run(&load, |_| async |rng: &mut Rng| world.read_from(first, rng).await)?;
            if round > 0 {
                latencies.push(slice.latency_us());
            }
        }
    }
    let notices = (others.steps.notices().1, own.steps.notices().0);
    drop((others_held, own_held));
    let names = ["empty memo", "probe (no hit)", "probe (hit)"];
    let point = |(number, latencies): (usize, Vec<f64>)| Point {
        label: Some(names[number].to_owned()),
        ..Point::new(number as f64, latencies, Some([11.14, 13.89, 15.14][number]))
    };
    let points = latencies.into_iter().enumerate().map(point).collect();
    let panel = Panel {
        name: "",
        title: "effect of the update memo".to_owned(),
        x: "memo",
        y: "latency of a transaction of four reads of cold rows, µs",
        series: vec![Series { name: "latency".to_owned(), points }],
    };
    let setup = format!(
        "{} rows of 56 B, {:.0} % cold in a store in memory, 1 client, cold reads only; {} notices of ends in the memo \
         without a hit, {} of batches in the one with hits",
        grouped(empty.rows as f64),
        100.0 * COLD,
        grouped(notices.0 as f64),
        grouped(notices.1 as f64)
    );
    let paper = "11.14, 13.89 (24 % more) and 15.14 µs (35 % more)";
    Ok(FigureReport::new(Figure::Table1, settings, setup, paper, vec![panel]))
}
