//! Pruning: versions that no snapshot can see any more go, a batch of rows of one table at a time ([`crate::txn::prune`] has the rules).

use crate::session::db::Inner;
use crate::txn::prune::{Item, approach_rows, prune_row};
use crate::txn::registry::ActiveSnapshots;

/// Rows that are pruned under one pin, and whose lines are asked for together.
const PRUNED_TOGETHER: usize = 32;

/// Prunes what the calling thread's commits have left.
pub(crate) fn prune_own(db: &Inner) {
    let items = db.garbage.take_own();
    prune(db, &items, &db.registry.active_snapshots());
}

/// Prunes what all commits have left, and what has waited for snapshots that have gone.
pub(crate) fn prune_all(db: &Inner, patient: bool) {
    let active = db.registry.active_snapshots();
    let items = db.garbage.take_all(&active, patient);
    prune(db, &items, &active);
}

fn prune(db: &Inner, items: &[Item], active: &ActiveSnapshots) {
    for of_table in items.chunk_by(|one, other| one.table == other.table) {
        let Some(entry) = db.catalog.by_id(of_table[0].table) else { continue };
        for batch in of_table.chunks(PRUNED_TOGETHER) {
            let guard = db.epochs.pin();
            let form = entry.form_pinned(&guard);
            approach_rows(form, batch, &guard);
            for &item in batch {
                if entry.is_held() {
                    db.garbage.leave(std::iter::once(item));
                    continue;
                }
                for snapshot in prune_row(form, item, &db.registry, active, &guard) {
                    db.garbage.park(snapshot, item);
                }
            }
        }
    }
}
