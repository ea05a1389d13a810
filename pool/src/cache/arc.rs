//! ARC (Megiddo and Modha, "ARC: a self-tuning, low overhead replacement cache", FAST 2003, figure 4).
//!
//! ```text
//!   T1 used once   │ B1 left T1     a page of B1 comes back: T1 gets more room (the target p rises)
//!   T2 used again  │ B2 left T2     a page of B2 comes back: T1 gets less
//! ```
//!
//! Rules: T1 + T2 fit into the slots, T1 + B1 as well, all four into twice as many. The published cases take a full cache for
//! granted; here discards may have emptied slots, and then nothing is replaced.

use super::parts::{Chain, Directory, Links, NONE, Stock};
use super::{Admission, CachePolicy, Request, Slot};

const T1: usize = 0;
const T2: usize = 1;
const B1: usize = 2;
const B2: usize = 3;

#[derive(Debug)]
pub(super) struct Arc {
    directory: Directory,
    links: Links,
    /// The last one used in front.
    chains: [Chain; 4],
    /// Pages that T1 should have.
    target: f64,
    slots: u32,
    stock: Stock,
}

impl Arc {
    pub(super) fn new(slots: u32) -> Self {
        let most = 2 * slots as usize + 1;
        Self {
            directory: Directory::new(most),
            links: Links::new(most),
            chains: [Chain::new(); 4],
            target: 0.0,
            slots,
            stock: Stock::new(slots),
        }
    }

    fn move_to(&mut self, at: u32, to: usize) {
        let from = self.directory.at(at).tag as usize;
        self.chains[from].unlink(&mut self.links, at);
        self.chains[to].push_front(&mut self.links, at);
        self.directory.at_mut(at).tag = to as u32;
    }

    /// Forgets the page of a chain that was used longest ago, if there is one.
    fn drop_last(&mut self, chain: usize) -> Option<(Slot, u64)> {
        let at = self.chains[chain].back();
        if at == NONE {
            return None;
        }
        self.chains[chain].unlink(&mut self.links, at);
        let entry = self.directory.remove(at);
        Some((entry.slot, entry.page))
    }

    /// Empties a slot, whose page is remembered.
    fn replace(&mut self, from_b2: bool) -> (Slot, u64) {
        let t1 = f64::from(self.chains[T1].len());
        let of_t1 = !self.chains[T1].is_empty() && (t1 > self.target || from_b2 && t1 == self.target);
        let (from, to) = if of_t1 || self.chains[T2].is_empty() { (T1, B1) } else { (T2, B2) };
        let at = self.chains[from].back();
        self.move_to(at, to);
        let entry = self.directory.at_mut(at);
        (std::mem::replace(&mut entry.slot, NONE), entry.page)
    }

    /// A slot: an empty one, or one that is emptied.
    fn slot(&mut self, from_b2: bool) -> (Slot, Admission) {
        match self.stock.take() {
            Some(slot) => (slot, Admission::Empty(slot)),
            None => {
                let (slot, page) = self.replace(from_b2);
                (slot, Admission::Replace { slot, page })
            }
        }
    }

    fn admit_known(&mut self, at: u32) -> Admission {
        let (b1, b2) = (f64::from(self.chains[B1].len()), f64::from(self.chains[B2].len()));
        let from_b2 = self.directory.at(at).tag as usize == B2;
        if from_b2 {
            self.target = (self.target - (b1 / b2).max(1.0)).max(0.0);
        } else {
            self.target = (self.target + (b2 / b1).max(1.0)).min(f64::from(self.slots));
        }
        let (slot, admission) = self.slot(from_b2);
        self.move_to(at, T2);
        self.directory.at_mut(at).slot = slot;
        admission
    }

    fn admit_new(&mut self, page: u64) -> Admission {
        let mut emptied = None;
        let once = self.chains[T1].len() + self.chains[B1].len();
        let all = once + self.chains[T2].len() + self.chains[B2].len();
        if once == self.slots {
            if self.chains[T1].len() < self.slots {
                self.drop_last(B1);
            } else {
                emptied = self.drop_last(T1);
            }
        } else if all == 2 * self.slots {
            self.drop_last(B2);
        }
        let (slot, admission) = match emptied {
            Some((slot, page)) => (slot, Admission::Replace { slot, page }),
            None => self.slot(false),
        };
        let at = self.directory.insert(page, slot, T1 as u32);
        self.chains[T1].push_front(&mut self.links, at);
        admission
    }
}

impl CachePolicy for Arc {
    fn request(&mut self, request: &Request) -> Option<Slot> {
        let at = self.directory.find(request.page)?;
        let slot = self.directory.at(at).slot;
        if slot == NONE {
            return None;
        }
        self.move_to(at, T2);
        Some(slot)
    }

    fn admit(&mut self, request: &Request) -> Admission {
        match self.directory.find(request.page) {
            Some(at) if self.directory.at(at).slot != NONE => Admission::Pass,
            Some(at) => self.admit_known(at),
            None => self.admit_new(request.page),
        }
    }

    fn discard(&mut self, page: u64) -> Option<Slot> {
        let at = self.directory.find(page)?;
        let entry = self.directory.remove(at);
        self.chains[entry.tag as usize].unlink(&mut self.links, at);
        if entry.slot == NONE {
            return None;
        }
        self.stock.give_back(entry.slot);
        Some(entry.slot)
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
        self.directory.bytes() + self.links.bytes()
    }
}
