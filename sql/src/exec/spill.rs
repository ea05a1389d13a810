//! Rows beyond memory: sorted runs and their merge, and partitions, in files.
//!
//! ```text
//! rows ─► Sorter ── a run is full: handed over ─► pause: sorted, written ─► file
//!            └────────── all rows have come: merged, a block of each run in memory ─► rows in order
//! rows ─► Partitions ── a block is full: handed over ─► pause: written ─► file ─► the rows of each partition
//! run, partition: block, block, …    block: row, row, …    row: its values (exec/coded); of a run: its keys, then its values
//! ```
//!
//! Rules:
//! - A sorter keeps as much as its operator is granted ([`Grant`](crate::expr::memory::Grant)); with more rows its run is handed over to
//!   the statement's next pause ([`crate::expr::later`]), and counts as kept until it has been written.
//! - Equal rows stay in the order in which they came: within a run they are sorted so, and of two runs the earlier one goes first.
//! - The blocks of a merge take half of the grant at most: with more runs, some are merged into longer ones first.
//! - A database in memory has no files: there rows stay in memory, and are refused (53200) where the limit does not hold them.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::pin::Pin;
use std::rc::Rc;

use thermocline_engine::{SpillBlock, SpillFile};

use super::coded::Coder;
use super::sort::{order, sorted_places};
use super::{Flow, Row, emit};
use crate::error::{Error, Result};
use crate::expr::later::Task;
use crate::expr::memory::{Kept, size_of_row};
use crate::expr::{Context, Env};
use crate::plan::SortKey;
use crate::types::Datum;

/// Bytes of a run's block, but for its last row.
const BLOCK: usize = 64 << 10;
/// Runs that are merged at once, at least and at the most.
const FAN: (usize, usize) = (4, 64);
/// Partitions, and bytes of a block of theirs, but for its last row.
const PARTITIONS: usize = 16;
const PART_BLOCK: usize = 32 << 10;

/// A row with its keys.
type Keyed = (Row, Row);

/// Blocks, in order.
type Blocks = VecDeque<SpillBlock>;

/// A file with rows.
struct Spilled {
    file: SpillFile,
    coder: RefCell<Coder>,
    /// Bytes that the file may have.
    limit: Option<u64>,
}

impl Spilled {
    fn new(file: SpillFile, context: &Context) -> Rc<Self> {
        Rc::new(Self { file, coder: RefCell::default(), limit: context.grant.files })
    }

    /// Writes a block, which is empty then.
    async fn write(&self, block: &mut Vec<u8>, blocks: &mut Blocks) -> Result<()> {
        blocks.push_back(self.file.write(block).await?);
        block.clear();
        within_limit(&self.file, self.limit)
    }

    /// Appends a row to a block.
    fn code<'r>(&self, row: impl IntoIterator<Item = &'r Datum>, block: &mut Vec<u8>) {
        let mut coder = self.coder.borrow_mut();
        row.into_iter().for_each(|value| coder.write(value, block));
    }
}

/// Refuses a file that has more bytes than `temp_file_limit` lets a statement have.
pub(super) fn within_limit(file: &SpillFile, limit: Option<u64>) -> Result<()> {
    match limit {
        Some(limit) if file.bytes() > limit => {
            let message = format!("temporary file size exceeds \"temp_file_limit\" ({}kB)", limit >> 10);
            Err(Error::new("53400", message))
        }
        _ => Ok(()),
    }
}

/// Rows of blocks, one after the other.
pub(super) struct Reader {
    spilled: Rc<Spilled>,
    blocks: Blocks,
    block: Vec<u8>,
    /// Bytes of the block that have been read.
    at: usize,
    /// Values of a row.
    width: usize,
}

impl Reader {
    fn new(spilled: &Rc<Spilled>, blocks: Blocks, width: usize) -> Self {
        Self { spilled: Rc::clone(spilled), blocks, block: Vec::new(), at: 0, width }
    }

    pub(super) async fn next(&mut self) -> Result<Option<Row>> {
        if self.at == self.block.len() {
            let Some(block) = self.blocks.pop_front() else { return Ok(None) };
            self.block.clear();
            self.at = 0;
            self.spilled.file.read(&block, &mut self.block).await?;
        }
        let coder = self.spilled.coder.borrow();
        let mut rest = &self.block[self.at..];
        let row: Row = (0..self.width).map(|_| coder.read(&mut rest)).collect();
        self.at = self.block.len() - rest.len();
        Ok(Some(row))
    }
}

