//! Against a shadow model, with threads, and against the system's own count of resident pages.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use proptest::prelude::*;

use super::size::BLOCK_BYTES;
use super::*;

const MIB: usize = 1 << 20;

fn memory_with(reserve_bytes: usize, limit: Option<u64>) -> (Memory, Arc<Budget>, Arc<Epochs>) {
    let (budget, epochs) = (Arc::new(Budget::new(limit)), Arc::new(Epochs::new()));
    let memory = Memory::new(MemoryKind::Versions, reserve_bytes, Arc::clone(&budget), Arc::clone(&epochs));
    (memory.expect("address space"), budget, epochs)
}

fn memory() -> Memory {
    memory_with(256 * MIB, None).0
}

impl Memory {
    fn alloc_for_test(&self, bytes: usize) -> NonNull<u8> {
        self.alloc(bytes).expect("memory")
    }

    /// Nothing but the metadata is committed.
    fn check_trimmed(&self) {
        assert_eq!(self.committed_bytes(), self.space.lock().metadata_bytes());
    }

    fn resident_of_range(&self) -> Option<usize> {
        self.ground.range.resident_bytes(0, self.ground.range.bytes())
    }
}

/// A cell of the test's own, filled with a pattern that shows when somebody else writes to it.
#[derive(Clone, Copy)]
struct Filled {
    cell: NonNull<u8>,
    bytes: usize,
    pattern: u8,
}

impl Filled {
    fn new(memory: &Memory, bytes: usize, pattern: u8) -> Self {
        let cell = memory.alloc_for_test(bytes);
        assert_eq!(memory.word(memory.offset_of(cell)).load(Ordering::Relaxed), 0, "the first word is 0");
        // At most 0x3f, as the rule of the first word asks.
        let pattern = pattern & 0x3f;
        // SAFETY: the cell was just handed out.
        unsafe { cell.write_bytes(pattern, bytes) };
        Self { cell, bytes, pattern }
    }

    fn check(&self) {
        // SAFETY: the cell is ours until it is given back.
        let contents = unsafe { std::slice::from_raw_parts(self.cell.as_ptr(), self.bytes) };
        assert!(contents.iter().all(|byte| *byte == self.pattern), "a cell of {} bytes changed", self.bytes);
    }

    fn free(self, memory: &Memory) {
        self.check();
        // SAFETY: came from this memory, with this size; nobody else knows of it.
        unsafe { memory.free(self.cell, self.bytes) }
    }

    fn retire(self, memory: &Memory) {
        self.check();
        // SAFETY: as above.
        unsafe { memory.retire(self.cell, self.bytes) }
    }
}

const _: () = {
    const fn shared_by_threads<T: Send + Sync>() {}
    shared_by_threads::<Memory>();
};

#[test]
fn an_empty_memory_costs_nothing() {
    let (memory, budget, _) = memory_with(64 << 30, Some(0));
    assert_eq!((memory.committed_bytes(), memory.used_bytes(), budget.used()), (0, 0, 0));
    if cfg!(not(feature = "portable")) && cfg!(target_os = "linux") {
        let front = memory.ground.range.resident_bytes(0, 64 * MIB).expect("Linux tells");
        assert_eq!(front, 0);
    }
    assert!(memory.alloc(16).is_err(), "not a byte may be used");
    assert!(size_of::<Memory>() + CLASSES * size_of::<Mutex<Lists>>() < 6000, "{}", size_of::<Memory>());
    assert!(size_of::<Shard>() <= 2048, "{}", size_of::<Shard>());
}

#[test]
fn cells_are_aligned_and_their_places_lead_back() {
    let memory = memory();
    for bytes in
        [1, 8, 16, 24, 40, 64, 100, 128, 192, 320, 1000, 4096, 4160, 8192, 20_000, 65_536, MIB, MIB + 64]
    {
        for _ in 0..50.min(64 * MIB / bytes) {
            let cell = memory.alloc_for_test(bytes);
            let address = cell.addr().get();
            assert_eq!(address % 8, 0);
            assert!(!bytes.is_multiple_of(64) || address.is_multiple_of(64), "{bytes} bytes at {address:x}");
            assert!(
                !bytes.is_power_of_two() || address.is_multiple_of(bytes.min(BLOCK_BYTES)),
                "{bytes} at {address:x}"
            );
            let place = memory.offset_of(cell);
            assert!(place > 0 && place < 1 << 40);
            assert_eq!(memory.at(place), cell);
        }
    }
}

