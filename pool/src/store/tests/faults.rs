//! A device that fails: named errors, and the rest goes on.

use std::sync::Arc;

use thermocline_base::io::{Action, Fault, FaultKind, Io, MemoryIo, RecordingIo};
use thermocline_base::multiplex::block_on;

use super::super::*;
use super::model::{dir, finish, options};

const INDEX: IndexId = IndexId { table: 5, index: 1 };

fn open(io: &RecordingIo) -> Arc<Store> {
    Store::open(Arc::new(io.clone()) as Arc<dyn Io>, dir(), options()).expect("it opens")
}

fn batch(id: u64, count: u64) -> Batch {
    let mut batch = Batch::confirmed(BatchId(id));
    for number in 0..count {
        batch.put(INDEX, &number.to_be_bytes(), &[id as u8; 100]).expect("short");
    }
    batch
}

fn write(store: &Store, id: u64, count: u64) -> Result<()> {
    finish(store, store.write(batch(id, count)))
}

/// A store with records in pieces only.
fn flushed(io: &RecordingIo, batches: u64) -> Arc<Store> {
    let store = open(io);
    for id in 1..=batches {
        write(&store, id, 200).expect("written");
        while store.step(Step::Work) {}
    }
    assert_eq!(store.statistics().flushes, batches);
    store
}

fn fault(on: Action, times: u64, kind: FaultKind) -> Fault {
    Fault { on, skip: 0, times, kind }
}

#[test]
fn a_page_that_cannot_be_read_is_named_and_others_can() {
    let io = RecordingIo::new(&MemoryIo::new());
    let store = flushed(&io, 1);
    io.inject(fault(Action::Read, 1, FaultKind::Broken));
    let error = block_on(store.get(INDEX, &3_u64.to_be_bytes())).expect_err("the device is broken");
    assert!(matches!(&error, StoreError::Page { index: INDEX, reason: PageReason::Io(_), .. }), "{error}");
    assert!(error.to_string().contains("index 1 of table 5"), "{error}");
    let StoreError::Page { keys: Some(keys), .. } = error else { panic!("it says between which keys") };
    let key = 3_u64.to_be_bytes();
    assert!(
        *keys.low <= key[..] && key[..] <= *keys.high && *keys.high < 100_u64.to_be_bytes()[..],
        "{keys:?}"
    );
    assert_eq!(block_on(store.get(INDEX, &3_u64.to_be_bytes())).expect("it was once").len(), 1);
}

#[test]
fn reads_that_give_less_than_was_asked_for_go_on() {
    let memory = MemoryIo::new();
    let io = RecordingIo::new(&memory);
    io.short_reads(true);
    let store = flushed(&io, 3);
    let check = |store: &Store| {
        for number in 0..200_u64 {
            let found = block_on(store.get(INDEX, &number.to_be_bytes())).expect("it is there");
            let batches: Vec<u64> = found.iter().map(|found| found.batch.0).collect();
            assert_eq!(batches, [3, 2, 1], "record {number}");
        }
        assert!(store.verify().problems.is_empty(), "{:?}", store.verify().problems);
    };
    check(&store);
    store.close();
    drop(store);
    check(&open(&io));
}

#[test]
fn a_failed_sync_makes_the_store_read_only() {
    let io = RecordingIo::new(&MemoryIo::new());
    let store = flushed(&io, 1);
    io.inject(fault(Action::Sync, 1, FaultKind::Broken));
    assert!(matches!(write(&store, 7, 10), Err(StoreError::ReadOnly(_))));
    // The device is well again; what it holds is not known, though.
    let error = write(&store, 8, 10).expect_err("the first failure is final");
    assert!(error.to_string().contains("read-only"), "{error}");
    assert!(matches!(finish(&store, store.discard(BatchId(9))), Err(StoreError::ReadOnly(_))));
    assert_eq!(block_on(store.get(INDEX, &3_u64.to_be_bytes())).expect("reads go on").len(), 1);
    assert!(!store.step(Step::Work), "nothing is flushed or merged any more");
}

