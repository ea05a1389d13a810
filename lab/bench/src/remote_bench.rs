//! Remote memory: the bare transport, pages out and in, and slots, in turns on one machine.
//!
//! ```text
//!   bare     4 KiB asked for and sent over TCP on loopback, or a pair of unix sockets where servers are reached by those, a thread at
//!            each end: what the transport costs alone
//!   page in  one at a time: read, checked, handed over; beside the bare one of the same round
//!   out, in  so many in flight: pages a second, processor time a page of this process (and of the servers, if they are children)
//!   slots    take and free at several fillings, each timed alone, beside asking for the time
//! ```
//!
//! Each page that comes in is compared with what went out.

use std::fmt;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use thermocline_base::checksum::crc32c;
use thermocline_base::clock::{Clock, SystemClock, process_cpu_ns, process_cpu_since};
use thermocline_base::rng::Rng;
use thermocline_remote::client::{Client, ClientOptions, Event};
use thermocline_remote::slots::Slots;
use thermocline_remote::transport::Connect;

use crate::latency::{Latencies, Percentiles};
use crate::machine::Machine;
use crate::report::json;

const PAGE: usize = 4096;
const ROUNDS: u32 = 3;
/// Nanoseconds that are waited for the servers at the most.
const PATIENCE_NS: u64 = 20_000_000_000;

/// Settings of the measurement.
#[derive(Clone, Debug, Serialize)]
pub struct RemoteSettings {
    /// Pages that go out.
    pub pages: u64,
    /// Pages under way at the same time.
    pub in_flight: usize,
    /// Servers that have each page.
    pub copies: u8,
    /// The network that is emulated; `none`: as fast as this machine.
    pub profile: &'static str,
    /// Where the servers are, or that they were started for this.
    pub servers: String,
    /// Of the order of reads.
    pub seed: u64,
}

/// Slots at one filling.
#[derive(Clone, Debug, Serialize)]
pub struct SlotsReport {
    /// Percent of the slots that are taken.
    pub filling: u32,
    take_ns: Percentiles,
    free_ns: Percentiles,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct RemoteReport {
    settings: RemoteSettings,
    machine: Machine,
    transport: &'static str,
    leases: u64,
    remote_pages: u64,
    remote_bytes: u64,
    table_bytes_per_page: f64,
    page_ins: u64,
    page_outs: u64,
    runs: u64,
    pages_per_run: f64,
    bare_us: Percentiles,
    page_in_us: Percentiles,
    page_in_beyond_bare_us: f64,
    out_bytes_per_s: f64,
    in_bytes_per_s: f64,
    cpu_us_per_page_out: f64,
    cpu_us_per_page_in: f64,
    server_cpu_us_per_page_out: Option<f64>,
    server_cpu_us_per_page_in: Option<f64>,
    lost_servers: u64,
    refused_answers: u64,
    damaged_answers: u64,
    clock_ns: Percentiles,
    slots: Vec<SlotsReport>,
}

/// Why there is no result.
#[derive(Debug)]
pub enum RemoteError {
    /// No server was reached, or not with the memory.
    Servers(String),
    /// The bare transport failed.
    Io(std::io::Error),
    /// A page did not come in as it went out.
    Wrong,
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Servers(said) => write!(f, "the memory servers: {said}"),
            Self::Io(error) => write!(f, "the bare transport: {error}"),
            Self::Wrong => {
                f.write_str("a page came in as another one than went out; this is a defect, report it")
            }
        }
    }
}

impl std::error::Error for RemoteError {}

impl From<std::io::Error> for RemoteError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

fn page(number: u64) -> Arc<[u8]> {
    let mut bytes = vec![0; PAGE];
    Rng::new(number).fill(&mut bytes);
    bytes.into()
}

