//! Groups: all entries of an index whose keys are the same before their tails, such as the rows of a name in an index of
//! names. They lie side by side, and filters hold one hash for all of them.
//!
//! A group is read as a scan of it would be, leaf by leaf, with two differences: structures whose filter says no are
//! passed by, and the pages that the fences name are asked for all at once. Nothing lets a reader stop early as a point
//! read may: a removal that says *last* speaks of its own key, not of the group.
//!
//! A young piece may lie in several leaves, and the entries of it that belong to another leaf may have been merged there,
//! together with their removals. So of each piece only what lies within the leaf counts.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use thermocline_base::sync::Ordering;

use super::block::{self, PageCursor, Value};
use super::error::{PageReason, Result};
use super::filter::hash_of_group;
use super::inner::Inner;
use super::memory::MemoryEntry;
use super::piece::Piece;
use super::read::TOGETHER;
use super::scan::FoundKey;
use super::types::{BatchId, Found, IndexId, Kind};
use super::version::{Sealed, Version, WaitingBatch};

/// Pages that one reader asks for at once, at most.
const PAGES_MAX: usize = 32;

/// An entry of the group.
#[derive(Debug)]
struct Member {
    key: Vec<u8>,
    batch: u64,
    kind: Kind,
    confirmed: bool,
    record: Vec<u8>,
}

impl Member {
    fn of(entry: MemoryEntry<'_>, confirmed: bool) -> Self {
        let (key, record) = (entry.key.to_vec(), entry.value.to_vec());
        Self { key, batch: entry.batch, kind: entry.kind, confirmed, record }
    }
}

/// A part of a piece that may have entries of the group: from a key (included) to another one (excluded).
#[derive(Debug)]
struct Part {
    piece: Arc<Piece>,
    confirmed: bool,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
}

impl Inner {
    /// May there be an entry of the group?
    #[inline]
    pub(super) fn may_contain_group(&self, index: u64, group: &[u8]) -> bool {
        let hash = hash_of_group(index, group);
        let version = self.look();
        version.may_contain_group(index, group, hash)
    }

    /// May there be entries of the groups? Answers are in their order.
    pub(super) fn may_contain_groups<K: AsRef<[u8]>>(&self, index: u64, groups: &[K], answers: &mut [bool]) {
        let version = self.look();
        let mut hashes = [0; TOGETHER];
        for (groups, answers) in groups.chunks(TOGETHER).zip(answers.chunks_mut(TOGETHER)) {
            for (hash, group) in hashes.iter_mut().zip(groups) {
                *hash = hash_of_group(index, group.as_ref());
                version.prefetch(index, group.as_ref(), *hash);
            }
            for ((hash, group), answer) in hashes.iter().zip(groups).zip(answers) {
                *answer = version.may_contain_group(index, group.as_ref(), *hash);
            }
        }
    }

    /// Number of pages that may have entries of a group, as filters and fences say.
    pub(super) fn group_pages(&self, index: u64, group: &[u8]) -> usize {
        let parts = parts(&self.current(), index, group, hash_of_group(index, group));
        let pages =
            |part: &Part| part.piece.fences.pages_between(index, &part.low, part.high.as_deref()).len();
        parts.iter().map(pages).sum()
    }

    /// Reads the entries of a group.
    pub(super) async fn get_group(&self, index: u64, group: &[u8]) -> Result<Vec<FoundKey>> {
        self.counters.gets.fetch_add(1, Ordering::Relaxed);
        let (version, published) = self.moment();
        let hash = hash_of_group(index, group);
        let mut members = Vec::new();
        in_memory((&version, published), index, group, hash, &mut members);
        let parts = parts(&version, index, group, hash);
        if !parts.is_empty() {
            self.read_parts(index, group, &parts, &mut members).await?;
        }
        Ok(live(members))
    }

