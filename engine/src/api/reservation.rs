//! Memory that a program above the engine keeps for its queries, charged to the memory limit.
//!
//! All reservations together have a share of the limit ([`share`]), so that queries neither push out all rows nor fill what
//! the process needs beside what is counted.

use std::sync::Arc;

use crate::api::Database;
use crate::error::{Error, Result};
use crate::hot::budget::{Charge, MemoryKind, OutOfMemory, OutOfMemoryCause};
use crate::pressure::Verdict;
use crate::session::db::Inner;

/// The first bytes of a limit, of which queries have less: what a process takes beside what is counted is much there.
const SMALL: u64 = 256 << 20;

/// The share of a memory limit that queries keep at the most: a sixth of a small one, and half of what it has beyond.
fn share(limit: u64) -> u64 {
    limit.min(SMALL) / 6 + limit.saturating_sub(SMALL) / 2
}

/// Memory that is charged to a database's limit for as long as this lives.
///
/// ```
/// use thermocline_engine::{Database, Options};
///
/// # fn main() -> thermocline_engine::Result<()> {
/// let db = Database::open_in_memory(Options::default().with_memory_limit(Some(64 << 20)))?;
/// let mut kept = db.reservation();
/// kept.add(1 << 20)?;
/// assert_eq!(db.statistics().memory.queries, 1 << 20);
/// assert_eq!(kept.add(1 << 30).expect_err("it is more than the limit").sqlstate(), "53200");
/// drop(kept);
/// assert_eq!(db.statistics().memory.queries, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Reservation {
    db: Arc<Inner>,
    charge: Charge,
}

impl Database {
    /// A reservation of nothing so far.
    #[must_use]
    pub fn reservation(&self) -> Reservation {
        let db = Arc::clone(self.inner());
        let charge = Charge::none(&db.budget, MemoryKind::Queries);
        Reservation { db, charge }
    }
}

impl Reservation {
    /// Its database.
    pub(super) fn database(&self) -> &Inner {
        &self.db
    }

    /// The memory limit of its database, in bytes.
    #[must_use]
    pub fn memory_limit(&self) -> Option<u64> {
        self.db.budget.limit()
    }

    /// Bytes that it has.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.charge.bytes()
    }

    fn try_add(&mut self, bytes: u64) -> std::result::Result<(), OutOfMemory> {
        let budget = &self.db.budget;
        let used_bytes = budget.used_by(MemoryKind::Queries);
        if let Some(limit_bytes) = budget.limit().map(share)
            && used_bytes.saturating_add(bytes) > limit_bytes
        {
            let (kind, cause) = (MemoryKind::Queries, OutOfMemoryCause::Limit);
            return Err(OutOfMemory { kind, asked_bytes: bytes, used_bytes, limit_bytes, cause });
        }
        self.charge.add(bytes)
    }

    /// Takes so many bytes more, at once.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]: the limit, or the share that queries have of it, does not allow them; nothing is taken then.
    pub fn add(&mut self, bytes: u64) -> Result<()> {
        self.try_add(bytes).map_err(Error::OutOfMemory)
    }

    /// The same; where rows can leave memory for that, it waits for them.
    ///
    /// # Errors
    /// As [`Reservation::add`].
    pub async fn add_waiting(&mut self, bytes: u64) -> Result<()> {
        let since_ns = self.db.clock.now_ns();
        loop {
            let Err(refused) = self.try_add(bytes) else { return Ok(()) };
            let of_share = self.db.budget.limit().is_some_and(|limit| refused.limit_bytes == share(limit));
            if of_share || !self.db.governor.is_there() {
                return Err(Error::OutOfMemory(refused));
            }
            if self.db.governor.wait_for_room(None, 0, since_ns).await == Verdict::Refused {
                return Err(Error::OutOfMemory(refused));
            }
        }
    }

    /// Gives so many bytes back, at most all.
    pub fn give_back(&mut self, bytes: u64) {
        self.charge.give_back(bytes);
    }
}
