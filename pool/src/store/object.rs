//! Objects: bytes that the entries of one batch share, such as the block of a frozen chunk, whose rows left memory together.
//!
//! ```text
//!   entry of the object's index    key → where in the object (bytes of its owner's; short)
//!   object                         pages of a piece of its own, without entries, fences or filter
//! ```
//!
//! The bytes are written once, past the journal, and stay where they are: merges move entries, which are short. The store does
//! not look at them; a reader finds an entry, and with it the object of its batch ([`Found::object`](super::Found)), of which
//! it reads a range.
//!
//! Rules:
//! - *All or nothing.* Object and entries are durable before one edit of the manifest names both, the batch unconfirmed. From
//!   there on it goes the way of a batch that was written as a piece of its own.
//! - *An object outlives its entries.* The manifest has the number of entries that are left; the edit of a merge that drops some
//!   says how many are. With the last one the object goes, in the same edit (`ObjectsOutliveEntries`).
//! - *A reader's version has the objects of all entries that it has.* Their extents are free when the last such reader is gone.
//! - Only pieces have such entries: they were never in the journal, or in memory.

use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::sync::Arc;
use std::task::Poll;

use super::block::{self, LongRecord};
use super::codec;
use super::error::{PageReason, Result, StoreError};
use super::filter::{Scratch, hash_of};
use super::inner::Inner;
use super::manifest::{Change, ManifestState};
use super::merge::{Kept, Merged};
use super::piece::{Files, Piece, PieceBuilder, PieceMeta, PieceName};
use super::promise::Promise;
use super::types::{BatchId, IndexId, Kind, MAX_KEY_BYTES, MAX_RECORD_BYTES};
use super::version::{Version, WaitingBatch};
use super::writer::Writer;
use crate::device::{PageHeat, ReadReason};
use crate::mutation::{self, Rule};
use crate::page::HEADER_BYTES;

/// The longest object.
pub const MAX_OBJECT_BYTES: usize = 64 << 20;

/// The entries of one index of a batch with an object, ascending by key.
#[derive(Clone, Debug, Default)]
pub struct ObjectEntries {
    /// The index.
    pub index: IndexId,
    /// The keys, one behind the other.
    pub keys: Vec<u8>,
    /// Where each key ends.
    pub ends: Vec<u32>,
    /// The records, one behind the other; each has so many bytes as the others.
    pub records: Vec<u8>,
}

impl ObjectEntries {
    /// The number of handles.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Are there none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    fn record_bytes(&self) -> usize {
        self.records.len() / self.len().max(1)
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let record = self.record_bytes();
        let mut begin = 0;
        self.ends.iter().enumerate().map(move |(at, &end)| {
            let key = &self.keys[begin..end as usize];
            begin = end as usize;
            (key, &self.records[at * record..(at + 1) * record])
        })
    }
}

/// A batch whose records stand in one object.
#[derive(Clone, Debug)]
pub struct ObjectBatch {
    /// Its id.
    pub id: BatchId,
    /// The index whose entries say where in the object they stand.
    pub index: IndexId,
    /// The object.
    pub bytes: Vec<u8>,
    /// Number of its first bytes that a reader needs before all others; kept for its owner.
    pub front_bytes: u32,
    /// Entries, ascending by index; those of indexes other than `index` have nothing to do with the object.
    pub entries: Vec<ObjectEntries>,
}

impl ObjectBatch {
    fn memory_bytes(&self) -> usize {
        let entries = self.entries.iter().map(|of| of.keys.len() + of.records.len() + 4 * of.ends.len());
        self.bytes.len() + entries.sum::<usize>()
    }

    fn own_entries(&self) -> u64 {
        self.entries.iter().filter(|of| of.index == self.index).map(|of| of.len() as u64).sum()
    }

    /// Is it one that can be written?
    fn check(&self) -> Result<()> {
        if self.bytes.len() > MAX_OBJECT_BYTES {
            let (bytes, max_bytes) = (self.bytes.len(), MAX_OBJECT_BYTES);
            return Err(StoreError::BatchTooLong { bytes, max_bytes });
        }
        let mut before: Option<IndexId> = None;
        for of in &self.entries {
            let mut last: Option<&[u8]> = None;
            for (entry, (key, record)) in of.iter().enumerate() {
                let ascends = last.is_none_or(|last| last < key)
                    && (entry > 0 || before.is_none_or(|before| before.as_u64() < of.index.as_u64()));
                if !ascends {
                    return Err(StoreError::NotSorted { index: of.index, entry: entry as u64 });
                }
                if key.len() > MAX_KEY_BYTES {
                    return Err(StoreError::KeyTooLong { bytes: key.len(), max_bytes: MAX_KEY_BYTES });
                }
                if record.len() > MAX_RECORD_BYTES {
                    let (bytes, max_bytes) = (record.len(), MAX_RECORD_BYTES);
                    return Err(StoreError::RecordTooLong { bytes, max_bytes });
                }
                last = Some(key);
            }
            before = Some(of.index);
        }
        Ok(())
    }
}

