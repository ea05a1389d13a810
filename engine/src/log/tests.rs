//! The log under crashes, faults, damage, small sizes and threads.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use proptest::prelude::*;
use thermocline_base::clock::SystemClock;
use thermocline_base::io::{Action, Fault, FaultKind, MemoryIo, OpenMode, RecordingIo, StdIo};
use thermocline_base::rng::Rng;

use super::*;

const DATABASE: [u8; 16] = [3; 16];
const SMALL: LogOptions = LogOptions { mode: FlushMode::Group, ring_bytes: 1024, segment_bytes: 512 };

fn dir() -> &'static Path {
    Path::new("db/log")
}

fn reader(io: &Arc<dyn Io>, from: Lsn, durable: Lsn) -> Result<LogReader, LogError> {
    LogReader::open(Arc::clone(io), dir(), DATABASE, from, durable)
}

/// All records with their positions, and the end.
fn read(io: &Arc<dyn Io>, from: Lsn) -> Result<(BTreeMap<u64, Vec<u8>>, LogEnd), LogError> {
    let mut log = reader(io, from, Lsn(0))?;
    let mut records = BTreeMap::new();
    while let Some(record) = log.next()? {
        records.insert(record.lsn.0, record.payload.to_vec());
    }
    Ok((records, log.finish()?))
}

fn open(io: &Arc<dyn Io>, end: &LogEnd, options: LogOptions) -> Result<Log, LogError> {
    Log::open(Arc::clone(io), dir(), DATABASE, end, options, Arc::new(SystemClock))
}

fn fresh(io: &Arc<dyn Io>, options: LogOptions) -> Log {
    open(io, &LogEnd::fresh(Lsn(0)), options).expect("a fresh log")
}

fn append<'a>(log: &'a Log, payload: &[u8]) -> Result<Lsn, ReserveError<'a>> {
    let mut reservation = log.try_reserve(Kind::Commit, payload.len() as u64)?;
    let lsn = reservation.lsn();
    reservation.put(payload);
    reservation.complete();
    Ok(lsn)
}

fn memory() -> (MemoryIo, Arc<dyn Io>) {
    let memory = MemoryIo::new();
    let io: Arc<dyn Io> = Arc::new(memory.clone());
    (memory, io)
}

fn ready<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}

/// A payload that tells its number, of a length that varies.
fn payload(number: u64, rng: &mut Rng) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(8 + rng.below(150) as usize, number as u8);
    bytes
}

#[test]
fn records_come_back_after_closing() {
    let (_, io) = memory();
    let log = fresh(&io, SMALL);
    let first = append(&log, b"one").expect("space");
    drop(log.try_reserve(Kind::Commit, 40).expect("space"));
    let second = append(&log, b"").expect("space");
    log.close().expect("closed");
    assert!(matches!(append(&log, b"late"), Err(ReserveError::Refused(LogError::Closed))));
    let (records, end) = read(&io, Lsn(0)).expect("whole");
    assert_eq!(records, BTreeMap::from([(first.0, b"one".to_vec()), (second.0, Vec::new())]));
    assert_eq!(end.lsn, log.tail());
    let (later, _) = read(&io, second).expect("whole");
    assert_eq!(later.len(), 1);
}

#[test]
fn typed_records_come_back() {
    let (_, io) = memory();
    let log = fresh(&io, SMALL);
    let mut part = log.try_reserve(Kind::Part, 80).expect("space");
    let first = part.lsn();
    part.put_part(first, 0);
    part.put_write(Op::Insert, TableId(1), RowId(7), b"row");
    part.complete();
    let mut commit = log.try_reserve(Kind::Commit, 80).expect("space");
    commit.put_commit(Timestamp(9), Some(PartGroup { first, parts: 1 }));
    commit.put_write(Op::Delete, TableId(1), RowId(8), b"");
    let end = commit.complete();
    log.flush_once().expect("flushed");
    assert_eq!(ready(log.wait_durable(end)).map(|result| result.is_ok()), Some(true));
    let mut log = reader(&io, Lsn(0), end).expect("whole");
    let record = log.next().expect("whole").expect("a part");
    assert_eq!((record.kind, record.lsn), (Kind::Part, first));
    let part = record::Part::decode(record.payload).expect("a part");
    assert_eq!((part.first, part.number, part.writes.count()), (first, 0, 1));
    let record = log.next().expect("whole").expect("a commit");
    let commit = record::Commit::decode(record.payload).expect("a commit");
    assert_eq!((commit.timestamp, commit.group), (Timestamp(9), Some(PartGroup { first, parts: 1 })));
    let write = commit.writes.last().expect("a write").expect("whole");
    assert_eq!((write.op, write.table, write.row, write.bytes), (Op::Delete, TableId(1), RowId(8), &b""[..]));
    assert!(log.next().expect("whole").is_none());
}

