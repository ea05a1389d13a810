//! Classification of access logs: the report on one log, receiving a log from another machine, and the benchmark.
//!
//! ```text
//!   bench:  Zipf ─ batches of a quantum ─► LogWriter ─► file in the page cache ─► backward, forward, in turns ─► medians
//! ```
//!
//! The benchmark compares what the two algorithms found: rows that only one of them has must be ties.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::hint::black_box;
use std::io::{BufWriter, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use serde::Serialize;
use thermocline_base::clock::SystemClock;
use thermocline_base::ids::TableId;
use thermocline_base::io::{Appender, Io, IoError, OpenMode, StdIo};
use thermocline_base::rng::fresh_id;
use thermocline_engine::temperature::classify::{
    Algorithm, Budget, Classification, ClassifyOptions, Misplaced, TIE, classify,
};
use thermocline_engine::temperature::{
    Access, Classifier, ClassifierOptions, Collector, CollectorOptions, LogError, LogOptions, LogReader,
    LogWriter, RowName, SizeClass,
};
use thermocline_workloads::random::{Random, mix64};
use thermocline_workloads::zipf::Zipf;

use crate::machine::Machine;
use crate::progress::Progress;
use crate::report::{grouped, json, size};
use crate::time;

/// Why there is no result.
#[derive(Debug)]
pub enum ClassifyError {
    /// A setting that cannot be.
    Setting(String),
    /// The log could not be read or written.
    Log(LogError),
    /// Nothing could be received.
    Receive {
        /// The address.
        address: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The rows that were found could not be written.
    Rows {
        /// Where to.
        file: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The two algorithms disagree.
    Wrong(String),
}

impl fmt::Display for ClassifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting(said) => f.write_str(said),
            Self::Log(error) => error.fmt(f),
            Self::Receive { address, source } => {
                write!(
                    f,
                    "cannot receive a log on {address}: {source}; name an address of this machine and a free port"
                )
            }
            Self::Rows { file, source } => {
                write!(f, "cannot write the rows to {}: {source}; name another file", file.display())
            }
            Self::Wrong(said) => {
                write!(f, "backward and forward classification disagree: {said}; please report this as a bug")
            }
        }
    }
}

impl std::error::Error for ClassifyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Log(error) => Some(error),
            Self::Receive { source, .. } | Self::Rows { source, .. } => Some(source),
            Self::Setting(_) | Self::Wrong(_) => None,
        }
    }
}

