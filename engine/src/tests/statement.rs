//! Statements, row handles and changes by closure, over rows wherever they stand: in memory, in the cold store, moved or
//! promoted after the statement's snapshot. Databases without background threads, so each case is one order of steps.

mod again;
mod limits;
mod looks;

use std::future::Future;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use thermocline_base::io::MemoryIo;

use crate::row::{Column, EncodedRow, KeyBuf, Layout, RowEditor, Type, Value};
use crate::{
    Change, Changed, ColdStoreKind, Database, Direction, Durability, Error, Index, IndexSchema, Isolation,
    KeyRange, LockMode, LockWait, Locked, Options, RowHandle, SeenRow, Statement, Table, TableSchema,
    Transaction, TransactionOptions, block_on,
};

const LEVELS: [Isolation; 4] =
    [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::RepeatableRead, Isolation::Serializable];

/// Where row 1 is, and what becomes of it after the statement has read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Hot,
    Cold,
    Moved,
    Promoted,
}

const PLACES: [Place; 4] = [Place::Hot, Place::Cold, Place::Moved, Place::Promoted];

/// A table (id, value), with an ordered index on the value.
struct World {
    db: Database,
    table: Table,
    primary: Index,
    values: Index,
    layout: Arc<Layout>,
}

fn key(id: i64) -> KeyBuf {
    KeyBuf::new().i64(id)
}

fn world_with(keyed: bool, rows: &[(i64, i64)]) -> World {
    let mut options = Options::default().with_memory_limit(Some(256 << 20)).with_durability(Durability::Off);
    options.cold_store = ColdStoreKind::Memory;
    let db =
        Database::open_with(Path::new("/db"), options, Arc::new(MemoryIo::new()), true).expect("it opens");
    let schema = TableSchema::new("t")
        .column(Column::new("id", Type::Int8))
        .column(Column::new("value", Type::Int8))
        .index(IndexSchema::ordered("t_value", &["value"]));
    let schema = if keyed { schema.primary_key(IndexSchema::ordered("t_key", &["id"])) } else { schema };
    let table = db.create_table(schema).expect("the definition is fine");
    let world = World {
        primary: table.primary(),
        values: table.index("t_value").expect("it is there"),
        layout: table.layout(),
        db,
        table,
    };
    let mut tx = world.begin(Isolation::Snapshot);
    for (id, value) in rows {
        world.insert(&mut tx, *id, *value).expect("a fresh row");
    }
    block_on(tx.commit()).expect("nobody competes");
    world
}

fn world(rows: &[(i64, i64)]) -> World {
    world_with(true, rows)
}

impl World {
    fn begin(&self, level: Isolation) -> Transaction {
        self.db.begin(TransactionOptions::new().isolation(level)).expect("it begins")
    }

    fn insert(&self, tx: &mut Transaction, id: i64, value: i64) -> Result<(), Error> {
        block_on(tx.insert_values(&self.table, &[Value::Int8(id), Value::Int8(value)])).map(drop)
    }

    fn decode(&self, row: &[u8]) -> (i64, i64) {
        let column = |column| self.layout.i64(row, column).expect("it is not null");
        (column(0), column(1))
    }

    fn migrate(&self) {
        self.db.cold_steps().migrate(&self.table, |_| true, 100).expect("the store works");
    }

    fn promote(&self, id: i64) {
        assert!(self.db.cold_steps().promote(&self.table, &key(id)).expect("the store works"), "it is cold");
    }

    /// Prunes, and cleans what may be cleaned.
    fn settle(&self) {
        for _ in 0..4 {
            self.db.cold_steps().clean().expect("the store works");
            crate::ops::prune::prune_all(self.db.inner(), false);
            self.db.inner().epochs.collect();
        }
    }

    fn prepare(&self, place: Place) {
        if matches!(place, Place::Cold | Place::Promoted) {
            self.migrate();
            self.settle();
        }
    }

    fn disturb(&self, place: Place) {
        match place {
            Place::Hot | Place::Cold => {}
            Place::Moved => self.migrate(),
            Place::Promoted => self.promote(1),
        }
    }

    /// Another transaction changes a row.
    fn other_sets(&self, id: i64, column: usize, value: i64) {
        let mut tx = self.begin(Isolation::Snapshot);
        let set = |row: &mut RowEditor<'_>| Ok(row.set_i64(column, value)?);
        assert!(block_on(tx.update(&self.primary, &key(id), set)).expect("it is there").is_some());
        block_on(tx.commit()).expect("nobody competes");
    }

    fn other_deletes(&self, id: i64) {
        let mut tx = self.begin(Isolation::Snapshot);
        assert!(block_on(tx.delete(&self.primary, &key(id))).expect("it is there"));
        block_on(tx.commit()).expect("nobody competes");
    }

