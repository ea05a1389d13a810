//! The interleavings of the design that end in a crash, by their numbers. With the feature `model`, each rule that
//! forbids one is switched off once, and must be missed.

use std::pin::Pin;

use thermocline_base::io::{MemoryIo, RecordingIo};
use thermocline_engine::row::{Column, KeyBuf, Type, Value};
use thermocline_engine::{
    Database, Durability, IndexSchema, Table, TableSchema, Transaction, TransactionOptions,
};

use super::{drive, open, poll, recover, tiny};

fn numbered(db: &Database, name: &str) -> Table {
    let schema = TableSchema::new(name)
        .column(Column::new("id", Type::Int8))
        .column(Column::new("v", Type::Text))
        .primary_key(IndexSchema::hash("key", &["id"]));
    db.create_table(schema).expect("a table")
}

fn put(db: &Database, tx: &mut Transaction, table: &Table, id: i64, text: &str) {
    drive(db, tx.insert_values(table, &[Value::Int8(id), Value::from(text)])).expect("an insert");
}

#[cfg(feature = "model")]
fn set(db: &Database, tx: &mut Transaction, table: &Table, id: i64, text: &str) {
    let key = KeyBuf::new().i64(id);
    let primary = table.primary();
    let update = tx.update(&primary, &key, |row| Ok(row.set_str(1, text)?));
    drive(db, update).expect("an update").expect("the row is there");
}

fn begin(db: &Database) -> Transaction {
    db.begin(TransactionOptions::new()).expect("a transaction")
}

type Commit = Pin<Box<dyn Future<Output = thermocline_engine::Result<()>>>>;

fn fresh(durability: Durability) -> (RecordingIo, Database) {
    let io = RecordingIo::new(&MemoryIo::new());
    let db = open(&io, &tiny(durability)).expect("a new database");
    (io, db)
}

/// 2: a reader has seen what its writer has published but not yet made durable, be it a row or that there is none.
fn a_reader_is_acknowledged_after_what_it_saw() -> Result<(), String> {
    for absence in [false, true] {
        let (io, db) = fresh(Durability::Group);
        let table = numbered(&db, "t");
        let key = KeyBuf::new().i64(1);
        if absence {
            let mut tx = begin(&db);
            put(&db, &mut tx, &table, 1, "there");
            drive(&db, tx.commit()).expect("a commit");
        }
        let mut writer = begin(&db);
        if absence {
            assert!(drive(&db, writer.delete(&table.primary(), &key)).expect("a delete"));
        } else {
            put(&db, &mut writer, &table, 1, "there");
        }
        let mut commit: Commit = Box::pin(writer.commit());
        let early = poll(commit.as_mut()).is_ready();
        let mut reader = begin(&db);
        let seen = drive(&db, reader.read(&table.primary(), &key, |_| ())).expect("a read").is_some();
        assert_eq!(seen, !absence, "the writer has published");
        let mut told: Commit = Box::pin(reader.commit());
        if early || poll(told.as_mut()).is_ready() {
            let (state, ..) = recover(&io.crash(io.operations(), 0), &tiny(Durability::Group))?;
            if state.0["t"].rows.is_empty() == seen {
                return Err("somebody was told what the crash has taken back".to_owned());
            }
        }
        db.step_flush().expect("a flush");
        assert!(poll(told.as_mut()).is_ready() && (early || poll(commit.as_mut()).is_ready()));
    }
    Ok(())
}

/// What runs while another transaction commits between its steps.
#[cfg(feature = "model")]
#[derive(Clone, Copy, Debug)]
enum Work {
    Checkpoint,
    /// Into another directory.
    Backup,
}