impl From<LogError> for ClassifyError {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

impl From<IoError> for ClassifyError {
    fn from(error: IoError) -> Self {
        Self::Log(LogError::Io(error))
    }
}

type Result<T> = std::result::Result<T, ClassifyError>;

/// The findings in a log.
#[derive(Clone, Debug, Serialize)]
pub struct ClassifyReport {
    /// The version of Thermocline.
    pub version: &'static str,
    /// The file.
    pub log: PathBuf,
    /// `forward` or `backward`.
    pub algorithm: &'static str,
    /// Threads that classified.
    pub threads: usize,
    /// The share of the last quantum in an estimate.
    pub alpha: f64,
    /// The budget, if it was in rows.
    pub budget_rows: Option<u64>,
    /// The budget, if it was in bytes.
    pub budget_bytes: Option<u64>,
    /// Rows that were met.
    pub rows: u64,
    /// Records that were read.
    pub recorded: u64,
    /// Accesses that they stand for.
    pub accesses: u64,
    /// Quanta that were read.
    pub quanta: u64,
    /// Bytes of the log, and those that were read.
    pub log_bytes: u64,
    /// See `log_bytes`.
    pub bytes_read: u64,
    /// Seconds that it took.
    pub seconds: f64,
    /// Rows that belong into memory.
    pub hot_rows: u64,
    /// Their bytes.
    pub hot_bytes: u64,
    /// The part of the accesses that were read that they had.
    pub hot_share_of_accesses: f64,
    /// The temperature of the last of them: accesses a quantum and, if the budget is in bytes, byte.
    pub density_min: f64,
    /// By table.
    pub tables: Vec<TableReport>,
    /// Rows among them that were cold at their last access.
    pub misplaced_cold_rows: u64,
    /// Rows that were hot at their last access and do not belong into memory.
    pub misplaced_hot_rows: u64,
    /// The pieces that could not be used.
    pub damage: Vec<String>,
    /// Entries whose row's name was lost with it.
    pub unresolved: u64,
}

/// The hot rows of a table, and their bytes.
#[derive(Clone, Debug, Serialize)]
pub struct TableReport {
    /// The table's id.
    pub table: u32,
    /// Hot rows.
    pub hot_rows: u64,
    /// Their bytes.
    pub hot_bytes: u64,
}

/// Classifies a log. The rows themselves, hot ones and misplaced ones, are written to `rows` as comma-separated values.
///
/// # Errors
/// When the log cannot be read, or the rows cannot be written.
pub fn report(path: &Path, options: &ClassifyOptions, rows: Option<&Path>) -> Result<ClassifyReport> {
    let begin = time::now();
    let found = found(path, options)?;
    let seconds = begin.elapsed().as_secs_f64();
    let misplaced = found.misplaced(|row| !row.cold);
    if let Some(file) = rows {
        write_rows(file, &found, &misplaced)
            .map_err(|source| ClassifyError::Rows { file: file.to_owned(), source })?;
    }
    let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    Ok(ClassifyReport {
        version: env!("CARGO_PKG_VERSION"),
        log: path.to_owned(),
        algorithm: name(options.algorithm),
        threads: options.threads,
        alpha: options.alpha,
        budget_rows: if let Budget::Rows(rows) = options.budget { Some(rows) } else { None },
        budget_bytes: if let Budget::Bytes(bytes) = options.budget { Some(bytes) } else { None },
        rows: found.rows,
        recorded: found.recorded,
        accesses: found.accesses,
        quanta: found.quanta,
        log_bytes: found.bytes,
        bytes_read: found.bytes_read,
        seconds,
        hot_rows: found.hottest.len() as u64,
        hot_bytes: found.hottest.iter().map(|row| row.size.bytes()).sum(),
        hot_share_of_accesses: share(found.accesses_hot, found.accesses),
        density_min: found.density_min,
        tables: found
            .tables
            .iter()
            .map(|(table, budget)| TableReport {
                table: table.0,
                hot_rows: budget.rows,
                hot_bytes: budget.bytes,
            })
            .collect(),
        misplaced_cold_rows: misplaced.come.len() as u64,
        misplaced_hot_rows: misplaced.leave.len() as u64,
        damage: found.damages.iter().map(ToString::to_string).collect(),
        unresolved: found.unresolved,
    })
}

/// A line a row: what is to become of it, its name, size and temperature. The hot rows come first, the densest of them
/// first; then those that are to leave, the coldest first.
fn write_rows(file: &Path, found: &Classification, misplaced: &Misplaced) -> std::io::Result<()> {
    let mut out = BufWriter::new(File::create(file)?);
    writeln!(out, "move,table,key_hash,bytes,accesses_a_quantum")?;
    let hot = found.hottest.iter().map(|row| (if row.cold { "come" } else { "stay" }, row));
    for (what, row) in hot.chain(misplaced.leave.iter().map(|row| ("leave", row))) {
        let RowName { table, hash } = row.row;
        writeln!(out, "{what},{},{hash:016x},{},{:e}", table.0, row.size.bytes(), row.estimate)?;
    }
    out.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_data()
}

fn name(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::Forward => "forward",
        Algorithm::Backward => "backward",
    }
}

fn found(path: &Path, options: &ClassifyOptions) -> Result<Classification> {
    Ok(classify(&LogReader::open(StdIo.open(path, OpenMode::Read)?)?, options)?)
}

impl ClassifyReport {
    /// The result as one JSON object.
    ///
    /// # Panics
    /// Never: a report has string keys only.
    #[must_use]
    pub fn to_json(&self) -> String {
        json(self)
    }

