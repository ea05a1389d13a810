//! Figures 7 to 11: the star of an ERP solution in a closed loop of one, four and eight streams.
//!
//! | figure | what it plots |
//! |---|---|
//! | 7 | time of all queries without an SSD, with one of 320,000 pages, with indexes placed on it; the gain by rows fetched |
//! | 8 | pages written to the SSD over the run of eight streams |
//! | 9 | pages read from disk and SSD, by size |
//! | 10, 11 | time and gain by size and streams |
//!
//! All runs begin cold. The time is that of the last stream; two processors, as the paper's machine has.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use thermocline_pool::cache::{Admission, CacheKind, CachePolicy, CacheSetup, Request, Slot};
use thermocline_pool::simulate::Simulation;
use thermocline_pool::simulate::closed::{ClosedLoop, LoopCounts, Streams, run};
use thermocline_pool::simulate::trace::TraceRequest;
use thermocline_workloads::pages::erp::{ErpPages, ErpSetup};
use thermocline_workloads::pages::{PageModel, PageRequest};

use super::{device, scaled_pages, simulation};
use crate::progress::Progress;
use crate::repro::report::{FigureReport, Panel, Point, Series};
use crate::repro::{Figure, ReproSettings, Result};
use crate::simulate::traced;

/// Bytes of a page.
const PAGE: u32 = 4096;
/// Frames: 4 % of the database.
const FRAMES: f64 = 50_000.0;
/// The SSD of figures 7 and 8: 24 % of the database.
const SLOTS: f64 = 320_000.0;
/// Thousands of pages of the SSD.
const SIZES: [f64; 7] = [0.0, 50.0, 100.0, 200.0, 320.0, 400.0, 500.0];
/// Streams, and what the text says of their gain with 320,000 pages.
const STREAMS: [(usize, f64); 3] = [(1, 3.0), (4, 4.5), (8, 5.3)];
/// Multiples of the rows of the set-up.
const FACTORS: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];
/// Parts of a run over which figure 8 counts.
const PARTS: usize = 20;

/// The use of the SSD.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Use {
    /// There is none.
    Without,
    /// A cache of so many thousands of pages, in the paper's size.
    Cache(f64),
    /// Indexes lie on it, as many as 320,000 pages hold.
    Indexes,
}

/// A run.
#[derive(Clone, Copy, Debug)]
struct Run {
    streams: usize,
    ssd: Use,
    fetched: f64,
}

impl Run {
    const fn new(streams: usize, ssd: Use) -> Self {
        Self { streams, ssd, fetched: 1.0 }
    }

    const fn of_size(streams: usize, thousands: f64) -> Self {
        Self::new(streams, if thousands > 0.0 { Use::Cache(thousands) } else { Use::Without })
    }
}

struct Queries {
    model: ErpPages,
    step: Vec<PageRequest>,
}

impl Streams for Queries {
    fn next_step(&mut self, stream: usize, step: &mut Vec<TraceRequest>) -> bool {
        self.step.clear();
        let goes_on = self.model.next_step(stream, &mut self.step);
        step.extend(self.step.iter().map(traced));
        goes_on
    }
}

/// Indexes that lie on the SSD: their pages are always there, no others ever.
#[derive(Debug)]
struct Placed {
    indexes: Vec<(u64, u64)>,
}

impl Placed {
    /// Whole indexes, as many as so many pages hold.
    fn new(indexes: &[(u64, u64)], slots: u32) -> Self {
        let mut left = u64::from(slots);
        let fits = indexes.iter().filter(|(first, end)| match left.checked_sub(end - first) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        });
        Self { indexes: fits.copied().collect() }
    }
}

impl CachePolicy for Placed {
    fn request(&mut self, request: &Request) -> Option<Slot> {
        self.find(request.page)
    }

    fn admit(&mut self, _: &Request) -> Admission {
        Admission::Pass
    }

    fn discard(&mut self, _: u64) -> Option<Slot> {
        None
    }

    fn find(&self, page: u64) -> Option<Slot> {
        let mut before = 0;
        for (first, end) in &self.indexes {
            if (*first..*end).contains(&page) {
                return Some((before + page - first) as Slot);
            }
            before += end - first;
        }
        None
    }

    fn cached(&self) -> u32 {
        self.indexes.iter().map(|(first, end)| (end - first) as u32).sum()
    }

    fn bytes(&self) -> usize {
        size_of_val(&self.indexes[..])
    }
}

