//! A frozen chunk leaves memory as one object: its block goes into the cold store as it is, under one batch and one notice.
//!
//! | step | log | cold store | a crash right after it leaves |
//! |---|---|---|---|
//! | 1 rows that cannot leave are thawed; a transaction commits the batch's notice N | durable | | N with none of its records: recovery discards the batch and drops N |
//! | 2 block and entries are written | | durable, unconfirmed | N with all of them: the same |
//! | 3 TxM: the block's mark, words frozen → left, N → B; committed | durable: which slots left | | a chunk that has left: replay empties the slots |
//! | 4 the store is told that the batch stays | | confirmed | the same: recovery tells it |
//! | 5 nobody can see the rows in memory any more | | | entries, then words, then the block go, then the chunk |
//!
//! TxM takes its log space first; then it marks, decides and publishes without waiting for anything, as the move of single rows
//! does ([`super::migrate`]). The mark stands in the words, one swap for 64 rows that are all frozen. A row that was thawed since
//! it was copied stays, and TxM ends its record (`LeaversEnd`); if more than [`STAYING`] do, it is given up: the words say
//! *frozen* again, and the batch is discarded. No user's transaction fails by any of that.
//!
//! An example: a chunk with rows K and L leaves under batch 55, and U changes L meanwhile.
//!
//! | time | chunk | U | K | L |
//! |---|---|---|---|---|
//! | 55 | 1: commits N | | frozen | frozen |
//! | | 2: writes the block with entries of K and L | | | |
//! | 58 | | thaws and updates L | frozen | a version from 58 on |
//! | 60 | 3: the block's mark; K says *left*, L does not; ends (55, L), N → B | | left: readers from 60 on find the record | in memory; its record is dead |
//! | | 4: confirms | | | |
//! | 70 | 5: no snapshot is below 60: K's entries, K's word, the block | | cold | in memory |
//!
//! What may leave: chunks whose block has no begins any more (every snapshot sees all rows of it) and no row that is younger than
//! who validates, asked again when the words say *left*; for somebody may build on such a row's staying where it is
//! (`RefusersStayLate`). Rows that are locked, whose hash another row of the chunk has, or whose key is too long for the store
//! are thawed before.

use std::sync::Arc;

use thermocline_base::epoch::Guard;
use thermocline_base::ids::{RowId, TableId, Timestamp};
use thermocline_base::sync::Ordering;
use thermocline_pool::store::{BatchId, IndexId as StoreIndex, StoreError};

use crate::catalog::table::{Structure, TableEntry, TableForm};
use crate::cold::ColdCounters;
use crate::cold::memo::{Heir, Memo, NoticeKind, RecordName, pack_keys};
use crate::cold::store::{BlockBatch, BlockEntries, PackedKeys, primary_of, push_secondary, secondary_of};
use crate::error::Result;
use crate::hot::block::Block;
use crate::hot::budget::{Charge, MemoryKind};
use crate::hot::chunk::leave::SlotSet;
use crate::hot::chunk::{Chunk, Found};
use crate::hot::version::Begin;
use crate::index::hash_of;
use crate::log::ReserveError;
use crate::log::record::{COMMIT_BYTES, Kind, Op, WRITE_BYTES};
use crate::mutation::{self, Rule};
use crate::ops::commit::Record;
use crate::ops::drive::Driver;
use crate::ops::migrate::{END_BYTES, FormStamp, Running};
use crate::ops::{Step, Wait};
use crate::row::{ColumnSet, KeyBuf, MAX_KEY_BYTES};
use crate::schema::is_internal;
use crate::session::db::Inner;
use crate::session::{ChunkLeaves, Session};

/// Rows that are copied, or whose entries go, under one pin.
const ROWS_A_PIN: u16 = 1024;
/// Pins of one turn: an image of a chunk, which takes turns with it, takes as long.
const PINS_A_TURN: usize = 16;
/// So many rows may have been thawed since they were copied, each of which gets an end, and no more than a part of all: a writer
/// that meets the mark waits for a millisecond at most.
const STAYING: usize = 256;
const STAYING_SHARE: usize = 4;
/// Bytes of a key that are compared first, behind what all keys have in common.
const HEAD_BYTES: usize = 16;

