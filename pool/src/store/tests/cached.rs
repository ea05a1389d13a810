//! Reads through frames: what is in one costs no device read, nothing stale comes out of them, and no budget is too small.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use thermocline_base::io::{DelayedIo, Io, MemoryIo, RecordingIo};
use thermocline_base::multiplex::{block_on, run_tasks};
use thermocline_base::rng::Rng;

use super::super::*;
use super::model::{Model, dir, finish, options};
use crate::frames::{PagePool, PoolOptions};
use crate::page::PageError;

const INDEX: IndexId = IndexId { table: 2, index: 0 };
const PAGE: u64 = 4096;

/// Every batch of some length becomes a piece.
fn with_frames(frames: u64) -> StoreOptions {
    StoreOptions {
        memory_bytes: 4096,
        leaf_bytes: 2 << 20,
        frame_bytes: frames * PAGE,
        frame_bytes_max: 64 << 20,
        ..options()
    }
}

fn open(io: Arc<dyn Io>, frames: u64) -> Arc<Store> {
    Store::open(io, dir(), with_frames(frames)).expect("it opens")
}

fn record(number: u64, batch: u64) -> Vec<u8> {
    vec![(number * 7 + batch) as u8; 100]
}

/// Writes a batch with `numbers`, replacing those of batch `former` unless that is 0, and flushes it.
fn write(store: &Store, batch: u64, former: u64, numbers: std::ops::Range<u64>) {
    let mut entries = Batch::confirmed(BatchId(batch));
    for number in numbers {
        let key = number.to_be_bytes();
        if former > 0 {
            entries.remove(INDEX, &key, BatchId(former), Removal::Last).expect("short");
        }
        entries.put(INDEX, &key, &record(number, batch)).expect("short");
    }
    finish(store, store.write(entries)).expect("written");
    while store.step(Step::Work) {}
}

fn assert_send<T: Send>(value: T) -> T {
    value
}

fn get(store: &Store, number: u64) -> Result<Vec<Found>> {
    block_on(assert_send(store.get(INDEX, &number.to_be_bytes())))
}

fn check(store: &Store, number: u64, batch: u64) {
    let found = get(store, number).expect("readable");
    assert_eq!(found.len(), 1, "record {number}");
    assert_eq!((found[0].batch.0, &found[0].record), (batch, &record(number, batch)));
}

/// A store with records `0..count` of batch 1 in one piece, on a file system in memory.
fn filled(frames: u64, count: u64) -> (MemoryIo, Arc<Store>) {
    let io = MemoryIo::new();
    let store = open(Arc::new(io.clone()), frames);
    write(&store, 1, 0, 0..count);
    (io, store)
}

#[test]
fn what_is_in_a_frame_costs_no_device_read() {
    let (_, store) = filled(1024, 2000);
    assert_eq!(store.statistics().page_reads, 0);
    for _ in 0..3 {
        (0..2000).for_each(|number| check(&store, number, 1));
    }
    let statistics = store.statistics();
    let pages = statistics.indexes[&INDEX].page_bytes / PAGE;
    assert!((50..80).contains(&pages), "{pages} pages hold the records");
    assert_eq!((statistics.page_reads, statistics.frame_misses), (pages, pages));
    assert_eq!(statistics.frame_hits, 6000 - pages);
    assert_eq!((statistics.frame_joins, statistics.frame_bypasses), (0, 0));
    assert_eq!((statistics.frame_bytes, statistics.frames.used_bytes), (pages * PAGE, pages * PAGE));
    assert!(statistics.frames.map_bytes > 0 && statistics.frames.bookkeeping_bytes > 0);
    // Opened again, the frames are empty.
    let before = statistics.device_bytes_read;
    assert!(before >= pages * PAGE);
}

