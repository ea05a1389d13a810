//! The level below the frames: copies of pages of a slow page file on a fast medium that may vanish, an SSD or the memory of other
//! machines.
//!
//! ```text
//!   PageDevice::read ──► table ──on the SSD──► read its slot ──whole, this page, this version──► answer
//!                          │                      └─ anything else: dropped, and the same future goes on to
//!                          ▼ not there                                            │
//!                       primary ◄─────────────────────────────────────────────────┘
//!                          └─ checked ──► policy ──► buffer ──► writer ──► slot
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | `file` | the file: header and slots |
//! | `table` | what lies where, under one lock |
//! | `read` | a read of pages, from both devices |
//! | `write` | admissions that become slots |
//! | `health` | when the level goes off |
//! | `map` | what the next opening begins with |
//!
//! | | [an SSD](SsdFile::open) | [memory that is lent](SsdFile::lent) |
//! |---|---|---|
//! | admitted | what was read, as the policy decides | that, and what was written, once the primary has it |
//! | a write | a page, eight at a time | up to 64 neighbours, 64 at a time |
//! | buffer full | its coldest page is dropped | the new page is dropped |
//! | answers that are wrong or late | switch it off | are of one page each: a page that was lost is a miss, one of a server that is silent stays |
//! | at the next opening | begins with the map that was saved | is empty |
//!
//! Rules:
//! - A page comes from the SSD only if its seal, its number and the version that the reader expects check out. A
//!   reader that expects no version goes past the level, and so does one that has found a page not as it has to be
//!   (`Wanted::again`).
//! - Only a page that was checked in this way, read from the primary, is admitted (`AdmitsWhatChecksOut`). A read takes along
//!   how often its extent was discarded and is admitted only where that still stands (`DiscardsAreCounted`).
//! - A slot is read and written by one side at a time: it is written only when its last write was answered and no
//!   read holds it (`SlotIsAtRest`). Until its write is answered no reader finds the page on the SSD
//!   (`WrittenBeforeFound`).
//! - [`SsdLevel::discard`] voids in bounded steps and waits for no device; pages that are being admitted are voided, too.
//! - A write of pages of the primary voids them before it begins and after it was answered.
//! - An answer is a prefix of whole pages; what is missing behind it is asked for anew by whoever wants it. No failure of the
//!   SSD is told to a reader, and of a run of which a page fails on the primary the others are had one by one.
//! - No reader and no merge waits for an admission. Where the buffer is full the coldest page in it is dropped.
//! - Heat is a piece's: a merge asks how warm the pages are that it reads ([`SsdLevel::heats`]) and hands that over to the pages
//!   that it has written ([`SsdLevel::hand_over`]), with their bytes; extents that are freed are as cold as new ones. Until the
//!   merged pieces are gone, former and new places are warm both.
//! - What is known from a saved map only is proven by its first read; until then what is missing is a miss and no fault
//!   (`SsdProvesSavedMaps`).
//! - An SSD that fails, is late, or is no faster than the primary is switched off: the state says why, and nothing of it is
//!   used again before the next opening. Lent memory is not: whoever keeps it knows which of its servers is gone, or silent, and answers
//!   at once for those ([`IoError::is_timed_out`]).
//! - A page that was written is admitted before its writer is answered, so it was not freed by then.
//!
//! Lock order: the state of a read, then the table. No lock is held while a device is asked or a future is woken.
//!
//! Paper: Canim et al., "SSD bufferpool extensions for database systems", VLDB 2010, §3.2-3.3.
//!
//! Limits: one page file a level. Of policies other than TAC the saved map has the pages and an order, not what else they know.
//! Writes of the page file go past the SSD; pages that are changed in frames are not kept there.

mod file;
mod health;
mod map;
mod read;
mod table;
mod write;

#[cfg(all(test, feature = "model"))]
mod model_tests;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use thermocline_base::clock::{Clock, SystemClock};
use thermocline_base::io::{AlignedBytes, Buffer, Completion, File, Io, IoError, LockGuard, Operation};
use thermocline_base::sync::Mutex;

use crate::cache::{CacheKind, Savings, Slot};
use crate::error::WrongFile;
use crate::page::{EXTENT_PAGES, PageHeat, ReadReason, Wanted};
use crate::page::{PageSeal, PageSize};
pub use file::SSD_FORMAT;
use health::Health;
pub use health::SsdState;
pub use map::{SavedCounts, SavedMap, saved_map};
use table::Table;

