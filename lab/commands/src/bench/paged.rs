//! `thermocline-lab bench paged`.

use std::path::PathBuf;

use clap::Args;
use thermocline_bench::command_line::data_dir::DataDir;
use thermocline_bench::command_line::{Failure, can_be_written, servers, values, write};
use thermocline_bench::paged_bench::{self, Contender, PagedSettings};
use thermocline_engine::Options;
use thermocline_remote::pages::{Copies, RemotePages};
use thermocline_remote::profile::Profile;

/// Options of `bench paged`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Rows
    #[arg(long, default_value = "2M", value_parser = values::count)]
    records: u64,
    /// Bytes of each, beside its key
    #[arg(long, default_value = "200", value_parser = values::few)]
    record_bytes: u32,
    /// The memory limit of all but `memory`
    #[arg(long, default_value = "256MiB", value_parser = values::size)]
    memory: u64,
    /// Skew of the accesses: 0 is uniform
    #[arg(long, default_value_t = 0.99, value_parser = values::theta)]
    theta: f64,
    /// What is measured: memory, own, os, remote, cold
    #[arg(long, value_delimiter = ',', default_value = "memory,own,os,remote,cold", value_parser = contender)]
    pager: Vec<Contender>,
    /// Threads that run transactions
    #[arg(long, default_value = "1", value_parser = values::threads)]
    threads: usize,
    /// Transactions in flight on each of them
    #[arg(long, default_value = "32", value_parser = values::in_flight)]
    in_flight: usize,
    /// Seconds that are measured, of each turn
    #[arg(long, default_value = "5", value_parser = values::seconds)]
    seconds: f64,
    /// Seconds before that
    #[arg(long, default_value = "3", value_parser = values::seconds_or_zero)]
    warm_up: f64,
    /// Turns of each; the median is told
    #[arg(long, default_value = "3", value_parser = values::few)]
    rounds: u32,
    /// Memory servers: addresses, or spawn:N to start N of them for this
    #[arg(long, default_value = "spawn:1", value_name = "ADDRESS,…|spawn:N")]
    remote: String,
    /// The key of the servers
    #[arg(long, value_name = "FILE")]
    remote_key: Option<PathBuf>,
    /// Give the servers sealed pages: encrypted and authenticated
    #[arg(long)]
    remote_seal: bool,
    /// Have the servers answer as over a network: ib-2007, rdma-100g, ethernet-25g, ethernet-1g (emulated)
    #[arg(long, value_name = "NAME", value_parser = servers::profile)]
    remote_profile: Option<Profile>,
    /// Where the databases are made: an empty directory; without it, a temporary one
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Write the result to this file as one JSON object
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// One seed gives one sequence of requests
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn contender(name: &str) -> Result<Contender, String> {
    let names = || Contender::ALL.map(Contender::name).join(", ");
    Contender::named(name).ok_or_else(|| format!("{name:?} is not measured here; name some of {}", names()))
}

impl Arguments {
    pub(super) fn run(&self, quiet: bool) -> Result<(), Failure> {
        let settings = PagedSettings {
            records: self.records,
            record_bytes: self.record_bytes,
            memory_bytes: self.memory,
            theta: self.theta,
            contenders: self.pager.clone(),
            threads: self.threads,
            in_flight: self.in_flight,
            warm_up: self.warm_up,
            seconds: self.seconds,
            rounds: self.rounds,
            servers: self.remote.clone(),
            profile: self.remote_profile.map_or("none", |profile| profile.name),
            seed: self.seed,
        };
        self.json.iter().try_for_each(|file| can_be_written(file))?;
        let dir = DataDir::prepare(self.data_dir.as_deref())?;
        // The sockets of servers that are started.
        let sockets = DataDir::prepare(None)?;
        let (mut addresses, mut key, mut children) = servers::Servers::default();
        if settings.contenders.contains(&Contender::Remote) {
            let bytes = self.records * u64::from(self.record_bytes) * 3 / 2;
            (addresses, key, children) =
                servers::servers(&self.remote, self.remote_key.as_deref(), bytes, sockets.path())?;
        }
        let pages = RemotePages {
            servers: addresses,
            key,
            copies: Copies::One,
            plain: false,
            sealed: self.remote_seal,
            profile: self.remote_profile,
        };
        let cpu = || servers::cpu_of(&children);
        let mut told = |run: &paged_bench::Run| {
            if !quiet {
                eprintln!("round {}: {} {:.0} tx/s", run.round, run.contender.name(), run.throughput_tps);
            }
        };
        let lend = |options: Options| Ok(options.with_paged_file(Some(pages.open()?)));
        let report = paged_bench::run(&settings, dir.path(), &lend, &cpu, &mut told).map_err(|error| {
            match error.is_setting() {
                true => Failure::Usage(error.to_string()),
                false => Failure::Failed(error.to_string()),
            }
        })?;
        print!("{}", report.to_table());
        match &self.json {
            Some(file) => write(file, std::fs::write(file, report.to_json())),
            None => Ok(()),
        }
    }
}
