//! Statements against PostgreSQL's recorded answers, and sessions as programs use them.

mod advisory;
mod batches;
mod bounds;
mod constraints;
mod copy;
mod cursors;
mod definitions;
mod explain;
mod golden;
mod histories;
mod lock_timeout;
mod locks;
mod mutations;
mod prepared;
mod refusals;
mod relations;
mod schemas;
mod sequences;
mod sessions;
mod spill;
mod sqllogictest;
mod streams;
mod tiering;
