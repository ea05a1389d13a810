//! What a statement is told of a row that it has changed already, where the row has gone meanwhile.

use super::*;

/// The row has changed since the snapshot and moved; the statement changes it in the cold store. Its second change meets the mark
/// in memory, below which nothing has kept what had moved; or not even the mark, where the snapshot sees a record.
#[test]
fn a_row_that_the_statement_has_followed_is_its_own() {
    for (begins_cold, prunes) in [(false, false), (false, true), (true, false), (true, true)] {
        let world = world(&[(1, 10), (2, 20)]);
        if begins_cold {
            world.migrate();
            world.settle();
        }
        let mut tx = world.begin(Isolation::ReadCommitted);
        let mut statement = tx.statement().expect("it begins");
        let one = world.handle(&mut statement, 1);
        world.other_sets(1, 1, 7);
        world.migrate();
        assert_eq!(world.set_by(&mut statement, &one, 71).expect("an answer"), Changed::Updated(7));
        if prunes {
            world.settle();
        }
        assert_eq!(world.set_by(&mut statement, &one, 72).expect("an answer"), Changed::ByStatement);
        let locked =
            block_on(statement.lock_row(&world.table, &one, LockMode::Update, LockWait::Wait, |_| ()));
        assert_eq!(locked.expect("an answer"), Locked::ByStatement);
        assert_eq!(world.read_by(&mut statement, &one), Some((1, 10)));
        drop(statement);
        block_on(tx.commit()).expect("nobody competes");
        assert_eq!(world.end(), [(1, 71), (2, 20)]);
    }
}
