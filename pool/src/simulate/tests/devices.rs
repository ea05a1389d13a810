//! Devices: means of what they say, within one percent.

use super::super::device::{Device, Operation};
use super::*;

const PAGE: u64 = 16384;

/// Mean time of operations, each when the one before is done.
fn mean_ns(name: &str, operations: impl Iterator<Item = Operation>) -> f64 {
    let mut device = Device::new(device(name));
    let (mut now, mut count) = (0.0, 0);
    for operation in operations {
        now = device.serve(now, &operation);
        count += 1;
    }
    now / f64::from(count)
}

fn assert_near(what: &str, found: f64, said: f64) {
    assert!((found / said - 1.0).abs() < 0.01, "{what}: {found}, said {said}");
}

#[test]
fn a_disk_takes_a_mean_seek_half_a_turn_and_the_transfer() {
    let mut rng = Rng::new(1);
    let pages = 1_000_000_000_000 / PAGE;
    let uniform: Vec<_> = (0..40_000)
        .map(|_| Operation { offset: rng.below(pages) * PAGE, bytes: PAGE, write: false })
        .collect();
    let transfer = PAGE as f64 * 8.0 / 1070e6 * 1e9;
    assert_near("reads", mean_ns("hdd-7200", uniform.iter().copied()), 8.2e6 + 4.17e6 + transfer);
    let writes = uniform.iter().map(|read| Operation { write: true, ..*read });
    assert_near("writes", mean_ns("hdd-7200", writes), 8.2e6 + 4.17e6 + transfer);
    let (sequential, random) = device("hdd-7200").read_ns(PAGE);
    assert_near("what the model says", random, 8.2e6 + 4.17e6 + transfer);
    for write in [false, true] {
        let scan = (0..40_000).map(|page| Operation { offset: page * PAGE, bytes: PAGE, write });
        assert_near("a scan", mean_ns("hdd-7200", scan), sequential);
    }
}

#[test]
fn a_short_gap_costs_what_passes_the_head() {
    let mut disk = Device::new(device("hdd-7200"));
    let read = |page: u64| Operation { offset: page * PAGE, bytes: PAGE, write: true };
    let first = disk.serve(0.0, &read(1));
    let second = disk.serve(first, &read(4)) - first;
    assert_near("three pages", second, 3.0 * PAGE as f64 * 8.0 / 1070e6 * 1e9);
}

#[test]
fn a_striped_set_reads_three_times_as_fast() {
    let long = |name| {
        let run = 96 * PAGE;
        mean_ns(name, (0..2000).map(move |at| Operation { offset: at * run, bytes: run, write: false }))
    };
    let ratio = long("hdd-7200") / long("hdd-7200x3");
    assert!((2.9..3.1).contains(&ratio), "{ratio}");
}

/// Bytes and operations a second when all are asked for at once, and the time of one alone.
fn rates(name: &str, bytes: u64, writes: f64) -> (f64, f64, f64) {
    let mut rng = Rng::new(2);
    let mut device = Device::new(device(name));
    let mut done = 0.0_f64;
    for _ in 0..20_000 {
        let write = rng.chance(writes);
        done = done.max(device.serve(0.0, &Operation { offset: rng.below(1 << 20) * bytes, bytes, write }));
    }
    let alone = Operation { offset: 0, bytes, write: false };
    let alone = device.serve(1e15, &alone) - 1e15;
    (20_000.0 * bytes as f64 / done * 1e9, 20_000.0 / done * 1e9, alone)
}

#[test]
fn other_devices_have_their_operations_bytes_and_latency() {
    assert_near("fusion-io reads", rates("fusion-io", PAGE, 0.0).0, 700e6);
    assert_near("fusion-io writes", rates("fusion-io", PAGE, 1.0).0, 550e6);
    let (_, operations, latency) = rates("fusion-io", 4096, 0.3);
    assert_near("fusion-io operations", operations, 88_000.0);
    assert_near("fusion-io latency", latency, 50e3);
    let (bytes, _, _) = rates("network-volume", 1 << 20, 0.5);
    assert_near("volume bytes", bytes, 125.0 * 1_048_576.0);
    let (_, operations, latency) = rates("network-volume", 4096, 0.5);
    assert_near("volume operations", operations, 3_000.0);
    assert_near("volume latency", latency, 0.7e6);
    assert_near("object latency", rates("object-store", 4096, 0.0).2, 30e6);
}

#[test]
fn what_no_device_can_be_is_refused() {
    for name in DeviceModel::NAMES {
        assert_eq!(device(name).check(), Ok(()), "{name}");
        assert_eq!(device(name).name, name);
    }
    assert!(DeviceModel::named("floppy").is_none());
    let wrong = DeviceModel { read_bytes_per_s: 0.0, ..device("hdd-7200") };
    assert!(wrong.check().expect_err("it reads nothing").contains("bytes a second read"));
    let wrong = DeviceModel { operations_per_s: f64::NAN, ..device("fusion-io") };
    assert!(wrong.check().is_err());
}
