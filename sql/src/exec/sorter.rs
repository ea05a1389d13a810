//! ORDER BY: rows in an order, as many as there are.
//!
//! ```text
//! row ─► record ─► pieces of memory, an entry each ── beyond the grant: handed over ─► pause: sorted, written ─► run in a file
//!                        └─► all have come: entries sorted ─► rows            or all runs merged, a block of each in memory ─► rows
//! record: length of the key │ length of the row │ key (types/order_bytes: compares as bytes) │ row: its values (exec/coded)
//! entry: the first bytes of the key │ piece and place of the record
//! ```
//!
//! Rules:
//! - A sorter keeps as much as its operator is granted ([`Grant`](crate::expr::memory::Grant)); with more rows its run is handed over to
//!   the statement's next pause ([`crate::expr::later`]), and counts as kept until it has been written.
//! - Equal rows stay in the order in which they came: in a run by their places, and of two runs the earlier one goes first.
//! - The blocks of a merge take half of the grant at most: with more runs, some are merged into longer ones first.
//! - Where there are no files rows stay in memory, and are refused (53200) where the limit does not hold them.

use std::borrow::Cow;
use std::cell::RefCell;
use std::cmp::Ordering;
use std::pin::Pin;
use std::rc::Rc;

use super::coded::Coder;
use super::spill::{BlockReader, Blocks, Spilled};
use super::{Flow, Row};
use crate::error::Result;
use crate::expr::later::Task;
use crate::expr::memory::Kept;
use crate::expr::{Context, Env};
use crate::plan::SortKey;
use crate::types::{Datum, order_bytes};

/// Bytes of a run's block, but for its last record: at least, and at the most.
const BLOCK: (u64, u64) = (32 << 10, 256 << 10);
/// Runs that are merged at once, at least and at the most.
const FAN: (usize, usize) = (4, 64);
/// Bytes of the first piece, and of all further ones at the most, but for a record that is larger.
const PIECE: (usize, usize) = (1 << 10, 256 << 10);
/// Bytes of a record's lengths.
const LENGTHS: usize = 8;
/// Entries that are sorted at once.
const TURN: usize = 2048;
/// Entries or records between two looks at the turn.
const LOOK: usize = 32;

/// Appends a key: bytes whose order is that of rows with such keys.
fn write_key(keys: &[SortKey], values: impl Iterator<Item = Result<Datum>>, to: &mut Vec<u8>) -> Result<()> {
    for (key, value) in keys.iter().zip(values) {
        let value = value?;
        if value.is_null() {
            to.push(if key.nulls_first { 0 } else { 2 });
            continue;
        }
        to.push(1);
        let begin = to.len();
        order_bytes::write(&value, to);
        if key.descending {
            to[begin..].iter_mut().for_each(|byte| *byte = !*byte);
        }
    }
    Ok(())
}

/// The first bytes of a key, as numbers that compare as they do.
type Front = (u64, u64);

fn front(key: &[u8]) -> Front {
    let word = |from: usize| {
        let mut bytes = [0; 8];
        let some = key.get(from..).unwrap_or_default();
        let count = some.len().min(8);
        bytes[..count].copy_from_slice(&some[..count]);
        u64::from_be_bytes(bytes)
    };
    (word(0), word(8))
}

/// A length in a record.
fn length(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes).expect("values have a gigabyte at the most").to_le_bytes()
}

/// The key and the row of the record that bytes begin with.
fn parts(record: &[u8]) -> (&[u8], &[u8]) {
    let length = |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().expect("four bytes")) as usize;
    let (key, row) = (length(0), length(4));
    (&record[LENGTHS..LENGTHS + key], &record[LENGTHS + key..LENGTHS + key + row])
}

/// A record in memory.
#[derive(Clone, Copy)]
struct Entry {
    front: Front,
    piece: u32,
    at: u32,
}

/// Bytes that an entry takes: the list doubles, and is copied while it is sorted.
const ENTRY_BYTES: usize = 3 * size_of::<Entry>();

/// Records in memory.
#[derive(Default)]
struct Records {
    pieces: Vec<Vec<u8>>,
    entries: Vec<Entry>,
    /// Pieces of records that have been written, all of [`PIECE`]'s greatest size.
    spare: Rc<RefCell<Vec<Vec<u8>>>>,
}

