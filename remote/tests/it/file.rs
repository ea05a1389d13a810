//! Memory servers as a file of pages: it is a flat array, a server that dies is an error of its pages or, with two copies, of none, and
//! closing leaves nothing behind.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use thermocline_base::clock::{Clock, SystemClock};
use thermocline_base::io::{AlignedBytes, Completion, Driven, File, IoError, Job, Operation, Outcome};
use thermocline_base::multiplex::{block_on, run_tasks};
use thermocline_base::rng::Rng;
use thermocline_remote::client::ClientOptions;
use thermocline_remote::file::{PAGE_BYTES, RemoteFile, RemoteOptions};
use thermocline_remote::key::Key;
use thermocline_remote::server::Server;

use crate::{connect, options};

/// Pages of a segment of a server here.
const SEGMENT_PAGES: u64 = 256;

/// Nothing here ends because a machine is slow.
fn remote_options(copies: u8) -> RemoteOptions {
    let client =
        ClientOptions { copies, batch_ns: 50_000, timeout_ns: u64::MAX, ..RemoteOptions::default().client };
    RemoteOptions { client, open_ns: u64::MAX, close_ns: u64::MAX }
}

fn start(key: &Key, segments: u64) -> Server {
    Server::start(&options(&["127.0.0.1:0"], Some(key), segments)).expect("a server")
}

fn file(copies: u8, servers: &[&Server], key: &Key) -> RemoteFile {
    let clock = Arc::new(SystemClock) as Arc<dyn Clock>;
    let connects = servers.iter().map(|server| connect(&server.addresses()[0], Some(key))).collect();
    RemoteFile::open(remote_options(copies), &clock, connects).expect("servers")
}

/// Pages whose bytes follow from these numbers.
fn bytes_of(first: u64, pages: usize) -> AlignedBytes {
    let mut bytes = AlignedBytes::zeroed(pages * PAGE_BYTES);
    for (page, bytes) in bytes.chunks_mut(PAGE_BYTES).enumerate() {
        Rng::new(first + page as u64).fill(bytes);
    }
    bytes
}

fn at(page: u64) -> u64 {
    page * PAGE_BYTES as u64
}

fn write(file: &RemoteFile, page: u64, bytes: AlignedBytes) -> Result<usize, IoError> {
    file.submit(Operation::Write { offset: at(page), buffer: bytes.into() }).wait().result
}

async fn read(file: &RemoteFile, page: u64, pages: usize) -> Result<AlignedBytes, IoError> {
    let buffer = AlignedBytes::zeroed(pages * PAGE_BYTES);
    let outcome = file.submit(Operation::Read { offset: at(page), buffer: buffer.into() }).await;
    assert_eq!(outcome.result?, pages * PAGE_BYTES);
    Ok(outcome.buffer.into_aligned().expect("the buffer that was given"))
}

fn read_now(file: &RemoteFile, page: u64) -> Result<AlignedBytes, IoError> {
    block_on(read(file, page, 1))
}

#[derive(Clone, Debug)]
enum Act {
    Allocate(u64),
    Write { at: u64, pages: u64 },
    Read { at: u64, pages: u64 },
    Punch { at: u64, pages: u64 },
    Reserve { at: u64, pages: u64 },
    Cut(u64),
}

/// Pages that acts are about.
const PAGES: u64 = 300;

fn act() -> impl Strategy<Value = Act> {
    let few = || (0..PAGES, 1..40_u64);
    prop_oneof![
        2 => (1..PAGES).prop_map(Act::Allocate),
        4 => few().prop_map(|(at, pages)| Act::Write { at, pages }),
        6 => (0..PAGES, 1..5_u64).prop_map(|(at, pages)| Act::Read { at, pages }),
        2 => few().prop_map(|(at, pages)| Act::Punch { at, pages }),
        1 => few().prop_map(|(at, pages)| Act::Reserve { at, pages }),
        1 => (0..PAGES).prop_map(Act::Cut),
    ]
}

