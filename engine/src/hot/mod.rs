//! Hot rows: their memory.

pub(crate) mod budget;
pub(crate) mod memory;
