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
//! - One thread adds (the journal's), many read, and none waits: batches, slots and the count of published batches
//!   only grow. A batch is published, by a release store of the count, after all of its slots are set; a reader loads
//!   the count first (acquire) and passes over slots of later batches. So it sees all of a batch or nothing.
//! - The block never fills: the thread that adds asks [`MemoryBlock::takes`] first, which keeps a quarter of the
//!   slots empty, so probing ends.
//! - Keys with tails have one slot a group, which says that there is something of it; what, is found in sorted order.
//!   With a slot for each entry a large group would be one long chain of slots.
//! - Sorted order is made only when a scan or a flush asks: segments of batches, each sorted, merged as they grow.

use std::cmp::Ordering as Order;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use thermocline_base::sync::{AtomicU64, AtomicUsize, Mutex, Ordering};

use super::codec;
use super::filter::has_tails;
use super::types::{Batch, BatchId, EntryRef, Kind};
use crate::mutation::{self, Rule};
use thermocline_base::prefetch::prefetch;

/// Batches of a block: more than these only when they are short, and a block of short ones is sealed early.
const BATCHES_MIN: usize = 1 << 7;
const BATCHES_MAX: usize = 1 << 14;
const BYTES_A_BATCH: usize = 1 << 10;

/// Where an entry stands in the sorted order of a block. It holds enough to sort short keys without looking at entries, and
/// all that a batch's table of entries says: walking in sorted order, each look at that would cost a cache miss.
#[derive(Clone, Copy, Debug)]
pub(super) struct SortedRef {
    index: u64,
    head: u64,
    /// The complement of the entry's batch: the newest first.
    batch_descending: u64,
    hash: u64,
    key_at: u32,
    value_len: u32,
    /// Batch number, 24 bits · length of the key, 32 bits · kind, 4 bits · length of the key, 4 bits: 15 if it is longer
    /// than its head.
    place: u64,
}

const LONG_KEY: u64 = 15;
/// Number of entries ahead of its turn at which an entry's slot is asked for: the table is longer than caches are.
const SLOTS_AHEAD: usize = 12;
/// Number of entries ahead of its turn in sorted order at which an entry's bytes are asked for.
const ENTRIES_AHEAD: usize = 20;

impl SortedRef {
    fn of(batch: &Batch, entry: &EntryRef, number: usize) -> Self {
        let key = batch.key(entry);
        let len = if key.len() <= 8 { key.len() as u64 } else { LONG_KEY };
        Self {
            index: entry.index,
            head: codec::head_of(key),
            batch_descending: !batch.entry_batch(entry),
            hash: entry.hash,
            key_at: entry.key_at,
            value_len: entry.value_len,
            place: (number as u64) << 40 | (key.len() as u64) << 8 | (entry.kind as u64) << 4 | len,
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

    fn key_len(self) -> usize {
        (self.place >> 8 & 0xffff_ffff) as usize
    }

    fn kind(self) -> Kind {
        Kind::from_bits((self.place >> 4 & 15) as u8).expect("it was made from one")
    }

    /// The entry, which `batch` holds.
    #[inline]
    fn entry(self, batch: &Batch) -> MemoryEntry<'_> {
        let (kind, at) = (self.kind(), self.key_at as usize);
        let end = at + self.key_len();
        let value = if kind == Kind::Put { &batch.bytes[end..end + self.value_len as usize] } else { &[] };
        MemoryEntry {
            index: self.index,
            hash: self.hash,
            key: &batch.bytes[at..end],
            batch: !self.batch_descending,
            kind,
            value,
        }
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
    /// Memory of the segments. Not the façade's: it decides nothing.
    segment_bytes: std::sync::atomic::AtomicUsize,
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
            batches: (0..(bytes / BYTES_A_BATCH).clamp(BATCHES_MIN, BATCHES_MAX))
                .map(|_| OnceLock::new())
                .collect(),
            published: AtomicUsize::new(0),
            slots: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            entries: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            least: AtomicU64::new(u64::MAX),
            segments: Mutex::default(),
            segment_bytes: std::sync::atomic::AtomicUsize::new(0),
        }
    }