impl Records {
    /// Takes a record, and returns the bytes that it takes beside those of the pieces before.
    fn push(&mut self, record: &[u8]) -> usize {
        let mut bytes = ENTRY_BYTES;
        if self.pieces.last().is_none_or(|piece| piece.capacity() - piece.len() < record.len()) {
            let wanted = self.pieces.last().map_or(PIECE.0, |last| (last.capacity() * 2).min(PIECE.1));
            let size = wanted.max(record.len());
            let spare = if size == PIECE.1 { self.spare.borrow_mut().pop() } else { None };
            self.pieces.push(spare.unwrap_or_else(|| Vec::with_capacity(size)));
            bytes += size;
        }
        let number = self.pieces.len() - 1;
        let piece = &mut self.pieces[number];
        let at = u32::try_from(piece.len()).expect("a piece is shorter");
        piece.extend_from_slice(record);
        let front = front(parts(record).0);
        self.entries.push(Entry { front, piece: u32::try_from(number).expect("pieces of a kilobyte"), at });
        bytes
    }

    fn record(&self, entry: &Entry) -> &[u8] {
        &self.pieces[entry.piece as usize][entry.at as usize..]
    }

    fn order(&self, a: &Entry, b: &Entry) -> Ordering {
        let key = |entry: &Entry| parts(self.record(entry)).0;
        let place = |entry: &Entry| (entry.piece, entry.at);
        a.front.cmp(&b.front).then_with(|| key(a).cmp(key(b))).then_with(|| place(a).cmp(&place(b)))
    }

    /// Leaves the memory of the pieces to the records that come.
    fn give_up(self) {
        let pieces = self.pieces.into_iter().filter(|piece| piece.capacity() == PIECE.1);
        self.spare.borrow_mut().extend(pieces.map(|mut piece| {
            piece.clear();
            piece
        }));
    }

    /// Sorts the entries, in turns.
    async fn sort(&mut self, context: &Context) -> Result<()> {
        let mut entries = std::mem::take(&mut self.entries);
        for run in entries.chunks_mut(TURN) {
            run.sort_unstable_by(|a, b| self.order(a, b));
            if context.is_due_after(TURN) {
                context.pause().await?;
            }
        }
        let (mut width, mut merged) = (TURN, Vec::with_capacity(entries.len()));
        while width < entries.len() {
            merged.clear();
            for pair in entries.chunks(2 * width) {
                let (mut left, mut right) = pair.split_at(width.min(pair.len()));
                while let (Some(a), Some(b)) = (left.first(), right.first()) {
                    if self.order(a, b).is_lt() {
                        merged.push(*a);
                        left = &left[1..];
                    } else {
                        merged.push(*b);
                        right = &right[1..];
                    }
                    if merged.len().is_multiple_of(LOOK) && context.is_due_after(LOOK) {
                        context.pause().await?;
                    }
                }
                merged.extend_from_slice(left);
                merged.extend_from_slice(right);
            }
            std::mem::swap(&mut entries, &mut merged);
            width *= 2;
        }
        self.entries = entries;
        Ok(())
    }
}

/// The runs of a sorter.
struct Runs {
    spilled: Rc<Spilled>,
    runs: RefCell<Vec<Blocks>>,
    block_bytes: usize,
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