    fn all(&self, statement: &mut Statement<'_>) -> Vec<(i64, i64)> {
        let mut rows = Vec::new();
        let see = |row: SeenRow<'_>| {
            rows.push(self.decode(&row));
            ControlFlow::Continue(())
        };
        block_on(statement.scan_table(&self.table, see)).expect("a scan");
        rows.sort_unstable();
        let mut by_key = Vec::new();
        for index in [&self.primary, &self.values] {
            if self.table.layout().columns().len() > 2 {
                continue;
            }
            by_key.clear();
            let see = |row: SeenRow<'_>| {
                by_key.push(self.decode(&row));
                ControlFlow::Continue(())
            };
            if block_on(statement.scan(index, KeyRange::all(), Direction::Forward, see)).is_err() {
                continue;
            }
            by_key.sort_unstable();
            assert_eq!(by_key, rows, "a scan of {index:?} sees what the table has");
        }
        rows
    }

    fn handle(&self, statement: &mut Statement<'_>, id: i64) -> RowHandle {
        let mut found = None;
        let see = |row: SeenRow<'_>| {
            if self.decode(&row).0 == id {
                found = Some(row.handle());
            }
            ControlFlow::Continue(())
        };
        block_on(statement.scan_table(&self.table, see)).expect("a scan");
        found.expect("the row is there")
    }

    fn read(&self, statement: &mut Statement<'_>, id: i64) -> Option<i64> {
        block_on(statement.read(&self.primary, &key(id), |row| self.decode(&row).1)).expect("a read")
    }

    fn read_by(&self, statement: &mut Statement<'_>, handle: &RowHandle) -> Option<(i64, i64)> {
        block_on(statement.read_row(&self.table, handle, |row| self.decode(&row))).expect("a read")
    }

    /// Sets the value, and says which one there was.
    fn set(&self, statement: &mut Statement<'_>, id: i64, value: i64) -> Result<Changed<i64>, Error> {
        block_on(statement.change(&self.primary, &key(id), |row| {
            let before = self.decode(row.row()).1;
            row.set_i64(1, value)?;
            Ok((Change::Update, before))
        }))
    }

    fn set_by(
        &self,
        statement: &mut Statement<'_>,
        handle: &RowHandle,
        value: i64,
    ) -> Result<Changed<i64>, Error> {
        block_on(statement.change_row(&self.table, handle, |row| {
            let before = self.decode(row.row()).1;
            row.set_i64(1, value)?;
            Ok((Change::Update, before))
        }))
    }

    fn delete_by(&self, statement: &mut Statement<'_>, handle: &RowHandle) -> Changed<()> {
        block_on(statement.change_row(&self.table, handle, |_| Ok((Change::Delete, ()))))
            .expect("nobody competes")
    }

    /// What everybody sees in the end, with nothing left of moves.
    fn end(&self) -> Vec<(i64, i64)> {
        self.settle();
        let mut tx = self.begin(Isolation::Snapshot);
        let mut statement = tx.statement().expect("it begins");
        self.all(&mut statement)
    }
}

fn each(mut case: impl FnMut(Place, Isolation)) {
    for place in PLACES {
        for level in LEVELS {
            case(place, level);
        }
    }
}

/// (62) What a statement writes it passes over, wherever it stands: the new version, the notice of the end of a record, the
/// row that was followed. The next statement sees it all.
#[test]
fn a_statement_does_not_see_what_it_writes() {
    each(|place, level| {
        let world = world(&[(1, 10), (2, 20), (3, 30)]);
        world.prepare(place);
        let mut tx = world.begin(level);
        let mut statement = tx.statement().expect("it begins");
        let one = world.handle(&mut statement, 1);
        let three = world.handle(&mut statement, 3);
        world.disturb(place);
        let case = format!("{place:?} {level}");
        assert_eq!(
            world.set(&mut statement, 1, 11).expect("nobody competes"),
            Changed::Updated(10),
            "{case}"
        );
        assert_eq!(world.delete_by(&mut statement, &three), Changed::Deleted(()), "{case}");
        let row = [Value::Int8(4), Value::Int8(40)];
        let mut encoded = EncodedRow::new();
        world.layout.encode_row(&row, &mut encoded).expect("it fits");
        block_on(statement.insert(&world.table, &encoded)).expect("a fresh row");
        assert_eq!(world.read(&mut statement, 1), Some(10), "{case}");
        assert_eq!(world.read_by(&mut statement, &one), Some((1, 10)), "{case}");
        assert_eq!(world.read_by(&mut statement, &three), Some((3, 30)), "{case}");
        assert_eq!(world.read(&mut statement, 4), None, "{case}");
        assert_eq!(world.all(&mut statement), [(1, 10), (2, 20), (3, 30)], "{case}");
        // It is one that this statement has written, by key and by handle, changed or deleted.
        assert_eq!(world.set(&mut statement, 1, 12).expect("an answer"), Changed::ByStatement, "{case}");
        assert_eq!(
            world.set_by(&mut statement, &one, 12).expect("an answer"),
            Changed::ByStatement,
            "{case}"
        );
        assert_eq!(
            world.set_by(&mut statement, &three, 12).expect("an answer"),
            Changed::ByStatement,
            "{case}"
        );
        assert_eq!(world.set(&mut statement, 4, 12).expect("an answer"), Changed::Gone, "{case}");
        drop(statement);
        let mut statement = tx.statement().expect("it begins");
        assert_eq!(world.all(&mut statement), [(1, 11), (2, 20), (4, 40)], "{case}");
        if level == Isolation::ReadCommitted {
            let stale =
                block_on(statement.read_row(&world.table, &one, |_| ())).expect_err("its snapshot is over");
            assert!(stale.to_string().contains("the snapshot that showed the row has ended"), "{stale}");
        } else {
            assert_eq!(world.read_by(&mut statement, &one), Some((1, 11)), "{case}");
            assert_eq!(world.read_by(&mut statement, &three), None, "{case}");
            assert_eq!(
                world.set_by(&mut statement, &one, 12).expect("it is there"),
                Changed::Updated(11),
                "{case}"
            );
            assert_eq!(world.set_by(&mut statement, &three, 12).expect("an answer"), Changed::Gone, "{case}");
            assert_eq!(world.read_by(&mut statement, &one), Some((1, 11)), "{case}");
        }
        drop(statement);
        block_on(tx.commit()).expect("nobody competes");
        let one = if level == Isolation::ReadCommitted { 11 } else { 12 };
        assert_eq!(world.end(), [(1, one), (2, 20), (4, 40)], "{case}");
    });
}