/// What the leaving of a chunk came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Leaving {
    /// Rows that have left.
    pub(crate) rows: usize,
    /// Bytes of the block, which takes memory until nobody can see them there.
    pub(crate) bytes: u64,
    /// Rows that were thawed because they could not leave, or that stayed since they were thawed meanwhile.
    pub(crate) stayed: usize,
}

/// The keys of one index, as the rows stand in the chunk.
#[derive(Debug, Default)]
struct Keys {
    bytes: Vec<u8>,
    /// Where each key ends, and its row's position.
    rows: Vec<(u32, u16)>,
}

impl Keys {
    fn push(&mut self, position: u16, fill: impl FnOnce(&mut Vec<u8>)) -> usize {
        let from = self.bytes.len();
        fill(&mut self.bytes);
        self.rows.push((
            u32::try_from(self.bytes.len()).expect("the keys of a chunk have less than 4 GiB"),
            position,
        ));
        self.bytes.len() - from
    }

    /// Takes the last one back.
    fn pop(&mut self) {
        self.rows.pop();
        self.bytes.truncate(self.rows.last().map_or(0, |(end, _)| *end as usize));
    }

    fn key(&self, at: usize) -> &[u8] {
        let from = at.checked_sub(1).map_or(0, |before| self.rows[before].0);
        &self.bytes[from as usize..self.rows[at].0 as usize]
    }

    /// Those whose rows are in the set, in the order of the keys.
    fn sorted(self, index: StoreIndex, leaving: &SlotSet) -> BlockEntries {
        let common = |one: &[u8], other: &[u8]| one.iter().zip(other).take_while(|(a, b)| a == b).count();
        let first = if self.rows.is_empty() { &[][..] } else { self.key(0) };
        let shared =
            (1..self.rows.len()).fold(first.len(), |shared, at| shared.min(common(first, self.key(at))));
        // The first bytes that differ decide nearly always, and are at hand.
        let head = |key: &[u8]| {
            let mut head = [0; HEAD_BYTES];
            let rest = &key[shared.min(key.len())..];
            let len = rest.len().min(HEAD_BYTES);
            head[..len].copy_from_slice(&rest[..len]);
            u128::from_be_bytes(head)
        };
        let mut order: Vec<(u128, u32)> = (0..self.rows.len())
            .filter(|&at| leaving.contains(self.rows[at].1))
            .map(|at| (head(self.key(at)), at as u32))
            .collect();
        order.sort_unstable_by(|a, b| {
            a.0.cmp(&b.0).then_with(|| self.key(a.1 as usize).cmp(self.key(b.1 as usize)))
        });
        let (mut keys, mut positions) = (PackedKeys::default(), Vec::with_capacity(order.len()));
        for (_, at) in order {
            keys.push(self.key(at as usize));
            positions.push(self.rows[at as usize].1);
        }
        BlockEntries { index, keys, positions }
    }
}

/// A block whose rows were copied into a batch.
#[derive(Debug)]
struct Copied {
    batch: BlockBatch,
    chunk: u32,
    /// What slots name the block by.
    block: u64,
    leaving: SlotSet,
    /// Rows that were thawed.
    thawed: usize,
    stamp: FormStamp,
    /// Bytes of all keys of a row, at most.
    keys_max: usize,
    /// Bytes of the longest row.
    longest: usize,
    /// The memory of all that.
    _room: Charge,
}

/// What TxM needs to know of it.
struct Move {
    chunk: u32,
    block: u64,
    leaving: SlotSet,
    stamp: FormStamp,
    keys_max: usize,
}

