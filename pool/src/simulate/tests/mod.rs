//! The simulator: traces round trip and name their damage, devices keep the means that they promise, replays of known traces
//! have the known answer, and what is counted adds up.

mod devices;
mod traces;

use thermocline_base::rng::Rng;

use super::closed::{ClosedLoop, Streams};
use super::device::DeviceModel;
use super::*;
use crate::cache::CacheKind;
use crate::trace::{TraceKind, TraceRequest};

fn device(name: &str) -> DeviceModel {
    DeviceModel::named(name).expect("it has a name")
}

fn simulation(frames: u32, slots: &[u32], policies: &[CacheKind]) -> Simulation {
    Simulation {
        page_bytes: 16384,
        extent_pages: 32,
        frames,
        slots: slots.to_vec(),
        policies: policies.to_vec(),
        disk: device("hdd-7200"),
        ssd: device("fusion-io"),
        mode: Mode::WriteThrough,
        threads: 2,
    }
}

fn mixed(requests: usize, seed: u64) -> Vec<TraceRequest> {
    let mut rng = Rng::new(seed);
    let mut draw = |_| {
        let kind = match rng.below(20) {
            0 => TraceKind::Free,
            1 => TraceKind::Create,
            2..6 => TraceKind::Write,
            _ => TraceKind::Read,
        };
        let near = if rng.chance(0.5) { 300 } else { 4000 };
        TraceRequest::new(rng.below(near), kind)
    };
    (0..requests).map(&mut draw).collect()
}

fn run(trace: &[TraceRequest], simulation: &Simulation) -> Outcome {
    let mut told = 0;
    let mut source: std::vec::IntoIter<TraceRequest> = Vec::from(trace).into_iter();
    let outcome = replay(&mut source, simulation, &mut |requests| told = requests);
    assert_eq!(told, trace.len() as u64, "progress says how far it is");
    outcome.expect("a trace in memory")
}

#[test]
fn what_is_counted_adds_up() {
    let trace = mixed(30_000, 1);
    for mode in [Mode::WriteThrough, Mode::WriteBack] {
        for frames in [0, 100] {
            let simulation = Simulation { mode, ..simulation(frames, &[50, 400], &CacheKind::ALL) };
            let outcome = run(&trace, &simulation);
            assert_eq!(outcome.frames.requests, trace.len() as u64);
            assert_eq!(outcome.rows.len(), 1 + 2 * CacheKind::ALL.len());
            for row in &outcome.rows {
                let counts = row.counts;
                assert_eq!(counts.reads, outcome.frames.reads, "{row:?}");
                assert_eq!(counts.writes, outcome.frames.writes, "{row:?}");
                let disk_reads = counts.disk_reads_random + counts.disk_reads_sequential;
                assert_eq!(counts.hits + disk_reads, counts.reads, "{row:?}");
                assert!(row.cached <= row.slots, "{row:?}");
                assert!(counts.io_ns > 0.0 && counts.hits <= counts.ssd_reads, "{row:?}");
                if mode == Mode::WriteThrough || row.policy.is_none() {
                    assert_eq!((counts.disk_writes, counts.journal_writes), (counts.writes, 0), "{row:?}");
                } else {
                    assert!(counts.disk_writes <= counts.writes, "{row:?}");
                }
            }
        }
    }
}

#[test]
fn one_trace_gives_one_result_whatever_the_threads() {
    let trace = mixed(20_000, 2);
    let found = |threads| {
        let simulation = Simulation { threads, ..simulation(64, &[64, 256], &CacheKind::ALL) };
        let rows = run(&trace, &simulation).rows;
        rows.into_iter().map(|row| (row.policy, row.slots, row.counts)).collect::<Vec<_>>()
    };
    assert_eq!(found(1), found(5));
}

#[test]
fn a_scan_takes_what_its_transfer_takes() {
    let trace: Vec<_> = (0..10_000).map(|page| TraceRequest::new(page, TraceKind::Read)).collect();
    let row = run(&trace, &simulation(0, &[100], &[CacheKind::Lru])).rows[0].counts;
    assert_eq!((row.disk_reads_random, row.disk_reads_sequential), (1, 9_999));
    let transfer = 10_000.0 * 16384.0 * 8.0 / 1070e6;
    assert!((row.io_ns / 1e9 / transfer - 1.0).abs() < 0.02, "{} s, {transfer} s", row.io_ns / 1e9);
}

#[test]
fn frames_let_misses_and_changed_pages_through_only() {
    let of = |page, kind| TraceRequest::new(page, kind);
    let trace = [
        of(1, TraceKind::Read),
        of(1, TraceKind::Write),
        of(2, TraceKind::Create),
        of(2, TraceKind::Read),
        of(3, TraceKind::Read),
        of(4, TraceKind::Read),
    ];
    let mut frames = frames::Frames::new(2);
    let mut below = Vec::new();
    trace.iter().for_each(|request| frames.request(request, &mut below));
    use crate::cache::RequestKind::{Read, Write};
    let found: Vec<_> = below.iter().map(|request| (request.page, request.kind)).collect();
    assert_eq!(found, [(1, Read), (1, Write), (3, Read), (2, Write), (4, Read)]);
    assert_eq!(frames.counts().hits, 2);
}

