//! The memory that a statement keeps: one counter, charged to the database's memory limit.
//!
//! Whatever keeps rows or values tells a [`Kept`], which gives back what it was told when it is dropped. The counter takes memory from
//! the limit ahead, a piece at a time; the first [`FREE`] bytes are free of that, so that short statements ask for nothing.
//!
//! Rows are kept while the engine is pinned, when nothing can be waited for. If there is no room at once, up to [`AHEAD`] bytes are
//! taken all the same, and the next pause ([`Context::pause`](crate::expr::Context::pause), which is due at once then) waits until rows
//! have left memory for them. What is more, or cannot be had then, is refused (53200).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use thermocline_engine::{Database, Reservation, SpillFile};

use crate::error::{Error, Result};
use crate::types::{Datum, Numeric};

/// Bytes that are kept without asking.
const FREE: u64 = 16 << 10;
/// Bytes that are asked for at once, at least and at the most.
const PIECE: (u64, u64) = (64 << 10, 1 << 20);
/// Bytes that may be kept before there is room for them.
const AHEAD: u64 = 512 << 10;
/// Largest value where nothing is charged: while a constant is computed.
const LARGEST: u64 = 64 << 20;

/// Bytes that an operator of a statement may keep in memory, and in files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) operator: u64,
    pub(crate) files: Option<u64>,
}

/// An operator's share of the memory limit where `work_mem` is not set, and its bounds in bytes.
const OPERATOR: (u64, u64, u64) = (32, 1 << 20, 256 << 20);

impl Default for Grant {
    /// All that the memory limit leaves.
    fn default() -> Self {
        Self { operator: u64::MAX, files: None }
    }
}

impl Grant {
    /// The grant of a statement under a memory limit, where there is one; `work_mem` and `temp_file_limit` if they are set.
    pub(crate) fn new(limit: Option<u64>, work_mem: Option<u64>, files: Option<u64>) -> Self {
        let (share, least, most) = OPERATOR;
        let operator =
            work_mem.unwrap_or_else(|| limit.map_or(most, |limit| (limit / share).clamp(least, most)));
        Self { operator, files }
    }
}

/// Memory that an answer keeps: it goes back when this is dropped.
#[derive(Debug)]
pub struct Held(#[expect(dead_code, reason = "it is kept for its end")] Reservation);

/// What a statement keeps.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// None: nothing is charged.
    reservation: RefCell<Option<Reservation>>,
    kept: Cell<u64>,
    charged: Cell<u64>,
    short: Cell<bool>,
    /// Bytes in files.
    pub(crate) files: Rc<Cell<u64>>,
}

/// A reservation between two statements of a session: threads would meet at the counts of a new one's references.
#[derive(Debug, Default)]
pub(crate) struct Spare(RefCell<Option<Reservation>>);

impl Spare {
    /// The memory of a statement.
    pub(crate) fn take(&self, db: &Database) -> Memory {
        let reservation = self.0.take().unwrap_or_else(|| db.reservation());
        Memory { reservation: RefCell::new(Some(reservation)), ..Memory::default() }
    }

    /// What an answer keeps when its statement has ended.
    pub(crate) fn leave(&self, memory: Memory) -> Option<Held> {
        if memory.charged.get() > 0 {
            return memory.into_held();
        }
        self.0.replace(memory.reservation.into_inner());
        None
    }
}

