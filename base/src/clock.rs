//! Time, behind a trait, so that a simulation decides it.
//!
//! [`Clock::now_ns`] is for durations (monotonic, from an arbitrary start), [`Clock::wall_us`] for what people read.
//! No timestamp of the serialization order comes from here.

use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use crate::sync::{AtomicU64, Ordering};

/// A source of time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Nanoseconds since an arbitrary moment; never goes back.
    fn now_ns(&self) -> u64;

    /// Microseconds since 1970-01-01 UTC, as far as the machine knows.
    fn wall_us(&self) -> i64;

    /// Microseconds since the same moment as [`Clock::now_ns`].
    fn now_us(&self) -> u64 {
        self.now_ns() / 1_000
    }
}

/// The machine's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[allow(clippy::disallowed_methods, reason = "this is the one place that may ask the machine for the time")]
impl Clock for SystemClock {
    fn now_ns(&self) -> u64 {
        static START: OnceLock<Instant> = OnceLock::new();
        // 2^64 ns are 584 years.
        Instant::now().saturating_duration_since(*START.get_or_init(Instant::now)).as_nanos() as u64
    }

    fn wall_us(&self) -> i64 {
        match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => since.as_micros() as i64,
            Err(before) => -(before.duration().as_micros() as i64),
        }
    }
}

/// Processor time that the calling thread has used, in nanoseconds; 0 where the system does not tell.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    #[cfg(all(target_os = "linux", not(miri)))]
    return cpu_ns(rustix::time::ClockId::ThreadCPUTime);
    #[cfg(not(all(target_os = "linux", not(miri))))]
    0
}

/// Processor time that all threads of the process have used, in nanoseconds; 0 where the system does not tell.
#[must_use]
pub fn process_cpu_ns() -> u64 {
    #[cfg(all(target_os = "linux", not(miri)))]
    return cpu_ns(rustix::time::ClockId::ProcessCPUTime);
    #[cfg(not(all(target_os = "linux", not(miri))))]
    0
}

/// Processor time that the calling thread has used since `begun`, a reading of [`thread_cpu_ns`], in nanoseconds. 0 where
/// the reading went back, which it does by a little on some virtual machines.
#[must_use]
pub fn thread_cpu_since(begun: u64) -> u64 {
    thread_cpu_ns().saturating_sub(begun)
}

/// Processor time that all threads of the process have used since `begun`, a reading of [`process_cpu_ns`], as
/// [`thread_cpu_since`] gives it.
#[must_use]
pub fn process_cpu_since(begun: u64) -> u64 {
    process_cpu_ns().saturating_sub(begun)
}

#[cfg(all(target_os = "linux", not(miri)))]
fn cpu_ns(of: rustix::time::ClockId) -> u64 {
    let used = rustix::time::clock_gettime(of);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}

/// A clock that stands until its user moves it.
#[derive(Debug, Default)]
pub struct ManualClock {
    ns: AtomicU64,
    wall_start_us: i64,
}

impl ManualClock {
    /// A clock at 0 whose wall time starts at `wall_start_us`.
    #[must_use]
    pub const fn new(wall_start_us: i64) -> Self {
        Self { ns: AtomicU64::new(0), wall_start_us }
    }

    /// Moves the clock on.
    pub fn advance(&self, by: Duration) {
        self.ns.fetch_add(by.as_nanos() as u64, Ordering::AcqRel);
    }
}

impl Clock for ManualClock {
    fn now_ns(&self) -> u64 {
        self.ns.load(Ordering::Acquire)
    }

    fn wall_us(&self) -> i64 {
        self.wall_start_us + (self.now_ns() / 1_000) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_knows_the_time() {
        let clock = SystemClock;
        let first = clock.now_ns();
        assert!(clock.now_ns() >= first);
        assert!(clock.wall_us() > 1_700_000_000_000_000, "the wall clock stands before 2023");
    }

    #[test]
    fn a_manual_clock_moves_when_told() {
        let clock = ManualClock::new(5);
        assert_eq!((clock.now_ns(), clock.wall_us()), (0, 5));
        clock.advance(Duration::from_micros(7));
        assert_eq!((clock.now_us(), clock.wall_us()), (7, 12));
    }
}
