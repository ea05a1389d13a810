//! Checkpoints: imaging what has changed, chunk by chunk, beside running transactions.
//!
//! One round:
//!
//! 1. The replay position of the round is noted ([`Inner::replay_position`]).
//! 2. For each chunk that has changed since its image: the mark is cleared, a replay position is noted, *then* a
//!    snapshot is taken, and the chunk's rows are written as that snapshot sees them. The snapshot lasts for one chunk
//!    only, so no round holds pruning up. A chunk that has not changed keeps its image.
//! 3. The image file is made durable.
//! 4. The log is made durable past every timestamp that was imaged (all of them have been drawn by then, and their
//!    records start before the log's tail). Before that, the images would know of transactions that nobody else will
//!    remember after a crash.
//! 5. The manifest is written; it is the checkpoint. What only its predecessor needs is removed, the log cut.
//!
//! # Why nothing is lost between an image and the log
//!
//! A transaction reserves its log space, draws its timestamp, marks its chunks, and fills its record, in this order.
//! `Log::filled` is at most the position of any record that is not yet filled. Let a chunk be imaged at `t`, its replay
//! position `p` having been noted before. A change with a timestamp above `t` was not filled when `p` was noted, so its
//! record starts at `p` or later: it will be replayed. A change at or below `t` is in the image; replay skips it by its
//! timestamp. Let a chunk be found unmarked after a position `q` was noted. A change whose record was filled before `q`
//! had marked the chunk before that; the mark was cleared since, which was before the snapshot of that image was taken,
//! so the change is in the image: replay may start at `q`.
//!
//! Changes of definitions write a manifest, too ([`Inner::write_definitions`]), with the images as they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use thermocline_base::ids::{Lsn, TableId, Timestamp};
use thermocline_base::io::Action;
use thermocline_base::sync::{AtomicU64, Backoff, Mutex, Ordering};

use crate::catalog::table::{FormRef, TableEntry, TableForm};
use crate::checkpoint::manifest::{image_path, manifest_name};
use crate::checkpoint::{
    Base, CheckpointError, ChunkHeader, ChunkImage, ImageFile, ImageWriter, Manifest, ManifestBuilder,
    RunState, dir_of,
};
use crate::db::{Database, Inner};
use crate::error::{Error, Result};
use crate::hot::block::Block;
use crate::hot::chunk::{Chunk, Found};
use crate::hot::version::Begin;
use crate::mutation::{self, Rule};
use crate::txn::registry::State;
use crate::txn::visibility::{Sees, visible};

/// How often the checkpoint thread looks whether a checkpoint is due.
const TICK: Duration = Duration::from_millis(50);
/// How long it waits after one that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// An opening that had to read this part of `checkpoint_log_bytes`, or a segment, asks for a checkpoint.
const REPLAYED_SHARE: u64 = 16;

/// What is known of the checkpoints of an open database.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    /// The newest manifest and what the next one must not reuse; `None` for a database in memory.
    durable: Option<Mutex<Durable>>,
    /// Held by who makes a checkpoint.
    turn: Mutex<()>,
    pub(crate) completed: AtomicU64,
    pub(crate) begun: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) lost_volatile_session: bool,
    /// Bytes of the log that the opening has read.
    pub(crate) replayed_bytes: u64,
    /// Memory of the buffers that backups copy through.
    pub(crate) copying_bytes: AtomicU64,
}

#[derive(Debug)]
struct Durable {
    manifest: Manifest,
    next_sequence: u64,
    next_file: u64,
    /// While backups copy files, none is removed: how many do.
    holds: u32,
    /// What waits for that: image files and manifests.
    waiting: (Vec<u64>, Vec<u64>),
}

impl Checkpoints {
    /// Those of a database whose newest manifest is this one.
    pub(crate) fn of(manifest: Manifest, replayed_to: Lsn, lost_volatile_session: bool) -> Self {
        let replayed_bytes = replayed_to.0.saturating_sub(manifest.log_start.0);
        let durable = Durable {
            next_sequence: manifest.sequence + 1,
            next_file: manifest.next_file,
            manifest,
            holds: 0,
            waiting: Default::default(),
        };
        let durable = Some(Mutex::new(durable));
        Self { durable, lost_volatile_session, replayed_bytes, ..Self::default() }
    }

