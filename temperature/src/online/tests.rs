//! The online classifier against what is exactly so, and a cache that follows it.

use super::*;
use crate::testing::Zipf;

const ROWS: u64 = 40_000;
const ACCESSES: u64 = 20_000;
const TABLE: TableId = TableId(1);

/// The structure that the table of candidates was preferred to: a count-min sketch with four rows of counters,
/// updated conservatively and aged each quantum. Its counters are exact here and counted as 16 bits, which flatters
/// it.
struct CountMin(Vec<f32>);

impl CountMin {
    fn new(bytes: usize) -> Self {
        Self(vec![0.0; bytes / 2 / 4 * 4])
    }

    fn places(&self, row: u64) -> [usize; 4] {
        let width = self.0.len() as u64 / 4;
        let mixed = RowName { table: TABLE, hash: row }.mixed();
        std::array::from_fn(|depth| {
            let again = RowName { table: TableId(depth as u32), hash: mixed }.mixed();
            (depth as u64 * width + again % width) as usize
        })
    }

    fn sum(&self, row: u64) -> f32 {
        self.places(row).map(|place| self.0[place]).into_iter().fold(f32::INFINITY, f32::min)
    }

    fn add(&mut self, row: u64, weight: f32) {
        let sum = self.sum(row) + weight;
        for place in self.places(row) {
            self.0[place] = self.0[place].max(sum);
        }
    }
}

/// Rows that are in memory or not, accesses by rank, and a mover that moves rows as the classifier says.
struct Cache {
    classifier: Classifier,
    zipf: Zipf,
    rng: Rng,
    /// Which row has a rank.
    rows: Vec<u64>,
    hot: Vec<bool>,
    hot_bytes: u64,
    budget: u64,
    hand: usize,
    exact: Vec<f64>,
    on: bool,
    /// Says what is hot instead of the classifier, with the classifier's threshold.
    sketch: Option<CountMin>,
}

fn bytes(row: u64) -> u32 {
    if row.is_multiple_of(3) { 400 } else { 100 }
}

fn class_bytes(row: u64) -> u64 {
    SizeClass::of(bytes(row)).bytes()
}

impl Cache {
    /// A cache of a tenth of the bytes, at random.
    fn new(memory_bytes: usize, on: bool) -> Self {
        let all: u64 = (0..ROWS).map(class_bytes).sum();
        let budget = all / 10;
        let options =
            ClassifierOptions { memory_bytes, budget_bytes: budget, alpha: 0.02, alpha_shift: 0.2, seed: 5 };
        let mut rng = Rng::new(77);
        let mut rows: Vec<u64> = (0..ROWS).collect();
        rng.shuffle(&mut rows);
        let mut cache = Self {
            classifier: Classifier::new(&options),
            zipf: Zipf::new(ROWS, 0.99),
            rng,
            rows,
            hot: vec![false; ROWS as usize],
            hot_bytes: 0,
            budget,
            hand: 0,
            exact: vec![0.0; ROWS as usize],
            on,
            sketch: None,
        };
        while cache.hot_bytes < budget {
            let row = cache.rng.below(ROWS);
            cache.bring(row);
        }
        cache
    }

    fn is_hot(&self, row: u64) -> bool {
        match &self.sketch {
            Some(sketch) => sketch.sum(row) * 0.02 >= self.classifier.threshold() * class_bytes(row) as f32,
            None => self.classifier.is_hot(TABLE, row, bytes(row)),
        }
    }

    fn bring(&mut self, row: u64) {
        if !std::mem::replace(&mut self.hot[row as usize], true) {
            self.hot_bytes += class_bytes(row);
        }
    }

