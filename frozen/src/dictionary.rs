//! Ordered dictionaries: the distinct values of a column in a block, in ascending order; a code is a place in it.
//!
//! Integers: `base i64 | width u8 | 0 × 7 | packed`. 128 bits: 16 bytes each. Byte strings stand in runs of 16, each after
//! what it has in common with the first of its run, so that a code gives its string at once:
//!
//! ```text
//! 2  a run of 20 bytes: where its bytes begin u32 | bytes shared with the first, and of its own: u4, u4 × 16
//! 1  a run of 36 bytes: where its bytes begin u32 | bytes shared with the first u8 × 16 | bytes of its own u8 × 16
//! 0  where each string ends u32
//! ```
//!
//! The first byte says which: the first of them whose lengths fit. Behind all runs, or ends, stand the bytes.
//! (Binnig, Hildenbrand, Färber: Dictionary-based Order-preserving String Compression for Main Memory Column Stores, SIGMOD 2009,
//! §3: codes in the order of the strings.)

use std::cmp::Ordering;

use super::bytes::{array_at, range, u32_at, u64_at, u128_at};
use super::ints::{pack, packed, width_of};

const RUN: usize = 16;
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
    Integers::new(bytes, at).get(code)
}

/// A dictionary of integers, for reading many codes.
#[derive(Clone, Copy)]
pub(crate) struct Integers<'a> {
    bytes: &'a [u8],
    at: usize,
    base: i64,
    width: u32,
}

impl<'a> Integers<'a> {
    pub(crate) fn new(bytes: &'a [u8], at: usize) -> Self {
        let width = (u64_at(bytes, at + 8) as u32).min(64);
        Self { bytes, at: at + 16, base: u64_at(bytes, at) as i64, width }
    }

    /// The integer of a code.
    #[inline(always)]
    pub(crate) fn get(&self, code: usize) -> i64 {
        let rest = if self.width == 0 { 0 } else { packed(self.bytes, self.at, code, self.width) };
        self.base.wrapping_add(rest as i64)
    }
}

/// The 128 bits of a code.
#[inline(always)]
pub(crate) fn wide(bytes: &[u8], at: usize, code: usize) -> i128 {
    u128_at(bytes, at + 16 * code) as i128
}

/// The form in which the lengths of strings stand; the byte that says so.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Lengths {
    Ends = 0,
    Bytes = 1,
    Nibbles = 2,
}

impl Lengths {
    /// Bytes of a run.
    const fn run_bytes(self) -> usize {
        match self {
            Lengths::Ends => 0,
            Lengths::Bytes => 4 + 2 * RUN,
            Lengths::Nibbles => 4 + RUN,
        }
    }

    /// The most bytes that a string may share with the first of its run, and have of its own.
    const fn most(self) -> usize {
        match self {
            Lengths::Ends => usize::MAX,
            Lengths::Bytes => 255,
            Lengths::Nibbles => 15,
        }
    }

    fn fit(self, strings: &[&[u8]]) -> bool {
        strings.chunks(RUN).all(|run| {
            let fits = |(i, string): (usize, &&[u8])| string.len() - self.shared(run, i) <= self.most();
            run.iter().enumerate().all(fits)
        })
    }

    /// The bytes that a string of a run has in common with the first.
    fn shared(self, run: &[&[u8]], i: usize) -> usize {
        if i == 0 {
            return 0;
        }
        run[0].iter().zip(run[i]).take(self.most()).take_while(|(a, b)| a == b).count()
    }
}

/// Writes distinct strings in ascending order.
pub(crate) fn write_strings(strings: &[&[u8]], out: &mut Vec<u8>) {
    let lengths = [Lengths::Nibbles, Lengths::Bytes].into_iter().find(|lengths| lengths.fit(strings));
    let lengths = lengths.unwrap_or(Lengths::Ends);
    out.extend([lengths as u8, 0, 0, 0, 0, 0, 0, 0]);
    if lengths == Lengths::Ends {
        let mut end = 0u32;
        for string in strings {
            end += string.len() as u32;
            out.extend(end.to_le_bytes());
        }
        strings.iter().for_each(|string| out.extend(*string));
        return;
    }
    let runs = out.len();
    out.resize(runs + strings.len().div_ceil(RUN) * lengths.run_bytes(), 0);
    let heap = out.len();
    for (number, run) in strings.chunks(RUN).enumerate() {
        let head = runs + number * lengths.run_bytes();
        let begin = (out.len() - heap) as u32;
        out[head..head + 4].copy_from_slice(&begin.to_le_bytes());
        for (i, string) in run.iter().enumerate() {
            let common = lengths.shared(run, i);
            let own = (string.len() - common) as u8;
            if lengths == Lengths::Nibbles {
                out[head + 4 + i] = common as u8 | own << 4;
            } else {
                out[head + 4 + i] = common as u8;
                out[head + 4 + RUN + i] = own;
            }
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
        let (run, place) = (code / RUN, code % RUN);
        let heap = |lengths: Lengths| first + self.count.div_ceil(RUN) * lengths.run_bytes();
        let (head, begin, common, own) = match self.bytes.get(self.at) {
            Some(2) => {
                const BYTES: usize = Lengths::Nibbles.run_bytes();
                let run: [u8; BYTES] = array_at(self.bytes, first + run * BYTES);
                let head = heap(Lengths::Nibbles) + u32_at(&run, 0) as usize;
                let lens = &run[4..];
                let before: usize = lens[..place].iter().map(|len| usize::from(len >> 4)).sum();
                (head, head + before, lens[place] & 15, lens[place] >> 4)
            }
            Some(1) => {
                const BYTES: usize = Lengths::Bytes.run_bytes();
                let run: [u8; BYTES] = array_at(self.bytes, first + run * BYTES);
                let head = heap(Lengths::Bytes) + u32_at(&run, 0) as usize;
                let (common, own) = run[4..].split_at(RUN);
                let before: usize = own[..place].iter().map(|len| usize::from(*len)).sum();
                (head, head + before, common[place], own[place])
            }
            _ => {
                let heap = first + 4 * self.count;
                let begin = if code == 0 { 0 } else { u32_at(self.bytes, first + 4 * code - 4) as usize };
                let end = u32_at(self.bytes, first + 4 * code) as usize;
                return (&[], range(self.bytes, heap + begin, heap + end));
            }
        };
        let prefix = range(self.bytes, head, head + usize::from(common));
        (prefix, range(self.bytes, begin, begin + usize::from(own)))
    }

    fn compare(&self, code: usize, other: &[u8]) -> Ordering {
        let (prefix, rest) = self.parts(code);
        let (front, back) = other.split_at(prefix.len().min(other.len()));
        prefix.cmp(front).then_with(|| rest.cmp(back))
    }

    /// Number of strings that `before` holds of, which must hold of the first ones only.
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

/// Number of the numbers below `count` that the predicate holds of, which must hold of the first ones only.
pub(crate) fn partition(count: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low.midpoint(high);
        if before(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

#[cfg(test)]
#[path = "dictionary_tests.rs"]
mod tests;
