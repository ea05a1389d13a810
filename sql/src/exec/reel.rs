//! The rows of an answer that are kept until they are fetched: wound up in the order in which they came, read in any order.
//!
//! ```text
//! push ─► tail ── BLOCK bytes ─► block ── beyond the grant ─► the next pause: written ─► file
//! read(place) ─► the block that has the place (by its first one) ─► read from the file if it is there ─► the row
//! block, tail: row, row, …    row: the length of its values (LEB128), then these (exec/coded)
//! ```
//!
//! Rules:
//! - A reel charges its own memory, and borrows nothing of a statement or a transaction: it lives as long as its owner.
//! - The first blocks stay in memory, as many as an operator of the statement that fills it is granted
//!   ([`Grant`](crate::expr::memory::Grant)); those behind them, and all new ones once memory is short, go to a file.
//! - Rows come while the engine is pinned, so a block is written by the statement's next pause ([`crate::expr::later`]). [`Reel::settle`]
//!   writes the rest.
//! - A file goes with its reel. A database in memory has none: there all rows stay, and are refused (53200) where the limit does not
//!   hold them.
//! - Places of rows count from 1. Rows that [`Reel::forget`] was told of are not read again.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;

use thermocline_engine::{Database, SpillBlock};

use super::Row;
use super::coded::{Coder, read_unsigned, write_unsigned};
use super::spill::TempFile;
use crate::error::Result;
use crate::expr::Context;
use crate::expr::later::Task;
use crate::expr::memory::Memory;
use crate::types::Datum;

/// Bytes of a block, but for its last row.
const BLOCK: usize = 64 << 10;

/// Where the bytes of a block are.
enum BlockPlace {
    Here(Vec<u8>),
    /// A pause is to write them.
    Leaving,
    File(SpillBlock),
}

struct Block {
    /// The place of its first row.
    first: u64,
    /// Bytes that are charged for it.
    charged: usize,
    at: BlockPlace,
}

/// The blocks of a reel, which its pauses write.
struct Blocks {
    memory: Memory,
    file: RefCell<Option<Rc<TempFile>>>,
    /// Those that are not forgotten.
    all: RefCell<VecDeque<Block>>,
}

/// Bytes of rows, and where each of them begins.
#[derive(Default)]
struct Loaded {
    /// The place of its first row.
    first: u64,
    bytes: Vec<u8>,
    begins: Vec<u32>,
    charged: usize,
}

/// Rows that are kept. See the module.
pub(super) struct Reel {
    db: Database,
    blocks: Rc<Blocks>,
    coder: Coder,
    /// The last rows.
    tail: Loaded,
    /// The block that was read last.
    loaded: Option<Loaded>,
    /// Bytes of the blocks that stay in memory.
    here: u64,
    /// There are no files.
    stays: bool,
    /// A row as bytes.
    coded: Vec<u8>,
}

/// A block that is to be written.
struct FullBlock {
    blocks: Rc<Blocks>,
    file: Rc<TempFile>,
    first: u64,
    bytes: Vec<u8>,
}

impl Task for FullBlock {
    fn run<'t>(self: Box<Self>, _context: &'t Context) -> Pin<Box<dyn Future<Output = Result<()>> + 't>> {
        Box::pin(async move {
            let Self { blocks, file, first, bytes } = *self;
            let written = file.write(&bytes).await?;
            let mut all = blocks.all.borrow_mut();
            if let Some(block) = all.iter_mut().rev().find(|block| block.first == first) {
                block.at = BlockPlace::File(written);
                blocks.memory.give_back(std::mem::take(&mut block.charged) as u64);
            }
            file.count()
        })
    }
}

impl Blocks {
    fn new(db: &Database) -> Rc<Self> {
        Rc::new(Self { memory: Memory::new(db), file: RefCell::default(), all: RefCell::default() })
    }