#[test]
fn a_full_ring_refuses_until_it_is_flushed() {
    let (_, io) = memory();
    let log = fresh(&io, SMALL);
    assert!(matches!(log.try_reserve(Kind::Commit, 300), Err(ReserveError::TooLarge)));
    let mut count = 0;
    let wait = loop {
        match append(&log, &[1; 100]) {
            Ok(_) => count += 1,
            Err(ReserveError::Full(wait)) => break wait,
            Err(other) => panic!("{other:?}"),
        }
    };
    assert_eq!(count, 1024 / 128);
    let mut wait = pin!(wait);
    let flag = Arc::new(Flag::default());
    let waker = Waker::from(Arc::clone(&flag));
    assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    log.flush_once().expect("flushed");
    assert!(flag.0.load(std::sync::atomic::Ordering::SeqCst));
    assert!(wait.poll(&mut Context::from_waker(&waker)).is_ready());
    append(&log, &[1; 100]).expect("space again");
}

#[derive(Default)]
struct Flag(std::sync::atomic::AtomicBool);

impl std::task::Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

#[test]
fn an_open_reservation_holds_the_filled_prefix() {
    let (_, io) = memory();
    let log = fresh(&io, SMALL);
    append(&log, b"before").expect("space");
    let reservation = log.try_reserve(Kind::Commit, 8).expect("space");
    std::thread::scope(|scope| {
        scope.spawn(|| append(&log, b"after").expect("space"));
    });
    assert_eq!(log.filled(), reservation.lsn());
    assert_eq!(log.flush_once().expect("flushed"), reservation.lsn());
    assert!(log.tail() > reservation.end());
    reservation.complete();
    assert_eq!(log.flush_once().expect("flushed"), log.tail());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_mix_of_sizes_comes_back(
        sizes in proptest::collection::vec((0_usize..230, 0_u8..8), 1..120),
        segment in 8_u64..40,
        short in any::<bool>(),
    ) {
        let recording = RecordingIo::new(&MemoryIo::new());
        let io: Arc<dyn Io> = Arc::new(recording.clone());
        let options = LogOptions { segment_bytes: segment * 64, ..SMALL };
        let mut log = fresh(&io, options);
        let mut expected = BTreeMap::new();
        for (number, (size, what)) in sizes.into_iter().enumerate() {
            let payload = vec![number as u8; size];
            let lsn = loop {
                match append(&log, &payload) {
                    Ok(lsn) => break lsn,
                    Err(ReserveError::Full(_)) => drop(log.flush_once().expect("flushed")),
                    Err(other) => panic!("{other:?}"),
                }
            };
            expected.insert(lsn.0, payload);
            match what {
                0 => drop(log.flush_once().expect("flushed")),
                1 => drop(log.try_reserve(Kind::Commit, 33)),
                2 => {
                    // A restart.
                    log.flush_once().expect("flushed");
                    let (_, end) = read(&io, Lsn(0)).expect("whole");
                    prop_assert_eq!(end.lsn, log.tail());
                    log = open(&io, &end, options).expect("reopened");
                }
                _ => {}
            }
        }
        log.close().expect("closed");
        recording.short_reads(short);
        let (records, end) = read(&io, Lsn(0)).expect("whole");
        prop_assert_eq!(records, expected);
        prop_assert_eq!(end.lsn, log.tail());
    }
}

/// What had been promised when so many operations had happened.
#[derive(Clone, Debug)]
struct Promise {
    operations: usize,
    durable: u64,
    truncated: u64,
}