    async fn push(&mut self, key: &[u8], row: &[u8]) -> Result<()> {
        if self.block.capacity() == 0 {
            self.block.reserve(self.to.block_bytes + (4 << 10));
        }
        for part in [key, row] {
            self.block.extend_from_slice(&length(part.len()));
        }
        self.block.extend_from_slice(key);
        self.block.extend_from_slice(row);
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
struct Handed {
    records: Records,
    bytes: usize,
    runs: Rc<Runs>,
}

impl Task for Handed {
    fn run<'t>(self: Box<Self>, context: &'t Context) -> Pin<Box<dyn Future<Output = Result<()>> + 't>> {
        Box::pin(async move {
            let Self { mut records, bytes, runs } = *self;
            records.sort(context).await?;
            let mut writer = Writer::new(&runs);
            for (place, entry) in records.entries.iter().enumerate() {
                let (key, row) = parts(records.record(entry));
                writer.push(key, row).await?;
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

/// Rows that are to be sorted, as they come.
pub(super) struct Sorter<'e> {
    context: &'e Context,
    keys: Cow<'e, [SortKey]>,
    coder: Coder,
    /// Values of a row.
    width: usize,
    /// The record of a row that has come.
    record: Vec<u8>,
    records: Records,
    kept: Kept<'e>,
    runs: Option<Rc<Runs>>,
    /// There are no files.
    stays: bool,
}

impl<'e> Sorter<'e> {
    pub(super) fn new(context: &'e Context, keys: impl Into<Cow<'e, [SortKey]>>) -> Self {
        Self {
            context,
            keys: keys.into(),
            coder: Coder::default(),
            width: 0,
            record: Vec::new(),
            records: Records::default(),
            kept: context.memory.kept(),
            runs: None,
            stays: false,
        }
    }

    /// Takes a row, as wide as those before it.
    pub(super) fn push(&mut self, row: &[Datum], outer: &[Datum]) -> Result<()> {
        let env = Env { row, outer, context: self.context };
        self.width = row.len();
        self.record.clear();
        self.record.resize(LENGTHS, 0);
        write_key(&self.keys, self.keys.iter().map(|key| key.expr.eval(&env)), &mut self.record)?;
        let key = self.record.len() - LENGTHS;
        row.iter().for_each(|value| self.coder.write(value, &mut self.record));
        let length =
            |bytes: usize| u32::try_from(bytes).expect("values have a gigabyte at the most").to_le_bytes();
        let rest = self.record.len() - LENGTHS - key;
        self.record[..4].copy_from_slice(&length(key));
        self.record[4..LENGTHS].copy_from_slice(&length(rest));
        let bytes = self.records.push(&self.record);
        self.kept.add(bytes)?;
        // Where memory is short, less is kept than was granted.
        let short = self.context.memory.is_short() && self.kept.bytes() >= 1 << 20;
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
                let block_bytes = (self.context.grant.operator / 64).clamp(BLOCK.0, BLOCK.1) as usize;
                let spilled = Spilled::new(file, self.context);
                let runs = Runs { spilled, runs: RefCell::default(), block_bytes };
                Rc::clone(self.runs.insert(Rc::new(runs)))
            }
        };
        let next = Records { spare: Rc::clone(&self.records.spare), ..Records::default() };
        let (records, bytes) = (std::mem::replace(&mut self.records, next), self.kept.pass_on());
        self.context.do_later(Box::new(Handed { records, bytes, runs }));
        Ok(())
    }

    /// Hands the rows over in their order, after the last one has come.
    pub(super) async fn finish(self, sink: &mut dyn FnMut(&mut Row) -> Flow) -> Result<()> {
        let context = self.context;
        let mut sorted = self.sorted().await?;
        let mut row = Row::new();
        while sorted.next(&mut row).await? {
            if sink(&mut row)?.is_break() {
                break;
            }
            if context.is_due() {
                context.pause().await?;
            }
        }
        Ok(())
    }

    /// The rows in their order, after the last one has come.
    pub(super) async fn sorted(mut self) -> Result<Sorted<'e>> {
        let context = self.context;
        let Some(runs) = self.runs.clone() else {
            self.records.sort(context).await?;
            let from = From::Memory { records: self.records, next: 0, _kept: self.kept };
            return Ok(Sorted { coder: self.coder, width: self.width, from });
        };
        if !self.records.entries.is_empty() {
            self.hand_over()?;
        }
        context.do_now().await?;
        self.records.spare.borrow_mut().clear();
        // Each run has a block that is read, and one ahead.
        let most = context.grant.operator / 4 / runs.block_bytes as u64;
        let fan = usize::try_from(most).unwrap_or(FAN.1).clamp(FAN.0, FAN.1);
        while runs.runs.borrow().len() > fan {
            // The earliest ones, whose rows stay the earlier ones.
            let some: Vec<Blocks> = runs.runs.borrow_mut().drain(..fan).collect();
            let mut merge = Merge::new(context, &runs, some).await?;
            let mut writer = Writer::new(&runs);
            while let Some((key, row)) = merge.first() {
                writer.push(key, row).await?;
                merge.advance().await?;
                if context.is_due() {
                    context.pause().await?;
                }
            }
            let longer = writer.finish().await?;
            runs.runs.borrow_mut().insert(0, longer);
        }
        let merge = Merge::new(context, &runs, runs.runs.take()).await?;
        Ok(Sorted { coder: self.coder, width: self.width, from: From::Runs(merge) })
    }
}

/// Rows in their order.
pub(super) struct Sorted<'e> {
    coder: Coder,
    width: usize,
    from: From<'e>,
}

