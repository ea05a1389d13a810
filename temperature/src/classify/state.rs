//! The rows of one partition as far as they are known, and how a block changes that.
//!
//! The state that an entry touches is 16 bytes; names and sizes stand apart. A section's numbers lead to rows through
//! `ids`, so a name is looked up once a section, not once an entry.

use thermocline_base::ids::TableId;

use super::Ranked;
use crate::log::format::{Mark, u64_at, varint};
use crate::{RowName, SizeClass};

/// Below this an estimate counts as none.
pub(super) const FLOOR: f64 = f64::from_bits((1023 - 500) << 52);
/// Weights grow to at most so many octaves before the sums are scaled back.
const OCTAVES_MAX: f64 = 480.0;
/// A number whose definition was lost.
const UNKNOWN: u32 = u32::MAX;

/// A row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    /// `Σ x·weight`, in the unit of the partition's base.
    pub(super) sum: f64,
    /// Accesses, as far as read.
    pub(super) accesses: u32,
    /// One more than the number of the block that had its last access, shifted by one; then whether it was cold.
    last: u32,
}

const _: () = assert!(size_of::<State>() == 16);

/// In which direction blocks come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Weights {
    /// An entry of quantum `q` weighs `2^(octaves·(q - base))`; the base moves.
    Growing,
    /// It weighs `2^(-octaves·(base - q))`, with the last quantum for a base.
    Falling,
}

/// The rows of a partition.
#[derive(Debug, Default)]
pub(super) struct Partition {
    names: Vec<RowName>,
    sizes: Vec<SizeClass>,
    pub(super) states: Vec<State>,
    /// Open addressing: 32 bits of the mixed name, and one more than the row's index; 0 is free.
    slots: Vec<u64>,
    /// Rows of the section by their numbers in it.
    ids: Vec<u32>,
    /// Where sums of growing weights count from; none before the first entry.
    base: Option<u64>,
    pub(super) unresolved: u64,
}

impl Partition {
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// Was an entry of the row read?
    pub(super) fn is_met(&self, index: usize) -> bool {
        self.states[index].last != 0
    }

    pub(super) fn size(&self, index: usize) -> SizeClass {
        self.sizes[index]
    }

    /// The row; sums are estimates without the factor `alpha`.
    pub(super) fn ranked(&self, index: usize, alpha: f64) -> Ranked {
        let state = &self.states[index];
        Ranked {
            row: self.names[index],
            size: self.sizes[index],
            estimate: state.sum * alpha,
            cold: state.last & 1 == 1,
        }
    }

    /// Another section begins: its numbers are new.
    pub(super) fn begin_section(&mut self) {
        self.ids.clear();
    }

    /// Takes a block's definitions; `None` if they cannot be read.
    pub(super) fn define(&mut self, first: u32, bytes: &[u8]) -> Option<()> {
        // A gap is what a damaged block would have defined. No writer's dictionary gives a partition more numbers.
        let lost = (first as usize).checked_sub(self.ids.len());
        match lost {
            Some(lost) if lost <= 1 << 24 => self.ids.resize(first as usize, UNKNOWN),
            _ => return None,
        }
        let mut at = 0;
        while at < bytes.len() {
            let table = TableId(u32::try_from(varint(bytes, &mut at)?).ok()?);
            let hash = u64_at(bytes.get(at..at + 8)?, 0);
            at += 8;
            let size = SizeClass::from_number(u16::try_from(varint(bytes, &mut at)?).ok()?);
            let index = self.row(RowName { table, hash }, size);
            self.ids.push(index);
        }
        Some(())
    }

