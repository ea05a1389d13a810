//! Slow, obvious twins: lists that are searched and shifted, temperatures that are computed anew.

use super::super::tinylfu::Sketch;
use super::*;

/// A twin's answer to a page that missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Done {
    Pass,
    Empty,
    Replace(u64),
}

/// A policy over page numbers alone.
trait Twin {
    fn request(&mut self, request: &Request) -> bool;
    fn admit(&mut self, request: &Request) -> Done;
    fn discard(&mut self, page: u64);
    /// Where the policy put the page.
    fn put(&mut self, _page: u64, _slot: Slot) {}
}

fn run_beside(kind: CacheKind, twin: &mut dyn Twin, slots: u32, trace: &[Request]) {
    let setup = CacheSetup { extent_pages: 4, ..CacheSetup::new(slots) };
    let mut cache = Checked::new(build(kind, &setup, trace), slots);
    for (at, request) in trace.iter().enumerate() {
        if request.kind == RequestKind::Free {
            cache.request(request);
            twin.discard(request.page);
            continue;
        }
        let (hit, admission) = cache.request(request);
        assert_eq!(hit, twin.request(request), "{kind}: request {at}: {request:?}");
        let Some(admission) = admission else { continue };
        let (done, slot) = match admission {
            Admission::Pass => (Done::Pass, None),
            Admission::Empty(slot) => (Done::Empty, Some(slot)),
            Admission::Replace { slot, page } => (Done::Replace(page), Some(slot)),
        };
        assert_eq!(done, twin.admit(request), "{kind}: request {at}: {request:?}");
        if let Some(slot) = slot {
            twin.put(request.page, slot);
        }
    }
}

fn take(list: &mut Vec<u64>, page: u64) -> bool {
    let at = list.iter().position(|other| *other == page);
    at.is_some_and(|at| {
        list.remove(at);
        true
    })
}

/// LRU and FIFO: the oldest first.
struct List {
    pages: Vec<u64>,
    slots: usize,
    moves: bool,
}

impl Twin for List {
    fn request(&mut self, request: &Request) -> bool {
        let found = self.pages.contains(&request.page);
        if found && self.moves {
            take(&mut self.pages, request.page);
            self.pages.push(request.page);
        }
        found
    }

    fn admit(&mut self, request: &Request) -> Done {
        let done =
            if self.pages.len() < self.slots { Done::Empty } else { Done::Replace(self.pages.remove(0)) };
        self.pages.push(request.page);
        done
    }

    fn discard(&mut self, page: u64) {
        take(&mut self.pages, page);
    }
}

/// CLOCK: places in a circle.
struct Circle {
    places: Vec<Option<(u64, bool)>>,
    hand: usize,
    full: bool,
}

impl Twin for Circle {
    fn request(&mut self, request: &Request) -> bool {
        let place = self.places.iter_mut().flatten().find(|(page, _)| *page == request.page);
        place.is_some_and(|(_, used)| {
            *used = true;
            true
        })
    }

    fn admit(&mut self, _: &Request) -> Done {
        self.full = self.places.iter().all(Option::is_some);
        if !self.full {
            return Done::Empty;
        }
        loop {
            let (page, used) = self.places[self.hand].as_mut().expect("all are full");
            let (page, was_used) = (*page, std::mem::take(used));
            if !was_used {
                self.places[self.hand] = None;
                self.hand = (self.hand + 1) % self.places.len();
                return Done::Replace(page);
            }
            self.hand = (self.hand + 1) % self.places.len();
        }
    }

    fn discard(&mut self, page: u64) {
        self.places.iter_mut().for_each(|place| _ = place.take_if(|(other, _)| *other == page));
    }

    fn put(&mut self, page: u64, slot: Slot) {
        self.places[slot as usize] = Some((page, true));
    }
}

/// SIEVE: the newest first; the hand is the page that it looks at next.
struct SieveList {
    pages: Vec<(u64, bool)>,
    hand: Option<u64>,
    slots: usize,
}