#[test]
fn overhead_of_small_cells_is_small() {
    let memory = memory();
    let (rows, bytes) = (200_000, 104);
    for _ in 0..rows {
        memory.alloc_for_test(bytes);
    }
    assert_eq!(memory.used_bytes(), (rows * bytes) as u64);
    let overhead = memory.committed_bytes() - memory.used_bytes();
    assert!(overhead < rows as u64, "less than a byte a row, not {overhead} in all");
}

#[test]
fn zeroed_cells_are_zero_although_they_were_used() {
    let memory = memory();
    for bytes in [64, 5000, 200 << 10, 512 << 10] {
        for _ in 0..3 {
            let cell = memory.alloc_zeroed(bytes).expect("memory");
            // SAFETY: the cell was just handed out.
            let contents = unsafe { std::slice::from_raw_parts_mut(cell.as_ptr(), bytes) };
            assert!(contents.iter().all(|byte| *byte == 0), "{bytes} bytes");
            contents.fill(1);
            // SAFETY: came from this memory, with this size.
            unsafe { memory.free(cell, bytes) };
        }
    }
}

#[test]
fn retired_cells_wait_for_the_pins() {
    let (memory, _, epochs) = memory_with(16 * MIB, None);
    let cells: Vec<_> = (0..1000).map(|index| Filled::new(&memory, 64, index as u8)).collect();
    let guard = epochs.pin();
    for cell in &cells {
        cell.retire(&memory);
    }
    assert_eq!(memory.collect(), 64 * 1000);
    assert_eq!((memory.used_bytes(), memory.retired_bytes()), (0, 64 * 1000));
    let others: Vec<_> = (0..1000).map(|_| Filled::new(&memory, 64, 0x3f)).collect();
    cells.iter().for_each(Filled::check);
    drop(guard);
    assert_eq!(memory.collect(), 0);
    assert_eq!((memory.used_bytes(), memory.retired_bytes()), (64 * 1000, 0));
    others.into_iter().for_each(|cell| cell.free(&memory));
    memory.trim();
    memory.check_trimmed();
}

#[test]
fn retiring_collects_by_itself() {
    let memory = memory();
    for index in 0..100_000_u32 {
        Filled::new(&memory, 128, index as u8).retire(&memory);
    }
    assert!(memory.retired_bytes() <= 128 * 2 * limbo::BATCH as u64, "{}", memory.retired_bytes());
    assert!(memory.committed_bytes() < MIB as u64, "{}", memory.committed_bytes());
}

#[test]
fn memory_goes_back_to_the_system() {
    let (memory, budget, _) = memory_with(256 * MIB, None);
    let cells: Vec<_> = (0..400_000).map(|index| Filled::new(&memory, 100, index as u8)).collect();
    let spans: Vec<_> = (0..4).map(|index| Filled::new(&memory, MIB + 64, index)).collect();
    let full = memory.resident_of_range();
    assert!(full.is_none_or(|full| full > 40 * MIB), "{full:?}");
    assert!(full.is_none_or(|full| full as u64 <= memory.committed_bytes()), "resident memory is charged");
    spans.into_iter().for_each(|cell| cell.free(&memory));
    cells.into_iter().for_each(|cell| cell.free(&memory));
    let idle = memory.committed_bytes();
    assert!(idle < 4 * MIB as u64, "{idle} bytes stay without being asked for");
    let given = memory.trim();
    assert_eq!(memory.committed_bytes(), idle - given);
    memory.check_trimmed();
    let rest = memory.resident_of_range();
    assert!(rest.is_none_or(|rest| rest as u64 <= memory.committed_bytes()), "{rest:?}");
    assert_eq!(budget.used(), memory.committed_bytes());
    drop(memory);
    assert_eq!((budget.used(), budget.used_by(MemoryKind::Versions)), (0, 0));
}

