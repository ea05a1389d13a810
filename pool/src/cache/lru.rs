//! LRU: the page that was used longest ago leaves. (Canim et al., VLDB 2010, §4: a queue of pointers to frames.)
//!
//! A write of a cached page is a use, as a read is.

use super::parts::{Chain, Directory, Links, Stock};
use super::{Admission, CachePolicy, Request, Slot};

#[derive(Debug)]
pub(super) struct Lru {
    directory: Directory,
    links: Links,
    /// The last one used in front.
    chain: Chain,
    stock: Stock,
}

impl Lru {
    pub(super) fn new(slots: u32) -> Self {
        Self {
            directory: Directory::new(slots as usize),
            links: Links::new(slots as usize),
            chain: Chain::new(),
            stock: Stock::new(slots),
        }
    }
}

impl CachePolicy for Lru {
    fn request(&mut self, request: &Request) -> Option<Slot> {
        let at = self.directory.find(request.page)?;
        self.chain.move_front(&mut self.links, at);
        Some(self.directory.at(at).slot)
    }

    fn admit(&mut self, request: &Request) -> Admission {
        if self.directory.find(request.page).is_some() {
            return Admission::Pass;
        }
        let (slot, admission) = match self.stock.take() {
            Some(slot) => (slot, Admission::Empty(slot)),
            None => {
                let victim = self.chain.back();
                self.chain.unlink(&mut self.links, victim);
                let victim = self.directory.remove(victim);
                (victim.slot, Admission::Replace { slot: victim.slot, page: victim.page })
            }
        };
        let at = self.directory.insert(request.page, slot, 0);
        self.chain.push_front(&mut self.links, at);
        admission
    }

    fn discard(&mut self, page: u64) -> Option<Slot> {
        let at = self.directory.find(page)?;
        self.chain.unlink(&mut self.links, at);
        let slot = self.directory.remove(at).slot;
        self.stock.give_back(slot);
        Some(slot)
    }

    fn find(&self, page: u64) -> Option<Slot> {
        self.directory.slot_of(page)
    }

    fn listing(&self) -> Option<Vec<(u64, Slot)>> {
        Some(self.directory.listing_of(&self.chain, &self.links))
    }

    fn cached(&self) -> u32 {
        self.stock.used()
    }

    fn bytes(&self) -> usize {
        self.directory.bytes() + self.links.bytes()
    }
}
