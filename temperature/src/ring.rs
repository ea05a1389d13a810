//! A worker's ring of records: one thread fills it, one empties it.
//!
//! ```text
//!   head ≤ tail ≤ head + capacity        slot of position p: p % capacity
//! ```
//!
//! # Argument
//! *Whose slot is it?* Positions in `[head, tail)` belong to the reader, the others to the writer. The writer stores a
//! record into slots of position `tail` and then moves the tail with a release store; the reader loads the tail with
//! acquire before it reads, so it sees whole records only. The reader reads its records and then moves the head with a
//! release store; the writer, before it uses a position again, has loaded a head past its former life with acquire, so its store cannot be
//! seen by that reading. Both marks are moved by one thread each. There is one reader at a time because reading takes `&mut`
//! of the only [`Reader`], and one writer likewise.
//!
//! The writer keeps the head that it saw last and looks again only when the ring seems full: in the usual case a record
//! costs two plain stores and one release store to lines that are its own.
//!
//! Slots are atomics, read and written relaxed: no unsafe code, and the same instructions as plain memory.

use std::sync::Arc;

use thermocline_base::sync::{AtomicBool, AtomicU32, AtomicU64, CachePadded, Ordering};

use crate::mutation::{self, Rule};

/// A record: two words.
pub(super) type Record = [u64; 2];

#[derive(Debug)]
struct Shared {
    slots: Box<[[AtomicU64; 2]]>,
    head: CachePadded<AtomicU64>,
    tail: CachePadded<AtomicU64>,
    throttle: CachePadded<Throttle>,
}

/// Words between the two ends, beside records. Written seldom.
#[derive(Debug, Default)]
struct Throttle {
    /// By how many powers of two the worker samples less than it was asked to.
    steps: AtomicU32,
    /// Records that found the ring full.
    lost: AtomicU64,
    /// The writer is gone.
    closed: AtomicBool,
}

/// The end that fills.
#[derive(Debug)]
pub(super) struct Writer {
    shared: Arc<Shared>,
    tail: u64,
    head_seen: u64,
}

/// The end that empties.
#[derive(Debug)]
pub(super) struct Reader {
    shared: Arc<Shared>,
    head: u64,
}

/// The least sampling is 2^-12 of what was asked for.
const STEPS_MAX: u32 = 12;

/// A ring of `capacity` records, a power of two.
pub(super) fn ring(capacity: usize) -> (Writer, Reader) {
    assert!(capacity.is_power_of_two(), "the capacity of a ring is a power of two");
    let shared = Arc::new(Shared {
        slots: (0..capacity).map(|_| [AtomicU64::new(0), AtomicU64::new(0)]).collect(),
        head: CachePadded::default(),
        tail: CachePadded::default(),
        throttle: CachePadded::default(),
    });
    (Writer { shared: Arc::clone(&shared), tail: 0, head_seen: 0 }, Reader { shared, head: 0 })
}

/// Bytes of a ring.
pub(super) fn bytes(capacity: usize) -> usize {
    capacity * size_of::<Record>() + size_of::<Shared>()
}

impl Writer {
    /// Adds a record. `false`: there is no room; the record is lost, and the worker shall sample less.
    #[inline]
    pub(super) fn push(&mut self, record: Record) -> bool {
        let shared = &*self.shared;
        let capacity = shared.slots.len() as u64;
        if self.tail - self.head_seen >= capacity {
            self.head_seen = shared.head.load(Ordering::Acquire);
            let full = self.tail - self.head_seen >= capacity;
            if full && mutation::on(Rule::AccessRingWaitsForReader) {
                self.lose();
                return false;
            }
        }
        if mutation::off(Rule::AccessRingFillsBeforeTail) {
            shared.tail.store(self.tail + 1, Ordering::Release);
        }
        let slot = &shared.slots[(self.tail & (capacity - 1)) as usize];
        slot[0].store(record[0], Ordering::Relaxed);
        slot[1].store(record[1], Ordering::Relaxed);
        self.tail += 1;
        shared.tail.store(self.tail, Ordering::Release);
        true
    }

    #[cold]
    fn lose(&self) {
        let throttle = &self.shared.throttle;
        throttle.lost.fetch_add(1, Ordering::Relaxed);
        // The reader may lower it at the same time; whichever step is lost is made up for by the next record.
        let steps = throttle.steps.load(Ordering::Relaxed);
        if steps < STEPS_MAX {
            throttle.steps.store(steps + 1, Ordering::Relaxed);
        }
    }

    /// By how many powers of two to sample less.
    #[inline]
    pub(super) fn throttle(&self) -> u32 {
        self.shared.throttle.steps.load(Ordering::Relaxed)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.throttle.closed.store(true, Ordering::Release);
    }
}

