//! Integration tests of the engine: one binary.

mod anomalies;
mod basics;
mod copies;
mod crash;
mod disk;
mod durability;
mod embedding;
mod history;
mod latency;
mod load;
mod moves;
mod stress;
