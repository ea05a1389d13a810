//! The journal: batches and decisions about them, in the order in which they happened.
//!
//! ```text
//!   segment, a file journal-00000007, written with zeros once and used again and again
//!   0          4096                                  (each group begins at a multiple of 4096)
//!   ┌──────────┬─────────────────────────┬───────────────┬── ┄ ──┬──────────
//!   │ header   │ group: header, records  │ group         │       │ zeros, or groups of the segment's former life
//!   └──────────┴─────────────────────────┴───────────────┴── ┄ ──┴──────────
//!   header   magic 8 · format u32 · 0 u32 · database id 16 · generation u64 · checksum u32
//!   group    magic u32 · checksum u32 · bytes u32 · records u32 · number of the first record u64
//!            · position of the owner u64, u64 (`end`; in format 1 there is a 0 u64 in its place)
//!            · record, record, …
//!   record   kind u8 · bytes u32 · batch (written, written and confirmed) | batch id u64 (confirmed, discarded, loaded)
//! ```
//!
//! Rules:
//! - A group is written in one piece and made durable before the next one is written. So behind a group that does not
//!   check out nothing is; if something is, the file is damaged and not torn.
//! - Checksums start from database, generation of the segment and place in it (`ChecksumBindsPosition`), and records are
//!   numbered without gaps, as the generations of segments are from the manifest's floor on: old groups and missing segments
//!   are noticed. Of the newest segment only its owner can tell ([`super::end`]).
//! - A segment is used again only when all that it holds is in pieces, or void.
//! - The first failure of a sync is final (`SyncFailureIsFinal`); the store turns read-only.
//! - Writing zeros once matters: appending to an unwritten extent makes the file system change its own records with
//!   every sync, which doubles the time of one.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thermocline_base::checksum::{Seed, crc32c, crc32c_append};
use thermocline_base::io::{AlignedBytes, DIRECT_ALIGNMENT, File, Io, OpenMode};

use super::codec::Reader;
use super::end::{EndKeeper, OwnerPosition};
use super::error::{Result, StoreError};
use super::types::{Batch, BatchId};
use crate::error::WrongFile;
use crate::mutation::{self, Rule};

const MAGIC: &[u8; 8] = b"thcljrnl";
/// The format of segments that this program writes.
pub(super) const JOURNAL_FORMAT: u32 = 2;
const GROUP_MAGIC: u32 = 0x6a67_7270;
const GROUP_HEADER_BYTES: usize = 40;
/// That of format 1.
const FORMER_HEADER_BYTES: usize = 32;
const BLOCK: u64 = DIRECT_ALIGNMENT as u64;
/// A new segment is filled in pieces of this length.
const ZEROS_BYTES: usize = 256 << 10;
/// Free segments that are kept.
const SPARE_SEGMENTS: usize = 2;

/// A record of the journal.
#[derive(Clone, Debug)]
pub(super) enum Record {
    /// A batch was written. It may be confirmed already.
    Written(Arc<Batch>),
    /// A batch was confirmed.
    Confirmed(BatchId),
    /// A batch was discarded.
    Discarded(BatchId),
    /// A batch was loaded past the journal: if it is not in pieces, it was not acknowledged.
    Loaded(BatchId),
}

const WRITTEN: u8 = 1;
const WRITTEN_CONFIRMED: u8 = 2;
const CONFIRMED: u8 = 3;
const DISCARDED: u8 = 4;
const LOADED: u8 = 5;

impl Record {
    fn encode(&self, bytes: &mut Vec<u8>) {
        let (kind, body): (u8, &[u8]) = match self {
            Self::Written(batch) if batch.confirmed => (WRITTEN_CONFIRMED, &batch.bytes),
            Self::Written(batch) => (WRITTEN, &batch.bytes),
            Self::Confirmed(id) => (CONFIRMED, &id.0.to_le_bytes()),
            Self::Discarded(id) => (DISCARDED, &id.0.to_le_bytes()),
            Self::Loaded(id) => (LOADED, &id.0.to_le_bytes()),
        };
        encode_record(bytes, kind, body);
    }

    fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let kind = reader.u8()?;
        let count = reader.u32()?;
        let body = reader.bytes(count as usize)?;
        match kind {
            WRITTEN | WRITTEN_CONFIRMED => {
                Some(Self::Written(Arc::new(Batch::decode(body, kind == WRITTEN_CONFIRMED)?)))
            }
            CONFIRMED | DISCARDED | LOADED => {
                let id = BatchId(u64::from_le_bytes(body.try_into().ok()?));
                Some(match kind {
                    CONFIRMED => Self::Confirmed(id),
                    DISCARDED => Self::Discarded(id),
                    _ => Self::Loaded(id),
                })
            }
            _ => None,
        }
    }
}

fn encode_record(bytes: &mut Vec<u8>, kind: u8, body: &[u8]) {
    bytes.push(kind);
    bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
    bytes.extend_from_slice(body);
}

/// The records of one group.
pub(super) fn decode_records(bytes: &[u8], count: u32) -> Option<Vec<Record>> {
    let mut reader = Reader::new(bytes);
    let mut records = Vec::new();
    for _ in 0..count {
        records.push(Record::decode(&mut reader)?);
    }
    reader.is_at_end().then_some(records)
}

#[derive(Debug)]
struct Segment {
    file: Arc<dyn File>,
    format: u32,
    generation: u64,
    len: u64,
    /// Number of the last record in it; 0: none.
    last: u64,
}

/// The journal, open for appending.
#[derive(Debug)]
pub(super) struct Journal {
    io: Arc<dyn Io>,
    dir: PathBuf,
    database: [u8; 16],
    segment_bytes: u64,
    /// In use, the one that is written at the end.
    segments: VecDeque<Segment>,
    spare: Vec<Segment>,
    next_file: u64,
    at: u64,
    /// Number of the next record.
    next: u64,
    /// The group being collected.
    group: Vec<u8>,
    group_records: u32,
    /// Length and records of the part of the group that has taken effect already.
    applied: (usize, u32),
    buffer: AlignedBytes,
    keeper: Arc<EndKeeper>,
    pub(super) bytes_written: u64,
    pub(super) syncs: u64,
}

fn name(number: u64) -> String {
    format!("journal-{number:08}")
}

/// The result of replaying.
#[derive(Debug, Default)]
pub(super) struct Replayed {
    /// Records with their numbers.
    pub(super) records: Vec<(u64, Record)>,
    /// The places of the batches that are not decided about.
    undecided: HashMap<BatchId, usize>,
}

impl Replayed {
    /// A batch that is in pieces, or was discarded, need not be kept until all has been read: only its place is.
    fn push(&mut self, number: u64, record: Record, flushed: u64) {
        let void = |id| Record::Loaded(id);
        let record = match record {
            Record::Written(batch) if !batch.confirmed => {
                self.undecided.insert(batch.id(), self.records.len());
                Record::Written(batch)
            }
            Record::Written(batch) if number <= flushed => void(batch.id()),
            Record::Confirmed(id) => {
                if let Some(at) = self.undecided.remove(&id)
                    && number <= flushed
                {
                    self.records[at].1 = void(id);
                }
                record
            }
            Record::Discarded(id) => {
                if let Some(at) = self.undecided.remove(&id) {
                    self.records[at].1 = void(id);
                }
                record
            }
            other => other,
        };
        self.records.push((number, record));
    }
}

