//! Which page is in which slot, and the other way round, in nine bytes a slot.
//!
//! ```text
//!   page ──hash──► table: a few bits of the hash · slot     (open addressing, six sevenths full at most)
//!   slot ────────► low: 32 bits of the page                 high: the others, from the first page that needs them on
//! ```
//!
//! The bits of the hash keep most looks for a page that is not there from asking for the pages of slots. An entry that goes is
//! filled by those behind it, so nothing has to be cleaned up.

use super::Slot;
use super::parts::NONE;

#[derive(Debug)]
pub(super) struct Places {
    table: Vec<u32>,
    slot_bits: u32,
    low: Vec<u32>,
    /// Empty as long as all pages have 32 bits.
    high: Vec<u32>,
}

impl Places {
    pub(super) fn new(slots: u32) -> Self {
        let slots = slots as usize;
        Self {
            table: vec![NONE; slots + slots / 6 + 2],
            // The last number of so many bits is no slot, so no entry looks like none.
            slot_bits: usize::BITS - (slots + 1).leading_zeros(),
            low: vec![0; slots],
            high: Vec::new(),
        }
    }

    #[inline]
    fn hash(page: u64) -> u64 {
        let spread = page.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (spread ^ spread >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93)
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.table.len() as u128) >> 64) as usize
    }

    /// An entry without its slot.
    #[inline]
    fn mark(&self, hash: u64) -> u32 {
        // The home is made of the upper bits.
        if self.slot_bits == 32 { 0 } else { (hash as u32) << self.slot_bits }
    }

    #[inline]
    fn slot_in(&self, entry: u32) -> Slot {
        if self.slot_bits == 32 { entry } else { entry & ((1 << self.slot_bits) - 1) }
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        if at + 1 == self.table.len() { 0 } else { at + 1 }
    }

    /// The page that was put into a slot last.
    #[inline]
    pub(super) fn page(&self, slot: Slot) -> u64 {
        let high = self.high.get(slot as usize).copied().unwrap_or(0);
        u64::from(high) << 32 | u64::from(self.low[slot as usize])
    }

    #[inline]
    fn place(&self, page: u64) -> Option<usize> {
        let hash = Self::hash(page);
        let mark = self.mark(hash);
        let mut at = self.home(hash);
        loop {
            let entry = self.table[at];
            if entry == NONE {
                return None;
            }
            let slot = self.slot_in(entry);
            if entry ^ slot == mark && self.page(slot) == page {
                return Some(at);
            }
            at = self.after(at);
        }
    }

    #[inline]
    pub(super) fn find(&self, page: u64) -> Option<Slot> {
        self.place(page).map(|at| self.slot_in(self.table[at]))
    }

    /// Puts a page that is not there into a slot that has none.
    pub(super) fn insert(&mut self, page: u64, slot: Slot) {
        if page >> 32 != 0 && self.high.is_empty() {
            self.high = vec![0; self.low.len()];
        }
        self.low[slot as usize] = page as u32;
        if let Some(high) = self.high.get_mut(slot as usize) {
            *high = (page >> 32) as u32;
        }
        let hash = Self::hash(page);
        let mut at = self.home(hash);
        while self.table[at] != NONE {
            at = self.after(at);
        }
        self.table[at] = self.mark(hash) | slot;
    }

    pub(super) fn remove(&mut self, page: u64) -> Option<Slot> {
        let mut hole = self.place(page)?;
        let slot = self.slot_in(self.table[hole]);
        let mut at = hole;
        loop {
            at = self.after(at);
            let entry = self.table[at];
            if entry == NONE {
                break;
            }
            // An entry may move to the hole if that lies between its home and where it stands.
            let home = self.home(Self::hash(self.page(self.slot_in(entry))));
            let len = self.table.len();
            let from_home = (at + len - home) % len;
            let from_hole = (at + len - hole) % len;
            if from_home >= from_hole {
                self.table[hole] = entry;
                hole = at;
            }
        }
        self.table[hole] = NONE;
        Some(slot)
    }

    /// All pages with their slots.
    #[cfg(test)]
    pub(super) fn all(&self) -> Vec<(u64, Slot)> {
        let slots = self.table.iter().filter(|entry| **entry != NONE).map(|entry| self.slot_in(*entry));
        slots.map(|slot| (self.page(slot), slot)).collect()
    }

    pub(super) fn bytes(&self) -> usize {
        self.table.capacity() * 4 + self.low.capacity() * 4 + self.high.capacity() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn places_are_a_map(steps in proptest::collection::vec((any::<bool>(), 0u64..40), 1..400), slots in 1u32..30) {
            let mut places = Places::new(slots);
            let mut model: BTreeMap<u64, Slot> = BTreeMap::new();
            for (insert, page) in steps {
                // Some that lie far away, and some that 32 bits do not hold.
                let page = if page % 7 == 3 { page << 40 } else { page };
                let free = (0..slots).find(|slot| model.values().all(|used| used != slot));
                match free {
                    Some(slot) if insert && !model.contains_key(&page) => {
                        places.insert(page, slot);
                        model.insert(page, slot);
                    }
                    _ => prop_assert_eq!(places.remove(page), model.remove(&page)),
                }
                for page in (0..40).flat_map(|page| [page, page << 40]) {
                    prop_assert_eq!(places.find(page), model.get(&page).copied());
                }
                let mut all = places.all();
                all.sort_unstable();
                prop_assert_eq!(all, model.iter().map(|(page, slot)| (*page, *slot)).collect::<Vec<_>>());
            }
        }
    }
}
