//! The state that the sessions of a database have in common, and the part of a session that expressions ask.
//!
//! | module | holds |
//! |---|---|
//! | `activity` | what clients do |
//! | `advisory` | advisory locks: their holders and waiters |
//! | `interrupt` | how a statement is ended from outside |
//! | `facts` | a session as its expressions see it: settings, its number, the advisory locks that they ask for |

pub(crate) mod activity;
pub(crate) mod advisory;
pub(crate) mod facts;
pub(crate) mod interrupt;

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, LazyLock};

use thermocline_base::clock::SystemClock;
use thermocline_base::timer::Timer;

/// The state that sessions share: advisory locks, and numbers. A server has one for its database; sessions that are given none share that
/// of the process, whatever their databases are.
#[derive(Debug)]
pub struct Common {
    pub(crate) locks: Arc<advisory::Locks>,
    pub(crate) activity: activity::Activity,
    /// For waits with a limit.
    pub(crate) timer: Timer,
    next: AtomicI32,
}

impl Default for Common {
    fn default() -> Self {
        Self {
            locks: Arc::default(),
            activity: activity::Activity::default(),
            timer: Timer::new(Arc::new(SystemClock)),
            next: AtomicI32::new(1),
        }
    }
}

impl Common {
    /// That of the process.
    pub(crate) fn of_process() -> Arc<Self> {
        static PROCESS: LazyLock<Arc<Common>> = LazyLock::new(Arc::default);
        PROCESS.clone()
    }

    /// A number that no other session of these has.
    pub(crate) fn number(&self) -> i32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}
