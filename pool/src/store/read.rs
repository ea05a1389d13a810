//! Point reads: from the newest structure to the oldest, stopping as soon as nothing older can live (see `version`).
//!
//! A read sees the version that was current when it began, and of its active block what was published then, to its end, whatever
//! happens meanwhile: pieces live as long as a reader reads them. Of batches that were published later it would see removals of
//! entries that are not confirmed in its version, and not what those had removed.
//!
//! # Why reads of a page may be shared, though reads of a key may not
//! A read that began before a removal was confirmed may answer after it, with the removed entry. So a read of a *key* is
//! never joined to one that began earlier: each takes its own version, and with it every removal that was acknowledged
//! before it began; a removal is in the version that readers take before its batch is acknowledged. Which pages a read
//! looks at, and what they mean beside each other, is decided by that version alone.
//!
//! A *page of a piece* says the same to all readers, whenever they began: pieces are immutable. So the frames may
//! keep it, and a reader may join another one's read of it. The page must be of the piece that is meant, which holds
//! twice over: a piece's pages leave the frames, and reads of them under way lose their place there, before its
//! extents are free for another piece; and whoever pins a page compares its version, which no two pieces share.
//!
//! # Reads that do not wait
//! [`Inner::get_now`] is the same walk, which ends where a page is in no frame. It takes a version of its own like any read,
//! so an answer that it gives is as good as one that took a read of the device.
//!
//! # What a reader holds while it waits
//! Its version, and with it the pieces: no latch, no pin and no frame. A pin lives inside of [`Piece::look`], which gives
//! the page to a closure that cannot wait. A page on its way has a frame, but whoever finds none free does not wait for
//! one: it reads past the frames. So no budget is too small for any number of readers, and a future that is not polled
//! holds up no other.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use thermocline_base::sync::Ordering;

use super::block::{self, PageCursor, Value};
use super::error::{PageReason, Result};
use super::filter::hash_of;
use super::inner::Inner;
use super::memory::{MemoryBlock, MemoryEntry};
use super::piece::Piece;
use super::types::{BatchId, Found, Kind};
use super::version::{Sealed, Version, WaitingBatch};
use crate::mutation::{self, Rule};

/// Keys whose cache misses overlap.
pub(super) const TOGETHER: usize = 16;

/// The entries that a read wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Want {
    /// All live entries.
    All,
    /// The newest confirmed one.
    Newest,
}

/// The entries of a key that were found so far.
#[derive(Debug, Default)]
struct Collected {
    found: Vec<Found>,
    removed: Vec<u64>,
    /// A removal said that it was the last.
    last: bool,
    patience: Patience,
    /// The rest takes waiting, for which there is no patience.
    away: bool,
}

/// May a read wait for the device?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Patience {
    #[default]
    Waits,
    /// It ends where it would have to.
    None,
}

impl Collected {
    fn add(&mut self, batch: u64, kind: Kind, record: impl FnOnce() -> Vec<u8>) {
        match kind {
            Kind::Put => self.found.push(Found::new(BatchId(batch), true, record())),
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
        if self.away {
            return true;
        }
        let removed = &self.removed;
        self.found.retain(|found| !found.confirmed || !removed.contains(&found.batch.0));
        self.last || (want == Want::Newest && self.found.iter().any(|found| found.confirmed))
    }
}

impl Inner {
    /// Reads the entries of a key.
    pub(super) async fn get(&self, index: u64, key: &[u8], want: Want) -> Result<Vec<Found>> {
        let (version, published) = self.moment();
        let found = self.get_in((&version, published), index, key, (want, Patience::Waits)).await?;
        Ok(found.expect("who waits gets an answer"))
    }

    /// The same, as far as it goes without a read of the device. `None`: it takes one.
    pub(super) fn get_now(&self, index: u64, key: &[u8], want: Want) -> Result<Option<Vec<Found>>> {
        let (version, published) = {
            let version = self.look();
            if !version.may_contain(index, key, hash_of(index, key)) {
                return Ok(Some(Vec::new()));
            }
            (Arc::clone(&version), version.active.published())
        };
        let read = std::pin::pin!(self.get_in((&version, published), index, key, (want, Patience::None)));
        match read.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(found) => found,
            Poll::Pending => unreachable!("it has no patience"),
        }
    }

