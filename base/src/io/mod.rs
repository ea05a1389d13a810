//! Files, behind a trait: the one way to disk for the log, the checkpoints and the cold store, so that one recorder
//! orders all writes and syncs of a database and a simulation decides what a crash leaves.
//!
//! | implementation | what it is |
//! |---|---|
//! | [`StdIo`] | the operating system's files; every operation happens inside `submit` |
//! | [`SystemIo`] | the same; operations of direct files are under way while the thread does other things |
//! | [`DelayedIo`] | over any other: answers reads after a time, to be a slow device in tests |
//! | [`ProfileIo`] | over any other: the files of one directory answer as a disk or a network volume would |
//! | [`MemoryIo`] | a whole file system in memory: databases without a disk, and tests |
//! | [`OverlayIo`] | over any other: what is written stays in memory, and nothing below it changes |
//! | [`RecordingIo`] | over a [`MemoryIo`]: records the order of everything, injects faults, gives crash images |
//!
//! The shape is asynchronous: [`File::submit`] takes an owned [`Operation`] and gives a [`Completion`], which is a
//! future and can be waited for by a thread. Operations of one file that are under way together have no order; a
//! caller that needs one awaits the first.
//!
//! # What is durable when
//! * Bytes, and the length that they need: after a [`Operation::SyncData`] that was submitted after they completed.
//! * A name (created, renamed, removed): after [`Io::sync_dir`] of its directory.
//! * After a failed sync nothing is known about the bytes written since the last good one, and a later success says
//!   nothing about them (`SyncFailureIsFinal`).

mod aligned;
mod append;
mod asynchronous;
mod completion;
mod copy;
mod delayed;
mod driven;
mod error;
mod memory;
mod overlay;
mod profile;
mod record;
mod system;
mod threads;
#[cfg(all(target_os = "linux", not(feature = "portable")))]
mod uring;

use std::any::Any;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

pub use aligned::{AlignedBytes, DIRECT_ALIGNMENT};
pub use append::Appender;
pub use asynchronous::SystemIo;
pub use completion::{Completer, Completion, Outcome};
pub use copy::Copier;
pub use delayed::DelayedIo;
pub use driven::{Driven, Job};
pub use error::{Action, IoError};
pub use memory::MemoryIo;
pub use overlay::OverlayIo;
pub use profile::ProfileIo;
pub use record::{Fault, FaultKind, RecordingIo, SECTOR_BYTES};
pub use system::StdIo;

/// The result of an operation on files.
pub type Result<T> = std::result::Result<T, IoError>;

/// The mode in which a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// An existing file, to read.
    Read,
    /// An existing file, to read and write.
    Write,
    /// A file that may or may not exist, to read and write.
    Create,
    /// A new file, to read and write; it is an error if there is one already.
    CreateNew,
}

/// A file system.
pub trait Io: Send + Sync + fmt::Debug {
    /// Opens a file.
    ///
    /// # Errors
    /// As the mode says, and the system's.
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>>;

    /// Opens a file whose reads and writes pass by the system's cache, where the system can do that. They have to
    /// keep to [`File::alignment`]. For bytes that are written once and not read again soon, or that we cache
    /// ourselves: a fresh page of the system's cache for each one written costs more processor time than the write.
    ///
    /// # Errors
    /// As [`Io::open`].
    fn open_direct(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        self.open(path, mode)
    }

    /// Makes a directory, and those above it, unless they exist.
    ///
    /// # Errors
    /// The system's.
    fn create_dir_all(&self, path: &Path) -> Result<()>;

    /// The names of the files (not of the directories) in a directory, sorted.
    ///
    /// # Errors
    /// The system's, for example when there is no such directory.
    fn list(&self, dir: &Path) -> Result<Vec<String>>;

    /// Is there a file or a directory?
    ///
    /// # Errors
    /// The system's.
    fn exists(&self, path: &Path) -> Result<bool>;

    /// Gives a file another name; a file that has that name already is replaced, in one step.
    ///
    /// # Errors
    /// The system's.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// The system's.
    fn remove(&self, path: &Path) -> Result<()>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// The system's.
    fn sync_dir(&self, dir: &Path) -> Result<()>;

