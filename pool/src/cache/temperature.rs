//! Temperatures of extents (Canim et al., "SSD bufferpool extensions for database systems", VLDB 2010, §3.1).
//!
//! ```text
//!   page read ──► window of 20 ──full──► extent met more than twice: its requests were sequential, each adds ΔS
//!                                        otherwise: random, each adds ΔR         (told: what the reader says)
//!   after N requests: all temperatures are halved
//! ```
//!
//! Rules:
//! - Reads that missed the frames count, whether the SSD has them or not. Writes do not.
//! - The window tumbles: it is emptied when it was looked at.
//! - Halving is done by doubling the unit that is added, so it takes no time, and temperatures taken before and after it
//!   compare as if both had been halved. When the unit becomes large, all temperatures are divided by it, and whoever keeps
//!   temperatures elsewhere is told to do so, too.
//! - Temperatures count in random reads: each of them adds 1, a sequential one ΔS / ΔR. So what was known before ΔS and ΔR were
//!   learned, or was saved by an opening with other devices, weighs no more and no less than what comes.
//! - Where ΔS ≤ 0, sequential reads make nothing warmer, and an extent whose last requests were sequential passes by the SSD.
//!
//! Beside it, where asked for, *shares* (ours, not the paper's): each page of an extent has a counter of four bits, and a page is as
//! warm as its extent times `(α + its count) / (α + the mean count of the extent)`. Reads that are told to be sequential are not counted.
//!
//! - The mean of an extent's shares is 1, so heat is spread among its pages, never made.
//! - All counts of an extent are halved when one is full: a share says how an extent's reads are spread, its temperature how
//!   many there are and how old.
//! - α says how much a page is taken for its extent until it was read often. An extent with few reads, or whose pages are read
//!   alike, behaves as published.
//!
//! The paper leaves N open. It is 5 requests a slot here: enough for each cached page to be asked for a few times between
//! two halvings, and short against the time in which a database's hot set moves.

use super::parts::{NumberMap, map_bytes, number_map};
use super::{CacheSetup, Request, RequestKind, Savings, Told};

/// Options of temperatures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TacOptions {
    /// Requests of a window.
    pub window: u32,
    /// An extent that is met more often in a window is read sequentially.
    pub random_most: u32,
    /// Temperatures are halved after so many requests a slot; 0: never.
    pub halve_after: u32,
    /// The readers' knowledge counts more than the window.
    pub told: bool,
    /// Pages have shares of their extent's temperature.
    pub shares: bool,
}

impl Default for TacOptions {
    /// The paper's.
    fn default() -> Self {
        Self { window: 20, random_most: 2, halve_after: 5, told: false, shares: false }
    }
}

/// The unit is made 1 again above this.
const UNIT_MOST: f64 = (1_u64 << 40) as f64;

/// Extents whose temperatures stand together, so that one costs about eight bytes where they lie side by side.
const TOGETHER: u64 = 16;

/// Extents whose counts stand together: 2 KiB of them, so that what leads there is little beside.
const COUNTED_TOGETHER: u64 = 128;

/// The temperature of an extent; the sign says that its last requests were sequential.
#[derive(Clone, Copy, Debug, Default)]
struct Extent(f32);

impl Extent {
    fn temperature(self) -> f64 {
        f64::from(self.0.abs())
    }

    fn is_sequential(self) -> bool {
        self.0.is_sign_negative()
    }

    fn set(&mut self, temperature: f64, sequential: bool) {
        let temperature = temperature as f32;
        self.0 = if sequential { -temperature } else { temperature };
    }
}

/// The pull of a page's temperature towards its extent's: so many reads are added to each page.
const ALPHA: f64 = 0.5;

/// Counters of an extent.
const COUNTERS: u64 = 32;

/// The reads of an extent's pages, four bits each: the first sixteen pages in the first word. An extent of more pages than
/// counters has neighbours share one.
#[derive(Clone, Copy, Debug, Default)]
struct Counts([u64; 2]);

impl Counts {
    const LOW_BITS: u64 = 0x7777_7777_7777_7777;

    fn of(self, counter: u64) -> u64 {
        self.0[counter as usize / 16] >> (4 * (counter % 16)) & 15
    }

