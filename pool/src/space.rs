//! Which extents of a page file are free.
//!
//! ```text
//!   extent   0            1            2            3            4            5
//!            ┌────────────┬────────────┬────────────┬────────────┬────────────┬ ┄ end of the file
//!            │header, 31  │   used     │   free     │   used     │   free     │
//!            │other pages │            │            │            │            │
//!            └────────────┴────────────┴────────────┴────────────┴────────────┴ ┄
//!   used          1            1            0            1            0          a bit an extent
//!   punched       0            0            1            0            0          its space is the file system's again
//! ```
//!
//! An extent is [`EXTENT_PAGES`] contiguous pages. The map is in memory only: the user of the space knows durably
//! which extents it uses (the store's manifest does), and says so at the start ([`Space::claim`]).
//!
//! Rules:
//! - Extent 0 holds the file's header and is never handed out. Its other pages are its user's.
//! - The file grows before extents behind its end are handed out, so a full disk is an error here and not later.
//! - A run is handed out where it fits best: the shortest gap that is long enough, the first one of these; where the space
//!   is still the file's, if there is such a gap. So long gaps stay long.
//! - When much is free ([`Space::give_back`]), the gaps nearest to the end become holes, whose space the file system has; a
//!   hole at the end is cut off. The space of a hole is taken again before it is handed out, so that a full disk is an error
//!   there, too. What is free at the start may be holes since before: no record says so.
//!
//! The user that frees an extent makes sure that nothing durable refers to it any more, that no read or write of it
//! is under way, and that no frame holds a page of it (the pool's `discard`).
//!
//! Limits: linear in the number of extents when it looks for a gap, a word at a time (a file of 1 TiB in pages of 4 KiB
//! has 8 Mi extents in 131,072 words: below a millisecond, for a run that then holds for minutes), and for each gap that
//! is given back. Holes are made outside of the lock, which whoever frees extents needs.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use thermocline_base::io::IoError;
use thermocline_base::sync::{Mutex, MutexGuard};

use crate::device::PageDevice;

pub use crate::page::EXTENT_PAGES;

/// The file grows by an eighth of its length, if that is more than what it has to spare always.
const GROW_SHARE: u64 = 8;
/// The file does not grow by more than this many extents ahead of what is needed.
const GROW_EXTENTS_MAX: u64 = 8192;
/// So much of what is used may be free and the file's before some of it is given back, and so much stays: one in
/// `GIVE_BACK_ABOVE`, and one in `GIVE_BACK_TO`, with what there is to spare always on top of each.
const GIVE_BACK_ABOVE: u64 = 4;
const GIVE_BACK_TO: u64 = 8;
/// Holes that are made at a time: making one waits for what is being read, and reads wait for it.
const HOLES_AT_ONCE: usize = 32;

/// Contiguous extents.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ExtentRun {
    /// Number of the first one.
    pub first: u64,
    /// Number of extents.
    pub count: u64,
}

impl ExtentRun {
    /// Number of the first page.
    #[must_use]
    pub const fn first_page(self) -> u64 {
        self.first * EXTENT_PAGES
    }

    /// Number of pages.
    #[must_use]
    pub const fn pages(self) -> u64 {
        self.count * EXTENT_PAGES
    }

    /// Number of extents that hold `pages`.
    #[must_use]
    pub const fn extents_for(pages: u64) -> u64 {
        pages.div_ceil(EXTENT_PAGES)
    }

    const fn end(self) -> u64 {
        self.first + self.count
    }

    const fn page_range(self) -> Range<u64> {
        self.first_page()..self.first_page() + self.pages()
    }
}

/// The user that started with the space said something impossible about it: its own records are damaged.
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
        /// Number of extents that the file has.
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
    /// Which extents are in use.
    map: Map,
    /// Which free ones are holes.
    punched: Map,
    /// Which free ones may be holes, since before the start.
    unsure: Map,
    /// The file's length in extents; those behind the last whole one do not count.
    extents: u64,
    used: u64,
    holes: u64,
    /// The file system cannot take space back.
    keeps: bool,
    /// By how many the file grows at least, and how many stay when it shrinks.
    spare_min: u64,
}