enum From<'e> {
    Memory { records: Records, next: usize, _kept: Kept<'e> },
    Runs(Merge<'e>),
}

impl Sorted<'_> {
    /// The next row, in place of what stands in `row`; `false`: there is none.
    pub(super) async fn next(&mut self, row: &mut Row) -> Result<bool> {
        row.clear();
        let mut read = |mut bytes: &[u8]| {
            row.reserve(self.width);
            row.extend((0..self.width).map(|_| self.coder.read(&mut bytes)));
        };
        match &mut self.from {
            From::Memory { records, next, .. } => {
                let Some(entry) = records.entries.get(*next) else { return Ok(false) };
                read(parts(records.record(entry)).1);
                *next += 1;
            }
            From::Runs(merge) => {
                let Some((_, bytes)) = merge.first() else { return Ok(false) };
                read(bytes);
                merge.advance().await?;
            }
        }
        Ok(true)
    }
}

/// The records of a run, one after the other.
struct RunReader {
    blocks: BlockReader,
    block: Vec<u8>,
    /// Where the record stands in the block.
    at: usize,
    front: Front,
}

impl RunReader {
    fn record(&self) -> (&[u8], &[u8]) {
        parts(&self.block[self.at..])
    }

    /// Goes to the record at this place of the block, or to the first one of the next block; `false`: there is none.
    async fn go(&mut self, at: usize) -> Result<bool> {
        self.at = at;
        if at == self.block.len() {
            if !self.blocks.next(&mut self.block).await? {
                return Ok(false);
            }
            self.at = 0;
        }
        self.front = front(self.record().0);
        Ok(true)
    }
}

/// Runs that become one.
struct Merge<'m> {
    readers: Vec<RunReader>,
    /// Readers that have a record: none of them is behind those at twice its place and one or two more.
    heap: Vec<usize>,
    _kept: Kept<'m>,
}

impl<'m> Merge<'m> {
    async fn new(context: &'m Context, from: &Runs, runs: Vec<Blocks>) -> Result<Self> {
        from.spilled.settle().await?;
        let mut kept = context.memory.kept();
        kept.add(2 * runs.len() * from.block_bytes)?;
        let mut readers = Vec::with_capacity(runs.len());
        for blocks in runs {
            let blocks = BlockReader::new(&from.spilled, blocks);
            let mut reader = RunReader { blocks, block: Vec::new(), at: 0, front: (0, 0) };
            if reader.go(0).await? {
                readers.push(reader);
            }
        }
        let heap = (0..readers.len()).collect();
        let mut merge = Self { readers, heap, _kept: kept };
        for place in (0..merge.heap.len() / 2).rev() {
            merge.settle(place);
        }
        Ok(merge)
    }

    fn is_before(&self, a: usize, b: usize) -> bool {
        let (left, right) = (&self.readers[a], &self.readers[b]);
        let order = left.front.cmp(&right.front).then_with(|| left.record().0.cmp(right.record().0));
        // The earlier run has the earlier rows.
        order.then(a.cmp(&b)).is_lt()
    }

    /// Puts the reader at a place of the heap where it belongs below.
    fn settle(&mut self, mut place: usize) {
        loop {
            let children =
                [2 * place + 1, 2 * place + 2].into_iter().filter(|child| *child < self.heap.len());
            let Some(least) =
                children.reduce(
                    |one, other| {
                        if self.is_before(self.heap[other], self.heap[one]) { other } else { one }
                    },
                )
            else {
                return;
            };
            if self.is_before(self.heap[place], self.heap[least]) {
                return;
            }
            self.heap.swap(place, least);
            place = least;
        }
    }

    /// The record that is first among those that are left.
    fn first(&self) -> Option<(&[u8], &[u8])> {
        self.heap.first().map(|reader| self.readers[*reader].record())
    }

    /// Leaves that record behind.
    async fn advance(&mut self) -> Result<()> {
        let Some(reader) = self.heap.first() else { return Ok(()) };
        let reader = &mut self.readers[*reader];
        let (key, row) = reader.record();
        let behind = reader.at + LENGTHS + key.len() + row.len();
        if !reader.go(behind).await? {
            self.heap.swap_remove(0);
        }
        self.settle(0);
        Ok(())
    }
}