    /// Does the database keep anything on disk?
    pub(crate) fn are_kept(&self) -> bool {
        self.durable.is_some()
    }
}

/// Is the image one of this form's rows, and not from before they were written anew or removed?
pub(crate) fn is_of(image: &ChunkImage, form: &TableForm) -> bool {
    image.header.schema_version == form.layout_version && image.header.timestamp >= form.since
}

/// Rows of a chunk that an image leaves to the chunk's base.
struct FrozenSlots {
    /// What slots name the block by.
    number: u64,
    base: Base,
    /// A bit a slot.
    slots: Vec<u64>,
}

/// What a round has found out about one chunk.
enum Finding {
    /// A new image, made under this form of its table.
    Imaged(ChunkImage, u32, Timestamp),
    /// Unchanged; replay may start here.
    Confirmed(Lsn),
    /// Dropped, since all its rows were deleted. As with an image, the log has to be durable past those deletes before
    /// the manifest says so.
    Gone,
}

/// The thread's main function.
pub(crate) fn run(inner: &Inner) {
    // What the opening has read counts: a process that crashes before each checkpoint would never make one.
    let mut last_tail = Lsn(inner.log_end.0 - inner.checkpoints.replayed_bytes);
    let mut asked = inner.has_replayed_much();
    let mut last_end = inner.clock.now_ns();
    let mut pause = Duration::ZERO;
    while !inner.closed.load(Ordering::SeqCst) {
        std::thread::park_timeout(TICK);
        let Some(log) = inner.log() else { continue };
        let grown = log.tail().0 - last_tail.0;
        let waited = Duration::from_nanos(inner.clock.now_ns().saturating_sub(last_end));
        // A trickle of changes is not worth a round, unless it has been waiting for long.
        let due = asked
            || grown >= inner.options.checkpoint_log_bytes
            || grown > 4096 && waited >= inner.options.checkpoint_interval;
        if !due || waited < pause || log.failure().is_some() {
            continue;
        }
        let tail = log.tail();
        if let Err(error) = inner.checkpoint(RunState::Logged) {
            tracing::warn!(%error, "a checkpoint failed; the one before stays valid");
            pause = AFTER_FAILURE.min(inner.options.checkpoint_interval);
        } else {
            (last_tail, asked, pause) = (tail, false, Duration::ZERO);
            crate::governor::store_now_and_then(inner);
        }
        last_end = inner.clock.now_ns();
    }
}

/// The last step of an opening: where the log has become as long as it may, nothing is served before a checkpoint has made
/// it short. Else a process that crashes soon after each opening would leave a little more of it every time.
pub(crate) fn catch_up(inner: &Inner) {
    let long = inner.checkpoints.replayed_bytes >= inner.options.checkpoint_log_bytes;
    if long
        && inner.log().is_some()
        && let Err(error) = inner.checkpoint(RunState::Logged)
    {
        tracing::warn!(%error, "the log is long, and no checkpoint could be made; the one before stays valid");
    }
}

/// Closes the log; without one, leaves a checkpoint.
pub(crate) fn close(inner: &Inner) -> Result<()> {
    if inner.options.read_only || !inner.checkpoints.are_kept() {
        return Ok(());
    }
    match inner.log() {
        Some(log) => log.close().map_err(|error| inner.log_error(&error)),
        None => inner.checkpoint(RunState::Closed),
    }
}

impl Database {
    /// Makes a checkpoint now, and returns when it is durable. A database that keeps no log (`durability = off`) makes
    /// one only when it is closed: without a log, images of different moments do not fit together.
    ///
    /// # Errors
    /// The disk is full or failed; the checkpoint before stays valid.
    pub fn checkpoint(&self) -> Result<()> {
        let inner = self.inner();
        if inner.options.read_only {
            return Err(Error::ReadOnly);
        }
        if inner.log().is_none() {
            return Ok(());
        }
        inner.checkpoint(RunState::Logged)
    }
}

