//! The work of a worker at each access: almost nothing.
//!
//! ```text
//!   hot access   countdown - 1 ── not 0 ─► done
//!                     └─ 0 ─► record into the ring, a new countdown: 1 ..= 2·stride - 1, uniformly
//!   cold access  record into the ring
//! ```
//!
//! The stride is the inverse of the sampling rate; its random length keeps the samples from falling into step with a transaction's
//! accesses. No clock is read: records belong to the quantum in which they are drained. A record says how many accesses
//! it stands for (its stride), so rates may differ between workers and over time.
//!
//! A full ring loses the record and doubles the stride; the [`Collector`](super::Collector) halves it again once it keeps up.
//! While sampling is off the countdown goes on, so that the worker notices when it is on again.
//!
//! The record: `hash | table 32, weight 15, cold 1, size class 16`.

use std::sync::Arc;

use thermocline_base::ids::TableId;
use thermocline_base::rng::Rng;
use thermocline_base::sync::{AtomicU32, Ordering};

use super::ring::{Record, Writer};
use super::{Access, RowName, SizeClass};

/// Accesses until a worker looks again whether sampling is on.
const OFF_COUNTDOWN: u32 = 4096;
/// No record stands for more.
const WEIGHT_MAX: u32 = (1 << 15) - 1;

/// The share that is sampled, shared by all workers. Changes take effect at each worker's next record.
#[derive(Debug)]
pub(super) struct Rate {
    /// One of so many hot accesses is recorded; 0: nothing is.
    stride: AtomicU32,
}

impl Rate {
    pub(super) fn new(share: f64) -> Self {
        let rate = Self { stride: AtomicU32::new(0) };
        rate.set(share);
        rate
    }

    /// Records `share` of the hot accesses: from 0 (none, and no cold ones either) to 1.
    pub(super) fn set(&self, share: f64) {
        let stride =
            if share > 0.0 { (1.0 / share).round().clamp(1.0, f64::from(WEIGHT_MAX)) as u32 } else { 0 };
        self.stride.store(stride, Ordering::Relaxed);
    }

    pub(super) fn stride(&self) -> u32 {
        self.stride.load(Ordering::Relaxed)
    }
}

/// A worker's side of access sampling; see the module.
#[derive(Debug)]
pub struct Sampler {
    /// Hot accesses until the next record.
    countdown: u32,
    /// Number of accesses that the next record stands for; 0 while sampling is off.
    stride: u32,
    ring: Writer,
    rate: Arc<Rate>,
    rng: Rng,
}

impl Sampler {
    pub(super) fn new(ring: Writer, rate: Arc<Rate>, rng: Rng) -> Self {
        let mut sampler = Self { countdown: 1, stride: 0, ring, rate, rng };
        sampler.begin_stride();
        sampler
    }

    /// A hot row was accessed. `hash` is asked for only if the access is recorded.
    #[inline]
    pub fn touch(&mut self, table: TableId, hash: impl FnOnce() -> u64, bytes: u32) {
        self.countdown -= 1;
        if self.countdown == 0 {
            self.sample(table, hash, bytes);
        }
    }

    /// A cold row was accessed: always recorded, unless sampling is off.
    #[inline]
    pub fn touch_cold(&mut self, table: TableId, hash: u64, bytes: u32) {
        if self.rate.stride() > 0 {
            self.ring.push(encode(&Access {
                row: RowName { table, hash },
                size: SizeClass::of(bytes),
                weight: 1,
                cold: true,
            }));
        }
    }

    #[cold]
    #[inline(never)]
    fn sample(&mut self, table: TableId, hash: impl FnOnce() -> u64, bytes: u32) {
        if self.stride > 0 && self.rate.stride() > 0 {
            let row = RowName { table, hash: hash() };
            self.ring.push(encode(&Access {
                row,
                size: SizeClass::of(bytes),
                weight: self.stride,
                cold: false,
            }));
        }
        self.begin_stride();
    }

