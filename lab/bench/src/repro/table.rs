//! The paper's table: 20 M rows of 56 bytes with their header, of which 70 % are cold, and transactions of four accesses.

use std::sync::Arc;
use std::time::Duration;

use thermocline_base::rng::Rng;
use thermocline_engine::row::{Column, KeyBuf, Layout, RowEditor, Type, Value};
use thermocline_engine::{
    ColdSteps, ColdStoreKind, Database, Durability, Index, IndexSchema, Options, Table, TableSchema,
    TransactionOptions,
};

use super::clients::{self, Load, Slice};
use super::{ReproError, ReproSettings, Result};
use crate::time;

/// Rows of the paper's table.
pub(super) const ROWS: u64 = 20_000_000;
/// The least that says anything.
pub(super) const ROWS_MIN: u64 = 4_000;
/// The part of them that is cold.
pub(super) const COLD: f64 = 0.7;
/// Time that a client of the paper waits before each transaction.
pub(super) const THINK: Duration = Duration::from_micros(500);
/// Accesses of a transaction.
const ACCESSES: usize = 4;
/// Rows of a batch that is placed before measuring.
const BATCH_ROWS: usize = 1_000;

/// The rows that transactions access.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reach {
    /// Any row.
    All,
    /// Cold ones with this probability, each.
    Cold(f64),
}

/// The work of transactions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) reach: Reach,
    pub(super) updates: bool,
}

/// A database with the table. Rows with ids below `cold` are in the cold store.
pub(super) struct World {
    pub(super) db: Database,
    pub(super) table: Table,
    pub(super) steps: ColdSteps,
    pub(super) rows: u64,
    pub(super) cold: u64,
    layout: Arc<Layout>,
    key: Index,
}

impl World {
    /// Loads the table into a new database, and places `cold_share` of its rows in the cold store.
    pub(super) fn new(
        settings: &ReproSettings,
        name: &str,
        kind: ColdStoreKind,
        cold_share: f64,
    ) -> Result<Self> {
        // No temperature decides here which rows are cold.
        let options =
            Options::default().with_durability(Durability::Async).with_cold_store(kind).with_sampling(0.0);
        let db = Database::open(settings.data_dir.join(name), options)?;
        let rows = settings.scaled(ROWS, ROWS_MIN);
        // 32 bytes, and a header of 24.
        let mut schema = TableSchema::new("t").column(Column::new("id", Type::Int8));
        for word in 1..4 {
            schema = schema.column(Column::new(format!("c{word}"), Type::Int8));
        }
        let table = db.create_table(schema.primary_key(IndexSchema::hash("t_key", &["id"])))?;
        db.bulk_load(&table, (0..rows.cast_signed()).map(|id| vec![Value::Int8(id); 4]))?;
        let cold = (rows as f64 * cold_share).round() as u64;
        let (layout, key, steps) = (table.layout(), table.primary(), db.cold_steps());
        let world = Self { db, table, steps, rows, cold, layout, key };
        world.place()?;
        world.clean()?;
        Ok(world)
    }

    /// Migrates what belongs into the cold store and is in memory.
    pub(super) fn place(&self) -> Result<()> {
        if self.cold > 0 {
            let is_cold = |row: &[u8]| self.id_of(row) < self.cold;
            self.steps.migrate(&self.table, is_cold, BATCH_ROWS)?;
        }
        Ok(())
    }

    pub(super) fn id_of(&self, row: &[u8]) -> u64 {
        self.layout.i64(row, 0).map_or(u64::MAX, i64::cast_unsigned)
    }

    /// Cleans until the memo is empty.
    pub(super) fn clean(&self) -> Result<()> {
        const PATIENCE: Duration = Duration::from_secs(60);
        let begin = time::now();
        while self.steps.notices() != (0, 0) {
            if !self.steps.clean()? {
                std::thread::sleep(Duration::from_millis(5));
            }
            if begin.elapsed() > PATIENCE {
                return Err(ReproError::Wrong(format!(
                    "the memo keeps {:?} notices though no transaction is open",
                    self.steps.notices()
                )));
            }
        }
        Ok(())
    }

    /// Runs clients for a slice.
    pub(super) fn slice(&self, load: &Load, work: Work) -> Result<Slice> {
        clients::run(load, |_| async |rng: &mut Rng| self.transact(work, rng).await)
    }

    async fn transact(&self, work: Work, rng: &mut Rng) -> Result<()> {
        let mut ids = [0; ACCESSES];
        for at in 0..ids.len() {
            ids[at] = loop {
                let id = match work.reach {
                    Reach::All => rng.below(self.rows),
                    Reach::Cold(share) if rng.chance(share) => rng.below(self.cold),
                    Reach::Cold(_) => self.cold + rng.below(self.rows - self.cold),
                };
                if !ids[..at].contains(&id.cast_signed()) {
                    break id.cast_signed();
                }
            };
        }
        let mut tx = self.db.begin(TransactionOptions::new())?;
        for id in ids {
            let key = KeyBuf::new().i64(id);
            let found = if work.updates {
                let value = rng.next_u64().cast_signed();
                let edit = |row: &mut RowEditor<'_>| {
                    row.set_i64(1, value).map_err(|error| self.table.error(error))?;
                    Ok(id)
                };
                tx.update(&self.key, &key, edit).await?.map(Some)
            } else {
                tx.read(&self.key, &key, |row| self.layout.i64(row, 0)).await?
            };
            if found != Some(Some(id)) {
                return Err(ReproError::Wrong(format!("row {id} was lost, or served with another key")));
            }
        }
        tx.commit().await?;
        Ok(())
    }

    /// Updates rows with ids below `end`, one after the other.
    pub(super) fn update_below(&self, end: u64) -> Result<()> {
        thermocline_engine::block_on(async {
            let ids: Vec<i64> = (0..end.cast_signed()).collect();
            for ids in ids.chunks(BATCH_ROWS) {
                let mut tx = self.db.begin(TransactionOptions::new())?;
                for id in ids {
                    let edit =
                        |row: &mut RowEditor<'_>| row.set_i64(1, -1).map_err(|error| self.table.error(error));
                    tx.update(&self.key, &KeyBuf::new().i64(*id), edit).await?;
                }
                tx.commit().await?;
            }
            Ok(())
        })
    }

    /// Reads four rows whose ids are from `from` on and cold.
    pub(super) async fn read_from(&self, from: u64, rng: &mut Rng) -> Result<()> {
        let mut tx = self.db.begin(TransactionOptions::new())?;
        for _ in 0..ACCESSES {
            let id = (from + rng.below(self.cold - from)).cast_signed();
            let found = tx.read(&self.key, &KeyBuf::new().i64(id), |row| self.layout.i64(row, 0)).await?;
            if found != Some(Some(id)) {
                return Err(ReproError::Wrong(format!("row {id} was lost, or served with another key")));
            }
        }
        tx.commit().await?;
        Ok(())
    }
}
