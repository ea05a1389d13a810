//! Cursors: scans that go on from batch to batch, several beside each other, each at the snapshot that it was opened with.
//!
//! A cursor passes over what its transaction has written since it was opened (its number is a position in the list of writes,
//! as a statement's is). At read committed the transaction goes on to newer snapshots, so the cursor holds its own, in a place
//! of its own in the registry: pruning and cleaning keep what it sees. Whoever needs the memory that it pins cancels it
//! there: the cursor ends, the transaction does not. At the other levels its snapshot is the transaction's.

use std::sync::Arc;

use thermocline_base::ids::{TableId, Timestamp};
use thermocline_base::sync::{AtomicBool, Ordering};

use crate::error::{Error, Result};
use crate::options::Isolation;
use crate::session::db::Inner;
use crate::session::{CursorMark, NO_SNAPSHOT, Session, Turn, View};
use crate::txn::registry::{MAX_TRANSACTIONS, Place, activity};

/// What stands in a cursor's place where a transaction's has its session.
pub(crate) const CURSOR: usize = 1;

/// A cursor's view of the database.
#[derive(Debug)]
pub(crate) struct CursorView {
    mark: Arc<CursorMark>,
    turn: Turn,
    held: Option<HeldSnapshot>,
}

/// A snapshot that is held in a place of its own.
#[derive(Debug)]
struct HeldSnapshot {
    db: Arc<Inner>,
    place: u32,
}

impl HeldSnapshot {
    fn place(&self) -> &Place {
        self.db.registry.place(self.place)
    }

    /// Holds the governor off. `false`: the snapshot was cancelled.
    fn enter(&self) -> bool {
        let activity = &self.place().activity;
        let mut backoff = thermocline_base::sync::Backoff::new();
        loop {
            let (rest, busy) = (activity::REST, activity::BUSY);
            match activity.compare_exchange(rest, busy, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return true,
                Err(activity::REAPING) => backoff.wait(),
                Err(_) => return false,
            }
        }
    }
}

impl Drop for HeldSnapshot {
    fn drop(&mut self) {
        // Cancelled or not, nobody else has it in hand after this.
        let _ = self.enter();
        let place = self.place();
        place.session.store(0, Ordering::Relaxed);
        place.drop_snapshot();
        place.cancelled.store(0, Ordering::Relaxed);
        self.db.registry.give_place(self.place);
    }
}

impl Drop for CursorView {
    fn drop(&mut self) {
        self.mark.is_open.store(false, Ordering::Relaxed);
    }
}

/// What the session had before an operation of a cursor.
pub(crate) struct Before {
    view: View,
    snapshot: Timestamp,
    snapshots: u64,
}

impl Session {
    /// Opens a cursor's view: at read committed at a snapshot of its own, else at the transaction's.
    pub(crate) fn open_cursor_view(&mut self, table: TableId) -> Result<CursorView> {
        self.looked = true;
        let mut held = None;
        if self.isolation == Isolation::ReadCommitted {
            let taken = self.db.registry.take_place();
            let place = taken.ok_or(Error::TooManyTransactions { limit: MAX_TRANSACTIONS })?;
            let hold = HeldSnapshot { db: Arc::clone(&self.db), place };
            hold.place().session.store(CURSOR, Ordering::Relaxed);
            hold.place().cancelled.store(0, Ordering::Relaxed);
            hold.place().take_snapshot(&self.db.registry.clock);
            hold.place().activity.store(activity::REST, Ordering::Release);
            held = Some(hold);
            // Not older than the cursor's: the log's tail that the transaction waits for stands behind both.
            self.take_snapshot();
        } else if self.snapshot == NO_SNAPSHOT {
            self.take_snapshot();
        }
        let snapshot = match &held {
            Some(hold) => hold.place().snapshot().expect("it was just taken"),
            None => self.snapshot,
        };
        let (number, snapshots) = (self.writes.len(), self.snapshots);
        let is_open = AtomicBool::new(true);
        let mark = Arc::new(CursorMark { table, number, snapshot, snapshots, is_open });
        self.cursors.retain(|mark| mark.is_open.load(Ordering::Relaxed));
        self.cursors.push(Arc::clone(&mark));
        Ok(CursorView { mark, turn: self.turn(), held })
    }

    /// Own writes before this one are kept for cursors that are open.
    pub(crate) fn cursor_floor(&self) -> usize {
        let open = self.cursors.iter().filter(|mark| mark.is_open.load(Ordering::Relaxed));
        open.map(|mark| mark.number).max().unwrap_or(0)
    }

    /// Ends the cursors that were opened after the write with this number: those writes are undone.
    pub(crate) fn end_cursors(&mut self, number: usize) {
        self.cursors.retain(|mark| {
            let stays = mark.number <= number;
            if !stays {
                mark.is_open.store(false, Ordering::Relaxed);
            }
            stays
        });
    }

    /// The snapshot of an open cursor that has shown what a handle names.
    pub(crate) fn cursor_snapshot(&self, snapshots: u64) -> Option<Timestamp> {
        let of_it =
            |mark: &&Arc<CursorMark>| mark.snapshots == snapshots && mark.is_open.load(Ordering::Relaxed);
        self.cursors.iter().find(of_it).map(|mark| mark.snapshot)
    }

    /// Lets the operation that begins see what the cursor sees.
    pub(crate) fn enter_cursor(&mut self, cursor: &CursorView) -> Result<Before> {
        let ended = |reason: &str| Error::Unsupported { operation: "cursor", reason: reason.to_owned() };
        if cursor.turn != self.turn() {
            return Err(ended("the cursor's transaction is over, or it is another transaction's"));
        }
        if !cursor.mark.is_open.load(Ordering::Relaxed) {
            return Err(ended("a rollback to a savepoint before it has ended the cursor"));
        }
        if let Some(held) = &cursor.held
            && !held.enter()
        {
            let place = held.place();
            return Err(Error::SnapshotTooOld {
                age_ms: place.cancelled_age_ms.load(Ordering::Relaxed),
                pinned_bytes: place.cancelled_bytes.load(Ordering::Relaxed),
            });
        }
        let before = Before { view: self.view, snapshot: self.snapshot, snapshots: self.snapshots };
        self.view =
            View { hidden_from: cursor.mark.number, floor: cursor.mark.number, fresh: false, looked: true };
        (self.snapshot, self.snapshots) = (cursor.mark.snapshot, cursor.mark.snapshots);
        Ok(before)
    }

    /// The operation is over, or waits.
    pub(crate) fn leave_cursor(&mut self, cursor: &CursorView, before: Before) {
        let Before { view, snapshot, snapshots } = before;
        (self.view, self.snapshot, self.snapshots) = (view, snapshot, snapshots);
        if let Some(held) = &cursor.held {
            held.place().activity.store(activity::REST, Ordering::Release);
        }
    }
}
