//! Opening a database: lock, superblock, newest manifest, images, log, indexes.
//!
//! The table of all states that a start can find, and what is done about each, stands in
//! `docs/understand/recovery.md`.
//!
//! ```text
//!  lock ─► superblock ─► manifest ─► catalog ─► images (parallel) ─► log from the replay start ─► indexes (parallel)
//! ```
//!
//! - A row's image carries its begin timestamp; the replay of a record skips what the image of its chunk covers, by
//!   the timestamps. Records of one row stand in the log in the order of their timestamps, since the second writer of a
//!   row can only come after the first has filled its record.
//! - Parts of a large transaction count when its commit follows; they are kept until then.
//! - Indexes are not stored: they are made from the rows, all at once, when the rows are complete.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as Plain};

use thermocline_base::clock::Clock;
use thermocline_base::ids::{Lsn, RowId, TableId, Timestamp};
use thermocline_base::io::{Io, IoError, LockGuard, OverlayIo};
use thermocline_base::sync::Mutex;
use thermocline_pool::store::{OwnerPosition, StoreEnd};

use crate::catalog::table::{TableEntry, TableForm};
use crate::checkpoint::manifest::manifest_name;
use crate::checkpoint::superblock::LOCK_FILE;
use crate::checkpoint::{
    CheckpointError, Checkpoints, ChunkImage, DurableEnds, Ends, FROZEN_ROWS, FoundEnds, Images, Manifest,
    RunState, Superblock, dir_of,
};
use crate::cold::memo::{Memo, NoticeKind};
use crate::cold::store::{primary_of, secondary_of};
use crate::error::{Error, Result};
use crate::hot::block::{Begins, Block, Rows};
use crate::hot::damage::DamagedChunk;
use crate::hot::version::Begin;
use crate::log::record::{Commit, DecodeError, Kind, Op, Part, Write};
use crate::log::{FlushMode, Log, LogEnd, LogOptions, LogOwner, LogReader};
use crate::mutation::{self, Rule};
use crate::ops::checkpoint::is_of;
use crate::ops::define::redefine;
use crate::ops::freeze::Settled;
use crate::ops::leave::left_of;
use crate::options::{ColdStoreKind, Durability, IN_MEMORY, Options};
use crate::schema::{Redefined, Tiering, decode_catalog, is_internal};
use crate::session::cold_side::ColdSide;
use crate::session::db::Inner;
use crate::session::files::Files;

/// How much address space each memory of a table or index reserves.
fn address_bytes(limit: Option<u64>) -> usize {
    let bytes = (limit.unwrap_or(1 << 36) * 2).next_power_of_two().clamp(1 << 30, 1 << 38);
    usize::try_from(bytes).unwrap_or(1 << 30)
}