/// Appends, flushes, truncates and restarts; returns every record ever appended and the promises.
fn busy_run(io: &Arc<dyn Io>, recording: &RecordingIo, seed: u64) -> (BTreeMap<u64, Vec<u8>>, Vec<Promise>) {
    let mut rng = Rng::new(seed);
    let mut log = fresh(io, SMALL);
    let mut all = BTreeMap::new();
    let mut promises = vec![Promise { operations: 0, durable: 0, truncated: 0 }];
    let mut truncated = 0;
    for number in 0..60 {
        let bytes = payload(number, &mut rng);
        match append(&log, &bytes) {
            Ok(lsn) => drop(all.insert(lsn.0, bytes)),
            Err(ReserveError::Full(_)) => {}
            Err(other) => panic!("{other:?}"),
        }
        if rng.chance(0.3) {
            let durable = log.flush_once().expect("flushed").0;
            promises.push(Promise { operations: recording.operations(), durable, truncated });
        }
        if rng.chance(0.1) {
            // A checkpoint that is durable needs the log from here on.
            let lsns: Vec<u64> = all.keys().copied().filter(|lsn| *lsn <= log.durable().0).collect();
            truncated = truncated.max(lsns.last().copied().unwrap_or(0));
            let durable = log.durable().0;
            promises.push(Promise { operations: recording.operations(), durable, truncated });
            log.truncate_before(Lsn(truncated)).expect("truncated");
        }
        if rng.chance(0.05) {
            let durable = log.flush_once().expect("flushed").0;
            promises.push(Promise { operations: recording.operations(), durable, truncated });
            let (_, end) = read(io, Lsn(truncated)).expect("whole");
            log = open(io, &end, SMALL).expect("reopened");
        }
    }
    (all, promises)
}

/// Checks what recovery finds in a crash image: a prefix of what was appended that covers what was promised.
fn check_image(image: &Arc<dyn Io>, all: &BTreeMap<u64, Vec<u8>>, promise: &Promise) -> LogEnd {
    let (records, end) = read(image, Lsn(promise.truncated)).unwrap_or_else(|error| panic!("{error}"));
    assert!(end.lsn.0 >= promise.durable, "{promise:?}: the log ends at {}", end.lsn);
    let expected: BTreeMap<u64, Vec<u8>> =
        all.range(promise.truncated..end.lsn.0).map(|(lsn, bytes)| (*lsn, bytes.clone())).collect();
    assert_eq!(records, expected, "{promise:?}");
    end
}

fn crash_everywhere(seed: u64, images: u64) {
    let recording = RecordingIo::new(&MemoryIo::new());
    let io: Arc<dyn Io> = Arc::new(recording.clone());
    let (all, promises) = busy_run(&io, &recording, seed);
    for operations in 0..=recording.operations() {
        let promise = promises.iter().rfind(|promise| promise.operations <= operations).expect("the first");
        for image_seed in 0..images {
            let image = recording.crash(operations, image_seed);
            let again = RecordingIo::new(&image);
            let image: Arc<dyn Io> = Arc::new(again.clone());
            let end = check_image(&image, &all, promise);
            // Recovery may crash, too, and what is appended after it must not meet anything old.
            if (operations + image_seed as usize).is_multiple_of(7) {
                let log = open(&image, &end, SMALL).expect("reopened");
                let mut more = all.clone();
                drop(more.split_off(&end.lsn.0));
                let lsn = append(&log, b"after the crash").expect("space");
                more.insert(lsn.0, b"after the crash".to_vec());
                let opened = again.operations();
                let durable = log.flush_once().expect("flushed").0;
                for operations in 0..=again.operations() {
                    let durable = if operations == again.operations() { durable } else { end.lsn.0 };
                    let promise = Promise { operations, durable, ..promise.clone() };
                    let third: Arc<dyn Io> = Arc::new(again.crash(operations, image_seed ^ 5));
                    let end = check_image(&third, &more, &promise);
                    assert!(operations <= opened || end.generation > 0);
                }
            }
        }
    }
}

#[test]
fn a_crash_anywhere_loses_nothing_durable() {
    for seed in 0..4 {
        crash_everywhere(seed, 6);
    }
}

#[cfg(feature = "model")]
#[test]
fn records_of_a_former_life_are_caught_only_by_their_checksum() {
    use crate::mutation::switch_off;
    let _off = switch_off(thermocline_base::mutation::Rule::ChecksumBindsPosition);
    let run = || (0..20).for_each(|seed| crash_everywhere(seed, 6));
    assert!(std::panic::catch_unwind(run).is_err(), "nobody misses the position in the checksum");
}

