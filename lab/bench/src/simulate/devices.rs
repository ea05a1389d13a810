//! Devices of the command line: `ssd=NAME,disk=NAME`, where a name is a model's or that of a TOML file.
//!
//! ```toml
//! latency_us = 80.0              # of the smallest operation; a disk has seeks instead
//! operations_per_s = 100000.0    # missing: only bytes count
//! read_mb_per_s = 1000.0         # 10^6 bytes
//! write_mb_per_s = 800.0
//! members = 1                    # of a striped set
//! stripe_kib = 512
//! capacity_gb = 1000.0
//! queue = 32                     # waiting operations among which a disk chooses
//! [mechanics]
//! seek_mean_ms = 8.2
//! seek_least_ms = 0.8
//! rotation_mean_ms = 4.17        # half a revolution
//! ```

use std::path::Path;

use serde::Deserialize;
use thermocline_pool::simulate::device::{DeviceModel, Mechanics};

use super::{Result, setting};

/// The two devices of a simulation.
#[derive(Clone, Debug)]
pub struct Devices {
    /// Where all pages are.
    pub disk: DeviceModel,
    /// Where some are.
    pub ssd: DeviceModel,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceFile {
    #[serde(default)]
    latency_us: f64,
    operations_per_s: Option<f64>,
    read_mb_per_s: f64,
    write_mb_per_s: f64,
    #[serde(default = "one")]
    members: u32,
    #[serde(default = "stripe")]
    stripe_kib: u64,
    #[serde(default = "capacity")]
    capacity_gb: f64,
    #[serde(default = "queue")]
    queue: u32,
    mechanics: Option<MechanicsTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MechanicsTable {
    seek_mean_ms: f64,
    seek_least_ms: f64,
    rotation_mean_ms: f64,
}

const fn one() -> u32 {
    1
}
const fn stripe() -> u64 {
    512
}
const fn capacity() -> f64 {
    1000.0
}
const fn queue() -> u32 {
    32
}

/// The model of a name, or of a TOML file.
///
/// # Errors
/// When there is neither, or the file says what no device can be.
pub fn device(name: &str) -> Result<DeviceModel> {
    if let Some(model) = DeviceModel::named(name) {
        return Ok(model);
    }
    let names = DeviceModel::NAMES.join(", ");
    if !name.ends_with(".toml") {
        return setting(format!("{name:?} is no device; name one of {names}, or a file that ends in .toml"));
    }
    let text = match std::fs::read_to_string(Path::new(name)) {
        Ok(text) => text,
        Err(error) => return setting(format!("cannot read the device {name}: {error}")),
    };
    let file: DeviceFile = match toml::from_str(&text) {
        Ok(file) => file,
        Err(error) => return setting(format!("the device {name} is wrong: {error}")),
    };
    let model = DeviceModel {
        name: name.to_owned(),
        capacity_bytes: (file.capacity_gb * 1e9) as u64,
        mechanics: file.mechanics.map(|of| Mechanics {
            seek_mean_ns: of.seek_mean_ms * 1e6,
            seek_least_ns: of.seek_least_ms * 1e6,
            revolution_ns: of.rotation_mean_ms * 2e6,
        }),
        members: file.members,
        stripe_bytes: file.stripe_kib * 1024,
        latency_ns: file.latency_us * 1e3,
        operations_per_s: file.operations_per_s.unwrap_or(f64::INFINITY),
        read_bytes_per_s: file.read_mb_per_s * 1e6,
        write_bytes_per_s: file.write_mb_per_s * 1e6,
        queue: file.queue,
    };
    match model.check() {
        Ok(()) => Ok(model),
        Err(what) => setting(what),
    }
}

impl Devices {
    /// Reads `ssd=NAME,disk=NAME`; what is not named is `fusion-io` and `hdd-7200`.
    ///
    /// # Errors
    /// As [`device`], and when something else is named.
    pub fn parse(text: &str) -> Result<Self> {
        let (mut disk, mut ssd) = ("hdd-7200", "fusion-io");
        for part in text.split(',').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some(("ssd", name)) => ssd = name,
                Some(("disk", name)) => disk = name,
                _ => return setting(format!("{part:?} is neither ssd=NAME nor disk=NAME")),
            }
        }
        Ok(Self { disk: device(disk)?, ssd: device(ssd)? })
    }
}
