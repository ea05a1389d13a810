//! Bf-Tree (Microsoft Research, VLDB 2024): an index with values, concurrent, without transactions and, here, without a
//! log; its pages stay in memory.

use super::Setup;
use crate::store::{Client, Failure, Simple, Store, missing, rows};
use bf_tree::{BfTree, Config as TreeConfig, LeafInsertResult, LeafReadResult, StorageBackend};
use thermocline_workloads::ycsb::generate::Config;

pub struct Bf {
    tree: BfTree,
    value_bytes: usize,
}

impl Bf {
    pub fn open(setup: Setup<'_>) -> Result<Self, Failure> {
        let mut config = TreeConfig::default();
        config.storage_backend(StorageBackend::Memory).cb_size_byte(setup.cache_bytes.next_power_of_two());
        let tree = BfTree::with_config(config, None).map_err(|error| format!("bf-tree: {error:?}"))?;
        Ok(Self { tree, value_bytes: setup.value_bytes })
    }

    fn insert(&self, key: u64, value: &[u8]) -> Result<(), Failure> {
        match self.tree.insert(&key.to_be_bytes(), value) {
            LeafInsertResult::Success => Ok(()),
            refused => Err(format!("bf-tree refused row {key}: {refused:?}").into()),
        }
    }
}

impl Store for Bf {
    fn name(&self) -> &'static str {
        "bf-tree"
    }

    fn settings(&self) -> String {
        "no log, no transactions, pages in memory".to_owned()
    }

    fn load(&self, config: &Config) -> Result<(), Failure> {
        rows(config, |key, value| self.insert(key, value))
    }

    fn client(&self) -> Result<Box<dyn Client + '_>, Failure> {
        Ok(Box::new(BfClient { store: self, buffer: vec![0; self.value_bytes] }))
    }
}

struct BfClient<'a> {
    store: &'a Bf,
    buffer: Vec<u8>,
}

impl Simple for BfClient<'_> {
    fn read(&mut self, key: u64, f: impl FnOnce(&[u8])) -> Result<(), Failure> {
        match self.store.tree.read(&key.to_be_bytes(), &mut self.buffer) {
            LeafReadResult::Found(length) => f(&self.buffer[..length as usize]),
            _ => return Err(missing(key)),
        }
        Ok(())
    }

    fn write(&mut self, key: u64, value: &[u8]) -> Result<(), Failure> {
        self.store.insert(key, value)
    }

    fn value_bytes(&self) -> usize {
        self.store.value_bytes
    }
}
