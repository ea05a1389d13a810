//! OPT (Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966): the page
//! leaves whose next read is latest.
//!
//! It needs the trace beforehand ([`Future`]) and has to be given the same requests in the same order, frees included. A page
//! that would be the next to leave is not admitted at all, as TAC need not admit a page either: no policy that may refuse
//! pages has more hits. Hits are reads; a write saves nothing, so the next write does not count.
//!
//! Most hits are not the least time: OPT keeps a page that a scan reads soon before one that is read later, but at random
//! (Canim et al., VLDB 2010, §4).
//!
//! Limit: the future has 4 bytes a request, and at most 2^32 - 2 requests.

use super::heap::SlotHeap;
use super::parts::{NumberMap, Stock, map_bytes, number_map};
use super::{Admission, CachePolicy, CacheSetup, Request, RequestKind, Slot};

const NEVER: u32 = u32::MAX;

/// When the page of each request is read next.
#[derive(Debug)]
pub struct Future(Vec<u32>);

impl Future {
    /// Of a trace.
    ///
    /// # Panics
    /// When the trace has 2^32 - 1 requests or more.
    #[must_use]
    pub fn new(requests: &[Request]) -> Self {
        assert!(requests.len() < NEVER as usize, "a trace of at most 2^32 - 2 requests");
        let mut next = number_map::<u32>(1024);
        let mut future = vec![NEVER; requests.len()];
        for (at, request) in requests.iter().enumerate().rev() {
            future[at] = next.get(&request.page).copied().unwrap_or(NEVER);
            match request.kind {
                RequestKind::Read => _ = next.insert(request.page, at as u32),
                RequestKind::Free => _ = next.remove(&request.page),
                RequestKind::Write | RequestKind::Leave => {}
            }
        }
        Self(future)
    }
}

/// The policy.
#[derive(Debug)]
pub struct Opt {
    future: std::sync::Arc<Future>,
    /// Number of requests so far.
    now: usize,
    map: NumberMap<Slot>,
    pages: Vec<u64>,
    /// By slot: how soon it is read, the latest on top.
    heap: SlotHeap<u32>,
    stock: Stock,
}

impl Opt {
    /// Over the trace that the future was made of. Each of its requests has to come to [`CachePolicy::request`], or to
    /// [`CachePolicy::discard`] if it is a free.
    #[must_use]
    pub fn new(setup: &CacheSetup, future: std::sync::Arc<Future>) -> Self {
        Self {
            future,
            now: 0,
            map: number_map(setup.slots as usize + setup.slots as usize / 4),
            pages: vec![0; setup.slots as usize],
            heap: SlotHeap::new(setup.slots),
            stock: Stock::new(setup.slots),
        }
    }

    /// The key of what the last request asked for: the later it is read again, the less.
    fn key(&self) -> u32 {
        NEVER - self.future.0.get(self.now - 1).copied().unwrap_or(NEVER)
    }
}

impl CachePolicy for Opt {
    fn request(&mut self, request: &Request) -> Option<Slot> {
        self.now += 1;
        let slot = *self.map.get(&request.page)?;
        if request.kind == RequestKind::Read {
            self.heap.set(slot, self.key());
        }
        Some(slot)
    }

    fn admit(&mut self, request: &Request) -> Admission {
        let key = self.key();
        if key == 0 || self.map.contains_key(&request.page) {
            return Admission::Pass;
        }
        let (slot, admission) = match (self.stock.take(), self.heap.top()) {
            (Some(slot), _) => (slot, Admission::Empty(slot)),
            (None, Some(slot)) if self.heap.key(slot) < key => {
                let page = self.pages[slot as usize];
                self.heap.remove(slot);
                self.map.remove(&page);
                (slot, Admission::Replace { slot, page })
            }
            _ => return Admission::Pass,
        };
        self.pages[slot as usize] = request.page;
        self.map.insert(request.page, slot);
        self.heap.push(slot, key);
        admission
    }

    fn discard(&mut self, page: u64) -> Option<Slot> {
        self.now += 1;
        let slot = self.map.remove(&page)?;
        self.heap.remove(slot);
        self.stock.give_back(slot);
        Some(slot)
    }

    fn find(&self, page: u64) -> Option<Slot> {
        self.map.get(&page).copied()
    }

    fn cached(&self) -> u32 {
        self.stock.used()
    }

    fn bytes(&self) -> usize {
        map_bytes(&self.map) + self.pages.capacity() * 8 + self.heap.bytes() + self.future.0.capacity() * 4
    }
}
