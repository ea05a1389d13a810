//! The clock of the drivers: the machine's, even where a simulation decides the engine's.

use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

use thermocline_base::clock::{Clock, SystemClock};

/// A moment on a clock that never goes back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Moment {
    nanoseconds: u64,
}

/// The moment of the call.
#[inline]
pub(crate) fn now() -> Moment {
    Moment { nanoseconds: SystemClock.now_ns() }
}

impl Moment {
    /// From this moment to `later`; zero if it is not later.
    pub(crate) const fn until(self, later: Self) -> Duration {
        Duration::from_nanos(later.nanoseconds.saturating_sub(self.nanoseconds))
    }

    /// From this moment to now.
    pub(crate) fn elapsed(self) -> Duration {
        self.until(now())
    }

    /// Nanoseconds from this moment to now.
    #[inline]
    pub(crate) fn elapsed_ns(self) -> u64 {
        now().nanoseconds.saturating_sub(self.nanoseconds)
    }

    /// Seconds from `origin` to this moment; negative if the origin is later.
    pub(crate) fn seconds_after(self, origin: Self) -> f64 {
        origin.until(self).as_secs_f64() - self.until(origin).as_secs_f64()
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self { nanoseconds: self.nanoseconds.saturating_add(nanoseconds) }
    }
}

impl AddAssign<Duration> for Moment {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub for Moment {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        earlier.until(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_follow_each_other() {
        let first = now();
        let second = first + Duration::from_millis(5);
        assert_eq!(first.until(second), Duration::from_millis(5));
        assert_eq!(second.until(first), Duration::ZERO);
        assert!((first.seconds_after(second) + 0.005).abs() < 1e-9);
        assert!(now() >= first);
    }
}
