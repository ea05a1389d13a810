//! Unconfirmed batches that are too many for memory: they become pieces (they are *spilled*), and are confirmed or
//! discarded late. With a crash at every place.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use thermocline_base::io::{
    Completion, File, Io, LockGuard, MemoryIo, OpenMode, Operation, RecordingIo, Result as IoResult,
};
use thermocline_base::multiplex::block_on;

use super::super::super::inner::Inner;
use super::super::super::version::WaitingBatch;
use super::super::super::*;
use super::super::model::{dir, options};
use super::Recorder;

fn spilled(store: &Store) -> Vec<u64> {
    let version = store.inner.current();
    let pieces = version.waiting.iter().filter(|waiting| matches!(waiting, WaitingBatch::Piece { .. }));
    pieces.map(|waiting| waiting.id().0).collect()
}

/// Writes unconfirmed batches until one is spilled, which is returned.
fn spill_one(recorder: &mut Recorder) -> u64 {
    for _ in 0..40 {
        recorder.write(false);
        recorder.work_all();
        if let Some(id) = spilled(&recorder.store).pop() {
            return id;
        }
    }
    panic!("nothing is spilled");
}

#[test]
fn batches_that_wait_become_pieces_when_they_take_too_much_memory() {
    let mut recorder = Recorder::new(1, options());
    for _ in 0..4 {
        recorder.write(true);
    }
    for _ in 0..25 {
        recorder.write(false);
        recorder.work();
    }
    recorder.work_all();
    let (version, memory_bytes) = (recorder.store.inner.current(), options().memory_bytes);
    assert!(version.waiting_bytes() <= memory_bytes / 2, "{} bytes", version.waiting_bytes());
    assert!(spilled(&recorder.store).len() > 5);
    assert_eq!(recorder.store.unconfirmed().len(), 25);
    recorder.judge(3, 2);
}

#[test]
fn batches_that_wait_let_go_of_the_journal() {
    let mut recorder = Recorder::new(2, StoreOptions { segment_bytes: 8 << 10, ..options() });
    recorder.write(false);
    assert_eq!(spilled(&recorder.store), [0; 0]);
    for _ in 0..200 {
        recorder.write(true);
        recorder.work_all();
    }
    assert_eq!(spilled(&recorder.store).len(), 1);
    let bytes = recorder.store.statistics().journal_disk_bytes;
    assert!(bytes < 24 * (8 << 10), "the journal holds {bytes} bytes for one batch");
    recorder.judge(40, 2);
}

#[test]
fn a_spilled_batch_is_confirmed_late() {
    let mut recorder = Recorder::new(3, options());
    recorder.write(true);
    let id = spill_one(&mut recorder);
    // What comes after it was written comes before it was confirmed.
    for _ in 0..6 {
        recorder.write(true);
        recorder.work();
    }
    recorder.confirm(id);
    assert!(!spilled(&recorder.store).contains(&id));
    for _ in 0..3 {
        recorder.write(true);
    }
    recorder.work_all();
    assert!(recorder.store.inner.current().sealed.is_empty(), "it is in the leaves");
    for _ in 0..8 {
        recorder.write(true);
        recorder.work_all();
    }
    recorder.judge(1, 2);
}

#[test]
fn a_spilled_batch_is_discarded() {
    let mut recorder = Recorder::new(4, options());
    recorder.write(true);
    let id = spill_one(&mut recorder);
    let used = recorder.store.statistics().disk_bytes;
    recorder.discard(id);
    assert!(!recorder.store.is_idle(), "the manifest still has its piece");
    recorder.work_all();
    assert!(recorder.store.statistics().disk_bytes < used, "its extents are free");
    for _ in 0..6 {
        recorder.write(true);
        recorder.work();
    }
    recorder.judge(1, 2);
}