impl Space {
    /// The space of a file of which nothing is claimed yet. It grows by `spare` extents at least, and so many stay when it
    /// shrinks.
    ///
    /// # Errors
    /// The system's.
    pub fn new(device: Arc<PageDevice>, spare: u64) -> Result<Self, IoError> {
        let extents = device.pages()? / EXTENT_PAGES;
        let mut state = State {
            map: Map::default(),
            punched: Map::default(),
            unsure: Map::default(),
            extents: 0,
            used: 1,
            holes: 0,
            keeps: false,
            spare_min: spare,
        };
        state.resize(extents);
        state.unsure.set(ExtentRun { first: 0, count: extents }, true);
        state.map.set(ExtentRun { first: 0, count: 1 }, true);
        Ok(Self { device, state: Mutex::new(state) })
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
        state.unsure.set(run, false);
        state.used += run.count;
        Ok(())
    }

    /// Hands out `count` contiguous extents; the file grows if no gap is long enough. May block on the file system
    /// when the file grows, so it is for writers of runs, not for readers of rows.
    ///
    /// # Errors
    /// When the disk is full ([`IoError::is_full`]), and the system's. Nothing is handed out then.
    ///
    /// # Panics
    /// When `count` is 0.
    pub fn allocate(&self, count: u64) -> Result<ExtentRun, IoError> {
        assert!(count > 0, "a run has at least one extent");
        let (run, is_sparse) = {
            let mut state = self.lock();
            let run = match state.best_gap(count) {
                Some(run) => run,
                None => self.grow(&mut state, count)?,
            };
            state.map.set(run, true);
            state.used += run.count;
            (run, state.fill(run))
        };
        if is_sparse && let Err(error) = self.device.reserve(run.page_range()) {
            // Perhaps some of it was taken.
            let mut state = self.lock();
            state.unsure.set(run, true);
            state.release(run);
            return Err(error);
        }
        Ok(run)
    }

    /// Makes room for a run at the end of the file, with some to spare where there is space.
    fn grow(&self, state: &mut State, count: u64) -> Result<ExtentRun, IoError> {
        let first = state.map.end_of_used(state.extents.max(1));
        // What is free at the end is in the run, and is asked about by the caller.
        let needed = first + count;
        let ahead = (needed / GROW_SHARE).clamp(state.spare_min, GROW_EXTENTS_MAX.max(state.spare_min));
        let mut extents = needed + ahead;
        if let Err(error) = self.device.allocate(extents * EXTENT_PAGES) {
            if !error.is_full() {
                return Err(error);
            }
            extents = needed;
            self.device.allocate(extents * EXTENT_PAGES)?;
        }
        state.resize(extents);
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
        state.release(run);
    }

    /// Gives free space back to the file system when much of the file is free. Returns how many extents it gave
    /// back this time; a caller that calls it now and then gives all of them back. For writers of runs: it waits for
    /// the file system.
    ///
    /// # Errors
    /// The system's. What was free still is.
    pub fn give_back(&self) -> Result<u64, IoError> {
        let mut given = 0;
        if !self.lock().is_much_free() {
            return Ok(0);
        }
        for _ in 0..if self.lock().keeps { 0 } else { HOLES_AT_ONCE } {
            // No other caller gets it meanwhile.
            let Some(run) = self.lock().take_surplus() else { break };
            let result = self.device.punch(run.page_range());
            let mut state = self.lock();
            state.release(run);
            if result? {
                state.unsure.set(run, false);
                state.punched.set(run, true);
                state.holes += run.count;
                given += run.count;
            } else {
                state.keeps = true;
                break;
            }
        }
        self.cut_tail()?;
        Ok(given)
    }

    /// Cuts off what is a hole at the end of the file; where there can be none, what is free there but for what stays.
    fn cut_tail(&self) -> Result<(), IoError> {
        let mut state = self.lock();
        let end = state.map.end_of_used(state.extents.max(1));
        let least = if state.keeps { end + state.stays() } else { end };
        let mut extents = state.extents;
        while extents > least && (state.keeps || state.punched.get(extents - 1)) {
            extents -= 1;
        }
        if extents < state.extents {
            self.device.cut(extents * EXTENT_PAGES)?;
            state.resize(extents);
        }
        Ok(())
    }

