//! Budgets that change: the coldest pages go, the others stay where they can be found, and memory follows.

use super::*;
use thermocline_base::rng::Rng;

fn pool(frames: u64, frames_max: u64, policy: PolicyKind) -> PagePool {
    let options = PoolOptions::new(frames * 4096).budget_max(frames_max * 4096).policy(policy.build());
    PagePool::new(options).expect("address space")
}

#[test]
fn shrinking_drops_the_coldest_pages() {
    for policy in PolicyKind::ALL {
        let device = device_on(&MemoryIo::new(), 1100);
        let pool = pool(1024, 1024, policy);
        let id = pool.add_device(device).expect("the same page size");
        // The last ones that come, in the frames with the highest numbers, are the hot ones.
        for number in 1..=1024 {
            read(&pool, PageId::new(id, number));
        }
        for _ in 0..4 {
            (925..=1024).for_each(|number| _ = read(&pool, PageId::new(id, number)));
        }
        assert_eq!(pool.set_budget(128 * 4096), 0);
        let stats = pool.stats();
        assert_eq!((stats.used_bytes, stats.over_budget_bytes), (128 * 4096, 0));
        let left = |pages: std::ops::RangeInclusive<u64>| {
            pages.filter(|number| pool.try_pin(PageId::new(id, *number)).is_some()).count()
        };
        assert_eq!((left(925..=1024), left(1..=924)), (100, 28), "{policy:?}");
        let reads = pool.stats().reads;
        (925..=1024).for_each(|number| assert_eq!(read(&pool, PageId::new(id, number)), number));
        assert_eq!(pool.stats().reads, reads, "they are found in their new frames");
        if let Some(resident) = pool.shared.memory.resident_bytes() {
            assert!(resident <= 128 * 4096, "{resident} bytes are resident");
            let stats = pool.stats();
            assert!(resident as u64 <= stats.frame_bytes && stats.frame_bytes <= stats.memory_bytes());
        }
        block_on(pool.discard(id, 1..1025));
        let stats = pool.stats();
        assert_eq!((stats.used_bytes, stats.frame_bytes), (0, 128 * 4096), "empty frames keep their memory");
        // Growing again, everything goes on.
        assert_eq!(pool.set_budget(512 * 4096), 0);
        (600..=1024).for_each(|number| assert_eq!(read(&pool, PageId::new(id, number)), number));
        assert!(pool.stats().used_bytes >= 425 * 4096);
    }
}

#[test]
fn changed_pages_move_without_being_written() {
    let device = device_on(&MemoryIo::new(), 100);
    let pool = pool(64, 64, PolicyKind::default());
    let id = pool.add_device(device).expect("the same page size");
    for number in 1..=64 {
        read(&pool, PageId::new(id, number));
    }
    let mut guard = block_on(pool.pin_mut(PageId::new(id, 60), None)).expect("a frame");
    fill(guard.payload_mut(), 7);
    guard.publish(2, KIND);
    assert_eq!(pool.set_budget(8 * 4096), 0);
    let stats = pool.stats();
    assert_eq!((stats.used_bytes, stats.dirty_bytes, stats.writes), (8 * 4096, 4096, 0));
    let guard = pool.try_pin(PageId::new(id, 60)).expect("it moved");
    assert_eq!((guard.version(), value_of(guard.payload())), (2, 7));
    // The last frame but none: it has to be written.
    drop(guard);
    assert_eq!(pool.set_budget(0), 0, "a device in memory writes at once");
    assert_eq!(pool.stats().writes, 1);
    pool.set_budget(4096);
    assert_eq!(value_of(block_on(pool.pin(PageId::new(id, 60), Some(2))).expect("written").payload()), 7);
}

