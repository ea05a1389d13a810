//! Random operations against a map of values, one after the other, with few frames.

use std::collections::HashMap;

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Pin(u64),
    Optimistic(u64),
    Change(u64, u64),
    GiveUp(u64),
    Create(u64, u64),
    Discard(u64, u64),
    ReadAhead(u64, u64),
    Flush,
    Budget(u64),
    /// Pins a page for the next so many steps.
    Hold(u64, usize),
}

const PAGES: u64 = 24;

fn step() -> impl Strategy<Value = Step> {
    let page = || 1..PAGES;
    prop_oneof![
        4 => page().prop_map(Step::Pin),
        2 => page().prop_map(Step::Optimistic),
        3 => (page(), any::<u64>()).prop_map(|(page, value)| Step::Change(page, value)),
        1 => page().prop_map(Step::GiveUp),
        2 => (page(), any::<u64>()).prop_map(|(page, value)| Step::Create(page, value)),
        1 => (page(), 1u64..6).prop_map(|(page, count)| Step::Discard(page, count)),
        1 => (page(), 1u64..20).prop_map(|(page, count)| Step::ReadAhead(page, count)),
        1 => Just(Step::Flush),
        1 => (4u64..14).prop_map(Step::Budget),
        1 => (page(), 1usize..8).prop_map(|(page, steps)| Step::Hold(page, steps)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn the_pool_shows_what_was_written(
        steps in proptest::collection::vec(step(), 1..120),
        policy in prop::sample::select(&PolicyKind::ALL),
    ) {
        let io = MemoryIo::new();
        let device = device_on(&io, PAGES);
        let options = PoolOptions::new(6 * 4096).budget_max(16 * 4096).policy(policy.build());
        let pool = PagePool::new(options).expect("address space");
        let id = pool.add_device(Arc::clone(&device)).expect("the same page size");
        // Value and version in the pool; what the device has is in there until something is discarded.
        let mut model: HashMap<u64, (u64, u64)> = (1..PAGES).map(|page| (page, (page, 1))).collect();
        let mut flushed = model.clone();
        let mut next_version = 2;
        let mut held: Vec<(PageGuard<'_>, u64, usize)> = Vec::new();
        for step in steps {
            held.retain_mut(|(guard, value, steps)| {
                assert_eq!(value_of(guard.payload()), *value, "a pinned page does not change");
                *steps -= 1;
                *steps > 0
            });
            let is_held = |page| held.iter().any(|(guard, ..)| pool.shared.map.find(PageId::new(id, page).packed()) == Some(guard.slot()));
            match step {
                Step::Pin(page) => {
                    let (value, version) = model[&page];
                    let guard = block_on(pool.pin(PageId::new(id, page), Some(version))).expect("it is there");
                    prop_assert_eq!(value_of(guard.payload()), value);
                }
                Step::Optimistic(page) => {
                    let seen = pool.read_optimistic(PageId::new(id, page), |bytes| (bytes.u64(40), bytes.version()));
                    let (value, version) = model[&page];
                    prop_assert!(seen.is_none_or(|seen| seen == (Some(value), version)));
                }
                Step::Change(page, value) if !is_held(page) => {
                    let (_, version) = model[&page];
                    let mut guard = block_on(pool.pin_mut(PageId::new(id, page), Some(version))).expect("it is there");
                    fill(guard.payload_mut(), value);
                    guard.publish(next_version, KIND);
                    model.insert(page, (value, next_version));
                    next_version += 1;
                }
                Step::GiveUp(page) if !is_held(page) => {
                    let mut guard = block_on(pool.pin_mut(PageId::new(id, page), None)).expect("it is there");
                    fill(guard.payload_mut(), u64::MAX);
                }
                Step::Create(page, value) => {
                    let mut guard = block_on(pool.create(PageId::new(id, page))).expect("a frame");
                    fill(guard.payload_mut(), value);
                    guard.publish(next_version, KIND);
                    model.insert(page, (value, next_version));
                    next_version += 1;
                }
                Step::Discard(page, count) => {
                    let end = PAGES.min(page + count);
                    block_on(pool.discard(id, page..end));
                    for page in page..end {
                        // What the device has now is what was written before, whenever that was.
                        let guard = block_on(pool.pin(PageId::new(id, page), None)).expect("whole");
                        let found = (value_of(guard.payload()), guard.version());
                        prop_assert!(found.1 >= flushed[&page].1 && found.1 <= model[&page].1);
                        model.insert(page, found);
                        flushed.insert(page, found);
                    }
                }
                Step::ReadAhead(page, count) => {
                    pool.read_ahead(id, page..PAGES.min(page + count), None).expect("frames");
                }
                Step::Flush => {
                    block_on(pool.flush(id)).expect("memory");
                    flushed = model.clone();
                    prop_assert_eq!(pool.stats().dirty_bytes, 0);
                }
                Step::Budget(frames) => {
                    // Room for what is held.
                    pool.set_budget((frames + 3) * 4096);
                }
                Step::Hold(page, steps) if held.len() < 3 => {
                    let (value, version) = model[&page];
                    let guard = block_on(pool.pin(PageId::new(id, page), Some(version))).expect("it is there");
                    held.push((guard, value, steps));
                }
                _ => {}
            }
        }
        held.clear();
        block_on(pool.flush(id)).expect("memory");
        let stats = pool.stats();
        prop_assert_eq!((stats.over_budget_bytes, stats.dirty_bytes), (0, 0));
        prop_assert!(stats.used_bytes <= stats.budget_bytes);
        let again = pool_of(4);
        let id = again.add_device(device).expect("the same page size");
        for (page, (value, version)) in model {
            let guard = block_on(again.pin(PageId::new(id, page), Some(version))).expect("it was flushed");
            prop_assert_eq!(value_of(guard.payload()), value);
        }
    }
}
