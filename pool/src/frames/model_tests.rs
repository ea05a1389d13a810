//! The pool under the model checker: races between pins, evictions, flushes, dropped futures and discards.
//!
//! Every scenario is run as it is, and once for each rule that it depends on with that rule switched off, which some
//! schedule must turn into a failure. Threads give back what they have seen, and the scenario judges after all have
//! ended. A future that sleeps for ever is a deadlock, which the model checker reports.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use thermocline_base::io::{MemoryIo, RecordingIo};
use thermocline_base::multiplex::block_on;
use thermocline_base::sync::{AtomicBool, Ordering, model};

use super::tests::{KIND, device_on, fill, opened, value_of, write_page};
use super::*;
use crate::mutation::{self, Rule};

const ROUNDS: usize = 1500;

struct World {
    pool: PagePool,
    id: DeviceId,
    file: Arc<PageDevice>,
    io: RecordingIo,
}

fn world(pages: u64, frames: u64) -> World {
    let io = RecordingIo::new(&MemoryIo::new());
    let file = device_on(&io, pages);
    let options = PoolOptions::new(frames * 4096).policy(PolicyKind::Clock.build());
    let pool = PagePool::new(options).expect("address space");
    let id = pool.add_device(Arc::clone(&file)).expect("the same page size");
    World { pool, id, file, io }
}

impl World {
    fn page(&self, number: u64) -> PageId {
        PageId::new(self.id, number)
    }

    fn pin(&self, number: u64) -> PageGuard<'_> {
        block_on(self.pool.pin(self.page(number), None)).expect("the device is whole")
    }

    /// The file, past what is under way.
    fn past(&self) -> PageDevice {
        opened(self.io.memory())
    }

    fn change(&self, number: u64, value: u64, version: u64) {
        let mut guard = block_on(self.pool.pin_mut(self.page(number), None)).expect("the device is whole");
        fill(guard.payload_mut(), value);
        guard.publish(version, KIND);
    }
}

/// Checks a scenario, and that each of the rules is missed in it.
fn check(scenario: impl Fn() + Send + Sync + Clone + 'static, rules: &[Rule]) {
    model::run(ROUNDS, scenario.clone());
    for rule in rules {
        let _off = mutation::switch_off(*rule);
        assert!(model::finds_failure(4 * ROUNDS, scenario.clone()), "nobody misses {rule:?}");
    }
}

fn spawn<T: Send + 'static>(
    world: &Arc<World>,
    body: impl FnOnce(&World) -> T + Send + 'static,
) -> shuttle::thread::JoinHandle<T> {
    let world = Arc::clone(world);
    shuttle::thread::spawn(move || body(&world))
}

/// One thread reads a page in a pinned frame, another one needs frames.
#[test]
fn a_pinned_page_stays() {
    let scenario = || {
        let world = Arc::new(world(4, 2));
        drop(world.pin(1));
        let reader = spawn(&world, |world| {
            let guard = world.pool.try_pin(world.page(1))?;
            model_pause();
            let first = guard.payload()[0];
            model_pause();
            Some((first, guard.payload()[4000]))
        });
        drop((world.pin(2), world.pin(3)));
        let seen = reader.join().expect("the reader");
        assert!(seen.is_none_or(|seen| seen == (1, 1)), "a pinned page changed: {seen:?}");
    };
    check(scenario, &[Rule::PinnedPageStays]);
}

/// One thread pins a page while its slot, its frame and its state become another page's.
#[test]
fn a_pin_is_of_the_page_that_was_asked_for() {
    let scenario = || {
        let world = Arc::new(world(24, 1));
        let twin = (2..24).find(|number| {
            world.pool.shared.map.same_home(world.page(1).packed(), world.page(*number).packed())
        });
        let twin = twin.expect("there are few buckets");
        drop(world.pin(1));
        let reader = spawn(&world, |world| {
            let guard = world.pool.try_pin(world.page(1))?;
            Some(value_of(guard.payload()))
        });
        assert_eq!(value_of(world.pin(twin).payload()), twin);
        let seen = reader.join().expect("the reader");
        assert!(seen.is_none_or(|seen| seen == 1), "instead of page 1 came page {seen:?}");
    };
    check(scenario, &[Rule::PinComparesPage]);
}

fn model_pause() {
    thermocline_base::sync::schedule_point();
}

/// An optimistic reader beside an eviction that fills the only frame with another page.
#[test]
fn an_optimistic_read_is_of_one_page() {
    let scenario = || {
        let world = Arc::new(world(3, 1));
        drop(world.pin(1));
        let reader = spawn(&world, |world| {
            world.pool.read_optimistic(world.page(1), |bytes| {
                let mut last = [0; 8];
                let copied = bytes.copy_to(4000, &mut last);
                (bytes.u64(0), copied.then(|| u64::from_le_bytes(last)))
            })
        });
        drop(world.pin(2));
        let seen = reader.join().expect("the reader");
        assert!(seen.is_none_or(|seen| seen == (Some(1), Some(1))), "a reader saw {seen:?}");
    };
    check(scenario, &[Rule::OptimisticRecheck]);
}

