//! Commit.
//!
//! ```text
//!   log space reserved ─► preparing ─► end timestamp ─► validate ─► record filled ─► committed ─► published ─► acknowledged
//!   └ may wait (await) ┘ └──────────── one synchronous stretch, no await ──────────────────────┘             └ await ┘
//! ```
//!
//! - *Preparing* is published before the timestamp is drawn (see [`crate::txn::registry`]).
//! - The space is reserved before the timestamp is drawn, so `Log::filled` never passes a transaction whose timestamp
//!   is older than a later reading of the clock: checkpoints build on that.
//! - The chunks are marked as changed before the record is complete, so a chunk without the mark has nothing in the
//!   log between its image and a later `Log::filled`.
//! - A transaction is published before its record is on disk, so that hot rows are not held for a sync. It is
//!   acknowledged afterwards, and so is every transaction that may have read it.
//! - A large transaction first writes *parts* that count only if their commit follows.
//!
//! An example, write skew at serializable: T1 has read y and writes x, T2 has read x and writes y, both with snapshot 50.
//!
//! | time | T1 | T2 |
//! |---|---|---|
//! | | *preparing* | |
//! | 60 | draws 60 | *preparing* |
//! | 61 | validates y: T2 is preparing without a timestamp, so T1 waits | draws 61 |
//! | | T2's version of y begins at 61, after 60: the read stands; commits | waits for T1's decision, validates x: it changed at 60: fails |
//! | | | rolls back |

use std::ops::{Bound, ControlFlow};

use thermocline_base::epoch::Guard;
use thermocline_base::ids::{Lsn, RowId, TableId, Timestamp};
use thermocline_base::sync::Ordering;

use crate::catalog::table::{IndexForm, Structure, TableForm};
use crate::error::{Error, Result, SerializationCause};
use crate::hot::version::Version;
use crate::index::hash_of;
use crate::index::tree::{Batch, Direction};
use crate::log::record::{COMMIT_BYTES, Kind, Op, PART_BYTES, PartGroup, WRITE_BYTES};
use crate::log::{Log, Reservation, ReserveError};
use crate::mutation::{self, Rule};
use crate::ops::{Step, Wait};
use crate::row::KeyBuf;
use crate::session::{Read, Scan, ScanRange, Session, Write};
use crate::txn::prune::Item;
use crate::txn::visibility::{Resolved, Sees, resolve, visible};

/// What a committed transaction still has to wait for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    /// The log has to be durable up to here.
    pub(crate) lsn: Lsn,
    /// The transaction wrote something.
    pub(crate) wrote: bool,
    /// The log has failed, and the transaction has seen nothing of what it lacks: there is nothing to wait for.
    pub(crate) harmless: bool,
    /// It has changed definitions.
    pub(crate) defined: bool,
}

/// How far the parts of a large transaction have been written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PartsState {
    first: Option<Lsn>,
    parts: u32,
    /// Writes that stand in parts.
    done: usize,
}

/// What a decided commit is written into.
pub(crate) struct Record<'r, 'l> {
    pub(crate) reservation: &'r mut Reservation<'l>,
    group: Option<PartGroup>,
    /// Writes that stand in parts.
    done: usize,
    /// What it does to the catalog.
    redefined: Option<Vec<u8>>,
}

impl<'r, 'l> Record<'r, 'l> {
    /// The only record of a transaction of the engine's own.
    pub(crate) fn whole(reservation: &'r mut Reservation<'l>) -> Self {
        Self { reservation, group: None, done: 0, redefined: None }
    }
}

fn logged(write: &Write) -> (Op, &'static [u8]) {
    if write.version.is_tombstone() {
        (Op::Delete, &[])
    } else if write.replaced.is_some() {
        (Op::Update, write.version.row())
    } else {
        (Op::Insert, write.version.row())
    }
}

