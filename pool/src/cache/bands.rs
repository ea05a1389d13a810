//! TAC with bands (Canim et al., VLDB 2010, §3.3): temperatures are divided into 64 ranges, cached pages of one range form a
//! list, and a page is admitted if its band is warmer than that of the page which would leave.
//!
//! ```text
//!   bands, cold to warm:  [p p p] [ ] [p p p p] … [p p]
//!                          └ the first list that has pages: its least (or most) recently used one leaves
//! ```
//!
//! Bounds are equi-depth: each band has about as many of the cached pages, by a sample of up to 4,096 of them. They are drawn
//! anew after one request a slot; then each cached page goes to the band of its temperature. Between two such times a page
//! changes its band when it is read, or when it is about to leave (corrected up to five times, as the heap's top is).
//!
//! The paper found 50 to 100 bands good, and leaves open when bounds are drawn and which order within a band is better:
//! LRU ([`BandOrder::Lru`]), or MRU for loads that scan ([`BandOrder::Mru`]).

use super::parts::{Chain, Directory, Links, NONE, Stock};
use super::temperature::{TacOptions, Temperatures};
use super::{Admission, CachePolicy, CacheSetup, Request, RequestKind, Savings, Slot};

const BANDS: usize = 64;
const CORRECTIONS: usize = 5;
const SAMPLE: usize = 4096;

/// Which page of the coldest band leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BandOrder {
    /// The one that was used longest ago.
    Lru,
    /// The one that was used last.
    Mru,
}

#[derive(Debug)]
pub(super) struct Bands {
    /// The tag of an entry is its band.
    directory: Directory,
    links: Links,
    /// The last one used in front.
    chains: [Chain; BANDS],
    /// The least temperature of each band but the coldest.
    bounds: [f64; BANDS - 1],
    sample: Vec<f64>,
    /// All cached entries, one after the other, by slot.
    entries: Vec<u32>,
    order: BandOrder,
    temperatures: Temperatures,
    since: u32,
    stock: Stock,
}

impl Bands {
    pub(super) fn new(setup: &CacheSetup, options: TacOptions, order: BandOrder) -> Self {
        let slots = setup.slots as usize;
        Self {
            directory: Directory::new(slots),
            links: Links::new(slots),
            chains: [Chain::new(); BANDS],
            bounds: [f64::INFINITY; BANDS - 1],
            sample: Vec::with_capacity(SAMPLE.min(slots)),
            entries: vec![NONE; slots],
            order,
            temperatures: Temperatures::new(setup, options),
            since: 0,
            stock: Stock::new(setup.slots),
        }
    }

    fn band_of(&self, page: u64) -> usize {
        let temperature = self.temperatures.of(page);
        self.bounds.partition_point(|bound| *bound <= temperature)
    }

    fn move_to(&mut self, at: u32, band: usize) {
        let from = self.directory.at(at).tag as usize;
        self.chains[from].unlink(&mut self.links, at);
        self.chains[band].push_front(&mut self.links, at);
        self.directory.at_mut(at).tag = band as u32;
    }

    /// Draws bounds anew.
    fn divide(&mut self) {
        self.since = 0;
        self.sample.clear();
        let step = self.entries.len().div_ceil(SAMPLE).max(1);
        for at in self.entries.iter().step_by(step).filter(|at| **at != NONE) {
            self.sample.push(self.temperatures.of(self.directory.at(*at).page));
        }
        if self.sample.is_empty() {
            return;
        }
        self.sample.sort_unstable_by(f64::total_cmp);
        for (band, bound) in self.bounds.iter_mut().enumerate() {
            *bound = self.sample[(band + 1) * self.sample.len() / BANDS];
        }
        for slot in 0..self.entries.len() {
            let at = self.entries[slot];
            if at == NONE {
                continue;
            }
            let band = self.band_of(self.directory.at(at).page);
            if band != self.directory.at(at).tag as usize {
                self.move_to(at, band);
            }
        }
    }

    /// The page that would leave, and its band.
    fn coldest(&mut self) -> (u32, usize) {
        let mut corrections = 0;
        loop {
            let band = self.chains.iter().position(|chain| !chain.is_empty()).expect("no slot is empty");
            let at = match self.order {
                BandOrder::Lru => self.chains[band].back(),
                BandOrder::Mru => self.chains[band].front(),
            };
            let now = self.band_of(self.directory.at(at).page);
            if now == band || corrections == CORRECTIONS {
                return (at, band);
            }
            self.move_to(at, now);
            corrections += 1;
        }
    }
}

impl CachePolicy for Bands {
    fn request(&mut self, request: &Request) -> Option<Slot> {
        if let Some(factor) = self.temperatures.count(request) {
            self.bounds.iter_mut().for_each(|bound| *bound *= factor);
        }
        self.since += 1;
        if self.since as usize >= self.entries.len() && self.stock.is_full() {
            self.divide();
        }
        let at = self.directory.find(request.page)?;
        if request.kind == RequestKind::Read {
            self.move_to(at, self.band_of(request.page));
        }
        Some(self.directory.at(at).slot)
    }

    fn admit(&mut self, request: &Request) -> Admission {
        if self.directory.find(request.page).is_some() || self.temperatures.passes_by(request) {
            return Admission::Pass;
        }
        let (slot, admission) = match self.stock.take() {
            Some(slot) => (slot, Admission::Empty(slot)),
            None => {
                let (victim, coldest) = self.coldest();
                if self.band_of(request.page) <= coldest {
                    return Admission::Pass;
                }
                self.chains[coldest].unlink(&mut self.links, victim);
                let victim = self.directory.remove(victim);
                (victim.slot, Admission::Replace { slot: victim.slot, page: victim.page })
            }
        };
        let band = self.band_of(request.page);
        let at = self.directory.insert(request.page, slot, band as u32);
        self.entries[slot as usize] = at;
        self.chains[band].push_front(&mut self.links, at);
        if self.stock.is_full() && self.bounds[0] == f64::INFINITY {
            self.divide();
        }
        admission
    }

    fn discard(&mut self, page: u64) -> Option<Slot> {
        let at = self.directory.find(page)?;
        let entry = self.directory.remove(at);
        self.chains[entry.tag as usize].unlink(&mut self.links, at);
        self.entries[entry.slot as usize] = NONE;
        self.stock.give_back(entry.slot);
        Some(entry.slot)
    }

    fn find(&self, page: u64) -> Option<Slot> {
        self.directory.slot_of(page)
    }

    fn warmth(&self, page: u64) -> f64 {
        self.temperatures.of(page)
    }

    fn heat(&self, page: u64) -> f32 {
        self.temperatures.saved(page)
    }

    fn warm(&mut self, page: u64, heat: f32) {
        self.temperatures.warm(page, heat);
    }

    fn cool(&mut self, page: u64) {
        self.temperatures.cool(page);
    }

    fn listing(&self) -> Option<Vec<(u64, Slot)>> {
        let mut listing = self.directory.listing();
        listing.sort_by(|(one, _), (other, _)| {
            self.temperatures.of(*one).total_cmp(&self.temperatures.of(*other)).then(one.cmp(other))
        });
        Some(listing)
    }

    fn cached(&self) -> u32 {
        self.stock.used()
    }

    fn bytes(&self) -> usize {
        self.directory.bytes()
            + self.links.bytes()
            + self.entries.capacity() * 4
            + self.sample.capacity() * 8
            + self.temperatures.bytes()
    }

    fn set_savings(&mut self, savings: Savings) {
        self.temperatures.set_savings(savings);
    }
}
