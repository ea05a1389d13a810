//! The store against a map, under random operations, with its work done at random moments.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use thermocline_base::io::{Io, MemoryIo};
use thermocline_base::multiplex::block_on;
use thermocline_base::rng::Rng;

use super::super::*;

/// Small enough for all edges.
pub(super) fn options() -> StoreOptions {
    StoreOptions {
        memory_bytes: 8 << 10,
        segment_bytes: 32 << 10,
        leaf_bytes: 24 << 10,
        spare_bytes: 0,
        threads: 0,
        ..StoreOptions::new([7; 16])
    }
}

pub(super) fn dir() -> &'static Path {
    Path::new("/store")
}

pub(super) fn open(io: &MemoryIo) -> Arc<Store> {
    Store::open(Arc::new(io.clone()) as Arc<dyn Io>, dir(), options()).expect("it opens")
}

/// Polls a future while the journal is stepped.
pub(super) fn finish<T>(store: &Store, future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        let stepped = store.step(Step::Journal);
        let worked = !stepped && store.step(Step::Work);
        assert!(stepped || worked, "a future waits for something that does not come");
    }
}

type Key = (IndexId, Vec<u8>);

/// Bytes of a record in an object.
const OBJECT_ROW: usize = 40;

/// The records that entries lead to, read from their objects.
fn resolved(mut found: Vec<Found>) -> Vec<Found> {
    for found in &mut found {
        let Some(object) = found.object.take() else { continue };
        assert_eq!(object.batch(), found.batch);
        let position = u16::from_le_bytes([found.record[0], found.record[1]]);
        let from = object.front_bytes() + OBJECT_ROW as u64 * u64::from(position);
        let range = from..from + OBJECT_ROW as u64;
        found.record = block_on(object.read(range.clone())).expect("readable");
        let now = object.read_now(range).expect("readable");
        assert!(now.is_none_or(|now| now == found.record), "without waiting it is the same");
    }
    found
}

/// The entries that should be there, by key and batch; confirmed or not.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) entries: BTreeMap<Key, BTreeMap<u64, (bool, Vec<u8>)>>,
    /// Removals of unconfirmed batches.
    pub(super) waiting: BTreeMap<u64, Vec<(Key, u64)>>,
    /// Batches that were confirmed after they were written.
    pub(super) confirmed: std::collections::BTreeSet<u64>,
    pub(super) next_batch: u64,
    /// Batches with objects.
    objects: std::collections::BTreeSet<u64>,
}

impl Model {
    /// Is everything sound, and is what verification shows of a record in an object never without it?
    pub(super) fn verify(&self, store: &Store) -> std::result::Result<(), String> {
        let mut wrong = None;
        let verification = store.verify_with(&mut |seen| {
            let expected = seen.index.index == 0 && self.objects.contains(&seen.batch.0);
            if seen.object.is_some() != expected {
                wrong = Some(format!("{} of {} is shown without its object", seen.batch, seen.index));
            }
        });
        match verification.problems.first() {
            Some(problem) => Err(format!("verification: {problem}")),
            None => wrong.map_or(Ok(()), Err),
        }
    }

    pub(super) fn key(rng: &mut Rng) -> Key {
        let index = IndexId { table: 1 + rng.below(2) as u32, index: rng.below(2) as u32 };
        let key = format!("k{:03}", rng.below(150));
        let key = if rng.chance(0.1) { format!("{key}-and-a-longer-key") } else { key };
        (index, key.into_bytes())
    }

    /// A random batch: puts of some keys, each removing what is confirmed there, and removals.
    pub(super) fn batch(&mut self, rng: &mut Rng, confirmed: bool) -> (Batch, Model) {
        self.next_batch += 1;
        let id = self.next_batch;
        let mut after = self.clone();
        let mut batch = if confirmed { Batch::confirmed(BatchId(id)) } else { Batch::new(BatchId(id)) };
        let mut used = std::collections::BTreeSet::new();
        let mut removals = Vec::new();
        for _ in 0..rng.below(30) {
            let key = Self::key(rng);
            if !used.insert(key.clone()) {
                continue;
            }
            let claimed =
                |batch: &u64| self.waiting.values().flatten().any(|(other, of)| (other, of) == (&key, batch));
            let there: Vec<u64> = self.entries.get(&key).map_or(Vec::new(), |batches| {
                batches.iter().filter(|(_, (confirmed, _))| *confirmed).map(|(batch, _)| *batch).collect()
            });
            let all = rng.chance(0.8);
            // What an unconfirmed batch removes is decided later, when there may be other entries.
            let last = all && confirmed && !there.iter().any(claimed);
            for (at, of) in there.iter().enumerate() {
                if claimed(of) || (!all && rng.chance(0.5)) {
                    continue;
                }
                let which = if last && at + 1 == there.len() { Removal::Last } else { Removal::Only };
                batch.remove(key.0, &key.1, BatchId(*of), which).expect("short");
                removals.push((key.clone(), *of));
            }
            if rng.chance(0.7) {
                let bytes = if rng.chance(0.02) { rng.below(20_000) } else { rng.below(120) };
                let mut record = vec![0; bytes as usize];
                rng.fill(&mut record);
                batch.put(key.0, &key.1, &record).expect("short");
                after.entries.entry(key).or_default().insert(id, (confirmed, record));
            }
        }
        if confirmed {
            after.remove(&removals);
        } else {
            after.waiting.insert(id, removals);
        }
        (batch, after)
    }

