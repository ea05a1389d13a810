//! Files of slots: where a record lies is known from its key alone.
//!
//! ```text
//!   file of a segment   slots-<table>-<bytes of a key>-<segment>                    little-endian, numbers in names hex
//!   0        8        12         16            32      36          40        48       52      4096
//!   ┌────────┬────────┬──────────┬─────────────┬───────┬───────────┬─────────┬────────┬─ ┄ ───┬────────┬────────┬─ ┄
//!   │magic   │format  │slot bytes│ database id │ table │ key bytes │ segment │checksum│ 0     │ slot 0 │ slot 1 │
//!   └────────┴────────┴──────────┴─────────────┴───────┴───────────┴─────────┴────────┴─ ┄ ───┴────────┴────────┴─ ┄
//!
//!   slot     stamp u64 · batch u64 · id u64 · gone u64 · record bytes u32 · body bytes u32 · checksum of the body u32
//!            · checksum of the header before it u32 · body: record, tail, tail, …                  all zero: it is free
//!   tail     index u32 · bytes u16 · key of a secondary entry of the record
//! ```
//!
//! - A *slot* begins at a sector, and its header lies within one, which a device writes whole or not at all. Slots that
//!   share a block of 4 KiB are rewritten with it, byte for byte.
//! - `gone` has a bit for the record (0) and for each of its tails (1…). Removing an entry changes the header only, so
//!   no crash leaves half of a removal; when all are gone the header is zero.
//! - Checksums start from the database, the table and segment, and the slot's place (`ChecksumBindsPosition`).

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thermocline_base::checksum::{Seed, crc32c, crc32c_append};
use thermocline_base::io::{AlignedBytes, Buffer, DIRECT_ALIGNMENT, File, Io, OpenMode, Operation};
use thermocline_base::sync::{AtomicU64, Ordering};
use thermocline_pool::error::WrongFile;
use thermocline_pool::store::{BatchId, IndexId as StoreIndex, StoreError};

/// What is read and written at once.
pub(super) const BLOCK: usize = DIRECT_ALIGNMENT;
pub(super) const SLOT_HEADER: usize = 48;
/// Tails that fit into `gone` beside the record.
pub(super) const TAILS_MAX: usize = 63;
const MAGIC: &[u8; 8] = b"thclslot";
/// The format of the files that this program writes.
pub(super) const SLOTS_FORMAT: u32 = 1;
const TAIL_HEADER: usize = 6;

/// Whose slots a file has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct SegmentId {
    pub(super) table: u32,
    pub(super) key_len: u32,
    pub(super) segment: u64,
}

impl SegmentId {
    pub(super) fn file_name(self) -> String {
        format!("slots-{:08x}-{}-{:016x}", self.table, self.key_len, self.segment)
    }

    pub(super) fn from_file_name(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix("slots-")?.split('-');
        let id = Self {
            table: u32::from_str_radix(parts.next()?, 16).ok()?,
            key_len: parts.next()?.parse().ok()?,
            segment: u64::from_str_radix(parts.next()?, 16).ok()?,
        };
        (parts.next().is_none() && id.file_name() == name).then_some(id)
    }
}

/// What all files of a store have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Geometry {
    pub(super) database: [u8; 16],
    pub(super) slot_bytes: u32,
    pub(super) segment_slots: u32,
}

impl Geometry {
    /// The longest body of a slot.
    pub(super) fn body_max(self) -> usize {
        self.slot_bytes as usize - SLOT_HEADER
    }

    /// The block of a slot, and where in it the slot begins.
    pub(super) fn place(self, slot: u32) -> (u64, usize) {
        let at = u64::from(slot) * u64::from(self.slot_bytes);
        (at / BLOCK as u64, (at % BLOCK as u64) as usize)
    }

    pub(super) fn slots_per_block(self) -> u32 {
        BLOCK as u32 / self.slot_bytes
    }

