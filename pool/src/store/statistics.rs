//! The store's statistics.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use thermocline_base::sync::Ordering;

use super::inner::Inner;
use super::piece::Piece;
use super::types::{IndexId, Kind};
use super::version::{Sealed, Version};
use crate::frames::PoolStats;
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
    /// Reads of the device for point reads and scans; each may be of several pages. What was in a frame needed none.
    pub page_reads: u64,
    /// Pages that point reads and scans found in a frame.
    pub frame_hits: u64,
    /// Pages that they did not find there, and had read into one.
    pub frame_misses: u64,
    /// Pages that another reader was reading already.
    pub frame_joins: u64,
    /// Pages for which no frame was free: they were read past the frames.
    pub frame_bypasses: u64,
    /// Frames with pages of the store.
    pub frame_bytes: u64,
    /// Memory of what is being read past the frames for point reads and scans.
    pub read_buffer_bytes: u64,
    /// The frames in numbers: budget, and all their memory. Those of all users, if the store shares them.
    pub frames: PoolStats,
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
    /// Bytes that the page file takes of the disk, free extents counted, holes not.
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
    /// Pieces whose fences and filter were damaged when the store was opened, and were made again from the records.
    pub remade_tails: u64,
}

/// The memory of a store, as cheap to ask for as can be: without waiting for a write that is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryUse {
    /// Filters, screens included.
    pub filters: u64,
    /// Fences, and what else is kept of a piece.
    pub fences: u64,
    /// Blocks and unconfirmed batches.
    pub blocks: u64,
    /// Batches that wait for the journal and the journal's buffers; buffers of flushes and merges, and what they build;
    /// what is being read past the frames.
    pub buffers: u64,
    /// The frames with their map. Others' frames too, if the store shares them.
    pub frames: u64,
    /// The map of the SSD, its policy, and pages that wait for their slots.
    pub ssd: u64,
}

/// An index in numbers, pieces only.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct IndexStatistics {
    /// Records, those that removals elsewhere are about to remove included. Of a piece over several leaves, some of which
    /// were merged since, the rest is counted in pages: it may be wrong by what is in a page at each of them.
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
    /// Number of pages that a look for an absent key reads on average, because filters are wrong.
    pub filter_error_rate: f64,
}

impl Inner {
    /// The counts of pieces and blocks by index, both of one moment: what is flushed meanwhile counts once.
    pub(super) fn indexes_with_blocks(&self) -> BTreeMap<IndexId, IndexStatistics> {
        let version = self.current();
        let mut indexes = self.indexes_of_pieces(&version);
        let sealed = version.sealed.iter().filter_map(|sealed| match sealed {
            Sealed::Block { block, .. } => Some(block),
            Sealed::Piece { .. } | Sealed::Load { .. } => None,
        });
        for block in sealed.chain([&version.active]) {
            block.for_each_size(|index, kind, bytes| {
                let of = indexes.entry(IndexId::from_u64(index)).or_default();
                match kind {
                    Kind::Put => of.records += 1,
                    Kind::Remove | Kind::RemoveLast => of.removals += 1,
                }
                of.bytes += bytes;
            });
        }
        indexes
    }

    /// The counts of pieces by index.
    fn indexes_of_pieces(&self, version: &Version) -> BTreeMap<IndexId, IndexStatistics> {
        let page_bytes = self.files.page_bytes() as u64;
        // Of an index in a piece, the part that is not merged yet.
        let mut parts: HashMap<(u64, u64), f64> = HashMap::new();
        // Of an index, how often the filters of a leaf are wrong together, over the leaves that have some of it.
        let mut rates: HashMap<u64, (f64, u32)> = HashMap::new();
        for (number, leaf) in version.leaves.list.iter().enumerate() {
            let mut here: BTreeMap<u64, f64> = BTreeMap::new();
            for piece in leaf.pieces() {
                let rate = piece.filter.error_rate();
                piece.meta.counts.iter().for_each(|counts| *here.entry(counts.index).or_default() += rate);
            }
            for (index, rate) in here {
                let (sum, leaves) = rates.entry(index).or_default();
                (*sum, *leaves) = (*sum + rate, *leaves + 1);
            }
            for piece in &leaf.young {
                for counts in &piece.meta.counts {
                    let share = version.leaves.share_in(number, piece, counts.index);
                    *parts.entry((piece.meta.id, counts.index)).or_default() += share;
                }
            }
        }
        let mut indexes: BTreeMap<IndexId, IndexStatistics> = BTreeMap::new();
        for piece in all_pieces(version) {
            let entries: u64 = piece.meta.records() + piece.meta.removals();
            for counts in &piece.meta.counts {
                let share = parts.get(&(piece.meta.id, counts.index)).copied().unwrap_or(1.0);
                let part = |count: u64| (count as f64 * share).round() as u64;
                let of = indexes.entry(IndexId::from_u64(counts.index)).or_default();
                of.records += part(counts.records);
                of.removals += part(counts.removals);
                of.bytes += part(counts.bytes);
                of.page_bytes += counts.pages * page_bytes;
                let share = (counts.records + counts.removals) as f64 / entries.max(1) as f64;
                of.filter_bytes += (piece.filter.memory_bytes() as f64 * share) as u64;
            }
        }
        for (index, of) in &mut indexes {
            let live = of.bytes as f64 * (1.0 - of.removals as f64 / of.records.max(1) as f64);
            of.space_amplification = of.page_bytes as f64 / live.max(1.0);
            let (sum, leaves) = rates.get(&index.as_u64()).copied().unwrap_or_default();
            of.filter_error_rate = sum / f64::from(leaves.max(1));
        }
        indexes
    }

