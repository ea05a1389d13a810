//! W-TinyLFU (Einziger, Friedman and Manes, "TinyLFU: a highly efficient cache admission policy", ACM TOS 13(4), 2017, §4).
//!
//! ```text
//!   new page ──► window (LRU, 1 %) ──► is it asked for more often than main's next victim? ──no──► out
//!                                         │ yes
//!                                         ▼
//!                main: probation ──used──► protected (80 % of main) ──full──► probation
//! ```
//!
//! How often pages are asked for is estimated by a sketch: four counters of four bits a page, the least of them counts
//! (count-min). After ten requests a slot all counters are halved. The paper's doorkeeper, a filter that keeps pages which
//! are asked for once out of the sketch, is left out, as its authors' own library does for caches of this size.

use super::parts::{Chain, Directory, Links, Stock};
use super::{Admission, CachePolicy, Request, Slot};

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;

/// Counters up to 15, sixteen in a word.
#[derive(Debug)]
pub(super) struct Sketch {
    words: Vec<u64>,
    counted: u64,
    sample: u64,
}

impl Sketch {
    pub(super) fn new(slots: u32) -> Self {
        let words = vec![0; (slots as usize).next_power_of_two().max(8)];
        Self { words, counted: 0, sample: 10 * u64::from(slots) }
    }

    /// The word and the shift of the four counters of a page.
    #[inline]
    fn places(&self, page: u64) -> [(usize, u32); 4] {
        let mask = self.words.len() - 1;
        let spread = page.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let first = (spread ^ spread >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let second = (first ^ first >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1;
        std::array::from_fn(|row| {
            let hash = first.wrapping_add(second.wrapping_mul(row as u64));
            let hash = hash ^ hash >> 31;
            // A row has a quarter of each word: four counters.
            (hash as usize >> 4 & mask, 4 * (4 * row as u32 + (hash as u32 & 3)))
        })
    }

    pub(super) fn count(&mut self, page: u64) {
        let mut added = false;
        for (word, shift) in self.places(page) {
            if self.words[word] >> shift & 15 < 15 {
                self.words[word] += 1 << shift;
                added = true;
            }
        }
        self.counted += u64::from(added);
        if self.counted >= self.sample {
            self.words.iter_mut().for_each(|word| *word = *word >> 1 & 0x7777_7777_7777_7777);
            self.counted /= 2;
        }
    }

    pub(super) fn estimate(&self, page: u64) -> u64 {
        self.places(page).map(|(word, shift)| self.words[word] >> shift & 15).into_iter().min().unwrap_or(0)
    }
}

#[derive(Debug)]
pub(super) struct WTinyLfu {
    directory: Directory,
    links: Links,
    /// The last one used in front.
    chains: [Chain; 3],
    window_most: u32,
    main_most: u32,
    protected_most: u32,
    sketch: Sketch,
    stock: Stock,
}

impl WTinyLfu {
    pub(super) fn new(slots: u32) -> Self {
        let window_most = (slots / 100).max(1);
        let main_most = slots - window_most;
        Self {
            directory: Directory::new(slots as usize + 1),
            links: Links::new(slots as usize + 1),
            chains: [Chain::new(); 3],
            window_most,
            main_most,
            protected_most: main_most * 4 / 5,
            sketch: Sketch::new(slots),
            stock: Stock::new(slots),
        }
    }

    fn move_to(&mut self, at: u32, to: usize) {
        let from = self.directory.at(at).tag as usize;
        self.chains[from].unlink(&mut self.links, at);
        self.chains[to].push_front(&mut self.links, at);
        self.directory.at_mut(at).tag = to as u32;
    }

    fn remove(&mut self, at: u32) -> (Slot, u64) {
        let entry = self.directory.remove(at);
        self.chains[entry.tag as usize].unlink(&mut self.links, at);
        (entry.slot, entry.page)
    }

    /// The window's oldest page goes to main, or it or a page of main goes altogether. The cache is full.
    fn make_room(&mut self) -> (Slot, u64) {
        let victim = match self.chains[PROBATION].is_empty() {
            false => self.chains[PROBATION].back(),
            true => self.chains[PROTECTED].back(),
        };
        if self.chains[WINDOW].len() < self.window_most && self.main_most > 0 {
            // Discards emptied the window: it grows again.
            return self.remove(victim);
        }
        let candidate = self.chains[WINDOW].back();
        if self.main_most == 0 {
            return self.remove(candidate);
        }
        let asked = |at: u32| self.sketch.estimate(self.directory.at(at).page);
        if asked(candidate) > asked(victim) {
            let found = self.remove(victim);
            self.move_to(candidate, PROBATION);
            found
        } else {
            self.remove(candidate)
        }
    }
}

impl CachePolicy for WTinyLfu {
    fn request(&mut self, request: &Request) -> Option<Slot> {
        self.sketch.count(request.page);
        let at = self.directory.find(request.page)?;
        match self.directory.at(at).tag as usize {
            PROBATION if self.protected_most > 0 => {
                self.move_to(at, PROTECTED);
                if self.chains[PROTECTED].len() > self.protected_most {
                    self.move_to(self.chains[PROTECTED].back(), PROBATION);
                }
            }
            chain => self.chains[chain].move_front(&mut self.links, at),
        }
        Some(self.directory.at(at).slot)
    }

    fn admit(&mut self, request: &Request) -> Admission {
        if self.directory.find(request.page).is_some() {
            return Admission::Pass;
        }
        let (slot, admission) = match self.stock.take() {
            Some(slot) => {
                if self.chains[WINDOW].len() >= self.window_most && self.main_most > 0 {
                    self.move_to(self.chains[WINDOW].back(), PROBATION);
                }
                (slot, Admission::Empty(slot))
            }
            None => {
                let (slot, page) = self.make_room();
                (slot, Admission::Replace { slot, page })
            }
        };
        let at = self.directory.insert(request.page, slot, WINDOW as u32);
        self.chains[WINDOW].push_front(&mut self.links, at);
        admission
    }

    fn discard(&mut self, page: u64) -> Option<Slot> {
        let at = self.directory.find(page)?;
        let (slot, _) = self.remove(at);
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
        self.directory.bytes() + self.links.bytes() + self.sketch.words.capacity() * 8
    }
}
