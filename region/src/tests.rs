//! The promises of a region, against a flat array; faults of the medium; the net.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use thermocline_base::backing::{Backing, FileBacking, PAGE_BYTES, PART_BYTES, PART_PAGES, PageName};
use thermocline_base::epoch::Epochs;
use thermocline_base::io::{
    Action, AlignedBytes, Completion, Fault, FaultKind, MemoryIo, RecordingIo, SystemIo,
};
use thermocline_base::multiplex::{block_on, run_tasks};
use thermocline_base::rng::Rng;
use thermocline_pool::policy::PolicyKind;

use crate::{Options, Pager, Part, RegionError, Side, Span};

const PAGE: u64 = PAGE_BYTES as u64;

struct World {
    epochs: Arc<Epochs>,
    pager: Pager,
    io: RecordingIo,
}

fn options(parts: usize, frames: usize) -> Options {
    Options { bytes: parts * PART_BYTES, frames, policy: PolicyKind::S3Fifo }
}

/// A region over a file in memory: poisoned, or (where there is one) with the system's pages and the net.
fn world(system: bool, parts: usize, frames: usize) -> World {
    let io = RecordingIo::new(&MemoryIo::new());
    let epochs = Arc::new(Epochs::new());
    let backing = Arc::new(FileBacking::new(&io, Path::new("pages")).expect("made"));
    let new = if system { Pager::new } else { Pager::poisoned };
    let pager = new(options(parts, frames), Arc::clone(&epochs), backing).expect("a region");
    World { epochs, pager, io }
}

/// A run of pages that each hold their number.
fn run(first: u64, pages: usize) -> AlignedBytes {
    let mut bytes = AlignedBytes::zeroed(pages * PAGE_BYTES);
    for (page, bytes) in bytes.chunks_mut(PAGE_BYTES).enumerate() {
        Rng::new(first + page as u64).fill(bytes);
    }
    bytes
}

fn append(world: &World, part: Part, first: u64, pages: usize) -> u64 {
    world.pager.append(part, run(first, pages)).expect("written").expect("room")
}

/// Reads spans as a reader does, however long it takes.
fn read(world: &World, spans: &[Span]) -> Result<Vec<Vec<u8>>, RegionError> {
    let mut claim = world.pager.claim();
    loop {
        {
            let guard = world.epochs.pin();
            if let Some(proof) = world.pager.ask(&guard, spans, &mut claim)? {
                return Ok(spans.iter().map(|span| proof.bytes(*span).to_vec()).collect());
            }
        }
        claim.wait()?;
    }
}

fn page(at: u64) -> Span {
    Span { at, bytes: PAGE_BYTES as u32 }
}

#[test]
fn what_was_appended_is_read_with_few_frames() {
    for system in [false, true] {
        let world = world(system, 2, 8);
        let part = world.pager.take(Side::Paged).expect("free");
        let start = append(&world, part, 0, PART_PAGES);
        assert!(world.pager.append(part, run(0, 1)).expect("asked").is_none(), "the part is full");
        let expected = run(0, PART_PAGES);
        let mut rng = Rng::new(7);
        for _ in 0..400 {
            let at = rng.below(PART_BYTES as u64 - 9000);
            let span = Span { at: start + at, bytes: 1 + rng.below(9000) as u32 };
            let got = read(&world, &[span]).expect("read");
            assert_eq!(got[0], expected[at as usize..at as usize + span.bytes as usize]);
        }
        let statistics = world.pager.statistics();
        assert!(statistics.page_outs > 300 && statistics.page_ins > statistics.page_outs, "{statistics:?}");
        assert!(statistics.resident_bytes <= 8 * PAGE);
        assert_eq!(statistics.net_faults, 0);
    }
}

/// The type says so: without a proof there are no bytes, and the twin poisons what was taken away.
#[test]
fn the_twin_poisons_what_it_took_away() {
    let world = world(false, 1, 2);
    let part = world.pager.take(Side::Paged).expect("free");
    let start = append(&world, part, 0, 3);
    read(&world, &[page(start)]).expect("read");
    let first = || {
        // SAFETY: inside of the reservation; the page is looked at without asking.
        unsafe { world.pager.inner().memory.reservation().base().add(start as usize).read() }
    };
    assert_eq!(first(), run(0, 1)[0]);
    read(&world, &[page(start + PAGE)]).expect("read");
    assert_eq!(first(), crate::memory::POISON);
}