/// Opens or creates a database.
pub(crate) fn open(
    path: &Path,
    options: Options,
    (io, cold_io): (Arc<dyn Io>, Arc<dyn Io>),
    clock: Arc<dyn Clock>,
) -> Result<(Arc<Inner>, Option<LockGuard>)> {
    let limit = match options.memory_limit {
        Some(limit) => Some(limit),
        None => thermocline_base::vm::available_memory().map(|bytes| bytes / 5 * 4),
    };
    let mut options = Options { log_buffer_bytes: options.log_buffer_within(limit), ..options };
    let (io, cold_io) = if options.read_only {
        // What recovery repairs is repaired in memory, once for both.
        let below = OverlayIo::new(cold_io);
        options.cold_threads = 0;
        (Arc::new(below.clone()) as Arc<dyn Io>, Arc::new(below) as Arc<dyn Io>)
    } else {
        (io, cold_io)
    };
    let files = Files::new(io, path.to_path_buf());
    let cold = ColdSide::new(cold_io, crate::cold::store::dir_of(path));
    let mut inner = Inner::new(options, address_bytes(limit), files, cold, clock);
    if path == Path::new(IN_MEMORY) {
        inner.budget.set_limit(limit);
        return Ok((Arc::new(inner), None));
    }
    // The limit is of what the process takes, not of what is in use of that.
    thermocline_base::vm::bound_heap();
    let (lock, superblock) = claim(&inner, path)?;
    inner.files.found_id(superblock.database);
    let (wanted, writes) = (inner.options.cold_dir.as_deref(), !inner.options.read_only);
    let cold_dir = crate::cold::location::settle(&**inner.files.io(), path, wanted, writes)?;
    inner.cold.found_dir(cold_dir);
    let checkpoints = dir_of(path);
    let known = FoundEnds::read(&**inner.files.io(), path, &superblock)?;
    let found = newest_manifest(&**inner.files.io(), path, superblock.database, known.ends.manifest)?;
    let fresh = found.is_none();
    let mut manifest = found.unwrap_or_else(|| Manifest::empty(superblock.database));
    if !inner.options.read_only {
        inner.files.io().create_dir_all(&checkpoints)?;
        manifest.sweep(&**inner.files.io(), &checkpoints)?;
        inner.files.io().create_dir_all(&crate::log::dir_of(path))?;
        // The names of both directories.
        inner.files.io().sync_dir(path)?;
        if !superblock.has_ends() {
            Superblock::new(superblock.database, superblock.created_us).create(&**inner.files.io(), path)?;
        }
        let ends = Ends::open(&**inner.files.io(), path, &superblock, known)?;
        inner.files.keep_ends(Arc::new(ends));
        if fresh {
            // Before the first segment of the log: where that is, a manifest has been.
            manifest.sequence = 1;
            manifest.write(&**inner.files.io(), &checkpoints)?;
        }
    }
    inner.registry.clock.reach(manifest.clock);
    let crashed_volatile = manifest.state == RunState::Volatile;
    if crashed_volatile {
        forget_cold_rows(&inner, &mut manifest)?;
    }
    open_catalog(&inner, &manifest)?;
    load_images(&inner, &manifest)?;
    let end = replay(&inner, &manifest, known.ends.log)?;
    if crashed_volatile {
        tracing::warn!(
            directory = %path.display(),
            "the last session ran with durability = off and was not closed: what it wrote is gone"
        );
    }
    build_indexes(&inner)?;
    // Nobody will need again what this has used.
    thermocline_base::vm::trim_heap();
    let cold = manifest.cold;
    if !crashed_volatile {
        inner.files.found_store(known_store(&known.ends, &manifest, &end));
    }
    if let Some(ends) = inner.files.ends() {
        ends.found_log(end.lsn);
    }
    inner.budget.set_limit(limit);
    inner.checkpoints = Checkpoints::of(manifest, end.lsn, crashed_volatile);
    inner.files.found_log_end(end.lsn);
    // Whatever is missing is missed before anything is written that a second opening would go on from.
    open_cold_rows(&inner, cold)?;
    if !inner.options.read_only {
        open_log(&mut inner, superblock.database, &end)?;
    }
    decide_batches(&inner)?;
    if !inner.options.read_only {
        if inner.log().is_none() {
            // What earlier sessions left is in the images from now on, and the manifest says how this one runs.
            crate::ops::checkpoint::checkpoint(&inner, RunState::Volatile)?;
        } else if crashed_volatile {
            crate::ops::checkpoint::write_definitions(&inner)?;
        }
    }
    thermocline_base::vm::trim_heap();
    crate::ops::memory::note_memory(&inner);
    crate::ops::minimum::check(&inner, inner.budget.limit(), known.ends.memory_limit)?;
    crate::ops::checkpoint::seal(&inner);
    crate::ops::checkpoint::catch_up(&inner);
    Ok((Arc::new(inner), lock))
}

/// Up to where the cold store is known to have been durable. Marks of the log that are of another store tell nothing: what is here
/// is a copy of that one.
pub(crate) fn known_store(ends: &DurableEnds, manifest: &Manifest, log: &LogEnd) -> StoreEnd {
    // A manifest that is older than the file of ends may be from before a store that was given up.
    let known = match ends.store.identity {
        0 => manifest.store,
        identity if identity == manifest.store.identity => manifest.store.and(ends.store),
        _ => ends.store,
    };
    if log.store.identity == known.identity { known.and(log.store) } else { known }
}

