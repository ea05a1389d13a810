//! Threads that read, change, resize and flush one pool at a time: what the sanitizers look at.

use super::*;
use thermocline_base::rng::Rng;

const PAGES: u64 = 48;
const STEPS: usize = 3000;

/// A page is full of one value: its number, and a count above it.
fn is_of(value: u64, number: u64) -> bool {
    value & 0xffff == number
}

fn work(pool: &PagePool, id: DeviceId, seed: u64) {
    let mut rng = Rng::new(seed);
    for step in 0..STEPS {
        let number = 1 + rng.below(PAGES - 1);
        let page = PageId::new(id, number);
        match rng.below(16) {
            0 => {
                let mut guard = block_on(pool.pin_mut(page, None)).expect("memory");
                let value = value_of(guard.payload()) + (1 << 16);
                fill(guard.payload_mut(), value);
                let version = guard.version() + 1;
                guard.publish(version, KIND);
            }
            1 if step % 8 == 0 => _ = pool.set_budget((6 + rng.below(20)) * 4096),
            2 if step % 8 == 0 => block_on(pool.flush(id)).expect("memory"),
            3 => _ = pool.read_ahead(id, number..PAGES.min(number + 5), None).expect("frames"),
            4..10 => {
                let seen = pool.read_optimistic(page, |bytes| {
                    let mut whole = [0; 4096 - page::HEADER_BYTES];
                    bytes.copy_to(0, &mut whole).then_some(whole)
                });
                assert!(seen.is_none_or(|whole| is_of(value_of(&whole.expect("it fits")), number)));
            }
            _ => {
                let guard = block_on(pool.pin(page, None)).expect("memory");
                assert!(is_of(value_of(guard.payload()), number));
            }
        }
    }
}

#[test]
fn threads_see_whole_pages_and_lose_no_change() {
    for policy in PolicyKind::ALL {
        let device = device_on(&MemoryIo::new(), PAGES);
        let options = PoolOptions::new(12 * 4096).budget_max(32 * 4096).policy(policy.build());
        let pool = PagePool::new(options).expect("address space");
        let id = pool.add_device(device).expect("the same page size");
        std::thread::scope(|scope| {
            for seed in 0..3 {
                let pool = &pool;
                scope.spawn(move || work(pool, id, seed));
            }
        });
        block_on(pool.flush(id)).expect("memory");
        for number in 1..PAGES {
            let guard = block_on(pool.pin(PageId::new(id, number), None)).expect("memory");
            let value = value_of(guard.payload());
            assert_eq!(value >> 16, guard.version() - 1, "as many changes as versions");
        }
        assert_eq!(pool.stats().over_budget_bytes, 0);
    }
}
