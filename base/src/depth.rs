//! The depth of tests.
//!
//! ```text
//!                     cargo test, .ci/run          .ci/deep (THERMOCLINE_DEEP=1)
//!   places of a run   a sample                     all of them, or a larger sample
//!   seed              0                            THERMOCLINE_SEED, which .ci/deep draws and prints
//!   times             not asserted                 asserted, where a test is about them
//! ```
//!
//! A test of the gate passes or fails in the same way on every machine, however busy.

use std::sync::OnceLock;

/// Was a deep run asked for?
#[must_use]
pub fn is_deep() -> bool {
    static DEEP: OnceLock<bool> = OnceLock::new();
    *DEEP.get_or_init(|| std::env::var_os("THERMOCLINE_DEEP").is_some_and(|value| value != "0"))
}

/// `few` in the gate, `many` in a deep run.
#[must_use]
pub fn either<T>(few: T, many: T) -> T {
    if is_deep() { many } else { few }
}

/// The number that the seeds of samples are counted from: `THERMOCLINE_SEED`, or 0.
///
/// # Panics
/// `THERMOCLINE_SEED` is no number of 32 bits.
#[must_use]
pub fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| match std::env::var("THERMOCLINE_SEED") {
        Ok(text) => match text.parse::<u32>() {
            Ok(seed) => u64::from(seed),
            Err(_) => panic!("THERMOCLINE_SEED is a number of 32 bits, not {text:?}"),
        },
        Err(_) => 0,
    })
}