    fn begin_stride(&mut self) {
        let asked = self.rate.stride();
        self.stride = asked.saturating_mul(1 << self.ring.throttle()).min(WEIGHT_MAX);
        self.countdown = match self.stride {
            0 => OFF_COUNTDOWN,
            stride => 1 + self.rng.below(2 * u64::from(stride) - 1) as u32,
        };
    }
}

fn encode(access: &Access) -> Record {
    let meta = u64::from(access.row.table.0) << 32
        | u64::from(access.weight.min(WEIGHT_MAX)) << 17
        | u64::from(access.cold) << 16
        | u64::from(access.size.number());
    [access.row.hash, meta]
}

pub(super) fn decode([hash, meta]: Record) -> Access {
    Access {
        row: RowName { table: TableId((meta >> 32) as u32), hash },
        size: SizeClass::from_number(meta as u16),
        weight: (meta >> 17) as u32 & WEIGHT_MAX,
        cold: meta >> 16 & 1 == 1,
    }
}

#[cfg(test)]
mod tests {
    use super::super::ring::ring;
    use super::*;

    #[test]
    fn a_record_comes_back() {
        for (weight, cold, bytes) in [(1, true, 32), (10, false, 100), (WEIGHT_MAX, false, 1 << 20)] {
            let row = RowName { table: TableId(u32::MAX), hash: u64::MAX - 5 };
            let access = Access { row, size: SizeClass::of(bytes), weight, cold };
            assert_eq!(decode(encode(&access)), access);
        }
    }

    #[test]
    fn a_tenth_is_recorded_and_stands_for_all() {
        let (writer, mut reader) = ring(1 << 16);
        let rate = Arc::new(Rate::new(0.1));
        let mut sampler = Sampler::new(writer, Arc::clone(&rate), Rng::new(1));
        let mut hashed = 0_u64;
        let mut run = |sampler: &mut Sampler, accesses: u64| {
            for number in 0..accesses {
                let hash = || {
                    hashed += 1;
                    number
                };
                sampler.touch(TableId(1), hash, 100);
            }
        };
        run(&mut sampler, 300_000);
        let mut weight = 0;
        // A period of two must not be hit on one side only.
        let mut even = 0;
        let records = reader.drain(|record| {
            let access = decode(record);
            weight += u64::from(access.weight);
            even += u64::from(access.row.hash.is_multiple_of(2));
        });
        assert!((29_000..31_000).contains(&records), "{records}");
        assert!((290_000..310_000).contains(&weight), "{weight}");
        assert!((0.45..0.55).contains(&(even as f64 / records as f64)), "{even}");
        rate.set(0.0);
        run(&mut sampler, 100_000);
        sampler.touch_cold(TableId(1), 7, 100);
        assert!(reader.drain(|_| ()) <= 1, "off is off");
        rate.set(1.0);
        run(&mut sampler, 20_000);
        sampler.touch_cold(TableId(1), 7, 100);
        let found = reader.drain(|_| ());
        assert!((20_000 - OFF_COUNTDOWN as usize..=20_001).contains(&found), "{found}");
        assert!(hashed < 60_000, "the hash is computed for records only");
    }

    #[test]
    fn a_full_ring_makes_it_sample_less() {
        let (writer, mut reader) = ring(16);
        let mut sampler = Sampler::new(writer, Arc::new(Rate::new(1.0)), Rng::new(1));
        for number in 0..10_000 {
            sampler.touch(TableId(1), || number, 100);
        }
        assert!(reader.lost() > 0 && reader.throttle() > 4);
        reader.drain(|_| ());
        for number in 0..10_000 {
            sampler.touch(TableId(1), || number, 100);
        }
        let mut weight = 0;
        assert!(reader.drain(|record| weight = decode(record).weight) > 0);
        assert!(weight > 16, "records stand for more when there are fewer");
    }
}
