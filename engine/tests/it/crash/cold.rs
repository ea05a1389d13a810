//! Crashes while rows migrate, are promoted, are changed in the cold store and cleaned away from it: whatever was
//! acknowledged is there, once, in memory or in the store; what was discarded or removed stays away.
//!
//! The store of pages has no threads here: the run does its steps, and one recorder has its writes beside those of log
//! and checkpoints.

use std::path::Path;
use std::sync::Arc;

use thermocline_base::depth;
use thermocline_base::io::{File, Io, LockGuard, MemoryIo, OpenMode, RecordingIo, Result as IoResult};
use thermocline_base::sync::Mutex;
use thermocline_engine::row::{Column, KeyBuf, Type, Value};
use thermocline_engine::{
    ColdStoreKind, Database, Durability, Error, IndexSchema, Table, TableSchema, TransactionOptions,
};

use super::images::{Sample, check_short_run};
use super::workload::Run;
use super::{State, check_places, drive, dump, open, poll, recover, settle, tiny};

fn run(seed: u64, durability: Durability, steps: usize) -> Run {
    run_over(ColdStoreKind::Pages, seed, durability, steps)
}

fn run_over(store: ColdStoreKind, seed: u64, durability: Durability, steps: usize) -> Run {
    let mut run = Run::new(seed, tiny(durability).with_cold_store(store)).cold();
    run.steps(steps);
    run
}

fn sample(store: ColdStoreKind, durability: Durability) {
    let mut moved = 0;
    Sample::of_long_runs().check(
        &format!("{store}, {durability}"),
        |seed, steps| run_over(store, 500 + seed, durability, steps),
        |run| moved += run.moved.get(),
    );
    assert!(moved > 5, "only {moved} rows have moved");
}

fn prefixes(store: ColdStoreKind) {
    for (seed, durability) in
        [(1, Durability::Group), (2, Durability::Async), (3, Durability::Off), (4, Durability::Sync)]
    {
        check_short_run(&run_over(store, seed, durability, 60), &format!("{store}, {durability}"));
    }
}

#[test]
fn prefixes_of_a_short_run() {
    prefixes(ColdStoreKind::Pages);
}

#[test]
fn prefixes_of_a_short_run_with_slots() {
    prefixes(ColdStoreKind::Direct);
}

#[test]
fn samples_of_long_runs_with_slots() {
    for durability in [Durability::Sync, Durability::Group, Durability::Async, Durability::Off] {
        sample(ColdStoreKind::Direct, durability);
    }
}

#[test]
fn samples_of_long_runs_with_sync() {
    sample(ColdStoreKind::Pages, Durability::Sync);
}

#[test]
fn samples_of_long_runs_with_group() {
    sample(ColdStoreKind::Pages, Durability::Group);
}

#[test]
fn samples_of_long_runs_with_async() {
    sample(ColdStoreKind::Pages, Durability::Async);
}

#[test]
fn samples_of_long_runs_with_off() {
    sample(ColdStoreKind::Pages, Durability::Off);
}

type Hook = Box<dyn FnMut() + Send>;

/// A file system that calls a hook before a backup opens its next file, for as long as there is one.
#[derive(Clone)]
struct HookedIo {
    io: RecordingIo,
    hook: Arc<Mutex<Option<Hook>>>,
}

impl std::fmt::Debug for HookedIo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.io.fmt(f)
    }
}

impl HookedIo {
    fn call(&self, path: &Path) {
        if path.starts_with(copy_path()) {
            // It opens files itself.
            let hook = self.hook.lock().take();
            if let Some(mut hook) = hook {
                hook();
                *self.hook.lock() = Some(hook);
            }
        }
    }
}

impl Io for HookedIo {
    fn open(&self, path: &Path, mode: OpenMode) -> IoResult<Arc<dyn File>> {
        self.call(path);
        self.io.open(path, mode)
    }

    fn open_direct(&self, path: &Path, mode: OpenMode) -> IoResult<Arc<dyn File>> {
        self.call(path);
        self.io.open_direct(path, mode)
    }

