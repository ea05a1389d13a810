//! The file of decisions: which batches count, and what was removed.
//!
//! ```text
//!   0         4096                                  (each group begins at a multiple of 4096)
//!   ┌─────────┬─────────────────────────┬─────────── ┄
//!   │ header  │ group: header, records  │ group
//!   └─────────┴─────────────────────────┴─────────── ┄
//!   header   magic 8 · format u32 · slot bytes u32 · database id 16 · slots of a segment u32 · 0 u32 · generation u64
//!            · checksum u32
//!   group    magic u32 · checksum of what follows u32 · bytes u32 · records u32 · record, record, …
//!   record   written   1 · stamp u64 · batch u64 · confirmed u8 · removals u32 · removal, removal, …
//!            confirmed 2 · stamp u64
//!            discarded 3 · stamp u64
//!            file      4 · number of the file u64 · table u32 · bytes of its keys u32   (from version 2 on)
//!            gone      5 · the same: the file holds nothing of use any more             (from version 3 on)
//!            position  6 · how far the owner was durable: log u64 · checkpoint u64       (from version 4 on)
//!            identity  7 · which store it is u64                                         (from version 4 on)
//!   removal  table u32 · index u32 · batch u64 · bytes u16 · key                                     little-endian
//! ```
//!
//! Rules:
//! - A group is durable before the next one is written. So behind a group that does not check out nothing is; if
//!   something is, the file is damaged and not torn.
//! - The file grows. Opening applies everything to the slots, makes that durable, and then puts a new file in its place
//!   that has what still counts; while the store is open that happens when the file has become long (`space`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use thermocline_base::checksum::{Seed, crc32c, crc32c_append};
use thermocline_base::io::{AlignedBytes, File, Io, OpenMode};
use thermocline_base::sync::Mutex;
use thermocline_pool::error::WrongFile;
use thermocline_pool::store::{
    BatchId, IndexId as StoreIndex, OwnerPosition, StoreEnd, StoreError, StoreOwner,
};

use super::slots::{BLOCK, Geometry, SegmentId, check_header, check_owner, u32_at, u64_at};

pub(in crate::cold) const FILE_NAME: &str = "direct";
const NEW_NAME: &str = "direct.new";
const MAGIC: &[u8; 8] = b"thcldrct";
const FORMAT: u32 = 4;
/// Before this one, files of slots were not named, and could not be missed.
const OLDEST_FORMAT: u32 = 2;
const GROUP_MAGIC: u32 = 0x6472_6374;
const GROUP_HEADER: usize = 16;
const SUMMED: usize = 48;
/// Space is taken in steps of this many bytes.
const STEP_BYTES: u64 = 1 << 20;

/// An entry that goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Removed {
    pub(super) index: StoreIndex,
    pub(super) key: Vec<u8>,
    pub(super) batch: BatchId,
}

/// What was decided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Decision {
    /// The slots with this stamp are a batch.
    Written {
        stamp: u64,
        batch: BatchId,
        confirmed: bool,
        removals: Vec<Removed>,
    },
    Confirmed {
        stamp: u64,
    },
    Discarded {
        stamp: u64,
    },
    /// There is a file of slots, from now on.
    File(SegmentId),
    /// What is in this file of slots is of no use any more, and it may be missing.
    Gone(SegmentId),
    /// How far the owner was durable.
    Position(OwnerPosition),
    /// Which store it is.
    Identity(u64),
}

