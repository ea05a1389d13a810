//! Chunks freeze by what their rows will still do: rounds by hand, under a clock that stands until a test moves it.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use thermocline_base::clock::{Clock, ManualClock, SystemClock};
use thermocline_base::ids::CHUNK_SLOTS;
use thermocline_base::io::MemoryIo;

use super::auto::Auto;
use super::leaver::Leaver;
use crate::hot::reuse::Moment;
use crate::row::{Column, KeyBuf, RowEditor, Type, Value};
use crate::{
    ColdStoreKind, Database, Durability, IndexSchema, Isolation, Options, Result, Table, TableSchema,
    Tiering, Transaction, TransactionOptions,
};

const ROUND: Duration = Duration::from_millis(100);
const CHUNK: i64 = CHUNK_SLOTS as i64;
const DONE: usize = 1;

struct World {
    db: Database,
    clock: Arc<ManualClock>,
    auto: Auto,
    leaver: Leaver,
}

impl World {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new(0));
        clock.advance(Duration::from_secs(100));
        let options = Options::default()
            .with_memory_limit(Some(256 << 20))
            .with_durability(Durability::Off)
            .with_cold_store(ColdStoreKind::Memory);
        let shared = Arc::<ManualClock>::clone(&clock);
        let db = Database::open_by(shared, options, Arc::new(MemoryIo::new())).expect("it opens");
        db.inner().governor.begin();
        Self { db, clock, auto: Auto::default(), leaver: Leaver::default() }
    }

    /// A table of `chunks` full chunks; a row is done with if its chunk is one of the first `done`.
    fn table(&self, name: &str, chunks: i64, done: i64) -> Table {
        self.table_of(name, Tiering::Auto, chunks, done)
    }

    /// A table that takes memory, whatever happens.
    fn ballast(&self) {
        self.table_of("ballast", Tiering::Hot, 8, 0);
    }

    fn table_of(&self, name: &str, tiering: Tiering, chunks: i64, done: i64) -> Table {
        let schema = TableSchema::new(name)
            .tiering(tiering)
            .column(Column::new("id", Type::Int8))
            .column(Column::new("done", Type::Int4).nullable())
            .column(Column::new("text", Type::Text))
            .primary_key(IndexSchema::hash(&format!("{name}_key"), &["id"]));
        let table = self.db.create_table(schema).expect("a table");
        let value = |id: i64| if id < done * CHUNK { Value::Int4(1) } else { Value::Null };
        // One row more, or the last chunk would not be full.
        for first in (0..=chunks * CHUNK).step_by(4096) {
            self.run(async |tx| {
                for id in first..(first + 4096).min(chunks * CHUNK + 1) {
                    let row = [Value::Int8(id), value(id), Value::Text("text".to_owned())];
                    tx.insert_values(&table, &row).await?;
                }
                Ok(())
            });
        }
        table
    }

    /// Sets the memory limit of which what is there are so many hundredths.
    fn fill_to(&self, percent: u64) {
        let used = self.db.statistics().memory.total();
        self.db.set_memory_limit(Some(used / percent * 100)).expect("it suffices");
    }

    fn run(&self, work: impl AsyncFnMut(&mut Transaction) -> Result<()>) {
        let options = TransactionOptions::new().isolation(Isolation::Snapshot);
        self.db.run(options, work).expect("nothing is in its way");
    }

    /// The number of rows of a table that a scan finds.
    fn count(&self, table: &Table) -> i64 {
        let mut count = 0;
        self.run(async |tx| {
            count = 0;
            let see = |_: &[u8]| {
                count += 1;
                ControlFlow::Continue(())
            };
            tx.scan_table(table, see).await.map(drop)
        });
        count
    }

    /// The rows from `first` on are done with, each in a transaction of its own.
    fn finish(&self, table: &Table, first: i64, count: i64) {
        for id in first..first + count {
            let key = KeyBuf::new().i64(id);
            self.run(async |tx| {
                let change = |row: &mut RowEditor<'_>| Ok(row.set_value(DONE, &Value::Int4(1))?);
                assert!(tx.update(&table.primary(), &key, change).await?.is_some());
                Ok(())
            });
        }
    }

    fn round(&mut self) {
        self.clock.advance(ROUND);
        let inner = self.db.inner();
        inner.governor.set_moment(Moment::at(self.clock.now_ns()));
        // A few chunks a round.
        while self.auto.round(inner, 0, 1) | self.leaver.round(inner) {}
        crate::ops::prune::prune_all(inner, false);
        inner.epochs.collect();
    }
}

