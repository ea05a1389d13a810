//! A node of the tree, as its readers and its latch holder see it.
//!
//! ```text
//! word 0     version latch (see latch.rs)
//! word 1     level(8) | garbage(16) | heap(16) | count(16)    heap: first word of the heap; garbage: unused words in it
//! word 2     flags(16) | high_len(16) | low_len(16) | prefix_len(16)
//! word 3, 4  low, high fence: RowId(48) | word of its bytes(16)
//! word 5     run(16) | last insert(16)                        where entries were inserted lately, for splits
//! word 8…    hints: the upper halves of the heads at regular distances, two in a word
//! then       slots, two words each, in key order ──►
//!                                                     ◄── heap: fences and tails, filled from the end of the node
//! ```
//!
//! Every entry lies at or above the low fence and below the high one; all keys between them start with the node's
//! *prefix*, which entries leave out. What is left of a key is its *suffix*:
//!
//! ```text
//! slot word 0   head: the first 8 bytes of the suffix, big-endian, padded with zeroes
//! slot word 1   value(48) | tail(11) | has_row(1) | kind(4)
//!               value: the RowId in a leaf, the child's address in an inner node
//!               kind 0…8: length of a suffix that the head holds;  LONG;  FAR: the key is out of line
//! tail          [RowId of a separator, if has_row]
//!               LONG: bytes 8…13 of the suffix (48) | suffix_len(16), then its further bytes, 8 in a word, big-endian
//!               FAR: the address of the whole key
//! ```
//!
//! So entries with a suffix of up to 8 bytes take 16 bytes. A separator says: what is at or above (key, row) lies in
//! this child or behind it. The first separator of an inner node is empty and stands for the node's low fence.
//!
//! All accesses are relaxed ones to whole words whose index is masked to the node, so that a racing read is a wrong
//! value at worst. Nothing that was read is used as an address before the version was checked.

use std::cmp::Ordering as Order;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use thermocline_base::sync::AtomicU64;

use super::key::{self, Probe};
use super::latch::{self, Latch, Restart};

pub(super) const WORD_SHAPE: usize = 1;
pub(super) const WORD_LENGTHS: usize = 2;
pub(super) const WORD_LOW: usize = 3;
pub(super) const WORD_HIGH: usize = 4;
const WORD_RUN: usize = 5;
pub(super) const WORD_HINTS: usize = 8;

pub(super) const FLAG_LOW_FAR: u64 = 1;
pub(super) const FLAG_HIGH_FAR: u64 = 2;
pub(super) const FLAG_HIGH_INFINITE: u64 = 4;

pub(super) const KIND_LONG: u64 = 9;
pub(super) const KIND_FAR: u64 = 10;
const HAS_ROW: u64 = 1 << 4;
const TAIL_SHIFT: u32 = 5;
pub(super) const VALUE_SHIFT: u32 = 16;

/// Sizes that follow from a node's size in bytes.
pub(super) struct Sizes<const N: usize>;

impl<const N: usize> Sizes<N> {
    pub(super) const WORDS: usize = N / 8;
    pub(super) const HINTS: usize = N / 128;
    pub(super) const SLOTS: usize = WORD_HINTS + Self::HINTS / 2;
    pub(super) const COUNT_MAX: usize = (Self::WORDS - Self::SLOTS) / 2;
    /// Longer keys are stored out of line, so that every node has room for two fences and three entries.
    pub(super) const INLINE_MAX: usize = N / 80 * 8;
    const VALID: () = {
        assert!(
            N.is_power_of_two() && N >= 512 && N <= 4096,
            "node sizes are powers of two from 512 to 4096"
        );
        let fences = 2 * Self::INLINE_MAX.div_ceil(8);
        let entry = 2 + 2 + (Self::INLINE_MAX - 8).div_ceil(8);
        assert!(Self::SLOTS + fences + 3 * entry <= Self::WORDS, "three of the longest entries fit");
    };
}

/// Word 1 of a node.
#[derive(Clone, Copy)]
pub(super) struct Shape(pub(super) u64);

