//! What is there after closing, crashing, backing up and changing definitions.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thermocline_base::io::{Io, MemoryIo};
use thermocline_engine::row::{Column, KeyBuf, Type, Value};
use thermocline_engine::{
    Database, Durability, Error, IndexSchema, Isolation, Options, Table, TableSchema, Tiering,
    TransactionOptions,
};

/// A directory that is removed at the end of the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("thermocline-it-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn small() -> Options {
    Options::default().with_log_buffer_bytes(8 << 20).with_log_segment_bytes(1 << 20)
}

fn numbers(db: &Database) -> Table {
    db.create_table(
        TableSchema::new("numbers")
            .column(Column::new("id", Type::Int8).auto_increment())
            .column(Column::new("value", Type::Text).nullable())
            .primary_key(IndexSchema::hash("numbers_key", &["id"]))
            .index(IndexSchema::ordered("by_value", &["value"])),
    )
    .expect("the definition is fine")
}

fn insert(db: &Database, value: &str) -> i64 {
    let table = db.table("numbers").expect("it is there");
    db.run(TransactionOptions::new(), async |tx| {
        tx.insert_values(&table, &[Value::Null, Value::from(value)]).await
    })
    .expect("an insert")
    .expect("the table has an auto-increment column")
}

fn read(db: &Database, id: i64) -> Option<String> {
    let table = db.table("numbers").expect("it is there");
    let layout = table.layout();
    db.run(TransactionOptions::new(), async |tx| {
        tx.read(&table.primary(), &KeyBuf::new().i64(id), |row| layout.str(row, 1).unwrap_or("").to_owned())
            .await
    })
    .expect("a read")
}

#[test]
fn committed_rows_are_there_after_a_restart() {
    let scratch = Scratch::new("restart");
    for durability in [Durability::Group, Durability::Sync, Durability::Async, Durability::Off] {
        let options = small().with_durability(durability);
        let id = {
            let db = Database::open(&scratch.0, options.clone()).expect("it opens");
            if db.table("numbers").is_err() {
                numbers(&db);
            }
            let id = insert(&db, &format!("{durability}"));
            db.close().expect("it closes");
            id
        };
        let db = Database::open(&scratch.0, options).expect("it opens again");
        assert_eq!(read(&db, id).as_deref(), Some(durability.to_string().as_str()));
        assert!(!db.statistics().lost_volatile_session);
        let next = insert(&db, "next");
        assert_eq!(next, id + 1, "numbers are not given twice");
    }
}

/// Inserts go on behind all slots that there were. What is left of those before is packed, however few rows a run of the
/// database had inserted.
#[test]
#[cfg_attr(feature = "model", ignore = "chunks have eight slots in that build")]
fn opening_again_and_again_costs_no_memory() {
    const ROUNDS: i64 = 14;
    let scratch = Scratch::new("again");
    for round in 1..=ROUNDS {
        let db = Database::open(&scratch.0, small()).expect("it opens");
        if round == 1 {
            numbers(&db);
        }
        assert_eq!(insert(&db, "one more"), round);
        db.close().expect("it closes");
    }
    let db = Database::open(&scratch.0, small().with_threads(Some(1))).expect("it opens");
    insert(&db, "the last");
    let slots = || db.statistics().memory.slots;
    let before = slots();
    let mut steps = db.maintenance_steps();
    for _ in 0..5 {
        steps.step();
    }
    assert!(before > 4 << 20 && slots() < 1 << 20, "{before} bytes of slots, and {} packed", slots());
    for id in 1..=ROUNDS {
        assert_eq!(read(&db, id).as_deref(), Some("one more"));
    }
}

#[test]
fn checkpoints_images_and_the_log_together_make_the_database() {
    let scratch = Scratch::new("checkpoints");
    {
        let db = Database::open(&scratch.0, small()).expect("it opens");
        let table = numbers(&db);
        for round in 0..5_i64 {
            db.run(TransactionOptions::new(), async |tx| {
                for _ in 0..2_000 {
                    tx.insert_values(&table, &[Value::Null, Value::from("before")]).await?;
                }
                for id in 1..=100 {
                    let key = KeyBuf::new().i64(round * 2_000 + id);
                    tx.update(&table.primary(), &key, |row| Ok(row.set_str(1, "updated")?)).await?;
                    let key = KeyBuf::new().i64(round * 2_000 + 200 + id);
                    assert!(tx.delete(&table.primary(), &key).await?);
                }
                Ok(())
            })
            .expect("a transaction");
            if round != 4 {
                db.checkpoint().expect("a checkpoint");
            }
        }
        assert_eq!(db.statistics().checkpoints, 4);
        db.close().expect("it closes");
    }
    let report = Database::verify(&scratch.0).expect("it can be verified");
    assert_eq!(report.findings, Vec::<String>::new());
    assert!(report.rows > 7_000 && report.log_records > 0, "{report:?}");
    let db = Database::open(&scratch.0, small()).expect("it opens again");
    for round in 0..5 {
        assert_eq!(read(&db, round * 2_000 + 50).as_deref(), Some("updated"));
        assert_eq!(read(&db, round * 2_000 + 250), None);
        assert_eq!(read(&db, round * 2_000 + 1_500).as_deref(), Some("before"));
    }
}

