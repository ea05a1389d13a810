//! The way of a batch into the store: queue, journal, memory.
//!
//! ```text
//!   write(batch) ─► queue ─► group in the journal ─► synced ─► active block (confirmed) ─► sealed ─► pieces
//!   confirm(id)  ─►   "        "  (with the next)               waiting (not confirmed)
//!   discard(id)  ─►   "        "
//! ```
//!
//! One thread at a time takes what is in the queue, in its order, makes one group of it, makes that durable, and then lets
//! it take effect, in its order. So several batches share a sync, a decision never overtakes the batch that it is about,
//! and what a reader sees is durable; but for a confirmation, which takes effect at once and becomes durable with the next
//! group, at the latest before the block that it went into is sealed. (A crash before that leaves the batch unconfirmed,
//! and its owner decides again.)

use std::collections::HashSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use thermocline_base::sync::Ordering;

use super::error::{Result, StoreError};
use super::inner::{Control, Inner, Item, Queue};
use super::journal::Record;
use super::memory::Waiting;
use super::promise::Promise;
use super::types::{Batch, BatchId};
use super::version::{Sealed, Version, WaitingBatch};
use crate::mutation::{self, Rule};

/// A group gets no longer than this, nor than a quarter of a block in memory, unless one batch alone does.
const GROUP_BYTES_MAX: usize = 512 << 10;
const GROUP_BYTES_MIN: usize = 64 << 10;
/// Bytes in the queue at which writers wait: as many as a block in memory, within these bounds.
const QUEUE_BYTES_MAX: usize = 16 << 20;
const QUEUE_BYTES_MIN: usize = 1 << 20;
/// Sealed structures at which writers wait.
const SEALED_MAX: usize = 2;

impl Inner {
    /// Writes a batch.
    pub(super) async fn write(self: &Arc<Self>, mut batch: Batch) -> Result<()> {
        batch.shrink();
        let mut batch = Some(batch);
        let done = poll_fn(|cx| {
            if let Err(error) = self.writable() {
                return Poll::Ready(Err(error));
            }
            if let Some(full) = self.full_and_crowded() {
                // There may be space now: the next writer will know.
                self.try_again();
                return Poll::Ready(Err(full));
            }
            if self.is_crowded() {
                self.crowd.lock().push(cx.waker().clone());
                self.try_again();
                // It may have become less crowded in between.
                if self.is_crowded() {
                    return Poll::Pending;
                }
            }
            let batch = batch.take().expect("it is taken once");
            Poll::Ready(self.enqueue_batch(batch))
        })
        .await?;
        done.wait().await
    }

    fn enqueue_batch(&self, batch: Batch) -> Result<Promise<Result<()>>> {
        let id = batch.id();
        let mut queue = self.queue.lock();
        let waits = || self.current().waiting.iter().any(|waiting| waiting.id() == id);
        if queue.in_flight.contains_key(&id) || waits() {
            return Err(StoreError::BatchExists(id));
        }
        self.enqueue(&mut queue, id, Record::Written(Arc::new(batch)))
    }

    fn enqueue(&self, queue: &mut Queue, id: BatchId, record: Record) -> Result<Promise<Result<()>>> {
        if queue.closed {
            return Err(StoreError::Closed);
        }
        if let Record::Written(batch) = &record {
            queue.bytes += batch.bytes.len();
            self.files.work_bytes.fetch_add(batch.memory_bytes() as u64, Ordering::Relaxed);
        }
        queue.in_flight.entry(id).or_insert_with(|| (0, Promise::new())).0 += 1;
        let done = Promise::new();
        queue.items.push_back(Item { record, done: done.clone() });
        self.queue_signal.ring();
        Ok(done)
    }

    /// Confirms a batch.
    pub(super) async fn confirm(&self, id: BatchId) -> Result<()> {
        self.writable()?;
        let done = {
            let mut queue = self.queue.lock();
            self.enqueue(&mut queue, id, Record::Confirmed(id))?
        };
        done.wait().await
    }

    /// Discards a batch.
    pub(super) async fn discard(&self, id: BatchId) -> Result<()> {
        self.writable()?;
        let done = {
            let mut queue = self.queue.lock();
            self.enqueue(&mut queue, id, Record::Discarded(id))?
        };
        done.wait().await
    }

    /// Resolves when nothing of a batch is in flight.
    pub(super) async fn quiescent(&self, id: BatchId) {
        let promise = self.queue.lock().in_flight.get(&id).map(|(_, promise)| promise.clone());
        if let Some(promise) = promise {
            promise.wait().await;
        }
    }

    pub(super) fn is_crowded(&self) -> bool {
        if self.queue.lock().bytes > self.options.memory_bytes.clamp(QUEUE_BYTES_MIN, QUEUE_BYTES_MAX) {
            return true;
        }
        let version = self.current();
        version.sealed.len() > SEALED_MAX || self.is_behind(&version)
    }