    /// Takes the lock of a file (which is created if need be) without waiting.
    ///
    /// # Errors
    /// [`IoError::is_locked`] when the lock is held already.
    fn lock_exclusive(&self, path: &Path) -> Result<LockGuard>;

    /// Takes the lock of a file together with others that do, without waiting and without changing anything: keeps out
    /// [`Io::lock_exclusive`], and is kept out by it. `None`: there is no such file, or no lock can be had on this medium.
    ///
    /// # Errors
    /// [`IoError::is_locked`] when another holder has it alone.
    fn lock_shared(&self, path: &Path) -> Result<Option<LockGuard>>;
}

/// A file.
pub trait File: Send + Sync + fmt::Debug {
    /// Starts an operation. A write writes everything or fails; a read may be short.
    fn submit(&self, operation: Operation) -> Completion;

    /// Offsets, lengths and addresses of reads and writes are multiples of this power of two; 1 where there is no such
    /// rule. Never more than [`DIRECT_ALIGNMENT`].
    fn alignment(&self) -> usize {
        1
    }

    /// The path that it was opened by.
    fn path(&self) -> &Path;

    /// The medium that it lies on, in reports.
    fn medium(&self) -> &'static str {
        "file"
    }

    /// Bytes of memory that it takes in this process for what it has.
    fn table_bytes(&self) -> u64 {
        0
    }

    /// Its length in bytes.
    ///
    /// # Errors
    /// The system's.
    fn len(&self) -> Result<u64>;

    /// Has it no bytes?
    ///
    /// # Errors
    /// The system's.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts it, or lengthens it with zeros that take no space yet.
    ///
    /// # Errors
    /// The system's.
    fn set_len(&self, len: u64) -> Result<()>;

    /// Makes it at least `len` bytes long, with the space on disk taken for what it is lengthened by: later writes there find
    /// their space (on file systems that overwrite in place).
    ///
    /// # Errors
    /// [`IoError::is_full`] when there is no such space.
    fn allocate(&self, len: u64) -> Result<()>;

    /// Gives the space of a stretch back to the file system. It reads as zeros then, and the file is as long as before.
    /// Bounds are multiples of [`DIRECT_ALIGNMENT`]. `false`: this file system cannot, and nothing has changed.
    ///
    /// # Errors
    /// The system's.
    fn punch(&self, offset: u64, len: u64) -> Result<bool>;

    /// Takes the space of a stretch within the file, where it was given back.
    ///
    /// # Errors
    /// [`IoError::is_full`] when there is no such space.
    fn reserve(&self, offset: u64, len: u64) -> Result<()>;
}

impl dyn File + '_ {
    /// Reads at `offset`, once: how many bytes came, 0 at the end of the file.
    ///
    /// # Errors
    /// The system's.
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        // SAFETY: `wait` returns after the operation, and dropping a completion waits too, so the borrow outlives it.
        let buffer = unsafe { Buffer::borrowed(bytes.as_mut_ptr(), bytes.len()) };
        self.submit(Operation::Read { offset, buffer }).wait().result
    }

    /// Reads at `offset` until the buffer is full or the file ends: how many bytes came.
    ///
    /// # Errors
    /// The system's.
    pub fn read_full_at(&self, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < bytes.len() {
            match self.read_at(offset + done as u64, &mut bytes[done..])? {
                0 => break,
                count => done += count,
            }
        }
        Ok(done)
    }

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// The system's; the bytes may have been written in part.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        // SAFETY: as in `read_at`; a write only reads the buffer.
        let buffer = unsafe { Buffer::borrowed(bytes.as_ptr().cast_mut(), bytes.len()) };
        self.submit(Operation::Write { offset, buffer }).wait().result.map(drop)
    }

    /// Forces what was written, and the length, to the device.
    ///
    /// # Errors
    /// The system's. The first one is final: see the module.
    pub fn sync_data(&self) -> Result<()> {
        self.submit(Operation::SyncData).wait().result.map(drop)
    }
}

/// An operation on a file.
#[derive(Debug)]
pub enum Operation {
    /// Read as many bytes as the buffer is long.
    Read {
        /// Where.
        offset: u64,
        /// Where to.
        buffer: Buffer,
    },
    /// Write the buffer.
    Write {
        /// Where.
        offset: u64,
        /// The bytes.
        buffer: Buffer,
    },
    /// Make what was written durable.
    SyncData,
}

