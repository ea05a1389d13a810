//! Thermocline: engine.

pub(crate) mod checkpoint;
pub(crate) mod log;
