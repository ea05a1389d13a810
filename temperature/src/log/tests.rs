//! The format: what is written is read, from both ends, and damage is named.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use thermocline_base::ids::TableId;
use thermocline_base::io::{File, Io, MemoryIo, OpenMode};
use thermocline_base::rng::Rng;

use super::error::LogError;
use super::format::{put_varint, varint};
use super::reader::LogReader;
use super::writer::{LogOptions, LogWriter};
use crate::classify::{Algorithm, Budget, Classification, ClassifyOptions, classify};
use crate::{Access, RowName, SizeClass};

fn access(table: u32, row: u64, weight: u32, cold: bool) -> Access {
    Access { row: RowName { table: TableId(table), hash: row }, size: SizeClass::of(100), weight, cold }
}

fn file_of(bytes: &[u8]) -> Arc<dyn File> {
    let io = MemoryIo::new();
    let file = io.open(Path::new("log"), OpenMode::CreateNew).expect("a new file");
    file.write_at(0, bytes).expect("written");
    file
}

fn bytes_of(file: &Arc<dyn File>) -> Vec<u8> {
    let mut bytes = vec![0; file.len().expect("a length") as usize];
    file.read_full_at(0, &mut bytes).expect("read");
    bytes
}

/// A log of `quanta` quanta of 50 accesses of `rows` rows, in small blocks and sections.
fn small(quanta: u64, rows: u64) -> Vec<u8> {
    let file = file_of(&[]);
    let options = LogOptions { block_bytes: 600, section_bytes: 5_000, ..LogOptions::new([7; 16]) };
    let mut writer = LogWriter::to_file(Arc::clone(&file), &options).expect("begun");
    let mut rng = Rng::new(3);
    for quantum in 0..quanta {
        let accesses: Vec<Access> =
            (0..50).map(|_| access(1, rng.below(rows), 10, rng.chance(0.1))).collect();
        writer.add(quantum * 2, &accesses).expect("added");
        writer.end_quantum(quantum * 2).expect("ended");
    }
    let len = writer.finish(quanta * 2).expect("finished");
    let mut bytes = bytes_of(&file);
    assert!(bytes.len() as u64 >= len);
    bytes.truncate(len as usize);
    bytes
}

fn read(bytes: &[u8], algorithm: Algorithm) -> Classification {
    let log = LogReader::open(file_of(bytes)).expect("a log");
    let options = ClassifyOptions { algorithm, budget: Budget::Rows(1_000_000), ..Default::default() };
    classify(&log, &options).expect("read")
}

#[test]
fn varints_come_back() {
    for value in [0, 1, 127, 128, 16383, 16384, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, value);
        let mut at = 0;
        assert_eq!((varint(&bytes, &mut at), at), (Some(value), bytes.len()));
        let mut at = 0;
        assert_eq!(varint(&bytes[..bytes.len() - 1], &mut at), None);
    }
    assert_eq!(varint(&[0xFF; 11], &mut 0), None);
    assert_eq!(varint(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2], &mut 0), None);
}

#[test]
fn both_ends_see_every_access() {
    let bytes = small(200, 300);
    for algorithm in [Algorithm::Forward, Algorithm::Backward] {
        let found = read(&bytes, algorithm);
        assert_eq!((found.damages.len(), found.unresolved), (0, 0), "{:?}", found.damages);
        assert_eq!((found.recorded, found.quanta, found.rows), (200 * 50, 200, 300));
        assert_eq!(found.accesses, 200 * 50 * 10);
        assert_eq!(found.accesses_hot, found.accesses, "everything fits");
    }
}

#[test]
fn a_stream_gives_the_same_bytes_as_a_file() {
    #[derive(Clone, Default)]
    struct Shared(Arc<thermocline_base::sync::Mutex<Vec<u8>>>);
    impl std::io::Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let shared = Shared::default();
    let options = LogOptions::new([1; 16]);
    let file = file_of(&[]);
    let mut writers = [
        LogWriter::to_stream(Box::new(shared.clone()), &options).expect("begun"),
        LogWriter::to_file(Arc::clone(&file), &options).expect("begun"),
    ];
    for writer in &mut writers {
        writer.add(0, &[access(1, 2, 3, false), access(9, 2, 1, true)]).expect("added");
        writer.end_quantum(0).expect("ended");
        writer.flush().expect("flushed");
    }
    let streamed = shared.0.lock().clone();
    assert!(streamed.len() > 64);
    assert_eq!(streamed, bytes_of(&file)[..streamed.len()]);
}