#[test]
fn a_crash_with_durability_off_is_admitted() {
    let io = MemoryIo::new();
    let path = Path::new("/db");
    let off = small().with_durability(Durability::Off);
    let open = |io: &MemoryIo| Database::open_with(path, off.clone(), Arc::new(io.clone()), false);
    let first = {
        let db = open(&io).expect("it opens");
        numbers(&db);
        let id = insert(&db, "kept");
        db.close().expect("it closes");
        id
    };
    let crashed = {
        let db = open(&io).expect("it opens again");
        let lost = insert(&db, "lost");
        let image = io.copy();
        assert_eq!(read(&db, lost).as_deref(), Some("lost"));
        image
    };
    let db = open(&crashed).expect("it opens after the crash");
    assert!(db.statistics().lost_volatile_session);
    assert_eq!(read(&db, first).as_deref(), Some("kept"));
    assert_eq!(read(&db, first + 1), None);
}

#[test]
fn large_transactions_are_whole_or_absent() {
    let scratch = Scratch::new("large");
    let big = "x".repeat(100_000);
    {
        let db = Database::open(&scratch.0, small()).expect("it opens");
        let table = numbers(&db);
        db.run(TransactionOptions::new(), async |tx| {
            for _ in 0..200 {
                tx.insert_values(&table, &[Value::Null, Value::from("small")]).await?;
            }
            Ok(())
        })
        .expect("a transaction");
        let table = db
            .create_table(
                TableSchema::new("blobs")
                    .column(Column::new("id", Type::Int4))
                    .column(Column::new("data", Type::Text))
                    .primary_key(IndexSchema::ordered("blobs_key", &["id"])),
            )
            .expect("the definition is fine");
        db.run(TransactionOptions::new(), async |tx| {
            for id in 0..300 {
                tx.insert_values(&table, &[Value::Int4(id), Value::from(big.as_str())]).await?;
            }
            Ok(())
        })
        .expect("30 MB in one transaction, more than the log's buffer");
        drop(db);
    }
    let db = Database::open(&scratch.0, small()).expect("it opens again");
    let table = db.table("blobs").expect("it is there");
    let layout = table.layout();
    let lengths = db
        .run(TransactionOptions::new(), async |tx| {
            let mut lengths = 0;
            for id in 0..300 {
                lengths += tx
                    .read(&table.primary(), &KeyBuf::new().i32(id), |row| {
                        layout.str(row, 1).map_or(0, str::len)
                    })
                    .await?
                    .unwrap_or(0);
            }
            Ok(lengths)
        })
        .expect("a read");
    assert_eq!(lengths, 300 * 100_000);
}

#[test]
fn definitions_are_durable() {
    let scratch = Scratch::new("definitions");
    {
        let db = Database::open(&scratch.0, small()).expect("it opens");
        let table = numbers(&db);
        for value in ["a", "b", "c"] {
            insert(&db, value);
        }
        db.add_column("numbers", Column::new("note", Type::Int4).nullable().default(7))
            .expect("add a column");
        db.create_index("numbers", IndexSchema::ordered("by_note", &["note"])).expect("an index");
        db.run(TransactionOptions::new(), async |tx| {
            tx.insert_values(&table, &[Value::Null, Value::from("d"), Value::Int4(9)]).await
        })
        .expect("an insert with the new column");
        db.create_table(TableSchema::new("gone").column(Column::new("id", Type::Int4))).expect("a table");
        db.drop_table("gone").expect("drop it");
        db.create_table(TableSchema::new("empty").column(Column::new("id", Type::Int4))).expect("a table");
        let empty = db.table("empty").expect("it is there");
        db.run(TransactionOptions::new(), async |tx| tx.insert_values(&empty, &[Value::Int4(1)]).await)
            .expect("an insert");
        db.truncate_table("empty").expect("truncate it");
    }
    let db = Database::open(&scratch.0, small()).expect("it opens again");
    assert_eq!(db.table_names(), ["empty", "numbers"]);
    assert_eq!(read(&db, 4).as_deref(), Some("d"));
    let table = db.table("numbers").expect("it is there");
    let layout = table.layout();
    let note = |id| {
        db.run(TransactionOptions::new(), async |tx| {
            tx.read(&table.primary(), &KeyBuf::new().i64(id), |row| layout.i32(row, 2)).await
        })
        .expect("a read")
    };
    assert_eq!((note(1), note(4)), (Some(Some(7)), Some(Some(9))));
    assert!(table.index("by_note").is_ok());
    assert_eq!(db.table("empty").expect("it is there").schema().column_list().len(), 1);
    let empty = db.table("empty").expect("it is there");
    let id = db
        .run(TransactionOptions::new(), async |tx| {
            tx.insert_values(&empty, &[Value::Int4(5)]).await?;
            Ok(())
        })
        .map(|()| db.statistics().index_entries);
    assert_eq!(id.expect("an insert"), 4 * 3 + 1);
}

