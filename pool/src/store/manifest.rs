//! The manifest: which pieces there are and where they belong, durably.
//!
//! ```text
//!   file store.manifest
//!   header   magic 8 · format u32 · page bytes u32 · database id 16 · generation u64 · checksum u32 · 0 u32
//!   then     edit, edit, …   the first ones say everything (a snapshot), each later one what changed
//!   edit     bytes u32 · checksum u32 · operations, padded to a multiple of 8                     little-endian
//! ```
//!
//! Rules:
//! - An edit is durable before anything happens that relies on it: before extents are freed, before journal segments are
//!   used again, before anybody reads what it adds.
//! - A snapshot is written as a new file, made durable, and renamed over the old one; every open writes one, so nothing is
//!   appended behind a torn edit. Where the disk is full the next edit is written over a torn one instead: what is left of
//!   that behind it stands at no place where it would check out.
//! - Checksums start from database, generation and place, so an edit of another file or place does not check out. Behind
//!   the last edit that does, nothing may: else the file is damaged and not torn.
//! - Format 1 had no page versions: the pages of a piece carried its id. Format 2 had no objects, format 3 neither identity
//!   nor a position of the owner ([`super::end`]). Such a manifest is read, and raised to this format before anything is added to it, so no older program goes on with it.
//! - An operation that does not fit what is there (a piece twice, a leaf that is missing) is damage, not a panic.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thermocline_base::checksum::{Seed, crc32c, crc32c_append};
use thermocline_base::io::{File, Io, OpenMode};
use thermocline_base::rng::fresh_id;

use super::codec::{self, Reader};
use super::end::{EndKeeper, OwnerPosition, StoreEnd};
use super::error::{Result, StoreError};
use super::object::ObjectMeta;
use super::piece::PieceMeta;
use crate::error::WrongFile;
use crate::page::PageSize;

const MAGIC: &[u8; 8] = b"thclmnfs";
/// The format of manifests that this program writes.
pub(super) const MANIFEST_FORMAT: u32 = 4;
/// The name of the file without which a directory holds no store.
pub const MANIFEST_NAME: &str = "store.manifest";
const TEMPORARY_NAME: &str = "store.manifest.tmp";
const HEADER_BYTES: usize = 48;
const EDIT_HEADER_BYTES: usize = 8;
/// A snapshot is due when the edits behind it are longer than this and than four times the snapshot.
const SNAPSHOT_AFTER_BYTES: u64 = 1 << 18;

/// A place in the order of all keys of all indexes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Bound {
    pub(super) index: u64,
    pub(super) key: Box<[u8]>,
}

impl Bound {
    pub(super) fn new(index: u64, key: &[u8]) -> Self {
        Self { index, key: key.into() }
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        codec::put_varint(bytes, self.index);
        codec::put_prefixed(bytes, &self.key);
    }

    fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self { index: reader.varint()?, key: reader.prefixed()?.into() })
    }
}

/// A change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// Ids of pieces below this one were given.
    NextPiece(u64),
    /// Everything confirmed up to this position is in pieces.
    Flushed(u64),
    /// Journal segments of earlier generations are void.
    JournalFloor(u64),
    /// A piece is there.
    AddPiece(PieceMeta),
    /// A piece is gone.
    RemovePiece(u64),
    /// A leaf begins here and has these pieces, the newest first, the last-level one at the end.
    SetLeaf { lower: Bound, young: Vec<u64>, last: Option<u64> },
    /// No leaf begins here any more: the one before it goes on.
    RemoveLeaf(Bound),
    /// A piece is put into all leaves that have a part of what lies from `from` to before `to`.
    Place { piece: u64, from: Bound, to: Option<Bound> },
    /// A piece holds an unconfirmed batch.
    AddWaiting { batch: u64, piece: u64 },
    /// It does not any more.
    RemoveWaiting(u64),
    /// The batch was confirmed at this position; its piece goes into all leaves.
    Confirm { batch: u64, position: u64 },
    /// The entries of a batch stand in an object.
    AddObject(ObjectMeta),
    /// Number of entries of a batch with an object that are left.
    SetLive { batch: u64, live: u64 },
    /// The object of a batch is gone.
    RemoveObject(u64),
    /// The position up to which the owner was durable.
    Position(OwnerPosition),
    /// Which store it is.
    Identity(u64),
}

