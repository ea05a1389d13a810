//! Devices that fail, and disks that fill up, at every operation of a short run: what is answered is typed, reading
//! goes on, and whatever is recovered afterwards has everything that was acknowledged.

use thermocline_base::io::{Action, Fault, FaultKind};
use thermocline_engine::{Database, Durability, Error, Options};

use super::workload::Run;
use super::{dump, open, recover, tiny};

/// Steps of each run.
const STEPS: usize = 30;

/// Which rows a run has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rows {
    /// In memory only.
    Hot,
    /// That come and go.
    Cold,
    /// That freeze and thaw.
    Frozen,
}

/// Runs into one fault; `Ok(false)`: it never came.
pub(super) fn run_into(fault: Fault, options: &Options, seed: u64, rows: Rows) -> Result<bool, String> {
    let mut run = Run::new(seed, options.clone());
    run = match rows {
        Rows::Hot => run,
        Rows::Cold => run.cold(),
        Rows::Frozen => run.freezes(),
    };
    if rows != Rows::Hot {
        run.steps(20);
    }
    run.tolerate();
    run.steps(5);
    run.io.inject(fault);
    // Files are given room seldom, and for long.
    run.steps(if fault.on == Action::Allocate { 3 * STEPS } else { STEPS });
    let read = dump(&run.db()).map_err(|error| format!("it cannot be read meanwhile: {error}"))?;
    if &read != run.state() {
        return Err(format!("it reads wrongly meanwhile: {}", run.state().difference(&read)));
    }
    let lasting = run.errors.iter().any(|error| matches!(error, Error::LogFailed { .. }));
    run.io.heal();
    if !lasting {
        // Space has returned, or the fault was one of those that are over when they are over.
        run.steps(5);
        run.flush();
        let new = run.errors.iter().any(|error| matches!(error, Error::LogFailed { .. }));
        if new {
            return Err(format!("the log failed after the fault was over: {:?}", run.errors));
        }
    }
    let end = run.io.operations();
    let right = |state: &super::State| run.allowed(end).iter().any(|event| &event.state == state);
    for seed in [0, 1, 5, 6] {
        let (state, ..) = recover(&run.io.crash(end, seed), options)
            .map_err(|error| format!("after a crash (choice {seed}): {error}"))?;
        if !right(&state) {
            let oldest = &run.allowed(end)[0].state;
            return Err(format!("after a crash (choice {seed}): {}", oldest.difference(&state)));
        }
    }
    // Closing may tell of the fault once more.
    let Run { io, .. } = &run;
    let io = io.clone();
    let (newest, errors) = (run.state().clone(), run.errors.len());
    let allowed: Vec<_> = run.allowed(end).iter().map(|event| event.state.clone()).collect();
    drop(run);
    let db = open(&io, options).map_err(|error| format!("it does not open afterwards: {error}"))?;
    let state = dump(&db)?;
    let whole = if lasting { allowed.contains(&state) } else { state == newest };
    if !whole {
        return Err("the state after closing and opening is wrong".to_owned());
    }
    Ok(errors > 0)
}

/// Every place of a run where `action` can fail, `stride` apart.
pub(super) fn sweep(action: Action, kind: FaultKind, times: u64, stride: u64) -> Result<u64, String> {
    sweep_with(action, kind, times, stride, Rows::Hot)
}

/// The same, with such rows.
pub(super) fn sweep_with(
    action: Action,
    kind: FaultKind,
    times: u64,
    stride: u64,
    rows: Rows,
) -> Result<u64, String> {
    let (mut skip, mut quiet, mut faults) = (0, 0, 0);
    // Some faults nobody is told of: a file that was not removed goes later. The end is where many are not.
    while quiet < 15 {
        let fault = Fault { on: action, skip, times, kind };
        let durability = if skip % 2 == 0 { Durability::Group } else { Durability::Async };
        let hit = run_into(fault, &tiny(durability), 7 + skip % 5, rows)
            .map_err(|error| format!("{fault:?} with {durability}: {error}"))?;
        quiet = if hit { 0 } else { quiet + 1 };
        faults += u64::from(hit);
        skip += stride;
    }
    Ok(faults)
}

fn every(action: Action, kind: FaultKind, times: u64, stride: u64, at_least: u64) {
    let faults = sweep(action, kind, times, stride).unwrap_or_else(|error| panic!("{error}"));
    assert!(faults >= at_least, "only {faults} faults of {action:?} were noticed");
}

#[test]
fn broken_writes_and_syncs() {
    for action in [Action::Write, Action::Sync] {
        every(action, FaultKind::Broken, 1, 1, 10);
        every(action, FaultKind::Broken, u64::MAX, 3, 4);
    }
}

#[test]
fn broken_names_and_lengths() {
    for action in [Action::SyncDir, Action::Rename, Action::Open, Action::Allocate, Action::Resize] {
        every(action, FaultKind::Broken, 1, 1, 2);
    }
    every(Action::Remove, FaultKind::Broken, 1, 1, 0);
}

#[test]
fn full_disks() {
    for action in [Action::Write, Action::Open, Action::Allocate] {
        every(action, FaultKind::Full, 1, 1, 0);
        every(action, FaultKind::Full, 1_000_000, 2, 1);
    }
}

