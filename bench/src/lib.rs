//! Drivers that measure Thermocline, and the calibration of the machine that they run on.
//!
//! ```text
//!   settings ─► calibration ─► load ─► drive (warm-up, measured seconds) ─► report ─► table, JSON, plot
//! ```
//!
//! Invariant: nothing in here reads the command line or decides how the process ends; `cli` does.

pub mod calibration;
pub mod drive;
pub mod latency;
pub mod machine;
pub mod plot;
pub mod pool_bench;
pub mod progress;
pub mod report;
pub mod run;
pub mod settings;
pub mod store_bench;
mod time;
