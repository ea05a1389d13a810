//! Definitions of tables with cold rows that change, and a crash anywhere: the old definition or the new one is left,
//! with all rows; whatever the new one lets be found is found once.

use thermocline_base::io::{MemoryIo, RecordingIo};
use thermocline_engine::row::{Column, KeyBuf, Type, Value};
use thermocline_engine::{Database, Durability, Error, IndexSchema, Result, Table, TransactionOptions};

use super::cold::{migrate, texts};
use super::{State, check_places, drive, dump, open, recover, settle, tiny};

fn key(id: i64) -> KeyBuf {
    KeyBuf::new().i64(id)
}

/// Inserts rows, with whatever in the columns that have come later.
fn fill(db: &Database, table: &Table, ids: std::ops::Range<i64>) {
    let later = table.layout().columns()[2..].to_vec();
    let rows = db.transaction(TransactionOptions::new(), async |tx| {
        for id in ids.clone() {
            let mut row = vec![Value::Int8(id), Value::from(format!("{id:03}").repeat(80).as_str())];
            row.extend(later.iter().map(|column| match column.ty {
                Type::Text => Value::from("something"),
                _ => Value::Int8(id),
            }));
            tx.insert_values(table, &row).await?;
        }
        Ok(())
    });
    drive(db, rows).expect("the rows are new");
}

fn set(db: &Database, table: &Table, id: i64, text: &str) {
    let update = db.transaction(TransactionOptions::new(), async |tx| {
        tx.update(&table.primary(), &key(id), |row| Ok(row.set_str(1, text)?)).await
    });
    assert!(drive(db, update).expect("nobody is in the way").is_some(), "row {id} is there");
}

fn delete(db: &Database, table: &Table, id: i64) {
    let delete =
        db.transaction(TransactionOptions::new(), async |tx| tx.delete(&table.primary(), &key(id)).await);
    assert!(drive(db, delete).expect("nobody is in the way"), "row {id} is there");
}

/// A table most of whose rows are cold, in several batches and two layouts. Some were changed, deleted and brought back
/// since, and their records not cleaned away yet.
fn mostly_cold(durability: Durability) -> (RecordingIo, Database, Table) {
    let io = RecordingIo::new(&MemoryIo::new());
    let db = open(&io, &tiny(durability)).expect("a new database");
    let table = texts(&db);
    fill(&db, &table, 0..14);
    for from in [0, 4] {
        assert_eq!(migrate(&db, &table, from..from + 4), 4);
        while db.cold_steps().store_work() {}
    }
    settle(&db).expect("it cleans");
    // Two layouts of before, and one of rows of now.
    db.add_column("t", Column::new("early", Type::Int8).default(8_i64)).expect("nothing fails");
    assert_eq!(migrate(&db, &table, 8..11), 3);
    set(&db, &table, 1, "changed");
    delete(&db, &table, 2);
    assert!(drive(&db, db.cold_steps().promote_one(&table, &key(5))).expect("nothing fails"));
    set(&db, &table, 12, "changed in memory");
    db.step_flush().expect("nothing fails");
    (io, db, table)
}

type Change = fn(&Database) -> Result<()>;

const CHANGES: [Change; 8] = [
    |db| db.add_column("t", Column::new("more", Type::Text).default("none")),
    |db| db.drop_column("t", "early"),
    |db| db.rename_column("t", "early", "earlier"),
    |db| db.create_index("t", IndexSchema::ordered("late", &["v"])).map(drop),
    |db| db.create_index("t", IndexSchema::hash("late", &["v"]).unique()).map(drop),
    |db| db.drop_index("t", "by_v"),
    |db| db.truncate_table("t"),
    |db| db.drop_table("t"),
];

/// Whatever a crash during `work` leaves is one of these states, and settles.
fn every_crash_leaves(io: &RecordingIo, begun: usize, allowed: &[State]) -> std::result::Result<(), String> {
    for operations in begun..=io.operations() {
        for seed in [0, 1, 5] {
            let context =
                |error: String| format!("crash after operation {operations}, choice {seed}: {error}");
            let (state, ..) =
                recover(&io.crash(operations, seed), &tiny(Durability::Group)).map_err(context)?;
            if !allowed.contains(&state) {
                return Err(context(allowed[0].difference(&state)));
            }
        }
    }
    Ok(())
}

/// Rows come, go and change after a change, as if nothing had been: `late` and all other indexes know of it.
fn life_goes_on(db: &Database) -> std::result::Result<(), String> {
    let Ok(table) = db.table("t") else { return Ok(()) };
    fill(db, &table, 20..26);
    migrate(db, &table, 12..26);
    for id in [20, 22] {
        let text = format!("{id} is another");
        set(db, &table, id, &text);
    }
    delete(db, &table, 21);
    drive(db, db.cold_steps().promote_one(&table, &key(23))).map_err(|error| error.to_string())?;
    let state = dump(db)?;
    settle(db)?;
    check_places(db, &state)?;
    migrate(db, &table, 0..26);
    settle(db)?;
    check_places(db, &state)
}

