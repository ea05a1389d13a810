//! ORDER BY: rows in an order, as many as there are.
//!
//! ```text
//! row ─► record ─► pieces of memory, an entry each ── beyond the grant: handed over ─► pause: sorted, written ─► run in a file
//!                        └─► all have come: entries sorted ─► rows            or all runs merged, a block of each in memory ─► rows
//! record: length of the key │ length of the row │ key (types/order_bytes: compares as bytes) │ row: its values (exec/coded)
//! entry: sixteen bytes of the key, behind what all keys begin with │ piece and place of the record
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

use thermocline_base::prefetch::prefetch;

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
const BLOCK: (u64, u64) = (32 << 10, 112 << 10);
/// Runs that are merged at once, at least and at the most.
const FAN: (usize, usize) = (4, 64);
/// Bytes of the first piece, and of all further ones at the most, but for a record that is larger.
const PIECE: (usize, usize) = (1 << 10, 256 << 10);
/// Bytes of a record's lengths.
const LENGTHS: usize = 8;
/// Entries that are sorted at once.
const TURN: usize = 4096;
/// Fronts that part entries at once.
const FRONTS: usize = 127;
/// Records that are asked for before they are read.
const AHEAD: usize = 12;
/// Entries or records between two looks at the turn.
const LOOK: usize = 32;

