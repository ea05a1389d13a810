//! Table 1: what the emulated SSD does, measured as the paper's was.

use thermocline_base::rng::Rng;
use thermocline_pool::simulate::device::{Device, DeviceModel, Operation};

use super::named;
use crate::repro::report::{FigureReport, Panel, Series};
use crate::repro::{Figure, ReproSettings, Result};

/// Bytes and operations a second of many random operations, and the time of one alone in µs.
fn rates(model: &DeviceModel, bytes: u64, writes: f64, seed: u64) -> (f64, f64, f64) {
    const OPERATIONS: u32 = 50_000;
    let mut rng = Rng::new(seed);
    let mut device = Device::new(model.clone());
    let mut done = 0.0_f64;
    for _ in 0..OPERATIONS {
        let operation = Operation { offset: rng.below(1 << 20) * bytes, bytes, write: rng.chance(writes) };
        done = done.max(device.serve(0.0, &operation));
    }
    let later = 10.0 * done;
    let alone = device.serve(later, &Operation { offset: 0, bytes, write: false }) - later;
    let per_s = f64::from(OPERATIONS) / done * 1e9;
    (per_s * bytes as f64, per_s, alone / 1e3)
}

pub(super) fn run(figure: Figure, settings: &ReproSettings) -> Result<FigureReport> {
    let model = DeviceModel::named("fusion-io").expect("it has a name");
    let of = |bytes, writes| rates(&model, bytes, writes, settings.seed);
    let mixed = of(4096, 0.3);
    let rows = [
        ("read MB/s, 16 KiB at random", of(16384, 0.0).0 / 1e6, 700.0),
        ("write MB/s, 16 KiB at random", of(16384, 1.0).0 / 1e6, 550.0),
        ("mixed MB/s, 4 KiB, 70 % reads", mixed.0 / 1e6, 370.0),
        ("mixed operations/s, 4 KiB, 70 % reads", mixed.1, 88_000.0),
        ("latency of a read, µs", mixed.2, 50.0),
    ];
    let points =
        rows.iter().enumerate().map(|(at, (name, ours, paper))| named(at, name, *ours, Some(*paper)));
    let panel = Panel {
        name: "",
        title: "the emulated SSD".to_owned(),
        x: "measure",
        y: "as named",
        series: vec![Series { name: "emulated".to_owned(), points: points.collect() }],
    };
    let paper = "an 80 GB PCI-Express card; its 88,000 operations of 4 KiB are 360 MB/s, not 370";
    Ok(FigureReport::new(figure, settings, "the model fusion-io".to_owned(), paper, vec![panel]))
}
