//! Statements: several operations under one snapshot that do not see what they write themselves.
//!
//! The number of a write is its position in the session's list, so a statement's own writes are those from the length on that
//! the list had when it began. No version header knows of it. A view passes over these writes wherever they stand: a version,
//! the notice that ends a record, a row that was followed to where it had moved.
//!
//! An example: K is a cold record, its transaction T is at 50.
//!
//! | T's statement | writes | a read of K by this statement | by the next one |
//! |---|---|---|---|
//! | 1: reads K | – | the record | the record |
//! | 2: changes K | 0: E ends the record, 1: a version of K in memory | the record: E and the version are passed over | the version |
//!
//! An own version is replaced in place only if no view and no savepoint lies between the two writes. So a statement that
//! changes a row once more leaves the version of an earlier statement below its own, until it ends: then nobody sees that one
//! any more, and it is taken out ([`Session::close_statement`]). A row that a million statements change has two versions of
//! the transaction at most, and one write in its list.

use thermocline_base::epoch::Guard;

use crate::hot::version::{Begin, Version};
use crate::mutation::{self, Rule};
use crate::options::Isolation;
use crate::session::{NO_SNAPSHOT, Session, View};

/// Writes of a statement that its reads look through, before an index is made.
const LOOKED_THROUGH: usize = 32;

impl Session {
    /// Begins a statement.
    pub(crate) fn open_statement(&mut self) {
        let number = self.writes.len();
        self.view = View { hidden_from: number, floor: number, fresh: true, looked: false };
        self.kept_own = false;
    }

    /// An operation of the statement that is open begins: the first one takes the snapshot.
    pub(crate) fn go_on_with_statement(&mut self) {
        let is_first = std::mem::take(&mut self.view.fresh) || mutation::off(Rule::StatementKeepsSnapshot);
        if self.snapshot == NO_SNAPSHOT
            || is_first && self.isolation == Isolation::ReadCommitted && !self.resumed
        {
            self.take_snapshot();
        }
        self.resumed = false;
        if self.unindexed_writes() > LOOKED_THROUGH
            && self.writes.len() - self.view.hidden_from > LOOKED_THROUGH
        {
            self.index_writes(self.writes.len());
        }
    }

    /// Is this own version one that the view passes over?
    #[inline]
    pub(crate) fn hides(&self, own: Version) -> bool {
        self.view.hidden_from < self.writes.len() && self.is_hidden(own)
    }

    #[cold]
    fn is_hidden(&self, own: Version) -> bool {
        self.position_of(own).is_some_and(|number| number >= self.view.hidden_from)
            && mutation::on(Rule::StatementPassesOwn)
    }

    /// Ends the statement. What later statements see is the newest of the transaction's versions of a row: those below, as
    /// far as no savepoint needs them, go.
    pub(crate) fn close_statement(&mut self) {
        let View { hidden_from, .. } = std::mem::take(&mut self.view);
        if std::mem::take(&mut self.kept_own) && hidden_from < self.writes.len() {
            let db = self.db();
            let guard = db.epochs.pin();
            self.merge_writes(hidden_from, &guard);
        }
    }

    /// Takes what the statement has done back, down to its first write, and ends it.
    pub(crate) fn undo_statement(&mut self) {
        let View { hidden_from, .. } = std::mem::take(&mut self.view);
        self.kept_own = false;
        self.undo_step(hidden_from);
    }

    /// Lets the writes from `first` on take the place of earlier ones of the same rows.
    fn merge_writes(&mut self, first: usize, guard: &Guard<'_>) {
        self.unindex_writes(first);
        self.index_writes(first);
        let mut kept = first;
        for at in first..self.writes.len() {
            let write = self.writes[at];
            let below =
                write.replaced.filter(|below| matches!(below.begin(), Begin::By(id) if Some(id) == self.id));
            // Not found: a savepoint lies between the two.
            match below.and_then(|below| Some((below, self.find_indexed(below)?))) {
                Some((below, earlier)) => {
                    let form = write.form.get();
                    let latched = form.store.directory.latch(write.row, guard);
                    let latched = latched.expect("the slot of an uncommitted write is there");
                    assert_eq!(
                        write.version.older(&form.store.memory),
                        Some(below),
                        "what an own version replaces stands below it"
                    );
                    crate::txn::prune::unlink_own(form, &latched, write.version, below, guard);
                    drop(latched);
                    self.rewrite(earlier, write.version);
                }
                _ => {
                    self.writes[kept] = write;
                    kept += 1;
                }
            }
        }
        self.writes.truncate(kept);
    }
}
