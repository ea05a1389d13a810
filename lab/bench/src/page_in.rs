//! A page that is not in memory: the time that the page pool takes for it, beside a bare read of the same medium, in turns on one machine.
//!
//! ```text
//!   file     a read of 4 KiB past the system's cache    ◄──►    the pool's miss over the same file
//!   remote   4 KiB over a socket of their kind, checked   ◄──►    the pool's miss over memory servers
//! ```
//!
//! One page at a time, in an order by seed; each is compared with what was written. The pool has so few frames that hardly a page is
//! found there; one that is is not counted.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use thermocline_base::clock::{Clock, SystemClock};
use thermocline_base::io::{AlignedBytes, Buffer, File, IoError, Operation};
use thermocline_base::multiplex::block_on;
use thermocline_base::rng::Rng;
use thermocline_pool::device::PageDevice;
use thermocline_pool::error::PoolError;
use thermocline_pool::frames::{DeviceId, PageId, PagePool, PoolOptions};
use thermocline_pool::page::{self, HEADER_BYTES, PageKind, PageSize};

use crate::latency::{Latencies, Percentiles};
use crate::machine::Machine;
use crate::remote_bench;
use crate::report::json;

const PAGE: usize = 4096;
const ROUNDS: u64 = 5;
const FRAMES: u64 = 64;
/// Pages that are written at a time.
const RUN: u64 = 32;
const VERSION: u64 = 1;

/// Settings of the measurement.
#[derive(Clone, Debug, Serialize)]
pub struct PageInSettings {
    /// Pages of each medium.
    pub pages: u64,
    /// Reads of each way in each of five rounds.
    pub reads: u64,
    /// Where the servers are, or that they were started for this.
    pub servers: String,
    /// The network that is emulated; `none`: as fast as this machine.
    pub profile: &'static str,
    /// Of the order of reads.
    pub seed: u64,
}

/// One medium.
#[derive(Clone, Debug, Serialize)]
pub struct MediumReport {
    medium: &'static str,
    bare_us: Percentiles,
    page_in_us: Percentiles,
    /// The difference of the medians.
    beyond_bare_us: f64,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct PageInReport {
    settings: PageInSettings,
    machine: Machine,
    media: Vec<MediumReport>,
}

/// Why there is no result.
#[derive(Debug)]
pub enum PageInError {
    /// A medium failed.
    Io(IoError),
    /// The pool failed.
    Pool(PoolError),
    /// The bare transport failed.
    Transport(remote_bench::RemoteError),
    /// A page did not come in as it was written.
    Wrong,
}

impl fmt::Display for PageInError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Pool(error) => error.fmt(f),
            Self::Transport(error) => error.fmt(f),
            Self::Wrong => {
                f.write_str("a page came in as another one than was written; this is a defect, report it")
            }
        }
    }
}

impl std::error::Error for PageInError {}

impl From<IoError> for PageInError {
    fn from(error: IoError) -> Self {
        Self::Io(error)
    }
}

impl From<PoolError> for PageInError {
    fn from(error: PoolError) -> Self {
        Self::Pool(error)
    }
}

/// The bytes behind the header of a page.
fn fill(number: u64, payload: &mut [u8]) {
    Rng::new(number).fill(payload);
}

/// A medium, with pages.
struct Medium {
    file: Arc<dyn File>,
    device: Arc<PageDevice>,
    pool: PagePool,
    id: DeviceId,
    count: u64,
    rng: Rng,
    bare: Latencies,
    page_in: Latencies,
}

