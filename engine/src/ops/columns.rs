//! Scans by column: rows of which predicates hold, as batches of typed columns, under one snapshot.
//!
//! ```text
//!   chunk, 1,024 slots ──look──► frozen bits ──► which does the snapshot see? ──► predicates on what is stored ──► columns
//!                         ├────► plain slots ──► predicates on the rows in memory ───────────────────────────────────┐
//!                         └────► other slots ──► visited one by one, as a scan by row does ──► predicates on the row ┤
//!   cold store ────────────────► records behind all chunks, as a scan by row shows them ─────────────────────────────┴─► columns
//! ```
//!
//! Rules:
//! - *Each slot is decided by one look* ([`crate::hot::chunk::columns`]), and the rows of a look that stand for themselves are visited
//!   before the next look, by a list that survives waits.
//! - *Frozen rows have one version.* It is seen if it begins at or before the snapshot, which is so for all rows of a block that has
//!   forgotten its begins.
//! - *A plain slot* leads to a version that was committed at or before the snapshot: that version is what the snapshot sees, so the
//!   slot is decided without a visit. Its bytes stay while the look's pin lasts, and are gathered under it. A transaction that validates
//!   its reads, watches for what is not durable, or has followed rows visits all of them.
//! - *The rows of a look are bounded* ([`LOOK_BYTES`]): behind that many bytes the slots that are left are visited one by one, and a
//!   batch that is full is shown between two of them.
//! - *A scan heats nothing*: rows that stand in memory are not sampled.
//! - *What is read is remembered* as a scan by row of the whole table remembers it: each row that was asked, whether or not the
//!   predicates hold of it, and the table.
//! - *Aggregates* take the same rows, and there are no batches.
//! - *A batch owns what it has*: no pin outlives a step. It counts under the memory limit beyond what small scans take.

use std::collections::VecDeque;
use std::sync::Arc;

use thermocline_base::epoch::Guard;
use thermocline_base::ids::RowId;
use thermocline_base::sync::{AtomicU64, Ordering};
use thermocline_frozen::{Aggregator, BATCH_ROWS, Batch, Bits, Gather, Plan, Predicate, RowFilter};

use crate::catalog::table::{FormRef, TableEntry, TableForm};
use crate::cold::cursor::ColdCursor;
use crate::error::{Error, Result};
use crate::hot::block::Block;
use crate::hot::budget::{Budget, Charge, MemoryKind, OutOfMemoryCause};
use crate::hot::chunk::columns::LOOK_SLOTS;
use crate::hot::chunk::{Chunk, Found};
use crate::index::tree::Direction;
use crate::ops::scan::Entry;
use crate::ops::{Step, Wait, step};
use crate::row::{Layout, LayoutId};
use crate::session::Session;

/// Groups that are read by column under one pin.
const GROUPS_A_PIN: u32 = 8;
/// A chunk's last rows make a batch of their own from this part of one on; fewer wait for those of the next chunk.
const CHUNK_PART: usize = 64;
/// Rows whose slots are fetched ahead, of those that are visited.
const FETCHED_AHEAD: usize = 12;
/// Slots of a look whose versions are fetched ahead.
const SLOTS_AHEAD: usize = 24;
/// Bytes of rows that a look gathers.
const LOOK_BYTES: usize = 256 << 10;
/// Bytes of a scan's batches that do not count.
const UNCOUNTED_BYTES: u64 = 4 << 20;

/// What a scan by column is to find.
#[derive(Debug)]
pub(crate) struct ColumnQuery {
    pub(crate) columns: Vec<usize>,
    pub(crate) predicates: Vec<Predicate>,
    pub(crate) limit: Option<u64>,
    pub(crate) batch_rows: usize,
    /// Rows go there, and there are no batches.
    pub(crate) aggregator: Option<Aggregator>,
}

/// Where a scan by column stands.
#[derive(Debug)]
pub(crate) struct ColumnScanState {
    layout: LayoutId,
    predicates: Vec<Predicate>,
    /// The predicates, for the block that is being read.
    plan: Option<Plan>,
    filter: RowFilter,
    /// Rows of the block that is being read.
    blocks: Gather,
    /// Rows that stood for themselves.
    others: Gather,
    /// What rows go to instead, with what it counts under the memory limit.
    aggregator: Option<(Aggregator, Charge)>,
    /// Rows of the last look that are to be visited, the next one last.
    rows: Vec<RowId>,
    chunk: u32,
    slot: u32,
    begun: bool,
    noted: bool,
    cold: Option<ColdCursor>,
    cold_begun: bool,
    /// Rows that may still be shown.
    left: u64,
    /// Rows of a batch at most.
    batch_rows: usize,
    /// Batches that are full.
    ready: VecDeque<Batch>,
    /// Bytes of this scan's batches that somebody has.
    alive: Arc<AtomicU64>,
    refused_ns: Option<u64>,
    scratch: Vec<i64>,
    /// Nothing is left.
    pub(crate) finished: bool,
}