    fn file_bytes(self) -> u64 {
        let slots = u64::from(self.segment_slots) * u64::from(self.slot_bytes);
        BLOCK as u64 + slots.next_multiple_of(BLOCK as u64)
    }
}

/// A file of slots, and which of them are taken. A bit a slot is the access filter: exact, and smaller than any other
/// where more than a tenth of the slots is taken.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) id: SegmentId,
    pub(super) file: Arc<dyn File>,
    seed: Seed,
    geometry: Geometry,
    taken: Box<[AtomicU64]>,
    taken_count: AtomicU64,
    /// Those of them whose record has not been removed.
    records: AtomicU64,
    /// The latest batch of which a slot was taken.
    newest: AtomicU64,
}

impl Segment {
    fn new(id: SegmentId, file: Arc<dyn File>, geometry: Geometry) -> Self {
        let seed = Seed::new(&geometry.database, u64::from(id.table) << 8 | u64::from(id.key_len));
        let words = (geometry.segment_slots as usize).div_ceil(64);
        let taken = (0..words).map(|_| AtomicU64::new(0)).collect();
        let [taken_count, records, newest] = std::array::from_fn(|_| AtomicU64::new(0));
        Self { id, file, seed, geometry, taken, taken_count, records, newest }
    }

    fn header(id: SegmentId, geometry: Geometry) -> AlignedBytes {
        let mut bytes = AlignedBytes::zeroed(BLOCK);
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&SLOTS_FORMAT.to_le_bytes());
        bytes[12..16].copy_from_slice(&geometry.slot_bytes.to_le_bytes());
        bytes[16..32].copy_from_slice(&geometry.database);
        bytes[32..36].copy_from_slice(&id.table.to_le_bytes());
        bytes[36..40].copy_from_slice(&id.key_len.to_le_bytes());
        bytes[40..48].copy_from_slice(&id.segment.to_le_bytes());
        let sum = crc32c(&bytes[..48]);
        bytes[48..52].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Creates the file, with its space taken; durable with its name. What there is under that name holds nothing that
    /// counts. Blocks.
    pub(super) fn create(
        io: &dyn Io,
        dir: &Path,
        id: SegmentId,
        geometry: Geometry,
    ) -> Result<Self, StoreError> {
        let file = io.open_direct(&dir.join(id.file_name()), OpenMode::Create)?;
        file.set_len(0)?;
        file.allocate(geometry.file_bytes())?;
        file.write_at(0, &Self::header(id, geometry))?;
        file.sync_data()?;
        io.sync_dir(dir)?;
        Ok(Self::new(id, file, geometry))
    }

    /// Opens the file. `None`: its creation was interrupted. Blocks.
    pub(super) fn open(
        io: &dyn Io,
        dir: &Path,
        id: SegmentId,
        geometry: Geometry,
    ) -> Result<Option<Self>, StoreError> {
        let path = dir.join(id.file_name());
        let file = io.open_direct(&path, OpenMode::Write)?;
        let mut bytes = AlignedBytes::zeroed(BLOCK);
        let count = file.read_full_at(0, &mut bytes)?;
        if bytes[..count].iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        check_header(&bytes, &path, MAGIC, SLOTS_FORMAT..=SLOTS_FORMAT, 48)?;
        check_owner(&bytes[16..32], &path, geometry.database)?;
        if bytes[..52] != Self::header(id, geometry)[..52] {
            let what = "its header is that of another file; it was renamed";
            return Err(StoreError::Damaged { path: Arc::new(path), offset: 0, what });
        }
        Ok(Some(Self::new(id, file, geometry)))
    }

    /// Is the slot taken?
    #[inline]
    pub(super) fn is_taken(&self, slot: u32) -> bool {
        self.taken[slot as usize / 64].load(Ordering::Acquire) >> (slot % 64) & 1 == 1
    }

