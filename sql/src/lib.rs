//! SQL with PostgreSQL's meaning over Thermocline's engine.
//!
//! ```
//! use thermocline_engine::{Database, Options};
//! use thermocline_sql::{Datum, Session};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let db = Database::open_in_memory(Options::default())?;
//! let mut session = Session::new(&db);
//! session.execute("create table accounts (id bigint primary key, owner text not null, balance numeric(12, 2))", &[])?;
//! session.execute("insert into accounts values (1, 'Ada', 100), (2, 'Grace', 50.5)", &[])?;
//! let answer = session.execute("select owner, balance * 2 from accounts where id = $1", &[Datum::Int(2)])?;
//! assert_eq!(answer.text(0, 0).as_deref(), Some("Grace"));
//! assert_eq!(answer.text(0, 1).as_deref(), Some("101.00"));
//! # Ok(())
//! # }
//! ```
//!
//! A text becomes an answer in four steps:
//!
//! ```text
//! text ─ parser ─► statement ─ bind ─► bound tree (plan) ─ exec ─► rows
//!                               ▲ functions: operators, casts, aggregates too
//!                               ▲ catalog: tables, columns, indexes           ▲ engine, through the trait `Source`
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `parser` | text to statements |
//! | `types` | types, values, their text |
//! | `functions` | functions, operators, casts, aggregates and how overloads are chosen |
//! | `expr` | bound expressions and their evaluation, memory, turns and counts of a statement |
//! | `optimize` | how the tables of a plan are read |
//! | `bind` | statements to bound trees (`plan`), over a `catalog` |
//! | `pg_catalog` | definitions behind `catalog`, and PostgreSQL's catalogs as rows |
//! | `exec` | the executor |
//! | `explain` | plans as text |
//! | `objects` | what definitions say that the engine does not keep, in hidden tables |
//! | `depth` | how deep and how large a statement may be |
//! | `names` | names within schemas, search paths |
//! | `settings` | the settings that can be set and shown |
//! | `shared` | what sessions share, and what expressions ask of theirs |
//! | `fuzzing` | an entrance for a fuzz target |
//! | `session` | what a user holds: transactions, settings, definitions |
//!
//! Invariant: this crate knows nothing of sockets, and of the engine only its public interface; it has no unsafe code.

#![forbid(unsafe_code)]

mod bind;
mod catalog;
mod depth;
mod error;
mod exec;
mod explain;
mod expr;
mod functions;
#[doc(hidden)]
pub mod fuzzing;
mod keywords;
mod names;
mod objects;
mod optimize;
mod parser;
mod pg_catalog;
mod plan;
#[cfg(test)]
mod reference;
mod session;
mod settings;
mod shared;
mod types;

pub use error::{About, Error, Result};
pub use exec::Rows;
#[doc(hidden)]
pub use exec::Supply;
pub use expr::memory::Held;
pub use expr::outlet::Outlet;
pub use expr::pace::GiveWay;
pub use session::{Answer, CopyFormat, CopyIn, Copying, Notice, Prepared, Remainder, Session};
pub use shared::Common;
pub use shared::activity::Client;
pub use shared::interrupt::{Cause, Interrupt};
pub use types::{Column, Datum, Local, Numeric, Record, Type, Zone};

/// The answer of `version()`.
pub(crate) const VERSION_TEXT: &str =
    concat!("PostgreSQL 15.0 (Thermocline ", env!("CARGO_PKG_VERSION"), ")");