/// The newest manifest; `None` if the database has just been made. `least`: the sequence of one that is known to have been there.
pub(crate) fn newest_manifest(
    io: &dyn Io,
    path: &Path,
    database: [u8; 16],
    least: u64,
) -> Result<Option<Manifest>> {
    let checkpoints = dir_of(path);
    let manifest = Manifest::read_newest(io, &checkpoints, &database)?;
    let found = manifest.as_ref().map_or(0, |manifest| manifest.sequence);
    if found < least {
        let there =
            if found == 0 { "none is there".to_owned() } else { format!("{} is", manifest_name(found)) };
        return Err(Error::Damaged {
            file: checkpoints.join(manifest_name(least)),
            what: format!(
                "it is missing: it was the newest manifest, and {there}; restore the file or a backup"
            ),
        });
    }
    if manifest.is_some() {
        return Ok(manifest);
    }
    let log = crate::log::dir_of(path);
    if io.exists(&log)? && !io.list(&log)?.is_empty() {
        return Err(Error::Damaged {
            file: checkpoints,
            what: "no manifest is there, although there is a log, which is made after the first one"
                .to_owned(),
        });
    }
    Ok(None)
}

/// Locks the directory and reads its superblock, or makes one.
fn claim(inner: &Inner, path: &Path) -> Result<(Option<LockGuard>, Superblock)> {
    let io = inner.files.io();
    // Before anything is written into a directory, it must turn out to be ours or empty.
    let existing = Superblock::open(io, path)?;
    if inner.options.read_only {
        let lock = lock_to_read(&**io, path)?;
        let superblock = existing.ok_or_else(|| Error::NotADatabase {
            directory: path.to_path_buf(),
            found: "there is nothing to read".to_owned(),
        })?;
        return Ok((lock, superblock));
    }
    io.create_dir_all(path)?;
    let lock = io.lock_exclusive(&path.join(LOCK_FILE)).map_err(|error| locked(path, error))?;
    let superblock = match existing {
        Some(superblock) => superblock,
        // Another process may have been first, between the look and the lock.
        None => match Superblock::open(io, path)? {
            Some(superblock) => superblock,
            None => {
                let superblock = Superblock::new(thermocline_base::rng::fresh_id(), inner.clock.wall_us());
                superblock.create(&**io, path)?;
                superblock
            }
        },
    };
    Ok((Some(lock), superblock))
}

fn locked(path: &Path, error: IoError) -> Error {
    match error.is_locked() {
        true => Error::Locked { directory: path.to_path_buf(), here: error.is_locked_here() },
        false => error.into(),
    }
}

/// Keeps out whoever would write, for as long as the guard lives, and changes nothing. Readers may be several. `None`: no
/// process has had the database open where it is now, or the medium has no locks: then nothing keeps a writer out, who
/// could not write to most such media either.
pub(crate) fn lock_to_read(io: &dyn Io, path: &Path) -> Result<Option<LockGuard>> {
    io.lock_shared(&path.join(LOCK_FILE)).map_err(|error| locked(path, error))
}

fn manifest_path(inner: &Inner, manifest: &Manifest) -> PathBuf {
    dir_of(inner.files.dir()).join(manifest_name(manifest.sequence))
}

fn open_catalog(inner: &Inner, manifest: &Manifest) -> Result<()> {
    if manifest.catalog.is_empty() {
        return Ok(());
    }
    let (tables, next_table, next_index) = decode_catalog(&manifest.catalog)
        .map_err(|what| Error::Damaged { file: manifest_path(inner, manifest), what })?;
    inner.catalog.reach(next_table, next_index);
    for stored in tables {
        let (id, name) = (stored.id, stored.schema.name.clone());
        let form = inner.forms().form(stored, Arc::default())?;
        inner.catalog.add(&name, Arc::new(TableEntry::new(id, &inner.epochs, form)));
    }
    Ok(())
}

/// Runs `work` over all jobs on as many threads as the options say; the first error wins.
fn in_parallel<J: Sync>(inner: &Inner, jobs: &[J], work: impl Fn(&J) -> Result<()> + Sync) -> Result<()> {
    let threads = inner
        .options
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
        .min(jobs.len());
    if threads <= 1 {
        return jobs.iter().try_for_each(work);
    }
    let next = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Plain::Relaxed)) {
                    if let Err(error) = work(job) {
                        next.store(jobs.len(), Plain::Relaxed);
                        failure.lock().get_or_insert(error);
                    }
                }
            });
        }
    });
    failure.into_inner().map_or(Ok(()), Err)
}