impl SieveList {
    fn before(&self, at: usize) -> Option<u64> {
        at.checked_sub(1).map(|at| self.pages[at].0)
    }
}

impl Twin for SieveList {
    fn request(&mut self, request: &Request) -> bool {
        let place = self.pages.iter_mut().find(|(page, _)| *page == request.page);
        place.is_some_and(|place| {
            place.1 = true;
            true
        })
    }

    fn admit(&mut self, request: &Request) -> Done {
        let mut done = Done::Empty;
        if self.pages.len() == self.slots {
            let last = self.pages.len() - 1;
            let mut at =
                self.hand.map_or(last, |hand| self.pages.iter().position(|p| p.0 == hand).expect("there"));
            while self.pages[at].1 {
                self.pages[at].1 = false;
                at = at.checked_sub(1).unwrap_or(last);
            }
            self.hand = self.before(at);
            done = Done::Replace(self.pages.remove(at).0);
        }
        self.pages.insert(0, (request.page, false));
        done
    }

    fn discard(&mut self, page: u64) {
        if let Some(at) = self.pages.iter().position(|place| place.0 == page) {
            if self.hand == Some(page) {
                self.hand = self.before(at);
            }
            self.pages.remove(at);
        }
    }
}

/// S3-FIFO: the oldest first.
#[derive(Default)]
struct ThreeQueues {
    small: Vec<(u64, u32)>,
    main: Vec<(u64, u32)>,
    ghost: Vec<u64>,
    slots: usize,
}

impl ThreeQueues {
    fn small_most(&self) -> usize {
        (self.slots / 10).max(1)
    }

    fn evict(&mut self) -> u64 {
        loop {
            if self.small.len() >= self.small_most() || self.main.is_empty() {
                let (page, uses) = self.small.remove(0);
                if uses > 1 {
                    self.main.push((page, 0));
                    continue;
                }
                self.ghost.push(page);
                if self.ghost.len() > self.slots - self.small_most() {
                    self.ghost.remove(0);
                }
                return page;
            }
            let (page, uses) = self.main.remove(0);
            if uses == 0 {
                return page;
            }
            self.main.push((page, uses - 1));
        }
    }
}

impl Twin for ThreeQueues {
    fn request(&mut self, request: &Request) -> bool {
        let place = self.small.iter_mut().chain(&mut self.main).find(|(page, _)| *page == request.page);
        place.is_some_and(|(_, uses)| {
            *uses = (*uses + 1).min(3);
            true
        })
    }

    fn admit(&mut self, request: &Request) -> Done {
        let known = take(&mut self.ghost, request.page);
        let full = self.small.len() + self.main.len() == self.slots;
        let done = if full { Done::Replace(self.evict()) } else { Done::Empty };
        if known {
            self.main.push((request.page, 0));
        } else {
            self.small.push((request.page, 0));
        }
        done
    }

    fn discard(&mut self, page: u64) {
        self.small.retain(|place| place.0 != page);
        self.main.retain(|place| place.0 != page);
        take(&mut self.ghost, page);
    }
}

/// ARC, as figure 4 of the paper has it: the oldest first.
#[derive(Default)]
struct ArcLists {
    t1: Vec<u64>,
    t2: Vec<u64>,
    b1: Vec<u64>,
    b2: Vec<u64>,
    p: f64,
    c: usize,
}

impl ArcLists {
    fn replace(&mut self, in_b2: bool) -> Done {
        if self.t1.len() + self.t2.len() < self.c {
            return Done::Empty;
        }
        let t1 = self.t1.len() as f64;
        if !self.t1.is_empty() && (t1 > self.p || in_b2 && t1 == self.p) || self.t2.is_empty() {
            let page = self.t1.remove(0);
            self.b1.push(page);
            Done::Replace(page)
        } else {
            let page = self.t2.remove(0);
            self.b2.push(page);
            Done::Replace(page)
        }
    }
}

