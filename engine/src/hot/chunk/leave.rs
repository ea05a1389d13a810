//! Rows that leave memory with their chunk: what happens to the slots.
//!
//! A row leaves by one compare-and-swap of its word from *frozen* to *left*, or of the one word of 64 rows that are all
//! frozen. So of a writer that thaws and a mover one wins, whatever piece of the slots it is:
//!
//! | time | mover | writer | slot |
//! |---|---|---|---|
//! | 1 | sets the block's mark | | frozen, 7 |
//! | 2 | | thaws the row: a version stands where *frozen, 7* stood | version |
//! | 3 | finds a version: the row stays, and its record ends | | version |
//! | 4 | swaps the word of another row | | left, 7 |
//! | 5 | | wants to thaw that row, finds *left*: it meets the mark | left, 7 |
//!
//! Rules:
//! - *The mark stands around*: it is there before the first word says *left*, and it goes when no word does any more. Who finds
//!   *left* and no mark has looked in between: the row stays after all.
//! - *Left is for ever* once the mark begins: nobody changes such a word but who clears it, when no snapshot is older than the
//!   mark. So neither its row nor the entries that lead to it need a latch.
//! - A block stays while a word names it, frozen or left.

use thermocline_base::epoch::Guard;
use thermocline_base::sync::{AtomicU64, Backoff, Ordering};

use super::pieces::{PIECE_SLOTS, Piece, Pieces};
use super::{Chunk, FROZEN, Found, LEFT, MOVED, PIECES};
use crate::hot::block::Block;
use crate::hot::memory::Memory;
use crate::hot::version::Version;

/// Which slots of a chunk; a bit each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct SlotSet {
    words: Vec<u64>,
}

impl SlotSet {
    /// Adds a slot.
    pub(crate) fn insert(&mut self, slot: u16) {
        let word = usize::from(slot) / 64;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (slot % 64);
    }

    /// Takes a slot out.
    pub(crate) fn remove(&mut self, slot: u16) {
        if let Some(word) = self.words.get_mut(usize::from(slot) / 64) {
            *word &= !(1 << (slot % 64));
        }
    }

    /// Is this slot in it?
    pub(crate) fn contains(&self, slot: u16) -> bool {
        self.words.get(usize::from(slot) / 64).is_some_and(|word| word >> (slot % 64) & 1 != 0)
    }

    /// How many are in it.
    pub(crate) fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The slots in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u16> {
        self.words.iter().zip(0..).flat_map(|(&word, at): (_, u32)| {
            let next = |rest: &u64| Some(rest & (rest - 1)).filter(|rest| *rest != 0);
            let rests = std::iter::successors(Some(word).filter(|word| *word != 0), next);
            rests.map(move |rest| (at * 64 + rest.trailing_zeros()) as u16)
        })
    }

    /// The bits of a piece.
    fn piece(&self, piece: usize) -> u64 {
        let first = piece * PIECE_SLOTS;
        let word = self.words.get(first / 64).copied().unwrap_or_default();
        word >> (first % 64) & ALL
    }

    fn add_piece(&mut self, piece: usize, bits: u64) {
        let first = piece * PIECE_SLOTS;
        if bits != 0 {
            self.words.resize(self.words.len().max(first / 64 + 1), 0);
            self.words[first / 64] |= bits << (first % 64);
        }
    }

