//! Which extents of a page file are free.
//!
//! ```text
//!   extent   0            1            2            3            4            5
//!            ┌────────────┬────────────┬────────────┬────────────┬────────────┬ ┄ end of the file
//!            │header, 31  │   used     │   free     │   used     │   free     │
//!            │other pages │            │            │            │            │
//!            └────────────┴────────────┴────────────┴────────────┴────────────┴ ┄
//!   map           1            1            0            1            0          a bit an extent
//! ```
//!
//! An extent is [`EXTENT_PAGES`] contiguous pages. The map is in memory only: who uses the space knows durably which
//! extents it uses (the store's manifest does), and says so at the start ([`Space::claim`]).
//!
//! Rules:
//! - Extent 0 holds the file's header and is never handed out. Its other pages are its user's.
//! - The file grows before extents behind its end are handed out, so a full disk is an error here and not later.
//! - A run is handed out where it fits best: the shortest gap that is long enough, the first one of these. So long gaps
//!   stay long, and what is left of the end can be cut off.
//! - [`Space::cut_tail`] gives free extents at the end back to the file system; gaps in the middle stay until they are
//!   used again.
//!
//! Who frees an extent makes sure that nothing durable refers to it any more, that no read or write of it is under way,
//! and that no frame holds a page of it (the pool's `discard`).
//!
//! Limits: linear in the number of extents when it looks for a gap, a word at a time (a file of 1 TiB in pages of 4 KiB
//! has 8 Mi extents in 131,072 words: below a millisecond, for a run that then holds for minutes).

use std::fmt;
use std::sync::Arc;

use thermocline_base::io::IoError;
use thermocline_base::sync::{Mutex, MutexGuard};

use crate::device::PageDevice;

/// Pages of an extent.
pub const EXTENT_PAGES: u64 = 32;

/// The file grows by at least this many extents at a time, or by an eighth of its length if that is more.
const GROW_EXTENTS: u64 = 64;
/// The file does not grow by more than this many extents ahead of what is needed.
const GROW_EXTENTS_MAX: u64 = 8192;

/// Contiguous extents.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ExtentRun {
    /// Number of the first one.
    pub first: u64,
    /// How many.
    pub count: u64,
}

impl ExtentRun {
    /// Number of the first page.
    #[must_use]
    pub const fn first_page(self) -> u64 {
        self.first * EXTENT_PAGES
    }

    /// How many pages.
    #[must_use]
    pub const fn pages(self) -> u64 {
        self.count * EXTENT_PAGES
    }

    /// How many extents hold `pages`.
    #[must_use]
    pub const fn extents_for(pages: u64) -> u64 {
        pages.div_ceil(EXTENT_PAGES)
    }

    const fn end(self) -> u64 {
        self.first + self.count
    }
}

/// Who started with the space said something impossible about it: its own records are damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ClaimError {
    /// An extent has two users.
    Twice {
        /// Which one.
        extent: u64,
    },
    /// The file ends before the run does.
    Beyond {
        /// The run.
        run: ExtentRun,
        /// How many extents the file has.
        extents: u64,
    },
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Twice { extent } => {
                write!(f, "extent {extent} is used twice: what refers to it is damaged")
            }
            Self::Beyond { run, extents } => write!(
                f,
                "extents {} to {} are used, but the file has only {extents}: it was cut",
                run.first,
                run.end() - 1
            ),
        }
    }
}

impl std::error::Error for ClaimError {}

/// The free space of one page file.
#[derive(Debug)]
pub struct Space {
    device: Arc<PageDevice>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    map: Map,
    /// The file's length in extents; those behind the last whole one do not count.
    extents: u64,
    used: u64,
}

