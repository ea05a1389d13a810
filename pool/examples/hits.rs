//! How many hits a second: `cargo run --release -p thermocline-pool --example hits -- [MiB] [seconds]`.
//!
//! One thread, independent uniform page numbers over full frames, 8 bytes read at a random place of each.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use thermocline_base::clock::{Clock, SystemClock};
use thermocline_base::io::MemoryIo;
use thermocline_base::multiplex::block_on;
use thermocline_base::rng::Rng;
use thermocline_pool::device::PageDevice;
use thermocline_pool::frames::{PageId, PagePool, PoolOptions};
use thermocline_pool::page::{HEADER_BYTES, PageKind, PageSize};

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
    let places = (4096 - HEADER_BYTES - 8) as u64;
    let run = |name: &str, one: &dyn Fn(PageId, usize) -> u64| {
        let (begin, mut rng, mut count, mut sum) = (SystemClock.now_ns(), Rng::new(7), 0u64, 0u64);
        while SystemClock.now_ns() - begin < seconds * 1_000_000_000 {
            for _ in 0..100_000 {
                let random = rng.next_u64();
                let page = PageId::new(device, 1 + (u128::from(random) * u128::from(pages) >> 64) as u64);
                sum = sum.wrapping_add(one(page, (random & 0xffff) as usize * places as usize >> 16));
            }
            count += 100_000;
        }
        black_box(sum);
        println!("{name}: {:.2} M/s", count as f64 / (SystemClock.now_ns() - begin) as f64 * 1e3);
    };
    run("nothing", &|page, at| page.number() + at as u64);
    run("optimistic", &|page, at| {
        pool.read_optimistic(page, |bytes| bytes.u64(at)).flatten().expect("all are there")
    });
    run("pinned", &|page, at| {
        let guard = pool.try_pin(page).expect("all are there");
        guard.payload()[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    });
    run("pinned by await", &|page, at| {
        let guard = block_on(pool.pin(page, None)).expect("all are there");
        guard.payload()[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    });
}
