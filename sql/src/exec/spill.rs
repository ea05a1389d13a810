//! Files of a statement, and rows beyond memory that are parted by a hash.
//!
//! ```text
//! rows ─► Partitions ── a block is full: handed over ─► pause: written ─► file ─► the rows of each partition
//! partition: block, block, …    block: row, row, …    row: its values (exec/coded)
//! ```
//!
//! A database in memory has no files: there rows stay in memory, and are refused (53200) where the limit does not hold them. Sorted runs
//! stand in `sorter`.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::pin::Pin;
use std::rc::Rc;

use thermocline_engine::{SpillBlock, SpillFile};

use super::Row;
use super::coded::{Coder, Raw};
use crate::error::{Error, Result};
use crate::expr::Context;
use crate::expr::later::Task;
use crate::types::Datum;

/// Partitions, and bytes of a block of theirs, but for its last row.
const PARTITIONS: usize = 16;
const PART_BLOCK: usize = 32 << 10;
/// Levels of partitions of partitions.
const LEVELS: u32 = 4;

/// Blocks, in order.
pub(super) type Blocks = VecDeque<SpillBlock>;

/// A file with rows.
pub(super) struct Spilled {
    file: SpillFile,
    /// Bytes that the file may have.
    limit: Option<u64>,
}

impl Spilled {
    pub(super) fn new(file: SpillFile, context: &Context) -> Rc<Self> {
        Rc::new(Self { file, limit: context.grant.files })
    }

    /// Writes a block, which is empty then.
    pub(super) async fn write(&self, block: &mut Vec<u8>, blocks: &mut Blocks) -> Result<()> {
        blocks.push_back(self.file.write(block).await?);
        block.clear();
        match self.limit {
            Some(limit) if self.file.bytes() > limit => {
                let message = format!("temporary file size exceeds \"temp_file_limit\" ({}kB)", limit >> 10);
                Err(Error::new("53400", message))
            }
            _ => Ok(()),
        }
    }

    /// Reads a block.
    pub(super) async fn read(&self, block: &SpillBlock, to: &mut Vec<u8>) -> Result<()> {
        to.clear();
        Ok(self.file.read(block, to).await?)
    }
}

/// Rows of blocks, one after the other.
pub(super) struct Reader {
    spilled: Rc<Spilled>,
    coder: Rc<RefCell<Coder>>,
    blocks: Blocks,
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
            let Some(block) = self.blocks.pop_front() else { return Ok(false) };
            self.at = 0;
            self.spilled.read(&block, &mut self.block).await?;
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
    written: Rc<RefCell<Vec<Blocks>>>,
    blocks: Vec<Vec<u8>>,
    width: usize,
}

/// A block that is to be written.
struct FullBlock {
    spilled: Rc<Spilled>,
    written: Rc<RefCell<Vec<Blocks>>>,
    part: usize,
    block: Vec<u8>,
}

impl Task for FullBlock {
    fn run<'t>(self: Box<Self>, _context: &'t Context) -> Pin<Box<dyn Future<Output = Result<()>> + 't>> {
        Box::pin(async move {
            let Self { spilled, written, part, mut block } = *self;
            let mut blocks = Blocks::new();
            spilled.write(&mut block, &mut blocks).await?;
            written.borrow_mut()[part].append(&mut blocks);
            Ok(())
        })
    }
}

impl Partitions {
    fn new(file: SpillFile, context: &Context) -> Self {
        let written = Rc::new(RefCell::new(vec![Blocks::new(); PARTITIONS]));
        let (spilled, coder) = (Spilled::new(file, context), Rc::default());
        Self { spilled, coder, written, blocks: vec![Vec::new(); PARTITIONS], width: 0 }
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
        if self.blocks[part].len() >= PART_BLOCK {
            self.hand_over(part, context);
        }
    }

    fn hand_over(&mut self, part: usize, context: &Context) {
        let block = std::mem::take(&mut self.blocks[part]);
        let (spilled, written) = (Rc::clone(&self.spilled), Rc::clone(&self.written));
        context.do_later(Box::new(FullBlock { spilled, written, part, block }));
    }

    /// The rows of each partition, after the last one has come.
    async fn finish(mut self, context: &Context) -> Result<Vec<Reader>> {
        for part in 0..PARTITIONS {
            if !self.blocks[part].is_empty() {
                self.hand_over(part, context);
            }
        }
        context.do_now().await?;
        let written = self.written.take();
        let reader = |blocks| Reader {
            spilled: Rc::clone(&self.spilled),
            coder: Rc::clone(&self.coder),
            blocks,
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
        match context.memory.spill_file()? {
            Some(file) => self.partitions = Some(Partitions::new(file, context)),
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