/// Two threads need the only frame in turns.
#[test]
fn who_waits_for_a_frame_is_woken() {
    let scenario = || {
        let world = Arc::new(world(4, 1));
        let other = spawn(&world, |world| value_of(world.pin(2).payload()));
        assert_eq!(value_of(world.pin(1).payload()), 1);
        assert_eq!(value_of(world.pin(3).payload()), 3);
        assert_eq!(other.join().expect("the other"), 2);
        assert_eq!(world.pool.stats().used_bytes, 4096);
    };
    check(scenario, &[Rule::LastUnpinNotifies]);
}

/// A future is dropped while its page arrives; the only frame must not be lost.
#[test]
fn a_dropped_future_leaves_no_pin() {
    let scenario = || {
        let world = Arc::new(world(4, 1));
        world.io.defer(1);
        let dropper = spawn(&world, |world| {
            let mut pinning = pin!(world.pool.pin(world.page(1), None));
            let polled = pinning.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            // Usually pending; both ways the future goes now, with or without its page.
            drop(polled);
            model_pause();
        });
        while world.io.under_way() == 0 {
            shuttle::thread::yield_now();
        }
        world.io.release_all();
        dropper.join().expect("the dropper");
        assert_eq!(value_of(world.pin(2).payload()), 2);
    };
    check(scenario, &[Rule::DroppedPinIsGivenBack]);
}

