//! How soon rows are used again, table by table, and which of them are worth their memory.
//!
//! Rows leave memory by how long ago they were used last; but that says something else of each table. An order line is
//! read for a second after it was written, and once more when it is delivered; then never. A row of STOCK that nobody
//! has wanted for ten seconds may well be wanted in the next. So for each table is counted
//!
//! - how many rows of each *age class* are used again ([`Reuse`], by sessions as they use them), and
//! - how many rows of each are there ([`Census`], by the hands as they pass).
//!
//! Uses divided by rows and time are the rate at which a row of that age is used. From all rates of a table follows, for
//! each age, how many uses a second are won by keeping a row of it for the best time from now on: until the next class
//! ends, or the one after it, and so on. So an order line stays that is about to be delivered, though nobody uses it at
//! the moment. Divided by the bytes of a row with its entries that is the *density* of uses, and what is least dense leaves
//! first ([`plan`]): tables and ages are compared in one order, and large rows leave before small ones that are used as
//! often. (The idea is that of hit density, which caches of objects know; here classes of age and table stand for it.)
//!
//! A use of a cold row does not cost the same everywhere. The ten lines of an order lie beside each other, and come with one
//! page, or none; rows of STOCK take a page each. So uses are weighed by how many of the table's cold reads wait for the
//! device.
//!
//! Rates of ages are only known as long as some rows grow so old. So one row in [`EXPLORERS`] is taken for younger than
//! it is. Where little is known, a row is expected to be used again within a few times its age, and no more often than
//! when it was younger; so tables of which nothing is known lose what was used least lately.

use std::collections::BTreeMap;

use thermocline_base::ids::{RowId, TableId};
use thermocline_base::sync::{AtomicU64, Ordering};

use crate::hot::version::Version;

/// Age classes.
pub(crate) const CLASSES: usize = 16;
/// Moments after which each begins.
const BEGINS: [u8; CLASSES] = [0, 1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 90, 128, 160];
/// What is older than the last of them was used so long ago, about.
const LAST_SECONDS: f64 = 100.0;
/// Length of a moment.
pub(crate) const MOMENT_NS: u64 = 500_000_000;
/// Moments that are told apart; 0 is none of them.
const MOMENTS: u64 = 255;
/// What was used longer ago is forgotten when a hand passes, before it looks as if it had been used just now. If no hand
/// passes in that time, it does, once more.
const FORGOTTEN: u8 = 200;
/// One row in so many is taken for so many classes younger.
const EXPLORERS: u64 = 64;
pub(crate) const EXPLORED: usize = 4;
/// What is expected of rows of which nothing is known: to be used so many times in the time that has passed since they were
/// used, and so many uses seen weigh as much.
const EXPECTED: f64 = 0.25;
const EXPECTED_WEIGHT: f64 = 4.0;
/// What a read of the device costs, compared with a cold row for which none is needed: processor time, and waiting. How many
/// cold rows need one is expected to be all, until so many are seen.
const DEVICE_COST: f64 = 4.0;
const COST_WEIGHT: f64 = 64.0;
/// In that time what was seen counts for half.
const HALF_LIFE: f64 = 20.0;
/// A share that is all.
pub(crate) const ALL: u16 = 256;

/// The class of each age in moments.
static CLASS_OF: [u8; 256] = {
    let mut classes = [0; 256];
    let (mut moment, mut class) = (0, 0);
    while moment < classes.len() {
        while class + 1 < CLASSES && BEGINS[class + 1] as usize <= moment {
            class += 1;
        }
        classes[moment] = class as u8;
        moment += 1;
    }
    classes
};

/// Half a second, as rows are marked with it. `Moment(0)` is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Moment(pub(crate) u8);

impl Moment {
    /// The moment at a time.
    pub(crate) fn at(ns: u64) -> Self {
        Self((ns / MOMENT_NS % MOMENTS) as u8 + 1)
    }

    /// The class of a version, by its last use before this moment. `None`: that is not known. Forgets a use that was too
    /// long ago.
    #[inline]
    pub(crate) fn class(self, version: Version) -> Option<usize> {
        let used = version.last_use();
        if used == 0 {
            return None;
        }
        let ago = (u64::from(self.0) + MOMENTS - u64::from(used)) % MOMENTS;
        if ago >= u64::from(FORGOTTEN) {
            version.note_use(0);
            return None;
        }
        Some(usize::from(CLASS_OF[ago as usize]))
    }
}

