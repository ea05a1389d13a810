//! Heat that a merge hands over: pages written a moment ago are warm and cached, and what is freed is as cold as new.

use super::*;
use crate::page::PageHeat;

fn tac(slots: u64) -> SsdOptions {
    SsdOptions { policy: DEFAULT_POLICY, ..options(slots) }
}

/// Pages 1 to 63 are cached and warm; what a merge that reads them finds.
fn warm() -> (World, Vec<PageHeat>) {
    let world = World::new(400, tac(128));
    for _ in 0..5 {
        (1..64).for_each(|number| world.read(number));
    }
    let heats = world.device.heats(1..64, 1);
    (world, heats)
}

/// Writes pages in version 2 as a merge does, which has taken this along.
fn move_to(world: &World, first: u64, heats: &[PageHeat]) {
    for (number, heat) in (first..).zip(heats) {
        world.write(number, 2);
        world.device.hand_over(number, 2, &world.page(number, 2), std::slice::from_ref(heat));
    }
    world.settle();
}

#[test]
fn a_merge_asks_how_warm_pages_are_and_which_are_cached() {
    let (world, heats) = warm();
    assert!(heats.iter().all(|heat| heat.temperature > 0.0 && heat.cached == 1.0), "{heats:?}");
    assert_eq!(world.device.heats(200..202, 1), [PageHeat::default(); 2]);
    let other: Vec<f32> = world.device.heats(1..64, 3).iter().map(|heat| heat.cached).collect();
    assert_eq!(other, [0.0; 63], "nothing of another version is cached");
    assert_eq!(world.stats().counts.reads, 5 * 63, "asking makes nothing warmer");
}

#[test]
fn what_is_handed_over_comes_from_the_ssd_and_stays_there() {
    let (world, heats) = warm();
    move_to(&world, 129, &heats);
    world.device.discard(0..96);
    assert_eq!(world.stats().counts.moved, 63);
    world.primary.inject(faults::broken_read());
    let before = world.hits();
    (129..192).for_each(|number| world.read_as(number, Wanted::of(2, ReadReason::Point)));
    assert_eq!(world.hits() - before, 63);
    world.primary.heal();
    // It is as warm as it was: what comes once does not push it out.
    (200..399).for_each(|number| world.read(number));
    let before = world.hits();
    (129..192).for_each(|number| world.read_as(number, Wanted::of(2, ReadReason::Point)));
    assert_eq!((world.hits() - before, world.stats().counts.faults), (63, 0));
}

#[test]
fn heat_is_conserved_and_freed_extents_are_cold() {
    let (world, heats) = warm();
    let all = |first: u64| -> f32 {
        let extents = [first, first + 32];
        extents.iter().map(|page| world.device.heats(*page..page + 1, 1)[0].temperature).sum()
    };
    let before = all(0);
    let each: Vec<PageHeat> =
        heats.iter().map(|heat| PageHeat { temperature: heat.temperature / 32.0, ..*heat }).collect();
    move_to(&world, 128, &each);
    world.device.discard(0..64);
    assert_eq!(all(0), 0.0);
    let after = all(128);
    // Page 0 is the header's: a part of the first extent's heat has no page that takes it along.
    assert!((0.95..=1.0).contains(&(after / before)), "{after} of {before}");
}

#[test]
fn a_page_of_which_little_was_cached_is_not_kept() {
    let (world, _) = warm();
    let little = PageHeat { temperature: 1e9, cached: 0.2 };
    move_to(&world, 129, &[little; 8]);
    assert_eq!((world.stats().counts.moved, world.device.heats(129..130, 2)[0].cached), (0, 0.0));
}

#[test]
fn without_the_switch_heat_stays_with_its_place() {
    let world = World::new(400, SsdOptions { heat_across_merges: false, ..tac(128) });
    for _ in 0..5 {
        (1..64).for_each(|number| world.read(number));
    }
    assert!(world.device.heats(1..64, 1).is_empty());
    move_to(&world, 129, &[PageHeat { temperature: 1e9, cached: 1.0 }; 8]);
    assert_eq!(world.stats().counts.moved, 0);
}
