//! Checkpoints: imaging what has changed, chunk by chunk, beside running transactions.
//!
//! One round:
//!
//! 1. The replay position of the round is noted ([`replay_position`]).
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
//! # Definitions change meanwhile
//!
//! A manifest has the catalog as of its clock: both are read under the lock of definitions, so replay makes the definitions
//! with later timestamps and no others. It is written when the log is durable past that. The round's replay position is
//! noted under the lock, too: a definition whose record lies before it is everybody's by then, and the round finds its tables.
//! What was found out about a chunk counts only if the table still has the same storage and layout when the manifest is written.
//! Else the image before stays, which may be of an older layout, and replay starts where it did: the commit's own rows may lie
//! before the position that was noted for the chunk of the older form.
//!
//! The catalog as it is can be written by itself ([`write_definitions`]), with the images that there are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use thermocline_base::ids::{Lsn, TableId};
use thermocline_base::io::Action;
use thermocline_base::sync::{Backoff, Mutex, Ordering};

use crate::catalog::table::{FormRef, TableEntry, TableForm};
use crate::checkpoint::manifest::{image_path, manifest_name};
use crate::checkpoint::{
    Base, CheckpointError, ChunkHeader, ChunkImage, Durable, ImageFile, ImageWriter, Manifest,
    ManifestBuilder, RunState, dir_of,
};
use crate::error::{Error, Result};
use crate::hot::block::Block;
use crate::hot::budget::{Charge, MemoryKind};
use crate::hot::chunk::{Chunk, Found as Slot};
use crate::hot::paged::{LoadedRun, Run};
use crate::hot::version::Begin;
use crate::mutation::{self, Rule};
use crate::session::db::Inner;
use crate::txn::registry::State;
use crate::txn::visibility::{Sees, visible};

/// How often the checkpoint thread looks whether a checkpoint is due.
const TICK: Duration = Duration::from_millis(50);
/// How long it waits after one that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// An opening that had to read this part of `checkpoint_log_bytes`, or a segment, asks for a checkpoint.
const REPLAYED_SHARE: u64 = 16;

/// Is the image one of this form's rows, maybe as they were before their columns changed, and not from before they were removed?
pub(crate) fn is_of(image: &ChunkImage, form: &TableForm) -> bool {
    form.knows_version(image.header.schema_version) && image.header.timestamp >= form.since
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
    /// A new image.
    Imaged(ChunkImage),
    /// Unchanged; replay may start here.
    Confirmed(Lsn),
    /// Dropped, since all its rows were deleted. As with an image, the log has to be durable past those deletes before
    /// the manifest says so.
    Gone,
}

/// What a round has found out about the chunks of one storage.
struct Found {
    /// Of the table's layout, under which that was.
    version: u32,
    chunks: BTreeMap<u32, Finding>,
}

impl Found {
    fn under(form: &TableForm) -> Self {
        Self { version: form.layout_version, chunks: BTreeMap::new() }
    }
}

/// The same of all storages.
type Findings = BTreeMap<TableId, Found>;

/// The tables of a manifest, by their storages.
type Forms<'f> = BTreeMap<TableId, &'f TableForm>;

/// The thread's main function.
pub(crate) fn run(inner: &Inner) {
    // What the opening has read counts: a process that crashes before each checkpoint would never make one.
    let mut last_tail = Lsn(inner.files.log_end().0 - inner.checkpoints.replayed_bytes);
    let mut asked = has_replayed_much(inner);
    let mut last_end = inner.clock.now_ns();
    let mut pause = Duration::ZERO;
    while !inner.closing.has_begun() {
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
        match checkpoint(inner, RunState::Logged) {
            Err(error) => {
                tracing::warn!(%error, "a checkpoint failed; the one before stays valid");
                pause = AFTER_FAILURE.min(inner.options.checkpoint_interval);
            }
            Ok(left) => {
                if let Some(left) = left {
                    tracing::warn!(%left, "a checkpoint has left out chunks, of which the log is kept");
                }
                (last_tail, asked, pause) = (tail, false, Duration::ZERO);
                crate::ops::temperatures::store_now_and_then(inner);
            }
        }
        last_end = inner.clock.now_ns();
    }
}