    /// The result for people.
    #[must_use]
    pub fn to_table(&self) -> String {
        let count = |number: u64| grouped(number as f64);
        let budget = match (self.budget_rows, self.budget_bytes) {
            (Some(rows), _) => format!("{} rows", count(rows)),
            (None, bytes) => size(bytes.unwrap_or_default()),
        };
        let mut lines = vec![
            (
                "classify",
                format!(
                    "{}, {}, {} threads, budget {budget}",
                    self.log.display(),
                    self.algorithm,
                    self.threads
                ),
            ),
            (
                "read",
                format!(
                    "{} of {} ({:.1} %) in {:.3} s",
                    size(self.bytes_read),
                    size(self.log_bytes),
                    percent(self.bytes_read, self.log_bytes),
                    self.seconds
                ),
            ),
            (
                "accesses",
                format!(
                    "{} in {} quanta, from {} records",
                    count(self.accesses),
                    count(self.quanta),
                    count(self.recorded)
                ),
            ),
            ("rows", count(self.rows)),
            (
                "hottest",
                format!(
                    "{} rows, {}, {:.1} % of the accesses",
                    count(self.hot_rows),
                    size(self.hot_bytes),
                    self.hot_share_of_accesses * 100.0
                ),
            ),
            (
                "misplaced",
                format!(
                    "{} of them were cold at their last access; {} others were hot",
                    count(self.misplaced_cold_rows),
                    count(self.misplaced_hot_rows)
                ),
            ),
        ];
        for table in &self.tables {
            lines.push((
                "",
                format!("table {}: {} rows, {}", table.table, count(table.hot_rows), size(table.hot_bytes)),
            ));
        }
        for damage in &self.damage {
            lines.push(("DAMAGED", damage.clone()));
        }
        if self.unresolved > 0 {
            let text = format!("{} entries whose row's name was lost by that", count(self.unresolved));
            lines.push(("not counted", text));
        }
        table(&lines)
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 * 100.0 }
}

fn table(lines: &[(&str, String)]) -> String {
    lines.iter().map(|(name, text)| format!("{name:<22}{text}\n")).collect()
}

/// Waits for one sender and stores what it sends as a log, until it ends or `seconds` have passed since it came. `bound` is
/// told the address, whose port may have been chosen by the system.
///
/// # Errors
/// When the address cannot be listened on, the connection breaks, or the file cannot be written.
pub fn receive(address: &str, path: &Path, seconds: Option<f64>, bound: impl FnOnce(&str)) -> Result<u64> {
    let failed = |source| ClassifyError::Receive { address: address.to_owned(), source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    bound(&listener.local_addr().map_err(failed)?.to_string());
    let (mut stream, _) = listener.accept().map_err(failed)?;
    // Created only now: a caller that gives up waiting leaves nothing behind.
    let file = StdIo.open(path, OpenMode::CreateNew)?;
    let mut appender = Appender::new(file, 0, 1 << 20);
    store(&mut stream, &mut appender, seconds).map_err(|error| match error {
        Stored::Receive(source) => failed(source),
        Stored::Write(error) => error.into(),
    })
}

enum Stored {
    Receive(std::io::Error),
    Write(IoError),
}

fn store(
    stream: &mut TcpStream,
    appender: &mut Appender,
    seconds: Option<f64>,
) -> std::result::Result<u64, Stored> {
    let begin = time::now();
    stream.set_read_timeout(Some(Duration::from_millis(200))).map_err(Stored::Receive)?;
    let mut piece = vec![0; 256 << 10];
    let mut all = 0;
    while seconds.is_none_or(|seconds| begin.elapsed().as_secs_f64() < seconds) {
        let count = match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) => match error.kind() {
                std::io::ErrorKind::WouldBlock
                | std::io::ErrorKind::TimedOut
                | std::io::ErrorKind::Interrupted => continue,
                _ => return Err(Stored::Receive(error)),
            },
        };
        all += count as u64;
        let mut bytes = &piece[..count];
        while !bytes.is_empty() {
            let taken = appender.push(bytes);
            bytes = &bytes[taken..];
            if !bytes.is_empty() {
                appender.write().map_err(Stored::Write)?;
            }
        }
    }
    appender.write().map_err(Stored::Write)?;
    Ok(all)
}

