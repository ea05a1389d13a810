//! What a cold store should hold, as plain maps; and the stores under test.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use thermocline_base::ids::{IndexId, TableId};
use thermocline_base::io::{Io, MemoryIo};
use thermocline_base::multiplex::block_on;
use thermocline_base::rng::Rng;
use thermocline_frozen::{Builder, Choice};
use thermocline_pool::store::{
    Batch, BatchId, Direction, FoundKey, IndexId as StoreIndex, Removal, StoreOptions,
};

use super::super::direct::{DirectOptions, DirectStore};
use super::super::memory::MemoryStore;
use super::super::pages::{self, PageStore};
use super::super::store::{
    BlockBatch, BlockEntries, ColdStore, Entries, Look, PackedKeys, StoreMemory, StoreTies, primary_of,
    push_secondary, secondary_of, split_secondary,
};
use crate::row::{Column, Layout, Type, Value};

pub(super) const TABLE: TableId = TableId(4);
pub(super) const INDEX: IndexId = IndexId(3);
pub(super) const DATABASE: [u8; 16] = [3; 16];
/// Keys of the model's records; as many as a reader of a failure can look through.
const KEYS: u64 = 40;
const GROUPS: u64 = 7;

/// The key of a record, as the engine encodes integers.
pub(super) fn key(id: u64) -> Vec<u8> {
    (id ^ 1 << 63).to_be_bytes().to_vec()
}

/// The key of a group.
pub(super) fn group(of: u64) -> Vec<u8> {
    format!("g{of:05}").into_bytes()
}

/// A store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Pages,
    Memory,
    Direct,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Pages, Self::Memory, Self::Direct];

    /// May a key have several records?
    fn takes_several(self) -> bool {
        self != Self::Direct
    }
}

/// An entry that a look has found: batch, primary key, record.
pub(super) type Looked = (u64, Vec<u8>, Vec<u8>);

/// What a look without waiting finds under a key (of a group). `None`: it does not answer.
pub(super) fn look(
    store: &Arc<dyn ColdStore>,
    index: StoreIndex,
    key: &[u8],
    of_group: bool,
) -> Option<Vec<Looked>> {
    let mut entries = Entries::default();
    let outcome = match of_group {
        true => store.look_group(index, key, &mut entries),
        false => store.look(index, key, &mut entries),
    };
    let found = (0..entries.len()).map(|at| entries.get(at));
    match outcome {
        Look::Away => None,
        Look::Absent => Some(Vec::new()),
        Look::Here => Some(found.map(|it| (it.batch, it.key.to_vec(), it.bytes.to_vec())).collect()),
    }
}

/// Few slots a file, so that several files come together.
pub(super) fn direct_options() -> DirectOptions {
    DirectOptions {
        segment_slots: 16,
        slot_bytes: 1024,
        decisions_bytes: 16 << 10,
        ..DirectOptions::new(DATABASE)
    }
}

/// A store under test, with what it lies on.
pub(super) struct Under {
    kind: Kind,
    io: MemoryIo,
    store: Option<Arc<dyn ColdStore>>,
}

impl Under {
    pub(super) fn new(kind: Kind) -> Self {
        let mut under = Self { kind, io: MemoryIo::new(), store: None };
        under.open();
        under
    }

    fn open(&mut self) {
        let (io, dir) = (Arc::new(self.io.clone()) as Arc<dyn Io>, Path::new("/db/cold"));
        self.store = Some(match self.kind {
            Kind::Pages => {
                let options = StoreOptions {
                    memory_bytes: 16 << 10,
                    segment_bytes: 64 << 10,
                    leaf_bytes: 24 << 10,
                    ..pages::options(DATABASE, StoreMemory::within(None))
                };
                Arc::new(PageStore::open(io, dir, options).expect("it opens"))
            }
            Kind::Memory => Arc::new(MemoryStore::new()),
            Kind::Direct => Arc::new(
                DirectStore::open(&io, dir, direct_options(), StoreTies::default()).expect("it opens"),
            ),
        });
    }

