//! Counts for Prometheus: one page of text, whatever is asked for, on a port of its own.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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

/// All counts, as Prometheus reads them.
fn page(shared: &Shared) -> String {
    let mut out = String::new();
    let mut put = |name: &str, kind: &str, help: &str, value: u64| {
        let _ = writeln!(
            out,
            "# HELP thermocline_{name} {help}\n# TYPE thermocline_{name} {kind}\nthermocline_{name} {value}"
        );
    };
    let counts = &shared.counts;
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    put("connections", "gauge", "Clients that are connected.", shared.connected() as u64);
    put("connections_total", "counter", "Clients that were let in.", count(&counts.connections));
    put(
        "connections_refused_total",
        "counter",
        "Clients that found all places taken.",
        count(&counts.refused),
    );
    put("statements_total", "counter", "Statements that were run.", count(&counts.statements));
    put("errors_total", "counter", "Errors that clients were told.", count(&counts.errors));
    put("rows_total", "counter", "Rows returned, changed or copied.", count(&counts.rows));
    put("received_bytes_total", "counter", "Bytes from clients.", count(&counts.bytes_in));
    put("sent_bytes_total", "counter", "Bytes to clients.", count(&counts.bytes_out));
    put("cancelled_total", "counter", "Requests to cancel that were heeded.", count(&counts.cancelled));
    put("panics_total", "counter", "Connections that ended by a panic.", count(&counts.panics));
    out
}
