//! Merging sorted sources of entries into one, with removals meeting their entries.
//!
//! Rules:
//! - Sources are walked in the order (index, key, batch descending, removals first), so a removal comes right before the
//!   entry that it removes. Both vanish then, and nowhere else, but at the bottom: a merge that takes in everything older
//!   there is drops the removals that met nothing (their entries went in an earlier life: a repeated removal).
//! - A removal of a batch was confirmed after that batch, and merges take in a contiguous stretch of positions, so an
//!   entry never lies in a younger structure than its removal.
//! - Sources are checked as they are read: every page's checksum, number and version.
//! - Entries bring along their part of their page's heat; that of an entry that vanishes goes to the next one, which has its key or
//!   stands beside it.
//!
//! Most of the entries of a merge come from one source, the last-level piece. It does not play in the tree: its entry is
//! compared with the tree's winner, once for each entry that it gives, and only the others cost a way up the tree.
//!
//! ```text
//!   last-level piece ───────────────┬─► next entry
//!   young ─┐                        │
//!   young ─┼─ tree of losers ───────┘      (compared: index and first 8 bytes of the key, as one number;
//!   young ─┘                                whole entries only if these are equal)
//! ```

use std::sync::Arc;

use thermocline_base::io::AlignedBytes;
use thermocline_base::multiplex::block_on;

use super::block::{self, PageCursor, Value};
use super::codec;
use super::error::{PageReason, Result};
use super::filter::hash_of;
use super::held::Held;
use super::manifest::Bound;
use super::memory::{MemoryBlock, Segment, Waiting};
use super::object::Dead;
use super::piece::{Piece, Reading};
use super::types::{Kind, MAX_KEY_BYTES};
use crate::device::{PageHeat, ReadReason};
use crate::mutation::{self, Rule};
use crate::page::HEADER_BYTES;

/// The entries of a piece between two bounds, read in long stretches.
#[derive(Debug)]
struct PieceStream {
    piece: Arc<Piece>,
    reason: ReadReason,
    from: Bound,
    to: Option<Bound>,
    /// The next page to be handed out, and the one behind the last.
    page: u32,
    end: u32,
    chunk: Option<AlignedBytes>,
    /// Pages that are read at once.
    chunk_pages: u32,
    /// Pages of the piece that are in the chunk.
    chunk_first: u32,
    chunk_count: u32,
    /// Heat of the pages of the chunk; empty where it is not known.
    heats: Vec<PageHeat>,
    /// Heat of pages of long records, for the entries of the data page behind them.
    long_heat: PageHeat,
    /// Heat of each entry of the page.
    entry_heat: PageHeat,
    ahead: Option<(Reading, u32)>,
    held: Held,
    /// The page being walked over, and where its payload begins in the chunk.
    cursor: Option<(PageCursor, usize)>,
    skipping: bool,
    page_bytes: usize,
    /// Index of the page.
    index: u64,
    /// The entry's key, with the page's prefix in front, and something behind.
    key: Vec<u8>,
    prefix_len: usize,
    prefix_head: u64,
    key_len: usize,
    head: u64,
    /// The head of the key at which the stream ends.
    to_head: u64,
    batch: u64,
    kind: Kind,
    /// Where in the chunk the record is, unless it was read on its own.
    value: (u32, u32),
    own: Option<Vec<u8>>,
}

impl PieceStream {
    fn new(piece: Arc<Piece>, from: Bound, to: Option<Bound>, chunk_pages: u32) -> Self {
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
        let page_bytes = piece.files().page_bytes();
        Self {
            held: Held::new(&piece.files().work_bytes),
            piece,
            reason: ReadReason::Merge,
            from,
            to,
            page,
            end,
            chunk: None,
            chunk_pages,
            chunk_first: 0,
            chunk_count: 0,
            heats: Vec::new(),
            long_heat: PageHeat::default(),
            entry_heat: PageHeat::default(),
            ahead: None,
            cursor: None,
            skipping: true,
            page_bytes,
            index: 0,
            key: vec![0; MAX_KEY_BYTES],
            prefix_len: 0,
            prefix_head: 0,
            key_len: 0,
            head: 0,
            to_head,
            batch: 0,
            kind: Kind::Put,
            value: (0, 0),
            own: None,
        }
    }

