//! Migration, promotion and cleaning step by step, for tests and benchmarks that decide themselves what moves when.

use std::sync::Arc;

use thermocline_base::ids::RowId;
use thermocline_base::multiplex::block_on;
use thermocline_base::sync::Ordering;

use crate::api::{Database, Table};
use crate::catalog::table::TableEntry;
use crate::error::Result;
use crate::hot::store::RowAbsent;
use crate::ops::freeze::Settled;
use crate::ops::migrate::Migration;
use crate::session::db::Inner;

/// Drives what is cold by hand.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct ColdSteps {
    inner: Arc<Inner>,
}

impl Database {
    /// Migration, promotion and cleaning for a test to drive.
    #[doc(hidden)]
    #[must_use]
    pub fn cold_steps(&self) -> ColdSteps {
        ColdSteps { inner: Arc::clone(self.inner()) }
    }
}

impl ColdSteps {
    /// Migrates the rows of a table that `which` accepts, in batches; how many have moved.
    ///
    /// # Errors
    /// The log or the cold store fails.
    pub fn migrate(
        &self,
        table: &Table,
        mut which: impl FnMut(&[u8]) -> bool,
        batch_rows: usize,
    ) -> Result<usize> {
        let mut moved = 0;
        let rows = self.rows(&table.entry, &mut which);
        for rows in rows.chunks(batch_rows.max(1)) {
            moved += self.migrate_rows(table, rows)?.rows;
        }
        Ok(moved)
    }

    /// The same for one batch, not blocking.
    ///
    /// # Errors
    /// The log or the cold store fails.
    pub async fn migrate_batch(&self, table: &Table, mut which: impl FnMut(&[u8]) -> bool) -> Result<usize> {
        let rows = self.rows(&table.entry, &mut which);
        Ok(crate::ops::migrate::migrate(&self.inner, &table.entry, &rows).await?.rows)
    }

    /// A round of the governor as if memory were at its end: chooses rows of all tables, migrates them in batches, brings
    /// others back, prunes and shrinks. How many rows have left memory. Blocks while the store works.
    #[must_use]
    pub fn press(&self) -> usize {
        crate::governor::press(&self.inner)
    }

    /// The rows of a table that `which` accepts, in batches for [`ColdSteps::migrate_listed`].
    #[must_use]
    pub fn batches(
        &self,
        table: &Table,
        mut which: impl FnMut(&[u8]) -> bool,
        batch_rows: usize,
    ) -> Vec<Vec<RowId>> {
        let rows = self.rows(&table.entry, &mut which);
        rows.chunks(batch_rows.max(1)).map(<[RowId]>::to_vec).collect()
    }

    /// Migrates a batch of them; how many have moved.
    ///
    /// # Errors
    /// The log or the cold store fails.
    pub fn migrate_listed(&self, table: &Table, rows: &[RowId]) -> Result<usize> {
        Ok(self.migrate_rows(table, rows)?.rows)
    }

    pub(crate) fn migrate_rows(&self, table: &Table, rows: &[RowId]) -> Result<Migration> {
        block_on(crate::ops::migrate::migrate(&self.inner, &table.entry, rows))
    }

    fn rows(&self, entry: &TableEntry, which: &mut dyn FnMut(&[u8]) -> bool) -> Vec<RowId> {
        let guard = self.inner.epochs.pin();
        let form = entry.form_pinned(&guard);
        let mut rows = Vec::new();
        let _ = form.store.for_each_row(&guard, |row, version| {
            if !version.is_tombstone() && which(form.row(version)) {
                rows.push(row);
            }
            Ok::<(), RowAbsent>(())
        });
        rows
    }

    /// Freezes all rows of a table that may freeze, however few: how many are frozen in chunks that were.
    ///
    /// # Errors
    /// There is no room.
    pub fn freeze(&self, table: &Table) -> Result<u64> {
        Ok(crate::ops::freeze::freeze_table(&self.inner, &table.entry, Settled::ANY)?.rows)
    }