impl Medium {
    /// Pages from `RUN` on in a file that is empty.
    fn written(file: Arc<dyn File>, settings: &PageInSettings) -> Result<Self, PageInError> {
        let device = Arc::new(PageDevice::scratch(Arc::clone(&file), PageSize::default()));
        let pool = PagePool::new(PoolOptions::new(FRAMES * PAGE as u64))?;
        let id = pool.add_device(Arc::clone(&device))?;
        let count = settings.pages.next_multiple_of(RUN);
        device.allocate(RUN + count)?;
        for first in (RUN..RUN + count).step_by(RUN as usize) {
            let mut pages = AlignedBytes::zeroed(RUN as usize * PAGE);
            for (number, page) in (first..).zip(pages.chunks_exact_mut(PAGE)) {
                fill(number, &mut page[HEADER_BYTES..]);
                page::seal(page, device.seal(), number, VERSION, PageKind(0x5001));
            }
            device.write(first, Buffer::from(pages)).wait().result?;
        }
        let rng = Rng::new(settings.seed);
        let (bare, page_in) = (Latencies::default(), Latencies::default());
        Ok(Self { file, device, pool, id, count, rng, bare, page_in })
    }

    fn draw(&mut self) -> u64 {
        RUN + self.rng.below(self.count)
    }

    /// A read past the pool.
    fn read_bare(&mut self) -> Result<(), PageInError> {
        let number = self.draw();
        let buffer = Buffer::from(AlignedBytes::zeroed(PAGE));
        let began = SystemClock.now_ns();
        let outcome = self.file.submit(Operation::Read { offset: number * PAGE as u64, buffer }).wait();
        self.bare.record(SystemClock.now_ns() - began);
        outcome.result?;
        let opened = page::open(outcome.buffer.as_slice(), self.device.seal(), number, Some(VERSION));
        if opened.is_ok() { Ok(()) } else { Err(PageInError::Wrong) }
    }

    /// A miss of the pool.
    fn read_page(&mut self) -> Result<(), PageInError> {
        let number = self.draw();
        let page = PageId::new(self.id, number);
        if self.pool.is_resident(page) {
            return Ok(());
        }
        let began = SystemClock.now_ns();
        let guard = block_on(self.pool.pin(page, Some(VERSION)))?;
        self.page_in.record(SystemClock.now_ns() - began);
        let mut expected = vec![0; PAGE - HEADER_BYTES];
        fill(number, &mut expected);
        if guard.payload() == &expected[..] { Ok(()) } else { Err(PageInError::Wrong) }
    }

    fn report(&self, medium: &'static str) -> MediumReport {
        let (bare_us, page_in_us) = (self.bare.percentiles(), self.page_in.percentiles());
        MediumReport { medium, beyond_bare_us: page_in_us.p50 - bare_us.p50, bare_us, page_in_us }
    }
}

/// Measures: over a file that is empty, and over memory servers as one.
///
/// # Errors
/// A medium fails.
pub fn run(
    settings: &PageInSettings,
    file: Arc<dyn File>,
    servers: Arc<dyn File>,
) -> Result<PageInReport, PageInError> {
    let mut local = Medium::written(file, settings)?;
    let mut remote = Medium::written(servers, settings)?;
    for _ in 0..ROUNDS {
        for _ in 0..settings.reads {
            local.read_bare()?;
            local.read_page()?;
        }
        remote_bench::bare(&settings.servers, settings.reads, &mut remote.bare)
            .map_err(PageInError::Transport)?;
        for _ in 0..settings.reads {
            remote.read_page()?;
        }
    }
    let media = vec![local.report("file"), remote.report("remote")];
    Ok(PageInReport { settings: settings.clone(), machine: Machine::here(), media })
}

impl PageInReport {
    /// As one JSON object.
    #[must_use]
    pub fn to_json(&self) -> String {
        json(self)
    }

    /// As lines for people.
    #[must_use]
    pub fn to_table(&self) -> String {
        let mut text = format!(
            "{:<8}{:>12}{:>12}{:>14}{:>14}{:>14}   (µs)\n",
            "medium", "bare p50", "bare p99", "page in p50", "page in p99", "beyond bare"
        );
        for of in &self.media {
            text += &format!(
                "{:<8}{:>12.1}{:>12.1}{:>14.1}{:>14.1}{:>14.1}\n",
                of.medium,
                of.bare_us.p50,
                of.bare_us.p99,
                of.page_in_us.p50,
                of.page_in_us.p99,
                of.beyond_bare_us
            );
        }
        text
    }
}
