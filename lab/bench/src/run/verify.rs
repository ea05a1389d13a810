//! The work of `check` on a database directory: verifies its files, and its consistency where the schema is TPC-C's.

use std::path::Path;

use thermocline_engine::{ColdStoreKind, Database, Error, Options};
use thermocline_workloads::tpcc::check::{NewOrders, check_with};
use thermocline_workloads::tpcc::schema::Tables;

use crate::report::Condition;

/// The parts that were looked at, and their faults.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Tables in the catalog.
    pub tables: u64,
    /// Images of chunks that were read.
    pub chunk_images: u64,
    /// Rows in them.
    pub rows: u64,
    /// Records of the log that were read.
    pub log_records: u64,
    /// Damage, in words that name the file.
    pub findings: Vec<String>,
    /// The consistency conditions of TPC-C, if its tables are there and no file is damaged.
    pub conditions: Option<Vec<Condition>>,
}

impl Checked {
    /// Is nothing wrong?
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.conditions.iter().flatten().all(|condition| condition.violated == 0)
    }
}

/// Opens a database only to look at it: nothing of it changes on disk. `kind` of the cold store; none given: the one that
/// is there.
///
/// # Errors
/// As [`Database::open`]; the directory must hold a database.
pub fn open_to_look(dir: &Path, options: Options, kind: Option<ColdStoreKind>) -> Result<Database, Error> {
    let kind = match kind {
        Some(kind) => kind,
        None => Database::cold_store_in(dir)?.unwrap_or(options.cold_store),
    };
    Database::open(dir, options.with_cold_store(kind).with_read_only(true))
}

/// Checks the database in `dir`, which no process may have open. Changes no row. `keeps_new_orders`: the deliveries of
/// TPC-C kept the rows of NEW-ORDER.
///
/// # Errors
/// The directory holds no database, or it cannot be read at all.
pub fn check(dir: &Path, keeps_new_orders: bool) -> Result<Checked, Error> {
    let found = Database::verify(dir)?;
    let mut checked = Checked {
        tables: found.tables,
        chunk_images: found.chunk_images,
        rows: found.rows,
        log_records: found.log_records,
        findings: found.findings,
        conditions: None,
    };
    if !checked.findings.is_empty() {
        // Nothing damaged is opened.
        return Ok(checked);
    }
    let database = open_to_look(dir, Options::default(), None)?;
    match Tables::open(&database) {
        Ok(_) => {
            let new_orders = if keeps_new_orders { NewOrders::Kept } else { NewOrders::Deleted };
            let results = check_with(&database, new_orders)?;
            checked.conditions = Some(results.into_iter().map(Condition::from).collect());
        }
        // Some other schema.
        Err(Error::UnknownTable { .. } | Error::UnknownIndex { .. }) => {}
        Err(error) => return Err(error),
    }
    database.close()?;
    Ok(checked)
}
