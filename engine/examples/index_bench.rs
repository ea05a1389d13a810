//! What the indexes do: `cargo run --release -p thermocline-engine --example index_bench -- [keys, default 10000000]
//! [hash] [tree]`.
//!
//! Prints million operations a second for one and two threads (each thread does its share of the keys), by the clock
//! and, on Linux, by the processor time that the threads were given (on a busy machine the better figure), and bytes
//! an entry. Keys are 8 bytes; `random` means a random permutation of the whole 64-bit range, the same in every run.

use std::hint::black_box;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::time::Duration;

use thermocline_base::epoch::{Epochs, Guard};
use thermocline_base::ids::RowId;
use thermocline_engine::index::{Batch, Direction, HashIndex, HeapMemory, Tree};

/// A bijection of the 64-bit numbers that scatters them.
fn mix(key: u64) -> u64 {
    let mut x = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Wall-clock time of a run.
fn timed(run: impl FnOnce()) -> Duration {
    #[allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    let start = std::time::Instant::now();
    run();
    start.elapsed()
}

/// Processor time that the calling thread has had, or 0 where that is not known.
fn processor_ns() -> u64 {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    statistics.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// Calls `operation` with each number below `count`, spread over threads, and prints how fast that was.
fn measure(what: &str, threads: u64, count: u64, operation: impl Fn(u64) + Sync) {
    let mut busy_ns = 0;
    let elapsed = timed(|| {
        std::thread::scope(|scope| {
            let runs: Vec<_> = (0..threads)
                .map(|thread| {
                    let operation = &operation;
                    scope.spawn(move || {
                        let share = count / threads;
                        for n in thread * share..(thread + 1) * share {
                            operation(n);
                        }
                        processor_ns()
                    })
                })
                .collect();
            busy_ns = runs.into_iter().filter_map(|run| run.join().ok()).sum();
        });
    });
    let rate = |ns: f64| (count * if what.contains("32 a pin") { 32 } else { 1 }) as f64 / ns * 1e3;
    let busy = if busy_ns > 0 {
        format!("{:8.2} M/s of processor time", rate(busy_ns as f64 / threads as f64))
    } else {
        String::new()
    };
    println!("{what:32} {threads} thread(s) {:8.2} M/s {busy}", rate(elapsed.as_nanos() as f64));
}

/// The number of the key that is looked up `n`th: another permutation, so that lookups do not follow insertion.
fn scattered(n: u64, count: u64) -> u64 {
    mix(n ^ 0x5555) % count
}

fn hash(count: u64) {
    for threads in [1, 2] {
        let epochs = Arc::new(Epochs::new());
        let memory = Arc::new(HeapMemory::new(Arc::clone(&epochs)));
        let Ok(index) = HashIndex::new(Arc::clone(&memory)) else { return eprintln!("no memory") };
        measure("hash insert", threads, count, |n| {
            let new = index.insert(&epochs.pin(), mix(n), RowId(n));
            assert_eq!(new, Ok(true));
        });
        let lookup = |guard: &Guard<'_>, n| {
            let n = scattered(n, count);
            let found = index.lookup(guard, mix(n), |row| {
                if row.0 == n { ControlFlow::Break(row) } else { ControlFlow::Continue(()) }
            });
            assert!(black_box(found).is_some());
        };
        measure("hash lookup", threads, count, |n| lookup(&epochs.pin(), n));
        measure("hash lookup, 32 a pin", threads, count / 32, |n| {
            let guard = epochs.pin();
            (32 * n..32 * n + 32).for_each(|n| lookup(&guard, n));
        });
        measure("hash lookup, absent", threads, count, |n| {
            let guard = epochs.pin();
            let found = index.lookup(&guard, mix(n + count), ControlFlow::Break);
            let _ = black_box(found);
        });
        if threads == 1 {
            memory.collect();
            println!(
                "hash: {:.1} bytes an entry, {:.2} entries a bucket",
                memory.bytes() as f64 / count as f64,
                count as f64 / index.buckets() as f64
            );
        }
        measure("hash remove", threads, count, |n| {
            assert!(index.remove(&epochs.pin(), mix(n), RowId(n)));
        });
    }
}

fn tree(count: u64) {
    for (order, key) in [("ascending", (|n| n) as fn(u64) -> u64), ("random", mix)] {
        for threads in [1, 2] {
            let epochs = Arc::new(Epochs::new());
            let memory = Arc::new(HeapMemory::new(Arc::clone(&epochs)));
            let Ok(index) = Tree::<HeapMemory>::new(Arc::clone(&memory)) else {
                return eprintln!("no memory");
            };
            measure(&format!("tree insert, {order}"), threads, count, |n| {
                let new = index.insert(&epochs.pin(), &key(n).to_be_bytes(), RowId(n));
                assert_eq!(new, Ok(true));
            });
            let lookup = |guard: &Guard<'_>, n| {
                let n = scattered(n, count);
                let found = index.lookup(guard, &key(n).to_be_bytes(), ControlFlow::Break);
                assert_eq!(black_box(found), Some(RowId(n)));
            };
            measure(&format!("tree lookup, {order}"), threads, count, |n| lookup(&epochs.pin(), n));
            measure(&format!("tree lookup, {order}, 32 a pin"), threads, count / 32, |n| {
                let guard = epochs.pin();
                (32 * n..32 * n + 32).for_each(|n| lookup(&guard, n));
            });
            if threads == 1 {
                memory.collect();
                println!(
                    "tree, {order}: {:.1} bytes an entry, {} levels",
                    memory.bytes() as f64 / count as f64,
                    index.height(&epochs.pin())
                );
                for direction in [Direction::Forward, Direction::Backward] {
                    let mut found = 0;
                    let elapsed = timed(|| {
                        let mut batch = Batch::new();
                        let to = Bound::Unbounded;
                        let mut more =
                            index.scan_batch(&epochs.pin(), Bound::Unbounded, to, direction, &mut batch);
                        loop {
                            found += batch.iter().filter(|(key, _)| key.len() == 8).count() as u64;
                            if !more {
                                break;
                            }
                            more = index.scan_next(&epochs.pin(), to, &mut batch);
                        }
                    });
                    assert_eq!(found, count);
                    let rate = count as f64 / elapsed.as_secs_f64() / 1e6;
                    println!("tree scan, {order}, {direction:?} {rate:8.2} M entries/s");
                }
            }
            measure(&format!("tree remove, {order}"), threads, count, |n| {
                assert!(index.remove(&epochs.pin(), &key(n).to_be_bytes(), RowId(n)));
            });
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let count = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(10_000_000);
    let wants = |what: &str| {
        let named = |name: &str| arguments.iter().any(|argument| argument == name);
        named(what) || !(named("hash") || named("tree"))
    };
    println!("{count} keys");
    if wants("hash") {
        hash(count);
    }
    if wants("tree") {
        tree(count);
    }
}
