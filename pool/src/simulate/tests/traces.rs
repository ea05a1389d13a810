//! Traces: formats round trip; truncated, damaged and foreign ones are named.

use super::super::formats::{CsvReader, MsrReader, OracleReader, is_msr};
use super::*;
use crate::cache::Told;
use crate::trace::{TraceError, TraceReader, TraceSource, TraceWriter};
use proptest::prelude::*;

fn all(source: &mut dyn TraceSource) -> trace::Result<Vec<TraceRequest>> {
    let mut found = Vec::new();
    while source.next_batch(&mut found)? {}
    Ok(found)
}

fn written(requests: &[TraceRequest]) -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new(), 4096, 32).expect("a vector");
    requests.iter().for_each(|request| writer.push(request).expect("a vector"));
    writer.finish().expect("a vector")
}

fn read(bytes: &[u8]) -> trace::Result<Vec<TraceRequest>> {
    let mut reader = TraceReader::new(bytes)?;
    assert_eq!(reader.page_bytes(), Some(4096));
    all(&mut reader)
}

prop_compose! {
    fn any_request()(page: u64, version: u64, think_us: u32, stream: u16, kind in 0..4_u8, told in 0..3_u8) -> TraceRequest {
        let kind = [TraceKind::Read, TraceKind::Write, TraceKind::Free, TraceKind::Create][kind as usize];
        let told = [Told::Nothing, Told::Sequential, Told::Random][told as usize];
        TraceRequest { page, version, think_us, stream, kind, told }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn what_was_written_is_read(requests in proptest::collection::vec(any_request(), 0..200), times in 1..50_usize) {
        let requests = requests.repeat(times);
        prop_assert_eq!(read(&written(&requests)).expect("whole"), requests);
    }

    #[test]
    fn no_prefix_passes_and_no_flipped_bit(requests in proptest::collection::vec(any_request(), 1..40), at: prop::sample::Index, bit in 0..8_u8) {
        let bytes = written(&requests);
        let at = at.index(bytes.len());
        let cut = read(&bytes[..at]);
        prop_assert!(matches!(cut, Err(TraceError::Cut(_))), "{:?}", cut);
        let mut flipped = bytes;
        flipped[at] ^= 1 << bit;
        // The last 4 bytes of the header are not used.
        if !(28..32).contains(&at) {
            prop_assert!(read(&flipped).is_err(), "byte {}", at);
        }
    }
}

#[test]
fn foreign_and_later_files_are_named() {
    assert!(matches!(TraceReader::new(&[b'x'; 100][..]), Err(TraceError::Foreign(_))));
    let mut later = written(&[]);
    later[8] = 2;
    assert!(matches!(TraceReader::new(&later[..]), Err(TraceError::Newer(2))));
    assert!(matches!(TraceReader::new(&later[..20]), Err(TraceError::Cut(_))));
}

#[test]
fn csv_has_kinds_streams_and_perhaps_a_heading() {
    let text = "page,kind,stream\n5\n6,w\n\n7,Read,3\n8,f\n9,create,1\n";
    let found = all(&mut CsvReader::new(text.as_bytes())).expect("right");
    let found: Vec<_> = found.iter().map(|of| (of.page, of.kind, of.stream)).collect();
    let (read, write) = (TraceKind::Read, TraceKind::Write);
    assert_eq!(
        found,
        [(5, read, 0), (6, write, 0), (7, read, 3), (8, TraceKind::Free, 0), (9, TraceKind::Create, 1)]
    );
    for (text, says) in [
        ("1\nx\n", "line 2"),
        ("1,z\n", "none of read"),
        ("1,r,70000\n", "65535"),
        ("1,r,1,1\n", "more than"),
        ("-1\n", "no page number"),
    ] {
        let error = all(&mut CsvReader::new(text.as_bytes())).expect_err(text).to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
    let binary = all(&mut CsvReader::new(&[0xff, 0xfe, 0, 10][..]));
    assert!(matches!(binary, Err(TraceError::Foreign(_))), "{binary:?}");
}

#[test]
fn msr_lines_become_the_pages_that_they_touch() {
    let text =
        "128166372003061629,usr,0,Read,7014609920,24576,41286\n128166372016382155,usr,1,Write,4095,2,463\n";
    assert!(is_msr(text.lines().next().expect("a line")) && !is_msr("1,r,0"));
    let found = all(&mut MsrReader::new(text.as_bytes(), 4096)).expect("right");
    let found: Vec<_> = found.iter().map(|of| (of.page, of.kind, of.stream)).collect();
    let first = 7_014_609_920 / 4096;
    let mut expected: Vec<_> = (first..first + 7).map(|page| (page, TraceKind::Read, 0)).collect();
    expected.extend([(1 << 40, TraceKind::Create, 1), ((1 << 40) + 1, TraceKind::Create, 1)]);
    assert_eq!(found, expected);
    for (text, says) in [
        ("1,usr,0,Read,0\n", "seven"),
        ("1,usr,0,Trim,0,1,1\n", "neither"),
        ("1,usr,0,Read,18446744073709551615,9,1\n", "too large"),
    ] {
        let error = all(&mut MsrReader::new(text.as_bytes(), 4096)).expect_err(text).to_string();
        assert!(error.contains(says) && error.contains("line 1"), "{text}: {error}");
    }
}

#[test]
fn oracle_general_has_objects() {
    let mut bytes = Vec::new();
    for object in [7_u64, 1 << 40, 7] {
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend(object.to_le_bytes());
        bytes.extend(4096_u32.to_le_bytes());
        bytes.extend((-1_i64).to_le_bytes());
    }
    let found = all(&mut OracleReader::new(&bytes[..])).expect("right");
    assert_eq!(found.iter().map(|of| of.page).collect::<Vec<_>>(), [7, 1 << 40, 7]);
    let cut = all(&mut OracleReader::new(&bytes[..50]));
    assert!(matches!(cut, Err(TraceError::Cut(_))), "{cut:?}");
}
