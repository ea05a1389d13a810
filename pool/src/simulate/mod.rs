//! Simulates an SSD between memory and a slow disk for a sequence of page requests, without either device.
//!
//! ```text
//!   trace or model ──► frames (once) ──misses, in batches──► policy 1 × size 1 ─► disk and SSD in simulated time ─► row
//!                                                        └─► policy 2 × size 1 ─► …                (a thread a core)
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | `trace` | requests, and the binary format of our own |
//! | `capture` | a trace of what a page file is asked for |
//! | `formats` | comma-separated values, MSR Cambridge's, `oracleGeneral` |
//! | `frames` | the DRAM level: what it lets through |
//! | `device` | disks and SSDs in simulated time |
//! | `level` | one policy of one size, request after request |
//! | `replay` | all of them over one trace |
//! | `closed` | streams that wait for their pages, processors between |
//!
//! Rules: all policies of a run see the same misses. Nothing here asks for the time to decide anything: one trace gives one
//! result. Whatever is reported in seconds of I/O is simulated.
//!
//! Limits: pages of one length. OPT keeps the misses of the whole trace in memory, 20 bytes each; without it a trace may be of
//! any length.

pub use crate::capture;
pub mod closed;
pub mod formats;
pub mod frames;
mod level;
mod replay;
pub use crate::trace;

pub use level::{Counts, Mode};
pub use replay::{Outcome, Row, Simulation, replay};
pub use thermocline_base::device_model as device;

#[cfg(test)]
mod tests;
