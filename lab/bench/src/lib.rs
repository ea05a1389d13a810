//! Drivers that measure Thermocline, and the calibration of the machine that they run on.
//!
//! ```text
//!   settings ─► calibration ─► load ─► drive (warm-up, measured seconds) ─► report ─► table, JSON, plot
//! ```
//!
//! Invariant: nothing in here but [`command_line`] knows what a user types, or how a process ends.

pub mod backup_bench;
pub mod calibration;
pub mod classify_bench;
pub mod command_line;
pub mod demo;
pub mod drive;
pub mod freeze_bench;
pub mod inspect;
pub mod latency;
pub mod machine;
pub mod page_in;
pub mod paged_bench;
pub mod peak;
pub mod plot;
pub mod pool_bench;
pub mod progress;
pub mod remote_bench;
pub mod report;
pub mod repro;
pub mod run;
pub mod settings;
pub mod siberia_bench;
pub mod simulate;
pub mod store_bench;
mod threads;
mod time;
