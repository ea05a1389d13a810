//! Memory servers as a [`File`] of pages: where the pages of a pool are while they are not in memory.
//!
//! ```text
//!   any thread:   submit ─► lock ─► Client::page_in, page_out ─► sent at once, or with a batch
//!   a worker:     looks out ─► lock ─► Client::exchange ─► events ─► unlocked ─► completions are answered
//!   the driver:   sleeps on the sockets ─► lock ─► Client::drive ─► events ─► unlocked ─► completions are answered
//! ```
//!
//! - A thread that runs an executor [looks out](thermocline_base::multiplex::look_out) for the pages that it has asked for: it sends what it asks for
//!   in one piece, and takes the answers between its polls, which costs no wake-up. While any thread does, the driver sleeps beside the sockets;
//!   it looks once a millisecond, in case that thread is long at something else, and is rung for when the last one leaves.
//! - A page's number leads to its slot, 8 bytes a page beside what [`Client`] keeps of a slot. Space that is taken ([`File::allocate`],
//!   [`File::reserve`]) is room on the servers that no other page gets; a page that is punched gives its slot back.
//! - A write is answered when each of its pages is in as many places as promised; one that is not makes the whole write an error, and the
//!   slots that its pages got are given back.
//! - A page whose last copy was lost with its server is an error of the reads that want it; others are served. With two copies the client
//!   asks the other one, and no caller learns of it.
//! - The lock is held for no wait.
//! - When it is dropped, what is under way is waited for ([`RemoteOptions::close_ns`] at the most), and the leases are given back.
//!
//! Nothing in it is durable: it ends with its lease.
//!
//! Lock order: one lock. Completions are answered without it.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thermocline_base::clock::Clock;
use thermocline_base::io::{Action, Buffer, Completer, Completion, File, IoError, Operation, Result};
use thermocline_base::multiplex::{Lookout, look_out};
use thermocline_base::sync::{AtomicBool, AtomicU64, Ordering};

use crate::client::{Client, ClientOptions, ClientStatistics, Event, PageError, Ticket, Waits};
use crate::connecting::Connecting;
use crate::transport::Connect;

/// Length of a page.
pub const PAGE_BYTES: usize = 4096;
/// No slot, and no room.
const HOLE: u64 = u64::MAX;
/// No slot, and room for one.
const PROMISED: u64 = u64::MAX - 1;
/// Its path, in errors.
const PATH: &str = "memory servers";
/// The driver looks this often while other threads look out.
const BESIDE_NS: u64 = 1_000_000;
/// Connections that are being made are asked for this often.
const ASK_NS: u64 = 2_000_000;

/// Options of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteOptions {
    /// Of the client; its pages have [`PAGE_BYTES`].
    pub client: ClientOptions,
    /// Time for which opening waits for as many servers as copies are promised.
    pub open_ns: u64,
    /// Time for which closing waits for what is under way.
    pub close_ns: u64,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        let client = ClientOptions { page_bytes: PAGE_BYTES as u32, ..ClientOptions::default() };
        Self { client, open_ns: 10_000_000_000, close_ns: 5_000_000_000 }
    }
}

/// Fewer servers than copies were reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreached {
    /// Servers that a copy each was promised on.
    pub copies: u8,
    /// Address and reason of each that was not reached.
    pub troubles: Vec<(String, String)>,
}

impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} memory server(s) with free memory are needed", self.copies)?;
        for (address, why) in &self.troubles {
            write!(f, "; {address}: {why}")?;
        }
        f.write_str("; start them, or name others")
    }
}

impl std::error::Error for Unreached {}

/// A read or write that is under way.
struct Pages {
    completer: Completer,
    buffer: Buffer,
    /// The number of its first page.
    first: u64,
    left: usize,
    problem: Option<PageError>,
}

struct State {
    client: Client,
    /// By page: its slot, [`PROMISED`], or [`HOLE`].
    slots: Vec<u64>,
    /// Pages that are [`PROMISED`].
    promised: u64,
    reads: HashMap<u64, Pages>,
    writes: HashMap<u64, Pages>,
    /// The operation of each page that is asked for, and which of its pages it is.
    ins: HashMap<Ticket, (u64, usize)>,
    outs: HashMap<Ticket, (u64, usize)>,
    next: u64,
    ends: bool,
}

/// Answers that are given when the lock is free again.
type Answers = Vec<(Completer, Result<usize>, Buffer)>;

