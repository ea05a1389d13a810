//! `thermocline-lab bench remote`.

use std::path::PathBuf;

use clap::Args;
use thermocline_bench::command_line::data_dir::DataDir;
use thermocline_bench::command_line::servers::{connects, cpu_of, profile, servers};
use thermocline_bench::command_line::{Failure, can_be_written, values, write};
use thermocline_bench::remote_bench::{self, RemoteSettings};
use thermocline_remote::profile::Profile;

/// Options of `bench remote`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Memory servers: addresses, or spawn:N to start N of them for this
    #[arg(long, default_value = "spawn:1", value_name = "ADDRESS,…|spawn:N")]
    remote: String,
    /// The key of the servers
    #[arg(long, value_name = "FILE")]
    remote_key: Option<PathBuf>,
    /// Servers that have each page: 1 or 2
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    remote_copies: u8,
    /// Never encrypt; authenticate only
    #[arg(long)]
    remote_plain: bool,
    /// Have the servers answer as over a network: ib-2007, rdma-100g, ethernet-25g, ethernet-1g (emulated)
    #[arg(long, value_name = "NAME", value_parser = profile)]
    remote_profile: Option<Profile>,
    /// Pages of 4 KiB that go out
    #[arg(long, default_value = "20000", value_parser = values::count)]
    pages: u64,
    /// Reads under way at the same time
    #[arg(long, default_value = "16", value_parser = values::in_flight)]
    in_flight: usize,
    /// Write the result to this file as one JSON object
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// One seed gives one order of reads
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Arguments {
    pub(super) fn run(&self, _quiet: bool) -> Result<(), Failure> {
        self.json.iter().try_for_each(|file| can_be_written(file))?;
        let dir = DataDir::prepare(None)?;
        // Room for all copies twice, so that a server alone does not fill.
        let bytes = self.pages * 4096 * u64::from(self.remote_copies) * 2;
        let (addresses, key, children) =
            servers(&self.remote, self.remote_key.as_deref(), bytes, dir.path())?;
        let settings = RemoteSettings {
            pages: self.pages,
            in_flight: self.in_flight,
            copies: self.remote_copies,
            profile: self.remote_profile.map_or("none", |profile| profile.name),
            servers: self.remote.clone(),
            seed: self.seed,
        };
        let connects = connects(&addresses, key.as_ref(), self.remote_plain, self.remote_profile);
        let cpu = || cpu_of(&children);
        let report = remote_bench::run(&settings, connects, &cpu)
            .map_err(|error| Failure::Failed(error.to_string()))?;
        print!("{}", report.to_table());
        match &self.json {
            Some(file) => write(file, std::fs::write(file, report.to_json())),
            None => Ok(()),
        }
    }
}
