//! The block of a frozen chunk: rows that have settled, compressed and immutable (Funke, Kemper, Neumann, VLDB 2012, §3.4).
//!
//! The bytes are made and read by crate `frozen`. Here stands what the engine adds to them: the block's number, when its
//! rows begin, and how many rows are still in it.
//!
//! Rules:
//! - *A number is given once.* A slot's frozen word names its block by it, so a word that was read before a row was thawed,
//!   changed and frozen again is no word of the new block (`BlocksAreNotMistaken`).
//! - *The word decides.* That a block has bytes at a position says nothing: a row is frozen while its slot says so.
//! - *Begins stay while somebody could tell them apart*: until every snapshot is as new as the youngest row. From then on
//!   all rows begin with the youngest, and validation takes two begins at or before the transaction's snapshot for one.
//! - A block goes when no word names it any more, through the epochs.
//! - *Rows leave under a mark.* A block has at most one: who lets its rows leave, and with which batch. It stands before the
//!   first word says *left*, and it is taken away only when none does any more. It begins, like a version, when its
//!   transaction does; then it stays as long as the block.

use std::ptr::null_mut;
use std::sync::Arc;

use thermocline_base::epoch::{Epochs, Guard};
use thermocline_base::ids::{RowId, Timestamp};
use thermocline_base::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use thermocline_frozen::BlockMeta;

use crate::hot::budget::{Budget, Charge, MemoryKind, OutOfMemory};
use crate::hot::paged::{Absent, Hand, Run};
use crate::hot::store::RowAbsent;
use crate::hot::version::{Begin, Moved, TxnId, Version};
use crate::row::{ColumnSet, Layout};

/// When rows begin, by runs of positions: each run's first position and its timestamp.
#[derive(Debug, Default)]
pub(crate) struct Begins {
    first: Vec<u16>,
    at: Vec<Timestamp>,
}

impl Begins {
    /// Positions have to ascend.
    pub(crate) fn push(&mut self, position: u16, begin: Timestamp) {
        if self.at.last() != Some(&begin) {
            self.first.push(position);
            self.at.push(begin);
        }
    }

    fn at(&self, position: u16) -> Timestamp {
        let run = self.first.partition_point(|&first| first <= position);
        self.at[run.checked_sub(1).expect("the first run begins at the first row")]
    }

    fn bytes(&self) -> u64 {
        (self.first.capacity() * size_of::<u16>() + self.at.capacity() * size_of::<Timestamp>()) as u64
    }
}

/// The rows of a block: their compressed columns, and what is kept beside each row of a table without a key.
#[derive(Debug)]
pub(crate) struct Rows {
    meta: BlockMeta,
    bytes: Box<[u8]>,
    /// Hidden keys by position; none in a table with a key.
    hidden: Box<[u64]>,
}

impl Rows {
    /// The rows whose bytes a builder has made. `hidden`: the hidden key of each position, or nothing.
    ///
    /// # Errors
    /// The bytes are damaged, or of another layout.
    pub(crate) fn parse(
        bytes: Vec<u8>,
        hidden: Vec<u64>,
        layout: &Layout,
    ) -> Result<Self, thermocline_frozen::Error> {
        let meta = BlockMeta::parse(&bytes, layout)?;
        Ok(Self { meta, bytes: bytes.into_boxed_slice(), hidden: hidden.into_boxed_slice() })
    }

