//! Batches in memory: what is durable in the journal and not yet in pieces.
//!
//! ```text
//!   hash of a key ─► table of slots: tag 16 bits · batch number + 1, 24 bits · entry number, 24 bits
//!                                                       │                          │
//!                     batches (as they were written) ◄──┘        its entry ◄───────┘
//! ```
//!
//! A [`MemoryBlock`] takes confirmed batches until it is full, is then *sealed*, and written as pieces by a flush.
//! A [`Waiting`] batch is unconfirmed and stands alone.
//!
//! Rules:
//! - One thread adds (the journal's), many read, nobody waits: batches, slots and the count of published batches only
//!   grow. A batch is published, by a release store of the count, after all of its slots are set; a reader loads the
//!   count first (acquire) and passes over slots of later batches. So it sees all of a batch or nothing.
//! - The block never fills: who adds asks [`MemoryBlock::takes`] first, which keeps a quarter of the slots empty, so
//!   probing ends.
//! - Sorted order is made only when a scan or a flush asks: segments of batches, each sorted, merged as they grow.

use std::cmp::Ordering as Order;
use std::sync::{Arc, OnceLock};

use thermocline_base::sync::{AtomicU64, AtomicUsize, Mutex, Ordering};

use super::codec;
use super::types::{Batch, BatchId, EntryRef, Kind};
use crate::prefetch::prefetch;

const BATCHES_MAX: usize = 1 << 14;

/// Where an entry stands in the sorted order of a block. It holds enough to sort short keys without looking at entries,
/// which would cost a cache miss each.
#[derive(Clone, Copy, Debug)]
pub(super) struct SortedRef {
    index: u64,
    head: u64,
    /// The complement of the entry's batch: the newest first.
    batch_descending: u64,
    /// Batch number, 24 bits · entry number, 24 bits · 0 · kind, 4 bits · length of the key, 4 bits: 15 if it is longer
    /// than its head.
    place: u64,
}

const LONG_KEY: u64 = 15;

impl SortedRef {
    fn of(batch: &Batch, entry: &EntryRef, number: usize, at: usize) -> Self {
        let key = batch.key(entry);
        let len = if key.len() <= 8 { key.len() as u64 } else { LONG_KEY };
        Self {
            index: entry.index,
            head: codec::head_of(key),
            batch_descending: !batch.entry_batch(entry),
            place: (number as u64) << 40 | (at as u64) << 16 | (entry.kind as u64) << 4 | len,
        }
    }

    pub(super) fn index(&self) -> u64 {
        self.index
    }

    pub(super) fn head(&self) -> u64 {
        self.head
    }

    fn batch(self) -> usize {
        (self.place >> 40) as usize
    }

    fn entry(self) -> usize {
        (self.place >> 16 & 0xff_ffff) as usize
    }

    /// The order of two that have index and head in common, if it can be told from here.
    fn order_behind_head(&self, other: &Self) -> Option<Order> {
        let (one, two) = (self.place & 15, other.place & 15);
        if one == LONG_KEY && two == LONG_KEY {
            return None;
        }
        // Of two keys with the same head the one that fits into it is the shorter one.
        let rest = |of: &Self| (of.batch_descending, of.place >> 4 & 15);
        Some(one.cmp(&two).then_with(|| rest(self).cmp(&rest(other))))
    }
}

/// A sorted list of entries.
pub(super) type Segment = Arc<Vec<SortedRef>>;

#[derive(Debug, Default)]
struct Segments {
    batches: usize,
    list: Vec<Segment>,
}

/// Confirmed batches.
#[derive(Debug)]
pub(super) struct MemoryBlock {
    batches: Box<[OnceLock<Arc<Batch>>]>,
    published: AtomicUsize,
    slots: Box<[AtomicU64]>,
    entries: AtomicUsize,
    bytes: AtomicUsize,
    /// The least number in the journal of the record that wrote one of its batches.
    least: AtomicU64,
    segments: Mutex<Segments>,
}

/// An entry in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryEntry<'a> {
    pub(super) index: u64,
    pub(super) hash: u64,
    pub(super) key: &'a [u8],
    pub(super) batch: u64,
    pub(super) kind: Kind,
    pub(super) value: &'a [u8],
}

