//! Rows of frozen chunks in the store `pages`: a block as an object, of which a row is read without the rest.
//!
//! ```text
//!   object   header 32 │ columns of the layout │ 0 … │ block: front │ groups │ 0 … │ hidden keys u64 × positions
//!                                                    └ at a multiple of 64       └ at a multiple of 8, if there are any
//!   header   magic 8 · version u16 · columns u16 · where the block begins u32 · its bytes u64 · where hidden keys begin u64
//!            (0: there are none)                                                                         little-endian
//!   entry    of the primary index: key → position u16; of other indexes: as ever
//! ```
//!
//! An object names its layout, as a block in memory does, so that it can be read by whoever has the file. A row needs the *front*
//! (everything before the groups, dictionaries included) and its group. Fronts are kept in memory, those that were used last, in
//! a share of the frames' budget; groups are in frames, or read in one piece. So a row costs at most three reads of the device: the
//! page with its entry, the front, the group.
//!
//! Rule: a row that is read is the record that single migration would have written: the row's bytes with its hidden key.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use thermocline_base::multiplex::block_on;
use thermocline_base::sync::{AtomicU64, Mutex, Ordering};
use thermocline_frozen::BlockMeta;
use thermocline_pool::store::{
    Found, FoundKey, Object, ObjectBatch, ObjectEntries, Result, Scan, Seen, StoreError,
};

use super::store::{BlockBatch, ColdScan, Pending, primary_of};
use super::together::together;
use crate::row::{Column, Layout};

const MAGIC: &[u8; 8] = b"thclmobj";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 32;
/// A block's groups stand at multiples of this, from its begin and in the object.
const ALIGN: usize = 64;

/// The batch as the store keeps it.
pub(crate) fn encode(batch: BlockBatch) -> ObjectBatch {
    let BlockBatch { id, table, block, hidden, layout, indexes } = batch;
    let mut bytes = vec![0; HEADER_BYTES];
    layout.columns().iter().for_each(|column| column.encode(&mut bytes));
    bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
    let block_at = bytes.len();
    let meta = BlockMeta::parse(&block, &layout).expect("the block of a chunk in memory is whole");
    let front = block_at + meta.front_len(&block);
    let block_bytes = block.len();
    bytes.reserve_exact(block_bytes + 8 + hidden.len() * size_of::<u64>());
    bytes.extend_from_slice(&block);
    drop(block);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let hidden_at = if hidden.is_empty() { 0 } else { bytes.len() as u64 };
    hidden.iter().for_each(|key| bytes.extend_from_slice(&key.to_le_bytes()));
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    bytes[10..12].copy_from_slice(&(layout.columns().len() as u16).to_le_bytes());
    bytes[12..16].copy_from_slice(&(block_at as u32).to_le_bytes());
    bytes[16..24].copy_from_slice(&(block_bytes as u64).to_le_bytes());
    bytes[24..32].copy_from_slice(&hidden_at.to_le_bytes());
    let entries = indexes.into_iter().map(|of| {
        let is_own = of.index == primary_of(table);
        let records = of.positions.iter().filter(|_| is_own).flat_map(|position| position.to_le_bytes());
        let (keys, ends) = of.keys.into_parts();
        ObjectEntries { index: of.index, records: records.collect(), keys, ends }
    });
    ObjectBatch { id, index: primary_of(table), front_bytes: front as u32, entries: entries.collect(), bytes }
}

/// What a reader needs of an object before it knows which row it wants.
#[derive(Debug)]
struct Front {
    bytes: Vec<u8>,
    meta: BlockMeta,
    block_at: usize,
    hidden_at: u64,
}

impl Front {
    /// # Errors
    /// What is wrong with the bytes.
    fn parse(bytes: Vec<u8>) -> std::result::Result<Self, &'static str> {
        const CUT: &str = "the header of a block is cut";
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(CUT)?;
        let number = |range: Range<usize>| {
            header[range].iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
        };
        if &header[..8] != MAGIC || number(8..10) != u64::from(VERSION) {
            return Err("it does not begin as a block does that this program knows");
        }
        let (columns, block_at, hidden_at) = (number(10..12), number(12..16) as usize, number(24..32));
        let mut described = bytes.get(HEADER_BYTES..block_at).ok_or(CUT)?;
        let columns =
            (0..columns).map(|_| Column::decode(&mut described)).collect::<std::result::Result<Vec<_>, _>>();
        let layout = columns.and_then(|columns| Layout::new(&columns));
        let layout = layout.map_err(|_| "its columns make no sense")?;
        let meta = BlockMeta::parse_front(&bytes[block_at..], &layout);
        let meta = meta.map_err(|_| "the front of a block makes no sense")?;
        Ok(Self { bytes, meta, block_at, hidden_at })
    }

    fn memory_bytes(&self) -> u64 {
        (size_of::<Self>() + self.bytes.capacity() + self.meta.memory()) as u64
    }

    /// Where in the object the group with a position stands.
    fn group(&self, position: u16) -> Option<Range<u64>> {
        let range = self.meta.group_range(&self.bytes[self.block_at..], position)?;
        Some((self.block_at + range.start) as u64..(self.block_at + range.end) as u64)
    }

    /// Where the hidden key of a position stands.
    fn hidden(&self, position: u16) -> Option<Range<u64>> {
        let at = self.hidden_at + 8 * u64::from(position);
        (self.hidden_at != 0).then_some(at..at + 8)
    }

    /// The row at a position, from the bytes of its group. `None`: there is none.
    fn row(&self, group: &[u8], position: u16) -> Option<Vec<u8>> {
        let mut row = Vec::new();
        let group = self.meta.group(&self.bytes[self.block_at..], group, position);
        group.row_into(position, &mut row).then_some(row)
    }
}

