//! LMDB through heed: a copy-on-write B+ tree in a memory map, one writer at a time, readers that never wait.

use super::Setup;
use crate::store::{Client, Failure, Simple, Store, missing, rows};
use heed::byteorder::BigEndian;
use heed::types::{Bytes, U64};
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions};
use thermocline_workloads::ycsb::generate::Config;

/// Rows of a transaction while loading.
const BATCH: u64 = 100_000;

pub struct Lmdb {
    environment: Env,
    table: Database<'static, U64<BigEndian>, Bytes>,
    value_bytes: usize,
}

impl Lmdb {
    pub fn open(setup: Setup<'_>) -> Result<Self, Failure> {
        let mut options = EnvOpenOptions::new();
        options.map_size((4 * setup.cache_bytes).next_multiple_of(1 << 20)).max_readers(1024);
        // SAFETY: without syncs the file is lost with the machine, which a comparison may; the directory is this
        // process's own, so no other process changes the file under the map.
        let environment = unsafe {
            options.flags(EnvFlags::NO_SYNC | EnvFlags::WRITE_MAP | EnvFlags::MAP_ASYNC);
            options.open(setup.directory)?
        };
        let created =
            environment.create_databases_and_commit(environment.write_txn()?, |opener, transaction| {
                opener.create_database(transaction, None).map(CommitOrAbort::<_, ()>::Commit)
            });
        let table = created?.unwrap_commit();
        Ok(Self { environment, table, value_bytes: setup.value_bytes })
    }
}

impl Store for Lmdb {
    fn name(&self) -> &'static str {
        "lmdb"
    }

    fn settings(&self) -> String {
        "NOSYNC, WRITEMAP, MAPASYNC: no log, pages reach the file when the OS writes them".to_owned()
    }

    fn load(&self, config: &Config) -> Result<(), Failure> {
        let mut transaction = Some(self.environment.write_txn()?);
        rows(config, |key, value| {
            let open = transaction.as_mut().expect("one is open after each row");
            self.table.put(open, &key, value)?;
            if key % BATCH == BATCH - 1
                && let Some(full) = transaction.take()
            {
                full.commit()?;
                transaction = Some(self.environment.write_txn()?);
            }
            Ok(())
        })?;
        transaction.expect("one is open after each row").commit()?;
        Ok(())
    }

    fn client(&self) -> Result<Box<dyn Client + '_>, Failure> {
        Ok(Box::new(LmdbClient(self)))
    }
}

struct LmdbClient<'a>(&'a Lmdb);

impl Simple for LmdbClient<'_> {
    fn read(&mut self, key: u64, f: impl FnOnce(&[u8])) -> Result<(), Failure> {
        let transaction = self.0.environment.read_txn()?;
        f(self.0.table.get(&transaction, &key)?.ok_or_else(|| missing(key))?);
        Ok(())
    }

    fn write(&mut self, key: u64, value: &[u8]) -> Result<(), Failure> {
        let mut transaction = self.0.environment.write_txn()?;
        self.0.table.put(&mut transaction, &key, value)?;
        Ok(transaction.commit()?)
    }

    fn value_bytes(&self) -> usize {
        self.0.value_bytes
    }
}
