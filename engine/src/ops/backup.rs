//! Online backup: a directory that opens as a database with everything committed before the call.
//!
//! A checkpoint is made, so that little log has to be copied. Then nothing that its manifest names may be removed, and
//! the log is not truncated, until the copy is whole: the images (immutable) and the manifest first, then the log up
//! to one position, the *cut*. It was durable when the manifest was picked, and no definition changed in between:
//! behind it, the log may speak of definitions that the manifest does not know. Commits and changes go on meanwhile.
//! Nothing behind the cut is copied: one segment is read after the other while the log grows, and a record in a later
//! one would prove that the bytes missing in an earlier one had been durable.
//!
//! # The cold store (32)
//!
//! While the log is cut, no row is on its way into the store: migrations that run are waited for, others are put off.
//! No record is removed from before that until the store has been copied. So each record whose row was cold at the cut is
//! there, and what the log says up to the cut is all that there is to say of it. The copy is a store of its own, written
//! record by record: without batches that were begun after the cut (their rows are in the images or the log of the copy),
//! batches whose migration had failed, and what was in tables before they were emptied or dropped.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::mutation::{self, Rule};
use thermocline_base::ids::{Lsn, Timestamp};
use thermocline_base::io::OpenMode;
use thermocline_base::sync::{Backoff, Ordering};
use thermocline_pool::store::{Batch, BatchId, Direction, IndexId as StoreIndex, StoreError};

use crate::checkpoint::manifest::image_path;
use crate::checkpoint::{Manifest, Superblock, dir_of};
use crate::cold::Cold;
use crate::cold::memo::{NoticeKind, is_system};
use crate::cold::store::{ColdStore, StoreMemory, primary_of, secondary_of};
use crate::db::{Database, Inner};
use crate::error::{Error, Result};
use crate::governor::Trimmer;
use crate::options::ColdStoreKind;

const PIECE_BYTES: usize = 1 << 20;
/// What a batch takes without its entries, from here until it is durable.
const BATCH_OVERHEAD_BYTES: usize = 768;

/// Of the time that copying takes, one part in so many goes to giving back what batches leave in the heap.
const TRIMMING_SHARE: u64 = 20;

/// Ends the hold on the files when it is dropped.
struct Held<'a>(&'a Inner);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.release_files();
    }
}

/// The store that a backup writes to counts under the memory limit until this is dropped.
struct Counted<'a> {
    inner: &'a Inner,
    store: &'a Arc<dyn ColdStore>,
}

impl<'a> Counted<'a> {
    fn new(inner: &'a Inner, store: &'a Arc<dyn ColdStore>) -> Self {
        inner.copies.lock().push(Arc::clone(store));
        Self { inner, store }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.inner.copies.lock().retain(|store| !Arc::ptr_eq(store, self.store));
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

/// What of the cold store belongs to a backup.
struct ColdCut<'a> {
    paused: Paused<'a>,
    /// Batches that were begun later do not.
    clock: Timestamp,
    /// Nor do these.
    failed: HashSet<u64>,
    /// Name, since when its rows count, indexes.
    tables: Vec<(String, Timestamp, Vec<StoreIndex>)>,
}

/// One state of a database.
struct Cut<'a> {
    manifest: Manifest,
    log: Lsn,
    cold: Option<ColdCut<'a>>,
}

