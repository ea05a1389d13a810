//! The recorder's crash images, faults and operations under way.

use super::*;
use crate::io::{AlignedBytes, DIRECT_ALIGNMENT};

fn recorded() -> (RecordingIo, Arc<dyn File>) {
    let io = RecordingIo::new(&MemoryIo::new());
    io.create_dir_all(Path::new("d")).expect("made");
    let file = io.open(Path::new("d/a"), OpenMode::CreateNew).expect("created");
    (io, file)
}

fn bytes_of(io: &MemoryIo, path: &str) -> Option<Vec<u8>> {
    io.files().remove(Path::new(path))
}

#[test]
fn what_is_synced_is_there_in_every_image() {
    let (io, file) = recorded();
    file.write_at(0, &[1; 2000]).expect("written");
    file.sync_data().expect("synced");
    io.sync_dir(Path::new("d")).expect("synced");
    file.write_at(0, &[2; 2000]).expect("written");
    let (mut torn, mut lost, mut kept) = (false, false, false);
    for seed in 0..50 {
        let bytes = bytes_of(&io.crash(io.operations(), seed), "d/a").expect("its name is durable");
        assert_eq!(bytes.len(), 2000);
        let sectors: Vec<u8> = bytes.chunks(512).map(|sector| sector[0]).collect();
        assert!(bytes.iter().zip((0..).map(|at| sectors[at / 512])).all(|(byte, first)| *byte == first));
        lost |= sectors.iter().all(|sector| *sector == 1);
        kept |= sectors.iter().all(|sector| *sector == 2);
        torn |= sectors.contains(&1) && sectors.contains(&2);
    }
    assert!(torn && lost && kept, "the images miss a possibility");
}

#[test]
fn names_need_a_sync_of_their_directory() {
    let (io, file) = recorded();
    file.write_at(0, b"x").expect("written");
    file.sync_data().expect("synced");
    assert_eq!(bytes_of(&io.crash(io.operations(), 0), "d/a"), None);
    io.rename(Path::new("d/a"), Path::new("d/b")).expect("renamed");
    io.sync_dir(Path::new("d")).expect("synced");
    let image = io.crash(io.operations(), 0);
    assert_eq!(bytes_of(&image, "d/a"), None);
    assert_eq!(bytes_of(&image, "d/b").as_deref(), Some(&b"x"[..]));
    io.remove(Path::new("d/b")).expect("removed");
    assert!(bytes_of(&io.crash(io.operations(), 0), "d/b").is_some());
    assert!(bytes_of(&io.crash(io.operations(), 1), "d/b").is_none());
}

#[test]
fn a_failed_sync_loses_what_a_later_one_does_not_bring_back() {
    let (io, file) = recorded();
    io.sync_dir(Path::new("d")).expect("synced");
    file.write_at(0, b"x").expect("written");
    io.inject(Fault { on: Action::Sync, skip: 0, times: 1, kind: FaultKind::Broken });
    file.sync_data().expect_err("injected");
    file.sync_data().expect("the next one seems to go well");
    assert_eq!(bytes_of(&io.crash(io.operations(), 0), "d/a").as_deref(), Some(&b""[..]));
}

#[test]
fn faults_come_when_they_are_due() {
    let (io, file) = recorded();
    io.inject(Fault { on: Action::Write, skip: 1, times: 2, kind: FaultKind::Full });
    file.write_at(0, b"x").expect("skipped");
    assert!(file.write_at(1, b"x").expect_err("due").is_full());
    assert!(file.write_at(1, b"x").expect_err("due").is_full());
    file.write_at(1, b"x").expect("over");
    io.short_reads(true);
    let mut bytes = [0; 2];
    assert_eq!(file.read_at(0, &mut bytes).expect("read"), 1);
    assert_eq!(file.read_full_at(0, &mut bytes).expect("read"), 2);
    // Those of direct files end at blocks.
    let direct = io.open_direct(Path::new("d/direct"), OpenMode::Create).expect("created");
    let mut blocks = AlignedBytes::zeroed(3 * DIRECT_ALIGNMENT);
    direct.write_at(0, &blocks).expect("written");
    assert_eq!(direct.read_at(0, &mut blocks).expect("read"), 2 * DIRECT_ALIGNMENT);
    assert_eq!(direct.read_at(0, &mut blocks[..DIRECT_ALIGNMENT]).expect("read"), DIRECT_ALIGNMENT);
}