impl Change {
    fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::NextPiece(id) => put(bytes, 1, &[*id]),
            Self::Flushed(position) => put(bytes, 2, &[*position]),
            Self::JournalFloor(generation) => put(bytes, 3, &[*generation]),
            Self::AddPiece(meta) => {
                bytes.push(12);
                meta.encode(bytes);
            }
            Self::RemovePiece(id) => put(bytes, 5, &[*id]),
            Self::SetLeaf { lower, young, last } => {
                bytes.push(6);
                lower.encode(bytes);
                codec::put_varint(bytes, young.len() as u64);
                young.iter().for_each(|id| codec::put_varint(bytes, *id));
                codec::put_varint(bytes, last.map_or(0, |id| id + 1));
            }
            Self::RemoveLeaf(lower) => {
                bytes.push(7);
                lower.encode(bytes);
            }
            Self::Place { piece, from, to } => {
                put(bytes, 8, &[*piece, u64::from(to.is_some())]);
                from.encode(bytes);
                if let Some(to) = to {
                    to.encode(bytes);
                }
            }
            Self::AddWaiting { batch, piece } => put(bytes, 9, &[*batch, *piece]),
            Self::RemoveWaiting(batch) => put(bytes, 10, &[*batch]),
            Self::Confirm { batch, position } => put(bytes, 11, &[*batch, *position]),
            Self::AddObject(meta) => {
                bytes.push(13);
                meta.encode(bytes);
            }
            Self::SetLive { batch, live } => put(bytes, 14, &[*batch, *live]),
            Self::RemoveObject(batch) => put(bytes, 15, &[*batch]),
            Self::Position(OwnerPosition { log, checkpoint }) => put(bytes, 16, &[*log, *checkpoint]),
            Self::Identity(identity) => put(bytes, 17, &[*identity]),
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        Some(match reader.u8()? {
            1 => Self::NextPiece(reader.varint()?),
            2 => Self::Flushed(reader.varint()?),
            3 => Self::JournalFloor(reader.varint()?),
            4 => Self::AddPiece(PieceMeta::decode_unversioned(reader)?),
            5 => Self::RemovePiece(reader.varint()?),
            6 => {
                let lower = Bound::decode(reader)?;
                let mut young = Vec::new();
                for _ in 0..reader.varint()? {
                    young.push(reader.varint()?);
                }
                Self::SetLeaf { lower, young, last: reader.varint()?.checked_sub(1) }
            }
            7 => Self::RemoveLeaf(Bound::decode(reader)?),
            8 => {
                let (piece, ends) = (reader.varint()?, reader.varint()?);
                let from = Bound::decode(reader)?;
                let to = if ends == 1 { Some(Bound::decode(reader)?) } else { None };
                Self::Place { piece, from, to }
            }
            9 => Self::AddWaiting { batch: reader.varint()?, piece: reader.varint()? },
            10 => Self::RemoveWaiting(reader.varint()?),
            11 => Self::Confirm { batch: reader.varint()?, position: reader.varint()? },
            12 => Self::AddPiece(PieceMeta::decode(reader)?),
            13 => Self::AddObject(ObjectMeta::decode(reader)?),
            14 => Self::SetLive { batch: reader.varint()?, live: reader.varint()? },
            15 => Self::RemoveObject(reader.varint()?),
            16 => Self::Position(OwnerPosition { log: reader.varint()?, checkpoint: reader.varint()? }),
            17 => Self::Identity(reader.varint()?),
            _ => return None,
        })
    }
}

fn put(bytes: &mut Vec<u8>, operation: u8, numbers: &[u64]) {
    bytes.push(operation);
    numbers.iter().for_each(|number| codec::put_varint(bytes, *number));
}

