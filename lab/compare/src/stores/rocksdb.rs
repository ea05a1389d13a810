//! RocksDB, Debian's build of it: a log-structured merge tree.

use super::Setup;
use crate::store::{Client, Failure, Simple, Store, missing, rows};
use rocksdb::{BlockBasedOptions, Cache, DB, DBCompressionType, Options, ReadOptions, WriteOptions};
use thermocline_workloads::ycsb::generate::Config;

pub struct Rocks {
    database: DB,
    value_bytes: usize,
}

impl Rocks {
    pub fn open(setup: Setup<'_>) -> Result<Self, Failure> {
        let mut tables = BlockBasedOptions::default();
        tables.set_block_cache(&Cache::new_lru_cache(setup.cache_bytes)?);
        tables.set_bloom_filter(10.0, false);
        // An index into each block spares the binary search of a point read.
        tables.set_data_block_index_type(rocksdb::DataBlockIndexType::BinaryAndHash);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&tables);
        options.set_compression_type(DBCompressionType::None);
        options.set_write_buffer_size(256 << 20);
        options.increase_parallelism(2);
        let database = DB::open(&options, setup.directory.join("rocksdb"))?;
        Ok(Self { database, value_bytes: setup.value_bytes })
    }
}

impl Store for Rocks {
    fn name(&self) -> &'static str {
        "rocksdb"
    }

    fn settings(&self) -> String {
        "log written, sync = false; no compression, Bloom filters; compacted after the load".to_owned()
    }

    fn load(&self, config: &Config) -> Result<(), Failure> {
        rows(config, |key, value| Ok(self.database.put(key.to_be_bytes(), value)?))?;
        self.database.flush()?;
        self.database.compact_range::<&[u8], &[u8]>(None, None);
        Ok(())
    }

    fn client(&self) -> Result<Box<dyn Client + '_>, Failure> {
        let mut reads = ReadOptions::default();
        reads.set_verify_checksums(false);
        Ok(Box::new(RocksClient { store: self, reads, writes: WriteOptions::default() }))
    }
}

struct RocksClient<'a> {
    store: &'a Rocks,
    reads: ReadOptions,
    writes: WriteOptions,
}

impl Simple for RocksClient<'_> {
    fn read(&mut self, key: u64, f: impl FnOnce(&[u8])) -> Result<(), Failure> {
        let value = self.store.database.get_pinned_opt(key.to_be_bytes(), &self.reads)?;
        f(&value.ok_or_else(|| missing(key))?);
        Ok(())
    }

    fn write(&mut self, key: u64, value: &[u8]) -> Result<(), Failure> {
        Ok(self.store.database.put_opt(key.to_be_bytes(), value, &self.writes)?)
    }

    fn value_bytes(&self) -> usize {
        self.store.value_bytes
    }
}
