//! A PostgreSQL server over Thermocline: version 3 of its protocol, with crate `sql` behind it.
//!
//! ```no_run
//! use thermocline_engine::{Database, Options};
//! use thermocline_server::{Config, Server};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let db = Database::open("data", Options::default())?;
//! let server = Server::start(db, Config::default())?;
//! println!("psql -h 127.0.0.1 -p {} -U postgres", server.addresses()[0].port());
//! server.stop()?;
//! # Ok(())
//! # }
//! ```
//!
//! ```text
//!            ┌ door (one thread) ─────────────┐    ┌ a thread a core ──────────────────────────┐
//! client ──► │ accept, startup, password,     │ ─► │ connection ─ messages ─► Session (sql)    │
//!            │ requests to cancel, metrics    │    │      ▲ extended: statements, portals      │
//!            └────────────────────────────────┘    └───────────────────────────────────────────┘
//! ```
//!
//! | module | does |
//! |---|---|
//! | `config` | what can be set up |
//! | `door` | lets clients in |
//! | `lobby` | clients that have not said their name |
//! | `connection` | answers a client's messages |
//! | `extended` | statements and portals of the extended protocol |
//! | `copy` | COPY in and out |
//! | `message` | reads messages |
//! | `wire` | writes messages |
//! | `out` | the send buffer |
//! | `metrics` | counts for Prometheus |
//! | `log` | how many lines a minute the log gets |
//! | `fuzzing` | entrances for fuzz targets |
//! | `signals` | what asks a process to end |
//! | `stream` | TCP and Unix sockets as one |
//! | `shared` | what all threads share: clients, counts |
//!
//! Invariant: this crate knows nothing of SQL's meaning (that is `sql`'s), nor of the engine beyond opening a database; it has
//! no unsafe code. A connection stays on one thread from its first statement to its last. A panic ends its connection only.

#![forbid(unsafe_code)]

mod config;
mod connection;
mod copy;
mod door;
mod extended;
#[doc(hidden)]
pub mod fuzzing;
mod lobby;
mod log;
mod message;
mod metrics;
mod out;
#[cfg(test)]
mod panic_tests;
mod server;
mod shared;
mod signals;
mod stream;
mod wire;

pub use config::{Config, Passwords};
pub use lobby::allow_all_files;
pub use log::tell_panics_in_a_line;
pub use server::{Server, StartError};
pub use signals::Ends;

/// The only role.
pub const ROLE: &str = "postgres";
/// The only database.
pub(crate) const DATABASE: &str = "postgres";