    /// Counts a read.
    fn add(&mut self, counter: u64) {
        if self.of(counter) == 15 {
            self.0.iter_mut().for_each(|word| *word = *word >> 1 & Self::LOW_BITS);
        }
        self.0[counter as usize / 16] += 1 << (4 * (counter % 16));
    }

    fn sum(self) -> u64 {
        const PAIRS: u64 = 0x0f0f_0f0f_0f0f_0f0f;
        let bytes = self.0.map(|word| (word & PAIRS) + (word >> 4 & PAIRS));
        bytes.into_iter().flat_map(u64::to_le_bytes).map(u64::from).sum()
    }
}

/// The weights of a random and of a sequential request: ΔR and ΔS, in units of ΔR.
fn weights(savings: &Savings) -> (f64, f64) {
    let Savings { random_ns, sequential_ns } = *savings;
    if random_ns > 0.0 {
        (1.0, sequential_ns.max(0.0) / random_ns)
    } else {
        (0.0, f64::from(sequential_ns > 0.0))
    }
}

#[derive(Debug)]
pub(super) struct Temperatures {
    extents: NumberMap<[Extent; TOGETHER as usize]>,
    /// Of pages that are read, where pages have shares. Boxed: a table of them would be half empty.
    counts: NumberMap<Box<[Counts]>>,
    window: Vec<(u64, Told)>,
    options: TacOptions,
    savings: Savings,
    /// The weights of a random and of a sequential request.
    weights: (f64, f64),
    extent_pages: u64,
    unit: f64,
    requests: u64,
    halve_every: u64,
}

impl Temperatures {
    pub(super) fn new(setup: &CacheSetup, options: TacOptions) -> Self {
        Self {
            extents: number_map(64),
            counts: number_map(0),
            window: Vec::with_capacity(options.window as usize),
            options,
            savings: setup.savings,
            weights: weights(&setup.savings),
            extent_pages: u64::from(setup.extent_pages),
            unit: 1.0,
            requests: 0,
            halve_every: u64::from(options.halve_after) * u64::from(setup.slots),
        }
    }

    /// Counts a request. Says by what whoever keeps temperatures has to multiply them, if they have become too large.
    #[inline]
    pub(super) fn count(&mut self, request: &Request) -> Option<f64> {
        if request.kind != RequestKind::Read {
            return None;
        }
        if self.options.shares && !(self.options.told && request.told == Told::Sequential) {
            self.count_page(request.page);
        }
        self.window.push((request.page / self.extent_pages, request.told));
        if self.window.len() >= self.options.window as usize {
            self.close_window();
        }
        self.requests += 1;
        if self.halve_every == 0 || self.requests < self.halve_every {
            return None;
        }
        self.requests = 0;
        self.unit *= 2.0;
        (self.unit >= UNIT_MOST).then(|| self.rescale())
    }

    /// The counter of a page in its extent.
    fn counter(&self, page: u64) -> u64 {
        let place = page % self.extent_pages;
        if self.extent_pages <= COUNTERS { place } else { place * COUNTERS / self.extent_pages }
    }

    fn count_page(&mut self, page: u64) {
        let (extent, counter) = (page / self.extent_pages, self.counter(page));
        let fresh = || vec![Counts::default(); COUNTED_TOGETHER as usize].into_boxed_slice();
        let group = self.counts.entry(extent / COUNTED_TOGETHER).or_insert_with(fresh);
        group[(extent % COUNTED_TOGETHER) as usize].add(counter);
    }

    /// The factor by which a page is warmer than its extent.
    fn share(&self, page: u64) -> f64 {
        let extent = page / self.extent_pages;
        let Some(group) = self.counts.get(&(extent / COUNTED_TOGETHER)) else { return 1.0 };
        let counts = group[(extent % COUNTED_TOGETHER) as usize];
        let mean = counts.sum() as f64 / self.extent_pages.min(COUNTERS) as f64;
        (ALPHA + counts.of(self.counter(page)) as f64) / (ALPHA + mean)
    }

    /// The temperature of a page, in a scale of this moment: its extent's, or its share of that.
    #[inline]
    pub(super) fn of_page(&self, page: u64) -> f64 {
        if self.options.shares { self.of(page) * self.share(page) } else { self.of(page) }
    }

