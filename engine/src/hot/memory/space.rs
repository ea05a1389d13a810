//! Blocks: which of a memory's blocks are taken, which are charged, and which the system has got back.
//!
//! ```text
//! 0          first                                top                   end
//! ├─ metadata ─┼─ were charged once ────────────────┼─ never touched ──────┤
//!              │ taken │ idle │ ahead │ runs of free blocks
//! ```
//!
//! Rules:
//! - A block is *committed* while it is charged to the budget: taken, idle, or charged *ahead*. All others hold no
//!   memory and read as zero; blocks ahead read as zero too.
//! - Blocks that come back singly stay committed as *idle* blocks, up to a 64th of the memory and 4 MiB, so that a
//!   table that breathes does not call the system at each breath. Everything else that comes back is decommitted at
//!   once and joins the *runs*, from which the tightest fit is taken.
//! - A *part* is 32 blocks: 2 MiB, aligned. Once more than [`HUGE_FROM_BYTES`] are committed, a part is advised to be
//!   a huge page exactly while all of its blocks are committed: the advice is withdrawn before one of them is
//!   decommitted, since the daemon that builds huge pages would fill the hole again. From then on parts without any
//!   committed block are charged whole, ahead of their use, so that they are huge from the first touch on; the others
//!   become so when that daemon comes by.
//! - The metadata stands in front and is charged by the page as far as blocks were ever taken.
//! - The first blocks of a memory may be *lent* ([`Space::lend`]): nothing is charged for one, and its slab charges the pages of the
//!   cells that it cuts. So a table with few rows takes some pages, not a block for each kind of cell.
//!
//! Cost: taking from the runs is logarithmic in their number; the rest is constant, apart from system calls.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use thermocline_base::sync::{AtomicU64, Ordering};
use thermocline_base::vm::{HUGE_PAGE_BYTES, Reservation};

use super::size::BLOCK_BYTES;
use crate::hot::budget::{Budget, MemoryKind, OutOfMemory, OutOfMemoryCause};

/// From how many committed bytes on a memory uses huge pages.
pub(super) const HUGE_FROM_BYTES: u64 = 32 << 20;

const PART_BLOCKS: u32 = (HUGE_PAGE_BYTES / BLOCK_BYTES) as u32;
const META_PAGE_BYTES: usize = 4096;
/// As many blocks of a memory are lent.
const LENT_BLOCKS: u32 = 8;
const MIN_IDLE: usize = 4;
const MAX_IDLE: usize = 64;

/// What the blocks of a memory lie on, and who pays for them.
pub(super) struct Ground {
    pub(super) range: Reservation,
    pub(super) kind: MemoryKind,
    pub(super) budget: std::sync::Arc<Budget>,
    /// What is charged. Written under the lock of the [`Space`] only.
    pub(super) committed: AtomicU64,
}

impl Ground {
    fn charge(&self, bytes: u64, reserve: bool) -> Result<(), OutOfMemory> {
        if reserve {
            self.budget.charge_reserve(self.kind, bytes)?;
        } else {
            self.budget.charge(self.kind, bytes)?;
        }
        self.committed.store(self.committed() + bytes, Ordering::Relaxed);
        Ok(())
    }

    fn release(&self, bytes: u64) {
        self.budget.release(self.kind, bytes);
        self.committed.store(self.committed() - bytes, Ordering::Relaxed);
    }

    pub(super) fn committed(&self) -> u64 {
        self.committed.load(Ordering::Relaxed)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        self.budget.release(self.kind, self.committed());
    }
}

#[derive(Clone, Copy, Default)]
struct Part {
    committed: u8,
    huge: bool,
}

/// The state of all blocks of one memory.
pub(super) struct Space {
    first: u32,
    /// Blocks from here on were never charged.
    top: u32,
    end: u32,
    meta_bytes_each: usize,
    /// Charged and untouched.
    ahead: Range<u32>,
    idle: Vec<u32>,
    /// Free, decommitted runs: start → length, and (length, start).
    runs: BTreeMap<u32, u32>,
    by_length: BTreeSet<(u32, u32)>,
    parts: Vec<Part>,
    /// Were the parts that were there before huge pages came into use advised?
    huge: bool,
}

