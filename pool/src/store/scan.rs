//! Range reads, in both directions: a lazy merge over all structures that hold a part of the range.
//!
//! ```text
//!   leaf by leaf:   waiting ─┐
//!                   blocks ──┤─► all entries of the next key ─► those that no removal names ─► caller
//!                   pieces ──┘
//!
//!   pages of a piece:   1 ─► 2 ─► 4 ─► 8 ─► 16 ─► 32 ─► 32 ┄       asked for at once, when the former ones are begun
//!                      └── into frames ──┘└── past them ────┄
//! ```
//!
//! A scan sees the version that was current when it began, and of the block that takes batches those that were in it
//! then: all of a batch or nothing. It must not be kept for hours: the extents that it may still read are not free.
//!
//! Unlike a point read it looks at all structures, so that a removal always meets its entry here.
//!
//! # Device reads
//! A page is read when its fences say that it may hold the next key, and not before; the next pages are asked for when half
//! of the first page is used up. So the first k rows cost at most k + 2 device reads in each piece that has rows there, usually
//! far fewer; records that are longer than a page cost their own. Young pieces beside the last-level one are asked for
//! their first pages together, so they cost reads, but not a wait each.
//!
//! # Frames
//! Short scans use the frames like point reads do: many of them go over the same pages. A long one would fill the
//! frames with pages that no reader wants again, so after so many pages (see `FRAMES_MAX`) in a piece a scan reads
//! into buffers of its own; pages that are in a frame already it takes from there all the same. With so few frames
//! that read-ahead would push out what was read ahead, it does so from its second page on.
//!
//! If pages that were asked for together cannot be read, each is read alone when its turn comes: the error then names it.

use std::collections::VecDeque;
use std::sync::Arc;

use thermocline_base::io::AlignedBytes;

use super::block::{self, LongRecord, PageCursor, Value};
use super::error::{PageReason, Result};
use super::inner::{Inner, Signal};
use super::memory::{MemoryBlock, MemoryEntry, Segment, Waiting};
use super::piece::{Counted, Piece, Reading};
use super::types::{BatchId, Found, Kind};
use super::version::{Sealed, Version, WaitingBatch};
use crate::device::ReadReason;

/// Which way a scan goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From small keys to great ones.
    Forward,
    /// From great keys to small ones.
    Backward,
}

/// Pages that a scan asks for at once in one piece, at most.
const AHEAD_MAX: u32 = 32;
/// Number of them at once that it reads into frames; more than these it reads past them.
const FRAMES_MAX: u32 = 8;

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

/// A piece that a scan reads from.
#[derive(Debug)]
struct PieceSource {
    piece: Arc<Piece>,
    /// Fences of the pages that are left.
    left: std::ops::Range<u32>,
    /// Number of them that need not be asked for any more: they were, or they were in frames.
    asked: u32,
    /// The next ones are asked for when no more than this are left of these.
    ask_again_at: u32,
    /// Number of them that are asked for next.
    window: u32,
    /// The pages that are being read past the frames, and those that were.
    ahead: Option<(Reading, Stretch)>,
    chunk: Option<(AlignedBytes, Stretch)>,
    /// When so few entries of the first page are left, the next pages are asked for.
    first_ask_at: usize,
}

