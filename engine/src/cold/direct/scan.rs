//! Range reads: of primary keys block by block, of secondary keys in memory.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use thermocline_pool::store::{Direction, FoundKey, IndexId as StoreIndex, StoreError};

use super::super::store::{ColdScan, Pending};
use super::slots::Segment;
use super::{Place, Shared, is_secondary, read};

/// A range read, as the store is when each key's turn comes.
#[derive(Debug)]
pub(super) struct DirectScan {
    shared: Arc<Shared>,
    index: StoreIndex,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    direction: Direction,
    /// Slots that are left, of a primary index.
    left: VecDeque<(Arc<Segment>, Range<u32>)>,
    /// Of the block that was read last.
    ready: VecDeque<FoundKey>,
}

impl DirectScan {
    pub(super) fn new(
        shared: &Arc<Shared>,
        index: StoreIndex,
        low: &[u8],
        high: Option<&[u8]>,
        direction: Direction,
    ) -> Self {
        let left = if is_secondary(index) { VecDeque::new() } else { shared.slots_between(index, low, high) };
        Self {
            shared: Arc::clone(shared),
            index,
            low: low.to_vec(),
            high: high.map(<[u8]>::to_vec),
            direction,
            left,
            ready: VecDeque::new(),
        }
    }

    /// The slots of the next block that has taken ones.
    fn next_block(&mut self) -> Option<(Arc<Segment>, Range<u32>)> {
        let per_block = self.shared.geometry.slots_per_block();
        loop {
            let (segment, slots) = match self.direction {
                Direction::Forward => self.left.front_mut(),
                Direction::Backward => self.left.back_mut(),
            }?;
            let block = match self.direction {
                Direction::Forward => segment.next_taken(slots.clone()).map(|first| {
                    let end = (first / per_block + 1) * per_block;
                    let of_block = first..end.min(slots.end);
                    slots.start = of_block.end;
                    of_block
                }),
                Direction::Backward => segment.last_taken(slots.clone()).map(|last| {
                    let of_block = (last / per_block * per_block).max(slots.start)..last + 1;
                    slots.end = of_block.start;
                    of_block
                }),
            };
            if let Some(block) = block {
                return Some((Arc::clone(segment), block));
            }
            match self.direction {
                Direction::Forward => self.left.pop_front(),
                Direction::Backward => self.left.pop_back(),
            };
        }
    }

    async fn primary(&mut self) -> Result<Option<FoundKey>, StoreError> {
        loop {
            if let Some(found) = self.ready.pop_front() {
                return Ok(Some(found));
            }
            let Some((segment, slots)) = self.next_block() else { return Ok(None) };
            let (block, _) = self.shared.geometry.place(slots.start);
            // Those that are taken later may lie in this read as what they were before, which counts for nothing.
            let taken: Vec<u32> = slots.filter(|slot| segment.is_taken(*slot)).collect();
            let bytes = self.shared.reads.read(&segment, block).await?;
            for slot in taken {
                let place = Place { segment: Arc::clone(&segment), slot };
                let found = match self.shared.record_in(&place, &bytes) {
                    Ok(found) => found,
                    // In the making, perhaps.
                    Err(_) => self.shared.look(&place).await?,
                };
                // What was removed meanwhile has lost its bit.
                if let Some(entry) = found.filter(|_| segment.is_taken(slot)) {
                    let found = FoundKey { key: segment.key(slot), entries: vec![entry] };
                    match self.direction {
                        Direction::Forward => self.ready.push_back(found),
                        Direction::Backward => self.ready.push_front(found),
                    }
                }
            }
        }
    }

    fn secondary(&mut self) -> Result<Option<FoundKey>, StoreError> {
        if let Some(damage) = self.shared.damage(self.index) {
            return Err(damage);
        }
        if self.high.as_ref().is_some_and(|high| *high <= self.low) {
            return Ok(None);
        }
        let next = {
            let secondaries = read(&self.shared.secondaries);
            let Some(keys) = secondaries.get(&self.index) else { return Ok(None) };
            let high = self.high.as_deref().map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
            let mut range = keys.range::<[u8], _>((std::ops::Bound::Included(&self.low[..]), high));
            let next = match self.direction {
                Direction::Forward => range.next(),
                Direction::Backward => range.next_back(),
            };
            next.map(|(key, batch)| (key.clone(), *batch))
        };
        let Some((key, batch)) = next else { return Ok(None) };
        match self.direction {
            Direction::Forward => {
                self.low.clone_from(&key);
                self.low.push(0);
            }
            Direction::Backward => self.high = Some(key.clone()),
        }
        Ok(Some(FoundKey { key, entries: vec![self.shared.secondary_entry(batch)] }))
    }
}

impl ColdScan for DirectScan {
    fn next(&mut self) -> Pending<'_, Option<FoundKey>> {
        if is_secondary(self.index) {
            return Box::pin(std::future::ready(self.secondary()));
        }
        Box::pin(self.primary())
    }
}
