//! A *region*: a range of addresses made of parts, each free, pinned in memory, or paged by the system.
//!
//! ```text
//!   addresses   | pinned | pinned |  free  |  …  |  free  | paged | paged |
//!                 huge pages, locked                        pages of 4 KiB of a mapped file
//! ```
//!
//! A paged page is written once, in a run, and never changed afterwards. Whoever reads it asks under an epoch pin ([`OsPager::look`])
//! and gets a [`Proof`], the only way to its bytes, which ends with the pin; a part's use ends when the epochs have passed it.
//!
//! After "Enabling Efficient OS Paging for Main-Memory OLTP Databases" (Stoica and Ailamaki, DaMoN, 2013): hot and cold tuples
//! on separate pages, the hot ones pinned, the cold ones left to the kernel (§3, §4). A table of sides instead of the one boundary is
//! not the paper's.
//!
//! Invariant: the crate knows nothing of tables, rows, versions or indexes.

mod error;
mod file;
mod os;
pub mod placement;
mod sides;
mod statistics;

pub use error::RegionError;
pub use os::{OsOptions, OsPager, Proof, Span, is_there};
pub use sides::{Part, Side};
pub use statistics::Statistics;

/// Length of a page.
pub const PAGE_BYTES: usize = 4096;
/// Length of a part: a huge page.
pub const PART_BYTES: usize = thermocline_base::vm::HUGE_PAGE_BYTES;
/// Pages of a part.
pub const PART_PAGES: usize = PART_BYTES / PAGE_BYTES;
