//! Crash images of generated runs: at every operation of short ones, at a sample of long ones; with what was not
//! synced lost, kept, torn and reordered; crashed again while they recover.

use std::sync::Arc;

use thermocline_base::io::Io;
use thermocline_base::rng::Rng;
use thermocline_engine::{Database, Durability};

use super::workload::Run;
use super::{path, recover, tiny};

/// Recovers one crash image, compares it with the run, and crashes its recovery, too.
pub(super) fn check_image(run: &Run, operations: usize, seed: u64) -> Result<(), String> {
    let context = |what: String| format!("crash after {operations} operations, choice {seed}: {what}");
    let image = run.io.crash(operations, seed);
    let has_superblock = image.files().contains_key(&path().join("thermocline.db"));
    if has_superblock {
        let report = Database::verify_with(path(), Arc::new(image.copy()))
            .map_err(|error| context(format!("verify: {error}")))?;
        if !report.findings.is_empty() {
            return Err(context(format!("verify found {:?}", report.findings)));
        }
    }
    let (state, again, length) = recover(&image, &run.options).map_err(context)?;
    let mut allowed = run.allowed(operations).iter().map(|event| event.state.clone()).collect::<Vec<_>>();
    let had_cold_store = image.exists(&path().join("cold")).expect("memory does not fail");
    if had_cold_store && run.options.durability == Durability::Off {
        // What was in the store may have been removed by a session of which nothing else is left.
        allowed.push(allowed[0].emptied());
    }
    if !allowed.contains(&state) {
        return Err(context(format!(
            "the state is none of {}; from the oldest one it differs in: {}",
            allowed.len(),
            allowed[0].difference(&state)
        )));
    }
    // The recovery itself is cut short, and repeated.
    let mut rng = Rng::new(seed ^ operations as u64);
    let cut = rng.below(length as u64 + 1) as usize;
    let image = again.crash(cut, rng.next_u64());
    let (second, ..) = recover(&image, &run.options)
        .map_err(|error| context(format!("after {cut} operations of recovery: {error}")))?;
    // Without a log a recovery is a session that can crash, too.
    let may_be_empty = had_cold_store && run.options.durability == Durability::Off;
    if second != state && !(may_be_empty && second == state.emptied()) {
        let what = state.difference(&second);
        return Err(context(format!("recovered again after {cut} operations of recovery: {what}")));
    }
    Ok(())
}

/// Checks images of a run: those at every `stride`-th operation, with some choices each.
pub(super) fn check_run(run: &Run, stride: usize, choices: u64) -> Result<usize, String> {
    let mut checked = 0;
    let end = run.io.operations();
    for operations in (0..=end).step_by(stride).chain([end]) {
        for choice in 0..choices {
            // Choice 0 loses everything that is not certain, choice 1 keeps it.
            let seed = if choice < 2 { choice } else { choice + operations as u64 * 7 };
            check_image(run, operations, seed)?;
            checked += 1;
        }
    }
    Ok(checked)
}

fn run(seed: u64, durability: Durability, steps: usize) -> Run {
    let mut run = Run::new(seed, tiny(durability));
    run.steps(steps);
    run
}

/// How many runs the samples take; more by environment variable.
fn runs(few: u64) -> std::ops::Range<u64> {
    let runs = std::env::var("THERMOCLINE_CRASH_RUNS").ok().and_then(|runs| runs.parse().ok());
    0..runs.unwrap_or(few)
}

fn sample(durability: Durability, few: u64, steps: usize) {
    for seed in runs(few) {
        let run = run(100 + seed, durability, steps);
        let stride = run.io.operations() / 60 + 1;
        check_run(&run, stride, 4).unwrap_or_else(|error| panic!("{durability}, seed {seed}: {error}"));
    }
}

#[test]
fn every_prefix_of_a_short_run() {
    for (seed, durability) in [(1, Durability::Group), (2, Durability::Async), (3, Durability::Off)] {
        let run = run(seed, durability, 40);
        let checked = check_run(&run, 1, 3).unwrap_or_else(|error| panic!("{durability}: {error}"));
        assert!(checked > 50, "{checked} images of {durability} are too few");
    }
}

#[test]
fn samples_of_long_runs_with_sync() {
    sample(Durability::Sync, 3, 250);
}

#[test]
fn samples_of_long_runs_with_group() {
    sample(Durability::Group, 3, 250);
}

#[test]
fn samples_of_long_runs_with_async() {
    sample(Durability::Async, 3, 250);
}

#[test]
fn samples_of_long_runs_with_off() {
    sample(Durability::Off, 3, 250);
}
