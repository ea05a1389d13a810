//! Slabs: runs of blocks that are cut into the cells of one class.
//!
//! A slab's state stands in the metadata of its first block and belongs to the lock of its class, except for two
//! fields that are read without it:
//!
//! - `tag` = generation · 2 + evacuating. The generation changes when the slab is given back, so a [`BlockId`] of a
//!   slab that is gone is recognized although its blocks may by then belong to another class, under another lock.
//! - `back`, the distance to the slab's first block. It is written before the slab has a cell and stays as long as it
//!   has one that is not free, so whoever holds such a cell may read it.
//!
//! A slab that has free cells, and is not being evacuated, is in one of four lists of its class by how full it is.
//! Cells are taken from the fullest, so that the emptiest get a chance to become empty and go.

use std::cell::UnsafeCell;

use thermocline_base::sync::{AtomicU32, Ordering};

use super::size::{BLOCK_BYTES, Shape};

/// The metadata of one block. All zero: never taken.
#[repr(C)]
pub(super) struct Block {
    tag: AtomicU32,
    back: UnsafeCell<u32>,
    state: UnsafeCell<Slab>,
}

/// The state of a slab, or of a span (then only `class` and `blocks` count).
pub(super) struct Slab {
    /// Neighbours in the list; 0: none. Block 0 is metadata.
    next: u32,
    prev: u32,
    /// The newest of the free cells that lie in here, in units of 8 bytes from the slab's start, plus one; 0: none.
    pub(super) free: u32,
    /// How many blocks it has, and [`LENT`].
    blocks: u32,
    /// Free cells that lie in here, and cells that were never cut.
    pub(super) available: u16,
    /// Cells that were cut.
    pub(super) cut: u16,
    /// Walks over the cells that are going on; the slab stays meanwhile.
    pub(super) walkers: u16,
    pub(super) class: u8,
    /// The list that it is in, plus one; 0: none.
    list: u8,
}

const _: () = assert!(size_of::<Block>() == 32);

/// A slab, as of the time when it was named. It may be gone since; then nothing happens to it any more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct BlockId {
    pub(super) block: u32,
    pub(super) generation: u32,
    pub(super) class: u8,
}

const EVACUATING: u32 = 1;
/// The slab is charged by the page, as far as its cells were cut.
const LENT: u32 = 1 << 31;

impl Block {
    pub(super) fn generation(&self) -> u32 {
        self.tag.load(Ordering::Acquire) >> 1
    }

    pub(super) fn is_evacuating(&self) -> bool {
        self.tag.load(Ordering::Acquire) & EVACUATING != 0
    }

    /// Under the class's lock.
    pub(super) fn set_evacuating(&self, evacuating: bool) {
        let generation = self.tag.load(Ordering::Relaxed) & !EVACUATING;
        self.tag.store(generation | u32::from(evacuating), Ordering::Release);
    }

    /// Under the class's lock: forgets every [`BlockId`] of it, and that it is evacuated.
    pub(super) fn next_generation(&self) {
        let generation = self.tag.load(Ordering::Relaxed) & !EVACUATING;
        self.tag.store(generation.wrapping_add(2), Ordering::Release);
    }

    /// The distance to the first block of the slab.
    ///
    /// # Safety
    /// The caller holds a cell of the slab that is not free, or the class's lock.
    pub(super) unsafe fn back(&self) -> u32 {
        // SAFETY: written before the slab had cells (see the module's header).
        unsafe { *self.back.get() }
    }

    /// # Safety
    /// The caller has just taken the block and nobody knows of it yet.
    pub(super) unsafe fn set_back(&self, back: u32) {
        // SAFETY: the caller's promise.
        unsafe { *self.back.get() = back }
    }

    /// The state of the slab that starts here.
    ///
    /// # Safety
    /// The caller holds the lock of the slab's class, or has just taken the block, and holds no other reference to
    /// the state.
    #[expect(clippy::mut_from_ref, reason = "the class's lock makes it exclusive")]
    pub(super) unsafe fn state(&self) -> &mut Slab {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.state.get() }
    }
}

impl Slab {
    /// How many blocks it has.
    pub(super) fn blocks(&self) -> u32 {
        self.blocks & !LENT
    }

    /// True if it is charged by the page.
    pub(super) fn is_lent(&self) -> bool {
        self.blocks & LENT != 0
    }

