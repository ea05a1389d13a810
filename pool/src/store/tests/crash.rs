//! Crashes at every operation: no acknowledged batch is lost, none is half visible, no discarded one is back, and no removed
//! entry is.

use std::sync::Arc;

use thermocline_base::io::{Io, MemoryIo, RecordingIo};
use thermocline_base::multiplex::block_on;
#[cfg(feature = "model")]
use thermocline_base::mutation::{Rule, switch_off};
use thermocline_base::rng::Rng;

use super::super::*;
use super::model::{Model, dir, finish, options};

/// What was acknowledged after how many operations on files.
struct History {
    io: RecordingIo,
    /// After this many operations the model was acknowledged.
    states: Vec<(usize, Model)>,
}

/// Random operations on a recorded store, with the states that it went through.
fn history(seed: u64, steps: usize) -> History {
    let mut rng = Rng::new(seed);
    let io = RecordingIo::new(&MemoryIo::new());
    let store = Store::open(Arc::new(io.clone()) as Arc<dyn Io>, dir(), options()).expect("it opens");
    let mut model = Model::default();
    let mut states = vec![(io.operations(), model.clone())];
    for _ in 0..steps {
        let before = io.operations();
        match rng.below(100) {
            0..50 => {
                let confirmed = rng.chance(0.6);
                let (batch, after) = model.batch(&mut rng, confirmed);
                finish(&store, store.write(batch)).expect("written");
                model = after;
            }
            50..65 => {
                let Some(id) = model.waiting.keys().next_back().copied() else { continue };
                finish(&store, store.confirm(BatchId(id))).expect("it waits");
                model.confirm(id);
            }
            65..70 => {
                let Some(id) = model.waiting.keys().next().copied() else { continue };
                finish(&store, store.discard(BatchId(id))).expect("discarded");
                model.discard(id);
            }
            _ => {
                store.step(Step::Work);
                continue;
            }
        }
        // In between the operation may have happened or not.
        states.push((before, model.clone()));
        states.push((io.operations(), model.clone()));
    }
    History { io, states }
}

impl History {
    /// Opens what a crash leaves, and says what is wrong with it.
    fn check(&self, operations: usize, seed: u64) -> std::result::Result<(), String> {
        let image = self.io.crash(operations, seed);
        let store = match Store::open(Arc::new(image.clone()) as Arc<dyn Io>, dir(), options()) {
            Ok(store) => store,
            // Before it was there for the first time.
            Err(error) => return Err(format!("it does not open: {error}")),
        };
        // The last state that was acknowledged, or the one that was on its way.
        let acknowledged = self.states.iter().rposition(|(after, _)| *after <= operations).unwrap_or(0);
        let mut errors = Vec::new();
        for (_, model) in
            &self.states[acknowledged.saturating_sub(1)..self.states.len().min(acknowledged + 2)]
        {
            match self.is_like(&store, model) {
                Ok(()) => {
                    drop(store);
                    // Once more, after a clean close.
                    let again = Store::open(Arc::new(image) as Arc<dyn Io>, dir(), options());
                    let again = again.map_err(|error| format!("it does not open again: {error}"))?;
                    return self.is_like(&again, model).map_err(|error| format!("opened again: {error}"));
                }
                Err(error) => errors.push(error),
            }
        }
        Err(errors.join(" | "))
    }

    /// Confirmations may be lost; then the owner decides again, as it did.
    fn is_like(&self, store: &Arc<Store>, model: &Model) -> std::result::Result<(), String> {
        for id in store.unconfirmed() {
            if model.confirmed.contains(&id.0) {
                finish(store, store.confirm(id)).map_err(|error| error.to_string())?;
            }
        }
        model.compare(store)?;
        let verification = store.verify();
        match verification.problems.first() {
            Some(problem) => Err(format!("verification: {problem}")),
            None => Ok(()),
        }
    }

    fn all(&self, stride: usize, seeds: u64) -> std::result::Result<(), String> {
        let first = self.states[0].0;
        for operations in (first..=self.io.operations()).step_by(stride) {
            for seed in 0..seeds {
                self.check(operations, seed)
                    .map_err(|error| format!("crash after {operations} operations, seed {seed}: {error}"))?;
            }
        }
        Ok(())
    }
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_else_comes_back() {
    for seed in 0..3 {
        let history = history(seed, 120);
        let stride = (history.io.operations() / 60).max(1);
        history.all(stride, 4).unwrap_or_else(|error| panic!("history {seed}: {error}"));
    }
}

#[test]
fn every_operation_of_a_short_life_may_be_the_last() {
    let history = history(17, 45);
    history.all(1, 2).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_store_whose_creation_was_interrupted_is_created() {
    let io = RecordingIo::new(&MemoryIo::new());
    let open = |io: &dyn Fn() -> Arc<dyn Io>| Store::open(io(), dir(), options());
    drop(open(&|| Arc::new(io.clone())).expect("it opens"));
    for operations in 0..=io.operations() {
        for seed in 0..4 {
            let image = io.crash(operations, seed);
            let store =
                open(&|| Arc::new(image.clone())).unwrap_or_else(|error| panic!("{operations}: {error}"));
            let mut batch = Batch::confirmed(BatchId(1));
            batch.put(IndexId::default(), b"key", b"record").expect("short");
            finish(&store, store.write(batch)).expect("written");
            drop(store);
            let store = open(&|| Arc::new(image.clone())).expect("it opens");
            assert_eq!(block_on(store.get(IndexId::default(), b"key")).expect("readable").len(), 1);
        }
    }
}

/// With a rule switched off some crash, or plain use, goes wrong.
#[cfg(feature = "model")]
fn misses(rule: Rule) -> bool {
    let _off = switch_off(rule);
    (0..6).any(|seed| {
        let wrong = std::panic::catch_unwind(|| {
            let history = history(seed, 200);
            let stride = (history.io.operations() / 25).max(1);
            let last = history.states.last().expect("there are states").1.clone();
            let store = Store::open(Arc::new(history.io.memory().copy()) as Arc<dyn Io>, dir(), options());
            let fine = store.map_err(|error| error.to_string()).and_then(|store| {
                while store.step(Step::Work) {}
                history.is_like(&store, &last)
            });
            let found = fine.and_then(|()| history.all(stride, 3));
            if let Err(error) = &found {
                eprintln!("{rule:?} off, history {seed}: {}", error.chars().take(300).collect::<String>());
            }
            found.is_err()
        });
        wrong.unwrap_or(true)
    })
}

#[cfg(feature = "model")]
#[test]
fn every_rule_is_missed_when_it_is_off() {
    for rule in [
        Rule::MergeOnlyConfirmed,
        Rule::RemovalVanishesWithEntry,
        Rule::FilterOfAllEntries,
        Rule::SegmentOutlivesBatches,
        Rule::LastEndsBehindStructure,
    ] {
        assert!(misses(rule), "nothing misses {rule:?}");
    }
    // A rule of others: what finds the failures above finds none here.
    assert!(!misses(Rule::FirstUpdaterWins));
}