impl Twin for ArcLists {
    fn request(&mut self, request: &Request) -> bool {
        let found = take(&mut self.t1, request.page) || take(&mut self.t2, request.page);
        if found {
            self.t2.push(request.page);
        }
        found
    }

    fn admit(&mut self, request: &Request) -> Done {
        let page = request.page;
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        if self.b1.contains(&page) {
            self.p = (self.c as f64).min(self.p + (b2 / b1).max(1.0));
            let done = self.replace(false);
            take(&mut self.b1, page);
            self.t2.push(page);
            return done;
        }
        if self.b2.contains(&page) {
            self.p = (self.p - (b1 / b2).max(1.0)).max(0.0);
            let done = self.replace(true);
            take(&mut self.b2, page);
            self.t2.push(page);
            return done;
        }
        let done = if self.t1.len() + self.b1.len() == self.c {
            if self.t1.len() < self.c {
                self.b1.remove(0);
                self.replace(false)
            } else {
                Done::Replace(self.t1.remove(0))
            }
        } else {
            if self.t1.len() + self.t2.len() + self.b1.len() + self.b2.len() == 2 * self.c
                && !self.b2.is_empty()
            {
                self.b2.remove(0);
            }
            self.replace(false)
        };
        self.t1.push(page);
        done
    }

    fn discard(&mut self, page: u64) {
        for list in [&mut self.t1, &mut self.t2, &mut self.b1, &mut self.b2] {
            take(list, page);
        }
    }
}

/// LIRS: the stack with its bottom first, sets beside it.
#[derive(Default)]
struct LirsLists {
    stack: Vec<u64>,
    queue: Vec<u64>,
    lir: Vec<u64>,
    /// Not cached; the first one left first.
    gone: Vec<u64>,
    slots: usize,
}

impl LirsLists {
    fn lir_most(&self) -> usize {
        self.slots - (self.slots / 100).max(1)
    }

    fn prune(&mut self) {
        while let Some(page) = self.stack.first().copied().filter(|page| !self.lir.contains(page)) {
            self.stack.remove(0);
            take(&mut self.gone, page);
        }
    }

    fn demote(&mut self) {
        self.prune();
        let page = self.stack.remove(0);
        take(&mut self.lir, page);
        self.queue.push(page);
        self.prune();
    }

    fn raise(&mut self, page: u64) {
        take(&mut self.stack, page);
        self.stack.push(page);
    }

    fn promote(&mut self, page: u64) {
        self.lir.push(page);
        self.raise(page);
        if self.lir.len() > self.lir_most() {
            self.demote();
        }
    }
}

impl Twin for LirsLists {
    fn request(&mut self, request: &Request) -> bool {
        let page = request.page;
        if self.lir.contains(&page) {
            self.raise(page);
        } else if !self.queue.contains(&page) {
            return false;
        } else if self.stack.contains(&page) && self.lir_most() > 0 {
            take(&mut self.queue, page);
            self.promote(page);
        } else {
            self.raise(page);
            take(&mut self.queue, page);
            self.queue.push(page);
        }
        self.prune();
        true
    }

    fn admit(&mut self, request: &Request) -> Done {
        let page = request.page;
        let mut done = Done::Empty;
        if self.lir.len() + self.queue.len() == self.slots {
            if self.queue.is_empty() {
                self.demote();
            }
            let victim = self.queue.remove(0);
            if self.stack.contains(&victim) {
                self.gone.push(victim);
                if self.gone.len() > 2 * self.slots {
                    let oldest = self.gone.remove(0);
                    take(&mut self.stack, oldest);
                    self.prune();
                }
            }
            done = Done::Replace(victim);
        }
        let known = take(&mut self.gone, page);
        if self.lir.len() < self.lir_most() || known && self.lir_most() > 0 {
            self.promote(page);
        } else {
            self.raise(page);
            self.queue.push(page);
            self.prune();
        }
        done
    }

    fn discard(&mut self, page: u64) {
        for list in [&mut self.stack, &mut self.queue, &mut self.lir, &mut self.gone] {
            take(list, page);
        }
        self.prune();
    }
}

