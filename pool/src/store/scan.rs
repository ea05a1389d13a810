//! Range reads, in both directions: a lazy merge over all structures that hold a part of the range.
//!
//! ```text
//!   leaf by leaf:   waiting ─┐
//!                   blocks ──┤─► all entries of the next key ─► those that no removal names ─► caller
//!                   pieces ──┘   (pages are read ahead: 1, 2, 4, … up to 32 at once)
//! ```
//!
//! A scan sees the version that was current when it began, and of the block that takes batches those that were in it
//! then: all of a batch or nothing. It must not be kept for hours: the extents that it may still read are not free.
//!
//! Unlike a point read it looks at all structures, so that a removal always meets its entry here.

use std::collections::VecDeque;
use std::sync::Arc;

use thermocline_base::io::AlignedBytes;

use super::block::{self, LongRecord, PageCursor, Value};
use super::error::{PageReason, Result};
use super::inner::Inner;
use super::memory::{MemoryBlock, MemoryEntry, Segment, Waiting};
use super::piece::{Piece, Reading};
use super::types::{BatchId, Found, Kind};
use super::version::{Sealed, Version, WaitingBatch};
use crate::page::HEADER_BYTES;

/// Which way a scan goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From small keys to great ones.
    Forward,
    /// From great keys to small ones.
    Backward,
}

/// Pages that a scan reads ahead in one piece, at most.
const AHEAD_MAX: u32 = 32;

/// An entry that a source has in store.
#[derive(Clone, Debug)]
struct Entry {
    key: Vec<u8>,
    batch: u64,
    kind: Kind,
    record: Record,
}

#[derive(Clone, Debug)]
enum Record {
    Here(Vec<u8>),
    Long(LongRecord),
}

/// Part of a sorted list in memory.
#[derive(Debug)]
enum List {
    Segment { block: Arc<MemoryBlock>, segment: Segment, published: usize },
    Waiting(Arc<Waiting>),
}

impl List {
    fn entry(&self, at: usize) -> Option<MemoryEntry<'_>> {
        match self {
            Self::Segment { block, segment, published } => {
                let at = segment[at];
                MemoryBlock::is_published(at, *published).then(|| block.entry(at))
            }
            Self::Waiting(waiting) => {
                let entry = waiting.entry(waiting.sorted()[at]);
                // Removals of an unconfirmed batch have no effect yet.
                (entry.kind == Kind::Put).then_some(entry)
            }
        }
    }
}

/// What a scan reads from a piece.
#[derive(Debug)]
struct PieceSource {
    piece: Arc<Piece>,
    /// Pages of the piece that are left.
    pages: std::ops::Range<u32>,
    ahead: VecDeque<(Reading, u32, u32)>,
    chunk: Option<(AlignedBytes, u32, u32)>,
    next_ahead: u32,
}

#[derive(Debug)]
enum From {
    Memory { list: List, left: std::ops::Range<usize> },
    Piece(Box<PieceSource>),
}

/// A source, with its next entries in the scan's order.
#[derive(Debug)]
struct Source {
    from: From,
    waiting: bool,
    ready: VecDeque<Entry>,
}

/// A range read.
#[derive(Debug)]
pub struct Scan {
    version: Arc<Version>,
    published: usize,
    index: u64,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    direction: Direction,
    /// Leaves that are left.
    leaves: std::ops::Range<usize>,
    sources: Vec<Source>,
    /// The part of the range that lies in the leaf whose sources are open.
    part: (Vec<u8>, Option<Vec<u8>>),
}

/// A key with its live entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundKey {
    /// The key.
    pub key: Vec<u8>,
    /// Its entries, the newest batch first. At least one.
    pub entries: Vec<Found>,
}