    fn create_dir_all(&self, path: &Path) -> IoResult<()> {
        self.io.create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> IoResult<Vec<String>> {
        self.io.list(dir)
    }

    fn exists(&self, path: &Path) -> IoResult<bool> {
        self.io.exists(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> IoResult<()> {
        self.io.rename(from, to)
    }

    fn remove(&self, path: &Path) -> IoResult<()> {
        self.io.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> IoResult<()> {
        self.io.sync_dir(dir)
    }

    fn lock_exclusive(&self, path: &Path) -> IoResult<LockGuard> {
        self.io.lock_exclusive(path)
    }

    fn lock_shared(&self, path: &Path) -> IoResult<Option<LockGuard>> {
        self.io.lock_shared(path)
    }
}

fn copy_path() -> &'static Path {
    Path::new("/copy")
}

pub(super) fn texts(db: &Database) -> Table {
    let schema = TableSchema::new("t")
        .column(Column::new("id", Type::Int8))
        .column(Column::new("v", Type::Text))
        .primary_key(IndexSchema::ordered("key", &["id"]))
        .index(IndexSchema::ordered("by_v", &["v"]));
    db.create_table(schema).expect("a table")
}

pub(super) fn fill(db: &Database, table: &Table, ids: std::ops::Range<i64>) {
    fill_with(db, table, ids, 80);
}

/// The same with texts of so many times three characters.
fn fill_with(db: &Database, table: &Table, ids: std::ops::Range<i64>, times: usize) {
    let rows = db.transaction(TransactionOptions::new(), async |tx| {
        for id in ids.clone() {
            let text = format!("{id:03}").repeat(times);
            tx.insert_values(table, &[Value::Int8(id), Value::from(text.as_str())]).await?;
        }
        Ok(())
    });
    drive(db, rows).expect("the rows are new");
}

/// Lets the rows of these ids migrate.
pub(super) fn migrate(db: &Database, table: &Table, ids: std::ops::Range<i64>) -> usize {
    let layout = table.layout();
    let which = |row: &[u8]| layout.i64(row, 0).is_some_and(|id| ids.contains(&id));
    drive(db, db.cold_steps().migrate_batch(table, which)).expect("they move")
}

/// A backup during which, before its `at`-th file is opened, rows migrate, and others are deleted in the cold store and
/// cleaned away. `Ok(false)`: it has not so many files.
fn a_backup_with_moves_before_file(kind: ColdStoreKind, at: usize) -> Result<bool, String> {
    let options = tiny(Durability::Group).with_cold_store(kind);
    let recording = RecordingIo::new(&MemoryIo::new());
    let io = HookedIo { io: recording.clone(), hook: Arc::default() };
    let db = open(&io, &options).expect("a new database");
    let table = texts(&db);
    // A slot of a direct store holds a row and its secondary keys.
    fill_with(&db, &table, 0..30, 30);
    assert_eq!(migrate(&db, &table, 0..20), 20);
    while db.cold_steps().store_work() {}
    let before = dump(&db)?;
    let happened = Arc::new(Mutex::new(false));
    let hook = {
        let (db, table, happened) = (db.clone(), table.clone(), Arc::clone(&happened));
        let mut files = 0;
        move || {
            files += 1;
            if files != at + 1 {
                return;
            }
            *happened.lock() = true;
            migrate(&db, &table, 20..25);
            let delete = db.transaction(TransactionOptions::new(), async |tx| {
                for id in 0..5 {
                    assert!(tx.delete(&table.primary(), &KeyBuf::new().i64(id)).await?);
                }
                Ok(())
            });
            drive(&db, delete).expect("they are there");
            for _ in 0..3 {
                drive(&db, db.cold_steps().clean_once()).expect("it cleans");
                db.step_maintenance();
            }
        }
    };
    *io.hook.lock() = Some(Box::new(hook));
    db.backup(copy_path()).map_err(|error| format!("the backup: {error}"))?;
    *io.hook.lock() = None;
    let context = |what: &str, error: String| format!("moves before file {at}: {what}: {error}");
    let image = recording.memory().copy();
    let report = Database::verify_with(copy_path(), Arc::new(image.copy()))
        .map_err(|error| context("verify", error.to_string()))?;
    if !report.findings.is_empty() {
        return Err(context("verify", format!("{:?}", report.findings)));
    }
    let copy = Database::open_with(copy_path(), options, Arc::new(image), false)
        .map_err(|error| context("the copy", error.to_string()))?;
    let found = dump(&copy).map_err(|error| context("the copy", error))?;
    if found != before {
        return Err(context("the copy", before.difference(&found)));
    }
    settle(&copy).and_then(|()| check_places(&copy, &found)).map_err(|error| context("the copy", error))?;
    // The database itself cleans what it could not meanwhile.
    let state = dump(&db).map_err(|error| context("the database", error))?;
    settle(&db).and_then(|()| check_places(&db, &state)).map_err(|error| context("the database", error))?;
    let happened = *happened.lock();
    Ok(happened)
}

fn backups_with_moves(kind: ColdStoreKind) -> Result<usize, String> {
    let mut at = 0;
    while a_backup_with_moves_before_file(kind, at)? {
        at += 1;
    }
    Ok(at)
}

#[test]
fn a_backup_is_of_one_moment_whatever_moves() {
    for kind in [ColdStoreKind::Pages, ColdStoreKind::Direct] {
        let files = backups_with_moves(kind).unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert!(files > 5, "only {files} files");
    }
}

#[test]
fn backups_of_runs_are_whole() {
    for seed in 0..4 {
        let mut run = run(600 + seed, Durability::Group, 120);
        run.flush();
        run.drop_moves();
        run.db().backup(copy_path()).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let image = run.io.memory().copy();
        let report = Database::verify_with(copy_path(), Arc::new(image.copy())).expect("it can be verified");
        assert_eq!(report.findings, Vec::<String>::new(), "seed {seed}");
        let copy = Database::open_with(copy_path(), tiny(Durability::Group), Arc::new(image), false)
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let found = dump(&copy).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(found == *run.state(), "seed {seed}: {}", run.state().difference(&found));
        settle(&copy).and_then(|()| check_places(&copy, &found)).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// A crash at any operation of a backup leaves the database as it was, and a copy that is whole, or that says it is none: at each in
/// `.ci/deep`, in the gate at some 15, the last ones among them.
#[test]
fn a_crash_during_a_backup_harms_neither() {
    let mut run = run(700, Durability::Group, 90);
    run.flush();
    run.drop_moves();
    let begun = run.io.operations();
    run.db().backup(copy_path()).expect("a backup");
    let end = run.io.operations();
    let mut whole = 0;
    let stride = depth::either(((end - begun) / 12).max(1), 1);
    let last = end - depth::either(2, 0);
    for operations in (begun..last).step_by(stride).chain(last..=end) {
        for seed in [0, 1, operations as u64 * 7 + 2] {
            let context =
                || format!("crash after {operations} of {begun} to {end} operations, choice {seed}");
            let image = run.io.crash(operations, seed);
            let copy = image.copy();
            let (state, ..) =
                recover(&image, &run.options).unwrap_or_else(|error| panic!("{}: {error}", context()));
            assert!(state == *run.state(), "{}: {}", context(), run.state().difference(&state));
            if !copy.files().contains_key(&copy_path().join("thermocline.db")) {
                assert_ne!(operations, end, "a backup that has ended is there");
                let verified = Database::verify_with(copy_path(), Arc::new(copy));
                assert!(matches!(verified, Err(Error::NotADatabase { .. })), "{}: {verified:?}", context());
                continue;
            }
            whole += 1;
            let report =
                Database::verify_with(copy_path(), Arc::new(copy.copy())).expect("it can be verified");
            assert_eq!(report.findings, Vec::<String>::new(), "{}", context());
            let copy = Database::open_with(copy_path(), tiny(Durability::Group), Arc::new(copy), false)
                .unwrap_or_else(|error| panic!("{}: {error}", context()));
            let found = dump(&copy).unwrap_or_else(|error| panic!("{}: {error}", context()));
            assert!(found == *run.state(), "{}: {}", context(), run.state().difference(&found));
        }
    }
    assert!(end - begun > 20 && whole > 0, "{begun} to {end}, {whole} whole copies");
}

/// A database with 12 rows, of which `cold` are in the cold store, all of it durable.
fn settled(durability: Durability, cold: i64) -> (RecordingIo, Database, Table) {
    let io = RecordingIo::new(&MemoryIo::new());
    let db = open(&io, &tiny(durability)).expect("a new database");
    let table = texts(&db);
    fill(&db, &table, 0..12);
    db.step_flush().expect("nothing fails");
    migrate(&db, &table, 0..cold);
    settle(&db).expect("it cleans");
    db.step_flush().expect("nothing fails");
    (io, db, table)
}

/// Whatever a crash after `begun` operations or later leaves, is it one of these states?
fn crashes(io: &RecordingIo, begun: usize, durability: Durability, allowed: &[State]) -> Result<(), String> {
    for operations in begun..=io.operations() {
        for seed in [0, 1, 5] {
            let (state, ..) = recover(&io.crash(operations, seed), &tiny(durability))
                .map_err(|error| format!("crash after operation {operations}, choice {seed}: {error}"))?;
            if !allowed.contains(&state) {
                let what = allowed[0].difference(&state);
                return Err(format!("crash after operation {operations}, choice {seed}: {what}"));
            }
        }
    }
    Ok(())
}

/// 26: a row is updated in the cold store, and its record cleaned away before the log is on disk.
fn a_record_goes_after_its_end() -> Result<(), String> {
    let (io, db, table) = settled(Durability::Async, 6);
    let (begun, before) = (io.operations(), dump(&db)?);
    let update = db.transaction(TransactionOptions::new(), async |tx| {
        tx.update(&table.primary(), &KeyBuf::new().i64(2), |row| Ok(row.set_str(1, "new")?)).await.map(drop)
    });
    drive(&db, update).expect("it is there");
    let steps = db.cold_steps();
    let mut clean = Box::pin(steps.clean_once());
    // What it waits for gets to the disk step by step; a crash may come before each.
    for _ in 0..10 {
        if poll(clean.as_mut()).is_ready() {
            break;
        }
        db.step_flush().expect("nothing fails");
    }
    let after = dump(&db)?;
    crashes(&io, begun, Durability::Async, &[before, after])
}

#[test]
fn records_go_after_their_ends_are_durable() {
    a_record_goes_after_its_end().unwrap_or_else(|error| panic!("{error}"));
}

/// Rows of which some are cold go when their table is emptied, and stay away after whatever crash.
fn emptied_rows_stay_away() -> Result<(), String> {
    let (io, db, table) = settled(Durability::Group, 6);
    let (begun, before) = (io.operations(), dump(&db)?);
    db.truncate_table("t").map_err(|error| error.to_string())?;
    let emptied = dump(&db)?;
    if emptied != before.emptied() {
        return Err("rows of the emptied table are seen".into());
    }
    crashes(&io, begun, Durability::Group, &[before, emptied.clone()])?;
    // Keys that the store knows from before.
    let begun = io.operations();
    fill(&db, &table, 4..8);
    db.step_flush().map_err(|error| error.to_string())?;
    let filled = dump(&db)?;
    crashes(&io, begun, Durability::Group, &[emptied, filled])
}

#[test]
fn rows_of_an_emptied_table_stay_away() {
    emptied_rows_stay_away().unwrap_or_else(|error| panic!("{error}"));
}

#[cfg(feature = "model")]
mod mutations {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use std::rc::Rc;

    use thermocline_base::sync::model::between_steps;
    use thermocline_engine::mutation::{Rule, switch_off};

    use super::super::images::check_run;
    use super::*;

    /// 25: somebody commits, durably, before the given step of a migration that has its id, but whose notice is not
    /// committed yet. `Ok(false)`: it has not so many steps before that.
    fn a_commit_before_the_notice(at: usize) -> Result<bool, String> {
        let (io, db, table) = settled(Durability::Async, 3);
        let (begun, before) = (io.operations(), dump(&db)?);
        let (steps, done) = (Rc::new(Cell::new(0_usize)), Rc::new(Cell::new(false)));
        let step = {
            let (db, table, steps, done) = (db.clone(), table.clone(), Rc::clone(&steps), Rc::clone(&done));
            move || {
                if steps.replace(steps.get() + 1) == at && db.cold_steps().notices().0 == 0 {
                    fill(&db, &table, 100..101);
                    db.step_flush().expect("nothing fails");
                    done.set(true);
                }
            }
        };
        let (cold, of) = (db.cold_steps(), table.clone());
        let layout = table.layout();
        let mut moving = Box::pin(async move {
            cold.migrate_batch(&of, |row| layout.i64(row, 0).is_some_and(|id| (4..8).contains(&id))).await
        });
        assert!(between_steps(step, || poll(moving.as_mut())).is_pending(), "it waits for the disk");
        db.step_flush().expect("nothing fails");
        let after = dump(&db)?;
        crashes(&io, begun, Durability::Async, &[before, after])
            .map_err(|error| format!("commit before step {at}: {error}"))?;
        Ok(done.get())
    }

    fn commits_before_the_notice() -> Result<(), String> {
        let mut at = 0;
        while a_commit_before_the_notice(at)? {
            at += 7;
        }
        assert!(at > 20, "only {at} steps");
        Ok(())
    }

    #[test]
    fn a_commit_before_every_step_of_a_migration() {
        commits_before_the_notice().unwrap_or_else(|error| panic!("{error}"));
    }

    /// 27: rows move before the given step of a checkpoint. `Ok(false)`: it has not so many.
    fn a_move_between_steps_of_a_checkpoint(at: usize) -> Result<bool, String> {
        let (io, db, table) = settled(Durability::Group, 3);
        let before = dump(&db)?;
        let (cold, of) = (db.cold_steps(), table.clone());
        let layout = table.layout();
        let mut moving = Box::pin(async move {
            cold.migrate_batch(&of, |row| layout.i64(row, 0).is_some_and(|id| (4..8).contains(&id))).await
        });
        // The notice, then the records.
        for _ in 0..2 {
            assert!(poll(moving.as_mut()).is_pending(), "it waits for the disk");
            db.step_flush().expect("nothing fails");
        }
        assert_eq!((db.cold_steps().rows_in_memory(&table), db.cold_steps().undecided()), (9, 1));
        let begun = io.operations();
        let steps = Rc::new(Cell::new(0_usize));
        let step = {
            let steps = Rc::clone(&steps);
            move || {
                if steps.replace(steps.get() + 1) == at {
                    let _ = poll(moving.as_mut());
                }
            }
        };
        between_steps(step, || db.checkpoint()).map_err(|error| error.to_string())?;
        crashes(&io, begun, Durability::Group, &[before])
            .map_err(|error| format!("the move before step {at}: {error}"))?;
        Ok(steps.get() > at)
    }

    fn moves_between_steps(stride: usize) -> Result<(), String> {
        let mut at = 0;
        while a_move_between_steps_of_a_checkpoint(at)? {
            at += stride;
        }
        assert!(at > 20, "only {at} steps");
        Ok(())
    }

    #[test]
    fn a_move_before_steps_of_a_checkpoint() {
        moves_between_steps(9).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Does `proof` fail once the rule is off?
    fn is_missed(rule: Rule, proof: impl FnOnce() -> Result<(), String>) {
        let _off = switch_off(rule);
        let outcome = catch_unwind(AssertUnwindSafe(proof));
        match outcome {
            Ok(Ok(())) => panic!("nobody misses {rule:?}"),
            Ok(Err(error)) => eprintln!("{rule:?}: {}", error.chars().take(200).collect::<String>()),
            Err(_) => {}
        }
    }

    fn images(durability: Durability) -> Result<(), String> {
        for seed in 0..12 {
            let run = run(700 + seed, durability, 120);
            let stride = run.io.operations() / 60 + 1;
            check_run(&run, stride, 3)?;
        }
        Ok(())
    }

    #[test]
    fn writing_records_before_the_log_is_missed() {
        is_missed(Rule::ColdWriteAfterLog, commits_before_the_notice);
    }

    #[test]
    fn removing_records_before_the_log_is_missed() {
        is_missed(Rule::RemovalAfterLog, a_record_goes_after_its_end);
    }

    #[test]
    fn confirming_batches_before_the_log_is_missed() {
        is_missed(Rule::ConfirmAfterLog, || images(Durability::Async));
    }

    #[test]
    fn keeping_batches_that_have_not_moved_is_missed() {
        is_missed(Rule::RecoveryDiscards, || images(Durability::Group));
    }

    #[test]
    fn a_checkpoint_ahead_of_the_log_is_missed() {
        is_missed(Rule::CheckpointAfterLog, || moves_between_steps(9));
    }

    #[test]
    fn keeping_rows_of_a_volatile_session_is_missed() {
        is_missed(Rule::VolatileForgets, || images(Durability::Off));
    }

    #[test]
    fn rows_of_an_emptied_table_are_missed() {
        is_missed(Rule::EmptiedForGood, emptied_rows_stay_away);
    }

    #[test]
    fn a_backup_beside_moves_is_missed() {
        is_missed(Rule::BackupPausesMoves, || backups_with_moves(ColdStoreKind::Direct).map(drop));
    }

    #[test]
    fn a_backup_beside_removals_is_missed() {
        is_missed(Rule::BackupPausesRemovals, || backups_with_moves(ColdStoreKind::Direct).map(drop));
    }

    #[test]
    fn a_backup_of_a_later_store_is_missed() {
        is_missed(Rule::BackupPinsAtTheCut, || backups_with_moves(ColdStoreKind::Pages).map(drop));
    }
}

/// Commits rows that nobody writes to the disk, until one finds no room in the log.
fn fill_log(db: &Database, table: &Table, next: &mut i64) {
    loop {
        *next += 1;
        let id = *next;
        let mut insert = Box::pin(db.transaction(TransactionOptions::new(), async |tx| {
            tx.insert_values(table, &[Value::Int8(id), Value::from("x")]).await.map(drop)
        }));
        assert!(poll(insert.as_mut()).is_pending(), "nobody has written the log");
        // Who waits for room has not committed yet.
        let mut found = Box::pin(async {
            let mut tx = db.begin(TransactionOptions::new()).expect("it begins");
            tx.read(&table.primary(), &KeyBuf::new().i64(id), |_| ()).await.expect("a read").is_some()
        });
        if poll(found.as_mut()) == std::task::Poll::Ready(false) {
            return;
        }
    }
}

/// A move that waits for room in the log is in an operation, however long it takes: nobody aborts it for idleness.
#[test]
fn a_move_that_waits_for_the_log_is_not_idle() {
    let options = tiny(Durability::Group).with_idle_limit(Some(std::time::Duration::ZERO));
    let db = open(&RecordingIo::new(&MemoryIo::new()), &options).expect("a new database");
    let (table, steps, mut maintenance) = (texts(&db), db.cold_steps(), db.maintenance_steps());
    let mut look_for_idle = || {
        for _ in 0..3 {
            maintenance.abort_idle();
        }
    };
    fill(&db, &table, 0..20);
    assert_eq!(migrate(&db, &table, 0..10), 10);

    let key = KeyBuf::new().i64(3);
    let mut promotion = Box::pin(steps.promote_one(&table, &key));
    let mut next = 1_000;
    fill_log(&db, &table, &mut next);
    assert!(poll(promotion.as_mut()).is_pending(), "there is no room in the log");
    look_for_idle();
    assert!(drive(&db, promotion).expect("it is not aborted"), "the record was there");

    let layout = table.layout();
    let which = |row: &[u8]| layout.i64(row, 0).is_some_and(|id| (10..20).contains(&id));
    let mut migration = Box::pin(steps.migrate_batch(&table, which));
    assert!(poll(migration.as_mut()).is_pending(), "the notice has to be durable first");
    while steps.undecided() == 0 {
        db.step_flush().expect("memory is enough");
        assert!(poll(migration.as_mut()).is_pending(), "the records have to be written first");
        fill_log(&db, &table, &mut next);
        while steps.store_writes() {}
    }
    assert!(poll(migration.as_mut()).is_pending(), "there is no room in the log");
    look_for_idle();
    assert_eq!(drive(&db, migration).expect("it is not aborted"), 10);
}