/// W-TinyLFU: the oldest first; the sketch is the policy's own.
struct Windowed {
    window: Vec<u64>,
    probation: Vec<u64>,
    protected: Vec<u64>,
    sketch: Sketch,
    slots: usize,
}

impl Windowed {
    fn window_most(&self) -> usize {
        (self.slots / 100).max(1)
    }

    fn victim(&mut self) -> u64 {
        if self.probation.is_empty() { self.protected.remove(0) } else { self.probation.remove(0) }
    }

    fn make_room(&mut self) -> u64 {
        if self.slots == self.window_most() {
            return self.window.remove(0);
        }
        if self.window.len() < self.window_most() {
            return self.victim();
        }
        let candidate = self.window.remove(0);
        let first = self.probation.first().or(self.protected.first()).copied().expect("main has pages");
        if self.sketch.estimate(candidate) > self.sketch.estimate(first) {
            let victim = self.victim();
            self.probation.push(candidate);
            victim
        } else {
            candidate
        }
    }
}

impl Twin for Windowed {
    fn request(&mut self, request: &Request) -> bool {
        let page = request.page;
        self.sketch.count(page);
        let protected_most = (self.slots - self.window_most()) * 4 / 5;
        if take(&mut self.window, page) {
            self.window.push(page);
        } else if take(&mut self.protected, page) {
            self.protected.push(page);
        } else if take(&mut self.probation, page) {
            if protected_most == 0 {
                self.probation.push(page);
                return true;
            }
            self.protected.push(page);
            if self.protected.len() > protected_most {
                let page = self.protected.remove(0);
                self.probation.push(page);
            }
        } else {
            return false;
        }
        true
    }

    fn admit(&mut self, request: &Request) -> Done {
        let mut done = Done::Empty;
        if self.window.len() + self.probation.len() + self.protected.len() == self.slots {
            done = Done::Replace(self.make_room());
        } else if self.window.len() >= self.window_most() && self.slots > self.window_most() {
            let page = self.window.remove(0);
            self.probation.push(page);
        }
        self.window.push(request.page);
        done
    }

    fn discard(&mut self, page: u64) {
        for list in [&mut self.window, &mut self.probation, &mut self.protected] {
            take(list, page);
        }
    }
}

/// Lazy cleaning's LRU-2.
struct LastButOne {
    /// Page, last use but one, last use.
    pages: Vec<(u64, u64, u64)>,
    now: u64,
    last: Option<u64>,
    sequential: bool,
    slots: usize,
}

impl Twin for LastButOne {
    fn request(&mut self, request: &Request) -> bool {
        self.now += 1;
        let is_read = request.kind == RequestKind::Read;
        if is_read {
            self.sequential = self.last.is_some_and(|last| request.page == last + 1);
            self.last = Some(request.page);
        }
        let now = self.now;
        self.pages.iter_mut().find(|page| page.0 == request.page).is_some_and(|page| {
            if is_read {
                (page.1, page.2) = (page.2, now);
            }
            true
        })
    }

    fn admit(&mut self, request: &Request) -> Done {
        if self.pages.len() * 100 >= self.slots * 95 && self.sequential {
            return Done::Pass;
        }
        let mut done = Done::Empty;
        if self.pages.len() == self.slots {
            let at = (0..self.slots).min_by_key(|at| (self.pages[*at].1, self.pages[*at].2)).expect("full");
            done = Done::Replace(self.pages.remove(at).0);
        }
        self.pages.push((request.page, 0, self.now));
        done
    }

    fn discard(&mut self, page: u64) {
        self.pages.retain(|known| known.0 != page);
    }
}

/// Temperatures from all windows that there were, halved one after the other. In half the precision, as the policies keep
/// them: halving loses nothing of it, and each addition is rounded once.
#[derive(Default)]
struct SlowTemperatures {
    window: Vec<u64>,
    extents: HashMap<u64, f32>,
    requests: u32,
    slots: u32,
}