/// Measures. `server_cpu` gives the processor time of the servers so far, in microseconds, if it is known.
///
/// # Errors
/// When the servers are not there, or give wrong pages.
pub fn run(
    settings: &RemoteSettings,
    servers: Vec<Box<dyn Connect>>,
    server_cpu: &dyn Fn() -> Option<f64>,
) -> Result<RemoteReport, RemoteError> {
    let count = servers.len() as u64;
    let options = ClientOptions { copies: settings.copies, seed: settings.seed, ..ClientOptions::default() };
    let mut client = Client::new(options, Arc::new(SystemClock), servers);
    let deadline = SystemClock.now_ns() + PATIENCE_NS;
    while client.statistics().leases < count && SystemClock.now_ns() < deadline {
        client.drive(Duration::from_millis(5));
    }
    let mut driver = Driver { client, in_flight: settings.in_flight };
    let (cpu, others, began) = (process_cpu_ns(), server_cpu(), SystemClock.now_ns());
    let slots = driver.out(settings.pages)?;
    let out_s = (SystemClock.now_ns() - began) as f64 / 1e9;
    let pages = settings.pages as f64;
    let out_cpu = process_cpu_since(cpu) as f64 / 1e3 / pages;
    let per_page = |before: Option<f64>, pages: f64| Some((server_cpu()? - before?) / pages);
    let out_server = per_page(others, pages);

    let (mut bare_us, mut page_in_us) = (Latencies::default(), Latencies::default());
    let (mut in_s, mut in_cpu, mut in_server) = (0.0, 0.0, Some(0.0));
    let mut rng = Rng::new(settings.seed);
    for _ in 0..ROUNDS {
        bare(&settings.servers, settings.pages.min(5_000), &mut bare_us)?;
        for _ in 0..settings.pages.min(5_000) {
            let at = rng.below(slots.len() as u64);
            let began = SystemClock.now_ns();
            driver.client.page_in(slots[at as usize]);
            let bytes = driver.one()?;
            page_in_us.record(SystemClock.now_ns() - began);
            if bytes != page(at) {
                return Err(RemoteError::Wrong);
            }
        }
        let mut order: Vec<u64> = (0..slots.len() as u64).collect();
        rng.shuffle(&mut order);
        let (cpu, others, began) = (process_cpu_ns(), server_cpu(), SystemClock.now_ns());
        driver.all_in(&slots, &order)?;
        in_s += (SystemClock.now_ns() - began) as f64 / 1e9;
        in_cpu += process_cpu_since(cpu) as f64 / 1e3;
        in_server = in_server.zip(per_page(others, 1.0)).map(|(sum, more)| sum + more);
    }
    let statistics = driver.client.statistics();
    driver.client.close();
    let in_pages = pages * f64::from(ROUNDS);
    let (bare_us, page_in_us) = (bare_us.percentiles(), page_in_us.percentiles());
    let (clock_ns, slots) = slots_alone(settings.seed);
    Ok(RemoteReport {
        settings: settings.clone(),
        machine: Machine::here(),
        transport: "tcp",
        leases: statistics.leases,
        remote_pages: statistics.remote_pages,
        remote_bytes: statistics.remote_pages * PAGE as u64,
        table_bytes_per_page: statistics.table_bytes as f64 / statistics.remote_pages as f64,
        page_ins: statistics.page_ins,
        page_outs: statistics.page_outs,
        runs: statistics.runs,
        pages_per_run: statistics.page_outs as f64 * f64::from(settings.copies) / statistics.runs as f64,
        page_in_beyond_bare_us: page_in_us.p50 - bare_us.p50,
        bare_us,
        page_in_us,
        out_bytes_per_s: pages * PAGE as f64 / out_s,
        in_bytes_per_s: in_pages * PAGE as f64 / in_s,
        cpu_us_per_page_out: out_cpu,
        cpu_us_per_page_in: in_cpu / in_pages,
        server_cpu_us_per_page_out: out_server,
        server_cpu_us_per_page_in: in_server.map(|sum| sum / in_pages),
        lost_servers: statistics.lost_servers,
        refused_answers: statistics.refused_answers,
        damaged_answers: statistics.damaged_answers,
        clock_ns,
        slots,
    })
}

struct Driver {
    client: Client,
    in_flight: usize,
}

impl Driver {
    fn failed(&self, what: &str) -> RemoteError {
        let troubles: Vec<String> =
            self.client.troubles().map(|(address, why)| format!("{address}: {why}")).collect();
        RemoteError::Servers(format!("{what} {}", troubles.join("; ")))
    }

