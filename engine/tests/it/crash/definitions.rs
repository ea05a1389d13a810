//! Definitions that change while others commit, and a crash anywhere: what is recovered is the old definition or the
//! new one, with whole transactions. Each rule that sees to it is switched off once, and must be missed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use thermocline_base::io::{MemoryIo, RecordingIo};
use thermocline_base::sync::model::between_steps;
use thermocline_engine::mutation::{Rule, switch_off};
use thermocline_engine::row::{Column, KeyBuf, Type, Value};
use thermocline_engine::{Database, Durability, IndexSchema, Result, Table, TableSchema, TransactionOptions};

use super::{drive, open, poll, recover, tiny};

type Work = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

fn schema(name: &str) -> TableSchema {
    TableSchema::new(name)
        .column(Column::new("id", Type::Int8))
        .column(Column::new("v", Type::Text))
        .primary_key(IndexSchema::hash("key", &["id"]))
}

fn fresh() -> (RecordingIo, Database) {
    let io = RecordingIo::new(&MemoryIo::new());
    let db = open(&io, &tiny(Durability::Group)).expect("a new database");
    (io, db)
}

fn row(id: i64, text: &str) -> [Value; 2] {
    [Value::Int8(id), Value::from(text)]
}

fn fill(db: &Database, table: &Table) {
    let rows = db.transaction(TransactionOptions::new(), async |tx| {
        for id in 0..12 {
            tx.insert_values(table, &row(id, "old")).await?;
        }
        Ok(())
    });
    drive(db, rows).expect("the rows are new");
}

/// Runs `work`, and polls what `start` makes before its step `at`, once. Had it so many steps? And was it told the end?
fn at_step(
    at: usize,
    start: impl Fn() -> Option<Work> + 'static,
    work: impl FnOnce() -> Result<()>,
) -> (bool, Option<Work>) {
    let steps = Rc::new(Cell::new(0_usize));
    let waiting: Rc<RefCell<Option<Work>>> = Rc::default();
    let step = {
        let (steps, waiting) = (Rc::clone(&steps), Rc::clone(&waiting));
        move || {
            if steps.replace(steps.get() + 1) == at
                && let Some(mut other) = start()
            {
                // On another thread: one thread has one reservation in the log at a time, and the step may lie inside of one.
                match std::thread::scope(|scope| {
                    scope.spawn(|| poll(other.as_mut())).join().expect("no panic")
                }) {
                    Poll::Ready(outcome) => outcome.expect("nobody is in the way"),
                    Poll::Pending => *waiting.borrow_mut() = Some(other),
                }
            }
        }
    };
    between_steps(step, work).expect("nothing fails");
    (steps.get() > at, waiting.take())
}

/// A table is found, and a row inserted into it, before the given step of its creation: whatever a crash leaves then
/// opens.
fn a_table_is_used_early(at: usize) -> std::result::Result<bool, String> {
    let (io, db) = fresh();
    let begun = io.operations();
    let start = {
        // Begun before: the step may lie where the pool of sessions is locked.
        let (db, begun) = (db.clone(), RefCell::new(db.begin(TransactionOptions::new()).ok()));
        move || {
            let (table, mut tx) = (db.table("t").ok()?, begun.take()?);
            let work = async move {
                tx.insert_values(&table, &row(1, "early")).await?;
                tx.commit().await
            };
            Some(Box::pin(work) as Work)
        }
    };
    let (there, waiting) = at_step(at, start, || db.create_table(schema("t")).map(drop));
    let used = waiting.is_some();
    if let Some(work) = waiting {
        drive(&db, work).expect("the table is there");
    }
    db.step_flush().expect("nothing fails");
    for operations in begun..=io.operations() {
        for seed in [0, 1, 5] {
            let (state, ..) =
                recover(&io.crash(operations, seed), &tiny(Durability::Group)).map_err(|error| {
                    format!("used before step {at}, crash after operation {operations}: {error}")
                })?;
            if operations == io.operations() && used && state.0["t"].rows.len() != 1 {
                return Err(format!("used before step {at}: the row is gone"));
            }
        }
    }
    Ok(there)
}

fn tables_are_used_early() -> std::result::Result<(), String> {
    let mut at = 0;
    while a_table_is_used_early(at)? {
        at += 1;
    }
    assert!(at > 20, "only {at} steps");
    Ok(())
}

#[test]
fn a_table_is_durable_before_its_first_row() {
    tables_are_used_early().unwrap_or_else(|error| panic!("{error}"));
}

/// A change of the definition of `a`.
type Change = fn(&Database) -> Result<()>;

const CHANGES: [Change; 6] = [
    |db| db.add_column("a", Column::new("extra", Type::Int8).default(7_i64)),
    |db| db.create_index("a", IndexSchema::ordered("by_v", &["v"])).map(drop),
    |db| db.rename_table("a", "c"),
    |db| db.truncate_table("a"),
    |db| db.create_table(schema("d")).map(drop),
    |db| db.drop_table("a"),
];