/// Lets a frozen chunk leave memory. `None`: it is not one that may, or it was given up.
///
/// # Errors
/// The log or the cold store has failed or is full, or memory is at its end. Rows are where they were then.
pub(crate) async fn leave_chunk(
    db: &Arc<Inner>,
    entry: &Arc<TableEntry>,
    number: u32,
) -> Result<Option<Leaving>> {
    if is_internal(entry.id) || !may_leave(db, entry, number) {
        return Ok(None);
    }
    let (memo, cold) = crate::ops::migrate::open_cold(db)?;
    if !cold.store.takes_blocks() {
        return Ok(None);
    }
    crate::ops::checkpoint::write_cold_mark(db)?;
    let Some(running) = Running::begin(db, cold, entry) else { return Ok(None) };
    let id = running.batch;
    let Some(copied) = copy_block(db, entry, number, id)? else { return Ok(None) };
    let Copied { batch, chunk, block, leaving, thawed, stamp, keys_max, longest, _room: room } = copied;
    let (bytes, wanted) = (batch.block.len() as u64, leaving.len());
    crate::ops::migrate::announce(db, memo, entry, id).await?;
    crate::ops::migrate::log_durable(db, Rule::ColdWriteAfterLog).await?;
    let failed = |source| crate::ops::cold::cold_error(db, entry, source);
    let abandon = || {
        ColdCounters::add(&cold.counters.abandoned_batches, 1);
        Ok(None)
    };
    match cold.store.write_block(batch).await {
        Ok(()) => {}
        // Its rows are too long, or another batch has taken the place. The cleaner sees to the notice.
        Err(StoreError::BatchTooLong { .. } | StoreError::Occupied { .. }) => return abandon(),
        Err(error) => return Err(failed(error)),
    }
    drop(room);
    crate::ops::migrate::mark_store(db, cold);
    // Readers look into the store from the move's timestamp on.
    let tell = || {
        let guard = db.epochs.pin();
        let counters = &entry.form_pinned(&guard).counters;
        counters.longest_moved.fetch_max(longest as u64, Ordering::Relaxed);
        counters.cold.store(true, Ordering::SeqCst);
    };
    if mutation::on(Rule::ColdBeforeMove) {
        tell();
    }
    let the_move = Move { chunk, block, leaving, stamp, keys_max };
    let mut tx = Driver::internal(db)?;
    let left = tx.finish_step(|session| session.try_leave(memo, entry, id, &the_move)).await?;
    let Some(rows) = left else { return abandon() };
    tell();
    crate::ops::migrate::log_durable(db, Rule::ConfirmAfterLog).await?;
    cold.store.confirm(BatchId(id)).await.map_err(failed)?;
    drop(running);
    ColdCounters::add(&cold.counters.left_chunks, 1);
    ColdCounters::add(&cold.counters.left_chunk_rows, rows);
    ColdCounters::add(&entry.form_pinned(&db.epochs.pin()).counters.left_rows, rows);
    ColdCounters::add(&cold.counters.left_rows, wanted - rows);
    Ok(Some(Leaving { rows, bytes, stayed: thawed + wanted - rows }))
}

/// May the rows of this chunk's newest block leave now, as far as a look tells?
pub(crate) fn may_leave(db: &Inner, entry: &TableEntry, number: u32) -> bool {
    let (oldest, youngest) = (db.registry.active_snapshots().oldest(), db.registry.oldest_validating());
    let guard = db.epochs.pin();
    let Some(chunk) = entry.form_pinned(&guard).store.directory.get(number, &guard) else { return false };
    chunk.blocks(&guard).next().filter(|block| block.run().is_none()).is_some_and(|block| {
        block.forget_begins(oldest, &db.epochs);
        block.has_no_begins()
            && block.mark().is_none()
            && block.live() > 0
            && (block.youngest() <= youngest || mutation::off(Rule::YoungStay))
    })
}