/// Moments from a use until `now`, if it was not so long ago that it looks as if it had been just now; `None`: there was none.
#[inline]
pub(crate) fn moments_between(used: u8, now: Moment) -> Option<u8> {
    let ago = (u64::from(now.0) + MOMENTS - u64::from(used)) % MOMENTS;
    (used != 0 && now.0 != 0).then_some(ago as u8)
}

/// How old what begins a class is, in nanoseconds.
pub(crate) fn begin_ns(class: usize) -> u64 {
    u64::from(BEGINS[class]) * MOMENT_NS
}

/// Uses of a table's rows by how long ago they were used before.
#[derive(Debug, Default)]
pub(crate) struct Reuse {
    uses: [AtomicU64; CLASSES],
    /// Uses of cold rows, and reads of the device for them.
    cold: AtomicU64,
    device: AtomicU64,
}

impl Reuse {
    /// A version is used in this moment. A second use in one moment does not count.
    #[inline]
    pub(crate) fn note(&self, version: Version, now: Moment) {
        if now.0 == 0 || version.last_use() == now.0 {
            return;
        }
        // What was not marked yet says nothing of its age.
        if let Some(class) = now.class(version) {
            self.uses[class].fetch_add(1, Ordering::Relaxed);
        }
        version.note_use(now.0);
    }

    /// A cold row is used.
    #[inline]
    pub(crate) fn note_cold(&self) {
        self.cold.fetch_add(1, Ordering::Relaxed);
    }

    /// Somebody waits for the device for a cold row.
    #[inline]
    pub(crate) fn note_device(&self) {
        self.device.fetch_add(1, Ordering::Relaxed);
    }
}

/// What is known of one table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Census {
    uses: [f64; CLASSES],
    /// Over so many seconds.
    seconds: f64,
    seen: [f64; CLASSES],
    /// In so many times round the table.
    laps: f64,
    /// Uses of cold rows, and reads of the device for them.
    cold: f64,
    device: f64,
    /// What [`Reuse`] said before.
    counted: [u64; CLASSES],
    counted_cold: u64,
    counted_device: u64,
}

impl Census {
    /// Counts from now on.
    pub(crate) fn new(reuse: &Reuse) -> Self {
        let counted = std::array::from_fn(|class| reuse.uses[class].load(Ordering::Relaxed));
        Self {
            counted,
            counted_cold: reuse.cold.load(Ordering::Relaxed),
            counted_device: reuse.device.load(Ordering::Relaxed),
            ..Self::default()
        }
    }

    /// A hand has passed a row.
    #[inline]
    pub(crate) fn see(&mut self, class: usize) {
        self.seen[class] += 1.0;
    }

    /// A hand has come on by so many times round.
    pub(crate) fn come_on(&mut self, laps: f64) {
        self.laps += laps;
    }

    /// So many seconds later.
    pub(crate) fn count(&mut self, reuse: &Reuse, seconds: f64) {
        let kept = 0.5_f64.powf(seconds / HALF_LIFE);
        for class in 0..CLASSES {
            let uses = reuse.uses[class].load(Ordering::Relaxed);
            let new = uses - std::mem::replace(&mut self.counted[class], uses);
            self.uses[class] = self.uses[class] * kept + new as f64;
            self.seen[class] *= kept;
        }
        let count = |sum: &mut f64, of: &AtomicU64, counted: &mut u64| {
            let all = of.load(Ordering::Relaxed);
            *sum = *sum * kept + (all - std::mem::replace(counted, all)) as f64;
        };
        count(&mut self.cold, &reuse.cold, &mut self.counted_cold);
        count(&mut self.device, &reuse.device, &mut self.counted_device);
        self.seconds = self.seconds * kept + seconds;
        self.laps *= kept;
    }

    /// What a use of a cold row costs, if it costs 1 without a read of the device.
    pub(crate) fn cost(&self) -> f64 {
        let reads = (self.device + COST_WEIGHT) / (self.cold + COST_WEIGHT);
        1.0 + DEVICE_COST * reads.min(1.0)
    }

    /// Rows of a class that are there.
    fn rows(&self, class: usize) -> f64 {
        if self.laps > 0.0 { self.seen[class] / self.laps } else { 0.0 }
    }

