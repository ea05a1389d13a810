//! Figures 11 and 12: transactions of which more and more accesses go to cold rows, in memory and in a direct-mapped file.

use thermocline_engine::ColdStoreKind;

use super::clients::{Load, Slice, slices};
use super::report::{FigureReport, Panel, Point, Series};
use super::table::{COLD, Reach, THINK, Work, World};
use super::{Figure, ReproSettings, Result};
use crate::progress::Progress;
use crate::report::grouped;

/// Percent of the accesses that find their row hot.
const HIT_RATES: [u32; 11] = [100, 95, 90, 85, 80, 75, 70, 65, 60, 55, 50];
const CLIENTS: [usize; 2] = [32, 64];

/// The numbers of the paper's text: percent of throughput that the file loses against memory.
fn lost_of_paper(figure: Figure, clients: usize, hits: u32) -> Option<f64> {
    match (figure, clients, hits) {
        (Figure::Fig11, 64, 95) => Some(7.0),
        (Figure::Fig11, 64, 90) => Some(14.0),
        (Figure::Fig11, 32, 50) => Some(50.0),
        (Figure::Fig12, 64, 95) => Some(8.0),
        (Figure::Fig12, 64, 90) => Some(13.0),
        _ => None,
    }
}

pub(super) fn run(figure: Figure, settings: &ReproSettings, progress: &mut Progress) -> Result<FigureReport> {
    progress.begin("loading");
    let updates = figure == Figure::Fig12;
    let worlds = [
        World::new(settings, "memory", ColdStoreKind::Memory, COLD)?,
        World::new(settings, "file", ColdStoreKind::Direct, COLD)?,
    ];
    // By clients, store and hit rate: throughput, latency; by clients and hit rate: loss, reads of the device.
    let new = || vec![Vec::new(); HIT_RATES.len()];
    let mut throughput: Vec<Vec<Vec<f64>>> = (0..4).map(|_| new()).collect();
    let mut latency = throughput.clone();
    let mut lost: Vec<Vec<Vec<f64>>> = (0..2).map(|_| new()).collect();
    let mut reads = lost.clone();
    let (rounds, lasts) = slices(settings.seconds);
    for round in 0..=rounds {
        for (at_clients, clients) in CLIENTS.into_iter().enumerate() {
            progress.show(|| format!("{clients} clients: round {round} of {rounds}"));
            let seed = settings.seed << 8 ^ u64::from(round);
            let load = Load { clients, threads: settings.threads, think: THINK, lasts, seed };
            for (at, hits) in HIT_RATES.into_iter().enumerate() {
                let work = Work { reach: Reach::Cold(1.0 - f64::from(hits) / 100.0), updates };
                let mut found = [Slice::default(); 2];
                let mut device = 0.0;
                for (world, found) in worlds.iter().zip(&mut found) {
                    let before = world.db.statistics().cold.device_reads;
                    *found = world.slice(&load, work)?;
                    device = (world.db.statistics().cold.device_reads - before) as f64 / found.seconds;
                    if updates {
                        // Rows that were updated are in memory now: the hit rate would rise. In a file of slots their
                        // old records have to go first.
                        world.clean()?;
                        world.place()?;
                        world.clean()?;
                    }
                }
                if round == 0 {
                    continue;
                }
                for (store, slice) in found.iter().enumerate() {
                    throughput[at_clients * 2 + store][at].push(slice.per_s());
                    latency[at_clients * 2 + store][at].push(slice.latency_us());
                }
                lost[at_clients][at].push(100.0 * (1.0 - found[1].per_s() / found[0].per_s()));
                reads[at_clients][at].push(device);
            }
        }
    }
    let series = |values: Vec<Vec<Vec<f64>>>, names: &[String], paper: &dyn Fn(usize, u32) -> Option<f64>| {
        let of = |(number, values): (usize, Vec<Vec<f64>>)| Series {
            name: names[number].clone(),
            points: HIT_RATES
                .into_iter()
                .zip(values)
                .map(|(hits, values)| Point::new(f64::from(hits), values, paper(number, hits)))
                .collect(),
        };
        values.into_iter().enumerate().map(of).collect::<Vec<_>>()
    };
    let all: Vec<String> = CLIENTS
        .iter()
        .flat_map(|clients| ["memory", "file"].map(|store| format!("{clients} {store}")))
        .collect();
    let two: Vec<String> = CLIENTS.iter().map(|clients| format!("{clients} clients")).collect();
    let none = |_: usize, _: u32| None;
    let x = "hot hits %";
    let title =
        |what: &str| format!("{} transactions, {what}", if updates { "update-only" } else { "read-only" });
    let panels = vec![
        Panel {
            name: "a-throughput",
            title: title("throughput"),
            x,
            y: "transactions/s",
            series: series(throughput, &all, &none),
        },
        Panel {
            name: "a-latency",
            title: title("latency"),
            x,
            y: "µs",
            series: series(latency, &all, &none),
        },
        Panel {
            name: "b-loss",
            title: title("loss"),
            x,
            y: "throughput lost against the store in memory, %",
            series: series(lost, &two, &|number, hits| lost_of_paper(figure, CLIENTS[number], hits)),
        },
        Panel {
            name: "b-iops",
            title: title("I/O"),
            x,
            y: "reads of the device/s",
            series: series(reads, &two, &none),
        },
    ];
    let setup = format!(
        "{} rows of 56 B, {:.0} % cold, 32 and 64 clients on {} threads, 500 µs think time",
        grouped(worlds[0].rows as f64),
        100.0 * COLD,
        settings.threads
    );
    let paper = if updates {
        "the file loses 8 % against memory at 5 % cold updates, 13 % at 10 %"
    } else {
        "at 5 % cold accesses the file loses 7 % and adds 28 µs (32 threads) or 36 µs (64) of latency, 14 % at 10 %; \
         32 threads lose 50 % at 50 %; 64 threads are bound by the device from 35 % on"
    };
    let mut report = FigureReport::new(figure, settings, setup, paper, panels);
    if updates {
        report.notes.push("rows that were updated return to the cold store between two measures".to_owned());
    }
    Ok(report)
}