/// An update whose scan goes through the index of what it changes meets each row once, and `insert … select` from the table
/// itself ends.
#[test]
fn a_statement_that_feeds_its_own_scan_ends() {
    for level in LEVELS {
        let world = world(&(0..50).map(|id| (id, id)).collect::<Vec<_>>());
        let mut tx = world.begin(level);
        let mut statement = tx.statement().expect("it begins");
        for round in 0..50 {
            // The next row from here on, as a cursor would: all later ones are this statement's own.
            let mut next = None;
            let from = KeyBuf::new().i64(round);
            let range = KeyRange::between(std::ops::Bound::Included(&from), std::ops::Bound::Unbounded);
            let see = |row: SeenRow<'_>| {
                next = Some((row.handle(), world.decode(&row)));
                ControlFlow::Break(())
            };
            block_on(statement.scan(&world.values, range, Direction::Forward, see)).expect("a scan");
            let (handle, (_, value)) = next.expect("a row is left");
            assert_eq!(value, round);
            assert_eq!(
                world.set_by(&mut statement, &handle, value + 1000).expect("nobody competes"),
                Changed::Updated(value)
            );
            let mut encoded = EncodedRow::new();
            let row = [Value::Int8(1000 + round), Value::Int8(value)];
            world.layout.encode_row(&row, &mut encoded).expect("it fits");
            block_on(statement.insert(&world.table, &encoded)).expect("a fresh row");
        }
        drop(statement);
        block_on(tx.commit()).expect("nobody competes");
        assert_eq!(world.end().len(), 100);
    }
}

/// (63) A row that many statements of one transaction change costs two versions and one write, keys and all.
#[test]
fn many_statements_that_change_one_row_cost_what_one_does() {
    for column in [1, 0] {
        let world = world(&[(1, 10)]);
        let mut tx = world.begin(Isolation::Snapshot);
        let mut sizes = Vec::new();
        for round in 0..600 {
            let mut statement = tx.statement().expect("it begins");
            let id = if column == 0 { 1 + round } else { 1 };
            let changed = block_on(statement.change(&world.primary, &key(id), |row| {
                row.set_i64(column, if column == 0 { 2 + round } else { round })?;
                Ok((Change::Update, ()))
            }));
            assert_eq!(changed.expect("nobody competes"), Changed::Updated(()));
            drop(statement);
            world.db.inner().epochs.collect();
            let writes = tx.driver.with_session(|session| Ok(session.writes.len())).expect("it is open");
            sizes.push((
                writes,
                world.db.statistics().version_bytes_used,
                world.db.statistics().index_entries,
            ));
        }
        assert_eq!(sizes[5], sizes[599], "what one row costs grows with the statements that change it");
        assert_eq!(sizes[599].0, 1, "one write");
        // What is rolled back is the row as it was.
        drop(tx);
        assert_eq!(world.end(), [(1, 10)]);
        assert_eq!(world.db.statistics().index_entries, 2, "no entry is left");
    }
}

/// Insert, change and delete by statements of one transaction, with savepoints between, and going back.
#[test]
fn statements_and_savepoints_go_together() {
    for place in [Place::Hot, Place::Cold] {
        let world = world(&[(1, 10), (2, 20)]);
        world.prepare(place);
        let mut tx = world.begin(Isolation::Snapshot);
        let set = |tx: &mut Transaction, value| {
            let mut statement = tx.statement().expect("it begins");
            world.set(&mut statement, 1, value).expect("nobody competes")
        };
        assert_eq!(set(&mut tx, 11), Changed::Updated(10));
        assert_eq!(set(&mut tx, 12), Changed::Updated(11));
        let savepoint = tx.savepoint().expect("a savepoint");
        assert_eq!(set(&mut tx, 13), Changed::Updated(12));
        assert_eq!(set(&mut tx, 14), Changed::Updated(13));
        let mut statement = tx.statement().expect("it begins");
        let one = world.handle(&mut statement, 1);
        assert_eq!(world.delete_by(&mut statement, &one), Changed::Deleted(()));
        // A statement is taken back as a whole.
        statement.undo();
        assert_eq!(set(&mut tx, 15), Changed::Updated(14));
        tx.rollback_to(&savepoint).expect("it is there");
        assert_eq!(set(&mut tx, 16), Changed::Updated(12));
        block_on(tx.commit()).expect("nobody competes");
        assert_eq!(world.end(), [(1, 16), (2, 20)], "{place:?}");
    }
}