#[test]
fn a_backup_opens_as_a_database() {
    let (scratch, copy) = (Scratch::new("backup"), Scratch::new("backup-copy"));
    let db = Database::open(&scratch.0, small()).expect("it opens");
    numbers(&db);
    let before = insert(&db, "before");
    db.backup(&copy.0).expect("a backup");
    insert(&db, "after");
    assert!(db.backup(&copy.0).is_err(), "the directory is not empty any more");
    let backup = Database::open(&copy.0, small()).expect("the backup opens beside the original");
    assert_eq!(read(&backup, before).as_deref(), Some("before"));
    assert_eq!(read(&backup, before + 1), None);
    insert(&backup, "own life");
}

#[test]
fn directories_that_cannot_be_opened_say_why() {
    let scratch = Scratch::new("refusals");
    let db = Database::open(&scratch.0, small()).expect("it opens");
    assert!(matches!(Database::open(&scratch.0, small()), Err(Error::Locked { .. })));
    drop(db);
    let other = Scratch::new("refusals-other");
    std::fs::create_dir_all(&other.0).expect("a directory");
    std::fs::write(other.0.join("notes.txt"), "mine").expect("a file");
    let error = Database::open(&other.0, small()).expect_err("it holds something else");
    assert!(matches!(&error, Error::NotADatabase { .. }), "{error}");
    assert!(error.to_string().contains("notes.txt"), "{error}");
    let missing = Scratch::new("refusals-missing");
    let error = Database::open(&missing.0, small().with_read_only(true)).expect_err("there is nothing");
    assert!(matches!(&error, Error::NotADatabase { .. }), "{error}");
    assert!(!missing.0.exists());
}

#[test]
fn a_read_only_database_reads() {
    let scratch = Scratch::new("read-only");
    {
        let db = Database::open(&scratch.0, small()).expect("it opens");
        numbers(&db);
        insert(&db, "there");
    }
    let db = Database::open(&scratch.0, small().with_read_only(true)).expect("it opens");
    assert_eq!(read(&db, 1).as_deref(), Some("there"));
    let table = db.table("numbers").expect("it is there");
    let refused = db.run(TransactionOptions::new(), async |tx| {
        tx.insert_values(&table, &[Value::Null, Value::Null]).await
    });
    assert!(matches!(refused, Err(Error::ReadOnly)), "{refused:?}");
    assert!(matches!(db.drop_table("numbers"), Err(Error::ReadOnly)));
}

#[test]
fn a_full_disk_refuses_writers_and_lets_readers_go_on() {
    let io = MemoryIo::new();
    let path = Path::new("/db");
    let options = small().with_log_segment_bytes(1 << 16);
    let db = Database::open_with(path, options, Arc::new(io.clone()) as Arc<dyn Io>, true).expect("it opens");
    let table = numbers(&db);
    insert(&db, "before");
    io.set_capacity(Some(io.used()));
    let text = "y".repeat(1_900);
    let mut refused = None;
    for _ in 0..10_000 {
        let outcome = db.run(TransactionOptions::new(), async |tx| {
            tx.insert_values(&table, &[Value::Null, Value::from(text.as_str())]).await
        });
        if let Err(error) = outcome {
            refused = Some(error);
            break;
        }
    }
    let refused = refused.expect("the disk is full");
    assert!(matches!(&refused, Error::DiskFull { .. }), "{refused}");
    assert_eq!(read(&db, 1).as_deref(), Some("before"));
    io.set_capacity(None);
    let mut again = Err(refused);
    for _ in 0..1_000 {
        again = db.run(TransactionOptions::new(), async |tx| {
            tx.insert_values(&table, &[Value::Null, Value::from("again")]).await
        });
        if again.is_ok() {
            break;
        }
        std::thread::yield_now();
    }
    again.expect("space has returned");
}

