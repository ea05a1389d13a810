//! Errors of files: what failed, and where.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An action on a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Action {
    /// Opening or creating a file.
    Open,
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Forcing data to the device.
    Sync,
    /// Asking for or changing the length.
    Resize,
    /// Reserving space ahead.
    Allocate,
    /// Giving space back to the file system.
    Punch,
    /// Renaming a file.
    Rename,
    /// Removing a file.
    Remove,
    /// Making a directory.
    CreateDir,
    /// Listing a directory.
    List,
    /// Forcing a directory's entries to the device.
    SyncDir,
    /// Taking the lock of a database.
    Lock,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Resize => "resize",
            Self::Allocate => "reserve space for",
            Self::Punch => "give space back of",
            Self::Rename => "rename",
            Self::Remove => "remove",
            Self::CreateDir => "create directory",
            Self::List => "list directory",
            Self::SyncDir => "sync directory",
            Self::Lock => "lock",
        })
    }
}

/// An operation on a file that failed: which file, which operation, where, and the system's reason. Cheap to clone,
/// since one failed sync has many waiters.
#[derive(Clone)]
pub struct IoError(Arc<Details>);

struct Details {
    action: Action,
    path: PathBuf,
    offset: Option<u64>,
    source: io::Error,
}

impl IoError {
    /// `action` on `path` failed.
    #[must_use]
    pub fn new(action: Action, path: &Path, offset: Option<u64>, source: io::Error) -> Self {
        Self(Arc::new(Details { action, path: path.to_path_buf(), offset, source }))
    }

    /// The action that failed.
    #[must_use]
    pub fn action(&self) -> Action {
        self.0.action
    }

    /// To which path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// At which byte, for reads and writes.
    #[must_use]
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// The system's error.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        self.0.source.kind()
    }

    /// Is the disk, or the user's share of it, full? Freeing space helps; repeating alone does not.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    /// Was there no answer in time? What was asked for may be there all the same.
    #[must_use]
    pub fn is_timed_out(&self) -> bool {
        self.kind() == io::ErrorKind::TimedOut
    }

    /// Is there no such file or directory?
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.kind() == io::ErrorKind::NotFound
    }

    /// Does another process (or another handle of this one) hold the lock?
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.action() == Action::Lock && self.kind() == io::ErrorKind::WouldBlock
    }

    /// Does another handle of this process hold the lock, as far as that is known?
    #[must_use]
    pub fn is_locked_here(&self) -> bool {
        self.is_locked() && self.0.source.get_ref().is_some_and(|source| source.is::<HeldHere>())
    }

    /// The lock of `path` is held: by this process, or by another one.
    pub(super) fn locked(path: &Path, here: bool) -> Self {
        let kind = io::ErrorKind::WouldBlock;
        Self::new(Action::Lock, path, None, if here { io::Error::new(kind, HeldHere) } else { kind.into() })
    }
}

/// Says of a lock that this process has it.
#[derive(Debug)]
struct HeldHere;

impl fmt::Display for HeldHere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this process has locked it already")
    }
}

impl std::error::Error for HeldHere {}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}", self.0.action, self.0.path.display())?;
        if let Some(offset) = self.0.offset {
            write!(f, " at byte {offset}")?;
        }
        write!(f, ": {}", self.0.source)
    }
}

impl fmt::Debug for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IoError({self})")
    }
}

impl std::error::Error for IoError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0.source)
    }
}