impl Space {
    /// The space of a file of which nothing is claimed yet.
    ///
    /// # Errors
    /// The system's.
    pub fn new(device: Arc<PageDevice>) -> Result<Self, IoError> {
        let extents = device.pages()? / EXTENT_PAGES;
        let mut map = Map::default();
        map.resize(extents.max(1));
        map.set(ExtentRun { first: 0, count: 1 }, true);
        Ok(Self { device, state: Mutex::new(State { map, extents, used: 1 }) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Says that extents are in use since before the start.
    ///
    /// # Errors
    /// When the file has no such extents, or one of them is in use already. Nothing is claimed then.
    pub fn claim(&self, run: ExtentRun) -> Result<(), ClaimError> {
        let mut state = self.lock();
        let extents = state.extents;
        match run.first.checked_add(run.count) {
            Some(end) if end <= extents => {}
            _ => return Err(ClaimError::Beyond { run, extents }),
        }
        if let Some(extent) = state.map.first_set(run) {
            return Err(ClaimError::Twice { extent });
        }
        state.map.set(run, true);
        state.used += run.count;
        Ok(())
    }

    /// Hands out `count` contiguous extents; the file grows if no gap is long enough. May block on the file system when
    /// the file grows, so it is for those who write runs, not for those who read rows.
    ///
    /// # Errors
    /// When the disk is full ([`IoError::is_full`]), and the system's. Nothing is handed out then.
    ///
    /// # Panics
    /// When `count` is 0.
    pub fn allocate(&self, count: u64) -> Result<ExtentRun, IoError> {
        assert!(count > 0, "a run has at least one extent");
        let mut state = self.lock();
        let run = match state.map.best_gap(state.extents, count) {
            Some(run) => run,
            None => self.grow(&mut state, count)?,
        };
        state.map.set(run, true);
        state.used += run.count;
        Ok(run)
    }

    /// Makes room for a run at the end of the file, with some to spare where there is space.
    fn grow(&self, state: &mut State, count: u64) -> Result<ExtentRun, IoError> {
        let first = state.map.end_of_used(state.extents.max(1));
        let needed = first + count;
        let ahead = (needed / 8).clamp(GROW_EXTENTS, GROW_EXTENTS_MAX);
        let mut extents = needed + ahead;
        if let Err(error) = self.device.allocate(extents * EXTENT_PAGES) {
            if !error.is_full() {
                return Err(error);
            }
            extents = needed;
            self.device.allocate(extents * EXTENT_PAGES)?;
        }
        state.map.resize(extents);
        state.extents = extents;
        Ok(ExtentRun { first, count })
    }

    /// Takes extents back.
    ///
    /// # Panics
    /// When one of them is free already or the header's: its user has lost count.
    pub fn free(&self, run: ExtentRun) {
        let mut state = self.lock();
        assert!(run.first > 0 && run.end() <= state.extents, "{run:?} was never handed out");
        assert!(state.map.all_set(run), "a part of {run:?} is freed twice");
        state.map.set(run, false);
        state.used -= run.count;
    }

    /// Gives free extents at the end of the file back to the file system, but for `keep` of them. Returns how many.
    ///
    /// # Errors
    /// The system's. Nothing has changed then.
    pub fn cut_tail(&self, keep: u64) -> Result<u64, IoError> {
        let mut state = self.lock();
        let extents = state.map.end_of_used(state.extents.max(1)).saturating_add(keep);
        if extents >= state.extents {
            return Ok(0);
        }
        self.device.cut(extents * EXTENT_PAGES)?;
        let cut = state.extents - extents;
        state.map.resize(extents);
        state.extents = extents;
        Ok(cut)
    }

    /// Extents in use, the header's counted.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.lock().used
    }

    /// Extents that the file has.
    #[must_use]
    pub fn extents(&self) -> u64 {
        self.lock().extents
    }
}

/// A bit an extent: is it in use?
#[derive(Debug, Default)]
struct Map(Vec<u64>);

impl Map {
    /// Bits from `extents` on are forgotten; new ones are free.
    fn resize(&mut self, extents: u64) {
        self.0.resize(extents.div_ceil(64) as usize, 0);
        if let Some(last) = self.0.last_mut()
            && !extents.is_multiple_of(64)
        {
            *last &= (1 << (extents % 64)) - 1;
        }
    }

    fn get(&self, extent: u64) -> bool {
        self.0[(extent / 64) as usize] >> (extent % 64) & 1 == 1
    }

    fn set(&mut self, run: ExtentRun, used: bool) {
        for extent in run.first..run.end() {
            let bit = 1 << (extent % 64);
            let word = &mut self.0[(extent / 64) as usize];
            *word = if used { *word | bit } else { *word & !bit };
        }
    }

    fn first_set(&self, run: ExtentRun) -> Option<u64> {
        (run.first..run.end()).find(|extent| self.get(*extent))
    }

    fn all_set(&self, run: ExtentRun) -> bool {
        (run.first..run.end()).all(|extent| self.get(extent))
    }

    /// The first extent from `from` on that is in use as `used` says, before `end`.
    fn next(&self, from: u64, end: u64, used: bool) -> Option<u64> {
        let mut at = from;
        while at < end {
            let word = self.0[(at / 64) as usize];
            let rest = (if used { word } else { !word }) >> (at % 64);
            if rest != 0 {
                return Some(at + u64::from(rest.trailing_zeros())).filter(|found| *found < end);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    fn best_gap(&self, extents: u64, count: u64) -> Option<ExtentRun> {
        let mut best: Option<(u64, u64)> = None;
        let mut at = 0;
        while let Some(first) = self.next(at, extents, false) {
            let end = self.next(first, extents, true).unwrap_or(extents);
            let len = end - first;
            if len >= count && best.is_none_or(|(shortest, _)| len < shortest) {
                best = Some((len, first));
                if len == count {
                    break;
                }
            }
            at = end;
        }
        best.map(|(_, first)| ExtentRun { first, count })
    }

    /// The extent behind the last one in use.
    fn end_of_used(&self, extents: u64) -> u64 {
        let last = self.0.iter().enumerate().rev().find(|(_, word)| **word != 0);
        last.map_or(0, |(index, word)| index as u64 * 64 + 64 - u64::from(word.leading_zeros())).min(extents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::PageSize;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::path::Path;
    use thermocline_base::io::MemoryIo;

    fn space(io: &MemoryIo) -> Space {
        let device =
            PageDevice::create(io, Path::new("/pages"), PageSize::default(), [1; 16]).expect("a fresh file");
        Space::new(Arc::new(device)).expect("memory")
    }

    const EXTENT_BYTES: u64 = EXTENT_PAGES * 4096;

    #[test]
    fn gaps_are_filled_where_they_fit_best() {
        let space = space(&MemoryIo::new());
        let runs: Vec<_> = (0..6).map(|index| space.allocate(10 + index).expect("space")).collect();
        assert_eq!(runs[0].first, 1, "the header stays");
        space.free(runs[1]);
        space.free(runs[3]);
        assert_eq!(space.allocate(12).expect("space").first, runs[3].first);
        assert_eq!(space.allocate(11).expect("space").first, runs[1].first);
    }

    #[test]
    fn a_full_disk_is_an_error_and_nothing_else() {
        let io = MemoryIo::new();
        let space = space(&io);
        io.set_capacity(Some(20 * EXTENT_BYTES));
        let run = space.allocate(15).expect("it fits, though nothing to spare does");
        assert!(space.allocate(10).expect_err("full").is_full());
        assert_eq!(space.used(), 16);
        space.free(run);
        assert_eq!(space.allocate(15).expect("space again"), run);
    }

    #[test]
    fn the_tail_goes_back() {
        let io = MemoryIo::new();
        let space = space(&io);
        let (first, second) = (space.allocate(100).expect("space"), space.allocate(100).expect("space"));
        assert!(io.used() >= 201 * EXTENT_BYTES);
        space.free(second);
        space.cut_tail(0).expect("memory");
        assert_eq!(io.used(), 101 * EXTENT_BYTES);
        space.free(first);
        space.cut_tail(3).expect("memory");
        assert_eq!((io.used(), space.extents()), (4 * EXTENT_BYTES, 4));
        assert_eq!(space.cut_tail(3).expect("memory"), 0);
        assert_eq!(space.allocate(5).expect("it grows again").first, 1);
    }

    #[test]
    fn impossible_claims_are_refused() {
        let io = MemoryIo::new();
        let space = space(&io);
        let run = space.allocate(5).expect("space");
        drop(space);
        let device = PageDevice::open(&io, Path::new("/pages"), None, [1; 16]).expect("our own file");
        let space = Space::new(Arc::new(device)).expect("memory");
        space.claim(run).expect("it was ours");
        assert_eq!(space.claim(ExtentRun { first: 5, count: 2 }), Err(ClaimError::Twice { extent: 5 }));
        assert_eq!(space.claim(ExtentRun { first: 0, count: 1 }), Err(ClaimError::Twice { extent: 0 }));
        for run in [ExtentRun { first: 6, count: 1 << 40 }, ExtentRun { first: u64::MAX, count: 2 }] {
            assert!(matches!(space.claim(run), Err(ClaimError::Beyond { .. })));
        }
        assert_eq!(space.used(), 6);
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn freeing_twice_is_noticed() {
        let space = space(&MemoryIo::new());
        let run = space.allocate(2).expect("space");
        space.free(run);
        space.free(run);
    }

    proptest! {
        // Each case grows a file in memory.
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn runs_never_overlap_and_the_count_is_right(steps in proptest::collection::vec((0u8..4, 1u64..40), 1..60)) {
            let space = space(&MemoryIo::new());
            let mut runs: Vec<ExtentRun> = Vec::new();
            let mut used = BTreeSet::from([0]);
            for (step, value) in steps {
                match step {
                    0 | 1 => {
                        let run = space.allocate(value).expect("memory");
                        prop_assert_eq!(run.count, value);
                        for extent in run.first..run.end() {
                            prop_assert!(used.insert(extent), "extent {} was handed out twice", extent);
                        }
                        runs.push(run);
                    }
                    2 if !runs.is_empty() => {
                        let run = runs.swap_remove(value as usize % runs.len());
                        space.free(run);
                        used.retain(|extent| !(run.first..run.end()).contains(extent));
                    }
                    3 => {
                        space.cut_tail(value % 4).expect("memory");
                    }
                    _ => {}
                }
                prop_assert_eq!(space.used(), used.len() as u64);
                prop_assert!(space.extents() == 0 || space.extents() > *used.last().expect("the header"));
            }
        }
    }
}