/// Ranges of up to so many pages go through the frames: they are asked for again for their neighbours' sake.
const FRAMES_MAX: u32 = 32;

/// The manifest's entry of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ObjectMeta {
    pub(super) batch: u64,
    pub(super) index: u64,
    /// The piece with its pages.
    pub(super) piece: u64,
    pub(super) bytes: u64,
    pub(super) front_bytes: u64,
    /// Entries that are left.
    pub(super) live: u64,
}

impl ObjectMeta {
    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        for number in [self.batch, self.index, self.piece, self.bytes, self.front_bytes, self.live] {
            codec::put_varint(bytes, number);
        }
    }

    pub(super) fn decode(reader: &mut codec::Reader<'_>) -> Option<Self> {
        let mut next = || reader.varint();
        Some(Self {
            batch: next()?,
            index: next()?,
            piece: next()?,
            bytes: next()?,
            front_bytes: next()?,
            live: next()?,
        })
    }
}

/// An object, as long as a reader may read it.
#[derive(Debug)]
pub struct Object {
    meta: ObjectMeta,
    pub(super) piece: Arc<Piece>,
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.piece.meta.version == other.piece.meta.version
    }
}

impl Eq for Object {}

/// The objects of a version, by their batches.
pub(super) type Objects = Arc<BTreeMap<u64, Arc<Object>>>;

impl Object {
    pub(super) fn new(meta: ObjectMeta, piece: Arc<Piece>) -> Self {
        Self { meta, piece }
    }

    /// Its batch.
    #[must_use]
    pub fn batch(&self) -> BatchId {
        BatchId(self.meta.batch)
    }

    /// Its length in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an object without bytes is of no use")]
    pub fn len(&self) -> u64 {
        self.meta.bytes
    }

    /// Number of the first bytes that are needed before all others, as its owner has said.
    #[must_use]
    pub fn front_bytes(&self) -> u64 {
        self.meta.front_bytes
    }

    /// The error that says what is wrong with what stands at a place of it.
    #[must_use]
    pub fn broken(&self, at: u64, what: &'static str) -> StoreError {
        let page = at.min(self.meta.bytes.saturating_sub(1)) / self.piece.files().payload_bytes() as u64;
        self.piece.broken(self.meta.index, page as u32, PageReason::Contents(what))
    }

    /// The index whose entries stand in it.
    pub(super) fn index(&self) -> u64 {
        self.meta.index
    }

    /// Do entries of this index stand in it?
    pub(super) fn is_of(&self, index: u64) -> bool {
        self.meta.index == index
    }

    /// Reads all of it from the page file.
    pub(super) async fn verify(&self) -> Result<()> {
        let record = LongRecord { page: 0, bytes: self.meta.bytes as u32 };
        self.piece.read_long(self.meta.index, record, ReadReason::Verify).await.map(drop)
    }

    /// The page with the first byte of a range, where in it that is, and how many bytes there are from the page's begin on.
    fn place(&self, range: &Range<u64>) -> (usize, LongRecord) {
        let payload = self.piece.files().payload_bytes() as u64;
        let page = range.start / payload;
        let skipped = range.start - page * payload;
        let bytes = range.end.min(self.meta.bytes).saturating_sub(range.start) + skipped;
        (skipped as usize, LongRecord { page: page as u32, bytes: bytes as u32 })
    }

    /// Reads a range of its bytes, as far as they are there: a few pages through the frames, more past them.
    ///
    /// # Errors
    /// [`StoreError::Page`]: a page cannot be read.
    pub async fn read(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let (skipped, record) = self.place(&range);
        let mut bytes = self.piece.look_long_within(FRAMES_MAX, self.meta.index, record).await?;
        bytes.drain(..skipped.min(bytes.len()));
        Ok(bytes)
    }

