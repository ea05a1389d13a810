//! Which rows will still change: counted by their shape and their age, table by table.
//!
//! A chunk pays to freeze, and to leave memory, if its rows are done with. Some rows say so: an order line has no delivery date until
//! it is delivered, and is never changed again after. Others grow out of it: a payment is not changed at all, a session not after an
//! hour. So a row's *state* is its shape (the null bits of its first columns that take null) and its age (the commits since it began,
//! in powers of two: a database that rests does not age). For each state is counted
//!
//! - how many rows were changed in it ([`Changes`], by sessions, one change in [`SAMPLED`]), and
//! - how many rows were in it for how long ([`LifeTable::expose`], by the threads that freeze, from samples of chunks).
//!
//! Changes divided by rows and time are the rate λ at which a row of that state is changed. From the rates of a shape follows, for each
//! age, how probably a row is changed before it is [`AHEAD`] ages older: the *expected* changes of a row, 1 − exp(−Σ λ · width). What is
//! not known is as it was at the age before; of the youngest age it is known that everything changes. So nothing is done with before
//! it has been watched. This is a life table, as demographers have it: rows that change are those that die.
//!
//! What was counted is worth half after [`HALF_LIFE`] seconds, so a table that is used otherwise from now on is known soon.
//!
//! Rows that will change may have a while until then: an order in a long queue. Where memory is short that while is worth something, so
//! the same is asked for the next so many commits ([`Span::Next`]), too.

use thermocline_base::ids::Timestamp;
use thermocline_base::sync::{AtomicU32, Ordering};

use crate::row::Layout;

/// Shapes that are told apart: three columns that take null.
pub(crate) const SHAPES: usize = 8;
/// Ages that are told apart, in powers of two of commits.
pub(crate) const AGES: usize = 40;
const STATES: usize = SHAPES * AGES;
/// One change in so many is counted, or the threads of a database would fight for the counters of its busiest table.
pub(crate) const SAMPLED: u32 = 8;
/// Ages that an expectation looks ahead.
const AHEAD: usize = 6;
/// Rows times commits that weigh as much as what is known of the age before.
const PRIOR: f64 = 1e6;
/// In so many seconds what was counted is worth half.
const HALF_LIFE: f64 = 20.0;
/// From this expectation on a row is taken to change.
const CHANGES: f64 = 1.0 / 16.0;

/// Rows that change no sooner than in so many seconds, at the pace of the last time, change late: later, and less late.
pub(crate) const LATE_SECONDS: [f64; 3] = [64.0, 16.0, 4.0];

/// A row's shape and age.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct State {
    shape: u8,
    age: u8,
}

impl State {
    /// The state of a row with `shape` that began at `begin`.
    pub(crate) fn of(shape: u8, begin: Timestamp, now: Timestamp) -> Self {
        Self { shape, age: age_class(begin, now) as u8 }
    }

    fn index(self) -> usize {
        usize::from(self.shape) * AGES + usize::from(self.age)
    }
}

/// The class of an age: powers of two of commits.
fn age_class(begin: Timestamp, now: Timestamp) -> usize {
    let commits = now.0.saturating_sub(begin.0);
    ((u64::BITS - commits.leading_zeros()) as usize).min(AGES - 1)
}

/// The bits of the first byte of a row that tell shapes apart: those of the first columns that take null.
pub(crate) fn shape_mask(layout: &Layout) -> u8 {
    let nullable = layout.columns().iter().filter(|column| column.nullable).count();
    (SHAPES - 1) as u8 & ((1_u16 << nullable.min(8)) - 1) as u8
}

/// The shape of a row.
#[inline]
pub(crate) fn shape_of(row: &[u8], mask: u8) -> u8 {
    row.first().map_or(0, |bits| bits & mask)
}

/// Changes of a table's rows by the state in which they found the row: one in [`SAMPLED`].
#[derive(Debug)]
pub(crate) struct Changes([AtomicU32; STATES]);

impl Default for Changes {
    fn default() -> Self {
        Self([const { AtomicU32::new(0) }; STATES])
    }
}

impl Changes {
    /// A row in this state is changed.
    pub(crate) fn note(&self, state: State) {
        self.0[state.index()].fetch_add(1, Ordering::Relaxed);
    }
}

