//! Opening a store: creating it, or finding out what a crash has left.
//!
//! | found | meaning | what is done |
//! |---|---|---|
//! | nothing | a new store | page file, journal, and last the manifest are created |
//! | no manifest, page file or journal without contents | creation was interrupted | they are removed, and created |
//! | no manifest, contents | the manifest was lost | error |
//! | manifest, no page file or no journal | a file was lost | error |
//! | manifest or journal end before what the owner has noted | an older copy, or a file was lost | error |
//! | generations of segments, or numbers of records, with a gap | a segment was lost, or is an older copy | error |
//! | torn edit at the end of the manifest | a change was not acknowledged | it is forgotten: the manifest is written anew |
//! | extents that no piece of the manifest has | a flush or merge was under way | they are free |
//! | torn group at the end of the journal | its batches were not acknowledged | it is forgotten: what follows goes to a new segment |
//! | segments of generations before the manifest's floor | they were about to be used again | they are used again |
//! | a tail of a piece that cannot be read | the device, or damage | it is made again from the piece's records |
//! | batches in the journal that are not in pieces | a crash, or a store that was closed | memory holds them again |
//! | batches without a decision | their owner had not decided, or that was lost | `unconfirmed` names them |
//!
//! Time: the tails of all pieces (fences, filters, and of young ones what screens are made of), the manifest, and the
//! journal since the last flush are read; no records in pieces are.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use thermocline_base::io::{Io, OpenMode};
use thermocline_base::sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, RwLock};

use super::end::{EndKeeper, StoreEnd};
use super::error::{Result, StoreError};
use super::filter::Scratch;
use super::inner::{Control, Counters, Inner, Queue, Signal};
use super::journal::{Journal, Record};
use super::manifest::{MANIFEST_NAME, Manifest, ManifestState};
use super::memory::MemoryBlock;
use super::object::Object;
use super::options::StoreOptions;
use super::piece::{Files, Piece};
use super::types::BatchId;
use super::version::{Leaf, Leaves, Version, WaitingBatch};
use crate::device::PageDevice;
use crate::error::{DeviceError, WrongFile};
use crate::space::{EXTENT_PAGES, Space};
use crate::ssd::SsdFile;

pub(super) const PAGES_NAME: &str = "store.pages";
const LOCK_NAME: &str = "store.lock";

/// Opens a store, or creates it.
pub(super) fn open(io: &Arc<dyn Io>, dir: &Path, options: StoreOptions) -> Result<Arc<Inner>> {
    options.check()?;
    io.create_dir_all(dir)?;
    let lock = io.lock_exclusive(&dir.join(LOCK_NAME)).map_err(|error| match error.is_locked() {
        true => StoreError::InUse { path: Arc::new(dir.to_path_buf()) },
        false => error.into(),
    })?;
    let create = !Manifest::exists(&**io, dir)?;
    let least = options.least;
    if create && least != StoreEnd::default() {
        return Err(lost(dir));
    }
    if create {
        remove_unfinished(&**io, dir, &options)?;
    }
    let database = options.database_id;
    let pages = dir.join(PAGES_NAME);
    let device = if create {
        PageDevice::create(&**io, &pages, options.page_size, database)?
    } else {
        PageDevice::open(&**io, &pages, None, database)?
    };
    // Before pieces are loaded: their tails come from there, too.
    let mut device = device;
    if let Some((io, ssd)) = &options.ssd {
        device.attach(SsdFile::open(io, ssd.clone(), device.page_size(), database)?);
    } else if let Some(lent) = &options.lent {
        device.attach(SsdFile::lent(lent.clone(), device.page_size())?);
    }
    if let Some(capture) = &options.capture {
        device.capture(Arc::clone(capture));
    }
    let device = Arc::new(device);
    let keeper = EndKeeper::new(options.owner.clone());
    let (mut journal, replayed, manifest) = if create {
        let (mut journal, replayed) =
            Journal::open(io, dir, database, options.segment_bytes, 0, 0, true, 0, &keeper)?;
        journal.begin()?;
        let state = ManifestState::default();
        (journal, replayed, Manifest::create(io, dir, database, device.page_size(), state, &keeper)?)
    } else {
        let found = Manifest::find(io, dir, database, device.page_size(), least)?;
        let (flushed, floor) = (found.state.flushed, found.state.journal_floor);
        keeper.found_position(found.state.position);
        let (journal, replayed) = Journal::open(
            io,
            dir,
            database,
            options.segment_bytes,
            flushed,
            floor,
            false,
            least.record,
            &keeper,
        )?;
        // Only now, when nothing is missing, something is written.
        (journal, replayed, Manifest::open(found, io, dir, database, device.page_size(), &keeper)?)
    };
    let spare = options.spare_bytes / (EXTENT_PAGES * device.page_size().bytes() as u64);
    let space = Space::new(Arc::clone(&device), spare)?;
    for run in manifest.state.pieces.values().flat_map(|meta| &meta.runs) {
        space.claim(*run)?;
    }
    let files = Arc::new(Files::new(device, space, &options)?);
    let version = load(&files, &manifest, &options)?;
    let flushed = manifest.state.flushed;
    journal.applied();
    let inner = Arc::new(Inner {
        dir: dir.to_path_buf(),
        files,
        version: RwLock::new(Arc::new(version)),
        queue: Mutex::new(Queue::default()),
        control: Mutex::new(Control { sealed_to: flushed, ..Control::default() }),
        next_piece: AtomicU64::new(manifest.state.next_piece),
        flushed: AtomicU64::new(flushed),
        journal_segments: AtomicU64::new(journal.segment_count() as u64),
        journal: Mutex::new(journal),
        keeper,
        manifest: Mutex::new(manifest),
        failure: OnceLock::new(),
        full: Mutex::new(None),
        closing: AtomicBool::new(false),
        crowd: Mutex::new(Vec::new()),
        queue_signal: Signal::default(),
        work_signal: Arc::default(),
        counters: Counters::default(),
        memory_peak: AtomicUsize::new(0),
        known_memory: Mutex::default(),
        dropped: RwLock::default(),
        lock: Mutex::new(Some(lock)),
        options,
    });
    for (number, record) in replayed.records {
        inner.replay(number, flushed, &record);
    }
    Ok(inner)
}

