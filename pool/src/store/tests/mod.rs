//! Tests of the store as a whole.

mod bulk;
mod cached;
mod copy;
mod counts;
mod crash;
mod faults;
mod files;
mod group;
mod heat;
mod model;
mod moment;
mod object;
mod queue;
mod screens;
mod space;
mod stress;
mod versions;
