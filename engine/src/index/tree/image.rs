//! A node that is being put together in private memory, for splits, merges and compaction.
//!
//! The latch holder reads the old nodes, builds the new contents here, and installs them over the old ones. Whether
//! everything fits is known before anything is changed.

use super::key;
use super::latch::Restart;
use super::node::{
    FLAG_HIGH_FAR, FLAG_HIGH_INFINITE, FLAG_LOW_FAR, FenceInfo, KIND_FAR, KIND_LONG, Latched, NodeRef, Shape,
    Sizes, Slot, View, WORD_HIGH, WORD_HINTS, WORD_LENGTHS, WORD_LOW, WORD_SHAPE,
};

const WORDS_MAX: usize = 512;

/// A bound of a node: its key, its RowId, and the address of the key if it stands out of line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fence<'k> {
    pub(super) key: &'k [u8],
    pub(super) info: FenceInfo,
}

impl<'k> Fence<'k> {
    /// Below everything.
    pub(super) const LOWEST: Fence<'static> = Fence { key: &[], info: FenceInfo { row: 0, far: 0 } };

    pub(super) fn new(key: &'k [u8], row: u64, far: u64) -> Self {
        Self { key, info: FenceInfo { row, far } }
    }
}

/// See the module.
pub(super) struct Image<const N: usize> {
    words: [u64; WORDS_MAX],
    level: u8,
    prefix_len: usize,
    count: usize,
    heap: usize,
}

impl<const N: usize> Image<N> {
    /// An empty node between two fences.
    pub(super) fn new(level: u8, low: Fence<'_>, high: Option<Fence<'_>>) -> Self {
        let prefix_len = high.map_or(0, |high| key::common(low.key, high.key));
        let mut image = Self { words: [0; WORDS_MAX], level, prefix_len, count: 0, heap: Sizes::<N>::WORDS };
        let mut flags = 0;
        let low_at = image.put_fence(low);
        image.words[WORD_LOW] = low.info.row << 16 | low_at as u64;
        if low.info.far != 0 {
            flags |= FLAG_LOW_FAR;
        }
        let high_len = match high {
            Some(high) => {
                let at = image.put_fence(high);
                image.words[WORD_HIGH] = high.info.row << 16 | at as u64;
                if high.info.far != 0 {
                    flags |= FLAG_HIGH_FAR;
                }
                high.key.len()
            }
            None => {
                flags |= FLAG_HIGH_INFINITE;
                0
            }
        };
        image.words[WORD_LENGTHS] =
            flags << 48 | (high_len as u64) << 32 | (low.key.len() as u64) << 16 | prefix_len as u64;
        image
    }

    fn put_fence(&mut self, fence: Fence<'_>) -> usize {
        if fence.info.far != 0 {
            self.heap -= 1;
            self.words[self.heap] = fence.info.far;
        } else {
            self.heap -= fence.key.len().div_ceil(8);
            for (offset, chunk) in fence.key.chunks(8).enumerate() {
                self.words[self.heap + offset] = key::word(chunk);
            }
        }
        self.heap
    }

    fn room(&self) -> usize {
        self.heap.saturating_sub(Sizes::<N>::SLOTS + 2 * self.count)
    }

    fn put_slot(&mut self, slot: Slot) {
        let at = Sizes::<N>::SLOTS + 2 * self.count;
        self.words[at] = slot.head;
        self.words[at + 1] = slot.rest;
        self.count += 1;
    }

    /// Adds an entry behind the others. `false`: it does not fit.
    #[must_use]
    pub(super) fn push(&mut self, key: &[u8], row: u64, value: u64, far: u64) -> bool {
        let suffix = &key[self.prefix_len..];
        let has_row = self.level > 0 && row != 0;
        let tail = super::node::tail_words(suffix.len(), has_row, far != 0);
        if self.room() < 2 + tail {
            return false;
        }
        self.heap -= tail;
        let (heap, words) = (self.heap, &mut self.words);
        let slot = key::encode(suffix, row, value, has_row, far, |tail| {
            words[heap..heap + tail.len()].copy_from_slice(tail);
            heap
        });
        self.put_slot(slot);
        true
    }

