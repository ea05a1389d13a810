//! Little-endian numbers at a place of a byte string of unknown quality.
//!
//! Rule: a place beyond the end reads as zero. So a damaged block yields wrong values and never a panic, and valid ones pay one
//! comparison a read.

use thermocline_row::layout::Place;

/// The `N` bytes at `at`, or zeros.
#[inline(always)]
pub(crate) fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    match bytes.get(at..).and_then(<[u8]>::first_chunk::<N>) {
        Some(chunk) => *chunk,
        None => [0; N],
    }
}

/// 16 bits.
#[inline(always)]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

/// 32 bits.
#[inline(always)]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

/// 64 bits.
#[inline(always)]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

/// 128 bits.
#[inline(always)]
pub(crate) fn u128_at(bytes: &[u8], at: usize) -> u128 {
    u128::from_le_bytes(array_at(bytes, at))
}

/// The bytes `from..to`, or none where that is no range of the bytes.
#[inline(always)]
pub(crate) fn range(bytes: &[u8], from: usize, to: usize) -> &[u8] {
    bytes.get(from..to).unwrap_or(&[])
}

/// True if the bit `index` is set; bits beyond the end are not.
#[inline(always)]
pub(crate) fn bit(bytes: &[u8], at: usize, index: usize) -> bool {
    bytes.get(at + index / 8).is_some_and(|byte| byte >> (index % 8) & 1 != 0)
}

/// Sets the null bit of a place in a row.
#[inline(always)]
pub(crate) fn set_null(row: &mut [u8], place: Place) {
    if let Some(byte) = row.get_mut(usize::from(place.null / 8)) {
        *byte |= 1 << (place.null % 8);
    }
}
