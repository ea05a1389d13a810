//! The version that a reader sees: an immutable list of structures, from the newest to the oldest.
//!
//! ```text
//!   waiting     unconfirmed batches, each alone, in memory or as a piece
//!   active      the block in memory that takes confirmed batches                 ▲ newer
//!   sealed      full blocks (and pieces of late confirmed batches) on their way  │
//!   leaf        for the part of all keys from its lower bound to the next one's: │
//!                 young pieces                                                   │
//!                 the last-level piece                                           │ older
//! ```
//!
//! Everything from `active` on stands in the order of *positions*: the number in the journal of the record that confirmed
//! a batch. The structures' ranges of positions do not overlap. A removal may only name a batch that is confirmed, so it
//! has a greater position than its entry and lies in the same or a newer structure.
//!
//! # Why a reader may stop early
//! A removal of key K that says *last* promises that every other entry of K whose batch was confirmed before it is
//! removed as well. All entries in older structures were confirmed before, so none of them lives: a reader that has
//! finished with the structure in which it found the removal need not look at older ones. (Entries of K in the same
//! structure may have been confirmed before or after; each dead one there is named by a removal in the same or a newer
//! structure, all of which the reader has seen.) Unconfirmed batches stand outside of the order and are always looked at.
//! When a removal vanishes together with its entry, the promise goes with it: what it said about older entries is said by
//! their own removals.

use std::collections::HashMap;
use std::sync::Arc;

use thermocline_base::sync::{AtomicU64, Ordering};

use super::error::Result;
use super::manifest::Bound;
use super::memory::{MemoryBlock, Waiting};
use super::object::{Object, Objects};
use super::piece::Piece;
use super::promise::Promise;
use super::screen::Screen;
use super::types::{Batch, BatchId};
use crate::mutation::{self, Rule};
use crate::space::EXTENT_PAGES;

/// A part of all keys.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub(super) lower: Bound,
    /// The newest first. A piece may be in several leaves.
    pub(super) young: Vec<Arc<Piece>>,
    pub(super) last: Option<Arc<Piece>>,
    /// Young pieces behind screens, and those without.
    groups: Vec<Group>,
    loose: Vec<Arc<Piece>>,
    /// Keys that scans have passed here because removals leave nothing of them, since the leaf was merged.
    passed: Arc<AtomicU64>,
}

/// Young pieces behind a screen.
#[derive(Clone, Debug)]
struct Group {
    screen: Arc<Screen>,
    pieces: Vec<Arc<Piece>>,
}

impl Leaf {
    /// A leaf whose young pieces, the newest first, are behind no screen.
    pub(super) fn new(lower: Bound, young: Vec<Arc<Piece>>, last: Option<Arc<Piece>>) -> Self {
        Self { lower, loose: young.clone(), young, last, groups: Vec::new(), passed: Arc::default() }
    }

    /// A leaf that was found on disk: those of its young pieces that are `only` its own are behind screens.
    pub(super) fn found(
        lower: Bound,
        young: Vec<Arc<Piece>>,
        last: Option<Arc<Piece>>,
        only: impl Fn(&Piece) -> bool,
    ) -> Self {
        let mut leaf = Self::new(lower, Vec::new(), last);
        for piece in young.iter().rev() {
            let prints = if only(piece) { piece.take_prints() } else { Vec::new() };
            leaf.insert(piece, &prints);
        }
        leaf.young = young;
        leaf
    }

    /// Puts in a young piece; behind a screen if its prints are there, which are those of this leaf only.
    fn insert(&mut self, piece: &Arc<Piece>, prints: &[u32]) {
        let older = |other: &Arc<Piece>| other.from() < piece.from();
        let at = self.young.iter().position(older).unwrap_or(self.young.len());
        self.young.insert(at, Arc::clone(piece));
        if prints.is_empty() {
            self.loose.push(Arc::clone(piece));
            return;
        }
        if !self.groups.last().is_some_and(|group| group.screen.takes(prints.len())) {
            let records = self.last.as_ref().map_or(0, |last| last.meta.records() as usize);
            let screen = Arc::new(Screen::new((records / 8).max(prints.len())));
            self.groups.push(Group { screen, pieces: Vec::new() });
        }
        let group = self.groups.last_mut().expect("it was pushed");
        let left_out = usize::from(mutation::off(Rule::ScreenOfAllEntries));
        group.screen.add(&prints[left_out..]);
        group.pieces.push(Arc::clone(piece));
    }

    /// Its young pieces behind no screen, wide ones among them.
    pub(super) fn unscreened(&self) -> &[Arc<Piece>] {
        &self.loose
    }

