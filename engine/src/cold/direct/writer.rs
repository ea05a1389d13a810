//! What the store's thread does with what is asked for, a group at a time: see the drawing in the module above.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use thermocline_base::io::{AlignedBytes, Buffer, Completion, Operation};
use thermocline_base::multiplex::block_on;
use thermocline_base::sync::Ordering;
use thermocline_pool::store::{Batch, BatchId, Change, IndexId as StoreIndex, StoreError};

use super::super::store::split_secondary;
use super::decisions::{Decision, Decisions, Removed};
use super::slots::{Body, Segment, SegmentId};
use super::{Item, Place, Promise, Shared, Table, Task, Waiting, is_secondary, number_of, read, write};

/// Tasks of a group, at most.
const GROUP_MAX: usize = 64;

/// What only the writing side has.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) decisions: Decisions,
    pub(super) next_stamp: u64,
    /// The file of decisions is replaced when it is this long, in bytes, and never while it is shorter than the other number.
    pub(super) replace_at: u64,
    pub(super) replace_least: u64,
}

/// A batch on its way.
#[derive(Debug)]
struct Written {
    stamp: u64,
    id: BatchId,
    confirmed: bool,
    places: Vec<Place>,
    tails: Vec<(StoreIndex, Vec<u8>)>,
    removals: Vec<Removed>,
}

/// What a task of the group comes to.
#[derive(Debug)]
enum Outcome {
    Written(Written),
    Confirmed(BatchId),
    Discarded(BatchId),
}

/// A task that is being done, with who waits for it.
type Asked = (BatchId, Promise<Result<(), StoreError>>, Outcome);

/// Blocks that are being changed: by segment and number.
type Blocks = BTreeMap<(SegmentId, u64), (Arc<Segment>, AlignedBytes)>;

impl Shared {
    /// The thread's life.
    pub(super) fn work(self: &Arc<Self>) {
        let _ = self.worker.set(std::thread::current());
        // Who puts something into the queue unparks this thread afterwards: it is seen here, or ends the next sleep.
        while self.step() || !self.queue.lock().closed {
            if self.queue.lock().items.is_empty() && !self.queue.lock().closed {
                std::thread::park();
            }
        }
    }

    /// Takes a group from the queue and does it. `false`: there was none.
    pub(super) fn step(&self) -> bool {
        let mut writer = self.writer.lock();
        let writer = writer.as_mut().expect("the store is open");
        let items: Vec<Item> = {
            let mut queue = self.queue.lock();
            let count = queue.items.len().min(GROUP_MAX);
            queue.items.drain(..count).collect()
        };
        if items.is_empty() {
            return false;
        }
        self.do_group(writer, items);
        if self.queue.lock().items.is_empty() {
            self.tidy(writer);
        }
        true
    }

    fn answer(&self, id: BatchId, item: &Promise<Result<(), StoreError>>, answer: Result<(), StoreError>) {
        let over = {
            let mut queue = self.queue.lock();
            let (count, promise) = queue.in_flight.get_mut(&id).expect("what is in the queue is in flight");
            *count -= 1;
            let over = (*count == 0).then(|| promise.clone());
            if over.is_some() {
                queue.in_flight.remove(&id);
            }
            over
        };
        item.keep(answer);
        if let Some(promise) = over {
            promise.keep(());
        }
    }

