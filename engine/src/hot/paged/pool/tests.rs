//! Pages of runs over a file in memory: numbers that are used again, frames, room.

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;
use thermocline_base::io::{Io, MemoryIo, OpenMode};
use thermocline_pool::page::HEADER_BYTES;

use super::*;

const FRAMES: u64 = 64 * PAGE_BYTES as u64;

fn pages_in(memory: &MemoryIo) -> PoolPages {
    let file = memory.open(Path::new("pages"), OpenMode::CreateNew).expect("a file in memory");
    PoolPages::new(file, FRAMES, None).expect("there are addresses")
}

/// The bytes of a page behind its header.
fn payload(run: u64, page: usize) -> Vec<u8> {
    (0..PAGE_BYTES - HEADER_BYTES).map(|at| (run as usize * 31 + page * 7 + at) as u8).collect()
}

/// A run of pages, wherever there is room.
fn append(pages: &PoolPages, run: u64, count: usize) -> Result<Vec<Extent>, PagedError> {
    let mut bytes = vec![0; count * PAGE_BYTES];
    for (page, bytes) in bytes.chunks_exact_mut(PAGE_BYTES).enumerate() {
        bytes[HEADER_BYTES..].copy_from_slice(&payload(run, page));
    }
    let (mut rest, mut extents) = (&bytes[..], Vec::new());
    while !rest.is_empty() {
        match pages.append(rest, run) {
            Ok(extent) => {
                rest = &rest[extent.pages as usize * PAGE_BYTES..];
                extents.push(extent);
            }
            Err(error) => {
                extents.into_iter().for_each(|extent| pages.let_go(extent));
                return Err(error);
            }
        }
    }
    Ok(extents)
}

fn numbers(extents: &[Extent]) -> impl Iterator<Item = u64> {
    extents.iter().flat_map(|extent| extent.first..extent.first + u64::from(extent.pages))
}

/// Looks at a page of a run through a frame.
fn in_frame(pages: &PoolPages, number: u64, run: u64) -> Result<Option<Vec<u8>>, PagedError> {
    let brought = block_on(pages.bring(number, run, <[u8]>::to_vec))?;
    let found = pages.look(number, run).map(|page| page.payload().to_vec());
    assert!(found.as_ref().is_none_or(|found| *found == brought), "page {number}");
    Ok(found)
}

fn past(pages: &PoolPages, number: u64, run: u64) -> Result<Vec<u8>, PagedError> {
    let read = block_on(pages.read_past(number, run, AlignedBytes::zeroed(PAGE_BYTES)))?;
    Ok(read[HEADER_BYTES..].to_vec())
}

#[test]
fn a_number_that_is_used_again_is_another_page() {
    let pages = pages_in(&MemoryIo::new());
    let first = append(&pages, 1, 32).expect("room");
    let number = first[0].first;
    assert_eq!(in_frame(&pages, number, 1).expect("read"), Some(payload(1, 0)));
    first.iter().for_each(|extent| pages.let_go(*extent));
    pages.tidy();
    let second = append(&pages, 2, 32).expect("room");
    assert_eq!(second[0].first, number, "the room that was given back fits best");
    // The frame is gone, and with it the former page; whoever asks for that one is told.
    assert!(pages.look(number, 1).is_none() && pages.look(number, 2).is_none());
    for lost in [block_on(pages.bring(number, 1, |_| ())).err(), past(&pages, number, 1).err()] {
        assert!(matches!(lost, Some(PagedError::Lost { .. })), "{lost:?}");
    }
    assert_eq!(in_frame(&pages, number, 2).expect("read"), Some(payload(2, 0)));
    assert!(pages.look(number, 1).is_none(), "a frame is of one run");
    assert_eq!(past(&pages, number, 2).expect("read"), payload(2, 0));
}

#[test]
fn frames_follow_their_budget() {
    let pages = pages_in(&MemoryIo::new());
    let run = append(&pages, 1, 400).expect("room");
    let bring_all = || {
        for number in numbers(&run) {
            block_on(pages.bring(number, 1, |_| ())).expect("read");
        }
        pages.stats().used_bytes
    };
    assert!(bring_all() <= FRAMES);
    pages.set_frame_bytes(4 * FRAMES);
    let more = bring_all();
    assert!(more > FRAMES && more <= 4 * FRAMES, "{more} bytes");
    assert!(pages.memory_bytes() >= 4 * FRAMES, "frames count whether they hold a page or not");
    pages.set_frame_bytes(FRAMES);
    assert!(pages.stats().used_bytes <= FRAMES && pages.frame_bytes() == FRAMES);
    pages.let_pages_go();
    assert!(numbers(&run).all(|number| pages.look(number, 1).is_none()));
    assert!(bring_all() > FRAMES / 2, "there are frames again");
    // Without a frame a page is brought in a buffer.
    pages.set_frame_bytes(0);
    for (page, number) in numbers(&run).enumerate() {
        let brought = block_on(pages.bring(number, 1, <[u8]>::to_vec)).expect("read");
        assert_eq!((brought, pages.look(number, 1).is_none()), (payload(1, page), true));
    }
}

