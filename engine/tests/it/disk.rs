//! Space on disk: what a process that crashes again and again leaves, and what opens where there is none.

use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use thermocline_base::io::{Io, MemoryIo};
use thermocline_engine::row::{Column, KeyBuf, Type, Value};
use thermocline_engine::{
    Database, Durability, Error, IndexSchema, Options, TableSchema, TransactionOptions,
};

const SEGMENT: u64 = 64 << 10;
const CHECKPOINT: u64 = 256 << 10;
/// What a segment has beside its bytes of the log.
const HEADER: u64 = 4 << 10;

fn options() -> Options {
    Options::default()
        .with_durability(Durability::Async)
        .with_memory_limit(Some(256 << 20))
        .with_part_bytes(8 << 10)
        .with_log_buffer_bytes(SEGMENT)
        .with_log_segment_bytes(SEGMENT)
        .with_checkpoint_log_bytes(CHECKPOINT)
        .with_cold_threads(0)
}

fn open(io: &MemoryIo, options: &Options, background: bool) -> Result<Database, Error> {
    Database::open_with(Path::new("/db"), options.clone(), Arc::new(io.clone()), background)
}

fn create(db: &Database) {
    let schema = TableSchema::new("t")
        .column(Column::new("id", Type::Int8))
        .column(Column::new("text", Type::Text))
        .primary_key(IndexSchema::ordered("key", &["id"]));
    db.create_table(schema).expect("a table");
}

fn insert(db: &Database, id: i64) -> Result<(), Error> {
    let table = db.table("t")?;
    let text = "x".repeat(1_000);
    db.run(TransactionOptions::new(), async |tx| {
        tx.insert_values(&table, &[Value::Int8(id), Value::from(text.as_str())]).await.map(drop)
    })
}

/// Which of these rows are there?
fn count(db: &Database, ids: impl Iterator<Item = i64> + Clone) -> usize {
    let table = db.table("t").expect("a table");
    let found = db.run(TransactionOptions::new().read_only(), async |tx| {
        let mut found = 0;
        for id in ids.clone() {
            found += usize::from(tx.read(&table.primary(), &KeyBuf::new().i64(id), |_| ()).await?.is_some());
        }
        Ok(found)
    });
    found.expect("reads go on")
}

fn log_bytes(io: &MemoryIo) -> u64 {
    io.used_in(Path::new("/db/log"))
}

/// Nothing runs beside: no round gets as far as a checkpoint of its own.
#[test]
fn a_process_that_crashes_again_and_again_does_not_fill_the_disk() {
    const ROUNDS: i64 = 30;
    const ROWS: i64 = 40;
    let mut io = MemoryIo::new();
    create(&open(&io, &options(), false).expect("it opens"));
    // What a round writes, twice what its rows are.
    let written = 2 * ROWS as u64 * 1_100;
    let files = |io: &MemoryIo| io.list(Path::new("/db/log")).expect("the log's directory").len() as u64;
    for round in 0..ROUNDS {
        let db = open(&io, &options(), false).expect("it opens");
        let there = count(&db, 0..round * ROWS);
        assert_eq!(there as i64, round * ROWS, "nothing is lost");
        // The opening leaves the log's configured size and one segment; of each file there is the header, and the last block in
        // part.
        let (used, overhead) = (log_bytes(&io), 2 * HEADER * files(&io));
        assert!(
            used <= CHECKPOINT + SEGMENT + overhead,
            "{used} bytes of log after the opening of round {round}"
        );
        let replayed = db.statistics().replayed_bytes;
        assert!(replayed <= CHECKPOINT + written, "{replayed} bytes were read in round {round}");
        for id in round * ROWS..(round + 1) * ROWS {
            insert(&db, id).expect("there is space");
            db.step_flush().expect("there is space");
        }
        // A session that runs has the segment that it writes, and the next one as soon as the log's ring reaches beyond its end.
        let (used, overhead) = (log_bytes(&io), 2 * HEADER * files(&io));
        assert!(
            used <= CHECKPOINT + written + 2 * SEGMENT + overhead,
            "{used} bytes of log in round {round}"
        );
        io = io.copy();
    }
    let checkpoints = io.used_in(Path::new("/db/checkpoint"));
    assert!(checkpoints > 300 << 10, "openings have made checkpoints: {checkpoints} bytes");
}

#[test]
fn an_opening_that_has_read_much_of_the_log_asks_for_a_checkpoint() {
    let io = MemoryIo::new();
    let db = open(&io, &options(), false).expect("it opens");
    create(&db);
    for id in 0..40 {
        insert(&db, id).expect("there is space");
        db.step_flush().expect("there is space");
    }
    let io = io.copy();
    let never = options().with_checkpoint_interval(std::time::Duration::from_secs(1 << 30));
    let db = open(&io, &never, true).expect("it opens");
    let replayed = db.statistics().replayed_bytes;
    assert!((CHECKPOINT / 16..CHECKPOINT).contains(&replayed), "{replayed} bytes");
    // Nothing is written meanwhile, and no interval ends.
    while db.statistics().checkpoints == 0 {
        std::thread::yield_now();
    }
    db.close().expect("it closes");
    let db = open(&io, &never, false).expect("it opens");
    assert!(db.statistics().replayed_bytes < 4 << 10, "{} bytes", db.statistics().replayed_bytes);
    assert_eq!(count(&db, 0..40), 40);
}