#[test]
fn a_read_that_does_not_wait_answers_from_blocks_and_frames_only() {
    let (io, store) = filled(1024, 2000);
    let now = |number: u64| store.get_now(INDEX, &number.to_be_bytes()).expect("readable");
    // Nothing is in a frame, and no read asks the device.
    assert!((0..2000).all(|number| now(number).is_none()));
    assert_eq!(store.statistics().page_reads, 0);
    // What filters deny is known.
    let denied = (2000..4000).filter(|number| now(*number).is_some_and(|found| found.is_empty())).count();
    assert!(denied > 1900, "{denied} of 2000 absent keys");
    check(&store, 700, 1);
    let reads = store.statistics().page_reads;
    let there: Vec<u64> = (0..2000).filter(|number| now(*number).is_some()).collect();
    assert!(there.contains(&700) && there.len() < 60, "{there:?} lie in one page");
    for number in there {
        assert_eq!(now(number).expect("it was just there"), get(&store, number).expect("readable"));
    }
    // What has replaced a record is in a block, and ends there.
    let mut batch = Batch::confirmed(BatchId(2));
    batch.remove(INDEX, &900_u64.to_be_bytes(), BatchId(1), Removal::Last).expect("short");
    batch.put(INDEX, &900_u64.to_be_bytes(), b"new").expect("short");
    finish(&store, store.write(batch)).expect("written");
    let found = now(900).expect("it is in a block");
    assert_eq!((found.len(), &found[0].record[..]), (1, &b"new"[..]));
    // Unconfirmed batches are seen, and do not hide what is on the device.
    let mut batch = Batch::new(BatchId(3));
    batch.put(INDEX, &901_u64.to_be_bytes(), b"maybe").expect("short");
    batch.put(INDEX, &700_u64.to_be_bytes(), b"maybe").expect("short");
    finish(&store, store.write(batch)).expect("written");
    assert_eq!(now(901), None);
    let found = now(700).expect("in a block, and in a frame");
    assert_eq!(
        found.iter().map(|found| (found.batch.0, found.confirmed)).collect::<Vec<_>>(),
        [(3, false), (1, true)]
    );
    assert_eq!(store.statistics().page_reads, reads);
    drop(io);
}

#[test]
fn long_records_of_few_pages_are_kept_and_longer_ones_are_not() {
    let io = MemoryIo::new();
    let store = open(Arc::new(io), 1024);
    let mut batch = Batch::confirmed(BatchId(1));
    let records = [3000, 5000, 30_000, 200_000].map(|bytes: usize| vec![bytes as u8; bytes]);
    for (number, record) in records.iter().enumerate() {
        batch.put(INDEX, &[number as u8], record).expect("short enough");
    }
    finish(&store, store.write(batch)).expect("written");
    while store.step(Step::Work) {}
    let reads_of = |number: usize| {
        let before = store.statistics().page_reads;
        let found = block_on(store.get(INDEX, &[number as u8])).expect("readable");
        assert_eq!(found[0].record, records[number]);
        store.statistics().page_reads - before
    };
    assert_eq!([0, 1, 2, 3].map(reads_of), [2, 1, 1, 1], "the first finds no data page");
    assert_eq!([0, 1, 2, 3].map(reads_of), [0, 0, 0, 1]);
    store.set_frame_bytes(0);
    assert_eq!([0, 1, 2, 3].map(reads_of), [2, 2, 2, 2], "the data page, and the record at once");
}

#[test]
fn one_read_serves_all_who_want_a_page() {
    let io = RecordingIo::new(&MemoryIo::new());
    let store = open(Arc::new(io.clone()), 16);
    write(&store, 1, 0, 0..60);
    io.defer(3);
    let mut context = Context::from_waker(Waker::noop());
    let mut gets: Vec<_> = (0..64)
        .map(|number: u64| {
            let store = &store;
            Box::pin(async move { store.get(INDEX, &(number % 20).to_be_bytes()).await })
        })
        .collect();
    assert!(gets.iter_mut().all(|get| get.as_mut().poll(&mut context).is_pending()));
    assert_eq!(io.under_way(), 1);
    // One of them loses interest; the others do not depend on it.
    drop(gets.remove(0));
    io.release_all();
    for get in gets {
        assert_eq!(block_on(get).expect("readable").len(), 1);
    }
    let statistics = store.statistics();
    assert_eq!((statistics.page_reads, statistics.frame_misses, statistics.frame_joins), (1, 1, 63));
}

