//! Rows of a table of functions, operators or aggregates by their name: each statement asks for some.

use std::collections::HashMap;

pub(super) struct ByName<T: 'static>(HashMap<&'static str, Vec<&'static T>>);

impl<T> ByName<T> {
    /// Rows with one name stay in the order of the table.
    pub(super) fn new(rows: impl Iterator<Item = &'static T>, name: impl Fn(&T) -> &'static str) -> Self {
        let mut all: HashMap<_, Vec<_>> = HashMap::new();
        rows.for_each(|row| all.entry(name(row)).or_default().push(row));
        Self(all)
    }

    /// The rows with this name.
    pub(super) fn named(&self, name: &str) -> &[&'static T] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }
}
