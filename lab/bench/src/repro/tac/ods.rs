//! Figures 3 and 4: I/O time of the policies over the ODS mix and over the queries whose dates have Zipf's distribution.

use thermocline_pool::cache::CacheKind;
use thermocline_pool::simulate::Outcome;
use thermocline_workloads::pages::ods::{OdsPages, OdsSetup};
use thermocline_workloads::pages::ods_zipf::ZipfPages;

use super::{PAGE, POLICIES, named, replayed, scaled_pages, simulation};
use crate::progress::Progress;
use crate::report::grouped;
use crate::repro::report::{FigureReport, Panel, Point, Series};
use crate::repro::{Figure, ReproSettings, Result};

/// 160 MB of frames, 320 MB of SSD.
const FRAMES: f64 = 10_000.0;
const SLOTS: f64 = 20_000.0;
/// Multiples of the ranges of the set-up.
const FACTORS: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];

fn seconds(outcome: &Outcome, policy: CacheKind) -> f64 {
    let row = outcome.rows.iter().find(|row| row.policy == Some(policy)).expect("it was asked for");
    row.counts.io_ns / 1e9
}

fn hits(outcome: &Outcome, policy: CacheKind) -> f64 {
    let row = outcome.rows.iter().find(|row| row.policy == Some(policy)).expect("it was asked for");
    100.0 * row.counts.hits as f64 / row.counts.reads.max(1) as f64
}

/// Panels by policy: I/O time against TAC's, seconds, hits.
fn panels(outcome: &Outcome, paper: fn(CacheKind) -> Option<f64>) -> Vec<Panel> {
    let tac = seconds(outcome, CacheKind::Tac);
    let panel =
        |name, title: &str, y, value: &dyn Fn(CacheKind) -> f64, paper: fn(CacheKind) -> Option<f64>| {
            let points = POLICIES.into_iter().enumerate();
            let points = points.map(|(at, policy)| named(at, policy.name(), value(policy), paper(policy)));
            let series = vec![Series { name: "ours".to_owned(), points: points.collect() }];
            Panel { name, title: title.to_owned(), x: "policy", y, series }
        };
    let relative = |policy| seconds(outcome, policy) / tac;
    let absolute = |policy| seconds(outcome, policy);
    let share = |policy| hits(outcome, policy);
    vec![
        panel("relative", "I/O time against TAC's", "times", &relative, paper),
        panel("seconds", "I/O time", "simulated s", &absolute, |_| None),
        panel("hits", "hits of the SSD", "%", &share, |_| None),
    ]
}

pub(super) fn fig3(
    figure: Figure,
    settings: &ReproSettings,
    progress: &mut Progress,
) -> Result<FigureReport> {
    let base = OdsSetup::new(settings.scale, PAGE, settings.seed);
    let (frames, slots) = (scaled_pages(settings, FRAMES), scaled_pages(settings, SLOTS));
    let simulation = simulation(settings, frames, vec![slots], &POLICIES);
    let mut ratios: Vec<Series> =
        POLICIES.into_iter().map(|of| Series { name: of.name().to_owned(), points: Vec::new() }).collect();
    let mut at_one = None;
    for factor in FACTORS {
        let range = (base.range.0 * factor, base.range.1 * factor);
        let model = OdsPages::new(&OdsSetup { range, ..base });
        let outcome = replayed(&format!("ranges × {factor}"), Box::new(model), &simulation, progress)?;
        let opt = seconds(&outcome, CacheKind::Opt);
        for (series, policy) in ratios.iter_mut().zip(POLICIES) {
            series.points.push(Point::new(factor, vec![seconds(&outcome, policy) / opt], None));
        }
        if factor == 1.0 {
            at_one = Some(outcome);
        }
    }
    let outcome = at_one.expect("1 is one of the factors");
    let mut all = panels(&outcome, |policy| match policy {
        CacheKind::Opt => Some(1.0),
        CacheKind::Arc => Some(2.0),
        CacheKind::Lru | CacheKind::Fifo | CacheKind::Clock => Some(3.0),
        _ => None,
    });
    all.push(Panel {
        name: "ranges",
        title: "I/O time against that of OPT by hits, by ranges".to_owned(),
        x: "times the ranges",
        y: "times",
        series: ratios,
    });
    let setup = format!(
        "ODS mix, {} requests, {} reads below {frames} frames, SSD of {slots} pages of 16 KiB, look-ups to {} pages; cold start",
        grouped(outcome.frames.requests as f64),
        grouped(outcome.frames.reads as f64),
        grouped(OdsPages::new(&base).random_set() as f64),
    );
    let paper =
        "TAC close to OPT, at nearly half of ARC's time and nearly a third of LRU's, FIFO's and CLOCK's";
    let mut report = FigureReport::new(figure, settings, setup, paper, all);
    let ratio = |other| seconds(&outcome, CacheKind::Tac) / seconds(&outcome, other);
    report.notes.push(format!(
        "TAC's I/O time against OPT's {:.2} (must 1.25), ARC's {:.2} (must 0.60), LRU's {:.2} (must 0.45)",
        ratio(CacheKind::Opt),
        ratio(CacheKind::Arc),
        ratio(CacheKind::Lru)
    ));
    report
        .notes
        .push("OPT has the most hits, not the least time: it does not know what a read costs".to_owned());
    Ok(report)
}

pub(super) fn fig4(
    figure: Figure,
    settings: &ReproSettings,
    progress: &mut Progress,
) -> Result<FigureReport> {
    let (frames, slots) = (scaled_pages(settings, FRAMES), scaled_pages(settings, SLOTS));
    let of = |slots| simulation(settings, frames, vec![slots], &POLICIES);
    let model = || Box::new(ZipfPages::new(settings.scale, PAGE, settings.seed));
    let outcome = replayed("320 MB", model(), &of(slots), progress)?;
    let large = replayed("1.6 GB", model(), &of(5 * slots), progress)?;
    let all = panels(&outcome, |policy| (policy == CacheKind::Opt).then_some(1.0));
    let setup = format!(
        "100 queries with Zipf dates, {} reads below {frames} frames, SSD of {slots} pages of 16 KiB; cold start",
        grouped(outcome.frames.reads as f64)
    );
    let paper =
        "TAC close to OPT, far ahead of the others; an SSD of 1.6 GB is more than 3 times as fast as none";
    let mut report = FigureReport::new(figure, settings, setup, paper, all);
    let none = large.rows[0].counts.io_ns / 1e9;
    report.notes.push(format!(
        "five times the SSD (1.6 GB): TAC {:.2} times as fast as no SSD (paper: more than 3)",
        none / seconds(&large, CacheKind::Tac)
    ));
    Ok(report)
}