/// Copies the block that a chunk was frozen into last, with the entries of its rows, and thaws those that cannot leave.
/// `None`: it may not leave.
///
/// # Errors
/// There is no room.
fn copy_block(db: &Inner, entry: &TableEntry, number: u32, batch: u64) -> Result<Option<Copied>> {
    // The clock first: who is missed among those that validate has a newer snapshot.
    let youngest = db.registry.oldest_validating();
    let mut room = Charge::none(&db.budget, MemoryKind::Frozen);
    let begun = {
        let guard = db.epochs.pin();
        let form = entry.form_pinned(&guard);
        // An older batch would say that its rows are from before the table was emptied, or its columns changed.
        let block = form.store.directory.get(number, &guard).and_then(|chunk| chunk.blocks(&guard).next());
        let block = block.filter(|block| block.run().is_none());
        match block.filter(|block| block.has_no_begins() && batch > form.changed.get().0) {
            Some(block) if block.youngest() <= youngest || mutation::off(Rule::YoungStay) => {
                room.add_from_reserve(block.rows().bytes_len() as u64)?;
                let rows = block.rows();
                let bytes = BlockBatch {
                    id: BatchId(batch),
                    table: form.id,
                    block: rows.bytes().to_vec(),
                    hidden: rows.hidden().to_vec(),
                    layout: Arc::clone(&form.layout),
                    indexes: Vec::new(),
                };
                Some((bytes, block.number(), FormStamp::of(form)))
            }
            _ => None,
        }
    };
    let Some((batch, block, stamp)) = begun else { return Ok(None) };
    let mut copying = Copying { block, number, ..Copying::default() };
    let mut next = Some(0_u16);
    while let Some(first) = next {
        let guard = db.epochs.pin();
        let form = entry.form_pinned(&guard);
        let Some(chunk) = form.store.directory.get(number, &guard) else { return Ok(None) };
        let Some(block) = chunk.block(block, &guard).filter(|_| FormStamp::of(form) == stamp) else {
            return Ok(None);
        };
        let last = first.saturating_add(ROWS_A_PIN - 1);
        let before = copying.bytes();
        copy_keys(db, form, (chunk, block), first..=last, &mut copying, &guard);
        room.add_from_reserve(2 * (copying.bytes() - before))?;
        next = last.checked_add(1).filter(|next| u32::from(*next) < chunk.capacity());
    }
    copying.leave_out_twins();
    for &position in &copying.staying {
        let guard = db.epochs.pin();
        entry.form_pinned(&guard).store.thaw(RowId::new(number, position), true, &guard)?;
    }
    Ok((copying.leaving.len() > 0).then(|| copying.finish(batch, stamp, room)))
}

/// Copies the keys of those rows that stand in the block.
fn copy_keys(
    db: &Inner,
    form: &TableForm,
    (chunk, block): (&Chunk, &Block),
    positions: std::ops::RangeInclusive<u16>,
    copying: &mut Copying,
    guard: &Guard<'_>,
) {
    copying.keys.resize_with(form.indexes.len(), Keys::default);
    let (mut payload, mut primary, mut key) = (Vec::new(), KeyBuf::new(), KeyBuf::new());
    let may_be_locked = form.counters.locks.load(Ordering::SeqCst) != 0;
    for position in positions {
        if chunk.look(position, guard) != Found::Frozen(block.number()) {
            continue;
        }
        payload.clear();
        block.rows().row_into(position, &mut payload);
        let (row, suffix) = (form.row_in(&payload), form.suffix_in(&payload));
        form.primary().key_of_row(row, suffix, &mut primary);
        let (mut longest, mut all) = (0, 0);
        for (index, keys) in form.indexes.iter().zip(&mut copying.keys) {
            let len = keys.push(position, |bytes| {
                if index.id == form.primary().id {
                    bytes.extend_from_slice(&primary);
                } else {
                    index.key_of_row(row, suffix, &mut key);
                    push_secondary(bytes, &key, &primary);
                }
            });
            longest = longest.max(len);
            all += len + END_KEY_BYTES;
        }
        if longest > MAX_KEY_BYTES || may_be_locked && db.locks.is_locked(form.id, &primary) {
            copying.keys.iter_mut().for_each(Keys::pop);
            copying.staying.push(position);
            continue;
        }
        copying.hashes.push((hash_of(&primary), position));
        copying.leaving.insert(position);
        copying.keys_max = copying.keys_max.max(all);
        copying.longest = copying.longest.max(payload.len());
    }
}

