//! Thermocline: engine.

pub mod multiplex;