#[test]
fn the_map_is_as_large_as_the_budget_needs() {
    const MAX: u64 = 8 << 20;
    let device = device_on(&MemoryIo::new(), 9000);
    let pool = pool(2048, MAX, PolicyKind::default());
    let id = pool.add_device(device).expect("the same page size");
    let resident = || pool.shared.map.resident_bytes();
    let read_all =
        |count: u64| (1..=count).for_each(|number| assert_eq!(read(&pool, PageId::new(id, number)), number));
    read_all(2048);
    assert_eq!(pool.stats().used_bytes, 2048 * 4096);
    let small = pool.stats().map_bytes;
    assert!(small <= 2048 * 96 + 4096, "{small} bytes for 2,048 frames");
    assert!(resident().is_none_or(|bytes| bytes as u64 <= small));
    // A page that is pinned keeps its place in the former table, and goes over when it is unpinned.
    let pinned = pool.try_pin(PageId::new(id, 77)).expect("it is there");
    pool.set_budget(8192 * 4096);
    assert!(pool.shared.map.has_former());
    let reads = pool.stats().reads;
    read_all(2048);
    assert_eq!(pool.stats().reads, reads, "pages are found in the new table");
    assert!(pool.try_pin(PageId::new(id, 77)).is_some());
    read_all(8192);
    drop(pinned);
    assert!(!pool.shared.map.has_former());
    assert_eq!(read(&pool, PageId::new(id, 77)), 77);
    assert_eq!(pool.stats().used_bytes, 8192 * 4096);
    let large = pool.stats().map_bytes;
    assert!((8192 * 48..=8192 * 96 + 4096).contains(&large), "{large} bytes for 8,192 frames");
    assert!(resident().is_none_or(|bytes| bytes as u64 <= large), "{:?} of {large}", resident());
    pool.set_budget(2048 * 4096);
    assert_eq!((pool.stats().map_bytes, pool.shared.map.has_former()), (small, false));
    assert!(resident().is_none_or(|bytes| bytes as u64 <= small), "{:?} of {small}", resident());
    let bookkeeping = pool.stats().bookkeeping_bytes;
    assert!(bookkeeping <= 2048 * 64, "{bookkeeping} bytes of bookkeeping for 2,048 frames");
    assert_eq!(pool.shared.waiting.load(thermocline_base::sync::Ordering::SeqCst), 0);
}

/// Readers with pins and without, beside budgets that change all the time.
#[test]
fn readers_beside_changing_budgets_see_whole_pages() {
    const PAGES: u64 = 6000;
    let device = device_on(&MemoryIo::new(), PAGES);
    let pool = pool(64, 8192, PolicyKind::default());
    let id = pool.add_device(device).expect("the same page size");
    let stop = std::sync::atomic::AtomicBool::new(false);
    let reads = std::sync::atomic::AtomicU64::new(0);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (pool, stop, reads) = (&pool, &stop, &reads);
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                let mut kept = std::collections::VecDeque::new();
                while !stop.load(relaxed) {
                    let number = 1 + rng.below(PAGES - 1);
                    let page = PageId::new(id, number);
                    let (at, words) = (rng.below(500) as usize * 8, 3968 / 8);
                    let seen = pool.read_optimistic(page, |bytes| (bytes.u64(at), bytes.u64(8 * words)));
                    assert!(seen.is_none_or(|seen| seen == (Some(number), Some(number))), "{seen:?}");
                    if let Some(guard) = block_on(pool.pin_if_free(page, Some(1))).expect("memory") {
                        assert_eq!(value_of(guard.payload()), number);
                        reads.fetch_add(1, relaxed);
                        kept.push_back((number, guard));
                    }
                    if kept.len() > 20 {
                        let (number, guard) = kept.pop_front().expect("it is long");
                        assert_eq!(value_of(guard.payload()), number);
                    }
                }
            });
        }
        let mut rng = Rng::new(99);
        while reads.load(relaxed) < 30_000 {
            pool.set_budget([0, 1, 30, 64, 700, 1400, 3000, 8192][rng.below(8) as usize] * 4096);
            std::thread::yield_now();
        }
        stop.store(true, relaxed);
    });
    assert_eq!(pool.set_budget(100 * 4096), 0);
    let stats = pool.stats();
    assert!(stats.used_bytes <= 100 * 4096 && stats.over_budget_bytes == 0, "{stats:?}");
    assert!(!pool.shared.map.has_former());
    assert_eq!(pool.shared.waiting.load(thermocline_base::sync::Ordering::SeqCst), 0);
    for number in 1..PAGES {
        assert_eq!(read(&pool, PageId::new(id, number)), number);
    }
}
