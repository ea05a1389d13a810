//! Transactions that validate, beside moves: a move is no change and no phantom, and hides none.

use super::*;

/// What was read and scanned moves to and fro, and nobody changes it.
fn only_moves(level: Isolation) {
    let world = cold_world_with(&[(1, 10), (2, 20), (3, 30)], by_value);
    world.migrate(&[2]);
    let mover = world.spawn(|world| {
        world.promote(2);
        world.migrate(&[1]);
        world.prune();
        world.promote(1);
        world.prune();
        world.migrate(&[1, 2]);
        world.prune();
        world.clean();
    });
    let mut tx = world.begin(level);
    assert_eq!((unharmed(tx.read(1)), unharmed(tx.read(2))), (Some(10), Some(20)), "a row was not seen");
    assert_eq!(unharmed(tx.scan(0, 100)), [10, 20, 30], "a row was seen twice, or not");
    let changed = tx.set(3, 31);
    assert!(unharmed(changed), "a row was lost");
    unharmed(tx.commit());
    mover.join().expect("the mover");
    world.settle_cold();
    assert_eq!(world.all(), [(1, 10), (2, 20), (3, 31)]);
}

/// Rows younger than a snapshot do not leave memory under who validates ranges; so rows move most under who does not.
fn only_moves_of_rows() {
    only_moves(Isolation::RepeatableRead);
}

fn only_moves_of_ranges() {
    only_moves(Isolation::Serializable);
}

#[test]
fn no_validator_fails_because_of_a_move() {
    model::run(500, only_moves_of_rows);
    model::run(1000, only_moves_of_ranges);
}

#[test]
#[ignore = "a long search: .ci/deep model"]
fn a_row_that_moves_again_under_a_validator_is_caught() {
    misses(Rule::MovesOnce, 20_000, only_moves_of_rows);
}

#[test]
fn a_promotion_that_is_taken_for_a_phantom_is_caught() {
    misses(Rule::PromotedIsNoPhantom, 10_000, only_moves_of_ranges);
}

/// Write skew over rows that are cold, and may come back: each takes its own row down if the sum allows it.
fn cold_write_skew() {
    let world = cold_world(&[(1, 1), (2, 1)]);
    world.migrate(&[1, 2]);
    let take = |world: &ColdWorld, mine: i64| {
        let mut tx = world.begin(Isolation::Serializable);
        let sum = tx.read(1)?.unwrap_or(0) + tx.read(2)?.unwrap_or(0);
        if sum == 2 {
            tx.set(mine, 0)?;
        }
        tx.commit()
    };
    let mover = world.spawn(|world| {
        world.promote(1);
        world.clean();
        world.prune();
    });
    let other = world.spawn(move |world| may_lose(take(world, 2)));
    let here = may_lose(take(&world, 1));
    let there = other.join().expect("the other transaction");
    mover.join().expect("the mover");
    assert!(here || there, "both gave way");
    let rows = world.all();
    assert!(rows.len() == 2 && rows.iter().any(|row| row.1 == 1), "both rows were taken down: {rows:?}");
    world.settle_cold();
}

#[test]
fn records_that_were_read_are_validated() {
    model::run(1000, cold_write_skew);
}

#[test]
fn a_remembered_absence_of_a_notice_is_caught() {
    misses(Rule::ValidationProbesAgain, 10_000, cold_write_skew);
}

/// Each inserts if it has seen nobody, and who was inserted is sent to the cold store at once.
fn cold_phantom() {
    let world = cold_world_with(&[(9, 900)], by_value);
    let enter = |world: &ColdWorld, id: i64| {
        let mut tx = world.begin(Isolation::Serializable);
        if tx.scan(0, 100)?.is_empty() {
            tx.insert(id, id)?;
        }
        tx.commit()
    };
    let other = world.spawn(move |world| {
        let entered = may_lose(enter(world, 2));
        world.migrate(&[2, 9]);
        entered
    });
    let here = may_lose(enter(&world, 1));
    let there = other.join().expect("the other transaction");
    assert!(here || there, "both gave way");
    let found = world.begin(Isolation::Snapshot).scan(0, 100).expect("a scan");
    assert_eq!(found.len(), 1, "both have entered");
    world.settle_cold();
}

#[test]
fn a_phantom_stays_where_it_is_looked_for() {
    model::run(1500, cold_phantom);
}

#[test]
fn a_phantom_that_has_left_memory_is_caught() {
    misses(Rule::YoungStay, 10_000, cold_phantom);
}
