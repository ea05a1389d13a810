//! Failures of a command: one line for a person, and an exit code for a script.

use std::process::ExitCode;

/// Why a command did not succeed.
#[derive(Debug)]
pub enum Failure {
    /// It was asked for something that cannot be: exit code 2.
    Usage(String),
    /// It ran and failed: exit code 1.
    Failed(String),
    /// It ran and found something wrong, which it has printed already: exit code 1.
    Found,
}

impl Failure {
    /// Prints it to standard error, unless the command has.
    pub fn print(&self) {
        match self {
            Self::Usage(text) | Self::Failed(text) => eprintln!("error: {text}"),
            Self::Found => {}
        }
    }

    /// The exit code of the process.
    #[must_use]
    pub fn code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Failed(_) | Self::Found => ExitCode::from(1),
        }
    }
}
