//! The tail of a piece: what leads to its records. Written behind them, loaded when the store is opened, and made again
//! from the records when it cannot be read, so a damaged page there costs time and no row.
//!
//! ```text
//!   fences (see `fence`) · filter (see `filter`) · prints of a young piece (see `screen`)
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::mutation::{self, Rule};

use super::block::{self, PageCursor, Value};
use super::codec::Reader;
use super::error::{PageReason, Result, StoreError};
use super::fence::{Fences, FencesBuilder};
use super::filter::{Filter, Scratch, hash_of};
use super::held::Held;
use super::piece::{Files, IndexCounts, PieceMeta, check, read_pages};
use super::screen;
use super::types::IndexId;
use crate::device::{ReadReason, Wanted};
use crate::page;

/// The parts of a piece that memory holds.
#[derive(Debug)]
pub(super) struct Tail {
    pub(super) fences: Fences,
    pub(super) filter: Filter,
    /// The prints that screens need of its keys, if it is young.
    pub(super) prints: Vec<u32>,
}

impl Tail {
    /// Of a piece without entries.
    pub(super) fn none() -> Self {
        Self { fences: FencesBuilder::default().finish(), filter: Filter::never(), prints: Vec::new() }
    }

    /// Of a piece whose keys have these hashes, which may repeat and are reordered.
    pub(super) fn build(fences: Fences, hashes: &mut Vec<u64>, young: bool, scratch: &mut Scratch) -> Self {
        if mutation::off(Rule::FilterOfAllEntries) {
            hashes.pop();
        }
        let filter = Filter::build(hashes, young, scratch);
        let prints = hashes.iter().filter(|_| young).copied().map(screen::print_of).collect();
        Self { fences, filter, prints }
    }

    pub(super) fn encode(&self, young: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.fences.encode(&mut bytes);
        self.filter.encode(&mut bytes);
        if young {
            screen::encode(&self.prints, &mut bytes);
        }
        bytes
    }

    /// Loads the tail of a piece.
    ///
    /// # Errors
    /// [`StoreError::Tail`] when it cannot be read.
    pub(super) fn load(files: &Arc<Files>, meta: &PieceMeta, reason: ReadReason) -> Result<Self> {
        let wanted = Wanted::of(meta.version, reason);
        let broken = |number, reason| StoreError::Tail { number, reason };
        let mut bytes = Vec::with_capacity(meta.tail_bytes as usize);
        let mut page = meta.pages;
        let end = meta.pages + meta.tail_pages;
        while page < end {
            let (number, together) = meta.locate(page);
            let count = together.min(u64::from(end - page)).min(files.chunk_pages()) as u32;
            let read = read_pages(files, number, count, wanted).wait();
            let read = read.map_err(|reason| broken(number, reason))?;
            for (at, bytes_of_page) in read.chunks_exact(files.page_bytes()).enumerate() {
                let number = number + at as u64;
                let payload = check(files, bytes_of_page, number, meta.version, block::TAIL);
                bytes.extend_from_slice(payload.map_err(|reason| broken(number, reason))?);
            }
            page += count;
        }
        Self::decode(&bytes, meta).ok_or_else(|| {
            broken(
                meta.locate(meta.pages).0,
                PageReason::Contents("the fences and filter in it make no sense"),
            )
        })
    }

    fn decode(bytes: &[u8], meta: &PieceMeta) -> Option<Self> {
        let mut reader = Reader::new(bytes.get(..meta.tail_bytes as usize)?);
        let fences = Fences::decode(&mut reader)?;
        let filter = Filter::decode(&mut reader)?;
        let prints = if reader.is_at_end() { Vec::new() } else { screen::decode(&mut reader)? };
        let within = fences.len() == 0 || fences.page(fences.len() - 1) < meta.pages;
        (reader.is_at_end() && within).then_some(Self { fences, filter, prints })
    }

