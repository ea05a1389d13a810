//! Rows that go to the cold store and come back, under the model checker (`interleavings.md`, 6, 8-23 and 36, as far
//! as they concern moves). What a move may never do: be seen, fail anybody, or let a change get lost.
//!
//! | file | what competes with the moves |
//! |---|---|
//! | `readers` | snapshots of all ages, slow reads of the store, cleaning |
//! | `writers` | updates, deletions, row locks, savepoints |
//! | `leaving` | chunks that leave memory whole |
//! | `columns` | scans by column |
//! | `claims` | unique keys, in memory and in the store |
//! | `restart` | crashes of the machine |
//! | `validation` | levels that validate what they have read and scanned |

mod claims;
mod columns;
mod leaving;
mod readers;
mod restart;
mod statements;
mod store;
mod validation;
mod writers;

use super::*;
use crate::cold::Cold;
use store::SlowStore;

/// A world with a cold store that a scenario can slow down.
#[derive(Clone)]
struct ColdWorld {
    world: World,
    store: SlowStore,
}

impl std::ops::Deref for ColdWorld {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

fn cold_world(rows: &[(i64, i64)]) -> ColdWorld {
    cold_world_with(rows, |schema| schema)
}

fn cold_world_with(rows: &[(i64, i64)], more: impl FnOnce(TableSchema) -> TableSchema) -> ColdWorld {
    let (world, store) = (world_with(rows, more), SlowStore::default());
    let inner = world.db.inner();
    inner.cold.keep(Cold::new(Arc::new(store.clone()), false));
    crate::ops::migrate::open_cold(inner).expect("memory");
    ColdWorld { world, store }
}

impl ColdWorld {
    fn spawn<T: Send + 'static>(
        &self,
        body: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> shuttle::thread::JoinHandle<T> {
        let world = self.clone();
        shuttle::thread::spawn(move || body(&world))
    }

    /// Migrates those of these rows that are in memory, as one batch; how many have moved.
    fn migrate(&self, ids: &[i64]) -> usize {
        let which = |row: &[u8]| self.layout.i64(row, 0).is_some_and(|id| ids.contains(&id));
        self.db.cold_steps().migrate(&self.table, which, usize::MAX).expect("the store works")
    }

    fn promote(&self, id: i64) -> bool {
        self.db.cold_steps().promote(&self.table, &key(id)).expect("the store works")
    }

    fn clean(&self) -> bool {
        self.db.cold_steps().clean().expect("the store works")
    }

    /// Cleans and prunes until no notice is left, and judges what is: each row in one place. Nobody else may be there.
    fn settle_cold(&self) {
        for _ in 0..6 {
            let cleaned = self.clean();
            self.prune();
            if !cleaned && self.db.cold_steps().notices() == (0, 0) {
                assert_eq!(self.db.inner().garbage.len(), 0, "nobody holds a snapshot");
                let cold = self.db.inner().cold.get().expect("it was opened");
                let progress = cold.progress.lock();
                assert!(progress.running.is_empty() && progress.removing.is_empty());
                assert_eq!(cold.store.unconfirmed(), [], "a batch was forgotten");
                return;
            }
        }
        panic!("notices stay: {:?}", self.db.cold_steps().notices());
    }

    /// All rows, read by a scan of the table at a fresh snapshot, in the order of their keys.
    fn all(&self) -> Vec<(i64, i64)> {
        self.begin(Isolation::Snapshot).all().expect("a scan")
    }

    /// Copies of a row's record in the store, whatever the memo says of them.
    fn records(&self, id: i64) -> usize {
        self.db.cold_steps().records(&self.table, &key(id))
    }
}

impl Tx<'_> {
    /// All rows that the snapshot sees, each as often as it sees it.
    fn all(&mut self) -> Result<Vec<(i64, i64)>> {
        let (table, layout) = (&self.world.table, &self.world.layout);
        let mut found = Vec::new();
        block_on(self.tx.scan_table(table, |row| {
            found.extend(layout.i64(row, 0).zip(layout.i64(row, 1)));
            std::ops::ControlFlow::Continue(())
        }))?;
        found.sort_unstable();
        Ok(found)
    }

    /// The row with a value, by the index over values.
    fn by_value(&mut self, value: i64) -> Result<Option<i64>> {
        let layout = &self.world.layout;
        let index = self.world.table.index("t_value")?;
        Ok(block_on(self.tx.read(&index, &key(value), |row| layout.i64(row, 0)))?.flatten())
    }
}

/// An outcome of a transaction that competes with moves only: these never fail anybody.
fn unharmed<T>(outcome: Result<T>) -> T {
    outcome.expect("a move made a transaction fail")
}
