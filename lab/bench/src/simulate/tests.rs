//! Traces of each kind are opened by their content, packed or not; reports have what they promise.

use std::io::Write;

use super::*;
use thermocline_pool::simulate::trace::{TraceKind, TraceRequest, TraceWriter};

fn settings(trace: &str) -> SimulateSettings {
    SimulateSettings {
        traces: vec![trace.to_owned()],
        format: None,
        policies: CacheKind::ALL.to_vec(),
        dram_bytes: 0,
        ssd_bytes: vec![1 << 20, 4 << 20],
        page_bytes: 4096,
        extent_pages: 32,
        devices: Devices::parse("").expect("the usual ones"),
        mode: WriteMode::WriteThrough,
        scale: 0.002,
        threads: 2,
        seed: 1,
    }
}

/// 300 pages, three times.
fn pages() -> impl Iterator<Item = u64> {
    (0..900).map(|at| at % 300)
}

fn csv() -> Vec<u8> {
    pages().flat_map(|page| format!("{page},r\n").into_bytes()).collect()
}

fn ours() -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new(), 4096, 32).expect("a vector");
    pages().for_each(|page| writer.push(&TraceRequest::new(page, TraceKind::Read)).expect("a vector"));
    writer.finish().expect("a vector")
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(bytes).expect("a vector");
    packed.finish().expect("a vector")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

fn found(name: &str, bytes: &[u8]) -> Result<SimulationReport> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join(name);
    std::fs::write(&path, bytes).expect("writable");
    run(&settings(path.to_str().expect("text")), true)
}

#[test]
fn each_format_is_known_by_its_content_packed_or_not() {
    let msr: Vec<u8> =
        pages().flat_map(|page| format!("1,h,0,Read,{},4096,5\n", page * 4096).into_bytes()).collect();
    let oracle: Vec<u8> =
        pages().flat_map(|page| [&[0; 4][..], &page.to_le_bytes(), &[0; 12]].concat()).collect();
    let two_frames = [zstd(&csv()[..1200]), zstd(&csv()[1200..])].concat();
    for (name, bytes) in [
        ("a", ours()),
        ("a.gz", gzip(&ours())),
        ("a.zst", zstd(&ours())),
        ("b", csv()),
        ("b.gz", [gzip(&csv()[..1200]), gzip(&csv()[1200..])].concat()),
        ("b.zst", two_frames),
        ("c", msr),
        ("d.oracleGeneral", oracle.clone()),
        ("d.oracleGeneral.zst", zstd(&oracle)),
    ] {
        let report = found(name, &bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(report.rows.len(), 1 + 2 * CacheKind::ALL.len(), "{name}");
        // 256 pages: LRU loses a loop of 300; 1,024 keep all of it.
        let lru: Vec<u64> =
            report.rows.iter().filter(|row| row.policy == "lru").map(|row| row.ssd_hits).collect();
        assert_eq!(lru, [0, 600], "{name}");
    }
}

#[test]
fn what_is_wrong_with_a_trace_is_said() {
    let bad_line = b"1,r\n2,x\n".to_vec();
    for (name, bytes, says) in [
        ("a", ours()[..2000].to_vec(), "truncated"),
        ("a", ours()[..5].to_vec(), "truncated"),
        ("a.gz", gzip(&ours())[..200].to_vec(), "truncated"),
        (
            "a.zst",
            {
                let all = zstd(&ours());
                all[..all.len() - 300].to_vec()
            },
            "truncated",
        ),
        ("b", vec![0, 159, 1, 2, 3], "neither ours nor text"),
        ("c", bad_line, "line 2"),
        ("d", Vec::new(), "it is empty"),
        ("e.oracleGeneral", vec![1; 30], "truncated"),
        ("f", b"page,kind\n".to_vec(), "has no request"),
    ] {
        let error = found(name, &bytes).expect_err(says).to_string();
        assert!(error.contains(says), "{name}: {error}");
    }
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let of = |change: &dyn Fn(&mut SimulateSettings), says: &str| {
        let mut settings = settings("model:scan");
        change(&mut settings);
        let error = run(&settings, true).expect_err(says).to_string();
        assert!(error.contains(says), "{error}");
    };
    of(&|settings| settings.page_bytes = 5000, "power of two");
    of(&|settings| settings.ssd_bytes = vec![64 << 10], "too small for an extent");
    of(&|settings| settings.traces = vec!["model:none".to_owned()], "name one of tpcc-150");
    of(&|settings| settings.traces = vec!["nowhere/trace".to_owned()], "cannot open the trace");
    of(&|settings| settings.extent_pages = 0, "--extent");
    assert!(Devices::parse("ssd=floppy").expect_err("none").to_string().contains("fusion-io"));
    assert!(Devices::parse("tape=x").expect_err("none").to_string().contains("neither"));
}

#[test]
fn a_device_comes_from_a_file() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("writable");
        device(path.to_str().expect("text"))
    };
    let disk = "read_mb_per_s = 100.0\nwrite_mb_per_s = 90.0\n[mechanics]\nseek_mean_ms = 4.0\nseek_least_ms = 0.5\nrotation_mean_ms = 2.0\n";
    let (sequential, random) = file("disk.toml", disk).expect("right").read_ns(100_000);
    assert_eq!((sequential, random), (1e6, 7e6));
    let wrong = file("wrong.toml", "read_mb_per_s = 0.0\nwrite_mb_per_s = 1.0\n").expect_err("no bytes");
    assert!(wrong.to_string().contains("bytes a second read"), "{wrong}");
    let unknown = file("unknown.toml", "speed = 1\n").expect_err("no such key").to_string();
    assert!(unknown.contains("speed"), "{unknown}");
}

#[test]
fn models_run_and_reports_say_what_is_emulated() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut settings = settings("");
    settings.policies = vec![CacheKind::Tac, CacheKind::Lru, CacheKind::Opt];
    settings.dram_bytes = 1 << 20;
    settings.traces = ["model:ods", "model:ods-zipf", "model:scan"].map(str::to_owned).to_vec();
    let report = run(&settings, true).expect("models are there");
    assert_eq!(report.rows.len(), 3 * 7);
    let table = report.to_table();
    for part in ["emulated", "hdd-7200", "fusion-io", "simulated", "model:ods", "opt", "none"] {
        assert!(table.contains(part), "{part}: {table}");
    }
    for file in report.write(dir.path()).expect("writable") {
        let text = std::fs::read_to_string(&file).expect("written");
        assert!(text.contains("mulated"), "{}: {text}", file.display());
    }
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).expect("JSON");
    let names = "trace, policy, dram_bytes, ssd_bytes, requests, ssd_hits, hit_ratio, ssd_reads, ssd_writes, \
                 disk_reads_random, disk_reads_sequential, disk_writes, io_seconds, requests_per_s";
    for name in names.split(", ") {
        assert!(!json["rows"][1][name].is_null(), "{name}");
    }
}
