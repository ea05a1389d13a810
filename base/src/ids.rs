//! Identifiers and timestamps.
//!
//! All of them are plain integers with a type, so that a row cannot be passed where a table is meant. [`RowId`] packs
//! chunk and slot; the engine hands out at most 2^48 of them per table (see the page of limits).

use std::fmt;

/// Slots per chunk as a power of two.
pub const CHUNK_BITS: u32 = 16;
/// Slots per chunk.
pub const CHUNK_SLOTS: usize = 1 << CHUNK_BITS;
/// Bits of a [`RowId`] that are ever used.
pub const ROW_ID_BITS: u32 = 48;

macro_rules! id {
    ($(#[$meta:meta])* $name:ident($int:ty)) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        #[repr(transparent)]
        pub struct $name(pub $int);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A table, for the whole life of a database: never given to another table, not even after a drop.
    TableId(u32)
);
id!(
    /// An index of any table, unique in the database and never reused.
    IndexId(u32)
);
id!(
    /// A point in the serialization order: the end timestamp of a transaction, or a snapshot taken after it. 0 is
    /// before everything.
    Timestamp(u64)
);
id!(
    /// A byte position in the log, counted from its first byte ever.
    Lsn(u64)
);
id!(
    /// Where a row stands in its table: chunk number and slot number. Stays the same as long as the row is in DRAM.
    RowId(u64)
);

impl RowId {
    /// The row in slot `slot` of chunk `chunk`.
    #[must_use]
    pub const fn new(chunk: u32, slot: u16) -> Self {
        Self((chunk as u64) << CHUNK_BITS | slot as u64)
    }

    /// Number of the chunk.
    #[must_use]
    pub const fn chunk(self) -> u32 {
        (self.0 >> CHUNK_BITS) as u32
    }

    /// Number of the slot inside the chunk.
    #[must_use]
    pub const fn slot(self) -> u16 {
        self.0 as u16
    }
}

/// A number that no other call of the process gets, from 1. Names what is never stored.
#[must_use]
pub fn fresh_number() -> u64 {
    static LAST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    LAST.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_id_round_trips() {
        for (chunk, slot) in [(0, 0), (1, 65535), (u32::MAX, 7)] {
            let id = RowId::new(chunk, slot);
            assert_eq!((id.chunk(), id.slot()), (chunk, slot));
            assert!(id.0 < 1 << ROW_ID_BITS);
        }
    }
}