/// Settings of the measurement.
#[derive(Clone, Debug, Serialize)]
pub struct ClassifySettings {
    /// `classify`.
    pub benchmark: &'static str,
    /// Accesses in the log.
    pub accesses: u64,
    /// Rows that they spread over.
    pub rows: u64,
    /// Skew of the Zipf distribution.
    pub theta: f64,
    /// Accesses of a quantum.
    pub quantum_accesses: u64,
    /// Rows that are to be found hot.
    pub hot_rows: u64,
    /// The share of the last quantum in an estimate.
    pub alpha: f64,
    /// Threads that classify.
    pub threads: usize,
    /// Each algorithm runs so many times; the result is the median.
    pub rounds: u32,
    /// Where the log is written; it is left there.
    pub data_dir: PathBuf,
    /// One seed gives one log.
    pub seed: u64,
}

/// The result of the benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct ClassifyBenchReport {
    /// The version of Thermocline.
    pub version: &'static str,
    /// The settings.
    pub settings: ClassifySettings,
    /// Where.
    pub machine: Machine,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Seconds to draw the accesses and write the log.
    pub write_seconds: f64,
    /// Median seconds of backward classification.
    pub backward_seconds: f64,
    /// Median seconds of forward classification.
    pub forward_seconds: f64,
    /// Bytes that backward classification read.
    pub backward_bytes_read: u64,
    /// Quanta that it read.
    pub backward_quanta: u64,
    /// Quanta of the log.
    pub quanta: u64,
    /// The hot rows' part of the accesses, by forward classification.
    pub hot_share_of_accesses: f64,
    /// Rows that only one of the two found: ties.
    pub ties: u64,
    /// Time that a worker pays for an access while next to nothing is sampled.
    pub touch_ns: f64,
    /// The same while a tenth is sampled.
    pub touch_sampled_ns: f64,
    /// Time that the collector's thread pays for a record that goes to a classifier of 4 MiB.
    pub observe_ns: f64,
}

/// Writes a log and classifies it both ways.
///
/// # Errors
/// When there is nothing to report.
pub fn run(settings: &ClassifySettings, quiet: bool) -> Result<ClassifyBenchReport> {
    if settings.hot_rows >= settings.rows {
        return Err(ClassifyError::Setting(format!(
            "--hot-rows {} leaves none of {} rows cold; name fewer",
            settings.hot_rows, settings.rows
        )));
    }
    let mut progress = Progress::new(quiet);
    let path = settings.data_dir.join("accesses.log");
    let begin = time::now();
    write_log(settings, &path, &mut progress)?;
    let write_seconds = begin.elapsed().as_secs_f64();
    let options = |algorithm| ClassifyOptions {
        algorithm,
        budget: Budget::Rows(settings.hot_rows),
        alpha: settings.alpha,
        threads: settings.threads,
        ..ClassifyOptions::default()
    };
    let mut seconds = [Vec::new(), Vec::new()];
    let mut last = None;
    for round in 0..settings.rounds.max(1) {
        progress.begin(&format!("classifying, round {}", round + 1));
        let mut timed = |at: usize, algorithm| -> Result<Classification> {
            let begin = time::now();
            let found = found(&path, &options(algorithm))?;
            seconds[at].push(begin.elapsed().as_secs_f64());
            Ok(found)
        };
        last = Some((timed(0, Algorithm::Backward)?, timed(1, Algorithm::Forward)?));
    }
    progress.end();
    let Some((backward, forward)) = last else {
        return Err(ClassifyError::Setting("no rounds were asked for".to_owned()));
    };
    let ties = ties(&backward, &forward)?;
    let touches = settings.accesses.min(50_000_000);
    let (touch_ns, touch_sampled_ns) = (touch(1e-4, touches), touch(0.1, touches));
    let observe_ns = observe(settings);
    let [backward_seconds, forward_seconds] = seconds.map(|mut all| {
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    });
    Ok(ClassifyBenchReport {
        version: env!("CARGO_PKG_VERSION"),
        settings: settings.clone(),
        machine: Machine::here(),
        log_bytes: forward.bytes,
        write_seconds,
        backward_seconds,
        forward_seconds,
        backward_bytes_read: backward.bytes_read,
        backward_quanta: backward.quanta,
        quanta: forward.quanta,
        hot_share_of_accesses: forward.accesses_hot as f64 / forward.accesses.max(1) as f64,
        ties,
        touch_ns,
        touch_sampled_ns,
        observe_ns,
    })
}

