//! The pool against devices in memory: a delayed one, a faulty one, and a model.

mod against_model;
mod faults;
mod resizing;
mod threads;
mod waiting;

use std::path::Path;
use std::sync::Arc;

use thermocline_base::io::{AlignedBytes, Io, MemoryIo};
use thermocline_base::multiplex::block_on;

use super::*;
use crate::page::{PageKind, seal};

const DATABASE: [u8; 16] = [9; 16];
pub(super) const KIND: PageKind = PageKind(3);

fn path() -> &'static Path {
    Path::new("/pages")
}

/// A device with pages `1..pages`, each in version 1 and full of its number.
pub(super) fn device_on(io: &dyn Io, pages: u64) -> Arc<PageDevice> {
    let device = PageDevice::create(io, path(), PageSize::default(), DATABASE).expect("a fresh file");
    for number in 1..pages {
        write_page(&device, number, 1, number);
    }
    Arc::new(device)
}

/// Opens that device.
#[cfg(feature = "model")]
pub(super) fn opened(io: &dyn Io) -> PageDevice {
    PageDevice::open(io, path(), None, DATABASE).expect("our own file")
}

/// Writes a page past the pool.
pub(super) fn write_page(device: &PageDevice, number: u64, version: u64, value: u64) {
    let page = sealed(device, number, version, value);
    device.write(number, page.into()).wait().result.expect("memory");
}

fn sealed(device: &PageDevice, number: u64, version: u64, value: u64) -> AlignedBytes {
    let mut page = AlignedBytes::zeroed(4096);
    fill(&mut page[page::HEADER_BYTES..], value);
    seal(&mut page, device.seal(), number, version, KIND);
    page
}

pub(super) fn fill(payload: &mut [u8], value: u64) {
    for chunk in payload.chunks_exact_mut(8) {
        chunk.copy_from_slice(&value.to_le_bytes());
    }
}

pub(super) fn value_of(payload: &[u8]) -> u64 {
    let mut values =
        payload.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight")));
    let first = values.next().expect("a payload");
    assert!(values.all(|value| value == first), "a page is whole");
    first
}

fn pool_of(frames: u64) -> PagePool {
    PagePool::new(PoolOptions::new(frames * 4096)).expect("address space")
}

fn assert_send<T: Send>(value: T) -> T {
    value
}

fn read(pool: &PagePool, page: PageId) -> u64 {
    value_of(block_on(assert_send(pool.pin(page, Some(1)))).expect("it is there").payload())
}

#[test]
fn a_page_is_read_once_and_then_found() {
    let device = device_on(&MemoryIo::new(), 10);
    let pool = pool_of(4);
    let id = pool.add_device(device).expect("the same page size");
    let page = PageId::new(id, 5);
    assert!(pool.try_pin(page).is_none());
    assert!(pool.read_optimistic(page, |bytes| bytes.u64(8)).is_none());
    assert_eq!(read(&pool, page), 5);
    assert_eq!(read(&pool, page), 5);
    assert_eq!(pool.read_optimistic(page, |bytes| bytes.u64(8)), Some(Some(5)));
    assert_eq!(pool.try_pin(page).expect("it is there").version(), 1);
    let stats = pool.stats();
    assert_eq!((stats.misses, stats.reads, stats.hits_pinned, stats.hits_optimistic), (1, 1, 2, 1));
    assert_eq!(stats.used_bytes, 4096);
}

#[test]
fn more_pages_than_frames_are_served() {
    for policy in PolicyKind::ALL {
        let device = device_on(&MemoryIo::new(), 200);
        let pool = PagePool::new(PoolOptions::new(8 * 4096).policy(policy.build())).expect("address space");
        let id = pool.add_device(device).expect("the same page size");
        for round in 0..3 {
            for number in 1..200 {
                assert_eq!(read(&pool, PageId::new(id, number)), number, "round {round}");
            }
        }
        assert_eq!(pool.stats().used_bytes, 8 * 4096);
    }
}

#[test]
fn changes_survive_eviction_and_flush() {
    let io = MemoryIo::new();
    let device = device_on(&io, 100);
    let pool = pool_of(6);
    let id = pool.add_device(Arc::clone(&device)).expect("the same page size");
    for number in 1..50 {
        let mut guard =
            block_on(assert_send(pool.pin_mut(PageId::new(id, number), Some(1)))).expect("it is there");
        fill(guard.payload_mut(), number + 1000);
        guard.publish(2, KIND);
    }
    for number in 100..120 {
        let mut guard = block_on(assert_send(pool.create(PageId::new(id, number)))).expect("a frame");
        fill(guard.payload_mut(), number + 1000);
        guard.publish(2, KIND);
    }
    block_on(assert_send(pool.flush(id))).expect("memory");
    assert_eq!(pool.stats().dirty_bytes, 0);
    drop(pool);
    let again = pool_of(6);
    let id = again.add_device(device).expect("the same page size");
    for number in (1..50).chain(100..120) {
        let guard = block_on(again.pin(PageId::new(id, number), Some(2))).expect("it was flushed");
        assert_eq!(value_of(guard.payload()), number + 1000);
    }
}

#[test]
fn files_past_the_cache_of_the_system_serve_pages() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("pages");
    let io = thermocline_base::io::StdIo;
    let size = PageSize::new(16384).expect("a page size");
    let file = Arc::new(PageDevice::create(&io, &path, size, DATABASE).expect("a fresh file"));
    let options = || PoolOptions::new(8 * 16384).page_size(size);
    let pool = PagePool::new(options()).expect("address space");
    let id = pool.add_device(file).expect("the same page size");
    for number in 1..40 {
        let mut guard = block_on(pool.create(PageId::new(id, number))).expect("a frame");
        fill(guard.payload_mut(), number);
        guard.publish(7, KIND);
    }
    block_on(pool.flush(id)).expect("a file");
    drop(pool);
    let file = PageDevice::open(&io, &path, Some(size), DATABASE).expect("our own file");
    let pool = PagePool::new(options()).expect("address space");
    let id = pool.add_device(Arc::new(file)).expect("the same page size");
    pool.read_ahead(id, 3..9, None).expect("frames");
    for number in 1..40 {
        let guard = block_on(pool.pin(PageId::new(id, number), Some(7))).expect("it was flushed");
        assert_eq!(value_of(guard.payload()), number);
    }
}
