//! The same rows in a table of the engine: what freezing costs there, and what rows cost that are frozen, against rows that
//! are not.
//!
//! One thread, a database in memory, without a log. Orders are parted in four: those whose lines are changed while they are hot, at
//! random or in sequence, and those whose lines are changed while they are frozen. Reads are of single lines at random, by their
//! key. A change is of the quantity, all lines of an order in one transaction.

use serde::Serialize;
use thermocline_base::clock::{thread_cpu_ns, thread_cpu_since};
use thermocline_base::multiplex::block_on;
use thermocline_base::rng::Rng;
use thermocline_engine::row::{KeyBuf, Value};
use thermocline_engine::{
    Database, Durability, Error, Index, IndexSchema, Options, Table, TableSchema, Tiering, TransactionOptions,
};
use thermocline_workloads::tpcc::lines::Lines;
use thermocline_workloads::tpcc::schema::OrderLine;

use super::{FreezeSettings, values_of};
use crate::time;

/// Rows of a transaction that loads.
const LOADED_TOGETHER: usize = 500;
/// Reads of each measure, if there are not fewer rows.
const READS: usize = 400_000;
/// Orders whose lines are changed for each measure, at most.
const ORDERS: usize = 20_000;

/// The measurements in the engine.
#[derive(Clone, Debug, Serialize)]
pub(super) struct EngineReport {
    /// Versions and slots, a row, before and after: with the block and what is left of both.
    pub(super) hot_bytes_per_row: f64,
    pub(super) frozen_bytes_per_row: f64,
    /// Entries of the primary key, a row, which stay as they are.
    pub(super) entry_bytes_per_row: f64,
    pub(super) rows_frozen: u64,
    pub(super) freeze_rows_per_s: f64,
    pub(super) cpu_us_per_frozen_row: f64,
    pub(super) read_hot_ns: f64,
    pub(super) read_frozen_ns: f64,
    pub(super) update_hot_random_ns: f64,
    pub(super) update_frozen_random_ns: f64,
    pub(super) update_hot_sequence_ns: f64,
    pub(super) update_frozen_sequence_ns: f64,
}

/// An order: what its lines' keys begin with, and how many there are.
#[derive(Clone, Copy)]
struct Order {
    warehouse: i32,
    district: i16,
    number: i32,
    lines: i16,
}

impl Order {
    fn key(self, line: i16) -> KeyBuf {
        KeyBuf::new().i32(self.warehouse).i16(self.district).i32(self.number).i16(line)
    }
}

struct Run {
    db: Database,
    table: Table,
    primary: Index,
    orders: Vec<Order>,
}

/// Runs the measurement.
///
/// # Errors
/// The engine's.
pub(super) fn run(settings: &FreezeSettings) -> Result<EngineReport, Error> {
    let options = Options::default().with_durability(Durability::Off).with_freeze_threads(0);
    let db = Database::open_in_memory(options)?;
    let schema = TableSchema::new("order_line")
        .tiering(Tiering::Frozen)
        .columns(Lines::columns(settings.strings))
        .primary_key(IndexSchema::ordered("key", &["ol_w_id", "ol_d_id", "ol_o_id", "ol_number"]));
    let table = db.create_table(schema)?;
    let mut run = Run { primary: table.primary(), db, table, orders: Vec::new() };
    run.load(settings)?;
    let rows = settings.rows.max(1) as f64;
    let bytes = |run: &Run| {
        let memory = run.db.statistics().memory;
        ((memory.versions + memory.slots + memory.frozen) as f64 / rows, memory.ordered_indexes as f64 / rows)
    };
    let (hot_bytes_per_row, entry_bytes_per_row) = bytes(&run);
    let read_hot_ns = run.read()?;
    let update_hot_random_ns = run.update(0, true)?;
    let update_hot_sequence_ns = run.update(1, false)?;
    run.settle();
    let (begin, cpu) = (time::now(), thread_cpu_ns());
    let frozen = run.db.freeze("order_line")?;
    let (took, cpu) = (begin.elapsed().as_secs_f64(), thread_cpu_since(cpu));
    run.settle();
    let frozen_rows = frozen.rows.max(1) as f64;
    let (frozen_bytes_per_row, _) = bytes(&run);
    let read_frozen_ns = run.read()?;
    Ok(EngineReport {
        hot_bytes_per_row,
        frozen_bytes_per_row,
        entry_bytes_per_row,
        rows_frozen: frozen.rows,
        freeze_rows_per_s: frozen_rows / took,
        cpu_us_per_frozen_row: cpu as f64 / 1e3 / frozen_rows,
        read_hot_ns,
        read_frozen_ns,
        update_hot_random_ns,
        update_frozen_random_ns: run.update(2, true)?,
        update_hot_sequence_ns,
        update_frozen_sequence_ns: run.update(3, false)?,
    })
}

