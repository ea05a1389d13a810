//! A trace through the real level: page file on a slow device, SSD before it, no database and no frames.
//!
//! ```text
//!   trace ─► extents numbered densely ─► page file with those pages ─► so many readers at a time ─► PageDevice with its SSD
//! ```
//!
//! The trace is taken as one from below memory. With one reader the level hits what the simulator hits, but for pages that are asked
//! for while they are written to their slots, and for pages that are written while they are cached: the level voids them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use thermocline_base::device_model::DeviceModel;
use thermocline_base::io::{AlignedBytes, Io, ProfileIo, SystemIo};
use thermocline_base::multiplex::run_tasks;
use thermocline_base::rng::fresh_id;
use thermocline_base::sync::{AtomicU64, Mutex, Ordering};
use thermocline_pool::cache::{CacheKind, Told};
use thermocline_pool::device::{PageDevice, ReadReason, Wanted};
use thermocline_pool::page::{self, PageKind, PageSize};
use thermocline_pool::simulate::trace::{TraceKind, TraceRequest, TraceSource};
use thermocline_pool::simulate::{Mode, Simulation, replay};
use thermocline_pool::ssd::{SsdFile, SsdOptions, SsdStats};

use super::super::RunError;
use super::SsdSize;
use crate::progress::Progress;
use crate::report::{grouped, size};
use crate::time;

/// Settings of a replay.
#[derive(Clone, Debug)]
pub struct ReplaySettings {
    /// The trace.
    pub trace: PathBuf,
    /// Where the page file and the SSD's file lie: a directory of their own.
    pub dir: PathBuf,
    /// The size of the SSD; a share is one of the pages that the trace touches.
    pub ssd_size: SsdSize,
    /// Which pages it keeps.
    pub policy: CacheKind,
    /// The device that the page file answers as.
    pub profile: String,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Threads that read.
    pub threads: usize,
    /// Requests in flight on each.
    pub in_flight: usize,
}

/// The result of a replay.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayReport {
    /// The program's version.
    pub version: &'static str,
    /// The trace.
    pub trace: String,
    /// The emulated device, and what it is emulated over.
    pub emulated: String,
    /// Requests of the trace.
    pub requests: u64,
    /// Pages that it touches, in whole extents.
    pub pages: u64,
    /// Pages of the SSD.
    pub ssd_pages: u64,
    /// Its policy.
    pub policy: &'static str,
    /// Requests in flight.
    pub in_flight: usize,
    /// Seconds that it took.
    pub seconds: f64,
    /// Requests a second.
    pub requests_per_s: f64,
    /// Pages that were read.
    pub reads: u64,
    /// Those that the SSD gave.
    pub hits: u64,
    /// Their share.
    pub hit_ratio: f64,
    /// Hits of the same policy in the simulator.
    pub simulated_hits: u64,
    /// Admitted pages that were dropped before they were written.
    pub dropped: u64,
    /// Bytes written to the SSD.
    pub ssd_bytes_written: u64,
    /// Is it on, and if not, why.
    pub state: String,
}

const EXTENT_PAGES: u64 = thermocline_pool::space::EXTENT_PAGES;
const VERSION: u64 = 1 << 32;
const KIND: PageKind = PageKind(0x5201);
/// Pages that are filled by one write.
const FILLED_AT_ONCE: u64 = EXTENT_PAGES;

/// Replays a trace.
///
/// # Errors
/// When the trace cannot be read, or a device fails.
pub fn replay_trace(
    settings: &ReplaySettings,
    source: &mut dyn TraceSource,
    quiet: bool,
) -> Result<ReplayReport, RunError> {
    let failed = |error: String| RunError::Capture(format!("{}: {error}", settings.trace.display()));
    if let Some(bytes) = source.page_bytes().filter(|bytes| *bytes != settings.page_bytes) {
        return Err(RunError::Setting(format!("the trace has pages of {bytes} bytes: say --page {bytes}")));
    }
    let page_size = PageSize::new(settings.page_bytes)
        .map_err(|_| RunError::Setting("--page is 4KiB, 8KiB, 16KiB, 32KiB or 64KiB".to_owned()))?;
    let (requests, pages) = dense(source).map_err(|error| failed(error.to_string()))?;
    if requests.is_empty() {
        return Err(RunError::Setting(format!("{} has no request", settings.trace.display())));
    }
    let disk = DeviceModel::named(&settings.profile).ok_or_else(|| {
        let names = DeviceModel::NAMES.join(", ");
        RunError::Setting(format!("--profile {}: name one of {names}", settings.profile))
    })?;
    let ssd_bytes = match settings.ssd_size {
        SsdSize::Bytes(bytes) => bytes,
        SsdSize::Share(share) => ((pages as f64 * share) as u64 + 1) * u64::from(settings.page_bytes),
    };
    let mut progress = Progress::new(quiet);
    progress.begin("filling the page file");
    let device = opened(settings, page_size, pages, ssd_bytes, &disk)?;
    progress.begin("replaying");
    let began = time::now();
    drive(&device, &requests, settings)?;
    let seconds = began.elapsed().as_secs_f64();
    progress.end();
    let ssd = device.ssd().expect("it was attached").stats();
    let simulated_hits = simulated(settings, requests.clone(), &ssd, disk);
    Ok(ReplayReport {
        version: env!("CARGO_PKG_VERSION"),
        trace: settings.trace.display().to_string(),
        emulated: format!("{}, over the local disk; the SSD is the local disk", settings.profile),
        requests: requests.len() as u64,
        pages,
        ssd_pages: ssd.slots,
        policy: ssd.policy.name(),
        in_flight: settings.threads * settings.in_flight,
        seconds,
        requests_per_s: requests.len() as f64 / seconds,
        reads: ssd.counts.reads,
        hits: ssd.counts.hits,
        hit_ratio: ssd.hit_ratio(),
        simulated_hits: simulated_hits.map_err(|error| failed(error.to_string()))?,
        dropped: ssd.counts.dropped,
        ssd_bytes_written: ssd.counts.bytes_written,
        state: ssd.state.to_string(),
    })
}