    pub(super) fn memory(&self) -> MemoryUse {
        let version = self.current();
        let (filters, fences) = self.known_memory.lock().of(&version);
        let load = |counter: &thermocline_base::sync::AtomicU64| counter.load(Ordering::Relaxed);
        MemoryUse {
            filters: filters as u64,
            fences: fences as u64,
            blocks: version.memory_bytes() as u64,
            buffers: self.files.work_bytes.load(Ordering::Relaxed)
                + load(&self.files.buffer_bytes)
                + load(&self.counters.journal_memory_bytes),
            frames: self.files.pool.memory_bytes_used(),
            ssd: self.files.device.ssd().map_or(0, |ssd| ssd.memory_bytes()),
        }
    }

    pub(super) fn statistics(&self) -> Statistics {
        let counters = &self.counters;
        let load = |counter: &thermocline_base::sync::AtomicU64| counter.load(Ordering::Relaxed);
        let version = self.current();
        let page_bytes = self.files.page_bytes() as u64;
        let pieces = all_pieces(&version);
        let of_pieces: usize = pieces.iter().map(|piece| piece.filter.memory_bytes()).sum();
        let screens: usize = version.leaves.list.iter().map(|leaf| leaf.screen_bytes()).sum();
        let filters = of_pieces + screens;
        let all = pieces.iter().map(|piece| piece.memory_bytes()).sum::<usize>() + screens;
        let journal = load(&counters.journal_bytes);
        let in_frames = self.files.pool.device_stats(self.files.in_pool);
        Statistics {
            indexes: self.indexes_of_pieces(&version),
            batches: load(&counters.batches),
            record_bytes_in: load(&counters.record_bytes_in),
            device_bytes_written: load(&self.files.bytes_written) + journal + load(&counters.manifest_bytes),
            journal_bytes_written: journal,
            journal_syncs: load(&counters.journal_syncs),
            device_bytes_read: load(&self.files.bytes_read) + in_frames.bytes_read,
            page_reads: load(&self.files.page_reads) + in_frames.reads,
            frame_hits: load(&self.files.frame_hits),
            frame_misses: in_frames.misses,
            frame_joins: in_frames.joined,
            frame_bypasses: load(&self.files.frame_bypasses),
            frame_bytes: in_frames.used_bytes,
            read_buffer_bytes: load(&self.files.buffer_bytes),
            frames: self.files.pool.stats(),
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
            file_bytes: self.files.space.taken() * EXTENT_PAGES * page_bytes,
            journal_disk_bytes: self.journal.lock().disk_bytes(),
            block_memory_bytes: version.memory_bytes() as u64,
            block_memory_bytes_max: self.memory_peak.load(Ordering::Relaxed) as u64,
            filter_memory_bytes: filters as u64,
            fence_memory_bytes: (all - filters) as u64,
            unconfirmed: version.waiting.len() as u64,
            remade_tails: load(&self.files.remade_tails),
        }
    }
}

/// The memory that the pieces of a version take: it does not change as long as the version is the same.
#[derive(Debug, Default)]
pub(super) struct KnownMemory {
    version: Weak<Version>,
    filters: usize,
    fences: usize,
}

impl KnownMemory {
    /// Bytes of the filters and of the rest of this version's, counted if it is another one than before.
    fn of(&mut self, version: &Arc<Version>) -> (usize, usize) {
        // As long as the former one is known its place is no other one's.
        if self.version.as_ptr() != Arc::as_ptr(version) {
            let (mut filters, mut pieces) = (0, 0);
            for piece in all_pieces(version) {
                filters += piece.filter.memory_bytes();
                pieces += piece.memory_bytes();
            }
            let screens: usize = version.leaves.list.iter().map(|leaf| leaf.screen_bytes()).sum();
            *self = Self {
                version: Arc::downgrade(version),
                filters: filters + screens,
                fences: pieces - filters,
            };
        }
        (self.filters, self.fences)
    }
}

/// All confirmed pieces, and those of objects, each once.
pub(super) fn all_pieces(version: &Version) -> Vec<Arc<Piece>> {
    let mut pieces = version.leaves.pieces();
    for sealed in &version.sealed {
        match sealed {
            Sealed::Piece { piece, .. } => pieces.push(Arc::clone(piece)),
            Sealed::Load { load, .. } => {
                pieces.extend(load.pieces.iter().map(|(_, piece)| Arc::clone(piece)));
            }
            Sealed::Block { .. } => {}
        }
    }
    pieces.extend(version.objects.values().map(|object| Arc::clone(&object.piece)));
    pieces
}
