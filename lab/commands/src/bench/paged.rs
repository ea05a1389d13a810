//! `thermocline-lab bench paged`.

use std::path::PathBuf;

use clap::Args;
use thermocline_bench::paged_bench::{self, Contender, PagedError, PagedSettings};
use thermocline_remote::profile::Profile;

use thermocline_bench::command_line::Failure;
use thermocline_bench::command_line::data_dir::DataDir;
use thermocline_bench::command_line::servers;
use thermocline_bench::command_line::values;
use thermocline_bench::command_line::{can_be_written, write};

/// Options of `bench paged`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Tuples
    #[arg(long, default_value = "2M", value_parser = values::count)]
    records: u64,
    /// Bytes of each, 16 to 4096
    #[arg(long, default_value_t = 200)]
    record_bytes: u32,
    /// Memory for tuples; the rest of them is paged
    #[arg(long, default_value = "100MiB", value_parser = values::size)]
    memory: u64,
    /// The share of the memory that hot tuples are pinned in, where they stand apart
    #[arg(long, default_value_t = 0.5, value_parser = values::share)]
    pinned: f64,
    /// Skew of the accesses: 0 is uniform
    #[arg(long, default_value_t = 1.0, value_parser = values::theta)]
    theta: f64,
    /// Who is measured: memory, own, own-spread, os, os-spread, remote
    #[arg(long, value_delimiter = ',', default_value = "memory,own,own-spread,os,os-spread,remote", value_parser = contender)]
    pager: Vec<Contender>,
    /// Threads that read, where pages are awaited
    #[arg(long, default_value = "1", value_parser = values::threads)]
    threads: usize,
    /// Accesses in flight on each of them; under os and os-spread threads instead, up to 64
    #[arg(long, default_value = "32", value_parser = values::depth)]
    in_flight: usize,
    /// Seconds that are measured, of each turn
    #[arg(long, default_value = "5", value_parser = values::seconds)]
    seconds: f64,
    /// Seconds before that
    #[arg(long, default_value = "3", value_parser = values::seconds_or_zero)]
    warm_up: f64,
    /// Turns of each pager; the median is told
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
    /// Where the paged side's file is made: an empty directory; without it, a temporary one
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Write the result to this file as one JSON object
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// One seed gives one sequence of accesses a task
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn contender(name: &str) -> Result<Contender, String> {
    let names = || Contender::ALL.map(Contender::name).join(", ");
    Contender::named(name).ok_or_else(|| format!("{name:?} is no pager; name some of {}", names()))
}

impl Arguments {
    pub(super) fn run(&self, quiet: bool) -> Result<(), Failure> {
        if self.records > u64::from(u32::MAX) {
            return Err(Failure::Usage("--records: at most 4294967295 are possible".to_owned()));
        }
        let settings = PagedSettings {
            tuples: self.records,
            tuple_bytes: self.record_bytes,
            memory_bytes: self.memory,
            pinned_share: self.pinned,
            theta: self.theta,
            contenders: self.pager.clone(),
            threads: self.threads,
            in_flight: self.in_flight,
            warm_up: self.warm_up,
            seconds: self.seconds,
            rounds: self.rounds,
            servers: self.remote.clone(),
            sealed: self.remote_seal,
            profile: self.remote_profile.map_or("none", |profile| profile.name),
            seed: self.seed,
        };
        settings.check().map_err(|error| Failure::Usage(error.to_string()))?;
        self.json.iter().try_for_each(|file| can_be_written(file))?;
        let dir = DataDir::prepare(self.data_dir.as_deref())?;
        // The key of servers that are started does not stay in a directory of the user's.
        let apart = self.data_dir.as_ref().map(|_| DataDir::prepare(None)).transpose()?;
        let keys = apart.as_ref().unwrap_or(&dir);
        let (mut addresses, mut key, mut children) = servers::Servers::default();
        if settings.contenders.contains(&Contender::Remote) {
            let bytes = self.records * u64::from(self.record_bytes) * 5 / 4;
            (addresses, key, children) =
                servers::servers(&self.remote, self.remote_key.as_deref(), bytes, keys.path())?;
        }
        let connects = || servers::connects(&addresses, key.as_ref(), false, self.remote_profile);
        let cpu = || servers::cpu_of(&children);
        let mut told = |run: &paged_bench::Run| {
            if !quiet {
                eprintln!(
                    "round {}: {} {:.0} accesses/s",
                    run.round,
                    run.contender.name(),
                    run.accesses_per_s
                );
            }
        };
        let report = paged_bench::run(&settings, dir.path(), &connects, &cpu, &mut told).map_err(
            |error| match error {
                PagedError::Settings(text) => Failure::Usage(text),
                error => Failure::Failed(error.to_string()),
            },
        )?;
        print!("{}", report.to_table());
        match &self.json {
            Some(file) => write(file, std::fs::write(file, report.to_json())),
            None => Ok(()),
        }
    }
}
