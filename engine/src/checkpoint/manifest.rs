//! The manifest: which images and which part of the log make up the database.
//!
//! ```text
//! manifest = magic "TCLNMAN1" | format u32 | crc u32 | body
//! body     = database 16 bytes | sequence u64 | clock u64 | next table u32 | next index u32 | next transaction u64
//!          | log start u64 | log durable u64 | next file u64 | run state u32 (0x100: has a cold store)
//!          | files u32 | (number u64, bytes u64)…
//!          | chunks u32 | (table u32, chunk u32, schema version u32, file u64, offset u64, bytes u64, rows u64,
//!                          timestamp u64, replay of the image u64, replay u64,
//!                          base: id u64 or 0, file u64, offset u64, bytes u64, pieces u64)…
//!          | catalog bytes u32 | catalog
//!          | end of the cold store, four u64
//! ```
//!
//! In format 1 chunks have no base; before format 3 the end of the cold store is missing.
//!
//! Written under another name, synced, renamed, and the directory synced: under its own name a manifest is whole. The
//! checksum covers the body and starts from the sequence that the name tells.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use thermocline_base::checksum::{Seed, crc32c_append};
use thermocline_base::ids::{Lsn, TableId, Timestamp};
use thermocline_base::io::{Io, OpenMode};
use thermocline_pool::store::StoreEnd;

use super::error::CheckpointError;
use super::format::{Base, ChunkHeader, ChunkImage, Decoder, Encoder, FORMAT, image_name, image_number};
use super::writer::ImageFile;

const MAGIC: &[u8; 8] = b"TCLNMAN1";
const HEADER_BYTES: usize = 16;
const CHUNK_BYTES: usize = 68;
const BASE_BYTES: usize = 40;
const FILE_BYTES: usize = 16;
/// Stands beside the run state if the database has a cold store.
const COLD: u32 = 1 << 8;

/// What the manifest says about the run that wrote it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u32)]
pub(crate) enum RunState {
    /// The log goes on from it.
    #[default]
    Logged = 0,
    /// The database was closed; the log holds nothing that the images do not.
    Closed = 1,
    /// The run keeps no log. If this is the newest manifest at the next start, the run has crashed, and what the
    /// database held is gone.
    Volatile = 2,
}

/// A checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Manifest {
    pub(crate) database: [u8; 16],
    /// One more with every checkpoint.
    pub(crate) sequence: u64,
    /// No timestamp beyond this one had been drawn.
    pub(crate) clock: Timestamp,
    pub(crate) next_table: u32,
    pub(crate) next_index: u32,
    pub(crate) next_transaction: u64,
    /// Recovery replays from here.
    pub(crate) log_start: Lsn,
    /// The log is known to have been durable up to here.
    pub(crate) log_durable: Lsn,
    /// The number of the next image file.
    pub(crate) next_file: u64,
    pub(crate) state: RunState,
    /// The database has a cold store: without its files it is not whole.
    pub(crate) cold: bool,
    /// Up to where the cold store was durable.
    pub(crate) store: StoreEnd,
    /// What the catalog wrote.
    pub(crate) catalog: Vec<u8>,
    /// The image files, and how long they are.
    pub(crate) files: BTreeMap<u64, u64>,
    /// The image of every chunk that has one.
    pub(crate) chunks: BTreeMap<(TableId, u32), ChunkImage>,
}

