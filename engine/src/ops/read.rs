//! Reading a row by its key: index → RowId → slot → the version that the snapshot sees → does it have the key?
//!
//! An index may name rows whose visible version has another key (an entry outlives the version it was made for), so
//! the key of the version decides.
//!
//! An example: row 7 had key A, and has key B since 60; both entries are there, since a snapshot of 50 lives.
//!
//! | reader | looks for | entry | version it sees | has the key? | answer |
//! |---|---|---|---|---|---|
//! | snapshot 50 | A | 7 | `[40, 60)` A | yes | the row |
//! | snapshot 70 | A | 7 | `[60, ∞)` B | no | none |
//! | snapshot 50 | B | 7 | `[40, 60)` A | no | none |
//! | snapshot 70 | B | 7 | `[60, ∞)` B | yes | the row |

use std::ops::ControlFlow;
use std::sync::Arc;

use thermocline_base::epoch::Guard;
use thermocline_base::ids::{IndexId, Lsn, RowId, Timestamp};
use thermocline_base::sync::Ordering;

use crate::catalog::table::{FormRef, IndexForm, Structure, TableEntry, TableForm};
use crate::cold::store::primary_of;
use crate::error::{Error, Result};
use crate::hot::block::Block;
use crate::hot::budget::OutOfMemoryCause;
use crate::hot::paged::{Absent, HeldRow};
use crate::hot::version::{Begin, TxnId, Version};
use crate::index::hash_of;
use crate::mutation::{self, Rule};
use crate::ops::handle::{SeenPlace, SeenRow};
use crate::ops::{PageWait, Step, Wait, step};
use crate::options::Isolation;
use crate::schema::Tiering;
use crate::session::{Health, NO_SNAPSHOT, Read, Scan, ScanRange, Session, Touched};
use crate::txn::registry::State;
use crate::txn::visibility::{Sees, visible_to_view};

/// Each wait for a page puts a row into the reader's hand, which is enough for any step but one that looks at more rows together than a
/// hand holds. After so many waits without having read a row, such a one reads the pages on its own thread.
const PATIENCE: u8 = 200;
/// Rows on the paged side come back so many times as soon as cold ones: it costs less.
const BACK_SOONER: u64 = 4;

/// How far a lookup has been prepared.
#[derive(Debug, Default)]
pub(crate) struct Approach {
    stage: u8,
    row: Option<RowId>,
}

/// What looking a key up came to.
pub(crate) enum Lookup {
    Row(RowId, Version),
    Absent,
    Undecided(TxnId),
    Changed,
    /// Its pages are not there.
    Paged(Box<PageWait>),
}

impl Session {
    /// The form of a table, after entering the transaction's mark for it.
    #[inline]
    pub(crate) fn touch(&mut self, entry: &Arc<TableEntry>) -> Result<Step<FormRef>> {
        if self.health != Health::Well {
            return Err(Error::TransactionFailed);
        }
        let place: *const TableEntry = Arc::as_ptr(entry);
        let Some(touched) = self.tables.iter().find(|touched| touched.entry == place) else {
            // It remembers little yet: a transaction of one step never asks how much.
            return self.touch_first(entry);
        };
        let form = touched.form;
        step!(self.remember()?);
        Ok(Step::Done(form))
    }

    /// Between two steps: what the transaction remembers counts under the memory limit.
    #[inline]
    pub(crate) fn remember(&mut self) -> Result<Step<()>> {
        match self.charge_lists() {
            Ok(()) => Ok(Step::Done(())),
            Err((refused, since))
                if refused.cause == OutOfMemoryCause::Limit && self.db().governor.is_there() =>
            {
                Ok(Step::Wait(Wait::Room { refused, since }))
            }
            Err((refused, _)) => Err(Error::OutOfMemory(refused)),
        }
    }

    /// Is a handle of this database, and its table still there?
    #[inline]
    pub(crate) fn check_handle(&self, entry: &TableEntry) -> Result<()> {
        let is_own = entry.is_of(&self.db().epochs);
        if is_own && !entry.is_dropped() { Ok(()) } else { Err(entry.refusal(is_own)) }
    }

