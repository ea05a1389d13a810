//! A cold store that a scenario can slow down: writes that are under way until they are let land, and reads that have
//! copied what they found and answer later. It keeps the rules of [`crate::cold::store`], and no more than those.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::ops::Bound;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use thermocline_base::ids::TableId;
use thermocline_base::sync::Mutex;
use thermocline_pool::store::{
    Batch, BatchId, Change, Direction, Found, FoundKey, IndexId as StoreIndex, StoreError,
};

use crate::cold::store::{ColdScan, ColdStore, Entries, Look, Pending, StoreUsage, behind};

type Kept = BTreeMap<(StoreIndex, Vec<u8>), Vec<(BatchId, Vec<u8>)>>;

#[derive(Debug, Default)]
struct State {
    entries: Kept,
    unconfirmed: BTreeMap<BatchId, Batch>,
    /// Writes that are under way.
    queue: Vec<Batch>,
    /// Writes stay under way until they are let land.
    slow_writes: bool,
    /// Reads that have found something answer later.
    slow_reads: bool,
    /// Looks answer without waiting.
    answers_at_once: bool,
    wakers: Vec<Waker>,
}

/// The store.
#[derive(Clone, Debug, Default)]
pub(super) struct SlowStore(Arc<Mutex<State>>);

impl State {
    fn land(&mut self, batch: Batch) {
        for entry in batch.entries() {
            match entry.change {
                Change::Put(record) => {
                    let key = (entry.index, entry.key.to_vec());
                    self.entries.entry(key).or_default().push((batch.id(), record.to_vec()));
                }
                Change::Remove(of, _) => self.remove(entry.index, entry.key, of),
            }
        }
        if !batch.is_confirmed() {
            self.unconfirmed.insert(batch.id(), batch);
        }
    }

    fn remove(&mut self, index: StoreIndex, key: &[u8], of: BatchId) {
        let key = (index, key.to_vec());
        if let Some(records) = self.entries.get_mut(&key) {
            records.retain(|(batch, _)| *batch != of);
            if records.is_empty() {
                self.entries.remove(&key);
            }
        }
    }

    fn found(&self, records: &[(BatchId, Vec<u8>)]) -> Vec<Found> {
        let found = |(batch, record): &(BatchId, Vec<u8>)| {
            Found::new(*batch, !self.unconfirmed.contains_key(batch), record.clone())
        };
        records.iter().map(found).collect()
    }

    /// The keys of a range, in order.
    fn range(&self, index: StoreIndex, low: &[u8], high: Option<&[u8]>) -> Vec<FoundKey> {
        let keys = self.entries.range((Bound::Included((index, low.to_vec())), Bound::Unbounded));
        keys.take_while(|((of, key), _)| *of == index && high.is_none_or(|high| &**key < high))
            .map(|((_, key), records)| FoundKey { key: key.clone(), entries: self.found(records) })
            .collect()
    }

    fn wake(&mut self) {
        std::mem::take(&mut self.wakers).into_iter().for_each(Waker::wake);
    }

    fn wait<T>(&mut self, context: &Context<'_>) -> Poll<T> {
        self.wakers.push(context.waker().clone());
        Poll::Pending
    }
}

impl SlowStore {
    /// Writes are under way until [`SlowStore::let_land`].
    pub(super) fn slow_writes(&self) {
        self.0.lock().slow_writes = true;
    }

    /// What is under way lands, and later writes at once.
    pub(super) fn let_land(&self) {
        let mut state = self.0.lock();
        state.slow_writes = false;
        for batch in std::mem::take(&mut state.queue) {
            state.land(batch);
        }
        state.wake();
    }

    /// Reads that find something answer only after [`SlowStore::let_answer`].
    pub(super) fn slow_reads(&self) {
        self.0.lock().slow_reads = true;
    }

    /// Looks answer within the step, as a store does that has the record in memory.
    pub(super) fn answer_at_once(&self) {
        self.0.lock().answers_at_once = true;
    }

    /// Reads answer.
    pub(super) fn let_answer(&self) {
        let mut state = self.0.lock();
        state.slow_reads = false;
        state.wake();
    }

    /// Answers with what was found, at once or later.
    fn answer<T: Send + Unpin + 'static>(&self, found: Vec<T>) -> Pending<'static, Vec<T>> {
        let (store, mut found) = (self.clone(), Some(found));
        Box::pin(poll_fn(move |context| {
            let mut state = store.0.lock();
            if state.slow_reads && found.as_ref().is_some_and(|found| !found.is_empty()) {
                return state.wait(context);
            }
            Poll::Ready(Ok(found.take().expect("an answer is given once")))
        }))
    }
}

impl ColdStore for SlowStore {
    fn takes_blocks(&self) -> bool {
        true
    }

