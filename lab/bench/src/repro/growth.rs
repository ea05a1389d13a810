//! "Enabling Efficient OS Paging for Main-Memory OLTP Databases" (Stoica and Ailamaki, DaMoN 2013, §4.2): what TPC-C costs as its
//! database outgrows memory, against the same in memory.
//!
//! ```text
//!   in memory      ─ ends at 8 × the limit, at two thirds of the machine's memory, or after --seconds
//!   growing        ─ ends at 8 × the limit, or after 30 × --seconds
//!   in memory      ─ as the first
//!
//!   levels, second by second ─► steps of a quarter of the limit ─► a point a step: the mean over its seconds
//! ```
//!
//! - The size of a database is its memory and its cold store, as `bench tpcc --until-bytes` has it. Log and checkpoints are not in it:
//!   they hold rows that are in memory a second time.
//! - A point of the growing database is of one run. A point in memory is the median of both runs' means; where they differ, the machine
//!   has changed meanwhile.
//!
//! Limits: sizes are compared, not numbers of rows. Rows take fewer bytes in blocks and in the cold store than in memory, so the growing
//! database has more rows at the same size.

use std::collections::BTreeMap;
use std::path::Path;

use super::report::{FigureReport, Panel, Point, Series};
use super::{Figure, ReproSettings, Result};
use crate::machine;
use crate::report::{Level, Outcome, Throughput, grouped, size};
use crate::run::{self, RunOptions};
use crate::settings::{Benchmark, Mix, Paging, Settings, Storage};

/// Warehouses at scale 1.
const WAREHOUSES: f64 = 10.0;
/// The limit for each of them: what it takes when it is loaded, and a little more.
const LIMIT_BYTES: u64 = 128 << 20;
/// The database grows to so many times the limit.
const TIMES: u64 = 8;
/// Points while it grows by the limit.
const STEPS: f64 = 4.0;
/// It may grow for so many times as long as a run in memory lasts.
const LONGER: f64 = 30.0;
const IN_FLIGHT: usize = 32;
const WARM_UP_SECONDS: f64 = 5.0;
const ISOLATION: &str = "snapshot";
const DURABILITY: &str = "async";
/// The paper: throughput stays within 7 % of that in memory.
const PAPER_PERCENT: f64 = 93.0;
const PAPER: &str = "VoltDB, 16 warehouses (1.6 GB), 16 cores, 3 GB of memory: with hot and cold rows apart, throughput stays within 7 % of \
                     in memory while the data grow to 50 × the memory; paging by the system alone loses 20 % at 3.5 ×, 26 % at 9.8 ×, 66 % at \
                     53 × (its text states no transactions a second)";
const X: &str = "size, × the limit";
const MIB: f64 = (1 << 20) as f64;

pub(super) fn run(settings: &ReproSettings, quiet: bool) -> Result<FigureReport> {
    let setup = Setup::of(settings);
    let memory = |turn| setup.run_in_memory(&settings.data_dir.join(format!("in-memory-{turn}")), quiet);
    let before = memory(1)?;
    let growing = setup.grow(&settings.data_dir.join("growing"), quiet)?;
    let runs = Runs { growing, in_memory: [before, memory(2)?] };
    let panels = runs.panels(setup.limit_bytes);
    let mut report = FigureReport::new(Figure::Growth, settings, setup.text(), PAPER, panels);
    report.notes = runs.notes(&setup);
    Ok(report)
}

/// The runs that a scale asks for.
struct Setup<'a> {
    settings: &'a ReproSettings,
    warehouses: u32,
    limit_bytes: u64,
}

impl<'a> Setup<'a> {
    /// Warehouses and limit keep their ratio, so that the database begins at the same part of the limit: whole warehouses, one at the
    /// least.
    fn of(settings: &'a ReproSettings) -> Self {
        let warehouses = (WAREHOUSES * settings.scale).round().max(1.0) as u32;
        Self { settings, warehouses, limit_bytes: u64::from(warehouses) * LIMIT_BYTES }
    }

    fn end_bytes(&self) -> u64 {
        TIMES * self.limit_bytes
    }

    fn grow(&self, dir: &Path, quiet: bool) -> Result<Throughput> {
        let settings = Settings {
            seconds: LONGER * self.settings.seconds,
            memory_limit_bytes: Some(self.limit_bytes),
            until_bytes: Some(self.end_bytes()),
            ..self.common(dir)
        };
        measure(&settings, quiet)
    }