/// The policy that is used where none is named: see `docs/understand/ssd-cache.md`.
pub const DEFAULT_POLICY: CacheKind = CacheKind::TacPages;

/// The options of a level.
#[derive(Clone, Debug)]
pub struct SsdOptions {
    /// The file, on a device that is faster than the primary.
    pub path: PathBuf,
    /// Its greatest length, in bytes. It takes this space at once.
    pub bytes: u64,
    /// Which pages it keeps.
    pub policy: CacheKind,
    /// Where the time of reads comes from.
    pub clock: Arc<dyn Clock>,
    /// A read of the SSD that takes longer is late: the primary is asked meanwhile.
    pub late_after: Duration,
    /// Pages that wait for their slots, at most.
    pub buffer_pages: usize,
    /// A thread writes what is admitted and looks for late reads. Without it whoever has the level calls
    /// [`SsdLevel::step`]; tests do.
    pub thread: bool,
    /// Switched off where the primary is as fast; tests on one device want it on.
    pub compares_devices: bool,
    /// Time that a page on the SSD saves; `None`: learned from the times of reads.
    pub savings: Option<Savings>,
    /// Merges hand over how warm pages are to those that they write. Otherwise heat stays with places, and goes with them.
    pub heat_across_merges: bool,
    /// Pages that are written to the primary are admitted, too, once it has them.
    pub admits_writes: bool,
    /// Neighbours that are written together, at most.
    pub write_pages: usize,
    /// Writes under way, at most: reads are to find a device free.
    pub writes_at_once: usize,
    /// Wrong and late answers switch it off.
    pub goes_off: bool,
}

impl SsdOptions {
    /// The usual ones.
    #[must_use]
    pub fn new(path: &Path, bytes: u64) -> Self {
        Self {
            path: path.to_path_buf(),
            bytes,
            policy: DEFAULT_POLICY,
            clock: Arc::new(SystemClock),
            late_after: Duration::from_millis(200),
            buffer_pages: 256,
            thread: true,
            compares_devices: true,
            savings: None,
            heat_across_merges: true,
            admits_writes: false,
            write_pages: 1,
            writes_at_once: 8,
            goes_off: true,
        }
    }

    /// Those of a level on memory that is lent: it takes all pages, since it is meant to be as large as they are.
    fn lent() -> Self {
        Self {
            policy: CacheKind::Clock,
            late_after: LENT_LATE_AFTER,
            compares_devices: false,
            heat_across_merges: false,
            admits_writes: true,
            write_pages: LENT_WRITE_PAGES,
            writes_at_once: LENT_WRITES_AT_ONCE,
            goes_off: false,
            ..Self::new(Path::new(""), 0)
        }
    }
}

/// A read of lent memory that takes longer is late: a page of the primary comes within some milliseconds.
const LENT_LATE_AFTER: Duration = Duration::from_millis(5);
/// Pages that are lent together, and in how many writes: those that are no neighbours are gathered by the medium.
const LENT_WRITE_PAGES: usize = 64;
const LENT_WRITES_AT_ONCE: usize = 64;

/// Why a level cannot be had.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SsdError {
    /// The file is not what it should be.
    File(WrongFile),
    /// Another database, or another process, uses it.
    InUse(PathBuf),
    /// There is no room for an extent of pages.
    TooSmall {
        /// The bytes that were given.
        bytes: u64,
        /// The bytes that are needed at least.
        least: u64,
    },
    /// The policy needs to know the future.
    Policy(CacheKind),
    /// The disk has no such space.
    Full {
        /// The bytes that were asked for.
        bytes: u64,
        /// The system's error.
        error: IoError,
    },
    /// The system's.
    Io(IoError),
}

impl fmt::Display for SsdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(wrong) => {
                write!(f, "{wrong}; name another file for the SSD cache, or remove this one")
            }
            Self::InUse(path) => {
                write!(f, "{} is in use as another database's SSD cache; name another file", path.display())
            }
            Self::TooSmall { bytes, least } => {
                write!(f, "an SSD cache of {bytes} bytes has no room for an extent; give it at least {least}")
            }
            Self::Policy(kind) => write!(f, "the policy {kind} has to know the future; name another one"),
            Self::Full { bytes, error } => {
                write!(
                    f,
                    "the disk of the SSD cache has no room for {bytes} bytes ({error}); make it smaller"
                )
            }
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SsdError {}

