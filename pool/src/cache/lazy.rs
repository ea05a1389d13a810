//! The admission and replacement of lazy cleaning (Do et al., "Turbocharging DBMS buffer pool using SSDs", SIGMOD 2011, §2.3):
//! pages that leave their frames are taken, while the SSD fills all of them, then those that were read at random; of the
//! cached pages the one leaves whose last use but one is longest ago (LRU-2).
//!
//! The other half, that changed pages stay on the SSD and are cleaned later in groups, is the write-back mode, which works
//! with each policy.
//!
//! Differences from the paper: it learns from the database's read-ahead what is sequential; where readers do not tell, a page
//! counts as sequential here if it follows the one before it. Where frames do not say what leaves them, pages are taken when
//! they are read. Uses of pages that have left the SSD are forgotten.

use super::heap::SlotHeap;
use super::parts::{NumberMap, Stock, map_bytes, number_map};
use super::{Admission, CachePolicy, Flow, Request, RequestKind, Slot, Told};

/// Until so many of a hundred slots are full, sequential pages are taken, too.
const FILL_PERCENT: u64 = 95;

#[derive(Debug)]
pub(super) struct LazyCleaning {
    map: NumberMap<Slot>,
    pages: Vec<u64>,
    /// By slot: the times of the last use but one (0 if there was none) and of the last use.
    heap: SlotHeap<(u64, u64)>,
    now: u64,
    /// The page that was read last.
    last: u64,
    sequential: bool,
    slots: u32,
    stock: Stock,
}

impl LazyCleaning {
    pub(super) fn new(slots: u32) -> Self {
        Self {
            map: number_map(slots as usize + slots as usize / 4),
            pages: vec![0; slots as usize],
            heap: SlotHeap::new(slots),
            now: 0,
            last: u64::MAX - 1,
            sequential: false,
            slots,
            stock: Stock::new(slots),
        }
    }

    fn is_sequential(&self, request: &Request) -> bool {
        match (request.told, request.kind) {
            (Told::Sequential, _) => true,
            (Told::Random, _) => false,
            (Told::Nothing, RequestKind::Read) => self.sequential,
            // Of what leaves nothing is known.
            (Told::Nothing, _) => false,
        }
    }
}

impl CachePolicy for LazyCleaning {
    fn request(&mut self, request: &Request) -> Option<Slot> {
        self.now += 1;
        if request.kind == RequestKind::Read {
            self.sequential = request.page == self.last.wrapping_add(1);
            self.last = request.page;
        }
        let slot = *self.map.get(&request.page)?;
        if request.kind == RequestKind::Read {
            let (_, last) = self.heap.key(slot);
            self.heap.set(slot, (last, self.now));
        }
        Some(slot)
    }

    fn admit(&mut self, request: &Request) -> Admission {
        if self.map.contains_key(&request.page) {
            return Admission::Pass;
        }
        let filling = u64::from(self.stock.used()) * 100 < u64::from(self.slots) * FILL_PERCENT;
        if !filling && self.is_sequential(request) {
            return Admission::Pass;
        }
        let (slot, admission) = match (self.stock.take(), self.heap.top()) {
            (Some(slot), _) => (slot, Admission::Empty(slot)),
            (None, Some(slot)) => {
                let page = self.pages[slot as usize];
                self.heap.remove(slot);
                self.map.remove(&page);
                (slot, Admission::Replace { slot, page })
            }
            (None, None) => return Admission::Pass,
        };
        self.pages[slot as usize] = request.page;
        self.map.insert(request.page, slot);
        self.heap.push(slot, (0, self.now));
        admission
    }

    fn discard(&mut self, page: u64) -> Option<Slot> {
        let slot = self.map.remove(&page)?;
        self.heap.remove(slot);
        self.stock.give_back(slot);
        Some(slot)
    }

    fn find(&self, page: u64) -> Option<Slot> {
        self.map.get(&page).copied()
    }

    fn listing(&self) -> Option<Vec<(u64, Slot)>> {
        Some({
            let slots = (0..).zip(&self.pages).map(|(slot, page)| (*page, slot));
            let mut listing: Vec<(u64, Slot)> =
                slots.filter(|(page, slot)| self.map.get(page) == Some(slot)).collect();
            listing.sort_by_key(|(_, slot)| self.heap.key(*slot));
            listing
        })
    }

    fn cached(&self) -> u32 {
        self.stock.used()
    }

    fn bytes(&self) -> usize {
        map_bytes(&self.map) + self.pages.capacity() * 8 + self.heap.bytes()
    }

    fn flow(&self) -> Flow {
        Flow::OnLeave
    }
}