impl Journal {
    /// Opens the segments that are there and reads them; unless `create`, there is one. Numbers go on behind `flushed`.
    /// What is in segments of generations before `floor` is void: one that was about to be used again may still have
    /// its old header. `least`: the number of a record that is known to have been durable.
    #[expect(
        clippy::too_many_arguments,
        reason = "where the files are, and what the manifest and the owner know of them"
    )]
    pub(super) fn open(
        io: &Arc<dyn Io>,
        dir: &Path,
        database: [u8; 16],
        segment_bytes: u64,
        flushed: u64,
        floor: u64,
        create: bool,
        least: u64,
        keeper: &Arc<EndKeeper>,
    ) -> Result<(Self, Replayed)> {
        let mut journal = Self {
            io: Arc::clone(io),
            dir: dir.to_path_buf(),
            database,
            segment_bytes: segment_bytes.next_multiple_of(BLOCK).max(4 * BLOCK),
            segments: VecDeque::new(),
            spare: Vec::new(),
            next_file: 1,
            at: BLOCK,
            next: flushed + 1,
            group: vec![0; GROUP_HEADER_BYTES],
            group_records: 0,
            applied: (GROUP_HEADER_BYTES, 0),
            buffer: AlignedBytes::zeroed(1 << 16),
            keeper: Arc::clone(keeper),
            bytes_written: 0,
            syncs: 0,
        };
        let mut replayed = Replayed::default();
        let mut found = Vec::new();
        for file_name in io.list(dir)? {
            let Some(number) = file_name.strip_prefix("journal-").and_then(|rest| rest.parse::<u64>().ok())
            else {
                continue;
            };
            journal.next_file = journal.next_file.max(number + 1);
            let path = dir.join(&file_name);
            let file = io.open_direct(&path, OpenMode::Write)?;
            match journal.read_header(&file)? {
                Some((format, generation)) => found.push((generation, format, file)),
                // Its creation, or its new use, was interrupted: nothing in it was ever acknowledged.
                None => io.remove(&path)?,
            }
        }
        if found.is_empty() && !create {
            let path = Arc::new(dir.join(name(1)));
            return Err(StoreError::Damaged { path, offset: 0, what: "the journal is missing" });
        }
        found.sort_by_key(|(generation, ..)| *generation);
        let mut aside = Vec::new();
        for (generation, format, file) in found {
            let len = file.len()?;
            let mut segment = Segment { file, format, generation, len, last: 0 };
            if generation < floor {
                aside.push(segment);
                continue;
            }
            let expected = journal.segments.back().map_or(floor.max(1), |before| before.generation + 1);
            if generation != expected {
                return journal
                    .missing(&segment.file, "the segment before this one is missing, or is an older copy");
            }
            segment.last = journal.read_segment(&segment, flushed, &mut replayed)?;
            journal.next = journal.next.max(segment.last + 1);
            // What follows goes to a segment of its own: behind the last group a torn one may lie.
            journal.at = len;
            journal.segments.push_back(segment);
        }
        if journal.next <= least || (journal.segments.is_empty() && !create) {
            let path = Arc::new(dir.to_path_buf());
            let what = "records of its journal that were durable are missing: the newest segment is missing, was \
                        emptied or cut, or is an older copy";
            return Err(StoreError::Damaged { path, offset: 0, what });
        }
        // Nothing was changed before all was found to be there.
        aside.into_iter().for_each(|segment| journal.put_aside(segment));
        keeper.note_record(journal.next - 1);
        Ok((journal, replayed))
    }

    fn missing<T>(&self, file: &Arc<dyn File>, what: &'static str) -> Result<T> {
        Err(StoreError::Damaged { path: Arc::new(file.path().to_path_buf()), offset: 0, what })
    }

    fn read_header(&self, file: &Arc<dyn File>) -> Result<Option<(u32, u64)>> {
        let path = || Arc::new(file.path().to_path_buf());
        let mut bytes = AlignedBytes::zeroed(BLOCK as usize);
        if read_aligned(&**file, 0, &mut bytes)? < BLOCK as usize {
            if file.len()? < BLOCK {
                return Ok(None);
            }
            return Err(StoreError::Damaged {
                path: path(),
                offset: 0,
                what: "its header cannot be read whole",
            });
        }
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if !bytes.starts_with(MAGIC) {
            return Err(WrongFile::Foreign { path: path() }.into());
        }
        let mut reader = Reader::new(&bytes[8..]);
        let mut read = || -> Option<(u32, [u8; 16], u64, u32)> {
            let format = reader.u32()?;
            reader.u32()?;
            let database = *reader.bytes(16)?.first_chunk()?;
            Some((format, database, reader.u64()?, reader.u32()?))
        };
        let Some((found, database, generation, sum)) = read() else { return Ok(None) };
        if found > JOURNAL_FORMAT {
            return Err(WrongFile::Newer { path: path(), found, supported: JOURNAL_FORMAT }.into());
        }
        if sum != crc32c(&bytes[..40]) {
            return Err(StoreError::Damaged {
                path: path(),
                offset: 0,
                what: "its header does not check out",
            });
        }
        if database != self.database {
            let expected = self.database;
            return Err(WrongFile::OtherDatabase { path: path(), expected, found: database }.into());
        }
        Ok(Some((found, generation)))
    }

    /// Reads the groups of a segment. Gives the number of its last record.
    fn read_segment(&self, segment: &Segment, flushed: u64, replayed: &mut Replayed) -> Result<u64> {
        let file = &segment.file;
        let seed = Seed::new(&self.database, segment.generation);
        let damaged = |offset, what| {
            Err(StoreError::Damaged { path: Arc::new(file.path().to_path_buf()), offset, what })
        };
        let len = file.len()? / BLOCK * BLOCK;
        let mut bytes = AlignedBytes::zeroed(len.max(BLOCK) as usize);
        let come = read_aligned(&**file, 0, &mut bytes)? as u64 / BLOCK * BLOCK;
        let bytes = &bytes[..come as usize];
        let mut at = BLOCK;
        let mut last = 0;
        while let Some(Group { first, position, records, used }) = read_group(bytes, at, seed, segment.format)
        {
            // Those up to `flushed` are in pieces, and the segments with them may be gone.
            let before = replayed.records.last().map(|(number, _)| *number);
            if before.map_or(first > flushed + 1, |before| first != before + 1) {
                return damaged(at, "records before this one are missing");
            }
            self.keeper.found_position(position);
            let Some(records) = records else { return damaged(at, "a group checks out but makes no sense") };
            for (number, record) in (first..).zip(records) {
                last = number;
                replayed.push(number, record, flushed);
            }
            at += used;
        }
        let mut later = at + BLOCK;
        while later < come {
            if read_group(bytes, later, seed, segment.format).is_some() {
                return damaged(at, "a group does not check out, but one behind it does");
            }
            later += BLOCK;
        }
        Ok(last)
    }

    /// Adds a record to the group being collected, and gives its number.
    pub(super) fn collect(&mut self, record: &Record) -> u64 {
        record.encode(&mut self.group);
        self.group_records += 1;
        self.next += 1;
        self.next - 1
    }

    /// Adds a batch to the group being collected, confirmed or not, whatever it was when it was written first.
    pub(super) fn collect_written(&mut self, batch: &Batch, confirmed: bool) {
        encode_record(&mut self.group, if confirmed { WRITTEN_CONFIRMED } else { WRITTEN }, &batch.bytes);
        self.group_records += 1;
        self.next += 1;
    }

    /// Bytes of the group being collected.
    pub(super) fn collected_bytes(&self) -> usize {
        self.group.len()
    }

    /// Is there something that was collected and not written?
    pub(super) fn has_collected(&self) -> bool {
        self.group_records > 0
    }

    /// Bytes in segments that are in use.
    pub(super) fn bytes_in_use(&self) -> u64 {
        let full: u64 = self.segments.iter().map(|segment| segment.len).sum();
        full - self.segments.back().map_or(0, |segment| segment.len - self.at)
    }

    /// Memory of the group being collected and written.
    pub(super) fn memory_bytes(&self) -> usize {
        self.group.capacity() + self.buffer.len()
    }

    /// Bytes of all segments.
    pub(super) fn disk_bytes(&self) -> u64 {
        self.segments.iter().chain(&self.spare).map(|segment| segment.len).sum()
    }

    /// Writes what was collected, and makes it durable. After an error nothing was written, as far as the caller is
    /// concerned: the numbers of what has not taken effect are used again.
    ///
    /// # Errors
    /// With `true`: a sync failed, which is final.
    pub(super) fn write(&mut self) -> std::result::Result<(), (StoreError, bool)> {
        if self.group_records == 0 {
            return Ok(());
        }
        let result = self.try_write();
        if result.is_err() {
            self.next -= u64::from(self.group_records - self.applied.1);
        } else {
            self.applied = (GROUP_HEADER_BYTES, 0);
        }
        let (len, records) = self.applied;
        self.group.truncate(len);
        self.group_records = records;
        result
    }

    /// Notes that the collected records take effect: those that are not written yet stay in the group until they are.
    pub(super) fn applied(&mut self) {
        self.applied = (self.group.len(), self.group_records);
    }

    fn try_write(&mut self) -> std::result::Result<(), (StoreError, bool)> {
        let padded = (self.group.len() as u64).next_multiple_of(BLOCK);
        let fits = self.segments.back().is_some_and(|segment| self.at + padded <= segment.len);
        if !fits {
            self.begin_segment(padded + BLOCK)?;
        }
        let first = self.next - u64::from(self.group_records);
        let last = self.next - 1;
        let segment = self.segments.back_mut().expect("a segment was begun");
        let bytes = self.group.len() as u32;
        self.group[..4].copy_from_slice(&GROUP_MAGIC.to_le_bytes());
        self.group[8..12].copy_from_slice(&bytes.to_le_bytes());
        self.group[12..16].copy_from_slice(&self.group_records.to_le_bytes());
        self.group[16..24].copy_from_slice(&first.to_le_bytes());
        let position = self.keeper.position();
        self.group[24..32].copy_from_slice(&position.log.to_le_bytes());
        self.group[32..40].copy_from_slice(&position.checkpoint.to_le_bytes());
        let seed = Seed::new(&self.database, segment.generation);
        let sum = crc32c_append(seed.at(self.at), &self.group[8..]);
        self.group[4..8].copy_from_slice(&sum.to_le_bytes());
        if self.buffer.len() < padded as usize {
            self.buffer = AlignedBytes::zeroed((padded as usize).next_power_of_two());
        }
        self.buffer[..self.group.len()].copy_from_slice(&self.group);
        self.buffer[self.group.len()..padded as usize].fill(0);
        let written = segment.file.write_at(self.at, &self.buffer[..padded as usize]);
        written.map_err(|error| (error.into(), false))?;
        segment.file.sync_data().map_err(|error| (StoreError::Io(error), true))?;
        self.bytes_written += padded;
        self.syncs += 1;
        self.at += padded;
        segment.last = last;
        self.keeper.note_record(last);
        Ok(())
    }

    /// Begins a segment that has room for `least` bytes.
    fn begin_segment(&mut self, least: u64) -> std::result::Result<(), (StoreError, bool)> {
        let generation = self.segments.back().map_or(0, |segment| segment.generation) + 1;
        let spare = self.spare.iter().position(|segment| segment.len >= least);
        let mut segment = match spare {
            Some(at) => self.spare.swap_remove(at),
            None => match self.create_segment(least.max(self.segment_bytes)) {
                // A shorter one may find its space.
                Err(error) if error.is_full() => self.create_segment(least),
                created => created,
            }
            .map_err(|error| (error, false))?,
        };
        (segment.format, segment.generation) = (JOURNAL_FORMAT, generation);
        segment.last = 0;
        let mut header = AlignedBytes::zeroed(BLOCK as usize);
        header[..8].copy_from_slice(MAGIC);
        header[8..12].copy_from_slice(&JOURNAL_FORMAT.to_le_bytes());
        header[16..32].copy_from_slice(&self.database);
        header[32..40].copy_from_slice(&generation.to_le_bytes());
        let sum = crc32c(&header[..40]);
        header[40..44].copy_from_slice(&sum.to_le_bytes());
        // The group's sync covers it as well.
        if let Err(error) = segment.file.write_at(0, &header) {
            self.spare.push(segment);
            return Err((error.into(), false));
        }
        self.bytes_written += BLOCK;
        self.segments.push_back(segment);
        self.at = BLOCK;
        Ok(())
    }

    fn create_segment(&mut self, len: u64) -> Result<Segment> {
        let path = self.dir.join(name(self.next_file));
        let file = self.io.open_direct(&path, OpenMode::CreateNew)?;
        self.next_file += 1;
        let zeros = AlignedBytes::zeroed(ZEROS_BYTES.min(len as usize));
        let fill = || -> Result<()> {
            let mut at = 0;
            while at < len {
                let count = (len - at).min(zeros.len() as u64);
                file.write_at(at, &zeros[..count as usize])?;
                at += count;
            }
            file.sync_data()?;
            Ok(self.io.sync_dir(&self.dir)?)
        };
        if let Err(error) = fill() {
            // Nothing refers to it; if it cannot be removed either, the next open does it.
            let _ = self.io.remove(&path);
            return Err(error);
        }
        self.bytes_written += len;
        Ok(Segment { file, format: JOURNAL_FORMAT, generation: 0, len, last: 0 })
    }

    /// Creates the first segment, so that there always is one.
    pub(super) fn begin(&mut self) -> Result<()> {
        self.begin_segment(2 * BLOCK).map_err(|(error, _)| error)?;
        let segment = self.segments.back().expect("it was begun");
        Ok(segment.file.sync_data()?)
    }

    /// Everything up to `flushed` is in pieces, but for unconfirmed batches, the oldest of which has number `pinned`: the
    /// first generation that is needed then. The segment being written stays.
    pub(super) fn floor(&self, flushed: u64, pinned: Option<u64>) -> u64 {
        let keep = match pinned {
            Some(pinned) if mutation::on(Rule::SegmentOutlivesBatches) => pinned.min(flushed + 1),
            _ => flushed + 1,
        };
        let mut kept = self.segments.iter().enumerate();
        let last = self.segments.len().saturating_sub(1);
        let first = kept.find(|(at, segment)| *at == last || segment.last >= keep);
        first.map_or(0, |(_, segment)| segment.generation)
    }

    /// The manifest says, durably, that generations before `floor` are void.
    pub(super) fn release(&mut self, floor: u64) {
        while self.segments.len() > 1 && self.segments[0].generation < floor {
            let segment = self.segments.pop_front().expect("there are two");
            self.put_aside(segment);
        }
    }

    fn put_aside(&mut self, segment: Segment) {
        if self.spare.len() < SPARE_SEGMENTS && segment.len == self.segment_bytes {
            self.spare.push(segment);
        } else if let Err(error) = self.io.remove(segment.file.path()) {
            tracing::warn!(%error, "a journal segment that is not needed any more stays");
        }
    }

    /// Segments in use.
    pub(super) fn segment_count(&self) -> usize {
        self.segments.len()
    }
}