/// Rows of a scan as columns.
///
/// A batch owns its values. The batches of a scan that are kept count under the memory limit, beyond the first 4 MiB.
#[derive(Debug)]
pub struct ColumnBatch {
    batch: Batch,
    bytes: u64,
    alive: Arc<AtomicU64>,
    _charge: Charge,
}

impl std::ops::Deref for ColumnBatch {
    type Target = Batch;

    fn deref(&self) -> &Batch {
        &self.batch
    }
}

impl Drop for ColumnBatch {
    fn drop(&mut self) {
        self.alive.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl ColumnScanState {
    /// At the start of a table of this layout.
    ///
    /// # Errors
    /// A predicate does not fit its column.
    pub(crate) fn new(
        layout: &Layout,
        query: ColumnQuery,
        budget: &Arc<Budget>,
    ) -> std::result::Result<Self, thermocline_frozen::Error> {
        Ok(Self {
            layout: layout.id(),
            filter: RowFilter::new(layout, &query.predicates)?,
            predicates: query.predicates,
            plan: None,
            blocks: Gather::new(layout, &query.columns)?,
            others: Gather::new(layout, &query.columns)?,
            aggregator: query
                .aggregator
                .map(|aggregator| (aggregator, Charge::none(budget, MemoryKind::Transactions))),
            rows: Vec::new(),
            chunk: 0,
            slot: 0,
            begun: false,
            noted: false,
            cold: None,
            cold_begun: false,
            left: query.limit.unwrap_or(u64::MAX),
            batch_rows: query.batch_rows.clamp(1, BATCH_ROWS),
            ready: VecDeque::new(),
            alive: Arc::default(),
            refused_ns: None,
            scratch: Vec::new(),
            finished: false,
        })
    }

    /// The cold side.
    pub(crate) fn cold(&mut self) -> &mut Option<ColdCursor> {
        &mut self.cold
    }

    /// Takes a row that the snapshot sees.
    fn take_row(&mut self, row: &[u8]) {
        if self.left > 0 && self.filter.holds(row) {
            match &mut self.aggregator {
                Some((aggregator, _)) => aggregator.push_row(row),
                None => self.others.push_row(row),
            }
            self.left -= 1;
        }
    }

    /// Takes rows that the snapshot sees, and of which the predicates hold.
    fn take_rows(&mut self, rows: &[&[u8]]) {
        let rows = &rows[..rows.len().min(usize::try_from(self.left).unwrap_or(usize::MAX))];
        self.left -= rows.len() as u64;
        match &mut self.aggregator {
            Some((aggregator, _)) => rows.iter().for_each(|row| aggregator.push_row(row)),
            None => {
                // A batch is cut only where a look has more rows than a batch.
                for part in rows.chunks(self.batch_rows) {
                    if self.others.rows() + part.len() > self.batch_rows {
                        self.ready.push_back(self.others.finish());
                    }
                    self.others.push_rows(part);
                }
            }
        }
    }

    /// Takes rows of a group of which the predicates hold.
    fn take_group(&mut self, block: &thermocline_frozen::Block<'_>, group: usize, mut selected: Bits) {
        let mut count = count(&selected);
        if count as u64 > self.left {
            count = self.left as usize;
            selected = first_of(&mut selected, count);
        }
        self.left -= count as u64;
        if let Some((aggregator, _)) = &mut self.aggregator {
            return aggregator.push_group(block, group, &selected);
        }
        // A group is cut only where it has more rows than a batch.
        while count > self.batch_rows {
            self.end_blocks();
            let part = first_of(&mut selected, self.batch_rows);
            self.blocks.push_group(block, group, &part);
            count -= self.batch_rows;
        }
        if self.blocks.rows() + count > self.batch_rows || self.blocks.is_full() {
            self.end_blocks();
        }
        if count > 0 {
            self.blocks.push_group(block, group, &selected);
        }
    }

    /// What was computed, after the last row.
    pub(crate) fn take_aggregator(&mut self) -> Option<Aggregator> {
        self.aggregator.take().map(|(aggregator, _)| aggregator)
    }

    /// Counts what groups of rows take under the memory limit.
    ///
    /// # Errors
    /// There is no room.
    fn charge_groups(&mut self) -> std::result::Result<(), crate::OutOfMemory> {
        let Some((aggregator, charge)) = &mut self.aggregator else { return Ok(()) };
        let counted = (aggregator.memory() as u64).saturating_sub(UNCOUNTED_BYTES);
        if counted > charge.bytes() { charge.add(counted - charge.bytes()) } else { Ok(()) }
    }

    /// The rows of blocks so far are a batch.
    fn end_blocks(&mut self) {
        if self.blocks.rows() > 0 {
            self.ready.push_back(self.blocks.finish());
        }
    }

    /// The look has come to the end of a chunk.
    fn end_chunk(&mut self) {
        (self.chunk, self.slot) = (self.chunk + 1, 0);
        if self.blocks.rows() * CHUNK_PART >= self.batch_rows {
            self.end_blocks();
        }
    }

    /// Have the rows that stood for themselves filled a batch?
    fn others_are_full(&self) -> bool {
        self.others.rows() >= self.batch_rows || self.others.is_full()
    }

    /// A batch that is to be shown before anything else is read.
    fn take_full(&mut self) -> Option<Batch> {
        if self.ready.is_empty() && self.others_are_full() {
            self.ready.push_back(self.others.finish());
        }
        self.ready.pop_front()
    }

    /// A batch of what is left at the end.
    fn take_rest(&mut self) -> Option<Batch> {
        [&mut self.blocks, &mut self.others].into_iter().find(|gather| gather.rows() > 0).map(Gather::finish)
    }
}

fn count(bits: &Bits) -> usize {
    bits.iter().map(|word| word.count_ones() as usize).sum()
}

/// Takes the first so many bits out.
fn first_of(bits: &mut Bits, mut count: usize) -> Bits {
    bits.each_mut().map(|word| {
        let mut taken = 0;
        while count > 0 && *word != 0 {
            taken |= *word & word.wrapping_neg();
            *word &= *word - 1;
            count -= 1;
        }
        taken
    })
}

/// The places of the bits.
fn places(bits: &Bits) -> impl DoubleEndedIterator<Item = u32> + Clone + use<'_> {
    (0..LOOK_SLOTS).filter(|place| bits[*place as usize / 64] >> (place % 64) & 1 != 0)
}

fn row_at(chunk: u32, slot: u32) -> RowId {
    RowId::new(chunk, u16::try_from(slot).expect("slot numbers have 16 bits"))
}

impl Session {
    /// The next batch of a scan by column. `None`: there are no more rows.
    pub(crate) fn try_scan_columns(
        &mut self,
        entry: &Arc<TableEntry>,
        state: &mut ColumnScanState,
    ) -> Result<Step<Option<ColumnBatch>>> {
        let form_ref = step!(self.touch(entry)?);
        let form = form_ref.get();
        if form.layout.id() != state.layout {
            let reason =
                format!("the columns of table {:?} have changed since the scan began", form.schema.name);
            return Err(Error::Unsupported { operation: "scan_columns", reason });
        }
        self.begin_statement();
        if !std::mem::replace(&mut state.begun, true) {
            form.must_be_whole()?;
            let all = std::ops::Bound::Unbounded;
            state.cold = self.open_cold(form, form.primary(), all, all, Direction::Forward);
            self.note_table(form_ref, &mut state.noted);
        }
        loop {
            if let Some(batch) = state.take_full() {
                return self.show_batch(state, batch);
            }
            if state.left == 0 {
                break;
            }
            step!(self.remember()?);
            if let Err(refused) = state.charge_groups() {
                return self.refuse(state, refused);
            }
            state.refused_ns = None;
            if !state.rows.is_empty() {
                step!(self.visit_rows(form_ref, state));
            } else if state.chunk < form.store.directory.len() && !state.cold_begun {
                self.look_on(form_ref, state)?;
            } else {
                // Chunks that were added since hold nothing that the snapshot sees.
                state.cold_begun = true;
                if step!(self.visit_cold_rows(form_ref, state)?) {
                    break;
                }
            }
        }
        if let Some(batch) = state.take_rest() {
            return self.show_batch(state, batch);
        }
        state.finished = true;
        Ok(Step::Done(None))
    }