    /// The compressed columns.
    pub(crate) fn block(&self) -> thermocline_frozen::Block<'_> {
        self.meta.block(&self.bytes)
    }

    /// What the block is known by on disk: drawn at random when it was made.
    pub(crate) fn id(&self) -> u64 {
        self.meta.number()
    }

    /// The block's bytes, in memory and on disk.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Hidden keys by position; none in a table with a key.
    pub(crate) fn hidden(&self) -> &[u64] {
        &self.hidden
    }

    /// Is there a row at this position?
    #[inline]
    pub(crate) fn is_present(&self, position: u16) -> bool {
        self.block().is_present(position)
    }

    /// Bytes of memory that it takes.
    pub(crate) fn bytes_len(&self) -> usize {
        self.bytes.len() + self.meta.memory() + size_of_val(&*self.hidden)
    }

    /// Appends the row at a position as it was before, with its hidden key.
    #[inline]
    pub(crate) fn row_into(&self, position: u16, out: &mut Vec<u8>) {
        let found = self.block().row_into(position, out);
        assert!(found, "slots name a block for rows that it has");
        self.hidden_into(position, out);
    }

    /// The same with the values of these columns alone, which costs less.
    pub(crate) fn columns_into(&self, position: u16, columns: &ColumnSet, out: &mut Vec<u8>) {
        let found = self.block().columns_into(position, columns, out);
        assert!(found, "slots name a block for rows that it has");
        self.hidden_into(position, out);
    }

    #[inline]
    fn hidden_into(&self, position: u16, out: &mut Vec<u8>) {
        if let Some(hidden) = self.hidden.get(usize::from(position)) {
            out.extend_from_slice(&hidden.to_le_bytes());
        }
    }
}

/// How a block keeps its rows.
#[derive(Debug)]
enum Kept {
    /// Compressed, in memory.
    Columns(Rows),
    /// As they were, on the paged side.
    Paged(Arc<Run>),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Block {
    number: u64,
    kept: Kept,
    begins: AtomicPtr<(Begins, Charge)>,
    youngest: Timestamp,
    /// Slots that name it: rows that are in it, and rows that have left with it.
    live: AtomicU32,
    /// Of these, rows that have left, or are about to.
    left: AtomicU32,
    /// Reads of its rows, less and less for older ones. A hint for who chooses what leaves memory.
    uses: AtomicU32,
    /// Who lets its rows leave: 0 nobody, or a begin plus one (see [`Block::mark`]).
    mark: AtomicU64,
    /// With which batch.
    batch: AtomicU64,
    /// The block that the chunk had before, while slots name it.
    pub(super) older: AtomicPtr<Block>,
    /// Released when the block goes.
    _charge: Charge,
}

impl Block {
    /// A block of these rows.
    ///
    /// # Errors
    /// There is no room for it below the memory limit.
    pub(crate) fn new(rows: Rows, begins: Begins, budget: &Arc<Budget>) -> Result<Box<Self>, OutOfMemory> {
        Self::keeping(Kept::Columns(rows), begins, budget)
    }

    /// The same of rows that were written to the paged side.
    ///
    /// # Errors
    /// As [`Block::new`].
    pub(crate) fn paged(run: Run, begins: Begins, budget: &Arc<Budget>) -> Result<Box<Self>, OutOfMemory> {
        Self::keeping(Kept::Paged(Arc::new(run)), begins, budget)
    }

    fn keeping(kept: Kept, begins: Begins, budget: &Arc<Budget>) -> Result<Box<Self>, OutOfMemory> {
        let bytes = match &kept {
            Kept::Columns(rows) => rows.bytes_len(),
            Kept::Paged(run) => run.memory(),
        };
        let (mut charge, mut begins_charge) =
            (Charge::none(budget, MemoryKind::Frozen), Charge::none(budget, MemoryKind::Frozen));
        charge.add_from_reserve((bytes + size_of::<Self>()) as u64)?;
        begins_charge.add_from_reserve(begins.bytes())?;
        Ok(Box::new(Self {
            number: next_number(),
            kept,
            youngest: begins.at.iter().copied().max().unwrap_or_default(),
            begins: AtomicPtr::new(Box::into_raw(Box::new((begins, begins_charge)))),
            live: AtomicU32::new(0),
            left: AtomicU32::new(0),
            uses: AtomicU32::new(0),
            mark: AtomicU64::new(0),
            batch: AtomicU64::new(0),
            older: AtomicPtr::new(null_mut()),
            _charge: charge,
        }))
    }

    /// The number that frozen words name it by.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Its rows, of a block in memory.
    ///
    /// # Panics
    /// When it is on the paged side.
    pub(crate) fn rows(&self) -> &Rows {
        match &self.kept {
            Kept::Columns(rows) => rows,
            Kept::Paged(_) => panic!("the columns of a block are asked for whose rows are on the paged side"),
        }
    }

