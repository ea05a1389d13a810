//! A file that answers sooner, and a copy of all of its pages in one that lasts: memory of other machines with a file behind it.
//!
//! | | the one in front | the one behind |
//! |---|---|---|
//! | pages are written | to both at once; answered when both have answered | |
//! | … and one of them fails | the pages stand behind alone, and are counted | the write has failed: a promised copy is missing |
//! | pages are read | first | if the other one does not have them, lost one of them, or fails |
//! | space is taken | as far as it has room | must have room |
//!
//! So no page is in fewer places than the one behind, whatever becomes of the one in front (Jung, Han and Yeom, 2007,
//! leave that loss to the database).

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use thermocline_base::io::{AlignedBytes, Buffer, Completion, File, Operation, Result};

/// See the module.
pub struct CopyBehind {
    front: Arc<dyn File>,
    behind: Arc<dyn File>,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    behind_alone: AtomicU64,
    read_behind: AtomicU64,
}

/// Operations that the one in front did not answer so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BehindCounts {
    /// Writes that the one in front did not take.
    pub behind_alone: u64,
    /// Reads that went behind, since the one in front did not give the pages.
    pub read_behind: u64,
}

impl CopyBehind {
    /// Both are empty.
    #[must_use]
    pub fn new(front: Arc<dyn File>, behind: Arc<dyn File>) -> Self {
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

    fn read(&self, offset: u64, buffer: Buffer) -> Completion {
        let length = buffer.as_slice().len();
        let first = self.front.submit(Operation::Read { offset, buffer });
        let (behind, counters) = (Arc::clone(&self.behind), Arc::clone(&self.counters));
        Completion::made_of(async move {
            let outcome = first.await;
            if outcome.result.as_ref().is_ok_and(|bytes| *bytes == length) {
                return outcome;
            }
            counters.read_behind.fetch_add(1, Ordering::Relaxed);
            behind.submit(Operation::Read { offset, buffer: outcome.buffer }).await
        })
    }

    fn write(&self, offset: u64, buffer: Buffer) -> Completion {
        let mut copy = AlignedBytes::zeroed(buffer.as_slice().len());
        copy.copy_from_slice(buffer.as_slice());
        let front = self.front.submit(Operation::Write { offset, buffer: copy.into() });
        let behind = self.behind.submit(Operation::Write { offset, buffer });
        let counters = Arc::clone(&self.counters);
        Completion::made_of(async move {
            let (behind, front) = (behind.await, front.await);
            if front.result.is_err() {
                counters.behind_alone.fetch_add(1, Ordering::Relaxed);
            }
            behind
        })
    }
}

impl fmt::Debug for CopyBehind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyBehind").field("front", &self.front).field("behind", &self.behind).finish()
    }
}

impl File for CopyBehind {
    fn submit(&self, operation: Operation) -> Completion {
        match operation {
            Operation::Read { offset, buffer } => self.read(offset, buffer),
            Operation::Write { offset, buffer } => self.write(offset, buffer),
            sync @ Operation::SyncData => self.behind.submit(sync),
        }
    }

    fn alignment(&self) -> usize {
        self.front.alignment().max(self.behind.alignment())
    }

    fn path(&self) -> &Path {
        self.behind.path()
    }