    /// Hands a batch out, once there is room for it.
    fn show_batch(&mut self, state: &mut ColumnScanState, batch: Batch) -> Result<Step<Option<ColumnBatch>>> {
        let db = self.db();
        let bytes = batch.memory() as u64;
        let charge = match charge_batch(&db.budget, state.alive.load(Ordering::Relaxed), bytes) {
            Ok(charge) => charge,
            Err(refused) => {
                state.ready.push_front(batch);
                return self.refuse(state, refused);
            }
        };
        state.refused_ns = None;
        state.alive.fetch_add(bytes, Ordering::Relaxed);
        let alive = Arc::clone(&state.alive);
        Ok(Step::Done(Some(ColumnBatch { batch, bytes, alive, _charge: charge })))
    }

    /// There is no room: the governor makes some, or there is none to be had.
    fn refuse<T>(&mut self, state: &mut ColumnScanState, refused: crate::OutOfMemory) -> Result<Step<T>> {
        let db = self.db();
        if refused.cause != OutOfMemoryCause::Limit || !db.governor.is_there() {
            return Err(Error::OutOfMemory(refused));
        }
        let since = *state.refused_ns.get_or_insert_with(|| db.clock.now_ns());
        Ok(Step::Wait(Wait::Room { refused, since }))
    }

