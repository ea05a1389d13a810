//! The operating system's files. Every operation happens inside `submit`, on the calling thread, so only threads that
//! may block use it: the log's flusher and the checkpointer. [`super::SystemIo`] is the one for everybody else.
//!
//! Elsewhere than on Unix (and with the feature `portable`) positioned reads and writes go through seek under a lock,
//! space is reserved by writing zeros, and directories are not synced, because those systems cannot.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{
    Action, Buffer, Completion, DIRECT_ALIGNMENT, File, Io, IoError, LockGuard, OpenMode, Operation, Result,
};
use crate::sync::Mutex;

/// The file system of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct StdIo;

impl StdIo {
    pub(super) fn open_file(path: &Path, mode: OpenMode) -> Result<StdFile> {
        let file = options(mode).open(path).map_err(|error| IoError::new(Action::Open, path, None, error))?;
        Ok(StdFile { file: positioned::Handle::new(file), path: path.to_path_buf(), direct: false })
    }

    #[cfg(any(not(target_os = "linux"), feature = "portable"))]
    pub(super) fn open_file_direct(path: &Path, mode: OpenMode) -> Result<StdFile> {
        Self::open_file(path, mode)
    }

    #[cfg(all(target_os = "linux", not(feature = "portable")))]
    pub(super) fn open_file_direct(path: &Path, mode: OpenMode) -> Result<StdFile> {
        use std::os::unix::fs::OpenOptionsExt;
        let flag = rustix::fs::OFlags::DIRECT.bits().cast_signed();
        match options(mode).custom_flags(flag).open(path) {
            Ok(file) => {
                Ok(StdFile { file: positioned::Handle::new(file), path: path.to_path_buf(), direct: true })
            }
            // A file system without: tmpfs, for one. What was created stays, so a second try must find it.
            Err(error) if error.kind() == ErrorKind::InvalidInput && mode == OpenMode::CreateNew => {
                match fs::remove_file(path) {
                    Err(error) if error.kind() != ErrorKind::NotFound => {
                        Err(IoError::new(Action::Open, path, None, error))
                    }
                    _ => Self::open_file(path, mode),
                }
            }
            Err(error) if error.kind() == ErrorKind::InvalidInput => Self::open_file(path, mode),
            Err(error) => Err(IoError::new(Action::Open, path, None, error)),
        }
    }
}

impl Io for StdIo {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        Ok(Arc::new(Self::open_file(path, mode)?))
    }

    fn open_direct(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        Ok(Arc::new(Self::open_file_direct(path, mode)?))
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        fs::create_dir_all(path).map_err(|error| IoError::new(Action::CreateDir, path, None, error))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let failed = |error| IoError::new(Action::List, dir, None, error);
        let mut names = Vec::new();
        for entry in fs::read_dir(dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_type().map_err(failed)?.is_file()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        path.try_exists().map_err(|error| IoError::new(Action::Open, path, None, error))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).map_err(|error| IoError::new(Action::Rename, from, None, error))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).map_err(|error| IoError::new(Action::Remove, path, None, error))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        positioned::sync_dir(dir).map_err(|error| IoError::new(Action::SyncDir, dir, None, error))
    }

    fn lock_exclusive(&self, path: &Path) -> Result<LockGuard> {
        let failed = |error| IoError::new(Action::Lock, path, None, error);
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(HeldFile::guard(file, path)),
            Err(fs::TryLockError::WouldBlock) => Err(IoError::locked(path, is_held_here(path))),
            Err(fs::TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    fn lock_shared(&self, path: &Path) -> Result<Option<LockGuard>> {
        let Ok(file) = fs::File::open(path) else { return Ok(None) };
        match file.try_lock_shared() {
            Ok(()) => Ok(Some(HeldFile::guard(file, path))),
            Err(fs::TryLockError::WouldBlock) => Err(IoError::locked(path, is_held_here(path))),
            // A medium without locks.
            Err(fs::TryLockError::Error(_)) => Ok(None),
        }
    }
}

/// The files whose locks this process holds, once for each holder: the system says only that a lock is held.
static HELD: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// One name for a file, whatever it is called by, as far as there is one.
fn one_name(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf())
}

fn is_held_here(path: &Path) -> bool {
    HELD.lock().contains(&one_name(path))
}

/// A file whose lock is held until it is dropped.
struct HeldFile {
    _file: fs::File,
    name: PathBuf,
}

impl HeldFile {
    fn guard(file: fs::File, path: &Path) -> LockGuard {
        let name = one_name(path);
        HELD.lock().push(name.clone());
        LockGuard::new(Self { _file: file, name })
    }
}

impl Drop for HeldFile {
    fn drop(&mut self) {
        let mut held = HELD.lock();
        if let Some(at) = held.iter().position(|name| *name == self.name) {
            held.swap_remove(at);
        }
    }
}

