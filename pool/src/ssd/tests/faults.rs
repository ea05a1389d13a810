//! An SSD that fails, gives less, gives something else, or nothing at all: no reader hears of it.

use super::*;
use thermocline_base::io::{Action, Fault, FaultKind, Io, OpenMode};

pub(super) fn broken_read() -> Fault {
    Fault { on: Action::Read, skip: 0, times: u64::MAX, kind: FaultKind::Broken }
}

/// A level with pages 1 to 63 cached.
fn cached() -> World {
    let world = World::new(200, options(64));
    (1..64).for_each(|number| world.read(number));
    assert_eq!(world.stats().cached, 63);
    world
}

#[test]
fn failing_and_short_reads_go_on_to_the_primary() {
    for breaks in [|world: &World| world.ssd.inject(broken_read()), |world: &World| world.ssd.stop()] {
        let world = cached();
        breaks(&world);
        for round in 0..2 {
            for number in 1..64 {
                world.read(number);
            }
            let outcome = world.start(1, 63, Wanted::of(1, ReadReason::Scan)).wait();
            assert_eq!(world.came(1, 1, outcome), 63, "round {round}");
        }
        let stats = world.stats();
        assert_eq!((stats.state, stats.counts.hits), (SsdState::Failing, 0));
        assert!((16..20).contains(&stats.counts.faults), "{stats:?}");
    }
}

#[test]
fn a_few_faults_do_not_switch_it_off() {
    let world = cached();
    for number in 1..16 {
        world.ssd.inject(Fault { times: 1, ..broken_read() });
        world.read(number);
    }
    let stats = world.stats();
    assert_eq!((stats.state, stats.counts.faults), (SsdState::On, 15));
    // They were dropped, and are admitted again.
    (1..16).for_each(|number| world.read(number));
    let before = world.hits();
    (1..64).for_each(|number| world.read(number));
    assert_eq!(world.hits() - before, 63);
}

#[test]
fn damaged_swapped_and_torn_slots_are_dropped() {
    let world = cached();
    let file = world.ssd.open(Path::new("/ssd"), OpenMode::Write).expect("it is there");
    let slot = |number| world.level().table.lock().slot_of(number).expect("it is cached");
    let place = |number| (1 + u64::from(slot(number))) * PAGE as u64;
    file.write_at(place(5) + 100, &[1, 2, 3]).expect("memory");
    file.write_at(place(6), &world.page(7, 1)).expect("memory");
    file.write_at(place(7), &world.page(6, 1)).expect("memory");
    file.write_at(place(8), &world.page(8, 9)).expect("memory");
    let zeros = [0; 512];
    file.write_at(place(9) + 1024, &zeros).expect("memory");
    let before = world.hits();
    for number in 5..11 {
        world.read(number);
    }
    let stats = world.stats();
    assert_eq!((stats.counts.faults, stats.counts.hits - before), (5, 1));
    assert_eq!(stats.state, SsdState::On);
}

#[test]
fn writes_that_fail_lose_admissions_only() {
    let world = World::new(200, options(64));
    world.ssd.inject(Fault { on: Action::Write, skip: 0, times: 8, kind: FaultKind::Full });
    (1..40).for_each(|number| world.read(number));
    let stats = world.stats();
    assert_eq!((stats.cached, stats.counts.dropped, stats.state), (31, 8, SsdState::On));
    world.ssd.inject(Fault { on: Action::Write, skip: 0, times: u64::MAX, kind: FaultKind::Broken });
    (40..80).for_each(|number| world.read(number));
    assert_eq!(world.stats().state, SsdState::Failing);
    (1..80).for_each(|number| world.read(number));
}

#[test]
fn an_answer_is_a_whole_prefix() {
    let runs = [vec![], vec![32], vec![32, 33, 34], vec![62, 63], vec![32, 33, 62, 63], vec![32, 45, 63]];
    for cached in runs {
        for short in [false, true] {
            let world = World::new(200, options(64));
            cached.iter().for_each(|number| world.read(*number));
            world.primary.short_reads(short);
            let mut at = 32;
            for _ in 0..40 {
                let outcome = world.start(at, 64 - at, Wanted::of(1, ReadReason::Scan)).wait();
                let came = world.came(at, 1, outcome) as u64;
                assert!(came > 0, "page {at} is there, with {cached:?} cached");
                at += came;
                if at == 64 {
                    break;
                }
            }
            assert_eq!(at, 64);
        }
    }
}

#[test]
fn a_page_that_the_primary_cannot_give_costs_its_neighbours_nothing() {
    for lost in 32..64 {
        let world = World::new(200, options(64));
        let on_ssd = [35, 36, 50, 63];
        on_ssd.iter().for_each(|number| world.read(*number));
        let (mut at, mut told) = (32, Vec::new());
        while at < 64 {
            // Reads that have the lost page in their part of the primary fail.
            let run = at..64;
            let lead = run.clone().take_while(|page| on_ssd.contains(page)).count() as u64;
            let trail = run.clone().rev().take_while(|page| on_ssd.contains(page)).count() as u64;
            let fails = at + lead <= lost && lost < 64 - trail;
            let alone = fails && lead == 0 && lost != at;
            if fails {
                let times = if alone { 1 } else { 2 };
                world.primary.inject(Fault { times, ..broken_read() });
            }
            let outcome = world.start(at, 64 - at, Wanted::of(1, ReadReason::Scan)).wait();
            world.primary.heal();
            if outcome.result.is_err() {
                told.push(at);
                at += 1;
                continue;
            }
            at += world.came(at, 1, outcome) as u64;
        }
        let expected: &[u64] = if on_ssd.contains(&lost) { &[] } else { &[lost] };
        assert_eq!(told, expected, "lost: {lost}");
    }
}

#[test]
fn a_read_that_is_late_is_answered_by_the_primary() {
    let world = cached();
    world.ssd.hold_reads(true);
    let late: Vec<_> =
        (1..20).map(|number| world.start(number, 1, Wanted::of(1, ReadReason::Point))).collect();
    let run = world.start(20, 8, Wanted::of(1, ReadReason::Scan));
    world.clock.advance(Duration::from_millis(100));
    world.settle();
    assert_eq!(world.stats().counts.late, 0);
    world.clock.advance(Duration::from_millis(101));
    world.settle();
    for (number, read) in (1..20).zip(late) {
        assert_eq!(world.came(number, 1, read.wait()), 1);
    }
    assert_eq!(world.came(20, 1, run.wait()), 8);
    let stats = world.stats();
    assert_eq!((stats.state, stats.counts.late, stats.counts.faults), (SsdState::Late, 27, 0));
    // Their answers come when no reader waits for them any more.
    assert_eq!(world.ssd.answer_reads(), 27);
    (1..64).for_each(|number| world.read(number));
}

#[test]
fn a_level_ends_beside_an_ssd_that_never_answers() {
    let world = World::new(200, SsdOptions { thread: true, ..options(64) });
    world.ssd.defer(1);
    for number in 1..40 {
        let outcome = world.start(number, 1, Wanted::of(1, ReadReason::Point)).wait();
        assert_eq!(world.came(number, 1, outcome), 1);
    }
    let World { device, ssd, .. } = world;
    drop(device);
    ssd.release_all();
}
