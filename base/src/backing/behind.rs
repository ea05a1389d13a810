//! A backing that answers sooner, and a copy of all of its pages in one that lasts: memory of other machines with a file behind it.
//!
//! | | the one in front | the one behind |
//! |---|---|---|
//! | a run is written | to both at once; answered when both have answered | |
//! | … and one of them fails | the pages stand behind alone, and are counted | the run has failed: a promised copy is missing |
//! | a page is read | first | if the other one does not have it, lost it, or fails |
//! | a page is read apart | not asked: the reader may hold what an answer needs | always |
//! | a part is prepared | as far as it has room | must have room |
//!
//! So no page is in fewer places than the one behind, whatever becomes of the one in front (Jung, Han and Yeom, 2007,
//! leave that loss to the database).

use std::fmt;
use std::sync::Arc;

use super::{Backing, PAGE_BYTES, PageName};
use crate::io::{AlignedBytes, Completion, Outcome, Result};
use crate::sync::{AtomicU64, Ordering};

/// See the module.
pub struct CopyBehind {
    front: Arc<dyn Backing>,
    behind: Arc<dyn Backing>,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    behind_alone: AtomicU64,
    read_behind: AtomicU64,
}

/// Pages that the one in front did not take or give so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BehindCounts {
    /// Pages that the one in front did not take.
    pub behind_alone: u64,
    /// Pages that were read behind, since the one in front did not give them.
    pub read_behind: u64,
}

impl CopyBehind {
    /// Both are empty.
    #[must_use]
    pub fn new(front: Arc<dyn Backing>, behind: Arc<dyn Backing>) -> Self {
        Self { front, behind, counters: Arc::default() }
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> BehindCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        BehindCounts {
            behind_alone: get(&self.counters.behind_alone),
            read_behind: get(&self.counters.read_behind),
        }
    }
}

impl fmt::Debug for CopyBehind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyBehind").field("front", &self.front).field("behind", &self.behind).finish()
    }
}