    /// Is there room for a batch of `entries`?
    pub(super) fn takes(&self, entries: usize) -> bool {
        let with = self.entries.load(Ordering::Relaxed) + entries;
        with <= self.slots.len() / 4 * 3 && self.published.load(Ordering::Relaxed) < self.batches.len()
    }

    /// Adds a batch that was written under a number. Only one thread at a time, and only if the block takes it.
    pub(super) fn add(&self, batch: Arc<Batch>, written: u64) {
        if written < self.least.load(Ordering::Relaxed) {
            self.least.store(written, Ordering::Relaxed);
        }
        let number = self.published.load(Ordering::Relaxed);
        let early = mutation::off(Rule::BatchPublishedLast);
        if early {
            self.publish(number, Arc::clone(&batch));
        }
        let mask = self.slots.len() - 1;
        for (at, entry) in batch.entries.iter().enumerate() {
            if let Some(later) = batch.entries.get(at + SLOTS_AHEAD) {
                self.prefetch_slot(later.hash);
            }
            let word = tag_of(entry.hash) | (number as u64 + 1) << 24 | at as u64;
            let mut slot = entry.hash as usize & mask;
            let tailed = has_tails(entry.index);
            let free = loop {
                match self.slots[slot].load(Ordering::Relaxed) {
                    0 => break true,
                    // That says maybe for the group already.
                    there if tailed && tag_of(there) == tag_of(word) => break false,
                    _ => slot = (slot + 1) & mask,
                }
            };
            if free {
                self.slots[slot].store(word, Ordering::Relaxed);
            }
        }
        self.entries.fetch_add(batch.entries.len(), Ordering::Relaxed);
        self.bytes.fetch_add(batch.memory_bytes(), Ordering::Relaxed);
        if !early {
            self.publish(number, batch);
        }
    }

    fn publish(&self, number: usize, batch: Arc<Batch>) {
        let fresh = self.batches[number].set(batch).is_ok();
        assert!(fresh, "one thread at a time adds to a block");
        self.published.store(number + 1, Ordering::Release);
    }

