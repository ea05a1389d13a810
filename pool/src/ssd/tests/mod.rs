//! The level between two devices in memory: what it gives, keeps, refuses and survives.

mod capture;
mod faults;
mod files;
mod heat;
mod lent;
mod restart;
mod rules;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use thermocline_base::clock::ManualClock;
use thermocline_base::io::{AlignedBytes, Io, MemoryIo, OpenMode, Outcome, RecordingIo};
use thermocline_base::rng::Rng;

use super::*;
use crate::device::PageDevice;
use crate::page::{self, HEADER_BYTES, PageKind};
use crate::simulate::device::DeviceModel;
use crate::simulate::{Mode, Simulation, replay};
use crate::trace::{TraceKind, TraceRequest};

pub(super) const DATABASE: [u8; 16] = [9; 16];
pub(super) const PAGE: usize = 4096;

/// A page file, its SSD, and what every page should hold.
pub(super) struct World {
    pub(super) primary: RecordingIo,
    pub(super) ssd: RecordingIo,
    pub(super) device: Arc<PageDevice>,
    pub(super) clock: Arc<ManualClock>,
    pub(super) versions: std::sync::Mutex<BTreeMap<u64, u64>>,
}

pub(super) fn options(slots: u64) -> SsdOptions {
    SsdOptions {
        policy: CacheKind::Lru,
        clock: Arc::new(ManualClock::new(0)),
        thread: false,
        compares_devices: false,
        savings: Some(Savings::default()),
        ..SsdOptions::new(Path::new("/ssd"), (slots + 1) * PAGE as u64)
    }
}

impl World {
    /// Pages `1..pages`, each in version 1.
    pub(super) fn new(pages: u64, options: SsdOptions) -> Self {
        let (primary, ssd) = (RecordingIo::new(&MemoryIo::new()), RecordingIo::new(&MemoryIo::new()));
        let clock = Arc::new(ManualClock::new(0));
        let options = SsdOptions { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..options };
        let mut device = PageDevice::create(&primary, Path::new("/pages"), PageSize::default(), DATABASE)
            .expect("a fresh file");
        let io: Arc<dyn Io> = Arc::new(ssd.clone());
        let file = SsdFile::open(&io, options, PageSize::default(), DATABASE).expect("a fresh file");
        device.attach(file);
        let world = Self { primary, ssd, device: Arc::new(device), clock, versions: Default::default() };
        (1..pages).for_each(|number| world.write(number, 1));
        world
    }

    /// The same over memory that is lent: so many slots behind some others.
    pub(super) fn lent(pages: u64, slots: u64, options: SsdOptions) -> Self {
        let (primary, ssd) = (RecordingIo::new(&MemoryIo::new()), RecordingIo::new(&MemoryIo::new()));
        let clock = Arc::new(ManualClock::new(0));
        let options = SsdOptions { clock: Arc::clone(&clock) as Arc<dyn Clock>, thread: false, ..options };
        let mut device = PageDevice::create(&primary, Path::new("/pages"), PageSize::default(), DATABASE)
            .expect("a fresh file");
        let file = ssd.open(Path::new("/lent"), OpenMode::CreateNew).expect("a fresh file");
        let bytes = 10 * PAGE as u64..(10 + slots) * PAGE as u64;
        let lent = Lent { file, bytes, buffer_pages: options.buffer_pages };
        let level = SsdFile::lent_with(lent, options, PageSize::default()).expect("enough slots");
        device.attach(level);
        let world = Self { primary, ssd, device: Arc::new(device), clock, versions: Default::default() };
        (1..pages).for_each(|number| world.write(number, 1));
        world
    }

    pub(super) fn level(&self) -> &Arc<SsdLevel> {
        self.device.ssd().expect("it was attached")
    }

    pub(super) fn stats(&self) -> SsdStats {
        self.level().stats()
    }

    /// A page as it should be.
    pub(super) fn page(&self, number: u64, version: u64) -> AlignedBytes {
        let mut page = AlignedBytes::zeroed(PAGE);
        Rng::new(number << 20 | version).fill(&mut page[HEADER_BYTES..]);
        page::seal(&mut page, self.device.seal(), number, version, PageKind(3));
        page
    }

    pub(super) fn write(&self, number: u64, version: u64) {
        self.device.write(number, self.page(number, version).into()).wait().result.expect("written");
        self.versions.lock().expect("no test panics with it").insert(number, version);
    }

    pub(super) fn start(&self, first: u64, count: u64, wanted: Wanted) -> Completion {
        self.device.read(first, AlignedBytes::zeroed(count as usize * PAGE), wanted)
    }