#[test]
fn huge_parts_are_given_back_too() {
    let (memory, _, _) = memory_with(256 * MIB, None);
    let cells: Vec<_> = (0..80 * MIB / 512).map(|index| Filled::new(&memory, 512, index as u8)).collect();
    assert!(memory.space.lock().huge_parts() > 30);
    let (keep, go): (Vec<_>, Vec<_>) = cells.chunks(128).enumerate().partition(|(block, _)| block % 32 == 0);
    go.into_iter().flat_map(|(_, cells)| cells).for_each(|cell| cell.free(&memory));
    memory.trim();
    assert!(memory.committed_bytes() < 4 * MIB as u64, "{}", memory.committed_bytes());
    let resident = memory.resident_of_range();
    assert!(resident.is_none_or(|bytes| bytes as u64 <= memory.committed_bytes()), "{resident:?}");
    assert_eq!(memory.space.lock().huge_parts(), 0);
    keep.into_iter().flat_map(|(_, cells)| cells).for_each(|cell| cell.free(&memory));
}

#[test]
fn the_limit_holds_and_what_others_keep_is_reclaimed() {
    let (memory, budget, _) = memory_with(64 * MIB, Some(MIB as u64));
    let memory = &memory;
    let cells: Vec<_> = std::iter::from_fn(|| memory.alloc(1024).ok()).collect();
    assert!(budget.used() <= MIB as u64);
    assert!(cells.len() >= (MIB - 2 * BLOCK_BYTES) / 1024, "{} cells", cells.len());
    let error = memory.alloc(1024).expect_err("at the limit");
    assert_eq!((error.kind, error.cause), (MemoryKind::Versions, OutOfMemoryCause::Limit));
    assert!(memory.alloc(200 << 10).is_err());
    memory.alloc_reserve(1024).expect("the reserve");
    assert!(budget.used() > MIB as u64);
    let addresses: Vec<_> = cells.iter().map(|cell| memory.offset_of(*cell)).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for &place in &addresses {
                // SAFETY: handed out above with this size, and not used any more.
                unsafe { memory.retire(memory.at(place), 1024) };
            }
        });
    });
    // Another class can have it, although it lies in the limbo and the magazines of another shard.
    for _ in 0..8 {
        memory.alloc(64 << 10).expect("reclaimed");
    }
}

#[test]
fn the_end_of_the_range_is_an_error() {
    let (memory, _, _) = memory_with(2 * MIB, None);
    while memory.alloc(100 << 10).is_ok() {}
    let error = memory.alloc(200 << 10).expect_err("the range is full");
    assert_eq!((error.cause, error.limit_bytes), (OutOfMemoryCause::Range, 2 * MIB as u64));
}

#[test]
fn sparse_blocks_are_evacuated() {
    let (memory, _, epochs) = memory_with(64 * MIB, None);
    let mut cells: Vec<_> = (0..20_000).map(|index| Filled::new(&memory, 256, index as u8)).collect();
    let mut index = 0;
    cells.retain(|cell| {
        index += 1;
        // Every tenth cell stays.
        if index % 10 != 0 {
            cell.free(&memory);
        }
        index % 10 == 0
    });
    memory.trim();
    let committed = memory.committed_bytes();
    let sparse = memory.sparse_blocks(30);
    assert!(sparse.len() > 60, "{} blocks", sparse.len());
    let mut places: BTreeMap<u64, usize> =
        cells.iter().enumerate().map(|(index, cell)| (memory.offset_of(cell.cell), index)).collect();
    for id in sparse {
        assert!(memory.begin_evacuation(id));
        assert!(!memory.begin_evacuation(id), "one evacuation at a time");
        let guard = epochs.pin();
        let mut met = Vec::new();
        assert!(memory.for_each_live_cell(id, |cell| met.push(cell)));
        for cell in met {
            let index = places.remove(&memory.offset_of(cell)).expect("a live cell");
            let moved = Filled::new(&memory, 256, cells[index].pattern);
            assert_ne!(block_of(memory.offset_of(moved.cell)), id.block, "evacuated blocks give out nothing");
            places.insert(memory.offset_of(moved.cell), index);
            std::mem::replace(&mut cells[index], moved).retire(&memory);
        }
        drop(guard);
        memory.collect();
        assert!(!memory.for_each_live_cell(id, |_| panic!("the block is gone")));
        memory.end_evacuation(id);
    }
    memory.trim();
    assert!(memory.committed_bytes() < committed / 5, "{} of {committed}", memory.committed_bytes());
    assert_eq!(memory.evacuating.load(Ordering::Relaxed), 0);
    assert_eq!(memory.used_bytes(), 256 * cells.len() as u64);
    cells.into_iter().for_each(|cell| cell.free(&memory));
}