    /// The same, if all of it is in frames.
    ///
    /// # Errors
    /// [`StoreError::Page`]: a page makes no sense.
    pub fn read_now(&self, range: Range<u64>) -> Result<Option<Vec<u8>>> {
        let (skipped, record) = self.place(&range);
        let payload = self.piece.files().payload_bytes();
        let mut bytes = Vec::with_capacity(record.bytes as usize);
        let mut page = record.page;
        while bytes.len() < record.bytes as usize {
            let take = |part: &[u8]| {
                bytes.extend_from_slice(&part[..payload.min(record.bytes as usize - bytes.len())]);
                Ok(())
            };
            if page >= self.piece.meta.pages
                || self.piece.look_now(self.meta.index, page, block::LONG, take)?.is_none()
            {
                return Ok(None);
            }
            page += 1;
        }
        bytes.drain(..skipped.min(bytes.len()));
        Ok(Some(bytes))
    }
}

impl Piece {
    /// Writes the pages of an object. They are on their way to the device, not durable.
    fn of_object(files: &Arc<Files>, name: PieceName, bytes: &[u8]) -> Result<Self> {
        let payload = files.payload_bytes();
        let mut writer = Writer::new(Arc::clone(files), name.version, bytes.len().div_ceil(payload) as u64);
        for part in bytes.chunks(payload) {
            writer.page(block::LONG, PageHeat::default(), |page| {
                page[HEADER_BYTES..HEADER_BYTES + part.len()].copy_from_slice(part);
                page[HEADER_BYTES + part.len()..].fill(0);
            })?;
        }
        let (runs, pages) = writer.finish()?;
        let PieceName { id, version } = name;
        let (from, to, tail_pages, tail_bytes) = (0, 0, 0, 0);
        let meta =
            PieceMeta { id, version, from, to, runs, pages, tail_pages, tail_bytes, counts: Vec::new() };
        Ok(Self::without_entries(files, meta))
    }
}

/// A batch with an object on its way.
#[derive(Debug)]
pub(super) struct ObjectWrite {
    batch: ObjectBatch,
    done: Promise<Result<()>>,
}

/// Entries of objects that a merge has dropped, by their batches.
#[derive(Debug, Default)]
pub(super) struct Dead {
    objects: Objects,
    counts: BTreeMap<u64, u64>,
}

impl Dead {
    /// Of these objects.
    pub(super) fn among(objects: &Objects) -> Self {
        Self { objects: Arc::clone(objects), counts: BTreeMap::new() }
    }

    /// An entry goes.
    #[inline]
    pub(super) fn note(&mut self, index: u64, batch: u64, kind: Kind) {
        if !self.objects.is_empty() && !kind.is_removal() {
            self.count(index, batch);
        }
    }

    fn count(&mut self, index: u64, batch: u64) {
        if self.objects.get(&batch).is_some_and(|object| object.is_of(index)) {
            *self.counts.entry(batch).or_default() += 1;
        }
    }

    /// The fate of the objects: changes of the manifest, and the batches whose objects go.
    pub(super) fn settle(&self, state: &ManifestState, changes: &mut Vec<Change>) -> Vec<u64> {
        let mut gone = Vec::new();
        for (&batch, &dead) in &self.counts {
            // A batch that was discarded took its object with it.
            let Some(object) = state.objects.get(&batch) else { continue };
            let live = object.live.checked_sub(dead).expect("no more entries go than there were");
            if live > 0 && mutation::on(Rule::ObjectsOutliveEntries) {
                changes.push(Change::SetLive { batch, live });
            } else {
                changes.push(Change::RemoveObject(batch));
                changes.push(Change::RemovePiece(object.piece));
                gone.push(batch);
            }
        }
        gone
    }
}

/// Takes objects out of a version. They are given up when that is published.
pub(super) fn without(version: &mut Version, batches: &[u64]) -> Vec<Arc<Piece>> {
    if batches.is_empty() {
        return Vec::new();
    }
    let objects = Arc::make_mut(&mut version.objects);
    batches.iter().filter_map(|batch| objects.remove(batch)).map(|object| Arc::clone(&object.piece)).collect()
}