    /// One quantum: the share of the accesses that found their row in memory. A tenth of those is recorded, and
    /// all the others.
    fn quantum(&mut self) -> f64 {
        let mut hits = 0;
        let mut records = Vec::new();
        self.exact.iter_mut().for_each(|exact| *exact *= 0.98);
        for _ in 0..ACCESSES {
            let row = self.rows[self.zipf.draw(&mut self.rng) as usize];
            self.exact[row as usize] += 0.02;
            let name = RowName { table: TABLE, hash: row };
            let (size, cold) = (SizeClass::of(bytes(row)), !self.hot[row as usize]);
            if cold {
                records.push(Access { row: name, size, weight: 1, cold });
            } else {
                hits += 1;
                if self.rng.chance(0.1) {
                    records.push(Access { row: name, size, weight: 10, cold });
                }
            }
        }
        self.classifier.observe(&records);
        self.classifier.end_quanta(1);
        if let Some(sketch) = &mut self.sketch {
            records.iter().for_each(|access| sketch.add(access.row.hash, access.weight as f32));
            sketch.0.iter_mut().for_each(|counter| *counter *= 0.98);
        }
        if self.on {
            let come: Vec<u64> =
                records.iter().filter(|access| access.cold).map(|access| access.row.hash).collect();
            for row in come {
                if self.is_hot(row) {
                    self.bring(row);
                }
            }
            // A hand goes round and takes out what is not hot, and in a second round whatever it meets.
            let mut passed = 0;
            while self.hot_bytes > self.budget {
                let row = self.hand as u64;
                let stays = passed < ROWS && self.is_hot(row);
                if self.hot[self.hand] && !stays {
                    self.hot[self.hand] = false;
                    self.hot_bytes -= class_bytes(row);
                }
                self.hand = (self.hand + 1) % ROWS as usize;
                passed += 1;
            }
        }
        hits as f64 / ACCESSES as f64
    }

    fn quanta(&mut self, count: u32) -> f64 {
        (0..count).map(|_| self.quantum()).sum::<f64>() / f64::from(count)
    }

    /// The best that a cache of this size could do.
    fn best(&self) -> f64 {
        let mut order: Vec<u64> = (0..ROWS).collect();
        let density = |row: u64| self.exact[row as usize] / class_bytes(row) as f64;
        order.sort_by(|a, b| density(*b).total_cmp(&density(*a)));
        let mut used = 0;
        let inside = order.iter().take_while(|row| {
            used += class_bytes(**row);
            used <= self.budget
        });
        inside.map(|row| self.exact[*row as usize]).sum::<f64>() / self.exact.iter().sum::<f64>()
    }
}

/// 32 KiB for 40,000 rows: less than a byte a row, less than 3 % of the hot rows' own bytes twice over.
const MEMORY: usize = 32 << 10;

#[test]
fn without_classification_the_hit_ratio_falls() {
    let mut classified = Cache::new(MEMORY, true);
    let mut random = Cache::new(MEMORY, false);
    classified.quanta(150);
    random.quanta(150);
    let (with, without) = (classified.quanta(50), random.quanta(50));
    let best = classified.best();
    println!("hits: classified {with:.3}, at random {without:.3}, best {best:.3}");
    assert!(without < 0.25, "{without}");
    assert!(with > 0.88 * best, "{with} of {best}");
    // Switched off in the middle of the way: placement stands still while the hot rows move on.
    classified.on = false;
    let mut rows = std::mem::take(&mut classified.rows);
    classified.rng.shuffle(&mut rows);
    classified.rows = rows;
    let off = classified.quanta(50);
    assert!(off < 0.5 * with, "{off} is not much less than {with}");
}

#[test]
fn a_sketch_without_names_places_rows_worse() {
    for memory in [16 << 10, 64 << 10] {
        let hits = [false, true].map(|sketch| {
            let mut cache = Cache::new(memory, true);
            cache.sketch = sketch.then(|| CountMin::new(memory / 8 * 7));
            cache.quanta(80);
            cache.quanta(20)
        });
        println!("{memory} bytes: candidates {:.3}, count-min {:.3} hits", hits[0], hits[1]);
        assert!(hits[0] > hits[1], "{memory} bytes: {hits:?}");
    }
}

#[test]
fn it_follows_a_hot_set_that_moves() {
    const QUANTA: u32 = 40;
    let mut cache = Cache::new(MEMORY, true);
    cache.quanta(170);
    let mut rows = std::mem::take(&mut cache.rows);
    cache.rng.shuffle(&mut rows);
    // The rows that are hot now have other sizes, so that more or fewer of them fit.
    let mut fresh = Cache::new(MEMORY, true);
    fresh.rows.clone_from(&rows);
    fresh.quanta(150);
    let possible = fresh.quanta(20);
    cache.rows = rows;
    let mut needed = None;
    for quantum in 0..QUANTA {
        let hits = cache.quantum();
        if quantum == 2 {
            assert!(cache.classifier.is_shifting() && cache.classifier.is_settling());
        }
        if needed.is_none() && hits > 0.9 * possible {
            needed = Some(quantum);
        }
    }
    println!("90 % of the hits are back after {needed:?} quanta");
    assert!(needed.is_some(), "90 % of {possible} did not come back within {QUANTA} quanta");
    cache.quanta(100);
    assert!(!cache.classifier.is_shifting());
    let after = cache.quanta(20);
    assert!(after > 0.97 * possible, "{after} of {possible}");
}

