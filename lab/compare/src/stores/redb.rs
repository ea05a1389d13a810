//! redb: a copy-on-write B+ tree in a file with a cache of its own, one writer at a time.

use super::Setup;
use crate::store::{Client, Failure, Simple, Store, missing, rows};
use redb::{Database, Durability, ReadableDatabase, TableDefinition};
use thermocline_workloads::ycsb::generate::Config;

const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("rows");

pub struct Redb {
    database: Database,
    value_bytes: usize,
}

impl Redb {
    pub fn open(setup: Setup<'_>) -> Result<Self, Failure> {
        let file = setup.directory.join("redb");
        let database = Database::builder().set_cache_size(setup.cache_bytes).create(file)?;
        Ok(Self { database, value_bytes: setup.value_bytes })
    }
}

impl Store for Redb {
    fn name(&self) -> &'static str {
        "redb"
    }

    fn settings(&self) -> String {
        "Durability::None for updates; the load is committed durably".to_owned()
    }

    fn load(&self, config: &Config) -> Result<(), Failure> {
        let transaction = self.database.begin_write()?;
        {
            let mut table = transaction.open_table(TABLE)?;
            rows(config, |key, value| {
                table.insert(key, value)?;
                Ok(())
            })?;
        }
        Ok(transaction.commit()?)
    }

    fn client(&self) -> Result<Box<dyn Client + '_>, Failure> {
        Ok(Box::new(RedbClient(self)))
    }
}

struct RedbClient<'a>(&'a Redb);

impl Simple for RedbClient<'_> {
    fn read(&mut self, key: u64, f: impl FnOnce(&[u8])) -> Result<(), Failure> {
        let table = self.0.database.begin_read()?.open_table(TABLE)?;
        f(table.get(key)?.ok_or_else(|| missing(key))?.value());
        Ok(())
    }

    fn write(&mut self, key: u64, value: &[u8]) -> Result<(), Failure> {
        let mut transaction = self.0.database.begin_write()?;
        transaction.set_durability(Durability::None)?;
        transaction.open_table(TABLE)?.insert(key, value)?;
        Ok(transaction.commit()?)
    }

    fn value_bytes(&self) -> usize {
        self.0.value_bytes
    }
}
