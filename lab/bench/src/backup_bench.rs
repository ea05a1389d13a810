//! `bench backup`: how fast a backup is beside `cp` of the same bytes, and what writers feel of it.
//!
//! 1. Rows are loaded, many times more than the memory limit admits; most are cold then.
//! 2. Writers run alone: their rate, and the longest that one has waited.
//! 3. A backup without writers; then `cp -r` of that backup, which is the same bytes, and the time until they are on the
//!    device. The backup was written past the system's cache, so `cp` reads it from the device, too.
//! 4. A backup with writers beside it.
//! 5. The backups open, and have as many rows as they should.
//!
//! Limits: `cp` is that of the machine. Writers insert rows and update some of the latest.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use thermocline_engine::row::{Column, KeyBuf, Type, Value};
use thermocline_engine::{Database, Error, IndexSchema, Options, Table, TableSchema, TransactionOptions};

use crate::latency::Latencies;
use crate::peak::Peak;
use crate::progress::Progress;
use crate::report::{grouped, size};
use crate::time::{self, Moment};

/// Settings of the measurement.
#[derive(Clone, Debug, Serialize)]
pub struct BackupSettings {
    /// Rows that are loaded.
    pub rows: u64,
    /// Length of the text in each.
    pub row_bytes: usize,
    /// The memory limit.
    pub memory_limit_bytes: u64,
    /// Threads that write.
    pub threads: usize,
    /// Transactions that all of them together begin in a second, at most; 0: as many as they can.
    pub rate: u64,
    /// Seconds of writers alone.
    pub seconds: f64,
    /// An empty directory.
    pub data_dir: PathBuf,
}

/// Writers for a while.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Writing {
    /// Seconds that they wrote.
    pub seconds: f64,
    /// Transactions a second.
    pub per_s: f64,
    /// The longest that one took.
    pub longest_ms: f64,
    /// One in a thousand took longer.
    pub p999_ms: f64,
    /// Refused for want of memory.
    pub refused: u64,
}

/// The measurements.
#[derive(Clone, Debug, Serialize)]
pub struct BackupReport {
    /// With these settings.
    pub settings: BackupSettings,
    /// Version of Thermocline.
    pub version: &'static str,
    /// Seconds of loading.
    pub load_seconds: f64,
    /// Rows outside of memory before the backups.
    pub rows_cold: u64,
    /// Writers alone, before anything is copied.
    pub alone: Writing,
    /// Bytes that `cp` has copied, as far as they take space.
    pub cp_bytes: u64,
    /// Seconds of `cp -r`.
    pub cp_seconds: f64,
    /// Seconds of `cp -r` and until it is on the device.
    pub cp_synced_seconds: f64,
    /// Bytes of a backup.
    pub backup_bytes: u64,
    /// Seconds of a backup without writers; it is on the device then.
    pub backup_seconds: f64,
    /// Seconds of a backup beside writers.
    pub backup_beside_seconds: f64,
    /// Writers beside it.
    pub beside: Writing,
    /// Resident memory before a backup, and the most during it, without writers.
    pub resident_bytes: (u64, u64),
    /// Rows that the copies have.
    pub rows_copied: (u64, u64),
}

/// Measures.
///
/// # Errors
/// The engine's, and those of `cp`.
pub fn run(settings: &BackupSettings, quiet: bool) -> Result<BackupReport, Error> {
    let mut progress = Progress::new(quiet);
    let dir = settings.data_dir.join("database");
    let options = Options::default().with_memory_limit(Some(settings.memory_limit_bytes));
    let db = Database::open(&dir, options.clone())?;
    progress.begin("loading");
    let begun = time::now();
    let table = create(&db)?;
    let text = "x".repeat(settings.row_bytes);
    let rows = (0..settings.rows)
        .map(|id| [Value::from(id as i64), Value::from(id as i64), Value::from(text.as_str())]);
    db.bulk_load_in_portions(&table, rows, |rows| {
        progress.show(|| format!("{} rows loaded", grouped(rows as f64)));
    })?;
    let load_seconds = begun.elapsed().as_secs_f64();
    db.checkpoint()?;
    let next = AtomicU64::new(settings.rows);
    progress.begin("writers alone");
    let wanted = Duration::from_secs_f64(settings.seconds);
    let (alone, ()) = beside(settings, &db, &table, &next, || {
        std::thread::sleep(wanted);
        Ok(())
    })?;
    db.checkpoint()?;
    let rows_cold = table.statistics().rows_cold;
    progress.begin("a backup alone");
    let first = settings.data_dir.join("first");
    let resident = crate::peak::anonymous_bytes().unwrap_or(0);
    let peak = Peak::watch();
    let expected = next.load(Ordering::SeqCst);
    let (backup_bytes, backup_seconds) = backup(&db, &first)?;
    let most = peak.bytes().unwrap_or(0);
    progress.begin("cp");
    let (cp_bytes, cp_seconds, cp_synced_seconds) = cp(&first, &settings.data_dir.join("cp"))?;
    progress.begin("a backup beside writers");
    let second = settings.data_dir.join("second");
    let (with, (_, backup_beside_seconds)) = beside(settings, &db, &table, &next, || backup(&db, &second))?;
    db.close()?;
    progress.begin("opening the copies");
    let rows_copied = (count(&first, &options, expected)?, count(&second, &options, expected)?);
    Ok(BackupReport {
        settings: settings.clone(),
        version: env!("CARGO_PKG_VERSION"),
        load_seconds,
        rows_cold,
        alone,
        cp_bytes,
        cp_seconds,
        cp_synced_seconds,
        backup_bytes,
        backup_seconds,
        backup_beside_seconds,
        beside: with,
        resident_bytes: (resident, most),
        rows_copied,
    })
}

