//! Scans: all rows with one key, or the rows of a range of an ordered index, in either direction.
//!
//! The index hands out entries a leaf at a time; each entry is resolved under the snapshot, and counts only if the
//! visible version has the entry's key. Between two leaves, and wherever a step has to wait, only the last entry's key
//! and RowId are kept.
//!
//! Where rows of the table may be in the cold store, its entries are merged in by key, lazily: the next one is read only
//! when the scan has come that far. At the scan's snapshot each row is in one of the two places.

use std::collections::HashSet;
use std::ops::{Bound, ControlFlow, RangeBounds};
use std::sync::Arc;

use thermocline_base::epoch::Guard;
use thermocline_base::ids::{IndexId, RowId};
use thermocline_base::sync::Ordering;
use thermocline_pool::store::{Direction as StoreDirection, IndexId as StoreIndex, StoreError};

use crate::catalog::table::{FormRef, IndexForm, Structure, TableEntry, TableForm};
use crate::cold::cursor::{ColdCursor, ColdEntry};
use crate::cold::memo::RecordName;
use crate::cold::store::{Record, behind, primary_of, secondary_of};
use crate::error::{Error, Result};
use crate::hot::version::TxnId;
use crate::index::hash_of;
use crate::index::tree::{Batch, Direction};
use crate::ops::cold::{ColdRow, Seen};
use crate::ops::handle::{SeenPlace, SeenRow};
use crate::ops::{PageWait, Step, Wait, step};
use crate::session::db::Inner;
use crate::session::{Scan, ScanRange, Session};
use crate::txn::visibility::{Sees, visible_to_view};

/// Slots that a scan of a whole table looks at under one epoch pin.
const SLOTS_A_PIN: u32 = 1024;

/// A range of keys (encoded) of an ordered index.
#[derive(Clone, Copy, Debug)]
pub struct KeyRange<'k> {
    pub(crate) from: Bound<&'k [u8]>,
    pub(crate) to: Bound<&'k [u8]>,
    pub(crate) prefix: Option<&'k [u8]>,
}

impl<'k> KeyRange<'k> {
    /// All keys.
    #[must_use]
    pub const fn all() -> Self {
        Self { from: Bound::Unbounded, to: Bound::Unbounded, prefix: None }
    }

    /// The keys that begin with these bytes: with equal leading columns.
    #[must_use]
    pub const fn prefix(prefix: &'k [u8]) -> Self {
        Self { from: Bound::Included(prefix), to: Bound::Unbounded, prefix: Some(prefix) }
    }

    /// The keys between two bounds.
    #[must_use]
    pub const fn between(from: Bound<&'k [u8]>, to: Bound<&'k [u8]>) -> Self {
        Self { from, to, prefix: None }
    }
}

type Position = Bound<(Box<[u8]>, RowId)>;

/// Where a scan stands between its steps.
#[derive(Debug)]
pub(crate) struct ScanState {
    direction: Direction,
    from: Bound<Box<[u8]>>,
    to: Bound<Box<[u8]>>,
    position: Position,
    batch: Batch,
    begun: bool,
    /// The upper end is one that the caller gave.
    given_end: bool,
    cold: Option<ColdCursor>,
    /// It goes on behind the row that it has stopped at.
    pub(crate) pauses: bool,
    /// Nothing is left.
    pub(crate) finished: bool,
    /// Where the session's list says what was scanned so far.
    noted: Option<usize>,
    /// Pages of the paged side that it has read ahead the next time that it waits for one: more each time, since most scans are short.
    pages_ahead: usize,
}

/// Where the scan of a whole table stands.
#[derive(Debug, Default)]
pub(crate) struct TableScanState {
    /// The next slot; behind the last one, the cold rows follow.
    next: Option<RowId>,
    cold: Option<ColdCursor>,
    /// Nothing is left.
    pub(crate) finished: bool,
    noted: bool,
}

/// Reads the records of what was read ahead.
pub(crate) async fn fetch_ahead_of(db: &Inner, cursor: &mut Option<ColdCursor>, primary: StoreIndex) {
    if let (Some(cursor), Some(cold)) = (cursor, db.cold.get()) {
        let records = cursor.fetch(&*cold.store, primary).await;
        cold.counters.reads.fetch_add(records as u64, Ordering::Relaxed);
    }
}

