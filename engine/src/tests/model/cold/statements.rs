//! Statements of several operations beside moves and writers: what a statement reads stays what it was, what it changes is
//! the newest version, and a row that goes to and fro is not taken for deleted.

use super::*;
use crate::{Change, Changed, RowHandle, Statement};
use std::ops::ControlFlow;

fn handle(world: &ColdWorld, statement: &mut Statement<'_>, id: i64) -> Option<RowHandle> {
    let mut found = None;
    let see = |row: crate::SeenRow<'_>| {
        if world.layout.i64(&row, 0) == Some(id) {
            found = Some(row.handle());
        }
        ControlFlow::Continue(())
    };
    block_on(statement.scan_table(&world.table, see)).expect("a scan");
    found
}

fn rows(world: &ColdWorld, statement: &mut Statement<'_>) -> Vec<(i64, i64)> {
    let mut found = Vec::new();
    let see = |row: crate::SeenRow<'_>| {
        found.extend(world.layout.i64(&row, 0).zip(world.layout.i64(&row, 1)));
        ControlFlow::Continue(())
    };
    block_on(statement.scan_table(&world.table, see)).expect("a scan");
    found.sort_unstable();
    found
}

fn add(
    world: &ColdWorld,
    statement: &mut Statement<'_>,
    handle: &RowHandle,
    more: i64,
) -> Result<Changed<i64>> {
    block_on(statement.change_row(&world.table, handle, |row| {
        let value = world.layout.i64(row.row(), 1).unwrap_or(-100);
        row.set_i64(1, value + more)?;
        Ok((Change::Update, value))
    }))
}

fn to_and_fro(world: &ColdWorld) {
    world.migrate(&[1]);
    world.clean();
    world.prune();
    world.promote(1);
    world.migrate(&[1]);
    world.clean();
    world.prune();
}

/// Two statements of one transaction change a row that is moved meanwhile. Each sees the row as it was when it began.
fn beside_moves(level: Isolation) {
    let world = cold_world(&[(1, 0), (2, 5)]);
    let mover = world.spawn(to_and_fro);
    let mut tx = world.begin(level);
    for round in 0..2 {
        let mut statement = tx.tx.statement().expect("it begins");
        let one = handle(&world, &mut statement, 1).expect("a row was lost");
        let changed = unharmed(add(&world, &mut statement, &one, 1));
        assert_eq!(changed, Changed::Updated(round), "a statement lost a row over moves");
        assert_eq!(
            rows(&world, &mut statement),
            [(1, round), (2, 5)],
            "a statement sees what it has written"
        );
        let again = unharmed(add(&world, &mut statement, &one, 1));
        assert_eq!(again, Changed::ByStatement);
    }
    unharmed(tx.commit());
    mover.join().expect("the mover");
    assert_eq!(world.all(), [(1, 2), (2, 5)]);
    world.settle_cold();
    assert_eq!(world.all(), [(1, 2), (2, 5)]);
}

fn beside_moves_at_read_committed() {
    beside_moves(Isolation::ReadCommitted);
}

fn beside_moves_at_repeatable_read() {
    beside_moves(Isolation::RepeatableRead);
}

#[test]
fn statements_are_not_harmed_by_moves() {
    model::run(1000, beside_moves_at_read_committed);
    model::run(1000, beside_moves_at_repeatable_read);
}

#[test]
fn a_statement_that_sees_what_it_writes_is_caught() {
    misses(Rule::StatementPassesOwn, 1000, beside_moves_at_repeatable_read);
}

#[test]
fn an_own_version_that_is_replaced_under_a_statement_is_caught() {
    misses(Rule::OwnVersionOutlivesViews, 1000, beside_moves_at_repeatable_read);
}

/// A statement at read committed changes a row by its handle, beside one that counts it up and moves it.
fn beside_a_writer() {
    let world = cold_world(&[(1, 0), (2, 5)]);
    let other = world.spawn(|world| {
        world.migrate(&[1]);
        let counted = world.retry(Isolation::Snapshot, |tx| {
            let value = tx.read(1)?.unwrap_or(-100);
            tx.set(1, value + 10)
        });
        assert!(counted.expect("it is retried"), "a row was lost");
        world.prune();
        to_and_fro(world);
    });
    let mut tx = world.begin(Isolation::ReadCommitted);
    loop {
        let mut statement = tx.tx.statement().expect("it begins");
        let one = handle(&world, &mut statement, 1).expect("a row was lost");
        let before = rows(&world, &mut statement);
        match unharmed(add(&world, &mut statement, &one, 1)) {
            Changed::Updated(_) => {
                assert_eq!(rows(&world, &mut statement), before, "the statement's snapshot has changed");
                break;
            }
            Changed::Lost => statement.undo(),
            answer => panic!("the row is there, and the answer is {answer:?}"),
        }
    }
    unharmed(tx.commit());
    other.join().expect("the other");
    assert_eq!(world.all(), [(1, 11), (2, 5)], "an update was lost");
    world.settle_cold();
    assert_eq!(world.all(), [(1, 11), (2, 5)], "an update was lost");
}

#[test]
fn a_row_that_goes_to_and_fro_is_not_taken_for_deleted() {
    model::run(1500, beside_a_writer);
}

#[test]
fn an_end_that_does_not_name_its_successor_is_caught() {
    misses(Rule::EndNamesSuccessor, 10_000, beside_a_writer);
}

#[test]
fn a_lost_trail_that_is_taken_for_a_delete_is_caught() {
    misses(Rule::LostIsNotGone, 20_000, beside_a_writer);
}

#[test]
fn a_snapshot_that_is_renewed_within_a_statement_is_caught() {
    misses(Rule::StatementKeepsSnapshot, 10_000, beside_a_writer);
}
