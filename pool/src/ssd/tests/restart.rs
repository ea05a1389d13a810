//! The start of the next opening: pages of a saved map, whatever happened to map and slots meanwhile.

use super::*;
use thermocline_base::io::{Io, OpenMode};

fn tac(slots: u64) -> SsdOptions {
    SsdOptions { policy: DEFAULT_POLICY, ..options(slots) }
}

/// Opens the files that a world has left again.
fn reopened(primary: &MemoryIo, ssd: &MemoryIo, options: SsdOptions) -> World {
    let (primary, ssd) = (RecordingIo::new(primary), RecordingIo::new(ssd));
    let clock = Arc::new(ManualClock::new(0));
    let options = SsdOptions { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..options };
    let mut device = PageDevice::open(&primary, Path::new("/pages"), None, DATABASE).expect("our own file");
    let io: Arc<dyn Io> = Arc::new(ssd.clone());
    let file = SsdFile::open(&io, options, PageSize::default(), DATABASE).expect("our own file");
    device.attach(file);
    World { primary, ssd, device: Arc::new(device), clock, versions: Default::default() }
}

fn copy(io: &RecordingIo) -> MemoryIo {
    MemoryIo::with_files(io.memory().directories(), io.memory().files())
}

/// A level with pages 1 to 99 cached, of which the first ones are warm.
fn warm() -> World {
    let world = World::new(400, tac(128));
    for _ in 0..5 {
        (1..64).for_each(|number| world.read(number));
    }
    (64..100).for_each(|number| world.read(number));
    assert_eq!(world.stats().cached, 99);
    world
}

#[test]
fn what_was_saved_is_there_again() {
    let world = warm();
    world.level().save().expect("memory");
    let (primary, ssd) = (copy(&world.primary), copy(&world.ssd));
    let again = reopened(&primary, &ssd, tac(128));
    assert_eq!(again.stats().cached, 99);
    again.primary.inject(faults::broken_read());
    for number in 1..100 {
        again.read(number);
    }
    assert_eq!((again.hits(), again.stats().counts.faults), (99, 0));
    again.primary.heal();
    // Warmth came along: what comes once does not push out what was warm.
    (200..399).for_each(|number| again.read(number));
    let before = again.hits();
    (1..64).for_each(|number| again.read(number));
    assert_eq!(again.hits() - before, 63);
}

#[test]
fn a_level_with_a_thread_saves_when_it_ends() {
    let world = World::new(200, SsdOptions { thread: true, ..tac(128) });
    for number in 1..100 {
        world.read(number);
    }
    while world.stats().counts.bytes_written < 99 * PAGE as u64 {
        std::thread::yield_now();
    }
    let (primary, ssd) = (world.primary.clone(), world.ssd.clone());
    drop(world);
    let again = reopened(&copy(&primary), &copy(&ssd), tac(128));
    assert_eq!(again.stats().cached, 99);
}

#[test]
fn other_sizes_begin_cold() {
    let world = warm();
    world.level().save().expect("memory");
    let again = reopened(&copy(&world.primary), &copy(&world.ssd), tac(200));
    assert_eq!(again.stats().cached, 0);
    (1..100).for_each(|number| again.read(number));
}

/// Whatever policy has saved a map, and whatever policy opens it: the pages are there, each in its slot.
#[test]
fn every_policy_begins_warm_with_the_map_of_every_other() {
    let online = || CacheKind::ALL.into_iter().filter(|kind| kind.is_online());
    for saves in online() {
        let world = World::new(400, SsdOptions { policy: saves, ..options(128) });
        for _ in 0..3 {
            (1..100).for_each(|number| world.read(number));
        }
        // Slots between are empty.
        world.device.discard(20..30);
        let cached = world.stats().cached;
        assert_eq!(cached, 89, "{saves}");
        world.level().save().expect("memory");
        for opens in online() {
            let (primary, ssd) = (copy(&world.primary), copy(&world.ssd));
            let again = reopened(&primary, &ssd, SsdOptions { policy: opens, ..options(128) });
            assert_eq!(again.stats().cached, cached, "{opens} after {saves}");
            (1..20).chain(30..100).for_each(|number| again.read(number));
            assert_eq!((again.hits(), again.stats().counts.faults), (cached, 0), "{opens} after {saves}");
            // It goes on as a policy does: full, never fuller, and the pages are what they should be.
            for _ in 0..3 {
                (100..399).for_each(|number| again.read(number));
            }
            assert!(again.stats().cached <= 128, "{opens} after {saves}");
        }
    }
}

/// The order of use outlives an opening: the page that was used longest ago leaves first.
#[test]
fn lru_keeps_its_order() {
    let world = World::new(400, options(64));
    (1..65).for_each(|number| world.read(number));
    (1..33).rev().for_each(|number| world.read(number));
    world.level().save().expect("memory");
    let again = reopened(&copy(&world.primary), &copy(&world.ssd), options(64));
    // These push out the half that was not used again.
    (100..132).for_each(|number| again.read(number));
    let before = again.hits();
    (1..33).for_each(|number| again.read(number));
    assert_eq!(again.hits() - before, 32);
}