impl Inner {
    /// Writes a batch with its object.
    pub(super) fn write_object(
        self: &Arc<Self>,
        batch: ObjectBatch,
    ) -> impl Future<Output = Result<()>> + Send + 'static + use<> {
        let inner = Arc::clone(self);
        let mut batch = Some(batch);
        async move {
            batch.as_ref().expect("it is there").check()?;
            let done = poll_fn(|cx| {
                if let Err(error) = inner.writable() {
                    return Poll::Ready(Err(error));
                }
                if inner.is_crowded() {
                    inner.crowd.lock().push(cx.waker().clone());
                    inner.try_again();
                    // It may have become less crowded in between.
                    if inner.is_crowded() {
                        return Poll::Pending;
                    }
                }
                Poll::Ready(inner.enqueue_object(batch.take().expect("it is taken once")))
            })
            .await?;
            done.wait().await
        }
    }

    fn enqueue_object(&self, batch: ObjectBatch) -> Result<Promise<Result<()>>> {
        let id = batch.id;
        let mut queue = self.queue.lock();
        if queue.closed {
            return Err(StoreError::Closed);
        }
        let waits = || self.current().waiting.iter().any(|waiting| waiting.id() == id);
        if queue.in_flight.contains_key(&id) || waits() {
            return Err(StoreError::BatchExists(id));
        }
        queue.in_flight.entry(id).or_insert_with(|| (0, Promise::new())).0 += 1;
        let bytes = batch.memory_bytes() as u64;
        self.files.work_bytes.fetch_add(bytes, thermocline_base::sync::Ordering::Relaxed);
        let done = Promise::new();
        queue.objects.push_back(ObjectWrite { batch, done: done.clone() });
        drop(queue);
        self.work_signal.ring();
        Ok(done)
    }

    /// The batch with an object that came first.
    pub(super) fn next_object(&self) -> Option<ObjectWrite> {
        self.queue.lock().objects.pop_front()
    }

    /// Refuses the batches that wait to be written: no thread will write them.
    pub(super) fn refuse_objects(&self, error: &StoreError) {
        let waiting: VecDeque<ObjectWrite> = std::mem::take(&mut self.queue.lock().objects);
        for write in waiting {
            self.answer_object(write, Err(error.clone()));
        }
    }

    /// Writes one, and answers.
    pub(super) fn do_write_object(&self, write: ObjectWrite, scratch: &mut Scratch) {
        let written = self.try_write_object(&write.batch, scratch);
        if let Err(error) = &written
            && !error.is_full()
        {
            tracing::error!(%error, "a batch was not written");
        }
        self.answer_object(write, written);
    }

    fn answer_object(&self, write: ObjectWrite, answer: Result<()>) {
        let ObjectWrite { batch, done } = write;
        let bytes = batch.memory_bytes() as u64;
        self.files.work_bytes.fetch_sub(bytes, thermocline_base::sync::Ordering::Relaxed);
        let quiet = self.landed(batch.id);
        done.keep(answer);
        if let Some(promise) = quiet {
            promise.keep(());
        }
    }

    fn try_write_object(&self, batch: &ObjectBatch, scratch: &mut Scratch) -> Result<()> {
        self.writable()?;
        let object = Arc::new(Piece::of_object(&self.files, self.piece_name(), &batch.bytes)?);
        let entries = match self.write_entries(batch, scratch) {
            Ok(entries) => Arc::new(entries),
            Err(error) => {
                object.give_up();
                return Err(error);
            }
        };
        let meta = ObjectMeta {
            batch: batch.id.0,
            index: batch.index.as_u64(),
            piece: object.meta.id,
            bytes: batch.bytes.len() as u64,
            front_bytes: batch.front_bytes.into(),
            live: batch.own_entries(),
        };
        let changes = vec![
            Change::AddPiece(object.meta.clone()),
            Change::AddPiece(entries.meta.clone()),
            Change::AddObject(meta.clone()),
            Change::AddWaiting { batch: batch.id.0, piece: entries.meta.id },
        ];
        let mut manifest = self.manifest.lock();
        let new = vec![Arc::clone(&object), Arc::clone(&entries)];
        self.change_locked(&mut manifest, new, changes, Vec::new(), |version| {
            Arc::make_mut(&mut version.objects).insert(batch.id.0, Arc::new(Object::new(meta, object)));
            version.waiting.push(WaitingBatch::Piece { id: batch.id, piece: entries });
            Ok(Vec::new())
        })
    }

    fn write_entries(&self, batch: &ObjectBatch, scratch: &mut Scratch) -> Result<Piece> {
        let bytes = batch.entries.iter().map(|of| of.keys.len() + of.records.len() + 8 * of.len());
        let mut builder =
            PieceBuilder::new(&self.files, self.piece_name(), true, bytes.sum::<usize>() as u64);
        for of in &batch.entries {
            let index = of.index.as_u64();
            for (key, record) in of.iter() {
                let kept = builder.add(Merged {
                    index,
                    key,
                    head: codec::head_of(key),
                    hash: hash_of(index, key),
                    batch: batch.id.0,
                    kind: Kind::Put,
                    value: record,
                    heat: PageHeat::default(),
                })?;
                debug_assert_eq!(kept, Kept::Yes, "a builder leaves nothing out");
            }
        }
        builder.finish(0, 0, scratch)
    }
}