/// A database with rows in memory, rows in the cold store and a log, closed or crashed.
fn with_cold_rows(options: &Options, closed: bool) -> MemoryIo {
    let io = MemoryIo::new();
    let db = open(&io, &options.clone().with_cold_threads(1), true).expect("it opens");
    create(&db);
    for id in 0..60 {
        insert(&db, id).expect("there is space");
    }
    let table = db.table("t").expect("a table");
    let moved = db.cold_steps().migrate(&table, |_| true, 30).expect("rows move");
    assert!(moved > 0, "some rows are cold");
    for id in 60..80 {
        insert(&db, id).expect("there is space");
    }
    db.flush().expect("there is space");
    if closed {
        db.close().expect("it closes");
        return io;
    }
    io.copy()
}

#[test]
fn a_full_disk_can_be_opened_and_read() {
    for closed in [true, false] {
        let options = options().with_log_segment_bytes(1 << 20);
        let io = with_cold_rows(&options, closed);
        // Not even what the log could give back: that is taken by somebody else.
        let db = open(&io, &options, false).expect("it opens");
        drop(db);
        let io = io.copy();
        io.set_capacity(Some(0));
        let db = open(&io, &options, true).unwrap_or_else(|error| panic!("closed: {closed}: {error}"));
        assert_eq!(count(&db, 0..80), 80);
        let mut outcome = Ok(());
        for id in 80..4_000 {
            outcome = insert(&db, id);
            if outcome.is_err() {
                break;
            }
        }
        let error = outcome.expect_err("the disk is full");
        assert!(matches!(error, Error::DiskFull { .. }), "{error}");
        assert_eq!(error.sqlstate(), "53100");
        assert_eq!(count(&db, 0..80), 80);
        io.set_capacity(None);
        while let Err(error) = insert(&db, 5_000) {
            assert!(matches!(error, Error::DiskFull { .. }), "{error}");
            std::thread::yield_now();
        }
        db.close().expect("there is space");
        let db = open(&io, &options, false).expect("it opens");
        assert_eq!(count(&db, (0..80).chain([5_000])), 81);
    }
}

/// The log takes what there is, leaves some of it, and comes back to segments of the usual size.
#[test]
fn segments_are_as_large_as_there_is_room_for() {
    const WHOLE: u64 = 4 << 20;
    let options = options().with_log_segment_bytes(WHOLE);
    let io = MemoryIo::new();
    create(&open(&io, &options, false).expect("it opens"));
    let io = io.copy();
    drop(open(&io, &options, false).expect("it opens"));
    let room = 1 << 20;
    // An opening gives back the segment of the one before, which nothing was written to: that is taken by somebody else.
    let before = log_bytes(&io) - WHOLE;
    io.set_capacity(Some(io.used() - WHOLE + room));
    let db = open(&io, &options, false).expect("it opens");
    let begun = log_bytes(&io) - before;
    assert!((room / 4..=room / 2 + 2 * HEADER).contains(&begun), "{begun} bytes of a room of {room}");
    insert(&db, 1).expect("a little fits");
    db.step_flush().expect("a little fits");
    io.set_capacity(None);
    let longest = |io: &MemoryIo| {
        let files = io.files().into_iter();
        files.filter(|(path, _)| path.starts_with("/db/log")).map(|(_, bytes)| bytes.len()).max()
    };
    // Twice as long each time, from what there was room for.
    for id in 2..5_000 {
        insert(&db, id).expect("space has returned");
        if id % 20 == 0 {
            db.step_flush().expect("space has returned");
        }
        if id % 1_000 == 0 && longest(&io) >= Some(4 << 20) {
            break;
        }
    }
    assert!(longest(&io) >= Some(4 << 20), "segments have grown back");
}

/// Images of crashes in the middle of a migration, at each write of the log and of the store.
fn crashes_in_a_migration(options: &Options) -> Vec<MemoryIo> {
    let io = MemoryIo::new();
    let db = open(&io, options, false).expect("it opens");
    create(&db);
    for id in 0..60 {
        insert(&db, id).expect("there is space");
        db.step_flush().expect("there is space");
    }
    let (table, steps) = (db.table("t").expect("a table"), db.cold_steps());
    let mut migration = Box::pin(steps.migrate_batch(&table, |_| true));
    let mut images = Vec::new();
    for _ in 0..1_000 {
        if let Poll::Ready(moved) = migration.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            assert_eq!(moved.expect("there is space"), 60);
            return images;
        }
        db.step_flush().expect("there is space");
        images.push(io.copy());
        if steps.store_writes() {
            images.push(io.copy());
        }
    }
    panic!("a migration of 60 rows does not end");
}

/// A batch that is neither confirmed nor discarded is decided about by an opening, or later, when there is space.
#[test]
fn an_undecided_batch_on_a_full_disk_keeps_nobody_from_opening() {
    let mut put_off = 0;
    let images = crashes_in_a_migration(&options());
    let options = options().with_cold_threads(1);
    for (number, io) in images.into_iter().enumerate() {
        io.set_capacity(Some(0));
        let db = open(&io, &options, false).unwrap_or_else(|error| panic!("image {number}: {error}"));
        assert_eq!(count(&db, 0..60), 60, "image {number}");
        let undecided = if db.cold_steps().is_open() { db.cold_steps().undecided() } else { 0 };
        put_off += undecided;
        assert!(undecided == 0 || db.cold_steps().clean().is_err(), "there is no space yet");
        assert_eq!(count(&db, 0..60), 60, "image {number}");
        io.set_capacity(None);
        while db.cold_steps().is_open() && db.cold_steps().undecided() > 0 {
            db.cold_steps().clean().expect("there is space");
        }
        assert_eq!(count(&db, 0..60), 60, "image {number}");
        db.close().expect("there is space");
        let db = open(&io, &options, false).expect("it opens again");
        assert_eq!(count(&db, 0..60), 60, "image {number}");
    }
    assert!(put_off > 0, "no image was of a moment between a batch and its decision");
}
