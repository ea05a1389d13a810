//! Pages that a process brings in and takes away itself: faults that come to a thread of its own, pages put in place, pages
//! dropped many at a time, memory locked as it is touched.
//!
//! | call | on Linux | elsewhere, and with the feature `portable` |
//! |---|---|---|
//! | [`Faults::open`] | `userfaultfd` with `UFFD_USER_MODE_ONLY`, which needs no privilege | [`io::ErrorKind::Unsupported`] |
//! | [`Faults::put`] | `UFFDIO_COPY`: the page appears whole, and whoever waits for it goes on | – |
//! | [`drop_pages`] | `process_madvise` on the process itself, one flush for 64 pages; else `madvise` page by page | nothing: its caller poisons |
//! | [`map_file`], [`map_nothing`] | `mmap` over a part of a range | [`io::ErrorKind::Unsupported`] |
//! | [`page_out`] | `MADV_PAGEOUT` | [`io::ErrorKind::Unsupported`] |
//! | [`lock_on_fault`] | `mlock2` with `MLOCK_ONFAULT` | [`io::ErrorKind::Unsupported`] |
//!
//! System calls that get an address of a page that is not there fail with `EFAULT` and never come to the handler
//! (`UFFD_USER_MODE_ONLY`): buffers of reads and writes lie elsewhere.

use std::io;

pub use system::{
    Faults, drop_pages, is_in_memory, lock_on_fault, map_file, map_nothing, page_out, unlock, will_need,
};

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

/// The event that woke the thread which serves faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    /// A thread touched a page that is not there.
    Fault {
        /// The address, rounded down to its page.
        address: usize,
        /// The thread, as the system numbers it.
        thread: u32,
    },
    /// [`Faults::stop`] was called.
    Stopped,
}

/// The result of [`Faults::put`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Put {
    /// The page is in place.
    Done,
    /// There was a page already; it stays.
    WasThere,
}

/// The error of [`Faults::open`], with what to do about it.
fn refused(source: &io::Error) -> io::Error {
    io::Error::new(
        source.kind(),
        format!(
            "userfaultfd is refused ({source}): containers forbid it by their seccomp profile (allow the system call userfaultfd), \
             kernels before 5.11 by the setting vm.unprivileged_userfaultfd; the pager `os` works without"
        ),
    )
}

#[cfg(all(target_os = "linux", not(feature = "portable")))]
mod system {
    use std::ffi::{c_int, c_long, c_uint, c_ulong, c_void};
    use std::io;
    use std::os::fd::OwnedFd;
    use std::ptr::NonNull;

    use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
    use rustix::io::{Errno, read, write};
    use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
    use rustix::mm::{
        Advice, MapFlags, MlockFlags, ProtFlags, UserfaultfdFlags, madvise, mlock_with, mmap, mmap_anonymous,
        munlock, userfaultfd,
    };

    use super::{Put, Woken, refused};
    use crate::vm::page_size;

    #[repr(C)]
    struct Api {
        api: u64,
        features: u64,
        ioctls: u64,
    }

    #[repr(C)]
    struct Range {
        start: u64,
        len: u64,
    }

    #[repr(C)]
    struct Register {
        range: Range,
        mode: u64,
        ioctls: u64,
    }

    #[repr(C)]
    struct Copy {
        to: u64,
        from: u64,
        len: u64,
        mode: u64,
        copied: i64,
    }

    /// `struct uffd_msg` of a page fault.
    #[repr(C)]
    #[derive(Default)]
    struct Message {
        event: u8,
        reserved: [u8; 7],
        flags: u64,
        address: u64,
        thread: u32,
        padding: u32,
    }