#[test]
fn a_page_that_is_flipped_on_disk_is_noticed_when_it_is_read() {
    let (io, store) = filled(64, 60);
    check(&store, 3, 1);
    let path = dir().join("store.pages");
    let file = io.files().remove(&path).expect("it is there");
    let is_data = |page: &u64| file[(page * PAGE) as usize + 4..][..2] == block::DATA.0.to_le_bytes();
    // Those of pieces that are gone as well.
    let pages: Vec<u64> = (1..file.len() as u64 / PAGE).filter(is_data).collect();
    let flip = || pages.iter().for_each(|page| io.flip(&path, page * PAGE + 500, 1));
    flip();
    // In its frame it is whole.
    check(&store, 3, 1);
    for frames in [0, 1, 64] {
        store.set_frame_bytes(0);
        store.set_frame_bytes(frames * PAGE);
        for _ in 0..2 {
            let error = get(&store, 3).expect_err("it is damaged");
            assert!(
                matches!(&error, StoreError::Page { index: INDEX, number, reason: PageReason::Bytes(
                    PageError::Checksum { number: found, .. }), .. } if number == found && pages.contains(number)),
                "{error}"
            );
        }
    }
    flip();
    check(&store, 3, 1);
}

/// Pieces come and go in the same extents while all of their pages are in frames.
#[test]
fn a_piece_that_is_replaced_is_never_served() {
    for frames in [0, 3, 40, 4096] {
        let (_, store) = filled(frames, 1000);
        let mut first_files = 0;
        for batch in 2..14 {
            (0..1000).for_each(|number| check(&store, number, batch - 1));
            write(&store, batch, batch - 1, 0..1000);
            (0..1000).for_each(|number| check(&store, number, batch));
            let statistics = store.statistics();
            assert!(
                statistics.frame_bytes <= statistics.disk_bytes,
                "frames hold pages of pieces that are gone: {statistics:?}"
            );
            if batch == 8 {
                first_files = statistics.file_bytes;
            }
        }
        assert!(store.statistics().file_bytes <= first_files, "extents are used again");
        assert!(store.verify().is_sound());
    }
}

#[test]
fn pages_of_a_piece_that_is_gone_leave_the_frames() {
    let (_, store) = filled(1024, 1000);
    (0..1000).for_each(|number| check(&store, number, 1));
    assert!(store.statistics().frame_bytes > 20 * PAGE);
    // Everything is removed, and merged away.
    let mut batch = Batch::confirmed(BatchId(2));
    for number in 0..1000_u64 {
        batch.remove(INDEX, &number.to_be_bytes(), BatchId(1), Removal::Last).expect("short");
    }
    finish(&store, store.write(batch)).expect("written");
    let mut round = 3;
    while store.statistics().indexes.get(&INDEX).is_some_and(|index| index.records > 0) {
        write(&store, round, 0, 2000..2001);
        round += 1;
        assert!(round < 200, "what is removed is merged away");
    }
    let statistics = store.statistics();
    assert!(statistics.frame_bytes <= 2 * PAGE, "{} bytes are left", statistics.frame_bytes);
    assert_eq!(statistics.frames.used_bytes, statistics.frame_bytes);
}

