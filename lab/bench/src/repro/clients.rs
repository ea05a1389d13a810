//! Clients: each waits, runs a transaction, and again, for a slice of time.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use thermocline_base::multiplex::{run_tasks, yield_now};
use thermocline_base::rng::Rng;

use super::{ReproError, Result};
use crate::time;

/// Slices of one measure, at the least.
const SLICES_MIN: u32 = 3;
/// Transactions of each thread in a slice at the least, however long they take: a busy machine measures the same things.
const SLICE_TRANSACTIONS_MIN: u64 = 20;
/// Time that a thread waits for them beyond its slice.
const PATIENCE: Duration = Duration::from_secs(10);
/// Seconds of a slice, at the most.
const SLICE_SECONDS: f64 = 0.5;

/// Number of slices of a measure of so many seconds, and the length of each.
pub(super) fn slices(seconds: f64) -> (u32, Duration) {
    let count = ((seconds / SLICE_SECONDS).ceil() as u32).max(SLICES_MIN);
    (count, Duration::from_secs_f64(seconds / f64::from(count)))
}

/// The clients that work, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) clients: usize,
    pub(super) threads: usize,
    /// Time that a client waits before each transaction.
    pub(super) think: Duration,
    pub(super) lasts: Duration,
    pub(super) seed: u64,
}

/// The result of a slice.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slice {
    pub(super) done: u64,
    pub(super) aborted: u64,
    pub(super) latency_ns: u64,
    pub(super) seconds: f64,
}

impl Slice {
    pub(super) fn per_s(&self) -> f64 {
        self.done as f64 / self.seconds
    }

    pub(super) fn latency_us(&self) -> f64 {
        self.latency_ns as f64 / self.done.max(1) as f64 / 1e3
    }
}

/// Runs clients. `work` makes what one of them repeats, by its number.
pub(super) fn run<W>(load: &Load, work: impl Fn(usize) -> W + Sync) -> Result<Slice>
where
    W: AsyncFnMut(&mut Rng) -> Result<()>,
{
    let begin = time::now();
    let threads = load.threads.min(load.clients).max(1);
    let one_thread = |thread: usize| {
        let (sum, failure) = (Cell::new(Slice::default()), RefCell::new(None));
        let here = (load.clients + thread) / threads;
        let tasks = (0..here).map(async |client| {
            let number = client * threads + thread;
            let mut rng = Rng::new(load.seed << 20 ^ number as u64);
            let mut work = work(number);
            let goes_on = |done: u64| {
                let elapsed = begin.elapsed();
                elapsed < load.lasts || done < SLICE_TRANSACTIONS_MIN && elapsed < load.lasts + PATIENCE
            };
            while goes_on(sum.get().done) && failure.borrow().is_none() {
                if !load.think.is_zero() {
                    let until = time::now() + load.think;
                    while time::now() < until {
                        yield_now().await;
                    }
                }
                let start = time::now();
                let outcome = work(&mut rng).await;
                let mut total = sum.get();
                match outcome {
                    Ok(()) => {
                        total.done += 1;
                        total.latency_ns += start.elapsed_ns();
                    }
                    Err(ReproError::Engine(error)) if error.is_retryable() => total.aborted += 1,
                    Err(error) => {
                        failure.replace(Some(error));
                    }
                }
                sum.set(total);
                if here > 1 {
                    yield_now().await;
                }
            }
        });
        run_tasks(tasks.collect());
        failure.into_inner().map_or(Ok(sum.get()), Err)
    };
    let mut sum = Slice::default();
    std::thread::scope(|scope| {
        let one_thread = &one_thread;
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || one_thread(thread))).collect();
        for thread in running {
            let slice = thread.join().expect("clients do not panic")?;
            sum.done += slice.done;
            sum.aborted += slice.aborted;
            sum.latency_ns += slice.latency_ns;
        }
        Ok::<_, ReproError>(())
    })?;
    sum.seconds = begin.elapsed().as_secs_f64();
    if sum.done == 0 {
        return Err(ReproError::Setting(
            "no transaction ended within a slice; use a longer --seconds".to_owned(),
        ));
    }
    Ok(sum)
}
