//! Memory servers as a [`Backing`]: where a pager's pages are while they are not in memory.
//!
//! ```text
//!   any thread:   read, write_run ─► lock ─► Client::page_in, page_out ─► sent at once, or with a batch
//!   the driver:   sleeps on the sockets ─► lock ─► Client::drive ─► events ─► unlocked ─► completions are answered
//! ```
//!
//! - A page's name leads to its slot, 8 bytes a page beside what [`Client`] keeps of a slot. A page is written once, so a slot keeps
//!   its page until the part is dropped: page-out of a clean page sends nothing.
//! - A run is answered when each of its pages is in as many places as promised; one that is not makes the whole run an error, and the
//!   others' slots are given back.
//! - A page whose last copy was lost with its server is an error of that page; others are served. With two copies the client
//!   asks the other one, and no caller learns of it.
//! - No thread touches pages of a region in here, or waits for one that might, and the lock is held for no wait: so the net
//!   of a pager may read through it. It does allocate, unlike a file: whoever touches paged memory inside of an allocator
//!   needs another backing.
//! - When it is dropped, what is under way is waited for ([`RemoteOptions::close_ns`] at the most), and the leases are given back.
//!
//! Lock order: one lock. Completions are answered without it.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thermocline_base::backing::{Backing, PAGE_BYTES, PART_PAGES, PageName};
use thermocline_base::clock::Clock;
use thermocline_base::io::{Action, AlignedBytes, Completer, Completion, IoError, Result};

use crate::client::{Client, ClientOptions, ClientStatistics, Event, PageError, Ticket, Waits};
use crate::connecting::Connecting;
use crate::transport::Connect;

/// No slot.
const NOWHERE: u64 = u64::MAX;
/// Connections that are being made are asked for this often.
const ASK_NS: u64 = 2_000_000;

/// Options of the backing.
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

/// A run that is on its way out.
struct Run {
    completer: Completer,
    buffer: AlignedBytes,
    first: PageName,
    left: usize,
    problem: Option<PageError>,
}

/// Slots of a part's pages.
struct Slots {
    generation: u32,
    slots: Box<[u64]>,
}

struct State {
    client: Client,
    parts: HashMap<u32, Slots>,
    /// Pages that parts have room for and that were not written.
    promised: u64,
    reads: HashMap<Ticket, (Completer, AlignedBytes)>,
    outs: HashMap<Ticket, (u64, u32)>,
    runs: HashMap<u64, Run>,
    next_run: u64,
    ends: bool,
}

/// Answers that are given when the lock is free again.
type Answers = Vec<(Completer, Result<usize>, AlignedBytes)>;

struct Shared {
    state: Mutex<State>,
    /// A byte in here wakes the driver.
    bell: UnixStream,
}

/// See the module.
pub struct RemoteBacking {
    shared: Arc<Shared>,
    driver: Option<JoinHandle<()>>,
}

impl fmt::Debug for RemoteBacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteBacking").finish_non_exhaustive()
    }
}

impl RemoteBacking {
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
            parts: HashMap::new(),
            promised: 0,
            reads: HashMap::new(),
            outs: HashMap::new(),
            runs: HashMap::new(),
            next_run: 0,
            ends: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), bell });
        let (driven, clock, close_ns) = (Arc::clone(&shared), Arc::clone(clock), options.close_ns);
        let driver = std::thread::Builder::new()
            .name("thermocline-remote".to_owned())
            .spawn(move || drive(&driven, &*clock, &rope, close_ns))
            .expect("the system gives a thread");
        Ok(Self { shared, driver: Some(driver) })
    }

    /// Statistics of its client.
    #[must_use]
    pub fn statistics(&self) -> ClientStatistics {
        self.shared.lock().client.statistics()
    }

    /// Bytes of tables, slots and names.
    #[must_use]
    pub fn table_bytes(&self) -> u64 {
        let state = self.shared.lock();
        state.client.statistics().table_bytes + (state.parts.len() * PART_PAGES * size_of::<u64>()) as u64
    }
}

fn failed(action: Action, why: PageError) -> IoError {
    let kind = if why == PageError::Full { ErrorKind::StorageFull } else { ErrorKind::Other };
    IoError::new(action, Path::new("memory servers"), None, io::Error::new(kind, why))
}