/// A fault while the database is opened is told, and the next opening finds everything.
#[test]
fn faults_while_opening() {
    let options = tiny(Durability::Group);
    let mut run = Run::new(3, options.clone());
    run.steps(60);
    run.flush();
    let image = run.io.crash(run.io.operations(), 0);
    let actions = [
        Action::Read,
        Action::Write,
        Action::Sync,
        Action::SyncDir,
        Action::Rename,
        Action::Open,
        Action::Allocate,
    ];
    for action in actions {
        for kind in [FaultKind::Broken, FaultKind::Full] {
            let mut opened = false;
            let mut skip = 0;
            while !opened {
                let io = thermocline_base::io::RecordingIo::new(&image);
                io.inject(Fault { on: action, skip, times: 1, kind });
                match open(&io, &options) {
                    Ok(db) => {
                        opened = true;
                        check(&db, &run, action);
                    }
                    Err(Error::Io(_) | Error::LogFailed { .. } | Error::DiskFull { .. }) => {}
                    Err(error) => panic!("{action:?}, {kind:?}: {error}"),
                }
                for seed in [0, 1] {
                    let (state, ..) =
                        recover(&io.crash(io.operations(), seed), &options).expect("it recovers");
                    assert!(state == *run.state(), "{action:?}: {}", run.state().difference(&state));
                }
                skip += 1;
            }
        }
    }
}

fn check(db: &Database, run: &Run, action: Action) {
    let state = dump(db).expect("a whole database");
    assert!(state == *run.state(), "{action:?}: {}", run.state().difference(&state));
}

/// After the log has failed, reading goes on. Who has seen only what is on disk is told so; who has seen a commit that no
/// restart will find, or may have, is told of the failure.
#[test]
fn readers_after_a_failure_are_told_what_they_can_rely_on() {
    use thermocline_base::io::{MemoryIo, RecordingIo};
    use thermocline_engine::row::{Column, KeyBuf, Type, Value};
    use thermocline_engine::{IndexSchema, Table, TableSchema, Transaction, TransactionOptions};

    let io = RecordingIo::new(&MemoryIo::new());
    let db = open(&io, &tiny(Durability::Group)).expect("a new database");
    let make = |name: &str| {
        let schema = TableSchema::new(name)
            .column(Column::new("id", Type::Int8))
            .column(Column::new("v", Type::Int8))
            .primary_key(IndexSchema::hash("key", &["id"]));
        let table = db.create_table(schema).expect("a table");
        let rows = db.transaction(TransactionOptions::new(), async |tx| {
            for id in 1..4 {
                tx.insert_values(&table, &[Value::Int8(id), Value::Int8(0)]).await?;
            }
            Ok(())
        });
        super::drive(&db, rows).expect("the rows are new");
        table
    };
    let (changed, untouched) = (make("changed"), make("untouched"));
    let begin = || db.begin(TransactionOptions::new()).expect("a transaction");
    let read = |tx: &mut Transaction, table: &Table, id: i64| {
        let (layout, primary) = (table.layout(), table.primary());
        let found = super::drive(&db, tx.read(&primary, &KeyBuf::new().i64(id), |row| layout.i64(row, 1)));
        found.expect("reading goes on").flatten()
    };
    let commit = |tx: Transaction| super::try_drive(&db, tx.commit()).expect("it is told");

    let mut before = begin();
    assert_eq!(read(&mut before, &changed, 1), Some(0));
    io.inject(Fault { on: Action::Sync, skip: 0, times: u64::MAX, kind: FaultKind::Broken });
    let mut writer = begin();
    super::drive(&db, async {
        writer.update(&changed.primary(), &KeyBuf::new().i64(1), |row| Ok(row.set_i64(1, 9)?)).await?;
        writer.delete(&changed.primary(), &KeyBuf::new().i64(2)).await
    })
    .expect("memory does not fail");
    let mut written = Box::pin(writer.commit());
    assert!(super::poll(written.as_mut()).is_pending(), "it waits for the disk");
    let mut between = begin();
    assert_eq!(read(&mut between, &changed, 1), Some(9), "a commit is seen before it is on disk");
    let failed = |outcome| assert!(matches!(outcome, Err(Error::LogFailed { .. })), "{outcome:?}");
    failed(super::try_drive(&db, written).expect("it is told"));
    io.heal();
    commit(before).expect("it began before the commit that is lost");
    failed(commit(between));

    for (table, id, value, safe) in [
        (&changed, 3, Some(0), true),
        (&changed, 1, Some(9), false),
        (&changed, 2, None, false),
        (&changed, 4, None, false),
        (&untouched, 1, Some(0), true),
        (&untouched, 4, None, true),
    ] {
        let mut tx = begin();
        assert_eq!(read(&mut tx, table, id), value);
        if safe { commit(tx).expect("it has seen what is on disk") } else { failed(commit(tx)) }
    }
    for (table, rows, safe) in [(&changed, 2, false), (&untouched, 3, true)] {
        let mut tx = begin();
        let mut found = 0;
        let scan = tx.scan_table(table, |_| {
            found += 1;
            std::ops::ControlFlow::Continue(())
        });
        super::drive(&db, scan).expect("reading goes on");
        assert_eq!(found, rows);
        if safe { commit(tx).expect("it has seen what is on disk") } else { failed(commit(tx)) }
    }
    // Writing does not, and an empty transaction has nothing to lose.
    let mut tx = begin();
    super::drive(&db, tx.insert_values(&untouched, &[Value::Int8(9), Value::Int8(0)])).expect("an insert");
    failed(commit(tx));
    commit(begin()).expect("it has seen nothing");
}