type Dense = (Vec<TraceRequest>, u64);

/// The requests of a trace whose extents stand one behind the other in the order in which they come; and how many pages there are,
/// those of the header's extent counted.
fn dense(source: &mut dyn TraceSource) -> thermocline_pool::simulate::trace::Result<Dense> {
    let mut requests = Vec::new();
    while source.next_batch(&mut requests)? {}
    let mut extents: HashMap<u64, u64> = HashMap::new();
    for request in &mut requests {
        let next = extents.len() as u64 + 1;
        let extent = *extents.entry(request.page / EXTENT_PAGES).or_insert(next);
        request.page = extent * EXTENT_PAGES + request.page % EXTENT_PAGES;
    }
    let pages = (extents.len() as u64 + 1) * EXTENT_PAGES;
    Ok((requests, pages))
}

fn sealed(device: &PageDevice, number: u64, bytes: &mut [u8]) {
    page::seal(bytes, device.seal(), number, VERSION, KIND);
}

/// A page file with all pages, opened with its SSD.
fn opened(
    settings: &ReplaySettings,
    page_size: PageSize,
    pages: u64,
    ssd_bytes: u64,
    disk: &DeviceModel,
) -> Result<PageDevice, RunError> {
    let failed =
        |error: &dyn std::fmt::Display| RunError::Setting(format!("{}: {error}", settings.dir.display()));
    let system: Arc<dyn Io> = Arc::new(SystemIo::new());
    let primary = settings.dir.join("primary");
    system.create_dir_all(&primary).map_err(|error| failed(&error))?;
    let path = primary.join("replay.pages");
    let database = fresh_id();
    let device = PageDevice::create(&*system, &path, page_size, database).map_err(|error| failed(&error))?;
    device.allocate(pages).map_err(|error| failed(&error))?;
    for first in (EXTENT_PAGES..pages).step_by(FILLED_AT_ONCE as usize) {
        let mut bytes = AlignedBytes::zeroed(FILLED_AT_ONCE as usize * page_size.bytes());
        for (number, bytes) in (first..).zip(bytes.chunks_exact_mut(page_size.bytes())) {
            sealed(&device, number, bytes);
        }
        device.write(first, bytes.into()).wait().result.map_err(|error| failed(&error))?;
    }
    drop(device);
    let slow = ProfileIo::new(Arc::clone(&system), &primary, disk.clone());
    let mut device = PageDevice::open(&slow, &path, None, database).map_err(|error| failed(&error))?;
    let options =
        SsdOptions { policy: settings.policy, ..SsdOptions::new(&settings.dir.join("ssd"), ssd_bytes) };
    let ssd = SsdFile::open(&system, options, page_size, database).map_err(|error| failed(&error))?;
    device.attach(ssd);
    Ok(device)
}