/// After a crash of a session without a log: what was in the cold store before it may have been removed meanwhile. So
/// all rows are gone, those of the images too, if there was a cold store.
fn forget_cold_rows(inner: &Inner, manifest: &mut Manifest) -> Result<()> {
    let dir = inner.cold.dir().to_path_buf();
    if !inner.files.io().exists(&dir)? || mutation::off(Rule::VolatileForgets) {
        return Ok(());
    }
    if let Some(ends) = inner.files.ends() {
        ends.forget_store()?;
    }
    for name in inner.files.io().list(&dir)?.iter().filter(|name| crate::cold::is_name_of_store(name)) {
        inner.files.io().remove(&dir.join(name))?;
    }
    inner.files.io().sync_dir(&dir)?;
    manifest.cold = false;
    manifest.store = StoreEnd::default();
    manifest.chunks.clear();
    manifest.files.clear();
    Ok(())
}

/// Opens the cold store, if there is one. `known`: the manifest says that there is.
fn open_cold_rows(inner: &Inner, known: bool) -> Result<()> {
    let dir = inner.cold.dir().to_path_buf();
    let (found, wanted) = (crate::cold::kind_in(&**inner.files.io(), &dir)?, inner.options.cold_store);
    match found {
        Some(found) if found != wanted => {
            return Err(Error::InvalidOption {
                option: "cold_store",
                reason: format!(
                    "the cold rows of this database are in a store of the kind {found}, not {wanted}; open it with \
                     cold_store = {found}"
                ),
            });
        }
        None if (known || inner.files.store_least().identity != 0) && wanted != ColdStoreKind::Memory => {
            return Err(Error::Damaged {
                file: dir,
                what: "the cold store is missing, though rows are in it".to_owned(),
            });
        }
        _ => {}
    }
    if inner.cold.memo().is_none() && !inner.files.io().exists(&dir)? {
        return Ok(());
    }
    if inner.options.read_only && found.is_none() {
        // A store whose creation was cut short had no records yet.
        return Ok(());
    }
    let (_, cold) = crate::ops::migrate::open_cold(inner)?;
    let manifest = inner.checkpoints.newest_sequence();
    match missing_before_store(inner.files.log_end(), manifest, cold.store.owner_position()) {
        Some(what) => Err(Error::Damaged { file: inner.files.dir().to_path_buf(), what }),
        None => Ok(()),
    }
}

/// Decides about the batches of the cold store that wait for it: those that the log knows to have moved stay. A notice that is
/// gone had been B, since N goes only after its batch. A batch from beyond the log's end is of a history that has not happened.
/// The log has been made durable by now, so that no decision is ahead of it.
fn decide_batches(inner: &Inner) -> Result<()> {
    let (Some(memo), Some(cold)) = (inner.cold.memo(), inner.cold.get()) else { return Ok(()) };
    let failed = |source| Error::ColdStore { table: Error::ALL_TABLES.to_owned(), rows: None, source };
    let guard = inner.epochs.pin();
    let now = inner.registry.clock.now();
    for batch in cold.store.unconfirmed() {
        let notice = memo.batch_notice(batch.0, &guard);
        let stays = match notice {
            Some((_, version)) => {
                memo.read_batch(version).1 == NoticeKind::Begin || mutation::off(Rule::RecoveryDiscards)
            }
            None => batch.0 <= now.0,
        };
        let decided = if stays { cold.store.confirm(batch) } else { cold.store.discard(batch) };
        match cold.finish(decided) {
            // Its notice says what it is to everybody who meets it, and the cleaner tries again as long as that is there.
            Err(error) if error.is_full() && notice.is_some() => {
                tracing::warn!(%error, %batch, "a batch of the cold store is decided about when there is space");
            }
            decided => decided.map_err(failed)?,
        }
    }
    // What was dropped before, and may still be there.
    cold.store.retain(&|index| {
        inner.catalog.by_id(TableId(index.table)).is_some_and(|entry| {
            let form = entry.form_pinned(&guard);
            index == primary_of(form.id)
                || form.indexes[1..].iter().any(|of| index == secondary_of(form.id, of.id))
        })
    });
    for entry in inner.catalog.all() {
        if cold.store.may_contain_table(entry.id) {
            let form = entry.form_pinned(&guard);
            form.drop_emptied(cold, false);
            form.counters.cold.store(true, thermocline_base::sync::Ordering::SeqCst);
        }
    }
    Ok(())
}

/// What is wrong with a database that ends before the position that its cold store carries.
pub(crate) fn missing_before_store(end: Lsn, manifest: u64, position: OwnerPosition) -> Option<String> {
    let OwnerPosition { log, checkpoint } = position;
    if log > end.0 {
        return Some(format!(
            "the log ends at {end}, and the cold store was written when it was durable up to {log}: its last segments are \
             missing or older copies; restore the files or a backup"
        ));
    }
    (checkpoint > manifest).then(|| {
        format!(
            "the newest manifest is {}, and the cold store was written when {} was: it is missing; restore the file or a \
             backup",
            manifest_name(manifest),
            manifest_name(checkpoint)
        )
    })
}