struct Shared {
    state: Mutex<State>,
    /// Threads that look out.
    lookouts: AtomicU64,
    /// Reads are under way, as of a moment ago.
    reads: AtomicBool,
    /// A byte in here wakes the driver.
    bell: UnixStream,
}

/// See the module.
pub struct RemoteFile {
    shared: Arc<Shared>,
    driver: Option<JoinHandle<()>>,
}

impl fmt::Debug for RemoteFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteFile").finish_non_exhaustive()
    }
}

impl RemoteFile {
    /// Connects to these servers, and waits for as many as copies are promised.
    ///
    /// # Errors
    /// When that takes too long: the text names each server's trouble.
    ///
    /// # Panics
    /// When the copies are neither 1 nor 2, the system gives no thread or no pair of sockets.
    pub fn open(
        options: RemoteOptions,
        clock: &Arc<dyn Clock>,
        servers: Vec<Box<dyn Connect>>,
    ) -> std::result::Result<Self, Unreached> {
        let copies = options.client.copies;
        let servers = servers
            .into_iter()
            .map(|server| Box::new(Connecting::new(server, Arc::clone(clock))) as Box<dyn Connect>)
            .collect();
        let client_options = ClientOptions {
            page_bytes: PAGE_BYTES as u32,
            retry_ns: options.client.retry_ns.min(ASK_NS),
            ..options.client
        };
        let mut client = Client::new(client_options, Arc::clone(clock), servers);
        let end_ns = clock.now_ns().saturating_add(options.open_ns);
        while client.statistics().leases < u64::from(copies) || client.room() == 0 {
            if clock.now_ns() >= end_ns {
                let troubles = client.troubles().map(|(address, why)| (address, why.to_owned())).collect();
                return Err(Unreached { copies, troubles });
            }
            client.drive(Duration::from_millis(1));
            if client.waits().sockets.is_empty() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let (bell, rope) = UnixStream::pair().expect("the system gives a pair of sockets");
        bell.set_nonblocking(true).expect("a socket of ours");
        rope.set_nonblocking(true).expect("a socket of ours");
        let state = State {
            client,
            slots: Vec::new(),
            promised: 0,
            reads: HashMap::new(),
            writes: HashMap::new(),
            ins: HashMap::new(),
            outs: HashMap::new(),
            next: 0,
            ends: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            lookouts: AtomicU64::new(0),
            reads: AtomicBool::new(false),
            bell,
        });
        let (driven, clock, close_ns) = (Arc::clone(&shared), Arc::clone(clock), options.close_ns);
        let driver = std::thread::Builder::new()
            .name("thermocline-remote".to_owned())
            .spawn(move || drive(&driven, &*clock, &rope, close_ns))
            .expect("the system gives a thread");
        Ok(Self { shared, driver: Some(driver) })
    }

    /// Bytes of pages that the servers have room for now, with all their copies.
    #[must_use]
    pub fn room_bytes(&self) -> u64 {
        self.shared.lock().client.room() * PAGE_BYTES as u64
    }

    /// Statistics of its client.
    #[must_use]
    pub fn statistics(&self) -> ClientStatistics {
        self.shared.lock().client.statistics()
    }
}

fn failed(action: Action, why: PageError) -> IoError {
    let kind = match why {
        PageError::Full => ErrorKind::StorageFull,
        PageError::Silent { .. } => ErrorKind::TimedOut,
        PageError::Lost { .. } => ErrorKind::Other,
    };
    IoError::new(action, Path::new(PATH), None, io::Error::new(kind, why))
}

fn wrong(action: Action, why: &str) -> IoError {
    IoError::new(action, Path::new(PATH), None, io::Error::new(ErrorKind::NotFound, why))
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A client that has panicked may be in the middle of anything.
        self.state
            .lock()
            .unwrap_or_else(|_: PoisonError<_>| panic!("the client of memory servers has panicked"))
    }

    fn ring(&self) {
        // A full bell rings already.
        let _ = (&self.bell).write(&[1]);
    }

    /// Sends what was asked for just now, and answers what is known already. `gathered`: whether pages waited before.
    fn push(&self, mut state: MutexGuard<'_, State>, gathered: bool) {
        state.client.push();
        // By now the driver sleeps until a time that did not know of pages that wait to be sent.
        let rings = state.client.is_gathering() && !gathered;
        let answers = state.answers();
        drop(state);
        if rings {
            self.ring();
        }
        answer(answers);
    }
}