    /// The number of the block that has this place; none: the rows behind all blocks.
    fn find(&self, place: u64) -> Option<usize> {
        self.all.borrow().partition_point(|block| block.first <= place).checked_sub(1)
    }

    /// The file, which counts as one of the statement that makes it; none: the database has no directory.
    fn file(&self, context: &Context) -> Result<Option<Rc<TempFile>>> {
        let mut file = self.file.borrow_mut();
        if file.is_none() {
            *file = TempFile::new(context)?;
        }
        Ok(file.clone())
    }
}

impl Loaded {
    fn new(first: u64, bytes: Vec<u8>, charged: usize) -> Self {
        let (mut begins, mut rest) = (Vec::new(), &bytes[..]);
        while !rest.is_empty() {
            begins.push(u32::try_from(bytes.len() - rest.len()).expect("a block has less than 4 GiB"));
            let length = usize::try_from(read_unsigned(&mut rest)).expect("it was a length");
            rest = &rest[length..];
        }
        Self { first, bytes, begins, charged }
    }

    /// The place behind its last row.
    fn end(&self) -> u64 {
        self.first + self.begins.len() as u64
    }

    fn has(&self, place: u64) -> bool {
        (self.first..self.end()).contains(&place)
    }

    fn row(&self, place: u64, coder: &Coder) -> Row {
        let number = usize::try_from(place - self.first).expect("its rows are in memory");
        let mut rest = &self.bytes[self.begins[number] as usize..];
        let length = usize::try_from(read_unsigned(&mut rest)).expect("it was a length");
        let mut rest = &rest[..length];
        let mut row = Row::new();
        while !rest.is_empty() {
            row.push(coder.read(&mut rest));
        }
        row
    }
}

impl Reel {
    pub(super) fn new(db: &Database) -> Self {
        Self {
            db: db.clone(),
            blocks: Blocks::new(db),
            coder: Coder::default(),
            tail: Loaded { first: 1, ..Loaded::default() },
            loaded: None,
            here: 0,
            stays: false,
            coded: Vec::new(),
        }
    }

    /// Forgets all rows: those that come are the first ones again.
    pub(super) fn clear(&mut self) {
        *self = Self::new(&self.db);
    }

    /// The place behind the last row.
    pub(super) fn end(&self) -> u64 {
        self.tail.end()
    }

    /// Takes a row.
    pub(super) fn push(&mut self, row: &[Datum], context: &Context) -> Result<()> {
        let is_charged = self.append(row);
        let is_full = self.tail.bytes.len() >= BLOCK;
        if is_full || is_charged.is_err() {
            self.cut(context, is_charged)?;
        }
        Ok(())
    }

    /// Takes a row into memory; an error: that is not charged.
    pub(super) fn append(&mut self, row: &[Datum]) -> Result<()> {
        self.coded.clear();
        row.iter().for_each(|value| self.coder.write(value, &mut self.coded));
        let tail = &mut self.tail;
        let before = tail.bytes.len();
        tail.begins.push(u32::try_from(before).expect("a block has less than 4 GiB"));
        write_unsigned(self.coded.len() as u64, &mut tail.bytes);
        tail.bytes.extend_from_slice(&self.coded);
        let bytes = tail.bytes.len() - before + size_of::<u32>();
        self.blocks.memory.keep(bytes as u64)?;
        tail.charged += bytes;
        Ok(())
    }

    /// Counts a row that is not kept, of a reel that keeps none.
    pub(super) fn pass_over(&mut self) {
        debug_assert!(self.tail.begins.is_empty() && self.blocks.all.borrow().is_empty(), "it keeps rows");
        self.tail.first += 1;
    }

    fn give_back_tail(&mut self) {
        self.tail.bytes.clear();
        self.tail.begins.clear();
        self.blocks.memory.give_back(std::mem::take(&mut self.tail.charged) as u64);
    }

