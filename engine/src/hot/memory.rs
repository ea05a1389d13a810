//! The memory of one table's versions, or of one index: a size-class allocator over one reserved address range.
//!
//! ```text
//!   thread ──► shard (thread index mod 16)          latch, one atomic exchange
//!                ├ magazine per class: free cells, linked through themselves
//!                └ limbo: retired cells with stamps
//!                      │ refill / flush, a batch at a time
//!              class: slabs by how full they are    lock of the class
//!                      │ a slab at a time
//!              space: blocks of 64 KiB              lock of the space → budget, operating system
//! ```
//!
//! Locks are taken in this order, from the top down; a thread holds at most one shard's latch.
//!
//! Rules:
//! - *The first word.* A free cell's first 8 bytes are [`FREE`] (both top bits set) and the place of the next free
//!   cell. Its owner therefore never stores a first word with both top bits set, and accesses the first word
//!   atomically. `alloc` hands a cell out with a first word of 0 and otherwise arbitrary contents, so an owner whose
//!   cells are walked stores its (non-zero) first word last, with `Release`: 0 then means "being built".
//! - *Retire or free.* What readers may have seen is [`retire`](Memory::retire)d after it was unlinked: its contents
//!   stay until no epoch pin is older than the unlinking. [`free`](Memory::free) is for cells that nobody else has
//!   ever seen, or that the owner protects by other means.
//! - *Evacuation.* A slab between [`begin_evacuation`](Memory::begin_evacuation) and
//!   [`end_evacuation`](Memory::end_evacuation) gives out no cell, so a cell in it that is free stays free, and goes
//!   back to the system once all are. `begin_evacuation` marks the slab first and then visits every shard under its
//!   latch; who frees looks at the mark under the same latch. So either the visit finds the cell in the magazine, or
//!   the freeing thread has seen the mark.
//! - *Counts.* `used + retired + free cells in magazines and slabs ≤ committed`; `committed` is what the budget was
//!   charged.
//! - In debug and model builds free cells are filled with [`POISON`], and a changed one is found when it is handed out;
//!   so is a cell that is freed twice.
//!
//! Places are counted in units of 8 bytes from the start of the range; 0 is never a cell. Limits: 2^40 units (8 TiB);
//! a shard keeps up to 32 KiB of free cells of each class (at least one cell) that other shards do not see until
//! [`trim`](Memory::trim); 5 KiB for each memory and 2 KiB for each shard in use are not charged.

use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use thermocline_base::epoch::Epochs;
use thermocline_base::sync::{
    AtomicU32, AtomicU64, CachePadded, Mutex, Ordering, thread_index, write_unshared,
};
use thermocline_base::vm::Reservation;

use self::latch::Latch;
use self::limbo::{Limbo, Place};
#[cfg(test)]
use self::size::{BLOCK_BYTES, MAX_CELL_BYTES};
use self::size::{BLOCK_SHIFT, CLASSES, SPAN, Shape, class_of, shape, span_blocks};
use self::slab::{Block, Blocks, Lists, Slab, block_of, block_units};
use self::space::{Ground, Space};
use super::budget::{Budget, MemoryKind, OutOfMemory, OutOfMemoryCause};

pub(crate) use self::slab::BlockId;

mod latch;
mod limbo;
mod size;
mod slab;
mod space;

#[cfg(all(test, feature = "model"))]
mod model_tests;
#[cfg(test)]
mod tests;

/// Both top bits of a first word: the cell is free. No owner stores such a first word.
pub(crate) const FREE: u64 = 0b11 << 62;
/// What free cells are filled with in debug and model builds.
pub(crate) const POISON: u8 = 0xFB;

const CHECKED: bool = cfg!(any(debug_assertions, feature = "model"));
const SHARDS: usize = 16;
/// What a lent slab is charged by.
const PAGE_BYTES: u64 = 4096;
const MAX_RANGE_BYTES: usize = 8 << 40;
const PLACE_BITS: u32 = 40;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;

/// A size-class allocator over one range of addresses. See the module's header for its rules.
pub(crate) struct Memory {
    ground: Ground,
    epochs: Arc<Epochs>,
    shards: [OnceLock<Box<Shard>>; SHARDS],
    classes: Box<[Mutex<Lists>]>,
    /// How many slabs are being evacuated.
    evacuating: AtomicU32,
    space: CachePadded<Mutex<Space>>,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory")
            .field("kind", &self.ground.kind)
            .field("used_bytes", &self.used_bytes())
            .field("retired_bytes", &self.retired_bytes())
            .field("committed_bytes", &self.committed_bytes())
            .finish_non_exhaustive()
    }
}

