//! Records in files: sorted runs, and the merge of them.

use std::cell::RefCell;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;

use super::memory::{Front, LOOK, Records, front};
use super::record::{self, Parts};
use crate::error::Result;
use crate::exec::spill::{BlockReader, Blocks, Spilled};
use crate::expr::Context;
use crate::expr::later::Task;
use crate::expr::memory::Kept;

/// Bytes of a run's block, but for its last record: at least, and at the most.
const BLOCK: (u64, u64) = (32 << 10, 112 << 10);
/// Bytes that are set aside for the last record of a block.
const OVER: usize = 4 << 10;
/// Runs that are merged at once, at least and at the most.
const FAN: (usize, usize) = (4, 64);

/// The runs of a sorter.
pub(super) struct Runs {
    spilled: Rc<Spilled>,
    runs: RefCell<Vec<Blocks>>,
    block_bytes: usize,
}

impl Runs {
    /// None yet. None at all: there are no files.
    pub(super) fn new(context: &Context) -> Result<Option<Rc<Self>>> {
        let Some(spilled) = Spilled::new(context)? else { return Ok(None) };
        let block_bytes = (context.grant.operator / 64).clamp(BLOCK.0, BLOCK.1) as usize;
        Ok(Some(Rc::new(Self { spilled, runs: RefCell::default(), block_bytes })))
    }

    /// All of them as one, once none is waited for.
    pub(super) async fn merged<'m>(&self, context: &'m Context) -> Result<Merge<'m>> {
        // Each run has a block that is read, and one ahead.
        let most = context.grant.operator / 4 / self.block_bytes as u64;
        let fan = usize::try_from(most).unwrap_or(FAN.1).clamp(FAN.0, FAN.1);
        while self.runs.borrow().len() > fan {
            // The earliest ones, whose rows stay the earlier ones.
            let some: Vec<Blocks> = self.runs.borrow_mut().drain(..fan).collect();
            let mut merge = Merge::new(context, self, some).await?;
            let mut writer = Writer::new(self);
            while let Some(record) = merge.record() {
                writer.push(record).await?;
                merge.advance().await?;
                if context.is_due() {
                    context.pause().await?;
                }
            }
            let longer = writer.finish().await?;
            self.runs.borrow_mut().insert(0, longer);
        }
        Merge::new(context, self, self.runs.take()).await
    }
}

/// A run that is being written.
struct Writer<'w> {
    to: &'w Runs,
    run: Blocks,
    block: Vec<u8>,
}

impl<'w> Writer<'w> {
    fn new(to: &'w Runs) -> Self {
        Self { to, run: Blocks::default(), block: Vec::new() }
    }

    async fn push(&mut self, record: &[u8]) -> Result<()> {
        if self.block.capacity() == 0 {
            self.block.reserve(self.to.block_bytes + OVER);
        }
        self.block.extend_from_slice(record);
        if self.block.len() >= self.to.block_bytes { self.write().await } else { Ok(()) }
    }

    async fn write(&mut self) -> Result<()> {
        self.to.spilled.write(std::mem::take(&mut self.block), &self.run).await
    }

    async fn finish(mut self) -> Result<Blocks> {
        if !self.block.is_empty() {
            self.write().await?;
        }
        Ok(self.run)
    }
}

/// A run that is to be sorted and written, and the bytes that it is charged for.
pub(super) struct Handed {
    pub(super) records: Records,
    pub(super) bytes: usize,
    pub(super) runs: Rc<Runs>,
}

impl Task for Handed {
    fn run<'t>(self: Box<Self>, context: &'t Context) -> Pin<Box<dyn Future<Output = Result<()>> + 't>> {
        Box::pin(async move {
            let Self { mut records, bytes, runs } = *self;
            records.sort(context).await?;
            let mut writer = Writer::new(&runs);
            for (place, entry) in records.entries.iter().enumerate() {
                records.ask_for(place);
                writer.push(records.record(entry)).await?;
                if place.is_multiple_of(LOOK) && context.is_due_after(LOOK) {
                    context.pause().await?;
                }
            }
            let run = writer.finish().await?;
            runs.runs.borrow_mut().push(run);
            records.give_up();
            context.memory.give_back(bytes as u64);
            Ok(())
        })
    }
}

