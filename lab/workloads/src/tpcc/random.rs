//! The random quantities of TPC-C, revision 5.11: clauses 2.1.6 (non-uniform numbers) and 4.3.2 (strings).
//!
//! Knows nothing of the engine. Everything is drawn from a [`Random`], so it depends on its seed alone.

use super::Scale;
use crate::random::Random;
use crate::text::Text;

/// The constants C of clause 2.1.6, one per field. All terminals of a run share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constants {
    /// For `C_LAST` while the population is generated ("C-Load").
    pub c_last_load: i64,
    /// For `C_LAST` in the transactions ("C-Run"): 65 to 119 away from C-Load, neither 96 nor 112 (clause 2.1.6.1).
    pub c_last_run: i64,
    /// For `C_ID`.
    pub c_id: i64,
    /// For `OL_I_ID`.
    pub ol_i_id: i64,
}

impl Constants {
    /// The constants that belong to `seed`: C-Load to the seed of the population, the others to that of the run.
    #[must_use]
    pub fn new(population_seed: u64, run_seed: u64) -> Self {
        const STREAM: u64 = 0x43; // a path of its own: no other stream of these seeds starts with it
        let c_last_load = Random::stream(population_seed, &[STREAM, 0]).between(0, 255);
        let mut random = Random::stream(run_seed, &[STREAM, 1]);
        let c_last_run = loop {
            let candidate = random.between(0, 255);
            let delta = (candidate - c_last_load).abs();
            if (65..=119).contains(&delta) && delta != 96 && delta != 112 {
                break candidate;
            }
        };
        Self { c_last_load, c_last_run, c_id: random.between(0, 1023), ol_i_id: random.between(0, 8191) }
    }
}

/// NURand(A, x, y) of clause 2.1.6, with the constant `c`.
#[inline]
pub fn nurand(random: &mut Random, a: i64, c: i64, low: i64, high: i64) -> i64 {
    (((random.between(0, a) | random.between(low, high)) + c) % (high - low + 1)) + low
}

/// A customer number for a transaction.
#[inline]
pub fn customer_id(random: &mut Random, constants: &Constants, scale: &Scale) -> i32 {
    nurand(random, 1023, constants.c_id, 1, i64::from(scale.customers)) as i32
}

/// An item number for a transaction.
#[inline]
pub fn item_id(random: &mut Random, constants: &Constants, scale: &Scale) -> i32 {
    nurand(random, 8191, constants.ol_i_id, 1, i64::from(scale.items)) as i32
}

/// A customer's last name for a transaction: one that exists in every district.
#[inline]
pub fn last_name_for_run(random: &mut Random, constants: &Constants, scale: &Scale) -> Text<16> {
    last_name(nurand(random, 255, constants.c_last_run, 0, i64::from(scale.last_names()) - 1))
}

/// The last name that belongs to `number` (clause 4.3.2.3): one syllable per decimal digit.
///
/// # Panics
/// If `number` is not in `0..=999`.
#[must_use]
pub fn last_name(number: i64) -> Text<16> {
    const SYLLABLES: [&str; 10] =
        ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
    assert!((0..=999).contains(&number), "last names are numbered 0 to 999, not {number}");
    let mut name = Text::EMPTY;
    for digit in [number / 100, number / 10 % 10, number % 10] {
        name.push_str(SYLLABLES[digit as usize]);
    }
    name
}

/// A string of exactly `length` characters of `alphabet`, eight from each random number.
#[inline]
fn characters<const N: usize>(random: &mut Random, alphabet: &[u8], length: usize) -> Text<N> {
    let mut text = Text::EMPTY;
    let mut left = length;
    while left > 0 {
        let mut bits = random.next_u64();
        for _ in 0..left.min(8) {
            // The upper half of the product is a digit, the lower half the rest of the fraction. Eight digits of base
            // 62 take 48 of the 64 bits: the bias is below 2^-16 of a character's probability.
            let product = u128::from(bits) * alphabet.len() as u128;
            text.push_ascii(alphabet[(product >> 64) as usize]);
            bits = product as u64;
        }
        left -= left.min(8);
    }
    text
}

