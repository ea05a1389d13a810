//! Checksums of what is written to disk: CRC-32C, started from where the bytes belong.
//!
//! A plain checksum proves bytes whole, not in their place: a log segment that is used again still holds whole records
//! of its former life (`ChecksumBindsPosition`). [`Seed`] therefore starts the sum from the database, the generation and the
//! position of the bytes. For a given length a CRC maps different starts to different sums, so bytes that check out
//! under one seed check out under another one only if the two seeds' 32-bit starts collide: one in 2^32.

use crate::mutation::{self, Rule};

/// The CRC-32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// The CRC-32C of the bytes that gave `sum`, followed by `bytes`.
#[must_use]
pub fn crc32c_append(sum: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(sum, bytes)
}

/// The value from which the checksums of one owner (a database's log of one generation, an image file) start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seed(u32);

impl Seed {
    /// The seed of what belongs to `owner` in its `generation`.
    #[must_use]
    pub fn new(owner: &[u8; 16], generation: u64) -> Self {
        Self(crc32c_append(crc32c(owner), &generation.to_le_bytes()))
    }

    /// Where the checksum of the bytes at `position` starts; go on with [`crc32c_append`].
    #[inline]
    #[must_use]
    pub fn at(self, position: u64) -> u32 {
        if mutation::off(Rule::ChecksumBindsPosition) {
            return 0;
        }
        crc32c_append(self.0, &position.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_known_answer() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32c_append(crc32c(b"1234"), b"56789"), 0xE306_9283);
    }

    #[test]
    fn the_seed_tells_owner_generation_and_position() {
        let base = Seed::new(&[1; 16], 1);
        assert_ne!(base, Seed::new(&[2; 16], 1));
        assert_ne!(base, Seed::new(&[1; 16], 2));
        assert_ne!(crc32c_append(base.at(0), b"record"), crc32c_append(base.at(8), b"record"));
    }
}
