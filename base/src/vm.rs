//! Virtual memory: long contiguous ranges that cost nothing until they are touched, and can be emptied again.
//!
//! A [`Reservation`] is one range of addresses. All of it reads as zero; touching a page makes it resident, and
//! [`Reservation::decommit`] takes pages away again (they read as zero afterwards). Nothing else is needed to commit
//! memory, so the first touch is the cheapest one that the system offers: one page fault, no call.
//!
//! - On Linux the range is a private anonymous mapping without swap reservation. Huge pages are off for it, whatever
//!   the system's default, until [`Reservation::advise_huge`] asks for them: a huge page makes 2 MiB resident at once,
//!   and the daemon that builds them fills the holes of memory that was given back.
//! - Elsewhere, and with the feature `portable`, the range is one zeroed allocation of at most [`PORTABLE_MAX_BYTES`];
//!   decommitting overwrites it with zeroes, advice does nothing, and what the process occupies is not known.
//!
//! Limits: with `vm.overcommit_memory = 2`, or under an address-space limit, long reservations are refused.
//! Decommitting a part of a huge page takes it out of the resident set at once; the kernel frees the physical memory
//! when it splits the page, at the latest under memory pressure.

pub mod paging;

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Length of a huge page, and its alignment.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The longest range that the portable twin grants.
pub const PORTABLE_MAX_BYTES: usize = 256 << 20;

/// Addresses of a process's 128 TiB that [`Reservation::up_to`] shares out; the rest is for ranges of [`LEAST_BYTES`].
const SHARED_BYTES: u64 = 80 << 40;
/// A range gets at most one part in so many of what has not been shared out yet.
const PARTS: u64 = 512;
/// That much a range gets however many there are.
const LEAST_BYTES: u64 = 1 << 30;

/// Bytes of all reservations of the process.
static RESERVED: AtomicU64 = AtomicU64::new(0);

/// A contiguous range of addresses, aligned to [`HUGE_PAGE_BYTES`], given back when it is dropped.
///
/// It hands out the address and nothing more: the owners of its parts are the affair of its user.
#[derive(Debug)]
pub struct Reservation {
    base: NonNull<u8>,
    bytes: usize,
    range: system::Range,
}

// SAFETY: a reservation is a range of addresses without thread affinity; its methods are system calls on parts that
// the caller says it owns.
unsafe impl Send for Reservation {}
// SAFETY: as above.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves `bytes` (rounded up to whole huge pages) of address space. The portable twin may grant fewer: ask
    /// [`bytes`](Self::bytes).
    ///
    /// # Errors
    /// When the system refuses: the process has a limit on address space, or memory may not be overcommitted.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let bytes = bytes
            .max(1)
            .checked_next_multiple_of(HUGE_PAGE_BYTES)
            .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let (range, base, bytes) = system::Range::new(bytes)?;
        RESERVED.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(Self { base, bytes, range })
    }

    /// Reserves at most `bytes`: fewer the more the process has reserved already, so that thousands of ranges find room
    /// beside each other, whichever will grow. Ask [`bytes`](Self::bytes).
    ///
    /// # Errors
    /// As [`Reservation::new`].
    pub fn up_to(bytes: usize) -> io::Result<Self> {
        let left = SHARED_BYTES.saturating_sub(RESERVED.load(Ordering::Relaxed));
        let most = (left / PARTS).max(LEAST_BYTES);
        Self::new(bytes.min(usize::try_from(most).unwrap_or(usize::MAX)))
    }

    /// Its first byte.
    #[inline]
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Its length.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives the memory of a part back to the system. It reads as zero from now on and may be touched again.
    ///
    /// # Safety
    /// No thread uses the part's contents any more, and no thread touches it during the call. `offset` and `bytes`
    /// are multiples of the page size.
    pub unsafe fn decommit(&self, offset: usize, bytes: usize) {
        self.check(offset, bytes);
        // SAFETY: inside the range (checked); the rest is the caller's promise.
        unsafe { self.range.decommit(self.base.add(offset), bytes) }
    }

    /// Gives the memory of a part back to the system even where it is locked ([`paging::lock_on_fault`]). `false`: this kernel
    /// cannot (before 5.18), and nothing has changed.
    ///
    /// # Safety
    /// As [`Reservation::decommit`].
    pub unsafe fn decommit_locked(&self, offset: usize, bytes: usize) -> bool {
        self.check(offset, bytes);
        // SAFETY: inside the range (checked); the rest is the caller's promise.
        unsafe { self.range.decommit_locked(self.base.add(offset), bytes) }
    }

    /// Says whether a part, whole huge pages long, shall be made of huge pages. Advice: the system may not follow, and
    /// `false` says that it did not even take it.
    pub fn advise_huge(&self, offset: usize, bytes: usize, huge: bool) -> bool {
        self.check(offset, bytes);
        // SAFETY: inside the range (checked).
        self.range.advise_huge(unsafe { self.base.add(offset) }, bytes, huge)
    }

    /// Bytes of a part that are resident, if the system tells. Slow: for tests and for inspection.
    #[must_use]
    pub fn resident_bytes(&self, offset: usize, bytes: usize) -> Option<usize> {
        self.check(offset, bytes);
        // SAFETY: inside the range (checked).
        system::resident_bytes_of(unsafe { self.base.add(offset) }, bytes)
    }

    fn check(&self, offset: usize, bytes: usize) {
        assert!(
            offset.checked_add(bytes).is_some_and(|end| end <= self.bytes),
            "a part of a reservation lies inside of it"
        );
        debug_assert!(
            offset.is_multiple_of(page_size()) && bytes.is_multiple_of(page_size()),
            "a part of a reservation consists of whole pages"
        );
    }
}