#[derive(Debug, Default)]
struct Kept {
    /// By batch, with the time of the last use.
    fronts: BTreeMap<u64, (Arc<Front>, u64)>,
    time: u64,
    bytes: u64,
}

/// The fronts that were used last.
#[derive(Debug, Default)]
pub(crate) struct Fronts {
    kept: Mutex<Kept>,
    budget: AtomicU64,
}

/// What part of the frames' budget fronts may take beside it.
const SHARE: u64 = 8;

impl Fronts {
    /// Beside frames of so many bytes.
    pub(crate) fn beside(frame_bytes: u64) -> Self {
        let fronts = Self::default();
        fronts.fit(frame_bytes);
        fronts
    }

    /// The frames have so many bytes from now on.
    pub(crate) fn fit(&self, frame_bytes: u64) {
        self.budget.store(frame_bytes / SHARE, Ordering::Relaxed);
        self.shrink(&mut self.kept.lock());
    }

    /// Memory that they take.
    pub(crate) fn bytes(&self) -> u64 {
        self.kept.lock().bytes
    }

    fn find(&self, object: &Object) -> Option<Arc<Front>> {
        let mut kept = self.kept.lock();
        kept.time += 1;
        let time = kept.time;
        let (front, used) = kept.fronts.get_mut(&object.batch().0)?;
        *used = time;
        Some(Arc::clone(front))
    }

    fn keep(&self, object: &Object, front: &Arc<Front>) {
        let mut kept = self.kept.lock();
        kept.time += 1;
        let entry = (Arc::clone(front), kept.time);
        kept.bytes += front.memory_bytes();
        if let Some((former, _)) = kept.fronts.insert(object.batch().0, entry) {
            kept.bytes -= former.memory_bytes();
        }
        self.shrink(&mut kept);
    }

    fn shrink(&self, kept: &mut Kept) {
        let budget = self.budget.load(Ordering::Relaxed);
        while kept.bytes > budget
            && let Some(oldest) =
                kept.fronts.iter().min_by_key(|(_, (_, used))| *used).map(|(batch, _)| *batch)
        {
            let (front, _) = kept.fronts.remove(&oldest).expect("it was just found");
            kept.bytes -= front.memory_bytes();
        }
    }

    async fn front(&self, object: &Object) -> Result<Arc<Front>> {
        if let Some(front) = self.find(object) {
            return Ok(front);
        }
        self.made(object, object.read(0..object.front_bytes()).await?)
    }

    fn made(&self, object: &Object, bytes: Vec<u8>) -> Result<Arc<Front>> {
        let front = Arc::new(Front::parse(bytes).map_err(|what| object.broken(0, what))?);
        self.keep(object, &front);
        Ok(front)
    }

    /// Replaces places in objects by the records that stand there.
    ///
    /// # Errors
    /// A page cannot be read, or makes no sense.
    pub(crate) async fn resolve(&self, found: &mut [Found]) -> Result<()> {
        for found in found.iter_mut().filter(|found| found.object.is_some()) {
            self.resolve_group(vec![found]).await?;
        }
        Ok(())
    }

    /// The same, if it needs no read of the device. `false`: it does.
    ///
    /// # Errors
    /// A page makes no sense.
    pub(crate) fn resolve_now(&self, found: &mut [Found]) -> Result<bool> {
        for found in found {
            let Some(object) = found.object.take() else { continue };
            let position = position_of(&object, &found.record)?;
            let front = match self.find(&object) {
                Some(front) => front,
                None => match object.read_now(0..object.front_bytes())? {
                    Some(bytes) => self.made(&object, bytes)?,
                    None => return Ok(false),
                },
            };
            let place = front.group(position).ok_or_else(|| no_row(&object, 0))?;
            let Some(group) = object.read_now(place.clone())? else { return Ok(false) };
            let mut row = front.row(&group, position).ok_or_else(|| no_row(&object, place.start))?;
            if let Some(hidden) = front.hidden(position) {
                let Some(hidden) = object.read_now(hidden)? else { return Ok(false) };
                row.extend_from_slice(&hidden);
            }
            found.record = row;
        }
        Ok(true)
    }