/// The model of a file: how long it is, and what each page was written as.
fn against_a_flat_array(file: &RemoteFile, acts: &[Act]) {
    let mut pages: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut length, mut next) = (0, 1);
    for act in acts {
        match *act {
            Act::Allocate(to) => {
                file.allocate(at(to)).expect("there is room");
                length = length.max(to);
            }
            Act::Write { at, pages: count } => {
                write(file, at, bytes_of(next, count as usize)).expect("written");
                pages.extend((0..count).map(|page| (at + page, next + page)));
                next += count;
                length = length.max(at + count);
            }
            Act::Read { at, pages: count } => {
                let found = block_on(read(file, at, count as usize));
                if (at..at + count).all(|page| pages.contains_key(&page)) {
                    for (page, bytes) in (at..).zip(found.expect("written").chunks(PAGE_BYTES)) {
                        assert_eq!(bytes, &bytes_of(pages[&page], 1)[..]);
                    }
                } else {
                    assert!(found.is_err(), "a page was not written");
                }
            }
            Act::Punch { at: page, pages: count } => {
                assert!(file.punch(at(page), at(count)).expect("given back"));
                pages.retain(|at, _| !(page..page + count).contains(at));
            }
            Act::Reserve { at: page, pages: count } => {
                file.reserve(at(page), at(count)).expect("there is room");
            }
            Act::Cut(to) if to < length => {
                file.set_len(at(to)).expect("cut");
                length = to;
                pages.retain(|at, _| *at < to);
            }
            Act::Cut(_) => {}
        }
        assert_eq!(file.len().expect("known"), at(length));
        assert_eq!(file.statistics().remote_pages, pages.len() as u64, "a slot for each page, and no other");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn pages_on_memory_servers_are_a_flat_array(
        copies in 1..=2_u8,
        acts in prop::collection::vec(act(), 1..60),
    ) {
        let key = Key::fresh();
        let servers = [start(&key, 8), start(&key, 8)];
        let file = file(copies, &[&servers[0], &servers[1]], &key);
        against_a_flat_array(&file, &acts);
        drop(file);
        for server in &servers {
            while server.leases() > 0 {
                std::thread::yield_now();
            }
        }
    }
}

/// Pages go out in batches, and come in by many tasks.
#[test]
fn pages_come_and_go_over_a_server() {
    let key = Key::fresh();
    let server = start(&key, 8);
    let file = file(1, &[&server], &key);
    write(&file, 0, bytes_of(0, 512)).expect("written");
    let statistics = file.statistics();
    assert_eq!((statistics.page_outs, statistics.remote_pages), (512, 512));
    assert!(statistics.runs <= 12, "{} messages for 512 pages in batches of 64", statistics.runs);
    let file = &file;
    let tasks = (0..16).map(|task| async move {
        let mut rng = Rng::new(task);
        for _ in 0..50 {
            let (page, pages) = (rng.below(500), 1 + rng.below(8));
            let found = read(file, page, pages as usize).await.expect("read");
            assert_eq!(&found[..], &bytes_of(page, pages as usize)[..]);
        }
    });
    run_tasks(tasks.collect());
    let error = read_now(file, 512).expect_err("never written");
    assert!(error.to_string().contains("memory servers"), "{error}");
}

/// Allocated space has room, and space that is given back is room again.
#[test]
fn room_that_is_taken_is_kept() {
    let key = Key::fresh();
    let server = start(&key, 2);
    let file = file(1, &[&server], &key);
    let all = 2 * SEGMENT_PAGES;
    assert!(file.allocate(at(all + 1)).expect_err("more than there is").is_full());
    assert_eq!(file.len().expect("known"), 0, "nothing was taken");
    file.allocate(at(all)).expect("all of it");
    assert!(file.allocate(at(all + 1)).expect_err("none is left").is_full());
    file.punch(0, at(8)).expect("given back");
    file.allocate(at(all + 8)).expect("as much as was given back");
    assert!(file.reserve(0, at(1)).expect_err("none is left").is_full());
    file.set_len(at(all)).expect("cut");
    file.reserve(0, at(8)).expect("room again");
}