    /// As bytes: 0 and runs (how many u16, then the first and the last slot of each u16), or 1 and a bit a slot, whichever is
    /// shorter. Little-endian.
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        let mut runs: Vec<(u16, u16)> = Vec::new();
        for slot in self.iter() {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == slot => *last = slot,
                _ => runs.push((slot, slot)),
            }
        }
        if runs.len() * 4 + 2 <= self.words.len() * 8 {
            bytes.push(0);
            bytes.extend_from_slice(&(runs.len() as u16).to_le_bytes());
            for (first, last) in runs {
                bytes.extend_from_slice(&first.to_le_bytes());
                bytes.extend_from_slice(&last.to_le_bytes());
            }
        } else {
            bytes.push(1);
            self.words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        }
    }

    /// The set again. `None`: the bytes are none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut set = Self::default();
        let (&kind, rest) = bytes.split_first()?;
        match kind {
            0 => {
                let (count, runs) = rest.split_first_chunk::<2>()?;
                if runs.len() != usize::from(u16::from_le_bytes(*count)) * 4 {
                    return None;
                }
                for run in runs.chunks_exact(4) {
                    let (first, last) =
                        (u16::from_le_bytes([run[0], run[1]]), u16::from_le_bytes([run[2], run[3]]));
                    (first..=last).for_each(|slot| set.insert(slot));
                }
            }
            1 if rest.len().is_multiple_of(8) && rest.len() <= (1 << 16) / 8 => {
                let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
                set.words = rest.chunks_exact(8).map(word).collect();
            }
            _ => return None,
        }
        Some(set)
    }

    /// Bytes that the encoding of a part of it takes, at most.
    pub(crate) fn bytes_max(&self) -> usize {
        3 + self.words.len() * 8
    }
}

/// All slots of a piece.
const ALL: u64 = if PIECE_SLOTS == 64 { u64::MAX } else { (1 << PIECE_SLOTS) - 1 };

/// What swapping words of a piece has come to.
#[derive(Debug)]
enum Swap {
    Done(u64),
    /// The piece is another one by now.
    Again(u64),
}

impl Chunk {
    /// Its pieces, if its slots stand in pieces.
    fn pieces<'g>(&self, _guard: &'g Guard<'_>) -> Option<&'g Pieces> {
        let slots = self.slots.load(Ordering::Acquire);
        // SAFETY: the tag says that a table of pieces stands there, which the pin keeps.
        (slots.addr() & PIECES != 0).then(|| unsafe { Pieces::at(slots) })
    }

    /// Lets those of the wanted slots say *left* that say that their row stands in this block: which did. The block has its
    /// mark.
    pub(crate) fn leave(&self, block: &Block, wanted: &SlotSet, guard: &Guard<'_>) -> SlotSet {
        let mut left = SlotSet::default();
        self.swap_slots(wanted, (FROZEN | block.number(), LEFT | block.number()), guard, &mut left);
        block.note_left(left.len() as u32);
        left
    }

    /// Takes that back. `slots`: those that did.
    pub(crate) fn come_back(&self, block: &Block, slots: &SlotSet, guard: &Guard<'_>) {
        let mut back = SlotSet::default();
        self.swap_slots(slots, (LEFT | block.number(), FROZEN | block.number()), guard, &mut back);
        assert_eq!(back.len(), slots.len(), "nobody else changes a word that says left");
        block.note_back(back.len() as u32);
    }

    /// Empties those of these slots that say *left*, of a block whose mark nobody is older than: how many. One at a time.
    pub(crate) fn let_go(&self, block: &Block, slots: &SlotSet, guard: &Guard<'_>) -> usize {
        let mut gone = SlotSet::default();
        self.swap_slots(slots, (LEFT | block.number(), 0), guard, &mut gone);
        let rows = gone.len();
        self.emptied.fetch_add(rows as u32, Ordering::Relaxed);
        block.let_go(rows as u32);
        rows
    }

    fn swap_slots(&self, wanted: &SlotSet, change: (u64, u64), guard: &Guard<'_>, done: &mut SlotSet) {
        let Some(pieces) = self.pieces(guard) else { return };
        for piece in 0..pieces.len() {
            let wanted = wanted.piece(piece);
            let (mut swapped, mut backoff) = (0, Backoff::new());
            while wanted & !swapped != 0 {
                match swap_piece(pieces, piece, wanted & !swapped, change) {
                    Swap::Done(more) => {
                        swapped |= more;
                        break;
                    }
                    Swap::Again(more) => swapped |= more,
                }
                backoff.wait();
            }
            done.add_piece(piece, swapped);
        }
    }

