//! Screens after opening: as many looks for an absent key as before.

use thermocline_base::io::MemoryIo;
use thermocline_base::rng::Rng;

use std::sync::Arc;

use super::super::version::Leaves;
use super::super::*;
use super::model::{dir, finish};

const INDEX: IndexId = IndexId { table: 1, index: 0 };

fn open(io: &MemoryIo) -> Arc<Store> {
    let options = StoreOptions {
        memory_bytes: 32 << 10,
        leaf_bytes: 384 << 10,
        young_percent: 10_000,
        young_max: 1000,
        threads: 0,
        ..StoreOptions::new([7; 16])
    };
    Store::open(Arc::new(io.clone()), dir(), options).expect("it opens")
}

fn write(store: &Store, batch: u64, numbers: impl Iterator<Item = u64>) {
    let mut written = Batch::confirmed(BatchId(batch));
    for number in numbers {
        written.put(INDEX, &number.to_be_bytes(), &[batch as u8; 60]).expect("short");
    }
    finish(store, store.write(written)).expect("written");
    while store.step(Step::Work) {}
}

/// Screens and filters that looks for a key ask in a leaf, in the worst one.
fn looks(store: &Store) -> (usize, usize) {
    let looks = store.inner.current().leaves.list.iter().map(|leaf| leaf.looks()).collect::<Vec<_>>();
    looks.into_iter().max_by_key(|(screens, filters)| screens + filters).expect("a leaf")
}

/// Most keys that are not there are seen not to be.
fn judge(store: &Store, step: usize) {
    let later = (2..60_000).step_by(step);
    for number in (0..60_000).step_by(4).chain(later) {
        assert!(store.may_contain(INDEX, &u64::to_be_bytes(number)), "record {number}");
    }
    let wrong =
        (0..60_000_u64).step_by(2).filter(|number| store.may_contain(INDEX, &(number + 1).to_be_bytes()));
    let wrong = wrong.count();
    assert!(wrong < 300, "{wrong} of 30000 keys may be there, but are not");
}

#[test]
fn as_many_filters_are_asked_after_opening_as_before() {
    let io = MemoryIo::new();
    let store = open(&io);
    let bulk: Vec<([u8; 8], [u8; 60])> =
        (0..60_000_u64).step_by(4).map(|number| (number.to_be_bytes(), [1; 60])).collect();
    store
        .bulk_load(BatchId(1), bulk.iter().map(|(key, record)| (INDEX, &key[..], &record[..])))
        .expect("sorted");
    assert!(store.statistics().leaves > 1);
    let mut rng = Rng::new(1);
    let mut rest: Vec<u64> = (2..60_000).step_by(12).collect();
    let mut batch = 2;
    while !rest.is_empty() {
        let part = (0..rest.len().min(250)).map(|_| rest.swap_remove(rng.below(rest.len() as u64) as usize));
        write(&store, batch, part.collect::<Vec<_>>().into_iter());
        batch += 1;
    }
    let (screens, filters) = looks(&store);
    let young = store.statistics().young_pieces_max as usize;
    assert!(
        young > 15 && screens > 0 && filters == 0,
        "{young} pieces, {screens} screens, {filters} filters"
    );
    assert!(screens * 2 < young, "{young} pieces behind {screens} screens");
    judge(&store, 12);
    let bytes = store.statistics().filter_memory_bytes;
    drop(store);
    let store = open(&io);
    assert_eq!(store.statistics().young_pieces_max as usize, young);
    assert_eq!(looks(&store), (screens, filters));
    assert_eq!(store.statistics().filter_memory_bytes, bytes);
    judge(&store, 12);
    // Pieces that come later go behind the screens that were made at opening, or new ones.
    write(&store, batch, (0..60_000).step_by(86));
    assert_eq!(looks(&store).1, 0);
    judge(&store, 12);
}