    /// Memory that it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
            + self.slots.len() * size_of::<AtomicU64>()
            + self.batches.len() * size_of::<OnceLock<Arc<Batch>>>()
            + self.segment_bytes.load(Ordering::Relaxed)
    }

    /// Memory of its batches.
    pub(super) fn batch_bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The journal's records from this one on are needed until the block is in pieces.
    pub(super) fn least(&self) -> u64 {
        self.least.load(Ordering::Relaxed)
    }

    /// Calls `see` with each entry of the published batches: index, kind, bytes of key and record.
    pub(super) fn for_each_size(&self, mut see: impl FnMut(u64, Kind, u64)) {
        for number in 0..self.published() {
            for entry in &self.batch(number).entries {
                let value_len = if entry.kind == Kind::Put { entry.value_len } else { 0 };
                see(entry.index, entry.kind, u64::from(entry.key_len) + u64::from(value_len));
            }
        }
    }

    /// Number of batches that can be seen.
    pub(super) fn published(&self) -> usize {
        self.published.load(Ordering::Acquire)
    }

    /// The batches that can be seen, in their order.
    pub(super) fn batches(&self) -> impl Iterator<Item = Arc<Batch>> + '_ {
        (0..self.published()).map(|number| Arc::clone(self.batch(number)))
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
        if has_tails(index) {
            if self.may_contain(hash) {
                self.for_sorted(published, index, key, |entry| entry.key == key, found);
            }
            return;
        }
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            let word = self.slots[slot].load(Ordering::Relaxed);
            if word == 0 {
                return;
            }
            let number = (word >> 24 & 0xff_ffff) as usize - 1;
            let seen = number < published || mutation::off(Rule::ReaderPassesUnpublished);
            if word >> 48 == hash >> 48 && seen {
                let batch = self.batch(number);
                let entry = &batch.entries[(word & 0xff_ffff) as usize];
                if entry.hash == hash && entry.index == index && batch.key(entry) == key {
                    found(MemoryEntry::of(batch, entry));
                }
            }
            slot = (slot + 1) & mask;
        }
    }

    /// Calls `found` for the entries of the first `published` batches from `low` on, as long as they are `wanted`.
    pub(super) fn for_sorted<'a>(
        &'a self,
        published: usize,
        index: u64,
        low: &[u8],
        wanted: impl Fn(&MemoryEntry<'a>) -> bool,
        mut found: impl FnMut(MemoryEntry<'a>),
    ) {
        for segment in self.segments(published) {
            let entries = segment[self.lower_bound(&segment, index, low)..].iter();
            entries
                .map(|at| (*at, self.entry(*at)))
                .take_while(|(_, entry)| entry.index == index && wanted(entry))
                .filter(|(at, _)| Self::is_published(*at, published))
                .for_each(|(_, entry)| found(entry));
        }
    }

    pub(super) fn entry(&self, at: SortedRef) -> MemoryEntry<'_> {
        at.entry(self.batch(at.batch()))
    }

    /// Asks the processor for what [`MemoryBlock::entry`] will read a while later.
    #[inline]
    pub(super) fn prefetch(&self, segment: &[SortedRef], next: usize) {
        if let Some(at) = segment.get(next + ENTRIES_AHEAD) {
            let bytes = (&raw const self.batch(at.batch()).bytes[at.key_at as usize..]).cast::<u8>();
            prefetch(bytes);
            if at.kind() == Kind::Put {
                prefetch(bytes.wrapping_add(64));
                prefetch(bytes.wrapping_add(128));
            }
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
            let entries: usize = segments.list.iter().map(|segment| segment.capacity()).sum();
            self.segment_bytes.store(entries * size_of::<SortedRef>(), Ordering::Relaxed);
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

    /// Does an entry of a segment belong to the first `published` batches?
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

    /// The entries of a range in a segment. O(log of how many there are) beyond finding the first.
    pub(super) fn range(
        &self,
        segment: &[SortedRef],
        index: u64,
        low: &[u8],
        high: Option<&[u8]>,
    ) -> Range<usize> {
        let start = self.lower_bound(segment, index, low);
        let head = high.map(codec::head_of);
        let is_within = |at: &SortedRef| match (at.index.cmp(&index), high, head) {
            (Order::Equal, Some(high), Some(head)) => match at.head.cmp(&head) {
                Order::Less => true,
                Order::Greater => false,
                Order::Equal => self.entry(*at).key < high,
            },
            (order, ..) => order.is_le(),
        };
        start..start + count_leading(&segment[start..], is_within)
    }
}

/// Number of items at the front of a list that fulfil what nothing behind them does. O(log of them).
fn count_leading<T>(list: &[T], is_in: impl Fn(&T) -> bool) -> usize {
    let (mut known, mut step) = (0, 1);
    while let Some(item) = list.get(known + step - 1) {
        if !is_in(item) {
            return known + list[known..known + step].partition_point(is_in);
        }
        (known, step) = (known + step, step * 2);
    }
    known + list[known..].partition_point(is_in)
}

fn sorted_refs(batch: &Batch, number: usize) -> impl Iterator<Item = SortedRef> + '_ {
    batch.entries.iter().map(move |entry| SortedRef::of(batch, entry, number))
}

/// Lists from this length on are divided before they are sorted.
const DIVIDE_FROM: usize = 4096;
/// Bits of the head that divide, at most. What is then sorted on its own fits into the nearest cache.
const DIVIDE_BITS_MAX: u32 = 12;

/// By index and head first, without touching the entries; then what is equal in these.
fn sort_refs<'a>(all: &mut Vec<SortedRef>, entry: impl Fn(SortedRef) -> MemoryEntry<'a>) {
    let mut ends = Vec::new();
    divide(all, &mut ends);
    let mut start = 0;
    for end in ends {
        let part = &mut all[start..end];
        start = end;
        part.sort_unstable_by_key(|at| u128::from(at.index) << 64 | u128::from(at.head));
        for equal in part.chunk_by_mut(|one, two| one.index == two.index && one.head == two.head) {
            if equal.len() > 1 {
                equal.sort_unstable_by(|one, two| {
                    one.order_behind_head(two).unwrap_or_else(|| entry(*one).order(&entry(*two)))
                });
            }
        }
    }
}

