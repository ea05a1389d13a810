//! Figure 9: what live migration costs transactions that run beside it.
//!
//! ```text
//!   one database in which a tenth of the rows migrates during the run, at an even pace, in batches of a hundred
//!   one database in which nothing migrates                                                     both in turns, by steps
//! ```

use std::time::Duration;

use thermocline_base::sync::{AtomicBool, Ordering};
use thermocline_engine::ColdStoreKind;

use super::clients::{Load, Slice};
use super::report::{FigureReport, Panel, Point, Series};
use super::table::{COLD, Reach, THINK, Work, World};
use super::{Figure, ReproSettings, Result};
use crate::progress::Progress;
use crate::report::grouped;
use crate::time;

const CLIENTS: usize = 32;
/// Rows of a batch.
const BATCH_ROWS: u64 = 100;
/// The part of the rows that migrates during the run.
const MIGRATED: f64 = 0.1;
/// The paper's step is 5 s of 60.
const STEPS: u32 = 12;

pub(super) fn fig9(settings: &ReproSettings, progress: &mut Progress) -> Result<FigureReport> {
    let runs = [
        ("reads, 0 % cold", Work { reach: Reach::Cold(0.0), updates: false }, Some(2.0)),
        ("reads, 5 % cold", Work { reach: Reach::Cold(0.05), updates: false }, Some(7.0)),
        ("updates, 5 % cold", Work { reach: Reach::Cold(0.05), updates: true }, Some(8.0)),
    ];
    let mut series = Vec::new();
    let mut rows = 0;
    let mut moved = Vec::new();
    for (number, (name, work, paper)) in runs.into_iter().enumerate() {
        progress.begin(&format!("{name}: loading"));
        let still = World::new(settings, &format!("still-{number}"), ColdStoreKind::Direct, COLD)?;
        let mut moving = World::new(settings, &format!("moving-{number}"), ColdStoreKind::Direct, COLD)?;
        rows = still.rows;
        let mut points = Vec::new();
        let before = moving.db.statistics().cold.migrated_rows;
        for step in 0..STEPS {
            progress.show(|| format!("{name}: step {} of {STEPS}", step + 1));
            let lost = one_step(settings, step, &still, &mut moving, work)?;
            let x = f64::from(step + 1) * settings.seconds / f64::from(STEPS);
            points.push(Point::new((x * 100.0).round() / 100.0, vec![lost], paper.filter(|_| step == 0)));
        }
        moved.push(grouped((moving.db.statistics().cold.migrated_rows - before) as f64));
        series.push(Series { name: name.to_owned(), points });
    }
    let panel = Panel {
        name: "",
        title: "migration overhead".to_owned(),
        x: "seconds",
        y: "throughput lost against the same without migration, %",
        series,
    };
    let setup = format!(
        "{} rows of 56 B, {:.0} % cold in a direct-mapped file, {CLIENTS} clients on {} threads, 500 µs think time; \
         {} rows migrated in batches of {BATCH_ROWS}",
        grouped(rows as f64),
        100.0 * COLD,
        settings.threads,
        moved.join(", ")
    );
    let paper = "at most 2 % for reads of hot rows, 7 % for reads with 5 % cold accesses, 8 % for updates at first, \
                 then less; its numbers stand at the first step here";
    let mut report = FigureReport::new(Figure::Fig9, settings, setup, paper, vec![panel]);
    report.notes.push(
        "what has migrated counts as cold from the next step on; which of two databases runs first alternates".to_owned(),
    );
    Ok(report)
}

/// One step in both databases. Percent of the throughput that is lost where rows migrate.
fn one_step(
    settings: &ReproSettings,
    step: u32,
    still: &World,
    moving: &mut World,
    work: Work,
) -> Result<f64> {
    let lasts = Duration::from_secs_f64(settings.seconds / f64::from(STEPS) / 2.0);
    let seed = settings.seed << 8 ^ u64::from(step);
    let load = Load { clients: CLIENTS, threads: settings.threads, think: THINK, lasts, seed };
    let rows = (moving.rows as f64 * MIGRATED / f64::from(STEPS)) as u64;
    let (without, with);
    if step.is_multiple_of(2) {
        without = still.slice(&load, work)?;
        with = migrating(moving, &load, work, rows)?;
    } else {
        with = migrating(moving, &load, work, rows)?;
        without = still.slice(&load, work)?;
    }
    moving.cold += rows;
    Ok(100.0 * (1.0 - with.per_s() / without.per_s()))
}

/// A slice during which `rows` rows behind the cold ones migrate, batch by batch, at an even pace.
fn migrating(world: &World, load: &Load, work: Work, rows: u64) -> Result<Slice> {
    let ended = AtomicBool::new(false);
    let begin = time::now();
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| -> Result<()> {
            let ids = world.cold..world.cold + rows;
            // Their places in memory are looked up once: looking is no part of a migration.
            let mut batches =
                world.steps.batches(&world.table, |row| ids.contains(&world.id_of(row)), BATCH_ROWS as usize);
            let pause = load.lasts / u32::try_from(batches.len().max(1)).unwrap_or(u32::MAX);
            for (number, batch) in (1..).zip(batches.drain(..)) {
                world.steps.migrate_listed(&world.table, &batch)?;
                let due = pause * number;
                while begin.elapsed() < due && !ended.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
            Ok(())
        });
        let slice = world.slice(load, work);
        ended.store(true, Ordering::Relaxed);
        mover.join().expect("migration does not panic")?;
        slice
    })
}
