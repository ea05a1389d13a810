//! Files that are damaged, foreign, newer, or another database's.

use std::sync::Arc;

use thermocline_base::io::{Io, MemoryIo};
use thermocline_base::multiplex::block_on;
use thermocline_base::rng::Rng;

use super::super::*;
use super::model::{dir, finish, options};
use crate::page::PageSize;

const INDEX: IndexId = IndexId { table: 1, index: 0 };

fn open(io: &MemoryIo, options: StoreOptions) -> Result<Arc<Store>> {
    Store::open(Arc::new(io.clone()) as Arc<dyn Io>, dir(), options)
}

/// A store with pieces and a journal.
fn filled() -> MemoryIo {
    let io = MemoryIo::new();
    let store = open(&io, options()).expect("it opens");
    for id in 1..8_u64 {
        let mut batch = Batch::confirmed(BatchId(id));
        for number in 0..100_u64 {
            batch.put(INDEX, &number.to_be_bytes(), &[id as u8; 60]).expect("short");
        }
        finish(&store, store.write(batch)).expect("written");
        store.step(Step::Work);
    }
    while store.step(Step::Work) {}
    let mut batch = Batch::confirmed(BatchId(8));
    batch.put(INDEX, b"last", b"record").expect("short");
    finish(&store, store.write(batch)).expect("written");
    drop(store);
    io
}

