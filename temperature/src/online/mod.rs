//! The online classifier: temperatures inside of a running database, under a budget of bytes.
//!
//! ```text
//!   record ─┬─► table of candidates   fingerprint and logarithm of the sum: 21 bits a row   ─► temperature, is_hot
//!           └─► sample of rows        whole: name, size, sum; a fixed share of all rows     ─► threshold, budget a table
//! ```
//!
//! Not a counter a row: the table keeps the rows that are hot or may become so, and forgets the others (`table`). What "hot"
//! means follows from the sample (`sample`): rows chosen by their hash, with all of their accesses, so that their bytes times the
//! inverse of the chosen share are the bytes of all rows. The densest of them that fill the byte budget tell the *threshold*: the
//! access density from which on a row is hot.
//!
//! Each quantum, sums are worth `1-α` of what they were. If suddenly a larger part of the accesses is cold than usual, the hot set has
//! moved: for as long as that lasts, `α` is the larger [`ClassifierOptions::alpha_shift`], and the past is forgotten sooner.
//!
//! Rules:
//! - [`Classifier::memory_bytes`] is at most [`ClassifierOptions::memory_bytes`], or what [`Classifier::set_memory`] said since;
//!   nothing grows by itself.
//! - One thread at a time observes (`inner`); any thread may ask at any time, without a lock.
//! - A row that is not known is not hot.
//!
//! Limits: about one row in 170 that is not in the table shares a fingerprint in its bucket with one that is, and is taken for it; sums are
//! rounded to 9 % (at random, so that they are right on average).

mod sample;
mod stored;
mod table;

use std::collections::BTreeMap;

use thermocline_base::ids::TableId;
use thermocline_base::rng::Rng;
use thermocline_base::sync::{AtomicU32, AtomicU64, Mutex, Ordering};

use super::classify::TableBudget;
use super::{Access, RowName, SizeClass};
use sample::Sample;
pub use stored::{HEADER_BYTES, Header, Refused, check};
use table::Table;

/// Options of the classification of rows while the database runs.
#[derive(Clone, Debug)]
pub struct ClassifierOptions {
    /// Bytes that the classifier itself may take; at least [`Classifier::MEMORY_MIN`]. For a database: 3 % of its
    /// limit, or less.
    pub memory_bytes: usize,
    /// Bytes of rows that may be hot.
    pub budget_bytes: u64,
    /// The share of the last quantum in an estimate.
    pub alpha: f64,
    /// The same while the hot set moves.
    pub alpha_shift: f64,
    /// Seeds the rounding.
    pub seed: u64,
}

impl ClassifierOptions {
    /// Options that suit a memory limit: the classifier takes 3 % of it, rows may take `budget_bytes`.
    #[must_use]
    pub fn for_limit(memory_limit_bytes: u64, budget_bytes: u64) -> Self {
        let memory_bytes = usize::try_from(memory_limit_bytes / 100 * 3).unwrap_or(usize::MAX).min(1 << 40);
        Self { memory_bytes, budget_bytes, alpha: 0.005, alpha_shift: 0.1, seed: 1 }
    }
}

/// Says how hot rows are; see the module.
#[derive(Debug)]
pub struct Classifier {
    /// Bytes that it may take at the most.
    memory_max: usize,
    table: Table,
    /// Density from which on a row is hot, as bits of an `f32`.
    threshold: AtomicU32,
    budget_bytes: AtomicU64,
    alpha: f64,
    alpha_shift: f64,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    rng: Rng,
    sample: Sample,
    tables: BTreeMap<TableId, TableBudget>,
    /// Accesses of the open quantum, and those of cold rows among them.
    accesses: f64,
    accesses_cold: f64,
    /// The squares of what each record of a row in memory stands for, and of a cold one: how much chance is in these numbers.
    squares: f64,
    squares_cold: f64,
    /// The usual share of cold ones, smoothed; none before the first quantum.
    cold_usual: Option<f64>,
    shifting: bool,
    /// The share of cold ones of the last quanta, its least, by and by forgotten, for how many quanta more it is taken to be
    /// falling, and for how many it has not been.
    cold_recent: Option<f64>,
    cold_least: f64,
    falling: u32,
    steady: u32,
}

