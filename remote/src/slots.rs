//! Slots: which of many places are free, in constant time whatever is taken (Jung, Han and Yeom, 2007, §4.2).
//!
//! ```text
//!   level 2   one word                       bit i: word i of level 1 has a set bit
//!   level 1   a bit for each word below      bit i: word i of level 0 has a set bit
//!   level 0   a bit for each slot            set: the slot is free
//! ```
//!
//! Words are 64 bits wide, so five levels do for 2^28 slots (1 TiB of 4 KiB pages; the paper has seven) and six for 2^36. A
//! second vector of the same shape, a sixty-fourth as long, has a bit for each word of 64 slots that is free as a whole:
//! it answers for runs of neighbours.
//!
//! - A look goes up from its word until a level has a free bit at or behind it, and down again: two words a level at the most,
//!   and as many again where nothing is free behind and it starts from the front.
//! - [`Slots::take`] and [`Slots::take_run`] prefer what lies behind the last run that was taken, so that neighbours in
//!   time become neighbours in place.
//! - A run lies inside of one word: at most [`RUN_MAX`] slots. A shorter one is given where no longer one is found in one look.
//!
//! Limits: 2^36 slots. Memory: a bit a slot and 1/31 more; 2.07 MiB for the 2^24 pages of 64 GiB (the paper: less than 4 MB).

/// The longest run of neighbours.
pub const RUN_MAX: u32 = 64;

/// As many slots as an entry of the global page table can number.
pub const SLOTS_MAX: u64 = 1 << 36;

/// Neighbours that were taken together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The first of them.
    pub first: u64,
    /// Number of slots, from 1 to [`RUN_MAX`].
    pub len: u32,
}

impl Run {
    /// Their numbers.
    pub fn slots(self) -> impl Iterator<Item = u64> {
        self.first..self.first + u64::from(self.len)
    }
}

/// Which slots are free.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    /// A bit a slot; set: free.
    free: Levels,
    /// A bit for each whole word of `free`; set: all 64 are free.
    whole: Levels,
    len: u64,
    free_count: u64,
    /// Where the next look begins: behind what was taken last.
    cursor: u64,
}

impl Slots {
    /// Without any slot.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With `len` slots, all free.
    ///
    /// # Panics
    /// As [`Slots::grow`].
    #[must_use]
    pub fn all_free(len: u64) -> Self {
        let mut slots = Self::new();
        slots.grow(len);
        slots.give(0..len);
        slots
    }

    /// Number of slots, free and taken.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Are there none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of free slots.
    #[must_use]
    pub fn free_count(&self) -> u64 {
        self.free_count
    }

    /// Bytes of its vectors.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.free.bytes() + self.whole.bytes()
    }

    /// Number of levels of the vector of slots.
    #[must_use]
    pub fn levels(&self) -> usize {
        self.free.levels.len()
    }

    /// Words that looks and changes have touched so far.
    #[must_use]
    pub fn touched_words(&self) -> u64 {
        self.free.touched + self.whole.touched
    }

    /// Makes it `len` slots long. The new ones are taken until they are freed.
    ///
    /// # Panics
    /// When it is longer already, or `len` is beyond [`SLOTS_MAX`].
    pub fn grow(&mut self, len: u64) {
        assert!(self.len <= len && len <= SLOTS_MAX, "slots grow from {} to {len}", self.len);
        self.free.grow(len);
        self.whole.grow(len / 64);
        self.len = len;
    }

    /// Is this slot free?
    #[must_use]
    pub fn is_free(&self, slot: u64) -> bool {
        slot < self.len && self.free.get(slot)
    }

    /// Takes a free slot, near the last ones. `None`: none is free.
    pub fn take(&mut self) -> Option<u64> {
        let slot = self.free.find(self.cursor).or_else(|| self.free.find(0))?;
        self.remove(Run { first: slot, len: 1 });
        Some(slot)
    }

    /// Takes up to `wanted` free neighbours: behind the last ones, else of a free word, else the longest run of the first
    /// word that has any. `None`: none is free.
    ///
    /// # Panics
    /// When none is wanted, or more than [`RUN_MAX`].
    pub fn take_run(&mut self, wanted: u32) -> Option<Run> {
        assert!((1..=RUN_MAX).contains(&wanted), "a run of {wanted} slots");
        let run = self.behind(wanted).or_else(|| {
            let whole = self.whole.find(self.cursor.div_ceil(64)).or_else(|| self.whole.find(0));
            match whole {
                Some(word) => Some(Run { first: word * 64, len: wanted }),
                None => self.longest(wanted),
            }
        })?;
        self.remove(run);
        Some(run)
    }

    /// Takes this slot, if it is free.
    pub fn take_at(&mut self, slot: u64) -> bool {
        let free = self.is_free(slot);
        if free {
            self.remove(Run { first: slot, len: 1 });
        }
        free
    }

    /// Frees a slot.
    ///
    /// # Panics
    /// When there is no such slot, or it is free.
    pub fn free(&mut self, slot: u64) {
        assert!(slot < self.len, "slot {slot} of {} is freed", self.len);
        let word = self.free.set(slot, 1);
        self.free_count += 1;
        if word == u64::MAX {
            self.whole.set(slot / 64, 1);
        }
    }

    /// Frees neighbours, as many as there are.
    ///
    /// # Panics
    /// When one of them does not exist or is free.
    pub fn give(&mut self, slots: std::ops::Range<u64>) {
        assert!(slots.end <= self.len, "slots up to {} of {} are freed", slots.end, self.len);
        let mut at = slots.start;
        while at < slots.end {
            let len = (64 - at % 64).min(slots.end - at);
            let word = self.free.set(at, ones(len as u32));
            if word == u64::MAX {
                self.whole.set(at / 64, 1);
            }
            self.free_count += len;
            at += len;
        }
    }

    /// Right behind the cursor, as far as its word goes, if half of what is wanted is there.
    fn behind(&mut self, wanted: u32) -> Option<Run> {
        if self.cursor.is_multiple_of(64) || self.cursor >= self.len {
            return None;
        }
        let word = self.free.word(self.cursor / 64) >> (self.cursor % 64);
        let len = word.trailing_ones().min(wanted);
        (len * 2 >= wanted).then_some(Run { first: self.cursor, len })
    }

    /// The longest run of one word, the next one that has a free slot.
    fn longest(&mut self, wanted: u32) -> Option<Run> {
        let slot = self.free.find(self.cursor).or_else(|| self.free.find(0))?;
        let base = slot / 64 * 64;
        let (start, len) = longest_run(self.free.word(slot / 64));
        Some(Run { first: base + u64::from(start), len: len.min(wanted) })
    }

    /// Takes what was found.
    fn remove(&mut self, run: Run) {
        let before = self.free.clear(run.first, ones(run.len));
        if before == u64::MAX {
            self.whole.clear(run.first / 64, 1);
        }
        self.free_count -= u64::from(run.len);
        self.cursor = run.first + u64::from(run.len);
    }
}

