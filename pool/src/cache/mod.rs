//! Which pages lie on the SSD: policies of the level between the frames and a slow primary.
//!
//! ```text
//!   miss of the frames ──► request ──hit──► read the slot, or write it anew
//!                             │ miss
//!                             ▼
//!                     read the primary ──► admit ──► Pass | Empty(slot) | Replace(slot, the page that leaves)
//! ```
//!
//! A hit of this level costs an I/O. Its policies may therefore take a lock and reorder lists at every hit, which the frames'
//! [`Policy`](crate::policy::Policy) rules out. They decide over slots and page numbers, never over bytes; the level maps a
//! slot to a place on the device.
//!
//! Rules:
//! - Between a miss and [`CachePolicy::admit`] lies a read: other requests may come in between, and the admission may never
//!   come (the page was damaged, the buffer of writes was full). A page that was admitted meanwhile is not admitted twice.
//! - A page is in one slot at most, a slot holds one page at most, and there are never more pages than slots.
//! - A request allocates nothing once maps and lists have their final size. Only what a policy remembers of pages or extents
//!   that are not cached may grow, with a bound or with the extents that exist.
//! - One sequence of calls gives one sequence of decisions: no policy draws numbers or iterates a map.
//!
//! | policy | orders by | remembers what is not cached | file |
//! |---|---|---|---|
//! | `lru` | last use | – | `lru.rs` |
//! | `fifo` | admission | – | `fifo.rs` |
//! | `clock` | a bit a slot, and a hand | – | `clock.rs` |
//! | `sieve` | admission, a bit, and a hand | – | `sieve.rs` |
//! | `s3-fifo` | three queues | as many pages as main holds | `s3fifo.rs` |
//! | `arc` | recency and frequency, the balance learned | as many pages as there are slots | `arc.rs` |
//! | `lirs` | the distance between the last two uses | up to two pages a slot | `lirs.rs` |
//! | `w-tinylfu` | a window, then frequency | a sketch of counters | `tinylfu.rs` |
//! | `lazy-cleaning` | the last use but one; random pages only | – | `lazy.rs` |
//! | `tac`, `tac-told` | temperature of extents, in a heap | a temperature an extent | `tac.rs` |
//! | `tac-pages` | the same, times the page's share of it | the same, and four bits a page | `tac.rs` |
//! | `tac-bands`, `tac-bands-mru` | the same, in bands | the same | `bands.rs` |
//! | `opt` | the next read, known beforehand | all | `opt.rs` |
//!
//! What the level itself has to do: slots whose reads or writes are under way must not be written meanwhile. A policy gives a
//! slot away as soon as it decides; the level keeps a few spare places on the device and maps slots to places.

mod arc;
mod bands;
mod clock;
mod fifo;
mod heap;
mod lazy;
mod lirs;
mod lru;
mod opt;
mod parts;
mod places;
mod s3fifo;
mod sieve;
mod tac;
mod temperature;
mod tinylfu;

use std::fmt;
use std::str::FromStr;

pub use bands::BandOrder;
pub use opt::{Future, Opt};
pub use tac::TacOptions;

/// A place for one page, counted from 0.
pub type Slot = u32;

/// The kind of a request for a page below the frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RequestKind {
    /// It is read, since no frame has it.
    Read,
    /// Its changed bytes are written.
    Write,
    /// It leaves its frame unchanged; told only where the frames say so.
    Leave,
    /// It is freed: what is cached of it is void.
    Free,
}

/// The reader's knowledge of the pages that it asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Told {
    /// Nothing.
    #[default]
    Nothing,
    /// They come one after the other.
    Sequential,
    /// They come from anywhere.
    Random,
}

/// A request for one page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Which page: its number on the primary.
    pub page: u64,
    /// The kind of the request.
    pub kind: RequestKind,
    /// Its reader's knowledge.
    pub told: Told,
}

impl Request {
    /// A read of a page that nothing is known of.
    #[must_use]
    pub const fn read(page: u64) -> Self {
        Self { page, kind: RequestKind::Read, told: Told::Nothing }
    }

    /// A write of a page.
    #[must_use]
    pub const fn write(page: u64) -> Self {
        Self { page, kind: RequestKind::Write, told: Told::Nothing }
    }
}

