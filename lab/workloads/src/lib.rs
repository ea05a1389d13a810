//! The workloads that Thermocline is measured and checked with: TPC-C, TPC-H and YCSB.
//!
//! Generators ([`random`], [`names`], [`zipf`], [`tpcc::generate`], [`tpcc::ch`], [`tpcc::input`], [`tpch`],
//! [`ycsb::generate`]) are deterministic by
//! seed and know nothing of the engine, so that competitors can be driven with the same data and the same requests.
//! Schemas, loaders, transactions and consistency checks are written against the engine's API as any user of it would.
//!
//! Invariant: nothing in here measures time or prints. Drivers that do stand in `bench`.

pub mod names;
pub mod pages;
pub mod random;
pub mod rows;
pub mod text;
pub mod tpcc;
pub mod tpch;
pub mod ycsb;
pub mod zipf;
