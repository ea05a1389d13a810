//! Interleavings of readers, page-out, late reads, the net and dropped parts, over the twin that poisons what it takes away; and
//! each rule switched off, which must be missed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use shuttle::thread;
use thermocline_base::backing::{Backing, PAGE_BYTES, PART_BYTES, PART_PAGES};
use thermocline_base::epoch::Epochs;
use thermocline_base::io::AlignedBytes;
use thermocline_base::mutation::switch_off;
use thermocline_base::sync::{model, schedule_point};
use thermocline_pool::policy::PolicyKind;

use crate::mutation::Rule;
use crate::tender;
use crate::tests::Shelf;
use crate::word::State;
use crate::{Options, Pager, Part, RegionError, Side, Span};

/// A region of one part with some frames, and pages that hold their number and a byte of their use.
struct World {
    epochs: Arc<Epochs>,
    pager: Pager,
}

impl World {
    fn new(frames: usize) -> Arc<Self> {
        let epochs = Arc::new(Epochs::new());
        let options = Options { bytes: PART_BYTES, frames, policy: PolicyKind::Clock };
        let backing = Arc::new(Shelf::default()) as Arc<dyn Backing>;
        let pager = Pager::poisoned(options, Arc::clone(&epochs), backing).expect("a region");
        Arc::new(Self { epochs, pager })
    }

    /// Pages that hold a byte and their number.
    fn append(&self, pages: usize, byte: u8) -> Part {
        let part = self.pager.take(Side::Paged).expect("free");
        let mut run = AlignedBytes::zeroed(pages * PAGE_BYTES);
        for (number, page) in run.chunks_mut(PAGE_BYTES).enumerate() {
            page.fill(byte + number as u8);
        }
        self.pager.append(part, run).expect("written").expect("room");
        part
    }

    /// Reads pages at once, and looks at their bytes for a while.
    fn read(&self, pages: &[usize]) -> Result<Vec<u8>, RegionError> {
        let spans: Vec<_> =
            pages.iter().map(|page| Span { at: (page * PAGE_BYTES) as u64, bytes: 8 }).collect();
        let mut claim = self.pager.claim();
        loop {
            {
                let guard = self.epochs.pin();
                if let Some(proof) = self.pager.ask(&guard, &spans, &mut claim)? {
                    let first = spans.iter().map(|span| proof.bytes(*span)[0]).collect();
                    schedule_point();
                    let again: Vec<u8> = spans.iter().map(|span| proof.bytes(*span)[0]).collect();
                    assert_eq!(first, again, "a page was taken from under a proof");
                    return Ok(first);
                }
            }
            claim.wait()?;
        }
    }
}

/// The work of a thread in a world.
type Body = Box<dyn FnOnce(&World) + Send>;

