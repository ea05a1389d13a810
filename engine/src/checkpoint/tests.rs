//! Checkpoints under crashes, faults and damage.

use std::collections::BTreeMap;

use proptest::prelude::*;
use std::sync::Arc;
use thermocline_base::ids::{Lsn, TableId, Timestamp};
use thermocline_base::io::{Action, Fault, FaultKind, Io, MemoryIo, OpenMode, RecordingIo};
use thermocline_base::rng::Rng;

use super::*;

const DATABASE: [u8; 16] = [9; 16];

fn dir() -> &'static Path {
    Path::new("db/checkpoint")
}

type Rows = Vec<(u16, u64, Vec<u8>)>;
type Contents = BTreeMap<(TableId, u32), Rows>;

fn header(table: u32, chunk: u32, time: u64) -> ChunkHeader {
    ChunkHeader {
        table: TableId(table),
        chunk,
        timestamp: Timestamp(time),
        replay: Lsn(time * 8),
        schema_version: 3,
    }
}

fn random_rows(rng: &mut Rng, most: u64) -> Rows {
    (0..rng.below(most))
        .map(|slot| {
            let mut bytes = vec![0; rng.below(60) as usize];
            rng.fill(&mut bytes);
            (slot as u16, rng.next_u64(), bytes)
        })
        .collect()
}

fn write_chunk(writer: &mut ImageWriter<'_>, header: ChunkHeader, rows: &Rows) -> ChunkImage {
    writer.begin(header);
    for (slot, begin, bytes) in rows {
        writer.row(*slot, Timestamp(*begin), bytes).expect("written");
    }
    writer.end().expect("written")
}

fn load(io: &Arc<dyn Io>, image: &ChunkImage) -> Result<Rows, CheckpointError> {
    let images = Images::new(Arc::clone(io), dir().to_path_buf(), DATABASE);
    let mut rows = Vec::new();
    images.load(image, &mut Vec::new(), |slot, begin, bytes| {
        rows.push((slot, begin.0, bytes.to_vec()));
        Ok::<(), CheckpointError>(())
    })?;
    Ok(rows)
}

fn memory() -> (MemoryIo, Arc<dyn Io>) {
    let memory = MemoryIo::new();
    let io: Arc<dyn Io> = Arc::new(memory.clone());
    (memory, io)
}

#[test]
fn images_come_back() {
    let recording = RecordingIo::new(&MemoryIo::new());
    let io: Arc<dyn Io> = Arc::new(recording.clone());
    let mut rng = Rng::new(3);
    let mut paced = 0;
    let mut pace = |bytes| paced += bytes;
    let mut writer = ImageWriter::create(&io, dir(), &DATABASE, 1, &mut pace).expect("created");
    let mut expected = Vec::new();
    for chunk in 0..6 {
        let rows = match chunk {
            0 => Vec::new(),
            // Larger than a block, alone and between others.
            1 => vec![(7, 1, vec![5; 3 << 20])],
            2 => vec![(0, 1, vec![1; 10]), (1, 2, vec![2; (1 << 20) + 1]), (2, 3, Vec::new())],
            3 => (0..3000).map(|slot| (slot, 4, vec![slot as u8; 700])).collect(),
            _ => random_rows(&mut rng, 200),
        };
        if chunk == 4 {
            writer.begin(header(9, 9, 9));
            writer.row(1, Timestamp(1), b"never meant to be").expect("written");
            writer.abandon();
        }
        let image = write_chunk(&mut writer, header(2, chunk, 10 + u64::from(chunk)), &rows);
        assert_eq!(image.rows, rows.len() as u64);
        expected.push((image, rows));
    }
    let file = writer.finish().expect("durable");
    assert_eq!(paced, file.bytes);
    assert_eq!(recording.memory().files()[&dir().join("00000001.img")].len() as u64, file.bytes);
    recording.short_reads(true);
    std::thread::scope(|scope| {
        for (image, rows) in &expected {
            let io = &io;
            scope.spawn(move || assert_eq!(&load(io, image).expect("whole"), rows));
        }
    });
}

