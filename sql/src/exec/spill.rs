//! Files of a statement, and rows beyond memory that are parted by a hash.
//!
//! ```text
//! rows ─► Partitions ── a block is full: handed over ─► pause: written ─► file ─► the rows of each partition
//! partition: block, block, …    block: row, row, …    row: its values (exec/coded)
//! ```
//!
//! A database in memory has no files: there rows stay in memory, and are refused (53200) where the limit does not hold them. Sorted runs
//! stand in `sorter`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

use thermocline_engine::{SpillBlock, SpillFile};

use super::Row;
use super::coded::{Coder, Raw};
use crate::error::{Error, Result};
use crate::expr::Context;
use crate::expr::later::Task;
use crate::types::Datum;

/// Partitions, and bytes of a block of theirs, but for its last row: at least, and at the most.
const PARTITIONS: usize = 16;
const PART_BLOCK: (u64, u64) = (32 << 10, 128 << 10);
/// Levels of partitions of partitions.
const LEVELS: u32 = 4;
/// Writes that are under way at once.
const WRITES: usize = 8;

type Pending<T> = Pin<Box<dyn Future<Output = Result<T>>>>;

/// Begins an operation; none: it goes on.
fn begin<T>(operation: &mut Pending<T>) -> Option<Result<T>> {
    match operation.as_mut().poll(&mut std::task::Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

/// Blocks, in order; those that are being written have a place already.
#[derive(Clone, Default)]
pub(super) struct Blocks(Rc<RefCell<VecDeque<Option<SpillBlock>>>>);

impl Blocks {
    fn take_first(&self) -> Option<SpillBlock> {
        let first = self.0.borrow_mut().pop_front()?;
        Some(first.expect("all were written before the first is read"))
    }
}

/// A file of a statement, whose bytes count among those that `temp_file_limit` lets its files have together.
pub(super) struct TempFile {
    file: SpillFile,
    limit: Option<u64>,
    /// Bytes of all files of the statement, and those of this one among them.
    all: Rc<Cell<u64>>,
    counted: Cell<u64>,
}

impl TempFile {
    /// A new one; none: the database has no directory.
    pub(super) fn new(context: &Context) -> Result<Option<Rc<Self>>> {
        let Some(file) = context.memory.spill_file()? else { return Ok(None) };
        let (limit, all) = (context.grant.files, Rc::clone(&context.memory.files));
        Ok(Some(Rc::new(Self { file, limit, all, counted: Cell::new(0) })))
    }

    pub(super) async fn write(&self, bytes: &[u8]) -> Result<SpillBlock> {
        Ok(self.file.write(bytes).await?)
    }

    pub(super) async fn read(&self, block: &SpillBlock, into: &mut Vec<u8>) -> Result<()> {
        Ok(self.file.read(block, into).await?)
    }

    /// Counts what the file has now, and refuses what is too much.
    pub(super) fn count(&self) -> Result<()> {
        let bytes = self.file.bytes();
        let all = self.all.get() + bytes - self.counted.replace(bytes);
        self.all.set(all);
        match self.limit {
            Some(limit) if all > limit => {
                let message = format!("temporary file size exceeds \"temp_file_limit\" ({}kB)", limit >> 10);
                Err(Error::new("53400", message))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        self.all.set(self.all.get() - self.counted.get());
    }
}

/// A file with rows.
pub(super) struct Spilled {
    file: Rc<TempFile>,
    writes: RefCell<VecDeque<Pending<()>>>,
}

impl Spilled {
    /// A new one; none: the database has no directory.
    pub(super) fn new(context: &Context) -> Result<Option<Rc<Self>>> {
        let file = TempFile::new(context)?;
        Ok(file.map(|file| Rc::new(Self { file, writes: RefCell::default() })))
    }

    /// Begins to write a block, when few enough are being written.
    pub(super) async fn write(&self, block: Vec<u8>, blocks: &Blocks) -> Result<()> {
        let place = blocks.0.borrow().len();
        blocks.0.borrow_mut().push_back(None);
        let (file, blocks) = (Rc::clone(&self.file), blocks.clone());
        let mut write: Pending<()> = Box::pin(async move {
            let written = file.write(&block).await?;
            blocks.0.borrow_mut()[place] = Some(written);
            Ok(())
        });
        match begin(&mut write) {
            Some(outcome) => outcome?,
            None => self.writes.borrow_mut().push_back(write),
        }
        self.wait(WRITES).await?;
        self.file.count()
    }

    /// Waits until so many writes are under way at the most.
    async fn wait(&self, most: usize) -> Result<()> {
        loop {
            let oldest = {
                let mut writes = self.writes.borrow_mut();
                if writes.len() <= most {
                    return Ok(());
                }
                writes.pop_front()
            };
            if let Some(oldest) = oldest {
                oldest.await?;
            }
        }
    }

    /// Waits for all writes.
    pub(super) async fn settle(&self) -> Result<()> {
        self.wait(0).await
    }
}

/// Blocks that are read in their order, the next one ahead.
pub(super) struct BlockReader {
    file: Rc<TempFile>,
    blocks: Blocks,
    ahead: Option<Ahead>,
}

enum Ahead {
    There(Result<Vec<u8>>),
    Pending(Pending<Vec<u8>>),
}

impl BlockReader {
    pub(super) fn new(spilled: &Spilled, blocks: Blocks) -> Self {
        Self { file: Rc::clone(&spilled.file), blocks, ahead: None }
    }

    fn begin(&mut self) {
        let Some(block) = self.blocks.take_first() else { return };
        let file = Rc::clone(&self.file);
        let mut read: Pending<Vec<u8>> = Box::pin(async move {
            let mut bytes = Vec::with_capacity(block.bytes());
            file.read(&block, &mut bytes).await?;
            Ok(bytes)
        });
        self.ahead = Some(match begin(&mut read) {
            Some(outcome) => Ahead::There(outcome),
            None => Ahead::Pending(read),
        });
    }

    /// The next block, in place of what stands in `block`; `false`: there is none, and nothing is changed.
    pub(super) async fn next(&mut self, block: &mut Vec<u8>) -> Result<bool> {
        if self.ahead.is_none() {
            self.begin();
        }
        *block = match self.ahead.take() {
            None => return Ok(false),
            Some(Ahead::There(outcome)) => outcome?,
            Some(Ahead::Pending(read)) => read.await?,
        };
        self.begin();
        Ok(true)
    }
}

/// Rows of blocks, one after the other.
pub(super) struct Reader {
    blocks: BlockReader,
    coder: Rc<RefCell<Coder>>,
    block: Vec<u8>,
    /// Bytes of the block that have been read.
    at: usize,
    /// Values of a row.
    width: usize,
}

impl Reader {
    /// Reads the next block where this one is at its end; `false`: there is none.
    async fn has_more(&mut self) -> Result<bool> {
        if self.at == self.block.len() {
            if !self.blocks.next(&mut self.block).await? {
                return Ok(false);
            }
            self.at = 0;
        }
        Ok(true)
    }

    pub(super) async fn next(&mut self) -> Result<Option<Row>> {
        if !self.has_more().await? {
            return Ok(None);
        }
        let coder = self.coder.borrow();
        let mut rest = &self.block[self.at..];
        let row: Row = (0..self.width).map(|_| coder.read(&mut rest)).collect();
        self.at = self.block.len() - rest.len();
        Ok(Some(row))
    }

    /// Hands the values of some rows to `take`, one after the other, with the number of each one's column; `0`: there are no rows.
    pub(super) async fn next_some(&mut self, take: &mut dyn FnMut(usize, Raw<'_>)) -> Result<usize> {
        if !self.has_more().await? {
            return Ok(0);
        }
        let coder = self.coder.borrow();
        let (mut rest, mut rows) = (&self.block[self.at..], 0);
        while !rest.is_empty() {
            (0..self.width).for_each(|column| take(column, coder.read_raw(&mut rest)));
            rows += 1;
        }
        self.at = self.block.len();
        Ok(rows)
    }

    /// Values of a row.
    pub(super) fn width(&self) -> usize {
        self.width
    }
}

/// Rows by a hash, in the order in which they came.
struct Partitions {
    spilled: Rc<Spilled>,
    coder: Rc<RefCell<Coder>>,
    written: Vec<Blocks>,
    blocks: Vec<Vec<u8>>,
    block_bytes: usize,
    width: usize,
}

/// A block that is to be written.
struct FullBlock {
    spilled: Rc<Spilled>,
    blocks: Blocks,
    block: Vec<u8>,
}

impl Task for FullBlock {
    fn run<'t>(self: Box<Self>, _context: &'t Context) -> Pin<Box<dyn Future<Output = Result<()>> + 't>> {
        Box::pin(async move { self.spilled.write(self.block, &self.blocks).await })
    }
}

impl Partitions {
    fn new(spilled: Rc<Spilled>, context: &Context) -> Self {
        let (mut written, mut blocks) = (Vec::new(), Vec::new());
        written.resize_with(PARTITIONS, Blocks::default);
        blocks.resize_with(PARTITIONS, Vec::new);
        let block_bytes = (context.grant.operator / 64).clamp(PART_BLOCK.0, PART_BLOCK.1) as usize;
        Self { spilled, coder: Rc::default(), written, blocks, block_bytes, width: 0 }
    }

    /// Takes a row of so many values, which `write` appends to a block. All are of one width.
    fn push(
        &mut self,
        (hash, width): (u64, usize),
        write: impl FnOnce(&mut Coder, &mut Vec<u8>),
        context: &Context,
    ) {
        self.width = width;
        let part = (hash >> 32) as usize % PARTITIONS;
        write(&mut self.coder.borrow_mut(), &mut self.blocks[part]);
        if self.blocks[part].len() >= self.block_bytes {
            self.hand_over(part, context);
        }
    }

    fn hand_over(&mut self, part: usize, context: &Context) {
        let block = std::mem::take(&mut self.blocks[part]);
        let (spilled, blocks) = (Rc::clone(&self.spilled), self.written[part].clone());
        context.do_later(Box::new(FullBlock { spilled, blocks, block }));
    }

    /// The rows of each partition, after the last one has come.
    async fn finish(mut self, context: &Context) -> Result<Vec<Reader>> {
        for part in 0..PARTITIONS {
            if !self.blocks[part].is_empty() {
                self.hand_over(part, context);
            }
        }
        context.do_now().await?;
        self.spilled.settle().await?;
        let written = std::mem::take(&mut self.written);
        let reader = |blocks| Reader {
            blocks: BlockReader::new(&self.spilled, blocks),
            coder: Rc::clone(&self.coder),
            block: Vec::new(),
            at: 0,
            width: self.width,
        };
        Ok(written.into_iter().map(reader).collect())
    }
}

/// Rows that an operator leaves for later, since what it keeps is more than its grant: parted by the hash of their keys, so that each
/// partition can be worked on alone. A partition that is too large itself is parted anew by another hash, down to [`LEVELS`] levels;
/// below, and where there are no files, nothing is left.
pub(super) struct Beyond {
    level: u32,
    hasher: RandomState,
    /// None: there is room yet.
    partitions: Option<Partitions>,
    /// There are no files, or levels.
    stays: bool,
}

impl Beyond {
    pub(super) fn new() -> Self {
        Self { level: 0, hasher: RandomState::new(), partitions: None, stays: false }
    }

    /// One that nothing is left for.
    pub(super) fn none() -> Self {
        Self { stays: true, ..Self::new() }
    }

    /// One for the rows of a partition.
    pub(super) fn below(&self) -> Self {
        let level = self.level + 1;
        Self { level, stays: level >= LEVELS, ..Self::new() }
    }

    /// One whose partitions have the rows with the same hashes; it has begun if this one has.
    pub(super) fn twin(&self, context: &Context) -> Result<Self> {
        let mut twin = Self { hasher: self.hasher.clone(), partitions: None, ..*self };
        if self.has_begun() {
            twin.begin(context)?;
        }
        Ok(twin)
    }

    pub(super) fn has_begun(&self) -> bool {
        self.partitions.is_some()
    }

    fn begin(&mut self, context: &Context) -> Result<()> {
        match Spilled::new(context)? {
            Some(spilled) => self.partitions = Some(Partitions::new(spilled, context)),
            None => self.stays = true,
        }
        Ok(())
    }

    /// True if no more may be kept: so many bytes are.
    pub(super) fn begins(&mut self, kept: u64, context: &Context) -> Result<bool> {
        let is_short = context.memory.is_short() && kept >= 1 << 20;
        if !self.has_begun() && !self.stays && (is_short || kept >= context.grant.operator) {
            self.begin(context)?;
        }
        Ok(self.has_begun())
    }

    /// Takes a row with this key.
    pub(super) fn push(&mut self, key: &[Datum], row: &[Datum], context: &Context) {
        let mut hasher = self.hasher.build_hasher();
        key.iter().for_each(|value| value.hash(&mut hasher));
        let write =
            |coder: &mut Coder, block: &mut Vec<u8>| row.iter().for_each(|value| coder.write(value, block));
        self.push_by((hasher.finish(), row.len()), write, context);
    }

    /// Begins the hash of a key.
    pub(super) fn hasher(&self) -> impl Hasher + use<> {
        self.hasher.build_hasher()
    }

    /// Takes a row whose key has this hash, of so many values, which `write` appends to a block.
    pub(super) fn push_by(
        &mut self,
        hash_and_width: (u64, usize),
        write: impl FnOnce(&mut Coder, &mut Vec<u8>),
        context: &Context,
    ) {
        self.partitions.as_mut().expect("it has begun").push(hash_and_width, write, context);
    }

    /// The rows of each partition, after the last one has come.
    pub(super) async fn parts(self, context: &Context) -> Result<Vec<Reader>> {
        match self.partitions {
            Some(partitions) => partitions.finish(context).await,
            None => Ok(Vec::new()),
        }
    }
}