/// Bytes of a key among those of an end, beside it.
const END_KEY_BYTES: usize = 6;

/// What is being copied.
#[derive(Debug, Default)]
struct Copying {
    block: u64,
    number: u32,
    keys: Vec<Keys>,
    hashes: Vec<(u64, u16)>,
    leaving: SlotSet,
    /// Rows that cannot leave.
    staying: Vec<u16>,
    keys_max: usize,
    longest: usize,
}

impl Copying {
    /// Bytes of what was copied.
    fn bytes(&self) -> u64 {
        let of = |keys: &Keys| keys.bytes.len() + keys.rows.len() * size_of::<(u32, u16)>();
        self.keys.iter().map(of).sum::<usize>() as u64
    }

    /// A record is named by its hash, which no other of the batch may have: of rows with one hash all but one stay.
    fn leave_out_twins(&mut self) {
        self.hashes.sort_unstable();
        let twins: Vec<u16> =
            self.hashes.windows(2).filter(|pair| pair[0].0 == pair[1].0).map(|pair| pair[1].1).collect();
        for twin in twins {
            self.leaving.remove(twin);
            self.staying.push(twin);
        }
    }

    fn finish(self, mut batch: BlockBatch, stamp: FormStamp, room: Charge) -> Copied {
        let indexes = stamp.indexes().iter().enumerate();
        let indexes: Vec<StoreIndex> = indexes
            .map(
                |(at, &index)| {
                    if at == 0 { primary_of(batch.table) } else { secondary_of(batch.table, index) }
                },
            )
            .collect();
        batch.indexes = self
            .keys
            .into_iter()
            .zip(indexes)
            .map(|(keys, index)| keys.sorted(index, &self.leaving))
            .collect();
        Copied {
            batch,
            chunk: self.number,
            block: self.block,
            leaving: self.leaving,
            thawed: self.staying.len(),
            stamp,
            keys_max: self.keys_max,
            longest: self.longest,
            _room: room,
        }
    }
}

/// What the log says of a chunk that leaves ([`Op::Left`]): batch u64, then the slots.
fn left_bytes(batch: u64, slots: &SlotSet) -> Vec<u8> {
    let mut bytes = batch.to_le_bytes().to_vec();
    slots.encode(&mut bytes);
    bytes
}

/// Batch and slots again. `None`: the bytes are none.
pub(crate) fn left_of(bytes: &[u8]) -> Option<(u64, SlotSet)> {
    let (batch, slots) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*batch), SlotSet::decode(slots)?))
}