impl Inner {
    /// What a failure of a checkpoint's files means for a user.
    pub(crate) fn checkpoint_error(&self, error: CheckpointError) -> Error {
        match error {
            // A full disk while names are made durable leaves as much in doubt as any other failure.
            CheckpointError::Io(io) if io.is_full() && io.action() != Action::SyncDir => {
                Error::DiskFull { directory: self.dir.clone() }
            }
            error => error.into(),
        }
    }

    /// Replay that starts here misses nothing that a later reading of the clock does not cover: all records before
    /// are filled, and no transaction is between its parts.
    pub(crate) fn replay_position(&self) -> Lsn {
        let Some(log) = self.log() else { return self.log_end };
        let filled = log.filled();
        self.registry.places().map(|place| place.parts_from.load(Ordering::SeqCst)).fold(
            filled,
            |position, parts| {
                if parts == 0 { position } else { position.min(Lsn(parts - 1)) }
            },
        )
    }

    /// Has the opening read so much of the log that the next one should not have to?
    pub(crate) fn has_replayed_much(&self) -> bool {
        let much = self.options.log_segment_bytes.min(self.options.checkpoint_log_bytes / REPLAYED_SHARE);
        self.checkpoints.replayed_bytes >= much.max(1)
    }

    /// Makes a checkpoint.
    pub(crate) fn checkpoint(&self, state: RunState) -> Result<()> {
        let Some(durable) = &self.checkpoints.durable else { return Ok(()) };
        let _turn = self.checkpoints.turn.lock();
        self.checkpoints.begun.fetch_add(1, Ordering::Relaxed);
        let (number, old) = {
            let mut durable = durable.lock();
            durable.next_file += 1;
            (durable.next_file - 1, durable.manifest.clone())
        };
        let dead = old.mostly_dead_files();
        let mut findings: BTreeMap<(TableId, u32), Finding> = BTreeMap::new();
        let late = mutation::off(Rule::ReplayPositionBeforeTimestamp);
        let start = self.replay_position();
        let dir = dir_of(&self.dir);
        let closed = || self.closed.load(Ordering::Relaxed);
        let mut pace = |bytes: u64| {
            self.checkpoints.bytes.fetch_add(bytes, Ordering::Relaxed);
            // Two processors are few: leave the users' threads a chance between writes.
            if !closed() {
                std::thread::yield_now();
            }
        };
        let mut writer = ImageWriter::create(&self.io, &dir, &old.database, number, &mut pace)
            .map_err(|error| self.checkpoint_error(error))?;
        let outcome = self.image_all(&old, &dead, &mut writer, &mut findings);
        let file = outcome
            .and_then(|()| writer.finish())
            .inspect_err(|_| self.mark_again(&findings))
            .map_err(|error| self.checkpoint_error(error))?;
        if let Some(log) = self.log()
            && !mutation::off(Rule::CheckpointAfterLog)
        {
            self.make_durable(log, log.tail()).inspect_err(|_| self.mark_again(&findings))?;
        }
        let start = if late { self.replay_position() } else { start };
        self.install(state, start, file, &findings).inspect_err(|_| self.mark_again(&findings))?;
        self.remove_if_unused(number);
        self.checkpoints.completed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Makes the log durable up to `lsn`, with its own thread or without one.
    fn make_durable(&self, log: &crate::log::Log, lsn: Lsn) -> Result<()> {
        if mutation::off(Rule::DefinitionAfterLog) {
            return Ok(());
        }
        // Who has reserved space in it may be about to fill that.
        let mut backoff = Backoff::new();
        while log.durable() < lsn {
            log.flush_once().map_err(|error| self.log_error(&error))?;
            if log.durable() < lsn {
                backoff.wait();
            }
        }
        Ok(())
    }

    /// After a failed round: what was imaged counts as changed again.
    fn mark_again(&self, findings: &BTreeMap<(TableId, u32), Finding>) {
        let guard = self.epochs.pin();
        for (&(table, number), finding) in findings {
            if let Finding::Imaged(..) = finding
                && let Some(entry) = self.catalog.by_id(table)
                && let Some(chunk) = entry.form_pinned(&guard).store.directory.get(number, &guard)
            {
                chunk.mark_dirty();
            }
        }
    }

    fn image_all(
        &self,
        old: &Manifest,
        dead: &BTreeSet<u64>,
        writer: &mut ImageWriter<'_>,
        findings: &mut BTreeMap<(TableId, u32), Finding>,
    ) -> std::result::Result<(), CheckpointError> {
        for entry in self.catalog.all() {
            let chunks = {
                let guard = self.epochs.pin();
                entry.form_pinned(&guard).store.directory.len()
            };
            for number in 0..chunks {
                // Definitions do not change, and chunks are not dropped, while one chunk is imaged.
                let _maintenance = self.maintenance.lock();
                if entry.is_dropped() {
                    break;
                }
                // SAFETY: definitions change only under the maintenance lock, which is held while this is used.
                let form = unsafe { FormRef::of(&entry) }.get();
                let chunk = {
                    let guard = self.epochs.pin();
                    let Some(chunk) = form.store.directory.get(number, &guard) else {
                        findings.insert((entry.id, number), Finding::Gone);
                        continue;
                    };
                    std::ptr::from_ref(chunk)
                };
                // SAFETY: chunks go only under the maintenance lock, too. So no pin has to last for the whole image.
                let chunk = unsafe { &*chunk };
                let key = (entry.id, number);
                let position = self.replay_position();
                let known = old.chunks.get(&key).filter(|image| is_of(image, form));
                let files = |image: &ChunkImage| [Some(image.file), image.base.map(|base| base.file)];
                let moves = known
                    .is_some_and(|image| files(image).into_iter().flatten().any(|file| dead.contains(&file)));
                if known.is_some() && !chunk.is_dirty() && !moves {
                    findings.insert(key, Finding::Confirmed(position));
                    continue;
                }
                chunk.clear_dirty();
                let base = known.and_then(|image| image.base).filter(|base| !dead.contains(&base.file));
                let image =
                    self.image_chunk(form, chunk, base, writer).inspect_err(|_| chunk.mark_dirty())?;
                findings.insert(key, Finding::Imaged(image, form.layout_version, form.since));
            }
        }
        Ok(())
    }

    /// Writes the image of a chunk, and the block of its frozen rows unless `base` is that. The caller keeps the table's
    /// definition and the chunk in place.
    fn image_chunk(
        &self,
        form: &TableForm,
        chunk: &Chunk,
        base: Option<Base>,
        writer: &mut ImageWriter<'_>,
    ) -> std::result::Result<ChunkImage, CheckpointError> {
        const ROWS_A_PIN: u32 = 512;
        /// How far ahead the processor is asked for versions.
        const ROWS_AHEAD: u32 = 16;
        let place = self.registry.checkpointer();
        let (replay, timestamp);
        if mutation::off(Rule::ReplayPositionBeforeTimestamp) {
            timestamp = place.take_snapshot(&self.registry.clock);
            thermocline_base::sync::schedule_point();
            replay = self.replay_position();
        } else {
            replay = self.replay_position();
            timestamp = place.take_snapshot(&self.registry.clock);
        }
        let header = ChunkHeader {
            table: form.id,
            chunk: chunk.number(),
            timestamp,
            replay,
            schema_version: form.layout_version,
        };
        let mut frozen = match self.write_base(chunk, &header, base, writer) {
            Ok(frozen) => frozen,
            Err(error) => {
                place.drop_snapshot();
                writer.abandon();
                return Err(error);
            }
        };
        writer.begin(header);
        let used = chunk.used();
        let mut outcome = Ok(());
        let mut slot = 0;
        'pins: while slot < used {
            let guard = self.epochs.pin();
            let mut backoff = Backoff::new();
            let end = (slot + ROWS_A_PIN).min(used);
            let row_of = |slot: u32| thermocline_base::ids::RowId::new(chunk.number(), slot as u16);
            let directory = &form.store.directory;
            (slot..end.min(slot + ROWS_AHEAD)).for_each(|slot| directory.approach(row_of(slot), &guard));
            while slot < end {
                if slot + ROWS_AHEAD < end {
                    directory.approach(row_of(slot + ROWS_AHEAD), &guard);
                }
                // One look at the slot's word decides: the row is in the base, or it is written here.
                if let Some(frozen) = &mut frozen
                    && chunk.look(slot as u16, &guard) == Found::Frozen(frozen.number)
                    && let Some(block) = chunk.block(frozen.number, &guard)
                {
                    if block.begin(slot as u16, &guard) <= timestamp {
                        frozen.slots[slot as usize / 64] |= 1 << (slot % 64);
                    }
                    slot += 1;
                    continue;
                }
                let _frame = guard.frame();
                let newest = directory.newest(row_of(slot), &guard);
                match visible(newest, &form.store.memory, &self.registry, timestamp, None) {
                    Sees::Nothing => {}
                    Sees::Row(version) => {
                        let begin = match version.begin() {
                            Begin::At(begin) => begin,
                            Begin::By(id) => match self.registry.state(id) {
                                (State::Committed, end) => end,
                                _ => continue,
                            },
                        };
                        if let Err(error) = writer.row(slot as u16, begin, version.row()) {
                            outcome = Err(error);
                            break 'pins;
                        }
                    }
                    Sees::Undecided(_) | Sees::Changed => {
                        backoff.wait();
                        continue;
                    }
                }
                slot += 1;
            }
        }
        place.drop_snapshot();
        let frozen = frozen.filter(|frozen| frozen.slots.iter().any(|word| *word != 0));
        let outcome = outcome.and_then(|()| match &frozen {
            Some(frozen) => writer.frozen(frozen.base.id, &frozen.slots),
            None => Ok(()),
        });
        match outcome {
            Ok(()) => {
                writer.end().map(|image| ChunkImage { base: frozen.map(|frozen| frozen.base), ..image })
            }
            Err(error) => {
                writer.abandon();
                Err(error)
            }
        }
    }

