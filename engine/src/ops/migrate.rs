//! Migration: rows go from memory into the cold store, a batch at a time (Eldawy et al., VLDB 2014, §5.2).
//!
//! | step | log | cold store | a crash right after it leaves |
//! |---|---|---|---|
//! | 1 a transaction commits the batch's notice N | durable | | N with none of its records: recovery discards the batch and drops N |
//! | 2 the records are written | | durable | N with some or all of them: the same |
//! | 3 the move: N → B, moved marks over the rows; committed | durable | | a migrated batch |
//! | 4 the store is told that the batch stays | | | the same: recovery tells it |
//! | 5 nobody can see the rows in memory any more | | | they are pruned; the cleaner drops B |
//!
//! The move takes its log space first; then it sets its marks, decides and publishes without waiting for anything. So a
//! transaction that meets a mark waits for a moment, and none fails because of it. A row that a user has changed since it
//! was copied leaves the batch: the move ends its record, which has never been visible (`LeaversEnd`). If too many leave,
//! the move is given up, and the batch discarded.
//!
//! An example: rows K and L migrate under batch 55, and U changes L meanwhile.
//!
//! | time | migration | U | K | L |
//! |---|---|---|---|---|
//! | 55 | 1: commits N | | in memory | in memory |
//! | | 2: writes records (55, K), (55, L) | | in memory; the record is not there (N) | the same |
//! | 58 | | updates L | | `[58, ∞)` in memory |
//! | 60 | 3: marks K, ends (55, L), N → B | | moved: readers from 60 on find the record | in memory; its record is dead |
//! | | 4, 5: confirms; K's version is pruned once no snapshot is below 60 | | cold | in memory |
//!
//! What migrates is the newest version of a row, committed and not locked. It is not younger than the snapshot of a
//! transaction that will validate its scans, which looks for phantoms in memory, or the refusal of a key, which looks for
//! the row there. And it did not come back from the cold store later than the oldest snapshot: while a snapshot is older
//! than a move, the row does not move again (`MovesOnce`).

use std::collections::HashSet;
use std::sync::Arc;

use thermocline_base::ids::{IndexId, RowId, TableId, Timestamp};
use thermocline_base::sync::Ordering;
use thermocline_pool::store::{Batch, BatchId, StoreError, StoreOwner};

use crate::catalog::table::{FormRef, TableEntry, TableForm};
use crate::cold::memo::{Heir, Memo, NoticeKind, RecordName, pack_keys, unpack_keys};
use crate::cold::store::{ColdStore, StoreMemory, StoreTies, primary_of};
use crate::cold::{Cold, ColdCounters};
use crate::error::{Error, Result};
use crate::hot::version::{Begin, Moved, Version};
use crate::index::hash_of;
use crate::log::ReserveError;
use crate::log::record::{COMMIT_BYTES, Kind, WRITE_BYTES};
use crate::mutation::{self, Rule};
use crate::ops::commit::PartsState;
use crate::ops::commit::Record;
use crate::ops::drive::Driver;
use crate::ops::write::Origin;
use crate::ops::{Step, Wait};
use crate::row::{KeyBuf, MAX_KEY_BYTES};
use crate::session::db::Inner;
use crate::session::{Session, Write};

/// A share of the rows, 1 in so many, may leave a batch before the move is given up.
const LEAVING: usize = 4;
/// Bytes of a notice of an end beside its keys, at most.
pub(super) const END_BYTES: usize = 96;
/// Bytes of the records of one batch, but for the last one.
const BATCH_BYTES_MAX: u64 = 4 << 20;

/// What a migration came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Migration {
    /// Rows that have moved.
    pub(crate) rows: usize,
    /// Bytes of memory that their versions take.
    pub(crate) bytes: usize,
    /// Rows that were not eligible, or have left the batch.
    pub(crate) stayed: usize,
}

/// A row that is to move.
#[derive(Clone, Debug)]
struct Candidate {
    row: RowId,
    /// When the version begins that was copied.
    begin: Timestamp,
    name: RecordName,
    /// The keys of its entries, should it leave the batch ([`pack_keys`]): where they stand in [`Copied::keys`].
    keys: std::ops::Range<usize>,
}