#[test]
fn every_flipped_bit_of_a_closed_log_is_found_or_harmless() {
    let (memory, io) = memory();
    let mut log = fresh(&io, SMALL);
    let mut rng = Rng::new(5);
    for number in 0..14 {
        append(&log, &payload(number, &mut rng)).expect("space");
        log.flush_once().expect("flushed");
        if number == 8 {
            let (_, end) = read(&io, Lsn(0)).expect("whole");
            log = open(&io, &end, SMALL).expect("reopened");
        }
    }
    log.close().expect("closed");
    let (whole, end) = read(&io, Lsn(0)).expect("whole");
    let mut found = 0;
    for (path, bytes) in memory.files() {
        for at in 0..bytes.len() as u64 {
            // Behind the header's fields there is nothing until the records start.
            if (68..4096).contains(&at) && at % 511 != 0 {
                continue;
            }
            let mask = 1 << rng.below(8);
            memory.flip(&path, at, mask);
            match read(&io, Lsn(0)) {
                Ok((records, now)) => {
                    assert_eq!(records, whole, "byte {at} of {}", path.display());
                    // The mark itself says nothing that anybody waits for.
                    assert!(now.lsn == end.lsn || now.lsn.0 + record::HEADER_BYTES == end.lsn.0);
                }
                Err(LogError::Damaged { .. } | LogError::Missing { .. }) => found += 1,
                Err(other) => panic!("byte {at} of {}: {other}", path.display()),
            }
            memory.flip(&path, at, mask);
        }
    }
    assert!(found > 1000, "{found} flips were found");
}

#[test]
fn a_segment_that_was_taken_away_is_missed() {
    let (memory, io) = memory();
    let log = fresh(&io, SMALL);
    for number in 0..20 {
        append(&log, &[number; 200]).expect("space");
        log.flush_once().expect("flushed");
    }
    let names: Vec<_> = memory.files().into_keys().collect();
    io.remove(&names[1]).expect("removed");
    let Err(LogError::Missing { lsn, .. }) = read(&io, Lsn(0)) else { panic!("it was not missed") };
    assert_eq!(lsn, Lsn(512));
    io.remove(&names[0]).expect("removed");
    assert!(matches!(read(&io, Lsn(0)), Err(LogError::Missing { .. })));
}

#[test]
fn what_the_checkpoint_knows_is_not_taken_for_a_torn_tail() {
    let (_, io) = memory();
    let log = fresh(&io, SMALL);
    append(&log, b"one").expect("space");
    let durable = log.flush_once().expect("flushed");
    let end = reader(&io, Lsn(0), durable).expect("whole").finish().expect("whole");
    assert_eq!(end.lsn, durable);
    let beyond = Lsn(durable.0 + 8);
    assert!(matches!(
        reader(&io, Lsn(0), beyond).expect("whole").finish(),
        Err(LogError::Damaged { lsn, .. }) if lsn == durable
    ));
}

#[test]
fn truncated_segments_are_used_again() {
    let (memory, io) = memory();
    let log = fresh(&io, SMALL);
    let mut most = 0;
    let mut last = Lsn(0);
    for number in 0..200 {
        last = append(&log, &[number; 100]).expect("space");
        log.flush_once().expect("flushed");
        log.truncate_before(last).expect("truncated");
        most = most.max(memory.files().len());
    }
    let statistics = log.statistics();
    assert!(statistics.recycled > 30, "{statistics:?}");
    assert!(most <= 7, "{most} files at a time");
    let (records, _) = read(&io, last).expect("whole");
    assert_eq!(records.len(), 1);
}

fn broken(on: Action) -> Fault {
    Fault { on, skip: 0, times: 1, kind: FaultKind::Broken }
}

