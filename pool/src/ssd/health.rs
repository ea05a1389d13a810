//! When a level goes off, and stays so until the next opening.
//!
//! | reason | when |
//! |---|---|
//! | faults | sixteen wrong answers, each forgotten after sixteen right ones |
//! | late | the same of answers that came too late |
//! | no faster | over a thousand reads of one page from either device, the SSD took nine tenths of the primary's time or more |
//!
//! The first two are an SSD's: where a level is on lent memory, its answers say nothing about other pages.

use std::fmt;

use thermocline_base::sync::{AtomicU64, Mutex, Ordering};

use crate::cache::Savings;

/// Is a level in use, and if not, why?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum SsdState {
    /// It is.
    #[default]
    On,
    /// It gave too many wrong answers, or none.
    Failing,
    /// It answered too late too often.
    Late,
    /// It is no faster than the primary.
    NoFaster {
        /// Mean time of its reads, in nanoseconds.
        ssd_ns: u64,
        /// Mean time of the primary's.
        primary_ns: u64,
    },
}

impl fmt::Display for SsdState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::On => f.write_str("on"),
            Self::Failing => f.write_str("off: the SSD fails"),
            Self::Late => f.write_str("off: the SSD answers too late"),
            Self::NoFaster { ssd_ns, primary_ns } => {
                let us = |ns: &u64| *ns as f64 / 1e3;
                let (ssd, primary) = (us(ssd_ns), us(primary_ns));
                write!(f, "off: the SSD takes {ssd:.0} µs for a read, the primary {primary:.0} µs")
            }
        }
    }
}

/// Weight of a wrong answer against a right one.
const WEIGHT: u64 = 16;
/// Number of wrong answers that switch the SSD off, if no right ones come in between.
const WRONG_MOST: u64 = 16;
/// Reads of either device before they are compared.
const COMPARED: u64 = 1024;

#[derive(Debug, Default)]
struct Times {
    sum_ns: AtomicU64,
    count: AtomicU64,
    /// Of the last comparison.
    mean_ns: AtomicU64,
}

impl Times {
    fn add(&self, ns: u64) {
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    fn mean_ns(&self) -> u64 {
        let count = self.count.load(Ordering::Relaxed);
        match count {
            0 => self.mean_ns.load(Ordering::Relaxed),
            _ => self.sum_ns.load(Ordering::Relaxed) / count,
        }
    }

    fn begin_anew(&self) {
        self.mean_ns.store(self.mean_ns(), Ordering::Relaxed);
        self.count.store(0, Ordering::Relaxed);
        self.sum_ns.store(0, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(super) struct Health {
    /// 0: on.
    off: AtomicU64,
    state: Mutex<SsdState>,
    wrong: AtomicU64,
    late: AtomicU64,
    ssd: Times,
    primary: Times,
    /// A page of a run, of the primary.
    run: Times,
    /// Reads of the primary since the opening.
    told: AtomicU64,
    compares: bool,
    goes_off: bool,
}

impl Health {
    pub(super) fn new(compares: bool, goes_off: bool) -> Self {
        Self {
            off: AtomicU64::new(0),
            state: Mutex::default(),
            wrong: AtomicU64::new(0),
            late: AtomicU64::new(0),
            ssd: Times::default(),
            primary: Times::default(),
            run: Times::default(),
            told: AtomicU64::new(0),
            compares,
            goes_off,
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.off.load(Ordering::Relaxed) == 0
    }

    pub(super) fn state(&self) -> SsdState {
        *self.state.lock()
    }

    pub(super) fn means_ns(&self) -> (u64, u64) {
        (self.ssd.mean_ns(), self.primary.mean_ns())
    }

    fn switch_off(&self, why: SsdState) -> bool {
        let mut state = self.state.lock();
        if *state != SsdState::On {
            return false;
        }
        *state = why;
        self.off.store(1, Ordering::Relaxed);
        true
    }

    fn counts_up(sum: &AtomicU64) -> bool {
        sum.fetch_add(WEIGHT, Ordering::Relaxed) + WEIGHT >= WEIGHT * WRONG_MOST
    }

    fn counts_down(sum: &AtomicU64) {
        let now = sum.load(Ordering::Relaxed);
        if now > 0 {
            // Two at once may count as one: nothing depends on it.
            sum.store(now - 1, Ordering::Relaxed);
        }
    }

    /// The SSD gave a page, in this time. `true`: the level has just gone off, here as below.
    pub(super) fn came(&self, ns: u64) -> bool {
        Self::counts_down(&self.wrong);
        Self::counts_down(&self.late);
        self.ssd.add(ns);
        self.ssd.count.load(Ordering::Relaxed) >= COMPARED && self.compare()
    }

    /// The SSD, or a write of it, failed.
    pub(super) fn failed(&self) -> bool {
        self.goes_off && Self::counts_up(&self.wrong) && self.switch_off(SsdState::Failing)
    }

    /// The SSD has not answered in time.
    pub(super) fn was_late(&self) -> bool {
        self.goes_off && Self::counts_up(&self.late) && self.switch_off(SsdState::Late)
    }

    /// The primary gave pages, in this time. Now and then says what a page on the SSD saves.
    pub(super) fn primary_came(&self, pages: usize, ns: u64) -> Option<Savings> {
        if pages > 1 {
            self.run.add(ns / pages as u64);
            return None;
        }
        self.primary.add(ns);
        let told = self.told.fetch_add(1, Ordering::Relaxed) + 1;
        told.is_multiple_of(COMPARED).then(|| {
            let (ssd_ns, primary_ns) = self.means_ns();
            let random_ns = primary_ns as f64 - ssd_ns as f64;
            // Where no runs were read, a page beside its neighbours counts as the paper's disk has it.
            let run_ns = self.run.mean_ns();
            let sequential_ns = if run_ns == 0 { random_ns / 100.0 } else { run_ns as f64 - ssd_ns as f64 };
            self.run.begin_anew();
            Savings { sequential_ns, random_ns }
        })
    }

    fn compare(&self) -> bool {
        if self.primary.count.load(Ordering::Relaxed) < COMPARED {
            return false;
        }
        let (ssd_ns, primary_ns) = self.means_ns();
        self.ssd.begin_anew();
        self.primary.begin_anew();
        self.compares
            && ssd_ns * 10 >= primary_ns * 9
            && self.switch_off(SsdState::NoFaster { ssd_ns, primary_ns })
    }
}