impl Session {
    /// Does the write stand in the log? Not if another one of the transaction stands for it, or its table's rows are nobody's.
    fn is_logged(&self, write: &Write) -> bool {
        let is_left = |write: &Write| {
            self.definitions.as_ref().is_none_or(|definitions| definitions.are_left(write.form))
        };
        !write.version.is_superseded() && is_left(write)
    }

    fn payload_of(&self, write: &Write) -> u64 {
        if self.is_logged(write) { WRITE_BYTES as u64 + logged(write).1.len() as u64 } else { 0 }
    }

    fn put_writes(&self, reservation: &mut Reservation<'_>, writes: &[Write]) {
        for write in writes {
            if self.is_logged(write) {
                let (op, row) = logged(write);
                reservation.put_write(op, write.form.get().storage, write.row, row);
            }
        }
    }

    /// Commits. After `Done`, the transaction is over for everybody else, and only its acknowledgement is missing;
    /// after an error, it has been rolled back.
    pub(crate) fn try_commit(&mut self, parts: &mut PartsState) -> Result<Step<Ticket>> {
        if self.health != crate::session::Health::Well {
            self.rollback();
            return Err(Error::TransactionFailed);
        }
        let defines = self.definitions.as_ref().is_some_and(|definitions| !definitions.changes.is_empty());
        if self.writes.is_empty() && !defines {
            let harmless = self.watches && !self.saw_undurable;
            let ticket = Ticket { lsn: self.seen, wrote: false, harmless, defined: false };
            self.db.counters.committed(false);
            self.release();
            return Ok(Step::Done(ticket));
        }
        let db = self.db();
        let _definitions = defines.then(|| db.redefining.lock());
        let redefined = if defines { self.redefined() } else { None };
        let Some(log) = db.log() else {
            let end = self.decide(None)?;
            if defines {
                self.switch_definitions(end, Lsn(0));
            }
            self.publish(end);
            return Ok(Step::Done(Ticket { lsn: Lsn(0), wrote: true, harmless: false, defined: defines }));
        };
        let payload = match self.write_parts(log, parts) {
            Ok(Step::Done(left)) => COMMIT_BYTES as u64 + left + Self::redefined_bytes(redefined.as_ref()),
            Ok(Step::Wait(wait)) => return Ok(Step::Wait(wait)),
            Err(error) => {
                self.rollback();
                return Err(error);
            }
        };
        let mut reservation = match log.try_reserve(Kind::Commit, payload) {
            Ok(reservation) => reservation,
            Err(ReserveError::Full(_)) => return Ok(Step::Wait(Wait::LogSpace { payload })),
            Err(error) => {
                self.rollback();
                return Err(self.db.reserve_error(&error));
            }
        };
        let group = parts.first.map(|first| PartGroup { first, parts: parts.parts });
        let record = Record { reservation: &mut reservation, group, done: parts.done, redefined };
        let end = self.decide(Some(record))?;
        let lsn = self.complete(reservation, end);
        if defines {
            self.switch_definitions(end, lsn);
        }
        self.publish(end);
        Ok(Step::Done(Ticket { lsn, wrote: true, harmless: false, defined: defines }))
    }

    /// The record of a decided commit is whole: it may go to the disk, and until it is there the commit stands among those
    /// that are not durable. Before the commit is published.
    pub(crate) fn complete(&self, reservation: Reservation<'_>, end: Timestamp) -> Lsn {
        let db = self.db();
        let lsn = reservation.complete();
        if let Some(log) = db.log_to_wait_for() {
            db.undurable.note(end, lsn, self.place().marks.filter(), log.durable());
        }
        lsn
    }