/// The rate at which the usual share of cold accesses rises: a shift is one for at most some fifty quanta. It falls
/// as fast as the share of the last quanta: what is better than usual is what to compare with.
const USUAL_ALPHA: f64 = 0.02;
/// The rate at which the share of the last quanta follows.
const RECENT_ALPHA: f64 = 0.3;
/// The share of cold accesses falls while it is by this part below its least, or by more where chance may do that; and for so
/// many quanta more.
const FALLING: f64 = 0.03;
/// Standard deviations that chance may do, now and then.
const DEVIATIONS: f64 = 5.0;
const FALLING_QUANTA: u32 = 5;
/// After so many quanta in which it did not fall it is tried out whether it would. See [`Classifier::is_settling`].
const STEADY_QUANTA: u32 = 55;
/// The factor by which that least is forgotten.
const LEAST_RISES: f64 = 1.01;

impl Classifier {
    /// The least memory that a classifier works with.
    pub const MEMORY_MIN: usize = 16 << 10;

    /// A classifier that knows nothing yet.
    #[must_use]
    pub fn new(options: &ClassifierOptions) -> Self {
        let (sample, rest) = Self::split(options.memory_bytes);
        let sample = Sample::new(sample);
        Self {
            memory_max: options.memory_bytes,
            table: Table::new(rest),
            threshold: AtomicU32::new(0),
            budget_bytes: AtomicU64::new(options.budget_bytes),
            alpha: options.alpha.clamp(1e-6, 0.9),
            alpha_shift: options.alpha_shift.clamp(1e-6, 0.9),
            inner: Mutex::new(Inner {
                rng: Rng::new(options.seed),
                sample,
                tables: BTreeMap::new(),
                accesses: 0.0,
                accesses_cold: 0.0,
                squares: 0.0,
                squares_cold: 0.0,
                cold_usual: None,
                shifting: false,
                cold_recent: None,
                cold_least: f64::INFINITY,
                falling: 0,
                steady: 0,
            }),
        }
    }

    /// Takes records.
    pub fn observe(&self, accesses: &[Access]) {
        let mut inner = self.inner.lock();
        let Inner { rng, sample, accesses: all, accesses_cold, squares, squares_cold, .. } = &mut *inner;
        const AHEAD: usize = 8;
        for (at, access) in accesses.iter().enumerate() {
            if let Some(later) = accesses.get(at + AHEAD) {
                self.table.ask_ahead(later.row.mixed());
            }
            let mixed = access.row.mixed();
            self.table.add(mixed, access.weight as f32, rng);
            sample.add(access, mixed);
            let weight = f64::from(access.weight);
            *all += weight;
            if access.cold {
                *accesses_cold += weight;
                *squares_cold += weight * weight;
            } else {
                *squares += weight * weight;
            }
        }
    }

    /// Ends `count` quanta, of which only the first had accesses: everything cools, and the threshold is found anew.
    pub fn end_quanta(&self, count: u64) {
        let mut inner = self.inner.lock();
        let alpha = self.pace(&mut inner);
        let octaves = -(1.0 - alpha).log2() * count as f64;
        self.table.cool(octaves);
        let Inner { sample, tables, .. } = &mut *inner;
        sample.cool(octaves);
        tables.clear();
        let density = sample.threshold(self.budget_bytes.load(Ordering::Relaxed), |table, rows, bytes| {
            if tables.len() < TABLES_MAX || tables.contains_key(&table) {
                let budget = tables.entry(table).or_default();
                budget.rows += rows;
                budget.bytes += bytes;
            }
        });
        self.threshold.store(((density * self.alpha) as f32).to_bits(), Ordering::Relaxed);
    }

    /// The α of the quantum that ends.
    fn pace(&self, inner: &mut Inner) -> f64 {
        if inner.accesses > 0.0 {
            let cold = inner.accesses_cold / inner.accesses;
            let usual = *inner.cold_usual.get_or_insert(cold);
            inner.shifting = cold > 1.5 * usual + 0.02;
            let follows = if cold < usual { RECENT_ALPHA } else { USUAL_ALPHA };
            inner.cold_usual = Some(usual + follows * (cold - usual));
            let recent = inner.cold_recent.map_or(cold, |recent| recent + RECENT_ALPHA * (cold - recent));
            inner.cold_recent = Some(recent);
            if inner.shifting || recent < (1.0 - FALLING.max(inner.chance())) * inner.cold_least {
                (inner.cold_least, inner.falling) = (recent, FALLING_QUANTA);
            } else {
                inner.cold_least = (LEAST_RISES * inner.cold_least).min(recent.max(usual));
                inner.falling = inner.falling.saturating_sub(1);
            }
            inner.steady = if inner.falling > 0 { 0 } else { inner.steady + 1 };
            if inner.steady > STEADY_QUANTA {
                (inner.steady, inner.falling) = (0, FALLING_QUANTA);
            }
        }
        (inner.accesses, inner.accesses_cold) = (0.0, 0.0);
        (inner.squares, inner.squares_cold) = (0.0, 0.0);
        if inner.shifting { self.alpha_shift } else { self.alpha }
    }