/// Appends a value of a key: a mark where it is null, and else behind one what `write` appends, bytes whose order is that of values.
pub(super) fn write_key(key: &SortKey, is_null: bool, to: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    if is_null {
        to.push(if key.nulls_first { 0 } else { 2 });
        return;
    }
    to.push(1);
    let begin = to.len();
    write(to);
    if key.descending {
        to[begin..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// The first bytes of a key, as numbers that compare as they do.
type Front = (u64, u64);

fn front(key: &[u8], from: usize) -> Front {
    (word(key, from), word(key, from + 8))
}

/// Eight bytes of a key, behind so many; zeros where it has ended.
fn word(key: &[u8], from: usize) -> u64 {
    let some = key.get(from..).unwrap_or_default();
    if let Some(bytes) = some.first_chunk() {
        return u64::from_be_bytes(*bytes);
    }
    let mut bytes = [0; 8];
    bytes[..some.len()].copy_from_slice(some);
    u64::from_be_bytes(bytes)
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
#[derive(Clone, Copy, Default)]
struct Entry {
    /// The first bytes of the key behind those that all keys begin with.
    front: Front,
    piece: u32,
    at: u32,
}

impl Entry {
    /// The front as one number, which is compared without a branch.
    #[inline]
    fn wide_front(&self) -> u128 {
        u128::from(self.front.0) << 64 | u128::from(self.front.1)
    }
}

/// Bytes that an entry takes: the list doubles, and is copied while it is sorted.
const ENTRY_BYTES: usize = 3 * size_of::<Entry>() + size_of::<u16>();

/// Records in memory.
#[derive(Default)]
struct Records {
    pieces: Vec<Vec<u8>>,
    entries: Vec<Entry>,
    /// The first key, as far as all others begin as it does.
    common: Vec<u8>,
    /// Bytes of the longest key.
    longest: usize,
    /// Pieces of records that have been written, all of [`PIECE`]'s greatest size.
    spare: Rc<RefCell<Vec<Vec<u8>>>>,
}

impl Records {
    /// Takes a record, and returns the bytes that it takes.
    fn push(&mut self, record: &[u8]) -> usize {
        let mut bytes = ENTRY_BYTES;
        if self.pieces.last().is_none_or(|piece| piece.capacity() - piece.len() < record.len()) {
            let wanted = self.pieces.last().map_or(PIECE.0, |last| (last.capacity() * 2).min(PIECE.1));
            let size = wanted.max(record.len());
            let spare = if size == PIECE.1 { self.spare.borrow_mut().pop() } else { None };
            self.pieces.push(spare.unwrap_or_else(|| Vec::with_capacity(size)));
            bytes += size;
        }
        let key = parts(record).0;
        if self.entries.is_empty() {
            self.common = key.to_vec();
        } else if !key.starts_with(&self.common) {
            let same = key.iter().zip(&self.common).take_while(|(a, b)| a == b).count();
            self.common.truncate(same);
        }
        self.longest = self.longest.max(key.len());
        let number = self.pieces.len() - 1;
        let piece = &mut self.pieces[number];
        let at = u32::try_from(piece.len()).expect("a piece is shorter");
        piece.extend_from_slice(record);
        let piece = u32::try_from(number).expect("pieces of a kilobyte");
        self.entries.push(Entry { front: (0, 0), piece, at });
        bytes
    }

    /// Leaves the memory of the pieces to the records that come.
    fn give_up(self) {
        let pieces = self.pieces.into_iter().filter(|piece| piece.capacity() == PIECE.1);
        self.spare.borrow_mut().extend(pieces.map(|mut piece| {
            piece.clear();
            piece
        }));
    }

    /// Asks for the record of an entry that is to be read soon.
    fn ask_for(&self, place: usize) {
        if let Some(entry) = self.entries.get(place) {
            let record = self.record(entry);
            prefetch(record.as_ptr());
            prefetch(record.as_ptr().wrapping_add(64));
        }
    }

    fn record(&self, entry: &Entry) -> &[u8] {
        &self.pieces[entry.piece as usize][entry.at as usize..]
    }

    fn order(&self, a: &Entry, b: &Entry) -> Ordering {
        let keys = || {
            // Keys that end in their fronts are equal if these are.
            let ends = self.longest <= self.common.len() + size_of::<Front>();
            let key = |entry: &Entry| parts(self.record(entry)).0;
            if ends { Ordering::Equal } else { key(a).cmp(key(b)) }
        };
        let place = |entry: &Entry| (entry.piece, entry.at);
        a.front.cmp(&b.front).then_with(keys).then_with(|| place(a).cmp(&place(b)))
    }

    /// Sorts the entries, in turns: parted by their fronts until a part can be sorted at once.
    async fn sort(&mut self, context: &Context) -> Result<()> {
        let mut entries = std::mem::take(&mut self.entries);
        let common = self.common.len();
        for some in entries.chunks_mut(LOOK) {
            for entry in &mut *some {
                entry.front = front(parts(self.record(entry)).0, common);
            }
            if context.is_due_after(some.len()) {
                context.pause().await?;
            }
        }
        let mut parted = Vec::new();
        let mut parts = vec![Part { from: 0, to: entries.len(), is_equal: false }];
        while let Some(part) = parts.pop() {
            let some = &mut entries[part.from..part.to];
            if some.len() <= TURN {
                if !part.is_equal {
                    some.sort_unstable_by_key(Entry::wide_front);
                }
                for equal in some.chunk_by_mut(|a, b| a.front == b.front).filter(|equal| equal.len() > 1) {
                    equal.sort_unstable_by(|a, b| self.order(a, b));
                }
                if context.is_due_after(part.to - part.from) {
                    context.pause().await?;
                }
            } else if part.is_equal {
                self.merge_sort(some, context).await?;
            } else {
                let found = part_by_front(some, &mut parted, context).await?;
                parts.extend(found.into_iter().map(|found| Part {
                    from: part.from + found.from,
                    to: part.from + found.to,
                    ..found
                }));
            }
        }
        self.entries = entries;
        Ok(())
    }

    /// Sorts entries whose fronts say nothing.
    async fn merge_sort(&self, entries: &mut [Entry], context: &Context) -> Result<()> {
        let few = TURN / 8;
        for run in entries.chunks_mut(few) {
            run.sort_unstable_by(|a, b| self.order(a, b));
            if context.is_due_after(few) {
                context.pause().await?;
            }
        }
        let (mut width, mut merged) = (few, Vec::with_capacity(entries.len()));
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
            entries.copy_from_slice(&merged);
            width *= 2;
        }
        Ok(())
    }
}

/// Entries from a place to another one that stand there in any order.
struct Part {
    from: usize,
    to: usize,
    /// Their fronts are equal.
    is_equal: bool,
}

/// Parts entries by fronts that some of them have: what has such a front, and what is between two.
async fn part_by_front(
    entries: &mut [Entry],
    parted: &mut Vec<Entry>,
    context: &Context,
) -> Result<Vec<Part>> {
    let step = entries.len() / (FRONTS * 8);
    let mut sample: Vec<u128> = entries.iter().step_by(step.max(1)).map(Entry::wide_front).collect();
    sample.sort_unstable();
    let mut fronts: Vec<u128> = (1..=FRONTS).map(|at| sample[at * sample.len() / (FRONTS + 1)]).collect();
    fronts.dedup();
    let part_of = |entry: &Entry| {
        let wide = entry.wide_front();
        let below = fronts.partition_point(|front| *front < wide);
        2 * below + usize::from(fronts.get(below) == Some(&wide))
    };
    let mut counts = vec![0; 2 * fronts.len() + 1];
    let mut numbers: Vec<u16> = Vec::with_capacity(entries.len());
    for some in entries.chunks(LOOK) {
        for entry in some {
            let part = part_of(entry);
            counts[part] += 1;
            numbers.push(part as u16);
        }
        if context.is_due_after(some.len()) {
            context.pause().await?;
        }
    }
    let mut next = Vec::with_capacity(counts.len());
    let mut from = 0;
    for count in &counts {
        next.push(from);
        from += count;
    }
    parted.clear();
    parted.resize(entries.len(), Entry::default());
    for (some, numbers) in entries.chunks(LOOK).zip(numbers.chunks(LOOK)) {
        for (entry, number) in some.iter().zip(numbers) {
            let place = &mut next[usize::from(*number)];
            parted[*place] = *entry;
            *place += 1;
        }
        if context.is_due_after(some.len()) {
            context.pause().await?;
        }
    }
    entries.copy_from_slice(parted);
    let parts = next.iter().zip(&counts).enumerate();
    let parts =
        parts.map(|(number, (to, count))| Part { from: to - count, to: *to, is_equal: number % 2 == 1 });
    Ok(parts.filter(|part| part.to - part.from > 1).collect())
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
                records.ask_for(place + AHEAD);
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
        self.begin(row.len());
        for key in &*self.keys {
            let value = key.expr.eval(&env)?;
            write_key(key, value.is_null(), &mut self.record, |to| order_bytes::write(&value, to));
        }
        self.end(|coder, to| row.iter().for_each(|value| coder.write(value, to)))
    }

    /// Takes a row of so many values: `key` appends each value of its key, by [`write_key`], and `row` its values.
    pub(super) fn push_by(
        &mut self,
        width: usize,
        mut key: impl FnMut(usize, &SortKey, &mut Vec<u8>),
        row: impl FnOnce(&mut Coder, &mut Vec<u8>),
    ) -> Result<()> {
        self.begin(width);
        for (place, one) in self.keys.iter().enumerate() {
            key(place, one, &mut self.record);
        }
        self.end(row)
    }

    fn begin(&mut self, width: usize) {
        self.width = width;
        self.record.clear();
        self.record.resize(LENGTHS, 0);
    }

    fn end(&mut self, row: impl FnOnce(&mut Coder, &mut Vec<u8>)) -> Result<()> {
        let key = self.record.len() - LENGTHS;
        row(&mut self.coder, &mut self.record);
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
                records.ask_for(*next + AHEAD);
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
        self.front = front(self.record().0, 0);
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

#[cfg(test)]
mod tests {
    use thermocline_base::rng::Rng;
    use thermocline_engine::block_on;

    use super::*;
    use crate::expr::Expr;

    /// Sorts rows, which end in their places, by all columns before.
    fn sorted(rows: &[Row], descending: bool) -> Vec<Row> {
        let context = Context::default();
        let width = rows[0].len() - 1;
        let key = |column| SortKey { expr: Expr::Column(column), descending, nulls_first: descending };
        let mut sorter = Sorter::new(&context, (0..width).map(key).collect::<Vec<_>>());
        rows.iter().for_each(|row| sorter.push(row, &[]).expect("it is taken"));
        let mut found = Vec::new();
        let mut see = |row: &mut Row| {
            found.push(std::mem::take(row));
            Ok(std::ops::ControlFlow::Continue(()))
        };
        block_on(sorter.finish(&mut see)).expect("they are sorted");
        found
    }

    /// Keys that differ early, late, seldom or never.
    #[test]
    fn rows_come_in_their_order_and_equal_ones_as_they_went() {
        let mut rng = Rng::new(3);
        let wide = |rng: &mut Rng| Datum::Int(rng.next_u64() as i64);
        let few = |rng: &mut Rng| Datum::Int(rng.below(3) as i64);
        let null =
            |rng: &mut Rng| if rng.chance(0.9) { Datum::Null } else { Datum::Int(rng.below(100) as i64) };
        let text = |rng: &mut Rng| Datum::text(format!("a long beginning {}", rng.below(5000)));
        let mostly = |rng: &mut Rng| Datum::Int(if rng.chance(0.95) { 7 } else { rng.next_u64() as i64 });
        let makers: [&dyn Fn(&mut Rng) -> Datum; 5] = [&wide, &few, &null, &text, &mostly];
        for (number, count) in
            [(0, 1), (0, 30_000), (1, 30_000), (2, 30_000), (3, 30_000), (4, 30_000), (5, 30_000)]
        {
            let rows: Vec<Row> = (0..count)
                .map(|place| {
                    let mut row = match number {
                        5 => vec![few(&mut rng), text(&mut rng), wide(&mut rng)],
                        number => vec![makers[number](&mut rng)],
                    };
                    row.push(Datum::Int(place));
                    row
                })
                .collect();
            for descending in [false, true] {
                let mut wanted = rows.clone();
                let width = rows[0].len() - 1;
                wanted.sort_by(|a, b| {
                    let orders = a.iter().zip(b).take(width).map(|(a, b)| a.compare_nulls_last(b));
                    let order = orders.fold(Ordering::Equal, Ordering::then);
                    if descending { order.reverse() } else { order }
                });
                assert!(sorted(&rows, descending) == wanted, "keys {number}, {count} rows, {descending}");
            }
        }
    }
}
