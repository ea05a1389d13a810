//! Speed of the pager alone: pages of a region read by Zipf-free random reads, with a share of them in frames.
//!
//! `cargo run --release -p thermocline-region --example pager -- DIR PAGES FRAMES TASKS DELAY_MS HOT_SHARE SECONDS [--threads N] [--backing B]`
//!
//! `B` is `file` (in `DIR`), `remote` (a memory server in this process, on a socket in `DIR`; its processor time counts), or
//! `remote=ADDRESS,…` (unix sockets of memory servers that run).
//!
//! One thread (or `N`, each) runs `TASKS` tasks; each reads one page at a time, of a hot sixteenth of the frames with the probability
//! `HOT_SHARE`, else of all. `DELAY_MS` above 0 makes each read of the device take so long. Prints one line of JSON.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use thermocline_base::backing::{Backing, FileBacking, PAGE_BYTES, PART_BYTES, PART_PAGES};
use thermocline_base::clock::{Clock, SystemClock, process_cpu_ns, process_cpu_since};
use thermocline_base::epoch::Epochs;
use thermocline_base::io::{AlignedBytes, DelayedIo, Io, SystemIo};
use thermocline_base::multiplex::run_tasks;
use thermocline_base::rng::Rng;
use thermocline_pool::policy::PolicyKind;
use thermocline_region::{Options, Pager, Side, Span};
use thermocline_remote::backing::{RemoteBacking, RemoteOptions};
use thermocline_remote::server::{SEGMENT_BYTES, Server, ServerOptions};
use thermocline_remote::tcp::{Address, TcpConnect};
use thermocline_remote::transport::Connect;

fn number(arguments: &[String], at: usize) -> f64 {
    arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or_else(|| {
        panic!("usage: pager DIR PAGES FRAMES TASKS DELAY_MS HOT_SHARE SECONDS [--threads N] [--backing file|remote|remote=ADDRESS,…]");
    })
}

/// The backing of that name, and the server that it needs.
fn backing(name: &str, dir: &Path, pages: usize, delay_ms: usize) -> (Arc<dyn Backing>, Option<Server>) {
    if name == "file" {
        let mut io: Arc<dyn Io> = Arc::new(SystemIo::new());
        if delay_ms > 0 {
            io = Arc::new(DelayedIo::new(io, Duration::from_millis(delay_ms as u64)));
        }
        let backing = FileBacking::new(&*io, &dir.join("pages")).expect("a directory for the pages");
        return (Arc::new(backing), None);
    }
    assert!(delay_ms == 0, "reads of a file can be delayed, not those of memory servers");
    let mut addresses: Vec<Address> = match name.strip_prefix("remote=") {
        Some(list) => list.split(',').map(|address| address.parse().expect("an address")).collect(),
        None => Vec::new(),
    };
    let server = addresses.is_empty().then(|| {
        assert_eq!(name, "remote", "a backing is file, remote, or remote=ADDRESS,…");
        let socket = Address::Unix(dir.join("memory.socket"));
        addresses.push(socket.clone());
        let options = ServerOptions {
            memory_bytes: (pages * PAGE_BYTES) as u64 + 2 * SEGMENT_BYTES,
            segment_bytes: SEGMENT_BYTES,
            listen: vec![socket],
            key: None,
            huge: false,
            locked: false,
            grace: Duration::from_secs(30),
        };
        Server::start(&options).expect("a memory server")
    });
    let connect =
        |address| Box::new(TcpConnect::new(address, None, false, Duration::from_secs(5))) as Box<dyn Connect>;
    let clock = Arc::new(SystemClock) as Arc<dyn Clock>;
    let connects = addresses.into_iter().map(connect).collect();
    let backing = RemoteBacking::open(RemoteOptions::default(), &clock, connects).expect("memory servers");
    (Arc::new(backing), server)
}

