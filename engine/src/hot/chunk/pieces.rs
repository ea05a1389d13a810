//! The slots of a chunk that has been frozen, in pieces.
//!
//! ```text
//!   chunk ──► ┌─────┬───────┬─────────┬─────────┬─ … ─┐      a piece: 64 slots
//!             │ len │ dense │ piece 0 │ piece 1 │     │      ┌──────┬──────┬─ … ─┐
//!             └─────┴───────┴────┬────┴────┬────┴─────┘      │ slot │ slot │     │
//!                                │         └────────────────►└──────┴──────┴─────┘
//!                                └ bit 60: all 64 rows are frozen, in the block with the number in bits 0-47
//!                                  bit 59: all 64 rows have left with that block
//!                                  0: none of the slots leads to a row
//! ```
//!
//! Rules:
//! - *A piece's word changes* from frozen to an address by whoever thaws the first of its rows, from frozen to left by who
//!   lets the chunk leave (and back, or to nothing), and in any other way by who freezes, one thread at a time. It never changes back to a word that it had: blocks' numbers are given once.
//! - *Moved.* Before a piece is replaced by another one, or by one word, each of its words that can still change says
//!   *moved* (`PackMarksMoved`): versions and frozen rows. Empty slots of a full chunk stay empty.
//! - *The dense array goes as a whole.* The first pieces lie in the array that the chunk had before; it is retired through
//!   the epochs when none does any more. It is never given back in parts under a reader.
//!
//! A reader that has the dense array in hand meets the same words as one that comes through the table.

use std::ptr::{NonNull, null_mut};

use thermocline_base::sync::{AtomicPtr, AtomicU64, Ordering};

use super::{ADDRESS, FROZEN, LEFT, PIECES, Place, Slot};
use crate::hot::budget::OutOfMemory;
use crate::hot::memory::Memory;

/// Slots of a piece.
#[cfg(not(feature = "model"))]
pub(super) const PIECE_SLOTS: usize = 64;
#[cfg(feature = "model")]
pub(super) const PIECE_SLOTS: usize = 4;
const PIECE_BYTES: usize = PIECE_SLOTS * 8;

/// The table of a chunk's pieces; their words follow.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Pieces {
    len: usize,
    /// The array that some pieces may still lie in, or null.
    dense: AtomicPtr<u8>,
}

/// What a piece's word says.
pub(super) enum Piece<'g> {
    Empty,
    Frozen(u64),
    Left(u64),
    Slots(&'g [AtomicU64]),
}

impl Pieces {
    const fn bytes(len: usize) -> usize {
        size_of::<Self>() + len * 8
    }

    /// A table whose pieces lie in a dense array of so many slots, as a chunk points to it.
    ///
    /// # Errors
    /// There is no room for it.
    pub(super) fn over(dense: *mut u8, slots: usize, memory: &Memory) -> Result<*mut u8, OutOfMemory> {
        let len = slots / PIECE_SLOTS;
        let table = memory.alloc_reserve(Self::bytes(len))?.cast::<Self>();
        // SAFETY: the allocation is ours and has room for the header and `len` words.
        unsafe {
            table.write(Self { len, dense: AtomicPtr::new(dense) });
            let words = table.add(1).cast::<AtomicU64>();
            for piece in 0..len {
                let first = dense.add(piece * PIECE_BYTES).expose_provenance() as u64;
                words.add(piece).write(AtomicU64::new(first));
            }
        }
        Ok(table.as_ptr().cast::<u8>().map_addr(|address| address | PIECES))
    }

    /// The table that a chunk points to.
    ///
    /// # Safety
    /// The pointer has the tag of tables, and the table is kept by the caller's pin, or is the caller's.
    pub(super) unsafe fn at<'g>(tagged: *mut u8) -> &'g Self {
        // SAFETY: as the caller says.
        unsafe { &*tagged.map_addr(|address| address & !PIECES).cast::<Self>() }
    }

    /// How many pieces there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The word of a piece.
    #[inline]
    pub(super) fn word(&self, piece: usize) -> &AtomicU64 {
        debug_assert!(piece < self.len);
        // SAFETY: `len` words follow the header, and callers keep the table.
        unsafe { &*std::ptr::from_ref(self).add(1).cast::<AtomicU64>().add(piece) }
    }

