//! Scans by column beside everything that moves rows: each row once, as a scan by row has it, and futures that are dropped anywhere.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::{ColumnScan, Error};

/// Rows of the world: the first eight fill a chunk, which is frozen.
const ROWS: i64 = 9;

fn frozen() -> ColdWorld {
    let rows: Vec<(i64, i64)> = (0..ROWS).map(|id| (id, 10)).collect();
    let world = cold_world(&rows);
    world.store.answer_at_once();
    world.settle();
    world.freeze();
    world.tidy();
    world
}

impl ColdWorld {
    /// Moves one from a row to another, in one transaction: the sum stays.
    fn transfer(&self, from: i64, to: i64) {
        let moved = self.retry(Isolation::Snapshot, |tx| {
            for (id, by) in [(from, -1), (to, 1)] {
                let value = tx.read(id)?.expect("the row is there");
                tx.set(id, value + by)?;
            }
            Ok(())
        });
        moved.expect("it is retried");
    }
}

impl Tx<'_> {
    /// The next batch of a scan. The future is dropped the first times that it would wait.
    fn next_dropped(&mut self, scan: &mut ColumnScan, drops: usize) -> Result<Option<Vec<(i64, i64)>>> {
        let rows = |batch: &crate::columns::Batch| {
            let number = |column: usize, row: usize| match batch.columns()[column].value(row) {
                Value::Int8(number) => number,
                other => panic!("a bigint has the value {other:?}"),
            };
            (0..batch.rows()).map(|row| (number(0, row), number(1, row))).collect()
        };
        for _ in 0..drops {
            let mut next = pin!(self.tx.next_batch(scan));
            if let Poll::Ready(batch) = next.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return Ok(batch?.as_deref().map(rows));
            }
            shuttle::thread::yield_now();
        }
        Ok(block_on(self.tx.next_batch(scan))?.as_deref().map(rows))
    }

    /// All rows that the snapshot sees, each as often as a scan by column shows it.
    fn all_by_column(&mut self, drops: usize) -> Result<Vec<(i64, i64)>> {
        let query = self.tx.scan_columns(&self.world.table).columns(["id", "value"]).batch_rows(3);
        let mut scan = block_on(query.open())?;
        let mut found = Vec::new();
        while let Some(rows) = self.next_dropped(&mut scan, drops)? {
            found.extend(rows);
        }
        found.sort_unstable();
        Ok(found)
    }
}

/// Two scans by column while rows are changed, thaw, freeze anew, leave and come back.
fn lanes_beside_moves() {
    let world = frozen();
    let lane = |drops: usize| {
        move |world: &ColdWorld| {
            let mut tx = world.begin(Isolation::Snapshot);
            let by_column = unharmed(tx.all_by_column(drops));
            (by_column, unharmed(tx.all()))
        }
    };
    let lanes = [0, 3].map(|drops| world.spawn(lane(drops)));
    let writer = world.spawn(|world| {
        world.transfer(1, 8);
        world.thaw(3);
        world.transfer(8, 2);
    });
    let mover = world.spawn(|world| {
        world.freeze();
        world.tidy();
        let left = block_on(crate::ops::leave::leave_chunk(world.db.inner(), &world.table.entry, 0));
        left.expect("the store works");
        crate::ops::leave::clear_left(world.db.inner(), usize::MAX);
        world.promote(5);
        world.clean();
        world.prune();
    });
    let seen = lanes.map(|lane| lane.join().expect("a lane"));
    writer.join().expect("the writer");
    mover.join().expect("the mover");
    for (by_column, by_row) in seen {
        assert_eq!(by_column, by_row, "a scan by column has other rows than one by row");
        let ids: Vec<i64> = by_column.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, (0..ROWS).collect::<Vec<_>>(), "each row is seen once");
        assert_eq!(
            by_column.iter().map(|(_, value)| value).sum::<i64>(),
            10 * ROWS,
            "half of a transfer is seen"
        );
    }
}

#[test]
fn lanes_see_each_row_once_whatever_moves() {
    model::run(600, lanes_beside_moves);
}

/// A snapshot is read by column while others commit.
fn younger_than_the_lane() {
    let rows: Vec<(i64, i64)> = (0..ROWS).map(|id| (id, 10)).collect();
    let world = cold_world(&rows);
    let mut tx = world.begin(Isolation::Snapshot);
    assert_eq!(unharmed(tx.read(0)), Some(10));
    let writer = world.spawn(|world| world.transfer(1, 8));
    let seen = unharmed(tx.all_by_column(0));
    writer.join().expect("the writer");
    assert_eq!(seen, rows, "a snapshot has changed");
}

#[test]
fn plain_slots_have_begun() {
    model::run(500, younger_than_the_lane);
}

#[test]
fn a_slot_that_is_taken_for_a_plain_one_is_caught() {
    misses(Rule::PlainSlotsHaveBegun, 20_000, younger_than_the_lane);
}

/// A lane whose transaction is cancelled or has ended shows nothing more.
#[test]
fn a_lane_ends_with_its_transaction() {
    model::run(1, || {
        let world = frozen();
        let mut tx = world.begin(Isolation::Snapshot);
        let query = tx.tx.scan_columns(&tx.world.table).columns(["id", "value"]).batch_rows(3);
        let mut scan = block_on(query.open()).expect("it opens");
        assert!(tx.next_dropped(&mut scan, 0).expect("a batch").is_some());
        tx.commit().expect("it has only read");
        let mut other = world.begin(Isolation::Snapshot);
        let refused = other.next_dropped(&mut scan, 0);
        assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
    });
}