    /// Writes the block that a chunk was frozen into last, unless `base` is that. `None`: it has none.
    fn write_base(
        &self,
        chunk: &Chunk,
        header: &ChunkHeader,
        base: Option<Base>,
        writer: &mut ImageWriter<'_>,
    ) -> std::result::Result<Option<FrozenSlots>, CheckpointError> {
        let place = {
            let guard = self.epochs.pin();
            // Of a block whose rows have left nothing is needed; who sees them still is written beside it.
            let is_needed = |block: &&Block| block.live() != block.left();
            let Some(block) = chunk.blocks(&guard).next().filter(is_needed) else { return Ok(None) };
            std::ptr::from_ref(block)
        };
        // SAFETY: blocks are linked and taken out only under the maintenance lock, which the caller holds. So no pin has to
        // last while the block is written.
        let block = unsafe { &*place };
        let base = match base.filter(|base| base.id == block.rows().id()) {
            Some(base) => base,
            None => writer.base(block.rows().id(), header, block.rows().hidden(), block.rows().bytes())?,
        };
        let slots = vec![0; (chunk.capacity() as usize).div_ceil(64)];
        Ok(Some(FrozenSlots { number: block.number(), base, slots }))
    }

    /// Writes the manifest of a round, and removes what it makes superfluous.
    fn install(
        &self,
        state: RunState,
        start: Lsn,
        file: ImageFile,
        findings: &BTreeMap<(TableId, u32), Finding>,
    ) -> Result<()> {
        // No definition is half changed: the manifest has either form of each table, with images of that form.
        let _maintenance = self.maintenance.lock();
        self.write_manifest(|builder| {
            builder.add_file(file);
            for entry in self.catalog.all() {
                let guard = self.epochs.pin();
                let form = entry.form_pinned(&guard);
                for (&(table, number), finding) in findings.range((entry.id, 0)..=(entry.id, u32::MAX)) {
                    match finding {
                        // The definition may have changed since; its own manifest has the images then.
                        Finding::Imaged(image, layout, since)
                            if (*layout, *since) == (form.layout_version, form.since) =>
                        {
                            builder.put(*image);
                        }
                        Finding::Imaged(..) => {}
                        Finding::Confirmed(position) => {
                            builder.confirm(table, number, *position);
                        }
                        Finding::Gone => builder.drop_chunk(table, number),
                    }
                }
            }
            (state, Some(start))
        })
    }

