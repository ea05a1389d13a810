//! YCSB, the Yahoo! Cloud Serving Benchmark (Cooper et al. 2010): its core workloads A to F, and any share of reads.
//!
//! ```text
//!  generate     which operation on which key, and the bytes of a field: knows nothing of the engine
//!     │
//!  load         the table `usertable`: an int8 key and `fields` columns of bytes
//!     │
//!  operations   the operations over a `Transaction`, and a terminal that runs and retries them
//! ```
//!
//! Differences from the original: keys are the integers `0..records` instead of "user" and a hash; popular keys are
//! scattered by a permutation, not by a hash modulo the number of records, so the skew is exactly the one asked for;
//! an operation is a transaction, and a transaction may have several.

pub mod generate;
pub mod load;
pub mod operations;
