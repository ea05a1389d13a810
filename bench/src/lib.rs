//! Thermocline: bench.