impl Lookout for Shared {
    fn come(&self) {
        self.lookouts.fetch_add(1, Ordering::SeqCst);
    }

    fn look(&self) -> bool {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            // Another thread looks this moment.
            Err(TryLockError::WouldBlock) => return true,
            Err(TryLockError::Poisoned(_)) => return false,
        };
        state.client.exchange();
        let answers = state.answers();
        let awaited = !state.reads.is_empty();
        self.reads.store(awaited, Ordering::SeqCst);
        drop(state);
        answer(answers);
        awaited
    }

    fn leave(&self) {
        let is_last = self.lookouts.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last && self.reads.load(Ordering::SeqCst) {
            self.ring();
        }
    }
}

fn answer(answers: Answers) {
    for (completer, result, buffer) in answers {
        completer.complete(result, buffer);
    }
}

impl State {
    /// Takes the events of the client.
    fn answers(&mut self) -> Answers {
        let mut answers = Vec::new();
        while let Some(event) = self.client.event() {
            match event {
                Event::In { ticket, bytes } => self.is_in(ticket, Ok(&bytes), &mut answers),
                Event::Out { ticket, slot } => self.is_out(ticket, Ok(slot), &mut answers),
                Event::Failed { ticket, error } => {
                    self.is_in(ticket, Err(error), &mut answers);
                    self.is_out(ticket, Err(error), &mut answers);
                }
            }
        }
        answers
    }

    /// A page of a read is in, or will never be.
    fn is_in(
        &mut self,
        ticket: Ticket,
        outcome: std::result::Result<&[u8], PageError>,
        answers: &mut Answers,
    ) {
        let Some((number, page)) = self.ins.remove(&ticket) else { return };
        let read = self.reads.get_mut(&number).expect("a read is there until all of its pages are answered");
        match outcome {
            Ok(bytes) => {
                read.buffer.as_mut_slice()[page * PAGE_BYTES..][..PAGE_BYTES].copy_from_slice(bytes);
            }
            Err(error) => read.problem = Some(error),
        }
        read.left -= 1;
        if read.left == 0 {
            let read = self.reads.remove(&number).expect("it was there some lines before");
            let bytes = read.buffer.as_slice().len();
            let result = read.problem.map_or(Ok(bytes), |error| Err(failed(Action::Read, error)));
            answers.push((read.completer, result, read.buffer));
        }
    }

    /// A page of a write is out, or will never be.
    fn is_out(
        &mut self,
        ticket: Ticket,
        outcome: std::result::Result<u64, PageError>,
        answers: &mut Answers,
    ) {
        let Some((number, page)) = self.outs.remove(&ticket) else { return };
        let write =
            self.writes.get_mut(&number).expect("a write is there until all of its pages are answered");
        match outcome {
            Ok(slot) => match self.slots.get_mut(write.first as usize + page) {
                Some(place) => {
                    let before = std::mem::replace(place, slot);
                    self.promised -= u64::from(before == PROMISED);
                    if is_slot(before) {
                        self.client.free(before);
                    }
                }
                // The file was cut meanwhile.
                None => self.client.free(slot),
            },
            Err(error) => write.problem = Some(error),
        }
        write.left -= 1;
        if write.left > 0 {
            return;
        }
        let write = self.writes.remove(&number).expect("it was there some lines before");
        let bytes = write.buffer.as_slice().len();
        let Some(error) = write.problem else {
            return answers.push((write.completer, Ok(bytes), write.buffer));
        };
        let pages = write.first as usize..write.first as usize + bytes / PAGE_BYTES;
        for page in pages {
            if self.slots.get(page).is_some_and(|slot| is_slot(*slot)) {
                self.empty(page, PROMISED);
            }
        }
        answers.push((write.completer, Err(failed(Action::Write, error)), write.buffer));
    }

    /// The slots of pages, if all of them were written.
    fn slots(&self, first: u64, count: usize) -> Option<Vec<u64>> {
        let slots = self.slots.get(usize::try_from(first).ok()?..)?.get(..count)?;
        (!self.ends && slots.iter().all(|slot| is_slot(*slot))).then(|| slots.to_vec())
    }

    /// A page has no slot any more.
    fn empty(&mut self, page: usize, becomes: u64) {
        let before = std::mem::replace(&mut self.slots[page], becomes);
        if is_slot(before) {
            self.client.free(before);
        }
        self.promised += u64::from(becomes == PROMISED);
        self.promised -= u64::from(before == PROMISED);
    }