fn create(db: &Database) -> Result<Table, Error> {
    db.create_table(
        TableSchema::new("accounts")
            .column(Column::new("id", Type::Int8))
            .column(Column::new("balance", Type::Int8))
            .column(Column::new("text", Type::Text))
            .primary_key(IndexSchema::ordered("key", &["id"])),
    )
}

/// One transaction: a new row, and a change of one of the latest.
fn write(db: &Database, table: &Table, id: u64, text: &str) -> Result<(), Error> {
    let primary = table.primary();
    let old = KeyBuf::new().i64((id - 1) as i64);
    db.run(TransactionOptions::new(), async |tx| {
        let id = id as i64;
        tx.insert_values(table, &[Value::from(id), Value::from(id), Value::from(text)]).await?;
        tx.update(&primary, &old, |row| Ok(row.set_i64(1, id)?)).await?;
        Ok(())
    })
}

/// Runs `work` with writers beside it.
fn beside<T>(
    settings: &BackupSettings,
    db: &Database,
    table: &Table,
    next: &AtomicU64,
    work: impl FnOnce() -> Result<T, Error>,
) -> Result<(Writing, T), Error> {
    let done = AtomicBool::new(false);
    let text = "y".repeat(settings.row_bytes);
    let pause = match settings.rate {
        0 => Duration::ZERO,
        rate => Duration::from_secs_f64(settings.threads as f64 / rate as f64),
    };
    let begun = time::now();
    std::thread::scope(|scope| {
        let writer = || -> Result<(Latencies, u64), Error> {
            let (mut latency, mut refused) = (Latencies::default(), 0);
            let mut due: Moment = time::now();
            while !done.load(Ordering::SeqCst) {
                if !pause.is_zero() {
                    due += pause;
                    std::thread::sleep(time::now().until(due));
                }
                let from = time::now();
                match write(db, table, next.fetch_add(1, Ordering::SeqCst), &text) {
                    Ok(()) => latency.record(from.elapsed_ns()),
                    Err(Error::OutOfMemory(_)) => refused += 1,
                    Err(error) => return Err(error),
                }
            }
            Ok((latency, refused))
        };
        let writers: Vec<_> = (0..settings.threads).map(|_| scope.spawn(writer)).collect();
        let outcome = work();
        let seconds = begun.elapsed().as_secs_f64();
        done.store(true, Ordering::SeqCst);
        let (mut all, mut refused) = (Latencies::default(), 0);
        for writer in writers {
            let (latency, count) = writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            all.merge(&latency);
            refused += count;
        }
        let percentiles = all.percentiles();
        let writing = Writing {
            seconds,
            per_s: all.count() as f64 / seconds,
            longest_ms: percentiles.max / 1e3,
            p999_ms: percentiles.p999 / 1e3,
            refused,
        };
        Ok((writing, outcome?))
    })
}

fn backup(db: &Database, to: &Path) -> Result<(u64, f64), Error> {
    let begun = time::now();
    let mut bytes = 0;
    db.backup_with(to, |progress| {
        bytes = progress.bytes;
        ControlFlow::Continue(())
    })?;
    Ok((bytes, begun.elapsed().as_secs_f64()))
}