/// A word of `len` ones, from the lowest bit on.
const fn ones(len: u32) -> u64 {
    if len >= 64 { u64::MAX } else { (1 << len) - 1 }
}

/// Start and length of the longest run of ones; each step takes a bit off every run, so a word takes as many steps as its
/// longest run is long, 64 at the most.
fn longest_run(word: u64) -> (u32, u32) {
    let (mut left, mut len) = (word, 0);
    let mut last = 0;
    while left != 0 {
        last = left;
        left &= left << 1;
        len += 1;
    }
    match len {
        0 => (0, 0),
        // A bit that survived is the last one of a run of `len`.
        _ => (last.trailing_zeros() + 1 - len, len),
    }
}

/// A bit vector with a summary of 64 to 1 on each level.
#[derive(Clone, Debug, Default)]
struct Levels {
    /// The bits themselves first; the last level has one word.
    levels: Vec<Vec<u64>>,
    touched: u64,
}

impl Levels {
    fn bytes(&self) -> usize {
        self.levels.iter().map(|level| level.capacity() * 8).sum()
    }

    fn get(&self, bit: u64) -> bool {
        self.levels[0][(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }

    fn word(&mut self, word: u64) -> u64 {
        self.touched += 1;
        self.levels[0][word as usize]
    }

    fn grow(&mut self, bits: u64) {
        let mut words = bits.div_ceil(64) as usize;
        if self.levels.is_empty() && words > 0 {
            self.levels.push(Vec::new());
        }
        let mut at = 0;
        while at < self.levels.len() {
            let level = &mut self.levels[at];
            // Not more than is needed: the memory of a long vector counts.
            level.reserve_exact(words - level.len());
            level.resize(words, 0);
            if at + 1 == self.levels.len() && words > 1 {
                let mut above = vec![0; words.div_ceil(64)];
                for (word, _) in self.levels[at].iter().enumerate().filter(|(_, word)| **word != 0) {
                    above[word / 64] |= 1 << (word % 64);
                }
                self.levels.push(above);
            }
            words = words.div_ceil(64);
            at += 1;
        }
    }

    /// Sets `mask` from `bit` on, inside of one word; gives the word as it is now.
    fn set(&mut self, bit: u64, mask: u64) -> u64 {
        let word = &mut self.levels[0][(bit / 64) as usize];
        let mask = mask << (bit % 64);
        assert!(*word & mask == 0, "a slot from {bit} on is free already");
        let before = *word;
        *word |= mask;
        let now = *word;
        self.touched += 1;
        if before == 0 {
            self.summarize(bit / 64, true);
        }
        now
    }

    /// Clears `mask` from `bit` on, inside of one word; gives the word as it was.
    fn clear(&mut self, bit: u64, mask: u64) -> u64 {
        let word = &mut self.levels[0][(bit / 64) as usize];
        let mask = mask << (bit % 64);
        assert!(*word & mask == mask, "a slot from {bit} on is taken already");
        let before = *word;
        *word &= !mask;
        let now = *word;
        self.touched += 1;
        if now == 0 {
            self.summarize(bit / 64, false);
        }
        before
    }

    /// A word of level 0 has become empty, or is no longer: tells the levels above, as far as that changes anything.
    fn summarize(&mut self, mut bit: u64, any: bool) {
        for level in &mut self.levels[1..] {
            let word = &mut level[(bit / 64) as usize];
            self.touched += 1;
            let before = *word;
            if any {
                *word |= 1 << (bit % 64);
            } else {
                *word &= !(1 << (bit % 64));
            }
            if (before == 0) == (*word == 0) {
                return;
            }
            bit /= 64;
        }
    }

    /// The first set bit at `from` or behind it.
    fn find(&mut self, from: u64) -> Option<u64> {
        let mut at = from;
        for up in 0..self.levels.len() {
            let word = (at / 64) as usize;
            if let Some(&bits) = self.levels[up].get(word) {
                self.touched += 1;
                let bits = bits & (u64::MAX << (at % 64));
                if bits != 0 {
                    let mut found = word as u64 * 64 + u64::from(bits.trailing_zeros());
                    for down in (0..up).rev() {
                        self.touched += 1;
                        let bits = self.levels[down][found as usize];
                        debug_assert!(bits != 0, "a summary says that there is a bit below");
                        found = found * 64 + u64::from(bits.trailing_zeros());
                    }
                    return Some(found);
                }
            }
            // Behind this word: from the next bit of the level above.
            at = at / 64 + 1;
        }
        None
    }
}

#[cfg(test)]
mod tests;