#[test]
fn the_callers_error_ends_loading() {
    let (_, io) = memory();
    let mut pace = |_| {};
    let mut writer = ImageWriter::create(&io, dir(), &DATABASE, 1, &mut pace).expect("created");
    let image = write_chunk(&mut writer, header(1, 0, 1), &vec![(0, 1, vec![1]), (1, 1, vec![2])]);
    writer.finish().expect("durable");
    #[derive(Debug)]
    struct Enough;
    impl From<CheckpointError> for Enough {
        fn from(error: CheckpointError) -> Self {
            panic!("{error}")
        }
    }
    let mut seen = 0;
    let images = Images::new(Arc::clone(&io), dir().to_path_buf(), DATABASE);
    let result = images.load(&image, &mut Vec::new(), |_, _, _| {
        seen += 1;
        Err(Enough)
    });
    assert!(matches!(result, Err(Enough)));
    assert_eq!(seen, 1);
}

/// One checkpoint after `previous`: some chunks renewed, some dropped, the rest confirmed.
fn checkpoint(
    io: &Arc<dyn Io>,
    previous: &Manifest,
    contents: &mut Contents,
    rng: &mut Rng,
) -> Result<Manifest, CheckpointError> {
    let mut next = contents.clone();
    let mut builder = ManifestBuilder::new(previous);
    let number = builder.next_file();
    let time = previous.clock.0 + 1;
    let mut pace = |_| {};
    let mut writer = ImageWriter::create(io, dir(), &DATABASE, number, &mut pace)?;
    let mostly_dead = previous.mostly_dead_files();
    for chunk in 0..6 {
        let key = (TableId(1 + chunk % 2), chunk);
        let in_dead = previous.chunks.get(&key).is_some_and(|image| mostly_dead.contains(&image.file));
        if in_dead || rng.chance(0.4) {
            let rows = random_rows(rng, 30);
            builder.put(write_chunk(&mut writer, header(key.0.0, chunk, time), &rows));
            next.insert(key, rows);
        } else if rng.chance(0.1) {
            builder.drop_chunk(key.0, chunk);
            next.remove(&key);
        } else {
            let known = builder.confirm(key.0, chunk, Lsn(time * 8));
            assert_eq!(known, next.contains_key(&key));
        }
    }
    builder.add_file(writer.finish()?);
    let fill = |manifest: &mut Manifest| {
        manifest.clock = Timestamp(time);
        manifest.catalog = time.to_le_bytes().to_vec();
    };
    let manifest = builder.build(fill, Lsn(time * 8));
    assert_eq!(manifest.log_start, Lsn(time * 8));
    manifest.write(&**io, dir())?;
    *contents = next;
    manifest.sweep(&**io, dir())?;
    Ok(manifest)
}

fn check_contents(io: &Arc<dyn Io>, manifest: &Manifest, contents: &Contents) {
    assert_eq!(manifest.chunks.keys().collect::<Vec<_>>(), contents.keys().collect::<Vec<_>>());
    for (key, image) in &manifest.chunks {
        assert_eq!(&load(io, image).expect("whole"), &contents[key]);
    }
}

