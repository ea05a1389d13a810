//! Figure 12: TPC-C in a closed loop, 500 warehouses on three striped disks, 15 clients, by size of the SSD.
//!
//! New orders a minute are counted in the last third of the transactions, when the SSD is warm. Two processors, as the paper's machine
//! has; the log is on another device.

use thermocline_pool::cache::{CacheKind, CacheSetup};
use thermocline_pool::simulate::closed::{ClosedLoop, LoopCounts, Streams, run};
use thermocline_pool::simulate::trace::TraceRequest;
use thermocline_workloads::pages::tpcc::{TpccPages, TpccSetup};
use thermocline_workloads::pages::{PageModel, PageRequest};

use super::{PAGE, device, simulation};
use crate::progress::Progress;
use crate::report::grouped;
use crate::repro::report::{FigureReport, Panel, Point, Series};
use crate::repro::{Figure, ReproSettings, Result};
use crate::simulate::traced;

const CLIENTS: usize = 15;
/// Percent of the database, and what the text says of them: times the tpmC without an SSD.
const SIZES: [(f64, Option<f64>); 5] =
    [(0.0, None), (2.5, None), (6.25, None), (12.5, Some(2.4)), (25.0, Some(3.7))];

/// A model's streams, and when which part of its transactions had begun.
struct Clients {
    model: TpccPages,
    step: Vec<PageRequest>,
    transactions: u64,
    now_ns: f64,
    /// New orders and time when the last third began.
    warm: Option<(u64, f64)>,
    /// The same at the end.
    last: (u64, f64),
}

impl Streams for Clients {
    fn next_step(&mut self, stream: usize, step: &mut Vec<TraceRequest>) -> bool {
        self.step.clear();
        let goes_on = self.model.next_step(stream, &mut self.step);
        step.extend(self.step.iter().map(traced));
        let orders = self.model.begun();
        // 45 of 100 transactions are new orders.
        if self.warm.is_none() && orders * 100 >= self.transactions * 30 {
            self.warm = Some((orders, self.now_ns));
        }
        if goes_on {
            self.last = (orders, self.now_ns);
        }
        goes_on
    }

    fn at(&mut self, _: usize, now_ns: f64) {
        self.now_ns = self.now_ns.max(now_ns);
    }
}

fn measured(settings: &ReproSettings, percent: f64) -> (f64, LoopCounts) {
    let warehouses = ((500.0 * settings.scale) as i32).max(1);
    let setup = TpccSetup::new(warehouses, CLIENTS, PAGE, settings.seed);
    let model = TpccPages::new(&setup);
    let part = |percent: f64| (model.pages() as f64 * percent / 100.0) as u32;
    let (frames, slots) = (part(2.5).max(32), part(percent));
    let closed = ClosedLoop {
        streams: CLIENTS,
        processors: 2,
        page_bytes: PAGE,
        frames,
        disk: device("hdd-7200x3", settings),
        ssd: device("fusion-io", settings),
        until_ns: f64::INFINITY,
    };
    let savings = simulation(settings, frames, Vec::new(), &[]).savings();
    let policy = (slots > 0)
        .then(|| CacheKind::Tac.build(&CacheSetup { savings, ..CacheSetup::new(slots) }))
        .flatten();
    let mut clients = Clients {
        model,
        step: Vec::new(),
        transactions: setup.transactions,
        now_ns: 0.0,
        warm: None,
        last: (0, 0.0),
    };
    let counts = run(&closed, policy, &mut clients);
    let (orders, begin) = clients.warm.unwrap_or((0, 0.0));
    let minutes = (clients.last.1 - begin) / 60e9;
    ((clients.last.0 - orders) as f64 / minutes.max(1e-9), counts)
}

pub(super) fn fig12(
    figure: Figure,
    settings: &ReproSettings,
    progress: &mut Progress,
) -> Result<FigureReport> {
    let (mut tpmc, mut gain, mut hits) = (Vec::new(), Vec::new(), Vec::new());
    let mut alone = 0.0;
    for (percent, paper) in SIZES {
        progress.begin(&format!("SSD of {percent} % of the database"));
        let (rate, counts) = measured(settings, percent);
        if percent == 0.0 {
            alone = rate;
        }
        tpmc.push(Point::new(percent, vec![rate], None));
        gain.push(Point::new(percent, vec![rate / alone], paper));
        let share = 100.0 * counts.hits as f64 / counts.reads.max(1) as f64;
        hits.push(Point::new(percent, vec![share], (percent == 25.0).then_some(71.0)));
    }
    let panel = |name, title: &str, y, points| Panel {
        name,
        title: title.to_owned(),
        x: "SSD, % of the database",
        y,
        series: vec![Series { name: "tac".to_owned(), points }],
    };
    let panels = vec![
        panel("gain", "tpmC against no SSD", "times", gain),
        panel("tpmc", "new orders a minute", "tpmC", tpmc),
        panel("hits", "hits of the SSD, cold start included", "%", hits),
    ];
    let setup = format!(
        "TPC-C, {} warehouses on hdd-7200x3, {CLIENTS} clients without think time, frames for 2.5 %, two processors",
        grouped((500.0 * settings.scale).max(1.0).floor())
    );
    let paper = "tpmC 2.4 and 3.7 times at 12.5 and 25 % of the database; hit ratio up to 71 %";
    Ok(FigureReport::new(figure, settings, setup, paper, panels))
}