impl Run {
    fn load(&mut self, settings: &FreezeSettings) -> Result<(), Error> {
        let mut lines = Lines::new(settings.warehouses.into(), settings.strings, settings.seed);
        let mut left = settings.rows.max(1);
        let mut batch: Vec<Vec<Value>> = Vec::new();
        while left > 0 {
            batch.clear();
            for _ in 0..left.min(LOADED_TOGETHER as u64) {
                let (line, text) = lines.next_line();
                let mut values = Vec::new();
                values_of(line, text, &mut values);
                self.note(line);
                batch.push(values);
            }
            left -= batch.len() as u64;
            self.db.run(TransactionOptions::new(), async |tx| {
                for values in &batch {
                    tx.insert_values(&self.table, values).await?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn note(&mut self, line: &OrderLine) {
        if line.ol_number == 1 || self.orders.is_empty() {
            let (warehouse, district, number) = (line.ol_w_id, line.ol_d_id, line.ol_o_id);
            self.orders.push(Order { warehouse, district, number, lines: 0 });
        }
        if let Some(order) = self.orders.last_mut() {
            order.lines = line.ol_number;
        }
    }

    /// Lets former versions and what was frozen go.
    fn settle(&self) {
        let mut steps = self.db.maintenance_steps();
        while self.db.statistics().garbage_items > 0 {
            steps.prune();
        }
        for _ in 0..3 {
            steps.step();
        }
    }

    /// Nanoseconds of a read.
    fn read(&self) -> Result<f64, Error> {
        let mut random = Rng::new(3);
        let count = READS.min(self.orders.len() * 10);
        let keys: Vec<KeyBuf> = (0..count)
            .map(|_| {
                let order = self.orders[random.below(self.orders.len() as u64) as usize];
                order.key(1 + random.below(order.lines as u64) as i16)
            })
            .collect();
        let begin = time::now();
        let mut bytes = 0;
        for keys in keys.chunks(1000) {
            let mut tx = self.db.begin(TransactionOptions::new().read_only())?;
            for key in keys {
                bytes += block_on(tx.read(&self.primary, key, <[u8]>::len))?.unwrap_or(0);
            }
            block_on(tx.commit())?;
        }
        std::hint::black_box(bytes);
        Ok(begin.elapsed().as_nanos() as f64 / keys.len() as f64)
    }

    /// Nanoseconds of a change of one line, over the orders of this part.
    fn update(&self, part: usize, at_random: bool) -> Result<f64, Error> {
        let mut orders: Vec<_> = self.orders.iter().skip(part).step_by(4).copied().collect();
        let mut random = Rng::new(part as u64);
        if at_random {
            for at in (1..orders.len()).rev() {
                orders.swap(at, random.below(at as u64 + 1) as usize);
            }
        }
        orders.truncate(ORDERS);
        let begin = time::now();
        let mut changed = 0_u64;
        for order in &orders {
            self.db.run(TransactionOptions::new(), async |tx| {
                for line in 1..=order.lines {
                    let quantity = Value::Int2(line);
                    let key = order.key(line);
                    let set = tx.update(&self.primary, &key, |row| {
                        Ok(row.set_value(OrderLine::OL_QUANTITY, &quantity)?)
                    });
                    changed += u64::from(set.await?.is_some());
                }
                Ok(())
            })?;
        }
        Ok(begin.elapsed().as_nanos() as f64 / changed.max(1) as f64)
    }
}