#[test]
fn a_database_beyond_its_limit_opens_and_refuses_writers() {
    let scratch = Scratch::new("beyond");
    {
        let db = Database::open(&scratch.0, small()).expect("it opens");
        let table = numbers(&db);
        // Else they would make room by leaving.
        db.alter_tiering("numbers", Tiering::Hot).expect("it is there");
        let text = "z".repeat(1_000);
        db.run(TransactionOptions::new(), async |tx| {
            for _ in 0..30_000 {
                tx.insert_values(&table, &[Value::Null, Value::from(text.as_str())]).await?;
            }
            Ok(())
        })
        .expect("30 MB are below the limit");
    }
    let lower = small().with_memory_limit(Some(28 << 20));
    let db = Database::open(&scratch.0, lower).expect("it opens beyond the limit");
    assert!(read(&db, 29_999).is_some());
    let table = db.table("numbers").expect("it is there");
    let text = "z".repeat(1_000);
    let refused = db.run(TransactionOptions::new(), async |tx| {
        for _ in 0..1_000 {
            tx.insert_values(&table, &[Value::Null, Value::from(text.as_str())]).await?;
        }
        Ok(())
    });
    assert!(matches!(refused, Err(Error::OutOfMemory(_))), "{refused:?}");
}

/// A commit gives way to others of its worker while it is undecided (it waits for space in the log) or decided
/// (it waits for the disk), and never in between. So who meets it there has an answer at once: one worker never waits for
/// itself.
#[test]
fn commits_of_one_worker_are_met_decided_or_undecided() {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};
    type Commit = Pin<Box<dyn Future<Output = Result<(), Error>>>>;
    fn once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }
    let options = small().with_durability(Durability::Sync);
    let db = Database::open_with(Path::new("/memory"), options, Arc::new(MemoryIo::new()), false)
        .expect("the options are fine");
    let schema = TableSchema::new("t")
        .column(Column::new("id", Type::Int8))
        .column(Column::new("text", Type::Text))
        .primary_key(IndexSchema::hash("t_key", &["id"]));
    let table = db.create_table(schema).expect("the definition is fine");
    let (layout, primary) = (table.layout(), table.primary());
    let begin = || db.begin(TransactionOptions::new().isolation(Isolation::Serializable)).expect("it begins");
    let text = |number: usize| format!("{number:0>60000}");
    let mut first = begin();
    let row = [Value::Int8(1), Value::from(text(0).as_str())];
    assert!(once(std::pin::pin!(first.insert_values(&table, &row))).is_ready());
    let mut commits: Vec<Commit> = vec![Box::pin(first.commit())];
    assert!(once(commits[0].as_mut()).is_pending(), "nobody writes the log");
    // What a worker sees that goes on while all of these wait.
    let see = || {
        let (mut reader, key) = (begin(), KeyBuf::new().i64(1));
        let read = reader.read(&primary, &key, |row| layout.str(row, 1).map(str::to_owned));
        match once(std::pin::pin!(read)) {
            Poll::Ready(found) => found.expect("a read").flatten().expect("the row is there"),
            Poll::Pending => panic!("a worker waits for itself"),
        }
    };
    let undecided = (1..1000).find(|&number| {
        let mut writer = begin();
        {
            let key = KeyBuf::new().i64(1);
            let change = |row: &mut thermocline_engine::row::RowEditor<'_>| {
                row.set_value(1, &Value::from(text(number).as_str())).expect("a text");
                Ok(())
            };
            let update = writer.update(&primary, &key, change);
            assert!(matches!(once(std::pin::pin!(update)), Poll::Ready(Ok(Some(_)))), "it waits for nobody");
        }
        commits.push(Box::pin(writer.commit()));
        assert!(once(commits[number].as_mut()).is_pending(), "nobody writes the log");
        let seen = see();
        assert!(seen == text(number) || seen == text(number - 1), "what was before, or what is");
        seen != text(number)
    });
    let last = undecided.expect("the log is full at some time");
    assert!(last > 10, "most of them were decided: {last}");
    let mut left: Vec<usize> = (0..commits.len()).collect();
    while !left.is_empty() {
        db.step_flush().expect("the log is written");
        left.retain(|at| match once(commits[*at].as_mut()) {
            Poll::Ready(outcome) => {
                outcome.expect("it was decided, or nobody was in its way");
                false
            }
            Poll::Pending => true,
        });
    }
    assert_eq!(see(), text(last));
}