const ALPHANUMERIC: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// "Random a-string [low .. high]": alphanumeric, of random length.
#[inline]
pub fn a_string<const N: usize>(random: &mut Random, low: usize, high: usize) -> Text<N> {
    const { assert!(N > 0) };
    let length = random.between(low as i64, high as i64) as usize;
    characters(random, ALPHANUMERIC, length)
}

/// "Random n-string [low .. high]": digits, of random length.
#[inline]
pub fn n_string<const N: usize>(random: &mut Random, low: usize, high: usize) -> Text<N> {
    let length = random.between(low as i64, high as i64) as usize;
    characters(random, b"0123456789", length)
}

/// A state: two letters.
#[inline]
pub fn state(random: &mut Random) -> Text<2> {
    characters(random, &ALPHANUMERIC[..26], 2)
}

/// A zip code (clause 4.3.2.7): four random digits and "11111".
#[inline]
pub fn zip(random: &mut Random) -> Text<9> {
    let mut zip: Text<9> = n_string(random, 4, 4);
    zip.push_str("11111");
    zip
}

/// The mark of an item or stock row that is an original brand.
pub const ORIGINAL: &str = "ORIGINAL";

/// `I_DATA` and `S_DATA`: an a-string [26 .. 50] that holds "ORIGINAL" at a random place in 10 % of the rows
/// (clause 4.3.3.1).
#[inline]
pub fn data_string(random: &mut Random) -> Text<50> {
    let plain: Text<50> = a_string(random, 26, 50);
    if !random.percent(10) {
        return plain;
    }
    let at = random.below((plain.len() - ORIGINAL.len() + 1) as u64) as usize;
    let mut data = Text::new(&plain[..at]);
    data.push_str(ORIGINAL);
    data.push_str(&plain[at + ORIGINAL.len()..]);
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_names_follow_the_examples_of_the_specification() {
        assert_eq!(&*last_name(371), "PRICALLYOUGHT");
        assert_eq!(&*last_name(40), "BARPRESBAR");
        assert_eq!(last_name(777).len(), 15);
    }

    #[test]
    fn the_constants_of_load_and_run_keep_their_distance() {
        for seed in 0..500 {
            let constants = Constants::new(seed, seed + 1);
            let delta = (constants.c_last_run - constants.c_last_load).abs();
            assert!((65..=119).contains(&delta) && delta != 96 && delta != 112, "{constants:?}");
            assert!((0..=255).contains(&constants.c_last_run));
            assert_eq!(constants, Constants::new(seed, seed + 1));
            assert_eq!(constants.c_last_load, Constants::new(seed, 0).c_last_load);
        }
    }

    #[test]
    fn non_uniform_numbers_stay_in_range_and_are_skewed() {
        let mut random = Random::new(1);
        let mut counts = vec![0u32; 3001];
        for _ in 0..300_000 {
            counts[nurand(&mut random, 1023, 77, 1, 3000) as usize] += 1;
        }
        assert_eq!(counts[0], 0);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let top: u32 = counts[..300].iter().sum();
        assert!(top > 60_000, "a tenth of the customers get {top} of 300,000 accesses: not skewed");
    }

    #[test]
    fn strings_have_their_lengths_and_alphabets() {
        let mut random = Random::new(2);
        let (mut shortest, mut longest, mut originals) = (usize::MAX, 0, 0);
        for _ in 0..2_000 {
            let text: Text<24> = a_string(&mut random, 14, 24);
            assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric()));
            shortest = shortest.min(text.len());
            longest = longest.max(text.len());
            let zip = zip(&mut random);
            assert!(zip.len() == 9 && zip.ends_with("11111") && zip.bytes().all(|b| b.is_ascii_digit()));
            assert!(state(&mut random).bytes().all(|byte| byte.is_ascii_uppercase()));
            let data = data_string(&mut random);
            assert!((26..=50).contains(&data.len()));
            originals += u32::from(data.contains(ORIGINAL));
        }
        assert_eq!((shortest, longest), (14, 24));
        assert!((140..260).contains(&originals), "{originals} of 2,000 are original");
    }
}