impl SlowTemperatures {
    fn count(&mut self, request: &Request) {
        if request.kind != RequestKind::Read {
            return;
        }
        self.window.push(request.page / 4);
        if self.window.len() == 20 {
            for extent in &self.window {
                let met = self.window.iter().filter(|other| *other == extent).count();
                let savings = Savings::default();
                let saved = if met > 2 { savings.sequential_ns / savings.random_ns } else { 1.0 };
                let known = self.extents.entry(*extent).or_default();
                *known = (f64::from(*known) + saved) as f32;
            }
            self.window.clear();
        }
        self.requests += 1;
        if self.requests == 5 * self.slots {
            self.requests = 0;
            self.extents.values_mut().for_each(|temperature| *temperature /= 2.0);
        }
    }

    fn of(&self, page: u64) -> f64 {
        self.extents.get(&(page / 4)).copied().map_or(0.0, f64::from)
    }
}

/// TAC bands: page, band, stamp of its last move, slot.
struct SlowBands {
    pages: Vec<(u64, usize, u64, Slot)>,
    bounds: Vec<f64>,
    temperatures: SlowTemperatures,
    since: u32,
    stamp: u64,
    mru: bool,
}

impl SlowBands {
    fn band(&self, page: u64) -> usize {
        let temperature = self.temperatures.of(page);
        self.bounds.iter().filter(|bound| **bound <= temperature * (1.0 + 1e-12)).count()
    }

    fn move_to(&mut self, at: usize, band: usize) {
        self.stamp += 1;
        (self.pages[at].1, self.pages[at].2) = (band, self.stamp);
    }

    fn is_full(&self) -> bool {
        self.pages.len() == self.temperatures.slots as usize
    }

    fn divide(&mut self) {
        self.since = 0;
        let mut sample: Vec<f64> = self.pages.iter().map(|page| self.temperatures.of(page.0)).collect();
        sample.sort_unstable_by(f64::total_cmp);
        self.bounds = (1..64).map(|band| sample[band * sample.len() / 64]).collect();
        self.pages.sort_unstable_by_key(|page| page.3);
        for at in 0..self.pages.len() {
            let band = self.band(self.pages[at].0);
            if band != self.pages[at].1 {
                self.move_to(at, band);
            }
        }
    }

    fn coldest(&mut self) -> usize {
        let mut corrections = 0;
        loop {
            let band = self.pages.iter().map(|page| page.1).min().expect("full");
            let of_band = (0..self.pages.len()).filter(|at| self.pages[*at].1 == band);
            let at = if self.mru {
                of_band.max_by_key(|at| self.pages[*at].2)
            } else {
                of_band.min_by_key(|at| self.pages[*at].2)
            };
            let at = at.expect("the band has pages");
            let now = self.band(self.pages[at].0);
            if now == band || corrections == 5 {
                return at;
            }
            self.move_to(at, now);
            corrections += 1;
        }
    }
}

impl Twin for SlowBands {
    fn request(&mut self, request: &Request) -> bool {
        self.temperatures.count(request);
        // Halving halves the bounds, too: they stand for the same pages.
        if request.kind == RequestKind::Read && self.temperatures.requests == 0 {
            self.bounds.iter_mut().for_each(|bound| *bound /= 2.0);
        }
        self.since += 1;
        if self.since >= self.temperatures.slots && self.is_full() {
            self.divide();
        }
        let Some(at) = self.pages.iter().position(|page| page.0 == request.page) else { return false };
        if request.kind == RequestKind::Read {
            let band = self.band(request.page);
            self.move_to(at, band);
        }
        true
    }

    fn admit(&mut self, request: &Request) -> Done {
        if !self.is_full() {
            return Done::Empty;
        }
        let at = self.coldest();
        if self.band(request.page) <= self.pages[at].1 {
            return Done::Pass;
        }
        Done::Replace(self.pages.remove(at).0)
    }

    fn discard(&mut self, page: u64) {
        self.pages.retain(|known| known.0 != page);
    }

