//! Names of people with the skew of real ones, for columns whose values repeat: 88,800 generated surnames, drawn by rank.
//!
//! In place of the surnames of the census of the United States (1990: 88,799 names, the most frequent one 1.006 % of the
//! people), which Funke, Kemper and Neumann (Compacting Transactional Data in Hybrid OLTP & OLAP Databases, VLDB 2012, §5) draw from:
//! the name of rank r is drawn in proportion to r^-0.7, which gives the first one 0.98 %. Names are put together of syllables
//! and have 3 to 12 letters, 6.6 as drawn.

use crate::random::{Random, mix64};

/// Different names.
pub const SURNAMES: usize = 88_800;
const SKEW: f64 = 0.7;

/// The names, with what it takes to draw one.
#[derive(Clone, Debug)]
pub struct Surnames {
    names: Vec<String>,
    /// The share of all people whose name has at most this rank.
    shares: Vec<f64>,
}

impl Default for Surnames {
    fn default() -> Self {
        Self::new()
    }
}

impl Surnames {
    /// The names; they are always the same.
    #[must_use]
    pub fn new() -> Self {
        let weights = (1..=SURNAMES).map(|rank| (rank as f64).powf(-SKEW));
        let mut shares: Vec<f64> = weights
            .scan(0.0, |sum, weight| {
                *sum += weight;
                Some(*sum)
            })
            .collect();
        let all = shares.last().copied().unwrap_or(1.0);
        shares.iter_mut().for_each(|share| *share /= all);
        let mut seen = std::collections::HashSet::with_capacity(SURNAMES);
        let mut names = Vec::with_capacity(SURNAMES);
        for number in 0u64.. {
            if names.len() == SURNAMES {
                break;
            }
            let name = name(mix64(number), names.len());
            if seen.insert(name.clone()) {
                names.push(name);
            }
        }
        Self { names, shares }
    }

    /// A name.
    pub fn draw(&self, random: &mut Random) -> &str {
        let share = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        &self.names[self.shares.partition_point(|upper| *upper <= share).min(SURNAMES - 1)]
    }
}

/// A name of two to four syllables; frequent ones are shorter.
fn name(bits: u64, rank: usize) -> String {
    const STARTS: [&str; 24] = [
        "B", "BR", "C", "CH", "D", "F", "G", "GR", "H", "J", "K", "L", "M", "N", "P", "R", "S", "SCH", "ST",
        "T", "V", "W", "Z", "TR",
    ];
    const VOWELS: [&str; 8] = ["A", "E", "I", "O", "U", "EA", "OO", "Y"];
    const ENDS: [&str; 16] =
        ["", "N", "R", "S", "L", "LL", "RD", "NG", "TH", "CK", "M", "Z", "NS", "TT", "", ""];
    let mut rest = bits;
    let mut take = |from: &[&'static str]| {
        let part = from[(rest % from.len() as u64) as usize];
        rest = mix64(rest / from.len() as u64);
        part
    };
    let syllables =
        if rank < 4_000 { 1 + bits as usize % 2 } else { 2 + usize::from(bits.is_multiple_of(3)) };
    let mut name = String::new();
    for _ in 0..syllables {
        name.push_str(take(&STARTS));
        name.push_str(take(&VOWELS));
    }
    name.push_str(take(&ENDS));
    name.push_str(if name.len() < 3 { "ON" } else { "" });
    name.truncate(12);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_drawn_as_skewed_as_the_census_has_them() {
        let names = Surnames::new();
        assert_eq!(names.names.len(), SURNAMES);
        assert!((0.0095..0.0102).contains(&names.shares[0]), "{}", names.shares[0]);
        let mut random = Random::new(1);
        let drawn: Vec<&str> = (0..20_000).map(|_| names.draw(&mut random)).collect();
        let first = drawn.iter().filter(|name| **name == names.names[0]).count();
        assert!((150..250).contains(&first), "{first}");
        let letters = drawn.iter().map(|name| name.len()).sum::<usize>() as f64 / drawn.len() as f64;
        assert!((6.0..7.2).contains(&letters), "{letters}");
        assert!(names.names.iter().all(|name| (3..=12).contains(&name.len())));
    }
}
