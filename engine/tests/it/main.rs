//! The engine's integration tests: one binary, one module a subject.

mod history;