impl Decision {
    fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Written { stamp, batch, confirmed, removals } => {
                bytes.push(1);
                bytes.extend_from_slice(&stamp.to_le_bytes());
                bytes.extend_from_slice(&batch.0.to_le_bytes());
                bytes.push(u8::from(*confirmed));
                bytes.extend_from_slice(&(removals.len() as u32).to_le_bytes());
                for removed in removals {
                    bytes.extend_from_slice(&removed.index.table.to_le_bytes());
                    bytes.extend_from_slice(&removed.index.index.to_le_bytes());
                    bytes.extend_from_slice(&removed.batch.0.to_le_bytes());
                    bytes.extend_from_slice(&(removed.key.len() as u16).to_le_bytes());
                    bytes.extend_from_slice(&removed.key);
                }
            }
            Self::Confirmed { stamp } | Self::Discarded { stamp } => {
                bytes.push(if matches!(self, Self::Confirmed { .. }) { 2 } else { 3 });
                bytes.extend_from_slice(&stamp.to_le_bytes());
            }
            Self::File(id) | Self::Gone(id) => {
                bytes.push(if matches!(self, Self::File(_)) { 4 } else { 5 });
                bytes.extend_from_slice(&id.segment.to_le_bytes());
                bytes.extend_from_slice(&id.table.to_le_bytes());
                bytes.extend_from_slice(&id.key_len.to_le_bytes());
            }
            Self::Position(OwnerPosition { log, checkpoint }) => {
                bytes.push(6);
                bytes.extend_from_slice(&log.to_le_bytes());
                bytes.extend_from_slice(&checkpoint.to_le_bytes());
            }
            Self::Identity(number) => {
                bytes.push(7);
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
    }

    /// Takes a decision from the front of `bytes`.
    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let mut take = |count: usize| {
            let (taken, rest) = bytes.split_at_checked(count)?;
            *bytes = rest;
            Some(taken)
        };
        let kind = take(1)?[0];
        let stamp = u64_at(take(8)?, 0);
        match kind {
            1 => {
                let batch = BatchId(u64_at(take(8)?, 0));
                let confirmed = take(1)?[0] == 1;
                let mut removals = Vec::new();
                for _ in 0..u32_at(take(4)?, 0) {
                    let head = take(18)?;
                    let index = StoreIndex { table: u32_at(head, 0), index: u32_at(head, 4) };
                    let len = u16::from_le_bytes([head[16], head[17]]);
                    let key = take(usize::from(len))?.to_vec();
                    removals.push(Removed { index, key, batch: BatchId(u64_at(head, 8)) });
                }
                Some(Self::Written { stamp, batch, confirmed, removals })
            }
            2 => Some(Self::Confirmed { stamp }),
            3 => Some(Self::Discarded { stamp }),
            4 | 5 => {
                let rest = take(8)?;
                let id = SegmentId { segment: stamp, table: u32_at(rest, 0), key_len: u32_at(rest, 4) };
                Some(if kind == 4 { Self::File(id) } else { Self::Gone(id) })
            }
            6 => Some(Self::Position(OwnerPosition { log: stamp, checkpoint: u64_at(take(8)?, 0) })),
            7 => Some(Self::Identity(stamp)),
            _ => None,
        }
    }
}

/// What the decisions so far amount to.
#[derive(Debug, Default)]
pub(super) struct Decided {
    /// Batches that count, by stamp: which, and whether it is confirmed; an unconfirmed one with its removals.
    pub(super) batches: BTreeMap<u64, (BatchId, bool, Vec<Removed>)>,
    /// What confirmed batches remove.
    pub(super) removals: Vec<Removed>,
    pub(super) last_stamp: u64,
    /// The files that there are. Others have nothing that counts: a crash kept them from being decided, or they are gone.
    pub(super) files: BTreeSet<SegmentId>,
    /// How far the owner was durable.
    pub(super) position: OwnerPosition,
    /// Which store it is; 0: that was not noted yet.
    pub(super) identity: u64,
}

impl Decided {
    fn add(&mut self, decision: Decision) {
        match decision {
            Decision::Written { stamp, batch, confirmed, mut removals } => {
                self.last_stamp = self.last_stamp.max(stamp);
                if confirmed {
                    self.removals.append(&mut removals);
                }
                self.batches.insert(stamp, (batch, confirmed, removals));
            }
            Decision::Confirmed { stamp } => {
                if let Some((_, confirmed, removals)) = self.batches.get_mut(&stamp) {
                    *confirmed = true;
                    self.removals.append(removals);
                }
            }
            Decision::Discarded { stamp } => drop(self.batches.remove(&stamp)),
            Decision::File(id) => drop(self.files.insert(id)),
            Decision::Gone(id) => drop(self.files.remove(&id)),
            Decision::Position(position) => self.position = self.position.and(position),
            Decision::Identity(identity) => self.identity = identity,
        }
    }
}