/// Rows of one table that were copied into a batch.
#[derive(Debug)]
struct Copied {
    candidates: Vec<Candidate>,
    keys: Vec<u8>,
    stamp: FormStamp,
}

/// What a batch was made for: it is no use for another form of the table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FormStamp {
    layout_version: u32,
    storage: TableId,
    indexes: Vec<IndexId>,
}

impl FormStamp {
    pub(super) fn of(form: &TableForm) -> Self {
        Self {
            layout_version: form.layout_version,
            storage: form.storage,
            indexes: form.indexes.iter().map(|index| index.id).collect(),
        }
    }

    /// Its indexes, the primary one first.
    pub(super) fn indexes(&self) -> &[IndexId] {
        &self.indexes
    }
}

/// Keeps the cleaner away from a batch until it is dropped.
pub(super) struct Running<'a> {
    cold: &'a Cold,
    pub(super) batch: u64,
}

impl<'a> Running<'a> {
    /// Draws the id of a batch of the table, which runs from now on. `None`: nothing may move now.
    pub(super) fn begin(inner: &Inner, cold: &'a Cold, entry: &TableEntry) -> Option<Self> {
        let mut progress = cold.progress.lock();
        let paused = progress.no_moves > 0 && mutation::on(Rule::BackupPausesMoves);
        if paused || entry.is_held() {
            return None;
        }
        let batch = inner.registry.clock.tick().0;
        progress.running.insert(batch);
        Some(Self { cold, batch })
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.cold.progress.lock().running.remove(&self.batch);
    }
}

/// Migrates those of the rows that may.
///
/// # Errors
/// The log or the cold store has failed or is full, or memory is at its end. Rows are where they were then.
pub(crate) async fn migrate(db: &Arc<Inner>, entry: &Arc<TableEntry>, rows: &[RowId]) -> Result<Migration> {
    let (memo, cold) = open_cold(db)?;
    crate::ops::checkpoint::write_cold_mark(db)?;
    let Some(running) = Running::begin(db, cold, entry) else {
        return Ok(Migration { stayed: rows.len(), ..Migration::default() });
    };
    let id = running.batch;
    let mut batch = Batch::new(BatchId(id));
    let copied = copy_rows(db, entry, rows, &mut batch);
    let count = copied.candidates.len();
    let mut migration = Migration { stayed: rows.len() - count, ..Migration::default() };
    if count == 0 {
        return Ok(migration);
    }
    announce(db, memo, entry, id).await?;
    log_durable(db, Rule::ColdWriteAfterLog).await?;
    let failed = |source| crate::ops::cold::cold_error(db, entry, source);
    match cold.store.write(batch).await {
        Ok(()) => {}
        // Another batch has taken the place since it was asked for. The cleaner sees to the notice.
        Err(StoreError::Occupied { .. }) => {
            ColdCounters::add(&cold.counters.abandoned_batches, 1);
            migration.stayed = rows.len();
            return Ok(migration);
        }
        Err(error) => return Err(failed(error)),
    }
    mark_store(db, cold);
    // Readers look into the store from the move's timestamp on.
    let tell = || entry.form_pinned(&db.epochs.pin()).counters.cold.store(true, Ordering::SeqCst);
    if mutation::on(Rule::ColdBeforeMove) {
        tell();
    }
    let Some(moved) = move_rows(db, memo, entry, id, &copied).await? else {
        ColdCounters::add(&cold.counters.abandoned_batches, 1);
        migration.stayed = rows.len();
        return Ok(migration);
    };
    tell();
    log_durable(db, Rule::ConfirmAfterLog).await?;
    cold.store.confirm(BatchId(id)).await.map_err(failed)?;
    drop(running);
    migration.rows = moved.0;
    migration.bytes = moved.1;
    migration.stayed = rows.len() - moved.0;
    ColdCounters::add(&cold.counters.migrated_rows, moved.0);
    ColdCounters::add(&entry.form_pinned(&db.epochs.pin()).counters.moved_rows, moved.0);
    ColdCounters::add(&cold.counters.migrated_bytes, moved.1);
    ColdCounters::add(&cold.counters.left_rows, count - moved.0);
    Ok(migration)
}