/// 27 and 28: a transaction that changes two tables commits as a whole before the given step of a checkpoint or backup.
/// Returns whether the work had so many steps.
#[cfg(feature = "model")]
fn a_commit_between_steps(work: Work, at: usize) -> Result<bool, String> {
    use super::{State, dump};
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;
    use std::task::Poll;
    use thermocline_base::sync::model::between_steps;

    let options = tiny(Durability::Group);
    let (io, db) = fresh(Durability::Group);
    let (first, second) = (numbered(&db, "a"), numbered(&db, "b"));
    let mut tx = begin(&db);
    for id in 0..12 {
        put(&db, &mut tx, &first, id, "old");
        put(&db, &mut tx, &second, id, "old");
    }
    drive(&db, tx.commit()).expect("a commit");
    let before = dump(&db)?;
    let mut tx = begin(&db);
    set(&db, &mut tx, &first, 3, "new");
    set(&db, &mut tx, &second, 10, "new");
    put(&db, &mut tx, &second, 20, "new");
    assert!(drive(&db, tx.delete(&first.primary(), &KeyBuf::new().i64(9))).expect("a delete"));
    let commit: Rc<RefCell<Commit>> = Rc::new(RefCell::new(Box::pin(tx.commit())));
    let (steps, acknowledged) = (Rc::new(Cell::new(0_usize)), Rc::new(Cell::new(false)));
    let step = {
        let (commit, steps, acknowledged) = (Rc::clone(&commit), Rc::clone(&steps), Rc::clone(&acknowledged));
        move || {
            if steps.replace(steps.get() + 1) == at
                && let Poll::Ready(outcome) = poll(commit.borrow_mut().as_mut())
            {
                outcome.expect("a commit");
                acknowledged.set(true);
            }
        }
    };
    let copy = std::path::Path::new("/copy");
    between_steps(step, || match work {
        Work::Checkpoint => db.checkpoint(),
        Work::Backup => db.backup(copy),
    })
    .map_err(|error| format!("{work:?}: {error}"))?;
    if steps.get() <= at {
        return Ok(false);
    }
    let after = dump(&db)?;
    let is = |what: &str, state: &State, must: bool| {
        if *state == after || !must && *state == before {
            return Ok(());
        }
        Err(format!("{what}, with the commit before step {at}: {}", after.difference(state)))
    };
    for seed in 0..3 {
        let (state, ..) = recover(&io.crash(io.operations(), seed), &options)?;
        is("the crash after it", &state, acknowledged.get())?;
    }
    if matches!(work, Work::Backup) {
        let backup =
            Database::open_with(copy, options.clone(), std::sync::Arc::new(io.memory().copy()), false)
                .map_err(|error| format!("the backup with the commit before step {at}: {error}"))?;
        is("the backup", &dump(&backup)?, false)?;
    }
    db.step_flush().expect("a flush");
    if !acknowledged.get() && !matches!(poll(commit.borrow_mut().as_mut()), Poll::Ready(Ok(()))) {
        return Err(format!("no acknowledgement, with the commit before step {at}"));
    }
    for seed in 0..3 {
        let (state, ..) = recover(&io.crash(io.operations(), seed), &options)?;
        is("the crash after the acknowledgement", &state, true)?;
    }
    Ok(true)
}

/// Every `stride`-th step, from `first` on.
#[cfg(feature = "model")]
fn commits_between_steps(work: Work, stride: usize) -> Result<usize, String> {
    let mut at = 0;
    while a_commit_between_steps(work, at)? {
        at += stride;
    }
    Ok(at)
}

#[test]
fn what_readers_are_told_survives() {
    a_reader_is_acknowledged_after_what_it_saw().unwrap_or_else(|error| panic!("{error}"));
}

#[cfg(feature = "model")]
mod mutations {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use thermocline_base::io::{Action, FaultKind};
    use thermocline_engine::mutation::{Rule, switch_off};

    use super::super::faults::sweep;
    use super::super::images::check_run;
    use super::super::workload::Run;
    use super::*;

    /// Does `proof` fail once the rule is off?
    fn is_missed(
        rule: impl thermocline_base::mutation::Switchable,
        proof: impl FnOnce() -> Result<(), String>,
    ) {
        let _off = switch_off(rule);
        let outcome = catch_unwind(AssertUnwindSafe(proof));
        assert!(!matches!(outcome, Ok(Ok(()))), "nobody misses {rule:?}");
    }

    fn images() -> Result<(), String> {
        for seed in 0..8 {
            let mut run = Run::new(seed, tiny(Durability::Group));
            run.steps(120);
            let stride = run.io.operations() / 100 + 1;
            check_run(&run, stride, 5)?;
        }
        Ok(())
    }

    #[test]
    fn a_commit_before_every_step_of_a_checkpoint() {
        let steps = commits_between_steps(Work::Checkpoint, 1).unwrap_or_else(|error| panic!("{error}"));
        assert!(steps > 100, "a checkpoint has more than {steps} steps");
    }

    #[test]
    fn a_commit_before_every_step_of_a_backup() {
        let steps = commits_between_steps(Work::Backup, 1).unwrap_or_else(|error| panic!("{error}"));
        assert!(steps > 100, "a backup has more than {steps} steps");
    }

    #[test]
    fn acknowledging_before_the_disk_is_missed() {
        is_missed(Rule::AckAfterDurable, a_reader_is_acknowledged_after_what_it_saw);
        is_missed(Rule::AckAfterDurable, images);
    }

    #[test]
    fn telling_a_reader_too_early_is_missed() {
        is_missed(Rule::ReadOnlyAckAfterDurable, a_reader_is_acknowledged_after_what_it_saw);
    }

    #[test]
    fn a_checkpoint_ahead_of_the_log_is_missed() {
        is_missed(Rule::CheckpointAfterLog, || commits_between_steps(Work::Checkpoint, 1).map(drop));
    }

    #[test]
    fn a_replay_position_noted_late_is_missed() {
        is_missed(Rule::ReplayPositionBeforeTimestamp, || {
            commits_between_steps(Work::Checkpoint, 1).map(drop)
        });
    }

    #[test]
    fn records_of_a_former_life_are_missed() {
        is_missed(thermocline_base::mutation::Rule::ChecksumBindsPosition, images);
    }

    #[test]
    fn repeating_a_failed_sync_is_missed() {
        is_missed(Rule::SyncFailureIsFinal, || sweep(Action::Sync, FaultKind::Broken, 1, 1).map(drop));
    }
}
