//! What the maintenance thread does: prune, free, abort idle transactions, shrink.
//!
//! | every | what |
//! |---|---|
//! | 10 ms | prune rows whose snapshots have gone; free what changes of definitions have replaced, and what the epochs let go |
//! | 250 ms | abort transactions that have been idle for too long |
//! | 250 ms | let go what has left memory with its chunk |
//! | 250 ms | pack sparse chunks, drop empty ones, shrink indexes, move versions and parts of indexes out of sparse memory, return memory |
//!
//! Each step is bounded; between steps the thread looks whether the database closes.

use std::sync::Arc;
use std::time::Duration;

use thermocline_base::epoch::Guard;
use thermocline_base::ids::TableId;
use thermocline_base::sync::{Ordering, thread_index};

use crate::catalog::table::{Structure, TableEntry, TableForm};
use crate::hot::memory::{BlockId, Memory};
use crate::index::TreePlace;
use crate::ops::cursor::CURSOR;
use crate::ops::drive::reap;
use crate::session::db::Inner;
use crate::txn::registry::activity;

const TICK: Duration = Duration::from_millis(10);
const SLOW_TICKS: u32 = 25;
/// A chunk is packed when no more than this share of its slots leads to a row.
const PACK_PERCENT: u32 = 25;
/// A packed chunk is packed again when no more than this share of what it had kept is left.
const REPACK_PERCENT: u32 = 50;

/// When versions are moved out of sparse memory.
struct Effort {
    /// A table's version memory is left alone while it is smaller.
    committed_min: u64,
    /// Or while at least this share of it is in use.
    used_percent: u64,
    /// A block is emptied when no more than this share of it is in use.
    sparse_percent: u32,
}

const LAZY: Effort = Effort { committed_min: 4 << 20, used_percent: 80, sparse_percent: 60 };
const EAGER: Effort = Effort { committed_min: 1 << 20, used_percent: 95, sparse_percent: 80 };

/// Blocks that are emptied in one step, so that no step holds the maintenance lock for long.
const BLOCKS_PER_STEP: usize = 1024;

/// Rows of chunks that have left whose entries go in one round. (The threads that let chunks leave do that, too.)
const LEFT_ROWS: usize = 1 << 16;

/// In one round so much time goes into walks over indexes.
const WALK_NS: u64 = 10_000_000;
/// Leaves, and buckets, that are looked at under one pin.
const LEAVES_PER_PIN: usize = 256;
const BUCKETS_PER_PIN: u64 = 4096;

/// A walk over an index that moves its cells together.
#[derive(Debug)]
struct Walk {
    table: TableId,
    /// The place of the index.
    at: usize,
    /// Its memory: if it has another one by now, its cells stand elsewhere already.
    memory: Arc<Memory>,
    /// What is being emptied.
    blocks: Vec<BlockId>,
    /// Where it goes on.
    leaf: TreePlace,
    bucket: u64,
}

/// What the maintenance thread remembers between its rounds.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// Operations that each place had counted, and since when.
    idle: Vec<(u32, u64)>,
    /// Chunks that may be packed or dropped once all pins of then have gone.
    candidates: Vec<(TableId, u32, u64)>,
    /// The walk over an index that has begun, and how many indexes stand before the one that is looked at next.
    walk: Option<Walk>,
    next_index: usize,
}

/// The thread's main function.
pub(crate) fn run(inner: &Inner) {
    let mut rounds = Rounds::default();
    let mut ticks = 0_u32;
    while !inner.closing.has_begun() {
        std::thread::park_timeout(TICK);
        ticks = ticks.wrapping_add(1);
        crate::ops::prune::prune_all(inner, true);
        crate::ops::define::free_replaced(inner);
        inner.epochs.collect();
        if ticks.is_multiple_of(SLOW_TICKS) {
            abort_idle(inner, &mut rounds);
            shrink(inner, &mut rounds);
            compact_indexes(inner, &mut rounds);
            crate::ops::leave::clear_left(inner, LEFT_ROWS);
        }
    }
}

