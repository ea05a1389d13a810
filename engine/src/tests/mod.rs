//! Tests of the whole engine that look inside of it. `engine/tests` has those that use what users have.

mod cold;
mod crashes;
mod damage;
mod define;
mod define_within;
mod freeze;
mod leave;
#[cfg(feature = "model")]
mod model;
#[cfg(not(feature = "model"))]
mod paged;
#[cfg(not(feature = "model"))]
mod paged_faults;
mod statement;