impl Database {
    /// Copies the database into `directory`, which must be empty or missing, while it goes on working. The copy opens
    /// as a database and has everything that was committed before the call.
    ///
    /// # Errors
    /// The directory is not empty; the database is in memory, read-only or keeps no log; the disk is full or failed.
    pub fn backup(&self, directory: impl AsRef<Path>) -> Result<()> {
        let (inner, directory) = (self.inner(), directory.as_ref());
        if inner.cold.get().is_some() && inner.options.cold_store == ColdStoreKind::Memory {
            return Err(Error::InvalidOption {
                option: "backup",
                reason: "cold_store = memory keeps its rows nowhere; use cold_store = pages".to_owned(),
            });
        }
        let Some(log) = inner.log() else {
            return Err(Error::InvalidOption {
                option: "backup",
                reason: "only an open database with a log can be copied; close it, and copy its directory"
                    .to_owned(),
            });
        };
        if inner.io.exists(directory)? && !inner.io.list(directory)?.is_empty() {
            return Err(Error::NotADatabase {
                directory: directory.to_path_buf(),
                found: "it is not empty".to_owned(),
            });
        }
        self.checkpoint()?;
        let Some(Cut { manifest, log: cut, cold }) = inner.cut()? else { return Ok(()) };
        let _held = Held(inner);
        inner.io.create_dir_all(directory)?;
        let (from, to) = (dir_of(&inner.dir), dir_of(directory));
        inner.io.create_dir_all(&to)?;
        for &number in manifest.files.keys() {
            inner.copy_file(&image_path(&from, number), &image_path(&to, number), u64::MAX)?;
        }
        manifest.write(&*inner.io, &to)?;
        let to = crate::log::dir_of(directory);
        inner.io.create_dir_all(&to)?;
        for (from, bytes) in log.segments(manifest.log_start, cut) {
            let name = from.file_name().expect("a segment has a name");
            inner.copy_file(&from, &to.join(name), bytes)?;
        }
        inner.io.sync_dir(&to)?;
        if let Some(cold) = cold {
            inner.copy_cold_rows(&cold, directory)?;
        }
        inner.io.sync_dir(directory)?;
        // Last: without it the directory is no database.
        let superblock = Superblock { database: manifest.database, created_us: inner.clock.wall_us() };
        superblock.create(&*inner.io, directory)?;
        tracing::info!(directory = %directory.display(), bytes = manifest.files.values().sum::<u64>(), "backed up");
        Ok(())
    }
}