impl Shape {
    pub(super) fn new(level: u8, garbage: usize, heap: usize, count: usize) -> Self {
        Self(u64::from(level) << 48 | (garbage as u64) << 32 | (heap as u64) << 16 | count as u64)
    }
    #[inline(always)]
    pub(super) fn count(self) -> usize {
        self.0 as usize & 0xffff
    }
    pub(super) fn heap(self) -> usize {
        (self.0 >> 16) as usize & 0xffff
    }
    pub(super) fn garbage(self) -> usize {
        (self.0 >> 32) as usize & 0xffff
    }
    #[inline(always)]
    pub(super) fn level(self) -> u8 {
        (self.0 >> 48) as u8
    }
}

/// The two words of a slot.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) head: u64,
    pub(super) rest: u64,
}

impl Slot {
    pub(super) fn new(head: u64, value: u64, tail: usize, has_row: bool, kind: u64) -> Self {
        assert!(value < 1 << 48, "RowIds and addresses have 48 bits");
        let has_row = if has_row { HAS_ROW } else { 0 };
        let rest = value << VALUE_SHIFT | (tail as u64) << TAIL_SHIFT | has_row | kind;
        Self { head, rest }
    }
    #[inline(always)]
    pub(super) fn value(self) -> u64 {
        self.rest >> VALUE_SHIFT
    }
    pub(super) fn kind(self) -> u64 {
        self.rest & 15
    }
    pub(super) fn tail(self) -> usize {
        (self.rest >> TAIL_SHIFT) as usize & 0x7ff
    }
    pub(super) fn has_row(self) -> bool {
        self.rest & HAS_ROW != 0
    }
    pub(super) fn with_value(self, value: u64) -> Self {
        assert!(value < 1 << 48, "RowIds and addresses have 48 bits");
        Self { rest: self.rest & ((1 << VALUE_SHIFT) - 1) | value << VALUE_SHIFT, ..self }
    }
    pub(super) fn with_tail(self, tail: usize) -> Self {
        Self { rest: self.rest & !(0x7ff << TAIL_SHIFT) | (tail as u64) << TAIL_SHIFT, ..self }
    }
}

/// Words of the tail of an entry.
pub(super) fn tail_words(suffix_len: usize, has_row: bool, far: bool) -> usize {
    let key = match suffix_len {
        _ if far => 1,
        0..=8 => 0,
        _ => 1 + suffix_len.saturating_sub(14).div_ceil(8),
    };
    key + usize::from(has_row)
}

/// A node that the caller's pin keeps alive.
pub(super) struct NodeRef<'g, const N: usize> {
    base: NonNull<AtomicU64>,
    pin: PhantomData<&'g AtomicU64>,
}

impl<const N: usize> Clone for NodeRef<'_, N> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<const N: usize> Copy for NodeRef<'_, N> {}

impl<'g, const N: usize> NodeRef<'g, N> {
    /// The node at an address.
    ///
    /// # Safety
    /// An initialized node of `N` bytes stands there and stays for `'g`: the address was read under a version that
    /// was checked afterwards, and the caller is pinned.
    #[inline(always)]
    pub(super) unsafe fn at(address: u64) -> Self {
        const { Sizes::<N>::VALID };
        let base = std::ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: nodes do not stand at address zero.
        Self { base: unsafe { NonNull::new_unchecked(base) }, pin: PhantomData }
    }

    pub(super) fn address(self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }

    /// The cell that it stands in.
    pub(super) fn cell(self) -> NonNull<u8> {
        self.base.cast()
    }

    #[inline(always)]
    fn word(self, at: usize) -> &'g AtomicU64 {
        // SAFETY: the index is masked to the node, whose words are initialized atomics.
        unsafe { self.base.add(at & (Sizes::<N>::WORDS - 1)).as_ref() }
    }

    #[inline(always)]
    pub(super) fn get(self, at: usize) -> u64 {
        self.word(at).load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(super) fn set(self, at: usize, value: u64) {
        self.word(at).store(value, Ordering::Relaxed);
    }
}

/// A fence that was read: its RowId and, if its key is out of line, the key's address (else 0).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct FenceInfo {
    pub(super) row: u64,
    pub(super) far: u64,
}

/// A node as of one version.
pub(super) struct View<'g, const N: usize> {
    pub(super) node: NodeRef<'g, N>,
    version: u64,
}

