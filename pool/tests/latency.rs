//! One thread keeps many slow reads under way: with 64 of them on a device that answers after 10 ms it completes at least
//! 5,000 a second, of 6,400 that are possible. On the clock, so in a process of its own.
//!
//! The machine may be busy with other things. What is asked is whether it can be done, so the best of a few windows
//! counts.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use thermocline_base::clock::{Clock, SystemClock};
use thermocline_base::io::{AlignedBytes, DelayedIo, Io, MemoryIo};
use thermocline_base::multiplex::run_tasks;
use thermocline_pool::device::PageDevice;
use thermocline_pool::frames::{PageId, PagePool, PoolOptions};
use thermocline_pool::page::{HEADER_BYTES, PageKind, PageSize, seal};
use thermocline_pool::store::{BatchId, IndexId, Store, StoreOptions};

const DELAY: Duration = Duration::from_millis(10);
const READERS: u64 = 64;
/// Reads of one reader in one window, one after the other.
const EACH: u64 = 24;
const WINDOW: u64 = READERS * EACH;
const WINDOWS: u64 = 5;
const BOUND: f64 = 5_000.0;

/// Calls `read` for numbers that were not asked for before, 64 at a time on this thread, until a window is fast enough.
fn check<F: Future<Output = ()>>(what: &str, read: impl Fn(u64) -> F) {
    let mut best = 0.0_f64;
    for window in 0..WINDOWS {
        let begin_ns = SystemClock.now_ns();
        let reader = async |reader: u64| {
            for at in 0..EACH {
                read(window * WINDOW + at * READERS + reader).await;
            }
        };
        run_tasks((0..READERS).map(reader).collect());
        let took = Duration::from_nanos(SystemClock.now_ns() - begin_ns);
        assert!(
            took >= DELAY * EACH as u32,
            "{what}: {took:?} for a window: the reads did not come from the device"
        );
        best = best.max(WINDOW as f64 / took.as_secs_f64());
        if best >= BOUND {
            return;
        }
    }
    panic!("{what}: {best:.0} reads a second of one thread with {READERS} under way, instead of {BOUND}");
}

fn slow(memory: &MemoryIo) -> Arc<dyn Io> {
    Arc::new(DelayedIo::new(Arc::new(memory.clone()), DELAY))
}

/// One after the other: two tests at a time would measure each other.
#[test]
#[ignore = "measures times: .ci/deep governor"]
fn one_thread_hides_the_latency_of_many_reads() {
    pins_of_pages();
    records_of_the_store();
}

fn pins_of_pages() {
    let memory = MemoryIo::new();
    let (path, database) = (Path::new("/pages"), [9; 16]);
    let pages = 1 + WINDOW * WINDOWS;
    {
        let device = PageDevice::create(&memory, path, PageSize::default(), database).expect("a fresh file");
        for number in 1..pages {
            let mut page = AlignedBytes::zeroed(PageSize::default().bytes());
            page[HEADER_BYTES..HEADER_BYTES + 8].copy_from_slice(&number.to_le_bytes());
            seal(&mut page, device.seal(), number, 1, PageKind(3));
            device.write(number, page.into()).wait().result.expect("memory");
        }
    }
    let device = PageDevice::open(&*slow(&memory), path, None, database).expect("it was created");
    // Most pages have to make room for others.
    let frames = READERS * 8 * PageSize::default().bytes() as u64;
    let pool = PagePool::new(PoolOptions::new(frames)).expect("address space");
    let id = pool.add_device(Arc::new(device)).expect("the same page size");
    let pool = &pool;
    check("pins", async |at| {
        let guard = pool.pin(PageId::new(id, 1 + at), Some(1)).await.expect("whole");
        assert_eq!(guard.payload()[..8], (1 + at).to_le_bytes());
    });
    assert!(pool.stats().used_bytes <= frames);
}

fn records_of_the_store() {
    let memory = MemoryIo::new();
    let (dir, index) = (Path::new("/store"), IndexId { table: 1, index: 0 });
    let options = StoreOptions::new([9; 16]);
    // At most five records a page, none on a page of its own: each fifth one is on another page.
    let record_bytes = PageSize::default().payload_bytes() / 5 - 40;
    let record = |number: u64| vec![number as u8; record_bytes];
    {
        let store = Store::open(Arc::new(memory.clone()), dir, options.clone()).expect("it opens");
        let entries: Vec<([u8; 8], Vec<u8>)> =
            (0..WINDOW * WINDOWS * 5).map(|number| (number.to_be_bytes(), record(number))).collect();
        let loaded = store
            .bulk_load(BatchId(1), entries.iter().map(|(key, record)| (index, &key[..], &record[..])))
            .expect("sorted");
        assert_eq!(loaded, WINDOW * WINDOWS * 5);
    }
    let store = Store::open(slow(&memory), dir, options).expect("it was created");
    let store = &store;
    check("reads of records", async |at| {
        // Neighbours in time are no neighbours on the device.
        let number = at.wrapping_mul(5_003) % (WINDOW * WINDOWS) * 5;
        let found = store.get(index, &number.to_be_bytes()).await.expect("readable");
        assert_eq!((found.len(), &found[0].record), (1, &record(number)));
    });
}