/// A process that is killed leaves the map of some time before: what came in since is cold, and the rest is as warm as it was.
#[test]
fn after_a_kill_nearly_all_is_warm() {
    let world = World::new(2000, tac(512));
    let mut rng = Rng::new(4);
    let mut some = |world: &World, reads: u64| {
        let before = world.hits();
        for _ in 0..reads {
            let near = if rng.chance(0.8) { 400 } else { 1999 };
            world.read(1 + rng.below(near));
        }
        (world.hits() - before) as f64 / reads as f64
    };
    some(&world, 20_000);
    world.level().save().expect("memory");
    // As much comes in as may before the map is saved again.
    let saved = world.stats().counts.admitted;
    let mut before = 0.0;
    while world.stats().counts.admitted < saved + 512 / 16 {
        before = some(&world, 500);
    }
    let again = reopened(&copy(&world.primary), &copy(&world.ssd), tac(512));
    let after = some(&again, 500);
    assert!(after > 0.9 * before, "{after} after the kill, {before} before it");
    assert_eq!(again.stats().counts.faults, 0);
}

#[test]
fn a_damaged_or_cut_map_begins_cold() {
    let world = warm();
    world.level().save().expect("memory");
    let ssd = copy(&world.ssd);
    let path = Path::new("/ssd.map");
    let whole = ssd.files().remove(path).expect("it is there");
    let mut rng = Rng::new(1);
    for _ in 0..200 {
        let mut bytes = whole.clone();
        if rng.chance(0.5) {
            bytes.truncate(rng.below(whole.len() as u64) as usize);
        } else {
            bytes[rng.below(whole.len() as u64) as usize] ^= 1 << rng.below(8);
        }
        let mut files = ssd.files();
        files.insert(path.to_path_buf(), bytes);
        let ssd = MemoryIo::with_files(ssd.directories(), files);
        assert_eq!(reopened(&copy(&world.primary), &ssd, tac(128)).stats().cached, 0);
    }
}

/// Slots that hold something else than a map says: gives the state and how many faults were counted.
fn overwritten() -> (SsdState, u64) {
    let world = warm();
    world.level().save().expect("memory");
    let ssd = copy(&world.ssd);
    let file = ssd.open(Path::new("/ssd"), OpenMode::Write).expect("it is there");
    for slot in 0..99 {
        file.write_at((1 + slot) * PAGE as u64, &world.page(300 + slot, 4)).expect("memory");
    }
    let again = reopened(&copy(&world.primary), &ssd, tac(128));
    for _ in 0..2 {
        (1..100).for_each(|number| again.read(number));
    }
    (again.stats().state, again.stats().counts.faults)
}

#[test]
fn slots_that_were_filled_again_after_the_map_are_misses_and_no_faults() {
    assert_eq!(overwritten(), (SsdState::On, 0));
}

#[cfg(feature = "model")]
#[test]
fn faults_of_a_saved_map_are_missed() {
    let _off = crate::mutation::switch_off(crate::mutation::Rule::SsdProvesSavedMaps);
    assert_ne!(overwritten(), (SsdState::On, 0));
}

/// The primary is restored from an older copy beside a newer SSD, and the other way round: no former page is read.
#[test]
fn an_older_disk_beside_a_newer_ssd_and_the_reverse() {
    let world = warm();
    world.level().save().expect("memory");
    let (old_primary, old_ssd) = (copy(&world.primary), copy(&world.ssd));
    // Other pages in the same places.
    world.device.discard(1..64);
    (1..64).for_each(|number| world.write(number, 2));
    for _ in 0..3 {
        (1..64).for_each(|number| world.read_as(number, Wanted::of(2, ReadReason::Point)));
    }
    world.level().save().expect("memory");
    let (new_primary, new_ssd) = (copy(&world.primary), copy(&world.ssd));
    for (primary, ssd, version) in [(&old_primary, &new_ssd, 1), (&new_primary, &old_ssd, 2)] {
        let again = reopened(primary, ssd, tac(128));
        for _ in 0..2 {
            (1..64).for_each(|number| again.read_as(number, Wanted::of(version, ReadReason::Point)));
            (64..100).for_each(|number| again.read(number));
        }
        let stats = again.stats();
        assert_eq!((stats.state, stats.counts.faults), (SsdState::On, 0));
        assert!(stats.counts.hits >= 36 * 2, "what did not change is warm: {stats:?}");
    }
}

/// A crash of the SSD's device at each of its operations, while the map is saved again and again.
#[test]
fn after_a_crash_nothing_wrong_is_read() {
    let world = warm();
    for round in 0..3_u64 {
        world.level().save().expect("memory");
        world.device.discard(1 + round..20 + round);
        (1..64).for_each(|number| world.write(number, 2 + round));
        (1..64).for_each(|number| world.read_as(number, Wanted::of(2 + round, ReadReason::Point)));
    }
    let mut rng = Rng::new(9);
    let mut warm = 0;
    for operations in (0..=world.ssd.operations()).rev().step_by(9).take(40) {
        let ssd = world.ssd.crash(operations, rng.next_u64());
        let again = reopened(&copy(&world.primary), &ssd, tac(128));
        (1..64).for_each(|number| again.read_as(number, Wanted::of(4, ReadReason::Point)));
        (64..100).for_each(|number| again.read(number));
        let stats = again.stats();
        assert_eq!((stats.state, stats.counts.faults), (SsdState::On, 0), "after {operations} operations");
        warm += stats.counts.hits;
    }
    assert!(warm > 0, "some of it was warm");
}
