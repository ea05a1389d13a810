//! How much the log gets: what a client can cause at will is told so many times a minute, and counted beyond that.

use std::sync::atomic::{AtomicU64, Ordering};

use thermocline_base::clock::{Clock, SystemClock};

/// Lines of one kind a minute.
const LINES: u64 = 100;
/// Longest message of a panic that is told, in bytes.
const MESSAGE_BYTES: usize = 1000;

/// Lines of one kind in the present minute.
#[derive(Debug)]
pub(crate) struct Quota {
    what: &'static str,
    minute: AtomicU64,
    lines: AtomicU64,
}

/// Connections that end with an error.
pub(crate) static ENDS: Quota = Quota::new("connections that have ended");
/// Clients that were not let in.
pub(crate) static REFUSALS: Quota = Quota::new("clients that were not let in");
/// Panics.
static PANICS: Quota = Quota::new("panics");

impl Quota {
    const fn new(what: &'static str) -> Self {
        Self { what, minute: AtomicU64::new(0), lines: AtomicU64::new(0) }
    }

    /// May one more line be written?
    pub(crate) fn allows(&self) -> bool {
        self.allows_at(SystemClock.now_ns() / 60_000_000_000)
    }

    fn allows_at(&self, minute: u64) -> bool {
        if self.minute.swap(minute, Ordering::Relaxed) != minute {
            let passed_over = self.lines.swap(0, Ordering::Relaxed).saturating_sub(LINES);
            if passed_over > 0 {
                tracing::warn!(passed_over, "lines about {} were left out", self.what);
            }
        }
        self.lines.fetch_add(1, Ordering::Relaxed) < LINES
    }
}

/// Lets a panic be one line of the log, without the way that led there.
pub fn tell_panics_in_a_line() {
    std::panic::set_hook(Box::new(|info| {
        if !PANICS.allows() {
            return;
        }
        let payload = info.payload();
        let message = payload.downcast_ref::<&str>().copied();
        let message = message.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("");
        let end = message.floor_char_boundary(MESSAGE_BYTES.min(message.len()));
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(%place, message = &message[..end], "a panic; the connection that met it is closed");
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_has_so_many_lines() {
        let quota = Quota::new("tests");
        let count = |minute| (0..3 * LINES).filter(|_| quota.allows_at(minute)).count() as u64;
        assert_eq!(count(1), LINES);
        assert_eq!(count(2), LINES);
        assert_eq!(count(2), 0);
    }
}
