//! Regions larger than memory: tuples read by Zipf under each pager, in turns on one machine.
//!
//! ```text
//!   tuples ─► hot tuples (a sample of accesses, the densest prefix) ─► hot ones pinned, the rest paged   (separated)
//!                                                                  └► all of them paged, as they come   (spread)
//!   then, round after round, one contender after another: build ─► warm up ─► measure ─► drop; the median of the rounds is told
//! ```
//!
//! | contender | tuples | what pages |
//! |---|---|---|
//! | `memory` | all pinned | nothing: what the others are compared with |
//! | `own`, `own-spread` | separated, spread | the pager `own` over a file |
//! | `os`, `os-spread` | separated, spread | the system, over a mapped file (`os-spread` is the paper's default paging) |
//! | `remote` | separated | the pager `own` over memory servers |
//!
//! After (Stoica and Ailamaki, DaMoN 2013, §6), without a database around it: an access looks a tuple's place up in an array and reads its
//! bytes. All contenders have the same memory for tuples; the array, the same for all, and tables of pagers are not in it.
//! Each tuple that is read is compared with what was written.

mod bound;
mod drive;
mod layout;
mod report;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use thermocline_base::backing::{Backing, FileBacking, PAGE_BYTES, PART_BYTES};
use thermocline_base::clock::{Clock, SystemClock};
use thermocline_base::epoch::Epochs;
use thermocline_base::io::{IoError, SystemIo};
use thermocline_pool::policy::PolicyKind;
use thermocline_region::{Options, OsOptions, OsPager, Pager, Paging, RegionError, Statistics};
use thermocline_remote::backing::{RemoteBacking, RemoteOptions, Unreached};
use thermocline_remote::client::ClientOptions;
use thermocline_remote::transport::Connect;

use crate::machine::Machine;
use bound::Group;
use drive::Driven;
use layout::Tuples;
pub use report::{PagedReport, Run};

/// Bytes that the system may keep for the process beside the paged side, in a control group: stacks, page tables.
const SLACK_BYTES: u64 = 8 << 20;

/// A contender of the measurement.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contender {
    /// Everything pinned.
    Memory,
    /// Our pager, hot tuples apart.
    Own,
    /// Our pager, hot tuples among the others.
    OwnSpread,
    /// The system, hot tuples apart.
    Os,
    /// The system, hot tuples among the others.
    OsSpread,
    /// Our pager over memory servers, hot tuples apart.
    Remote,
}

impl Contender {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Memory, Self::Own, Self::OwnSpread, Self::Os, Self::OsSpread, Self::Remote];

    /// On the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Own => "own",
            Self::OwnSpread => "own-spread",
            Self::Os => "os",
            Self::OsSpread => "os-spread",
            Self::Remote => "remote",
        }
    }

    /// The one with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|contender| contender.name() == name)
    }

    fn is_separated(self) -> bool {
        matches!(self, Self::Own | Self::Os | Self::Remote)
    }

    fn is_of_the_system(self) -> bool {
        matches!(self, Self::Os | Self::OsSpread)
    }
}

/// Settings of the measurement.
#[derive(Clone, Debug, Serialize)]
pub struct PagedSettings {
    /// Number of tuples.
    pub tuples: u64,
    /// Their length, 16 to 4096 bytes.
    pub tuple_bytes: u32,
    /// Memory for tuples.
    pub memory_bytes: u64,
    /// The share of it that hot tuples are pinned in, where they are apart.
    pub pinned_share: f64,
    /// Skew of the accesses.
    pub theta: f64,
    /// The contenders, in this order.
    pub contenders: Vec<Contender>,
    /// Threads of contenders that await their pages.
    pub threads: usize,
    /// Accesses in flight on each of them. Those that cannot await have a thread for each instead.
    pub in_flight: usize,
    /// Seconds before it is measured.
    pub warm_up: f64,
    /// Seconds that are measured.
    pub seconds: f64,
    /// Number of turns that each contender has.
    pub rounds: u32,
    /// Where memory servers are, or that they were started for this.
    pub servers: String,
    /// Memory servers get pages encrypted and authenticated.
    pub sealed: bool,
    /// The network that is emulated; `none`: as fast as this machine.
    pub profile: &'static str,
    /// Of all draws.
    pub seed: u64,
}

