//! Thermocline: multi-version transactions at snapshot isolation, hash index on the key, log written in the background.

use super::Setup;
use crate::store::{Client, Failure, Store, add, missing, rows};
use thermocline_engine::row::{EncodedRow, KeyBuf, RowEditor};
use thermocline_engine::{
    Database, Durability, Index, IndexSchema, Options, Table, TableSchema, TransactionOptions, block_on, row,
};
use thermocline_workloads::ycsb::generate::{Config, Operation};

row! {
    struct Row as RowView {
        id: i64,
        value: Vec<u8>,
    }
}

/// Rows of a transaction while loading.
const BATCH: usize = 1000;

pub struct Ours {
    database: Database,
    table: Table,
    value_bytes: usize,
}

impl Ours {
    pub fn open(setup: Setup<'_>) -> Result<Self, Failure> {
        let options = Options::default().with_durability(Durability::Async);
        let database = Database::open(setup.directory.join("thermocline"), options)?;
        let schema = TableSchema::new("rows").columns(Row::schema_columns());
        let table = database.create_table(schema.primary_key(IndexSchema::hash("pk", &["id"])))?;
        Ok(Self { database, table, value_bytes: setup.value_bytes })
    }

    fn insert(&self, batch: &[EncodedRow]) -> Result<(), Failure> {
        let insert = async |transaction: &mut thermocline_engine::Transaction| {
            for row in batch {
                transaction.insert(&self.table, row).await?;
            }
            Ok(())
        };
        Ok(self.database.run(TransactionOptions::default(), insert)?)
    }
}

impl Store for Ours {
    fn name(&self) -> &'static str {
        "thermocline"
    }

    fn settings(&self) -> String {
        "durability async: log written and synced in the background; snapshot isolation; hash index"
            .to_owned()
    }

    fn load(&self, config: &Config) -> Result<(), Failure> {
        let mut batch = Vec::with_capacity(BATCH);
        rows(config, |key, value| {
            let mut row = EncodedRow::new();
            Row { id: i64::try_from(key)?, value: value.to_vec() }.encode(&mut row)?;
            batch.push(row);
            if batch.len() == BATCH {
                self.insert(&batch)?;
                batch.clear();
            }
            Ok(())
        })?;
        self.insert(&batch)
    }

    fn client(&self) -> Result<Box<dyn Client + '_>, Failure> {
        let value = vec![0; self.value_bytes];
        Ok(Box::new(OurClient {
            database: &self.database,
            table: &self.table,
            key: self.table.primary(),
            value,
        }))
    }
}

struct OurClient<'a> {
    database: &'a Database,
    table: &'a Table,
    key: Index,
    value: Vec<u8>,
}

impl Client for OurClient<'_> {
    fn run(&mut self, operations: &[Operation]) -> Result<u64, Failure> {
        block_on(async {
            let mut sum = 0;
            for operation in operations {
                match *operation {
                    Operation::Read { key } => self.read(key, &mut sum).await?,
                    Operation::Update { key, value_seed, .. } => self.update(key, value_seed).await?,
                    _ => return Err(format!("{operation:?} is not compared").into()),
                }
            }
            Ok(sum)
        })
    }
}

impl OurClient<'_> {
    async fn read(&self, key: u64, sum: &mut u64) -> Result<(), Failure> {
        let mut transaction = self.database.begin(TransactionOptions::default())?;
        let key_bytes = KeyBuf::new().i64(key as i64);
        let read = transaction.read(&self.key, &key_bytes, |row| add(*sum, RowView(row).value()));
        *sum = read.await?.ok_or_else(|| missing(key))?;
        Ok(transaction.commit().await?)
    }

    async fn update(&mut self, key: u64, value_seed: u64) -> Result<(), Failure> {
        Config::fill_updated(value_seed, 0, &mut self.value);
        let change = |editor: &mut RowEditor<'_>| {
            RowView::set_value(editor, &self.value).map_err(|error| self.table.error(error))
        };
        // Tried again if another client changes the row first, as the other stores let their writers wait.
        let update = async |transaction: &mut thermocline_engine::Transaction| {
            transaction.update(&self.key, &KeyBuf::new().i64(key as i64), change).await
        };
        let found = self.database.transaction(TransactionOptions::default(), update).await?;
        found.ok_or_else(|| missing(key))
    }
}