/// A leaf as the manifest knows it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct LeafState {
    /// The newest first.
    pub(super) young: Vec<u64>,
    pub(super) last: Option<u64>,
}

/// The state that all edits together give.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ManifestState {
    pub(super) next_piece: u64,
    pub(super) flushed: u64,
    pub(super) journal_floor: u64,
    pub(super) pieces: BTreeMap<u64, PieceMeta>,
    /// By their lower bounds; the first one is the least bound that there is.
    pub(super) leaves: BTreeMap<Bound, LeafState>,
    pub(super) waiting: BTreeMap<u64, u64>,
    /// By their batches.
    pub(super) objects: BTreeMap<u64, ObjectMeta>,
    /// The position up to which the owner was durable.
    pub(super) position: OwnerPosition,
    /// Which store it is; 0 before format 4.
    pub(super) identity: u64,
}

impl Default for ManifestState {
    fn default() -> Self {
        Self {
            next_piece: 1,
            flushed: 0,
            journal_floor: 0,
            pieces: BTreeMap::new(),
            leaves: BTreeMap::from([(Bound::default(), LeafState::default())]),
            waiting: BTreeMap::new(),
            objects: BTreeMap::new(),
            position: OwnerPosition::default(),
            identity: 0,
        }
    }
}

impl ManifestState {
    /// Applies a change. `None`: it does not fit.
    pub(super) fn apply(&mut self, change: &Change) -> Option<()> {
        match change {
            Change::NextPiece(id) => self.next_piece = *id,
            Change::Flushed(position) => self.flushed = *position,
            Change::JournalFloor(generation) => self.journal_floor = *generation,
            Change::AddPiece(meta) => {
                if self.pieces.insert(meta.id, meta.clone()).is_some() {
                    return None;
                }
            }
            Change::RemovePiece(id) => {
                self.pieces.remove(id)?;
            }
            Change::SetLeaf { lower, young, last } => {
                self.leaves.insert(lower.clone(), LeafState { young: young.clone(), last: *last });
            }
            Change::RemoveLeaf(lower) => {
                self.leaves.remove(lower).filter(|_| *lower != Bound::default())?;
            }
            Change::Place { piece, from, to } => {
                let newest = self.pieces.get(piece)?.from;
                let (pieces, leaves) = (&self.pieces, &mut self.leaves);
                if to.as_ref().is_some_and(|to| to < from) {
                    return None;
                }
                let first = leaves.range(..=from.clone()).next_back()?.0.clone();
                for (lower, leaf) in leaves.range_mut(first..) {
                    if to.as_ref().is_some_and(|to| lower >= to) {
                        break;
                    }
                    let older = |id: &u64| pieces.get(id).is_some_and(|meta| meta.from < newest);
                    let at = leaf.young.iter().position(older).unwrap_or(leaf.young.len());
                    leaf.young.insert(at, *piece);
                }
            }
            Change::AddWaiting { batch, piece } => {
                if self.waiting.insert(*batch, *piece).is_some() {
                    return None;
                }
            }
            Change::RemoveWaiting(batch) => {
                self.waiting.remove(batch)?;
            }
            Change::Confirm { batch, position } => {
                let piece = self.waiting.remove(batch)?;
                let meta = self.pieces.get_mut(&piece)?;
                (meta.from, meta.to) = (*position, *position);
                self.apply(&Change::Place { piece, from: Bound::default(), to: None })?;
            }
            Change::AddObject(meta) => {
                if self.objects.insert(meta.batch, meta.clone()).is_some() {
                    return None;
                }
            }
            Change::SetLive { batch, live } => self.objects.get_mut(batch)?.live = *live,
            Change::RemoveObject(batch) => {
                self.objects.remove(batch)?;
            }
            Change::Position(position) => self.position = self.position.and(*position),
            Change::Identity(identity) => self.identity = *identity,
        }
        Some(())
    }

