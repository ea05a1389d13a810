//! The table of sides: an address tells its part, a part its side and generation.
//!
//! Pinned parts are gathered in front and paged ones at the end, since the kernel keeps a mapping for each stretch of parts that
//! are alike, and grants 65,530 of them. One change happens at a time (its lock is the owner's); looking takes no lock.

use std::ptr::NonNull;

use thermocline_base::sync::{AtomicU32, AtomicU64, Ordering};
use thermocline_base::vm::{Reservation, paging};

use crate::error::RegionError;
use crate::{PART_BYTES, PART_PAGES};

/// The use of a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Of no use: touching it is a mistake.
    Free,
    /// Ordinary memory, of huge pages, locked as far as the process may.
    Pinned,
    /// Pages that come and go.
    Paged,
    /// Paged before, and dropped: waits for its last readers.
    Going,
}

/// A part in one of its uses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Part {
    /// Its number, counted from the begin of the region.
    pub number: u32,
    /// Which of its uses.
    pub generation: u32,
}

/// A word a part: generation, whether it is locked, side.
#[derive(Debug)]
pub(crate) struct Sides(Box<[AtomicU64]>);

/// A part's word, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) side: Side,
    pub(crate) locked: bool,
    pub(crate) generation: u32,
}

impl Entry {
    fn word(self) -> u64 {
        let side = match self.side {
            Side::Free => 0,
            Side::Pinned => 1,
            Side::Paged => 2,
            Side::Going => 3,
        };
        u64::from(self.generation) << 3 | u64::from(self.locked) << 2 | side
    }

    fn of(word: u64) -> Self {
        let side = [Side::Free, Side::Pinned, Side::Paged, Side::Going][word as usize & 3];
        Self { side, locked: word & 4 != 0, generation: (word >> 3) as u32 }
    }
}

impl Sides {
    pub(crate) fn new(parts: usize) -> Self {
        Self((0..parts).map(|_| AtomicU64::new(0)).collect())
    }

    pub(crate) fn parts(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&self, part: usize) -> Entry {
        Entry::of(self.0[part].load(Ordering::Acquire))
    }

    pub(crate) fn set(&self, part: usize, entry: Entry) {
        self.0[part].store(entry.word(), Ordering::Release);
    }

    /// The entry of a part, if it is on that side in this generation.
    pub(crate) fn check(&self, part: Part, side: Side) -> Result<Entry, RegionError> {
        let entry = self.get(part.number as usize);
        if entry.side == side && entry.generation == part.generation {
            return Ok(entry);
        }
        Err(RegionError::WrongSide { part, side: entry.side })
    }

    /// Takes so many pages of a paged part by its cursor, and counts a write. `None`: it has no room for them.
    pub(crate) fn reserve(
        &self,
        cursor: &AtomicU32,
        part: Part,
        count: usize,
    ) -> Result<Option<usize>, RegionError> {
        loop {
            let now = cursor.load(Ordering::SeqCst);
            let first = now as usize & 0xFFFF;
            if first + count > PART_PAGES {
                self.check(part, Side::Paged)?;
                return Ok(None);
            }
            let next = now + count as u32 + (1 << 16);
            if cursor.compare_exchange(now, next, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                return Ok(Some(first));
            }
        }
    }

    /// The free part where one of this side belongs.
    pub(crate) fn free_for(&self, side: Side) -> Option<usize> {
        let free = |part: &usize| self.get(*part).side == Side::Free;
        match side {
            Side::Pinned => (0..self.parts()).find(free),
            _ => (0..self.parts()).rev().find(free),
        }
    }

    pub(crate) fn count(&self, side: Side) -> usize {
        (0..self.parts()).filter(|part| self.get(*part).side == side).count()
    }

    /// Number of parts that are locked.
    pub(crate) fn locked(&self) -> usize {
        (0..self.parts()).filter(|part| self.get(*part).locked).count()
    }
}

/// The memory of changes of sides, under the lock that makes them one at a time.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    told_unlocked: bool,
}

impl Changes {
    /// Makes a free part, of anonymous memory, one that stays: of huge pages, locked as it is touched as far as the process may.
    pub(crate) fn pin(&mut self, reservation: &Reservation, part: usize, entry: &mut Entry) {
        reservation.advise_huge(part * PART_BYTES, PART_BYTES, true);
        if entry.locked {
            return;
        }
        // SAFETY: a free part of ours.
        match unsafe { paging::lock_on_fault(at(reservation, part), PART_BYTES) } {
            Ok(()) => entry.locked = true,
            Err(error) if !std::mem::replace(&mut self.told_unlocked, true) => {
                tracing::warn!(%error, "pinned memory is not locked: raise RLIMIT_MEMLOCK to keep the system from paging it");
            }
            Err(_) => {}
        }
    }

    /// Makes a free part one of small pages that are not locked.
    pub(crate) fn unpin(&mut self, reservation: &Reservation, part: usize, entry: &mut Entry) {
        if entry.locked {
            // SAFETY: a free part of ours.
            entry.locked = unsafe { paging::unlock(at(reservation, part), PART_BYTES) }.is_err();
        }
        reservation.advise_huge(part * PART_BYTES, PART_BYTES, false);
    }

    /// Gives the memory of a pinned part back, which its owner has given up.
    pub(crate) fn give_back(&self, reservation: &Reservation, part: usize) {
        // SAFETY: the part is its owner's alone, and the owner gives it back.
        if !unsafe { reservation.decommit_locked(part * PART_BYTES, PART_BYTES) } {
            // SAFETY: as above.
            unsafe {
                let _ = paging::unlock(at(reservation, part), PART_BYTES);
                reservation.decommit(part * PART_BYTES, PART_BYTES);
            }
        }
    }
}

fn at(reservation: &Reservation, part: usize) -> NonNull<u8> {
    assert!(part < reservation.bytes() / PART_BYTES, "a part of the region");
    // SAFETY: inside of the reservation (asserted).
    unsafe { reservation.base().add(part * PART_BYTES) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back() {
        for side in [Side::Free, Side::Pinned, Side::Paged, Side::Going] {
            for locked in [false, true] {
                let entry = Entry { side, locked, generation: u32::MAX };
                assert_eq!(Entry::of(entry.word()), entry);
            }
        }
    }

    #[test]
    fn sides_are_gathered_at_the_ends() {
        let sides = Sides::new(4);
        let entry = |side| Entry { side, locked: false, generation: 1 };
        assert_eq!((sides.free_for(Side::Pinned), sides.free_for(Side::Paged)), (Some(0), Some(3)));
        sides.set(0, entry(Side::Pinned));
        sides.set(3, entry(Side::Paged));
        assert_eq!((sides.free_for(Side::Pinned), sides.free_for(Side::Paged)), (Some(1), Some(2)));
        sides.set(1, entry(Side::Going));
        sides.set(2, entry(Side::Paged));
        assert_eq!((sides.free_for(Side::Pinned), sides.free_for(Side::Paged)), (None, None));
        assert_eq!(sides.count(Side::Paged), 2);
    }
}
