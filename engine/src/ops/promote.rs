//! Promotion: a record that has become hot comes back into memory as it is.
//!
//! One transaction ends the record and inserts a version that is marked as promoted: it is visible from then on, but the
//! row has not changed. The notice of the end names the row in memory, so whoever read the record follows it there. As
//! with a migration, log space is taken first, and nothing is awaited between the marks and the decision.
//!
//! A record is promoted only when no snapshot is older than its own move (`MovesOnce`).

use std::sync::Arc;

use thermocline_base::sync::Ordering;

use crate::catalog::table::TableEntry;
use crate::cold::ColdCounters;
use crate::cold::memo::{BatchState, Heir, Memo, pack_keys};
use crate::error::Result;
use crate::log::ReserveError;
use crate::log::record::{COMMIT_BYTES, Kind, WRITE_BYTES};
use crate::mutation::{self, Rule};
use crate::ops::cold::{EndNow, PRESENT};
use crate::ops::commit::Record;
use crate::ops::drive::Driver;
use crate::ops::read::Lookup;
use crate::ops::write::Origin;
use crate::ops::{Step, Wait, step};
use crate::session::Session;
use crate::session::db::Inner;

/// Brings the row with this primary key back into memory. `false`: it is not in the cold store, or cannot be moved
/// now.
///
/// # Errors
/// The log or the cold store has failed, or memory is at its end.
pub(crate) async fn promote(db: &Arc<Inner>, entry: &Arc<TableEntry>, key: &[u8]) -> Result<bool> {
    let (Some(memo), Some(cold)) = (db.cold.memo(), db.cold.get()) else { return Ok(false) };
    let mut tx = Driver::internal(db)?;
    let promoted = tx.finish_step(|session| session.try_promote(memo, entry, key)).await?;
    ColdCounters::add(&cold.counters.promoted_rows, usize::from(promoted));
    ColdCounters::add(&entry.form_pinned(&db.epochs.pin()).counters.promoted_rows, usize::from(promoted));
    Ok(promoted)
}

impl Session {
    fn try_promote(&mut self, memo: &Memo, entry: &Arc<TableEntry>, key: &[u8]) -> Result<Step<bool>> {
        // Nothing moves while the table's definition is being changed.
        let Step::Done(form_ref) = self.touch(entry)? else { return Ok(Step::Done(false)) };
        self.begin_statement();
        let form = form_ref.get();
        let db = self.db();
        let guard = db.epochs.pin();
        // Most rows that are read are changed next, and have come back by that.
        if !matches!(self.look_up(form, form.primary(), key, &guard), Lookup::Absent) {
            return Ok(Step::Done(false));
        }
        let Some(found) = step!(self.look_up_cold(form, form.primary(), key, &guard)?) else {
            return Ok(Step::Done(false));
        };
        let name = found.name();
        let oldest = db.registry.active_snapshots().oldest();
        let moved = match memo.batch_at(name.batch, &db.registry, PRESENT, None, &guard) {
            BatchState::There(moved) => moved,
            BatchState::Hidden | BatchState::Undecided(_) => return Ok(Step::Done(false)),
        };
        let too_young = moved.is_some_and(|moved| moved > oldest) && mutation::on(Rule::MovesOnce);
        if too_young
            || form.counters.locks.load(Ordering::SeqCst) != 0 && db.locks.is_locked(form.id, key)
            || crate::ops::cold::end_now(db, memo, name, None, &guard) != EndNow::Open
        {
            return Ok(Step::Done(false));
        }
        let payload = found.record().bytes;
        let (row, suffix) = (form.row_in(payload), form.suffix_in(payload));
        let mut keys = Vec::new();
        pack_keys(form, row, suffix, &mut keys);
        let mut reservation = None;
        if let Some(log) = db.log() {
            let bytes = COMMIT_BYTES + 2 * WRITE_BYTES + payload.len() + keys.len() + 128;
            match log.try_reserve(Kind::Commit, bytes as u64) {
                Ok(space) => reservation = Some(space),
                Err(ReserveError::Full(_)) => {
                    return Ok(Step::Wait(Wait::LogSpace { payload: bytes as u64 }));
                }
                Err(error) => return Err(db.reserve_error(&error)),
            }
        }
        let row_id = self.claim_row(form_ref, row, Origin::Promoted(suffix), &guard)?;
        if !self.end_record(form.id, name, keys, Heir::Promoted(row_id), &guard)? {
            self.rollback();
            return Ok(Step::Done(false));
        }
        let end = self.decide(reservation.as_mut().map(Record::whole))?;
        if let Some(reservation) = reservation {
            self.complete(reservation, end);
        }
        drop(guard);
        self.publish(end);
        Ok(Step::Done(true))
    }
}
