//! temporary
use crate::report::Report;
use crate::settings::Settings;

/// Options
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// x
    pub calibrate: bool,
    /// x
    pub check: bool,
    /// x
    pub quiet: bool,
}

/// x
pub fn run(_settings: &Settings, _options: &RunOptions) -> Result<Report, String> {
    Err("no engine".into())
}