    /// Takes the room of pages that have none, within a file that becomes so long; or of none of them.
    fn take_room(&mut self, pages: std::ops::Range<usize>) -> Result<()> {
        let there = pages.start.min(self.slots.len())..pages.end.min(self.slots.len());
        let holes = self.slots[there].iter().filter(|slot| **slot == HOLE).count();
        let behind = pages.end.saturating_sub(self.slots.len().max(pages.start));
        if self.client.room() < self.promised + (holes + behind) as u64 {
            return Err(failed(Action::Allocate, PageError::Full));
        }
        if self.slots.len() < pages.end {
            self.slots.resize(pages.end, HOLE);
        }
        for page in pages {
            if self.slots[page] == HOLE {
                self.empty(page, PROMISED);
            }
        }
        Ok(())
    }
}

fn is_slot(word: u64) -> bool {
    word < PROMISED
}

/// Whole pages, as these bytes name them.
fn pages(offset: u64, len: u64) -> std::ops::Range<usize> {
    let bytes = PAGE_BYTES as u64;
    assert!(offset.is_multiple_of(bytes) && len.is_multiple_of(bytes), "memory servers keep whole pages");
    (offset / bytes) as usize..((offset + len) / bytes) as usize
}

impl RemoteFile {
    fn read(&self, offset: u64, buffer: Buffer) -> Completion {
        let pages = pages(offset, buffer.as_slice().len() as u64);
        let mut state = self.shared.lock();
        let Some(slots) = state.slots(pages.start as u64, pages.len()) else {
            let why = wrong(Action::Read, "a page was not written there, or was given up");
            return Completion::ready(Err(why), buffer);
        };
        if slots.is_empty() {
            return Completion::ready(Ok(0), buffer);
        }
        let (completer, completion) = Completion::pending_with(&buffer);
        let gathered = state.client.is_gathering();
        let number = state.next;
        state.next += 1;
        let left = slots.len();
        for (at, slot) in slots.into_iter().enumerate() {
            state.client.hear_of(slot);
            let ticket = state.client.page_in(slot);
            state.ins.insert(ticket, (number, at));
        }
        let read = Pages { completer, buffer, first: pages.start as u64, left, problem: None };
        state.reads.insert(number, read);
        self.shared.reads.store(true, Ordering::SeqCst);
        if look_out(&(Arc::clone(&self.shared) as Arc<dyn Lookout>)) {
            // It is sent at the next look, with what is asked for until then; what is known already is answered.
            let answers = state.answers();
            drop(state);
            answer(answers);
        } else {
            self.shared.push(state, gathered);
        }
        completion
    }

    fn write(&self, offset: u64, buffer: Buffer) -> Completion {
        let pages = pages(offset, buffer.as_slice().len() as u64);
        let mut state = self.shared.lock();
        if state.ends || pages.is_empty() {
            let result = if state.ends { Err(wrong(Action::Write, "it has been closed")) } else { Ok(0) };
            return Completion::ready(result, buffer);
        }
        if state.slots.len() < pages.end {
            state.slots.resize(pages.end, HOLE);
        }
        let (completer, completion) = Completion::pending_with(&buffer);
        let gathered = state.client.is_gathering();
        let number = state.next;
        state.next += 1;
        for (at, page) in buffer.as_slice().chunks(PAGE_BYTES).enumerate() {
            let ticket = state.client.page_out(page.into());
            state.outs.insert(ticket, (number, at));
        }
        let (first, left) = (pages.start as u64, pages.len());
        let write = Pages { completer, buffer, first, left, problem: None };
        state.writes.insert(number, write);
        self.shared.push(state, gathered);
        completion
    }
}

impl File for RemoteFile {
    fn submit(&self, operation: Operation) -> Completion {
        match operation {
            Operation::Read { offset, buffer } => self.read(offset, buffer),
            Operation::Write { offset, buffer } => self.write(offset, buffer),
            // Nothing is promised beyond its lease.
            Operation::SyncData => Completion::ready(Ok(0), Buffer::empty()),
        }
    }

    fn alignment(&self) -> usize {
        PAGE_BYTES
    }

    fn path(&self) -> &Path {
        Path::new(PATH)
    }