/// Lets the log say up to where the store is durable: what is committed next depends on that.
pub(crate) fn mark_store(db: &Inner, cold: &Cold) {
    if let Some(log) = db.log() {
        log.mark_store(cold.store.end());
    }
}

/// Waits until all that was committed so far is on disk, whatever the durability setting. `rule`: why.
pub(crate) async fn log_durable(db: &Inner, rule: Rule) -> Result<()> {
    match db.log() {
        Some(log) if mutation::on(rule) => {
            log.wait_durable(log.tail()).await.map_err(|error| db.log_error(&error))
        }
        _ => Ok(()),
    }
}

/// Copies what may migrate into a batch.
fn copy_rows(db: &Inner, entry: &TableEntry, rows: &[RowId], batch: &mut Batch) -> Copied {
    const ROWS_A_PIN: usize = 256;
    // The clock first: who is missed among those that validate has a newer snapshot.
    let youngest = db.registry.oldest_validating();
    let oldest = db.registry.active_snapshots().oldest();
    let youngest = if mutation::off(Rule::YoungStay) { Timestamp(u64::MAX >> 2) } else { youngest };
    let (mut candidates, mut hashes) = (Vec::with_capacity(rows.len()), HashSet::new());
    let mut all_keys = Vec::new();
    let mut stamp = None;
    for rows in rows.chunks(ROWS_A_PIN) {
        let guard = db.epochs.pin();
        let form = entry.form_pinned(&guard);
        if *stamp.get_or_insert_with(|| FormStamp::of(form)) != FormStamp::of(form) {
            break;
        }
        // The batch was begun before the table was emptied, or its columns changed: its id says that its rows are
        // from before that.
        if batch.id().0 <= form.changed.get().0 {
            break;
        }
        for &row in rows {
            // Of a table that was paged: what cannot be read stays where it is.
            let Ok(Some(version)) = form.store.directory.newest_now(row, &guard) else { continue };
            let Begin::At(begin) = version.begin() else { continue };
            let again = version.is_promoted() && begin > oldest && mutation::on(Rule::MovesOnce);
            if version.is_tombstone() || begin > youngest || again {
                continue;
            }
            let from = all_keys.len();
            if let Some(name) = put_record(db, form, version, batch, &mut hashes, &mut all_keys) {
                candidates.push(Candidate { row, begin, name, keys: from..all_keys.len() });
            }
        }
    }
    let guard = db.epochs.pin();
    let stamp = stamp.unwrap_or_else(|| FormStamp::of(entry.form_pinned(&guard)));
    Copied { candidates, keys: all_keys, stamp }
}

/// Adds the record and the entries of a row. `None`: it cannot leave memory, or not in this batch.
fn put_record(
    db: &Inner,
    form: &TableForm,
    version: Version,
    batch: &mut Batch,
    hashes: &mut HashSet<u64>,
    all_keys: &mut Vec<u8>,
) -> Option<RecordName> {
    let mut primary = KeyBuf::new();
    form.primary().key_of(form, version, &mut primary);
    if form.counters.locks.load(Ordering::SeqCst) != 0 && db.locks.is_locked(form.id, &primary) {
        return None;
    }
    let from = all_keys.len();
    pack_keys(form, form.row(version), form.suffix(version), all_keys);
    // A record is named by its hash, which no other of the batch may have. Keys that are too long for the store
    // keep their row in memory.
    let fits = batch.record_bytes() + version.len() as u64 <= BATCH_BYTES_MAX
        && unpack_keys(&all_keys[from..]).all(|(_, key)| key.len() <= MAX_KEY_BYTES);
    let index = primary_of(form.id);
    let has_room = |cold: &Cold| {
        let others = unpack_keys(&all_keys[from..]).filter(|(other, _)| *other != index.index);
        cold.store.has_room_for(index, &primary, version.row().len(), &mut others.map(|(_, key)| key))
    };
    if !fits || !db.cold.get().is_none_or(has_room) || !hashes.insert(hash_of(&primary)) {
        all_keys.truncate(from);
        return None;
    }
    for (index, key) in unpack_keys(&all_keys[from..]) {
        let index = thermocline_pool::store::IndexId { table: form.id.0, index };
        let record = if index == primary_of(form.id) { version.row() } else { &[] };
        batch
            .put(index, key, record)
            .expect("keys, records and the batch are of a length that the store takes");
    }
    form.counters.longest_moved.fetch_max(version.len() as u64, Ordering::Relaxed);
    Some(RecordName::new(batch.id().0, &primary))
}

