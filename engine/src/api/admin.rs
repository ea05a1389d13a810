//! Administration: checkpoints, copies, checks, freezing, definitions that tell how far they are.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use thermocline_base::io::{Io, StdIo, SystemIo};

use super::{Database, Index};
use crate::error::{Error, Result};
use crate::freezer::Freezer;
use crate::ops::backup::{self, BackupProgress};
use crate::ops::checkpoint;
use crate::ops::define::ColumnChange;
use crate::ops::freeze::{Freezing, Settled};
use crate::ops::page::WentOver;
use crate::ops::progress::{Advance, DefinitionProgress};
use crate::ops::restore::restore;
use crate::ops::verify::{Verification, verify};
use crate::options::ColdStoreKind;
use crate::row::Column;
use crate::schema::{IndexSchema, Tiering};

impl Database {
    /// Copies the database into `directory`, which must be empty or missing, while it goes on working. The copy opens
    /// as a database and has everything that was committed before the call.
    ///
    /// # Errors
    /// The directory is not empty; the database is in memory, read-only or keeps no log; the disk is full or failed. What
    /// was written of the copy is removed then.
    pub fn backup(&self, directory: impl AsRef<Path>) -> Result<()> {
        self.backup_with(directory, |_| ControlFlow::Continue(()))
    }

    /// As [`Database::backup`], and tells how far it is, every some megabytes. `Break` ends it.
    ///
    /// # Errors
    /// As [`Database::backup`], and when it was ended.
    pub fn backup_with(
        &self,
        directory: impl AsRef<Path>,
        mut told: impl FnMut(BackupProgress) -> ControlFlow<()>,
    ) -> Result<()> {
        backup::copy(self.inner(), directory.as_ref(), &mut told)
    }

    /// Makes a checkpoint now, and returns when it is durable. A database that keeps no log (`durability = off`) makes
    /// one only when it is closed: without a log, images of different moments do not fit together.
    ///
    /// # Errors
    /// The disk is full or failed; the checkpoint before stays valid.
    pub fn checkpoint(&self) -> Result<()> {
        checkpoint::now(self.inner())
    }

    /// Copies the database in `from`, which no process has open for writing, into `to`, which must be empty or missing, and
    /// checks every checksum of the copy. Tells how far it is; `Break` ends it. The backup is not changed.
    ///
    /// # Errors
    /// `from` is no database or damaged, `to` is not empty, the disk is full or failed, and when it was ended. What was
    /// written of the copy is removed then.
    pub fn restore(
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        mut told: impl FnMut(BackupProgress) -> ControlFlow<()>,
    ) -> Result<()> {
        restore(&(Arc::new(SystemIo::new()) as Arc<dyn Io>), from.as_ref(), to.as_ref(), &mut told)
    }

    /// Reads every file of the database in this directory and checks every checksum, and changes nothing: what a start would
    /// repair of a crash's last write is repaired in memory. No process may have the database open for writing.
    ///
    /// # Errors
    /// The directory is no database, is open, or cannot be read at all. Damage is a finding, not an error.
    pub fn verify(directory: impl AsRef<Path>) -> Result<Verification> {
        verify(directory.as_ref(), &(Arc::new(StdIo) as Arc<dyn Io>))
    }

