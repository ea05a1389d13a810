//! The store under the model checker: races between readers, the journal's thread, flushes, spills and decisions.
//!
//! Every scenario is run as it is, and once for each rule that it depends on with that rule switched off, which some
//! schedule must turn into a failure. Files are in memory and answer at once, so what is explored are the orders of
//! everything between them. A future that sleeps for ever is a deadlock, which the model checker reports.

use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Waker};

use thermocline_base::io::{Io, MemoryIo};
use thermocline_base::multiplex::block_on;
use thermocline_base::sync::{Mutex, model, schedule_point};

use super::filter::hash_of;
use super::memory::MemoryBlock;
use super::promise::Promise;
use super::version::WaitingBatch;
use super::*;
use crate::mutation::{self, Rule};

const ROUNDS: usize = 2000;
const INDEX: IndexId = IndexId { table: 1, index: 0 };

/// Checks a scenario, and that each of the rules is missed in it.
fn check(scenario: impl Fn() + Send + Sync + Clone + 'static, rules: &[Rule]) {
    model::run(ROUNDS, scenario.clone());
    for rule in rules {
        let _off = mutation::switch_off(*rule);
        assert!(model::finds_failure(2 * ROUNDS, scenario.clone()), "nobody misses {rule:?}");
    }
}

fn options() -> StoreOptions {
    StoreOptions {
        memory_bytes: 4096,
        segment_bytes: 32 << 10,
        leaf_bytes: 64 << 10,
        spare_bytes: 0,
        threads: 0,
        ..StoreOptions::new([7; 16])
    }
}

fn open(io: &MemoryIo) -> Arc<Store> {
    Store::open(Arc::new(io.clone()) as Arc<dyn Io>, Path::new("/store"), options()).expect("it opens")
}

fn spawn<S: Send + Sync + 'static, T: Send + 'static>(
    shared: &Arc<S>,
    body: impl FnOnce(&S) -> T + Send + 'static,
) -> shuttle::thread::JoinHandle<T> {
    let shared = Arc::clone(shared);
    shuttle::thread::spawn(move || body(&shared))
}

fn put(batch: &mut Batch, keys: &[&[u8]], bytes: usize) {
    for key in keys {
        batch.put(INDEX, key, &vec![batch.id().0 as u8; bytes]).expect("short");
    }
}

fn confirmed(id: u64, keys: &[&[u8]], bytes: usize) -> Batch {
    let mut batch = Batch::confirmed(BatchId(id));
    put(&mut batch, keys, bytes);
    batch
}

fn undecided(id: u64, keys: &[&[u8]], bytes: usize) -> Batch {
    let mut batch = Batch::new(BatchId(id));
    put(&mut batch, keys, bytes);
    batch
}

