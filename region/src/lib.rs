//! A *region*: a range of addresses made of parts, each free, pinned in memory, or paged by a pager of ours.
//!
//! ```text
//!   addresses   | pinned | pinned |  free  |  …  |  free  | paged | paged |
//!                 huge pages, locked                        pages of 4 KiB, resident as far as frames reach
//!                                                             │ ask: a word a page        │ a touch without asking
//!                                                             ▼                           ▼
//!                                       claims ─► frames ─► backing (file, memory server)  the net (userfaultfd)
//! ```
//!
//! A paged page is written once, in a run, and never changed afterwards: page-out drops it, page-in copies it back. Whoever
//! reads it asks first ([`Pager::ask`]) and gets a [`Proof`], the only way to its bytes, which ends with an epoch pin; or learns
//! what is missing, lets go of the pin, and waits ([`Claim`]).
//!
//! After "Enabling Efficient OS Paging for Main-Memory OLTP Databases" (Stoica and Ailamaki, DaMoN, 2013): hot and cold tuples
//! on separate pages, the hot ones pinned, the cold ones paged (§3, §4). A table of sides instead of the one boundary is not the
//! paper's. Its pager is the kernel: [`OsPager`]; ours is [`Pager`]; what is asked of either, [`Paging`].
//!
//! Invariant: the crate knows nothing of tables, rows, versions or indexes.

mod claim;
mod error;
mod frames;
mod memory;
#[cfg(all(test, feature = "model"))]
mod model_tests;
pub mod mutation;
mod net;
mod os;
mod own;
mod paging;
pub mod placement;
mod sides;
mod statistics;
mod tender;
#[cfg(test)]
mod tests;
mod word;

pub use claim::Claim;
pub use error::RegionError;
pub use os::{OsOptions, OsPager, is_there as os_is_there};
pub use own::{Options, Pager, Proof, Span};
pub use paging::Paging;
pub use sides::{Part, Side};
pub use statistics::Statistics;