fn main() {
    let mut arguments: Vec<String> = std::env::args().collect();
    let threads = arguments.iter().position(|argument| argument == "--threads");
    let threads = threads.map_or(1, |at| {
        let number = arguments.drain(at..at + 2).nth(1).and_then(|text| text.parse::<u64>().ok());
        number.expect("a number of threads")
    });
    let named = arguments.iter().position(|argument| argument == "--backing");
    let kind = named.map_or("file".to_owned(), |at| arguments.drain(at..).nth(1).expect("a backing"));
    let [pages, frames, tasks, delay_ms] = [2, 3, 4, 5].map(|at| number(&arguments, at) as usize);
    let (hot_share, seconds) = (number(&arguments, 6), number(&arguments, 7));
    let parts = pages.div_ceil(PART_PAGES);
    let (backing, _server) = backing(&kind, Path::new(&arguments[1]), parts * PART_PAGES, delay_ms);
    let epochs = Arc::new(Epochs::new());
    let options = Options { bytes: parts * PART_BYTES, frames, policy: PolicyKind::S3Fifo };
    let pager = Pager::new(options, Arc::clone(&epochs), backing).expect("a region");
    for _ in 0..parts {
        let part = pager.take(Side::Paged).expect("a free part");
        let mut run = AlignedBytes::zeroed(PART_BYTES);
        run.fill(part.number as u8);
        pager.append(part, run).expect("written").expect("room");
    }
    let before = pager.statistics();
    let (began_ns, began_cpu_ns) = (SystemClock.now_ns(), process_cpu_ns());
    let end_ns = began_ns + (seconds * 1e9) as u64;
    let run = |thread: u64| {
        let (reads, hits) = (Cell::new(0_u64), Cell::new(0_u64));
        let times_us = RefCell::new(Vec::new());
        run_tasks(
            (0..tasks as u64)
                .map(async |task| {
                    let mut rng = Rng::new(task + (thread << 32));
                    while SystemClock.now_ns() < end_ns {
                        let range =
                            if rng.chance(hot_share) { (frames / 16).max(1) } else { parts * PART_PAGES };
                        let page = rng.below(range as u64);
                        let spans = [Span { at: page * PAGE_BYTES as u64 + 64, bytes: 200 }];
                        let mut claim = pager.claim();
                        let from_ns = SystemClock.now_ns();
                        let mut waited = false;
                        loop {
                            {
                                let guard = epochs.pin();
                                if let Some(proof) = pager.ask(&guard, &spans, &mut claim).expect("a page") {
                                    let byte = proof.bytes(spans[0])[100];
                                    assert_eq!(byte, (page / PART_PAGES as u64) as u8, "the page's byte");
                                    break;
                                }
                            }
                            waited = true;
                            (&mut claim).await.expect("a page");
                        }
                        reads.set(reads.get() + 1);
                        if !waited {
                            hits.set(hits.get() + 1);
                            if hits.get() % 16 == 0 {
                                times_us.borrow_mut().push((SystemClock.now_ns() - from_ns) as f64 / 1e3);
                            }
                        }
                    }
                })
                .collect(),
        );
        (reads.get(), times_us.into_inner())
    };
    let (mut reads, mut hit_us) = (0, Vec::new());
    std::thread::scope(|scope| {
        let run = &run;
        let all: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        for one in all {
            let (more, times) = one.join().expect("no thread of a run panics");
            reads += more;
            hit_us.extend(times);
        }
    });
    let took = (SystemClock.now_ns() - began_ns) as f64 / 1e9;
    let cpu_us = process_cpu_since(began_cpu_ns) as f64 / 1e3;
    let after = pager.statistics();
    let page_ins = after.page_ins - before.page_ins;
    hit_us.sort_by(f64::total_cmp);
    let at = |share: f64| hit_us.get((hit_us.len() as f64 * share) as usize).copied().unwrap_or(0.0);
    println!(
        "{{\"backing\":\"{kind}\",\"pages\":{pages},\"frames\":{frames},\"tasks\":{tasks},\"delay_ms\":{delay_ms},\"hot_share\":{hot_share},\"threads\":{threads},\"reads_per_s\":{:.0},\
         \"page_ins_per_s\":{:.0},\"cpu_us_per_page_in\":{:.2},\"page_reads_per_wait\":{:.3},\"hit_us_p50\":{:.2},\"hit_us_p99_9\":{:.2},\
         \"net_faults\":{},\"resident_bytes\":{},\"table_bytes\":{}}}",
        reads as f64 / took,
        page_ins as f64 / took,
        cpu_us / page_ins.max(1) as f64,
        (after.reads_of_waits - before.reads_of_waits) as f64 / (after.waits - before.waits).max(1) as f64,
        at(0.5),
        at(0.999),
        after.net_faults,
        after.resident_bytes,
        after.table_bytes,
    );
}