/// (64) At read committed a statement reads at one snapshot to its end, and changes the newest version beside it.
#[test]
fn a_statement_keeps_its_snapshot_and_changes_the_newest_version() {
    for place in PLACES {
        let world = world(&[(1, 10), (2, 20)]);
        world.prepare(place);
        let mut tx = world.begin(Isolation::ReadCommitted);
        let mut statement = tx.statement().expect("it begins");
        let handles = [1, 2].map(|id| world.handle(&mut statement, id));
        world.disturb(place);
        world.other_sets(1, 1, 100);
        world.other_sets(2, 1, 200);
        assert_eq!(world.all(&mut statement), [(1, 10), (2, 20)], "{place:?}");
        assert_eq!(world.set(&mut statement, 1, 101).expect("an answer"), Changed::Updated(100), "{place:?}");
        assert_eq!(
            world.set_by(&mut statement, &handles[1], 201).expect("an answer"),
            Changed::Updated(200),
            "{place:?}"
        );
        assert_eq!(world.decode(statement.old_row()), (2, 200));
        assert_eq!(world.decode(statement.new_row()), (2, 201));
        assert_eq!(world.all(&mut statement), [(1, 10), (2, 20)], "{place:?}: its snapshot is another one");
        drop(statement);
        let mut statement = tx.statement().expect("it begins");
        assert_eq!(world.all(&mut statement), [(1, 101), (2, 201)], "{place:?}");
        drop(statement);
        block_on(tx.commit()).expect("nobody competes");
        assert_eq!(world.end(), [(1, 101), (2, 201)], "{place:?}");
    }
}

/// Above read committed a row that somebody has changed fails the statement, by key and by handle.
#[test]
fn above_read_committed_a_changed_row_is_a_conflict() {
    each(|place, level| {
        for by_handle in [false, true] {
            for deleted in [false, true] {
                let world = world(&[(1, 10), (2, 20)]);
                world.prepare(place);
                let mut tx = world.begin(level);
                let mut statement = tx.statement().expect("it begins");
                let one = world.handle(&mut statement, 1);
                world.disturb(place);
                if deleted {
                    world.other_deletes(1);
                } else {
                    world.other_sets(1, 1, 100);
                }
                let changed = match by_handle {
                    true => world.set_by(&mut statement, &one, 11),
                    false => world.set(&mut statement, 1, 11),
                };
                let case =
                    format!("{place:?} {level}, by handle {by_handle}, deleted {deleted}: {changed:?}");
                match (level, deleted) {
                    (Isolation::ReadCommitted, true) => {
                        assert!(matches!(changed, Ok(Changed::Gone)), "{case}");
                    }
                    (Isolation::ReadCommitted, false) => {
                        assert!(matches!(changed, Ok(Changed::Updated(100))), "{case}");
                    }
                    _ => assert!(matches!(changed, Err(Error::SerializationFailure { .. })), "{case}"),
                }
            }
        }
    });
}

/// (66, 67) A row that moves and changes after the statement has read it is found from its handle, or its trail is lost; it
/// is never taken for deleted.
#[test]
fn a_row_that_moves_and_changes_is_not_taken_for_deleted() {
    for place in PLACES {
        for first_column in [0, 1] {
            let world = world(&[(1, 10), (2, 20)]);
            world.prepare(place);
            let mut tx = world.begin(Isolation::ReadCommitted);
            let mut statement = tx.statement().expect("it begins");
            let one = world.handle(&mut statement, 1);
            world.disturb(place);
            // Changed (perhaps its key), moved, pruned, changed again, and moved.
            world.other_sets(1, first_column, 7);
            let id = if first_column == 0 { 7 } else { 1 };
            world.migrate();
            world.settle();
            world.other_sets(id, 1, 70);
            world.migrate();
            world.settle();
            assert_eq!(world.read_by(&mut statement, &one), Some((1, 10)), "{place:?}");
            match world.set_by(&mut statement, &one, 71).expect("an answer") {
                Changed::Updated(70) => {
                    drop(statement);
                    block_on(tx.commit()).expect("nobody competes");
                    assert_eq!(
                        world.end(),
                        [(id, 71), (2, 20)]
                            .into_iter()
                            .rev()
                            .collect::<std::collections::BTreeSet<_>>()
                            .into_iter()
                            .collect::<Vec<_>>()
                    );
                }
                Changed::Lost => {
                    statement.undo();
                    let mut statement = tx.statement().expect("it begins");
                    let again = world.handle(&mut statement, id);
                    assert_eq!(
                        world.set_by(&mut statement, &again, 71).expect("an answer"),
                        Changed::Updated(70)
                    );
                }
                other => panic!("{place:?}: {other:?}"),
            }
        }
    }
}

/// A table without a primary key: its rows are named by handles, two that are equal apart.
#[test]
fn rows_without_a_key_are_named_by_handles() {
    for cold in [false, true] {
        let world = world_with(false, &[(1, 10), (1, 10), (1, 10)]);
        if cold {
            world.migrate();
        }
        let mut tx = world.begin(Isolation::Snapshot);
        let mut statement = tx.statement().expect("it begins");
        let mut handles = Vec::new();
        let see = |row: SeenRow<'_>| {
            handles.push(row.handle());
            ControlFlow::Continue(())
        };
        block_on(statement.scan_table(&world.table, see)).expect("a scan");
        assert_eq!(world.set_by(&mut statement, &handles[0], 11).expect("it is there"), Changed::Updated(10));
        assert_eq!(world.delete_by(&mut statement, &handles[1]), Changed::Deleted(()));
        drop(statement);
        block_on(tx.commit()).expect("nobody competes");
        assert_eq!(world.end(), [(1, 10), (1, 11)]);
    }
}

