//! "SSD Bufferpool Extensions for Database Systems" (Canim, Mihaila, Bhattacharjee, Ross and Lang, VLDB 2010), sections 1, 4 and 5, in
//! simulated time, beside what the paper says.
//!
//! | figure | what it plots | file |
//! |---|---|---|
//! | tac-table1 | the SSD that is emulated | `table1.rs` |
//! | tac-fig1 | where TPC-C's misses go over time | `bands.rs` |
//! | tac-fig3, tac-fig4 | I/O time of the policies over the ODS and the Zipf queries | `ods.rs` |
//! | tac-fig5, tac-fig6 | TPC-C: hits by size of the SSD; writes that are buffered and sorted | `tpcc.rs` |
//! | tac-fig7 to tac-fig11 | the ERP star in a closed loop: time by streams and size of the SSD | `erp.rs` |
//! | tac-fig12 | TPC-C in a closed loop: tpmC by size of the SSD | `closed.rs` |
//!
//! What the text leaves open was chosen before policies were compared and stands in the headers of the page models
//! (`workloads/src/pages`). `--scale` shrinks the database, the frames, the SSD and the capacity of the disk alike, so that the
//! database covers the same part of the disk; pages, tracks and the number of clients stay.

mod bands;
mod closed;
mod erp;
mod ods;
mod table1;
mod tpcc;

use thermocline_pool::cache::CacheKind;
use thermocline_pool::simulate::device::DeviceModel;
use thermocline_pool::simulate::{Mode, Outcome, Simulation, replay};
use thermocline_workloads::pages::PageModel;

use super::report::{FigureReport, Point};
use super::{Figure, ReproError, ReproSettings, Result};
use crate::progress::Progress;
use crate::simulate::ModelSource;

/// The pages of all simulations of the paper but the ERP load's.
const PAGE: u32 = 16_384;
/// The policies of the paper.
const POLICIES: [CacheKind; 6] =
    [CacheKind::Tac, CacheKind::Opt, CacheKind::Arc, CacheKind::Lru, CacheKind::Fifo, CacheKind::Clock];

pub(super) fn run(figure: Figure, settings: &ReproSettings, progress: &mut Progress) -> Result<FigureReport> {
    let mut report = match figure {
        Figure::TacTable1 => table1::run(figure, settings),
        Figure::TacFig1 => bands::fig1(figure, settings, progress),
        Figure::TacFig3 => ods::fig3(figure, settings, progress),
        Figure::TacFig4 => ods::fig4(figure, settings, progress),
        Figure::TacFig5 => tpcc::fig5(figure, settings, progress),
        Figure::TacFig6 => tpcc::fig6(figure, settings, progress),
        Figure::TacFig7 => erp::fig7(figure, settings, progress),
        Figure::TacFig8 => erp::fig8(figure, settings, progress),
        Figure::TacFig9 => erp::fig9(figure, settings, progress),
        Figure::TacFig10 | Figure::TacFig11 => erp::by_size(figure, settings, progress),
        _ => closed::fig12(figure, settings, progress),
    }?;
    report.notes.push("both devices are emulated, all seconds of I/O are simulated".to_owned());
    Ok(report)
}

/// A part of a device of the paper: as much smaller as the database.
fn device(name: &str, settings: &ReproSettings) -> DeviceModel {
    let mut model = DeviceModel::named(name).expect("the paper's devices have names");
    model.capacity_bytes = ((model.capacity_bytes as f64 * settings.scale) as u64).max(4 << 30);
    model
}

fn scaled_pages(settings: &ReproSettings, pages: f64) -> u32 {
    ((pages * settings.scale) as u32).max(64)
}

fn simulation(settings: &ReproSettings, frames: u32, slots: Vec<u32>, policies: &[CacheKind]) -> Simulation {
    Simulation {
        page_bytes: PAGE,
        extent_pages: 32,
        frames,
        slots,
        policies: policies.to_vec(),
        disk: device("hdd-7200", settings),
        ssd: device("fusion-io", settings),
        mode: Mode::WriteThrough,
        threads: settings.threads,
    }
}

fn replayed(
    what: &str,
    model: Box<dyn PageModel>,
    simulation: &Simulation,
    progress: &mut Progress,
) -> Result<Outcome> {
    let mut show = |requests: u64| {
        progress.show(|| format!("{what}: {} requests", crate::report::grouped(requests as f64)));
    };
    replay(&mut ModelSource::new(model), simulation, &mut show)
        .map_err(|error| ReproError::Wrong(error.to_string()))
}

/// A point with a name instead of a number.
fn named(at: usize, label: &str, ours: f64, paper: Option<f64>) -> Point {
    Point { label: Some(label.to_owned()), ..Point::new(at as f64, vec![ours], paper) }
}