fn free_three_quarters(memory: &Memory, cells: Vec<Filled>) -> Vec<Filled> {
    let (keep, go): (Vec<_>, Vec<_>) = cells.into_iter().enumerate().partition(|(index, _)| index % 4 == 0);
    go.into_iter().for_each(|(_, cell)| cell.free(memory));
    keep.into_iter().map(|(_, cell)| cell).collect()
}

#[test]
fn an_evacuation_that_is_given_up_leaves_a_block_as_it_was() {
    let memory = memory();
    let cells: Vec<_> = (0..2048).map(|_| Filled::new(&memory, 128, 1)).collect();
    let mut cells = free_three_quarters(&memory, cells);
    memory.trim();
    let id = memory.sparse_blocks(90)[0];
    assert!(memory.begin_evacuation(id));
    memory.end_evacuation(id);
    assert!(memory.begin_evacuation(id), "it may begin again");
    memory.end_evacuation(id);
    cells.extend((0..1500).map(|_| Filled::new(&memory, 128, 2)));
    assert!(
        cells.iter().any(|cell| block_of(memory.offset_of(cell.cell)) == id.block),
        "its cells are used again"
    );
    cells.into_iter().for_each(|cell| cell.free(&memory));
}

#[test]
fn a_block_stays_while_somebody_walks_over_it() {
    let memory = memory();
    let cells: Vec<_> = (0..2048).map(|_| Filled::new(&memory, 128, 1)).collect();
    let cells = free_three_quarters(&memory, cells);
    memory.trim();
    let id = memory.sparse_blocks(99)[0];
    assert!(memory.begin_evacuation(id));
    let (mut inside, outside): (Vec<_>, Vec<_>) =
        cells.into_iter().partition(|cell| block_of(memory.offset_of(cell.cell)) == id.block);
    let mut calls = 0;
    memory.for_each_live_cell(id, |cell| {
        calls += 1;
        inside.drain(..).for_each(|cell| cell.free(&memory));
        assert_eq!(memory.word(memory.offset_of(cell)).load(Ordering::Relaxed) & FREE, FREE);
        assert_eq!(memory.block(id.block).generation(), id.generation);
    });
    assert_eq!(calls, 1, "cells that became free are passed over");
    assert_ne!(memory.block(id.block).generation(), id.generation);
    outside.into_iter().for_each(|cell| cell.free(&memory));
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "a free cell was written to")]
fn writing_to_a_freed_cell_is_found() {
    let memory = memory();
    let cell = Filled::new(&memory, 128, 1);
    cell.free(&memory);
    // SAFETY: none; the range is mapped, and the damage is what this test is about.
    unsafe { cell.cell.add(16).write(1) };
    memory.alloc_for_test(128);
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "a cell is freed once")]
fn freeing_twice_is_found() {
    let memory = memory();
    let cell = Filled::new(&memory, 128, 1);
    cell.free(&memory);
    // SAFETY: none; the range is mapped, and the broken promise is what this test is about.
    unsafe { memory.free(cell.cell, 128) };
}