/// Each page of a server that died is an error; pages of the other server are served, and new ones go there.
#[test]
fn a_server_that_dies_is_an_error_of_each_of_its_pages() {
    let key = Key::fresh();
    let (one, two) = (start(&key, 8), start(&key, 8));
    let file = file(1, &[&one, &two], &key);
    while file.statistics().leases < 2 {
        std::thread::yield_now();
    }
    for batch in 0..8 {
        write(&file, batch * 64, bytes_of(batch * 64, 64)).expect("written");
    }
    drop(one);
    while file.statistics().leases > 1 {
        std::thread::yield_now();
    }
    let (mut lost, mut served) = (0, 0);
    for page in 0..512 {
        match read_now(&file, page) {
            Ok(bytes) => {
                assert_eq!(&bytes[..], &bytes_of(page, 1)[..]);
                served += 1;
            }
            Err(error) => {
                assert!(error.to_string().contains("were lost with their servers"), "{error}");
                lost += 1;
            }
        }
    }
    assert!(lost >= 64 && served >= 64, "{lost} lost, {served} served: both servers had batches");
    let wide = block_on(read(&file, 0, 512)).expect_err("one lost page is the read's");
    assert!(wide.to_string().contains("were lost"), "{wide}");
    write(&file, 600, bytes_of(9000, 10)).expect("room on the other server");
    assert_eq!(&read_now(&file, 601).expect("read")[..], &bytes_of(9001, 1)[..]);
    drop(two);
    while file.statistics().leases > 0 {
        std::thread::yield_now();
    }
    assert!(file.allocate(at(2000)).expect_err("no server is left").is_full());
    write(&file, 700, bytes_of(1, 1)).expect_err("nowhere to write");
}

/// With two copies a server dies in the middle of reads and writes of many tasks, and none of them fails.
#[test]
fn with_two_copies_no_reader_learns_of_a_server_that_dies() {
    let key = Key::fresh();
    let (one, two, three) = (start(&key, 8), start(&key, 8), start(&key, 8));
    let file = file(2, &[&one, &two, &three], &key);
    while file.statistics().leases < 3 {
        std::thread::yield_now();
    }
    write(&file, 0, bytes_of(0, 512)).expect("written");
    let (file, done) = (&file, &AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..2_u64 {
            scope.spawn(move || {
                let tasks = (0..8).map(|task| async move {
                    let mut rng = Rng::new(100 * thread + task);
                    for _ in 0..150 {
                        let page = rng.below(512);
                        let found = read(file, page, 1).await.expect("read");
                        assert_eq!(&found[..], &bytes_of(page, 1)[..]);
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
                run_tasks(tasks.collect());
            });
        }
        scope.spawn(move || {
            for batch in 0..32 {
                write(file, 512 + batch * 16, bytes_of(10_000 + batch * 16, 16)).expect("written");
            }
            for page in [0, 255, 511] {
                let found = read_now(file, 512 + page).expect("read");
                assert_eq!(&found[..], &bytes_of(10_000 + page, 1)[..]);
            }
        });
        while done.load(Ordering::Relaxed) < 400 {
            std::thread::yield_now();
        }
        drop(one);
    });
    while file.statistics().lost_servers < 1 {
        std::thread::yield_now();
    }
    // Copied anew, so that another one may die.
    while file.statistics().short_pages > 0 || file.statistics().moved_pages == 0 {
        std::thread::yield_now();
    }
    for page in 0..512 {
        assert_eq!(&read_now(file, page).expect("read")[..], &bytes_of(page, 1)[..]);
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
    let error = RemoteFile::open(options, &clock, connects).expect_err("one of two");
    assert_eq!(error.copies, 2);
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
}

/// The last reference to a file may go with the answer to a read, on the file's own thread: it ends all the same, and gives its lease back.
#[test]
fn a_file_that_ends_on_its_own_thread_gives_its_lease_back() {
    struct Last(Mutex<Option<Arc<RemoteFile>>>);
    impl Job for Last {
        fn answered(&self, outcome: Outcome) -> Option<Completion> {
            assert_eq!(outcome.buffer.as_slice(), &bytes_of(3, 1)[..]);
            self.0.lock().expect("no test panics with it").take();
            None
        }
    }
    let key = Key::fresh();
    let server = start(&key, 8);
    for _ in 0..20 {
        let file = Arc::new(file(1, &[&server], &key));
        write(&file, 0, bytes_of(0, 8)).expect("written");
        assert_eq!(server.leases(), 1);
        let read = Operation::Read { offset: at(3), buffer: AlignedBytes::zeroed(PAGE_BYTES).into() };
        let completion = file.submit(read);
        let last = Driven::new(Last(Mutex::new(Some(file))));
        last.start(completion);
        drop(last);
        let begun = SystemClock.now_ns();
        while server.leases() > 0 {
            assert!(SystemClock.now_ns() - begun < 60_000_000_000, "its thread has ended without a word");
            std::thread::yield_now();
        }
    }
}