    /// Makes the tail of a piece again from its records. Reads all of its pages.
    ///
    /// # Errors
    /// [`StoreError::Page`] when a page of records cannot be read either, or they are not those that the manifest counts.
    pub(super) fn remake(
        files: &Arc<Files>,
        meta: &PieceMeta,
        young: bool,
        scratch: &mut Scratch,
    ) -> Result<Self> {
        let mut remaking = Remaking::new(files, meta);
        let mut page = 0;
        while page < meta.pages {
            let (number, together) = meta.locate(page);
            let count = together.min(u64::from(meta.pages - page)).min(files.chunk_pages()) as u32;
            let wanted = Wanted::of(meta.version, ReadReason::Merge);
            let read = read_pages(files, number, count, wanted).wait();
            let read = read.map_err(|reason| remaking.broken(number, reason))?;
            for (at, bytes) in read.chunks_exact(files.page_bytes()).enumerate() {
                remaking.page(page + at as u32, number + at as u64, bytes)?;
            }
            page += count;
            remaking.held.set(remaking.memory_bytes() + read.len());
        }
        let found: Vec<&IndexCounts> = remaking.counts.values().collect();
        let as_counted = found.len() == meta.counts.len()
            && found.iter().zip(&meta.counts).all(|(found, said)| {
                (found.index, found.records, found.removals, found.bytes)
                    == (said.index, said.records, said.removals, said.bytes)
            });
        if !as_counted {
            let what = "the manifest counts other entries than there are";
            return Err(remaking.broken(meta.locate(0).0, PageReason::Contents(what)));
        }
        let fences = std::mem::take(&mut remaking.fences).finish();
        Ok(Self::build(fences, &mut remaking.hashes, young, scratch))
    }
}

/// A tail that is being made from records.
struct Remaking<'a> {
    files: &'a Files,
    meta: &'a PieceMeta,
    fences: FencesBuilder,
    hashes: Vec<u64>,
    counts: BTreeMap<u64, IndexCounts>,
    /// Index of the page before.
    index: u64,
    key: Vec<u8>,
    last_key: Vec<u8>,
    held: Held,
}

impl<'a> Remaking<'a> {
    fn new(files: &'a Files, meta: &'a PieceMeta) -> Self {
        Self {
            files,
            meta,
            fences: FencesBuilder::default(),
            hashes: Vec::new(),
            counts: BTreeMap::new(),
            index: meta.counts.first().map_or(0, |counts| counts.index),
            key: Vec::new(),
            last_key: Vec::new(),
            held: Held::new(&files.work_bytes),
        }
    }

    fn memory_bytes(&self) -> usize {
        self.hashes.capacity() * size_of::<u64>() + self.fences.memory_bytes()
    }

    fn broken(&self, number: u64, reason: PageReason) -> StoreError {
        StoreError::Page { index: IndexId::from_u64(self.index), number, keys: None, reason }
    }

    /// Takes in the piece's next page, which has this number in the file.
    fn page(&mut self, page: u32, number: u64, bytes: &[u8]) -> Result<()> {
        let open = page::open(bytes, self.files.device.seal(), number, Some(self.meta.version))
            .map_err(|error| self.broken(number, PageReason::Bytes(error)))?;
        let nonsense = |of: &Self, what| of.broken(number, PageReason::Contents(what));
        if open.kind == block::LONG {
            return Ok(());
        }
        if open.kind != block::DATA {
            return Err(nonsense(self, "it is of another kind"));
        }
        let payload = open.payload;
        let mut cursor =
            PageCursor::new(payload).ok_or_else(|| nonsense(self, "its header makes no sense"))?;
        let index = cursor.index;
        let mut first_key: Option<Vec<u8>> = None;
        let same_index = self.index == index && !self.hashes.is_empty();
        self.index = index;
        let prefix = cursor.prefix(payload);
        while let Some(entry) = cursor.next(payload).map_err(|what| nonsense(self, what))? {
            self.key.clear();
            self.key.extend_from_slice(prefix);
            self.key.extend_from_slice(entry.suffix);
            let counts = self.counts.entry(index).or_insert(IndexCounts { index, ..IndexCounts::default() });
            if entry.kind.is_removal() {
                counts.removals += 1;
            } else {
                let record = match entry.value {
                    Value::Inline(bytes) => bytes.len(),
                    Value::Long(record) => record.bytes as usize,
                };
                counts.records += 1;
                counts.bytes += (self.key.len() + record) as u64;
            }
            let follows = same_index || first_key.is_some();
            if follows && self.key < self.last_key {
                return Err(nonsense(self, "its entries are not in order"));
            }
            if !follows || self.key != self.last_key {
                self.hashes.push(hash_of(index, &self.key));
            }
            first_key.get_or_insert_with(|| self.key.clone());
            std::mem::swap(&mut self.key, &mut self.last_key);
        }
        let first_key = first_key.ok_or_else(|| nonsense(self, "it has no entries"))?;
        self.fences.add(index, page, &first_key, &self.last_key);
        Ok(())
    }
}
