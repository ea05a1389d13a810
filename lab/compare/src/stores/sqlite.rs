//! SQLite, Debian's build of it: write-ahead log, prepared statements.

use super::Setup;
use crate::store::{Client, Failure, Simple, Store, missing, rows};
use rusqlite::{Connection, Statement, params};
use std::path::PathBuf;
use std::time::Duration;
use thermocline_workloads::ycsb::generate::{Config, Operation};

pub struct Sqlite {
    file: PathBuf,
    cache_bytes: usize,
    value_bytes: usize,
}

impl Sqlite {
    pub fn open(setup: Setup<'_>) -> Result<Self, Failure> {
        let store = Self {
            file: setup.directory.join("sqlite"),
            cache_bytes: setup.cache_bytes,
            value_bytes: setup.value_bytes,
        };
        store.connect()?.execute_batch("create table rows (id integer primary key, value blob not null)")?;
        Ok(store)
    }

    fn connect(&self) -> Result<Connection, Failure> {
        let connection = Connection::open(&self.file)?;
        connection.busy_timeout(Duration::from_secs(60))?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "off")?;
        connection.pragma_update(None, "mmap_size", i64::try_from(self.cache_bytes)?)?;
        // Negative: KiB. Each connection has a cache of its own, beside the map.
        connection.pragma_update(None, "cache_size", -64 * 1024)?;
        Ok(connection)
    }
}

impl Store for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn settings(&self) -> String {
        "write-ahead log, synchronous = off, memory-mapped".to_owned()
    }

    fn load(&self, config: &Config) -> Result<(), Failure> {
        let mut connection = self.connect()?;
        let transaction = connection.transaction()?;
        {
            let mut insert = transaction.prepare("insert into rows (id, value) values (?1, ?2)")?;
            rows(config, |key, value| {
                insert.execute(params![i64::try_from(key)?, value])?;
                Ok(())
            })?;
        }
        transaction.commit()?;
        Ok(connection.execute_batch("pragma wal_checkpoint(truncate)")?)
    }

    fn client(&self) -> Result<Box<dyn Client + '_>, Failure> {
        Ok(Box::new(SqliteClient { connection: self.connect()?, value_bytes: self.value_bytes }))
    }
}

struct SqliteClient {
    connection: Connection,
    value_bytes: usize,
}

impl Client for SqliteClient {
    // Statements borrow from their connection, so they are prepared once a batch: some nanoseconds an operation.
    fn run(&mut self, operations: &[Operation]) -> Result<u64, Failure> {
        let read = self.connection.prepare("select value from rows where id = ?1")?;
        let write = self.connection.prepare("update rows set value = ?2 where id = ?1")?;
        Statements { read, write, value_bytes: self.value_bytes }.run(operations)
    }
}

struct Statements<'a> {
    read: Statement<'a>,
    write: Statement<'a>,
    value_bytes: usize,
}

impl Simple for Statements<'_> {
    fn read(&mut self, key: u64, f: impl FnOnce(&[u8])) -> Result<(), Failure> {
        let mut found = self.read.query([i64::try_from(key)?])?;
        let row = found.next()?.ok_or_else(|| missing(key))?;
        f(row.get_ref(0)?.as_blob()?);
        Ok(())
    }

    fn write(&mut self, key: u64, value: &[u8]) -> Result<(), Failure> {
        match self.write.execute(params![i64::try_from(key)?, value])? {
            1 => Ok(()),
            _ => Err(missing(key)),
        }
    }

    fn value_bytes(&self) -> usize {
        self.value_bytes
    }
}
