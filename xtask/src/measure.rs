//! Measures for the ratchet (see [`crate::ratchet`]): each check makes some, and a measure is a list of places.

use crate::modules::{Source, is_within};

/// Something that is counted.
pub(crate) struct Measure {
    /// The name of its table.
    pub(crate) name: &'static str,
    /// Its places, described.
    pub(crate) is: &'static str,
    /// The way to take a place away.
    pub(crate) advice: &'static str,
    /// Where it stands.
    pub(crate) places: Vec<Place>,
}

/// A place that counts.
pub(crate) struct Place {
    pub(crate) path: String,
    pub(crate) line: usize,
    /// Why it counts.
    pub(crate) what: String,
}

impl Place {
    /// A place in a module's file.
    pub(crate) fn new(source: &Source<'_>, at: usize, what: String) -> Self {
        let (path, line) = source.place(at);
        Self { path, line, what }
    }

    /// Is it in the folder or file `key`?
    pub(crate) fn is_in(&self, key: &str) -> bool {
        is_within(&self.path, key)
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}