#[test]
fn a_crash_leaves_the_old_definition_or_the_new_one() {
    for (number, change) in CHANGES.into_iter().enumerate() {
        let (io, db, table) = mostly_cold(Durability::Group);
        let (begun, before) = (io.operations(), dump(&db).expect("it is whole"));
        change(&db).unwrap_or_else(|error| panic!("change {number}: {error}"));
        let after = dump(&db).unwrap_or_else(|error| panic!("change {number}: {error}"));
        assert_ne!(before, after, "change {number}");
        let proof = every_crash_leaves(&io, begun, &[before, after.clone()])
            .and_then(|()| life_goes_on(&db))
            .and_then(|()| {
                drop(table);
                let copy = io.memory().copy();
                db.step_flush().map_err(|error| error.to_string())?;
                let state = dump(&db)?;
                drop((db, copy));
                let image = io.memory().copy();
                let report = Database::verify_with(super::path(), std::sync::Arc::new(image.copy()))
                    .map_err(|error| error.to_string())?;
                assert_eq!(report.findings, Vec::<String>::new());
                let (again, ..) = recover(&image, &tiny(Durability::Group))?;
                if again == state { Ok(()) } else { Err(state.difference(&again)) }
            });
        proof.unwrap_or_else(|error| panic!("change {number}: {error}"));
    }
}

/// All rows of a chunk have gone since its image, and were pruned, when the columns change. The checkpoint after that
/// has to know: nothing else stands between the image and the next start. `replayed`: it is a start that finds all this in the log.
fn rows_stay_away(go: fn(&Database, &Table), replayed: bool) -> std::result::Result<(), String> {
    let io = RecordingIo::new(&MemoryIo::new());
    let db = open(&io, &tiny(Durability::Group)).expect("a new database");
    let table = texts(&db);
    fill(&db, &table, 0..5);
    db.checkpoint().expect("nothing fails");
    go(&db, &table);
    db.maintenance_steps().prune();
    assert_eq!(db.cold_steps().rows_in_memory(&table), 0);
    db.add_column("t", Column::new("more", Type::Int8).default(8_i64)).expect("nothing fails");
    db.step_flush().expect("nothing fails");
    let state = dump(&db)?;
    let (io, db) = match replayed {
        true => {
            let again = RecordingIo::new(&io.crash(io.operations(), 0));
            let db = open(&again, &tiny(Durability::Group)).expect("it opens");
            (again, db)
        }
        false => (io, db),
    };
    db.checkpoint().expect("nothing fails");
    let (found, ..) = recover(&io.crash(io.operations(), 0), &tiny(Durability::Group))?;
    if found == state { Ok(()) } else { Err(state.difference(&found)) }
}

#[test]
fn rows_that_went_before_a_change_of_columns_do_not_come_back() {
    let delete_all = |db: &Database, table: &Table| (0..5).for_each(|id| delete(db, table, id));
    let move_all = |db: &Database, table: &Table| assert_eq!(migrate(db, table, 0..5), 5);
    for replayed in [false, true] {
        rows_stay_away(delete_all, replayed).unwrap_or_else(|error| panic!("deleted, {replayed}: {error}"));
        rows_stay_away(move_all, replayed).unwrap_or_else(|error| panic!("moved, {replayed}: {error}"));
    }
}

/// What a change has written before a crash does not come back under the number that it had: the next index is whole.
#[test]
fn an_index_that_a_crash_has_prevented_leaves_nothing() {
    let (io, db, _table) = mostly_cold(Durability::Group);
    let begun = io.operations();
    CHANGES[3](&db).expect("nothing fails");
    let mut prevented = 0;
    for operations in begun..io.operations() {
        let again = RecordingIo::new(&io.crash(operations, 0));
        let db = open(&again, &tiny(Durability::Group)).expect("it opens");
        let table = db.table("t").expect("it is there");
        if table.index("late").is_ok() {
            continue;
        }
        prevented += 1;
        // Another row has the key now, and one has none any more.
        set(&db, &table, 0, "another");
        delete(&db, &table, 4);
        db.create_index("t", IndexSchema::ordered("late", &["v"])).expect("nothing fails");
        let state = dump(&db).unwrap_or_else(|error| panic!("operation {operations}: {error}"));
        settle(&db)
            .and_then(|()| check_places(&db, &state))
            .unwrap_or_else(|error| panic!("operation {operations}: {error}"));
    }
    assert!(prevented > 5, "only {prevented} crashes came before the index");
}

#[test]
fn a_unique_index_is_refused_for_rows_with_one_key_wherever_they_are() {
    // Rows 0 to 10 are cold, but for 1, 2 and 5.
    for (one, two) in [(0, 3), (0, 9), (3, 13), (11, 13), (8, 5)] {
        let (io, db, table) = mostly_cold(Durability::Group);
        let text = format!("{one:03}").repeat(80);
        let two_was = format!("{two:03}").repeat(80);
        set(&db, &table, two, &text);
        migrate(&db, &table, two..two + 1);
        let (begun, before) = (io.operations(), dump(&db).expect("it is whole"));
        let unique = || db.create_index("t", IndexSchema::hash("late", &["v"]).unique()).map(drop);
        let outcome = unique();
        assert!(matches!(outcome, Err(Error::DuplicateKey { .. })), "{one} and {two}: {outcome:?}");
        assert_eq!(dump(&db).expect("it is whole"), before);
        every_crash_leaves(&io, begun, &[before]).unwrap_or_else(|error| panic!("{one} and {two}: {error}"));
        set(&db, &table, two, &two_was);
        unique().unwrap_or_else(|error| panic!("{one} and {two}: {error}"));
        let row = [Value::Int8(50), Value::from(text.as_str()), Value::Int8(1)];
        let insert =
            db.transaction(TransactionOptions::new(), async |tx| tx.insert_values(&table, &row).await);
        let outcome = drive(&db, insert).map(drop);
        assert!(matches!(outcome, Err(Error::DuplicateKey { .. })), "{outcome:?}");
        life_goes_on(&db).unwrap_or_else(|error| panic!("{one} and {two}: {error}"));
    }
}
