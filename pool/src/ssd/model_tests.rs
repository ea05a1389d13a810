//! The level under the model checker: admission beside discard, an extent that is used again, eviction, rewriting.
//!
//! Every scenario is run as it is, and once for each rule that it depends on with that rule switched off, which some
//! schedule must turn into a failure. A sound SSD has no faults: races are misses, and nothing else.

use std::sync::Arc;

use thermocline_base::io::{MemoryIo, RecordingIo};
use thermocline_base::sync::model;

use super::tests::{DATABASE, PAGE};
use super::*;
use crate::device::PageDevice;
use crate::mutation::{self, Rule};
use crate::page::{self, HEADER_BYTES, PageKind};

const ROUNDS: usize = 1500;

struct World {
    primary: RecordingIo,
    device: PageDevice,
}

/// Pages 40 and 41 in version 1, over an SSD with one slot.
fn world() -> Arc<World> {
    let (primary, ssd) = (RecordingIo::new(&MemoryIo::new()), MemoryIo::new());
    let mut device = PageDevice::create(&primary, Path::new("/pages"), PageSize::default(), DATABASE)
        .expect("a fresh file");
    let options = SsdOptions { policy: CacheKind::Fifo, ..tests::options(32) };
    let ssd: Arc<dyn Io> = Arc::new(ssd);
    let file = SsdFile::open(&ssd, options, PageSize::default(), DATABASE).expect("a fresh file");
    device.attach(SsdFile { slots: 1, ..file });
    let world = World { primary, device };
    world.write(40, 1, 1);
    world.write(41, 1, 1);
    Arc::new(world)
}

impl World {
    fn level(&self) -> &SsdLevel {
        self.device.ssd().expect("it was attached")
    }

    fn page(&self, number: u64, version: u64, value: u8) -> AlignedBytes {
        let mut bytes = AlignedBytes::zeroed(PAGE);
        bytes[HEADER_BYTES..].fill(value);
        page::seal(&mut bytes, self.device.seal(), number, version, PageKind(3));
        bytes
    }

    fn write(&self, number: u64, version: u64, value: u8) {
        let page = self.page(number, version, value);
        self.device.write(number, page.into()).wait().result.expect("memory");
    }

    fn start(&self, number: u64, version: u64) -> Completion {
        let wanted = Wanted::of(version, ReadReason::Point);
        self.device.read(number, AlignedBytes::zeroed(PAGE), wanted)
    }

    /// The value in a page; it is whole and in its version.
    fn read(&self, number: u64, version: u64) -> u8 {
        let outcome = self.start(number, version).wait();
        assert_eq!(outcome.result.expect("memory"), PAGE);
        let bytes = outcome.buffer.as_slice();
        let open = page::open(bytes, self.device.seal(), number, Some(version)).expect("the page");
        open.payload[100]
    }

    fn settle(&self) {
        while self.level().step() {}
    }

    fn assert_no_faults(&self) {
        let counts = self.level().stats().counts;
        assert_eq!((counts.faults, counts.stale), (0, 0), "{counts:?}");
    }
}

fn spawn(world: &Arc<World>, body: impl FnOnce(&World) + Send + 'static) -> shuttle::thread::JoinHandle<()> {
    let world = Arc::clone(world);
    shuttle::thread::spawn(move || body(&world))
}

fn check(scenario: impl Fn() + Send + Sync + Clone + 'static, rules: &[Rule]) {
    model::run(ROUNDS, scenario.clone());
    for rule in rules {
        let _off = mutation::switch_off(*rule);
        assert!(model::finds_failure(4 * ROUNDS, scenario.clone()), "nobody misses {rule:?}");
    }
}

/// Two readers want two pages, of which one has room.
#[test]
fn a_slot_that_changes_hands_is_read_as_one_of_them() {
    let scenario = || {
        let world = world();
        let reader = |number| {
            move |world: &World| {
                for _ in 0..2 {
                    assert_eq!(world.read(number, 1), 1);
                }
            }
        };
        let readers = [spawn(&world, reader(40)), spawn(&world, reader(41))];
        let writer = spawn(&world, World::settle);
        readers.into_iter().for_each(|reader| reader.join().expect("a reader"));
        writer.join().expect("the writer");
        world.settle();
        world.assert_no_faults();
    };
    check(scenario, &[Rule::SsdWritesBeforeFound]);
}

/// The reader of a page has gone, and so has its piece; the next one gets the place, while the answer comes.
#[test]
fn a_place_that_is_used_again_has_no_former_page() {
    let scenario = || {
        let world = world();
        world.primary.hold_reads(true);
        drop(world.start(40, 1));
        world.primary.hold_reads(false);
        let answer = spawn(&world, |world| {
            world.primary.answer_reads();
            world.settle();
        });
        world.device.discard(32..64);
        // As a store whose own writes are not looked at: what counts is the discard.
        let page = world.page(40, 2, 2);
        world.level().primary.file.write_at(40 * PAGE as u64, &page).expect("memory");
        assert_eq!(world.read(40, 2), 2);
        answer.join().expect("the device");
        world.settle();
        assert_eq!(world.read(40, 2), 2);
        world.settle();
        world.assert_no_faults();
    };
    check(scenario, &[Rule::SsdCountsDiscards]);
}

/// A page is changed in its place, and keeps its version, while it is read.
#[test]
fn what_is_written_is_read() {
    let scenario = || {
        let world = world();
        let reader = spawn(&world, |world| {
            world.read(40, 1);
            world.settle();
        });
        // Without its rule a write has no step at which others could come before it.
        (0..4).for_each(|_| thermocline_base::sync::schedule_point());
        world.write(40, 1, 7);
        assert_eq!(world.read(40, 1), 7);
        reader.join().expect("the reader");
        assert_eq!(world.read(40, 1), 7);
        world.settle();
        assert_eq!(world.read(40, 1), 7);
        assert_eq!(world.level().stats().counts.faults, 0);
    };
    check(scenario, &[Rule::SsdVoidsWrites]);
}