    /// Do all references lead to pieces, and to every piece one? What readers rely on.
    pub(super) fn is_sound(&self) -> bool {
        let in_leaves = self.leaves.values().flat_map(|leaf| leaf.young.iter().chain(&leaf.last));
        let of_objects = self.objects.values().map(|object| &object.piece);
        let used: BTreeSet<u64> = in_leaves.chain(self.waiting.values()).chain(of_objects).copied().collect();
        // Two of one flush may meet in a leaf that was made of two meanwhile; their keys are different ones.
        let newest_first = |leaf: &LeafState| {
            let ranges = leaf
                .young
                .iter()
                .chain(&leaf.last)
                .map(|id| self.pieces.get(id).map(|meta| (meta.from, meta.to)));
            let ranges: Vec<_> = ranges.collect();
            ranges.windows(2).all(|pair| match (pair[0], pair[1]) {
                (Some(newer), Some(older)) => newer.0 > older.1 || newer == older,
                _ => false,
            })
        };
        used.iter().eq(self.pieces.keys())
            && self.pieces.keys().all(|id| *id < self.next_piece)
            && self.leaves.contains_key(&Bound::default())
            && self.leaves.values().all(newest_first)
    }

    fn snapshot(&self) -> Vec<Change> {
        let mut changes = vec![
            Change::NextPiece(self.next_piece),
            Change::Flushed(self.flushed),
            Change::JournalFloor(self.journal_floor),
            Change::Position(self.position),
            Change::Identity(self.identity),
        ];
        changes.extend(self.pieces.values().cloned().map(Change::AddPiece));
        changes.extend(self.leaves.iter().map(|(lower, leaf)| Change::SetLeaf {
            lower: lower.clone(),
            young: leaf.young.clone(),
            last: leaf.last,
        }));
        changes.extend(
            self.waiting.iter().map(|(batch, piece)| Change::AddWaiting { batch: *batch, piece: *piece }),
        );
        changes.extend(self.objects.values().cloned().map(Change::AddObject));
        changes
    }
}

/// The manifest, open for more edits.
#[derive(Debug)]
pub(super) struct Manifest {
    io: Arc<dyn Io>,
    dir: PathBuf,
    database: [u8; 16],
    page_size: PageSize,
    file: Arc<dyn File>,
    generation: u64,
    at: u64,
    snapshot_bytes: u64,
    keeper: Arc<EndKeeper>,
    pub(super) state: ManifestState,
    pub(super) bytes_written: u64,
}

/// A manifest as it was found. Nothing has been changed yet.
#[derive(Debug)]
pub(super) struct FoundManifest {
    pub(super) state: ManifestState,
    generation: u64,
    format: u32,
    /// Where its last edit ends.
    end: u64,
}

/// Applies the edits in `bytes`, which start behind the header. Gives how many bytes of them were whole edits.
///
/// # Errors
/// Where an edit checks out but does not fit.
pub(super) fn replay(
    bytes: &[u8],
    seed: Seed,
    state: &mut ManifestState,
) -> std::result::Result<usize, usize> {
    let mut at = 0;
    while let Some(body) = edit_at(bytes, at, seed) {
        let mut reader = Reader::new(body);
        // Padding follows the operations; no operation is 0.
        while body.get(reader.at()).is_some_and(|byte| *byte != 0) {
            let change = Change::decode(&mut reader).ok_or(at)?;
            state.apply(&change).ok_or(at)?;
        }
        at += EDIT_HEADER_BYTES + body.len();
    }
    Ok(at)
}

fn edit_at(bytes: &[u8], at: usize, seed: Seed) -> Option<&[u8]> {
    let mut reader = Reader::new(bytes.get(at..)?);
    let (len, sum) = (reader.u32()? as usize, reader.u32()?);
    let body = reader.bytes(len)?;
    let whole = len > 0 && len.is_multiple_of(8);
    (whole && crc32c_append(seed.at((HEADER_BYTES + at) as u64), body) == sum).then_some(body)
}