/// Reads on in the cold store.
pub(crate) async fn advance(cursor: &mut Option<ColdCursor>) -> std::result::Result<(), StoreError> {
    match cursor {
        Some(cursor) => cursor.advance().await,
        None => Ok(()),
    }
}

impl ScanState {
    /// The cold side.
    pub(crate) fn cold(&mut self) -> &mut Option<ColdCursor> {
        &mut self.cold
    }

    /// Lies a key in the range?
    fn has(&self, key: &[u8]) -> bool {
        (borrow(&self.from), borrow(&self.to)).contains(key)
    }
}

impl TableScanState {
    /// The cold side.
    pub(crate) fn cold(&mut self) -> &mut Option<ColdCursor> {
        &mut self.cold
    }
}

/// What the cold rows before some key came to.
enum ColdSide {
    /// They have been seen.
    Passed,
    /// The scan stops at this key.
    Stop(Vec<u8>),
    Waits(Wait),
}

fn own(bound: Bound<&[u8]>) -> Bound<Box<[u8]>> {
    bound.map(Into::into)
}

fn bytes_of(bound: &Bound<Box<[u8]>>) -> Option<&[u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

fn borrow(bound: &Bound<Box<[u8]>>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &**key)
}

impl ScanState {
    /// At the start of `range`.
    pub(crate) fn new(range: KeyRange<'_>, direction: Direction) -> Self {
        let end = range.prefix.and_then(behind);
        let to = match (&end, range.prefix) {
            (Some(end), _) => Bound::Excluded(&**end),
            (None, _) => range.to,
        };
        let position = match direction {
            Direction::Forward => match range.from {
                Bound::Included(key) => Bound::Included((key.into(), RowId(0))),
                Bound::Excluded(key) => Bound::Excluded((key.into(), RowId(u64::MAX))),
                Bound::Unbounded => Bound::Unbounded,
            },
            Direction::Backward => match to {
                Bound::Included(key) => Bound::Included((key.into(), RowId(u64::MAX))),
                Bound::Excluded(key) => Bound::Excluded((key.into(), RowId(0))),
                Bound::Unbounded => Bound::Unbounded,
            },
        };
        Self {
            direction,
            from: own(range.from),
            to: own(to),
            position,
            batch: Batch::new(),
            begun: false,
            given_end: range.prefix.is_none(),
            cold: None,
            pauses: false,
            finished: false,
            noted: None,
            pages_ahead: 0,
        }
    }

    /// The far end, seen in the direction of the scan.
    fn far_end(&self) -> Bound<&[u8]> {
        match self.direction {
            Direction::Forward => borrow(&self.to),
            Direction::Backward => borrow(&self.from),
        }
    }

    /// What was scanned if the scan ends at `key`, or at its far end.
    fn covered(&self, last: Option<&[u8]>) -> ScanRange {
        match (last, self.direction) {
            (None, _) => ScanRange::Range(self.from.clone(), self.to.clone()),
            (Some(key), Direction::Forward) => {
                ScanRange::Range(self.from.clone(), Bound::Included(key.into()))
            }
            (Some(key), Direction::Backward) => {
                ScanRange::Range(Bound::Included(key.into()), self.to.clone())
            }
        }
    }
}

/// Asks the processor for the rows of a batch, their misses at the same time.
fn fetch_ahead(form: &TableForm, batch: &Batch, guard: &thermocline_base::epoch::Guard<'_>) {
    const ROWS: usize = 32;
    let rows = || batch.iter().take(ROWS).map(|(_, row)| row);
    if batch.len() < 2 {
        return;
    }
    for slot in rows().filter_map(|row| form.store.directory.slot(row, guard)) {
        slot.prefetch();
    }
    for row in rows() {
        form.store.directory.approach(row, guard);
    }
}

/// Pages of the paged side that a scan which waits for one has read ahead, at the most.
const PAGES_AHEAD: usize = 16;

/// What a row of a scan came to.
pub(super) enum Entry {
    Next,
    Stop,
    Undecided(TxnId),
    Paged(Box<PageWait>),
}