impl Reader {
    /// Gives every record that is there to `take`: how many.
    pub(super) fn drain(&mut self, mut take: impl FnMut(Record)) -> usize {
        let shared = &*self.shared;
        let mask = shared.slots.len() as u64 - 1;
        let tail = shared.tail.load(Ordering::Acquire);
        if mutation::off(Rule::AccessRingReadsBeforeHead) {
            shared.head.store(tail, Ordering::Release);
        }
        for position in self.head..tail {
            let slot = &shared.slots[(position & mask) as usize];
            take([slot[0].load(Ordering::Relaxed), slot[1].load(Ordering::Relaxed)]);
        }
        let count = (tail - self.head) as usize;
        self.head = tail;
        shared.head.store(tail, Ordering::Release);
        count
    }

    pub(super) fn capacity(&self) -> usize {
        self.shared.slots.len()
    }

    /// Is the writer gone? What it has written before can still be drained.
    pub(super) fn is_closed(&self) -> bool {
        self.shared.throttle.closed.load(Ordering::Acquire)
    }

    pub(super) fn lost(&self) -> u64 {
        self.shared.throttle.lost.load(Ordering::Relaxed)
    }

    pub(super) fn throttle(&self) -> u32 {
        self.shared.throttle.steps.load(Ordering::Relaxed)
    }

    /// Lets the worker sample more, by one power of two.
    pub(super) fn ease(&self) {
        let steps = self.throttle();
        if steps > 0 {
            self.shared.throttle.steps.store(steps - 1, Ordering::Relaxed);
        }
    }

    /// Makes the worker sample less, by one power of two.
    pub(super) fn press(&self) {
        let steps = self.throttle();
        if steps < STEPS_MAX {
            self.shared.throttle.steps.store(steps + 1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_in_order_and_a_full_ring_loses_the_newest() {
        let (mut writer, mut reader) = ring(4);
        for round in 0..3_u64 {
            let pushed: Vec<bool> = (0..6).map(|at| writer.push([round, at])).collect();
            assert_eq!(pushed, [true, true, true, true, false, false]);
            let mut seen = Vec::new();
            assert_eq!(reader.drain(|record| seen.push(record)), 4);
            assert_eq!(seen, [[round, 0], [round, 1], [round, 2], [round, 3]]);
        }
        assert_eq!((reader.lost(), reader.throttle(), writer.throttle()), (6, 6, 6));
        reader.ease();
        assert_eq!(writer.throttle(), 5);
        assert!(!reader.is_closed());
        writer.push([9, 9]);
        drop(writer);
        assert!(reader.is_closed());
        assert_eq!(reader.drain(|_| ()), 1);
    }

    #[test]
    fn threads_pass_every_record_once() {
        const RECORDS: u64 = 200_000;
        let (mut writer, mut reader) = ring(64);
        let worker = std::thread::spawn(move || {
            let mut lost = 0;
            for number in 0..RECORDS {
                lost += u64::from(!writer.push([number, !number]));
                if number % 50 == 0 {
                    std::thread::yield_now();
                }
            }
            lost
        });
        let mut last = None;
        let mut seen = 0;
        loop {
            let closed = reader.is_closed();
            reader.drain(|[number, inverse]| {
                assert_eq!(number, !inverse, "a torn record");
                assert!(last.is_none_or(|last| last < number), "out of order");
                last = Some(number);
                seen += 1;
            });
            if closed {
                break;
            }
        }
        assert_eq!(seen + worker.join().expect("the worker"), RECORDS);
    }
}

#[cfg(all(test, feature = "model"))]
mod model_tests {
    use super::*;
    use thermocline_base::sync::model;

    /// A writer that meets a full ring of two, and a reader that empties it twice beside it.
    fn pass_records() {
        let (mut writer, mut reader) = ring(2);
        let worker = shuttle::thread::spawn(move || {
            (1..=4_u64).filter(|number| writer.push([*number, *number])).count()
        });
        let mut last = 0;
        let mut seen = 0;
        let mut take = |[first, second]: Record| {
            assert_eq!(first, second, "a torn record");
            assert!(first > last, "record {first} came after {last}");
            last = first;
            seen += 1;
        };
        reader.drain(&mut take);
        reader.drain(&mut take);
        let pushed = worker.join().expect("the worker");
        reader.drain(&mut take);
        assert_eq!(seen, pushed, "a record was lost or came twice");
    }

    #[test]
    fn records_are_whole_in_order_and_none_is_lost() {
        model::run(4000, pass_records);
    }

    #[test]
    fn each_rule_is_missed() {
        let rules = [
            Rule::AccessRingFillsBeforeTail,
            Rule::AccessRingWaitsForReader,
            Rule::AccessRingReadsBeforeHead,
        ];
        for rule in rules {
            let _off = mutation::switch_off(rule);
            assert!(model::finds_failure(4000, pass_records), "{rule:?}");
        }
    }
}
