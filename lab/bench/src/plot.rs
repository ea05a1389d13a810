//! Plots as SVG: throughput over time with the checkpoints in it, and what is in memory and on disk meanwhile; and lines of
//! points.

use std::ops::Range;
use std::path::Path;

use plotters::prelude::*;

use crate::drive::Sample;
use crate::report::{Level, Mark, Throughput};

const INK: RGBColor = RGBColor(0x22, 0x2b, 0x38);
const LINE: RGBColor = RGBColor(0x1f, 0x77, 0xb4);
const CHECKPOINT: RGBColor = RGBColor(0xd9, 0x82, 0x2b);

/// Writes the plot of a run: its throughput, and below it what was in memory and on disk, if there were cold rows.
///
/// # Errors
/// When the file cannot be written.
pub fn write(path: &Path, title: &str, found: &Throughput) -> std::io::Result<()> {
    let mut svg = String::new();
    draw(&mut svg, title, found).map_err(|error| std::io::Error::other(error.to_string()))?;
    std::fs::write(path, svg)
}

type DrawResult = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// A curve of a level: a name, and how to get it.
type Drawn = (&'static str, fn(&Level) -> f64);

const MIB: f64 = (1 << 20) as f64;
const LEVELS: [Drawn; 3] = [
    ("memory, MiB", |level| level.memory_bytes as f64 / MIB),
    ("cold store on disk, MiB", |level| level.cold_disk_bytes as f64 / MIB),
    ("notices in the memo", |level| level.memo_rows as f64),
];
const SIZE: (u32, u32) = (900, 420);
const LEVEL_HEIGHT: u32 = 180;

fn draw(svg: &mut String, title: &str, found: &Throughput) -> DrawResult {
    let times = || found.samples.iter().map(|sample| sample.at_seconds);
    let first = times().fold(0.0, f64::min).min(0.0);
    let last = times().fold(1.0, f64::max);
    let has_cold = found.levels.iter().any(|level| level.rows_cold > 0);
    let levels: &[Drawn] = if has_cold { &LEVELS } else { &[] };
    let height = SIZE.1 + LEVEL_HEIGHT * levels.len() as u32;
    let area = SVGBackend::with_string(svg, (SIZE.0, height)).into_drawing_area();
    // The backend writes to a string, so its errors cannot occur; they are passed on all the same.
    area.fill(&WHITE)?;
    let (upper, mut lower) = area.split_vertically(SIZE.1);
    draw_throughput(&upper, title, first..last, &found.samples, &found.checkpoint_marks)?;
    for (name, of) in levels {
        let (this, rest) = lower.split_vertically(LEVEL_HEIGHT);
        draw_level(&this, name, first..last, found.levels.iter().map(|level| (level.at_seconds, of(level))))?;
        lower = rest;
    }
    area.present()
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw_level(
    area: &Area<'_>,
    name: &str,
    seconds: Range<f64>,
    points: impl Iterator<Item = (f64, f64)> + Clone,
) -> DrawResult {
    let highest = points.clone().map(|point| point.1).fold(1.0, f64::max) * 1.1;
    let mut chart = ChartBuilder::on(area)
        .margin(16)
        .x_label_area_size(20)
        .y_label_area_size(90)
        .build_cartesian_2d(seconds, 0.0..highest)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .y_desc(name)
        .y_labels(4)
        .y_label_formatter(&|value| crate::report::grouped(*value))
        .draw()?;
    chart.draw_series(LineSeries::new(points, LINE.stroke_width(2)))?;
    Ok(())
}

fn draw_throughput(
    area: &Area<'_>,
    title: &str,
    seconds: Range<f64>,
    samples: &[Sample],
    marks: &[Mark],
) -> DrawResult {
    let (first, last) = (seconds.start, seconds.end);
    let highest = samples.iter().map(|sample| sample.throughput_tps).fold(1.0, f64::max) * 1.1;
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
    Ok(())
}

/// A line of points.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// From left to right, or from right to left.
    pub points: Vec<(f64, f64)>,
    /// It is of a paper: rings that nothing joins.
    pub paper: bool,
}

/// The colours of lines.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x1f, 0x77, 0xb4),
    RGBColor(0xd9, 0x82, 0x2b),
    RGBColor(0x2c, 0xa0, 0x2c),
    RGBColor(0xb0, 0x30, 0x60),
    RGBColor(0x6a, 0x51, 0xa3),
    RGBColor(0x55, 0x60, 0x6e),
];

/// Writes a plot of lines over the same axes, which are called `x` and `y`. Lines of a paper have the colour of the line
/// before them.
///
/// # Errors
/// When the file cannot be written.
pub fn lines(path: &Path, title: &str, axes: (&str, &str), lines: &[Line]) -> std::io::Result<()> {
    let mut svg = String::new();
    draw_lines(&mut svg, title, axes, lines).map_err(|error| std::io::Error::other(error.to_string()))?;
    std::fs::write(path, svg)
}