    fn touch_first(&mut self, entry: &Arc<TableEntry>) -> Result<Step<FormRef>> {
        self.check_handle(entry)?;
        if self.definitions.as_ref().is_some_and(|definitions| definitions.has_dropped(entry)) {
            return Err(entry.refusal(true));
        }
        let (marks, entered) = (&self.place().marks, self.tables.len());
        let early = mutation::off(Rule::MarkBeforeLook).then(|| entry.is_held());
        let before = marks.enter(entered, entry.id);
        if early.unwrap_or_else(|| entry.is_held()) {
            marks.take_back(entered, before);
            return Ok(Step::Wait(Wait::Held(Arc::clone(entry))));
        }
        // SAFETY: the mark was entered and the table is not held; marks go when the session ends, and its references
        // with them.
        let form = unsafe { FormRef::of(entry) };
        if entry.is_dropped() {
            marks.take_back(entered, before);
            return Err(entry.refusal(true));
        }
        self.tables.push(Touched { entry: Arc::as_ptr(entry), form });
        Ok(Step::Done(form))
    }

    /// The index of a form.
    #[inline]
    pub(crate) fn index_of(form: &TableForm, id: IndexId) -> Result<&Arc<IndexForm>> {
        form.index(id).ok_or_else(|| Error::UnknownIndex {
            table: form.schema.name.clone(),
            index: format!("number {id}, since dropped"),
        })
    }

