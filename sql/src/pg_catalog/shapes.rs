//! The columns of views, for the system catalogs that list them.
//!
//! The catalogs list the columns of views, and a view may read the catalogs: so columns are asked of a catalog whose system tables
//! list no columns of views. It is asked for columns only, which are the same for every system table whatever its rows are.
//!
//! Rules:
//! - [`Shapes::of`] binds each view once; the views that it reads are known before, so that a chain of them is no recursion.
//! - A view that cannot be bound (any more), or reads itself, has no columns.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::tables;
use crate::bind::Binder;
use crate::catalog::{Catalog, System, Table};
use crate::objects::Objects;
use crate::objects::sequences::SessionSequences;
use crate::types::{Column, Local};

/// A catalog that is asked for columns of views.
pub(super) struct Shapes<'c> {
    inner: &'c dyn Catalog,
    known: RefCell<HashMap<String, Vec<Column>>>,
}

impl<'c> Shapes<'c> {
    pub(super) fn new(inner: &'c dyn Catalog) -> Self {
        Self { inner, known: RefCell::default() }
    }

    /// The columns of a view.
    pub(super) fn of(&self, name: &str) -> Vec<Column> {
        let mut begun: HashSet<&str> = HashSet::new();
        let mut waiting = vec![name];
        let objects = self.inner.objects();
        while let Some(view) = waiting.pop() {
            if self.known.borrow().contains_key(view) {
                continue;
            }
            let Some(row) = objects.view(view) else { continue };
            if begun.insert(view) {
                // It comes again when those that it reads are known.
                waiting.push(view);
                waiting.extend(row.reads.iter().map(String::as_str).filter(|read| !begun.contains(read)));
                continue;
            }
            let bound = Binder::new(self, Vec::new(), Local::default()).over_public().columns_of_view(view);
            self.known.borrow_mut().insert(view.to_owned(), bound.unwrap_or_default());
        }
        self.known.borrow().get(name).cloned().unwrap_or_default()
    }
}

impl Catalog for Shapes<'_> {
    fn table(&self, name: &str) -> Option<Arc<Table>> {
        self.inner.table(name)
    }

    fn has_table(&self, name: &str) -> bool {
        self.inner.has_table(name)
    }

    fn path(&self) -> &[String] {
        self.inner.path()
    }

    fn names(&self) -> Vec<String> {
        self.inner.names()
    }

    fn objects(&self) -> &Objects {
        self.inner.objects()
    }

    fn common(&self) -> Option<&crate::shared::Common> {
        self.inner.common()
    }

    fn sequences(&self) -> &SessionSequences {
        self.inner.sequences()
    }

    fn pg_table(&self, schema: &str, name: &str) -> Option<System> {
        tables::columns_only(self, schema, name)
    }

    fn definitions(&self, constraints: bool) -> Vec<(i64, String)> {
        tables::definitions(self, constraints)
    }

    fn relation_names(&self) -> Vec<(i64, String)> {
        tables::names(self)
    }

    fn schema_names(&self) -> Vec<(i64, String)> {
        self.inner.schema_names()
    }

    fn comments(&self) -> Vec<(i64, i64, String)> {
        Vec::new()
    }

    fn size(&self, _: &str) -> u64 {
        0
    }

    fn view_texts(&self) -> Vec<(i64, String)> {
        Vec::new()
    }

    fn view_columns(&self, name: &str) -> Option<Vec<Column>> {
        // One that is not known yet reads itself.
        Some(self.known.borrow().get(name).cloned().unwrap_or_default())
    }
}