/// (68) A handle is good for its table, its transaction and its snapshot, and says so.
#[test]
fn a_handle_that_is_not_good_is_refused() {
    let world = world(&[(1, 10)]);
    let other = world
        .db
        .create_table(TableSchema::new("other").column(Column::new("id", Type::Int8)))
        .expect("the definition is fine");
    let mut first = world.begin(Isolation::Snapshot);
    let mut statement = first.statement().expect("it begins");
    let handle = world.handle(&mut statement, 1);
    let refused = |statement: &mut Statement<'_>, table: &Table| {
        let error = block_on(statement.read_row(table, &handle, |_| ())).expect_err("it is not good");
        assert_eq!(error.sqlstate(), "0A000", "{error}");
        error.to_string()
    };
    assert!(refused(&mut statement, &other).contains("a row of another table"));
    drop(statement);
    let mut second = world.begin(Isolation::Snapshot);
    let mut statement = second.statement().expect("it begins");
    assert!(refused(&mut statement, &world.table).contains("another transaction has read it"));
    drop(statement);
    drop(first);
    // The next transaction in the session of the first one is another one, too.
    let mut third = world.begin(Isolation::Snapshot);
    let mut statement = third.statement().expect("it begins");
    assert!(refused(&mut statement, &world.table).contains("another transaction has read it"));
}

/// (69) An upsert that names a key twice is told so; one that meets another transaction's row changes that.
#[test]
fn the_row_that_refuses_a_key_can_be_changed() {
    each(|place, level| {
        let world = world(&[(1, 10), (2, 20)]);
        world.prepare(place);
        let mut tx = world.begin(level);
        let mut statement = tx.statement().expect("it begins");
        assert_eq!(world.all(&mut statement), [(1, 10), (2, 20)]);
        world.disturb(place);
        let mut other = world.begin(Isolation::Snapshot);
        world.insert(&mut other, 3, 30).expect("a fresh row");
        block_on(other.commit()).expect("nobody competes");
        let insert = |statement: &mut Statement<'_>, id: i64, value: i64| {
            let mut encoded = EncodedRow::new();
            world.layout.encode_row(&[Value::Int8(id), Value::Int8(value)], &mut encoded).expect("it fits");
            match block_on(statement.insert(&world.table, &encoded)) {
                Ok(_) => None,
                Err(Error::DuplicateKey { .. }) => {
                    Some(statement.take_refusing_row().expect("it is open").expect("a row has refused it"))
                }
                Err(error) => panic!("{error}"),
            }
        };
        let one = insert(&mut statement, 1, 11).expect("it is there");
        assert_eq!(world.set_by(&mut statement, &one, 11).expect("it is there"), Changed::Updated(10));
        let again = insert(&mut statement, 1, 12).expect("it is there");
        assert_eq!(world.set_by(&mut statement, &again, 12).expect("an answer"), Changed::ByStatement);
        assert!(insert(&mut statement, 4, 40).is_none());
        let four = insert(&mut statement, 4, 41).expect("it is there");
        assert_eq!(world.set_by(&mut statement, &four, 41).expect("an answer"), Changed::ByStatement);
        // One that is younger than the snapshot.
        let three = insert(&mut statement, 3, 31).expect("it is there");
        match (level, world.set_by(&mut statement, &three, 31)) {
            (Isolation::ReadCommitted, Ok(Changed::Updated(30))) => {}
            (Isolation::ReadCommitted, other) => panic!("{place:?}: {other:?}"),
            (_, Err(Error::SerializationFailure { .. })) => return,
            (_, other) => panic!("{place:?} {level}: {other:?}"),
        }
        drop(statement);
        block_on(tx.commit()).expect("nobody competes");
        assert_eq!(world.end(), [(1, 11), (2, 20), (3, 31), (4, 40)]);
    });
}

/// A large statement: its own writes are told apart by their index, and it ends with one pass.
#[test]
fn a_statement_may_write_many_rows() {
    let rows: Vec<(i64, i64)> = (0..3000).map(|id| (id, 0)).collect();
    let world = world(&rows);
    let mut tx = world.begin(Isolation::Snapshot);
    for round in 0..3 {
        let mut statement = tx.statement().expect("it begins");
        let mut handles = Vec::new();
        let see = |row: SeenRow<'_>| {
            handles.push(row.handle());
            ControlFlow::Continue(())
        };
        block_on(statement.scan_table(&world.table, see)).expect("a scan");
        for handle in &handles {
            let changed = world.set_by(&mut statement, handle, round + 1).expect("nobody competes");
            assert_eq!(changed, Changed::Updated(round));
        }
        assert_eq!(handles.len(), rows.len());
        assert!(world.all(&mut statement).iter().all(|row| row.1 == round), "it sees what was before");
    }
    let writes = tx.driver.with_session(|session| Ok(session.writes.len())).expect("it is open");
    assert_eq!(writes, rows.len());
    block_on(tx.commit()).expect("nobody competes");
    assert!(world.end().iter().all(|row| row.1 == 3));
}

fn lock(
    world: &World,
    statement: &mut Statement<'_>,
    id: i64,
    mode: LockMode,
    wait: LockWait,
) -> Result<Locked<i64>, Error> {
    block_on(statement.lock(&world.primary, &key(id), mode, wait, |row| world.decode(&row).1))
}

