//! Reading and scanning, with rows that can be named again: what the operations of transactions and of statements share.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;

use thermocline_base::sync::Ordering;
use thermocline_pool::store::StoreError;

use super::Transaction;
use crate::api::{Index, Table};
use crate::catalog::table::TableEntry;
use crate::cold::cursor::ColdCursor;
use crate::counters::WaitKind;
use crate::error::Result;
use crate::index::tree::Direction;
use crate::ops::handle::{RowHandle, SeenRow};
use crate::ops::scan::{KeyRange, KeyState, ScanState, TableScanState, advance, fetch_ahead_of};
use crate::ops::{Step, Wait};

/// Why a scan stops at a row that it has shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// No more rows are wanted.
    Enough,
    /// Others are to have a turn; the scan goes on behind the row afterwards.
    Pause,
}

/// Pauses if that is why the scan has stopped.
async fn paused(stop: Option<Stop>, pause: &mut impl AsyncFnMut()) -> ControlFlow<()> {
    match stop {
        Some(Stop::Pause) => {
            pause().await;
            ControlFlow::Continue(())
        }
        Some(Stop::Enough) | None => ControlFlow::Break(()),
    }
}

impl Transaction {
    /// Reads the row with this key.
    pub(super) async fn read_row<R>(
        &mut self,
        index: &Index,
        key: &[u8],
        see: impl FnOnce(SeenRow<'_>) -> R,
    ) -> Result<Option<R>> {
        let _busy = self.driver.enter()?;
        self.approach(index, key).await;
        let mut see = Some(see);
        loop {
            match self.driver.session().try_read(&index.entry, index.id, key, &mut see) {
                Ok(Step::Done(result)) => return Ok(result),
                Ok(Step::Wait(wait)) => self.driver.wait(wait).await?,
                Err(error) => return Err(self.driver.failed(error)),
            }
        }
    }

    /// Reads the row of a handle.
    pub(super) async fn read_named<R>(
        &mut self,
        table: &Table,
        handle: &RowHandle,
        see: impl FnOnce(SeenRow<'_>) -> R,
    ) -> Result<Option<R>> {
        let _busy = self.driver.enter()?;
        let mut see = Some(see);
        loop {
            match self.driver.session().try_read_handle(&table.entry, handle, &mut see) {
                Ok(Step::Done(result)) => return Ok(result),
                Ok(Step::Wait(wait)) => self.driver.wait(wait).await?,
                Err(error) => return Err(self.driver.failed(error)),
            }
        }
    }

    /// Reads all rows with this key.
    pub(super) async fn read_rows(
        &mut self,
        index: &Index,
        key: &[u8],
        mut see: impl FnMut(SeenRow<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let _busy = self.driver.enter()?;
        let mut state = KeyState::default();
        loop {
            match self.driver.session().try_read_all(&index.entry, index.id, key, &mut state, &mut see) {
                Ok(Step::Done(())) => return Ok(()),
                Ok(Step::Wait(Wait::ColdScan)) => self.read_cold_on(&index.entry, state.cold()).await?,
                Ok(Step::Wait(wait)) => self.driver.wait(wait).await?,
                Err(error) => return Err(self.driver.failed(error)),
            }
        }
    }

    /// Reads the rows of a range.
    pub(super) async fn scan_rows(
        &mut self,
        index: &Index,
        range: KeyRange<'_>,
        direction: Direction,
        mut see: impl FnMut(SeenRow<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let _busy = self.driver.enter()?;
        let mut state = ScanState::new(range, direction);
        loop {
            match self.driver.session().try_scan(&index.entry, index.id, &mut state, &mut see) {
                Ok(Step::Done(())) => return Ok(()),
                Ok(Step::Wait(Wait::ColdScan)) => self.read_cold_on(&index.entry, state.cold()).await?,
                Ok(Step::Wait(wait)) => self.driver.wait(wait).await?,
                Err(error) => return Err(self.driver.failed(error)),
            }
        }
    }

    /// Reads on in the cold store: entries, and of a secondary index the records that the snapshot may see.
    async fn read_cold_on(&mut self, entry: &Arc<TableEntry>, cursor: &mut Option<ColdCursor>) -> Result<()> {
        let db = self.driver.session().db();
        let read = db.counted(WaitKind::ColdScans, advance(cursor)).await;
        self.read_cold(entry, read)?;
        if let Some(primary) = self.driver.session().look_ahead(entry, cursor) {
            db.counted(WaitKind::ColdScans, fetch_ahead_of(db, cursor, primary)).await;
            self.read_cold(entry, Ok(()))?;
        }
        Ok(())
    }

    /// Reads the rows of a range; where `see` says so, the scan pauses, and goes on behind the row that was shown last.
    pub(super) async fn scan_rows_pausing(
        &mut self,
        index: &Index,
        range: KeyRange<'_>,
        direction: Direction,
        mut see: impl FnMut(SeenRow<'_>) -> ControlFlow<Stop>,
        mut pause: impl AsyncFnMut(),
    ) -> Result<()> {
        let mut busy = self.driver.enter()?;
        let mut state = ScanState::new(range, direction);
        state.pauses = true;
        let stop = Cell::new(None);
        let mut show = |row: SeenRow<'_>| see(row).map_break(|why| stop.set(Some(why)));
        loop {
            match self.driver.session().try_scan(&index.entry, index.id, &mut state, &mut show) {
                Ok(Step::Done(())) if state.finished => return Ok(()),
                Ok(Step::Done(())) => {}
                Ok(Step::Wait(Wait::ColdScan)) => {
                    self.read_cold_on(&index.entry, state.cold()).await?;
                    continue;
                }
                Ok(Step::Wait(wait)) => {
                    self.driver.wait(wait).await?;
                    continue;
                }
                Err(error) => return Err(self.driver.failed(error)),
            }
            // A pause may be long: its snapshot can be cancelled meanwhile, as that of a transaction that rests.
            drop(busy);
            if paused(stop.take(), &mut pause).await.is_break() {
                return Ok(());
            }
            busy = self.driver.enter()?;
        }
    }

    /// Reads all rows of a table, with pauses.
    pub(super) async fn scan_table_rows_pausing(
        &mut self,
        table: &Table,
        mut see: impl FnMut(SeenRow<'_>) -> ControlFlow<Stop>,
        mut pause: impl AsyncFnMut(),
    ) -> Result<()> {
        let mut busy = self.driver.enter()?;
        let mut state = TableScanState::default();
        let stop = Cell::new(None);
        let mut show = |row: SeenRow<'_>| see(row).map_break(|why| stop.set(Some(why)));
        loop {
            match self.driver.session().try_scan_table(&table.entry, &mut state, &mut show) {
                Ok(Step::Done(())) if state.finished => return Ok(()),
                Ok(Step::Done(())) => {}
                Ok(Step::Wait(Wait::ColdScan)) => {
                    let db = self.driver.session().db();
                    let read = db.counted(WaitKind::ColdScans, advance(state.cold())).await;
                    self.read_cold(&table.entry, read)?;
                    continue;
                }
                Ok(Step::Wait(wait)) => {
                    self.driver.wait(wait).await?;
                    continue;
                }
                Err(error) => return Err(self.driver.failed(error)),
            }
            // A pause may be long: its snapshot can be cancelled meanwhile, as that of a transaction that rests.
            drop(busy);
            if paused(stop.take(), &mut pause).await.is_break() {
                return Ok(());
            }
            busy = self.driver.enter()?;
        }
    }

    /// Reads all rows of a table.
    pub(super) async fn scan_table_rows(
        &mut self,
        table: &Table,
        mut see: impl FnMut(SeenRow<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let _busy = self.driver.enter()?;
        let mut state = TableScanState::default();
        loop {
            match self.driver.session().try_scan_table(&table.entry, &mut state, &mut see) {
                Ok(Step::Done(())) => return Ok(()),
                Ok(Step::Wait(Wait::ColdScan)) => {
                    let db = self.driver.session().db();
                    let read = db.counted(WaitKind::ColdScans, advance(state.cold())).await;
                    self.read_cold(&table.entry, read)?;
                }
                Ok(Step::Wait(wait)) => self.driver.wait(wait).await?,
                Err(error) => return Err(self.driver.failed(error)),
            }
        }
    }

    /// Counts a read of the cold store by a scan, and judges its outcome.
    pub(super) fn read_cold(
        &mut self,
        entry: &TableEntry,
        read: std::result::Result<(), StoreError>,
    ) -> Result<()> {
        if let Some(cold) = self.driver.session().db().cold.get() {
            cold.counters.reads.fetch_add(1, Ordering::Relaxed);
        }
        read.map_err(|source| {
            let error = crate::ops::cold::cold_error(self.driver.session().db(), entry, source);
            self.driver.failed(error)
        })?;
        if self.driver.place().cancelled.load(Ordering::Relaxed) != 0 {
            self.driver.check_cancelled()?;
        }
        Ok(())
    }
}
