//! The space that files take on a disk.

use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes that the files below a directory take, holes aside. Files that go away meanwhile do not count.
///
/// # Errors
/// When the directory cannot be read.
pub(super) fn on_disk(dir: &Path) -> Result<u64> {
    let gone = |error: &Error| error.kind() == ErrorKind::NotFound;
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let found = match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => on_disk(&entry.path()).map(|below| below + taken(&metadata)),
            Ok(metadata) => Ok(taken(&metadata)),
            Err(error) => Err(error),
        };
        bytes += match found {
            Err(error) if gone(&error) => 0,
            found => found?,
        };
    }
    Ok(bytes)
}

fn taken(metadata: &std::fs::Metadata) -> u64 {
    metadata.blocks() * 512
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_folders_count() {
        let dir = tempfile::tempdir().expect("a directory");
        let empty = on_disk(dir.path()).expect("readable");
        let below = dir.path().join("below");
        std::fs::create_dir(&below).expect("writable");
        std::fs::write(below.join("file"), vec![1; 100_000]).expect("writable");
        let full = on_disk(dir.path()).expect("readable");
        assert!(full >= empty + 100_000, "{empty} and {full} bytes");
        assert!(on_disk(&below.join("none")).is_err());
    }
}