    /// Writes the next manifest. `change` fills it in and says in which state it leaves the database, and where replay
    /// starts for chunks without an image (`None`: where it did).
    fn write_manifest(
        &self,
        change: impl FnOnce(&mut ManifestBuilder) -> (RunState, Option<Lsn>),
    ) -> Result<()> {
        let Some(durable) = &self.checkpoints.durable else { return Ok(()) };
        let mut durable = durable.lock();
        let mut builder = ManifestBuilder::new(&durable.manifest);
        let known: Vec<TableId> = self.catalog.all().iter().map(|entry| entry.id).collect();
        let gone: Vec<TableId> = durable
            .manifest
            .chunks
            .keys()
            .map(|&(table, _)| table)
            .filter(|table| !known.contains(table))
            .collect();
        for table in gone {
            builder.drop_table(table);
        }
        let guard = self.epochs.pin();
        for (&(table, number), image) in &durable.manifest.chunks {
            if self.catalog.by_id(table).is_some_and(|entry| !is_of(image, entry.form_pinned(&guard))) {
                builder.drop_chunk(table, number);
            }
        }
        drop(guard);
        let (state, start) = change(&mut builder);
        let start = start.unwrap_or(durable.manifest.log_start);
        let guard = self.epochs.pin();
        let catalog = self.catalog.encode(&guard);
        drop(guard);
        let sequence = durable.next_sequence;
        durable.next_sequence += 1;
        let next_file = durable.next_file;
        let manifest = builder.build(
            |manifest| {
                manifest.sequence = sequence;
                manifest.next_file = next_file;
                manifest.clock = self.registry.clock.now();
                manifest.state = state;
                // It is there before its first record is: from then on, each manifest says so.
                manifest.cold |= self.cold.get().is_some();
                manifest.log_durable = self.log().map_or(manifest.log_durable, crate::log::Log::durable);
                manifest.catalog = catalog;
            },
            start,
        );
        let dir = dir_of(&self.dir);
        manifest.write(&*self.io, &dir).map_err(|error| self.checkpoint_error(error))?;
        let mut dropped = durable.manifest.files_dropped_by(&manifest);
        let old = std::mem::replace(&mut durable.manifest, manifest).sequence;
        durable.waiting.0.append(&mut dropped);
        durable.waiting.1.push(old);
        if durable.holds == 0 {
            self.remove_superfluous(&mut durable);
        }
        Ok(())
    }

