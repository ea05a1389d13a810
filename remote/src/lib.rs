//! Memory of other machines, as a level between memory and disk.
//!
//! A *memory server* grants segments of its memory to a *lease*, which is one opening of one database. The holder of the lease
//! keeps the global page table, allots pages of its segments by itself and reads and writes them; no server knows pages.
//! The pages out there are a cache of what log and images can make again, so losing a server loses nothing that was promised.
//!
//! ```text
//!   page pool ─► file of pages ─► slots ─► table ─► holder of a lease ─► transport ~~~ sessions ─► grants ─► memory of the server
//! ```
//!
//! After "Large-Memory Data Processing on a Remote Memory System using Commodity Hardware" (Jung, Han and Yeom, 2007): the
//! table of 64-bit entries (§3.3.2), delayed writes in bulk (§3.1), memory that is registered at once (§3.2.1) and the
//! hierarchical bit vector (§4). Leases, authentication, checksums and second copies are not the paper's.
//!
//! Invariant: the crate knows nothing of tables, rows or transactions.

#![forbid(unsafe_code)]

pub(crate) mod channel;
pub mod client;
pub mod connecting;
pub mod file;
pub mod grants;
pub mod key;
pub mod message;
#[cfg(test)]
mod model_tests;
pub mod mutation;
pub mod pages;
pub mod profile;
mod seal;
pub mod server;
#[cfg(test)]
mod sim;
pub mod slots;
pub mod table;
pub mod tcp;
pub mod transport;