    pub(super) fn store(&self) -> &Arc<dyn ColdStore> {
        self.store.as_ref().expect("it is open")
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// Does "maybe" outlast what it was about?
    pub(super) fn is_lazy(&self) -> bool {
        self.kind == Kind::Pages
    }

    /// Closes the store and opens it again. `false`: it keeps nothing.
    pub(super) fn reopen(&mut self) -> bool {
        if self.kind == Kind::Memory {
            return false;
        }
        self.store().close();
        self.store = None;
        self.open();
        true
    }
}

/// All keys of a range, as a scan gives them.
pub(super) fn collect(
    store: &Arc<dyn ColdStore>,
    index: StoreIndex,
    low: &[u8],
    high: Option<&[u8]>,
    direction: Direction,
) -> Vec<FoundKey> {
    let mut scan = store.scan(index, low, high, direction);
    std::iter::from_fn(|| block_on(scan.next()).expect("readable")).collect()
}

/// What is done to a store. Choices are drawn from the seed.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Write { seed: u64, confirmed: bool },
    WriteBlock(u64),
    Confirm(u64),
    Discard(u64),
    Look(u64),
    Reopen,
}

impl Op {
    pub(super) fn any() -> impl Strategy<Value = Self> {
        prop_oneof![
            8 => (any::<u64>(), any::<bool>()).prop_map(|(seed, confirmed)| Self::Write { seed, confirmed }),
            2 => any::<u64>().prop_map(Self::WriteBlock),
            3 => any::<u64>().prop_map(Self::Confirm),
            2 => any::<u64>().prop_map(Self::Discard),
            6 => any::<u64>().prop_map(Self::Look),
            1 => Just(Self::Reopen),
        ]
    }
}

type Entry = (StoreIndex, Vec<u8>);

/// What should be there.
#[derive(Clone, Debug)]
pub(super) struct Model {
    kind: Kind,
    /// Records by batch.
    pub(super) entries: BTreeMap<Entry, BTreeMap<u64, Vec<u8>>>,
    /// Removals of the batches that wait.
    pub(super) waiting: BTreeMap<u64, Vec<(Entry, u64)>>,
    next_batch: u64,
}