    /// Sends all pages out; gives their slots.
    fn out(&mut self, pages: u64) -> Result<Vec<u64>, RemoteError> {
        let mut slots = vec![u64::MAX; pages as usize];
        let mut tickets = std::collections::HashMap::new();
        let mut next = 0;
        while next < pages || !tickets.is_empty() {
            while next < pages && tickets.len() < self.in_flight.max(64) {
                tickets.insert(self.client.page_out(page(next)), next);
                next += 1;
            }
            self.client.drive(Duration::from_millis(1));
            while let Some(event) = self.client.event() {
                match event {
                    Event::Out { ticket, slot } => {
                        let number = tickets.remove(&ticket).ok_or(RemoteError::Wrong)?;
                        slots[number as usize] = slot;
                    }
                    Event::Failed { error, .. } => return Err(self.failed(&error.to_string())),
                    Event::In { .. } => return Err(RemoteError::Wrong),
                }
            }
        }
        Ok(slots)
    }

    /// Waits for the one page that was asked for.
    fn one(&mut self) -> Result<Arc<[u8]>, RemoteError> {
        loop {
            self.client.drive(Duration::from_millis(100));
            match self.client.event() {
                Some(Event::In { bytes, .. }) => return Ok(bytes),
                Some(Event::Failed { error, .. }) => return Err(self.failed(&error.to_string())),
                Some(Event::Out { .. }) => return Err(RemoteError::Wrong),
                None => {}
            }
        }
    }

    /// Reads all, so many in flight.
    fn all_in(&mut self, slots: &[u64], order: &[u64]) -> Result<(), RemoteError> {
        let (mut next, mut under_way) = (0, 0);
        while next < order.len() || under_way > 0 {
            while next < order.len() && under_way < self.in_flight {
                self.client.page_in(slots[order[next] as usize]);
                next += 1;
                under_way += 1;
            }
            self.client.drive(Duration::from_millis(100));
            while let Some(event) = self.client.event() {
                let Event::In { .. } = event else { return Err(self.failed("a page was lost")) };
                under_way -= 1;
            }
        }
        Ok(())
    }
}

/// 29 bytes there, a page back, checked; over the transport that servers of this list are reached by.
pub(crate) fn bare(servers: &str, count: u64, latencies: &mut Latencies) -> Result<(), RemoteError> {
    if servers.starts_with("spawn:") || servers.starts_with(['/', '.']) {
        let (client, server) = UnixStream::pair()?;
        return echo(client, move || Ok(server), count, latencies);
    }
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    client.set_nodelay(true)?;
    let accept = move || {
        let (server, _) = listener.accept()?;
        server.set_nodelay(true)?;
        Ok(server)
    };
    echo(client, accept, count, latencies)
}

fn echo<S: Read + Write>(
    mut client: S,
    accept: impl FnOnce() -> std::io::Result<S> + Send + 'static,
    count: u64,
    latencies: &mut Latencies,
) -> Result<(), RemoteError> {
    let server = std::thread::spawn(move || -> std::io::Result<()> {
        let mut stream = accept()?;
        let (mut request, answer) = ([0; 29], [7; PAGE + 21]);
        while stream.read_exact(&mut request).is_ok() {
            stream.write_all(&answer)?;
        }
        Ok(())
    });
    let mut answer = [0; PAGE + 21];
    for _ in 0..count {
        let began = SystemClock.now_ns();
        client.write_all(&[1; 29])?;
        client.read_exact(&mut answer)?;
        std::hint::black_box(crc32c(&answer));
        latencies.record(SystemClock.now_ns() - began);
    }
    drop(client);
    server.join().map_err(|_| RemoteError::Wrong)??;
    Ok(())
}

