//! Counts for Prometheus: one page of text, whatever is asked for, on a port of its own.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use thermocline_engine::{Database, SsdStats};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::shared::Shared;

/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest request that is read, in bytes.
const REQUEST_BYTES: usize = 8 << 10;

/// Answers until the server stops.
pub(crate) async fn answer(listener: TcpListener, shared: Arc<Shared>) {
    while !shared.is_stopping() {
        match listener.accept().await {
            Ok((stream, _)) => {
                let shared = shared.clone();
                tokio::task::spawn_local(tokio::time::timeout(PATIENCE, one(stream, shared)));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a request for metrics");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn one(mut stream: TcpStream, shared: Arc<Shared>) {
    // The answer is the same for every path; the head of the request is read, so that its sender is not cut off.
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < REQUEST_BYTES {
        match stream.read_buf(&mut request).await {
            Ok(count) if count > 0 => {}
            _ => return,
        }
    }
    let page = page(&shared);
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        page.len()
    );
    if stream.write_all(head.as_bytes()).await.is_ok() && stream.write_all(page.as_bytes()).await.is_ok() {
        let _ = stream.shutdown().await;
    }
}

/// The text of a page, metric by metric.
#[derive(Default)]
struct Page(String);

impl Page {
    fn put(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.head(name, kind, help);
        let _ = writeln!(self.0, "thermocline_{name} {value}");
    }

    /// A metric that has several values, each with the value of its label.
    fn put_each<'v>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl Iterator<Item = (&'v str, u64)>,
    ) {
        self.head(name, "gauge", help);
        for (of, value) in values {
            let _ = writeln!(self.0, "thermocline_{name}{{{label}=\"{of}\"}} {value}");
        }
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP thermocline_{name} {help}\n# TYPE thermocline_{name} {kind}");
    }
}

/// All counts, as Prometheus reads them.
fn page(shared: &Shared) -> String {
    let mut page = Page::default();
    server(&mut page, shared);
    database(&mut page, &shared.db);
    page.0
}

/// The counts of the server.
fn server(page: &mut Page, shared: &Shared) {
    let counts = &shared.counts;
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let mut total = |name: &str, help: &str, value: u64| page.put(name, "counter", help, value);
    total("connections_total", "Clients that were let in.", count(&counts.connections));
    total("connections_refused_total", "Clients that found all places taken.", count(&counts.refused));
    total("statements_total", "Statements that were run.", count(&counts.statements));
    total("errors_total", "Errors that clients were told.", count(&counts.errors));
    total("rows_total", "Rows returned, changed or copied.", count(&counts.rows));
    total("received_bytes_total", "Bytes from clients.", count(&counts.bytes_in));
    total("sent_bytes_total", "Bytes to clients.", count(&counts.bytes_out));
    total("cancelled_total", "Requests to cancel that were heeded.", count(&counts.cancelled));
    total("panics_total", "Connections that ended by a panic.", count(&counts.panics));
    page.put("connections", "gauge", "Clients that are connected.", shared.connected() as u64);
}

/// The counts of the database since it was opened, and where its rows are.
fn database(page: &mut Page, db: &Database) {
    let found = db.statistics();
    page.put_each("memory_bytes", "Memory by what it is for.", "part", found.memory.parts());
    if let Some(limit) = found.memory_limit {
        page.put("memory_limit_bytes", "gauge", "The memory limit.", limit);
    }
    let tables = db.table_names();
    let of_tables = tables.iter().filter_map(|name| db.table(name).ok()).map(|table| table.statistics());
    let in_memory = of_tables.map(|of| of.rows_hot.saturating_sub(of.rows_frozen)).sum();
    let paged = found.paged.unwrap_or_default();
    let places = [
        ("memory", in_memory),
        ("frozen", found.frozen.rows_frozen),
        ("paged", paged.rows),
        ("cold", found.cold.rows_cold),
    ];
    page.put_each("stored_rows", "Rows by where they are.", "place", places.into_iter());
    page.put("cold_disk_bytes", "gauge", "Bytes of cold rows on the disk.", found.cold.disk_bytes);
    page.put("paged_resident_bytes", "gauge", "Bytes of pages in memory.", paged.resident_bytes);
    let levels = [("cold", found.cold.ssd), ("paged", paged.level)];
    let levels = || levels.iter().filter_map(|(side, level)| Some((*side, (*level)?)));
    let mut of_levels = |name: &str, help: &str, value: fn(&SsdStats) -> u64| {
        page.put_each(name, help, "side", levels().map(|(side, level)| (side, value(&level))));
    };
    if levels().next().is_some() {
        of_levels("copied_pages", "Pages with a copy on an SSD or on memory servers.", |level| level.cached);
        of_levels("copies_reads", "Pages that were read, for which copies were looked for.", |level| {
            level.counts.reads
        });
        of_levels("copies_hits", "Those of them that came from a copy.", |level| level.counts.hits);
        of_levels("copies_late", "Copies that were asked for and came too late.", |level| level.counts.late);
        of_levels("copies_faults", "Copies that were lost or damaged.", |level| level.counts.faults);
    }
    let mut total = |name: &str, help: &str, value: u64| page.put(name, "counter", help, value);
    total("commits_total", "Transactions that committed writes.", found.commits);
    total(
        "read_only_commits_total",
        "Transactions that committed and wrote nothing.",
        found.read_only_commits,
    );
    total("rollbacks_total", "Transactions that were rolled back.", found.rollbacks);
    total("memory_waits_total", "Times that a transaction waited for memory.", found.cold.memory_waits);
    total("cold_reads_total", "Reads of cold rows.", found.cold.reads);
    total("cold_device_reads_total", "Reads of the device for them.", found.cold.device_reads);
    total("cold_written_bytes_total", "Bytes written to that device.", found.cold.device_write_bytes);
    total(
        "migrated_rows_total",
        "Rows that left memory, alone or with their chunk.",
        found.cold.migrated_rows,
    );
    total("promoted_rows_total", "Rows that came back, as they were read often.", found.cold.promoted_rows);
    total("frozen_rows_total", "Rows that were compressed in memory.", found.frozen.frozen_rows);
    total("page_ins_total", "Pages that came in.", paged.page_ins);
    total("page_outs_total", "Pages that went out.", paged.page_outs);
}