    /// Looks at the next slots, and reads what stands in a block.
    fn look_on(&mut self, form_ref: FormRef, state: &mut ColumnScanState) -> Result<()> {
        let form = form_ref.get();
        let guard = self.db().epochs.pin();
        let Some(chunk) = form.store.directory.get(state.chunk, &guard) else {
            state.end_chunk();
            return Ok(());
        };
        for _ in 0..GROUPS_A_PIN {
            let (first, used) = (state.slot, chunk.used());
            if first >= used {
                state.end_chunk();
                break;
            }
            state.slot = first + LOOK_SLOTS;
            self.look_at(form_ref, (chunk, first), state, &guard)?;
            // What stands for itself is visited before the next look.
            if !state.rows.is_empty() || !state.ready.is_empty() || state.left == 0 {
                break;
            }
        }
        Ok(())
    }

    fn look_at(
        &mut self,
        form_ref: FormRef,
        (chunk, first): (&Chunk, u32),
        state: &mut ColumnScanState,
        guard: &Guard<'_>,
    ) -> Result<()> {
        let Some(look) = chunk.look_at_group(first, guard) else {
            let end = (first + LOOK_SLOTS).min(chunk.used());
            self.read_slots(form_ref, chunk, first..end, state, guard);
            return Ok(());
        };
        let mut others = look.others;
        // What a transaction has changed where it had moved to is told row by row.
        let block = chunk.block(look.block, guard).filter(|_| self.followed.is_empty());
        match block {
            Some(block) => {
                self.read_group(form_ref, (block, chunk.number(), first), look.frozen, state, guard)?;
            }
            None => others.iter_mut().zip(look.frozen).for_each(|(word, frozen)| *word |= frozen),
        }
        self.read_slots(form_ref, chunk, places(&others).map(|place| first + place), state, guard);
        Ok(())
    }

    /// Takes the rows of plain slots. The others are to be visited.
    fn read_slots(
        &mut self,
        form_ref: FormRef,
        chunk: &Chunk,
        slots: impl DoubleEndedIterator<Item = u32> + Clone,
        state: &mut ColumnScanState,
        guard: &Guard<'_>,
    ) {
        let number = chunk.number();
        if !self.followed.is_empty() || self.validates_reads() || self.watches {
            state.rows.extend(slots.rev().map(|slot| row_at(number, slot)));
            return;
        }
        let (form, snapshot) = (form_ref.get(), self.snapshot);
        let mut rows: Vec<&[u8]> = Vec::with_capacity(LOOK_SLOTS as usize);
        let (mut bytes, visited) = (0, state.rows.len());
        let mut ahead = slots.clone().skip(SLOTS_AHEAD);
        for slot in slots {
            let slot = u16::try_from(slot).expect("slot numbers have 16 bits");
            if let Some(next) = ahead.next() {
                chunk.approach(u16::try_from(next).expect("slot numbers have 16 bits"), guard);
            }
            match chunk.look(slot, guard) {
                Found::Empty => {}
                Found::Newest(version) if bytes < LOOK_BYTES && version.has_begun_by(snapshot) => {
                    if !version.is_tombstone() && state.filter.holds(form.row(version)) {
                        rows.push(form.row(version));
                        bytes += version.len();
                    }
                }
                _ => state.rows.push(RowId::new(number, slot)),
            }
        }
        // The next one to be visited stands last.
        state.rows[visited..].reverse();
        state.take_rows(&rows);
    }