    /// A random batch whose records stand in an object, and some entries of another index beside them. It removes nothing.
    pub(super) fn object_batch(&mut self, rng: &mut Rng) -> (ObjectBatch, Model) {
        self.next_batch += 1;
        let id = self.next_batch;
        let mut after = self.clone();
        let index = IndexId { table: 1 + rng.below(2) as u32, index: 0 };
        let other = IndexId { index: 1, ..index };
        let front = rng.below(9000) as usize;
        let (mut own, mut beside) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
        for _ in 0..=rng.below(40) {
            let (_, key) = Self::key(rng);
            _ = if rng.chance(0.8) { own.insert(key) } else { beside.insert(key) };
        }
        let mut bytes = vec![0; front + OBJECT_ROW * own.len()];
        rng.fill(&mut bytes);
        let mut entries = Vec::new();
        for (index, keys) in [(index, own), (other, beside)] {
            let mut of = ObjectEntries { index, ..ObjectEntries::default() };
            let positions = keys.len() as u16;
            for (at, key) in keys.into_iter().enumerate() {
                of.keys.extend_from_slice(&key);
                of.ends.push(of.keys.len() as u32);
                let mut record = Vec::new();
                if index.index == 0 {
                    // The last one first, so that order of keys and order of places differ.
                    let position = positions - 1 - at as u16;
                    of.records.extend_from_slice(&position.to_le_bytes());
                    record = bytes[front + OBJECT_ROW * usize::from(position)..][..OBJECT_ROW].to_vec();
                }
                after.entries.entry((index, key)).or_default().insert(id, (false, record));
            }
            entries.push(of);
        }
        after.waiting.insert(id, Vec::new());
        after.objects.insert(id);
        (ObjectBatch { id: BatchId(id), index, bytes, front_bytes: front as u32, entries }, after)
    }

    /// A batch that replaces every key but the long ones.
    pub(super) fn wide_batch(&mut self, record_bytes: usize, confirmed: bool) -> (Batch, Model) {
        self.next_batch += 1;
        let id = self.next_batch;
        let mut after = self.clone();
        let mut batch = if confirmed { Batch::confirmed(BatchId(id)) } else { Batch::new(BatchId(id)) };
        let mut removals = Vec::new();
        let numbers = (1..3).flat_map(|table| (0..2).map(move |index| IndexId { table, index }));
        for key in numbers.flat_map(|index| (0..150).map(move |at| (index, format!("k{at:03}").into_bytes())))
        {
            let claimed =
                |batch: &u64| self.waiting.values().flatten().any(|(other, of)| (other, of) == (&key, batch));
            let there = self.entries.get(&key).into_iter().flatten();
            for (of, _) in there.filter(|(of, (confirmed, _))| *confirmed && !claimed(of)) {
                batch.remove(key.0, &key.1, BatchId(*of), Removal::Only).expect("short");
                removals.push((key.clone(), *of));
            }
            let record = vec![id as u8; record_bytes];
            batch.put(key.0, &key.1, &record).expect("short");
            after.entries.entry(key).or_default().insert(id, (confirmed, record));
        }
        if confirmed {
            after.remove(&removals);
        } else {
            after.waiting.insert(id, removals);
        }
        (batch, after)
    }

    fn remove(&mut self, removals: &[(Key, u64)]) {
        for (key, batch) in removals {
            if let Some(batches) = self.entries.get_mut(key) {
                batches.remove(batch);
            }
        }
        self.entries.retain(|_, batches| !batches.is_empty());
    }

    pub(super) fn confirm(&mut self, id: u64) {
        let removals = self.waiting.remove(&id).expect("it waits");
        self.confirmed.insert(id);
        for batches in self.entries.values_mut() {
            if let Some((confirmed, _)) = batches.get_mut(&id) {
                *confirmed = true;
            }
        }
        self.remove(&removals);
    }

    pub(super) fn discard(&mut self, id: u64) {
        self.waiting.remove(&id).expect("it waits");
        for batches in self.entries.values_mut() {
            batches.remove(&id);
        }
        self.entries.retain(|_, batches| !batches.is_empty());
    }

    /// The entries that a store should give for a key.
    pub(super) fn found(&self, key: &Key) -> Vec<Found> {
        let batches = self.entries.get(key).into_iter().flatten().rev();
        batches
            .map(|(batch, (confirmed, record))| Found::new(BatchId(*batch), *confirmed, record.clone()))
            .collect()
    }

