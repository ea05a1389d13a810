//! Opening a direct store: everything that it knows in memory is read from its files.
//!
//! | found | what it means, and what is done |
//! |---|---|
//! | a file of slots that no decision names | its creation was interrupted, or it was of no use any more: it is removed |
//! | a slot whose stamp no decision names | its batch was never acknowledged, or was discarded: the slot is free |
//! | a slot whose removal is decided | the removal did not reach it: it is removed now |
//! | a slot that does not match its checksum, of a record that was removed | its successor was not acknowledged: free |
//! | any other slot that does not match its checksum, or cannot be read | damaged: it stays taken, reads of it name it, and the secondary indexes of its table cannot answer |
//!
//! When all that is done and durable, the file of decisions is replaced by one without what nobody needs any more.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, OnceLock, RwLock};

use thermocline_base::io::{Action, AlignedBytes, Io, IoError};
use thermocline_base::multiplex::block_on;
use thermocline_base::rng::fresh_id;
use thermocline_base::sync::{AtomicBool, Mutex};
use thermocline_pool::store::{BatchId, Found, IndexId as StoreIndex, StoreEnd, StoreError};

use super::super::store::{Presence, StoreTies};
use super::decisions::{self, Decided, Decisions, NewDecisions, Ties};
use super::reads::Reads;
use super::slots::{BLOCK, Geometry, Segment, SegmentId};
use super::space::Live;
use super::writer::Writer;
use super::{
    Counters, DirectOptions, DirectStore, Place, Queue, SecondaryKeys, Shared, Table, Waiting, read,
};

const LOCK_NAME: &str = "LOCK";
/// Blocks that are read at once.
const CHUNK_BLOCKS: u64 = 64;

impl DirectOptions {
    fn check(&self) -> Result<(), StoreError> {
        if !matches!(self.slot_bytes, 512 | 1024 | 2048 | 4096) {
            return Err(StoreError::BadOption("slots have 512, 1024, 2048 or 4096 bytes"));
        }
        let per_block = BLOCK as u32 / self.slot_bytes;
        if self.segment_slots == 0 || !self.segment_slots.is_multiple_of(per_block) {
            return Err(StoreError::BadOption(
                "a segment has slots for whole blocks of 4 KiB, and at least one",
            ));
        }
        Ok(())
    }
}

impl Table {
    pub(super) fn new(key_len: u32) -> Self {
        Self { key_len, segments: BTreeMap::new(), damage: None }
    }
}

/// What the slots say.
#[derive(Debug, Default)]
struct Contents {
    tables: BTreeMap<u32, Table>,
    secondaries: BTreeMap<StoreIndex, SecondaryKeys>,
    waiting: BTreeMap<BatchId, Waiting>,
    live: Live,
    last_stamp: u64,
    /// There are slots of which nobody knows whose they are.
    unknown: bool,
}

/// More stamps than are ever drawn between two decisions.
const UNKNOWN_STAMPS: u64 = 1 << 32;
/// No table's number.
const NO_TABLE: u32 = u32::MAX;

