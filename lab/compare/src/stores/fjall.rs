//! fjall: a log-structured merge tree in Rust.

use super::Setup;
use crate::store::{Client, Failure, Simple, Store, missing, rows};
use fjall::{Database, Keyspace, KeyspaceCreateOptions};
use thermocline_workloads::ycsb::generate::Config;

pub struct Fjall {
    // Its background threads end with it.
    _database: Database,
    rows: Keyspace,
    value_bytes: usize,
}

impl Fjall {
    pub fn open(setup: Setup<'_>) -> Result<Self, Failure> {
        let database = Database::builder(setup.directory).cache_size(setup.cache_bytes as u64).open()?;
        let rows = database.keyspace("rows", KeyspaceCreateOptions::default)?;
        Ok(Self { _database: database, rows, value_bytes: setup.value_bytes })
    }
}

impl Store for Fjall {
    fn name(&self) -> &'static str {
        "fjall"
    }

    fn settings(&self) -> String {
        "journal written, not synced; no compression; compacted after the load".to_owned()
    }

    fn load(&self, config: &Config) -> Result<(), Failure> {
        rows(config, |key, value| Ok(self.rows.insert(key.to_be_bytes(), value)?))?;
        self.rows.rotate_memtable_and_wait()?;
        Ok(self.rows.major_compact()?)
    }

    fn client(&self) -> Result<Box<dyn Client + '_>, Failure> {
        Ok(Box::new(FjallClient(self)))
    }
}

struct FjallClient<'a>(&'a Fjall);

impl Simple for FjallClient<'_> {
    fn read(&mut self, key: u64, f: impl FnOnce(&[u8])) -> Result<(), Failure> {
        f(&self.0.rows.get(key.to_be_bytes())?.ok_or_else(|| missing(key))?);
        Ok(())
    }

    fn write(&mut self, key: u64, value: &[u8]) -> Result<(), Failure> {
        Ok(self.0.rows.insert(key.to_be_bytes(), value)?)
    }

    fn value_bytes(&self) -> usize {
        self.0.value_bytes
    }
}