    /// Is this one of them?
    pub(super) fn has_unscreened(&self, piece: &Arc<Piece>) -> bool {
        self.loose.iter().any(|other| Arc::ptr_eq(piece, other))
    }

    /// Takes out young pieces.
    pub(super) fn without(&self, gone: impl Fn(&Piece) -> bool) -> Self {
        let mut leaf = self.clone();
        leaf.young.retain(|piece| !gone(piece));
        leaf.loose.retain(|piece| !gone(piece));
        leaf.groups.iter_mut().for_each(|group| group.pieces.retain(|piece| !gone(piece)));
        leaf.groups.retain(|group| !group.pieces.is_empty());
        leaf
    }

    /// May there be an entry of a key with this hash?
    #[inline]
    fn may_contain(&self, hash: u64) -> bool {
        self.last.as_ref().is_some_and(|piece| piece.filter.may_contain(hash))
            || self.loose.iter().any(|piece| piece.filter.may_contain(hash))
            || self.groups.iter().any(|group| {
                group.screen.may_contain(hash)
                    && group.pieces.iter().any(|piece| piece.filter.may_contain(hash))
            })
    }

    /// The pieces that may have an entry of a key with this hash, the newest first.
    pub(super) fn candidates(&self, hash: u64) -> Vec<&Arc<Piece>> {
        let screened = self.groups.iter().filter(|group| group.screen.may_contain(hash));
        let young = screened.flat_map(|group| &group.pieces).chain(&self.loose);
        let mut found: Vec<_> = young.filter(|piece| piece.filter.may_contain(hash)).collect();
        found.sort_unstable_by_key(|piece| std::cmp::Reverse(piece.from()));
        found.extend(self.last.iter().filter(|piece| piece.filter.may_contain(hash)));
        found
    }

    /// Asks the processor for what [`Leaf::may_contain`] will look at.
    #[inline]
    fn prefetch(&self, hash: u64) {
        if let Some(last) = &self.last {
            last.filter.prefetch(hash);
        }
        self.loose.iter().for_each(|piece| piece.filter.prefetch(hash));
        self.groups.iter().for_each(|group| group.screen.prefetch(hash));
    }

    /// Screens and filters that a look for an absent key asks, if no screen is wrong; the last level's is not counted.
    #[cfg(test)]
    pub(super) fn looks(&self) -> (usize, usize) {
        (self.groups.len(), self.loose.len())
    }

    /// A scan has passed a key of which nothing is left. How many that makes.
    pub(super) fn note_passed(&self) -> u64 {
        self.passed.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Memory of its screens.
    pub(super) fn screen_bytes(&self) -> usize {
        self.groups.iter().map(|group| group.screen.memory_bytes()).sum()
    }

    /// All of its pieces, the newest first.
    #[inline]
    pub(super) fn pieces(&self) -> impl Iterator<Item = &Arc<Piece>> {
        self.young.iter().chain(&self.last)
    }
}

/// An unconfirmed batch.
#[derive(Clone, Debug)]
pub(super) enum WaitingBatch {
    Memory {
        waiting: Arc<Waiting>,
        /// Number of its record in the journal.
        number: u64,
        /// It is being written as a piece.
        spilling: bool,
    },
    Piece {
        id: BatchId,
        piece: Arc<Piece>,
    },
}

impl WaitingBatch {
    pub(super) fn id(&self) -> BatchId {
        match self {
            Self::Memory { waiting, .. } => waiting.id(),
            Self::Piece { id, .. } => *id,
        }
    }
}

/// On its way into the leaves.
#[derive(Clone, Debug)]
pub(super) enum Sealed {
    /// A full block.
    Block { block: Arc<MemoryBlock>, from: u64, to: u64 },
    /// The piece of a batch that was confirmed at a position.
    Piece { id: BatchId, piece: Arc<Piece>, position: u64 },
    /// A bulk load at a position.
    Load { load: Arc<Load>, position: u64 },
}

/// A bulk load. Readers see it when it is in the leaves.
#[derive(Debug)]
pub(super) struct Load {
    /// With the bounds at which they begin.
    pub(super) pieces: Vec<(Bound, Arc<Piece>)>,
    pub(super) done: Promise<Result<()>>,
}

/// The version that a reader sees.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) waiting: Vec<WaitingBatch>,
    pub(super) active: Arc<MemoryBlock>,
    /// The newest first.
    pub(super) sealed: Vec<Sealed>,
    pub(super) leaves: Arc<Leaves>,
    pub(super) objects: Objects,
}

