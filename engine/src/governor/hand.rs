//! Which rows leave memory: hands that go round over the slots of the tables whose rows may, like those of a clock.
//!
//! ```text
//!   table 1   chunk 0 │ chunk 1 │ chunk 2        every table has its hand, and it is the turn of the one that is
//!                          ▲ hand                least far round: all come round at the same time
//!   table 2   chunk 0 │ chunk 1
//!                ▲ hand
//! ```
//!
//! A hand takes what is [cold enough](Mood): rows of those tables and ages whose uses are rarest for their bytes
//! ([`crate::hot::reuse`]), unless they are known to be hot. It skips what cannot move, or would free nothing if it did: a row
//! that an old snapshot sees stays in memory until that snapshot goes, wherever the row is. What is skipped for that reason
//! is counted, so that the governor knows what a snapshot costs.
//!
//! When the hands have come on by a quarter of their way, and have found too little, a larger share of all rows is to leave;
//! when they have found much, a smaller one.

use std::collections::BTreeMap;
use std::sync::Arc;

use thermocline_base::epoch::Guard;
use thermocline_base::ids::{CHUNK_SLOTS, RowId, TableId, Timestamp};

use crate::catalog::table::{TableCounters, TableEntry, TableForm};
use crate::hot::chunk::Found;
use crate::hot::reuse::{self, CLASSES, Census, Leaving, Moment, Planned};
use crate::hot::version::{Begin, HEADER_BYTES, Version};
use crate::index::hash_of;
use crate::ops::memory::memories_of;
use crate::pressure::Hot;
use crate::row::KeyBuf;
use crate::schema::Tiering;
use crate::schema::is_internal;
use crate::session::db::Inner;

/// Slots that are looked at under one pin.
const SLOTS_A_PIN: u32 = 512;
/// How far ahead of the hand the processor is asked for versions: a walk is nothing but cache misses otherwise.
const SLOTS_AHEAD: u32 = 16;
/// Slots that a hand passes before it may be another one's turn.
const SLOTS_A_TURN: u32 = 4096;
/// Rows that go over to the paged side together.
const PAGED_ROWS: usize = 4096;
/// Slots that all hands pass in one round of the governor, at most.
const SLOTS_A_ROUND: u32 = 1 << 18;
/// One row of so many that are taken is little, and much: the hands are to come round often enough to find what has grown
/// old, and not so often that they find nothing.
const LITTLE: u64 = 32;
const ENOUGH: u64 = 12;
/// What a chunk that is not there counts.
const MISSING: u32 = 64;
/// Time between two plans.
const PLANNING_NS: u64 = 100_000_000;
/// As long as nothing is known, what is of this class or older leaves: 4 s.
const UNPLANNED: usize = 6;

/// How particular the hands are: what is dense in uses stays, and what is hot. The less they find, the more is to leave.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Mood(u8);

impl Default for Mood {
    fn default() -> Self {
        Self::USUAL
    }
}

impl Mood {
    /// The share of all rows' bytes that may leave, in thousandths; what was committed no longer ago stays all the same, in
    /// milliseconds; and the share of the bytes that may be hot, in thousandths.
    const ALL: [(u16, u64, u64); 20] = [
        (10, 500, 1000),
        (15, 500, 1000),
        (20, 500, 1000),
        (30, 500, 1000),
        (45, 500, 1000),
        (60, 500, 1000),
        (80, 500, 1000),
        (110, 500, 1000),
        (160, 500, 1000),
        (220, 500, 1000),
        (320, 500, 1000),
        (450, 500, 1000),
        (650, 500, 1000),
        (850, 500, 1000),
        (1000, 500, 1000),
        (1000, 250, 1000),
        (1000, 100, 750),
        (1000, 0, 500),
        (1000, 0, 250),
        (1000, 0, 0),
    ];
    /// Where nothing is known yet, and calm comes by itself.
    const USUAL: Self = Self(5);
    /// Everything goes that can.
    pub(super) const DESPERATE: Self = Self(Self::ALL.len() as u8 - 1);

    /// The share of all rows' bytes that may leave.
    fn share(self) -> f64 {
        f64::from(Self::ALL[self.0 as usize].0) / 1000.0
    }