    /// Removes a new image file that turned out to hold nothing.
    fn remove_if_unused(&self, number: u64) {
        let Some(durable) = &self.checkpoints.durable else { return };
        let mut durable = durable.lock();
        if !durable.manifest.files.contains_key(&number) {
            durable.waiting.0.push(number);
            if durable.holds == 0 {
                self.remove_superfluous(&mut durable);
            }
        }
    }

    /// Removes what no manifest needs any more.
    fn remove_superfluous(&self, durable: &mut Durable) {
        let dir = dir_of(&self.dir);
        let (images, manifests) = std::mem::take(&mut durable.waiting);
        let images = images.into_iter().map(|number| image_path(&dir, number));
        let manifests = manifests.into_iter().map(|sequence| dir.join(manifest_name(sequence)));
        for path in images.chain(manifests) {
            if let Err(error) = self.io.remove(&path) {
                // The next start removes it.
                tracing::debug!(%error, "a superfluous file was not removed");
            }
        }
        if let Some(log) = self.log()
            && let Err(error) = log.truncate_before(durable.manifest.log_start)
        {
            tracing::warn!(%error, "the log was not cut");
        }
    }

    /// Keeps all files of the newest checkpoint, and the log behind it, in place until `release_files`.
    pub(crate) fn hold_files(&self) -> Option<Manifest> {
        let mut durable = self.checkpoints.durable.as_ref()?.lock();
        durable.holds += 1;
        Some(durable.manifest.clone())
    }

