//! Faults of a device: a named error, and everything else goes on.

use super::*;
use thermocline_base::io::{Action, Fault, FaultKind, RecordingIo};

fn setup(pages: u64, frames: u64) -> (RecordingIo, PagePool, DeviceId) {
    let io = RecordingIo::new(&MemoryIo::new());
    let device = device_on(&io, pages);
    let pool = pool_of(frames);
    let id = pool.add_device(device).expect("the same page size");
    (io, pool, id)
}

fn pin(pool: &PagePool, device: DeviceId, number: u64, version: u64) -> Result<u64, PoolError> {
    block_on(pool.pin(PageId::new(device, number), Some(version))).map(|guard| value_of(guard.payload()))
}

#[test]
fn a_failed_read_is_reported_and_not_remembered() {
    let (io, pool, id) = setup(10, 4);
    io.inject(Fault { on: Action::Read, skip: 0, times: 1, kind: FaultKind::Broken });
    assert!(
        matches!(pin(&pool, id, 5, 1), Err(PoolError::Page { number: 5, reason: PageReason::Io(error), .. }) if error.action() == Action::Read)
    );
    assert_eq!(pin(&pool, id, 5, 1).expect("the device is whole again"), 5);
    for number in 1..10 {
        assert_eq!(pin(&pool, id, number, 1).expect("every frame is there"), number);
    }
    assert_eq!(pool.stats().read_errors, 1);
}

#[test]
fn short_reads_end_in_a_named_error() {
    // Direct files give whole blocks at least, so the pages are longer.
    const BYTES: usize = 16384;
    let (io, size) = (RecordingIo::new(&MemoryIo::new()), PageSize::new(BYTES as u32).expect("a page size"));
    let device = PageDevice::create(&io, path(), size, DATABASE).expect("a fresh file");
    for number in 1..40 {
        let mut page = AlignedBytes::zeroed(BYTES);
        fill(&mut page[page::HEADER_BYTES..], number);
        seal(&mut page, device.seal(), number, 1, KIND);
        device.write(number, page.into()).wait().result.expect("memory");
    }
    let pool = PagePool::new(PoolOptions::new(40 * BYTES as u64).page_size(size)).expect("address space");
    let id = pool.add_device(Arc::new(device)).expect("the same page size");
    io.short_reads(true);
    assert!(matches!(
        pin(&pool, id, 5, 1),
        Err(PoolError::Page { number: 5, reason: PageReason::Short { bytes: 8192 }, .. })
    ));
    // Of several pages whole ones come, fewer each time; a pin that needs one that did not come reads it.
    assert_eq!(pool.read_ahead(id, 10..26, None).expect("frames"), 16);
    io.short_reads(false);
    for number in 5..30 {
        assert_eq!(pin(&pool, id, number, 1).expect("whole again"), number);
    }
}

#[test]
fn a_cut_file_loses_what_was_cut_and_nothing_else() {
    let io = MemoryIo::new();
    let device = device_on(&io, 20);
    device.cut(12).expect("memory");
    let pool = pool_of(40);
    let id = pool.add_device(device).expect("the same page size");
    pool.read_ahead(id, 5..20, None).expect("frames");
    for number in 1..12 {
        assert_eq!(pin(&pool, id, number, 1).expect("it is there"), number);
    }
    for number in 12..20 {
        assert!(
            matches!(pin(&pool, id, number, 1), Err(PoolError::Page { number: cut, reason: PageReason::Cut, .. }) if cut == number)
        );
    }
    assert_eq!(pool.stats().used_bytes, 11 * 4096, "frames of failed reads are free");
}

#[test]
fn flipped_and_misplaced_pages_are_named() {
    let io = MemoryIo::new();
    let device = device_on(&io, 20);
    io.flip(path(), 7 * 4096 + 1234, 4);
    let other = sealed(&device, 9, 1, 9);
    device.write(8, other.into()).wait().result.expect("memory");
    let pool = pool_of(8);
    let id = pool.add_device(device).expect("the same page size");
    for _ in 0..2 {
        let damaged = pin(&pool, id, 7, 1);
        assert!(matches!(
            damaged,
            Err(PoolError::Page { reason: PageReason::Bytes(PageError::Checksum { number: 7, .. }), .. })
        ));
        let misplaced = pin(&pool, id, 8, 1);
        assert!(matches!(
            misplaced,
            Err(PoolError::Page { reason: PageReason::Bytes(PageError::Number { number: 8, found: 9 }), .. })
        ));
        let older = pin(&pool, id, 6, 2);
        assert!(matches!(
            older,
            Err(PoolError::Page {
                reason: PageReason::Bytes(PageError::Version { expected: 2, found: 1, .. }),
                ..
            })
        ));
    }
    assert_eq!(pin(&pool, id, 6, 1).expect("whole"), 6);
    assert_eq!(pin(&pool, id, 9, 1).expect("whole"), 9);
}

