//! Memory that a cached page costs, counted at the allocator: the map, the policy and the tags of the SSD level.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;
use std::sync::{Arc, Mutex};

use thermocline_base::io::{
    AlignedBytes, Buffer, Completion, File, Io, LockGuard, MemoryIo, OpenMode, Operation, Result,
};
use thermocline_pool::cache::CacheKind;
use thermocline_pool::device::{PageDevice, ReadReason, Wanted};
use thermocline_pool::page::PageSize;
use thermocline_pool::ssd::{DEFAULT_POLICY, SsdFile, SsdOptions};

/// Counts the bytes that each thread has allocated: the harness allocates beside a test, when it likes.
struct Counting;

thread_local! {
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
}

fn count(change: impl FnOnce(u64) -> u64) {
    ALLOCATED.with(|allocated| allocated.set(change(allocated.get())));
}

// SAFETY: all calls go to the system's allocator as they are; counting changes nothing of them.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(|bytes| bytes.wrapping_add(layout.size() as u64));
        // SAFETY: the caller's promise is ours.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(|bytes| bytes.wrapping_sub(layout.size() as u64));
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const PAGE: usize = 4096;
const SLOTS: u64 = 1 << 15;

/// A file system whose files behind their first page are made up when they are read, and forget what is written.
#[derive(Debug)]
struct MadeUp(MemoryIo);

#[derive(Debug)]
struct MadeUpFile {
    inner: Arc<dyn File>,
    /// Of the page file: what its pages are sealed with.
    pages: Arc<std::sync::OnceLock<thermocline_pool::page::PageSeal>>,
    /// Of the SSD: the numbers of the pages that were written, by their place.
    written: Option<Mutex<Vec<u64>>>,
}

impl File for MadeUpFile {
    fn submit(&self, operation: Operation) -> Completion {
        match operation {
            Operation::Read { offset, buffer } if offset > 0 => {
                let mut bytes = buffer.into_aligned().expect("pages");
                let len = bytes.len();
                let seal = *self.pages.get().expect("a page file");
                for (at, page) in bytes.chunks_exact_mut(PAGE).enumerate() {
                    let place = offset / PAGE as u64 + at as u64;
                    let written = self.written.as_ref().map(|written| written.lock().expect("it is free"));
                    let number = written.map_or(place, |written| written[place as usize]);
                    thermocline_pool::page::seal(page, seal, number, 7, thermocline_pool::page::PageKind(3));
                }
                Completion::ready(Ok(len), Buffer::from(bytes))
            }
            Operation::Write { offset, buffer } if offset > 0 => {
                if let Some(written) = &self.written {
                    let number = u64::from_le_bytes(*buffer.as_slice()[8..].first_chunk().expect("a page"));
                    written.lock().expect("it is free")[(offset / PAGE as u64) as usize] = number;
                }
                Completion::ready(Ok(buffer.as_slice().len()), buffer)
            }
            operation => self.inner.submit(operation),
        }
    }

    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, _len: u64) -> Result<()> {
        Ok(())
    }

    fn allocate(&self, _len: u64) -> Result<()> {
        Ok(())
    }

    fn punch(&self, _offset: u64, _len: u64) -> Result<bool> {
        Ok(false)
    }

    fn reserve(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }
}

static SEAL: std::sync::OnceLock<Arc<std::sync::OnceLock<thermocline_pool::page::PageSeal>>> =
    std::sync::OnceLock::new();

impl Io for MadeUp {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        let pages = Arc::clone(SEAL.get_or_init(Arc::default));
        let is_ssd = path.starts_with("/ssd");
        let written = is_ssd.then(|| Mutex::new(vec![0; SLOTS as usize + 1]));
        Ok(Arc::new(MadeUpFile { inner: self.0.open(path, mode)?, pages, written }))
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.0.create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.0.list(dir)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.0.exists(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.0.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.0.sync_dir(dir)
    }

    fn lock_exclusive(&self, path: &Path) -> Result<LockGuard> {
        self.0.lock_exclusive(path)
    }

    fn lock_shared(&self, path: &Path) -> Result<Option<LockGuard>> {
        self.0.lock_shared(path)
    }
}

/// Bytes a cached page, of an SSD as large as a quarter of the page file, after four times as many reads as there are pages.
fn bytes_per_page(policy: CacheKind) -> f64 {
    let io = MadeUp(MemoryIo::new());
    let path = Path::new("/pages");
    let mut device = PageDevice::create(&io, path, PageSize::default(), [1; 16]).expect("memory");
    let options = SsdOptions {
        policy,
        thread: false,
        compares_devices: false,
        ..SsdOptions::new(Path::new("/ssd"), (SLOTS + 1) * PAGE as u64)
    };
    let shared: Arc<dyn Io> = Arc::new(MadeUp(io.0.clone()));
    let file = SsdFile::open(&shared, options, PageSize::default(), [1; 16]).expect("memory");
    let before = ALLOCATED.get();
    device.attach(file);
    // The seal of a file is drawn: all made-up pages are this file's.
    let _ = SEAL.get_or_init(Arc::default).set(device.seal());
    let level = Arc::clone(device.ssd().expect("it was attached"));
    let mut state = 1_u64;
    for _ in 0..4 * SLOTS {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let page = 1 + (state >> 33) % (4 * SLOTS);
        let read = device.read(page, AlignedBytes::zeroed(PAGE), Wanted::of(7, ReadReason::Point));
        read.wait().result.expect("made up");
        while level.step() {}
    }
    let stats = level.stats();
    let taken = ALLOCATED.get().wrapping_sub(before);
    assert!(stats.cached >= SLOTS, "{stats:?}");
    let (counted, told) =
        (taken as f64 / stats.cached as f64, stats.memory_bytes as f64 / stats.cached as f64);
    println!("{policy}: {counted:.1} bytes a page at the allocator, {told:.1} by its own account");
    assert!((counted - told).abs() < 1.5, "it counts what it takes: {counted} and {told}");
    counted
}

#[test]
fn a_cached_page_takes_at_most_24_bytes() {
    let bytes = bytes_per_page(DEFAULT_POLICY);
    assert!(bytes <= 24.0, "{bytes} bytes a page");
}