#[test]
#[should_panic(expected = "bytes are read that were asked for")]
fn bytes_beyond_what_was_asked_for_are_refused() {
    let world = world(false, 1, 8);
    let part = world.pager.take(Side::Paged).expect("free");
    let start = append(&world, part, 0, 2);
    read(&world, &[page(start)]).expect("read");
    let (guard, asked) = (world.epochs.pin(), [page(start)]);
    let mut claim = world.pager.claim();
    let proof = world.pager.ask(&guard, &asked, &mut claim).expect("asked").expect("present");
    let _ = proof.bytes(page(start + 1));
}

/// A reader's pin keeps the page whose proof it has, whatever others need.
#[test]
fn a_proof_lasts_as_long_as_its_pin() {
    let world = world(false, 1, 3);
    let part = world.pager.take(Side::Paged).expect("free");
    let start = append(&world, part, 0, 8);
    read(&world, &[page(start)]).expect("read");
    let (asked, mut claim) = ([page(start)], world.pager.claim());
    let guard = world.epochs.pin();
    let proof = world.pager.ask(&guard, &asked, &mut claim).expect("asked").expect("present");
    for _ in 0..20 {
        world.pager.make_room(3);
    }
    assert_eq!(proof.bytes(asked[0]), &run(0, 1)[..]);
    assert_eq!(world.pager.statistics().page_outs, 0);
    drop(guard);
    (0..4).for_each(|_| world.pager.make_room(3));
    assert_eq!(world.pager.statistics().page_outs, 1);
}

#[derive(Clone, Debug)]
enum Act {
    Append { which: usize, pages: usize },
    Read { seed: u64, count: usize },
    Room(usize),
    Take(Side),
    Free(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (0..4_usize, 1..5_usize).prop_map(|(which, pages)| Act::Append { which, pages }),
        6 => (any::<u64>(), 1..4_usize).prop_map(|(seed, count)| Act::Read { seed, count }),
        1 => (1..8_usize).prop_map(Act::Room),
        2 => prop_oneof![Just(Side::Paged), Just(Side::Paged), Just(Side::Pinned)].prop_map(Act::Take),
        1 => (0..4_usize).prop_map(Act::Free),
    ]
}

