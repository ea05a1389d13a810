//! Memory with a descriptor: a range of zeros that is read and written by position, that can be locked, and that another
//! process may be given.
//!
//! It has no addresses for its user, so nothing that another process does to it can end this one (a mapping of a file that
//! is cut kills by SIGBUS). On Linux it is a `memfd`, mapped only to lock it and to have all of it made at once;
//! elsewhere, and with the feature `portable`, an allocation, which cannot be locked.

use std::io;

/// Options of the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryFileOptions {
    /// It is never paged out.
    pub locked: bool,
    /// Of huge pages, as far as the system has some.
    pub huge: bool,
}

/// See the module.
#[derive(Debug)]
pub struct MemoryFile {
    inner: system::Memory,
    bytes: u64,
}

impl MemoryFile {
    /// Makes `bytes` of zeros, all of it resident.
    ///
    /// # Errors
    /// When there is not so much memory, or it cannot be locked ([`io::ErrorKind::PermissionDenied`]), or huge pages are wanted
    /// and switched off for such memory ([`io::ErrorKind::Unsupported`]).
    pub fn new(bytes: usize, options: MemoryFileOptions) -> io::Result<Self> {
        Ok(Self { inner: system::Memory::new(bytes, options)?, bytes: bytes as u64 })
    }

    /// Its length.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Is it of no length?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Reads all of `into` at `offset`.
    ///
    /// # Errors
    /// When that is beyond its end.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, into)
    }

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// When that is beyond its end.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > self.bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.inner.write_at(offset, bytes)
    }

    /// Makes a stretch zeros; it stays resident.
    ///
    /// # Errors
    /// When that is beyond its end.
    pub fn zero(&self, offset: u64, bytes: u64) -> io::Result<()> {
        const ZEROS: &[u8] = &[0; 256 << 10];
        let end = offset + bytes;
        let mut at = offset;
        while at < end {
            let len = (end - at).min(ZEROS.len() as u64);
            self.write_at(at, &ZEROS[..len as usize])?;
            at += len;
        }
        Ok(())
    }
}

#[cfg(all(target_os = "linux", not(miri), not(feature = "portable")))]
mod system {
    use std::fs::File;
    use std::io;
    use std::os::unix::fs::FileExt;
    use std::ptr::NonNull;

    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap, munmap};

    use super::MemoryFileOptions;

    #[derive(Debug)]
    pub(super) struct Memory {
        file: File,
        map: NonNull<std::ffi::c_void>,
        bytes: usize,
    }

    // SAFETY: the mapping is never read or written through its address; it is only unmapped, once, when this is dropped.
    unsafe impl Send for Memory {}
    // SAFETY: as above.
    unsafe impl Sync for Memory {}

    impl Memory {
        pub(super) fn new(bytes: usize, options: MemoryFileOptions) -> io::Result<Self> {
            let file = memfd_create("thermocline", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
            ftruncate(&file, bytes as u64)?;
            // A process that is given the descriptor cannot lengthen it, and so hold more memory than was granted.
            fcntl_add_seals(&file, SealFlags::GROW)?;
            // SAFETY: a new mapping at an address that the system chooses overlaps nothing.
            let map = unsafe {
                mmap(
                    std::ptr::null_mut(),
                    bytes,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::SHARED,
                    &file,
                    0,
                )?
            };
            let map = NonNull::new(map).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
            let memory = Self { file: file.into(), map, bytes };
            if options.huge {
                huge_is_on()?;
                // SAFETY: advice about the mapping that was just made.
                unsafe { madvise(map.as_ptr(), bytes, Advice::LinuxHugepage)? };
            }
            if options.locked {
                // SAFETY: the range of the mapping that was just made; locking makes its pages resident.
                unsafe { mlock(map.as_ptr(), bytes) }.map_err(|error| match error {
                    rustix::io::Errno::PERM | rustix::io::Errno::NOMEM | rustix::io::Errno::AGAIN => {
                        io::ErrorKind::PermissionDenied.into()
                    }
                    other => io::Error::from(other),
                })?;
            } else {
                // SAFETY: as above; the pages are made, and stay zeros.
                unsafe { madvise(map.as_ptr(), bytes, Advice::LinuxPopulateWrite)? };
            }
            Ok(memory)
        }

        pub(super) fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
            self.file.read_exact_at(into, offset)
        }

        pub(super) fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
            self.file.write_all_at(bytes, offset)
        }
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            // SAFETY: the mapping that `new` made, whose address only this value has.
            let unmapped = unsafe { munmap(self.map.as_ptr(), self.bytes) };
            debug_assert!(unmapped.is_ok(), "a mapping of ours is unmapped");
        }
    }

    /// Huge pages of shared memory are off by default; advice is then taken and does nothing.
    fn huge_is_on() -> io::Result<()> {
        let said =
            std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled").unwrap_or_default();
        if ["[always]", "[within_size]", "[advise]", "[force]"].iter().any(|on| said.contains(on)) {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "huge pages of shared memory are switched off; write advise to /sys/kernel/mm/transparent_hugepage/shmem_enabled",
        ))
    }
}

#[cfg(not(all(target_os = "linux", not(miri), not(feature = "portable"))))]
mod system {
    use std::io;
    use std::sync::{PoisonError, RwLock};

    use super::MemoryFileOptions;

    #[derive(Debug)]
    pub(super) struct Memory(RwLock<Vec<u8>>);

    impl Memory {
        pub(super) fn new(bytes: usize, options: MemoryFileOptions) -> io::Result<Self> {
            match options {
                MemoryFileOptions { locked: true, .. } => Err(io::ErrorKind::PermissionDenied.into()),
                MemoryFileOptions { huge: true, .. } => Err(io::ErrorKind::Unsupported.into()),
                _ => Ok(Self(RwLock::new(vec![0; bytes]))),
            }
        }

        pub(super) fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
            let bytes = self.0.read().unwrap_or_else(PoisonError::into_inner);
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            let end = start.saturating_add(into.len());
            into.copy_from_slice(bytes.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        }

        pub(super) fn write_at(&self, offset: u64, from: &[u8]) -> io::Result<()> {
            let mut bytes = self.0.write().unwrap_or_else(PoisonError::into_inner);
            let start = offset as usize;
            bytes[start..start + from.len()].copy_from_slice(from);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_zeroed() {
        let memory = MemoryFile::new(1 << 20, MemoryFileOptions::default()).expect("a MiB");
        let mut page = [7; 4096];
        memory.read_at(8192, &mut page).expect("inside");
        assert_eq!(page, [0; 4096]);
        memory.write_at(8192, &[3; 4096]).expect("inside");
        memory.read_at(8192, &mut page).expect("inside");
        assert_eq!(page, [3; 4096]);
        memory.zero(0, 1 << 20).expect("inside");
        memory.read_at(8192, &mut page).expect("inside");
        assert_eq!(page, [0; 4096]);
        assert!(memory.read_at((1 << 20) - 1, &mut page).is_err());
        assert!(memory.write_at((1 << 20) - 1, &page).is_err());
    }
}