/// The file, open for appending.
#[derive(Debug)]
pub(super) struct Decisions {
    file: Arc<dyn File>,
    seed: Seed,
    generation: u64,
    end: u64,
    ties: Arc<Ties>,
    pub(super) bytes_written: u64,
}

/// Who the store belongs to, and what it is.
#[derive(Debug)]
pub(super) struct Ties {
    pub(super) owner: Option<Arc<dyn StoreOwner>>,
    pub(super) identity: u64,
    /// The greatest position of the owner that the file carries.
    pub(super) position: Mutex<OwnerPosition>,
    pub(super) end: Mutex<StoreEnd>,
}

impl Ties {
    /// The position that the next decisions carry, if it is a new one.
    fn news(&self) -> Option<Decision> {
        let mut known = self.position.lock();
        let position = known.and(self.owner.as_ref()?.position());
        (std::mem::replace(&mut *known, position) != position).then_some(Decision::Position(position))
    }

    fn note(&self, generation: u64, bytes: u64) {
        let mut end = self.end.lock();
        *end = end.and(StoreEnd { identity: self.identity, manifest: (generation, bytes), record: 0 });
        if let Some(owner) = &self.owner {
            owner.note_end(*end);
        }
    }
}

/// A file that is durable, but not in its place yet.
#[derive(Debug)]
pub(super) struct NewDecisions(Decisions);

impl NewDecisions {
    /// Writes the file. Blocks.
    pub(super) fn write(
        io: &dyn Io,
        dir: &Path,
        geometry: Geometry,
        generation: u64,
        decisions: &[Decision],
        ties: &Arc<Ties>,
    ) -> Result<Self, StoreError> {
        let new = dir.join(NEW_NAME);
        let file = io.open(&new, OpenMode::Create)?;
        file.set_len(0)?;
        let mut header = AlignedBytes::zeroed(BLOCK);
        header[..8].copy_from_slice(MAGIC);
        header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        header[12..16].copy_from_slice(&geometry.slot_bytes.to_le_bytes());
        header[16..32].copy_from_slice(&geometry.database);
        header[32..36].copy_from_slice(&geometry.segment_slots.to_le_bytes());
        header[40..48].copy_from_slice(&generation.to_le_bytes());
        let sum = crc32c(&header[..SUMMED]);
        header[SUMMED..SUMMED + 4].copy_from_slice(&sum.to_le_bytes());
        file.write_at(0, &header)?;
        let seed = Seed::new(&geometry.database, generation);
        let ties = Arc::clone(ties);
        let carried = [Decision::Identity(ties.identity), Decision::Position(*ties.position.lock())];
        let mut log = Decisions { file, seed, generation, end: BLOCK as u64, ties, bytes_written: 0 };
        log.write(&[&carried, decisions].concat())?;
        log.file.sync_data()?;
        Ok(Self(log))
    }

    /// Puts it in the place of the old one, durably.
    ///
    /// # Errors
    /// Nobody knows which of them is in its place then.
    pub(super) fn install(self, io: &dyn Io, dir: &Path) -> Result<Decisions, StoreError> {
        let path = dir.join(FILE_NAME);
        io.rename(&dir.join(NEW_NAME), &path)?;
        io.sync_dir(dir)?;
        self.0.ties.note(self.0.generation, self.0.end);
        let file = io.open(&path, OpenMode::Write)?;
        Ok(Decisions { file, ..self.0 })
    }
}