impl Operation {
    /// Its buffer.
    #[must_use]
    pub fn buffer(&self) -> &Buffer {
        const EMPTY: &Buffer = &Buffer::empty();
        match self {
            Self::Read { buffer, .. } | Self::Write { buffer, .. } => buffer,
            Self::SyncData => EMPTY,
        }
    }

    /// Its buffer, to give it back.
    fn into_buffer(self) -> Buffer {
        match self {
            Self::Read { buffer, .. } | Self::Write { buffer, .. } => buffer,
            Self::SyncData => Buffer::empty(),
        }
    }

    /// The action and the offset, for errors.
    fn kind(&self) -> (Action, Option<u64>) {
        match self {
            Self::Read { offset, .. } => (Action::Read, Some(*offset)),
            Self::Write { offset, .. } => (Action::Write, Some(*offset)),
            Self::SyncData => (Action::Sync, None),
        }
    }

    /// Panics unless it keeps to the rule of a direct file.
    fn assert_aligned(&self) {
        if let Operation::Read { offset, buffer } | Operation::Write { offset, buffer } = self {
            aligned::assert_aligned(*offset, buffer.as_slice());
        }
    }
}

/// The bytes of an operation, owned by it until it completes.
pub struct Buffer(Bytes);

enum Bytes {
    Owned(Vec<u8>),
    Aligned(AlignedBytes),
    Borrowed { start: *mut u8, len: usize },
}

// SAFETY: an owned buffer is a `Vec<u8>`; the caller that makes a borrowed one vouches that the memory is the
// operation's alone (see `Buffer::borrowed`), wherever it runs.
unsafe impl Send for Buffer {}
// SAFETY: shared access only reads.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// An empty one, for operations without bytes.
    #[must_use]
    pub const fn empty() -> Self {
        Self(Bytes::Owned(Vec::new()))
    }

    /// Memory of another owner.
    ///
    /// # Safety
    /// The memory must stay valid and initialised until the operation has completed. Meanwhile no other code may
    /// write it, and for a read no other code may read it either.
    #[must_use]
    pub const unsafe fn borrowed(start: *mut u8, len: usize) -> Self {
        Self(Bytes::Borrowed { start, len })
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Bytes::Owned(bytes) => bytes,
            Bytes::Aligned(bytes) => bytes,
            // SAFETY: the contract of `borrowed`.
            Bytes::Borrowed { start, len } => unsafe { std::slice::from_raw_parts(*start, *len) },
        }
    }

    /// The bytes, to read into. Only for buffers of reads: a write's may be memory that others read.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Bytes::Owned(bytes) => bytes,
            Bytes::Aligned(bytes) => bytes,
            // SAFETY: the contract of `borrowed` for reads.
            Bytes::Borrowed { start, len } => unsafe { std::slice::from_raw_parts_mut(*start, *len) },
        }
    }

    /// Is the memory the buffer's own, and not borrowed?
    pub(crate) fn is_owned(&self) -> bool {
        !matches!(self.0, Bytes::Borrowed { .. })
    }

    /// The vector of an owned buffer.
    #[must_use]
    pub fn into_vec(self) -> Option<Vec<u8>> {
        match self.0 {
            Bytes::Owned(bytes) => Some(bytes),
            Bytes::Aligned(_) | Bytes::Borrowed { .. } => None,
        }
    }

    /// The aligned bytes of a buffer that was made of such.
    #[must_use]
    pub fn into_aligned(self) -> Option<AlignedBytes> {
        match self.0 {
            Bytes::Aligned(bytes) => Some(bytes),
            Bytes::Owned(_) | Bytes::Borrowed { .. } => None,
        }
    }
}

impl From<AlignedBytes> for Buffer {
    fn from(bytes: AlignedBytes) -> Self {
        Self(Bytes::Aligned(bytes))
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Bytes::Owned(bytes))
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.as_slice().len())
    }
}

/// Holds a file's lock until it is dropped.
#[must_use = "the lock is gone when this is dropped"]
pub struct LockGuard(#[allow(dead_code, reason = "its drop is what counts")] Box<dyn Any + Send + Sync>);

impl LockGuard {
    /// A lock that is released by dropping `held`.
    pub fn new(held: impl Any + Send + Sync) -> Self {
        Self(Box::new(held))
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LockGuard")
    }
}