fn wrong(action: Action, why: &str) -> IoError {
    IoError::new(action, Path::new("memory servers"), None, io::Error::new(ErrorKind::NotFound, why))
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

fn answer(answers: Answers) {
    for (completer, result, buffer) in answers {
        completer.complete(result, buffer.into());
    }
}

impl State {
    /// Takes the events of the client.
    fn answers(&mut self) -> Answers {
        let mut answers = Vec::new();
        while let Some(event) = self.client.event() {
            match event {
                Event::In { ticket, bytes } => {
                    let Some((completer, mut buffer)) = self.reads.remove(&ticket) else { continue };
                    buffer.copy_from_slice(&bytes);
                    answers.push((completer, Ok(PAGE_BYTES), buffer));
                }
                Event::Out { ticket, slot } => self.out(ticket, Ok(slot), &mut answers),
                Event::Failed { ticket, error } => {
                    if let Some((completer, buffer)) = self.reads.remove(&ticket) {
                        answers.push((completer, Err(failed(Action::Read, error)), buffer));
                    } else {
                        self.out(ticket, Err(error), &mut answers);
                    }
                }
            }
        }
        answers
    }

    /// A page of a run is out, or will never be.
    fn out(&mut self, ticket: Ticket, outcome: std::result::Result<u64, PageError>, answers: &mut Answers) {
        let Some((number, page)) = self.outs.remove(&ticket) else { return };
        let run = self.runs.get_mut(&number).expect("a run is there until all of its pages are answered");
        let part = self.parts.get_mut(&run.first.part).filter(|part| part.generation == run.first.generation);
        match (outcome, part) {
            (Ok(slot), Some(part)) => {
                let before = std::mem::replace(&mut part.slots[page as usize], slot);
                self.promised = self.promised.saturating_sub(u64::from(before == NOWHERE));
                if before != NOWHERE {
                    self.client.free(before);
                }
            }
            (Ok(slot), None) => self.client.free(slot),
            (Err(error), _) => run.problem = Some(error),
        }
        run.left -= 1;
        if run.left > 0 {
            return;
        }
        let run = self.runs.remove(&number).expect("it was there some lines before");
        let Some(error) = run.problem else {
            let bytes = run.buffer.len();
            return answers.push((run.completer, Ok(bytes), run.buffer));
        };
        if let Some(part) = self.parts.get_mut(&run.first.part) {
            for page in run.first.page as usize..run.first.page as usize + run.buffer.len() / PAGE_BYTES {
                let slot = std::mem::replace(&mut part.slots[page], NOWHERE);
                if slot != NOWHERE {
                    self.client.free(slot);
                    self.promised += 1;
                }
            }
        }
        answers.push((run.completer, Err(failed(Action::Write, error)), run.buffer));
    }

    fn slot(&self, page: PageName) -> Option<u64> {
        let part = self.parts.get(&page.part).filter(|part| part.generation == page.generation)?;
        part.slots.get(page.page as usize).copied().filter(|slot| *slot != NOWHERE)
    }
}

impl Backing for RemoteBacking {
    fn name(&self) -> &'static str {
        "remote"
    }

    fn table_bytes(&self) -> u64 {
        Self::table_bytes(self)
    }

    fn prepare(&self, _part: u32) -> Result<()> {
        let mut state = self.shared.lock();
        if state.client.room() < state.promised + PART_PAGES as u64 {
            return Err(failed(Action::Allocate, PageError::Full));
        }
        state.promised += PART_PAGES as u64;
        Ok(())
    }

    fn read(&self, page: PageName, buffer: AlignedBytes) -> Completion {
        let mut state = self.shared.lock();
        let slot = match state.slot(page) {
            Some(slot) if !state.ends => slot,
            _ => {
                let why = wrong(Action::Read, "the page was not written there, or is gone with its part");
                return Completion::ready(Err(why), buffer.into());
            }
        };
        let (completer, completion) = Completion::pending_owned();
        let gathered = state.client.is_gathering();
        let ticket = state.client.page_in(slot);
        state.reads.insert(ticket, (completer, buffer));
        self.shared.push(state, gathered);
        completion
    }

    fn write_run(&self, first: PageName, pages: AlignedBytes) -> Completion {
        let mut state = self.shared.lock();
        let (count, most) = (pages.len() / PAGE_BYTES, PART_PAGES - first.page as usize);
        if state.ends || count > most {
            let why = wrong(Action::Write, "it has been closed, or the run leads out of its part");
            return Completion::ready(Err(why), pages.into());
        }
        let fresh = || Slots { generation: first.generation, slots: vec![NOWHERE; PART_PAGES].into() };
        let part = state.parts.entry(first.part).or_insert_with(fresh);
        if part.generation != first.generation {
            let why = wrong(Action::Write, "an earlier use of the part was not dropped");
            return Completion::ready(Err(why), pages.into());
        }
        let (completer, completion) = Completion::pending_owned();
        let number = state.next_run;
        state.next_run += 1;
        let gathered = state.client.is_gathering();
        for (at, page) in pages.chunks(PAGE_BYTES).enumerate() {
            let ticket = state.client.page_out(page.into());
            state.outs.insert(ticket, (number, first.page + at as u32));
        }
        let run = Run { completer, buffer: pages, first, left: count, problem: None };
        state.runs.insert(number, run);
        self.shared.push(state, gathered);
        completion
    }

    fn discard(&self, part: u32, generation: u32) {
        let mut state = self.shared.lock();
        let state = &mut *state;
        let slots = match state.parts.get(&part) {
            Some(found) if found.generation != generation => return,
            Some(_) => state.parts.remove(&part).map_or_else(Box::default, |part| part.slots),
            // Nothing was written to it.
            None => Box::default(),
        };
        let written = slots.iter().filter(|slot| **slot != NOWHERE);
        let mut count = 0;
        for slot in written {
            state.client.free(*slot);
            count += 1;
        }
        state.promised = state.promised.saturating_sub(PART_PAGES as u64 - count);
    }
}

impl Drop for RemoteBacking {
    fn drop(&mut self) {
        if let Ok(mut state) = self.shared.state.lock() {
            state.ends = true;
        }
        self.shared.ring();
        if let Some(driver) = self.driver.take() {
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
            let idle = state.runs.is_empty() && state.reads.is_empty() && !state.client.is_opening();
            if idle || now >= end_ns {
                drop(state);
                answer(answers);
                return close(shared);
            }
        }
        drop(state);
        answer(answers);
        sleep(&waits, now, rope);
    }
}

/// Gives the leases back, and answers what was not answered.
fn close(shared: &Shared) {
    let mut state = shared.lock();
    let gone = |action| wrong(action, "it was closed while this was under way");
    let mut answers: Answers = state
        .reads
        .drain()
        .map(|(_, (completer, buffer))| (completer, Err(gone(Action::Read)), buffer))
        .collect();
    answers.extend(state.runs.drain().map(|(_, run)| (run.completer, Err(gone(Action::Write)), run.buffer)));
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