/// The records of a run, one after the other.
struct RunReader {
    blocks: BlockReader,
    block: Vec<u8>,
    /// Where the record stands in the block.
    record: Range<usize>,
}

impl RunReader {
    fn record(&self) -> &[u8] {
        &self.block[self.record.clone()]
    }

    fn parts(&self) -> Parts<'_> {
        record::split(self.record()).0
    }

    /// Goes to the next record, perhaps of the next block: its front; none: there is none.
    async fn next(&mut self) -> Result<Option<Front>> {
        let mut at = self.record.end;
        if at == self.block.len() {
            if !self.blocks.next(&mut self.block).await? {
                return Ok(None);
            }
            at = 0;
        }
        let (parts, bytes) = record::split(&self.block[at..]);
        let front = front(parts.key, 0);
        self.record = at..at + bytes;
        Ok(Some(front))
    }
}

/// Runs that become one.
pub(super) struct Merge<'m> {
    readers: Vec<RunReader>,
    /// Readers that have a record, by its front: none of them is behind those at twice its place and one or two more.
    heap: Vec<(Front, usize)>,
    _kept: Kept<'m>,
}

impl<'m> Merge<'m> {
    async fn new(context: &'m Context, from: &Runs, runs: Vec<Blocks>) -> Result<Self> {
        from.spilled.settle().await?;
        let mut kept = context.memory.kept();
        kept.add(2 * runs.len() * from.block_bytes)?;
        let (mut readers, mut heap) = (Vec::with_capacity(runs.len()), Vec::with_capacity(runs.len()));
        for blocks in runs {
            let blocks = BlockReader::new(&from.spilled, blocks);
            let mut reader = RunReader { blocks, block: Vec::new(), record: 0..0 };
            if let Some(front) = reader.next().await? {
                heap.push((front, readers.len()));
                readers.push(reader);
            }
        }
        let mut merge = Self { readers, heap, _kept: kept };
        for place in (0..merge.heap.len() / 2).rev() {
            merge.settle(place);
        }
        Ok(merge)
    }

    fn is_before(&self, a: usize, b: usize) -> bool {
        let ((a_front, a), (b_front, b)) = (self.heap[a], self.heap[b]);
        let keys = || self.readers[a].parts().key.cmp(self.readers[b].parts().key);
        // The earlier run has the earlier rows.
        a_front.cmp(&b_front).then_with(keys).then(a.cmp(&b)).is_lt()
    }

    /// Puts the reader at a place of the heap where it belongs below.
    fn settle(&mut self, mut place: usize) {
        loop {
            let (left, right) = (2 * place + 1, 2 * place + 2);
            if left >= self.heap.len() {
                return;
            }
            let least = if right < self.heap.len() && self.is_before(right, left) { right } else { left };
            if self.is_before(place, least) {
                return;
            }
            self.heap.swap(place, least);
            place = least;
        }
    }

    /// The record that is first among those that are left.
    fn record(&self) -> Option<&[u8]> {
        self.heap.first().map(|(_, reader)| self.readers[*reader].record())
    }

    /// Its parts.
    pub(super) fn parts(&self) -> Option<Parts<'_>> {
        self.heap.first().map(|(_, reader)| self.readers[*reader].parts())
    }

    /// Leaves that record behind.
    pub(super) async fn advance(&mut self) -> Result<()> {
        let Some((_, reader)) = self.heap.first() else { return Ok(()) };
        match self.readers[*reader].next().await? {
            Some(front) => self.heap[0].0 = front,
            None => drop(self.heap.swap_remove(0)),
        }
        self.settle(0);
        Ok(())
    }
}