#[test]
fn a_crash_anywhere_leaves_one_of_the_last_two_checkpoints() {
    for seed in 0..3 {
        let recording = RecordingIo::new(&MemoryIo::new());
        let io: Arc<dyn Io> = Arc::new(recording.clone());
        let mut rng = Rng::new(seed);
        let mut manifest = Manifest::empty(DATABASE);
        let mut contents = Contents::new();
        manifest.write(&*io, dir()).expect("written");
        let mut history = vec![(recording.operations(), manifest.clone(), contents.clone())];
        for _ in 0..8 {
            manifest = checkpoint(&io, &manifest, &mut contents, &mut rng).expect("written");
            history.push((recording.operations(), manifest.clone(), contents.clone()));
        }
        for operations in history[0].0..=recording.operations() {
            // The last one that was durable by then, and the one that was being written.
            let last = history.iter().rposition(|entry| entry.0 <= operations).expect("the first");
            for image_seed in 0..6 {
                let image: Arc<dyn Io> = Arc::new(recording.crash(operations, image_seed));
                let found = Manifest::read_newest(&*image, dir(), &DATABASE)
                    .unwrap_or_else(|error| panic!("{error}"))
                    .expect("there is one");
                let at = history.iter().position(|entry| entry.1 == found).expect("one that was written");
                assert!(at == last || at == last + 1, "checkpoint {at} after {last}");
                check_contents(&image, &found, &history[at].2);
                found.sweep(&*image, dir()).expect("swept");
                check_contents(&image, &found, &history[at].2);
                let left = image.list(dir()).expect("listed").len();
                assert_eq!(left, found.files.len() + 1, "a sweep leaves only what is needed");
            }
        }
    }
}

#[test]
fn mostly_dead_files_go() {
    let (_, io) = memory();
    let mut rng = Rng::new(1);
    let mut contents = Contents::new();
    let mut manifest = Manifest::empty(DATABASE);
    let mut dropped = 0;
    for _ in 0..40 {
        let next = checkpoint(&io, &manifest, &mut contents, &mut rng).expect("written");
        dropped += manifest.files_dropped_by(&next).len();
        manifest = next;
        check_contents(&io, &manifest, &contents);
        assert!(manifest.files.len() <= 7, "{:?}", manifest.files);
    }
    assert!(dropped > 20, "{dropped} files dropped");
    let mut builder = ManifestBuilder::new(&manifest);
    for (table, chunk) in manifest.chunks.keys().filter(|(table, _)| *table == TableId(1)) {
        builder.drop_chunk(*table, *chunk);
    }
    assert!(builder.get(TableId(1), 0).is_none());
    let next = builder.build(|_| {}, Lsn(u64::MAX));
    assert!(next.chunks.keys().all(|(table, _)| *table == TableId(2)));
}

#[test]
fn an_old_image_holds_the_log() {
    let mut builder = ManifestBuilder::new(&Manifest::empty(DATABASE));
    let image = |chunk, replay| ChunkImage {
        header: header(1, chunk, 5),
        file: 1,
        offset: 64,
        bytes: 56,
        rows: 0,
        replay: Lsn(replay),
        base: None,
    };
    builder.add_file(ImageFile { number: 1, bytes: 1000 });
    builder.put(image(0, 40));
    builder.put(image(1, 80));
    assert!(builder.confirm(TableId(1), 1, Lsn(90)));
    assert!(!builder.confirm(TableId(1), 2, Lsn(90)));
    let manifest = builder.build(|_| {}, Lsn(100));
    assert_eq!(manifest.log_start, Lsn(40));
    assert_eq!(manifest.chunks[&(TableId(1), 1)].replay, Lsn(90));
    // 112 of 1000 bytes are referenced.
    assert_eq!(manifest.mostly_dead_files().into_iter().collect::<Vec<_>>(), [1]);
}