    /// Lets all rows of a paged table go over that may, however few: how many have. Then no page of the paged side stays in memory that nobody looks
    /// at.
    ///
    /// # Errors
    /// There is no room, or no paged side.
    pub fn page_out(&self, table: &Table) -> Result<u64> {
        let over = crate::ops::page::page_table(&self.inner, &table.entry, Settled::ANY)?.rows;
        if let Some(paged) = self.inner.paged.get() {
            paged.let_pages_go();
        }
        Ok(over)
    }

    /// Thaws all rows of a table.
    ///
    /// # Errors
    /// There is no room.
    pub fn thaw(&self, table: &Table) -> Result<u64> {
        crate::ops::freeze::thaw_table(&self.inner, &table.entry)
    }

    /// Lets all frozen chunks of a table leave memory that may: how many rows have left.
    ///
    /// # Errors
    /// The log or the cold store fails.
    pub fn leave(&self, table: &Table) -> Result<usize> {
        let chunks = {
            let guard = self.inner.epochs.pin();
            table.entry.form_pinned(&guard).store.directory.len()
        };
        let mut rows = 0;
        for number in 0..chunks {
            rows += block_on(crate::ops::leave::leave_chunk(&self.inner, &table.entry, number))?
                .map_or(0, |left| left.rows);
        }
        Ok(rows)
    }

    /// The same for one chunk, not blocking. `None`: it may not leave, or was given up.
    ///
    /// # Errors
    /// The log or the cold store fails.
    pub async fn leave_chunk(&self, table: &Table, number: u32) -> Result<Option<usize>> {
        Ok(crate::ops::leave::leave_chunk(&self.inner, &table.entry, number).await?.map(|left| left.rows))
    }

    /// The same for one of the chunks that may leave, whichever `choice` says. How many rows have left.
    ///
    /// # Errors
    /// The log or the cold store fails.
    pub async fn leave_one(&self, table: &Table, choice: u64) -> Result<usize> {
        let chunks = {
            let guard = self.inner.epochs.pin();
            table.entry.form_pinned(&guard).store.directory.len()
        };
        let may: Vec<u32> = (0..chunks)
            .filter(|chunk| crate::ops::leave::may_leave(&self.inner, &table.entry, *chunk))
            .collect();
        let Some(chunk) = may.get((choice % may.len().max(1) as u64) as usize) else { return Ok(0) };
        Ok(crate::ops::leave::leave_chunk(&self.inner, &table.entry, *chunk)
            .await?
            .map_or(0, |left| left.rows))
    }

    /// Chunks that have left memory whole since the database was opened.
    #[must_use]
    pub fn left_chunks(&self) -> u64 {
        self.inner.cold.get().map_or(0, |cold| cold.counters.left_chunks.load(Ordering::Relaxed))
    }

    /// Lets go in memory what has left it and nobody can see there: how many rows.
    pub fn clear_left(&self) -> usize {
        crate::ops::leave::clear_left(&self.inner, usize::MAX)
    }

    /// Brings the row with this primary key back. `false`: it cannot be, or is in memory.
    ///
    /// # Errors
    /// The log or the cold store fails.
    pub fn promote(&self, table: &Table, key: &[u8]) -> Result<bool> {
        block_on(crate::ops::promote::promote(&self.inner, &table.entry, key))
    }

    /// The same, not blocking.
    ///
    /// # Errors
    /// The log or the cold store fails.
    pub async fn promote_one(&self, table: &Table, key: &[u8]) -> Result<bool> {
        crate::ops::promote::promote(&self.inner, &table.entry, key).await
    }

    /// A round of cleaning, not blocking. `false`: there was nothing to do.
    ///
    /// # Errors
    /// The log or the cold store fails.
    pub async fn clean_once(&self) -> Result<bool> {
        Ok(!crate::ops::clean::clean(&self.inner).await?.is_empty())
    }

