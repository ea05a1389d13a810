//! Versions of pages: no two pages of one place that differ have the same one, whatever a crash or a restored disk has undone.

use std::collections::BTreeMap;
use std::sync::Arc;

use thermocline_base::io::{Action, Fault, FaultKind, Io, MemoryIo, RecordingIo};
use thermocline_base::multiplex::block_on;
use thermocline_base::rng::{Draw, Rng};

use super::super::end::StoreEnd;
use super::super::manifest::{self, MANIFEST_FORMAT, Manifest, ManifestState};
use super::super::*;
use super::model::{dir, finish, options};
use crate::device::PageDevice;
use crate::page::{self, PageSize};

const INDEX: IndexId = IndexId { table: 1, index: 0 };
const DATABASE: [u8; 16] = [7; 16];

fn open(io: &dyn Fn() -> Arc<dyn Io>, options: StoreOptions) -> Arc<Store> {
    Store::open(io(), dir(), options).expect("it opens")
}

fn of_memory(io: &MemoryIo) -> impl Fn() -> Arc<dyn Io> {
    let io = io.clone();
    move || Arc::new(io.clone()) as Arc<dyn Io>
}

/// Writes batches from `first` on, with records that `salt` decides, and puts all of them into pieces.
fn write(store: &Store, first: u64, count: u64, salt: u64) {
    for id in first..first + count {
        let mut batch = Batch::confirmed(BatchId(id));
        let mut rng = Rng::new(id * 1000 + salt);
        for number in 0..100_u64 {
            let mut record = [0; 60];
            rng.fill(&mut record);
            batch.put(INDEX, &(id * 100 + number).to_be_bytes(), &record).expect("short");
        }
        finish(store, store.write(batch)).expect("written");
        while store.step(Step::Work) {}
    }
}

fn state_of(io: &MemoryIo) -> ManifestState {
    let copy: Arc<dyn Io> = Arc::new(MemoryIo::with_files(io.directories(), io.files()));
    let size = options().page_size;
    Manifest::find(&copy, dir(), DATABASE, size, StoreEnd::default()).expect("our own").state
}

/// The pages of a store by number, with their versions, as they lie in the file.
fn pages(io: &MemoryIo) -> BTreeMap<u64, (u64, Vec<u8>)> {
    let device = PageDevice::open(io, &dir().join("store.pages"), None, DATABASE).expect("our own");
    let bytes = io.files().remove(&dir().join("store.pages")).expect("it is there");
    let of = |(number, bytes): (usize, &[u8])| {
        let open = page::open(bytes, device.seal(), number as u64, None).ok()?;
        Some((number as u64, (open.version, bytes.to_vec())))
    };
    bytes.chunks_exact(device.page_size().bytes()).enumerate().skip(1).filter_map(of).collect()
}

/// A store whose disk goes back to what it was before some pieces were written, and goes on in another way. Gives the pages
/// that have the number and version of a page before, but other bytes.
fn repeated() -> usize {
    let io = MemoryIo::new();
    let store = open(&of_memory(&io), options());
    write(&store, 1, 4, 0);
    drop(store);
    let before = MemoryIo::with_files(io.directories(), io.files());
    let store = open(&of_memory(&io), options());
    write(&store, 5, 6, 1);
    drop(store);
    let store = open(&of_memory(&before), options());
    write(&store, 5, 6, 2);
    drop(store);
    let (lost, now) = (pages(&io), pages(&before));
    assert!(lost.keys().filter(|number| now.contains_key(number)).count() > 8, "places are used again");
    lost.iter()
        .filter(|(number, page)| now.get(number).is_some_and(|new| new.0 == page.0 && new.1 != page.1))
        .count()
}

#[test]
fn what_a_crash_would_repeat_has_another_version() {
    assert_eq!(repeated(), 0);
}

#[cfg(feature = "model")]
#[test]
fn an_id_as_version_is_missed() {
    let _off = crate::mutation::switch_off(crate::mutation::Rule::VersionsAreDrawn);
    assert!(repeated() > 0, "ids repeat");
}

/// Draws small numbers, so that they could be ids.
#[derive(Debug)]
struct Small;

impl Draw for Small {
    fn draw_u64(&self) -> u64 {
        3
    }
}

#[test]
fn a_drawn_version_is_no_id() {
    let io = MemoryIo::new();
    let store = open(&of_memory(&io), StoreOptions { page_versions: Arc::new(Small), ..options() });
    write(&store, 1, 3, 0);
    drop(store);
    let state = state_of(&io);
    assert!(!state.pieces.is_empty());
    assert!(state.pieces.values().all(|meta| meta.version >= 1 << 32 && meta.version != meta.id));
}

/// A store as a former program has left it: the version of a page is the id of its piece.
fn former() -> MemoryIo {
    let io = MemoryIo::new();
    let store = open(&of_memory(&io), options());
    write(&store, 1, 8, 0);
    drop(store);
    let mut state = state_of(&io);
    let device = PageDevice::open(&io, &dir().join("store.pages"), None, DATABASE).expect("our own");
    let size = device.page_size().bytes();
    let mut files = io.files();
    let file = files.get_mut(&dir().join("store.pages")).expect("it is there");
    for meta in state.pieces.values_mut() {
        for at in 0..meta.pages + meta.tail_pages {
            let number = meta.locate(at).0;
            let bytes = &mut file[number as usize * size..][..size];
            let kind = page::open(bytes, device.seal(), number, Some(meta.version)).expect("whole").kind;
            page::seal(bytes, device.seal(), number, meta.id, kind);
        }
        meta.version = meta.id;
    }
    let size = PageSize::new(size as u32).expect("a page size");
    files.insert(dir().join("store.manifest"), manifest::former(&state, DATABASE, size));
    MemoryIo::with_files(io.directories(), files)
}

fn format_of(io: &MemoryIo) -> u32 {
    let bytes = io.files().remove(&dir().join("store.manifest")).expect("it is there");
    u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]])
}

fn assert_whole(store: &Store, batches: std::ops::Range<u64>) {
    for id in batches {
        for number in [0, 57, 99_u64] {
            let key = (id * 100 + number).to_be_bytes();
            let found = block_on(store.get(INDEX, &key)).expect("read");
            assert_eq!(found.len(), 1, "batch {id}, record {number}");
        }
    }
    assert!(store.verify().is_sound());
}

#[test]
fn a_manifest_of_the_former_format_is_read_and_raised() {
    let io = former();
    assert_eq!(format_of(&io), 1);
    let store = open(&of_memory(&io), options());
    assert_eq!(format_of(&io), MANIFEST_FORMAT);
    assert_whole(&store, 1..9);
    write(&store, 9, 3, 0);
    assert_whole(&store, 1..12);
    drop(store);
    assert!(state_of(&io).pieces.values().any(|meta| meta.version != meta.id));
    assert_whole(&open(&of_memory(&io), options()), 1..12);
}

#[test]
fn a_former_manifest_is_raised_in_its_place_where_the_disk_is_full() {
    let io = RecordingIo::new(&former());
    io.inject(Fault { on: Action::Write, skip: 0, times: 1, kind: FaultKind::Full });
    let shared = io.clone();
    let store = open(&move || Arc::new(shared.clone()) as Arc<dyn Io>, options());
    assert_eq!(format_of(io.memory()), MANIFEST_FORMAT);
    write(&store, 9, 3, 0);
    drop(store);
    assert_whole(&open(&of_memory(io.memory()), options()), 1..12);
}