/// What the threads of one shard share.
#[repr(align(128))]
struct Shard {
    cells: Latch<Cells>,
    /// Handed out minus given back, by this shard: wraps, and only the sum over all shards means something. Written
    /// under the latch.
    used: AtomicU64,
    /// Bytes in this shard's limbo. Written under the latch.
    retired: AtomicU64,
}

struct Cells {
    magazines: [Magazine; CLASSES],
    limbo: Limbo,
}

/// A stack of free cells: place of the first one and how many there are.
#[derive(Clone, Copy)]
struct Magazine(u64);

impl Magazine {
    const COUNT_BITS: u32 = 64 - PLACE_BITS;
    const EMPTY: Self = Self(0);

    #[inline(always)]
    const fn new(first: u64, count: u32) -> Self {
        Self(first << Self::COUNT_BITS | count as u64)
    }

    #[inline(always)]
    const fn first(self) -> u64 {
        self.0 >> Self::COUNT_BITS
    }

    #[inline(always)]
    const fn count(self) -> u32 {
        (self.0 & ((1 << Self::COUNT_BITS) - 1)) as u32
    }
}

impl Shard {
    fn new() -> Self {
        Self {
            cells: Latch::new(Cells { magazines: [Magazine::EMPTY; CLASSES], limbo: Limbo::default() }),
            used: AtomicU64::new(0),
            retired: AtomicU64::new(0),
        }
    }

    /// Under the latch; so a load and a store do.
    #[inline(always)]
    fn add(counter: &AtomicU64, bytes: u64) {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(bytes), Ordering::Relaxed);
    }

    #[inline(always)]
    fn sub(counter: &AtomicU64, bytes: u64) {
        counter.store(counter.load(Ordering::Relaxed).wrapping_sub(bytes), Ordering::Relaxed);
    }
}

impl Memory {
    /// A memory over a range of `reserve_bytes`, or fewer where the process has many, none of it committed yet.
    ///
    /// # Errors
    /// When the system refuses to reserve the range.
    ///
    /// # Panics
    /// When `reserve_bytes` is beyond 8 TiB.
    pub(crate) fn new(
        kind: MemoryKind,
        reserve_bytes: usize,
        budget: Arc<Budget>,
        epochs: Arc<Epochs>,
    ) -> Result<Self, OutOfMemory> {
        assert!(reserve_bytes <= MAX_RANGE_BYTES, "a memory spans at most 2^{PLACE_BITS} units");
        let range = Reservation::up_to(reserve_bytes).map_err(|_| OutOfMemory {
            kind,
            asked_bytes: reserve_bytes as u64,
            used_bytes: 0,
            limit_bytes: reserve_bytes as u64,
            cause: OutOfMemoryCause::System,
        })?;
        let space = Space::new(range.bytes(), size_of::<Block>());
        Ok(Self {
            ground: Ground { range, kind, budget, committed: AtomicU64::new(0) },
            epochs,
            shards: [const { OnceLock::new() }; SHARDS],
            classes: (0..CLASSES).map(|_| Mutex::default()).collect(),
            evacuating: AtomicU32::new(0),
            space: CachePadded(Mutex::new(space)),
        })
    }

    /// A cell of at least `bytes`: aligned to 8 bytes, to 64 if `bytes` is a multiple of 64, and to the next power of
    /// two up to 64 KiB if it is one itself. Its first word is 0, the rest is arbitrary.
    ///
    /// # Errors
    /// When the memory limit or the range is at its end, after reclaiming what this memory could.
    #[inline]
    pub(crate) fn alloc(&self, bytes: usize) -> Result<NonNull<u8>, OutOfMemory> {
        self.alloc_from(bytes, false)
    }

    /// [`alloc`](Self::alloc) for work that frees memory: may pass the limit by the budget's reserve.
    ///
    /// # Errors
    /// As `alloc`, at the end of the reserve.
    #[inline]
    pub(crate) fn alloc_reserve(&self, bytes: usize) -> Result<NonNull<u8>, OutOfMemory> {
        self.alloc_from(bytes, true)
    }

    /// [`alloc`](Self::alloc) with all bytes zero. Costs nothing extra for large ones: they come from the system so.
    ///
    /// # Errors
    /// As `alloc`.
    #[cfg(test)]
    pub(crate) fn alloc_zeroed(&self, bytes: usize) -> Result<NonNull<u8>, OutOfMemory> {
        let cell = self.alloc(bytes)?;
        const { assert!(MAX_CELL_BYTES >= BLOCK_BYTES, "a span has more than one block, and so reads as zero") };
        if class_of(bytes) != SPAN {
            // SAFETY: the cell was just handed out and has at least that many bytes.
            unsafe { cell.write_bytes(0, bytes) };
        }
        Ok(cell)
    }

