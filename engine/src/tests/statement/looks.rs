//! Looks at the present, while other transactions change the row and are not over.

use std::pin::pin;
use std::task::{Context, Waker};

use super::*;

/// What a look finds: `None` if it waits.
fn look(world: &World, statement: &mut Statement<'_>, id: i64) -> Option<Option<RowHandle>> {
    let key = key(id);
    let mut look = pin!(statement.look_at_present(&world.primary, &key));
    match look.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        std::task::Poll::Ready(found) => Some(found.expect("an answer")),
        std::task::Poll::Pending => None,
    }
}

/// A change that leaves the key makes nobody wait, and whoever locks the key is not concerned by it.
#[test]
fn a_row_whose_key_stays_is_there() {
    for level in LEVELS {
        let world = world(&[(1, 10)]);
        let mut other = world.begin(Isolation::ReadCommitted);
        for value in [20, 30] {
            let mut statement = other.statement().expect("it begins");
            assert!(matches!(world.set(&mut statement, 1, value), Ok(Changed::Updated(_))));
        }
        let mut tx = world.begin(level);
        world.insert(&mut tx, 7, 70).expect("a fresh row");
        let mut statement = tx.statement().expect("it begins");
        let handle = look(&world, &mut statement, 1).expect("it does not wait").expect("the row is there");
        let locked = block_on(statement.lock_row(
            &world.table,
            &handle,
            LockMode::KeyShare,
            LockWait::NoWait,
            |row| world.decode(&row).0,
        ));
        assert!(matches!(locked, Ok(Locked::Locked(1))), "{level}: {locked:?}");
        drop(statement);
        block_on(other.commit()).expect("nobody competes");
        let mut deletes = world.begin(Isolation::ReadCommitted);
        let mut statement = deletes.statement().expect("it begins");
        let one = key(1);
        let mut delete =
            pin!(statement.change(&world.primary, &one, |_| Ok::<_, Error>((Change::Delete, ()))));
        assert!(
            delete.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(),
            "{level}: the key is locked"
        );
        block_on(tx.commit()).unwrap_or_else(|error| panic!("{level}: {error}"));
    }
}

/// A row that may go is waited for; one that may come is not there yet.
#[test]
fn a_row_that_may_go_is_waited_for() {
    for level in LEVELS {
        let world = world(&[(1, 10), (2, 20)]);
        let mut other = world.begin(Isolation::ReadCommitted);
        let mut statement = other.statement().expect("it begins");
        let deleted =
            block_on(statement.change(&world.primary, &key(1), |_| Ok::<_, Error>((Change::Delete, ()))));
        assert!(matches!(deleted, Ok(Changed::Deleted(()))), "{deleted:?}");
        let renamed = block_on(statement.change(&world.primary, &key(2), |row| {
            row.set_i64(0, 3)?;
            Ok::<_, Error>((Change::Update, ()))
        }));
        assert!(matches!(renamed, Ok(Changed::Updated(()))), "{renamed:?}");
        drop(statement);
        world.insert(&mut other, 4, 40).expect("a fresh row");
        let mut tx = world.begin(level);
        let mut statement = tx.statement().expect("it begins");
        for (id, waits) in [(1, true), (2, true), (3, false), (4, false)] {
            match look(&world, &mut statement, id) {
                None => assert!(waits, "{level}: the look for {id} waits"),
                Some(found) => assert!(!waits && found.is_none(), "{level}: {id} is found: {found:?}"),
            }
        }
        drop(statement);
        other.rollback();
        let mut statement = tx.statement().expect("it begins");
        for (id, there) in [(1, true), (2, true), (3, false), (4, false)] {
            let found = look(&world, &mut statement, id).expect("nobody is in the way");
            assert_eq!(found.is_some(), there, "{level}: {id}");
        }
    }
}