impl Manifest {
    /// Writes the first manifest of a store, or of a copy of one.
    pub(super) fn create(
        io: &Arc<dyn Io>,
        dir: &Path,
        database: [u8; 16],
        page_size: PageSize,
        mut state: ManifestState,
        keeper: &Arc<EndKeeper>,
    ) -> Result<Self> {
        state.identity = fresh_identity();
        keeper.set_identity(state.identity);
        let at = Self::write_temporary(io, dir, database, page_size, 1, &state)?;
        Self::put_in_place(io, dir, database, page_size, 1, state, at, keeper)
    }

    /// Is there one?
    pub(super) fn exists(io: &dyn Io, dir: &Path) -> Result<bool> {
        Ok(io.exists(&dir.join(MANIFEST_NAME))?)
    }

    /// Reads the manifest. `least`: the end that the store is known to have had.
    pub(super) fn find(
        io: &Arc<dyn Io>,
        dir: &Path,
        database: [u8; 16],
        page_size: PageSize,
        least: StoreEnd,
    ) -> Result<FoundManifest> {
        let path = Arc::new(dir.join(MANIFEST_NAME));
        let file = io.open(&path, OpenMode::Read)?;
        let mut bytes = vec![0; file.len()? as usize];
        let come = file.read_full_at(0, &mut bytes)?;
        bytes.truncate(come);
        let (generation, format) = Self::check_header(&bytes, &path, database, page_size)?;
        let seed = Seed::new(&database, generation);
        let damaged = |offset: usize, what| StoreError::Damaged {
            path: Arc::clone(&path),
            offset: offset as u64,
            what,
        };
        let edits = &bytes[HEADER_BYTES..];
        let mut state = ManifestState { leaves: BTreeMap::new(), ..ManifestState::default() };
        let end = replay(edits, seed, &mut state)
            .map_err(|at| damaged(HEADER_BYTES + at, "an edit does not fit what comes before it"))?;
        let later = (end / 8 + 1..edits.len() / 8).any(|at| edit_at(edits, at * 8, seed).is_some());
        if end == 0 || later {
            return Err(damaged(HEADER_BYTES + end, "an edit does not check out"));
        }
        if !state.is_sound() {
            return Err(damaged(0, "its pieces and leaves do not fit together"));
        }
        let end = (HEADER_BYTES + end) as u64;
        if least.identity != 0 && state.identity != least.identity {
            return Err(damaged(HEADER_BYTES, "it is of another copy of the database"));
        }
        if (generation, end) < least.manifest {
            return Err(damaged(
                end as usize,
                "edits that were durable are missing: it was cut, or is an older copy",
            ));
        }
        Ok(FoundManifest { state, generation, format, end })
    }

    /// Goes on with a manifest that was found. Writes it anew, where there is space for that.
    pub(super) fn open(
        found: FoundManifest,
        io: &Arc<dyn Io>,
        dir: &Path,
        database: [u8; 16],
        page_size: PageSize,
        keeper: &Arc<EndKeeper>,
    ) -> Result<Self> {
        let FoundManifest { mut state, generation, format, end: at } = found;
        let next = generation + 1;
        let before = state.identity;
        if before == 0 {
            state.identity = fresh_identity();
        }
        keeper.set_identity(state.identity);
        match Self::write_temporary(io, dir, database, page_size, next, &state) {
            Ok(at) => Self::put_in_place(io, dir, database, page_size, next, state, at, keeper),
            Err(StoreError::Full(error)) => {
                tracing::warn!(%error, "the manifest was not written anew; edits go on behind those that are there");
                // What was written of it takes space; if it cannot go now, the next one replaces it.
                let _ = io.remove(&dir.join(TEMPORARY_NAME));
                let (io, dir) = (Arc::clone(io), dir.to_path_buf());
                let file = io.open(&dir.join(MANIFEST_NAME), OpenMode::Write)?;
                if format < MANIFEST_FORMAT {
                    // In its place, in one sector: it is torn nowhere.
                    file.write_at(0, &header(database, page_size, generation))?;
                    file.sync_data()?;
                }
                state.identity = before;
                keeper.set_identity(before);
                keeper.note_manifest(generation, at);
                let (snapshot_bytes, bytes_written, keeper) = (at, 0, Arc::clone(keeper));
                Ok(Self {
                    io,
                    dir,
                    database,
                    page_size,
                    file,
                    generation,
                    at,
                    snapshot_bytes,
                    keeper,
                    state,
                    bytes_written,
                })
            }
            Err(error) => Err(error),
        }
    }

