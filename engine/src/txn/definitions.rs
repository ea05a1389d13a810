//! What a transaction has changed of definitions: seen by it at once, by everybody when it commits, by nobody when it rolls back.
//!
//! - The tables whose definition it changes are its own until it ends ([`crate::catalog::hold`]), and so are the names that it
//!   gives or takes away ([`crate::catalog::Catalog::claim`]).
//! - Each change leaves a new form of its table, which the transaction's list of tables and the table's entry lead to. The form
//!   before stays: what the transaction has read, written and locked names forms. A rollback to a savepoint goes back to it.
//! - Nothing of this is under a lock of the process: a transaction may rest in the middle of its changes.

use std::collections::HashMap;
use std::sync::Arc;

use thermocline_base::ids::fresh_number;
use thermocline_base::sync::Mutex;
use thermocline_pool::store::IndexId as StoreIndex;

use crate::catalog::Catalog;
use crate::catalog::table::{FormRef, TableEntry, TableForm};
use crate::hot::store::Store;

/// The names of tables as a transaction has changed them; its handles share them.
#[derive(Debug, Default)]
pub(crate) struct Names(Mutex<HashMap<String, Option<Arc<TableEntry>>>>);

impl Names {
    /// The table that the transaction finds under a name.
    pub(crate) fn find(&self, catalog: &Catalog, name: &str) -> Option<Arc<TableEntry>> {
        match self.0.lock().get(name) {
            Some(own) => own.clone(),
            None => catalog.by_name(name),
        }
    }

    /// All names that it finds, ordered.
    pub(crate) fn all(&self, catalog: &Catalog) -> Vec<String> {
        let mut names = catalog.names();
        let own = self.0.lock();
        names.retain(|name| !own.contains_key(name));
        names.extend(own.iter().filter(|(_, entry)| entry.is_some()).map(|(name, _)| name.clone()));
        names.sort_unstable();
        names
    }

    /// Gives a name to a table, or takes it away; what it stood for, if the transaction had changed that.
    fn set(&self, name: &str, entry: Option<Arc<TableEntry>>) -> Option<Option<Arc<TableEntry>>> {
        self.0.lock().insert(name.to_owned(), entry)
    }

    fn set_back(&self, name: &str, before: Option<Option<Arc<TableEntry>>>) {
        let mut names = self.0.lock();
        match before {
            Some(before) => names.insert(name.to_owned(), before),
            None => names.remove(name),
        };
    }
}

/// A form that the transaction has made, which is its to free or to give to everybody.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OwnForm(*mut TableForm);

// SAFETY: forms are shared between threads; the owner is the transaction, wherever it goes.
unsafe impl Send for OwnForm {}

impl OwnForm {
    pub(crate) fn new(form: TableForm) -> Self {
        Self(Box::into_raw(Box::new(form)))
    }

    /// A form that everybody had, and that has been replaced.
    ///
    /// # Safety
    /// The pointer is that of a form's box, and nobody else frees it.
    pub(crate) unsafe fn replaced(form: *mut TableForm) -> Self {
        Self(form)
    }

    pub(crate) fn pointer(&self) -> *mut TableForm {
        self.0
    }

    pub(crate) fn reference(&self) -> FormRef {
        FormRef::own(self.0)
    }

    /// The form, to be freed; nobody of the transaction follows it any more.
    pub(crate) fn into_box(self) -> Box<TableForm> {
        // SAFETY: the pointer came from a box, and is given away here only.
        unsafe { Box::from_raw(self.0) }
    }
}

/// What became of a table by one change.
#[derive(Debug)]
pub(crate) enum What {
    /// It was made. Its first form is the entry's own.
    Created,
    /// It has another form.
    Altered {
        form: OwnForm,
        /// The pending form before; none: the one that everybody has.
        before: *mut TableForm,
    },
    /// It goes.
    Dropped,
}

/// One change.
#[derive(Debug)]
pub(crate) struct Changed {
    pub(crate) entry: Arc<TableEntry>,
    pub(crate) what: What,
    /// Where the table stands in the list of those that the transaction uses, and its form there before.
    pub(crate) touched: usize,
    pub(crate) form_before: FormRef,
    /// An index with entries in the cold store, which go if the change is undone.
    pub(crate) cold_index: Option<StoreIndex>,
    /// Names that stood for something else before.
    names: Vec<(String, Option<Option<Arc<TableEntry>>>)>,
}

// SAFETY: as for `OwnForm`.
unsafe impl Send for Changed {}

