//! The share of each index that lies on the SSD: a piece knows its indexes' pages, the level, or the map that it has
//! saved, which of them it has.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use super::inner::Inner;
use super::piece::Piece;
use super::statistics::all_pieces;
use super::types::IndexId;
use crate::space::EXTENT_PAGES;

/// An index's pages, and those of them that are on the SSD.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SsdShare {
    /// Bytes of its pages in the page file, those of long records counted.
    pub bytes: u64,
    /// Bytes of them of which there is a copy on the SSD.
    pub ssd_bytes: u64,
}

/// Pages of a version that are on the SSD: how many of them.
pub(super) type OnSsd<'a> = dyn Fn(Range<u64>, u64) -> u64 + 'a;

impl Inner {
    /// Each index with its share, and the rest: filters and fences.
    pub(super) fn ssd_shares(&self, on_ssd: &OnSsd<'_>) -> (BTreeMap<IndexId, SsdShare>, SsdShare) {
        let version = self.current();
        let (mut shares, mut rest) = (BTreeMap::new(), SsdShare::default());
        // The pages of an object are its index's.
        let of_objects: HashMap<u64, u64> =
            version.objects.values().map(|object| (object.piece.meta.id, object.index())).collect();
        for piece in all_pieces(&version) {
            if let Some(index) = of_objects.get(&piece.meta.id) {
                let share = shares.entry(IndexId::from_u64(*index)).or_default();
                self.add(&piece, 0..piece.meta.pages, on_ssd, share);
                continue;
            }
            let mut from = 0;
            for fences in piece.fences.indexes() {
                if fences.range().is_empty() {
                    continue;
                }
                // Long records stand before the page that names them.
                let end = piece.fences.page(fences.range().end - 1) + 1;
                let share = shares.entry(IndexId::from_u64(fences.index)).or_default();
                self.add(&piece, from..end, on_ssd, share);
                from = end;
            }
            self.add(&piece, from..piece.meta.pages + piece.meta.tail_pages, on_ssd, &mut rest);
        }
        (shares, rest)
    }

    /// Adds pages of a piece, an extent's at a time: so long the level's lock is held.
    fn add(&self, piece: &Arc<Piece>, pages: Range<u32>, on_ssd: &OnSsd<'_>, share: &mut SsdShare) {
        let page_bytes = self.files.page_bytes() as u64;
        let mut page = pages.start;
        while page < pages.end {
            let (number, together) = piece.meta.locate(page);
            let count = together.min(EXTENT_PAGES).min(u64::from(pages.end - page));
            share.bytes += count * page_bytes;
            share.ssd_bytes += on_ssd(number..number + count, piece.meta.version) * page_bytes;
            page += count as u32;
        }
    }
}