    fn check_header(
        bytes: &[u8],
        path: &Arc<PathBuf>,
        database: [u8; 16],
        page_size: PageSize,
    ) -> Result<(u64, u32)> {
        let path = || Arc::clone(path);
        let damaged = |what| StoreError::Damaged { path: path(), offset: 0, what };
        if !bytes.starts_with(MAGIC) {
            return Err(WrongFile::Foreign { path: path() }.into());
        }
        let mut reader = Reader::new(&bytes[8..]);
        let mut fields = || -> Option<(u32, u32, [u8; 16], u64, u32)> {
            let (format, page_bytes) = (reader.u32()?, reader.u32()?);
            let id = *reader.bytes(16)?.first_chunk()?;
            let fields = (format, page_bytes, id, reader.u64()?, reader.u32()?);
            reader.u32()?;
            Some(fields)
        };
        let (found, page_bytes, id, generation, sum) =
            fields().ok_or_else(|| damaged("its header is cut"))?;
        if found > MANIFEST_FORMAT {
            return Err(WrongFile::Newer { path: path(), found, supported: MANIFEST_FORMAT }.into());
        }
        if sum != crc32c(&bytes[..40]) {
            return Err(damaged("its header does not check out"));
        }
        if id != database {
            return Err(WrongFile::OtherDatabase { path: path(), expected: database, found: id }.into());
        }
        if page_bytes as usize != page_size.bytes() {
            return Err(damaged("its pages are not as long as those of the page file"));
        }
        Ok((generation, found))
    }

    /// Writes the file that will replace the manifest. Nothing depends on it yet.
    fn write_temporary(
        io: &Arc<dyn Io>,
        dir: &Path,
        database: [u8; 16],
        page_size: PageSize,
        generation: u64,
        state: &ManifestState,
    ) -> Result<u64> {
        let mut bytes = header(database, page_size, generation);
        let seed = Seed::new(&database, generation);
        bytes.extend_from_slice(&encode_edit(state.snapshot().iter(), seed, bytes.len() as u64));
        let temporary = dir.join(TEMPORARY_NAME);
        if io.exists(&temporary)? {
            io.remove(&temporary)?;
        }
        let file = io.open(&temporary, OpenMode::CreateNew)?;
        file.write_at(0, &bytes)?;
        file.sync_data()?;
        Ok(bytes.len() as u64)
    }

    /// From here on a failure leaves unknown which of the two files a crash would leave.
    #[expect(clippy::too_many_arguments, reason = "the fields of a manifest")]
    fn put_in_place(
        io: &Arc<dyn Io>,
        dir: &Path,
        database: [u8; 16],
        page_size: PageSize,
        generation: u64,
        state: ManifestState,
        at: u64,
        keeper: &Arc<EndKeeper>,
    ) -> Result<Self> {
        let path = dir.join(MANIFEST_NAME);
        io.rename(&dir.join(TEMPORARY_NAME), &path)?;
        io.sync_dir(dir)?;
        keeper.note_manifest(generation, at);
        let keeper = Arc::clone(keeper);
        let file = io.open(&path, OpenMode::Write)?;
        let io = Arc::clone(io);
        let dir = dir.to_path_buf();
        Ok(Self {
            io,
            dir,
            database,
            page_size,
            file,
            generation,
            at,
            snapshot_bytes: at,
            keeper,
            state,
            bytes_written: at,
        })
    }

