//! The result of a figure: panels of series of points, as JSON, as a table and as plots.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{Figure, ReproSettings};
use crate::inspect::aligned;
use crate::machine::Machine;
use crate::plot::{self, Line};
use crate::report::grouped;

/// A median, and the least and the greatest.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// Of some values.
    ///
    /// # Panics
    /// There is none.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let (min, max) = (values[0], values[values.len() - 1]);
        let median = f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2]);
        Self { median, min, max }
    }
}

/// A measure.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Where it stands.
    pub x: f64,
    /// Its label, where `x` is but a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Our measurements here.
    pub ours: Spread,
    /// The number of the paper's text.
    pub paper: Option<f64>,
}

impl Point {
    pub(super) fn new(x: f64, ours: Vec<f64>, paper: Option<f64>) -> Self {
        Self { x, label: None, ours: Spread::of(ours), paper }
    }
}

/// Points that belong together.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// The property that they have in common.
    pub name: String,
    /// From left to right.
    pub points: Vec<Point>,
}

/// A coordinate system.
#[derive(Clone, Debug, Serialize)]
pub struct Panel {
    /// A name for its file.
    pub name: &'static str,
    /// Its title.
    pub title: String,
    /// The label of `x`.
    pub x: &'static str,
    /// The label of the points.
    pub y: &'static str,
    /// The series that are compared.
    pub series: Vec<Series>,
}

/// The result of a figure.
#[derive(Clone, Debug, Serialize)]
pub struct FigureReport {
    /// The version of Thermocline.
    pub version: &'static str,
    /// Which figure.
    pub figure: Figure,
    /// Where.
    pub machine: Machine,
    /// The settings that were asked for.
    pub settings: ReproSettings,
    /// The setup that follows from them: rows, clients, stores.
    pub setup: String,
    /// The paper's own words on it.
    pub paper: &'static str,
    /// The measurements.
    pub panels: Vec<Panel>,
    /// Remarks for a reader.
    pub notes: Vec<String>,
}

impl FigureReport {
    pub(super) fn new(
        figure: Figure,
        settings: &ReproSettings,
        setup: String,
        paper: &'static str,
        panels: Vec<Panel>,
    ) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            figure,
            machine: Machine::here(),
            settings: settings.clone(),
            setup,
            paper,
            panels,
            notes: Vec::new(),
        }
    }

    /// The result as one JSON object.
    ///
    /// # Panics
    /// Never: a report has string keys only.
    #[must_use]
    pub fn to_json(&self) -> String {
        crate::report::json(self)
    }

    /// The result for people.
    #[must_use]
    pub fn to_table(&self) -> String {
        let Machine { cpu, cores, kernel, .. } = &self.machine;
        let mut text = format!(
            "{}, scale {}, {} s a measure\nset-up   {}\nmachine  {cpu}, {cores} cores, {kernel}\npaper    {}\n",
            self.figure, self.settings.scale, self.settings.seconds, self.setup, self.paper
        );
        for panel in &self.panels {
            text += &format!("\n{}: {}\n", panel.title, panel.y);
            text += &aligned(&panel.lines());
        }
        for note in &self.notes {
            text += &format!("note: {note}\n");
        }
        text
    }

    /// Writes a plot of each panel into a directory, and says which.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn plot(&self, dir: &Path) -> std::io::Result<Vec<PathBuf>> {
        let mut written = Vec::new();
        for panel in &self.panels {
            let file = match panel.name {
                "" => format!("{}.svg", self.figure),
                name => format!("{}-{name}.svg", self.figure),
            };
            let path = dir.join(file);
            let title = format!("{}: {}, scale {}", self.figure, panel.title, self.settings.scale);
            plot::lines(&path, &title, (panel.x, panel.y), &panel.plotted())?;
            written.push(path);
        }
        Ok(written)
    }
}

impl Panel {
    /// One line a point of `x`, one column a series, the paper's number behind it if there is one.
    fn lines(&self) -> Vec<Vec<String>> {
        let has_paper = |series: &Series| series.points.iter().any(|point| point.paper.is_some());
        let mut head = vec![self.x.to_owned()];
        for series in &self.series {
            head.push(series.name.clone());
            if has_paper(series) {
                head.push("paper".to_owned());
            }
        }
        let mut lines = vec![head];
        let mut xs: Vec<f64> = self.series.iter().flat_map(|of| &of.points).map(|point| point.x).collect();
        xs.sort_unstable_by(f64::total_cmp);
        xs.dedup();
        // Hit rates fall from left to right in the paper.
        if self.falls() {
            xs.reverse();
        }
        for x in xs {
            let at = |series: &'_ Series| series.points.iter().position(|point| point.x == x);
            let label = self.series.iter().find_map(|of| of.points[at(of)?].label.clone());
            let mut line = vec![label.unwrap_or_else(|| format!("{x}"))];
            for series in &self.series {
                let point = at(series).map(|at| &series.points[at]);
                line.push(point.map_or(String::new(), |point| spread(&point.ours)));
                if has_paper(series) {
                    let paper = point.and_then(|point| point.paper);
                    line.push(paper.map_or(String::new(), number));
                }
            }
            lines.push(line);
        }
        lines
    }

    fn falls(&self) -> bool {
        let first = self.series.first().map(|of| &of.points[..]);
        matches!(first, Some([first, .., last]) if first.x > last.x)
    }

    fn plotted(&self) -> Vec<Line> {
        let mut lines = Vec::new();
        for series in &self.series {
            let points = series.points.iter().map(|point| (point.x, point.ours.median));
            lines.push(Line { name: series.name.clone(), points: points.collect(), paper: false });
            let paper: Vec<_> =
                series.points.iter().filter_map(|point| Some((point.x, point.paper?))).collect();
            if !paper.is_empty() {
                lines.push(Line { name: format!("{} (paper)", series.name), points: paper, paper: true });
            }
        }
        lines
    }
}

fn spread(spread: &Spread) -> String {
    if spread.min == spread.max {
        return number(spread.median);
    }
    format!("{} ({} to {})", number(spread.median), number(spread.min), number(spread.max))
}

fn number(value: f64) -> String {
    match value.abs() {
        1000.0.. => grouped(value),
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