impl Version {
    /// The object that an entry of this index and batch stands in.
    #[inline]
    pub(super) fn object(&self, index: u64, batch: u64) -> Option<Arc<Object>> {
        if self.objects.is_empty() {
            return None;
        }
        self.objects.get(&batch).filter(|object| object.is_of(index)).map(Arc::clone)
    }

    /// The batches that are in memory, and in no piece.
    pub(super) fn batches(&self) -> impl Iterator<Item = Arc<Batch>> + '_ {
        let waiting = self.waiting.iter().filter_map(|waiting| match waiting {
            WaitingBatch::Memory { waiting, .. } => Some(Arc::clone(&waiting.batch)),
            WaitingBatch::Piece { .. } => None,
        });
        let sealed = self.sealed.iter().filter_map(|sealed| match sealed {
            Sealed::Block { block, .. } => Some(block),
            Sealed::Piece { .. } | Sealed::Load { .. } => None,
        });
        waiting.chain(std::iter::once(&self.active).chain(sealed).flat_map(|block| block.batches()))
    }
}

/// The leaves, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Leaves {
    /// Index and first bytes of the lower bounds.
    heads: Vec<(u64, u64)>,
    pub(super) list: Vec<Arc<Leaf>>,
    /// Bytes of the young pieces of each leaf; a piece that was put into several counts in equal parts.
    pub(super) young_bytes: Vec<u64>,
    pub(super) young_bytes_all: u64,
    pub(super) last_bytes_all: u64,
    /// Removals of half of a leaf's records wait in it.
    hollow: Vec<bool>,
}

impl Leaves {
    /// `list` is sorted, and begins at the least bound.
    pub(super) fn new(list: Vec<Arc<Leaf>>) -> Self {
        let heads =
            list.iter().map(|leaf| (leaf.lower.index, super::codec::head_of(&leaf.lower.key))).collect();
        let bytes = |piece: &Arc<Piece>| piece.meta.disk_bytes(piece.files().page_bytes());
        for (piece, leaves) in spread(&list) {
            piece.note_leaves(leaves);
        }
        let part = |piece: &Arc<Piece>| (bytes(piece) as f64 * piece.share_of_leaf()) as u64;
        let of_leaf = |leaf: &Arc<Leaf>| leaf.young.iter().map(part).sum();
        let young_bytes: Vec<u64> = list.iter().map(of_leaf).collect();
        let young_bytes_all = young_bytes.iter().sum();
        let last_bytes_all = list.iter().filter_map(|leaf| leaf.last.as_ref()).map(bytes).sum();
        let mut leaves =
            Self { heads, list, young_bytes, young_bytes_all, last_bytes_all, hollow: Vec::new() };
        leaves.hollow = (0..leaves.list.len()).map(|leaf| leaves.has_become_hollow(leaf)).collect();
        leaves
    }

    /// Number of the leaf in which a key would be.
    #[inline]
    pub(super) fn find(&self, index: u64, key: &[u8]) -> usize {
        let head = (index, super::codec::head_of(key));
        // Those above the head are above the key; those that equal it in the head are compared whole.
        let mut count = self.heads.partition_point(|lower| *lower <= head);
        while count > 1 && self.heads[count - 1] == head && *self.list[count - 1].lower.key > *key {
            count -= 1;
        }
        count.max(1) - 1
    }

    /// Numbers of the leaves in which the entries of a group would be: nearly always one. Keys of one index, without their
    /// tails, are never prefixes of each other.
    #[inline]
    pub(super) fn of_group(&self, index: u64, group: &[u8]) -> impl Iterator<Item = usize> + Clone {
        let first = self.find(index, group);
        let more = self.list[first + 1..]
            .iter()
            .take_while(|leaf| leaf.lower.index == index && leaf.lower.key.starts_with(group))
            .count();
        first..first + 1 + more
    }

    /// Number of keys that scans may pass in a leaf in vain: that costs them about as much as merging it would.
    pub(super) fn passes(&self, leaf: usize) -> u64 {
        /// Merging takes so many bytes in the time in which a scan passes a key.
        const BYTES_A_KEY: u64 = 256;
        let last = self.list[leaf].last.as_ref();
        let last = last.map_or(0, |piece| piece.meta.disk_bytes(piece.files().page_bytes()));
        ((self.young_bytes[leaf] + last) / BYTES_A_KEY).max(1024)
    }

    /// Have scans passed so many keys in vain that the leaf should be merged, and may that help?
    pub(super) fn is_worn(&self, leaf: usize) -> bool {
        let of = &self.list[leaf];
        !of.young.is_empty() && of.passed.load(Ordering::Relaxed) >= self.passes(leaf)
    }

