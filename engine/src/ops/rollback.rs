//! Rollback: of a whole transaction, back to a savepoint, or of the last write.
//!
//! Writes are undone in reverse order, each under the latch of its slot: the slot leads to the replaced version again,
//! entries that only the undone version needed go, and its memory is retired. The transaction's id becomes history
//! only when everything is undone, so nobody can meet a leftover.

use thermocline_base::epoch::Guard;
use thermocline_base::sync::Ordering;

use crate::hot::version::Begin;
use crate::mutation::{self, Rule};
use crate::session::{Health, Session, Turn, Write};

/// A point that a transaction can go back to.
///
/// What was read since stays part of the transaction: a serializable result may depend on it.
#[derive(Clone, Debug)]
pub struct Savepoint {
    pub(crate) writes: usize,
    pub(crate) reads: usize,
    pub(crate) scans: usize,
    pub(crate) locks: usize,
    /// Changes of definitions, tables that were held, and names that were claimed.
    pub(crate) definitions: [usize; 3],
    /// Its number in the transaction.
    pub(crate) number: u64,
    pub(crate) transaction: Turn,
}

impl Session {
    /// Undoes everything and ends the transaction.
    pub(crate) fn rollback(&mut self) {
        let db = self.db();
        let guard = db.epochs.pin();
        self.undo_leaves(&guard);
        self.undo_to(0, &guard);
        drop(guard);
        self.undo_definitions(0, 0, 0);
        self.release();
    }

    /// Undoes what a step has left behind that could not be finished.
    pub(crate) fn undo_step(&mut self, len: usize) {
        if self.writes.len() > len {
            let db = self.db();
            let guard = db.epochs.pin();
            self.undo_to(len, &guard);
            self.place().note_undone();
        }
    }

    /// Undoes everything and gives the snapshot up, which keeps memory that others need: nothing is left of the
    /// transaction but its end, not even its savepoints.
    pub(crate) fn cancel(&mut self) {
        self.undo_step(0);
        self.undo_definitions(0, 0, 0);
        self.savepoints.clear();
        self.health = Health::Failed;
        self.place().drop_snapshot();
    }

    /// Ends the transaction, whose writes are published or undone.
    pub(crate) fn release(&mut self) {
        self.release_locks(0);
        let place = self.place();
        place.drop_snapshot();
        place.marks.leave(self.tables.len());
        if place.parts_from.load(Ordering::Relaxed) != 0 {
            place.parts_from.store(0, Ordering::SeqCst);
        }
        if self.id.take().is_some() {
            place.finish();
        }
        self.reset();
        if self.definitions.is_some() {
            self.end_definitions();
        }
    }

    /// Gives locks back, the last ones first.
    fn release_locks(&mut self, len: usize) {
        let Some(id) = self.id else { return };
        for (key, form, before) in self.locks.drain(len..).rev() {
            self.db.locks.release(id, &key, before);
            if before.is_none() {
                form.get().counters.locks.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }

    fn undo_to(&mut self, len: usize, guard: &Guard<'_>) {
        while self.writes.len() > len {
            self.undo_last(guard);
        }
    }

    /// Undoes the last write.
    pub(crate) fn undo_last(&mut self, guard: &Guard<'_>) {
        let Some(write) = self.pop_write() else { return };
        self.undo(&write, guard);
    }

    fn undo(&self, write: &Write, guard: &Guard<'_>) {
        let form = write.form.get();
        let mut latched =
            form.store.directory.latch(write.row, guard).expect("the slot of an uncommitted write is there");
        assert_eq!(latched.newest(), Some(write.version), "an uncommitted version is the newest of its row");
        latched.set(write.replaced);
        if write.replaced.is_none()
            && let Some(chunk) = form.store.directory.get(write.row.chunk(), guard)
        {
            chunk.note_emptied();
        }
        crate::txn::prune::remove_entries(form, write.replaced, write.version, guard);
        drop(latched);
        if let Some(replaced) = write.replaced
            && matches!(replaced.begin(), Begin::By(id) if Some(id) == self.id)
        {
            replaced.restore();
        }
        form.store.retire(write.version);
    }

    /// Marks a savepoint.
    pub(crate) fn savepoint(&mut self) -> Savepoint {
        self.savepoint = self.writes.len();
        let number = self.last_savepoint + 1;
        self.last_savepoint = number;
        self.savepoints.push(number);
        Savepoint {
            writes: self.writes.len(),
            reads: self.reads.len(),
            scans: self.scans.len(),
            locks: self.locks.len(),
            definitions: self.definitions.as_ref().map_or([0; 3], |definitions| {
                [definitions.changes.len(), definitions.held.len(), definitions.claimed.len()]
            }),
            number,
            transaction: self.turn(),
        }
    }

    /// Goes back to a savepoint, which stays valid. `false`: it is none of this transaction, or not any more.
    pub(crate) fn rollback_to(&mut self, savepoint: &Savepoint) -> bool {
        let Some(place) = self.savepoints.iter().rposition(|&number| number == savepoint.number) else {
            return false;
        };
        self.savepoints.truncate(place + 1);
        let db = self.db();
        let guard = db.epochs.pin();
        self.undo_to(savepoint.writes, &guard);
        let [changes, held, claimed] = savepoint.definitions;
        self.undo_definitions(changes, held, claimed);
        self.savepoint = savepoint.writes;
        self.end_cursors(savepoint.writes);
        if mutation::off(Rule::SavepointKeepsReads) {
            self.reads.truncate(savepoint.reads);
            self.scans.truncate(savepoint.scans);
        }
        self.release_locks(savepoint.locks);
        self.health = Health::Well;
        self.place().note_undone();
        true
    }
}