impl Backing for CopyBehind {
    fn name(&self) -> &'static str {
        self.front.name()
    }

    fn table_bytes(&self) -> u64 {
        self.front.table_bytes() + self.behind.table_bytes()
    }

    fn prepare(&self, part: u32) -> Result<()> {
        self.behind.prepare(part)?;
        // What does not fit in front is seen when it is written.
        let _ = self.front.prepare(part);
        Ok(())
    }

    fn read(&self, page: PageName, buffer: AlignedBytes) -> Completion {
        let first = self.front.read(page, buffer);
        let (behind, counters) = (Arc::clone(&self.behind), Arc::clone(&self.counters));
        Completion::made_of(async move {
            let outcome = first.await;
            if matches!(outcome.result, Ok(PAGE_BYTES)) {
                return outcome;
            }
            counters.read_behind.fetch_add(1, Ordering::Relaxed);
            let buffer = outcome.buffer.into_aligned().unwrap_or_else(|| AlignedBytes::zeroed(PAGE_BYTES));
            behind.read(page, buffer).await
        })
    }

    fn write_run(&self, first: PageName, pages: AlignedBytes) -> Completion {
        let count = pages.len() / PAGE_BYTES;
        let mut copy = AlignedBytes::zeroed(pages.len());
        copy.copy_from_slice(&pages);
        let behind = self.behind.write_run(first, copy);
        let front = self.front.write_run(first, pages);
        let counters = Arc::clone(&self.counters);
        Completion::made_of(async move {
            let (behind, front) = (behind.await, front.await);
            if front.result.is_err() {
                counters.behind_alone.fetch_add(count as u64, Ordering::Relaxed);
            }
            Outcome { result: behind.result, buffer: front.buffer }
        })
    }

    fn discard(&self, part: u32, generation: u32) {
        self.front.discard(part, generation);
        self.behind.discard(part, generation);
    }

    fn read_apart(&self, page: PageName, buffer: AlignedBytes) -> (Result<usize>, AlignedBytes) {
        self.behind.read_apart(page, buffer)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::FileBacking;
    use super::*;
    use crate::io::{Action, IoError, MemoryIo};
    use crate::sync::AtomicBool;

    /// A file that can be out of reach, and out of room.
    #[derive(Debug)]
    struct Server {
        file: FileBacking,
        away: AtomicBool,
        full: AtomicBool,
    }

    impl Server {
        fn new() -> Arc<Self> {
            let file = FileBacking::new(&MemoryIo::new(), Path::new("server")).expect("made");
            Arc::new(Self { file, away: AtomicBool::new(false), full: AtomicBool::new(false) })
        }

        fn gone() -> IoError {
            IoError::new(Action::Read, Path::new("server"), None, std::io::Error::other("gone"))
        }
    }

    impl Backing for Server {
        fn name(&self) -> &'static str {
            "server"
        }

        fn prepare(&self, part: u32) -> Result<()> {
            if self.full.load(Ordering::Relaxed) { Err(Self::gone()) } else { self.file.prepare(part) }
        }

        fn read(&self, page: PageName, buffer: AlignedBytes) -> Completion {
            if self.away.load(Ordering::Relaxed) {
                return Completion::ready(Err(Self::gone()), buffer.into());
            }
            self.file.read(page, buffer)
        }

        fn write_run(&self, first: PageName, pages: AlignedBytes) -> Completion {
            if self.away.load(Ordering::Relaxed) || self.full.load(Ordering::Relaxed) {
                return Completion::ready(Err(Self::gone()), pages.into());
            }
            self.file.write_run(first, pages)
        }

        fn discard(&self, part: u32, generation: u32) {
            self.file.discard(part, generation);
        }
    }

    fn page(page: u32) -> PageName {
        PageName { part: 0, generation: 1, page }
    }

    fn run(byte: u8) -> AlignedBytes {
        let mut bytes = AlignedBytes::zeroed(2 * PAGE_BYTES);
        bytes.fill(byte);
        bytes
    }

    fn read(backing: &CopyBehind, number: u32) -> u8 {
        let outcome = backing.read(page(number), AlignedBytes::zeroed(PAGE_BYTES)).wait();
        assert_eq!(outcome.result.expect("one of them has it"), PAGE_BYTES);
        outcome.buffer.as_slice()[0]
    }

    #[test]
    fn what_is_in_front_may_go_at_any_time() {
        let (server, memory) = (Server::new(), MemoryIo::new());
        let file = Arc::new(FileBacking::new(&memory, Path::new("pages")).expect("made"));
        let backing = CopyBehind::new(Arc::clone(&server) as Arc<dyn Backing>, file);
        backing.prepare(0).expect("room");
        assert_eq!(backing.write_run(page(0), run(1)).wait().result.expect("written"), 2 * PAGE_BYTES);
        assert_eq!((read(&backing, 1), backing.counts()), (1, BehindCounts::default()));
        server.away.store(true, Ordering::Relaxed);
        assert_eq!(read(&backing, 0), 1);
        backing.write_run(page(2), run(2)).wait().result.expect("it is behind");
        assert_eq!(read(&backing, 3), 2);
        assert_eq!(backing.counts(), BehindCounts { behind_alone: 2, read_behind: 2 });
        let (result, bytes) = backing.read_apart(page(2), AlignedBytes::zeroed(PAGE_BYTES));
        assert_eq!((result.expect("read"), bytes[0]), (PAGE_BYTES, 2));
    }

    #[test]
    fn a_run_that_is_not_behind_has_failed() {
        let (server, memory) = (Server::new(), MemoryIo::new());
        memory.set_capacity(Some(3 << 20));
        let file = Arc::new(FileBacking::new(&memory, Path::new("pages")).expect("made"));
        let backing = CopyBehind::new(Arc::clone(&server) as Arc<dyn Backing>, file);
        server.full.store(true, Ordering::Relaxed);
        backing.prepare(0).expect("there is room behind");
        backing.write_run(page(0), run(1)).wait().result.expect("it is behind");
        server.full.store(false, Ordering::Relaxed);
        assert!(backing.prepare(1).expect_err("there is none behind").is_full());
    }
}