impl Inner {
    pub(super) fn scan(&self, index: u64, low: &[u8], high: Option<&[u8]>, direction: Direction) -> Scan {
        let version = self.current();
        let first = version.leaves.find(index, low);
        let last = match high {
            Some(high) => version.leaves.find(index, high),
            None => version.leaves.list.partition_point(|leaf| leaf.lower.index <= index).max(1) - 1,
        };
        let empty = high.is_some_and(|high| high <= low);
        Scan {
            published: version.active.published(),
            index,
            low: low.to_vec(),
            high: high.map(<[u8]>::to_vec),
            direction,
            leaves: if empty { 0..0 } else { first..last.max(first) + 1 },
            sources: Vec::new(),
            part: (Vec::new(), None),
            version,
        }
    }

    /// May there be an entry in a range? Only memory is asked.
    pub(super) fn may_contain_range(&self, index: u64, low: &[u8], high: Option<&[u8]>) -> bool {
        let scan = self.scan(index, low, high, Direction::Forward);
        let version = &scan.version;
        let in_piece = |piece: &Arc<Piece>| !piece.fences.pages_between(index, low, high).is_empty();
        let in_leaves =
            version.leaves.list[scan.leaves.clone()].iter().any(|leaf| leaf.pieces().any(in_piece));
        let sealed = || {
            version
                .sealed
                .iter()
                .any(|sealed| matches!(sealed, Sealed::Piece { piece, .. } if in_piece(piece)))
        };
        let waiting = || {
            version
                .waiting
                .iter()
                .any(|waiting| matches!(waiting, WaitingBatch::Piece { piece, .. } if in_piece(piece)))
        };
        in_leaves
            || sealed()
            || waiting()
            || scan.memory(low, high).iter().any(|(_, _, left)| !left.is_empty())
    }
}

impl Scan {
    /// The next key that has live entries.
    ///
    /// # Errors
    /// When a page cannot be read. The scan ends there.
    pub async fn next(&mut self) -> Result<Option<FoundKey>> {
        loop {
            if self.sources.is_empty() {
                if self.leaves.is_empty() {
                    return Ok(None);
                }
                self.open_leaf();
            }
            let mut next: Option<Vec<u8>> = None;
            let mut at = 0;
            while at < self.sources.len() {
                let source = &mut self.sources[at];
                source.fill(self.index, &self.part, self.direction).await?;
                let Some(entry) = source.ready.front() else {
                    self.sources.swap_remove(at);
                    continue;
                };
                let better = next.as_ref().is_none_or(|key| match self.direction {
                    Direction::Forward => entry.key < *key,
                    Direction::Backward => entry.key > *key,
                });
                if better {
                    next = Some(entry.key.clone());
                }
                at += 1;
            }
            let Some(key) = next else { continue };
            let entries = self.take(&key).await?;
            if !entries.is_empty() {
                return Ok(Some(FoundKey { key, entries }));
            }
        }
    }

    /// Takes all entries of a key from all sources, and gives the live ones.
    async fn take(&mut self, key: &[u8]) -> Result<Vec<Found>> {
        let (mut found, mut removed) = (Vec::new(), Vec::new());
        for source in &mut self.sources {
            loop {
                source.fill(self.index, &self.part, self.direction).await?;
                let Some(entry) = source.ready.pop_front_if(|entry| entry.key == key) else { break };
                if entry.kind.is_removal() {
                    // Those of unconfirmed batches have no effect yet.
                    if !source.waiting {
                        removed.push(entry.batch);
                    }
                    continue;
                }
                let record = match (entry.record, &source.from) {
                    (Record::Here(record), _) => record,
                    (Record::Long(record), From::Piece(of)) => of.piece.read_long(self.index, record).await?,
                    (Record::Long(_), From::Memory { .. }) => unreachable!("memory holds whole records"),
                };
                found.push(Found { batch: BatchId(entry.batch), confirmed: !source.waiting, record });
            }
        }
        found.retain(|found| !found.confirmed || !removed.contains(&found.batch.0));
        found.sort_by_key(|found| (std::cmp::Reverse(found.batch), !found.confirmed));
        found.dedup_by_key(|found| found.batch);
        Ok(found)
    }