/// Pages of a piece that are read together.
#[derive(Debug)]
struct Stretch {
    pages: std::ops::Range<u32>,
    _counted: Counted,
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
    /// Number of that leaf, and after how many passed keys it is worth a merge.
    leaf: usize,
    passes: u64,
    work: Arc<Signal>,
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
        let (version, published) = self.moment();
        let first = version.leaves.find(index, low);
        let last = match high {
            Some(high) => version.leaves.find(index, high),
            None => version.leaves.list.partition_point(|leaf| leaf.lower.index <= index).max(1) - 1,
        };
        let empty = high.is_some_and(|high| high <= low);
        Scan {
            published,
            index,
            low: low.to_vec(),
            high: high.map(<[u8]>::to_vec),
            direction,
            leaves: if empty { 0..0 } else { first..last.max(first) + 1 },
            sources: Vec::new(),
            part: (Vec::new(), None),
            leaf: 0,
            passes: 0,
            work: Arc::clone(&self.work_signal),
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
            let Some(key) = self.next_key().await? else {
                self.sources.clear();
                continue;
            };
            let entries = self.take(&key).await?;
            if !entries.is_empty() {
                return Ok(Some(FoundKey { key, entries }));
            }
            if self.version.leaves.list[self.leaf].note_passed() == self.passes {
                self.work.ring();
            }
        }
    }

    /// The key that comes next in the leaf whose sources are open.
    async fn next_key(&mut self) -> Result<Option<Vec<u8>>> {
        let (index, direction) = (self.index, self.direction);
        let mut next: Option<Vec<u8>> = None;
        // Memory first, then pages that were read already, then others: perhaps they need not be.
        let cost = |source: &Source| match source.from {
            From::Memory { .. } => 0,
            From::Piece(_) => 1 + u32::from(source.ready.is_empty()),
        };
        self.sources.sort_by_key(cost);
        for source in &mut self.sources {
            source.fill(index, &self.part, direction, next.as_deref()).await?;
            let Some(entry) = source.ready.front() else { continue };
            if next.as_ref().is_none_or(|key| direction.is_before(&entry.key, key)) {
                next = Some(entry.key.clone());
            }
        }
        self.sources.retain(|source| !source.is_at_end());
        Ok(next)
    }

    /// Takes all entries of a key from all sources, and gives the live ones.
    async fn take(&mut self, key: &[u8]) -> Result<Vec<Found>> {
        let (mut found, mut removed) = (Vec::new(), Vec::new());
        for source in &mut self.sources {
            loop {
                source.fill(self.index, &self.part, self.direction, Some(key)).await?;
                let Some(entry) = source.ready.pop_front_if(|entry| entry.key == key) else { break };
                source.ask_first(self.direction);
                if entry.kind.is_removal() {
                    // Those of unconfirmed batches have no effect yet.
                    if !source.waiting {
                        removed.push(entry.batch);
                    }
                    continue;
                }
                let record = match (entry.record, &source.from) {
                    (Record::Here(record), _) => record,
                    (Record::Long(record), From::Piece(of)) => of.piece.look_long(self.index, record).await?,
                    (Record::Long(_), From::Memory { .. }) => unreachable!("memory holds whole records"),
                };
                let object = self.version.object(self.index, entry.batch);
                found.push(Found { batch: BatchId(entry.batch), confirmed: !source.waiting, record, object });
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
                let range = block.range(&segment, index, low, high);
                let list = List::Segment { block: Arc::clone(block), segment, published };
                lists.push((list, false, range));
            }
        }
        for waiting in &self.version.waiting {
            if let WaitingBatch::Memory { waiting, .. } = waiting {
                let range = waiting.range(index, low, high);
                lists.push((List::Waiting(Arc::clone(waiting)), true, range));
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
        (self.leaf, self.passes) = (at, leaves.passes(at));
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
                let of = PieceSource {
                    piece: Arc::clone(piece),
                    left: fences,
                    asked: 0,
                    ask_again_at: 0,
                    window: 1,
                    ahead: None,
                    chunk: None,
                    first_ask_at: 0,
                };
                sources.push(Source { from: From::Piece(Box::new(of)), waiting, ready: VecDeque::new() });
            }
        }
        self.sources = sources;
        self.part = (low, high);
        self.ask_for_first_pages();
    }
}

impl Scan {
    /// Asks for those first pages together that have to be read in any case: which go over the end of the part where the
    /// scan begins.
    fn ask_for_first_pages(&mut self) {
        let begin = match self.direction {
            Direction::Forward => Some(&self.part.0),
            Direction::Backward => self.part.1.as_ref(),
        };
        let Some(begin) = begin else { return };
        let (index, direction) = (self.index, self.direction);
        let mut needed: Vec<&mut PieceSource> = Vec::new();
        for source in &mut self.sources {
            if let From::Piece(of) = &mut source.from
                && of.may_reach(index, direction, begin)
            {
                needed.push(of);
            }
        }
        // A single one is asked for when it is read.
        if needed.len() > 1 {
            let together = needed.len() as u64;
            needed.into_iter().for_each(|of| of.ask_for_first(direction, together));
        }
    }
}

