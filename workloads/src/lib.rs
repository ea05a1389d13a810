//! Thermocline: workloads.
