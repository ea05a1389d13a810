//! The clock of the drivers: nanoseconds since some fixed moment, never going back.

use std::time::{Duration, Instant};

/// The moment of the call.
#[inline]
#[must_use]
#[allow(clippy::disallowed_methods, reason = "until base::clock is there")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Nanoseconds from `began` to now.
#[inline]
pub(crate) fn nanoseconds_since(began: Instant) -> u64 {
    u64::try_from((now() - began).as_nanos()).unwrap_or(u64::MAX)
}

/// A duration of `seconds`, which must be finite and not negative.
pub(crate) fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}