    /// The row's index; a new one is entered.
    fn row(&mut self, name: RowName, size: SizeClass) -> u32 {
        if self.names.len() * 3 >= self.slots.len() * 2 {
            self.grow();
        }
        let mixed = name.mixed();
        let mask = self.slots.len() - 1;
        let tag = mixed << 32;
        let mut at = (mixed >> 28) as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                let index = self.names.len() as u32;
                self.slots[at] = tag | u64::from(index + 1);
                self.names.push(name);
                self.sizes.push(size);
                self.states.push(State::default());
                return index;
            }
            let index = slot as u32 - 1;
            if slot >> 32 << 32 == tag && self.names[index as usize] == name {
                return index;
            }
            at = (at + 1) & mask;
        }
    }

    fn grow(&mut self) {
        let slots = (self.slots.len() * 2).max(1024);
        self.slots.clear();
        self.slots.resize(slots, 0);
        for (index, name) in self.names.iter().enumerate() {
            let mixed = name.mixed();
            let mut at = (mixed >> 28) as usize & (slots - 1);
            while self.slots[at] != 0 {
                at = (at + 1) & (slots - 1);
            }
            self.slots[at] = mixed << 32 | (index as u64 + 1);
        }
    }

    /// Takes a block's entries; `None` if they cannot be read. `block` is its number in the file, to tell which access
    /// of a row is its last.
    pub(super) fn apply(
        &mut self,
        entries: &[u8],
        marks: &[Mark],
        block: u32,
        pace: &Pace,
        direction: Weights,
    ) -> Option<()> {
        let mut at = 0;
        let stamp = (block + 1) << 1;
        for mark in marks {
            let weight = match direction {
                Weights::Growing => self.growing(mark.quantum, pace),
                Weights::Falling => pace.weight_before(pace.last.saturating_sub(mark.quantum)),
            };
            let usual = f64::from(mark.weight.min(pace.accesses_max)) * weight;
            let count = varint(entries, &mut at)?;
            let mut next = 0_usize;
            for _ in 0..count {
                let value = varint(entries, &mut at)?;
                let number = next.checked_add(usize::try_from(value >> 1).ok()?)?;
                next = number + 1;
                let (adds, accesses, cold) = if value & 1 == 0 {
                    (usual, mark.weight, 0)
                } else {
                    let more = varint(entries, &mut at)?;
                    let accesses = u32::try_from(more >> 1).ok()?;
                    (f64::from(accesses.min(pace.accesses_max)) * weight, accesses, more as u32 & 1)
                };
                let Some(state) = self.ids.get(number).and_then(|index| self.states.get_mut(*index as usize))
                else {
                    // Numbers end where the definitions end; behind a damaged block some are missing.
                    self.unresolved += 1;
                    continue;
                };
                state.sum += adds;
                state.accesses = state.accesses.saturating_add(accesses);
                if direction == Weights::Growing || state.last == 0 || state.last >> 1 == stamp >> 1 {
                    state.last = stamp | cold;
                }
            }
        }
        (at == entries.len()).then_some(())
    }

    /// The weight of an entry of `quantum`; scales the sums back first if it would become too large.
    fn growing(&mut self, quantum: u64, pace: &Pace) -> f64 {
        let base = *self.base.get_or_insert(quantum);
        let ahead = quantum.saturating_sub(base);
        if ahead as f64 * pace.octaves > OCTAVES_MAX {
            self.rescale(pace.weight_before(ahead));
            self.base = Some(quantum);
            return 1.0;
        }
        (ahead as f64 * pace.octaves).exp2()
    }

    /// Multiplies all sums; what becomes too small is none, so that no slow tiny numbers are carried along.
    fn rescale(&mut self, factor: f64) {
        for state in &mut self.states {
            let sum = state.sum * factor;
            state.sum = if sum < FLOOR * FLOOR.sqrt() { 0.0 } else { sum };
        }
    }

    /// Turns sums of growing weights into those of falling ones, as seen from the last quantum.
    pub(super) fn settle(&mut self, pace: &Pace) {
        if let Some(base) = self.base {
            self.rescale(pace.weight_before(pace.last.saturating_sub(base)));
        }
    }
}

/// The pace at which the past is forgotten.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// By how many powers of two a quantum counts less than the next.
    pub(super) octaves: f64,
    pub(super) accesses_max: u32,
    /// The last quantum.
    pub(super) last: u64,
}

impl Pace {
    /// The weight of an access that is `age` quanta old.
    pub(super) fn weight_before(&self, age: u64) -> f64 {
        (-(age as f64) * self.octaves).exp2()
    }
}
