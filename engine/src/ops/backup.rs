//! Online backup: a directory that opens as a database with everything committed before the call.
//!
//! A checkpoint is made, so that little log has to be copied. Then nothing that its manifest names may be removed, and
//! the log is not truncated, until the copy is whole: the images (immutable) and the manifest first, then the log up
//! to one position, the *cut*. It was durable when the manifest was picked, and no definition changed in between:
//! behind it, the log may speak of definitions that the manifest does not know. Commits and changes go on meanwhile.
//! Nothing behind the cut is copied: one segment is read after the other while the log grows, and a record in a later
//! one would prove that the bytes missing in an earlier one had been durable.
//!
//! Everything is copied as bytes, through a few buffers, past the system's cache.
//!
//! # The cold store
//!
//! ```text
//!   pause moves and removals ─► store pinned ─► log cut ─► moves and removals go on ─► copy, for as long as it takes
//! ```
//!
//! For the moments of the cut no row is on its way into the store, and no record out of it: those that are under way are
//! waited for, others are put off. A store of pages is *pinned* then: its pieces, which never change, stay until they are
//! copied. So store and log of the copy are what a crash at that moment would have left, and the copy is opened as after
//! one: batches that wait are decided about by their notices, what was dropped goes, what a table had before it was emptied
//! does not count.
//!
//! A store that cannot be pinned (`direct`) is copied record by record ([`super::backup_rows`]); nothing is removed from it
//! until the end.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use thermocline_base::ids::{Lsn, Timestamp};
use thermocline_base::io::{Copier, File, OpenMode};
use thermocline_base::sync::{Backoff, Ordering};
use thermocline_pool::store::{IndexId as StoreIndex, Pinned, StoreEnd, StoreError};

use crate::checkpoint::manifest::image_path;
use crate::checkpoint::{DurableEnds, Manifest, Superblock, dir_of};
use crate::cold::Cold;
use crate::error::{Error, Result};
use crate::mutation::{self, Rule};
use crate::ops::checkpoint;
use crate::options::ColdStoreKind;
use crate::session::db::Inner;

/// Buffers that are under way at a time, and their length. More would be faster only where nobody else wants the disk.
pub(super) const BUFFERS: usize = 4;
pub(super) const BUFFER_BYTES: usize = 512 << 10;

/// What is copied between two looks at the clock, while nobody commits and while somebody does.
pub(super) const BURST_BYTES: u64 = 32 << 20;
const BURST_BESIDE_BYTES: u64 = (BUFFERS * BUFFER_BYTES) as u64;
/// Beside commits a copy pauses so many times as long as it has worked, but not longer than this at a time.
const PAUSE_SHARE: u64 = 7;
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// How far a backup has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupProgress {
    /// Bytes that have been copied.
    pub bytes_done: u64,
    /// Bytes that there are to copy.
    pub bytes: u64,
}

/// Ends the hold on the files when it is dropped.
struct Held<'a>(&'a Inner);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        crate::ops::checkpoint::release_files(self.0);
    }
}

/// Keeps rows from moving, and records from being removed, until it is dropped.
struct Paused<'a> {
    cold: &'a Cold,
    moves: bool,
}

impl Paused<'_> {
    /// Rows may move again, records stay.
    fn let_move(&mut self) {
        self.moves = false;
        self.cold.progress.lock().no_moves -= 1;
    }
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        let mut progress = self.cold.progress.lock();
        progress.no_cleaning -= 1;
        progress.no_moves -= u32::from(self.moves);
    }
}

/// What of a cold store belongs to a backup, record by record.
pub(super) struct RowsCut<'a> {
    pub(super) cold: &'a Cold,
    /// No record is removed until this is dropped.
    _paused: Paused<'a>,
    /// Batches that were begun later do not.
    pub(super) clock: Timestamp,
    /// Nor do these.
    pub(super) failed: std::collections::HashSet<u64>,
    /// Name, since when its rows count, indexes.
    pub(super) tables: Vec<(String, Timestamp, Vec<StoreIndex>)>,
}

/// The cold store at the cut.
enum ColdCut<'a> {
    Pinned(Box<Pinned>),
    /// Against the rule.
    Late(&'a Cold),
    Rows(RowsCut<'a>),
}

/// One state of a database.
struct Cut<'a> {
    manifest: Manifest,
    log: Lsn,
    cold: Option<ColdCut<'a>>,
}

