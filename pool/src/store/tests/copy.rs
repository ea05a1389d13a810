//! Copies of a store are what it was when it was pinned, whatever it does until they are written.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use thermocline_base::io::{Copier, Io, MemoryIo};
use thermocline_base::rng::Rng;

use super::super::*;
use super::model::{Model, finish, open, options};

fn copy_dir() -> &'static Path {
    Path::new("/copy")
}

/// Batches that come, are decided about, and are merged.
fn go_on(rng: &mut Rng, store: &Store, model: &mut Model, steps: u64) {
    for _ in 0..steps {
        let one = |rng: &mut Rng, model: &Model| {
            let at = rng.below(model.waiting.len().max(1) as u64) as usize;
            model.waiting.keys().nth(at).copied()
        };
        match rng.below(10) {
            0..6 => {
                let confirmed = rng.chance(0.6);
                let (batch, after) = model.batch(rng, confirmed);
                finish(store, store.write(batch)).expect("written");
                *model = after;
            }
            6 => {
                if let Some(id) = one(rng, model) {
                    finish(store, store.confirm(BatchId(id))).expect("it waits");
                    model.confirm(id);
                }
            }
            7 => {
                if let Some(id) = one(rng, model) {
                    finish(store, store.discard(BatchId(id))).expect("discarded");
                    model.discard(id);
                }
            }
            _ => _ = store.step(Step::Work),
        }
    }
}

#[test]
fn a_copy_is_what_was_pinned() {
    for seed in 0..10 {
        let mut rng = Rng::new(900 + seed);
        let io = MemoryIo::new();
        let store = open(&io);
        let mut model = Model::default();
        for round in 0..4 {
            let steps = rng.below(120);
            go_on(&mut rng, &store, &mut model, steps);
            let (pinned, then) = (store.pin(), model.clone());
            // Pieces that it holds are merged and given up meanwhile, batches are decided about.
            let steps = rng.below(200);
            go_on(&mut rng, &store, &mut model, steps);
            if rng.chance(0.5) {
                while store.step(Step::Work) {}
            }
            let over: Arc<dyn Io> = Arc::new(io.clone());
            let (bytes, mut told) = (pinned.bytes(), 0);
            let outcome = pinned.copy(&over, copy_dir(), &mut Copier::new(3, 16 << 10), &mut |bytes| {
                told += bytes;
                ControlFlow::Continue(50_000)
            });
            assert!(outcome.expect("memory").is_continue());
            assert_eq!(told, bytes, "seed {seed}, round {round}");
            // Where the space of the pieces is used again, the copy does not see it.
            go_on(&mut rng, &store, &mut model, 20);
            let copy = Store::open(Arc::clone(&over), copy_dir(), options()).expect("it opens");
            let found = copy.verify();
            assert!(found.problems.is_empty(), "seed {seed}, round {round}: {:?}", found.problems);
            then.compare(&copy).unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
            // It goes on as any store does.
            let mut of_copy = then;
            go_on(&mut rng, &copy, &mut of_copy, 40);
            of_copy.compare(&copy).unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
            drop(copy);
            for name in io.list(copy_dir()).expect("a directory") {
                io.remove(&copy_dir().join(name)).expect("it is there");
            }
        }
        model.compare(&store).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// A store that is pinned and copied to no end, or not; how long its file is after more work.
fn with_copies_that_end_early(copies: bool) -> u64 {
    let io = MemoryIo::new();
    let store = open(&io);
    let mut model = Model::default();
    let mut rng = Rng::new(5);
    go_on(&mut rng, &store, &mut model, 300);
    while store.step(Step::Work) {}
    if copies {
        let over: Arc<dyn Io> = Arc::new(io.clone());
        let mut bursts = 0;
        let outcome = store.pin().copy(&over, copy_dir(), &mut Copier::new(2, 4096), &mut |_| {
            bursts += 1;
            if bursts == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(20_000) }
        });
        assert!(outcome.expect("memory").is_break());
        assert!(!io.exists(&copy_dir().join(MANIFEST_NAME)).expect("memory"));
        io.set_capacity(Some(io.used() + 4096));
        let other = Path::new("/other");
        let go_on = &mut |_| ControlFlow::Continue(u64::MAX);
        let outcome = store.pin().copy(&over, other, &mut Copier::new(2, 4096), go_on);
        assert!(outcome.expect_err("the disk is full").is_full());
        assert!(!io.exists(&other.join(MANIFEST_NAME)).expect("memory"));
        io.set_capacity(None);
    }
    for _ in 0..10 {
        go_on(&mut rng, &store, &mut model, 100);
        while store.step(Step::Work) {}
    }
    assert!(store.verify().problems.is_empty());
    store.statistics().file_bytes
}

#[test]
fn a_copy_that_ends_early_is_no_store_and_lets_pieces_go() {
    assert_eq!(with_copies_that_end_early(true), with_copies_that_end_early(false));
}
