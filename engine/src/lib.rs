//! Thermocline: engine.

pub mod index;