/// A hot set that has settled is left alone, but for some quanta in a while in which it is tried out whether it has.
#[test]
fn what_has_settled_is_tried_out_now_and_then() {
    let mut cache = Cache::new(MEMORY, true);
    let mut settling = |quanta: u32| {
        let is_settling = |_: &u32| {
            cache.quantum();
            cache.classifier.is_settling()
        };
        (0..quanta).filter(is_settling).count()
    };
    let first = settling(40);
    assert!(first > 12, "it fills up: {first} of 40 quanta");
    settling(160);
    let later = settling(360);
    // The accesses are few here, and so are the rows: their shares go to and fro.
    assert!((20..=60).contains(&later), "{later} of 360 quanta");
}

#[test]
fn temperatures_are_right_on_average_and_hot_rows_take_their_budget() {
    // Nothing is moved and all is recorded as cold, so only the classifier's own errors are left.
    let mut cache = Cache::new(128 << 10, false);
    cache.hot.fill(false);
    cache.quanta(200);
    let (mut estimated, mut exact) = (0.0, 0.0);
    for row in &cache.rows[..500] {
        estimated += f64::from(cache.classifier.temperature(TABLE, *row));
        exact += cache.exact[*row as usize];
    }
    assert!((estimated / exact - 1.0).abs() < 0.05, "{estimated} against {exact}");
    let hot: u64 =
        (0..ROWS).filter(|row| cache.classifier.is_hot(TABLE, *row, bytes(*row))).map(class_bytes).sum();
    let share = hot as f64 / cache.budget as f64;
    assert!((0.8..1.2).contains(&share), "hot rows take {share} of their budget");
    let tables = cache.classifier.tables();
    assert!((tables[&TABLE].bytes as f64 / cache.budget as f64 - 1.0).abs() < 0.05, "{tables:?}");
    let (threshold, smaller) =
        (cache.classifier.threshold(), cache.classifier.threshold_for(cache.budget / 4));
    assert!(threshold > 0.0 && smaller > 2.0 * threshold, "{threshold} {smaller}");
    assert_eq!(cache.classifier.threshold_for(u64::MAX), 0.0);
    assert!(!cache.classifier.is_hot(TABLE, 1 << 40, 100), "a stranger is not hot");
}

#[test]
fn it_keeps_to_its_budget_of_memory() {
    for memory_bytes in [16 << 10, 100_000, 1 << 20, 10_000_000, 64 << 20] {
        let options = ClassifierOptions { memory_bytes, ..ClassifierOptions::for_limit(1 << 30, 1 << 29) };
        let classifier = Classifier::new(&options);
        let before = classifier.memory_bytes();
        assert!(before <= memory_bytes && before > memory_bytes / 2, "{before} of {memory_bytes}");
        let mut rng = Rng::new(1);
        for _ in 0..20 {
            let accesses: Vec<Access> = (0..2_000)
                .map(|_| {
                    let row = RowName { table: TableId(rng.below(100) as u32), hash: rng.next_u64() };
                    Access { row, size: SizeClass::of(100), weight: 1, cold: true }
                })
                .collect();
            classifier.observe(&accesses);
            classifier.end_quanta(1);
        }
        assert_eq!(classifier.memory_bytes(), before);
        classifier.set_memory(memory_bytes / 3);
        let least = (memory_bytes / 3).max(Classifier::MEMORY_MIN);
        assert!(classifier.memory_bytes() <= least && classifier.memory_bytes() > least / 5);
        classifier.set_memory(usize::MAX / 2);
        assert!(classifier.memory_bytes() <= memory_bytes);
    }
    let limit = 1 << 30;
    assert!(
        Classifier::new(&ClassifierOptions::for_limit(limit, 1)).memory_bytes() as u64 <= limit / 100 * 3
    );
}
