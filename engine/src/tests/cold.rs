//! Rows that go to the cold store and come back, in databases without background threads: whatever moved when,
//! transactions see what they would see if nothing ever moved.

mod keys;

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use thermocline_base::clock::SystemClock;
use thermocline_base::depth;
use thermocline_base::io::{DelayedIo, Io, MemoryIo};
use thermocline_base::rng::Rng;

use crate::hot::budget::MemoryKind;
use crate::row::{Column, KeyBuf, Layout, Type, Value};
use crate::temperature::{Collector, CollectorOptions};
use crate::{
    ColdSteps, ColdStoreKind, Database, Direction, Durability, Error, Index, IndexSchema, Isolation,
    KeyRange, Options, Table, TableSchema, Transaction, TransactionOptions, block_on,
};

/// A table (id, group, name): primary key, a unique index on the name, an index on the group.
struct World {
    db: Database,
    table: Table,
    layout: Arc<Layout>,
    io: Arc<MemoryIo>,
    kind: ColdStoreKind,
}

fn options(kind: ColdStoreKind) -> Options {
    let mut options = Options::default().with_memory_limit(Some(256 << 20)).with_durability(Durability::Sync);
    options.cold_store = kind;
    options
}

fn open(io: Arc<dyn Io>, kind: ColdStoreKind) -> Database {
    Database::open_with(Path::new("/db"), options(kind), io, true).expect("it opens")
}

fn world(kind: ColdStoreKind, ordered: bool) -> World {
    let io = Arc::new(MemoryIo::new());
    let db = open(Arc::clone(&io) as _, kind);
    let index = |name: &str, column: &str| {
        if ordered { IndexSchema::ordered(name, &[column]) } else { IndexSchema::hash(name, &[column]) }
    };
    let schema = TableSchema::new("t")
        .column(Column::new("id", Type::Int8))
        .column(Column::new("group", Type::Int8))
        .column(Column::new("name", Type::Text))
        .primary_key(index("t_key", "id"))
        .index(index("t_name", "name").unique())
        .index(index("t_group", "group"));
    let table = db.create_table(schema).expect("the definition is fine");
    World { layout: table.layout(), db, table, io, kind }
}

type Row = (i64, i64, String);

fn decode(layout: &Layout, row: &[u8]) -> Row {
    match &layout.decode(row).expect("a row")[..] {
        [Value::Int8(id), Value::Int8(group), Value::Text(name)] => (*id, *group, name.clone()),
        other => panic!("{other:?}"),
    }
}

fn key(id: i64) -> KeyBuf {
    KeyBuf::new().i64(id)
}

impl World {
    fn steps(&self) -> ColdSteps {
        self.db.cold_steps()
    }

    fn index(&self, name: &str) -> Index {
        self.table.index(name).expect("it is there")
    }

    fn begin(&self, level: Isolation) -> Transaction {
        self.db.begin(TransactionOptions::new().isolation(level)).expect("it begins")
    }

    fn insert(&self, tx: &mut Transaction, (id, group, name): Row) -> Result<(), Error> {
        let row = [Value::Int8(id), Value::Int8(group), Value::Text(name)];
        block_on(tx.insert_values(&self.table, &row)).map(drop)
    }

    fn set_group(&self, tx: &mut Transaction, id: i64, group: i64) -> Result<bool, Error> {
        let table = &self.table;
        let edit =
            |row: &mut crate::row::RowEditor<'_>| row.set_i64(1, group).map_err(|error| table.error(error));
        Ok(block_on(tx.update(&self.index("t_key"), &key(id), edit))?.is_some())
    }

