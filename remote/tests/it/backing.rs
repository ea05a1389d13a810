//! Memory servers as the backing of a pager: a region is a flat array over them, a server that dies is an error of its pages or, with
//! two copies, of none, and closing leaves nothing behind.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use thermocline_base::backing::{Backing, PAGE_BYTES, PART_BYTES, PART_PAGES, PageName};
use thermocline_base::clock::{Clock, SystemClock};
use thermocline_base::epoch::Epochs;
use thermocline_base::io::AlignedBytes;
use thermocline_base::multiplex::run_tasks;
use thermocline_base::rng::Rng;
use thermocline_pool::policy::PolicyKind;
use thermocline_region::{Options, Pager, Part, RegionError, Side, Span};
use thermocline_remote::backing::{RemoteBacking, RemoteOptions};
use thermocline_remote::client::ClientOptions;
use thermocline_remote::key::Key;
use thermocline_remote::server::Server;

use crate::{connect, options};

const PAGE: u64 = PAGE_BYTES as u64;
const FRAMES: usize = 8;

/// Nothing here ends because a machine is slow.
fn remote_options(copies: u8) -> RemoteOptions {
    let client =
        ClientOptions { copies, batch_ns: 50_000, timeout_ns: u64::MAX, ..RemoteOptions::default().client };
    RemoteOptions { client, open_ns: u64::MAX, close_ns: u64::MAX }
}

fn start(key: &Key, segments: u64) -> Server {
    Server::start(&options(&["127.0.0.1:0"], Some(key), segments)).expect("a server")
}

fn backing(copies: u8, servers: &[&Server], key: &Key) -> Arc<RemoteBacking> {
    let clock = Arc::new(SystemClock) as Arc<dyn Clock>;
    let connects = servers.iter().map(|server| connect(&server.addresses()[0], Some(key))).collect();
    Arc::new(RemoteBacking::open(remote_options(copies), &clock, connects).expect("servers"))
}

struct World {
    epochs: Arc<Epochs>,
    pager: Pager,
}

fn world(backing: &Arc<RemoteBacking>, parts: usize) -> World {
    let epochs = Arc::new(Epochs::new());
    let options = Options { bytes: parts * PART_BYTES, frames: FRAMES, policy: PolicyKind::S3Fifo };
    let backing = Arc::clone(backing) as Arc<dyn Backing>;
    World { pager: Pager::new(options, Arc::clone(&epochs), backing).expect("a region"), epochs }
}

fn run(first: u64, pages: usize) -> AlignedBytes {
    let mut bytes = AlignedBytes::zeroed(pages * PAGE_BYTES);
    for (page, bytes) in bytes.chunks_mut(PAGE_BYTES).enumerate() {
        Rng::new(first + page as u64).fill(bytes);
    }
    bytes
}

fn page(at: u64) -> Span {
    Span { at, bytes: PAGE_BYTES as u32 }
}

async fn read(world: &World, spans: &[Span]) -> Result<Vec<Vec<u8>>, RegionError> {
    let mut claim = world.pager.claim();
    loop {
        {
            let guard = world.epochs.pin();
            if let Some(proof) = world.pager.ask(&guard, spans, &mut claim)? {
                return Ok(spans.iter().map(|span| proof.bytes(*span).to_vec()).collect());
            }
        }
        (&mut claim).await?;
    }
}

fn read_now(world: &World, spans: &[Span]) -> Result<Vec<Vec<u8>>, RegionError> {
    thermocline_base::multiplex::block_on(read(world, spans))
}

#[derive(Clone, Debug)]
enum Act {
    Append { which: usize, pages: usize },
    Read { seed: u64, count: usize },
    Ahead(u64),
    Room(usize),
    Take,
    Free(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (0..3_usize, 1..90_usize).prop_map(|(which, pages)| Act::Append { which, pages }),
        6 => (any::<u64>(), 1..6_usize).prop_map(|(seed, count)| Act::Read { seed, count }),
        1 => any::<u64>().prop_map(Act::Ahead),
        1 => (1..8_usize).prop_map(Act::Room),
        2 => Just(Act::Take),
        1 => (0..3_usize).prop_map(Act::Free),
    ]
}

