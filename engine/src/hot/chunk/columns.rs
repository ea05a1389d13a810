//! Which rows of a chunk stand in its block, for scans that read blocks by column.
//!
//! A scan looks once at each slot, and that look decides for it: a slot that says *frozen* is read in the block, whatever becomes of
//! it meanwhile, and any other slot that leads to a row is read by itself afterwards. So no row is shown twice or missed:
//!
//! | time | scan, snapshot 70 | others | slot |
//! |---|---|---|---|
//! | 1 | looks: frozen, block 7 | | frozen, 7 |
//! | 2 | | thaw the row and change it, commit at 80 | version, 80 over 50 |
//! | 3 | reads the row in block 7, which its pin keeps: as of 50 | | |
//! | 4 | passes over the slot: it was decided | | |

use thermocline_base::epoch::Guard;
use thermocline_base::sync::Ordering;
use thermocline_frozen::{Bits, GROUP_ROWS};

use super::pieces::{PIECE_SLOTS, Piece, Pieces};
use super::{Chunk, Found, PIECES, Slot};

/// Positions that a look takes in: those of a group of a block.
pub(crate) const LOOK_SLOTS: u32 = GROUP_ROWS as u32;

/// What the slots of a group say.
#[derive(Debug)]
pub(crate) struct Look {
    /// The block that rows are in.
    pub(crate) block: u64,
    /// Rows that are in it.
    pub(crate) frozen: Bits,
    /// Slots that lead to rows in any other way.
    pub(crate) others: Bits,
}

impl Look {
    fn set(bits: &mut Bits, at: usize, count: usize) {
        for place in at..at + count {
            bits[place / 64] |= 1 << (place % 64);
        }
    }

    fn note(&mut self, found: &Found, at: usize, count: usize) {
        match found {
            Found::Empty => {}
            Found::Frozen(number) if *number == self.block => Self::set(&mut self.frozen, at, count),
            Found::Frozen(_) | Found::Left(_) | Found::Newest(_) | Found::Moved => {
                Self::set(&mut self.others, at, count);
            }
        }
    }
}

impl Chunk {
    /// What the slots from `first` on say, which is the first of a group. `None`: the chunk has no block in memory.
    pub(crate) fn look_at_group(&self, first: u32, guard: &Guard<'_>) -> Option<Look> {
        let slots = self.slots.load(Ordering::Acquire);
        let newest = self.blocks(guard).next().filter(|block| block.run().is_none())?;
        if slots.addr() & PIECES == 0 {
            return None;
        }
        // SAFETY: the tag says that a table of pieces stands there, which the pin keeps.
        let pieces = unsafe { Pieces::at(slots) };
        let mut look = Look { block: newest.number(), frozen: [0; 16], others: [0; 16] };
        let (first, end) = (first as usize, (first + LOOK_SLOTS).min(self.capacity()) as usize);
        for piece in first / PIECE_SLOTS..(end / PIECE_SLOTS).min(pieces.len()) {
            let at = piece * PIECE_SLOTS - first;
            match pieces.piece(piece) {
                Piece::Empty => {}
                Piece::Frozen(number) => look.note(&Found::Frozen(number), at, PIECE_SLOTS),
                Piece::Left(number) => look.note(&Found::Left(number), at, PIECE_SLOTS),
                Piece::Slots(words) => {
                    for (i, word) in words.iter().enumerate() {
                        look.note(&Slot(word).load(), at + i, 1);
                    }
                }
            }
        }
        Some(look)
    }
}