    fn do_group(&self, writer: &mut Writer, items: Vec<Item>) {
        let mut blocks = Blocks::new();
        // Slots and batches that this group takes.
        let mut claimed: HashMap<(SegmentId, u32), BatchId> = HashMap::new();
        let mut fresh: HashSet<BatchId> = HashSet::new();
        let mut decided: HashSet<BatchId> = HashSet::new();
        let mut outcomes: Vec<Asked> = Vec::new();
        for Item { task, done } in items {
            let id = task.batch();
            let known = |id: &BatchId| read(&self.waiting).contains_key(id) && !decided.contains(id);
            let outcome = match task {
                Task::Write(_) if known(&id) || fresh.contains(&id) => Err(StoreError::BatchExists(id)),
                Task::Write(batch) => {
                    fresh.insert(id);
                    let stamp = writer.next_stamp;
                    writer.next_stamp += 1;
                    self.put(&batch, stamp, &mut blocks, &mut claimed).map(|w| Some(Outcome::Written(w)))
                }
                Task::Confirm(id) if known(&id) => Ok(Some(Outcome::Confirmed(id))),
                Task::Confirm(id) => Err(StoreError::UnknownBatch(id)),
                Task::Discard(id) if known(&id) => Ok(Some(Outcome::Discarded(id))),
                Task::Discard(_) => Ok(None),
            };
            match outcome {
                Ok(Some(outcome)) => {
                    if !matches!(outcome, Outcome::Written(_)) {
                        decided.insert(id);
                    }
                    outcomes.push((id, done, outcome));
                }
                Ok(None) => self.answer(id, &done, Ok(())),
                Err(error) => self.answer(id, &done, Err(error)),
            }
        }
        if outcomes.is_empty() {
            return;
        }
        let durable = self.make_durable(writer, blocks, &outcomes);
        if let Err(error) = durable {
            for (id, done, _) in outcomes {
                self.answer(id, &done, Err(error.clone()));
            }
            return;
        }
        let removals: Vec<_> =
            outcomes.iter().flat_map(|(_, _, outcome)| self.removals_of(outcome)).collect();
        for (_, _, outcome) in &mut outcomes {
            self.apply(outcome);
        }
        self.remove(removals);
        for (id, done, _) in outcomes {
            self.answer(id, &done, Ok(()));
        }
    }

    /// Lays the records of a batch into the blocks of their slots.
    fn put(
        &self,
        batch: &Batch,
        stamp: u64,
        blocks: &mut Blocks,
        claimed: &mut HashMap<(SegmentId, u32), BatchId>,
    ) -> Result<Written, StoreError> {
        let mut bodies: BTreeMap<(u32, &[u8]), Body> = BTreeMap::new();
        let mut written = Written {
            stamp,
            id: batch.id(),
            confirmed: batch.is_confirmed(),
            places: Vec::new(),
            tails: Vec::new(),
            removals: Vec::new(),
        };
        for entry in batch.entries() {
            let index = entry.index;
            let refused = |what| StoreError::Unsupported { index, what };
            match entry.change {
                Change::Put(record) if !is_secondary(index) => {
                    number_of(entry.key)
                        .filter(|_| index.index == 0)
                        .ok_or(refused("a direct store keeps tables whose primary key is one integer"))?;
                    if bodies.insert((index.table, entry.key), Body::new(record)).is_some() {
                        return Err(refused("a batch puts one record into a slot"));
                    }
                }
                Change::Put(_) => {}
                Change::Remove(named, _) => {
                    let key = entry.key.to_vec();
                    written.removals.push(Removed { index, key, batch: named });
                }
            }
        }
        for entry in batch.entries() {
            let (Change::Put(_), true) = (entry.change, is_secondary(entry.index)) else { continue };
            let refused = |what| StoreError::Unsupported { index: entry.index, what };
            let of = split_secondary(entry.key).map(|(_, primary)| (entry.index.table, primary));
            let body = of.and_then(|of| bodies.get_mut(&of));
            let body =
                body.ok_or(refused("a direct store keeps a secondary entry with its record, in one batch"))?;
            if !body.add(entry.index.index, entry.key) {
                return Err(refused("a direct store keeps up to 63 secondary entries with a record"));
            }
            written.tails.push((entry.index, entry.key.to_vec()));
        }
        // Everything that can be refused is, before any block is changed.
        let max_bytes = self.geometry.body_max();
        let mut mine = Vec::new();
        for ((table, key), body) in &bodies {
            let index = StoreIndex { table: *table, index: 0 };
            if body.bytes.len() > max_bytes {
                return Err(StoreError::RecordTooLong { bytes: body.bytes.len(), max_bytes });
            }
            let place = self.place_to_write(index, key)?;
            let at = (place.segment.id, place.slot);
            if let Some(predecessor) = claimed.get(&at).copied() {
                return Err(StoreError::Occupied { index, predecessor });
            }
            if place.segment.is_taken(place.slot) {
                return Err(self.occupied(index, &place));
            }
            mine.push(at);
            written.places.push(place);
        }
        for place in &written.places {
            self.block_of(place, blocks)?;
        }
        claimed.extend(mine.into_iter().map(|at| (at, batch.id())));
        for (place, body) in written.places.iter().zip(bodies.values()) {
            let (number, at) = self.geometry.place(place.slot);
            let (segment, block) = blocks.get_mut(&(place.segment.id, number)).expect("it was read");
            segment.encode(place.slot, stamp, batch.id(), body, &mut block[at..]);
        }
        Ok(written)
    }