impl<'a> MemoryEntry<'a> {
    fn of(batch: &'a Batch, entry: &EntryRef) -> Self {
        let value = if entry.kind == Kind::Put { batch.value(entry) } else { &[] };
        Self {
            index: entry.index,
            hash: entry.hash,
            key: batch.key(entry),
            batch: batch.entry_batch(entry),
            kind: entry.kind,
            value,
        }
    }

    fn order(&self, other: &Self) -> Order {
        self.index
            .cmp(&other.index)
            .then_with(|| self.key.cmp(other.key))
            .then_with(|| other.batch.cmp(&self.batch))
            .then_with(|| self.kind.cmp(&other.kind))
    }
}

fn tag_of(hash: u64) -> u64 {
    hash >> 48 << 48
}

impl MemoryBlock {
    /// An empty block for about `bytes`, and at least for a batch of `entries`.
    pub(super) fn new(bytes: usize, entries: usize) -> Self {
        let slots = (bytes / 64).max(entries * 2).max(64).next_power_of_two();
        Self {
            batches: (0..BATCHES_MAX).map(|_| OnceLock::new()).collect(),
            published: AtomicUsize::new(0),
            slots: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            entries: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            least: AtomicU64::new(u64::MAX),
            segments: Mutex::default(),
        }
    }

    /// Is there room for a batch of `entries`?
    pub(super) fn takes(&self, entries: usize) -> bool {
        let with = self.entries.load(Ordering::Relaxed) + entries;
        with <= self.slots.len() / 4 * 3 && self.published.load(Ordering::Relaxed) < BATCHES_MAX
    }

    /// Adds a batch that was written under a number. Only one thread at a time, and only if the block takes it.
    pub(super) fn add(&self, batch: Arc<Batch>, written: u64) {
        if written < self.least.load(Ordering::Relaxed) {
            self.least.store(written, Ordering::Relaxed);
        }
        let number = self.published.load(Ordering::Relaxed);
        let mask = self.slots.len() - 1;
        for (at, entry) in batch.entries.iter().enumerate() {
            let word = tag_of(entry.hash) | (number as u64 + 1) << 24 | at as u64;
            let mut slot = entry.hash as usize & mask;
            while self.slots[slot].load(Ordering::Relaxed) != 0 {
                slot = (slot + 1) & mask;
            }
            self.slots[slot].store(word, Ordering::Relaxed);
        }
        self.entries.fetch_add(batch.entries.len(), Ordering::Relaxed);
        self.bytes.fetch_add(batch.memory_bytes(), Ordering::Relaxed);
        let fresh = self.batches[number].set(batch).is_ok();
        assert!(fresh, "one thread at a time adds to a block");
        self.published.store(number + 1, Ordering::Release);
    }