    /// Uses a second that a row of each class wins if it stays for the best time.
    fn uses_won(&self) -> [f64; CLASSES] {
        let mut rates = [0.0; CLASSES];
        for class in 0..CLASSES {
            let by_age = EXPECTED / middle(class);
            // And no more often than younger ones.
            let expected = if class > 1 { by_age.min(rates[class - 1]) } else { by_age };
            let (known, weight) = (self.rows(class) * self.seconds, EXPECTED_WEIGHT / by_age);
            rates[class] = (self.uses[class] + expected * weight) / (known + weight);
        }
        // Uses in the moment of the last one are not counted.
        rates[0] = rates[1].max(EXPECTED / middle(0));
        std::array::from_fn(|from| {
            let (mut there, mut uses, mut seconds, mut best) = (1.0, 0.0, 0.0, 0.0_f64);
            for (class, rate) in rates.iter().enumerate().skip(from) {
                let used = -(-rate * length(class)).exp_m1();
                uses += there * used;
                seconds += there * used / rate;
                there *= 1.0 - used;
                best = best.max(uses / seconds);
            }
            best
        })
    }
}

/// Seconds of a class.
fn length(class: usize) -> f64 {
    let end = BEGINS.get(class + 1).map_or(LAST_SECONDS * 2.0, |moments| seconds(*moments));
    end - seconds(BEGINS[class])
}

fn middle(class: usize) -> f64 {
    seconds(BEGINS[class]) + length(class) / 2.0
}

fn seconds(moments: u8) -> f64 {
    f64::from(moments) * MOMENT_NS as f64 / 1e9
}

/// Which rows of a table are to leave: of each class, so many of [`ALL`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Leaving([u16; CLASSES]);

impl Leaving {
    /// All rows from a class on.
    pub(crate) const fn from(first: usize) -> Self {
        let mut shares = [0; CLASSES];
        let mut class = first;
        while class < CLASSES {
            shares[class] = ALL;
            class += 1;
        }
        Self(shares)
    }

    /// Does this row leave? `lap`: which time round it is, so that of a class it is not always the same ones.
    #[inline]
    pub(crate) fn takes(&self, class: usize, row: RowId, lap: u64) -> bool {
        const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
        let mixed = row.0.wrapping_mul(MIX);
        let explores = mixed >> 32 & (EXPLORERS - 1) == 0;
        let class = if explores { class.saturating_sub(EXPLORED) } else { class };
        let turn = (mixed ^ lap.wrapping_mul(MIX)) >> 56;
        turn < u64::from(self.0[class])
    }
}

/// A table in [`plan`].
pub(crate) struct Planned<'a> {
    pub(crate) table: TableId,
    pub(crate) census: &'a Census,
    /// Bytes of a row with its entries in indexes.
    pub(crate) row_bytes: f64,
}