    /// Empties slots, whatever stands there (recovery): versions go to `discard`. Nobody else changes the chunk meanwhile.
    pub(crate) fn clear(
        &self,
        slots: &SlotSet,
        guard: &Guard<'_>,
        memory: &Memory,
        mut discard: impl FnMut(Version),
    ) {
        for slot in slots.iter().filter(|slot| u32::from(*slot) < self.capacity) {
            self.note_used(u32::from(slot));
            if let Some(pieces) = self.pieces(guard) {
                let piece = usize::from(slot) / PIECE_SLOTS;
                if let Piece::Frozen(number) = pieces.piece(piece) {
                    if slots.piece(piece) == ALL {
                        pieces.word(piece).store(0, Ordering::Release);
                        let block = self.block(number, guard).expect("a block that slots name is there");
                        (0..PIECE_SLOTS).for_each(|_| block.leave());
                        continue;
                    }
                    let opened = pieces.open(slot, number, true, memory);
                    opened.expect("an opening has no limit");
                }
            }
            let Some(place) = self.slot(slot, guard) else { continue };
            let word: &AtomicU64 = place.0;
            match place.load() {
                Found::Empty => {}
                Found::Newest(version) => {
                    word.store(0, Ordering::Release);
                    discard(version);
                    self.note_emptied();
                }
                Found::Frozen(number) => {
                    word.store(0, Ordering::Release);
                    self.block(number, guard).expect("a block that slots name is there").leave();
                    self.note_emptied();
                }
                Found::Left(_) | Found::Moved => unreachable!("nothing moves while a database is opened"),
            }
        }
    }
}

/// Swaps words of a piece, each if it says what it should: those bits that were.
fn swap_piece(pieces: &Pieces, piece: usize, wanted: u64, (from, to): (u64, u64)) -> Swap {
    let whole = pieces.word(piece);
    let word = whole.load(Ordering::Acquire);
    // Sequentially consistent: who has said what he builds on looks at these words next.
    if word == from {
        if wanted == ALL {
            return match whole.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => Swap::Done(ALL),
                Err(_) => Swap::Again(0),
            };
        }
        return Swap::Done(0);
    }
    let Piece::Slots(slots) = pieces.piece(piece) else {
        // It may have become a whole one this moment.
        return if whole.load(Ordering::Acquire) == from { Swap::Again(0) } else { Swap::Done(0) };
    };
    let mut swapped = 0;
    for (slot, bit) in slots.iter().zip(0..).filter(|(_, bit): &(_, u32)| wanted >> bit & 1 != 0) {
        match slot.compare_exchange(from, to, Ordering::SeqCst, Ordering::Acquire) {
            Ok(_) => swapped |= 1 << bit,
            Err(found) if found & MOVED != 0 => return Swap::Again(swapped),
            Err(_) => {}
        }
    }
    Swap::Done(swapped)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sets_of_slots_come_back(slots in proptest::collection::btree_set(any::<u16>(), 0..300), first: u16, len in 0_u16..2000) {
            let mut set = SlotSet::default();
            let all: std::collections::BTreeSet<u16> =
                slots.into_iter().chain((0..len).map(|at| first.wrapping_add(at))).collect();
            all.iter().for_each(|slot| set.insert(*slot));
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), all.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(set.len(), all.len());
            let mut bytes = Vec::new();
            set.encode(&mut bytes);
            prop_assert!(bytes.len() <= set.bytes_max());
            let back = SlotSet::decode(&bytes).expect("our own bytes");
            prop_assert!(back.iter().eq(set.iter()));
            for cut in 0..bytes.len() {
                if let Some(other) = SlotSet::decode(&bytes[..cut]) {
                    prop_assert!(bytes[0] == 1 && other.len() <= set.len());
                }
            }
        }

        #[test]
        fn any_bytes_are_a_set_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = SlotSet::decode(&bytes);
        }
    }
}