/// A sync fails once; whoever goes on is told what is durable. Then the power goes.
fn sync_fails_once() {
    let recording = RecordingIo::new(&MemoryIo::new());
    let io: Arc<dyn Io> = Arc::new(recording.clone());
    let log = fresh(&io, SMALL);
    append(&log, b"one").expect("space");
    let one = log.flush_once().expect("flushed");
    append(&log, b"two").expect("space");
    let two = log.tail();
    recording.inject(broken(Action::Sync));
    let mut wait = pin!(log.wait_durable(two));
    let mut context = Context::from_waker(Waker::noop());
    assert!(wait.as_mut().poll(&mut context).is_pending());
    log.flush_once().expect_err("injected");
    // The next sync would go well, and prove nothing.
    let _ = log.flush_once();
    let durable = log.durable();
    for seed in 0..8 {
        let image: Arc<dyn Io> = Arc::new(recording.crash(recording.operations(), seed));
        let (_, end) = read(&image, Lsn(0)).expect("a prefix");
        assert!(end.lsn >= durable, "what was called durable is lost");
    }
    assert_eq!(durable, one);
    let failed = |result| matches!(result, std::task::Poll::Ready(Err(LogError::Failed(_))));
    assert!(failed(wait.poll(&mut context)));
    assert!(matches!(append(&log, b"x"), Err(ReserveError::Refused(LogError::Failed(_)))));
    assert_eq!(ready(log.wait_durable(one)).map(|result| result.is_ok()), Some(true));
    assert!(log.failure().is_some());
    assert!(log.close().is_err());
}

#[test]
fn the_first_failed_sync_is_final() {
    sync_fails_once();
}

#[cfg(feature = "model")]
#[test]
fn trusting_the_second_sync_is_caught() {
    use crate::mutation::{Rule, switch_off};
    let _off = switch_off(Rule::SyncFailureIsFinal);
    assert!(std::panic::catch_unwind(sync_fails_once).is_err());
}

#[test]
fn a_failed_write_is_final_too() {
    let recording = RecordingIo::new(&MemoryIo::new());
    let io: Arc<dyn Io> = Arc::new(recording.clone());
    let log = fresh(&io, SMALL);
    append(&log, b"one").expect("space");
    recording.inject(broken(Action::Write));
    assert!(matches!(log.flush_once(), Err(LogError::Failed(_))));
    assert!(matches!(log.flush_once(), Err(LogError::Failed(_))));
}

#[test]
fn what_was_granted_fits_on_a_full_disk() {
    for capacity in (0..40_000).step_by(512) {
        let memory = MemoryIo::new();
        let io: Arc<dyn Io> = Arc::new(memory.clone());
        memory.set_capacity(Some(capacity));
        let log = match open(&io, &LogEnd::fresh(Lsn(0)), SMALL) {
            Ok(log) => log,
            Err(LogError::DiskFull(_)) => continue,
            Err(other) => panic!("{other}"),
        };
        let mut granted = Vec::new();
        let refused = loop {
            match append(&log, &[7; 60]) {
                Ok(lsn) => granted.push(lsn),
                Err(ReserveError::Full(_)) => drop(log.flush_once().expect("what was granted is written")),
                Err(ReserveError::Refused(error)) => break error,
                Err(other) => panic!("{other:?}"),
            }
        };
        assert!(matches!(refused, LogError::DiskFull(_)));
        assert_eq!(log.flush_once().expect("what was granted is written"), log.tail());
        let (records, _) = read(&io, Lsn(0)).expect("whole");
        assert_eq!(records.len(), granted.len());
        // Space comes back, and the log goes on by itself.
        memory.set_capacity(Some(capacity + 20_000));
        log.flush_once().expect("flushed");
        append(&log, &[7; 60]).expect("space again");
    }
}

#[test]
fn threads_and_the_flusher() {
    for mode in [FlushMode::Sync, FlushMode::Group, FlushMode::Async] {
        let (_, io) = memory();
        let log = fresh(&io, LogOptions { mode, ring_bytes: 4096, segment_bytes: 8192 });
        log.start_flusher().expect("a thread");
        std::thread::scope(|scope| {
            for thread in 0..3_u8 {
                let log = &log;
                scope.spawn(move || {
                    for number in 0..500_u32 {
                        let mut bytes = vec![thread; 60];
                        bytes[..4].copy_from_slice(&number.to_le_bytes());
                        let end = loop {
                            match append(log, &bytes) {
                                Ok(lsn) => break Lsn(lsn.0 + record::span_of(60)),
                                Err(ReserveError::Full(wait)) => block_on(wait),
                                Err(other) => panic!("{other:?}"),
                            }
                        };
                        block_on(log.wait_acknowledged(end)).expect("acknowledged");
                    }
                    block_on(log.wait_durable(log.tail())).expect("durable");
                });
            }
        });
        let durable = log.durable();
        log.close().expect("closed");
        let (records, end) = read(&io, Lsn(0)).expect("whole");
        assert_eq!(records.len(), 1500);
        assert!(end.lsn >= durable);
        for thread in 0..3 {
            let of_thread = records.values().filter(|bytes| bytes[59] == thread);
            let numbers = of_thread.map(|bytes| u32::from_le_bytes(bytes[..4].try_into().expect("four")));
            assert!(numbers.eq(0..500), "a thread's records are in order");
        }
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        std::thread::park();
    }
}

