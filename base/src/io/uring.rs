//! Operations by `io_uring`: each thread has a ring of its own, which it drives itself.
//!
//! ```text
//!   submit ─► queue ─► submission ring ─► kernel ─► completion ring ─► answer ─► waker
//!          (memory)   └───── one system call for all ─────┘        turn (a few at once)
//! ```
//!
//! Nothing happens at `submit` but a push, as long as an executor runs on the thread: when that has nothing left to
//! poll it sleeps in the ring ([`Driver::sleep`]), which hands everything queued to the kernel in the same call, and
//! then answers some of what has completed ([`Driver::turn`]), whose tasks submit anew. One thread with many reads in
//! flight thus makes less than one system call a read, and no other thread takes part. A thread that blocks on one
//! completion does the same.
//!
//! Rings belong to thread numbers and stay for the life of the process: the next thread of that number takes it over,
//! with what is still under way. A ring is used under its lock, but for the sleep itself.
//!
//! # Why every operation is answered, and in time
//! 1. *The thread drives its ring* while an executor runs on it (`attended`): at every sleep, and every few polls.
//! 2. *Otherwise the reaper does*, one thread for all rings. Outside of an executor `submit` hands over to the kernel
//!    at once; when an executor ends, what it has queued is handed over. A thread that polls a completion without
//!    driving its ring [`expects`](Driver::expect) the reaper to watch it, which then sleeps on that ring's
//!    descriptor. The flag `attended` falls before the executor looks at what is under way, and the thread that
//!    expects counts its operation before it looks at the flag; so one of the two rouses the reaper.
//! 3. *Whatever the reason*, while anything is under way the reaper takes a turn on every busy ring each
//!    [`TICK`]. That covers operations without a waiter, and a thread that blocks inside of a future although it
//!    must not. A second after the last operation it sleeps without a limit, and `submit` wakes it. (The reaper
//!    announces its sleep, then looks at the counts; `submit` counts, then looks at the announcement.)
//!
//! # Why the sleep ends
//! The kernel ends it when something completes. Wakers of other threads call [`Driver::interrupt`], which submits an
//! operation without effect to the sleeper's ring, whose completion ends the sleep as well. Under the lock the sleeper
//! is either `asleep`, from before its system call until after it, or not; then `interrupted` makes its next sleep end
//! at once. The reaper might take the interruption's completion out of the ring before the sleeper is in the kernel:
//! a thread that finds one while the owner is asleep submits another. All of these may end a sleep for nothing, which
//! costs a look around, and none happens again and again, so no thread spins.
//!
//! # What the kernel holds
//! A [`Pending`] lives in a box that the kernel knows by its address until its completion was taken from the ring. It
//! keeps the file open and the buffer in its place; dropping a [`Completion`] takes neither away. A completion
//! ring has room for everything that the kernel was given, so it never overflows.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use io_uring::types::{Fd, FsyncFlags};
use io_uring::{EnterFlags, IoUring, opcode, squeue};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use super::completion::Completer;
use super::system::StdFile;
use super::{Completion, Operation};
use crate::clock::{Clock, SystemClock};
use crate::multiplex::{self, Driver};
use crate::sync::{AtomicBool, AtomicUsize, MAX_THREADS, Mutex, Ordering, thread_index};

/// Operations that one system call hands over.
const SUBMISSIONS: u32 = 256;
/// Operations that the kernel has at the same time. Others wait in the queue.
const IN_KERNEL: usize = 1024;
/// Room for their completions, and for interruptions.
const COMPLETIONS: u32 = 2048;
/// Completions that are answered at once. Few, so that what their tasks submit reaches the device while the others are
/// being looked at: at depth 64 a tenth to a fifth more reads a second than with batches of 64.
const BATCH: usize = 8;
/// Longest time for which an operation lies that no thread drives.
const TICK: Duration = Duration::from_millis(10);
/// Ticks without anything under way after which the reaper sleeps for good.
const IDLE_TICKS: u32 = 100;
/// The mark of an operation without effect that ends a sleep; no address.
const INTERRUPTION: u64 = 0;

