//! Tables that a session has looked up: statements mostly name the same few again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::catalog::{Identity, Table};

/// Tables that are kept. One more begins anew.
const TABLES: usize = 16;

/// Descriptions of tables, with one state of the hidden tables.
#[derive(Debug, Default)]
pub(crate) struct Described(Mutex<(u64, HashMap<String, Arc<Table>>)>);

impl Described {
    /// The description of a table, as it was made with this state of the hidden tables and this definition, unless the table has
    /// become more than twice or less than half as large.
    pub(super) fn find(&self, version: u64, name: &str, identity: Identity, rows: u64) -> Option<Arc<Table>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let table = known.1.get(name).filter(|_| known.0 == version)?;
        let is_near = rows / 2 <= table.rows && table.rows / 2 <= rows;
        (table.identity == identity && is_near).then(|| table.clone())
    }

    pub(super) fn keep(&self, version: u64, table: &Arc<Table>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0 != version || known.1.len() >= TABLES {
            *known = (version, HashMap::new());
        }
        known.1.insert(table.name.clone(), table.clone());
    }
}
