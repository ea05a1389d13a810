//! Integers of one group: up to 1,024 of them in as few bits as give each by its position.
//!
//! ```text
//! line       value(i) = base + slope · i + packed(i)                 frame of reference; width 0: a constant, or a sequence
//! positions  u16 × runs: where each run begins | packed(run)         few long runs; O(log runs)
//! marks      u64 × ⌈n/64⌉: a bit where a run begins | u16 × ⌈n/64⌉:  many short runs; O(1): rank of the bit
//!            runs before the word | packed(run)
//! ```
//!
//! `packed` is horizontal: value i has the bits [i · width, (i + 1) · width), the least significant first. Arithmetic is modulo
//! 2^64, so every i64 has its place, however far apart two of them are.
//!
//! Rule: readers clamp each number that they read from the bytes (width, runs) before they use it; they touch nothing beyond the
//! bytes and never panic. (Zukowski, Héman, Nes, Boncz: Super-Scalar RAM-CPU Cache Compression, ICDE 2006, §3: frame of
//! reference; Funke, Kemper, Neumann: Compacting Transactional Data in Hybrid OLTP & OLAP Databases, VLDB 2012, §3.4:
//! position-based runs.)

use super::GROUP_ROWS;
use super::bytes::{u16_at, u64_at, u128_at};
use super::format::Choice;

/// The form in which the integers of a group stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Line = 0,
    Positions = 1,
    Marks = 2,
}

impl Kind {
    /// The form that a byte names; an unknown one is a line, as good as any other for damaged bytes.
    #[inline(always)]
    pub(crate) fn from_byte(byte: u8) -> Self {
        match byte {
            1 => Kind::Positions,
            2 => Kind::Marks,
            _ => Kind::Line,
        }
    }
}

/// The parameters of the integers of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Params {
    pub(crate) kind: Kind,
    pub(crate) width: u32,
    pub(crate) base: i64,
    pub(crate) slope: i32,
    pub(crate) runs: usize,
}

impl Params {
    /// Bytes of `n` integers.
    #[inline]
    pub(crate) fn bytes(&self, n: usize) -> usize {
        self.values_at(n) + packed_bytes(if self.kind == Kind::Line { n } else { self.runs }, self.width)
    }

    /// Where the packed values begin.
    #[inline(always)]
    fn values_at(&self, n: usize) -> usize {
        match self.kind {
            Kind::Line => 0,
            Kind::Positions => 2 * self.runs,
            Kind::Marks => 10 * n.div_ceil(64),
        }
    }
}

#[inline(always)]
pub(crate) fn packed_bytes(count: usize, width: u32) -> usize {
    (count * width as usize).div_ceil(8)
}

/// Bits that a difference needs.
#[inline(always)]
pub(crate) fn width_of(spread: u64) -> u32 {
    64 - spread.leading_zeros()
}

#[inline(always)]
fn mask(width: u32) -> u64 {
    if width >= 64 { u64::MAX } else { (1 << width) - 1 }
}

/// Least, greatest and number of runs. Not for an empty slice.
#[inline]
pub(crate) fn extent(values: &[i64]) -> (i64, i64) {
    let first = values.first().copied().unwrap_or(0);
    values.iter().fold((first, first), |(low, high), v| (low.min(*v), high.max(*v)))
}

/// The smallest way to write these values; of two that differ little, the one that scans faster.
pub(crate) fn plan(values: &[i64], choice: Choice) -> Params {
    let n = values.len();
    let (low, high) = extent(values);
    let width = width_of(high.wrapping_sub(low) as u64);
    let mut best = Params { kind: Kind::Line, width, base: low, slope: 0, runs: 0 };
    if width == 0 {
        return best;
    }
    if let Some(line) = sloped(values)
        && line.width < best.width
    {
        best = line;
    }
    let runs = 1 + values.windows(2).map(|pair| usize::from(pair[0] != pair[1])).sum::<usize>();
    // Runs must win an eighth: a line is unpacked without looking up where a run begins.
    let mut limit = best.bytes(n) * 7 / 8;
    let kinds: &[Kind] = match choice {
        Choice::Smallest => &[Kind::Positions, Kind::Marks],
        Choice::PointReads => &[Kind::Marks],
    };
    for kind in kinds {
        let candidate = Params { kind: *kind, width, base: low, slope: 0, runs };
        if candidate.bytes(n) < limit {
            limit = candidate.bytes(n);
            best = candidate;
        }
    }
    best
}

/// A line through the first and the last value, if it rises or falls.
fn sloped(values: &[i64]) -> Option<Params> {
    let (first, last) = (*values.first()?, *values.last()?);
    let steps = i64::try_from(values.len()).ok()?.checked_sub(1).filter(|steps| *steps > 0)?;
    let slope = i32::try_from(last.checked_sub(first)? / steps).ok().filter(|slope| *slope != 0)?;
    let at = |i: usize| values[i].wrapping_sub(i64::from(slope).wrapping_mul(i as i64));
    let (mut low, mut high) = (first, first);
    for i in 0..values.len() {
        let rest = at(i);
        low = low.min(rest);
        high = high.max(rest);
    }
    let width = width_of(high.wrapping_sub(low) as u64);
    Some(Params { kind: Kind::Line, width, base: low, slope, runs: 0 })
}