/// Reads from `offset` on, in whole blocks: how many bytes came.
fn read_aligned(file: &dyn File, offset: u64, bytes: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        let come = file.read_at(offset + done as u64, &mut bytes[done..])?;
        if come == 0 {
            break;
        }
        let end = done + come;
        // A short read may end within a block; direct files want whole ones.
        if end == bytes.len() {
            return Ok(end);
        }
        let whole = end / BLOCK as usize * BLOCK as usize;
        if whole == done {
            // Less than a block at a time: without the system's rule of alignment byte by byte will do.
            if file.alignment() > 1 {
                return Ok(end);
            }
            done = end;
        } else {
            done = whole;
        }
    }
    Ok(done)
}

/// A group that checks out.
struct Group {
    /// Number of the first record.
    first: u64,
    /// The owner's, when it was written.
    position: OwnerPosition,
    /// `None`: they make no sense.
    records: Option<Vec<Record>>,
    /// Bytes that it takes up.
    used: u64,
}

/// The group at a place.
fn read_group(bytes: &[u8], at: u64, seed: Seed, format: u32) -> Option<Group> {
    let header = if format < 2 { FORMER_HEADER_BYTES } else { GROUP_HEADER_BYTES };
    let bytes = bytes.get(at as usize..)?;
    let mut reader = Reader::new(bytes);
    if reader.u32()? != GROUP_MAGIC {
        return None;
    }
    let (sum, len, count, first) = (reader.u32()?, reader.u32()? as usize, reader.u32()?, reader.u64()?);
    let log = reader.u64()?;
    let checkpoint = if format < 2 { 0 } else { reader.u64()? };
    let position = OwnerPosition { log, checkpoint };
    let group = bytes.get(..len)?;
    if len < header || count == 0 || crc32c_append(seed.at(at), &group[8..]) != sum {
        return None;
    }
    let records = decode_records(&group[header..], count);
    Some(Group { first, position, records, used: (len as u64).next_multiple_of(BLOCK) })
}