impl Session {
    /// TxM: the words say *left*, N → B, and the commit, without waiting in between. How many rows have left; `Done(None)`: given
    /// up.
    fn try_leave(
        &mut self,
        memo: &Memo,
        entry: &Arc<TableEntry>,
        batch: u64,
        the_move: &Move,
    ) -> Result<Step<Option<usize>>> {
        let form_ref = match self.touch(entry)? {
            Step::Done(form) => form,
            // Its definition is being changed, which may take long. What was copied may be of no use then.
            Step::Wait(_) => return Ok(self.give_up()),
        };
        let form = form_ref.get();
        if FormStamp::of(form) != the_move.stamp {
            return Ok(self.give_up());
        }
        let db = self.db();
        let notice = memo.batch_row(batch, NoticeKind::Begin, form.id);
        let staying_max = STAYING.min(the_move.leaving.len() / STAYING_SHARE + 1);
        let mut reservation = None;
        if let Some(log) = db.log() {
            let ends = staying_max * (WRITE_BYTES + END_BYTES + the_move.keys_max);
            let slots = WRITE_BYTES + size_of::<u64>() + the_move.leaving.bytes_max();
            let payload = (COMMIT_BYTES + WRITE_BYTES + notice.len() + slots + ends) as u64;
            match log.try_reserve(Kind::Commit, payload) {
                Ok(space) => reservation = Some(space),
                Err(ReserveError::Full(_)) => return Ok(Step::Wait(Wait::LogSpace { payload })),
                Err(ReserveError::TooLarge) => return Ok(self.give_up()),
                Err(error) => return Err(db.reserve_error(&error)),
            }
        }
        let guard = db.epochs.pin();
        let me = self.identify();
        let Some(chunk) = form.store.directory.get(the_move.chunk, &guard) else { return Ok(self.give_up()) };
        let Some(block) = chunk.block(the_move.block, &guard) else { return Ok(self.give_up()) };
        if !block.set_mark(me, batch) {
            return Ok(self.give_up());
        }
        let left = chunk.leave(block, &the_move.leaving, &guard);
        let (rows, staying) = (left.len(), the_move.leaving.len() - left.len());
        let staying_slots: Vec<u16> = match staying <= staying_max {
            true => the_move.leaving.iter().filter(|slot| !left.contains(*slot)).collect(),
            false => Vec::new(),
        };
        let record = left_bytes(batch, &left);
        let leaves =
            ChunkLeaves { form: form_ref, chunk: the_move.chunk, block: the_move.block, slots: left, record };
        self.leaves = Some(Box::new(leaves));
        if staying > staying_max || rows == 0 {
            return Ok(self.give_up());
        }
        for position in staying_slots {
            if mutation::off(Rule::LeaversEnd) {
                break;
            }
            if !self.end_left_behind(form, block, position, batch, &guard)? {
                return Ok(self.give_up());
            }
        }
        // Somebody may have been refused a key by one of the rows since they were copied, and build on its staying. He says so
        // before he looks at words, and here it is the other way round.
        let stays = block.youngest() > db.registry.oldest_validating();
        if stays && mutation::on(Rule::RefusersStayLate) && mutation::on(Rule::YoungStay) {
            return Ok(self.give_up());
        }
        self.renew_notice(memo, batch, &notice, &guard)?;
        form.counters.moves.fetch_add(1, Ordering::SeqCst);
        let end = self.decide(reservation.as_mut().map(Record::whole))?;
        if let Some(reservation) = reservation {
            self.complete(reservation, end);
        }
        // The pin lasts until the mark is published: the block stays.
        self.publish(end);
        Ok(Step::Done(Some(rows)))
    }

    /// Ends the record of a row that was thawed since it was copied. `false`: somebody else is about to.
    fn end_left_behind(
        &mut self,
        form: &TableForm,
        block: &Block,
        position: u16,
        batch: u64,
        guard: &Guard<'_>,
    ) -> Result<bool> {
        let (mut payload, mut keys, mut primary) = (Vec::new(), Vec::new(), KeyBuf::new());
        block.rows().row_into(position, &mut payload);
        let (row, suffix) = (form.row_in(&payload), form.suffix_in(&payload));
        pack_keys(form, row, suffix, &mut keys);
        form.primary().key_of_row(row, suffix, &mut primary);
        self.end_record(form.id, RecordName::new(batch, &primary), keys, Heir::None, guard)
    }

    /// Before the record of the commit is whole: the chunk has changed.
    pub(crate) fn mark_leaves_dirty(&self, guard: &Guard<'_>) {
        if let Some(leaves) = &self.leaves
            && let Some(chunk) = leaves.form.get().store.directory.get(leaves.chunk, guard)
            && mutation::on(Rule::LeftIsDirty)
        {
            chunk.mark_dirty();
        }
    }

    /// What the log says of a chunk that leaves.
    pub(crate) fn put_leaves(&self, reservation: &mut crate::log::Reservation<'_>) {
        if let Some(leaves) = &self.leaves {
            let first = RowId::new(leaves.chunk, 0);
            reservation.put_write(Op::Left, leaves.form.get().storage, first, &leaves.record);
        }
    }

    /// From now on the rows have left for everybody.
    pub(crate) fn publish_leaves(&mut self, end: Timestamp, guard: &Guard<'_>) {
        if let Some(leaves) = self.leaves.take() {
            let chunk = leaves.form.get().store.directory.get(leaves.chunk, guard);
            let block = chunk.and_then(|chunk| chunk.block(leaves.block, guard));
            block.expect("a block stays while words name it").publish_mark(end);
        }
    }

