//! Options of a database and of a transaction.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use thermocline_base::io::{File, Io};
pub use thermocline_pool::cache::CacheKind as SsdPolicy;
pub use thermocline_pool::simulate::capture::PageCapture;
use thermocline_pool::ssd::Lent;

use crate::error::{Error, Result};
use crate::schema::Tiering;

/// Path of databases that live in memory only.
pub(crate) const IN_MEMORY: &str = ":memory:";

/// When a commit is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// When it is on disk; written at once.
    Sync,
    /// When it is on disk; may wait up to a millisecond for company.
    #[default]
    Group,
    /// At once; it reaches the disk within 50 ms. A crash loses at most that, and nothing out of order.
    Async,
    /// At once, and nothing is logged: a crash loses everything since the last clean close.
    Off,
}

/// Where rows go that leave memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum ColdStoreKind {
    /// Pages of a file, behind access filters.
    #[default]
    Pages,
    /// A file in which the primary key says where a row stands (Eldawy et al., VLDB 2014, §6.1.3).
    Direct,
    /// Memory: shows what the machinery costs without a device. For measurements only: rows that have left memory are gone
    /// when the database is closed.
    Memory,
}

/// The isolation of a transaction from others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Isolation {
    /// Each statement sees what was committed before it.
    ReadCommitted,
    /// The transaction sees what was committed before it began; of two transactions that change a row, the second fails
    /// (PostgreSQL's *repeatable read*).
    #[default]
    Snapshot,
    /// Snapshot, and what was read is still so at the commit.
    RepeatableRead,
    /// As if transactions ran one after the other.
    Serializable,
}

macro_rules! names {
    ($type:ident, $option:literal, $($variant:ident = $name:literal),+) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $name),+ })
            }
        }

        impl FromStr for $type {
            type Err = Error;

            fn from_str(name: &str) -> Result<Self> {
                match name {
                    $($name => Ok(Self::$variant),)+
                    _ => Err(Error::InvalidOption {
                        option: $option,
                        reason: format!("{name:?} is not one of {}", [$($name),+].join(", ")),
                    }),
                }
            }
        }
    };
}

/// The pager of the rows of tables with `tiering = paged`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum PagerKind {
    /// Frames of ours over a file: whoever needs a page awaits it.
    #[default]
    Own,
    /// The operating system: whoever needs a page sleeps in a fault (Stoica and Ailamaki, DaMoN 2013).
    Os,
}

names!(PagerKind, "pager", Own = "own", Os = "os");
names!(Durability, "durability", Sync = "sync", Group = "group", Async = "async", Off = "off");
names!(ColdStoreKind, "cold_store", Pages = "pages", Direct = "direct", Memory = "memory");
names!(
    Isolation,
    "isolation",
    ReadCommitted = "read-committed",
    Snapshot = "snapshot",
    RepeatableRead = "repeatable-read",
    Serializable = "serializable"
);

/// The part of the memory limit that the pager's frames are, unless [`Options::paged_bytes`] says it; and their bytes without a limit. A row in
/// memory is worth more than its page is: rows that are used come back, and a page holds neighbours that may not be.
const PAGED_SHARE: u64 = 32;
const PAGED_BYTES: u64 = 64 << 20;
/// Pages on their way to memory that is lent: a part of the memory limit, within bounds.
const LENT_BUFFER_SHARE: u64 = 64;
const LENT_BUFFER_MIN: u64 = 256 << 10;
const LENT_BUFFER_MAX: u64 = 4 << 20;
/// Less is not worth the map of it.
const LENT_BYTES_MIN: u64 = 4 << 20;