    /// Writes all but the last part of a large transaction; the bytes of the writes that are left.
    pub(crate) fn write_parts(&mut self, log: &Log, state: &mut PartsState) -> Result<Step<u64>> {
        let mut left: u64 = self.writes[state.done..].iter().map(|write| self.payload_of(write)).sum();
        let part_bytes = self.db.options.part_bytes;
        while left > part_bytes {
            if state.first.is_none() {
                // Before the first part takes its place: no checkpoint may let replay start behind it.
                self.place().parts_from.store(log.filled().0 + 1, Ordering::SeqCst);
            }
            let mut payload = PART_BYTES as u64;
            let mut count = 0;
            for write in &self.writes[state.done..] {
                let bytes = self.payload_of(write);
                if count != 0 && payload + bytes > part_bytes {
                    break;
                }
                payload += bytes;
                count += 1;
            }
            let mut reservation = match log.try_reserve(Kind::Part, payload) {
                Ok(reservation) => reservation,
                Err(ReserveError::Full(_)) => return Ok(Step::Wait(Wait::LogSpace { payload })),
                Err(error) => return Err(self.db.reserve_error(&error)),
            };
            let first = *state.first.get_or_insert(reservation.lsn());
            reservation.put_part(first, state.parts);
            self.put_writes(&mut reservation, &self.writes[state.done..state.done + count]);
            reservation.complete();
            state.parts += 1;
            state.done += count;
            left = left.saturating_sub(payload - PART_BYTES as u64);
        }
        Ok(Step::Done(left))
    }

    /// The stretch without an await: from *preparing* to the filled record. An error has rolled back.
    pub(crate) fn decide(&mut self, record: Option<Record<'_, '_>>) -> Result<Timestamp> {
        let end = self.place().prepare(&self.db.registry.clock);
        if let Err(error) = self.validate(end) {
            self.rollback();
            return Err(error);
        }
        let db = self.db();
        let guard = db.epochs.pin();
        let mut marked = None;
        for write in &self.writes {
            let chunk = (write.form, write.row.chunk());
            if marked.replace(chunk) != Some(chunk)
                && let Some(chunk) = write.form.get().store.directory.get(write.row.chunk(), &guard)
            {
                chunk.mark_dirty();
            }
        }
        self.mark_leaves_dirty(&guard);
        if let Some(Record { reservation, group, done, redefined }) = record {
            reservation.put_commit(end, group);
            if let Some(redefined) = redefined {
                reservation.put_write(Op::Define, TableId(0), RowId(0), &redefined);
            }
            self.put_writes(reservation, &self.writes[done..]);
            self.put_leaves(reservation);
        }
        Ok(end)
    }

    /// Is everything that was read still so at `end`?
    fn validate(&self, end: Timestamp) -> Result<()> {
        if self.reads.is_empty() && self.scans.is_empty() && self.cold_reads.is_empty() {
            return Ok(());
        }
        let guard = self.db.epochs.pin();
        if mutation::on(Rule::ValidateReads) {
            for read in &self.reads {
                self.validate_read(read, end, &guard)?;
            }
            for read in &self.cold_reads {
                self.validate_cold_read(read.form, read.name, end, &guard)?;
            }
        }
        if mutation::on(Rule::ValidateScans) {
            for scan in &self.scans {
                self.validate_scan(scan, end, &guard)?;
            }
        }
        Ok(())
    }