/// Aborts transactions that have done nothing since the idle limit.
pub(crate) fn abort_idle(db: &Inner, rounds: &mut Rounds) {
    let Some(limit) = db.options.idle_limit else { return };
    let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    let now = db.clock.now_ns();
    for (index, place) in db.registry.places().enumerate() {
        if rounds.idle.len() <= index {
            rounds.idle.push((0, now));
        }
        let operations = place.operations.load(Ordering::Relaxed);
        let session = place.session.load(Ordering::Acquire);
        let resting = place.activity.load(Ordering::Relaxed) == activity::REST
            && session != 0
            && session != CURSOR
            && !place.attended.load(Ordering::Relaxed);
        let (seen, since) = &mut rounds.idle[index];
        if *seen != operations || !resting {
            (*seen, *since) = (operations, now);
            continue;
        }
        if now.saturating_sub(*since) > limit_ns {
            let is_idle = || place.operations.load(Ordering::Relaxed) == operations;
            if reap(db, place, is_idle, || {
                tracing::warn!(?limit, "an idle transaction was aborted");
                crate::Error::IdleTimeout { limit_ms: limit_ns / 1_000_000 }
            }) {
                *since = now;
            }
        }
    }
}

/// One bounded step of giving memory back, for every table.
pub(crate) fn shrink(db: &Inner, rounds: &mut Rounds) {
    shrink_to(db, rounds, &LAZY);
}

/// The same, with more effort: memory is short.
pub(crate) fn shrink_eagerly(db: &Inner, rounds: &mut Rounds) {
    shrink_to(db, rounds, &EAGER);
}

fn shrink_to(db: &Inner, rounds: &mut Rounds, effort: &Effort) {
    for entry in db.catalog.all() {
        if db.closing.has_begun() {
            return;
        }
        let _maintenance = db.standstill.enter();
        if entry.is_held() {
            continue;
        }
        let guard = db.epochs.pin();
        let form = entry.form_pinned(&guard);
        crate::ops::freeze::tidy_blocks(db, form);
        // A chunk whose rows could not be read looks empty, and stays.
        if !form.store.damage.is_there() {
            pack_chunks(db, form, rounds, &guard);
        }
        shrink_indexes(form, &guard);
        drop(guard);
        compact(db, &entry, effort);
    }
}

/// Packs chunks that are mostly empty, and drops empty ones.
fn pack_chunks(db: &Inner, form: &TableForm, rounds: &mut Rounds, guard: &Guard<'_>) {
    let safe = db.epochs.safe();
    for number in 0..form.store.directory.len() {
        let Some(chunk) = form.store.directory.get(number, guard) else { continue };
        let known = rounds.candidates.iter().position(|&(id, chunk, _)| (id, chunk) == (form.id, number));
        if chunk.has_block() || !chunk.is_full() || form.store.may_be_filled(number) {
            if let Some(known) = known {
                rounds.candidates.swap_remove(known);
            }
            continue;
        }
        let share = if chunk.is_packed() { REPACK_PERCENT } else { PACK_PERCENT };
        if !chunk.may_be_sparse(share) {
            continue;
        }
        let occupied = chunk.occupied(guard).len();
        let packs = if chunk.is_packed() {
            occupied == 0 || occupied * 2 < chunk.packed_len()
        } else {
            occupied * 100 <= chunk.used() as usize * PACK_PERCENT as usize
        };
        match known {
            _ if !packs => {}
            None => rounds.candidates.push((form.id, number, db.epochs.stamp())),
            Some(known) if rounds.candidates[known].2 < safe => {
                rounds.candidates.swap_remove(known);
                // Every pin from before nobody could take a slot of the chunk has gone: all are filled or never
                // will be.
                if chunk.occupied(guard).is_empty() {
                    if let Some(chunk) = form.store.directory.remove(number, &form.store.slots) {
                        db.epochs.defer(move || drop(chunk));
                    }
                } else if let Err(error) = chunk.pack(&form.store.slots, guard) {
                    tracing::debug!(%error, "a chunk was not packed");
                }
            }
            Some(_) => {}
        }
    }
}

fn shrink_indexes(form: &TableForm, guard: &Guard<'_>) {
    const STEPS: usize = 20_000;
    for index in &form.indexes {
        for _ in 0..STEPS {
            let more = match &index.structure {
                Structure::Hash(hash) => hash.maintain(guard),
                Structure::Tree(tree) => tree.maintain(guard),
            };
            if !more {
                break;
            }
        }
        index.memory.collect();
        index.memory.trim();
    }
}

/// Moves the cells of indexes together where much of an index's memory is empty: nodes of a tree, overflow lines of a
/// hash index. That takes a walk over the whole index, of which one round does a part. The governor leaves it to the
/// maintenance thread.
pub(crate) fn compact_indexes(db: &Inner, rounds: &mut Rounds) {
    let Some(walk) = rounds.walk.take().or_else(|| begin_walk(db, &mut rounds.next_index)) else {
        return;
    };
    rounds.walk = go_on_with(db, walk);
}

