//! The indexes of the hot store: a hash index and an ordered one.
//!
//! Both hold entries (key, [`RowId`](thermocline_base::ids::RowId)); a pair stands in an index at most once, a key may
//! have several pairs, in unique indexes too (old versions of a chain under other keys, entries that await pruning).
//! Uniqueness, visibility and the comparison with the row's actual key are the engine's. What an index promises:
//!
//! - An entry that was inserted before a lookup or scan began, and is not removed before it ends, is found by it; by a
//!   scan exactly once. Splits, merges, growth and shrinking change nothing about that.
//! - A lookup writes no memory that other threads read. It reads optimistically and checks versions; callbacks run on
//!   copies, with no latch held.
//! - Every operation runs under an epoch pin of the epochs that the index's memory retires through, and blocks on
//!   nothing but the latch of a bucket or node, which its holder keeps for less than a few microseconds.
//!
//! Memory comes through [`node_memory::NodeMemory`]. [`hash::HashIndex`] stores 32 bits of a hash in place of the key
//! and about 15 bytes an entry; [`tree::Tree`] stores keys as byte strings in the order of `memcmp`.

mod counter;
pub mod hash;
pub mod node_memory;
pub mod tree;

pub use hash::HashIndex;
pub use node_memory::{HeapMemory, NodeMemory, OutOfMemory};
pub use tree::{Batch, Direction, Tree, TreePlace};

/// The hash of a key, the same on every machine and in every run: it names rows beyond the life of a process.
#[inline]
pub(crate) fn hash_of(key: &[u8]) -> u64 {
    rapidhash::v3::rapidhash_v3(key)
}
