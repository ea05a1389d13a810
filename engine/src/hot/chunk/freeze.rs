//! Freezing a chunk and thawing its rows: what happens to the slots.
//!
//! Freezing lets slots name a block instead of a version; thawing is the way back, for one row. Both are one
//! compare-and-swap of a word, so of a writer that thaws and a freezer, or of two writers, one wins:
//!
//! | time | freezer | writer | slot |
//! |---|---|---|---|
//! | 1 | has copied the version of 50 into block 7 | | version, 50 |
//! | 2 | | updates the row, commits at 60, the pruner frees the version of 50 | version, 60 |
//! | 3 | meets 60, where it has copied 50: leaves the slot alone | | version, 60 |
//! | 4 | swaps the word of another row: frozen, block 7 | | frozen, 7 |
//! | 5 | | thaws that row: an ordinary version with its begin, swapped in where *frozen, 7* stands | version, 50 |
//!
//! What the freezer has copied is told from what it meets by the begin: a row has one version for each, whose bytes never
//! change. A chain of more than one version does not freeze.
//!
//! A piece whose 64 rows are frozen becomes one word ([`super::pieces`]).

use thermocline_base::epoch::{Epochs, Guard};
use thermocline_base::ids::Timestamp;
use thermocline_base::sync::{AtomicU64, Backoff, Ordering};

use super::pieces::{PIECE_SLOTS, Piece, Pieces, discard_slots, make_slots};
use super::{ADDRESS, Chunk, FROZEN, Found, LATCH, MOVED, PACKED, PIECES, Place, Slot};
use crate::hot::block::Block;
use crate::hot::budget::OutOfMemory;
use crate::hot::memory::Memory;
use crate::hot::version::{Begin, Version};
use crate::mutation::{self, Rule};

/// What freezing a chunk needs.
pub(crate) struct Freezer<'a> {
    pub(crate) slots: &'a Memory,
    pub(crate) epochs: &'a Epochs,
    /// Slots below this one cannot be filled any more.
    pub(crate) filled: u32,
    /// Positions at which the block has a row.
    pub(crate) has: &'a dyn Fn(u16) -> bool,
    /// Is called with every version whose row stands in the block from now on.
    pub(crate) retire: &'a mut dyn FnMut(Version),
}

/// May this version freeze? It is committed, a row, and all that there is of it.
pub(crate) fn settled(version: Version) -> Option<Timestamp> {
    let Begin::At(begin) = version.begin() else { return None };
    (version.link() == 0 && !version.is_tombstone()).then_some(begin)
}

impl Chunk {
    /// Has it a block?
    pub(crate) fn has_block(&self) -> bool {
        !self.block.load(Ordering::Acquire).is_null()
    }