impl Space {
    /// Space of `range_bytes`, with metadata of `meta_bytes_each` for each block in front.
    pub(super) fn new(range_bytes: usize, meta_bytes_each: usize) -> Self {
        let end = (range_bytes / BLOCK_BYTES) as u32;
        let first = (end as usize * meta_bytes_each).div_ceil(BLOCK_BYTES) as u32;
        Self {
            first,
            top: first,
            end,
            meta_bytes_each,
            ahead: first..first,
            idle: Vec::new(),
            runs: BTreeMap::new(),
            by_length: BTreeSet::new(),
            parts: Vec::new(),
            huge: false,
        }
    }

    /// Takes `blocks` contiguous blocks. More than one block reads as zero; a single one holds anything.
    pub(super) fn take(&mut self, ground: &Ground, blocks: u32, reserve: bool) -> Result<u32, OutOfMemory> {
        if blocks == 1
            && let Some(block) = self.idle.pop()
        {
            return Ok(block);
        }
        if self.ahead.len() >= blocks as usize {
            return Ok(self.take_ahead(blocks));
        }
        let huge = ground.committed() >= HUGE_FROM_BYTES;
        if let Some(&(length, start)) = self.by_length.range((blocks, 0)..).next() {
            let part = start.next_multiple_of(PART_BLOCKS);
            if huge
                && blocks <= PART_BLOCKS
                && part + PART_BLOCKS <= start + length
                && ground.charge(bytes_of(PART_BLOCKS), reserve).is_ok()
            {
                self.take_run(ground, start, length, part..part + PART_BLOCKS);
                self.go_ahead_with(part..part + PART_BLOCKS);
                return Ok(self.take_ahead(blocks));
            }
            ground.charge(bytes_of(blocks), reserve)?;
            self.take_run(ground, start, length, start..start + blocks);
            return Ok(start);
        }
        let start = if self.ahead.end == self.top { self.ahead.start } else { self.top };
        let Some(needed) = start.checked_add(blocks).filter(|needed| *needed <= self.end) else {
            return Err(OutOfMemory {
                kind: ground.kind,
                asked_bytes: bytes_of(blocks),
                used_bytes: ground.committed(),
                limit_bytes: bytes_of(self.end),
                cause: OutOfMemoryCause::Range,
            });
        };
        let part_end = needed.next_multiple_of(PART_BLOCKS).min(self.end);
        if !(huge && self.charge_up_to(ground, part_end, reserve).is_ok()) {
            self.charge_up_to(ground, needed, reserve)?;
        }
        if self.ahead.start == start {
            self.ahead.end = self.top;
        } else {
            self.go_ahead_with(start..self.top);
        }
        Ok(self.take_ahead(blocks))
    }

    /// Takes a block whose pages are charged as they are used. `None`: the memory is not so small any more.
    pub(super) fn lend(&mut self, ground: &Ground, reserve: bool) -> Result<Option<u32>, OutOfMemory> {
        let block = self.top;
        let is_fresh = self.ahead.is_empty() && self.idle.is_empty() && self.runs.is_empty();
        if !is_fresh || block - self.first >= LENT_BLOCKS || block == self.end {
            return Ok(None);
        }
        let meta = self.meta_end(block + 1) - self.meta_end(block);
        ground.charge(meta, reserve)?;
        self.commit(ground, block, 1);
        self.top = block + 1;
        Ok(Some(block))
    }

    /// Takes a lent block back, of which so many bytes were charged.
    pub(super) fn give_lent(&mut self, ground: &Ground, block: u32, charged: u64) {
        self.decommit(ground, block, 1, charged);
        self.join_runs(block, 1);
    }

    /// Charges more pages of a lent block.
    pub(super) fn charge_lent(&self, ground: &Ground, bytes: u64, reserve: bool) -> Result<(), OutOfMemory> {
        ground.charge(bytes, reserve)
    }

    fn take_ahead(&mut self, blocks: u32) -> u32 {
        let start = self.ahead.start;
        self.ahead.start += blocks;
        start
    }

    /// Replaces what is ahead; what is left of it was too short for somebody, but serves singly.
    fn go_ahead_with(&mut self, ahead: Range<u32>) {
        self.idle.extend(std::mem::replace(&mut self.ahead, ahead));
    }