/// Makes a checkpoint now: see [`Database::checkpoint`](crate::Database::checkpoint).
pub(crate) fn now(inner: &Inner) -> Result<()> {
    if inner.options.read_only {
        return Err(Error::ReadOnly);
    }
    if inner.log().is_none() {
        return Ok(());
    }
    whole(inner, RunState::Logged)
}

/// A checkpoint that leaves nothing out.
fn whole(inner: &Inner, state: RunState) -> Result<()> {
    checkpoint(inner, state)?.map_or(Ok(()), |left| Err(checkpoint_error(inner, left)))
}

/// The last step of an opening: where the log has become as long as it may, nothing is served before a checkpoint has made
/// it short. Else a process that crashes soon after each opening would leave a little more of it every time.
pub(crate) fn catch_up(inner: &Inner) {
    let long = inner.checkpoints.replayed_bytes >= inner.options.checkpoint_log_bytes;
    if long
        && inner.log().is_some()
        && let Err(error) = whole(inner, RunState::Logged)
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
        None => whole(inner, RunState::Closed),
    }
}

/// The last of an opening and of a close: where everything ends is known elsewhere, too, and the limit that suffices.
pub(crate) fn seal(inner: &Inner) {
    if let (Some(ends), Some(durable)) = (inner.files.ends(), inner.checkpoints.durable()) {
        ends.note_memory_limit(inner.budget.limit());
        ends.seal(durable.lock().manifest.sequence);
    }
}

/// What a failure of a checkpoint's files means for a user.
pub(crate) fn checkpoint_error(db: &Inner, error: CheckpointError) -> Error {
    match error {
        // A full disk while names are made durable leaves as much in doubt as any other failure.
        CheckpointError::Io(io) if io.is_full() && io.action() != Action::SyncDir => {
            Error::DiskFull { directory: db.files.dir().to_path_buf() }
        }
        error => error.into(),
    }
}

/// Replay that starts here misses nothing that a later reading of the clock does not cover: all records before
/// are filled, and no transaction is between its parts.
pub(crate) fn replay_position(db: &Inner) -> Lsn {
    let Some(log) = db.log() else { return db.files.log_end() };
    let filled = log.filled();
    db.registry.places().map(|place| place.parts_from.load(Ordering::SeqCst)).fold(
        filled,
        |position, parts| {
            if parts == 0 { position } else { position.min(Lsn(parts - 1)) }
        },
    )
}

/// Has the opening read so much of the log that the next one should not have to?
pub(crate) fn has_replayed_much(db: &Inner) -> bool {
    let much = db.options.log_segment_bytes.min(db.options.checkpoint_log_bytes / REPLAYED_SHARE);
    db.checkpoints.replayed_bytes >= much.max(1)
}

/// Makes a checkpoint. A chunk with a row on the paged side that cannot be read is left out: its image of before stays, and the log
/// from there on. Such a row is returned.
pub(crate) fn checkpoint(db: &Inner, state: RunState) -> Result<Option<CheckpointError>> {
    let Some(durable) = db.checkpoints.durable() else { return Ok(None) };
    let _turn = db.checkpoints.enter();
    db.checkpoints.begun.fetch_add(1, Ordering::Relaxed);
    let (number, old) = {
        let mut durable = durable.lock();
        durable.next_file += 1;
        (durable.next_file - 1, durable.manifest.clone())
    };
    let dead = old.mostly_dead_files();
    let mut findings = Findings::new();
    let late = mutation::off(Rule::ReplayPositionBeforeTimestamp);
    let start = {
        let _definition = db.redefining.lock();
        replay_position(db)
    };
    let dir = dir_of(db.files.dir());
    let closed = || db.closing.has_begun();
    let mut pace = |bytes: u64| {
        db.checkpoints.bytes.fetch_add(bytes, Ordering::Relaxed);
        // Two processors are few: leave the users' threads a chance between writes.
        if !closed() {
            std::thread::yield_now();
        }
    };
    let mut writer = ImageWriter::create(db.files.io(), &dir, &old.database, number, &mut pace)
        .map_err(|error| checkpoint_error(db, error))?;
    let outcome = image_all(db, &old, &dead, &mut writer, &mut findings);
    let (file, left) = outcome
        .and_then(|left| Ok((writer.finish()?, left)))
        .inspect_err(|_| mark_again(db, &findings))
        .map_err(|error| checkpoint_error(db, error))?;
    if let Some(log) = db.log()
        && mutation::on(Rule::CheckpointAfterLog)
    {
        make_durable(db, log, log.tail()).inspect_err(|_| mark_again(db, &findings))?;
    }
    let start = if late { replay_position(db) } else { start };
    let start = Some(start).filter(|_| left.is_none());
    install(db, state, start, file, &findings).inspect_err(|_| mark_again(db, &findings))?;
    remove_if_unused(db, number);
    db.checkpoints.completed.fetch_add(1, Ordering::Relaxed);
    Ok(left)
}