/// (72) A key share passes over changes of other columns, finished or not; it meets those of unique keys and deletes.
#[test]
fn a_key_share_passes_over_changes_of_other_columns() {
    each(|place, level| {
        for finished in [false, true] {
            for (column, deleted) in [(1, false), (0, false), (0, true)] {
                let world = world(&[(1, 10), (2, 20)]);
                world.prepare(place);
                let mut tx = world.begin(level);
                let mut statement = tx.statement().expect("it begins");
                let one = world.handle(&mut statement, 1);
                world.disturb(place);
                let mut other = world.begin(Isolation::Snapshot);
                if deleted {
                    assert!(block_on(other.delete(&world.primary, &key(1))).expect("it is there"));
                } else {
                    let set = |row: &mut RowEditor<'_>| Ok(row.set_i64(column, 77)?);
                    assert!(
                        block_on(other.update(&world.primary, &key(1), set)).expect("it is there").is_some()
                    );
                }
                let other = if finished {
                    block_on(other.commit()).expect("nobody competes");
                    None
                } else {
                    Some(other)
                };
                let show = |row: SeenRow<'_>| world.decode(&row).1;
                let (mode, wait) = (LockMode::KeyShare, LockWait::Skip);
                let locked = block_on(statement.lock_row(&world.table, &one, mode, wait, show));
                let case = format!(
                    "{place:?} {level}, finished {finished}, column {column}, deleted {deleted}: {locked:?}"
                );
                match (column, deleted, finished) {
                    (1, ..) => assert!(matches!(locked, Ok(Locked::Locked(77))), "{case}"),
                    (.., false) => assert!(matches!(locked, Ok(Locked::Skipped)), "{case}"),
                    (_, false, true) if level == Isolation::ReadCommitted => {
                        assert!(matches!(locked, Ok(Locked::Locked(10))), "{case}");
                    }
                    (_, true, true) if level == Isolation::ReadCommitted => {
                        assert!(matches!(locked, Ok(Locked::Gone)), "{case}");
                    }
                    _ => assert!(matches!(locked, Err(Error::SerializationFailure { .. })), "{case}"),
                }
                // (71) Whoever has changed the row meets the lock before it deletes it, over its own version, too.
                if let Some(mut other) = other
                    && column == 1
                {
                    let mut again = other.statement().expect("it begins");
                    let one = key(1);
                    let refused = block_on(std::future::poll_fn(|context| {
                        let mut delete =
                            Box::pin(again.change(&world.primary, &one, |_| Ok((Change::Delete, ()))));
                        std::task::Poll::Ready(delete.as_mut().poll(context).is_pending())
                    }));
                    assert!(refused, "{case}: a row goes under a key share");
                    drop(again);
                    block_on(other.commit()).expect("nobody competes");
                    drop(statement);
                    block_on(tx.commit()).expect("other columns are no concern of a key share");
                    assert_eq!(world.end(), [(1, 77), (2, 20)], "{case}");
                }
            }
        }
    });
}

/// (75) Who skips locked rows passes over those of other transactions, locked or changed, and takes the others, tested on
/// their newest version; rows that are cold or move are no obstacle.
#[test]
fn who_skips_locked_rows_takes_the_others() {
    for place in PLACES {
        let world = world(&[(1, 10), (2, 20), (3, 30), (4, 40)]);
        world.prepare(place);
        let mut locker = world.begin(Isolation::ReadCommitted);
        let mut holds = locker.statement().expect("it begins");
        let held = lock(&world, &mut holds, 2, LockMode::NoKeyUpdate, LockWait::Wait);
        assert!(matches!(held, Ok(Locked::Locked(20))), "{held:?}");
        assert!(matches!(world.set(&mut holds, 3, 31), Ok(Changed::Updated(30))));
        let mut tx = world.begin(Isolation::ReadCommitted);
        let mut statement = tx.statement().expect("it begins");
        let handles: Vec<RowHandle> = (1..=4).map(|id| world.handle(&mut statement, id)).collect();
        if place != Place::Promoted {
            world.disturb(place);
        }
        world.other_sets(4, 1, 41);
        let mut got = Vec::new();
        for handle in &handles {
            let show = |row: SeenRow<'_>| world.decode(&row);
            let (mode, wait) = (LockMode::Update, LockWait::Skip);
            got.push(
                block_on(statement.lock_row(&world.table, handle, mode, wait, show)).expect("an answer"),
            );
        }
        let expected = [Locked::Locked((1, 10)), Locked::Skipped, Locked::Skipped, Locked::Locked((4, 41))];
        assert_eq!(got, expected, "{place:?}");
        let error =
            lock(&world, &mut statement, 2, LockMode::Share, LockWait::NoWait).expect_err("it is locked");
        assert!(matches!(error, Error::WouldWait { .. }), "{error}");
        // A weaker lock beside it.
        let beside = lock(&world, &mut statement, 2, LockMode::KeyShare, LockWait::NoWait);
        assert!(matches!(beside, Ok(Locked::Locked(20))), "{beside:?}");
    }
}

