//! Temperature: which rows are accessed often enough, for their size, to stand in memory.
//!
//! ```text
//!   worker ── Sampler ──► ring ─┐
//!   worker ── Sampler ──► ring ─┤ drained by     ┌─► LogWriter ─► file, stream to another machine ─► classify
//!   worker ── Sampler ──► ring ─┴─ Collector ────┴─► Classifier (in process, under a byte budget)
//! ```
//!
//! An access names its row by table and a 64-bit hash of its primary key ([`RowName`]), so what is known about a row
//! survives its migration, its promotion and a restart. Time is cut into *quanta*; the estimate of a row's accesses a
//! quantum is exponentially smoothed: `est = α·x + (1-α)·est`, with `x` the accesses of the quantum (Levandoski,
//! Larson and Stoica, "Identifying Hot and Cold Data in Main-Memory Databases", ICDE 2013). What counts for a row's
//! place is the access *density*, the estimate divided by the bytes that the row takes.
//!
//! Rules:
//! - A worker never waits: it counts down, and now and then writes 16 bytes into its own ring.
//! - Every access of a cold row is recorded, hot ones are sampled. A record says how many accesses it stands for, so that both
//!   kinds, and times of different rates, compare.
//! - Two rows whose names collide (2^-64 for each pair) share their temperature; nothing else depends on a name.
//! - Nothing here knows transactions, slots or the cold store; the user says what is hot now.

pub mod classify;
mod collector;
mod histogram;
mod log;
#[doc(hidden)]
pub mod mutation;
mod online;
mod ring;
mod sampler;
#[cfg(test)]
mod testing;

use thermocline_base::ids::TableId;

pub use collector::{Collector, CollectorOptions, CollectorStatistics, CollectorThread};
pub use histogram::{TableTemperatures, TemperatureStep, Temperatures};
pub use log::error::{Damage, LogError};
pub use log::reader::LogReader;
pub use log::writer::{LogOptions, LogWriter};
pub use online::{Classifier, ClassifierOptions};
pub use online::{
    HEADER_BYTES as STORED_HEADER_BYTES, Header as StoredHeader, Refused, check as check_stored,
};
pub use sampler::Sampler;

/// Names a row wherever it is: its table and the hash of its primary key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RowName {
    /// The table.
    pub table: TableId,
    /// The hash of the primary key. Any hash will do that stays the same over restarts; it is mixed again here.
    pub hash: u64,
}

impl RowName {
    /// All 64 bits depend on all bits of the name.
    #[inline]
    pub(crate) fn mixed(self) -> u64 {
        let mut mixed = self.hash ^ u64::from(self.table.0).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ mixed >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        mixed = (mixed ^ mixed >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        mixed ^ mixed >> 32
    }
}

/// A recorded access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Which row.
    pub row: RowName,
    /// Its size; kept as a [`SizeClass`].
    pub size: SizeClass,
    /// The number of accesses that the record stands for: one if the row is cold, else what the sampling makes of it.
    pub weight: u32,
    /// Was the row in the cold store?
    pub cold: bool,
}

/// The bytes that a row takes, in steps of 16, from 32 bytes to 1 MiB.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SizeClass(u16);

impl SizeClass {
    /// The smallest: no row takes less, with what leads to it.
    pub const MIN: Self = Self(2);
    const STEP: u32 = 16;

    /// The class of a row of so many bytes.
    #[inline]
    #[must_use]
    pub const fn of(bytes: u32) -> Self {
        let steps = bytes.div_ceil(Self::STEP);
        match steps {
            0..=2 => Self::MIN,
            3..=0xFFFF => Self(steps as u16),
            _ => Self(u16::MAX),
        }
    }

    /// The class that [`SizeClass::number`] gave.
    #[must_use]
    pub const fn from_number(number: u16) -> Self {
        if number < Self::MIN.0 { Self::MIN } else { Self(number) }
    }

    /// A number for a record.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The bytes that a row of this class counts for.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0 as u64 * Self::STEP as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_classes_round_up_and_stay_in_their_range() {
        let bytes = |size| SizeClass::of(size).bytes();
        assert_eq!((bytes(0), bytes(32), bytes(33), bytes(100)), (32, 32, 48, 112));
        assert_eq!(bytes(u32::MAX), 65535 * 16);
        assert_eq!(SizeClass::from_number(0), SizeClass::MIN);
        assert_eq!(SizeClass::from_number(SizeClass::of(100).number()).bytes(), 112);
    }

    #[test]
    fn the_table_is_part_of_the_name() {
        let name = |table, hash| RowName { table: TableId(table), hash }.mixed();
        assert_ne!(name(1, 5), name(2, 5));
        assert_ne!(name(1, 5), name(1, 6));
        // Neighbours fall into all sixteenths alike.
        let mut counts = [0; 16];
        for hash in 0..16_000 {
            counts[(name(1, hash) >> 60) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    }
}