#[test]
fn a_full_medium_keeps_nothing() {
    let memory = MemoryIo::new();
    let pages = pages_in(&memory);
    memory.set_capacity(Some(100 * EXTENT_PAGES * PAGE_BYTES as u64));
    let mut runs = Vec::new();
    let full = loop {
        match append(&pages, runs.len() as u64, 100) {
            Ok(run) => runs.push(run),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, PagedError::Full { .. }) && full.sqlstate() == "53100", "{full}");
    assert_eq!(pages.pages(), runs.len() as u64 * 100, "nothing of the run that found no room");
    for (run, extents) in runs.iter().enumerate() {
        for (page, number) in numbers(extents).enumerate() {
            assert_eq!(past(&pages, number, run as u64).expect("it was written"), payload(run as u64, page));
        }
    }
    runs.pop().expect("some fit").into_iter().for_each(|extent| pages.let_go(extent));
    pages.tidy();
    append(&pages, 900, 60).expect("there is room again");
}

#[derive(Clone, Debug)]
enum Step {
    Append(usize),
    LetGo(usize),
    Tidy,
    Frame(usize, usize),
    Past(usize, usize),
    Frames(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1_usize..150).prop_map(Step::Append),
        2 => any::<usize>().prop_map(Step::LetGo),
        1 => Just(Step::Tidy),
        3 => (any::<usize>(), any::<usize>()).prop_map(|(run, page)| Step::Frame(run, page)),
        2 => (any::<usize>(), any::<usize>()).prop_map(|(run, page)| Step::Past(run, page)),
        1 => (16_u64..128).prop_map(Step::Frames),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Runs come and go: none has a page of another one, none loses one, and what all of them had is room again.
    #[test]
    fn runs_neither_share_nor_lose_pages(steps in prop::collection::vec(step(), 1..60)) {
        let pages = pages_in(&MemoryIo::new());
        let mut runs: BTreeMap<u64, Vec<Extent>> = BTreeMap::new();
        let mut next = 1;
        let picked = |runs: &BTreeMap<u64, Vec<Extent>>, run: usize, page: usize| {
            let (run, extents) = runs.iter().nth(run.checked_rem(runs.len())?)?;
            let all: Vec<u64> = numbers(extents).collect();
            let page = page % all.len();
            Some((*run, page, all[page]))
        };
        for step in steps {
            match step {
                Step::Append(count) => {
                    let extents = append(&pages, next, count).expect("memory has room");
                    prop_assert_eq!(numbers(&extents).count(), count);
                    for number in numbers(&extents) {
                        prop_assert!(number >= EXTENT_PAGES, "the header's extent is never given");
                        prop_assert!(runs.values().all(|run| numbers(run).all(|other| other != number)));
                    }
                    runs.insert(next, extents);
                    next += 1;
                }
                Step::LetGo(run) => {
                    if let Some((run, ..)) = picked(&runs, run, 0) {
                        let extents = runs.remove(&run).expect("it was picked");
                        extents.into_iter().for_each(|extent| pages.let_go(extent));
                    }
                }
                Step::Tidy => pages.tidy(),
                Step::Frame(run, page) => {
                    if let Some((run, page, number)) = picked(&runs, run, page) {
                        let found = in_frame(&pages, number, run).expect("it was written");
                        prop_assert_eq!(found, Some(payload(run, page)));
                    }
                }
                Step::Past(run, page) => {
                    if let Some((run, page, number)) = picked(&runs, run, page) {
                        prop_assert_eq!(past(&pages, number, run).expect("it was written"), payload(run, page));
                    }
                }
                Step::Frames(count) => pages.set_frame_bytes(count * PAGE_BYTES as u64),
            }
            let live: u64 = runs.values().map(|run| numbers(run).count() as u64).sum();
            prop_assert_eq!(pages.pages(), live);
        }
        runs.into_values().flatten().for_each(|extent| pages.let_go(extent));
        pages.tidy();
        prop_assert_eq!(pages.pages(), 0);
        // What was allocated and not taken is open still, in one extent's rest at most for each allocation.
        let open: u64 = pages.extents.lock().open.iter().map(|open| open.end - open.start).sum();
        prop_assert!(pages.space.used() <= 1 + open.div_ceil(EXTENT_PAGES).max(1) + 1);
    }
}
