//! Statements against PostgreSQL's recorded answers, and sessions as programs use them.

mod advisory;
mod constraints;
mod golden;
mod sessions;