impl Manifest {
    /// What stands in the directory of a new database: nothing yet.
    pub(crate) fn empty(database: [u8; 16]) -> Self {
        Self {
            database,
            sequence: 0,
            clock: Timestamp(0),
            next_table: 1,
            next_index: 1,
            next_transaction: 1,
            log_start: Lsn(0),
            log_durable: Lsn(0),
            next_file: 1,
            state: RunState::Logged,
            cold: false,
            store: StoreEnd::default(),
            catalog: Vec::new(),
            files: BTreeMap::new(),
            chunks: BTreeMap::new(),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut body = Encoder::default();
        body.raw(&self.database);
        body.u64(self.sequence);
        body.u64(self.clock.0);
        body.u32(self.next_table);
        body.u32(self.next_index);
        body.u64(self.next_transaction);
        body.u64(self.log_start.0);
        body.u64(self.log_durable.0);
        body.u64(self.next_file);
        body.u32(self.state as u32 | if self.cold { COLD } else { 0 });
        body.u32(u32::try_from(self.files.len()).expect("fewer than 2^32 image files"));
        for (number, bytes) in &self.files {
            body.u64(*number);
            body.u64(*bytes);
        }
        body.u32(u32::try_from(self.chunks.len()).expect("fewer than 2^32 chunks"));
        for image in self.chunks.values() {
            body.u32(image.header.table.0);
            body.u32(image.header.chunk);
            body.u32(image.header.schema_version);
            body.u64(image.file);
            body.u64(image.offset);
            body.u64(image.bytes);
            body.u64(image.rows);
            body.u64(image.header.timestamp.0);
            body.u64(image.header.replay.0);
            body.u64(image.replay.0);
            let Base { id, file, offset, bytes, pieces } =
                image.base.unwrap_or(Base { id: 0, file: 0, offset: 0, bytes: 0, pieces: 0 });
            [id, file, offset, bytes, pieces].into_iter().for_each(|field| body.u64(field));
        }
        body.u32(u32::try_from(self.catalog.len()).expect("a catalog below 4 GiB"));
        body.raw(&self.catalog);
        self.store.fields().into_iter().for_each(|field| body.u64(field));
        let mut bytes = Encoder::default();
        bytes.raw(MAGIC);
        bytes.u32(FORMAT);
        bytes.u32(crc32c_append(body_start(&self.database, self.sequence), &body.0));
        bytes.raw(&body.0);
        bytes.0
    }

    pub(crate) fn decode(body: &[u8], format: u32) -> Option<Self> {
        let mut fields = Decoder(body);
        let database = fields.raw(16)?.try_into().ok()?;
        let sequence = fields.u64()?;
        let clock = Timestamp(fields.u64()?);
        let next_table = fields.u32()?;
        let next_index = fields.u32()?;
        let next_transaction = fields.u64()?;
        let log_start = Lsn(fields.u64()?);
        let log_durable = Lsn(fields.u64()?);
        let next_file = fields.u64()?;
        let state = fields.u32()?;
        let cold = state & COLD != 0;
        let state = match state & !COLD {
            0 => RunState::Logged,
            1 => RunState::Closed,
            2 => RunState::Volatile,
            _ => return None,
        };
        let count = fields.u32()? as usize;
        let mut list = Decoder(fields.raw(count.checked_mul(FILE_BYTES)?)?);
        let mut files = BTreeMap::new();
        for _ in 0..count {
            files.insert(list.u64()?, list.u64()?);
        }
        let count = fields.u32()? as usize;
        let base_bytes = if format < 2 { 0 } else { BASE_BYTES };
        let mut list = Decoder(fields.raw(count.checked_mul(CHUNK_BYTES + base_bytes)?)?);
        let mut chunks = BTreeMap::new();
        for _ in 0..count {
            let (table, chunk, schema_version) = (TableId(list.u32()?), list.u32()?, list.u32()?);
            let (file, offset, bytes, rows) = (list.u64()?, list.u64()?, list.u64()?, list.u64()?);
            let (timestamp, own_replay) = (Timestamp(list.u64()?), Lsn(list.u64()?));
            let header = ChunkHeader { table, chunk, timestamp, replay: own_replay, schema_version };
            let replay = Lsn(list.u64()?);
            let base = if format < 2 { None } else { decode_base(&mut list)? };
            let image = ChunkImage { header, file, offset, bytes, rows, replay, base };
            chunks.insert((table, chunk), image);
        }
        let len = fields.u32()? as usize;
        let catalog = fields.raw(len)?.to_vec();
        let store = match format {
            ..3 => StoreEnd::default(),
            _ => StoreEnd::from_fields([fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?]),
        };
        fields.0.is_empty().then_some(Self {
            database,
            sequence,
            clock,
            next_table,
            next_index,
            next_transaction,
            log_start,
            log_durable,
            next_file,
            state,
            cold,
            store,
            catalog,
            files,
            chunks,
        })
    }

    /// Makes this the newest checkpoint. Durable when this returns `Ok`; after an error nobody knows which manifest a
    /// restart will find, and both are good: nothing that either needs may be removed.
    pub(crate) fn write(&self, io: &dyn Io, dir: &Path) -> Result<(), CheckpointError> {
        write_whole(io, dir, &manifest_name(self.sequence), &self.encode())
    }

    /// Reads the newest checkpoint; `None` if there is none.
    pub(crate) fn read_newest(
        io: &dyn Io,
        dir: &Path,
        database: &[u8; 16],
    ) -> Result<Option<Self>, CheckpointError> {
        if !io.exists(dir)? {
            return Ok(None);
        }
        let names = io.list(dir)?;
        let Some(sequence) = names.iter().filter_map(|name| manifest_sequence(name)).max() else {
            return Ok(None);
        };
        let path = dir.join(manifest_name(sequence));
        let file = io.open(&path, OpenMode::Read)?;
        let len = usize::try_from(file.len()?).expect("a manifest fits into the address space");
        let mut bytes = vec![0; len];
        let got = file.read_full_at(0, &mut bytes)?;
        let damaged = |offset: usize, what: &str| CheckpointError::Damaged {
            file: path.clone(),
            offset: offset as u64,
            what: what.to_owned(),
        };
        if got < len || len < HEADER_BYTES + 16 {
            return Err(damaged(got, "the file was cut"));
        }
        let (header, body) = bytes.split_at(HEADER_BYTES);
        if &header[..8] != MAGIC {
            return Err(damaged(0, "it does not start like a manifest"));
        }
        let mut fields = Decoder(&header[8..]);
        let version = fields.u32().expect("it is long enough");
        let sum = fields.u32().expect("it is long enough");
        // The format stands outside of the checksum, since a newer one may check differently.
        if version > FORMAT {
            return Err(CheckpointError::Newer { file: path, version, known: FORMAT });
        }
        if version == 0 {
            return Err(damaged(8, "there is no such format"));
        }
        let own: [u8; 16] = body[..16].try_into().expect("sixteen bytes");
        if crc32c_append(body_start(&own, sequence), body) != sum {
            return Err(damaged(12, "it does not check out"));
        }
        if own != *database {
            return Err(CheckpointError::Foreign { file: path });
        }
        match Self::decode(body, version) {
            Some(manifest) if manifest.sequence == sequence => Ok(Some(manifest)),
            _ => Err(damaged(HEADER_BYTES, "its fields contradict each other")),
        }
    }

    /// Removes what this manifest, which is durable, does not need: older manifests, image files that it does not name,
    /// and what a crash left half written. Not while a checkpoint is being written.
    pub(crate) fn sweep(&self, io: &dyn Io, dir: &Path) -> Result<usize, CheckpointError> {
        let mut removed = 0;
        for name in io.list(dir)? {
            let old = manifest_sequence(&name).is_some_and(|sequence| sequence < self.sequence);
            let dead = image_number(&name).is_some_and(|number| !self.files.contains_key(&number));
            if old || dead || name.ends_with(TEMPORARY) {
                io.remove(&dir.join(name))?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Image files of `self` that `next` does not name any more.
    pub(crate) fn files_dropped_by(&self, next: &Self) -> Vec<u64> {
        self.files.keys().filter(|number| !next.files.contains_key(number)).copied().collect()
    }

    /// Files that are mostly dead: less than half of them is still referenced. Writing that anew gives the whole file back.
    pub(crate) fn mostly_dead_files(&self) -> BTreeSet<u64> {
        let mut live: BTreeMap<u64, u64> = BTreeMap::new();
        for image in self.chunks.values() {
            *live.entry(image.file).or_default() += image.bytes;
            if let Some(base) = image.base {
                *live.entry(base.file).or_default() += base.bytes;
            }
        }
        let is_dead = |file: &u64, bytes: u64| live.get(file).is_none_or(|live| live * 2 < bytes);
        self.files.iter().filter(|(file, bytes)| is_dead(file, **bytes)).map(|(file, _)| *file).collect()
    }
}

/// The next manifest in the making: starts as the one before, chunk by chunk renewed or confirmed.
#[derive(Debug)]
pub(crate) struct ManifestBuilder {
    manifest: Manifest,
    files: BTreeMap<u64, u64>,
}

impl ManifestBuilder {
    /// Everything as in `previous`.
    pub(crate) fn new(previous: &Manifest) -> Self {
        let mut manifest = previous.clone();
        manifest.sequence += 1;
        Self { files: manifest.files.clone(), manifest }
    }

    /// The number for a new image file.
    #[cfg(test)]
    pub(crate) fn next_file(&mut self) -> u64 {
        let number = self.manifest.next_file;
        self.manifest.next_file += 1;
        number
    }

    /// A finished, durable image file.
    pub(crate) fn add_file(&mut self, file: ImageFile) {
        self.files.insert(file.number, file.bytes);
    }

    /// A chunk has a new image.
    pub(crate) fn put(&mut self, image: ChunkImage) {
        self.manifest.chunks.insert((image.header.table, image.header.chunk), image);
    }

    /// The image that there is.
    #[cfg(test)]
    pub(crate) fn get(&self, table: TableId, chunk: u32) -> Option<&ChunkImage> {
        self.manifest.chunks.get(&(table, chunk))
    }

    /// A chunk has not changed since its image, so that replay may start at `replay` for it, a position noted before
    /// that was found out. Returns whether it has an image.
    pub(crate) fn confirm(&mut self, table: TableId, chunk: u32, replay: Lsn) -> bool {
        match self.manifest.chunks.get_mut(&(table, chunk)) {
            Some(image) => {
                image.replay = image.replay.max(replay);
                true
            }
            None => false,
        }
    }

    /// A chunk is gone.
    pub(crate) fn drop_chunk(&mut self, table: TableId, chunk: u32) {
        self.manifest.chunks.remove(&(table, chunk));
    }

    /// The manifest. `log_start`: where replay starts for what has no image; images that are older lower it.
    ///
    /// # Panics
    /// When an image stands in a file that was not added.
    pub(crate) fn build(mut self, fill: impl FnOnce(&mut Manifest), log_start: Lsn) -> Manifest {
        fill(&mut self.manifest);
        let images = || self.manifest.chunks.values();
        self.manifest.log_start = images().map(|image| image.replay).fold(log_start, Lsn::min);
        let mut files = BTreeMap::new();
        for file in images().flat_map(|image| [Some(image.file), image.base.map(|base| base.file)]).flatten()
        {
            let bytes = self.files.get(&file).expect("an image stands in a file of the checkpoint");
            files.insert(file, *bytes);
        }
        self.manifest.files = files;
        self.manifest
    }
}

fn decode_base(fields: &mut Decoder<'_>) -> Option<Option<Base>> {
    let (id, file, offset) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let (bytes, pieces) = (fields.u64()?, fields.u64()?);
    Some((id != 0).then_some(Base { id, file, offset, bytes, pieces }))
}

const TEMPORARY: &str = ".tmp";

/// Writes a file that is whole or not there: under another name, synced, renamed, the directory synced.
pub(crate) fn write_whole(io: &dyn Io, dir: &Path, name: &str, bytes: &[u8]) -> Result<(), CheckpointError> {
    io.create_dir_all(dir)?;
    let temporary: PathBuf = dir.join(format!("{name}{TEMPORARY}"));
    let file = io.open(&temporary, OpenMode::Create)?;
    file.set_len(0)?;
    file.write_at(0, bytes)?;
    file.sync_data()?;
    io.rename(&temporary, &dir.join(name))?;
    io.sync_dir(dir)?;
    Ok(())
}

pub(crate) fn manifest_name(sequence: u64) -> String {
    format!("manifest-{sequence:016x}")
}

fn manifest_sequence(name: &str) -> Option<u64> {
    let sequence = u64::from_str_radix(name.strip_prefix("manifest-")?, 16).ok()?;
    (manifest_name(sequence) == name).then_some(sequence)
}

fn body_start(database: &[u8; 16], sequence: u64) -> u32 {
    Seed::new(database, sequence).at(0)
}

/// The path of an image file.
pub(crate) fn image_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(image_name(number))
}