/// A page is discarded and used again while an older read of it is under way.
#[test]
fn a_discarded_page_does_not_come_back() {
    let scenario = || {
        let world = Arc::new(world(4, 3));
        world.io.defer(1);
        let reader = spawn(&world, |world| value_of(world.pin(1).payload()));
        while world.io.under_way() == 0 {
            shuttle::thread::yield_now();
        }
        let device = spawn(&world, |world| world.io.release_all());
        block_on(world.pool.discard(world.id, 1..2));
        world.io.release_all();
        device.join().expect("the device");
        write_page(&world.file, 1, 2, 11);
        // The reader may have started over and read what the device had then: a reader that asks for the new page
        // gets it.
        let now = block_on(world.pool.pin(world.page(1), Some(2))).expect("the new page");
        assert_eq!(value_of(now.payload()), 11, "a discarded page came back");
        drop(now);
        let seen = reader.join().expect("the reader");
        assert!([1, 11].contains(&seen));
    };
    model::run(ROUNDS, scenario);
    // The read is answered after the page is used again: the order that needs the rule.
    let late = || {
        let world = Arc::new(world(4, 3));
        world.io.defer(1);
        let mut pinning = pin!(world.pool.pin(world.page(1), None));
        assert!(pinning.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let discard = spawn(&world, |world| {
            block_on(world.pool.discard(world.id, 1..2));
            let mut guard = block_on(world.pool.create(world.page(1))).expect("a frame");
            fill(guard.payload_mut(), 11);
            guard.publish(2, KIND);
        });
        world.io.release_all();
        discard.join().expect("the writer");
        let now = world.pin(1);
        assert_eq!((now.version(), value_of(now.payload())), (2, 11), "a discarded page came back");
    };
    check(late, &[Rule::DiscardDetachesReads]);
}

/// A discarded page number is written by its next owner; a write of its former life must not land on it.
#[test]
fn no_former_write_lands_on_a_discarded_page() {
    let scenario = || {
        let world = Arc::new(world(4, 3));
        world.change(1, 7, 2);
        world.io.defer(1);
        let flusher = spawn(&world, |world| block_on(world.pool.flush(world.id)).is_ok());
        let device = spawn(&world, |world| {
            while !world.io.release() {
                shuttle::thread::yield_now();
            }
            world.io.release_all();
        });
        while world.io.under_way() == 0 && world.pool.stats().dirty_bytes > 0 {
            shuttle::thread::yield_now();
        }
        block_on(world.pool.discard(world.id, 1..2));
        write_page(&world.past(), 1, 3, 11);
        assert!(flusher.join().expect("the flusher"));
        device.join().expect("the device");
        let now = world.pin(1);
        assert_eq!((now.version(), value_of(now.payload())), (3, 11), "a former write landed");
    };
    check(scenario, &[Rule::DiscardWaitsForWrites]);
}

/// A page is changed while it is written, and written again; the device answers in any order.
#[test]
fn the_last_change_reaches_the_device() {
    let scenario = || {
        let world = Arc::new(world(4, 2));
        world.change(1, 7, 2);
        world.io.defer(1);
        let first = spawn(&world, |world| block_on(world.pool.flush(world.id)).is_ok());
        let second = spawn(&world, |world| {
            world.change(1, 8, 3);
            block_on(world.pool.flush(world.id)).is_ok()
        });
        let answers = Arc::new(AtomicBool::new(true));
        let device = spawn(&world, {
            let answers = Arc::clone(&answers);
            move |world| {
                while answers.load(Ordering::Relaxed) {
                    world.io.release();
                    shuttle::thread::yield_now();
                }
            }
        });
        assert!(first.join().expect("the first") && second.join().expect("the second"));
        answers.store(false, Ordering::Relaxed);
        world.io.release_all();
        device.join().expect("the device");
        drop((world.pin(2), world.pin(3)));
        let now = world.pin(1);
        assert_eq!((now.version(), value_of(now.payload())), (3, 8), "a change was lost");
    };
    check(scenario, &[Rule::OneWriteAPage, Rule::ChangeDuringWriteStays]);
}

/// Shrinking beside pins and changes: what is in use stays, what is not goes.
#[test]
fn shrinking_waits_for_nobody_and_loses_nothing() {
    let scenario = || {
        let world = Arc::new(world(5, 3));
        drop((world.pin(1), world.pin(2), world.pin(3)));
        let user = spawn(&world, |world| {
            let seen = world.pool.try_pin(world.page(2)).map_or(2, |guard| value_of(guard.payload()));
            world.change(3, 33, 2);
            seen
        });
        world.pool.set_budget(4096);
        assert_eq!(user.join().expect("the user"), 2);
        block_on(world.pool.flush(world.id)).expect("memory");
        let now = world.pin(3);
        assert_eq!((now.version(), value_of(now.payload())), (2, 33));
        drop(now);
        assert_eq!(world.pool.stats().over_budget_bytes, 0);
        assert!(world.pool.stats().used_bytes <= 4096);
    };
    model::run(ROUNDS, scenario);
}

/// A page moves to another frame, whose former one is given back, beside readers of it.
#[test]
fn a_page_that_moves_is_read_whole() {
    let scenario = || {
        let world = Arc::new(world(4, 3));
        drop((world.pin(1), world.pin(2), world.pin(3)));
        let optimistic = spawn(&world, |world| {
            world.pool.read_optimistic(world.page(3), |bytes| {
                let mut last = [0; 8];
                let copied = bytes.copy_to(4000, &mut last);
                (bytes.u64(0), copied.then(|| u64::from_le_bytes(last)))
            })
        });
        let pinned = spawn(&world, |world| {
            let guard = world.pool.try_pin(world.page(3))?;
            model_pause();
            Some(value_of(guard.payload()))
        });
        world.pool.set_budget(4096);
        let seen = optimistic.join().expect("the reader");
        assert!(seen.is_none_or(|seen| seen == (Some(3), Some(3))), "a reader saw {seen:?}");
        let seen = pinned.join().expect("the reader");
        assert!(seen.is_none_or(|seen| seen == 3), "a pinned page became {seen:?}");
        let stats = world.pool.stats();
        assert_eq!((stats.used_bytes, stats.over_budget_bytes), (4096, 0));
        assert_eq!(value_of(world.pin(3).payload()), 3);
    };
    check(scenario, &[Rule::OptimisticRecheck, Rule::PinnedPageStays, Rule::LastUnpinNotifies]);
}

/// The map changes its table beside readers, one of which keeps a pin for a while.
#[test]
fn pages_are_found_while_the_map_grows_and_shrinks() {
    let scenario = || {
        let io = MemoryIo::new();
        let file = device_on(&io, 3);
        let options = PoolOptions::new(2 * 4096).budget_max(2048 * 4096).policy(PolicyKind::Clock.build());
        let pool = PagePool::new(options).expect("address space");
        let id = pool.add_device(file).expect("the same page size");
        let (one, two) = (PageId::new(id, 1), PageId::new(id, 2));
        for page in [one, two] {
            drop(block_on(pool.pin(page, None)).expect("the device is whole"));
        }
        let optimistic = shuttle::thread::spawn({
            let pool = pool.clone();
            move || pool.read_optimistic(two, |bytes| (bytes.u64(0), bytes.u64(4000)))
        });
        let pinned = shuttle::thread::spawn({
            let pool = pool.clone();
            move || {
                let guard = pool.try_pin(one);
                model_pause();
                guard.map(|guard| value_of(guard.payload()))
            }
        });
        pool.set_budget(2048 * 4096);
        pool.set_budget(2 * 4096);
        let seen = optimistic.join().expect("the reader");
        assert!(seen.is_none_or(|seen| seen == (Some(2), Some(2))), "a reader saw {seen:?}");
        assert!(pinned.join().expect("the reader").is_none_or(|seen| seen == 1));
        assert!(!pool.shared.map.has_former(), "a page was left behind in a former table");
        let reads = pool.stats().reads;
        for page in [one, two] {
            assert_eq!(value_of(block_on(pool.pin(page, Some(1))).expect("there").payload()), page.number());
        }
        assert_eq!(pool.stats().reads, reads, "both are still in memory");
    };
    check(scenario, &[Rule::LastUnpinNotifies, Rule::PinnedPageStays]);
}
