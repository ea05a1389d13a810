//! Figure 1: where TPC-C's misses go over time. The paper's plot has a dot a miss, in which horizontal bands are seen; here the
//! database is cut into bands, and each quarter of the misses tells how often it went to each: a band is warm or cold, and stays so.

use thermocline_pool::simulate::frames::Frames;
use thermocline_pool::simulate::trace::TraceSource;

use super::tpcc::{frames_of, model};
use crate::progress::Progress;
use crate::report::grouped;
use crate::repro::report::{FigureReport, Panel, Point, Series};
use crate::repro::{Figure, ReproError, ReproSettings, Result};
use crate::simulate::ModelSource;
use thermocline_workloads::pages::PageModel;

/// Bands of the database.
const BANDS: usize = 40;
/// Parts of the time.
const PARTS: usize = 4;

pub(super) fn fig1(
    figure: Figure,
    settings: &ReproSettings,
    progress: &mut Progress,
) -> Result<FigureReport> {
    progress.begin("TPC-C's misses");
    let model = model(settings);
    let (frames, loaded) = (frames_of(&model), model.pages());
    let misses = misses(model, frames)?;
    // What has grown since belongs to the last band.
    let band = |page: u64| ((page as u128 * BANDS as u128 / u128::from(loaded)) as usize).min(BANDS - 1);
    let mut heats = [[0.0_f64; BANDS]; PARTS];
    for (at, page) in misses.iter().enumerate() {
        heats[at * PARTS / misses.len()][band(*page)] += 1.0;
    }
    for heats in &mut heats {
        let mean = (heats.iter().sum::<f64>() / BANDS as f64).max(1.0);
        heats.iter_mut().for_each(|heat| *heat /= mean);
    }
    let series = heats.iter().enumerate().map(|(part, heats)| Series {
        name: format!("quarter {}", part + 1),
        points: (heats.iter().enumerate())
            .map(|(band, heat)| Point::new(100.0 * (band as f64 + 0.5) / BANDS as f64, vec![*heat], None))
            .collect(),
    });
    let panel = Panel {
        name: "",
        title: "misses of each fortieth of the database".to_owned(),
        x: "place, % of the database",
        y: "times the mean",
        series: series.collect(),
    };
    let setup = format!(
        "TPC-C, {} pages of 16 KiB when loaded, 20 clients, {frames} frames, {} misses and writes below them",
        grouped(loaded as f64),
        grouped(misses.len() as f64)
    );
    let paper = "no numbers in the text: horizontal bands that are asked for more often, and others less";
    let mut report = FigureReport::new(figure, settings, setup, paper, vec![panel]);
    let [first, .., last] = &heats;
    report.notes.push(format!(
        "in the first quarter the warmest band has {:.1} times the mean, the coldest {:.2}; from band to band the first and the last \
         quarter correlate by {:.2}",
        first.iter().copied().fold(0.0, f64::max),
        first.iter().copied().fold(f64::INFINITY, f64::min),
        correlation(first, last),
    ));
    Ok(report)
}

/// The pages that are read below the frames, or leave them changed, in their order.
fn misses<M: PageModel + 'static>(model: M, frames: u32) -> Result<Vec<u64>> {
    use thermocline_pool::cache::RequestKind::{Read, Write};
    let (mut source, mut frames) = (ModelSource::new(Box::new(model)), Frames::new(frames));
    let (mut batch, mut below, mut misses) = (Vec::new(), Vec::new(), Vec::new());
    while source.next_batch(&mut batch).map_err(|error| ReproError::Wrong(error.to_string()))? {
        batch.iter().for_each(|request| frames.request(request, &mut below));
        let accessed = below.iter().filter(|request| matches!(request.kind, Read | Write));
        misses.extend(accessed.map(|request| request.page));
        batch.clear();
        below.clear();
    }
    Ok(misses)
}

/// Pearson's coefficient; 0 where one side does not vary.
fn correlation(a: &[f64; BANDS], b: &[f64; BANDS]) -> f64 {
    let mean = |of: &[f64; BANDS]| of.iter().sum::<f64>() / BANDS as f64;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let sum =
        |of: &dyn Fn(f64, f64) -> f64| a.iter().zip(b).map(|(a, b)| of(a - mean_a, b - mean_b)).sum::<f64>();
    let both = sum(&|a, b| a * b);
    let each = (sum(&|a, _| a * a) * sum(&|_, b| b * b)).sqrt();
    if each > 0.0 { both / each } else { 0.0 }
}