    fn put(&mut self, page: u64, slot: Slot) {
        self.stamp += 1;
        self.pages.push((page, self.band(page), self.stamp, slot));
        if self.is_full() && self.bounds[0] == f64::INFINITY {
            self.divide();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(thermocline_base::depth::either(60, 3000)))]

    #[test]
    fn each_does_what_its_twin_does(slots in 1..30_u32, trace in requests(70, 600)) {
        let c = slots as usize;
        let list = |moves| List { pages: Vec::new(), slots: c, moves };
        run_beside(CacheKind::Lru, &mut list(true), slots, &trace);
        run_beside(CacheKind::Fifo, &mut list(false), slots, &trace);
        run_beside(CacheKind::Clock, &mut Circle { places: vec![None; c], hand: 0, full: false }, slots, &trace);
        run_beside(CacheKind::Sieve, &mut SieveList { pages: Vec::new(), hand: None, slots: c }, slots, &trace);
        run_beside(CacheKind::S3Fifo, &mut ThreeQueues { slots: c, ..ThreeQueues::default() }, slots, &trace);
        run_beside(CacheKind::Arc, &mut ArcLists { c, ..ArcLists::default() }, slots, &trace);
        run_beside(CacheKind::Lirs, &mut LirsLists { slots: c, ..LirsLists::default() }, slots, &trace);
        let mut last_but_one = LastButOne { pages: Vec::new(), now: 0, last: None, sequential: false, slots: c };
        run_beside(CacheKind::LazyCleaning, &mut last_but_one, slots, &trace);
        for (kind, mru) in [(CacheKind::TacBands, false), (CacheKind::TacBandsMru, true)] {
            let temperatures = SlowTemperatures { slots, ..SlowTemperatures::default() };
            let bounds = vec![f64::INFINITY; 63];
            let mut bands = SlowBands { pages: Vec::new(), bounds, temperatures, since: 0, stamp: 0, mru };
            run_beside(kind, &mut bands, slots, &trace);
        }
    }

    #[test]
    fn w_tinylfu_does_what_its_twin_does(slots in 1..300_u32, trace in requests(700, 1500)) {
        let mut twin = Windowed {
            window: Vec::new(),
            probation: Vec::new(),
            protected: Vec::new(),
            sketch: Sketch::new(slots),
            slots: slots as usize,
        };
        run_beside(CacheKind::WTinyLfu, &mut twin, slots, &trace);
    }

    /// With up to five slots the corrections reach each page, so what leaves is the coldest, and nothing else.
    #[test]
    fn tac_admits_what_is_warmer_than_the_coldest(slots in 1..6_u32, trace in requests(60, 600)) {
        let setup = CacheSetup { extent_pages: 4, ..CacheSetup::new(slots) };
        let mut cache = Checked::new(build(CacheKind::Tac, &setup, &trace), slots);
        let mut slow = SlowTemperatures { slots, ..SlowTemperatures::default() };
        for request in &trace {
            if request.kind != RequestKind::Free {
                slow.count(request);
            }
            let before: Vec<u64> = cache.pages.keys().copied().collect();
            let (_, Some(admission)) = cache.request(request) else { continue };
            let coldest = before.iter().map(|page| slow.of(*page)).fold(f64::INFINITY, f64::min);
            let own = slow.of(request.page);
            match admission {
                Admission::Empty(_) => prop_assert!(before.len() < slots as usize),
                Admission::Pass => {
                    prop_assert_eq!(before.len(), slots as usize);
                    prop_assert!(own < coldest * 1.01 * (1.0 + 1e-9) || own <= coldest, "{} {}", own, coldest);
                }
                Admission::Replace { page, .. } => {
                    prop_assert!((slow.of(page) - coldest).abs() <= coldest * 1e-9);
                    prop_assert!(own >= coldest * 1.01 * (1.0 - 1e-9) && own > coldest, "{} {}", own, coldest);
                }
            }
        }
    }
}