    /// A slab without any cell cut. `lent`: it is charged by the page.
    pub(super) fn fresh(class: u8, shape: &Shape, lent: bool) -> Self {
        Self {
            next: 0,
            prev: 0,
            free: 0,
            blocks: u32::from(shape.blocks) | if lent { LENT } else { 0 },
            available: shape.cells,
            cut: 0,
            walkers: 0,
            class,
            list: 0,
        }
    }

    /// A span.
    pub(super) fn span(blocks: u32) -> Self {
        Self {
            next: 0,
            prev: 0,
            free: 0,
            blocks,
            available: 0,
            cut: 0,
            walkers: 0,
            class: super::size::SPAN,
            list: 0,
        }
    }
}

const LISTS: usize = 4;

/// The slabs of one class that have free cells.
#[derive(Default)]
pub(super) struct Lists {
    heads: [u32; LISTS],
}

/// The metadata of all blocks: an array at the start of the range.
#[derive(Clone, Copy)]
pub(super) struct Blocks(pub(super) *const Block);

impl Blocks {
    /// The metadata of a block.
    ///
    /// # Safety
    /// The block lies inside the range, which lives for as long as the result is used.
    #[inline]
    pub(super) unsafe fn get<'a>(self, block: u32) -> &'a Block {
        // SAFETY: in bounds by the caller's promise; zeroed memory is a valid `Block`.
        unsafe { &*self.0.add(block as usize) }
    }
}

impl Lists {
    /// Some slab that has free cells, of the fullest kind.
    pub(super) fn fullest(&self) -> Option<u32> {
        self.heads.iter().copied().find(|head| *head != 0)
    }

    /// Puts a slab into the list where it belongs by now.
    ///
    /// # Safety
    /// The caller holds the lock of this class, to which the slab belongs, and no reference to the state of any slab.
    pub(super) unsafe fn place(&mut self, blocks: Blocks, slab: u32, shape: &Shape) {
        // SAFETY: under the lock of the class.
        let (list, available, evacuating) = unsafe {
            let block = blocks.get(slab);
            let state = block.state();
            (state.list, usize::from(state.available), block.is_evacuating())
        };
        let wanted = if available == 0 || evacuating {
            0
        } else {
            (available * LISTS / usize::from(shape.cells)).min(LISTS - 1) as u8 + 1
        };
        if list == wanted {
            return;
        }
        // SAFETY: as above.
        unsafe { self.remove(blocks, slab) };
        if wanted != 0 {
            let head = std::mem::replace(&mut self.heads[usize::from(wanted) - 1], slab);
            if head != 0 {
                // SAFETY: as above; slabs in this list belong to the class.
                unsafe { blocks.get(head).state() }.prev = slab;
            }
            // SAFETY: as above.
            let state = unsafe { blocks.get(slab).state() };
            (state.list, state.prev, state.next) = (wanted, 0, head);
        }
    }

    /// Takes a slab out of the lists, if it is in one.
    ///
    /// # Safety
    /// As [`place`](Self::place).
    pub(super) unsafe fn remove(&mut self, blocks: Blocks, slab: u32) {
        // SAFETY: under the lock of the class.
        let (list, prev, next) = unsafe {
            let state = blocks.get(slab).state();
            let was = (state.list, state.prev, state.next);
            (state.list, state.prev, state.next) = (0, 0, 0);
            was
        };
        if list == 0 {
            return;
        }
        if prev == 0 {
            self.heads[usize::from(list) - 1] = next;
        } else {
            // SAFETY: under the lock; neighbours belong to the class.
            unsafe { blocks.get(prev).state() }.next = next;
        }
        if next != 0 {
            // SAFETY: as above.
            unsafe { blocks.get(next).state() }.prev = prev;
        }
    }

    /// All slabs in the lists, the fullest kind first.
    ///
    /// # Safety
    /// As [`place`](Self::place).
    pub(super) unsafe fn listed(&self, blocks: Blocks) -> Vec<u32> {
        let mut slabs = Vec::new();
        for head in self.heads {
            let mut slab = head;
            while slab != 0 {
                slabs.push(slab);
                // SAFETY: under the lock; slabs in the lists belong to the class.
                slab = unsafe { blocks.get(slab).state() }.next;
            }
        }
        slabs
    }
}

/// Units of 8 bytes from the start of the range to the start of a block.
pub(super) const fn block_units(block: u32) -> u64 {
    block as u64 * (BLOCK_BYTES as u64 / 8)
}

/// The block that a place lies in.
pub(super) const fn block_of(units: u64) -> u32 {
    (units / (BLOCK_BYTES as u64 / 8)) as u32
}