    /// Makes changes durable. After an error nothing has changed, as far as the caller is concerned.
    ///
    /// # Errors
    /// With `true`: it is not known whether the edit is durable, so nothing that depends on it may be done or undone.
    pub(super) fn commit(&mut self, changes: &[Change]) -> std::result::Result<(), (StoreError, bool)> {
        let position = self.keeper.position();
        let position = (position != self.state.position).then_some(Change::Position(position));
        let changes = || changes.iter().chain(&position);
        let mut state = self.state.clone();
        for change in changes() {
            let fits = state.apply(change);
            assert!(fits.is_some(), "a change of the manifest fits what is there: {change:?}");
        }
        debug_assert!(
            state.is_sound(),
            "pieces and leaves fit together after {:?}",
            changes().collect::<Vec<_>>()
        );
        let edit = encode_edit(changes(), Seed::new(&self.database, self.generation), self.at);
        // A full disk took nothing, or a part that does not check out. After any other failure it is not known what
        // it took.
        self.file.write_at(self.at, &edit).map_err(|error| {
            let unknown = !error.is_full();
            (error.into(), unknown)
        })?;
        self.file.sync_data().map_err(|error| (StoreError::Io(error), true))?;
        self.at += edit.len() as u64;
        self.bytes_written += edit.len() as u64;
        self.state = state;
        self.keeper.note_manifest(self.generation, self.at);
        let edits = self.at - self.snapshot_bytes;
        if edits > SNAPSHOT_AFTER_BYTES.max(4 * self.snapshot_bytes) {
            self.renew().map_err(|error| (error, true))?;
        }
        Ok(())
    }

    fn renew(&mut self) -> Result<()> {
        let written = self.bytes_written;
        let generation = self.generation + 1;
        let bytes = match Self::write_temporary(
            &self.io,
            &self.dir,
            self.database,
            self.page_size,
            generation,
            &self.state,
        ) {
            Ok(bytes) => bytes,
            Err(error) => {
                // The edits go on where they are; the next one tries again.
                tracing::warn!(%error, "the manifest could not be written anew");
                return Ok(());
            }
        };
        let state = self.state.clone();
        let (database, page_size) = (self.database, self.page_size);
        let renamed = Self::put_in_place(
            &self.io,
            &self.dir,
            database,
            page_size,
            generation,
            state,
            bytes,
            &self.keeper,
        )?;
        *self = renamed;
        self.bytes_written += written;
        Ok(())
    }
}

/// Never 0.
fn fresh_identity() -> u64 {
    u64::from_le_bytes(*fresh_id().first_chunk().expect("an id has 16 bytes")) | 1
}

fn header(database: [u8; 16], page_size: PageSize, generation: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&MANIFEST_FORMAT.to_le_bytes());
    bytes.extend_from_slice(&(page_size.bytes() as u32).to_le_bytes());
    bytes.extend_from_slice(&database);
    bytes.extend_from_slice(&generation.to_le_bytes());
    let sum = crc32c(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes
}