#[test]
fn a_failed_sync_of_pages_or_the_manifest_is_final_too() {
    for skip in [0, 1] {
        let io = RecordingIo::new(&MemoryIo::new());
        let store = open(&io);
        write(&store, 1, 200).expect("written");
        io.inject(Fault { on: Action::Sync, skip, times: 1, kind: FaultKind::Broken });
        assert!(store.step(Step::Work), "a flush");
        assert!(matches!(write(&store, 2, 10), Err(StoreError::ReadOnly(_))), "{skip}");
        assert_eq!(block_on(store.get(INDEX, &3_u64.to_be_bytes())).expect("reads go on").len(), 1);
        drop(store);
        let store = open(&io);
        assert_eq!(block_on(store.get(INDEX, &3_u64.to_be_bytes())).expect("opened again").len(), 1);
        write(&store, 2, 10).expect("opened again");
    }
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_space() {
    let memory = MemoryIo::new();
    let io = RecordingIo::new(&memory);
    let store = flushed(&io, 2);
    memory.set_capacity(Some(memory.used()));
    let mut id = 3;
    let error = loop {
        match write(&store, id, 200) {
            Ok(()) => id += 1,
            Err(error) => break error,
        }
        store.step(Step::Work);
        assert!(id < 100, "the disk is full some day");
    };
    assert!(error.is_full(), "{error}");
    let there =
        |store: &Store| block_on(store.get(INDEX, &3_u64.to_be_bytes())).expect("reads go on").len() as u64;
    assert_eq!(there(&store), id - 1, "what was acknowledged is there, and nothing else");
    memory.set_capacity(None);
    while store.step(Step::Work) && store.statistics().flushes < id - 1 {}
    write(&store, id, 200).expect("there is space");
    assert_eq!(there(&store), id);
    drop(store);
    assert_eq!(there(&open(&io)), id);
}

#[test]
fn a_merge_that_meets_a_broken_page_leaves_the_rest_alone() {
    let io = RecordingIo::new(&MemoryIo::new());
    let store = flushed(&io, 1);
    let page = store.statistics();
    assert_eq!(page.pieces, 1);
    io.inject(Fault { on: Action::Read, skip: 0, times: u64::MAX, kind: FaultKind::Broken });
    for id in 2..6 {
        write(&store, id, 200).expect("written");
        for _ in 0..4 {
            store.step(Step::Work);
        }
    }
    io.heal();
    assert_eq!(block_on(store.get(INDEX, &3_u64.to_be_bytes())).expect("readable").len(), 5);
    assert!(store.verify().is_sound());
}

#[test]
fn a_dropped_write_is_over_when_the_batch_is_quiescent() {
    let io = RecordingIo::new(&MemoryIo::new());
    let store = open(&io);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut write = Box::pin(store.write(batch(1, 20)));
    assert!(write.as_mut().poll(&mut context).is_pending());
    drop(write);
    let mut quiet = Box::pin(store.quiescent(BatchId(1)));
    assert!(quiet.as_mut().poll(&mut context).is_pending(), "it is in the queue");
    assert!(store.step(Step::Journal));
    assert!(quiet.as_mut().poll(&mut context).is_ready());
    assert_eq!(block_on(store.get(INDEX, &3_u64.to_be_bytes())).expect("readable").len(), 1);
    // A discard behind a write that is in the queue finds it.
    let mut unconfirmed = Batch::new(BatchId(2));
    unconfirmed.put(INDEX, b"x", b"y").expect("short");
    let mut write = Box::pin(store.write(unconfirmed));
    assert!(write.as_mut().poll(&mut context).is_pending());
    drop(write);
    let mut discard = Box::pin(store.discard(BatchId(2)));
    assert!(discard.as_mut().poll(&mut context).is_pending());
    while store.step(Step::Journal) {}
    assert!(discard.as_mut().poll(&mut context).is_ready());
    assert!(block_on(store.get(INDEX, b"x")).expect("readable").is_empty());
    assert!(store.unconfirmed().is_empty());
}

#[test]
fn a_reader_that_began_before_keeps_its_view() {
    let io = RecordingIo::new(&MemoryIo::new());
    let store = flushed(&io, 1);
    let mut scan = store.scan(INDEX, &[], None, Direction::Forward);
    let first = block_on(scan.next()).expect("readable").expect("a key");
    assert_eq!(first.entries.len(), 1);
    for id in 2..12 {
        let mut batch = Batch::confirmed(BatchId(id));
        for number in 0..200_u64 {
            batch.remove(INDEX, &number.to_be_bytes(), BatchId(id - 1), Removal::Last).expect("short");
            batch.put(INDEX, &number.to_be_bytes(), &[id as u8; 100]).expect("short");
        }
        finish(&store, store.write(batch)).expect("written");
        while store.step(Step::Work) {}
    }
    let mut count = 1;
    while let Some(key) = block_on(scan.next()).expect("its pages are still there") {
        assert_eq!(key.entries, [Found::new(BatchId(1), true, vec![1; 100])]);
        count += 1;
    }
    assert_eq!(count, 200);
    drop(scan);
    let used = store.statistics().disk_bytes;
    write(&store, 50, 1).expect("written");
    assert!(store.statistics().disk_bytes <= used);
}

/// Merges that find the disk full at their `skip`-th write. Afterwards everything must be as it should.
fn merges_on_a_full_disk(skip: u64) -> std::result::Result<(), String> {
    let io = RecordingIo::new(&MemoryIo::new());
    let store = open(&io);
    let mut former = 0;
    for id in 1..20 {
        let mut batch = Batch::confirmed(BatchId(id));
        for number in 0..150_u64 {
            if former > 0 {
                batch.remove(INDEX, &number.to_be_bytes(), BatchId(former), Removal::Last).expect("short");
            }
            batch.put(INDEX, &number.to_be_bytes(), &[id as u8; 100]).expect("short");
        }
        finish(&store, store.write(batch)).map_err(|error| error.to_string())?;
        former = id;
        if id % 5 == 0 {
            io.inject(Fault { on: Action::Write, skip, times: 1, kind: FaultKind::Full });
        }
        while store.statistics().flushes < id && store.step(Step::Work) {}
        store.step(Step::Work);
        store.step(Step::Work);
        io.heal();
    }
    for number in 0..150_u64 {
        let found = block_on(store.get(INDEX, &number.to_be_bytes())).map_err(|error| error.to_string())?;
        if found.len() != 1 || found[0].record != vec![former as u8; 100] {
            return Err(format!("record {number}: {found:?}"));
        }
    }
    drop(store);
    let problems = open(&io).verify().problems;
    problems.first().map_or(Ok(()), |problem| Err(problem.to_string()))
}

#[test]
fn a_merge_that_finds_the_disk_full_changes_nothing() {
    for skip in 0..12 {
        merges_on_a_full_disk(skip).unwrap_or_else(|error| panic!("full at write {skip}: {error}"));
    }
}

#[cfg(feature = "model")]
#[test]
fn freeing_extents_before_the_manifest_is_durable_is_missed() {
    use crate::mutation::{Rule, switch_off};
    let _off = switch_off(Rule::FreeAfterManifest);
    let wrong = |skip| {
        std::panic::catch_unwind(|| merges_on_a_full_disk(skip)).map_or(true, |result| result.is_err())
    };
    assert!((0..12).any(wrong));
}