    /// Memory that it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
            + self.slots.len() * size_of::<AtomicU64>()
            + self.batches.len() * size_of::<OnceLock<Arc<Batch>>>()
    }

    /// Memory of its batches.
    pub(super) fn batch_bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The journal's records from this one on are needed until the block is in pieces.
    pub(super) fn least(&self) -> u64 {
        self.least.load(Ordering::Relaxed)
    }

    /// How many batches can be seen.
    pub(super) fn published(&self) -> usize {
        self.published.load(Ordering::Acquire)
    }

    fn batch(&self, number: usize) -> &Arc<Batch> {
        self.batches[number].get().expect("a published batch is there")
    }

    /// May there be an entry with this hash?
    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            match self.slots[slot].load(Ordering::Relaxed) {
                0 => return false,
                word if word >> 48 == hash >> 48 => return true,
                _ => slot = (slot + 1) & mask,
            }
        }
    }

    /// Asks the processor for what [`MemoryBlock::may_contain`] will look at.
    #[inline]
    pub(super) fn prefetch_slot(&self, hash: u64) {
        prefetch(&raw const self.slots[hash as usize & (self.slots.len() - 1)]);
    }

    /// Calls `found` for all entries of a key in the first `published` batches.
    pub(super) fn for_key<'a>(
        &'a self,
        published: usize,
        index: u64,
        key: &[u8],
        hash: u64,
        mut found: impl FnMut(MemoryEntry<'a>),
    ) {
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            let word = self.slots[slot].load(Ordering::Relaxed);
            if word == 0 {
                return;
            }
            let number = (word >> 24 & 0xff_ffff) as usize - 1;
            if word >> 48 == hash >> 48 && number < published {
                let batch = self.batch(number);
                let entry = &batch.entries[(word & 0xff_ffff) as usize];
                if entry.hash == hash && entry.index == index && batch.key(entry) == key {
                    found(MemoryEntry::of(batch, entry));
                }
            }
            slot = (slot + 1) & mask;
        }
    }

    pub(super) fn entry(&self, at: SortedRef) -> MemoryEntry<'_> {
        let batch = self.batch(at.batch());
        MemoryEntry::of(batch, &batch.entries[at.entry()])
    }

    /// Asks the processor for what [`MemoryBlock::entry`] will read: first for the reference, later for the bytes.
    #[inline]
    pub(super) fn prefetch(&self, segment: &[SortedRef], next: usize) {
        if let Some(at) = segment.get(next + 16) {
            prefetch(&raw const self.batch(at.batch()).entries[at.entry()]);
        }
        if let Some(at) = segment.get(next + 8) {
            let batch = self.batch(at.batch());
            let bytes = &raw const batch.bytes[batch.entries[at.entry()].key_at as usize..];
            prefetch(bytes.cast::<u8>());
            prefetch(bytes.cast::<u8>().wrapping_add(64));
        }
    }

    /// Sorted segments of the first `published` batches, and perhaps of later ones.
    pub(super) fn segments(&self, published: usize) -> Vec<Segment> {
        let mut segments = self.segments.lock();
        if segments.batches < published {
            let fresh = self.sort(segments.batches, published);
            segments.batches = published;
            segments.list.push(Arc::new(fresh));
            while let [.., one, two] = &segments.list[..]
                && one.len() <= 2 * two.len()
            {
                let merged = self.merge(one, two);
                let rest = segments.list.len() - 2;
                segments.list.truncate(rest);
                segments.list.push(Arc::new(merged));
            }
        }
        segments.list.clone()
    }

    fn sort(&self, from: usize, to: usize) -> Vec<SortedRef> {
        let mut all = Vec::new();
        for number in from..to {
            let batch = self.batch(number);
            all.extend(sorted_refs(batch, number));
        }
        sort_refs(&mut all, |at| self.entry(at));
        all
    }

    fn merge(&self, one: &[SortedRef], two: &[SortedRef]) -> Vec<SortedRef> {
        let mut merged = Vec::with_capacity(one.len() + two.len());
        let (mut left, mut right) = (0, 0);
        while let (Some(a), Some(b)) = (one.get(left), two.get(right)) {
            let order = (a.index, a.head).cmp(&(b.index, b.head)).then_with(|| {
                a.order_behind_head(b).unwrap_or_else(|| self.entry(*a).order(&self.entry(*b)))
            });
            if order.is_le() {
                merged.push(*a);
                left += 1;
            } else {
                merged.push(*b);
                right += 1;
            }
        }
        merged.extend_from_slice(&one[left..]);
        merged.extend_from_slice(&two[right..]);
        merged
    }

    /// Whether an entry of a segment belongs to the first `published` batches.
    pub(super) fn is_published(at: SortedRef, published: usize) -> bool {
        at.batch() < published
    }

    /// The first position in a segment whose key is at or above `key` of `index`.
    pub(super) fn lower_bound(&self, segment: &[SortedRef], index: u64, key: &[u8]) -> usize {
        let head = codec::head_of(key);
        segment.partition_point(|at| match (at.index, at.head).cmp(&(index, head)) {
            Order::Less => true,
            Order::Greater => false,
            Order::Equal => self.entry(*at).key < key,
        })
    }
}

fn sorted_refs(batch: &Batch, number: usize) -> impl Iterator<Item = SortedRef> + '_ {
    batch.entries.iter().enumerate().map(move |(at, entry)| SortedRef::of(batch, entry, number, at))
}

/// By index and head first, without touching the entries; then what is equal in these.
fn sort_refs<'a>(all: &mut [SortedRef], entry: impl Fn(SortedRef) -> MemoryEntry<'a>) {
    all.sort_unstable_by_key(|at| u128::from(at.index) << 64 | u128::from(at.head));
    for equal in all.chunk_by_mut(|one, two| one.index == two.index && one.head == two.head) {
        if equal.len() > 1 {
            equal.sort_unstable_by(|one, two| {
                one.order_behind_head(two).unwrap_or_else(|| entry(*one).order(&entry(*two)))
            });
        }
    }
}

/// A batch whose owner has not decided yet.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) batch: Arc<Batch>,
    sorted: OnceLock<Vec<SortedRef>>,
}

