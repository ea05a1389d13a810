//! Statements against PostgreSQL's recorded answers, and sessions as programs use them.

mod constraints;
mod golden;
mod sessions;