/// The memo's tables, if one of them is meant.
fn memo_of(inner: &Inner, table: TableId) -> Result<()> {
    if is_internal(table) && inner.cold.memo().is_none() {
        let memo = Memo::create(inner.forms())?;
        inner.cold.keep_memo(memo);
    }
    Ok(())
}

/// Which table has the rows of which storage.
type Storages = BTreeMap<TableId, Arc<TableEntry>>;

fn storages_of(inner: &Inner) -> Storages {
    let guard = inner.epochs.pin();
    let storage = |entry: Arc<TableEntry>| (entry.form_pinned(&guard).storage, entry);
    inner.catalog.all().into_iter().map(storage).collect()
}

fn load_images(inner: &Inner, manifest: &Manifest) -> Result<()> {
    let images = Images::new(Arc::clone(inner.files.io()), dir_of(inner.files.dir()), manifest.database);
    let guard = inner.epochs.pin();
    let mut jobs: Vec<(Arc<TableEntry>, &ChunkImage)> = Vec::new();
    for &(storage, _) in manifest.chunks.keys() {
        memo_of(inner, storage)?;
    }
    let storages = storages_of(inner);
    for (&(storage, number), image) in &manifest.chunks {
        let Some(entry) = storages.get(&storage) else { continue };
        let form = entry.form_pinned(&guard);
        if !is_of(image, form) {
            return Err(Error::Damaged {
                file: manifest_path(inner, manifest),
                what: format!(
                    "an image of table {:?} is from before the table was changed",
                    form.schema.name
                ),
            });
        }
        form.store.directory.make(number, &form.store.slots)?;
        jobs.push((Arc::clone(entry), image));
    }
    // Rows that go over wait for the epochs.
    drop(guard);
    in_parallel(inner, &jobs, |(entry, image)| {
        let guard = inner.epochs.pin();
        let form = entry.form_pinned(&guard);
        let mut buffer = Vec::new();
        let version = image.header.schema_version;
        let of_chunk = |outcome| set_damage_aside(form, image.header.chunk, outcome);
        let is_readable = match images.look(image) {
            Err(damaged @ CheckpointError::Damaged { .. }) => of_chunk(Err(damaged.into()))?,
            looked => looked.map(|()| true)?,
        };
        if is_readable {
            of_chunk(images.load(image, &mut buffer, |slot, begin, row| {
                if begin == FROZEN_ROWS {
                    // Rows beside the block are read, whatever it is like.
                    return of_chunk(load_block(inner, form, &images, image, row)).map(|_| ());
                }
                let row_id = RowId::new(image.header.chunk, slot);
                let renewed =
                    form.renew_from(version, row).map_err(|error| bad_row(inner, form, row_id, &error))?;
                put(inner, form, row_id, begin, renewed.as_deref().unwrap_or(row))
            }))?;
        }
        if version != form.layout_version
            && let Some(chunk) = form.store.directory.get(image.header.chunk, &guard)
        {
            // The next checkpoint has it as it is now.
            chunk.mark_dirty();
        }
        let is_paged = form.schema.row_tiering() == Tiering::Paged;
        drop(guard);
        if is_paged && is_filling_up(inner) {
            // Nobody knows yet which rows will be used; those that are come back.
            if let Err(error) = crate::ops::page::page_chunk(inner, entry, image.header.chunk, Settled::MOST)
            {
                // More memory than was meant, and all rows.
                tracing::warn!(%error, table = %form_name(inner, entry), "rows of a paged table stay in memory");
            }
            inner.epochs.collect();
            entry.form_pinned(&inner.epochs.pin()).store.memory.collect();
        }
        Ok(())
    })
}

