//! A file as a backing: past the system's cache, its space taken before it is used, without a name.
//!
//! A part's pages stand at the part's place in the file, so a page costs no memory here. The name is removed as soon as the file
//! is open: a process that is killed leaves nothing behind.
//!
//! Reads apart go by a second handle, whose operations happen within the call: no ring, no other thread, no allocation. They
//! pass through the system's cache, which the system keeps equal with what is written past it.

use std::path::Path;
use std::sync::Arc;

use super::{Backing, PAGE_BYTES, PART_BYTES, PageName};
use crate::io::{Action, AlignedBytes, Buffer, Completion, File, Io, IoError, OpenMode, Operation, Result};

/// See the module.
#[derive(Debug)]
pub struct FileBacking {
    file: Arc<dyn File>,
    apart: Arc<dyn File>,
}

impl FileBacking {
    /// Makes a file at a path where there is none, and removes its name.
    ///
    /// # Errors
    /// The system's.
    pub fn new(io: &dyn Io, path: &Path) -> Result<Self> {
        let file = io.open_direct(path, OpenMode::CreateNew)?;
        let apart = io.open(path, OpenMode::Read);
        io.remove(path)?;
        Ok(Self { file, apart: apart? })
    }

    /// As [`FileBacking::new`], with a handle of the system's to map what is written; of a system's file only.
    ///
    /// # Errors
    /// The system's.
    pub fn with_handle(io: &dyn Io, path: &Path) -> Result<(Self, std::fs::File)> {
        let file = io.open_direct(path, OpenMode::CreateNew)?;
        let opened = std::fs::File::open(path)
            .map_err(|error| IoError::new(Action::Open, path, None, error))
            .and_then(|handle| Ok((io.open(path, OpenMode::Read)?, handle)));
        io.remove(path)?;
        let (apart, handle) = opened?;
        Ok((Self { file, apart }, handle))
    }

    fn offset(page: PageName) -> u64 {
        u64::from(page.part) * PART_BYTES as u64 + u64::from(page.page) * PAGE_BYTES as u64
    }
}

impl Backing for FileBacking {
    fn name(&self) -> &'static str {
        "file"
    }

    fn prepare(&self, part: u32) -> Result<()> {
        let (start, bytes) = (u64::from(part) * PART_BYTES as u64, PART_BYTES as u64);
        let len = self.file.len()?;
        if len < start {
            // What lies between takes its space when it is prepared.
            self.file.set_len(start)?;
        }
        if len < start + bytes { self.file.allocate(start + bytes) } else { self.file.reserve(start, bytes) }
    }

    fn read(&self, page: PageName, buffer: AlignedBytes) -> Completion {
        self.file.submit(Operation::Read { offset: Self::offset(page), buffer: Buffer::from(buffer) })
    }

    fn read_apart(&self, page: PageName, buffer: AlignedBytes) -> (Result<usize>, AlignedBytes) {
        let read = Operation::Read { offset: Self::offset(page), buffer: Buffer::from(buffer) };
        let outcome = self.apart.submit(read).wait();
        (
            outcome.result,
            outcome.buffer.into_aligned().expect("a read gives back the buffer that it was given"),
        )
    }

    fn write_run(&self, first: PageName, pages: AlignedBytes) -> Completion {
        self.file.submit(Operation::Write { offset: Self::offset(first), buffer: Buffer::from(pages) })
    }

    fn discard(&self, part: u32, _generation: u32) {
        // A file system that cannot keeps the space for the part's next use.
        let _ = self.file.punch(u64::from(part) * PART_BYTES as u64, PART_BYTES as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::MemoryIo;

    fn page(part: u32, page: u32) -> PageName {
        PageName { part, generation: 1, page }
    }

    #[test]
    fn runs_come_back_page_by_page() {
        let memory = MemoryIo::new();
        let backing = FileBacking::new(&memory, Path::new("pages")).expect("made");
        assert_eq!(memory.files().len(), 0, "the file has no name");
        backing.prepare(3).expect("room");
        let mut run = AlignedBytes::zeroed(2 * PAGE_BYTES);
        run[..PAGE_BYTES].fill(1);
        run[PAGE_BYTES..].fill(2);
        assert!(backing.write_run(page(3, 510), run).wait().result.is_ok());
        for (number, byte) in [(510, 1), (511, 2), (7, 0)] {
            let (result, bytes) = backing.read_apart(page(3, number), AlignedBytes::zeroed(PAGE_BYTES));
            assert_eq!(result.expect("read"), PAGE_BYTES);
            assert!(bytes.iter().all(|found| *found == byte), "{number}");
        }
    }

    #[test]
    fn a_full_medium_is_an_error_before_anything_is_written() {
        let memory = MemoryIo::new();
        memory.set_capacity(Some(3 << 20));
        let backing = FileBacking::new(&memory, Path::new("pages")).expect("made");
        backing.prepare(0).expect("room for one");
        assert!(backing.prepare(1).expect_err("no room for two").is_full());
    }
}
