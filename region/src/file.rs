//! The file under the paged parts of a region: written past the system's cache, its space taken before it is used, without a name.
//!
//! A part's pages stand at the part's place in the file, so a page costs no memory here. The name is removed as soon as the file
//! is open: a process that is killed leaves nothing behind.

use std::path::Path;
use std::sync::Arc;

use thermocline_base::io::{Action, AlignedBytes, Buffer, File, Io, IoError, OpenMode, Operation, Result};

use crate::{PAGE_BYTES, PART_BYTES};

/// See the module.
#[derive(Debug)]
pub(crate) struct PageFile(Arc<dyn File>);

impl PageFile {
    /// Makes a file at a path where there is none, and removes its name; and a handle of the system's, to map what is written.
    pub(crate) fn new(io: &dyn Io, path: &Path) -> Result<(Self, std::fs::File)> {
        let file = io.open_direct(path, OpenMode::CreateNew)?;
        let handle = std::fs::File::open(path).map_err(|error| IoError::new(Action::Open, path, None, error));
        io.remove(path)?;
        Ok((Self(file), handle?))
    }

    /// Takes the room of a part: writes to it do not fail for want of one.
    pub(crate) fn prepare(&self, part: usize) -> Result<()> {
        let (start, bytes) = ((part * PART_BYTES) as u64, PART_BYTES as u64);
        let len = self.0.len()?;
        if len < start {
            // What lies between takes its space when it is prepared.
            self.0.set_len(start)?;
        }
        if len < start + bytes { self.0.allocate(start + bytes) } else { self.0.reserve(start, bytes) }
    }

    /// Writes pages that follow each other; how many bytes.
    pub(crate) fn write(&self, first: usize, pages: AlignedBytes) -> Result<usize> {
        let offset = (first * PAGE_BYTES) as u64;
        self.0.submit(Operation::Write { offset, buffer: Buffer::from(pages) }).wait().result
    }

    /// Gives the room of a part back. Nothing of it is being written.
    pub(crate) fn discard(&self, part: usize) {
        // A file system that cannot keeps the space for the part's next use.
        let _ = self.0.punch((part * PART_BYTES) as u64, PART_BYTES as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_base::io::MemoryIo;

    #[test]
    fn a_full_medium_is_an_error_before_anything_is_written() {
        let memory = MemoryIo::new();
        memory.set_capacity(Some(3 << 20));
        let file = PageFile(memory.open_direct(Path::new("pages"), OpenMode::CreateNew).expect("made"));
        file.prepare(0).expect("room for one");
        assert!(file.prepare(1).expect_err("no room for two").is_full());
        file.discard(0);
        file.prepare(1).expect("room again");
    }
}
