//! The machine stops at any moment while rows move and change, and the database is opened again from what the disk has
//! (`interleavings.md`, 25-29).
//!
//! The engine with its default store, over a disk that records. What is on it after each operation is known, so every
//! schedule is looked at after many crashes, each at a moment of its own and with a draw of what had not been synced; in
//! some of them the machine stops once more while the database recovers.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use shuttle::rand::Rng as _;
use thermocline_base::io::{Io, RecordingIo};
use thermocline_base::sync::{AtomicBool, Mutex, Ordering};

use super::*;

/// A payer takes from one row, gives to the other, and counts how often, in a third.
const FROM: i64 = 1;
const TO: i64 = 2;
const COUNT: i64 = 3;
const TOTAL: i64 = 100;
const PAYMENTS: i64 = 2;
/// Crashes of each schedule.
const CRASHES: usize = 6;

pub(super) fn path() -> &'static Path {
    Path::new("/db")
}

pub(super) fn open(io: Arc<dyn Io>, durability: Durability) -> Database {
    let options = Options::default()
        .with_durability(durability)
        .with_memory_limit(Some(1 << 30))
        .with_threads(Some(1))
        .with_part_bytes(8 << 10)
        .with_log_buffer_bytes(64 << 10)
        .with_log_segment_bytes(16 << 10)
        .with_cold_block_bytes(8 << 10)
        .with_cold_threads(0)
        .with_idle_limit(Some(std::time::Duration::ZERO));
    Database::open_with(path(), options, io, false).expect("what a crash leaves can be opened")
}

/// Writes for the log and the store whatever waits. `false`: nothing did.
fn write_on(db: &Database) -> bool {
    db.step_flush().expect("the disk is well");
    db.cold_steps().store_writes() | db.cold_steps().store_work()
}

/// Runs a future alone, and writes what it waits for.
pub(super) fn drive<F: Future>(db: &Database, future: F) -> F::Output {
    let mut future = pin!(future);
    for _ in 0..100 {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
        write_on(db);
    }
    panic!("writing does not let it go on");
}

/// What was acknowledged: how many operations the disk had been given, and the payment.
type Acknowledged = Arc<Mutex<Vec<(usize, i64)>>>;

fn pay(world: &World, io: &RecordingIo, acknowledged: &Acknowledged) {
    for _ in 0..PAYMENTS {
        let paid = world.retry(Isolation::Snapshot, |tx| {
            let count = tx.read(COUNT)?.expect("it is there") + 1;
            tx.set(FROM, TOTAL - count)?;
            tx.set(COUNT, count)?;
            tx.set(TO, count)?;
            Ok(count)
        });
        let paid = paid.expect("nobody else pays");
        acknowledged.lock().push((io.operations(), paid));
    }
}

/// Is the database whole, with all that was acknowledged?
fn check(db: &Database, acknowledged: i64) {
    let world = World::of(db.clone(), db.table("t").expect("its definition was durable"));
    let mut tx = world.begin(Isolation::Snapshot);
    let (table, layout) = (&world.table, &world.layout);
    let mut all = Vec::new();
    drive(
        db,
        tx.tx.scan_table(table, |row| {
            all.extend(layout.i64(row, 0).zip(layout.i64(row, 1)));
            std::ops::ControlFlow::Continue(())
        }),
    )
    .expect("a scan");
    all.sort_unstable();
    let count = all.last().map_or(0, |(_, count)| *count);
    assert_eq!(
        all,
        [(FROM, TOTAL - count), (TO, count), (COUNT, count)],
        "each row is there once, of one time"
    );
    assert!(
        (acknowledged..=PAYMENTS).contains(&count),
        "{acknowledged} payments were acknowledged, {count} are there"
    );
    let index = table.index("t_value").expect("it was defined");
    for (id, value) in all {
        let (mut found, by) = (Vec::new(), key(value));
        let read = tx.tx.read_all(&index, &by, |row| {
            found.extend(layout.i64(row, 0));
            std::ops::ControlFlow::Continue(())
        });
        drive(db, read).expect("it is read");
        assert!(
            found.contains(&id) && found.len() == usize::from(id != FROM) + 1,
            "{id} by its value {value}: {found:?}"
        );
        let read =
            drive(db, tx.tx.read(&world.primary, &key(id), |row| layout.i64(row, 1))).expect("it is read");
        assert_eq!(read, Some(Some(value)), "row {id} by its key");
    }
    drive(db, tx.tx.commit()).expect("it has only read");
    settle(db);
}