    /// Takes blocks, which have been charged, out of a run.
    fn take_run(&mut self, ground: &Ground, start: u32, length: u32, wanted: Range<u32>) {
        self.remove_run(start, length);
        for rest in [start..wanted.start, wanted.end..start + length] {
            if !rest.is_empty() {
                self.insert_run(rest.start, rest.len() as u32);
            }
        }
        self.commit(ground, wanted.start, wanted.len() as u32);
    }

    fn charge_up_to(&mut self, ground: &Ground, to: u32, reserve: bool) -> Result<(), OutOfMemory> {
        let from = self.top;
        let meta = self.meta_end(to) - self.meta_end(from);
        ground.charge(bytes_of(to - from) + meta, reserve)?;
        self.commit(ground, from, to - from);
        self.top = to;
        Ok(())
    }

    /// Where the metadata of all blocks below `block` ends, in whole pages; nothing is touched below `first`'s.
    fn meta_end(&self, block: u32) -> u64 {
        if block == self.first {
            let untouched = self.first as usize * self.meta_bytes_each / META_PAGE_BYTES * META_PAGE_BYTES;
            untouched as u64
        } else {
            (block as usize * self.meta_bytes_each).next_multiple_of(META_PAGE_BYTES) as u64
        }
    }

    /// Takes back blocks of one `take`, the contents of which nobody uses any more.
    pub(super) fn give(&mut self, ground: &Ground, start: u32, blocks: u32) {
        let idle_limit = (ground.committed() as usize / BLOCK_BYTES / 64).clamp(MIN_IDLE, MAX_IDLE);
        if blocks == 1 && self.idle.len() < idle_limit {
            self.idle.push(start);
            return;
        }
        self.uncommit(ground, start, blocks);
        self.join_runs(start, blocks);
    }

    /// Gives to the system all that is committed and not taken.
    pub(super) fn release_idle(&mut self, ground: &Ground) {
        let mut idle = std::mem::take(&mut self.idle);
        idle.sort_unstable();
        for run in idle.chunk_by(|a, b| a + 1 == *b) {
            let blocks = run.len() as u32;
            self.uncommit(ground, run[0], blocks);
            self.join_runs(run[0], blocks);
        }
        let ahead = std::mem::replace(&mut self.ahead, self.first..self.first);
        if !ahead.is_empty() {
            let blocks = ahead.len() as u32;
            self.uncommit(ground, ahead.start, blocks);
            self.join_runs(ahead.start, blocks);
        }
    }

    /// Notes that blocks have been charged.
    fn commit(&mut self, ground: &Ground, start: u32, blocks: u32) {
        let big = ground.committed() >= HUGE_FROM_BYTES;
        for (part, of_it) in parts_of(start, blocks) {
            if part >= self.parts.len() {
                self.parts.resize(part + 1, Part::default());
            }
            self.parts[part].committed += of_it;
            if big {
                self.advise_if_whole(ground, part);
            }
        }
        if big && !self.huge {
            self.huge = true;
            for part in 0..self.parts.len() {
                self.advise_if_whole(ground, part);
            }
        }
    }

    fn advise_if_whole(&mut self, ground: &Ground, part: usize) {
        let state = &mut self.parts[part];
        if u32::from(state.committed) == PART_BLOCKS && !state.huge {
            ground.range.advise_huge(part * HUGE_PAGE_BYTES, HUGE_PAGE_BYTES, true);
            state.huge = true;
        }
    }

    /// Decommits blocks and releases what was charged for them.
    fn uncommit(&mut self, ground: &Ground, start: u32, blocks: u32) {
        self.decommit(ground, start, blocks, bytes_of(blocks));
    }

    fn decommit(&mut self, ground: &Ground, start: u32, blocks: u32, charged: u64) {
        for (part, of_it) in parts_of(start, blocks) {
            let state = &mut self.parts[part];
            if state.huge {
                ground.range.advise_huge(part * HUGE_PAGE_BYTES, HUGE_PAGE_BYTES, false);
                state.huge = false;
            }
            state.committed -= of_it;
        }
        // SAFETY: the blocks are neither taken nor will they be before this returns, since the caller has the space to
        // itself; so nobody looks at them.
        unsafe { ground.range.decommit(start as usize * BLOCK_BYTES, blocks as usize * BLOCK_BYTES) }
        ground.release(charged);
    }