    /// Who has a slot.
    fn occupied(&self, index: StoreIndex, place: &Place) -> StoreError {
        let (number, at) = self.geometry.place(place.slot);
        let block = match block_on(place.segment.read_block(number)) {
            Ok(block) => block,
            Err(error) => return error,
        };
        match place.segment.decode(place.slot, &block[at..]) {
            Ok(Some(slot)) => StoreError::Occupied { index, predecessor: slot.batch },
            Ok(None) => place.segment.damaged(place.slot, "a record that should be there is not"),
            Err(broken) => place.segment.damaged(place.slot, broken.what),
        }
    }

    /// The place of a key, whose file is created if there is none.
    fn place_to_write(&self, index: StoreIndex, key: &[u8]) -> Result<Place, StoreError> {
        let (number, key_len) = number_of(key).expect("it was asked before");
        let slots = u64::from(self.geometry.segment_slots);
        let other = {
            let tables = read(&self.tables);
            let table = tables.get(&index.table);
            if let Some(segment) = table.and_then(|table| table.segments.get(&(number / slots)))
                && segment.id.key_len == key_len
            {
                return Ok(Place { segment: Arc::clone(segment), slot: (number % slots) as u32 });
            }
            table.is_some_and(|table| table.key_len != key_len)
        };
        if other {
            let what = "the keys of a direct store's table have one length";
            return Err(StoreError::Unsupported { index, what });
        }
        let id = SegmentId { table: index.table, key_len, segment: number / slots };
        let segment = Arc::new(Segment::create(&*self.io, &self.dir, id, self.geometry)?);
        let mut tables = write(&self.tables);
        let table = tables.entry(index.table).or_insert_with(|| Table::new(key_len));
        table.segments.insert(id.segment, Arc::clone(&segment));
        drop(tables);
        self.new_files.lock().push(id);
        Ok(Place { segment, slot: (number % slots) as u32 })
    }

    /// Reads the block of a place, unless it has been.
    fn block_of(&self, place: &Place, blocks: &mut Blocks) -> Result<(), StoreError> {
        let (number, _) = self.geometry.place(place.slot);
        let at = (place.segment.id, number);
        if let std::collections::btree_map::Entry::Vacant(entry) = blocks.entry(at) {
            let block = block_on(place.segment.read_block(number))?;
            entry.insert((Arc::clone(&place.segment), block));
        }
        Ok(())
    }

    /// Writes blocks, all at once, and gives the segments that were written to.
    fn write_blocks(&self, blocks: Blocks) -> Result<Vec<Arc<Segment>>, StoreError> {
        let written: Vec<_> =
            blocks.iter().map(|((_, number), (segment, _))| (Arc::clone(segment), *number)).collect();
        let mut segments: Vec<Arc<Segment>> = Vec::new();
        let mut under_way: Vec<Completion> = Vec::new();
        for ((_, number), (segment, block)) in blocks {
            self.counters.bytes_written.fetch_add(block.len() as u64, Ordering::Relaxed);
            let (offset, buffer) = (Segment::offset_of(number), Buffer::from(block));
            under_way.push(segment.file.submit(Operation::Write { offset, buffer }));
            if segments.last().is_none_or(|last| last.id != segment.id) {
                segments.push(segment);
            }
        }
        let mut result = Ok(());
        for write in under_way {
            if let Err(error) = write.wait().result {
                result = Err(error);
            }
        }
        // If some of them have failed, nobody knows what is there.
        self.reads.forget(written.iter().map(|(segment, number)| (segment, *number)));
        result?;
        Ok(segments)
    }