    fn write(&self, batch: Batch) -> Pending<'static, ()> {
        let (store, id, mut batch) = (self.clone(), batch.id(), Some(batch));
        Box::pin(poll_fn(move |context| {
            let mut state = store.0.lock();
            if let Some(batch) = batch.take() {
                state.queue.push(batch);
            }
            if !state.slow_writes {
                for batch in std::mem::take(&mut state.queue) {
                    state.land(batch);
                }
                state.wake();
            }
            match state.queue.iter().any(|batch| batch.id() == id) {
                true => state.wait(context),
                false => Poll::Ready(Ok(())),
            }
        }))
    }

    fn confirm(&self, batch: BatchId) -> Pending<'static, ()> {
        let store = self.clone();
        Box::pin(async move {
            let known = store.0.lock().unconfirmed.remove(&batch);
            known.map(drop).ok_or(StoreError::UnknownBatch(batch))
        })
    }

    fn discard(&self, batch: BatchId) -> Pending<'static, ()> {
        let store = self.clone();
        Box::pin(async move {
            let mut state = store.0.lock();
            if let Some(batch) = state.unconfirmed.remove(&batch) {
                batch.entries().for_each(|entry| state.remove(entry.index, entry.key, batch.id()));
            }
            Ok(())
        })
    }

    fn quiescent(&self, batch: BatchId) -> Pending<'static, ()> {
        let store = self.clone();
        Box::pin(poll_fn(move |context| {
            let mut state = store.0.lock();
            match state.queue.iter().any(|queued| queued.id() == batch) {
                true => state.wait(context),
                false => Poll::Ready(Ok(())),
            }
        }))
    }

    fn unconfirmed(&self) -> Vec<BatchId> {
        self.0.lock().unconfirmed.keys().copied().collect()
    }

    fn may_contain(&self, index: StoreIndex, key: &[u8]) -> bool {
        self.0.lock().entries.contains_key(&(index, key.to_vec()))
    }

    fn may_contain_group(&self, index: StoreIndex, key: &[u8]) -> bool {
        self.may_contain_range(index, key, behind(key).as_deref())
    }

    fn may_contain_range(&self, index: StoreIndex, low: &[u8], high: Option<&[u8]>) -> bool {
        !self.0.lock().range(index, low, high).is_empty()
    }

    fn look(&self, index: StoreIndex, key: &[u8], entries: &mut Entries) -> Look {
        let state = self.0.lock();
        let Some(records) = state.entries.get(&(index, key.to_vec())) else { return Look::Absent };
        if !state.answers_at_once {
            return Look::Away;
        }
        records.iter().for_each(|(batch, record)| entries.push(*batch, key, record));
        Look::Here
    }

    fn get(&self, index: StoreIndex, key: &[u8]) -> Pending<'static, Vec<Found>> {
        let found = {
            let state = self.0.lock();
            state.entries.get(&(index, key.to_vec())).map_or(Vec::new(), |records| state.found(records))
        };
        self.answer(found)
    }

    fn get_group(&self, index: StoreIndex, key: &[u8]) -> Pending<'static, Vec<FoundKey>> {
        let found = self.0.lock().range(index, key, behind(key).as_deref());
        self.answer(found)
    }

    fn scan(
        &self,
        index: StoreIndex,
        low: &[u8],
        high: Option<&[u8]>,
        direction: Direction,
    ) -> Box<dyn ColdScan> {
        let (low, high) = (low.to_vec(), high.map(<[u8]>::to_vec));
        Box::new(SlowScan { store: self.clone(), index, low, high, direction })
    }

    fn may_contain_table(&self, table: TableId) -> bool {
        self.0.lock().entries.keys().any(|(index, _)| index.table == table.0)
    }

    fn drop_index(&self, index: StoreIndex) {
        self.0.lock().entries.retain(|(of, _), _| *of != index);
    }

    fn retain(&self, is_wanted: &dyn Fn(StoreIndex) -> bool) {
        self.0.lock().entries.retain(|(of, _), _| is_wanted(*of));
    }

    fn usage(&self) -> StoreUsage {
        StoreUsage::default()
    }

    fn close(&self) {}
}

/// A range read: key by key, each as it is when its turn comes.
#[derive(Debug)]
struct SlowScan {
    store: SlowStore,
    index: StoreIndex,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    direction: Direction,
}

impl ColdScan for SlowScan {
    fn next(&mut self) -> Pending<'_, Option<FoundKey>> {
        let mut found = self.store.0.lock().range(self.index, &self.low, self.high.as_deref());
        let next = match self.direction {
            Direction::Forward => found.into_iter().next(),
            Direction::Backward => found.pop(),
        };
        if let Some(next) = &next {
            match self.direction {
                Direction::Forward => self.low = [&*next.key, &[0]].concat(),
                Direction::Backward => self.high = Some(next.key.clone()),
            }
        }
        let answer = self.store.answer(next.into_iter().collect());
        Box::pin(async move { Ok(answer.await?.pop()) })
    }
}