impl Decisions {
    /// Opens the file of a store, or finds that there is none. Blocks.
    pub(super) fn open(
        io: &dyn Io,
        dir: &Path,
        geometry: Geometry,
        least: StoreEnd,
    ) -> Result<(Geometry, Decided, u64), StoreError> {
        let path = dir.join(FILE_NAME);
        if !io.exists(&path)? {
            if least.manifest != (0, 0) {
                return Err(StoreError::Damaged {
                    path: Arc::new(path),
                    offset: 0,
                    what: "the file is missing",
                });
            }
            return Ok((geometry, Decided::default(), 0));
        }
        let file = io.open(&path, OpenMode::Read)?;
        let mut bytes = vec![0; usize::try_from(file.len()?).unwrap_or(usize::MAX)];
        let count = file.read_full_at(0, &mut bytes)?;
        bytes.truncate(count);
        if bytes.len() < BLOCK {
            return Err(WrongFile::Foreign { path: Arc::new(path) }.into());
        }
        check_header(&bytes, &path, MAGIC, OLDEST_FORMAT..=FORMAT, SUMMED)?;
        check_owner(&bytes[16..32], &path, geometry.database)?;
        let geometry = Geometry {
            slot_bytes: u32_at(&bytes, 12),
            segment_slots: u32_at(&bytes, 32),
            database: geometry.database,
        };
        let generation = u64_at(&bytes, 40);
        let seed = Seed::new(&geometry.database, generation);
        let mut decided = Decided::default();
        let mut at = BLOCK;
        while let Some((decisions, len)) = group_at(&bytes, at, seed) {
            decisions.into_iter().for_each(|decision| decided.add(decision));
            at += len;
        }
        let behind =
            (at / BLOCK + 1..bytes.len() / BLOCK).any(|b| group_at(&bytes, b * BLOCK, seed).is_some());
        if behind {
            let what = "a group of decisions is damaged, and others follow it";
            return Err(StoreError::Damaged { path: Arc::new(path), offset: at as u64, what });
        }
        let end = StoreEnd { identity: decided.identity, manifest: (generation, at as u64), record: 0 };
        if !end.reaches(least) {
            let what = "decisions that were durable are missing: it was cut, or is an older copy";
            return Err(StoreError::Damaged { path: Arc::new(path), offset: at as u64, what });
        }
        Ok((geometry, decided, generation))
    }

    /// The length of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.end
    }

    /// How often the file was replaced.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    fn write(&mut self, decisions: &[Decision]) -> Result<u64, StoreError> {
        let mut bytes = vec![0; GROUP_HEADER];
        decisions.iter().for_each(|decision| decision.encode(&mut bytes));
        let len = bytes.len() as u32;
        bytes[..4].copy_from_slice(&GROUP_MAGIC.to_le_bytes());
        bytes[8..12].copy_from_slice(&len.to_le_bytes());
        bytes[12..16].copy_from_slice(&(decisions.len() as u32).to_le_bytes());
        let sum = crc32c_append(self.seed.at(self.end), &bytes[8..]);
        bytes[4..8].copy_from_slice(&sum.to_le_bytes());
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        let end = self.end + bytes.len() as u64;
        self.file.allocate(end.next_multiple_of(STEP_BYTES))?;
        self.file.write_at(self.end, &bytes)?;
        self.end = end;
        Ok(bytes.len() as u64)
    }

    /// Appends decisions. They are durable when this returns. Blocks.
    ///
    /// # Errors
    /// `true` beside the error: nobody knows what the file holds now.
    pub(super) fn append(&mut self, decisions: &[Decision]) -> Result<(), (StoreError, bool)> {
        let news: Vec<Decision> = self.ties.news().into_iter().collect();
        let written = self.write(&[decisions, &news].concat()).map_err(|error| (error, false))?;
        self.bytes_written += written;
        self.file.sync_data().map_err(|error| (error.into(), true))?;
        self.ties.note(self.generation, self.end);
        Ok(())
    }
}

fn group_at(bytes: &[u8], at: usize, seed: Seed) -> Option<(Vec<Decision>, usize)> {
    let bytes = bytes.get(at..)?;
    if bytes.len() < GROUP_HEADER || u32_at(bytes, 0) != GROUP_MAGIC {
        return None;
    }
    let (len, count) = (u32_at(bytes, 8) as usize, u32_at(bytes, 12));
    let group = bytes.get(..len).filter(|group| group.len() >= GROUP_HEADER)?;
    if u32_at(group, 4) != crc32c_append(seed.at(at as u64), &group[8..]) {
        return None;
    }
    let mut rest = &group[GROUP_HEADER..];
    let decisions: Option<Vec<_>> = (0..count).map(|_| Decision::decode(&mut rest)).collect();
    decisions.filter(|_| rest.is_empty()).map(|decisions| (decisions, len.next_multiple_of(BLOCK)))
}