    fn set_name(&self, tx: &mut Transaction, id: i64, name: &str) -> Result<bool, Error> {
        let table = &self.table;
        let edit = |row: &mut crate::row::RowEditor<'_>| {
            row.set_value(2, &Value::Text(name.to_owned())).map_err(|error| table.error(error))
        };
        Ok(block_on(tx.update(&self.index("t_key"), &key(id), edit))?.is_some())
    }

    fn delete(&self, tx: &mut Transaction, id: i64) -> Result<bool, Error> {
        block_on(tx.delete(&self.index("t_key"), &key(id)))
    }

    fn read(&self, tx: &mut Transaction, id: i64) -> Result<Option<Row>, Error> {
        block_on(tx.read(&self.index("t_key"), &key(id), |row| decode(&self.layout, row)))
    }

    fn by_name(&self, tx: &mut Transaction, name: &str) -> Result<Option<Row>, Error> {
        let key = KeyBuf::new().str(name);
        block_on(tx.read(&self.index("t_name"), &key, |row| decode(&self.layout, row)))
    }

    fn by_group(&self, tx: &mut Transaction, group: i64) -> Result<Vec<Row>, Error> {
        self.by_group_in("t_group", tx, group)
    }

    fn by_group_in(&self, index: &str, tx: &mut Transaction, group: i64) -> Result<Vec<Row>, Error> {
        let mut rows = Vec::new();
        block_on(tx.read_all(&self.index(index), &key(group), |row| {
            rows.push(decode(&self.layout, row));
            ControlFlow::Continue(())
        }))?;
        rows.sort();
        Ok(rows)
    }

    fn all(&self, tx: &mut Transaction) -> Result<Vec<Row>, Error> {
        let mut rows = Vec::new();
        block_on(tx.scan_table(&self.table, |row| {
            rows.push(decode(&self.layout, row));
            ControlFlow::Continue(())
        }))?;
        rows.sort();
        Ok(rows)
    }

    /// Rows of an ordered index with keys from `from` up to `to`, `limit` of them.
    fn range(
        &self,
        tx: &mut Transaction,
        index: &str,
        (from, to): (i64, i64),
        direction: Direction,
        limit: usize,
    ) -> Result<Vec<Row>, Error> {
        let mut rows = Vec::new();
        let (from, to) = (key(from), key(to));
        let range = KeyRange::between(Bound::Included(&from), Bound::Included(&to));
        block_on(tx.scan(&self.index(index), range, direction, |row| {
            rows.push(decode(&self.layout, row));
            if rows.len() == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }))?;
        Ok(rows)
    }

    /// Does the maintenance that a database without its governor does not do by itself.
    fn settle(&self) {
        for _ in 0..2000 {
            let worked = self.steps().clean().expect("it cleans");
            self.db.maintenance_steps().prune();
            if !worked && self.steps().notices() == (0, 0) {
                return;
            }
            if !worked {
                // The governor cleans this moment.
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        panic!("notices stay: {:?}", self.steps().notices());
    }

    fn reopen(self) -> Self {
        self.reopen_over(|io| Arc::clone(io) as _)
    }

    fn reopen_over(self, above: impl FnOnce(&Arc<MemoryIo>) -> Arc<dyn Io>) -> Self {
        let Self { db, table, io, kind, .. } = self;
        drop(table);
        db.close().expect("it closes");
        let db = open(above(&io), kind);
        let table = db.table("t").expect("it is there");
        Self { layout: table.layout(), db, table, io, kind }
    }
}

fn rows(count: i64) -> Vec<Row> {
    (0..count).map(|id| (id, id % 7, format!("name {id}"))).collect()
}

fn filled(kind: ColdStoreKind, ordered: bool, count: i64) -> World {
    let world = world(kind, ordered);
    let mut tx = world.begin(Isolation::Snapshot);
    for row in rows(count) {
        world.insert(&mut tx, row).expect("a fresh row");
    }
    block_on(tx.commit()).expect("nobody else is there");
    world
}

const KINDS: [ColdStoreKind; 2] = [ColdStoreKind::Pages, ColdStoreKind::Memory];

#[test]
fn cold_rows_are_found_by_every_index_and_scan() {
    for (kind, ordered) in KINDS.into_iter().flat_map(|kind| [(kind, true), (kind, false)]) {
        let world = filled(kind, ordered, 300);
        let moved = world.steps().migrate(&world.table, |row| decode(&world.layout, row).0 % 3 != 0, 50);
        assert_eq!(moved.expect("they move"), 200);
        world.db.maintenance_steps().prune();
        assert_eq!(world.steps().rows_in_memory(&world.table), 100);
        let check = |world: &World| {
            let mut tx = world.begin(Isolation::Snapshot);
            let expected = rows(300);
            assert_eq!(world.all(&mut tx).expect("a scan"), expected);
            for row in &expected {
                assert_eq!(world.read(&mut tx, row.0).expect("a read").as_ref(), Some(row));
                assert_eq!(world.by_name(&mut tx, &row.2).expect("a read").as_ref(), Some(row));
            }
            assert_eq!(world.read(&mut tx, 300).expect("a read"), None);
            assert_eq!(world.by_name(&mut tx, "nobody").expect("a read"), None);
            for group in 0..7 {
                let of_group: Vec<Row> = expected.iter().filter(|row| row.1 == group).cloned().collect();
                assert_eq!(world.by_group(&mut tx, group).expect("a read"), of_group);
            }
            if ordered {
                let found =
                    world.range(&mut tx, "t_key", (10, 29), Direction::Forward, 1000).expect("a scan");
                assert_eq!(found, expected[10..30]);
                let mut found =
                    world.range(&mut tx, "t_key", (10, 290), Direction::Backward, 5).expect("a scan");
                found.reverse();
                assert_eq!(found, expected[286..291]);
                let found =
                    world.range(&mut tx, "t_group", (2, 4), Direction::Forward, 1000).expect("a scan");
                assert_eq!(found.len(), expected.iter().filter(|row| (2..=4).contains(&row.1)).count());
                assert!(found.is_sorted_by_key(|row| row.1));
            }
        };
        check(&world);
        world.settle();
        check(&world);
        if kind == ColdStoreKind::Pages {
            let world = world.reopen();
            check(&world);
            world.settle();
            check(&world.reopen());
        }
    }
}

#[test]
fn cold_rows_are_changed_and_deleted() {
    for kind in KINDS {
        let world = filled(kind, true, 100);
        assert_eq!(world.steps().migrate(&world.table, |_| true, 1000).expect("they move"), 100);
        let old = {
            let mut old = world.begin(Isolation::Snapshot);
            assert!(world.read(&mut old, 1).expect("a read").is_some());
            old
        };
        let mut tx = world.begin(Isolation::Snapshot);
        assert!(world.set_group(&mut tx, 1, 99).expect("it is there"));
        assert!(world.set_name(&mut tx, 2, "another").expect("it is there"));
        assert!(world.delete(&mut tx, 3).expect("it is there"));
        assert!(!world.delete(&mut tx, 3).expect("it is gone"));
        assert!(matches!(world.set_name(&mut tx, 4, "name 5"), Err(Error::DuplicateKey { .. })));
        assert!(matches!(world.insert(&mut tx, (6, 0, "new".into())), Err(Error::DuplicateKey { .. })));
        assert!(matches!(world.insert(&mut tx, (500, 0, "name 7".into())), Err(Error::DuplicateKey { .. })));
        world.insert(&mut tx, (3, 3, "name 2".into())).expect("both keys are free");
        assert_eq!(world.read(&mut tx, 3).expect("a read"), Some((3, 3, "name 2".into())));
        let savepoint = tx.savepoint().expect("a savepoint");
        assert!(world.delete(&mut tx, 8).expect("it is there"));
        tx.rollback_to(&savepoint).expect("it goes back");
        assert!(world.read(&mut tx, 8).expect("a read").is_some());
        block_on(tx.commit()).expect("nobody competes");
        let check = |world: &World, tx: &mut Transaction| {
            assert_eq!(world.read(tx, 1).expect("a read"), Some((1, 99, "name 1".into())));
            assert_eq!(world.by_name(tx, "another").expect("a read"), Some((2, 2, "another".into())));
            assert_eq!(world.by_name(tx, "name 2").expect("a read"), Some((3, 3, "name 2".into())));
            assert_eq!(world.by_name(tx, "name 3").expect("a read"), None);
            assert_eq!(world.by_group(tx, 99).expect("a read").len(), 1);
            assert_eq!(world.all(tx).expect("a scan").len(), 100);
        };
        check(&world, &mut world.begin(Isolation::Snapshot));
        // The old snapshot sees what was, cleaned or not.
        world.steps().clean().expect("it cleans");
        let mut old = old;
        assert_eq!(world.all(&mut old).expect("a scan"), rows(100));
        assert!(matches!(world.set_group(&mut old, 1, 5), Err(Error::SerializationFailure { .. })));
        drop(old);
        world.settle();
        check(&world, &mut world.begin(Isolation::Snapshot));
        assert_eq!(world.steps().records(&world.table, &key(1)), 0);
        // What was changed leaves again.
        assert_eq!(world.steps().migrate(&world.table, |_| true, 1000).expect("they move"), 3);
        world.settle();
        check(&world, &mut world.begin(Isolation::Snapshot));
        if kind == ColdStoreKind::Pages {
            let world = world.reopen();
            check(&world, &mut world.begin(Isolation::Snapshot));
        }
    }
}

#[test]
fn promoted_rows_are_as_they_were() {
    for kind in KINDS {
        let world = filled(kind, true, 50);
        world.steps().migrate(&world.table, |_| true, 1000).expect("they move");
        world.settle();
        let mut before = world.begin(Isolation::Serializable);
        assert_eq!(
            world.range(&mut before, "t_key", (0, 9), Direction::Forward, 100).expect("a scan"),
            rows(10)
        );
        for id in 0..20 {
            assert!(world.steps().promote(&world.table, &key(id)).expect("it comes back"));
            assert!(!world.steps().promote(&world.table, &key(id)).expect("it is in memory"));
        }
        assert_eq!(world.all(&mut before).expect("a scan"), rows(50));
        // Neither is what it read changed, nor is there a phantom; and it may change what has come back.
        assert!(world.set_group(&mut before, 3, 70).expect("it has only moved"));
        assert!(world.set_group(&mut before, 30, 70).expect("it is there"));
        block_on(before.commit()).expect("nothing has changed");
        let mut tx = world.begin(Isolation::Snapshot);
        assert_eq!(world.by_group(&mut tx, 70).expect("a read").len(), 2);
        assert_eq!(world.all(&mut tx).expect("a scan").len(), 50);
        drop(tx);
        world.settle();
        assert_eq!(world.all(&mut world.begin(Isolation::Snapshot)).expect("a scan").len(), 50);
    }
}

#[test]
fn an_index_over_cold_rows_is_like_one_that_was_there() {
    for (kind, ordered) in KINDS.into_iter().flat_map(|kind| [(kind, true), (kind, false)]) {
        let world = filled(kind, ordered, 300);
        let other = world.db.create_table(
            TableSchema::new("other")
                .column(Column::new("id", Type::Int8))
                .primary_key(IndexSchema::hash("other_key", &["id"])),
        );
        let other = other.expect("the definition is fine").primary();
        let cold = |row: &[u8]| decode(&world.layout, row).0 % 3 != 0;
        assert_eq!(world.steps().migrate(&world.table, cold, 50).expect("they move"), 200);
        // Its snapshot is from before what follows. It has not used the table yet, which may change under it.
        let mut old = world.begin(Isolation::Snapshot);
        block_on(old.read(&other, &key(1), |_| ())).expect("a read");
        let mut tx = world.begin(Isolation::Snapshot);
        for id in [1, 4, 6] {
            assert!(world.set_group(&mut tx, id, 3).expect("it is there"));
        }
        for id in [2, 9] {
            assert!(world.delete(&mut tx, id).expect("it is there"));
        }
        block_on(tx.commit()).expect("nobody competes");
        assert!(world.steps().promote(&world.table, &key(5)).expect("nothing fails"));
        let index = |name: &str| match ordered {
            true => IndexSchema::ordered(name, &["group"]),
            false => IndexSchema::hash(name, &["group"]),
        };
        world.db.create_index("t", index("late")).expect("it is filled");
        let unique = || IndexSchema::hash("late_name", &["name"]).unique();
        world.db.create_index("t", unique()).expect("names are unique");
        let groups = IndexSchema::hash("late_unique", &["group"]).unique();
        let refused = world.db.create_index("t", groups);
        assert!(matches!(refused, Err(Error::DuplicateKey { .. })), "{refused:?}");
        let check = |world: &World, tx: &mut Transaction| {
            let all = world.all(tx).expect("a scan");
            for group in 0..8 {
                let expected: Vec<Row> = all.iter().filter(|row| row.1 == group).cloned().collect();
                assert_eq!(world.by_group(tx, group).expect("a read"), expected);
                assert_eq!(world.by_group_in("late", tx, group).expect("a read"), expected);
            }
            for row in all.iter().step_by(7) {
                let (index, name) = (world.index("late_name"), KeyBuf::new().str(&row.2));
                let found = block_on(tx.read(&index, &name, |found| decode(&world.layout, found)));
                assert_eq!(found.expect("a read").as_ref(), Some(row));
            }
            if ordered {
                let range = |tx: &mut Transaction, index: &str| {
                    let mut rows = world.range(tx, index, (1, 5), Direction::Backward, 1000).expect("a scan");
                    rows.sort();
                    rows
                };
                assert_eq!(range(tx, "late"), range(tx, "t_group"));
            }
            all
        };
        let before = check(&world, &mut old);
        assert_eq!(before, rows(300));
        let now = check(&world, &mut world.begin(Isolation::Snapshot));
        assert_eq!(now.len(), 298);
        world.steps().clean().expect("it cleans");
        assert_eq!(check(&world, &mut old), before);
        drop(old);
        world.settle();
        assert_eq!(check(&world, &mut world.begin(Isolation::Snapshot)), now);
        // What leaves memory now, comes back or is changed, the index knows of, too.
        assert!(world.steps().migrate(&world.table, |_| true, 50).expect("they move") > 90);
        for id in [7, 8, 10] {
            assert!(world.steps().promote(&world.table, &key(id)).expect("nothing fails"));
        }
        let mut tx = world.begin(Isolation::Snapshot);
        assert!(world.set_group(&mut tx, 7, 5).expect("it is there"));
        assert!(world.set_group(&mut tx, 11, 5).expect("it is there"));
        assert!(matches!(world.set_name(&mut tx, 13, "name 14"), Err(Error::DuplicateKey { .. })));
        block_on(tx.commit()).expect("nobody competes");
        let now = check(&world, &mut world.begin(Isolation::Snapshot));
        world.settle();
        assert_eq!(check(&world, &mut world.begin(Isolation::Snapshot)), now);
        world.db.drop_index("t", "late_name").expect("it is there");
        world.db.create_index("t", unique()).expect("names are still unique");
        if kind == ColdStoreKind::Pages {
            let world = world.reopen();
            assert_eq!(check(&world, &mut world.begin(Isolation::Snapshot)), now);
            world.settle();
            assert_eq!(check(&world, &mut world.begin(Isolation::Snapshot)), now);
        }
    }
}

/// A transaction that is open, with what it has to see.
struct Open {
    tx: Transaction,
    level: Isolation,
    view: BTreeMap<i64, Row>,
    changed: bool,
}

/// Random operations at all levels, with migration, promotion, cleaning and pruning in between: whoever commits has seen
/// what his level promises, compared with maps.
fn any_order(kind: ColdStoreKind, seed: u64, rounds: u64) {
    let world = world(kind, true);
    let mut rng = Rng::new(seed);
    let mut committed: BTreeMap<i64, Row> = BTreeMap::new();
    let mut open: Vec<Open> = Vec::new();
    let (mut names, mut commits) = (0, 0);
    for round in 0..rounds {
        let id = rng.below(12) as i64;
        match rng.below(24) {
            0..=2 if open.len() < 3 => {
                let level = [Isolation::Snapshot, Isolation::RepeatableRead, Isolation::Serializable]
                    [rng.below(3) as usize];
                let tx = world.begin(level);
                open.push(Open { tx, level, view: committed.clone(), changed: false });
            }
            3..=5 if !open.is_empty() => {
                let at = rng.below(open.len() as u64) as usize;
                let Open { tx, view, changed, .. } = open.swap_remove(at);
                if block_on(tx.commit()).is_ok() && changed {
                    // One writer at a time in this test: the others have failed.
                    committed = view;
                    commits += 1;
                }
                // Whoever is still open and has written would fail; let them go.
                open.retain(|other| !other.changed);
            }
            6..=8 => {
                let most = rng.below(4);
                let which = |row: &[u8]| decode(&world.layout, row).0 as u64 % 4 >= most;
                world.steps().migrate(&world.table, which, 5).expect("they move");
            }
            9 => {
                world.steps().promote(&world.table, &key(id)).expect("it may");
            }
            10..=11 => {
                world.steps().clean().expect("it cleans");
            }
            12 => world.db.maintenance_steps().prune(),
            what if !open.is_empty() => {
                let at = rng.below(open.len() as u64) as usize;
                let writer = open.iter().position(|open| open.changed);
                let writes = what >= 18 && writer.is_none_or(|writer| writer == at);
                let Open { tx, view, changed, level } = &mut open[at];
                let say = |what: &str| format!("{what} {id}, {level:?}, round {round}, seed {seed}");
                // A snapshot is taken by begin, so the view is of then; a writer must not be behind a commit.
                if writes && (*changed || *view == committed) {
                    names += 1;
                    let name = format!("n{names}");
                    let outcome = match what {
                        18 | 19 => world.insert(tx, (id, round as i64 % 3, name.clone())).map(|()| true),
                        20 => world.delete(tx, id),
                        21 => world.set_name(tx, id, &name),
                        _ => world.set_group(tx, id, round as i64 % 3),
                    };
                    match outcome {
                        Ok(there) => {
                            let before = view.get(&id).cloned();
                            assert_eq!(there, what <= 19 || before.is_some(), "{}", say("a write of"));
                            match (what, before) {
                                (18 | 19, before) => {
                                    assert_eq!(before, None, "{}", say("an insert of"));
                                    view.insert(id, (id, round as i64 % 3, name));
                                }
                                (20, _) => _ = view.remove(&id),
                                (21, Some(row)) => _ = view.insert(id, (id, row.1, name)),
                                (_, Some(row)) => _ = view.insert(id, (id, round as i64 % 3, row.2)),
                                (_, None) => {}
                            }
                            *changed |= there;
                        }
                        Err(Error::DuplicateKey { .. }) => {
                            assert!(view.contains_key(&id), "{}", say("a duplicate of"));
                        }
                        Err(Error::SerializationFailure { .. }) => _ = open.swap_remove(at),
                        Err(error) => panic!("{}: {error}", say("a write of")),
                    }
                } else {
                    match what {
                        13 | 14 => {
                            let found = world.read(tx, id).expect("a read");
                            assert_eq!(found.as_ref(), view.get(&id), "{}", say("a read of"));
                        }
                        15 => {
                            let found = world.all(tx).expect("a scan");
                            assert_eq!(found, view.values().cloned().collect::<Vec<_>>(), "{}", say("all"));
                        }
                        16 => {
                            let found =
                                world.range(tx, "t_key", (2, id), Direction::Backward, 4).expect("a scan");
                            let expected: Vec<Row> = view
                                .range(2..=id.max(2))
                                .rev()
                                .map(|(_, row)| row.clone())
                                .filter(|row| row.0 <= id)
                                .take(4)
                                .collect();
                            assert_eq!(found, expected, "{}", say("a range to"));
                        }
                        _ => {
                            let group = id % 3;
                            let found = world.by_group(tx, group).expect("a read");
                            let expected: Vec<Row> =
                                view.values().filter(|row| row.1 == group).cloned().collect();
                            assert_eq!(found, expected, "{}", say("a group for"));
                        }
                    }
                }
            }
            _ => {}
        }
    }
    drop(open);
    world.settle();
    let found = world.all(&mut world.begin(Isolation::Snapshot)).expect("a scan");
    assert_eq!(found, committed.values().cloned().collect::<Vec<_>>(), "seed {seed}");
    assert!(commits > 0, "seed {seed} has tested something");
    if kind == ColdStoreKind::Pages {
        let world = world.reopen();
        let found = world.all(&mut world.begin(Isolation::Snapshot)).expect("a scan");
        assert_eq!(found, committed.into_values().collect::<Vec<_>>(), "seed {seed}, opened again");
    }
}

#[test]
fn whatever_moves_when_nobody_can_tell() {
    let first = depth::seed();
    for seed in first..first + depth::either(20, 60) {
        any_order(ColdStoreKind::Memory, seed, 600);
    }
    for seed in first..first + depth::either(2, 6) {
        any_order(ColdStoreKind::Pages, seed, 300);
    }
}

#[test]
fn a_scan_warms_the_cold_rows_that_it_shows() {
    for kind in KINDS {
        let world = filled(kind, true, 60);
        world.steps().migrate(&world.table, |_| true, 20).expect("they move");
        world.settle();
        let collector = Collector::new(CollectorOptions::default(), Arc::new(SystemClock), None);
        let cold_accesses = |index: &str, (from, to): (i64, i64)| {
            let mut tx = world.begin(Isolation::Snapshot);
            let sampler = collector.sampler();
            tx.driver
                .with_session(|session| {
                    session.sampler = Some(sampler);
                    Ok(())
                })
                .expect("it is open");
            collector.step();
            let before = collector.statistics().recorded_cold;
            let found = world.range(&mut tx, index, (from, to), Direction::Forward, 1000).expect("a scan");
            collector.step();
            (found.len() as u64, collector.statistics().recorded_cold - before)
        };
        assert_eq!(cold_accesses("t_key", (10, 29)), (20, 20));
        let (rows, noted) = cold_accesses("t_group", (2, 3));
        assert!(rows > 10 && noted == rows, "{noted} of {rows}");
    }
}

/// Device reads of the store of pages while `body` runs.
fn device_reads(world: &World, body: impl FnOnce()) -> u64 {
    let before = world.db.statistics().cold.device_reads;
    body();
    world.db.statistics().cold.device_reads - before
}

#[test]
fn the_first_rows_of_a_scan_cost_few_more_reads_than_rows() {
    const ROWS: i64 = 20_000;
    let world = filled(ColdStoreKind::Pages, true, ROWS);
    world.steps().migrate(&world.table, |_| true, 1_000).expect("they move");
    world.settle();
    // What the journal holds is written into pieces when the store is opened, and merged.
    let world = world.reopen();
    world.steps().set_frame_bytes(0).expect("it is open");
    let mut read = 0;
    for direction in [Direction::Forward, Direction::Backward] {
        for (index, from, to) in [("t_key", 7_000, 9_000), ("t_group", 3, 5)] {
            for rows in [1, 2, 10, 50] {
                let mut tx = world.begin(Isolation::Snapshot);
                let mut found = Vec::new();
                let reads = device_reads(&world, || {
                    found = world.range(&mut tx, index, (from, to), direction, rows).expect("a scan");
                });
                assert_eq!(found.len(), rows);
                // A piece that is not merged yet may lie beside, whose first page has to be looked at. Where each row lies
                // somewhere else, no more is read ahead than was needed before.
                let needed = if index == "t_key" { rows as u64 } else { 2 * rows as u64 };
                assert!(reads <= needed + 3, "{reads} reads for {rows} rows of {index}, {direction:?}");
                read += reads;
            }
        }
    }
    assert!(read > 0, "nothing was read from the device");
}

/// A scan of a secondary index reads a window of records at once instead of one after the other, and shows what a reader of
/// single rows sees: own writes, rows that came back, rows that have gone, and an older snapshot's rows.
#[test]
fn a_scan_of_a_secondary_index_reads_cold_rows_ahead() {
    const ROWS: i64 = 20_000;
    let world = filled(ColdStoreKind::Pages, true, ROWS);
    world
        .steps()
        .migrate(&world.table, |row| decode(&world.layout, row).0 % 10 != 0, 500)
        .expect("they move");
    world.settle();
    // What the journal holds is written into pieces when the store is opened. Its device answers later, not at once.
    let world =
        world.reopen_over(|io| Arc::new(DelayedIo::new(Arc::clone(io) as _, Duration::from_micros(200))));
    world.steps().set_frame_bytes(0).expect("it is open");
    let all = (i64::MIN, i64::MAX);
    let scan = |tx: &mut Transaction, direction| {
        let mut found = world.range(tx, "t_group", all, direction, usize::MAX).expect("a scan");
        if direction == Direction::Backward {
            found.reverse();
        }
        let groups: Vec<i64> = found.iter().map(|row| row.1).collect();
        assert!(groups.is_sorted(), "in the index's order: {groups:?}");
        found.sort();
        found
    };
    let mut old = world.begin(Isolation::Snapshot);
    let before = rows(ROWS);
    let waits = || {
        let waits = world.db.statistics().waits;
        waits.cold_reads.count + waits.cold_scans.count
    };
    let waited = waits();
    assert_eq!(scan(&mut old, Direction::Forward), before);
    let waited = waits() - waited;
    assert!(0 < waited && waited < ROWS as u64 / 10, "{waited} waits for {ROWS} rows");

    let mut tx = world.begin(Isolation::Snapshot);
    assert!(world.delete(&mut tx, 11).expect("nobody else writes"), "a cold row goes");
    assert!(world.set_group(&mut tx, 12, 3).expect("nobody else writes"), "a cold row changes its place");
    block_on(tx.commit()).expect("nobody else writes");
    assert!(world.steps().promote(&world.table, &key(13)).expect("it can"), "a cold row comes back");
    let mut now = world.begin(Isolation::Serializable);
    world.insert(&mut now, (ROWS, 5, "own".to_owned())).expect("a fresh row");
    let mut after = rows(ROWS);
    after[12].1 = 3;
    after.remove(11);
    after.push((ROWS, 5, "own".to_owned()));
    for direction in [Direction::Forward, Direction::Backward] {
        assert_eq!(scan(&mut old, direction), before, "{direction:?}");
        assert_eq!(scan(&mut now, direction), after, "{direction:?}");
    }
    block_on(now.commit()).expect("nobody else writes");
}

/// What is read ahead is memory like any other. A scan that finds none reads one entry after the other, and fails nowhere.
#[test]
fn what_a_scan_reads_ahead_counts_and_shrinks_where_there_is_no_room() {
    const ROWS: i64 = 6_000;
    let world = filled(ColdStoreKind::Pages, true, ROWS);
    world.steps().migrate(&world.table, |_| true, 500).expect("they move");
    world.settle();
    let world = world.reopen();
    let budget = &world.db.inner().budget;
    let used = || budget.used_by(MemoryKind::Transactions);
    let index = world.table.index("t_group").expect("it is there");
    let scan = |rows: usize| {
        let (mut seen, mut most) = (0, 0);
        let mut tx = world.begin(Isolation::Snapshot);
        let outcome = block_on(tx.scan(&index, KeyRange::all(), Direction::Forward, |_| {
            (seen, most) = (seen + 1, most.max(used()));
            if seen == rows { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }));
        outcome.expect("a scan");
        drop(tx);
        assert_eq!(used(), 0, "nothing is left after {seen} rows");
        (seen, most)
    };
    assert_eq!(scan(20), (20, 0), "small scans take what they took");
    let (seen, most) = scan(usize::MAX);
    assert!(seen == ROWS as usize && (32 << 10..1 << 20).contains(&most), "{most} bytes for {seen} rows");
    let mut taken = 0;
    for piece in [1 << 20, 1 << 10, 1] {
        while budget.charge(MemoryKind::Other, piece).is_ok() {
            taken += piece;
        }
    }
    assert_eq!(scan(usize::MAX), (ROWS as usize, 0), "nothing was left to be had");
    budget.release(MemoryKind::Other, taken);
}

/// A slot of the store `direct` is taken until the record before has been cleaned away, and it is of one length. Rows that
/// find none stay in memory, and the others of their batch go.
#[test]
fn rows_without_a_slot_stay_and_the_others_go() {
    let world = world(ColdStoreKind::Direct, true);
    let steps = world.steps();
    let migrate = || steps.migrate(&world.table, |_| true, 100).expect("a migration does not fail");
    let long = "x".repeat(600);
    let mut tx = world.begin(Isolation::Snapshot);
    for id in 0..20 {
        let name = if id == 7 { long.clone() } else { format!("name {id}") };
        world.insert(&mut tx, (id, id % 3, name)).expect("a fresh row");
    }
    block_on(tx.commit()).expect("nobody else is there");
    assert_eq!(migrate(), 19, "all but the long one");

    // As long as somebody sees the record, it stays where it is.
    let mut old = world.begin(Isolation::Snapshot);
    let before = world.read(&mut old, 3).expect("a read");
    let mut tx = world.begin(Isolation::Snapshot);
    assert!(world.set_group(&mut tx, 3, 5).expect("an update"));
    world.insert(&mut tx, (100, 1, "name 100".to_owned())).expect("a fresh row");
    block_on(tx.commit()).expect("nobody else changes it");
    assert_eq!(migrate(), 1, "the new one");
    assert_eq!(world.read(&mut old, 3).expect("a read"), before);
    drop(old);

    let mut moved = 0;
    while moved == 0 {
        steps.clean().expect("cleaning does not fail");
        moved = migrate();
    }
    assert_eq!(moved, 1, "the one that was changed");
    let mut tx = world.begin(Isolation::Snapshot);
    assert_eq!(world.read(&mut tx, 3).expect("a read"), Some((3, 5, "name 3".to_owned())));
    assert_eq!(world.by_name(&mut tx, &long).expect("a read"), Some((7, 1, long.clone())));
    assert_eq!(world.all(&mut tx).expect("a scan").len(), 21);
}