    /// Takes back that rows leave.
    pub(crate) fn undo_leaves(&mut self, guard: &Guard<'_>) {
        let Some(leaves) = self.leaves.take() else { return };
        let Some(chunk) = leaves.form.get().store.directory.get(leaves.chunk, guard) else { return };
        // Where no row says so any more, the block may have gone; it has no reader then.
        let Some(block) = chunk.block(leaves.block, guard) else { return };
        chunk.come_back(block, &leaves.slots, guard);
        block.clear_mark();
    }
}

/// A block whose rows have left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct HasLeft {
    table: TableId,
    chunk: u32,
    block: u64,
}

/// Lets go in memory what has left and nobody can see there any more: entries, words, blocks. Stops after about so many rows,
/// to go on at the next call; how many they were.
pub(crate) fn clear_left(db: &Inner, rows: usize) -> usize {
    let mut cleared = 0;
    for entry in db.catalog.all() {
        if entry.is_held() || is_internal(entry.id) {
            continue;
        }
        for HasLeft { chunk, block, .. } in left_blocks(db, &entry) {
            let mut next = Some(0);
            while let Some(first) = next {
                if cleared >= rows || db.closing.has_begun() {
                    return cleared;
                }
                let (count, then) = clear_some(db, &entry, chunk, block, first);
                (cleared, next) = (cleared + count, then);
            }
        }
    }
    cleared
}

/// Blocks whose rows have left so long ago that nobody can see them in memory.
fn left_blocks(db: &Inner, entry: &TableEntry) -> Vec<HasLeft> {
    let oldest = db.registry.active_snapshots().oldest();
    let guard = db.epochs.pin();
    let directory = &entry.form_pinned(&guard).store.directory;
    let mut found = Vec::new();
    for chunk in 0..directory.len() {
        let Some(of) = directory.get(chunk, &guard) else { continue };
        let is_past = |block: &&Block| {
            let marked = matches!(block.mark(), Some((Begin::At(at), _))
                if at <= oldest || mutation::off(Rule::LeftOutlivesReaders));
            marked && block.left() > 0
        };
        found.extend(of.blocks(&guard).filter(is_past).map(|block| HasLeft {
            table: entry.id,
            chunk,
            block: block.number(),
        }));
    }
    found
}

/// A turn of it: how many rows, and where to go on.
fn clear_some(db: &Inner, entry: &TableEntry, chunk: u32, block: u64, first: u16) -> (usize, Option<u16>) {
    // Definitions do not change meanwhile, nor does anybody else clear.
    let _maintenance = db.standstill.enter();
    let (mut cleared, mut next) = (0, Some(first));
    for _ in 0..PINS_A_TURN {
        let Some(first) = next else { break };
        let (count, then) = clear_rows(db, entry, chunk, block, first);
        (cleared, next) = (cleared + count, then);
    }
    (cleared, next)
}

/// A step of it, under one pin.
fn clear_rows(db: &Inner, entry: &TableEntry, number: u32, block: u64, first: u16) -> (usize, Option<u16>) {
    let guard = db.epochs.pin();
    let form = entry.form_pinned(&guard);
    let Some(chunk) = form.store.directory.get(number, &guard).filter(|_| !entry.is_held()) else {
        return (0, None);
    };
    let Some(block) = chunk.block(block, &guard) else { return (0, None) };
    let last = first.saturating_add(ROWS_A_PIN - 1);
    let mut slots = SlotSet::default();
    let says_left = |slot: &u16| chunk.look(*slot, &guard) == Found::Left(block.number());
    (first..=last).filter(says_left).for_each(|slot| slots.insert(slot));
    if mutation::off(Rule::EntriesOfLeftGo) {
        // Those of all rows of the block.
        let mut all = SlotSet::default();
        (first..=last).filter(|slot| block.rows().is_present(*slot)).for_each(|slot| all.insert(slot));
        remove_entries_of(form, number, block, &all, &guard);
    } else {
        remove_entries_of(form, number, block, &slots, &guard);
    }
    let rows = chunk.let_go(block, &slots, &guard);
    if block.live() == 0 {
        chunk.drop_dead_blocks(&db.epochs, &guard);
        return (rows, None);
    }
    (rows, last.checked_add(1).filter(|next| u32::from(*next) < chunk.capacity()))
}

