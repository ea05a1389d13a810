//! Merging sorted sources of entries into one, with removals meeting their entries.
//!
//! Rules:
//! - Sources are walked in the order (index, key, batch descending, removals first), so a removal comes right before the
//!   entry that it removes. Both vanish then, and nowhere else, but at the bottom: a merge that takes in everything older
//!   there is drops the removals that met nothing (their entries went in an earlier life: a repeated removal).
//! - A removal of a batch was confirmed after that batch, and merges take in a contiguous stretch of positions, so an
//!   entry never lies in a younger structure than its removal.
//! - Sources are checked as they are read: every page's checksum, number and version.

use std::cmp::Ordering as Order;
use std::sync::Arc;

use thermocline_base::io::AlignedBytes;
use thermocline_base::multiplex::block_on;
use thermocline_base::mutation::{self, Rule};

use super::block::{self, PageCursor, Value};
use super::codec;
use super::error::{PageReason, Result};
use super::filter::hash_of;
use super::manifest::Bound;
use super::memory::{MemoryBlock, Segment, Waiting};
use super::piece::{Piece, Reading};
use super::types::Kind;
use crate::page::HEADER_BYTES;

/// Where the record of a stream's entry is.
#[derive(Debug)]
enum Held {
    /// In the chunk.
    Chunk { at: u32, len: u32 },
    /// Read on its own.
    Own(Vec<u8>),
}

/// The entries of a piece between two bounds, read in long stretches.
#[derive(Debug)]
struct PieceStream {
    piece: Arc<Piece>,
    from: Bound,
    to: Option<Bound>,
    /// The next page to be handed out, and the one behind the last.
    page: u32,
    end: u32,
    chunk: Option<AlignedBytes>,
    /// Pages of the piece that are in the chunk.
    chunk_first: u32,
    chunk_count: u32,
    ahead: Option<(Reading, u32)>,
    /// The page being walked over, and where its payload begins in the chunk.
    cursor: Option<(PageCursor, usize)>,
    skipping: bool,
    key: Vec<u8>,
    head: u64,
    /// The head of the key at which the stream ends.
    to_head: u64,
    batch: u64,
    kind: Kind,
    held: Held,
}

impl PieceStream {
    fn new(piece: Arc<Piece>, from: Bound, to: Option<Bound>) -> Self {
        let (mut start, mut end) = (None, 0);
        for fences in piece.fences.indexes() {
            let index = fences.index;
            let (low, high) = (
                if index == from.index { &*from.key } else { &[] },
                to.as_ref().filter(|to| to.index == index).map(|to| &*to.key),
            );
            if index < from.index || to.as_ref().is_some_and(|to| to.index < index) {
                continue;
            }
            let range = piece.fences.pages_between(index, low, high);
            if !range.is_empty() {
                start.get_or_insert(range.start);
                end = range.end;
            }
        }
        let to_head = to.as_ref().map_or(0, |to| codec::head_of(&to.key));
        let page = start.map_or(0, |fence| piece.fences.page(fence));
        let end = if start.is_some() { piece.fences.page(end - 1) + 1 } else { 0 };
        Self {
            piece,
            from,
            to,
            page,
            end,
            chunk: None,
            chunk_first: 0,
            chunk_count: 0,
            ahead: None,
            cursor: None,
            skipping: true,
            key: Vec::new(),
            head: 0,
            to_head,
            batch: 0,
            kind: Kind::Put,
            held: Held::Own(Vec::new()),
        }
    }

    fn read_ahead(&mut self, page: u32) {
        if page < self.end && self.ahead.is_none() {
            let count = (self.end - page).min(self.piece.files().chunk_pages() as u32);
            self.ahead = Some(self.piece.start_read(page, count));
        }
    }

    /// Makes `page` part of the chunk.
    fn fetch(&mut self) -> Result<()> {
        if self.chunk.is_some() && self.page < self.chunk_first + self.chunk_count {
            return Ok(());
        }
        self.read_ahead(self.page);
        let (reading, count) = self.ahead.take().expect("it was just begun");
        let chunk = reading.wait().map_err(|reason| self.piece.broken(self.owner(), self.page, reason))?;
        self.chunk = Some(chunk);
        (self.chunk_first, self.chunk_count) = (self.page, count);
        self.read_ahead(self.page + count);
        Ok(())
    }