/// Nanoseconds that an access costs a worker. The ring is drained in between, which is not counted, so it is never full
/// and the worker samples as much as it was asked to.
fn touch(share: f64, accesses: u64) -> f64 {
    let options = CollectorOptions { share, ..CollectorOptions::default() };
    // The records of a piece fill half of the ring at the most.
    let piece = (options.ring_records as f64 / 2.0 / share).min(50_000.0) as u64;
    let collector = Collector::new(options, Arc::new(SystemClock), None);
    let mut sampler = collector.sampler();
    let (mut ns, mut done) = (0, 0);
    while done < accesses {
        let begin = time::now();
        for access in done..done + piece {
            black_box(&mut sampler).touch(TableId(1), || mix64(access), black_box(100));
        }
        ns += begin.elapsed_ns();
        done += piece;
        collector.step();
    }
    ns as f64 / done as f64
}

/// Nanoseconds that a record costs the online classifier.
fn observe(settings: &ClassifySettings) -> f64 {
    let options =
        ClassifierOptions { memory_bytes: 4 << 20, ..ClassifierOptions::for_limit(1 << 30, 1 << 27) };
    let classifier = Classifier::new(&options);
    let zipf = Zipf::new(settings.rows, settings.theta);
    let mut random = Random::new(settings.seed);
    let records: Vec<Access> =
        (0..settings.accesses.min(2_000_000)).map(|_| access(zipf.draw(&mut random))).collect();
    let begin = time::now();
    for batch in records.chunks(4096) {
        classifier.observe(batch);
    }
    begin.elapsed_ns() as f64 / records.len() as f64
}

fn access(rank: u64) -> Access {
    let row = RowName { table: TableId(1), hash: mix64(rank) };
    Access { row, size: SizeClass::of(100), weight: 1, cold: false }
}

/// Rows that only one of the two has. They must be ties.
fn ties(backward: &Classification, forward: &Classification) -> Result<u64> {
    for found in [backward, forward] {
        if let Some(damage) = found.damages.first() {
            return Err(ClassifyError::Wrong(format!("a log just written is damaged {damage}")));
        }
    }
    let rows = |found: &Classification| found.hottest.iter().map(|row| row.row).collect::<BTreeSet<_>>();
    let (by_backward, by_forward) = (rows(backward), rows(forward));
    let only = |found: &Classification, other: &BTreeSet<RowName>| -> Vec<f64> {
        found.hottest.iter().filter(|row| !other.contains(&row.row)).map(|row| row.estimate).collect()
    };
    let (ours, theirs) = (only(backward, &by_forward), only(forward, &by_backward));
    let all = || ours.iter().chain(&theirs);
    let (least, most) = (all().fold(f64::INFINITY, |a, b| a.min(*b)), all().fold(0.0_f64, |a, b| a.max(*b)));
    if ours.len() != theirs.len() || most > least * (1.0 + 4.0 * TIE) {
        return Err(ClassifyError::Wrong(format!(
            "{} and {} rows that the other has not, with estimates from {least:e} to {most:e}",
            ours.len(),
            theirs.len()
        )));
    }
    Ok(ours.len() as u64)
}