/// Gives the whole pages that lie inside of this memory back to the system, wherever it came from. They read as zeros from
/// now on. A hint: the portable twin leaves everything as it is.
///
/// # Safety
/// The memory is zeros already, and all that use it do so by atomic operations.
pub unsafe fn discard_zeros<T>(memory: &[T]) {
    let (start, page) = (memory.as_ptr().addr(), page_size());
    let (first, end) = (start.next_multiple_of(page), (start + size_of_val(memory)) / page * page);
    if first < end {
        let at = memory.as_ptr().cast::<u8>().cast_mut().wrapping_add(first - start);
        let at = NonNull::new(at).expect("a part of what a reference points to");
        // SAFETY: whole pages of memory that a reference points to; they become zeros, which they are: the caller's promise.
        unsafe { system::discard(at, end - first) };
    }
}

/// Length of a page.
#[must_use]
pub fn page_size() -> usize {
    system::page_size()
}

/// Anonymous resident memory of the process, if the system tells. Linux sums its counters lazily: the answer may be
/// off by some 100 KiB for each processor.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    system::resident_bytes()
}

/// Memory that the process may ever have: the lowest limit of its control groups, or the machine's memory, if the
/// system tells.
#[must_use]
pub fn available_memory() -> Option<u64> {
    system::available_memory()
}

/// Does [`map_pages`] take memory from the system?
pub(crate) const MAPS_PAGES: bool = cfg!(all(target_os = "linux", not(feature = "portable")));

/// Takes memory of `bytes`, which is zero, from the system. Whole pages, resident at once: it is about to be used.
pub(crate) fn map_pages(bytes: usize) -> Option<NonNull<u8>> {
    system::map_pages(bytes)
}

/// Gives back what [`map_pages`] gave.
///
/// # Safety
/// It is all of it, and no thread uses it any more.
pub(crate) unsafe fn unmap_pages(start: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { system::unmap_pages(start, bytes) }
}

/// Has the allocator take what is longer than 128 KiB from the system, and give it back when it is free, for good. The GNU
/// C library's does so at first, but with every such piece that becomes free it raises the bound, up to 32 MiB, and keeps
/// twice the bound for the next one, for each of its arenas. Without effect elsewhere, and on other allocators.
pub fn bound_heap() {
    system::bound_heap();
}

/// Has the allocator give the free memory that it keeps back to the system. What it keeps may be more than what is in
/// use after work that took and gave back much, in many sizes. Slow (up to milliseconds); without effect where the
/// allocator is not the system's, or the system is none with the GNU C library.
pub fn trim_heap() {
    system::trim_heap();
}