impl<const N: usize> Clone for View<'_, N> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<const N: usize> Copy for View<'_, N> {}

impl<'g, const N: usize> View<'g, N> {
    #[inline(always)]
    pub(super) fn open(node: NodeRef<'g, N>) -> Result<Self, Restart> {
        Ok(Self { node, version: latch::version(node.word(0))? })
    }

    /// The same without waiting for a latch.
    pub(super) fn open_free(node: NodeRef<'g, N>) -> Result<Self, Restart> {
        Ok(Self { node, version: latch::version_if_free(node.word(0))? })
    }

    /// Does everything that was read since `open` belong together?
    #[inline(always)]
    pub(super) fn check(&self) -> Result<(), Restart> {
        latch::check(self.node.word(0), self.version)
    }

    /// Takes the latch, if nothing has changed since `open`.
    pub(super) fn latch(self) -> Result<Latched<'g, N>, Restart> {
        let latch = Latch::take(self.node.word(0), self.version)?;
        let version = latch.latched_version();
        Ok(Latched { view: Self { node: self.node, version }, latch })
    }

    #[inline(always)]
    pub(super) fn shape(&self) -> Shape {
        Shape(self.node.get(WORD_SHAPE))
    }

    #[inline(always)]
    pub(super) fn slot(&self, at: usize) -> Slot {
        let word = Sizes::<N>::SLOTS + 2 * at;
        Slot { head: self.node.get(word), rest: self.node.get(word + 1) }
    }

    #[inline(always)]
    pub(super) fn prefix_len(&self) -> usize {
        self.node.get(WORD_LENGTHS) as usize & 0xffff
    }

    /// The key that stands out of line at an address read from this node.
    #[inline]
    fn far(&self, address: u64) -> Result<&'g [u8], Restart> {
        self.check()?;
        // SAFETY: the address was validated just now, and the caller's pin keeps the key.
        Ok(unsafe { key::far_bytes(address) })
    }

    /// The length of the suffix of a slot of kind LONG.
    fn long_len(&self, slot: Slot) -> usize {
        self.node.get(slot.tail() + usize::from(slot.has_row())) as usize & 0xffff
    }

    /// How many words a slot's tail takes.
    pub(super) fn slot_tail_words(&self, slot: Slot) -> usize {
        let len = match slot.kind() {
            KIND_LONG => self.long_len(slot),
            _ => 0,
        };
        tail_words(len, slot.has_row(), slot.kind() == KIND_FAR)
    }

    /// The address of a slot's out-of-line key, or 0.
    pub(super) fn slot_far(&self, slot: Slot) -> u64 {
        if slot.kind() == KIND_FAR { self.node.get(slot.tail() + usize::from(slot.has_row())) } else { 0 }
    }

    /// The RowId that takes part in the order.
    #[inline(always)]
    pub(super) fn slot_row(&self, slot: Slot, leaf: bool) -> u64 {
        match (leaf, slot.has_row()) {
            (true, _) => slot.value(),
            (false, true) => self.node.get(slot.tail()),
            (false, false) => 0,
        }
    }

    /// How a slot's key, whose head equals the probe's, relates to the probe's key.
    #[inline]
    pub(super) fn compare_key(
        &self,
        slot: Slot,
        probe: &Probe<'_>,
        prefix_len: usize,
    ) -> Result<Order, Restart> {
        let suffix = probe.suffix(prefix_len);
        let kind = slot.kind();
        if kind <= 8 || suffix.len() <= 8 {
            // A suffix that ends inside the head is a prefix of every longer one with the same head.
            let len = if kind <= 8 { kind as usize } else { usize::MAX };
            return Ok(match len {
                // Out of line says nothing about the suffix's length.
                _ if kind == KIND_FAR => {
                    let key = self.far(self.slot_far(slot))?;
                    key.get(prefix_len..).unwrap_or(&[]).cmp(suffix)
                }
                _ => len.cmp(&suffix.len()),
            });
        }
        if kind == KIND_FAR {
            let key = self.far(self.slot_far(slot))?;
            return Ok(key.get(prefix_len..).unwrap_or(&[]).cmp(suffix));
        }
        let tail = slot.tail() + usize::from(slot.has_row());
        let first = self.node.get(tail);
        let len = first as usize & 0xffff;
        let order = (first >> 16).cmp(&(key::word(&suffix[8..]) >> 16));
        if order.is_ne() {
            return Ok(order);
        }
        let mut at = 14;
        while at < len.min(suffix.len()) {
            let order = self.node.get(tail + 1 + (at - 14) / 8).cmp(&key::word(&suffix[at..]));
            if order.is_ne() {
                return Ok(order);
            }
            at += 8;
        }
        Ok(len.cmp(&suffix.len()))
    }

    #[inline(always)]
    fn hint(&self, at: usize) -> u32 {
        (self.node.get(WORD_HINTS + at / 2) >> (32 * (at % 2))) as u32
    }

    /// The slots between which a head's place lies.
    #[inline(always)]
    fn narrow(&self, head: u64, count: usize) -> (usize, usize) {
        let hints = Sizes::<N>::HINTS;
        if count <= 2 * hints {
            return (0, count);
        }
        let wanted = (head >> 32) as u32;
        // Branch-free: the number of hints (a power of two) below the wanted one.
        let mut below = 0;
        let mut half = hints / 2;
        while half > 0 {
            let is_below = self.hint(below + half - 1) < wanted;
            below = std::hint::select_unpredictable(is_below, below + half, below);
            half /= 2;
        }
        below += usize::from(self.hint(below) < wanted);
        let mut through = below;
        while through < hints && self.hint(through) == wanted {
            through += 1;
        }
        let distance = count / (hints + 1);
        (below * distance, if through < hints { (through + 1) * distance } else { count })
    }

    /// The first slot at or above the probe, and whether it is the probe's key and row.
    #[inline(always)]
    pub(super) fn lower_bound(&self, probe: &Probe<'_>) -> Result<(usize, bool), Restart> {
        let shape = self.shape();
        let count = shape.count().min(Sizes::<N>::COUNT_MAX);
        let leaf = shape.level() == 0;
        let prefix_len = self.prefix_len();
        let head = probe.head(prefix_len);
        let (low, high) = self.narrow(head, count);
        // A hint's distance may span two lines: both come at once.
        self.prefetch_slot(low);
        self.prefetch_slot(high.saturating_sub(1));
        let first = self.first_at_or_above(head, low, high);
        if first >= high || self.slot(first).head != head {
            return Ok((first, false));
        }
        self.among_equals(probe, first, high, prefix_len, leaf)
    }

    #[inline(always)]
    fn prefetch_slot(&self, at: usize) {
        let word = (Sizes::<N>::SLOTS + 2 * at) & (Sizes::<N>::WORDS - 1);
        thermocline_base::prefetch::prefetch(self.node.base.as_ptr().wrapping_add(word));
    }

    /// The first slot of a range whose head is at or above `head`, without a branch that depends on a head.
    #[inline(always)]
    fn first_at_or_above(&self, head: u64, low: usize, high: usize) -> usize {
        let (mut base, mut len) = (low, high.saturating_sub(low));
        while len > 1 {
            let half = len / 2;
            let below = self.slot(base + half - 1).head < head;
            base = std::hint::select_unpredictable(below, base + half, base);
            len -= half;
        }
        base + usize::from(len == 1 && self.slot(base).head < head)
    }

    /// The rest of `lower_bound`, where the slot `low` has the probe's head.
    #[inline]
    fn among_equals(
        &self,
        probe: &Probe<'_>,
        mut low: usize,
        mut high: usize,
        prefix_len: usize,
        leaf: bool,
    ) -> Result<(usize, bool), Restart> {
        let head = probe.head(prefix_len);
        // In most cases the only slot with this head is the one that is meant.
        let mut middle = low;
        while low < high {
            let slot = self.slot(middle);
            let mut order = slot.head.cmp(&head);
            if order.is_eq() {
                order = self.compare_key(slot, probe, prefix_len)?;
                if order.is_eq() {
                    order = self.slot_row(slot, leaf).cmp(&probe.row);
                }
            }
            match order {
                Order::Less => low = middle + 1,
                Order::Greater => high = middle,
                Order::Equal => return Ok((middle, true)),
            }
            middle = (low + high) / 2;
        }
        Ok((low, false))
    }

    /// Appends the first `len` bytes of words that start at `at`.
    fn append_bytes(&self, at: usize, len: usize, out: &mut Vec<u8>) {
        let len = len.min(N);
        for word in 0..len.div_ceil(8) {
            let bytes = self.node.get(at + word).to_be_bytes();
            out.extend_from_slice(&bytes[..(len - 8 * word).min(8)]);
        }
    }

    /// Replaces `out` by the prefix.
    pub(super) fn read_prefix(&self, out: &mut Vec<u8>) -> Result<(), Restart> {
        out.clear();
        let lengths = self.node.get(WORD_LENGTHS);
        let prefix_len = lengths as usize & 0xffff;
        let at = self.node.get(WORD_LOW) as usize & 0xffff;
        if lengths >> 48 & FLAG_LOW_FAR != 0 {
            let low = self.far(self.node.get(at))?;
            out.extend_from_slice(low.get(..prefix_len).ok_or(Restart)?);
        } else {
            self.append_bytes(at, prefix_len, out);
        }
        Ok(())
    }

    /// Replaces `out` by the key of the low or the high fence. `None`: nothing bounds the node above.
    pub(super) fn read_fence(&self, high: bool, out: &mut Vec<u8>) -> Result<Option<FenceInfo>, Restart> {
        out.clear();
        let lengths = self.node.get(WORD_LENGTHS);
        let flags = lengths >> 48;
        if high && flags & FLAG_HIGH_INFINITE != 0 {
            return Ok(None);
        }
        let word = self.node.get(if high { WORD_HIGH } else { WORD_LOW });
        let (row, at) = (word >> 16, word as usize & 0xffff);
        let mut info = FenceInfo { row, far: 0 };
        if flags & if high { FLAG_HIGH_FAR } else { FLAG_LOW_FAR } != 0 {
            info.far = self.node.get(at);
            out.extend_from_slice(self.far(info.far)?);
        } else {
            let len = (lengths >> if high { 32 } else { 16 }) as usize & 0xffff;
            self.append_bytes(at, len, out);
        }
        Ok(Some(info))
    }

    /// Appends a slot's whole key; `prefix` is the node's.
    #[inline]
    pub(super) fn append_key(&self, slot: Slot, prefix: &[u8], out: &mut Vec<u8>) -> Result<(), Restart> {
        match slot.kind() {
            KIND_FAR => out.extend_from_slice(self.far(self.slot_far(slot))?),
            KIND_LONG => {
                out.extend_from_slice(prefix);
                out.extend_from_slice(&slot.head.to_be_bytes());
                let tail = slot.tail() + usize::from(slot.has_row());
                let first = self.node.get(tail);
                let len = (first as usize & 0xffff).max(9);
                out.extend_from_slice(&first.to_be_bytes()[..(len - 8).min(6)]);
                self.append_bytes(tail + 1, len.saturating_sub(14), out);
            }
            len => {
                out.extend_from_slice(prefix);
                out.extend_from_slice(&slot.head.to_be_bytes()[..(len as usize).min(8)]);
            }
        }
        Ok(())
    }

    /// Could this key be the high fence's? Never wrong with "no".
    #[inline]
    pub(super) fn may_end_with(&self, key: &[u8]) -> bool {
        let lengths = self.node.get(WORD_LENGTHS);
        (lengths >> 48) & FLAG_HIGH_INFINITE == 0 && (lengths >> 32) as usize & 0xffff == key.len()
    }

    /// Words between the slots and the heap.
    pub(super) fn free_words(&self) -> usize {
        let shape = self.shape();
        shape.heap().saturating_sub(Sizes::<N>::SLOTS + 2 * shape.count())
    }

    /// Words that entries and fences take.
    pub(super) fn used_words(&self) -> usize {
        let shape = self.shape();
        (2 * shape.count() + Sizes::<N>::WORDS).saturating_sub(shape.heap() + shape.garbage())
    }

    /// Words that an entry takes in this node, slot included.
    pub(super) fn words_for(&self, key_len: usize, has_row: bool) -> usize {
        2 + tail_words(key_len.saturating_sub(self.prefix_len()), has_row, key_len > Sizes::<N>::INLINE_MAX)
    }
}