/// Tells somebody how far the copy is, and paces it. The buffers count under the memory limit until it is dropped.
pub(super) struct Teller<'a> {
    copier: Copier,
    pace: Pace<'a>,
}

/// How a copy goes on.
struct Pace<'a> {
    inner: &'a Inner,
    progress: BackupProgress,
    told: &'a mut dyn FnMut(BackupProgress) -> ControlFlow<()>,
    /// The log's end on disk, and the time, when the last burst began.
    durable: Lsn,
    since_ns: u64,
}

impl<'a> Teller<'a> {
    fn new(inner: &'a Inner, bytes: u64, told: &'a mut dyn FnMut(BackupProgress) -> ControlFlow<()>) -> Self {
        let copier = Copier::new(BUFFERS, BUFFER_BYTES);
        inner.checkpoints.copying_bytes.fetch_add(copier.memory_bytes(), Ordering::Relaxed);
        let progress = BackupProgress { bytes_done: 0, bytes };
        let mut pace = Pace { inner, progress, told, durable: Lsn(0), since_ns: 0 };
        pace.begin();
        Self { copier, pace }
    }

    /// More has been copied, by who does not pace himself.
    ///
    /// # Errors
    /// The backup is to end.
    pub(super) fn more(&mut self, bytes: u64) -> Result<()> {
        ended(advance(&mut self.pace.progress, self.pace.told, bytes))
    }

    /// Copies the beginning of a file.
    fn copy(&mut self, from: &dyn File, to: &dyn File, bytes: u64) -> Result<()> {
        let Self { copier, pace } = self;
        let outcome = copier.copy(from, to, std::iter::once(0..bytes), &mut |bytes| pace.burst(bytes))?;
        ended(outcome)
    }
}

impl Pace<'_> {
    fn begin(&mut self) {
        self.durable = self.inner.log().map_or(Lsn(0), crate::log::Log::durable);
        self.since_ns = self.inner.clock.now_ns();
    }

    /// A burst is over. Somebody who commits waits for the disk, which is busy with the whole of it: where the log has grown
    /// meanwhile, the next one waits several times as long as this one took, and is short.
    fn burst(&mut self, bytes: u64) -> ControlFlow<(), u64> {
        advance(&mut self.progress, self.told, bytes)?;
        let took_ns = self.inner.clock.now_ns().saturating_sub(self.since_ns);
        let busy = self.inner.log().is_some_and(|log| log.durable() != self.durable);
        if busy {
            let pause = Duration::from_nanos(took_ns.saturating_mul(PAUSE_SHARE)).min(PAUSE_MAX);
            Backoff::new().sleep(pause);
        }
        self.begin();
        ControlFlow::Continue(if busy { BURST_BESIDE_BYTES } else { BURST_BYTES })
    }
}

/// Adds to what was copied, and tells of it.
pub(super) fn advance(
    progress: &mut BackupProgress,
    told: &mut dyn FnMut(BackupProgress) -> ControlFlow<()>,
    bytes: u64,
) -> ControlFlow<()> {
    // Of a store that is copied record by record nobody knows how long its records are together.
    progress.bytes_done = (progress.bytes_done + bytes).min(progress.bytes);
    told(*progress)
}

pub(super) fn ended<T>(outcome: ControlFlow<(), T>) -> Result<T> {
    match outcome {
        ControlFlow::Continue(told) => Ok(told),
        ControlFlow::Break(()) => {
            Err(Error::Refused("the copy was cancelled; nothing of it is left".to_owned()))
        }
    }
}

impl Drop for Teller<'_> {
    fn drop(&mut self) {
        let copying = &self.pace.inner.checkpoints.copying_bytes;
        copying.fetch_sub(self.copier.memory_bytes(), Ordering::Relaxed);
    }
}