/// Begins a walk over the next index whose memory is mostly empty, in turn.
fn begin_walk(db: &Inner, next: &mut usize) -> Option<Walk> {
    let tables = db.catalog.all();
    let indexes_of = |entry: &TableEntry| entry.form_pinned(&db.epochs.pin()).indexes.len();
    let indexes: Vec<_> =
        tables.iter().flat_map(|entry| (0..indexes_of(entry)).map(move |at| (entry, at))).collect();
    let first = *next;
    for number in first..first + indexes.len() {
        let (entry, at) = indexes[number % indexes.len()];
        *next = (number + 1) % indexes.len();
        let _maintenance = db.standstill.enter();
        let guard = db.epochs.pin();
        let Some(index) = entry.form_pinned(&guard).indexes.get(at).filter(|_| !entry.is_held()) else {
            continue;
        };
        let memory = &index.memory;
        let (used, committed) = (memory.used_bytes(), memory.committed_bytes());
        if committed < LAZY.committed_min || used * 100 > committed * LAZY.used_percent {
            continue;
        }
        let sparse = memory.sparse_blocks_for(index.structure.cell_bytes(), LAZY.sparse_percent);
        let blocks: Vec<_> = sparse
            .into_iter()
            .take(BLOCKS_PER_STEP)
            .filter(|block| memory.begin_evacuation(*block))
            .collect();
        if !blocks.is_empty() {
            let (table, memory) = (entry.id, Arc::clone(memory));
            return Some(Walk { table, at, memory, blocks, leaf: TreePlace::default(), bucket: 0 });
        }
    }
    None
}

/// One part of a walk; what is left to do of it. `None`: nothing is.
fn go_on_with(db: &Inner, mut walk: Walk) -> Option<Walk> {
    let until_ns = db.clock.now_ns() + WALK_NS;
    let entry = db.catalog.by_id(walk.table)?;
    let _maintenance = db.standstill.enter();
    if entry.is_held() {
        return Some(walk);
    }
    // One piece after the other, so that nobody waits long for what our pin keeps.
    loop {
        let guard = db.epochs.pin();
        let index = entry.form_pinned(&guard).indexes.get(walk.at);
        let index = index.filter(|index| Arc::ptr_eq(&index.memory, &walk.memory))?;
        let more = match &index.structure {
            Structure::Hash(hash) => hash.move_lines(&guard, &mut walk.bucket, BUCKETS_PER_PIN),
            Structure::Tree(tree) => tree.move_nodes(&guard, &mut walk.leaf, LEAVES_PER_PIN),
        };
        // Without memory what has not moved yet stays where it is.
        if !more.unwrap_or(false) {
            break;
        }
        if db.clock.now_ns() >= until_ns {
            return Some(walk);
        }
    }
    walk.memory.collect();
    walk.blocks.iter().for_each(|block| walk.memory.end_evacuation(*block));
    walk.memory.trim();
    None
}

/// Moves versions out of sparse memory, if much of the table's memory is empty.
fn compact(db: &Inner, entry: &TableEntry, effort: &Effort) {
    let guard = db.epochs.pin();
    let form = entry.form_pinned(&guard);
    let memory = &form.store.memory;
    memory.collect();
    form.store.slots.collect();
    form.store.slots.trim();
    let (used, committed) = (memory.used_bytes(), memory.committed_bytes());
    if committed < effort.committed_min || used * 100 > committed * effort.used_percent {
        return;
    }
    memory.trim();
    let mut moved = 0_u64;
    // All marks first: else what moves out of one sparse block fills the one that was emptied before it.
    let blocks: Vec<_> = memory
        .sparse_blocks(effort.sparse_percent)
        .into_iter()
        .take(BLOCKS_PER_STEP)
        .filter(|block| memory.begin_evacuation(*block))
        .collect();
    for block in &blocks {
        memory.for_each_live_cell(*block, |cell| {
            if form.store.relocate(cell, &guard).unwrap_or(false) {
                moved += 1;
            }
        });
    }
    // Our own pin keeps what was moved from being freed; the marks stay until it is, so that emptied blocks go
    // back to the system. (What another reader still holds back is left for the next round.)
    drop(guard);
    let guard = db.epochs.pin();
    let memory = &entry.form_pinned(&guard).store.memory;
    memory.collect();
    for block in blocks {
        memory.end_evacuation(block);
    }
    drop(guard);
    if moved != 0 {
        tracing::trace!(moved, thread = thread_index(), "versions were moved out of sparse memory");
    }
}