/// A node whose latch is held.
pub(super) struct Latched<'g, const N: usize> {
    view: View<'g, N>,
    pub(super) latch: Latch<'g>,
}

impl<'g, const N: usize> std::ops::Deref for Latched<'g, N> {
    type Target = View<'g, N>;

    fn deref(&self) -> &View<'g, N> {
        &self.view
    }
}

impl<const N: usize> Latched<'_, N> {
    fn set_slot(&self, at: usize, slot: Slot) {
        let word = Sizes::<N>::SLOTS + 2 * at;
        self.node.set(word, slot.head);
        self.node.set(word + 1, slot.rest);
    }

    /// Adds an entry at its place. There is room for it; `far` is the address of its key if that is out of line.
    pub(super) fn insert_at(&mut self, at: usize, key: &[u8], row: u64, value: u64, far: u64) {
        self.latch.changed();
        let shape = self.shape();
        let (count, level) = (shape.count(), shape.level());
        let suffix = &key[self.prefix_len()..];
        let has_row = level > 0 && row != 0;
        let mut heap = shape.heap();
        let node = self.node;
        let slot = key::encode(suffix, row, value, has_row, far, |words| {
            heap -= words.len();
            for (offset, word) in words.iter().enumerate() {
                node.set(heap + offset, *word);
            }
            heap
        });
        let first = Sizes::<N>::SLOTS + 2 * at;
        let end = Sizes::<N>::SLOTS + 2 * count;
        assert!(end + 2 <= heap, "an entry is inserted only where there is room for it");
        for word in (first..end).rev() {
            node.set(word + 2, node.get(word));
        }
        self.set_slot(at, slot);
        node.set(WORD_SHAPE, Shape::new(level, shape.garbage(), heap, count + 1).0);
        self.update_hints(at, count, count + 1);
        if level == 0 {
            let (last, run) = self.run();
            let run = if at == last + 1 { (run + 1).min(0xffff) } else { 0 };
            node.set(WORD_RUN, (run as u64) << 16 | at as u64);
        }
    }

    /// Lets the entry `at` of an inner node lead to another child.
    pub(super) fn lead_to(&mut self, at: usize, child: u64) {
        self.latch.changed();
        self.set_slot(at, self.slot(at).with_value(child));
    }

    /// Where the last entry was inserted, and how many before it were inserted each behind its predecessor.
    pub(super) fn run(&self) -> (usize, usize) {
        let word = self.node.get(WORD_RUN) as usize;
        (word & 0xffff, word >> 16)
    }

    /// Takes an entry out. Its out-of-line key, if any, is the caller's to retire.
    pub(super) fn remove_at(&mut self, at: usize) {
        self.latch.changed();
        let shape = self.shape();
        let count = shape.count();
        let slot = self.slot(at);
        let words = self.slot_tail_words(slot);
        for word in Sizes::<N>::SLOTS + 2 * at..Sizes::<N>::SLOTS + 2 * (count - 1) {
            self.node.set(word, self.node.get(word + 2));
        }
        let (mut heap, mut garbage) = (shape.heap(), shape.garbage());
        if words > 0 && slot.tail() == heap {
            heap += words;
        } else {
            garbage += words;
        }
        self.node.set(WORD_SHAPE, Shape::new(shape.level(), garbage, heap, count - 1).0);
        self.update_hints(at, count, count - 1);
    }

    fn update_hints(&self, at: usize, before: usize, count: usize) {
        let hints = Sizes::<N>::HINTS;
        if count <= 2 * hints {
            return;
        }
        let distance = count / (hints + 1);
        let same = before > 2 * hints && before / (hints + 1) == distance;
        let from = if same { (at / distance).saturating_sub(1) } else { 0 };
        for pair in from / 2..hints / 2 {
            let half = |hint: usize| self.node.get(Sizes::<N>::SLOTS + 2 * (distance * (hint + 1))) >> 32;
            self.node.set(WORD_HINTS + pair, half(2 * pair) | half(2 * pair + 1) << 32);
        }
    }
}