    /// Its blocks, the newest first.
    pub(crate) fn blocks<'g>(&'g self, _guard: &'g Guard<'_>) -> impl Iterator<Item = &'g Block> {
        // SAFETY: blocks go through the epochs, and the caller is pinned.
        let follow = |next: *mut Block| unsafe { next.as_ref() };
        std::iter::successors(follow(self.block.load(Ordering::Acquire)), move |block| {
            follow(block.older.load(Ordering::Acquire))
        })
    }

    /// Lets the slots name `block` where they lead to what was copied into it. One freezer or packer at a time. Pieces with slots that may
    /// be filled still stay as they are: whoever has taken such a slot writes into it without looking whether the piece is another one
    /// by then. How many rows are in the block now.
    ///
    /// # Errors
    /// There is no room for the slots that stay. Rows that are in the block by then are frozen; the rest stays as it is.
    pub(crate) fn freeze(&self, block: Box<Block>, freezer: &mut Freezer<'_>) -> Result<u32, OutOfMemory> {
        let slots = self.slots.load(Ordering::Acquire);
        assert!(slots.addr() & PACKED == 0, "a packed chunk does not freeze");
        let slots = if slots.addr() & PIECES == 0 {
            let table = Pieces::over(slots, self.capacity as usize, freezer.slots)?;
            self.slots.store(table, Ordering::Release);
            table
        } else {
            slots
        };
        block.older.store(self.block.load(Ordering::Relaxed), Ordering::Relaxed);
        let block = Box::into_raw(block);
        self.block.store(block, Ordering::Release);
        // SAFETY: blocks and tables of pieces go only under the lock that freezers hold.
        let (block, pieces) = unsafe { (&*block, Pieces::at(slots)) };
        let mut outcome = Ok(());
        let count = (freezer.filled as usize / PIECE_SLOTS).min(pieces.len());
        for piece in 0..count {
            let guard = freezer.epochs.pin();
            if piece + 1 < count {
                approach_piece(pieces, piece + 1, &guard);
            }
            self.freeze_piece(pieces, piece, block, freezer, &guard);
            if outcome.is_ok() {
                outcome = collapse(pieces, piece, block.number(), freezer.slots);
            }
        }
        if let Some(dense) = pieces.take_dense() {
            // SAFETY: no piece lies in the array any more, and it is retired once.
            unsafe { freezer.slots.retire(dense, self.capacity as usize * 8) };
        }
        outcome.map(|()| block.live())
    }

    /// Links a block, and lets those slots name it that have a bit (recovery). Nobody else changes the chunk meanwhile.
    ///
    /// # Errors
    /// There is no room for slots of pieces.
    pub(crate) fn restore(
        &self,
        block: Box<Block>,
        slots: &[u64],
        memory: &Memory,
        guard: &Guard<'_>,
    ) -> Result<(), OutOfMemory> {
        for position in (0..self.capacity).filter_map(|slot| u16::try_from(slot).ok()) {
            let (word, bit) = (usize::from(position) / 64, position % 64);
            if slots.get(word).is_some_and(|word| word >> bit & 1 != 0) {
                let slot = self.slot(position, guard).expect("a fresh chunk has all of its slots");
                slot.0.store(FROZEN | block.number(), Ordering::Release);
                block.enter();
                self.note_used(u32::from(position));
            }
        }
        let number = block.number();
        self.block.store(Box::into_raw(block), Ordering::Release);
        let dense = self.slots.load(Ordering::Acquire);
        let table = Pieces::over(dense, self.capacity as usize, memory)?;
        self.slots.store(table, Ordering::Release);
        // SAFETY: just made, and nobody else changes the chunk.
        let pieces = unsafe { Pieces::at(table) };
        (0..pieces.len()).try_for_each(|piece| collapse(pieces, piece, number, memory))?;
        if let Some(dense) = pieces.take_dense() {
            // SAFETY: no piece lies in the array any more, and it is retired once.
            unsafe { memory.retire(dense, self.capacity as usize * 8) };
        }
        Ok(())
    }

    fn freeze_piece(
        &self,
        pieces: &Pieces,
        piece: usize,
        block: &Block,
        freezer: &mut Freezer<'_>,
        guard: &Guard<'_>,
    ) {
        let first = piece * PIECE_SLOTS;
        let positions = || (first..first + PIECE_SLOTS).map(|slot| slot as u16);
        if let Piece::Frozen(number) = pieces.piece(piece)
            && positions()
                .all(|position| (freezer.has)(position) && self.is_copy(number, position, block, guard))
        {
            positions().for_each(|_| block.enter());
            let word = pieces.word(piece);
            let (old, new) = (FROZEN | number, FROZEN | block.number());
            let taken_over = word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).is_ok();
            let left = if taken_over { self.block(number, guard) } else { Some(block) };
            let left = left.expect("a block that slots name is there");
            positions().for_each(|_| left.leave());
            if taken_over {
                return;
            }
        }
        let Piece::Slots(slots) = pieces.piece(piece) else { return };
        for (position, slot) in positions().zip(slots) {
            if (freezer.has)(position) {
                self.freeze_slot(slot, position, block, freezer, guard);
            }
        }
    }

    /// Has `block`, which has a row at the position, the one that stands in another block?
    fn is_copy(&self, number: u64, position: u16, block: &Block, guard: &Guard<'_>) -> bool {
        number != block.number()
            && self
                .block(number, guard)
                .is_some_and(|old| old.begin(position, guard) == block.begin(position, guard))
    }

    fn freeze_slot(
        &self,
        slot: &AtomicU64,
        position: u16,
        block: &Block,
        freezer: &mut Freezer<'_>,
        guard: &Guard<'_>,
    ) {
        let copied = block.begin(position, guard);
        let mut backoff = Backoff::new();
        loop {
            let word = slot.load(Ordering::Acquire);
            if word & LATCH != 0 {
                backoff.wait();
                continue;
            }
            let found = Slot::decode(word);
            let same = match found {
                Found::Newest(version) => settled(version) == Some(copied),
                Found::Frozen(number) => self.is_copy(number, position, block, guard),
                Found::Empty | Found::Moved | Found::Left(_) => false,
            };
            if !same {
                return;
            }
            block.enter();
            let frozen = FROZEN | block.number();
            if slot.compare_exchange(word, frozen, Ordering::AcqRel, Ordering::Acquire).is_err() {
                block.leave();
                continue;
            }
            match found {
                Found::Newest(version) => (freezer.retire)(version),
                Found::Frozen(number) => {
                    self.block(number, guard).expect("a block that slots name is there").leave();
                }
                Found::Empty | Found::Moved | Found::Left(_) => {}
            }
            return;
        }
    }

    /// Puts an ordinary version where a row of this block stands. `false`: it does not stand there any more.
    ///
    /// # Errors
    /// There is no room for slots of a piece that was frozen as a whole.
    pub(crate) fn thaw(
        &self,
        slot: u16,
        number: u64,
        version: Version,
        (memory, reserve): (&Memory, bool),
        guard: &Guard<'_>,
    ) -> Result<bool, OutOfMemory> {
        let mut backoff = Backoff::new();
        loop {
            let word = match self.place(slot, guard) {
                Place::Nowhere | Place::Left(_) => return Ok(false),
                Place::Slot(slot) => slot.0,
                Place::Frozen(found) if found != number && mutation::on(Rule::BlocksAreNotMistaken) => {
                    return Ok(false);
                }
                Place::Frozen(number) => {
                    let slots = self.slots.load(Ordering::Acquire);
                    // SAFETY: only a table of pieces has pieces that are frozen; it becomes nothing else while it has.
                    unsafe { Pieces::at(slots) }.open(slot, number, reserve, memory)?;
                    continue;
                }
            };
            let found = word.load(Ordering::Acquire);
            if found & MOVED != 0 {
                backoff.wait();
                continue;
            }
            let mistaken = found & FROZEN != 0 && mutation::off(Rule::BlocksAreNotMistaken);
            if found != FROZEN | number && !mistaken {
                return Ok(false);
            }
            // Sequentially consistent: who has entered a lock on the row looks at this word next.
            if word.compare_exchange(found, version.address(), Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                self.block(found & ADDRESS, guard).expect("a block that slots name is there").leave();
                return Ok(true);
            }
        }
    }

    /// Takes out the blocks that no slot names any more. Under the lock that freezers hold.
    pub(crate) fn drop_dead_blocks(&self, epochs: &Epochs, _guard: &Guard<'_>) {
        let mut link = &self.block;
        loop {
            let place = link.load(Ordering::Acquire);
            // SAFETY: blocks go through the epochs, and the caller is pinned.
            let Some(block) = (unsafe { place.as_ref() }) else { return };
            if block.live() != 0 {
                link = &block.older;
                continue;
            }
            link.store(block.older.load(Ordering::Acquire), Ordering::Release);
            let block = Unlinked(place);
            epochs.defer(move || block.free());
        }
    }
}

