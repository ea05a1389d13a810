//! Integration tests of the engine: one binary.

mod basics;
mod durability;
mod history;