#[test]
fn an_image_can_crash_again() {
    let (io, file) = recorded();
    file.write_at(0, b"one").expect("written");
    let image = io.crash(io.operations(), 1);
    let again = RecordingIo::new(&image);
    let file = again.open(Path::new("d/a"), OpenMode::Write).expect("it is there");
    file.write_at(0, b"two").expect("written");
    assert_eq!(bytes_of(&again.crash(0, 1), "d/a").as_deref(), Some(&b"one"[..]));
    assert_eq!(bytes_of(&again.crash(again.operations(), 0), "d/a").as_deref(), Some(&b"one"[..]));
    assert_eq!(bytes_of(&again.crash(again.operations(), 1), "d/a").as_deref(), Some(&b"two"[..]));
}

fn write(file: &Arc<dyn File>, offset: u64, bytes: &[u8]) -> Completion {
    file.submit(Operation::Write { offset, buffer: bytes.to_vec().into() })
}

#[test]
fn operations_under_way_happen_in_the_order_of_the_seed() {
    let run = |seed| {
        let (io, file) = recorded();
        io.defer(seed);
        let writes: Vec<_> = (0..8).map(|at| write(&file, 0, &[at; 1])).collect();
        assert_eq!((io.under_way(), bytes_of(io.memory(), "d/a").expect("there").len()), (8, 0));
        while io.release() {}
        for write in writes {
            assert_eq!(write.wait().result.expect("written"), 1);
        }
        bytes_of(io.memory(), "d/a").expect("there")[0]
    };
    let last: Vec<u8> = (0..20).map(run).collect();
    assert_eq!(last, (0..20).map(run).collect::<Vec<_>>(), "a seed gives one run");
    assert!(last.iter().any(|first| *first != last[0]), "the seed chooses nothing");
}

#[test]
fn a_crash_may_leave_any_part_of_a_write_under_way() {
    let (io, file) = recorded();
    file.write_at(0, &[1; 1024]).expect("written");
    file.sync_data().expect("synced");
    io.sync_dir(Path::new("d")).expect("synced");
    io.defer(3);
    let written = write(&file, 0, &[2; 1024]);
    let images = |count| {
        (0..50)
            .map(|seed| {
                let bytes = bytes_of(&io.crash(count, seed), "d/a").expect("its name is durable");
                (bytes[0], bytes[512])
            })
            .collect::<std::collections::BTreeSet<_>>()
    };
    let all = [(1, 1), (1, 2), (2, 1), (2, 2)].into();
    assert_eq!(images(io.operations()), all);
    // A sync submitted now does not cover it, even if it is answered later.
    let synced = file.submit(Operation::SyncData);
    io.release_all();
    assert!(written.wait().result.is_ok() && synced.wait().result.is_ok());
    assert_eq!(images(io.operations()), all);
    // One that is submitted after its answer does.
    file.sync_data().expect("synced");
    assert_eq!(images(io.operations()), [(2, 2)].into());
}

#[test]
fn what_failed_under_way_is_settled_by_the_next_sync() {
    let (io, file) = recorded();
    io.sync_dir(Path::new("d")).expect("synced");
    io.defer(1);
    io.inject(Fault { on: Action::Write, skip: 0, times: 1, kind: FaultKind::Broken });
    let failed = write(&file, 0, b"x");
    assert!(io.release());
    failed.wait().result.expect_err("injected");
    io.release_all();
    file.write_at(0, b"y").expect("written");
    file.sync_data().expect("synced");
    for seed in 0..20 {
        assert_eq!(bytes_of(&io.crash(io.operations(), seed), "d/a").as_deref(), Some(&b"y"[..]));
    }
}

#[test]
fn what_is_under_way_when_the_machine_stops_fails() {
    let (io, file) = recorded();
    io.defer(1);
    let mut bytes = [0; 4];
    // SAFETY: the completion is waited for, and `bytes` is used only afterwards.
    let buffer = unsafe { Buffer::borrowed(bytes.as_mut_ptr(), bytes.len()) };
    let read = file.submit(Operation::Read { offset: 0, buffer });
    let written = write(&file, 0, b"x");
    // No thread waits for this one, and its buffer is its own.
    drop(write(&file, 1, b"x"));
    io.stop();
    let error = read.wait().result.expect_err("stopped");
    assert_eq!((error.action(), error.offset()), (Action::Read, Some(0)));
    assert_eq!(written.wait().result.expect_err("stopped").action(), Action::Write);
    file.write_at(0, b"x").expect_err("stopped");
    assert_eq!(bytes, [0; 4]);
}

#[test]
fn a_file_system_that_goes_answers_what_is_under_way() {
    let (io, file) = recorded();
    io.defer(1);
    let synced = file.submit(Operation::SyncData);
    drop((io, file));
    assert_eq!(synced.wait().result.expect_err("gone").action(), Action::Sync);
}
