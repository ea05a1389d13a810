//! The page table: which frame holds a page. Read without locks, changed under the pool's lock only.
//!
//! ```text
//!   bucket, one cache line
//!   ┌─────────┬───────────┬──────────┬────────────────────────┬────────────────────────┐
//!   │ version │ uses ×3   │ overflow │ page ×3                │ state ×3               │
//!   │ 8 B     │ 2 B each  │ 2 B      │ 8 B each, 0: vacant    │ 8 B each               │
//!   └─────────┴───────────┴──────────┴────────────────────────┴────────────────────────┘
//!
//!   state   63 ┄ 53   52       51       50     49      48        47 ┄┄┄ 28   27 ┄┄┄ 0
//!              0      LATCHED  WRITING  DIRTY  DOOMED  RESIDENT  pins        frame
//! ```
//!
//! Open addressing: a page stands in its home bucket or in one of those behind it. A bucket's *overflow* counts the
//! pages that had to go past it, so a search ends at the first bucket that no page went past, and a removal leaves no
//! tombstone. Four pages for three buckets at most, so few pages are not in their home bucket (a test counts them).
//!
//! # Tables
//! The map is as large as the budget needs, not as the largest one would: there is a table of buckets for the largest
//! budget and one for each half of the next larger one, each in its own address space, untouched until it is used. New
//! pages go to the *current* table. When the budget changes the tables, pages move over from the *former* ones as they
//! are unpinned; until a former table is empty, a search that does not find a page in the current one looks there
//! too.
//!
//! ```text
//!   addresses   ├──────── largest ────────┤  ├── half ──┤  ├ quarter ┤ ┄ ├ smallest ┤
//!                                                current       former, two pages left
//! ```
//!
//! An emptied table goes back to the system, and its buckets' versions begin at 0 again: therefore optimistic readers also
//! compare the number of *changes* of tables, before and after.
//!
//! Rules:
//! - The entry of a pinned page does not move, so its slot number stays good.
//! - Every change of a bucket's pages, and every overwriting of a page in a frame, happens while the bucket's version
//!   is odd. A reader that saw the same even version before and after has read one page, whole (a sequence lock).
//! - A pin is taken by compare-and-swap from a state that is resident, not latched and not doomed; the page is
//!   compared again afterwards, since the slot may have got another page with the same state in between. A thread
//!   that wants a page out latches it by compare-and-swap from a state without pins. So a pinned page stays.
//! - A *doomed* page is one that was dropped while it was pinned: the map does not find it any more (its key is
//!   [`DOOMED_KEY`]), its last pin frees it.
//! - The search for the lane branches on its answer only: comparisons are added up. Which lane it is could not be
//!   predicted, and a wrong guess would keep the processor from overlapping the cache misses of independent reads.
//!
//! *Uses* counts hits up to the policy's maximum, by plain stores: two hits at once may count as one, and a hit beside an
//! eviction may count for the successor. It is a hint.

use std::ptr::NonNull;

use thermocline_base::sync::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
use thermocline_base::vm::{self, HUGE_PAGE_BYTES, Reservation};

use super::memory;
use crate::error::PoolError;
use crate::mutation::{self, Rule};
use thermocline_base::prefetch::prefetch;

/// Pages in a bucket.
const LANES: usize = 3;

/// Frame numbers have this many bits.
pub(super) const FRAME_BITS: u32 = 28;
const FRAME_MASK: u64 = (1 << FRAME_BITS) - 1;
/// One pin.
pub(super) const PIN: u64 = 1 << FRAME_BITS;
const PINS_MASK: u64 = ((1 << 20) - 1) << FRAME_BITS;
/// The slot holds a page.
pub(super) const RESIDENT: u64 = 1 << 48;
/// Dropped while pinned.
pub(super) const DOOMED: u64 = 1 << 49;
/// Newer than on the device.
pub(super) const DIRTY: u64 = 1 << 50;
/// A write of it is under way.
pub(super) const WRITING: u64 = 1 << 51;
/// A writer or an eviction has it alone.
pub(super) const LATCHED: u64 = 1 << 52;