#[cfg(all(target_os = "linux", not(feature = "portable")))]
mod system {
    use std::fs;
    use std::io;
    use std::os::unix::fs::FileExt;
    use std::path::{Path, PathBuf};
    use std::ptr::NonNull;

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::HUGE_PAGE_BYTES;

    /// The mapping: one huge page longer than the reservation, so that an aligned one fits into it.
    #[derive(Debug)]
    pub(super) struct Range {
        mapping: NonNull<u8>,
        bytes: usize,
    }

    impl Range {
        pub(super) fn new(bytes: usize) -> io::Result<(Self, NonNull<u8>, usize)> {
            let with_slack = bytes
                .checked_add(HUGE_PAGE_BYTES)
                .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
            // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
            let mapping = unsafe {
                mmap_anonymous(
                    std::ptr::null_mut(),
                    with_slack,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::PRIVATE | MapFlags::NORESERVE,
                )?
            };
            let mapping =
                NonNull::new(mapping.cast::<u8>()).expect("the kernel does not map the first page unasked");
            let range = Self { mapping, bytes: with_slack };
            range.advise_huge(mapping, with_slack, false);
            // SAFETY: at most one huge page further, and the mapping is that much longer than `bytes`.
            let base = unsafe { mapping.add(mapping.align_offset(HUGE_PAGE_BYTES)) };
            Ok((range, base, bytes))
        }

        /// # Safety
        /// As [`super::Reservation::decommit`].
        pub(super) unsafe fn decommit(&self, part: NonNull<u8>, bytes: usize) {
            // SAFETY: the part lies in our mapping; that no thread uses its contents is the caller's promise.
            unsafe { madvise(part.as_ptr().cast(), bytes, Advice::LinuxDontNeed) }
                .expect("pages of a private anonymous mapping can be dropped");
        }

        /// # Safety
        /// As [`super::Reservation::decommit_locked`].
        pub(super) unsafe fn decommit_locked(&self, part: NonNull<u8>, bytes: usize) -> bool {
            // SAFETY: the part lies in our mapping; that no thread uses its contents is the caller's promise.
            unsafe { madvise(part.as_ptr().cast(), bytes, Advice::LinuxDontneedLocked) }.is_ok()
        }

        pub(super) fn advise_huge(&self, part: NonNull<u8>, bytes: usize, huge: bool) -> bool {
            let advice = if huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
            // SAFETY: the part lies in our mapping; this advice does not change contents.
            unsafe { madvise(part.as_ptr().cast(), bytes, advice) }.is_ok()
        }
    }

    impl Drop for Range {
        fn drop(&mut self) {
            // SAFETY: the mapping is ours and goes with the reservation; no thread may use it afterwards.
            unsafe { munmap(self.mapping.as_ptr().cast(), self.bytes) }
                .expect("a mapping of our own can be unmapped");
        }
    }

    /// # Safety
    /// As [`super::discard_zeros`]; whole pages.
    pub(super) unsafe fn discard(part: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise. Pages that cannot be given back (locked ones) stay as they are.
        let _ = unsafe { madvise(part.as_ptr().cast(), bytes, Advice::LinuxDontNeed) };
    }