/// Options of a database.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// When commits are acknowledged.
    pub durability: Durability,
    /// Bytes of memory for the database: anonymous memory of the process that it takes, its buffers and threads included;
    /// `None`: 80 % of what the machine (or its control group) has. With the GNU C library opening a database has the
    /// allocator give back long pieces when they are free (`mallopt`), for the whole process.
    pub memory_limit: Option<u64>,
    /// Isolation of transactions that do not say.
    pub isolation: Isolation,
    /// Transactions that do nothing for longer are aborted; `None`: never.
    pub idle_limit: Option<Duration>,
    /// The number of times that [`crate::Database::transaction`] runs a transaction again that could not be serialized.
    pub retries: u32,
    /// Log bytes since the last checkpoint that start one.
    pub checkpoint_log_bytes: u64,
    /// Time since the last checkpoint that starts one if anything was logged.
    pub checkpoint_interval: Duration,
    /// Size of the log's ring in memory; a power of two, at least 8 MiB. No more than a sixteenth of the memory limit is
    /// taken, as long as that leaves the 8 MiB.
    pub log_buffer_bytes: u64,
    /// Size of a log segment on disk.
    pub log_segment_bytes: u64,
    /// The longest wait of a change of a table's definition for transactions that use the table.
    pub definition_wait: Duration,
    /// Open without ever writing. The directory must hold a database.
    pub read_only: bool,
    /// Where rows go that leave memory.
    pub cold_store: ColdStoreKind,
    /// Where the cold store lies: an empty directory, or one that does not exist, on whatever device is right for rows that are
    /// seldom asked for. `None`: where it is, and inside the database's directory at first. The database remembers it.
    pub cold_dir: Option<PathBuf>,
    /// Where the rows of a table may go that is made without saying it.
    pub tiering: Tiering,
    /// The pager of the rows of tables with `tiering = paged`.
    pub pager: PagerKind,
    /// A directory for the pages of such tables; the file in it has no name, and nothing durable. `None`: the database's own.
    pub paged_dir: Option<PathBuf>,
    /// Bytes of pages of such tables that may be in memory at once, of the memory limit; taken when the first row goes over. 0: a 32nd of
    /// the limit. Not more than half of it.
    pub paged_bytes: u64,
    /// Where the pages of such tables are while they are not in memory, in place of a file in [`Options::paged_dir`]: memory of other
    /// machines, for instance. It is empty. For the pager `own`, and for one opening of one database.
    pub paged_file: Option<Arc<dyn File>>,
    /// Memory of other machines, as a file that ends with the process: copies of pages of the cold store and of paged tables are kept
    /// there, and read before the files. What is in it may be lost at any time; no row depends on it. For one opening of one
    /// database, with the kind `pages` and the pager `own`, and instead of an SSD. `None`: there is none.
    pub lent_file: Option<Arc<dyn File>>,
    /// Bytes of that which may be used. Three quarters are for the side that [`Options::tiering`] sends rows to, paged tables or the cold
    /// store, and the rest for the other one.
    pub lent_bytes: u64,
    /// A file on a fast local device that keeps copies of the pages of the cold store which are read most. It may be lost at any
    /// time; no row depends on it. For the kind `pages` only. `None`: there is none.
    pub ssd_cache: Option<PathBuf>,
    /// The length of that file: its space is taken when the cold store is opened.
    pub ssd_cache_bytes: u64,
    /// Which pages it keeps. Free to change at each opening.
    pub ssd_policy: SsdPolicy,
    /// The pages of the SSD keep their warmth when merges of the cold store write them anew. Off, each merge leaves its part of the
    /// store cold, as with caches that go by the place of a page.
    pub ssd_heat_across_merges: bool,
    /// Which share of the accesses to rows in memory is sampled to tell hot rows from cold ones, once memory is short:
    /// from 0 (none: rows leave memory in the order in which they came) to 1.
    pub sampling: f64,
    /// Batches of rows (of up to 512) that leave memory at the same time, while it is short: from 1 to 64. More of them
    /// hide more of the store's latency, and take more of the processors from transactions.
    pub batches_in_flight: usize,
    /// One hot row comes back from the cold store for so many cold reads, at most, while the hot set is at rest; eight times
    /// as many while it moves. 0: rows come back only when they are changed.
    pub reads_a_promotion: u32,
    /// Threads that freeze chunks, of tables with `tiering = frozen` always, of those with `auto` while memory is short, and let frozen
    /// chunks leave memory: up to 16. 0: only [`crate::Database::freeze`] freezes, and rows leave one by one.
    pub freeze_threads: usize,
    /// The time that rows have to be left alone before they freeze, roughly, and at least.
    pub freeze_after: Duration,
    /// Threads that recovery and verification use; `None`: one for each processor.
    pub threads: Option<usize>,
    /// Log payload above which a transaction is written in parts. The smallest buffer is 8 times, the smallest segment
    /// a sixteenth of it: tests make it small.
    #[doc(hidden)]
    pub part_bytes: u64,
    /// Memory of a block of the cold store `pages`; tests make it small, and with it the store's files.
    #[doc(hidden)]
    pub cold_block_bytes: usize,
    /// Threads of the cold store. 0: tests drive its steps.
    #[doc(hidden)]
    pub cold_threads: usize,
    /// The way to the file of the SSD; `None`: as a file of the machine.
    #[doc(hidden)]
    pub ssd_io: Option<Arc<dyn Io>>,
    /// Has a trace of what the page file of the cold store is asked for, below its frames; benchmarks do.
    #[doc(hidden)]
    pub page_capture: Option<Arc<PageCapture>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            durability: Durability::default(),
            memory_limit: None,
            isolation: Isolation::default(),
            idle_limit: Some(Duration::from_secs(300)),
            retries: 100,
            checkpoint_log_bytes: 4 << 30,
            checkpoint_interval: Duration::from_secs(30),
            log_buffer_bytes: 32 << 20,
            log_segment_bytes: (64 << 20) - 4096,
            definition_wait: Duration::from_secs(10),
            read_only: false,
            cold_store: ColdStoreKind::default(),
            cold_dir: None,
            tiering: Tiering::default(),
            pager: PagerKind::default(),
            paged_dir: None,
            paged_bytes: 0,
            paged_file: None,
            lent_file: None,
            lent_bytes: 0,
            ssd_cache: None,
            ssd_cache_bytes: 0,
            ssd_policy: thermocline_pool::ssd::DEFAULT_POLICY,
            ssd_heat_across_merges: true,
            sampling: 0.1,
            batches_in_flight: 8,
            reads_a_promotion: 32,
            freeze_threads: 1,
            freeze_after: Duration::from_secs(2),
            threads: None,
            part_bytes: 1 << 20,
            cold_block_bytes: 4 << 20,
            cold_threads: 1,
            ssd_io: None,
            page_capture: None,
        }
    }
}

