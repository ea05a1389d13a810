//! One scenario a rule of the level, and that each rule is missed when it is switched off.

use super::*;

/// A read that began before its page's place was given to another page.
fn discarded_while_read() -> Result<(), String> {
    let world = World::new(200, options(64));
    world.primary.hold_reads(true);
    let read = world.start(40, 1, Wanted::of(1, ReadReason::Point));
    world.device.discard(32..64);
    world.primary.answer_reads();
    world.primary.hold_reads(false);
    assert_eq!(world.came(40, 1, read.wait()), 1, "who asked for it gets it");
    world.settle();
    if world.stats().cached != 0 {
        return Err("a page of a freed place is there".into());
    }
    world.write(40, 2);
    world.read_as(40, Wanted::of(2, ReadReason::Point));
    world.read_as(40, Wanted::of(2, ReadReason::Point));
    if world.hits() == 1 { Ok(()) } else { Err("the place's next page was not admitted".into()) }
}

/// A page that the primary gave damaged.
fn damaged_on_the_primary() -> Result<(), String> {
    let world = World::new(200, options(64));
    let (page, other) = (world.page(40, 1), world.page(41, 1));
    world.device.write(40, other.into()).wait().result.expect("memory");
    let wanted = Wanted::of(1, ReadReason::Point);
    world.start(40, 1, wanted).wait().result.expect("the reader finds out");
    world.settle();
    if world.stats().counts.admitted > 0 {
        return Err("a page that does not check out was admitted".into());
    }
    world.device.write(40, page.into()).wait().result.expect("memory");
    world.read(40);
    Ok(())
}

/// The write of a slot is answered after the slot was given to another page.
fn answered_in_reverse() -> Result<(), String> {
    let world = World::new(200, options(32));
    world.ssd.defer(7);
    let wanted = |number| Wanted::of(1 + number, ReadReason::Point);
    for number in 1..33 {
        world.write(number, 1 + number);
        world.start(number, 1, wanted(number)).wait().result.expect("read");
        world.level().step();
    }
    for number in 1..33 {
        world.device.discard(number..number + 1);
        world.write(100 + number, 101 + number);
        world.start(100 + number, 1, wanted(100 + number)).wait().result.expect("read");
        world.level().step();
    }
    while world.ssd.release() {
        world.level().step();
    }
    world.ssd.release_all();
    world.settle();
    for number in 101..133 {
        let outcome = world.start(number, 1, wanted(number)).wait();
        assert_eq!(world.came(number, 1 + number, outcome), 1);
    }
    let counts = world.stats().counts;
    if counts.faults > 0 || counts.hits < 32 {
        return Err(format!("a slot was written twice at a time: {counts:?}"));
    }
    Ok(())
}

/// A page is read while the write of its slot is under way.
fn read_while_written() -> Result<(), String> {
    let world = World::new(200, options(64));
    world.ssd.defer(1);
    for number in 1..20 {
        world.start(number, 1, Wanted::of(1, ReadReason::Point)).wait().result.expect("read");
        world.level().step();
    }
    let reads: Vec<_> =
        (1..20).map(|number| world.start(number, 1, Wanted::of(1, ReadReason::Point))).collect();
    while world.ssd.release() {
        world.level().step();
    }
    world.ssd.release_all();
    for (number, read) in (1..20).zip(reads) {
        assert_eq!(world.came(number, 1, read.wait()), 1);
    }
    match world.stats().counts.faults {
        0 => Ok(()),
        faults => Err(format!("{faults} pages were looked for where nothing was written yet")),
    }
}

/// A read of a slot fails that has become another page's meanwhile.
fn dropped_after_it_moved() -> Result<(), String> {
    let world = World::new(200, options(32));
    (1..33).for_each(|number| world.read(number));
    world.ssd.inject(faults::broken_read());
    world.ssd.defer(1);
    let read = world.start(5, 1, Wanted::of(1, ReadReason::Point));
    world.device.discard(5..6);
    // The slot is another page's, and waits for the read to let go of it.
    world.start(100, 1, Wanted::of(1, ReadReason::Point)).wait().result.expect("read");
    world.ssd.release_all();
    world.ssd.heal();
    assert_eq!(world.came(5, 1, read.wait()), 1);
    world.settle();
    let counts = world.stats().counts;
    if counts.faults > 0 {
        return Err("a race counts as a fault".into());
    }
    let before = world.hits();
    world.read(100);
    if world.hits() == before + 1 { Ok(()) } else { Err("the other page was dropped".into()) }
}

/// Two contents of a page carry one version.
fn written_in_one_version() -> Result<(), String> {
    let world = World::new(200, options(64));
    let wanted = Wanted::of(1, ReadReason::Point);
    world.read(5);
    let mut changed = world.page(5, 1);
    changed[HEADER_BYTES] ^= 1;
    page::seal(&mut changed, world.device.seal(), 5, 1, PageKind(3));
    let expected = changed.to_vec();
    world.device.write(5, changed.into()).wait().result.expect("memory");
    let outcome = world.start(5, 1, wanted).wait();
    if outcome.buffer.as_slice() == expected { Ok(()) } else { Err("the former bytes were read".into()) }
}

#[test]
fn rules_hold() {
    for scenario in SCENARIOS {
        scenario.1().unwrap_or_else(|problem| panic!("{}: {problem}", scenario.0));
    }
}

type Scenario = (&'static str, fn() -> Result<(), String>);

const SCENARIOS: [Scenario; 6] = [
    ("discarded while read", discarded_while_read),
    ("damaged on the primary", damaged_on_the_primary),
    ("answered in reverse", answered_in_reverse),
    ("read while written", read_while_written),
    ("dropped after it moved", dropped_after_it_moved),
    ("written in one version", written_in_one_version),
];

#[cfg(feature = "model")]
#[test]
fn rules_that_are_switched_off_are_missed() {
    use crate::mutation::{Rule, switch_off};
    let rules = [
        Rule::SsdCountsDiscards,
        Rule::SsdAdmitsChecked,
        Rule::SsdWritesAtRest,
        Rule::SsdWritesBeforeFound,
        Rule::SsdDropsNamePages,
        Rule::SsdVoidsWrites,
    ];
    for (rule, scenario) in rules.into_iter().zip(SCENARIOS) {
        let _off = switch_off(rule);
        let missed = std::panic::catch_unwind(|| scenario.1()).map_or(true, |result| result.is_err());
        assert!(missed, "{rule:?}: {}", scenario.0);
    }
}
