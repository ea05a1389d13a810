//! Scans: all rows with one key, or the rows of a range of an ordered index, in either direction.
//!
//! The index hands out entries a leaf at a time; each entry is resolved under the snapshot, and counts only if the
//! visible version has the entry's key. Between two leaves, and wherever a step has to wait, only the last entry's key
//! and RowId are kept.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use thermocline_base::ids::{IndexId, RowId};

use crate::catalog::table::{FormRef, IndexForm, Structure, TableEntry, TableForm};
use crate::error::{Error, Result};
use crate::hot::version::TxnId;
use crate::index::hash_of;
use crate::index::tree::{Batch, Direction};
use crate::ops::{Step, Wait, step};
use crate::txn::session::{Scan, ScanRange, Session};
use crate::txn::visibility::{Sees, visible};

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

    /// The exclusive end of a prefix: the next byte string of its length. `None`: there is none.
    fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
        let last = prefix.iter().rposition(|&byte| byte != u8::MAX)?;
        let mut end = prefix[..=last].to_vec();
        end[last] += 1;
        Some(end)
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
}

fn own(bound: Bound<&[u8]>) -> Bound<Box<[u8]>> {
    bound.map(Into::into)
}

fn borrow(bound: &Bound<Box<[u8]>>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &**key)
}

impl ScanState {
    /// At the start of `range`.
    pub(crate) fn new(range: KeyRange<'_>, direction: Direction) -> Self {
        let end = range.prefix.and_then(KeyRange::prefix_end);
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
        Self { direction, from: own(range.from), to: own(to), position, batch: Batch::new(), begun: false }
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
    for version in rows().filter_map(|row| form.store.directory.newest(row, guard)) {
        version.prefetch();
    }
}

/// What a row of a scan came to.
enum Entry {
    Next,
    Stop,
    Undecided(TxnId),
}

impl Session {
    /// Scans on from where `state` stands.
    pub(crate) fn try_scan(
        &mut self,
        entry: &Arc<TableEntry>,
        index: IndexId,
        state: &mut ScanState,
        see: &mut impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Step<()>> {
        let form_ref = step!(self.touch(entry)?);
        if !std::mem::replace(&mut state.begun, true) {
            self.begin_statement();
        }
        let form = form_ref.get();
        let index = Self::index_of(form, index)?;
        let Structure::Tree(tree) = &index.structure else {
            return Err(Error::InvalidOption {
                option: "scan",
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
            for (key, row) in batch.iter() {
                match self.visit(form_ref, Some((index, key)), row, &guard, see) {
                    Entry::Next => last = Some((key, row)),
                    Entry::Stop => {
                        last = Some((key, row));
                        stopped = true;
                        break;
                    }
                    Entry::Undecided(id) => {
                        waits = Some(id);
                        break;
                    }
                }
            }
            if stopped || !more && waits.is_none() {
                self.watch_absence(form);
                if self.validates_scans() {
                    let range = state.covered(last.map(|(key, _)| key).filter(|_| stopped));
                    self.scans.push(Scan { form: form_ref, index: index.id, range });
                }
                return Ok(Step::Done(()));
            }
            if let Some((key, row)) = last {
                state.position = Bound::Excluded((key.into(), row));
            }
            state.batch = batch;
            if let Some(id) = waits {
                return Ok(Step::Wait(Wait::Decision(id)));
            }
        }
    }

    /// Reads all rows of a table in no particular order, on from where `next` stands.
    pub(crate) fn try_scan_table(
        &mut self,
        entry: &Arc<TableEntry>,
        next: &mut Option<RowId>,
        see: &mut impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Step<()>> {
        let form_ref = step!(self.touch(entry)?);
        let start = match *next {
            Some(row) => row,
            None => {
                self.begin_statement();
                RowId(0)
            }
        };
        let form = form_ref.get();
        let db = self.db();
        let (mut number, mut slot) = (start.chunk(), u32::from(start.slot()));
        while number < form.store.directory.len() {
            let guard = db.epochs.pin();
            let used = form.store.directory.get(number, &guard).map_or(0, crate::hot::chunk::Chunk::used);
            let end = used.min(slot + SLOTS_A_PIN);
            while slot < end {
                let row = RowId::new(number, u16::try_from(slot).expect("slot numbers have 16 bits"));
                *next = Some(row);
                match self.visit(form_ref, None, row, &guard, see) {
                    Entry::Next => slot += 1,
                    Entry::Stop => {
                        self.note_table(form_ref);
                        return Ok(Step::Done(()));
                    }
                    Entry::Undecided(id) => return Ok(Step::Wait(Wait::Decision(id))),
                }
            }
            if slot >= used {
                (number, slot) = (number + 1, 0);
            }
        }
        self.note_table(form_ref);
        Ok(Step::Done(()))
    }

    fn note_table(&mut self, form: FormRef) {
        self.watch_absence(form.get());
        if self.validates_scans() {
            let index = form.get().primary().id;
            self.scans.push(Scan { form, index, range: ScanRange::Table });
        }
    }

    /// Shows a row to `see`, if the snapshot sees it, with the entry's key where there is one.
    fn visit(
        &mut self,
        form_ref: FormRef,
        entry: Option<(&IndexForm, &[u8])>,
        row: RowId,
        guard: &thermocline_base::epoch::Guard<'_>,
        see: &mut impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Entry {
        let form = form_ref.get();
        loop {
            let newest = form.store.directory.newest(row, guard);
            match visible(newest, &form.store.memory, &self.db.registry, self.snapshot, self.id) {
                Sees::Nothing => return Entry::Next,
                Sees::Row(version) => {
                    if entry.is_some_and(|(index, key)| !index.matches(form, version, key)) {
                        return Entry::Next;
                    }
                    self.note_read(form_ref, row, version);
                    return match see(form.row(version)) {
                        ControlFlow::Continue(()) => Entry::Next,
                        ControlFlow::Break(()) => Entry::Stop,
                    };
                }
                Sees::Undecided(id) => return Entry::Undecided(id),
                Sees::Changed => {}
            }
        }
    }

    /// Reads all rows with this key. On a wait the whole is tried again: `rows` holds what was found.
    pub(crate) fn try_read_all(
        &mut self,
        entry: &Arc<TableEntry>,
        index: IndexId,
        key: &[u8],
        seen: &mut Vec<RowId>,
        see: &mut impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Step<()>> {
        let form_ref = step!(self.touch(entry)?);
        if seen.is_empty() {
            self.begin_statement();
        }
        let form: &TableForm = form_ref.get();
        let index = Self::index_of(form, index)?;
        let db = self.db();
        let guard = db.epochs.pin();
        let mut outcome = Entry::Next;
        let mut examine = |row: RowId| {
            if seen.contains(&row) {
                return ControlFlow::Continue(());
            }
            match self.visit(form_ref, Some((index, key)), row, &guard, see) {
                Entry::Next => {
                    seen.push(row);
                    ControlFlow::Continue(())
                }
                other => {
                    outcome = other;
                    ControlFlow::Break(())
                }
            }
        };
        let _ = match &index.structure {
            Structure::Hash(hash) => hash.lookup(&guard, hash_of(key), &mut examine),
            Structure::Tree(tree) => tree.lookup(&guard, key, &mut examine),
        };
        if let Entry::Undecided(id) = outcome {
            return Ok(Step::Wait(Wait::Decision(id)));
        }
        self.note_key(form_ref, index, key);
        Ok(Step::Done(()))
    }
}