    /// What was committed no longer ago stays.
    pub(super) const fn young_ns(self) -> u64 {
        Self::ALL[self.0 as usize].1 * 1_000_000
    }

    /// Of the bytes that may be hot, how many are to be; 0: nothing is hot.
    pub(super) const fn hot_of(self, bytes: u64) -> u64 {
        bytes / 1000 * Self::ALL[self.0 as usize].2
    }

    /// Do frozen rows leave, too, one by one? It is a last resort: their block takes as much as before until all have left.
    fn takes_frozen(self) -> bool {
        Self::ALL[self.0 as usize].0 == 1000
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
    pub(super) now_ns: u64,
    /// What began later stays.
    pub(super) young: Timestamp,
    /// What began then or before is of this class or an older one; of the first all are.
    pub(super) begins: [Timestamp; CLASSES],
    /// What leaves of each table, instead of what is planned.
    pub(super) leaving: Option<Leaving>,
    /// Snapshots up to this one are held for long.
    pub(super) held: Option<Timestamp>,
    /// Who knows what is hot, and from which density of accesses on it is.
    pub(super) hot: Option<Hot<'a>>,
}

impl Rules<'_> {
    /// How old a version is.
    #[inline]
    fn class(&self, version: Version, begin: Timestamp) -> usize {
        let by_use = Moment::at(self.now_ns).class(version).unwrap_or(CLASSES - 1);
        // It is as young as its last use or its beginning, whichever was later.
        let by_begin = self.begins[1..=by_use].iter().take_while(|begins| begin <= **begins).count();
        by_begin.min(by_use)
    }
}

/// How far a hand has come.
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
    /// They go over to the paged side.
    pub(super) paged: bool,
    pub(super) rows: Vec<RowId>,
}

/// A table's hand, and what it knows.
#[derive(Debug)]
struct OfTable {
    hand: Hand,
    census: Census,
    leaving: Leaving,
    /// What was found, too little for a batch.
    found: Gathered,
}

/// Rows that are to leave together.
#[derive(Debug, Default)]
struct Gathered {
    rows: Vec<RowId>,
    /// Bytes of their versions.
    bytes: u64,
}

impl Gathered {
    fn clear(&mut self) {
        self.rows.clear();
        self.bytes = 0;
    }
}

/// The size of a choice: batches, and the rows and bytes that make one full.
#[derive(Clone, Copy, Debug)]
pub(super) struct Portion {
    pub(super) batches: usize,
    /// Rows of a batch, at most.
    pub(super) rows: usize,
    /// Bytes of all batches that are copied: more is not begun, but for the last row of each batch.
    pub(super) bytes: u64,
}

impl Portion {
    /// Is a batch full?
    fn is_full(self, gathered: &Gathered) -> bool {
        gathered.rows.len() >= self.rows || gathered.bytes >= self.bytes / self.batches as u64
    }
}