impl Inner {
    /// Decides which state is copied. `None`: the database keeps no files. The caller releases them.
    fn cut(&self) -> Result<Option<Cut<'_>>> {
        let _definition = self.definition.lock();
        loop {
            let paused = self.cold.get().map(|cold| self.pause_moves(cold)).transpose()?;
            let Some(manifest) = self.hold_files() else { return Ok(None) };
            let held = Held(self);
            let log = self.log().map_or(manifest.log_start, crate::log::Log::durable);
            if paused.is_none() && self.cold.get().is_some() {
                // The first row has left memory meanwhile.
                continue;
            }
            let cold = paused.map(|mut paused| {
                let (clock, failed) = (self.registry.clock.now(), self.failed_batches());
                paused.let_move();
                ColdCut { paused, clock, failed, tables: self.cold_tables() }
            });
            std::mem::forget(held);
            return Ok(Some(Cut { manifest, log, cold }));
        }
    }

    /// Puts off migrations and cleaning, and waits for those that run.
    fn pause_moves<'a>(&self, cold: &'a Cold) -> Result<Paused<'a>> {
        {
            let mut progress = cold.progress.lock();
            progress.no_moves += 1;
            progress.no_cleaning += 1;
        }
        let paused = Paused { cold, moves: true };
        let begun = self.clock.now_ns();
        let mut backoff = Backoff::new();
        loop {
            let busy = {
                let progress = cold.progress.lock();
                let moving = !progress.running.is_empty() && !mutation::off(Rule::BackupPausesMoves);
                moving || progress.cleaning && !mutation::off(Rule::BackupPausesRemovals)
            };
            if !busy {
                return Ok(paused);
            }
            let waited = Duration::from_nanos(self.clock.now_ns().saturating_sub(begun));
            if waited > self.options.definition_wait {
                let waited = waited.as_millis();
                return Err(Error::Refused(format!(
                    "no backup was made: rows have been on their way to the cold store for {waited} ms; try again"
                )));
            }
            backoff.sleep(Duration::from_micros(200));
        }
    }

    /// Batches whose migration has failed. None is running.
    fn failed_batches(&self) -> HashSet<u64> {
        let mut failed = HashSet::new();
        if let Some(memo) = self.memo.get() {
            self.each_notice(memo.batches_form(), &mut |_, version, _| {
                let (batch, kind, _) = memo.read_batch(version);
                if kind == NoticeKind::None {
                    failed.insert(batch);
                }
            });
        }
        failed
    }

    /// The tables that may have cold rows.
    fn cold_tables(&self) -> Vec<(String, Timestamp, Vec<StoreIndex>)> {
        let guard = self.epochs.pin();
        let tables = self.catalog.all();
        let forms = tables.iter().filter(|entry| !is_system(entry.id)).map(|entry| entry.form_pinned(&guard));
        forms
            .filter(|form| form.counters.cold.load(Ordering::SeqCst))
            .map(|form| {
                let secondary = form.indexes[1..].iter().map(|index| secondary_of(form.id, index.id));
                let indexes = std::iter::once(primary_of(form.id)).chain(secondary).collect();
                (form.schema.name.clone(), form.emptied, indexes)
            })
            .collect()
    }

    /// Copies the records that belong to a cut into a store in `directory`.
    fn copy_cold_rows(&self, cut: &ColdCut<'_>, directory: &Path) -> Result<()> {
        let dir = crate::cold::store::dir_of(directory);
        let failed = |table: &str| {
            let table = table.to_owned();
            move |source: StoreError| Error::ColdStore { table: table.clone(), rows: None, source }
        };
        // Nobody reads from it.
        let memory = StoreMemory { frame_bytes: 0, ..StoreMemory::within(self.memory_limit()) };
        let store = crate::cold::open_store(&self.options, &self.cold_io, &dir, self.database, memory)
            .map_err(failed("(backup)"))?;
        let copy = Cold::new(store, self.options.cold_threads == 0);
        let _counted = Counted::new(self, &copy.store);
        let cold = cut.paused.cold;
        // A block's bytes of them at once, which the governor counts.
        let mut batches: BTreeMap<u64, Batch> = BTreeMap::new();
        let mut bytes = 0;
        let mut trimmer = Trimmer::default();
        for (table, since, indexes) in &cut.tables {
            for &index in indexes {
                let mut scan = cold.store.scan(index, &[], None, Direction::Forward);
                while let Some(found) = cold.finish(scan.next()).map_err(failed(table))? {
                    for entry in found.entries {
                        let id = entry.batch.0;
                        let later = id > cut.clock.0 && !mutation::off(Rule::BackupPausesMoves);
                        if id <= since.0 || later || cut.failed.contains(&id) {
                            continue;
                        }
                        let batch = batches.entry(id).or_insert_with(|| {
                            bytes += BATCH_OVERHEAD_BYTES;
                            Batch::confirmed(BatchId(id))
                        });
                        let before = batch.memory_bytes();
                        batch.put(index, &found.key, &entry.record).map_err(failed(table))?;
                        bytes += batch.memory_bytes() - before;
                    }
                    if bytes >= memory.block_bytes {
                        write_all(&copy, std::mem::take(&mut batches).into_values())
                            .map_err(failed("(backup)"))?;
                        bytes = 0;
                        if self.budget.limit().is_some() {
                            trimmer.trim(self, 0, TRIMMING_SHARE);
                        }
                    }
                }
            }
        }
        write_all(&copy, batches.into_values()).map_err(failed("(backup)"))?;
        copy.store.close();
        self.io.sync_dir(&dir)?;
        Ok(())
    }

    /// Copies the first `bytes` of a file; the copy is as long as the file.
    fn copy_file(&self, from: &Path, to: &Path, bytes: u64) -> Result<()> {
        let source = self.io.open(from, OpenMode::Read)?;
        let target = self.io.open(to, OpenMode::Create)?;
        let mut piece = vec![0; PIECE_BYTES];
        let len = source.len()?;
        target.set_len(len)?;
        let (mut offset, end) = (0, len.min(bytes));
        while offset < end {
            let wanted = (end - offset).min(PIECE_BYTES as u64) as usize;
            let got = source.read_full_at(offset, &mut piece[..wanted])?;
            if got == 0 {
                break;
            }
            target.write_at(offset, &piece[..got])?;
            offset += got as u64;
        }
        target.sync_data()?;
        Ok(())
    }
}

/// Writes batches, all at once.
pub(crate) fn write_all(
    cold: &Cold,
    batches: impl Iterator<Item = Batch>,
) -> std::result::Result<(), StoreError> {
    let mut context = Context::from_waker(Waker::noop());
    let mut outcome = Ok(());
    let mut writes = Vec::new();
    // All of them are on their way before the first is waited for; what is done must not be polled again.
    for batch in batches {
        let mut write = cold.store.write(batch);
        match write.as_mut().poll(&mut context) {
            Poll::Ready(written) => outcome = outcome.and(written),
            Poll::Pending => writes.push(write),
        }
    }
    for write in writes {
        outcome = outcome.and(cold.finish(write));
    }
    outcome
}
