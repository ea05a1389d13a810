//! Tests of the store as a whole.

mod bulk;
mod crash;
mod faults;
mod files;
mod model;