/// The model of a region: what each page of each part that is paged now was written as.
fn against_a_flat_array(system: bool, acts: &[Act]) {
    let world = world(system, 4, 8);
    let mut pages: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut paged, mut pinned, mut next) = (Vec::new(), Vec::new(), 1);
    for act in acts {
        match *act {
            Act::Append { which, pages: count } if !paged.is_empty() => {
                let part = paged[which % paged.len()];
                let start = append(&world, part, next, count);
                pages.extend((0..count as u64).map(|at| (start + at * PAGE, next + at)));
                next += count as u64;
            }
            Act::Read { seed, count } if !pages.is_empty() => {
                let mut rng = Rng::new(seed);
                let chosen: Vec<_> = (0..count)
                    .map(|_| pages.iter().nth(rng.below(pages.len() as u64) as usize).expect("there"))
                    .collect();
                let spans: Vec<_> = chosen.iter().map(|(at, _)| page(**at)).collect();
                let got = read(&world, &spans).expect("read");
                for ((_, number), bytes) in chosen.iter().zip(got) {
                    assert_eq!(bytes, &run(**number, 1)[..]);
                }
            }
            Act::Room(frames) => world.pager.make_room(frames),
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
                Err(error) => {
                    assert!(matches!(error, RegionError::NoPart { parts: 4 }), "{error}");
                    assert_eq!(paged.len() + pinned.len(), 4);
                }
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
        assert!(world.pager.statistics().resident_bytes <= 8 * PAGE);
    }
    assert_eq!(world.pager.statistics().net_faults, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_region_is_a_flat_array(acts in prop::collection::vec(act(), 1..60)) {
        against_a_flat_array(false, &acts);
    }

    #[test]
    fn so_it_is_with_pages_of_the_system(acts in prop::collection::vec(act(), 1..60)) {
        against_a_flat_array(true, &acts);
    }
}

/// Waiters whose sets together are many times the frames, as tasks of two threads: each one ends, and sees its set whole.
#[test]
fn waiters_with_eight_pages_all_end() {
    for system in [false, true] {
        let world = world(system, 1, 8);
        let part = world.pager.take(Side::Paged).expect("free");
        let start = append(&world, part, 0, 64);
        let world = &world;
        std::thread::scope(|scope| {
            for thread in 0..2 {
                scope.spawn(move || {
                    let readers = (0..16).map(|task| async move {
                        let mut rng = Rng::new(task + 100 * thread);
                        for _ in 0..20 {
                            let numbers: Vec<u64> = (0..1 + rng.below(7)).map(|_| rng.below(64)).collect();
                            let spans: Vec<_> =
                                numbers.iter().map(|number| page(start + number * PAGE)).collect();
                            let mut claim = world.pager.claim();
                            loop {
                                {
                                    let guard = world.epochs.pin();
                                    let asked = world.pager.ask(&guard, &spans, &mut claim).expect("asked");
                                    if let Some(proof) = asked {
                                        for (number, span) in numbers.iter().zip(&spans) {
                                            assert_eq!(proof.bytes(*span), &run(*number, 1)[..]);
                                        }
                                        break;
                                    }
                                }
                                (&mut claim).await.expect("read");
                            }
                        }
                    });
                    run_tasks(readers.collect());
                });
            }
        });
        assert_eq!(world.pager.statistics().net_faults, 0);
    }
}

#[test]
fn a_set_beyond_the_share_of_a_waiter_is_refused() {
    let world = world(false, 1, 8);
    let part = world.pager.take(Side::Paged).expect("free");
    let start = append(&world, part, 0, 16);
    let error = read(&world, &[Span { at: start, bytes: 8 * PAGE_BYTES as u32 }]).expect_err("too many");
    assert!(matches!(error, RegionError::TooManyPages { pages: 8, most: 7 }), "{error}");
    read(&world, &[Span { at: start, bytes: 7 * PAGE_BYTES as u32 }]).expect("the most");
}

/// A dropped wait gives up what it had; others read it anew.
#[test]
fn a_wait_that_is_dropped_leaves_nothing_behind() {
    let world = world(false, 1, 3);
    let part = world.pager.take(Side::Paged).expect("free");
    let start = append(&world, part, 0, 4);
    let spans = [page(start), page(start + PAGE)];
    world.io.hold_reads(true);
    let mut claim = world.pager.claim();
    {
        let guard = world.epochs.pin();
        assert!(world.pager.ask(&guard, &spans, &mut claim).expect("asked").is_none());
    }
    let waker = std::task::Waker::noop();
    let mut context = std::task::Context::from_waker(waker);
    assert!(std::future::Future::poll(std::pin::Pin::new(&mut claim), &mut context).is_pending());
    assert_eq!(world.pager.statistics().resident_bytes, 2 * PAGE);
    drop(claim);
    assert_eq!(world.pager.statistics().resident_bytes, 0);
    world.io.hold_reads(false);
    world.io.answer_reads();
    assert_eq!(read(&world, &spans).expect("read")[1], &run(1, 1)[..]);
}

#[test]
fn a_page_that_cannot_be_read_is_named_and_the_rest_is_served() {
    let world = world(false, 1, 4);
    let part = world.pager.take(Side::Paged).expect("free");
    let start = append(&world, part, 0, 4);
    let broken = Fault { on: Action::Read, skip: 0, times: 1, kind: FaultKind::Broken };
    world.io.inject(broken);
    let error = read(&world, &[page(start + PAGE)]).expect_err("the device fails");
    let RegionError::Unreadable { page: named, .. } = error else { panic!("{error}") };
    assert_eq!((named.part, named.page), (part.number, 1));
    assert_eq!(read(&world, &[page(start)]).expect("another page")[0], &run(0, 1)[..]);
    assert_eq!(read(&world, &[page(start + PAGE)]).expect("the device is well again")[0], &run(1, 1)[..]);
    assert_eq!(world.pager.statistics().failed_reads, 1);
}

#[test]
fn a_run_that_cannot_be_written_is_an_error_and_no_page() {
    let world = world(false, 2, 4);
    let part = world.pager.take(Side::Paged).expect("free");
    for kind in [FaultKind::Broken, FaultKind::Full] {
        world.io.inject(Fault { on: Action::Write, skip: 0, times: 1, kind });
        let error = world.pager.append(part, run(0, 2)).expect_err("the device fails");
        assert!(matches!(error, RegionError::Unwritten { .. }), "{error}");
    }
    let at = u64::from(part.number) * PART_BYTES as u64;
    assert!(matches!(read(&world, &[page(at)]), Err(RegionError::NoPage { .. })));
    let start = append(&world, part, 7, 1);
    assert_eq!(read(&world, &[page(start)]).expect("read")[0], &run(7, 1)[..]);
    world.io.inject(Fault { on: Action::Allocate, skip: 0, times: 1, kind: FaultKind::Full });
    assert!(matches!(world.pager.take(Side::Paged), Err(RegionError::Full { .. })));
    world.pager.take(Side::Paged).expect("there is room again");
}

/// A medium whose pages a test can change.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    pub(crate) pages: std::sync::Mutex<BTreeMap<(u32, u32), Vec<u8>>>,
    /// Reads are answered with what a former use of the part wrote.
    pub(crate) stale: std::sync::atomic::AtomicBool,
    /// Reads end in the middle of a page.
    short: std::sync::atomic::AtomicBool,
    former: std::sync::Mutex<BTreeMap<(u32, u32), Vec<u8>>>,
}

