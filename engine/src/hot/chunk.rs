//! Chunks of slots, and the directory that finds a chunk by its number.
//!
//! ```text
//!   RowId = chunk number │ slot number
//!
//!   directory: bucket k holds 2^k chunk pointers          chunk                dense slot array
//!   ┌──┐   ┌──┬──┬──┬──┐                             ┌──────────┐          ┌──────┬──────┬─ … ─┐
//!   │ 0│   │  │  │  │ ─┼────────────────────────────►│ slots  ──┼─────────►│ slot │ slot │     │
//!   │ 1├──►└──┴──┴──┴──┘                             │ used     │          └──────┴──────┴─────┘
//!   │ …│                                             │ capacity │          packed: bitmap, ranks, slots that are left
//!   └──┘                                             └──────────┘
//!   slot   bits 0-47: address of the newest version, 0 = no row
//!          bit 63: latch; bit 61: moved, look the slot up again
//!          bit 60: frozen, bits 0-47 are the number of the block that has the row
//!          bit 59: left, the row has left memory with the block of this number, or is about to
//! ```
//!
//! A chunk that has been frozen has a table of *pieces* ([`pieces`]): one word for each 64 slots.
//!
//! Rules:
//! - A slot's address changes by one compare-and-swap from an unlatched word, or by the holder of its latch.
//! - Inserts take slots in order and never twice; a chunk whose slots are all used and mostly empty is packed, an
//!   empty one goes. RowIds never change by that.
//! - Packing takes the latch of every slot that still leads to a row, copies the word, and leaves `moved` behind in it
//!   before the new array is published; whoever meets `moved` waits for the new array. The old array is retired
//!   through the epochs. So no change can be made to a copy that has been left. (An empty slot of a full chunk stays
//!   empty, so it needs no mark.)
//! - A slot that was taken but not yet filled looks empty. So the packer first sees that no insert cursor holds slots
//!   of the chunk, and packs only when every pin taken before that has gone (`ops/maintain.rs`): taking and filling
//!   happen under one pin.
//! - The first chunks of a table are smaller, so that a small table does not cost a whole slot array.

use std::convert::Infallible;
use std::ptr::{NonNull, null_mut};

use thermocline_base::epoch::Guard;
use thermocline_base::ids::{CHUNK_SLOTS, RowId, Timestamp};
use thermocline_base::sync::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Backoff, Ordering};

use crate::hot::block::Block;
use crate::hot::budget::OutOfMemory;
use crate::hot::memory::{FREE, Memory};
use crate::hot::paged::{Absent, Hand, Run};
use crate::hot::store::RowAbsent;
use crate::hot::version::Version;
use crate::mutation::{self, Rule};

use self::pieces::Pieces;

pub(crate) mod columns;
pub(crate) mod freeze;
pub(crate) mod leave;
mod pieces;

/// Slots that a chunk with blocks has together.
pub(crate) const PIECE_SLOTS: u32 = pieces::PIECE_SLOTS as u32;

const LATCH: u64 = 1 << 63;
const MOVED: u64 = 1 << 61;
const FROZEN: u64 = 1 << 60;
const LEFT: u64 = 1 << 59;
/// Bits of an address, and of a block's number.
const ADDRESS: u64 = (1 << 48) - 1;
// A slot array may be a cell, whose first word must not look like that of a free one.
const _: () = assert!((LATCH | MOVED | FROZEN | LEFT | ADDRESS) & FREE != FREE);

/// Slots of the chunk with this number.
pub(crate) const fn chunk_capacity(number: u32) -> usize {
    #[cfg(feature = "model")]
    const FULL: usize = 8;
    #[cfg(not(feature = "model"))]
    const FULL: usize = CHUNK_SLOTS;
    let capacity = match number {
        0 => 512,
        1 => 4096,
        2 => 32768,
        _ => CHUNK_SLOTS,
    };
    if capacity < FULL { capacity } else { FULL }
}

/// A slot: the word that leads to a row's newest version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot<'a>(&'a AtomicU64);