    fn close_window(&mut self) {
        for at in 0..self.window.len() {
            let (extent, told) = self.window[at];
            let met = self.window.iter().filter(|(other, _)| *other == extent).count();
            let sequential = match (self.options.told, told) {
                (true, Told::Sequential) => true,
                (true, Told::Random) => false,
                _ => met > self.options.random_most as usize,
            };
            let (random_adds, sequential_adds) = self.weights;
            let adds = if sequential { sequential_adds } else { random_adds };
            let group = self.extents.entry(extent / TOGETHER).or_default();
            let known = &mut group[(extent % TOGETHER) as usize];
            known.set(known.temperature() + adds * self.unit, sequential);
        }
        self.window.clear();
    }

    fn rescale(&mut self) -> f64 {
        let factor = 1.0 / self.unit;
        let all = self.extents.values_mut().flatten();
        all.for_each(|extent| extent.set(extent.temperature() * factor, extent.is_sequential()));
        self.unit = 1.0;
        factor
    }

    /// The temperature of a page's extent, in a scale of this moment.
    #[inline]
    pub(super) fn of(&self, page: u64) -> f64 {
        self.extent_of(page).temperature()
    }

    /// The temperature of a page's extent, in a scale that outlives this.
    pub(super) fn saved(&self, page: u64) -> f32 {
        (self.of(page) / self.unit) as f32
    }

    /// Brings a saved temperature back, before the first request. Gives what the extent has then.
    pub(super) fn bring_back(&mut self, page: u64, saved: f32) -> f32 {
        let extent = page / self.extent_pages;
        let group = self.extents.entry(extent / TOGETHER).or_default();
        let known = &mut group[(extent % TOGETHER) as usize];
        if saved.is_finite() && f64::from(saved) > known.temperature() {
            known.set(f64::from(saved), false);
        }
        if self.options.shares {
            // It was cached: its neighbours that were not are taken for colder.
            self.count_page(page);
        }
        self.of_page(page) as f32
    }

    /// Makes the extent of a page warmer by so much, in the scale of [`Temperatures::saved`].
    pub(super) fn warm(&mut self, page: u64, heat: f32) {
        if !(heat > 0.0 && heat.is_finite()) {
            return;
        }
        let extent = page / self.extent_pages;
        let group = self.extents.entry(extent / TOGETHER).or_default();
        let known = &mut group[(extent % TOGETHER) as usize];
        known.set(known.temperature() + f64::from(heat) * self.unit, known.is_sequential());
    }

    /// Forgets how warm the extent of a page was. None of its pages may be cached.
    pub(super) fn cool(&mut self, page: u64) {
        let extent = page / self.extent_pages;
        if let Some(group) = self.extents.get_mut(&(extent / TOGETHER)) {
            group[(extent % TOGETHER) as usize] = Extent::default();
        }
        if let Some(group) = self.counts.get_mut(&(extent / COUNTED_TOGETHER)) {
            group[(extent % COUNTED_TOGETHER) as usize] = Counts::default();
        }
    }

    #[inline]
    fn extent_of(&self, page: u64) -> Extent {
        let extent = page / self.extent_pages;
        let group = self.extents.get(&(extent / TOGETHER));
        group.map_or(Extent::default(), |group| group[(extent % TOGETHER) as usize])
    }

    /// Does the primary read this page as fast as the SSD would?
    pub(super) fn passes_by(&self, request: &Request) -> bool {
        self.savings.sequential_ns <= 0.0
            && match (self.options.told, request.told) {
                (true, Told::Sequential) => true,
                (true, Told::Random) => false,
                _ => self.extent_of(request.page).is_sequential(),
            }
    }

    pub(super) fn set_savings(&mut self, savings: Savings) {
        self.savings = savings;
        self.weights = weights(&savings);
    }

    pub(super) fn bytes(&self) -> usize {
        let counts = self.counts.len() * COUNTED_TOGETHER as usize * size_of::<Counts>();
        let counts = counts + map_bytes(&self.counts);
        counts + map_bytes(&self.extents) + self.window.capacity() * size_of::<(u64, Told)>()
    }
}