/// The model of a region: what each page of each part that is paged now was written as.
fn against_a_flat_array(backing: &Arc<RemoteBacking>, acts: &[Act]) {
    let world = world(backing, 3);
    let mut pages: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut paged, mut next): (Vec<Part>, u64) = (Vec::new(), 1);
    for act in acts {
        match *act {
            Act::Append { which, pages: count } if !paged.is_empty() => {
                let part = paged[which % paged.len()];
                if let Some(start) = world.pager.append(part, run(next, count)).expect("written") {
                    pages.extend((0..count as u64).map(|at| (start + at * PAGE, next + at)));
                    next += count as u64;
                }
            }
            Act::Read { seed, count } if !pages.is_empty() => {
                let mut rng = Rng::new(seed);
                let mut any = || *pages.iter().nth(rng.below(pages.len() as u64) as usize).expect("there").0;
                let spans: Vec<_> = (0..count).map(|_| page(any())).collect();
                for (span, bytes) in spans.iter().zip(read_now(&world, &spans).expect("read")) {
                    assert_eq!(bytes, &run(pages[&span.at], 1)[..]);
                }
            }
            Act::Ahead(seed) if !pages.is_empty() => {
                let mut rng = Rng::new(seed);
                let some = pages.keys().filter(|_| rng.chance(0.2)).map(|at| page(*at)).collect::<Vec<_>>();
                world.pager.prefetch(&some);
            }
            Act::Room(frames) => world.pager.make_room(frames),
            Act::Take => match world.pager.take(Side::Paged) {
                Ok(part) => paged.push(part),
                Err(error) => assert!(matches!(error, RegionError::NoPart { parts: 3 }), "{error}"),
            },
            Act::Free(which) if !paged.is_empty() => {
                let part = paged.swap_remove(which % paged.len());
                world.pager.free(part).expect("freed");
                let start = u64::from(part.number) * PART_BYTES as u64;
                pages.retain(|at, _| !(start..start + PART_BYTES as u64).contains(at));
            }
            _ => {}
        }
        assert!(world.pager.statistics().resident_bytes <= FRAMES as u64 * PAGE);
        // Pages of a part that was freed go when no reader reads them any more, ahead either.
        let slots = || backing.statistics().remote_pages;
        for _ in 0..60_000 {
            if slots() == pages.len() as u64 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(slots(), pages.len() as u64, "a slot for each page, and no other");
    }
    assert_eq!(world.pager.statistics().net_faults, 0);
    paged.into_iter().for_each(|part| world.pager.free(part).expect("freed"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_region_over_memory_servers_is_a_flat_array(
        copies in 1..=2_u8,
        acts in prop::collection::vec(act(), 1..40),
    ) {
        let key = Key::fresh();
        let servers = [start(&key, 8), start(&key, 8)];
        let backing = backing(copies, &[&servers[0], &servers[1]], &key);
        against_a_flat_array(&backing, &acts);
        drop(backing);
        for server in &servers {
            while server.leases() > 0 {
                std::thread::yield_now();
            }
        }
    }
}

/// Pages go out in batches, come in by many tasks, and come ahead; the net reads through the servers, too.
#[test]
fn pages_come_and_go_over_a_server() {
    let key = Key::fresh();
    let server = start(&key, 8);
    let backing = backing(1, &[&server], &key);
    let world = world(&backing, 2);
    let part = world.pager.take(Side::Paged).expect("free");
    let start = world.pager.append(part, run(0, PART_PAGES)).expect("written").expect("room");
    let statistics = backing.statistics();
    assert_eq!((statistics.page_outs, statistics.remote_pages), (512, 512));
    assert!(statistics.runs <= 12, "{} messages for 512 pages in batches of 64", statistics.runs);
    let world = &world;
    let tasks = (0..16).map(|task| async move {
        let mut rng = Rng::new(task);
        for _ in 0..50 {
            let number = rng.below(PART_PAGES as u64);
            let bytes = read(world, &[page(start + number * PAGE)]).await.expect("read");
            assert_eq!(bytes[0], &run(number, 1)[..]);
        }
    });
    run_tasks(tasks.collect());
    assert_eq!(world.pager.statistics().net_faults, 0);
    world.pager.prefetch(&[Span { at: start, bytes: 4 * PAGE_BYTES as u32 }]);
    for number in 0..4 {
        assert_eq!(read_now(world, &[page(start + number * PAGE)]).expect("read")[0], &run(number, 1)[..]);
    }
    let name = PageName { part: part.number, generation: part.generation, page: 7 };
    let (length, bytes) = backing.read_apart(name, AlignedBytes::zeroed(PAGE_BYTES));
    assert_eq!((length.expect("read"), &bytes[..]), (PAGE_BYTES, &run(7, 1)[..]));
    let (gone, _) = backing.read_apart(PageName { generation: 99, ..name }, bytes);
    assert!(gone.expect_err("another use of the part").to_string().contains("memory servers"));
}

/// Each page of a server that died is an error that names it; pages of the other server are served, and new ones go there.
#[test]
fn a_server_that_dies_is_an_error_of_each_of_its_pages() {
    let key = Key::fresh();
    let (one, two) = (start(&key, 8), start(&key, 8));
    let backing = backing(1, &[&one, &two], &key);
    while backing.statistics().leases < 2 {
        std::thread::yield_now();
    }
    let world = world(&backing, 3);
    let part = world.pager.take(Side::Paged).expect("free");
    let mut starts = Vec::new();
    for batch in 0..8 {
        starts.push(world.pager.append(part, run(batch * 64, 64)).expect("written").expect("room"));
    }
    drop(one);
    while backing.statistics().leases > 1 {
        std::thread::yield_now();
    }
    let (mut lost, mut served) = (0, 0);
    for number in 0..512 {
        let at = starts[0] + number * PAGE;
        match read_now(&world, &[page(at)]) {
            Ok(bytes) => {
                assert_eq!(bytes[0], &run(number, 1)[..]);
                served += 1;
            }
            Err(RegionError::Unreadable { page, source }) => {
                assert_eq!((page.part, u64::from(page.page)), (part.number, number));
                assert!(source.to_string().contains("were lost with their servers"), "{source}");
                lost += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(lost >= 64 && served >= 64, "{lost} lost, {served} served: both servers had batches");
    let again = world.pager.take(Side::Paged).expect("room on the other server");
    let at = world.pager.append(again, run(9000, 10)).expect("written").expect("room");
    assert_eq!(read_now(&world, &[page(at + PAGE)]).expect("read")[0], &run(9001, 1)[..]);
    drop(two);
    while backing.statistics().leases > 0 {
        std::thread::yield_now();
    }
    assert!(matches!(world.pager.take(Side::Paged), Err(RegionError::Full { .. })), "no server is left");
    let error = world.pager.append(again, run(1, 1)).expect_err("nowhere to write");
    assert!(matches!(error, RegionError::Unwritten { .. }), "{error}");
}

/// With two copies a server dies in the middle of reads, reads ahead and writes of many tasks, and none of them fails.
#[test]
fn with_two_copies_no_reader_learns_of_a_server_that_dies() {
    let key = Key::fresh();
    let (one, two, three) = (start(&key, 8), start(&key, 8), start(&key, 8));
    let backing = backing(2, &[&one, &two, &three], &key);
    while backing.statistics().leases < 3 {
        std::thread::yield_now();
    }
    let world = world(&backing, 3);
    let part = world.pager.take(Side::Paged).expect("free");
    let start = world.pager.append(part, run(0, PART_PAGES)).expect("written").expect("room");
    let done = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..2_u64 {
            let (world, done) = (&world, &done);
            scope.spawn(move || {
                let tasks = (0..8).map(|task| async move {
                    let mut rng = Rng::new(100 * thread + task);
                    for _ in 0..150 {
                        let number = rng.below(PART_PAGES as u64);
                        let span = page(start + number * PAGE);
                        if rng.chance(0.1) {
                            world.pager.prefetch(&[page(start + rng.below(PART_PAGES as u64) * PAGE)]);
                        }
                        assert_eq!(read(world, &[span]).await.expect("read")[0], &run(number, 1)[..]);
                        done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                });
                run_tasks(tasks.collect());
            });
        }
        let (world, done) = (&world, &done);
        scope.spawn(move || {
            let other = world.pager.take(Side::Paged).expect("free");
            for batch in 0..32 {
                world.pager.append(other, run(10_000 + batch * 16, 16)).expect("written").expect("room");
            }
            let first = u64::from(other.number) * PART_BYTES as u64;
            for number in [0, 255, 511] {
                let bytes = read_now(world, &[page(first + number * PAGE)]).expect("read");
                assert_eq!(bytes[0], &run(10_000 + number, 1)[..]);
            }
        });
        while done.load(std::sync::atomic::Ordering::Relaxed) < 400 {
            std::thread::yield_now();
        }
        drop(one);
    });
    while backing.statistics().lost_servers < 1 {
        std::thread::yield_now();
    }
    assert_eq!(world.pager.statistics().failed_reads, 0);
    // Copied anew, so that another one may die.
    while backing.statistics().short_pages > 0 || backing.statistics().moved_pages == 0 {
        std::thread::yield_now();
    }
    for number in 0..PART_PAGES as u64 {
        assert_eq!(read_now(&world, &[page(start + number * PAGE)]).expect("read")[0], &run(number, 1)[..]);
    }
}

#[test]
fn too_few_servers_are_named_with_their_troubles() {
    let key = Key::fresh();
    let server = start(&key, 2);
    let clock = Arc::new(SystemClock) as Arc<dyn Clock>;
    let connects = vec![
        connect(&server.addresses()[0], Some(&key)),
        connect(&"127.0.0.1:1".parse().expect("an address"), Some(&key)),
    ];
    let options = RemoteOptions { open_ns: 500_000_000, ..remote_options(2) };
    let error = RemoteBacking::open(options, &clock, connects).expect_err("one of two");
    assert_eq!(error.copies, 2);
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
}