    /// Reads rows of a group of a block.
    fn read_group(
        &mut self,
        form_ref: FormRef,
        (block, chunk, first): (&Block, u32, u32),
        mut kept: Bits,
        state: &mut ColumnScanState,
        guard: &Guard<'_>,
    ) -> Result<()> {
        if kept == [0; 16] {
            return Ok(());
        }
        let position = |place: u32| row_at(chunk, first + place).slot();
        if block.youngest() > self.snapshot {
            for place in places(&kept.clone()) {
                if block.begin(position(place), guard) > self.snapshot {
                    kept[place as usize / 64] &= !(1 << (place % 64));
                }
            }
        }
        self.note_frozen_reads(form_ref, (block, chunk, first), &kept, guard);
        let columns = block.rows().block();
        if state.plan.as_ref().is_none_or(|plan| plan.number() != columns.number()) {
            let plan =
                columns.plan(&state.predicates).map_err(|source| Self::columns_error(form_ref.get(), source));
            state.plan = Some(plan?);
        }
        let plan = state.plan.as_ref().expect("just seen to");
        let group = (first / LOOK_SLOTS) as usize;
        if let Some(selected) = columns.select(plan, group, &kept, &mut state.scratch) {
            state.take_group(&columns, group, selected);
        }
        Ok(())
    }

    /// Remembers frozen rows for validation.
    fn note_frozen_reads(
        &mut self,
        form_ref: FormRef,
        (block, chunk, first): (&Block, u32, u32),
        rows: &Bits,
        guard: &Guard<'_>,
    ) {
        if !self.validates_reads() && !self.watches {
            return;
        }
        for row in places(rows).map(|place| row_at(chunk, first + place)) {
            self.note_begin(form_ref, row, block.begin(row.slot(), guard));
        }
    }

    /// Visits the rows of the last look that stand for themselves.
    fn visit_rows(&mut self, form_ref: FormRef, state: &mut ColumnScanState) -> Step<()> {
        let form = form_ref.get();
        let guard = self.db().epochs.pin();
        let directory = &form.store.directory;
        while let Some(row) = state.rows.last().copied() {
            if let Some(ahead) = state.rows.len().checked_sub(FETCHED_AHEAD) {
                directory.approach(state.rows[ahead], &guard);
            }
            let mut see = |row: crate::SeenRow<'_>| {
                state.take_row(row.bytes());
                std::ops::ControlFlow::Continue(())
            };
            match self.visit(form_ref, None, row, &guard, &mut see) {
                Entry::Next | Entry::Stop => _ = state.rows.pop(),
                Entry::Undecided(id) => return Step::Wait(Wait::Decision(id)),
                Entry::Paged(wait) => return Step::Wait(Wait::Page(wait)),
            }
            if state.left == 0 || state.others_are_full() {
                break;
            }
        }
        Step::Done(())
    }

    /// Shows cold rows. `true`: there are no more.
    fn visit_cold_rows(&mut self, form_ref: FormRef, state: &mut ColumnScanState) -> Result<Step<bool>> {
        let form: &TableForm = form_ref.get();
        let Some(mut cursor) = state.cold.take() else { return Ok(Step::Done(true)) };
        let guard = self.db().epochs.pin();
        let outcome = loop {
            if cursor.is_at_end() {
                break Ok(Step::Done(true));
            }
            let Some(entry) = cursor.head() else { break Ok(Step::Wait(Wait::ColdScan)) };
            let mut see = |row: crate::SeenRow<'_>| {
                state.take_row(row.bytes());
                std::ops::ControlFlow::Continue(())
            };
            match self.visit_cold(form_ref, form.primary(), entry, &guard, &mut see) {
                Ok(Step::Done(_)) => cursor.pop(),
                Ok(Step::Wait(wait)) => break Ok(Step::Wait(wait)),
                Err(error) => break Err(error),
            }
            if state.left == 0 || state.others_are_full() {
                break Ok(Step::Done(false));
            }
        };
        state.cold = Some(cursor);
        outcome
    }

    /// A predicate or column that the table does not take.
    pub(crate) fn columns_error(form: &TableForm, source: thermocline_frozen::Error) -> Error {
        Error::Columns { table: form.schema.name.clone(), source }
    }
}

/// Counts a batch of so many bytes, where so many are alive.
fn charge_batch(
    budget: &Arc<Budget>,
    alive: u64,
    bytes: u64,
) -> std::result::Result<Charge, crate::OutOfMemory> {
    let counted = |bytes: u64| bytes.saturating_sub(UNCOUNTED_BYTES);
    let mut charge = Charge::none(budget, MemoryKind::Transactions);
    charge.add(counted(alive + bytes) - counted(alive))?;
    Ok(charge)
}
