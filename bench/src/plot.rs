//! Throughput over time as an SVG, with the checkpoints in it.

use std::path::Path;

use plotters::prelude::*;

use crate::drive::Sample;
use crate::report::Mark;

const INK: RGBColor = RGBColor(0x22, 0x2b, 0x38);
const LINE: RGBColor = RGBColor(0x1f, 0x77, 0xb4);
const CHECKPOINT: RGBColor = RGBColor(0xd9, 0x82, 0x2b);

/// Writes the plot.
///
/// # Errors
/// When the file cannot be written.
pub fn write(path: &Path, title: &str, samples: &[Sample], marks: &[Mark]) -> std::io::Result<()> {
    let mut svg = String::new();
    draw(&mut svg, title, samples, marks).map_err(|error| std::io::Error::other(error.to_string()))?;
    std::fs::write(path, svg)
}

type DrawResult = Result<(), DrawingAreaErrorKind<std::io::Error>>;

fn draw(svg: &mut String, title: &str, samples: &[Sample], marks: &[Mark]) -> DrawResult {
    let times = || samples.iter().map(|sample| sample.at_seconds);
    let first = times().fold(0.0, f64::min).min(0.0);
    let last = times().fold(1.0, f64::max);
    let highest = samples.iter().map(|sample| sample.throughput_tps).fold(1.0, f64::max) * 1.1;
    let area = SVGBackend::with_string(svg, (900, 420)).into_drawing_area();
    let area = &area;
    // The backend writes to a string, so its errors cannot occur; they are passed on all the same.
    (|| {
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(area)
            .margin(16)
            .caption(title, ("sans-serif", 18, &INK))
            .x_label_area_size(40)
            .y_label_area_size(90)
            .build_cartesian_2d(first..last, 0.0..highest)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .x_desc("seconds since measuring began")
            .y_desc("transactions/s")
            .y_label_formatter(&|value| crate::report::grouped(*value))
            .draw()?;
        // A checkpoint that was under way at either end of the run reaches to that end.
        let mut open = None;
        let mut spans = Vec::new();
        for mark in marks {
            if mark.begins {
                open = Some(mark.at_seconds);
            } else {
                spans.push((open.take().unwrap_or(first), mark.at_seconds));
            }
        }
        spans.extend(open.map(|begin| (begin, last)));
        chart.draw_series(spans.iter().map(|(begin, end)| {
            Rectangle::new(
                [(*begin, 0.0), (end.max(begin + (last - first) / 500.0), highest)],
                CHECKPOINT.mix(0.25).filled(),
            )
        }))?;
        if first < 0.0 {
            let warm_up_ends = [(0.0, 0.0), (0.0, highest)];
            chart.draw_series(LineSeries::new(warm_up_ends, INK.mix(0.4)))?;
        }
        let points = samples.iter().map(|sample| (sample.at_seconds, sample.throughput_tps));
        chart.draw_series(LineSeries::new(points, LINE.stroke_width(2)))?;
        area.present()
    })()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_its_line_and_its_checkpoint() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("plot.svg");
        let samples: Vec<Sample> = (-2..10)
            .map(|second| Sample { at_seconds: f64::from(second), throughput_tps: 1e6 + f64::from(second) })
            .collect();
        let marks = [Mark { at_seconds: 3.0, begins: true }, Mark { at_seconds: 5.0, begins: false }];
        write(&path, "tpcc", &samples, &marks).expect("writable");
        let svg = std::fs::read_to_string(&path).expect("written");
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        assert!(svg.contains("tpcc") && svg.contains("polyline") && svg.contains("#D9822B"), "{svg}");
        write(&path, "nothing", &[], &[]).expect("an empty run has a plot as well");
    }
}