fn options(mode: OpenMode) -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(mode != OpenMode::Read);
    match mode {
        OpenMode::Read | OpenMode::Write => {}
        OpenMode::Create => {
            options.create(true).truncate(false);
        }
        OpenMode::CreateNew => {
            options.create_new(true);
        }
    }
    options
}

#[derive(Debug)]
pub(super) struct StdFile {
    file: positioned::Handle,
    path: PathBuf,
    /// Passes by the system's cache, and keeps to its alignment.
    direct: bool,
}

impl StdFile {
    pub(super) fn error(&self, action: Action, offset: Option<u64>, error: io::Error) -> IoError {
        IoError::new(action, &self.path, offset, error)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        loop {
            match self.file.read_at(bytes, offset) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return result.map_err(|error| self.error(Action::Read, Some(offset), error)),
            }
        }
    }

    /// Does the operation on the calling thread.
    pub(super) fn perform(&self, operation: Operation) -> (Result<usize>, Buffer) {
        match operation {
            Operation::Read { offset, mut buffer } => {
                let result = self.read(offset, buffer.as_mut_slice());
                (result, buffer)
            }
            Operation::Write { offset, buffer } => {
                let bytes = buffer.as_slice();
                let result = self.file.write_all_at(bytes, offset);
                let result = result
                    .map(|()| bytes.len())
                    .map_err(|error| self.error(Action::Write, Some(offset), error));
                (result, buffer)
            }
            Operation::SyncData => {
                let result = self.file.get().sync_data();
                let result = result.map(|()| 0).map_err(|error| self.error(Action::Sync, None, error));
                (result, Buffer::empty())
            }
        }
    }

    #[cfg(all(target_os = "linux", not(feature = "portable")))]
    pub(super) fn descriptor(&self) -> std::os::fd::RawFd {
        std::os::fd::AsRawFd::as_raw_fd(self.file.get())
    }
}

impl File for StdFile {
    fn submit(&self, operation: Operation) -> Completion {
        let (result, buffer) = self.perform(operation);
        Completion::ready(result, buffer)
    }

    fn alignment(&self) -> usize {
        if self.direct { DIRECT_ALIGNMENT } else { 1 }
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> Result<u64> {
        match self.file.get().metadata() {
            Ok(metadata) => Ok(metadata.len()),
            Err(error) => Err(self.error(Action::Resize, None, error)),
        }
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.file.get().set_len(len).map_err(|error| self.error(Action::Resize, None, error))
    }

    fn allocate(&self, len: u64) -> Result<()> {
        let now = self.len()?;
        self.file.allocate(now, len).map_err(|error| self.error(Action::Allocate, None, error))
    }

    fn punch(&self, offset: u64, len: u64) -> Result<bool> {
        self.file.punch(offset, len).map_err(|error| self.error(Action::Punch, Some(offset), error))
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        self.file.reserve(offset, len).map_err(|error| self.error(Action::Allocate, Some(offset), error))
    }
}

/// Writes zeros behind the end, which takes the space on every file system.
fn fill_with_zeros(
    from: u64,
    to: u64,
    mut write: impl FnMut(&[u8], u64) -> io::Result<()>,
) -> io::Result<()> {
    let zeros = vec![0; 1 << 20];
    let mut at = from;
    while at < to {
        let count = (to - at).min(zeros.len() as u64);
        write(&zeros[..count as usize], at)?;
        at += count;
    }
    Ok(())
}

#[cfg(all(unix, not(feature = "portable")))]
mod positioned {
    use std::fs;
    use std::io;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    #[derive(Debug)]
    pub(super) struct Handle(fs::File);

    impl Handle {
        pub(super) fn new(file: fs::File) -> Self {
            Self(file)
        }

        pub(super) fn get(&self) -> &fs::File {
            &self.0
        }

        pub(super) fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
            self.0.read_at(bytes, offset)
        }

        pub(super) fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
            self.0.write_all_at(bytes, offset)
        }

        pub(super) fn allocate(&self, now: u64, len: u64) -> io::Result<()> {
            if now >= len {
                return Ok(());
            }
            #[cfg(target_os = "linux")]
            {
                use rustix::fs::{FallocateFlags, fallocate};
                use rustix::io::Errno;
                match fallocate(&self.0, FallocateFlags::empty(), now, len - now) {
                    Ok(()) => return Ok(()),
                    // The file system does not know how to; zeros do the same, slower.
                    Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            super::fill_with_zeros(now, len, |bytes, offset| self.0.write_all_at(bytes, offset))
        }

        #[cfg(target_os = "linux")]
        pub(super) fn punch(&self, offset: u64, len: u64) -> io::Result<bool> {
            use rustix::fs::{FallocateFlags, fallocate};
            use rustix::io::Errno;
            match fallocate(&self.0, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len) {
                Ok(()) => Ok(true),
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
                Err(error) => Err(error.into()),
            }
        }

        #[cfg(target_os = "linux")]
        pub(super) fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
            use rustix::fs::{FallocateFlags, fallocate};
            use rustix::io::Errno;
            match fallocate(&self.0, FallocateFlags::KEEP_SIZE, offset, len) {
                // Where nothing can be given back, nothing is to be taken.
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
                Err(error) => Err(error.into()),
            }
        }

        #[cfg(not(target_os = "linux"))]
        pub(super) fn punch(&self, _offset: u64, _len: u64) -> io::Result<bool> {
            Ok(false)
        }

        #[cfg(not(target_os = "linux"))]
        pub(super) fn reserve(&self, _offset: u64, _len: u64) -> io::Result<()> {
            Ok(())
        }
    }

    pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
        fs::File::open(dir)?.sync_all()
    }
}

#[cfg(any(not(unix), feature = "portable"))]
mod positioned {
    use std::fs;
    use std::io::{self, Read, Seek, SeekFrom, Write};
    use std::path::Path;
    use std::sync::{Mutex, PoisonError};

    /// The lock is the file's position.
    #[derive(Debug)]
    pub(super) struct Handle(fs::File, Mutex<()>);

    impl Handle {
        pub(super) fn new(file: fs::File) -> Self {
            Self(file, Mutex::new(()))
        }

        pub(super) fn get(&self) -> &fs::File {
            &self.0
        }

        pub(super) fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
            let _position = self.1.lock().unwrap_or_else(PoisonError::into_inner);
            (&self.0).seek(SeekFrom::Start(offset))?;
            (&self.0).read(bytes)
        }

        pub(super) fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
            let _position = self.1.lock().unwrap_or_else(PoisonError::into_inner);
            (&self.0).seek(SeekFrom::Start(offset))?;
            (&self.0).write_all(bytes)
        }

        pub(super) fn allocate(&self, now: u64, len: u64) -> io::Result<()> {
            super::fill_with_zeros(now, len, |bytes, offset| self.write_all_at(bytes, offset))
        }

        pub(super) fn punch(&self, _offset: u64, _len: u64) -> io::Result<bool> {
            Ok(false)
        }

        pub(super) fn reserve(&self, _offset: u64, _len: u64) -> io::Result<()> {
            Ok(())
        }
    }

    pub(super) fn sync_dir(_dir: &Path) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_direct_file_takes_aligned_bytes() {
        let dir = std::env::temp_dir().join(format!("thermocline-direct-{}", std::process::id()));
        let io = StdIo;
        io.create_dir_all(&dir).expect("made");
        let path = dir.join("direct");
        let file = io.open_direct(&path, OpenMode::CreateNew).expect("created");
        assert!(DIRECT_ALIGNMENT.is_multiple_of(file.alignment()));
        let mut bytes = super::super::AlignedBytes::zeroed(8192);
        bytes.fill(7);
        file.write_at(4096, &bytes).expect("written");
        file.sync_data().expect("synced");
        let mut back = super::super::AlignedBytes::zeroed(8192);
        assert_eq!(file.read_at(8192, &mut back).expect("read"), 4096);
        assert_eq!(back[..4096], bytes[..4096]);
        let cached = io.open(&path, OpenMode::Read).expect("opened");
        assert_eq!(cached.read_full_at(4095, &mut back[..2]).expect("read"), 2);
        assert_eq!(back[..2], [0, 7]);
        assert!(io.open_direct(&dir.join("none"), OpenMode::Write).expect_err("missing").is_not_found());
        std::fs::remove_dir_all(&dir).expect("cleaned");
    }

    #[test]
    fn the_machine_keeps_files() {
        let dir = std::env::temp_dir().join(format!("thermocline-io-{}", std::process::id()));
        let io = StdIo;
        io.create_dir_all(&dir).expect("made");
        let (one, two) = (dir.join("one"), dir.join("two"));
        let file = io.open(&one, OpenMode::Create).expect("created");
        file.allocate(4096).expect("allocated");
        assert_eq!(file.len().expect("a length"), 4096);
        file.allocate(100).expect("nothing to do");
        assert_eq!(file.len().expect("a length"), 4096);
        file.write_at(4090, b"over the end").expect("written");
        file.sync_data().expect("synced");
        io.sync_dir(&dir).expect("synced");
        let mut bytes = [1; 16];
        assert_eq!(file.read_full_at(4088, &mut bytes).expect("read"), 14);
        assert_eq!(&bytes[..14], b"\0\0over the end");
        assert!(io.open(&one, OpenMode::CreateNew).is_err());
        assert!(io.open(&two, OpenMode::Write).expect_err("missing").is_not_found());
        io.rename(&one, &two).expect("renamed");
        assert_eq!(io.list(&dir).expect("listed"), ["two"]);
        let held = io.lock_exclusive(&dir.join("lock")).expect("free");
        assert!(io.lock_exclusive(&dir.join("lock")).expect_err("held").is_locked());
        drop(held);
        io.remove(&two).expect("removed");
        let error = io.open(&two, OpenMode::Read).expect_err("missing");
        assert!(error.to_string().starts_with(&format!("cannot open {}", two.display())));
        std::fs::remove_dir_all(&dir).expect("cleaned");
    }
}