    const GROUP: u8 = 0xAA;
    const API: Opcode = opcode::read_write::<Api>(GROUP, 0x3F);
    const REGISTER: Opcode = opcode::read_write::<Register>(GROUP, 0x00);
    const UNREGISTER: Opcode = opcode::read::<Range>(GROUP, 0x01);
    const WAKE: Opcode = opcode::read::<Range>(GROUP, 0x02);
    const COPY: Opcode = opcode::read_write::<Copy>(GROUP, 0x03);
    const API_VERSION: u64 = 0xAA;
    const USER_MODE_ONLY: u32 = 1;
    const FEATURE_THREAD_ID: u64 = 1 << 8;
    const MODE_MISSING: u64 = 1;
    const EVENT_PAGEFAULT: u8 = 0x12;

    /// A descriptor to which faults of registered ranges come.
    #[derive(Debug)]
    pub struct Faults {
        descriptor: OwnedFd,
        stop: OwnedFd,
    }

    impl Faults {
        /// Opens one.
        ///
        /// # Errors
        /// When the system has or allows no userfaultfd; the text names the setting.
        pub fn open() -> io::Result<Self> {
            let flags = UserfaultfdFlags::CLOEXEC
                | UserfaultfdFlags::NONBLOCK
                | UserfaultfdFlags::from_bits_retain(USER_MODE_ONLY);
            // SAFETY: a descriptor that has no range registered does nothing.
            let descriptor = unsafe { userfaultfd(flags) }.map_err(|error| refused(&error.into()))?;
            let faults = Self { descriptor, stop: eventfd(0, EventfdFlags::CLOEXEC)? };
            let mut api = Api { api: API_VERSION, features: FEATURE_THREAD_ID, ioctls: 0 };
            // SAFETY: the structure of this call, as `linux/userfaultfd.h` has it.
            unsafe { faults.call::<API, _>(&mut api) }.map_err(|error| refused(&error.into()))?;
            Ok(faults)
        }

        /// # Safety
        /// `T` is the structure of the call, and what it names may be changed as the call does.
        unsafe fn call<const CALL: Opcode, T>(&self, argument: &mut T) -> Result<(), Errno> {
            // SAFETY: the caller's promise.
            unsafe { ioctl(&self.descriptor, Updater::<CALL, T>::new(argument)) }
        }

        /// From now on, threads that touch pages of this range which are not there wait for [`Faults::put`].
        ///
        /// # Safety
        /// The range is the caller's, whole pages of anonymous memory, and a thread serves its faults.
        ///
        /// # Errors
        /// The system's.
        pub unsafe fn register(&self, at: NonNull<u8>, bytes: usize) -> io::Result<()> {
            let range = Range { start: at.addr().get() as u64, len: bytes as u64 };
            let mut register = Register { range, mode: MODE_MISSING, ioctls: 0 };
            // SAFETY: the structure of this call; the rest is the caller's promise.
            Ok(unsafe { self.call::<REGISTER, _>(&mut register) }?)
        }

        /// Ends that: pages that are not there read as zeros again, and threads that wait in there go on.
        ///
        /// # Safety
        /// The range is the caller's, and no thread takes its zeros for bytes of a page.
        ///
        /// # Errors
        /// The system's.
        pub unsafe fn unregister(&self, at: NonNull<u8>, bytes: usize) -> io::Result<()> {
            let mut range = Range { start: at.addr().get() as u64, len: bytes as u64 };
            // SAFETY: the structure of this call; the rest is the caller's promise.
            Ok(unsafe { self.call::<UNREGISTER, _>(&mut range) }?)
        }

        /// Waits for a fault or for [`Faults::stop`]. Allocates nothing.
        ///
        /// # Errors
        /// The system's.
        pub fn next(&self) -> io::Result<Woken> {
            loop {
                let mut ready =
                    [PollFd::new(&self.descriptor, PollFlags::IN), PollFd::new(&self.stop, PollFlags::IN)];
                match poll(&mut ready, None) {
                    Ok(_) => {}
                    Err(Errno::INTR) => continue,
                    Err(error) => return Err(error.into()),
                }
                if !ready[1].revents().is_empty() {
                    return Ok(Woken::Stopped);
                }
                let mut bytes = [0; size_of::<Message>()];
                match read(&self.descriptor, &mut bytes[..]) {
                    Ok(_) => {}
                    Err(Errno::AGAIN | Errno::INTR) => continue,
                    Err(error) => return Err(error.into()),
                }
                // SAFETY: any bytes are a message: it consists of integers.
                let message: Message = unsafe { std::mem::transmute(bytes) };
                if message.event == EVENT_PAGEFAULT {
                    let address = message.address as usize & !(page_size() - 1);
                    return Ok(Woken::Fault { address, thread: message.thread });
                }
            }
        }

