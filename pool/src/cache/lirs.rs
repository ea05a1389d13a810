//! LIRS (Jiang and Zhang, "LIRS: an efficient low inter-reference recency set replacement policy", SIGMETRICS 2002, §3).
//!
//! ```text
//!   stack S: pages by last use, cached or not; at its bottom always a LIR page
//!   queue Q: cached HIR pages; its oldest leaves
//!   LIR: few other pages between its last two uses; HIR: the others. 1 % of the slots are for HIR pages
//! ```
//!
//! Rules: a LIR page is cached and in S; a cached HIR page is in Q; a page that is not cached is in S.
//!
//! Difference from the paper: of pages that are not cached, twice as many as there are slots are remembered, the oldest are
//! forgotten first; the paper bounds them by the stack alone, which a long scan makes as long as itself.

use super::parts::{Chain, Directory, Links, NONE, Stock};
use super::{Admission, CachePolicy, Request, Slot};

/// Bits of a tag.
const LIR: u32 = 1;
const IN_STACK: u32 = 2;

#[derive(Debug)]
pub(super) struct Lirs {
    directory: Directory,
    /// Of the stack.
    recency: Links,
    /// Of the queue and of the chain of pages that are not cached.
    other: Links,
    stack: Chain,
    queue: Chain,
    /// Not cached; the last one that left in front.
    remembered: Chain,
    lir: u32,
    lir_most: u32,
    remembered_most: u32,
    stock: Stock,
}

impl Lirs {
    pub(super) fn new(slots: u32) -> Self {
        let remembered_most = slots.saturating_mul(2);
        let most = slots as usize + remembered_most as usize + 1;
        Self {
            directory: Directory::new(most),
            recency: Links::new(most),
            other: Links::new(most),
            stack: Chain::new(),
            queue: Chain::new(),
            remembered: Chain::new(),
            lir: 0,
            lir_most: slots - (slots / 100).max(1),
            remembered_most,
            stock: Stock::new(slots),
        }
    }

    fn has(&self, at: u32, bit: u32) -> bool {
        self.directory.at(at).tag & bit != 0
    }

    /// To the top of the stack, whether it was in there or not.
    fn raise(&mut self, at: u32) {
        if self.has(at, IN_STACK) {
            self.stack.move_front(&mut self.recency, at);
        } else {
            self.stack.push_front(&mut self.recency, at);
            self.directory.at_mut(at).tag |= IN_STACK;
        }
    }

    /// Takes HIR pages off the bottom of the stack.
    fn prune(&mut self) {
        loop {
            let at = self.stack.back();
            if at == NONE || self.has(at, LIR) {
                return;
            }
            self.stack.unlink(&mut self.recency, at);
            self.directory.at_mut(at).tag &= !IN_STACK;
            if self.directory.at(at).slot == NONE {
                self.remembered.unlink(&mut self.other, at);
                self.directory.remove(at);
            }
        }
    }

    /// The LIR page that was used longest ago becomes a HIR page, the newest of the queue.
    fn demote(&mut self) {
        self.prune();
        let at = self.stack.back();
        self.stack.unlink(&mut self.recency, at);
        self.directory.at_mut(at).tag = 0;
        self.lir -= 1;
        self.queue.push_front(&mut self.other, at);
        self.prune();
    }

    fn promote(&mut self, at: u32) {
        self.directory.at_mut(at).tag |= LIR;
        self.lir += 1;
        self.raise(at);
        if self.lir > self.lir_most {
            self.demote();
        }
    }

    /// Empties a slot.
    fn evict(&mut self) -> (Slot, u64) {
        if self.queue.is_empty() {
            self.demote();
        }
        let at = self.queue.back();
        self.queue.unlink(&mut self.other, at);
        let entry = self.directory.at_mut(at);
        let found = (std::mem::replace(&mut entry.slot, NONE), entry.page);
        if self.has(at, IN_STACK) {
            self.remembered.push_front(&mut self.other, at);
            if self.remembered.len() > self.remembered_most {
                self.forget(self.remembered.back());
            }
        } else {
            self.directory.remove(at);
        }
        found
    }

    /// Forgets a page that is not cached.
    fn forget(&mut self, at: u32) {
        self.remembered.unlink(&mut self.other, at);
        self.stack.unlink(&mut self.recency, at);
        self.directory.remove(at);
        self.prune();
    }
}

impl CachePolicy for Lirs {
    fn request(&mut self, request: &Request) -> Option<Slot> {
        let at = self.directory.find(request.page)?;
        let slot = self.directory.at(at).slot;
        if slot == NONE {
            return None;
        }
        if self.has(at, LIR) {
            self.raise(at);
            self.prune();
        } else if self.has(at, IN_STACK) && self.lir_most > 0 {
            self.queue.unlink(&mut self.other, at);
            self.promote(at);
        } else {
            self.raise(at);
            self.queue.move_front(&mut self.other, at);
            self.prune();
        }
        Some(slot)
    }

    fn admit(&mut self, request: &Request) -> Admission {
        if self.find(request.page).is_some() {
            return Admission::Pass;
        }
        let (slot, admission) = match self.stock.take() {
            Some(slot) => (slot, Admission::Empty(slot)),
            None => {
                let (slot, page) = self.evict();
                (slot, Admission::Replace { slot, page })
            }
        };
        // The eviction may have forgotten the page.
        let known = self.directory.find(request.page);
        let at = match known {
            Some(at) => {
                self.remembered.unlink(&mut self.other, at);
                self.directory.at_mut(at).slot = slot;
                at
            }
            None => self.directory.insert(request.page, slot, 0),
        };
        if self.lir < self.lir_most || known.is_some() && self.lir_most > 0 {
            self.promote(at);
        } else {
            self.raise(at);
            self.queue.push_front(&mut self.other, at);
            self.prune();
        }
        admission
    }

    fn discard(&mut self, page: u64) -> Option<Slot> {
        let at = self.directory.find(page)?;
        let slot = self.directory.at(at).slot;
        if slot == NONE {
            self.forget(at);
            return None;
        }
        if self.has(at, IN_STACK) {
            self.stack.unlink(&mut self.recency, at);
        }
        if self.has(at, LIR) {
            self.lir -= 1;
        } else {
            self.queue.unlink(&mut self.other, at);
        }
        self.directory.remove(at);
        self.prune();
        self.stock.give_back(slot);
        Some(slot)
    }

    fn find(&self, page: u64) -> Option<Slot> {
        self.directory.slot_of(page)
    }

    fn listing(&self) -> Option<Vec<(u64, Slot)>> {
        Some(self.directory.listing())
    }

    fn cached(&self) -> u32 {
        self.stock.used()
    }

    fn bytes(&self) -> usize {
        self.directory.bytes() + self.recency.bytes() + self.other.bytes()
    }
}