    fn read_ahead(&mut self, page: u32) {
        if page < self.end && self.ahead.is_none() {
            let count = (self.end - page).min(self.chunk_pages);
            self.ahead = Some(self.piece.start_read(page, count, self.reason));
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
        if self.reason == ReadReason::Merge {
            self.heats = self.piece.heats(self.page, count);
        }
        self.read_ahead(self.page + count);
        let pages = count + self.ahead.as_ref().map_or(0, |(_, count)| *count);
        self.held.set(self.key.capacity() + pages as usize * self.page_bytes);
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
            let start = *start;
            let chunk = self.chunk.as_ref().expect("a page of it is being walked over");
            let payload = &chunk[start..start - HEADER_BYTES + self.page_bytes];
            let entry = match cursor.next(payload) {
                Ok(Some(entry)) => entry,
                Ok(None) => {
                    self.cursor = None;
                    continue;
                }
                Err(what) => {
                    return Err(self.piece.broken(self.index, self.page - 1, PageReason::Contents(what)));
                }
            };
            self.key_len = self.prefix_len + entry.suffix.len();
            if self.key.len() < self.key_len {
                self.key.resize(self.key_len, 0);
            }
            if !entry.same_key {
                codec::copy(&mut self.key[self.prefix_len..self.key_len], entry.suffix);
                // From where the bytes come, not from where they have just been written.
                let at = entry.suffix.as_ptr() as usize - payload.as_ptr() as usize;
                let rest = 8_usize.saturating_sub(self.prefix_len);
                self.head = self.prefix_head;
                if rest > 0 {
                    self.head |= codec::head_at(payload, at, entry.suffix.len()) >> (64 - 8 * rest);
                }
            }
            let key = &self.key[..self.key_len];
            if self.skipping {
                if (self.index, key) < (self.from.index, &*self.from.key) {
                    continue;
                }
                self.skipping = false;
            }
            if let Some(to) = &self.to
                && self.head >= self.to_head
                && self.index == to.index
                && *key >= *to.key
            {
                self.page = self.end;
                self.cursor = None;
                return Ok(false);
            }
            (self.batch, self.kind) = (entry.batch, entry.kind);
            self.own = None;
            match entry.value {
                Value::Inline(bytes) => {
                    let at = bytes.as_ptr() as usize - chunk.as_ptr() as usize;
                    self.value = (at as u32, bytes.len() as u32);
                }
                Value::Long(record) => {
                    self.own = Some(block_on(self.piece.read_long(self.index, record, self.reason))?);
                }
            }
            return Ok(true);
        }
    }

    #[inline(never)]
    fn next_page(&mut self) -> Result<()> {
        self.fetch()?;
        let page_bytes = self.page_bytes;
        let at = (self.page - self.chunk_first) as usize * page_bytes;
        let chunk = self.chunk.as_ref().expect("it was fetched");
        let (kind, payload) = self.piece.check(self.owner(), self.page, &chunk[at..at + page_bytes])?;
        let heat = self.heats.get((self.page - self.chunk_first) as usize).copied().unwrap_or_default();
        if kind == block::DATA {
            let cursor = PageCursor::new(payload);
            let nonsense = PageReason::Contents("its header makes no sense");
            let cursor = cursor.ok_or_else(|| self.piece.broken(self.owner(), self.page, nonsense))?;
            let prefix = cursor.prefix(payload);
            (self.prefix_len, self.prefix_head) = (prefix.len(), codec::head_of(prefix));
            if self.key.len() < prefix.len() {
                self.key.resize(prefix.len(), 0);
            }
            self.key[..prefix.len()].copy_from_slice(prefix);
            self.index = cursor.index;
            let mut all = std::mem::take(&mut self.long_heat);
            all += heat;
            self.entry_heat = all.over(cursor.left() as u32);
            self.cursor = Some((cursor, at + HEADER_BYTES));
        } else if kind == block::LONG {
            self.long_heat += heat;
        } else {
            let reason = PageReason::Contents("it is of another kind");
            return Err(self.piece.broken(self.owner(), self.page, reason));
        }
        self.page += 1;
        Ok(())
    }

    #[inline]
    fn current(&self) -> Current<'_> {
        let value = match &self.own {
            Some(own) => own,
            None => {
                let chunk = self.chunk.as_ref().expect("the entry lies in it");
                &chunk[self.value.0 as usize..(self.value.0 + self.value.1) as usize]
            }
        };
        let key = &self.key[..self.key_len];
        Current {
            index: self.index,
            key,
            head: self.head,
            hash: None,
            batch: self.batch,
            kind: self.kind,
            value,
            heat: self.entry_heat,
        }
    }
}

/// A walk over the entries of a piece, without merging.
#[derive(Debug)]
pub(super) struct Walk(PieceStream);

impl Walk {
    /// Over the part between two bounds.
    pub(super) fn new(piece: &Arc<Piece>, from: &Bound, to: Option<&Bound>) -> Self {
        let chunk_pages = piece.files().chunk_pages() as u32;
        Self(PieceStream::new(Arc::clone(piece), from.clone(), to.cloned(), chunk_pages))
    }