/// Knowledge of the rows of one table.
#[derive(Debug)]
pub(crate) struct LifeTable {
    changes: [f64; STATES],
    /// Rows times commits.
    exposure: [f64; STATES],
    /// The counts of [`Changes`] at the last look.
    counted: [u32; STATES],
    /// Changes a row and commit.
    rates: [f64; STATES],
}

impl LifeTable {
    /// Knows nothing, and counts from now on.
    pub(crate) fn new(changes: &Changes) -> Self {
        Self {
            changes: [0.0; STATES],
            exposure: [0.0; STATES],
            counted: std::array::from_fn(|at| changes.0[at].load(Ordering::Relaxed)),
            rates: [1.0; STATES],
        }
    }

    /// In the last `commits` there were `rows` rows in this state.
    pub(crate) fn expose(&mut self, state: State, rows: f64, commits: u64) {
        self.exposure[state.index()] += rows * commits as f64;
    }

    /// `seconds` have passed: counts what was changed meanwhile, and forgets what is old. True if something was.
    pub(crate) fn count(&mut self, changes: &Changes, seconds: f64) -> bool {
        let kept = 0.5_f64.powf(seconds / HALF_LIFE);
        let mut any = false;
        for at in 0..STATES {
            let all = changes.0[at].load(Ordering::Relaxed);
            let new = all.wrapping_sub(std::mem::replace(&mut self.counted[at], all));
            any |= new > 0;
            self.changes[at] = self.changes[at] * kept + f64::from(new) * f64::from(SAMPLED);
            self.exposure[at] *= kept;
        }
        for shape in 0..SHAPES {
            let mut before = 1.0;
            for at in shape * AGES..(shape + 1) * AGES {
                before = (self.changes[at] + PRIOR * before) / (self.exposure[at] + PRIOR);
                self.rates[at] = before;
            }
        }
        any
    }

    /// Probability that a row in this state is changed before it is [`AHEAD`] ages older.
    fn expected(&self, state: State) -> f64 {
        let (from, last) = (usize::from(state.age), AGES - 1);
        let ages = from..=(from + AHEAD - 1).min(last);
        let all: f64 = ages.map(|age| self.rates[usize::from(state.shape) * AGES + age] * width(age)).sum();
        1.0 - (-all).exp()
    }

    /// Probability that a row in this state is changed within the next `commits`. Of its age it is taken to be among the oldest.
    fn expected_soon(&self, state: State, commits: f64) -> f64 {
        let (from, shape) = (usize::from(state.age), usize::from(state.shape) * AGES);
        let mut all = self.rates[shape + from] * commits.min(width(from));
        let begin = |age: usize| 2.0_f64.powi(age as i32 - 1);
        let until = begin(from + 1) + commits;
        for age in (from + 1..AGES).take_while(|age| begin(*age) < until) {
            all += self.rates[shape + age] * (until - begin(age)).min(width(age));
        }
        1.0 - (-all).exp()
    }

    /// Which states are to be expected to change in a span of time from now on. Takes some ten microseconds.
    fn outlook(&self, span: Span, mask: u8, now: Timestamp) -> Outlook {
        let mut changing = [0; SHAPES];
        for (shape, ages) in (0..).zip(&mut changing) {
            for age in 0..AGES as u8 {
                let state = State { shape, age };
                let expected = match span {
                    Span::Life => self.expected(state),
                    Span::Next(commits) => self.expected_soon(state, commits),
                };
                *ages |= u64::from(expected >= CHANGES) << age;
            }
        }
        Outlook { changing, mask, now }
    }

    /// The outlooks as of now, where so many transactions commit in a second.
    pub(crate) fn prospects(&self, pace: f64, mask: u8, now: Timestamp) -> Prospects {
        let next = |seconds| self.outlook(Span::Next(seconds * pace), mask, now);
        Prospects { life: self.outlook(Span::Life, mask, now), late: LATE_SECONDS.map(next) }
    }
}

/// The reach of an outlook.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Span {
    /// Until a row is [`AHEAD`] ages older.
    Life,
    /// A number of commits.
    Next(f64),
}

