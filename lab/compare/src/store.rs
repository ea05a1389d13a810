//! A store as it must be to be compared: rows of one value under an integer key, read and replaced, each operation in
//! a transaction of its own.
//!
//! Rules, the same for all:
//! - One table, keys `0..records`, a value of `value_bytes` bytes; an update replaces the value.
//! - No fsync: an acknowledged write may be lost with the machine. What is still written (a log, pages) is each store's
//!   own affair and said by [`Store::settings`].
//! - Every read hands the value over in place if the store can do that, and its first eight bytes are added up, so that
//!   no read can be left out and all stores can be proved to give the same answers.

use thermocline_workloads::ycsb::generate::{Config, Operation};

/// An error, which is a store's own affair: the run ends with its message.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A store with its table.
pub trait Store: Send + Sync {
    /// As in the report.
    fn name(&self) -> &'static str;

    /// The settings of durability, log and caches.
    fn settings(&self) -> String;

    /// Inserts the rows of `config`.
    fn load(&self, config: &Config) -> Result<(), Failure>;

    /// A client; each thread has one.
    fn client(&self) -> Result<Box<dyn Client + '_>, Failure>;
}

/// Runs operations one after the other.
pub trait Client {
    /// Runs all of `operations` and returns the sum of what was read.
    fn run(&mut self, operations: &[Operation]) -> Result<u64, Failure>;
}

/// A client of a store without asynchronous operations.
pub trait Simple {
    /// Calls `f` with the value of `key`.
    fn read(&mut self, key: u64, f: impl FnOnce(&[u8])) -> Result<(), Failure>;

    /// Replaces the value of `key`.
    fn write(&mut self, key: u64, value: &[u8]) -> Result<(), Failure>;

    /// Length of the values.
    fn value_bytes(&self) -> usize;
}

impl<S: Simple> Client for S {
    fn run(&mut self, operations: &[Operation]) -> Result<u64, Failure> {
        let mut sum = 0;
        let mut value = vec![0; self.value_bytes()];
        for operation in operations {
            match *operation {
                Operation::Read { key } => self.read(key, |value| sum = add(sum, value))?,
                Operation::Update { key, value_seed, .. } => {
                    Config::fill_updated(value_seed, 0, &mut value);
                    self.write(key, &value)?;
                }
                _ => return Err(format!("{operation:?} is not compared").into()),
            }
        }
        Ok(sum)
    }
}

/// `sum` and the first eight bytes of a value.
#[inline]
pub fn add(sum: u64, value: &[u8]) -> u64 {
    let first = value.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    sum.wrapping_add(first)
}

/// Calls `f` with each row to load.
pub fn rows(config: &Config, mut f: impl FnMut(u64, &[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut value = vec![0; config.field_bytes as usize];
    for key in 0..config.records {
        config.fill_loaded(key, 0, &mut value);
        f(key, &value)?;
    }
    Ok(())
}

/// A row that every store was loaded with is not there.
pub fn missing(key: u64) -> Failure {
    format!("row {key} is missing").into()
}