    /// An index to name when a page cannot be read.
    fn owner(&self) -> u64 {
        let mut fences = self.piece.fences.indexes().iter().rev();
        let before = fences.find(|fences| self.piece.fences.page(fences.range().start) <= self.page);
        before.map_or(self.from.index, |fences| fences.index)
    }

    /// Goes to the next entry. `false`: there is none.
    fn advance(&mut self) -> Result<bool> {
        loop {
            let Some((cursor, start)) = &mut self.cursor else {
                if self.page >= self.end {
                    return Ok(false);
                }
                self.next_page()?;
                continue;
            };
            let page_bytes = self.piece.files().page_bytes();
            let start = *start;
            let chunk = self.chunk.as_ref().expect("a page of it is being walked over");
            let payload = &chunk[start..start - HEADER_BYTES + page_bytes];
            let (index, page) = (cursor.index, self.page - 1);
            let entry = match cursor.next(payload) {
                Ok(Some(entry)) => entry,
                Ok(None) => {
                    self.cursor = None;
                    continue;
                }
                Err(what) => return Err(self.piece.broken(index, page, PageReason::Contents(what))),
            };
            self.key.clear();
            self.key.extend_from_slice(cursor.prefix(payload));
            self.key.extend_from_slice(entry.suffix);
            if self.skipping {
                if (index, &*self.key) < (self.from.index, &*self.from.key) {
                    continue;
                }
                self.skipping = false;
            }
            self.head = codec::head_of(&self.key);
            if let Some(to) = &self.to
                && index == to.index
                && self.head >= self.to_head
                && *self.key >= *to.key
            {
                self.page = self.end;
                self.cursor = None;
                return Ok(false);
            }
            (self.batch, self.kind) = (entry.batch, entry.kind);
            self.held = match entry.value {
                Value::Inline(bytes) => {
                    let at = bytes.as_ptr() as usize - chunk.as_ptr() as usize;
                    Held::Chunk { at: at as u32, len: bytes.len() as u32 }
                }
                Value::Long(record) => Held::Own(block_on(self.piece.read_long(index, record))?),
            };
            return Ok(true);
        }
    }

    fn next_page(&mut self) -> Result<()> {
        self.fetch()?;
        let page_bytes = self.piece.files().page_bytes();
        let at = (self.page - self.chunk_first) as usize * page_bytes;
        let chunk = self.chunk.as_ref().expect("it was fetched");
        let (kind, payload) = self.piece.check(self.owner(), self.page, &chunk[at..at + page_bytes])?;
        if kind == block::DATA {
            let cursor = PageCursor::new(payload);
            let nonsense = PageReason::Contents("its header makes no sense");
            let cursor = cursor.ok_or_else(|| self.piece.broken(self.owner(), self.page, nonsense))?;
            self.cursor = Some((cursor, at + HEADER_BYTES));
        } else if kind != block::LONG {
            let reason = PageReason::Contents("it is of another kind");
            return Err(self.piece.broken(self.owner(), self.page, reason));
        }
        self.page += 1;
        Ok(())
    }

    fn index(&self) -> u64 {
        self.cursor.as_ref().expect("it stands on an entry").0.index
    }

    fn value(&self) -> &[u8] {
        match &self.held {
            Held::Own(bytes) => bytes,
            Held::Chunk { at, len } => {
                let chunk = self.chunk.as_ref().expect("the entry lies in it");
                &chunk[*at as usize..(*at + *len) as usize]
            }
        }
    }
}

/// A walk over the entries of a piece, without merging.
#[derive(Debug)]
pub(super) struct Walk(PieceStream);

impl Walk {
    /// Over the part between two bounds.
    pub(super) fn new(piece: &Arc<Piece>, from: &Bound, to: Option<&Bound>) -> Self {
        Self(PieceStream::new(Arc::clone(piece), from.clone(), to.cloned()))
    }

    /// Goes to the next entry. `false`: there is none.
    pub(super) fn advance(&mut self) -> Result<bool> {
        self.0.advance()
    }

