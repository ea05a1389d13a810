//! A control group of memory that the process enters for a run: what bounds pages that the system chooses.
//!
//! Made below `/sys/fs/cgroup/memory` (version 1), which needs root; where that is not so, there is none, and a pager's own
//! trimmer has to do. What the process had before it entered is not counted; pages of files that come meanwhile are.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/fs/cgroup/memory";

/// A group, gone when it is dropped.
#[derive(Debug)]
pub(super) struct Group {
    path: PathBuf,
    /// Where the process was.
    before: PathBuf,
}

impl Group {
    /// A group with this limit, if this process may make one.
    pub(super) fn new(limit_bytes: u64) -> Option<Self> {
        let text = fs::read_to_string("/proc/self/cgroup").ok()?;
        let of = |line: &str| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers
                .split(',')
                .any(|name| name == "memory")
                .then(|| path.trim_start_matches('/').to_owned())
        };
        let before = Path::new(ROOT).join(text.lines().find_map(of)?);
        let path = before.join(format!("thermocline-paged-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        let group = Self { path, before };
        fs::write(group.path.join("memory.limit_in_bytes"), limit_bytes.to_string()).ok()?;
        Some(group)
    }

    /// The process is bounded from now on.
    pub(super) fn enter(&self) -> io::Result<()> {
        fs::write(self.path.join("cgroup.procs"), std::process::id().to_string())
    }

    /// Why it could not be entered, for a person.
    pub(super) fn refused(&self, error: &io::Error) -> String {
        format!(
            "the process may not enter {}: {error}; run as root, or as a user without that directory",
            self.path.display()
        )
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Where the process cannot leave, the group stays until it ends; its limit is lifted, so that nothing else suffers.
        let _ = fs::write(self.before.join("cgroup.procs"), std::process::id().to_string());
        let _ = fs::write(self.path.join("memory.limit_in_bytes"), "-1");
        let _ = fs::remove_dir(&self.path);
    }
}
