//! Unique indexes that are no constraints: CREATE UNIQUE INDEX makes one, UNIQUE in a table a constraint; the engine does not tell
//! them apart, so that a row of the system tables does.

use super::{Answer, Session};
use crate::error::Result;
use crate::system::Change;
use crate::system::rows::{Kind, Object, UniqueIndexRow};

impl Session {
    /// Notes an index that CREATE INDEX has made.
    pub(super) async fn index_made(&mut self, table: &str, name: &str, unique: bool) -> Result<Answer> {
        if unique {
            let object = Object::UniqueIndex(UniqueIndexRow {});
            self.record(&[Change::Put(table.to_owned(), name.to_owned(), object)]).await?;
        }
        Ok(Answer::tagged("CREATE INDEX"))
    }

    /// Forgets what is noted of an index that is gone.
    pub(super) async fn index_gone(&mut self, table: &str, name: &str) -> Result<()> {
        if !self.objects.is_unique_index(table, name) {
            return Ok(());
        }
        self.record(&[Change::Remove((Kind::UniqueIndex, table.to_owned(), name.to_owned()))]).await
    }
}