#[test]
fn spilled_batches_are_decided_about_in_any_order_with_opening_in_between() {
    let mut recorder = Recorder::new(5, options());
    for round in 0..3 {
        for _ in 0..12 {
            recorder.write(false);
            recorder.work();
        }
        recorder.work_all();
        let mut ids = spilled(&recorder.store);
        assert!(ids.len() > 2, "round {round}");
        while let Some(id) = ids.pop() {
            match id % 3 {
                0 => recorder.confirm(id),
                1 => recorder.discard(id),
                _ => {}
            }
            recorder.write(true);
            recorder.work();
            ids.reverse();
        }
    }
    recorder.judge(7, 2);
}

/// A file system that calls something while pages are on their way.
#[derive(Clone, Debug)]
struct Interrupted {
    inner: Arc<dyn Io>,
    hook: Hook,
}

type Call = Box<dyn FnOnce() + Send>;

#[derive(Clone, Default)]
struct Hook(Arc<Mutex<Option<Call>>>);

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}

impl Hook {
    /// To be called once, when the next page is written.
    fn set(&self, call: impl FnOnce() + Send + 'static) {
        *self.0.lock().expect("nobody fails here") = Some(Box::new(call));
    }

    fn call(&self) {
        let call = self.0.lock().expect("nobody fails here").take();
        if let Some(call) = call {
            call();
        }
    }

    fn is_set(&self) -> bool {
        self.0.lock().expect("nobody fails here").is_some()
    }
}

#[derive(Debug)]
struct InterruptedFile {
    inner: Arc<dyn File>,
    hook: Hook,
}

impl File for InterruptedFile {
    fn submit(&self, operation: Operation) -> Completion {
        let pages = self.inner.path().ends_with("store.pages");
        if pages && matches!(operation, Operation::Write { .. }) {
            self.hook.call();
        }
        self.inner.submit(operation)
    }

    fn alignment(&self) -> usize {
        self.inner.alignment()
    }

    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn len(&self) -> IoResult<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> IoResult<()> {
        self.inner.set_len(len)
    }

    fn allocate(&self, len: u64) -> IoResult<()> {
        self.inner.allocate(len)
    }

    fn punch(&self, offset: u64, len: u64) -> IoResult<bool> {
        self.inner.punch(offset, len)
    }

    fn reserve(&self, offset: u64, len: u64) -> IoResult<()> {
        self.inner.reserve(offset, len)
    }
}

impl Io for Interrupted {
    fn open(&self, path: &Path, mode: OpenMode) -> IoResult<Arc<dyn File>> {
        Ok(Arc::new(InterruptedFile { inner: self.inner.open(path, mode)?, hook: self.hook.clone() }))
    }

    fn open_direct(&self, path: &Path, mode: OpenMode) -> IoResult<Arc<dyn File>> {
        Ok(Arc::new(InterruptedFile { inner: self.inner.open_direct(path, mode)?, hook: self.hook.clone() }))
    }