/// Makes the log durable up to `lsn`, with its own thread or without one.
pub(crate) fn make_durable(db: &Inner, log: &crate::log::Log, lsn: Lsn) -> Result<()> {
    if mutation::off(Rule::DefinitionAfterLog) {
        return Ok(());
    }
    // Who has reserved space in it may be about to fill that.
    let mut backoff = Backoff::new();
    while log.durable() < lsn {
        log.flush_once().map_err(|error| db.log_error(&error))?;
        if log.durable() < lsn {
            backoff.wait();
        }
    }
    Ok(())
}

/// After a failed round: what was imaged counts as changed again.
fn mark_again(db: &Inner, findings: &Findings) {
    let guard = db.epochs.pin();
    for entry in db.catalog.all() {
        let form = entry.form_pinned(&guard);
        let of_form = findings.get(&form.storage).into_iter().flat_map(|of| &of.chunks);
        for (number, _) in of_form.filter(|(_, finding)| matches!(finding, Finding::Imaged(_))) {
            if let Some(chunk) = form.store.directory.get(*number, &guard) {
                chunk.mark_dirty();
            }
        }
    }
}

fn image_all(
    db: &Inner,
    old: &Manifest,
    dead: &BTreeSet<u64>,
    writer: &mut ImageWriter<'_>,
    findings: &mut Findings,
) -> std::result::Result<Option<CheckpointError>, CheckpointError> {
    let mut left = None;
    for entry in db.catalog.all() {
        let chunks = {
            let guard = db.epochs.pin();
            entry.form_pinned(&guard).store.directory.len()
        };
        for number in 0..chunks {
            let loaded = load_paged(db, &entry, number);
            // Definitions do not change, and chunks are not dropped, while one chunk is imaged.
            let _maintenance = db.standstill.enter();
            if entry.is_dropped() {
                break;
            }
            // SAFETY: forms are freed only under the maintenance lock, which is held while this is used.
            let form = unsafe { FormRef::of(&entry) }.get();
            if form.store.damage.is_there() {
                // Its images have what could not be read, and stay.
                break;
            }
            let found = findings.entry(form.storage).or_insert_with(|| Found::under(form));
            if found.version != form.layout_version {
                // Its columns have changed since the first chunk: what was found of it does not count.
                break;
            }
            let chunk = {
                let guard = db.epochs.pin();
                let Some(chunk) = form.store.directory.get(number, &guard) else {
                    found.chunks.insert(number, Finding::Gone);
                    continue;
                };
                std::ptr::from_ref(chunk)
            };
            // SAFETY: chunks go only under the maintenance lock, too. So no pin has to last for the whole image.
            let chunk = unsafe { &*chunk };
            let key = (form.storage, number);
            let position = replay_position(db);
            let known = old.chunks.get(&key).filter(|image| is_of(image, form));
            let files = |image: &ChunkImage| [Some(image.file), image.base.map(|base| base.file)];
            let moves = known
                .is_some_and(|image| files(image).into_iter().flatten().any(|file| dead.contains(&file)));
            if known.is_some() && !chunk.is_dirty() && !moves {
                found.chunks.insert(number, Finding::Confirmed(position));
                continue;
            }
            let was_dirty = chunk.is_dirty();
            chunk.clear_dirty();
            let base = known.and_then(|image| image.base).filter(|base| !dead.contains(&base.file));
            let finding = match image_chunk(db, form, chunk, &loaded, base, writer) {
                Ok(image) => Finding::Imaged(image),
                // A new image would only have moved to another file.
                Err(CheckpointError::LostRow { .. })
                    if known.is_some() && !was_dirty && !chunk.is_dirty() =>
                {
                    Finding::Confirmed(position)
                }
                Err(error) => {
                    chunk.mark_dirty();
                    match error {
                        CheckpointError::LostRow { .. } => left = Some(error),
                        error => return Err(error),
                    }
                    continue;
                }
            };
            found.chunks.insert(number, finding);
        }
    }
    Ok(left)
}

