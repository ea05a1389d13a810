//! Ordered dictionaries: the distinct values of a column in a block, in ascending order; a code is a place in it.
//!
//! Integers: `base i64 | width u8 | 0 × 7 | packed`. 128 bits: 16 bytes each. Byte strings stand in runs of 16, each after
//! what it has in common with the first of its run, so that a code gives its string at once:
//!
//! ```text
//! a run, 36 bytes: where its bytes begin u32 | bytes shared with the first u8 × 16 | bytes of its own u8 × 16 | … | bytes
//! ```
//!
//! A dictionary with a string of more than 255 bytes has `end u32` for each instead; the first byte says which (1, 0).
//! (Binnig, Hildenbrand, Färber: Dictionary-based Order-preserving String Compression for Main Memory Column Stores, SIGMOD 2009,
//! §3: codes in the order of the strings.)

use std::cmp::Ordering;

use super::bytes::{array_at, range, u32_at, u64_at, u128_at};
use super::ints::{pack, packed, width_of};

const RUN: usize = 16;
const RUN_BYTES: usize = 4 + 2 * RUN;
/// Before the runs, or the ends.
const HEAD: usize = 8;

/// Writes distinct integers in ascending order.
pub(crate) fn write_integers(values: &[i64], out: &mut Vec<u8>) {
    let (low, high) = (values.first().copied().unwrap_or(0), values.last().copied().unwrap_or(0));
    let width = width_of(high.wrapping_sub(low) as u64);
    out.extend(low.to_le_bytes());
    out.extend(u64::from(width).to_le_bytes());
    pack(values.iter().map(|v| v.wrapping_sub(low) as u64), width, out);
}

/// The integer of a code.
#[inline(always)]
pub(crate) fn integer(bytes: &[u8], at: usize, code: usize) -> i64 {
    let width = (u64_at(bytes, at + 8) as u32).min(64);
    if width == 0 {
        return u64_at(bytes, at) as i64;
    }
    (u64_at(bytes, at) as i64).wrapping_add(packed(bytes, at + 16, code, width) as i64)
}

/// The 128 bits of a code.
#[inline(always)]
pub(crate) fn wide(bytes: &[u8], at: usize, code: usize) -> i128 {
    u128_at(bytes, at + 16 * code) as i128
}

fn shared(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Writes distinct strings in ascending order.
pub(crate) fn write_strings(strings: &[&[u8]], out: &mut Vec<u8>) {
    let start = out.len();
    let fronts = strings.iter().all(|s| s.len() <= 255);
    out.extend([u8::from(fronts), 0, 0, 0, 0, 0, 0, 0]);
    if !fronts {
        let mut end = 0u32;
        for string in strings {
            end += string.len() as u32;
            out.extend(end.to_le_bytes());
        }
        strings.iter().for_each(|string| out.extend(*string));
        return;
    }
    let runs = start + HEAD;
    out.resize(runs + strings.len().div_ceil(RUN) * RUN_BYTES, 0);
    let heap = out.len();
    for (number, run) in strings.chunks(RUN).enumerate() {
        let head = runs + number * RUN_BYTES;
        let begin = (out.len() - heap) as u32;
        out[head..head + 4].copy_from_slice(&begin.to_le_bytes());
        for (i, string) in run.iter().enumerate() {
            let common = if i == 0 { 0 } else { shared(run[0], string) };
            out[head + 4 + i] = common as u8;
            out[head + 4 + RUN + i] = (string.len() - common) as u8;
            out.extend(&string[common..]);
        }
    }
}

/// A dictionary of strings in a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strings<'a> {
    /// The whole block.
    pub(crate) bytes: &'a [u8],
    pub(crate) at: usize,
    pub(crate) count: usize,
}

impl<'a> Strings<'a> {
    /// The string of a code, in two parts; none for a code that has none.
    #[inline]
    pub(crate) fn parts(&self, code: usize) -> (&'a [u8], &'a [u8]) {
        if code >= self.count {
            return (&[], &[]);
        }
        let first = self.at + HEAD;
        if self.bytes.get(self.at) != Some(&1) {
            let heap = first + 4 * self.count;
            let begin = if code == 0 { 0 } else { u32_at(self.bytes, first + 4 * code - 4) as usize };
            let end = u32_at(self.bytes, first + 4 * code) as usize;
            return (&[], range(self.bytes, heap + begin, heap + end));
        }
        let heap = first + self.count.div_ceil(RUN) * RUN_BYTES;
        let run: [u8; RUN_BYTES] = array_at(self.bytes, first + code / RUN * RUN_BYTES);
        let head = heap + u32_at(&run, 0) as usize;
        let (common, own) = (&run[4..4 + RUN], &run[4 + RUN..]);
        let place = code % RUN;
        let begin = head + own[..place].iter().map(|len| usize::from(*len)).sum::<usize>();
        let prefix = range(self.bytes, head, head + usize::from(common[place]));
        (prefix, range(self.bytes, begin, begin + usize::from(own[place])))
    }

    fn compare(&self, code: usize, other: &[u8]) -> Ordering {
        let (prefix, rest) = self.parts(code);
        let (front, back) = other.split_at(prefix.len().min(other.len()));
        prefix.cmp(front).then_with(|| rest.cmp(back))
    }

    /// How many strings `before` holds of, which must hold of the first ones only.
    pub(crate) fn partition(&self, before: impl Fn(&Self, usize) -> bool) -> usize {
        partition(self.count, |code| before(self, code))
    }

    /// The number of strings less than `other`.
    pub(crate) fn below(&self, other: &[u8]) -> usize {
        self.partition(|strings, code| strings.compare(code, other) == Ordering::Less)
    }

    /// The number of strings that are at most `other`.
    pub(crate) fn up_to(&self, other: &[u8]) -> usize {
        self.partition(|strings, code| strings.compare(code, other) != Ordering::Greater)
    }

    /// The number of strings that are less than `prefix` or begin with it.
    pub(crate) fn up_to_prefix(&self, prefix: &[u8]) -> usize {
        self.partition(|strings, code| {
            let (a, b) = strings.parts(code);
            let front = a.len().min(prefix.len());
            let back = b.len().min(prefix.len() - front);
            let cut = a[..front].cmp(&prefix[..front]);
            cut.then_with(|| b[..back].cmp(&prefix[front..])) != Ordering::Greater
        })
    }
}

/// How many of the numbers below `count` the predicate holds of, which must hold of the first ones only.
pub(crate) fn partition(count: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low.midpoint(high);
        if before(middle) { low = middle + 1 } else { high = middle }
    }
    low
}