fn draw_lines(svg: &mut String, title: &str, (x, y): (&str, &str), lines: &[Line]) -> DrawResult {
    let all = || lines.iter().flat_map(|line| &line.points);
    let least = |of: fn(&(f64, f64)) -> f64| all().map(of).fold(f64::INFINITY, f64::min);
    let most = |of: fn(&(f64, f64)) -> f64| all().map(of).fold(f64::NEG_INFINITY, f64::max);
    let (left, right) = (least(|point| point.0), most(|point| point.0));
    let (left, right) = if left < right { (left, right) } else { (left - 1.0, left + 1.0) };
    let (low, high) = (least(|point| point.1).min(0.0) * 1.1, most(|point| point.1).max(1e-9) * 1.1);
    let falls = lines.iter().any(|line| matches!(line.points[..], [first, .., last] if first.0 > last.0));
    let area = SVGBackend::with_string(svg, (900, 420)).into_drawing_area();
    let area = &area;
    (|| {
        area.fill(&WHITE)?;
        let mut builder = ChartBuilder::on(area);
        builder
            .margin(16)
            .caption(title, ("sans-serif", 18, &INK))
            .x_label_area_size(40)
            .y_label_area_size(90);
        // Rates that fall from left to right are turned round.
        let place = |value: f64| if falls { left + right - value } else { value };
        let mut chart = builder.build_cartesian_2d(left..right, low..high)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .x_desc(x)
            .y_desc(y)
            .x_label_formatter(&|value| {
                format!("{:.4}", place(*value)).trim_end_matches('0').trim_end_matches('.').to_owned()
            })
            .y_label_formatter(&|value| match high {
                1000.0.. => crate::report::grouped(*value),
                _ => format!("{value:.1}"),
            })
            .draw()?;
        let mut colour = 0;
        for (number, line) in lines.iter().enumerate() {
            if number > 0 && !line.paper {
                colour += 1;
            }
            let style = COLOURS[colour % COLOURS.len()];
            let points = line.points.iter().map(|(x, y)| (place(*x), *y));
            let series = if line.paper {
                chart.draw_series(points.map(|point| Circle::new(point, 6, style.stroke_width(2))))?
            } else {
                chart.draw_series(LineSeries::new(points, style.stroke_width(2)).point_size(3))?
            };
            let paper = line.paper;
            series.label(line.name.as_str()).legend(move |(x, y)| {
                let end = if paper { x + 6 } else { x + 18 };
                PathElement::new([(x, y), (end, y)], style.stroke_width(2))
            });
        }
        chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(INK.mix(0.4)).draw()?;
        area.present()
    })()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::Measured;

    fn nothing() -> Throughput {
        let measured =
            Measured { seconds: 1.0, kinds: Vec::new(), rolled_back: 0, gave_up: 0, samples: Vec::new() };
        Throughput::of(&measured, 1)
    }

    #[test]
    fn a_plot_has_its_line_and_its_checkpoint() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("plot.svg");
        let samples: Vec<Sample> = (-2..10)
            .map(|second| Sample { at_seconds: f64::from(second), throughput_tps: 1e6 + f64::from(second) })
            .collect();
        let marks = [Mark { at_seconds: 3.0, begins: true }, Mark { at_seconds: 5.0, begins: false }];
        let mut found = nothing();
        write(&path, "nothing", &found).expect("an empty run has a plot as well");
        (found.samples, found.checkpoint_marks) = (samples, marks.to_vec());
        write(&path, "tpcc", &found).expect("writable");
        let svg = std::fs::read_to_string(&path).expect("written");
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        assert!(svg.contains("tpcc") && svg.contains("polyline") && svg.contains("#D9822B"), "{svg}");
        let is_there = |svg: &str| LEVELS.iter().all(|(name, _)| svg.contains(name));
        assert!(!is_there(&svg));
        let level = |second| Level {
            at_seconds: f64::from(second),
            memory_bytes: 100 << 20,
            memo_rows: 20,
            rows_hot: 3000,
            rows_frozen: 2000,
            rows_cold: 1000,
            cold_disk_bytes: 300 << 20,
            ..Level::default()
        };
        found.levels = (-2..10).map(level).collect();
        write(&path, "tpcc", &found).expect("writable");
        assert!(is_there(&std::fs::read_to_string(&path).expect("written")));
    }

    #[test]
    fn lines_have_a_legend_and_a_papers_points_are_rings() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("lines.svg");
        let line = |name: &str, paper| Line {
            name: name.to_owned(),
            points: vec![(100.0, 1.0), (50.0, 30.0)],
            paper,
        };
        lines(&path, "loss", ("hits", "lost"), &[line("ours", false), line("theirs", true)])
            .expect("writable");
        let svg = std::fs::read_to_string(&path).expect("written");
        for part in ["ours", "theirs", "polyline", "circle", "hits", "lost"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        lines(&path, "one", ("x", "y"), &[Line { name: "a".into(), points: vec![(1.0, 0.0)], paper: false }])
            .expect("one point has a plot as well");
    }
}
