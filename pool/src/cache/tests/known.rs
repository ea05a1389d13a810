//! Traces whose answer is known: a scan, a loop, a moving set, a hot set beside a scan; estimates of the sketch; savings.

use super::super::tinylfu::Sketch;
use super::*;
use thermocline_base::rng::Rng;

fn hit_ratio(kind: CacheKind, setup: &CacheSetup, trace: &[Request]) -> f64 {
    let mut cache = Checked::new(build(kind, setup, trace), setup.slots);
    trace.iter().for_each(|request| _ = cache.request(request));
    cache.hits as f64 / trace.len() as f64
}

fn reads(pages: impl IntoIterator<Item = u64>) -> Vec<Request> {
    pages.into_iter().map(Request::read).collect()
}

#[test]
fn a_scan_has_no_hit_and_a_set_that_fits_misses_once() {
    for kind in CacheKind::ALL {
        let setup = CacheSetup::new(64);
        assert_eq!(hit_ratio(kind, &setup, &reads(0..1000)), 0.0, "{kind}");
        let trace = reads((0..10).flat_map(|_| 0..50));
        assert_eq!(hit_ratio(kind, &setup, &trace), 0.9, "{kind}");
    }
}

#[test]
fn a_loop_that_does_not_fit_is_lost_on_some_only() {
    let setup = CacheSetup::new(100);
    let trace = reads((0..40).flat_map(|_| 0..125));
    // The recent ones are those that come last: these never hit.
    for kind in [CacheKind::Lru, CacheKind::Fifo, CacheKind::Clock] {
        assert_eq!(hit_ratio(kind, &setup, &trace), 0.0, "{kind}");
    }
    // Belady keeps 99 or 100 of 125 from the second round on.
    let best = hit_ratio(CacheKind::Opt, &setup, &trace);
    assert!((0.76..=0.79).contains(&best), "{best}");
    // These keep most of the loop.
    for kind in [CacheKind::Lirs, CacheKind::Tac, CacheKind::WTinyLfu] {
        let ratio = hit_ratio(kind, &setup, &trace);
        assert!(ratio > 0.6 && ratio <= best, "{kind}: {ratio}");
    }
}

#[test]
fn all_follow_a_set_that_moves() {
    // 50 pages for a while, then 50 others, six times. What is asked for fits into the slots.
    let mut rng = Rng::new(1);
    let trace =
        reads((0..6).flat_map(|part| (0..6000).map(move |_| part * 1000)).map(|from| from + rng.below(50)));
    for kind in CacheKind::ALL {
        let ratio = hit_ratio(kind, &CacheSetup::new(60), &trace);
        assert!(ratio > 0.8, "{kind}: {ratio}");
    }
}

#[test]
fn what_is_read_at_random_stays_beside_a_scan() {
    // A set as large as the cache, drawn uniformly, and three times as many requests of an endless scan in runs of 64.
    let mut rng = Rng::new(2);
    let mut trace = Vec::new();
    let mut next = 1 << 20;
    for _ in 0..600 {
        trace.extend(reads((0..20).map(|_| 32 * rng.below(200))));
        trace.extend(reads(next..next + 64));
        next += 64;
    }
    let setup = CacheSetup::new(200);
    let ratio = |kind| hit_ratio(kind, &setup, &trace);
    let (tac, lru, best) = (ratio(CacheKind::Tac), ratio(CacheKind::Lru), ratio(CacheKind::Opt));
    assert!(tac > 0.9 * best && lru < 0.6 * best, "tac {tac}, lru {lru}, opt {best}");
}

#[test]
fn what_the_primary_reads_as_fast_passes_by() {
    let savings = Savings { sequential_ns: -1.0, random_ns: 1e6 };
    let setup = CacheSetup { savings, ..CacheSetup::new(100) };
    let mut tac = CacheKind::TacTold.build(&setup).expect("online");
    let mut admit = |told| {
        let request = Request { told, ..Request::read(told as u64 * 1000) };
        assert_eq!(tac.request(&request), None);
        tac.admit(&request)
    };
    assert_eq!(admit(Told::Sequential), Admission::Pass);
    assert_eq!(admit(Told::Random), Admission::Empty(0));
    // Not told: known from the last window.
    let mut tac = CacheKind::Tac.build(&setup).expect("online");
    let admitted = (0..64).filter(|page| {
        tac.request(&Request::read(*page));
        tac.admit(&Request::read(*page)) != Admission::Pass
    });
    assert_eq!(
        admitted.count(),
        19 + 7,
        "before the first window ends, and of the second extent before the second window does"
    );
}

#[test]
fn writes_warm_nothing_and_halving_forgets() {
    let setup = CacheSetup { extent_pages: 1, ..CacheSetup::new(2) };
    let mut temperatures = temperature::Temperatures::new(&setup, TacOptions::default());
    let mut read = |page| _ = temperatures.count(&Request::read(page));
    (0..20).for_each(&mut read);
    let unit = 1.0;
    assert_eq!(
        temperatures.of(7),
        2.0 * unit,
        "two halvings of ten requests each: the unit is 4, one came before"
    );
    (0..100).for_each(|_| _ = temperatures.count(&Request::write(7)));
    assert_eq!(temperatures.of(7), 2.0 * unit);
}