/// The key of doomed pages. No page has it: there is no device 65535.
pub(super) const DOOMED_KEY: u64 = u64::MAX;

/// The frame in a state.
#[inline(always)]
pub(super) const fn frame_of(state: u64) -> u32 {
    (state & FRAME_MASK) as u32
}

/// The pins in a state.
#[inline(always)]
pub(super) const fn pins_of(state: u64) -> u64 {
    (state & PINS_MASK) >> FRAME_BITS
}

/// May it be pinned?
#[inline(always)]
const fn pinnable(state: u64) -> bool {
    state & (RESIDENT | LATCHED | DOOMED) == RESIDENT && state & PINS_MASK != PINS_MASK
}

#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(super) struct Bucket {
    version: AtomicU64,
    uses: [AtomicU16; LANES],
    overflow: AtomicU16,
    pages: [AtomicU64; LANES],
    states: [AtomicU64; LANES],
}

const _: () = assert!(size_of::<Bucket>() == 64);

/// A place in the map: bucket × 4 + lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot(pub(super) u32);

impl Slot {
    const fn new(bucket: usize, lane: usize) -> Self {
        Self((bucket as u32) << 2 | lane as u32)
    }

    #[inline(always)]
    const fn bucket(self) -> usize {
        (self.0 >> 2) as usize
    }

    #[inline(always)]
    const fn lane(self) -> usize {
        (self.0 & 3) as usize
    }
}

/// A table of less than this many buckets is not worth having one of half the length beside it.
const SMALL_BUCKETS: usize = 1024;

/// A table: buckets `start..start + count`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Table {
    start: usize,
    count: usize,
}

impl Table {
    /// Both in one number; slots have 30 bits for a bucket.
    fn packed(self) -> u64 {
        (self.start as u64) << 32 | self.count as u64
    }

    #[inline(always)]
    fn of_packed(packed: u64) -> Self {
        Self { start: (packed >> 32) as usize, count: packed as u32 as usize }
    }

    #[inline(always)]
    fn home(self, page: u64) -> usize {
        // Fibonacci hashing: neighbours come far from each other, and runs of pages spread more evenly than by chance.
        let hash = page.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.start + ((u128::from(hash) * self.count as u128) >> 64) as usize
    }

    #[inline(always)]
    fn after(self, index: usize) -> usize {
        if index + 1 == self.start + self.count { self.start } else { index + 1 }
    }

    fn contains(self, index: usize) -> bool {
        (self.start..self.start + self.count).contains(&index)
    }

    fn bytes(self) -> usize {
        (self.count * size_of::<Bucket>()).next_multiple_of(vm::page_size())
    }

    /// For how many frames it has room; one and a half times as many entries fit as well.
    fn frames(self) -> u64 {
        self.count as u64 * 4 / 3
    }

    /// Tables for up to `frames`, the largest first, each in whole pages of the system.
    fn all_for(frames: u64) -> Vec<Self> {
        let mut tables: Vec<Self> = Vec::new();
        let mut count = (frames * 3).div_ceil(4).max(4) as usize;
        let mut end = 0_usize;
        loop {
            let bytes = count * size_of::<Bucket>();
            let start =
                end.next_multiple_of(if bytes < HUGE_PAGE_BYTES { vm::page_size() } else { HUGE_PAGE_BYTES });
            tables.push(Self { start: start / size_of::<Bucket>(), count });
            if count < SMALL_BUCKETS {
                return tables;
            }
            end = start + bytes;
            count = count.div_ceil(2);
        }
    }
}

/// Where a search ended.
struct Found<'a> {
    bucket: &'a Bucket,
    index: usize,
    /// Below `LANES`.
    lane: usize,
    /// The bucket's version before the search.
    version: u64,
}