#[test]
fn few_frames_serve_many_readers() {
    for frames in [0, 1, 2, 5] {
        let memory = MemoryIo::new();
        let store = open(Arc::new(memory.clone()), frames);
        write(&store, 1, 0, 0..3000);
        drop(store);
        let slow = DelayedIo::new(Arc::new(memory), Duration::from_millis(1));
        let store = open(Arc::new(slow), frames);
        let next = AtomicU64::new(0);
        let tasks = (0..64).map(|_| async {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= 1280 {
                    return;
                }
                let number = number * 7 % 3000;
                let found = store.get(INDEX, &number.to_be_bytes()).await.expect("readable");
                assert_eq!(found[0].record, record(number, 1));
            }
        });
        run_tasks(tasks.collect());
        let statistics = store.statistics();
        assert!(statistics.frames.used_bytes <= frames * PAGE);
        let looks = statistics.frame_hits
            + statistics.frame_misses
            + statistics.frame_joins
            + statistics.frame_bypasses;
        assert_eq!(looks, 1280);
        assert!(statistics.frame_bypasses > 0, "64 readers did not wait for {frames} frames");
    }
}

#[test]
fn futures_that_nobody_polls_hold_nobody_up() {
    let io = RecordingIo::new(&MemoryIo::new());
    let store = open(Arc::new(io.clone()), 2);
    write(&store, 1, 0, 0..1000);
    io.defer(1);
    let mut context = Context::from_waker(Waker::noop());
    let parked: Vec<_> = (0..4)
        .map(|number: u64| {
            let store = Arc::clone(&store);
            let mut get = Box::pin(async move { store.get(INDEX, &(number * 200).to_be_bytes()).await });
            assert!(get.as_mut().poll(&mut context).is_pending());
            get
        })
        .collect();
    io.release_all();
    // Both frames are theirs now; later readers do without.
    for number in 0..1000 {
        check(&store, number, 1);
    }
    assert!(store.statistics().frame_bypasses > 0);
    for get in parked {
        assert_eq!(block_on(get).expect("readable").len(), 1);
    }
    check(&store, 3, 1);
    assert_eq!(store.statistics().frames.used_bytes, 2 * PAGE);
}

#[test]
fn the_budget_changes_under_load() {
    let (_, store) = filled(512, 4000);
    let (stop, gets) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (store, stop, gets) = (&store, &stop, &gets);
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                let tasks = (0..16).map(|_| {
                    let mut rng = Rng::new(rng.next_u64());
                    async move {
                        while !stop.load(Ordering::Relaxed) {
                            let number = rng.below(4000);
                            let found = store.get(INDEX, &number.to_be_bytes()).await.expect("readable");
                            assert_eq!(found[0].record, record(number, 1));
                            gets.fetch_add(1, Ordering::Relaxed);
                            thermocline_base::multiplex::give_way().await;
                        }
                    }
                });
                run_tasks(tasks.collect());
            });
        }
        let mut rng = Rng::new(9);
        while gets.load(Ordering::Relaxed) < 20_000 {
            let frames = [0, 1, 2, 16, 60, 512, 2000][rng.below(7) as usize];
            store.set_frame_bytes(frames * PAGE);
            std::thread::yield_now();
        }
        store.set_frame_bytes(PAGE);
        stop.store(true, Ordering::Relaxed);
    });
    let statistics = store.statistics();
    assert!(statistics.frames.used_bytes <= PAGE && statistics.frames.over_budget_bytes == 0);
    assert!(statistics.frame_hits > 0);
    store.set_frame_bytes(512 * PAGE);
    (0..4000).for_each(|number| check(&store, number, 1));
    (0..4000).for_each(|number| check(&store, number, 1));
    assert!(store.statistics().frames.used_bytes > 100 * PAGE);
}

#[test]
fn stores_share_frames_and_give_them_back() {
    let pool = PagePool::new(PoolOptions::new(256 * PAGE)).expect("address space");
    let shared = || StoreOptions { frames: Some(pool.clone()), ..with_frames(0) };
    let open = || {
        let store = Store::open(Arc::new(MemoryIo::new()) as Arc<dyn Io>, dir(), shared()).expect("it opens");
        write(&store, 1, 0, 0..500);
        store
    };
    let (one, two) = (open(), open());
    for number in 0..500 {
        check(&one, number, 1);
        check(&two, number, 1);
    }
    let used = pool.stats().used_bytes;
    assert_eq!(one.statistics().frame_bytes + two.statistics().frame_bytes, used);
    assert_eq!(one.statistics().page_reads, one.statistics().frame_bytes / PAGE);
    drop(one);
    assert_eq!(pool.stats().used_bytes, two.statistics().frame_bytes);
    drop(two);
    assert_eq!(pool.stats().used_bytes, 0);
    let other = PoolOptions::new(1 << 20).page_size(crate::page::PageSize::new(8192).expect("a page size"));
    let other = PagePool::new(other).expect("address space");
    let options = StoreOptions { frames: Some(other), ..with_frames(0) };
    let refused = Store::open(Arc::new(MemoryIo::new()) as Arc<dyn Io>, dir(), options);
    assert!(matches!(&refused, Err(StoreError::Frames(_))), "{refused:?}");
}

