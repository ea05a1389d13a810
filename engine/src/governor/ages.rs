//! How old snapshots are, and which timestamp was given when.
//!
//! A snapshot is a timestamp, and tells no time. So the governor notes now and then which timestamp the clock has
//! reached, for the last seconds; and of each snapshot that it meets when it was taken, for as long as that is open,
//! however long that is.

use std::collections::VecDeque;

use thermocline_base::ids::Timestamp;

use crate::txn::registry::Registry;

/// How exactly it is known which timestamp was given when.
const STEP_NS: u64 = 20_000_000;
/// Steps that are remembered: about as long as uses of rows are ([`crate::hot::reuse`]).
const STEPS: usize = 4500;

/// In that time what is known of how long snapshots stay open counts for half.
const LASTING_HALF_NS: u64 = 5_000_000_000;
/// Of all snapshots it is expected that they stay open for so long; and of none, for longer.
const LASTING_NS: u64 = 300_000_000;
const LASTING_NS_MAX: u64 = 5_000_000_000;

/// A snapshot that is open.
#[derive(Clone, Copy, Debug)]
struct Open {
    snapshot: Timestamp,
    taken_ns: u64,
    /// How long it stays open says something of others.
    is_usual: bool,
}

/// A snapshot that was open at the last look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Held {
    /// Its transaction's place.
    pub(super) place: u32,
    pub(super) snapshot: Timestamp,
    /// When it was taken, at the latest.
    pub(super) taken_ns: u64,
}

/// What is known of times.
#[derive(Debug, Default)]
pub(super) struct Ages {
    /// Clock readings of the past, and when they were taken.
    timeline: VecDeque<(u64, Timestamp)>,
    /// The snapshots that were open at the last look, by their places.
    open: Vec<Option<Open>>,
    /// How long those stayed open that have ended, the longest of the last seconds above all; and when that was.
    lasting_ns: u64,
    looked_ns: u64,
}

impl Ages {
    /// Notes the time, and which snapshots are open now.
    pub(super) fn look(&mut self, registry: &Registry, now: u64) {
        let clock = registry.clock.now();
        if self.timeline.back().is_none_or(|(at, _)| now.saturating_sub(*at) >= STEP_NS) {
            self.timeline.push_back((now, clock));
            if self.timeline.len() > STEPS {
                self.timeline.pop_front();
            }
        }
        let passed = now.saturating_sub(std::mem::replace(&mut self.looked_ns, now));
        self.lasting_ns =
            (self.lasting_ns as f64 * 0.5_f64.powf(passed as f64 / LASTING_HALF_NS as f64)) as u64;
        let mut open = vec![None; self.open.len()];
        for (place, snapshot) in registry.snapshots() {
            let place = place as usize;
            if place >= open.len() {
                open.resize(place + 1, None);
            }
            let known = self.open.get(place).copied().flatten().filter(|known| known.snapshot == snapshot);
            open[place] = Some(known.unwrap_or_else(|| {
                let taken_ns = self.time_of(snapshot, now);
                Open { snapshot, taken_ns, is_usual: true }
            }));
        }
        let of_before = std::mem::replace(&mut self.open, open);
        for (before, now_open) in of_before.into_iter().zip(&self.open) {
            if let Some(before) = before
                && before.is_usual
                && now_open.is_none_or(|now_open| now_open.snapshot != before.snapshot)
            {
                self.lasting_ns = self.lasting_ns.max(now.saturating_sub(before.taken_ns));
            }
        }
    }

    /// The snapshot in this place was cancelled, or its transaction waits for memory: how long it stays open says nothing of
    /// others. (If waiting made it longer until snapshots like it are held, those who wait would wait for each other.)
    pub(super) fn excuse(&mut self, place: u32) {
        if let Some(Some(open)) = self.open.get_mut(place as usize) {
            open.is_usual = false;
        }
    }

    /// A snapshot that has been open for longer will not end soon: none of the last seconds was open for half as long.
    pub(super) fn lasting_ns(&self) -> u64 {
        (2 * self.lasting_ns).clamp(LASTING_NS, LASTING_NS_MAX)
    }

    /// The last known reading of the clock at that time or before.
    pub(super) fn timestamp_of(&self, at: u64) -> Option<Timestamp> {
        let after = self.timeline.partition_point(|(time, _)| *time <= at);
        after.checked_sub(1).map(|known| self.timeline[known].1)
    }

