//! A captured trace of a page file has, in the simulator, the hits that the level had.

use std::io::Write;
use std::sync::Mutex;

use super::*;
use crate::capture::PageCapture;
use crate::trace::{TraceReader, TraceSource};

/// A trace in memory, of which a test keeps a handle.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no test panics with it").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A level of 64 slots whose page file is captured.
fn captured(capture: &Arc<PageCapture>) -> World {
    let world = World::new(1000, options(64));
    let World { primary, ssd, device, clock, versions } = world;
    let mut device = Arc::into_inner(device).expect("nobody else has it");
    device.capture(Arc::clone(capture));
    World { primary, ssd, device: Arc::new(device), clock, versions }
}

fn simulated_hits(trace: &[u8]) -> u64 {
    let named = |name| DeviceModel::named(name).expect("it has a name");
    let simulation = Simulation {
        page_bytes: PAGE as u32,
        extent_pages: 32,
        frames: 0,
        slots: vec![64],
        policies: vec![CacheKind::Lru],
        disk: named("network-volume"),
        ssd: named("fusion-io"),
        mode: Mode::WriteThrough,
        threads: 1,
    };
    let mut source = TraceReader::new(trace).expect("a trace");
    let outcome = replay(&mut source, &simulation, &mut |_| {}).expect("a whole trace");
    outcome.rows.iter().find(|row| row.policy.is_some()).expect("a row").counts.hits
}

#[test]
fn a_captured_trace_has_the_hits_of_the_level() {
    let trace = Shared::default();
    let capture = Arc::new(PageCapture::new(Box::new(trace.clone())));
    let world = captured(&capture);
    world.primary.short_reads(false);
    let mut rng = Rng::new(7);
    for _ in 0..4000 {
        let near = if rng.chance(0.7) { 80 } else { 998 };
        let page = 1 + rng.below(near);
        match rng.below(20) {
            0 => world.device.discard(page..page + 1),
            // Pages are written where others were freed.
            1 => {
                world.device.discard(page..page + 1);
                world.write(page, 1);
            }
            // Neither makes anything warmer.
            2 => world.read_as(page, Wanted::of(1, ReadReason::Merge)),
            3 => world.read_as(page, Wanted::of(1, ReadReason::Verify)),
            _ => world.read(page),
        }
    }
    assert!(world.hits() > 1000, "the level hits something");
    let (requests, hits) = (capture.finish().expect("memory"), world.hits());
    world.read(5);
    assert_eq!(capture.requests(), requests, "a capture that has ended takes nothing more");
    let bytes = trace.0.lock().expect("no test panics with it").clone();
    assert_eq!(simulated_hits(&bytes), hits);
}

#[test]
fn runs_are_captured_page_by_page_and_told_sequential() {
    let trace = Shared::default();
    let capture = Arc::new(PageCapture::new(Box::new(trace.clone())));
    let world = captured(&capture);
    world.start(32, 8, Wanted::of(1, ReadReason::Scan)).wait().result.expect("memory");
    world.device.discard(32..34);
    assert_eq!(capture.finish().expect("memory"), 10);
    let bytes = trace.0.lock().expect("no test panics with it").clone();
    let mut found = Vec::new();
    let mut reader = TraceReader::new(&bytes[..]).expect("a trace");
    while reader.next_batch(&mut found).expect("a whole trace") {}
    let pages: Vec<(u64, TraceKind)> = found.iter().map(|request| (request.page, request.kind)).collect();
    let expected =
        (32..40).map(|page| (page, TraceKind::Read)).chain((32..34).map(|page| (page, TraceKind::Free)));
    assert_eq!(pages, expected.collect::<Vec<_>>());
    assert!(found[..8].iter().all(|request| request.told == crate::cache::Told::Sequential));
}

/// A disk that is full after some bytes.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_trace_that_cannot_be_written_fails_no_read_and_says_so_at_its_end() {
    for room in [0, 40, 4096 * 28 * 2] {
        let capture = Arc::new(PageCapture::new(Box::new(Full(room))));
        let world = captured(&capture);
        for number in 0..10_000 {
            world.read(1 + number % 99);
        }
        let error = capture.finish().expect_err("there is no room");
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    }
}