impl From<IoError> for SsdError {
    fn from(error: IoError) -> Self {
        Self::Io(error)
    }
}

/// The counts of a level since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SsdCounts {
    /// Pages for which readers came by, those of merges not counted.
    pub reads: u64,
    /// Those of them that the SSD gave.
    pub hits: u64,
    /// Pages that it gave to merges.
    pub merge_hits: u64,
    /// Pages that were admitted.
    pub admitted: u64,
    /// Pages that were admitted when a merge had written them, since what went into them was cached.
    pub moved: u64,
    /// Pages that the policy refused.
    pub refused: u64,
    /// Admitted pages that were dropped before they were written.
    pub dropped: u64,
    /// Pages that were there in another version than was expected, or had become so meanwhile.
    pub stale: u64,
    /// Cached pages that were voided since their place was freed or written.
    pub voided: u64,
    /// Reads that the SSD failed to answer rightly: errors, short ones, damaged pages.
    pub faults: u64,
    /// Reads that it answered too late.
    pub late: u64,
    /// Bytes written to it.
    pub bytes_written: u64,
}

impl SsdCounts {
    /// Pages that came in, whoever brought them.
    fn all_admitted(&self) -> u64 {
        self.admitted + self.moved
    }
}

/// The state and the counts of a level.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct SsdStats {
    /// Is it in use, and if not, why.
    pub state: SsdState,
    /// Where the copies are: `file` on an SSD, or `remote`.
    pub medium: &'static str,
    /// Its policy.
    pub policy: CacheKind,
    /// Pages that fit.
    pub slots: u64,
    /// Pages that are there.
    pub cached: u64,
    /// Its counts.
    pub counts: SsdCounts,
    /// Memory that it takes: map, policy, pages that wait for their slots.
    pub memory_bytes: u64,
    /// Mean time of a read of one page from the SSD, in nanoseconds; 0: none was made.
    pub ssd_read_ns: u64,
    /// The same of the primary.
    pub primary_read_ns: u64,
}

impl SsdStats {
    /// Which share of the pages that readers came by for the SSD gave.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        if self.counts.reads == 0 { 0.0 } else { self.counts.hits as f64 / self.counts.reads as f64 }
    }
}

/// The page file below.
#[derive(Debug)]
pub(crate) struct Primary {
    pub(crate) file: Arc<dyn File>,
    pub(crate) seal: PageSeal,
}

/// Memory that is lent for copies of pages: it may go at any time, and ends with the process.
#[derive(Clone, Debug)]
pub struct Lent {
    /// The memory, as a file.
    pub file: Arc<dyn File>,
    /// The bytes of the file for this level.
    pub bytes: Range<u64>,
    /// Pages that wait for their slots, at most.
    pub buffer_pages: usize,
}

/// A level, not yet below a page file: see [`crate::device::PageDevice::attach`].
#[derive(Debug)]
pub struct SsdFile {
    file: Arc<dyn File>,
    options: SsdOptions,
    page_size: PageSize,
    /// Where slot 0 lies.
    slots_at: u64,
    slots: u32,
    kept: Option<Kept>,
}

/// The things that make a level's file one that the next opening finds again.
#[derive(Debug)]
struct Kept {
    io: Arc<dyn Io>,
    owner: map::Owner,
    _lock: LockGuard,
}

impl SsdFile {
    /// Takes the file for a database, or creates it. Blocks.
    ///
    /// # Errors
    /// [`SsdError`], where nothing is changed.
    pub fn open(
        io: &Arc<dyn Io>,
        options: SsdOptions,
        page_size: PageSize,
        database: [u8; 16],
    ) -> Result<Self, SsdError> {
        if !options.policy.is_online() {
            return Err(SsdError::Policy(options.policy));
        }
        let (file, slots, lock) = file::open(&**io, &options.path, options.bytes, page_size, database)?;
        let owner = map::Owner { page_bytes: page_size.bytes() as u32, slots, database };
        let kept = Some(Kept { io: Arc::clone(io), owner, _lock: lock });
        Ok(Self { file, options, page_size, slots_at: file::SLOTS_AT, slots, kept })
    }