/// Cleans until no notice is left.
fn settle(db: &Database) {
    let steps = db.cold_steps();
    for _ in 0..10 {
        let cleaned = drive(db, steps.clean_once()).expect("it cleans");
        db.step_maintenance();
        if !cleaned && steps.notices() == (0, 0) {
            assert_eq!(steps.undecided(), 0, "a batch was forgotten");
            return;
        }
    }
    panic!("notices stay: {:?}", steps.notices());
}

/// Crashes at moments of the schedule, and opens again.
fn crash_and_open(io: &RecordingIo, from: usize, acknowledged: &Acknowledged, durability: Durability) {
    let acknowledged = acknowledged.lock();
    let mut chance = shuttle::rand::thread_rng();
    for crash in 0..CRASHES {
        let at = chance.gen_range(from..=io.operations());
        // Nothing that is not certain, everything, or a draw.
        let seed = if crash < 2 { crash as u64 } else { chance.r#gen() };
        // Asynchronous commits may be lost; then all later ones are.
        let sure = match durability {
            Durability::Async => 0,
            _ => {
                acknowledged.iter().filter(|(done, _)| *done <= at).map(|(_, paid)| *paid).max().unwrap_or(0)
            }
        };
        let image = RecordingIo::new(&io.crash(at, seed));
        check(&open(Arc::new(image.clone()), durability), sure);
        if crash % 3 == 2 {
            let again = image.crash(chance.gen_range(0..=image.operations()), chance.r#gen());
            check(&open(Arc::new(again), durability), sure);
        }
    }
}

fn payments_beside_moves(durability: Durability) {
    let io = RecordingIo::new(&MemoryIo::new());
    let db = open(Arc::new(io.clone()), durability);
    let world = World::create(db, by_value);
    drive(&world.db, async {
        let mut tx = world.begin(Isolation::Snapshot);
        for (id, value) in [(FROM, TOTAL), (TO, 0), (COUNT, 0)] {
            let row = [Value::Int8(id), Value::Int8(value)];
            tx.tx.insert_values(&world.table, &row).await.expect("a fresh row");
        }
        tx.tx.commit().await.expect("nobody else is there");
    });
    world.db.step_flush().expect("the disk is well");
    let (from, acknowledged) = (io.operations(), Acknowledged::default());

    let done = Arc::new(AtomicBool::new(false));
    let disk = {
        let done = Arc::clone(&done);
        world.spawn(move |world| {
            while !done.load(Ordering::SeqCst) {
                write_on(&world.db);
                shuttle::thread::yield_now();
            }
        })
    };
    let payer = {
        let (io, acknowledged) = (io.clone(), Arc::clone(&acknowledged));
        world.spawn(move |world| pay(world, &io, &acknowledged))
    };
    let mover = |ids: &'static [i64]| {
        world.spawn(move |world| {
            let steps = world.db.cold_steps();
            let which = |row: &[u8]| world.layout.i64(row, 0).is_some_and(|id| ids.contains(&id));
            steps.migrate(&world.table, which, usize::MAX).expect("the disk is well");
            steps.promote(&world.table, &key(ids[0])).expect("the disk is well");
            steps.clean().expect("the disk is well");
        })
    };
    let movers = [mover(&[FROM, COUNT]), mover(&[TO])];
    payer.join().expect("nobody panics");
    movers.into_iter().for_each(|mover| mover.join().expect("nobody panics"));
    done.store(true, Ordering::SeqCst);
    disk.join().expect("nobody panics");
    crash_and_open(&io, from, &acknowledged, durability);
}

#[test]
fn a_crash_at_any_moment_of_moves_loses_nothing() {
    model::run(120, || payments_beside_moves(Durability::Group));
}

#[test]
fn a_crash_at_any_moment_of_moves_leaves_asynchronous_commits_in_order() {
    model::run(120, || payments_beside_moves(Durability::Async));
}

#[test]
fn batches_that_are_not_decided_again_are_caught() {
    misses(Rule::RecoveryDiscards, 400, || payments_beside_moves(Durability::Group));
}

#[test]
fn records_removed_before_the_log_are_caught() {
    misses(Rule::RemovalAfterLog, 400, || payments_beside_moves(Durability::Async));
}