    /// Is the store's contents this? Says what differs.
    pub(super) fn compare(&self, store: &Store) -> std::result::Result<(), String> {
        let waiting: Vec<BatchId> = self.waiting.keys().map(|id| BatchId(*id)).collect();
        if store.unconfirmed() != waiting {
            return Err(format!("unconfirmed: {:?}, not {waiting:?}", store.unconfirmed()));
        }
        for table in 1..3 {
            for index in 0..2 {
                for number in 0..150 {
                    for key in [format!("k{number:03}"), format!("k{number:03}-and-a-longer-key")] {
                        let key = (IndexId { table, index }, key.into_bytes());
                        let expected = self.found(&key);
                        let now = store.get_now(key.0, &key.1).map_err(|error| error.to_string())?;
                        let found = block_on(store.get(key.0, &key.1)).map_err(|error| error.to_string())?;
                        let (now, found) = (now.map(resolved), resolved(found));
                        if now.is_some_and(|now| now != found) {
                            return Err(format!("{key:?} is not what it is without waiting"));
                        }
                        if found != expected {
                            return Err(format!("{key:?}: {found:?}, not {expected:?}"));
                        }
                        let mut together = [false];
                        store.may_contain_all(key.0, &[&key.1], &mut together);
                        assert_eq!(together, [store.may_contain(key.0, &key.1)]);
                        if !expected.is_empty() && !store.may_contain(key.0, &key.1) {
                            return Err(format!("{key:?}: a filter says no"));
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

fn run(seed: u64, steps: usize) {
    let mut rng = Rng::new(seed);
    let io = MemoryIo::new();
    let mut store = open(&io);
    let mut model = Model::default();
    for step in 0..steps {
        match rng.below(108) {
            100.. => {
                let (batch, after) = model.object_batch(&mut rng);
                finish(&store, store.write_object(batch)).expect("written");
                model = after;
            }
            0..50 => {
                let confirmed = rng.chance(0.7);
                let (batch, after) = model.batch(&mut rng, confirmed);
                finish(&store, store.write(batch)).expect("written");
                model = after;
            }
            50..62 => {
                if let Some(id) =
                    model.waiting.keys().nth(rng.below(model.waiting.len().max(1) as u64) as usize)
                {
                    let id = *id;
                    finish(&store, store.confirm(BatchId(id))).expect("it waits");
                    model.confirm(id);
                }
            }
            62..66 => {
                if let Some(id) =
                    model.waiting.keys().nth(rng.below(model.waiting.len().max(1) as u64) as usize)
                {
                    let id = *id;
                    finish(&store, store.discard(BatchId(id))).expect("discarded");
                    model.discard(id);
                }
            }
            66..96 => {
                store.step(Step::Work);
            }
            96 => while store.step(Step::Work) {},
            97 => {
                drop(store);
                store = open(&io);
            }
            98 => {
                let same = compare_ranges(&model, &store, &mut rng);
                same.unwrap_or_else(|error| panic!("seed {seed}, step {step}: {error}"));
            }
            _ => {
                model.compare(&store).unwrap_or_else(|error| panic!("seed {seed}, step {step}: {error}"));
                model.verify(&store).unwrap_or_else(|error| panic!("seed {seed}, step {step}: {error}"));
            }
        }
    }
    model.compare(&store).unwrap_or_else(|error| panic!("seed {seed}, at the end: {error}"));
    model.verify(&store).unwrap_or_else(|error| panic!("seed {seed}, at the end: {error}"));
    drop(store);
    model.compare(&open(&io)).unwrap_or_else(|error| panic!("seed {seed}, opened again: {error}"));
}

#[test]
fn a_store_is_a_map() {
    for seed in 0..12 {
        run(seed, 400);
    }
}

/// The store's ranges, in both directions, against the model's.
fn compare_ranges(model: &Model, store: &Store, rng: &mut Rng) -> std::result::Result<(), String> {
    for _ in 0..6 {
        let (one, two) = (Model::key(rng), Model::key(rng));
        let index = one.0;
        let (low, high) = (one.1.clone().min(two.1.clone()), one.1.max(two.1));
        let (low, high) = match rng.below(4) {
            0 => (Vec::new(), None),
            1 => (low, None),
            2 => (Vec::new(), Some(high)),
            _ => (low, Some(high)),
        };
        let in_range =
            |key: &Key| key.0 == index && key.1 >= low && high.as_ref().is_none_or(|high| key.1 < *high);
        let mut expected: Vec<FoundKey> = model
            .entries
            .keys()
            .filter(|key| in_range(key))
            .map(|key| FoundKey { key: key.1.clone(), entries: model.found(key) })
            .collect();
        if !expected.is_empty() && !store.may_contain_range(index, &low, high.as_deref()) {
            return Err(format!("{index} {low:?}..{high:?}: fences say no"));
        }
        for direction in [Direction::Forward, Direction::Backward] {
            let mut scan = store.scan(index, &low, high.as_deref(), direction);
            let mut found = Vec::new();
            while let Some(key) = block_on(scan.next()).map_err(|error| error.to_string())? {
                found.push(FoundKey { entries: resolved(key.entries), ..key });
            }
            if found != expected {
                return Err(format!(
                    "{direction:?} over {index} {low:?}..{high:?}: {found:?}, not {expected:?}"
                ));
            }
            expected.reverse();
        }
    }
    Ok(())
}