impl DirectStore {
    /// Opens the store in a directory, or creates it. Blocks, and reads all slots.
    ///
    /// # Errors
    /// When the files are foreign, newer, damaged or another database's, when the store is open already, and the system's.
    pub(crate) fn open(
        io: &Arc<dyn Io>,
        dir: &Path,
        options: DirectOptions,
        ties: StoreTies,
    ) -> Result<Self, StoreError> {
        options.check()?;
        io.create_dir_all(dir)?;
        let lock = io.lock_exclusive(&dir.join(LOCK_NAME)).map_err(|error| match error.is_locked() {
            true => StoreError::InUse { path: Arc::new(dir.to_path_buf()) },
            false => error.into(),
        })?;
        let DirectOptions { database_id: database, slot_bytes, segment_slots, .. } = options;
        let geometry = Geometry { database, slot_bytes, segment_slots };
        let (geometry, decided, generation) = Decisions::open(&**io, dir, geometry, ties.least)?;
        // The file of decisions is the first one that a store gets.
        let has_slots =
            || Ok::<_, IoError>(io.list(dir)?.iter().any(|name| SegmentId::from_file_name(name).is_some()));
        if generation == 0 && has_slots()? {
            let path = Arc::new(dir.join(decisions::FILE_NAME));
            return Err(StoreError::Damaged { path, offset: 0, what: "the file is missing" });
        }
        let contents = Contents::read(&**io, dir, geometry, &decided)?;
        let identity = match decided.identity {
            0 => u64::from_le_bytes(*fresh_id().first_chunk().expect("an id has 16 bytes")) | 1,
            identity => identity,
        };
        let ties = Arc::new(Ties {
            owner: ties.owner,
            identity,
            position: Mutex::new(decided.position),
            end: Mutex::new(StoreEnd { identity, ..StoreEnd::default() }),
        });
        let Contents { tables, secondaries, waiting, live, last_stamp, unknown } = contents;
        let presence = Presence::default();
        tables.keys().for_each(|table| presence.add(*table));
        // What cannot be read may have been attempted after the last decision: no stamp of it is used again either.
        let last_stamp = last_stamp.max(decided.last_stamp) + if unknown { UNKNOWN_STAMPS } else { 0 };
        let all = || tables.values().flat_map(|table| table.segments.values());
        let emptied = all().filter(|segment| segment.taken_count() == 0).cloned().collect();
        let shared = Shared {
            io: Arc::clone(io),
            dir: dir.to_path_buf(),
            geometry,
            tables: RwLock::new(tables),
            secondaries: RwLock::new(secondaries),
            waiting: RwLock::new(waiting),
            unapplied: RwLock::default(),
            any_unapplied: AtomicBool::new(false),
            new_files: Mutex::default(),
            emptied: Mutex::new(emptied),
            live: Mutex::new(live),
            reads: Reads::default(),
            dropped: RwLock::default(),
            presence,
            queue: Mutex::new(Queue { items: VecDeque::new(), in_flight: HashMap::new(), closed: false }),
            worker: OnceLock::new(),
            writer: Mutex::new(None),
            failure: OnceLock::new(),
            counters: Counters::default(),
            ties: Arc::clone(&ties),
            _lock: lock,
        };
        let removed = !decided.removals.is_empty();
        shared.remove(decided.removals);
        if let Some(error) = shared.failure.get() {
            return Err(error.clone());
        }
        if removed {
            for segment in read(&shared.tables).values().flat_map(|table| table.segments.values()) {
                segment.file.sync_data()?;
            }
        }
        // Removals that did not get into their slots are decided once more.
        let kept = shared.kept(last_stamp + 1);
        let decisions = NewDecisions::write(&**io, dir, geometry, generation + 1, &kept, &ties)?;
        let decisions = decisions.install(&**io, dir)?;
        let replace_least = options.decisions_bytes;
        let replace_at = replace_least.max(2 * decisions.bytes());
        let next_stamp = last_stamp + 2;
        *shared.writer.lock() = Some(Writer { decisions, next_stamp, replace_at, replace_least });
        let shared = Arc::new(shared);
        let mut thread = None;
        if options.thread {
            let shared = Arc::clone(&shared);
            let spawned =
                std::thread::Builder::new().name("direct store".into()).spawn(move || shared.work());
            thread = Some(spawned.map_err(|error| IoError::new(Action::Open, dir, None, error))?);
        }
        Ok(Self { shared, thread: Mutex::new(thread) })
    }
}

impl DirectStore {
    /// What could not be read when the store was opened, one a table.
    pub(crate) fn damages(&self) -> Vec<StoreError> {
        read(&self.shared.tables).values().filter_map(|table| table.damage.clone()).collect()
    }

    /// Shows all records that can be read, with the index and key of each. Blocks. What cannot be read is among the
    /// [damages](Self::damages) already.
    pub(crate) fn for_each_record(&self, mut see: impl FnMut(StoreIndex, &[u8], &Found)) {
        let shared = &self.shared;
        let segments: Vec<_> =
            read(&shared.tables).values().flat_map(|table| table.segments.values().cloned()).collect();
        for segment in segments {
            let index = StoreIndex { table: segment.id.table, index: 0 };
            let all = 0..shared.geometry.segment_slots;
            let mut held = None;
            let mut next = segment.next_taken(all.clone());
            while let Some(slot) = next {
                next = segment.next_taken(slot + 1..all.end);
                let (block, _) = shared.geometry.place(slot);
                if held.as_ref().is_none_or(|(of, _)| *of != block) {
                    held = block_on(segment.read_block(block)).ok().map(|bytes| (block, bytes));
                }
                let place = Place { segment: Arc::clone(&segment), slot };
                let found =
                    held.as_ref().and_then(|(_, bytes)| shared.record_in(&place, bytes).ok().flatten());
                if let Some(found) = found {
                    see(index, &segment.key(slot), &found);
                }
            }
        }
    }
}

impl Contents {
    fn read(io: &dyn Io, dir: &Path, geometry: Geometry, decided: &Decided) -> Result<Self, StoreError> {
        let mut contents = Self::default();
        for (stamp, (batch, confirmed, removals)) in &decided.batches {
            if !confirmed {
                let removals = removals.clone();
                let waiting = Waiting { stamp: *stamp, places: Vec::new(), tails: Vec::new(), removals };
                contents.waiting.insert(*batch, waiting);
            }
        }
        let removed: BTreeSet<(u32, &[u8], BatchId)> = decided
            .removals
            .iter()
            .filter(|removed| removed.index.index == 0)
            .map(|removed| (removed.index.table, &removed.key[..], removed.batch))
            .collect();
        for name in io.list(dir)? {
            let Some(id) = SegmentId::from_file_name(&name) else { continue };
            if !decided.files.contains(&id) {
                if let Err(error) = io.remove(&dir.join(&name)) {
                    tracing::warn!(%error, "a file of slots that holds nothing stays");
                }
                continue;
            }
            let Some(segment) = Segment::open(io, dir, id, geometry)? else { continue };
            contents.segment(Arc::new(segment), geometry, decided, &removed)?;
        }
        if contents.unknown {
            // They may be of any batch, and can perhaps be read the next time.
            for (stamp, (batch, ..)) in &decided.batches {
                contents.live.add(*stamp, *batch, NO_TABLE);
            }
        }
        for id in &decided.files {
            let of_table = contents.tables.get(&id.table);
            if of_table.is_none_or(|table| !table.segments.contains_key(&id.segment)) {
                let (path, what) = (Arc::new(dir.join(id.file_name())), "the file is missing");
                return Err(StoreError::Damaged { path, offset: 0, what });
            }
        }
        Ok(contents)
    }