    /// Makes a block of the tail, which stays in memory or leaves it.
    fn cut(&mut self, context: &Context, is_charged: Result<()>) -> Result<()> {
        let is_short = self.blocks.memory.is_short() || is_charged.is_err();
        let leaves = is_short || self.here + self.tail.charged as u64 > context.grant.operator;
        let file = if leaves && !self.stays { self.blocks.file(context)? } else { None };
        self.stays |= leaves && file.is_none();
        if file.is_none() {
            is_charged?;
        }
        let end = self.end();
        let tail = std::mem::replace(&mut self.tail, Loaded { first: end, ..Loaded::default() });
        let Loaded { first, mut bytes, charged, .. } = tail;
        let at = match file {
            Some(file) => {
                let blocks = Rc::clone(&self.blocks);
                context.do_later(Box::new(FullBlock { blocks, file, first, bytes }));
                BlockPlace::Leaving
            }
            None => {
                bytes.shrink_to_fit();
                self.here += charged as u64;
                BlockPlace::Here(bytes)
            }
        };
        self.blocks.all.borrow_mut().push_back(Block { first, charged, at });
        // What names a block is kept as long as the block.
        self.blocks.memory.keep(size_of::<Block>() as u64)
    }

    /// Writes what is to be written, and waits for the memory of the rest.
    pub(super) async fn settle(&mut self, context: &Context) -> Result<()> {
        context.do_now().await?;
        self.blocks.memory.settle().await?;
        self.blocks.memory.trim();
        Ok(())
    }

    /// The row at a place that is kept.
    pub(super) async fn row(&mut self, place: u64) -> Result<Row> {
        if self.tail.has(place) {
            return Ok(self.tail.row(place, &self.coder));
        }
        if !self.loaded.as_ref().is_some_and(|loaded| loaded.has(place)) {
            self.load(place).await?;
        }
        Ok(self.loaded.as_ref().expect("it was just loaded").row(place, &self.coder))
    }

    async fn load(&mut self, place: u64) -> Result<()> {
        let number = self.blocks.find(place).expect("the row is kept");
        let mut bytes = Vec::new();
        if let Some(last) = self.loaded.take() {
            self.blocks.memory.give_back(last.charged as u64);
            bytes = last.bytes;
            bytes.clear();
        }
        let (first, block) = {
            let all = self.blocks.all.borrow();
            let block = &all[number];
            let written = match &block.at {
                BlockPlace::Here(here) => {
                    bytes.extend_from_slice(here);
                    None
                }
                BlockPlace::File(written) => Some(*written),
                BlockPlace::Leaving => unreachable!("the statement that has filled the reel has settled it"),
            };
            (block.first, written)
        };
        if let Some(block) = block {
            let file = self.blocks.file.borrow().clone().expect("it has a block");
            file.read(&block, &mut bytes).await?;
        }
        let mut loaded = Loaded::new(first, bytes, 0);
        let charged = loaded.bytes.len() + size_of_val(&loaded.begins[..]);
        // A row that is there is shown, however short memory is.
        if self.blocks.memory.keep(charged as u64).is_ok() {
            loaded.charged = charged;
        }
        self.loaded = Some(loaded);
        Ok(())
    }

    /// Gives back what stands before this place.
    pub(super) fn forget(&mut self, place: u64) {
        let mut all = self.blocks.all.borrow_mut();
        loop {
            let end = all.get(1).map_or(self.tail.first, |next| next.first);
            let Some(block) = all.front().filter(|_| end <= place) else { break };
            let bytes = block.charged + size_of::<Block>();
            if matches!(block.at, BlockPlace::Here(_)) {
                self.here -= block.charged as u64;
            }
            self.blocks.memory.give_back(bytes as u64);
            all.pop_front();
        }
        drop(all);
        if let Some(loaded) = self.loaded.take_if(|loaded| loaded.end() <= place) {
            self.blocks.memory.give_back(loaded.charged as u64);
        }
        if place >= self.end() {
            let end = self.end();
            self.give_back_tail();
            self.tail.first = end;
        }
        self.blocks.memory.trim();
    }
}
