//! Finds the distinct values of a column, and gives each value its rank among them.
//!
//! Rule: the search gives up as soon as there are more distinct values than a dictionary could win by; columns without
//! repetition cost a look at their first rows.

use rapidhash::v3::rapidhash_v3;

/// Reused from column to column.
#[derive(Debug, Default)]
pub(crate) struct Distinct {
    /// Open addressing: the upper half of a hash, and the number of the distinct value plus one.
    slots: Vec<u64>,
    numbers: Vec<u32>,
}

impl Distinct {
    /// The values at hidden places are not looked at. `None`: there are more than `limit` distinct ones, or they repeat so
    /// seldom at first that a dictionary is not to be expected.
    fn number<T: Copy>(
        &mut self,
        count: usize,
        limit: usize,
        hidden: impl Fn(usize) -> bool,
        value: impl Fn(usize) -> T,
        hash: impl Fn(T) -> u64,
        equal: impl Fn(T, T) -> bool,
    ) -> Option<Vec<T>> {
        let mut distinct: Vec<T> = Vec::new();
        let size = (2 * limit.min(count) + 2).next_power_of_two();
        self.slots.clear();
        self.slots.resize(size, 0);
        self.numbers.clear();
        let mut last = 0;
        for i in 0..count {
            if hidden(i) {
                self.numbers.push(last);
                continue;
            }
            let v = value(i);
            let hash = hash(v);
            let mut at = hash as usize & (size - 1);
            last = loop {
                let slot = self.slots[at];
                if slot == 0 {
                    if distinct.len() >= limit || (i == EARLY && distinct.len() * 32 > EARLY * 31) {
                        return None;
                    }
                    distinct.push(v);
                    self.slots[at] = hash >> 32 << 32 | distinct.len() as u64;
                    break distinct.len() as u32 - 1;
                }
                let found = slot as u32 - 1;
                if slot >> 32 == hash >> 32 && equal(distinct[found as usize], v) {
                    break found;
                }
                at = (at + 1) & (size - 1);
            };
            self.numbers.push(last);
        }
        Some(distinct)
    }

    /// Replaces the numbers by ranks; `order` names the numbers in ascending order of their values.
    fn ranks(&self, order: impl ExactSizeIterator<Item = u32>) -> Vec<i64> {
        let mut rank = vec![0i64; order.len()];
        order.zip(0..).for_each(|(number, place)| rank[number as usize] = place);
        self.numbers.iter().map(|number| rank.get(*number as usize).copied().unwrap_or(0)).collect()
    }

    /// The distinct integers in ascending order, and each value's place among them.
    pub(crate) fn integers<T: Copy + Ord + Into<i128>>(
        &mut self,
        values: &[T],
        limit: usize,
        hidden: impl Fn(usize) -> bool,
    ) -> Option<(Vec<T>, Vec<i64>)> {
        let hash = |v: T| {
            let wide: i128 = v.into();
            let folded = wide as u64 ^ ((wide >> 64) as u64).rotate_left(32);
            let mixed = (folded ^ folded >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            mixed ^ mixed >> 29
        };
        let distinct = self.number(values.len(), limit, hidden, |i| values[i], hash, |a, b| a == b)?;
        let mut sorted: Vec<(T, u32)> = distinct.into_iter().zip(0..).collect();
        sorted.sort_unstable();
        let ranks = self.ranks(sorted.iter().map(|(_, number)| *number));
        Some((sorted.into_iter().map(|(v, _)| v).collect(), ranks))
    }

    /// The same of strings; `value` gives the one at a place.
    pub(crate) fn strings<'a>(
        &mut self,
        count: usize,
        limit: usize,
        hidden: impl Fn(usize) -> bool,
        value: impl Fn(usize) -> &'a [u8],
    ) -> Option<(Vec<&'a [u8]>, Vec<i64>)> {
        let distinct = self.number(count, limit, hidden, value, rapidhash_v3, |a, b| a == b)?;
        // The first eight bytes decide nearly always, without a look at the strings.
        let keyed = |(string, number): (&'a [u8], u32)| (super::physical::bytes_key(string), string, number);
        let mut sorted: Vec<(i64, &[u8], u32)> = distinct.into_iter().zip(0..).map(keyed).collect();
        sorted.sort_unstable();
        let ranks = self.ranks(sorted.iter().map(|(_, _, number)| *number));
        Some((sorted.into_iter().map(|(_, string, _)| string).collect(), ranks))
    }
}

/// After so many values a column that has hardly repeated one is given up.
const EARLY: usize = 4096;