/// The store against a map, with frames that come and go.
#[test]
fn a_store_with_frames_that_come_and_go_is_a_map() {
    for seed in 0..6 {
        let mut rng = Rng::new(seed);
        let io = MemoryIo::new();
        let open = |frames: u64| {
            let options = StoreOptions { frame_bytes: frames * PAGE, frame_bytes_max: 8 << 20, ..options() };
            Store::open(Arc::new(io.clone()) as Arc<dyn Io>, dir(), options).expect("it opens")
        };
        let mut store = open(seed);
        let mut model = Model::default();
        for step in 0..300 {
            match rng.below(20) {
                0..10 => {
                    let confirmed = rng.chance(0.8);
                    let (batch, after) = model.batch(&mut rng, confirmed);
                    finish(&store, store.write(batch)).expect("written");
                    model = after;
                }
                10 => {
                    if let Some(id) = model.waiting.keys().next().copied() {
                        finish(&store, store.confirm(BatchId(id))).expect("it waits");
                        model.confirm(id);
                    }
                }
                11..18 => _ = store.step(Step::Work),
                18 => _ = store.set_frame_bytes([0, 1, 2, 3, 8, 30, 2048][rng.below(7) as usize] * PAGE),
                _ => {
                    model.compare(&store).unwrap_or_else(|error| panic!("seed {seed}, step {step}: {error}"));
                }
            }
            if step == 150 {
                drop(store);
                store = open(rng.below(10));
            }
        }
        model.compare(&store).unwrap_or_else(|error| panic!("seed {seed}, at the end: {error}"));
    }
}

/// Takes `count` keys from a scan, and says how many device reads that cost.
fn scan_reads(store: &Store, low: u64, high: Option<u64>, direction: Direction, count: u64) -> u64 {
    let (low, high) = (low.to_be_bytes(), high.map(u64::to_be_bytes));
    let before = store.statistics().page_reads;
    let mut scan = store.scan(INDEX, &low, high.as_ref().map(|high| &high[..]), direction);
    for _ in 0..count {
        block_on(assert_send(scan.next())).expect("readable").expect("there are so many");
    }
    store.statistics().page_reads - before
}

#[test]
fn the_first_rows_of_a_scan_cost_few_device_reads() {
    use Direction::{Backward, Forward};
    for frames in [0, 2, 64, 512, 4096] {
        let (_, store) = filled(frames, 4000);
        for direction in [Forward, Backward] {
            for count in (1..=40).chain([60, 100, 500, 3000]) {
                store.set_frame_bytes(0);
                store.set_frame_bytes(frames * PAGE);
                let (low, high) = if direction == Forward { (123, None) } else { (0, Some(3877)) };
                let reads = scan_reads(&store, low, high, direction, count);
                assert!(reads <= count + 2, "{frames} frames: {count} rows cost {reads} reads");
                // One record is found with one read, and a long scan reads long stretches.
                assert!(count > 1 || direction == Backward || reads == 1, "{frames} frames: {reads}");
                assert!(count < 500 || reads <= 12, "{frames} frames: {count} rows cost {reads} reads");
            }
        }
    }
}