    /// Its rows, of a block on the paged side. `None`: it is in memory.
    #[inline]
    pub(crate) fn run(&self) -> Option<&Arc<Run>> {
        match &self.kept {
            Kept::Columns(_) => None,
            Kept::Paged(run) => Some(run),
        }
    }

    /// When the row at a position begins; see the module.
    #[inline]
    pub(crate) fn begin(&self, position: u16, _guard: &Guard<'_>) -> Timestamp {
        // SAFETY: begins go through the epochs, and the caller is pinned.
        match unsafe { self.begins.load(Ordering::Acquire).as_ref() } {
            Some((begins, _)) => begins.at(position),
            None => self.youngest,
        }
    }

    /// Lets the begins go, if every snapshot is as new as the youngest row.
    pub(crate) fn forget_begins(&self, oldest: Timestamp, epochs: &Epochs) {
        if oldest < self.youngest || self.begins.load(Ordering::Relaxed).is_null() {
            return;
        }
        let begins = self.begins.swap(null_mut(), Ordering::AcqRel);
        if !begins.is_null() {
            // SAFETY: `new` put a box there, and the swap gave it to us alone.
            let begins = unsafe { Box::from_raw(begins) };
            epochs.defer(move || drop(begins));
        }
    }

    /// Bytes of the begins.
    pub(crate) fn begins_bytes(&self, _guard: &Guard<'_>) -> u64 {
        // SAFETY: as in `begin`.
        unsafe { self.begins.load(Ordering::Acquire).as_ref() }.map_or(0, |(begins, _)| begins.bytes())
    }

    /// Slots that name it; a moment old.
    pub(crate) fn live(&self) -> u32 {
        self.live.load(Ordering::Acquire)
    }

    /// Of these, rows that have left, or are about to.
    pub(crate) fn left(&self) -> u32 {
        self.left.load(Ordering::Acquire)
    }

    /// So many slots say *left* now where they said *frozen*.
    pub(super) fn note_left(&self, rows: u32) {
        self.left.fetch_add(rows, Ordering::AcqRel);
    }

    /// The other way round.
    pub(super) fn note_back(&self, rows: u32) {
        self.left.fetch_sub(rows, Ordering::AcqRel);
    }

    /// Slots that said *left* say nothing any more.
    pub(super) fn let_go(&self, rows: u32) {
        self.left.fetch_sub(rows, Ordering::AcqRel);
        let before = self.live.fetch_sub(rows, Ordering::AcqRel);
        assert!(before >= rows, "no more rows leave a block than have entered it");
    }

    /// The youngest of its rows begins then.
    pub(crate) fn youngest(&self) -> Timestamp {
        self.youngest
    }

    /// Have its begins gone?
    pub(crate) fn has_no_begins(&self) -> bool {
        self.begins.load(Ordering::Acquire).is_null()
    }

    /// A row of it is read.
    #[inline]
    pub(crate) fn note_use(&self) {
        // One of two at one time may be lost.
        let uses = self.uses.load(Ordering::Relaxed);
        self.uses.store(uses.saturating_add(1), Ordering::Relaxed);
    }

    /// How often its rows were read lately; half of that is forgotten.
    pub(crate) fn take_uses(&self) -> u32 {
        let uses = self.uses.load(Ordering::Relaxed);
        self.uses.store(uses / 2, Ordering::Relaxed);
        uses
    }