/// An operation that was submitted and is not answered.
struct Pending {
    file: Arc<StdFile>,
    operation: Operation,
    /// Bytes of a write that are written.
    done: usize,
    completer: Completer,
}

impl Pending {
    /// The entry that tells the kernel what to do.
    fn entry(&mut self) -> squeue::Entry {
        /// The kernel does not do more at once.
        fn length(len: usize) -> u32 {
            len.min(1 << 30) as u32
        }
        let fd = Fd(self.file.descriptor());
        match &mut self.operation {
            Operation::Read { offset, buffer } => {
                let bytes = buffer.as_mut_slice();
                opcode::Read::new(fd, bytes.as_mut_ptr(), length(bytes.len())).offset(*offset).build()
            }
            Operation::Write { offset, buffer } => {
                let rest = &buffer.as_slice()[self.done..];
                opcode::Write::new(fd, rest.as_ptr(), length(rest.len()))
                    .offset(*offset + self.done as u64)
                    .build()
            }
            Operation::SyncData => opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
        }
    }

    /// Answers, or gives back what has to be submitted once more.
    fn complete(mut self: Box<Self>, result: i32) -> Option<Box<Self>> {
        let error = (result < 0).then(|| io::Error::from_raw_os_error(-result));
        if let Some(error) = &error {
            match Errno::from_io_error(error) {
                Some(Errno::INTR) => return Some(self),
                // Too little memory in the kernel, or the thread that submitted it has ended and took it along. Both
                // are rare, and the plain system calls know neither.
                Some(Errno::AGAIN | Errno::CANCELED) => {
                    let Self { file, operation, completer, .. } = *self;
                    let (result, buffer) = file.perform(operation);
                    drop(file);
                    completer.complete(result, buffer);
                    return None;
                }
                _ => {}
            }
        }
        let mut count = result.max(0) as usize;
        let mut failed = error;
        if let Operation::Write { buffer, .. } = &self.operation
            && failed.is_none()
        {
            self.done += count;
            let rest = buffer.as_slice().len() - self.done;
            if rest > 0 && count > 0 {
                return Some(self);
            }
            failed = (rest > 0).then(|| ErrorKind::WriteZero.into());
            count = self.done;
        }
        let Self { file, operation, completer, .. } = *self;
        let result = match failed {
            Some(error) => {
                let (action, offset) = operation.kind();
                Err(file.error(action, offset, error))
            }
            None => Ok(count),
        };
        drop(file);
        completer.complete(result, operation.into_buffer());
        None
    }
}

/// A ring and what belongs to it.
pub(super) struct Ring {
    /// Submission and completion ring: under the lock of `state`. System calls are not.
    ring: IoUring,
    state: Mutex<State>,
    /// Operations submitted and not answered.
    under_way: AtomicUsize,
    /// An executor runs on the thread that it belongs to.
    attended: AtomicBool,
    /// The reaper sleeps on it.
    watched: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Operations that the kernel does not have yet.
    queue: VecDeque<Box<Pending>>,
    in_kernel: usize,
    /// The owner sleeps in the kernel, or is about to, or has not noticed that it does not any more.
    asleep: bool,
    /// The owner's next sleep is over before it begins.
    interrupted: bool,
}

impl Ring {
    fn new() -> io::Result<Self> {
        let ring = IoUring::builder().setup_cqsize(COMPLETIONS).build(SUBMISSIONS)?;
        if !ring.params().is_feature_nodrop() || !ring.params().is_feature_rw_cur_pos() {
            // Before Linux 5.6 there are no plain reads and writes.
            return Err(ErrorKind::Unsupported.into());
        }
        Ok(Self {
            ring,
            state: Mutex::default(),
            under_way: AtomicUsize::new(0),
            attended: AtomicBool::new(false),
            watched: AtomicBool::new(false),
        })
    }

