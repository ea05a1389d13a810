//! The direct store when the machine stops, the device fails, or it is asked for what it does not keep.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thermocline_base::depth;
use thermocline_base::ids::{IndexId, TableId};
use thermocline_base::io::{Action, Fault, FaultKind, Io, MemoryIo, RecordingIo};
use thermocline_base::multiplex::block_on;
use thermocline_base::rng::Rng;
use thermocline_pool::error::WrongFile;
use thermocline_pool::store::{Batch, BatchId, Direction, Removal, StoreError};

use super::super::direct::{DirectOptions, DirectStore};
use super::super::store::{ColdStore, Pending, StoreTies, primary_of, push_secondary, secondary_of};
use super::model::{DATABASE, Kind, Model, TABLE, collect, direct_options, group, key};

pub(super) fn dir() -> &'static Path {
    Path::new("/db/cold")
}

/// Without a thread, so that the order of operations is the test's.
pub(super) fn options() -> DirectOptions {
    DirectOptions { thread: false, ..direct_options() }
}

pub(super) fn open_with(
    io: &(impl Io + Clone + 'static),
    options: DirectOptions,
) -> Result<Arc<DirectStore>, StoreError> {
    DirectStore::open(&(Arc::new(io.clone()) as Arc<dyn Io>), dir(), options, StoreTies::default())
        .map(Arc::new)
}

pub(super) fn open(io: &(impl Io + Clone + 'static)) -> Arc<DirectStore> {
    open_with(io, options()).expect("it opens")
}

/// Polls a future while the store is stepped.
pub(super) fn finish<T>(store: &DirectStore, mut future: Pending<'_, T>) -> Result<T, StoreError> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        assert!(store.step(), "a future waits for something that does not come");
    }
}

/// What was acknowledged after how many operations on files.
struct History {
    io: RecordingIo,
    states: Vec<(usize, Model)>,
}

fn history(seed: u64, steps: usize) -> History {
    let mut rng = Rng::new(seed);
    let io = RecordingIo::new(&MemoryIo::new());
    let mut store = open(&io);
    let mut model = Model::new(Kind::Direct);
    let mut states = vec![(io.operations(), model.clone())];
    for _ in 0..steps {
        match rng.below(10) {
            0..6 => {
                let (batch, after) = model.batch(rng.next_u64(), rng.chance(0.6));
                finish(&store, store.write(batch)).expect("written");
                model = after;
            }
            6..8 => {
                let Some(id) = model.waiting_one(rng.next_u64()) else { continue };
                finish(&store, store.confirm(BatchId(id))).expect("it waits");
                model.confirm(id);
            }
            8 => {
                let Some(id) = model.waiting_one(rng.next_u64()) else { continue };
                finish(&store, store.discard(BatchId(id))).expect("discarded");
                model.discard(id);
            }
            _ => {
                drop(store);
                store = open(&io);
            }
        }
        states.push((io.operations(), model.clone()));
    }
    History { io, states }
}

impl History {
    /// Opens what a crash leaves: the last state that was acknowledged, or the one that was on its way.
    fn check(&self, operations: usize, seed: u64) {
        let at = |state: &Model| format!("crash after {operations} operations, seed {seed}: {state:?}");
        let image = self.io.crash(operations, seed);
        let last =
            self.states.iter().rposition(|(after, _)| *after <= operations).expect("from the first on");
        let candidates = &self.states[last..self.states.len().min(last + 2)];
        let store = open(&image) as Arc<dyn ColdStore>;
        let fits = candidates.iter().find(|(_, model)| model.is_in(&store));
        let model = &fits.unwrap_or_else(|| panic!("{}", at(&candidates[0].1))).1;
        model.compare(&store);
        drop(store);
        // Once more: what opening has done is durable and whole.
        let store = open(&image) as Arc<dyn ColdStore>;
        assert!(model.is_in(&store), "opened again, {}", at(model));
    }
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_else_comes_back() {
    for seed in depth::seed()..depth::seed() + depth::either(1, 4) {
        let history = history(seed, 60);
        let first = history.states[0].0;
        let stride = ((history.io.operations() - first) / depth::either(40, 80)).max(1);
        for operations in (first..=history.io.operations()).step_by(stride) {
            (0..4).for_each(|draw| history.check(operations, draw));
        }
    }
}

#[test]
fn every_operation_of_a_short_life_may_be_the_last() {
    let history = history(11, 16);
    for operations in history.states[0].0..=history.io.operations() {
        (0..3).for_each(|draw| history.check(operations, draw));
    }
}

#[test]
fn a_store_whose_creation_was_interrupted_is_created() {
    let io = RecordingIo::new(&MemoryIo::new());
    drop(open(&io));
    for operations in 0..=io.operations() {
        for seed in 0..4 {
            let image = io.crash(operations, seed);
            let store = open(&image);
            finish(&store, store.write(batch(1, 0..4))).expect("written");
            drop(store);
            assert_eq!(block_on(open(&image).get(primary_of(TABLE), &key(3))).expect("readable").len(), 1);
        }
    }
}

pub(super) fn batch(id: u64, keys: std::ops::Range<u64>) -> Batch {
    let mut batch = Batch::confirmed(BatchId(id));
    for number in keys {
        batch.put(primary_of(TABLE), &key(number), &[id as u8; 300]).expect("short");
        let mut entry = Vec::new();
        push_secondary(&mut entry, &group(number), &key(number));
        batch.put(secondary_of(TABLE, IndexId(3)), &entry, b"").expect("short");
    }
    batch
}

pub(super) fn fault(on: Action, skip: u64, times: u64, kind: FaultKind) -> Fault {
    Fault { on, skip, times, kind }
}

pub(super) fn records(store: &Arc<DirectStore>) -> usize {
    let store = Arc::clone(store) as Arc<dyn ColdStore>;
    collect(&store, primary_of(TABLE), &[], None, Direction::Forward).len()
}

#[test]
fn a_key_whose_predecessor_is_not_cleaned_is_refused() {
    let store = open(&MemoryIo::new());
    finish(&store, store.write(batch(1, 0..10))).expect("written");
    let error = finish(&store, store.write(batch(2, 9..12))).expect_err("9 is there");
    assert!(matches!(error, StoreError::Occupied { predecessor: BatchId(1), .. }), "{error}");
    assert!(error.to_string().contains("batch 1") && error.to_string().contains("cleaned"), "{error}");
    // Nothing of it is there, and its id may be used again.
    assert!(!store.may_contain(primary_of(TABLE), &key(11)));
    let mut removal = Batch::confirmed(BatchId(3));
    removal.remove(primary_of(TABLE), &key(9), BatchId(1), Removal::Only).expect("short");
    finish(&store, store.write(removal)).expect("written");
    // The secondary entry still leads there.
    let error = finish(&store, store.write(batch(2, 9..12))).expect_err("its secondary entry is there");
    assert!(matches!(error, StoreError::Occupied { .. }), "{error}");
    let mut removal = Batch::confirmed(BatchId(4));
    let mut entry = Vec::new();
    push_secondary(&mut entry, &group(9), &key(9));
    removal.remove(secondary_of(TABLE, IndexId(3)), &entry, BatchId(1), Removal::Only).expect("short");
    finish(&store, store.write(removal)).expect("written");
    finish(&store, store.write(batch(2, 9..12))).expect("it is free");
    assert_eq!(records(&store), 12);
}

#[test]
fn what_a_direct_store_does_not_keep_is_refused_by_name() {
    let store = open(&MemoryIo::new());
    let refused = |fill: &dyn Fn(&mut Batch)| {
        let mut batch = Batch::confirmed(BatchId(1));
        fill(&mut batch);
        finish(&store, store.write(batch)).expect_err("it is refused")
    };
    let error = refused(&|batch| batch.put(primary_of(TABLE), b"a name", b"").expect("short"));
    assert!(
        matches!(error, StoreError::Unsupported { .. }) && error.to_string().contains("one integer"),
        "{error}"
    );
    let error = refused(&|batch| batch.put(primary_of(TABLE), &key(1), &[0; 2000]).expect("short"));
    assert!(matches!(error, StoreError::RecordTooLong { bytes: 2000, max_bytes: 976 }), "{error}");
    let error = refused(&|batch| {
        let mut entry = Vec::new();
        push_secondary(&mut entry, &group(1), &key(1));
        batch.put(secondary_of(TABLE, IndexId(3)), &entry, b"").expect("short");
    });
    assert!(error.to_string().contains("with its record"), "{error}");
    finish(&store, store.write(batch(1, 0..2))).expect("written");
    let error = refused(&|batch| batch.put(primary_of(TABLE), &[1; 4], b"").expect("short"));
    assert!(error.to_string().contains("one length"), "{error}");
    let short = DirectOptions { slot_bytes: 700, ..options() };
    assert!(matches!(open_with(&MemoryIo::new(), short), Err(StoreError::BadOption(_))));
}

#[test]
fn keys_of_all_lengths_have_their_order() {
    let store = open(&MemoryIo::new());
    for (table, len) in [(10, 2), (11, 4), (12, 8)] {
        let index = primary_of(TableId(table));
        let keys: Vec<Vec<u8>> =
            [0, 1, 17, 255, 4000].map(|n: u64| n.to_be_bytes()[8 - len..].to_vec()).into();
        let last = vec![0xff; len];
        let mut batch = Batch::confirmed(BatchId(u64::from(table)));
        keys.iter().chain([&last]).for_each(|key| batch.put(index, key, b"record").expect("short"));
        finish(&store, store.write(batch)).expect("written");
        let all = Arc::clone(&store) as Arc<dyn ColdStore>;
        let found: Vec<_> =
            collect(&all, index, &[], None, Direction::Forward).into_iter().map(|found| found.key).collect();
        assert_eq!(found, keys.iter().chain([&last]).cloned().collect::<Vec<_>>());
        // Bounds that are no keys: longer ones, and shorter ones.
        let behind = [&keys[2][..], &[0]].concat();
        assert_eq!(collect(&all, index, &behind, None, Direction::Backward).len(), 3);
        assert_eq!(collect(&all, index, &[], Some(&behind), Direction::Backward).len(), 3);
        assert_eq!(collect(&all, index, &[0xff], None, Direction::Forward).len(), 1);
        assert!(collect(&all, index, &[&last[..], &[0]].concat(), None, Direction::Forward).is_empty());
    }
}

#[test]
fn a_block_that_cannot_be_read_is_named_and_others_can() {
    let io = RecordingIo::new(&MemoryIo::new());
    let store = open(&io);
    finish(&store, store.write(batch(1, 0..40))).expect("written");
    io.inject(fault(Action::Read, 0, 1, FaultKind::Broken));
    let error = block_on(store.get(primary_of(TABLE), &key(3))).expect_err("the device is broken");
    assert!(matches!(&error, StoreError::Io(_)) && error.to_string().contains("slots-"), "{error}");
    assert_eq!(block_on(store.get(primary_of(TABLE), &key(3))).expect("it was once").len(), 1);
}

#[test]
fn short_reads_go_on() {
    let io = RecordingIo::new(&MemoryIo::new());
    io.short_reads(true);
    let store = open(&io);
    finish(&store, store.write(batch(1, 0..40))).expect("written");
    assert_eq!(records(&store), 40);
    drop(store);
    assert_eq!(records(&open(&io)), 40);
}

#[test]
fn a_failed_sync_is_final() {
    // Of the slots, and of the decisions.
    for skip in [0, 1] {
        let io = RecordingIo::new(&MemoryIo::new());
        let store = open(&io);
        finish(&store, store.write(batch(1, 0..16))).expect("written");
        io.inject(fault(Action::Sync, skip, 1, FaultKind::Broken));
        let mut more = Batch::confirmed(BatchId(2));
        more.put(primary_of(TABLE), &key(16), b"more").expect("short");
        let _ = finish(&store, store.write(more)).expect_err("it may not be there");
        if skip == 1 {
            // The first sync was that of a new file's header.
            assert!(matches!(finish(&store, store.write(batch(3, 17..18))), Err(StoreError::ReadOnly(_))));
            assert!(matches!(finish(&store, store.discard(BatchId(9))), Err(StoreError::ReadOnly(_))));
        }
        assert_eq!(records(&store), 16, "reads go on");
        drop(store);
        let store = open(&io);
        assert!((16..=17).contains(&records(&store)));
        finish(&store, store.write(batch(4, 20..21))).expect("opened again");
    }
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_space() {
    let memory = MemoryIo::new();
    let store = open(&memory);
    finish(&store, store.write(batch(1, 0..16))).expect("written");
    memory.set_capacity(Some(memory.used()));
    let error = finish(&store, store.write(batch(2, 16..20))).expect_err("there is no space for a file");
    assert!(error.is_full(), "{error}");
    assert!(!store.may_contain_range(primary_of(TABLE), &key(16), None));
    assert_eq!(records(&store), 16);
    memory.set_capacity(None);
    finish(&store, store.write(batch(2, 16..20))).expect("there is space");
    drop(store);
    assert_eq!(records(&open(&memory)), 20);
}

#[test]
fn a_removal_that_cannot_reach_its_slot_holds_all_the_same() {
    let io = RecordingIo::new(&MemoryIo::new());
    let store = open(&io);
    finish(&store, store.write(batch(1, 0..8))).expect("written");
    io.inject(fault(Action::Read, 0, 1, FaultKind::Broken));
    let mut removal = Batch::confirmed(BatchId(2));
    removal.remove(primary_of(TABLE), &key(2), BatchId(1), Removal::Only).expect("short");
    finish(&store, store.write(removal)).expect("the decision is durable");
    io.heal();
    assert!(block_on(store.get(primary_of(TABLE), &key(2))).expect("readable").is_empty());
    assert_eq!(records(&store), 7);
    drop(store);
    let store = open(&io);
    assert_eq!(records(&store), 7);
}

pub(super) fn file_of(memory: &MemoryIo, prefix: &str) -> PathBuf {
    let files = memory.files();
    let name =
        |path: &&PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
    files.keys().find(name).expect("there is such a file").clone()
}

#[test]
fn a_damaged_slot_is_named_and_others_are_served() {
    let memory = MemoryIo::new();
    let store = open(&memory);
    finish(&store, store.write(batch(1, 0..8))).expect("written");
    drop(store);
    // The third slot's body; its header is whole.
    memory.flip(&file_of(&memory, "slots-"), 4096 + 2 * 1024 + 100, 1);
    let store = open(&memory);
    let error = block_on(store.get(primary_of(TABLE), &key(2))).expect_err("it is damaged");
    assert!(matches!(&error, StoreError::Damaged { offset: 6144, .. }), "{error}");
    assert_eq!(block_on(store.get(primary_of(TABLE), &key(3))).expect("whole").len(), 1);
    // Nobody knows which secondary entries it had: no filter says no, and no lookup pretends to be whole.
    assert!(store.may_contain_group(secondary_of(TABLE, IndexId(3)), b"nothing like it"));
    let error = block_on(store.get_group(secondary_of(TABLE, IndexId(3)), &group(3))).expect_err("not whole");
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
}

#[test]
fn foreign_newer_damaged_and_other_databases_files_are_named() {
    for (prefix, newer) in [("slots-", 256 + 1), ("direct", 256 + 4)] {
        let memory = MemoryIo::new();
        let store = open(&memory);
        assert!(matches!(open_with(&memory, options()), Err(StoreError::InUse { .. })));
        finish(&store, store.write(batch(1, 0..8))).expect("written");
        drop(store);
        let path = file_of(&memory, prefix);
        let error = |offset, mask| {
            let copy = memory.copy();
            copy.flip(&path, offset, mask);
            open_with(&copy, options()).expect_err("it is noticed")
        };
        assert!(matches!(error(0, 0xff), StoreError::File(WrongFile::Foreign { .. })));
        let found = error(9, 1);
        assert!(
            matches!(found, StoreError::File(WrongFile::Newer { found, .. }) if found == newer),
            "{found}"
        );
        let found = error(8, newer as u8);
        assert!(matches!(found, StoreError::File(WrongFile::Older { found: 0, .. })), "{found}");
        assert!(matches!(error(13, 1), StoreError::Damaged { offset: 0, .. }));
        let other = DirectOptions { database_id: [9; 16], ..options() };
        let error = open_with(&memory, other).expect_err("another database's");
        assert!(
            matches!(error, StoreError::File(WrongFile::OtherDatabase { found: DATABASE, .. })),
            "{error}"
        );
    }
}

#[test]
fn a_damaged_decision_that_is_not_the_last_is_noticed() {
    let memory = MemoryIo::new();
    // All decisions stay in one file.
    let options = DirectOptions { decisions_bytes: 1 << 20, ..options() };
    let store = open_with(&memory, options).expect("it opens");
    for id in 1..5 {
        finish(&store, store.write(batch(id, id * 4..id * 4 + 4))).expect("written");
    }
    drop(store);
    let path = file_of(&memory, "direct");
    let copy = memory.copy();
    copy.flip(&path, 4096 + 30, 1);
    let error = open_with(&copy, options).expect_err("later decisions are whole");
    assert!(matches!(error, StoreError::Damaged { offset: 4096, .. }), "{error}");
}