/// What was found in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// No row.
    Empty,
    /// The newest version.
    Newest(Version),
    /// The row stands in the block with this number, and nowhere else.
    Frozen(u64),
    /// The row has left memory with the block of this number, or is about to: the block's mark tells.
    Left(u64),
    /// The slot was packed away: look it up again.
    Moved,
}

/// What taking a latch came to.
#[derive(Debug)]
enum Taken<'a> {
    Latched(Latched<'a>),
    /// The slot was packed away: look it up again.
    Moved,
    /// There is no version to change: the row is frozen, or has left.
    Frozen,
}

impl<'a> Slot<'a> {
    /// Reads the slot, whether or not it is latched.
    #[inline]
    pub(crate) fn load(self) -> Found {
        Self::decode(self.0.load(Ordering::Acquire))
    }

    #[inline]
    fn decode(word: u64) -> Found {
        if word & (MOVED | FROZEN | LEFT) != 0 {
            return match word & (MOVED | FROZEN) {
                0 => Found::Left(word & ADDRESS),
                FROZEN => Found::Frozen(word & ADDRESS),
                _ => Found::Moved,
            };
        }
        match word & ADDRESS {
            0 => Found::Empty,
            // SAFETY: slots hold addresses of versions only, and callers are pinned (chunks hand slots out by guard).
            address => Found::Newest(unsafe { Version::from_address(address) }),
        }
    }

    /// Puts the first version into a slot that the caller has just taken.
    #[inline]
    pub(crate) fn fill(self, version: Version) {
        self.0.store(version.address(), Ordering::Release);
    }

    /// Swings the slot from `old` to `new` if it is not latched. `false`: it is, or something else stands there.
    #[inline]
    pub(crate) fn swing(self, old: Version, new: Version) -> bool {
        if mutation::off(Rule::LatchChain) {
            let word = self.0.load(Ordering::Acquire);
            return Self::decode(word) == Found::Newest(old)
                && self.0.compare_exchange(word, new.address(), Ordering::AcqRel, Ordering::Acquire).is_ok();
        }
        self.0.compare_exchange(old.address(), new.address(), Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Takes the latch, unless there is nothing to latch.
    fn latch(self) -> Taken<'a> {
        let mut backoff = Backoff::new();
        loop {
            let word = self.0.load(Ordering::Relaxed);
            if word & (MOVED | FROZEN | LEFT) != 0 {
                return if word & MOVED != 0 { Taken::Moved } else { Taken::Frozen };
            }
            if word & LATCH == 0
                && self.0.compare_exchange(word, word | LATCH, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                return Taken::Latched(Latched { word: self.0, address: word });
            }
            backoff.wait();
        }
    }

    /// Asks the processor to fetch what the slot leads to.
    #[inline]
    pub(crate) fn prefetch(self) {
        thermocline_base::prefetch::prefetch(std::ptr::from_ref(self.0));
    }
}

/// A latched slot; dropping it unlatches it with the address that was set last.
#[derive(Debug)]
pub(crate) struct Latched<'a> {
    word: &'a AtomicU64,
    address: u64,
}

impl Latched<'_> {
    /// The newest version.
    pub(crate) fn newest(&self) -> Option<Version> {
        match Slot::decode(self.address) {
            Found::Newest(version) => Some(version),
            Found::Empty => None,
            Found::Moved | Found::Frozen(_) | Found::Left(_) => {
                unreachable!("a latched slot is neither moved nor frozen, and its row has not left")
            }
        }
    }

    /// Sets what the slot leads to from now on.
    pub(crate) fn set(&mut self, newest: Option<Version>) {
        self.address = newest.map_or(0, Version::address);
        self.word.store(self.address | LATCH, Ordering::Release);
    }
}

impl Drop for Latched<'_> {
    fn drop(&mut self) {
        self.word.store(self.address, Ordering::Release);
    }
}

/// Tag in a chunk's `slots` pointer: the array is packed.
const PACKED: usize = 1;
/// Tag in a chunk's `slots` pointer: it is a table of pieces.
const PIECES: usize = 2;
const TAGS: usize = PACKED | PIECES;