    /// Over all of it, for its bytes in the page file and not those of a copy.
    pub(super) fn to_verify(piece: &Arc<Piece>) -> Self {
        let mut walk = Self::new(piece, &Bound::default(), None);
        walk.0.reason = ReadReason::Verify;
        walk
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
        self.0.current()
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
pub(super) struct Source(Kinded);

/// Index and first bytes of the key on which a source stands, as one number. [`END`] at its end, and for one key.
type Head = u128;
const END: Head = Head::MAX;

fn head(index: u64, head: u64) -> Head {
    Head::from(index) << 64 | Head::from(head)
}

/// The entry that a merge stands on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Current<'a> {
    pub(super) index: u64,
    pub(super) key: &'a [u8],
    head: u64,
    hash: Option<u64>,
    pub(super) batch: u64,
    pub(super) kind: Kind,
    pub(super) value: &'a [u8],
    /// Its part of its page's heat.
    heat: PageHeat,
}

impl Current<'_> {
    fn hash(&self) -> u64 {
        self.hash.unwrap_or_else(|| hash_of(self.index, self.key))
    }
}

impl Source {
    /// The part of a piece between two bounds, of which so many pages are read at once.
    pub(super) fn piece(piece: &Arc<Piece>, from: &Bound, to: Option<&Bound>, chunk_pages: u32) -> Self {
        let stream = PieceStream::new(Arc::clone(piece), from.clone(), to.cloned(), chunk_pages);
        Self(Kinded::Piece(Box::new(stream)))
    }

    /// A segment of a block.
    pub(super) fn segment(block: &Arc<MemoryBlock>, segment: Segment) -> Self {
        Self(Kinded::Segment(SegmentStream { block: Arc::clone(block), segment, next: 0 }))
    }

    /// A batch of its own.
    pub(super) fn waiting(waiting: &Arc<Waiting>) -> Self {
        Self(Kinded::Waiting(WaitingStream { waiting: Arc::clone(waiting), next: 0 }))
    }

    /// The amount that it has to give; to be compared with that of sources of the same kind.
    fn weight(&self) -> usize {
        match &self.0 {
            Kinded::Piece(stream) => stream.end.saturating_sub(stream.page) as usize,
            Kinded::Segment(stream) => stream.segment.len(),
            Kinded::Waiting(stream) => stream.waiting.sorted().len(),
        }
    }

    /// Goes to the next entry, and gives its head; `None` at the end.
    #[inline]
    fn advance(&mut self) -> Result<Option<Head>> {
        Ok(match &mut self.0 {
            Kinded::Piece(stream) => stream.advance()?.then(|| head(stream.index, stream.head)),
            Kinded::Segment(stream) => {
                stream.next += 1;
                stream.block.prefetch(&stream.segment, stream.next);
                stream.segment.get(stream.next - 1).map(|at| head(at.index(), at.head()))
            }
            Kinded::Waiting(stream) => {
                stream.next += 1;
                stream.waiting.sorted().get(stream.next - 1).map(|at| head(at.index(), at.head()))
            }
        })
    }

    #[inline]
    fn current(&self) -> Current<'_> {
        let entry = match &self.0 {
            Kinded::Piece(stream) => return stream.current(),
            Kinded::Segment(stream) => stream.block.entry(stream.segment[stream.next - 1]),
            Kinded::Waiting(stream) => stream.waiting.entry(stream.waiting.sorted()[stream.next - 1]),
        };
        Current {
            index: entry.index,
            key: entry.key,
            head: codec::head_of(entry.key),
            hash: Some(entry.hash),
            batch: entry.batch,
            kind: entry.kind,
            value: entry.value,
            heat: PageHeat::default(),
        }
    }
}

/// The fate of an entry that a merge has given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kept {
    Yes,
    /// It is of no use any more, and was left out.
    No,
}

/// An entry that a merge gives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Merged<'a> {
    pub(super) index: u64,
    pub(super) key: &'a [u8],
    /// Its first bytes, as [`codec::head_of`] gives them.
    pub(super) head: u64,
    pub(super) hash: u64,
    pub(super) batch: u64,
    pub(super) kind: Kind,
    pub(super) value: &'a [u8],
    /// Heat that it brings along to its page.
    pub(super) heat: PageHeat,
}

/// A removal that waits for its entry to come by.
#[derive(Debug, Default)]
struct Removal {
    index: u64,
    key: Vec<u8>,
    head: u64,
    hash: u64,
    batch: u64,
    kind: Option<Kind>,
    met: bool,
}

/// A merge.
#[derive(Debug)]
pub(super) struct Merge {
    /// The heaviest comes last.
    sources: Vec<Source>,
    /// Where each stands.
    heads: Vec<Head>,
    /// Which are at their end.
    ended: Vec<bool>,
    left: usize,
    /// A tree of losers over all sources but the last; the winner is in front.
    tree: Vec<u32>,
    bottom: bool,
    removal: Removal,
}