impl Waiting {
    pub(super) fn new(batch: Arc<Batch>) -> Self {
        Self { batch, sorted: OnceLock::new() }
    }

    pub(super) fn id(&self) -> BatchId {
        self.batch.id()
    }

    pub(super) fn sorted(&self) -> &[SortedRef] {
        self.sorted.get_or_init(|| {
            let mut all: Vec<_> = sorted_refs(&self.batch, 0).collect();
            sort_refs(&mut all, |at| self.entry(at));
            all
        })
    }

    pub(super) fn entry(&self, at: SortedRef) -> MemoryEntry<'_> {
        MemoryEntry::of(&self.batch, &self.batch.entries[at.entry()])
    }

    /// The first position whose key is at or above `key` of `index`.
    pub(super) fn lower_bound(&self, index: u64, key: &[u8]) -> usize {
        self.sorted().partition_point(|at| {
            let entry = self.entry(*at);
            (entry.index, entry.key) < (index, key)
        })
    }

    /// Its entry of a key; removals of an unconfirmed batch have no effect yet.
    pub(super) fn find(&self, index: u64, key: &[u8]) -> Option<MemoryEntry<'_>> {
        let from = self.lower_bound(index, key);
        self.sorted()[from..]
            .iter()
            .map(|at| self.entry(*at))
            .take_while(|entry| (entry.index, entry.key) == (index, key))
            .find(|entry| entry.kind == Kind::Put)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.batch.memory_bytes()
            + self.sorted.get().map_or(0, |sorted| sorted.len() * size_of::<SortedRef>())
    }
}

#[cfg(test)]
mod tests {
    use super::super::types::{IndexId, Removal};
    use super::*;
    use thermocline_base::rng::Rng;

    fn batch(id: u64, keys: &[&[u8]]) -> Arc<Batch> {
        let mut batch = Batch::new(BatchId(id));
        for key in keys {
            batch.put(IndexId { table: 1, index: 0 }, key, &id.to_le_bytes()).expect("short");
        }
        Arc::new(batch)
    }

    const INDEX: u64 = 1 << 32;

    #[test]
    fn entries_of_a_key_are_found_in_the_published_batches() {
        let block = MemoryBlock::new(4096, 0);
        block.add(batch(1, &[b"a", b"b"]), 1);
        block.add(batch(2, &[b"b", b"c"]), 2);
        let hash = super::super::filter::hash_of(INDEX, b"b");
        let found = |published| {
            let mut found = Vec::new();
            block.for_key(published, INDEX, b"b", hash, |entry| found.push(entry.batch));
            found
        };
        assert_eq!((found(0), found(1), found(2)), (vec![], vec![1], vec![1, 2]));
        assert!(block.may_contain(hash));
        assert!(!block.may_contain(super::super::filter::hash_of(INDEX, b"d")));
    }

    #[test]
    fn segments_are_sorted_and_complete() {
        let mut rng = Rng::new(1);
        let block = MemoryBlock::new(1 << 16, 0);
        let mut expected = Vec::new();
        for id in 1..60 {
            let mut batch = Batch::new(BatchId(id));
            for _ in 0..rng.below(8) {
                let key: Vec<u8> = (0..rng.below(12)).map(|_| b"ab"[rng.below(2) as usize]).collect();
                if batch.entries.iter().any(|entry| batch.key(entry) == key) {
                    continue;
                }
                let index = IndexId { table: 1, index: rng.below(2) as u32 };
                batch.put(index, &key, b"r").expect("short");
                expected.push((index.as_u64(), key.clone(), u64::MAX - id, Kind::Put));
                if id > 1 {
                    batch.remove(index, &key, BatchId(id - 1), Removal::Last).expect("short");
                    expected.push((index.as_u64(), key, u64::MAX - (id - 1), Kind::RemoveLast));
                }
            }
            block.add(Arc::new(batch), id);
            if rng.chance(0.3) {
                let _ = block.segments(block.published());
            }
        }
        let mut found = Vec::new();
        for segment in block.segments(block.published()) {
            let entries: Vec<_> = segment.iter().map(|at| block.entry(*at)).collect();
            assert!(entries.windows(2).all(|pair| pair[0].order(&pair[1]).is_lt()));
            found.extend(
                entries
                    .iter()
                    .map(|entry| (entry.index, entry.key.to_vec(), u64::MAX - entry.batch, entry.kind)),
            );
        }
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
    }
}