#[test]
fn a_checkpoint_that_fails_leaves_the_one_before() {
    for (on, kind) in [
        (Action::Write, FaultKind::Full),
        (Action::Sync, FaultKind::Broken),
        (Action::Open, FaultKind::Full),
        (Action::Rename, FaultKind::Broken),
        (Action::SyncDir, FaultKind::Broken),
    ] {
        for skip in 0..2 {
            let recording = RecordingIo::new(&MemoryIo::new());
            let io: Arc<dyn Io> = Arc::new(recording.clone());
            let mut rng = Rng::new(8);
            let mut contents = Contents::new();
            let manifest = Manifest::empty(DATABASE);
            let manifest = checkpoint(&io, &manifest, &mut contents, &mut rng).expect("written");
            recording.inject(Fault { on, skip, times: 1, kind });
            let before = contents.clone();
            let result = checkpoint(&io, &manifest, &mut contents, &mut rng);
            recording.heal();
            if skip == 0 {
                let Err(CheckpointError::Io(error)) = result else { panic!("{on} did not fail") };
                assert_eq!(error.is_full(), kind == FaultKind::Full);
            }
            let found = Manifest::read_newest(&*io, dir(), &DATABASE).expect("whole").expect("there is one");
            if found == manifest {
                check_contents(&io, &found, &before);
                // And the next attempt goes well.
                let next = checkpoint(&io, &found, &mut contents, &mut rng).expect("written");
                check_contents(&io, &next, &contents);
            }
        }
    }
}

#[test]
fn every_flipped_bit_is_found_and_named() {
    let (memory, io) = memory();
    let superblock = Superblock::new(DATABASE, 77);
    superblock.create(&*io, Path::new("db")).expect("written");
    let mut contents = Contents::new();
    let mut rng = Rng::new(2);
    let manifest = checkpoint(&io, &Manifest::empty(DATABASE), &mut contents, &mut rng).expect("written");
    let read_all = || -> Result<(), CheckpointError> {
        let superblock = Superblock::open(&io, Path::new("db"))?.expect("it is there");
        FoundEnds::read(&*io, Path::new("db"), &superblock)?;
        let found = Manifest::read_newest(&*io, dir(), &superblock.database)?.expect("it is there");
        assert_eq!(found, manifest);
        for (key, image) in &found.chunks {
            assert_eq!(load(&io, image)?, contents[key]);
        }
        Ok(())
    };
    read_all().expect("whole");
    for (path, bytes) in memory.files() {
        let whole = bytes.len();
        // What stands behind a superblock has tests of its own.
        let checked = if path.ends_with(superblock::FILE) { 44 } else { whole };
        for at in 0..checked as u64 {
            let mask = 1 << rng.below(8);
            memory.flip(&path, at, mask);
            let error = read_all().expect_err("a flip that nobody notices");
            let text = error.to_string();
            assert!(text.contains(&path.display().to_string()), "byte {at} of {}: {text}", path.display());
            if path.ends_with("00000001.img") && at >= 64 {
                let CheckpointError::DamagedChunk { table, chunk, offset, .. } = error else {
                    panic!("{text}")
                };
                let image = manifest.chunks[&(table, chunk)];
                assert!((image.offset..image.offset + image.bytes).contains(&at) && offset <= at);
            }
            memory.flip(&path, at, mask);
        }
        // Cut at some places.
        let file = io.open(&path, OpenMode::Write).expect("it is there");
        for len in [0, whole / 3, whole - 1] {
            file.set_len(len as u64).expect("cut");
            let text = read_all().expect_err("a cut that nobody notices").to_string();
            assert!(text.contains(&path.display().to_string()), "{text}");
            file.set_len(0).expect("cut");
            file.write_at(0, &bytes).expect("restored");
        }
    }
    read_all().expect("whole again");
}

#[test]
fn a_superblock_tells_what_a_directory_is() {
    let (memory, io) = memory();
    let db = Path::new("db");
    assert_eq!(Superblock::open(&io, db).expect("nothing there"), None);
    io.create_dir_all(db).expect("made");
    let _lock = io.lock_exclusive(&db.join(superblock::LOCK_FILE)).expect("free");
    assert_eq!(Superblock::open(&io, db).expect("a lock is nothing"), None);
    io.open(&db.join("letter.txt"), OpenMode::Create).expect("created");
    let Err(CheckpointError::NotADatabase { found, .. }) = Superblock::open(&io, db) else { panic!("taken") };
    assert_eq!(found, "the file letter.txt");
    let superblock = Superblock::new(DATABASE, -5);
    superblock.create(&*io, db).expect("written");
    assert_eq!(Superblock::open(&io, db).expect("whole"), Some(superblock));
    // A newer format, whole.
    let path = db.join(superblock::FILE);
    let mut bytes = memory.files()[&path].clone();
    bytes[8] = 9;
    let sum = thermocline_base::checksum::crc32c(&bytes[..40]);
    bytes[40..44].copy_from_slice(&sum.to_le_bytes());
    io.open(&path, OpenMode::Write).expect("it is there").write_at(0, &bytes).expect("written");
    assert!(matches!(Superblock::open(&io, db), Err(CheckpointError::Newer { version: 9, known: 2, .. })));
}