/// (73, 74) The look at the present finds what is younger than the snapshot, in memory and in the cold store, and what it finds
/// was read.
#[test]
fn a_look_at_the_present_finds_what_the_snapshot_does_not_see() {
    for level in LEVELS {
        for moved in [false, true] {
            let world = world(&[(1, 10)]);
            let mut tx = world.begin(level);
            let mut statement = tx.statement().expect("it begins");
            let look = |statement: &mut Statement<'_>, value: i64| {
                block_on(statement.look_at_present(&world.values, &key(value))).expect("an answer")
            };
            assert!(look(&mut statement, 20).is_none());
            let mut other = world.begin(Isolation::Snapshot);
            world.insert(&mut other, 2, 20).expect("a fresh row");
            block_on(other.commit()).expect("nobody competes");
            if moved {
                world.migrate();
            }
            assert_eq!(world.all(&mut statement), [(1, 10)]);
            assert!(look(&mut statement, 20).is_some(), "{level}, moved {moved}");
            world.other_deletes(2);
            assert!(look(&mut statement, 20).is_none(), "{level}, moved {moved}");
            drop(statement);
            // It has learnt of a row that is not there any more.
            world.insert(&mut tx, 3, 30).expect("a fresh row");
            let commit = block_on(tx.commit());
            match level {
                Isolation::ReadCommitted | Isolation::Snapshot => commit.expect("nothing is validated"),
                _ => assert!(
                    matches!(commit, Err(Error::SerializationFailure { .. })),
                    "{level}, moved {moved}: {commit:?}"
                ),
            }
        }
    }
}

/// The next rows of a cursor.
fn fetch(world: &World, tx: &mut Transaction, cursor: &mut crate::Cursor, rows: usize) -> Vec<(i64, i64)> {
    let mut found = Vec::new();
    let count = block_on(tx.fetch(cursor, rows, |row| found.push(world.decode(&row)))).expect("a batch");
    assert_eq!(count, found.len());
    found
}

/// (63, 65) Cursors go on from batch to batch at what they were opened with, whatever the transaction and others do between two
/// batches: change, delete, insert, move, prune, clean.
#[test]
fn cursors_see_what_they_were_opened_with() {
    each(|place, level| {
        let rows: Vec<(i64, i64)> = (0..40).map(|id| (id, 100 + id)).collect();
        let world = world(&rows);
        world.prepare(place);
        let mut tx = world.begin(level);
        let mut backward: Vec<(i64, i64)> = rows.clone();
        backward.reverse();
        let mut first =
            tx.open_cursor(&world.primary, KeyRange::all(), Direction::Forward).expect("it opens");
        let mut second =
            tx.open_cursor(&world.values, KeyRange::all(), Direction::Backward).expect("it opens");
        let mut whole = tx.open_table_cursor(&world.table).expect("it opens");
        let mut got = [Vec::new(), Vec::new(), Vec::new()];
        let mut round = 0;
        while got[2].len() < 40 {
            got[0].extend(fetch(&world, &mut tx, &mut first, 7));
            got[1].extend(fetch(&world, &mut tx, &mut second, 5));
            got[2].extend(fetch(&world, &mut tx, &mut whole, 3));
            // The transaction's own changes, in single operations and statements, of rows passed and to come.
            let id = (round * 13) % 40;
            let set = |row: &mut RowEditor<'_>| Ok(row.set_i64(1, 1000 + round)?);
            let _ = block_on(tx.update(&world.primary, &key(id), set)).expect("nobody competes");
            world.insert(&mut tx, 100 + round, 5).expect("a fresh row");
            let mut statement = tx.statement().expect("it begins");
            let deleted =
                block_on(statement.change(&world.primary, &key(39 - round), |_| Ok((Change::Delete, ()))));
            let _ = deleted.expect("nobody competes");
            drop(statement);
            match round {
                1 if place != Place::Hot => world.migrate(),
                2 => world.settle(),
                _ => {}
            }
            round += 1;
            assert!(round < 30, "{place:?} {level}: {got:?}");
        }
        got[0].extend(fetch(&world, &mut tx, &mut first, 100));
        got[1].extend(fetch(&world, &mut tx, &mut second, 100));
        got[2].sort_unstable();
        assert_eq!(got[0], rows, "{place:?} {level}");
        assert_eq!(got[1], backward, "{place:?} {level}");
        assert_eq!(got[2], rows, "{place:?} {level}");
        assert_eq!(fetch(&world, &mut tx, &mut whole, 1), []);
        assert!(first.is_finished() && second.is_finished() && whole.is_finished());
        block_on(tx.commit()).expect("nobody competes");
    });
}

/// At read committed a cursor keeps its snapshot over the statements of its transaction: what others delete, it sees, cleaned and
/// pruned; and a handle that it gave leads to the newest version.
#[test]
fn a_cursor_at_read_committed_holds_its_snapshot() {
    for cold in [false, true] {
        let world = world(&(0..10).map(|id| (id, id)).collect::<Vec<_>>());
        if cold {
            world.migrate();
            world.settle();
        }
        let mut tx = world.begin(Isolation::ReadCommitted);
        let mut cursor =
            tx.open_cursor(&world.primary, KeyRange::all(), Direction::Forward).expect("it opens");
        let mut handles = Vec::new();
        block_on(tx.fetch(&mut cursor, 2, |row| handles.push(row.handle()))).expect("a batch");
        for id in 2..10 {
            world.other_deletes(id);
        }
        world.other_sets(0, 1, 77);
        let mut statement = tx.statement().expect("it begins");
        assert_eq!(world.all(&mut statement), [(0, 77), (1, 1)], "a statement has a snapshot of its own");
        assert_eq!(world.set_by(&mut statement, &handles[0], 78).expect("an answer"), Changed::Updated(77));
        assert_eq!(world.set_by(&mut statement, &handles[1], 11).expect("an answer"), Changed::Updated(1));
        drop(statement);
        world.settle();
        let rest = fetch(&world, &mut tx, &mut cursor, 100);
        assert_eq!(
            rest,
            (2..10).map(|id| (id, id)).collect::<Vec<_>>(),
            "cold {cold}: the cursor's rows are gone"
        );
        drop(cursor);
        let mut statement = tx.statement().expect("it begins");
        assert!(
            block_on(statement.read_row(&world.table, &handles[0], |_| ())).is_err(),
            "the cursor is closed"
        );
        drop(statement);
        block_on(tx.commit()).expect("nobody competes");
        assert_eq!(world.end(), [(0, 78), (1, 11)]);
        assert_eq!(world.db.inner().garbage.len(), 0, "nobody holds a snapshot");
    }
}