impl Backing for Shelf {
    fn name(&self) -> &'static str {
        "shelf"
    }

    fn prepare(&self, _part: u32) -> thermocline_base::io::Result<()> {
        Ok(())
    }

    fn read(&self, page: PageName, mut buffer: AlignedBytes) -> Completion {
        let stale = self.stale.load(std::sync::atomic::Ordering::SeqCst);
        let pages = if stale { &self.former } else { &self.pages }.lock().expect("no panic");
        buffer.copy_from_slice(&pages[&(page.part, page.page)]);
        let short = self.short.load(std::sync::atomic::Ordering::SeqCst);
        Completion::ready(Ok(if short { PAGE_BYTES / 2 } else { PAGE_BYTES }), buffer.into())
    }

    fn write_run(&self, first: PageName, run: AlignedBytes) -> Completion {
        let mut pages = self.pages.lock().expect("no panic");
        for (at, bytes) in run.chunks(PAGE_BYTES).enumerate() {
            pages.insert((first.part, first.page + at as u32), bytes.to_vec());
        }
        Completion::ready(Ok(run.len()), run.into())
    }

    fn discard(&self, part: u32, _generation: u32) {
        let mut pages = self.pages.lock().expect("no panic");
        let gone = pages.extract_if(.., |(of, _), _| *of == part);
        self.former.lock().expect("no panic").extend(gone);
    }
}

