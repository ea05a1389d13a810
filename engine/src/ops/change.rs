//! Changing a row by a closure that sees its newest version and says what becomes of it: the writing operation of statements.
//!
//! | the row's newest version is | at read committed | above |
//! |---|---|---|
//! | what the view sees | is shown to the closure | the same |
//! | another transaction's, finished | is shown, unless it has another key than was asked for | serialization failure |
//! | another transaction's, not finished | is waited for | the same |
//! | this statement's own | by this statement | the same |
//! | gone | gone | serialization failure |
//! | not to be found any more | lost: the statement has to be repeated | serialization failure |

use std::sync::Arc;

use thermocline_base::epoch::Guard;
use thermocline_base::ids::IndexId;
use thermocline_base::sync::Backoff;

use crate::catalog::table::{FormRef, TableEntry};
use crate::error::{Error, Result};
use crate::ops::handle::RowHandle;
use crate::ops::target::{Place, Purpose, Sought};
use crate::ops::{Step, step};
use crate::row::RowEditor;
use crate::session::Session;

/// What a closure says becomes of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// It is what the editor has now. A new version is written even if no column has changed.
    Update,
    /// It is deleted.
    Delete,
    /// It stays as it is, and nothing is written.
    Leave,
}

/// What a change of one row came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a row may be gone, or its trail lost"]
pub enum Changed<R> {
    /// It was updated.
    Updated(R),
    /// It was deleted.
    Deleted(R),
    /// The closure has left it.
    Left(R),
    /// There is no such row, or not any more.
    Gone,
    /// The statement has written the row itself before: a statement changes a row once.
    ByStatement,
    /// At read committed: other transactions have changed and moved the row since the statement's snapshot, and nobody knows
    /// any more where it is. Take the statement back ([`Statement::undo`](crate::Statement::undo)) and repeat it.
    Lost,
}

/// How the row is named that is to be changed or locked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Named<'a> {
    Key(IndexId, &'a [u8]),
    Handle(&'a RowHandle),
}

/// The rows of the last change, before and after.
#[derive(Debug, Default)]
pub(crate) struct BothRows {
    pub(crate) old: Vec<u8>,
    pub(crate) new: Vec<u8>,
}

impl BothRows {
    fn fill(&mut self, old: &[u8], new: &[u8]) {
        self.old.clear();
        self.old.extend_from_slice(old);
        self.new.clear();
        self.new.extend_from_slice(new);
    }
}

impl Session {
    /// The row that is named, ready to be changed or locked.
    pub(crate) fn find_named(
        &mut self,
        form_ref: FormRef,
        named: Named<'_>,
        purpose: Purpose,
        guard: &Guard<'_>,
    ) -> Result<Step<Sought>> {
        match named {
            Named::Handle(handle) => self.find_handle_target(form_ref, handle, purpose, guard),
            Named::Key(index, key) => {
                let index = Self::index_for(form_ref.get(), index, key)?;
                self.find_target(form_ref, index, key, purpose, guard)
            }
        }
    }

    /// Changes the row that is named as `decide` says.
    pub(crate) fn try_change<R>(
        &mut self,
        entry: &Arc<TableEntry>,
        named: Named<'_>,
        decide: &mut impl FnMut(&mut RowEditor<'_>) -> Result<(Change, R)>,
        contested: &mut bool,
        rows: &mut BothRows,
    ) -> Result<Step<Changed<R>>> {
        self.must_write()?;
        let form_ref = step!(self.touch(entry)?);
        form_ref.get().must_be_whole()?;
        self.begin_statement();
        let guard = self.db().epochs.pin();
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut backoff = Backoff::new();
        let outcome = loop {
            let place = match self.find_named(form_ref, named, Purpose::Change, &guard) {
                Ok(Step::Done(Sought::At(place))) => place,
                Ok(Step::Done(Sought::Gone)) => break Ok(Step::Done(Changed::Gone)),
                Ok(Step::Done(Sought::ByStatement)) => break Ok(Step::Done(Changed::ByStatement)),
                Ok(Step::Done(Sought::Lost)) => break Ok(Step::Done(Changed::Lost)),
                Ok(Step::Wait(wait)) => break Ok(Step::Wait(wait)),
                Err(error) => break Err(error),
            };
            match self.change_at(form_ref, &place, decide, contested, (&mut scratch, rows), &guard) {
                Ok(Some(step)) => break Ok(step),
                Ok(None) => backoff.wait(),
                Err(error) => break Err(error),
            }
        };
        self.scratch = scratch;
        outcome
    }

    /// Changes the row that stands there. `None`: it changed meanwhile, find it again.
    fn change_at<R>(
        &mut self,
        form_ref: FormRef,
        place: &Place,
        decide: &mut impl FnMut(&mut RowEditor<'_>) -> Result<(Change, R)>,
        contested: &mut bool,
        (scratch, rows): (&mut Vec<u8>, &mut BothRows),
        guard: &Guard<'_>,
    ) -> Result<Option<Step<Changed<R>>>> {
        let form = form_ref.get();
        let before = match place {
            Place::Hot(target) => form.row(target.base),
            Place::Cold(target) => form.row_in(&target.bytes),
        };
        let mut editor = RowEditor::new(&form.layout, before, scratch);
        let (change, result) = decide(&mut editor).map_err(|error| match error {
            Error::Row { source, .. } => Self::row_error(form, source),
            other => other,
        })?;
        let changed = editor.changed_columns().clone();
        let new = match change {
            Change::Leave => return Ok(Some(Step::Done(Changed::Left(result)))),
            Change::Delete => None,
            Change::Update => {
                let row = editor.finish().map_err(|error| Self::row_error(form, error))?;
                Some((row, &changed))
            }
        };
        // Before the target's version can go.
        rows.fill(before, new.map_or(&[], |(row, _)| row));
        let installed = match place {
            Place::Hot(target) => self.install(form_ref, target, new, contested, guard)?,
            Place::Cold(target) => self.install_cold(form_ref, target, new, contested, guard)?,
        };
        Ok(installed.map(|step| match step {
            Step::Done(()) if change == Change::Delete => Step::Done(Changed::Deleted(result)),
            Step::Done(()) => Step::Done(Changed::Updated(result)),
            Step::Wait(wait) => Step::Wait(wait),
        }))
    }
}