/// Bytes, seconds, and seconds until they are on the device.
fn cp(from: &Path, to: &Path) -> Result<(u64, f64, f64), Error> {
    let failed = |what: String| Error::Refused(format!("cp: {what}"));
    let begun = time::now();
    let status =
        Command::new("cp").arg("-r").arg(from).arg(to).status().map_err(|error| failed(error.to_string()))?;
    if !status.success() {
        return Err(failed(status.to_string()));
    }
    let copied = begun.elapsed().as_secs_f64();
    let status =
        Command::new("sync").arg("-f").arg(to).status().map_err(|error| failed(error.to_string()))?;
    if !status.success() {
        return Err(failed(format!("sync: {status}")));
    }
    let synced = begun.elapsed().as_secs_f64();
    let output =
        Command::new("du").args(["-s", "-B1"]).arg(to).output().map_err(|error| failed(error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let bytes = said.split_whitespace().next().and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
    Ok((bytes, copied, synced))
}

/// Number of rows that a copy has of the first `expected` ones, which were there before it, and of later ones.
fn count(dir: &Path, options: &Options, expected: u64) -> Result<u64, Error> {
    let db = Database::open(dir, options.clone())?;
    let table = db.table("accounts")?;
    let rows = db.run(TransactionOptions::new().read_only(), async |tx| {
        let mut rows = 0;
        tx.scan_table(&table, |_| {
            rows += 1;
            ControlFlow::Continue(())
        })
        .await?;
        Ok(rows)
    })?;
    db.close()?;
    if rows < expected {
        return Err(Error::Refused(format!("a copy has {rows} rows, and {expected} were there before it")));
    }
    Ok(rows)
}

impl BackupReport {
    /// For people.
    #[must_use]
    pub fn to_table(&self) -> String {
        let per_s = |bytes: u64, seconds: f64| format!("{}/s", size((bytes as f64 / seconds) as u64));
        let writing = |of: &Writing| {
            format!(
                "{}/s, longest {:.1} ms, 99.9 % {:.1} ms, {} refused",
                grouped(of.per_s),
                of.longest_ms,
                of.p999_ms,
                of.refused
            )
        };
        let speed = |seconds: f64, bytes: u64, of: f64| {
            100.0 * (bytes as f64 / seconds) / (self.cp_bytes as f64 / of)
        };
        let lines = [
            (
                "rows, cold",
                format!("{}, {}", grouped(self.settings.rows as f64), grouped(self.rows_cold as f64)),
            ),
            ("loading", format!("{:.1} s", self.load_seconds)),
            (
                "cp",
                format!(
                    "{} in {:.2} s, on the device in {:.2} s",
                    size(self.cp_bytes),
                    self.cp_seconds,
                    self.cp_synced_seconds
                ),
            ),
            (
                "backup",
                format!(
                    "{} in {:.2} s, {}",
                    size(self.backup_bytes),
                    self.backup_seconds,
                    per_s(self.backup_bytes, self.backup_seconds)
                ),
            ),
            (
                "speed of cp",
                format!(
                    "{:.0} % until it is on the device, {:.0} % of cp alone",
                    speed(self.backup_seconds, self.backup_bytes, self.cp_synced_seconds),
                    speed(self.backup_seconds, self.backup_bytes, self.cp_seconds)
                ),
            ),
            ("backup beside writers", format!("{:.2} s", self.backup_beside_seconds)),
            ("writers alone", writing(&self.alone)),
            ("writers beside it", writing(&self.beside)),
            ("writers kept", format!("{:.0} %", 100.0 * self.beside.per_s / self.alone.per_s)),
            (
                "memory",
                format!(
                    "{} before, {} at most during a backup",
                    size(self.resident_bytes.0),
                    size(self.resident_bytes.1)
                ),
            ),
            (
                "rows in the copies",
                format!("{}, {}", grouped(self.rows_copied.0 as f64), grouped(self.rows_copied.1 as f64)),
            ),
        ];
        lines.iter().map(|(name, value)| format!("{name:<22} {value}\n")).collect()
    }

    /// For programs: one JSON object.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tiny_run_copies_everything() {
        let dir = tempfile::tempdir().expect("a directory");
        let settings = BackupSettings {
            rows: 20_000,
            row_bytes: 100,
            memory_limit_bytes: 64 << 20,
            threads: 2,
            rate: 1_000,
            seconds: 0.05,
            data_dir: dir.path().to_owned(),
        };
        let report = run(&settings, true).expect("it runs");
        assert!(report.rows_copied.0 >= 20_000 && report.rows_copied.1 >= report.rows_copied.0, "{report:?}");
        assert!(report.backup_bytes > 0 && report.to_table().contains("writers kept"));
        assert!(report.to_json().contains("\"rows\":20000"));
    }
}