#[test]
fn write_back_turns_random_writes_into_sorted_ones() {
    let mut rng = Rng::new(3);
    let trace: Vec<_> =
        (0..20_000).map(|_| TraceRequest::new(rng.below(50_000), TraceKind::Create)).collect();
    let io = |mode| {
        let simulation = Simulation { mode, ..simulation(0, &[10_000], &[CacheKind::Lru]) };
        run(&trace, &simulation).rows[1].counts.io_ns
    };
    let (through, back) = (io(Mode::WriteThrough), io(Mode::WriteBack));
    assert!(back < 0.8 * through, "{back} {through}");
}

/// Streams that read uniform pages, so many each.
struct Uniform(Vec<(Rng, u32)>);

impl Streams for Uniform {
    fn next_step(&mut self, stream: usize, step: &mut Vec<TraceRequest>) -> bool {
        let (rng, left) = &mut self.0[stream];
        if *left == 0 {
            return false;
        }
        *left -= 1;
        let page = rng.below(100_000);
        step.push(TraceRequest { think_us: 100, ..TraceRequest::new(page, TraceKind::Read) });
        true
    }
}

#[test]
fn more_streams_keep_a_disk_busy_and_find_shorter_ways() {
    let time = |streams: u32, disk: &str| {
        let setup = ClosedLoop {
            streams: streams as usize,
            processors: 2,
            page_bytes: 16384,
            frames: 1,
            disk: device(disk),
            ssd: device("fusion-io"),
            until_ns: f64::INFINITY,
        };
        let mut uniform = Uniform((0..streams).map(|at| (Rng::new(u64::from(at)), 1200 / streams)).collect());
        let counts = closed::run(&setup, None, &mut uniform);
        assert_eq!((counts.reads, counts.hits, counts.disk_reads), (1200, 0, 1200));
        assert!(counts.stream_ended_ns.iter().all(|end| *end > 0.0 && *end <= counts.ended_ns));
        counts.ended_ns / 1e6
    };
    let (one, eight, three_disks) = (time(1, "hdd-7200"), time(8, "hdd-7200"), time(8, "hdd-7200x3"));
    // Alone: a seek over a thousandth of the disk, half a turn, the transfer.
    assert!((5.2..5.8).contains(&(one / 1200.0)), "{one}");
    assert!(eight < 0.75 * one && three_disks < 0.6 * eight, "{one} {eight} {three_disks}");
}

#[test]
fn a_closed_loop_hits_what_a_replay_hits() {
    // One stream without thought asks in the order of the trace: the same pages miss, the same are on the SSD.
    struct One(std::vec::IntoIter<TraceRequest>);
    impl Streams for One {
        fn next_step(&mut self, _: usize, step: &mut Vec<TraceRequest>) -> bool {
            step.extend(self.0.next());
            !step.is_empty()
        }
    }
    let trace = mixed(20_000, 4);
    for kind in [CacheKind::Lru, CacheKind::Tac, CacheKind::Arc] {
        let simulation = simulation(100, &[300], &[kind]);
        let row = run(&trace, &simulation).rows[1].counts;
        let setup = ClosedLoop {
            streams: 1,
            processors: 1,
            page_bytes: 16384,
            frames: 100,
            disk: device("hdd-7200"),
            ssd: device("fusion-io"),
            until_ns: f64::INFINITY,
        };
        let cache =
            crate::cache::CacheSetup { savings: simulation.savings(), ..crate::cache::CacheSetup::new(300) };
        let counts = closed::run(&setup, kind.build(&cache), &mut One(trace.clone().into_iter()));
        assert_eq!((counts.reads, counts.hits), (row.reads, row.hits), "{kind}");
        assert_eq!((counts.disk_writes, counts.ssd_writes), (row.disk_writes, row.ssd_writes), "{kind}");
    }
}

/// Requests a second of a whole level: `cargo test --release -p thermocline-pool levels_a_second -- --ignored --nocapture`.
#[test]
#[ignore = "measures times: .ci/deep step"]
fn levels_a_second() {
    let mut rng = Rng::new(5);
    let pages = |rng: &mut Rng| if rng.chance(0.5) { 100_000 } else { 1_000_000 };
    let trace: Vec<_> = (0..2_000_000)
        .map(|_| {
            let near = pages(&mut rng);
            TraceRequest::new(rng.below(near), TraceKind::Read)
        })
        .collect();
    let simulation = Simulation { threads: 1, ..simulation(0, &[100_000], &CacheKind::ALL) };
    for row in run(&trace, &simulation).rows {
        let rate = row.requests as f64 / row.cpu_ns as f64 * 1e3;
        println!("{:?}: {rate:.1} M requests/s", row.policy);
        assert!(rate > 2.0 || row.policy == Some(CacheKind::Opt), "{:?}: {rate}", row.policy);
    }
}