/// Without a manifest nothing was ever acknowledged; but a manifest may also have been lost.
fn remove_unfinished(io: &dyn Io, dir: &Path, options: &StoreOptions) -> Result<()> {
    let pages = dir.join(PAGES_NAME);
    if io.exists(&pages)? {
        let len = io.open(&pages, OpenMode::Read)?.len()?;
        if len > options.page_size.bytes().max(64 << 10) as u64 {
            return Err(lost(dir));
        }
        match PageDevice::open(io, &pages, None, options.database_id) {
            Ok(_) | Err(DeviceError::Unfinished { .. } | DeviceError::Damaged { .. }) => {}
            Err(DeviceError::File(WrongFile::Foreign { .. })) if len == 0 => {}
            Err(error) => return Err(error.into()),
        }
        io.remove(&pages)?;
    }
    for name in io.list(dir)? {
        if name.starts_with("journal-") {
            let file = io.open(&dir.join(&name), OpenMode::Read)?;
            let mut first_group = [0; 4];
            file.read_full_at(4096, &mut first_group)?;
            if first_group != [0; 4] {
                return Err(lost(dir));
            }
            io.remove(&dir.join(&name))?;
        }
    }
    Ok(())
}

fn lost(dir: &Path) -> StoreError {
    StoreError::Damaged {
        path: Arc::new(dir.join(MANIFEST_NAME)),
        offset: 0,
        what: "it is missing, though the store has contents",
    }
}

/// Loads the pieces that the manifest names.
fn load(files: &Arc<Files>, manifest: &Manifest, options: &StoreOptions) -> Result<Version> {
    let state = &manifest.state;
    let mut pieces = std::collections::BTreeMap::new();
    let last: HashSet<u64> = state.leaves.values().filter_map(|leaf| leaf.last).collect();
    let mut scratch = Scratch::within(options.memory_bytes, &files.work_bytes);
    let of_objects: HashSet<u64> = state.objects.values().map(|object| object.piece).collect();
    for (id, meta) in &state.pieces {
        let piece = if of_objects.contains(id) {
            Piece::without_entries(files, meta.clone())
        } else {
            Piece::load(files, meta.clone(), !last.contains(id), &mut scratch)?
        };
        pieces.insert(*id, Arc::new(piece));
    }
    let piece = |id: &u64| Arc::clone(&pieces[id]);
    let mut leaves_of: HashMap<u64, usize> = HashMap::new();
    for id in state.leaves.values().flat_map(|leaf| &leaf.young) {
        *leaves_of.entry(*id).or_default() += 1;
    }
    let leaves = state.leaves.iter().map(|(lower, leaf)| {
        let young: Vec<Arc<Piece>> = leaf.young.iter().map(piece).collect();
        let only = |piece: &Piece| leaves_of[&piece.meta.id] == 1;
        let found = Leaf::found(lower.clone(), young, leaf.last.as_ref().map(piece), only);
        // No screen takes the prints of the others.
        found.young.iter().for_each(|piece| drop(piece.take_prints()));
        Arc::new(found)
    });
    let waiting =
        state.waiting.iter().map(|(batch, id)| WaitingBatch::Piece { id: BatchId(*batch), piece: piece(id) });
    let objects = state
        .objects
        .iter()
        .map(|(batch, object)| (*batch, Arc::new(Object::new(object.clone(), piece(&object.piece)))));
    Ok(Version {
        waiting: waiting.collect(),
        active: Arc::new(MemoryBlock::new(options.memory_bytes, 0)),
        sealed: Vec::new(),
        leaves: Arc::new(Leaves::new(leaves.collect())),
        objects: Arc::new(objects.collect()),
    })
}

impl Inner {
    /// Lets a record of the journal take effect again; those up to `flushed` are in pieces, if they were confirmed.
    fn replay(&self, number: u64, flushed: u64, record: &Record) {
        match record {
            Record::Written(batch) => {
                // The piece of an unconfirmed batch is as good.
                let has_piece = self.current().waiting.iter().any(|waiting| waiting.id() == batch.id());
                if has_piece || (batch.confirmed && number <= flushed) {
                    return;
                }
            }
            Record::Confirmed(id) if number <= flushed => {
                self.forget(*id);
                return;
            }
            Record::Loaded(_) => return,
            Record::Confirmed(_) | Record::Discarded(_) => {}
        }
        self.apply(number, record);
        let mut control = self.control.lock();
        if number > control.sealed_to && self.current().active.batch_bytes() >= self.options.memory_bytes {
            self.seal(&mut control, number, 0);
        }
    }

    /// A batch that was confirmed is in pieces.
    fn forget(&self, id: BatchId) {
        let _control = self.control.lock();
        let mut version = Version::clone(&self.current());
        version.waiting.retain(|waiting| waiting.id() != id);
        self.publish(version);
    }
}