impl Memory {
    /// Memory of an owner that no statement has.
    pub(crate) fn new(db: &Database) -> Self {
        Self { reservation: RefCell::new(Some(db.reservation())), ..Self::default() }
    }

    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        self.short.get()
    }

    /// Keeps so many bytes more.
    #[inline]
    pub(crate) fn keep(&self, bytes: u64) -> Result<()> {
        let kept = self.kept.get() + bytes;
        self.kept.set(kept);
        if kept <= self.charged.get() + FREE { Ok(()) } else { self.charge(kept, bytes) }
    }

    #[cold]
    fn charge(&self, kept: u64, bytes: u64) -> Result<()> {
        let mut reservation = self.reservation.borrow_mut();
        let Some(reservation) = &mut *reservation else { return Ok(()) };
        let missing = kept - self.charged.get();
        let piece = missing.max((kept / 8).clamp(PIECE.0, PIECE.1));
        let added = reservation.add(piece).or_else(|_| reservation.add(missing));
        self.charged.set(reservation.bytes());
        if let Err(error) = added {
            if missing > AHEAD {
                self.kept.set(kept - bytes);
                return Err(error.into());
            }
            self.short.set(true);
        }
        Ok(())
    }

    /// Gives bytes back.
    pub(crate) fn give_back(&self, bytes: u64) {
        let kept = self.kept.get().saturating_sub(bytes);
        self.kept.set(kept);
        let spare = self.charged.get().saturating_sub(kept);
        if spare > 2 * PIECE.1
            && let Some(reservation) = &mut *self.reservation.borrow_mut()
        {
            reservation.give_back(spare - PIECE.1);
            self.charged.set(reservation.bytes());
        }
    }

    /// Gives back what was charged ahead: it keeps nothing more for now.
    pub(crate) fn trim(&self) {
        if let Some(reservation) = &mut *self.reservation.borrow_mut() {
            reservation.give_back(self.charged.get().saturating_sub(self.kept.get()));
            self.charged.set(reservation.bytes());
        }
    }

    /// Waits for room for what was taken ahead of it.
    pub(crate) async fn settle(&self) -> Result<()> {
        if !self.short.replace(false) {
            return Ok(());
        }
        let Some(mut reservation) = self.reservation.take() else { return Ok(()) };
        let missing = self.kept.get().saturating_sub(self.charged.get());
        let added = reservation.add_waiting(missing).await;
        self.charged.set(reservation.bytes());
        self.reservation.replace(Some(reservation));
        Ok(added?)
    }

    /// Is there room for a value of so many bytes? Nothing is kept.
    pub(crate) fn has_room_for(&self, bytes: u64) -> Result<()> {
        if bytes <= FREE {
            return Ok(());
        }
        match &mut *self.reservation.borrow_mut() {
            Some(reservation) => {
                reservation.add(bytes)?;
                reservation.give_back(bytes);
                Ok(())
            }
            None if bytes > LARGEST => Err(Error::new("54000", "requested length too large")),
            None => Ok(()),
        }
    }

    /// The memory limit of the database.
    pub(crate) fn limit(&self) -> Option<u64> {
        self.reservation.borrow().as_ref().and_then(Reservation::memory_limit)
    }

    /// A file for what memory does not hold. None: the database has no directory, or nothing is charged.
    pub(crate) fn spill_file(&self) -> Result<Option<SpillFile>> {
        match &*self.reservation.borrow() {
            Some(reservation) => Ok(reservation.spill_file()?),
            None => Ok(None),
        }
    }

    /// Nothing so far, to be told of what is kept.
    pub(crate) fn kept(&self) -> Kept<'_> {
        Kept { memory: self, bytes: 0 }
    }

    fn into_held(self) -> Option<Held> {
        let kept = self.kept.get();
        let mut reservation = self.reservation.into_inner()?;
        let spare = reservation.bytes().saturating_sub(kept);
        reservation.give_back(spare);
        (reservation.bytes() > 0).then_some(Held(reservation))
    }
}

/// Bytes that something keeps.
#[derive(Debug)]
pub(crate) struct Kept<'m> {
    memory: &'m Memory,
    bytes: u64,
}

impl Kept<'_> {
    /// So many bytes more.
    #[inline]
    pub(crate) fn add(&mut self, bytes: usize) -> Result<()> {
        self.memory.keep(bytes as u64)?;
        self.bytes += bytes as u64;
        Ok(())
    }

    /// One row more.
    #[inline]
    pub(crate) fn row(&mut self, row: &[Datum]) -> Result<()> {
        self.add(size_of_row(row))
    }

    /// So many bytes less.
    pub(crate) fn remove(&mut self, bytes: usize) {
        let bytes = (bytes as u64).min(self.bytes);
        self.memory.give_back(bytes);
        self.bytes -= bytes;
    }

    /// Returns the bytes that it keeps.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Leaves its bytes to another owner, which gives them back ([`Memory::give_back`]), and returns their number.
    pub(crate) fn pass_on(&mut self) -> usize {
        std::mem::take(&mut self.bytes) as usize
    }

    /// Keeps them until the statement has ended, and behind that with its answer.
    pub(crate) fn leave(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.memory.give_back(self.bytes);
    }
}

/// What the allocator takes for a piece, beside what was asked for.
const PIECE_BYTES: usize = 16;

/// Bytes of a row, with what its values point to.
#[inline]
pub(crate) fn size_of_row(row: &[Datum]) -> usize {
    let inside: usize = row.iter().map(size_behind).sum();
    size_of::<Vec<Datum>>() + size_of_val(row) + PIECE_BYTES + inside
}

fn size_of_all(values: &[Datum]) -> usize {
    let inside: usize = values.iter().map(size_behind).sum();
    size_of_val(values) + 2 * PIECE_BYTES + inside
}

/// Bytes that a value points to.
#[inline]
pub(crate) fn size_behind(value: &Datum) -> usize {
    match value {
        Datum::Text(text) | Datum::Char(text) | Datum::Jsonb(text) => text.len() + 2 * PIECE_BYTES,
        Datum::Bytes(bytes) => bytes.len() + 2 * PIECE_BYTES,
        Datum::Numeric(Numeric::Big(big)) => 64 + big.0.bits() as usize / 8,
        Datum::Record(row) => size_of_all(row) + 2 * PIECE_BYTES,
        Datum::Array(values) => size_of_all(values),
        _ => 0,
    }
}
