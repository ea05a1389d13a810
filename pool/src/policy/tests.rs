//! Policies by themselves: their contract, and how many hits they give on traces.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use thermocline_base::rng::Rng;

use super::*;
use proptest::prelude::*;

/// Frames without bytes.
struct Bench {
    policy: Box<dyn Policy>,
    frames: usize,
    places: HashMap<u64, u32>,
    pages: HashMap<u32, u64>,
    uses: RefCell<Vec<u16>>,
    pinned: HashSet<u32>,
    most: u16,
}

/// The part of a bench that a policy may see.
struct View<'a> {
    uses: &'a RefCell<Vec<u16>>,
    pinned: &'a HashSet<u32>,
    pages: &'a HashMap<u32, u64>,
    taken: Option<u32>,
}

impl Candidates for View<'_> {
    fn uses(&self, frame: u32) -> u16 {
        self.uses.borrow()[frame as usize]
    }

    fn set_uses(&self, frame: u32, uses: u16) {
        self.uses.borrow_mut()[frame as usize] = uses;
    }

    fn take(&mut self, frame: u32) -> bool {
        assert!(self.pages.contains_key(&frame), "only frames with a page are offered");
        assert_eq!(self.taken, None, "one frame is taken");
        if self.pinned.contains(&frame) {
            return false;
        }
        self.taken = Some(frame);
        true
    }
}

impl Bench {
    fn new(kind: PolicyKind, frames: usize) -> Self {
        let policy = kind.build();
        Self {
            most: policy.most_uses(),
            policy,
            frames,
            places: HashMap::new(),
            pages: HashMap::new(),
            uses: RefCell::new(vec![0; frames]),
            pinned: HashSet::new(),
        }
    }

    fn choose(&mut self) -> Option<u32> {
        let mut view = View { uses: &self.uses, pinned: &self.pinned, pages: &self.pages, taken: None };
        let chosen = self.policy.choose(&mut view);
        assert_eq!(chosen, view.taken, "the frame that was taken is given");
        if let Some(page) = chosen.and_then(|frame| self.pages.remove(&frame)) {
            self.places.remove(&page);
        }
        chosen
    }

    /// Was the page there?
    fn request(&mut self, page: u64) -> bool {
        if let Some(frame) = self.places.get(&page) {
            let uses = &mut self.uses.borrow_mut()[*frame as usize];
            *uses = (*uses + 1).min(self.most);
            return true;
        }
        let empty = (self.places.len() < self.frames)
            .then(|| (0..self.frames as u32).find(|frame| !self.pages.contains_key(frame)))
            .flatten();
        if let Some(frame) = empty.or_else(|| self.choose()) {
            self.policy.insert(frame, page);
            self.uses.borrow_mut()[frame as usize] = 0;
            self.places.insert(page, frame);
            self.pages.insert(frame, page);
        }
        false
    }

    fn hit_ratio(mut self, trace: &[u64]) -> f64 {
        let hits = trace.iter().filter(|page| self.request(**page)).count();
        hits as f64 / trace.len() as f64
    }
}

/// Ranks `0..pages` with Zipf's distribution.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(pages: usize, theta: f64) -> Self {
        let mut sum = 0.0;
        let sums = (1..=pages).map(|rank| {
            sum += (rank as f64).powf(-theta);
            sum
        });
        Self(sums.collect())
    }

    fn draw(&self, rng: &mut Rng) -> u64 {
        let point = rng.unit() * self.0[self.0.len() - 1];
        self.0.partition_point(|sum| *sum < point) as u64
    }
}

const PAGES: usize = 20_000;
const REQUESTS: usize = 150_000;

/// The traces, by name.
fn traces() -> Vec<(&'static str, Vec<u64>)> {
    let mut rng = Rng::new(5);
    let zipf = Zipf::new(PAGES, 0.99);
    let skewed: Vec<u64> = (0..REQUESTS).map(|_| zipf.draw(&mut rng)).collect();
    // Every tenth of the trace a scan over as many pages as half of all passes by, each page read twice in a row.
    let mut scans = Vec::new();
    for (index, page) in skewed.iter().enumerate() {
        if index % (REQUESTS / 10) == 0 {
            let first = 1_000_000 + index as u64 * 100;
            scans.extend((first..first + PAGES as u64 / 2).flat_map(|page| [page, page]));
        }
        scans.push(*page);
    }
    let moving =
        (0..REQUESTS).map(|index| (zipf.draw(&mut rng) + index as u64 / 15_000 * 3000) % PAGES as u64);
    let moving = moving.collect();
    let uniform = (0..REQUESTS).map(|_| rng.below(PAGES as u64)).collect();
    // Inner pages of trees and the leaves under them: one of 200 pages, then one of all.
    let tree = (0..REQUESTS / 2).flat_map(|_| {
        let leaf = rng.below(PAGES as u64);
        [2_000_000 + leaf / 100, leaf]
    });
    let tree = tree.collect();
    vec![
        ("zipf 0.99", skewed),
        ("zipf and scans", scans),
        ("moving zipf", moving),
        ("uniform", uniform),
        ("tree", tree),
    ]
}

/// The figures behind the choice of the default: `cargo test -p thermocline-pool policies_on_traces -- --nocapture`.
#[test]
fn policies_on_traces() {
    let mut ratios = HashMap::new();
    for (name, trace) in traces() {
        for share in [100, 10] {
            for kind in PolicyKind::ALL {
                let ratio = Bench::new(kind, PAGES / share).hit_ratio(&trace);
                println!("{name}, 1/{share} of the pages, {kind:?}: {:.1} % hits", 100.0 * ratio);
                ratios.insert((name, share, kind == PolicyKind::S3Fifo), ratio);
            }
        }
    }
    let cases = ["zipf 0.99", "zipf and scans"].into_iter().flat_map(|name| [(name, 100), (name, 10)]);
    for (name, share) in cases.chain([("tree", 100)]) {
        let (clock, better) = (ratios[&(name, share, false)], ratios[&(name, share, true)]);
        assert!(better > clock + 0.02, "{name}, 1/{share}: {better} against CLOCK's {clock}");
    }
}

#[test]
fn used_pages_survive_a_scan() {
    let mut bench = Bench::new(PolicyKind::S3Fifo, 100);
    for _ in 0..4 {
        (0..50).for_each(|page| _ = bench.request(page));
    }
    for page in 1000..3000 {
        bench.request(page);
    }
    let left = (0..50).filter(|page| bench.places.contains_key(page)).count();
    assert!(left >= 45, "{left} of 50 used pages survived");
}

proptest! {
    #[test]
    fn whatever_can_be_taken_is_found(
        steps in proptest::collection::vec((0u8..5, 0u64..40), 1..200),
        kind in prop::sample::select(&PolicyKind::ALL),
    ) {
        let mut bench = Bench::new(kind, 12);
        for (step, page) in steps {
            match step {
                0 => {
                    bench.pinned.insert(page as u32 % 12);
                }
                1 => {
                    bench.pinned.remove(&(page as u32 % 12));
                }
                2 => {
                    if let Some(frame) = bench.places.remove(&page) {
                        bench.pages.remove(&frame);
                        bench.policy.remove(frame);
                    }
                }
                3 => {
                    let possible = bench.pages.keys().any(|frame| !bench.pinned.contains(frame));
                    prop_assert_eq!(bench.choose().is_some(), possible);
                }
                _ => {
                    bench.request(page);
                }
            }
        }
    }
}