    /// On memory that is lent.
    ///
    /// # Errors
    /// There is no room for an extent of pages.
    pub fn lent(lent: Lent, page_size: PageSize) -> Result<Self, SsdError> {
        let options = SsdOptions { buffer_pages: lent.buffer_pages, ..SsdOptions::lent() };
        Self::lent_with(lent, options, page_size)
    }

    fn lent_with(lent: Lent, options: SsdOptions, page_size: PageSize) -> Result<Self, SsdError> {
        let Lent { file, bytes, .. } = lent;
        let page_bytes = page_size.bytes() as u64;
        let slots_at = bytes.start.next_multiple_of(page_bytes);
        let slots = file::slots_in(bytes.end.saturating_sub(slots_at), page_size);
        if u64::from(slots) < EXTENT_PAGES {
            let (bytes, least) = (bytes.end - bytes.start, (EXTENT_PAGES + 1) * page_bytes);
            return Err(SsdError::TooSmall { bytes, least });
        }
        Ok(Self { file, options, page_size, slots_at, slots, kept: None })
    }

    /// Puts it below a page file.
    pub(crate) fn below(self, primary: Primary, pages: PageSize) -> Arc<SsdLevel> {
        let Self { file, options, page_size, slots_at, slots, kept } = self;
        assert_eq!(pages, page_size, "an SSD keeps pages of the length that the page file has");
        let mut table = Table::new(&options, slots, page_size.bytes());
        if let Some(Kept { io, owner, .. }) = &kept {
            let saved = map::load(&**io, &options.path, owner);
            table.restore(&saved.entries, saved.ranked);
        }
        let level = Arc::new_cyclic(|me| SsdLevel {
            me: me.clone(),
            table: Mutex::new(table),
            kept,
            health: Health::new(options.compares_devices, options.goes_off),
            late: Mutex::default(),
            news: write::News::default(),
            thread: Mutex::new(None),
            file,
            primary,
            page_size,
            slots_at,
            slots,
            options,
        });
        if level.options.thread {
            write::start(&level);
        }
        level
    }
}

/// A level at work.
pub struct SsdLevel {
    me: std::sync::Weak<Self>,
    options: SsdOptions,
    file: Arc<dyn File>,
    primary: Primary,
    page_size: PageSize,
    slots_at: u64,
    slots: u32,
    kept: Option<Kept>,
    table: Mutex<Table>,
    health: Health,
    /// Reads of the SSD under way, by the time at which they are late.
    late: Mutex<read::LateReads>,
    news: write::News,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl fmt::Debug for SsdLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SsdLevel")
            .field("path", &self.file.path())
            .field("slots", &self.slots)
            .field("state", &self.health.state())
            .finish_non_exhaustive()
    }
}

impl SsdLevel {
    /// Reads whole pages, unverified, as [`crate::device::PageDevice::read`] does. `offset`: of the first page on the primary.
    pub(crate) fn read(&self, first: u64, offset: u64, pages: AlignedBytes, wanted: Wanted) -> Completion {
        match wanted.version {
            Some(version) if wanted.reason != ReadReason::Verify && self.health.is_on() => {
                read::begin(&self.arc(), first, version, pages, wanted)
            }
            _ => self.primary.file.submit(Operation::Read { offset, buffer: pages.into() }),
        }
    }

    /// Writes whole pages to the primary.
    pub(crate) fn write(&self, first: u64, offset: u64, buffer: Buffer) -> Completion {
        write::through(&self.arc(), first, offset, buffer)
    }

    /// Where a slot lies.
    fn offset_of(&self, slot: Slot) -> u64 {
        self.slots_at + u64::from(slot) * self.page_size.bytes() as u64
    }

    fn arc(&self) -> Arc<Self> {
        self.me.upgrade().expect("a level that is in use exists")
    }

    /// Voids what these pages were: their numbers may be used again. Waits for no device.
    pub fn discard(&self, pages: Range<u64>) {
        self.void(pages, self.options.heat_across_merges);
    }