/// Where a page goes that was read, or written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// Nowhere: it passes by, or has come in meanwhile.
    Pass,
    /// Into a slot without a page.
    Empty(Slot),
    /// Into a slot whose page leaves.
    Replace {
        /// The slot.
        slot: Slot,
        /// The page that leaves it.
        page: u64,
    },
}

/// When pages are offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// When they are read from the primary.
    OnRead,
    /// When they leave their frame, changed or not; where the frames do not say so, when they are read.
    OnLeave,
}

/// Time that a page on the SSD saves: the primary's time for it less the SSD's, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Savings {
    /// When it would be read beside its neighbours (the paper's ΔS).
    pub sequential_ns: f64,
    /// When it would be read alone (ΔR).
    pub random_ns: f64,
}

impl Default for Savings {
    /// Of pages of 16 KiB, on a disk with 7,200 revolutions a minute and on the SSD of Canim et al., VLDB 2010, §4.1.
    fn default() -> Self {
        Self { sequential_ns: 99_000.0, random_ns: 12_447_000.0 }
    }
}

/// The facts that all policies need.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CacheSetup {
    /// Number of pages that fit.
    pub slots: u32,
    /// Pages of an extent.
    pub extent_pages: u32,
    /// Time that a page saves.
    pub savings: Savings,
}

impl CacheSetup {
    /// A setup with `slots` slots, extents of 32 pages, the usual savings.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        Self { slots, extent_pages: 32, savings: Savings::default() }
    }
}

/// A policy of the SSD level. Its calls are made one at a time.
pub trait CachePolicy: Send + fmt::Debug {
    /// Tells the policy of a read or a write; gives the slot if the page has one. Neither admits nor evicts.
    fn request(&mut self, request: &Request) -> Option<Slot>;

    /// Decides where a page goes that had no slot.
    fn admit(&mut self, request: &Request) -> Admission;

    /// Forgets a page; gives the slot that is empty by that.
    fn discard(&mut self, page: u64) -> Option<Slot>;

    /// The slot of a page, without telling the policy of a request.
    fn find(&self, page: u64) -> Option<Slot>;

    /// Number of pages that are cached.
    fn cached(&self) -> u32;

    /// Memory that it uses.
    fn bytes(&self) -> usize;

    /// The warmth of a page, for a caller that has to choose among admitted pages; all are alike where the policy
    /// does not know it.
    fn warmth(&self, _page: u64) -> f64 {
        0.0
    }

    /// The warmth of a page's extent, in a scale that outlives halvings; 0 where the policy does not know it.
    fn heat(&self, _page: u64) -> f32 {
        0.0
    }

    /// Makes the extent of a page warmer by so much, in the scale of [`CachePolicy::heat`].
    fn warm(&mut self, _page: u64, _heat: f32) {}

    /// The extent of a page, of which nothing is cached, holds something else from now on: how warm it was is forgotten.
    fn cool(&mut self, _page: u64) {}

    /// Decides, as [`CachePolicy::admit`] does, about a page that was cached elsewhere and has moved: as warm as the coldest is
    /// enough.
    fn admit_moved(&mut self, request: &Request) -> Admission {
        self.admit(request)
    }

    /// The page in a slot, and how warm it is, for a map that outlives the policy; none where the policy cannot be brought back.
    fn entry_in(&self, _slot: Slot) -> Option<(u64, f32)> {
        None
    }

    /// Takes an entry back, before the first request; slots come in order. `false`: it cannot.
    fn adopt(&mut self, _page: u64, _slot: Slot, _warmth: f32) -> bool {
        false
    }

    /// All cached pages with their slots, the one that would be missed least in front as far as that is known, for a map that
    /// outlives the policy; `None` where [`CachePolicy::entry_in`] tells it. Whoever gets them back admits them to a fresh policy
    /// in the order of their slots, and requests them in this order.
    fn listing(&self) -> Option<Vec<(u64, Slot)>> {
        None
    }

    /// When it wants pages.
    fn flow(&self) -> Flow {
        Flow::OnRead
    }

    /// Other savings, learned from the times of reads.
    fn set_savings(&mut self, _savings: Savings) {}
}

