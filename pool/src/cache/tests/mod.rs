//! Policies of the SSD level: against slow and obvious twins, against brute force, and on traces whose answer is known.

mod known;
mod twins;

use std::collections::HashMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;

/// A policy of a kind for a trace.
fn build(kind: CacheKind, setup: &CacheSetup, trace: &[Request]) -> Box<dyn CachePolicy> {
    kind.build(setup).unwrap_or_else(|| Box::new(Opt::new(setup, Arc::new(Future::new(trace)))))
}

/// A cache that checks whatever a policy promises: which page is in which slot is known outside of it, too.
struct Checked {
    policy: Box<dyn CachePolicy>,
    slots: u32,
    pages: HashMap<u64, Slot>,
    hits: u64,
}

impl Checked {
    fn new(policy: Box<dyn CachePolicy>, slots: u32) -> Self {
        Self { policy, slots, pages: HashMap::new(), hits: 0 }
    }

    /// A request, and the admission that follows a miss of a read. Says whether it was a hit, and what was done.
    fn request(&mut self, request: &Request) -> (bool, Option<Admission>) {
        if request.kind == RequestKind::Free {
            let known = self.pages.remove(&request.page);
            assert_eq!(self.policy.discard(request.page), known, "the slot of a page that is freed");
            return (known.is_some(), None);
        }
        let found = self.policy.request(request);
        assert_eq!(
            found,
            self.pages.get(&request.page).copied(),
            "page {} is where it was put",
            request.page
        );
        if found.is_some() {
            self.hits += u64::from(request.kind == RequestKind::Read);
            return (true, None);
        }
        if request.kind != RequestKind::Read {
            return (false, None);
        }
        let admission = self.policy.admit(request);
        match admission {
            Admission::Pass => {}
            Admission::Empty(slot) => {
                assert!(
                    slot < self.slots && self.pages.values().all(|used| *used != slot),
                    "slot {slot} is empty"
                );
                self.pages.insert(request.page, slot);
            }
            Admission::Replace { slot, page } => {
                assert_eq!(self.pages.remove(&page), Some(slot), "page {page} was there");
                self.pages.insert(request.page, slot);
            }
        }
        assert_eq!(self.policy.cached() as usize, self.pages.len());
        assert!(self.pages.len() <= self.slots as usize, "never more pages than slots");
        assert_eq!(self.policy.find(request.page), self.pages.get(&request.page).copied());
        if self.policy.find(request.page).is_some() {
            assert_eq!(self.policy.admit(request), Admission::Pass, "a page is not admitted twice");
        }
        (false, Some(admission))
    }
}

/// Requests for few pages, some of them near each other.
fn requests(pages: u64, most: usize) -> impl Strategy<Value = Vec<Request>> {
    let one = (0..20_u8, 0..pages, 0..pages).prop_map(|(kind, a, b)| {
        let page = a.min(b);
        match kind {
            0 => Request { page, kind: RequestKind::Free, told: Told::Nothing },
            1..4 => Request::write(page),
            _ => Request::read(page),
        }
    });
    proptest::collection::vec(one, 1..most)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(thermocline_base::depth::either(60, 2000)))]

    #[test]
    fn what_is_cached_is_where_the_policy_said(slots in 1..40_u32, trace in requests(100, 600)) {
        for kind in CacheKind::ALL {
            let setup = CacheSetup { extent_pages: 4, ..CacheSetup::new(slots) };
            let mut cache = Checked::new(build(kind, &setup, &trace), slots);
            trace.iter().for_each(|request| _ = cache.request(request));
        }
    }

    #[test]
    fn tac_keeps_its_heap(slots in 1..40_u32, trace in requests(200, 800)) {
        let setup = CacheSetup { extent_pages: 4, ..CacheSetup::new(slots) };
        let mut tac = tac::Tac::<f32>::new(&setup, TacOptions::default());
        for request in &trace {
            match request.kind {
                RequestKind::Free => _ = tac.discard(request.page),
                RequestKind::Read => if tac.request(request).is_none() { _ = tac.admit(request) },
                _ => _ = tac.request(request),
            }
            tac.check();
        }
    }

    #[test]
    fn nothing_has_more_hits_than_opt(slots in 1..12_u32, trace in requests(40, 300)) {
        let hits = |kind| {
            let setup = CacheSetup { extent_pages: 4, ..CacheSetup::new(slots) };
            let mut cache = Checked::new(build(kind, &setup, &trace), slots);
            trace.iter().for_each(|request| _ = cache.request(request));
            cache.hits
        };
        let best = hits(CacheKind::Opt);
        for kind in CacheKind::ALL {
            prop_assert!(hits(kind) <= best, "{kind} has {} hits, opt {best}", hits(kind));
        }
    }

    #[test]
    fn opt_is_the_best_that_brute_force_finds(slots in 1..4_u32, pages in proptest::collection::vec(0..6_u64, 1..12)) {
        let trace: Vec<Request> = pages.iter().map(|page| Request::read(*page)).collect();
        let setup = CacheSetup::new(slots);
        let mut cache = Checked::new(build(CacheKind::Opt, &setup, &trace), slots);
        trace.iter().for_each(|request| _ = cache.request(request));
        prop_assert_eq!(cache.hits, best_hits(&pages, slots as usize, &mut Vec::new()));
    }
}

/// The most hits that any sequence of decisions gives.
fn best_hits(pages: &[u64], slots: usize, cached: &mut Vec<u64>) -> u64 {
    let Some((page, rest)) = pages.split_first() else { return 0 };
    if cached.contains(page) {
        return 1 + best_hits(rest, slots, cached);
    }
    let mut best = best_hits(rest, slots, cached);
    if cached.len() < slots {
        cached.push(*page);
        best = best.max(best_hits(rest, slots, cached));
        cached.pop();
    } else {
        for at in 0..cached.len() {
            let before = std::mem::replace(&mut cached[at], *page);
            best = best.max(best_hits(rest, slots, cached));
            cached[at] = before;
        }
    }
    best
}

#[test]
fn names_are_read_back() {
    for kind in CacheKind::ALL {
        assert_eq!(kind.name().parse(), Ok(kind));
    }
    assert!("mru".parse::<CacheKind>().expect_err("there is none").contains("tac-bands"));
}

#[test]
fn the_future_knows_the_next_read() {
    let free = Request { page: 1, kind: RequestKind::Free, told: Told::Nothing };
    let trace = [Request::read(1), Request::write(1), Request::read(1), free, Request::read(1)];
    let setup = CacheSetup::new(1);
    let mut cache = Checked::new(build(CacheKind::Opt, &setup, &trace), 1);
    let found: Vec<bool> = trace.iter().map(|request| cache.request(request).0).collect();
    // Before its free the page is not read again, so the second read does not keep it for that.
    assert_eq!(found, [false, true, true, true, false]);
}