/// The runs of a chunk that has changed since its image, by the numbers of their blocks: read as wholes, before the caller holds anything.
/// Where there is no room for that, or one cannot be read, its rows are read one by one.
fn load_paged(db: &Inner, entry: &TableEntry, number: u32) -> LoadedRuns {
    let mut loaded = LoadedRuns { runs: Vec::new(), _room: Charge::none(&db.budget, MemoryKind::Other) };
    let runs: Vec<(u64, Arc<Run>)> = {
        let guard = db.epochs.pin();
        let chunk = entry.form_pinned(&guard).store.directory.get(number, &guard);
        let Some(chunk) = chunk.filter(|chunk| chunk.is_dirty()) else { return loaded };
        let run = |block: &Block| Some((block.number(), Arc::clone(block.run()?)));
        chunk.blocks(&guard).filter_map(run).collect()
    };
    for (number, run) in runs {
        if loaded._room.add(run.page_bytes() as u64).is_ok()
            && let Ok(run) = run.load()
        {
            loaded.runs.push((number, run));
        }
    }
    loaded
}

/// See [`load_paged`].
struct LoadedRuns {
    runs: Vec<(u64, LoadedRun)>,
    _room: Charge,
}

impl LoadedRuns {
    fn of_block(&self, number: u64) -> Option<&LoadedRun> {
        self.runs.iter().find(|(of, _)| *of == number).map(|(_, run)| run)
    }
}