#[test]
fn pieces_over_several_leaves_are_asked_directly() {
    let io = MemoryIo::new();
    let store = open(&io);
    let bulk: Vec<([u8; 8], [u8; 60])> =
        (0..60_000_u64).step_by(4).map(|number| (number.to_be_bytes(), [1; 60])).collect();
    store
        .bulk_load(BatchId(1), bulk.iter().map(|(key, record)| (INDEX, &key[..], &record[..])))
        .expect("sorted");
    // Too long for memory, so it is written on its own, and confirmed it lies over all leaves.
    let mut batch = Batch::new(BatchId(2));
    for number in (2..60_000_u64).step_by(4) {
        batch.put(INDEX, &number.to_be_bytes(), &[2; 60]).expect("short");
    }
    finish(&store, store.write(batch)).expect("written");
    while store.step(Step::Work) {}
    let spilled = |waiting: &version::WaitingBatch| matches!(waiting, version::WaitingBatch::Piece { .. });
    assert!(store.inner.current().waiting.iter().all(spilled));
    drop(store);
    let store = open(&io);
    finish(&store, store.confirm(BatchId(2))).expect("it waits");
    while store.step(Step::Work) {}
    assert!(store.statistics().leaves > 1);
    assert_eq!(looks(&store), (0, 1));
    judge(&store, 4);
    drop(store);
    let store = open(&io);
    assert_eq!(looks(&store), (0, 1));
    judge(&store, 4);
}

/// Writes wide pieces while leaves are merged, and in each round does something to the leaves. The most filters that one look asked.
fn most_looks(worn: impl Fn(&Leaves)) -> usize {
    let options = StoreOptions {
        memory_bytes: 32 << 10,
        leaf_bytes: 32 << 10,
        young_percent: 60,
        threads: 0,
        ..StoreOptions::new([7; 16])
    };
    let store = Store::open(Arc::new(MemoryIo::new()), dir(), options).expect("it opens");
    let mut rng = Rng::new(3);
    let old: Vec<[u8; 8]> = (0..30_000_u64).map(|number| (number * 1000).to_be_bytes()).collect();
    store.bulk_load(BatchId(1), old.iter().map(|key| (INDEX, &key[..], &[1; 60][..]))).expect("sorted");
    assert!(store.statistics().leaves > 40, "{:?}", store.statistics());
    let (mut written, mut removed, mut merges, mut most) = (Vec::new(), Vec::new(), 0, 0);
    for batch in 2..400 {
        let mut of_batch = Batch::confirmed(BatchId(batch));
        for _ in 0..50 {
            let key = rng.below(30_000_000);
            of_batch.put(INDEX, &key.to_be_bytes(), &[batch as u8; 60]).expect("short");
            written.push((key, batch));
        }
        // Something goes again, so that what was merged somewhere is missed if it is seen there once more.
        for _ in 0..10 {
            let (key, of) = written.swap_remove(rng.below(written.len() as u64) as usize);
            if of < batch {
                of_batch.remove(INDEX, &key.to_be_bytes(), BatchId(of), Removal::Only).expect("short");
                removed.push((key, of));
            } else {
                written.push((key, of));
            }
        }
        finish(&store, store.write(of_batch)).expect("written");
        while store.step(Step::Work) {}
        let leaves = Arc::clone(&store.inner.current().leaves);
        most = most.max(leaves.list.iter().map(|leaf| leaf.looks().1).max().expect("a leaf"));
        merges = store.statistics().merges;
        worn(&leaves);
    }
    assert!(merges > 20, "{merges} merges");
    let ids = |key: u64| {
        let found = finish(&store, store.get(INDEX, &key.to_be_bytes())).expect("it can be read");
        found.into_iter().map(|found| found.batch.0).collect::<Vec<_>>()
    };
    for (key, of) in written {
        assert!(ids(key).contains(&of), "batch {of} of {key} is missing");
    }
    for (key, of) in removed {
        assert!(!ids(key).contains(&of), "batch {of} of {key} is back");
    }
    assert!(store.verify().is_sound());
    most
}

/// Leaves are merged all the time while wide pieces come: these are merged with each other all the same, so that looks stay
/// few. Each merge of a leaf used to make the wide pieces wait for sixteen others.
#[test]
fn wide_pieces_are_cut_while_leaves_are_merged() {
    let most = most_looks(|_| ());
    assert!(most <= 24, "{most} filters are asked");
}

/// The same where the front of a queue is merged in every round, wide pieces included, since scans pass many removed keys there. So
/// there were never sixteen in all leaves, and 40 filters were asked in a leaf; that made TPC-C slow when it had grown.
#[test]
fn wide_pieces_are_cut_while_a_queue_is_merged() {
    let most = most_looks(|leaves| {
        for at in [7, 30] {
            (0..leaves.passes(at)).for_each(|_| _ = leaves.list[at].note_passed());
        }
    });
    assert!(most <= 24, "{most} filters are asked");
}
