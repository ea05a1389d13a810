//! Admissions become slots: a few writes at a time, on no reader's time.
//!
//! The thread waits for no device: writes are answered by whoever answers operations, so an SSD that never answers holds up
//! neither the thread nor the end of the level. Now and then the thread looks for reads that are late.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use thermocline_base::background::stand_back;
use thermocline_base::io::{Buffer, Completer, Completion, Driven, Job, Operation, Outcome};

use thermocline_base::sync::schedule_point;

use super::SsdLevel;
use crate::cache::Slot;
use crate::mutation::{self, Rule};
use crate::page;

/// Time after which the map is saved while pages come in: a level that ends without a word has an old map, at most of
/// this age or of so many other pages as a sixteenth of its slots, whichever came first.
const SAVE_EVERY: Duration = Duration::from_secs(30);
const SAVE_AFTER_SHARE: u64 = 16;
/// Not oftener than this, and not for more than a twentieth of the time.
const SAVE_LEAST: Duration = Duration::from_secs(1);
const SAVE_SHARE_OF_TIME: u64 = 20;
/// A wait for the map is looked at so often.
const WAITS: u32 = 50;
/// Time between two looks of the thread for late reads while there are any, at most; half of the time after which they are late is
/// enough.
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
struct Bell {
    rung: bool,
    closed: bool,
    /// The map is to be saved, and was.
    saves: bool,
    saved: bool,
}

/// The bell that the thread waits for.
#[derive(Clone, Debug, Default)]
pub(super) struct News(Arc<(Mutex<Bell>, Condvar)>);

impl News {
    fn change(&self, change: impl FnOnce(&mut Bell)) {
        change(&mut self.0.0.lock().unwrap_or_else(PoisonError::into_inner));
        self.0.1.notify_all();
    }

    /// There is something to write.
    pub(super) fn ring(&self) {
        self.change(|bell| bell.rung = true);
    }

    /// Has the map saved, and waits for that, so long at most.
    pub(super) fn save_and_wait(&self, at_most: Duration) {
        self.change(|bell| (bell.saves, bell.saved) = (true, false));
        let (bell, condition) = &*self.0;
        let mut bell = bell.lock().unwrap_or_else(PoisonError::into_inner);
        let mut waits = WAITS;
        while !bell.saved && !bell.closed && waits > 0 {
            bell = condition.wait_timeout(bell, at_most / WAITS).unwrap_or_else(PoisonError::into_inner).0;
            waits -= 1;
        }
    }

    /// Has the map saved, sooner or later.
    pub(super) fn save(&self) {
        self.change(|bell| bell.saves = true);
    }

    /// Is the map to be saved?
    fn wants_map(&self) -> bool {
        std::mem::take(&mut self.0.0.lock().unwrap_or_else(PoisonError::into_inner).saves)
    }

    /// Was it rung since the last look?
    #[cfg(test)]
    pub(super) fn take_ring(&self) -> bool {
        std::mem::take(&mut self.0.0.lock().unwrap_or_else(PoisonError::into_inner).rung)
    }

    /// The thread ends.
    pub(super) fn close(&self) {
        self.change(|bell| bell.closed = true);
    }

    /// Waits for news, or until it is time to look for late reads. `false`: the thread ends.
    fn wait(&self, at_most: Option<Duration>) -> bool {
        let (bell, condition) = &*self.0;
        let mut bell = bell.lock().unwrap_or_else(PoisonError::into_inner);
        while !bell.rung && !bell.closed && !bell.saves {
            match at_most {
                None => bell = condition.wait(bell).unwrap_or_else(PoisonError::into_inner),
                Some(time) => {
                    bell = condition.wait_timeout(bell, time).unwrap_or_else(PoisonError::into_inner).0;
                    break;
                }
            }
        }
        bell.rung = false;
        !bell.closed
    }
}

/// Starts the thread.
pub(super) fn start(level: &Arc<SsdLevel>) {
    let (news, weak) = (level.news.clone(), Arc::downgrade(level));
    let thread = std::thread::Builder::new().name("thermocline-ssd".into()).spawn(move || run(&news, &weak));
    match thread {
        Ok(thread) => *level.thread.lock() = Some(thread),
        // Nothing is admitted then, and nothing is late.
        Err(error) => tracing::error!(%error, "the SSD cache has no thread, and keeps nothing"),
    }
}

fn run(news: &News, level: &Weak<SsdLevel>) {
    stand_back();
    let mut look_every = None;
    let mut saved = Saved::default();
    while news.wait(Some(look_every.unwrap_or(SAVE_EVERY))) {
        let Some(level) = level.upgrade() else { return };
        level.expire();
        pump(&level);
        look_every = level.late.lock().is_watched().then(|| LOOK_EVERY.min(level.options.late_after / 2));
        let now_ns = level.options.clock.now_ns();
        let admissions = level.table.lock().counts.all_admitted();
        if news.wants_map() || saved.is_old(now_ns, admissions, u64::from(level.slots)) {
            if let Err(error) = level.save() {
                tracing::warn!(%error, "the map of the SSD cache was not saved; the former one stays");
            }
            let took_ns = level.options.clock.now_ns().saturating_sub(now_ns);
            saved = Saved { at_ns: now_ns, took_ns, admissions };
            news.change(|bell| bell.saved = true);
        }
    }
}