    /// Reads the entries of a key at a [moment](Self::moment). `None`: that takes waiting, and there is no patience for it.
    pub(super) async fn get_in(
        &self,
        (version, published): (&Version, usize),
        index: u64,
        key: &[u8],
        (want, patience): (Want, Patience),
    ) -> Result<Option<Vec<Found>>> {
        let hash = hash_of(index, key);
        let mut all = Collected { patience, ..Collected::default() };
        if want == Want::All && !version.waiting.is_empty() {
            self.get_waiting(version, index, key, hash, &mut all).await?;
        }
        if !self.get_memory((version, published), index, key, hash, want, &mut all).await? {
            let leaf = &version.leaves.list[version.leaves.find(index, key)];
            for piece in leaf.candidates(hash) {
                self.get_piece(piece, index, key, hash, &mut all).await?;
                if all.is_enough(want) {
                    break;
                }
            }
        }
        if all.away {
            return Ok(None);
        }
        self.counters.gets.fetch_add(1, Ordering::Relaxed);
        all.is_enough(want);
        let mut found = all.found;
        // A batch that was being confirmed may have been met twice.
        found.sort_by_key(|found| (std::cmp::Reverse(found.batch), !found.confirmed));
        found.dedup_by_key(|found| found.batch);
        if want == Want::Newest {
            found.truncate(1);
        }
        for found in &mut found {
            found.object = version.object(index, found.batch.0);
        }
        Ok(Some(found))
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
            let mut of_batch = Collected { patience: all.patience, ..Collected::default() };
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
            all.away |= of_batch.away;
            all.found.extend(of_batch.found.into_iter().map(|found| Found { confirmed: false, ..found }));
        }
        Ok(())
    }

    /// Blocks, and pieces between them. `true`: that is enough.
    async fn get_memory(
        &self,
        (version, published): (&Version, usize),
        index: u64,
        key: &[u8],
        hash: u64,
        want: Want,
        all: &mut Collected,
    ) -> Result<bool> {
        let from_block = |block: &MemoryBlock, published: usize, all: &mut Collected| {
            block.for_key(published, index, key, hash, |entry| all.add_memory(entry));
            all.is_enough(want)
        };
        if from_block(&version.active, published, all) {
            return Ok(true);
        }
        for sealed in &version.sealed {
            let enough = match sealed {
                Sealed::Block { block, .. } => from_block(block, block.published(), all),
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
            let patience = all.patience;
            let collect = |payload: &[u8]| {
                let nonsense = |what| piece.broken(index, page, PageReason::Contents(what));
                let mut cursor =
                    PageCursor::new(payload).ok_or_else(|| nonsense("its header makes no sense"))?;
                let Some(rest) = key.strip_prefix(cursor.prefix(payload)) else { return Ok(()) };
                cursor.seek(payload, key).map_err(nonsense)?;
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
                Ok(())
            };
            match patience {
                Patience::Waits => piece.look(index, page, block::DATA, collect).await?,
                Patience::None => {
                    if piece.look_now(index, page, block::DATA, collect)?.is_none() {
                        all.away = true;
                        return Ok(());
                    }
                }
            }
        }
        // Long records are left to reads that may wait.
        if all.patience == Patience::None && !long.is_empty() {
            all.away = true;
            return Ok(());
        }
        for (batch, record) in long {
            let record = piece.look_long(index, record).await?;
            all.add(batch, Kind::Put, || record);
        }
        if !met {
            self.files.false_positives.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Asks the processor for what a look for this key begins with.
    pub(super) fn prefetch(&self, index: u64, key: &[u8]) {
        self.look().prefetch(index, key, hash_of(index, key));
    }

    /// May there be an entry of the key?
    pub(super) fn may_contain(&self, index: u64, key: &[u8]) -> bool {
        let hash = hash_of(index, key);
        let version = self.look();
        version.may_contain(index, key, hash)
    }

    /// May there be entries of the keys? Answers are in the keys' order.
    pub(super) fn may_contain_all<K: AsRef<[u8]>>(&self, index: u64, keys: &[K], answers: &mut [bool]) {
        let version = self.look();
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