    fn create_dir_all(&self, path: &Path) -> IoResult<()> {
        self.inner.create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> IoResult<Vec<String>> {
        self.inner.list(dir)
    }

    fn exists(&self, path: &Path) -> IoResult<bool> {
        self.inner.exists(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> IoResult<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> IoResult<()> {
        self.inner.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> IoResult<()> {
        self.inner.sync_dir(dir)
    }

    fn lock_exclusive(&self, path: &Path) -> IoResult<LockGuard> {
        self.inner.lock_exclusive(path)
    }
}

/// Like `finish`, without a step that the interrupted one is in.
fn drive<T>(inner: &Arc<Inner>, future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        let stepped = inner.step_journal() || inner.step_work(&mut filter::Scratch::default());
        assert!(stepped, "a future waits for something that does not come");
    }
}

const INDEX: IndexId = IndexId { table: 1, index: 0 };

fn put(id: u64, keys: std::ops::Range<u32>, removes: Option<u64>, confirmed: bool) -> Batch {
    let mut batch = if confirmed { Batch::confirmed(BatchId(id)) } else { Batch::new(BatchId(id)) };
    for key in keys {
        if let Some(of) = removes {
            batch.remove(INDEX, &key.to_be_bytes(), BatchId(of), Removal::Last).expect("short");
        }
        batch.put(INDEX, &key.to_be_bytes(), &[id as u8; 100]).expect("short");
    }
    batch
}

/// While a batch is being spilled it is decided about, and so much happens that the journal forgets the decision.
fn decided_while_it_is_spilled(confirm: bool) {
    let io = RecordingIo::new(&MemoryIo::new());
    let hook = Hook::default();
    let top: Arc<dyn Io> = Arc::new(Interrupted { inner: Arc::new(io.clone()), hook: hook.clone() });
    let options = StoreOptions { segment_bytes: 8 << 10, ..options() };
    let store = Store::open(Arc::clone(&top), dir(), options.clone()).expect("it opens");
    let inner = Arc::clone(&store.inner);
    drive(&inner, store.write(put(1, 0..60, None, false))).expect("written");
    hook.set({
        let (inner, store) = (Arc::clone(&inner), Arc::clone(&store));
        move || {
            let decide = BatchId(1);
            let decided = if confirm {
                drive(&inner, store.confirm(decide))
            } else {
                drive(&inner, store.discard(decide))
            };
            decided.expect("it waits");
            let mut former = confirm.then_some(1);
            for id in 2..40 {
                drive(&inner, store.write(put(id, 0..60, former, true))).expect("written");
                former = Some(id);
                while inner.step_work(&mut filter::Scratch::default()) {}
            }
        }
    });
    assert!(inner.is_spill_due());
    let before = io.operations();
    assert!(store.step(Step::Work), "it is spilled");
    assert!(!hook.is_set(), "it was being written");
    let after = io.operations();
    while store.step(Step::Work) {}
    let judge = |store: &Store, whole: bool| {
        for key in 0..60_u32 {
            let found = block_on(store.get(INDEX, &key.to_be_bytes())).expect("readable");
            let batches: Vec<u64> = found.iter().map(|found| found.batch.0).collect();
            let last = batches.last().copied();
            assert!(batches.len() <= 1 && (!whole || last == Some(39)), "record {key} is of {batches:?}");
        }
        let verification = store.verify();
        assert!(verification.is_sound(), "{:?}", verification.problems);
    };
    judge(&store, true);
    assert_eq!(store.unconfirmed(), []);
    drop((store, inner));
    // The spill ends with the manifest's two edits and their syncs.
    let close = after.saturating_sub(16).max(before);
    for operations in (before..close).step_by(6).chain(close..=io.operations()) {
        for seed in 0..2 {
            let image = io.crash(operations, seed);
            for _ in 0..2 {
                let io = Arc::new(image.clone()) as Arc<dyn Io>;
                let store = Store::open(io, dir(), options.clone()).expect("it opens");
                for id in store.unconfirmed() {
                    // A confirmation that was lost is given again, as its owner would.
                    drive(&store.inner, store.confirm(id)).expect("it waits");
                }
                judge(&store, operations >= after);
                while store.step(Step::Work) {}
                judge(&store, operations >= after);
            }
        }
    }
}

#[test]
fn a_batch_is_confirmed_while_it_is_spilled_and_does_not_come_back() {
    decided_while_it_is_spilled(true);
}

#[test]
fn a_batch_is_discarded_while_it_is_spilled_and_does_not_come_back() {
    decided_while_it_is_spilled(false);
}

#[cfg(feature = "model")]
#[test]
fn entering_a_batch_that_was_decided_about_is_missed() {
    use crate::mutation::{Rule, switch_off};
    let _off = switch_off(Rule::SpillLooksAgain);
    for confirm in [true, false] {
        assert!(std::panic::catch_unwind(|| decided_while_it_is_spilled(confirm)).is_err(), "{confirm}");
    }
}