/// The runs of a sorter.
struct Runs {
    spilled: Rc<Spilled>,
    runs: RefCell<Vec<Blocks>>,
    keys: Vec<SortKey>,
    /// Values of a row with its keys.
    width: usize,
}

/// A run that is to be sorted and written, and the bytes that it is charged for.
struct Handed {
    rows: Vec<Keyed>,
    bytes: usize,
    runs: Rc<Runs>,
}

impl Task for Handed {
    fn run<'t>(self: Box<Self>, context: &'t Context) -> Pin<Box<dyn Future<Output = Result<()>> + 't>> {
        Box::pin(async move {
            let Self { mut rows, bytes, runs } = *self;
            let compare = |a: usize, b: usize| order(&runs.keys, &rows[a].0, &rows[b].0);
            let places = sorted_places(context, rows.len(), compare).await?;
            let (mut run, mut block) = (Blocks::new(), Vec::with_capacity(BLOCK + (4 << 10)));
            for place in places {
                let (key, row) = std::mem::take(&mut rows[place as usize]);
                runs.spilled.code(key.iter().chain(&row), &mut block);
                if block.len() >= BLOCK {
                    runs.spilled.write(&mut block, &mut run).await?;
                }
                if context.is_due() {
                    context.pause().await?;
                }
            }
            if !block.is_empty() {
                runs.spilled.write(&mut block, &mut run).await?;
            }
            runs.runs.borrow_mut().push(run);
            context.memory.give_back(bytes as u64);
            Ok(())
        })
    }
}

/// Rows that are to be sorted, as they come.
pub(super) struct Sorter<'e> {
    context: &'e Context,
    keys: &'e [SortKey],
    rows: Vec<Keyed>,
    kept: Kept<'e>,
    /// Bytes of the keys among those that are kept.
    key_bytes: usize,
    runs: Option<Rc<Runs>>,
    /// There are no files.
    stays: bool,
}

impl<'e> Sorter<'e> {
    pub(super) fn new(context: &'e Context, keys: &'e [SortKey]) -> Self {
        Self {
            context,
            keys,
            rows: Vec::new(),
            kept: context.memory.kept(),
            key_bytes: 0,
            runs: None,
            stays: false,
        }
    }

    /// Takes a row.
    pub(super) fn push(&mut self, row: &mut Row, outer: &[Datum]) -> Result<()> {
        let env = Env { row, outer, context: self.context };
        let key = self.keys.iter().map(|key| key.expr.eval(&env)).collect::<Result<Row>>()?;
        let key_bytes = size_of_row(&key);
        self.kept.add(size_of_row(row) + key_bytes)?;
        self.key_bytes += key_bytes;
        self.rows.push((key, std::mem::take(row)));
        // Where memory is short, less is kept than was granted.
        let short = self.context.memory.is_short() && self.kept.bytes() >= 16 * BLOCK as u64;
        if (short || self.kept.bytes() >= self.context.grant.operator) && !self.stays {
            self.hand_over()?;
        }
        Ok(())
    }

    fn hand_over(&mut self) -> Result<()> {
        let runs = match &self.runs {
            Some(runs) => Rc::clone(runs),
            None => {
                let Some(file) = self.context.memory.spill_file()? else {
                    self.stays = true;
                    return Ok(());
                };
                let runs = Runs {
                    spilled: Spilled::new(file, self.context),
                    runs: RefCell::default(),
                    keys: self.keys.to_vec(),
                    width: self.rows.first().map_or(0, |(key, row)| key.len() + row.len()),
                };
                Rc::clone(self.runs.insert(Rc::new(runs)))
            }
        };
        self.key_bytes = 0;
        let (rows, bytes) = (std::mem::take(&mut self.rows), self.kept.pass_on());
        self.context.do_later(Box::new(Handed { rows, bytes, runs }));
        Ok(())
    }