    /// Writers do not pile up in memory what cannot be written to a full disk, nor wait for merges that have no space.
    fn full_and_crowded(&self) -> Option<StoreError> {
        let full = self.full.lock().clone()?;
        let version = self.current();
        (!version.sealed.is_empty() || self.is_behind(&version)).then_some(full)
    }

    /// Takes what is in the queue one step further. `false`: nothing was there.
    pub(super) fn step_journal(self: &Arc<Self>) -> bool {
        let mut journal = self.journal.lock();
        let group_max = (self.options.memory_bytes / 4).clamp(GROUP_BYTES_MIN, GROUP_BYTES_MAX);
        let items = {
            let mut queue = self.queue.lock();
            let mut bytes = 0;
            let mut count = 0;
            for item in &queue.items {
                if let Record::Written(batch) = &item.record {
                    if count > 0 && bytes + batch.bytes.len() > group_max {
                        break;
                    }
                    bytes += batch.bytes.len();
                }
                count += 1;
            }
            queue.bytes -= bytes;
            queue.items.drain(..count).collect::<Vec<_>>()
        };
        if items.is_empty() {
            return false;
        }
        // What was decided about while it was not there is answered without a record.
        let mut known: HashSet<BatchId> = self.current().waiting.iter().map(WaitingBatch::id).collect();
        let mut numbered = Vec::with_capacity(items.len());
        let mut durable = false;
        let failed = self.writable().err().filter(|error| !matches!(error, StoreError::Closed));
        for item in items {
            let answer = match (&failed, &item.record) {
                (Some(error), _) => Some(Err(error.clone())),
                (None, Record::Written(batch)) => {
                    if !batch.confirmed {
                        known.insert(batch.id());
                    }
                    durable = true;
                    None
                }
                (None, Record::Confirmed(id)) => {
                    let known = known.remove(id);
                    (!known).then_some(Err(StoreError::UnknownBatch(*id)))
                }
                (None, Record::Discarded(id)) => {
                    durable |= known.contains(id);
                    (!known.remove(id)).then_some(Ok(()))
                }
                (None, Record::Loaded(_)) => unreachable!("a load does not come through the queue"),
            };
            if let Some(answer) = answer {
                self.answer(item, answer);
                continue;
            }
            let number = journal.collect(&item.record);
            numbered.push((number, item));
        }
        // A confirmation that fills the block seals it, and a sealed block is durable in the journal.
        durable |= self.would_seal(&numbered);
        if durable && let Err((error, last_word)) = journal.write() {
            let error = if last_word { self.fail(error) } else { error };
            for (_, item) in numbered {
                self.answer(item, Err(error.clone()));
            }
            self.wake_crowd();
            return true;
        }
        self.counters.journal_memory_bytes.store(journal.memory_bytes() as u64, Ordering::Relaxed);
        self.counters.journal_bytes.store(journal.bytes_written, Ordering::Relaxed);
        self.counters.journal_syncs.store(journal.syncs, Ordering::Relaxed);
        journal.applied();
        let journal_bytes = journal.bytes_in_use();
        let all_durable = !journal.has_collected();
        let mut last = 0;
        for (number, item) in numbered {
            last = number;
            if mutation::off(Rule::AckAfterEffect) {
                let record = item.record.clone();
                self.answer(item, Ok(()));
                self.apply(number, &record);
                continue;
            }
            self.apply(number, &item.record);
            self.answer(item, Ok(()));
        }
        drop(journal);
        let mut control = self.control.lock();
        let active = &self.current().active;
        let long = journal_bytes > control.journal_mark + 4 * self.options.memory_bytes as u64;
        if all_durable
            && last > control.sealed_to
            && (active.batch_bytes() >= self.options.memory_bytes || long)
        {
            control.journal_mark = journal_bytes;
            self.seal(&mut control, last, 0);
        }
        drop(control);
        if self.is_spill_due() {
            self.work_signal.ring();
        }
        self.wake_crowd();
        true
    }

    /// Makes confirmations durable that no group has taken along yet.
    pub(super) fn write_collected(&self) {
        if self.failure.get().is_none()
            && let Err((error, last_word)) = self.journal.lock().write()
        {
            tracing::warn!(%error, "the last confirmations are not durable; their owners will be asked again");
            if last_word {
                self.fail(error);
            }
        }
    }