#[test]
fn a_sketch_is_never_too_low_until_it_is_halved() {
    let mut sketch = Sketch::new(1000);
    let mut rng = Rng::new(3);
    let mut counts = [0_u64; 300];
    for _ in 0..2000 {
        let page = rng.below(300);
        counts[page as usize] += 1;
        sketch.count(page);
    }
    let estimates: Vec<u64> = (0..300).map(|page| sketch.estimate(page)).collect();
    assert!(counts.iter().zip(&estimates).all(|(count, estimate)| *estimate >= (*count).min(15)));
    let right =
        counts.iter().zip(&estimates).filter(|(count, estimate)| **estimate == (**count).min(15)).count();
    assert!(right > 270, "{right} of 300 are exact");
}

/// Requests a second of one policy on one core: `cargo test --release -p thermocline-pool policies_a_second -- --ignored --nocapture`.
#[test]
#[ignore = "measures times: .ci/deep step"]
fn policies_a_second() {
    const SLOTS: u32 = 100_000;
    let mut rng = Rng::new(4);
    // Half of them to a tenth of the pages.
    let trace: Vec<Request> = (0..2_000_000)
        .map(|_| {
            let pages = if rng.chance(0.5) { 100_000 } else { 1_000_000 };
            Request::read(rng.below(pages))
        })
        .collect();
    for kind in CacheKind::ALL {
        let mut policy = build(kind, &CacheSetup::new(SLOTS), &trace);
        let begin = thermocline_base::clock::thread_cpu_ns();
        let mut hits = 0;
        for request in &trace {
            match policy.request(request) {
                Some(_) => hits += 1,
                None => _ = policy.admit(request),
            }
        }
        let took = thermocline_base::clock::thread_cpu_since(begin) as f64;
        let rate = trace.len() as f64 / took * 1e3;
        let bytes = policy.bytes() / SLOTS as usize;
        println!(
            "{kind}: {rate:.1} M/s, {:.1} % hits, {bytes} B a slot",
            100.0 * f64::from(hits) / trace.len() as f64
        );
        assert!(rate > 2.0 || !kind.is_online(), "{kind}: {rate} M requests/s");
    }
}

/// A level learns what reads cost only after a while: what it has known before must not be lighter or heavier for that.
#[test]
fn what_was_warm_before_savings_were_learned_weighs_the_same_after_it() {
    let setup = CacheSetup { extent_pages: 4, ..CacheSetup::new(100) };
    let told = TacOptions { told: true, window: 1, halve_after: 0, ..TacOptions::default() };
    let mut temperatures = temperature::Temperatures::new(&setup, told);
    let random = |page| Request { told: Told::Random, ..Request::read(page) };
    (0..3).for_each(|_| _ = temperatures.count(&random(0)));
    temperatures.set_savings(Savings { sequential_ns: 5_000.0, random_ns: 500_000.0 });
    (0..3).for_each(|_| _ = temperatures.count(&random(8)));
    assert_eq!(temperatures.of(0), temperatures.of(8));
    (0..100).for_each(|_| _ = temperatures.count(&Request { told: Told::Sequential, ..Request::read(16) }));
    assert!((temperatures.of(16) - 1.0).abs() < 1e-3, "a hundred sequential reads are one random read here");
}

/// One page in 32 is read often, the others once in a while: temperatures of extents cannot tell them apart, shares can.
#[test]
fn shares_keep_the_hot_page_of_each_extent() {
    let mut rng = Rng::new(5);
    let page = |rng: &mut Rng| 32 * rng.below(300) + if rng.chance(0.8) { 0 } else { rng.below(32) };
    let trace = reads((0..60_000).map(|_| page(&mut rng)));
    let setup = CacheSetup::new(320);
    let ratio = |kind| hit_ratio(kind, &setup, &trace);
    let (extents, pages, best) =
        (ratio(CacheKind::TacTold), ratio(CacheKind::TacPages), ratio(CacheKind::Opt));
    assert!(pages > 0.75 && pages > 0.9 * best && extents < 0.5 * pages, "{extents}, {pages}, opt {best}");
}

/// Shares spread the temperature of an extent and make none; scans that are told to be scans change no share.
#[test]
fn shares_of_an_extent_are_its_temperature() {
    let options = TacOptions { told: true, shares: true, window: 1, halve_after: 0, ..TacOptions::default() };
    for extent_pages in [1, 4, 32, 128] {
        let setup = CacheSetup { extent_pages, ..CacheSetup::new(100) };
        let mut temperatures = temperature::Temperatures::new(&setup, options);
        let mut rng = Rng::new(6);
        let pages = u64::from(extent_pages);
        for _ in 0..500 {
            let page = rng.below(pages).min(rng.below(pages));
            let _ = temperatures.count(&Request { told: Told::Random, ..Request::read(page) });
        }
        let before: Vec<f64> = (0..pages).map(|page| temperatures.of_page(page)).collect();
        let mean = before.iter().sum::<f64>() / pages as f64;
        assert!((mean / temperatures.of(0) - 1.0).abs() < 1e-9, "{extent_pages}: {mean}");
        assert!(pages == 1 || before[0] > 1.5 * before[pages as usize - 1], "{before:?}");
        let shares = |temperatures: &temperature::Temperatures| -> Vec<f64> {
            (0..pages).map(|page| temperatures.of_page(page) / temperatures.of(page)).collect()
        };
        let told = shares(&temperatures);
        (0..pages).for_each(|page| {
            let _ = temperatures.count(&Request { told: Told::Sequential, ..Request::read(page) });
        });
        assert_eq!(told, shares(&temperatures));
        temperatures.cool(0);
        let _ = temperatures.count(&Request { told: Told::Random, ..Request::read(pages - 1) });
        assert!(temperatures.of(0) <= 1.0 && (pages == 1 || temperatures.of_page(0) < temperatures.of(0)));
    }
}