#[test]
fn the_log_lives_on_a_real_disk() {
    let root = std::env::temp_dir().join(format!("thermocline-log-{}", std::process::id()));
    let io: Arc<dyn Io> = Arc::new(StdIo);
    let open = |end: &LogEnd| {
        Log::open(Arc::clone(&io), &root, DATABASE, end, SMALL, Arc::new(SystemClock)).expect("opened")
    };
    let mut end = LogEnd::fresh(Lsn(0));
    for round in 1..=3 {
        let log = open(&end);
        log.start_flusher().expect("a thread");
        for number in 0..20 {
            let lsn = append(&log, &[number; 50]).expect("space");
            block_on(log.wait_durable(Lsn(lsn.0 + 1))).expect("durable");
        }
        drop(log);
        let mut reader = LogReader::open(Arc::clone(&io), &root, DATABASE, Lsn(0), Lsn(0)).expect("whole");
        let mut count = 0;
        while reader.next().expect("whole").is_some() {
            count += 1;
        }
        assert_eq!(count, round * 20);
        end = reader.finish().expect("whole");
    }
    std::fs::remove_dir_all(&root).expect("cleaned");
}

#[test]
fn a_newer_format_is_refused_by_name() {
    let (memory, io) = memory();
    drop(fresh(&io, SMALL));
    let path = memory.files().into_keys().next().expect("a segment");
    let file = io.open(&path, OpenMode::Write).expect("it is there");
    let mut bytes = vec![0; 68];
    file.read_full_at(0, &mut bytes).expect("read");
    let newer = super::segment::FORMAT + 1;
    bytes[8..12].copy_from_slice(&newer.to_le_bytes());
    let sum = thermocline_base::checksum::crc32c(&bytes[..64]);
    bytes[64..].copy_from_slice(&sum.to_le_bytes());
    file.write_at(0, &bytes).expect("written");
    assert!(matches!(read(&io, Lsn(0)), Err(LogError::Newer { version, .. }) if version == newer));
}

