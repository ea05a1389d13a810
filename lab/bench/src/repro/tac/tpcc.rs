//! Figures 5 and 6: TPC-C's misses through the policies, and its writes alone, buffered and sorted.

use std::collections::BTreeSet;

use thermocline_pool::cache::{CacheKind, Request, RequestKind};
use thermocline_pool::simulate::device::{Device, Operation};
use thermocline_pool::simulate::frames::Frames;
use thermocline_pool::simulate::trace::TraceSource;
use thermocline_workloads::pages::PageModel;
use thermocline_workloads::pages::tpcc::{TpccPages, TpccSetup};

use super::{PAGE, POLICIES, device, named, replayed, simulation};
use crate::progress::Progress;
use crate::report::grouped;
use crate::repro::report::{FigureReport, Panel, Point, Series};
use crate::repro::{Figure, ReproError, ReproSettings, Result};
use crate::simulate::ModelSource;

const RATIOS: [u32; 4] = [1, 2, 4, 8];

pub(super) fn model(settings: &ReproSettings) -> TpccPages {
    let warehouses = ((150.0 * settings.scale) as i32).max(1);
    TpccPages::new(&TpccSetup::new(warehouses, 20, PAGE, settings.seed))
}

pub(super) fn frames_of(model: &TpccPages) -> u32 {
    ((model.pages() as f64 * 0.025) as u32).max(32)
}

pub(super) fn fig5(
    figure: Figure,
    settings: &ReproSettings,
    progress: &mut Progress,
) -> Result<FigureReport> {
    let model = model(settings);
    let (frames, pages) = (frames_of(&model), model.pages());
    let slots: Vec<u32> = RATIOS.iter().map(|ratio| ratio * frames).collect();
    let simulation = simulation(settings, frames, slots.clone(), &POLICIES);
    let outcome = replayed("TPC-C", Box::new(model), &simulation, progress)?;
    let ratio_of = |policy: CacheKind, slots: u32| {
        let row = outcome.rows.iter().find(|row| row.policy == Some(policy) && row.slots == slots);
        let counts = row.expect("it was asked for").counts;
        100.0 * counts.hits as f64 / counts.reads.max(1) as f64
    };
    let series = POLICIES.into_iter().map(|policy| Series {
        name: policy.name().to_owned(),
        points: RATIOS
            .iter()
            .zip(&slots)
            .map(|(times, slots)| Point::new(f64::from(*times), vec![ratio_of(policy, *slots)], None))
            .collect(),
    });
    let panel = Panel {
        name: "",
        title: "hits of the SSD".to_owned(),
        x: "SSD as a multiple of the frames",
        y: "%",
        series: series.collect(),
    };
    let setup = format!(
        "TPC-C, {} pages of 16 KiB when loaded, 20 clients, frames for 2.5 % ({frames}), {} reads below them",
        grouped(pages as f64),
        grouped(outcome.frames.reads as f64)
    );
    let paper = "TAC best at every size, most at 1 and 2 times the frames; at large sizes all but FIFO alike";
    let mut report = FigureReport::new(figure, settings, setup, paper, vec![panel]);
    let best = |slots| {
        let others = [CacheKind::Arc, CacheKind::Lru, CacheKind::Fifo, CacheKind::Clock];
        others.map(|policy| ratio_of(policy, slots)).into_iter().fold(0.0, f64::max)
    };
    for (times, slots) in RATIOS.iter().zip(&slots) {
        report.notes.push(format!(
            "at {times} times: TAC {:.1} %, the best other online policy of the paper {:.1} %",
            ratio_of(CacheKind::Tac, *slots),
            best(*slots)
        ));
    }
    Ok(report)
}

pub(super) fn fig6(
    figure: Figure,
    settings: &ReproSettings,
    progress: &mut Progress,
) -> Result<FigureReport> {
    progress.begin("TPC-C's writes");
    let model = model(settings);
    let frames = frames_of(&model);
    let writes = writes(model, frames)?;
    let mut points = vec![named(0, "no buffer", seconds(&writes, 0, settings), None)];
    for (at, times) in [1, 2, 4].into_iter().enumerate() {
        let label = format!("{times} × frames");
        points.push(named(at + 1, &label, seconds(&writes, (times * frames) as usize, settings), None));
    }
    let panel = Panel {
        name: "",
        title: "writing TPC-C's changed pages".to_owned(),
        x: "buffer on the SSD",
        y: "simulated s",
        series: vec![Series { name: "ours".to_owned(), points }],
    };
    let setup =
        format!("{} writes of TPC-C below {frames} frames, nothing else", grouped(writes.len() as f64));
    let paper = "no numbers in the text: a significant gain against writing directly";
    Ok(FigureReport::new(figure, settings, setup, paper, vec![panel]))
}

/// The pages that leave the frames changed.
fn writes(model: TpccPages, frames: u32) -> Result<Vec<u64>> {
    let (mut source, mut frames) = (ModelSource::new(Box::new(model)), Frames::new(frames));
    let (mut batch, mut below, mut writes) = (Vec::new(), Vec::<Request>::new(), Vec::new());
    while source.next_batch(&mut batch).map_err(|error| ReproError::Wrong(error.to_string()))? {
        batch.iter().for_each(|request| frames.request(request, &mut below));
        let changed = below.iter().filter(|request| request.kind == RequestKind::Write);
        writes.extend(changed.map(|request| request.page));
        batch.clear();
        below.clear();
    }
    Ok(writes)
}

/// Time to write pages as they come, or, with a buffer, each batch in the order of its places.
fn seconds(writes: &[u64], buffer: usize, settings: &ReproSettings) -> f64 {
    let (mut disk, mut ssd) =
        (Device::new(device("hdd-7200", settings)), Device::new(device("fusion-io", settings)));
    let bytes = u64::from(PAGE);
    let at = |page: u64| Operation { offset: page * bytes, bytes, write: true };
    let mut now = 0.0;
    let mut flush = |now: &mut f64, pages: &mut BTreeSet<u64>| {
        for page in std::mem::take(pages) {
            *now = disk.serve(*now, &at(page));
        }
    };
    let mut pages = BTreeSet::new();
    for (number, page) in writes.iter().enumerate() {
        if buffer > 0 {
            now = ssd.serve(now, &at(number as u64 % buffer as u64));
        }
        pages.insert(*page);
        if pages.len() >= buffer.max(1) {
            flush(&mut now, &mut pages);
        }
    }
    flush(&mut now, &mut pages);
    now / 1e9
}
