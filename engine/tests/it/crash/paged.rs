//! Crash images of runs in which rows go over to the paged side and come back. Its pages are no part of what is durable, so an image has none
//! of them: images of chunks and the log have to have every row, wherever it was.

use thermocline_engine::{Durability, Tiering};

use super::images::{Sample, check_short_run};
use super::tiny;
use super::workload::Run;

fn run(seed: u64, durability: Durability, steps: usize) -> Run {
    let mut run = Run::new(seed, tiny(durability).with_tiering(Tiering::Paged)).freezes();
    run.steps(steps);
    run
}

#[test]
fn prefixes_of_a_short_run() {
    let mut over = 0;
    for (seed, durability) in [(1, Durability::Group), (2, Durability::Async), (3, Durability::Off)] {
        let run = run(seed, durability, 60);
        check_short_run(&run, &format!("paged, {durability}"));
        over += run.frozen;
    }
    assert!(over > 50, "only {over} rows have gone over");
}

#[test]
fn samples_of_long_runs() {
    let mut over = 0;
    for durability in [Durability::Sync, Durability::Off] {
        Sample::of_long_runs().check(
            &format!("paged, {durability}"),
            |seed, steps| run(seed, durability, steps),
            |run| over += run.frozen,
        );
    }
    assert!(over > 100, "only {over} rows have gone over");
}
