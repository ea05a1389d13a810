//! `thermocline-lab bench page-in`.

use std::path::PathBuf;

use clap::Args;
use thermocline_base::io::{Io, OpenMode, SystemIo};
use thermocline_bench::command_line::data_dir::DataDir;
use thermocline_bench::command_line::{Failure, can_be_written, servers, values, write};
use thermocline_bench::page_in::{self, PageInSettings};
use thermocline_remote::pages::{Copies, RemotePages};
use thermocline_remote::profile::Profile;

/// Options of `bench page-in`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Memory servers: addresses, or spawn:N to start N of them for this
    #[arg(long, default_value = "spawn:1", value_name = "ADDRESS,…|spawn:N")]
    remote: String,
    /// The key of the servers
    #[arg(long, value_name = "FILE")]
    remote_key: Option<PathBuf>,
    /// Have the servers answer as over a network: ib-2007, rdma-100g, ethernet-25g, ethernet-1g (emulated)
    #[arg(long, value_name = "NAME", value_parser = servers::profile)]
    remote_profile: Option<Profile>,
    /// Pages of 4 KiB of each medium
    #[arg(long, default_value = "40000", value_parser = values::count)]
    pages: u64,
    /// Reads of each way in each of five rounds
    #[arg(long, default_value = "4000", value_parser = values::count)]
    reads: u64,
    /// Make the file in this directory
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
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
        let (dir, sockets) = (DataDir::prepare(self.data_dir.as_deref())?, DataDir::prepare(None)?);
        let failed = |error: &dyn std::fmt::Display| Failure::Failed(error.to_string());
        let bytes = self.pages * 4096 * 2;
        let (addresses, key, _children) =
            servers::servers(&self.remote, self.remote_key.as_deref(), bytes, sockets.path())?;
        let pages = RemotePages {
            servers: addresses,
            key,
            copies: Copies::One,
            plain: false,
            sealed: false,
            profile: self.remote_profile,
        };
        let settings = PageInSettings {
            pages: self.pages,
            reads: self.reads,
            servers: self.remote.clone(),
            profile: self.remote_profile.map_or("none", |profile| profile.name),
            seed: self.seed,
        };
        let file = SystemIo::new()
            .open_direct(&dir.path().join("pages"), OpenMode::CreateNew)
            .map_err(|error| failed(&error))?;
        let servers = pages.open().map_err(|error| failed(&error))?;
        let report = page_in::run(&settings, file, servers).map_err(|error| failed(&error))?;
        print!("{}", report.to_table());
        match &self.json {
            Some(file) => write(file, std::fs::write(file, report.to_json())),
            None => Ok(()),
        }
    }
}
