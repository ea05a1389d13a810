//! `thermocline-lab simulate`: opens traces and models, runs the simulator of `pool` over them, and reports.
//!
//! ```text
//!   file (perhaps gzip or zstd) ─► format by its first bytes ─┐
//!   model:NAME ─► page model of `workloads` ──────────────────┴─► pool::simulate ─► rows ─► table, JSON, plots
//! ```
//!
//! Invariant: whatever is emulated is named in every output. The seconds of I/O are simulated; no device is touched.

mod devices;
mod models;
mod open;
mod report;

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
pub use thermocline_pool::cache::CacheKind;
use thermocline_pool::simulate::trace::TraceError;
use thermocline_pool::simulate::{Mode, Simulation, replay};
pub use thermocline_pool::ssd::DEFAULT_POLICY;

use crate::progress::Progress;
pub use devices::{Devices, device};
pub(crate) use models::traced;
pub use models::{MODELS, ModelSource, model};
pub use open::{TraceFormat, open, open_as};
pub use report::{SimulationReport, SimulationRow};

/// The way that changed pages take, on the command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteMode {
    /// They go to the disk at once.
    WriteThrough,
    /// They go to the SSD and a journal, and to the disk later.
    WriteBack,
}

/// Settings of a simulation.
#[derive(Clone, Debug)]
pub struct SimulateSettings {
    /// Files, or `model:NAME`.
    pub traces: Vec<String>,
    /// The format of the files, if it is known.
    pub format: Option<TraceFormat>,
    /// Policies.
    pub policies: Vec<CacheKind>,
    /// Bytes of frames before the SSD; 0: the trace was captured below them.
    pub dram_bytes: u64,
    /// Sizes of the SSD in bytes.
    pub ssd_bytes: Vec<u64>,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Pages of an extent.
    pub extent_pages: u32,
    /// The devices.
    pub devices: Devices,
    /// The way that changed pages take.
    pub mode: WriteMode,
    /// The part of its model's size that a database has.
    pub scale: f64,
    /// Threads that simulate.
    pub threads: usize,
    /// One seed gives one sequence of a model's requests.
    pub seed: u64,
}

/// Why there is no result.
#[derive(Debug)]
pub enum SimulateError {
    /// A setting that cannot be.
    Setting(String),
    /// A trace that cannot be read.
    Trace {
        /// Which.
        name: String,
        /// Why.
        error: TraceError,
    },
}

impl fmt::Display for SimulateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting(said) => f.write_str(said),
            Self::Trace { name, error } => write!(f, "{name}: {error}"),
        }
    }
}

impl std::error::Error for SimulateError {}

type Result<T> = std::result::Result<T, SimulateError>;

fn setting<T>(said: impl Into<String>) -> Result<T> {
    Err(SimulateError::Setting(said.into()))
}

impl SimulateSettings {
    fn simulation(&self) -> Result<Simulation> {
        let page = self.page_bytes;
        if !(page.is_power_of_two() && (512..=1 << 20).contains(&page)) {
            return setting(format!("--page is a power of two from 512B to 1MiB, not {page} bytes"));
        }
        if self.extent_pages == 0 || self.extent_pages > 1 << 16 {
            return setting("--extent is a number of pages from 1 to 65536, for instance 32");
        }
        if self.policies.is_empty() || self.ssd_bytes.is_empty() || self.traces.is_empty() {
            return setting("name a trace, a policy and a size of the SSD at least");
        }
        let slots = |bytes: &u64| {
            let pages = bytes / page;
            match u32::try_from(pages).ok().filter(|pages| *pages < 1 << 31) {
                Some(pages) if pages >= self.extent_pages => Ok(pages),
                Some(_) => setting(format!(
                    "--ssd {bytes} is too small for an extent of {} pages of {page} bytes",
                    self.extent_pages
                )),
                None => setting(format!("--ssd {bytes} has more than 2^31 pages: take larger pages")),
            }
        };
        let frames = u32::try_from(self.dram_bytes / page).unwrap_or(u32::MAX);
        if frames >= 1 << 31 {
            return setting("--dram has more than 2^31 pages: take larger pages");
        }
        Ok(Simulation {
            page_bytes: page as u32,
            extent_pages: self.extent_pages,
            frames,
            slots: self.ssd_bytes.iter().map(slots).collect::<Result<_>>()?,
            policies: self.policies.clone(),
            disk: self.devices.disk.clone(),
            ssd: self.devices.ssd.clone(),
            mode: match self.mode {
                WriteMode::WriteThrough => Mode::WriteThrough,
                WriteMode::WriteBack => Mode::WriteBack,
            },
            threads: self.threads,
        })
    }
}

/// Simulates all traces, one after the other.
///
/// # Errors
/// Settings that cannot be, and what is wrong with a trace.
pub fn run(settings: &SimulateSettings, quiet: bool) -> Result<SimulationReport> {
    let simulation = settings.simulation()?;
    let mut progress = Progress::new(quiet);
    let mut rows = Vec::new();
    for name in &settings.traces {
        let mut source = match name.strip_prefix("model:") {
            Some(of) => models::source(of, settings)?,
            None => open(&PathBuf::from(name), settings)?,
        };
        if let Some(bytes) = source.page_bytes().filter(|bytes| *bytes != simulation.page_bytes) {
            return setting(format!("{name} has pages of {bytes} bytes: say --page {bytes}"));
        }
        progress.begin(&format!("{name}: reading"));
        let mut show = |requests: u64| progress.show(|| format!("{name}: {}", told(requests)));
        let outcome = replay(source.as_mut(), &simulation, &mut show)
            .map_err(|error| SimulateError::Trace { name: name.clone(), error })?;
        if outcome.frames.requests == 0 {
            return setting(format!("{name} has no request"));
        }
        rows.extend(report::rows(name, settings, &outcome));
    }
    progress.end();
    Ok(SimulationReport::new(settings, rows))
}

fn told(requests: u64) -> String {
    format!("{} requests", crate::report::grouped(requests as f64))
}

#[cfg(test)]
mod tests;