    fn decode<'g>(word: u64) -> Piece<'g> {
        if word & FROZEN != 0 {
            Piece::Frozen(word & ADDRESS)
        } else if word & LEFT != 0 {
            Piece::Left(word & ADDRESS)
        } else if word == 0 {
            Piece::Empty
        } else {
            let first = std::ptr::with_exposed_provenance::<AtomicU64>(word as usize);
            // SAFETY: such a word is the address of a piece's slots, which the caller's pin keeps.
            Piece::Slots(unsafe { std::slice::from_raw_parts(first, PIECE_SLOTS) })
        }
    }

    /// What a piece is now. Under a pin.
    pub(super) fn piece(&self, piece: usize) -> Piece<'_> {
        Self::decode(self.word(piece).load(Ordering::Acquire))
    }

    /// Where a slot is. Under a pin.
    #[inline]
    pub(super) fn place(&self, slot: u16) -> Place<'_> {
        match self.piece(usize::from(slot) / PIECE_SLOTS) {
            Piece::Empty => Place::Nowhere,
            Piece::Frozen(number) => Place::Frozen(number),
            Piece::Left(number) => Place::Left(number),
            Piece::Slots(slots) => Place::Slot(Slot(&slots[usize::from(slot) % PIECE_SLOTS])),
        }
    }

    /// Gives a piece that is frozen as a whole, in this block, slots of its own, each of which says so.
    ///
    /// # Errors
    /// There is no room for them.
    pub(super) fn open(
        &self,
        slot: u16,
        number: u64,
        reserve: bool,
        memory: &Memory,
    ) -> Result<(), OutOfMemory> {
        let cell = make_slots(&[FROZEN | number; PIECE_SLOTS], reserve, memory)?;
        let address = cell.as_ptr().expose_provenance() as u64;
        let word = self.word(usize::from(slot) / PIECE_SLOTS);
        if word.compare_exchange(FROZEN | number, address, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            // SAFETY: nobody else has seen the cell.
            unsafe { memory.free(cell, PIECE_BYTES) };
        }
        Ok(())
    }

    /// Does this piece lie in the dense array?
    pub(super) fn is_in_dense(&self, piece: usize) -> bool {
        let dense = self.dense.load(Ordering::Relaxed);
        let own = dense.wrapping_add(piece * PIECE_BYTES).addr() as u64;
        !dense.is_null() && self.word(piece).load(Ordering::Relaxed) == own
    }

    /// The dense array, if no piece lies in it any more: the caller's to retire.
    pub(super) fn take_dense(&self) -> Option<NonNull<u8>> {
        if (0..self.len).any(|piece| self.is_in_dense(piece)) {
            return None;
        }
        NonNull::new(self.dense.swap(null_mut(), Ordering::Relaxed))
    }

    /// Retires the slots of a piece that has been replaced.
    pub(super) fn retire_slots(slots: &[AtomicU64], memory: &Memory) {
        // SAFETY: the piece is a cell of its own, was unlinked by the caller, and is retired once.
        unsafe { memory.retire(NonNull::from(slots).cast(), PIECE_BYTES) };
    }

    /// Retires the table and all that it leads to.
    ///
    /// # Safety
    /// The table was unlinked, nobody changes it, and it is retired once.
    pub(super) unsafe fn retire(&self, memory: &Memory) {
        for piece in 0..self.len {
            if let Piece::Slots(slots) = self.piece(piece)
                && !self.is_in_dense(piece)
            {
                Self::retire_slots(slots, memory);
            }
        }
        if let Some(dense) = NonNull::new(self.dense.load(Ordering::Relaxed)) {
            // SAFETY: the array was reachable through the table only.
            unsafe { memory.retire(dense, self.len * PIECE_BYTES) };
        }
        // SAFETY: the caller's to retire.
        unsafe { memory.retire(NonNull::from(self).cast(), Self::bytes(self.len)) };
    }
}

/// Slots in memory of their own.
///
/// # Errors
/// There is no room for them.
pub(super) fn make_slots(
    words: &[u64; PIECE_SLOTS],
    reserve: bool,
    memory: &Memory,
) -> Result<NonNull<u8>, OutOfMemory> {
    let cell = if reserve { memory.alloc_reserve(PIECE_BYTES) } else { memory.alloc(PIECE_BYTES) }?;
    let slots = cell.cast::<AtomicU64>();
    for (index, &word) in words.iter().enumerate() {
        // SAFETY: the cell has so many words and is ours.
        unsafe { slots.add(index).write(AtomicU64::new(word)) };
    }
    Ok(cell)
}

/// Gives slots back that nobody has seen.
pub(super) fn discard_slots(cell: NonNull<u8>, memory: &Memory) {
    // SAFETY: as said.
    unsafe { memory.free(cell, PIECE_BYTES) };
}