impl Session {
    /// Scans on from where `state` stands.
    pub(crate) fn try_scan(
        &mut self,
        entry: &Arc<TableEntry>,
        index: IndexId,
        state: &mut ScanState,
        see: &mut impl FnMut(SeenRow<'_>) -> ControlFlow<()>,
    ) -> Result<Step<()>> {
        let form_ref = step!(self.touch(entry)?);
        let begins = !std::mem::replace(&mut state.begun, true);
        if begins {
            self.begin_statement();
        }
        let form = form_ref.get();
        let index = Self::index_of(form, index)?;
        if begins {
            form.must_be_whole()?;
            // What comes behind a prefix is no key.
            let ends = [Some(&state.from), Some(&state.to).filter(|_| state.given_end)];
            for key in ends.into_iter().flatten().filter_map(bytes_of) {
                index.check_beginning(key).map_err(|source| Self::row_error(form, source))?;
            }
            let (from, to) = (borrow(&state.from), borrow(&state.to));
            state.cold = self.open_cold(form, index, from, to, state.direction);
        }
        let mut cold = state.cold.take();
        let outcome = self.scan_on(form_ref, index, state, &mut cold, see);
        state.cold = cold;
        outcome
    }

    fn scan_on(
        &mut self,
        form_ref: FormRef,
        index: &IndexForm,
        state: &mut ScanState,
        cold: &mut Option<ColdCursor>,
        see: &mut impl FnMut(SeenRow<'_>) -> ControlFlow<()>,
    ) -> Result<Step<()>> {
        let form = form_ref.get();
        let Structure::Tree(tree) = &index.structure else {
            return Err(Error::Unsupported {
                operation: "scan",
                reason: format!(
                    "index {:?} of table {:?} is a hash index; only an ordered one can be scanned",
                    index.schema.name, form.schema.name
                ),
            });
        };
        let db = self.db();
        loop {
            let guard = db.epochs.pin();
            let mut batch = std::mem::take(&mut state.batch);
            let position = match &state.position {
                Bound::Included((key, row)) => Bound::Included((&**key, *row)),
                Bound::Excluded((key, row)) => Bound::Excluded((&**key, *row)),
                Bound::Unbounded => Bound::Unbounded,
            };
            let more = tree.scan_batch(&guard, position, state.far_end(), state.direction, &mut batch);
            fetch_ahead(form, &batch, &guard);
            let mut last: Option<(&[u8], RowId)> = None;
            let mut waits = None;
            let mut stopped = false;
            let mut stopped_at = None;
            let rest = (!more).then_some(None);
            for (at, entry) in batch.iter().map(Some).chain(rest).enumerate() {
                match self.cold_before(
                    form_ref,
                    index,
                    state,
                    cold,
                    entry.map(|(key, _)| key),
                    &guard,
                    see,
                )? {
                    ColdSide::Passed => {}
                    ColdSide::Stop(key) => {
                        stopped = true;
                        stopped_at = Some(key);
                        break;
                    }
                    ColdSide::Waits(wait) => {
                        waits = Some(wait);
                        break;
                    }
                }
                let Some((key, row)) = entry else { break };
                match self.visit(form_ref, Some((index, key)), row, &guard, see) {
                    Entry::Next => last = Some((key, row)),
                    Entry::Stop => {
                        last = Some((key, row));
                        stopped = true;
                        break;
                    }
                    Entry::Undecided(id) => {
                        waits = Some(Wait::Decision(id));
                        break;
                    }
                    Entry::Paged(wait) => {
                        let rows = batch.iter().skip(at + 1).map(|(_, row)| row);
                        form.store.directory.read_ahead(row, rows, state.pages_ahead, &guard);
                        state.pages_ahead = (2 * state.pages_ahead).clamp(1, PAGES_AHEAD);
                        waits = Some(Wait::Page(wait));
                        break;
                    }
                }
            }
            if stopped || !more && waits.is_none() {
                let end = stopped_at.as_deref().or(last.map(|(key, _)| key)).filter(|_| stopped);
                self.note_range(form_ref, index, state, end);
                state.finished = !stopped;
                if state.pauses
                    && let Some((key, row)) = last
                {
                    state.position = Bound::Excluded((key.into(), row));
                }
                return Ok(Step::Done(()));
            }
            if let Some((key, row)) = last {
                state.position = Bound::Excluded((key.into(), row));
            }
            state.batch = batch;
            if let Some(wait) = waits {
                return Ok(Step::Wait(wait));
            }
            step!(self.remember()?);
        }
    }

    /// Remembers for validation how far a scan has come: up to this key, or to its end.
    fn note_range(&mut self, form: FormRef, index: &IndexForm, state: &mut ScanState, end: Option<&[u8]>) {
        self.watch_absence(form.get());
        if !self.validates_scans() {
            return;
        }
        let range = state.covered(end);
        match state.noted.and_then(|at| self.scans.get_mut(at)) {
            Some(scan) => scan.range = range,
            None => {
                state.noted = Some(self.scans.len());
                self.scans.push(Scan { form, index: index.id, range });
            }
        }
    }

    /// The cold side of a scan, if there may be any.
    pub(super) fn open_cold(
        &self,
        form: &TableForm,
        index: &IndexForm,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
    ) -> Option<ColdCursor> {
        let cold = self.db().cold.get()?;
        if !form.counters.cold.load(Ordering::Acquire) {
            return None;
        }
        let secondary = index.id != form.primary().id;
        let number = if secondary { secondary_of(form.id, index.id) } else { primary_of(form.id) };
        let low = match from {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => &[],
        };
        // A little more than the range: what lies outside of it is passed over.
        let high = match to {
            Bound::Included(key) => behind(key),
            Bound::Excluded(key) => Some(key.to_vec()),
            Bound::Unbounded => None,
        };
        let direction = match direction {
            Direction::Forward => thermocline_pool::store::Direction::Forward,
            Direction::Backward => thermocline_pool::store::Direction::Backward,
        };
        cold.store.may_contain_range(number, low, high.as_deref()).then(|| {
            ColdCursor::new(
                cold.store.scan(number, low, high.as_deref(), direction),
                secondary,
                &self.db.budget,
            )
        })
    }

    /// Shows the cold rows that come before `limit`, or all that are left.
    #[expect(clippy::too_many_arguments, reason = "the two sides of a scan, and who looks")]
    fn cold_before(
        &mut self,
        form_ref: FormRef,
        index: &IndexForm,
        state: &ScanState,
        cold: &mut Option<ColdCursor>,
        limit: Option<&[u8]>,
        guard: &thermocline_base::epoch::Guard<'_>,
        see: &mut impl FnMut(SeenRow<'_>) -> ControlFlow<()>,
    ) -> Result<ColdSide> {
        let Some(cursor) = cold else { return Ok(ColdSide::Passed) };
        loop {
            let Some(entry) = cursor.head() else {
                return Ok(if cursor.is_at_end() {
                    ColdSide::Passed
                } else {
                    ColdSide::Waits(Wait::ColdScan)
                });
            };
            let beyond = limit.is_some_and(|limit| match state.direction {
                Direction::Forward => *entry.key > *limit,
                Direction::Backward => *entry.key < *limit,
            });
            if beyond {
                return Ok(ColdSide::Passed);
            }
            if state.has(&entry.key) {
                match self.visit_cold(form_ref, index, entry, guard, see)? {
                    Step::Done(ControlFlow::Continue(())) => {}
                    Step::Done(ControlFlow::Break(())) => {
                        let key = entry.key.clone();
                        if state.pauses {
                            cursor.pop();
                        }
                        return Ok(ColdSide::Stop(key));
                    }
                    Step::Wait(wait) => return Ok(ColdSide::Waits(wait)),
                }
            }
            cursor.pop();
        }
    }

    /// Shows the row of an entry of the cold store, if the snapshot sees it.
    pub(super) fn visit_cold(
        &mut self,
        form_ref: FormRef,
        index: &IndexForm,
        entry: &ColdEntry,
        guard: &thermocline_base::epoch::Guard<'_>,
        see: &mut impl FnMut(SeenRow<'_>) -> ControlFlow<()>,
    ) -> Result<Step<ControlFlow<()>>> {
        let form = form_ref.get();
        let name = RecordName::new(entry.batch, &entry.primary);
        match self.record_at(form, name, self.snapshot, guard) {
            Seen::No => return Ok(Step::Done(ControlFlow::Continue(()))),
            Seen::Undecided(id) => return Ok(Step::Wait(Wait::Decision(id))),
            Seen::Live => {}
        }
        if entry.has_record {
            return Ok(Step::Done(self.show_record(form_ref, name, entry, see)));
        }
        let Some(row) = step!(self.cold_by_primary(form, &entry.primary, Some(name.batch), guard)) else {
            return Err(self.lost_record(form, index, &entry.key));
        };
        self.note_cold_read(form_ref, name);
        let place = SeenPlace::Cold(name, &entry.primary);
        Ok(Step::Done(see(self.seen_row(form, form.row_in(row.record().bytes), place))))
    }

    /// Shows a row whose record the cursor has.
    fn show_record(
        &mut self,
        form_ref: FormRef,
        name: RecordName,
        entry: &ColdEntry,
        see: &mut impl FnMut(SeenRow<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let form = form_ref.get();
        let renewed = form.renew(entry.batch, &entry.bytes);
        let bytes = renewed.as_deref().unwrap_or(&entry.bytes);
        let record = Record { batch: entry.batch, key: &entry.primary, bytes };
        self.note_cold_access(form.id, record);
        self.note_cold_read(form_ref, name);
        see(self.seen_row(form, form.row_in(record.bytes), SeenPlace::Cold(name, &entry.primary)))
    }

    /// Which of the entries that a scan has read ahead its snapshot may see: their records are worth reading. `None`: the
    /// entries have their records.
    pub(crate) fn look_ahead(
        &mut self,
        entry: &Arc<TableEntry>,
        cursor: &mut Option<ColdCursor>,
    ) -> Option<StoreIndex> {
        let cursor = cursor.as_mut().filter(|cursor| cursor.is_secondary())?;
        let Ok(Step::Done(form)) = self.touch(entry) else { return None };
        let (form, db) = (form.get(), self.db());
        let guard = db.epochs.pin();
        for entry in cursor.known() {
            let name = RecordName::new(entry.batch, &entry.primary);
            entry.is_wanted = self.record_at(form, name, self.snapshot, &guard) != Seen::No;
        }
        form.counters.reuse.note_device();
        Some(primary_of(form.id))
    }

    /// Reads all rows of a table in no particular order, on from where `next` stands.
    pub(crate) fn try_scan_table(
        &mut self,
        entry: &Arc<TableEntry>,
        state: &mut TableScanState,
        see: &mut impl FnMut(SeenRow<'_>) -> ControlFlow<()>,
    ) -> Result<Step<()>> {
        let form_ref = step!(self.touch(entry)?);
        let form = form_ref.get();
        let start = match state.next {
            Some(row) => row,
            None => {
                form.must_be_whole()?;
                self.begin_statement();
                let all = (Bound::Unbounded, Bound::Unbounded);
                state.cold = self.open_cold(form, form.primary(), all.0, all.1, Direction::Forward);
                RowId(0)
            }
        };
        let db = self.db();
        let (mut number, mut slot) = (start.chunk(), u32::from(start.slot()));
        while number < form.store.directory.len() {
            let guard = db.epochs.pin();
            let used = form.store.directory.get(number, &guard).map_or(0, crate::hot::chunk::Chunk::used);
            let end = used.min(slot + SLOTS_A_PIN);
            while slot < end {
                let row = RowId::new(number, u16::try_from(slot).expect("slot numbers have 16 bits"));
                state.next = Some(row);
                match self.visit(form_ref, None, row, &guard, see) {
                    Entry::Next => slot += 1,
                    Entry::Stop => {
                        // Behind a chunk's last slot the next chunk begins.
                        let next = u16::try_from(slot + 1).map(|slot| RowId::new(number, slot));
                        state.next = Some(next.unwrap_or(RowId::new(number + 1, 0)));
                        self.note_table(form_ref, &mut state.noted);
                        return Ok(Step::Done(()));
                    }
                    Entry::Undecided(id) => return Ok(Step::Wait(Wait::Decision(id))),
                    Entry::Paged(wait) => return Ok(Step::Wait(Wait::Page(wait))),
                }
            }
            if slot >= used {
                (number, slot) = (number + 1, 0);
            }
            let slot = u16::try_from(slot).expect("slot numbers have 16 bits");
            state.next = Some(RowId::new(number, slot));
            step!(self.remember()?);
        }
        // Chunks that were added since hold nothing that the snapshot sees.
        state.next = Some(RowId::new(number, 0));
        let guard = db.epochs.pin();
        while let Some(cursor) = state.cold.as_mut().filter(|cursor| !cursor.is_at_end()) {
            let Some(entry) = cursor.head() else { return Ok(Step::Wait(Wait::ColdScan)) };
            let seen = step!(self.visit_cold(form_ref, form.primary(), entry, &guard, see)?);
            cursor.pop();
            if seen.is_break() {
                self.note_table(form_ref, &mut state.noted);
                return Ok(Step::Done(()));
            }
        }
        state.finished = true;
        self.note_table(form_ref, &mut state.noted);
        Ok(Step::Done(()))
    }

    pub(super) fn note_table(&mut self, form: FormRef, noted: &mut bool) {
        self.watch_absence(form.get());
        if self.validates_scans() && !std::mem::replace(noted, true) {
            let index = form.get().primary().id;
            self.scans.push(Scan { form, index, range: ScanRange::Table });
        }
    }

    /// Shows a row to `see`, if the snapshot sees it, with the entry's key where there is one.
    pub(super) fn visit(
        &mut self,
        form_ref: FormRef,
        entry: Option<(&IndexForm, &[u8])>,
        row: RowId,
        guard: &thermocline_base::epoch::Guard<'_>,
        see: &mut impl FnMut(SeenRow<'_>) -> ControlFlow<()>,
    ) -> Entry {
        let form = form_ref.get();
        loop {
            let _frame = guard.frame();
            let newest = match self.newest_of(form, row, guard) {
                Ok(newest) => newest,
                Err(wait) => {
                    if entry.is_none() {
                        // Its neighbours are wanted next.
                        form.store.directory.read_behind(row, PAGES_AHEAD, guard);
                    }
                    return Entry::Paged(wait);
                }
            };
            let (memory, registry) = (&form.store.memory, &self.db.registry);
            let hides = |own| self.hides(own);
            match visible_to_view(newest, memory, registry, self.snapshot, self.id, hides) {
                Sees::Nothing => return Entry::Next,
                Sees::Row(version) => {
                    if entry.is_some_and(|(index, key)| !index.matches(form, version, key))
                        || self.has_followed(form, row, guard)
                    {
                        return Entry::Next;
                    }
                    // Who reads a whole table does not care for any of its rows.
                    if entry.is_some() {
                        self.note_use(form, version);
                    }
                    self.note_read(form_ref, row, version);
                    return match see(self.seen_row(form, form.row(version), SeenPlace::Memory(row))) {
                        ControlFlow::Continue(()) => Entry::Next,
                        ControlFlow::Break(()) => Entry::Stop,
                    };
                }
                Sees::Undecided(id) => return Entry::Undecided(id),
                Sees::Changed => {}
            }
        }
    }

    /// Reads all rows with this key, on from where `state` stands: first those in memory, then those in the cold store. Both at one
    /// snapshot, at which a row is in one place, so what was shown of memory need not be looked at again after a wait.
    pub(crate) fn try_read_all(
        &mut self,
        entry: &Arc<TableEntry>,
        index: IndexId,
        key: &[u8],
        state: &mut KeyState,
        see: &mut impl FnMut(SeenRow<'_>) -> ControlFlow<()>,
    ) -> Result<Step<()>> {
        let form_ref = step!(self.touch(entry)?);
        let form: &TableForm = form_ref.get();
        if !std::mem::replace(&mut state.begun, true) {
            form.must_be_whole()?;
            self.begin_statement();
        }
        let index = Self::index_for(form, index, key)?;
        let db = self.db();
        let guard = db.epochs.pin();
        let mut stopped = false;
        if state.cold == ColdKey::NotYet {
            stopped = step!(self.read_all_in_memory(form_ref, index, key, &mut state.shown, &guard, see));
            if !stopped && index.id == form.primary().id {
                if let Some(row) = step!(self.cold_by_primary_if_any(form, key, &guard)) {
                    self.note_cold_read(form_ref, row.name());
                    let place = SeenPlace::Cold(row.name(), row.record().key);
                    stopped = see(self.seen_row(form, form.row_in(row.record().bytes), place)).is_break();
                }
            } else if !stopped {
                state.cursor = step!(self.open_key(form, index, key));
            }
            state.cold = ColdKey::Open;
            state.shown = Shown::default();
        }
        while let (false, Some(cursor)) = (stopped, &mut state.cursor) {
            let Some(entry) = cursor.head() else {
                if cursor.is_at_end() {
                    break;
                }
                return Ok(Step::Wait(Wait::ColdScan));
            };
            // A scan of the group may come a little further.
            stopped =
                *entry.key == *key && step!(self.visit_cold(form_ref, index, entry, &guard, see)?).is_break();
            cursor.pop();
        }
        self.note_key(form_ref, index, key);
        Ok(Step::Done(()))
    }

    /// Shows the rows of a key that are in memory, but for those that were shown before a wait. `true`: the reader has enough.
    fn read_all_in_memory(
        &mut self,
        form_ref: FormRef,
        index: &IndexForm,
        key: &[u8],
        shown: &mut Shown,
        guard: &Guard<'_>,
        see: &mut impl FnMut(SeenRow<'_>) -> ControlFlow<()>,
    ) -> Step<bool> {
        let mut outcome = Entry::Next;
        let mut examine = |row: RowId| {
            if shown.contains(row) {
                return ControlFlow::Continue(());
            }
            match self.visit(form_ref, Some((index, key)), row, guard, see) {
                Entry::Next => {
                    shown.insert(row);
                    ControlFlow::Continue(())
                }
                other => {
                    outcome = other;
                    ControlFlow::Break(())
                }
            }
        };
        let _ = match &index.structure {
            Structure::Hash(hash) => hash.lookup(guard, hash_of(key), &mut examine),
            Structure::Tree(tree) => tree.lookup(guard, key, &mut examine),
        };
        match outcome {
            Entry::Undecided(id) => Step::Wait(Wait::Decision(id)),
            Entry::Paged(wait) => Step::Wait(Wait::Page(wait)),
            Entry::Stop => Step::Done(true),
            Entry::Next => Step::Done(false),
        }
    }

    fn cold_by_primary_if_any(
        &mut self,
        form: &TableForm,
        key: &[u8],
        guard: &Guard<'_>,
    ) -> Step<Option<ColdRow>> {
        match form.counters.cold.load(Ordering::Acquire) {
            true => self.cold_by_primary(form, key, None, guard),
            false => Step::Done(None),
        }
    }

    /// What the cold store may have of a key of a secondary index, as entries that lead to records.
    fn open_key(&mut self, form: &TableForm, index: &IndexForm, key: &[u8]) -> Step<Option<ColdCursor>> {
        let db = self.db();
        let (true, Some(cold)) = (form.counters.cold.load(Ordering::Acquire), db.cold.get()) else {
            return Step::Done(None);
        };
        let longest = form.counters.longest_moved.load(Ordering::Relaxed);
        let group = secondary_of(form.id, index.id);
        if !cold.store.may_contain_group(group, key) {
            return Step::Done(None);
        }
        if cold.store.is_long_group(group, key) {
            let scan = cold.store.scan(group, key, behind(key).as_deref(), StoreDirection::Forward);
            return Step::Done(Some(ColdCursor::of_scanned_key(scan, longest, &db.budget)));
        }
        match self.records(form, group, key, true, None) {
            Step::Done(entries) => {
                Step::Done(entries.map(|entries| ColdCursor::of_key(key, entries, longest, &db.budget)))
            }
            Step::Wait(wait) => Step::Wait(wait),
        }
    }
}

/// Where the reading of all rows of a key stands between its steps.
#[derive(Debug, Default)]
pub(crate) struct KeyState {
    begun: bool,
    shown: Shown,
    cold: ColdKey,
    cursor: Option<ColdCursor>,
}

impl KeyState {
    /// The cold side.
    pub(crate) fn cold(&mut self) -> &mut Option<ColdCursor> {
        &mut self.cursor
    }
}

/// Has the cold side of a key been opened?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum ColdKey {
    #[default]
    NotYet,
    Open,
}

/// Rows that a reader has been shown: a list while they are few.
#[derive(Debug, Default)]
struct Shown {
    list: Vec<RowId>,
    many: HashSet<RowId>,
}

impl Shown {
    /// More are looked for by their hash.
    const FEW: usize = 16;

    fn contains(&self, row: RowId) -> bool {
        if self.many.is_empty() { self.list.contains(&row) } else { self.many.contains(&row) }
    }

    fn insert(&mut self, row: RowId) {
        if self.list.len() < Self::FEW {
            return self.list.push(row);
        }
        if self.many.is_empty() {
            self.many.extend(&self.list);
        }
        self.many.insert(row);
    }
}