    /// It has a record of this batch from now on, or what is left of one.
    pub(super) fn take(&self, slot: u32, batch: BatchId, has_record: bool) {
        self.newest.fetch_max(batch.0, Ordering::Relaxed);
        let bit = 1 << (slot % 64);
        if self.taken[slot as usize / 64].fetch_or(bit, Ordering::Release) & bit == 0 {
            self.taken_count.fetch_add(1, Ordering::Relaxed);
            self.records.fetch_add(u64::from(has_record), Ordering::Relaxed);
        }
    }

    /// A record of it was removed. One that could not be read when the store was opened was never counted. Only who writes
    /// changes the number.
    pub(super) fn lose_record(&self) {
        self.records.store(self.record_count().saturating_sub(1), Ordering::Relaxed);
    }

    pub(super) fn free(&self, slot: u32) {
        let bit = 1 << (slot % 64);
        if self.taken[slot as usize / 64].fetch_and(!bit, Ordering::Release) & bit != 0 {
            self.taken_count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Are all its records of this batch or earlier ones?
    pub(super) fn is_up_to(&self, batch: BatchId) -> bool {
        self.newest.load(Ordering::Relaxed) <= batch.0
    }

    /// The first taken slot from one on, up to another one (excluded).
    pub(super) fn next_taken(&self, slots: std::ops::Range<u32>) -> Option<u32> {
        let mut slot = slots.start;
        while slot < slots.end {
            let rest = self.taken[slot as usize / 64].load(Ordering::Acquire) >> (slot % 64);
            if rest != 0 {
                let found = slot + rest.trailing_zeros();
                return (found < slots.end).then_some(found);
            }
            slot = (slot / 64 + 1) * 64;
        }
        None
    }

    /// The last taken slot of some.
    pub(super) fn last_taken(&self, slots: std::ops::Range<u32>) -> Option<u32> {
        let mut end = slots.end;
        while end > slots.start {
            let last = end - 1;
            let rest = self.taken[last as usize / 64].load(Ordering::Acquire) << (63 - last % 64);
            if rest != 0 {
                let found = last - rest.leading_zeros();
                return (found >= slots.start).then_some(found);
            }
            end = last / 64 * 64;
        }
        None
    }

    pub(super) fn taken_count(&self) -> u64 {
        self.taken_count.load(Ordering::Relaxed)
    }

    pub(super) fn record_count(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    pub(super) fn filter_bytes(&self) -> usize {
        self.taken.len() * size_of::<AtomicU64>()
    }

    pub(super) fn disk_bytes(&self) -> u64 {
        self.geometry.file_bytes()
    }

    /// Where a block lies in the file.
    pub(super) fn offset_of(block: u64) -> u64 {
        (block + 1) * BLOCK as u64
    }

    /// The key of a slot.
    pub(super) fn key(&self, slot: u32) -> Vec<u8> {
        let id = self.id.segment * u64::from(self.geometry.segment_slots) + u64::from(slot);
        id.to_be_bytes()[8 - self.id.key_len as usize..].to_vec()
    }

    fn start(&self, slot: u32) -> u32 {
        self.seed.at(self.id.segment.wrapping_mul(1 << 24).wrapping_add(u64::from(slot)))
    }

    /// Writes a slot into its place in a block.
    pub(super) fn encode(&self, slot: u32, stamp: u64, batch: BatchId, body: &Body, place: &mut [u8]) {
        let place = &mut place[..self.geometry.slot_bytes as usize];
        place[..8].copy_from_slice(&stamp.to_le_bytes());
        place[8..16].copy_from_slice(&batch.0.to_le_bytes());
        place[16..24].copy_from_slice(&u64::from(slot).to_le_bytes());
        place[24..32].fill(0);
        place[32..36].copy_from_slice(&body.record_len.to_le_bytes());
        place[36..40].copy_from_slice(&(body.bytes.len() as u32).to_le_bytes());
        let end = SLOT_HEADER + body.bytes.len();
        place[SLOT_HEADER..end].copy_from_slice(&body.bytes);
        place[end..].fill(0);
        let sum = crc32c_append(self.start(slot), &body.bytes);
        place[40..44].copy_from_slice(&sum.to_le_bytes());
        self.seal(slot, place);
    }

    fn seal(&self, slot: u32, place: &mut [u8]) {
        let sum = crc32c_append(self.start(slot), &place[..44]);
        place[44..48].copy_from_slice(&sum.to_le_bytes());
    }

    /// Notes in a slot's header that entries are gone; all of them: the slot is free. `true`: it is free now.
    pub(super) fn set_gone(&self, slot: u32, gone: u64, place: &mut [u8]) -> bool {
        let is_free = match self.decode(slot, place) {
            Ok(Some(found)) => found.left_without(gone) == 0,
            _ => true,
        };
        if is_free {
            place[..SLOT_HEADER].fill(0);
        } else {
            let both = u64_at(place, 24) | gone;
            place[24..32].copy_from_slice(&both.to_le_bytes());
            self.seal(slot, place);
        }
        is_free
    }

    /// Reads a slot. `None`: it is free.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn decode<'a>(&self, slot: u32, place: &'a [u8]) -> Result<Option<Slot<'a>>, Broken> {
        let place = &place[..self.geometry.slot_bytes as usize];
        let header = &place[..SLOT_HEADER];
        if header.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if u32_at(header, 44) != crc32c_append(self.start(slot), &header[..44]) {
            return Err(Broken { stamp: None, what: "the header of a slot does not match its checksum" });
        }
        let stamp = u64_at(header, 0);
        let broken = |what| Broken { stamp: Some(stamp), what };
        let (record_len, body_len) = (u32_at(header, 32) as usize, u32_at(header, 36) as usize);
        let body = place[SLOT_HEADER..].get(..body_len).filter(|_| record_len <= body_len);
        let body = body.ok_or(broken("the lengths of a slot make no sense"))?;
        if u32_at(header, 40) != crc32c_append(self.start(slot), body) {
            return Err(broken("a record does not match its checksum"));
        }
        let (record, tails) = body.split_at(record_len);
        let batch = BatchId(u64_at(header, 8));
        Ok(Some(Slot { stamp, batch, gone: u64_at(header, 24), record, tails }))
    }

    /// The error of a slot that cannot be used.
    pub(super) fn damaged(&self, slot: u32, what: &'static str) -> StoreError {
        let (block, within) = self.geometry.place(slot);
        let offset = Self::offset_of(block) + within as u64;
        StoreError::Damaged { path: Arc::new(self.file.path().to_path_buf()), offset, what }
    }

    /// Reads a block. What lies behind the end of the file is zero.
    pub(super) async fn read_block(&self, block: u64) -> Result<AlignedBytes, StoreError> {
        let offset = Self::offset_of(block);
        let mut bytes = AlignedBytes::zeroed(BLOCK);
        let mut done = 0;
        loop {
            let buffer = Buffer::from(AlignedBytes::zeroed(BLOCK));
            let operation = Operation::Read { offset: offset + done as u64, buffer };
            let outcome = self.file.submit(operation).await;
            let count = outcome.result?.min(BLOCK - done);
            let read = outcome.buffer.into_aligned().expect("the buffer that was given");
            bytes[done..done + count].copy_from_slice(&read[..count]);
            done += count;
            if count == 0 || done == BLOCK {
                return Ok(bytes);
            }
        }
    }
}

/// What is wrong with a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Broken {
    /// Its stamp, if its header can be believed.
    pub(super) stamp: Option<u64>,
    pub(super) what: &'static str,
}

/// A record with the keys of its secondary entries.
#[derive(Debug, Default)]
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    record_len: u32,
    tails: usize,
}