#[test]
fn flipped_bits_and_pages_of_a_former_use_are_never_served() {
    let shelf = Arc::new(Shelf::default());
    let epochs = Arc::new(Epochs::new());
    let pager = Pager::poisoned(options(1, 4), Arc::clone(&epochs), Arc::clone(&shelf) as Arc<dyn Backing>);
    let world = World { epochs, pager: pager.expect("a region"), io: RecordingIo::new(&MemoryIo::new()) };
    let part = world.pager.take(Side::Paged).expect("free");
    let start = append(&world, part, 0, 2);
    let mut rng = Rng::new(3);
    for _ in 0..100 {
        let (byte, bit) = (rng.below(PAGE) as usize, 1 << rng.below(8));
        let flip = || {
            let mut pages = shelf.pages.lock().expect("no panic");
            pages.get_mut(&(part.number, 0)).expect("there")[byte] ^= bit;
        };
        flip();
        let error = read(&world, &[page(start)]).expect_err("a flipped bit");
        assert!(matches!(error, RegionError::Damaged { page } if page.page == 0), "{error}");
        flip();
    }
    shelf.short.store(true, std::sync::atomic::Ordering::SeqCst);
    assert!(matches!(read(&world, &[page(start)]), Err(RegionError::Damaged { .. })), "half a page is none");
    shelf.short.store(false, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(read(&world, &[page(start), page(start + PAGE)]).expect("whole again")[0], &run(0, 1)[..]);
    world.pager.free(part).expect("freed");
    let again = world.pager.take(Side::Paged).expect("free");
    assert_eq!((again.number, again.generation), (part.number, part.generation + 1));
    append(&world, again, 50, 2);
    shelf.stale.store(true, std::sync::atomic::Ordering::SeqCst);
    assert!(matches!(read(&world, &[page(start)]), Err(RegionError::Damaged { .. })));
    shelf.stale.store(false, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(read(&world, &[page(start)]).expect("the page of this use")[0], &run(50, 1)[..]);
}

#[cfg(all(target_os = "linux", not(feature = "portable")))]
mod net {
    use super::*;

    fn touch(world: &World, at: u64) -> u8 {
        // SAFETY: inside of the reservation; the net serves it.
        unsafe { world.pager.inner().memory.reservation().base().add(at as usize).read_volatile() }
    }

    /// A hundred unasked pages, eight frames, and a pin that is never let go: the net takes pages without the epochs.
    #[test]
    fn touches_without_asking_are_served_under_a_pin() {
        let world = world(true, 1, 8);
        let part = world.pager.take(Side::Paged).expect("free");
        let start = append(&world, part, 0, 100);
        let _guard = world.epochs.pin();
        for number in 0..100 {
            assert_eq!(touch(&world, start + number * PAGE), run(number, 1)[0]);
        }
        let statistics = world.pager.statistics();
        assert_eq!((statistics.net_faults, statistics.page_ins), (100, 100));
        assert!(statistics.resident_bytes <= 8 * PAGE);
    }

    /// A thread touches what its own reading has under way: the net reads for itself, and the late reading changes nothing.
    #[test]
    fn the_net_reads_what_is_being_read() {
        let world = world(true, 1, 4);
        let part = world.pager.take(Side::Paged).expect("free");
        let start = append(&world, part, 0, 4);
        let (spans, mut claim) = ([page(start)], world.pager.claim());
        {
            let guard = world.epochs.pin();
            assert!(world.pager.ask(&guard, &spans, &mut claim).expect("asked").is_none());
        }
        world.io.hold_reads(true);
        let waker = std::task::Waker::noop();
        let mut context = std::task::Context::from_waker(waker);
        assert!(std::future::Future::poll(std::pin::Pin::new(&mut claim), &mut context).is_pending());
        world.io.hold_reads(false);
        assert_eq!(touch(&world, start), run(0, 1)[0]);
        world.io.answer_reads();
        claim.wait().expect("there");
        assert_eq!(read(&world, &spans).expect("read")[0], &run(0, 1)[..]);
        assert_eq!(world.pager.statistics().page_ins, 1);
    }

    /// The rest of the part is served by asking, beside threads that touch at random.
    #[test]
    fn asking_and_touching_go_together() {
        let world = world(true, 1, 8);
        let part = world.pager.take(Side::Paged).expect("free");
        let start = append(&world, part, 0, 64);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let world = &world;
                scope.spawn(move || {
                    let mut rng = Rng::new(thread);
                    for _ in 0..300 {
                        let number = rng.below(64);
                        let at = start + number * PAGE;
                        let found = if thread == 0 {
                            touch(world, at)
                        } else {
                            read(world, &[page(at)]).expect("read")[0][0]
                        };
                        assert_eq!(found, run(number, 1)[0]);
                    }
                });
            }
        });
    }

    /// Run by the test below in a process of its own, which it ends.
    #[test]
    #[ignore = "ends its process: run by a_touch_of_a_dropped_part_ends_the_process"]
    fn touches_a_dropped_part() {
        let world = world(true, 1, 8);
        let part = world.pager.take(Side::Paged).expect("free");
        let start = append(&world, part, 0, 4);
        world.pager.free(part).expect("freed");
        touch(&world, start);
    }

    #[test]
    fn a_touch_of_a_dropped_part_ends_the_process() {
        let mut child = std::process::Command::new(std::env::current_exe().expect("a test binary"));
        child.args(["--exact", "tests::net::touches_a_dropped_part", "--ignored", "--nocapture"]);
        let output = child.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        assert!(said.contains("without asking: page 0 of part 0 (generation 1) holds nothing"), "{said}");
    }
}

/// Counts what the calling thread allocates.
mod counting {
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::cell::Cell;

    thread_local! {
        static COUNT: Cell<u64> = const { Cell::new(0) };
    }

    struct Counting;

    // SAFETY: everything is the system's; a counter without a destructor is added to.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            COUNT.set(COUNT.get() + 1);
            // SAFETY: the caller's promise.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
            // SAFETY: the caller's promise.
            unsafe { System.dealloc(start, layout) }
        }
    }

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    pub(super) fn count() -> u64 {
        COUNT.get()
    }
}