/// Copies a database into `directory`: see [`Database::backup_with`](crate::Database::backup_with).
pub(crate) fn copy(
    inner: &Inner,
    directory: &Path,
    told: &mut dyn FnMut(BackupProgress) -> ControlFlow<()>,
) -> Result<()> {
    if inner.cold.get().is_some() && inner.options.cold_store == ColdStoreKind::Memory {
        return Err(Error::Unsupported {
            operation: "backup",
            reason: "cold_store = memory keeps its rows nowhere; use cold_store = pages".to_owned(),
        });
    }
    if inner.log().is_none() {
        return Err(Error::Unsupported {
            operation: "backup",
            reason: "only an open database with a log can be copied; close it, and copy its directory"
                .to_owned(),
        });
    }
    if inner.files.io().exists(directory)? && !inner.files.io().list(directory)?.is_empty() {
        return Err(Error::NotADatabase {
            directory: directory.to_path_buf(),
            found: "it is not empty".to_owned(),
        });
    }
    checkpoint::now(inner)?;
    let Some(cut) = cut(inner)? else { return Ok(()) };
    let held = Held(inner);
    let outcome = write_copy(inner, cut, directory, told);
    drop(held);
    if outcome.is_err() {
        remove_copy(&**inner.files.io(), directory);
    }
    outcome.map_err(|error| full(error, directory))
}

/// Decides which state is copied. `None`: the database keeps no files. The caller releases them.
fn cut(db: &Inner) -> Result<Option<Cut<'_>>> {
    loop {
        let paused = db.cold.get().map(|cold| pause_moves(db, cold)).transpose()?;
        let Some(manifest) = crate::ops::checkpoint::hold_files(db) else { return Ok(None) };
        let held = Held(db);
        // An index that the log knows of has its entries in the store that is pinned, and what the store is told to copy is
        // what the log knows of. Behind the lock of the manifest, as whoever writes one has it.
        let _definition = db.redefining.lock();
        if let Some(log) = db.log().filter(|_| paused.is_some())
            && let Err(error) = crate::ops::checkpoint::make_durable(db, log, log.tail())
        {
            tracing::debug!(%error, "the copy has what is on disk");
        }
        // Before the log is cut: what has gone into the store by then is in the log, and what has left it, too.
        let late = mutation::off(Rule::BackupPinsAtTheCut);
        let pinned = paused.as_ref().filter(|_| !late).and_then(|paused| paused.cold.store.pin());
        let log = db.log().map_or(manifest.log_start, crate::log::Log::durable);
        if paused.is_none() && db.cold.get().is_some() {
            // The first row has left memory meanwhile.
            continue;
        }
        let cold = paused.map(|mut paused| match pinned {
            Some(pinned) => ColdCut::Pinned(Box::new(pinned)),
            None if late => ColdCut::Late(paused.cold),
            None => {
                let (clock, failed) = (db.registry.clock.now(), crate::ops::backup_rows::failed_batches(db));
                paused.let_move();
                let (cold, tables) = (paused.cold, crate::ops::backup_rows::cold_tables(db));
                ColdCut::Rows(RowsCut { cold, _paused: paused, clock, failed, tables })
            }
        });
        std::mem::forget(held);
        return Ok(Some(Cut { manifest, log, cold }));
    }
}

/// Puts off migrations and cleaning, and waits for those that run.
fn pause_moves<'a>(db: &Inner, cold: &'a Cold) -> Result<Paused<'a>> {
    {
        let mut progress = cold.progress.lock();
        progress.no_moves += 1;
        progress.no_cleaning += 1;
    }
    let paused = Paused { cold, moves: true };
    let begun = db.clock.now_ns();
    let mut backoff = Backoff::new();
    loop {
        let busy = {
            let progress = cold.progress.lock();
            let moving = !progress.running.is_empty() && mutation::on(Rule::BackupPausesMoves);
            moving || progress.cleaning && mutation::on(Rule::BackupPausesRemovals)
        };
        if !busy {
            return Ok(paused);
        }
        let waited = Duration::from_nanos(db.clock.now_ns().saturating_sub(begun));
        if waited > db.options.definition_wait {
            let waited = waited.as_millis();
            return Err(Error::Refused(format!(
                "no backup was made: rows have been on their way to the cold store for {waited} ms; try again"
            )));
        }
        backoff.sleep(Duration::from_micros(200));
    }
}