#[test]
fn an_older_page_in_a_frame_gives_way_to_the_device() {
    let io = MemoryIo::new();
    let device = device_on(&io, 20);
    let pool = pool_of(8);
    let id = pool.add_device(Arc::clone(&device)).expect("the same page size");
    assert_eq!(pin(&pool, id, 5, 1).expect("whole"), 5);
    write_page(&device, 5, 2, 55);
    let old = pool.try_pin(PageId::new(id, 5)).expect("in memory");
    assert_eq!(pin(&pool, id, 5, 2).expect("read anew"), 55);
    assert_eq!(value_of(old.payload()), 5, "a guard shows what it showed");
    drop(old);
    assert_eq!(pool.stats().used_bytes, 4096);
}

#[test]
fn a_failed_write_is_reported_and_repeated() {
    let (io, pool, id) = setup(10, 2);
    let change = |number: u64| -> Result<(), PoolError> {
        let mut guard = block_on(pool.pin_mut(PageId::new(id, number), Some(1)))?;
        fill(guard.payload_mut(), 70 + number);
        guard.publish(2, KIND);
        Ok(())
    };
    change(1).expect("a frame");
    change(2).expect("a frame");
    io.inject(Fault { on: Action::Write, skip: 0, times: u64::MAX, kind: FaultKind::Full });
    assert!(matches!(block_on(pool.flush(id)), Err(PoolError::Io(error)) if error.is_full()));
    assert!(matches!(change(3), Err(PoolError::WriteBack(error)) if error.is_full()));
    assert_eq!(pin(&pool, id, 1, 2).expect("still in memory"), 71);
    assert_eq!(pool.stats().dirty_bytes, 2 * 4096);
    io.heal();
    change(3).expect("a frame, after a write");
    block_on(pool.flush(id)).expect("whole again");
    assert_eq!(pool.stats().dirty_bytes, 0);
    for number in 1..4 {
        assert_eq!(pin(&pool, id, number, 2).expect("written"), 70 + number);
    }
}

#[test]
fn a_failed_sync_is_final() {
    let (io, pool, id) = setup(10, 2);
    io.inject(Fault { on: Action::Sync, skip: 0, times: 1, kind: FaultKind::Broken });
    assert!(block_on(pool.flush(id)).is_err());
    assert!(block_on(pool.flush(id)).is_err());
    assert_eq!(pin(&pool, id, 1, 1).expect("reads go on"), 1);
}

#[test]
fn what_cannot_be_is_refused() {
    let (_, pool, id) = setup(10, 2);
    pool.set_budget(4095);
    assert!(matches!(
        pin(&pool, id, 1, 1),
        Err(PoolError::NoFrames { budget_bytes: 4095, page_bytes: 4096 })
    ));
    assert!(matches!(pool.read_ahead(id, 1..3, None), Err(PoolError::NoFrames { .. })));
    pool.set_budget(4096);
    assert_eq!(pin(&pool, id, 1, 1).expect("one frame"), 1);
    let unknown = PageId::new(DeviceId(7), 1);
    assert!(matches!(block_on(pool.pin(unknown, None)), Err(PoolError::UnknownDevice(7))));
    let size = PageSize::new(8192).expect("a page size");
    let large = PageDevice::create(&MemoryIo::new(), path(), size, DATABASE).expect("a fresh file");
    assert!(matches!(pool.add_device(Arc::new(large)), Err(PoolError::OtherPageSize { .. })));
}

#[test]
fn a_removed_device_leaves_nothing() {
    let (_, pool, id) = setup(10, 8);
    for number in 1..5 {
        pin(&pool, id, number, 1).expect("whole");
    }
    block_on(assert_send(pool.remove_device(id)));
    assert_eq!(pool.stats().used_bytes, 0);
    assert!(matches!(pin(&pool, id, 1, 1), Err(PoolError::UnknownDevice(_))));
    let again = pool.add_device(device_on(&MemoryIo::new(), 3)).expect("the same page size");
    assert_eq!((again, pin(&pool, again, 2, 1).expect("whole")), (id, 2));
}
