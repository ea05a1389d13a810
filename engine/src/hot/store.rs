//! The hot store of one table: version memory, slot memory, chunks, and the cursors that hand out fresh slots.
//!
//! Rules:
//! - A slot is taken and filled under one epoch pin, so that maintenance can tell when a full chunk has no slot left
//!   that somebody is about to fill (see [`crate::hot::chunk`]).
//! - Latch order: insert cursor → growth lock. Slot latches are taken after both, or without them.
//!
//! Each of [`CURSORS`] cursors takes slots in runs, so that inserting threads share no line for every row.

use std::ptr::NonNull;
use std::sync::Arc;

use thermocline_base::epoch::{Epochs, Guard};
use thermocline_base::ids::{RowId, Timestamp};
use thermocline_base::sync::{AtomicU32, AtomicU64, CachePadded, Mutex, Ordering, thread_index};

use crate::hot::block::Block;
use crate::hot::budget::{Budget, MemoryKind, OutOfMemory};
use crate::hot::chunk::freeze::Freezer;
use crate::hot::chunk::leave::SlotSet;
use crate::hot::chunk::{Chunk, Directory, Found, Latched};
use crate::hot::damage::Damage;
use crate::hot::memory::Memory;
use crate::hot::version::{Begin, Version};
use crate::mutation::{self, Rule};

const CURSORS: usize = 16;
const RUN: u32 = 64;

#[derive(Debug, Default, Clone, Copy)]
struct Cursor {
    chunk: u32,
    next: u32,
    end: u32,
}

/// The hot rows of one table.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) memory: Memory,
    pub(crate) slots: Memory,
    pub(crate) directory: Directory,
    /// Rows that could not be read at the opening.
    pub(crate) damage: Damage,
    /// The chunk that cursors take runs from.
    filling: AtomicU32,
    growth: Mutex<()>,
    /// Held by who freezes chunks of the table.
    pub(crate) freezing: Mutex<()>,
    /// Rows that were frozen, and thawed, so far.
    pub(crate) frozen_rows: AtomicU64,
    pub(crate) thawed_rows: AtomicU64,
    cursors: [CachePadded<Mutex<Cursor>>; CURSORS],
}

/// This row is on the paged side and cannot be read there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowAbsent(pub(crate) RowId);

/// Why a row does not thaw.
#[derive(Clone, Debug)]
pub(crate) enum ThawError {
    OutOfMemory(OutOfMemory),
    Absent(RowAbsent),
}

impl From<OutOfMemory> for ThawError {
    fn from(error: OutOfMemory) -> Self {
        Self::OutOfMemory(error)
    }
}

impl From<RowAbsent> for ThawError {
    fn from(error: RowAbsent) -> Self {
        Self::Absent(error)
    }
}

impl Store {
    /// An empty store whose memories may span `reserve_bytes` each; `is_memo`: of the update memo.
    ///
    /// # Errors
    /// The system has no address space left.
    pub(crate) fn new(
        reserve_bytes: usize,
        is_memo: bool,
        budget: &Arc<Budget>,
        epochs: &Arc<Epochs>,
    ) -> Result<Self, OutOfMemory> {
        let kind = |kind| if is_memo { MemoryKind::Memo } else { kind };
        Ok(Self {
            memory: Memory::new(
                kind(MemoryKind::Versions),
                reserve_bytes,
                Arc::clone(budget),
                Arc::clone(epochs),
            )?,
            slots: Memory::new(
                kind(MemoryKind::Slots),
                (reserve_bytes / 4).max(64 << 20),
                Arc::clone(budget),
                Arc::clone(epochs),
            )?,
            directory: Directory::default(),
            damage: Damage::default(),
            filling: AtomicU32::new(0),
            growth: Mutex::new(()),
            freezing: Mutex::new(()),
            frozen_rows: AtomicU64::new(0),
            thawed_rows: AtomicU64::new(0),
            cursors: Default::default(),
        })
    }

