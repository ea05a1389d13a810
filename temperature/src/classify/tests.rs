//! Backward answers as forward does, both as the definition does, and backward stops early.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use thermocline_base::ids::TableId;
use thermocline_base::io::{Io, MemoryIo, OpenMode};
use thermocline_base::rng::Rng;

use super::*;
use crate::testing::Zipf;
use crate::{Access, LogOptions, LogWriter};

/// A log, and for each row its size and its accesses by quantum.
struct Known {
    log: LogReader,
    rows: BTreeMap<RowName, (SizeClass, BTreeMap<u64, u32>)>,
    last: u64,
}

struct Shape {
    rows: u64,
    quanta: u64,
    accesses: u64,
    theta: f64,
    sizes: bool,
    section_bytes: u64,
}

fn known(shape: &Shape) -> Known {
    let io = MemoryIo::new();
    let file = io.open(Path::new("log"), OpenMode::CreateNew).expect("a new file");
    let options = LogOptions {
        block_bytes: 4_000,
        section_bytes: shape.section_bytes,
        memory_bytes: 16 << 20,
        ..LogOptions::new([1; 16])
    };
    let mut writer = LogWriter::to_file(std::sync::Arc::clone(&file), &options).expect("begun");
    let zipf = Zipf::new(shape.rows, shape.theta);
    let mut rng = Rng::new(shape.rows ^ shape.accesses);
    let mut rows: BTreeMap<RowName, (SizeClass, BTreeMap<u64, u32>)> = BTreeMap::new();
    for quantum in 0..shape.quanta {
        let accesses: Vec<Access> = (0..shape.accesses)
            .map(|_| {
                let rank = zipf.draw(&mut rng);
                let row = RowName { table: TableId(rank as u32 % 3), hash: rank };
                let bytes = if shape.sizes { 40 + (rank * 7919 % 900) as u32 } else { 100 };
                let cold = rank.is_multiple_of(5);
                let weight = if cold { 1 } else { 10 };
                Access { row, size: SizeClass::of(bytes), weight, cold }
            })
            .collect();
        for access in &accesses {
            let (_, by_quantum) = rows.entry(access.row).or_insert((access.size, BTreeMap::new()));
            *by_quantum.entry(quantum).or_default() += access.weight;
        }
        writer.add(quantum, &accesses).expect("added");
        writer.end_quantum(quantum).expect("ended");
    }
    writer.finish(shape.quanta).expect("finished");
    drop(file);
    // An appender's last block of zeros is no damage.
    let file = io.open(Path::new("log"), OpenMode::Read).expect("there");
    Known { log: LogReader::open(file).expect("a log"), rows, last: shape.quanta - 1 }
}

/// The estimates by the recurrence itself.
fn estimates(known: &Known, options: &ClassifyOptions) -> BTreeMap<RowName, f64> {
    let estimate = |by_quantum: &BTreeMap<u64, u32>| {
        (0..=known.last).fold(0.0, |estimate, quantum| {
            let x = by_quantum.get(&quantum).map_or(0, |x| (*x).min(options.accesses_max));
            options.alpha * f64::from(x) + (1.0 - options.alpha) * estimate
        })
    };
    known.rows.iter().map(|(row, (_, by_quantum))| (*row, estimate(by_quantum))).collect()
}

fn rows_of(found: &Classification) -> BTreeSet<RowName> {
    found.hottest.iter().map(|row| row.row).collect()
}

/// Rows that one has and the other has not are rows of nearly the same key.
fn same_up_to_ties(
    one: &BTreeSet<RowName>,
    other: &BTreeSet<RowName>,
    key: &dyn Fn(&RowName) -> f64,
) -> Result<(), String> {
    let differ: Vec<f64> = one.symmetric_difference(other).map(key).collect();
    let (least, most) =
        differ.iter().fold((f64::INFINITY, 0.0_f64), |(a, b), key| (a.min(*key), b.max(*key)));
    if differ.is_empty() || most <= least * (1.0 + 4.0 * TIE) {
        Ok(())
    } else {
        Err(format!("{} rows differ, with keys from {least:e} to {most:e}", differ.len()))
    }
}

fn compare(shape: &Shape, budgets: &[Budget], alpha: f64, accesses_max: u32) {
    let known = known(shape);
    for budget in budgets {
        let options = ClassifyOptions {
            algorithm: Algorithm::Forward,
            budget: *budget,
            alpha,
            accesses_max,
            threads: 1,
        };
        let exact = estimates(&known, &options);
        let forward = classify(&known.log, &options).expect("read");
        assert_eq!(forward.damages, []);
        for row in &forward.hottest {
            let exact = exact[&row.row];
            assert!((row.estimate - exact).abs() <= exact * 1e-10, "{} is not {exact}", row.estimate);
        }
        let key = |row: &RowName| match budget {
            Budget::Rows(_) => exact[row],
            Budget::Bytes(_) => exact[row] / known.rows[row].0.bytes() as f64,
        };
        // The definition: the longest prefix of all rows by key.
        let mut order: Vec<RowName> = exact.keys().copied().collect();
        order.sort_by(|a, b| key(b).total_cmp(&key(a)));
        let mut used = 0;
        let defined: BTreeSet<RowName> = order
            .iter()
            .copied()
            .take_while(|row| match budget {
                Budget::Rows(limit) => {
                    used += 1;
                    used <= *limit
                }
                Budget::Bytes(limit) => {
                    used += known.rows[row].0.bytes();
                    used <= *limit
                }
            })
            .collect();
        same_up_to_ties(&rows_of(&forward), &defined, &key).expect("forward is the definition");
        for threads in [1, 2, 3] {
            for algorithm in [Algorithm::Forward, Algorithm::Backward] {
                let found =
                    classify(&known.log, &ClassifyOptions { algorithm, threads, ..options }).expect("read");
                assert_eq!(found.damages, []);
                if let Err(why) = same_up_to_ties(&rows_of(&found), &rows_of(&forward), &key) {
                    panic!("{algorithm:?}, {budget:?}, {threads} threads: {why}");
                }
            }
        }
    }
}