fn encode_edit<'c>(changes: impl Iterator<Item = &'c Change>, seed: Seed, at: u64) -> Vec<u8> {
    let mut bytes = vec![0; EDIT_HEADER_BYTES];
    changes.for_each(|change| change.encode(&mut bytes));
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let len = (bytes.len() - EDIT_HEADER_BYTES) as u32;
    let sum = crc32c_append(seed.at(at), &bytes[EDIT_HEADER_BYTES..]);
    bytes[..4].copy_from_slice(&len.to_le_bytes());
    bytes[4..8].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// A manifest as format 1 had it, for stores that a former program has left.
#[cfg(test)]
pub(super) fn former(state: &ManifestState, database: [u8; 16], page_size: PageSize) -> Vec<u8> {
    let mut bytes = header(database, page_size, 1);
    bytes[8..12].copy_from_slice(&1_u32.to_le_bytes());
    let sum = crc32c(&bytes[..40]);
    bytes[40..44].copy_from_slice(&sum.to_le_bytes());
    let mut edit = vec![0; EDIT_HEADER_BYTES];
    let known = |change: &Change| !matches!(change, Change::Position(_) | Change::Identity(_));
    for change in state.snapshot().into_iter().filter(known) {
        let Change::AddPiece(meta) = &change else {
            change.encode(&mut edit);
            continue;
        };
        let mut versioned = Vec::new();
        meta.encode(&mut versioned);
        edit.push(4);
        edit.extend_from_slice(&versioned[size_of::<u64>()..]);
    }
    edit.resize(edit.len().next_multiple_of(8), 0);
    let len = (edit.len() - EDIT_HEADER_BYTES) as u32;
    let sum = crc32c_append(Seed::new(&database, 1).at(bytes.len() as u64), &edit[EDIT_HEADER_BYTES..]);
    edit[..4].copy_from_slice(&len.to_le_bytes());
    edit[4..8].copy_from_slice(&sum.to_le_bytes());
    bytes.extend_from_slice(&edit);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(id: u64, from: u64, to: u64) -> Change {
        let (runs, counts) = (Vec::new(), Vec::new());
        let version = (1 << 32) + id;
        let meta = PieceMeta { id, version, from, to, runs, pages: 0, tail_pages: 0, tail_bytes: 0, counts };
        Change::AddPiece(meta)
    }

    fn state(changes: &[Change]) -> Option<ManifestState> {
        let mut state = ManifestState::default();
        changes.iter().try_for_each(|change| state.apply(change))?;
        Some(state)
    }

    #[test]
    fn pieces_are_placed_where_they_overlap_in_the_order_of_positions() {
        let bound = |key: &[u8]| Bound::new(1, key);
        let set = |lower: &Bound| Change::SetLeaf { lower: lower.clone(), young: Vec::new(), last: None };
        let place = |piece, from: &Bound, to: Option<&Bound>| Change::Place {
            piece,
            from: from.clone(),
            to: to.cloned(),
        };
        let (m, s) = (bound(b"m"), bound(b"s"));
        let state = state(&[
            Change::NextPiece(9),
            set(&m),
            set(&s),
            piece(1, 5, 8),
            piece(2, 9, 9),
            piece(3, 1, 4),
            place(1, &bound(b"p"), Some(&s)),
            place(2, &Bound::default(), None),
            // One of an earlier position that comes late.
            place(3, &m, Some(&bound(b"n"))),
        ]);
        let state = state.expect("they fit");
        let young: Vec<Vec<u64>> = state.leaves.values().map(|leaf| leaf.young.clone()).collect();
        assert_eq!(young, [vec![2], vec![2, 1, 3], vec![2]]);
        assert!(state.is_sound());
    }

    #[test]
    fn two_pieces_of_one_flush_may_meet_and_others_may_not_overlap() {
        let both = |second| {
            state(&[
                Change::NextPiece(9),
                piece(1, 5, 8),
                second,
                Change::Place { piece: 1, from: Bound::default(), to: None },
                Change::Place { piece: 2, from: Bound::default(), to: None },
            ])
            .expect("they fit")
        };
        assert!(both(piece(2, 5, 8)).is_sound());
        assert!(both(piece(2, 9, 12)).is_sound());
        assert!(!both(piece(2, 7, 12)).is_sound());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(state(&[piece(1, 1, 1), piece(1, 1, 1)]).is_none());
        assert!(state(&[Change::RemovePiece(1)]).is_none());
        assert!(state(&[Change::RemoveLeaf(Bound::default())]).is_none());
        assert!(state(&[Change::Place { piece: 4, from: Bound::default(), to: None }]).is_none());
        assert!(state(&[Change::RemoveWaiting(4)]).is_none());
        assert!(state(&[Change::Confirm { batch: 4, position: 3 }]).is_none());
        let unused = state(&[Change::NextPiece(9), piece(1, 1, 1)]).expect("it fits");
        assert!(!unused.is_sound(), "nobody refers to the piece");
    }
}
