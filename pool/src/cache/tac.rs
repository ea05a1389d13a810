//! TAC, temperature-aware caching (Canim et al., VLDB 2010, §3.2-3.3), as published: the "smoothed heap".
//!
//! ```text
//!   page read from the primary ──► room? admitted
//!                                  full: ≥ 1 % warmer than the coldest? replaces it; otherwise passes by
//! ```
//!
//! The heap keeps the temperature that a page had when it came in, or was on top last. To find the coldest, the page on top
//! gets its temperature of now and sinks; so up to five times, or until the one on top is right.
//!
//! `tac-pages` compares pages by their shares of their extents' temperatures (`temperature.rs`) and is otherwise the same: where an
//! extent has one page that is read often, as with keys in no order, that page alone is kept.
//!
//! A changed page is written to its slot, whatever its temperature; that makes it no warmer.

use super::heap::SlotHeap;
use super::parts::Stock;
use super::places::Places;
pub use super::temperature::TacOptions;
use super::temperature::Temperatures;
use super::{Admission, CachePolicy, CacheSetup, Request, Savings, Slot};

/// Number of times that the top of the heap is corrected before it is believed.
const CORRECTIONS: usize = 5;
/// The factor by which a page has to be warmer than the coldest.
const WARMER: f64 = 1.01;

/// A temperature as the heap keeps it. It is never above what it was made of.
pub(super) trait HeapKey: Copy + PartialOrd + Default + Send + std::fmt::Debug {
    fn of(temperature: f64) -> Self;
    fn temperature(self) -> f64;
}

impl HeapKey for f32 {
    fn of(temperature: f64) -> Self {
        temperature as f32
    }

    fn temperature(self) -> f64 {
        f64::from(self)
    }
}

/// The upper half of an `f32`, which orders as a number does where nothing is negative: 0.8 % less than it was at most, and
/// [`WARMER`] asks for more than that. It makes room for four bits a page that is not cached.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Default)]
pub(super) struct ShortKey(u16);

impl HeapKey for ShortKey {
    fn of(temperature: f64) -> Self {
        Self(((temperature as f32).to_bits() >> 16) as u16)
    }

    fn temperature(self) -> f64 {
        f64::from(f32::from_bits(u32::from(self.0) << 16))
    }
}

#[derive(Debug)]
pub(super) struct Tac<K> {
    places: Places,
    /// Temperatures in less precision: the heap is about right anyway.
    heap: SlotHeap<K>,
    temperatures: Temperatures,
    stock: Stock,
}

impl<K: HeapKey> Tac<K> {
    pub(super) fn new(setup: &CacheSetup, options: TacOptions) -> Self {
        Self {
            places: Places::new(setup.slots),
            heap: SlotHeap::new(setup.slots),
            temperatures: Temperatures::new(setup, options),
            stock: Stock::new(setup.slots),
        }
    }

    /// The slot of (about) the coldest page.
    fn coldest(&mut self) -> Option<Slot> {
        for _ in 0..CORRECTIONS {
            let slot = self.heap.top()?;
            let now = K::of(self.temperatures.of_page(self.places.page(slot)));
            if now == self.heap.key(slot) {
                break;
            }
            self.heap.set(slot, now);
        }
        self.heap.top()
    }

    /// Takes a page in if it is so much warmer than the coldest, or there is room.
    fn admit_if(&mut self, request: &Request, warmer: f64) -> Admission {
        if self.places.find(request.page).is_some() || self.temperatures.passes_by(request) {
            return Admission::Pass;
        }
        let temperature = self.temperatures.of_page(request.page);
        let (slot, admission) = match self.stock.take() {
            Some(slot) => (slot, Admission::Empty(slot)),
            None => {
                let Some(slot) = self.coldest() else { return Admission::Pass };
                let coldest = self.heap.key(slot).temperature();
                if temperature < coldest * warmer
                    || temperature <= 0.0
                    || (warmer > 1.0 && temperature <= coldest)
                {
                    return Admission::Pass;
                }
                let page = self.places.page(slot);
                self.heap.remove(slot);
                self.places.remove(page);
                (slot, Admission::Replace { slot, page })
            }
        };
        self.places.insert(request.page, slot);
        self.heap.push(slot, K::of(temperature));
        admission
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        self.heap.check();
        for (page, slot) in self.places.all() {
            assert_eq!(self.places.find(page), Some(slot), "slot {slot} holds what the map says");
            assert!(
                self.heap.key(slot) <= K::of(self.temperatures.of(page)),
                "between two halvings an extent only becomes warmer"
            );
        }
    }
}

impl<K: HeapKey> CachePolicy for Tac<K> {
    fn request(&mut self, request: &Request) -> Option<Slot> {
        if let Some(factor) = self.temperatures.count(request) {
            self.heap.keys_mut().iter_mut().for_each(|key| *key = K::of(key.temperature() * factor));
        }
        self.find(request.page)
    }

    fn admit(&mut self, request: &Request) -> Admission {
        self.admit_if(request, WARMER)
    }

    fn admit_moved(&mut self, request: &Request) -> Admission {
        self.admit_if(request, 1.0)
    }

    fn discard(&mut self, page: u64) -> Option<Slot> {
        let slot = self.places.remove(page)?;
        self.heap.remove(slot);
        self.stock.give_back(slot);
        Some(slot)
    }

    fn find(&self, page: u64) -> Option<Slot> {
        self.places.find(page)
    }

    fn entry_in(&self, slot: Slot) -> Option<(u64, f32)> {
        let page = self.places.page(slot);
        self.heap.has(slot).then(|| (page, self.temperatures.saved(page)))
    }

    fn adopt(&mut self, page: u64, slot: Slot, warmth: f32) -> bool {
        if self.places.find(page).is_some() {
            return false;
        }
        let warmth = self.temperatures.bring_back(page, warmth);
        self.stock.take_this(slot);
        self.places.insert(page, slot);
        self.heap.push(slot, K::of(f64::from(warmth)));
        true
    }

    fn warmth(&self, page: u64) -> f64 {
        self.temperatures.of_page(page)
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

    fn cached(&self) -> u32 {
        self.stock.used()
    }

    fn bytes(&self) -> usize {
        self.places.bytes() + self.heap.bytes() + self.temperatures.bytes() + self.stock.bytes()
    }

    fn set_savings(&mut self, savings: Savings) {
        self.temperatures.set_savings(savings);
    }
}
