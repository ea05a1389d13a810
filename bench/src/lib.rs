//! Drivers that measure Thermocline, and the calibration of the machine that they run on.

pub mod calibration;
pub mod drive;
pub mod latency;
pub mod machine;
mod time;