    /// Takes a fresh slot. Fill it under the same pin.
    ///
    /// # Errors
    /// No memory for another chunk.
    pub(crate) fn take_slot(&self, guard: &Guard<'_>) -> Result<RowId, OutOfMemory> {
        let mut cursor = self.cursors[thread_index() % CURSORS].lock();
        if cursor.next == cursor.end {
            *cursor = self.take_run(guard)?;
        }
        let slot = u16::try_from(cursor.next).expect("slot numbers have 16 bits");
        cursor.next += 1;
        Ok(RowId::new(cursor.chunk, slot))
    }

    #[cold]
    fn take_run(&self, guard: &Guard<'_>) -> Result<Cursor, OutOfMemory> {
        loop {
            let chunk = self.filling.load(Ordering::Acquire);
            if let Some((first, count)) = self.directory.get(chunk, guard).and_then(|chunk| {
                chunk.take(RUN.min((crate::hot::chunk::chunk_capacity(chunk.number()) / 8) as u32))
            }) {
                return Ok(Cursor { chunk, next: first, end: first + count });
            }
            let _growth = self.growth.lock();
            if self.filling.load(Ordering::Acquire) == chunk {
                let next = self.directory.len().max(chunk);
                self.directory.make(next, &self.slots)?;
                self.filling.store(next, Ordering::Release);
            }
        }
    }

    /// Does some cursor hold slots of this chunk, or is it the one that runs are taken from?
    pub(crate) fn may_be_filled(&self, chunk: u32) -> bool {
        self.filling.load(Ordering::Acquire) == chunk || self.has_open_run(chunk)
    }

    /// Takes all slots of a chunk that are left, so that nobody inserts there any more. They stay empty.
    pub(crate) fn close(&self, chunk: u32, guard: &Guard<'_>) {
        if let Some(chunk) = self.directory.get(chunk, guard) {
            chunk.close();
        }
        for cursor in &self.cursors {
            let mut cursor = cursor.lock();
            if cursor.chunk == chunk {
                *cursor = Cursor::default();
            }
        }
    }

    /// Does some cursor hold slots of this chunk?
    pub(crate) fn has_open_run(&self, chunk: u32) -> bool {
        self.cursors.iter().any(|cursor| {
            let cursor = cursor.lock();
            cursor.chunk == chunk && cursor.next != cursor.end
        })
    }

    /// Slots of this chunk below this one have been taken, and no cursor holds any of them: once every pin of now has gone they are filled
    /// or stay empty.
    pub(crate) fn taken(&self, chunk: u32, guard: &Guard<'_>) -> u32 {
        let used = self.directory.get(chunk, guard).map_or(0, Chunk::used);
        // In this order: a run that is taken later begins at `used` or behind it.
        let open = self.cursors.iter().filter_map(|cursor| {
            let cursor = cursor.lock();
            (cursor.chunk == chunk && cursor.next != cursor.end).then_some(cursor.next)
        });
        open.fold(used, u32::min)
    }

    /// Lets the next insert start a new chunk behind all that exist (recovery).
    pub(crate) fn seal_all(&self, guard: &Guard<'_>) {
        for number in 0..self.directory.len() {
            if let Some(chunk) = self.directory.get(number, guard) {
                chunk.seal(guard);
            }
        }
    }

    /// Writes a version into fresh version memory.
    ///
    /// # Errors
    /// The memory limit is reached.
    #[inline]
    pub(crate) fn create(
        &self,
        begin: Begin,
        older: Option<Version>,
        row_id: RowId,
        tombstone: bool,
        row: &[u8],
        suffix: &[u8],
    ) -> Result<Version, OutOfMemory> {
        let bytes = Version::bytes(row.len() + suffix.len());
        // A tombstone frees memory sooner or later, so the limit does not hold it up.
        let cell = if tombstone { self.memory.alloc_reserve(bytes)? } else { self.memory.alloc(bytes)? };
        let older = older.map_or(0, |older| older.as_link(&self.memory));
        // SAFETY: the cell is fresh and large enough.
        Ok(unsafe { Version::create(cell, begin, older, row_id, tombstone, row, suffix) })
    }

    /// Frees a version that nobody else has seen.
    pub(crate) fn discard(&self, version: Version) {
        let bytes = version.cell_bytes();
        // SAFETY: the version was never linked, so the caller owns its cell.
        unsafe { self.memory.free(version.cell(), bytes) };
    }