macro_rules! with {
    ($($name:ident, $field:ident: $ty:ty;)+) => {
        impl Options {
            $(
                #[doc = concat!("Sets [`Options::", stringify!($field), "`].")]
                #[must_use]
                pub fn $name(mut self, value: $ty) -> Self {
                    self.$field = value;
                    self
                }
            )+
        }
    };
}

with! {
    with_durability, durability: Durability;
    with_memory_limit, memory_limit: Option<u64>;
    with_isolation, isolation: Isolation;
    with_idle_limit, idle_limit: Option<Duration>;
    with_retries, retries: u32;
    with_checkpoint_log_bytes, checkpoint_log_bytes: u64;
    with_checkpoint_interval, checkpoint_interval: Duration;
    with_log_buffer_bytes, log_buffer_bytes: u64;
    with_log_segment_bytes, log_segment_bytes: u64;
    with_definition_wait, definition_wait: Duration;
    with_read_only, read_only: bool;
    with_cold_store, cold_store: ColdStoreKind;
    with_cold_dir, cold_dir: Option<PathBuf>;
    with_tiering, tiering: Tiering;
    with_pager, pager: PagerKind;
    with_paged_dir, paged_dir: Option<PathBuf>;
    with_paged_bytes, paged_bytes: u64;
    with_paged_file, paged_file: Option<Arc<dyn File>>;
    with_lent_file, lent_file: Option<Arc<dyn File>>;
    with_lent_bytes, lent_bytes: u64;
    with_ssd_cache, ssd_cache: Option<PathBuf>;
    with_ssd_cache_bytes, ssd_cache_bytes: u64;
    with_ssd_policy, ssd_policy: SsdPolicy;
    with_ssd_heat_across_merges, ssd_heat_across_merges: bool;
    with_page_capture, page_capture: Option<Arc<PageCapture>>;
    with_ssd_io, ssd_io: Option<Arc<dyn Io>>;
    with_sampling, sampling: f64;
    with_batches_in_flight, batches_in_flight: usize;
    with_reads_a_promotion, reads_a_promotion: u32;
    with_freeze_threads, freeze_threads: usize;
    with_freeze_after, freeze_after: Duration;
    with_threads, threads: Option<usize>;
    with_part_bytes, part_bytes: u64;
    with_cold_block_bytes, cold_block_bytes: usize;
    with_cold_threads, cold_threads: usize;
}