#[test]
fn a_crash_while_the_superblock_is_written_leaves_all_or_nothing() {
    let recording = RecordingIo::new(&MemoryIo::new());
    let superblock = Superblock::new(DATABASE, 1);
    superblock.create(&recording, Path::new("db")).expect("written");
    for operations in 0..=recording.operations() {
        for seed in 0..20 {
            let image: Arc<dyn Io> = Arc::new(recording.crash(operations, seed));
            let found = Superblock::open(&image, Path::new("db")).expect("all or nothing");
            assert!(found.is_none_or(|found| found == superblock));
            assert!(operations < recording.operations() || found.is_some());
        }
    }
}

#[test]
fn files_of_another_database_are_refused() {
    let (_, io) = memory();
    let mut contents = Contents::new();
    let manifest =
        checkpoint(&io, &Manifest::empty(DATABASE), &mut contents, &mut Rng::new(2)).expect("written");
    assert!(matches!(Manifest::read_newest(&*io, dir(), &[1; 16]), Err(CheckpointError::Foreign { .. })));
    let images = Images::new(Arc::clone(&io), dir().to_path_buf(), [1; 16]);
    let image = manifest.chunks.values().next().expect("an image");
    let result = images.load(image, &mut Vec::new(), |_, _, _| Ok::<(), CheckpointError>(()));
    assert!(matches!(result, Err(CheckpointError::Foreign { .. })));
}

proptest! {
    #[test]
    fn manifests_come_back(
        numbers: [u64; 6], small: [u32; 2], state in 0_u8..3, cold in any::<bool>(),
        catalog in proptest::collection::vec(any::<u8>(), 0..50),
        chunks in proptest::collection::vec((any::<[u32; 3]>(), any::<[u64; 9]>()), 0..10),
    ) {
        let mut manifest = Manifest {
            sequence: numbers[0],
            clock: Timestamp(numbers[1]),
            next_table: small[0],
            next_index: small[1],
            next_transaction: numbers[2],
            log_start: Lsn(numbers[3]),
            log_durable: Lsn(numbers[4]),
            next_file: numbers[5],
            state: [RunState::Logged, RunState::Closed, RunState::Volatile][usize::from(state)],
            cold,
            catalog,
            ..Manifest::empty(DATABASE)
        };
        for (ids, values) in chunks {
            let header = ChunkHeader {
                table: TableId(ids[0]), chunk: ids[1], schema_version: ids[2],
                timestamp: Timestamp(values[0]), replay: Lsn(values[1]),
            };
            let image = ChunkImage {
                header, file: values[2], offset: values[3], bytes: values[4], rows: values[5],
                replay: Lsn(values[6]),
                base: (values[7] != 0).then_some(Base {
                    id: values[7], file: values[2], offset: values[8], bytes: values[4], pieces: values[5],
                }),
            };
            manifest.files.insert(image.file, values[4]);
            manifest.chunks.insert((header.table, header.chunk), image);
        }
        let (_, io) = memory();
        manifest.write(&*io, dir()).expect("written");
        let found = Manifest::read_newest(&*io, dir(), &DATABASE).expect("whole");
        prop_assert_eq!(found, Some(manifest));
    }
}