/// Writes a database with this state. The caller keeps its files in place.
fn write_copy(
    db: &Inner,
    cut: Cut<'_>,
    directory: &Path,
    told: &mut dyn FnMut(BackupProgress) -> ControlFlow<()>,
) -> Result<()> {
    let Cut { mut manifest, log: end, cold } = cut;
    manifest.store = StoreEnd::default();
    let log = db.log().ok_or(Error::Closed)?;
    let segments = log.segments(manifest.log_start, end);
    if segments.is_empty() {
        // Not even the least one has found its space yet.
        return Err(Error::DiskFull { directory: db.files.dir().to_path_buf() });
    }
    let images: u64 = manifest.files.values().sum();
    let cold_bytes = match &cold {
        Some(ColdCut::Pinned(pinned)) => pinned.bytes(),
        Some(ColdCut::Rows(rows)) => rows.cold.store.usage().disk_bytes,
        Some(ColdCut::Late(_)) | None => 0,
    };
    let bytes = images + segments.iter().map(|(_, bytes)| bytes).sum::<u64>() + cold_bytes;
    let mut teller = Teller::new(db, bytes, told);
    db.files.io().create_dir_all(directory)?;
    let (from, to) = (dir_of(db.files.dir()), dir_of(directory));
    db.files.io().create_dir_all(&to)?;
    for &number in manifest.files.keys() {
        copy_file(db, &image_path(&from, number), &image_path(&to, number), u64::MAX, &mut teller)?;
    }
    manifest.write(&**db.files.io(), &to)?;
    let to = crate::log::dir_of(directory);
    db.files.io().create_dir_all(&to)?;
    for (from, bytes) in segments {
        let name = from.file_name().expect("a segment has a name");
        copy_file(db, &from, &to.join(name), bytes, &mut teller)?;
    }
    db.files.io().sync_dir(&to)?;
    // The log of the copy may name the ends of this store: the copy's is another one.
    let store = match cold {
        Some(ColdCut::Pinned(pinned)) => copy_pinned(db, *pinned, directory, &mut teller)?,
        Some(ColdCut::Late(cold)) => {
            let pinned = cold.store.pin().expect("only stores that can be pinned are mutated");
            copy_pinned(db, pinned, directory, &mut teller)?
        }
        Some(ColdCut::Rows(rows)) => {
            crate::ops::backup_rows::copy_cold_rows(db, &rows, directory, &mut teller)?
        }
        None => StoreEnd::default(),
    };
    db.files.io().sync_dir(directory)?;
    // Last: without it the directory is no database.
    let superblock = Superblock::new(manifest.database, db.clock.wall_us());
    let memory_limit = db.budget.limit().unwrap_or(u64::MAX);
    let ends = DurableEnds { manifest: manifest.sequence, memory_limit, log: end, store };
    superblock.create_with(ends, &**db.files.io(), directory)?;
    tracing::info!(directory = %directory.display(), bytes, "backed up");
    Ok(())
}

fn copy_pinned(db: &Inner, pinned: Pinned, directory: &Path, teller: &mut Teller<'_>) -> Result<StoreEnd> {
    let dir = crate::cold::store::dir_of(directory);
    let Teller { copier, pace } = teller;
    let outcome = pinned.copy(db.cold.io(), &dir, copier, &mut |bytes| pace.burst(bytes));
    ended(outcome.map_err(|source| Error::ColdStore { table: "(backup)".to_owned(), rows: None, source })?)
}

/// Copies the first `bytes` of a file; the copy is as long as the file.
fn copy_file(db: &Inner, from: &Path, to: &Path, bytes: u64, teller: &mut Teller<'_>) -> Result<()> {
    let source = db.cold.io().open_direct(from, OpenMode::Read)?;
    let target = db.cold.io().open_direct(to, OpenMode::Create)?;
    let len = source.len()?;
    teller.copy(&*source, &*target, len.min(bytes))?;
    target.set_len(len)?;
    target.sync_data()?;
    Ok(())
}

/// What an error of a copy means, which names the disk that is full.
pub(super) fn full(error: Error, directory: &Path) -> Error {
    match error {
        Error::Io(io) if io.is_full() => Error::DiskFull { directory: directory.to_path_buf() },
        Error::ColdStore { source: StoreError::Full(_), .. } => {
            Error::DiskFull { directory: directory.to_path_buf() }
        }
        error => error,
    }
}

/// Removes what was written of a copy that failed: the superblock first, without which the rest is no database.
pub(super) fn remove_copy(io: &dyn thermocline_base::io::Io, directory: &Path) {
    let parts = [
        directory.to_path_buf(),
        dir_of(directory),
        crate::log::dir_of(directory),
        crate::cold::store::dir_of(directory),
    ];
    for dir in parts {
        for name in io.list(&dir).unwrap_or_default() {
            if let Err(error) = io.remove(&dir.join(name)) {
                tracing::warn!(%error, "a part of a copy that failed was left");
            }
        }
    }
}
