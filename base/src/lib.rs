//! The ground of every crate of Thermocline: ids, timestamps, clocks, randomness, I/O, virtual memory, checksums and
//! the façade over atomics and threads that lets a model checker drive the engine.
//!
//! Invariant: `base` knows nothing of tables, transactions or pages. Whatever only Linux has stands here behind a
//! trait or a function with a portable twin (feature `portable` builds the twins on Linux, so that they are tested).

pub mod background;
pub mod checksum;
pub mod clock;
pub mod depth;
pub mod device_model;
pub mod epoch;
pub mod ids;
pub mod io;
pub mod memory_file;
pub mod multiplex;
pub mod mutation;
pub mod prefetch;
pub mod rng;
pub mod sync;
pub mod timer;
pub mod vm;
