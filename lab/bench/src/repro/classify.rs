//! Classification of a log of 10^9 accesses to 10^6 rows from either end.

use super::report::{FigureReport, Panel, Point, Series};
use super::{Figure, ReproError, ReproSettings, Result};
use crate::classify_bench::{self, ClassifyError, ClassifySettings};
use crate::report::{grouped, size};

const ACCESSES: u64 = 1_000_000_000;
const ROWS: u64 = 1_000_000;
/// Percent of the rows that are to be found hot.
const HOT: [u64; 3] = [1, 10, 30];

pub(super) fn run(settings: &ReproSettings, quiet: bool) -> Result<FigureReport> {
    let (accesses, rows) = (settings.scaled(ACCESSES, 100_000), settings.scaled(ROWS, 1_000));
    let mut series: Vec<Series> =
        ["backward", "forward"].map(|name| Series { name: name.to_owned(), points: Vec::new() }).into();
    let mut read = Series { name: "backward".to_owned(), points: Vec::new() };
    let mut log_bytes = 0;
    for percent in HOT {
        let dir = settings.data_dir.join(format!("hot-{percent}"));
        std::fs::create_dir_all(&dir)
            .map_err(|error| ReproError::Setting(format!("cannot make {}: {error}", dir.display())))?;
        let bench = ClassifySettings {
            benchmark: "classify",
            accesses,
            rows,
            theta: 0.99,
            quantum_accesses: (accesses / 10_000).clamp(100, 10_000),
            hot_rows: (rows * percent / 100).max(1),
            alpha: 0.05,
            threads: settings.threads,
            rounds: 1,
            data_dir: dir.clone(),
            seed: settings.seed,
        };
        let found = classify_bench::run(&bench, quiet).map_err(|error| match error {
            ClassifyError::Setting(said) => ReproError::Setting(said),
            other => ReproError::Classify(other),
        })?;
        let x = percent as f64;
        series[0].points.push(Point::new(x, vec![found.backward_seconds], None));
        series[1].points.push(Point::new(x, vec![found.forward_seconds], None));
        let share = 100.0 * found.backward_bytes_read as f64 / found.log_bytes.max(1) as f64;
        read.points.push(Point::new(x, vec![share], None));
        log_bytes = found.log_bytes;
        // The next one writes its own.
        let _ = std::fs::remove_dir_all(&dir);
    }
    let x = "hot rows %";
    let panels = vec![
        Panel { name: "time", title: "classification".to_owned(), x, y: "seconds", series },
        Panel {
            name: "read",
            title: "what backward classification reads".to_owned(),
            x,
            y: "% of the log",
            series: vec![read],
        },
    ];
    let setup = format!(
        "{} accesses to {} rows, θ 0.99, a log of {}, {} threads",
        grouped(accesses as f64),
        grouped(rows as f64),
        size(log_bytes),
        settings.threads
    );
    let paper = "it refers to its reference 13 for this and states no numbers; there, a log of 10^9 accesses to 10^6 rows";
    Ok(FigureReport::new(Figure::Classify, settings, setup, paper, panels))
}
