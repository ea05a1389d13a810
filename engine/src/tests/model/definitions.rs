//! Changes of definitions under transactions that use the table: a transaction sees the table as it was before or as it
//! is afterwards, for as long as it lives, and nothing that it writes is lost on the way.

use std::ops::ControlFlow;

use thermocline_base::sync::{AtomicBool, Ordering};

use super::*;

/// A writer that changes, adds and deletes rows while an index is made and dropped again: every row is in the index once.
fn an_index_and_a_writer() {
    let world = world(&[(1, 10), (2, 20)]);
    let writer = world.spawn(|world| {
        world.retry(Isolation::Snapshot, |tx| {
            tx.set(1, 11)?;
            tx.insert(3, 30)
        })?;
        world.retry(Isolation::Snapshot, |tx| tx.delete(2))
    });
    let by_value = IndexSchema::ordered("t_value", &["value"]);
    world.db.create_index("t", by_value.clone()).expect("nothing is unique");
    world.db.drop_index("t", "t_value").expect("it is there");
    world.db.create_index("t", by_value).expect("nothing is unique");
    writer.join().expect("the writer").expect("nobody competes");
    world.settle();
    assert_eq!(world.begin(Isolation::Snapshot).scan(0, 100).expect("a scan"), [11, 30]);
    assert_eq!(world.entries(), 4, "two rows in two indexes");
}

#[test]
fn an_index_has_every_row() {
    model::run(1500, an_index_and_a_writer);
}

#[test]
#[ignore = "a long search: .ci/deep model"]
fn looking_for_users_before_the_table_is_held_is_caught() {
    misses(Rule::HoldBeforeLook, 200_000, an_index_and_a_writer);
}

#[test]
#[ignore = "a long search: .ci/deep model"]
fn a_mark_that_is_entered_after_the_look_is_caught() {
    misses(Rule::MarkBeforeLook, 100_000, an_index_and_a_writer);
}

/// A unique index over values that a writer makes equal: one of the two is refused.
fn a_unique_index_and_a_writer() {
    let world = world(&[(1, 10), (2, 20)]);
    let writer = world.spawn(|world| world.retry(Isolation::Snapshot, |tx| tx.set(1, 20)));
    let made = world.db.create_index("t", IndexSchema::ordered("t_value", &["value"]).unique());
    let written = writer.join().expect("the writer");
    for error in [made.as_ref().err(), written.as_ref().err()].into_iter().flatten() {
        assert!(matches!(error, Error::DuplicateKey { .. }), "{error}");
    }
    assert!(made.is_ok() != written.is_ok(), "the values are equal, or the index is there");
    world.settle();
    assert_eq!(world.entries(), if made.is_ok() { 4 } else { 2 });
}

#[test]
fn a_unique_index_holds_for_writers_that_come_meanwhile() {
    model::run(1500, a_unique_index_and_a_writer);
}

#[test]
#[ignore = "a long search: .ci/deep model"]
fn a_unique_index_that_a_writer_slips_by_is_caught() {
    misses(Rule::HoldBeforeLook, 200_000, a_unique_index_and_a_writer);
}

/// A writer that counts while a column comes and goes: no count is lost, whatever the rows look like.
fn a_column_and_a_writer() {
    let world = world(&[(1, 0), (2, 0)]);
    let writer = world.spawn(|world| {
        for id in [1, 2, 1] {
            world.retry(Isolation::Snapshot, |tx| {
                tx.edit(id, |row| {
                    let value = row.layout().i64(row.row(), 1).unwrap_or(-1);
                    row.set_i64(1, value + 1)
                })
            })?;
        }
        Ok::<_, Error>(())
    });
    let extra = Column::new("extra", Type::Int8).default(7_i64);
    world.db.add_column("t", extra).expect("the name is free");
    world.db.drop_column("t", "extra").expect("it is there");
    writer.join().expect("the writer").expect("it is retried");
    world.settle();
    assert_eq!((world.value(1), world.value(2), world.entries()), (Some(2), Some(1), 2), "a count was lost");
}

#[test]
fn rows_that_are_written_anew_keep_every_change() {
    model::run(1500, a_column_and_a_writer);
}

/// A reader scans a table that is dropped: it finds the whole table or is told that there is none.
fn a_drop_and_a_reader() {
    let world = world(&[(1, 10), (2, 20), (3, 30)]);
    let uses = Arc::new(AtomicBool::new(false));
    let reading = Arc::clone(&uses);
    let reader = world.spawn(move |world| {
        let mut outcomes = Vec::new();
        for _ in 0..2 {
            let mut tx = world.begin(Isolation::Snapshot);
            let mut values = Vec::new();
            let outcome = block_on(tx.tx.scan_table(&world.table, |row| {
                values.extend(world.layout.i64(row, 1));
                ControlFlow::Continue(())
            }));
            reading.store(outcome.is_ok(), Ordering::SeqCst);
            let again = outcome.and_then(|()| tx.read(2));
            reading.store(false, Ordering::SeqCst);
            outcomes.push(again.map(|value| (values, value)));
        }
        outcomes
    });
    world.db.drop_table("t").expect("it is there");
    let used = uses.load(Ordering::SeqCst);
    let outcomes = reader.join().expect("the reader");
    assert!(!used, "a table was dropped under its reader");
    let mut dropped = false;
    for outcome in outcomes {
        match outcome {
            Ok(seen) => {
                assert!(!dropped, "a dropped table came back");
                assert_eq!(seen, (vec![10, 20, 30], Some(20)), "not all of the table was there");
            }
            Err(Error::TableDropped { .. }) => dropped = true,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(world.entries(), 0);
}

#[test]
fn a_table_is_dropped_as_a_whole() {
    model::run(2000, a_drop_and_a_reader);
}

#[test]
fn a_table_that_is_dropped_under_its_reader_is_caught() {
    misses(Rule::HoldBeforeLook, 20_000, a_drop_and_a_reader);
}