/// Where a slot is.
enum Place<'g> {
    Slot(Slot<'g>),
    /// The chunk has none with this number, and so no row.
    Nowhere,
    /// All rows beside it are frozen as well, in the block with this number.
    Frozen(u64),
    /// All rows beside it have left as well, with the block of this number.
    Left(u64),
}
const BITMAP_WORDS: usize = CHUNK_SLOTS / 64;

/// The slots that are left of a packed chunk.
#[repr(C)]
struct Packed {
    /// Bytes of the whole allocation.
    bytes: usize,
    len: usize,
    bitmap: [u64; BITMAP_WORDS],
    /// Set bits in front of each word.
    rank: [u32; BITMAP_WORDS],
    // `len` slots follow.
}

/// A run of slots.
#[derive(Debug)]
pub(crate) struct Chunk {
    slots: AtomicPtr<u8>,
    used: AtomicU32,
    capacity: u32,
    number: u32,
    /// Slots that led to a row and lead nowhere now, since the slots were packed last.
    emptied: AtomicU32,
    /// A change was published since the last image. Kept on a line that readers share, written only when it changes.
    dirty: AtomicBool,
    /// The block that it was frozen into last, which leads to those of before while slots name them.
    block: AtomicPtr<Block>,
}

impl Chunk {
    fn new(number: u32, memory: &Memory) -> Result<Box<Self>, OutOfMemory> {
        let capacity = chunk_capacity(number);
        let slots = memory.alloc(capacity * 8)?;
        // SAFETY: the allocation is ours and has this many bytes.
        unsafe { slots.as_ptr().write_bytes(0, capacity * 8) };
        Ok(Box::new(Self {
            slots: AtomicPtr::new(slots.as_ptr()),
            used: AtomicU32::new(0),
            capacity: u32::try_from(capacity).expect("a chunk's capacity is small"),
            number,
            emptied: AtomicU32::new(0),
            dirty: AtomicBool::new(false),
            block: AtomicPtr::new(null_mut()),
        }))
    }

    /// Its number.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Slots that were ever taken.
    pub(crate) fn used(&self) -> u32 {
        self.used.load(Ordering::Acquire).min(self.capacity)
    }

    /// Slots that it has.
    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Are all slots taken?
    pub(crate) fn is_full(&self) -> bool {
        self.used() == self.capacity
    }

    /// Takes up to `count` fresh slots in a row; the first one's number and how many.
    pub(crate) fn take(&self, count: u32) -> Option<(u32, u32)> {
        if self.used.load(Ordering::Relaxed) >= self.capacity {
            return None;
        }
        let first = self.used.fetch_add(count, Ordering::AcqRel);
        (first < self.capacity).then(|| (first, count.min(self.capacity - first)))
    }

    /// Takes all slots that are left, and leaves them empty.
    pub(crate) fn close(&self) {
        let before = self.used.fetch_add(self.capacity, Ordering::AcqRel);
        self.emptied.fetch_add(self.capacity.saturating_sub(before), Ordering::Relaxed);
    }

    /// Notes that slots up to `slot` are taken (recovery).
    pub(crate) fn note_used(&self, slot: u32) {
        self.used.fetch_max(slot + 1, Ordering::AcqRel);
    }

    /// Takes all slots that are left, so that nobody inserts here any more (recovery, end of a bulk load). They count as
    /// emptied: the chunk may be sparse from now on. Nobody else changes the chunk meanwhile.
    pub(crate) fn seal(&self, guard: &Guard<'_>) {
        self.used.fetch_max(self.capacity, Ordering::AcqRel);
        let empty = self.capacity as usize - self.occupied(guard).len();
        self.emptied.store(u32::try_from(empty).expect("a chunk's capacity is small"), Ordering::Relaxed);
    }

