//! A level on memory that is lent: it takes all pages, and a wrong answer, or none, is a matter of one page.

use super::faults::broken_read;
use super::*;
use thermocline_base::io::{Action, Fault, FaultKind};

fn lent() -> SsdOptions {
    SsdOptions::lent()
}

/// Writes a run of pages in version 1 with one write.
fn write_run(world: &World, first: u64, count: u64) {
    let mut bytes = AlignedBytes::zeroed(count as usize * PAGE);
    for (number, page) in (first..).zip(bytes.chunks_exact_mut(PAGE)) {
        page.copy_from_slice(&world.page(number, 1));
    }
    world.device.write(first, bytes.into()).wait().result.expect("written");
}

#[test]
fn what_is_written_is_there_before_anybody_reads_it() {
    let world = World::lent(200, 400, lent());
    world.settle();
    assert_eq!(world.stats().cached, 199);
    world.primary.inject(broken_read());
    (1..200).for_each(|number| world.read(number));
    let outcome = world.start(32, 64, Wanted::of(1, ReadReason::Scan)).wait();
    assert_eq!(world.came(32, 1, outcome), 64);
    let stats = world.stats();
    assert_eq!((stats.counts.hits, stats.counts.reads), (199 + 64, 199 + 64));
}

#[test]
fn a_run_that_is_written_is_lent_in_few_writes() {
    let world = World::lent(1, 400, lent());
    let before = world.ssd.operations();
    write_run(&world, 32, 130);
    world.settle();
    assert_eq!(world.ssd.operations() - before, 3, "64, 64 and 2 pages");
    assert_eq!(world.stats().counts.bytes_written, 130 * PAGE as u64);
    world.primary.inject(broken_read());
    (32..162).for_each(|number| world.read(number));
}

#[test]
fn a_write_that_fails_on_the_primary_is_not_lent() {
    let world = World::lent(1, 400, lent());
    world.primary.inject(Fault { on: Action::Write, skip: 0, times: 1, kind: FaultKind::Broken });
    let failed = world.device.write(40, world.page(40, 1).into()).wait();
    failed.result.expect_err("as the test wants it");
    world.settle();
    assert_eq!(world.stats().cached, 0);
}

#[test]
fn the_pages_of_a_silent_server_stay() {
    let world = World::lent(200, 400, lent());
    world.settle();
    world.ssd.inject(Fault { on: Action::Read, skip: 0, times: 300, kind: FaultKind::Silent });
    for _ in 0..2 {
        (1..151).for_each(|number| world.read(number));
    }
    let stats = world.stats();
    assert_eq!((stats.counts.hits, stats.counts.late, stats.counts.faults), (0, 300, 0));
    assert_eq!((stats.state, stats.cached), (SsdState::On, 199));
    world.primary.inject(broken_read());
    (1..200).for_each(|number| world.read(number));
}

#[test]
fn pages_that_were_lost_are_misses_and_come_back() {
    let world = World::lent(200, 400, lent());
    world.settle();
    world.ssd.inject(Fault { on: Action::Read, skip: 0, times: 199, kind: FaultKind::Broken });
    (1..200).for_each(|number| world.read(number));
    let stats = world.stats();
    assert_eq!((stats.state, stats.counts.hits), (SsdState::On, 0));
    // The next one that reads such a page has it admitted.
    (1..200).for_each(|number| world.read(number));
    world.primary.inject(broken_read());
    (1..200).for_each(|number| world.read(number));
}

#[test]
fn late_answers_do_not_switch_it_off() {
    let world = World::lent(200, 400, lent());
    world.settle();
    world.ssd.hold_reads(true);
    let late: Vec<_> =
        (1..100).map(|number| world.start(number, 1, Wanted::of(1, ReadReason::Point))).collect();
    world.clock.advance(LENT_LATE_AFTER);
    world.settle();
    for (number, read) in (1..100).zip(late) {
        assert_eq!(world.came(number, 1, read.wait()), 1);
    }
    assert_eq!((world.stats().state, world.stats().counts.late), (SsdState::On, 99));
    world.ssd.hold_reads(false);
    assert_eq!(world.ssd.answer_reads(), 99);
    world.primary.inject(broken_read());
    (1..200).for_each(|number| world.read(number));
}

#[test]
fn where_the_buffer_or_the_memory_is_full_new_pages_are_dropped() {
    let world = World::lent(1, 400, SsdOptions { buffer_pages: 4, ..lent() });
    write_run(&world, 32, 10);
    assert_eq!((world.stats().cached, world.stats().counts.dropped), (4, 6));
    world.settle();
    world.primary.inject(broken_read());
    (32..36).for_each(|number| world.read(number));
    world.primary.heal();
    world.ssd.inject(Fault { on: Action::Write, skip: 0, times: 1, kind: FaultKind::Full });
    write_run(&world, 64, 4);
    world.settle();
    assert_eq!((world.stats().cached, world.stats().state), (4, SsdState::On));
    write_run(&world, 64, 4);
    world.settle();
    assert_eq!(world.stats().cached, 8);
}

#[test]
fn places_that_are_given_anew_have_no_former_page() {
    let world = World::lent(200, 64, lent());
    let mut rng = Rng::new(17);
    let mut version = 1;
    for _ in 0..3000 {
        let number = 1 + rng.below(199);
        match rng.below(8) {
            0 => {
                version += 1;
                world.write(number, version);
            }
            1 => world.device.discard(number..number + 1),
            2 => _ = world.level().step(),
            _ => {
                let version = world.versions.lock().expect("no test panics with it")[&number];
                let outcome = world.start(number, 1, Wanted::of(version, ReadReason::Point)).wait();
                assert_eq!(world.came(number, version, outcome), 1);
            }
        }
    }
    let counts = world.stats().counts;
    assert!(counts.hits > 100 && counts.faults == 0, "{counts:?}");
}

#[test]
fn too_little_memory_is_refused() {
    let io = MemoryIo::new();
    let file = io.open(Path::new("/lent"), OpenMode::CreateNew).expect("a fresh file");
    let lent = Lent { file, bytes: 0..31 * PAGE as u64, buffer_pages: 64 };
    let error = SsdFile::lent(lent, PageSize::default()).expect_err("no extent");
    assert!(matches!(error, SsdError::TooSmall { .. }), "{error}");
}

/// Before, late reads were not looked for until the thread woke by itself.
#[test]
fn the_first_read_after_a_pause_is_watched() {
    let world = World::lent(200, 400, lent());
    world.settle();
    assert!(!world.level().late.lock().is_watched());
    world.level().news.take_ring();
    world.ssd.hold_reads(true);
    let one = world.start(7, 1, Wanted::of(1, ReadReason::Point));
    assert!(world.level().news.take_ring(), "the thread is woken");
    let two = world.start(8, 1, Wanted::of(1, ReadReason::Point));
    assert!(!world.level().news.take_ring(), "it comes by anyway");
    assert!(world.level().late.lock().is_watched());
    world.ssd.answer_reads();
    assert_eq!((world.came(7, 1, one.wait()), world.came(8, 1, two.wait())), (1, 1));
}
