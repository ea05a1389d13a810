//! Thermocline: engine.
#![allow(dead_code, reason = "the parts stand before what uses them")]

mod hot;
