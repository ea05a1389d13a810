//! Calls by which a process has the system page its memory: files laid over a range, pages taken away, memory locked as it is
//! touched.
//!
//! | call | on Linux | elsewhere, and with the feature `portable` |
//! |---|---|---|
//! | [`map_file`], [`map_nothing`] | `mmap` over a part of a range | [`std::io::ErrorKind::Unsupported`] |
//! | [`page_out`] | `MADV_PAGEOUT` | [`std::io::ErrorKind::Unsupported`] |
//! | [`lock_on_fault`] | `mlock2` with `MLOCK_ONFAULT` | [`std::io::ErrorKind::Unsupported`] |

pub use system::{is_in_memory, lock_on_fault, map_file, map_nothing, page_out, unlock, will_need};

/// Can files be mapped over a range here?
pub const MAPS_FILES: bool = cfg!(all(target_os = "linux", not(feature = "portable")));

/// Bytes of mapped files and of shared memory that are resident in the process, if the system tells.
#[must_use]
pub fn resident_file_bytes() -> Option<u64> {
    let pages: u64 =
        std::fs::read_to_string("/proc/self/statm").ok()?.split_whitespace().nth(2)?.parse().ok()?;
    Some(pages * super::page_size() as u64)
}

/// Faults of the process for which the system had to read, if it tells.
#[must_use]
pub fn major_faults() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // Behind the name, which may hold anything: state is the third field, major faults are the twelfth.
    text[text.rfind(')')? + 1..].split_whitespace().nth(9)?.parse().ok()
}

#[cfg(all(target_os = "linux", not(feature = "portable")))]
mod system {
    use std::io;
    use std::ptr::NonNull;

    use rustix::mm::{
        Advice, MapFlags, MlockFlags, ProtFlags, madvise, mlock_with, mmap, mmap_anonymous, munlock,
    };

    /// Locks what is touched of a range from now on, and what is there already.
    ///
    /// # Safety
    /// The range is the caller's, whole pages.
    ///
    /// # Errors
    /// When the process may not lock so much (`RLIMIT_MEMLOCK`), or has too many mappings.
    pub unsafe fn lock_on_fault(at: NonNull<u8>, bytes: usize) -> io::Result<()> {
        // SAFETY: the caller's promise; locking changes no contents.
        Ok(unsafe { mlock_with(at.as_ptr().cast(), bytes, MlockFlags::ONFAULT) }?)
    }

    /// Is the file one of a file system that keeps its files in memory (tmpfs)? Taking its pages away frees nothing.
    #[must_use]
    pub fn is_in_memory(file: &std::fs::File) -> bool {
        const TMPFS: i128 = 0x0102_1994;
        rustix::fs::fstatfs(file).is_ok_and(|about| i128::from(about.f_type) == TMPFS)
    }

    /// Lays a stretch of a file over a range, to be read, without reading around what is touched.
    ///
    /// # Safety
    /// The range is the caller's, whole pages, and no thread has a way to what was there; the file is at least as
    /// long when it is touched.
    ///
    /// # Errors
    /// The system's: too many mappings, for one.
    pub unsafe fn map_file(
        at: NonNull<u8>,
        bytes: usize,
        file: &std::fs::File,
        offset: u64,
    ) -> io::Result<()> {
        let place = at.as_ptr().cast();
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the caller's promise.
        unsafe {
            mmap(place, bytes, ProtFlags::READ, flags, file, offset)?;
            Ok(madvise(place, bytes, Advice::Random)?)
        }
    }

    /// Lays fresh anonymous memory over a range.
    ///
    /// # Safety
    /// The range is the caller's, whole pages, and no thread has a way to what was there.
    ///
    /// # Errors
    /// The system's.
    pub unsafe fn map_nothing(at: NonNull<u8>, bytes: usize) -> io::Result<()> {
        let place = at.as_ptr().cast();
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the caller's promise.
        unsafe {
            mmap_anonymous(place, bytes, ProtFlags::READ | ProtFlags::WRITE, flags)?;
            Ok(madvise(place, bytes, Advice::LinuxNoHugepage)?)
        }
    }

    /// Has the system take the pages of a range away, keeping their contents where they come from.
    ///
    /// # Safety
    /// The range is the caller's, whole pages that are mapped.
    ///
    /// # Errors
    /// The system's: it may have no such call (before 5.4).
    pub unsafe fn page_out(at: NonNull<u8>, bytes: usize) -> io::Result<()> {
        // SAFETY: the caller's promise; contents do not change.
        Ok(unsafe { madvise(at.as_ptr().cast(), bytes, Advice::LinuxPageOut) }?)
    }

    /// Has the system read the pages of a range that is a file's, without waiting. A hint.
    pub fn will_need(at: NonNull<u8>, bytes: usize) {
        // SAFETY: this advice changes no contents, whatever the address.
        let _ = unsafe { madvise(at.as_ptr().cast(), bytes, Advice::WillNeed) };
    }

    /// Ends [`lock_on_fault`].
    ///
    /// # Safety
    /// The range is the caller's, whole pages.
    ///
    /// # Errors
    /// The system's.
    pub unsafe fn unlock(at: NonNull<u8>, bytes: usize) -> io::Result<()> {
        // SAFETY: the caller's promise; it changes no contents.
        Ok(unsafe { munlock(at.as_ptr().cast(), bytes) }?)
    }
}

#[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
mod system {
    use std::io;
    use std::ptr::NonNull;

    /// Not that it were known.
    #[must_use]
    pub fn is_in_memory(_file: &std::fs::File) -> bool {
        false
    }

    /// Refuses.
    ///
    /// # Safety
    /// None is needed.
    ///
    /// # Errors
    /// Always.
    pub unsafe fn map_file(
        _at: NonNull<u8>,
        _bytes: usize,
        _file: &std::fs::File,
        _offset: u64,
    ) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Refuses.
    ///
    /// # Safety
    /// None is needed.
    ///
    /// # Errors
    /// Always.
    pub unsafe fn map_nothing(_at: NonNull<u8>, _bytes: usize) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Refuses.
    ///
    /// # Safety
    /// None is needed.
    ///
    /// # Errors
    /// Always.
    pub unsafe fn page_out(_at: NonNull<u8>, _bytes: usize) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Does nothing.
    pub fn will_need(_at: NonNull<u8>, _bytes: usize) {}

    /// Refuses.
    ///
    /// # Safety
    /// None is needed.
    ///
    /// # Errors
    /// Always.
    pub unsafe fn lock_on_fault(_at: NonNull<u8>, _bytes: usize) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Does nothing.
    ///
    /// # Safety
    /// None is needed.
    ///
    /// # Errors
    /// None.
    pub unsafe fn unlock(_at: NonNull<u8>, _bytes: usize) -> io::Result<()> {
        Ok(())
    }
}