/// Runs these beside each other, and beside the tender.
fn beside(world: &Arc<World>, bodies: Vec<Body>) {
    let tended = Arc::clone(world);
    let tender = thread::spawn(move || tender::run(tended.pager.inner()));
    let threads: Vec<_> = bodies
        .into_iter()
        .map(|body| {
            let world = Arc::clone(world);
            thread::spawn(move || body(&world))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    world.pager.inner().tender.stop();
    tender.join().expect("no panic");
}

fn reader(pages: &'static [usize]) -> Body {
    Box::new(move |world| {
        let expected: Vec<u8> = pages.iter().map(|page| 1 + *page as u8).collect();
        assert_eq!(world.read(pages).expect("read"), expected, "a reader met what is no page");
    })
}

fn room(times: usize) -> Body {
    Box::new(move |world| (0..times).for_each(|_| world.pager.make_room(2)))
}

/// A reader beside page-out, of a page that is there at first.
fn reader_beside_page_out() {
    let world = World::new(2);
    world.append(2, 1);
    world.read(&[0]).expect("read");
    beside(&world, vec![reader(&[0]), room(2)]);
}

/// Before the `step`-th operation of page-out, a reader pins and finds the page present; its pin goes on. Is the page still there
/// after two more rounds of page-out? (No schedule of shuttle: chance rarely hits the one place.)
fn reader_between_steps(step: usize) -> bool {
    let world = World::new(2);
    world.append(2, 1);
    world.read(&[0]).expect("read");
    let (found, reader, mut count) = (Arc::new(AtomicBool::new(false)), Arc::clone(&world), 0);
    let tell = Arc::clone(&found);
    let look = move || {
        if count == step {
            reader.epochs.safe();
            let guard = reader.epochs.pin();
            tell.store(matches!(reader.pager.inner().look(0), Ok(true)), Ordering::SeqCst);
            // The pin of a reader that is still at it, in epochs of this world.
            std::mem::forget(guard);
        }
        count += 1;
    };
    model::between_steps(look, || world.pager.make_room(2));
    (0..2).for_each(|_| world.pager.make_room(2));
    !found.load(Ordering::SeqCst) || byte_of(&world, 0) == 1
}

/// The byte of a page's memory, looked at without asking.
fn byte_of(world: &World, page: usize) -> u8 {
    // SAFETY: inside of the reservation of the twin, and one thread.
    unsafe { world.pager.inner().memory.reservation().base().add(page * PAGE_BYTES).read() }
}

/// A page is marked; the net takes its frame for another page, and then brings it back into that frame; a reader has its proof
/// when it is marked again. The entry of the first mark is still in the queue, and its stamp has passed.
fn marked_again_in_its_frame() -> bool {
    let world = World::new(2);
    world.append(4, 1);
    let mut buffer = Some(AlignedBytes::zeroed(PAGE_BYTES));
    let mut net = |page| world.pager.inner().serve(page, &mut buffer).expect("served");
    [0, 1].into_iter().for_each(&mut net);
    let earlier = world.epochs.pin();
    world.pager.make_room(2);
    [2, 3, 0].into_iter().for_each(&mut net);
    drop(earlier);
    let _guard = world.epochs.pin();
    // Both, so that the policy spares none of them more than the other.
    for page in [0, 3] {
        assert!(world.pager.inner().look(page).expect("a page"), "the net has brought it");
    }
    (0..4).for_each(|_| world.pager.make_room(2));
    byte_of(&world, 0) == 1
}

/// A part is dropped and used anew beside a reader of its former use, whose read comes late.
fn late_read_of_a_former_use() {
    let world = World::new(3);
    let part = world.append(1, 1);
    let late = |world: &World| match world.read(&[0]) {
        Ok(bytes) => assert!(bytes == [1] || bytes == [100], "{bytes:?}"),
        Err(RegionError::NoPage { .. }) => {}
        Err(error) => panic!("{error}"),
    };
    let replace = move |world: &World| {
        world.pager.free(part).expect("freed");
        world.append(1, 100);
        assert_eq!(world.read(&[0]).expect("read"), [100], "a page of a former use was served");
    };
    beside(&world, vec![Box::new(late), Box::new(replace)]);
    if world.pager.side(0).1.generation > part.generation {
        assert_eq!(world.read(&[0]).expect("read"), [100], "a page of a former use was served");
    }
    let frames = world.pager.inner().frames.lock();
    let held =
        (0..PART_PAGES).filter(|page| world.pager.inner().word(*page).state() == State::Present).count();
    assert_eq!(frames.free.len() + held, 3, "each frame is free or has a page");
}

/// Two waiters whose sets do not fit together.
fn sets_beyond_the_frames() {
    let world = World::new(3);
    world.append(4, 1);
    beside(&world, vec![reader(&[0, 1]), reader(&[2, 3])]);
}

/// A waiter whose only frame has a page that another reader holds by its pin: no thread tells it when the pin ends.
fn a_frame_behind_a_pin() {
    let world = World::new(2);
    world.append(2, 1);
    world.read(&[0]).expect("read");
    beside(&world, vec![reader(&[0]), reader(&[1])]);
}

/// Pages that are read ahead, of which one is given up or taken by a waiter, with few frames.
fn read_ahead_beside_waiters() {
    let world = World::new(3);
    world.append(4, 1);
    let ahead = |world: &World| {
        let spans = [1, 3, 0].map(|page| Span { at: page * PAGE_BYTES as u64, bytes: 1 });
        world.pager.prefetch(&spans);
        schedule_point();
        world.pager.prefetch(&spans[1..]);
    };
    beside(&world, vec![reader(&[0, 1]), Box::new(ahead), reader(&[2])]);
    let frames = world.pager.inner().frames.lock();
    let held = (0..PART_PAGES).filter(|page| world.pager.inner().word(*page).state() != State::None);
    let held = held.filter(|page| world.pager.inner().word(*page).state() != State::Absent).count();
    assert_eq!(frames.free.len() + held, 3, "each frame is free or has a page");
}

/// A thread with a pin touches pages without asking, while no frame is free: the net serves it although no epoch passes.
fn net_without_a_frame() {
    let world = World::new(2);
    world.append(3, 1);
    world.read(&[0]).expect("read");
    world.read(&[1]).expect("read");
    let net = |world: &World| {
        let _guard = world.epochs.pin();
        let mut buffer = Some(AlignedBytes::zeroed(PAGE_BYTES));
        for page in [2, 0, 1] {
            world.pager.inner().serve(page, &mut buffer).expect("served");
        }
    };
    let other = |world: &World| {
        // The net may take its page from under a proof: on the system's memory it would meet the net itself.
        world.pager.make_room(2);
    };
    beside(&world, vec![Box::new(net), Box::new(other)]);
}

/// A wait for a page and the net's own reading of it: one of them puts it in place.
fn net_beside_a_waiter() {
    let world = World::new(3);
    world.append(2, 1);
    let net = |world: &World| {
        let mut buffer = Some(AlignedBytes::zeroed(PAGE_BYTES));
        world.pager.inner().serve(0, &mut buffer).expect("served");
    };
    beside(&world, vec![Box::new(net), reader(&[0, 1])]);
    assert_eq!(world.pager.statistics().page_ins, 2);
}

#[test]
fn the_model_of_paging() {
    model::run(600, reader_beside_page_out);
    model::run(300, late_read_of_a_former_use);
    model::run(300, sets_beyond_the_frames);
    model::run(300, net_without_a_frame);
    model::run(300, net_beside_a_waiter);
    model::run(300, a_frame_behind_a_pin);
    model::run(300, read_ahead_beside_waiters);
}

#[test]
fn a_reader_keeps_its_page_at_every_step() {
    (0..200).for_each(|step| assert!(reader_between_steps(step), "step {step}"));
    assert!(marked_again_in_its_frame());
}

#[test]
fn page_out_without_epochs_is_caught() {
    let _off = switch_off(Rule::PageOutThroughEpoch);
    assert!(model::finds_failure(4000, reader_beside_page_out));
}

#[test]
fn a_stamp_before_the_mark_is_caught() {
    let _off = switch_off(Rule::StampAfterMark);
    assert!((0..200).any(|step| !reader_between_steps(step)));
}

#[test]
fn marks_that_are_all_alike_are_caught() {
    let _off = switch_off(Rule::MarksAreDistinct);
    assert!(!marked_again_in_its_frame());
}

#[test]
fn a_reader_that_takes_nothing_back_is_caught() {
    let _off = switch_off(Rule::ReaderTakesBack);
    assert!(model::finds_failure(4000, reader_beside_page_out));
}

#[test]
fn a_late_read_that_is_put_in_place_is_caught() {
    let _off = switch_off(Rule::ReadEndsOwnReading);
    assert!(model::finds_failure(20_000, late_read_of_a_former_use));
}

#[test]
fn waiters_that_take_frames_one_by_one_are_caught() {
    let _off = switch_off(Rule::FramesBeforeReads);
    assert!(model::finds_failure(2000, sets_beyond_the_frames));
}

#[test]
fn a_net_that_waits_for_epochs_is_caught() {
    let _off = switch_off(Rule::NetTakesAtOnce);
    assert!(model::finds_failure(100, net_without_a_frame));
}

#[test]
fn freed_frames_that_wake_nobody_are_caught() {
    let _off = switch_off(Rule::FreedFrameTells);
    assert!(model::finds_failure(2000, sets_beyond_the_frames));
}

#[test]
fn epochs_that_nobody_watches_are_caught() {
    let _off = switch_off(Rule::TenderWatchesEpochs);
    assert!(model::finds_failure(2000, a_frame_behind_a_pin));
}
