//! Page models: heaps and trees have the pages that their rows need, a seed gives one sequence, sizes are the paper's.

use super::*;

fn steps(model: &mut dyn PageModel, most: usize) -> Vec<PageRequest> {
    let (mut found, mut step) = (Vec::new(), Vec::new());
    for turn in 0..most {
        step.clear();
        if !model.next_step(turn % model.streams(), &mut step) {
            break;
        }
        found.extend(step.iter().copied());
    }
    found
}

#[test]
fn heaps_grow_by_extents() {
    let mut space = Space::default();
    let mut one = Heap::load(&mut space, 100, 1000, 4096);
    let two = Heap::load(&mut space, 10, 100, 4096);
    assert_eq!((one.pages(), one.page_of(3), one.page_of(4), two.page_of(0)), (25, 0, 1, 64 - 32));
    let pages: Vec<(u64, bool)> =
        (0..40).map(|_| one.append(&mut space)).map(|(_, page, new)| (page, new)).collect();
    assert_eq!((pages[0], pages[1]), ((25, true), (25, false)));
    assert_eq!(pages[28], (64, true), "the first extent is full: the next one lies behind the other table's");
}

#[test]
fn trees_have_a_path_to_each_leaf() {
    let mut space = Space::default();
    let mut tree = Tree::load(&mut space, 1_000_000, 20, 4096);
    let path = |tree: &Tree, position| {
        let mut path = Vec::new();
        let leaf = tree.descend(position, |page| path.push(page));
        path.push(leaf);
        path
    };
    let (first, next, last) = (path(&tree, 0), path(&tree, 200), path(&tree, 999_999));
    assert_eq!((first.len(), first[0], first[1] == next[1]), (3, last[0], true));
    assert_ne!(first[2], next[2]);
    let mut leaves: Vec<u64> = (0..1_000_000).step_by(200).map(|at| path(&tree, at)[2]).collect();
    leaves.dedup();
    assert_eq!(leaves.len() as u64, tree.leaves().pages());
    let tails: Vec<u64> = (0..300).map(|_| tree.append(&mut space, 7).0).collect();
    assert!(tails[0] == tails[199] && tails[0] != tails[200] && tree.tail(7) == Some(tails[299]));
}

#[test]
fn a_seed_gives_one_sequence() {
    let tpcc = |seed| {
        let mut setup = tpcc::TpccSetup::new(1, 3, 16384, seed);
        setup.transactions = 300;
        steps(&mut tpcc::TpccPages::new(&setup), 100_000)
    };
    assert_eq!(tpcc(1), tpcc(1));
    assert_ne!(tpcc(1), tpcc(2));
    let ods = |seed| steps(&mut ods::OdsPages::new(&ods::OdsSetup::new(0.01, 16384, seed)), 5_000);
    assert_eq!(ods(1), ods(1));
    assert_ne!(ods(1), ods(2));
    let erp = |seed| steps(&mut erp::ErpPages::new(&erp::ErpSetup::new(0.001, 2, 4096, seed)), 5_000);
    assert_eq!(erp(1), erp(1));
    assert_ne!(erp(1), erp(2));
}

#[test]
fn databases_have_the_papers_sizes() {
    let bytes = |model: &dyn PageModel| model.pages() as f64 * 16384.0;
    let tpcc = tpcc::TpccPages::new(&tpcc::TpccSetup::new(10, 20, 16384, 1));
    let warehouse = bytes(&tpcc) / 10.0;
    assert!((88e6..105e6).contains(&warehouse), "a warehouse has {warehouse} bytes");
    let ods = ods::OdsPages::new(&ods::OdsSetup::new(1.0, 16384, 1));
    assert!((10e9..15e9).contains(&bytes(&ods)), "{}", bytes(&ods));
    assert!((20_000..28_000).contains(&ods.random_set()), "{} pages of look-ups", ods.random_set());
}

/// Sizes, and what is in use, of the text; that a stream asks three or four times for what is in use, of the model's header.
#[test]
fn the_star_has_the_papers_sizes_and_working_set() {
    let loaded = erp::ErpPages::new(&erp::ErpSetup::new(1.0, 1, 4096, 1));
    let gigabytes = loaded.pages() as f64 * 4096.0 / 1e9;
    assert!((4.7..5.3).contains(&gigabytes), "{gigabytes} GB");
    let indexes: u64 = loaded.index_pages().iter().map(|(first, end)| end - first).sum();
    let mut model = erp::ErpPages::new(&erp::ErpSetup::new(0.02, 1, 4096, 1));
    let found = steps(&mut model, usize::MAX);
    let in_use: std::collections::HashSet<u64> = found.iter().map(|request| request.page).collect();
    let share = in_use.len() as f64 / model.pages() as f64;
    assert!((0.26..0.33).contains(&share), "{share} of the database is in use");
    let times = found.len() as f64 / in_use.len() as f64;
    assert!((3.0..4.0).contains(&times), "each is asked for {times} times");
    assert!(indexes * 4 > loaded.pages(), "the indexes have a quarter: {indexes}");
    assert_eq!(model.begun(), 12);
}

/// A query reads the same pages whichever stream runs it; streams run all of them, in orders of their own.
#[test]
fn streams_of_the_star_run_the_same_queries() {
    let mut model = erp::ErpPages::new(&erp::ErpSetup::new(0.001, 3, 4096, 1));
    let mut pages = vec![Vec::new(); 3];
    for (stream, pages) in pages.iter_mut().enumerate() {
        let mut step = Vec::new();
        while model.next_step(stream, &mut step) {}
        assert!(step.iter().all(|request| usize::from(request.stream) == stream));
        pages.extend(step.iter().map(|request| request.page));
    }
    assert!(pages[0] != pages[1] && pages[1] != pages[2], "each has its order");
    pages.iter_mut().for_each(|pages| pages.sort_unstable());
    assert_eq!((&pages[0], &pages[1]), (&pages[1], &pages[2]));
}

#[test]
fn requests_stay_within_the_database() {
    let models: [Box<dyn PageModel>; 6] = [
        Box::new(tpcc::TpccPages::new(&tpcc::TpccSetup {
            transactions: 2000,
            ..tpcc::TpccSetup::new(2, 4, 8192, 3)
        })),
        Box::new(ods::OdsPages::new(&ods::OdsSetup { queries: 10, ..ods::OdsSetup::new(0.01, 16384, 3) })),
        Box::new(ods_zipf::ZipfPages::new(0.01, 16384, 3)),
        Box::new(erp::ErpPages::new(&erp::ErpSetup::new(0.001, 8, 4096, 3))),
        Box::new(simple::Uncorrelated::new(100, 0.9, 1000, 3)),
        Box::new(simple::Scans::new(100, 3)),
    ];
    for mut model in models {
        let found = steps(model.as_mut(), 1_000_000);
        assert!(found.len() > 200);
        assert!(found.iter().all(|request| request.page < model.pages()));
        let ahead = found.iter().filter(|request| request.ahead).count();
        assert!(ahead < found.len() || model.streams() == 1, "several streams do not only scan");
    }
}