fn measured(settings: &ReproSettings, of: &Run) -> LoopCounts {
    let setup =
        ErpSetup { fetched: of.fetched, ..ErpSetup::new(settings.scale, of.streams, PAGE, settings.seed) };
    let model = ErpPages::new(&setup);
    let frames = scaled_pages(settings, FRAMES);
    let closed = ClosedLoop {
        streams: of.streams,
        processors: 2,
        page_bytes: PAGE,
        frames,
        disk: device("hdd-7200", settings),
        ssd: device("fusion-io", settings),
        until_ns: f64::INFINITY,
    };
    let policy: Option<Box<dyn CachePolicy>> = match of.ssd {
        Use::Without => None,
        Use::Cache(thousands) => {
            let slots = scaled_pages(settings, thousands * 1e3);
            let simulation = Simulation { page_bytes: PAGE, ..simulation(settings, frames, Vec::new(), &[]) };
            CacheKind::Tac.build(&CacheSetup { savings: simulation.savings(), ..CacheSetup::new(slots) })
        }
        Use::Indexes => Some(Box::new(Placed::new(model.index_pages(), scaled_pages(settings, SLOTS)))),
    };
    run(&closed, policy, &mut Queries { model, step: Vec::new() })
}

/// Runs beside each other; they do not know of each other.
fn all(settings: &ReproSettings, runs: &[Run], progress: &mut Progress) -> Vec<LoopCounts> {
    progress.begin(&format!("{} runs of an ERP star", runs.len()));
    let todo = Mutex::new((0..runs.len()).collect::<VecDeque<usize>>());
    let take = || todo.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let work = || {
        let mut found = Vec::new();
        while let Some(at) = take() {
            found.push((at, measured(settings, &runs[at])));
        }
        found
    };
    let mut found: Vec<(usize, LoopCounts)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..settings.threads.max(1)).map(|_| scope.spawn(work)).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| match thread.join() {
            Ok(found) => found,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().flat_map(join).collect::<Vec<_>>()
    });
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, counts)| counts).collect()
}

fn absorbed(counts: &LoopCounts) -> f64 {
    100.0 * counts.hits as f64 / counts.reads.max(1) as f64
}

fn report(figure: Figure, settings: &ReproSettings, paper: &'static str, panels: Vec<Panel>) -> FigureReport {
    let pages = ErpPages::new(&ErpSetup::new(settings.scale, 1, PAGE, settings.seed)).pages();
    let grouped = |number: u32| crate::report::grouped(f64::from(number));
    let setup = format!(
        "ERP star, {} pages of 4 KiB, {} frames, 12 queries a stream, TAC with an SSD of {} pages unless said otherwise; cold start",
        crate::report::grouped(pages as f64),
        grouped(scaled_pages(settings, FRAMES)),
        grouped(scaled_pages(settings, SLOTS)),
    );
    FigureReport::new(figure, settings, setup, paper, panels)
}

const fn streams_name(streams: usize) -> &'static str {
    match streams {
        1 => "1 stream",
        4 => "4 streams",
        _ => "8 streams",
    }
}

fn series(name: &str, points: Vec<Point>) -> Series {
    Series { name: name.to_owned(), points }
}

pub(super) fn fig7(
    figure: Figure,
    settings: &ReproSettings,
    progress: &mut Progress,
) -> Result<FigureReport> {
    let uses = [Use::Without, Use::Cache(SLOTS / 1e3), Use::Indexes];
    let mut runs: Vec<Run> =
        STREAMS.iter().flat_map(|(streams, _)| uses.map(|ssd| Run::new(*streams, ssd))).collect();
    let at_set_up = runs.len();
    for fetched in FACTORS {
        for (streams, _) in STREAMS {
            runs.extend([uses[0], uses[1]].map(|ssd| Run { fetched, ..Run::new(streams, ssd) }));
        }
    }
    let found = all(settings, &runs, progress);
    let names = ["no SSD", "tac", "indexes placed on it"];
    let mut seconds: Vec<Series> = names.map(|name| series(name, Vec::new())).into();
    let mut gain = vec![series("tac", Vec::new()), series(names[2], Vec::new())];
    for ((streams, paper), of) in STREAMS.iter().zip(found[..at_set_up].chunks(uses.len())) {
        let x = *streams as f64;
        for (series, counts) in seconds.iter_mut().zip(of) {
            series.points.push(Point::new(x, vec![counts.ended_ns / 1e9], None));
        }
        let against = |counts: &LoopCounts| vec![of[0].ended_ns / counts.ended_ns];
        gain[0].points.push(Point::new(x, against(&of[1]), Some(*paper)));
        // "No noticeable change".
        gain[1].points.push(Point::new(x, against(&of[2]), Some(1.0)));
    }
    let mut ranges: Vec<Series> =
        STREAMS.iter().map(|(streams, _)| series(streams_name(*streams), Vec::new())).collect();
    let pairs = found[at_set_up..].chunks(2).map(|pair| pair[0].ended_ns / pair[1].ended_ns);
    for (at, gain) in pairs.enumerate() {
        let point = Point::new(FACTORS[at / STREAMS.len()], vec![gain], None);
        ranges[at % STREAMS.len()].points.push(point);
    }
    let panel = |name, title: &str, x, y, series| Panel { name, title: title.to_owned(), x, y, series };
    let panels = vec![
        panel("gain", "how many times as fast as no SSD", "streams", "times", gain),
        panel("seconds", "all queries of the slowest stream", "streams", "simulated s", seconds),
        panel("ranges", "the gain by the rows that queries fetch", "times the rows", "times", ranges),
    ];
    let paper = "3, 4.5 and 5.3 times as fast with 1, 4 and 8 streams; indexes placed on the SSD: no gain";
    Ok(report(figure, settings, paper, panels))
}

