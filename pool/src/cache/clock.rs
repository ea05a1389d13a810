//! CLOCK: a hand goes round the slots, clears the bit of a page that was used and takes the first one without.
//!
//! The bit is set when the page is admitted, too, which is its first use (Canim et al., VLDB 2010, §4: "turned on when the
//! page is accessed"). Slots that a discard emptied are filled before the hand moves.

use super::parts::{NumberMap, Stock, map_bytes, number_map};
use super::{Admission, CachePolicy, Request, Slot};

#[derive(Debug)]
pub(super) struct Clock {
    map: NumberMap<Slot>,
    /// By slot: its page, and whether that was used since the hand came by.
    pages: Vec<(u64, bool)>,
    hand: usize,
    stock: Stock,
}

impl Clock {
    /// It takes memory as slots are filled: memory that is lent may have many more than there are pages.
    pub(super) fn new(slots: u32) -> Self {
        Self { map: number_map(0), pages: Vec::new(), hand: 0, stock: Stock::new(slots) }
    }
}

impl CachePolicy for Clock {
    fn request(&mut self, request: &Request) -> Option<Slot> {
        let slot = *self.map.get(&request.page)?;
        self.pages[slot as usize].1 = true;
        Some(slot)
    }

    fn admit(&mut self, request: &Request) -> Admission {
        if self.map.contains_key(&request.page) {
            return Admission::Pass;
        }
        let (slot, admission) = match self.stock.take() {
            Some(slot) => (slot, Admission::Empty(slot)),
            None => {
                // All slots have a page: after one turn no bit is set.
                while std::mem::take(&mut self.pages[self.hand].1) {
                    self.hand = (self.hand + 1) % self.pages.len();
                }
                let (slot, page) = (self.hand as Slot, self.pages[self.hand].0);
                self.hand = (self.hand + 1) % self.pages.len();
                self.map.remove(&page);
                (slot, Admission::Replace { slot, page })
            }
        };
        if self.pages.len() <= slot as usize {
            self.pages.resize(slot as usize + 1, (0, false));
        }
        self.pages[slot as usize] = (request.page, true);
        self.map.insert(request.page, slot);
        admission
    }

    fn discard(&mut self, page: u64) -> Option<Slot> {
        let slot = self.map.remove(&page)?;
        self.stock.give_back(slot);
        Some(slot)
    }

    fn find(&self, page: u64) -> Option<Slot> {
        self.map.get(&page).copied()
    }

    fn listing(&self) -> Option<Vec<(u64, Slot)>> {
        Some({
            let slots = (0..).zip(&self.pages).map(|(slot, (page, _))| (*page, slot));
            slots.filter(|(page, slot)| self.map.get(page) == Some(slot)).collect()
        })
    }

    fn cached(&self) -> u32 {
        self.stock.used()
    }

    fn bytes(&self) -> usize {
        map_bytes(&self.map) + self.pages.capacity() * size_of::<(u64, bool)>()
    }
}