/// One thread draws, this one writes.
fn write_log(settings: &ClassifySettings, path: &Path, progress: &mut Progress) -> Result<()> {
    let memory_bytes =
        usize::try_from(settings.rows.saturating_mul(256)).unwrap_or(usize::MAX).clamp(8 << 20, 4 << 30);
    let options = LogOptions { quantum_us: 0, memory_bytes, ..LogOptions::new(fresh_id()) };
    let mut writer = LogWriter::to_file(StdIo.open(path, OpenMode::CreateNew)?, &options)?;
    let quanta = settings.accesses.div_ceil(settings.quantum_accesses.max(1));
    let (sender, receiver) = sync_channel::<Vec<Access>>(16);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let zipf = Zipf::new(settings.rows, settings.theta);
            let mut random = Random::new(settings.seed);
            for quantum in 0..quanta {
                let count =
                    settings.quantum_accesses.min(settings.accesses - quantum * settings.quantum_accesses);
                let accesses = (0..count).map(|_| access(zipf.draw(&mut random)));
                if sender.send(accesses.collect()).is_err() {
                    // The writer has failed, and says why.
                    return;
                }
            }
        });
        let mut outcome = Ok(());
        for (quantum, accesses) in receiver.iter().enumerate() {
            let quantum = quantum as u64;
            outcome = writer.add(quantum, &accesses).and_then(|()| writer.end_quantum(quantum));
            if outcome.is_err() {
                break;
            }
            if quantum.is_multiple_of(256) {
                progress.show(|| format!("writing the log: {:.0} %", percent(quantum, quanta)));
            }
        }
        drop(receiver);
        progress.end();
        outcome
    })?;
    writer.finish(quanta)?;
    Ok(())
}

impl ClassifyBenchReport {
    /// The result as one JSON object.
    ///
    /// # Panics
    /// Never: a report has string keys only.
    #[must_use]
    pub fn to_json(&self) -> String {
        json(self)
    }

    /// The result for people.
    #[must_use]
    pub fn to_table(&self) -> String {
        let ClassifySettings { accesses, rows, theta, threads, hot_rows, alpha, .. } = &self.settings;
        let count = |number: u64| grouped(number as f64);
        let rate = |seconds: f64| grouped(*accesses as f64 / seconds / 1e6);
        table(&[
            (
                "classify",
                format!(
                    "{} accesses of {} rows, θ {theta}, α {alpha}, the hottest {}, {threads} threads",
                    count(*accesses),
                    count(*rows),
                    count(*hot_rows)
                ),
            ),
            (
                "machine",
                format!("{}, {} cores, {}", self.machine.cpu, self.machine.cores, self.machine.kernel),
            ),
            (
                "log",
                format!(
                    "{} ({:.2} bytes an access), {} quanta, written in {:.1} s",
                    size(self.log_bytes),
                    self.log_bytes as f64 / *accesses as f64,
                    count(self.quanta),
                    self.write_seconds
                ),
            ),
            (
                "backward",
                format!(
                    "{:.3} s, {:.2} % of the log, {} quanta",
                    self.backward_seconds,
                    percent(self.backward_bytes_read, self.log_bytes),
                    count(self.backward_quanta)
                ),
            ),
            (
                "forward",
                format!("{:.3} s ({} M accesses/s)", self.forward_seconds, rate(self.forward_seconds)),
            ),
            (
                "sampling",
                format!(
                    "{:.2} ns an access that is not recorded, {:.2} ns with a tenth recorded; {:.0} ns a record in the \
                     online classifier",
                    self.touch_ns, self.touch_sampled_ns, self.observe_ns
                ),
            ),
            (
                "hottest",
                format!(
                    "{:.1} % of the accesses; both found the same rows, but for {} ties",
                    self.hot_share_of_accesses * 100.0,
                    self.ties
                ),
            ),
        ])
    }
}
