//! Verification of everything: every page, every order, every promise of a filter.

use std::collections::BTreeMap;
use std::sync::Arc;

use thermocline_base::multiplex::block_on;

use super::error::{PageReason, Result, StoreError};
use super::filter::hash_of;
use super::inner::Inner;
use super::merge::Walk;
use super::object::Object;
use super::piece::Piece;
use super::tail::Tail;
use super::types::{BatchId, Change, IndexId};
use super::version::{Sealed, Version, WaitingBatch};
use crate::device::ReadReason;
use crate::space::ClaimError;

/// The findings of [`super::Store::verify`].
#[derive(Clone, Debug, Default)]
pub struct Verification {
    /// Pieces that were read.
    pub pieces: u64,
    /// Pages that were read.
    pub pages: u64,
    /// Entries and removals that were looked at.
    pub entries: u64,
    /// The faults; empty: there are none.
    pub problems: Vec<StoreError>,
}

/// A record that is shown.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Its index.
    pub index: IndexId,
    /// Its key.
    pub key: &'a [u8],
    /// Its batch.
    pub batch: BatchId,
    /// Its bytes; of one that stands in an object, where.
    pub record: &'a [u8],
    /// The object that it stands in.
    pub object: Option<&'a Arc<Object>>,
}

/// The function that is shown each record.
pub type Look<'a> = dyn FnMut(Seen<'_>) + 'a;

impl Inner {
    /// Reads everything that is in pieces, and shows the records that are in no piece yet, too: those of the journal. Writers and
    /// merges go on meanwhile.
    pub(super) fn verify(&self, look: &mut Look<'_>) -> Verification {
        let version = self.current();
        version.batches().for_each(|batch| {
            for entry in batch.entries() {
                if let Change::Put(record) = entry.change {
                    look(Seen {
                        index: entry.index,
                        key: entry.key,
                        batch: batch.id(),
                        record,
                        object: None,
                    });
                }
            }
        });
        let waiting = version.waiting.iter().filter_map(|waiting| match waiting {
            WaitingBatch::Piece { piece, .. } => Some(Arc::clone(piece)),
            WaitingBatch::Memory { .. } => None,
        });
        let sealed = version.sealed.iter().filter_map(|sealed| match sealed {
            Sealed::Piece { piece, .. } => Some(Arc::clone(piece)),
            Sealed::Block { .. } | Sealed::Load { .. } => None,
        });
        let mut all = Verification::default();
        let mut extents: BTreeMap<u64, u64> = BTreeMap::new();
        let in_leaves = version.leaves.pieces().into_iter().map(|piece| (piece, true));
        let entries = in_leaves.chain(sealed.chain(waiting).map(|piece| (piece, false)));
        let objects = version.objects.values().map(|object| (Arc::clone(&object.piece), Some(object)));
        let entries = entries.map(|(piece, in_leaves)| (piece, in_leaves, None));
        for (piece, in_leaves, object) in entries.chain(objects.map(|(piece, object)| (piece, false, object)))
        {
            all.pieces += 1;
            for run in &piece.meta.runs {
                for extent in run.first..run.first + run.count {
                    if extents.insert(extent, piece.meta.id).is_some() {
                        all.problems.push(StoreError::Claim(ClaimError::Twice { extent }));
                    }
                }
            }
            let verified = match object {
                Some(object) => {
                    all.pages += u64::from(piece.meta.pages);
                    block_on(object.verify())
                }
                None => self.verify_piece(&version, (&piece, in_leaves), look, &mut all),
            };
            if let Err(error) = verified {
                all.problems.push(error);
            }
        }
        all
    }

    fn verify_piece(
        &self,
        version: &Version,
        (piece, in_leaves): (&Arc<Piece>, bool),
        look: &mut Look<'_>,
        all: &mut Verification,
    ) -> Result<()> {
        // The tail is read again: what memory holds of it proves nothing about the disk.
        match Tail::load(&self.files, &piece.meta, ReadReason::Verify) {
            Ok(tail) if tail.fences == piece.fences && tail.filter == piece.filter => {}
            Ok(_) => {
                let number = piece.meta.locate(piece.meta.pages).0;
                let reason = PageReason::Contents("its fences or filter are not those in memory");
                all.problems.push(StoreError::Tail { number, reason });
            }
            Err(error) => all.problems.push(error),
        }
        let wrong = |index, page, what| Err(piece.broken(index, page, PageReason::Contents(what)));
        let mut walk = Walk::to_verify(piece);
        let mut before: Option<(u64, Vec<u8>, std::cmp::Reverse<u64>, super::types::Kind)> = None;
        let mut counts: BTreeMap<u64, (u64, u64, u64)> = BTreeMap::new();
        while walk.advance()? {
            let entry = walk.current();
            all.entries += 1;
            let order = (entry.index, entry.key.to_vec(), std::cmp::Reverse(entry.batch), entry.kind);
            if before.as_ref().is_some_and(|before| *before >= order) {
                return wrong(entry.index, walk.page(), "its entries are not in order");
            }
            if !piece.filter.may_contain(hash_of(entry.index, entry.key)) {
                return wrong(entry.index, walk.page(), "the filter says no to an entry that is there");
            }
            let mut pages =
                piece.fences.pages_of(entry.index, entry.key).map(|fence| piece.fences.page(fence));
            if !pages.any(|page| page == walk.page()) {
                return wrong(
                    entry.index,
                    walk.page(),
                    "the fences lead elsewhere for an entry that is there",
                );
            }
            let of = counts.entry(entry.index).or_default();
            if entry.kind.is_removal() {
                of.1 += 1;
            } else {
                of.0 += 1;
                of.2 += (entry.key.len() + entry.value.len()) as u64;
                let object = version.objects.get(&entry.batch).filter(|object| object.is_of(entry.index));
                // Where it was merged already, what it says of a record is void, and the record's object may have gone.
                let leaf = &version.leaves.list[version.leaves.find(entry.index, entry.key)];
                if !in_leaves || leaf.pieces().any(|other| Arc::ptr_eq(other, piece)) {
                    look(Seen {
                        index: IndexId::from_u64(entry.index),
                        key: entry.key,
                        batch: BatchId(entry.batch),
                        record: entry.value,
                        object,
                    });
                }
            }
            before = Some(order);
        }
        for expected in &piece.meta.counts {
            let found = counts.remove(&expected.index).unwrap_or_default();
            if found != (expected.records, expected.removals, expected.bytes) {
                return wrong(expected.index, 0, "the manifest counts other entries than there are");
            }
        }
        all.pages += u64::from(piece.meta.pages + piece.meta.tail_pages);
        if counts.is_empty() {
            Ok(())
        } else {
            wrong(0, 0, "it has entries of an index that the manifest does not name")
        }
    }
}

impl Verification {
    /// Is everything as it should be?
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    /// The indexes that a problem names.
    #[must_use]
    pub fn damaged_indexes(&self) -> Vec<IndexId> {
        let mut indexes: Vec<IndexId> = self
            .problems
            .iter()
            .filter_map(|problem| match problem {
                StoreError::Page { index, .. } => Some(*index),
                _ => None,
            })
            .collect();
        indexes.sort_unstable();
        indexes.dedup();
        indexes
    }
}