#[test]
fn backward_finds_the_same_rows_as_forward() {
    let shape =
        Shape { rows: 3_000, quanta: 400, accesses: 300, theta: 0.99, sizes: false, section_bytes: 1 << 30 };
    let shares = [1, 5, 10, 25, 50].map(|percent| Budget::Rows(3_000 * percent / 100));
    compare(&shape, &shares, 0.05, 256);
    compare(&shape, &shares, 0.3, 1);
}

#[test]
fn and_with_bytes_several_sections_and_other_skews() {
    for theta in [0.5, 1.2] {
        let shape =
            Shape { rows: 2_000, quanta: 300, accesses: 200, theta, sizes: true, section_bytes: 20_000 };
        let shares = [1, 5, 10, 25, 50].map(|percent| Budget::Bytes(2_000 * 500 * percent / 100));
        compare(&shape, &shares, 0.1, 256);
    }
}

#[test]
fn sums_are_scaled_back_in_long_logs_and_everything_may_fit() {
    // 0.5 is an octave a quantum: 1,500 quanta make several rounds of weights.
    let shape =
        Shape { rows: 50, quanta: 1_500, accesses: 20, theta: 0.9, sizes: true, section_bytes: 3_000 };
    compare(&shape, &[Budget::Rows(5), Budget::Rows(1_000), Budget::Bytes(5_000)], 0.5, 8);
}

#[test]
fn backward_stops_early_on_a_skewed_log() {
    let shape = Shape {
        rows: 20_000,
        quanta: 6_000,
        accesses: 200,
        theta: 0.99,
        sizes: true,
        section_bytes: 200_000,
    };
    let known = known(&shape);
    for percent in [1, 5, 10] {
        let budget = Budget::Rows(20_000 * percent / 100);
        let options = ClassifyOptions { budget, alpha: 0.05, threads: 2, ..Default::default() };
        let backward = classify(&known.log, &options).expect("read");
        let share = backward.bytes_read as f64 / backward.bytes as f64;
        println!("{percent} % of the rows: {:.1} % of the log, {} quanta", share * 100.0, backward.quanta);
        assert!(share < 0.35 && backward.quanta < 2_000, "{percent} %: {share} {}", backward.quanta);
        let forward = classify(&known.log, &ClassifyOptions { algorithm: Algorithm::Forward, ..options })
            .expect("read");
        assert!(forward.bytes_read > backward.bytes_read * 2);
        let exact: BTreeMap<RowName, f64> =
            forward.hottest.iter().map(|row| (row.row, row.estimate)).collect();
        let key = |row: &RowName| exact.get(row).copied().unwrap_or(forward.density_min);
        same_up_to_ties(&rows_of(&forward), &rows_of(&backward), &key).expect("the same rows");
    }
}

#[test]
fn misplaced_rows_are_those_on_the_wrong_side() {
    let shape =
        Shape { rows: 1_000, quanta: 100, accesses: 200, theta: 0.99, sizes: true, section_bytes: 1 << 30 };
    let known = known(&shape);
    let options = ClassifyOptions { budget: Budget::Bytes(60_000), ..Default::default() };
    let found = classify(&known.log, &options).expect("read");
    let hot = rows_of(&found);
    let bytes: u64 = found.hottest.iter().map(|row| row.size.bytes()).sum();
    assert!(bytes <= 60_000 && bytes > 58_000, "{bytes}");
    assert_eq!(found.tables.values().map(|table| table.bytes).sum::<u64>(), bytes);
    assert_eq!(found.tables.len(), 3);
    // By what the log says: every fifth row was cold.
    let misplaced = found.misplaced(|row| !row.cold);
    assert!(!misplaced.come.is_empty() && !misplaced.leave.is_empty());
    assert!(misplaced.come.iter().all(|row| hot.contains(&row.row) && row.row.hash.is_multiple_of(5)));
    assert!(misplaced.leave.iter().all(|row| !hot.contains(&row.row) && !row.row.hash.is_multiple_of(5)));
    let come = hot.iter().filter(|row| row.hash.is_multiple_of(5)).count();
    let leave = known.rows.keys().filter(|row| !hot.contains(row) && !row.hash.is_multiple_of(5)).count();
    assert_eq!(misplaced.come.len(), come);
    assert!(
        misplaced.leave.len() <= leave && misplaced.leave.len() > leave / 2,
        "{} {leave}",
        misplaced.leave.len()
    );
    let density = |row: &Ranked| row.estimate / row.size.bytes() as f64;
    assert!(misplaced.come.is_sorted_by(|a, b| density(a) >= density(b)));
    assert!(misplaced.leave.is_sorted_by(|a, b| density(a) <= density(b)));
    // By a placement of the caller's.
    let nothing_hot = found.misplaced(|_| false);
    assert_eq!((nothing_hot.come.len(), nothing_hot.leave.len()), (hot.len(), 0));
}
