//! `cargo xtask docs-sql`: writes the pages of `docs/use/sql`.
//!
//! They are made from the registries of crate `sql`, of which nothing in here knows: a test of that crate writes them when it is
//! told to, and fails otherwise when they are not current.

use std::process::Command;

use crate::repository::Repository;

/// Has the test write the pages.
///
/// # Errors
/// If the crate does not build, or an example of a page does not run.
pub(crate) fn write(repository: &Repository) -> Result<(), String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["test", "--quiet", "--package", "thermocline-sql", "--lib", "reference::"]);
    cargo.env("THERMOCLINE_WRITE_REFERENCE", "1").current_dir(&repository.root);
    let status = cargo.status().map_err(|error| format!("cargo does not start: {error}"))?;
    if status.success() { Ok(()) } else { Err("the pages of docs/use/sql were not written".to_owned()) }
}