/// Appends the values as `params`, which [`plan`] has made of them, says.
pub(crate) fn write(values: &[i64], params: &Params, out: &mut Vec<u8>) {
    let Params { kind, width, base, slope, .. } = *params;
    if kind == Kind::Line {
        let rest = values
            .iter()
            .enumerate()
            .map(|(i, v)| v.wrapping_sub(base).wrapping_sub(i64::from(slope).wrapping_mul(i as i64)) as u64);
        return pack(rest, width, out);
    }
    let begins = |i: usize| i == 0 || values[i] != values[i - 1];
    if kind == Kind::Positions {
        (0..values.len()).filter(|i| begins(*i)).for_each(|i| out.extend((i as u16).to_le_bytes()));
    } else {
        let mut words = [0u64; GROUP_ROWS / 64];
        (0..values.len()).filter(|i| begins(*i)).for_each(|i| words[i / 64] |= 1 << (i % 64));
        let words = &words[..values.len().div_ceil(64)];
        words.iter().for_each(|word| out.extend(word.to_le_bytes()));
        let mut before = 0u16;
        for word in words {
            out.extend(before.to_le_bytes());
            before += word.count_ones() as u16;
        }
    }
    let firsts = (0..values.len()).filter(|i| begins(*i));
    pack(firsts.map(|i| values[i].wrapping_sub(base) as u64), width, out);
}

/// Appends numbers of `width` bits.
pub(crate) fn pack(values: impl Iterator<Item = u64>, width: u32, out: &mut Vec<u8>) {
    if width == 0 {
        return;
    }
    let (mut word, mut filled) = (0u64, 0u32);
    for value in values {
        word |= value << filled;
        filled += width;
        if filled >= 64 {
            out.extend(word.to_le_bytes());
            filled -= 64;
            word = if filled == 0 { 0 } else { value >> (width - filled) };
        }
    }
    out.extend(&word.to_le_bytes()[..filled.div_ceil(8) as usize]);
}

/// The packed number `index` of those that begin at `at`.
#[inline(always)]
pub(crate) fn packed(bytes: &[u8], at: usize, index: usize, width: u32) -> u64 {
    let bit = index * width as usize;
    let (at, shift) = (at + bit / 8, bit % 8);
    if width <= 56 {
        u64_at(bytes, at) >> shift & mask(width)
    } else {
        (u128_at(bytes, at) >> shift) as u64 & mask(width)
    }
}

/// The value at position `i` of `n`; the integers begin at `at`.
#[inline(always)]
pub(crate) fn value(bytes: &[u8], at: usize, params: &Params, n: usize, i: usize) -> i64 {
    match params.kind {
        Kind::Line => {
            let rest = if params.width == 0 { 0 } else { packed(bytes, at, i, params.width) };
            params.base.wrapping_add(i64::from(params.slope).wrapping_mul(i as i64)).wrapping_add(rest as i64)
        }
        Kind::Positions | Kind::Marks => {
            let run = run_of(bytes, at, params, n, i);
            params.base.wrapping_add(packed(bytes, at + params.values_at(n), run, params.width) as i64)
        }
    }
}

/// The number of the run that position `i` is in.
#[inline]
fn run_of(bytes: &[u8], at: usize, params: &Params, n: usize, i: usize) -> usize {
    if params.kind == Kind::Marks {
        let words = n.div_ceil(64);
        let before = u16_at(bytes, at + 8 * words + 2 * (i / 64));
        let word = u64_at(bytes, at + 8 * (i / 64)) << (63 - i % 64);
        return (usize::from(before) + word.count_ones() as usize).saturating_sub(1);
    }
    let (mut low, mut high) = (0, params.runs);
    while low + 1 < high {
        let middle = low.midpoint(high);
        if usize::from(u16_at(bytes, at + 2 * middle)) <= i { low = middle } else { high = middle }
    }
    low
}

/// All `out.len()` values of a group.
pub(crate) fn unpack(bytes: &[u8], at: usize, params: &Params, out: &mut [i64]) {
    let n = out.len();
    match params.kind {
        Kind::Line => {
            unpack_packed(bytes, at, params.width, params.base, out);
            if params.slope != 0 {
                let slope = i64::from(params.slope);
                for (i, v) in out.iter_mut().enumerate() {
                    *v = v.wrapping_add(slope.wrapping_mul(i as i64));
                }
            }
        }
        Kind::Positions => {
            let values = at + params.values_at(n);
            let mut from = 0;
            for run in 0..params.runs {
                let to = if run + 1 == params.runs {
                    n
                } else {
                    usize::from(u16_at(bytes, at + 2 * (run + 1))).clamp(from, n)
                };
                out[from..to].fill(params.base.wrapping_add(packed(bytes, values, run, params.width) as i64));
                from = to;
            }
            out[from..].fill(0);
        }
        Kind::Marks => {
            let values = at + params.values_at(n);
            let (mut next, mut current) = (0, params.base);
            for (i, chunk) in out.chunks_mut(64).enumerate() {
                let marks = u64_at(bytes, at + 8 * i);
                for (bit, v) in chunk.iter_mut().enumerate() {
                    if marks >> bit & 1 != 0 {
                        current = params.base.wrapping_add(packed(bytes, values, next, params.width) as i64);
                        next += 1;
                    }
                    *v = current;
                }
            }
        }
    }
}

/// Packed numbers plus a base, from the first on.
fn unpack_packed(bytes: &[u8], at: usize, width: u32, base: i64, out: &mut [i64]) {
    if width == 0 {
        return out.fill(base);
    }
    for (i, v) in out.iter_mut().enumerate() {
        *v = base.wrapping_add(packed(bytes, at, i, width) as i64);
    }
}

#[cfg(test)]
#[path = "ints_tests.rs"]
mod tests;