#[test]
fn a_torn_end_costs_the_last_block_only() {
    let bytes = small(200, 300);
    let whole = read(&bytes, Algorithm::Backward);
    for cut in [1, 7, 8, 9, 100, 500] {
        let torn = &bytes[..bytes.len() - cut];
        for algorithm in [Algorithm::Forward, Algorithm::Backward] {
            let found = read(torn, algorithm);
            assert_eq!(found.damages.len(), 1, "{cut}: {:?}", found.damages);
            assert!(found.damages[0].to_string().contains("ends inside of a block"), "{}", found.damages[0]);
            assert!(found.recorded < whole.recorded && found.recorded >= whole.recorded - 2_000);
        }
    }
}

#[test]
fn a_flipped_bit_is_named_and_the_rest_is_used() {
    let bytes = small(200, 300);
    let whole = read(&bytes, Algorithm::Forward);
    let mut rng = Rng::new(11);
    for _ in 0..60 {
        let mut damaged = bytes.clone();
        let at = 64 + rng.below(bytes.len() as u64 - 64) as usize;
        damaged[at] ^= 1 << rng.below(8);
        for algorithm in [Algorithm::Forward, Algorithm::Backward] {
            let found = read(&damaged, algorithm);
            // Padding and tails carry nothing: a bit there may pass, or only send the reader to the other end.
            if found.damages.is_empty() {
                assert_eq!(found.accesses_hot, whole.accesses_hot, "byte {at} was served damaged");
            } else {
                let near = found
                    .damages
                    .iter()
                    .any(|damage| (damage.offset..damage.offset + damage.bytes).contains(&(at as u64)));
                assert!(near, "byte {at}: {:?}", found.damages);
                assert!(found.accesses_hot > 0 && found.accesses_hot < whole.accesses_hot);
            }
        }
    }
}

#[test]
fn what_is_no_log_is_refused() {
    let refused = |bytes: &[u8]| LogReader::open(file_of(bytes)).expect_err("no log");
    assert!(matches!(refused(b"dear diary"), LogError::NotALog { .. }));
    let mut bytes = small(2, 10);
    bytes[40] ^= 1;
    assert!(matches!(refused(&bytes), LogError::NotALog { .. }));
    bytes[40] ^= 1;
    bytes[8] = 9;
    let sum = thermocline_base::checksum::crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&sum.to_le_bytes());
    let error = refused(&bytes);
    assert!(matches!(error, LogError::OtherVersion { found: 9, .. }), "{error}");
}

#[test]
fn an_empty_log_has_no_rows() {
    let bytes = small(0, 10);
    assert_eq!(bytes.len(), 64);
    for algorithm in [Algorithm::Forward, Algorithm::Backward] {
        let found = read(&bytes, algorithm);
        assert_eq!((found.rows, found.hottest.len(), found.damages.len()), (0, 0, 0));
    }
}

#[test]
fn a_writer_keeps_to_its_memory_and_splits_what_is_too_much() {
    let file = file_of(&[]);
    let options = LogOptions { memory_bytes: LogOptions::MEMORY_MIN, ..LogOptions::new([2; 16]) };
    let mut writer = LogWriter::to_file(Arc::clone(&file), &options).expect("begun");
    let accesses: Vec<Access> = (0..5_000).map(|row| access(1, row, 1, false)).collect();
    writer.add(0, &accesses).expect("added");
    writer.end_quantum(0).expect("ended");
    assert_eq!(writer.dropped(), 0);
    let many: Vec<Access> = (0..50_000).map(|row| access(1, row, 1, false)).collect();
    writer.add(1, &many).expect("added");
    writer.end_quantum(1).expect("ended");
    assert!(writer.dropped() > 0);
    assert!(writer.memory_bytes() <= LogOptions::MEMORY_MIN, "{}", writer.memory_bytes());
    let kept = 55_000 - writer.dropped();
    let len = writer.finish(2).expect("finished");
    let bytes = bytes_of(&file);
    let found = read(&bytes[..len as usize], Algorithm::Forward);
    assert_eq!((found.recorded, found.damages.len()), (kept, 0), "{:?}", found.damages);
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..2000), keep in 0..3000_usize) {
        // Behind a good beginning, so that the header is passed.
        let mut log = small(20, 30);
        log.truncate(keep.max(64));
        log.extend_from_slice(&bytes);
        for algorithm in [Algorithm::Forward, Algorithm::Backward] {
            let found = read(&log, algorithm);
            prop_assert!(found.bytes == log.len() as u64);
        }
    }

    #[test]
    fn any_parts_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(crate::classify::fuzz(&bytes) <= bytes.len() * 2);
    }
}
