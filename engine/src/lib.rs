//! Thermocline: engine.