impl Model {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, entries: BTreeMap::new(), waiting: BTreeMap::new(), next_batch: 1 }
    }

    /// A random batch, and the model after it.
    pub(super) fn batch(&self, seed: u64, confirmed: bool) -> (Batch, Self) {
        let mut rng = Rng::new(seed);
        let mut after = self.clone();
        let id = after.next_batch;
        after.next_batch += 1;
        let mut batch = if confirmed { Batch::confirmed(BatchId(id)) } else { Batch::new(BatchId(id)) };
        let mut removals: Vec<(Entry, u64)> = Vec::new();
        let mut used = BTreeSet::new();
        let claimed: BTreeSet<_> = self.waiting.values().flatten().cloned().collect();
        for _ in 0..rng.below(12) {
            let number = rng.below(KEYS);
            if !used.insert(number) {
                continue;
            }
            let key = key(number);
            let primary = (primary_of(TABLE), key.clone());
            let there = self.entries.get(&primary);
            // A slot is free when all entries that lead to it are gone.
            let of_key = |entry: &Entry| match split_secondary(&entry.1) {
                Some((_, of)) if entry.0.index != 0 => of == key,
                _ => entry.0.index == 0 && entry.1 == key,
            };
            if there.is_none() && !self.kind.takes_several() && self.entries.keys().any(of_key) {
                continue;
            }
            if there.is_none() || (self.kind.takes_several() && rng.chance(0.3)) {
                let longest = if rng.chance(0.05) { 400 } else { 50 };
                let record = vec![id as u8; rng.below(longest) as usize];
                batch.put(primary.0, &key, &record).expect("short");
                after.entries.entry(primary).or_default().insert(id, record);
                for _ in 0..rng.below(3) {
                    let mut entry = Vec::new();
                    push_secondary(&mut entry, &group(rng.below(GROUPS)), &key);
                    let index = secondary_of(TABLE, IndexId(INDEX.0 + rng.below(2) as u32));
                    let batches = after.entries.entry((index, entry.clone())).or_default();
                    if batches.insert(id, Vec::new()).is_none() {
                        batch.put(index, &entry, b"").expect("short");
                    }
                }
                continue;
            }
            // All entries that a batch wrote for a key, or some of them.
            let confirmed_one =
                there.and_then(|batches| batches.keys().copied().find(|of| !self.waiting.contains_key(of)));
            let Some(named) = confirmed_one else { continue };
            let all = rng.chance(0.8);
            for (entry, batches) in &self.entries {
                let meant = of_key(entry) && batches.contains_key(&named);
                if !meant || claimed.contains(&(entry.clone(), named)) || (!all && rng.chance(0.4)) {
                    continue;
                }
                let last = confirmed && batches.len() == 1;
                let which = if last { Removal::Last } else { Removal::Only };
                batch.remove(entry.0, &entry.1, BatchId(named), which).expect("short");
                removals.push((entry.clone(), named));
            }
        }
        if confirmed {
            after.remove(&removals);
        } else {
            after.waiting.insert(id, removals);
        }
        (batch, after)
    }

    /// A random batch whose records stand in one block, and the model after it. It removes nothing.
    fn block_batch(&self, seed: u64) -> (BlockBatch, Self) {
        let mut rng = Rng::new(seed);
        let mut after = self.clone();
        let id = after.next_batch;
        after.next_batch += 1;
        let layout = Arc::new(Layout::new(&[Column::new("of", Type::Bytes)]).expect("a layout"));
        let numbers: BTreeSet<u64> = (0..=rng.below(12)).map(|_| rng.below(KEYS)).collect();
        let has_hidden = rng.chance(0.5);
        let (mut builder, mut hidden) = (Builder::new(&layout), Vec::new());
        let mut indexes: BTreeMap<StoreIndex, BTreeMap<Vec<u8>, u16>> = BTreeMap::new();
        let mut position = 0;
        // Places are in another order than keys.
        for number in numbers.into_iter().rev() {
            position += 1 + rng.below(1500) as u16;
            let key = key(number);
            let mut row = Vec::new();
            let value = Value::Bytes(vec![id as u8; rng.below(60) as usize]);
            layout.encode(&[value], &mut row).expect("it fits");
            builder.push(position, &row).expect("places ascend");
            if has_hidden {
                hidden.resize(usize::from(position), 0);
                hidden.push(number);
                row.extend_from_slice(&number.to_le_bytes());
            }
            if rng.chance(0.1) {
                // A row that has stayed in memory, of which the block has bytes all the same.
                continue;
            }
            after.entries.entry((primary_of(TABLE), key.clone())).or_default().insert(id, row);
            indexes.entry(primary_of(TABLE)).or_default().insert(key.clone(), position);
            for _ in 0..rng.below(3) {
                let mut entry = Vec::new();
                push_secondary(&mut entry, &group(rng.below(GROUPS)), &key);
                let index = secondary_of(TABLE, IndexId(INDEX.0 + rng.below(2) as u32));
                after.entries.entry((index, entry.clone())).or_default().insert(id, Vec::new());
                indexes.entry(index).or_default().insert(entry, position);
            }
        }
        after.waiting.insert(id, Vec::new());
        let indexes = indexes.into_iter().map(|(index, entries)| {
            let mut keys = PackedKeys::default();
            entries.keys().for_each(|key| keys.push(key));
            BlockEntries { index, keys, positions: entries.into_values().collect() }
        });
        let block = builder.finish(id, Choice::PointReads).expect("it has rows");
        let (id, table) = (BatchId(id), TABLE);
        (BlockBatch { id, table, block, hidden, layout, indexes: indexes.collect() }, after)
    }

    fn remove(&mut self, removals: &[(Entry, u64)]) {
        for (entry, batch) in removals {
            if let Some(batches) = self.entries.get_mut(entry) {
                batches.remove(batch);
            }
        }
        self.entries.retain(|_, batches| !batches.is_empty());
    }

    pub(super) fn waiting_one(&self, choice: u64) -> Option<u64> {
        let count = self.waiting.len() as u64;
        (count > 0).then(|| *self.waiting.keys().nth((choice % count) as usize).expect("in range"))
    }

    pub(super) fn confirm(&mut self, id: u64) {
        let removals = self.waiting.remove(&id).expect("it waits");
        self.remove(&removals);
    }

    pub(super) fn discard(&mut self, id: u64) {
        self.waiting.remove(&id).expect("it waits");
        self.entries.values_mut().for_each(|batches| drop(batches.remove(&id)));
        self.entries.retain(|_, batches| !batches.is_empty());
    }

    /// Does something to the store and to the model.
    pub(super) fn run(&mut self, under: &mut Under, op: &Op) {
        let store = Arc::clone(under.store());
        match op {
            Op::Write { seed, confirmed } => {
                let (batch, after) = self.batch(*seed, *confirmed);
                block_on(store.write(batch)).expect("written");
                *self = after;
            }
            Op::WriteBlock(seed) => {
                if store.takes_blocks() {
                    let (batch, after) = self.block_batch(*seed);
                    block_on(store.write_block(batch)).expect("written");
                    *self = after;
                }
            }
            Op::Confirm(choice) => {
                let Some(id) = self.waiting_one(*choice) else { return };
                block_on(store.confirm(BatchId(id))).expect("it waits");
                self.confirm(id);
            }
            Op::Discard(choice) => {
                let Some(id) = self.waiting_one(*choice) else { return };
                block_on(store.discard(BatchId(id))).expect("discarded");
                self.discard(id);
            }
            Op::Look(seed) => self.look(&store, *seed),
            Op::Reopen => {
                drop(store);
                under.reopen();
            }
        }
    }

    fn expected(&self, index: StoreIndex, low: &[u8], high: Option<&[u8]>) -> Vec<FoundKey> {
        let entries = self.entries.range((index, low.to_vec())..);
        entries
            .take_while(|((of, key), _)| *of == index && high.is_none_or(|high| &key[..] < high))
            .map(|((_, key), batches)| FoundKey { key: key.clone(), entries: self.found(batches) })
            .collect()
    }

    fn found(&self, batches: &BTreeMap<u64, Vec<u8>>) -> Vec<thermocline_pool::store::Found> {
        let found = |(batch, record): (&u64, &Vec<u8>)| {
            thermocline_pool::store::Found::new(
                BatchId(*batch),
                !self.waiting.contains_key(batch),
                record.clone(),
            )
        };
        batches.iter().rev().map(found).collect()
    }

    fn indexes() -> [StoreIndex; 3] {
        [primary_of(TABLE), secondary_of(TABLE, INDEX), secondary_of(TABLE, IndexId(INDEX.0 + 1))]
    }

    /// Looks at random things.
    fn look(&self, store: &Arc<dyn ColdStore>, seed: u64) {
        let mut rng = Rng::new(seed);
        let number = rng.below(KEYS);
        self.compare_key(store, number);
        self.compare_group(store, rng.below(GROUPS));
        let index = Self::indexes()[rng.below(3) as usize];
        let mut bound = || match index.index {
            0 => key(rng.below(KEYS)),
            _ => group(rng.below(GROUPS)),
        };
        let (low, high) = (bound(), bound());
        let high = rng.chance(0.8).then_some(&high[..]);
        self.compare_range(store, index, &low, high);
    }

    fn compare_key(&self, store: &Arc<dyn ColdStore>, number: u64) {
        let key = key(number);
        let expected = self.entries.get(&(primary_of(TABLE), key.clone())).map(|of| self.found(of));
        if expected.is_some() {
            assert!(store.may_contain(primary_of(TABLE), &key), "a false no for record {number}");
        }
        let expected = expected.unwrap_or_default();
        if let Some(mut now) = look(store, primary_of(TABLE), &key, false) {
            now.sort_unstable_by_key(|(batch, ..)| std::cmp::Reverse(*batch));
            let of_model = expected.iter().map(|found| (found.batch.0, key.clone(), found.record.clone()));
            assert_eq!(now, of_model.collect::<Vec<_>>(), "record {number} without waiting");
        }
        let found = block_on(store.get(primary_of(TABLE), &key)).expect("readable");
        assert_eq!(found, expected, "record {number}");
    }

    fn compare_group(&self, store: &Arc<dyn ColdStore>, of: u64) {
        for index in &Self::indexes()[1..] {
            let (low, high) = (group(of), group(of + 1));
            let expected = self.expected(*index, &low, Some(&high));
            if !expected.is_empty() {
                assert!(store.may_contain_group(*index, &low), "a false no for group {of} of {index}");
                assert!(store.may_contain(*index, &expected[0].key), "a false no in group {of} of {index}");
            }
            if let Some(mut now) = look(store, *index, &low, true) {
                let mut of_model: Vec<_> = (expected.iter())
                    .flat_map(|of| of.entries.iter().map(|found| (found.batch.0, &of.key)))
                    .filter_map(|(batch, key)| Some((batch, split_secondary(key)?.1.to_vec(), Vec::new())))
                    .collect();
                now.sort_unstable();
                of_model.sort_unstable();
                assert_eq!(now, of_model, "group {of} of {index} without waiting");
            }
            let found = block_on(store.get_group(*index, &low)).expect("readable");
            assert_eq!(found, expected, "group {of} of {index}");
            for entry in &expected {
                let found = block_on(store.get(*index, &entry.key)).expect("readable");
                assert_eq!(found, entry.entries, "an entry of group {of} of {index}");
            }
        }
    }

    fn compare_range(&self, store: &Arc<dyn ColdStore>, index: StoreIndex, low: &[u8], high: Option<&[u8]>) {
        let mut expected =
            if high.is_some_and(|high| high <= low) { Vec::new() } else { self.expected(index, low, high) };
        if !expected.is_empty() {
            assert!(store.may_contain_range(index, low, high), "a false no for a range of {index}");
        }
        assert_eq!(collect(store, index, low, high, Direction::Forward), expected, "{index} forward");
        expected.reverse();
        assert_eq!(collect(store, index, low, high, Direction::Backward), expected, "{index} backward");
    }

    /// Does the store hold what the model says? Asks for ranges only.
    pub(super) fn is_in(&self, store: &Arc<dyn ColdStore>) -> bool {
        let waiting: Vec<_> = self.waiting.keys().map(|id| BatchId(*id)).collect();
        store.unconfirmed() == waiting
            && Self::indexes().into_iter().all(|index| {
                collect(store, index, &[], None, Direction::Forward) == self.expected(index, &[], None)
            })
    }

    /// Is the store as the model says?
    pub(super) fn compare(&self, store: &Arc<dyn ColdStore>) {
        let waiting: Vec<_> = self.waiting.keys().map(|id| BatchId(*id)).collect();
        assert_eq!(store.unconfirmed(), waiting);
        assert!(self.entries.is_empty() || store.may_contain_table(TABLE));
        (0..KEYS).for_each(|number| self.compare_key(store, number));
        (0..GROUPS).for_each(|of| self.compare_group(store, of));
        for index in Self::indexes() {
            self.compare_range(store, index, &[], None);
        }
    }
}
