//! Futures that wait: for a device that answers late, for frames, for each other; and futures that are dropped.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::*;
use thermocline_base::io::RecordingIo;

type Pinning<'a> = Pin<Box<dyn Future<Output = Result<PageGuard<'a>, PoolError>> + Send + 'a>>;

/// A pool over a device that answers when it is told to.
fn setup(pages: u64, frames: u64) -> (RecordingIo, PagePool, DeviceId) {
    let io = RecordingIo::new(&MemoryIo::new());
    let device = device_on(&io, pages);
    let pool = pool_of(frames);
    let id = pool.add_device(device).expect("the same page size");
    io.defer(0);
    (io, pool, id)
}

fn pinning(pool: &PagePool, device: DeviceId, number: u64) -> Pinning<'_> {
    Box::pin(async move { pool.pin(PageId::new(device, number), Some(1)).await })
}

fn poll<T>(future: &mut Pin<Box<dyn Future<Output = T> + Send + '_>>) -> Option<T> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

#[test]
fn one_read_serves_all_who_wait() {
    let (io, pool, id) = setup(10, 4);
    let mut futures: Vec<_> = (0..5).map(|_| pinning(&pool, id, 3)).collect();
    assert!(futures.iter_mut().all(|future| poll(future).is_none()));
    assert_eq!(io.under_way(), 1);
    io.release();
    let guards: Vec<_> =
        futures.iter_mut().map(|future| poll(future).expect("it is there").expect("whole")).collect();
    assert!(guards.iter().all(|guard| value_of(guard.payload()) == 3));
    let stats = pool.stats();
    assert_eq!((stats.misses, stats.joined, stats.reads), (1, 4, 1));
}

#[test]
fn dropped_futures_leave_no_pin_and_no_frame() {
    let (io, pool, id) = setup(10, 1);
    // Dropped before the answer: the read goes on, and the page is there.
    let mut future = pinning(&pool, id, 3);
    assert!(poll(&mut future).is_none());
    drop(future);
    io.release();
    assert!(pool.try_pin(PageId::new(id, 3)).is_some());
    // Dropped between the answer and the next poll: the pin goes back, or the only frame would be lost.
    let mut future = pinning(&pool, id, 4);
    assert!(poll(&mut future).is_none());
    io.release();
    drop(future);
    // Dropped while it waits for the frame.
    let guard = pool.try_pin(PageId::new(id, 4)).expect("it is there");
    let mut future = pinning(&pool, id, 5);
    assert!(poll(&mut future).is_none());
    drop(future);
    drop(guard);
    let mut future = pinning(&pool, id, 6);
    assert!(poll(&mut future).is_none());
    io.release();
    assert!(poll(&mut future).expect("it is there").is_ok());
    assert_eq!(io.under_way(), 0);
    assert_eq!(pool.shared.waiting.load(thermocline_base::sync::Ordering::SeqCst), 0);
}

#[test]
fn a_device_that_hangs_holds_nobody_else() {
    let (io, pool, id) = setup(10, 4);
    let other_io = MemoryIo::new();
    let other = pool.add_device(device_on(&other_io, 50)).expect("the same page size");
    let mut hangs = pinning(&pool, id, 3);
    assert!(poll(&mut hangs).is_none());
    for number in 1..50 {
        assert_eq!(read(&pool, PageId::new(other, number)), number);
    }
    assert!(poll(&mut hangs).is_none());
    io.release_all();
    assert!(poll(&mut hangs).expect("it is there").is_ok());
}

#[test]
fn who_waits_for_a_frame_gets_one_when_a_pin_goes() {
    let (io, pool, id) = setup(10, 2);
    io.release_all();
    let first = block_on(pool.pin(PageId::new(id, 1), None)).expect("a frame");
    let _second = block_on(pool.pin(PageId::new(id, 2), None)).expect("a frame");
    let mut future = pinning(&pool, id, 3);
    assert!(poll(&mut future).is_none());
    assert!(poll(&mut future).is_none());
    drop(first);
    assert_eq!(value_of(poll(&mut future).expect("a frame").expect("whole").payload()), 3);
}

#[test]
fn many_reads_are_in_flight_on_one_thread() {
    const DELAY_MS: u64 = 10;
    const IN_FLIGHT: usize = 64;
    const READS: u64 = 1280;
    let (io, pool, id) = setup(READS + 1, 2048);
    let mut numbers = 1..=READS;
    let mut futures: Vec<Option<Pinning<'_>>> = (0..IN_FLIGHT).map(|_| None).collect();
    let (mut done, mut now_ms) = (0, 0);
    while done < READS {
        for place in &mut futures {
            if place.is_none() {
                *place = numbers.next().map(|number| pinning(&pool, id, number));
            }
            if let Some(result) = place.as_mut().and_then(poll) {
                result.expect("whole");
                (*place, done) = (numbers.next().map(|number| pinning(&pool, id, number)), done + 1);
                // Its read begins at once.
                assert!(place.as_mut().is_none_or(|future| poll(future).is_none()));
            }
        }
        // No future can go on: the device's delay passes, for all that were asked together.
        now_ms += DELAY_MS;
        (0..io.under_way()).for_each(|_| assert!(io.release()));
    }
    let per_second = READS * 1000 / now_ms;
    assert!(per_second >= 5000, "{per_second} reads a second of the device's time");
}

#[test]
fn read_ahead_joins_neighbours() {
    let (io, pool, id) = setup(200, 100);
    io.release_all();
    let _there = block_on(pool.pin(PageId::new(id, 20), None)).expect("a frame");
    io.defer(0);
    assert_eq!(pool.read_ahead(id, 10..90, None).expect("frames"), 79);
    assert_eq!(io.under_way(), 4, "10 to 19, 21 to 52, 53 to 84, 85 to 89");
    assert_eq!(pool.read_ahead(id, 10..90, None).expect("frames"), 0);
    let mut future = pinning(&pool, id, 60);
    assert!(poll(&mut future).is_none());
    io.release_all();
    assert_eq!(value_of(poll(&mut future).expect("read").expect("whole").payload()), 60);
    for number in 10..90 {
        let guard = pool.try_pin(PageId::new(id, number)).expect("read ahead");
        assert_eq!(value_of(guard.payload()), number);
    }
    assert_eq!(pool.stats().reads, 5);
}

#[test]
fn a_discarded_page_is_not_served_by_an_older_read() {
    let (io, pool, id) = setup(10, 4);
    let mut before = pinning(&pool, id, 3);
    assert!(poll(&mut before).is_none());
    block_on(pool.discard(id, 3..4));
    let mut guard = block_on(pool.create(PageId::new(id, 3))).expect("a frame");
    fill(guard.payload_mut(), 33);
    guard.publish(2, KIND);
    io.release();
    let guard = block_on(pool.pin(PageId::new(id, 3), Some(2))).expect("the new page");
    assert_eq!(value_of(guard.payload()), 33);
    // The reader that asked before expects what is gone.
    assert!(matches!(
        poll(&mut before),
        Some(Err(PoolError::Page { reason: PageReason::Bytes(PageError::Version { .. }), .. }))
    ));
}

#[test]
fn discarding_waits_for_writes() {
    let (io, pool, id) = setup(10, 4);
    io.release_all();
    let mut guard = block_on(pool.pin_mut(PageId::new(id, 3), None)).expect("a frame");
    fill(guard.payload_mut(), 33);
    guard.publish(2, KIND);
    io.defer(0);
    let mut flush: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(pool.flush(id));
    assert!(poll(&mut flush).is_none());
    let mut discard: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(pool.discard(id, 1..10));
    assert!(pool.try_pin(PageId::new(id, 3)).is_none());
    assert!(poll(&mut discard).is_none());
    io.release();
    assert!(poll(&mut discard).is_some());
    io.release_all();
    assert!(poll(&mut flush).is_some_and(|result| result.is_ok()));
}

#[test]
fn the_budget_shrinks_and_grows() {
    let io = MemoryIo::new();
    let device = device_on(&io, 1100);
    let pool = PagePool::new(PoolOptions::new(1024 * 4096).budget_max(2048 * 4096)).expect("address space");
    let id = pool.add_device(device).expect("the same page size");
    for number in 1..1025 {
        read(&pool, PageId::new(id, number));
    }
    let pinned = block_on(pool.pin(PageId::new(id, 1000), None)).expect("a frame");
    let mut changed = block_on(pool.pin_mut(PageId::new(id, 900), None)).expect("a frame");
    fill(changed.payload_mut(), 9);
    let over = pool.set_budget(16 * 4096);
    let stats = pool.stats();
    assert_eq!(stats.over_budget_bytes, over);
    assert!(over <= 2 * 4096 && stats.used_bytes <= 18 * 4096, "only what is in use is left");
    assert_eq!(value_of(pinned.payload()), 1000);
    changed.publish(2, KIND);
    block_on(pool.flush(id)).expect("memory");
    drop(pinned);
    assert_eq!(pool.stats().over_budget_bytes, 0);
    assert!(pool.stats().used_bytes <= 16 * 4096);
    if let Some(resident) = pool.shared.memory.resident_bytes() {
        assert!(resident <= 16 * 4096, "{resident} bytes are resident");
    }
    for number in 1..100 {
        read(&pool, PageId::new(id, number));
    }
    assert!(pool.stats().used_bytes <= 16 * 4096);
    assert_eq!(pool.set_budget(4096 * 4096), 0);
    for number in 1..900 {
        read(&pool, PageId::new(id, number));
    }
    assert!(pool.stats().used_bytes >= 899 * 4096, "the frames are there again");
    assert_eq!(value_of(block_on(pool.pin(PageId::new(id, 900), Some(2))).expect("written").payload()), 9);
}
