//! Where pages are while they are not in memory: read a page, write a run, discard a part; each may take its time.
//!
//! A *part* is [`PART_BYTES`] of addresses. Each use of a part as a place of pages has a *generation*, and a page's name holds
//! it: what a former use of the part wrote, or a read of it that comes late, is not taken for a page of this one
//! ([`PageName::checksum`] starts from the name).
//!
//! Nothing in a backing is durable, and nothing needs to be: the owner of the pages can make them again.

mod behind;
mod file;

use std::fmt;

pub use behind::{BehindCounts, CopyBehind};
pub use file::FileBacking;

use crate::checksum::{crc32c, crc32c_append};
use crate::io::{AlignedBytes, Completion, Result};

/// Length of a page.
pub const PAGE_BYTES: usize = 4096;
/// Length of a part: a huge page.
pub const PART_BYTES: usize = crate::vm::HUGE_PAGE_BYTES;
/// Pages of a part.
pub const PART_PAGES: usize = PART_BYTES / PAGE_BYTES;

/// The name of a page: its place, and which use of the place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PageName {
    /// Its part, counted from the begin of the region.
    pub part: u32,
    /// Which use of the part.
    pub generation: u32,
    /// Its number in the part.
    pub page: u32,
}

impl PageName {
    /// The checksum of these bytes as the contents of this page.
    #[must_use]
    pub fn checksum(self, bytes: &[u8]) -> u32 {
        let name = u64::from(self.part) << 32 | u64::from(self.page);
        let start = crc32c_append(crc32c(&name.to_le_bytes()), &self.generation.to_le_bytes());
        crc32c_append(start, bytes)
    }
}

impl fmt::Display for PageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {} of part {} (generation {})", self.page, self.part, self.generation)
    }
}

/// See the module. A completion of a read gives the buffer back with the page in it; it may be short, which is an error of
/// the medium. What was written is read after the write has completed.
pub trait Backing: Send + Sync + fmt::Debug {
    /// Its name, in reports.
    fn name(&self) -> &'static str;

    /// Memory that it takes for what it has, in bytes.
    fn table_bytes(&self) -> u64 {
        0
    }

    /// Takes the room of a part, as far as the medium has rooms: writes to it do not fail for want of one.
    ///
    /// # Errors
    /// [`crate::io::IoError::is_full`] when there is none.
    fn prepare(&self, part: u32) -> Result<()>;

    /// Begins to read a page into a buffer of its length.
    fn read(&self, page: PageName, buffer: AlignedBytes) -> Completion;

    /// Begins to write pages that follow each other in one part.
    fn write_run(&self, first: PageName, pages: AlignedBytes) -> Completion;

    /// Forgets all pages of a part's generation. Neither a read nor a write of them is under way.
    fn discard(&self, part: u32, generation: u32);

    /// Reads a page for a thread that others may wait for although they hold what is needed elsewhere, such as an allocator's
    /// lock: needs none of the threads that may wait for it, and allocates nothing where the medium allows that.
    ///
    /// # Errors
    /// The medium's.
    fn read_apart(&self, page: PageName, buffer: AlignedBytes) -> (Result<usize>, AlignedBytes) {
        let outcome = self.read(page, buffer).wait();
        let buffer = outcome.buffer.into_aligned().expect("a read gives the buffer back that it was given");
        (outcome.result, buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_of_bytes_page_and_generation() {
        let name = PageName { part: 1, generation: 2, page: 3 };
        let others = [
            PageName { part: 2, ..name },
            PageName { generation: 3, ..name },
            PageName { page: 4, ..name },
            PageName { part: 3, page: 1, ..name },
        ];
        let sum = name.checksum(&[7; PAGE_BYTES]);
        assert_eq!(sum, name.checksum(&[7; PAGE_BYTES]));
        assert_ne!(sum, name.checksum(&[8; PAGE_BYTES]));
        others.iter().for_each(|other| assert_ne!(sum, other.checksum(&[7; PAGE_BYTES]), "{other}"));
    }
}
