//! Keys: what is looked for, how a suffix becomes words, and keys that stand out of line.
//!
//! ```text
//! out of line   length (8 bytes) | the whole key, padded to 8 bytes
//! ```
//!
//! An out-of-line key is written once, before anybody can reach it, and belongs to one entry or fence.

use std::ptr::NonNull;

use super::node::{KIND_FAR, KIND_LONG, Slot};
use crate::index::node_memory::{NodeMemory, OutOfMemory};

/// A place in the order of entries: just before the pair of this key and row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Probe<'k> {
    pub(super) key: &'k [u8],
    pub(super) row: u64,
}

impl<'k> Probe<'k> {
    pub(super) fn new(key: &'k [u8], row: u64) -> Self {
        Self { key, row }
    }

    /// The place just behind this pair. (No stored RowId has 64 bits, so the last one needs no successor.)
    pub(super) fn behind(self) -> Self {
        Self { row: self.row.saturating_add(1), ..self }
    }

    /// The key without a node's prefix. A racing reader may have a prefix length that does not fit the key.
    #[inline(always)]
    pub(super) fn suffix(&self, prefix_len: usize) -> &'k [u8] {
        self.key.get(prefix_len..).unwrap_or(&[])
    }

    #[inline(always)]
    pub(super) fn head(&self, prefix_len: usize) -> u64 {
        let suffix = self.suffix(prefix_len);
        match (self.key.last_chunk::<8>(), suffix.len()) {
            (_, 0) => 0,
            // The key's last eight bytes, without those that belong to the prefix.
            (Some(last), len @ 1..=7) => u64::from_be_bytes(*last) << (64 - 8 * len),
            _ => word(suffix),
        }
    }
}

/// The first eight bytes, big-endian, padded with zeroes.
#[inline(always)]
pub(super) fn word(bytes: &[u8]) -> u64 {
    if let Some(first) = bytes.first_chunk::<8>() {
        return u64::from_be_bytes(*first);
    }
    let mut padded = [0; 8];
    padded[..bytes.len()].copy_from_slice(bytes);
    u64::from_be_bytes(padded)
}

/// Encodes an entry: `tail` is given the words of its tail, if it has any, and says where it has put them.
pub(super) fn encode(
    suffix: &[u8],
    row: u64,
    value: u64,
    has_row: bool,
    far: u64,
    tail: impl FnOnce(&[u64]) -> usize,
) -> Slot {
    // Room for the longest suffix of the largest node.
    let mut words = [0; 4 + 4096 / 80];
    let mut count = 0;
    let mut push = |word| {
        words[count] = word;
        count += 1;
    };
    if has_row {
        push(row);
    }
    let kind = if far != 0 {
        push(far);
        KIND_FAR
    } else if suffix.len() <= 8 {
        suffix.len() as u64
    } else {
        push(word(&suffix[8..suffix.len().min(14)]) | suffix.len() as u64);
        suffix.get(14..).unwrap_or(&[]).chunks(8).for_each(|chunk| push(word(chunk)));
        KIND_LONG
    };
    let at = if count == 0 { 0 } else { tail(&words[..count]) };
    Slot::new(word(suffix), value, at, has_row, kind)
}

/// The length of the longest common prefix.
pub(super) fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The shortest pair that parts `left` from everything at or above `right`, which is greater.
pub(super) fn separator(left: &[u8], right: Probe<'_>) -> (Vec<u8>, u64) {
    if left == right.key {
        return (right.key.to_vec(), right.row);
    }
    (right.key[..=common(left, right.key)].to_vec(), 0)
}

/// Bytes of the cell of an out-of-line key.
pub(super) fn far_cell_bytes(len: usize) -> usize {
    8 + len.next_multiple_of(8)
}

/// Puts a key out of line. Returns its address.
///
/// # Errors
/// When there is no memory for it.
pub(super) fn far_new<M: NodeMemory>(memory: &M, key: &[u8]) -> Result<u64, OutOfMemory> {
    let cell = memory.alloc(far_cell_bytes(key.len()))?;
    // SAFETY: the cell is ours and has room for the length and the key.
    unsafe {
        cell.cast::<u64>().write(key.len() as u64);
        cell.add(8).copy_from_nonoverlapping(NonNull::from(key).cast(), key.len());
    }
    Ok(cell.as_ptr().expose_provenance() as u64)
}

/// The bytes of an out-of-line key.
///
/// # Safety
/// `address` came from [`far_new`], and the key stays for `'g`: it was reachable under a version that was checked
/// after the address was read, and the caller is pinned.
pub(super) unsafe fn far_bytes<'g>(address: u64) -> &'g [u8] {
    let cell: *const u8 = std::ptr::with_exposed_provenance(address as usize);
    // SAFETY: the cell holds the length and that many bytes, and is never written again.
    unsafe { std::slice::from_raw_parts(cell.add(8), *cell.cast::<u64>() as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_are_short_and_part() {
        assert_eq!(separator(b"abc", Probe::new(b"abd", 5)), (b"abd".to_vec(), 0));
        assert_eq!(separator(b"abc", Probe::new(b"b", 5)), (b"b".to_vec(), 0));
        assert_eq!(separator(b"abc", Probe::new(b"abcdef", 5)), (b"abcd".to_vec(), 0));
        assert_eq!(separator(b"abc", Probe::new(b"abc", 5)), (b"abc".to_vec(), 5));
    }

    #[test]
    fn heads_take_the_first_bytes_behind_the_prefix() {
        let key = *b"0123456789";
        for len in 0..=key.len() {
            for prefix_len in 0..=len + 2 {
                let probe = Probe::new(&key[..len], 0);
                assert_eq!(probe.head(prefix_len), word(probe.suffix(prefix_len)), "{len} {prefix_len}");
            }
        }
    }
}
