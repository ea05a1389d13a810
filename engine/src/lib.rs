//! Thermocline: engine.

pub(crate) mod log;