    /// The slot, if there is one: not where the chunk was packed and the slot had no row then, and not in a piece that is
    /// frozen or has left as a whole.
    #[inline]
    pub(crate) fn slot<'g>(&'g self, slot: u16, guard: &'g Guard<'_>) -> Option<Slot<'g>> {
        match self.place(slot, guard) {
            Place::Slot(slot) => Some(slot),
            Place::Nowhere | Place::Frozen(_) | Place::Left(_) => None,
        }
    }

    /// What stands in a slot.
    #[inline]
    pub(crate) fn look(&self, slot: u16, guard: &Guard<'_>) -> Found {
        match self.place(slot, guard) {
            Place::Slot(slot) => slot.load(),
            Place::Nowhere => Found::Empty,
            Place::Frozen(block) => Found::Frozen(block),
            Place::Left(block) => Found::Left(block),
        }
    }

    /// The same, and the number of slots from this one on that it is said of: for walks that seek rows in memory.
    #[inline]
    pub(crate) fn look_far(&self, slot: u16, guard: &Guard<'_>) -> (Found, u32) {
        let rest = || (pieces::PIECE_SLOTS - usize::from(slot) % pieces::PIECE_SLOTS) as u32;
        match self.place(slot, guard) {
            Place::Slot(slot) => (slot.load(), 1),
            Place::Nowhere => (Found::Empty, 1),
            // Such words are of whole pieces.
            Place::Frozen(block) => (Found::Frozen(block), rest()),
            Place::Left(block) => (Found::Left(block), rest()),
        }
    }

    /// Asks the processor for the version that a slot leads to. A hint, which would only make the schedules of a model longer.
    #[inline]
    pub(crate) fn approach(&self, slot: u16, guard: &Guard<'_>) {
        if !cfg!(feature = "model")
            && let Found::Newest(version) = self.look(slot, guard)
        {
            version.prefetch();
        }
    }

    #[inline]
    fn place<'g>(&'g self, slot: u16, _guard: &'g Guard<'_>) -> Place<'g> {
        let slots = self.slots.load(Ordering::Acquire);
        if u32::from(slot) >= self.capacity {
            return Place::Nowhere;
        }
        if slots.addr() & TAGS == 0 {
            // SAFETY: a dense array has `capacity` words, and the pin keeps it.
            Place::Slot(Slot(unsafe { &*slots.cast::<AtomicU64>().add(usize::from(slot)) }))
        } else if slots.addr() & PACKED != 0 {
            Self::packed_slot(slots, slot).map_or(Place::Nowhere, Place::Slot)
        } else {
            // SAFETY: the tag says that a table of pieces stands there, which the pin keeps.
            unsafe { Pieces::at(slots) }.place(slot)
        }
    }

    /// The block with this number. `None`: no slot names it any more.
    pub(crate) fn block<'g>(&'g self, number: u64, _guard: &'g Guard<'_>) -> Option<&'g Block> {
        // SAFETY: blocks go through the epochs, and the caller is pinned.
        let mut next = unsafe { self.block.load(Ordering::Acquire).as_ref() };
        while let Some(block) = next
            && block.number() != number
        {
            // SAFETY: as above.
            next = unsafe { block.older.load(Ordering::Acquire).as_ref() };
        }
        next
    }

    #[cold]
    fn packed_slot<'g>(slots: *mut u8, slot: u16) -> Option<Slot<'g>> {
        // SAFETY: the tag says that a `Packed` stands there, and the caller's pin keeps it.
        let packed = unsafe { &*slots.map_addr(|address| address & !PACKED).cast::<Packed>() };
        let (word, bit) = (usize::from(slot) / 64, usize::from(slot) % 64);
        if packed.bitmap[word] >> bit & 1 == 0 {
            return None;
        }
        let index =
            packed.rank[word] as usize + (packed.bitmap[word] & ((1 << bit) - 1)).count_ones() as usize;
        debug_assert!(index < packed.len);
        // SAFETY: `len` words follow the header, and the index is below it.
        Some(Slot(unsafe { &*std::ptr::from_ref(packed).add(1).cast::<AtomicU64>().add(index) }))
    }

    /// Is it packed?
    pub(crate) fn is_packed(&self) -> bool {
        self.slots.load(Ordering::Acquire).addr() & PACKED != 0
    }

    /// Notes that a slot has become empty.
    pub(crate) fn note_emptied(&self) {
        self.emptied.fetch_add(1, Ordering::Relaxed);
    }

    /// May no more than `percent` of its slots lead to a row? Cheap, and never wrong about a *no* by more than what is
    /// being emptied this moment.
    pub(crate) fn may_be_sparse(&self, percent: u32) -> bool {
        let slots = if self.is_packed() { self.packed_len() } else { self.used() as usize } as u64;
        u64::from(self.emptied.load(Ordering::Relaxed)) * 100 >= slots * u64::from(100 - percent)
    }

    /// Slots of a packed chunk's array.
    pub(crate) fn packed_len(&self) -> usize {
        let slots = self.slots.load(Ordering::Acquire);
        assert!(slots.addr() & PACKED != 0, "only a packed chunk is asked");
        // SAFETY: the tag says that a `Packed` stands there; only maintenance, which asks, replaces it.
        unsafe { (*slots.map_addr(|address| address & !PACKED).cast::<Packed>()).len }
    }

    /// Notes that a change was published.
    #[inline]
    pub(crate) fn mark_dirty(&self) {
        if !self.dirty.load(Ordering::Relaxed) {
            self.dirty.store(true, Ordering::SeqCst);
        }
    }

    /// Was a change published since the last image?
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::SeqCst)
    }

    /// Before an image is taken.
    pub(crate) fn clear_dirty(&self) {
        self.dirty.store(false, Ordering::SeqCst);
    }

    /// Numbers of the slots that lead to a row now.
    pub(crate) fn occupied(&self, guard: &Guard<'_>) -> Vec<u16> {
        (0..self.used())
            .filter_map(|slot| u16::try_from(slot).ok())
            .filter(|&slot| self.look(slot, guard) != Found::Empty)
            .collect()
    }

    /// Replaces the slot array by one without the empty slots. Only for a full chunk, one packer at a time.
    ///
    /// # Errors
    /// No memory for the new array; nothing has changed then.
    pub(crate) fn pack(&self, memory: &Memory, guard: &Guard<'_>) -> Result<(), OutOfMemory> {
        debug_assert!(self.is_full(), "only a full chunk is packed: fresh slots would have no place");
        debug_assert!(!self.has_block(), "a chunk with frozen rows is not packed");
        let occupied = self.occupied(guard);
        let bytes = size_of::<Packed>() + occupied.len() * 8;
        let place = memory.alloc_reserve(bytes)?;
        let packed = place.cast::<Packed>().as_ptr();
        // SAFETY: the allocation has the header's bytes and more, and is ours until it is published.
        let header = unsafe {
            packed.write_bytes(0, 1);
            (*packed).bytes = bytes;
            (*packed).len = occupied.len();
            &mut *packed
        };
        for &slot in &occupied {
            header.bitmap[usize::from(slot) / 64] |= 1 << (slot % 64);
        }
        let mut before = 0;
        for (rank, word) in header.rank.iter_mut().zip(&header.bitmap) {
            *rank = before;
            before += word.count_ones();
        }
        // SAFETY: `len` words follow the header.
        let words = unsafe { packed.add(1).cast::<AtomicU64>() };
        for (index, &slot) in occupied.iter().enumerate() {
            let old = self.slot(slot, guard).expect("an occupied slot is there until its chunk is packed");
            let Taken::Latched(latched) = old.latch() else { unreachable!("one packer at a time") };
            // SAFETY: index is below `len`.
            unsafe { words.add(index).write(AtomicU64::new(latched.address)) };
            let left = if mutation::off(Rule::PackMarksMoved) { latched.address } else { MOVED };
            old.0.store(left, Ordering::Release);
            std::mem::forget(latched);
        }
        let tagged = packed.cast::<u8>().map_addr(|address| address | PACKED);
        self.emptied.store(0, Ordering::Relaxed);
        let previous = self.slots.swap(tagged, Ordering::AcqRel);
        self.retire_array(previous, memory);
        Ok(())
    }

    fn retire_array(&self, array: *mut u8, memory: &Memory) {
        if array.addr() & PIECES != 0 {
            // SAFETY: the tag says that a table of pieces stands there; it was unlinked, and is retired once.
            return unsafe { Pieces::at(array).retire(memory) };
        }
        let (array, bytes) = if array.addr() & PACKED == 0 {
            (array, self.capacity as usize * 8)
        } else {
            let array = array.map_addr(|address| address & !PACKED);
            // SAFETY: the tag says that a `Packed` stands there, and nobody has freed it yet.
            (array, unsafe { (*array.cast::<Packed>()).bytes })
        };
        let array = NonNull::new(array).expect("a chunk has a slot array");
        // SAFETY: the array was unlinked, and is retired once.
        unsafe { memory.retire(array, bytes) };
    }
}