/// Why there is no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum PagedError {
    /// The settings contradict each other, or the machine.
    Settings(String),
    /// A region failed.
    Region(RegionError),
    /// The file failed.
    Io(IoError),
    /// Memory servers are not there.
    Servers(Unreached),
    /// A tuple was read that was not written.
    Wrong {
        /// Which contender.
        contender: Contender,
        /// Which tuple was asked for.
        tuple: u64,
    },
}

impl fmt::Display for PagedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settings(text) => f.write_str(text),
            Self::Region(error) => error.fmt(f),
            Self::Io(error) => error.fmt(f),
            Self::Servers(error) => error.fmt(f),
            Self::Wrong { contender, tuple } => write!(
                f,
                "{}: tuple {tuple} was read as it was not written; this is a defect, report it",
                contender.name()
            ),
        }
    }
}

impl std::error::Error for PagedError {}

impl From<RegionError> for PagedError {
    fn from(error: RegionError) -> Self {
        Self::Region(error)
    }
}

impl PagedSettings {
    /// # Errors
    /// When no contender could be measured so.
    pub fn check(&self) -> Result<(), PagedError> {
        let settings = |text: String| Err(PagedError::Settings(text));
        if !(16..=PAGE_BYTES as u32).contains(&self.tuple_bytes) {
            return settings(format!("a tuple has 16 to {PAGE_BYTES} bytes, not {}", self.tuple_bytes));
        }
        let least = 8 * PART_BYTES as u64;
        if self.memory_bytes < least {
            return settings(format!("--memory is at least {} MiB", least >> 20));
        }
        let paged = self.memory_bytes - self.pinned_bytes();
        let most = paged / PAGE_BYTES as u64;
        if self.in_flight * self.threads + 64 > most as usize {
            return settings(format!(
                "{} accesses in flight need more frames than {most}; give more --memory, or a lower --pinned share",
                self.in_flight * self.threads
            ));
        }
        if self.contenders.is_empty() {
            return settings("nothing is to be measured; name pagers".to_owned());
        }
        Ok(())
    }

    /// Memory of pinned parts, where hot tuples are apart.
    fn pinned_bytes(&self) -> u64 {
        let bytes = (self.memory_bytes as f64 * self.pinned_share) as u64;
        bytes / PART_BYTES as u64 * PART_BYTES as u64
    }

    fn remote_options(&self) -> RemoteOptions {
        let options = RemoteOptions::default();
        RemoteOptions { client: ClientOptions { sealed: self.sealed, ..options.client }, ..options }
    }
}

/// A contender's pager, and what bounds it.
struct Field {
    pager: Box<dyn Paging>,
    bound: &'static str,
    group: Option<Group>,
    remote: Option<Arc<RemoteBacking>>,
}

/// Measures. `connects` makes the connections to memory servers, `server_cpu` gives their processor time so far in microseconds, if
/// it is known; `told` hears of each run.
///
/// # Errors
/// When the settings cannot be, a pager cannot be had, or a tuple is wrong.
pub fn run(
    settings: &PagedSettings,
    dir: &Path,
    connects: &dyn Fn() -> Vec<Box<dyn Connect>>,
    server_cpu: &dyn Fn() -> Option<f64>,
    told: &mut dyn FnMut(&Run),
) -> Result<PagedReport, PagedError> {
    settings.check()?;
    let tuples = Tuples::new(settings);
    let mut runs = Vec::new();
    for round in 0..settings.rounds {
        for contender in &settings.contenders {
            let run = one(settings, *contender, round, &tuples, dir, connects, server_cpu)?;
            told(&run);
            runs.push(run);
        }
    }
    let device = drive::device(dir, settings.threads * settings.in_flight, settings.seconds)
        .map_err(PagedError::Io)?;
    Ok(PagedReport::new(settings.clone(), Machine::here(), dir, device, runs))
}