    /// May confirmations fill the active block?
    fn would_seal(&self, numbered: &[(u64, Item)]) -> bool {
        let version = self.current();
        let (mut bytes, mut entries) = (version.active.batch_bytes(), 0);
        for (_, item) in numbered {
            let Record::Confirmed(id) = &item.record else { continue };
            match version.waiting.iter().find(|waiting| waiting.id() == *id) {
                Some(WaitingBatch::Memory { waiting, .. }) => {
                    bytes += waiting.batch.memory_bytes();
                    entries += waiting.batch.len();
                }
                // Its place is between two blocks.
                Some(WaitingBatch::Piece { .. }) => return true,
                None => {}
            }
        }
        bytes >= self.options.memory_bytes || !version.active.takes(entries)
    }

    fn answer(&self, item: Item, answer: Result<()>) {
        let id = match &item.record {
            Record::Written(batch) => {
                self.files.work_bytes.fetch_sub(batch.memory_bytes() as u64, Ordering::Relaxed);
                batch.id()
            }
            Record::Confirmed(id) | Record::Discarded(id) | Record::Loaded(id) => *id,
        };
        let quiet = self.landed(id);
        item.done.keep(answer);
        if let Some(promise) = quiet {
            promise.keep(());
        }
    }

    /// Something of a batch is in flight no more. Gives the promise of those that wait for the last of it, if that
    /// was it.
    pub(super) fn landed(&self, id: BatchId) -> Option<Promise<()>> {
        let mut queue = self.queue.lock();
        let (count, _) = queue.in_flight.get_mut(&id).expect("it was counted when it came");
        *count -= 1;
        if *count > 0 {
            return None;
        }
        queue.in_flight.remove(&id).map(|(_, promise)| promise)
    }

    /// Lets a record take effect.
    pub(super) fn apply(&self, number: u64, record: &Record) {
        let mut control = self.control.lock();
        match record {
            Record::Written(batch) => {
                self.counters.batches.fetch_add(1, Ordering::Relaxed);
                self.counters.records_in.fetch_add(batch.len() as u64, Ordering::Relaxed);
                self.counters.record_bytes_in.fetch_add(batch.record_bytes(), Ordering::Relaxed);
                if batch.confirmed || mutation::off(Rule::MergeOnlyConfirmed) {
                    self.take_in(&mut control, batch, number, number);
                } else {
                    let mut version = Version::clone(&self.current());
                    let waiting = Arc::new(Waiting::new(Arc::clone(batch)));
                    version.waiting.push(WaitingBatch::Memory { waiting, number, spilling: false });
                    self.publish(version);
                }
            }
            Record::Confirmed(id) => {
                let version = self.current();
                let Some(at) = version.waiting.iter().position(|waiting| waiting.id() == *id) else { return };
                match &version.waiting[at] {
                    WaitingBatch::Memory { waiting, number: written, .. } => {
                        let forget = || {
                            let mut version = Version::clone(&self.current());
                            version.waiting.remove(at);
                            self.publish(version);
                        };
                        if mutation::off(Rule::ConfirmTakesInFirst) {
                            forget();
                            return self.take_in(&mut control, &waiting.batch, number, *written);
                        }
                        // Readers meanwhile see it twice, which is once.
                        self.take_in(&mut control, &waiting.batch, number, *written);
                        forget();
                    }
                    WaitingBatch::Piece { id, piece } => {
                        piece.confirm(number);
                        if number > control.sealed_to + 1 {
                            self.seal(&mut control, number - 1, 0);
                        }
                        control.sealed_to = number;
                        let mut version = Version::clone(&self.current());
                        version.waiting.remove(at);
                        version
                            .sealed
                            .insert(0, Sealed::Piece { id: *id, piece: Arc::clone(piece), position: number });
                        self.publish(version);
                        self.work_signal.ring();
                    }
                }
            }
            Record::Discarded(id) => {
                let mut version = Version::clone(&self.current());
                let Some(at) = version.waiting.iter().position(|waiting| waiting.id() == *id) else { return };
                if let WaitingBatch::Piece { id, piece } = version.waiting.remove(at) {
                    control.discarded.push((id, piece));
                    self.work_signal.ring();
                }
                self.publish(version);
            }
            Record::Loaded(_) => {}
        }
    }

    /// Puts a batch that was confirmed by the record `number` into the active block.
    fn take_in(&self, control: &mut Control, batch: &Arc<Batch>, number: u64, written: u64) {
        if batch.is_empty() {
            return;
        }
        let active = Arc::clone(&self.current().active);
        if !active.takes(batch.len()) {
            if active.published() == 0 {
                // A batch that is too long for any block gets one of its own length.
                let mut version = Version::clone(&self.current());
                version.active = self.new_block(batch.len());
                self.publish(version);
            } else {
                // What comes before this record is durable: it stands before it in the same group, or in earlier ones.
                self.seal(control, number - 1, batch.len());
            }
        }
        self.current().active.add(Arc::clone(batch), written);
    }
}
