//! `thermocline-lab repro FIGURE…`: the experiments of the Siberia paper, beside what it says.

use std::path::PathBuf;

use clap::Args;
use thermocline_bench::machine;
use thermocline_bench::repro::{Figure, FigureReport, ReproError, ReproSettings, run as measure};

use thermocline_bench::command_line::Failure;
use thermocline_bench::command_line::data_dir::DataDir;
use thermocline_bench::command_line::values;

/// Options of `repro`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// siberia-fig8, fig9, table1, fig11, fig12, fig13, fig14, fig15, classify; tac-table1, tac-fig1, tac-fig3 to tac-fig12; remote-fig4; growth; or all
    #[arg(required = true, value_name = "FIGURE")]
    figures: Vec<String>,
    /// The part of the paper's rows: 1 is 20 M rows (20 GB for YCSB; growth: 10 warehouses)
    #[arg(long, default_value = "0.05", value_parser = values::scale, allow_negative_numbers = true)]
    scale: f64,
    /// Seconds of each measure [default: 4; of all of figure 9: 60; of growth in memory: 120]
    #[arg(long, value_parser = values::seconds, allow_negative_numbers = true)]
    seconds: Option<f64>,
    /// Threads that run clients [default: one a core]
    #[arg(long, value_parser = values::threads)]
    threads: Option<usize>,
    /// Write table, JSON and plots of each figure into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON object a figure instead of tables
    #[arg(long)]
    json: bool,
    /// An empty or new directory for the databases, kept afterwards [default: a temporary one, removed afterwards]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// One seed gives one sequence of accesses
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Measures the figures and prints them.
pub(crate) fn run(arguments: &Arguments, quiet: bool) -> Result<(), Failure> {
    let mut figures = Vec::new();
    for name in &arguments.figures {
        match name.as_str() {
            "all" => figures.extend(Figure::ALL),
            name => figures.push(name.parse::<Figure>().map_err(Failure::Usage)?),
        }
    }
    if let Some(out) = &arguments.out {
        std::fs::create_dir_all(out).map_err(|error| {
            Failure::Usage(format!("cannot make {}: {error}; choose another --out", out.display()))
        })?;
        thermocline_bench::command_line::can_be_written(&out.join("figure"))?;
    }
    for (number, figure) in figures.iter().enumerate() {
        // Each in a directory of its own, which is gone before the next one begins, unless it is to be kept.
        let wanted = arguments.data_dir.as_ref().map(|dir| dir.join(format!("{number}-{figure}")));
        let data_dir = DataDir::prepare(wanted.as_deref())?;
        let settings = ReproSettings {
            scale: arguments.scale,
            seconds: arguments.seconds.unwrap_or_else(|| figure.usual_seconds()),
            threads: arguments.threads.unwrap_or_else(machine::cores),
            data_dir: data_dir.path().to_owned(),
            seed: arguments.seed,
        };
        let report = measure(*figure, &settings, quiet).map_err(|error| match error {
            ReproError::Setting(said) => Failure::Usage(said),
            other => Failure::Failed(format!("{figure}: {other}")),
        })?;
        match arguments.json {
            true => print!("{}", report.to_json()),
            false if number > 0 => print!("\n{}", report.to_table()),
            false => print!("{}", report.to_table()),
        }
        save(&report, arguments)?;
    }
    Ok(())
}

fn save(report: &FigureReport, arguments: &Arguments) -> Result<(), Failure> {
    let Some(out) = &arguments.out else { return Ok(()) };
    for (ending, text) in [("txt", report.to_table()), ("json", report.to_json())] {
        let file = out.join(format!("{}.{ending}", report.figure));
        thermocline_bench::command_line::write(&file, std::fs::write(&file, text))?;
    }
    thermocline_bench::command_line::write(out, report.plot(out).map(drop))
}