    /// Adds the first separator of an inner node, which stands for the low fence.
    pub(super) fn push_first_child(&mut self, child: u64) {
        assert!(self.count == 0 && self.level > 0, "the empty separator is the first of an inner node");
        self.put_slot(Slot::new(0, child, 0, false, 0));
    }

    /// Adds the entries `range` of a latched node. `false`: they do not all fit.
    pub(super) fn push_from(
        &mut self,
        from: &Latched<'_, N>,
        range: std::ops::Range<usize>,
    ) -> Result<bool, Restart> {
        let leaf = self.level == 0;
        if from.prefix_len() == self.prefix_len {
            for at in range {
                let slot = from.slot(at);
                let tail = from.slot_tail_words(slot);
                if self.room() < 2 + tail {
                    return Ok(false);
                }
                self.heap -= tail;
                for offset in 0..tail {
                    self.words[self.heap + offset] = from.node.get(slot.tail() + offset);
                }
                self.put_slot(if tail > 0 { slot.with_tail(self.heap) } else { slot });
            }
            return Ok(true);
        }
        let (mut prefix, mut key) = (Vec::new(), Vec::new());
        from.read_prefix(&mut prefix)?;
        for at in range {
            let slot = from.slot(at);
            if !leaf && at == 0 {
                self.push_first_child(slot.value());
                continue;
            }
            key.clear();
            from.append_key(slot, &prefix, &mut key)?;
            if !self.push(&key, from.slot_row(slot, leaf), slot.value(), from.slot_far(slot)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn finish(&mut self) {
        self.words[WORD_SHAPE] = Shape::new(self.level, 0, self.heap, self.count).0;
        let hints = Sizes::<N>::HINTS;
        if self.count > 2 * hints {
            let distance = self.count / (hints + 1);
            for hint in 0..hints {
                let head = self.words[Sizes::<N>::SLOTS + 2 * (distance * (hint + 1))] >> 32;
                self.words[WORD_HINTS + hint / 2] |= head << (32 * (hint % 2));
            }
        }
    }

    fn write(&mut self, node: NodeRef<'_, N>) {
        self.finish();
        let slots_end = Sizes::<N>::SLOTS + 2 * self.count;
        for at in (1..slots_end).chain(self.heap..Sizes::<N>::WORDS) {
            node.set(at, self.words[at]);
        }
    }

    /// Replaces the contents of a latched node.
    pub(super) fn install(mut self, node: &mut Latched<'_, N>) {
        node.latch.changed();
        self.write(node.node);
    }

    /// Fills a cell that nobody else knows, and returns the node in it.
    ///
    /// # Safety
    /// The cell has `N` bytes, aligned to 8.
    pub(super) unsafe fn install_fresh<'g>(mut self, cell: std::ptr::NonNull<u8>) -> NodeRef<'g, N> {
        // SAFETY: by contract; zeroes are valid words, and version 0 is a version.
        let node = unsafe {
            cell.write_bytes(0, N);
            NodeRef::at(cell.as_ptr().expose_provenance() as u64)
        };
        self.write(node);
        node
    }
}

/// The fences of a latched node, as owned copies.
pub(super) struct Fences {
    low_key: Vec<u8>,
    low: FenceInfo,
    high_key: Vec<u8>,
    high: Option<FenceInfo>,
}

impl Fences {
    pub(super) fn of<const N: usize>(node: &View<'_, N>) -> Result<Self, Restart> {
        let (mut low_key, mut high_key) = (Vec::new(), Vec::new());
        let low = node.read_fence(false, &mut low_key)?.ok_or(Restart)?;
        let high = node.read_fence(true, &mut high_key)?;
        Ok(Self { low_key, low, high_key, high })
    }

    pub(super) fn low(&self) -> Fence<'_> {
        Fence { key: &self.low_key, info: self.low }
    }

    pub(super) fn high(&self) -> Option<Fence<'_>> {
        self.high.map(|info| Fence { key: &self.high_key, info })
    }
}

const _: () = assert!(KIND_LONG > 8 && KIND_FAR > 8, "small kinds are lengths");
