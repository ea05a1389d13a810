//! Whose file it is, how large, and what a path may not be.

use super::*;
use thermocline_base::io::{Action, Fault, FaultKind, Io, OpenMode};

fn open(
    io: &(impl Io + Clone + 'static),
    options: SsdOptions,
    database: [u8; 16],
) -> Result<SsdFile, SsdError> {
    let io: Arc<dyn Io> = Arc::new(io.clone());
    SsdFile::open(&io, options, PageSize::default(), database)
}

#[test]
fn what_cannot_be_is_named() {
    let io = MemoryIo::new();
    let small = open(&io, options(31), DATABASE).expect_err("no extent fits");
    assert!(matches!(small, SsdError::TooSmall { least, .. } if least == 33 * 4096), "{small}");
    assert!(!io.exists(Path::new("/ssd")).expect("memory"), "nothing was made");
    let future = open(&io, SsdOptions { policy: CacheKind::Opt, ..options(64) }, DATABASE);
    assert!(matches!(future, Err(SsdError::Policy(CacheKind::Opt))));
    let held = open(&io, options(64), DATABASE).expect("a fresh file");
    let used = open(&io, options(64), [8; 16]).expect_err("it is in use").to_string();
    assert!(used.contains("/ssd is in use"), "{used}");
    drop(held);
    let other = open(&io, options(64), [8; 16]).expect_err("another database's").to_string();
    assert!(other.contains("belongs to database") && other.contains("name another file"), "{other}");
    open(&io, options(64), DATABASE).expect("its own");
    let newer = io.open(Path::new("/ssd"), OpenMode::Write).expect("it is there");
    newer.write_at(8, &99_u32.to_le_bytes()).expect("memory");
    assert!(open(&io, options(64), DATABASE).expect_err("newer").to_string().contains("format 99"));
    newer.write_at(0, b"whatever").expect("memory");
    assert!(matches!(open(&io, options(64), DATABASE), Err(SsdError::File(WrongFile::Foreign { .. }))));
}

#[test]
fn a_full_disk_is_named_and_leaves_nothing() {
    let io = RecordingIo::new(&MemoryIo::new());
    io.inject(Fault { on: Action::Allocate, skip: 0, times: 1, kind: FaultKind::Full });
    let error = open(&io, options(64), DATABASE).expect_err("full");
    assert!(matches!(error, SsdError::Full { .. }), "{error}");
    assert!(!io.exists(Path::new("/ssd")).expect("memory"));
}

#[test]
fn another_size_or_a_torn_header_is_made_anew() {
    let io = MemoryIo::new();
    drop(open(&io, options(64), DATABASE).expect("a fresh file"));
    for slots in [500, 40] {
        let file = open(&io, options(slots), DATABASE).expect("its own");
        assert_eq!(u64::from(file.slots), slots);
        assert_eq!(file.file.len().expect("memory"), (slots + 1) * 4096);
    }
    let file = io.open(Path::new("/ssd"), OpenMode::Write).expect("it is there");
    file.write_at(16, &[7]).expect("memory");
    open(&io, options(64), DATABASE).expect("a torn header proves nothing");
}