    /// Frees a version that was unlinked, once nobody can be looking at it.
    pub(crate) fn retire(&self, version: Version) {
        let bytes = version.cell_bytes();
        // SAFETY: the version was unlinked by the caller, who retires it once.
        unsafe { self.memory.retire(version.cell(), bytes) };
    }

    /// Lets the slots of a chunk name this block. How many rows are in it now. Under the maintenance lock.
    ///
    /// # Errors
    /// As [`crate::hot::chunk::Chunk::freeze`].
    pub(crate) fn freeze(&self, chunk: u32, block: Box<Block>, epochs: &Epochs) -> Result<u32, OutOfMemory> {
        let place = std::ptr::from_ref(block.rows());
        // SAFETY: the chunk has the block from now on, and lets it go only under the maintenance lock, which the caller holds.
        let has = |position: u16| unsafe { &*place }.is_present(position);
        let (chunk, rows) = self.freeze_into((chunk, u32::MAX), block, &has, epochs);
        if let Some(chunk) = chunk {
            // Its next image names the block.
            chunk.mark_dirty();
        }
        rows
    }

    /// Lets the slots of a chunk below `filled` name this block on the paged side, which has rows where `has` says. How many rows are in it now.
    /// Images stay as they are: they know nothing of where rows are. Under the maintenance lock.
    ///
    /// # Errors
    /// As [`crate::hot::chunk::Chunk::freeze`].
    pub(crate) fn page(
        &self,
        (chunk, filled): (u32, u32),
        block: Box<Block>,
        has: &dyn Fn(u16) -> bool,
        epochs: &Epochs,
    ) -> Result<u32, OutOfMemory> {
        self.freeze_into((chunk, filled), block, has, epochs).1
    }

    fn freeze_into(
        &self,
        (chunk, filled): (u32, u32),
        block: Box<Block>,
        has: &dyn Fn(u16) -> bool,
        epochs: &Epochs,
    ) -> (Option<&Chunk>, Result<u32, OutOfMemory>) {
        let chunk = {
            let guard = epochs.pin();
            let Some(chunk) = self.directory.get(chunk, &guard) else { return (None, Ok(0)) };
            std::ptr::from_ref(chunk)
        };
        // SAFETY: chunks go only under the maintenance lock, which the caller holds. So no pin has to last for all of it.
        let chunk = unsafe { &*chunk };
        let mut retire = |version| {
            self.frozen_rows.fetch_add(1, Ordering::Relaxed);
            self.retire(version);
        };
        let mut freezer = Freezer { slots: &self.slots, epochs, filled, has, retire: &mut retire };
        (Some(chunk), chunk.freeze(block, &mut freezer))
    }

    /// Lets those slots of a chunk name this block that have a bit (recovery). Nobody else changes the chunk meanwhile.
    ///
    /// # Errors
    /// There is no room for slots of pieces.
    pub(crate) fn restore_block(
        &self,
        chunk: u32,
        block: Box<Block>,
        slots: &[u64],
        guard: &Guard<'_>,
    ) -> Result<(), OutOfMemory> {
        let chunk = self.directory.get(chunk, guard).expect("the chunk was made for its image");
        chunk.restore(block, slots, &self.slots, guard)
    }

    /// Makes an ordinary version of a frozen row, in its slot; what makes memory free may use the `reserve`.
    ///
    /// # Errors
    /// The memory limit is reached; the row is on the paged side and cannot be read.
    pub(crate) fn thaw(&self, row: RowId, reserve: bool, guard: &Guard<'_>) -> Result<(), ThawError> {
        if !matches!(self.directory.look(row, guard), Found::Frozen(_)) {
            return Ok(());
        }
        let _frame = guard.frame();
        let newest = self.directory.newest_now(row, guard)?;
        if let Some(image) = newest.filter(|newest| newest.is_image() && !newest.is_tombstone()) {
            self.thaw_image(image, reserve, guard)?;
        }
        // Else another writer has thawed it, or more.
        Ok(())
    }

    /// Empties the slot of a row that is frozen, without looking at the row (recovery, which alone changes the chunk).
    pub(crate) fn forget_frozen(&self, row_id: RowId, guard: &Guard<'_>) {
        if let Found::Frozen(_) = self.directory.look(row_id, guard)
            && let Some(chunk) = self.directory.get(row_id.chunk(), guard)
        {
            let mut slot = SlotSet::default();
            slot.insert(row_id.slot());
            chunk.clear(&slot, guard, &self.slots, |version| self.discard(version));
        }
    }

