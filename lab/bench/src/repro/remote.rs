//! "Large-Memory Data Processing on a Remote Memory System using Commodity Hardware" (Jung, Han and Yeom, 2007), figure 4: how
//! many slots the search of the kernel looks at, beside the words of the hierarchical bit vector.
//!
//! The paper's trace is not published. Ours has its sizes, 3.5 GB of slots with 2.7 GB used, and its phases: insertion (pages go out
//! one after another), *delimitation* (the last of them go out while the first come back), TPC-C (pages come back near
//! places that move slowly, so most of the rest stays out, and others go out for them).
//!
//! The linear search is that of Linux 2.6.13 (`scan_swap_map` in `mm/swapfile.c`): clusters of 256, then from the lowest free slot on.

use thermocline_base::rng::Rng;
use thermocline_remote::slots::Slots;

use super::{Figure, FigureReport, Panel, Point, ReproSettings, Result, Series};

/// Of 4 KiB: 3.5 GB.
const SLOTS: u64 = 3_500_000_000 / 4096;
/// Of them in use, in the end.
const USED: f64 = 2.7 / 3.5;
const CLUSTER: u32 = 256;
/// Parts of each phase.
const SLICES: u32 = 4;

/// The search of the kernel.
#[derive(Debug)]
struct Linear {
    taken: Vec<bool>,
    lowest: usize,
    highest: usize,
    next: usize,
    left: u32,
    /// Slots looked at so far.
    loops: u64,
}

impl Linear {
    fn new(slots: usize) -> Self {
        Self { taken: vec![false; slots], lowest: 0, highest: slots - 1, next: 0, left: 0, loops: 0 }
    }

    fn take(&mut self) -> Option<usize> {
        while self.left > 0 && self.next <= self.highest {
            let at = self.next;
            self.next += 1;
            self.loops += 1;
            if !self.taken[at] {
                self.left -= 1;
                return Some(self.got(at));
            }
        }
        self.left = CLUSTER;
        let found = self.empty_cluster().or_else(|| {
            (self.lowest..=self.highest).find(|at| {
                self.loops += 1;
                !self.taken[*at]
            })
        })?;
        Some(self.got(found))
    }

    /// 256 free neighbours, aligned or not.
    fn empty_cluster(&mut self) -> Option<usize> {
        let mut start = self.lowest;
        while start + CLUSTER as usize - 1 <= self.highest {
            let cluster = &self.taken[start..start + CLUSTER as usize];
            let Some(taken) = cluster.iter().position(|taken| *taken) else {
                self.loops += u64::from(CLUSTER);
                return Some(start);
            };
            self.loops += taken as u64 + 1;
            start += taken + 1;
        }
        None
    }

    fn got(&mut self, at: usize) -> usize {
        if at == self.lowest {
            self.lowest += 1;
        }
        if at == self.highest {
            self.highest = self.highest.saturating_sub(1);
        }
        self.taken[at] = true;
        self.next = at + 1;
        at
    }

    fn free(&mut self, at: usize) {
        self.taken[at] = false;
        self.lowest = self.lowest.min(at);
        self.highest = self.highest.max(at);
    }
}

/// Both, asked for the same.
struct Both {
    linear: Linear,
    slots: Slots,
    /// By page: its slot in each.
    out: Vec<(usize, u64)>,
    mean: [Vec<Point>; 2],
    most: [Vec<Point>; 2],
}

impl Both {
    /// A part of a phase: so many pages go out; gives means and maxima of what was looked at.
    fn slice(
        &mut self,
        x: u32,
        label: &str,
        takes: u64,
        mut comes_back: impl FnMut(&[(usize, u64)]) -> Option<usize>,
    ) {
        let (mut sum, mut most) = ([0_u64; 2], [0_u64; 2]);
        for _ in 0..takes {
            if let Some(at) = comes_back(&self.out) {
                let (linear, slot) = self.out.swap_remove(at);
                self.linear.free(linear);
                self.slots.free(slot);
            }
            let before = [self.linear.loops, self.slots.touched_words()];
            let (Some(linear), Some(slot)) = (self.linear.take(), self.slots.take()) else { break };
            for (at, now) in [self.linear.loops, self.slots.touched_words()].into_iter().enumerate() {
                sum[at] += now - before[at];
                most[at] = most[at].max(now - before[at]);
            }
            self.out.push((linear, slot));
        }
        for at in 0..2 {
            let point = |value: f64| Point {
                label: Some(label.to_owned()),
                ..Point::new(f64::from(x), vec![value], None)
            };
            self.mean[at].push(point(sum[at] as f64 / takes as f64));
            self.most[at].push(point(most[at] as f64));
        }
    }
}

/// Figure 4.
pub(super) fn fig4(figure: Figure, settings: &ReproSettings) -> Result<FigureReport> {
    let slots = settings.scaled(SLOTS, 4096);
    let used = (slots as f64 * USED) as u64;
    let mut rng = Rng::new(settings.seed);
    let mut both = Both {
        linear: Linear::new(slots as usize),
        slots: Slots::all_free(slots),
        out: Vec::new(),
        mean: Default::default(),
        most: Default::default(),
    };
    let part = |pages: u64| (pages / u64::from(SLICES)).max(1);
    for slice in 0..SLICES {
        both.slice(slice, "insertion", part(used * 9 / 10), |_| None);
    }
    for slice in 0..SLICES {
        let mut round = 0_u64;
        both.slice(SLICES + slice, "delimitation", part(used / 5), |out| {
            round += 1;
            (round.is_multiple_of(2) && !out.is_empty()).then(|| rng.below(out.len() as u64 / 8 + 1) as usize)
        });
    }
    let mut place = 0.5;
    for slice in 0..SLICES * 2 {
        both.slice(2 * SLICES + slice, "TPC-C", part(used), |out| {
            // What comes back is near a place that wanders; one in eight is anywhere.
            place = (place + (rng.unit() - 0.5) * 0.002).rem_euclid(1.0);
            let near =
                if rng.chance(0.125) { rng.unit() } else { (place + rng.unit() * 0.02).rem_euclid(1.0) };
            Some((near * out.len() as f64) as usize)
        });
    }
    let [linear_mean, ours_mean] = both.mean;
    let [linear_most, ours_most] = both.most;
    let panel = |name, title: &str, linear, ours| Panel {
        name,
        title: title.to_owned(),
        x: "part of the run",
        y: "slots or words looked at",
        series: vec![
            Series { name: "linear search".to_owned(), points: linear },
            Series { name: "bit vector".to_owned(), points: ours },
        ],
    };
    let panels = vec![
        panel("mean", "looked at to find a slot, mean", linear_mean, ours_mean),
        panel("most", "looked at to find a slot, most", linear_most, ours_most),
    ];
    let setup = format!(
        "{slots} slots of 4 KiB, {used} of them used in the end; the bit vector takes {} KiB",
        both.slots.bytes() / 1024
    );
    let paper = "figure 4: from 1,200 s on the search is linear, with spikes; the bit vector takes constant time and less than 4 MB for 64 GB";
    let mut report = FigureReport::new(figure, settings, setup, paper, panels);
    report.notes.push(
        "the trace has the paper's sizes and phases and is ours; its accesses are not published".to_owned(),
    );
    Ok(report)
}
