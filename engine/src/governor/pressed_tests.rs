//! Who waits for memory gets an answer: rounds of the governor by hand, under a clock that stands
//! until it is moved, and with the rules switched off that see to it.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use thermocline_base::clock::ManualClock;
use thermocline_base::io::MemoryIo;

use super::Work;
use crate::mutation::{Rule, switch_off};
use crate::row::{Column, KeyBuf, Type, Value};
use crate::{
    ColdStoreKind, Database, Durability, Error, IndexSchema, Isolation, Options, Table, TableSchema,
    Transaction, TransactionOptions, block_on,
};

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 16 * MIB;
/// Rows are long, for with this feature chunks are so short that many rows would be many chunks.
const TEXT_BYTES: usize = 4000;
/// By so much the clock moves on from round to round.
const ROUND: Duration = Duration::from_millis(10);
/// Nobody waits that long for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

struct World {
    db: Database,
    clock: Arc<ManualClock>,
    table: Table,
}

impl World {
    fn new(limit: Option<u64>) -> Self {
        let clock = Arc::new(ManualClock::new(0));
        let options = Options::default()
            .with_memory_limit(limit)
            .with_durability(Durability::Off)
            .with_cold_store(ColdStoreKind::Memory);
        let shared = Arc::<ManualClock>::clone(&clock);
        let db = Database::open_by(shared, options, Arc::new(MemoryIo::new())).expect("it opens");
        let schema = TableSchema::new("t")
            .column(Column::new("id", Type::Int8))
            .column(Column::new("text", Type::Text))
            .primary_key(IndexSchema::hash("key", &["id"]));
        let table = db.create_table(schema).expect("a table");
        let inner = db.inner();
        inner.budget.set_governed(true);
        inner.budget.note_beginning();
        inner.governor.begin();
        Self { db, clock, table }
    }

    /// Polls a future, a round of the governor between any two times. `None`: it has no answer when patience ends.
    fn drive<T>(&self, work: &mut Work<'_>, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        for _ in 0..PATIENCE.as_nanos() / ROUND.as_nanos() {
            if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return Some(answer);
            }
            work.round();
            self.clock.advance(ROUND);
        }
        None
    }

    async fn insert(&self, ids: std::ops::Range<i64>) -> Result<(), Error> {
        let mut tx = self.db.begin(TransactionOptions::new())?;
        for id in ids {
            tx.insert_values(&self.table, &[Value::Int8(id), Value::Text(format!("{id:0>TEXT_BYTES$}"))])
                .await?;
        }
        tx.commit().await
    }

    /// Inserts rows, ten in a transaction. Whether all had their answer, and a good one.
    fn fill(&self, work: &mut Work<'_>, ids: std::ops::Range<i64>) -> Result<(), String> {
        let mut again = 0;
        let mut first = ids.start;
        while first < ids.end {
            let last = ids.end.min(first + 10);
            match self.drive(work, self.insert(first..last)) {
                // Not so fast that all there is room for is of the last half second.
                Some(Ok(())) => {
                    work.round();
                    self.clock.advance(2 * ROUND);
                    first = last;
                }
                // Who waits that long in the midst of his own is told to begin again.
                Some(Err(error)) if error.sqlstate() == "72000" && again < 20 => again += 1,
                Some(Err(error)) => return Err(error.to_string()),
                None => return Err(format!("no answer for {PATIENCE:?}")),
            }
        }
        Ok(())
    }

    fn hold(&self) -> Transaction {
        let mut held =
            self.db.begin(TransactionOptions::new().isolation(Isolation::Snapshot)).expect("it begins");
        let key = KeyBuf::new().i64(10);
        assert!(block_on(held.read(&self.table.primary(), &key, |_| ())).expect("it reads").is_some());
        held
    }

    fn cancelled(&self) -> u64 {
        self.db.statistics().cold.cancelled_snapshots
    }
}

/// A snapshot stays open for long, and sees little: what comes after it goes, and it stays.
fn beside_a_snapshot() -> Result<(), String> {
    let world = World::new(Some(LIMIT));
    let mut work = Work::new(world.db.inner());
    world.fill(&mut work, 0..200)?;
    let held = world.hold();
    for _ in 0..200 {
        work.round();
        world.clock.advance(ROUND);
    }
    world.fill(&mut work, 200..10_000)?;
    drop(held);
    if world.cancelled() > 0 { Err("a snapshot was cancelled".to_owned()) } else { Ok(()) }
}

/// What the snapshot sees is more than there is room for.
fn under_a_snapshot() -> Result<(), String> {
    let world = World::new(None);
    let mut work = Work::new(world.db.inner());
    world.fill(&mut work, 0..5_000)?;
    let mut held = world.hold();
    world.db.set_memory_limit(Some(LIMIT)).map_err(|error| error.to_string())?;
    world.fill(&mut work, 5_000..5_200)?;
    match block_on(held.read(&world.table.primary(), &KeyBuf::new().i64(10), |_| ())) {
        Err(error) if error.sqlstate() == "72000" => Ok(()),
        other => Err(format!("it was not cancelled: {other:?}")),
    }
}

/// One transaction writes more than there is room for.
fn by_himself() -> Result<(), String> {
    let world = World::new(Some(LIMIT));
    let mut work = Work::new(world.db.inner());
    match world.drive(&mut work, world.insert(0..10_000)) {
        Some(Err(error)) if error.sqlstate() == "53200" => {}
        Some(other) => return Err(format!("{other:?}")),
        None => return Err(format!("no answer for {PATIENCE:?}")),
    }
    // Nothing of it is left.
    world.fill(&mut work, 0..200)
}

#[test]
fn model_of_those_who_wait_for_memory() {
    beside_a_snapshot().expect("there is room beside it");
    under_a_snapshot().expect("it gives way");
    by_himself().expect("he is told");
}

#[test]
fn rules_for_those_who_wait_for_memory_are_missed() {
    let off = |rule: Rule, play: fn() -> Result<(), String>| {
        let _off = switch_off(rule);
        let said = play().expect_err("nobody has missed the rule");
        eprintln!("{rule:?}: {said}");
    };
    off(Rule::NewRowsLeave, beside_a_snapshot);
    off(Rule::PinnedGivesWay, under_a_snapshot);
    off(Rule::NobodyWaitsForHimself, by_himself);
}