    fn segment(
        &mut self,
        segment: Arc<Segment>,
        geometry: Geometry,
        decided: &Decided,
        removed: &BTreeSet<(u32, &[u8], BatchId)>,
    ) -> Result<(), StoreError> {
        let id = segment.id;
        let table = self.tables.entry(id.table).or_insert_with(|| Table::new(id.key_len));
        if table.key_len != id.key_len {
            let what = "the files of its table are of keys of another length";
            let path = Arc::new(segment.file.path().to_path_buf());
            return Err(StoreError::Damaged { path, offset: 0, what });
        }
        table.segments.insert(id.segment, Arc::clone(&segment));
        let per_block = geometry.slots_per_block();
        let blocks = u64::from(geometry.segment_slots / per_block);
        for first in (0..blocks).step_by(CHUNK_BLOCKS as usize) {
            let count = CHUNK_BLOCKS.min(blocks - first);
            let mut bytes = AlignedBytes::zeroed(count as usize * BLOCK);
            let together = segment.file.read_full_at(Segment::offset_of(first), &mut bytes);
            for block in first..first + count {
                let at = (block - first) as usize * BLOCK;
                let slots = block as u32 * per_block..(block as u32 + 1) * per_block;
                // One that cannot be read does not take its neighbours with it.
                let alone = match &together {
                    Ok(_) => None,
                    Err(_) => Some(block_on(segment.read_block(block))),
                };
                match alone {
                    None => self.block(&segment, slots, &bytes[at..at + BLOCK], geometry, decided, removed),
                    Some(Ok(bytes)) => self.block(&segment, slots, &bytes, geometry, decided, removed),
                    Some(Err(error)) => {
                        tracing::error!(%error, "a block of a direct store cannot be read");
                        slots.for_each(|slot| segment.take(slot, BatchId(u64::MAX), false));
                        self.unknown = true;
                        self.damage(id.table, error);
                    }
                }
            }
        }
        Ok(())
    }

    fn damage(&mut self, table: u32, error: StoreError) {
        if let Some(table) = self.tables.get_mut(&table) {
            table.damage.get_or_insert(error);
        }
    }

    fn block(
        &mut self,
        segment: &Arc<Segment>,
        slots: std::ops::Range<u32>,
        block: &[u8],
        geometry: Geometry,
        decided: &Decided,
        removed: &BTreeSet<(u32, &[u8], BatchId)>,
    ) {
        let table = segment.id.table;
        for slot in slots {
            let (_, at) = geometry.place(slot);
            match segment.decode(slot, &block[at..]) {
                Ok(None) => {}
                Ok(Some(found)) => {
                    self.last_stamp = self.last_stamp.max(found.stamp);
                    let Some((batch, confirmed, _)) = decided.batches.get(&found.stamp) else { continue };
                    segment.take(slot, *batch, found.record().is_some());
                    self.live.add(found.stamp, *batch, table);
                    for (index, key) in found.tails(table) {
                        self.secondaries.entry(index).or_default().insert(key.to_vec(), *batch);
                    }
                    if !confirmed && let Some(waiting) = self.waiting.get_mut(batch) {
                        waiting.places.push(Place { segment: Arc::clone(segment), slot });
                        waiting.tails.extend(found.tails(table).map(|(index, key)| (index, key.to_vec())));
                    }
                }
                Err(broken) => {
                    self.last_stamp = self.last_stamp.max(broken.stamp.unwrap_or(0));
                    if let Some(stamp) = broken.stamp {
                        let Some((batch, ..)) = decided.batches.get(&stamp) else { continue };
                        if removed.contains(&(table, &segment.key(slot)[..], *batch)) {
                            continue;
                        }
                        self.live.add(stamp, *batch, table);
                    }
                    self.unknown |= broken.stamp.is_none();
                    // Nobody knows of which batch it is.
                    segment.take(slot, BatchId(u64::MAX), false);
                    let error = segment.damaged(slot, broken.what);
                    tracing::error!(%error, "a slot of a direct store is damaged");
                    self.damage(table, error);
                }
            }
        }
    }
}