    pub(crate) fn validate_read(&self, read: &Read, end: Timestamp, guard: &Guard<'_>) -> Result<()> {
        let form = read.form.get();
        let mut backoff = thermocline_base::sync::Backoff::new();
        'again: loop {
            let mut next = form.store.directory.newest(read.row, guard);
            while let Some(version) = next {
                match resolve(version, &self.db.registry, end, self.id) {
                    // Its own write stands on what it read: the first updater wins.
                    Resolved::Own => {}
                    Resolved::Later(_) => {}
                    Resolved::At(begin) if begin > end => {}
                    Resolved::At(begin) if self.is_one_begin(begin, read.begin) => return Ok(()),
                    // It has moved since, which is no change: go on where it is.
                    Resolved::At(_)
                        if let Some(moved) = version.moved()
                            && self.is_one_begin(moved.begin, read.begin)
                            && let Some(before) = version.older(&form.store.memory) =>
                    {
                        let name = self.record_of(form, moved.batch, before);
                        return self.validate_cold_read(read.form, name, end, guard);
                    }
                    Resolved::At(_) => {
                        let changed =
                            if version.is_tombstone() { version.older(&form.store.memory) } else { None };
                        return Err(self.read_changed(form, changed.unwrap_or(version)));
                    }
                    Resolved::Undecided(_) | Resolved::Gone => {
                        backoff.wait();
                        continue 'again;
                    }
                }
                next = version.older(&form.store.memory);
            }
            return Err(Error::SerializationFailure {
                table: form.schema.name.clone(),
                key: "a row that was read".to_owned(),
                cause: SerializationCause::ReadChanged,
            });
        }
    }

    /// Do both begins mean one version? Two that the snapshot saw do: a frozen row, or the mark of one that has left, may have
    /// forgotten when it began.
    fn is_one_begin(&self, now: Timestamp, read: Timestamp) -> bool {
        now == read || now.max(read) <= self.snapshot && mutation::on(Rule::OldBeginsAreOne)
    }

    fn read_changed(&self, form: &TableForm, version: Version) -> Error {
        let mut key = KeyBuf::new();
        // No page is waited for to tell which row it was.
        if !version.is_tombstone() && !version.is_bare() {
            form.primary().key_of(form, version, &mut key);
        }
        self.conflict(form, form.primary(), &key, SerializationCause::ReadChanged)
    }

    /// Repeats a scan at `end`: a row that the snapshot did not see, and that is not the transaction's own, is a
    /// phantom. Rows that have gone or changed are found by the validation of reads.
    fn validate_scan(&self, scan: &Scan, end: Timestamp, guard: &Guard<'_>) -> Result<()> {
        let form = scan.form.get();
        let Some(index) = form.index(scan.index) else { return Ok(()) };
        match &scan.range {
            ScanRange::Table => {
                for number in 0..form.store.directory.len() {
                    let Some(chunk) = form.store.directory.get(number, guard) else { continue };
                    for slot in (0..chunk.used()).filter_map(|slot| u16::try_from(slot).ok()) {
                        if self.is_phantom(form, index, RowId::new(number, slot), end, guard, |_| true) {
                            return Err(self.conflict(form, index, &[], SerializationCause::Phantom));
                        }
                    }
                }
                Ok(())
            }
            ScanRange::Key(key) => {
                let examine = |row: RowId| {
                    if self.is_phantom(form, index, row, end, guard, |candidate| candidate == &**key) {
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                };
                let found = match &index.structure {
                    Structure::Hash(hash) => hash.lookup(guard, hash_of(key), examine),
                    Structure::Tree(tree) => tree.lookup(guard, key, examine),
                };
                found.map_or(Ok(()), |()| Err(self.conflict(form, index, key, SerializationCause::Phantom)))
            }
            ScanRange::Range(from, to) => {
                let Structure::Tree(tree) = &index.structure else { return Ok(()) };
                let mut batch = Batch::new();
                let from_key = from.as_ref().map(|key| &**key);
                let to_key = to.as_ref().map(|key| &**key);
                let mut start: Bound<(Box<[u8]>, RowId)> = first_bound(from_key);
                loop {
                    let position = match &start {
                        Bound::Included((key, row)) => Bound::Included((&**key, *row)),
                        Bound::Excluded((key, row)) => Bound::Excluded((&**key, *row)),
                        Bound::Unbounded => Bound::Unbounded,
                    };
                    let more = tree.scan_batch(guard, position, to_key, Direction::Forward, &mut batch);
                    let mut last = None;
                    for (key, row) in batch.iter() {
                        if self.is_phantom(form, index, row, end, guard, |candidate| candidate == key) {
                            return Err(self.conflict(form, index, key, SerializationCause::Phantom));
                        }
                        last = Some((key, row));
                    }
                    match last {
                        Some((key, row)) if more => start = Bound::Excluded((key.into(), row)),
                        _ => return Ok(()),
                    }
                }
            }
        }
    }

    /// Is the row's version at `end` one that the snapshot did not see, with a key that `in_scan` accepts?
    fn is_phantom(
        &self,
        form: &TableForm,
        index: &IndexForm,
        row: RowId,
        end: Timestamp,
        guard: &Guard<'_>,
        in_scan: impl Fn(&[u8]) -> bool,
    ) -> bool {
        let mut backoff = thermocline_base::sync::Backoff::new();
        loop {
            if form.store.directory.frozen_since(row, guard).is_some_and(|begin| begin <= self.snapshot) {
                return false;
            }
            let _frame = guard.frame();
            let newest = form.store.directory.newest(row, guard);
            // As somebody else, so that own writes are passed over.
            match visible(newest, &form.store.memory, &self.db.registry, end, None) {
                Sees::Nothing => return false,
                Sees::Row(version) => {
                    let Resolved::At(begin) = resolve(version, &self.db.registry, end, None) else {
                        backoff.wait();
                        continue;
                    };
                    // A promotion brings back what was there before.
                    if begin <= self.snapshot
                        || version.is_promoted() && mutation::on(Rule::PromotedIsNoPhantom)
                    {
                        return false;
                    }
                    if version.is_bare() {
                        // An entry of the index has led here, as one does for each key that the row has had. No page is read
                        // between *preparing* and the decision: the transaction may be right, and runs again.
                        return true;
                    }
                    let mut key = KeyBuf::new();
                    index.key_of(form, version, &mut key);
                    return in_scan(&key);
                }
                Sees::Undecided(id) if Some(id) == self.id => return false,
                Sees::Undecided(_) | Sees::Changed => backoff.wait(),
            }
        }
    }

    /// Publishes a decided transaction and ends it.
    pub(crate) fn publish(&mut self, end: Timestamp) {
        // Pinned before anybody can see the versions as committed: from then on another transaction may replace one,
        // commit, and have it pruned. The pin keeps it in its place until its timestamp has been written here.
        let db = self.db();
        let guard = db.epochs.pin();
        self.place().commit();
        self.publish_leaves(end, &guard);
        // The last ones first: a version that was superseded is then next to the top of its chain.
        for write in self.writes.iter().rev() {
            if write.version.is_superseded() {
                self.unlink_superseded(write, &guard);
            } else if write.version.is_promoted() && mutation::off(Rule::PromotedBeginsLater) {
                write.version.publish(Timestamp(1));
            } else {
                write.version.publish(end);
            }
        }
        let batch_is_full = db.garbage.leave(
            self.writes
                .iter()
                .filter(|write| write.replaced.is_some() || write.version.is_tombstone())
                .map(|write| Item { table: write.form.get().id, row: write.row, waited_for: None }),
        );
        drop(guard);
        db.counters.committed(true);
        self.release();
        if batch_is_full {
            crate::ops::prune::prune_own(db);
        }
    }

    /// Takes a version out of its chain that the same transaction has overwritten under a later savepoint.
    fn unlink_superseded(&self, write: &Write, guard: &Guard<'_>) {
        let form = write.form.get();
        let Some(latched) = form.store.directory.latch(write.row, guard) else { return };
        let mut next = latched.newest();
        while let Some(newer) = next {
            let older = newer.older(&form.store.memory);
            if older == Some(write.version) {
                newer.set_link(write.version.link());
                newer.mark_keys_changed();
                crate::txn::prune::remove_entries(form, latched.newest(), write.version, guard);
                form.store.retire(write.version);
                return;
            }
            next = older;
        }
        // A pruner was here since the decision was published: it has unlinked and retired the version.
    }
}

fn first_bound(bound: Bound<&[u8]>) -> Bound<(Box<[u8]>, RowId)> {
    match bound {
        Bound::Included(key) => Bound::Included((key.into(), RowId(0))),
        Bound::Excluded(key) => Bound::Excluded((key.into(), RowId(u64::MAX))),
        Bound::Unbounded => Bound::Unbounded,
    }
}
