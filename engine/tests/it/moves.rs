//! The second world: the scripts, the histories and the stress test run again while rows leave memory and come back all
//! the time. A move may never be seen, nor fail anybody, so nothing that these tests expect is different here.
//!
//! Whatever may hang has a limit of time ([`within`]), after which it is said who waits for whom.

use std::ops::Range;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use thermocline_base::io::{Io, MemoryIo, OpenMode};
use thermocline_base::rng::Rng;
use thermocline_engine::row::KeyBuf;
use thermocline_engine::{ColdSteps, ColdStoreKind, Database, MaintenanceSteps, Options, Table, Tiering};

/// What happens to rows while a test runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum World {
    /// They stay in memory.
    Still,
    /// All leave memory, as soon as they can, and stay away until they are changed.
    Cold(ColdStoreKind),
    /// All leave memory, and come back, and leave again.
    ToAndFro(ColdStoreKind),
    /// The governor takes whatever it can, at every step, and some come back. The store has to answer at once, or to have threads.
    Governed(ColdStoreKind),
    /// All freeze in their chunks as soon as they can, and thaw now and then.
    Frozen,
    /// All go over to the paged side as soon as they can, and none of its pages stays in memory; now and then they come back.
    Paged,
    /// All freeze and thaw, leave memory alone or with their chunk, and come back, as the numbers behind this seed will have it.
    Ladder(ColdStoreKind, u64),
    /// Any of them move, as the numbers behind this seed will have it.
    Random(ColdStoreKind, u64),
}

impl World {
    /// Options of a database of this world.
    pub(crate) fn options(self, options: Options) -> Options {
        match self {
            Self::Still | Self::Frozen => options,
            Self::Paged => {
                let pages = MemoryIo::new().open(Path::new("pages"), OpenMode::CreateNew);
                options
                    .with_tiering(Tiering::Paged)
                    .with_memory_limit(Some(64 << 20))
                    .with_paged_bytes(1)
                    .with_paged_file(Some(pages.expect("a file in memory")))
            }
            Self::Cold(store)
            | Self::ToAndFro(store)
            | Self::Governed(store)
            | Self::Ladder(store, _)
            | Self::Random(store, _) => options.with_cold_store(store).with_cold_block_bytes(64 << 10),
        }
    }
}

/// Moves the rows of one table, whose primary key is a number.
pub(crate) struct Mover {
    world: World,
    steps: ColdSteps,
    table: Table,
    keys: Range<i64>,
    rng: Rng,
    round: u64,
}

fn key(number: i64) -> KeyBuf {
    KeyBuf::new().i64(number)
}

impl Mover {
    pub(crate) fn new(world: World, db: &Database, table: &Table, keys: Range<i64>) -> Self {
        let (World::Random(_, seed) | World::Ladder(_, seed)) = world else {
            return Self::with_seed(world, db, table, keys, 0);
        };
        Self::with_seed(world, db, table, keys, seed)
    }

    fn with_seed(world: World, db: &Database, table: &Table, keys: Range<i64>, seed: u64) -> Self {
        Self { world, steps: db.cold_steps(), table: table.clone(), keys, rng: Rng::new(seed), round: 0 }
    }