#[test]
fn what_is_done_with_freezes_and_what_will_change_does_not() {
    let mut world = World::new();
    let table = world.table("t", 4, 2);
    world.fill_to(65);
    let mut next = 2 * CHUNK;
    for _ in 0..60 {
        world.finish(&table, next, 200);
        next += 200;
        world.round();
    }
    let found = table.statistics();
    // The first chunk is smaller than the others, so that one has rows of both kinds.
    let done = 2 * CHUNK as u64;
    assert!(found.rows_frozen > done / 2 && found.rows_frozen <= done, "{found:?}");
    assert_eq!(found.thawed_rows, 0, "{found:?}");
}

#[test]
fn after_a_load_only_the_largest_table_freezes_and_only_when_memory_is_nearly_at_its_end() {
    for (percent, freezes) in [(70, false), (86, true)] {
        let mut world = World::new();
        // So many chunks that one more has room to be built.
        let (small, large) = (world.table("small", 1, 1), world.table("large", 7, 7));
        world.fill_to(percent);
        (0..40).for_each(|_| world.round());
        let rows = |table: &Table| table.statistics().rows_frozen;
        assert_eq!((rows(&small), rows(&large) > 0), (0, freezes), "{percent} %");
    }
}

#[test]
fn what_changes_late_freezes_where_that_which_is_done_with_does_not_suffice() {
    for (percent, late) in [(70, false), (80, false), (86, true), (90, true)] {
        let mut world = World::new();
        let table = world.table("t", 8, 1);
        world.fill_to(percent);
        let mut next = CHUNK;
        for _ in 0..80 {
            world.finish(&table, next, 200);
            next += 200;
            world.round();
        }
        let found = table.statistics();
        let done = CHUNK as u64;
        assert_eq!(found.rows_frozen > done, late, "{percent} %: {found:?}");
        assert!(late || found.thawed_rows == 0, "{percent} %: {found:?}");
    }
}

/// With threads of its own, which wait for the store.
#[test]
fn a_full_disk_keeps_chunks_in_memory_until_there_is_space() {
    let io = MemoryIo::new();
    let options = Options::default()
        .with_memory_limit(Some(256 << 20))
        .with_durability(Durability::Async)
        .with_freeze_after(Duration::from_millis(200));
    let shared = Arc::new(io.clone());
    let db = Database::open_with(Path::new("/db"), options, shared, true).expect("it opens");
    let world = World { db, ..World::new() };
    let table = world.table("t", 3, 3);
    world.ballast();
    world.db.freeze("t").expect("there is room");
    world.db.checkpoint().expect("there is space");
    io.set_capacity(Some(io.used() + (16 << 10)));
    world.fill_to(92);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(table.statistics().left_rows, 0, "the disk is full");
    assert_eq!(world.count(&table), 3 * CHUNK + 1);
    io.set_capacity(None);
    let begun = SystemClock.now_ns();
    while table.statistics().left_rows == 0 {
        let waited = Duration::from_nanos(SystemClock.now_ns() - begun);
        assert!(waited < Duration::from_secs(120), "{:?}", table.statistics());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(world.count(&table), 3 * CHUNK + 1);
}

#[test]
fn the_later_rows_change_the_later_their_chunks_leave() {
    // At 200 changes a round none of 16 rows changes within 4 seconds, but within 16; at 20 none does within 64.
    for (pace, percent, leaves) in [(200, 90, false), (20, 90, true), (20, 81, false)] {
        let mut world = World::new();
        let table = world.table("t", 4, 0);
        world.ballast();
        world.fill_to(65);
        for round in 0..60 {
            world.finish(&table, CHUNK + round * pace, pace);
            world.round();
        }
        assert_eq!(table.statistics().rows_frozen, 0, "they are expected to change");
        world.db.freeze("t").expect("there is room");
        let live = crate::ops::memory::live_bytes(world.db.inner());
        world.db.set_memory_limit(Some(live / percent * 100)).expect("it suffices");
        for _ in 0..20 {
            world.clock.advance(ROUND);
            world.leaver.round(world.db.inner());
        }
        let found = table.statistics();
        assert_eq!(found.left_rows > 0, leaves, "{pace} changes a round, {percent} %: {found:?}");
    }
}
