//! Integration tests of the engine: one binary.

mod anomalies;
mod basics;
mod columns;
mod copies;
mod crash;
mod disk;
mod durability;
mod embedding;
mod handles;
mod history;
mod latency;
mod layouts;
mod load;
mod messages;
mod moves;
mod nested;
mod ssd;
mod stress;