/// Commits in which a row has this age.
fn width(age: usize) -> f64 {
    if age == 0 { 1.0 } else { 2.0_f64.powi(age as i32 - 1) }
}

/// The expectation of rows, at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outlook {
    /// Of each shape, the ages at which a row changes.
    changing: [u64; SHAPES],
    mask: u8,
    now: Timestamp,
}

impl Outlook {
    /// Nothing changes but shapes of which a mask has a bit.
    pub(crate) fn of_shapes(changing: u8, mask: u8, now: Timestamp) -> Self {
        let all = |shape: usize| if changing & 1 << shape != 0 { u64::MAX } else { 0 };
        Self { changing: std::array::from_fn(all), mask, now }
    }

    /// Is a row that began at `begin` to be expected to change?
    #[inline]
    pub(crate) fn changes(&self, row: &[u8], begin: Timestamp) -> bool {
        self.shape_changes(shape_of(row, self.mask), begin)
    }

    /// The same of a row with this shape.
    #[inline]
    pub(crate) fn shape_changes(&self, shape: u8, begin: Timestamp) -> bool {
        let age = age_class(begin, self.now);
        self.changing[usize::from(shape)] & 1 << age != 0
    }
}

/// The outlooks for the rows of a table: for as long as can be told, and for the next [`LATE_SECONDS`].
#[derive(Clone, Debug)]
pub(crate) struct Prospects {
    life: Outlook,
    late: [Outlook; LATE_SECONDS.len()],
}

impl Prospects {
    /// For as long as can be told, as of now.
    pub(crate) fn life(&self, now: Timestamp) -> Outlook {
        Outlook { now, ..self.life }
    }

    /// For the next [`LATE_SECONDS`], each as of now.
    pub(crate) fn late(&self, now: Timestamp) -> [Outlook; LATE_SECONDS.len()] {
        self.late.map(|outlook| Outlook { now, ..outlook })
    }

    /// The time after which rows that began at `begin` change, of which `shapes` has the share of each shape in hundredths, if no more than `percent`
    /// of them may: 0 not at all, else the place among [`LATE_SECONDS`] from 1 on, or one behind the last.
    pub(crate) fn how_soon(
        &self,
        shapes: &[u8; SHAPES],
        begin: Timestamp,
        now: Timestamp,
        percent: u32,
    ) -> usize {
        let changing = |outlook: &Outlook| {
            let outlook = Outlook { now, ..*outlook };
            let changes = |shape: usize| outlook.shape_changes(shape as u8, begin);
            (0..SHAPES).filter(|shape| changes(*shape)).map(|shape| u32::from(shapes[shape])).sum::<u32>()
        };
        let outlooks = std::iter::once(&self.life).chain(&self.late);
        outlooks.take_while(|outlook| changing(outlook) > percent).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1 << 30);

    fn state(shape: u8, age: u64) -> State {
        State::of(shape, Timestamp(NOW.0 - age), NOW)
    }

    fn note(changes: &Changes, state: State, count: u32) {
        (0..count / SAMPLED).for_each(|_| changes.note(state));
    }

    #[test]
    fn nothing_is_done_with_before_it_was_watched() {
        let changes = Changes::default();
        let mut table = LifeTable::new(&changes);
        assert!(!table.count(&changes, 1.0), "nothing was changed");
        for age in [0, 100, 1 << 20] {
            assert!(table.expected(state(3, age)) > 0.99, "{age}");
        }
        table.expose(state(3, 1 << 20), 1e6, 1000);
        table.count(&changes, 1.0);
        assert!(table.expected(state(3, 1 << 20)) > 0.99, "it was watched for too short a time");
    }