const BUCKETS: usize = 32;

/// Finds chunks by number; grows without moving anything.
#[derive(Debug)]
pub(crate) struct Directory {
    buckets: [AtomicPtr<AtomicPtr<Chunk>>; BUCKETS],
    /// One more than the highest chunk number.
    len: AtomicU32,
}

impl Default for Directory {
    fn default() -> Self {
        Self { buckets: [const { AtomicPtr::new(null_mut()) }; BUCKETS], len: AtomicU32::new(0) }
    }
}

impl Directory {
    #[inline]
    fn place(number: u32) -> (usize, usize) {
        let bucket = (u32::BITS - 1 - (number + 1).leading_zeros()) as usize;
        (bucket, number as usize + 1 - (1 << bucket))
    }

    /// The chunk, unless it was never made or has gone.
    #[inline]
    pub(crate) fn get<'g>(&'g self, number: u32, _guard: &'g Guard<'_>) -> Option<&'g Chunk> {
        let (bucket, index) = Self::place(number);
        let entries = self.buckets[bucket].load(Ordering::Acquire);
        if entries.is_null() {
            return None;
        }
        // SAFETY: bucket k has 2^k entries, which live as long as the directory; chunks that go are retired through
        // the epochs, and the caller is pinned.
        unsafe { (*entries.add(index)).load(Ordering::Acquire).as_ref() }
    }

    /// The slot of a row.
    #[inline]
    pub(crate) fn slot<'g>(&'g self, row: RowId, guard: &'g Guard<'_>) -> Option<Slot<'g>> {
        self.get(row.chunk(), guard)?.slot(row.slot(), guard)
    }

    /// Gives a slot back that was taken and not filled: it stays empty.
    pub(crate) fn give_back(&self, row: RowId, guard: &Guard<'_>) {
        if let Some(chunk) = self.get(row.chunk(), guard) {
            chunk.note_emptied();
        }
    }

    /// The slot of a row, latched; waits while the chunk is being packed. `None`: it has none, or its row is frozen or has
    /// left.
    pub(crate) fn latch<'g>(&'g self, row: RowId, guard: &'g Guard<'_>) -> Option<Latched<'g>> {
        let mut backoff = Backoff::new();
        loop {
            match self.slot(row, guard)?.latch() {
                Taken::Latched(latched) => return Some(latched),
                Taken::Frozen => return None,
                Taken::Moved => backoff.wait(),
            }
        }
    }

    /// What stands in the slot of a row.
    #[inline]
    pub(crate) fn look(&self, row: RowId, guard: &Guard<'_>) -> Found {
        self.get(row.chunk(), guard).map_or(Found::Empty, |chunk| chunk.look(row.slot(), guard))
    }

    /// The newest version of a row, or its image if it is frozen, or the image of its mark if it has left; waits while the
    /// chunk is being packed. Whether there is a version and when it begins is all that it says of a row on the paged side: its
    /// image is bare, and no page is looked at.
    #[inline]
    pub(crate) fn newest(&self, row: RowId, guard: &Guard<'_>) -> Option<Version> {
        self.newest_by(row, guard, |block| Ok::<_, Infallible>(block.image(row, guard)))
            .unwrap_or_else(|never| match never {})
    }

    /// The same with its bytes, unless the row is on the paged side, not in the reader's hand, and its pages are not in memory: for
    /// transactions.
    ///
    /// # Errors
    /// What to wait for.
    #[inline]
    pub(crate) fn newest_if_there(
        &self,
        row: RowId,
        hand: &Hand,
        guard: &Guard<'_>,
    ) -> Result<Option<Version>, Box<Absent>> {
        self.newest_by(row, guard, |block| block.image_if_there(row, hand, guard))
    }

    /// The same with its bytes; pages that are not in memory are read past the frames, on this thread: for threads that no transaction waits for.
    ///
    /// # Errors
    /// They cannot be read.
    #[inline]
    pub(crate) fn newest_now(&self, row: RowId, guard: &Guard<'_>) -> Result<Option<Version>, RowAbsent> {
        self.newest_by(row, guard, |block| block.image_now(row, guard))
    }

    #[inline]
    fn newest_by<E>(
        &self,
        row: RowId,
        guard: &Guard<'_>,
        image: impl Fn(&Block) -> Result<Version, E>,
    ) -> Result<Option<Version>, E> {
        match self.look(row, guard) {
            Found::Newest(version) => Ok(Some(version)),
            Found::Empty => Ok(None),
            found @ (Found::Moved | Found::Frozen(_) | Found::Left(_)) => {
                self.newest_elsewhere(row, found, guard, image)
            }
        }
    }

    /// Has so many pages behind those of a row on the paged side read ahead of need. A hint.
    pub(crate) fn read_behind(&self, row: RowId, pages: usize, guard: &Guard<'_>) {
        if let Some(run) = self.run_of(row, guard) {
            let end = run.pages_of(row.slot()).end;
            run.prefetch(end..end + pages);
        }
    }

    /// Has so many pages read ahead of need that these rows are on, and the row before them is not. A hint.
    pub(crate) fn read_ahead(
        &self,
        before: RowId,
        rows: impl Iterator<Item = RowId>,
        pages: usize,
        guard: &Guard<'_>,
    ) {
        let Some(first) = self.run_of(before, guard) else { return };
        let mut known: Vec<(u64, usize)> =
            first.pages_of(before.slot()).map(|page| (first.number(), page)).collect();
        let most = known.len() + pages;
        for row in rows {
            let Some(run) = self.run_of(row, guard) else { continue };
            for page in run.pages_of(row.slot()) {
                if known.len() >= most {
                    return;
                }
                if !known.contains(&(run.number(), page)) {
                    known.push((run.number(), page));
                    run.prefetch(page..page + 1);
                }
            }
        }
    }

    /// The run that a row on the paged side is in.
    fn run_of<'g>(&'g self, row: RowId, guard: &'g Guard<'_>) -> Option<&'g Run> {
        let Found::Frozen(number) = self.look(row, guard) else { return None };
        self.get(row.chunk(), guard)?.block(number, guard)?.run().map(|run| &**run)
    }

    /// When a row begins or had begun, if it is frozen or has left.
    #[inline]
    pub(crate) fn frozen_since(&self, row: RowId, guard: &Guard<'_>) -> Option<Timestamp> {
        let (Found::Frozen(number) | Found::Left(number)) = self.look(row, guard) else { return None };
        Some(self.get(row.chunk(), guard)?.block(number, guard)?.begin(row.slot(), guard))
    }

    /// Asks the processor for the newest version of a row. A hint.
    #[inline]
    pub(crate) fn approach(&self, row: RowId, guard: &Guard<'_>) {
        if let Some(chunk) = self.get(row.chunk(), guard) {
            chunk.approach(row.slot(), guard);
        }
    }

    #[cold]
    fn newest_elsewhere<E>(
        &self,
        row: RowId,
        mut found: Found,
        guard: &Guard<'_>,
        image: impl Fn(&Block) -> Result<Version, E>,
    ) -> Result<Option<Version>, E> {
        let mut backoff = Backoff::new();
        loop {
            match found {
                Found::Newest(version) => return Ok(Some(version)),
                Found::Empty => return Ok(None),
                Found::Frozen(number) => {
                    let Some(chunk) = self.get(row.chunk(), guard) else { return Ok(None) };
                    // Without the block the row has been thawed or frozen anew since the look.
                    if let Some(block) = chunk.block(number, guard) {
                        return image(block).map(Some);
                    }
                }
                Found::Left(number) => {
                    let Some(chunk) = self.get(row.chunk(), guard) else { return Ok(None) };
                    // Without the block the row has gone since the look; without a mark it stays after all.
                    let mark = chunk.block(number, guard).map(|block| block.mark_image(row, guard));
                    if let Some(Some(mark)) = mark {
                        return Ok(Some(mark));
                    }
                }
                Found::Moved => backoff.wait(),
            }
            found = self.look(row, guard);
        }
    }

    /// One more than the highest chunk number.
    pub(crate) fn len(&self) -> u32 {
        self.len.load(Ordering::Acquire)
    }

    fn entry(&self, number: u32) -> &AtomicPtr<Chunk> {
        let (bucket, index) = Self::place(number);
        let mut entries = self.buckets[bucket].load(Ordering::Acquire);
        if entries.is_null() {
            let fresh: Box<[AtomicPtr<Chunk>]> =
                (0..1_usize << bucket).map(|_| AtomicPtr::default()).collect();
            let fresh = Box::into_raw(fresh).cast::<AtomicPtr<Chunk>>();
            match self.buckets[bucket].compare_exchange(
                null_mut(),
                fresh,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => entries = fresh,
                Err(theirs) => {
                    // SAFETY: `fresh` is ours: nobody else has seen it.
                    drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(fresh, 1 << bucket)) });
                    entries = theirs;
                }
            }
        }
        // SAFETY: bucket k has 2^k entries, which live as long as the directory.
        unsafe { &*entries.add(index) }
    }

    /// The chunk with this number, made now if it is not there. Callers make a number once, or hold the table alone.
    ///
    /// # Errors
    /// No memory for its slots.
    pub(crate) fn make(&self, number: u32, memory: &Memory) -> Result<(), OutOfMemory> {
        let entry = self.entry(number);
        if entry.load(Ordering::Acquire).is_null() {
            let chunk = Box::into_raw(Chunk::new(number, memory)?);
            let before = entry.swap(chunk, Ordering::AcqRel);
            assert!(before.is_null(), "chunk {number} was made twice");
        }
        self.len.fetch_max(number + 1, Ordering::AcqRel);
        Ok(())
    }

    /// Takes an empty chunk out. Its slot array is retired; the chunk itself is returned for the epochs.
    pub(crate) fn remove(&self, number: u32, memory: &Memory) -> Option<Box<Chunk>> {
        let chunk = self.entry(number).swap(null_mut(), Ordering::AcqRel);
        if chunk.is_null() {
            return None;
        }
        // SAFETY: `make` put a box there, and the swap gave it to us alone; readers may still look at it, so the
        // caller drops it through the epochs.
        let chunk = unsafe { Box::from_raw(chunk) };
        chunk.retire_array(chunk.slots.load(Ordering::Acquire), memory);
        Some(chunk)
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let block = *self.block.get_mut();
        if !block.is_null() {
            // SAFETY: freezing put a box there; who drops a chunk has seen to it that nobody looks at it.
            drop(unsafe { Box::from_raw(block) });
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        for bucket in 0..BUCKETS {
            let entries = self.buckets[bucket].load(Ordering::Acquire);
            if entries.is_null() {
                continue;
            }
            // SAFETY: the directory is dropped by its only owner; the box was leaked by `entry`. Slot arrays belong
            // to the memory, which goes as a whole.
            let entries = unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(entries, 1 << bucket)) };
            for entry in &entries {
                let chunk = entry.load(Ordering::Acquire);
                if !chunk.is_null() {
                    // SAFETY: as above; `make` put a box there.
                    drop(unsafe { Box::from_raw(chunk) });
                }
            }
        }
    }
}