const NOBODY: u32 = u32::MAX;

impl Merge {
    /// Of `sources`; `bottom`: nothing older than they are is there.
    pub(super) fn new(sources: Vec<Source>, bottom: bool) -> Result<Self> {
        let (mut started, mut heads) = (Vec::with_capacity(sources.len()), Vec::with_capacity(sources.len()));
        for mut source in sources {
            if let Some(head) = source.advance()? {
                started.push(source);
                heads.push(head);
            }
        }
        let left = started.len();
        if let Some(heaviest) = (0..left).max_by_key(|at| started[*at].weight()) {
            started.swap(heaviest, left - 1);
            heads.swap(heaviest, left - 1);
        }
        let mut merge = Self {
            sources: started,
            heads,
            ended: vec![false; left],
            left,
            tree: vec![NOBODY; left.max(2) - 1],
            bottom,
            removal: Removal::default(),
        };
        for source in 0..left.max(1) as u32 - 1 {
            merge.play(source);
        }
        Ok(merge)
    }

    #[inline(always)]
    fn beats(&self, one: u32, two: u32) -> bool {
        let (a, b) = (self.heads[one as usize], self.heads[two as usize]);
        if a == b { self.beats_whole(one as usize, two as usize) } else { a < b }
    }

    /// Decides by what stands behind the heads.
    #[inline(never)]
    fn beats_whole(&self, one: usize, two: usize) -> bool {
        if self.ended[one] || self.ended[two] {
            return !self.ended[one];
        }
        let (a, b) = (self.sources[one].current(), self.sources[two].current());
        let order = a.key.cmp(b.key).then_with(|| b.batch.cmp(&a.batch)).then_with(|| a.kind.cmp(&b.kind));
        order.is_lt()
    }

    /// Lets a source play its way up. While the tree is built it waits at the first empty place.
    #[inline]
    fn play(&mut self, source: u32) {
        let mut winner = source;
        let mut place = (source as usize + self.tree.len()) / 2;
        while place > 0 {
            let other = self.tree[place];
            if other == NOBODY {
                self.tree[place] = winner;
                return;
            }
            if self.beats(other, winner) {
                self.tree[place] = winner;
                winner = other;
            }
            place /= 2;
        }
        self.tree[0] = winner;
    }

    /// Gives all entries in order. `sink` takes each, or leaves it out; `dead` counts those of objects that go.
    pub(super) fn run(
        mut self,
        dead: &mut Dead,
        mut sink: impl FnMut(Merged<'_>) -> Result<Kept>,
    ) -> Result<()> {
        let Some(heaviest) = self.sources.len().checked_sub(1) else { return Ok(()) };
        let mut heat = PageHeat::default();
        while self.left > 0 {
            let light = self.tree[0];
            let heavy = light == NOBODY || self.beats(heaviest as u32, light);
            let winner = if heavy { heaviest } else { light as usize };
            let current = self.sources[winner].current();
            heat += current.heat;
            if self.removal.takes(&current) {
                dead.note(current.index, current.batch, current.kind);
            } else {
                self.removal.end(self.bottom, &mut sink)?;
                if current.kind.is_removal() {
                    self.removal.begin(&current);
                } else {
                    let kept = sink(Merged {
                        index: current.index,
                        key: current.key,
                        head: current.head,
                        hash: current.hash(),
                        batch: current.batch,
                        kind: current.kind,
                        value: current.value,
                        heat: std::mem::take(&mut heat),
                    })?;
                    if kept == Kept::No {
                        dead.note(current.index, current.batch, current.kind);
                    }
                }
            }
            match self.sources[winner].advance()? {
                Some(head) => self.heads[winner] = head,
                None => {
                    (self.heads[winner], self.ended[winner]) = (END, true);
                    self.left -= 1;
                }
            }
            if !heavy {
                self.play(light);
            }
        }
        self.removal.end(self.bottom, &mut sink)
    }
}

impl Removal {
    fn begin(&mut self, current: &Current<'_>) {
        self.index = current.index;
        self.key.clear();
        self.key.extend_from_slice(current.key);
        self.head = current.head;
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

    /// Ends the removal: the next entry has another key or batch.
    fn end(&mut self, bottom: bool, sink: &mut impl FnMut(Merged<'_>) -> Result<Kept>) -> Result<()> {
        let Some(kind) = self.kind.take() else { return Ok(()) };
        if self.met || bottom || mutation::off(Rule::RemovalVanishesWithEntry) {
            return Ok(());
        }
        sink(Merged {
            index: self.index,
            key: &self.key,
            head: self.head,
            hash: self.hash,
            batch: self.batch,
            kind,
            value: &[],
            heat: PageHeat::default(),
        })
        .map(drop)
    }
}