    /// The pages that an answer has, checked.
    pub(super) fn came(&self, first: u64, version: u64, outcome: Outcome) -> usize {
        let bytes = outcome.result.expect("a read");
        let buffer = outcome.buffer.into_aligned().expect("it was aligned");
        for (at, page) in buffer[..bytes].chunks_exact(PAGE).enumerate() {
            let number = first + at as u64;
            assert!(page == &self.page(number, version)[..], "page {number} in version {version}");
        }
        bytes / PAGE
    }

    /// Reads a page in version 1, and does what is to be done.
    pub(super) fn read(&self, number: u64) {
        self.read_as(number, Wanted::of(1, ReadReason::Point));
    }

    pub(super) fn read_as(&self, number: u64, wanted: Wanted) {
        let outcome = self.start(number, 1, wanted).wait();
        let version = wanted.version.unwrap_or(1);
        assert_eq!(self.came(number, version, outcome), 1);
        self.settle();
    }

    pub(super) fn settle(&self) {
        while self.level().step() {}
    }

    pub(super) fn hits(&self) -> u64 {
        self.stats().counts.hits
    }
}

#[test]
fn a_page_that_is_read_again_comes_from_the_ssd() {
    let world = World::new(200, options(64));
    world.read(7);
    assert_eq!((world.hits(), world.stats().cached), (0, 1));
    world.primary.inject(faults::broken_read());
    world.read(7);
    world.read(7);
    let counts = world.stats().counts;
    assert_eq!((counts.reads, counts.hits, counts.admitted, counts.bytes_written), (3, 2, 1, 4096));
    assert_eq!(world.stats().hit_ratio(), 2.0 / 3.0);
}

#[test]
fn a_page_that_waits_for_its_slot_is_there_already() {
    let world = World::new(200, options(64));
    world.start(7, 1, Wanted::of(1, ReadReason::Point)).wait().result.expect("read");
    assert_eq!(world.level().table.lock().waits(), 1);
    let outcome = world.start(7, 1, Wanted::of(1, ReadReason::Point)).wait();
    assert_eq!((world.came(7, 1, outcome), world.hits()), (1, 1));
}

#[test]
fn merges_take_what_is_there_and_warm_nothing_and_verification_takes_nothing() {
    let world = World::new(200, options(64));
    for reason in [ReadReason::Merge, ReadReason::Verify] {
        world.read_as(9, Wanted::of(1, reason));
        assert_eq!(world.stats().cached, 0, "{reason:?}");
    }
    world.read_as(9, Wanted::default());
    assert_eq!(world.stats().cached, 0, "nothing proves it current");
    world.read(9);
    world.read_as(9, Wanted::of(1, ReadReason::Merge));
    world.read_as(9, Wanted::of(1, ReadReason::Verify));
    world.read_as(9, Wanted::default());
    let counts = world.stats().counts;
    assert_eq!((counts.reads, counts.hits, counts.merge_hits), (1, 0, 1));
    world.read_as(9, Wanted { again: true, ..Wanted::of(1, ReadReason::Point) });
    assert_eq!(world.hits(), 0, "the primary has the last word");
}

#[test]
fn a_run_is_cut_at_both_ends_and_read_in_one_piece_between() {
    let world = World::new(200, options(64));
    for number in [32, 33, 40, 62, 63] {
        world.read(number);
    }
    let before = world.primary.memory().clone();
    drop(before);
    let outcome = world.start(32, 32, Wanted::of(1, ReadReason::Scan)).wait();
    assert_eq!(world.came(32, 1, outcome), 32);
    assert_eq!(world.hits(), 4, "page 40 came with its neighbours");
    world.settle();
    assert_eq!(world.stats().cached, 32);
    world.primary.inject(faults::broken_read());
    let outcome = world.start(32, 32, Wanted::of(1, ReadReason::Scan)).wait();
    assert_eq!(world.came(32, 1, outcome), 32);
}