/// Plans which rows leave, if so large a share of all bytes of rows is to. Tables of which nothing was seen yet
/// are not in it.
pub(crate) fn plan(tables: &[Planned<'_>], share: f64) -> BTreeMap<TableId, Leaving> {
    let mut classes = Vec::with_capacity(tables.len() * CLASSES);
    for (at, planned) in tables.iter().enumerate() {
        let worth = planned.census.cost() / planned.row_bytes;
        for (class, won) in planned.census.uses_won().into_iter().enumerate() {
            classes.push((won * worth, at, class, planned.census.rows(class) * planned.row_bytes));
        }
    }
    classes.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let mut left = share * classes.iter().map(|class| class.3).sum::<f64>();
    let mut leaving = vec![Leaving::from(CLASSES); tables.len()];
    for (_, table, class, bytes) in classes {
        let part = if left >= bytes { 1.0 } else { left.max(0.0) / bytes };
        leaving[table].0[class] = (part * f64::from(ALL)) as u16;
        left -= bytes;
        if left <= 0.0 && share < 1.0 {
            break;
        }
    }
    let known = tables.iter().zip(leaving).filter(|(planned, _)| planned.census.laps > 0.0);
    known.map(|(planned, leaving)| (planned.table, leaving)).collect()
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use thermocline_base::ids::Timestamp;

    use super::*;
    use crate::hot::version::Begin;

    const SECOND: u64 = 1_000_000_000;

    /// A table of so many rows of each class, of which so many were used each second.
    fn census(of: impl Fn(usize) -> (f64, f64)) -> Census {
        let mut census = Census { seconds: 20.0, laps: 1.0, ..Census::default() };
        for class in 0..CLASSES {
            let (rows, uses) = of(class);
            (census.seen[class], census.uses[class]) = (rows, uses * 20.0);
        }
        census
    }

    fn shares(tables: &[(&Census, f64)], share: f64) -> Vec<[u16; CLASSES]> {
        let planned = tables.iter().zip(0..).map(|((census, row_bytes), id)| Planned {
            table: TableId(id),
            census,
            row_bytes: *row_bytes,
        });
        plan(&planned.collect::<Vec<_>>(), share).into_values().map(|leaving| leaving.0).collect()
    }

    /// The part of all bytes that a plan lets go.
    fn part(tables: &[(&Census, f64)], plan: &[[u16; CLASSES]]) -> f64 {
        let bytes = |leaving: &dyn Fn(usize, usize) -> f64| -> f64 {
            let classes = (0..tables.len()).flat_map(|table| (0..CLASSES).map(move |class| (table, class)));
            classes.map(|(at, class)| tables[at].0.seen[class] * tables[at].1 * leaving(at, class)).sum()
        };
        bytes(&|at, class| f64::from(plan[at][class]) / f64::from(ALL)) / bytes(&|_, _| 1.0)
    }

    #[test]
    fn where_nothing_is_known_leaves_what_was_used_least_lately_and_of_that_what_is_large() {
        let unused = Census { laps: 1.0, seen: [1000.0; CLASSES], ..Census::default() };
        let tables = [(&unused, 100.0), (&unused, 100.0)];
        for share in [0.03, 0.2, 0.5, 0.9] {
            let plan = shares(&tables, share);
            let oldest_first = |shares: &[u16; CLASSES]| shares.is_sorted();
            assert!(plan.iter().all(oldest_first), "{share}: {plan:?}");
            assert!((part(&tables, &plan) - share).abs() < 0.01, "{share}: {plan:?}");
        }
        let of_two_sizes = [(&unused, 100.0), (&unused, 1000.0)];
        let plan = shares(&of_two_sizes, 0.3);
        assert!((part(&of_two_sizes, &plan) - 0.3).abs() < 0.01, "{plan:?}");
        assert!(plan[0].iter().sum::<u16>() < plan[1].iter().sum::<u16>() / 2, "{plan:?}");
        // All is all, also what was in no class when it was counted.
        assert_eq!(shares(&tables, 1.0), [[ALL; CLASSES]; 2]);
    }

    #[test]
    fn rows_that_nobody_uses_again_leave_before_older_ones_that_are_used() {
        // All rows of one table are used every ten seconds, whenever that was before; of the other one none are.
        let used = census(|_| (1000.0, 100.0));
        let unused = census(|_| (1000.0, 0.0));
        let tables = [(&used, 300.0), (&unused, 100.0)];
        let plan = shares(&tables, 0.2);
        assert_eq!(plan[0], [0; CLASSES], "{plan:?}");
        assert!((part(&tables, &plan) - 0.2).abs() < 0.01, "{plan:?}");
    }

    #[test]
    fn rows_whose_cold_reads_wait_for_the_device_stay_longer() {
        let used = || census(|class| (1000.0, 200.0 / (class + 1) as f64));
        let (mut together, mut apart) = (used(), used());
        (together.cold, together.device) = (10_000.0, 1_000.0);
        (apart.cold, apart.device) = (10_000.0, 9_000.0);
        let tables = [(&together, 100.0), (&apart, 100.0)];
        let plan = shares(&tables, 0.25);
        assert!((part(&tables, &plan) - 0.25).abs() < 0.01, "{plan:?}");
        assert_eq!(plan[1], [0; CLASSES], "{plan:?}");
    }

    /// A table into which rows are only written gives way to one that is used, however little is known of old rows.
    #[test]
    fn rows_that_were_never_used_leave_first() {
        let written = census(|class| (if class < 9 { 1000.0 } else { 0.0 }, 0.0));
        let used = census(|class| (if class < 12 { 1000.0 } else { 0.0 }, 20.0));
        let tables = [(&written, 100.0), (&used, 400.0)];
        let plan = shares(&tables, 0.1);
        assert!((part(&tables, &plan) - 0.1).abs() < 0.01, "{plan:?}");
        assert_eq!(plan[1][..12], [0; 12], "{plan:?}");
    }

    #[test]
    fn rows_stay_that_are_about_to_be_used() {
        // Those of 8 to 11.5 s are all used before they are older, and nothing else ever is.
        const DUE: usize = 8;
        let delivered = census(|class| (1000.0, if class == DUE { 3000.0 } else { 0.0 }));
        // Of the others one in fifty a second.
        let others = census(|_| (1000.0, 20.0));
        let tables = [(&delivered, 100.0), (&others, 100.0)];
        let plan = shares(&tables, 0.2);
        assert_eq!(plan[1], [0; CLASSES], "{plan:?}");
        assert!(plan[0][..=DUE].iter().all(|share| *share == 0), "{plan:?}");
        assert!(plan[0][DUE + 1..].iter().any(|share| *share > 0), "{plan:?}");
    }

    #[test]
    fn one_row_in_some_is_kept_longer_and_of_a_part_of_a_class_others_leave_in_turn() {
        let leaving = Leaving::from(8);
        let rows = || (0..64_000).map(|row| RowId::new(row / 1000, (row % 1000) as u16));
        let taken = |class| rows().filter(|row| leaving.takes(class, *row, 0)).count();
        assert_eq!((taken(7), taken(8 + EXPLORED)), (0, 64_000));
        assert!((62_000..63_800).contains(&taken(8)), "{}", taken(8));
        let mut some = Leaving::from(8);
        some.0[8] = 64;
        let of_lap = |lap| rows().filter(|row| some.takes(8, *row, lap)).collect::<Vec<_>>();
        let (first, second) = (of_lap(1), of_lap(2));
        assert!((14_000..18_000).contains(&first.len()), "{}", first.len());
        let again = first.iter().filter(|row| second.contains(row)).count();
        assert!(again < first.len() / 2, "{again} of {}", first.len());
    }

    #[test]
    fn what_was_counted_is_half_of_it_after_a_while() {
        let reuse = Reuse::default();
        reuse.note_cold();
        let mut census = Census::new(&reuse);
        for _ in 0..1000 {
            reuse.note_cold();
        }
        for _ in 0..250 {
            reuse.note_device();
        }
        reuse.uses[3].fetch_add(40, Ordering::Relaxed);
        // What was there before it began does not count.
        census.count(&reuse, 1.0);
        assert_eq!((census.cold, census.device, census.uses[3]), (1000.0, 250.0, 40.0));
        census.count(&reuse, HALF_LIFE);
        assert_eq!((census.cold, census.device, census.uses[3]), (500.0, 125.0, 20.0));
    }

    /// What was used lately is known, whenever that was; what was used long ago is forgotten in time.
    #[test]
    fn a_version_is_as_old_as_its_last_use() {
        let mut cell = [0_u64; 8];
        let cell = NonNull::new(cell.as_mut_ptr()).expect("it is there").cast();
        let (begin, row) = (Begin::At(Timestamp(1)), RowId::new(3, 4));
        // SAFETY: the cell is large enough, aligned and ours.
        let version = unsafe { Version::create(cell, begin, 0, row, false, b"row", b"") };
        let reuse = Reuse::default();
        for read in (0..300 * SECOND).step_by(700_000_000) {
            version.note_use(0);
            reuse.note(version, Moment::at(read));
            let class = |ago| Moment::at(read + ago).class(version);
            assert_eq!(
                [class(0), class(2 * SECOND), class(20 * SECOND)],
                [Some(0), Some(4), Some(10)],
                "{read}"
            );
            assert_eq!(class(79 * SECOND), Some(CLASSES - 2), "{read}");
            assert_eq!(class(101 * SECOND), None, "{read}");
            assert_eq!(version.last_use(), 0, "it is forgotten before its moment comes again");
        }
        assert_eq!((version.begin(), version.row_id(), version.row()), (begin, row, &b"row"[..]));
        // Of the ages at which it is used again each counts once.
        let before = reuse.uses[4].load(Ordering::Relaxed);
        version.note_use(Moment::at(SECOND).0);
        reuse.note(version, Moment::at(3 * SECOND));
        reuse.note(version, Moment::at(3 * SECOND));
        assert_eq!(reuse.uses[4].load(Ordering::Relaxed), before + 1);
    }
}
