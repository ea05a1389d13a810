//! Reads of blocks that are under way: who wants a block that is being read waits for that read.
//!
//! A read that is joined began before the look that joins it, so what it brings may be older than what that look has to see: a
//! batch was acknowledged in between, or a removal was. Hence a read is *forgotten* once its block has been written, before
//! anybody is told of that: who looks later begins a read of his own (`ReadsEndWithWrites`). What a read brings that began before the
//! write had ended is old, new or torn, as it would be without anybody who joins; nobody was told yet, a torn slot does
//! not match its checksum, and its reader looks again.
//!
//! The answer of the device itself does what follows ([`Driven`]): a look that is dropped holds nobody up who has joined its read.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use thermocline_base::io::{AlignedBytes, Buffer, Completion, Driven, Job, Operation, Outcome};
use thermocline_base::sync::{AtomicU64, Mutex, Ordering};
use thermocline_pool::store::StoreError;

use super::Promise;
use super::slots::{BLOCK, Segment};
use crate::mutation::{self, Rule};

/// A block that was read.
pub(super) type Block = Arc<AlignedBytes>;

/// Which block: by the segment's address, which is its own as long as a read keeps it. (A file that has gone may have a successor of its name.)
type At = (usize, u64);

type UnderWay = Mutex<HashMap<At, Arc<Driven<Flight>>>>;

fn at(segment: &Arc<Segment>, block: u64) -> At {
    (Arc::as_ptr(segment) as usize, block)
}

/// The reads of a store.
#[derive(Debug, Default)]
pub(super) struct Reads {
    under_way: Arc<UnderWay>,
    begun: AtomicU64,
}

/// A read.
struct Flight {
    under_way: Arc<UnderWay>,
    segment: Arc<Segment>,
    block: u64,
    /// What has come so far, if the device answers with less than a block.
    so_far: Mutex<Option<(AlignedBytes, usize)>>,
    landed: Promise<Result<Block, StoreError>>,
}

impl fmt::Debug for Flight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "read of block {} of {:?}", self.block, self.segment.id)
    }
}

impl Reads {
    /// Reads a block, or waits for who reads it. What lies behind the end of the file is zero.
    pub(super) async fn read(&self, segment: &Arc<Segment>, block: u64) -> Result<Block, StoreError> {
        let mut is_mine = false;
        let flight = {
            let mut under_way = self.under_way.lock();
            let flight = under_way.entry(at(segment, block)).or_insert_with(|| {
                is_mine = true;
                Driven::new(Flight {
                    under_way: Arc::clone(&self.under_way),
                    segment: Arc::clone(segment),
                    block,
                    so_far: Mutex::new(None),
                    landed: Promise::new(),
                })
            });
            Arc::clone(flight)
        };
        if is_mine {
            self.begun.fetch_add(1, Ordering::Relaxed);
            flight.start(flight.job.ask(0));
        }
        flight.job.landed.wait().await
    }

    /// These blocks have been written: nobody joins the reads of them that are under way from now on.
    pub(super) fn forget<'a>(&self, blocks: impl IntoIterator<Item = (&'a Arc<Segment>, u64)>) {
        if mutation::off(Rule::ReadsEndWithWrites) {
            return;
        }
        let mut under_way = self.under_way.lock();
        for (segment, block) in blocks {
            under_way.remove(&at(segment, block));
        }
    }

    /// How many the device was asked for.
    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }
}

impl Flight {
    fn ask(&self, done: usize) -> Completion {
        let buffer = Buffer::from(AlignedBytes::zeroed(BLOCK));
        self.segment
            .file
            .submit(Operation::Read { offset: Segment::offset_of(self.block) + done as u64, buffer })
    }

    fn land(&self, result: Result<Block, StoreError>) {
        let at = at(&self.segment, self.block);
        let mut under_way = self.under_way.lock();
        // It may have been forgotten, and another one have begun.
        if under_way.get(&at).is_some_and(|flight| std::ptr::eq(&flight.job, self)) {
            under_way.remove(&at);
        }
        drop(under_way);
        self.landed.keep(result);
    }
}

impl Job for Flight {
    fn answered(&self, outcome: Outcome) -> Option<Completion> {
        let count = match outcome.result {
            Ok(count) => count,
            Err(error) => {
                self.land(Err(error.into()));
                return None;
            }
        };
        let read = outcome.buffer.into_aligned().expect("the buffer that was given");
        let mut so_far = self.so_far.lock();
        let (bytes, done) = match so_far.take() {
            None if count >= BLOCK => (read, BLOCK),
            before => {
                let (mut bytes, done) = before.unwrap_or_else(|| (AlignedBytes::zeroed(BLOCK), 0));
                let more = count.min(BLOCK - done);
                bytes[done..done + more].copy_from_slice(&read[..more]);
                (bytes, done + more)
            }
        };
        if count > 0 && done < BLOCK {
            *so_far = Some((bytes, done));
            return Some(self.ask(done));
        }
        drop(so_far);
        self.land(Ok(Arc::new(bytes)));
        None
    }
}
