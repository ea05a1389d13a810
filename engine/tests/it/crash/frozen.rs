//! Crash images of runs in which tables freeze and thaw: blocks and which of their rows are still there stand in checkpoints,
//! changes of frozen rows in the log, and in some runs rows leave memory, too.

use thermocline_base::depth;
use thermocline_base::io::{Action, FaultKind};
use thermocline_engine::{ColdStoreKind, Durability};

use super::faults::{Rows, sweep_with};
use super::images::{Sample, check_short_run};
use super::tiny;
use super::workload::Run;

fn run(seed: u64, durability: Durability, steps: usize) -> Run {
    let mut run = Run::new(seed, tiny(durability)).freezes();
    run.steps(steps);
    run
}

fn run_with_cold_rows(seed: u64, durability: Durability, steps: usize) -> Run {
    let options = tiny(durability).with_cold_store(ColdStoreKind::Pages);
    let mut run = Run::new(seed, options).cold().freezes();
    run.steps(steps);
    run
}

#[test]
fn prefixes_of_a_short_run() {
    let mut frozen = 0;
    for (seed, durability) in [(1, Durability::Group), (2, Durability::Async), (3, Durability::Off)] {
        let run = run(seed, durability, 60);
        check_short_run(&run, &format!("frozen, {durability}"));
        frozen += run.frozen;
    }
    assert!(frozen > 50, "only {frozen} rows have frozen");
}

#[test]
fn samples_of_long_runs() {
    let mut frozen = 0;
    for durability in [Durability::Sync, Durability::Off] {
        Sample::of_long_runs().check(
            &format!("frozen, {durability}"),
            |seed, steps| run(seed, durability, steps),
            |run| frozen += run.frozen,
        );
    }
    assert!(frozen > 100, "only {frozen} rows have frozen");
}

#[test]
fn prefixes_of_a_short_run_in_which_chunks_leave() {
    let (mut frozen, mut left) = (0, 0);
    for (seed, durability) in [(1, Durability::Group), (4, Durability::Sync), (5, Durability::Off)] {
        let run = run_with_cold_rows(seed, durability, 80);
        check_short_run(&run, &format!("chunks that leave, {durability}"));
        frozen += run.frozen;
        left += run.left.get();
    }
    assert!(frozen > 20 && left > 0, "only {frozen} rows have frozen, and {left} left with their chunk");
}

#[test]
fn samples_of_long_runs_with_cold_rows() {
    let (mut frozen, mut moved, mut left) = (0, 0, 0);
    Sample::of_long_runs().check(
        "frozen and cold",
        |seed, steps| run_with_cold_rows(seed, Durability::Group, steps),
        |run| {
            frozen += run.frozen;
            moved += run.moved.get();
            left += run.left.get();
        },
    );
    assert!(
        frozen > 20 && moved > 5 && left >= depth::either(0, 5),
        "only {frozen} rows have frozen, {moved} moved, and {left} left with their chunk"
    );
}

/// Devices that break and disks that fill up while blocks are written, too.
#[test]
fn broken_devices_and_full_disks() {
    let stride = depth::either(3, 1);
    for (action, kind, times) in [
        (Action::Write, FaultKind::Broken, 1),
        (Action::Sync, FaultKind::Broken, 1),
        (Action::Write, FaultKind::Full, 1_000_000),
    ] {
        let faults =
            sweep_with(action, kind, times, stride, Rows::Frozen).unwrap_or_else(|error| panic!("{error}"));
        assert!(faults >= 3, "only {faults} faults of {action:?} were noticed");
    }
}