/// Take and free over the slots of 64 GiB, each timed with the clock around it; and the clock alone.
fn slots_alone(seed: u64) -> (Percentiles, Vec<SlotsReport>) {
    const SLOTS: u64 = 1 << 24;
    const TIMES: u32 = 200_000;
    let mut rng = Rng::new(seed);
    let mut clock = Latencies::default();
    for _ in 0..TIMES {
        let began = SystemClock.now_ns();
        clock.record(SystemClock.now_ns() - began);
    }
    let reports = [10, 50, 90, 99].map(|filling| {
        let mut slots = Slots::all_free(SLOTS);
        let mut taken: Vec<u64> = (0..SLOTS).filter(|_| rng.chance(f64::from(filling) / 100.0)).collect();
        taken.iter().for_each(|slot| assert!(slots.take_at(*slot), "it was free"));
        let (mut take, mut free) = (Latencies::default(), Latencies::default());
        for _ in 0..TIMES {
            let at = rng.below(taken.len() as u64) as usize;
            let slot = taken.swap_remove(at);
            let began = SystemClock.now_ns();
            slots.free(slot);
            let middle = SystemClock.now_ns();
            let got = slots.take();
            let end = SystemClock.now_ns();
            free.record(middle - began);
            take.record(end - middle);
            taken.push(got.expect("one was freed"));
        }
        SlotsReport { filling, take_ns: in_ns(&take), free_ns: in_ns(&free) }
    });
    (in_ns(&clock), reports.into())
}

/// Percentiles are given in microseconds elsewhere.
fn in_ns(latencies: &Latencies) -> Percentiles {
    let Percentiles { p50, p95, p99, p999, max } = latencies.percentiles();
    let [p50, p95, p99, p999, max] = [p50, p95, p99, p999, max].map(|us| us * 1e3);
    Percentiles { p50, p95, p99, p999, max }
}

impl RemoteReport {
    /// As one JSON object.
    #[must_use]
    pub fn to_json(&self) -> String {
        json(self)
    }

    /// As lines for people.
    #[must_use]
    pub fn to_table(&self) -> String {
        use fmt::Write as _;
        let mut text = String::new();
        let us = |server: Option<f64>| server.map_or("not known".to_owned(), |us| format!("{us:.2}"));
        let mut line = |name: &str, said: String| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{name:24}{said}");
        };
        line(
            "servers",
            format!("{} ({} leases), {} copies", self.settings.servers, self.leases, self.settings.copies),
        );
        line("transport, profile", format!("{}, {}", self.transport, self.settings.profile));
        line(
            "pages",
            format!("{} out in {} messages of {:.1} pages", self.page_outs, self.runs, self.pages_per_run),
        );
        line(
            "bare, one at a time",
            format!(
                "p50 {:.1} µs, p99 {:.1}, p99.9 {:.1}",
                self.bare_us.p50, self.bare_us.p99, self.bare_us.p999
            ),
        );
        line(
            "page in, one at a time",
            format!(
                "p50 {:.1} µs, p99 {:.1}, p99.9 {:.1}: {:+.1} µs beyond bare",
                self.page_in_us.p50, self.page_in_us.p99, self.page_in_us.p999, self.page_in_beyond_bare_us
            ),
        );
        line(
            "out",
            format!(
                "{:.0} MB/s; processor {:.2} µs a page here, {} at the servers",
                self.out_bytes_per_s / 1e6,
                self.cpu_us_per_page_out,
                us(self.server_cpu_us_per_page_out)
            ),
        );
        line(
            "in",
            format!(
                "{:.0} MB/s, {} in flight; processor {:.2} µs a page here, {} at the servers",
                self.in_bytes_per_s / 1e6,
                self.settings.in_flight,
                self.cpu_us_per_page_in,
                us(self.server_cpu_us_per_page_in)
            ),
        );
        line("table", format!("{:.1} bytes a page that is out", self.table_bytes_per_page));
        line(
            "clock",
            format!(
                "p50 {:.0} ns, p99.9 {:.0}: contained in the slots' figures",
                self.clock_ns.p50, self.clock_ns.p999
            ),
        );
        for slots in &self.slots {
            line(
                &format!("slots, {} % taken", slots.filling),
                format!(
                    "take p50 {:.0} ns, p99.9 {:.0}; free p50 {:.0}, p99.9 {:.0}",
                    slots.take_ns.p50, slots.take_ns.p999, slots.free_ns.p50, slots.free_ns.p999
                ),
            );
        }
        text
    }
}