    #[inline(always)]
    fn alloc_from(&self, bytes: usize, reserve: bool) -> Result<NonNull<u8>, OutOfMemory> {
        let class = class_of(bytes);
        if class == SPAN {
            let reserve = self.may_use_reserve(reserve);
            return self.alloc_span(bytes, reserve);
        }
        let shard = self.shard();
        let mut cells = shard.cells.lock();
        if let Some(cell) = self.pop(shard, &mut cells, class) {
            return Ok(cell);
        }
        drop(cells);
        self.alloc_slowly(shard, class, reserve)
    }

    /// Without notices nothing leaves memory, so the memo may always use the reserve.
    fn may_use_reserve(&self, reserve: bool) -> bool {
        reserve || self.ground.kind == MemoryKind::Memo
    }

    /// Takes a cell from the magazine.
    #[inline(always)]
    fn pop(&self, shard: &Shard, cells: &mut Cells, class: u8) -> Option<NonNull<u8>> {
        let magazine = cells.magazines[class as usize];
        let units = magazine.first();
        if units == 0 {
            return None;
        }
        let word = self.word(units);
        let link = word.load(Ordering::Relaxed);
        cells.magazines[class as usize] = Magazine::new(link & PLACE_MASK, magazine.count() - 1);
        if CHECKED {
            self.check_poison(units, link, shape(class));
        }
        word.store(0, Ordering::Release);
        Shard::add(&shard.used, u64::from(shape(class).cell_bytes));
        Some(self.at(units))
    }

    /// First what may be had, then what can be reclaimed, and only then the reserve.
    #[cold]
    fn alloc_slowly(&self, shard: &Shard, class: u8, reserve: bool) -> Result<NonNull<u8>, OutOfMemory> {
        let reserve = self.may_use_reserve(reserve);
        self.refill_and_pop(shard, class, false).or_else(|_| {
            self.reclaim();
            self.refill_and_pop(shard, class, reserve)
        })
    }

    fn refill_and_pop(&self, shard: &Shard, class: u8, reserve: bool) -> Result<NonNull<u8>, OutOfMemory> {
        let mut cells = shard.cells.lock();
        if cells.magazines[class as usize].count() == 0 {
            cells.magazines[class as usize] = self.take_cells(class, reserve)?;
        }
        Ok(self.pop(shard, &mut cells, class).expect("the magazine has just been refilled"))
    }

    #[cold]
    fn alloc_span(&self, bytes: usize, reserve: bool) -> Result<NonNull<u8>, OutOfMemory> {
        let blocks = span_blocks(bytes);
        let first = self.space.lock().take(&self.ground, blocks, false);
        let start = first.or_else(|_| {
            self.reclaim();
            self.space.lock().take(&self.ground, blocks, reserve)
        })?;
        // SAFETY: the blocks were just taken, so they lie in the range and nobody knows of them.
        unsafe { *self.block(start).state() = Slab::span(blocks) };
        let shard = self.shard();
        let _cells = shard.cells.lock();
        Shard::add(&shard.used, span_bytes(blocks));
        Ok(self.at(block_units(start)))
    }

    /// Takes a cell back for immediate use.
    ///
    /// # Safety
    /// `cell` came from an `alloc` of `bytes` of this memory and was not given back since; nobody uses it any more,
    /// and no reader can still see it.
    #[inline]
    pub(crate) unsafe fn free(&self, cell: NonNull<u8>, bytes: usize) {
        let place = Place::new(self.offset_of(cell), class_of(bytes));
        let shard = self.shard();
        let mut cells = shard.cells.lock();
        Shard::sub(&shard.used, self.bytes_of(place));
        self.put(&mut cells, place);
    }

    /// Takes a cell back that readers may still look at: it is reused once they have gone.
    ///
    /// # Safety
    /// `cell` came from an `alloc` of `bytes` of this memory and was not given back since. It was unlinked before:
    /// nobody who pins an epoch from now on can find it.
    #[inline]
    pub(crate) unsafe fn retire(&self, cell: NonNull<u8>, bytes: usize) {
        let place = Place::new(self.offset_of(cell), class_of(bytes));
        let bytes = self.bytes_of(place);
        let shard = self.shard();
        let mut cells = shard.cells.lock();
        Shard::sub(&shard.used, bytes);
        Shard::add(&shard.retired, bytes);
        if cells.limbo.push(place) {
            self.seal_and_reuse(shard, &mut cells);
        }
    }