    /// Reads the pages of the parts, many at a time.
    async fn read_parts(
        &self,
        index: u64,
        group: &[u8],
        parts: &[Part],
        members: &mut Vec<Member>,
    ) -> Result<()> {
        let mut met = vec![false; parts.len()];
        let mut pages = Vec::new();
        for (at, part) in parts.iter().enumerate() {
            let fences = part.piece.fences.pages_between(index, &part.low, part.high.as_deref());
            pages.extend(fences.map(|fence| (at, part.piece.fences.page(fence))));
        }
        for pages in pages.chunks(PAGES_MAX) {
            let reads = pages.iter().map(|(at, page)| read_page(&parts[*at], index, group, *page));
            let reads = All::new(reads.map(|read| Box::pin(read) as BoxedRead<'_, _>).collect());
            for ((at, _), of_page) in pages.iter().zip(reads.await) {
                let of_page: Vec<Member> = of_page?;
                met[*at] |= !of_page.is_empty();
                members.extend(of_page);
            }
        }
        let wrong = met.iter().filter(|met| !**met).count();
        self.files.false_positives.fetch_add(wrong as u64, Ordering::Relaxed);
        Ok(())
    }

    /// The indexes of which something may be there.
    pub(super) fn indexes(&self) -> Vec<IndexId> {
        let version = self.current();
        let sealed = version.sealed.iter().flat_map(|sealed| match sealed {
            Sealed::Piece { piece, .. } => vec![Arc::clone(piece)],
            Sealed::Load { load, .. } => load.pieces.iter().map(|(_, piece)| Arc::clone(piece)).collect(),
            Sealed::Block { .. } => Vec::new(),
        });
        let waiting = version.waiting.iter().filter_map(|waiting| match waiting {
            WaitingBatch::Piece { piece, .. } => Some(Arc::clone(piece)),
            WaitingBatch::Memory { .. } => None,
        });
        let mut indexes = BTreeSet::new();
        for piece in version.leaves.pieces().into_iter().chain(sealed).chain(waiting) {
            indexes.extend(piece.meta.counts.iter().map(|counts| counts.index));
        }
        let blocks = version.sealed.iter().filter_map(|sealed| match sealed {
            Sealed::Block { block, .. } => Some(block),
            Sealed::Piece { .. } | Sealed::Load { .. } => None,
        });
        for block in blocks.chain([&version.active]) {
            for segment in block.segments(block.published()) {
                indexes.extend(segment.iter().map(|at| at.index()));
            }
        }
        for waiting in &version.waiting {
            if let WaitingBatch::Memory { waiting, .. } = waiting {
                indexes.extend(waiting.batch.entries.iter().map(|entry| entry.index));
            }
        }
        indexes.into_iter().map(IndexId::from_u64).collect()
    }
}

/// Adds the group's members in blocks and unconfirmed batches.
fn in_memory(
    (version, published): (&Version, usize),
    index: u64,
    group: &[u8],
    hash: u64,
    members: &mut Vec<Member>,
) {
    for waiting in &version.waiting {
        if let WaitingBatch::Memory { waiting, .. } = waiting {
            members.extend(waiting.find_group(index, group).map(|entry| Member::of(entry, false)));
        }
    }
    let sealed = version.sealed.iter().filter_map(|sealed| match sealed {
        Sealed::Block { block, .. } => Some((block, block.published())),
        Sealed::Piece { .. } | Sealed::Load { .. } => None,
    });
    for (block, published) in [(&version.active, published)].into_iter().chain(sealed) {
        if block.may_contain(hash) {
            let is_of_group = |entry: &MemoryEntry<'_>| entry.key.starts_with(group);
            block.for_sorted(published, index, group, is_of_group, |entry| {
                members.push(Member::of(entry, true));
            });
        }
    }
}

/// The parts of pieces whose filters say maybe.
fn parts(version: &Version, index: u64, group: &[u8], hash: u64) -> Vec<Part> {
    let behind = behind(group);
    let mut parts = Vec::new();
    let mut add = |piece: &Arc<Piece>, confirmed, low: &[u8], high: Option<&[u8]>| {
        if piece.filter.may_contain(hash) && !piece.fences.pages_between(index, low, high).is_empty() {
            let (low, high) = (low.to_vec(), high.map(<[u8]>::to_vec));
            parts.push(Part { piece: Arc::clone(piece), confirmed, low, high });
        }
    };
    for waiting in &version.waiting {
        if let WaitingBatch::Piece { piece, .. } = waiting {
            add(piece, false, group, behind.as_deref());
        }
    }
    for sealed in &version.sealed {
        if let Sealed::Piece { piece, .. } = sealed {
            add(piece, true, group, behind.as_deref());
        }
    }
    let leaves = &version.leaves;
    for at in leaves.of_group(index, group) {
        let leaf = &leaves.list[at];
        let lower = if leaf.lower.index == index { &leaf.lower.key[..] } else { &[] };
        let upper = leaves.upper(at).filter(|upper| upper.index == index).map(|upper| &upper.key[..]);
        let high = match (behind.as_deref(), upper) {
            (Some(behind), Some(upper)) => Some(behind.min(upper)),
            (behind, upper) => behind.or(upper),
        };
        leaf.pieces().for_each(|piece| add(piece, true, group.max(lower), high));
    }
    parts
}

/// The entries of the group on a page, within the part.
async fn read_page(part: &Part, index: u64, group: &[u8], page: u32) -> Result<Vec<Member>> {
    let piece = &part.piece;
    let mut members = Vec::new();
    let mut long = Vec::new();
    let collect = |payload: &[u8]| -> Result<()> {
        let nonsense = |what| piece.broken(index, page, PageReason::Contents(what));
        let mut cursor = PageCursor::new(payload).ok_or_else(|| nonsense("its header makes no sense"))?;
        let prefix = cursor.prefix(payload);
        let shared = prefix.len().min(group.len());
        if prefix[..shared] != group[..shared] {
            return Ok(());
        }
        let rest = &group[shared..];
        while let Some(entry) = cursor.next(payload).map_err(nonsense)? {
            if !entry.suffix.starts_with(rest) {
                if entry.suffix < rest {
                    continue;
                }
                break;
            }
            // Removals of an unconfirmed batch have no effect yet.
            if !part.confirmed && entry.kind.is_removal() {
                continue;
            }
            let key = [prefix, entry.suffix].concat();
            if key < part.low || part.high.as_ref().is_some_and(|high| key >= *high) {
                continue;
            }
            let record = match entry.value {
                Value::Inline(bytes) => bytes.to_vec(),
                Value::Long(record) => {
                    long.push((members.len(), record));
                    Vec::new()
                }
            };
            let (batch, kind, confirmed) = (entry.batch, entry.kind, part.confirmed);
            members.push(Member { key, batch, kind, confirmed, record });
        }
        Ok(())
    };
    piece.look(index, page, block::DATA, collect).await?;
    for (at, record) in long {
        members[at].record = piece.look_long(index, record).await?;
    }
    Ok(members)
}

/// The members that no removal names, by key, the newest batch first.
fn live(mut members: Vec<Member>) -> Vec<FoundKey> {
    // Of one key, batch and state a removal comes first; an unconfirmed batch has no removals here and is named by none.
    members.sort_by(|one, two| {
        let order = |of: &Member| (std::cmp::Reverse(of.batch), of.kind == Kind::Put, !of.confirmed);
        one.key.cmp(&two.key).then_with(|| order(one).cmp(&order(two)))
    });
    let mut found: Vec<FoundKey> = Vec::new();
    for of_batch in members.chunk_by_mut(|one, two| one.key == two.key && one.batch == two.batch) {
        // A batch that was being confirmed may have been met twice, and so may a piece of several leaves.
        let first = &mut of_batch[0];
        if first.kind.is_removal() {
            continue;
        }
        let (batch, confirmed) = (BatchId(first.batch), first.confirmed);
        let entry = Found::new(batch, confirmed, std::mem::take(&mut first.record));
        match found.last_mut().filter(|last| last.key == first.key) {
            Some(last) => last.entries.push(entry),
            None => found.push(FoundKey { key: std::mem::take(&mut first.key), entries: vec![entry] }),
        }
    }
    found
}

/// The least key above all that begin with this one.
fn behind(group: &[u8]) -> Option<Vec<u8>> {
    let last = group.iter().rposition(|byte| *byte != 0xff)?;
    let mut behind = group[..=last].to_vec();
    behind[last] += 1;
    Some(behind)
}

type BoxedRead<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Resolves when all of some futures have; they are under way together.
struct All<'a, T> {
    reads: Vec<(Option<BoxedRead<'a, T>>, Option<T>)>,
}

impl<'a, T> All<'a, T> {
    fn new(reads: Vec<BoxedRead<'a, T>>) -> Self {
        Self { reads: reads.into_iter().map(|read| (Some(read), None)).collect() }
    }
}

impl<T: Unpin> Future for All<'_, T> {
    type Output = Vec<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Vec<T>> {
        let mut left = false;
        for (read, value) in &mut self.reads {
            let Some(under_way) = read else { continue };
            match under_way.as_mut().poll(cx) {
                Poll::Ready(done) => (*read, *value) = (None, Some(done)),
                Poll::Pending => left = true,
            }
        }
        if left {
            return Poll::Pending;
        }
        Poll::Ready(self.reads.iter_mut().filter_map(|(_, value)| value.take()).collect())
    }
}