impl Changed {
    pub(crate) fn new(entry: &Arc<TableEntry>, what: What, touched: usize, form_before: FormRef) -> Self {
        let entry = Arc::clone(entry);
        Self { entry, what, touched, form_before, cold_index: None, names: Vec::new() }
    }
}

/// All changes of a transaction.
#[derive(Debug)]
pub(crate) struct Definitions {
    /// Tells the handles of the transaction from others.
    pub(crate) number: u64,
    pub(crate) names: Arc<Names>,
    pub(crate) changes: Vec<Changed>,
    /// Tables that are the transaction's until it ends, or goes back to before.
    pub(crate) held: Vec<Arc<TableEntry>>,
    /// Names that are.
    pub(crate) claimed: Vec<String>,
    /// What was undone, and is followed by what the transaction has read since.
    pub(crate) undone: Vec<Changed>,
    /// Forms that its commit has replaced.
    pub(crate) replaced: Vec<OwnForm>,
    /// Stores of rows that are nobody's when it commits: of tables that it has emptied, written anew or dropped.
    dead: Vec<*const Store>,
}

// SAFETY: the pointers are compared, and never followed.
unsafe impl Send for Definitions {}

impl Definitions {
    pub(crate) fn new() -> Self {
        Self {
            number: fresh_number(),
            names: Arc::default(),
            changes: Vec::new(),
            held: Vec::new(),
            claimed: Vec::new(),
            undone: Vec::new(),
            replaced: Vec::new(),
            dead: Vec::new(),
        }
    }

    /// Enters a change, with the names that it gives or takes away.
    pub(crate) fn enter(&mut self, mut change: Changed, names: Vec<(String, Option<Arc<TableEntry>>)>) {
        for (name, entry) in names {
            let before = self.names.set(&name, entry);
            change.names.push((name, before));
        }
        self.changes.push(change);
    }

    /// Takes the last change off the list, and its names back.
    pub(crate) fn take_last(&mut self) -> Option<Changed> {
        let mut change = self.changes.pop()?;
        while let Some((name, before)) = change.names.pop() {
            self.names.set_back(&name, before);
        }
        Some(change)
    }

    /// Was the table made by this transaction?
    pub(crate) fn has_made(&self, entry: &TableEntry) -> bool {
        self.changes.iter().any(|change| {
            matches!(change.what, What::Created) && std::ptr::eq(Arc::as_ptr(&change.entry), entry)
        })
    }

    /// The tables that were changed, each once, in the order of their first change.
    pub(crate) fn tables(&self) -> Vec<Arc<TableEntry>> {
        let mut tables: Vec<Arc<TableEntry>> = Vec::new();
        for change in &self.changes {
            if !tables.iter().any(|known| Arc::ptr_eq(known, &change.entry)) {
                tables.push(Arc::clone(&change.entry));
            }
        }
        tables
    }

    /// Has the transaction dropped the table?
    pub(crate) fn has_dropped(&self, entry: &TableEntry) -> bool {
        self.changes.iter().any(|change| {
            matches!(change.what, What::Dropped) && std::ptr::eq(Arc::as_ptr(&change.entry), entry)
        })
    }

    /// The form in which the transaction leaves a table that it has changed and not dropped.
    pub(crate) fn last_form(&self, entry: &TableEntry) -> Option<FormRef> {
        let of_table = |change: &&Changed| std::ptr::eq(Arc::as_ptr(&change.entry), entry);
        self.changes.iter().rev().find(of_table).map(|change| match &change.what {
            What::Altered { form, .. } => form.reference(),
            What::Created | What::Dropped => change.form_before,
        })
    }

    /// The transaction begins to commit: notes whose rows are none of what it leaves.
    pub(crate) fn note_dead(&mut self) {
        self.dead.clear();
        for change in &self.changes {
            let lives = !self.has_dropped(&change.entry);
            let kept =
                self.last_form(&change.entry).filter(|_| lives).map(|form| Arc::as_ptr(&form.get().store));
            let before = Arc::as_ptr(&change.form_before.get().store);
            let after = match &change.what {
                What::Altered { form, .. } => Arc::as_ptr(&form.reference().get().store),
                What::Created | What::Dropped => before,
            };
            let dead = [before, after].into_iter().filter(|store| Some(*store) != kept);
            self.dead.extend(dead);
        }
    }

    /// Are rows of this form part of what the commit leaves?
    pub(crate) fn are_left(&self, form: FormRef) -> bool {
        !self.dead.contains(&Arc::as_ptr(&form.get().store))
    }
}