    /// Which kind of cold store the database in this directory has; `None`: no row has left memory yet, or what had
    /// left it was in memory only. Opens nothing.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn cold_store_in(directory: impl AsRef<Path>) -> Result<Option<ColdStoreKind>> {
        Ok(crate::cold::kind_in(&StdIo, &crate::cold::location::find(&StdIo, directory.as_ref())?)?)
    }

    /// Compresses the rows of a table in memory, now and in place: chunk by chunk, beside transactions, which go on as before.
    /// Rows that are being changed stay as they are, and so does a last chunk that is less than a quarter full. A frozen row
    /// is read at some hundred nanoseconds more; a change makes an ordinary row of it first. Nothing about a row changes by
    /// that. Blocks the calling thread.
    ///
    /// # Errors
    /// [`Error::UnknownTable`]; [`Error::ReadOnly`]: the database is open for reading; [`Error::OutOfMemory`]: there is no room for
    /// one more block beside its rows. What was frozen by then stays so.
    pub fn freeze(&self, table: &str) -> Result<Freezing> {
        if self.inner().options.read_only {
            return Err(Error::ReadOnly);
        }
        let entry = self.table(table)?.entry;
        crate::ops::freeze::freeze_table(self.inner(), &entry, Settled::MOST)
    }

    /// Makes ordinary rows of all frozen rows of a table: how many. Blocks the calling thread.
    ///
    /// # Errors
    /// As [`Database::freeze`]; what was thawed by then stays so.
    pub fn thaw(&self, table: &str) -> Result<u64> {
        let entry = self.table(table)?.entry;
        crate::ops::freeze::thaw_table(self.inner(), &entry)
    }

    /// Lets all rows of a table go over to the paged side, now, but for the last ones where they came in just now, and what is in use. They come back as they
    /// are used. The table is `paged`. Nothing about a row changes by that. Blocks the calling thread.
    ///
    /// # Errors
    /// [`Error::UnknownTable`]; [`Error::ReadOnly`]; [`Error::InvalidOption`]: the table is not `paged`; [`Error::Paged`]: the paged side cannot be
    /// had, or not be written; [`Error::OutOfMemory`]: there is no room for what is written beside the rows. What has gone over by then stays so.
    pub fn page_out(&self, table: &str) -> Result<WentOver> {
        if self.inner().options.read_only {
            return Err(Error::ReadOnly);
        }
        let entry = self.table(table)?.entry;
        let tiering = entry.form_pinned(&self.inner().epochs.pin()).schema.row_tiering();
        if tiering != Tiering::Paged {
            return Err(Error::InvalidOption {
                option: "tiering",
                reason: format!("the rows of table {table:?} do not go over: it is {tiering}, not paged"),
            });
        }
        crate::ops::page::page_table(self.inner(), &entry, Settled::MOST)
    }

    /// As [`Database::create_index`], and tells how far it is, every thousand rows. `Break` ends it: there is no index then.
    ///
    /// `told` runs on this thread, mostly while the table is held: it must not use the table, and not block for long.
    ///
    /// # Errors
    /// As [`Database::create_index`], and when it was ended.
    pub fn create_index_with(
        &self,
        table: &str,
        index: IndexSchema,
        mut told: impl FnMut(DefinitionProgress) -> ControlFlow<()>,
    ) -> Result<Index> {
        let mut advance = Advance::new(&mut told);
        self.create_index_telling(table, &index, &mut advance)
    }

    /// As [`Database::add_column`], and tells how far it is, every thousand rows. `Break` ends it: there is no column then.
    ///
    /// `told` runs on this thread, mostly while the table is held: it must not use the table, and not block for long.
    ///
    /// # Errors
    /// As [`Database::add_column`], and when it was ended.
    pub fn add_column_with(
        &self,
        table: &str,
        column: Column,
        mut told: impl FnMut(DefinitionProgress) -> ControlFlow<()>,
    ) -> Result<()> {
        let change = ColumnChange::added(table, &column)?;
        self.change_columns_telling(table, &change, Advance::new(&mut told))
    }

    /// As [`Database::drop_column`], and tells how far it is, every thousand rows. `Break` ends it: the column stays then.
    ///
    /// `told` runs on this thread, mostly while the table is held: it must not use the table, and not block for long.
    ///
    /// # Errors
    /// As [`Database::drop_column`], and when it was ended.
    pub fn drop_column_with(
        &self,
        table: &str,
        column: &str,
        mut told: impl FnMut(DefinitionProgress) -> ControlFlow<()>,
    ) -> Result<()> {
        let change = ColumnChange::Dropped(column.to_owned());
        self.change_columns_telling(table, &change, Advance::new(&mut told))
    }

    /// A thread that freezes, for a test to drive.
    #[doc(hidden)]
    #[must_use]
    pub fn freezer(&self) -> Freezer {
        Freezer::new(self.inner(), 0, 1)
    }
}
