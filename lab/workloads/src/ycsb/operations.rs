//! The operations of YCSB over a transaction, and a terminal that runs them.
//!
//! Reads look at every byte of every field, so that the work of getting at them is done, without copying them. An update
//! overwrites one field (or all of them) of the row in place of the old one.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use thermocline_engine::row::{KeyBuf, RowEditor};
use thermocline_engine::{Database, Direction, KeyRange, Result, Transaction, TransactionOptions};

use super::generate::{Config, Generator, KeySpace, Operation};
use super::load::{RowBuilder, TABLE, UserTable};
use crate::rows::in_table;

/// The counts of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Rows that were read, the ones that were updated included.
    pub rows: u64,
    /// Rows that were written.
    pub written: u64,
    /// Keys that were asked for and not there.
    pub missing: u64,
    /// The sum of the fields that were read; keeps them from not being read at all.
    pub checksum: u64,
}

/// Executes operations, with the buffers that they need.
pub struct Executor {
    table: UserTable,
    builder: RowBuilder,
    fields: u16,
    updates_all_fields: bool,
}

impl Executor {
    /// An executor on `table`.
    #[must_use]
    pub fn new(table: &UserTable, config: &Config) -> Self {
        Self {
            table: table.clone(),
            builder: RowBuilder::new(config),
            fields: config.fields,
            updates_all_fields: config.updates_all_fields,
        }
    }

    /// Executes one operation in `transaction` and adds what it found to `outcome`.
    ///
    /// # Errors
    /// A conflict with another transaction, or the engine fails.
    pub async fn execute(
        &mut self,
        transaction: &mut Transaction,
        operation: &Operation,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let Self { table, builder, fields, updates_all_fields } = self;
        match *operation {
            Operation::Read { key } => match transaction.read(&table.key, &key_of(key), sum_bytes).await? {
                Some(sum) => outcome.found(sum),
                None => outcome.missing += 1,
            },
            Operation::Update { key, field, value_seed } => {
                let written = if *updates_all_fields { 0..*fields } else { field..field + 1 };
                let updated = transaction
                    .update(&table.key, &key_of(key), |editor| {
                        overwrite(editor, builder, written.clone(), value_seed)
                    })
                    .await?;
                outcome.wrote(updated.is_some());
            }
            Operation::Insert { key, value_seed } => {
                let row = builder.build(key, |field, bytes| Config::fill_updated(value_seed, field, bytes));
                transaction.insert(&table.table, row).await?;
                outcome.written += 1;
            }
            Operation::Scan { key, length } => {
                let mut left = length;
                let first = key_of(key);
                let range = KeyRange::between(Bound::Included(&*first), Bound::Unbounded);
                transaction
                    .scan(&table.key, range, Direction::Forward, |row| {
                        outcome.found(sum_bytes(row));
                        left -= 1;
                        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                    })
                    .await?;
            }
            Operation::ReadModifyWrite { key, field, value_seed } => {
                let written = if *updates_all_fields { 0..*fields } else { field..field + 1 };
                let updated = transaction
                    .update(&table.key, &key_of(key), |editor| {
                        // The new content depends on the old one: a lost update would show.
                        let sum = sum_bytes(editor.row());
                        overwrite(editor, builder, written.clone(), value_seed ^ sum)?;
                        Ok(sum)
                    })
                    .await?;
                if let Some(sum) = updated {
                    outcome.found(sum);
                }
                outcome.wrote(updated.is_some());
            }
        }
        Ok(())
    }
}

impl Outcome {
    #[inline]
    fn found(&mut self, sum: u64) {
        self.rows += 1;
        self.checksum = self.checksum.wrapping_add(sum);
    }

    #[inline]
    fn wrote(&mut self, there: bool) {
        if there {
            self.written += 1;
        } else {
            self.missing += 1;
        }
    }
}

#[inline]
fn key_of(key: u64) -> KeyBuf {
    KeyBuf::new().i64(key as i64)
}

/// Reads a row: the wrapping sum of its 64-bit words.
#[inline]
fn sum_bytes(row: &[u8]) -> u64 {
    let (words, rest) = row.as_chunks::<8>();
    let sum = words.iter().fold(0u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    rest.iter().fold(sum, |sum, byte| sum.wrapping_add(u64::from(*byte)))
}

/// Writes new content into `fields`.
#[inline]
fn overwrite(
    editor: &mut RowEditor<'_>,
    builder: &mut RowBuilder,
    fields: std::ops::Range<u16>,
    value_seed: u64,
) -> Result<()> {
    for field in fields {
        let bytes = builder.field(|bytes| Config::fill_updated(value_seed, field, bytes));
        in_table(TABLE, editor.set_bytes(usize::from(field) + 1, bytes))?;
    }
    Ok(())
}

/// After so many rounds of the engine's retries a terminal gives up on a transaction: something is wrong that
/// repeating does not mend.
pub const ROUNDS_MAX: u32 = 1_000;

/// Runs the transactions of one terminal.
pub struct Terminal {
    database: Database,
    executor: Executor,
    generator: Generator,
    keys: Arc<KeySpace>,
    options: TransactionOptions,
    /// The operations of the present transaction: a retry repeats them.
    operations: Vec<Operation>,
}

impl Terminal {
    /// Terminal number `terminal` of a run, which shares `keys` with the others.
    #[must_use]
    pub fn new(
        database: &Database,
        table: &UserTable,
        config: &Config,
        keys: &Arc<KeySpace>,
        terminal: u64,
        options: TransactionOptions,
    ) -> Self {
        let count = config.operations_per_transaction.max(1) as usize;
        Self {
            database: database.clone(),
            executor: Executor::new(table, config),
            generator: Generator::new(config, Arc::clone(keys), terminal),
            keys: Arc::clone(keys),
            options,
            operations: vec![Operation::Read { key: 0 }; count],
        }
    }

    /// The generator of the terminal's operations.
    pub const fn generator(&mut self) -> &mut Generator {
        &mut self.generator
    }

    /// Draws the operations of one transaction and runs it until it is committed: the engine's own retries are bounded,
    /// a terminal's patience is not, but for [`ROUNDS_MAX`] of them.
    ///
    /// # Errors
    /// An error that is not a conflict, or a conflict after so many rounds.
    pub async fn run_one(&mut self) -> Result<Outcome> {
        let Self { database, executor, generator, keys, options, operations } = self;
        for operation in operations.iter_mut() {
            *operation = generator.operation();
        }
        let mut result;
        let mut rounds = 0;
        loop {
            result = database
                .transaction(*options, async |transaction| {
                    let mut outcome = Outcome::default();
                    for operation in &*operations {
                        executor.execute(transaction, operation, &mut outcome).await?;
                    }
                    Ok(outcome)
                })
                .await;
            rounds += 1;
            match &result {
                Err(error) if error.is_retryable() && rounds < ROUNDS_MAX => {}
                _ => break,
            }
        }
        for operation in &*operations {
            if let Operation::Insert { key, .. } = operation {
                keys.settle(*key);
            }
        }
        result
    }
}