        /// Ends the waits of [`Faults::next`], now and later.
        pub fn stop(&self) {
            let _ = write(&self.stop, &1_u64.to_ne_bytes());
        }

        /// Puts a page in place and wakes whoever waits for it.
        ///
        /// # Safety
        /// The page is in a registered range of the caller's, and these are the bytes that belong there.
        ///
        /// # Errors
        /// The system's, for instance when there is no memory.
        pub unsafe fn put(&self, at: NonNull<u8>, bytes: &[u8]) -> io::Result<Put> {
            assert_eq!(bytes.len(), page_size(), "a page has the length of pages");
            loop {
                let (to, from) = (at.addr().get() as u64, bytes.as_ptr().addr() as u64);
                let mut copy = Copy { to, from, len: bytes.len() as u64, mode: 0, copied: 0 };
                // SAFETY: the structure of this call; the source is a slice; the rest is the caller's promise.
                match unsafe { self.call::<COPY, _>(&mut copy) } {
                    Ok(()) => return Ok(Put::Done),
                    Err(Errno::EXIST) => return Ok(Put::WasThere),
                    // The address space is being changed by another thread.
                    Err(Errno::AGAIN) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }

        /// Has whoever waits for a page touch it again.
        ///
        /// # Errors
        /// The system's.
        pub fn wake(&self, at: NonNull<u8>) -> io::Result<()> {
            let mut range = Range { start: at.addr().get() as u64, len: page_size() as u64 };
            // SAFETY: the structure of this call, which changes no memory.
            Ok(unsafe { self.call::<WAKE, _>(&mut range) }?)
        }
    }

    /// `struct iovec`.
    #[repr(C)]
    struct Stretch {
        start: *mut c_void,
        len: usize,
    }

    unsafe extern "C" {
        fn syscall(number: c_long, ...) -> c_long;
    }

    /// The number of `process_madvise`, the same on every architecture that has it since 5.10.
    const PROCESS_MADVISE: c_long = 440;
    /// Names the calling process where a process descriptor is wanted (since 6.14).
    const PIDFD_SELF: c_int = -10_001;
    const AT_ONCE: usize = 64;

    /// Drops pages, wherever they lie: the next touch finds none.
    ///
    /// # Safety
    /// They are whole pages of private anonymous memory of the caller's, and no thread uses their contents any more.
    pub unsafe fn drop_pages(pages: &[NonNull<u8>]) {
        const DONTNEED: c_int = 4;
        for some in pages.chunks(AT_ONCE) {
            let stretches: [Stretch; AT_ONCE] = std::array::from_fn(|at| Stretch {
                start: some.get(at).map_or(std::ptr::null_mut(), |page| page.as_ptr().cast()),
                len: page_size(),
            });
            // SAFETY: as many stretches as it says, each a page that may be dropped.
            let bytes = unsafe {
                let (flags, count) = (0 as c_uint, some.len() as c_ulong);
                syscall(PROCESS_MADVISE, PIDFD_SELF, stretches.as_ptr(), count, DONTNEED, flags)
            };
            // It says how far it came; older kernels refuse.
            let done = usize::try_from(bytes).map_or(0, |bytes| bytes / page_size());
            for page in &some[done.min(some.len())..] {
                // SAFETY: the caller's promise.
                unsafe { madvise(page.as_ptr().cast(), page_size(), Advice::LinuxDontNeed) }
                    .expect("pages of a private anonymous mapping can be dropped");
            }
        }
    }

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

    use super::{Put, Woken, refused};

    /// The twin, of which there is none.
    #[derive(Debug)]
    pub enum Faults {}

    impl Faults {
        /// Refuses.
        ///
        /// # Errors
        /// Always.
        pub fn open() -> io::Result<Self> {
            Err(refused(&io::ErrorKind::Unsupported.into()))
        }

        /// # Safety
        /// None: there is no such value.
        ///
        /// # Errors
        /// None.
        pub unsafe fn register(&self, _at: NonNull<u8>, _bytes: usize) -> io::Result<()> {
            match *self {}
        }

        /// # Safety
        /// None: there is no such value.
        ///
        /// # Errors
        /// None.
        pub unsafe fn unregister(&self, _at: NonNull<u8>, _bytes: usize) -> io::Result<()> {
            match *self {}
        }

        /// # Errors
        /// None: there is no such value.
        pub fn next(&self) -> io::Result<Woken> {
            match *self {}
        }

        /// There is no such value.
        pub fn stop(&self) {
            match *self {}
        }

        /// # Safety
        /// None: there is no such value.
        ///
        /// # Errors
        /// None.
        pub unsafe fn put(&self, _at: NonNull<u8>, _bytes: &[u8]) -> io::Result<Put> {
            match *self {}
        }

        /// # Errors
        /// None: there is no such value.
        pub fn wake(&self, _at: NonNull<u8>) -> io::Result<()> {
            match *self {}
        }
    }

    /// Does nothing: whoever has taken pages away poisons them.
    ///
    /// # Safety
    /// None is needed.
    pub unsafe fn drop_pages(_pages: &[NonNull<u8>]) {}

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

#[cfg(all(test, target_os = "linux", not(feature = "portable")))]
mod tests {
    use std::ptr::NonNull;

    use super::*;
    use crate::vm::{Reservation, page_size};

    /// A thread that touches a page without asking gets the bytes that another one puts there.
    #[test]
    fn a_touch_waits_for_its_page() {
        let (reservation, faults) =
            (Reservation::new(2 << 20).expect("memory"), Faults::open().expect("allowed"));
        let page = vec![7; page_size()];
        // SAFETY: the test's own range; the thread below serves it.
        unsafe { faults.register(reservation.base(), 2 << 20) }.expect("registered");
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                // SAFETY: inside of the reservation.
                unsafe { reservation.base().add(5 * page_size() + 3).read_volatile() }
            });
            let Woken::Fault { address, thread } = faults.next().expect("a fault") else { panic!("stopped") };
            assert_eq!(address, reservation.base().addr().get() + 5 * page_size());
            assert_ne!(thread, 0);
            let at = NonNull::new(address as *mut u8).expect("an address of ours");
            // SAFETY: as above.
            assert_eq!(unsafe { faults.put(at, &page) }.expect("put"), Put::Done);
            assert_eq!(reader.join().expect("no panic"), 7);
            // SAFETY: as above.
            assert_eq!(unsafe { faults.put(at, &page) }.expect("put"), Put::WasThere);
            // SAFETY: no thread uses the page.
            unsafe { drop_pages(&[at]) };
            assert_eq!(reservation.resident_bytes(0, 2 << 20), Some(0));
        });
        faults.stop();
        assert_eq!(faults.next().expect("told"), Woken::Stopped);
        // SAFETY: no thread uses the range any more.
        unsafe { faults.unregister(reservation.base(), 2 << 20) }.expect("unregistered");
        // SAFETY: inside of the reservation.
        assert_eq!(unsafe { reservation.base().read_volatile() }, 0);
    }

    #[test]
    fn scattered_pages_leave_together() {
        let reservation = Reservation::new(2 << 20).expect("memory");
        // SAFETY: the test's own.
        unsafe { reservation.base().write_bytes(1, 2 << 20) };
        let pages: Vec<_> = (0..200)
            // SAFETY: inside of the reservation.
            .map(|at| unsafe { reservation.base().add(2 * at * page_size()) })
            .collect();
        // SAFETY: the test's own.
        unsafe { drop_pages(&pages) };
        assert_eq!(reservation.resident_bytes(0, 2 << 20), Some((512 - 200) * page_size()));
    }
}