    pub(super) fn map_pages(bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let mapping = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::POPULATE,
            )
        };
        NonNull::new(mapping.ok()?.cast::<u8>())
    }

    /// # Safety
    /// As [`super::unmap_pages`].
    pub(super) unsafe fn unmap_pages(start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { munmap(start.as_ptr().cast(), bytes) }.expect("a mapping of our own can be unmapped");
    }

    /// Holds whoever adjusts the C library's allocator. Where another one is in use (a program's own choice, or the
    /// address sanitizer's), the first such call sets the C library's up, and it does not expect a second one meanwhile:
    /// that one walks lists that are not there yet.
    #[cfg(target_env = "gnu")]
    fn one_at_a_time() -> std::sync::MutexGuard<'static, ()> {
        static LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());
        LOCK.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(super) fn bound_heap() {
        #[cfg(target_env = "gnu")]
        {
            use std::ffi::c_int;
            const TRIM_THRESHOLD: c_int = -1;
            const MMAP_THRESHOLD: c_int = -3;
            const BYTES: c_int = 128 << 10;
            unsafe extern "C" {
                fn mallopt(which: c_int, value: c_int) -> c_int;
            }
            let _one = one_at_a_time();
            for which in [MMAP_THRESHOLD, TRIM_THRESHOLD] {
                // SAFETY: it may be called at any time, by any thread, with these names.
                unsafe { mallopt(which, BYTES) };
            }
        }
    }

    pub(super) fn trim_heap() {
        #[cfg(target_env = "gnu")]
        {
            unsafe extern "C" {
                fn malloc_trim(pad: usize) -> std::ffi::c_int;
            }
            let _one = one_at_a_time();
            // SAFETY: it may be called at any time, by any thread; memory in use stays as it is.
            unsafe { malloc_trim(0) };
        }
    }

    pub(super) fn page_size() -> usize {
        rustix::param::page_size()
    }

    pub(super) fn resident_bytes_of(part: NonNull<u8>, bytes: usize) -> Option<usize> {
        const PRESENT: u64 = 1 << 63;
        let pagemap = fs::File::open("/proc/self/pagemap").ok()?;
        let first = part.as_ptr().addr() / page_size();
        let mut entries = vec![0; bytes / page_size() * 8];
        pagemap.read_exact_at(&mut entries, first as u64 * 8).ok()?;
        let (entries, _) = entries.as_chunks::<8>();
        Some(entries.iter().filter(|entry| u64::from_ne_bytes(**entry) & PRESENT != 0).count() * page_size())
    }

    pub(super) fn resident_bytes() -> Option<u64> {
        let statm = fs::read_to_string("/proc/self/statm").ok()?;
        let mut pages = statm.split(' ').skip(1).map(str::parse::<u64>);
        let (resident, file_backed) = (pages.next()?.ok()?, pages.next()?.ok()?);
        Some(resident.saturating_sub(file_backed) * page_size() as u64)
    }

    pub(super) fn available_memory() -> Option<u64> {
        let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_of_meminfo(&text));
        let groups = fs::read_to_string("/proc/self/cgroup").ok();
        let limits = groups.iter().flat_map(|text| limit_files(text)).filter_map(|file| limit_in(&file));
        machine.into_iter().chain(limits).min()
    }

    pub(super) fn total_of_meminfo(text: &str) -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
    }

    /// The files that may hold a limit, for the process's groups and all above them. Inside a container the group may
    /// carry a path of the host that is not mounted; then only the mounted root counts.
    pub(super) fn limit_files(groups: &str) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for line in groups.lines() {
            let mut fields = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let (root, name) = if controllers.is_empty() {
                ("/sys/fs/cgroup", "memory.max")
            } else if controllers.split(',').any(|controller| controller == "memory") {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            } else {
                continue;
            };
            let path = Path::new(path.trim_start_matches('/'));
            files.extend(path.ancestors().map(|group| Path::new(root).join(group).join(name)));
        }
        files
    }

    /// `max` of version 2 does not parse and so limits nothing; version 1 says "no limit" with a number that is larger
    /// than any machine's memory.
    fn limit_in(file: &Path) -> Option<u64> {
        fs::read_to_string(file).ok()?.trim().parse().ok()
    }
}

#[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
mod system {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::io;
    use std::ptr::NonNull;

    use super::{HUGE_PAGE_BYTES, PORTABLE_MAX_BYTES};

    #[derive(Debug)]
    pub(super) struct Range {
        base: NonNull<u8>,
        layout: Layout,
    }