    /// Sorted lists in memory with their parts of the range; `true`: unconfirmed.
    fn memory(&self, low: &[u8], high: Option<&[u8]>) -> Vec<(List, bool, std::ops::Range<usize>)> {
        let index = self.index;
        let mut lists = Vec::new();
        let sealed = self.version.sealed.iter().filter_map(|sealed| match sealed {
            Sealed::Block { block, .. } => Some((block, block.published())),
            Sealed::Piece { .. } | Sealed::Load { .. } => None,
        });
        for (block, published) in sealed.chain([(&self.version.active, self.published)]) {
            for segment in block.segments(published) {
                let start = block.lower_bound(&segment, index, low);
                let end = match high {
                    Some(high) => block.lower_bound(&segment, index, high),
                    None => segment.partition_point(|at| at.index() <= index),
                };
                let list = List::Segment { block: Arc::clone(block), segment, published };
                lists.push((list, false, start..end.max(start)));
            }
        }
        for waiting in &self.version.waiting {
            if let WaitingBatch::Memory { waiting, .. } = waiting {
                let start = waiting.lower_bound(index, low);
                let end = match high {
                    Some(high) => waiting.lower_bound(index, high),
                    None => waiting.sorted().partition_point(|at| at.index() <= index),
                };
                lists.push((List::Waiting(Arc::clone(waiting)), true, start..end.max(start)));
            }
        }
        lists
    }

    /// Opens the sources of the next leaf. Its bounds cut those that go over several.
    fn open_leaf(&mut self) {
        let at = match self.direction {
            Direction::Forward => self.leaves.next(),
            Direction::Backward => self.leaves.next_back(),
        };
        let at = at.expect("a leaf is left");
        let leaves = &self.version.leaves;
        let leaf = &leaves.list[at];
        let lower = if leaf.lower.index == self.index { &leaf.lower.key[..] } else { &[] };
        let upper = leaves.upper(at).filter(|upper| upper.index == self.index).map(|upper| &upper.key[..]);
        let low = (&self.low[..]).max(lower).to_vec();
        let high = match (self.high.as_deref(), upper) {
            (Some(high), Some(upper)) => Some(high.min(upper).to_vec()),
            (high, upper) => high.or(upper).map(<[u8]>::to_vec),
        };
        if high.as_ref().is_some_and(|high| *high <= low) {
            return;
        }
        let mut sources = Vec::new();
        for (list, waiting, left) in self.memory(&low, high.as_deref()) {
            if !left.is_empty() {
                sources.push(Source { from: From::Memory { list, left }, waiting, ready: VecDeque::new() });
            }
        }
        let sealed = self.version.sealed.iter().filter_map(|sealed| match sealed {
            Sealed::Piece { piece, .. } => Some((piece, false)),
            Sealed::Block { .. } | Sealed::Load { .. } => None,
        });
        let waiting = self.version.waiting.iter().filter_map(|waiting| match waiting {
            WaitingBatch::Piece { piece, .. } => Some((piece, true)),
            WaitingBatch::Memory { .. } => None,
        });
        for (piece, waiting) in leaf.pieces().map(|piece| (piece, false)).chain(sealed).chain(waiting) {
            let fences = piece.fences.pages_between(self.index, &low, high.as_deref());
            if !fences.is_empty() {
                let pages = piece.fences.page(fences.start)..piece.fences.page(fences.end - 1) + 1;
                let of = PieceSource {
                    piece: Arc::clone(piece),
                    pages,
                    ahead: VecDeque::new(),
                    chunk: None,
                    next_ahead: 1,
                };
                sources.push(Source { from: From::Piece(Box::new(of)), waiting, ready: VecDeque::new() });
            }
        }
        self.sources = sources;
        self.part = (low, high);
    }
}