    /// Estimated accesses of a row a quantum; 0 if it is not known. (In units of the usual α; while the hot set moves, all
    /// temperatures fall alike, and the threshold with them.)
    #[must_use]
    pub fn temperature(&self, table: TableId, hash: u64) -> f32 {
        self.table.sum(RowName { table, hash }.mixed()) * self.alpha as f32
    }

    /// Accesses a quantum and byte from which on a row is hot, as of the last quantum; 0 if all that is accessed fits.
    #[must_use]
    pub fn threshold(&self) -> f32 {
        f32::from_bits(self.threshold.load(Ordering::Relaxed))
    }

    /// Is the row hot enough for its size to stand in memory?
    #[must_use]
    pub fn is_hot(&self, table: TableId, hash: u64, bytes: u32) -> bool {
        self.is_denser(table, hash, bytes, self.threshold())
    }

    /// Is the row accessed, and as often for its size as `density` says, or more often?
    #[must_use]
    pub fn is_denser(&self, table: TableId, hash: u64, bytes: u32, density: f32) -> bool {
        let temperature = self.temperature(table, hash);
        temperature > 0.0 && temperature >= density * SizeClass::of(bytes).bytes() as f32
    }

    /// Sets the bytes of rows that may be hot from the next quantum on.
    pub fn set_budget(&self, bytes: u64) {
        self.budget_bytes.store(bytes, Ordering::Relaxed);
    }

    /// The threshold that a budget of so many bytes would give now.
    #[must_use]
    pub fn threshold_for(&self, budget_bytes: u64) -> f32 {
        let mut inner = self.inner.lock();
        (inner.sample.threshold(budget_bytes, |_, _, _| ()) * self.alpha) as f32
    }

    /// The hot rows of each table, and their bytes, estimated; of at most 64 tables.
    #[must_use]
    pub fn tables(&self) -> BTreeMap<TableId, TableBudget> {
        self.inner.lock().tables.clone()
    }

    /// Does the hot set seem to move?
    #[must_use]
    pub fn is_shifting(&self) -> bool {
        self.inner.lock().shifting
    }

    /// Does the share of cold accesses fall, or has it just risen? Then what is read is not yet where it is going to stay.
    ///
    /// That is not known while too little is moved for the share to fall. So once in a while the answer is yes for
    /// some quanta all the same: in one of twelve at most, where nothing comes of it.
    #[must_use]
    pub fn is_settling(&self) -> bool {
        self.inner.lock().falling > 0
    }

    /// Takes so many bytes from now on, or somewhat fewer; at least [`Classifier::MEMORY_MIN`], and not more than at first.
    /// What it knows of the warmest rows stays.
    pub fn set_memory(&self, memory_bytes: usize) {
        let mut inner = self.inner.lock();
        let (sample, rest) = Self::split(memory_bytes.min(self.memory_max));
        inner.sample.set_bytes(sample);
        self.table.set_bytes(rest);
    }

    /// The parts of the sample and of the table.
    fn split(memory_bytes: usize) -> (usize, usize) {
        let memory = memory_bytes.max(Self::MEMORY_MIN);
        // The sample needs some thousand rows for a threshold within a few percent, whatever the size of the rest.
        let sample = (memory / 8).min(2 << 20);
        (sample, memory - size_of::<Self>() - sample - TABLES_BYTES)
    }

    /// Bytes that the classifier takes. Only [`Classifier::set_memory`] changes it.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.table.memory_bytes() + self.inner.lock().sample.memory_bytes() + TABLES_BYTES
    }
}

impl Inner {
    /// By what part of itself the share of cold accesses of the last quanta may have fallen by chance.
    fn chance(&self) -> f64 {
        let (hot, cold) = (self.accesses - self.accesses_cold, self.accesses_cold);
        if hot <= 0.0 || cold <= 0.0 {
            return 0.0;
        }
        let of_quantum =
            hot / self.accesses * (self.squares / (hot * hot) + self.squares_cold / (cold * cold)).sqrt();
        // Of quanta that count less and less, the deviation is smaller.
        DEVIATIONS * of_quantum * (RECENT_ALPHA / (2.0 - RECENT_ALPHA)).sqrt()
    }
}

/// Tables whose budgets are kept, and the memory that is set aside for them.
const TABLES_MAX: usize = 64;
// A B-tree's nodes are at least half full, and have some words beside their entries.
const TABLES_BYTES: usize = TABLES_MAX * (2 * size_of::<(TableId, TableBudget)>() + 16);

#[cfg(test)]
mod tests;