    /// Sets the mark of a transaction that lets rows leave with this batch. `false`: there is one.
    pub(crate) fn set_mark(&self, by: TxnId, batch: u64) -> bool {
        // The batch is what two contend for: the mark says nothing before its batch stands.
        if self.batch.compare_exchange(0, batch, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        self.mark.store(Begin::By(by).to_bits() + 1, Ordering::SeqCst);
        true
    }

    /// From now on the mark begins then for everybody.
    pub(crate) fn publish_mark(&self, at: Timestamp) {
        self.mark.store(Begin::At(at).to_bits() + 1, Ordering::Release);
    }

    /// Takes the mark away. No slot says *left*.
    pub(crate) fn clear_mark(&self) {
        self.mark.store(0, Ordering::Release);
        self.batch.store(0, Ordering::Release);
    }

    /// When the mark begins, and the batch. `None`: there is none.
    #[inline]
    pub(crate) fn mark(&self) -> Option<(Begin, u64)> {
        let bits = self.mark.load(Ordering::Acquire).checked_sub(1)?;
        Some((Begin::from_bits(bits), self.batch.load(Ordering::Acquire)))
    }

    /// The mark of a row that has left, over the row, for the holder of a pin. `None`: it has not left after all.
    pub(crate) fn mark_image(&self, row: RowId, guard: &Guard<'_>) -> Option<Version> {
        let (mark, batch) = self.mark()?;
        let moved = Moved { batch, begin: self.begin(row.slot(), guard) };
        let fill = |out: &mut Vec<u8>| self.rows().row_into(row.slot(), out);
        Some(Version::mark_image(guard, self.number, (mark, moved), row, fill))
    }

    /// A slot is about to name the block.
    pub(super) fn enter(&self) {
        self.live.fetch_add(1, Ordering::AcqRel);
    }

    /// A slot does not name it any more, or not after all.
    pub(super) fn leave(&self) {
        let before = self.live.fetch_sub(1, Ordering::AcqRel);
        assert!(before != 0, "no more rows leave a block than have entered it");
    }

    /// The row at a position as a version that lasts as long as the reader's pin (see [`Guard::keep`]). Of a row on the paged side it is
    /// bare: no page is looked at.
    #[inline]
    pub(crate) fn image(&self, row: RowId, guard: &Guard<'_>) -> Version {
        let position = row.slot();
        let begin = self.begin(position, guard);
        match &self.kept {
            Kept::Columns(rows) => {
                Version::image(guard, self.number, begin, row, |out| rows.row_into(position, out))
            }
            Kept::Paged(_) => Version::bare_image(guard, self.number, begin, row),
        }
    }

    /// The same with its bytes; where the row's pages are not there, they are read past the frames, on this thread.
    ///
    /// # Errors
    /// They cannot be read.
    pub(crate) fn image_now(&self, row: RowId, guard: &Guard<'_>) -> Result<Version, RowAbsent> {
        let Kept::Paged(run) = &self.kept else { return Ok(self.image(row, guard)) };
        let position = row.slot();
        let begin = self.begin(position, guard);
        let fill = |out: &mut Vec<u8>| run.row_now(position, guard, out);
        Version::try_image(guard, self.number, begin, row, fill).map_err(|error| {
            tracing::error!(%error, %row, "a row on the paged side cannot be read");
            RowAbsent(row)
        })
    }

    /// The same, if the row is in the reader's hand, or its pages are there.
    ///
    /// # Errors
    /// They are not.
    #[inline]
    pub(crate) fn image_if_there(
        &self,
        row: RowId,
        hand: &Hand,
        guard: &Guard<'_>,
    ) -> Result<Version, Box<Absent>> {
        let Kept::Paged(run) = &self.kept else { return Ok(self.image(row, guard)) };
        let position = row.slot();
        let begin = self.begin(position, guard);
        let fill = |out: &mut Vec<u8>| run.row_if_there(position, hand, guard, out);
        Version::try_image(guard, self.number, begin, row, fill)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let begins = *self.begins.get_mut();
        if !begins.is_null() {
            // SAFETY: `new` put a box there, and nobody looks at a block that is dropped.
            drop(unsafe { Box::from_raw(begins) });
        }
        let older = *self.older.get_mut();
        if !older.is_null() {
            // SAFETY: blocks are linked as boxes, each from one place.
            drop(unsafe { Box::from_raw(older) });
        }
    }
}

/// Numbers of blocks are given once in the life of the process.
fn next_number() -> u64 {
    thermocline_base::ids::fresh_number()
}