#[test]
fn many_waiters_are_woken_together() {
    let (_, io) = memory();
    let log = fresh(&io, SMALL);
    let end = Lsn(append(&log, b"x").expect("space").0 + record::span_of(1));
    let flags: Vec<_> = (0..100).map(|_| Arc::new(Flag::default())).collect();
    let mut waits: Vec<_> = flags.iter().map(|_| Box::pin(log.wait_durable(end))).collect();
    let mut early = pin!(log.wait_durable(Lsn(end.0 + 8)));
    assert!(early.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    for _ in 0..2 {
        // Polled twice: the second waker takes the place of the first.
        for (wait, flag) in waits.iter_mut().zip(&flags) {
            let waker = Waker::from(Arc::clone(flag));
            assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
    }
    assert_eq!(log.core.durable_waiters.count(), 101);
    log.flush_once().expect("flushed");
    assert!(flags.iter().all(|flag| flag.0.load(std::sync::atomic::Ordering::SeqCst)));
    assert_eq!(log.core.durable_waiters.count(), 1);
    log.close().expect("closed");
    // The mark at the end made the log longer; what is durable stays so.
    assert!(ready(early).is_some_and(|result| result.is_ok()));
    assert!(matches!(ready(log.wait_durable(Lsn(1 << 40))), Some(Err(LogError::Closed))));
}

#[test]
fn async_stops_acknowledging_while_a_sync_hangs() {
    let (_, io) = memory();
    let clock = Arc::new(thermocline_base::clock::ManualClock::new(0));
    clock.advance(Duration::from_secs(1));
    let options = LogOptions { mode: FlushMode::Async, ..SMALL };
    let shared: Arc<dyn Clock> = Arc::<thermocline_base::clock::ManualClock>::clone(&clock);
    let log =
        Log::open(Arc::clone(&io), dir(), DATABASE, &LogEnd::fresh(Lsn(0)), options, shared).expect("opened");
    append(&log, b"x").expect("space");
    let acknowledged = |log: &Log| ready(log.wait_acknowledged(log.tail())).is_some();
    assert!(acknowledged(&log));
    log.core.pulse.flush_since_ns.store(clock.now_ns(), Ordering::SeqCst);
    clock.advance(Duration::from_millis(39));
    assert!(acknowledged(&log));
    clock.advance(Duration::from_millis(2));
    assert!(!acknowledged(&log));
    log.flush_once().expect("flushed");
    assert!(acknowledged(&log));
}

#[test]
fn nobody_waits_for_a_flusher_that_died() {
    #[derive(Debug)]
    struct Bomb;
    impl Clock for Bomb {
        fn now_ns(&self) -> u64 {
            let of_flusher = std::thread::current().name() == Some("thermocline-log");
            assert!(!of_flusher, "a broken invariant (on purpose, for a test)");
            1
        }
        fn wall_us(&self) -> i64 {
            0
        }
    }
    let (_, io) = memory();
    let log = Log::open(Arc::clone(&io), dir(), DATABASE, &LogEnd::fresh(Lsn(0)), SMALL, Arc::new(Bomb));
    let log = log.expect("opened");
    append(&log, b"x").expect("space");
    let tail = log.tail();
    log.start_flusher().expect("a thread");
    assert!(matches!(block_on(log.wait_durable(tail)), Err(LogError::FlusherDied)));
    assert!(matches!(append(&log, b"x"), Err(ReserveError::Refused(LogError::FlusherDied))));
    assert!(matches!(log.close(), Err(LogError::FlusherDied)));
}

#[test]
fn an_abandoned_log_leaves_nothing_behind() {
    let (memory, io) = memory();
    let log = fresh(&io, SMALL);
    append(&log, b"of no use").expect("space");
    log.close().expect("closed");
    drop(log);
    let end = LogEnd::abandon(&*io, dir(), Lsn(4096)).expect("listed");
    assert_eq!((end.generation, end.lsn), (1, Lsn(4096)));
    let log = open(&io, &end, SMALL).expect("opened");
    append(&log, b"new").expect("space");
    log.close().expect("closed");
    assert_eq!(read(&io, Lsn(4096)).expect("whole").0.len(), 1);
    assert!(memory.files().keys().all(|path| path.to_string_lossy().ends_with("-00000002.log")));
    assert!(matches!(read(&io, Lsn(0)), Err(LogError::Missing { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn garbage_gives_a_prefix_or_an_error(seed: u64, at in 0_u64..1500, len in 1_usize..600, file: usize) {
        let (memory, io) = memory();
        let log = fresh(&io, SMALL);
        let mut rng = Rng::new(seed);
        let mut all = BTreeMap::new();
        for number in 0..12 {
            let bytes = payload(number, &mut rng);
            all.insert(append(&log, &bytes).expect("space").0, bytes);
            log.flush_once().expect("flushed");
        }
        let names: Vec<_> = memory.files().into_keys().collect();
        let mut garbage = vec![0; len];
        rng.fill(&mut garbage);
        let file = io.open(&names[file % names.len()], OpenMode::Write).expect("it is there");
        file.write_at(if rng.chance(0.5) { at } else { at + 4000 }, &garbage).expect("written");
        if let Ok((records, _)) = read(&io, Lsn(0)) {
            let prefix: BTreeMap<_, _> = all.into_iter().take(records.len()).collect();
            prop_assert_eq!(records, prefix);
        }
    }
}

#[cfg(feature = "model")]
mod model {
    use super::*;
    use crate::mutation::{Rule, switch_off};
    use thermocline_base::sync::model::{finds_failure, run};

    /// Two appenders and a flusher. What is called durable is whole on disk, at every moment.
    fn appenders_and_flusher() {
        let (_, io) = memory();
        let log = Arc::new(fresh(&io, SMALL));
        let appenders: Vec<_> = (0..2_u8)
            .map(|thread| {
                let log = Arc::clone(&log);
                shuttle::thread::spawn(move || {
                    for number in 0..2 {
                        append(&log, &[thread * 16 + number; 20]).expect("space");
                    }
                })
            })
            .collect();
        for _ in 0..3 {
            let durable = log.flush_once().expect("flushed");
            let end = reader(&io, Lsn(0), Lsn(0)).and_then(LogReader::finish).expect("a prefix");
            assert!(end.lsn >= durable, "durable up to {durable}, whole up to {}", end.lsn);
        }
        for appender in appenders {
            appender.join().expect("an appender");
        }
        log.flush_once().expect("flushed");
        assert_eq!(read(&io, Lsn(0)).expect("whole").0.len(), 4);
    }

    /// The flusher's thread asks how full the ring is while another thread, a checkpoint's, flushes.
    #[test]
    fn what_is_unwritten_is_never_less_than_nothing() {
        run(1500, || {
            let (_, io) = memory();
            let log = Arc::new(fresh(&io, SMALL));
            let other = {
                let log = Arc::clone(&log);
                shuttle::thread::spawn(move || {
                    append(&log, &[1; 20]).expect("space");
                    log.flush_once().expect("flushed");
                })
            };
            for _ in 0..2 {
                assert!(log.core.ring.unwritten() <= log.core.ring.head(), "written lies behind the head");
            }
            other.join().expect("the other thread");
        });
    }

    #[test]
    fn only_whole_records_are_written() {
        run(1500, appenders_and_flusher);
    }

    #[test]
    fn writing_beyond_the_filled_prefix_is_caught() {
        let _off = switch_off(Rule::LogWritesFilledPrefix);
        assert!(finds_failure(1500, appenders_and_flusher));
    }

    /// A position that was noted as filled never lies behind a reservation that is still open: replay from there
    /// misses nothing.
    fn filled_stays_before_open_reservations() {
        let (_, io) = memory();
        let log = Arc::new(fresh(&io, SMALL));
        let noted = Arc::new(AtomicU64::new(0));
        let appenders: Vec<_> = (0..2)
            .map(|_| {
                let (log, noted) = (Arc::clone(&log), Arc::clone(&noted));
                shuttle::thread::spawn(move || {
                    for _ in 0..2 {
                        let reservation = log.try_reserve(Kind::Commit, 8).expect("space");
                        assert!(noted.load(Ordering::SeqCst) <= reservation.lsn().0, "filled beyond a hole");
                        reservation.complete();
                    }
                })
            })
            .collect();
        for _ in 0..3 {
            noted.fetch_max(log.filled().0, Ordering::SeqCst);
        }
        for appender in appenders {
            appender.join().expect("an appender");
        }
        assert_eq!(log.filled(), log.tail());
    }

    #[test]
    fn the_replay_position_misses_no_reservation() {
        run(3000, filled_stays_before_open_reservations);
    }

    #[test]
    fn a_replay_position_from_the_head_is_caught() {
        let _off = switch_off(Rule::LogWritesFilledPrefix);
        assert!(finds_failure(3000, filled_stays_before_open_reservations));
    }

    /// Waiters of records and of space are woken, however the flusher comes between.
    #[test]
    fn every_waiter_is_woken() {
        run(1500, || {
            let (_, io) = memory();
            let log = Arc::new(fresh(&io, LogOptions { ring_bytes: 256, ..SMALL }));
            let appenders: Vec<_> = (0..2_u8)
                .map(|thread| {
                    let log = Arc::clone(&log);
                    shuttle::thread::spawn(move || {
                        for _ in 0..3 {
                            let lsn = loop {
                                match append(&log, &[thread; 40]) {
                                    Ok(lsn) => break lsn,
                                    Err(ReserveError::Full(wait)) => shuttle::future::block_on(wait),
                                    Err(other) => panic!("{other:?}"),
                                }
                            };
                            let end = Lsn(lsn.0 + record::span_of(40));
                            shuttle::future::block_on(log.wait_durable(end)).expect("durable");
                            assert!(log.durable() >= end);
                        }
                    })
                })
                .collect();
            while log.durable().0 < 6 * record::span_of(40) {
                log.flush_once().expect("flushed");
                shuttle::thread::yield_now();
            }
            for appender in appenders {
                appender.join().expect("an appender");
            }
        });
    }
}