    #[test]
    fn shapes_that_change_are_told_from_those_that_do_not() {
        let changes = Changes::default();
        let mut table = LifeTable::new(&changes);
        // Order lines: each is delivered some 200,000 commits after it was made.
        for _ in 0..10 {
            for age in (10..24).map(|class| 1_u64 << class) {
                table.expose(state(0, age), 1e6, 10_000);
                table.expose(state(1, age), 1e5, 10_000);
            }
            note(&changes, state(1, 200_000), 40_000);
            assert!(table.count(&changes, 0.5));
        }
        let outlook = table.outlook(Span::Life, 1, NOW);
        let changes = |shape: u8, age: u64| outlook.changes(&[shape], Timestamp(NOW.0 - age));
        assert!(changes(1, 20_000) && changes(1, 150_000), "they are going to be delivered");
        assert!(!changes(0, 20_000) && !changes(0, 1_000_000), "they were delivered");
        assert!(!changes(1, 4_000_000), "it is long past the age at which it would have been delivered");
        assert!(changes(0, 20), "nothing so young was watched");
        assert!(!changes(0b1110, 20_000), "other columns do not tell shapes apart");
    }

    #[test]
    fn what_changes_late_is_told_from_what_changes_soon() {
        let changes = Changes::default();
        let mut table = LifeTable::new(&changes);
        // A queue: each row is changed once, 1,000,000 commits after it was made.
        for _ in 0..10 {
            (8..20).for_each(|class| table.expose(state(1, 1 << class), 1e6, 10_000));
            note(&changes, state(1, 1_000_000), 80_000);
            assert!(table.count(&changes, 0.5));
        }
        let changes = |span, age: u64| table.outlook(span, 1, NOW).shape_changes(1, Timestamp(NOW.0 - age));
        for age in [20_000, 200_000, 900_000] {
            assert!(changes(Span::Life, age), "{age}");
        }
        let soon = Span::Next(200_000.0);
        assert!(!changes(soon, 20_000) && !changes(soon, 200_000), "they have to wait for longer");
        assert!(changes(soon, 900_000), "it is about to be its turn");
        assert!(changes(Span::Next(1e6), 200_000), "its turn comes within that time");
        assert!(changes(soon, 20), "nothing so young was watched");
        assert!(!changes(Span::Next(0.0), 900_000), "nothing changes in no time");
        // 20,000 commits a second: the next 64 seconds reach further than 16 and 4.
        let prospects = table.prospects(20_000.0, 1, NOW);
        let soon = |shapes, age: u64| prospects.how_soon(&shapes, Timestamp(NOW.0 - age), NOW, 6);
        let all = |shape: usize| std::array::from_fn(|at| if at == shape { 100 } else { 0 });
        assert_eq!([20_000, 200_000, 400_000, 900_000].map(|age| soon(all(1), age)), [2, 3, 4, 4]);
        assert_eq!(soon([95, 5, 0, 0, 0, 0, 0, 0], 20_000), 4, "nothing is known of the others");
        (8..26).for_each(|class| table.expose(state(0, 1 << class), 1e9, 100_000));
        table.count(&Changes::default(), 0.0);
        let prospects = table.prospects(10_000.0, 1, NOW);
        assert_eq!(prospects.how_soon(&[95, 5, 0, 0, 0, 0, 0, 0], Timestamp(NOW.0 - 20_000), NOW, 6), 0);
    }

    #[test]
    fn what_was_seen_is_forgotten() {
        let changes = Changes::default();
        let mut table = LifeTable::new(&changes);
        let old = state(0, 1 << 20);
        let watch = |table: &mut LifeTable| {
            (10..26).for_each(|class| table.expose(state(0, 1 << class), 1e6, 100_000));
        };
        watch(&mut table);
        note(&changes, old, 400_000);
        table.count(&changes, 0.5);
        assert!(table.expected(old) > 0.9);
        for _ in 0..20 {
            watch(&mut table);
            table.count(&changes, 20.0);
        }
        assert!(table.expected(old) < 0.06, "{}", table.expected(old));
    }

    #[test]
    fn the_mask_has_the_columns_that_take_null() {
        use crate::row::{Column, Type};
        let of = |nullable: &[bool]| {
            let columns: Vec<Column> = nullable
                .iter()
                .zip(0..)
                .map(|(nullable, at)| Column {
                    nullable: *nullable,
                    ..Column::new(format!("c{at}"), Type::Int4)
                })
                .collect();
            shape_mask(&Layout::new(&columns).expect("the columns are fine"))
        };
        assert_eq!(
            [of(&[false]), of(&[true, false]), of(&[true, false, true]), of(&[true; 9])],
            [0, 1, 3, 7]
        );
    }
}
