//! S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023, §4.2) as published: a small queue with
//! a tenth of the slots, a main queue, and a ghost that remembers as many pages as main has room for.
//!
//! The frames have the same algorithm in another shape ([`crate::policy::S3Fifo`]): there a page may be pinned, the ghost is
//! a table of hashes, and hits are counted by whoever reads.

use super::parts::{Chain, Directory, Links, NONE, Stock};
use super::{Admission, CachePolicy, Request, Slot};

const MOST_USES: u32 = 3;
/// Where an entry is; its uses stand in the bits below.
const SMALL: u32 = 1 << 8;
const MAIN: u32 = 2 << 8;
const GHOST: u32 = 3 << 8;
const PLACE: u32 = !0xff;

#[derive(Debug)]
pub(super) struct S3Fifo {
    directory: Directory,
    links: Links,
    small: Chain,
    main: Chain,
    ghost: Chain,
    small_most: u32,
    ghost_most: u32,
    stock: Stock,
}

impl S3Fifo {
    pub(super) fn new(slots: u32) -> Self {
        let small_most = (slots / 10).max(1);
        let ghost_most = slots - small_most;
        let most = (slots + ghost_most + 1) as usize;
        Self {
            directory: Directory::new(most),
            links: Links::new(most),
            small: Chain::new(),
            main: Chain::new(),
            ghost: Chain::new(),
            small_most,
            ghost_most,
            stock: Stock::new(slots),
        }
    }

    /// Takes the slot of a page. There is one.
    fn evict(&mut self) -> (Slot, u64) {
        loop {
            let from_small = self.small.len() >= self.small_most || self.main.is_empty();
            let at = if from_small { self.small.back() } else { self.main.back() };
            let uses = self.directory.at(at).tag & !PLACE;
            if from_small {
                self.small.unlink(&mut self.links, at);
                if uses > 1 {
                    self.directory.at_mut(at).tag = MAIN;
                    self.main.push_front(&mut self.links, at);
                    continue;
                }
                return self.remember(at);
            }
            self.main.unlink(&mut self.links, at);
            if uses > 0 {
                self.directory.at_mut(at).tag -= 1;
                self.main.push_front(&mut self.links, at);
                continue;
            }
            let entry = self.directory.remove(at);
            return (entry.slot, entry.page);
        }
    }

    fn remember(&mut self, at: u32) -> (Slot, u64) {
        let entry = self.directory.at_mut(at);
        let found = (entry.slot, entry.page);
        entry.slot = NONE;
        entry.tag = GHOST;
        self.ghost.push_front(&mut self.links, at);
        if self.ghost.len() > self.ghost_most {
            let oldest = self.ghost.back();
            self.ghost.unlink(&mut self.links, oldest);
            self.directory.remove(oldest);
        }
        found
    }
}

impl CachePolicy for S3Fifo {
    fn request(&mut self, request: &Request) -> Option<Slot> {
        let at = self.directory.find(request.page)?;
        let entry = self.directory.at_mut(at);
        if entry.slot == NONE {
            return None;
        }
        if entry.tag & !PLACE < MOST_USES {
            entry.tag += 1;
        }
        Some(entry.slot)
    }

    fn admit(&mut self, request: &Request) -> Admission {
        let known = self.directory.find(request.page);
        if known.is_some_and(|at| self.directory.at(at).slot != NONE) {
            return Admission::Pass;
        }
        // The ghost forgets the page before another one takes its place there.
        if let Some(at) = known {
            self.ghost.unlink(&mut self.links, at);
            self.directory.remove(at);
        }
        let (slot, admission) = match self.stock.take() {
            Some(slot) => (slot, Admission::Empty(slot)),
            None => {
                let (slot, page) = self.evict();
                (slot, Admission::Replace { slot, page })
            }
        };
        let place = if known.is_some() { MAIN } else { SMALL };
        let at = self.directory.insert(request.page, slot, place);
        let queue = if known.is_some() { &mut self.main } else { &mut self.small };
        queue.push_front(&mut self.links, at);
        admission
    }

    fn discard(&mut self, page: u64) -> Option<Slot> {
        let at = self.directory.find(page)?;
        let queue = match self.directory.at(at).tag & PLACE {
            SMALL => &mut self.small,
            MAIN => &mut self.main,
            _ => &mut self.ghost,
        };
        queue.unlink(&mut self.links, at);
        let slot = self.directory.remove(at).slot;
        if slot == NONE {
            return None;
        }
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
        self.directory.bytes() + self.links.bytes()
    }
}