    /// Polls a future until it waits for something else than a store that has no threads, or a page that is being read.
    pub(crate) fn poll<F: Future + ?Sized>(&self, mut future: Pin<&mut F>) -> Poll<F::Output> {
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return Poll::Ready(output);
            }
            if self.steps.pages_awaited() {
                std::thread::yield_now();
            } else if !self.steps.store_writes() && !self.steps.store_work() {
                return Poll::Pending;
            }
        }
    }

    fn finish<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(output) = self.poll(future.as_mut()) {
                return output;
            }
            std::thread::yield_now();
        }
    }

    fn migrate(&self, which: impl FnMut(&[u8]) -> bool) -> usize {
        self.finish(self.steps.migrate_batch(&self.table, which)).expect("a migration does not fail")
    }

    fn promote(&self, number: i64) -> bool {
        self.finish(self.steps.promote_one(&self.table, &key(number))).expect("a promotion does not fail")
    }

    fn freeze(&self) {
        self.steps.freeze(&self.table).expect("memory is enough");
    }

    /// A chunk that is frozen leaves memory whole, and what has left before is let go.
    fn leave(&mut self) {
        let choice = self.rng.below(u64::MAX);
        self.finish(self.steps.leave_one(&self.table, choice)).expect("a move does not fail");
        self.steps.clear_left();
    }

    fn clean(&self) -> bool {
        self.finish(self.steps.clean_once()).expect("cleaning does not fail")
    }

    /// Lets rows move once.
    pub(crate) fn step(&mut self) {
        self.round += 1;
        match self.world {
            World::Still => {}
            World::Cold(_) => {
                self.migrate(|_| true);
                self.clean();
            }
            World::Governed(_) => {
                let _ = self.steps.press();
                for number in self.keys.clone() {
                    if self.rng.chance(0.1) {
                        self.promote(number);
                    }
                }
                self.clean();
            }
            World::ToAndFro(_) => {
                if self.round.is_multiple_of(2) {
                    self.migrate(|_| true);
                } else {
                    for number in self.keys.clone() {
                        self.promote(number);
                    }
                }
                self.clean();
            }
            World::Random(..) => self.random_step(),
            World::Frozen => {
                self.freeze();
                if self.rng.chance(0.1) {
                    self.steps.thaw(&self.table).expect("memory is enough");
                }
            }
            World::Paged => {
                self.steps.page_out(&self.table).expect("there is room");
                if self.rng.chance(0.1) {
                    self.steps.thaw(&self.table).expect("memory is enough");
                }
            }
            World::Ladder(..) => match self.rng.below(6) {
                0..=1 => self.freeze(),
                3..=4 => self.leave(),
                2 => _ = self.steps.thaw(&self.table).expect("memory is enough"),
                _ => self.random_step(),
            },
        }
    }

    fn random_step(&mut self) {
        let mut rng = Rng::new(self.rng.below(u64::MAX));
        for _ in 0..1 + rng.below(3) {
            match rng.below(5) {
                0..=1 => _ = self.migrate(|_| rng.chance(0.5)),
                2 => _ = self.migrate(|_| true),
                3 => {
                    for number in self.keys.clone() {
                        if rng.chance(0.5) {
                            self.promote(number);
                        }
                    }
                }
                _ => _ = self.clean(),
            }
        }
    }

    /// Lets rows move until `running` says otherwise. Counts its steps in `moved`; there are no more when it is `MAX`.
    pub(crate) fn run(&mut self, running: &AtomicBool, moved: &AtomicU64) {
        /// Nobody waits for a mover that has failed.
        struct Ended<'a>(&'a AtomicU64);
        impl Drop for Ended<'_> {
            fn drop(&mut self) {
                self.0.store(u64::MAX, Ordering::Relaxed);
            }
        }
        let moved = Ended(moved);
        for step in 1.. {
            if !running.load(Ordering::Relaxed) {
                return;
            }
            self.step();
            moved.0.store(step, Ordering::Relaxed);
            std::thread::yield_now();
        }
    }

    /// Brings all rows back, and cleans up until nothing is left in the store and in the memo. Nobody else may be there.
    pub(crate) fn settle(&self, maintenance: &MaintenanceSteps) {
        self.steps.thaw(&self.table).expect("memory is enough");
        if !self.steps.is_open() {
            return;
        }
        for _ in 0..8 {
            let mut promoted = false;
            for number in self.keys.clone() {
                promoted |= self.promote(number);
            }
            let cleaned = self.clean();
            maintenance.prune();
            self.steps.clear_left();
            if !promoted && !cleaned && self.steps.notices() == (0, 0) {
                let left: usize =
                    self.keys.clone().map(|number| self.steps.records(&self.table, &key(number))).sum();
                assert_eq!((left, self.steps.undecided()), (0, 0), "records are left in the store");
                return;
            }
        }
        panic!("rows do not come back, or notices stay: {:?}", self.steps.notices());
    }
}

/// Says that nothing runs any more, also when it panics.
pub(crate) struct Running<'a>(pub(crate) &'a AtomicBool);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// How often what takes longer is done: `THERMOCLINE_MOVE_ROUNDS`, or else `few`.
pub(crate) fn rounds(few: u64) -> u64 {
    std::env::var("THERMOCLINE_MOVE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(few)
}

/// What runs under a limit of time.
#[derive(Clone, Default)]
pub(crate) struct Watch(Arc<Mutex<(String, Option<ColdSteps>)>>);

impl Watch {
    /// Notes what is being done, and to which database.
    pub(crate) fn note(&self, doing: String, db: &Database) {
        *self.0.lock().expect("a note") = (doing, Some(db.cold_steps()));
    }
}

/// Runs `body` on a thread of its own. If that takes longer than `limit`, says what it was doing and who waits for whom.
pub(crate) fn within<T: Send + 'static>(
    limit: Duration,
    body: impl FnOnce(&Watch) -> T + Send + 'static,
) -> T {
    let watch = Watch::default();
    let (done, is_done) = mpsc::channel();
    let runner = {
        let watch = watch.clone();
        std::thread::spawn(move || {
            let outcome = body(&watch);
            // Nobody listens any more if it took too long.
            let _ = done.send(());
            outcome
        })
    };
    if is_done.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
        let (doing, steps) = &*watch.0.lock().expect("a note");
        let waits = steps.as_ref().map_or_else(String::new, ColdSteps::describe);
        panic!("not at its end after {limit:?}\n{doing}\n{waits}");
    }
    match runner.join() {
        Ok(outcome) => outcome,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// The limit finds a hang, and tells of it.
#[test]
fn a_hang_is_told_of() {
    use thermocline_engine::{TransactionOptions, block_on};
    let hang = std::thread::spawn(|| {
        within(Duration::from_millis(200), |watch| {
            let db = Database::open_in_memory(Options::default()).expect("memory is enough");
            let _tx = db.begin(TransactionOptions::new()).expect("it begins");
            watch.note("waiting for nobody".to_owned(), &db);
            block_on(std::future::pending::<()>());
        });
    });
    let told = hang.join().expect_err("it hangs");
    let told = told.downcast_ref::<String>().expect("a message");
    assert!(told.contains("waiting for nobody") && told.contains("has written nothing"), "{told}");
}