    /// [`Fronts::resolve`] for many entries: groups that several need are read once, [`TOGETHER`] of them at the same time.
    async fn resolve_all(&self, found: Vec<&mut Found>) -> Result<()> {
        let mut groups: BTreeMap<(u64, u64), Vec<&mut Found>> = BTreeMap::new();
        for found in found {
            let Some(object) = found.object.clone() else { continue };
            let position = position_of(&object, &found.record)?;
            let front = self.front(&object).await?;
            let place = front.group(position).ok_or_else(|| no_row(&object, 0))?;
            groups.entry((object.batch().0, place.start)).or_default().push(found);
        }
        let mut failure = None;
        let reads = groups.into_values().map(|of_group| self.resolve_group(of_group));
        together(TOGETHER, reads, |outcome| failure = failure.take().or(outcome.err())).await;
        failure.map_or(Ok(()), Err)
    }

    /// The same for entries whose rows stand in one group of one object.
    async fn resolve_group(&self, found: Vec<&mut Found>) -> Result<()> {
        let object = found[0].object.clone().expect("its entries stand in an object");
        let front = self.front(&object).await?;
        let position = position_of(&object, &found[0].record)?;
        let place = front.group(position).ok_or_else(|| no_row(&object, 0))?;
        let group = object.read(place.clone()).await?;
        for found in found {
            let position = position_of(&object, &found.record)?;
            let mut row = front.row(&group, position).ok_or_else(|| no_row(&object, place.start))?;
            if let Some(hidden) = front.hidden(position) {
                row.extend_from_slice(&object.read(hidden).await?);
            }
            (found.record, found.object) = (row, None);
        }
        Ok(())
    }
}

/// Groups that are read at the same time.
const TOGETHER: usize = 16;

fn position_of(object: &Object, record: &[u8]) -> Result<u16> {
    let position = record.try_into().map(u16::from_le_bytes);
    position.map_err(|_| object.broken(0, "an entry does not say where its row stands"))
}

fn no_row(object: &Object, at: u64) -> StoreError {
    object.broken(at, "there is no row where an entry says so")
}

/// A range read of a primary index: entries are read a window at a time where they stand in objects, and then their rows.
#[derive(Debug)]
pub(crate) struct RowScan {
    scan: Scan,
    fronts: Arc<Fronts>,
    ready: VecDeque<FoundKey>,
    window: usize,
    ended: bool,
}

/// Keys of a window, at most.
const WINDOW: usize = 256;

impl RowScan {
    pub(crate) fn new(scan: Scan, fronts: &Arc<Fronts>) -> Self {
        let (ready, window, ended) = (VecDeque::new(), 1, false);
        Self { scan, fronts: Arc::clone(fronts), ready, window, ended }
    }

    /// Reads the next window: it ends with the first key whose entries stand in no object.
    async fn fill(&mut self) -> Result<()> {
        let mut keys: Vec<FoundKey> = Vec::new();
        while keys.len() < self.window && !self.ended {
            let Some(key) = self.scan.next().await? else {
                self.ended = true;
                break;
            };
            let is_here = key.entries.iter().all(|entry| entry.object.is_none());
            keys.push(key);
            if is_here {
                break;
            }
        }
        self.fronts.resolve_all(keys.iter_mut().flat_map(|key| &mut key.entries).collect()).await?;
        self.window = (2 * self.window).min(WINDOW);
        self.ready.extend(keys);
        Ok(())
    }
}

impl ColdScan for RowScan {
    fn next(&mut self) -> Pending<'_, Option<FoundKey>> {
        Box::pin(async move {
            if self.ready.is_empty() && !self.ended {
                self.fill().await?;
            }
            Ok(self.ready.pop_front())
        })
    }
}

impl Fronts {
    /// The record of an entry that verification meets. Blocks.
    ///
    /// # Errors
    /// As [`Fronts::resolve`].
    pub(crate) fn record_of(&self, seen: &Seen<'_>) -> Result<Vec<u8>> {
        let mut found = [Found::new(seen.batch, true, seen.record.to_vec())];
        found[0].object = seen.object.map(Arc::clone);
        block_on(self.resolve(&mut found))?;
        let [found] = found;
        Ok(found.record)
    }
}