    /// The index of a form, for a whole key of it.
    #[inline]
    pub(crate) fn index_for<'f>(form: &'f TableForm, id: IndexId, key: &[u8]) -> Result<&'f Arc<IndexForm>> {
        let index = Self::index_of(form, id)?;
        index.check_key(key).map_err(|source| Self::row_error(form, source))?;
        Ok(index)
    }

    /// At read committed, each statement sees what was committed before it; else all see what the first one saw, unless
    /// a snapshot was taken when the transaction began.
    #[inline]
    pub(crate) fn begin_statement(&mut self) {
        (self.looked, self.view.looked) = (true, true);
        self.begin_insert();
    }

    /// The same for a statement that only inserts: it looks at nothing that its snapshot would matter to.
    #[inline]
    pub(crate) fn begin_insert(&mut self) {
        if self.view.is_open() {
            return self.go_on_with_statement();
        }
        // A statement that has waited for cold data goes on where it was: what it has read is good for its snapshot.
        if std::mem::take(&mut self.resumed) && self.snapshot != NO_SNAPSHOT {
            return;
        }
        if self.isolation == Isolation::ReadCommitted || self.snapshot == NO_SNAPSHOT {
            self.take_snapshot();
        }
    }

    /// Asks the processor for the next thing that a lookup of this key will need: the bucket, then the slots that it
    /// names, then the versions that they lead to; for a row that is not in memory, what the cold store looks at first.
    /// `false`: nothing is worth asking for any more.
    #[inline]
    pub(crate) fn approach(
        &mut self,
        entry: &Arc<TableEntry>,
        index: IndexId,
        key: &[u8],
        state: &mut Approach,
    ) -> bool {
        let Ok(Step::Done(form)) = self.touch(entry) else { return false };
        let form = form.get();
        let Some(index) = form.index(index) else { return false };
        let guard = self.db().epochs.pin();
        loop {
            match state.stage {
                0 => {
                    state.stage = 1;
                    if let Structure::Hash(hash) = &index.structure {
                        hash.prefetch(&guard, hash_of(key));
                        return true;
                    }
                }
                1 => {
                    state.stage = 2;
                    let note = |row: RowId| {
                        state.row = Some(row);
                        ControlFlow::Break(())
                    };
                    match &index.structure {
                        Structure::Hash(hash) => hash.lookup(&guard, hash_of(key), note),
                        Structure::Tree(tree) => tree.lookup(&guard, key, note),
                    };
                    let Some(row) = state.row else {
                        state.stage = 3;
                        return self.approach_cold(form, index, key);
                    };
                    let Some(slot) = form.store.directory.slot(row, &guard) else { return false };
                    slot.prefetch();
                    return true;
                }
                2 => {
                    state.stage = 3;
                    let Some(row) = state.row else { return false };
                    form.store.directory.approach(row, &guard);
                    return true;
                }
                _ => return false,
            }
        }
    }

    /// The same for a key that nobody in memory has. `false`: the store has none of the table's rows.
    #[inline]
    pub(crate) fn approach_cold(&self, form: &TableForm, index: &IndexForm, key: &[u8]) -> bool {
        let cold = self.db().cold.get().filter(|_| form.counters.cold.load(Ordering::Relaxed));
        let Some(cold) = cold.filter(|_| index.id == form.primary().id) else { return false };
        cold.store.prefetch(primary_of(form.id), key);
        true
    }

    /// Takes a snapshot, and notes the log's tail behind it: the reader's commit must not be acknowledged before that
    /// is on disk.
    #[inline]
    pub(crate) fn take_snapshot(&mut self) {
        if mutation::on(Rule::CacheEndsWithSnapshot) {
            self.cold_cache.clear();
        }
        self.snapshots += 1;
        let first = self.snapshot == NO_SNAPSHOT;
        self.snapshot = self.place().take_snapshot(&self.db.registry.clock);
        if let Some(log) = self.db.log_to_wait_for() {
            self.seen = log.tail();
            self.watches |= first && log.failure().is_some();
        }
    }

    /// Notes that something was not found in a table, for a transaction that watches.
    #[inline]
    pub(crate) fn watch_absence(&mut self, form: &TableForm) {
        if self.watches {
            let db = self.db();
            let durable = db.log().map_or(Lsn(0), |log| log.durable());
            self.saw_undurable |= db.undurable.touches(form.mark(), durable);
        }
    }

    /// The newest version of a row; of one on the paged side, only if it is in the transaction's hand, or its pages are there, or if the
    /// transaction has waited so often that it had better read them itself.
    ///
    /// # Errors
    /// What to wait for.
    #[inline]
    pub(crate) fn newest_of(
        &self,
        form: &TableForm,
        row: RowId,
        guard: &Guard<'_>,
    ) -> std::result::Result<Option<Version>, Box<PageWait>> {
        match form.store.directory.newest_if_there(row, &self.hand, guard) {
            Ok(newest) => Ok(newest),
            Err(absent) => self.read_past(form, row, *absent, guard),
        }
    }

    /// Takes a row that a step has waited for into the transaction's hand.
    pub(crate) fn note_page_answer(&mut self, row: HeldRow) {
        self.hand.take(row);
        self.page_waits = self.page_waits.saturating_add(1);
        self.resumed = true;
    }

    #[cold]
    fn read_past(
        &self,
        form: &TableForm,
        row: RowId,
        absent: Absent,
        guard: &Guard<'_>,
    ) -> std::result::Result<Option<Version>, Box<PageWait>> {
        if self.page_waits >= PATIENCE {
            // Who waits for a page that cannot be read is told.
            if let Ok(newest) = form.store.directory.newest_now(row, guard) {
                return Ok(newest);
            }
        }
        Err(Box::new(PageWait { table: form.schema.name.clone(), absent }))
    }

    /// The row with this key, as the snapshot sees it. In a non-unique index, the first one found.
    #[inline]
    pub(crate) fn look_up(
        &self,
        form: &TableForm,
        index: &IndexForm,
        key: &[u8],
        guard: &Guard<'_>,
    ) -> Lookup {
        let (registry, memory) = (&self.db.registry, &form.store.memory);
        let (snapshot, id) = (self.snapshot, self.id);
        let examine = |row: RowId| {
            let newest = match self.newest_of(form, row, guard) {
                Ok(newest) => newest,
                Err(wait) => return ControlFlow::Break(Lookup::Paged(wait)),
            };
            match visible_to_view(newest, memory, registry, snapshot, id, |own| self.hides(own)) {
                Sees::Row(version)
                    if index.matches(form, version, key) && !self.has_followed(form, row, guard) =>
                {
                    ControlFlow::Break(Lookup::Row(row, version))
                }
                Sees::Row(_) | Sees::Nothing => ControlFlow::Continue(()),
                Sees::Undecided(id) => ControlFlow::Break(Lookup::Undecided(id)),
                Sees::Changed => ControlFlow::Break(Lookup::Changed),
            }
        };
        let found = match &index.structure {
            Structure::Hash(hash) => hash.lookup(guard, hash_of(key), examine),
            Structure::Tree(tree) => tree.lookup(guard, key, examine),
        };
        found.unwrap_or(Lookup::Absent)
    }

    /// May an operation give way while it approaches its row? Only in transactions that have written nothing, since
    /// others wait for those that have, and only for a few operations: what reads much asks for it at once
    /// ([`Session::prefetch`]).
    #[inline]
    pub(crate) fn may_give_way(&mut self) -> bool {
        const APPROACHES: u8 = 4;
        self.approaches = self.approaches.saturating_add(1);
        self.approaches <= APPROACHES && self.writes.is_empty()
    }

    /// Asks the processor for all that lookups of these keys will need, the misses of all keys at the same time.
    pub(crate) fn prefetch<'k>(
        &mut self,
        entry: &Arc<TableEntry>,
        index: IndexId,
        keys: impl Iterator<Item = &'k [u8]>,
    ) {
        const TOGETHER: usize = 16;
        let mut keys = keys.peekable();
        while keys.peek().is_some() {
            let mut states: [(Approach, &[u8]); TOGETHER] = Default::default();
            let mut count = 0;
            for (state, key) in states.iter_mut().zip(&mut keys) {
                state.1 = key;
                count += 1;
            }
            for _ in 0..3 {
                for (state, key) in &mut states[..count] {
                    self.approach(entry, index, key, state);
                }
            }
        }
    }

    /// Notes when a row was used last, if it matters: memory is short or may become so.
    #[inline]
    pub(crate) fn note_use(&self, form: &TableForm, version: Version) {
        if self.sampler.is_some() {
            form.counters.reuse.note(version, self.db.governor.moment());
        }
        // Of frozen rows it matters as soon as they are: which chunks leave is decided by what was seen before.
        if version.is_image() {
            match form.schema.row_tiering() {
                Tiering::Auto => self.note_frozen_use(form, version),
                Tiering::Paged => self.note_paged_use(form, version),
                Tiering::Hot | Tiering::Cold | Tiering::Frozen => {}
            }
        }
    }

    /// Notes that a row of a block was read: on the block.
    #[cold]
    fn note_frozen_use(&self, form: &TableForm, image: Version) {
        let guard = self.db().epochs.pin();
        let chunk = form.store.directory.get(image.row_id().chunk(), &guard);
        let block = image.image_of().and_then(|number| chunk?.block(number, &guard));
        block.into_iter().for_each(Block::note_use);
    }

    /// Notes that a row on the paged side was read: one in so many of them comes back.
    #[cold]
    fn note_paged_use(&self, form: &TableForm, image: Version) {
        let db = self.db();
        let wanted = u64::from(db.options.reads_a_promotion);
        let reads = form.counters.paged_reads.fetch_add(1, Ordering::Relaxed);
        if wanted > 0 && reads.is_multiple_of((wanted / BACK_SOONER).max(1)) {
            come_back(db, form, image);
        }
    }

    /// Notes that a version is new, in the same way.
    #[inline]
    pub(crate) fn note_new(&self, version: Version) {
        if self.sampler.is_some() {
            version.note_use(self.db.governor.moment().0);
        }
    }

    /// Remembers a row for validation, and now and then its being accessed.
    #[inline]
    pub(crate) fn note_read(&mut self, form: FormRef, row: RowId, version: Version) {
        self.page_waits = 0;
        if let Some(sampler) = &mut self.sampler {
            let hash = || {
                let mut key = crate::row::KeyBuf::new();
                form.get().primary().key_of(form.get(), version, &mut key);
                hash_of(&key)
            };
            sampler.touch(form.get().id, hash, version.cell_bytes() as u32);
        }
        if !self.validates_reads() && !self.watches {
            return;
        }
        let begin = match version.begin() {
            Begin::At(begin) => begin,
            Begin::By(id) if Some(id) == self.id => return,
            Begin::By(id) => match self.db.registry.state(id) {
                (State::Committed, end) => end,
                _ => match version.begin() {
                    Begin::At(begin) => begin,
                    Begin::By(_) => unreachable!("a visible version's transaction has committed"),
                },
            },
        };
        self.note_begin(form, row, begin);
    }

    /// The same of a row that began then.
    pub(super) fn note_begin(&mut self, form: FormRef, row: RowId, begin: Timestamp) {
        if self.watches {
            let db = self.db();
            let durable = db.log().map_or(Lsn(0), |log| log.durable());
            self.saw_undurable |= db.undurable.holds(begin, durable);
        }
        if self.validates_reads() {
            self.reads.push(Read { form, row, begin });
        }
    }

    /// Remembers a key for validation.
    pub(crate) fn note_key(&mut self, form: FormRef, index: &IndexForm, key: &[u8]) {
        self.watch_absence(form.get());
        if self.validates_scans() {
            self.scans.push(Scan { form, index: index.id, range: ScanRange::Key(key.into()) });
        }
    }

    /// Reads the row with this key through `see`.
    #[inline]
    pub(crate) fn try_read<R, F: FnOnce(SeenRow<'_>) -> R>(
        &mut self,
        entry: &Arc<TableEntry>,
        index: IndexId,
        key: &[u8],
        see: &mut Option<F>,
    ) -> Result<Step<Option<R>>> {
        let form_ref = step!(self.touch(entry)?);
        self.begin_statement();
        let form = form_ref.get();
        let index = Self::index_for(form, index, key)?;
        let guard = self.db().epochs.pin();
        loop {
            match self.look_up(form, index, key, &guard) {
                Lookup::Row(row, version) => {
                    self.note_use(form, version);
                    self.note_read(form_ref, row, version);
                    if !index.is_unique() {
                        form.must_be_whole()?;
                        self.note_key(form_ref, index, key);
                    }
                    let see = see.take().expect("a read finds its row once");
                    let place = SeenPlace::Memory(row);
                    return Ok(Step::Done(Some(see(self.seen_row(form, form.row(version), place)))));
                }
                Lookup::Absent => {
                    let row = step!(self.look_up_cold(form, index, key, &guard)?);
                    if row.is_none() || !index.is_unique() {
                        form.must_be_whole()?;
                        self.note_key(form_ref, index, key);
                    }
                    let Some(row) = row else { return Ok(Step::Done(None)) };
                    self.note_cold_read(form_ref, row.name());
                    let see = see.take().expect("a read finds its row once");
                    let place = SeenPlace::Cold(row.name(), row.record().key);
                    return Ok(Step::Done(Some(see(self.seen_row(
                        form,
                        form.row_in(row.record().bytes),
                        place,
                    )))));
                }
                Lookup::Undecided(id) => return Ok(Step::Wait(Wait::Decision(id))),
                Lookup::Paged(wait) => return Ok(Step::Wait(Wait::Page(wait))),
                Lookup::Changed => {}
            }
        }
    }
}

/// Brings a row back into memory that was read on the paged side, if nothing speaks against it.
#[cold]
fn come_back(inner: &crate::session::db::Inner, form: &TableForm, image: Version) {
    if inner.governor.is_pressing(&inner.budget) {
        return;
    }
    let guard = inner.epochs.pin();
    // Without room the row stays where it is.
    if let Ok(Some(version)) = form.store.thaw_image(image, false, &guard) {
        version.note_use(inner.governor.moment().0);
        inner.paged.note_come_back();
    }
}