/// Brings references into parts that lie in order, by their indexes and by those bits of their heads in which they begin to
/// differ; tells where each part ends. Distributing costs a pass, and spares most of the comparisons of a sort.
fn divide(all: &mut Vec<SortedRef>, ends: &mut Vec<usize>) {
    // Few indexes: a list that is searched in turn, the last one found first.
    let mut indexes: Vec<(u64, u64, u64)> = Vec::new();
    if all.len() >= DIVIDE_FROM {
        let mut last = usize::MAX;
        for at in all.iter() {
            if indexes.get(last).is_none_or(|(index, ..)| *index != at.index) {
                last = indexes.iter().position(|(index, ..)| *index == at.index).unwrap_or(indexes.len());
                if last == indexes.len() {
                    indexes.push((at.index, at.head, 0));
                }
            }
            let (_, first, differ) = &mut indexes[last];
            *differ |= *first ^ at.head;
            if indexes.len() > 16 {
                break;
            }
        }
    }
    if indexes.is_empty() || indexes.len() > 16 {
        ends.push(all.len());
        return;
    }
    indexes.sort_unstable();
    let bits = (all.len() / 32).ilog2().min(DIVIDE_BITS_MAX);
    let part = |number: usize, head: u64| {
        // Above the first bit that differs all heads of the index are equal.
        let same = indexes[number].2.leading_zeros().min(64 - bits);
        number << bits | (head << same >> (64 - bits)) as usize
    };
    let mut last = 0;
    let mut part_of = |at: &SortedRef| {
        if indexes[last].0 != at.index {
            last = indexes.iter().position(|(index, ..)| *index == at.index).expect("all were looked at");
        }
        part(last, at.head)
    };
    ends.resize(indexes.len() << bits, 0);
    for at in all.iter() {
        ends[part_of(at)] += 1;
    }
    let mut start = 0;
    for end in ends.iter_mut() {
        (start, *end) = (start + *end, start);
    }
    let mut divided = vec![all[0]; all.len()];
    for at in all.iter() {
        let end = &mut ends[part_of(at)];
        divided[*end] = *at;
        *end += 1;
    }
    *all = divided;
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
        at.entry(&self.batch)
    }

    /// The first position whose key is at or above `key` of `index`.
    pub(super) fn lower_bound(&self, index: u64, key: &[u8]) -> usize {
        self.sorted().partition_point(|at| {
            let entry = self.entry(*at);
            (entry.index, entry.key) < (index, key)
        })
    }

    /// The positions of a range. O(log of how many there are) beyond finding the first.
    pub(super) fn range(&self, index: u64, low: &[u8], high: Option<&[u8]>) -> Range<usize> {
        let start = self.lower_bound(index, low);
        let is_within = |at: &SortedRef| {
            let entry = self.entry(*at);
            entry.index == index && high.is_none_or(|high| entry.key < high)
        };
        start..start + count_leading(&self.sorted()[start..], is_within)
    }

    /// Its entries of a group; removals of an unconfirmed batch have no effect yet.
    pub(super) fn find_group<'a>(
        &'a self,
        index: u64,
        group: &'a [u8],
    ) -> impl Iterator<Item = MemoryEntry<'a>> {
        self.sorted()[self.lower_bound(index, group)..]
            .iter()
            .map(|at| self.entry(*at))
            .take_while(move |entry| entry.index == index && entry.key.starts_with(group))
            .filter(|entry| entry.kind == Kind::Put)
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
            for _ in 0..50 {
                let mut bound = || -> Vec<u8> {
                    let len = rng.below(4) as usize;
                    (0..len).map(|_| b"ab"[rng.below(2) as usize]).collect()
                };
                let (low, high) = (bound(), bound());
                let high = Some(&high[..]).filter(|_| rng.chance(0.8));
                let index = IndexId { table: 1, index: rng.below(2) as u32 }.as_u64();
                let is_in = |entry: &&MemoryEntry<'_>| {
                    entry.index == index && *entry.key >= *low && high.is_none_or(|high| entry.key < high)
                };
                let range = block.range(&segment, index, &low, high);
                assert_eq!(range.len(), entries.iter().filter(is_in).count());
                assert!(entries[range].iter().all(|entry| is_in(&entry)));
            }
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