/// A transaction that changes both tables has committed and waits for the disk when `a` is changed; another one that
/// changes `b` commits in the middle of the change.
fn commits_around(change: Change, at: usize) -> std::result::Result<bool, String> {
    let (io, db) = fresh();
    let (a, b) = (db.create_table(schema("a")), db.create_table(schema("b")));
    let (a, b) = (a.expect("a table"), b.expect("a table"));
    fill(&db, &a);
    fill(&db, &b);
    db.checkpoint().expect("nothing fails");
    let begun = io.operations();
    let set = |table: &Table, id: i64, db: &Database| {
        let (tx, table) = (db.begin(TransactionOptions::new()), table.clone());
        async move {
            let mut tx = tx?;
            tx.update(&table.primary(), &KeyBuf::new().i64(id), |row| Ok(row.set_str(1, "new")?)).await?;
            Ok::<_, thermocline_engine::Error>(tx)
        }
    };
    let mut both = drive(&db, set(&a, 3, &db)).expect("an update");
    let key = KeyBuf::new().i64(3);
    let primary = b.primary();
    drive(&db, both.update(&primary, &key, |row| Ok(row.set_str(1, "new")?))).expect("an update");
    let mut both: Work = Box::pin(both.commit());
    assert!(poll(both.as_mut()).is_pending(), "it waits for the disk");
    let start = {
        // Begun before: the step may lie where the pool of sessions is locked.
        let set = RefCell::new(Some(set(&b, 5, &db)));
        move || {
            let set = set.take()?;
            Some(Box::pin(async move { set.await?.commit().await }) as Work)
        }
    };
    let (there, waiting) = at_step(at, start, || change(&db));
    drive(&db, both).expect("a commit");
    if let Some(work) = waiting {
        drive(&db, work).expect("a commit");
    }
    let mut seen = BTreeSet::new();
    for operations in begun..=io.operations() {
        for seed in [0, 1, 5] {
            let (state, ..) = recover(&io.crash(operations, seed), &tiny(Durability::Group))
                .map_err(|error| format!("crash after operation {operations}: {error}"))?;
            let new = |table: &str, id: i64| {
                state.0.get(table).and_then(|table| table.rows.get(&id)).map(|row| row.contains("new"))
            };
            let whole = match (new("a", 3).or(new("c", 3)), new("b", 3)) {
                (Some(a), Some(b)) => a == b,
                // The table is empty or gone: a change that came after the commit, which was durable before it.
                (None, b) => b == Some(true),
                (Some(_), None) => false,
            };
            if !whole {
                return Err(format!("half of a transaction after operation {operations} (choice {seed})"));
            }
            seen.insert((state.0.keys().cloned().collect::<Vec<_>>(), new("b", 5)));
            if operations == io.operations() && there && new("b", 5) != Some(true) {
                return Err("a commit in the middle of the change is gone".to_owned());
            }
        }
    }
    Ok(there)
}

/// Every `stride`-th step of every change, or of the first.
fn commits_around_changes(changes: &[Change], stride: usize) -> std::result::Result<(), String> {
    for (number, &change) in changes.iter().enumerate() {
        let mut at = number % stride;
        while commits_around(change, at).map_err(|error| format!("change {number}, step {at}: {error}"))? {
            at += stride;
        }
        assert!(at > 20, "only {at} steps");
    }
    Ok(())
}

#[test]
fn commits_beside_a_change_are_whole() {
    commits_around_changes(&CHANGES, 31).unwrap_or_else(|error| panic!("{error}"));
}

/// A transaction that changes both tables and one that drops `a` wait for the disk when a manifest is written for another reason:
/// the first row is about to leave memory.
fn a_manifest_beside_a_drop() -> std::result::Result<(), String> {
    let (io, db) = fresh();
    let (a, b) = (db.create_table(schema("a")), db.create_table(schema("b")));
    let (a, b) = (a.expect("a table"), b.expect("a table"));
    fill(&db, &a);
    fill(&db, &b);
    db.checkpoint().expect("nothing fails");
    let begun = io.operations();
    let (one, other, tables) = (db.clone(), db.clone(), [a.clone(), b.clone()]);
    let mut both: Work = Box::pin(async move {
        let mut tx = one.begin(TransactionOptions::new())?;
        for table in &tables {
            tx.update(&table.primary(), &KeyBuf::new().i64(3), |row| Ok(row.set_str(1, "new")?)).await?;
        }
        tx.commit().await
    });
    let mut dropping: Work = Box::pin(async move {
        let mut tx = other.begin(TransactionOptions::new())?;
        tx.drop_table("a").await?;
        tx.commit().await
    });
    assert!(poll(both.as_mut()).is_pending(), "it waits for the disk");
    assert!(poll(dropping.as_mut()).is_pending(), "it waits for the disk");
    let steps = db.cold_steps();
    drive(&db, steps.migrate_batch(&b, |_| true)).expect("rows leave memory");
    drive(&db, both).expect("a commit");
    drive(&db, dropping).expect("a commit");
    for operations in begun..=io.operations() {
        for seed in [0, 1, 5] {
            let (state, ..) = recover(&io.crash(operations, seed), &tiny(Durability::Group))
                .map_err(|error| format!("crash after operation {operations}: {error}"))?;
            let is_new = state.0["b"].rows[&3].contains("new");
            let whole = match state.0.get("a") {
                Some(a) => a.rows[&3].contains("new") == is_new,
                None => is_new,
            };
            if !whole {
                return Err(format!("a drop has overtaken the log (operation {operations}, choice {seed})"));
            }
        }
    }
    Ok(())
}

#[test]
fn a_definition_does_not_overtake_the_log() {
    a_manifest_beside_a_drop().unwrap_or_else(|error| panic!("{error}"));
}

/// Does `proof` fail once the rule is off?
fn is_missed(rule: Rule, proof: impl FnOnce() -> std::result::Result<(), String>) {
    let _off = switch_off(rule);
    let outcome = catch_unwind(AssertUnwindSafe(proof));
    assert!(!matches!(outcome, Ok(Ok(()))), "nobody misses {rule:?}");
}

#[test]
fn a_table_that_is_used_before_it_is_durable_is_caught() {
    is_missed(Rule::DefinedBeforeFilled, tables_are_used_early);
}

#[test]
fn a_definition_that_overtakes_the_log_is_caught() {
    is_missed(Rule::DefinitionAfterLog, a_manifest_beside_a_drop);
}