fn change(io: &MemoryIo, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> MemoryIo {
    let mut files = io.files();
    change(files.get_mut(&dir().join(name)).expect("it is there"));
    MemoryIo::with_files(io.directories(), files)
}

fn journal(io: &MemoryIo) -> String {
    let names = io.list(dir()).expect("listed");
    names.into_iter().rfind(|name| name.starts_with("journal-")).expect("there is one")
}

#[test]
fn foreign_newer_and_other_databases_files_are_named() {
    let io = filled();
    let names = ["store.manifest".to_owned(), "store.pages".into(), journal(&io)];
    for name in &names {
        let foreign = change(&io, name, |bytes| bytes[..8].copy_from_slice(b"whatever"));
        let error = open(&foreign, options()).expect_err("foreign").to_string();
        assert!(error.contains(name.as_str()) && error.contains(" no "), "{error}");
        let newer = change(&io, name, |bytes| bytes[8] = 99);
        let error = open(&newer, options()).expect_err("newer").to_string();
        assert!(error.contains("format 99") && error.contains(name.as_str()), "{error}");
    }
    let error =
        open(&io, StoreOptions { database_id: [8; 16], ..options() }).expect_err("another database's");
    assert!(error.to_string().contains("belongs to database 0707"), "{error}");
    let other = StoreOptions { page_size: PageSize::new(8192).expect("a page size"), ..options() };
    open(&io, other).expect("a store keeps its own page size");
    let held = open(&io, options()).expect("it opens");
    assert!(matches!(open(&io, options()), Err(StoreError::InUse { .. })));
    drop(held);
    open(&io, options()).expect("it is free again");
}

#[test]
fn lost_files_are_named() {
    let io = filled();
    for name in ["store.manifest".to_owned(), "store.pages".into(), journal(&io)] {
        let mut files = io.files();
        files.retain(|path, _| {
            !path.ends_with(&name)
                && (!name.starts_with("journal") || !path.to_string_lossy().contains("journal"))
        });
        let lost = MemoryIo::with_files(io.directories(), files);
        let error = open(&lost, options()).expect_err("a file is missing").to_string();
        assert!(error.contains(if name.starts_with("journal") { "journal" } else { &name }), "{error}");
    }
}

#[test]
fn a_cut_page_file_is_named() {
    let io = filled();
    let cut = change(&io, "store.pages", |bytes| bytes.truncate(3 * 32 * 4096));
    let error = open(&cut, options()).expect_err("it was cut").to_string();
    assert!(error.contains("cut"), "{error}");
}

/// Numbers of all pages of a kind in the page file.
fn pages_of(io: &MemoryIo, kind: crate::page::PageKind) -> Vec<usize> {
    let file = io.files().remove(&dir().join("store.pages")).expect("it is there");
    let page = options().page_size.bytes();
    (1..file.len() / page).filter(|number| file[number * page + 4..][..2] == kind.0.to_le_bytes()).collect()
}

#[test]
fn damaged_fences_and_filters_are_made_again() {
    let page = options().page_size.bytes();
    let second = IndexId { table: 1, index: 7 };
    let io = MemoryIo::new();
    let store = open(&io, options()).expect("it opens");
    let of = |id: u64, number: u64| vec![id as u8; (number * number % 9000) as usize];
    let mut written = 0;
    let write = |store: &Store, written: &mut u64| {
        *written += 1;
        let mut batch = Batch::confirmed(BatchId(*written));
        for number in 0..100_u64 {
            batch.put(INDEX, &number.to_be_bytes(), &of(*written, number)).expect("short");
            batch.put(second, &(number * 3).to_be_bytes(), &[]).expect("short");
        }
        finish(store, store.write(batch)).expect("written");
    };
    // All of it in the last piece of a leaf, and then young pieces with removals beside it.
    for _ in 0..6 {
        write(&store, &mut written);
        while store.step(Step::Work) {}
    }
    for _ in 0..2 {
        write(&store, &mut written);
        let mut removals = Batch::confirmed(BatchId(100 + written));
        removals.remove(INDEX, &3_u64.to_be_bytes(), BatchId(written), Removal::Only).expect("short");
        finish(&store, store.write(removals)).expect("written");
        store.step(Step::Work);
    }
    let check = |store: &Store| {
        for number in 0..100_u64 {
            let found = block_on(store.get(INDEX, &number.to_be_bytes())).expect("readable");
            let ids: Vec<u64> = found.iter().map(|found| found.batch.0).collect();
            let expected: Vec<u64> = (1..=written).rev().filter(|id| number != 3 || *id < 7).collect();
            assert_eq!(ids, expected, "record {number}");
            assert!(found.iter().all(|found| found.record == of(found.batch.0, number)));
            let found = block_on(store.get(second, &(number * 3).to_be_bytes())).expect("readable");
            assert_eq!(found.len() as u64, written);
        }
        assert!(!store.may_contain(INDEX, b"absent") || !store.may_contain(INDEX, b"absent, too"));
    };
    check(&store);
    store.close();
    let pieces = store.statistics().pieces;
    assert!(pieces > 2, "{pieces} pieces");
    drop(store);

    let tails = pages_of(&io, block::TAIL);
    assert!(tails.len() as u64 >= pieces);
    for at in [1000, 20] {
        let damaged = change(&io, "store.pages", |bytes| {
            tails.iter().for_each(|number| bytes[number * page + at] ^= 4);
        });
        let store = open(&damaged, options()).expect("rows are whole");
        assert_eq!(store.statistics().remade_tails, pieces);
        check(&store);
        let problems = store.verify().problems;
        assert_eq!(problems.len() as u64, pieces, "{problems:?}");
        assert!(problems.iter().all(|problem| matches!(problem, StoreError::Tail { .. })), "{problems:?}");
        // Merges write them anew.
        let mut last = written;
        while store.verify().problems.len() as u64 > pieces / 2 {
            write(&store, &mut last);
            while store.step(Step::Work) {}
            assert!(last < written + 200, "{:?}", store.verify().problems);
        }
    }

    // With a page of records as well, the records are lost.
    let data = pages_of(&io, block::DATA);
    let damaged = change(&io, "store.pages", |bytes| {
        tails.iter().chain(&data).for_each(|number| bytes[number * page + 1000] ^= 4);
    });
    let error = open(&damaged, options()).expect_err("records are damaged");
    assert!(
        matches!(&error, StoreError::Page { index, number, .. } if index.table == 1 && data.contains(&(*number as usize))),
        "{error}"
    );
}

#[test]
fn flipped_bytes_are_noticed_or_do_not_matter() {
    let io = filled();
    let mut rng = Rng::new(3);
    let expected = |store: &Store| -> Result<()> {
        for number in 0..100_u64 {
            let found = block_on(store.get(INDEX, &number.to_be_bytes()))?;
            assert_eq!(found.len(), 7);
            assert!(found.iter().all(|found| found.record == [found.batch.0 as u8; 60]));
        }
        Ok(())
    };
    for name in ["store.manifest", "store.pages"] {
        for _ in 0..300 {
            let flipped = change(&io, name, |bytes| {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << rng.below(8);
            });
            let Ok(store) = open(&flipped, options()) else { continue };
            if let Ok(()) = expected(&store) {
                continue;
            }
            assert!(!store.verify().is_sound(), "what a reader notices, verification does");
        }
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    for options in [
        StoreOptions { memory_bytes: 10, ..options() },
        StoreOptions { young_percent: 0, ..options() },
        StoreOptions { young_max: 1, ..options() },
    ] {
        assert!(matches!(open(&MemoryIo::new(), options), Err(StoreError::BadOption(_))));
    }
    assert!(PageSize::new(5000).is_err());
}

#[test]
fn pages_of_all_sizes_work() {
    for bytes in [4096, 16384, 65536] {
        let io = MemoryIo::new();
        let page_size = PageSize::new(bytes).expect("a page size");
        let options = || StoreOptions { page_size, ..options() };
        let store = open(&io, options()).expect("it opens");
        let mut batch = Batch::confirmed(BatchId(1));
        for number in 0..300_u64 {
            let record = vec![number as u8; (number * 100 % 90_000) as usize];
            batch.put(INDEX, &number.to_be_bytes(), &record).expect("short");
        }
        finish(&store, store.write(batch)).expect("written");
        while store.step(Step::Work) {}
        drop(store);
        let store = open(&io, options()).expect("it opens");
        for number in 0..300_u64 {
            let found = block_on(store.get(INDEX, &number.to_be_bytes())).expect("readable");
            assert_eq!(found[0].record, vec![number as u8; (number * 100 % 90_000) as usize]);
        }
        assert!(store.verify().is_sound());
    }
}
