//! `thermocline-lab simulate --trace FILE|model:NAME,…`: an SSD between memory and a slow disk, simulated over traces and page models.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use thermocline_bench::machine;
use thermocline_bench::simulate::{
    CacheKind, Devices, SimulateError, SimulateSettings, TraceFormat, WriteMode, run as simulate,
};

use thermocline_bench::command_line::Failure;
use thermocline_bench::command_line::values;

/// Formats of traces.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormatArgument {
    /// Ours, as captured
    Thermocline,
    /// Comma-separated values: page, kind (r, w, f, c), stream
    Csv,
    /// Lines of MSR Cambridge
    Msr,
    /// Records of libCacheSim
    OracleGeneral,
}

/// The way that changed pages take.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModeArgument {
    /// They go to the disk at once
    WriteThrough,
    /// They go to the SSD and a journal, and to the disk later, in the order of their places
    WriteBack,
}

/// Options of `simulate`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Traces, perhaps packed by gzip or zstd, or models: model:tpcc-150, tpcc-500, ods, ods-zipf, erp, zipf, scan
    #[arg(long = "trace", required = true, value_delimiter = ',', value_name = "FILE|model:NAME")]
    traces: Vec<String>,
    /// The format of the files [default: seen from their first bytes]
    #[arg(long, value_enum)]
    format: Option<FormatArgument>,
    /// Policies: tac, tac-told, tac-pages, tac-bands, tac-bands-mru, lru, fifo, clock, arc, lirs, w-tinylfu, s3-fifo, sieve, lazy-cleaning, opt; or all
    #[arg(long, default_value = "tac,lru,arc,opt", value_delimiter = ',', value_name = "NAME")]
    policies: Vec<String>,
    /// Frames before the SSD; 0: the trace was captured below them
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size_or_zero)]
    dram: u64,
    /// Sizes of the SSD
    #[arg(long, required = true, value_delimiter = ',', value_name = "SIZE", value_parser = values::size)]
    ssd: Vec<u64>,
    /// Bytes of a page
    #[arg(long, value_name = "SIZE", default_value = "16KiB", value_parser = values::size)]
    page: u64,
    /// Pages of an extent
    #[arg(long, default_value = "32", value_parser = values::few)]
    extent: u32,
    /// Devices: hdd-7200, hdd-7200x3, fusion-io, network-volume, object-store, or a TOML file
    #[arg(long, value_name = "ssd=NAME,disk=NAME", default_value = "ssd=fusion-io,disk=hdd-7200")]
    device: String,
    /// What becomes of changed pages
    #[arg(long, value_enum, default_value = "write-through")]
    mode: ModeArgument,
    /// How much of its paper's size the database of a model has
    #[arg(long, default_value = "0.1", value_parser = values::scale, allow_negative_numbers = true)]
    scale: f64,
    /// Threads that simulate [default: one a core]
    #[arg(long, value_parser = values::threads)]
    threads: Option<usize>,
    /// One seed gives one sequence of a model's requests
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the result to this file as one JSON object
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write table, JSON and plots into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

fn size_or_zero(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { values::size(text) }
}

fn policies(names: &[String]) -> Result<Vec<CacheKind>, Failure> {
    let mut found = Vec::new();
    for name in names {
        match name.as_str() {
            "all" => found.extend(CacheKind::ALL),
            name => found.push(name.parse().map_err(Failure::Usage)?),
        }
    }
    let mut seen = Vec::new();
    found.retain(|kind| {
        !seen.contains(kind) && {
            seen.push(*kind);
            true
        }
    });
    Ok(found)
}

fn failure(error: SimulateError) -> Failure {
    match error {
        SimulateError::Setting(said) => Failure::Usage(said),
        trace @ SimulateError::Trace { .. } => Failure::Failed(trace.to_string()),
    }
}

/// Simulates and prints what was found.
pub(crate) fn run(arguments: &Arguments, quiet: bool) -> Result<(), Failure> {
    let settings = SimulateSettings {
        traces: arguments.traces.clone(),
        format: arguments.format.map(|format| match format {
            FormatArgument::Thermocline => TraceFormat::Thermocline,
            FormatArgument::Csv => TraceFormat::Csv,
            FormatArgument::Msr => TraceFormat::Msr,
            FormatArgument::OracleGeneral => TraceFormat::OracleGeneral,
        }),
        policies: policies(&arguments.policies)?,
        dram_bytes: arguments.dram,
        ssd_bytes: arguments.ssd.clone(),
        page_bytes: arguments.page,
        extent_pages: arguments.extent,
        devices: Devices::parse(&arguments.device).map_err(failure)?,
        mode: match arguments.mode {
            ModeArgument::WriteThrough => WriteMode::WriteThrough,
            ModeArgument::WriteBack => WriteMode::WriteBack,
        },
        scale: arguments.scale,
        threads: arguments.threads.unwrap_or_else(machine::cores),
        seed: arguments.seed,
    };
    if let Some(file) = &arguments.json {
        thermocline_bench::command_line::can_be_written(file)?;
    }
    if let Some(out) = &arguments.out {
        std::fs::create_dir_all(out).map_err(|error| {
            Failure::Usage(format!("cannot make {}: {error}; choose another --out", out.display()))
        })?;
        thermocline_bench::command_line::can_be_written(&out.join("simulate.json"))?;
    }
    let report = simulate(&settings, quiet).map_err(failure)?;
    print!("{}", report.to_table());
    if let Some(file) = &arguments.json {
        thermocline_bench::command_line::write(file, std::fs::write(file, report.to_json()))?;
    }
    if let Some(out) = &arguments.out {
        thermocline_bench::command_line::write(out, report.write(out).map(drop))?;
    }
    Ok(())
}