impl Direction {
    /// Does `one` come before `other`?
    fn is_before(self, one: &[u8], other: &[u8]) -> bool {
        match self {
            Self::Forward => one < other,
            Self::Backward => one > other,
        }
    }
}

/// Compares a key in two parts with one in one.
fn cmp_joined(prefix: &[u8], suffix: &[u8], key: &[u8]) -> std::cmp::Ordering {
    match key.split_at_checked(prefix.len()) {
        Some((front, rest)) => prefix.cmp(front).then_with(|| suffix.cmp(rest)),
        None => prefix.cmp(key),
    }
}

impl Source {
    /// Makes sure that the next entry is in store, if there is one that could come before `limit` or have that key.
    async fn fill(
        &mut self,
        index: u64,
        (low, high): &(Vec<u8>, Option<Vec<u8>>),
        direction: Direction,
        limit: Option<&[u8]>,
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
                    if limit.is_some_and(|limit| !of.may_reach(index, direction, limit)) {
                        return Ok(());
                    }
                    let mut entries = Vec::new();
                    if !of.next_page(index, direction, (low, high.as_deref()), &mut entries).await? {
                        return Ok(());
                    }
                    if direction == Direction::Backward {
                        entries.reverse();
                    }
                    of.first_ask_at = entries.len() / 2;
                    self.ready.extend(entries);
                }
            }
        }
        Ok(())
    }

    /// Asks for the pages behind the first one, when half of it is used up.
    fn ask_first(&mut self, direction: Direction) {
        if let From::Piece(of) = &mut self.from
            && of.window == 1
            && self.ready.len() <= of.first_ask_at
        {
            of.window = 2;
            of.ask(direction);
        }
    }

    fn is_at_end(&self) -> bool {
        let left = match &self.from {
            From::Memory { left, .. } => !left.is_empty(),
            From::Piece(of) => !of.left.is_empty(),
        };
        self.ready.is_empty() && !left
    }
}

impl PieceSource {
    /// May the next page hold keys that come before `key`, or that one?
    fn may_reach(&self, index: u64, direction: Direction, key: &[u8]) -> bool {
        if self.left.is_empty() {
            return false;
        }
        let fences = &self.piece.fences;
        match direction {
            Direction::Forward => fences.begins_by(index, self.left.start, key),
            Direction::Backward => fences.ends_behind(index, self.left.end - 1, key),
        }
    }

    /// Reads the entries of the next page that lie in a range. `false`: there is no page.
    async fn next_page(
        &mut self,
        index: u64,
        direction: Direction,
        (low, high): (&[u8], Option<&[u8]>),
        entries: &mut Vec<Entry>,
    ) -> Result<bool> {
        let fence = match direction {
            Direction::Forward => self.left.next(),
            Direction::Backward => self.left.next_back(),
        };
        let Some(fence) = fence else { return Ok(false) };
        let page = self.piece.fences.page(fence);
        self.asked = self.asked.saturating_sub(1);
        if let Some((reading, stretch)) = self.ahead.take_if(|(_, stretch)| stretch.pages.contains(&page)) {
            self.chunk = reading.await.ok().map(|bytes| (bytes, stretch));
        }
        if self.window > 1 && self.ahead.is_none() && self.asked <= self.ask_again_at {
            self.ask(direction);
        }
        let piece = &self.piece;
        let mut take = |payload: &[u8]| {
            let nonsense = |what| piece.broken(index, page, PageReason::Contents(what));
            let mut cursor = PageCursor::new(payload).ok_or_else(|| nonsense("its header makes no sense"))?;
            cursor.seek(payload, low).map_err(nonsense)?;
            while let Some(entry) = cursor.next(payload).map_err(nonsense)? {
                // Most of a page may lie outside: only what is in the range is copied.
                let prefix = cursor.prefix(payload);
                if cmp_joined(prefix, entry.suffix, low).is_lt() {
                    continue;
                }
                if high.is_some_and(|high| cmp_joined(prefix, entry.suffix, high).is_ge()) {
                    break;
                }
                entries.push(Entry {
                    key: [prefix, entry.suffix].concat(),
                    batch: entry.batch,
                    kind: entry.kind,
                    record: match entry.value {
                        Value::Inline(bytes) => Record::Here(bytes.to_vec()),
                        Value::Long(record) => Record::Long(record),
                    },
                });
            }
            Ok(())
        };
        match &self.chunk {
            Some((bytes, stretch)) if stretch.pages.contains(&page) => {
                let page_bytes = piece.files().page_bytes();
                let at = (page - stretch.pages.start) as usize * page_bytes;
                take(piece.check_kind(index, page, &bytes[at..at + page_bytes], block::DATA)?)?;
            }
            _ => piece.look(index, page, block::DATA, take).await?,
        }
        Ok(true)
    }

