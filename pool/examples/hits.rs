//! Hits a second: `cargo run --release -p thermocline-pool --example hits -- [MiB] [seconds]`.
//!
//! Per second of processor time, so that a busy machine does not count (on Linux; elsewhere of the clock).
//! One thread, independent uniform page numbers over full frames, 8 bytes read at a random place of each.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use thermocline_base::clock::{Clock, SystemClock};
use thermocline_base::io::MemoryIo;
use thermocline_base::multiplex::block_on;
use thermocline_base::rng::Rng;
use thermocline_base::vm::Reservation;
use thermocline_pool::device::PageDevice;
use thermocline_pool::frames::{DeviceId, PageId, PagePool, PoolOptions};
use thermocline_pool::page::{HEADER_BYTES, PageKind, PageSize};

/// Processor time of this thread.
fn now_ns() -> u64 {
    let spent = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let spent = spent.and_then(|text| text.split(' ').next()?.parse().ok());
    spent.unwrap_or_else(|| SystemClock.now_ns())
}

/// The pages that are read, and for how long.
struct Work {
    device: DeviceId,
    pages: u64,
    seconds: u64,
}

impl Work {
    fn draw(&self, rng: &mut Rng) -> (PageId, usize) {
        let places = (4096 - HEADER_BYTES - 8) as u64;
        let random = rng.next_u64();
        let number = 1 + ((u128::from(random) * u128::from(self.pages)) >> 64) as u64;
        (PageId::new(self.device, number), (((random & 0xffff) * places) >> 16) as usize)
    }

    /// In batches whose lines are asked for ahead.
    #[inline(never)]
    fn run_ahead(&self, name: &str, pool: &PagePool, one: impl Fn(PageId, usize) -> u64) {
        const BATCH: usize = 16;
        let (begin, mut rng, mut count, mut sum) = (now_ns(), Rng::new(7), 0u64, 0u64);
        while now_ns() - begin < self.seconds * 1_000_000_000 {
            for _ in 0..100_000 / BATCH {
                let batch: [(PageId, usize); BATCH] = std::array::from_fn(|_| self.draw(&mut rng));
                batch.iter().for_each(|(page, _)| pool.prefetch(*page));
                batch.iter().for_each(|(page, at)| pool.prefetch_bytes(*page, *at));
                sum = batch.iter().fold(sum, |sum, (page, at)| sum.wrapping_add(one(*page, *at)));
            }
            count += 100_000;
        }
        black_box(sum);
        println!("{name}: {:.2} M/s", count as f64 / (now_ns() - begin) as f64 * 1e3);
    }

    #[inline(never)]
    fn run(&self, name: &str, one: impl Fn(PageId, usize) -> u64) {
        let (begin, mut rng, mut count, mut sum) = (now_ns(), Rng::new(7), 0u64, 0u64);
        while now_ns() - begin < self.seconds * 1_000_000_000 {
            for _ in 0..100_000 {
                let (page, at) = self.draw(&mut rng);
                sum = sum.wrapping_add(one(page, at));
            }
            count += 100_000;
        }
        black_box(sum);
        println!("{name}: {:.2} M/s", count as f64 / (now_ns() - begin) as f64 * 1e3);
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>().expect("a number"));
    let (mib, seconds) = (arguments.next().unwrap_or(1024), arguments.next().unwrap_or(2));
    let io = MemoryIo::new();
    let device = PageDevice::create(&io, Path::new("/pages"), PageSize::default(), [1; 16]).expect("memory");
    let pool = PagePool::new(PoolOptions::new(mib << 20)).expect("memory");
    let device = pool.add_device(Arc::new(device)).expect("the same page size");
    let pages = (mib << 20) / 4096;
    for number in 1..=pages {
        let mut guard = block_on(pool.create(PageId::new(device, number))).expect("a frame");
        guard.payload_mut()[..8].copy_from_slice(&number.to_le_bytes());
        guard.publish(1, PageKind(1));
    }
    let work = Work { device, pages, seconds };
    work.run("nothing", |page, at| page.number() + at as u64);
    let plain = Reservation::new((mib << 20) as usize + (2 << 20)).expect("address space");
    plain.advise_huge(0, plain.bytes(), true);
    // SAFETY: inside of the reservation, which is this function's alone.
    unsafe { plain.base().write_bytes(1, plain.bytes()) };
    work.run("memory alone", |page, at| {
        // SAFETY: as above; pages are numbered from 1, and there is room for one more.
        unsafe { plain.base().add(page.number() as usize * 4096 + at).cast::<u64>().read_unaligned() }
    });
    work.run("optimistic", |page, at| {
        pool.read_optimistic(page, |bytes| bytes.u64(at)).flatten().expect("all are there")
    });
    work.run("pinned", |page, at| {
        let guard = pool.try_pin(page).expect("all are there");
        guard.payload()[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    });
    work.run("pinned by await", |page, at| {
        let guard = block_on(pool.pin(page, None)).expect("all are there");
        guard.payload()[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    });
    work.run_ahead("optimistic, asked for ahead", &pool, |page, at| {
        pool.read_optimistic(page, |bytes| bytes.u64(at)).flatten().expect("all are there")
    });
    work.run_ahead("pinned, asked for ahead", &pool, |page, at| {
        let guard = pool.try_pin(page).expect("all are there");
        guard.payload()[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    });
}