    /// Do removals of half of its records wait in the leaf?
    pub(super) fn is_hollow(&self, leaf: usize) -> bool {
        self.hollow[leaf]
    }

    /// Do removals wait of half of a leaf's records, and of an extent at least? Of pieces that are in other leaves, too, what
    /// is in this one counts ([`Leaves::share_in`]): removals may all be in one place, as where the oldest rows are deleted.
    fn has_become_hollow(&self, leaf: usize) -> bool {
        let all = self.list[leaf].pieces().flat_map(|piece| &piece.meta.counts).map(|counts| counts.removals);
        let last = self.list[leaf].last.as_ref().map_or(0, |piece| piece.meta.records());
        // Nearly always it is as easy as that.
        if all.sum::<u64>() * 2 < last.max(1) {
            return false;
        }
        let (mut records, mut removals, mut bytes) = (0.0, 0.0, 0.0);
        let mut extent = 0;
        for piece in self.list[leaf].pieces() {
            let is_whole = piece.share_of_leaf() == 1.0;
            for counts in &piece.meta.counts {
                let share = if is_whole { 1.0 } else { self.share_in(leaf, piece, counts.index) };
                records += counts.records as f64 * share;
                removals += counts.removals as f64 * share;
                bytes += counts.bytes as f64 * share;
            }
            extent = EXTENT_PAGES * piece.files().page_bytes() as u64;
        }
        removals > 0.0 && removals * 2.0 >= records && removals * bytes > records * extent as f64
    }

    /// The bound at which the leaf ends.
    pub(super) fn upper(&self, leaf: usize) -> Option<&Bound> {
        self.list.get(leaf + 1).map(|next| &next.lower)
    }

    /// Which part of a young piece's entries of an index is in a leaf, about: a page that lies over several leaves counts in
    /// equal parts. Over all leaves the parts add up to one.
    pub(super) fn share_in(&self, leaf: usize, piece: &Piece, index: u64) -> f64 {
        let (lower, upper) = (&self.list[leaf].lower, self.upper(leaf));
        if lower.index > index || upper.is_some_and(|upper| upper.index < index) {
            return 0.0;
        }
        let from: &[u8] = if lower.index == index { &lower.key } else { &[] };
        let to = upper.filter(|upper| upper.index == index).map(|upper| &*upper.key);
        let Some((begin, all)) = piece.fences.beginning_between(index, from, to) else { return 0.0 };
        // Of those that begin in the leaf only the last one may go on behind it.
        let mut pages = f64::from((begin.len() as u32).saturating_sub(1));
        if let Some(last) = begin.clone().next_back() {
            pages += 1.0 / f64::from(self.leaves_of_page(leaf, piece, index, last));
        }
        let goes_on = begin.start > all.start && piece.fences.ends_behind(index, begin.start - 1, from);
        if goes_on {
            pages += 1.0 / f64::from(self.leaves_of_page(leaf, piece, index, begin.start - 1));
        }
        pages / f64::from(all.len() as u32)
    }

    /// Over how many leaves a page of a piece lies, of which this is one.
    fn leaves_of_page(&self, leaf: usize, piece: &Piece, index: u64, fence: u32) -> u32 {
        let begins_before =
            |bound: &Bound| bound.index == index && piece.fences.begins_before(index, fence, &bound.key);
        let goes_on_behind =
            |bound: &Bound| bound.index == index && piece.fences.ends_behind(index, fence, &bound.key);
        let before = self.list[..=leaf].iter().rev().take_while(|leaf| begins_before(&leaf.lower)).count();
        let behind = self.list[leaf + 1..].iter().take_while(|leaf| goes_on_behind(&leaf.lower)).count();
        (1 + before + behind) as u32
    }

    /// Puts pieces into all leaves that have a part of what lies between two bounds.
    pub(super) fn with(&self, pieces: &[(Arc<Piece>, Bound, Option<Bound>)]) -> Self {
        let mut list = self.list.clone();
        for (piece, from, to) in pieces {
            let first = self.find(from.index, &from.key);
            let prints = piece.take_prints();
            let uppers = self.list[first + 1..].iter().map(|leaf| Some(&leaf.lower)).chain([None]);
            for (leaf, upper) in list[first..].iter_mut().zip(uppers) {
                if to.as_ref().is_some_and(|to| leaf.lower >= *to) {
                    break;
                }
                let only = leaf.lower == *from && upper == to.as_ref();
                Arc::make_mut(leaf).insert(piece, if only { &prints } else { &[] });
            }
        }
        Self::new(list)
    }