    /// Extents in use, the header's counted.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.lock().used
    }

    /// Extents that the file has, holes counted.
    #[must_use]
    pub fn extents(&self) -> u64 {
        self.lock().extents
    }

    /// Extents that take space, as far as that is known.
    #[must_use]
    pub fn taken(&self) -> u64 {
        let state = self.lock();
        state.extents - state.holes
    }
}

impl State {
    fn resize(&mut self, extents: u64) {
        for map in [&mut self.map, &mut self.punched, &mut self.unsure] {
            map.resize(extents.max(1));
        }
        self.extents = extents;
        self.holes = self.punched.count();
    }

    fn release(&mut self, run: ExtentRun) {
        self.map.set(run, false);
        self.used -= run.count;
    }

    /// Forgets the holes of a run that is handed out. Were there any?
    fn fill(&mut self, run: ExtentRun) -> bool {
        let is_sparse = self.punched.first_set(run).is_some() || self.unsure.first_set(run).is_some();
        if is_sparse {
            self.holes -= self.punched.count_in(run);
            self.punched.set(run, false);
            self.unsure.set(run, false);
        }
        is_sparse
    }

    fn best_gap(&self, count: u64) -> Option<ExtentRun> {
        let mut best: Option<(bool, u64, u64)> = None;
        for gap in self.map.gaps(self.extents).filter(|gap| gap.count >= count) {
            let has_hole = self.punched.next(gap.first, gap.first + count, true).is_some();
            let found = (has_hole, gap.count, gap.first);
            if best.is_none_or(|best| found < best) {
                best = Some(found);
                if !has_hole && gap.count == count {
                    break;
                }
            }
        }
        best.map(|(.., first)| ExtentRun { first, count })
    }

    /// Extents that are free and take space, perhaps.
    fn spare(&self) -> u64 {
        self.extents.saturating_sub(self.used + self.holes)
    }

    /// Number of those that stay.
    fn stays(&self) -> u64 {
        self.used / GIVE_BACK_TO + self.spare_min
    }

    fn is_much_free(&self) -> bool {
        self.spare() > self.used / GIVE_BACK_ABOVE + self.spare_min
    }