/// The hands of all tables.
#[derive(Debug, Default)]
pub(super) struct Hands {
    hands: BTreeMap<TableId, OfTable>,
    pub(super) mood: Mood,
    /// When it was planned what leaves, and for which mood.
    planned: Option<(u64, Mood)>,
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
    /// Bytes of a row that leaving frees: with its entries, unless it goes over to the paged side.
    row_bytes: f64,
    /// Its rows go over to the paged side.
    paged: bool,
    counters: Arc<TableCounters>,
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
        self.hands.values_mut().for_each(|of| of.found.clear());
    }

    /// Chooses so many rows, and fewer where there are not so many.
    pub(super) fn choose(&mut self, inner: &Inner, rules: &Rules<'_>, portion: Portion) -> Vec<Choice> {
        let sources = self.sources(inner);
        self.plan(&sources, rules.now_ns);
        let rows_there: u64 = sources.iter().map(|source| source.rows).sum();
        let (mut choices, mut looked, mut bytes) = (Vec::new(), 0, 0);
        while choices.len() < portion.batches && bytes < portion.bytes && looked < SLOTS_A_ROUND {
            let progress = |source: &&Source| self.hands[&source.entry.id].hand.progress(source.chunks);
            let next = sources.iter().min_by(|a, b| progress(a).total_cmp(&progress(b)));
            let Some(source) = next else { break };
            if 4.0 * progress(&source) >= (self.quarters + 1) as f64 {
                self.turn();
            } else if self.taken > rows_there / 4 / ENOUGH {
                // So much as was wanted of the whole quarter.
                self.judge();
            }
            let (entry, paged) = (&source.entry, source.paged);
            // What goes over is written in long runs, from where it stands.
            let portion = match paged {
                true => Portion { rows: portion.rows.max(PAGED_ROWS), bytes: u64::MAX, ..portion },
                false => portion,
            };
            looked += self.walk(inner, entry, paged, rules, portion);
            let found = &mut self.hands.get_mut(&entry.id).expect("every source has one").found;
            if portion.is_full(found) {
                let Gathered { rows, bytes: of_rows } = std::mem::take(found);
                bytes += if paged { 0 } else { of_rows };
                choices.push(Choice { entry: Arc::clone(entry), paged, rows });
            }
        }
        if choices.is_empty() {
            // Better few than none.
            for source in &sources {
                let few = self.hands.get_mut(&source.entry.id).map(|of| std::mem::take(&mut of.found).rows);
                let few = few.filter(|rows| !rows.is_empty());
                choices.extend(few.map(|rows| Choice {
                    entry: Arc::clone(&source.entry),
                    paged: source.paged,
                    rows,
                }));
            }
        }
        choices
    }

    /// The tables whose rows may leave, each with a hand. A new one starts as far round as the last of the others.
    fn sources(&mut self, inner: &Inner) -> Vec<Source> {
        let guard = inner.epochs.pin();
        let leave =
            inner.catalog.all().into_iter().filter(|entry| !is_internal(entry.id) && !entry.is_held());
        let sources: Vec<Source> = leave
            .filter_map(|entry| {
                let form = entry.form_pinned(&guard);
                let migrates = form.schema.row_tiering().goes_away();
                let chunks = form.store.directory.len();
                let rows = form.primary().len();
                let migrates = migrates && rows > 0;
                let paged = form.schema.row_tiering() == Tiering::Paged;
                let (row_bytes, counters) =
                    (row_bytes(form, rows, paged, &guard), Arc::clone(&form.counters));
                migrates.then_some(Source { entry, chunks, rows, row_bytes, paged, counters })
            })
            .collect();
        let is_there = |id: &TableId| sources.iter().any(|source| source.entry.id == *id);
        self.hands.retain(|id, _| is_there(id));
        for source in &sources {
            self.hands.entry(source.entry.id).or_insert_with(|| OfTable {
                hand: Hand { laps: self.quarters / 4, chunk: 0, slot: 0 },
                census: Census::new(&source.counters.reuse),
                leaving: Leaving::from(UNPLANNED),
                found: Gathered::default(),
            });
        }
        sources
    }

    /// Plans which rows leave, now and then.
    fn plan(&mut self, sources: &[Source], now: u64) {
        let passed = self.planned.map_or(0, |(at, _)| now.saturating_sub(at));
        if self.planned.is_some_and(|(_, mood)| passed < PLANNING_NS && mood == self.mood) {
            return;
        }
        self.planned = Some((now, self.mood));
        for source in sources {
            let of = self.hands.get_mut(&source.entry.id).expect("every source has one");
            of.census.count(&source.counters.reuse, passed as f64 / 1e9);
        }
        let tables: Vec<Planned<'_>> = sources
            .iter()
            .map(|source| Planned {
                table: source.entry.id,
                census: &self.hands[&source.entry.id].census,
                row_bytes: source.row_bytes,
            })
            .collect();
        for (table, leaving) in reuse::plan(&tables, self.mood.share()) {
            self.hands.get_mut(&table).expect("every source has one").leaving = leaving;
        }
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

    /// Moves the hand of one table on, until its turn is over, or it has found a batch. How far it went.
    fn walk(
        &mut self,
        inner: &Inner,
        entry: &TableEntry,
        paged: bool,
        rules: &Rules<'_>,
        portion: Portion,
    ) -> u32 {
        let OfTable { hand: kept, census, leaving, found } =
            self.hands.get_mut(&entry.id).expect("every source has one");
        let (mut hand, leaving) = (*kept, rules.leaving.unwrap_or(*leaving));
        let (mut looked, mut key, had) = (0, KeyBuf::new(), found.rows.len());
        let mut chunks = 0;
        while !portion.is_full(found) && looked < SLOTS_A_TURN {
            let guard = inner.epochs.pin();
            let form = entry.form_pinned(&guard);
            chunks = form.store.directory.len();
            if hand.chunk >= chunks {
                hand = Hand { laps: hand.laps + 1, chunk: 0, slot: 0 };
                looked += MISSING;
                break;
            }
            let chunk = form.store.directory.get(hand.chunk, &guard);
            let used = chunk.map_or(0, |chunk| chunk.used());
            if hand.slot >= used {
                (hand.chunk, hand.slot) = (hand.chunk + 1, 0);
                looked += if used == 0 { MISSING } else { 0 };
                continue;
            }
            let end = used.min(hand.slot + SLOTS_A_PIN);
            let row_of =
                |slot: u32| RowId::new(hand.chunk, u16::try_from(slot).expect("slot numbers have 16 bits"));
            let directory = &form.store.directory;
            let Some(chunk) = chunk else { unreachable!("a chunk with slots in use is there") };
            (hand.slot..end.min(hand.slot + SLOTS_AHEAD))
                .for_each(|slot| chunk.approach(row_of(slot).slot(), &guard));
            while hand.slot < end && !portion.is_full(found) {
                let row = row_of(hand.slot);
                if hand.slot + SLOTS_AHEAD < end {
                    chunk.approach(row_of(hand.slot + SLOTS_AHEAD).slot(), &guard);
                }
                let (word, slots) = chunk.look_far(row.slot(), &guard);
                looked += 1;
                match word {
                    Found::Newest(_) | Found::Moved => hand.slot += 1,
                    // What is on the paged side already gains nothing.
                    Found::Frozen(_) if self.mood.takes_frozen() && !paged => hand.slot += 1,
                    Found::Frozen(_) | Found::Left(_) | Found::Empty => {
                        hand.slot += slots;
                        continue;
                    }
                }
                let _frame = guard.frame();
                // On the paged side, of a table that is paged no longer, a row that cannot be read stays where it is.
                let Ok(Some(version)) = directory.newest_now(row, &guard) else { continue };
                let Begin::At(begin) = version.begin() else { continue };
                if version.is_tombstone() {
                    continue;
                }
                self.seen += 1;
                let class = rules.class(version, begin);
                census.see(class);
                if rules.held.is_some_and(|held| begin <= held) {
                    self.held_bytes += version.cell_bytes() as u64;
                    continue;
                }
                if begin > rules.young || !leaving.takes(class, row, hand.laps) {
                    continue;
                }
                if let Some(hot) = rules.hot {
                    form.primary().key_of(form, version, &mut key);
                    if hot.holds(entry.id, hash_of(&key), version.len() as u32) {
                        continue;
                    }
                }
                found.rows.push(row);
                found.bytes += version.len() as u64;
            }
        }
        census.come_on(hand.progress(chunks) - kept.progress(chunks));
        *kept = hand;
        self.taken += (found.rows.len() - had) as u64;
        looked
    }
}

/// Bytes that a row of a table frees when it goes: with its slot and its entries, which stay when it goes over to the paged side.
fn row_bytes(form: &TableForm, rows: u64, paged: bool, guard: &Guard<'_>) -> f64 {
    let (mut bytes, mut rows) = (0, rows);
    if paged {
        bytes = form.store.memory.used_bytes();
        let directory = &form.store.directory;
        let chunks = (0..directory.len()).filter_map(|number| directory.get(number, guard));
        let blocks = chunks.flat_map(|chunk| chunk.blocks(guard));
        rows = rows.saturating_sub(blocks.map(|block| u64::from(block.live())).sum());
    } else {
        memories_of(form, &mut |memory| bytes += memory.used_bytes());
    }
    (bytes as f64 / rows.max(1) as f64).max(HEADER_BYTES as f64)
}