#[derive(Clone, Debug)]
enum Step {
    Alloc(usize),
    Free(prop::sample::Index),
    Retire(prop::sample::Index),
    Pin,
    Unpin,
    Collect,
    Trim,
    Evacuate(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![8 => 1..300_usize, 4 => 300..5000_usize, 2 => 5000..140_000_usize, 1 => 140_000..MIB + 65];
    prop_oneof![
        24 => bytes.prop_map(Step::Alloc),
        12 => any::<prop::sample::Index>().prop_map(Step::Free),
        12 => any::<prop::sample::Index>().prop_map(Step::Retire),
        1 => Just(Step::Pin),
        2 => Just(Step::Unpin),
        1 => Just(Step::Collect),
        1 => Just(Step::Trim),
        1 => (10..100_u32).prop_map(Step::Evacuate),
    ]
}

/// What the shadow knows: live cells by place, and those in limbo, which keep their place too.
#[derive(Default)]
struct Shadow {
    live: Vec<Filled>,
    limbo: Vec<Filled>,
    /// Start → end of everything that is live or surely in limbo.
    ranges: BTreeMap<usize, usize>,
}

impl Shadow {
    fn occupy(&mut self, cell: &Filled) {
        let start = cell.cell.addr().get();
        let end = start + cell.bytes;
        assert!(
            self.ranges.range(..end).next_back().is_none_or(|(_, before)| *before <= start),
            "cells overlap"
        );
        self.ranges.insert(start, end);
    }

    fn leave(&mut self, cell: &Filled) {
        self.ranges.remove(&cell.cell.addr().get()).expect("it was there");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_its_shadow(steps in prop::collection::vec(step(), 1..400)) {
        let (memory, budget, epochs) = memory_with(128 * MIB, None);
        let mut shadow = Shadow::default();
        let mut pin = None;
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Alloc(bytes) => {
                    let cell = Filled::new(&memory, bytes, number as u8);
                    shadow.occupy(&cell);
                    shadow.live.push(cell);
                }
                Step::Free(which) if !shadow.live.is_empty() => {
                    let cell = shadow.live.swap_remove(which.index(shadow.live.len()));
                    shadow.leave(&cell);
                    cell.free(&memory);
                }
                Step::Retire(which) if !shadow.live.is_empty() => {
                    let cell = shadow.live.swap_remove(which.index(shadow.live.len()));
                    cell.retire(&memory);
                    if pin.is_some() {
                        shadow.limbo.push(cell);
                    } else {
                        shadow.leave(&cell);
                    }
                }
                Step::Pin => {
                    pin.get_or_insert_with(|| epochs.pin());
                }
                Step::Unpin => {
                    for cell in std::mem::take(&mut shadow.limbo) {
                        cell.check();
                        shadow.leave(&cell);
                    }
                    pin = None;
                }
                Step::Collect => {
                    let left = memory.collect();
                    if pin.is_none() {
                        prop_assert_eq!(left, 0);
                    }
                }
                Step::Trim => {
                    memory.trim();
                }
                Step::Evacuate(fill) => {
                    for id in memory.sparse_blocks(fill) {
                        prop_assert!(memory.begin_evacuation(id));
                        let mut met = std::collections::BTreeSet::new();
                        // Whoever is still there is live or in limbo, and all of those are met.
                        memory.for_each_live_cell(id, |cell| { met.insert(cell.addr().get()); });
                        let shape = shape(id.class);
                        let start = memory.at(block_units(id.block)).addr().get();
                        let end = start + usize::from(shape.blocks) * BLOCK_BYTES;
                        prop_assert!(shadow.ranges.range(start..end).all(|(place, _)| met.contains(place)));
                        memory.end_evacuation(id);
                    }
                }
                Step::Free(_) | Step::Retire(_) => {}
            }
            let live: u64 = shadow.live.iter().map(|cell| Memory::cell_bytes(cell.bytes) as u64).sum();
            let limbo: u64 = shadow.limbo.iter().map(|cell| Memory::cell_bytes(cell.bytes) as u64).sum();
            prop_assert_eq!(memory.used_bytes(), live);
            prop_assert!(memory.retired_bytes() >= limbo);
            prop_assert!(memory.used_bytes() + memory.retired_bytes() <= memory.committed_bytes());
            prop_assert_eq!(memory.committed_bytes(), budget.used());
        }
        drop(pin);
        shadow.live.into_iter().for_each(|cell| cell.free(&memory));
        memory.trim();
        prop_assert_eq!((memory.used_bytes(), memory.retired_bytes()), (0, 0));
        memory.check_trimmed();
    }
}

