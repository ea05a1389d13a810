//! A region left to the system is a flat array, with proofs that last and parts that end;
//! its trimmer keeps to the limit.

use std::collections::BTreeMap;

use proptest::prelude::*;
use thermocline_base::io::{MemoryIo, SystemIo};
use thermocline_base::rng::Rng;

use super::*;

const PAGE: u64 = PAGE_BYTES as u64;

struct World {
    epochs: Arc<Epochs>,
    pager: OsPager,
    _dir: tempfile::TempDir,
}

fn world(parts: usize, resident_pages: Option<usize>) -> World {
    let (mut dir, epochs) = (tempfile::tempdir().expect("a directory"), Arc::new(Epochs::new()));
    let options = OsOptions { bytes: parts * PART_BYTES, resident_pages };
    let new = |dir: &Path| OsPager::new(options, Arc::clone(&epochs), &SystemIo::new(), dir);
    let pager = new(dir.path()).or_else(|error| {
        assert!(error.to_string().contains("name a directory on a disk"), "{error}");
        dir = tempfile::tempdir_in("/var/tmp").expect("a directory on a disk");
        new(dir.path())
    });
    let pager = pager.expect("a region");
    assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 0, "the file has no name");
    World { epochs, pager, _dir: dir }
}

fn run(first: u64, pages: usize) -> AlignedBytes {
    let mut bytes = AlignedBytes::zeroed(pages * PAGE_BYTES);
    for (page, bytes) in bytes.chunks_mut(PAGE_BYTES).enumerate() {
        Rng::new(first + page as u64).fill(bytes);
    }
    bytes
}

fn page(at: u64) -> Span {
    Span { at, bytes: PAGE_BYTES as u32 }
}

fn read(world: &World, spans: &[Span]) -> Result<Vec<Vec<u8>>, RegionError> {
    let guard = world.epochs.pin();
    let proof = world.pager.look(&guard, spans)?;
    Ok(spans.iter().map(|span| proof.bytes(*span).to_vec()).collect())
}

#[derive(Clone, Debug)]
enum Act {
    Append { which: usize, pages: usize },
    Read { seed: u64, count: usize },
    Ahead(u64),
    Take(Side),
    Free(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (0..4_usize, 1..200_usize).prop_map(|(which, pages)| Act::Append { which, pages }),
        6 => (any::<u64>(), 1..4_usize).prop_map(|(seed, count)| Act::Read { seed, count }),
        1 => any::<u64>().prop_map(Act::Ahead),
        2 => prop_oneof![Just(Side::Paged), Just(Side::Paged), Just(Side::Pinned)].prop_map(Act::Take),
        1 => (0..4_usize).prop_map(Act::Free),
    ]
}

fn against_a_flat_array(acts: &[Act]) {
    let world = world(4, Some(8));
    let mut pages: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut paged, mut pinned, mut next) = (Vec::new(), Vec::new(), 1);
    for act in acts {
        match *act {
            Act::Append { which, pages: count } if !paged.is_empty() => {
                let part: Part = paged[which % paged.len()];
                if let Some(start) = world.pager.append(part, run(next, count)).expect("written") {
                    pages.extend((0..count as u64).map(|at| (start + at * PAGE, next + at)));
                    next += count as u64;
                }
            }
            Act::Read { seed, count } if !pages.is_empty() => {
                let mut rng = Rng::new(seed);
                let mut any = || *pages.iter().nth(rng.below(pages.len() as u64) as usize).expect("there").0;
                let spans: Vec<_> = (0..count).map(|_| page(any())).collect();
                for (span, bytes) in spans.iter().zip(read(&world, &spans).expect("read")) {
                    assert_eq!(bytes, &run(pages[&span.at], 1)[..]);
                }
            }
            Act::Ahead(seed) if !pages.is_empty() => {
                let at = *pages.keys().nth(seed as usize % pages.len()).expect("there");
                world.pager.prefetch(&[page(at)]);
            }
            Act::Take(side) => match world.pager.take(side) {
                Ok(part) if side == Side::Pinned => {
                    let start = world.pager.pinned(part).expect("pinned");
                    // SAFETY: the part is ours.
                    let bytes = unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), PART_BYTES) };
                    assert!(bytes[..PAGE_BYTES].iter().all(|byte| *byte == 0), "pinned memory is zero");
                    bytes[..PAGE_BYTES].fill(9);
                    pinned.push(part);
                }
                Ok(part) => paged.push(part),
                Err(error) => assert!(matches!(error, RegionError::NoPart { parts: 4 }), "{error}"),
            },
            Act::Free(which) => {
                let list = if which % 2 == 0 { &mut paged } else { &mut pinned };
                if !list.is_empty() {
                    let part = list.swap_remove(which % list.len());
                    world.pager.free(part).expect("freed");
                    assert!(world.pager.free(part).is_err(), "once");
                    let start = u64::from(part.number) * PART_BYTES as u64;
                    let gone = read(&world, &[page(start)]).expect_err("nothing there");
                    assert!(matches!(gone, RegionError::NoPage { .. }), "{gone}");
                    pages.retain(|at, _| !(start..start + PART_BYTES as u64).contains(at));
                }
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn a_region_left_to_the_system_is_a_flat_array(acts in prop::collection::vec(act(), 1..50)) {
        against_a_flat_array(&acts);
    }
}