    fn run_in_memory(&self, dir: &Path, quiet: bool) -> Result<Throughput> {
        let room = machine::memory_available_bytes().map_or(u64::MAX, |bytes| bytes / 3 * 2);
        let settings = Settings { until_bytes: Some(self.end_bytes().min(room)), ..self.common(dir) };
        let found = measure(&settings, quiet);
        // The next run needs the disk.
        let _ = std::fs::remove_dir_all(dir);
        found
    }

    fn common(&self, dir: &Path) -> Settings {
        let ReproSettings { seconds, threads, seed, .. } = *self.settings;
        Settings {
            benchmark: Benchmark::Tpcc {
                warehouses: self.warehouses,
                skewed_growth: false,
                deck: Mix::Standard,
            },
            threads,
            in_flight: IN_FLIGHT,
            // A level is noted at its end: costs are counted from there.
            warm_up_seconds: WARM_UP_SECONDS.min(seconds / 4.0),
            seconds,
            isolation: ISOLATION.to_owned(),
            durability: DURABILITY.to_owned(),
            memory_limit_bytes: None,
            access_log: None,
            data_dir: dir.to_owned(),
            seed,
            hold_snapshot: false,
            grow_rows: None,
            until_bytes: None,
            freeze_threads: None,
            checkpoint_interval_seconds: None,
            storage: Storage::default(),
            paging: Paging::default(),
        }
    }

    fn text(&self) -> String {
        let ReproSettings { seconds, threads, .. } = *self.settings;
        let warehouses = match self.warehouses {
            1 => "1 warehouse".to_owned(),
            more => format!("{more} warehouses"),
        };
        format!(
            "{warehouses} of TPC-C, memory limit {}, {} a warehouse (1 warehouse is the least); grows to {} × the limit, for {} s at the \
             most; in memory before and after that, for {seconds} s at the most; {threads} threads × {IN_FLIGHT} in flight, {ISOLATION}, \
             durability {DURABILITY}",
            size(self.limit_bytes),
            size(LIMIT_BYTES),
            TIMES,
            grouped(LONGER * seconds),
        )
    }
}

/// Runs the benchmark.
fn measure(settings: &Settings, quiet: bool) -> Result<Throughput> {
    let options = RunOptions { calibrate: false, check: false, quiet, lend: None };
    // `recovery` alone has another process build its database.
    let report = run::run(settings, &options, &|_| Err("TPC-C builds its own database".to_owned()))?;
    match report.outcome {
        Outcome::Throughput(found) => Ok(*found),
        Outcome::Delete(_) | Outcome::Recovery(_) => unreachable!("TPC-C counts transactions"),
    }
}

/// The measured runs.
struct Runs {
    growing: Throughput,
    in_memory: [Throughput; 2],
}

impl Runs {
    fn panels(&self, limit_bytes: u64) -> Vec<Panel> {
        let growing = [steps(&self.growing, limit_bytes)];
        let in_memory = self.in_memory.each_ref().map(|run| steps(run, limit_bytes));
        let levels = |name, of: fn(&Level) -> Option<f64>| series(name, &growing, &|step| step.mean(of));
        let panel = |name, title: &str, y, series| Panel { name, title: title.to_owned(), x: X, y, series };
        vec![
            panel(
                "throughput",
                "throughput",
                "transactions/s",
                both(&growing, &in_memory, Step::throughput_tps),
            ),
            panel("kept", "throughput kept", "% of the mean in memory", vec![self.kept(&growing)]),
            panel(
                "cpu",
                "processor time of the process",
                "µs a transaction",
                both(&growing, &in_memory, Step::cpu_us),
            ),
            panel(
                "rows",
                "rows of the growing database",
                "thousands",
                vec![
                    levels("hot", |level| thousands(level.rows_hot)),
                    levels("frozen, of these", |level| thousands(level.rows_frozen)),
                    levels("cold", |level| thousands(level.rows_cold)),
                    levels("left with their chunk, so far", |level| {
                        thousands(level.tables.values().map(|table| table.left).sum())
                    }),
                ],
            ),
            panel(
                "space",
                "memory and disk of the growing database",
                "MiB",
                vec![
                    levels("memory", |level| mebibytes(level.memory_bytes)),
                    series("limit", &growing, &|_| mebibytes(limit_bytes)),
                    levels("cold store", |level| mebibytes(level.cold_disk_bytes)),
                    levels("log and checkpoints", |level| level.log_disk_bytes.and_then(mebibytes)),
                ],
            ),
        ]
    }