    /// Moves as much as fits from the queue to the submission ring. Gives how much the kernel has not taken from that.
    fn fill(&self, state: &mut State) -> u32 {
        // SAFETY: the lock of `state` is held, so no other thread has this ring's submissions.
        let mut submissions = unsafe { self.ring.submission_shared() };
        while state.in_kernel < IN_KERNEL && !submissions.is_full() {
            let Some(mut pending) = state.queue.pop_front() else { break };
            let entry = pending.entry().user_data(Box::into_raw(pending) as u64);
            // SAFETY: descriptor and buffer stay until the completion is taken (see the module).
            unsafe { submissions.push(&entry) }.expect("a submission ring that is not full takes one");
            state.in_kernel += 1;
        }
        submissions.len() as u32
    }

    /// The system call. Gives whether the kernel could do what it was asked to; if not, the caller tries again later.
    fn enter(&self, submit: u32, want: u32) -> bool {
        let flags = if want > 0 { EnterFlags::GETEVENTS } else { EnterFlags::empty() };
        // SAFETY: plain flags, and no argument.
        match unsafe { self.ring.submitter().enter::<()>(submit, want, flags.bits(), None) } {
            Ok(_) => true,
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::INTR) => true,
                Some(Errno::AGAIN | Errno::BUSY | Errno::NOMEM) => false,
                _ => panic!("a ring that was built takes submissions: {error}"),
            },
        }
    }

    /// Hands what is queued to the kernel, as far as it takes it.
    fn flush(&self, state: &mut State) {
        loop {
            let filled = self.fill(state);
            if filled == 0 || !self.enter(filled, 0) {
                return;
            }
        }
    }

    /// Submits an operation without effect. The lock of `state` is held.
    fn post_interruption(&self) {
        let entry = opcode::Nop::new().build().user_data(INTERRUPTION);
        let mut pushed = false;
        loop {
            // SAFETY: the lock of `state` is held.
            let mut submissions = unsafe { self.ring.submission_shared() };
            // SAFETY: it has neither descriptor nor buffer.
            pushed = pushed || unsafe { submissions.push(&entry) }.is_ok();
            let filled = submissions.len() as u32;
            drop(submissions);
            if self.enter(filled, 0) && pushed {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Takes the next completion: whose it is, and the kernel's answer.
    fn take(&self, state: &mut State) -> Option<(Box<Pending>, i32)> {
        // SAFETY: the lock of `state` is held, so no other thread has this ring's completions.
        let mut completions = unsafe { self.ring.completion_shared() };
        let mut interrupted = false;
        let taken = loop {
            match completions.next() {
                Some(completion) if completion.user_data() == INTERRUPTION => interrupted = true,
                other => break other,
            }
        };
        drop(completions);
        if interrupted && state.asleep {
            self.post_interruption();
        }
        let taken = taken?;
        state.in_kernel -= 1;
        let address = taken.user_data() as *mut Pending;
        // SAFETY: the address is of a box that `fill` gave away, and each comes back once.
        Some((unsafe { Box::from_raw(address) }, taken.result()))
    }

    /// Starts what is queued, and answers a batch of what has completed. Gives whether there may be more.
    ///
    /// One at a time, without the lock: an answer calls a waker, and what has not been taken yet stays where every
    /// other thread, and this one in a nested wait, finds it.
    fn answer(&self) -> bool {
        self.flush(&mut self.state.lock());
        for _ in 0..BATCH {
            let Some((pending, result)) = self.take(&mut self.state.lock()) else { return false };
            if let Some(again) = pending.complete(result) {
                let mut state = self.state.lock();
                state.queue.push_front(again);
                self.flush(&mut state);
            } else {
                self.under_way.fetch_sub(1, Ordering::SeqCst);
            }
        }
        true
    }
}

impl Driver for Ring {
    fn is_busy(&self) -> bool {
        self.under_way.load(Ordering::SeqCst) > 0
    }

    fn turn(&self) {
        self.answer();
    }

    fn sleep(&self) {
        let filled = {
            let mut state = self.state.lock();
            if std::mem::take(&mut state.interrupted) {
                return;
            }
            let filled = self.fill(&mut state);
            // SAFETY: the lock of `state` is held.
            if filled == 0 && !unsafe { self.ring.completion_shared() }.is_empty() {
                return;
            }
            state.asleep = true;
            filled
        };
        let entered = self.enter(filled, 1);
        self.state.lock().asleep = false;
        if !entered {
            // The kernel is out of something, and nothing says when it has that again.
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn interrupt(&self) {
        let mut state = self.state.lock();
        if state.asleep {
            self.post_interruption();
        } else {
            state.interrupted = true;
        }
    }

    fn attend(&self, attended: bool) {
        self.attended.store(attended, Ordering::SeqCst);
        if !attended && self.is_busy() {
            self.flush(&mut self.state.lock());
            rouse_reaper();
        }
    }

    fn expect(&self) {
        if !self.attended.load(Ordering::SeqCst) && !self.watched.load(Ordering::SeqCst) {
            rouse_reaper();
        }
    }
}

/// The rings of the threads.
static RINGS: [OnceLock<&'static Ring>; MAX_THREADS] = [const { OnceLock::new() }; MAX_THREADS];

static REAPER: OnceLock<Reaper> = OnceLock::new();

/// The thread that drives rings whose own threads do not.
struct Reaper {
    event: OwnedFd,
    /// A thread has written to `event`, and the reaper has not looked since.
    roused: AtomicBool,
    /// The reaper sleeps until it is roused, however long that takes.
    asleep: AtomicBool,
    rings: Mutex<Vec<&'static Ring>>,
    /// The first ring, for threads that cannot get one of their own.
    common: &'static Ring,
}

fn rouse_reaper() {
    if let Some(reaper) = REAPER.get()
        && !reaper.roused.swap(true, Ordering::SeqCst)
    {
        // It cannot fail but for a full counter, and then it is readable already.
        let _ = rustix::io::write(&reaper.event, &1_u64.to_ne_bytes());
    }
}

impl Reaper {
    fn start() -> io::Result<&'static Self> {
        static STARTING: Mutex<()> = Mutex::new(());
        let _starting = STARTING.lock();
        if let Some(reaper) = REAPER.get() {
            return Ok(reaper);
        }
        let common: &'static Ring = Box::leak(Box::new(Ring::new()?));
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let thread = std::thread::Builder::new().name("thermocline-reap".to_string());
        let (sender, receiver) = std::sync::mpsc::sync_channel::<&'static Self>(1);
        thread.spawn(move || {
            if let Ok(reaper) = receiver.recv() {
                reaper.run();
            }
        })?;
        let reaper = REAPER.get_or_init(|| Self {
            event,
            roused: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            rings: Mutex::new(vec![common]),
            common,
        });
        sender.send(reaper).expect("the reaper waits for itself");
        Ok(reaper)
    }

    fn run(&self) {
        let mut idle_ticks = 0;
        let mut last_round_ns = SystemClock.now_ns();
        loop {
            self.roused.store(false, Ordering::SeqCst);
            let rings = self.rings.lock().clone();
            let watched: Vec<&Ring> = rings.iter().copied().filter(|ring| ring.watch()).collect();
            let busy = || rings.iter().any(|ring| ring.is_busy());
            idle_ticks = if busy() { 0 } else { idle_ticks + 1 };
            let sound = idle_ticks > IDLE_TICKS && {
                self.asleep.store(true, Ordering::SeqCst);
                !busy()
            };
            let limit = (!sound).then_some(Timespec { tv_sec: 0, tv_nsec: TICK.as_nanos() as i64 });
            let mut sources = vec![PollFd::new(&self.event, PollFlags::IN)];
            sources.extend(
                watched.iter().map(|ring| PollFd::from_borrowed_fd(ring.descriptor(), PollFlags::IN)),
            );
            match poll(&mut sources, limit.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                // Out of memory, which nothing tells the end of.
                Err(_) => std::thread::sleep(TICK),
            }
            self.asleep.store(false, Ordering::SeqCst);
            if !sources[0].revents().is_empty() {
                let _ = rustix::io::read(&self.event, &mut [0; 8]);
            }
            for (ring, source) in watched.iter().zip(&sources[1..]) {
                if !source.revents().is_empty() {
                    while ring.answer() {}
                }
            }
            let now_ns = SystemClock.now_ns();
            if now_ns - last_round_ns >= TICK.as_nanos() as u64 {
                last_round_ns = now_ns;
                rings.iter().filter(|ring| ring.is_busy()).for_each(|ring| while ring.answer() {});
            }
        }
    }
}

impl Ring {
    fn descriptor(&self) -> BorrowedFd<'static> {
        // SAFETY: rings that the reaper knows live as long as the process.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    /// Is the reaper to sleep on it? From now on a thread that expects an answer relies on that.
    fn watch(&self) -> bool {
        if self.attended.load(Ordering::SeqCst) {
            self.watched.store(false, Ordering::SeqCst);
            return false;
        }
        self.watched.store(true, Ordering::SeqCst);
        if self.is_busy() {
            return true;
        }
        self.watched.store(false, Ordering::SeqCst);
        // A thread that came in between saw that it was watched.
        self.is_busy()
    }

    /// The calling thread's, and whether it is its own.
    fn of_thread() -> (&'static Self, bool) {
        let cell = &RINGS[thread_index()];
        if let Some(ring) = cell.get() {
            return (ring, true);
        }
        let reaper = REAPER.get().expect("there is a reaper before there are files");
        match Self::new() {
            Ok(ring) => {
                let ring: &'static Self = Box::leak(Box::new(ring));
                reaper.rings.lock().push(ring);
                (cell.get_or_init(|| ring), true)
            }
            // No descriptors or no memory left. What it would cost to try each time is less than what is read.
            Err(_) => (reaper.common, false),
        }
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ring({} under way)", self.under_way.load(Ordering::Relaxed))
    }
}

/// Does the system have what we need, and let us use it?
pub(super) fn probe() -> io::Result<()> {
    Reaper::start().map(drop)
}

/// Starts an operation. There must have been a successful [`probe`].
pub(super) fn submit(file: &Arc<StdFile>, operation: Operation) -> Completion {
    let (ring, own) = Ring::of_thread();
    submit_to(ring, own, file, operation)
}

/// Starts an operation on a ring, which may be the calling thread's own.
fn submit_to(ring: &'static Ring, own: bool, file: &Arc<StdFile>, operation: Operation) -> Completion {
    let (completer, completion) = Completion::driven(operation.buffer(), ring);
    ring.under_way.fetch_add(1, Ordering::SeqCst);
    let executed = own && multiplex::attach(ring);
    {
        let mut state = ring.state.lock();
        state.queue.push_back(Box::new(Pending { file: Arc::clone(file), operation, done: 0, completer }));
        if !executed {
            ring.flush(&mut state);
        }
    }
    if REAPER.get().is_some_and(|reaper| reaper.asleep.load(Ordering::SeqCst)) {
        rouse_reaper();
    }
    completion
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{Action, Buffer, IoError, OpenMode, Outcome, StdIo};

    const INTR: i32 = -4;
    const IO: i32 = -5;
    const AGAIN: i32 = -11;
    const CANCELED: i32 = -125;

    fn file(test: &str) -> (Arc<StdFile>, std::path::PathBuf) {
        let path = std::env::temp_dir().join(format!("thermocline-uring-{test}-{}", std::process::id()));
        (Arc::new(StdIo::open_file(&path, OpenMode::Create).expect("created")), path)
    }

    fn pending(file: &Arc<StdFile>, operation: Operation) -> (Box<Pending>, Completion) {
        let (completer, completion) = Completion::pending_with(operation.buffer());
        (Box::new(Pending { file: Arc::clone(file), operation, done: 0, completer }), completion)
    }

    fn answer(file: &Arc<StdFile>, operation: Operation, results: &[i32]) -> Outcome {
        let (mut pending, completion) = pending(file, operation);
        let (last, before) = results.split_last().expect("there is a last one");
        for result in before {
            pending = pending.complete(*result).expect("it goes on");
        }
        assert!(pending.complete(*last).is_none(), "it does not end");
        completion.wait()
    }

    fn write() -> Operation {
        Operation::Write { offset: 4, buffer: Buffer::from(vec![7; 8]) }
    }

    #[test]
    fn answers_of_the_kernel_are_told_apart() {
        let (file, path) = file("answers");
        let read = || Operation::Read { offset: 4, buffer: Buffer::from(vec![0; 8]) };
        let failed = |outcome: Outcome| {
            let error: IoError = outcome.result.expect_err("it failed");
            (error.action(), error.offset(), error.kind())
        };
        // Writes go on until everything is written, reads may be short.
        assert_eq!(answer(&file, write(), &[3, INTR, 5]).result.expect("written"), 8);
        assert_eq!(answer(&file, read(), &[INTR, 3]).result.expect("read"), 3);
        assert_eq!(answer(&file, Operation::SyncData, &[0]).result.expect("synced"), 0);
        assert_eq!(failed(answer(&file, write(), &[3, 0])), (Action::Write, Some(4), ErrorKind::WriteZero));
        let broken = io::Error::from_raw_os_error(-IO).kind();
        assert_eq!(failed(answer(&file, read(), &[IO])), (Action::Read, Some(4), broken));
        assert_eq!(failed(answer(&file, Operation::SyncData, &[IO])), (Action::Sync, None, broken));
        // What the kernel would not do happens all the same.
        assert_eq!(file.perform(read()).0.expect("nothing is there yet"), 0);
        assert_eq!(answer(&file, write(), &[3, AGAIN]).result.expect("written"), 8);
        let outcome = answer(&file, read(), &[CANCELED]);
        assert_eq!((outcome.result.expect("read"), outcome.buffer.as_slice()), (8, &[7; 8][..]));
        std::fs::remove_file(path).expect("removed");
    }

    #[test]
    fn the_rest_of_a_short_write_is_what_is_submitted_again() {
        let (file, path) = file("rest");
        let (first, completion) = pending(&file, write());
        let mut rest = first.complete(3).expect("it goes on");
        // `fd`, `off`, `addr` and `len` of the entry: bytes 4, 8, 16 and 24.
        let entry = rest.entry();
        // SAFETY: an entry is 64 plain bytes.
        let bytes: [u8; 64] = unsafe { std::mem::transmute_copy(&entry) };
        let at = |from: usize| u64::from_le_bytes(bytes[from..from + 8].try_into().expect("8 bytes"));
        assert_eq!(at(8), 4 + 3);
        assert_eq!(at(16), rest.operation.buffer().as_slice()[3..].as_ptr() as u64);
        assert_eq!(at(24) as u32, 5);
        assert!(rest.complete(5).is_none());
        assert_eq!(completion.wait().result.expect("written"), 8);
        std::fs::remove_file(path).expect("removed");
    }

    #[test]
    fn threads_without_a_ring_share_one() {
        if probe().is_err() {
            return;
        }
        let common = REAPER.get().expect("probed").common;
        let (file, path) = file("common");
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let file = &file;
                scope.spawn(move || {
                    for round in 0..50_u64 {
                        let offset = (thread * 50 + round) * 8;
                        let write = Operation::Write { offset, buffer: offset.to_le_bytes().to_vec().into() };
                        let written = async { submit_to(common, false, file, write).await };
                        assert_eq!(multiplex::block_on(written).result.expect("written"), 8);
                        let read = Operation::Read { offset, buffer: vec![0; 8].into() };
                        let outcome = submit_to(common, false, file, read).wait();
                        assert_eq!(outcome.buffer.as_slice(), offset.to_le_bytes());
                    }
                });
            }
        });
        std::fs::remove_file(path).expect("removed");
    }

    /// The reaper takes the completion of an interruption, and the sleeper wakes all the same.
    #[test]
    fn an_interruption_survives_other_threads() {
        let Ok(ring) = Ring::new() else { return };
        for _ in 0..200 {
            std::thread::scope(|scope| {
                let sleeper = scope.spawn(|| ring.sleep());
                scope.spawn(|| ring.interrupt());
                while !sleeper.is_finished() {
                    ring.turn();
                }
            });
            // What is left of it ends no more than one sleep.
            let mut state = ring.state.lock();
            state.interrupted = false;
            assert!(ring.take(&mut state).is_none());
        }
    }
}