    /// Steps 1 and 2.
    fn make_durable(
        &self,
        writer: &mut Writer,
        blocks: Blocks,
        outcomes: &[Asked],
    ) -> Result<(), StoreError> {
        if let Some(failure) = self.failure.get() {
            return Err(StoreError::ReadOnly(Box::new(failure.clone())));
        }
        for segment in self.write_blocks(blocks)? {
            segment.file.sync_data().map_err(|error| self.fail(error.into()))?;
        }
        let waiting = read(&self.waiting);
        let stamp_of = |id: &BatchId| waiting[id].stamp;
        let new_files = self.new_files.lock().clone();
        let decided = outcomes.iter().map(|(_, _, outcome)| match outcome {
            Outcome::Written(written) => Decision::Written {
                stamp: written.stamp,
                batch: written.id,
                confirmed: written.confirmed,
                removals: written.removals.clone(),
            },
            Outcome::Confirmed(id) => Decision::Confirmed { stamp: stamp_of(id) },
            Outcome::Discarded(id) => Decision::Discarded { stamp: stamp_of(id) },
        });
        let decisions: Vec<_> = new_files.iter().copied().map(Decision::File).chain(decided).collect();
        drop(waiting);
        let before = writer.decisions.bytes_written;
        let appended = writer.decisions.append(&decisions);
        self.counters.bytes_written.fetch_add(writer.decisions.bytes_written - before, Ordering::Relaxed);
        if appended.is_ok() {
            // Only this thread makes files: those behind are none yet.
            self.new_files.lock().drain(..new_files.len());
        }
        appended.map_err(|(error, is_final)| if is_final { self.fail(error) } else { error })
    }

    /// From now on the store is read-only.
    pub(super) fn fail(&self, error: StoreError) -> StoreError {
        tracing::error!(%error, "the direct store is read-only from now on");
        let _ = self.failure.set(error.clone());
        StoreError::ReadOnly(Box::new(error))
    }

    /// What goes by a task that is durable.
    fn removals_of(&self, outcome: &Outcome) -> Vec<Removed> {
        match outcome {
            Outcome::Written(written) if written.confirmed => written.removals.clone(),
            Outcome::Written(_) => Vec::new(),
            Outcome::Confirmed(id) => {
                read(&self.waiting).get(id).map_or(Vec::new(), |waiting| waiting.removals.clone())
            }
            Outcome::Discarded(id) => {
                let waiting = read(&self.waiting);
                let Some(of) = waiting.get(id) else { return Vec::new() };
                let records = of.places.iter().map(|place| {
                    let index = StoreIndex { table: place.segment.id.table, index: 0 };
                    Removed { index, key: place.segment.key(place.slot), batch: *id }
                });
                let tails = of.tails.iter();
                let tails = tails.map(|(index, key)| Removed { index: *index, key: key.clone(), batch: *id });
                records.chain(tails).collect()
            }
        }
    }

    /// Step 4, for what is new or decided.
    fn apply(&self, outcome: &mut Outcome) {
        match outcome {
            Outcome::Written(written) => {
                let (stamp, id) = (written.stamp, written.id);
                let places = std::mem::take(&mut written.places);
                let tails = std::mem::take(&mut written.tails);
                // Known as unconfirmed before anything of it can be found.
                if !written.confirmed {
                    let (places, tails) = (places.clone(), tails.clone());
                    let removals = std::mem::take(&mut written.removals);
                    write(&self.waiting).insert(id, Waiting { stamp, places, tails, removals });
                }
                let mut live = self.live.lock();
                for place in &places {
                    live.add(stamp, id, place.segment.id.table);
                    place.segment.take(place.slot, id, true);
                }
                drop(live);
                let mut secondaries = write(&self.secondaries);
                for (index, key) in tails {
                    secondaries.entry(index).or_default().insert(key, id);
                }
            }
            Outcome::Confirmed(id) => drop(write(&self.waiting).remove(id)),
            Outcome::Discarded(id) => {
                let (places, tails) = {
                    let waiting = read(&self.waiting);
                    waiting.get(id).map_or_else(Default::default, |of| (of.places.clone(), of.tails.clone()))
                };
                places.iter().for_each(|place| place.segment.free(place.slot));
                self.forget(&tails, *id);
                // Last: what can still be found of it is known as unconfirmed.
                write(&self.waiting).remove(id);
            }
        }
    }