impl Body {
    pub(super) fn new(record: &[u8]) -> Self {
        Self { bytes: record.to_vec(), record_len: record.len() as u32, tails: 0 }
    }

    /// Adds a secondary entry ([`tail_bytes`]). `false`: there are too many.
    pub(super) fn add(&mut self, index: u32, key: &[u8]) -> bool {
        self.bytes.extend_from_slice(&index.to_le_bytes());
        self.bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
        self.bytes.extend_from_slice(key);
        self.tails += 1;
        self.tails <= TAILS_MAX
    }
}

/// What a secondary entry takes in a body.
pub(super) const fn tail_bytes(key: &[u8]) -> usize {
    size_of::<u32>() + size_of::<u16>() + key.len()
}

/// A slot that is taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot<'a> {
    pub(super) stamp: u64,
    pub(super) batch: BatchId,
    gone: u64,
    record: &'a [u8],
    tails: &'a [u8],
}

impl<'a> Slot<'a> {
    /// The record, unless it is gone.
    pub(super) fn record(&self) -> Option<&'a [u8]> {
        (self.gone & 1 == 0).then_some(self.record)
    }

    /// The secondary entries with the bit of each, gone ones too.
    fn all_tails(&self) -> impl Iterator<Item = (u64, u32, &'a [u8])> + use<'a> {
        let mut rest = self.tails;
        let mut bit = 0;
        std::iter::from_fn(move || {
            let len = usize::from(u16::from_le_bytes([*rest.get(4)?, *rest.get(5)?]));
            let key = rest.get(TAIL_HEADER..TAIL_HEADER + len)?;
            let index = u32_at(rest, 0);
            rest = &rest[TAIL_HEADER + len..];
            bit += 1;
            (bit <= TAILS_MAX).then_some((1 << bit, index, key))
        })
    }

    /// The secondary entries that are there, of a table.
    pub(super) fn tails(&self, table: u32) -> impl Iterator<Item = (StoreIndex, &'a [u8])> + use<'a> {
        let gone = self.gone;
        self.all_tails()
            .filter(move |(bit, ..)| gone & bit == 0)
            .map(move |(_, index, key)| (StoreIndex { table, index }, key))
    }

    /// The bit of an entry.
    pub(super) fn bit_of(&self, index: u32, key: &[u8]) -> Option<u64> {
        if index == 0 {
            return Some(1);
        }
        self.all_tails().find(|(_, of, there)| *of == index && *there == key).map(|(bit, ..)| bit)
    }

    /// Bits of the entries of indexes that are gone.
    pub(super) fn bits_of_dropped(&self, is_dropped: impl Fn(u32) -> bool) -> u64 {
        self.all_tails().filter(|(_, index, _)| is_dropped(*index)).fold(0, |all, (bit, ..)| all | bit)
    }

    /// Bits of the entries that are left when these are gone as well.
    fn left_without(&self, gone: u64) -> u64 {
        let all = self.all_tails().fold(1, |all, (bit, ..)| all | bit);
        all & !(self.gone | gone)
    }
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Checks magic number, format and checksum (which follows the first `summed` bytes) of a file's header.
pub(super) fn check_header(
    bytes: &[u8],
    path: &Path,
    magic: &[u8; 8],
    formats: RangeInclusive<u32>,
    summed: usize,
) -> Result<(), StoreError> {
    let path = || Arc::new(PathBuf::from(path));
    if !bytes.starts_with(magic) {
        return Err(WrongFile::Foreign { path: path() }.into());
    }
    // A newer format may sum its header in another way, so this comes first.
    let found = u32_at(bytes, 8);
    if found > *formats.end() {
        return Err(WrongFile::Newer { path: path(), found, supported: *formats.end() }.into());
    }
    if found < *formats.start() {
        return Err(WrongFile::Older { path: path(), found, supported: *formats.start() }.into());
    }
    if u32_at(bytes, summed) != crc32c(&bytes[..summed]) {
        let what = "its header does not match its checksum";
        return Err(StoreError::Damaged { path: path(), offset: 0, what });
    }
    Ok(())
}

/// Checks whose file it is.
pub(super) fn check_owner(found: &[u8], path: &Path, expected: [u8; 16]) -> Result<(), StoreError> {
    let found: [u8; 16] = std::array::from_fn(|at| found[at]);
    if found == expected {
        return Ok(());
    }
    Err(WrongFile::OtherDatabase { path: Arc::new(path.to_path_buf()), expected, found }.into())
}