    /// One write of what waits for the disk in a store without threads. `false`: there was none.
    #[must_use]
    pub fn store_writes(&self) -> bool {
        self.inner.cold.get().is_some_and(|cold| cold.store.step(false))
    }

    /// One step of the work in the background of a store without threads. `false`: there was none.
    #[must_use]
    pub fn store_work(&self) -> bool {
        self.inner.cold.get().is_some_and(|cold| cold.store.step(true))
    }

    /// True while a reader waits for a page of a paged table. Such a wait ends by itself.
    #[must_use]
    pub fn pages_awaited(&self) -> bool {
        self.inner.paged.get().is_some_and(|paged| paged.is_awaited())
    }

    /// Was the table emptied? Its records of before may be in the store still.
    #[must_use]
    pub fn was_emptied(&self, table: &Table) -> bool {
        table.with_form(|form| form.emptied.get().0 > 0)
    }

    /// Who is open and waits for whom, and what is under way between memory and the store: for who looks into a hang.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut lines = vec![format!("clock {}", self.inner.registry.clock.now().0)];
        lines.extend(self.inner.registry.describe());
        if let Some(cold) = self.inner.cold.get() {
            let progress = cold.progress.lock();
            lines.push(format!(
                "batches under way {:?}, cleaning {}, removals to be noted {}, undecided batches {:?}",
                progress.running,
                progress.cleaning,
                progress.removed.len(),
                cold.store.unconfirmed(),
            ));
        }
        lines.join("\n")
    }

    /// Is there a cold store?
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.inner.cold.get().is_some()
    }

    /// Batches of which the store does not know whether they stay.
    #[must_use]
    pub fn undecided(&self) -> usize {
        self.inner.cold.get().map_or(0, |cold| cold.store.unconfirmed().len())
    }

    /// One round of cleaning. `false`: there was nothing to do.
    ///
    /// # Errors
    /// The log or the cold store fails.
    pub fn clean(&self) -> Result<bool> {
        Ok(!block_on(crate::ops::clean::clean(&self.inner))?.is_empty())
    }

    /// Cleans nothing any more, as while a backup copies records: all notices of now and later stay in the memo.
    ///
    /// # Errors
    /// The cold store cannot be opened.
    pub fn stop_cleaning(&self) -> Result<()> {
        crate::ops::migrate::open_cold(&self.inner)?.1.progress.lock().no_cleaning += 1;
        Ok(())
    }

    /// Changes how many bytes of pages the store may cache; a new memory limit changes it again.
    ///
    /// # Errors
    /// The cold store cannot be opened.
    pub fn set_frame_bytes(&self, bytes: u64) -> Result<()> {
        crate::ops::migrate::open_cold(&self.inner)?.1.store.set_frame_bytes(bytes);
        Ok(())
    }

    /// Notices in the memo: of batches, and of ends.
    #[must_use]
    pub fn notices(&self) -> (usize, usize) {
        let Some(memo) = self.inner.cold.memo() else { return (0, 0) };
        let guard = self.inner.epochs.pin();
        let count = |entry: &TableEntry| {
            let mut count = 0;
            let _ = entry.form_pinned(&guard).store.for_each_row(&guard, |_, version| {
                count += usize::from(!version.is_tombstone());
                Ok::<(), RowAbsent>(())
            });
            count
        };
        (count(&memo.batches), count(&memo.ends))
    }

    /// Rows of a table that are in memory.
    #[must_use]
    pub fn rows_in_memory(&self, table: &Table) -> usize {
        self.rows(&table.entry, &mut |_| true).len()
    }

    /// Records under a primary key in the store, whatever the memo says of them.
    #[must_use]
    pub fn records(&self, table: &Table, key: &[u8]) -> usize {
        let Some(cold) = self.inner.cold.get() else { return 0 };
        let index = crate::cold::store::primary_of(table.entry.id);
        cold.finish(cold.store.get(index, key)).map_or(0, |found| found.len())
    }
}