    /// Asks for the first page, if it is in no frame, beside so many `together`.
    fn ask_for_first(&mut self, direction: Direction, together: u64) {
        let fence = match direction {
            Direction::Forward => self.left.start,
            Direction::Backward => self.left.end - 1,
        };
        let page = self.piece.fences.page(fence);
        if !self.piece.files().pool.is_resident(self.piece.page_id(page)) {
            self.read(page, 1, self.piece.files().has_frames_for(together));
        }
    }

    /// Begins to read pages that lie together.
    fn read(&mut self, first: u32, count: u32, into_frames: bool) {
        let piece = &self.piece;
        if into_frames {
            let number = piece.meta.locate(first).0;
            // What finds no frame is read when its turn comes.
            let pages = number..number + u64::from(count);
            let files = piece.files();
            let _ = files.pool.read_ahead(files.in_pool, pages, Some(piece.meta.version));
            return;
        }
        let (reading, together) = piece.start_read(first, count, ReadReason::Scan);
        debug_assert_eq!(together, count, "pages that lie together are read together");
        let stretch = Stretch { pages: first..first + together, _counted: piece.count_read(together) };
        self.ahead = Some((reading, stretch));
    }

    /// Asks for the next pages that were not asked for yet and are not in frames, as far as they lie together.
    fn ask(&mut self, direction: Direction) {
        let piece = &self.piece;
        let pool = &piece.files().pool;
        let window = self.window;
        self.window = (window * 2).min(AHEAD_MAX);
        let end = (self.asked + window).min(self.left.len() as u32);
        let page_at = |at: u32| match direction {
            Direction::Forward => piece.fences.page(self.left.start + at),
            Direction::Backward => piece.fences.page(self.left.end - 1 - at),
        };
        let is_there = |at: &u32| pool.is_resident(piece.page_id(page_at(*at)));
        let first = (self.asked..end).find(|at| !is_there(at)).unwrap_or(end);
        let follows = |at: u32| {
            let (one, two) = match direction {
                Direction::Forward => (page_at(at - 1), page_at(at)),
                Direction::Backward => (page_at(at), page_at(at - 1)),
            };
            two == one + 1 && piece.meta.locate(one).1 > 1
        };
        if first > self.asked {
            // Those come first; what is behind them is asked for at the last of them, not earlier: else the same scan,
            // over and over again, would get ever further ahead of itself.
            (self.asked, self.ask_again_at) = (first, 0);
            return;
        }
        let behind = (first..end).find(|at| *at > first && (is_there(at) || !follows(*at))).unwrap_or(end);
        self.ask_again_at = (behind - self.asked).saturating_sub(1);
        self.asked = behind;
        if first == behind {
            return;
        }
        let lowest = page_at(first).min(page_at(behind - 1));
        let into_frames = window <= FRAMES_MAX && piece.files().has_frames_for(u64::from(window));
        self.read(lowest, behind - first, into_frames);
    }
}

#[cfg(test)]
mod tests {
    use super::cmp_joined;

    #[test]
    fn a_key_in_two_parts_compares_like_one_in_one() {
        let keys: [&[u8]; 9] = [b"", b"a", b"aa", b"ab", b"abc", b"abd", b"b", b"ba", b"\xff\xff"];
        for one in keys {
            for other in keys {
                for at in 0..=one.len() {
                    assert_eq!(
                        cmp_joined(&one[..at], &one[at..], other),
                        one.cmp(other),
                        "{one:?} {other:?}"
                    );
                }
            }
        }
    }
}