impl Found<'_> {
    #[inline(always)]
    fn slot(&self) -> Slot {
        Slot::new(self.index, self.lane)
    }

    #[inline(always)]
    fn state(&self) -> &AtomicU64 {
        // SAFETY: the search found the page in a lane that exists.
        unsafe { self.bucket.states.get_unchecked(self.lane) }
    }

    /// Counts a hit, up to `most`.
    #[inline(always)]
    fn touch(&self, most: u16) {
        // SAFETY: as above.
        let uses = unsafe { self.bucket.uses.get_unchecked(self.lane) };
        let now = uses.load(Ordering::Relaxed);
        if now < most {
            uses.store(now + 1, Ordering::Relaxed);
        }
    }
}

pub(super) struct PageMap {
    buckets: NonNull<Bucket>,
    /// The current table. Changed under the pool's lock only, as all that follows.
    current: AtomicU64,
    /// Changes of tables.
    changes: AtomicU64,
    /// A bit for each former table that holds pages.
    former: AtomicU32,
    tables: Box<[Table]>,
    /// Entries of each table.
    entries: Box<[AtomicU32]>,
    reservation: Reservation,
}

// SAFETY: the pointer leads into the reservation, which the map owns; buckets consist of atomics.
unsafe impl Send for PageMap {}
// SAFETY: as above.
unsafe impl Sync for PageMap {}

impl PageMap {
    /// A map for up to `frames` pages, with its smallest table. Memory that no page has come to is not touched.
    pub(super) fn new(frames: u64) -> Result<Self, PoolError> {
        let tables = Table::all_for(frames);
        let smallest = tables[tables.len() - 1];
        let bytes = smallest.start * size_of::<Bucket>() + smallest.bytes();
        let reservation = memory::reserve(bytes as u64)?;
        assert!(
            reservation.bytes() >= bytes,
            "there are no more frames than their memory and its map have room for"
        );
        for table in &tables {
            let whole = table.count * size_of::<Bucket>() / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
            reservation.advise_huge(table.start * size_of::<Bucket>(), whole, true);
        }
        Ok(Self {
            buckets: reservation.base().cast::<Bucket>(),
            current: AtomicU64::new(smallest.packed()),
            changes: AtomicU64::new(0),
            former: AtomicU32::new(0),
            entries: tables.iter().map(|_| AtomicU32::new(0)).collect(),
            tables: tables.into(),
            reservation,
        })
    }

    /// Memory of the tables in use, if all of it has been touched.
    pub(super) fn bytes(&self) -> usize {
        let former = self.former_tables().map(Table::bytes).sum::<usize>();
        self.current().bytes() + former
    }

    /// Bytes of the map's memory that are resident, if the system tells. Slow.
    #[cfg(test)]
    pub(super) fn resident_bytes(&self) -> Option<usize> {
        self.reservation.resident_bytes(0, self.reservation.bytes())
    }

    #[inline(always)]
    fn current(&self) -> Table {
        // Whoever reads the number sees a table whose memory is there: it always is, as zeroes at worst.
        Table::of_packed(self.current.load(Ordering::Acquire))
    }

    fn former_tables(&self) -> impl Iterator<Item = Table> {
        let former = self.former.load(Ordering::Acquire);
        self.tables
            .iter()
            .enumerate()
            .filter(move |(number, _)| former & 1 << number != 0)
            .map(|(_, table)| *table)
    }

    fn number_of(&self, slot: Slot) -> usize {
        let number = self.tables.iter().position(|table| table.contains(slot.bucket()));
        number.expect("a slot is in a table")
    }

    /// Do pages stand in a former table?
    pub(super) fn has_former(&self) -> bool {
        self.former.load(Ordering::Relaxed) != 0
    }

    /// Does the slot stand in a former table?
    pub(super) fn is_former(&self, slot: Slot) -> bool {
        self.has_former() && self.former.load(Ordering::Relaxed) & 1 << self.number_of(slot) != 0
    }

