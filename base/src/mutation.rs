//! Rules of the protocols that a test can switch off.
//!
//! A rule that no test misses is a rule that no test checks. Each crate names the rules of its own protocols in an
//! `enum Rule`, numbered from a start of its own; [`off`] asks at the place of the rule whether it is switched off.
//! Outside of builds with the feature `model` the answer is the constant `false`, so the question costs nothing.
//!
//! A switch holds for the thread that set it, so tests run beside each other: a model-checked execution lives on one
//! operating-system thread, and the crash tests of a mutation drive the engine's steps from theirs.

/// A rule of some crate.
pub trait Switchable: Copy + std::fmt::Debug + std::panic::RefUnwindSafe {
    /// A number that no other rule of the program has: `base` counts from 1, `temperature` from 100, `pool` from 200, `engine`
    /// from 300.
    fn number(self) -> u32;
}

/// A rule of this crate that a test build can switch off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
#[non_exhaustive]
pub enum Rule {
    /// Freed memory waits for the epochs of its readers.
    RetireThroughEpoch = 1,
    /// A log record's checksum is bound to its position and generation.
    ChecksumBindsPosition,
}

impl Switchable for Rule {
    fn number(self) -> u32 {
        self as u32
    }
}

#[cfg(feature = "model")]
mod switch {
    use std::cell::Cell;

    use super::Switchable;

    thread_local! {
        static OFF: Cell<Option<u32>> = const { Cell::new(None) };
    }

    /// Keeps a rule switched off until it is dropped.
    #[derive(Debug)]
    #[must_use = "the rule is on again when this is dropped"]
    pub struct SwitchedOff(());

    /// Switches `rule` off on the calling thread for as long as the guard lives.
    pub fn switch_off(rule: impl Switchable) -> SwitchedOff {
        assert!(OFF.replace(Some(rule.number())).is_none(), "one mutation at a time");
        SwitchedOff(())
    }

    impl Drop for SwitchedOff {
        fn drop(&mut self) {
            OFF.set(None);
        }
    }

    /// True if `rule` is switched off.
    #[must_use]
    pub fn off(rule: impl Switchable) -> bool {
        OFF.get() == Some(rule.number())
    }

    /// True unless `rule` is switched off.
    #[must_use]
    pub fn on(rule: impl Switchable) -> bool {
        !off(rule)
    }
}

#[cfg(feature = "model")]
pub use switch::{SwitchedOff, off, on, switch_off};

/// True if `rule` is switched off: never outside of model builds.
#[cfg(not(feature = "model"))]
#[inline(always)]
#[must_use]
pub fn off(_rule: impl Switchable) -> bool {
    false
}

/// True unless `rule` is switched off: always outside of model builds.
#[cfg(not(feature = "model"))]
#[inline(always)]
#[must_use]
pub fn on(_rule: impl Switchable) -> bool {
    true
}