    fn medium(&self) -> &'static str {
        "remote"
    }

    fn table_bytes(&self) -> u64 {
        let state = self.shared.lock();
        state.client.statistics().table_bytes + (state.slots.capacity() * size_of::<u64>()) as u64
    }

    fn len(&self) -> Result<u64> {
        Ok((self.shared.lock().slots.len() * PAGE_BYTES) as u64)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let end = pages(0, len).end;
        let mut state = self.shared.lock();
        for page in end..state.slots.len() {
            state.empty(page, HOLE);
        }
        state.slots.resize(end, HOLE);
        Ok(())
    }

    fn allocate(&self, len: u64) -> Result<()> {
        let mut state = self.shared.lock();
        let (from, end) = (state.slots.len(), pages(0, len).end);
        state.take_room(from..end.max(from))
    }

    fn punch(&self, offset: u64, len: u64) -> Result<bool> {
        let mut state = self.shared.lock();
        let end = state.slots.len();
        for page in pages(offset, len).filter(|page| *page < end) {
            state.empty(page, HOLE);
        }
        Ok(true)
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        let mut state = self.shared.lock();
        let (pages, end) = (pages(offset, len), state.slots.len());
        // What is behind the end has no room to take.
        state.take_room(pages.start.min(end)..pages.end.min(end))
    }
}

impl Drop for RemoteFile {
    fn drop(&mut self) {
        if let Ok(mut state) = self.shared.state.lock() {
            state.ends = true;
        }
        self.shared.ring();
        // The last reference may go with the answer to a read, on the driver itself, which ends by itself then.
        let driver = self.driver.take().filter(|driver| driver.thread().id() != std::thread::current().id());
        if let Some(driver) = driver {
            // A driver that panicked has said so.
            let _ = driver.join();
        }
    }
}

/// Drives the client until it ends.
fn drive(shared: &Shared, clock: &dyn Clock, rope: &UnixStream, close_ns: u64) {
    let mut closes_ns = None;
    loop {
        let mut state = shared.lock();
        state.client.drive(Duration::ZERO);
        let answers = state.answers();
        let waits = state.client.waits();
        let now = clock.now_ns();
        if state.ends {
            let end_ns = *closes_ns.get_or_insert(now.saturating_add(close_ns));
            let idle = state.writes.is_empty() && state.reads.is_empty() && !state.client.is_opening();
            if idle || now >= end_ns {
                drop(state);
                answer(answers);
                return close(shared);
            }
        }
        let reads = !state.reads.is_empty();
        shared.reads.store(reads, Ordering::SeqCst);
        drop(state);
        answer(answers);
        let waits = match shared.lookouts.load(Ordering::SeqCst) {
            0 => waits,
            _ if reads => Waits { sockets: Vec::new(), until_ns: waits.until_ns.min(now + BESIDE_NS) },
            _ => waits,
        };
        sleep(&waits, now, rope);
    }
}

/// Gives the leases back, and answers what was not answered.
fn close(shared: &Shared) {
    let mut state = shared.lock();
    let gone = |action| wrong(action, "it was closed while this was under way");
    let state_now = &mut *state;
    let mut answers: Answers = Vec::new();
    for (operations, action) in [(&mut state_now.reads, Action::Read), (&mut state_now.writes, Action::Write)]
    {
        let ended = operations.drain().map(|(_, pages)| (pages.completer, Err(gone(action)), pages.buffer));
        answers.extend(ended);
    }
    state.ins.clear();
    state.outs.clear();
    state.client.close_all();
    drop(state);
    answer(answers);
}

/// Sleeps until there may be something to do.
fn sleep(waits: &Waits, now_ns: u64, mut rope: &UnixStream) {
    let wait_ns = waits.until_ns.saturating_sub(now_ns);
    if wait_ns == 0 {
        return;
    }
    let limit =
        Timespec { tv_sec: (wait_ns / 1_000_000_000) as i64, tv_nsec: (wait_ns % 1_000_000_000) as i64 };
    let mut ready: Vec<PollFd<'_>> = Vec::with_capacity(waits.sockets.len() + 1);
    ready.push(PollFd::new(rope, PollFlags::IN));
    ready.extend(waits.sockets.iter().map(|socket| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)));
    // Interrupted or over: the client is driven anyway.
    let _ = poll(&mut ready, Some(&limit));
    if !ready[0].revents().is_empty() {
        drop(ready);
        let mut rung = [0; 64];
        while matches!(rope.read(&mut rung), Ok(64)) {}
    }
}
