//! The transaction protocol under the model checker: the real engine, a few transactions, and many schedules.
//!
//! Every scenario is run as it is, and once for each rule that it depends on with that rule switched off, which some
//! schedule must turn into a failure. A chunk has 8 slots in these builds, so small tables reach the edges.
//!
//! Threads give back what they have seen, and the scenario judges after all have ended: a thread that panicked in the
//! middle of the engine would leave latches behind that the others wait for.

mod acknowledge;
mod cold;
mod definitions;
mod freezing;
mod isolation;
mod maintenance;
mod paging;

use std::path::Path;
use std::sync::Arc;

use thermocline_base::mutation::Switchable;

use thermocline_base::io::MemoryIo;
use thermocline_base::sync::model;

use crate::mutation::{self, Rule};
use crate::options::IN_MEMORY;
use crate::row::{Column, KeyBuf, Layout, RowEditor, RowError, Type, Value};
use crate::{
    Database, Durability, Error, Index, IndexSchema, Isolation, LockMode, Options, Table, TableSchema,
    Transaction, TransactionOptions, block_on,
};

type Result<T, E = Error> = std::result::Result<T, E>;

/// A database with one table `(id, value)`.
#[derive(Clone)]
struct World {
    db: Database,
    table: Table,
    primary: Index,
    layout: Arc<Layout>,
}

/// A transaction of a scenario, driven to the end of each step.
struct Tx<'w> {
    world: &'w World,
    tx: Transaction,
}

fn world(rows: &[(i64, i64)]) -> World {
    world_with(rows, |schema| schema)
}

fn world_with(rows: &[(i64, i64)], more: impl FnOnce(TableSchema) -> TableSchema) -> World {
    let options = Options::default()
        .with_durability(Durability::Off)
        .with_memory_limit(Some(64 << 20))
        .with_idle_limit(Some(std::time::Duration::ZERO));
    let db = Database::open_with(Path::new(IN_MEMORY), options, Arc::new(MemoryIo::new()), false)
        .expect("the options are fine");
    let world = World::create(db, more);
    let mut tx = world.begin(Isolation::Snapshot);
    for &(id, value) in rows {
        tx.insert(id, value).expect("a fresh row");
    }
    tx.commit().expect("nobody else is there");
    world
}

/// The table is scanned by value.
fn by_value(schema: TableSchema) -> TableSchema {
    schema.index(IndexSchema::ordered("t_value", &["value"]))
}

fn key(id: i64) -> KeyBuf {
    KeyBuf::new().i64(id)
}

impl World {
    /// With its table, in a new database.
    fn create(db: Database, more: impl FnOnce(TableSchema) -> TableSchema) -> Self {
        let schema = TableSchema::new("t")
            .column(Column::new("id", Type::Int8))
            .column(Column::new("value", Type::Int8))
            .primary_key(IndexSchema::hash("t_key", &["id"]));
        let table = db.create_table(more(schema)).expect("the definition is fine");
        Self::of(db, table)
    }

    fn of(db: Database, table: Table) -> Self {
        Self { primary: table.primary(), layout: table.layout(), db, table }
    }

    fn begin(&self, level: Isolation) -> Tx<'_> {
        let tx = self.db.begin(TransactionOptions::new().isolation(level)).expect("it begins");
        Tx { world: self, tx }
    }

    /// Runs `body` at `level` until it can be serialized.
    fn retry<T>(&self, level: Isolation, mut body: impl FnMut(&mut Tx<'_>) -> Result<T>) -> Result<T> {
        loop {
            let mut tx = self.begin(level);
            match body(&mut tx).and_then(|value| tx.commit().map(|()| value)) {
                Err(error) if error.is_retryable() => shuttle::thread::yield_now(),
                outcome => return outcome,
            }
        }
    }

    fn spawn<T: Send + 'static>(
        &self,
        body: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> shuttle::thread::JoinHandle<T> {
        let world = self.clone();
        shuttle::thread::spawn(move || body(&world))
    }

    /// The value of a row, in a transaction of its own.
    fn value(&self, id: i64) -> Option<i64> {
        self.begin(Isolation::Snapshot).read(id).expect("a read")
    }

    /// Prunes until nothing is left to prune. Nobody else may be there.
    fn settle(&self) {
        for _ in 0..3 {
            self.prune();
        }
        assert_eq!(self.db.inner().garbage.len(), 0, "nobody holds a snapshot");
    }

    fn prune(&self) {
        crate::ops::prune::prune_all(self.db.inner(), false);
        self.db.inner().epochs.collect();
    }

    fn entries(&self) -> u64 {
        self.db.statistics().index_entries
    }
}

impl Tx<'_> {
    fn read(&mut self, id: i64) -> Result<Option<i64>> {
        let World { primary, layout, .. } = self.world;
        Ok(block_on(self.tx.read(primary, &key(id), |row| layout.i64(row, 1)))?.flatten())
    }

    fn edit(
        &mut self,
        id: i64,
        mut edit: impl FnMut(&mut RowEditor<'_>) -> Result<(), RowError>,
    ) -> Result<bool> {
        let World { primary, table, .. } = self.world;
        let edit = |row: &mut RowEditor<'_>| edit(row).map_err(|error| table.error(error));
        Ok(block_on(self.tx.update(primary, &key(id), edit))?.is_some())
    }

    fn set(&mut self, id: i64, value: i64) -> Result<bool> {
        self.edit(id, |row| row.set_i64(1, value))
    }

    fn set_key(&mut self, id: i64, new: i64) -> Result<bool> {
        self.edit(id, |row| row.set_i64(0, new))
    }

    fn insert(&mut self, id: i64, value: i64) -> Result<()> {
        let row = [Value::Int8(id), Value::Int8(value)];
        block_on(self.tx.insert_values(&self.world.table, &row)).map(drop)
    }

    fn delete(&mut self, id: i64) -> Result<bool> {
        block_on(self.tx.delete(&self.world.primary, &key(id)))
    }

    fn lock(&mut self, id: i64, mode: LockMode) -> Result<bool> {
        block_on(self.tx.lock(&self.world.primary, &key(id), mode))
    }

    /// Values from `from` up to and without `to`, in order.
    fn scan(&mut self, from: i64, to: i64) -> Result<Vec<i64>> {
        use std::ops::{Bound, ControlFlow};
        let layout = &self.world.layout;
        let index = self.world.table.index("t_value")?;
        let (from, to) = (key(from), key(to));
        let range = crate::KeyRange::between(Bound::Included(&from), Bound::Excluded(&to));
        let mut found = Vec::new();
        block_on(self.tx.scan(&index, range, crate::Direction::Forward, |row| {
            found.extend(layout.i64(row, 1));
            ControlFlow::Continue(())
        }))?;
        Ok(found)
    }

    fn commit(self) -> Result<()> {
        block_on(self.tx.commit())
    }
}

/// Does a schedule of the scenario fail once `rule` is switched off?
fn misses(rule: impl Switchable, rounds: usize, scenario: fn()) {
    let _off = mutation::switch_off(rule);
    assert!(model::finds_failure(rounds, scenario), "no schedule misses {rule:?}");
}

/// One error that may be met where two transactions compete, or none.
fn may_lose<T>(outcome: Result<T>) -> bool {
    match outcome {
        Ok(_) => true,
        Err(error) => {
            assert!(error.is_retryable(), "{error}");
            false
        }
    }
}