    fn join_runs(&mut self, mut start: u32, mut blocks: u32) {
        if let Some((&before, &length)) = self.runs.range(..start).next_back()
            && before + length == start
        {
            self.remove_run(before, length);
            (start, blocks) = (before, length + blocks);
        }
        if let Some(&length) = self.runs.get(&(start + blocks)) {
            self.remove_run(start + blocks, length);
            blocks += length;
        }
        self.insert_run(start, blocks);
    }

    fn insert_run(&mut self, start: u32, blocks: u32) {
        self.runs.insert(start, blocks);
        self.by_length.insert((blocks, start));
    }

    fn remove_run(&mut self, start: u32, blocks: u32) {
        self.runs.remove(&start);
        self.by_length.remove(&(blocks, start));
    }

    /// What is charged for metadata, for tests.
    #[cfg(test)]
    pub(super) fn metadata_bytes(&self) -> u64 {
        self.meta_end(self.top) - self.meta_end(self.first)
    }

    /// Parts that are advised to be huge pages, for tests.
    #[cfg(test)]
    pub(super) fn huge_parts(&self) -> usize {
        self.parts.iter().filter(|part| part.huge).count()
    }
}

fn bytes_of(blocks: u32) -> u64 {
    u64::from(blocks) * BLOCK_BYTES as u64
}