impl Source {
    /// Makes sure that the next entry is in store, if there is one.
    async fn fill(
        &mut self,
        index: u64,
        (low, high): &(Vec<u8>, Option<Vec<u8>>),
        direction: Direction,
    ) -> Result<()> {
        while self.ready.is_empty() {
            match &mut self.from {
                From::Memory { list, left } => {
                    let at = match direction {
                        Direction::Forward => left.next(),
                        Direction::Backward => left.next_back(),
                    };
                    let Some(at) = at else { return Ok(()) };
                    if let Some(entry) = list.entry(at) {
                        self.ready.push_back(Entry {
                            key: entry.key.to_vec(),
                            batch: entry.batch,
                            kind: entry.kind,
                            record: Record::Here(entry.value.to_vec()),
                        });
                    }
                }
                From::Piece(of) => {
                    let mut entries = Vec::new();
                    if !of.next_page(index, direction, &mut entries).await? {
                        return Ok(());
                    }
                    entries.retain(|entry| {
                        entry.key >= *low && high.as_ref().is_none_or(|high| entry.key < *high)
                    });
                    if direction == Direction::Backward {
                        entries.reverse();
                    }
                    self.ready.extend(entries);
                }
            }
        }
        Ok(())
    }
}

impl PieceSource {
    /// Reads the entries of the next page. `false`: there is none.
    async fn next_page(
        &mut self,
        index: u64,
        direction: Direction,
        entries: &mut Vec<Entry>,
    ) -> Result<bool> {
        let page = match direction {
            Direction::Forward => self.pages.next(),
            Direction::Backward => self.pages.next_back(),
        };
        let Some(page) = page else { return Ok(false) };
        let in_chunk = |chunk: &Option<(AlignedBytes, u32, u32)>| {
            chunk.as_ref().is_some_and(|(_, first, count)| (*first..*first + *count).contains(&page))
        };
        if !in_chunk(&self.chunk) {
            if self.ahead.is_empty() {
                self.read_ahead(page, direction);
            }
            let (reading, first, count) = self.ahead.pop_front().expect("it was just begun");
            let bytes = reading.await.map_err(|reason| self.piece.broken(index, first, reason))?;
            self.chunk = Some((bytes, first, count));
            // The next ones are under way while these are looked at.
            let next = match direction {
                Direction::Forward => first + count,
                Direction::Backward => first.wrapping_sub(1),
            };
            if self.pages.contains(&next) {
                self.read_ahead(next, direction);
            }
        }
        let (bytes, first, _) = self.chunk.as_ref().expect("it was just read");
        let page_bytes = self.piece.files().page_bytes();
        let at = (page - first) as usize * page_bytes;
        let (kind, payload) = self.piece.check(index, page, &bytes[at..at + page_bytes])?;
        if kind != block::DATA {
            return Ok(true);
        }
        debug_assert_eq!(payload.len(), page_bytes - HEADER_BYTES);
        let nonsense = |what| self.piece.broken(index, page, PageReason::Contents(what));
        let mut cursor = PageCursor::new(payload).ok_or_else(|| nonsense("its header makes no sense"))?;
        while let Some(entry) = cursor.next(payload).map_err(nonsense)? {
            entries.push(Entry {
                key: [cursor.prefix(payload), entry.suffix].concat(),
                batch: entry.batch,
                kind: entry.kind,
                record: match entry.value {
                    Value::Inline(bytes) => Record::Here(bytes.to_vec()),
                    Value::Long(record) => Record::Long(record),
                },
            });
        }
        Ok(true)
    }

    /// Begins to read from `page` on, in the scan's direction.
    fn read_ahead(&mut self, page: u32, direction: Direction) {
        let wanted = self.next_ahead;
        self.next_ahead = (wanted * 2).min(AHEAD_MAX);
        let (first, count) = match direction {
            Direction::Forward => (page, wanted.min(self.pages.end.max(page + 1) - page)),
            Direction::Backward => {
                let first = (page + 1).saturating_sub(wanted).max(self.pages.start.min(page));
                (first, page + 1 - first)
            }
        };
        // If a run of extents ends within, the page that is wanted comes first.
        let whole = direction == Direction::Forward || self.piece.meta.locate(first).1 >= u64::from(count);
        let (first, count) = if whole { (first, count) } else { (page, 1) };
        let (reading, count) = self.piece.start_read(first, count);
        self.ahead.push_back((reading, first, count));
    }
}