#[test]
fn the_level_hits_what_the_simulator_hits() {
    const PAGES: u64 = 3000;
    let mut rng = Rng::new(11);
    let trace: Vec<(u64, TraceKind)> = (0..20_000)
        .map(|_| {
            let near = if rng.chance(0.6) { 200 } else { PAGES };
            let kind = if rng.chance(0.02) { TraceKind::Free } else { TraceKind::Read };
            (1 + rng.below(near - 1), kind)
        })
        .collect();
    let named = |name| DeviceModel::named(name).expect("it has a name");
    for policy in CacheKind::ALL.into_iter().filter(|kind| kind.is_online()) {
        let simulation = Simulation {
            page_bytes: PAGE as u32,
            extent_pages: 32,
            frames: 0,
            slots: vec![256],
            policies: vec![policy],
            disk: named("network-volume"),
            ssd: named("fusion-io"),
            mode: Mode::WriteThrough,
            threads: 1,
        };
        let savings = Some(simulation.savings());
        let world = World::new(1, SsdOptions { policy, savings, ..options(256) });
        world.primary.short_reads(false);
        (1..PAGES).for_each(|number| world.write(number, 1));
        let prefix = |count: usize| {
            let requests = trace[..count].iter().map(|(page, kind)| TraceRequest {
                told: if *kind == TraceKind::Read { crate::cache::Told::Random } else { Default::default() },
                ..TraceRequest::new(*page, *kind)
            });
            let mut source = requests.collect::<Vec<_>>().into_iter();
            let outcome = replay(&mut source, &simulation, &mut |_| {}).expect("a trace in memory");
            outcome.rows.iter().find(|row| row.policy.is_some()).expect("a row").counts.hits
        };
        let checks: Vec<usize> = (1..=10).map(|part| part * trace.len() / 10).collect();
        for (at, (page, kind)) in trace.iter().enumerate() {
            match kind {
                TraceKind::Read => world.read(*page),
                _ => world.device.discard(*page..*page + 1),
            }
            if checks.contains(&(at + 1)) {
                assert_eq!(world.hits(), prefix(at + 1), "{policy} after {} requests", at + 1);
            }
        }
        assert!(world.hits() > 1000, "{policy} hits something");
    }
}

#[test]
fn the_default_runs() {
    let world = World::new(2000, SsdOptions { policy: DEFAULT_POLICY, ..options(128) });
    let mut rng = Rng::new(3);
    for _ in 0..4000 {
        let near = if rng.chance(0.8) { 100 } else { 1999 };
        world.read(1 + rng.below(near));
    }
    let stats = world.stats();
    assert_eq!(stats.policy, DEFAULT_POLICY);
    assert!(stats.hit_ratio() > 0.5 && stats.state == SsdState::On, "{stats:?}");
    assert!(stats.counts.refused > 0, "it lets cold pages pass");
}

#[test]
fn where_the_buffer_is_full_the_coldest_page_is_dropped() {
    let world = World::new(400, SsdOptions { policy: CacheKind::Tac, buffer_pages: 4, ..options(64) });
    // Extent 3 is warm.
    for _ in 0..40 {
        for number in [96, 97, 200, 201] {
            world.start(number, 1, Wanted::of(1, ReadReason::Point)).wait().result.expect("read");
        }
        world.device.discard(96..98);
        world.device.discard(200..202);
    }
    for number in [96, 300, 320, 340, 97, 98] {
        world.start(number, 1, Wanted::of(1, ReadReason::Point)).wait().result.expect("read");
    }
    let counts = world.stats().counts;
    assert_eq!(counts.dropped, 2);
    world.settle();
    for number in [96, 97, 98] {
        assert!(world.level().table.lock().slot_of(number).is_some(), "page {number} is warm");
    }
}

#[test]
fn an_ssd_that_is_no_faster_than_the_primary_is_switched_off() {
    let world = World::new(2000, SsdOptions { compares_devices: true, ..options(1000) });
    let wanted = Wanted::of(1, ReadReason::Point);
    let timed = |io: &RecordingIo, number: u64, us: u64| {
        io.hold_reads(true);
        let read = world.start(number, 1, wanted);
        world.clock.advance(Duration::from_micros(us));
        io.answer_reads();
        io.hold_reads(false);
        read.wait().result.expect("read");
        world.settle();
    };
    for (ssd_us, state_is_on) in [(100, true), (460, false)] {
        for number in 1..1990 {
            timed(&world.primary, number, 500);
            if world.stats().state == SsdState::On {
                timed(&world.ssd, number, ssd_us);
            }
            world.device.discard(number..number + 1);
        }
        let state = world.stats().state;
        assert_eq!(state == SsdState::On, state_is_on, "{state}");
    }
    assert!(matches!(world.stats().state, SsdState::NoFaster { .. }));
    let (hits, memory) = (world.hits(), world.stats().memory_bytes);
    world.read(5);
    world.read(5);
    assert_eq!(world.hits(), hits);
    assert!(memory < 10_000, "what is off takes no memory: {memory}");
}

#[test]
fn a_write_of_the_primary_voids_what_is_cached() {
    let world = World::new(200, options(64));
    (1..100).for_each(|number| world.read(number));
    (1..100).for_each(|number| world.write(number, 2));
    for number in 1..100 {
        world.read_as(number, Wanted::of(2, ReadReason::Point));
    }
    assert_eq!((world.hits(), world.stats().counts.faults), (0, 0));
}