/// A block that can be reached by those only who were looking at it already.
struct Unlinked(*mut Block);

// SAFETY: the block is the owner's alone once it is freed, on whatever thread.
unsafe impl Send for Unlinked {}

impl Unlinked {
    fn free(self) {
        // SAFETY: freezing put a box there; it was unlinked, and the epochs have passed.
        let block = unsafe { Box::from_raw(self.0) };
        // Its link leads on for readers that were looking at it; the chunk has it.
        block.older.store(std::ptr::null_mut(), Ordering::Relaxed);
    }
}

/// Asks the processor for the versions of a piece: freezing it is nothing but cache misses otherwise.
fn approach_piece(pieces: &Pieces, piece: usize, _guard: &Guard<'_>) {
    let Piece::Slots(slots) = pieces.piece(piece) else { return };
    for word in slots.iter().map(|slot| slot.load(Ordering::Acquire)) {
        if !cfg!(feature = "model")
            && word & LATCH == 0
            && let Found::Newest(version) = Slot::decode(word)
        {
            version.prefetch();
        }
    }
}

/// Makes a piece one word if all of it is frozen in this block, and takes it out of the dense array if it lies there.
fn collapse(pieces: &Pieces, piece: usize, number: u64, memory: &Memory) -> Result<(), OutOfMemory> {
    let Piece::Slots(slots) = pieces.piece(piece) else { return Ok(()) };
    let frozen = FROZEN | number;
    let in_dense = pieces.is_in_dense(piece);
    let is_frozen = || slots.iter().all(|slot| slot.load(Ordering::Acquire) == frozen);
    let all = is_frozen();
    if !all && !in_dense {
        return Ok(());
    }
    // Before anything says *moved*.
    let fresh = if all { None } else { Some(make_slots(&[0; PIECE_SLOTS], true, memory)?) };
    let mut words = [0; PIECE_SLOTS];
    for (word, slot) in words.iter_mut().zip(slots) {
        *word = mark_moved(slot);
    }
    let all = words.iter().all(|&word| word == frozen);
    let none = words.iter().all(|&word| word == 0);
    let replacement = match fresh {
        _ if all => frozen,
        _ if none => 0,
        Some(cell) => {
            let fresh = cell.cast::<AtomicU64>();
            for (index, &word) in words.iter().enumerate() {
                // SAFETY: the cell has so many words, and nobody else has seen it.
                unsafe { fresh.add(index).write(AtomicU64::new(word)) };
            }
            cell.as_ptr().expose_provenance() as u64
        }
        None => {
            // A row was thawed between the two looks.
            for (&word, slot) in words.iter().zip(slots) {
                if word != 0 {
                    slot.store(word, Ordering::Release);
                }
            }
            return Ok(());
        }
    };
    pieces.word(piece).store(replacement, Ordering::Release);
    if let Some(cell) = fresh.filter(|_| all || none) {
        discard_slots(cell, memory);
    }
    if !in_dense {
        Pieces::retire_slots(slots, memory);
    }
    Ok(())
}

/// Leaves *moved* in a slot that can still change; what stood there.
fn mark_moved(slot: &AtomicU64) -> u64 {
    let mut backoff = Backoff::new();
    loop {
        let word = slot.load(Ordering::Acquire);
        if word == 0 || word & FROZEN != 0 && mutation::off(Rule::FrozenMarksMoved) {
            return word;
        }
        if word & LATCH == 0
            && slot.compare_exchange(word, MOVED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            return word;
        }
        backoff.wait();
    }
}
