//! SELECT … FOR UPDATE and its like: rows are locked in the order in which they come, below LIMIT and above ORDER BY.
//!
//! A row that others have changed since the statement's snapshot (at read committed; the other levels fail) is looked at again,
//! under its lock: the plan runs once more with the newest versions of its tables' rows alone. It may be passed over then. As in
//! PostgreSQL its place among the others stays that of the version that was read.

use std::ops::ControlFlow;

use super::change::stale;
use super::source::Locked;
use super::{Executor, KeptRows, Row, Sink, Source};
use crate::error::Result;
use crate::plan::{LockTarget, Plan};
use crate::types::Datum;

impl<'e, S: Source> Executor<'e, S> {
    pub(super) async fn lock(
        &mut self,
        input: &Plan,
        targets: &[LockTarget],
        few: bool,
        outer: &[Datum],
        sink: Sink<'_>,
    ) -> Result<()> {
        // Nothing can be locked while the input is read. So it is read a few rows at a time, from its beginning each time: it
        // shows the statement's snapshot, the same rows in the same order.
        let (mut passed, mut count) = (0, if few { 4 } else { usize::MAX });
        loop {
            let (some, is_all) = self.some_rows(input, outer, passed, count).await?;
            passed += some.rows.len();
            for mut row in some.rows {
                if self.context.is_due() {
                    self.context.pause().await?;
                }
                let Some(newest) = self.lock_row(targets, &row).await? else { continue };
                if !newest.is_empty() {
                    match self.once_more(input, outer, newest).await? {
                        Some(again) => row = again,
                        None => continue,
                    }
                }
                if sink(&mut row)?.is_break() {
                    return Ok(());
                }
            }
            if is_all {
                return Ok(());
            }
            count = count.saturating_mul(4);
        }
    }

    /// So many rows behind the first so many; and whether there are no more.
    async fn some_rows(
        &mut self,
        input: &Plan,
        outer: &[Datum],
        mut passed: usize,
        count: usize,
    ) -> Result<(KeptRows<'e>, bool)> {
        let mut some = KeptRows::none(self.context);
        self.run(input, outer, &mut |row| {
            if passed > 0 {
                passed -= 1;
                return Ok(ControlFlow::Continue(()));
            }
            some.push(row)?;
            Ok(if some.rows.len() == count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })
        .await?;
        let is_all = some.rows.len() < count;
        Ok((some, is_all))
    }

    /// Locks the rows of the tables that this row comes from. Empty: they are as they were read. `None`: one has gone, or is
    /// passed over.
    async fn lock_row(&mut self, targets: &[LockTarget], row: &[Datum]) -> Result<Option<Vec<(usize, Row)>>> {
        let mut newest = Vec::new();
        for target in targets {
            // Null: an outer join has found no row.
            let Datum::Int(number) = &row[target.place] else { continue };
            match self.source.lock(&target.table, *number, target.strength, target.wait).await? {
                Locked::Same => {}
                Locked::Another(row) => newest.push((target.scan, row)),
                Locked::NotThere => return Ok(None),
                Locked::Lost => return Err(stale()),
            }
        }
        if newest.is_empty() {
            return Ok(Some(newest));
        }
        for target in targets {
            if let Datum::Int(number) = &row[target.place]
                && !newest.iter().any(|(scan, _)| *scan == target.scan)
            {
                newest.push((target.scan, self.source.numbered(&target.table, *number).await?));
            }
        }
        Ok(Some(newest))
    }
}