/// Commits the batch's notice.
pub(super) async fn announce(db: &Arc<Inner>, memo: &Memo, entry: &TableEntry, batch: u64) -> Result<()> {
    let mut tx = Driver::internal(db)?;
    tx.with_session(|session| {
        let guard = session.db().epochs.pin();
        let row = memo.batch_row(batch, NoticeKind::None, entry.id);
        session.claim_row(memo.batches_form(), &row, Origin::Fresh, &guard).map(drop)
    })?;
    tx.commit(&mut PartsState::default(), || ()).await
}

/// Moves the rows of a batch that is in the store: how many, and their bytes. `None`: it was given up.
async fn move_rows(
    db: &Arc<Inner>,
    memo: &Memo,
    entry: &Arc<TableEntry>,
    batch: u64,
    copied: &Copied,
) -> Result<Option<(usize, usize)>> {
    let mut tx = Driver::internal(db)?;
    tx.finish_step(|session| session.try_move(memo, entry, batch, copied)).await
}

impl Session {
    /// The move: marks over the rows, N → B, and the commit, without waiting in between. `Done(None)`: given up.
    fn try_move(
        &mut self,
        memo: &Memo,
        entry: &Arc<TableEntry>,
        batch: u64,
        copied: &Copied,
    ) -> Result<Step<Option<(usize, usize)>>> {
        let form_ref = match self.touch(entry)? {
            Step::Done(form) => form,
            // Its definition is being changed, which may take long. What was copied may be of no use then.
            Step::Wait(_) => return Ok(self.give_up()),
        };
        let form = form_ref.get();
        let candidates = &copied.candidates;
        if FormStamp::of(form) != copied.stamp {
            return Ok(Step::Done(None));
        }
        let db = self.db();
        let notice = memo.batch_row(batch, NoticeKind::Begin, form.id);
        let leave_max = candidates.len() / LEAVING;
        let end_bytes = |keys: usize| WRITE_BYTES + END_BYTES + keys;
        let mut reservation = None;
        if let Some(log) = db.log() {
            let ends = (leave_max + 1) * end_bytes(copied.keys.len() / candidates.len());
            let payload = COMMIT_BYTES + WRITE_BYTES + notice.len() + candidates.len() * WRITE_BYTES + ends;
            let payload = payload as u64;
            match log.try_reserve(Kind::Commit, payload) {
                Ok(space) => reservation = Some((space, ends)),
                Err(ReserveError::Full(_)) => return Ok(Step::Wait(Wait::LogSpace { payload })),
                Err(error) => return Err(db.reserve_error(&error)),
            }
        }
        let guard = db.epochs.pin();
        let (mut moved, mut bytes, mut left, mut end_space) = (0, 0, 0, 0);
        for candidate in candidates {
            if let Some(version) = self.mark_moved(form_ref, candidate, &guard)? {
                moved += 1;
                bytes += version.cell_bytes();
                continue;
            }
            left += 1;
            if mutation::off(Rule::LeaversEnd) {
                continue;
            }
            end_space += end_bytes(candidate.keys.len());
            let fits = left <= leave_max && reservation.as_ref().is_none_or(|(_, space)| end_space <= *space);
            let keys = || copied.keys[candidate.keys.clone()].to_vec();
            if !fits || !self.end_record(form.id, candidate.name, keys(), Heir::None, &guard)? {
                return Ok(self.give_up());
            }
        }
        // Somebody may have been refused a key by one of the rows since they were copied, and build on its staying. He
        // says so before he looks for marks, and here it is the other way round.
        let youngest = candidates.iter().map(|candidate| candidate.begin).max();
        let stays = youngest > Some(db.registry.oldest_validating());
        if stays && mutation::on(Rule::RefusersStayLate) && mutation::on(Rule::YoungStay) {
            return Ok(self.give_up());
        }
        self.renew_notice(memo, batch, &notice, &guard)?;
        let count = || form.counters.moves.fetch_add(1, Ordering::SeqCst);
        let late = mutation::off(Rule::MovesCountedFirst);
        if !late {
            count();
        }
        let end = self.decide(reservation.as_mut().map(|(reservation, _)| Record::whole(reservation)))?;
        if let Some((reservation, _)) = reservation {
            self.complete(reservation, end);
        }
        drop(guard);
        self.publish(end);
        if late {
            count();
        }
        Ok(Step::Done(Some((moved, bytes))))
    }