    /// Takes secondary entries of a batch out of memory.
    fn forget(&self, tails: &[(StoreIndex, Vec<u8>)], batch: BatchId) {
        let mut secondaries = write(&self.secondaries);
        for (index, key) in tails {
            if let Some(keys) = secondaries.get_mut(index)
                && keys.get(key) == Some(&batch)
            {
                keys.remove(key);
            }
        }
    }

    /// Step 3: entries that are gone, durably, leave their slots. What cannot be written is kept from readers, and done
    /// when the store is opened again.
    pub(super) fn remove(&self, removals: Vec<Removed>) {
        let mut blocks = Blocks::new();
        let mut of_slots: BTreeMap<(SegmentId, u32), (Place, Vec<Removed>)> = BTreeMap::new();
        for removed in removals {
            if is_secondary(removed.index) {
                self.forget(&[(removed.index, removed.key.clone())], removed.batch);
            }
            let primary = match split_secondary(&removed.key) {
                Some((_, primary)) if is_secondary(removed.index) => primary,
                _ => &removed.key,
            };
            let Some(place) = self.place(removed.index, primary) else { continue };
            let at = (place.segment.id, place.slot);
            of_slots.entry(at).or_insert_with(|| (place, Vec::new())).1.push(removed);
        }
        let mut failed = Vec::new();
        for (place, removals) in of_slots.into_values() {
            match self.remove_from(&place, &removals, &mut blocks) {
                Ok(()) => {}
                Err(error) => {
                    tracing::warn!(%error, "removed records stay in their slots until the store is opened again");
                    failed.extend(removals);
                }
            }
        }
        let changed: BTreeMap<SegmentId, Arc<Segment>> =
            blocks.values().map(|(segment, _)| (segment.id, Arc::clone(segment))).collect();
        if !changed.is_empty()
            && let Err(error) = self.write_blocks(blocks)
        {
            tracing::error!(%error, "removed records stay in their slots until the store is opened again");
            // Their decisions are durable, but slots that may hold either must not be given away.
            self.fail(error);
        }
        let emptied = changed.into_values().filter(|segment| segment.taken_count() == 0);
        self.emptied.lock().extend(emptied);
        if !failed.is_empty() {
            write(&self.unapplied).extend(failed);
            self.any_unapplied.store(true, Ordering::Release);
        }
    }

    fn remove_from(
        &self,
        place: &Place,
        removals: &[Removed],
        blocks: &mut Blocks,
    ) -> Result<(), StoreError> {
        self.block_of(place, blocks)?;
        let (number, at) = self.geometry.place(place.slot);
        let (segment, block) = blocks.get_mut(&(place.segment.id, number)).expect("it was read");
        let mut gone = 0;
        let stamp = match segment.decode(place.slot, &block[at..]) {
            Ok(None) => return Ok(()),
            Ok(Some(slot)) => {
                for removed in removals.iter().filter(|removed| removed.batch == slot.batch) {
                    let bit = slot.bit_of(removed.index.index, &removed.key).unwrap_or(0);
                    if bit == 1 && slot.record().is_some() {
                        segment.lose_record();
                    }
                    gone |= bit;
                }
                let table = segment.id.table;
                let dropped = read(&self.dropped);
                if gone != 0 && !dropped.is_empty() {
                    gone |= slot.bits_of_dropped(|index| dropped.contains(&StoreIndex { table, index }));
                }
                slot.stamp
            }
            Err(broken) => return Err(segment.damaged(place.slot, broken.what)),
        };
        if gone != 0 && segment.set_gone(place.slot, gone, &mut block[at..]) {
            segment.free(place.slot);
            self.live.lock().remove(stamp, segment.id.table);
        }
        Ok(())
    }
}
