//! Which rows leave memory: hands that go round over the slots of the tables whose rows may, like those of a clock.
//!
//! ```text
//!   table 1   chunk 0 │ chunk 1 │ chunk 2        every table has its hand, and it is the turn of the one that is
//!                          ▲ hand                least far round: all come round at the same time
//!   table 2   chunk 0 │ chunk 1
//!                ▲ hand
//! ```
//!
//! A hand takes what is [cold enough](Mood): what was neither changed nor read for some time, nor is known to be hot. It
//! skips what cannot move, or would free nothing if it did: a row that an old snapshot sees stays in memory until that
//! snapshot goes, wherever the row is. What is skipped for that reason is counted, so that the governor knows what a
//! snapshot costs.
//!
//! When the hands have come on by a quarter of their way, and have found too little, what is young is what is younger; when
//! they have found much, what is older is young as well. So they take about the rows that have not been used for longest.

use std::collections::BTreeMap;
use std::sync::Arc;

use thermocline_base::ids::{CHUNK_SLOTS, RowId, TableId, Timestamp};

use super::warmth::Hot;
use crate::catalog::table::TableEntry;
use crate::cold::memo::is_system;
use crate::db::Inner;
use crate::hot::version::{Begin, Version};
use crate::index::hash_of;
use crate::row::KeyBuf;
use crate::statistics::entries_of;

/// Slots that are looked at under one pin.
const SLOTS_A_PIN: u32 = 512;
/// How far ahead of the hand the processor is asked for versions: a walk is nothing but cache misses otherwise.
const SLOTS_AHEAD: u32 = 16;
/// Slots that a hand passes before it may be another one's turn.
const SLOTS_A_TURN: u32 = 4096;
/// Slots that all hands pass in one round of the governor, at most.
const SLOTS_A_ROUND: u32 = 1 << 18;
/// One row of so many that are taken is little, and much: the hands are to come round often enough to find what has grown
/// old, and not so often that they find nothing.
const LITTLE: u64 = 32;
const ENOUGH: u64 = 12;
/// What a chunk that is not there counts.
const MISSING: u32 = 64;

/// How particular the hands are: what is young stays, and what is hot. The less they find, the less counts as young, and
/// then as hot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Mood(u8);

impl Default for Mood {
    fn default() -> Self {
        Self::USUAL
    }
}

impl Mood {
    /// What was committed or read no longer ago is young, in milliseconds; and the share of the bytes that may be hot, in
    /// thousandths.
    const ALL: [(u64, u64); 18] = [
        (80_000, 1000),
        (57_000, 1000),
        (40_000, 1000),
        (28_000, 1000),
        (20_000, 1000),
        (14_000, 1000),
        (10_000, 1000),
        (7_000, 1000),
        (5_000, 1000),
        (3_500, 1000),
        (2_000, 1000),
        (1_000, 1000),
        (500, 1000),
        (250, 1000),
        (100, 750),
        (0, 500),
        (0, 250),
        (0, 0),
    ];
    /// Where nothing is known yet, and calm comes by itself.
    const USUAL: Self = Self(8);
    /// Everything goes that can.
    pub(super) const DESPERATE: Self = Self(Self::ALL.len() as u8 - 1);

    /// What was committed or read no longer ago is young.
    pub(super) const fn young_ns(self) -> u64 {
        Self::ALL[self.0 as usize].0 * 1_000_000
    }

    /// Of the bytes that may be hot, how many are to be; 0: nothing is hot.
    pub(super) const fn hot_of(self, bytes: u64) -> u64 {
        bytes / 1000 * Self::ALL[self.0 as usize].1
    }

    fn hungrier(self) -> Self {
        Self(self.0 + 1).min(Self::DESPERATE)
    }

    fn calmer(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

/// What the hands go by.
pub(super) struct Rules<'a> {
    /// What began later is young.
    pub(super) young: Timestamp,
    /// So is what was read within that time before now.
    pub(super) used: Uses,
    /// Snapshots up to this one are held for long.
    pub(super) held: Option<Timestamp>,
    /// Who knows what is hot, and from which density of accesses on it is.
    pub(super) hot: Option<Hot<'a>>,
}

/// Tells what was read lately.
#[derive(Clone, Copy, Debug)]
pub(super) struct Uses {
    now: u8,
    /// Moments that count as lately.
    within: u8,
}

impl Uses {
    /// Length of a moment.
    const MOMENT_NS: u64 = 500_000_000;
    /// Moments that are told apart; 0 is none of them.
    const MOMENTS: u64 = 255;
    /// What was read longer ago is forgotten when a hand passes, before it looks as if it had been read just now. If no hand
    /// passes in that time, it does, once more.
    const FORGOTTEN: u8 = 200;

    /// The moment at a time.
    pub(super) fn moment(ns: u64) -> u8 {
        (ns / Self::MOMENT_NS % Self::MOMENTS) as u8 + 1
    }

