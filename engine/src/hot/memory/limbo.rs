//! Cells that were retired and wait for the readers that may still look at them.
//!
//! They wait outside of themselves, as their contents must stay as they are: in batches of [`BATCH`] places, 8 bytes
//! each. A batch gets one stamp, when it is full or when somebody collects. The stamp is later than each unlinking in
//! it, whichever thread of the shard unlinked, since the shard's latch orders them; a later stamp only waits longer.

use std::collections::VecDeque;

use thermocline_base::epoch::Epochs;

/// Retirements that share a stamp, and after which the retiring thread looks what has become reusable.
pub(super) const BATCH: usize = if cfg!(feature = "model") { 2 } else { 64 };

/// A cell's place and its class, packed.
#[derive(Clone, Copy)]
pub(super) struct Place(u64);

impl Place {
    pub(super) const fn new(units: u64, class: u8) -> Self {
        Self(units << 8 | class as u64)
    }

    pub(super) const fn units(self) -> u64 {
        self.0 >> 8
    }

    pub(super) const fn class(self) -> u8 {
        self.0 as u8
    }
}

pub(super) struct Batch {
    stamp: u64,
    pub(super) places: Vec<Place>,
}

#[derive(Default)]
pub(super) struct Limbo {
    open: Vec<Place>,
    sealed: VecDeque<Batch>,
    /// An empty batch to use again.
    spare: Vec<Place>,
}

impl Limbo {
    /// Adds a cell. True: the batch is full, [`seal`](Self::seal) it.
    #[inline]
    pub(super) fn push(&mut self, place: Place) -> bool {
        self.open.push(place);
        self.open.len() >= BATCH
    }

    /// Stamps what was pushed since the last time.
    pub(super) fn seal(&mut self, epochs: &Epochs) {
        if self.open.is_empty() {
            return;
        }
        let mut next = std::mem::take(&mut self.spare);
        if next.capacity() == 0 {
            next.reserve_exact(BATCH);
        }
        let places = std::mem::replace(&mut self.open, next);
        self.sealed.push_back(Batch { stamp: epochs.stamp(), places });
    }

    /// The oldest batch, if its stamp lies below `safe`.
    pub(super) fn pop_due(&mut self, safe: u64) -> Option<Batch> {
        self.sealed.pop_front_if(|batch| batch.stamp < safe)
    }

    /// Takes an emptied batch back.
    pub(super) fn recycle(&mut self, mut batch: Batch) {
        batch.places.clear();
        self.spare = batch.places;
    }
}