    /// Throughput of the growing database against that in memory. The paper's number stands at the largest size.
    fn kept(&self, growing: &[Steps<'_>]) -> Series {
        let [before, after] = &self.in_memory;
        let in_memory_tps = f64::midpoint(before.throughput_tps, after.throughput_tps);
        let mut kept =
            series("growing", growing, &|step| Some(100.0 * step.throughput_tps()? / in_memory_tps));
        if let Some(last) = kept.points.last_mut() {
            last.paper = Some(PAPER_PERCENT);
        }
        kept
    }

    fn notes(&self, setup: &Setup<'_>) -> Vec<String> {
        let Self { growing, in_memory } = self;
        let reached = |run: &Throughput| {
            let bytes = run.levels.iter().map(bytes_of).max().unwrap_or(0);
            let times = bytes as f64 / setup.limit_bytes as f64;
            format!("{} ({times:.2} × the limit) after {} s", size(bytes), grouped(run.seconds))
        };
        let in_memory: Vec<String> = in_memory
            .iter()
            .map(|run| format!("{} transactions/s, {}", grouped(run.throughput_tps), reached(run)))
            .collect();
        vec![
            format!(
                "growing: {} transactions/s, {}; {} waits for memory, the longest {} ms, the load's included",
                grouped(growing.throughput_tps),
                reached(growing),
                grouped(growing.cold.memory_waits as f64),
                grouped(growing.cold.memory_wait_us_max as f64 / 1e3),
            ),
            format!("in memory: {}", in_memory.join("; ")),
            "the paper's number stands at the largest size; its text has it for all sizes up to 50 × the memory"
                .to_owned(),
        ]
    }
}

fn thousands(rows: u64) -> Option<f64> {
    Some(rows as f64 / 1e3)
}

fn mebibytes(bytes: u64) -> Option<f64> {
    Some(bytes as f64 / MIB)
}

/// Bytes of a database: its memory and its cold store.
const fn bytes_of(level: &Level) -> u64 {
    level.memory_bytes + level.cold_disk_bytes
}

/// The seconds of a run in which the database had about one size.
#[derive(Default)]
struct Step<'a> {
    seconds: f64,
    commits: u64,
    cpu_seconds: f64,
    /// At the ends of these seconds.
    levels: Vec<&'a Level>,
}

impl Step<'_> {
    fn throughput_tps(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.commits as f64 / self.seconds)
    }

    /// Processor time of a transaction, in microseconds.
    fn cpu_us(&self) -> Option<f64> {
        (self.commits > 0).then(|| self.cpu_seconds * 1e6 / self.commits as f64)
    }

    /// The mean over the levels that have it.
    fn mean(&self, of: fn(&Level) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.levels.iter().filter_map(|level| of(level)).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }
}

/// Steps by their number: the size that is nearest, in parts of the limit.
type Steps<'a> = BTreeMap<u64, Step<'a>>;

/// The steps of the measured time. A run that ended before a transaction was seen to commit has one step: all of it.
fn steps(found: &Throughput, limit_bytes: u64) -> Steps<'_> {
    let number_of = |level| (bytes_of(level) as f64 / limit_bytes as f64 * STEPS).round() as u64;
    let mut steps = Steps::new();
    for [before, level] in found.levels.array_windows() {
        // The warm-up's last level may have been noted a little after its end.
        if f64::midpoint(before.at_seconds, level.at_seconds) <= 0.0 {
            continue;
        }
        let step: &mut Step<'_> = steps.entry(number_of(level)).or_default();
        step.seconds += level.at_seconds - before.at_seconds;
        step.commits += level.commits - before.commits;
        step.cpu_seconds += level.cpu_seconds - before.cpu_seconds;
        step.levels.push(level);
    }
    if steps.values().all(|step| step.commits == 0)
        && let Some(level) = found.levels.last()
    {
        let Throughput { seconds, commits, cpu_seconds, .. } = *found;
        steps =
            Steps::from([(number_of(level), Step { seconds, commits, cpu_seconds, levels: vec![level] })]);
    }
    steps
}