    /// Makes the smallest table current that has room for so many frames, while `over` others have pages. Under the
    /// pool's lock. Says whether there were former tables with pages before, and whether there are now.
    pub(super) fn choose_table(&self, frames: u64, over: u64) -> (bool, bool) {
        let fits = |table: &Table| frames <= table.frames() && over <= table.frames() / 2;
        let number = self.tables.iter().rposition(fits).unwrap_or(0);
        let (table, before) = (self.tables[number], self.current());
        let had = self.former.load(Ordering::Relaxed);
        if table == before {
            return (had != 0, had != 0);
        }
        let number_before = self.tables.iter().position(|table| *table == before);
        let number_before = number_before.expect("the current table is one of them");
        let empty = self.entries[number_before].load(Ordering::Relaxed) == 0;
        let bit_before = if empty { 0 } else { 1 << number_before };
        let former = (had & !(1 << number)) | bit_before;
        self.former.store(former, Ordering::SeqCst);
        self.current.store(table.packed(), Ordering::SeqCst);
        if empty {
            self.give_back(number_before);
        }
        (had != 0, former != 0)
    }

    /// A table without entries goes back to the system.
    fn give_back(&self, number: usize) {
        // Before the memory goes: see the module.
        self.changes.fetch_add(1, Ordering::SeqCst);
        let table = self.tables[number];
        if cfg!(all(target_os = "linux", not(feature = "portable"))) {
            // SAFETY: no thread uses its contents: it has no entries, and late readers throw away what they see. It
            // begins at a page of the system and is whole pages long, which no other table shares.
            unsafe { self.reservation.decommit(table.start * size_of::<Bucket>(), table.bytes()) };
        }
    }

    #[inline(always)]
    fn bucket(&self, index: usize) -> &Bucket {
        debug_assert!(index * size_of::<Bucket>() < self.reservation.bytes(), "bucket {index} exists");
        // SAFETY: indices come from `home`, `after` and slots made of these, all inside of tables; zeroed memory is an
        // empty bucket, and it lives as long as `self`.
        unsafe { &*self.buckets.as_ptr().add(index) }
    }

    #[cfg(all(test, feature = "model"))]
    pub(super) fn same_home(&self, page: u64, other: u64) -> bool {
        self.current().home(page) == self.current().home(other)
    }

    /// The lane that holds the page, if one does. No branch but on the answer: see the module.
    #[inline(always)]
    fn lane_of(bucket: &Bucket, page: u64) -> Option<usize> {
        let is = |lane: usize| usize::from(bucket.pages[lane].load(Ordering::Relaxed) == page);
        // 0 may as well mean that it stands in no lane; 3, that it changed lanes while we looked.
        let lane = is(1) + 2 * is(2);
        (bucket.pages.get(lane)?.load(Ordering::Relaxed) == page).then_some(lane)
    }

