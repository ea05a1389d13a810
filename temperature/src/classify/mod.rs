//! Classification: the rows of an access log that are the hottest for their size, under a budget.
//!
//! The estimate of a row at the log's last quantum `n` is `Σ α·x(q)·(1-α)^(n-q)` over the quanta `q`, the closed form of
//! exponential smoothing from 0; `x(q)` is what the row's records of `q` stand for, at most
//! [`ClassifyOptions::accesses_max`]. Rows are ordered by access density (estimate ÷ bytes), and the hot ones are the
//! longest prefix of that order that fits the budget. With a budget in rows, each row counts 1.
//!
//! - **Forward** reads the log from its beginning. Instead of ageing each estimate at each access, records of later
//!   quanta are given weights that grow by `1/(1-α)`; all sums are scaled back when weights become large.
//! - **Backward** reads from the end and stops early. Having read back to quantum `q`, a row's sum `s` is a lower
//!   bound, and `s + r` an upper one, with `r = x_max·(1-α)^(n-q)/α` what all earlier quanta can still add. It stops once no
//!   row outside can pass one inside, and no row that would still fit can pass the first that does not.
//!
//! Both give the same rows up to ties: rows whose estimates differ by less than [`TIE`] of their value may stand for each
//! other. Estimates below 2^-500 are no temperature at all: such rows are never hot.
//!
//! Threads share the work by partition, that is by hash of the row: each reads only its partitions' bytes, and no
//! state is shared.
//!
//! Limits: 32 bytes and about 12 of hash table a row that the log names (classification runs where there is memory for
//! it; inside a database the [online classifier](crate::Classifier) keeps to its budget instead).

mod rank;
mod run;
mod state;

use std::collections::BTreeMap;

use thermocline_base::ids::TableId;

use super::log::error::{Damage, LogError};
use super::log::reader::LogReader;
use super::{RowName, SizeClass};
use state::Partition;

/// Rows whose estimates differ by less than this part of their value count as equally hot.
pub const TIE: f64 = 1e-9;

/// From which end a log is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    /// From the beginning, all of it.
    Forward,
    /// From the end, until the hot rows are certain.
    Backward,
}

/// The rows that may be hot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Budget {
    /// This number of rows, whatever their size.
    Rows(u64),
    /// Rows of so many bytes together.
    Bytes(u64),
}

/// Options of a classification.
#[derive(Clone, Copy, Debug)]
pub struct ClassifyOptions {
    /// From which end.
    pub algorithm: Algorithm,
    /// The rows that may be hot.
    pub budget: Budget,
    /// The share of the last quantum in an estimate: above 0, below 1. The larger, the sooner the past is forgotten.
    pub alpha: f64,
    /// More accesses of a row in one quantum count as so many. 1: only whether it was accessed, as in the paper.
    pub accesses_max: u32,
    /// Threads, at most one for each of 16 partitions.
    pub threads: usize,
}

impl Default for ClassifyOptions {
    fn default() -> Self {
        Self {
            algorithm: Algorithm::Backward,
            budget: Budget::Bytes(1 << 30),
            alpha: 0.05,
            accesses_max: 256,
            threads: 1,
        }
    }
}

/// A row and its temperature.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ranked {
    /// Which.
    pub row: RowName,
    /// Its size at its definition in the log.
    pub size: SizeClass,
    /// Estimated accesses a quantum; of backward classification, a lower bound that is certain enough.
    pub estimate: f64,
    /// Was it in the cold store at its last access in the log?
    pub cold: bool,
}

/// The hot rows of a table, and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableBudget {
    /// Hot rows.
    pub rows: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Rows that are not where their temperature says.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Misplaced {
    /// Cold rows that belong to the hot ones, the hottest first.
    pub come: Vec<Ranked>,
    /// Hot rows that do not, the coldest first.
    pub leave: Vec<Ranked>,
}

/// The answer.
#[derive(Debug)]
pub struct Classification {
    /// The hot rows, the densest first.
    pub hottest: Vec<Ranked>,
    /// The same by table.
    pub tables: BTreeMap<TableId, TableBudget>,
    /// Estimated accesses a quantum of the last row that is hot, for each byte or, if the budget is in rows, for the
    /// row; 0 if all rows are hot.
    pub density_min: f64,
    /// Rows that were met.
    pub rows: u64,
    /// Records that were read.
    pub recorded: u64,
    /// Number of accesses that they stand for, as estimated by their weights.
    pub accesses: u64,
    /// Number of these that were of rows which are hot now.
    pub accesses_hot: u64,
    /// Quanta that were read (a quantum without accesses is none).
    pub quanta: u64,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Bytes that the log has.
    pub bytes: u64,
    /// Entries whose row's definition was lost by damage.
    pub unresolved: u64,
    /// The pieces that could not be used.
    pub damages: Vec<Damage>,
    alpha: f64,
    partitions: Vec<Partition>,
    cut: rank::Cut,
}

impl Classification {
    /// The rows that are not where they belong. `is_hot` says where a row is; it is given what the log said at the
    /// row's last access, which is the answer for a caller that knows nothing better. A row that the log does not
    /// name is not known here.
    #[must_use]
    pub fn misplaced(&self, mut is_hot: impl FnMut(&Ranked) -> bool) -> Misplaced {
        let mut misplaced = Misplaced::default();
        for (number, partition) in self.partitions.iter().enumerate() {
            for index in 0..partition.len() {
                if !partition.is_met(index) {
                    continue;
                }
                let ranked = partition.ranked(index, self.alpha);
                let is_in = self.cut.is_in(number, index, partition.states[index].sum, ranked.size);
                match (is_in, is_hot(&ranked)) {
                    (true, false) => misplaced.come.push(ranked),
                    (false, true) => misplaced.leave.push(ranked),
                    _ => {}
                }
            }
        }
        let key = |row: &Ranked| self.cut.key(row.estimate, row.size);
        misplaced.come.sort_by(|a, b| key(b).total_cmp(&key(a)).then(a.row.cmp(&b.row)));
        misplaced.leave.sort_by(|a, b| key(a).total_cmp(&key(b)).then(a.row.cmp(&b.row)));
        misplaced
    }
}

/// Classifies the rows of a log.
///
/// # Errors
/// The file's. Damage is no error: it is named in the answer.
///
/// # Panics
/// When `alpha` is not between 0 and 1.
pub fn classify(log: &LogReader, options: &ClassifyOptions) -> Result<Classification, LogError> {
    run::classify(log, options)
}

/// Any bytes as definitions and as entries, behind their checksums. Returns how many were taken.
#[doc(hidden)]
#[must_use]
pub fn fuzz(bytes: &[u8]) -> usize {
    let pace = state::Pace { octaves: 0.1, accesses_max: 256, last: 100 };
    let mark = super::log::format::Mark { quantum: 100, weight: 10, recorded: 1 };
    let mut partition = Partition::default();
    let (definitions, entries) = bytes.split_at(bytes.len() / 2);
    let _ = partition.define(u32::from(bytes.len() % 3 == 1), definitions);
    let _ = partition.apply(entries, &[mark], 0, &pace, state::Weights::Growing);
    partition.len() + (0..partition.len()).filter(|index| partition.is_met(*index)).count()
}

#[cfg(test)]
mod tests;