    /// Takes everything back.
    pub(super) fn give_up<T>(&mut self) -> Step<Option<T>> {
        self.rollback();
        Step::Done(None)
    }

    /// Sets a moved mark over a row, if it is still the version that was copied.
    fn mark_moved(
        &mut self,
        form_ref: FormRef,
        candidate: &Candidate,
        guard: &thermocline_base::epoch::Guard<'_>,
    ) -> Result<Option<Version>> {
        let form = form_ref.get();
        let me = self.identify();
        let moved = Moved { batch: candidate.name.batch, begin: candidate.begin };
        // Maintenance may be relocating the version, which is no change.
        for _ in 0..8 {
            let Ok(Some(base)) = form.store.directory.newest_now(candidate.row, guard) else {
                return Ok(None);
            };
            if base.begin() != Begin::At(candidate.begin) || base.is_tombstone() {
                return Ok(None);
            }
            let thawed = if base.is_image() { form.store.thaw_image(base, true, guard)? } else { Some(base) };
            let Some(base) = thawed else { continue };
            let mark =
                form.store.create(Begin::By(me), Some(base), candidate.row, true, &moved.encode(), &[])?;
            mark.mark_moved();
            if form.store.directory.slot(candidate.row, guard).is_some_and(|slot| slot.swing(base, mark)) {
                let write = Write { form: form_ref, row: candidate.row, version: mark, replaced: Some(base) };
                self.writes.push(write);
                return Ok(Some(base));
            }
            form.store.discard(mark);
        }
        Ok(None)
    }

    /// Lets the batch's notice say B.
    pub(super) fn renew_notice(
        &mut self,
        memo: &Memo,
        batch: u64,
        notice: &[u8],
        guard: &thermocline_base::epoch::Guard<'_>,
    ) -> Result<()> {
        let form_ref = memo.batches_form();
        let form = form_ref.get();
        let me = self.identify();
        loop {
            let (row, base) = memo.batch_notice(batch, guard).expect("the notice of a running batch stays");
            let version = form.store.create(Begin::By(me), Some(base), row, false, notice, &[])?;
            if form.store.directory.slot(row, guard).is_some_and(|slot| slot.swing(base, version)) {
                self.writes.push(Write { form: form_ref, row, version, replaced: Some(base) });
                return Ok(());
            }
            form.store.discard(version);
        }
    }
}

/// The memo and the cold store, opened now if this is the first row to leave memory.
///
/// # Errors
/// The store cannot be opened.
pub(crate) fn open_cold(db: &Inner) -> Result<(&Memo, &Cold)> {
    if let (Some(memo), Some(cold)) = (db.cold.memo(), db.cold.get()) {
        return Ok((memo, cold));
    }
    let _maintenance = db.standstill.enter();
    let memo = match db.cold.memo() {
        Some(memo) => memo,
        None => {
            let memo = Memo::create(db.forms())?;
            db.cold.keep_memo(memo)
        }
    };
    let cold = match db.cold.get() {
        Some(cold) => cold,
        None => {
            let store = open_store(db)?;
            db.cold.keep(Cold::new(store, db.options.cold_threads == 0))
        }
    };
    Ok((memo, cold))
}

/// Opens the cold store that the options ask for.
fn open_store(db: &Inner) -> Result<Arc<dyn ColdStore>> {
    let memory = StoreMemory::within(db.memory_limit());
    let ssd = crate::cold::ssd_options(&db.options);
    let owner = db.files.ends().cloned().map(|ends| ends as Arc<dyn StoreOwner>);
    let ties = StoreTies { owner, least: db.files.store_least() };
    crate::cold::open_store(&db.options, db.cold.io(), db.cold.dir(), db.files.id(), memory, ssd, ties)
        .map_err(|source| Error::ColdStore { table: Error::ALL_TABLES.to_owned(), rows: None, source })
}
