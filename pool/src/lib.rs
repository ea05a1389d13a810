//! Pages of Thermocline: frames over devices, free space, and the store of cold records that lives on them.
//!
//! Invariant: this crate knows nothing of tables' columns, transactions or versions. Keys and records are byte strings.

pub mod cache;
#[doc(hidden)]
pub mod capture;
pub mod device;
pub mod error;
pub mod frames;
#[doc(hidden)]
pub mod mutation;
pub mod page;
pub mod policy;
pub mod simulate;
pub mod space;
pub mod ssd;
pub mod store;
#[doc(hidden)]
pub mod trace;
