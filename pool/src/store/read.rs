//! Point reads: from the newest structure to the oldest, stopping as soon as nothing older can live (see `version`).
//!
//! A read sees the version that was current when it began, to its end, whatever happens meanwhile: pieces live as long as
//! somebody reads them. It is not coalesced with reads that began earlier, which may not have seen a removal (22).

use std::sync::Arc;

use thermocline_base::mutation::{self, Rule};
use thermocline_base::sync::Ordering;

use super::block::{PageCursor, Value};
use super::error::{PageReason, Result};
use super::filter::hash_of;
use super::inner::Inner;
use super::memory::{MemoryBlock, MemoryEntry};
use super::piece::Piece;
use super::types::{BatchId, Found, Kind};
use super::version::{Sealed, Version, WaitingBatch};
use crate::page::HEADER_BYTES;

/// Keys whose cache misses overlap.
const TOGETHER: usize = 16;

/// What a read is after.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Want {
    /// All live entries.
    All,
    /// The newest confirmed one.
    Newest,
}

/// What was found of a key so far.
#[derive(Debug, Default)]
struct Collected {
    found: Vec<Found>,
    removed: Vec<u64>,
    /// A removal said that it was the last.
    last: bool,
}

impl Collected {
    fn add(&mut self, batch: u64, kind: Kind, record: impl FnOnce() -> Vec<u8>) {
        match kind {
            Kind::Put => self.found.push(Found { batch: BatchId(batch), confirmed: true, record: record() }),
            kind => {
                self.removed.push(batch);
                self.last |= kind == Kind::RemoveLast;
                if mutation::off(Rule::LastEndsBehindStructure) && kind == Kind::RemoveLast {
                    self.found.clear();
                }
            }
        }
    }

    fn add_memory(&mut self, entry: MemoryEntry<'_>) {
        self.add(entry.batch, entry.kind, || entry.value.to_vec());
    }

    /// A structure is finished: may the read stop?
    fn is_enough(&mut self, want: Want) -> bool {
        let removed = &self.removed;
        self.found.retain(|found| !found.confirmed || !removed.contains(&found.batch.0));
        self.last || (want == Want::Newest && self.found.iter().any(|found| found.confirmed))
    }
}

impl Inner {
    /// Reads the entries of a key.
    pub(super) async fn get(&self, index: u64, key: &[u8], want: Want) -> Result<Vec<Found>> {
        self.counters.gets.fetch_add(1, Ordering::Relaxed);
        let version = self.current();
        let hash = hash_of(index, key);
        let mut all = Collected::default();
        if want == Want::All && !version.waiting.is_empty() {
            self.get_waiting(&version, index, key, hash, &mut all).await?;
        }
        if !self.get_memory(&version, index, key, hash, want, &mut all).await? {
            let leaf = &version.leaves.list[version.leaves.find(index, key)];
            for piece in leaf.pieces() {
                self.get_piece(piece, index, key, hash, &mut all).await?;
                if all.is_enough(want) {
                    break;
                }
            }
        }
        all.is_enough(want);
        let mut found = all.found;
        // A batch that was being confirmed may have been met twice.
        found.sort_by_key(|found| (std::cmp::Reverse(found.batch), !found.confirmed));
        found.dedup_by_key(|found| found.batch);
        if want == Want::Newest {
            found.truncate(1);
        }
        Ok(found)
    }

    /// Unconfirmed batches. Their removals have no effect yet.
    async fn get_waiting(
        &self,
        version: &Version,
        index: u64,
        key: &[u8],
        hash: u64,
        all: &mut Collected,
    ) -> Result<()> {
        for waiting in &version.waiting {
            let mut of_batch = Collected::default();
            match waiting {
                WaitingBatch::Memory { waiting, .. } => {
                    if let Some(entry) = waiting.find(index, key) {
                        of_batch.add_memory(entry);
                    }
                }
                WaitingBatch::Piece { piece, .. } => {
                    self.get_piece(piece, index, key, hash, &mut of_batch).await?;
                }
            }
            all.found.extend(of_batch.found.into_iter().map(|found| Found { confirmed: false, ..found }));
        }
        Ok(())
    }

    /// Blocks, and pieces between them. `true`: that is enough.
    async fn get_memory(
        &self,
        version: &Version,
        index: u64,
        key: &[u8],
        hash: u64,
        want: Want,
        all: &mut Collected,
    ) -> Result<bool> {
        let from_block = |block: &MemoryBlock, all: &mut Collected| {
            block.for_key(block.published(), index, key, hash, |entry| all.add_memory(entry));
            all.is_enough(want)
        };
        if from_block(&version.active, all) {
            return Ok(true);
        }
        for sealed in &version.sealed {
            let enough = match sealed {
                Sealed::Block { block, .. } => from_block(block, all),
                Sealed::Piece { piece, .. } => {
                    self.get_piece(piece, index, key, hash, all).await?;
                    all.is_enough(want)
                }
                Sealed::Load { .. } => false,
            };
            if enough {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn get_piece(
        &self,
        piece: &Arc<Piece>,
        index: u64,
        key: &[u8],
        hash: u64,
        all: &mut Collected,
    ) -> Result<()> {
        if !piece.filter.may_contain(hash) {
            return Ok(());
        }
        let mut met = false;
        let mut long = Vec::new();
        for fence in piece.fences.pages_of(index, key) {
            let page = piece.fences.page(fence);
            let bytes = piece.read_data(index, page).await?;
            let payload = &bytes[HEADER_BYTES..];
            let nonsense = |what| piece.broken(index, page, PageReason::Contents(what));
            let mut cursor = PageCursor::new(payload).ok_or_else(|| nonsense("its header makes no sense"))?;
            let Some(rest) = key.strip_prefix(cursor.prefix(payload)) else { continue };
            while let Some(entry) = cursor.next(payload).map_err(nonsense)? {
                if entry.suffix < rest {
                    continue;
                }
                if entry.suffix > rest {
                    break;
                }
                met = true;
                match entry.value {
                    Value::Inline(bytes) => all.add(entry.batch, entry.kind, || bytes.to_vec()),
                    Value::Long(record) => long.push((entry.batch, record)),
                }
            }
        }
        for (batch, record) in long {
            let record = piece.read_long(index, record).await?;
            all.add(batch, Kind::Put, || record);
        }
        if !met {
            self.files.false_positives.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// May there be an entry of the key?
    pub(super) fn may_contain(&self, index: u64, key: &[u8]) -> bool {
        let hash = hash_of(index, key);
        let version = self.version.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        version.may_contain(index, key, hash)
    }

    /// May there be entries of the keys? Answers are in the keys' order.
    pub(super) fn may_contain_all<K: AsRef<[u8]>>(&self, index: u64, keys: &[K], answers: &mut [bool]) {
        let version = self.version.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut hashes = [0; TOGETHER];
        for (keys, answers) in keys.chunks(TOGETHER).zip(answers.chunks_mut(TOGETHER)) {
            for (hash, key) in hashes.iter_mut().zip(keys) {
                *hash = hash_of(index, key.as_ref());
                version.prefetch(index, key.as_ref(), *hash);
            }
            for ((hash, key), answer) in hashes.iter().zip(keys).zip(answers) {
                *answer = version.may_contain(index, key.as_ref(), *hash);
            }
        }
    }
}
