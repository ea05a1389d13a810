//! Parts of command lines that `thermocline` and `thermocline-lab` share: values, directories, memory servers, failures.

pub mod data_dir;
mod failure;
pub mod memory_server;
pub mod paging;
pub mod servers;
pub mod values;

pub use failure::Failure;

use std::path::Path;

/// Checks, before a command runs, that a file can be written afterwards.
///
/// # Errors
/// If it cannot.
pub fn can_be_written(file: &Path) -> Result<(), Failure> {
    let folder = match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    if file.is_dir() {
        return Err(Failure::Usage(format!("{} is a directory; name a file in it", file.display())));
    }
    tempfile::tempfile_in(folder).map(drop).map_err(|error| {
        Failure::Usage(format!(
            "cannot write {}: {error}; name a file in a directory that exists and is writable",
            file.display()
        ))
    })
}

/// The outcome of writing a file, as the outcome of the command.
///
/// # Errors
/// If it was not written.
pub fn write(file: &Path, outcome: std::io::Result<()>) -> Result<(), Failure> {
    outcome.map_err(|error| Failure::Failed(format!("cannot write {}: {error}", file.display())))
}