/// The growing run beside those in memory.
fn both<'a>(growing: &[Steps<'a>], in_memory: &[Steps<'a>], of: fn(&Step<'a>) -> Option<f64>) -> Vec<Series> {
    vec![series("growing", growing, &of), series("in memory", in_memory, &of)]
}

/// A point for each step that a run has a value for: the values of all runs.
fn series<'a>(name: &str, runs: &[Steps<'a>], of: &dyn Fn(&Step<'a>) -> Option<f64>) -> Series {
    let mut values: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for (number, step) in runs.iter().flatten() {
        if let Some(value) = of(step) {
            values.entry(*number).or_default().push(value);
        }
    }
    let points = values.into_iter().map(|(number, values)| Point::new(number as f64 / STEPS, values, None));
    Series { name: name.to_owned(), points: points.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::Measured;

    const LIMIT: u64 = 400 << 20;

    /// A run with a level a second: bytes in memory, commits and processor seconds so far.
    fn found(first_at: f64, levels: &[(u64, u64, f64)]) -> Throughput {
        let measured =
            Measured { seconds: 1.0, kinds: Vec::new(), rolled_back: 0, gave_up: 0, samples: Vec::new() };
        let mut found = Throughput::of(&measured, 1);
        let at = |second: usize| first_at + second as f64;
        let level = |(second, &(mib, commits, cpu_seconds)): (usize, &(u64, u64, f64))| Level {
            at_seconds: at(second),
            commits,
            cpu_seconds,
            memory_bytes: (mib / 2) << 20,
            cold_disk_bytes: (mib / 2) << 20,
            ..Level::default()
        };
        found.levels = levels.iter().enumerate().map(level).collect();
        found
    }

    fn values(series: &Series) -> Vec<(f64, f64)> {
        series.points.iter().map(|point| (point.x, point.ours.median)).collect()
    }

    #[test]
    fn a_step_has_the_mean_of_its_seconds_and_none_of_the_warm_up() {
        let run = found(
            1.0 / 64.0 - 1.0,
            // The first second is the warm-up's, whose last level was noted late.
            &[
                (350, 0, 0.0),
                (360, 9_000, 1.0),
                (380, 9_100, 2.5),
                (440, 9_400, 4.0),
                (500, 9_500, 5.0),
                (490, 9_500, 6.0),
            ],
        );
        let steps = [steps(&run, LIMIT)];
        assert_eq!(values(&series("", &steps, &Step::throughput_tps)), [(1.0, 200.0), (1.25, 50.0)]);
        assert_eq!(values(&series("", &steps, &Step::cpu_us)), [(1.0, 7_500.0), (1.25, 20_000.0)]);
        let memory = series("", &steps, &|step| step.mean(|level| mebibytes(level.memory_bytes)));
        assert_eq!(values(&memory), [(1.0, 205.0), (1.25, 247.5)]);
    }

    #[test]
    fn a_run_without_a_second_has_one_step() {
        let mut run = found(0.0, &[(400, 70, 1.0), (401, 70, 1.1)]);
        (run.commits, run.cpu_seconds) = (10, 0.5);
        let steps = [steps(&run, LIMIT)];
        assert_eq!(values(&series("", &steps, &Step::throughput_tps)), [(1.0, 10.0)]);
        assert_eq!(values(&series("", &steps, &Step::cpu_us)), [(1.0, 50_000.0)]);
    }

    #[test]
    fn points_in_memory_have_the_spread_of_both_runs() {
        let run = |tps: u64| found(0.0, &[(400, 0, 0.0), (400, tps, 1.0)]);
        let runs = Runs { growing: run(50), in_memory: [run(100), run(300)] };
        let panels = runs.panels(LIMIT);
        let in_memory = &panels[0].series[1].points[0].ours;
        assert_eq!((in_memory.min, in_memory.median, in_memory.max), (100.0, 200.0, 300.0));
        assert_eq!(panels[1].series[0].points[0].paper, Some(PAPER_PERCENT));
    }

    #[test]
    fn warehouses_and_limit_keep_their_ratio() {
        let of = |scale| {
            let data_dir = std::path::PathBuf::new();
            let settings = ReproSettings { scale, seconds: 1.0, threads: 2, data_dir, seed: 1 };
            let setup = Setup::of(&settings);
            (setup.warehouses, setup.limit_bytes >> 20)
        };
        assert_eq!([of(1.0), of(0.25), of(0.05), of(0.0001)], [(10, 1280), (3, 384), (1, 128), (1, 128)]);
    }
}