    /// Those within so long before `now`.
    pub(super) fn within(young_ns: u64, now: u64) -> Self {
        let within = young_ns.div_ceil(Self::MOMENT_NS).min(u64::from(Self::FORGOTTEN));
        Self { now: Self::moment(now), within: within as u8 }
    }

    fn holds(self, version: Version) -> bool {
        let used = version.last_use();
        if used == 0 {
            return false;
        }
        let ago = (u64::from(self.now) + Self::MOMENTS - u64::from(used)) % Self::MOMENTS;
        if ago >= u64::from(Self::FORGOTTEN) {
            version.note_use(0);
            return false;
        }
        ago < u64::from(self.within)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Hand {
    /// How often it has come round.
    laps: u64,
    chunk: u32,
    slot: u32,
}

impl Hand {
    /// How far it has come, in times round a table of so many chunks.
    fn progress(self, chunks: u32) -> f64 {
        let chunk = f64::from(self.chunk) + f64::from(self.slot) / CHUNK_SLOTS as f64;
        self.laps as f64 + chunk / f64::from(chunks.max(1))
    }
}

/// Rows of one table that are to leave.
pub(super) struct Choice {
    pub(super) entry: Arc<TableEntry>,
    pub(super) rows: Vec<RowId>,
}

/// The hands of all tables.
#[derive(Debug, Default)]
pub(super) struct Hands {
    hands: BTreeMap<TableId, Hand>,
    /// What was found, too little for a batch.
    found: BTreeMap<TableId, Vec<RowId>>,
    pub(super) mood: Mood,
    /// Quarters of their way round that all hands have come.
    quarters: u64,
    /// Rows that were seen, and that were taken, in this quarter.
    seen: u64,
    taken: u64,
    /// Bytes that were skipped because an old snapshot sees them: of this time round, and of the last.
    held_bytes: u64,
    held_bytes_before: u64,
}

/// A table whose rows may leave.
struct Source {
    entry: Arc<TableEntry>,
    chunks: u32,
    /// Rows in memory.
    rows: u64,
}

impl Hands {
    /// Bytes that old snapshots keep in memory, about.
    pub(super) fn held_bytes(&self) -> u64 {
        self.held_bytes.max(self.held_bytes_before)
    }

    /// There is room again: what is warm may stay.
    pub(super) fn relax(&mut self) {
        if self.mood > Mood::USUAL {
            self.mood = self.mood.calmer();
        }
        (self.seen, self.taken) = (0, 0);
        self.found.clear();
    }

    /// Chooses up to `batches` of `rows` rows, and fewer rows where there are not so many.
    pub(super) fn choose(
        &mut self,
        inner: &Inner,
        rules: &Rules<'_>,
        batches: usize,
        rows: usize,
    ) -> Vec<Choice> {
        let sources = self.sources(inner);
        let rows_there: u64 = sources.iter().map(|source| source.rows).sum();
        let (mut choices, mut looked) = (Vec::new(), 0);
        while choices.len() < batches && looked < SLOTS_A_ROUND {
            let progress = |source: &&Source| self.hands[&source.entry.id].progress(source.chunks);
            let next = sources.iter().min_by(|a, b| progress(a).total_cmp(&progress(b)));
            let Some(source) = next else { break };
            if 4.0 * progress(&source) >= (self.quarters + 1) as f64 {
                self.turn();
            } else if self.taken > rows_there / 4 / ENOUGH {
                // So much as was wanted of the whole quarter.
                self.judge();
            }
            let (entry, mut found) = (&source.entry, self.found.remove(&source.entry.id).unwrap_or_default());
            let had = found.len();
            looked += self.walk(inner, entry, rules, rows, &mut found);
            self.taken += (found.len() - had) as u64;
            if found.len() >= rows {
                choices.push(Choice { entry: Arc::clone(entry), rows: found });
            } else if !found.is_empty() {
                self.found.insert(entry.id, found);
            }
        }
        if choices.is_empty() {
            // Better few than none.
            for source in &sources {
                let few = self.found.remove(&source.entry.id);
                choices.extend(few.map(|rows| Choice { entry: Arc::clone(&source.entry), rows }));
            }
        }
        choices
    }

    /// The tables whose rows may leave, each with a hand. A new one starts as far round as the last of the others.
    fn sources(&mut self, inner: &Inner) -> Vec<Source> {
        let guard = inner.epochs.pin();
        let leave = inner.catalog.all().into_iter().filter(|entry| !is_system(entry.id) && !entry.is_held());
        let sources: Vec<Source> = leave
            .filter_map(|entry| {
                let form = entry.form_pinned(&guard);
                let migrates = form.schema.tiering.migrates() && form.store.memory.used_bytes() > 0;
                let chunks = form.store.directory.len();
                let rows = entries_of(form);
                migrates.then_some(Source { entry, chunks, rows })
            })
            .collect();
        let is_there = |id: &TableId| sources.iter().any(|source| source.entry.id == *id);
        self.hands.retain(|id, _| is_there(id));
        self.found.retain(|id, _| is_there(id));
        for source in &sources {
            self.hands.entry(source.entry.id).or_insert(Hand { laps: self.quarters / 4, chunk: 0, slot: 0 });
        }
        sources
    }

    /// The hands have come on by a quarter.
    fn turn(&mut self) {
        self.judge();
        self.quarters += 1;
        if self.quarters.is_multiple_of(4) {
            self.held_bytes_before = std::mem::take(&mut self.held_bytes);
        }
    }

    /// If the way since the last judgement brought little of what is there, the hands take more from now on; if it brought
    /// much, less.
    fn judge(&mut self) {
        if self.taken < self.seen / LITTLE {
            self.mood = self.mood.hungrier();
        } else if self.taken > self.seen / ENOUGH {
            self.mood = self.mood.calmer();
        }
        (self.seen, self.taken) = (0, 0);
    }

    /// Moves the hand of one table on, until its turn is over, or there are `count` rows in `found`. How far it went.
    fn walk(
        &mut self,
        inner: &Inner,
        entry: &TableEntry,
        rules: &Rules<'_>,
        count: usize,
        found: &mut Vec<RowId>,
    ) -> u32 {
        let mut hand = self.hands.get(&entry.id).copied().unwrap_or_default();
        let (mut looked, mut key) = (0, KeyBuf::new());
        while found.len() < count && looked < SLOTS_A_TURN {
            let guard = inner.epochs.pin();
            let form = entry.form_pinned(&guard);
            if hand.chunk >= form.store.directory.len() {
                hand = Hand { laps: hand.laps + 1, chunk: 0, slot: 0 };
                looked += MISSING;
                break;
            }
            let used = form.store.directory.get(hand.chunk, &guard).map_or(0, |chunk| chunk.used());
            if hand.slot >= used {
                (hand.chunk, hand.slot) = (hand.chunk + 1, 0);
                looked += if used == 0 { MISSING } else { 0 };
                continue;
            }
            let end = used.min(hand.slot + SLOTS_A_PIN);
            let row_of =
                |slot: u32| RowId::new(hand.chunk, u16::try_from(slot).expect("slot numbers have 16 bits"));
            let directory = &form.store.directory;
            (hand.slot..end.min(hand.slot + SLOTS_AHEAD))
                .for_each(|slot| directory.approach(row_of(slot), &guard));
            while hand.slot < end && found.len() < count {
                if hand.slot + SLOTS_AHEAD < end {
                    directory.approach(row_of(hand.slot + SLOTS_AHEAD), &guard);
                }
                let row = row_of(hand.slot);
                let newest = directory.newest(row, &guard);
                hand.slot += 1;
                looked += 1;
                let Some(version) = newest else { continue };
                let Begin::At(begin) = version.begin() else { continue };
                if version.is_tombstone() {
                    continue;
                }
                self.seen += 1;
                if rules.held.is_some_and(|held| begin <= held) {
                    self.held_bytes += version.cell_bytes() as u64;
                    continue;
                }
                if begin > rules.young || rules.used.holds(version) {
                    continue;
                }
                if let Some(hot) = rules.hot {
                    form.primary().key_of(form, version, &mut key);
                    if hot.holds(entry.id, hash_of(&key), version.len() as u32) {
                        continue;
                    }
                }
                found.push(row);
            }
        }
        if let Some(kept) = self.hands.get_mut(&entry.id) {
            *kept = hand;
        }
        looked
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use thermocline_base::ids::RowId;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// What was read within the time is young, whenever that was; what was read long ago is forgotten in time.
    #[test]
    fn what_was_read_lately_is_known() {
        let mut cell = [0_u64; 8];
        let cell = NonNull::new(cell.as_mut_ptr()).expect("it is there").cast();
        let (begin, row) = (Begin::At(Timestamp(1)), RowId::new(3, 4));
        // SAFETY: the cell is large enough, aligned and ours.
        let version = unsafe { Version::create(cell, begin, 0, row, false, b"row", b"") };
        for read in (0..300 * SECOND).step_by(700_000_000) {
            version.note_use(Uses::moment(read));
            let holds = |young, ago| Uses::within(young, read + ago).holds(version);
            assert!(holds(5 * SECOND, 0) && holds(5 * SECOND, 4 * SECOND), "{read}");
            assert!(!holds(5 * SECOND, 6 * SECOND) && !holds(5 * SECOND, 90 * SECOND), "{read}");
            assert!(holds(80 * SECOND, 79 * SECOND) && !holds(0, 0), "{read}");
            assert!(!holds(80 * SECOND, 101 * SECOND), "{read}");
            assert_eq!(version.last_use(), 0, "it is forgotten before its moment comes again");
        }
        assert_eq!((version.begin(), version.row_id(), version.row()), (begin, row, &b"row"[..]));
    }
}