    /// As [`Store::thaw`], for a row whose image is in hand: the version that stands in its slot now. `None`: something else does; look at
    /// the row again.
    ///
    /// # Errors
    /// The memory limit is reached.
    pub(crate) fn thaw_image(
        &self,
        image: Version,
        reserve: bool,
        guard: &Guard<'_>,
    ) -> Result<Option<Version>, OutOfMemory> {
        let row = image.row_id();
        let number = image.image_of().expect("only images are thawed");
        let Some(chunk) = self.directory.get(row.chunk(), guard) else { return Ok(None) };
        let bytes = image.cell_bytes();
        let cell = if reserve { self.memory.alloc_reserve(bytes) } else { self.memory.alloc(bytes) }?;
        let lost = mutation::off(Rule::ThawKeepsBegin);
        let begin = if lost { Begin::At(Timestamp(1)) } else { image.begin() };
        // SAFETY: the cell is fresh and large enough.
        let version = unsafe { Version::create(cell, begin, 0, row, false, image.row(), &[]) };
        let thawed = chunk.thaw(row.slot(), number, version, (&self.slots, reserve), guard);
        if let Ok(true) = thawed {
            self.thawed_rows.fetch_add(1, Ordering::Relaxed);
            return Ok(Some(version));
        }
        self.discard(version);
        thawed.map(|_| None)
    }

    /// Calls `see` with every row and its newest version.
    ///
    /// # Errors
    /// Those of `see`.
    pub(crate) fn for_each_row<E: From<RowAbsent>>(
        &self,
        guard: &Guard<'_>,
        mut see: impl FnMut(RowId, Version) -> Result<(), E>,
    ) -> Result<(), E> {
        for number in 0..self.directory.len() {
            let Some(chunk) = self.directory.get(number, guard) else { continue };
            for slot in chunk.occupied(guard) {
                let row = RowId::new(number, slot);
                let _frame = guard.frame();
                if let Some(newest) = self.directory.newest_now(row, guard)? {
                    see(row, newest)?;
                }
            }
        }
        Ok(())
    }

    /// Moves the version in `cell` to other memory, if it is still part of a chain and committed. `false`: it stays
    /// where it is, or is on its way out already.
    ///
    /// # Errors
    /// No memory for the copy.
    pub(crate) fn relocate(&self, cell: NonNull<u8>, guard: &Guard<'_>) -> Result<bool, OutOfMemory> {
        // SAFETY: the cell is one of this memory's, mapped while its block is being evacuated; all header fields are
        // atomics, and nothing read here is trusted before the chain is found to contain the cell.
        let suspect = unsafe { Version::from_cell(cell) };
        let Some(mut latched) = self.directory.latch(suspect.row_id(), guard) else { return Ok(false) };
        let mut newer: Option<Version> = None;
        let mut current = latched.newest();
        while let Some(version) = current {
            if version.cell() == cell {
                return self.move_version(&mut latched, newer, version);
            }
            newer = Some(version);
            current = version.older(&self.memory);
        }
        Ok(false)
    }

    fn move_version(
        &self,
        latched: &mut Latched<'_>,
        newer: Option<Version>,
        version: Version,
    ) -> Result<bool, OutOfMemory> {
        // The writer of an uncommitted version knows it by its address.
        let Begin::At(_) = version.begin() else { return Ok(false) };
        if newer.is_some_and(|newer| matches!(newer.begin(), Begin::By(_))) {
            // … and so it knows the version that it replaced, for undoing.
            return Ok(false);
        }
        let copy = self.memory.alloc_reserve(version.cell_bytes())?;
        // SAFETY: the copy's cell is fresh and has the same size; the row bytes are immutable, and the header changes
        // only under the latch that we hold (`begin` of a committed version never does).
        let copy = unsafe { version.copy_to(copy) };
        match newer {
            Some(newer) => newer.set_link(copy.as_link(&self.memory)),
            None => latched.set(Some(copy)),
        }
        self.retire(version);
        Ok(true)
    }
}