    impl Range {
        pub(super) fn new(bytes: usize) -> io::Result<(Self, NonNull<u8>, usize)> {
            let bytes = bytes.min(PORTABLE_MAX_BYTES);
            // Asked for with a page's alignment and aligned by hand: an allocator that has to align further than a
            // page zeroes all of the memory itself instead of taking it untouched from the system.
            let layout = Layout::from_size_align(bytes + HUGE_PAGE_BYTES, 16)
                .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
            // SAFETY: the layout has a size above zero.
            let allocation = unsafe { alloc_zeroed(layout) };
            let allocation =
                NonNull::new(allocation).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
            // SAFETY: at most one huge page further, and the allocation is that much longer than `bytes`.
            let base = unsafe { allocation.add(allocation.align_offset(HUGE_PAGE_BYTES)) };
            Ok((Self { base: allocation, layout }, base, bytes))
        }

        /// # Safety
        /// As [`super::Reservation::decommit`].
        pub(super) unsafe fn decommit(&self, part: NonNull<u8>, bytes: usize) {
            // SAFETY: the part lies in our allocation; that no thread uses its contents is the caller's promise.
            unsafe { part.write_bytes(0, bytes) }
        }

        /// # Safety
        /// As [`super::Reservation::decommit_locked`].
        pub(super) unsafe fn decommit_locked(&self, part: NonNull<u8>, bytes: usize) -> bool {
            // SAFETY: the caller's promise.
            unsafe { self.decommit(part, bytes) };
            true
        }

        pub(super) fn advise_huge(&self, _part: NonNull<u8>, _bytes: usize, _huge: bool) -> bool {
            false
        }
    }

    impl Drop for Range {
        fn drop(&mut self) {
            // SAFETY: allocated with this layout in `new`; no thread may use it after the reservation.
            unsafe { dealloc(self.base.as_ptr(), self.layout) }
        }
    }

    pub(super) fn page_size() -> usize {
        4096
    }

    pub(super) unsafe fn discard(_part: NonNull<u8>, _bytes: usize) {}

    pub(super) fn map_pages(_bytes: usize) -> Option<NonNull<u8>> {
        None
    }

    pub(super) unsafe fn unmap_pages(_start: NonNull<u8>, _bytes: usize) {}

    pub(super) fn bound_heap() {}

    pub(super) fn trim_heap() {}

    pub(super) fn resident_bytes_of(_part: NonNull<u8>, _bytes: usize) -> Option<usize> {
        None
    }

    pub(super) fn resident_bytes() -> Option<u64> {
        None
    }