    #[cold]
    fn seal_and_reuse(&self, shard: &Shard, cells: &mut Cells) {
        cells.limbo.seal(&self.epochs);
        self.reuse_due(shard, cells, self.epochs.safe());
    }

    /// Makes reusable what no reader can see any more. Returns what must go on waiting, as
    /// [`retired_bytes`](Self::retired_bytes) does.
    pub(crate) fn collect(&self) -> u64 {
        for shard in self.shards_in_use() {
            shard.cells.lock().limbo.seal(&self.epochs);
        }
        let safe = self.epochs.safe();
        for shard in self.shards_in_use() {
            self.reuse_due(shard, &mut shard.cells.lock(), safe);
        }
        self.retired_bytes()
    }

    fn reuse_due(&self, shard: &Shard, cells: &mut Cells, safe: u64) {
        while let Some(batch) = cells.limbo.pop_due(safe) {
            let mut bytes = 0;
            for &place in &batch.places {
                bytes += self.bytes_of(place);
                self.put(cells, place);
            }
            Shard::sub(&shard.retired, bytes);
            cells.limbo.recycle(batch);
        }
    }

    /// Makes a cell free: into the magazine, as a rule.
    #[inline]
    fn put(&self, cells: &mut Cells, place: Place) {
        let (units, class) = (place.units(), place.class());
        if class == SPAN {
            self.put_span(units);
            return;
        }
        if CHECKED {
            self.poison(units, shape(class));
        }
        if self.evacuating.load(Ordering::Relaxed) != 0 && self.block(self.head_of(units)).is_evacuating() {
            self.give_cell(class, units);
            return;
        }
        let magazine = cells.magazines[class as usize];
        self.word(units).store(FREE | magazine.first(), Ordering::Release);
        cells.magazines[class as usize] = Magazine::new(units, magazine.count() + 1);
        if magazine.count() >= u32::from(shape(class).magazine) {
            self.flush(cells, class, u32::from(shape(class).batch));
        }
    }

    #[cold]
    fn put_span(&self, units: u64) {
        let start = block_of(units);
        // SAFETY: the start of a span that its owner gives back; nobody else looks at its metadata.
        let blocks = unsafe { self.block(start).state() }.blocks();
        self.space.lock().give(&self.ground, start, blocks);
    }

    /// Gives `count` cells of a magazine back to their slabs.
    #[cold]
    fn flush(&self, cells: &mut Cells, class: u8, count: u32) {
        let magazine = cells.magazines[class as usize];
        let mut units = magazine.first();
        let mut lists = self.classes[class as usize].lock();
        for _ in 0..count {
            let next = self.word(units).load(Ordering::Relaxed) & PLACE_MASK;
            self.give_cell_locked(&mut lists, class, units);
            units = next;
        }
        cells.magazines[class as usize] = Magazine::new(units, magazine.count() - count);
    }

    /// Gives everything back that is free: magazines, empty slabs, idle blocks. Returns how many bytes the system got.
    pub(crate) fn trim(&self) -> u64 {
        let before = self.committed_bytes();
        self.reclaim();
        before.saturating_sub(self.committed_bytes())
    }

    fn reclaim(&self) {
        self.collect();
        for shard in self.shards_in_use() {
            for class in 0..CLASSES as u8 {
                let mut cells = shard.cells.lock();
                let count = cells.magazines[class as usize].count();
                if count > 0 {
                    self.flush(&mut cells, class, count);
                }
            }
        }
        self.space.lock().release_idle(&self.ground);
    }

    // Slabs.

