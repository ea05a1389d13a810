//! Which rows are on a page of the store that cannot be read, for errors: index, and between which keys.

use thermocline_pool::store::{IndexId as StoreIndex, KeyRange, StoreError};

use crate::catalog::table::TableForm;
use crate::cold::store::{SECONDARY, is_secondary};
use crate::error::Error;

impl TableForm {
    /// The error that cold rows of the table cannot be reached, and which.
    pub(crate) fn cold_error(&self, source: StoreError) -> Error {
        let rows = match &source {
            StoreError::Page { index, keys, .. } => self.cold_place(*index, keys.as_deref()),
            _ => None,
        };
        Error::ColdStore { table: self.schema.name.clone(), rows, source }
    }

    fn cold_place(&self, of: StoreIndex, keys: Option<&KeyRange>) -> Option<String> {
        let index = match is_secondary(of) {
            false => self.indexes.first(),
            true => self.indexes.iter().find(|index| index.id.0 == of.index & !SECONDARY),
        }?;
        Some(words(&index.schema.name, keys, |key| index.describe_beginning(key)))
    }
}

/// The rows of an index with this name, `describe` says which its keys are.
pub(crate) fn words(name: &str, keys: Option<&KeyRange>, describe: impl Fn(&[u8]) -> String) -> String {
    match keys {
        Some(keys) => {
            format!("index {name:?}, keys between {} and {}", describe(&keys.low), describe(&keys.high))
        }
        None => format!("index {name:?}"),
    }
}
