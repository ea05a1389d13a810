//! What the store says about itself.

use std::collections::BTreeMap;

use thermocline_base::sync::Ordering;

use super::inner::Inner;
use super::types::IndexId;
use super::version::Sealed;
use crate::space::EXTENT_PAGES;

/// A store in numbers. Counters count from the opening.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Statistics {
    /// Each index that has something in pieces.
    pub indexes: BTreeMap<IndexId, IndexStatistics>,
    /// Batches written.
    pub batches: u64,
    /// Bytes of the keys and records of their entries.
    pub record_bytes_in: u64,
    /// Bytes written to the page file, the journal and the manifest.
    pub device_bytes_written: u64,
    /// Those of the journal.
    pub journal_bytes_written: u64,
    /// Syncs of the journal.
    pub journal_syncs: u64,
    /// Bytes read from the page file, merges included.
    pub device_bytes_read: u64,
    /// Reads of pages for point reads and scans.
    pub page_reads: u64,
    /// Reads of a page that did not hold the key.
    pub false_positives: u64,
    /// Point reads.
    pub gets: u64,
    /// Blocks that became pieces.
    pub flushes: u64,
    /// Merges.
    pub merges: u64,
    /// Records that merges have written.
    pub merged_records: u64,
    /// Leaves.
    pub leaves: u64,
    /// Pieces.
    pub pieces: u64,
    /// Young pieces of the leaf with the most.
    pub young_pieces_max: u64,
    /// Bytes of extents in use.
    pub disk_bytes: u64,
    /// Bytes of the page file.
    pub file_bytes: u64,
    /// Bytes of all journal segments.
    pub journal_disk_bytes: u64,
    /// Memory of blocks and unconfirmed batches.
    pub block_memory_bytes: u64,
    /// The most that it has been.
    pub block_memory_bytes_max: u64,
    /// Memory of filters, screens included.
    pub filter_memory_bytes: u64,
    /// Memory of fences, and of what else is kept of a piece.
    pub fence_memory_bytes: u64,
    /// Unconfirmed batches.
    pub unconfirmed: u64,
}

/// An index in numbers, pieces only.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct IndexStatistics {
    /// Records, those that removals elsewhere are about to remove included.
    pub records: u64,
    /// Removals that have not met their entries.
    pub removals: u64,
    /// Bytes of keys and records.
    pub bytes: u64,
    /// Bytes of pages.
    pub page_bytes: u64,
    /// Page bytes in relation to the bytes of what is live, as far as that is known: a removal counts as a record of
    /// average length.
    pub space_amplification: f64,
    /// Memory of filters, in parts where a filter is of several indexes.
    pub filter_bytes: u64,
    /// How many pages a look for an absent key reads on average, because filters are wrong.
    pub filter_error_rate: f64,
}

impl Inner {
    pub(super) fn statistics(&self) -> Statistics {
        let counters = &self.counters;
        let load = |counter: &thermocline_base::sync::AtomicU64| counter.load(Ordering::Relaxed);
        let version = self.current();
        let page_bytes = self.files.page_bytes() as u64;
        let sealed = version.sealed.iter().filter_map(|sealed| match sealed {
            Sealed::Piece { piece, .. } => Some(piece.clone()),
            Sealed::Block { .. } | Sealed::Load { .. } => None,
        });
        let pieces: Vec<_> = version.leaves.pieces().into_iter().chain(sealed).collect();
        let mut indexes: BTreeMap<IndexId, IndexStatistics> = BTreeMap::new();
        for piece in &pieces {
            let entries: u64 = piece.meta.records() + piece.meta.removals();
            for counts in &piece.meta.counts {
                let of = indexes.entry(IndexId::from_u64(counts.index)).or_default();
                of.records += counts.records;
                of.removals += counts.removals;
                of.bytes += counts.bytes;
                of.page_bytes += counts.pages * page_bytes;
                let share = (counts.records + counts.removals) as f64 / entries.max(1) as f64;
                of.filter_bytes += (piece.filter.memory_bytes() as f64 * share) as u64;
            }
        }
        for (index, of) in &mut indexes {
            let live = of.bytes as f64 * (1.0 - of.removals as f64 / of.records.max(1) as f64);
            of.space_amplification = of.page_bytes as f64 / live.max(1.0);
            let has = |piece: &&std::sync::Arc<super::piece::Piece>| {
                piece.meta.counts.iter().any(|counts| counts.index == index.as_u64())
            };
            let leaves =
                version.leaves.list.iter().map(|leaf| {
                    leaf.pieces().filter(has).map(|piece| piece.filter.error_rate()).sum::<f64>()
                });
            let with: Vec<f64> = leaves.filter(|rate| *rate > 0.0).collect();
            of.filter_error_rate = with.iter().sum::<f64>() / with.len().max(1) as f64;
        }
        let of_pieces: usize = pieces.iter().map(|piece| piece.filter.memory_bytes()).sum();
        let screens: usize = version.leaves.list.iter().map(|leaf| leaf.screen_bytes()).sum();
        let filters = of_pieces + screens;
        let all = pieces.iter().map(|piece| piece.memory_bytes()).sum::<usize>() + screens;
        let journal = load(&counters.journal_bytes);
        Statistics {
            indexes,
            batches: load(&counters.batches),
            record_bytes_in: load(&counters.record_bytes_in),
            device_bytes_written: load(&self.files.bytes_written) + journal + load(&counters.manifest_bytes),
            journal_bytes_written: journal,
            journal_syncs: load(&counters.journal_syncs),
            device_bytes_read: load(&self.files.bytes_read),
            page_reads: load(&self.files.page_reads),
            false_positives: load(&self.files.false_positives),
            gets: load(&counters.gets),
            flushes: load(&counters.flushes),
            merges: load(&counters.merges),
            merged_records: load(&counters.merged_records),
            leaves: version.leaves.list.len() as u64,
            pieces: pieces.len() as u64,
            young_pieces_max: version
                .leaves
                .list
                .iter()
                .map(|leaf| leaf.young.len() as u64)
                .max()
                .unwrap_or(0),
            disk_bytes: self.files.space.used() * EXTENT_PAGES * page_bytes,
            file_bytes: self.files.space.extents() * EXTENT_PAGES * page_bytes,
            journal_disk_bytes: self.journal.lock().disk_bytes(),
            block_memory_bytes: version.memory_bytes() as u64,
            block_memory_bytes_max: self.memory_peak.load(Ordering::Relaxed) as u64,
            filter_memory_bytes: filters as u64,
            fence_memory_bytes: (all - filters) as u64,
            unconfirmed: version.waiting.len() as u64,
        }
    }
}