    /// Where a page is, and the version of the bucket before the search. Without the pool's lock it may miss a page that
    /// is there.
    #[inline(always)]
    fn search(&self, page: u64) -> Option<Found<'_>> {
        let table = self.current();
        let index = table.home(page);
        let bucket = self.bucket(index);
        let version = bucket.version.load(Ordering::Acquire);
        if let Some(lane) = Self::lane_of(bucket, page) {
            return Some(Found { bucket, index, lane, version });
        }
        self.search_further(page, table, index)
    }

    #[inline(never)]
    fn search_further(&self, page: u64, table: Table, home: usize) -> Option<Found<'_>> {
        let in_current = self.search_behind(page, table, home);
        if in_current.is_some() || self.former.load(Ordering::Acquire) == 0 {
            return in_current;
        }
        self.former_tables().find_map(|table| {
            let index = table.home(page);
            let bucket = self.bucket(index);
            let version = bucket.version.load(Ordering::Acquire);
            match Self::lane_of(bucket, page) {
                Some(lane) => Some(Found { bucket, index, lane, version }),
                None => self.search_behind(page, table, index),
            }
        })
    }

    /// The same for what had to go past its home bucket.
    #[inline(always)]
    fn search_behind(&self, page: u64, table: Table, home: usize) -> Option<Found<'_>> {
        let mut index = home;
        // Bounded: a reader beside many changes could be led in a circle.
        for _ in 0..table.count {
            if self.bucket(index).overflow.load(Ordering::Relaxed) == 0 {
                return None;
            }
            index = table.after(index);
            let bucket = self.bucket(index);
            let version = bucket.version.load(Ordering::Acquire);
            if let Some(lane) = Self::lane_of(bucket, page) {
                return Some(Found { bucket, index, lane, version });
            }
        }
        None
    }

    /// Where a page is. Under the pool's lock the answer is right.
    #[inline]
    pub(super) fn find(&self, page: u64) -> Option<Slot> {
        self.search(page).map(|found| found.slot())
    }

    /// Reads a page through `read`, which gets the frame's number and may see anything. `None` if the page is not there
    /// or changed meanwhile.
    #[inline(always)]
    pub(super) fn read<T>(&self, page: u64, most: u16, read: impl FnOnce(u32) -> T) -> Option<T> {
        let changes = self.changes.load(Ordering::Acquire);
        let found = self.search(page)?;
        let state = found.state().load(Ordering::Relaxed);
        found.touch(most);
        let value = read(frame_of(state));
        if mutation::off(Rule::OptimisticRecheck) {
            return Some(value);
        }
        // Pairs with the release fence before the stores that `read` may have seen: if it saw one, the version that was
        // made odd (or moved on) before that fence is seen here.
        fence(Ordering::Acquire);
        let after = found.bucket.version.load(Ordering::Relaxed);
        // Beside the version: in a bucket that was given back meanwhile it begins anew.
        if self.changes.load(Ordering::Relaxed) != changes {
            return None;
        }
        // An odd version before differs from every one after it with its last bit cut off.
        (found.version & !1 == after).then_some(value)
    }

    /// The frame of a page, for a hint.
    #[inline(always)]
    pub(super) fn peek(&self, page: u64) -> Option<u32> {
        Some(frame_of(self.search(page)?.state().load(Ordering::Relaxed)))
    }

    /// Asks the processor for the home bucket of a page.
    #[inline(always)]
    pub(super) fn prefetch(&self, page: u64) {
        prefetch(self.bucket(self.current().home(page)));
    }

    /// Pins a page. Gives its slot and frame; the caller gives the pin back through [`Self::unpin`]. A pin on a wrong page,
    /// which has to be given back as well, is the error.
    #[inline(always)]
    pub(super) fn pin(&self, page: u64, most: u16) -> Result<(Slot, u32), Option<Slot>> {
        let Some(found) = self.search(page) else { return Err(None) };
        let state = found.state();
        let mut now = state.load(Ordering::Relaxed);
        loop {
            if !pinnable(now) {
                return Err(None);
            }
            match state.compare_exchange(now, now + PIN, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => break,
                Err(other) => now = other,
            }
        }
        let is_it = found.bucket.pages[found.lane].load(Ordering::Relaxed) == page;
        if !is_it && mutation::on(Rule::PinComparesPage) {
            return Err(Some(found.slot()));
        }
        found.touch(most);
        Ok((found.slot(), frame_of(now)))
    }

    /// Gives a pin back; gives the state before.
    #[inline(always)]
    pub(super) fn unpin(&self, slot: Slot) -> u64 {
        // Sequentially consistent against a waiter for the pin to go: see the pool's rules.
        self.state(slot).fetch_sub(PIN, Ordering::SeqCst)
    }

    #[inline(always)]
    pub(super) fn state(&self, slot: Slot) -> &AtomicU64 {
        &self.bucket(slot.bucket()).states[slot.lane()]
    }

    pub(super) fn page_in(&self, slot: Slot) -> u64 {
        self.bucket(slot.bucket()).pages[slot.lane()].load(Ordering::Relaxed)
    }

    pub(super) fn uses(&self, slot: Slot) -> u16 {
        self.bucket(slot.bucket()).uses[slot.lane()].load(Ordering::Relaxed)
    }

    pub(super) fn set_uses(&self, slot: Slot, uses: u16) {
        self.bucket(slot.bucket()).uses[slot.lane()].store(uses, Ordering::Relaxed);
    }

    /// Latches a page that has no pins and whose state has none of `unless`. Gives the state before.
    pub(super) fn latch(&self, slot: Slot, unless: u64) -> Option<u64> {
        let state = self.state(slot);
        let mut now = state.load(Ordering::SeqCst);
        loop {
            let pinned = now & PINS_MASK != 0 && mutation::on(Rule::PinnedPageStays);
            if pinned || now & RESIDENT == 0 || now & (LATCHED | unless) != 0 {
                return None;
            }
            match state.compare_exchange(now, now | LATCHED, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return Some(now),
                Err(other) => now = other,
            }
        }
    }

    /// Turns the only pin of a page, which the caller holds, into its latch.
    pub(super) fn latch_own_pin(&self, slot: Slot) -> bool {
        let state = self.state(slot);
        let mut now = state.load(Ordering::SeqCst);
        while pins_of(now) == 1 && now & (LATCHED | DOOMED) == 0 {
            match state.compare_exchange(now, (now - PIN) | LATCHED, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
        false
    }

    /// Runs `change` while the bucket's version is odd. Under the pool's lock.
    pub(super) fn change<T>(&self, slot: Slot, change: impl FnOnce() -> T) -> T {
        let version = &self.bucket(slot.bucket()).version;
        let before = version.load(Ordering::Relaxed);
        version.store(before + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        let value = change();
        version.store(before + 2, Ordering::Release);
        value
    }

    /// Puts a page in. Under the pool's lock, and the page is not there.
    pub(super) fn insert(&self, page: u64, frame: u32, flags: u64, pins: u64) -> Slot {
        let table = self.current();
        let mut index = table.home(page);
        loop {
            let bucket = self.bucket(index);
            let vacant = bucket.pages.iter().position(|page| page.load(Ordering::Relaxed) == 0);
            if let Some(lane) = vacant {
                let slot = Slot::new(index, lane);
                self.count_entries(slot, 1);
                self.change(slot, || {
                    bucket.uses[lane].store(0, Ordering::Relaxed);
                    bucket.pages[lane].store(page, Ordering::Relaxed);
                    let state = u64::from(frame) | pins << FRAME_BITS | flags | RESIDENT;
                    bucket.states[lane].store(state, Ordering::Release);
                });
                return slot;
            }
            bucket.overflow.fetch_add(1, Ordering::Relaxed);
            index = table.after(index);
        }
    }

    fn count_entries(&self, slot: Slot, more: i32) -> u32 {
        let entries = &self.entries[self.number_of(slot)];
        let now = entries.load(Ordering::Relaxed).wrapping_add_signed(more);
        entries.store(now, Ordering::Relaxed);
        now
    }

    /// Moves the entry of a page that the caller has latched to the current table, where it is without latch. Under the
    /// pool's lock. Gives its slot there; the entry where it was is still to be removed.
    pub(super) fn insert_again(&self, slot: Slot) -> Slot {
        let state = self.state(slot).load(Ordering::SeqCst);
        let new = self.insert(self.page_in(slot), frame_of(state), state & (DIRTY | WRITING), 0);
        self.set_uses(new, self.uses(slot));
        new
    }

    /// A page that the caller has latched is in another frame now; the latch goes. Under the pool's lock.
    pub(super) fn relocate(&self, slot: Slot, frame: u32) {
        let state = self.state(slot);
        // No other thread changes it: pins need it unlatched, everything else needs the lock.
        let flags = state.load(Ordering::SeqCst) & !(FRAME_MASK | LATCHED);
        self.change(slot, || state.store(flags | u64::from(frame), Ordering::SeqCst));
    }

    /// Takes a page out that the caller has latched. Under the pool's lock. `page` is the page that was put in, though the
    /// slot may say that it is doomed. `true`: it was the last one in former tables.
    #[must_use]
    pub(super) fn remove(&self, slot: Slot, page: u64) -> bool {
        let bucket = self.bucket(slot.bucket());
        self.change(slot, || {
            bucket.states[slot.lane()].store(0, Ordering::Relaxed);
            bucket.pages[slot.lane()].store(0, Ordering::Relaxed);
        });
        let number = self.number_of(slot);
        let table = self.tables[number];
        let mut index = table.home(page);
        while index != slot.bucket() {
            self.bucket(index).overflow.fetch_sub(1, Ordering::Relaxed);
            index = table.after(index);
        }
        let former = self.former.load(Ordering::Relaxed);
        if self.count_entries(slot, -1) > 0 || former & 1 << number == 0 {
            return false;
        }
        let left = former & !(1 << number);
        self.former.store(left, Ordering::SeqCst);
        self.give_back(number);
        left == 0
    }

    /// Makes a page unfindable that is pinned or latched. Under the pool's lock. Gives the state before.
    pub(super) fn doom(&self, slot: Slot) -> u64 {
        let bucket = self.bucket(slot.bucket());
        self.change(slot, || bucket.pages[slot.lane()].store(DOOMED_KEY, Ordering::Relaxed));
        self.state(slot).fetch_or(DOOMED, Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn the_map_is_a_map(steps in proptest::collection::vec((any::<bool>(), 1u64..60), 1..300)) {
            const FRAMES: usize = 24;
            let map = PageMap::new(FRAMES as u64).expect("address space");
            let mut model: HashMap<u64, (Slot, u32)> = HashMap::new();
            for (step, (insert, page)) in steps.into_iter().enumerate() {
                if insert && !model.contains_key(&page) && model.len() < FRAMES {
                    model.insert(page, (map.insert(page, step as u32, 0, 0), step as u32));
                } else if !insert && let Some((slot, _)) = model.remove(&page) {
                    prop_assert!(map.latch(slot, 0).is_some());
                    prop_assert!(!map.remove(slot, page));
                }
                for page in 1..60 {
                    prop_assert_eq!(map.read(page, 3, |frame| frame), model.get(&page).map(|(_, frame)| *frame));
                    prop_assert_eq!(map.find(page), model.get(&page).map(|(slot, _)| *slot));
                }
            }
            for (page, (slot, _)) in model.drain() {
                prop_assert!(map.latch(slot, 0).is_some());
                prop_assert!(!map.remove(slot, page));
            }
            for index in 0..map.current().count {
                prop_assert_eq!(map.bucket(index).overflow.load(Ordering::Relaxed), 0);
            }
        }
    }

    #[test]
    fn few_pages_leave_their_home() {
        let frames = 30_000;
        let map = PageMap::new(frames).expect("address space");
        map.choose_table(frames, 0);
        let mut away = 0;
        for page in 0..frames {
            let page = 1 << 48 | page;
            let slot = map.insert(page, page as u32, 0, 0);
            away += u32::from(slot.bucket() != map.current().home(page));
        }
        assert!(f64::from(away) < 0.07 * frames as f64, "{away} of {frames}");
    }

    #[test]
    fn pins_and_latches_exclude_each_other() {
        let map = PageMap::new(8).expect("address space");
        let slot = map.insert(5, 1, 0, 0);
        assert_eq!(map.pin(5, 3), Ok((slot, 1)));
        assert_eq!(map.latch(slot, 0), None);
        assert_eq!(pins_of(map.unpin(slot)), 1);
        assert!(map.latch(slot, 0).is_some());
        assert_eq!(map.pin(5, 3), Err(None));
        assert_eq!(map.latch(slot, 0), None);
    }
}