/// Does what the requests say, so many at a time.
fn drive(device: &PageDevice, requests: &[TraceRequest], settings: &ReplaySettings) -> Result<(), RunError> {
    let next = AtomicU64::new(0);
    let failure = Mutex::new(None);
    let reader = async || {
        while let Some(request) = requests.get(next.fetch_add(1, Ordering::Relaxed) as usize)
            && failure.lock().is_none()
        {
            if let Err(what) = one(device, request).await {
                failure.lock().get_or_insert(what);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..settings.threads {
            scope.spawn(|| run_tasks((0..settings.in_flight).map(|_| reader()).collect()));
        }
    });
    match failure.into_inner() {
        Some(what) => Err(RunError::Capture(what)),
        None => Ok(()),
    }
}

/// One request.
async fn one(device: &PageDevice, request: &TraceRequest) -> Result<(), String> {
    let (page, bytes) = (request.page, device.page_size().bytes());
    match request.kind {
        TraceKind::Read => {
            let reason = match request.told {
                Told::Sequential => ReadReason::Scan,
                Told::Nothing | Told::Random => ReadReason::Point,
            };
            let read = device.read(page, AlignedBytes::zeroed(bytes), Wanted::of(VERSION, reason));
            let outcome = read.await;
            let came = outcome.result.map_err(|error| format!("page {page} cannot be read: {error}"))?;
            let buffer = outcome.buffer.into_aligned().unwrap_or_else(|| AlignedBytes::zeroed(bytes));
            page::open(&buffer[..came], device.seal(), page, Some(VERSION))
                .map(drop)
                .map_err(|error| format!("a page came back wrong: {error}"))
        }
        TraceKind::Write | TraceKind::Create => {
            let mut buffer = AlignedBytes::zeroed(bytes);
            sealed(device, page, &mut buffer);
            let written = device.write(page, buffer.into()).await.result;
            written.map(drop).map_err(|error| format!("page {page} cannot be written: {error}"))
        }
        TraceKind::Free => {
            device.discard(page..page + 1);
            Ok(())
        }
    }
}

/// The hits that the simulator has with the same policy and as many slots.
fn simulated(
    settings: &ReplaySettings,
    requests: Vec<TraceRequest>,
    ssd: &SsdStats,
    disk: DeviceModel,
) -> thermocline_pool::simulate::trace::Result<u64> {
    let simulation = Simulation {
        page_bytes: settings.page_bytes,
        extent_pages: EXTENT_PAGES as u32,
        frames: 0,
        slots: vec![ssd.slots as u32],
        policies: vec![settings.policy],
        disk,
        ssd: DeviceModel::named("fusion-io").expect("it has a name"),
        mode: Mode::WriteThrough,
        threads: 1,
    };
    let outcome = replay(&mut requests.into_iter(), &simulation, &mut |_| {})?;
    Ok(outcome.rows.iter().find(|row| row.policy.is_some()).map_or(0, |row| row.counts.hits))
}

impl ReplayReport {
    /// The result for programs.
    #[must_use]
    pub fn to_json(&self) -> String {
        crate::report::json(self)
    }

    /// The result for people.
    #[must_use]
    pub fn to_table(&self) -> String {
        let count = |number: u64| grouped(number as f64);
        format!(
            "emulated: {}\n{}: {} requests for {} pages, {} at a time\nSSD of {} pages with policy {}: {}\n\
             {:.1} s, {} requests/s; {} of {} reads from the SSD ({:.1} %), {} in the simulator\n\
             {} dropped, {} written to the SSD\n",
            self.emulated,
            self.trace,
            count(self.requests),
            count(self.pages),
            self.in_flight,
            count(self.ssd_pages),
            self.policy,
            self.state,
            self.seconds,
            grouped(self.requests_per_s),
            count(self.hits),
            count(self.reads),
            100.0 * self.hit_ratio,
            count(self.simulated_hits),
            count(self.dropped),
            size(self.ssd_bytes_written)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_base::rng::Rng;

    #[test]
    fn a_reader_hits_about_what_the_simulator_hits() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut rng = Rng::new(5);
        let requests: Vec<TraceRequest> = (0..400)
            .map(|_| {
                let near = if rng.chance(0.7) { 40 } else { 100_000 };
                let (page, kind) = match rng.below(40) {
                    0 => (rng.below(near), TraceKind::Free),
                    // Pages are written where no request reads.
                    1 => (200_000 + rng.below(near), TraceKind::Create),
                    _ => (rng.below(near), TraceKind::Read),
                };
                TraceRequest { told: Told::Random, ..TraceRequest::new(page, kind) }
            })
            .collect();
        let settings = ReplaySettings {
            trace: PathBuf::from("a trace"),
            dir: dir.path().to_path_buf(),
            ssd_size: SsdSize::Bytes(65 * 4096),
            policy: CacheKind::Lru,
            profile: "network-volume".to_owned(),
            page_bytes: 4096,
            threads: 1,
            in_flight: 1,
        };
        let found = replay_trace(&settings, &mut requests.into_iter(), true).expect("a trace in memory");
        assert_eq!((found.requests, found.ssd_pages), (400, 64));
        // What is asked for while it is written is a miss: how often that happens is the machine's.
        let (hits, most) = (found.hits, found.simulated_hits);
        assert!(most > 100 && (most / 2..=most).contains(&hits), "{found:?}");
    }
}