    fn void(&self, pages: Range<u64>, cool: bool) {
        let mut at = pages.start;
        while at < pages.end {
            let until = pages.end.min(at / VOIDED_AT_ONCE * VOIDED_AT_ONCE + VOIDED_AT_ONCE);
            let mut table = self.table.lock();
            table.void(at..until);
            if cool {
                table.cool(at..until);
            }
            drop(table);
            at = until;
        }
    }

    /// The heat of pages of a version, for a merge that reads them: one entry a page, or none where the level keeps
    /// no heat.
    #[must_use]
    pub fn heats(&self, pages: Range<u64>, version: u64) -> Vec<PageHeat> {
        if !self.options.heat_across_merges || !self.health.is_on() {
            return Vec::new();
        }
        self.table.lock().heats(pages, version)
    }

    /// Number of these pages, in this version, that can be had from the SSD.
    #[must_use]
    pub fn cached(&self, pages: Range<u64>, version: u64) -> u64 {
        self.table.lock().cached_of(pages, version)
    }

    /// A merge has written pages, and this is how warm they are: those that are worth it are kept. The merge does not
    /// wait for that. The places are the merge's alone.
    pub fn hand_over(&self, first: u64, version: u64, bytes: &[u8], heats: &[PageHeat]) {
        if !self.options.heat_across_merges || !self.health.is_on() {
            return;
        }
        let waits = self.table.lock().hand_over(first, version, bytes, heats);
        if waits {
            self.news.ring();
        }
    }

    /// Saves what the next opening begins with. Blocks; the level's thread does it now and then.
    ///
    /// # Errors
    /// The system's. The former map stays then.
    pub fn save(&self) -> Result<(), IoError> {
        match (&self.kept, self.health.state()) {
            (Some(kept), SsdState::On | SsdState::NoFaster { .. }) => map::save(self, kept).map(drop),
            // There is no next time, or the caller would wait for a device that does not answer.
            (None, _) | (_, SsdState::Failing | SsdState::Late) => Ok(()),
        }
    }

    /// Has the thread save the map for the last time, and waits for that, but not for an SSD that does not answer.
    pub(crate) fn close(&self) {
        if self.kept.is_some() && self.thread.lock().is_some() && self.health.is_on() {
            self.news.save_and_wait(CLOSING_WAIT);
        }
    }

    /// Does one piece of work, for levels without a thread. `false`: there was none.
    pub fn step(&self) -> bool {
        let expired = self.expire();
        write::pump(&self.arc()) || expired
    }

    /// Asks the primary for what the SSD has not answered in time.
    fn expire(&self) -> bool {
        let now_ns = self.options.clock.now_ns();
        let late = self.late.lock().expired(now_ns);
        let found = !late.is_empty();
        for part in late {
            part.job.is_late();
        }
        found
    }

    /// Its state and counts.
    #[must_use]
    pub fn stats(&self) -> SsdStats {
        let table = self.table.lock();
        let (ssd_read_ns, primary_read_ns) = self.health.means_ns();
        SsdStats {
            state: self.health.state(),
            medium: self.file.medium(),
            policy: self.options.policy,
            slots: u64::from(self.slots),
            cached: u64::from(table.cached()),
            counts: table.counts,
            memory_bytes: table.memory_bytes() + self.file.table_bytes(),
            ssd_read_ns,
            primary_read_ns,
        }
    }

    /// Memory that it takes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.table.lock().memory_bytes() + self.file.table_bytes()
    }

    /// The primary gave pages, in this time.
    fn primary_came(&self, pages: usize, took_ns: u64) {
        if let Some(savings) = self.health.primary_came(pages, took_ns)
            && self.options.savings.is_none()
        {
            self.table.lock().set_savings(savings);
        }
    }

    /// The state has become `Off`: nothing of the SSD is used again.
    fn gone(&self) {
        let state = self.health.state();
        tracing::error!(path = %self.file.path().display(), %state, "the SSD cache is switched off");
        self.table.lock().empty(&self.options);
        self.news.save();
    }
}

impl Drop for SsdLevel {
    fn drop(&mut self) {
        self.news.close();
        let thread = self.thread.lock().take();
        // It waits for no device. The last reference may go on the thread itself.
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// The end of a level waits so long for its map.
const CLOSING_WAIT: Duration = Duration::from_secs(5);
/// Pages that are voided under one hold of the lock: whole extents.
const VOIDED_AT_ONCE: u64 = 256;