/// Builds one contender, and measures it once.
fn one(
    settings: &PagedSettings,
    contender: Contender,
    round: u32,
    tuples: &Tuples,
    dir: &Path,
    connects: &dyn Fn() -> Vec<Box<dyn Connect>>,
    server_cpu: &dyn Fn() -> Option<f64>,
) -> Result<Run, PagedError> {
    let epochs = Arc::new(Epochs::new());
    let pinned_bytes = match contender {
        Contender::Memory => u64::MAX,
        _ if contender.is_separated() => settings.pinned_bytes(),
        _ => 0,
    };
    let order = tuples.order(pinned_bytes);
    let paged_memory = settings.memory_bytes - order.pinned_bytes().min(settings.memory_bytes);
    let mut field = field(settings, contender, &order, paged_memory, &epochs, dir, connects)?;
    let places = layout::load(&*field.pager, tuples, &order)?;
    if let Some(group) = &field.group {
        group.enter().map_err(|error| PagedError::Settings(group.refused(&error)))?;
    }
    let driven = Driven {
        settings,
        contender,
        tuples,
        places: &places,
        pager: &*field.pager,
        epochs: &epochs,
        server_cpu,
    };
    let measured = driven.run(round);
    // Back where it was, before anything else is done.
    drop(field.group.take());
    let (measured, before, after) = measured?;
    let resident = after.resident_bytes;
    let lost = field.remote.as_ref().map(|remote| remote.statistics().lost_servers);
    let paged_pages = order.paged_pages();
    let counted = |of: fn(&Statistics) -> u64| of(&after) - of(&before);
    Ok(Run::new(
        contender,
        round,
        field.bound,
        &measured,
        report::Counted {
            page_ins: counted(|of| of.page_ins),
            page_outs: counted(|of| of.page_outs),
            net_faults: counted(|of| of.net_faults),
            major_faults: counted(|of| of.major_faults),
            pinned_bytes: after.pinned_bytes,
            paged_bytes: paged_pages * PAGE_BYTES as u64,
            resident_bytes: resident,
            locked_bytes: after.locked_bytes,
            table_bytes: after.table_bytes,
            lost_servers: lost.unwrap_or(0),
        },
    ))
}

/// Makes a contender's pager.
fn field(
    settings: &PagedSettings,
    contender: Contender,
    order: &layout::Order,
    paged_memory: u64,
    epochs: &Arc<Epochs>,
    dir: &Path,
    connects: &dyn Fn() -> Vec<Box<dyn Connect>>,
) -> Result<Field, PagedError> {
    let frames = ((paged_memory / PAGE_BYTES as u64) as usize).max(64);
    let bytes = order.parts() * PART_BYTES;
    if contender.is_of_the_system() {
        let group = Group::new(paged_memory + SLACK_BYTES);
        let resident_pages = group.is_none().then_some(frames);
        let options = OsOptions { bytes, resident_pages };
        let pager = OsPager::new(options, Arc::clone(epochs), &SystemIo::new(), dir)?;
        let bound = if group.is_some() { "control group" } else { "trimmer" };
        return Ok(Field { pager: Box::new(pager), bound, group, remote: None });
    }
    let options = Options { bytes, frames, policy: PolicyKind::S3Fifo };
    let mut remote = None;
    let backing: Arc<dyn Backing> = if contender == Contender::Remote {
        let clock = Arc::new(SystemClock) as Arc<dyn Clock>;
        let backing = RemoteBacking::open(settings.remote_options(), &clock, connects());
        let backing = Arc::new(backing.map_err(PagedError::Servers)?);
        remote = Some(Arc::clone(&backing));
        backing
    } else {
        Arc::new(FileBacking::new(&SystemIo::new(), &dir.join("pages")).map_err(PagedError::Io)?)
    };
    let pager = Pager::new(options, Arc::clone(epochs), backing)?;
    Ok(Field { pager: Box::new(pager), bound: "frames", group: None, remote })
}

/// A duration of so many seconds.
fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}
