//! Thermocline: engine.

pub mod row;
