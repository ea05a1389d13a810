//! The memory under the model checker: cells of 16 KiB, of which a block holds four, a magazine two, and a batch of
//! the limbo two, so that a handful of operations reaches refills, flushes, and blocks that come and go.

use thermocline_base::mutation::Rule;

use thermocline_base::sync::model;

use super::*;
use crate::mutation;

const BYTES: usize = 16 << 10;
const ROUNDS: usize = 4000;

fn memory() -> (Arc<Memory>, Arc<Budget>, Arc<Epochs>) {
    let (budget, epochs) = (Arc::new(Budget::new(None)), Arc::new(Epochs::new()));
    let memory = Memory::new(MemoryKind::Versions, 4 << 20, Arc::clone(&budget), Arc::clone(&epochs));
    (Arc::new(memory.expect("address space")), budget, epochs)
}

/// A cell with its owner's number as first and as last word.
fn cell_of(memory: &Memory, owner: u64) -> NonNull<u8> {
    let cell = memory.alloc(BYTES).expect("no limit");
    for place in [memory.offset_of(cell), memory.offset_of(cell) + BYTES as u64 / 8 - 1] {
        memory.word(place).store(owner, Ordering::Release);
    }
    cell
}

fn check(memory: &Memory, cell: NonNull<u8>, owner: u64) {
    for place in [memory.offset_of(cell), memory.offset_of(cell) + BYTES as u64 / 8 - 1] {
        assert_eq!(memory.word(place).load(Ordering::Acquire), owner, "two owners of one cell");
    }
}

/// Everything is back, and the counts are exact.
fn check_empty(memory: &Memory, budget: &Budget) {
    assert_eq!(memory.collect(), 0);
    assert_eq!(memory.used_bytes(), 0);
    memory.trim();
    assert_eq!(memory.committed_bytes(), 4096, "only metadata is left");
    assert_eq!(budget.used(), 4096);
    assert_eq!(memory.evacuating.load(Ordering::Relaxed), 0);
}

/// Two threads allocate, free and retire; a third collects, trims and evacuates.
fn share() {
    let (memory, budget, epochs) = memory();
    let owners: Vec<_> = (1..=2)
        .map(|owner| {
            let (memory, epochs) = (Arc::clone(&memory), Arc::clone(&epochs));
            shuttle::thread::spawn(move || {
                let first = cell_of(&memory, owner);
                let second = cell_of(&memory, owner);
                check(&memory, first, owner);
                // SAFETY: allocated above with this size; nobody else knows of it.
                unsafe { memory.free(first, BYTES) };
                let third = cell_of(&memory, owner);
                check(&memory, second, owner);
                let guard = epochs.pin();
                // SAFETY: as above.
                unsafe {
                    memory.retire(second, BYTES);
                    memory.retire(third, BYTES);
                }
                check(&memory, second, owner);
                check(&memory, third, owner);
                drop(guard);
            })
        })
        .collect();
    for id in memory.sparse_blocks(100) {
        if memory.begin_evacuation(id) {
            memory.end_evacuation(id);
        }
    }
    memory.trim();
    for owner in owners {
        owner.join().expect("an owner");
    }
    check_empty(&memory, &budget);
}

#[test]
fn threads_never_own_the_same_cell() {
    model::run(ROUNDS, share);
}

/// A block is evacuated while its cells are freed and others allocated: none of the new ones lies in it, and it goes.
fn evacuate() {
    let (memory, budget, epochs) = memory();
    // Five cells: a full block and one cell in a second one.
    let cells: Vec<_> = (0..5).map(|_| memory.offset_of(cell_of(&memory, 1))).collect();
    memory.trim();
    let slab = block_of(cells[0]);
    assert!(cells[..4].iter().all(|place| block_of(*place) == slab));
    let id = BlockId { block: slab, generation: memory.block(slab).generation(), class: class_of(BYTES) };
    let begun = Arc::new(AtomicU32::new(0));
    let other = {
        let (memory, begun, cells) = (Arc::clone(&memory), Arc::clone(&begun), cells.clone());
        shuttle::thread::spawn(move || {
            for place in &cells[..2] {
                // SAFETY: allocated above with this size; this thread frees these two.
                unsafe { memory.free(memory.at(*place), BYTES) };
                let before = begun.load(Ordering::SeqCst) != 0;
                let cell = cell_of(&memory, 2);
                if before {
                    assert_ne!(block_of(memory.offset_of(cell)), slab, "an evacuated block gives out a cell");
                }
                // SAFETY: just allocated.
                unsafe { memory.free(cell, BYTES) };
            }
        })
    };
    assert!(memory.begin_evacuation(id));
    begun.store(1, Ordering::SeqCst);
    let guard = epochs.pin();
    let mut met = Vec::new();
    assert!(memory.for_each_live_cell(id, |cell| met.push(memory.offset_of(cell))));
    for place in &cells[2..4] {
        assert!(met.contains(place), "a live cell was passed over");
        // SAFETY: allocated above with this size; this thread retires these two.
        unsafe { memory.retire(memory.at(*place), BYTES) };
    }
    drop(guard);
    other.join().expect("the other thread");
    memory.collect();
    assert_ne!(memory.block(slab).generation(), id.generation, "an evacuated block goes with its last cell");
    memory.end_evacuation(id);
    // SAFETY: the last cell that is left.
    unsafe { memory.free(memory.at(cells[4]), BYTES) };
    check_empty(&memory, &budget);
}

#[test]
fn evacuated_blocks_give_out_nothing_and_go() {
    model::run(ROUNDS, evacuate);
}

/// A reader follows a place while a writer replaces what is there and uses freed cells again.
fn replace_under_a_reader() {
    let (memory, budget, epochs) = memory();
    let place = Arc::new(AtomicU64::new(memory.offset_of(cell_of(&memory, 1))));
    let reader = {
        let (memory, epochs, place) = (Arc::clone(&memory), Arc::clone(&epochs), Arc::clone(&place));
        shuttle::thread::spawn(move || {
            let _guard = epochs.pin();
            let cell = memory.at(place.load(Ordering::Acquire));
            check(&memory, cell, 1);
        })
    };
    let old = place.swap(memory.offset_of(cell_of(&memory, 1)), Ordering::AcqRel);
    // SAFETY: allocated above with this size, and just unlinked.
    unsafe { memory.retire(memory.at(old), BYTES) };
    memory.collect();
    let reused = cell_of(&memory, 2);
    // SAFETY: just allocated.
    unsafe { memory.free(reused, BYTES) };
    reader.join().expect("the reader");
    // SAFETY: the reader is gone; nobody else knows of it.
    unsafe { memory.free(memory.at(place.load(Ordering::Acquire)), BYTES) };
    check_empty(&memory, &budget);
}

#[test]
fn readers_never_meet_reused_memory() {
    model::run(ROUNDS, replace_under_a_reader);
}

#[test]
fn reuse_without_epochs_is_caught() {
    let _off = mutation::switch_off(Rule::RetireThroughEpoch);
    assert!(model::finds_failure(ROUNDS, replace_under_a_reader));
}
