//! Crash images of generated runs: at every operation of short ones, at a sample of long ones (in the gate, samples of
//! both); with what was not synced lost, kept, torn and reordered; crashed again while they recover.

use std::sync::Arc;

use thermocline_base::depth;
use thermocline_base::io::{Io, MemoryIo, RecordingIo};
use thermocline_base::rng::Rng;
use thermocline_engine::{Database, Durability, Options};

use super::workload::Run;
use super::{State, dump, open, path, recover, tiny};

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
    let looked = if has_superblock && operations.is_multiple_of(3) {
        Some(look(&image, &run.options).map_err(|what| context(format!("for reading only: {what}")))?)
    } else {
        None
    };
    let (state, again, length) = recover(&image, &run.options).map_err(context)?;
    if let Some(looked) = looked.filter(|looked| *looked != state) {
        return Err(context(format!("for reading only it is another one: {}", state.difference(&looked))));
    }
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

/// What is there for who opens it for reading only, which changes nothing.
fn look(image: &MemoryIo, options: &Options) -> Result<State, String> {
    let io = RecordingIo::new(image);
    let db = open(&io, &options.clone().with_read_only(true)).map_err(|error| error.to_string())?;
    let state = dump(&db)?;
    drop(db);
    if io.operations() > 0 { Err("something was written".to_owned()) } else { Ok(state) }
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

/// What a test takes of all crash images that there could be.
pub(super) struct Sample {
    seeds: std::ops::Range<u64>,
    steps: usize,
    places: usize,
    choices: u64,
}

impl Sample {
    /// Few places of a run by a fixed seed; in `.ci/deep` many, of several runs by seeds that are drawn.
    pub(super) fn of_long_runs() -> Self {
        let first = depth::seed();
        Self {
            seeds: first..first + depth::either(1, 3),
            steps: 250,
            places: depth::either(16, 60),
            choices: depth::either(3, 4),
        }
    }

    /// Checks runs that `make` makes from a seed and a number of steps, and gives them to `and`.
    pub(super) fn check(&self, what: &str, make: impl Fn(u64, usize) -> Run, mut and: impl FnMut(&Run)) {
        for seed in self.seeds.clone() {
            let run = make(seed, self.steps);
            let stride = run.io.operations() / self.places + 1;
            check_run(&run, stride, self.choices)
                .unwrap_or_else(|error| panic!("{what}, seed {seed}: {error}"));
            and(&run);
        }
    }
}

/// Every place of a short run in `.ci/deep`; every seventh in the gate, or some 30 where there are more.
pub(super) fn check_short_run(run: &Run, what: &str) {
    let stride = depth::either((run.io.operations() / 30).max(7), 1);
    let checked = check_run(run, stride, 3).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(checked * stride > 50, "{checked} images of {what} are too few");
}

fn sample(durability: Durability) {
    Sample::of_long_runs().check(
        &durability.to_string(),
        |seed, steps| run(100 + seed, durability, steps),
        |_| (),
    );
}

#[test]
fn prefixes_of_a_short_run() {
    for (seed, durability) in [(1, Durability::Group), (2, Durability::Async), (3, Durability::Off)] {
        check_short_run(&run(seed, durability, 40), &durability.to_string());
    }
}

#[test]
fn samples_of_long_runs_with_sync() {
    sample(Durability::Sync);
}

#[test]
fn samples_of_long_runs_with_group() {
    sample(Durability::Group);
}

#[test]
fn samples_of_long_runs_with_async() {
    sample(Durability::Async);
}

#[test]
fn samples_of_long_runs_with_off() {
    sample(Durability::Off);
}