    pub(super) fn available_memory() -> Option<u64> {
        None
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        RESERVED.fetch_sub(self.bytes as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranges of a large database, for thousands of tables.
    #[test]
    #[cfg(all(target_os = "linux", not(feature = "portable")))]
    fn many_reservations_find_room_beside_each_other() {
        const ASKED: usize = 256 << 30;
        let all: Vec<_> = (0..9_000).map(|_| Reservation::up_to(ASKED).expect("address space")).collect();
        let bytes = |number: usize| all[number].bytes();
        assert!(bytes(0) >= 64 << 30, "the first got {} bytes", bytes(0));
        assert!(bytes(500) >= 16 << 30, "the 500th got {} bytes", bytes(500));
        assert!(all.iter().all(|range| range.bytes() >= 1 << 30), "one got next to nothing");
    }

    #[test]
    fn a_reservation_is_aligned_zero_and_writable() {
        let reservation = Reservation::new(10 << 20).expect("address space");
        assert_eq!(reservation.bytes(), 10 << 20);
        assert_eq!(reservation.base().addr().get() % HUGE_PAGE_BYTES, 0);
        for offset in [0, 4096, (10 << 20) - 1] {
            // SAFETY: inside the reservation, which this test alone uses.
            unsafe {
                let byte = reservation.base().add(offset);
                assert_eq!(byte.read(), 0);
                byte.write(7);
                assert_eq!(byte.read(), 7);
            }
        }
    }

    #[test]
    fn decommitted_memory_reads_as_zero_and_leaves() {
        let reservation = Reservation::new(4 << 20).expect("address space");
        // SAFETY: inside the reservation, which this test alone uses.
        unsafe { reservation.base().write_bytes(1, 1 << 20) };
        if let Some(resident) = reservation.resident_bytes(0, 4 << 20) {
            assert_eq!(resident, 1 << 20);
        }
        // SAFETY: as above.
        unsafe { reservation.decommit(1 << 16, 1 << 16) };
        if let Some(resident) = reservation.resident_bytes(0, 4 << 20) {
            assert_eq!(resident, (1 << 20) - (1 << 16));
        }
        for (offset, expected) in [((1 << 16) - 1, 1), (1 << 16, 0), ((2 << 16) - 1, 0), (2 << 16, 1)] {
            // SAFETY: as above.
            assert_eq!(unsafe { reservation.base().add(offset).read() }, expected);
        }
    }

    #[test]
    fn advice_leaves_contents_alone() {
        let reservation = Reservation::new(4 << 20).expect("address space");
        // SAFETY: inside the reservation, which this test alone uses.
        unsafe { reservation.base().write_bytes(9, 4 << 20) };
        reservation.advise_huge(0, HUGE_PAGE_BYTES, true);
        reservation.advise_huge(0, HUGE_PAGE_BYTES, false);
        // SAFETY: as above.
        let contents = unsafe { std::slice::from_raw_parts(reservation.base().as_ptr(), 4 << 20) };
        assert!(contents.iter().all(|byte| *byte == 9));
    }

    #[test]
    #[should_panic(expected = "a part of a reservation lies inside of it")]
    fn parts_beyond_the_end_are_refused() {
        let reservation = Reservation::new(2 << 20).expect("address space");
        reservation.advise_huge(2 << 20, HUGE_PAGE_BYTES, true);
    }

    #[test]
    fn absurd_lengths_are_an_error() {
        assert!(Reservation::new(usize::MAX).is_err());
    }

    /// Under the address sanitizer, or beside another global allocator, these are the first calls that the C library's
    /// allocator gets.
    #[test]
    fn many_threads_trim_the_heap_at_once() {
        let barrier = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    barrier.wait();
                    trim_heap();
                    bound_heap();
                });
            }
        });
    }

    /// The first and the last page may be shared with others, and stay.
    #[test]
    #[cfg(all(target_os = "linux", not(feature = "portable")))]
    fn zeros_go_back_to_the_system_and_stay_zeros() {
        use std::sync::atomic::{AtomicU64, Ordering};
        let memory: Box<[AtomicU64]> = (0..64 << 10).map(AtomicU64::new).collect();
        memory.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        let start = memory.as_ptr().addr().next_multiple_of(page_size()) - memory.as_ptr().addr();
        let inside =
            NonNull::new(memory.as_ptr().cast::<u8>().cast_mut().wrapping_add(start)).expect("memory");
        let resident = || system::resident_bytes_of(inside, size_of_val(&*memory) - 2 * page_size());
        let before = resident().expect("the system tells");
        assert!(before > size_of_val(&*memory) / 2, "{before}");
        // SAFETY: zeros, and atomics.
        unsafe { discard_zeros(&memory) };
        assert_eq!(resident(), Some(0));
        assert!(memory.iter().all(|word| word.load(Ordering::Relaxed) == 0));
    }

    #[cfg(all(target_os = "linux", not(feature = "portable")))]
    #[test]
    fn the_process_knows_its_size_and_its_limit() {
        let resident = resident_bytes().expect("Linux tells");
        let available = available_memory().expect("Linux tells");
        assert!(resident > 0 && resident < available, "{resident} of {available}");
    }

    #[cfg(all(target_os = "linux", not(feature = "portable")))]
    #[test]
    fn limits_are_looked_for_in_every_group_above() {
        let files = |groups| {
            let files = system::limit_files(groups).into_iter();
            files.map(|file| file.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(
            files("0::/a/b\n"),
            ["/sys/fs/cgroup/a/b/memory.max", "/sys/fs/cgroup/a/memory.max", "/sys/fs/cgroup/memory.max"]
        );
        assert_eq!(
            files("5:cpu,memory:/x\n4:pids:/y\n"),
            ["/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        );
        assert_eq!(system::total_of_meminfo("MemTotal:   2048 kB\nMemFree: 1 kB\n"), Some(2048 * 1024));
        assert_eq!(system::total_of_meminfo("MemFree: 1 kB\n"), None);
    }
}