    fn medium(&self) -> &'static str {
        self.front.medium()
    }

    fn table_bytes(&self) -> u64 {
        self.front.table_bytes() + self.behind.table_bytes()
    }

    fn len(&self) -> Result<u64> {
        self.behind.len()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let _ = self.front.set_len(len);
        self.behind.set_len(len)
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.behind.allocate(len)?;
        // What does not fit in front is seen when it is written.
        let _ = self.front.allocate(len);
        Ok(())
    }

    fn punch(&self, offset: u64, len: u64) -> Result<bool> {
        let _ = self.front.punch(offset, len);
        self.behind.punch(offset, len)
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        self.behind.reserve(offset, len)?;
        let _ = self.front.reserve(offset, len);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use thermocline_base::io::{Action, Io, IoError, MemoryIo, OpenMode};

    use super::*;
    use std::sync::atomic::AtomicBool;

    const PAGE: usize = 4096;

    fn file(memory: &MemoryIo) -> Arc<dyn File> {
        memory.open(Path::new("pages"), OpenMode::CreateNew).expect("a file in memory")
    }

    /// A file that can be out of reach.
    #[derive(Debug)]
    struct Server {
        file: Arc<dyn File>,
        away: AtomicBool,
    }

    impl File for Server {
        fn submit(&self, operation: Operation) -> Completion {
            match operation {
                Operation::Read { buffer, .. } | Operation::Write { buffer, .. }
                    if self.away.load(Ordering::Relaxed) =>
                {
                    let gone = std::io::Error::other("gone");
                    let error = IoError::new(Action::Read, Path::new("server"), None, gone);
                    Completion::ready(Err(error), buffer)
                }
                operation => self.file.submit(operation),
            }
        }

        fn path(&self) -> &Path {
            Path::new("server")
        }

        fn len(&self) -> Result<u64> {
            self.file.len()
        }

        fn set_len(&self, len: u64) -> Result<()> {
            self.file.set_len(len)
        }

        fn allocate(&self, len: u64) -> Result<()> {
            self.file.allocate(len)
        }

        fn punch(&self, offset: u64, len: u64) -> Result<bool> {
            self.file.punch(offset, len)
        }

        fn reserve(&self, offset: u64, len: u64) -> Result<()> {
            self.file.reserve(offset, len)
        }
    }

    fn pages(byte: u8) -> Buffer {
        let mut bytes = AlignedBytes::zeroed(2 * PAGE);
        bytes.fill(byte);
        bytes.into()
    }

    fn write(file: &CopyBehind, page: usize, byte: u8) -> Result<usize> {
        file.submit(Operation::Write { offset: (page * PAGE) as u64, buffer: pages(byte) }).wait().result
    }

    fn read(file: &CopyBehind, page: usize) -> Vec<u8> {
        let buffer = AlignedBytes::zeroed(2 * PAGE).into();
        let outcome = file.submit(Operation::Read { offset: (page * PAGE) as u64, buffer }).wait();
        assert_eq!(outcome.result.expect("one of them has it"), 2 * PAGE);
        outcome.buffer.as_slice().to_vec()
    }

    #[test]
    fn what_is_in_front_may_go_at_any_time() {
        let server = Arc::new(Server { file: file(&MemoryIo::new()), away: AtomicBool::new(false) });
        let both = CopyBehind::new(Arc::clone(&server) as Arc<dyn File>, file(&MemoryIo::new()));
        both.allocate(8 * PAGE as u64).expect("room");
        assert_eq!(write(&both, 0, 1).expect("written"), 2 * PAGE);
        assert_eq!((read(&both, 0), both.counts()), (vec![1; 2 * PAGE], BehindCounts::default()));
        server.away.store(true, Ordering::Relaxed);
        assert_eq!(read(&both, 0), vec![1; 2 * PAGE]);
        write(&both, 2, 2).expect("it is behind");
        assert_eq!(read(&both, 2), vec![2; 2 * PAGE]);
        assert_eq!(both.counts(), BehindCounts { behind_alone: 1, read_behind: 2 });
    }

    #[test]
    fn what_is_not_behind_has_failed() {
        let memory = MemoryIo::new();
        memory.set_capacity(Some(3 * PAGE as u64));
        let behind = file(&memory);
        let both = CopyBehind::new(file(&MemoryIo::new()), behind);
        both.allocate(2 * PAGE as u64).expect("there is room behind");
        write(&both, 0, 1).expect("it is behind");
        assert!(both.allocate(8 * PAGE as u64).expect_err("there is none behind").is_full());
    }
}