    /// Up to a batch of cells for an empty magazine; from a fresh slab only if no other has any.
    fn take_cells(&self, class: u8, reserve: bool) -> Result<Magazine, OutOfMemory> {
        let shape = shape(class);
        let mut lists = self.classes[class as usize].lock();
        let mut magazine = Magazine::EMPTY;
        while magazine.count() < u32::from(shape.batch) {
            let cut_before = magazine.count();
            let slab = match lists.fullest() {
                Some(slab) => slab,
                None if magazine.count() > 0 => break,
                None => self.fresh_slab(class, shape, reserve)?,
            };
            let taken = self.take_from_slab(slab, shape, &mut magazine, reserve);
            // SAFETY: we hold the lock of the class, and no reference to a slab's state.
            unsafe { lists.place(self.blocks(), slab, shape) };
            match taken {
                Ok(()) if magazine.count() > cut_before => {}
                // The pages of a lent slab are taken one at a time.
                Ok(()) => break,
                Err(_) if magazine.count() > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(magazine)
    }

    fn fresh_slab(&self, class: u8, shape: &Shape, reserve: bool) -> Result<u32, OutOfMemory> {
        let (start, lent) = {
            let mut space = self.space.lock();
            let lent = if shape.blocks == 1 { space.lend(&self.ground, reserve)? } else { None };
            match lent {
                Some(start) => (start, true),
                None => (space.take(&self.ground, u32::from(shape.blocks), reserve)?, false),
            }
        };
        // SAFETY: the blocks were just taken, so they lie in the range and nobody knows of them.
        unsafe {
            *self.block(start).state() = Slab::fresh(class, shape, lent);
            for back in 0..u32::from(shape.blocks) {
                self.block(start + back).set_back(back);
            }
        }
        Ok(start)
    }

    /// Bytes of a lent slab that are charged when so many of its cells were cut.
    fn lent_bytes(cut: u16, shape: &Shape) -> u64 {
        (u64::from(cut) * u64::from(shape.cell_bytes)).next_multiple_of(PAGE_BYTES)
    }

    /// How many more cells of a lent slab may be cut: those on pages that are charged; the pages of one more are charged if there are none.
    fn cut_of_lent(&self, state: &Slab, shape: &Shape, reserve: bool) -> Result<u16, OutOfMemory> {
        let on = |bytes: u64| ((bytes / u64::from(shape.cell_bytes)) as u16).min(shape.cells);
        let charged = Self::lent_bytes(state.cut, shape);
        if on(charged) > state.cut {
            return Ok(on(charged) - state.cut);
        }
        let bytes = Self::lent_bytes(state.cut + 1, shape);
        self.space.lock().charge_lent(&self.ground, bytes - charged, reserve)?;
        Ok(on(bytes) - state.cut)
    }

    /// Moves free cells of a slab into a magazine until that holds a batch; of a lent slab, as many as a page has. Under the lock of the
    /// class.
    fn take_from_slab(
        &self,
        slab: u32,
        shape: &Shape,
        magazine: &mut Magazine,
        reserve: bool,
    ) -> Result<(), OutOfMemory> {
        // SAFETY: under the lock of the class, and the only reference.
        let state = unsafe { self.block(slab).state() };
        let start = block_units(slab);
        let (mut first, mut count) = (magazine.first(), magazine.count());
        let wanted = u32::from(shape.batch) - count;
        let uncut = shape.cells - state.cut;
        let taken = wanted.min(u32::from(state.available - uncut)) as u16;
        for _ in 0..taken {
            let units = start + u64::from(state.free - 1);
            let word = self.word(units);
            let next = word.load(Ordering::Relaxed) & PLACE_MASK;
            state.free = if next == 0 { 0 } else { (next - start) as u32 + 1 };
            word.store(FREE | first, Ordering::Relaxed);
            first = units;
        }
        let mut cut = (wanted - u32::from(taken)).min(u32::from(uncut)) as u16;
        let mut outcome = Ok(());
        if cut > 0 && state.is_lent() {
            // What was taken already is enough for now.
            let more = if taken > 0 { Ok(0) } else { self.cut_of_lent(state, shape, reserve) };
            match more {
                Ok(more) => cut = cut.min(more),
                Err(error) => (cut, outcome) = (0, Err(error)),
            }
        }
        // Backwards, so that the magazine hands them out by ascending address.
        for cell in (state.cut..state.cut + cut).rev() {
            let units = start + u64::from(cell) * u64::from(shape.cell_bytes / 8);
            if CHECKED {
                // SAFETY: a cell of a slab that was never handed out lies in the range and is ours.
                unsafe { self.at(units).write_bytes(POISON, shape.cell_bytes as usize) };
            }
            self.word(units).store(FREE | first, Ordering::Release);
            first = units;
        }
        state.cut += cut;
        state.available -= taken + cut;
        count += u32::from(taken + cut);
        *magazine = Magazine::new(first, count);
        outcome
    }

    fn give_cell(&self, class: u8, units: u64) {
        self.give_cell_locked(&mut self.classes[class as usize].lock(), class, units);
    }

    /// Gives a free cell back to its slab, and the slab to the space when that was the last one.
    fn give_cell_locked(&self, lists: &mut Lists, class: u8, units: u64) {
        let slab = self.head_of(units);
        let start = block_units(slab);
        // SAFETY: under the lock of the class, and the only reference.
        let state = unsafe { self.block(slab).state() };
        assert!(state.class == class, "a cell is given back with the size that it was allocated with");
        let next = if state.free == 0 { 0 } else { start + u64::from(state.free - 1) };
        self.word(units).store(FREE | next, Ordering::Release);
        state.free = (units - start) as u32 + 1;
        state.available += 1;
        if !self.give_slab_if_empty(lists, slab) {
            // SAFETY: we hold the lock of the class, and `state` is not used any more.
            unsafe { lists.place(self.blocks(), slab, shape(class)) };
        }
    }

    /// Gives a slab back if all of its cells are free and nobody walks over it. Under the lock of the class.
    fn give_slab_if_empty(&self, lists: &mut Lists, slab: u32) -> bool {
        let block = self.block(slab);
        let (blocks, lent) = {
            // SAFETY: under the lock of the class; the reference ends with the block.
            let state = unsafe { block.state() };
            if state.available < shape(state.class).cells || state.walkers > 0 {
                return false;
            }
            let lent = state.is_lent().then(|| Self::lent_bytes(state.cut, shape(state.class)));
            (state.blocks(), lent)
        };
        // SAFETY: under the lock of the class, no reference to a state.
        unsafe { lists.remove(self.blocks(), slab) };
        if block.is_evacuating() {
            self.evacuating.fetch_sub(1, Ordering::Relaxed);
        }
        block.next_generation();
        match lent {
            Some(charged) => self.space.lock().give_lent(&self.ground, slab, charged),
            None => self.space.lock().give(&self.ground, slab, blocks),
        }
        true
    }

    // Evacuation.

    /// The slabs that are filled to at most `max_fill_percent`, the emptiest first, as far as the other slabs of their
    /// class have room for what is in them. Cells in magazines count as filled; [`trim`](Self::trim) first for an
    /// exact answer.
    pub(crate) fn sparse_blocks(&self, max_fill_percent: u32) -> Vec<BlockId> {
        self.sparse_blocks_of(0..CLASSES as u8, max_fill_percent)
    }

    /// Those of them with cells for so many bytes.
    pub(crate) fn sparse_blocks_for(&self, bytes: usize, max_fill_percent: u32) -> Vec<BlockId> {
        let class = class_of(bytes);
        assert!(class != SPAN, "blocks of many cells can be sparse");
        self.sparse_blocks_of(class..class + 1, max_fill_percent)
    }

    fn sparse_blocks_of(&self, classes: std::ops::Range<u8>, max_fill_percent: u32) -> Vec<BlockId> {
        let mut sparse = Vec::new();
        for class in classes {
            let cells = u32::from(shape(class).cells);
            let lists = self.classes[class as usize].lock();
            // SAFETY: we hold the lock of the class, and keep no reference to a state.
            let listed = unsafe { lists.listed(self.blocks()) };
            let mut slabs: Vec<_> = listed
                .into_iter()
                // SAFETY: as above.
                .map(|slab| (cells - u32::from(unsafe { self.block(slab).state() }.available), slab))
                .collect();
            slabs.sort_unstable();
            let mut room: u64 = slabs.iter().map(|(live, _)| u64::from(cells - live)).sum();
            for (live, slab) in slabs {
                let needed = u64::from(live) + u64::from(cells - live);
                if live * 100 > cells * max_fill_percent || room < needed {
                    break;
                }
                room -= needed;
                sparse.push(BlockId { block: slab, generation: self.block(slab).generation(), class });
            }
        }
        sparse
    }

    /// From now on no cell of the block is handed out. False: the block is gone, or is being evacuated already.
    pub(crate) fn begin_evacuation(&self, id: BlockId) -> bool {
        {
            let mut lists = self.classes[id.class as usize].lock();
            let block = self.block(id.block);
            if block.generation() != id.generation || block.is_evacuating() {
                return false;
            }
            self.evacuating.fetch_add(1, Ordering::Relaxed);
            block.set_evacuating(true);
            // SAFETY: we hold the lock of the class, and no reference to a state.
            unsafe { lists.place(self.blocks(), id.block, shape(id.class)) };
        }
        let start = block_units(id.block);
        let slab = start..block_units(id.block + u32::from(shape(id.class).blocks));
        // A shard that nobody has used yet is visited too: else a thread that uses it from now on might not have seen
        // the mark.
        for shard in &self.shards {
            let shard = shard.get_or_init(|| Box::new(Shard::new()));
            let mut cells = shard.cells.lock();
            let mut rest = cells.magazines[id.class as usize].first();
            let (mut kept, mut count) = (0, 0);
            while rest != 0 {
                let units = rest;
                rest = self.word(units).load(Ordering::Relaxed) & PLACE_MASK;
                if slab.contains(&units) {
                    self.give_cell(id.class, units);
                } else {
                    self.word(units).store(FREE | kept, Ordering::Relaxed);
                    (kept, count) = (units, count + 1);
                }
            }
            cells.magazines[id.class as usize] = Magazine::new(kept, count);
        }
        true
    }

    /// Calls `f` with every cell of a block under evacuation that is not free; one in limbo, or allocated and not
    /// linked yet, is not free either. False: the block is gone, or is not being evacuated.
    ///
    /// The block stays for as long as this runs. The caller holds an epoch pin, so that a cell which was not free when
    /// `f` is called keeps its contents meanwhile, and makes sure under its own latch that what it has found there is
    /// still reachable. It does not end the evacuation before this returns.
    pub(crate) fn for_each_live_cell(&self, id: BlockId, mut f: impl FnMut(NonNull<u8>)) -> bool {
        let block = self.block(id.block);
        let cut = {
            let _lists = self.classes[id.class as usize].lock();
            if block.generation() != id.generation || !block.is_evacuating() {
                return false;
            }
            // SAFETY: we hold the lock of the class.
            let state = unsafe { block.state() };
            state.walkers += 1;
            state.cut
        };
        let _walk = Walk { memory: self, id };
        let units_each = u64::from(shape(id.class).cell_bytes / 8);
        for cell in 0..u64::from(cut) {
            let units = block_units(id.block) + cell * units_each;
            if self.word(units).load(Ordering::Acquire) & FREE != FREE {
                f(self.at(units));
            }
        }
        true
    }

    /// The block's cells may be handed out again. Nothing happens if it is gone.
    pub(crate) fn end_evacuation(&self, id: BlockId) {
        let mut lists = self.classes[id.class as usize].lock();
        let block = self.block(id.block);
        if block.generation() != id.generation || !block.is_evacuating() {
            return;
        }
        block.set_evacuating(false);
        self.evacuating.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: we hold the lock of the class, and no reference to a state.
        unsafe { lists.place(self.blocks(), id.block, shape(id.class)) };
    }

    /// What is said when an index cannot have `asked_bytes`.
    pub(crate) fn refusal(&self, asked_bytes: u64) -> OutOfMemory {
        let budget = &self.ground.budget;
        OutOfMemory {
            kind: self.ground.kind,
            asked_bytes,
            used_bytes: budget.used(),
            limit_bytes: budget.limit().unwrap_or(u64::MAX),
            cause: OutOfMemoryCause::Limit,
        }
    }

    // Counts and places.

    /// Bytes of the cells that are handed out, neither freed nor retired. Exact while nobody allocates or frees.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.shards_in_use().fold(0, |sum, shard| sum.wrapping_add(shard.used.load(Ordering::Relaxed)))
    }

    /// Bytes of the cells that were retired and wait.
    pub(crate) fn retired_bytes(&self) -> u64 {
        self.shards_in_use().map(|shard| shard.retired.load(Ordering::Relaxed)).sum()
    }

    /// Bytes that the budget was charged.
    pub(crate) fn committed_bytes(&self) -> u64 {
        self.ground.committed()
    }

    /// The bytes that an allocation of `bytes` really takes.
    #[cfg(test)]
    pub(crate) fn cell_bytes(bytes: usize) -> usize {
        match class_of(bytes) {
            SPAN => span_bytes(span_blocks(bytes)) as usize,
            class => shape(class).cell_bytes as usize,
        }
    }

    /// The place of a cell: never 0, below 2^40, and the same for as long as the cell lives.
    #[inline(always)]
    pub(crate) fn offset_of(&self, cell: NonNull<u8>) -> u64 {
        let bytes = cell.addr().get().wrapping_sub(self.ground.range.base().addr().get());
        debug_assert!(bytes < self.ground.range.bytes(), "a cell lies in the range of its memory");
        bytes as u64 / 8
    }

    /// The cell at a place that [`offset_of`](Self::offset_of) gave.
    #[inline(always)]
    pub(crate) fn at(&self, units: u64) -> NonNull<u8> {
        debug_assert!(
            units * 8 < self.ground.range.bytes() as u64,
            "a place lies in the range of its memory"
        );
        // SAFETY: inside the range, which lives as long as we do.
        unsafe { self.ground.range.base().add(units as usize * 8) }
    }

    #[inline(always)]
    fn bytes_of(&self, place: Place) -> u64 {
        if place.class() == SPAN {
            // SAFETY: the start of a span that its owner gives back; nobody else looks at its metadata.
            span_bytes(unsafe { self.block(block_of(place.units())).state() }.blocks())
        } else {
            u64::from(shape(place.class()).cell_bytes)
        }
    }

    #[inline(always)]
    fn word(&self, units: u64) -> &AtomicU64 {
        // SAFETY: a cell's first word: in the range, aligned to 8 bytes, and accessed atomically by everyone.
        unsafe { self.at(units).cast::<AtomicU64>().as_ref() }
    }

    #[inline(always)]
    fn blocks(&self) -> Blocks {
        Blocks(self.ground.range.base().cast::<Block>().as_ptr())
    }

    #[inline]
    fn block(&self, block: u32) -> &Block {
        debug_assert!(
            (block as usize) < self.ground.range.bytes() >> BLOCK_SHIFT,
            "a block lies in its range"
        );
        // SAFETY: inside the range, whose front holds the metadata of all blocks.
        unsafe { self.blocks().get(block) }
    }

    /// The first block of the slab of a cell that is not free, or whose class the caller has locked.
    #[inline]
    fn head_of(&self, units: u64) -> u32 {
        let block = block_of(units);
        // SAFETY: by the condition above.
        block - unsafe { self.block(block).back() }
    }

    #[inline(always)]
    fn shard(&self) -> &Shard {
        let slot = &self.shards[thread_index() % SHARDS];
        match slot.get() {
            Some(shard) => shard,
            None => Self::new_shard(slot),
        }
    }

    #[cold]
    fn new_shard(slot: &OnceLock<Box<Shard>>) -> &Shard {
        slot.get_or_init(|| Box::new(Shard::new()))
    }

    fn shards_in_use(&self) -> impl Iterator<Item = &Shard> {
        self.shards.iter().filter_map(|shard| shard.get().map(Box::as_ref))
    }

    /// Fills a cell that becomes free.
    fn poison(&self, units: u64, shape: &Shape) {
        let first = self.word(units).load(Ordering::Relaxed);
        assert!(
            first & FREE != FREE,
            "a cell is freed once, and its owner never sets both top bits of its first word"
        );
        let poison = std::iter::repeat_n(u64::from_ne_bytes([POISON; 8]), shape.cell_bytes as usize / 8 - 1);
        // SAFETY: the cell behind its first word is the allocator's now; who walks over the block may still look at it.
        unsafe { write_unshared(self.at(units + 1).cast(), poison) };
    }

    /// Looks whether a free cell was written to.
    fn check_poison(&self, units: u64, first: u64, shape: &Shape) {
        assert!(first & FREE == FREE, "the first word of a free cell was written to");
        // SAFETY: a free cell is the allocator's; nobody writes to it.
        let rest = unsafe {
            std::slice::from_raw_parts(self.at(units).add(8).as_ptr(), shape.cell_bytes as usize - 8)
        };
        assert!(rest.iter().all(|byte| *byte == POISON), "a free cell was written to");
    }
}

/// Keeps a block while somebody walks over its cells.
struct Walk<'a> {
    memory: &'a Memory,
    id: BlockId,
}