/// The columns that a row's keys are made of; with one of variable width all of these, whose places tell each other's.
fn key_columns(form: &TableForm) -> ColumnSet {
    let mut columns = ColumnSet::new();
    form.indexes.iter().flat_map(|index| index.columns.iter()).for_each(|column| columns.insert(column));
    let is_variable = |column: usize| form.layout.columns()[column].ty.width().is_none();
    if columns.iter().any(is_variable) {
        (0..form.layout.columns().len())
            .filter(|column| is_variable(*column))
            .for_each(|column| columns.insert(column));
    }
    columns
}

/// Takes out the entries of rows that have left, in the order of their keys where the index has one.
fn remove_entries_of(form: &TableForm, number: u32, block: &Block, slots: &SlotSet, guard: &Guard<'_>) {
    let mut all: Vec<Keys> = Vec::new();
    all.resize_with(form.indexes.len(), Keys::default);
    let (mut payload, mut key) = (Vec::new(), KeyBuf::new());
    let columns = key_columns(form);
    for position in slots.iter() {
        payload.clear();
        block.rows().columns_into(position, &columns, &mut payload);
        for (index, keys) in form.indexes.iter().zip(&mut all) {
            index.key_of_row(form.row_in(&payload), form.suffix_in(&payload), &mut key);
            keys.push(position, |bytes| bytes.extend_from_slice(&key));
        }
    }
    for (index, keys) in form.indexes.iter().zip(&all) {
        let mut order: Vec<usize> = (0..keys.rows.len()).collect();
        match &index.structure {
            Structure::Tree(_) => order.sort_unstable_by(|a, b| keys.key(*a).cmp(keys.key(*b))),
            Structure::Hash(hash) => order.iter().for_each(|at| hash.prefetch(guard, hash_of(keys.key(*at)))),
        }
        for at in order {
            index.remove(guard, keys.key(at), RowId::new(number, keys.rows[at].1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_rows_with_one_hash_all_but_one_stay() {
        let mut copying = Copying::default();
        for (position, hash) in [(0, 5), (1, 7), (2, 5), (3, 8), (4, 5)] {
            copying.hashes.push((hash, position));
            copying.leaving.insert(position);
        }
        copying.leave_out_twins();
        copying.staying.sort_unstable();
        assert_eq!(
            (copying.leaving.iter().collect::<Vec<_>>(), copying.staying),
            (vec![0, 1, 3], vec![2, 4])
        );
    }

    #[test]
    fn keys_are_sorted_whatever_they_have_in_common() {
        let rows = |keys: &[&[u8]]| {
            let mut of = Keys::default();
            let mut leaving = SlotSet::default();
            for (key, position) in keys.iter().zip(0..) {
                of.push(position, |bytes| bytes.extend_from_slice(key));
                if position != 1 {
                    leaving.insert(position);
                }
            }
            let sorted = of.sorted(StoreIndex::default(), &leaving);
            let keys: Vec<Vec<u8>> = sorted.keys.iter().map(<[u8]>::to_vec).collect();
            (keys, sorted.positions)
        };
        let long = |last: &[u8]| [&[9; 40], last].concat();
        let (a, b, c) = (long(b"b"), long(b"a"), long(b"ab"));
        assert_eq!(rows(&[&a, b"stays", &b, &c]), (vec![b.clone(), c.clone(), a.clone()], vec![2, 3, 0]));
        let heads = |last: &[u8]| [&b"common"[..], &[7; 20], last].concat();
        let (a, b) = (heads(b"2"), heads(b"1"));
        assert_eq!(rows(&[&a, b"common", &b, b"common"]), (vec![b"common".to_vec(), b, a], vec![3, 2, 0]));
        assert_eq!(rows(&[]), (vec![], vec![]));
    }
}
