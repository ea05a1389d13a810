//! Integration tests of the engine: one binary.

mod basics;
mod crash;
mod durability;
mod history;