pub(super) fn fig8(
    figure: Figure,
    settings: &ReproSettings,
    progress: &mut Progress,
) -> Result<FigureReport> {
    let counts = all(settings, &[Run::new(8, Use::Cache(SLOTS / 1e3))], progress).remove(0);
    let mut parts = [0_u64; PARTS];
    // One moment stands for the 256 writes that begin with it.
    for (at, moment) in counts.ssd_write_ns.iter().enumerate() {
        let part = (moment / counts.ended_ns.max(1.0) * PARTS as f64) as usize;
        parts[part.min(PARTS - 1)] += 256.min(counts.ssd_writes - 256 * at as u64);
    }
    let point = |(at, pages): (usize, &u64)| {
        let x = 100.0 * (at + 1) as f64 / PARTS as f64;
        Point::new(x, vec![*pages as f64 * f64::from(PAGE) / 1e6], None)
    };
    let panel = Panel {
        name: "",
        title: "written to the SSD in each twentieth of the run".to_owned(),
        x: "% of the run",
        y: "MB",
        series: vec![series("ours", parts.iter().enumerate().map(point).collect())],
    };
    let paper = "no numbers in the text: much higher while the SSD fills, then level, as pages are replaced by temperature";
    let mut report = report(figure, settings, paper, vec![panel]);
    report.notes.push(format!("at the end the SSD had absorbed {:.1} % of the reads", absorbed(&counts)));
    Ok(report)
}

pub(super) fn fig9(
    figure: Figure,
    settings: &ReproSettings,
    progress: &mut Progress,
) -> Result<FigureReport> {
    let runs = SIZES.map(|size| Run::of_size(8, size));
    let found = all(settings, &runs, progress);
    let gigabytes = |pages: u64| pages as f64 * f64::from(PAGE) / 1e9;
    let points = |value: &dyn Fn(&LoopCounts) -> f64, paper: fn(f64) -> Option<f64>| {
        let points = SIZES.iter().zip(&found);
        points.map(|(size, counts)| Point::new(*size, vec![value(counts)], paper(*size))).collect()
    };
    let disk = points(&|counts| gigabytes(counts.disk_reads), |_| None);
    let ssd = points(&|counts| gigabytes(counts.hits), |_| None);
    let share = points(&absorbed, |size| (size == SLOTS / 1e3).then_some(83.0));
    let panel = |name, title: &str, y, series| Panel {
        name,
        title: title.to_owned(),
        x: "SSD, thousands of pages × scale",
        y,
        series,
    };
    let panels = vec![
        panel("", "read by eight streams", "GB", vec![series("disk", disk), series("SSD", ssd)]),
        panel("absorbed", "reads that the SSD answered", "%", vec![series("ours", share)]),
    ];
    let paper = "at 320,000 pages (24 %) the SSD absorbs 83 % of the reads";
    Ok(report(figure, settings, paper, panels))
}

/// Figures 10 and 11.
pub(super) fn by_size(
    figure: Figure,
    settings: &ReproSettings,
    progress: &mut Progress,
) -> Result<FigureReport> {
    let is_gain = figure == Figure::TacFig11;
    let runs: Vec<Run> = STREAMS
        .iter()
        .flat_map(|(streams, _)| SIZES.map(|thousands| Run::of_size(*streams, thousands)))
        .collect();
    let found = all(settings, &runs, progress);
    let of_streams = STREAMS.iter().zip(found.chunks(SIZES.len())).map(|((streams, at_24), of)| {
        let value = |counts: &LoopCounts| match is_gain {
            true => of[0].ended_ns / counts.ended_ns,
            false => counts.ended_ns / 1e9,
        };
        let paper = |size: f64| match (*streams, size) {
            _ if !is_gain => None,
            (8, 400.0) => Some(12.0),
            (_, 320.0) => Some(*at_24),
            _ => None,
        };
        let points = SIZES.iter().zip(of);
        let points = points.map(|(size, counts)| Point::new(*size, vec![value(counts)], paper(*size)));
        series(streams_name(*streams), points.collect())
    });
    let (title, y) = match is_gain {
        true => ("how many times as fast as no SSD", "times"),
        false => ("all queries of the slowest stream", "simulated s"),
    };
    let panel = Panel {
        name: "",
        title: title.to_owned(),
        x: "SSD, thousands of pages × scale",
        y,
        series: of_streams.collect(),
    };
    let paper = match is_gain {
        true => "more gain with more streams; 12 times with 8 streams and 400,000 pages, its greatest",
        false => "less time with more SSD up to what is in use (30 %), then level",
    };
    Ok(report(figure, settings, paper, vec![panel]))
}