#[test]
fn short_scans_are_kept_and_long_ones_push_nothing_out() {
    let (_, store) = filled(512, 30_000);
    for (direction, low, high) in [(Direction::Forward, 700, None), (Direction::Backward, 0, Some(9000))] {
        assert!(scan_reads(&store, low, high, direction, 300) > 0);
        assert_eq!(scan_reads(&store, low, high, direction, 300), 0);
    }
    (20_000..30_000).for_each(|number| check(&store, number, 1));
    let kept = store.statistics();
    let reads = scan_reads(&store, 0, None, Direction::Forward, 30_000);
    assert!((10..60).contains(&reads), "{reads}");
    let after = store.statistics();
    assert!(after.frame_bytes <= kept.frame_bytes + 32 * PAGE, "{after:?}");
    assert_eq!(after.read_buffer_bytes, 0);
    (20_000..30_000).for_each(|number| check(&store, number, 1));
    let again = store.statistics();
    assert_eq!(again.page_reads, after.page_reads, "a long scan pushed out what was in frames");
    // What is in frames is not read by scans either.
    assert!(scan_reads(&store, 20_000, None, Direction::Forward, 10_000) <= 1);
}

#[test]
fn a_scan_over_damaged_pages_names_one_and_reads_those_before_it() {
    for frames in [0, 4096] {
        let (io, store) = filled(frames, 4000);
        let path = dir().join("store.pages");
        let file = io.files().remove(&path).expect("it is there");
        let bad = record(2000, 1);
        // Record 208 is the first that looks like this.
        let holds = |page: &u64| {
            let bytes = &file[(page * PAGE) as usize..][..PAGE as usize];
            bytes[4..6] == block::DATA.0.to_le_bytes() && bytes.windows(bad.len()).any(|part| part == bad)
        };
        let pages: Vec<u64> = (1..file.len() as u64 / PAGE).filter(holds).collect();
        pages.iter().for_each(|page| io.flip(&path, page * PAGE + 500, 1));
        let mut scan = store.scan(INDEX, &[], None, Direction::Forward);
        let mut count = 0_u64;
        let error = loop {
            match block_on(scan.next()) {
                Ok(found) => assert_eq!(found.expect("it does not end").key, count.to_be_bytes()),
                Err(error) => break error,
            }
            count += 1;
        };
        assert!((168..=208).contains(&count), "{count}");
        assert!(matches!(error, StoreError::Page { index: INDEX, number, .. } if pages.contains(&number)));
    }
}

#[test]
fn pieces_are_asked_for_their_first_pages_together() {
    for frames in [0, 2, 1024] {
        let io = RecordingIo::new(&MemoryIo::new());
        let store = open(Arc::new(io.clone()), frames);
        for batch in 1..=4_u64 {
            let mut entries = Batch::confirmed(BatchId(batch));
            for number in 0..300_u64 {
                entries.put(INDEX, &number.to_be_bytes(), &record(number, batch)).expect("short");
            }
            finish(&store, store.write(entries)).expect("written");
            // A flush, and no merge.
            assert!(store.step(Step::Work));
        }
        let pieces = store.statistics().pieces as usize;
        assert!(pieces > 1, "{pieces} pieces");
        let high = 200_u64.to_be_bytes();
        for direction in [Direction::Forward, Direction::Backward] {
            store.set_frame_bytes(0);
            store.set_frame_bytes(frames * PAGE);
            io.defer(1);
            let before = store.statistics().page_reads;
            let mut scan = store.scan(INDEX, &0_u64.to_be_bytes(), Some(&high), direction);
            let mut next = Box::pin(scan.next());
            assert!(next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert_eq!(io.under_way(), pieces, "{frames} frames, {direction:?}");
            io.release_all();
            let found = block_on(next).expect("readable").expect("there is one");
            let number = if direction == Direction::Forward { 0 } else { 199 };
            assert_eq!((found.key, found.entries.len()), (u64::to_be_bytes(number).to_vec(), 4));
            let reads = store.statistics().page_reads - before;
            assert!(reads <= 2 * pieces as u64, "{reads} reads");
        }
    }
}