impl Options {
    pub(crate) fn check(&self) -> Result<()> {
        let bad = |option, reason: &str| Err(Error::InvalidOption { option, reason: reason.to_owned() });
        if self.memory_limit.is_some_and(|limit| limit < 16 << 20) {
            return bad(
                "memory_limit",
                "at least 16 MiB are needed, and some 26 MiB where rows can leave memory",
            );
        }
        if !self.log_buffer_bytes.is_power_of_two() || self.log_buffer_bytes < 8 * self.part_bytes {
            return bad("log_buffer_bytes", "a power of two from 8 MiB on is needed");
        }
        if self.log_segment_bytes < self.part_bytes / 16 || !self.log_segment_bytes.is_multiple_of(8) {
            return bad("log_segment_bytes", "a multiple of 8 from 64 KiB on is needed");
        }
        if !(0.0..=1.0).contains(&self.sampling) {
            return bad("sampling", "a share from 0 to 1 is needed");
        }
        if !(1..=64).contains(&self.batches_in_flight) {
            return bad("batches_in_flight", "a number from 1 to 64 is needed");
        }
        if self.freeze_threads > 16 {
            return bad("freeze_threads", "a number up to 16 is needed");
        }
        if self.ssd_cache.is_some() {
            if self.cold_store != ColdStoreKind::Pages {
                let reason = format!("it keeps pages of cold_store = pages, and this is {}", self.cold_store);
                return bad("ssd_cache", &reason);
            }
            if self.ssd_cache_bytes == 0 {
                return bad("ssd_cache_bytes", "say how long the file of ssd_cache is to be");
            }
        }
        if self.lent_file.is_some() {
            if self.ssd_cache.is_some() {
                return bad(
                    "ssd_cache",
                    "copies of pages are on an SSD, or on memory of other machines; name one of them",
                );
            }
            if self.lent_bytes < LENT_BYTES_MIN {
                return bad("lent_bytes", "at least 4 MiB are needed for copies of pages");
            }
        }
        if !self.ssd_policy.is_online() {
            return bad("ssd_policy", "this one has to know the future; name another one");
        }
        if let Some(limit) = self.memory_limit
            && self.paged_bytes > limit / 2
        {
            let reason = format!(
                "{} bytes are more than half of memory_limit, {limit} bytes: indexes and rows in use need the rest",
                self.paged_bytes
            );
            return bad("paged_bytes", &reason);
        }
        if self.paged_file.is_some() && self.pager != PagerKind::Own {
            return bad("pager", "pages in a file of yours are read by the pager own alone");
        }
        if self.threads == Some(0) {
            return bad("threads", "at least one is needed");
        }
        Ok(())
    }
}

impl Options {
    /// The part of the memory that is lent which copies of the cold store's pages have, or of paged tables' (`paged`).
    pub(crate) fn lent_to(&self, paged: bool) -> Option<Lent> {
        let file = self.lent_file.as_ref().filter(|_| !self.read_only)?;
        // The cold store's is in front.
        let quarter = self.lent_bytes / 4;
        let cold_bytes = if self.tiering == Tiering::Paged { quarter } else { self.lent_bytes - quarter };
        let bytes = if paged { cold_bytes..self.lent_bytes } else { 0..cold_bytes };
        let buffer_bytes = self.memory_limit.map_or(LENT_BUFFER_MAX, |limit| limit / LENT_BUFFER_SHARE);
        let buffer_pages = buffer_bytes.clamp(LENT_BUFFER_MIN, LENT_BUFFER_MAX) / 4096;
        Some(Lent { file: Arc::clone(file), bytes, buffer_pages: buffer_pages as usize })
    }

    /// Bytes of the pager's frames under a memory limit.
    pub(crate) fn paged_frame_bytes(&self, limit: Option<u64>) -> u64 {
        match (self.paged_bytes, limit) {
            (0, Some(limit)) => limit / PAGED_SHARE,
            (0, None) => PAGED_BYTES,
            (wanted, _) => wanted,
        }
    }

    /// The size of the log's ring under a memory limit.
    pub(crate) fn log_buffer_within(&self, limit: Option<u64>) -> u64 {
        let Some(limit) = limit else { return self.log_buffer_bytes };
        let share = (limit / 32 + 1).next_power_of_two() / 2;
        self.log_buffer_bytes.min(share.max(8 * self.part_bytes))
    }
}

/// Options of a transaction.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct TransactionOptions {
    /// Isolation; `None`: the database's.
    pub isolation: Option<Isolation>,
    /// Refuses writes.
    pub read_only: bool,
    /// Fails at once instead of waiting for another transaction's row.
    pub no_wait: bool,
}

impl TransactionOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the isolation.
    #[must_use]
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = Some(isolation);
        self
    }

    /// Refuses writes. A serializable read-only transaction needs no validation.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Fails at once with [`Error::WouldWait`] instead of waiting.
    #[must_use]
    pub fn no_wait(mut self) -> Self {
        self.no_wait = true;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for isolation in [
            Isolation::ReadCommitted,
            Isolation::Snapshot,
            Isolation::RepeatableRead,
            Isolation::Serializable,
        ] {
            assert_eq!(isolation.to_string().parse::<Isolation>().expect("its own name"), isolation);
        }
        for durability in [Durability::Sync, Durability::Group, Durability::Async, Durability::Off] {
            assert_eq!(durability.to_string().parse::<Durability>().expect("its own name"), durability);
        }
        let error = "fast".parse::<Durability>().expect_err("no such mode").to_string();
        assert!(error.contains("sync, group, async, off"), "{error}");
    }
}