    /// Takes what is to be given back next: of the gap nearest to the end that takes space what there is too much of.
    fn take_surplus(&mut self) -> Option<ExtentRun> {
        let surplus = self.spare().checked_sub(self.stays())?;
        let end = self.map.last_of_gaps(self.extents, &self.punched)?;
        let mut first = end;
        while first > 0 && end - first < surplus && !self.map.get(first - 1) && !self.punched.get(first - 1) {
            first -= 1;
        }
        let run = ExtentRun { first, count: end - first };
        (run.count > 0).then(|| {
            self.map.set(run, true);
            self.used += run.count;
            run
        })
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

    /// The stretches of bits that are not set, before `extents`.
    fn gaps(&self, extents: u64) -> impl Iterator<Item = ExtentRun> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let first = self.next(at, extents, false)?;
            at = self.next(first, extents, true).unwrap_or(extents);
            Some(ExtentRun { first, count: at - first })
        })
    }

    /// The bit behind the last one that is set neither here nor in `other`.
    fn last_of_gaps(&self, extents: u64, other: &Self) -> Option<u64> {
        let free = |word: usize| {
            let free = !(self.0[word] | other.0[word]);
            let rest = extents - word as u64 * 64;
            if rest >= 64 { free } else { free & ((1 << rest) - 1) }
        };
        let word = (0..extents.div_ceil(64) as usize).rev().find(|word| free(*word) != 0)?;
        Some(word as u64 * 64 + 64 - u64::from(free(word).leading_zeros()))
    }

    fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    fn count_in(&self, run: ExtentRun) -> u64 {
        (run.first..run.end()).filter(|extent| self.get(*extent)).count() as u64
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
        Space::new(Arc::new(device), SPARE).expect("memory")
    }

    const SPARE: u64 = 64;
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

    /// All that is free and takes space goes back, but for what stays.
    fn give_back(space: &Space) -> u64 {
        let mut given = 0;
        loop {
            match space.give_back().expect("memory") {
                0 => return given,
                count => given += count,
            }
        }
    }

    #[test]
    fn the_tail_is_cut_off() {
        let io = MemoryIo::new();
        let space = space(&io);
        let (first, second) = (space.allocate(1000).expect("space"), space.allocate(1000).expect("space"));
        assert!(io.used() >= 2001 * EXTENT_BYTES);
        assert_eq!(give_back(&space), 0, "what the file has grown by in advance stays");
        space.free(second);
        assert!(give_back(&space) >= 800);
        let stays = 1001 + 1001 / GIVE_BACK_TO + SPARE;
        assert!((1001..=stays).contains(&space.extents()), "{} extents", space.extents());
        assert_eq!(io.used(), space.extents() * EXTENT_BYTES);
        space.free(first);
        give_back(&space);
        assert_eq!((io.used(), space.extents()), (65 * EXTENT_BYTES, 65));
        assert_eq!(space.allocate(100).expect("it grows again").first, 1);
    }

    #[test]
    fn gaps_in_the_middle_become_holes() {
        let io = MemoryIo::new();
        let space = space(&io);
        let runs: Vec<_> = (0..200).map(|_| space.allocate(10).expect("space")).collect();
        for run in &runs[..190] {
            space.free(*run);
        }
        let before = space.extents();
        assert!(give_back(&space) > 1500);
        assert!(space.taken() <= 101 + 101 / GIVE_BACK_TO + SPARE);
        assert_eq!(io.used(), space.taken() * EXTENT_BYTES);
        assert!(space.extents() > 1990 && space.extents() <= before, "the last runs stay where they are");
        // A hole's space is taken before it is handed out; where there is none that is an error, and the run still free.
        io.set_capacity(Some(io.used() + 100 * EXTENT_BYTES));
        assert!(space.allocate(300).expect_err("full").is_full());
        assert_eq!(space.used(), 101);
        io.set_capacity(None);
        let again = space.allocate(300).expect("space again");
        assert!(again.end() < 1900, "a hole: {again:?}");
        assert!(io.used() >= 401 * EXTENT_BYTES);
        // What is there after an opening may have holes.
        drop(space);
        let device = PageDevice::open(&io, Path::new("/pages"), None, [1; 16]).expect("our own file");
        let space = Space::new(Arc::new(device), SPARE).expect("memory");
        space.claim(again).expect("ours");
        io.set_capacity(Some(io.used()));
        let whole = space.allocate(1500);
        assert!(whole.expect_err("a hole is in it").is_full());
        give_back(&space);
        assert!(space.taken() <= 301 + 301 / GIVE_BACK_TO + SPARE);
        assert!(io.used() <= space.taken() * EXTENT_BYTES);
    }

    #[test]
    fn impossible_claims_are_refused() {
        let io = MemoryIo::new();
        let space = space(&io);
        let run = space.allocate(5).expect("space");
        drop(space);
        let device = PageDevice::open(&io, Path::new("/pages"), None, [1; 16]).expect("our own file");
        let space = Space::new(Arc::new(device), SPARE).expect("memory");
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
        fn runs_never_overlap_and_the_count_is_right(steps in proptest::collection::vec((0u8..5, 1u64..90), 1..80)) {
            let io = MemoryIo::new();
            let space = space(&io);
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
                        give_back(&space);
                        prop_assert!(space.taken() <= space.used() + space.used() / GIVE_BACK_ABOVE + SPARE);
                    }
                    _ => {}
                }
                prop_assert_eq!(space.used(), used.len() as u64);
                prop_assert!(space.extents() == 0 || space.extents() > *used.last().expect("the header"));
                prop_assert_eq!(io.used().div_ceil(EXTENT_BYTES).max(1), space.taken().max(1));
            }
        }
    }
}