    /// The page of the piece that the entry lies on.
    pub(super) fn page(&self) -> u32 {
        self.0.page.max(1) - 1
    }

    pub(super) fn current(&self) -> Current<'_> {
        let stream = &self.0;
        Current {
            index: stream.index(),
            key: &stream.key,
            hash: None,
            batch: stream.batch,
            kind: stream.kind,
            value: stream.value(),
        }
    }
}

/// The entries of one sorted segment of a block in memory.
#[derive(Debug)]
struct SegmentStream {
    block: Arc<MemoryBlock>,
    segment: Segment,
    next: usize,
}

/// The entries of an unconfirmed batch.
#[derive(Debug)]
struct WaitingStream {
    waiting: Arc<Waiting>,
    next: usize,
}

#[derive(Debug)]
enum Kinded {
    Piece(Box<PieceStream>),
    Segment(SegmentStream),
    Waiting(WaitingStream),
}

/// A source of a merge.
#[derive(Debug)]
pub(super) struct Source {
    stream: Kinded,
    /// Index and first bytes of the key it stands on; nothing at the end.
    head: Option<(u64, u64)>,
}

/// The entry that a merge stands on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Current<'a> {
    pub(super) index: u64,
    pub(super) key: &'a [u8],
    hash: Option<u64>,
    pub(super) batch: u64,
    pub(super) kind: Kind,
    pub(super) value: &'a [u8],
}

impl Current<'_> {
    fn hash(&self) -> u64 {
        self.hash.unwrap_or_else(|| hash_of(self.index, self.key))
    }
}

impl Source {
    /// The part of a piece between two bounds.
    pub(super) fn piece(piece: &Arc<Piece>, from: &Bound, to: Option<&Bound>) -> Self {
        let stream = PieceStream::new(Arc::clone(piece), from.clone(), to.cloned());
        Self { stream: Kinded::Piece(Box::new(stream)), head: None }
    }

    /// A segment of a block.
    pub(super) fn segment(block: &Arc<MemoryBlock>, segment: Segment) -> Self {
        let stream = SegmentStream { block: Arc::clone(block), segment, next: 0 };
        Self { stream: Kinded::Segment(stream), head: None }
    }

    /// A batch of its own.
    pub(super) fn waiting(waiting: &Arc<Waiting>) -> Self {
        let stream = WaitingStream { waiting: Arc::clone(waiting), next: 0 };
        Self { stream: Kinded::Waiting(stream), head: None }
    }

    fn advance(&mut self) -> Result<()> {
        self.head = match &mut self.stream {
            Kinded::Piece(stream) => {
                if stream.advance()? {
                    Some((stream.index(), stream.head))
                } else {
                    None
                }
            }
            Kinded::Segment(stream) => {
                stream.next += 1;
                stream.block.prefetch(&stream.segment, stream.next);
                stream.segment.get(stream.next - 1).map(|at| (at.index(), at.head()))
            }
            Kinded::Waiting(stream) => {
                stream.next += 1;
                stream.waiting.sorted().get(stream.next - 1).map(|at| (at.index(), at.head()))
            }
        };
        Ok(())
    }

    fn current(&self) -> Current<'_> {
        let entry = match &self.stream {
            Kinded::Piece(stream) => {
                return Current {
                    index: stream.index(),
                    key: &stream.key,
                    hash: None,
                    batch: stream.batch,
                    kind: stream.kind,
                    value: stream.value(),
                };
            }
            Kinded::Segment(stream) => stream.block.entry(stream.segment[stream.next - 1]),
            Kinded::Waiting(stream) => stream.waiting.entry(stream.waiting.sorted()[stream.next - 1]),
        };
        Current {
            index: entry.index,
            key: entry.key,
            hash: Some(entry.hash),
            batch: entry.batch,
            kind: entry.kind,
            value: entry.value,
        }
    }
}

/// What a merge gives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Merged<'a> {
    pub(super) index: u64,
    pub(super) key: &'a [u8],
    pub(super) hash: u64,
    pub(super) batch: u64,
    pub(super) kind: Kind,
    pub(super) value: &'a [u8],
}

/// A removal that waits for its entry to come by.
#[derive(Debug, Default)]
struct Removal {
    index: u64,
    key: Vec<u8>,
    hash: u64,
    batch: u64,
    kind: Option<Kind>,
    met: bool,
}