    /// When a timestamp was the newest one, at the latest.
    fn time_of(&self, timestamp: Timestamp, now: u64) -> u64 {
        let after = self.timeline.partition_point(|(_, clock)| *clock < timestamp);
        self.timeline.get(after).map_or(now, |(time, _)| *time)
    }

    /// The snapshots that were open at the last look.
    pub(super) fn open(&self) -> impl Iterator<Item = Held> {
        let open = self.open.iter().zip(0..).filter_map(|(open, place)| open.map(|open| (place, open)));
        open.map(|(place, open)| Held { place, snapshot: open.snapshot, taken_ns: open.taken_ns })
    }

    /// The oldest of them.
    pub(super) fn oldest(&self) -> Option<Held> {
        self.open().min_by_key(|held| held.snapshot)
    }

    /// The newest of the snapshots that were taken before `at`.
    pub(super) fn newest_before(&self, at: u64) -> Option<Timestamp> {
        let old = self.open.iter().flatten().filter(|open| open.taken_ns < at);
        old.map(|open| open.snapshot).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A snapshot is as old as it is, also when the timeline has long forgotten when it was taken.
    #[test]
    fn the_age_of_a_snapshot_is_known_however_old_it_is() {
        const SECOND: u64 = 1_000_000_000;
        let registry = Registry::new(Timestamp(100));
        let place = registry.take_place().expect("a place");
        let mut ages = Ages::default();
        ages.look(&registry, SECOND);
        registry.clock.tick();
        let snapshot = registry.place(place).take_snapshot(&registry.clock);
        for step in 0..6000 {
            registry.clock.tick();
            ages.look(&registry, SECOND + (step + 1) * STEP_NS);
        }
        let oldest = ages.oldest().expect("it is open");
        assert_eq!((oldest.place, oldest.snapshot), (place, snapshot));
        assert!((SECOND..=SECOND + 2 * STEP_NS).contains(&oldest.taken_ns), "{oldest:?}");
        assert_eq!(ages.newest_before(2 * SECOND), Some(snapshot));
        assert_eq!(ages.newest_before(SECOND), None);
        // Another snapshot in the same place is young.
        registry.place(place).drop_snapshot();
        registry.clock.tick();
        let young = registry.place(place).take_snapshot(&registry.clock);
        ages.look(&registry, 100 * SECOND);
        assert_eq!(ages.oldest(), Some(Held { place, snapshot: young, taken_ns: 100 * SECOND }));
        registry.place(place).drop_snapshot();
        ages.look(&registry, 101 * SECOND);
        assert_eq!(ages.oldest(), None);
    }

    /// A snapshot counts as held when it is much older than those of the last seconds became.
    #[test]
    fn how_long_snapshots_stay_open_is_known_by_those_that_have_ended() {
        const MS: u64 = 1_000_000;
        let registry = Registry::new(Timestamp(100));
        let mut ages = Ages::default();
        let mut now = 1000 * MS;
        let mut hold = |ages: &mut Ages, ms: u64, cancels: bool| {
            let place = registry.take_place().expect("a place");
            registry.place(place).take_snapshot(&registry.clock);
            for _ in 0..=ms / 10 {
                registry.clock.tick();
                ages.look(&registry, now);
                now += 10 * MS;
            }
            if cancels {
                ages.excuse(place);
                // It may be there still when somebody looks.
                ages.look(&registry, now);
            }
            registry.place(place).drop_snapshot();
            registry.give_place(place);
            ages.look(&registry, now);
            ages.lasting_ns() / MS
        };
        // Short ones are all alike.
        assert_eq!(hold(&mut ages, 20, false), LASTING_NS / MS);
        let after_one_of_a_second = hold(&mut ages, 1000, false);
        assert!((2000..=2100).contains(&after_one_of_a_second), "{after_one_of_a_second}");
        assert_eq!(
            hold(&mut ages, 10_000, false),
            LASTING_NS_MAX / MS,
            "nobody holds up the others for ever"
        );
        // In time that is forgotten; and one that was cancelled says nothing.
        for _ in 0..200 {
            hold(&mut ages, 200, false);
        }
        let after_short_ones = ages.lasting_ns() / MS;
        assert!((400..=450).contains(&after_short_ones), "{after_short_ones}");
        let mut lasting = after_short_ones;
        for _ in 0..3 {
            lasting = hold(&mut ages, 10_000, true);
        }
        assert!(lasting <= after_short_ones, "{lasting}");
    }
}