    /// Ends [`Inner::hold_files`].
    pub(crate) fn release_files(&self) {
        if let Some(durable) = &self.checkpoints.durable {
            let mut durable = durable.lock();
            durable.holds -= 1;
            if durable.holds == 0 {
                self.remove_superfluous(&mut durable);
            }
        }
    }

    /// Makes durable that there is a cold store from now on. Before that no row may leave memory: nobody would miss the
    /// store's files.
    pub(crate) fn write_cold_mark(&self) -> Result<()> {
        let marked = |durable: &Mutex<Durable>| durable.lock().manifest.cold;
        let Some(durable) = &self.checkpoints.durable else { return Ok(()) };
        // Without a log the manifest of the close counts.
        if self.log().is_none() || marked(durable) {
            return Ok(());
        }
        // No definition is half changed.
        let _maintenance = self.maintenance.lock();
        if marked(durable) { Ok(()) } else { self.write_definitions() }
    }

    /// Makes the catalog as it is now durable, with the images that there are.
    pub(crate) fn write_definitions(&self) -> Result<()> {
        self.write_definitions_dropping(None)
    }

    /// The same; the images of one table are not its any more.
    pub(crate) fn write_definitions_dropping(&self, emptied: Option<TableId>) -> Result<()> {
        if self.options.read_only {
            return Err(Error::ReadOnly);
        }
        let Some(log) = self.log() else { return Ok(()) };
        // The change comes after everything committed so far: a crash must not keep it and lose that.
        self.make_durable(log, log.tail())?;
        self.define(|builder| {
            if let Some(table) = emptied {
                builder.drop_table(table);
            }
        })
    }

    /// Writes the manifest of a change of definitions.
    fn define(&self, change: impl FnOnce(&mut ManifestBuilder)) -> Result<()> {
        let outcome = self.write_manifest(|builder| {
            change(builder);
            (RunState::Logged, None)
        });
        if let Err(Error::Io(error)) = &outcome
            && matches!(error.action(), Action::Rename | Action::SyncDir)
            && let Some(log) = self.log()
        {
            // A restart may find the new definition or the old one. What would be committed from now on under the
            // old one could not be replayed under the new one.
            log.fail(error);
        }
        outcome
    }

    /// Makes the catalog durable, with new images of one table, which is held and was written anew.
    pub(crate) fn write_definitions_with(&self, entry: &Arc<TableEntry>) -> Result<()> {
        let (Some(durable), Some(log)) = (&self.checkpoints.durable, self.log()) else { return Ok(()) };
        let (number, database) = {
            let mut durable = durable.lock();
            durable.next_file += 1;
            (durable.next_file - 1, durable.manifest.database)
        };
        let dir = dir_of(&self.dir);
        let mut pace = |bytes: u64| {
            self.checkpoints.bytes.fetch_add(bytes, Ordering::Relaxed);
        };
        let mut images = Vec::new();
        let mut image_all = || {
            let mut writer = ImageWriter::create(&self.io, &dir, &database, number, &mut pace)?;
            let guard = self.epochs.pin();
            let form = entry.form_pinned(&guard);
            for number in 0..form.store.directory.len() {
                if let Some(chunk) = form.store.directory.get(number, &guard) {
                    chunk.clear_dirty();
                    images.push(self.image_chunk(form, chunk, None, &mut writer)?);
                }
            }
            writer.finish()
        };
        let file = image_all().map_err(|error| self.checkpoint_error(error))?;
        self.make_durable(log, log.tail())?;
        self.define(|builder| {
            builder.drop_table(entry.id);
            builder.add_file(file);
            for image in images {
                builder.put(image);
            }
        })
        .inspect(|()| self.remove_if_unused(number))
    }
}