/// The parts that blocks lie in, and how many of the blocks lie in each.
fn parts_of(start: u32, blocks: u32) -> impl Iterator<Item = (usize, u8)> {
    let end = start + blocks;
    (start / PART_BLOCKS..end.div_ceil(PART_BLOCKS)).map(move |part| {
        let first = start.max(part * PART_BLOCKS);
        let last = end.min((part + 1) * PART_BLOCKS);
        (part as usize, (last - first) as u8)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const META: usize = 32;

    fn ground(range_bytes: usize, limit: Option<u64>) -> (Ground, Space) {
        let ground = Ground {
            range: Reservation::new(range_bytes).expect("address space"),
            kind: MemoryKind::Other,
            budget: Arc::new(Budget::new(limit)),
            committed: AtomicU64::new(0),
        };
        let space = Space::new(ground.range.bytes(), META);
        (ground, space)
    }

    #[test]
    fn neighbours_that_come_back_are_one_run() {
        let (ground, mut space) = ground(16 << 20, None);
        let spans: Vec<_> = (0..4).map(|_| space.take(&ground, 3, false).expect("no limit")).collect();
        for span in [spans[0], spans[2], spans[1]] {
            space.give(&ground, span, 3);
        }
        assert_eq!(space.take(&ground, 9, false), Ok(spans[0]));
        assert!(space.runs.is_empty() && space.by_length.is_empty());
    }

    #[test]
    fn the_tightest_run_is_taken() {
        let (ground, mut space) = ground(16 << 20, None);
        let lengths = [8, 2, 5, 2, 6, 2];
        let spans = lengths.map(|length| space.take(&ground, length, false).expect("no limit"));
        for index in [0, 2, 4] {
            space.give(&ground, spans[index], lengths[index]);
        }
        assert_eq!(space.take(&ground, 6, false), Ok(spans[4]));
        assert_eq!(space.take(&ground, 4, false), Ok(spans[2]));
        assert_eq!(space.take(&ground, 1, false), Ok(spans[2] + 4));
    }

    #[test]
    fn single_blocks_stay_for_a_while() {
        let (ground, mut space) = ground(16 << 20, None);
        let blocks: Vec<_> = (0..20).map(|_| space.take(&ground, 1, false).expect("no limit")).collect();
        let full = ground.committed();
        for block in blocks {
            space.give(&ground, block, 1);
        }
        assert_eq!(full - ground.committed(), bytes_of(20 - MIN_IDLE as u32));
        space.release_idle(&ground);
        assert_eq!(full - ground.committed(), bytes_of(20));
        assert_eq!(ground.committed(), META_PAGE_BYTES as u64, "the metadata stays");
        assert_eq!(ground.budget.used(), ground.committed());
    }

    #[test]
    fn a_part_is_huge_while_it_is_whole() {
        let (ground, mut space) = ground(128 << 20, None);
        let mut taken = Vec::new();
        while ground.committed() < HUGE_FROM_BYTES {
            assert_eq!(space.huge_parts(), 0);
            taken.push(space.take(&ground, 1, false).expect("no limit"));
        }
        // The first part holds the metadata and is never whole.
        let before = space.huge_parts();
        assert_eq!(before, (HUGE_FROM_BYTES as usize / HUGE_PAGE_BYTES) - 1);
        taken.push(space.take(&ground, 33, false).expect("no limit"));
        assert_eq!(space.top % PART_BLOCKS, 0, "fresh parts are charged whole");
        assert!(space.huge_parts() > before);
        let span = taken.pop().expect("just pushed");
        let huge = space.huge_parts();
        space.give(&ground, span, 33);
        assert!(space.huge_parts() < huge);
        assert_eq!(space.take(&ground, 33, false), Ok(span));
        assert_eq!(space.huge_parts(), huge);
    }

    #[test]
    fn parts_that_were_given_back_whole_come_back_whole() {
        let (ground, mut space) = ground(128 << 20, None);
        let first: Vec<_> = (0..700).map(|_| space.take(&ground, 1, false).expect("no limit")).collect();
        let later: Vec<_> = (0..320).map(|_| space.take(&ground, 1, false).expect("no limit")).collect();
        let huge = space.huge_parts();
        for block in later {
            space.give(&ground, block, 1);
        }
        space.release_idle(&ground);
        let rest = space.huge_parts();
        assert!(rest + 9 <= huge);
        // Up to the border of the part that is in use, then a whole part at once.
        let mut taken = 0;
        while space.ahead.is_empty() {
            space.take(&ground, 1, false).expect("no limit");
            taken += 1;
        }
        assert!(taken <= PART_BLOCKS);
        assert_eq!(space.ahead.len() as u32, PART_BLOCKS - 1);
        let before = ground.committed();
        for _ in 0..PART_BLOCKS - 1 {
            space.take(&ground, 1, false).expect("no limit");
        }
        assert_eq!(ground.committed(), before);
        assert!(space.huge_parts() > rest);
        assert!(first.len() > 512);
    }

    #[test]
    fn what_is_ahead_and_too_short_serves_singly() {
        let (ground, mut space) = ground(128 << 20, None);
        while ground.committed() < HUGE_FROM_BYTES {
            space.take(&ground, 1, false).expect("no limit");
        }
        let freed = space.take(&ground, 24, false).expect("no limit");
        while space.ahead.len() != 10 {
            space.take(&ground, 1, false).expect("no limit");
        }
        space.give(&ground, freed, 24);
        let ahead = space.ahead.clone();
        assert_eq!(space.take(&ground, 20, false), Ok(freed), "a run serves it, and what is ahead stays");
        assert_eq!(space.take(&ground, 20, false), Ok(ahead.start), "what is ahead at the top grows");
        assert_eq!(ground.budget.used(), ground.committed());
    }

    #[test]
    fn whole_parts_are_given_up_when_the_limit_is_near() {
        let limit = HUGE_FROM_BYTES + 5 * BLOCK_BYTES as u64;
        let (ground, mut space) = ground(128 << 20, Some(limit));
        let mut taken = 0;
        let error = loop {
            match space.take(&ground, 1, false) {
                Ok(_) => taken += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.cause, OutOfMemoryCause::Limit);
        assert!(limit - ground.committed() < BLOCK_BYTES as u64 + META_PAGE_BYTES as u64);
        assert_eq!(taken, ground.committed() / BLOCK_BYTES as u64);
        space.take(&ground, 1, true).expect("the reserve");
    }

    #[test]
    fn the_end_of_the_range_is_an_error() {
        let (ground, mut space) = ground(2 << 20, None);
        let error = space.take(&ground, 32, false).expect_err("the metadata needs a block");
        assert_eq!((error.cause, error.limit_bytes), (OutOfMemoryCause::Range, 2 << 20));
        space.take(&ground, 31, false).expect("the rest of the range");
        assert!(space.take(&ground, 1, false).is_err());
        drop(space);
        let budget = Arc::clone(&ground.budget);
        drop(ground);
        assert_eq!(budget.used(), 0);
    }
}