/// The policies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum CacheKind {
    /// Least recently used.
    Lru,
    /// First in, first out.
    Fifo,
    /// A hand that spares what was used.
    Clock,
    /// A hand over the order of admission.
    Sieve,
    /// Three queues.
    S3Fifo,
    /// Adaptive replacement.
    Arc,
    /// Low inter-reference recency.
    Lirs,
    /// A window before a main part that admits by frequency.
    WTinyLfu,
    /// The last use but one, random pages only.
    LazyCleaning,
    /// Temperature-aware caching, as published.
    Tac,
    /// The same, but told which reads are sequential, where readers tell.
    TacTold,
    /// The same, and pages have shares of their extent's temperature.
    TacPages,
    /// Temperatures in bands, least recently used within.
    TacBands,
    /// Temperatures in bands, most recently used within.
    TacBandsMru,
    /// Belady's, with the trace in hand.
    Opt,
}

impl CacheKind {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Tac,
        Self::TacTold,
        Self::TacPages,
        Self::TacBands,
        Self::TacBandsMru,
        Self::Lru,
        Self::Fifo,
        Self::Clock,
        Self::Arc,
        Self::Lirs,
        Self::WTinyLfu,
        Self::S3Fifo,
        Self::Sieve,
        Self::LazyCleaning,
        Self::Opt,
    ];

    /// Its name in arguments and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::Fifo => "fifo",
            Self::Clock => "clock",
            Self::Sieve => "sieve",
            Self::S3Fifo => "s3-fifo",
            Self::Arc => "arc",
            Self::Lirs => "lirs",
            Self::WTinyLfu => "w-tinylfu",
            Self::LazyCleaning => "lazy-cleaning",
            Self::Tac => "tac",
            Self::TacTold => "tac-told",
            Self::TacPages => "tac-pages",
            Self::TacBands => "tac-bands",
            Self::TacBandsMru => "tac-bands-mru",
            Self::Opt => "opt",
        }
    }

    /// Can it decide without knowing the future?
    #[must_use]
    pub const fn is_online(self) -> bool {
        !matches!(self, Self::Opt)
    }

    /// A fresh one, with nothing cached; `None` for the policy that needs the trace ([`Opt::new`]).
    ///
    /// # Panics
    /// When there is no slot, or an extent has no page.
    #[must_use]
    pub fn build(self, setup: &CacheSetup) -> Option<Box<dyn CachePolicy>> {
        assert!(setup.slots > 0 && setup.extent_pages > 0, "a cache has a slot, an extent a page");
        Some(match self {
            Self::Lru => Box::new(lru::Lru::new(setup.slots)),
            Self::Fifo => Box::new(fifo::Fifo::new(setup.slots)),
            Self::Clock => Box::new(clock::Clock::new(setup.slots)),
            Self::Sieve => Box::new(sieve::Sieve::new(setup.slots)),
            Self::S3Fifo => Box::new(s3fifo::S3Fifo::new(setup.slots)),
            Self::Arc => Box::new(arc::Arc::new(setup.slots)),
            Self::Lirs => Box::new(lirs::Lirs::new(setup.slots)),
            Self::WTinyLfu => Box::new(tinylfu::WTinyLfu::new(setup.slots)),
            Self::LazyCleaning => Box::new(lazy::LazyCleaning::new(setup.slots)),
            Self::Tac => Box::new(tac::Tac::<f32>::new(setup, TacOptions::default())),
            Self::TacTold => {
                Box::new(tac::Tac::<f32>::new(setup, TacOptions { told: true, ..TacOptions::default() }))
            }
            Self::TacPages => {
                let options = TacOptions { told: true, shares: true, ..TacOptions::default() };
                Box::new(tac::Tac::<tac::ShortKey>::new(setup, options))
            }
            Self::TacBands => Box::new(bands::Bands::new(setup, TacOptions::default(), BandOrder::Lru)),
            Self::TacBandsMru => Box::new(bands::Bands::new(setup, TacOptions::default(), BandOrder::Mru)),
            Self::Opt => return None,
        })
    }
}

impl fmt::Display for CacheKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CacheKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            format!("{name:?} is no policy; name some of {}, or all", Self::ALL.map(Self::name).join(", "))
        })
    }
}

#[cfg(test)]
mod tests;