/// Puts something into the queue, without waiting for it.
fn begin<T>(future: impl Future<Output = T> + Send + 'static) {
    let mut future = Box::pin(future);
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

/// Does it, on this thread.
fn write(store: &Store, batch: Batch) {
    begin(store.write(batch));
    while store.step(Step::Journal) {}
}

fn work(store: &Store) {
    store.inner.step_work(&mut Scratch::default());
}

/// Ids of the batches that have entries of a key, and whether each is confirmed.
fn get(store: &Store, key: &[u8]) -> Vec<(u64, bool)> {
    let found = block_on(store.get(INDEX, key)).expect("readable");
    found.iter().map(|found| (found.batch.0, found.confirmed)).collect()
}

fn scan(store: &Store) -> Vec<(Vec<u8>, Vec<u64>)> {
    let mut scan = store.scan(INDEX, b"", None, Direction::Forward);
    let mut all = Vec::new();
    while let Some(key) = block_on(scan.next()).expect("readable") {
        all.push((key.key, key.entries.iter().map(|found| found.batch.0).collect()));
    }
    all
}

/// A reader of a block sees all of a batch or nothing, while the next one comes.
#[test]
fn a_batch_in_memory_is_seen_whole_or_not_at_all() {
    let scenario = || {
        let block = Arc::new(MemoryBlock::new(4096, 0));
        let adder = spawn(&block, |block| {
            for id in 1..3 {
                block.add(Arc::new(confirmed(id, &[b"a", b"b"], 8)), id);
            }
        });
        let reader = spawn(&block, |block| {
            let published = block.published();
            [b"a", b"b"].map(|key| {
                let hash = hash_of(INDEX.as_u64(), key);
                let mut found = Vec::new();
                block.for_key(published, INDEX.as_u64(), key, hash, |entry| found.push(entry.batch));
                assert!(published == 0 || block.may_contain(hash), "a table says no");
                (published, found)
            })
        });
        let seen = reader.join().expect("the reader");
        for (published, found) in seen {
            let all: Vec<u64> = (1..=published as u64).collect();
            assert_eq!(found, all, "{published} batches can be seen");
        }
        adder.join().expect("the adder");
    };
    check(scenario, &[Rule::BatchPublishedLast, Rule::ReaderPassesUnpublished]);
}

/// A block is flushed behind a screen while it is read.
#[test]
fn what_is_flushed_is_never_away() {
    let scenario = || {
        let store = open(&MemoryIo::new());
        // A piece of the last level, and a sealed block, which will be a young piece behind a screen.
        write(&store, confirmed(1, &[b"a", b"b"], 2100));
        while store.step(Step::Work) {}
        write(&store, confirmed(2, &[b"c", b"d"], 2100));
        assert_eq!(store.inner.current().sealed.len(), 1);
        let flusher = spawn(&store, work);
        let reader = spawn(&store, |store| {
            let mut answers = [false; 2];
            store.may_contain_all(INDEX, &[b"a", b"c"], &mut answers);
            (get(store, b"c"), answers, store.may_contain(INDEX, b"d"), scan(store))
        });
        let (found, answers, may, scanned) = reader.join().expect("the reader");
        flusher.join().expect("the flusher");
        assert!(store.inner.current().sealed.is_empty());
        assert_eq!((found, answers, may), (vec![(2, true)], [true; 2], true));
        let expected = [(b"a", 1), (b"b", 1), (b"c", 2), (b"d", 2)];
        assert_eq!(scanned, expected.map(|(key, batch)| (key.to_vec(), vec![batch])));
        assert!(
            [b"a", b"b", b"c", b"d"].iter().all(|key| store.may_contain(INDEX, *key)),
            "a screen says no"
        );
    };
    check(scenario, &[Rule::FlushSwitchesAtOnce, Rule::ScreenOfAllEntries]);
}

/// A batch that waits is confirmed while it is read.
#[test]
fn a_batch_that_is_being_confirmed_is_there_once() {
    let scenario = || {
        let store = open(&MemoryIo::new());
        write(&store, confirmed(1, &[b"a", b"b"], 8));
        let mut batch = undecided(2, &[b"a", b"b"], 8);
        batch.remove(INDEX, b"a", BatchId(1), Removal::Last).expect("short");
        batch.remove(INDEX, b"b", BatchId(1), Removal::Last).expect("short");
        write(&store, batch);
        begin(store.confirm(BatchId(2)));
        let journal = spawn(&store, |store| while store.step(Step::Journal) {});
        let reader = spawn(&store, |store| {
            let newest =
                block_on(store.get_newest(INDEX, b"a")).expect("readable").map(|found| found.batch.0);
            (newest, get(store, b"a"), store.may_contain(INDEX, b"b"), scan(store))
        });
        let (newest, found, may, scanned) = reader.join().expect("the reader");
        assert!(newest.is_some() && may);
        let (before, after) = (vec![(2, false), (1, true)], vec![(2, true)]);
        assert!(found == before || found == after, "{found:?}");
        // Nothing goes back.
        assert!(newest == Some(1) || found == after, "{newest:?}, then {found:?}");
        let all = |batches: &[u64]| [b"a", b"b"].map(|key| (key.to_vec(), batches.to_vec()));
        assert!(scanned == all(&[2, 1]) || scanned == all(&[2]), "{scanned:?}");
        journal.join().expect("the journal");
        assert_eq!(get(&store, b"a"), after);
        assert_eq!(store.unconfirmed(), []);
    };
    check(scenario, &[Rule::ConfirmTakesInFirst]);
}

/// A flush and the journal's thread both change what readers see.
#[test]
fn no_change_of_what_readers_see_is_lost() {
    let scenario = || {
        let store = open(&MemoryIo::new());
        write(&store, confirmed(1, &[b"a", b"b"], 2100));
        begin(store.write(undecided(2, &[b"c"], 8)));
        let flusher = spawn(&store, work);
        while store.step(Step::Journal) {}
        flusher.join().expect("the flusher");
        let version = store.inner.current();
        assert_eq!((version.sealed.len(), version.leaves.list[0].young.len()), (0, 1), "the flush is lost");
        assert_eq!((store.unconfirmed(), get(&store, b"c")), (vec![BatchId(2)], vec![(2, false)]));
    };
    check(scenario, &[Rule::VersionChangesUnderControl]);
}

/// A batch is decided about while it is written as a piece, and read.
#[test]
fn a_batch_is_decided_about_while_it_is_spilled() {
    let scenario = |confirm: bool| {
        move || {
            let io = MemoryIo::new();
            let store = open(&io);
            write(&store, undecided(1, &[b"a", b"b"], 1300));
            assert!(store.inner.is_spill_due());
            let spiller = spawn(&store, work);
            if confirm {
                begin(store.confirm(BatchId(1)));
            } else {
                begin(store.discard(BatchId(1)));
            }
            let reader = spawn(&store, |store| (get(store, b"a"), scan(store), get(store, b"b")));
            while store.step(Step::Journal) {}
            let (first, scanned, second) = reader.join().expect("the reader");
            let decided = if confirm { vec![(1, true)] } else { vec![] };
            for found in [&first, &second] {
                assert!(*found == [(1, false)] || *found == decided, "{found:?}");
            }
            assert!(first == [(1, false)] || second == decided, "{first:?}, then {second:?}");
            assert!(!confirm || scanned.len() == 2, "{scanned:?}");
            spiller.join().expect("the spiller");
            while store.step(Step::Work) {}
            let judge = |store: &Store| {
                assert_eq!((store.unconfirmed(), get(store, b"a")), (vec![], decided.clone()));
                assert!(
                    !store.inner.current().waiting.iter().any(|of| matches!(of, WaitingBatch::Piece { .. }))
                );
                assert!(store.verify().is_sound());
            };
            judge(&store);
            drop(store);
            judge(&open(&io));
        }
    };
    check(scenario(true), &[]);
    check(scenario(false), &[]);
}

/// Decisions about a batch come from two sides: one of them takes effect, and both are told.
#[test]
fn a_batch_is_confirmed_or_discarded() {
    let scenario = || {
        let store = open(&MemoryIo::new());
        write(&store, undecided(1, &[b"a"], 8));
        let done = Arc::new((Arc::clone(&store), Mutex::new(0)));
        let journal = spawn(&done, |(store, done)| {
            while *done.lock() < 2 {
                store.step(Step::Journal);
                shuttle::thread::yield_now();
            }
        });
        let confirm = spawn(&done, |(store, done)| {
            let result = block_on(store.confirm(BatchId(1)));
            *done.lock() += 1;
            result.is_ok()
        });
        let discarded = block_on(store.discard(BatchId(1))).is_ok();
        *done.1.lock() += 1;
        let confirmed = confirm.join().expect("who confirms");
        journal.join().expect("the journal");
        assert!(discarded, "there is nothing to discard, which is no error");
        assert_eq!(get(&store, b"a"), if confirmed { vec![(1, true)] } else { vec![] });
        assert_eq!(store.unconfirmed(), []);
    };
    check(scenario, &[]);
}

/// A write whose future was dropped is over when its batch is quiescent, and a discard behind it finds it.
#[test]
fn nothing_lands_after_a_batch_is_quiescent() {
    let scenario = || {
        let store = open(&MemoryIo::new());
        begin(store.write(undecided(1, &[b"a"], 8)));
        let other = spawn(&store, |store| {
            block_on(store.quiescent(BatchId(1)));
            (get(store, b"a"), store.unconfirmed())
        });
        while store.step(Step::Journal) {}
        let (found, waiting) = other.join().expect("who waits");
        assert_eq!((found, waiting), (vec![(1, false)], vec![BatchId(1)]), "it was decided and landed later");
        begin(store.discard(BatchId(1)));
        while store.step(Step::Journal) {}
        assert_eq!(get(&store, b"a"), []);
    };
    check(scenario, &[Rule::AckAfterEffect]);
}

/// A promise is kept while a thread begins to wait.
#[test]
fn who_awaits_a_promise_is_woken() {
    let scenario = || {
        let promise = Arc::new(Promise::new());
        let waits = spawn(&promise, |promise: &Promise<u32>| block_on(promise.wait()));
        let keeps = spawn(&promise, |promise: &Promise<u32>| promise.keep(7));
        promise.keep(8);
        let seen = waits.join().expect("who waits");
        keeps.join().expect("who keeps");
        assert!([7, 8].contains(&seen));
        assert_eq!(block_on(promise.wait()), seen, "the first value counts");
    };
    check(scenario, &[Rule::PromiseEntersUnderLock]);
}

/// The journal's thread sleeps when there is nothing, and hears of everything.
#[test]
fn no_call_of_the_journals_thread_is_lost() {
    let scenario = || {
        let store = open(&MemoryIo::new());
        let journal = spawn(&store, |store| journal_thread(&store.inner));
        let writer = spawn(&store, |store| block_on(store.write(undecided(1, &[b"a"], 8))).is_ok());
        schedule_point();
        assert!(block_on(store.write(confirmed(2, &[b"b"], 8))).is_ok());
        assert!(writer.join().expect("the writer"));
        assert_eq!((get(&store, b"a"), get(&store, b"b")), (vec![(1, false)], vec![(2, true)]));
        // As `close` does.
        store.inner.queue.lock().closed = true;
        store.inner.queue_signal.ring();
        journal.join().expect("the journal's thread");
    };
    check(scenario, &[Rule::HeardBeforeLook]);
}