    /// All pieces, each once.
    pub(super) fn pieces(&self) -> Vec<Arc<Piece>> {
        let mut pieces: Vec<_> = self.list.iter().flat_map(|leaf| leaf.pieces().cloned()).collect();
        pieces.sort_by_key(|piece| piece.meta.id);
        pieces.dedup_by_key(|piece| piece.meta.id);
        pieces
    }
}

/// Young pieces, with the number of leaves that each is in.
fn spread(leaves: &[Arc<Leaf>]) -> Vec<(&Arc<Piece>, u32)> {
    let mut spread: HashMap<u64, (&Arc<Piece>, u32)> = HashMap::new();
    for piece in leaves.iter().flat_map(|leaf| &leaf.young) {
        spread.entry(piece.meta.id).or_insert((piece, 0)).1 += 1;
    }
    spread.into_values().collect()
}

impl Version {
    /// May there be an entry of this key?
    #[inline]
    pub(super) fn may_contain(&self, index: u64, key: &[u8], hash: u64) -> bool {
        let leaf = &self.leaves.list[self.leaves.find(index, key)];
        leaf.may_contain(hash)
            || self.active.may_contain(hash)
            || self.sealed.iter().any(|sealed| match sealed {
                Sealed::Block { block, .. } => block.may_contain(hash),
                Sealed::Piece { piece, .. } => piece.filter.may_contain(hash),
                Sealed::Load { .. } => false,
            })
            || self.waiting.iter().any(|waiting| match waiting {
                WaitingBatch::Memory { waiting, .. } => waiting.find(index, key).is_some(),
                WaitingBatch::Piece { piece, .. } => piece.filter.may_contain(hash),
            })
    }

    /// May there be an entry of this group?
    pub(super) fn may_contain_group(&self, index: u64, group: &[u8], hash: u64) -> bool {
        self.leaves.of_group(index, group).any(|leaf| self.leaves.list[leaf].may_contain(hash))
            || self.active.may_contain(hash)
            || self.sealed.iter().any(|sealed| match sealed {
                Sealed::Block { block, .. } => block.may_contain(hash),
                Sealed::Piece { piece, .. } => piece.filter.may_contain(hash),
                Sealed::Load { .. } => false,
            })
            || self.waiting.iter().any(|waiting| match waiting {
                WaitingBatch::Memory { waiting, .. } => waiting.find_group(index, group).next().is_some(),
                WaitingBatch::Piece { piece, .. } => piece.filter.may_contain(hash),
            })
    }

    /// Asks the processor for what [`Version::may_contain`] will look at.
    #[inline]
    pub(super) fn prefetch(&self, index: u64, key: &[u8], hash: u64) {
        self.leaves.list[self.leaves.find(index, key)].prefetch(hash);
        self.active.prefetch_slot(hash);
    }

    /// The least number in the journal that is needed when the oldest sealed structure is in pieces: of unconfirmed
    /// batches, and of those that were written early and confirmed late.
    pub(super) fn pinned(&self) -> Option<u64> {
        let blocks = self.sealed.iter().rev().skip(1).filter_map(|sealed| match sealed {
            Sealed::Block { block, .. } => Some(block.least()),
            Sealed::Piece { .. } | Sealed::Load { .. } => None,
        });
        self.waiting_numbers().chain(blocks).chain([self.active.least()]).min()
    }

    /// Numbers in the journal of the unconfirmed batches that only it keeps.
    pub(super) fn waiting_numbers(&self) -> impl Iterator<Item = u64> {
        self.waiting.iter().filter_map(|waiting| match waiting {
            WaitingBatch::Memory { number, .. } => Some(*number),
            WaitingBatch::Piece { .. } => None,
        })
    }

    /// Memory of blocks and unconfirmed batches.
    pub(super) fn memory_bytes(&self) -> usize {
        let sealed = self.sealed.iter().map(|sealed| match sealed {
            Sealed::Block { block, .. } => block.memory_bytes(),
            Sealed::Piece { .. } | Sealed::Load { .. } => 0,
        });
        self.active.memory_bytes() + sealed.sum::<usize>() + self.waiting_bytes()
    }

    /// Memory of unconfirmed batches.
    pub(super) fn waiting_bytes(&self) -> usize {
        let waiting = self.waiting.iter().map(|waiting| match waiting {
            WaitingBatch::Memory { waiting, .. } => waiting.memory_bytes(),
            WaitingBatch::Piece { .. } => 0,
        });
        waiting.sum()
    }
}