/// Of what cannot be read of a chunk, rows are missing; all else is served ([`Damage`](crate::hot::damage)). But nothing is served
/// without what the engine itself keeps, nor with files that are another database's. `false`: rows are missing.
fn set_damage_aside(form: &TableForm, chunk: u32, outcome: Result<()>) -> Result<bool> {
    match outcome {
        Ok(()) => Ok(true),
        Err(Error::Damaged { file, what }) if !is_internal(form.id) => {
            tracing::error!(table = %form.schema.name, chunk, file = %file.display(), %what, "rows cannot be read");
            form.store.damage.note(DamagedChunk { chunk, file, what });
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

fn form_name(inner: &Inner, entry: &TableEntry) -> String {
    entry.form_pinned(&inner.epochs.pin()).schema.name.clone()
}

/// Takes what was loaded so much of the limit that rows of paged tables go over at once? A database that is opened to look writes nothing.
fn is_filling_up(inner: &Inner) -> bool {
    let may_write = !inner.options.read_only || inner.options.paged_dir.is_some();
    may_write && inner.memory_limit().is_some_and(|limit| inner.budget.used() > limit / 4)
}

fn bad_row(inner: &Inner, form: &TableForm, row_id: RowId, what: &dyn std::fmt::Display) -> Error {
    let (file, table) = (inner.files.dir().to_path_buf(), &form.schema.name);
    Error::Damaged { file, what: format!("row {row_id} of table {table:?}: {what}") }
}

/// The frozen rows of a chunk, from what its image says of them.
fn load_block(
    inner: &Inner,
    form: &TableForm,
    images: &Images,
    image: &ChunkImage,
    frozen: &[u8],
) -> Result<()> {
    let (base, slots) = images.frozen_slots(image, frozen)?;
    let (hidden, bytes) = images.load_base(image, &base, &mut Vec::new())?;
    let damaged = |error: thermocline_frozen::Error| {
        images.damaged(image, base.offset, &format!("its frozen rows cannot be read: {error}"))
    };
    let older = form.older_layout(image.header.schema_version);
    let rows = Rows::parse(bytes, hidden, older.unwrap_or(&form.layout)).map_err(damaged)?;
    rows.block().verify().map_err(damaged)?;
    let missing = (0..=u16::MAX)
        .filter(|position| {
            slots.get(usize::from(*position) / 64).is_some_and(|word| word >> (position % 64) & 1 != 0)
        })
        .any(|position| !rows.is_present(position));
    if missing || form.hidden_key() == rows.hidden().is_empty() {
        return Err(images.damaged(image, base.offset, "its frozen rows are not those of its slots").into());
    }
    if older.is_some() {
        return load_older_block(inner, form, &rows, image, &slots);
    }
    form.note_counters_of(&rows);
    // No snapshot is older than the image, which has only what had begun by then.
    let mut begins = Begins::default();
    begins.push(0, image.header.timestamp);
    let block = Block::new(rows, begins, &inner.budget)?;
    Ok(form.store.restore_block(image.header.chunk, block, &slots, &inner.epochs.pin())?)
}

/// Frozen rows of a layout that the table has no longer: each is a row of its own now.
fn load_older_block(
    inner: &Inner,
    form: &TableForm,
    rows: &Rows,
    image: &ChunkImage,
    slots: &[u64],
) -> Result<()> {
    let (version, mut row) = (image.header.schema_version, Vec::new());
    for position in (0..=u16::MAX).filter(|position| {
        slots.get(usize::from(*position) / 64).is_some_and(|word| word >> (position % 64) & 1 != 0)
    }) {
        row.clear();
        rows.row_into(position, &mut row);
        let row_id = RowId::new(image.header.chunk, position);
        let renewed = form.renew_from(version, &row).map_err(|error| bad_row(inner, form, row_id, &error))?;
        put(inner, form, row_id, image.header.timestamp, renewed.as_deref().unwrap_or(&row))?;
    }
    Ok(())
}

/// A row as of `begin`, whatever stood there before.
fn put(inner: &Inner, form: &TableForm, row_id: RowId, begin: Timestamp, payload: &[u8]) -> Result<()> {
    let store = &form.store;
    let bad = |what: &str| bad_row(inner, form, row_id, &what);
    if payload.len() < form.suffix_bytes {
        return Err(bad("it is shorter than its hidden key"));
    }
    let (row, suffix) = payload.split_at(payload.len() - form.suffix_bytes);
    form.layout.check(row).map_err(|error| bad(&error.to_string()))?;
    form.note_counters(payload);
    let guard = inner.epochs.pin();
    let chunk = store.directory.get(row_id.chunk(), &guard).ok_or_else(|| bad("its chunk is not there"))?;
    chunk.note_used(u32::from(row_id.slot()));
    // What the log says is newer than the base.
    store.forget_frozen(row_id, &guard);
    let mut latched =
        store.directory.latch(row_id, &guard).ok_or_else(|| bad("its slot is beyond its chunk"))?;
    let version = store.create(Begin::At(begin), None, row_id, false, row, suffix)?;
    if let Some(before) = latched.newest() {
        latched.set(Some(version));
        store.discard(before);
    } else {
        latched.set(Some(version));
    }
    Ok(())
}

/// Replays the log; where it ends. `durable`: up to where it is known to have been durable.
fn replay(inner: &Inner, manifest: &Manifest, durable: Lsn) -> Result<LogEnd> {
    let dir = crate::log::dir_of(inner.files.dir());
    let failed = |error| inner.log_error(&error);
    let mut reader = LogReader::open(
        Arc::clone(inner.files.io()),
        &dir,
        manifest.database,
        manifest.log_start,
        manifest.log_durable.max(durable),
    )
    .map_err(failed)?;
    let storages = storages_of(inner);
    let mut replay = Replay { inner, manifest, parts: HashMap::new(), storages, last: None };
    while let Some(record) = reader.next().map_err(failed)? {
        let (lsn, kind) = (record.lsn, record.kind);
        replay.apply(lsn, kind, record.payload)?;
    }
    reader.finish().map_err(failed)
}

struct Replay<'a> {
    inner: &'a Inner,
    manifest: &'a Manifest,
    /// Writes of parts, by the position of the first part: encoded payloads.
    parts: HashMap<Lsn, Vec<Vec<u8>>>,
    storages: Storages,
    /// The storage that was looked for last, and its table.
    last: Option<(TableId, Arc<TableEntry>)>,
}

impl Replay<'_> {
    fn apply(&mut self, lsn: Lsn, kind: Kind, payload: &[u8]) -> Result<()> {
        let bad = |error: DecodeError| Error::Damaged {
            file: crate::log::dir_of(self.inner.files.dir()),
            what: format!("the record at position {lsn} cannot be read: {error}"),
        };
        match kind {
            Kind::Part => {
                let part = Part::decode(payload).map_err(bad)?;
                let parts = self.parts.entry(part.first).or_default();
                // A group whose first part lies before the replay start belongs to a commit that all images cover.
                if part.number as usize == parts.len() {
                    parts.push(payload.to_vec());
                }
            }
            Kind::Commit => {
                let commit = Commit::decode(payload).map_err(bad)?;
                self.inner.registry.clock.reach(commit.timestamp);
                // A table is made before it is filled, and emptied before it is filled again.
                for write in commit.writes {
                    let write = write.map_err(bad)?;
                    if write.op != Op::Define || mutation::off(Rule::DefinedBeforeFilled) {
                        break;
                    }
                    self.define(lsn, commit.timestamp, write.bytes)?;
                }
                if let Some(group) = commit.group {
                    let parts = self.parts.remove(&group.first).unwrap_or_default();
                    // Parts from before the replay start belong to a commit that all images cover.
                    if parts.len() == group.parts as usize {
                        for part in parts {
                            for write in Part::decode(&part).map_err(bad)?.writes {
                                self.write(commit.timestamp, &write.map_err(bad)?)?;
                            }
                        }
                    }
                }
                for write in commit.writes {
                    self.write(commit.timestamp, &write.map_err(bad)?)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// What the commit does to the catalog, unless the manifest has it already.
    fn define(&mut self, lsn: Lsn, timestamp: Timestamp, bytes: &[u8]) -> Result<()> {
        if timestamp <= self.manifest.clock {
            return Ok(());
        }
        let redefined = Redefined::decode(bytes, timestamp).map_err(|what| Error::Damaged {
            file: crate::log::dir_of(self.inner.files.dir()),
            what: format!("the definitions of the record at position {lsn} cannot be read: {what}"),
        })?;
        self.last = None;
        redefine(self.inner, redefined, &mut self.storages)
    }

    fn write(&mut self, timestamp: Timestamp, write: &Write<'_>) -> Result<()> {
        if write.op == Op::Define {
            return Ok(());
        }
        if self.last.as_ref().is_none_or(|(storage, _)| *storage != write.table) {
            if is_internal(write.table) && !self.storages.contains_key(&write.table) {
                memo_of(self.inner, write.table)?;
                self.storages.extend(storages_of(self.inner));
            }
            self.last = self.storages.get(&write.table).map(|entry| (write.table, Arc::clone(entry)));
        }
        let Some((_, entry)) = &self.last else {
            if self.inner.catalog.has_given(write.table) {
                // It was dropped or emptied.
                return Ok(());
            }
            // A table stands in the log before its first row, or else in the manifest.
            return Err(Error::Damaged {
                file: dir_of(self.inner.files.dir()),
                what: format!(
                    "the log has rows of a table with id {}, of which the newest manifest ({}) knows nothing: a \
                     newer one is missing",
                    write.table,
                    manifest_name(self.manifest.sequence)
                ),
            });
        };
        let guard = self.inner.epochs.pin();
        let form = entry.form_pinned(&guard);
        let number = write.row.chunk();
        let covered = self
            .manifest
            .chunks
            .get(&(write.table, number))
            .map_or(Timestamp(0), |image| image.header.timestamp);
        if timestamp <= covered || timestamp <= form.since {
            return Ok(());
        }
        match write.op {
            Op::Insert | Op::Update => {
                if form.store.directory.get(number, &guard).is_none() {
                    form.store.directory.make(number, &form.store.slots)?;
                }
                // A manifest may know of columns that the row was written before.
                let renewed = match form.has_past() {
                    true => form.try_renew(timestamp.0, write.bytes),
                    false => Ok(None),
                };
                let renewed = renewed.map_err(|error| bad_row(self.inner, form, write.row, &error))?;
                put(self.inner, form, write.row, timestamp, renewed.as_deref().unwrap_or(write.bytes))?;
            }
            Op::Define => {}
            Op::Left => {
                let bad = || Error::Damaged {
                    file: crate::log::dir_of(self.inner.files.dir()),
                    what: format!("what it says of the rows of chunk {number} that have left cannot be read"),
                };
                let (_, slots) = left_of(write.bytes).ok_or_else(bad)?;
                if let Some(chunk) = form.store.directory.get(number, &guard) {
                    chunk.clear(&slots, &guard, &form.store.slots, |version| form.store.discard(version));
                    chunk.drop_dead_blocks(&self.inner.epochs, &guard);
                }
            }
            Op::Delete => {
                form.store.forget_frozen(write.row, &guard);
                if let Some(mut latched) = form.store.directory.latch(write.row, &guard)
                    && let Some(before) = latched.newest()
                {
                    latched.set(None);
                    form.store.discard(before);
                }
            }
        }
        if let Some(chunk) = form.store.directory.get(number, &guard) {
            chunk.mark_dirty();
        }
        Ok(())
    }
}

/// Makes all indexes from the rows.
fn build_indexes(inner: &Inner) -> Result<()> {
    let mut jobs: Vec<(Arc<TableEntry>, usize, u64)> = Vec::new();
    for entry in inner.catalog.all() {
        let guard = inner.epochs.pin();
        let form = entry.form_pinned(&guard);
        form.store.seal_all(&guard);
        let size = form.store.memory.used_bytes();
        jobs.extend((0..form.indexes.len()).map(|index| (Arc::clone(&entry), index, size)));
    }
    // The largest first, so that no thread is left with one at the end.
    jobs.sort_by_key(|&(_, _, size)| std::cmp::Reverse(size));
    in_parallel(inner, &jobs, |(entry, index, _)| {
        let guard = inner.epochs.pin();
        let form = entry.form_pinned(&guard);
        crate::ops::define::fill_index(form, &form.indexes[*index], &guard, &mut || Ok(()))
    })
}

fn open_log(inner: &mut Inner, database: [u8; 16], end: &LogEnd) -> Result<()> {
    let mode = match inner.options.durability {
        Durability::Sync => FlushMode::Sync,
        Durability::Group => FlushMode::Group,
        Durability::Async => FlushMode::Async,
        Durability::Off => return Ok(()),
    };
    let options = LogOptions {
        mode,
        ring_bytes: inner.options.log_buffer_bytes,
        segment_bytes: inner.options.log_segment_bytes,
    };
    let log = Log::open(
        Arc::clone(inner.files.io()),
        &crate::log::dir_of(inner.files.dir()),
        database,
        end,
        options,
        Arc::clone(&inner.clock),
    )
    .map_err(|error| inner.log_error(&error))?;
    if let Some(ends) = inner.files.ends() {
        log.set_owner(Arc::clone(ends) as Arc<dyn LogOwner>);
    }
    inner.files.keep_log(log);
    Ok(())
}