impl Drop for Walk<'_> {
    fn drop(&mut self) {
        let mut lists = self.memory.classes[self.id.class as usize].lock();
        // SAFETY: we hold the lock of the class; the reference ends with the statement.
        unsafe { self.memory.block(self.id.block).state() }.walkers -= 1;
        self.memory.give_slab_if_empty(&mut lists, self.id.block);
    }
}

const fn span_bytes(blocks: u32) -> u64 {
    (blocks as u64) << BLOCK_SHIFT
}

impl crate::index::NodeMemory for Memory {
    fn alloc(&self, bytes: usize) -> Result<NonNull<u8>, crate::index::OutOfMemory> {
        Memory::alloc(self, bytes).map_err(|_| crate::index::OutOfMemory)
    }

    unsafe fn free(&self, p: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller vouches for what `Memory::free` asks for.
        unsafe { Memory::free(self, p, bytes) }
    }

    unsafe fn retire(&self, p: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller vouches for what `Memory::retire` asks for.
        unsafe { Memory::retire(self, p, bytes) }
    }

    unsafe fn is_leaving(&self, p: NonNull<u8>) -> bool {
        // The cell is not free, by contract, so its block is there.
        self.evacuating.load(Ordering::Relaxed) != 0
            && self.block(self.head_of(self.offset_of(p))).is_evacuating()
    }
}