/// A merge.
#[derive(Debug)]
pub(super) struct Merge {
    sources: Vec<Source>,
    /// A tree of losers; the winner is in front.
    tree: Vec<u32>,
    bottom: bool,
    removal: Removal,
}

impl Merge {
    /// Of `sources`; `bottom`: nothing older than they are is there.
    pub(super) fn new(mut sources: Vec<Source>, bottom: bool) -> Result<Self> {
        for source in &mut sources {
            source.advance()?;
        }
        sources.retain(|source| source.head.is_some());
        let mut merge = Self { sources, tree: Vec::new(), bottom, removal: Removal::default() };
        merge.build();
        Ok(merge)
    }

    fn beats(&self, one: u32, two: u32) -> bool {
        let (first, second) = (&self.sources[one as usize], &self.sources[two as usize]);
        match (first.head, second.head) {
            (None, _) => false,
            (_, None) => true,
            (Some(a), Some(b)) => match a.cmp(&b) {
                Order::Less => true,
                Order::Greater => false,
                Order::Equal => {
                    let (a, b) = (first.current(), second.current());
                    a.key
                        .cmp(b.key)
                        .then_with(|| b.batch.cmp(&a.batch))
                        .then_with(|| a.kind.cmp(&b.kind))
                        .is_lt()
                }
            },
        }
    }

    fn build(&mut self) {
        let count = self.sources.len();
        self.tree = vec![u32::MAX; count.max(1)];
        for source in 0..count as u32 {
            self.play(source, true);
        }
    }

    /// Lets a source play its way up. While the tree is built it waits at the first empty place.
    fn play(&mut self, source: u32, building: bool) {
        let mut winner = source;
        let mut place = (source as usize + self.sources.len()) / 2;
        while place > 0 {
            let other = self.tree[place];
            if other == u32::MAX {
                if building {
                    self.tree[place] = winner;
                    return;
                }
            } else if self.beats(other, winner) {
                self.tree[place] = winner;
                winner = other;
            }
            place /= 2;
        }
        self.tree[0] = winner;
    }

    /// Gives all entries in order. `sink` takes each.
    pub(super) fn run(mut self, mut sink: impl FnMut(Merged<'_>) -> Result<()>) -> Result<()> {
        loop {
            let winner = self.tree[0];
            let Some(source) = self.sources.get(winner as usize).filter(|source| source.head.is_some())
            else {
                return self.removal.end(self.bottom, &mut sink);
            };
            let current = source.current();
            if !self.removal.takes(&current) {
                self.removal.end(self.bottom, &mut sink)?;
                if current.kind.is_removal() {
                    self.removal.begin(&current);
                } else {
                    sink(Merged {
                        index: current.index,
                        key: current.key,
                        hash: current.hash(),
                        batch: current.batch,
                        kind: current.kind,
                        value: current.value,
                    })?;
                }
            }
            self.sources[winner as usize].advance()?;
            self.play(winner, false);
        }
    }
}

impl Removal {
    fn begin(&mut self, current: &Current<'_>) {
        self.index = current.index;
        self.key.clear();
        self.key.extend_from_slice(current.key);
        self.hash = current.hash();
        self.batch = current.batch;
        self.kind = Some(current.kind);
        self.met = false;
    }

    /// Does this removal take care of an entry: the one that it removes, or its own repetition?
    #[inline]
    fn takes(&mut self, current: &Current<'_>) -> bool {
        let mine = self.kind.is_some()
            && self.batch == current.batch
            && self.index == current.index
            && self.key == current.key;
        self.met |= mine && !current.kind.is_removal();
        mine
    }

    /// What comes next has another key or batch.
    fn end(&mut self, bottom: bool, sink: &mut impl FnMut(Merged<'_>) -> Result<()>) -> Result<()> {
        let Some(kind) = self.kind.take() else { return Ok(()) };
        if self.met || bottom || mutation::off(Rule::RemovalVanishesWithEntry) {
            return Ok(());
        }
        sink(Merged {
            index: self.index,
            key: &self.key,
            hash: self.hash,
            batch: self.batch,
            kind,
            value: &[],
        })
    }
}