    /// Hands the rows over in their order, after the last one has come.
    pub(super) async fn finish(mut self, sink: &mut dyn FnMut(&mut Row) -> Flow) -> Result<()> {
        let context = self.context;
        let Some(runs) = self.runs.clone() else {
            let mut rows = std::mem::take(&mut self.rows);
            let compare = |a: usize, b: usize| order(self.keys, &rows[a].0, &rows[b].0);
            let places = sorted_places(context, rows.len(), compare).await?;
            // The rows may be kept by another operator from here on, and keys are of no more use.
            rows.iter_mut().for_each(|(key, _)| *key = Row::new());
            self.kept.remove(self.key_bytes);
            let rows = places.into_iter().map(|place| std::mem::take(&mut rows[place as usize].1));
            return emit(context, rows, sink).await;
        };
        if !self.rows.is_empty() {
            self.hand_over()?;
        }
        context.do_now().await?;
        let most = context.grant.operator / 2 / BLOCK as u64;
        let fan = usize::try_from(most).unwrap_or(FAN.1).clamp(FAN.0, FAN.1);
        while runs.runs.borrow().len() > fan {
            // The earliest ones, whose rows stay the earlier ones.
            let some: Vec<Blocks> = runs.runs.borrow_mut().drain(..fan).collect();
            let (mut longer, mut block) = (Blocks::new(), Vec::with_capacity(BLOCK + (4 << 10)));
            let mut merge = Merge::new(context, &runs, some).await?;
            while let Some((key, row)) = merge.next().await? {
                runs.spilled.code(key.iter().chain(&row), &mut block);
                if block.len() >= BLOCK {
                    runs.spilled.write(&mut block, &mut longer).await?;
                }
                if context.is_due() {
                    context.pause().await?;
                }
            }
            if !block.is_empty() {
                runs.spilled.write(&mut block, &mut longer).await?;
            }
            runs.runs.borrow_mut().insert(0, longer);
        }
        let all = runs.runs.take();
        let mut merge = Merge::new(context, &runs, all).await?;
        while let Some((_, mut row)) = merge.next().await? {
            if sink(&mut row)?.is_break() {
                break;
            }
            if context.is_due() {
                context.pause().await?;
            }
        }
        Ok(())
    }
}

/// The next row of a run.
struct Head<'k> {
    order: &'k [SortKey],
    key: Row,
    row: Row,
    reader: usize,
}

impl Ord for Head<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap has the greatest on top.
        order(self.order, &self.key, &other.key).then(self.reader.cmp(&other.reader)).reverse()
    }
}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head<'_> {}

/// Runs that become one.
struct Merge<'m> {
    keys: &'m [SortKey],
    readers: Vec<Reader>,
    heap: BinaryHeap<Head<'m>>,
    _kept: Kept<'m>,
}

impl<'m> Merge<'m> {
    async fn new(context: &'m Context, runs: &'m Runs, all: Vec<Blocks>) -> Result<Self> {
        let mut kept = context.memory.kept();
        kept.add(all.len() * BLOCK)?;
        let readers =
            all.into_iter().map(|run| Reader::new(&runs.spilled, run, runs.width)).collect::<Vec<_>>();
        let mut merge = Self { keys: &runs.keys, readers, heap: BinaryHeap::new(), _kept: kept };
        for reader in 0..merge.readers.len() {
            merge.advance(reader).await?;
        }
        Ok(merge)
    }

    /// Puts the next row of a run into the heap.
    async fn advance(&mut self, reader: usize) -> Result<()> {
        if let Some(mut key) = self.readers[reader].next().await? {
            let row = key.split_off(self.keys.len());
            self.heap.push(Head { order: self.keys, key, row, reader });
        }
        Ok(())
    }

    async fn next(&mut self) -> Result<Option<Keyed>> {
        let Some(Head { key, row, reader, .. }) = self.heap.pop() else { return Ok(None) };
        self.advance(reader).await?;
        Ok(Some((key, row)))
    }
}

/// Rows by a hash, in the order in which they came.
pub(super) struct Partitions {
    spilled: Rc<Spilled>,
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
    pub(super) fn new(file: SpillFile, context: &Context) -> Self {
        let written = Rc::new(RefCell::new(vec![Blocks::new(); PARTITIONS]));
        Self { spilled: Spilled::new(file, context), written, blocks: vec![Vec::new(); PARTITIONS], width: 0 }
    }

    /// Takes a row, as wide as those before it.
    pub(super) fn push(&mut self, hash: u64, row: &[Datum], context: &Context) {
        self.width = row.len();
        let part = (hash >> 32) as usize % PARTITIONS;
        self.spilled.code(row, &mut self.blocks[part]);
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
    pub(super) async fn finish(mut self, context: &Context) -> Result<Vec<Reader>> {
        for part in 0..PARTITIONS {
            if !self.blocks[part].is_empty() {
                self.hand_over(part, context);
            }
        }
        context.do_now().await?;
        let written = self.written.take();
        Ok(written.into_iter().map(|blocks| Reader::new(&self.spilled, blocks, self.width)).collect())
    }
}