/// Threads exchange cells through a shared table: what one allocates another retires, while readers look at it under
/// a pin, and one thread evacuates.
#[test]
fn threads_share_a_memory() {
    const SLOTS: usize = 256;
    let (memory, _, epochs) = memory_with(256 * MIB, None);
    let table: Vec<AtomicU64> = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    let rounds = if cfg!(debug_assertions) { 20_000 } else { 200_000 };
    // Cell: first word 1, then its size, then its place, then the place once more at its end.
    let sizes = [40, 64, 136, 520, 4096];
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3_u64)
            .map(|writer| {
                let (memory, table) = (&memory, &table);
                scope.spawn(move || {
                    let mut random = writer + 1;
                    for _ in 0..rounds {
                        random = random
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        let bytes = sizes[(random >> 33) as usize % sizes.len()];
                        let cell = memory.alloc_for_test(bytes);
                        let place = memory.offset_of(cell);
                        let words = cell.cast::<AtomicU64>();
                        // SAFETY: the cell was just handed out and has at least five words.
                        unsafe {
                            words.add(1).as_ref().store(bytes as u64, Ordering::Relaxed);
                            words.add(2).as_ref().store(place, Ordering::Relaxed);
                            words.add(bytes / 8 - 1).as_ref().store(place, Ordering::Relaxed);
                            words.as_ref().store(1, Ordering::Release);
                        }
                        let old = table[(random >> 40) as usize % SLOTS].swap(place, Ordering::AcqRel);
                        if old != 0 {
                            let cell = memory.at(old);
                            // SAFETY: the cell was in the table, and we alone have taken it out.
                            unsafe {
                                let bytes = cell.cast::<AtomicU64>().add(1).as_ref().load(Ordering::Relaxed);
                                memory.retire(cell, bytes as usize);
                            }
                        }
                    }
                })
            })
            .collect();
        let (memory, table, epochs, done) = (&memory, &table, &epochs, &done);
        scope.spawn(move || {
            let mut slot = 0;
            while !done.load(Ordering::Relaxed) {
                let _guard = epochs.pin();
                for _ in 0..16 {
                    slot = (slot + 1) % SLOTS;
                    let place = table[slot].load(Ordering::Acquire);
                    if place != 0 {
                        let words = memory.at(place).cast::<AtomicU64>();
                        // SAFETY: under the pin the cell keeps its contents.
                        unsafe {
                            let bytes = words.add(1).as_ref().load(Ordering::Relaxed);
                            assert_eq!(words.as_ref().load(Ordering::Relaxed), 1);
                            assert_eq!(words.add(2).as_ref().load(Ordering::Relaxed), place);
                            let last = words.add(bytes as usize / 8 - 1).as_ref();
                            assert_eq!(last.load(Ordering::Relaxed), place);
                        }
                    }
                }
            }
        });
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                for id in memory.sparse_blocks(80) {
                    if memory.begin_evacuation(id) {
                        let guard = epochs.pin();
                        memory.for_each_live_cell(id, |cell| {
                            let words = cell.cast::<AtomicU64>();
                            // SAFETY: the block stays mapped, and its words are accessed atomically.
                            unsafe {
                                if words.as_ref().load(Ordering::Acquire) == 1 {
                                    let place = words.add(2).as_ref().load(Ordering::Relaxed);
                                    assert_eq!(place, memory.offset_of(cell));
                                }
                            }
                        });
                        drop(guard);
                        memory.end_evacuation(id);
                    }
                }
                memory.trim();
                std::thread::yield_now();
            }
        });
        for writer in writers {
            writer.join().expect("a writer");
        }
        done.store(true, Ordering::Relaxed);
    });
    let live: u64 = table
        .iter()
        .map(|slot| slot.load(Ordering::Relaxed))
        .filter(|place| *place != 0)
        .map(|place| {
            let cell = memory.at(place);
            // SAFETY: it is in the table, so it is live; nobody else uses the memory any more.
            unsafe {
                let bytes = cell.cast::<AtomicU64>().add(1).as_ref().load(Ordering::Relaxed) as usize;
                memory.free(cell, bytes);
                Memory::cell_bytes(bytes) as u64
            }
        })
        .sum();
    assert!(live > 0);
    assert_eq!(memory.collect(), 0);
    assert_eq!(memory.used_bytes(), 0, "the counts are exact");
    memory.trim();
    memory.check_trimmed();
    assert_eq!(memory.evacuating.load(Ordering::Relaxed), 0);
}