/// The net serves touches over a file of the system, with free frames and then by taking them; beside a waiter whose
/// reading it overtakes.
#[test]
fn the_net_allocates_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    for policy in PolicyKind::ALL {
        let epochs = Arc::new(Epochs::new());
        let options = Options { policy, ..options(1, 8) };
        let backing = Arc::new(FileBacking::new(&SystemIo::new(), &dir.path().join("pages")).expect("made"));
        let pager = Pager::poisoned(options, Arc::clone(&epochs), backing).expect("a region");
        let part = pager.take(Side::Paged).expect("free");
        pager.append(part, run(0, 40)).expect("written").expect("room");
        let mut buffer = Some(AlignedBytes::zeroed(PAGE_BYTES));
        // What a thread makes once, for good.
        pager.inner().serve(39, &mut buffer).expect("served");
        let before = counting::count();
        (0..30).for_each(|page| pager.inner().serve(page, &mut buffer).expect("served"));
        assert_eq!(counting::count(), before, "{policy:?}");
        assert_eq!(pager.statistics().page_ins, 31);
        // The policy has learnt of the net's pages: they can leave.
        (0..8).for_each(|_| pager.make_room(8));
        assert_eq!(pager.statistics().resident_bytes, 0);
    }
}

/// Pages that were asked ahead are there when they are needed, and no reader waits. A reader that needs one which
/// cannot be read is told.
#[test]
fn pages_that_were_read_ahead_are_there() {
    for system in [false, true] {
        let world = world(system, 1, 16);
        let part = world.pager.take(Side::Paged).expect("free");
        let start = append(&world, part, 0, 64);
        let spans: Vec<_> = (0..8).map(|number| page(start + number * PAGE)).collect();
        world.pager.prefetch(&spans);
        while world.pager.statistics().page_ins < 8 {
            std::thread::yield_now();
        }
        let guard = world.epochs.pin();
        let mut claim = world.pager.claim();
        while world.pager.ask(&guard, &spans, &mut claim).expect("asked").is_none() {
            // Counted before it is in place.
            std::thread::yield_now();
        }
        drop(guard);
        assert_eq!(world.pager.statistics().prefetched, 8);
        let broken = Fault { on: Action::Read, skip: 0, times: 2, kind: FaultKind::Broken };
        world.io.inject(broken);
        world.pager.prefetch(&[page(start + 20 * PAGE)]);
        while world.pager.statistics().failed_reads < 1 {
            std::thread::yield_now();
        }
        let error = read(&world, &[page(start + 20 * PAGE)]).expect_err("the device still fails");
        assert!(matches!(error, RegionError::Unreadable { .. }), "{error}");
        assert_eq!(read(&world, &[page(start + 20 * PAGE)]).expect("well again")[0], &run(20, 1)[..]);
        // More than there are frames: a hint, of which the rest is forgotten.
        world.pager.prefetch(&[Span { at: start, bytes: 64 * PAGE_BYTES as u32 }]);
        assert_eq!(read(&world, &[page(start + 50 * PAGE)]).expect("read")[0], &run(50, 1)[..]);
        assert!(world.pager.statistics().resident_bytes <= 16 * PAGE);
    }
}

/// A waiter that lacks frames because of another thread's pin sleeps, and does not ask again and again.
#[test]
fn a_waiter_without_frames_sleeps() {
    let world = world(false, 1, 2);
    let part = world.pager.take(Side::Paged).expect("free");
    let start = append(&world, part, 0, 3);
    read(&world, &[page(start)]).expect("read");
    let (held, release) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _guard = world.epochs.pin();
            held.wait();
            release.wait();
        });
        held.wait();
        let (spans, mut claim) = ([page(start + PAGE)], world.pager.claim());
        {
            let guard = world.epochs.pin();
            assert!(world.pager.ask(&guard, &spans, &mut claim).expect("asked").is_none());
        }
        let mut polls = 0;
        let mut release = Some(&release);
        block_on(std::future::poll_fn(|context| {
            polls += 1;
            let poll = std::pin::Pin::new(&mut claim).poll(context);
            if let Some(release) = release.take() {
                assert!(poll.is_pending(), "the other thread's pin keeps the only frame");
                release.wait();
            }
            poll
        }))
        .expect("read");
        // Once, then when the frame was freed, then when the page had come; and for news that concerned another.
        assert!(polls <= 6, "{polls} polls");
    });
}

/// Room is made while frames are still free, so that a pin which is there at the moment holds up no waiter.
#[test]
fn room_is_made_ahead_of_need() {
    let world = world(false, 1, 256);
    let part = world.pager.take(Side::Paged).expect("free");
    let start = append(&world, part, 0, PART_PAGES);
    for number in 0..PART_PAGES as u64 {
        assert_eq!(read(&world, &[page(start + number * PAGE)]).expect("read")[0], &run(number, 1)[..]);
        assert!(world.pager.statistics().resident_bytes <= 252 * PAGE, "four of 256 frames are free");
    }
    assert!(world.pager.statistics().resident_bytes > 200 * PAGE, "and not many more");
}
