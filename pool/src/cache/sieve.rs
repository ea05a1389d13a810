//! SIEVE (Zhang et al., "SIEVE is simpler than LRU: an efficient turn-key eviction algorithm for web caches", NSDI 2024, §3):
//! pages in the order of their admission, a bit each, and a hand that goes from the oldest to the newest.
//!
//! The hand clears bits and takes the first page without one; pages stay where they are, so new ones are looked at soon.

use super::parts::{Chain, Directory, Links, NONE, Stock};
use super::{Admission, CachePolicy, Request, Slot};

#[derive(Debug)]
pub(super) struct Sieve {
    directory: Directory,
    links: Links,
    /// The last one admitted in front. The tag of an entry is 1 if it was used since the hand came by.
    chain: Chain,
    /// Where the next search begins; [`NONE`]: at the back.
    hand: u32,
    stock: Stock,
}

impl Sieve {
    pub(super) fn new(slots: u32) -> Self {
        Self {
            directory: Directory::new(slots as usize),
            links: Links::new(slots as usize),
            chain: Chain::new(),
            hand: NONE,
            stock: Stock::new(slots),
        }
    }

    fn take_victim(&mut self) -> u32 {
        let mut at = self.hand;
        loop {
            if at == NONE {
                at = self.chain.back();
            }
            let entry = self.directory.at_mut(at);
            if entry.tag == 0 {
                break;
            }
            entry.tag = 0;
            at = self.chain.before(&self.links, at);
        }
        self.hand = self.chain.before(&self.links, at);
        self.chain.unlink(&mut self.links, at);
        at
    }
}

impl CachePolicy for Sieve {
    fn request(&mut self, request: &Request) -> Option<Slot> {
        let at = self.directory.find(request.page)?;
        let entry = self.directory.at_mut(at);
        entry.tag = 1;
        Some(entry.slot)
    }

    fn admit(&mut self, request: &Request) -> Admission {
        if self.directory.find(request.page).is_some() {
            return Admission::Pass;
        }
        let (slot, admission) = match self.stock.take() {
            Some(slot) => (slot, Admission::Empty(slot)),
            None => {
                let victim = self.take_victim();
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
        if self.hand == at {
            self.hand = self.chain.before(&self.links, at);
        }
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