/// Writes the image of a chunk, and the block of its frozen rows unless `base` is that. The caller keeps the table's
/// definition and the chunk in place.
fn image_chunk(
    db: &Inner,
    form: &TableForm,
    chunk: &Chunk,
    loaded: &LoadedRuns,
    base: Option<Base>,
    writer: &mut ImageWriter<'_>,
) -> std::result::Result<ChunkImage, CheckpointError> {
    const ROWS_A_PIN: u32 = 512;
    /// How far ahead the processor is asked for versions.
    const ROWS_AHEAD: u32 = 16;
    let place = db.registry.checkpointer();
    let (replay, timestamp);
    if mutation::off(Rule::ReplayPositionBeforeTimestamp) {
        timestamp = place.take_snapshot(&db.registry.clock);
        thermocline_base::sync::schedule_point();
        replay = replay_position(db);
    } else {
        replay = replay_position(db);
        timestamp = place.take_snapshot(&db.registry.clock);
    }
    let header = ChunkHeader {
        table: form.storage,
        chunk: chunk.number(),
        timestamp,
        replay,
        schema_version: form.layout_version,
    };
    let mut frozen = match write_base(db, chunk, &header, base, writer) {
        Ok(frozen) => frozen,
        Err(error) => {
            place.drop_snapshot();
            writer.abandon();
            return Err(error);
        }
    };
    writer.begin(header);
    let (used, mut row) = (chunk.used(), Vec::new());
    let mut outcome = Ok(());
    let mut slot = 0;
    'pins: while slot < used {
        let guard = db.epochs.pin();
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
                && chunk.look(slot as u16, &guard) == Slot::Frozen(frozen.number)
                && let Some(block) = chunk.block(frozen.number, &guard)
            {
                if block.begin(slot as u16, &guard) <= timestamp {
                    frozen.slots[slot as usize / 64] |= 1 << (slot % 64);
                }
                slot += 1;
                continue;
            }
            if let Slot::Frozen(number) = chunk.look(slot as u16, &guard)
                && let Some(run) = loaded.of_block(number)
                && let Some(block) = chunk.block(number, &guard)
            {
                let begin = block.begin(slot as u16, &guard);
                row.clear();
                run.row_into(slot as u16, &mut row);
                if begin <= timestamp
                    && let Err(error) = writer.row(slot as u16, begin, &row)
                {
                    outcome = Err(error);
                    break 'pins;
                }
                slot += 1;
                continue;
            }
            let _frame = guard.frame();
            let Ok(newest) = directory.newest_now(row_of(slot), &guard) else {
                // The image of before, and the log, stay as long as nothing better can be written.
                outcome = Err(CheckpointError::LostRow { table: form.storage, row: row_of(slot) });
                break 'pins;
            };
            match visible(newest, &form.store.memory, &db.registry, timestamp, None) {
                Sees::Nothing => {}
                Sees::Row(version) => {
                    let begin = match version.begin() {
                        Begin::At(begin) => begin,
                        Begin::By(id) => match db.registry.state(id) {
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
        Ok(()) => writer.end().map(|image| ChunkImage { base: frozen.map(|frozen| frozen.base), ..image }),
        Err(error) => {
            writer.abandon();
            Err(error)
        }
    }
}

/// Writes the block that a chunk was frozen into last, unless `base` is that. `None`: it has none.
fn write_base(
    db: &Inner,
    chunk: &Chunk,
    header: &ChunkHeader,
    base: Option<Base>,
    writer: &mut ImageWriter<'_>,
) -> std::result::Result<Option<FrozenSlots>, CheckpointError> {
    let place = {
        let guard = db.epochs.pin();
        // Of a block whose rows have left nothing is needed; who sees them still is written beside it. Rows on the paged side
        // are written like those in memory.
        let is_needed = |block: &&Block| block.live() != block.left() && block.run().is_none();
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

/// Writes the manifest of a round, and removes what it makes superfluous. `start`: where replay starts for chunks without an image, if that
/// is not where it did.
fn install(
    db: &Inner,
    state: RunState,
    start: Option<Lsn>,
    file: ImageFile,
    findings: &Findings,
) -> Result<()> {
    let _maintenance = db.standstill.enter();
    write_manifest(db, |builder, forms| {
        builder.add_file(file);
        // Of a table whose rows could not all be read, the log has what its images do not.
        let mut is_current = forms.values().all(|form| !form.store.damage.is_there());
        for (&storage, found) in findings {
            let Some(form) = forms.get(&storage) else { continue };
            if found.version != form.layout_version {
                is_current = false;
                continue;
            }
            for (&number, finding) in &found.chunks {
                match finding {
                    Finding::Imaged(image) => builder.put(*image),
                    Finding::Confirmed(position) => _ = builder.confirm(storage, number, *position),
                    Finding::Gone => builder.drop_chunk(storage, number),
                }
            }
        }
        (state, start.filter(|_| is_current))
    })
}

/// Writes the next manifest. `change` fills it in and says in which state it leaves the database, and where replay
/// starts for chunks without an image (`None`: where it did).
fn write_manifest(
    db: &Inner,
    change: impl FnOnce(&mut ManifestBuilder, &Forms<'_>) -> (RunState, Option<Lsn>),
) -> Result<()> {
    let Some(durable) = db.checkpoints.durable() else { return Ok(()) };
    let mut durable = durable.lock();
    let mut builder = ManifestBuilder::new(&durable.manifest);
    let guard = db.epochs.pin();
    let (tables, catalog, clock);
    {
        // What has been committed by now, and nothing else.
        let _definition = db.redefining.lock();
        clock = db.registry.clock.now();
        tables = db.catalog.all();
        catalog = db.catalog.encode(&guard);
    }
    let forms: Forms<'_> =
        tables.iter().map(|entry| entry.form_pinned(&guard)).map(|form| (form.storage, form)).collect();
    for (&(storage, number), image) in &durable.manifest.chunks {
        if forms.get(&storage).is_none_or(|form| !is_of(image, form)) {
            builder.drop_chunk(storage, number);
        }
    }
    let (state, start) = change(&mut builder, &forms);
    let start = start.unwrap_or(durable.manifest.log_start);
    drop(forms);
    drop(guard);
    if let Some(log) = db.log()
        && mutation::on(Rule::CheckpointAfterLog)
    {
        // The catalog must not be of commits that a crash takes back.
        make_durable(db, log, log.tail())?;
    }
    let sequence = durable.next_sequence;
    durable.next_sequence += 1;
    let next_file = durable.next_file;
    let manifest = builder.build(
        |manifest| {
            manifest.sequence = sequence;
            manifest.next_file = next_file;
            manifest.clock = clock;
            manifest.state = state;
            // It is there before its first record is: from then on, each manifest says so.
            manifest.cold |= db.cold.get().is_some();
            manifest.log_durable = db.log().map_or(manifest.log_durable, crate::log::Log::durable);
            if let Some(cold) = db.cold.get() {
                manifest.store = cold.store.end();
            }
            manifest.catalog = catalog;
        },
        start,
    );
    let dir = dir_of(db.files.dir());
    manifest.write(&**db.files.io(), &dir).map_err(|error| checkpoint_error(db, error))?;
    if let Some(ends) = db.files.ends() {
        ends.seal(sequence);
    }
    let mut dropped = durable.manifest.files_dropped_by(&manifest);
    let old = std::mem::replace(&mut durable.manifest, manifest).sequence;
    durable.waiting.0.append(&mut dropped);
    durable.waiting.1.push(old);
    if durable.holds == 0 {
        remove_superfluous(db, &mut durable);
    }
    Ok(())
}

/// Removes a new image file that turned out to hold nothing.
fn remove_if_unused(db: &Inner, number: u64) {
    let Some(durable) = db.checkpoints.durable() else { return };
    let mut durable = durable.lock();
    if !durable.manifest.files.contains_key(&number) {
        durable.waiting.0.push(number);
        if durable.holds == 0 {
            remove_superfluous(db, &mut durable);
        }
    }
}

/// Removes what no manifest needs any more.
fn remove_superfluous(db: &Inner, durable: &mut Durable) {
    let dir = dir_of(db.files.dir());
    let (images, manifests) = std::mem::take(&mut durable.waiting);
    let images = images.into_iter().map(|number| image_path(&dir, number));
    let manifests = manifests.into_iter().map(|sequence| dir.join(manifest_name(sequence)));
    for path in images.chain(manifests) {
        if let Err(error) = db.files.io().remove(&path) {
            // The next start removes it.
            tracing::debug!(%error, "a superfluous file was not removed");
        }
    }
    if let Some(log) = db.log()
        && let Err(error) = log.truncate_before(durable.manifest.log_start)
    {
        tracing::warn!(%error, "the log was not cut");
    }
}

/// Keeps all files of the newest checkpoint, and the log behind it, in place until `release_files`.
pub(crate) fn hold_files(db: &Inner) -> Option<Manifest> {
    let mut durable = db.checkpoints.durable()?.lock();
    durable.holds += 1;
    Some(durable.manifest.clone())
}

/// Ends [`hold_files`].
pub(crate) fn release_files(db: &Inner) {
    if let Some(durable) = db.checkpoints.durable() {
        let mut durable = durable.lock();
        durable.holds -= 1;
        if durable.holds == 0 {
            remove_superfluous(db, &mut durable);
        }
    }
}

/// Makes durable that there is a cold store from now on. Before that no row may leave memory: nobody would miss the
/// store's files.
pub(crate) fn write_cold_mark(db: &Inner) -> Result<()> {
    let marked = |durable: &Mutex<Durable>| durable.lock().manifest.cold;
    let Some(durable) = db.checkpoints.durable() else { return Ok(()) };
    // Without a log the manifest of the close counts.
    if db.log().is_none() || marked(durable) {
        return Ok(());
    }
    // No definition is half changed.
    let _maintenance = db.standstill.enter();
    if marked(durable) { Ok(()) } else { write_definitions(db) }
}

/// Makes the catalog as it is now durable, with the images that there are.
pub(crate) fn write_definitions(db: &Inner) -> Result<()> {
    if db.options.read_only {
        return Err(Error::ReadOnly);
    }
    if db.log().is_none() {
        return Ok(());
    }
    let outcome = write_manifest(db, |_, _| (RunState::Logged, None));
    if let Err(Error::Io(error)) = &outcome
        && matches!(error.action(), Action::Rename | Action::SyncDir)
        && let Some(log) = db.log()
    {
        // A restart may find the new definition or the old one. What would be committed from now on under the
        // old one could not be replayed under the new one.
        log.fail(error);
    }
    outcome
}

/// The lowest version of a layout that an image of the table's rows may have, or the log where a chunk has no image.
pub(crate) fn oldest_layout(db: &Inner, form: &TableForm) -> u32 {
    let Some(durable) = db.checkpoints.durable() else { return u32::MAX };
    let (durable, guard) = (durable.lock(), db.epochs.pin());
    let version = |number: u32| {
        durable.manifest.chunks.get(&(form.storage, number)).map_or(0, |image| image.header.schema_version)
    };
    let chunks = 0..form.store.directory.len();
    let chunks = chunks.filter(|number| form.store.directory.get(*number, &guard).is_some());
    chunks.map(version).min().unwrap_or(u32::MAX)
}
