//! The access log: what was accessed in which quantum, to classify rows later or elsewhere.
//!
//! `format` says what the bytes are, `writer` makes them, `reader` finds its way through them, also through damaged ones.

pub(crate) mod error;
pub(crate) mod format;
pub(crate) mod reader;
pub(crate) mod writer;

#[cfg(test)]
mod tests;