/// When the map was saved last.
#[derive(Clone, Copy, Debug, Default)]
struct Saved {
    at_ns: u64,
    took_ns: u64,
    /// Pages that had been admitted by then.
    admissions: u64,
}

impl Saved {
    /// Is it time to save it again?
    fn is_old(&self, now_ns: u64, admissions: u64, slots: u64) -> bool {
        let (since_ns, other) =
            (now_ns.saturating_sub(self.at_ns), admissions.saturating_sub(self.admissions));
        let least_ns = (SAVE_LEAST.as_nanos() as u64).max(self.took_ns.saturating_mul(SAVE_SHARE_OF_TIME));
        let is_late = since_ns >= SAVE_EVERY.as_nanos() as u64 && other > 0;
        since_ns >= least_ns && (is_late || other * SAVE_AFTER_SHARE >= slots.max(1))
    }
}

/// Begins writes, as many as may be under way. `false`: there was none to begin.
pub(super) fn pump(level: &Arc<SsdLevel>) -> bool {
    let mut begun = false;
    loop {
        let next = level.table.lock().next_write(level.options.writes_at_once, level.options.write_pages);
        let Some(write) = next else { return begun };
        begun = true;
        let (slot, page, numbers) = (write.slot, write.page, write.numbers);
        let job = WriteJob { level: Arc::clone(level), slot, page, numbers };
        let offset = level.offset_of(slot);
        // Others may come between: the model checker has to see that.
        schedule_point();
        let completion = level.file.submit(Operation::Write { offset, buffer: write.bytes.into() });
        Driven::new(job).start(completion);
    }
}

/// Writes pages of the primary. What is cached of them is void before the write begins, and what was read of them while it was
/// under way is void when it is answered.
pub(super) fn through(level: &Arc<SsdLevel>, first: u64, offset: u64, buffer: Buffer) -> Completion {
    let pages = first..first + (buffer.as_slice().len() / level.page_size.bytes()) as u64;
    let (completer, completion) = Completion::pending_with(&buffer);
    if mutation::on(Rule::SsdVoidsWrites) {
        level.void(pages.clone(), false);
    }
    let job = Overwrite { level: Arc::clone(level), pages, completer: Mutex::new(Some(completer)) };
    Driven::new(job).start(level.primary.file.submit(Operation::Write { offset, buffer }));
    completion
}

struct Overwrite {
    level: Arc<SsdLevel>,
    pages: Range<u64>,
    completer: Mutex<Option<Completer>>,
}

impl Job for Overwrite {
    fn answered(&self, outcome: Outcome) -> Option<Completion> {
        if mutation::on(Rule::SsdVoidsWrites) {
            self.level.void(self.pages.clone(), false);
        }
        if outcome.result.as_ref().is_ok_and(|bytes| *bytes == outcome.buffer.as_slice().len()) {
            self.level.offer_written(self.pages.start, outcome.buffer.as_slice());
        }
        let completer = self.completer.lock().unwrap_or_else(PoisonError::into_inner).take();
        completer.expect("a write is answered once").complete(outcome.result, outcome.buffer);
        None
    }
}

impl SsdLevel {
    /// Offers pages that the primary has got. Their writer was not answered yet, so they are what they were when it asked.
    fn offer_written(&self, first: u64, bytes: &[u8]) {
        if !self.options.admits_writes || !self.health.is_on() {
            return;
        }
        let mut waits = false;
        for (number, bytes) in (first..).zip(bytes.chunks_exact(self.page_size.bytes())) {
            if page::open(bytes, self.primary.seal, number, None).is_ok() {
                waits |= self.table.lock().admit_written(number, page::version_of(bytes), bytes);
            }
        }
        if waits {
            self.news.ring();
        }
    }
}

struct WriteJob {
    level: Arc<SsdLevel>,
    slot: Slot,
    page: u64,
    numbers: Vec<u64>,
}

impl Job for WriteJob {
    fn answered(&self, outcome: Outcome) -> Option<Completion> {
        let level = &self.level;
        let well = outcome.result.is_ok();
        let others = level.table.lock().written(self.slot, self.page, &self.numbers, well);
        if let Err(error) = outcome.result {
            if level.options.goes_off {
                tracing::warn!(%error, "a page was not written to the SSD cache");
            }
            if level.health.failed() {
                level.gone();
            }
        }
        if others {
            level.news.ring();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_saved_before_too_much_of_it_is_old() {
        const S: u64 = 1_000_000_000;
        let saved = Saved { at_ns: 100 * S, took_ns: S / 100, admissions: 5_000 };
        // (seconds since, pages that came in since, is it time)
        for (s, other, expected) in [
            (0, 9_000, false),
            (1, 999, false),
            (1, 1_000, true),
            (29, 999, false),
            (30, 1, true),
            (3_000, 0, false),
        ] {
            assert_eq!(saved.is_old((100 + s) * S, 5_000 + other, 16_000), expected, "{s} s, {other} pages");
        }
        // One that takes two seconds is saved every forty, however much comes in.
        let slow = Saved { took_ns: 2 * S, ..saved };
        assert!(!slow.is_old(139 * S, 900_000, 16_000) && slow.is_old(140 * S, 900_000, 16_000));
    }
}