/// Whatever is read, the trimmer ends with no more resident than it may, and what was taken away comes back as it was.
#[test]
fn the_trimmer_keeps_to_the_limit() {
    let world = world(6, Some(PART_PAGES));
    let parts: Vec<_> = (0..6).map(|_| world.pager.take(Side::Paged).expect("free")).collect();
    for (at, part) in parts.iter().enumerate() {
        let first = (at * PART_PAGES) as u64;
        world.pager.append(*part, run(first, PART_PAGES)).expect("written").expect("room");
    }
    for round in 0..2 {
        for (at, part) in parts.iter().enumerate() {
            for number in 0..PART_PAGES as u64 {
                let place = u64::from(part.number) * PART_BYTES as u64 + number * PAGE;
                let bytes = read(&world, &[page(place)]).expect("read");
                if number % 64 == 0 {
                    assert_eq!(
                        bytes[0],
                        &run(at as u64 * PART_PAGES as u64 + number, 1)[..],
                        "round {round}"
                    );
                }
            }
        }
        // It looks again and again until it is so.
        while world.pager.statistics().resident_bytes > 2 * PART_BYTES as u64 {
            std::thread::yield_now();
        }
    }
    let statistics = world.pager.statistics();
    assert!(statistics.parts_trimmed > 0, "{statistics:?}");
    assert_eq!(statistics.write_bytes, 6 * PART_BYTES as u64);
}

/// A part ends only when the pins that may have a way to its bytes have ended.
#[test]
fn a_part_waits_for_its_readers() {
    let world = world(2, None);
    let part = world.pager.take(Side::Paged).expect("free");
    let start = world.pager.append(part, run(3, 2)).expect("written").expect("room");
    let asked = [page(start)];
    std::thread::scope(|scope| {
        let guard = world.epochs.pin();
        let freeing = {
            let proof = world.pager.look(&guard, &asked).expect("asked");
            let freeing = scope.spawn(|| world.pager.free(part).expect("freed"));
            while world.pager.side(part.number).0 != Side::Going {
                std::thread::yield_now();
            }
            assert_eq!(proof.bytes(asked[0]), &run(3, 1)[..]);
            freeing
        };
        assert!(!freeing.is_finished(), "the reader's pin is there");
        drop(guard);
        freeing.join().expect("no panic");
    });
    assert_eq!(world.pager.side(part.number).0, Side::Free);
}

#[test]
fn what_cannot_be_is_said() {
    let (dir, epochs) = (tempfile::tempdir().expect("a directory"), Arc::new(Epochs::new()));
    let options = OsOptions { bytes: PART_BYTES, resident_pages: None };
    let missing = dir.path().join("missing");
    let error =
        OsPager::new(options, Arc::clone(&epochs), &SystemIo::new(), &missing).expect_err("no directory");
    assert!(error.to_string().contains("missing"), "{error}");
    let error =
        OsPager::new(options, epochs, &MemoryIo::new(), Path::new("memory")).expect_err("no file to map");
    assert!(matches!(error, RegionError::NoFile { .. }), "{error}");
    let world = world(1, None);
    let part = world.pager.take(Side::Paged).expect("free");
    assert!(matches!(world.pager.take(Side::Pinned), Err(RegionError::NoPart { parts: 1 })));
    assert!(matches!(world.pager.pinned(part), Err(RegionError::WrongSide { .. })));
    assert!(world.pager.append(part, run(0, PART_PAGES)).expect("asked").is_some());
    assert!(world.pager.append(part, run(0, 1)).expect("asked").is_none(), "the part is full");
    let none = world.pager.append(Part { generation: 7, ..part }, run(0, 1)).expect_err("another use");
    assert!(matches!(none, RegionError::WrongSide { .. }), "{none}");
}
