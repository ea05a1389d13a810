//! Disk space that is not needed any more goes back to the file system.

use std::sync::Arc;

use thermocline_base::io::{Io, MemoryIo};
use thermocline_base::rng::Rng;

use super::super::*;
use super::model::{dir, finish};

const INDEX: IndexId = IndexId { table: 1, index: 0 };
const RECORDS: u64 = 60_000;
const RECORD_BYTES: usize = 500;

fn options() -> StoreOptions {
    StoreOptions {
        memory_bytes: 256 << 10,
        segment_bytes: 512 << 10,
        leaf_bytes: 1 << 20,
        spare_bytes: 1 << 20,
        threads: 0,
        ..StoreOptions::new([7; 16])
    }
}

fn open(io: &MemoryIo) -> Arc<Store> {
    Store::open(Arc::new(io.clone()) as Arc<dyn Io>, dir(), options()).expect("it opens")
}

fn write(store: &Store, batch: Batch) {
    let id = batch.id();
    finish(store, store.write(batch)).expect("written");
    finish(store, store.confirm(id)).expect("it waits");
    while store.step(Step::Work) {}
}

fn record_of(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(RECORD_BYTES / 8)
}

fn load(store: &Store) {
    let keys: Vec<[u8; 8]> = (0..RECORDS).map(u64::to_be_bytes).collect();
    let records: Vec<Vec<u8>> = (0..RECORDS).map(record_of).collect();
    let sorted = keys.iter().zip(&records).map(|(key, record)| (INDEX, &key[..], &record[..]));
    store.bulk_load(BatchId(1), sorted).expect("sorted");
}

fn remove(store: &Store, next: &mut u64, numbers: &[u64]) {
    for some in numbers.chunks(1000) {
        let mut batch = Batch::new(BatchId(*next));
        *next += 1;
        for number in some {
            batch.remove(INDEX, &number.to_be_bytes(), BatchId(1), Removal::Only).expect("short");
        }
        write(store, batch);
    }
}

/// Removals are short, and yet the space of what they remove comes back; as holes, where what is left lies behind it. The
/// database is opened again in between.
#[test]
fn space_of_what_was_removed_goes_back() {
    let io = MemoryIo::new();
    let store = open(&io);
    load(&store);
    let all = RECORDS * RECORD_BYTES as u64;
    assert!(io.used() > all && store.statistics().file_bytes > all);
    let mut numbers: Vec<u64> = (0..RECORDS).collect();
    Rng::new(1).shuffle(&mut numbers);
    let (gone, left) = numbers.split_at(RECORDS as usize * 9 / 10);
    let (first, second) = gone.split_at(gone.len() / 2);
    let mut next = 2;
    remove(&store, &mut next, first);
    drop(store);
    let store = open(&io);
    remove(&store, &mut next, second);
    let found = store.statistics();
    // Beside the records that are left as many again may be removed and not merged yet; and there are the manifest, the
    // journal, and what is free and stays.
    let most = all / 10 * 3 + (4 << 20);
    assert!(found.disk_bytes < most, "{found:?}");
    assert!(io.used() < most, "{} of {all} bytes are still taken: {found:?}", io.used());
    for number in left {
        let found = finish(&store, store.get(INDEX, &number.to_be_bytes())).expect("read");
        assert!(found.len() == 1 && found[0].record == record_of(*number), "{number}: {found:?}");
    }
    assert!(store.verify().is_sound());
    // There is room for as much again.
    let mut batch = Batch::new(BatchId(next));
    for number in first {
        batch.put(INDEX, &number.to_be_bytes(), &record_of(*number)).expect("short");
    }
    write(&store, batch);
    assert!(store.verify().is_sound());
}

/// Records that are removed at one time lie in a few places, mostly, and some of them everywhere: pieces over many
/// leaves of which most is in one.
#[test]
fn space_of_what_was_removed_in_places_goes_back() {
    let store = open(&MemoryIo::new());
    load(&store);
    let gone = RECORDS * 9 / 10;
    let mut places: Vec<Vec<u64>> = (0..gone).collect::<Vec<_>>().chunks(5400).map(<[u64]>::to_vec).collect();
    let mut everywhere: Vec<u64> = places.iter_mut().flat_map(|place| place.split_off(5000)).collect();
    let mut rng = Rng::new(2);
    rng.shuffle(&mut everywhere);
    rng.shuffle(&mut places);
    let mut next = 2;
    for (place, some) in places.iter().zip(everywhere.chunks(400)) {
        remove(&store, &mut next, &[&place[..], some].concat());
    }
    let (all, found) = (RECORDS * RECORD_BYTES as u64, store.statistics());
    assert!(found.disk_bytes < all / 10 * 3 + (4 << 20), "{found:?}");
    assert!(store.verify().is_sound());
}

/// The disk is full when the space of a hole is wanted again: an error, until there is space.
#[test]
fn holes_are_filled_before_they_are_used() {
    let io = MemoryIo::new();
    let store = open(&io);
    load(&store);
    let numbers: Vec<u64> = (0..RECORDS * 9 / 10).collect();
    let mut next = 2;
    remove(&store, &mut next, &numbers);
    let file =
        io.files().into_iter().find(|(path, _)| path.ends_with("store.pages")).expect("it is there").1.len();
    assert!(file as u64 > 2 * store.statistics().file_bytes, "there are holes: {file}");
    io.set_capacity(Some(io.used() + (3 << 20)));
    let back = &numbers[..20_000];
    let mut refused = 0;
    for some in back.chunks(500) {
        let batch = || {
            let mut batch = Batch::new(BatchId(next));
            for number in some {
                batch.put(INDEX, &number.to_be_bytes(), &record_of(*number)).expect("short");
            }
            batch
        };
        if let Err(error) = finish(&store, store.write(batch())) {
            assert!(error.is_full() && refused == 0, "{error}");
            refused += 1;
            io.set_capacity(None);
            while store.step(Step::Work) {}
            finish(&store, store.write(batch())).expect("there is space again");
        }
        finish(&store, store.confirm(BatchId(next))).expect("it waits");
        // Work that has no space is tried again and again.
        let _ = (0..30).take_while(|_| store.step(Step::Work)).count();
        next += 1;
    }
    assert_eq!(refused, 1, "ten megabytes have no room");
    while store.step(Step::Work) {}
    assert!(store.verify().is_sound());
    drop(store);
    let store = open(&io);
    let mut scan = store.scan(INDEX, &[], None, Direction::Forward);
    let mut there = 0;
    while finish(&store, scan.next()).expect("read").is_some() {
        there += 1;
    }
    assert_eq!(there, RECORDS / 10 + 20_000);
}