/// A statement's fetch goes on behind the row at which it has stopped. At read committed the transaction's own snapshot stays as young
/// as its last statement: only the cursor's grows old.
#[test]
fn a_statement_fetches_from_a_cursor() {
    each(|place, level| {
        let rows: Vec<(i64, i64)> = (0..12).map(|id| (id, id)).collect();
        let world = world(&rows);
        world.prepare(place);
        let mut tx = world.begin(level);
        let mut cursor =
            tx.open_cursor(&world.primary, KeyRange::all(), Direction::Forward).expect("it opens");
        let mut found = Vec::new();
        for round in 0..4 {
            world.other_deletes(11 - round);
            let mut statement = tx.statement().expect("it begins");
            let (mut more, end) = (3, found.len() + 3);
            let see = |row: SeenRow<'_>| {
                found.push(world.decode(&row));
                more -= 1;
                if more == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            block_on(statement.fetch(&mut cursor, see)).expect("rows");
            assert_eq!(found.len(), end, "{place:?} {level}");
            drop(statement);
            if level == Isolation::ReadCommitted {
                let registry = &world.db.inner().registry;
                let held = registry.snapshots().collect::<Vec<_>>();
                let newest = held.iter().map(|(_, snapshot)| *snapshot).max();
                assert_eq!((held.len(), newest), (2, Some(registry.clock.now())), "{place:?}");
            }
        }
        assert_eq!(found, rows, "{place:?} {level}");
        tx.rollback();
    });
}

/// Cursors end with the savepoint before them, with their transaction, and by being cancelled; the transaction goes on.
#[test]
fn cursors_end_in_good_order() {
    let world = world(&[(1, 10), (2, 20), (3, 30)]);
    let mut tx = world.begin(Isolation::ReadCommitted);
    let open = |tx: &mut Transaction| {
        tx.open_cursor(&world.primary, KeyRange::all(), Direction::Forward).expect("it opens")
    };
    let mut before = open(&mut tx);
    let savepoint = tx.savepoint().expect("a savepoint");
    world.insert(&mut tx, 4, 40).expect("a fresh row");
    let mut after = open(&mut tx);
    assert_eq!(fetch(&world, &mut tx, &mut after, 9).len(), 4);
    drop(after);
    let mut after = open(&mut tx);
    tx.rollback_to(&savepoint).expect("it is there");
    let error = block_on(tx.fetch(&mut after, 1, |_| ())).expect_err("it has ended");
    assert!(
        error.to_string().contains("a rollback to a savepoint before it has ended the cursor"),
        "{error}"
    );
    assert_eq!(fetch(&world, &mut tx, &mut before, 1), [(1, 10)]);
    let places = || world.db.inner().registry.snapshots().collect::<Vec<_>>();
    // The governor takes the cursor's snapshot away.
    let oldest = places().into_iter().find(|(place, _)| {
        world.db.inner().registry.place(*place).session.load(std::sync::atomic::Ordering::SeqCst) == 1
    });
    let place = world.db.inner().registry.place(oldest.expect("the cursor holds one").0);
    assert!(crate::ops::drive::reap(
        world.db.inner(),
        place,
        || true,
        || unreachable!("no transaction is aborted")
    ));
    let error = block_on(tx.fetch(&mut before, 1, |_| ())).expect_err("it was cancelled");
    assert_eq!(error.sqlstate(), "72000", "{error}");
    world.insert(&mut tx, 5, 50).expect("the transaction goes on");
    drop((before, after));
    let mut left = open(&mut tx);
    block_on(tx.commit()).expect("nobody competes");
    let mut next = world.begin(Isolation::ReadCommitted);
    let error = block_on(next.fetch(&mut left, 1, |_| ())).expect_err("its transaction is over");
    assert!(error.to_string().contains("the cursor's transaction is over"), "{error}");
    drop((left, next));
    assert_eq!(places(), [], "a snapshot is held that is nobody's");
    assert_eq!(world.end(), [(1, 10), (2, 20), (3, 30), (5, 50)]);
}

/// (91) Locks count under the memory limit, with their entries in the map of all locks.
#[test]
fn locks_count_under_the_memory_limit() {
    let rows: Vec<(i64, i64)> = (0..4000).map(|id| (id, 0)).collect();
    let world = world(&rows);
    let charged = || world.db.statistics().memory.transactions;
    let mut tx = world.begin(Isolation::Snapshot);
    let before = charged();
    let mut statement = tx.statement().expect("it begins");
    for (id, _) in &rows {
        let locked = lock(&world, &mut statement, *id, LockMode::Update, LockWait::Wait);
        assert!(matches!(locked, Ok(Locked::Locked(0))), "{locked:?}");
    }
    drop(statement);
    assert!(charged() - before > 4000 * 200, "{} bytes for 4000 locks", charged() - before);
    drop(tx);
    assert_eq!(charged(), before, "what was charged is given back");
}
